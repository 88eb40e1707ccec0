"""The balance of forces in a steady state: at rest, or turning as one about a fixed axis.

All bodies have the twists `V` of one rotation of the world, and `V̇ = (ω × u, 0)`, `u` being the velocities of their
centres: in the axes of a body the angular velocity does not change. So `v` and `v̇` follow from the position, and

    f(q, λ) = M v̇ + Cᵀ λ − F(q, v, t) = 0,    Φ(q, t) = 0

is a problem for `q` and `λ` alone. At rest the rotation is zero.
"""

from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Number, Scalar, as_float, is_concrete
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.rank import nonzero_singular_values
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_finite
from jaxmbd.model.force.force import AbstractForce
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.space.rotation import axis_numbers
from jaxmbd.space.space import AbstractSpace
from jaxmbd.space.twists import motion_cross, shift_velocity
from jaxmbd.space.vectors import direction, swept

_FLAT = 1e4  # times rounding: the share of the largest stiffness, or of that of the forces, that counts as zero


class Rotation(eqx.Module):
    """A steady rotation of the whole mechanism.

    **Arguments:** `speed` `[rad/s]`; `axis`, its direction: three numbers or a letter, `"x"`, `"-x"` (z unless given;
    in the plane there is no other);
    `point`, a point on the axis `[m]` (the world's origin unless given).
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
        """The rotation as a rate: the velocity at the world's origin and the angular velocity."""
        if space.dim == 2 and self.axis is not None:
            raise MechanismError("Rotation: in the plane everything turns about z; leave axis out.")
        axis = jnp.asarray((0.0, 0.0, 1.0)) if self.axis is None else direction(self.axis)
        point = jnp.zeros(space.dim) if self.point is None else self.point
        check_finite("Rotation", "point", point, (space.dim,))
        omega = self.speed * (axis if space.dim == 3 else axis[2:])
        return shift_velocity(jnp.concatenate([jnp.zeros(space.dim), omega]), -point)


class Balance(eqx.Module):
    """The balance of a mechanism that turns with `rate`, at a time `t` [s]."""

    equations: Equations
    rate: Float[Array, " twist"]
    t: Scalar

    def at(self, q: Float[Array, " nq"]) -> "Steady":
        """The balance at coordinates `q`."""
        return Steady(self, q)

    def unbalance(self, q: Float[Array, " nq"], lam: Float[Array, " m"]) -> tuple[Array, Array]:
        """`f` and `Φ`."""
        at = self.at(q)
        return at.unbalance(lam), at.position.position()


class Steady:
    """The mechanism at coordinates `q`, turning steadily."""

    def __init__(self, balance: Balance, q: Float[Array, " nq"]) -> None:
        self.balance, self.q = balance, q
        self.position: Configuration = balance.equations.at(balance.t, q)
        self.still = jnp.zeros(balance.equations.mechanism.nv, q.dtype)

    @cached_property
    def twists(self) -> Float[Array, "bodies twist"]:
        """`V`."""
        place = self.position.placement
        frames = jax.tree.map(lambda x: x[:-1], place.frames)
        space, rate = self.position.space, self.balance.rate
        return jax.vmap(lambda body: space.to_twist(body, shift_velocity(rate, body.position)))(frames)

    @cached_property
    def v(self) -> Float[Array, " nv"]:
        """The speeds nearest to the rotation, in the metric of `M`: `M⁻¹ Jᵀ M_b V`. They are those of the rotation if
        the joints of the tree let the mechanism turn."""
        return self._nearest(self.twists - self.position.twists(self.still))

    @cached_property
    def vdot(self) -> Float[Array, " nv"]:
        """How they change, likewise."""
        return self._nearest(self._turning(self.still) - self._drift(self.v))

    def unbalance(self, lam: Float[Array, " m"], w: Float[Array, " nv"] | None = None) -> Float[Array, " nv"]:
        """`f = M v̇ + Cᵀ λ − F`: what is missing to the balance, with speeds `w` relative to the rotation."""
        w, at = self.still if w is None else w, self.position
        v = self.v + w
        inertial = self._loads(self._turning(w) - self._drift(v))
        return inertial + at.jacobian.T @ lam - at.force(v)

    def _turning(self, w: Float[Array, " nv"]) -> Float[Array, "bodies twist"]:
        """`V̇` in the turning world, to first order in `w`: the rotation's own, and what Coriolis adds."""
        at, dim = self.position, self.position.space.dim
        omega = self.balance.rate[dim:]
        relative = at.twists(w) - at.twists(self.still)

        def one(own: Array, relative: Array) -> Array:
            linear = swept(omega, own[:dim] + 2 * relative[:dim])
            spin, turning = own.at[:dim].set(0.0), relative.at[:dim].set(0.0)
            return jnp.concatenate([linear, motion_cross(spin, turning)[dim:]])

        return jax.vmap(one)(self.twists, relative)

    def _drift(self, v: Float[Array, " nv"]) -> Float[Array, "bodies twist"]:
        return self.position.accelerations(v, self.still)

    def _loads(self, changes: Float[Array, "bodies twist"]) -> Float[Array, " nv"]:
        return self.position.placement.loads(self.position.parts.momenta(changes))

    def _nearest(self, twists: Float[Array, "bodies twist"]) -> Float[Array, " nv"]:
        return self.position.inertia.solve(self._loads(twists))

    # --- sizes ------------------------------------------------------------------------------------------

    def size(self, step: Float[Array, " nv"], length: Scalar) -> Scalar:
        """How far a step goes: the largest angle [rad], or displacement as a share of `length`."""
        at = self.position
        swung = at.twists(step) - at.twists(self.still)
        linear, angular = swung[:, : at.space.dim], swung[:, at.space.dim :]
        return jnp.maximum(jnp.max(jnp.abs(linear)) / length, jnp.max(jnp.abs(angular)))

    def extent(self) -> Scalar:
        """The size [m] of the mechanism: the diagonal of the box around its markers and centres of mass."""
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
        """A step as large as the mechanism, in the metric of `M`."""
        return self.extent() * jnp.sqrt(jnp.sum(self.balance.equations.parts.masses))

    def strength(self) -> Scalar:
        """The size of the forces on the bodies, in the metric of `M⁻¹`."""
        at, space = self.position, self.position.space
        efforts = at.parts.efforts(at.t, at.bodies, self.twists)
        accelerations = jax.vmap(space.acceleration)(at.parts.inertia, efforts)
        none = jnp.isfinite(efforts) & ~jnp.isfinite(accelerations)  # about an axis without inertia
        return jnp.sqrt(jnp.sum(jnp.where(none, 0.0, efforts * accelerations)))


