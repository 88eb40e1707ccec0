"""The discrete adjoint: derivatives of an integration from its accepted steps, in both modes and of any order.

The motion is a chain of accepted steps `(yᵢ₊₁, sᵢ₊₁) = step(tᵢ, tᵢ₊₁, yᵢ, sᵢ, θ)` with states saved within them. The
primal run is diffrax's loop, which in addition records checkpoints. Tangents follow from one loop over the accepted
steps with the JVP of a step, cotangents from one loop backward with its transpose,
`(ȳᵢ, s̄ᵢ, θ̄) = (∂step)ᵀ (ȳᵢ₊₁, s̄ᵢ₊₁)`. The step sizes are constants: neither rejected steps nor the step-size control
are differentiated. (diffrax's own adjoint recomputes and transposes its whole loop.)
"""

from collections.abc import Callable
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from jaxmbd.arrays import Number, Scalar, frozen
from jaxmbd.integrate.adjoint.derivative_modes import reverse_only
from jaxmbd.integrate.adjoint.linear_sweeps import packed, tangents
from jaxmbd.integrate.adjoint.steps import MotionInputs, MotionSteps, Outputs
from jaxmbd.integrate.adjoint.sweep import CheckpointStore, StepSchedule
from jaxmbd.integrate.solvers.switching import StepsOnto
from jaxmbd.upstream.diffrax_internals import SAVE_STATE
from jaxmbd.upstream.equinox_internals import while_loop

_REVERSE_ONLY = (
    "Forward derivatives (jax.jvp, jax.jacfwd) and second derivatives of a motion need steps that follow one another "
    "without jumps: a diffrax.PIDController, ConstantStepSize or StepTo. In place of a controller with jump_ts give "
    "simulate switching_times=..., which have all derivatives. With any other controller there are reverse derivatives "
    "of first order (jax.grad, jax.vjp, jax.jacrev); for forward ones give adjoint='forward'."
)


class DiscreteAdjoint(dfx.AbstractAdjoint):
    """The discrete adjoint: derivatives of any order, forward and reverse, at fixed step sizes.

    With respect to parameters and the initial state its gradients equal those of `diffrax.RecursiveCheckpointAdjoint`
    to rounding. In derivatives with respect to the initial or the final time only the first or the last step changes,
    where diffrax changes all of them: these derivatives differ by the error of the integration.

    **Arguments:** `rows`, the number of checkpoints. In a run of more steps only every second, fourth, … state is a
    checkpoint and those between are recomputed, which costs one more forward run. The memory is
    `rows + 2 max_steps / rows` times the state and the solver's state (the slopes, for a method whose last stage is the
    next first one), and two times for each of `max_steps`. Second derivatives store the states with their tangents.

    If something other than states at times is saved, or if the controller steps to given jumps, diffrax's own adjoint
    is used, which has reverse derivatives of first order only.

    Source: Griewank, Walther, *Evaluating Derivatives* (2008), §12; Sanz-Serna, SIAM Review 58 (2016).
    """

    rows: int = eqx.field(static=True, default=1024)

    def loop(self, **arguments: Any) -> Any:  # pyright: ignore
        if not _recordable(**arguments):
            changing = {name: arguments[name] for name in ("init_state", "args", "terms")}
            return dfx.RecursiveCheckpointAdjoint().loop(**arguments | reverse_only(changing, _REVERSE_ONLY))
        unused = "throw", "passed_solver_state", "passed_controller_state"
        arguments = {name: value for name, value in arguments.items() if name not in unused}
        start, saveat, event = arguments["init_state"], arguments["saveat"], arguments["event"]
        sets = tuple(sub.ts for sub in subs_of(saveat) if sub.ts is not None)
        inputs = (
            start.y,
            start.solver_state,
            arguments["args"],
            arguments["terms"],
            (arguments["t0"], arguments["t1"], sets),
        )
        settings = {name: value for name, value in arguments.items() if name not in ("args", "terms", "init_state")}
        if event is not None:
            settings["event"] = _closed_event(event, arguments)
        # Keyword arguments of `filter_custom_jvp` must not be differentiated; what may be is in `inputs`.
        start, settings = frozen((start, settings))
        finished, end = _integrated(inputs, loop=self._loop, rows=self.rows, start=start, settings=settings)
        if event is None:
            return finished
        t1 = arguments["t1"]  # diffrax computes and differentiates the event time after its loop
        end = eqx.tree_at(lambda s: s.tprev, end, jnp.where(end.tprev >= t1, t1, end.tprev))
        return self._loop(**arguments, inner_while_loop=while_loop, outer_while_loop=lambda *_, **__: end)


