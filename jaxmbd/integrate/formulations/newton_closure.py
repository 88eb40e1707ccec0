"""Loop closure: Newton's method on `Φ(q, t) = 0`, and the consistent speeds with `C v = −Φ_t`.

With fewer equations than unknowns the correction of a violation is not unique. It is the smallest one in the metric
of `M` (projection), or changes the dependent coordinates alone (coordinate partitioning); in kinematic analysis it is
unique. Each is a class derived from `AbstractCorrection`. By the implicit function theorem, the derivative of the
solution is that of one more Newton step from it.
"""

import abc
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar
from jaxmbd.engine import as_program
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.numerics.linear_solve import NormalEquations, Solve, gram
from jaxmbd.numerics.sparse_matrices import SparseMatrix, diagonal, full, vstack
from jaxmbd.upstream.equinox_internals import any_instance

_DAMPING = 1e-5  # μ, relative to the largest entry of C without units
_IN_WORLD = "omega_world."
MAX_CLOSINGS = 20  # Newton converges in 2 to 4 from the end of an integration step


class AbstractCorrection(eqx.Module):
    """The correction of constraint violations: one solution of an underdetermined linear system."""

    @abc.abstractmethod
    def system(self, at: Configuration) -> tuple[Solve, Solve]:
        """The product `K x` with a matrix whose first rows are `C`, and a damped solve of `K x = b`, whose solution is
        small along the singular vectors of `K` with small singular values."""

    @abc.abstractmethod
    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        """The residual of Newton's method: `Φ`, and below it the change of the coordinates that are held fixed."""


class MassWeightedCorrection(AbstractCorrection):
    """The correction that is smallest in the metric of `M`: `M⁻¹ Cᵀ (C M⁻¹ Cᵀ)⁻¹ r` for a violation `r`."""

    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        return at.position()

    def system(self, at: Configuration) -> tuple[Solve, Solve]:
        S, scales = at.schur(), at.equations.scales.rows
        shift = _DAMPING**2 * S.scaled_by(1 / scales).largest() * scales**2
        solve = S.shifted(jax.lax.stop_gradient(shift)).solver()
        return at.times, lambda miss: at.inertia.solve(at.constraint_force(solve(miss)))


class AbstractStackedCorrection(AbstractCorrection):
    """A least-squares correction that leaves some speeds or coordinates unchanged."""

    @abc.abstractmethod
    def stacked(self, at: Configuration) -> SparseMatrix:
        """`[C; D] (rows, nv)`, where `D v` are the independent speeds; its column rank is full even if rows of `C` are
        dependent."""

    def system(self, at: Configuration) -> tuple[Solve, Solve]:
        K = self.stacked(at)
        solve = _damped_least_squares(K, at)
        return K.times, lambda b: solve(jnp.pad(b, (0, K.shape[0] - len(b))))


class DependentCoordinateCorrection(AbstractStackedCorrection):
    """The correction of the dependent speeds, with the independent ones unchanged.

    `independent (nv,)` is a mask of the latter, as many as the degrees of freedom.
    """

    independent: Bool[Array, " nv"]

    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        return at.position()

    def stacked(self, at: Configuration) -> SparseMatrix:
        return vstack([at.entries, diagonal(self.independent.astype(at.q.dtype))])