class Reduced:
    """The balance linearised, in the directions that the constraints leave: `δ = R y + n`, `C R = 0`, `Rᵀ M R = 1`.

    `stiffness`, `K̂ = Rᵀ (∂f/∂q) R` at constant `λ`: the constraints' second-order terms belong to it; `scale`, the
    stiffness of forces as large as those there are on arms as long as the mechanism. Where the stiffnesses of forces
    cancel, as in a balanced mechanism, what is left of `K̂` is rounding of numbers of that size. All arrays keep
    their full size; columns of `R` without a direction are zero, `free` tells which.
    """

    def __init__(self, balance: Balance, q: Float[Array, " nq"], lam: Float[Array, " m"] | None = None) -> None:
        self.steady = steady = balance.at(q)
        at = steady.position
        self.inertia, rows = at.inertia, jnp.concatenate([at.jacobian, steady.still[None]])
        left, values, right = jnp.linalg.svd(self.inertia.whiten(rows))
        kept = nonzero_singular_values(values)
        self.rank = jnp.sum(kept)
        self.free: Bool[Array, " nv"] = jnp.arange(len(steady.still)) >= self.rank
        basis = jax.vmap(self.inertia.unwhiten)(right).T
        self.R = basis * self.free[None, :]
        count = len(values)
        inverse = jnp.where(kept, 1.0 / jnp.where(kept, values, 1.0), 0.0)
        self.C_inverse = (basis[:, :count] * inverse[None, :] @ left[:, :count].T)[:, :-1]
        bare = steady.unbalance(jnp.zeros(balance.equations.m, q.dtype))
        self.lam = -self.C_inverse.T @ bare if lam is None else lam
        self.f, self.phi = bare + at.jacobian.T @ self.lam, at.position()
        self.K = jax.jacfwd(lambda step: balance.unbalance(at.perturbed(step), self.lam)[0])(steady.still)
        self.stiffness: Float[Array, "nv nv"] = self.R.T @ self.K @ self.R
        self.scale: Scalar = jax.lax.stop_gradient(steady.strength() / steady.span())

    def particular(self, phi: Float[Array, " m"]) -> Float[Array, " nv"]:
        """`n`: the least step that changes `Φ` by `−φ`."""
        return -self.C_inverse @ phi

    def load(self, f: Float[Array, " nv"], n: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`Rᵀ (f + K n)`: what a step `R y` has to balance."""
        return self.R.T @ (f + self.K @ n)

    def newton(self, f: Float[Array, " nv"], phi: Float[Array, " m"]) -> Float[Array, " nv"]:
        """The step that changes the balance by `−f` and `Φ` by `−φ`; none along directions without stiffness."""
        n = self.particular(phi)
        return n - self.R @ least_norm(self.stiffness, self.load(f, n), self.scale)

    def descent(self, kick: Scalar) -> Float[Array, " nv"]:
        """A step downhill: Newton's with the sizes of the stiffnesses, and off a ridge in any case by `kick`."""
        n = self.particular(self.phi)
        stiffness, U = jnp.linalg.eigh(0.5 * (self.stiffness + self.stiffness.T))
        g = U.T @ self.load(self.f, n)
        none = flat(stiffness, self.scale)
        size = jnp.maximum(jnp.abs(stiffness), none)
        down = -g / jnp.where(size > 0, size, 1.0)
        off = jnp.where(g > 0, -kick, kick)
        down = jnp.where(stiffness < -none, jnp.where(jnp.abs(down) > kick, down, off), down)
        return n + self.R @ (U @ down)

    def unresolved(self) -> Float[Array, " nv"]:
        """Of the force that is missing, the part along directions without stiffness."""
        left, values, _ = jnp.linalg.svd(self.stiffness)
        loose = left * (values <= flat(values, self.scale))[None, :]
        return self.inertia.times(self.R @ (loose @ (loose.T @ (self.R.T @ self.f))))


def flat(stiffness: Float[Array, " nv"], scale: Scalar | float = 0.0) -> Scalar:
    """The stiffness below which one counts as zero, where those of single forces are as large as `scale`."""
    return _FLAT * float(jnp.finfo(stiffness.dtype).eps) * jnp.maximum(jnp.max(jnp.abs(stiffness)), scale)


def least_norm(A: Float[Array, "n n"], b: Float[Array, " n"], scale: Scalar | float = 0.0) -> Float[Array, " n"]:
    """The solution of `A x = b` of least norm, nothing along what counts as zero; linear in `b`."""
    left, values, right = jnp.linalg.svd(A)
    kept = values > flat(values, scale)
    inverse = jnp.where(kept, 1.0 / jnp.where(kept, values, 1.0), 0.0)
    return right.T @ (inverse * (left.T @ b))
