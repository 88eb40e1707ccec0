"""Closing the loops: Newton's method on `Φ(q, t) = 0`, and the speeds with `C v = −Φ_t`.

How a violation is taken back is a matter of choice: by the smallest change in the metric of `M` (projection), by the
dependent coordinates alone (partitioning), by the only change there is (kinematics). A `Correction` is that choice. The
derivative of what Newton's method finds is that of one more step from there, by the implicit function theorem.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar
from jaxmbd.compile.jax_binding import as_program
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.rank import LeastSquaresQR
from jaxmbd.equations.spd_solve import Solve
from jaxmbd.integrate.diffrax_binding import any_instance
from jaxmbd.model.mechanism.mechanism import Mechanism

_DAMPING = 1e-5  # μ, as a share of the largest number in C
_IN_WORLD = "omega_world."
_STEPS = 20  # Newton converges in 2 to 4 from the end of an integration step


class AbstractCorrection(eqx.Module):
    """How violations are taken back."""

    @abc.abstractmethod
    def system(self, at: Configuration) -> tuple[Solve, Solve]:
        """The product `K x` with a matrix whose first rows are those of `C`, and a damped solve of `K x = b`: a change
        with `K x` near `b` that is small in directions that hardly count in `K`."""

    @abc.abstractmethod
    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        """What Newton's method takes back: `Φ`, and below it by how much coordinates moved that are to stay."""


class MassWeightedCorrection(AbstractCorrection):
    """The change that is smallest in the metric of `M`: `M⁻¹ Cᵀ (C M⁻¹ Cᵀ)⁻¹ miss`."""

    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        return at.position()

    def system(self, at: Configuration) -> tuple[Solve, Solve]:
        S = at.schur()
        solve = S.shifted(jax.lax.stop_gradient(_DAMPING**2 * S.largest())).solver()
        return at.times, lambda miss: at.inertia.solve(at.constraint_force(solve(miss)))


class DependentCoordinateCorrection(AbstractCorrection):
    """The change of the dependent speeds that leaves the independent ones alone.

    `independent (nv,)` marks these; as many as there are degrees of freedom.
    """

    independent: Bool[Array, " nv"]

    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        return at.position()

    def system(self, at: Configuration) -> tuple[Solve, Solve]:
        return _least_squares(self.stacked(at))

    def stacked(self, at: Configuration) -> Float[Array, "rows nv"]:
        """`[C; D]`, where `D v` are the independent speeds: of full column rank, also where rows of `C` repeat."""
        return jnp.concatenate([at.jacobian, jnp.diag(self.independent.astype(at.q.dtype))])


class NamedCoordinateCorrection(AbstractCorrection):
    """The change that leaves named speeds, or the rates of named coordinates, alone: also those of joints that are no
    variables of the system, and angular velocities about world axes, `"disc.omega_world.x"`. As many as there are
    degrees of freedom.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    values: Float[Array, " k"] | None = None

    def holding(self, at: Configuration) -> "NamedCoordinateCorrection":
        """The change that leaves the coordinates' values at a position alone, whatever the size of what is closed."""
        return NamedCoordinateCorrection(self.names, self._values(at, None))

    def _values(self, at: Configuration, near: Float[Array, " k"] | None) -> Float[Array, " k"]:
        """The coordinates' values; zero for speeds, of which a change of others leaves the integrals alone."""

        def one(k: int, name: str) -> Scalar:
            if index_of(at.mechanism, name) is not None or is_about_world(name):
                return jnp.zeros((), at.q.dtype)
            coordinate = at.mechanism.coordinate(name)
            coordinate = coordinate if near is None else coordinate.by(near[k])
            return coordinate.value(at.near(coordinate.markers).frames)

        found = [one(k, name) for k, name in enumerate(self.names)]
        return jnp.stack(found) if found else jnp.zeros(0, at.q.dtype)

    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        moved = jnp.zeros(len(self.names), at.q.dtype)
        if self.values is not None:
            moved = self._values(at, self.values) - self.values
        return jnp.concatenate([at.position(), moved])

    def system(self, at: Configuration) -> tuple[Solve, Solve]:
        return _least_squares(self.stacked(at))

    def stacked(self, at: Configuration) -> Float[Array, "rows nv"]:
        """`[C; D]`."""
        return jnp.concatenate([at.jacobian, self.rows(at)])

    def rows(self, at: Configuration) -> Float[Array, "k nv"]:
        """`D`, where `D v` are the rates of the coordinates, but for what time adds to them."""
        still = jnp.zeros(at.mechanism.nv, at.q.dtype)

        def one(name: str) -> Array:
            k = index_of(at.mechanism, name)
            return jax.grad(lambda v: _rate(at, name, v))(still) if k is None else still.at[k].set(1.0)

        return jnp.stack([one(name) for name in self.names]) if self.names else still[None][:0]

    def rates(self, at: Configuration, v: Float[Array, " nv"]) -> Float[Array, " k"]:
        """`D v`, with what time adds."""
        return jnp.stack([_rate(at, name, v) for name in self.names]) if self.names else v[:0]

    def bias(self, at: Configuration, v: Float[Array, " nv"]) -> Float[Array, " k"]:
        """`−c̈` of the coordinates at constant `v`: the accelerations `a` with `D a` equal to it have `c̈ = 0`."""
        motion = (at.t, at.q), (jnp.ones_like(at.t), at.rate(v))

        def one(name: str) -> Scalar:
            if index_of(at.mechanism, name) is not None:
                return jnp.zeros((), at.q.dtype)
            return -jax.jvp(lambda t, q: _rate(at.equations.at(t, q), name, v), *motion)[1]

        return jnp.stack([one(name) for name in self.names]) if self.names else jnp.zeros(0, at.q.dtype)


