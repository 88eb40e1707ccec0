"""The collocation methods of Radau IIA and of Gauss for `M a − F + Cᵀ λ = 0`, `Φ̇ = 0`: coefficients, and the stage
equations of a step.

With the step `h` and the method's matrix `A`, stage values are `V = v₀ + h A a`, `Q = q₀ + h A q̇(Q, V)`; the unknowns
are `V` and `λ`. In the eigenbasis of `(h A)⁻¹`, with complex pairs and, of an odd number of stages, a real eigenvalue,
the linear system of a simplified Newton iteration separates into one system per eigenvalue `s`, of the size of a single
saddle-point system:

    [ M + D/s + K/s²   Cᵀ ] [ δv   ]
    [ C + G/s          0  ] [ δλ/s ]

where `K` and `D` are the derivatives of `M a − F + Cᵀ λ` with respect to the coordinates (along speeds) and to the
speeds, and `G` that of `Φ̇` with respect to the coordinates, all at the middle stage. States of parts, with `Z = z₀ + h
A g`, come before the speeds, with `1 − g_z/s` on the diagonal. The matrices are factored once per step. With this
scaling they remain regular as the step tends to zero (Bottasso, Dopico, Trainelli, 2008). The derivative of the stages
is that of the fixed point of the iteration, and is found by iterating with the same factors: no matrix of all stages
is formed.

Source: Hairer, Wanner, *Solving ODEs II* (1996), §IV.5, §IV.8 and §VII.4; for Gauss methods, whose end is no node,
Ascher, Petzold, *Projected implicit Runge-Kutta methods for differential-algebraic equations*, SIAM J. Numer. Anal. 28
(1991).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Num

from jaxmbd.arrays import Scalar, frozen
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.own_states import at_integrated, integrated_rates
from jaxmbd.equations.saddle_point import proximal_shift
from jaxmbd.numerics.sparse_lu import Complex, Structure, factored, substituted

_IS_REAL = 1e-9  # imaginary part below which an eigenvalue counts as real: those of the others are of order 1


Family: TypeAlias = Literal["Radau", "Gauss"]


class Method(NamedTuple):
    """A collocation method: `"Radau"`, of order `2 stages − 1`, whose last node is the end of the step, or `"Gauss"`,
    of order `2 stages`."""

    family: Family
    stages: int


@dataclass(frozen=True)
class Tableau:
    """The coefficients of a method of `n` stages on the step `0 ≤ θ ≤ 1`.

    `matrix` is `A`, `inverse` is `A⁻¹`, `weights` is `b`. The columns of `integrals` belong to the `nodes`: the
    coefficients of `θ¹ … θⁿ` in the integral of the Lagrange polynomial, which is 1 at that node and 0 at the others;
    `at_start` and `at_end` are the values of that polynomial at `θ = 0` and `θ = 1`. `bump` is the integral of the
    polynomial that is 1 at `θ = 0` and 0 at the nodes, as coefficients of `θ¹ … θⁿ⁺¹`. The end of a step is
    `y₀ + ends (Y − y₀)` with the values `Y` at the nodes.

    `values` are eigenvalues of `A⁻¹`, the real one first and then one of each complex pair, with their right (columns)
    and left (rows) eigenvectors. With an even number of stages there is no real one; the first one then is a number of
    their size, for the error estimate alone, and its vectors are zero.
    """

    nodes: np.ndarray
    matrix: np.ndarray
    inverse: np.ndarray
    weights: np.ndarray
    integrals: np.ndarray
    at_start: np.ndarray
    at_end: np.ndarray
    ends: np.ndarray
    bump: np.ndarray
    values: np.ndarray
    right: np.ndarray
    left: np.ndarray

    @property
    def factors(self) -> int:
        """How many real matrices hold the factored matrices of all eigenvalues."""
        return 2 * len(self.values) - 1


@cache
def tableau(method: Method) -> Tableau:
    """The tableau of a method: nodes are the zeros of `P_{n−1} − P_n` or of `P_n` (Legendre, on `[0, 1]`)."""
    family, n = method
    series = [0.0] * (n - 1) + ([1.0, -1.0] if family == "Radau" else [0.0, 1.0])
    nodes: np.ndarray = np.sort(np.real(np.polynomial.Legendre(series, domain=(0, 1)).roots())).astype(float)
    if family == "Radau":
        nodes[-1] = 1.0
    powers: np.ndarray = np.linalg.inv(np.vander(nodes, n, increasing=True))
    integrals = powers / np.arange(1, n + 1)[:, None]
    matrix: np.ndarray = np.vander(nodes, n + 1, increasing=True)[:, 1:] @ integrals
    inverse, weights = np.linalg.inv(matrix), integrals.sum(axis=0)
    at_end, ends = powers.sum(axis=0), weights @ inverse
    if family == "Radau":  # exactly: the last node is the end
        weights, at_end, ends = matrix[-1], np.eye(n)[-1], np.eye(n)[-1]
    vanishing = np.polynomial.Polynomial.fromroots(nodes)
    bump = (vanishing / vanishing(0.0)).integ().coef[1:]
    values, right = np.linalg.eig(inverse)
    imaginary, left = np.imag(values), np.linalg.inv(right)
    selected = np.flatnonzero(imaginary > _IS_REAL)
    if n % 2:
        selected = np.append(int(np.abs(imaginary).argmin()), selected)
    values, right, left = values[selected], right[:, selected], left[selected]
    if n % 2 == 0:
        values, right, left = (
            np.append(np.abs(values[0]), values), np.pad(right, ((0, 0), (1, 0))), np.pad(left, ((1, 0), (0, 0))),
        )  # fmt: skip
    return Tableau(nodes, matrix, inverse, weights, integrals, powers[0], at_end, ends, bump, values, right, left)


MAX_ITERATIONS = 12  # RADAU5 gives up after 7 to 10; as in `motion.h`
_DIVERGED = 2.0  # ratio of the changes of two successive iterations

# Relative errors at which the iteration stops, by the bytes of a number: if it converges, and if rounding keeps the
# changes from decreasing further (near singular positions). Each is a fraction of the tolerance within these limits.
_CONVERGED_FRACTION, _STALLED_FRACTION = 1e-2, 1e-1
_MIN_CONVERGED, _MIN_STALLED = {8: 1e-14, 4: 1e-6}, {8: 1e-13, 4: 1e-4}
_MAX_CONVERGED, _MAX_STALLED = {8: 1e-12, 4: 1e-6}, {8: 1e-9, 4: 1e-4}
# Changes of speeds, in units of the rounding of the coordinates over the step, that count as none: vibrations that are
# much faster than the step follow that rounding. With 64, a steel rod takes two thirds more steps at 1e-12.
_ROUNDING = {8: 256, 4: 8}


class StageValues(eqx.Module):
    """Coordinates, speeds, states of parts (as they are integrated) and multipliers at the nodes of a step.

    Without states of parts `z` is None, here and in a step: with arrays without entries in its loop XLA found no
    implementation of the programs there.
    """

    q: Float[Array, "n nq"]
    v: Float[Array, "n nv"]
    z: Float[Array, "n nz"] | None
    lam: Float[Array, "n m"]


class CollocationStep(eqx.Module):
    """A step: the equations, its time, length and initial state, and the method."""

    equations: Equations
    t: Scalar
    h: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    z: Float[Array, " nz"] | None
    method: Method = eqx.field(static=True)

    @property
    def tableau(self) -> Tableau:
        """The coefficients of the method."""
        return tableau(self.method)

    @property
    def count(self) -> int:
        """The number of stages."""
        return self.method.stages

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

    def end(self, stages: StageValues) -> tuple[Array, Array, Array | None, Array]:
        """Coordinates, speeds, states of parts and multipliers at the end of the step."""
        method = self.tableau
        z = None if self.z is None or stages.z is None else self._at_end(method.ends, stages.z, self.z)
        q, v = (self._at_end(method.ends, x, start) for x, start in ((stages.q, self.q), (stages.v, self.v)))
        return q, v, z, self._at_end(method.at_end, stages.lam, stages.lam[-1])

    def _at_end(self, weights: np.ndarray, nodes: Array, start: Array) -> Array:
        """`start + weights (nodes − start)`, to the bit the last node if all the weight is there."""
        return nodes[-1] if weights[-1] == 1 else start + self.as_array(weights) @ (nodes - start[None])

    def residual(self, stages: StageValues) -> Float[Array, "n rows"]:
        """The residuals of the equations of motion, of the velocity constraints and of the states of parts at the
        nodes."""
        _, a, zdot = self.rates(stages)
        each = self.times, stages.q, stages.v, a, stages.lam, stages.z, zdot
        return jax.vmap(lambda *x: _residual(self.equations, *x))(*each)


def _residual(
    equations: Equations, t: Scalar, q: Array, v: Array, a: Array, lam: Array, z: Array | None, zdot: Array | None
) -> Float[Array, " rows"]:
    """The residual `M a − F + Cᵀ λ` and, below it, `Φ̇` and `ż − g`.

    Of redundant rows those of an independent set are solved: off the constraints, where the iteration starts, the
    others contradict them. The multipliers of the others are zero, and stand in place of their `Φ̇`.
    """
    at = (equations if z is None else at_integrated(equations, z)).at(t, q)
    own = [] if zdot is None else [zdot - integrated_rates(at, v)]
    rows, kept = at.velocity(v), equations.independent_rows
    if kept is not None:
        rows, lam = jnp.where(kept, rows, lam), jnp.where(kept, lam, 0.0)
    return jnp.concatenate([at.inertia.times(a) - at.force(v) + at.jacobian.T @ lam, rows, *own])


class Middle(NamedTuple):
    """The middle stage of a step: time, coordinates, speeds, accelerations, multipliers, states of parts and their
    rates."""

    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    a: Float[Array, " nv"]
    lam: Float[Array, " m"]
    z: Float[Array, " nz"] | None
    zdot: Float[Array, " nz"] | None

    @classmethod
    def of(cls, step: CollocationStep, stages: StageValues) -> "Middle":
        _, a, zdot = step.rates(stages)
        k = step.count // 2
        own = (None, None) if stages.z is None or zdot is None else (stages.z[k], zdot[k])
        return cls(step.times[k], stages.q[k], stages.v[k], a[k], stages.lam[k], *own)

    def along(self, equations: Equations, x: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """`N x`, the rates of the coordinates for the speeds `x`, without those of what moves by itself."""
        at = equations.at(self.t, self.q)
        return jax.jvp(at.rate, (self.v,), (x,))[1]

    def residual(self, equations: Equations, x: Array, v: Array, z: Array | None) -> Float[Array, " rows"]:
        """The residual at coordinates displaced along speeds by `x`, other speeds and other states of parts."""
        q = self.q + self.along(equations, x)
        return _residual(equations, self.t, q, v, self.a, self.lam, z, self.zdot)


class Linearized(NamedTuple):
    """The equations linearised at a middle stage, with unknowns in the order `(z, v, λ)` and rows likewise.

    `E`: the matrix of the highest derivatives, of `ż` and `a`; `by_speed`, `along`: the derivatives of the residual by
    `(z, v)`, and by the coordinates along speeds, zero for `z`; `omitted (m,)`: one for the rows in which `λ` stands,
    else zero; `shift (m,)` keeps the matrices regular if constraint rows are dependent and no independent set of them
    is known; the solution does not depend on it.
    """

    E: Float[Array, "d d"]
    by_speed: Float[Array, "rows d"]
    along: Float[Array, "rows d"]
    omitted: Float[Array, " m"]
    shift: Float[Array, " m"]

    def matrix(self, value: complex | float, h: Scalar) -> Complex:
        """The matrix for the eigenvalue `s = value / h`: rows of motion are divided by `s`, and multipliers are in
        terms of `λ / s`, so that it stays regular as the step tends to zero."""
        d, m, inverse = len(self.E), len(self.shift), 1 / value
        parts = []
        for of in (np.real, np.imag)[: 1 if np.isreal(value) else 2]:
            first, second = (float(of(x)) for x in (inverse, inverse**2))
            by_speed, along = self.by_speed * (first * h), self.along * (second * h * h)
            motion, rows = by_speed[:d] + along[:d], self.along[d:] * (first * h)
            corner = self.omitted * (float(of(value)) / h)
            if of is np.real:
                motion, rows, corner = self.E + motion, self.by_speed[d:] + rows, corner - self.shift
            forces = self.by_speed[d:].T if of is np.real else jnp.zeros((d, m), h.dtype)
            pairs = (motion, forces), (rows, jnp.diag(corner))
            parts.append(jnp.concatenate([jnp.concatenate(pair, axis=1) for pair in pairs]))
        return Complex(*parts)


def linearized(step: CollocationStep, stages: StageValues) -> Linearized:
    """The equations linearised at the middle stage."""
    middle, nv = Middle.of(step, stages), len(step.v)
    nz, m = 0 if step.z is None else len(step.z), stages.lam.shape[1]
    at = step.equations.at(middle.t, middle.q)
    residual = lambda x, v, z: _residual_in_order(middle.residual(step.equations, x, v, z), nv, m)  # noqa: E731
    along, by_speed, by_state = jax.jacfwd(residual, (0, 1, 2))(jnp.zeros_like(step.v), middle.v, middle.z)
    omitted = shift = jnp.zeros(m, along.dtype)
    if step.equations.independent_rows is not None:
        omitted = jnp.where(step.equations.independent_rows, omitted, 1.0)
    else:
        C, scales = by_speed[nz + nv :], step.equations.scales.rows
        largest = jnp.max(jnp.sum(at.inertia.solve_rows(C) * C, axis=1) / scales**2, initial=0.0)
        shift = jnp.where(step.equations.redundant, proximal_shift(largest) * scales**2, shift)
    own = jnp.zeros((len(along), 0), along.dtype) if by_state is None else by_state
    E = jnp.eye(nz + nv, dtype=along.dtype).at[nz:, nz:].set(at.inertia.matrix())
    by_motion = jnp.concatenate([own, by_speed], axis=1)
    return Linearized(E, by_motion, jnp.concatenate([jnp.zeros_like(own), along], axis=1), omitted, shift)


def _residual_in_order(residual: Num[Array, "*n rows"], nv: int, m: int) -> Num[Array, "*n rows"]:
    """A residual with its rows in the order `(z, v, λ)`."""
    of_v, of_lam, of_z = jnp.split(residual, [nv, nv + m], axis=-1)
    return jnp.concatenate([of_z, of_v, of_lam], axis=-1)


Factors: TypeAlias = list[Any]  # of the matrices of all eigenvalues


def factors(linear: Linearized, step: CollocationStep, structure: Structure | None) -> Factors:
    """The factored matrices of the iteration for each eigenvalue: with a known structure of the matrices by arithmetic
    alone, else by LAPACK."""
    matrices = [linear.matrix(value, step.h) for value in _values(step.tableau)]
    if structure is not None:
        return [factored(matrix, structure) for matrix in matrices]
    dense = [x.re if x.im is None else jax.lax.complex(x.re, x.im) for x in matrices]
    return [jax.scipy.linalg.lu_factor(x) for x in dense]


def _values(method: Tableau) -> list[complex | float]:
    """The eigenvalues, the real one as such."""
    return [float(np.real(method.values[0])), *map(complex, method.values[1:])]


def _solved(factor: Any, b: Complex, structure: Structure | None) -> Complex:
    if structure is not None:
        return substituted(factor, b, structure)
    x = jax.scipy.linalg.lu_solve(factor, b.re if b.im is None else jax.lax.complex(b.re, b.im))
    return Complex(x) if b.im is None else Complex(jnp.real(x), jnp.imag(x))


def filtered(step: CollocationStep, found: Factors, residual: Array, structure: Structure | None) -> Float[Array, " d"]:
    """The change of `(z, v)` that has a residual of `(z, v)`, by the matrix of the real eigenvalue."""
    b = jnp.pad(residual * (step.h / _values(step.tableau)[0]), (0, step.equations.m))
    return _solved(found[0], Complex(b), structure).re[: len(residual)]


def newton_change(
    step: CollocationStep, found: Factors, residual: Float[Array, "n rows"], structure: Structure | None
) -> StageValues:
    """The Newton change for a residual of all stages: one system per eigenvalue, in the eigenbasis of `A⁻¹`."""
    method, nv, m = step.tableau, len(step.v), step.equations.m
    residual = _residual_in_order(residual, nv, m)
    d, total = residual.shape[1] - m, jnp.zeros_like(residual)
    for k, value in enumerate(_values(method)):
        if not method.right[:, k].any():
            continue
        left, right = Complex.of(method.left[k], value, residual.dtype), method.right[:, k]
        b = Complex(left.re @ residual, None if left.im is None else left.im @ residual)
        of_motion, of_rows = b.split(d)
        of_motion, of_lam = _solved(found[k], of_motion.scaled(1 / value, step.h).joined(of_rows), structure).split(d)
        x = of_motion.joined(of_lam.scaled(value, 1 / step.h))
        # The conjugate eigenvalue gives the conjugate, so that one system serves each pair.
        total = total + step.as_array(np.real(right) * (1 if x.im is None else 2))[:, None] * x.re[None]
        if x.im is not None:
            total = total - step.as_array(2 * np.imag(right))[:, None] * x.im[None]
    of_z, of_v, of_lam = jnp.split(total, [d - nv, d], axis=1)
    return StageValues(jnp.zeros((len(total), len(step.q)), total.dtype), of_v, of_z, of_lam)


def improved(step: CollocationStep, old: StageValues, found: Factors, structure: Structure | None) -> StageValues:
    """The next iterate of simplified Newton, whose fixed point are the stages."""
    change = newton_change(step, found, step.residual(old), structure)
    z = None if old.z is None or change.z is None else old.z - change.z
    new = StageValues(old.q, old.v - change.v, z, old.lam - change.lam)
    return StageValues(step.reached(new), new.v, new.z, new.lam)


# Of Newton's method: the stages, the size of the last change, 1 for converged and -1 for failed, the iterations so far.
Iterate: TypeAlias = tuple[StageValues, Scalar, Array, Array]


@eqx.filter_custom_jvp
def solve_stages(
    step: CollocationStep, guess: StageValues, found: Factors, tolerance: Scalar, *, structure: Structure | None
) -> tuple[StageValues, Bool[Array, ""]]:
    """The stages, by Newton's method from a guess, and whether it converged within a relative `tolerance`."""
    converged, stalled = thresholds(tolerance, step.q.dtype.itemsize)

    def improve(carry: Iterate) -> Iterate:
        old, previous_size, _, count = carry
        new = improved(step, old, found, structure)
        size = relative_change(step, new, old)
        ratio = jnp.where(count > 0, size / previous_size, 0.5)
        # The rest of a geometric series with this ratio (Hairer, Wanner, §IV.8).
        error = size * ratio / jnp.maximum(1 - ratio, 1e-3)
        done = (error <= converged) | (ratio > 0.5) & (size <= stalled)
        failed = (ratio > _DIVERGED) | ~jnp.isfinite(size)
        return new, size, jnp.where(done, 1, jnp.where(failed, -1, 0)), count + 1

    def unfinished(carry: Iterate) -> Array:
        _, _, status, count = carry
        return (status == 0) & (count < MAX_ITERATIONS)

    start = guess, jnp.ones((), step.q.dtype), jnp.asarray(0), jnp.asarray(0)
    stages, _, status, _ = jax.lax.while_loop(unfinished, improve, start)
    return stages, status == 1


