"""Analyses: one public function each."""

from jaxmbd._analysis._assemble import assemble as assemble
from jaxmbd._analysis._describe import Description as Description
from jaxmbd._analysis._describe import describe as describe
from jaxmbd._analysis._describe import load_names as load_names
from jaxmbd._analysis._describe import signed_loads as signed_loads
from jaxmbd._analysis._readings import Snapshot as Snapshot
from jaxmbd._analysis._readings import channel_units as channel_units
from jaxmbd._analysis._redundancy import Redundancy as Redundancy
from jaxmbd._analysis._redundancy import Repeat as Repeat
from jaxmbd._analysis._redundancy import redundancy as redundancy
from jaxmbd._analysis._simulate import Derivative as Derivative
from jaxmbd._analysis._simulate import simulate as simulate
from jaxmbd._analysis._solution import Reaction as Reaction
from jaxmbd._analysis._solution import Solution as Solution
from jaxmbd._analysis._solution import Violation as Violation
from jaxmbd._analysis._state import State as State
