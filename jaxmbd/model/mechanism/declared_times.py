"""The times that a mechanism's functions of time declare, found by what its laws call with the time.

A `Table` is a function of time if a law calls it with its argument `t`, wherever the part holds it, and a curve if it
is called with anything else. Which it is is read from the traced law, once per type of part.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array

from jaxmbd.arrays import is_concrete
from jaxmbd.engine.binding.lookups import looked_up_at_first
from jaxmbd.engine.binding.trace_once import is_array
from jaxmbd.model.body.body import AbstractMovingMarker
from jaxmbd.model.driver import Driver
from jaxmbd.model.force.force import AbstractForce
from jaxmbd.model.functions.function import AbstractFunction
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.mechanism.groups import unnamed
from jaxmbd.model.mechanism.law_shapes import laws_in_time, time_shape

_GROUPS = ("forces", "drivers", "joints", "controllers")


@dataclass(frozen=True)
class DeclaredTimes:
    """The times [s] of one function of time: the leaf of a part of the mechanism that holds them.

    `jumps`: True if the accelerations jump there; otherwise they have a kink.
    """

    group: str
    part: int
    leaf: int
    jumps: bool
    times: Array = field(compare=False)


def declared_times(mechanism: Any) -> list[DeclaredTimes]:
    """The times of all functions that laws call with the time."""
    each = [(group, k, part) for group in _GROUPS for k, part in enumerate(getattr(mechanism, group))]
    timed = [
        (group, k, part) for group, k, part in each if any(map(_is_timed, jax.tree.leaves(part, is_leaf=_is_timed)))
    ]
    sizes = _Sizes(mechanism.space, mechanism.nq, mechanism.nv) if timed else None
    return [DeclaredTimes(group, k, *found) for group, k, part in timed for found in _of_part(sizes, part)]


def with_times(mechanism: Any, times: Mapping[DeclaredTimes, Array]) -> Any:
    """The mechanism with other declared times."""
    changed = {(at.group, at.part) for at in times}
    if not changed:
        return mechanism

    def replaced(group: str, k: int, part: object) -> Any:
        if (group, k) not in changed:
            return part
        leaves, tree = jax.tree.flatten(part)
        for at, new in times.items():
            if (at.group, at.part) == (group, k):
                leaves[at.leaf] = new
        return jax.tree.unflatten(tree, leaves)

    names = [name for name in _GROUPS if any(group == name for group, _ in changed)]
    old = [getattr(mechanism, name) for name in names]
    new = [
        tuple(replaced(name, k, part) for k, part in enumerate(group)) for name, group in zip(names, old, strict=True)
    ]
    is_old = lambda x: any(x is group for group in old)  # noqa: E731
    return eqx.tree_at(lambda m: [getattr(m, name) for name in names], mechanism, new, is_leaf=is_old)


def _of_part(sizes: object, part: object) -> Iterator[tuple[int, bool, Array]]:
    """The leaves of a part that are times of functions of time, whether accelerations jump there, and the times."""
    leaves, tree = jax.tree.flatten(unnamed(part))
    static = tuple(None if is_array(x) else _Static(x) for x in leaves)
    types = tuple(jax.typeof(x) if is_array(x) else None for x in leaves)
    # What closes over a traced value is not kept.
    is_known = is_concrete([x.value for x in static if x is not None])
    find = _called_with_time if is_known else _called_with_time.__wrapped__
    places = tuple(zip((_law_order(part), _marker_order(part)), find(sizes, tree, static, types), strict=True))
    for function in _functions(jax.tree.unflatten(tree, range(len(leaves)))):
        leaf: Any = function.breaks  # the number of the leaf, in place of the breaks
        orders = [order for order, found in places if leaf in found]
        if orders:
            yield leaf, function.order <= max(orders), leaves[leaf]


def _is_timed(x: object) -> bool:
    return isinstance(x, AbstractFunction) and x.ends_steps


def _functions(tree: object) -> Iterator[AbstractFunction]:
    """All functions in a tree at whose breaks steps may end, those that are pieces of others among them."""
    for x in jax.tree.leaves(tree, is_leaf=_is_timed):
        if _is_timed(x):
            yield x
            yield from _functions([getattr(x, field.name) for field in fields(x)])


def _law_order(part: object) -> int:
    """The order of the time derivative of a part's functions whose jumps are jumps of the accelerations."""
    if isinstance(part, Driver):
        return 2 if part.prescribes == "position" else 1
    return 2 if isinstance(part, AbstractJoint | GlobalConstraint) else 0


def _marker_order(part: object) -> int:
    """The same for the motions of its moving markers: a force depends on their velocities, too."""
    return 2 if isinstance(part, AbstractJoint) else 1


@dataclass(frozen=True)
class _Static:
    """A leaf of a part that is no array."""

    value: Any


@dataclass(frozen=True)
class _Sizes:
    """What the shapes of the arguments of laws follow from."""

    space: Any
    nq: int
    nv: int


@lru_cache(maxsize=256)
def _called_with_time(
    sizes: _Sizes, tree: object, static: tuple[_Static | None, ...], types: tuple[Any, ...]
) -> tuple[frozenset[int], frozenset[int]]:
    """The leaves of a part that are times of what its law calls with the time, and of what its markers do."""
    arrays = [k for k, x in enumerate(static) if x is None]

    def part_of(values: tuple[Any, ...]) -> Any:
        given = dict(zip(arrays, values, strict=True))
        return jax.tree.unflatten(tree, [given[k] if x is None else x.value for k, x in enumerate(static)])

    def found(law: Callable[..., Any], arguments: tuple[Any, ...]) -> frozenset[int]:
        t, *others = arguments

        def flat(t: object, *values: object) -> Any:
            part, rest = part_of(values[: len(arrays)]), values[len(arrays) :]
            return jax.tree.leaves(law(part, t, *jax.tree.unflatten(shape, rest)))

        more, shape = jax.tree.flatten(others)
        places = looked_up_at_first(flat, t, *(types[k] for k in arrays), *more)
        return frozenset(arrays[k] for k in places if k < len(arrays))

    blank = part_of(tuple(types[k] for k in arrays))
    by_law = frozenset[int]()
    for name, arguments in laws_in_time(sizes, blank):
        by_law |= found(lambda part, *of, name=name: getattr(part, name)(*of), arguments)
    if not isinstance(blank, AbstractForce | AbstractJoint):
        return by_law, frozenset()
    return by_law, found(
        lambda part, t: [m.motion(t) for m in part.markers if isinstance(m, AbstractMovingMarker)], (time_shape(),)
    )
