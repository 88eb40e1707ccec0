"""The instants at which the controllers of a mechanism sample: steps end there, as at the jumps of a table."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.events.event import AbstractAction, Event
from jaxmbd.analyses.events.parts import sticking_parts, switching_parts
from jaxmbd.arrays import is_concrete
from jaxmbd.engine import choice
from jaxmbd.errors import MechanismError
from jaxmbd.model.controller.sampled import AbstractSampledController
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.states import AbstractSided
from jaxmbd.upstream.equinox_internals import with_fields

_NEVER = 1e30  # [s]
_CLOCK = "samples."  # no name that an event of a user may have
_ROUNDING = 1e-6  # of a period, by which the first instant of a motion may lie before it


def sampled_controllers(mechanism: Mechanism) -> list[AbstractSampledController]:
    """The controllers that sample."""
    return [part for part in mechanism.controllers if isinstance(part, AbstractSampledController)]


def sample_times(mechanism: Mechanism, t0: Any, t1: Any) -> Float[Array, " n"] | None:
    """The instants of all of them from `t0` to `t1`, and some after it; None if none samples.

    **Raises:** `MechanismError` if it is not known how many there are.
    """
    parts = sampled_controllers(mechanism)
    if not parts:
        return None
    times = []
    for part in parts:
        first = jnp.ceil(jax.lax.stop_gradient((t0 - part.offset) / part.period) - _ROUNDING)
        k = jnp.maximum(first, 0.0) + np.arange(_count(part, t0, t1))
        times.append(part.offset + k * part.period)
    return jnp.concatenate(times).astype(jnp.result_type(t0))


def _count(part: AbstractSampledController, t0: Any, t1: Any) -> int:
    """How many instants there are at most."""
    # Of a value that has a derivative, the value is known, but not under `jit`, where `stop_gradient` is an operation.
    period, *times = (x if is_concrete(x) else jax.lax.stop_gradient(x) for x in (part.period, t0, t1))
    if part.most is not None:
        return part.most
    if not is_concrete(period, *times):
        raise MechanismError(
            f"{_label(part)}: its period or the times of the motion are not known before it runs, nor how many samples "
            "there are: give most=, the largest number of them in a motion."
        )
    return int(np.ceil((float(times[1]) - float(times[0])) / float(period))) + 1


def _label(part: Any) -> str:
    return f"{type(part).__name__} {part.name!r}"


class _Sample(AbstractAction):
    """What an event does that never happens."""

    logged: ClassVar[bool] = False


def clock() -> Event:
    """An event that never happens, for the memory of what is due in a motion that has no events of its own."""
    return with_fields(Event("clock", "t", above=_NEVER), name=_CLOCK, then=_Sample())


def changing_parts(mechanism: Mechanism) -> list[Any]:
    """The parts that change at instants, and are nothing else in between than what they have become there: those that
    sample, that stick, and that count."""
    switching = (part for part in switching_parts(mechanism) if not isinstance(part, AbstractSided))
    return [*sampled_controllers(mechanism), *sticking_parts(mechanism), *switching]


def check_native_changes(mechanism: Mechanism, hindrance: choice.Hindrance) -> None:
    """Raise if a motion whose parts change at instants cannot run in the native loop, which alone can do that."""
    parts = changing_parts(mechanism)
    if hindrance is choice.Hindrance.FOREIGN:  # segments end at samples, and where a part changes that is logged
        sampled = sampled_controllers(mechanism)
        parts = [part for part in parts if part not in sampled and not getattr(part, "is_logged", False)]
    if parts:
        raise MechanismError(
            f"{_label(parts[0])} changes at instants, for which a motion must run natively, and this is one "
            f"{hindrance.value}. Leave engine and adjoint out, take an explicit method or Radau, and laws that are "
            "arithmetic."
        )