class NamedCoordinateCorrection(AbstractStackedCorrection):
    """The correction that leaves named speeds or coordinates unchanged, as many as the degrees of freedom.

    A name may also be that of a joint coordinate that is not a variable of the system, or of an angular velocity about
    a world axis, `"disc.omega_world.x"`. `values`: the coordinates' values to hold, set by `holding`.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[Array, " k"] | None = None

    def holding(self, at: Configuration) -> "NamedCoordinateCorrection":
        """The correction that holds the coordinates' values at a configuration, also over a finite change of `q`."""
        return NamedCoordinateCorrection(self.names, self._values(at, None))

    def _values(self, at: Configuration, near: Float[Array, " k"] | None) -> Float[Array, " k"]:
        """The coordinates' values, on the branch nearest to `near`; zero for speeds, which have no value to hold."""

        def one(k: int, name: str) -> Scalar:
            if index_of(at.mechanism, name) is not None or is_about_world(name):
                return jnp.zeros((), at.q.dtype)
            coordinate = at.mechanism.coordinate(name)
            coordinate = coordinate if near is None else coordinate.by(near[k])
            return coordinate.value(at.near(coordinate.markers).frames)

        values = [one(k, name) for k, name in enumerate(self.names)]
        return jnp.stack(values) if values else jnp.zeros(0, at.q.dtype)

    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        change = jnp.zeros(len(self.names), at.q.dtype)
        if self.values is not None:
            change = self._values(at, self.values) - self.values
        return jnp.concatenate([at.position(), change])

    def stacked(self, at: Configuration) -> SparseMatrix:
        return vstack([at.entries, self.rows(at)])

    def rows(self, at: Configuration) -> SparseMatrix:
        """`D (k, nv)`, where `D v` are the rates of the coordinates without their explicit time derivatives."""
        rest = jnp.zeros(at.mechanism.nv, at.q.dtype)

        def one(name: str) -> SparseMatrix:
            k = index_of(at.mechanism, name)
            if k is None:
                return full(jax.grad(lambda v: _rate(at, name, v))(rest)[None])
            return SparseMatrix(jnp.ones(1, at.q.dtype), np.zeros(1, int), np.array([k]), (1, len(rest)))

        return vstack([full(rest[None][:0]), *map(one, self.names)])

    def rates(self, at: Configuration, v: Float[Array, " nv"]) -> Float[Array, " k"]:
        """The rates of the coordinates, `D v` and their explicit time derivatives."""
        return jnp.stack([_rate(at, name, v) for name in self.names]) if self.names else v[:0]

    def bias(self, at: Configuration, v: Float[Array, " nv"]) -> Float[Array, " k"]:
        """Minus the second time derivative `c̈` of the coordinates at constant `v`, so that `D v̇ = bias` is `c̈ = 0`."""
        motion = (at.t, at.q), (jnp.ones_like(at.t), at.rate(v))

        def one(name: str) -> Scalar:
            if index_of(at.mechanism, name) is not None:
                return jnp.zeros((), at.q.dtype)
            return -jax.jvp(lambda t, q: _rate(at.equations.at(t, q), name, v), *motion)[1]

        return jnp.stack([one(name) for name in self.names]) if self.names else jnp.zeros(0, at.q.dtype)


def _rate(at: Configuration, name: str, v: Float[Array, " nv"]) -> Scalar:
    """The value of a speed, the rate of a coordinate, or an angular velocity in world axes."""
    k = index_of(at.mechanism, name)
    if k is not None:
        return v[k]
    if not is_about_world(name):
        return at.coordinate(name, v)[1]
    owner, axis = name.partition(".")[0], "xyz".index(name[-1])
    part: Any = at.mechanism[owner]
    bodies = any(body.name == owner for body in at.mechanism.bodies)
    markers = (part.at(),) if bodies else part.markers
    angular = at.near(markers).rates(at.on_markers(markers, at.twists(v)))[:, at.space.dim :]
    return angular[0, axis] if bodies else angular[1, axis] - angular[0, axis]


def in_world_axes(name: str) -> str:
    """The name of the angular velocity in world axes for that in body axes: `"disc.omega_world.x"` for
    `"disc.omega_x"`. For a joint it is the relative angular velocity."""
    owner, _, component = name.rpartition(".")
    return f"{owner}.{_IN_WORLD}{component[-1]}"


def is_about_world(name: str) -> bool:
    """True if a name is that of an angular velocity about a world axis."""
    component = name.partition(".")[2]
    return component[:-1] == _IN_WORLD and component[-1] in "xyz"


def index_of(mechanism: Mechanism, name: str) -> int | None:
    """The index of a generalized speed by its name or that of its coordinate; `None` if the name is neither."""
    for names in (mechanism.speed_names, mechanism.variables):
        if name in names:
            return names.index(name)
    return None


class DeterminedCorrection(AbstractCorrection):
    """The unique correction of a mechanism whose constraints leave no degree of freedom."""

    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        return at.position()

    def system(self, at: Configuration) -> tuple[Solve, Solve]:
        return at.times, _damped_least_squares(at.entries, at)


