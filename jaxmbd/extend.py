"""What extensions are made of: abstract classes of parts, formulations and parameters, and what their laws are written
with.

The names of this module, and what they do, stay as they are from version to version. What is neither among them nor
exported by `jaxmbd`, `jaxmbd.planar` or `jaxmbd.spatial` may move.
"""

from jaxmbd.arrays import Scalar as Scalar
from jaxmbd.arrays import as_float as as_float
from jaxmbd.arrays import is_concrete as is_concrete
from jaxmbd.checks import check_fields as check_fields
from jaxmbd.checks import check_finite as check_finite
from jaxmbd.checks import check_number as check_number
from jaxmbd.engine import as_program as as_program
from jaxmbd.engine import cached_on_disk as cached_on_disk
from jaxmbd.engine import is_program as is_program
from jaxmbd.engine import trace_once as trace_once
from jaxmbd.equations.saddle_point import SaddlePoint as SaddlePoint
from jaxmbd.integrate.formulations.formulation import AbstractClosingFormulation as AbstractClosingFormulation
from jaxmbd.integrate.formulations.formulation import AbstractFormulation as AbstractFormulation
from jaxmbd.integrate.formulations.formulation import AbstractProjectedFormulation as AbstractProjectedFormulation
from jaxmbd.integrate.formulations.formulation import StateDerivative as StateDerivative
from jaxmbd.integrate.formulations.newton_closure import DependentCoordinateCorrection as DependentCoordinateCorrection
from jaxmbd.integrate.formulations.newton_closure import DeterminedCorrection as DeterminedCorrection
from jaxmbd.integrate.formulations.newton_closure import MassWeightedCorrection as MassWeightedCorrection
from jaxmbd.integrate.formulations.newton_closure import NamedCoordinateCorrection as NamedCoordinateCorrection
from jaxmbd.integrate.formulations.newton_closure import close_loops as close_loops
from jaxmbd.integrate.formulations.newton_closure import consistent_speeds as consistent_speeds
from jaxmbd.model.body.body import AbstractMarker as AbstractMarker
from jaxmbd.model.body.flexible import AbstractFlexibleBody as AbstractFlexibleBody
from jaxmbd.model.controller.controller import AbstractController as AbstractController
from jaxmbd.model.controller.controller import AbstractDynamicController as AbstractDynamicController
from jaxmbd.model.force.force import AbstractForce as AbstractForce
from jaxmbd.model.force.force import AbstractJointForce as AbstractJointForce
from jaxmbd.model.force.force import pair as pair
from jaxmbd.model.force.marker_forces import AbstractLineForce as AbstractLineForce
from jaxmbd.model.functions.function import AbstractFunction as AbstractFunction
from jaxmbd.model.joint.consistency import check_tree_joint as check_tree_joint
from jaxmbd.model.joint.joint import AbstractCoordinateTreeJoint as AbstractCoordinateTreeJoint
from jaxmbd.model.joint.joint import AbstractJoint as AbstractJoint
from jaxmbd.model.joint.joint import AbstractJointWithCoordinates as AbstractJointWithCoordinates
from jaxmbd.model.joint.joint import AbstractNonholonomic as AbstractNonholonomic
from jaxmbd.model.joint.joint import AbstractPair as AbstractPair
from jaxmbd.model.joint.joint import AbstractSidedJoint as AbstractSidedJoint
from jaxmbd.model.joint.joint import AbstractTreeJoint as AbstractTreeJoint
from jaxmbd.model.joint.planar import AbstractPlanarTreeJoint as AbstractPlanarTreeJoint
from jaxmbd.model.joint.spatial import AbstractSpatialPair as AbstractSpatialPair
from jaxmbd.model.joint.spatial import AbstractSpatialTreeJoint as AbstractSpatialTreeJoint
from jaxmbd.model.sensor import AbstractSensor as AbstractSensor
from jaxmbd.model.states import AbstractOwnStates as AbstractOwnStates
from jaxmbd.model.states import AbstractSided as AbstractSided
from jaxmbd.model.states import AbstractSwitching as AbstractSwitching
from jaxmbd.model.states import OwnState as OwnState
from jaxmbd.numerics.linear_solve import LeastSquaresQR as LeastSquaresQR
from jaxmbd.numerics.linear_solve import spd_solver as spd_solver
from jaxmbd.parameters.places import AbstractPlace as AbstractPlace
from jaxmbd.parameters.priors import AbstractPrior as AbstractPrior
from jaxmbd.parameters.ranges import AbstractRange as AbstractRange
from jaxmbd.space.vectors import direction as direction
from jaxmbd.space.vectors import dot as dot
from jaxmbd.space.vectors import safe_norm as safe_norm
from jaxmbd.state.output_channels import channel_values as channel_values
from jaxmbd.state.state import check_state as check_state
