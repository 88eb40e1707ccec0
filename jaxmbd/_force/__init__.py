"""Forces: one small law per class, a wrench at each marker, or an effort along a joint's coordinate.

`_planar` and `_spatial` hold classes of the same names; `jaxmbd.planar` and `jaxmbd.spatial` gather them.
"""

from jaxmbd._force._base import AbstractAlong as AbstractAlong
from jaxmbd._force._base import AbstractForce as AbstractForce
from jaxmbd._force._scaled import ScaledForce as ScaledForce
from jaxmbd._force._scaled import scaled as scaled
from jaxmbd._force._shared import Gravity as Gravity
from jaxmbd._force._shared import SpringDamper as SpringDamper
from jaxmbd._force._user import GeneralizedForce as GeneralizedForce
