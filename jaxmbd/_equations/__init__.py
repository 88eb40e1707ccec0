"""From parts to equations."""

from jaxmbd._equations._equations import Equations as Equations
