"""Forces: one small law per class, a wrench at each marker."""

from jaxmbd._force._base import AbstractForce as AbstractForce
from jaxmbd._force._friction import JointForce as JointForce
from jaxmbd._force._friction import JointFriction as JointFriction
from jaxmbd._force._planar import Force as Force
from jaxmbd._force._planar import Gravity as Gravity
from jaxmbd._force._planar import PointDrag as PointDrag
from jaxmbd._force._planar import SpringDamper as SpringDamper
from jaxmbd._force._planar import Torque as Torque
from jaxmbd._force._planar import TorsionalSpringDamper as TorsionalSpringDamper
from jaxmbd._force._user import GeneralizedForce as GeneralizedForce
from jaxmbd._force._user import UserForce as UserForce
