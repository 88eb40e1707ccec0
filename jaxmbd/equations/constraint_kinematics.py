"""Constraint rows, their derivatives and force efforts of one joint or force, on the bodies it connects.

A law is a function of the frames of its markers, so it is differentiated with respect to these alone, along a marker's
*rate*: the velocity of its origin and its angular velocity, in world axes. A gradient with respect to a rate is a
wrench at the marker, and `to_centre` converts it to an effort on the body, as for applied forces. `bodies` are the
frames of the bodies that the markers are attached to, stacked. Shapes: twists, wrenches and rates `(markers, twist)`.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Scalar
from jaxmbd.engine import trace_once
from jaxmbd.model.body.body import AbstractMarker, AbstractMovingMarker
from jaxmbd.model.force.force import AbstractForce
from jaxmbd.model.joint.joint import AbstractJointWithCoordinates, AbstractNonholonomic, residual_of, slip_of
from jaxmbd.model.mechanism.groups import PartGroup, unnamed
from jaxmbd.model.mechanism.named_coordinates import CoordinateForce
from jaxmbd.model.states import AbstractOwnStates, stateful
from jaxmbd.space.space import AbstractFrame, AbstractSpace, Frames
from jaxmbd.space.vectors import swept

Twists = Float[Array, "markers twist"]
T = TypeVar("T")


class MarkerKinematics:
    """Frames, velocities and accelerations of the markers of one part, from the motion of their bodies.

    The markers are stacked, so that the compiler sees each operation once for all of them. `slide` holds the velocities
    and accelerations, in world axes, of moving markers relative to their bodies; None if no marker moves.
    """

    def __init__(
        self, space: AbstractSpace, markers: Sequence[AbstractMarker], bodies: AbstractFrame, t: Scalar
    ) -> None:
        self.space, self.bodies = space, bodies
        self.slide = None
        if any(isinstance(marker, AbstractMovingMarker) for marker in markers):
            self.slide = _sliding(markers, bodies, t)
            markers = [m.at_time(t) if isinstance(m, AbstractMovingMarker) else m for m in markers]
        # `jnp.stack` would put the markers before the axis of a `vmap`, and each operation after it would transpose.
        stacked = jax.tree.map(lambda *leaves: jnp.concatenate([x[None] for x in leaves]), *map(unnamed, markers))
        self.stack = _marker_frames(stacked, bodies)

    @property
    def frames(self) -> tuple[Any, ...]:
        """The frame of each marker."""
        return self._each(self.stack)

    def rates(self, twists: Twists) -> Twists:
        """The markers' rates: velocities of the origins and angular velocities, in world axes."""
        rates = _vmap_over_markers(self.space.marker_rate, self.bodies, twists, self.stack.position)
        return rates if self.slide is None else rates.at[:, : self.space.dim].add(self.slide[0])

    def accelerations(self, twists: Twists, vdot: Twists) -> Twists:
        """The markers' accelerations, linear and angular, in world axes."""
        rigid = _vmap_over_markers(self.space.marker_acceleration, self.bodies, twists, vdot, self.stack.position)
        if self.slide is None:
            return rigid
        (velocity, acceleration), omega = self.slide, self.rates(twists)[:, self.space.dim :]
        return rigid.at[:, : self.space.dim].add(acceleration + 2 * jax.vmap(swept)(omega, velocity))

    def perturbed(self, step: Twists) -> tuple[AbstractFrame, ...]:
        """The frames displaced by steps (rates times a time), exact to second order."""
        return self._each(_perturbed(self.stack, step))

    def to_centre(self, wrenches: Twists) -> Twists:
        """The efforts on the bodies from wrenches at the markers."""
        return _vmap_over_markers(self.space.to_centre, self.bodies, self.stack.position, wrenches)

    def to_centre_rate(self, twists: Twists, wrenches: Twists, changes: Twists) -> Twists:
        """The time derivatives of `to_centre(wrenches)`; `changes` are those of the wrenches."""
        points = self.stack.position
        return _to_centre_rate(self.space, self.bodies, points, wrenches, twists, self.rates(twists), changes)

    def _each(self, stack: AbstractFrame) -> tuple[AbstractFrame, ...]:
        leaves, tree = jax.tree.flatten(stack)
        return tuple(jax.tree.unflatten(tree, each) for each in zip(*map(jnp.unstack, leaves), strict=True))

    def frames_at_constant_speed(self, twists: Twists) -> Callable[[Scalar], tuple[AbstractFrame, ...]]:
        """The frames as a function of the time `s` of motion at constant `v`, exact to second order."""
        rates, drift = self.rates(twists), self.accelerations(twists, jnp.zeros_like(twists))
        return lambda s: self.perturbed(s * rates + 0.5 * s * s * drift)


