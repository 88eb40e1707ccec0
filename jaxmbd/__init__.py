"""jaxmbd: multibody dynamics of mechanisms, differentiable from end to end.

Nouns for mechanisms are in `jaxmbd.planar` and `jaxmbd.spatial`; the verbs are here.
"""

from importlib.metadata import PackageNotFoundError, version

from jaxmbd import examples as examples
from jaxmbd import planar as planar
from jaxmbd import spatial as spatial
from jaxmbd._analysis import RESULTS as RESULTS
from jaxmbd._analysis import Bounce as Bounce
from jaxmbd._analysis import Change as Change
from jaxmbd._analysis import Closures as Closures
from jaxmbd._analysis import Description as Description
from jaxmbd._analysis import Equilibrium as Equilibrium
from jaxmbd._analysis import EquilibriumPath as EquilibriumPath
from jaxmbd._analysis import Event as Event
from jaxmbd._analysis import Events as Events
from jaxmbd._analysis import Latch as Latch
from jaxmbd._analysis import LinearSystem as LinearSystem
from jaxmbd._analysis import Modes as Modes
from jaxmbd._analysis import Reaction as Reaction
from jaxmbd._analysis import Record as Record
from jaxmbd._analysis import Redundancy as Redundancy
from jaxmbd._analysis import Release as Release
from jaxmbd._analysis import Rotation as Rotation
from jaxmbd._analysis import Snapshot as Snapshot
from jaxmbd._analysis import Solution as Solution
from jaxmbd._analysis import State as State
from jaxmbd._analysis import Stiffness as Stiffness
from jaxmbd._analysis import Stop as Stop
from jaxmbd._analysis import Switch as Switch
from jaxmbd._analysis import Violation as Violation
from jaxmbd._analysis import assemble as assemble
from jaxmbd._analysis import closures as closures
from jaxmbd._analysis import describe as describe
from jaxmbd._analysis import equilibrium as equilibrium
from jaxmbd._analysis import equilibrium_path as equilibrium_path
from jaxmbd._analysis import inverse_dynamics as inverse_dynamics
from jaxmbd._analysis import kinematics as kinematics
from jaxmbd._analysis import linearize as linearize
from jaxmbd._analysis import read as read
from jaxmbd._analysis import redundancy as redundancy
from jaxmbd._analysis import simulate as simulate
from jaxmbd._analysis import stiffness as stiffness
from jaxmbd._driver import Smoothed as Smoothed
from jaxmbd._equations import Equations as Equations
from jaxmbd._errors import AssemblyError as AssemblyError
from jaxmbd._errors import MechanismError as MechanismError
from jaxmbd._errors import SolveError as SolveError
from jaxmbd._fit import Between as Between
from jaxmbd._fit import Experiment as Experiment
from jaxmbd._fit import Fit as Fit
from jaxmbd._fit import FitWarning as FitWarning
from jaxmbd._fit import Free as Free
from jaxmbd._fit import Positive as Positive
from jaxmbd._fit import Real as Real
from jaxmbd._fit import fit as fit
from jaxmbd._method import Augmented as Augmented
from jaxmbd._method import CoordinatePartitioning as CoordinatePartitioning
from jaxmbd._method import DiscreteAdjoint as DiscreteAdjoint
from jaxmbd._method import Projection as Projection
from jaxmbd._method import Radau as Radau
from jaxmbd._method import RungeKutta4 as RungeKutta4
from jaxmbd._method import Stabilized as Stabilized
from jaxmbd._switching import AbstractTimeFunction as AbstractTimeFunction
from jaxmbd._switching import Piecewise as Piecewise
from jaxmbd._switching import Table as Table
from jaxmbd.symbolic import SymbolicSystem as SymbolicSystem
from jaxmbd.symbolic import System as System
from jaxmbd.symbolic import export as export

try:
    __version__ = version("jaxmbd")
except PackageNotFoundError:
    __version__ = "0+unknown"
