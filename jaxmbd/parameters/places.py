"""Places of parameters in a mechanism: how a value is read there, and put there."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax

from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.user_functions import call_user

Where = Callable[[Mechanism], Any]


class AbstractPlace(eqx.Module):
    """A place in a mechanism that holds the value of a parameter, or of an input of an experiment.

    `is_last`: it changes numbers that other places hold, and so comes after them; `components`: the names of the
    numbers of a value, for texts, which are counted if there are none.
    """

    is_last: ClassVar[bool]
    components: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def value(self, part: str, mechanism: Mechanism) -> Any:
        """Return the value in the mechanism; `part` is named in errors."""

    @abc.abstractmethod
    def replaced(self, mechanism: Mechanism, value: Any) -> Mechanism:
        """Return the mechanism with another value."""


class Leaves(AbstractPlace):
    """The numbers that a function selects: a leaf, several leaves that share one value, or a module."""

    is_last: ClassVar[bool] = False
    components: ClassVar[tuple[str, ...]] = ()
    where: Where = eqx.field(static=True)

    def value(self, part: str, mechanism: Mechanism) -> Any:
        selected = call_user(part, "where", self.where, mechanism, takes="mechanism")
        nodes = selected if isinstance(selected, tuple) else (selected,)
        leaves = {id(leaf) for leaf in jax.tree.leaves(mechanism)}
        for node in nodes:
            if not all(id(leaf) in leaves for leaf in jax.tree.leaves(eqx.filter(node, eqx.is_inexact_array))):
                raise MechanismError(
                    f"{part} points at {eqx.tree_pformat(node)}, which is not a number of the mechanism: it has been "
                    "computed, or taken out of an array. Point at the whole array, or give a function that builds the "
                    "mechanism from the numbers."
                )
        value = eqx.filter(nodes[0], eqx.is_inexact_array)
        if not jax.tree.leaves(value):
            raise MechanismError(f"{part} points at {nodes[0]!r}, which holds no numbers.")
        return value

    def replaced(self, mechanism: Mechanism, value: Any) -> Mechanism:
        for k, node in enumerate(self._nodes(mechanism)):
            # A value of a parameter holds numbers alone, that of an input may be a whole module.
            new = eqx.combine(value, node) if _same_structure(value, node) else value
            mechanism = eqx.tree_at(lambda m, k=k: self._nodes(m)[k], mechanism, new)
        return mechanism

    def _nodes(self, mechanism: Mechanism) -> tuple[Any, ...]:
        selected = self.where(mechanism)
        return selected if isinstance(selected, tuple) else (selected,)


def _same_structure(value: Any, node: Any) -> bool:
    numbers = eqx.filter(node, eqx.is_inexact_array)
    return jax.tree.structure(value) == jax.tree.structure(numbers)
