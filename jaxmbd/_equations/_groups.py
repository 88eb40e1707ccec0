"""Parts of one type, stacked: so that tracing and compiling cost the same for 3 parts and for 3,000."""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd._body import GROUND
from jaxmbd._mechanism import Mechanism, counted, told
from jaxmbd._types import is_concrete

_NAMES = ("name", "body", "coordinate", "a", "b")


class Group(eqx.Module):
    """Parts that share one law: their numbers stacked on a leading axis, and the bodies they touch."""

    stacked: Any
    static: Any = eqx.field(static=True)
    members: tuple[int, ...] = eqx.field(static=True)
    bodies: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    turns: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def incidence(self) -> np.ndarray:
        """Body indices, shape `(parts, markers)`; the ground's index is the number of bodies."""
        return np.asarray(self.bodies, dtype=int).reshape(len(self.members), -1)

    @property
    def turn_table(self) -> np.ndarray:
        """Indices into `q` of the angles whose whole turns count, shape `(parts, coordinates that need one)`."""
        return np.asarray(self.turns, dtype=int).reshape(len(self.members), -1)

    def law(self, numbers: Any, turns: Array) -> Any:
        """The part again, from one slice of the stacked numbers and the angles near its own."""
        return told(eqx.combine(numbers, self.static), turns)


def group_parts(parts: Sequence[Any], mechanism: Mechanism) -> tuple[Group, ...]:
    """Group parts whose law and shapes agree, each group in the order of first appearance."""
    body_index = {body.name: i for i, body in enumerate(mechanism.bodies)} | {GROUND: len(mechanism.bodies)}
    names = mechanism.coordinate_names
    found: dict[Any, list[tuple[int, Any]]] = {}
    statics: dict[Any, Any] = {}
    for position, part in enumerate(parts):
        arrays, static = eqx.partition(unnamed(part), eqx.is_array)
        key = _key(arrays, static)
        statics.setdefault(key, static)
        found.setdefault(key, []).append((position, arrays))
    groups = []
    for key, members in found.items():
        stacked = jax.tree.map(_stack, *(arrays for _, arrays in members))
        positions = tuple(position for position, _ in members)
        bodies = tuple(tuple(body_index[m.body] for m in _markers(parts[p])) for p in positions)
        turns = tuple(tuple(names.index(c.name) for c in counted(parts[p])) for p in positions)
        groups.append(Group(stacked, statics[key], positions, bodies, turns))
    return tuple(groups)


def unnamed(part: Any) -> Any:
    """A copy of a part without its names, which would keep equal parts from being stacked.

    A user's own modules, parameters of a law, are left as they are.
    """
    if isinstance(part, tuple):
        return tuple(unnamed(item) for item in part)
    if not isinstance(part, eqx.Module) or not type(part).__module__.startswith("jaxmbd."):
        return part
    copy = object.__new__(type(part))
    for field in part.__dataclass_fields__:
        value = getattr(part, field)
        is_name = field in _NAMES and isinstance(value, str)
        object.__setattr__(copy, field, "" if is_name else unnamed(value))
    return copy


def _markers(part: Any) -> Iterable[Any]:
    return getattr(part, "markers", ())


def _key(arrays: Any, static: Any) -> Any:
    leaves, treedef = jax.tree.flatten(arrays)
    shapes = tuple((leaf.shape, jnp.asarray(leaf).dtype.name) for leaf in leaves)
    others = tuple(id(leaf) if callable(leaf) else leaf for leaf in jax.tree.leaves(static))
    return treedef, shapes, jax.tree.structure(static), others


def _stack(*leaves: Any) -> Any:
    return (
        np.stack(leaves)
        if is_concrete(leaves) and all(isinstance(x, np.ndarray) for x in leaves)
        else jnp.stack(leaves)
    )
