"""Derivatives of an integration from its recorded steps, their sizes held fixed: in both modes, of any order.

The motion is a chain of accepted steps `(yᵢ₊₁, sᵢ₊₁) = step(tᵢ, tᵢ₊₁, yᵢ, sᵢ, θ)` with values saved within them.
Forward, diffrax's loop runs as it does without derivatives and notes where each step began. Tangents follow from one
loop over the accepted steps with the derivative of a step; cotangents from one loop backward with its transpose,
`(ȳᵢ, s̄ᵢ, θ̄) = (∂step)ᵀ (ȳᵢ₊₁, s̄ᵢ₊₁)`. Neither rejected steps nor the control of the step size are differentiated.
diffrax's own adjoint repeats and transposes its whole loop.
"""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp

from jaxmbd.arrays import frozen
from jaxmbd.integrate.adjoint.checkpoint_store import CheckpointStore
from jaxmbd.integrate.adjoint.derivative_modes import reverse_only
from jaxmbd.integrate.adjoint.linear_sweeps import packed, tangents
from jaxmbd.integrate.adjoint.steps import MotionSteps, Outputs
from jaxmbd.integrate.adjoint.sweep import Schedule
from jaxmbd.integrate.diffrax_binding import SAVE_STATE, while_loop
from jaxmbd.integrate.solvers.switching import StepsOnto

_REVERSE_ONLY = (
    "Forward derivatives (jax.jvp, jax.jacfwd) and second derivatives of a motion need steps that follow one another "
    "without jumps: a diffrax.PIDController, ConstantStepSize or StepTo. In place of a controller with jump_ts give "
    "simulate switching_times=..., which have all derivatives. With any other controller there are reverse derivatives "
    "of first order (jax.grad, jax.vjp, jax.jacrev); for forward ones give adjoint='forward'."
)


class DiscreteAdjoint(dfx.AbstractAdjoint):
    """Derivatives of all orders, forward and reverse, from recorded steps, whose sizes are held fixed.

    With respect to parameters and the initial state those of `jax.grad` are those of
    `diffrax.RecursiveCheckpointAdjoint` to rounding. A derivative with respect to the initial or the final time moves
    the first or the last step alone, where diffrax moves all of them: these differ by the error of the integration.

    **Arguments:** `rows`, how many states are kept. A run of more steps keeps every second, fourth, … state and makes
    those between again, one more forward run. The memory is `rows + 2 max_steps / rows` times the state and what the
    solver carries (for a method whose last stage is the next first one, the slopes), and two times per `max_steps`.
    Second derivatives keep the states with their tangents.

    Where something other than states at times is saved, or steps move to given jumps, diffrax's own adjoint is used,
    which has reverse derivatives of first order alone.

    Source: Griewank, Walther, *Evaluating Derivatives* (2008), §12; Sanz-Serna, SIAM Review 58 (2016).
    """

    rows: int = eqx.field(static=True, default=1024)

    def loop(self, **given: Any) -> Any:  # pyright: ignore
        if not _recordable(**given):
            changing = {name: given[name] for name in ("init_state", "args", "terms")}
            return dfx.RecursiveCheckpointAdjoint().loop(**given | reverse_only(changing, _REVERSE_ONLY))
        unused = "throw", "passed_solver_state", "passed_controller_state"
        given = {name: value for name, value in given.items() if name not in unused}
        start, saveat, event = given["init_state"], given["saveat"], given["event"]
        sets = tuple(sub.ts for sub in subs_of(saveat) if sub.ts is not None)
        inputs = start.y, start.solver_state, given["args"], given["terms"], (given["t0"], given["t1"], sets)
        settings = {name: value for name, value in given.items() if name not in ("args", "terms", "init_state")}
        if event is not None:
            settings["event"] = _closed_event(event, given)
        start, settings = frozen((start, settings))
        finished, end = _integrated(inputs, loop=self._loop, rows=self.rows, start=start, settings=settings)
        if event is None:
            return finished
        t1 = given["t1"]  # the time of the event is found, and differentiated, by diffrax after its loop
        end = eqx.tree_at(lambda s: s.tprev, end, jnp.where(end.tprev >= t1, t1, end.tprev))
        inner = while_loop
        return self._loop(**given, inner_while_loop=inner, outer_while_loop=lambda *_, **__: end)


