"""The argument of the rules for primitives: one equation of a jaxpr, whose operands are arrays of nodes.

Structural rules, and those that walk inner jaxprs, do not depend on nodes: the arrays may contain any representation of
scalars, such as the value ids of `SSABuilder`, if the `graph` has the methods `constant`, `constants` and `values`.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from jaxmbd.compile.graph.node import Node
from jaxmbd.errors import MechanismError

Arrays: TypeAlias = list[np.ndarray]


@dataclass(frozen=True)
class Step:
    """One equation of a jaxpr. `walk` interprets an inner jaxpr, and `title` names the traced function in messages."""

    graph: Any
    equation: Any
    walk: Callable[[Any, Arrays], Arrays]
    title: str

    @property
    def name(self) -> str:
        return self.equation.primitive.name

    @property
    def params(self) -> dict[str, Any]:
        return self.equation.params

    @property
    def dtype(self) -> np.dtype:
        """The type of the first result."""
        return np.dtype(self.equation.outvars[0].aval.dtype)

    @property
    def operand_dtype(self) -> np.dtype:
        return np.dtype(self.equation.invars[0].aval.dtype)

    def constant(self, value: Any) -> Any:
        return self.graph.constant(value)

    def unsupported(self, detail: str = "") -> MechanismError:
        return MechanismError(
            f"{self.title} cannot be written as a formula: it uses {self.name!r}{detail}. Formulas are made of "
            "arithmetic, elementary functions, choices (jnp.where), sums, products of matrices, and indices and "
            "loops that do not depend on the inputs."
        )

    def evaluate(self, *operands: np.ndarray) -> Arrays:
        """Evaluate the primitive at constant operands by JAX."""
        avals = [var.aval for var in self.equation.invars]
        values = [self.graph.values(operand, aval.dtype) for operand, aval in zip(operands, avals, strict=True)]
        if any(value is None for value in values):
            raise self.unsupported(" of something that depends on the inputs" if operands else "")
        results = self.equation.primitive.bind(*values, **self.params)
        several = results if self.equation.primitive.multiple_results else [results]
        return [self.graph.constants(np.asarray(result)) for result in several]

    def indices(self, operand: np.ndarray) -> np.ndarray:
        """The values of constant operands as integers, for indexing."""
        values = self.graph.values(operand, np.dtype(np.int64))
        if values is None:
            raise self.unsupported(" with an index that depends on the inputs")
        return values


def array(nodes: Any) -> np.ndarray:
    """Convert to an array; NumPy returns a bare node instead of an array without axes."""
    return np.asarray(nodes) if isinstance(nodes, np.ndarray | np.generic) else np.asarray(nodes, dtype=object)


def over_arrays(function: Callable[..., Node], operands: int) -> np.ufunc:
    """A function of nodes as a ufunc, memoised, since operands such as zeros repeat."""
    return np.frompyfunc(functools.cache(function), operands, 1)