def _sliding(markers: Sequence[AbstractMarker], bodies: AbstractFrame, t: Scalar) -> tuple[Array, Array]:
    """Velocities and accelerations of the markers relative to their bodies, in world axes; zero for fixed markers."""
    zero = jnp.zeros_like(bodies.position[0])
    derivatives = [m.course(t)[1:] if isinstance(m, AbstractMovingMarker) else (zero, zero) for m in markers]
    velocities, accelerations = (jnp.stack(values) for values in zip(*derivatives, strict=True))
    to_world = jax.vmap(lambda body, vector: body.to_world(vector))
    return to_world(bodies, velocities), to_world(bodies, accelerations)


# The functions that all parts share are traced once per number of markers.


@trace_once
def _marker_frames(markers: AbstractMarker, bodies: AbstractFrame) -> AbstractFrame:
    return jax.vmap(lambda marker, body: marker.frame(body))(markers, bodies)


@trace_once
def _vmap_over_markers(function: Callable[..., Array], *stacks: PyTree) -> Array:
    return jax.vmap(function)(*stacks)


@trace_once
def _perturbed(frames: AbstractFrame, steps: Array) -> AbstractFrame:
    return jax.vmap(lambda frame, d: frame.perturbed(d))(frames, steps)


@trace_once
def _to_centre_rate(space: AbstractSpace, *stacks: PyTree) -> Array:
    def one(body: AbstractFrame, point: Array, wrench: Array, twist: Array, rate: Array, change: Array) -> Array:
        body_rate = space.marker_rate(body, twist, body.position)
        displaced = lambda s: (body.perturbed(s * body_rate), point + s * rate[: space.dim], wrench + s * change)  # noqa: E731
        return derivative_at_zero(lambda s: space.to_centre(*displaced(s)), point[0], 1)

    return jax.vmap(one)(*stacks)


class ConstraintRows:
    """The constraint rows of one joint: holonomic rows `Φ`, followed by nonholonomic rows `Ψ`."""

    def __init__(self, space: AbstractSpace, law: Any, t: Scalar, bodies: AbstractFrame) -> None:
        self.space, self.law, self.t = space, law, t
        self.kinematics = MarkerKinematics(space, law.markers, bodies, t)
        self.rolling = isinstance(law, AbstractNonholonomic)
        self.still = jnp.zeros((len(law.markers), len(space.speeds)), bodies.position.dtype)

    def position(self) -> Float[Array, " rows"]:
        """`Φ`, padded with zeros for the nonholonomic rows."""
        phi = residual_of(self.law, self.t, self.kinematics.frames)
        if not self.rolling:
            return phi
        extra = jax.eval_shape(lambda: self._slip(self.t, self.kinematics.frames, self.still))
        return jnp.concatenate([phi, jnp.zeros(extra.shape, phi.dtype)])

    def side(self) -> Scalar:
        """The side of an `AbstractSidedJoint`."""
        return self.law.side(self.kinematics.frames)

    def wrenches(self) -> Float[Array, "rows markers twist"]:
        """The gradients of the rows with respect to the markers' rates.

        A unit multiplier of a row exerts the negative of these wrenches on the bodies.
        """
        C = jax.jacfwd(lambda step: residual_of(self.law, self.t, self.kinematics.perturbed(step)))(self.still)
        if not self.rolling:
            return C
        return jnp.concatenate([C, jax.jacfwd(lambda r: self._slip(self.t, self.kinematics.frames, r))(self.still)])

    def jacobian(self) -> Float[Array, "rows markers twist"]:
        """The Jacobian of the rows with respect to the twists of the joint's bodies."""
        return jax.vmap(self.kinematics.to_centre)(self.wrenches())

    def velocity(self, twists: Twists) -> Float[Array, " rows"]:
        """`Φ̇ = C v + Φ_t`, and `Ψ`."""
        rates = self.kinematics.rates(twists)
        phi = derivative_at_zero(
            lambda s: residual_of(self.law, self.t + s, self.kinematics.perturbed(s * rates)), self.t, 1
        )
        return jnp.concatenate([phi, self._slip(self.t, self.kinematics.frames, rates)]) if self.rolling else phi

    def gamma(self, twists: Twists) -> Float[Array, " rows"]:
        """The right-hand side of `C v̇ = γ`: minus the second time derivative of `Φ` at constant `v` (first for `Ψ`)."""
        frames = self.kinematics.frames_at_constant_speed(twists)
        phi = derivative_at_zero(lambda s: residual_of(self.law, self.t + s, frames(s)), self.t, 2)
        if self.rolling:
            rates = self.kinematics.rates(twists)
            drift = self.kinematics.accelerations(twists, self.still)
            psi = derivative_at_zero(lambda s: self._slip(self.t + s, frames(s), rates + s * drift), self.t, 1)
            phi = jnp.concatenate([phi, psi])
        return -phi

    def constraint_force_rate(self, twists: Twists, eta: Float[Array, " rows"]) -> Twists:
        """`Ċᵀ η` as efforts on the joint's bodies."""
        frames, rates = self.kinematics.frames_at_constant_speed(twists), self.kinematics.rates(twists)
        wrenches, changes = taylor_pair(lambda s: self._row_wrenches(s, frames, s * rates, eta), self.t)
        return self.kinematics.to_centre_rate(twists, wrenches, changes)

    def _row_wrenches(
        self, s: Scalar, frames: Callable[[Scalar], Frames], step: Twists, eta: Float[Array, " rows"]
    ) -> Twists:
        """The wrenches `Cᵀ η` at the markers after a time `s` of motion and a displacement `step`."""
        count = jax.eval_shape(lambda: residual_of(self.law, self.t, self.kinematics.frames)).shape[0]

        def phi(d: Twists) -> Scalar:
            displaced = tuple(frame.perturbed(x) for frame, x in zip(self.kinematics.perturbed(step), d, strict=True))
            return jnp.dot(eta[:count], residual_of(self.law, self.t + s, displaced))

        wrenches = jax.grad(phi)(self.still)
        if not self.rolling:
            return wrenches
        return wrenches + jax.grad(lambda r: jnp.dot(eta[count:], self._slip(self.t + s, frames(s), r)))(self.still)

    def _slip(self, t: Scalar, frames: Frames, rates: Twists) -> Array:
        return slip_of(self.law, t, frames, tuple(self.space.as_rate(rate) for rate in rates))


