"""Verdicts: how an analysis went, for each instance of a batch; and what follows for its values and derivatives."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool


class RESULTS(eqx.Enumeration):
    """How an analysis went: `state.result`, `solution.result`; `RESULTS[result]` is the text.

    Under `vmap` there is one for each instance: `solution.result == RESULTS.successful` is an array. Values are NaN
    where an analysis failed, and so are their derivatives.
    """

    successful = ""
    not_assembled = "The joints are not closed at the start."
    not_nearest = "The closed position nearest to the guess was not found."
    speeds_contradict = "The speeds contradict the constraints."
    times_invalid = "The times are not finite, do not increase, or do not start at the time of the state; or dt0 <= 0."
    constraints_violated = "The joints come apart: a saved position violates the constraints."
    singular = "The motion stops at a singular position, where constraint rows become dependent."
    max_steps_reached = "The maximum number of steps was reached (max_steps)."
    step_too_small = "The step size became too small: a force is not finite or has a kink, or the motion runs away."
    not_finite = "The state is no longer finite."
    solver_failed = "The solver gave up."
    position_not_reached = "The drivers' motion cannot be followed: a position was not reached."
    event_at_start = (
        "The event has already happened at the start: the quantity is beyond its value. Start on the other side, or "
        "exchange below and above."
    )
    event_blocked = (
        "The coordinate cannot change there: the constraints (or a closed latch) forbid its motion, so that no impulse "
        "along it has an effect. Choose a coordinate that the mechanism leaves free."
    )
    max_events_reached = (
        "More happened than max_events has room for. If the times crowd together, impacts follow one another without "
        "end while something comes to rest: end with Latch or Stop (an event on the speed or the energy), or model the "
        "contact by a compliant force (PlaneContact, JointStop). If they do not, raise max_events."
    )


def first_failure(*cases: tuple[Bool[Array, ""], RESULTS]) -> RESULTS:
    """The result that goes with the first condition that holds; successful where none does."""
    result = RESULTS.successful
    for failed, item in reversed(cases):
        result = RESULTS.where(failed, item, result)
    return result


def is_successful(result: RESULTS) -> Bool[Array, ""]:
    """Whether a result is the good one."""
    return result == RESULTS.successful


def number_of(result: RESULTS) -> Any:
    """The number that stands for a result in compiled programs."""
    return jax.tree.leaves(result)[0]


def text_of(number: np.ndarray) -> str:
    """The text of the result with a number; without JAX, for use while a program runs."""
    return RESULTS[jax.tree.unflatten(jax.tree.structure(RESULTS.successful), [np.asarray(number)])]


def invalidated(ok: Bool[Array, "*batch"], value: Array, inputs: Any) -> Array:
    """`value` where `ok`, which says so of its leading axes, else NaN; its derivatives by the `inputs` likewise.

    A zero in the place of a derivative would look like an answer, and that is what comes out where no step was taken.
    So each derivative that depends on an invalid number is NaN. Reverse derivatives to which invalid numbers do not
    contribute (their cotangents are zero) are not touched: a loss may leave out failed instances by
    `jnp.where(result == RESULTS.successful, loss, 0.0)`, of which `where` alone would make NaN.
    """
    ok = jnp.reshape(ok, ok.shape + (1,) * (value.ndim - ok.ndim))
    return _invalidated((jax.lax.stop_gradient(ok), value), inputs)


@eqx.filter_custom_jvp
def _invalidated(given: tuple[Array, Array], inputs: Any) -> Array:
    ok, value = given
    return jnp.where(ok, value, jnp.nan)


@_invalidated.def_jvp
def _invalidated_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (ok, value), inputs = primals
    (_, change), changes = tangents
    change = jnp.zeros_like(value) if change is None else change
    # The sum of all changes of inputs does not enter the result, but its cotangent reaches every input.
    total = sum((jnp.sum(leaf).astype(value.dtype) for leaf in jax.tree.leaves(changes)), jnp.zeros((), value.dtype))

    flags = jnp.append(jnp.broadcast_to(ok, value.shape).reshape(-1), True)

    def forward(_: Any, changes: Array) -> Array:
        return jnp.where(flags, changes, jnp.nan)

    def backward(_: Any, cotangents: Array) -> Array:
        # Those that are NaN reach the inputs by the sum alone: linear solves on the way (lineax) would raise errors.
        is_used = jnp.any(~flags & (cotangents != 0) | ~jnp.isfinite(cotangents))
        valid = jnp.where(flags & jnp.isfinite(cotangents), cotangents, 0.0)
        return valid.at[-1].add(jnp.where(is_used, jnp.nan, 0.0))

    # JAX's one way to give a linear function a transpose of our own, under all transformations. (One vector, since
    # batches of several are not supported where one depends on another.)
    linear = jax.lax.custom_linear_solve(lambda x: x, jnp.append(change.reshape(-1), total), forward, backward)
    return _invalidated((ok, value), inputs), linear[:-1].reshape(value.shape)
