"""Mechanisms with states of parts, for tests: motors, and elements that creep."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd import planar as pl
from jaxmbd.extend import AbstractForce, AbstractMarker, AbstractOwnStates, OwnState, Scalar, as_float, direction, pair

VOLTAGE, RESISTANCE, INDUCTANCE, CONSTANT, GEAR = 24.0, 1.0, 0.01, 0.05, 10.0


def motor(name: str = "motor", coordinate: str = "O.angle", **changes: Any) -> pl.DCMotor:
    given = {"voltage": VOLTAGE, "resistance": RESISTANCE, "inductance": INDUCTANCE, "constant": CONSTANT, "gear": GEAR}
    return pl.DCMotor(name, coordinate, **given | changes)


def slider_crank(coordinates: str, **changes: Any) -> pl.Mechanism:
    """A balanced crank of .1 m, moved by a motor through a gear, a rod of .3 m and a slider."""
    crank, rod = pl.Body("crank", 1e-9, 0.01), pl.Body("rod", 0.5, 0.5 * 0.3**2 / 12, pose=(0.25, 0.0, 0.0))
    slider = pl.Body("slider", 1.0, 1.0, pose=(0.4, 0.0, 0.0))
    joints = [
        pl.Revolute("O", pl.ground.at(), crank.at(), armature=1e-4 * GEAR**2),
        pl.Revolute("A", crank.at(0.1), rod.at(-0.15)),
        pl.Revolute("B", rod.at(0.15), slider.at()),
        pl.Prismatic("C", pl.ground.at(), slider.at()),
    ]
    bearing = pl.JointFriction("bearing", "O.angle", viscous=1e-5 * GEAR**2)
    return pl.Mechanism(
        [crank, rod, slider], joints, [pl.Gravity(), motor(**changes), bearing], coordinates=coordinates
    )


def held_arm(coordinates: str, voltage: Any = 4.0, **changes: Any) -> pl.Mechanism:
    """An arm that a motor holds against gravity."""
    arm = pl.Body("arm", 1.0, 1 / 12)
    hinge = pl.Revolute("O", pl.ground.at(), arm.at(-0.5), armature=0.01)
    forces = [pl.Gravity(), motor(voltage=voltage, **changes)]
    return pl.Mechanism([arm], [hinge], forces, coordinates=coordinates)


class Creep(AbstractForce, AbstractOwnStates):
    """Springs that dampers follow, side by side: `f = Σ k_i (d − x_i)`, `c_i ẋ_i = k_i (d − x_i)`."""

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    stiffness: Float[Array, " n"] = eqx.field(converter=as_float)
    damping: Float[Array, " n"] = eqx.field(converter=as_float)
    x: Float[Array, " n"] = eqx.field(converter=as_float)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.a, self.b

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("x", "m", 0.1),)

    def _forces(self, frames: Sequence[Any]) -> tuple[Array, Array]:
        d = frames[1].position - frames[0].position
        along = direction(d)
        return along, self.stiffness * (d @ along - self.x)

    def wrenches(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Array:
        along, forces = self._forces(frames)
        return pair(-jnp.sum(forces) * along)

    def potential(self, t: Scalar, frames: Sequence[Any]) -> Scalar:
        return 0.5 * jnp.sum(self._forces(frames)[1] ** 2 / self.stiffness)

    def own_rates(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Array:
        return self._forces(frames)[1] / self.damping

    def steady(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Array:
        return jnp.full(self.x.shape, jnp.linalg.norm(frames[1].position - frames[0].position))


def current_at(ts: np.ndarray, speed: float, inductance: Any = INDUCTANCE) -> Any:
    """The current of the motor at constant speed, from zero."""
    steady = (VOLTAGE - CONSTANT * GEAR * speed) / RESISTANCE
    return steady * (1 - jnp.exp(-RESISTANCE * jnp.asarray(ts) / inductance))
