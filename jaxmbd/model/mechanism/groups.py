"""Groups of parts of one type, stacked, so that tracing and compiling cost the same for 3 parts and for 3,000."""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.arrays import combined
from jaxmbd.model.body.flexible import frame_index
from jaxmbd.model.body.names import UNNAMED, name_fields
from jaxmbd.model.mechanism.named_coordinates import bind_turn_counts, turn_coordinates


def unnamed(part: PyTree) -> PyTree:
    """A copy of a part without its names, which would prevent equal parts from being stacked.

    Parts of a user's own classes are treated as those of the library: names are what their abstract classes declare as
    such. What has no names, such as the parameters of a law, is left as it is.
    """
    if type(part) is tuple:  # of markers, say; a named tuple is a type of the user's
        return tuple(unnamed(item) for item in part)
    names = name_fields(type(part))
    if not names:
        return part
    copy = object.__new__(type(part))
    for field in _field_names(type(part)):
        value = object.__getattribute__(part, field)  # that of equinox looks for methods, which takes longer than this
        if field in names and isinstance(value, str):
            value = UNNAMED
        elif field in names and isinstance(value, tuple):
            value = (UNNAMED,) * len(value)
        else:
            value = unnamed(value)
        object.__setattr__(copy, field, value)
    return copy


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def kind_of(part: PyTree) -> tuple[object, ...]:
    """The grouping key of a part without names; equal for stackable parts."""
    leaves, structure = jax.tree.flatten(part)
    return structure, tuple(map(_kind_of_leaf, leaves))


def _kind_of_leaf(leaf: Any) -> object:
    if eqx.is_array(leaf):
        return leaf.shape, (leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)).dtype
    return id(leaf) if callable(leaf) else leaf


class PartGroup(eqx.Module):
    """Parts of one type: their parameters stacked on a leading axis, and the bodies or sites they connect."""

    stacked: PyTree
    static: PyTree = eqx.field(static=True)
    members: tuple[int, ...] = eqx.field(static=True)
    bodies: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    turns: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @property
    def incidence(self) -> np.ndarray:
        """Indices of the frames of bodies, sites and the ground (`frame_index`), shape `(parts, markers)`."""
        return np.asarray(self.bodies, dtype=int).reshape(len(self.members), -1)

    @property
    def turn_table(self) -> np.ndarray:
        """Indices in `q` of the integrated angles that the parts use, shape `(parts, such coordinates)`."""
        return np.asarray(self.turns, dtype=int).reshape(len(self.members), -1)


def law_of(static: PyTree, numbers: PyTree, turns: Array) -> PyTree:
    """One part of a group, from the group's static fields, a slice of the stacked parameters and the integrated angles
    that fix its whole turns."""
    # The tree is that of the numbers: in an analysis that is kept on disk it holds watched functions in their places.
    leaves, tree = jax.tree.flatten(numbers, is_leaf=_is_none)
    others = jax.tree.leaves(static, is_leaf=_is_none)
    both = [y if x is None else x for x, y in zip(leaves, others, strict=True)]
    return bind_turn_counts(jax.tree.unflatten(tree, both), turns)


def _is_none(x: object) -> bool:
    return x is None


def group_parts(
    parts: Sequence[PyTree], mechanism: Any, index: Mapping[str, int] | None = None
) -> tuple[PartGroup, ...]:
    """Group parts of equal type, static fields and array shapes; groups are in order of first appearance.

    `index`: of what markers refer to by name, by default of all frames.
    """
    index = frame_index(mechanism.bodies) if index is None else index
    names = mechanism.coordinate_names
    members_by_key: dict[Hashable, list[tuple[int, PyTree]]] = {}  # the parts without names
    for position, part in enumerate(parts):
        part = unnamed(part)
        members_by_key.setdefault(kind_of(part), []).append((position, part))
    groups = []
    for members in members_by_key.values():
        arrays, static = eqx.partition(members[0][1], eqx.is_array)
        columns = zip(*(filter(eqx.is_array, jax.tree.leaves(part)) for _, part in members), strict=True)
        numbers = jax.tree.unflatten(jax.tree.structure(arrays), [stacked(*column) for column in columns])
        positions = tuple(position for position, _ in members)
        bodies = tuple(tuple(index[m.body] for m in parts[p].markers) for p in positions)
        turns = tuple(tuple(names.index(c.name) for c in turn_coordinates(parts[p])) for p in positions)
        groups.append(PartGroup(numbers, static, positions, bodies, turns))
    return tuple(groups)


def stacked(*leaves: Array | np.ndarray) -> Array:
    """Stack numbers or arrays of one shape on a new leading axis."""
    return combined("stack", leaves)
