"""Messages for failed equilibrium analyses: the conditions of a steady state, and the parts that violate them."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.equilibrium.balance import Balance, Rotation
from jaxmbd.analyses.equilibrium.newton_search import STEPS, NewtonSearch
from jaxmbd.analyses.redundancy import least_norm
from jaxmbd.arrays import Number, Scalar, as_float
from jaxmbd.engine import trace_once
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import Scales

_STEADY = 1e-3  # share of the forces; stiff springs amplify rounding errors of speeds to 1e-6 of the forces
_SHARE = 0.5  # share of the unbalanced force in directions without stiffness from which it is called the cause


class SteadyStateResiduals(eqx.Module):
    """The residuals of a steady state.

    - `twists`: the part of the bodies' twists that the speeds cannot produce;
    - `speeds`, `accelerations`: `Φ̇` and `C v̇ − γ`;
    - `drift`: the change of the balance when the mechanism rotates by one radian, as a share of the forces;
    - `scale`: the size of the speeds, without units, with which the tolerance is multiplied;
    - `twist_scales`, `row_scales`: those of the components of twists and of the rows (`Scales`); `time`: the unit of
      time.
    """

    twists: Float[Array, "bodies twist"]
    speeds: Float[Array, " m"]
    accelerations: Float[Array, " m"]
    drift: Float[Array, " nv"]
    scale: Scalar
    twist_scales: Float[Array, " twist"]
    row_scales: Float[Array, " m"]
    time: Scalar

    def contradicts(self, tolerance: float) -> Bool[Array, ""]:
        """Return True if any residual exceeds its tolerance."""
        return _contradicts(self, tolerance)

    def motions(self) -> tuple[Array, Array, Array]:
        """Return the sizes of the residuals of twists, speeds and accelerations, without units."""
        rows, time = self.row_scales, self.time
        residuals = time * self.twists / self.twist_scales[None], time * self.speeds / rows
        return jnp.abs(residuals[0]), jnp.abs(residuals[1]), jnp.abs(time**2 * self.accelerations / rows)


@trace_once
def _contradicts(residuals: SteadyStateResiduals, tolerance: float) -> Bool[Array, ""]:
    worst = jnp.max(jnp.stack([jnp.max(x, initial=0.0) for x in residuals.motions()]))
    return (worst > tolerance * residuals.scale) | (jnp.max(jnp.abs(residuals.drift)) > _STEADY)


def unsteady(balance: Balance, q: Float[Array, " nq"], turns: bool) -> SteadyStateResiduals:
    """Return the residuals of the steady state at `q`; `turns`: the mechanism rotates."""
    steady = balance.at(q)
    at, v = steady.position, steady.v
    twists, speeds, one = steady.twists - at.twists(v), at.velocity(v), jnp.ones((), q.dtype)
    scales = balance.equations.scales
    time = jnp.asarray(scales.time)
    own = jnp.asarray(scales.of(*at.space.twist_units)), jnp.asarray(scales.rows), time
    if not turns:
        return SteadyStateResiduals(twists, speeds, jnp.zeros_like(speeds), jnp.zeros_like(v), one, *own)
    turning, accelerations = jnp.linalg.norm(balance.rate), at.jacobian @ steady.vdot - at.gamma(v)
    scale = one + (time * turning) ** 2 + time * jnp.max(jnp.abs(steady.twists / own[0][None]))
    return SteadyStateResiduals(twists, speeds, accelerations, _drift(balance, q) / turning, scale, *own)


def _drift(balance: Balance, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """Return the rate at which forces become unbalanced along the motion, as a share of the forces.

    The part that multipliers can balance is subtracted.
    """
    steady = balance.at(q)
    at = steady.position
    scales = balance.equations.scales
    C, speeds = scales.jacobian(at.jacobian), jnp.asarray(scales.speeds)
    lam = least_norm(C.T, -speeds * steady.unbalance(jnp.zeros(balance.equations.m, q.dtype))) / scales.rows

    def force(q: Array, t: Scalar) -> Array:
        return eqx.tree_at(lambda b: b.t, balance, t).at(q).unbalance(lam)

    change = jax.jvp(force, (q, balance.t), (at.rate(steady.v), jnp.ones_like(balance.t)))[1]
    change = change - C.T @ least_norm(C.T, speeds * change) / speeds
    strength = steady.strength() * jnp.sqrt(jnp.diag(at.inertia.matrix()))
    return change / jnp.where(strength > 0, strength, 1.0)


def about_joint(mechanism: Mechanism, rotation: Mapping[str, Number], t: Scalar, q: Array) -> Float[Array, " twist"]:
    """Return the twist of a rotation about a joint to the ground, from the rate of its angle,
    `{"spindle.angle": 3.0}`."""
    if len(rotation) != 1:
        raise MechanismError(f"rotation takes one joint's angle, such as {{'spindle.angle': 3.0}}, got {rotation!r}.")
    ((name, speed),) = rotation.items()
    joint = mechanism.coordinate(name).joint
    bodies = () if joint is None else tuple(marker.body for marker in joint.markers)
    if joint is None or not name.endswith(".angle") or GROUND not in bodies:
        raise MechanismError(
            f"rotation about {name!r}: everything can turn about the angle of a joint to the ground only. Give the "
            "axis: jaxmbd.Rotation(speed, axis=(0, 0, 1), point=(0, 0, 0))."
        )
    place = bodies.index(GROUND)
    frame = Equations(mechanism).at(t, q).near(joint.markers).frames[place]
    axis = frame.normal if mechanism.space.dim == 3 else None
    return Rotation(as_float(speed) * (1 - 2 * place), axis, frame.position).rate(mechanism.space)


# --- texts --------------------------------------------------------------------------------------------


def contradiction(mechanism: Mechanism, faults: SteadyStateResiduals, turns: bool, tolerance: float) -> str:
    """Return the message for a mechanism that cannot be at rest, or cannot rotate steadily."""
    state = "turn steadily with this rotation" if turns else "be at rest"
    rows, least = [name for name, _ in mechanism.row_labels()], tolerance * float(faults.scale)
    turned, *moved = map(np.asarray, faults.motions())
    drivers = {driver.name for driver in mechanism.drivers}
    twists, *misses = (np.abs(np.asarray(x)) for x in (faults.twists, faults.speeds, faults.accelerations))
    if turned.max() > least:
        bodies = len(mechanism.bodies)  # sites and pieces of flexible bodies follow them
        body = mechanism.bodies[int(twists[:bodies].max(axis=1).argmax())].name
        return (
            f"The mechanism cannot {state}: the joints that carry the body {body!r} do not let it turn so (it misses "
            f"by {twists.max():.3g} m/s or rad/s). Check the axis of the rotation and its point."
        )
    for share, miss, unit in zip(moved, misses, ("m/s or rad/s", "m/s² or rad/s²"), strict=True):
        if share.max(initial=0.0) > least:
            name = rows[int(share.argmax())]
            kind = "driver" if name in drivers else "joint"
            mend = "Stop it, give the rotation with which it turns, or choose t at an instant of rest."
            return (
                f"The mechanism cannot {state}: the {kind} {name!r} contradicts it, by {miss.max():.3g} ({unit}). "
                f"{mend if kind == 'driver' else 'It does not allow this motion: check the axis and its point.'}"
            )
    name = mechanism.speed_names[int(np.abs(np.asarray(faults.drift)).argmax())]
    return (
        f"The mechanism cannot {state}: the forces balance in this position, but no longer when everything has "
        f"turned on (along {name!r}). A force that does not turn with the mechanism, such as gravity across the axis, "
        "keeps no steady rotation."
    )


def open_text(mechanism: Mechanism, miss: Array) -> str:
    """Return the message for a search that ended with open joints."""
    k = int(np.abs(np.asarray(miss) / np.asarray(Scales(mechanism).rows)).argmax())
    name, _ = mechanism.row_labels()[k]
    return (
        f"No equilibrium found: the search left the joints open, {name!r} by {abs(float(miss[k])):.3g} (m or rad; m² "
        "for a Rod). The guess may be too far off, or a joint locks on the way: start nearer."
    )


def failure_text(mechanism: Mechanism, search: NewtonSearch, turns: bool) -> str:
    """Return the message for a search that found no equilibrium."""
    force, loose = np.asarray(search.force), np.asarray(search.loose)
    if not np.isfinite(force).all():
        return (
            f"No equilibrium found: after {int(search.steps)} steps forces are not finite. Check functions of forces "
            "and the range they are valid in, or start from a better guess."
        )
    if np.abs(loose).max() > _SHARE * np.abs(force).max():
        return f"No equilibrium: nothing holds {_force_text(mechanism, loose)}. Add a spring, a joint or fixed={{...}}."
    motion = "turn on" if turns else "move on"
    return (
        f"No equilibrium found in {int(search.steps)} of {STEPS} steps: {_force_text(mechanism, force)} is left over. "
        f"There may be none (a torque larger than what can balance it: the mechanism would {motion}), or the "
        "guess is too far off: start nearer, or with stable=True."
    )


def _force_text(mechanism: Mechanism, force: Any) -> str:
    k = int(np.abs(force).argmax())
    name, unit = mechanism.speed_names[k], {"m/s": " N", "rad/s": " N m"}.get(mechanism.speed_units[k], "")
    return f"{name.split('.')[0]!r} against an unbalanced force of {abs(force[k]):.3g}{unit} along {name!r}"
