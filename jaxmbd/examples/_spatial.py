"""Spatial examples: a top, a rolling disc, a hexapod, and closed loops of the IFToMM and Modelica libraries."""

import itertools
import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd import spatial as sp
from jaxmbd.arrays import Scalar
from jaxmbd.examples._example import MODELICA_GRAVITY, Example, listed
from jaxmbd.space import rotation as rot

HEAVY_TOP_SPIN = (0.0, 150.0, -4.61538)  # [rad/s]
AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


@listed("Brüls, Cardona, Arnold, 2012")
def heavy_top() -> Example:
    """A fast symmetric top on a ball at the origin."""
    top = sp.Body("top", mass=15.0, inertia=(0.234375, 0.46875, 0.234375), pose=(0.0, 1.0, 0.0))
    mechanism = sp.Mechanism(
        bodies=[top], joints=[sp.Spherical("O", sp.ground.at(), top.at(0, -1, 0))], forces=[sp.Gravity(9.81)]
    )
    spin = {f"top.omega_{axis}": speed for axis, speed in zip("xyz", HEAVY_TOP_SPIN, strict=True)}
    return Example(
        mechanism, speeds=spin, duration=1.5, outputs=("top.x", "top.y", "top.z", "kinetic_energy", "energy"),
    )  # fmt: skip


@listed()
def rolling_disc() -> Example:
    """A disc that rolls on a table without slipping, leaning by 25 degrees, steadily in a circle.

    The spin `s` for the rate ω around the circle follows from
    `A ω² sin α cos α − (C + m r²) ω s sin α = m g r cos α`.
    """
    r, lean, turning = 0.2, math.radians(65.0), 2.5
    solid = sp.disc(2700, r, 0.01)
    m, (A, _, C) = float(solid.mass), np.diag(solid.inertia)
    sine, cosine = math.sin(lean), math.cos(lean)
    spin = (A * turning**2 * sine * cosine - m * 9.81 * r * cosine) / ((C + m * r**2) * turning * sine)
    place = sp.pose(0, r * spin / turning, r * sine, rot.about("x", lean))
    disc = sp.Body("disc", mass=m, inertia=solid.inertia, pose=place)
    rolling = sp.RollingDisc("rolling", sp.ground.at(), disc.at(), radius=r)
    mechanism = sp.Mechanism([disc], [rolling], [sp.Gravity(9.81)])
    speeds = {"disc.omega_x": 0.0, "disc.omega_y": turning * sine, "disc.omega_z": spin}
    outputs = ("disc.x", "disc.y", "disc.z", "kinetic_energy", "energy")
    return Example(mechanism, speeds=speeds, duration=2 * math.pi / turning, outputs=outputs)


@listed("Modelica Standard Library, Loops.Fourbar1")
def spatial_four_bar() -> Example:
    """A crank, a coupler between a ball and a universal joint, and a slider."""
    crank = _cylinder("b1", (0.0, 0.0, 0.0), (0.0, 0.5, 0.1))
    slider, coupler = (
        _cylinder("b2", (1.0, 0.0, 0.0), (0.0, 0.2, 0.0)),
        _cylinder("b3", (1.0, 0.2, 0.0), (-1.0, 0.3, 0.1)),
    )
    # Axes of the cross: y (the first marker's x) is fixed in b2, z (the second marker's y) in b3.
    cross = np.array([(0, 0, 1), (1, 0, 0), (0, 1, 0)], dtype=float)  # x, y, z axes: y, z, x
    mechanism = sp.Mechanism(
        bodies=[crank, slider, coupler],
        joints=[
            sp.Revolute("j1", sp.ground.at(axis=(1, 0, 0)), crank.at_world(0, 0, 0, axis=(1, 0, 0))),
            sp.Prismatic("j2", sp.ground.at(1.2, 0, 0, axis=(1, 0, 0)), slider.at_world(1, 0, 0, axis=(1, 0, 0))),
            sp.Universal(
                "rev", slider.at_world(1, 0.2, 0, rotation=cross), coupler.at_world(1, 0.2, 0, rotation=cross)
            ),
            sp.Spherical("j3", crank.at_world(0, 0.5, 0.1), coupler.at_world(0, 0.5, 0.1)),
        ],
        forces=[sp.Gravity((0.0, -MODELICA_GRAVITY, 0.0))],
    )
    return Example(
        mechanism, speeds={"j1.angle": 5.235987755982989}, duration=3.0,
        inputs=("j1.angle",), outputs=("j1.angle", "j1.angle_rate", "j2.displacement", "j2.displacement_rate"),
    )  # fmt: skip


