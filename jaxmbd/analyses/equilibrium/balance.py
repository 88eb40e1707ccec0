"""The balance of forces in a steady state: at rest, or in rotation of the whole mechanism about a fixed axis.

All bodies have the twists `V` of one rigid rotation, and `V̇ = (ω × u, 0)`, where `u` are the velocities of their
centres: in body axes the angular velocity is constant. So `v` and `v̇` follow from the position, and

    f(q, λ) = M v̇ + Cᵀ λ − F(q, v, t) = 0,    Φ(q, t) = 0

is a system of equations for `q` and `λ` alone. At rest the rotation is zero. The states of parts are those at which
their rates are zero, `g(t, q, v, z) = 0`, and so follow from the position, too.

The small motions about a steady state satisfy, in the rotating frame and with speeds `w` relative to it,
`ÿ + D̂ ẏ + K̂ y = 0` with `D̂ = Rᵀ (∂f/∂w) R`, `K̂ = Rᵀ (∂f/∂q) R` and `Rᵀ M R = 1`. `D̂` contains dampers, gyroscopic and
Coriolis forces. States of parts add `Rᵀ (∂f/∂z) δz`, and `δż = ∂g/∂q R y + ∂g/∂w R ẏ + ∂g/∂z δz`.

Source: Müller, Schiehlen, *Linear Vibrations* (1985); Schiehlen, Eberhard, *Applied Dynamics* (2014), §5.
"""

from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from jaxmbd.arrays import Number, Scalar, as_float, frozen, is_concrete
from jaxmbd.checks import check_finite
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.force.force import AbstractForce
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.linear_solve import nonzero_singular_values
from jaxmbd.space.rotation import axis_numbers
from jaxmbd.space.space import AbstractSpace
from jaxmbd.space.vectors import direction, motion_cross, shift_velocity, swept

_FLAT = 1e4  # units of rounding: stiffnesses below this share of the largest one, or of `scale`, count as zero


class Rotation(eqx.Module):
    """A steady rotation of the whole mechanism.

    **Arguments:** `speed` `[rad/s]`; `axis`: the direction of the axis, as three numbers or a letter, `"x"`, `"-x"` (z
    by default, and always in the plane); `point`: a point on the axis `[m]` (by default the world's origin).
    """

    speed: Scalar
    axis: Float[Array, "3"] | None
    point: Float[Array, " dim"] | None

    def __init__(self, speed: Number, axis: object = None, point: object = None) -> None:
        self.speed = as_float(speed)
        self.axis = None if axis is None else as_float(axis_numbers("Rotation: axis", axis))
        self.point = None if point is None else as_float(point)
        check_finite("Rotation", "speed", self.speed)
        if self.axis is not None:
            check_finite("Rotation", "axis", self.axis, (3,))
            if is_concrete(self.axis) and not float(jnp.max(jnp.abs(self.axis))) > 0:
                raise MechanismError("Rotation: axis must have a direction, got zeros.")

    def rate(self, space: AbstractSpace) -> Float[Array, " twist"]:
        """Return the rotation as a twist: the velocity at the world's origin and the angular velocity."""
        if space.dim == 2 and self.axis is not None:
            raise MechanismError("Rotation: in the plane everything turns about z; leave axis out.")
        axis = jnp.asarray((0.0, 0.0, 1.0)) if self.axis is None else direction(self.axis)
        point = jnp.zeros(space.dim) if self.point is None else self.point
        check_finite("Rotation", "point", point, (space.dim,))
        omega = self.speed * (axis if space.dim == 3 else axis[2:])
        return shift_velocity(jnp.concatenate([jnp.zeros(space.dim), omega]), -point)


class Balance(eqx.Module):
    """The balance of forces of a mechanism that rotates with the twist `rate`, at a time `t` [s]."""

    equations: Equations
    rate: Float[Array, " twist"]
    t: Scalar

    def at(self, q: Float[Array, " nq"]) -> "SteadyState":
        """Return the steady state at coordinates `q`."""
        return SteadyState(self, q)

    def unbalance(self, q: Float[Array, " nq"], lam: Float[Array, " m"]) -> tuple[Array, Array]:
        """Return `f` and `Φ`."""
        at = self.at(q)
        return at.unbalance(lam), at.position.position()


