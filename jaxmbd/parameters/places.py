"""Places of parameters in a mechanism: how a value is read there, and put there."""

import abc
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.errors import MechanismError, shown
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.labels import labels
from jaxmbd.parameters.numbers import Number, Path, find, find_node, is_pattern, replaced
from jaxmbd.user_functions import call_user

Where = Callable[[Mechanism], PyTree] | str

# Of a symmetric matrix: the entries that are its numbers, and the number that is at each entry.
ROWS, COLUMNS = np.array([0, 1, 2, 0, 0, 1]), np.array([0, 1, 2, 1, 2, 2])
_ENTRIES = np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])
_COMPONENTS = ("xx", "yy", "zz", "xy", "xz", "yz")


class AbstractPlace(eqx.Module):
    """A place in a mechanism that holds the value of a parameter, or of an input of an experiment.

    `is_last`: it changes numbers that other places hold, and so comes after them; `components`: the names of the
    numbers of a value, for texts, which are counted if there are none.
    """

    is_last: ClassVar[bool]
    components: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def value(self, part: str, mechanism: Mechanism) -> PyTree:
        """Return the value in the mechanism; `part` is named in errors."""

    @abc.abstractmethod
    def replaced(self, mechanism: Mechanism, value: PyTree) -> Mechanism:
        """Return the mechanism with another value."""


class Leaves(AbstractPlace):
    """The numbers that a function selects: a leaf, several leaves that share one value, or a module."""

    is_last: ClassVar[bool] = False
    components: ClassVar[tuple[str, ...]] = ()
    where: Callable[[Mechanism], PyTree]  # a leaf: problems that differ in their functions may be solved side by side

    def value(self, part: str, mechanism: Mechanism) -> PyTree:
        selected = call_user(part, "where", self.where, mechanism, takes="mechanism")
        nodes = selected if isinstance(selected, tuple) else (selected,)
        leaves = {id(leaf) for leaf in jax.tree.leaves(mechanism)}
        for node in nodes:
            if not all(id(leaf) in leaves for leaf in jax.tree.leaves(eqx.filter(node, eqx.is_inexact_array))):
                raise MechanismError(
                    f"{part} points at {eqx.tree_pformat(node)}, which is not a number of the mechanism: it has been "
                    "computed, or taken out of an array. One number of an array has a name, such as "
                    "'O.b.position[0]'. In fits and designs, a function that builds the mechanism may compute numbers."
                )
        value = eqx.filter(nodes[0], eqx.is_inexact_array)
        if not jax.tree.leaves(value):
            raise MechanismError(f"{part} points at {nodes[0]!r}, which holds no numbers.")
        return value

    def replaced(self, mechanism: Mechanism, value: PyTree) -> Mechanism:
        for k, node in enumerate(self._nodes(mechanism)):
            # A value of a parameter holds numbers alone, that of an input may be a whole module.
            new = eqx.combine(value, node) if _same_structure(value, node) else value
            mechanism = eqx.tree_at(lambda m, k=k: self._nodes(m)[k], mechanism, new)
        return mechanism

    def _nodes(self, mechanism: Mechanism) -> tuple[PyTree, ...]:
        selected = self.where(mechanism)
        return selected if isinstance(selected, tuple) else (selected,)


def _same_structure(value: PyTree, node: PyTree) -> bool:
    numbers = eqx.filter(node, eqx.is_inexact_array)
    return jax.tree.structure(value) == jax.tree.structure(numbers)


