"""The Radau IIA collocation methods for `M a − F + Cᵀ λ = 0`, `Φ̇ = 0`: coefficients, and the stage equations of a step.

With the step `h` and the method's matrix `A`, stage values are `V = v₀ + h A a`, `Q = q₀ + h A q̇(Q, V)`; the unknowns
are `V` and `λ`. In the eigenbasis of `(h A)⁻¹`, with one real eigenvalue and complex pairs, the linear system of a
simplified Newton iteration separates into one system per eigenvalue `s`, of the size of a single saddle-point system:

    [ M + D/s + K/s²   Cᵀ ] [ δv   ]
    [ C + G/s          0  ] [ δλ/s ]

where `K` and `D` are the derivatives of `M a − F + Cᵀ λ` with respect to the coordinates (along speeds) and to the
speeds, and `G` that of `Φ̇` with respect to the coordinates, all at the middle stage. States of parts, with `Z = z₀ + h
A g`, are eliminated first: `δz = (s − g_z)⁻¹ (r_z + (g_v + g_q/s) δv)`. The matrices are factored once per step. With
this scaling they remain regular as the step tends to zero (Bottasso, Dopico, Trainelli, 2008). The iteration itself is
not differentiated: the derivative of the stages follows from the implicit function theorem.

Source: Hairer, Wanner, *Solving ODEs II* (1996), §IV.5, §IV.8 and §VII.4.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Num

from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.own_states import at_integrated, integrated_rates
from jaxmbd.equations.saddle_point import proximal_shift

_IS_REAL = 1e-9  # imaginary part below which an eigenvalue counts as real: those of the others are of order 1


@dataclass(frozen=True)
class Tableau:
    """The Radau IIA method of `n` stages, of order `2 n − 1`, on the step `0 ≤ θ ≤ 1`.

    `matrix` is `A`, `inverse` is `A⁻¹`. The columns of `integrals` belong to the `nodes`: the coefficients of
    `θ¹ … θⁿ` in the integral of the Lagrange polynomial, which is 1 at that node and 0 at the others; `at_start` is the
    value of that polynomial at `θ = 0`. `bump` is the integral of the polynomial that is 1 at `θ = 0` and 0 at the
    nodes, as coefficients of `θ¹ … θⁿ⁺¹`.

    `values` are eigenvalues of `A⁻¹`, the real one first and then one of each complex pair, with their right (columns)
    and left (rows) eigenvectors.
    """

    nodes: np.ndarray
    matrix: np.ndarray
    inverse: np.ndarray
    integrals: np.ndarray
    at_start: np.ndarray
    bump: np.ndarray
    values: np.ndarray
    right: np.ndarray
    left: np.ndarray


@cache
def tableau(n: int) -> Tableau:
    """The tableau of an odd number `n` of stages; nodes are the zeros of `P_{n−1} − P_n` (Legendre, on `[0, 1]`)."""
    legendre = np.polynomial.Legendre([0.0] * (n - 1) + [1.0, -1.0], domain=(0, 1))
    nodes: np.ndarray = np.sort(np.real(legendre.roots())).astype(float)
    nodes[-1] = 1.0
    powers: np.ndarray = np.linalg.inv(np.vander(nodes, n, increasing=True))
    integrals = powers / np.arange(1, n + 1)[:, None]
    matrix: np.ndarray = np.vander(nodes, n + 1, increasing=True)[:, 1:] @ integrals
    inverse = np.linalg.inv(matrix)
    vanishing = np.polynomial.Polynomial.fromroots(nodes)
    bump = (vanishing / vanishing(0.0)).integ().coef[1:]
    values, right = np.linalg.eig(inverse)
    imaginary = np.imag(values)
    selected = [int(np.abs(imaginary).argmin()), *np.flatnonzero(imaginary > _IS_REAL)]
    left = np.linalg.inv(right)[selected]
    return Tableau(nodes, matrix, inverse, integrals, powers[0], bump, values[selected], right[:, selected], left)


_MAX_ITERATIONS = 12  # RADAU5 gives up after 7 to 10
_DIVERGED = 2.0  # ratio of the changes of two successive iterations

# Relative errors at which the iteration stops, by the bytes of a number: if it converges, and if rounding keeps the
# changes from decreasing further (near singular positions). Each is a fraction of the tolerance within these limits.
_CONVERGED_FRACTION, _STALLED_FRACTION = 1e-2, 1e-1
_MIN_CONVERGED, _MIN_STALLED = {8: 1e-14, 4: 1e-6}, {8: 1e-13, 4: 1e-4}
_MAX_CONVERGED, _MAX_STALLED = {8: 1e-12, 4: 1e-6}, {8: 1e-9, 4: 1e-4}


class StageValues(eqx.Module):
    """Coordinates, speeds, states of parts (as they are integrated) and multipliers at the nodes of a step.

    Without states of parts `z` is None, here and in a step: with arrays without entries in its loop XLA found no
    implementation of the programs there.
    """

    q: Float[Array, "n nq"]
    v: Float[Array, "n nv"]
    z: Float[Array, "n nz"] | None
    lam: Float[Array, "n m"]


class RadauStep(eqx.Module):
    """A step: the equations, its time, length and initial state, and the number of stages."""

    equations: Equations
    t: Scalar
    h: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    z: Float[Array, " nz"] | None
    count: int = eqx.field(static=True)

    @property
    def tableau(self) -> Tableau:
        """The coefficients of the method."""
        return tableau(self.count)

    @property
    def times(self) -> Float[Array, " n"]:
        """The times of the nodes."""
        return self.t + self.as_array(self.tableau.nodes) * self.h

    def as_array(self, numbers: np.ndarray | float) -> Array:
        """Coefficients as an array in the precision of the state."""
        return jnp.asarray(numbers, self.q.dtype)

    def rates(
        self, stages: StageValues
    ) -> tuple[Float[Array, "n nq"], Float[Array, "n nv"], Float[Array, "n nz"] | None]:
        """The rates `q̇` at the nodes, the accelerations `a` from `V = v₀ + h A a`, and likewise the rates `ż`."""
        qdot = jax.vmap(self.equations.rate)(self.times, stages.q, stages.v)
        slopes = lambda at_nodes, start: self.as_array(self.tableau.inverse) @ (at_nodes - start[None]) / self.h  # noqa: E731
        return qdot, slopes(stages.v, self.v), None if self.z is None else slopes(stages.z, self.z)

    def reached(self, stages: StageValues) -> Float[Array, "n nq"]:
        """The coordinates at the nodes, `q₀ + h A q̇`."""
        return self.q[None] + self.h * self.as_array(self.tableau.matrix) @ self.rates(stages)[0]

    def residual(self, stages: StageValues) -> Float[Array, "n rows"]:
        """The residuals of the equations of motion, of the velocity constraints and of the states of parts at the
        nodes."""
        _, a, zdot = self.rates(stages)
        each = self.times, stages.q, stages.v, a, stages.lam, stages.z, zdot
        return jax.vmap(lambda *x: _residual(self.equations, *x))(*each)


def _residual(
    equations: Equations, t: Scalar, q: Array, v: Array, a: Array, lam: Array, z: Array | None, zdot: Array | None
) -> Float[Array, " rows"]:
    """The residual `M a − F + Cᵀ λ` and, below it, `Φ̇` and `ż − g`."""
    at = (equations if z is None else at_integrated(equations, z)).at(t, q)
    own = [] if zdot is None else [zdot - integrated_rates(at, v)]
    return jnp.concatenate([at.inertia.times(a) - at.force(v) + at.jacobian.T @ lam, at.velocity(v), *own])


class LinearizedStages(eqx.Module):
    """The equations linearised at the middle stage of a guess.

    `N`, with `q̇ = N v`; `along`, `by_speed` and `by_state`, the derivatives of the residual with respect to the
    coordinates (along speeds), to the speeds and to the states of parts. `shift` keeps the matrices regular if
    constraint rows are dependent; the solution does not depend on it.
    """

    M: Float[Array, "nv nv"]
    N: Float[Array, "nq nv"]
    along: Float[Array, "rows nv"]
    by_speed: Float[Array, "rows nv"]
    by_state: Float[Array, "rows nz"] | None
    shift: Float[Array, " m"]

    def __init__(self, step: RadauStep, guess: StageValues) -> None:
        _, a, zdot = step.rates(guess)
        each = step.times, guess.q, guess.v, a, guess.lam, guess.z, zdot
        middle: Any = jax.tree.map(lambda x: x[step.count // 2], each)
        t, q, v, a, lam, z, zdot = middle
        at = step.equations.at(t, q)
        self.M, self.N = at.inertia.matrix(), jax.jacfwd(at.rate)(v)
        residual = lambda x, v, z: _residual(step.equations, t, q + self.N @ x, v, a, lam, z, zdot)  # noqa: E731
        self.along, self.by_speed, self.by_state = jax.jacfwd(residual, (0, 1, 2))(jnp.zeros_like(v), v, z)
        C = self.by_speed[len(v) : len(v) + len(lam)]
        scales = step.equations.scales.rows
        largest = jnp.max(jnp.sum(at.inertia.solve_rows(C) * C, axis=1) / scales**2, initial=0.0)
        self.shift = jnp.where(step.equations.redundant, proximal_shift(largest) * scales**2, 0.0)


class StageSystem:
    """The factored matrix of the iteration for one eigenvalue `s` of `(h A)⁻¹`."""

    def __init__(self, linear: LinearizedStages, s: Num[Array, ""]) -> None:
        self.s, self.nv, self.rows = s, len(linear.M), len(linear.M) + len(linear.shift)
        by_motion, self.own_by_motion = jnp.split(linear.by_speed + linear.along / s, [self.rows])
        self.by_state = None
        if linear.by_state is not None:
            self.by_state, own = jnp.split(linear.by_state, [self.rows])
            self.own_factors = jax.scipy.linalg.lu_factor(s * jnp.eye(len(own), dtype=own.dtype) + own)
            by_motion = by_motion - self.by_state @ self._own(self.own_by_motion)
        matrix = by_motion.at[: self.nv].divide(s).at[: self.nv].add(linear.M)
        C = linear.by_speed[self.nv : self.rows]
        right = jnp.concatenate([C.T, -jnp.diag(linear.shift)])
        self.factors = jax.scipy.linalg.lu_factor(jnp.concatenate([matrix, right.astype(matrix.dtype)], axis=1))

    def solve(self, residual: Num[Array, " rows"]) -> Num[Array, " rows"]:
        """The change `(δv, δλ, δz)` that has this linearised residual."""
        residual, of_states = jnp.split(residual, [self.rows])
        if self.by_state is not None:
            residual = residual - self.by_state @ self._own(of_states)
        x = jax.scipy.linalg.lu_solve(self.factors, residual.at[: self.nv].divide(self.s))
        states = [] if self.by_state is None else [self._own(of_states - self.own_by_motion @ x[: self.nv])]
        return jnp.concatenate([x.at[self.nv :].multiply(self.s), *states])

    def _own(self, x: Num[Array, "nz *k"]) -> Num[Array, "nz *k"]:
        """`(s − g_z)⁻¹ x`."""
        return jax.scipy.linalg.lu_solve(self.own_factors, x)


# Of Newton's method: the stages, the size of the last change, 1 for converged and -1 for failed, the iterations so far.
Iterate: TypeAlias = tuple[StageValues, Scalar, Array, Array]


@eqx.filter_custom_jvp
def solve_stages(
    step: RadauStep, guess: StageValues, linear: LinearizedStages, tolerance: Scalar
) -> tuple[StageValues, Bool[Array, ""]]:
    """The stages, by Newton's method from a guess, and whether it converged within a relative `tolerance`."""
    nv = len(step.v)
    converged, stalled = thresholds(tolerance, step.q.dtype.itemsize)
    systems = [StageSystem(linear, jnp.asarray(s) / step.h) for s in _as_typed(step.tableau.values, step.q.dtype)]

    def improve(carry: Iterate) -> Iterate:
        old, previous_size, _, count = carry
        change = _newton_change(step.tableau, systems, step.residual(old))
        of_v, of_lam, of_z = jnp.split(change, [nv, nv + old.lam.shape[1]], axis=1)
        new = StageValues(old.q, old.v - of_v, None if old.z is None else old.z - of_z, old.lam - of_lam)
        new = eqx.tree_at(lambda s: s.q, new, step.reached(new))
        size = _relative_change(step, new, old)
        ratio = jnp.where(count > 0, size / previous_size, 0.5)
        # The rest of a geometric series with this ratio (Hairer, Wanner, §IV.8).
        error = size * ratio / jnp.maximum(1 - ratio, 1e-3)
        done = (error <= converged) | (ratio > 0.5) & (size <= stalled)
        failed = (ratio > _DIVERGED) | ~jnp.isfinite(size)
        return new, size, jnp.where(done, 1, jnp.where(failed, -1, 0)), count + 1

    def unfinished(carry: Iterate) -> Array:
        _, _, status, count = carry
        return (status == 0) & (count < _MAX_ITERATIONS)

    start = guess, jnp.ones((), step.q.dtype), jnp.asarray(0), jnp.asarray(0)
    stages, _, status, _ = jax.lax.while_loop(unfinished, improve, start)
    return stages, status == 1


