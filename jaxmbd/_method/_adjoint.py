"""Reverse derivatives of an integration from its recorded steps: the discrete adjoint at steps held fixed.

The motion is a chain of accepted steps `(yᵢ₊₁, sᵢ₊₁) = step(tᵢ, tᵢ₊₁, yᵢ, sᵢ, θ)` with values saved within them.
Forward, diffrax's loop runs as it does without derivatives and notes where each step began. Backward, one loop over the
accepted steps applies the transposed derivative of a step, `(ȳᵢ, s̄ᵢ, θ̄) = (∂step)ᵀ (ȳᵢ₊₁, s̄ᵢ₊₁)`. Neither rejected
steps nor the control of the step size are differentiated. diffrax's own adjoint repeats and transposes its whole loop.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import diffrax as dfx
import equinox as eqx
import equinox.internal as eqxi
import jax

from jaxmbd._method._record import Record
from jaxmbd._method._sweep import Sweep
from jaxmbd._method._switching import EqualStepsOnto, StepsOnto
from jaxmbd._types import frozen

_SAVE_STATE = dfx.SubSaveAt(t1=True).fn  # diffrax's function that saves the state as it is


class DiscreteAdjoint(dfx.AbstractAdjoint):
    """Reverse-mode derivatives (`jax.grad`, `jax.vjp`) from recorded steps, whose sizes are held fixed.

    With respect to parameters and the initial state they are those of `diffrax.RecursiveCheckpointAdjoint` to rounding.
    A derivative with respect to the initial or the final time moves the first or the last step alone, where diffrax
    moves all of them: these differ by the error of the integration.

    **Arguments:** `rows`, how many states are kept. A run of more steps keeps every second, fourth, … state and makes
    those between again, one more forward run. The memory is `rows + 2 max_steps / rows` times the state and what the
    solver carries (for a method whose last stage is the next first one, the slopes), and two times per `max_steps`.

    Where diffrax ends a solve at an event, saves something other than states at times, or moves steps to given jumps,
    its own adjoint is used.

    Source: Griewank, Walther, *Evaluating Derivatives* (2008), §12; Sanz-Serna, SIAM Review 58 (2016).
    """

    rows: int = eqx.field(static=True, default=1024)

    def loop(self, **given: Any) -> Any:  # pyright: ignore
        if not _recordable(**given):
            return dfx.RecursiveCheckpointAdjoint().loop(**given)
        unused = "throw", "passed_solver_state", "passed_controller_state", "args", "terms", "init_state"
        settings = {name: value for name, value in given.items() if name not in unused}
        start, saveat = given["init_state"], given["saveat"]
        inputs = _Inputs(
            start.y, start.solver_state, given["args"], given["terms"],
            (given["t0"], given["t1"], tuple(sub.ts for sub in subs_of(saveat))),
        )  # fmt: skip
        start, settings = frozen((start, settings))
        end, more = _integrated(inputs, loop=self._loop, rows=self.rows, start=start, settings=settings)
        return _only_saved(saveat, end), more


class _Inputs(eqx.Module):
    """What is differentiated: the start, what the solver starts with, parameters, `(t0, t1, (ts, …))`."""

    y: Any
    state: Any
    args: Any
    terms: Any
    times: Any


def _recordable(*, saveat: Any, event: Any, max_steps: Any, stepsize_controller: Any, **_: Any) -> bool:
    """Whether steps follow each other without jumps, and only states are saved, each set at times or at the end."""
    onto = isinstance(stepsize_controller, StepsOnto | EqualStepsOnto)
    control = stepsize_controller.controller if onto else stepsize_controller
    plain = isinstance(control, dfx.PIDController | dfx.ConstantStepSize | dfx.StepTo)
    saved = all(
        not sub.t0 and not sub.steps and sub.fn is _SAVE_STATE and (sub.ts is None) == sub.t1 for sub in subs_of(saveat)
    )
    return plain and saved and event is None and not saveat.dense and max_steps is not None


def subs_of(saveat: Any) -> list[dfx.SubSaveAt]:
    """What diffrax is to save: sets of times, or the end."""
    return jax.tree.leaves(saveat.subs, is_leaf=_is_sub)


def _is_sub(x: Any) -> bool:
    return isinstance(x, dfx.SubSaveAt)


def _saved(saveat: Any, state: Any) -> list[Any]:
    """What diffrax has saved (`ts`, `ys` and an index) for each set of times, or its cotangents."""
    return jax.tree.structure(saveat.subs, is_leaf=_is_sub).flatten_up_to(state.save_state)


def _only_saved(saveat: Any, end: Any) -> Any:
    """The final state, of which only the saved states may be differentiated; whatever else is raises an error."""

    def values(state: Any) -> list[Any]:
        return [saved.ys for saved in _saved(saveat, state)]

    return eqx.tree_at(values, eqxi.nondifferentiable_backward(end, symbolic=False), values(end))


def _run(inputs: _Inputs, loop: Any, start: Any, settings: dict[str, Any], outer: Callable[..., Any]) -> Any:
    """diffrax's loop from the inputs: its final state, and statistics."""
    start = eqx.tree_at(
        lambda s: (s.y, s.solver_state), start, (inputs.y, inputs.state), is_leaf=lambda x: x is None
    )  # fmt: skip
    inner = partial(eqxi.while_loop, kind="lax")
    return loop(
        args=inputs.args, terms=inputs.terms, init_state=start, inner_while_loop=inner, outer_while_loop=outer,
        **settings,
    )  # fmt: skip


@eqx.filter_custom_vjp
def _integrated(inputs: _Inputs, *, loop: Any, rows: int, start: Any, settings: dict[str, Any]) -> Any:
    return _run(inputs, loop, start, settings, partial(eqxi.while_loop, kind="lax"))


@_integrated.def_fwd
def _integrated_fwd(
    perturbed: Any, inputs: _Inputs, *, loop: Any, rows: int, start: Any, settings: dict[str, Any]
) -> tuple[Any, Any]:
    records = []

    def recorded(cond: Any, body: Any, init: Any, *, max_steps: int, buffers: Any) -> Any:
        def step(carry: Any) -> Any:
            state, record = carry
            here = state.num_accepted_steps, state.tprev, state.tnext, (state.y, state.solver_state)
            return body(state), record.with_step(*here)

        record = Record.empty((init.y, init.solver_state), init.tprev, rows, max_steps)
        end, record = eqxi.while_loop(
            lambda carry: cond(carry[0]), step, (init, record),
            max_steps=max_steps, buffers=lambda carry: [buffers(carry[0]), carry[1]], kind="lax",
        )  # fmt: skip
        records.append(record)
        return end

    end, more = _run(inputs, loop, start, settings, recorded)
    counts = [saved.saveat_ts_index for saved in _saved(settings["saveat"], end)]
    return (end, more), (records[0], end.num_accepted_steps, counts)


@_integrated.def_bwd
def _integrated_bwd(
    residuals: Any, grad: Any, perturbed: Any, inputs: _Inputs, *,
    loop: Any, rows: int, start: Any, settings: dict[str, Any],
) -> Any:  # fmt: skip
    record, steps, counts = residuals
    cotangents = [saved.ys for saved in _saved(settings["saveat"], grad[0])]
    return Sweep(settings["solver"], record, steps, inputs, perturbed).run(cotangents, counts)