def _closed_event(event: dfx.Event, arguments: dict[str, Any]) -> Any:
    """The event with closure-converted conditions: arrays that these close over become leaves of the event."""
    start, fixed = arguments["init_state"], {k: v for k, v in arguments.items() if k in _EVENT_ARGUMENTS}

    def closed(condition: Callable[..., Array]) -> "_Condition":
        return _Condition(eqx.filter_closure_convert(
            lambda t, y, args: condition(t, y, args, **fixed), start.tprev, start.y, arguments["args"]
        ))  # fmt: skip

    return eqx.tree_at(lambda e: e.cond_fn, event, jax.tree.map(closed, event.cond_fn, is_leaf=callable))


_EVENT_ARGUMENTS = ("terms", "solver", "t0", "t1", "dt0", "saveat", "stepsize_controller", "max_steps")


class _Condition(eqx.Module):
    """The condition of an event, as a function of time, state and `args` only."""

    condition: Callable[..., Array]

    def __call__(self, t: Number, y: PyTree[Array], args: object, **_: object) -> Array | bool:
        return self.condition(t, y, args)


def _recordable(
    *, saveat: dfx.SaveAt, max_steps: int | None, stepsize_controller: dfx.AbstractStepSizeController, **_: object
) -> bool:
    """True if steps follow one another without jumps, and only states are saved, at times or at the end."""
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


def subs_of(saveat: dfx.SaveAt) -> list[dfx.SubSaveAt]:
    """The `SubSaveAt`s of a `SaveAt`: sets of times, or the end."""
    return jax.tree.leaves(saveat.subs, is_leaf=_is_sub)


def _is_sub(x: object) -> bool:
    return isinstance(x, dfx.SubSaveAt)


def _saved(saveat: dfx.SaveAt, state: Any) -> list[Any]:
    """diffrax's save states (`ts`, `ys` and an index) for each set of times, and for the end."""
    return jax.tree.structure(saveat.subs, is_leaf=_is_sub).flatten_up_to(state.save_state)


def _run_loop(
    inputs: MotionInputs, loop: Callable[..., Any], start: PyTree, settings: dict[str, Any], outer: Callable[..., Any]
) -> tuple[Any, Any]:
    """Run diffrax's loop from the inputs; its results, and the loop state after the last step."""
    y, state, args, terms, _ = inputs
    start = eqx.tree_at(lambda s: (s.y, s.solver_state), start, (y, state), is_leaf=lambda x: x is None)
    ends = []

    def outer_recorded(*arguments: object, **options: object) -> PyTree:
        ends.append(outer(*arguments, **options))
        return ends[-1]

    loops = {"inner_while_loop": while_loop, "outer_while_loop": outer_recorded}
    finished = loop(args=args, terms=terms, init_state=start, **loops, **settings)
    return finished, ends[-1]


@eqx.filter_custom_jvp
def _integrated(
    inputs: MotionInputs, *, loop: Callable[..., Any], rows: int, start: PyTree, settings: dict[str, Any]
) -> tuple[Any, Any]:
    """The results of diffrax's loop, and the loop state after the last step, which an event does not change."""
    return _run_loop(inputs, loop, start, settings, while_loop)


@eqx.filter_custom_jvp
def _recorded(
    inputs: MotionInputs, *, loop: Callable[..., Any], rows: int, start: PyTree, settings: dict[str, Any]
) -> tuple[Any, Any, CheckpointStore]:
    """The results of `_integrated`, and the checkpoints."""
    records = []

    def with_checkpoints(
        cond: Callable[..., Array], body: Callable[..., Any], init: Any, *, max_steps: int, buffers: Callable[..., Any]
    ) -> PyTree:
        def step(carry: tuple[Any, CheckpointStore]) -> tuple[PyTree, CheckpointStore]:
            state, record = carry
            return body(state), record.with_step(state.num_accepted_steps, state.tprev, state.tnext, _value(state))

        record = CheckpointStore.empty(_value(init), init.tprev, rows, max_steps)
        end, record = while_loop(
            lambda carry: cond(carry[0]), step, (init, record),
            max_steps=max_steps, buffers=lambda carry: [buffers(carry[0]), carry[1]],
        )  # fmt: skip
        records.append(record)
        return end

    return *_run_loop(inputs, loop, start, settings, with_checkpoints), records[0]


def _value(state: Any) -> list[Array]:
    return [jnp.asarray(x) for x in jax.tree.leaves((state.y, state.solver_state))]


@_integrated.def_jvp
def _integrated_jvp(primals: tuple[MotionInputs], changes: tuple[PyTree], **fixed: Any) -> tuple[PyTree, PyTree]:
    (*results, _), (*result_tangents, _) = _with_tangents(primals, changes, **fixed)
    return tuple(results), tuple(result_tangents)


@_recorded.def_jvp
def _recorded_jvp(primals: tuple[MotionInputs], changes: tuple[PyTree], **fixed: Any) -> tuple[PyTree, PyTree]:
    return _with_tangents(primals, changes, **fixed)