class SteadyState:
    """The mechanism at coordinates `q` in steady rotation."""

    def __init__(self, balance: Balance, q: Float[Array, " nq"]) -> None:
        self.balance, self.q = balance, q
        self.position: Configuration = balance.equations.at(balance.t, q)
        self.still = jnp.zeros(balance.equations.mechanism.nv, q.dtype)

    @cached_property
    def twists(self) -> Float[Array, "bodies twist"]:
        """The bodies' twists `V`."""
        place = self.position.placement
        frames = jax.tree.map(lambda x: x[:-1], place.frames)
        space, rate = self.position.space, self.balance.rate
        return jax.vmap(lambda body: space.to_twist(body, shift_velocity(rate, body.position)))(frames)

    @cached_property
    def v(self) -> Float[Array, " nv"]:
        """The speeds nearest to the rotation in the metric of `M`: `M⁻¹ Jᵀ M_b V`.

        They are exactly those of the rotation if the joints of the spanning tree allow it.
        """
        return self._nearest(self.twists - self.position.twists(self.still))

    @cached_property
    def z(self) -> Float[Array, " nz"]:
        """The states of parts at which their rates are zero."""
        return self.position.steady_states(self.v)

    def with_own_states(self, z: Float[Array, " nz"]) -> Configuration:
        """The mechanism here with other states of parts."""
        return self.balance.equations.with_own_states(z).at(self.balance.t, self.q) if len(z) else self.position

    @cached_property
    def vdot(self) -> Float[Array, " nv"]:
        """The accelerations nearest to those of the rotation, likewise."""
        return self._nearest(self._rotation_rates(self.still) - self._bias_rates(self.v))

    def unbalance(
        self, lam: Float[Array, " m"], w: Float[Array, " nv"] | None = None, z: Float[Array, " nz"] | None = None
    ) -> Float[Array, " nv"]:
        """Return `f = M v̇ + Cᵀ λ − F`, the unbalanced generalized force, with speeds `w` relative to the rotation.

        `z`: the states of parts, by default those at which their rates are zero without `w`.
        """
        w, loaded = self.still if w is None else w, self.with_own_states(self.z if z is None else z)
        v = self.v + w
        inertial = self._loads(self._rotation_rates(w) - self._bias_rates(v))
        return inertial + self.position.jacobian.T @ lam - loaded.force(v)

    def own_rates(self, w: Float[Array, " nv"], z: Float[Array, " nz"]) -> Float[Array, " nz"]:
        """Return the rates of the states of parts."""
        return self.with_own_states(z).own_rates(self.v + w)

    def _rotation_rates(self, w: Float[Array, " nv"]) -> Float[Array, "bodies twist"]:
        """Return `V̇` of the rotation and its Coriolis terms, to first order in the relative speeds `w`."""
        at, dim = self.position, self.position.space.dim
        omega = self.balance.rate[dim:]
        relative = at.twists(w) - at.twists(self.still)

        def one(own: Array, relative: Array) -> Array:
            linear = swept(omega, own[:dim] + 2 * relative[:dim])
            spin, turning = own.at[:dim].set(0.0), relative.at[:dim].set(0.0)
            return jnp.concatenate([linear, motion_cross(spin, turning)[dim:]])

        return jax.vmap(one)(self.twists, relative)

    def _bias_rates(self, v: Float[Array, " nv"]) -> Float[Array, "bodies twist"]:
        return self.position.accelerations(v, self.still)

    def _loads(self, changes: Float[Array, "bodies twist"]) -> Float[Array, " nv"]:
        return self.position.placement.loads(self.position.momenta(changes))

    def _nearest(self, twists: Float[Array, "bodies twist"]) -> Float[Array, " nv"]:
        return self.position.inertia.solve(self._loads(twists))

    # --- scales -----------------------------------------------------------------------------------------

    def size(self, step: Float[Array, " nv"], length: Scalar) -> Scalar:
        """Return the size of a step: the largest angle [rad], or displacement as a share of `length`."""
        at = self.position
        twists = at.twists(step) - at.twists(self.still)
        linear, angular = twists[:, : at.space.dim], twists[:, at.space.dim :]
        return jnp.maximum(jnp.max(jnp.abs(linear)) / length, jnp.max(jnp.abs(angular)))

    def extent(self) -> Scalar:
        """Return the size [m] of the mechanism: the diagonal of the box around its markers and centres of mass."""
        at, mechanism = self.position, self.position.mechanism
        parts = [
            part for part in (*mechanism.joints, *mechanism.forces) if isinstance(part, AbstractJoint | AbstractForce)
        ]
        points = [at.near(part.markers).stack.position for part in parts]
        centres = at.placement.frames.position[:-1]
        every = jnp.concatenate([centres, *points])
        length = jnp.linalg.norm(jnp.max(every, axis=0) - jnp.min(every, axis=0))
        return jnp.where(length > 0, length, 1.0)

    def span(self) -> Scalar:
        """Return the mass-weighted length scale: the norm of a step as large as the mechanism in the metric of `M`."""
        return self.extent() * jnp.sqrt(jnp.sum(self.balance.equations.parts.masses))

    def strength(self) -> Scalar:
        """Return the norm of the forces on the bodies in the metric of `M⁻¹`."""
        at, space = self.with_own_states(self.z), self.position.space
        efforts = at.driven(self.v).parts.efforts(at.t, at.bodies, self.twists)
        if len(at.parts.masses) < len(efforts):  # sites of flexible bodies have no mass of their own
            loads = at.placement.loads(efforts)
            return jnp.sqrt(jnp.sum(loads * at.inertia.solve(loads)))
        accelerations = jax.vmap(space.acceleration)(at.parts.inertia, efforts)
        no_inertia = jnp.isfinite(efforts) & ~jnp.isfinite(accelerations)  # moments about an axis without inertia
        return jnp.sqrt(jnp.sum(jnp.where(no_inertia, 0.0, efforts * accelerations)))


