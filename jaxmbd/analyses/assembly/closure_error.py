"""Closure error: how far a mechanism is from being assembled, as a function that is differentiable everywhere.

An optimiser of dimensions meets mechanisms that cannot be assembled. `assemble` has no answer for them; the closure
error has one, with a gradient that leads back to those that can.

Source: Nocedal, Wright, *Numerical Optimization* (2006), §10.1 (nonlinear least squares), §2.1 (the Hessian at a
minimiser).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assemble import fixed_numbers, numbers_of, prescribed_at
from jaxmbd.analyses.assembly.multistart import guessed, with_turn_counts
from jaxmbd.analyses.assembly.position_solve import ClosureProblem, closest_guarded, guarded
from jaxmbd.analyses.assembly.turns import within_a_turn
from jaxmbd.analyses.redundancy import least_norm
from jaxmbd.arrays import Number, Scalar
from jaxmbd.checks import check_time
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.state.state import State

_NEWTON_STEPS = 4  # at a residual that is not zero the least-squares search converges linearly only


def closure_error(
    mechanism: Mechanism,
    fixed: Mapping[str, Number | Sequence[Number]] | None = None,
    *,
    guess: Mapping[str, Number] | State | None = None,
    t: Number = 0.0,
    locked: Iterable[str] = (),
) -> Scalar:
    """Return half the sum of squares of the closure's residual at its minimiser over the coordinates.

    `E(p) = min_q ½ r(q, p)ᵀ r(q, p)`,   `∂E/∂p = rᵀ ∂r/∂p`

    The residual `r` holds the position constraints `Φ(q, t)` and, below them, the values that are fixed and guards
    against joints whose axes point against each other, which are zero if none does. `E` is zero,
    with the derivative zero, where the mechanism can be assembled, and positive where it cannot. The derivatives
    exist in both cases, in both modes and of any order; on the boundary between the two, where a linkage is stretched
    out, the first ones are continuous and the second ones are not. The minimiser is the one that the search from the
    guess reaches: a local one.

    **Arguments:** as for `assemble`.

    **Returns:** `E` `[m², rad²]`, a number.

    **Raises:** `MechanismError` for names that do not exist.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> print(round(float(mbd.closure_error(pendulum, {"rod.x": 1.5})), 4))  # it reaches 0.5 m
        1.0

    Source: the derivative of a minimum is the partial one (envelope theorem); Nocedal, Wright, *Numerical
    Optimization* (2006), §10.1.
    """
    r = closure_residual(mechanism, fixed, guess=guess, t=t, locked=locked)
    return 0.5 * jnp.sum(r**2)


def closure_residual(
    mechanism: Mechanism,
    fixed: Mapping[str, Number | Sequence[Number]] | None = None,
    *,
    guess: Mapping[str, Number] | State | None = None,
    t: Number = 0.0,
    locked: Iterable[str] = (),
) -> Float[Array, " rows"]:
    """Return the residual `r(q, p)` of the closure at the minimiser of `½ rᵀ r` over the coordinates.

    The rows are those of `closure_error`: the constraints in their order, then the fixed values by name, and in space
    one for each joint that could be closed on the wrong side, with axes against each other: zero on the right one. All
    are zero where the mechanism can be assembled; in a least-squares objective they show what is open.

    **Arguments:** as for `assemble`.

    **Returns:** `r` `[m, rad]`, `(rows,)`.

    **Raises:** `MechanismError` for names that do not exist.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> print(mbd.closure_residual(pendulum, {"rod.x": 1.5}).round(4))
        [-1.  0. -1.]
    """
    check_mechanism(mechanism)
    start = guessed(mechanism, guess if isinstance(guess, State) else numbers_of("guess", guess))
    values = fixed_numbers(mechanism, fixed)
    start, time = with_turn_counts(mechanism, start, values), check_time("closure_error", t).astype(start.dtype)
    return _residual_at_minimum(mechanism, start, prescribed_at(mechanism, start, values, locked, time), time)


@cached_on_disk
def _residual_at_minimum(mechanism: Mechanism, start: Array, prescribed: dict[str, Array], t: Scalar) -> Array:
    closing = (Equations(mechanism), prescribed, t)
    return guarded(closest(closing, within_a_turn(closing, start)), closing)


@eqx.filter_custom_jvp
def closest(closing: ClosureProblem, start: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """Return a minimiser near `start` of half the sum of squares of a closure's residual; it need not be closed.

    Its derivative is the change of least norm, without units, that keeps it stationary, `H δq = −δ(∂E/∂q)`.
    """
    q, size = closest_guarded(closing, start), jnp.asarray(closing[0].scales.coordinates)

    def newton(q: Array, _: None) -> tuple[Array, None]:
        gradient = _slope(q, closing)
        improved = q - _stationary_change(q, closing, gradient)
        shorter = jnp.linalg.norm(size * _slope(improved, closing)) < jnp.linalg.norm(size * gradient)
        return jnp.where(shorter, improved, q), None

    return jax.lax.scan(newton, q, None, length=_NEWTON_STEPS)[0]


@closest.def_jvp
def _closest_jvp(primals: tuple[Any, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    (closing, start), (changes, _) = primals, tangents
    q = closest(closing, start)
    _, change = eqx.filter_jvp(lambda c: _slope(q, c), (closing,), (changes,))
    return q, jnp.zeros_like(q) if change is None else -_stationary_change(q, closing, change)


def _stationary_change(q: Array, closing: ClosureProblem, slope: Array) -> Array:
    """Return the `x` of least norm with `H x` nearest to a slope, for coordinates without units.

    A small mechanism has curvatures along its lengths and its angles of such different sizes that the smaller ones
    would count as zero.
    """
    size = jnp.asarray(closing[0].scales.coordinates)
    return size * least_norm(size[:, None] * _curvature(q, closing) * size[None], size * slope)


def _slope(q: Array, closing: ClosureProblem) -> Array:
    """Return the gradient of half the sum of squares, `Jᵀ r`."""
    r, pull = jax.vjp(lambda q: guarded(q, closing), q)
    return pull(r)[0]


def _curvature(q: Array, closing: ClosureProblem) -> Array:
    """Return the Hessian of half the sum of squares, `Jᵀ J + Σ rᵢ ∇²rᵢ`."""
    return jax.jacfwd(_slope)(q, closing)