class Named(AbstractPlace):
    """The array or number of a name; of a pattern, all that match, by their names and each for itself.

    The value of a symmetric matrix are its six numbers, so that every value is symmetric.
    """

    is_last: ClassVar[bool] = False
    components: ClassVar[tuple[str, ...]] = ()
    numbers: tuple[Number, ...] = eqx.field(static=True)
    is_pattern: bool = eqx.field(static=True)

    def value(self, part: str, mechanism: Mechanism) -> PyTree:
        values = {one.name: one.value(mechanism) for one in self.numbers}
        values = {one.name: packed(x) if one.is_symmetric(x) else x for one, x in self._with(values)}
        return values if self.is_pattern else values[self.numbers[0].name]

    def replaced(self, mechanism: Mechanism, value: PyTree) -> Mechanism:
        values = value if self.is_pattern else {self.numbers[0].name: value}
        matrices = {one.name for one in self.numbers if one.is_symmetric(one.value(mechanism))}
        return replaced(mechanism, [(one, unpacked(x) if one.name in matrices else x) for one, x in self._with(values)])

    def _with(self, values: dict[str, PyTree]) -> list[tuple[Number, PyTree]]:
        return [(one, values[one.name]) for one in self.numbers]

    def labels(self, name: str, value: PyTree) -> list[str]:
        """Return the labels of the numbers of its value, in the order of JAX, which sorts dictionaries."""
        if not self.is_pattern:
            return labels(name, np.size(value), _components(self.numbers[0], value))
        numbers = sorted(self.numbers, key=lambda one: one.name)
        pairs = zip(numbers, jax.tree.leaves(value), strict=True)
        each = (labels(one.name, np.size(x), _components(one, x)) for one, x in pairs)
        return [f"{name}[{label}]" for one in each for label in one]

    def unit(self, mechanism: Mechanism) -> str:
        """Return the unit that all numbers have; "" if they differ, or it is not known."""
        units = {one.unit(mechanism) for one in self.numbers}
        return units.pop() if len(units) == 1 else ""


def _components(of: Number, value: PyTree) -> tuple[str, ...]:
    is_packed = of.index is None and of.is_inertia and np.size(value) > 1
    return _COMPONENTS if is_packed else ()


def place_of(part: str, where: object, mechanism: Mechanism) -> AbstractPlace:
    """Return the place that a name, a pattern or a function stands for; `part` is named in errors.

    A name without an index may lead to a function or to a module with arrays, such as a network, as a function may.

    **Raises:** `MechanismError` for names that do not exist, and for what stands for no place.
    """
    if isinstance(where, AbstractPlace):
        return where
    if isinstance(where, str):
        path = None if is_pattern(where) else find_node(mechanism, where)
        if path is None or eqx.is_array(Path(path)(mechanism)):
            return Named(find(mechanism, where), is_pattern(where))
        return Leaves(Path(path))
    if not callable(where):
        raise MechanismError(
            f"{part} must be a name such as 'spring.stiffness', or a function such as lambda m: "
            f"m['spring'].stiffness, got {shown(where)}."
        )
    return Leaves(where)


def place_of_number(part: str, field: str, where: object, mechanism: Mechanism) -> AbstractPlace:
    """Return the place of one number; `part` and its `field` are named in errors.

    **Raises:** `MechanismError`, as `place_of`, and for a place that holds anything but one number.
    """
    if callable(where):
        call_user(part, field, where, mechanism, takes="mechanism")
    what = part if field == "function" else f"{part}: {field}"
    place = place_of(what, where, mechanism)
    value = place.value(what, mechanism)
    if not eqx.is_array(value) or value.shape != ():
        held = f"an array of shape {value.shape}" if eqx.is_array(value) else "several numbers"
        named = repr(where) if isinstance(where, str) else "the function"
        raise MechanismError(f"{what} must be one number of the mechanism, and {named} stands for {held}.")
    return place


def packed(matrix: Array) -> Array:
    """Return the six numbers of a symmetric matrix, `xx, yy, zz, xy, xz, yz`."""
    return matrix[ROWS, COLUMNS]


def unpacked(numbers: Array) -> Array:
    """Return the symmetric matrix of six numbers."""
    return numbers[_ENTRIES]


def claims(
    mechanism: Mechanism, places: Mapping[str, AbstractPlace | None]
) -> Iterator[tuple[str, int, tuple[int, ...] | None]]:
    """Return which leaves of the mechanism the places take, by their number, whole or at one index."""
    leaves, structure = jax.tree.flatten(mechanism)
    numbered = jax.tree.unflatten(structure, range(len(leaves)))
    for name, place in places.items():
        if isinstance(place, Leaves):
            found = (leaf for leaf in jax.tree.leaves(place.where(numbered)) if isinstance(leaf, int))
            yield from ((name, leaf, None) for leaf in found)
        elif isinstance(place, Named):
            yield from ((name, one.array(numbered), one.index) for one in place.numbers)