class RowsAndSpeeds:
    """Solves with a matrix `K (rows, nv)` of full column rank, in which rows and unknowns have no units.

    So neither their errors nor what is least among several solutions depends on the mechanism's size. `of_constraints`:
    the scales of its first rows, those of constraints. The rows below them are of single speeds, or of rates of
    coordinates.
    """

    def __init__(self, K: SparseMatrix, scales: Scales, of_constraints: Any) -> None:
        self.speeds, self.rows = jnp.asarray(scales.speeds), jnp.asarray(of_constraints)
        if K.shape[0] > len(of_constraints):
            sizes = jnp.abs(K.scaled_by(jnp.ones(K.shape[0]), self.speeds).dense()[len(of_constraints) :])
            of_speeds = jax.lax.stop_gradient(jnp.max(sizes, axis=1, initial=0.0))
            self.rows = jnp.concatenate([self.rows, jnp.where(of_speeds > 0, of_speeds, 1.0)])
        self.scaled = K.scaled_by(1 / self.rows, self.speeds)

    def least_squares(self, b: Float[Array, "rows *more"]) -> Float[Array, "nv *more"]:
        """The least-squares solution `x` of `K x ≈ b`."""
        each = (-1, *(1,) * (b.ndim - 1))
        return self.speeds.reshape(each) * self._factored.least_squares(b / self.rows.reshape(each))

    def least_norm(self, f: Float[Array, " nv"]) -> Float[Array, " rows"]:
        """The solution `y` of `Kᵀ y = f` with least norm."""
        return self._factored.least_norm(self.speeds * f) / self.rows

    @cached_property
    def _factored(self) -> NormalEquations:
        return NormalEquations(self.scaled)


def _damped_least_squares(K: SparseMatrix, at: Configuration) -> Solve:
    """The solve of `K x = b` with Levenberg's damping, `(Kᵀ K + μ²) x = Kᵀ b`.

    Rows and unknowns have no units in the solve, so that the damping does not depend on the mechanism's size.
    """
    units = RowsAndSpeeds(K, at.equations.scales, at.equations.scales.rows)
    shift = _DAMPING * jax.lax.stop_gradient(jnp.max(jnp.abs(units.scaled.values), initial=0.0))
    solve, rows = gram(units.scaled).shifted(shift**2).solver(), units.scaled.T
    return lambda b: units.speeds * solve(rows.times(b / units.rows))


def _changes(correction: AbstractCorrection, at: Configuration) -> Solve:
    """What changes speeds, or coordinates along speeds, by `x` with `C x = miss`: linear in `miss`, and with one
    factorisation for all.

    The damped solve is repeated three times (a proximal iteration, whose fixed point is the undamped solution): the
    relative error along a direction with the singular value σ of `K` is `(μ² / (σ² + μ²))³`. The damping is needed at
    singular positions, where the violation divided by σ would be a larger error than the violation.
    """
    times, solve = correction.system(at)

    def change(miss: Array) -> Array:
        x = solve(miss)
        for _ in range(2):
            corrected = times(x)
            x = x + solve(jnp.pad(miss, (0, len(corrected) - len(miss))) - corrected)
        return x

    return change


def close_loops(
    equations: Equations, t: Scalar, q: Float[Array, " nq"], correction: AbstractCorrection, laps: int | None = None,
    tolerance: Scalar | float = 0.0,
) -> Float[Array, " nq"]:  # fmt: skip
    """The coordinates near `q` with `Φ(q, t) = 0`; NaN if Newton's method does not converge, in `laps` steps if that
    is given: so many are always taken, which a program can express. With `laps=0` the coordinates are closed already,
    and get the derivative. `tolerance`: the size of the last step, relative to the unit that suits each coordinate, of
    which the square is about what is left; at least the root of rounding.

    The derivative with respect to `q` is the projection along the correction onto the constraints.

        >>> example = mbd.examples.get("planar-four-bar")
        >>> equations, state = mbd.Equations(example.mechanism), example.state()
        >>> q = mbd.extend.close_loops(equations, state.t, state.q + 1e-3, mbd.extend.MassWeightedCorrection())
        >>> bool(jnp.abs(equations.at(state.t, q).position()).max() < 1e-9)
        True
    """
    if isinstance(correction, NamedCoordinateCorrection):
        correction = correction.holding(equations.at(t, q))
    return _newton_closure((equations, t, correction), q, laps, tolerance)