class LinearizedBalance:
    """The linearised balance in the null space of `C`: `δ = R y + n` with `C R = 0`, `Rᵀ M R = 1`.

    - `stiffness`: `K̂ = Rᵀ (∂f/∂q) R` at constant `λ`, which includes the second-order terms of the constraints;
    - `scale`: the stiffness of forces of the present size on lever arms of the mechanism's size. If the stiffnesses of
      the forces cancel, as in a balanced mechanism, `K̂` contains rounding errors of numbers of that size;
    - `free`: True for the columns of `R` that span the null space. The others are zero, so that all arrays have fixed
      shapes.
    """

    def __init__(self, balance: Balance, q: Float[Array, " nq"], lam: Float[Array, " m"] | None = None) -> None:
        self.steady = steady = balance.at(q)
        at = steady.position
        self.inertia, scales = at.inertia, at.equations.scales.rows
        rows = jnp.concatenate([at.jacobian / scales[:, None], steady.still[None]])
        left, values, right = jnp.linalg.svd(self.inertia.whiten(rows))
        nonzero = nonzero_singular_values(values)
        self.rank = jnp.sum(nonzero)
        self.free: Bool[Array, " nv"] = jnp.arange(len(steady.still)) >= self.rank
        basis = jax.vmap(self.inertia.unwhiten)(right).T
        self.R = basis * self.free[None, :]
        count = len(values)
        inverse = jnp.where(nonzero, 1.0 / jnp.where(nonzero, values, 1.0), 0.0)
        self.C_inverse = (basis[:, :count] * inverse[None, :] @ left[:, :count].T)[:, :-1] / scales[None]
        without_lam = steady.unbalance(jnp.zeros(balance.equations.m, q.dtype))
        self.lam = -self.C_inverse.T @ without_lam if lam is None else lam
        self.f, self.phi = without_lam + at.jacobian.T @ self.lam, at.position()

    # Traced where it is asked for: multipliers and the null space alone take half as long.

    @cached_property
    def K(self) -> Float[Array, "nv nv"]:
        """`∂f/∂q` along steps, at constant `λ`."""
        balance, at = self.steady.balance, self.steady.position
        return jax.jacfwd(lambda step: balance.at(at.perturbed(step)).unbalance(self.lam))(self.steady.still)

    @cached_property
    def stiffness(self) -> Float[Array, "nv nv"]:
        return self.R.T @ self.K @ self.R

    @cached_property
    def scale(self) -> Scalar:
        return jax.lax.stop_gradient(self.steady.strength() / self.steady.span())

    def particular(self, phi: Float[Array, " m"]) -> Float[Array, " nv"]:
        """Return `n`, the step of least norm that changes `Φ` by `−φ`."""
        return -self.C_inverse @ phi

    def load(self, f: Float[Array, " nv"], n: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """Return `Rᵀ (f + K n)`, the reduced force that a step `R y` has to balance."""
        return self.R.T @ (f + self.K @ n)

    def newton(self, f: Float[Array, " nv"], phi: Float[Array, " m"]) -> Float[Array, " nv"]:
        """Return Newton's step, which changes the balance by `−f` and `Φ` by `−φ`; zero in directions without
        stiffness."""
        n = self.particular(phi)
        return n - self.R @ solve_where_stiff(self.stiffness, self.load(f, n), self.scale)

    def descent(self, kick: Scalar) -> Float[Array, " nv"]:
        """Return a descent step: Newton's step with the moduli of the eigenvalues of the stiffness, and at least `kick`
        in directions of negative stiffness."""
        n = self.particular(self.phi)
        stiffness, U = jnp.linalg.eigh(0.5 * (self.stiffness + self.stiffness.T))
        g = U.T @ self.load(self.f, n)
        least_stiffness = flat(stiffness, self.scale)
        size = jnp.maximum(jnp.abs(stiffness), least_stiffness)
        down = -g / jnp.where(size > 0, size, 1.0)
        away = jnp.where(g > 0, -kick, kick)
        down = jnp.where(stiffness < -least_stiffness, jnp.where(jnp.abs(down) > kick, down, away), down)
        return n + self.R @ (U @ down)

    def unresolved(self) -> Float[Array, " nv"]:
        """Return the part of the unbalanced force in directions without stiffness."""
        left, values, _ = jnp.linalg.svd(self.stiffness)
        loose = left * (values <= flat(values, self.scale))[None, :]
        return self.inertia.times(self.R @ (loose @ (loose.T @ (self.R.T @ self.f))))


def flat(stiffness: Float[Array, " nv"], scale: Scalar | float = 0.0) -> Scalar:
    """Return the stiffness below which a stiffness counts as zero, if those of single forces have the size `scale`."""
    return _FLAT * float(jnp.finfo(stiffness.dtype).eps) * jnp.maximum(jnp.max(jnp.abs(stiffness)), scale)


def solve_where_stiff(A: Float[Array, "n n"], b: Float[Array, " n"], scale: Scalar | float = 0.0) -> Float[Array, " n"]:
    """Return the solution of `A x = b` of least norm, zero along singular vectors whose values count as zero; linear in
    `b`."""
    left, values, right = jnp.linalg.svd(A)
    nonzero = values > flat(values, scale)
    inverse = jnp.where(nonzero, 1.0 / jnp.where(nonzero, values, 1.0), 0.0)
    return right.T @ (inverse * (left.T @ b))


# Units of the square root of rounding: an eigenvalue below this share of the fastest one, or of the rate that the size
# of the forces implies, counts as zero. Rounding errors split a double zero eigenvalue by their square root.
_ZERO = 64.0


class SmallMotions(eqx.Module):
    """The small motions about a steady state.

    - `eigenvalues` `[1/s]`: fastest growing first, −inf for constrained directions;
    - `growing`: the number of eigenvalues with a positive real part;
    - `neutral`: the number of eigenvalues that are zero, without the pair that every free rotation has (its angle and
      its speed can change);
    - `negative`: the number of directions with a negative stiffness.
    """

    eigenvalues: Complex[Array, "*batch n"]
    growing: Int[Array, "*batch"]
    neutral: Int[Array, "*batch"]
    negative: Int[Array, "*batch"]

    @property
    def stable(self) -> Bool[Array, "*batch"]:
        """True if no eigenvalue grows and none is neutral."""
        return (self.growing == 0) & (self.neutral == 0)


@cached_on_disk
def small_motions(
    mechanism: Mechanism, rate: Float[Array, " twist"], t: Scalar, q: Float[Array, " nq"]
) -> SmallMotions:
    """Return the small motions about an equilibrium position."""
    balance = Balance(Equations(mechanism), rate, t)
    at = LinearizedBalance(*frozen((balance, q)))
    steady = balance.at(q)
    C, lam = steady.position.jacobian, _multipliers(balance, q, at)
    R = at.R - at.C_inverse @ (C @ at.R)  # equal to R, and differentiable with respect to C
    M = R.T @ jax.vmap(steady.position.inertia.times, 1, 1)(R)
    moving = np.asarray(mechanism.layout.z.moving, int)

    def change(step: Array, w: Array, more: Array) -> tuple[Array, Array]:
        there, z = balance.at(steady.position.perturbed(step)), steady.z.at[moving].add(more)
        return there.unbalance(lam, w, z), there.own_rates(w, z)[moving]

    (K, D, E), own = jax.jacfwd(change, (0, 1, 2))(steady.still, steady.still, jnp.zeros(len(moving), q.dtype))
    couplings = Couplings(R.T @ E, own[0] @ R, own[1] @ R, own[2])
    values = _eigenvalues(M + jnp.diag(1.0 - at.free), R.T @ K @ R, R.T @ D @ R, couplings, at.free)
    fastest = jnp.max(jnp.where(jnp.isfinite(values.real), jnp.abs(values), 0.0))
    fastest = jnp.maximum(fastest, jnp.sqrt(at.scale))
    least = _least_share(values) * fastest
    zero = jnp.abs(values) <= least
    growing = (values.real > least) & ~zero
    symmetric = 2 * _is_free_rotation(at, steady.v).astype(int)
    stiffness = jnp.linalg.eigvals(at.stiffness)
    stiffest = jnp.maximum(jnp.max(jnp.abs(stiffness)), at.scale)
    negative = jnp.sum(stiffness.real < -(_least_share(stiffness) ** 2) * stiffest)
    return SmallMotions(values, jnp.sum(growing), jnp.maximum(jnp.sum(zero) - symmetric, 0), negative)


def _least_share(x: Array) -> float:
    """Return the share of the fastest rate below which one counts as zero, in the precision of `x`."""
    return _ZERO * float(jnp.finfo(x.dtype).eps) ** 0.5


def _multipliers(balance: Balance, q: Array, at: LinearizedBalance) -> Array:
    """Return the multipliers, differentiable if the constraint rows are independent."""
    without_lam = balance.at(q).unbalance(jnp.zeros_like(at.lam))
    C = balance.at(q).position.jacobian
    return at.lam - at.C_inverse.T @ (without_lam + C.T @ at.lam)


class Couplings(NamedTuple):
    """What states of parts add: `∂f/∂z`, and the derivatives of their rates by `y`, `ẏ` and `z`."""

    load: Float[Array, "nv nz"]
    along: Float[Array, "nz nv"]
    by_speed: Float[Array, "nz nv"]
    own: Float[Array, "nz nz"]


def _eigenvalues(M: Array, K: Array, D: Array, states: Couplings, free: Bool[Array, " nv"]) -> Complex[Array, " n"]:
    """Return the eigenvalues of `M ÿ + D ẏ + K y + E z = 0` and `ż = …`; −inf for constrained directions.

    Constrained directions get decay rates that are larger than all others and distinct, so that the eigenvalues keep
    their derivatives.
    """
    n, nz = len(free), len(states.own)
    constrained = jnp.concatenate([~free, ~free, jnp.zeros(nz, bool)])
    accelerations = -jnp.linalg.solve(M, jnp.concatenate([K, D, states.load], axis=1))
    velocities = jnp.concatenate([jnp.zeros_like(K), jnp.diag(1.0 * free), jnp.zeros((n, nz), K.dtype)], axis=1)
    own = jnp.concatenate([states.along, states.by_speed, states.own], axis=1)
    A = jnp.concatenate([velocities, accelerations, own])
    bound = jax.lax.stop_gradient(1.0 + jnp.linalg.norm(A))
    values = jnp.linalg.eigvals(A - jnp.diag(jnp.where(constrained, bound * (2.0 + jnp.arange(len(A)) / n), 0.0)))
    values = jnp.where(values.real < -1.5 * bound, -jnp.inf, values)
    return values[jnp.argsort(-values.real)]


def _is_free_rotation(at: LinearizedBalance, v: Float[Array, " nv"]) -> Bool[Array, ""]:
    """Return True if the constraints allow the rotation with free speed."""
    speed = jnp.linalg.norm(v)
    residual = jnp.linalg.norm(v - at.R @ (at.R.T @ at.inertia.times(v)))
    return (speed > 0) & (residual <= _least_share(v) * speed)