@solve_stages.def_jvp
def _solve_stages_jvp(
    primals: tuple[CollocationStep, StageValues, Factors, Scalar],
    tangents: tuple[CollocationStep, *tuple[object, ...]], *, structure: Structure | None,
) -> tuple[tuple[StageValues, Array], tuple[StageValues, None]]:  # fmt: skip
    """The derivative of the fixed point `x = Ψ(x, θ)` of the iteration, `(1 − Ψ_x) δx = Ψ_θ δθ`, by iteration."""
    (step, guess, found, tolerance), (step_tangent, *_) = primals, tangents
    stages, converged = solve_stages(step, guess, found, tolerance, structure=structure)
    flat, unravel = ravel_pytree(stages)

    def after(flat: Array, step: CollocationStep) -> Array:
        return ravel_pytree(improved(step, unravel(flat), frozen(found), structure))[0]

    _, b = eqx.filter_jvp(lambda s: after(flat, s), (step,), (step_tangent,))
    times = lambda x: x - jax.jvp(lambda y: after(y, step), (flat,), (x,))[1]  # noqa: E731
    h = frozen(jnp.where(step.h == 0, 1.0, jnp.abs(step.h)))
    by_iteration = lambda unit: partial(_by_iteration, lambda x: _sizes(unravel(x), unit))  # noqa: E731
    tangent = jax.lax.custom_linear_solve(times, b, by_iteration(h), by_iteration(1 / h))
    return (stages, converged), (unravel(tangent), None)


