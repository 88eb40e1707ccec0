"""The search for an equilibrium position, and its derivative.

Newton's method comes first: it converges to a nearby equilibrium, stable or unstable. A step is shortened until the
next correction is smaller than the step itself (natural monotonicity test); this test compares positions, not forces,
so that it works alike for stiff and soft springs. If it fails or has no direction, descent steps follow, which use the
moduli of the eigenvalues of the stiffness, like an overdamped motion. Each is shortened until the force along it has
not changed its sign. Newton's method then finishes. The forces need no potential. Loops are closed along the way.
A least-squares search (`numerics/`) would also end where forces are small and not balanced.

Source: Deuflhard, *Newton Methods for Nonlinear Problems* (2011), §3.3 (the test); Nocedal, Wright, *Numerical
Optimization* (2006), §18.3 (null-space steps); Dauphin et al., *Identifying and attacking the saddle point problem*
(2014), the sizes of the eigenvalues.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxmbd.analyses.equilibrium.balance import Balance, LinearizedBalance
from jaxmbd.arrays import Scalar, frozen
from jaxmbd.engine import cached_on_disk

_NEWTON, DOWNHILL, _FINISH = 0, 1, 2  # phases
_PATIENCE, STEPS = 60, 400  # limits on the steps of Newton's method before it counts as failed, and on all steps
_CAP, _STUCK = 0.3, 1e-6  # largest step, an angle [rad] or a share of the mechanism's size; smallest step
_KICK = 0.02  # share of the mechanism's size: the step away from a saddle point
_NEAR, _FAR = 1e-3, 0.1  # descent steps below _NEAR start the final Newton phase, steps above _FAR in it end it


class NewtonSearch(eqx.Module):
    """The state of the search: its position and phase, and the residuals at the position before the last step.

    - `cap`: the largest step; `steps`: the number of steps; `done`: True if the search has converged;
    - `missing`: the unbalanced force as a share of the present forces; `miss`: `Φ`;
    - `force`: the unbalanced generalized force; `loose`: its part in directions without stiffness.
    """

    q: Float[Array, " nq"]
    phase: Int[Array, ""]
    cap: Scalar
    steps: Int[Array, ""]
    done: Bool[Array, ""]
    missing: Scalar
    miss: Float[Array, " m"]
    force: Float[Array, " nv"]
    loose: Float[Array, " nv"]


@cached_on_disk
def settle(balance: Balance, start: Float[Array, " nq"], stable: Bool[Array, ""]) -> NewtonSearch:
    """Search for an equilibrium from a start; `stable`: take descent steps from the beginning."""
    equations, dtype = balance.equations, start.dtype
    zeros, rows = jnp.zeros(equations.mechanism.nv, dtype), jnp.zeros(equations.m, dtype)
    length, one = balance.at(start).extent(), jnp.ones((), dtype)
    phase = jnp.where(stable, DOWNHILL, _NEWTON)
    first = NewtonSearch(start, phase, _CAP * one, jnp.asarray(0), jnp.asarray(False), one, rows, zeros, zeros)
    step = lambda search: _step(balance, start, length, search)  # noqa: E731
    return jax.lax.while_loop(lambda search: ~search.done & (search.steps < STEPS), step, first)


def _step(balance: Balance, start: Array, length: Scalar, search: NewtonSearch) -> NewtonSearch:
    at = LinearizedBalance(balance, search.q)
    steady, downhill, dtype = at.steady, search.phase == DOWNHILL, start.dtype
    span = length * jnp.sqrt(jnp.sum(balance.equations.parts.masses))  # the mass-weighted length scale
    step = jnp.where(downhill, at.descent(_KICK * span), at.newton(at.f, at.phi))
    size = steady.size(step, length)
    g = at.R.T @ at.f
    strength = steady.strength() + span * jnp.max(jnp.abs(at.stiffness))
    missing = jnp.linalg.norm(g) / jnp.where(strength > 0, strength, 1.0)
    tolerance = tolerance_of_balance(dtype)
    is_small = size <= tolerance
    is_balanced = missing <= tolerance
    share = jnp.minimum(1.0, search.cap / jnp.where(size > 0, size, 1.0))
    q = steady.position.perturbed(share * step)
    good = _is_acceptable(balance, at, q, step, share, downhill) | is_small
    cap = jnp.where(good, jnp.minimum(2 * search.cap, _CAP), 0.5 * share * size)
    stuck = ~jnp.isfinite(size) | (cap < _STUCK) | (is_small & ~is_balanced)
    lost = (search.phase == _NEWTON) & ((search.steps >= _PATIENCE) | stuck)
    phase = jnp.where(downhill & (size < _NEAR), _FINISH, search.phase)
    phase = jnp.where(lost | ((search.phase == _FINISH) & (size > _FAR)), DOWNHILL, phase)
    done = ~downhill & is_small & is_balanced
    return NewtonSearch(
        jnp.where(lost, start, jnp.where(good, q, search.q)), phase, jnp.where(lost, _CAP, jnp.maximum(cap, _STUCK)),
        search.steps + 1, done, missing, at.phi, at.inertia.times(at.R @ g), at.unresolved(),
    )  # fmt: skip


def _is_acceptable(
    balance: Balance, at: LinearizedBalance, q: Array, step: Array, share: Scalar, downhill: Array
) -> Bool[Array, ""]:
    """Return True if a share of a step is acceptable.

    Newton's method: the next correction would be smaller. Descent: the force along the step has not changed its sign.
    """
    f, phi = balance.unbalance(q, at.lam)
    next_ = at.newton(f, phi)
    length = lambda x: jnp.sqrt(jnp.vdot(x, at.inertia.times(x)))  # noqa: E731
    smaller = length(next_) <= (1 - 0.25 * share) * length(step)
    return jnp.where(downhill, jnp.vdot(f, step) <= 0.5 * jnp.abs(jnp.vdot(at.f, step)), smaller)


def tolerance_of_balance(dtype: Any) -> float:
    """Return the tolerance of the last step, and of the unbalanced force as a share of the present forces: 1e-9, or
    1e-4 in single precision."""
    return 1e-9 if dtype == jnp.float64 else 1e-4


def implicit(balance: Balance, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """Return an equilibrium position, with derivatives by the implicit function theorem with respect to the balance.

    From `f(q, λ, p) = 0`, `Φ(q, p) = 0`: `K δ + Cᵀ δλ = −∂f/∂p δp`, `C δ = −∂Φ/∂p δp`, with the solution of least norm
    in undetermined directions. No derivative of any order goes through the factorisation that solves this system.
    """
    fixed, start = frozen((balance, q))
    return _rooted(balance, q, frozen(LinearizedBalance(fixed, start).lam))[0]


@eqx.filter_custom_jvp
def _rooted(balance: Balance, q: Array, lam: Array) -> tuple[Array, Array]:
    return q, lam


@_rooted.def_jvp
def _rooted_jvp(primals: tuple[Any, Any, Any], tangents: tuple[Any, Any, Any]) -> Any:
    (balance, q, lam), (changes, _, _) = primals, tangents
    q, lam = _rooted(balance, q, lam)  # as functions of the balance, for higher derivatives
    miss = eqx.filter_jvp(lambda b: b.unbalance(q, lam), (balance,), (changes,))[1]
    step, change = _response(balance, q, lam, *_or_zeros(miss, (jnp.zeros_like(balance.at(q).still), lam)))
    at = balance.at(q)
    return (q, lam), (jax.jvp(at.position.perturbed, (at.still,), (step,))[1], change)


@eqx.filter_custom_jvp
def _response(balance: Balance, q: Array, lam: Array, f: Array, phi: Array) -> tuple[Array, Array]:
    """Return the step `δ` and the change `δλ` of the multipliers with `K δ + Cᵀ δλ = −f`, `C δ = −φ`."""
    at = LinearizedBalance(balance, q, lam)
    step = at.newton(f, phi)
    return step, -at.C_inverse.T @ (f + at.K @ step)


@_response.def_jvp
def _response_jvp(primals: Any, tangents: Any) -> Any:
    """Differentiate `A x = −b`: `A x' = −(b' + A' x)`."""
    step, change = _response(*primals)

    def sides(balance: Balance, q: Array, lam: Array, f: Array, phi: Array) -> tuple[Array, Array]:
        at = balance.at(q)
        unbalance = lambda x, y: balance.unbalance(at.position.perturbed(x), y)  # noqa: E731
        moved, opened = jax.jvp(unbalance, (at.still, lam), (step, change))[1]
        return moved + f, opened + phi

    _, miss = eqx.filter_jvp(sides, primals, tangents)
    return (step, change), _response(*primals[:3], *_or_zeros(miss, (step, change)))


def _or_zeros(tangents: Any, likes: Any) -> Any:
    return [jnp.zeros_like(like) if x is None else x for x, like in zip(tangents, likes, strict=True)]
