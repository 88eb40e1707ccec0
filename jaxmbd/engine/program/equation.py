"""What rules work with: an equation of a jaxpr, and a builder of scalars.

A rule is a function of an `Equation` and of its operands, which are arrays of scalars, and returns one or several
arrays of scalars. Only the builder knows what a scalar is: a node of an expression graph, which is exact
(`graph/builder.py`), or a value id of a program, of which millions are emitted at once (`ssa_builder.py`).
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from jaxmbd.errors import MechanismError
from jaxmbd.upstream.jax_internals import ClosedJaxpr, Jaxpr, JaxprEqn, aval_of

Arrays: TypeAlias = list[np.ndarray]
# On arrays and the parameters of an equation, or on an `Equation` and arrays; one result or several.
Operation: TypeAlias = Callable[..., np.ndarray | Arrays]
Rule: TypeAlias = Operation


class AbstractBuilder(abc.ABC):
    """The operations on arrays of scalars of which rules are composed."""

    @abc.abstractmethod
    def constant(self, value: float) -> object:
        """The scalar of a number or a boolean."""

    @abc.abstractmethod
    def constants(self, array: ArrayLike) -> np.ndarray:
        """The scalars of an array of numbers."""

    @abc.abstractmethod
    def values(self, array: ArrayLike, dtype: DTypeLike) -> np.ndarray | None:
        """The numbers of constants; None if any of the scalars is not a constant."""

    @abc.abstractmethod
    def apply(self, name: str, *operands: object) -> np.ndarray:
        """Apply an operation, by its name, elementwise to operands that are broadcast against one another."""

    @abc.abstractmethod
    def power(self, x: np.ndarray, exponent: int) -> np.ndarray:
        """`x` to the power of an integer, elementwise."""

    @abc.abstractmethod
    def reduce(self, name: str, x: np.ndarray, start: float) -> np.ndarray:
        """Reduce the last axis by an associative operation with the neutral element `start`."""

    @abc.abstractmethod
    def contract(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The products `(batch, n, m)` of matrices `left (batch, n, k)` and the transposes of `right (batch, m, k)`."""


@dataclass(frozen=True)
class Equation:
    """One equation of a jaxpr. `interpret` interprets an inner jaxpr; `title` names the traced function in messages;
    `others`: parameters in the place of its own."""

    builder: Any
    source: JaxprEqn
    interpret: Callable[[ClosedJaxpr | Jaxpr, Arrays], Arrays]
    title: str
    others: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of the primitive."""
        return self.source.primitive.name

    @property
    def params(self) -> dict[str, Any]:
        return self.source.params if self.others is None else self.others

    @property
    def dtype(self) -> np.dtype:
        """The type of the first result."""
        return np.dtype(aval_of(self.source.outvars[0]).dtype)

    @property
    def operand_dtype(self) -> np.dtype:
        """The type of the first operand."""
        return np.dtype(aval_of(self.source.invars[0]).dtype)

    def unsupported(self, detail: str = "") -> MechanismError:
        return MechanismError(
            f"{self.title} cannot be written as a formula: it uses {self.name!r}{detail}. Formulas are made of "
            "arithmetic, elementary functions, choices (jnp.where), sums, products of matrices, and indices and "
            "loops that do not depend on the inputs."
        )

    def evaluate(self, *operands: np.ndarray) -> Arrays:
        """Evaluate the primitive at constant operands by JAX."""
        avals = [*map(aval_of, self.source.invars)]
        values = [self.builder.values(operand, aval.dtype) for operand, aval in zip(operands, avals, strict=True)]
        if any(value is None for value in values):
            raise self.unsupported(" of something that depends on the inputs" if operands else "")
        results = self.source.primitive.bind(*values, **self.params)
        several = results if self.source.primitive.multiple_results else [results]
        if any(not isinstance(x.dtype, np.dtype) for x in several):  # such as a key of random numbers
            raise self.unsupported()
        return [self.builder.constants(np.asarray(result)) for result in several]

    def indices(self, operand: np.ndarray) -> np.ndarray:
        """The values of constant operands as integers, for indexing."""
        values = self.builder.values(operand, np.dtype(np.int64))
        if values is None:
            raise self.unsupported(" with an index that depends on the inputs")
        return values


def array(scalars: object) -> np.ndarray:
    """Convert to an array; NumPy returns a bare scalar instead of an array without axes."""
    is_numpy = isinstance(scalars, np.ndarray | np.generic)
    return np.asarray(scalars) if is_numpy else np.asarray(scalars, dtype=object)