def _cylinder(name: str, start: tuple[float, float, float], r: tuple[float, float, float]) -> sp.Body:
    """Return a steel cylinder of 0.05 m diameter from `start` along `r`, with body axes parallel to the world's."""
    d, length = 0.05, math.hypot(*r)
    mass = 7700 * math.pi / 4 * d**2 * length
    along, across = mass * d**2 / 8, mass * (length**2 + 0.75 * d**2) / 12
    u = np.array(r) / length
    inertia = across * np.eye(3) + (along - across) * np.outer(u, u)
    return sp.Body(name, mass=mass, inertia=inertia, pose=tuple(np.array(start) + np.array(r) / 2))


@listed("IFToMM A04")
def bricard() -> Example:
    """Bricard's ring of five bars and six hinges: thirty constraints on thirty speeds, and yet it moves.

    The bars have 1 m, 1 kg and a square section of 0.1 m; the sixth one is the ground. Sensor `corner`: the hinge P3.
    """
    points = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)], dtype=float)
    along, across = 0.1**2 / 6, (1 + 0.1**2) / 12
    bodies = []
    for i, (p, q) in enumerate(itertools.pairwise(points), 1):
        moments = np.where(np.abs(q - p) > 0.5, along, across)
        bodies.append(sp.Body(f"rod{i}", 1.0, moments, (p + q) / 2))
    chain = [sp.ground, *bodies, sp.ground]
    joints = []
    for i, axis in enumerate("yzxyzx"):
        here = [body.at_world(*points[i], axis=AXES[axis]) for body in chain[i : i + 2]]
        joints.append(sp.Revolute(f"P{i + 1}", *here))
    sensors = [sp.Point("corner", at=bodies[1].at_world(*points[2]))]
    mechanism = sp.Mechanism(bodies, joints, [sp.Gravity((0.0, -9.81, 0.0))], sensors=sensors)
    return Example(
        mechanism, duration=4.8, inputs=("P1.angle",), outputs=("corner", "P1.angle", "kinetic_energy", "energy")
    )


@listed("IFToMM A05")
def governor() -> Example:
    """A flyball governor with very stiff springs, spinning once a second.

    `slide.displacement` is the slider's height above its initial height of 0.5 m.
    """
    solids = [sp.box(3000.0, 0.01, 0.01, 1.0), sp.box(3000.0, 0.1, 0.1, 0.1)]
    shaft, slider = (
        sp.Body(n, s.mass, s.inertia, (0, 0, 0.5)) for n, s in zip(("shaft", "slider"), solids, strict=True)
    )
    rod = sp.box(3000.0, 1.0, 0.01, 0.01).translated(0.5) + sp.point(5.0).translated(1.0)
    bodies, forces = [shaft, slider], []
    joints = [
        sp.Revolute("spin", sp.ground.at(), shaft.at_world(0, 0, 0)),
        sp.Prismatic("slide", shaft.at_world(0, 0, 0.5), slider.at_world(0, 0, 0.5)),
    ]
    for name, side, angle in (("right", 1, math.radians(30)), ("left", -1, math.radians(150))):
        turn, hinge = rot.about("y", angle), np.array([0.05 * side, 0.0, 1.0])
        x, y, z = hinge + np.asarray(rot.rotate(turn, rod.centre))
        ball = sp.Body(name, rod.mass, rod.inertia, sp.pose(x, y, z, turn))
        middle = hinge + np.asarray(rot.rotate(turn, (0.5, 0.0, 0.0)))
        ends = [body.at_world(*hinge, axis=AXES["y"]) for body in (shaft, ball)]
        joints.append(sp.Revolute(f"hinge {name}", *ends))
        bodies.append(ball)
        forces.append(sp.SpringDamper(f"spring {name}", slider.at(0.05 * side), ball.at_world(*middle), 8e5, 0.5, 4e4))
    speeds = {"spin.angle": 2 * math.pi, "hinge right.angle": 0.0, "hinge left.angle": 0.0, "slide.displacement": 0.0}
    return Example(
        sp.Mechanism(bodies, joints, [sp.Gravity(9.81), *forces]), speeds=speeds, duration=2.0,
        inputs=("spin.angle",), outputs=("spin.angle_rate", "slide.displacement", "spring right.tension"),
    )  # fmt: skip


