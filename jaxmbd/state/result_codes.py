"""Result codes of analyses, for each instance of a batch, their effect on values and derivatives, and run-time errors.

`equinox.error_if` needs its text at trace time. In `raise_where` the text is written when the error occurs, by a
callback to Python in a branch that is taken in that case only: it may depend on values (which instance of a batch,
which joint). JAX does not store programs with callbacks in its cache on disk, so this is used only where errors are
wanted and values are traced.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxmbd.engine.binding.raising import ROOM, always_raised, raises_itself
from jaxmbd.engine.calls.cached_function import whole_in_meshes
from jaxmbd.errors import printable
from jaxmbd.upstream.equinox_internals import any_instance, report_error


class RESULTS(eqx.Enumeration):
    """The result code of an analysis: `state.result`, `solution.result`; `RESULTS[result]` is its text.

    Under `vmap` each instance has one: `solution.result == RESULTS.successful` is an array. Values are NaN where an
    analysis failed, and so are their derivatives.
    """

    successful = ""
    not_assembled = "The joints are not closed at the start."
    opposed = "The axes of a joint's two markers point against each other."
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
    motion_undetermined = "The drivers do not determine the motion: they leave degrees of freedom."
    motion_unbalanced = "The actuators cannot produce the motion: a generalized force is left unbalanced."
    not_balanced = "No equilibrium was found: the search ended with unbalanced forces, or with open joints."
    not_steady = "A driver, a joint or a force contradicts the state of rest or of steady rotation."
    event_at_start = (
        "The event has already happened at the start: the quantity is beyond its value. Start on the other side, or "
        "exchange below and above."
    )
    event_unknown = (
        "The quantity of the event is no number from there on, so that nobody can tell when the event happens. Let the "
        "quantity have a value wherever the motion may go: no square root or logarithm of what becomes negative."
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
    singular_at_start = (
        "The start is a singular position: constraint rows are dependent there, and independent beside it, so that the "
        "motion may go on in several ways. Start a little beside it, where the mechanism moves as it is meant to."
    )


def first_failure(*cases: tuple[Bool[Array, ""] | np.bool_, RESULTS]) -> RESULTS:
    """Return the result code that belongs to the first condition that is true; `successful` if none is."""
    result = RESULTS.successful
    for failed, item in reversed(cases):
        result = RESULTS.where(failed, item, result)
    return result


def is_successful(result: RESULTS) -> Bool[Array, ""]:
    """Return True where the result code is `successful`."""
    return result == RESULTS.successful


def number_of(result: RESULTS) -> Any:
    """Return the integer that represents a result code in compiled programs."""
    return jax.tree.leaves(result)[0]


def is_one_of(result: RESULTS, *items: RESULTS) -> bool:
    """Return whether a known result code is one of some; `==` would be compiled for it, once in each process."""
    return int(number_of(result)) in [int(number_of(item)) for item in items]


def text_of(number: np.ndarray) -> str:
    """Return the text of a result code from its integer, without JAX, for use while a program runs."""
    return RESULTS[jax.tree.unflatten(jax.tree.structure(RESULTS.successful), [np.asarray(number)])]


def invalidated(ok: Bool[Array, "*batch"], value: Array, inputs: Any) -> Array:
    """Return `value` where `ok` is True and NaN elsewhere; so for its derivatives with respect to the `inputs`.

    `ok` has the leading axes of `value`. Where no step was taken the derivative would be zero, which looks like an
    answer, so each derivative that depends on an invalid number is NaN instead. Reverse derivatives to which invalid
    numbers do not contribute are unchanged, since zero cotangents are not multiplied by NaN: a loss may leave out
    failed instances by a single `jnp.where(result == RESULTS.successful, loss, 0.0)`.
    """
    if value.size == 0:  # such as the states of parts where there are none: JAX batches its value and not its tangent
        return value
    ok = jnp.reshape(ok, ok.shape + (1,) * (value.ndim - ok.ndim))
    return _invalidated((jax.lax.stop_gradient(ok), value), inputs)


@eqx.filter_custom_jvp
def _invalidated(ok_and_value: tuple[Array, Array], inputs: Any) -> Array:
    ok, value = ok_and_value
    return jnp.where(ok, value, jnp.nan)


@_invalidated.def_jvp
def _invalidated_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (ok, value), inputs = primals
    (_, tangent), input_tangents = tangents
    tangent = jnp.zeros_like(value) if tangent is None else tangent
    # The sum of all input tangents does not enter the result, but its cotangent reaches every input.
    total = sum(
        (jnp.sum(leaf).astype(value.dtype) for leaf in jax.tree.leaves(input_tangents)), jnp.zeros((), value.dtype)
    )

    flags = jnp.append(jnp.broadcast_to(ok, value.shape).reshape(-1), True)

    def forward(_: Any, input_tangents: Array) -> Array:
        return jnp.where(flags, input_tangents, jnp.nan)

    def backward(_: Any, cotangents: Array) -> Array:
        # NaN cotangents reach the inputs through the sum alone, since linear solves (lineax) on the way would raise.
        is_used = jnp.any(~flags & (cotangents != 0) | ~jnp.isfinite(cotangents))
        valid = jnp.where(flags & jnp.isfinite(cotangents), cotangents, 0.0)
        return valid.at[-1].add(jnp.where(is_used, jnp.nan, 0.0))

    # `custom_linear_solve` is the only way in JAX to define the transpose of a linear function that works under all
    # transformations. The argument is one vector, since batching fails for several that depend on one another.
    linear = jax.lax.custom_linear_solve(lambda x: x, jnp.append(tangent.reshape(-1), total), forward, backward)
    return _invalidated((ok, value), inputs), linear[:-1].reshape(value.shape)


_LISTED = 4  # number of instances of a batch that a message describes

Describe = Callable[..., str]


@dataclass(frozen=True)
class Sentence:
    """The text of an error that depends on no value, as a function for `raise_where`."""

    text: str

    def __call__(self) -> str:
        return self.text


class _EquinoxRuntimeError(RuntimeError):
    """`equinox.filter_jit` recognises its own errors by this name, and raises `EquinoxRuntimeError` with their text."""


@whole_in_meshes
@eqx.filter_jit
def raise_where(values: Any, failed: Bool[Array, ""], describe: Describe, *details: Array) -> Any:
    """Return the arrays `values` unchanged; if `failed`, raise with the text `describe(*details)` at run time.

    Under `vmap` the text gives the index of each instance that failed (several numbers if `vmap`s are nested) and
    describes the first few by their own details. The error is raised only if one of the values is used.
    """

    def written(failed: np.ndarray, *details: np.ndarray) -> bytes:
        text = printable(_text(failed, [*details], describe))
        report_error(text)
        if raises_itself():
            raise _EquinoxRuntimeError(text)
        return _as_bytes(text)

    failed, details = jax.lax.stop_gradient((failed, details))
    raise_now, go_on = lambda: always_raised(written, failed, *details), lambda: jnp.zeros((), bool)
    raised = jax.lax.cond(any_instance(failed), raise_now, go_on)
    return jax.tree.map(lambda value: jnp.where(raised, jnp.nan, value), values)


def _as_bytes(text: str) -> bytes:
    """A text in UTF-8, cut to its room; at its end the mark by which equinox knows its own errors, and a zero."""
    end = f"\n({_EquinoxRuntimeError.__name__}: raised while the compiled program ran)".encode()
    return text.encode()[: ROOM - len(end) - 1].decode(errors="ignore").encode() + end + b"\0"


def raise_unless_successful(values: Any, result: RESULTS) -> Any:
    """Return the arrays `values` unchanged; raise with the text of the result code, at run time, if it says failure."""
    return raise_where(values, ~is_successful(result), text_of, number_of(result))


def _text(failed: np.ndarray, details: list[np.ndarray], describe: Describe) -> str:
    if failed.ndim == 0:
        return describe(*details)
    indices = [tuple(map(int, index)) for index in np.argwhere(failed)]
    lines = [
        f"Instance {', '.join(map(str, index))}: {describe(*(x[index] for x in details))}"
        for index in indices[:_LISTED]
    ]
    more = [f"(and {len(indices) - _LISTED} more)"] if len(indices) > _LISTED else []
    return "\n".join([f"{len(indices)} of {failed.size} instances of the batch failed.", *lines, *more])
