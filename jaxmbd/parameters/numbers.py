"""The numbers of a mechanism by name, `"rod.mass"`, `"O.b.position[0]"`, or by a pattern, `"*.mass"`: where they are,
their units, and other values of them.

A name is that of a part and the fields that lead to an array in it, as Python would write them; an index selects one
number of that array. In a pattern `*` stands for any text and `?` for one character.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.arrays import Numbers, as_float, constant, is_concrete
from jaxmbd.checks import check_finite, check_instance, check_mapping, checked_names
from jaxmbd.docstrings import units_of
from jaxmbd.errors import MechanismError, shown, unknown
from jaxmbd.model.force.force import AbstractJointForce, FunctionWithInputs
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.model.mechanism.validation import check_moving
from jaxmbd.printing import format_number, table
from jaxmbd.user_functions import StaticFunction, plain

_KIND = "number of a part"
_MOST = 16  # an array with more numbers, such as a table or the weights of a network, is listed as a whole
_SHOWN = 60  # rows of a printed table
_INDEX = re.compile(r"(.+)\[(\d+(?:,\d+)*)\]")


@dataclass(frozen=True)
class Field:
    """The key of a field of a module; those of items of containers are their indices or names."""

    name: str


Key: TypeAlias = Field | Hashable

# A pose is a guess for the assembly, and the four numbers of a rotation depend on one another: who means them names
# them; no pattern does.
_UNLISTED = {Field("pose"), Field("rotation")}


# The numbers of a law keep their names when inputs are added to it (`parameters/inputs.py`).
_UNSPELLED = Field("without_inputs")


@dataclass(frozen=True)
class Path:
    """A function from a mechanism to what is at a place in it; equal for equal places."""

    keys: tuple[Key, ...]

    def __call__(self, tree: PyTree) -> PyTree:
        for key in self.keys:
            tree = getattr(tree, key.name) if isinstance(key, Field) else tree[key]
        return tree


@dataclass(frozen=True)
class Number:
    """What a name stands for: an array of a mechanism, or with an index one number of it.

    `path`: the keys that lead to the array. Two entries of a symmetric matrix, the inertia of a body, are one number.
    """

    name: str
    path: tuple[Key, ...]
    index: tuple[int, ...] | None = None

    def array(self, mechanism: Mechanism) -> Any:
        """Return the array, or the one that holds the number."""
        return Path(self.path)(mechanism)

    def value(self, mechanism: Mechanism) -> Any:
        """Return the array or the number."""
        array = self.array(mechanism)
        if self.index is None:
            return array
        return constant(np.asarray(array)[self.index]) if is_concrete(array) else array[self.index]

    def written(self, array: Array | np.ndarray, value: Array | np.ndarray | float) -> Array | np.ndarray | float:
        """Return the array with another value of the number."""
        if self.index is None:
            return value
        places = {self.index, self.index[::-1]} if self.is_symmetric(array) else {self.index}
        if is_concrete(array, value):  # by NumPy, which compiles nothing
            array = np.array(array)
            for place in places:
                array[place] = value
            return constant(array)
        for place in places:
            array = jnp.asarray(array).at[place].set(value)
        return array

    @property
    def is_inertia(self) -> bool:
        """True if its array is the inertia of a body."""
        return self.path[0] == Field("bodies") and self.path[-1] == Field("inertia")

    def is_symmetric(self, array: Array | np.ndarray) -> bool:
        """True if its array is a symmetric matrix."""
        return self.is_inertia and np.ndim(array) == 2

    def unit(self, mechanism: Mechanism) -> str:
        """Return its unit, which the docstring of its class gives; "" if that gives none."""
        owners = ((Path(self.path[:k])(mechanism), key) for k, key in enumerate(self.path) if isinstance(key, Field))
        *_, (owner, key) = ((x, key) for x, key in owners if not isinstance(x, FunctionWithInputs))
        field = key.name
        units = units_of(type(owner), field)
        if len(units) == 2 and isinstance(owner, AbstractJointForce):  # along an angle or a displacement
            angular = mechanism.coordinate(owner.coordinate).unit(mechanism.space) == "rad"
            units = [unit for unit in units if (unit.startswith("N m") or "rad" in unit) == angular]
        return units[0] if len(units) == 1 else ""

    def elements(self, mechanism: Mechanism) -> Iterator["Number"]:
        """Return each single number of its array, those of a symmetric matrix once."""
        array = self.array(mechanism)
        if self.index is not None or array.ndim == 0:
            yield self
            return
        for index in np.ndindex(array.shape):
            if not self.is_symmetric(array) or index[0] <= index[1]:
                yield self.element(index)

    def element(self, index: tuple[int, ...]) -> "Number":
        """Return one number of its array."""
        return Number(f"{self.name}[{','.join(map(str, index))}]", self.path, index)


class NamedNumbers(dict[str, Any]):
    """Numbers of a mechanism by name; `print` shows them with their units.

    It is a tree of arrays for JAX. What JAX makes of it, gradients for example, has other units, and shows none.
    """

    units: Mapping[str, str]

    def __init__(self, values: Mapping[str, PyTree], units: Mapping[str, str]) -> None:
        self.update(values)
        self.units = units

    def __repr__(self) -> str:
        rows = [[name, _text(value), self.units.get(name, "")] for name, value in list(self.items())[:_SHOWN]]
        more = f"\n... and {len(self) - _SHOWN} more" * (len(self) > _SHOWN)
        return table([["number", "value", "unit"], *rows], words=3) + more


jax.tree_util.register_pytree_with_keys(
    NamedNumbers,
    lambda of: ([(jax.tree_util.DictKey(name), value) for name, value in of.items()], tuple(of)),
    lambda names, values: NamedNumbers(dict(zip(names, values, strict=True)), {}),
)


def numbers(mechanism: Mechanism, names: str | Iterable[str] = "*") -> NamedNumbers:
    """Return numbers of a mechanism by name; `print` shows them with their units.

    A name is that of a part, then the fields that lead to a number or an array in it: `"rod.mass"`,
    `"O.b.position"`; an index selects one number of an array, `"O.b.position[0]"`. In a pattern `*` stands for any text
    and `?` for one character: `"*.mass"`, `"leg?.length"`; one that ends with an index is compared with the names of
    single numbers, `"*.position[0]"`, any other one with those of whole arrays. The poses of bodies, guesses for the
    assembly, and rotations, whose four numbers depend on one another, match no pattern; they can be named.

    The same names serve in `with_numbers`, as free parameters of `fit` and `design`, in `sweep`, `linearize`,
    `equilibrium_path`, and wherever else a function selects a number.

    **Arguments:** `mechanism`; `names`: a name or a pattern, or several; all numbers by default.

    **Returns:** a dictionary of arrays by their full names, which `with_numbers` takes.

    **Raises:** `MechanismError` for a name that does not exist, and a pattern that matches nothing.

        >>> mechanism = mbd.examples.get("pendulum").mechanism
        >>> print(mbd.numbers(mechanism, ["rod.*", "O.b.position[0]"]))
        number           value  unit
        rod.mass         1      kg
        rod.inertia      0.25   kg m²
        O.b.position[0]  -0.5   m
    """
    check_mechanism(mechanism)
    listed = [one for name in _listed("numbers: names", names) for one in find(mechanism, name)]
    units = {one.name: one.unit(mechanism) for one in listed}
    return NamedNumbers({one.name: one.value(mechanism) for one in listed}, units)


def with_numbers(mechanism: Mechanism, values: Mapping[str, Numbers]) -> Mechanism:
    """Return the mechanism with other values of some of its numbers, checked as when its parts were made.

    It is differentiable with respect to the values, and works under `jit`, `vmap` and `grad`; each number keeps its
    type. A number that appears in several parts, such as the place of a marker that two joints share, is one number for
    each of them: `{"A.b.position": x, "B.a.position": x}`.

    **Arguments:** `mechanism`; `values`: by name or pattern as in `numbers`, a value for each number of that name.

    **Raises:** `MechanismError` for unknown names, for two names of one number, and for a value that the part cannot
    have.

        >>> mechanism = mbd.examples.get("pendulum").mechanism
        >>> heavier = mbd.with_numbers(mechanism, {"rod.mass": 2.0, "O.b.position[0]": -0.4})
        >>> def height(at):
        ...     return mbd.assemble(mbd.with_numbers(mechanism, {"O.b.position[0]": at}), {"O.angle": 1.0})["rod.y"]
        >>> print(jax.grad(height)(-0.4).round(4))  # -sin(1)
        -0.8415
    """
    check_mechanism(mechanism)
    check_instance("with_numbers: values", values, Mapping, 'a dictionary, such as {"rod.mass": 2.0}')
    check_mapping("with_numbers: values", values, '{"rod.mass": 2.0}')
    changes, owners = [], []
    for name, value in values.items():
        for number in find(mechanism, name):
            old, new = number.value(mechanism), as_float(value)
            check_finite("with_numbers", repr(name), new, old.shape)
            changes.append((number, new.astype(old.dtype)))
            owners.append((name, number.path, number.index))
    check_apart(owners)
    changed = replaced(mechanism, changes)
    for part in dict.fromkeys(number.path[:2] for number, _ in changes if len(number.path) > 2):
        check_part(Path(part)(changed))
    check_moving(changed)
    return changed


def replaced(mechanism: Mechanism, changes: Iterable[tuple[Number, PyTree]]) -> Mechanism:
    """Return the mechanism with other values of numbers, unchecked."""
    leaves, structure = jax.tree.flatten(mechanism)
    numbered = jax.tree.unflatten(structure, range(len(leaves)))
    for number, value in changes:
        place = number.array(numbered)
        leaves[place] = number.written(leaves[place], value)
    return jax.tree.unflatten(structure, leaves)


def check_part(part: object) -> None:
    """Raise, as its constructor does, if a part cannot have its numbers."""
    for kind in type(part).__mro__:
        if "__check_init__" in vars(kind):
            kind.__check_init__(part)


def check_apart(owners: Iterable[tuple[str, Hashable, tuple[int, ...] | None]]) -> None:
    """Raise if two names stand for one number, given what each takes: an array, and an index in it or None."""
    taken: dict[Hashable, dict[tuple[int, ...] | None, str]] = {}
    for name, array, index in owners:
        known = taken.setdefault(array, {})
        for other, owner in known.items():
            if owner != name and (index is None or other is None or index == other):
                raise MechanismError(
                    f"{owner!r} and {name!r} are the same number of the mechanism: leave one of them out."
                )
        known[index] = name


def is_pattern(name: str) -> bool:
    """True if a name stands for all numbers that match it."""
    return "*" in name or "?" in name


def matches(pattern: str, name: str) -> bool:
    """True if a name is one that a pattern stands for: `*` is any text, `?` one character."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name) is not None


