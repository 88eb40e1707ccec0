"""Joints: one small law per class, a residual of the frames it connects.

`_planar` and `_spatial` hold classes of the same names; `jaxmbd.planar` and `jaxmbd.spatial` gather them.
"""

from jaxmbd._joint._base import AbstractJoint as AbstractJoint
from jaxmbd._joint._base import AbstractMoving as AbstractMoving
from jaxmbd._joint._base import AbstractNonholonomic as AbstractNonholonomic
from jaxmbd._joint._base import AbstractTreeJoint as AbstractTreeJoint
from jaxmbd._joint._base import no_rows as no_rows
from jaxmbd._joint._base import residual_of as residual_of
from jaxmbd._joint._base import slip_of as slip_of
from jaxmbd._joint._coupling import AbstractCoupling as AbstractCoupling
from jaxmbd._joint._shared import BallCut as BallCut
from jaxmbd._joint._shared import Free as Free
from jaxmbd._joint._user import GlobalConstraint as GlobalConstraint
from jaxmbd._joint._user import NonholonomicConstraint as NonholonomicConstraint
