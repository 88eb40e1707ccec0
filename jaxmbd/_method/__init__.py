"""Methods: how the constraints are kept."""

from jaxmbd._method._method import AbstractMethod as AbstractMethod
from jaxmbd._method._method import Augmented as Augmented
from jaxmbd._method._method import Motion as Motion
from jaxmbd._method._method import Stabilized as Stabilized
from jaxmbd._method._method import motion_of as motion_of
from jaxmbd._method._solve import SaddlePoint as SaddlePoint
