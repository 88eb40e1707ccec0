"""Grouping keys: parts with the same law and array shapes can be stacked."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.force.force import AbstractForce, AbstractJointForce
from jaxmbd.model.joint.joint import AbstractJoint

_PARTS = (AbstractMarker, AbstractJoint, AbstractForce, AbstractJointForce)  # of the library or of a user
_NAMES = ("name", "body", "coordinate", "a", "b")


def unnamed(part: Any) -> Any:
    """A copy of a part without its names, which would prevent equal parts from being stacked.

    Parts of a user's own classes are treated as those of the library; a user's other modules, the parameters of a law,
    are left as they are.
    """
    if isinstance(part, tuple):
        return tuple(unnamed(item) for item in part)
    ours = isinstance(part, eqx.Module) and type(part).__module__.startswith("jaxmbd.")
    if not ours and not isinstance(part, _PARTS):
        return part
    copy = object.__new__(type(part))
    for field in part.__dataclass_fields__:
        value = getattr(part, field)
        is_name = field in _NAMES and isinstance(value, str)
        object.__setattr__(copy, field, "" if is_name else unnamed(value))
    return copy


def kind_of(arrays: Any, static: Any) -> Any:
    """The grouping key of a part without names, from its arrays and static fields; equal for stackable parts."""
    leaves, treedef = jax.tree.flatten(arrays)
    shapes = tuple((leaf.shape, jnp.asarray(leaf).dtype.name) for leaf in leaves)
    others = tuple(id(leaf) if callable(leaf) else leaf for leaf in jax.tree.leaves(static))
    return treedef, shapes, jax.tree.structure(static), others
