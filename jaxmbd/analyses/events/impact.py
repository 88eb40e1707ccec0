"""Impact equations with impulses along coordinates, and latches that lock coordinates.

An impulse p along coordinates `s(q, t)`, with `ṡ = G v + s_t`, changes the speeds by

    M Δv + Cᵀ Λ = Gᵀ p,   C Δv = 0,   so that   Δṡ = W p,   W = G P Gᵀ

with `P = M⁻¹ − M⁻¹ Cᵀ S⁻¹ C M⁻¹`. A latch satisfies the same equations with forces in place of impulses. Their effect
is added to the accelerations of any formulation, so that formulations are independent of latches.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.events.event import Quantity, read_one
from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.formulations.formulation import (
    AbstractFormulation,
    AbstractProjectedFormulation,
    Projection,
    StateDerivative,
)
from jaxmbd.integrate.formulations.joint_loads import balanced
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.numerics.linear_solve import spd_solver
from jaxmbd.state.output_channels import Snapshot

_FORBIDDEN = 1e-9  # compliance, relative to that without constraints, below which a coordinate counts as fixed


def positions(equations: Equations, along: tuple[Quantity, ...], t: Scalar, q: Array) -> Float[Array, " k"]:
    """The values of the coordinates `s(q, t)`."""
    at = Snapshot.at_rest(equations, t, q)
    return jnp.stack([read_one(equations, of, at) for of in along])


def rates(equations: Equations, along: tuple[Quantity, ...], t: Scalar, q: Array, v: Array) -> Float[Array, " k"]:
    """The rates `ṡ` of the coordinates."""
    step = jnp.ones_like(t), equations.rate(t, q, v)
    return jax.jvp(lambda t, q: positions(equations, along, t, q), (t, q), step)[1]


class Compliance:
    """The response to impulses along coordinates at one configuration.

    `G (k, nv)`; for unit impulses the `changes` of speeds `(k, nv)` and the `multipliers` `(k, m)`, which are the
    impulses of the constraints; `W (k, k)`.
    """

    def __init__(self, at: Configuration, along: tuple[Quantity, ...]) -> None:
        self.rates = lambda v: rates(at.equations, along, at.t, at.q, v)
        self.system = SaddlePoint(at)
        self.G = jax.jacrev(self.rates)(jnp.zeros(at.mechanism.nv, at.q.dtype))
        none = jnp.zeros(at.equations.m, at.q.dtype)
        self.changes, self.multipliers = jax.vmap(lambda g: self.system.accelerations(g, none))(self.G)
        self.W = self.G @ self.changes.T

    def solve(self, active: Bool[Array, " k"], b: Float[Array, " k"]) -> Float[Array, " k"]:
        """The impulses of the active coordinates that change their rates by `b`; zero for the others."""
        pairs = active[:, None] & active[None, :]
        W = jnp.where(pairs, self.W, 0.0) + jnp.diag(jnp.where(active, 0.0, 1.0).astype(b.dtype))
        return spd_solver(W)(jnp.where(active, b, 0.0))

    def is_forbidden(self, hit: Bool[Array, " k"], held: Bool[Array, " k"]) -> Bool[Array, ""]:
        """True if the constraints and the latched coordinates prevent a change of the rate of the one that is hit."""
        others, chosen = held & ~hit, hit.astype(self.W.dtype)
        g, w = chosen @ self.G, self.W @ chosen
        compliance = chosen @ w - jnp.where(others, w, 0.0) @ self.solve(others, w)
        return jnp.any(hit) & ~(compliance > _FORBIDDEN * (g @ self.system.inertia.solve(g)))


class Latches(eqx.Module):
    """The latched coordinates in each segment of a motion.

    From each of `starts (segments,)` on, `held (segments, k)` is the mask of latched coordinates, and
    `values (segments, k)` are the values at which they are latched.
    """

    along: tuple[Quantity, ...]
    starts: Float[Array, " segments"]
    held: Bool[Array, "segments k"]
    values: Float[Array, "segments k"]

    def at(self, t: Scalar) -> tuple[Bool[Array, " k"], Float[Array, " k"]]:
        """The mask of the latched coordinates at a time, and their values."""
        k = jnp.sum(self.starts <= t) - 1
        return self.held[k], self.values[k]


class LatchedFormulation(AbstractFormulation):
    """A formulation with latched coordinates: `s̈ + 2κ ṡ + κ² (s − s₀) = 0`, enforced by forces along them.

    κ is the rate at which violations decay by default, as in `Stabilized`. `parts`: the names of the frictions that
    latches belong to, empty for those of a user's events.
    """

    of: AbstractFormulation
    latches: Latches
    parts: tuple[str, ...] = eqx.field(static=True)

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        return self.motion_and_efforts(equations, t, q, v)[0]

    def motion_and_efforts(
        self, equations: Equations, t: Scalar, q: Array, v: Array
    ) -> tuple[StateDerivative, Float[Array, " k"]]:
        """The motion, and the force [N] or torque [N m] of each latch along its coordinate; zero where it is open."""
        motion = self.of.motion(equations, t, q, v)
        compliance, efforts = self._efforts(equations, t, q, motion)
        vdot, lam = efforts @ compliance.changes, efforts @ compliance.multipliers
        held = StateDerivative(motion.qdot, motion.rate + vdot, motion.v, motion.vdot + vdot, motion.lam + lam)
        return held, efforts

    def with_rows(self, equations: Equations, t: Scalar) -> Equations:
        """The equations with a row `s(q, t) − s₀ = 0` for each latch, of which those of open ones are not solved."""
        held, values = self.latches.at(t)
        mechanism = equations.mechanism
        name = max((part.name for part in mechanism.parts()), key=len) + " latch"  # longer than any other
        row = GlobalConstraint(name, _offsets, (equations, self.latches.along, values))
        driven = sum(equations.sizes[-len(mechanism.drivers) :]) if mechanism.drivers else 0
        solved = jnp.ones(equations.m, bool) if equations.independent_rows is None else equations.independent_rows
        of_joints, of_drivers = jnp.split(solved, [equations.m - driven])  # between which the new rows stand
        solved = jnp.concatenate([of_joints, held, of_drivers])
        return Equations(mechanism.with_parts([row])).solved_in(equations.redundant, solved)

    def _efforts(self, equations: Equations, t: Scalar, q: Array, motion: StateDerivative) -> tuple[Compliance, Array]:
        along, (held, values) = self.latches.along, self.latches.at(t)
        at = equations.at(t, q)
        compliance, qdot = Compliance(at, along), at.rate(motion.v)
        offset = positions(equations, along, t, q) - values
        rate, acceleration = jax.jvp(
            lambda t, q, v: rates(equations, along, t, q, v), (t, q, motion.v), (jnp.ones_like(t), qdot, motion.vdot)
        )
        hold = equations.scales.decay
        return compliance, compliance.solve(held, -acceleration - 2 * hold * rate - hold**2 * offset)


def motion_and_efforts(
    latches: LatchedFormulation, equations: Equations, t: Scalar, q: Array, v: Array
) -> tuple[StateDerivative, Float[Array, " k"]]:
    """The same with friction by loads."""
    return balanced(
        equations, t, q, lambda e: latches.motion_and_efforts(e, t, q, v), lambda found: found[0].lam
    )  # fmt: skip


def _offsets(t: Scalar, q: Array, latched: tuple[Equations, tuple[Quantity, ...], Array]) -> Float[Array, " k"]:
    equations, along, values = latched
    return positions(equations, along, t, q) - values


def latched(formulation: AbstractFormulation, latches: Latches, parts: tuple[str, ...]) -> AbstractFormulation:
    """The formulation with latched coordinates."""
    if isinstance(formulation, Projection):
        return Projection(latched(formulation.base, latches, parts))
    if isinstance(formulation, AbstractProjectedFormulation):
        raise MechanismError(
            f"{_who(parts)} cannot be used with {type(formulation).__name__}, which knows the mechanism's own "
            "constraints only; use Stabilized(), Augmented() or Projection()."
        )
    return LatchedFormulation(formulation, latches, parts)


def _who(parts: tuple[str, ...]) -> str:
    """What latches belong to."""
    return next((f"The part {name!r}, which locks," for name in parts if name), "Latch")


def with_latches(formulation: AbstractFormulation) -> LatchedFormulation | None:
    """The formulation that knows of latches, within another one or not; None if there are none."""
    inner = formulation.base if isinstance(formulation, Projection) else formulation
    return inner if isinstance(inner, LatchedFormulation) else None


class ImpactResult(eqx.Module):
    """The result of an impact: the speeds after it, the impulses along the coordinates `(k,)` and those of the
    constraints `(m,)`; `blocked`, true if the impact is impossible."""

    v: Float[Array, " nv"]
    impulses: Float[Array, " k"]
    lam: Float[Array, " m"]
    blocked: Bool[Array, ""]


def impact(
    at: Configuration, along: tuple[Quantity, ...], v: Float[Array, " nv"], hit: Bool[Array, " k"],
    held: Bool[Array, " k"], restitution: Float[Array, " k"],
) -> ImpactResult:  # fmt: skip
    """Impact: `ṡ⁺ = −e ṡ⁻` for the coordinate that is hit, `ṡ⁺ = 0` for latched ones, by impulses along these.

    The speeds `v` must be consistent.
    """
    compliance = Compliance(at, along)
    blocked = compliance.is_forbidden(hit, held)
    active = (hit | held) & ~blocked
    rate = compliance.rates(v)
    p = compliance.solve(active, -(1 + jnp.where(hit, restitution, 0.0)) * rate)
    return ImpactResult(v + p @ compliance.changes, p, p @ compliance.multipliers, blocked)
