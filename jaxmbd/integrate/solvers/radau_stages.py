"""The stages of one step of a Radau IIA method on `M a − F + Cᵀ λ = 0`, `Φ̇ = 0`: a simplified Newton iteration.

With the step `h` and the method's matrix `A`, stage values are `V = v₀ + h A a`, `Q = q₀ + h A q̇(Q, V)`; the unknowns
are `V` and `λ`. Diagonalised by the eigenvalues `s` of `(h A)⁻¹`, one real and complex pairs, the linear systems of the
iteration are of the size of one instant's:

    [ M + D/s + K/s²   Cᵀ ] [ δv   ]
    [ C + G/s          0  ] [ δλ/s ]

where `K` and `D` are the derivatives of `M a − F + Cᵀ λ` along the coordinates and by the speeds, `G` that of `Φ̇`
along the coordinates, all in the middle of the step. The matrices are factored once a step. Scaled like this they stay
regular for the smallest steps (Bottasso, Dopico, Trainelli, 2008). Differentiation does not go through the iteration:
the derivative of its result is that of the implicit function theorem.

Source: Hairer, Wanner, *Solving ODEs II* (1996), §IV.8 and §VII.4.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Num

from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.solvers.tableau import Tableau, tableau

_ITERATIONS = 12  # RADAU5 gives up after 7 to 10
_DIVERGED = 2.0  # ratio of two iterations' changes
_CLOSE, _STALLED = {8: 1e-12, 4: 1e-6}, {8: 1e-9, 4: 1e-4}  # by the bytes of a number: what counts as no error;
# and as rounding, where changes shrink no more (near singular positions); at most, as shares of the tolerance,
_OF_CLOSE, _OF_STALLED = 1e-2, 1e-1
_LEAST_CLOSE, _LEAST_STALLED = {8: 1e-14, 4: 1e-6}, {8: 1e-13, 4: 1e-4}  # and at least
_PROXIMAL = 2.0**10  # as in the methods' own solve


class Stages(eqx.Module):
    """Coordinates, speeds and multipliers at the nodes of a step."""

    q: Float[Array, "n nq"]
    v: Float[Array, "n nv"]
    lam: Float[Array, "n m"]


class RadauStep(eqx.Module):
    """A step: the equations, its time, length and initial state, and the number of stages."""

    equations: Equations
    t: Scalar
    h: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    count: int = eqx.field(static=True)

    @property
    def tableau(self) -> Tableau:
        """The coefficients of the method."""
        return tableau(self.count)

    @property
    def times(self) -> Float[Array, " n"]:
        """The times of the nodes."""
        return self.t + self.as_array(self.tableau.nodes) * self.h

    def as_array(self, numbers: Any) -> Array:
        """Coefficients in the precision of the state."""
        return jnp.asarray(numbers, self.q.dtype)

    def rates(self, stages: Stages) -> tuple[Float[Array, "n nq"], Float[Array, "n nv"]]:
        """`q̇` at the nodes, and `a`, with `V = v₀ + h A a`."""
        qdot = jax.vmap(self.equations.rate)(self.times, stages.q, stages.v)
        return qdot, self.as_array(self.tableau.inverse) @ (stages.v - self.v[None]) / self.h

    def reached(self, stages: Stages) -> Float[Array, "n nq"]:
        """`q₀ + h A q̇`."""
        return self.q[None] + self.h * self.as_array(self.tableau.matrix) @ self.rates(stages)[0]

    def miss(self, stages: Stages) -> Float[Array, "n rows"]:
        """What the equations miss at the nodes."""
        each = self.times, stages.q, stages.v, self.rates(stages)[1], stages.lam
        return jax.vmap(lambda *x: _miss(self.equations, *x))(*each)


def _miss(equations: Equations, t: Scalar, q: Array, v: Array, a: Array, lam: Array) -> Float[Array, " rows"]:
    """`M a − F + Cᵀ λ` and, below it, `Φ̇`."""
    at = equations.at(t, q)
    return jnp.concatenate([at.inertia.times(a) - at.force(v) + at.jacobian.T @ lam, at.velocity(v)])


class Linearized(eqx.Module):
    """The equations linearised at the middle stage of a guess.

    `N`, with `q̇ = N v`; `along` and `by_speed`, the derivatives of what is missed along the coordinates, and by speeds.
    `shift` keeps the matrices regular where constraints repeat one another; what the iteration converges to does not
    depend on it.
    """

    M: Float[Array, "nv nv"]
    N: Float[Array, "nq nv"]
    along: Float[Array, "rows nv"]
    by_speed: Float[Array, "rows nv"]
    shift: Scalar

    def __init__(self, step: RadauStep, guess: Stages) -> None:
        t, q, v, a, lam = (x[step.count // 2] for x in (step.times, guess.q, guess.v, step.rates(guess)[1], guess.lam))
        at = step.equations.at(t, q)
        self.M, self.N = at.inertia.matrix(), jax.jacfwd(at.rate)(v)
        miss = lambda x, v: _miss(step.equations, t, q + self.N @ x, v, a, lam)  # noqa: E731
        self.along, self.by_speed = jax.jacfwd(miss, (0, 1))(jnp.zeros_like(v), v)
        C = self.by_speed[len(v) :]
        largest = jnp.max(jnp.sum(at.inertia.solve_rows(C) * C, axis=1), initial=0.0)
        self.shift = jnp.where(step.equations.redundant, _PROXIMAL * jnp.finfo(q.dtype).eps * largest, 0.0)


class StageSystem:
    """The factored matrix of the iteration for one eigenvalue `s` of `(h A)⁻¹`."""

    def __init__(self, linear: Linearized, s: Num[Array, ""]) -> None:
        self.s, self.nv = s, linear.M.shape[0]
        matrix = (linear.by_speed + linear.along / s).at[: self.nv].divide(s).at[: self.nv].add(linear.M)
        C = linear.by_speed[self.nv :]
        right = jnp.concatenate([C.T, -linear.shift * jnp.eye(C.shape[0], dtype=C.dtype)])
        self.factors = jax.scipy.linalg.lu_factor(jnp.concatenate([matrix, right.astype(matrix.dtype)], axis=1))

    def solve(self, miss: Num[Array, " rows"]) -> Num[Array, " rows"]:
        """The change `(δv, δλ)` that makes such a miss."""
        x = jax.scipy.linalg.lu_solve(self.factors, miss.at[: self.nv].divide(self.s))
        return x.at[self.nv :].multiply(self.s)


@eqx.filter_custom_jvp
def solve_stages(
    step: RadauStep, guess: Stages, linear: Linearized, tolerance: Scalar
) -> tuple[Stages, Bool[Array, ""]]:
    """The stages, found from a guess, and whether the iteration converged within a relative `tolerance`."""
    nv = len(step.v)
    close, stalled = thresholds(tolerance, step.q.dtype.itemsize)
    systems = [StageSystem(linear, jnp.asarray(s) / step.h) for s in _typed(step.tableau.values, step.q.dtype)]

    def improve(carry: Any) -> Any:
        old, before, _, count = carry
        change = _change(step.tableau, systems, step.miss(old))
        new = Stages(old.q, old.v - change[:, :nv], old.lam - change[:, nv:])
        new = eqx.tree_at(lambda s: s.q, new, step.reached(new))
        size = _size(step, new, old)
        ratio = jnp.where(count > 0, size / before, 0.5)
        left = size * ratio / jnp.maximum(1 - ratio, 1e-3)
        done = (left <= close) | (ratio > 0.5) & (size <= stalled)
        failed = (ratio > _DIVERGED) | ~jnp.isfinite(size)
        return new, size, jnp.where(done, 1, jnp.where(failed, -1, 0)), count + 1

    def wanted(carry: Any) -> Any:
        _, _, status, count = carry
        return (status == 0) & (count < _ITERATIONS)

    start = guess, jnp.ones((), step.q.dtype), jnp.asarray(0), jnp.asarray(0)
    stages, _, status, _ = jax.lax.while_loop(wanted, improve, start)
    return stages, status == 1


def thresholds(tolerance: Scalar, size: int) -> tuple[Array, Array]:
    """What counts as no error, and as rounding, by the tolerance and the bytes of a number: the errors of the iteration
    stay below those that the step-size control sees."""
    close = jnp.clip(_OF_CLOSE * tolerance, _LEAST_CLOSE[size], _CLOSE[size])
    return close, jnp.clip(_OF_STALLED * tolerance, _LEAST_STALLED[size], _STALLED[size])


def _change(tableau: Tableau, systems: list[StageSystem], miss: Float[Array, "n rows"]) -> Float[Array, "n rows"]:
    """What makes such a miss: taken apart along the eigenvectors of `A⁻¹`, solved, and put together."""
    total = jnp.zeros_like(miss)
    for k, system in enumerate(systems):
        left, right = (_typed(x, miss.dtype, k) for x in (tableau.left[k], tableau.right[:, k]))
        part = system.solve(left @ miss.astype(left.dtype))
        total = total + (1 if k == 0 else 2) * jnp.real(right[:, None] * part[None])
    return total


def _typed(numbers: Any, dtype: Any, k: int | None = None) -> Any:
    """Numbers that belong to the `k`-th eigenvalue, in the precision of `dtype`: real for the first one."""
    if k is None:
        return [_typed(number, dtype, k) for k, number in enumerate(numbers)]
    return jnp.asarray(numbers.real, dtype) if k == 0 else jnp.asarray(numbers, jnp.result_type(dtype, jnp.complex64))


def _size(step: RadauStep, new: Stages, old: Stages) -> Scalar:
    """The change, as a share of the coordinates, and of the speeds or of those that move as far in a step."""
    reach = jnp.maximum(jnp.max(jnp.abs(step.q)), jnp.finfo(step.q.dtype).tiny)
    speed = jnp.max(jnp.abs(new.v)) + reach / jnp.abs(step.h)
    return jnp.maximum(jnp.max(jnp.abs(new.q - old.q)) / reach, jnp.max(jnp.abs(new.v - old.v)) / speed)


@solve_stages.def_jvp
def _solve_stages_jvp(primals: Any, tangents: Any) -> Any:
    """By the implicit function theorem, with the exact Jacobian of all stages together."""
    (step, guess, linear, tolerance), (change, *_) = primals, tangents
    stages, converged = solve_stages(step, guess, linear, tolerance)
    flat, unravel = ravel_pytree(stages)

    def miss(flat: Array, step: RadauStep) -> Array:
        x = unravel(flat)
        forces, rates = jnp.split(step.miss(x), [len(step.v)], axis=1)
        return jnp.concatenate([part.reshape(-1) for part in (x.q - step.reached(x), forces, rates)])

    _, missed = eqx.filter_jvp(lambda s: miss(flat, s), (step,), (change,))
    J, is_multiplier = jax.jacfwd(miss)(flat, step), jnp.arange(flat.size) >= flat.size - stages.lam.size
    factors = jax.scipy.linalg.lu_factor(J - jnp.diag(jnp.where(is_multiplier, linear.shift, 0.0)))
    x = jax.scipy.linalg.lu_solve(factors, missed)
    x = x + jax.scipy.linalg.lu_solve(factors, missed - J @ x)  # what the shift changed
    return (stages, converged), (unravel(-x), None)
