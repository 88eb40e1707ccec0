"""The times at which a mechanism's parts are not smooth, collected from the functions that they hold.

What counts is whether the accelerations jump. They do where a force does, where the second derivative of a prescribed
position does, and where the first one of a prescribed speed does.
"""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import is_concrete
from jaxmbd.model.driver.driver import Driver
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.time_functions import AbstractTimeFunction

_APART = (
    64.0  # in units of rounding of the largest time: jumps are no nearer to each other, nor to the start or the end
)


def _is_timed(x: Any) -> bool:
    return isinstance(x, AbstractTimeFunction)


def _need(part: Any) -> int:
    """The derivative by time of a part's functions that makes accelerations jump."""
    if isinstance(part, Driver):
        return 2 if part.prescribes == "position" else 1
    return 2 if isinstance(part, AbstractJoint | GlobalConstraint) else 0


def _with_needs(mechanism: Any) -> Iterator[tuple[AbstractTimeFunction, int]]:
    """All functions of time, each with the derivative that makes accelerations jump."""
    for part in (*mechanism.forces, *mechanism.drivers, *mechanism.joints):
        yield from ((x, _need(part)) for x in jax.tree.leaves(part, is_leaf=_is_timed) if _is_timed(x))


def _jumping(mechanism: Any) -> list[AbstractTimeFunction]:
    return [f for f, need in _with_needs(mechanism) if f.order <= need]


class Switches(eqx.Module):
    """The times at which accelerations jump, in no order, and those at which they have a kink. [s]"""

    jumps: Float[Array, " jumps"]
    kinks: Float[Array, " kinks"]


def switches_of(mechanism: Any, more: Array | None) -> Switches | None:
    """The times declared by a mechanism's parts, and `more` jumps. None if there are none at all."""
    jumps = [f.times for f in _jumping(mechanism)] + ([] if more is None else [more])
    kinks = [f.times for f, need in _with_needs(mechanism) if f.order > need]
    if not jumps and not kinks:
        return None
    return Switches(*(jnp.concatenate(x) if x else jnp.zeros(0) for x in (jumps, kinks)))


def smallest_gap(t0: Any, t1: Any) -> Any:
    """How far jumps are kept apart. [s]"""
    largest = np.maximum if is_concrete(t0, t1) else jnp.maximum
    return _APART * jnp.finfo(jnp.result_type(t0)).eps * largest(abs(t0), abs(t1))


def with_jumps_apart(mechanism: Any, more: Array | None, t0: Any, t1: Any) -> tuple[Any, Array | None]:
    """The mechanism with jumps that coincide moved apart by rounding, and `more` jumps in the same way.

    Then each has a step between itself and the next one, so that derivatives by the two times are told apart. Jumps at
    the start are moved before it, those at the end beyond it: they are none of the motion's.
    """
    given = ([] if more is None else [more]) + [f.times for f in _jumping(mechanism)]
    if not given or _are_apart(given, t0, t1):
        return mechanism, more
    flat = jnp.concatenate([x.astype(jnp.result_type(t0)) for x in given])
    moved = flat + _shifts(jax.lax.stop_gradient(flat), *jax.lax.stop_gradient((jnp.asarray(t0), jnp.asarray(t1))))
    pieces = iter(jnp.split(moved, np.cumsum([len(x) for x in given])[:-1]))
    more = None if more is None else next(pieces)
    return _with_times(mechanism, pieces), more


def _with_times(mechanism: Any, times: Iterator[Array]) -> Any:
    """The mechanism with other times of jumps, in the order in which they are collected."""

    def moved(part: Any, need: int) -> Any:
        def new(x: Any) -> Any:
            return eqx.tree_at(lambda f: f.times, x, next(times)) if _is_timed(x) and x.order <= need else x

        return jax.tree.map(new, part, is_leaf=_is_timed)

    names = [name for name in ("forces", "drivers", "joints") if getattr(mechanism, name)]
    old = [getattr(mechanism, name) for name in names]
    new = [tuple(moved(part, _need(part)) for part in group) for group in old]
    is_old = lambda x: any(x is group for group in old)  # noqa: E731
    return eqx.tree_at(lambda m: [getattr(m, name) for name in names], mechanism, new, is_leaf=is_old)


def _are_apart(given: list[Array], t0: Any, t1: Any) -> bool:
    """Whether jumps are known to keep apart from each other, the start and the end."""
    if not is_concrete(given, t0, t1):
        return False
    times = np.sort(np.concatenate([*map(np.asarray, given), [float(t0), float(t1)]]))
    return bool((np.diff(times) > 8 * float(smallest_gap(t0, t1))).all())


def _shifts(times: Array, t0: Any, t1: Any) -> Array:
    """What moves times so that they keep apart, in the order in which they are given where they coincide."""
    gap = smallest_gap(t0, t1)
    order = jnp.argsort(times, stable=True)
    steps = gap * jnp.arange(len(times))
    # Each at least a gap after the one before: the running maximum of what is left when the gaps are taken out.
    apart = jax.lax.cummax(times[order] - steps) + steps - times[order]
    shift = jnp.zeros_like(times).at[order].set(jnp.where(apart > 0.5 * gap, apart, 0.0))
    shift = jnp.where(jnp.abs(times - t0) <= 4 * gap, t0 - 4 * gap - times, shift)
    return jnp.where(jnp.abs(times - t1) <= 4 * gap, t1 + 4 * gap - times, shift)