def thresholds(tolerance: Scalar, size: int) -> tuple[Array, Array]:
    """The relative errors at which the iteration counts as converged and as stalled by rounding, for a tolerance and
    the bytes of a number: errors of the iteration stay below those that the step-size controller sees."""
    converged = jnp.clip(_CONVERGED_FRACTION * tolerance, _MIN_CONVERGED[size], _MAX_CONVERGED[size])
    return converged, jnp.clip(_STALLED_FRACTION * tolerance, _MIN_STALLED[size], _MAX_STALLED[size])


def _newton_change(
    tableau: Tableau, systems: list[StageSystem], residual: Float[Array, "n rows"]
) -> Float[Array, "n rows"]:
    """The Newton change for a residual of all stages: one system per eigenvalue, in the eigenbasis of `A⁻¹`."""
    total = jnp.zeros_like(residual)
    for k, system in enumerate(systems):
        left, right = (_as_typed(x, residual.dtype, k) for x in (tableau.left[k], tableau.right[:, k]))
        part = system.solve(left @ residual.astype(left.dtype))
        # The conjugate eigenvalue gives the conjugate, so one system serves each pair.
        total = total + (1 if k == 0 else 2) * jnp.real(right[:, None] * part[None])
    return total


def _as_typed(numbers: Any, dtype: Any, k: int | None = None) -> Any:
    """Coefficients of the `k`-th eigenvalue in the precision of `dtype`: real for the first one, else complex."""
    if k is None:
        return [_as_typed(number, dtype, k) for k, number in enumerate(numbers)]
    return jnp.asarray(numbers.real, dtype) if k == 0 else jnp.asarray(numbers, jnp.result_type(dtype, jnp.complex64))


