"""From parts to equations."""

from jaxmbd._equations._equations import Equations as Equations
from jaxmbd._equations._local import taylor as taylor
from jaxmbd._equations._local import taylor_pair as taylor_pair
