"""Switching times: the times at which functions of time in a mechanism's parts are not smooth.

The relevant times are those at which the accelerations jump. They jump with a force, with the second derivative of a
prescribed position, and with the first derivative of a prescribed speed.
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

# Least distance between jumps, and of jumps from the start and end, in units of rounding of the largest time.
_LEAST_GAP = 64.0


def _is_timed(x: Any) -> bool:
    return isinstance(x, AbstractTimeFunction)


def _jump_order(part: Any) -> int:
    """The order of the time derivative of a part's functions whose jumps are jumps of the accelerations."""
    if isinstance(part, Driver):
        return 2 if part.prescribes == "position" else 1
    return 2 if isinstance(part, AbstractJoint | GlobalConstraint) else 0


def _with_jump_orders(mechanism: Any) -> Iterator[tuple[AbstractTimeFunction, int]]:
    """All functions of time, each with the derivative order of `_jump_order`."""
    for part in (*mechanism.forces, *mechanism.drivers, *mechanism.joints):
        yield from ((x, _jump_order(part)) for x in jax.tree.leaves(part, is_leaf=_is_timed) if _is_timed(x))


def _jumping(mechanism: Any) -> list[AbstractTimeFunction]:
    return [f for f, order in _with_jump_orders(mechanism) if f.order <= order]


class Switches(eqx.Module):
    """The times [s], unsorted, at which the accelerations jump, and those at which they have a kink."""

    jumps: Float[Array, " jumps"]
    kinks: Float[Array, " kinks"]


def switches_of(mechanism: Any, more: Array | None) -> Switches | None:
    """The switching times of a mechanism's parts, with `more` jumps added; None if there are none."""
    jumps = [f.times for f in _jumping(mechanism)] + ([] if more is None else [more])
    kinks = [f.times for f, order in _with_jump_orders(mechanism) if f.order > order]
    if not jumps and not kinks:
        return None
    return Switches(*(jnp.concatenate(x) if x else jnp.zeros(0) for x in (jumps, kinks)))


def smallest_gap(t0: Any, t1: Any) -> Any:
    """The least distance [s] between jumps."""
    largest = np.maximum if is_concrete(t0, t1) else jnp.maximum
    return _LEAST_GAP * jnp.finfo(jnp.result_type(t0)).eps * largest(abs(t0), abs(t1))


def with_jumps_apart(mechanism: Any, more: Array | None, t0: Any, t1: Any) -> tuple[Any, Array | None]:
    """Separate coincident jumps of the mechanism, and of `more`, by an amount of the order of rounding.

    Then there is a step between any two jumps, so that the derivatives with respect to their times are distinct. Jumps
    at the start are moved before it and jumps at the end after it, outside the motion.
    """
    jump_times = ([] if more is None else [more]) + [f.times for f in _jumping(mechanism)]
    if not jump_times or _are_apart(jump_times, t0, t1):
        return mechanism, more
    flat = jnp.concatenate([x.astype(jnp.result_type(t0)) for x in jump_times])
    separated = flat + _shifts(jax.lax.stop_gradient(flat), *jax.lax.stop_gradient((jnp.asarray(t0), jnp.asarray(t1))))
    pieces = iter(jnp.split(separated, np.cumsum([len(x) for x in jump_times])[:-1]))
    more = None if more is None else next(pieces)
    return _with_times(mechanism, pieces), more


def _with_times(mechanism: Any, times: Iterator[Array]) -> Any:
    """The mechanism with other jump times, in the order of `_jumping`."""

    def with_new_times(part: Any, order: int) -> Any:
        def replaced(x: Any) -> Any:
            return eqx.tree_at(lambda f: f.times, x, next(times)) if _is_timed(x) and x.order <= order else x

        return jax.tree.map(replaced, part, is_leaf=_is_timed)

    names = [name for name in ("forces", "drivers", "joints") if getattr(mechanism, name)]
    old = [getattr(mechanism, name) for name in names]
    new = [tuple(with_new_times(part, _jump_order(part)) for part in group) for group in old]
    is_old = lambda x: any(x is group for group in old)  # noqa: E731
    return eqx.tree_at(lambda m: [getattr(m, name) for name in names], mechanism, new, is_leaf=is_old)


def _are_apart(jump_times: list[Array], t0: Any, t1: Any) -> bool:
    """True if all jumps are concrete and separated from each other, the start and the end."""
    if not is_concrete(jump_times, t0, t1):
        return False
    times = np.sort(np.concatenate([*map(np.asarray, jump_times), [float(t0), float(t1)]]))
    return bool((np.diff(times) > 8 * float(smallest_gap(t0, t1))).all())


def _shifts(times: Array, t0: Any, t1: Any) -> Array:
    """The shifts that separate times; coincident times keep their order."""
    gap = smallest_gap(t0, t1)
    order = jnp.argsort(times, stable=True)
    steps = gap * jnp.arange(len(times))
    # Each time at least one gap after its predecessor: a running maximum after subtracting k gaps from time k.
    forward = jax.lax.cummax(times[order] - steps) + steps - times[order]
    shift = jnp.zeros_like(times).at[order].set(jnp.where(forward > 0.5 * gap, forward, 0.0))
    shift = jnp.where(jnp.abs(times - t0) <= 4 * gap, t0 - 4 * gap - times, shift)
    return jnp.where(jnp.abs(times - t1) <= 4 * gap, t1 + 4 * gap - times, shift)