def closed_where_redundant(equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """`q` projected onto `Φ = 0` if rows of `C` are dependent; `q` itself if not, or if Newton's method does not
    converge.

    Off the constraints, rows that are dependent at a closed configuration become inconsistent: `C` then has full rank,
    with a singular value as small as the violation, and speeds that satisfy all of its rows are wrong. With a violation
    of 1e-8 the speeds of Bricard's ring have a relative error of 1e-5.
    """
    if equations.redundant is False:
        return q

    def project() -> Array:
        projected = close_loops(equations, t, q, MassWeightedCorrection())
        return jnp.where(equations.redundant & jnp.isfinite(projected), projected, q)

    return jax.lax.cond(any_instance(equations.redundant), project, lambda: q)


def consistent_speeds(at: Configuration, v: Float[Array, " nv"], correction: AbstractCorrection) -> Float[Array, " nv"]:
    """The consistent speeds near `v`, with `C v = −Φ_t`.

    >>> example = mbd.examples.get("planar-four-bar")
    >>> state = example.state()
    >>> at = mbd.Equations(example.mechanism).at(state.t, state.q)
    >>> v = mbd.extend.consistent_speeds(at, state.v + 1e-3, mbd.extend.MassWeightedCorrection())
    >>> bool(jnp.abs(at.velocity(v)).max() < 1e-9)
    True
    """
    return v - _changes(correction, at)(at.velocity(v))


def consistent_motion(
    at: Configuration, v: Float[Array, " nv"], correction: AbstractCorrection
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """The consistent speeds near `v`, and the smallest accelerations with `C v̇ = γ` for them."""
    change = _changes(correction, at)
    v = v - change(at.velocity(v))
    return v, change(at.gamma(v))


@eqx.filter_custom_jvp
def _newton_closure(args: Any, q: Array, laps: int | None, tolerance: Scalar | float) -> Array:
    # By quadratic convergence the step after one of the root of rounding is below rounding.
    tolerance = jnp.maximum(jnp.sqrt(jnp.finfo(q.dtype).eps), tolerance)

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        _, size, count = carry
        return (size > tolerance) & (count < MAX_CLOSINGS)

    def improve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        q, _, count = carry
        return *as_program(_closing_step)(args, q), count + 1

    equations, _, _ = args
    if not equations.m or laps == 0:
        return q
    start = q, jnp.asarray(jnp.inf, q.dtype), jnp.asarray(0)
    if laps is None:
        q, size, _ = jax.lax.while_loop(unfinished, improve, start)
    else:
        q, size, _ = jax.lax.fori_loop(0, laps, lambda _, carry: improve(carry), start)
    return jnp.where(size <= tolerance, q, jnp.nan)


@_newton_closure.def_jvp
def _newton_closure_jvp(
    primals: tuple[Any, Array, Any, Any], tangents: tuple[Any, Any, Any, Any]
) -> tuple[Array, Array]:
    (args, q, laps, tolerance), (args_tangent, q_tangent, _, _) = primals, tangents
    closed = _newton_closure(args, q, laps, tolerance)
    # The derivative of one Newton iterate at the solution: by the parameters it is that of the solution, by `q` the
    # projection along the correction. None goes through the loop.
    _, tangent = eqx.filter_jvp(as_program(_newton_iterate), (args, closed), (args_tangent, q_tangent))
    return closed, jnp.zeros_like(closed) if tangent is None else tangent


def closing_step(
    equations: Equations, t: Scalar, q: Float[Array, " nq"], correction: AbstractCorrection
) -> tuple[Float[Array, " nq"], Scalar]:
    """The coordinates after one step of Newton's method, and the size of their change relative to the unit that suits
    each."""
    return _closing_step((equations, t, correction), q)


def _closing_step(args: Any, q: Array) -> tuple[Array, Array]:
    equations, t, _ = args
    step = _newton_step(args, q)
    return equations.retract(t, q, step), jnp.max(jnp.abs(step / equations.scales.speeds), initial=0.0)


def _newton_step(args: Any, q: Array) -> Array:
    equations, t, correction = args
    at = equations.at(t, q)
    return -_changes(correction, at)(correction.residual(at))


def _newton_iterate(args: Any, q: Array) -> Array:
    return _closing_step(args, q)[0]
