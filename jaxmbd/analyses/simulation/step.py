"""One step of a loop that is the user's own: a controller with a memory, the rollouts of a policy."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxmbd.analyses.events.changes import Change, Switch
from jaxmbd.analyses.events.event import Event, Latch, Release
from jaxmbd.analyses.simulation.settings import Integration, Settings, chosen_integration
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.arrays import Number, as_float, is_concrete
from jaxmbd.checks import check_finite, check_number
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.state.state import State, check_state

_LASTING = (Latch, Release, Switch, Change)  # actions after which a motion has more than a State says

_MOST_STEPS = 256  # of the solver: a gradient through a loop keeps room for as many in each of its passes


def step(
    mechanism: Mechanism,
    state: State,
    dt: Number,
    integration: Integration | None = None,
    *,
    continued: bool = True,
    progress: bool = False,
    throw: bool = True,
    **settings: Unpack[Settings],
) -> State:
    """Return the state at `t + dt`: `simulate(mechanism, state, [t, t + dt], continued=True).state(-1)`.

    It has the structure of `state`, so that it is the carry of `jax.lax.scan`, `cond` and `while_loop`. All of
    `simulate` holds for it: any mechanism, `jit`, `vmap`, derivatives of both modes, and steps within `dt` as the
    error control asks for. Compiled once, it is called as often as the loop runs. Numbers of the mechanism that change
    from one step to the next, such as a torque that a sampled controller holds, are set by `equinox.tree_at`.

    **Arguments:**

    - `mechanism`, and a `state` from `assemble` or a motion;
    - `dt`: the interval `[s]`; the solver takes as many steps for it as it needs;
    - `integration`, an `Integration`, or `settings` by name, as for `simulate`. `max_steps` is 256 by default, since a
      gradient through a loop keeps room for as many in each pass: give the number where it is known.
      `solver=jaxmbd.RungeKutta4(), dt0=dt` takes constant steps, which are cheap;
    - `continued=False` asks that joints are closed as `assemble` closes them; `progress`: show a progress bar;
    - `throw=False` raises no error: `state.result` is the verdict, which later steps keep, and values are NaN.

    **Returns:** a `State`.

    **Raises:** as `simulate`; `MechanismError` for events whose action outlasts the step (`Latch`, `Release`, `Switch`,
    `Change`) and for `quadratures`, which a `State` cannot hold.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> start = mbd.assemble(pendulum, {"O.angle": 0.0})
        >>> advance = lambda state, _: (mbd.step(pendulum, state, 0.1), state["rod.x"])
        >>> end, x = jax.lax.scan(advance, start, length=10)
        >>> print(f"{end.t:.1f} s, {end['rod.x']:.4f} m")
        1.0 s, -0.4932 m
    """
    check_state(mechanism, state, "step(mechanism, state, dt)")
    duration = as_float(dt)
    check_finite("step", "dt", duration)
    check_number("step", "dt", duration, "s")
    if "quadratures" in settings:
        raise MechanismError("step: a State holds no quadratures. Read them from simulate over the interval.")
    chosen = chosen_integration("step", integration, settings, ("continued", "progress", "throw"))
    _check_memory(chosen.events)
    if chosen.max_steps is None:
        chosen = replace(chosen, max_steps=_MOST_STEPS)
    lib = np if is_concrete(state.t, duration) else jnp
    ts = lib.asarray(state.t) + lib.stack([lib.zeros_like(duration), duration]).astype(state.q.dtype)
    end = simulate(mechanism, state, ts, chosen, continued=continued, progress=progress, throw=throw).state(-1)
    values = lambda s: (s.t, s.q, s.v, s.z, s.result)  # noqa: E731
    return eqx.tree_at(values, state, values(end))


def _check_memory(events: Sequence[Event]) -> None:
    """Raise for events that leave a memory which a `State` does not hold."""
    for event in events:
        if isinstance(event.then, _LASTING):
            raise MechanismError(
                f"step: what the event {event.name!r} changes, by {type(event.then).__name__}, would end with the "
                "step, since a State does not hold it. Simulate the whole span, or change the mechanism in your loop."
            )
