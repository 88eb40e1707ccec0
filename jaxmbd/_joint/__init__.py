"""Joints: one small law per class, a residual of the frames it connects."""

from jaxmbd._joint._base import AbstractJoint as AbstractJoint
from jaxmbd._joint._planar import Gear as Gear
from jaxmbd._joint._planar import PinInSlot as PinInSlot
from jaxmbd._joint._planar import RelativeAngle as RelativeAngle
from jaxmbd._joint._planar import Revolute as Revolute
from jaxmbd._joint._planar import Rod as Rod
from jaxmbd._joint._planar import Translational as Translational
from jaxmbd._joint._planar import Weld as Weld
from jaxmbd._joint._user import Constraint as Constraint
from jaxmbd._joint._user import GlobalConstraint as GlobalConstraint