def _relative_change(step: RadauStep, new: StageValues, old: StageValues) -> Scalar:
    """The relative change of two iterates: of the coordinates, of the speeds, scaled by no less than `q / h`, and of
    the states of parts, scaled by no less than their sizes."""
    # The start alone is no measure: all angles may be zero there.
    extent = jnp.max(jnp.abs(jnp.append(step.q, new.q)), initial=jnp.finfo(step.q.dtype).tiny)
    speed = jnp.max(jnp.abs(new.v)) + extent / jnp.abs(step.h)
    motion = jnp.maximum(jnp.max(jnp.abs(new.q - old.q)) / extent, jnp.max(jnp.abs(new.v - old.v)) / speed)
    if new.z is None or old.z is None:
        return motion
    return jnp.maximum(motion, jnp.max(jnp.abs(new.z - old.z)) / jnp.max(jnp.abs(new.z), initial=1.0))


@solve_stages.def_jvp
def _solve_stages_jvp(
    primals: tuple[RadauStep, StageValues, LinearizedStages, Scalar], tangents: tuple[RadauStep, *tuple[object, ...]]
) -> tuple[tuple[StageValues, Array], tuple[StageValues, None]]:
    """The implicit function theorem, with the exact Jacobian of all stage equations."""
    (step, guess, linear, tolerance), (step_tangent, *_) = primals, tangents
    stages, converged = solve_stages(step, guess, linear, tolerance)
    flat, unravel = ravel_pytree(stages)

    def residual(flat: Array, step: RadauStep) -> Array:
        x = unravel(flat)
        forces, rates, own = jnp.split(step.residual(x), [len(step.v), len(step.v) + x.lam.shape[1]], axis=1)
        return jnp.concatenate([part.reshape(-1) for part in (x.q - step.reached(x), forces, own, rates)])

    _, tangent = eqx.filter_jvp(lambda s: residual(flat, s), (step,), (step_tangent,))
    J, of_multipliers = jax.jacfwd(residual)(flat, step), jnp.tile(linear.shift, len(stages.lam))
    factors = jax.scipy.linalg.lu_factor(J - jnp.diag(jnp.pad(of_multipliers, (flat.size - stages.lam.size, 0))))
    x = jax.scipy.linalg.lu_solve(factors, tangent)
    # One step of iterative refinement removes the effect of the shift.
    x = x + jax.scipy.linalg.lu_solve(factors, tangent - J @ x)
    return (stages, converged), (unravel(-x), None)