def _closed_event(event: Any, given: dict[str, Any]) -> Any:
    """The event with conditions of known arrays: what they close over becomes part of the event."""
    start, more = given["init_state"], {k: v for k, v in given.items() if k in _TOLD_TO_EVENTS}

    def closed(condition: Callable[..., Any]) -> Callable[..., Any]:
        return _Condition(eqx.filter_closure_convert(
            lambda t, y, args: condition(t, y, args, **more), start.tprev, start.y, given["args"]
        ))  # fmt: skip

    return eqx.tree_at(lambda e: e.cond_fn, event, jax.tree.map(closed, event.cond_fn, is_leaf=callable))


_TOLD_TO_EVENTS = ("terms", "solver", "t0", "t1", "dt0", "saveat", "stepsize_controller", "max_steps")


class _Condition(eqx.Module):
    """The condition of an event, as a function of time, state and arguments alone."""

    of: Callable[..., Any]

    def __call__(self, t: Any, y: Any, args: Any, **_: Any) -> Any:
        return self.of(t, y, args)


def _recordable(*, saveat: Any, max_steps: Any, stepsize_controller: Any, **_: Any) -> bool:
    """Whether steps follow each other without jumps, and only states are saved, each set at times or at the end."""
    control = stepsize_controller
    control = control.controller if isinstance(control, StepsOnto) else control
    if isinstance(control, dfx.ClipStepSizeController) and control.jump_ts is None:
        control = control.controller
    plain = isinstance(control, dfx.PIDController | dfx.ConstantStepSize | dfx.StepTo)
    saved = all(
        not sub.t0 and not sub.steps and sub.fn is SAVE_STATE and (sub.ts is None) == sub.t1 for sub in subs_of(saveat)
    )
    more = saveat.dense or saveat.solver_state or saveat.controller_state
    return plain and saved and not more and max_steps is not None


def subs_of(saveat: Any) -> list[dfx.SubSaveAt]:
    """What diffrax is to save: sets of times, or the end."""
    return jax.tree.leaves(saveat.subs, is_leaf=_is_sub)


def _is_sub(x: Any) -> bool:
    return isinstance(x, dfx.SubSaveAt)


def _saved(saveat: Any, state: Any) -> list[Any]:
    """What diffrax has saved (`ts`, `ys` and an index) for each set of times, and for the end."""
    return jax.tree.structure(saveat.subs, is_leaf=_is_sub).flatten_up_to(state.save_state)


def _run(inputs: Any, loop: Any, start: Any, settings: dict[str, Any], outer: Callable[..., Any]) -> Any:
    """diffrax's loop from the inputs: what it returns, and the state in which its steps end."""
    y, state, args, terms, _ = inputs
    start = eqx.tree_at(lambda s: (s.y, s.solver_state), start, (y, state), is_leaf=lambda x: x is None)
    ends = []

    def noted(*given: Any, **options: Any) -> Any:
        ends.append(outer(*given, **options))
        return ends[-1]

    inner = while_loop
    finished = loop(
        args=args, terms=terms, init_state=start, inner_while_loop=inner, outer_while_loop=noted, **settings
    )
    return finished, ends[-1]


@eqx.filter_custom_jvp
def _integrated(inputs: Any, *, loop: Any, rows: int, start: Any, settings: dict[str, Any]) -> Any:
    """What diffrax's loop returns, and the state in which its steps end, in which alone an event changes nothing."""
    return _run(inputs, loop, start, settings, while_loop)