_MAX_CORRECTIONS = 60  # iterations of a derivative, which converge as those of the stages
_CHANCE = 1e-4  # a smaller ratio of two changes may be one


def _by_iteration(sizes: Callable[[Array], Array], times: Callable[[Array], Array], b: Array) -> Array:
    """The solution of `x − Ψ x = b` by `x ← x + (b − (x − Ψ x))`, until what is left of the changes, relative to the
    `sizes`, is rounding, or they do not decrease any more."""

    def correct(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        x, _, size, count = carry
        change = b - times(x)
        moved, whole = sizes(change), sizes(x + change)
        return x + change, size, jnp.max(jnp.where(moved > 0, moved / whole, 0.0)), count + 1

    def unfinished(carry: tuple[Array, Array, Array, Array]) -> Array:
        _, before, size, count = carry
        ratio = size / before
        rest = size * jnp.maximum(ratio, _CHANCE) / jnp.maximum(1 - ratio, 1e-3)
        stalls = (size >= before) & (size < small)
        return (count < _MAX_CORRECTIONS) & ((count < 1) | (size > 0) & (rest > rounding) & ~stalls)

    eps = float(jnp.finfo(b.dtype).eps)
    rounding, small = 4 * eps, eps**0.5
    start = b, jnp.asarray(jnp.inf, b.dtype), jnp.asarray(jnp.inf, b.dtype), jnp.asarray(0)
    return jax.lax.while_loop(unfinished, correct, start)[0]


def _sizes(x: StageValues, unit: Scalar) -> Float[Array, "2"]:
    """The sizes of tangents or cotangents of stages: of coordinates beside speeds times `unit`, the length of the step
    or for cotangents its inverse, and of states of parts. Multipliers do not count, as in `relative_change`: what is
    small beside the rest of the motion may be rounding, which never settles."""
    largest = lambda x: jnp.max(jnp.abs(x), initial=0.0)  # noqa: E731
    motion = largest(x.q) + unit * largest(x.v)
    return jnp.stack([motion, jnp.zeros_like(motion) if x.z is None else largest(x.z)])


def thresholds(tolerance: Scalar, size: int) -> tuple[Array, Array]:
    """The relative errors at which the iteration counts as converged and as stalled by rounding, for a tolerance and
    the bytes of a number: errors of the iteration stay below those that the step-size controller sees."""
    converged = jnp.clip(_CONVERGED_FRACTION * tolerance, _MIN_CONVERGED[size], _MAX_CONVERGED[size])
    return converged, jnp.clip(_STALLED_FRACTION * tolerance, _MIN_STALLED[size], _MAX_STALLED[size])


def relative_change(step: CollocationStep, new: StageValues, old: StageValues) -> Scalar:
    """The relative change of two iterates: of the coordinates, of the speeds, but for what rounding of the coordinates
    makes of them within the step, and of the states of parts, scaled by no less than their sizes."""
    # The start alone is no measure: all angles may be zero there, and all speeds, for as long as nothing moves.
    tiny = jnp.finfo(step.q.dtype).tiny
    extent = jnp.max(jnp.abs(jnp.append(step.q, new.q)), initial=tiny)
    units = _ROUNDING[step.q.dtype.itemsize] * jnp.finfo(step.q.dtype).eps
    rounding = units * extent / jnp.abs(step.h)
    of_speeds = jnp.maximum(jnp.max(jnp.abs(new.v - old.v)) - rounding, 0.0)
    speed = jnp.max(jnp.abs(new.v), initial=jnp.maximum(rounding, tiny))
    motion = jnp.maximum(jnp.max(jnp.abs(new.q - old.q)) / extent, of_speeds / speed)
    if new.z is None or old.z is None:
        return motion
    return jnp.maximum(motion, jnp.max(jnp.abs(new.z - old.z)) / jnp.max(jnp.abs(new.z), initial=1.0))