def wrenches(space: AbstractSpace, t: Scalar, law: AbstractForce, bodies: AbstractFrame, twists: Twists) -> Twists:
    """The efforts of one force on the bodies it acts on."""
    kinematics = MarkerKinematics(space, law.markers, bodies, t)
    rates = tuple(space.as_rate(rate) for rate in kinematics.rates(twists))
    return kinematics.to_centre(law.wrenches(t, kinematics.frames, rates))


def efforts_along(
    space: AbstractSpace, t: Scalar, part: CoordinateForce, bodies: AbstractFrame, twists: Twists
) -> Twists:
    """The efforts on the bodies from a force that acts along a joint coordinate `c`: `∂c/∂v` times the force."""
    kinematics, slope, at = _along(space, t, part, bodies, twists)
    return kinematics.to_centre(slope * part.law.effort(t, *at))


def _along(
    space: AbstractSpace, t: Scalar, part: CoordinateForce, bodies: AbstractFrame, twists: Twists
) -> tuple[MarkerKinematics, Twists, tuple[Scalar, ...]]:
    """The kinematics of a coordinate's markers, its gradient `∂c/∂v` there, its value and its rate, and the effort on
    it that presses the force, if one does."""
    kinematics = MarkerKinematics(space, part.markers, bodies, t)
    value, slope = jax.value_and_grad(lambda step: part.value(kinematics.perturbed(step)))(jnp.zeros_like(twists))
    rates = kinematics.rates(twists)
    at = value, jnp.sum(slope * rates)
    if part.load is None:
        return kinematics, slope, at
    values = taylor_pair(lambda s: part.load_values(kinematics.perturbed(s * rates)), t)
    return kinematics, slope, (*at, part.load.effort(t, *values))


