"""Flexible bodies for the tests: a user's kind in space that is as two rigid bodies, and a slider-crank with a beam."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd import extend
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.arrays import Scalar
from jaxmbd.space.space import AbstractSpace
from jaxmbd.space.spatial import SPATIAL, SpatialFrame

PITCH = 0.05  # [m/rad]
STIFFNESS, DAMPING = 30.0, 0.4
CASE, NUT = (1.2, (0.02, 0.03, 0.04)), (0.7, (0.004, 0.006, 0.009))


class ScrewBody(extend.AbstractFlexibleBody):
    """A case, in which a nut turns about the x axis on a spring: `η` is its angle. It slides along the axis, too, or it
    carries a rotor."""

    space: ClassVar[AbstractSpace] = SPATIAL
    name: str = eqx.field(static=True)
    mass: Scalar
    pose: Float[Array, "7"]
    eta: Float[Array, "1"]
    pitch: Scalar
    rotor: Scalar

    def __init__(self, name: str, rotor: float = 0.0) -> None:
        self.name, self.pose, self.eta = name, jnp.eye(7)[3], jnp.zeros(1)
        self.mass = jnp.asarray(CASE[0] + NUT[0])
        self.pitch, self.rotor = jnp.asarray(0.0 if rotor else PITCH), jnp.asarray(rotor)

    def at(self, *position: float) -> sp.Marker:
        return sp.Marker(self.name, position or (0.0, 0.0, 0.0))

    @property
    def size(self) -> Scalar:
        return jnp.asarray(0.5)

    @property
    def own_coordinates(self) -> dict[str, str]:
        return {"turn": "rad"}

    @property
    def site_names(self) -> tuple[str, ...]:
        return ("nut",)

    @property
    def piece_count(self) -> int:
        return 2

    def frames(self, eta: Float[Array, "1"]) -> SpatialFrame:
        c, s = jnp.cos(eta[0]), jnp.sin(eta[0])
        zero, one = jnp.zeros_like(c), jnp.ones_like(c)
        turned = jnp.stack([jnp.stack([one, zero, zero]), jnp.stack([zero, c, -s]), jnp.stack([zero, s, c])])
        place = jnp.stack([0.2 + self.pitch * eta[0], 0.1 * one, zero])
        still = jnp.zeros(3)
        return jax.vmap(SpatialFrame)(jnp.stack([place, still, place]), jnp.stack([turned, jnp.eye(3), turned]))

    def pieces(self) -> tuple[Array, Array]:
        return jnp.asarray([CASE[0], NUT[0]]), jnp.stack([jnp.diag(jnp.asarray(x[1])) for x in (CASE, NUT)])

    def own_inertia(self) -> Float[Array, "1 1"]:
        return self.rotor * jnp.eye(1)

    def strain_energy(self, eta: Float[Array, "1"]) -> Scalar:
        return 0.5 * STIFFNESS * eta[0] ** 2

    def damping_loads(self, eta: Float[Array, "1"], rates: Float[Array, "1"]) -> Float[Array, "1"]:
        return -DAMPING * rates


def screws(coordinates: str, kind: str, rotor: float = 0.0) -> sp.Mechanism:
    """A pendulum on a ball joint with a nut inside, which a spring ties to the ground. `kind`: as one body, `"own"`, or
    as two rigid ones, `"rigid"`."""
    case: Any = ScrewBody("case", rotor) if kind == "own" else sp.Body("case", *CASE)
    joints: list[Any] = [sp.Spherical("O", sp.ground.at(), case.at(-0.3, 0, 0))]
    bodies: list[Any] = [case]
    forces: list[Any] = [sp.Gravity()]
    if kind == "rigid":
        nut = sp.Body("nut", *NUT, pose=(0.2, 0.1, 0, 1, 0, 0, 0))
        bodies.append(nut)
        ends = case.at(0.2, 0.1, 0, axis="x"), nut.at(axis="x")
        joints.append(sp.Revolute("R", *ends, rotor) if rotor else sp.Screw("R", *ends, 2 * np.pi * PITCH))
        forces.append(sp.JointSpringDamper("spring", "R.angle", STIFFNESS, damping=DAMPING))
        marker = nut.at(0.05, 0.1, 0.0)
    else:
        marker = sp.Marker("case.nut", (0.05, 0.1, 0.0))
    forces.append(sp.SpringDamper("tie", marker, sp.ground.at(0.4, 0.6, 0.3), 40.0, 0.3, 0.5))
    kinds = {"p": sp.Point, "velocity": sp.PointVelocity, "acceleration": sp.PointAcceleration}
    sensors = [kind(name, marker) for name, kind in kinds.items()]
    return sp.Mechanism(bodies, joints, forces, sensors=sensors, coordinates=coordinates)


def crank(coordinates: str, stiffness: Any = 5.0, damping: Any = 0.0, bending: int = 1) -> pl.Mechanism:
    """A slider-crank whose rod is a beam, with a spring at its middle."""
    wheel, slider = pl.Body("crank", 0.2, 2e-4, pose=(0.05, 0, 0)), pl.Body("slider", 0.3, 1e-3, pose=(0.4, 0, 0))
    rod = pl.Beam("rod", 0.5, 0.3, stiffness, damping, {"middle": 0.15}, bending, pose=(0.1, 0, 0))
    joints = [
        pl.Revolute("O", pl.ground.at(), wheel.at(-0.05)),
        pl.Revolute("A", wheel.at(0.05), rod.at()),
        pl.Revolute("B", rod.site("tip").at(), slider.at()),
        pl.Prismatic("P", pl.ground.at(), slider.at()),
    ]
    spring = pl.SpringDamper("spring", rod.site("middle").at(), pl.ground.at(0.2, 0.3), 20.0, 0.1)
    sensors = [pl.Point("middle", rod.site("middle").at())]
    return pl.Mechanism([wheel, rod, slider], joints, [pl.Gravity(), spring], sensors=sensors, coordinates=coordinates)