@eqx.filter_custom_jvp
def _recorded(inputs: Any, *, loop: Any, rows: int, start: Any, settings: dict[str, Any]) -> Any:
    """The same, and a record of the steps."""
    records = []

    def noting(cond: Any, body: Any, init: Any, *, max_steps: int, buffers: Any) -> Any:
        def step(carry: Any) -> Any:
            state, record = carry
            return body(state), record.with_step(state.num_accepted_steps, state.tprev, state.tnext, _value(state))

        record = CheckpointStore.empty(_value(init), init.tprev, rows, max_steps)
        end, record = while_loop(
            lambda carry: cond(carry[0]), step, (init, record),
            max_steps=max_steps, buffers=lambda carry: [buffers(carry[0]), carry[1]],
        )  # fmt: skip
        records.append(record)
        return end

    return *_run(inputs, loop, start, settings, noting), records[0]


def _value(state: Any) -> list[Any]:
    return [jnp.asarray(x) for x in jax.tree.leaves((state.y, state.solver_state))]


@_integrated.def_jvp
def _integrated_jvp(primals: Any, changes: Any, **fixed: Any) -> tuple[Any, Any]:
    (*results, _), (*moved, _) = _with_tangents(primals, changes, **fixed)
    return tuple(results), tuple(moved)


@_recorded.def_jvp
def _recorded_jvp(primals: Any, changes: Any, **fixed: Any) -> tuple[Any, Any]:
    return _with_tangents(primals, changes, **fixed)


def _with_tangents(
    primals: Any, changes: Any, *, loop: Any, rows: int, start: Any, settings: dict[str, Any]
) -> tuple[Any, Any]:
    """The run itself, recorded, which may be differentiated again; tangents from its record."""
    (inputs,), (changes,) = primals, changes
    finished, end, record = _recorded(inputs, loop=loop, rows=rows, start=start, settings=settings)
    saveat, solver = settings["saveat"], settings["solver"]
    steps = MotionSteps(inputs, solver, end.event_dense_info, rows)
    saved = zip(_saved(saveat, end), subs_of(saveat), strict=True)
    counts = [state.saveat_ts_index for state, sub in saved if sub.ts is not None]
    schedule = Schedule(record.starts, record.ends, end.num_accepted_steps, counts)
    x, dx = steps.pack(inputs, solver), steps.pack(inputs, solver, changes)
    found = tangents(steps, x, packed(schedule, record), {k: c for k, c in enumerate(dx) if c is not None})
    moved = _as_tangents(steps.unflat(found), saveat, finished, end)
    return (finished, end, record), (*moved, jax.tree.map(lambda _: None, record))


def _as_tangents(outputs: Outputs, saveat: Any, finished: Any, end: Any) -> Any:
    """Tangents of what `_integrated` returns: of saved states, the state at the end and the last step."""
    structure, rows = jax.tree.structure(end.y), iter(outputs.rows)
    at_times = [sub.ts is not None for sub in subs_of(saveat)]
    at_end, stopped = [x[None] for x in outputs.end], end.num_accepted_steps == 0
    inside = [next(rows) if mine else at_end for mine in at_times]
    # a run of no steps has saved its start
    after = [[jnp.where(stopped, a, b) for a, b in zip(at_end, ys, strict=True)] for ys in inside]
    inside, after = ([jax.tree.unflatten(structure, ys) for ys in each] for each in (inside, after))
    (returned, more), final = finished, jax.tree.unflatten(structure, outputs.end)
    returned = _changes(returned, lambda s: [x.ys for x in _saved(saveat, s)], after)
    inside = [ys for ys, mine in zip(inside, at_times, strict=True) if mine]

    def changing(s: Any) -> Any:
        ys = [x.ys for x, mine in zip(_saved(saveat, s), at_times, strict=True) if mine]
        return *ys, s.y, *([] if outputs.last is None else [s.event_dense_info, s.event_tprev, s.event_tnext])

    last = [] if outputs.last is None else [outputs.last[0], *outputs.last[1]]
    return (returned, jax.tree.map(lambda _: None, more)), _changes(end, changing, [*inside, final, *last])


def _changes(tree: Any, where: Callable[[Any], Any], values: Any) -> Any:
    """Tangents of a tree: the values, and `None` elsewhere."""
    marked = eqx.tree_at(where, jax.tree.map(lambda _: object(), tree), values)
    return jax.tree.map(lambda x: x if eqx.is_array(x) else None, marked)
