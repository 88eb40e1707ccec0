"""JAX functions of small arrays as graphs of scalar expressions, to be written as formulas or as source text.

The walk over a function's jaxpr, and the rules that only move numbers or walk on, serve other pictures of it too.
"""

from jaxmbd._graph._calls import RULES as CALLS
from jaxmbd._graph._calls import branching
from jaxmbd._graph._moves import RULES as MOVES
from jaxmbd._graph._node import BOOLEAN, Graph, Node, in_order
from jaxmbd._graph._number import to_float, twelfths_of_pi
from jaxmbd._graph._step import Step
from jaxmbd._graph._trace import Traced, Walk, trace
from jaxmbd._graph._windows import Windows, read_known, window_rules, write_known

__all__ = [
    "BOOLEAN",
    "CALLS",
    "MOVES",
    "Graph",
    "Node",
    "Step",
    "Traced",
    "Walk",
    "Windows",
    "branching",
    "in_order",
    "read_known",
    "to_float",
    "trace",
    "twelfths_of_pi",
    "window_rules",
    "write_known",
]
