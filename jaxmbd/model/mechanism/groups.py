"""Groups of parts of one type, stacked, so that tracing and compiling cost the same for 3 parts and for 3,000."""

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
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
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        is_name = field.name in names and isinstance(value, str)
        object.__setattr__(copy, field.name, UNNAMED if is_name else unnamed(value))
    return copy


def kind_of(arrays: PyTree, static: PyTree) -> tuple[object, ...]:
    """The grouping key of a part without names, from its arrays and static fields; equal for stackable parts."""
    leaves, treedef = jax.tree.flatten(arrays)
    shapes = tuple((leaf.shape, jnp.asarray(leaf).dtype.name) for leaf in leaves)
    others = tuple(id(leaf) if callable(leaf) else leaf for leaf in jax.tree.leaves(static))
    return treedef, shapes, jax.tree.structure(static), others


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
    return bind_turn_counts(eqx.combine(numbers, static), turns)


def group_parts(
    parts: Sequence[PyTree], mechanism: Any, index: Mapping[str, int] | None = None
) -> tuple[PartGroup, ...]:
    """Group parts of equal type, static fields and array shapes; groups are in order of first appearance.

    `index`: of what markers refer to by name, by default of all frames.
    """
    index = frame_index(mechanism.bodies) if index is None else index
    names = mechanism.coordinate_names
    members_by_key: dict[Hashable, list[tuple[int, PyTree]]] = {}
    statics: dict[Hashable, PyTree] = {}
    for position, part in enumerate(parts):
        arrays, static = eqx.partition(unnamed(part), eqx.is_array)
        key = kind_of(arrays, static)
        statics.setdefault(key, static)
        members_by_key.setdefault(key, []).append((position, arrays))
    groups = []
    for key, members in members_by_key.items():
        numbers = jax.tree.map(stacked, *(arrays for _, arrays in members))
        positions = tuple(position for position, _ in members)
        bodies = tuple(tuple(index[m.body] for m in parts[p].markers) for p in positions)
        turns = tuple(tuple(names.index(c.name) for c in turn_coordinates(parts[p])) for p in positions)
        groups.append(PartGroup(numbers, statics[key], positions, bodies, turns))
    return tuple(groups)


def stacked(*leaves: Array | np.ndarray) -> Array:
    """Stack numbers or arrays of one shape on a new leading axis."""
    return combined("stack", leaves)
