"""The numbers of a mechanism by name, `rod.mass`, `spring.stiffness`, `O.b.position[0]`, and other values of them."""

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.errors import check_known
from jaxmbd.io.model_file.schema import argument_texts
from jaxmbd.model.force.force import AbstractJointForce
from jaxmbd.model.mechanism.mechanism import Mechanism

_MOST = 16  # an array with more numbers, such as a table or the weights of a network, has no names for them
# A pose is a guess for the assembly, and the four numbers of a rotation depend on one another.
_WITHOUT = ("pose", "rotation")


@dataclass(frozen=True)
class Number:
    """The place of a number: the path to an array in the mechanism, the place of that array among all leaves, and the
    index in it."""

    path: tuple[Any, ...]
    leaf: int
    index: tuple[int, ...]

    def array(self, mechanism: Mechanism) -> Any:
        """Return the array that holds it."""
        return _at(mechanism, self.path)

    def unit(self, mechanism: Mechanism) -> str:
        """Return its unit, which the docstring of its class gives; "" if that gives none."""
        place = max(k for k, key in enumerate(self.path) if isinstance(key, jax.tree_util.GetAttrKey))
        owner, field = _at(mechanism, self.path[:place]), self.path[place].name
        text = argument_texts(inspect.getdoc(type(owner)) or "", [field]).get(field, {}).get("description", "")
        said = re.search(rf"`{field}\b.*?`\[([^\]]+)\]`(?: or `\[([^\]]+)\]`)?", text)
        units = [unit for unit in said.groups() if unit] if said else []
        if len(units) == 2 and isinstance(owner, AbstractJointForce):  # along an angle or a displacement
            angular = mechanism.coordinate(owner.coordinate).unit(mechanism.space) == "rad"
            units = [unit for unit in units if (unit.startswith("N m") or "rad" in unit) == angular]
        return units[0] if len(units) == 1 else ""


def numbers_of(mechanism: Mechanism) -> dict[str, Number]:
    """Return the places of all numbers of the parts of a mechanism by name."""
    found = {}
    for leaf, (path, value) in enumerate(jax.tree_util.tree_flatten_with_path(mechanism)[0]):
        names = [key.name for key in path if isinstance(key, jax.tree_util.GetAttrKey)]
        if len(path) < 3 or names[-1] in _WITHOUT or not isinstance(value, jax.Array | np.ndarray):
            continue
        if value.dtype.kind != "f" or value.size > _MOST:
            continue
        part = getattr(mechanism, names[0])[_key(path[1])]
        name = part.name + "".join(
            f".{key.name}" if isinstance(key, jax.tree_util.GetAttrKey) else f"[{_key(key)}]" for key in path[2:]
        )
        for index in np.ndindex(value.shape):
            is_twice = names[-1] == "inertia" and len(index) == 2 and index[0] != index[1]  # in a symmetric matrix
            if not is_twice:
                found[name + (f"[{','.join(map(str, index))}]" if index else "")] = Number(path, leaf, index)
    return found


def _at(mechanism: Mechanism, path: Iterable[Any]) -> Any:
    """What a path leads to."""
    found: Any = mechanism
    for key in path:
        found = getattr(found, key.name) if isinstance(key, jax.tree_util.GetAttrKey) else found[_key(key)]
    return found


def _key(key: Any) -> Any:
    """The index or name that leads to an item of a container."""
    return key.idx if isinstance(key, jax.tree_util.SequenceKey) else key.key


def check_numbers(names: Iterable[str], mechanism: Mechanism) -> None:
    """Raise unless the names are those of numbers of the mechanism."""
    check_known("number of a part", names, numbers_of(mechanism))


def value_of(mechanism: Mechanism, name: str) -> float:
    """Return the number of this name."""
    number = numbers_of(mechanism)[name]
    return float(np.asarray(number.array(mechanism))[number.index])


def with_numbers(mechanism: Mechanism, values: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism with other values, which may be traced, of the numbers with these names."""
    known = numbers_of(mechanism)
    leaves, structure = jax.tree.flatten(mechanism)
    for name, value in values.items():
        number = known[name]
        array = jnp.asarray(leaves[number.leaf])
        leaves[number.leaf] = array.at[number.index].set(value)
    return jax.tree.unflatten(structure, leaves)


def checked(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism whose numbers have changed.

    **Raises:** `MechanismError`, as its constructors, if a part cannot have its number.
    """
    for module in (*mechanism.parts(), mechanism):
        for kind in type(module).__mro__:
            if "__check_init__" in vars(kind):
                kind.__check_init__(module)  # pyright: ignore[reportAttributeAccessIssue]
    return mechanism