def _with_tangents(
    primals: tuple[MotionInputs], changes: tuple[PyTree], *,
    loop: Callable[..., Any], rows: int, start: PyTree, settings: dict[str, Any],
) -> tuple[PyTree, PyTree]:  # fmt: skip
    """The primal run with checkpoints, which may be differentiated again, and the tangents of its results."""
    (inputs,), (changes,) = primals, changes
    finished, end, record = _recorded(inputs, loop=loop, rows=rows, start=start, settings=settings)
    saveat, solver = settings["saveat"], settings["solver"]
    steps = MotionSteps(inputs, solver, end.event_dense_info, rows)
    saved = zip(_saved(saveat, end), subs_of(saveat), strict=True)
    counts = [state.saveat_ts_index for state, sub in saved if sub.ts is not None]
    schedule = StepSchedule(record.starts, record.ends, end.num_accepted_steps, counts)
    x, dx = steps.pack(inputs, solver), steps.pack(inputs, solver, changes)
    output_tangents = tangents(steps, x, packed(schedule, record), {k: c for k, c in enumerate(dx) if c is not None})
    result_tangents = _as_tangents(steps.unflat(output_tangents), saveat, finished, end)
    return (finished, end, record), (*result_tangents, jax.tree.map(lambda _: None, record))


def _as_tangents(outputs: Outputs, saveat: dfx.SaveAt, finished: PyTree, end: Any) -> tuple[PyTree, PyTree]:
    """The tangents of the results of `_integrated`: of saved states, the final state and the last step."""
    structure, rows = jax.tree.structure(end.y), iter(outputs.rows)
    at_times = [sub.ts is not None for sub in subs_of(saveat)]
    at_end, stopped = [x[None] for x in outputs.end], end.num_accepted_steps == 0
    inside = [next(rows) if is_at_times else at_end for is_at_times in at_times]
    # A run without steps has saved its initial state.
    after_loop = [[jnp.where(stopped, a, b) for a, b in zip(at_end, ys, strict=True)] for ys in inside]
    inside, after_loop = ([jax.tree.unflatten(structure, ys) for ys in each] for each in (inside, after_loop))
    (returned, more), final = finished, jax.tree.unflatten(structure, outputs.end)
    returned = _tangents_at(returned, lambda s: [x.ys for x in _saved(saveat, s)], after_loop)
    inside = [ys for ys, is_at_times in zip(inside, at_times, strict=True) if is_at_times]

    def changing(s: Any) -> tuple[PyTree, ...]:
        ys = [x.ys for x, is_at_times in zip(_saved(saveat, s), at_times, strict=True) if is_at_times]
        return *ys, s.y, *([] if outputs.last is None else [s.event_dense_info, s.event_tprev, s.event_tnext])

    last = [] if outputs.last is None else [outputs.last[0], *outputs.last[1]]
    return (returned, jax.tree.map(lambda _: None, more)), _tangents_at(end, changing, [*inside, final, *last])


def _tangents_at(tree: PyTree, where: Callable[[Any], PyTree], values: PyTree) -> PyTree:
    """Tangents of a tree: `values` at the leaves that `where` selects, and `None` elsewhere."""
    marked = eqx.tree_at(where, jax.tree.map(lambda _: object(), tree), values)
    return jax.tree.map(lambda x: x if eqx.is_array(x) else None, marked)


class UncheckedTimesAdjoint(dfx.AbstractAdjoint):
    """Another adjoint, whose loop receives the original times; the checks become dead code and are not compiled.

    **Arguments:** `adjoint`; `t0`, `t1`, `ts`, `dt0` [s], as passed to `diffrax.diffeqsolve`.
    """

    adjoint: dfx.AbstractAdjoint
    t0: Scalar
    t1: Scalar
    ts: Array
    dt0: Scalar | None

    def loop(self, **arguments: Any) -> Any:  # pyright: ignore
        direction = jnp.where(self.t0 < self.t1, 1, -1)  # as in diffrax: times `t · direction` increase in its loop
        dt0 = None if self.dt0 is None else self.dt0 * direction
        start, t0, t1, terms, solver = (arguments[name] for name in ("init_state", "t0", "t1", "terms", "solver"))
        order = solver.error_order(terms)
        # diffrax has computed it from the checked times, on which the checks would then still hang.
        tnext, control = arguments["stepsize_controller"].init(
            terms, t0, t1, start.y, dt0, arguments["args"], solver.func, order
        )
        first_step = jnp.minimum(tnext, t1), control
        start = eqx.tree_at(lambda s: (s.tnext, s.controller_state), start, first_step, is_leaf=lambda x: x is None)
        at_times = lambda saveat: [sub.ts for sub in subs_of(saveat) if sub.ts is not None]  # noqa: E731
        saveat = eqx.tree_at(at_times, arguments["saveat"], replace_fn=lambda _: self.ts * direction)
        return self.adjoint.loop(**arguments | {"init_state": start, "saveat": saveat, "dt0": dt0})
