"""JAX functions of small arrays as graphs of scalar expressions, to be written as formulas or as source text."""

from jaxmbd._graph._node import BOOLEAN, Graph, Node, in_order
from jaxmbd._graph._number import to_float, twelfths_of_pi
from jaxmbd._graph._trace import Traced, trace

__all__ = ["BOOLEAN", "Graph", "Node", "Traced", "in_order", "to_float", "trace", "twelfths_of_pi"]
