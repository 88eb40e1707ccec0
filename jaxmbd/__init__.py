"""jaxmbd: multibody dynamics of mechanisms, differentiable from end to end.

Parts of mechanisms are in `jaxmbd.planar` and `jaxmbd.spatial`; analyses and results are here.
"""

from importlib.metadata import PackageNotFoundError, version

from jaxmbd import examples as examples
from jaxmbd import identification as identification
from jaxmbd import planar as planar
from jaxmbd import spatial as spatial
from jaxmbd.analyses.assembly.assemble import assemble as assemble
from jaxmbd.analyses.assembly.assembly_modes import AssemblyModes as AssemblyModes
from jaxmbd.analyses.assembly.assembly_modes import assembly_modes as assembly_modes
from jaxmbd.analyses.describe import Description as Description
from jaxmbd.analyses.describe import describe as describe
from jaxmbd.analyses.equilibrium.balance import Rotation as Rotation
from jaxmbd.analyses.equilibrium.equilibrium import Equilibrium as Equilibrium
from jaxmbd.analyses.equilibrium.equilibrium import equilibrium as equilibrium
from jaxmbd.analyses.equilibrium.equilibrium_path import EquilibriumPath as EquilibriumPath
from jaxmbd.analyses.equilibrium.equilibrium_path import equilibrium_path as equilibrium_path
from jaxmbd.analyses.events.changes import Change as Change
from jaxmbd.analyses.events.changes import Switch as Switch
from jaxmbd.analyses.events.event import Bounce as Bounce
from jaxmbd.analyses.events.event import Event as Event
from jaxmbd.analyses.events.event import Latch as Latch
from jaxmbd.analyses.events.event import LogOnly as LogOnly
from jaxmbd.analyses.events.event import Release as Release
from jaxmbd.analyses.events.event import Stop as Stop
from jaxmbd.analyses.events.event_log import Events as Events
from jaxmbd.analyses.inverse_dynamics import inverse_dynamics as inverse_dynamics
from jaxmbd.analyses.kinematics import kinematics as kinematics
from jaxmbd.analyses.linearization.linear_system import LinearSystem as LinearSystem
from jaxmbd.analyses.linearization.linearize import linearize as linearize
from jaxmbd.analyses.linearization.modes import Modes as Modes
from jaxmbd.analyses.output_channels import Snapshot as Snapshot
from jaxmbd.analyses.output_channels import read as read
from jaxmbd.analyses.redundancy import Redundancy as Redundancy
from jaxmbd.analyses.redundancy import redundancy as redundancy
from jaxmbd.analyses.result_codes import RESULTS as RESULTS
from jaxmbd.analyses.simulation.simulate import simulate as simulate
from jaxmbd.analyses.simulation.solution import Reaction as Reaction
from jaxmbd.analyses.simulation.solution import Solution as Solution
from jaxmbd.analyses.simulation.solution import Violation as Violation
from jaxmbd.analyses.state import State as State
from jaxmbd.analyses.time_scales import TimeScales as TimeScales
from jaxmbd.analyses.time_scales import time_scales as time_scales
from jaxmbd.equations.equations import Equations as Equations
from jaxmbd.errors import AssemblyError as AssemblyError
from jaxmbd.errors import MechanismError as MechanismError
from jaxmbd.errors import SolveError as SolveError
from jaxmbd.identification import Experiment as Experiment
from jaxmbd.identification import Fit as Fit
from jaxmbd.identification import FitWarning as FitWarning
from jaxmbd.identification import fit as fit
from jaxmbd.integrate.adjoint.discrete_adjoint import DiscreteAdjoint as DiscreteAdjoint
from jaxmbd.integrate.formulations.coordinate_partitioning import CoordinatePartitioning as CoordinatePartitioning
from jaxmbd.integrate.formulations.formulation import AbstractFormulation as AbstractFormulation
from jaxmbd.integrate.formulations.formulation import Augmented as Augmented
from jaxmbd.integrate.formulations.formulation import Projection as Projection
from jaxmbd.integrate.formulations.formulation import Stabilized as Stabilized
from jaxmbd.integrate.solvers.radau import Radau as Radau
from jaxmbd.integrate.solvers.unrolled_erk import RungeKutta4 as RungeKutta4
from jaxmbd.model.time_functions import AbstractTimeFunction as AbstractTimeFunction
from jaxmbd.model.time_functions import Piecewise as Piecewise
from jaxmbd.model.time_functions import SmoothingSpline as SmoothingSpline
from jaxmbd.model.time_functions import Table as Table
from jaxmbd.symbolic import SymbolicSystem as SymbolicSystem
from jaxmbd.symbolic import System as System
from jaxmbd.symbolic import export as export

try:
    __version__ = version("jaxmbd")
except PackageNotFoundError:
    __version__ = "0+unknown"