def _rate(at: Configuration, name: str, v: Float[Array, " nv"]) -> Scalar:
    """A speed, the rate of a coordinate, or an angular velocity in world axes."""
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
    """The name of the angular velocity about a world axis beside that about an axis that turns: `"disc.omega_x"` is
    `"disc.omega_world.x"`. Of a joint it is the relative one."""
    owner, _, component = name.rpartition(".")
    return f"{owner}.{_IN_WORLD}{component[-1]}"


def is_about_world(name: str) -> bool:
    """Whether a name is that of an angular velocity about a world axis."""
    component = name.partition(".")[2]
    return component[:-1] == _IN_WORLD and component[-1] in "xyz"


def index_of(mechanism: Mechanism, name: str) -> int | None:
    """Which speed a name is, or the coordinate of which it is the rate; None where it is neither."""
    for names in (mechanism.speed_names, mechanism.variables):
        if name in names:
            return names.index(name)
    return None


class DeterminedCorrection(AbstractCorrection):
    """The change that the constraints alone determine, where they leave no freedom."""

    def residual(self, at: Configuration) -> Float[Array, " rows"]:
        return at.position()

    def system(self, at: Configuration) -> tuple[Solve, Solve]:
        return _least_squares(at.jacobian)


def _least_squares(K: Float[Array, "rows nv"]) -> tuple[Solve, Solve]:
    """Levenberg's: `K x = b` with rows `μ x = 0` added."""
    shift = _DAMPING * jax.lax.stop_gradient(jnp.max(jnp.abs(K), initial=0.0))
    solve = LeastSquaresQR(jnp.concatenate([K, shift * jnp.eye(K.shape[1], dtype=K.dtype)])).least_squares
    rows = sum(K.shape)
    return lambda x: K @ x, lambda b: solve(jnp.pad(b, (0, rows - len(b))))


def apply_correction(
    correction: AbstractCorrection, at: Configuration, miss: Float[Array, " m"]
) -> Float[Array, " nv"]:
    """A change `x` of speeds, or of coordinates along speeds, with `C x = miss`; linear in `miss`.

    Damped, and done three times over (a proximal iteration, whose fixed point is the undamped solution): a direction
    with a singular value σ of `K` is corrected up to `(μ² / (σ² + μ²))³`. It is what carries a motion through a
    singular position, where a violation divided by σ would be worse than the violation.
    """
    times, solve = correction.system(at)
    x = solve(miss)
    for _ in range(2):
        done = times(x)
        x = x + solve(jnp.pad(miss, (0, len(done) - len(miss))) - done)
    return x


def close_loops(
    equations: Equations, t: Scalar, q: Float[Array, " nq"], correction: AbstractCorrection
) -> Float[Array, " nq"]:
    """Coordinates near `q` with `Φ(q, t) = 0`; not a number where Newton's method does not converge.

    The derivative with respect to `q` leaves out what the correction takes back.
    """
    if isinstance(correction, NamedCoordinateCorrection):
        correction = correction.holding(equations.at(t, q))
    return _closed((equations, t, correction), q)


def closed_where_redundant(equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """`q` moved onto `Φ = 0` by the least change where rows of `C` repeat one another; `q` itself elsewhere, and where
    Newton's method does not converge.

    Off the constraints, rows that repeat at a closed position contradict one another: `C` then has a full rank, with a
    singular value as small as the violation, and speeds that satisfy all of its rows are other speeds. With a violation
    of 1e-8 that changes those of Bricard's ring by 1e-5 of their size.
    """
    if equations.redundant is False:
        return q

    def closed() -> Array:
        found = close_loops(equations, t, q, MassWeightedCorrection())
        return jnp.where(equations.redundant & jnp.isfinite(found), found, q)

    return jax.lax.cond(any_instance(equations.redundant), closed, lambda: q)


def consistent_speeds(at: Configuration, v: Float[Array, " nv"], correction: AbstractCorrection) -> Float[Array, " nv"]:
    """Speeds near `v` with `C v = −Φ_t`."""
    return v - apply_correction(correction, at, at.velocity(v))


@eqx.filter_custom_jvp
def _closed(args: Any, q: Array) -> Array:
    done = jnp.sqrt(jnp.finfo(q.dtype).eps)  # after a step of that size the next one is lost in rounding

    def wanted(carry: tuple[Array, Array, Array]) -> Array:
        _, size, count = carry
        return (size > done) & (count < _STEPS)

    def improve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        q, _, count = carry
        step = as_program(_step)(args, q)
        return equations.retract(t, q, step), jnp.max(jnp.abs(step), initial=0.0), count + 1

    equations, t, _ = args
    if not equations.m:
        return q
    q, size, _ = jax.lax.while_loop(wanted, improve, (q, jnp.asarray(jnp.inf, q.dtype), jnp.asarray(0)))
    return jnp.where(size <= done, q, jnp.nan)


@_closed.def_jvp
def _closed_jvp(primals: tuple[Any, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    (args, q), (changes, change) = primals, tangents
    closed = _closed(args, q)
    _, moved = eqx.filter_jvp(lambda a, q: a[0].retract(a[1], q, _step(a, q)), (args, closed), (changes, change))
    return closed, jnp.zeros_like(closed) if moved is None else moved


def _step(args: Any, q: Array) -> Array:
    equations, t, correction = args
    at = equations.at(t, q)
    return -apply_correction(correction, at, correction.residual(at))