def find(mechanism: Mechanism, name: Any) -> tuple[Number, ...]:
    """Return what a name stands for, or all that match a pattern.

    **Raises:** `MechanismError` if there is nothing of this name, or what it names holds no numbers.
    """
    check_instance("The name of a number", name, str, "a text, such as 'rod.mass'")
    arrays = [one for one, value in _leaves(mechanism, name) if _is_array(value)]
    if is_pattern(name):
        listed = [one for one in arrays if one.path[-1] not in _UNLISTED]
        known = [x for one in listed for x in (one.elements(mechanism) if name.endswith("]") else [one])]
        found = [one for one in known if matches(name, one.name)]
        if not found:
            raise unknown(_KIND, name, _known(mechanism))
        return tuple(found)
    found = [one for one in arrays if one.name == name]
    if not found and (index := _INDEX.fullmatch(name)):
        place = tuple(map(int, index[2].split(",")))
        found = [_element(mechanism, one, place) for one in arrays if one.name == index[1]]
    if len(found) != 1:
        raise _unresolved(mechanism, name, len(found))
    return tuple(found)


def names_of(mechanism: Mechanism, name: str) -> tuple[str, ...]:
    """Return the full names of what a name or a pattern stands for."""
    return tuple(one.name for one in find(mechanism, name))


