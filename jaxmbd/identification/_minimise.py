"""The optimisers, run step by step, so that they show progress and can be interrupted without losing their result."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import optax
import optimistix as optx
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxmbd.identification._experiment import Problem, UnknownValues, linearise, plain_values, residuals

USED_UP = "steps used up"

Report = Callable[[str], None]


class MinimiserResult(eqx.Module):
    """The result of a search.

    `y`: the unknowns; `values`: the channels there; `jacobian`: the Jacobian of the residuals (`None` if the optimiser
    computes none); `history`: the loss `½ Σ r²` after each step; `outcome`: the reason for which it stopped.
    """

    y: UnknownValues
    values: tuple[dict[str, Array], ...]
    jacobian: Array | None
    history: tuple[float, ...] = eqx.field(static=True)
    outcome: str = eqx.field(static=True)


def levenberg_marquardt(problem: Problem, steps: int, tolerance: float, report: Report) -> MinimiserResult:
    """Minimise the sum of squares by optimistix's Levenberg-Marquardt.

    Each step evaluates residuals and Jacobian once, at `state.y_eval`. They come from one compiled program (the
    simulations), and the optimiser's step gets them as a linear function.
    """
    y = problem.start()
    solver = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance, linear_solver=lx.QR())
    evaluate = eqx.filter_jit(linearise)
    report("compiling the simulations and their derivatives ...")
    model, r, J = evaluate(y, problem)
    evaluated = (y, r, J)
    shapes = jax.eval_shape(lambda: (r, None))
    state = eqx.filter_jit(solver.init)(_linear, y, evaluated, {}, *shapes, frozenset())
    step = eqx.filter_jit(solver.step)
    stop = eqx.filter_jit(solver.terminate)
    best, history, outcome = (model, J), [], USED_UP
    try:
        for k in range(steps):
            y, state, _ = step(_linear, y, evaluated, {}, state, frozenset())
            if eqx.tree_equal(y, evaluated[0]):
                best = (model, J)
            history.append(0.5 * float(jnp.sum(state.f_info.residual**2)))
            report(f"step {k + 1}: loss {history[-1]:.6g}")
            done, result = stop(_linear, y, evaluated, {}, state, frozenset())
            if bool(done):
                outcome = "converged" if result == optx.RESULTS.successful else str(optx.RESULTS[result])
                break
            try:
                model, r, J = evaluate(state.y_eval, problem)
            except eqx.EquinoxRuntimeError:  # no mechanism with such numbers can be assembled: NaN rejects the step
                r = jnp.full_like(r, jnp.nan)
            evaluated = (state.y_eval, r, J)
    except KeyboardInterrupt:
        outcome = "interrupted"
    return MinimiserResult(y, *best, tuple(history), outcome)


def _linear(y: UnknownValues, at: tuple[UnknownValues, Array, Array]) -> tuple[Array, None]:
    """Return the residuals, linearised about the point where they were computed."""
    centre, r, J = at
    return r + J @ (ravel_pytree(y)[0] - ravel_pytree(centre)[0]), None


def gradient_descent(
    problem: Problem, optimiser: optax.GradientTransformation, steps: int, report: Report
) -> MinimiserResult:
    """Minimise `½ Σ r²` by an optax optimiser, with gradients by reverse mode."""
    y = problem.start()
    optimiser = optax.with_extra_args_support(optimiser)
    state = optimiser.init(y)

    @eqx.filter_jit
    def step(y: UnknownValues, state: Any, problem: Problem) -> tuple[UnknownValues, Any, Array, Any]:
        def loss(y: UnknownValues) -> tuple[Array, Any]:
            model = plain_values(y, problem, "reverse")
            return 0.5 * jnp.sum(residuals(problem, model) ** 2), model

        (value, model), gradient = jax.value_and_grad(loss, has_aux=True)(y)
        updates, state = optimiser.update(gradient, state, y, value=value, grad=gradient, value_fn=lambda y: loss(y)[0])  # pyright: ignore[reportCallIssue]
        return optax.apply_updates(y, updates), state, value, model  # pyright: ignore[reportReturnType]

    report("compiling the simulations and their derivatives ...")
    history, outcome, best, best_model = [], USED_UP, y, ()
    started = time.monotonic()
    try:
        for k in range(steps):
            before = y
            y, state, value, model = step(y, state, problem)
            if not history or float(value) <= min(history):
                best, best_model = before, model
            history.append(float(value))
            rate = (time.monotonic() - started) / (k + 1)
            report(f"step {k + 1} of {steps}: loss {min(history):.6g}, {rate:.2g} s a step")
    except KeyboardInterrupt:
        outcome = "interrupted"
    if not history:
        raise KeyboardInterrupt
    return MinimiserResult(best, best_model, None, tuple(history), outcome)