_LEG = 0.45  # [m], the length of a cylinder, and of a piston
# Angles [°] of the lower and the upper end of each leg about the vertical.
_LEGS = ((-14, -45), (14, 45), (106, 75), (134, 165), (226, 195), (254, 285))


def platform_path(t: Scalar) -> tuple[Float[Array, "3"], Float[Array, "4"]]:
    """Return the prescribed pose of the platform: the position of its centre [m] and its rotation (a quaternion)."""
    w = jnp.pi * t
    place = jnp.stack([0.10 * jnp.cos(w), 0.10 * jnp.sin(w), 0.70 + 0.06 * jnp.sin(2 * w)])
    return place, rot.from_vector(jnp.stack([0.25 * jnp.sin(w), 0.25 * jnp.cos(w), jnp.zeros_like(w)]))


class LegExtension(eqx.Module):
    """The extension [m] of a leg from `base` to the platform's point `joint` [m] along the platform's path."""

    base: Float[Array, "3"]
    joint: Float[Array, "3"]

    def __call__(self, t: Scalar) -> Scalar:
        place, rotation = platform_path(t)
        return jnp.linalg.norm(place + rot.rotate(rotation, self.joint) - self.base) - _LEG


@listed()
def stewart_platform() -> Example:
    """A hexapod whose six legs move a platform along a tilting circle: all is prescribed, forces are sought.

    Each leg is a cylinder on a universal joint and a piston under a ball joint. Its driver prescribes its extension,
    which follows from the pose of the platform (`platform_path`).
    """
    disc = sp.disc(2700, 0.35, 0.03).translated(z=0.7)
    platform = sp.Body("platform", disc.mass, disc.inertia, disc.centre)
    bodies, joints, drivers = [platform], [], []
    for k, angles in enumerate(np.radians(_LEGS)):
        (base, joint) = (r * np.array([np.cos(a), np.sin(a), 0.0]) for r, a in zip((0.60, 0.35), angles, strict=True))
        top = joint + np.array([0.0, 0.0, 0.7])
        u = (top - base) / np.linalg.norm(top - base)
        cylinder = _tube(f"cylinder {k}", base, base + _LEG * u, 0.02)
        piston = _tube(f"piston {k}", top - _LEG * u, top, 0.01)
        bodies += [cylinder, piston]
        joints += [
            sp.Universal(f"U{k}", sp.ground.at_world(*base, axis=u), cylinder.at_world(*base, axis=u)),
            sp.Prismatic(f"S{k}", cylinder.at_world(*base, axis=u), piston.at_world(*(top - _LEG * u), axis=u)),
            sp.Spherical(f"B{k}", piston.at_world(*top), platform.at_world(*top)),
        ]
        drivers.append(sp.Driver(f"leg {k}", f"S{k}.displacement", LegExtension(jnp.asarray(base), jnp.asarray(joint))))
    mechanism = sp.Mechanism(bodies, joints, [sp.Gravity(9.81)], drivers)
    outputs = ("platform.x", "platform.y", "platform.z", *(f"{driver.name}.effort" for driver in drivers))
    return Example(mechanism, duration=2.0, outputs=outputs)


def _tube(name: str, start: np.ndarray, stop: np.ndarray, radius: float) -> sp.Body:
    """Return a round steel rod between two points [m], with body axes parallel to the world's."""
    solid = sp.cylinder(7800, radius, float(np.linalg.norm(stop - start))).rotated(rot.along(stop - start))
    return sp.Body(name, solid.mass, solid.inertia, (start + stop) / 2)