def find_node(mechanism: Mechanism, name: str) -> tuple[Key, ...] | None:
    """Return the path to an array, a function, or a module with arrays of this name; None if there is none."""
    for path, owner, called in _owners(mechanism):
        for keys, _ in _flattened(owner) if name.startswith(f"{called}.") else ():
            for k in range(len(keys), 0, -1):  # from the leaf up: the law itself, not the law with its inputs
                if called + _spelled(keys[:k]) == name:
                    return (*path, *keys[:k])
    return None


def numbers_of(mechanism: Mechanism) -> dict[str, Number]:
    """Return all single numbers of a mechanism by name, but for those of long arrays."""
    arrays = [one for one, x in _leaves(mechanism, "*") if _is_array(x) and one.path[-1] not in _UNLISTED]
    short = (one for one in arrays if one.array(mechanism).size <= _MOST)
    return {one.name: one for array in short for one in array.elements(mechanism)}


def _owners(mechanism: Mechanism) -> Iterator[tuple[tuple[Key, ...], Any, str]]:
    """The path to each part, the part, and the first word of names in it; `speeds` is that of generalized speeds."""
    for group in ("bodies", "joints", "drivers", "forces", "sensors", "controllers"):
        for k, part in enumerate(getattr(mechanism, group)):
            yield (Field(group), k), part, part.name
    if mechanism.speeds is not None:
        yield (Field("speeds"),), mechanism.speeds, "speeds"