@cache
def of_own_states(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of a part with states (`rates_of`, …) as one of a force: of all such parts in it, in their order."""

    def of_force(
        space: AbstractSpace, t: Scalar, law: AbstractForce | CoordinateForce, bodies: AbstractFrame, twists: Twists
    ) -> Float[Array, " k"]:
        arguments = _arguments(space, t, law, bodies, twists)
        own = stateful(law.law if isinstance(law, CoordinateForce) else law)  # not those of what presses it
        return jnp.concatenate([function(x, t, *arguments) for x in own if isinstance(x, AbstractOwnStates)])

    return of_force


def _arguments(
    space: AbstractSpace, t: Scalar, law: AbstractForce | CoordinateForce, bodies: AbstractFrame, twists: Twists
) -> tuple[Any, ...]:
    """What the law of a force takes besides the time: a coordinate and its rate, or frames and their rates."""
    if isinstance(law, CoordinateForce):
        return _along(space, t, law, bodies, twists)[2]
    kinematics = MarkerKinematics(space, law.markers, bodies, t)
    return kinematics.frames, tuple(space.as_rate(rate) for rate in kinematics.rates(twists))


def turning(
    space: AbstractSpace, t: Scalar, law: AbstractJointWithCoordinates, bodies: AbstractFrame, twists: Twists
) -> Float[Array, "2 n"]:
    """The integrated angles of a joint, modulo whole turns, and their rates."""
    kinematics = MarkerKinematics(space, law.markers, bodies, t)
    rates = kinematics.rates(twists)

    def angles(s: Scalar) -> Array:
        motion = law.motion(kinematics.perturbed(s * rates))
        return jnp.stack([motion[law.coordinate_names.index(name)] for name in law.unwrapped])

    return jnp.stack(taylor_pair(angles, jnp.zeros((), twists.dtype)))


def armature_effort(space: AbstractSpace, t: Scalar, part: Any, bodies: AbstractFrame, twists: Twists) -> Twists:
    """The efforts `−a gᵀ c̈` of an armature at constant twists, with `g = ∂ċ/∂V`."""
    rows = ConstraintRows(space, part, t, bodies)
    return part.inertia * rows.gamma(twists)[0] * rows.jacobian()[0]


def armature_energy(space: AbstractSpace, t: Scalar, part: Any, bodies: AbstractFrame, twists: Twists) -> Scalar:
    """The kinetic energy `½ a ċ²` of an armature."""
    return 0.5 * part.inertia * ConstraintRows(space, part, t, bodies).velocity(twists)[0] ** 2


def armature_rate(
    space: AbstractSpace, t: Scalar, part: Any, bodies: AbstractFrame, twists: Twists, other: Twists
) -> Twists:
    """`d(a gᵀ g)/dt` along the motion, times the twists `other`."""
    rows = ConstraintRows(space, part, t, bodies)
    g, change = rows.jacobian()[0], rows.constraint_force_rate(twists, jnp.ones(1, twists.dtype))
    return part.inertia * (jnp.sum(g * other) * change + jnp.sum(change * other) * g)


def potential_energy(space: AbstractSpace, t: Scalar, law: AbstractForce, bodies: AbstractFrame) -> Scalar:
    """The potential energy of one force."""
    return law.potential(t, MarkerKinematics(space, law.markers, bodies, t).frames)


def stored_along(space: AbstractSpace, t: Scalar, part: CoordinateForce, bodies: AbstractFrame) -> Scalar:
    """The potential energy of a force along a joint coordinate."""
    return part.law.potential(part.value(MarkerKinematics(space, part.markers, bodies, t).frames))


def derivative_at_zero(f: Callable[[Array], T], t: Scalar, order: int) -> T:
    """The derivative of order `order` of `f(s)` at `s = 0`, by nested forward mode."""
    for _ in range(order):
        f = lambda s, f=f: jax.jvp(f, (s,), (jnp.ones_like(s),))[1]  # noqa: E731
    return f(jnp.zeros_like(t))


def taylor_pair(f: Callable[[Array], T], t: Scalar) -> tuple[T, T]:
    """`f(s)` and its derivative at `s = 0`."""
    zero = jnp.zeros_like(t)
    return jax.jvp(f, (zero,), (jnp.ones_like(zero),))


class ConstraintBodyTerms(NamedTuple):
    """The nonzero blocks of `C_b`, one per row and marker.

    `values` is the row's coefficient vector for the twist of body `body`; `row` is the row's index among `m` rows.
    """

    values: Float[Array, "legs twist"]
    row: np.ndarray
    body: np.ndarray
    m: int


def legs_of(groups: Sequence[PartGroup], blocks: Sequence[Array], width: int) -> ConstraintBodyTerms:
    """Flatten the nonzero blocks of `C_b`, `(parts, rows, markers, width)` per group."""
    none = np.zeros(0, int)
    values, rows, bodies, start = [jnp.zeros((0, width))][: not blocks], [none], [none], 0
    for group, block in zip(groups, blocks, strict=True):
        parts, count = block.shape[:2]
        row = start + np.arange(parts * count).reshape(parts, count, 1)
        values.append(block.reshape(-1, width))
        rows.append(np.broadcast_to(row, block.shape[:3]).reshape(-1))
        bodies.append(np.broadcast_to(group.incidence[:, None, :], block.shape[:3]).reshape(-1))
        start += parts * count
    return ConstraintBodyTerms(jnp.concatenate(values), np.concatenate(rows), np.concatenate(bodies), start)