def _leaves(mechanism: Mechanism, name: str) -> Iterator[tuple[Number, PyTree]]:
    """The leaves of all parts that the name or pattern may belong to, with their names."""
    literal = re.split(r"[*?]", name, maxsplit=1)[0]
    for path, owner, called in _owners(mechanism):
        if literal.startswith(f"{called}.") or f"{called}.".startswith(literal):
            for keys, value in _flattened(owner):
                yield Number(called + _spelled(keys), (*path, *keys)), value


def _flattened(owner: PyTree) -> Iterator[tuple[tuple[Key, ...], PyTree]]:
    """The leaves of a part, and its functions, with their keys."""
    for path, value in jax.tree_util.tree_flatten_with_path(owner, is_leaf=_is_function)[0]:
        named, indexed = jax.tree_util.GetAttrKey, jax.tree_util.SequenceKey
        keys = (Field(k.name) if isinstance(k, named) else k.idx if isinstance(k, indexed) else k.key for k in path)
        yield tuple(keys), plain(value)


def _is_function(node: object) -> bool:
    return isinstance(node, StaticFunction)


def _spelled(keys: Iterable[Key]) -> str:
    spelled = (key for key in keys if key != _UNSPELLED)
    return "".join(f".{key.name}" if isinstance(key, Field) else f"[{key}]" for key in spelled)


def _is_array(value: object) -> bool:
    return isinstance(value, jax.Array | np.ndarray) and jnp.issubdtype(value.dtype, jnp.floating)


def _element(mechanism: Mechanism, of: Number, index: tuple[int, ...]) -> Number:
    """One number of an array, which has its name with the lower index first if the array is symmetric."""
    array = of.array(mechanism)
    if len(index) != array.ndim or any(k >= n for k, n in zip(index, array.shape, strict=True)):
        raise MechanismError(f"{of.name!r} has the shape {array.shape}, and no number with the index {list(index)}.")
    index = tuple(sorted(index)) if of.is_symmetric(array) else index
    return of.element(index)


def _known(mechanism: Mechanism) -> list[str]:
    """The names of all arrays and of their numbers, for messages."""
    arrays = [one.name for one, x in _leaves(mechanism, "*") if _is_array(x) and one.path[-1] not in _UNLISTED]
    return list(dict.fromkeys([*arrays, *numbers_of(mechanism)]))


def _unresolved(mechanism: Mechanism, name: str, count: int) -> MechanismError:
    """The error for a name that is not that of one array or number."""
    if count:
        return MechanismError(f"{name!r} names numbers of {count} parts: give one of the parts another name.")
    path = find_node(mechanism, name)
    for _, owner, called in _owners(mechanism) if path is None else ():
        value = owner if name.startswith(f"{called}.") else None
        for field in name.removeprefix(f"{called}.").split("."):
            value = getattr(value, field, None)
        if isinstance(value, bool | int | float | str):
            return MechanismError(
                f"{name!r} is {shown(value)}, a setting of {type(owner).__name__} {called!r} and not a number that "
                "derivatives, fits or sweeps can vary: make the part anew to change it."
            )
    value = None if path is None else Path(path)(mechanism)
    if isinstance(value, bool | int | float):
        return MechanismError(
            f"{name!r} is {shown(value)}, a number of Python, which is part of the program: give the part "
            f"jnp.asarray({value!r}), and derivatives, fits and sweeps can vary it."
        )
    if callable(value) and not any(map(_is_array, jax.tree.leaves(value))):
        return MechanismError(f"{name!r} is a function without numbers: {shown(value)}.")
    return unknown(_KIND, name, _known(mechanism))


def _listed(what: str, names: object) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else checked_names(what, names, "*.mass")


def _text(value: Any) -> str:
    """A value in a table: numbers of long arrays, and traced ones, are not shown."""
    if not is_concrete(value) or np.size(value) > _MOST:
        return eqx.tree_pformat(value)
    cells = [format_number(x) for x in np.ravel(value)]
    return cells[0] if np.ndim(value) == 0 else f"[{', '.join(cells)}]"
