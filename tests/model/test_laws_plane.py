"""What lives in the plane moves there as in space: one machine of all parts that both spaces have, built twice."""

from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.equations.reactions import reactions
from jaxmbd.state.output_channels import Snapshot, channel_values
from tests.model import laws

pytestmark = pytest.mark.slow  # the laws of each space have quick tests of their own

T = 0.37  # [s]
INSIDE = [0, 1, 5]  # of a twist or wrench in space: those in the plane
TOLERANCE = 1e-9
MOTIONS = ["O.angle", "B.angle_rate", "slide.displacement", "slide.displacement_rate", "rack slide.displacement"]
EFFORTS = ["motor.effort", "winder.effort", "stop.effort", "friction.effort", "spring.tension", "spring.length"]
SENSORS = ["point", "velocity", "acceleration", "omega", "alpha", "accelerometer", "gyroscope", "distance", "slope"]
READINGS = [*MOTIONS, *EFFORTS, *SENSORS, "kinetic_energy", "potential_energy"]
# A gear of the plane has three markers, one of space those of two joints: its multiplier is compared.
JOINTS = ["O", "A", "B", "C", "weld", "solid", "rod", "ball", "G", "K", "D", "slide", "W1", "W2", "rack slide"]
JOINTS += ["rack", "hand", "motor"]


class Plane:
    """Parts in the plane."""

    space = pl

    def body(self, name: str, mass: float, inertia: float, x: float, y: float, theta: float) -> Any:
        return pl.Body(name, mass, inertia, (x, y, theta))

    def at(self, owner: Any, x: float = 0.0, y: float = 0.0, angle: float = 0.0) -> Any:
        return owner.at(x, y, angle)

    def line(self, owner: Any, x: float = 0.0, y: float = 0.0, angle: float = 0.0) -> Any:
        """A marker whose x axis (in space z) is the line of a slide."""
        return owner.at(x, y, angle)

    def face(self, owner: Any, x: float = 0.0, y: float = 0.0, angle: float = 0.0) -> Any:
        """A marker whose y axis (in space z) is a normal."""
        return owner.at(x, y, angle)

    def vector(self, x: float, y: float) -> Any:
        return (x, y)

    def moment(self, m: float) -> Any:
        return m

    def six(self, x: float, y: float, turn: float) -> Any:
        return (x, y, turn)

    slide = pl.Prismatic

    def gear(self, name: str, a: Any, b: Any, joints: tuple[str, str], ratio: float, phase: float) -> Any:
        return pl.Gear(name, *joints, ratio, phase)

    def clock(self, name: str, a: Any, b: Any, coordinate: str, *numbers: float) -> Any:
        return pl.TorsionalSpringDamper(name, a, b, *numbers)


class Space:
    """The same parts in three dimensions, at z = 0."""

    space = sp

    def body(self, name: str, mass: float, inertia: float, x: float, y: float, theta: float) -> Any:
        pose = sp.pose(x, y, 0.0, sp.rotation.about("z", theta))
        return sp.Body(name, mass, (0.7 * inertia, 0.6 * inertia, inertia), pose)

    def at(self, owner: Any, x: float = 0.0, y: float = 0.0, angle: float = 0.0) -> Any:
        return owner.at(x, y, 0.0, rotation=sp.rotation.about("z", angle))

    def line(self, owner: Any, x: float = 0.0, y: float = 0.0, angle: float = 0.0) -> Any:
        turn = sp.rotation.multiply(sp.rotation.about("z", angle), sp.rotation.about("y", np.pi / 2))
        return owner.at(x, y, 0.0, rotation=turn)

    def face(self, owner: Any, x: float = 0.0, y: float = 0.0, angle: float = 0.0) -> Any:
        turn = sp.rotation.multiply(sp.rotation.about("z", angle), sp.rotation.about("x", -np.pi / 2))
        return owner.at(x, y, 0.0, rotation=turn)

    def vector(self, x: float, y: float) -> Any:
        return (x, y, 0.0)

    def moment(self, m: float) -> Any:
        return (0.0, 0.0, m)

    def six(self, x: float, y: float, turn: float) -> Any:
        return (x, y, 7.0, 3.0, 2.0, turn)

    slide = sp.Prismatic

    def gear(self, name: str, a: Any, b: Any, joints: tuple[str, str], ratio: float, phase: float) -> Any:
        return sp.Gear(name, *joints, ratio, phase)

    def clock(self, name: str, a: Any, b: Any, coordinate: str, *numbers: float) -> Any:
        return sp.JointSpringDamper(name, coordinate, *numbers)


def machine(f: Any) -> Any:
    """A four-bar with a plate welded on, and one more on that; a bob on a rod and a ball in contact; a driven
    slider-crank; two wheels, a rack, and a hand that a rod's end drags along."""
    s, ground = f.space, f.space.ground
    crank, coupler = f.body("crank", 1.0, 0.1, 0.3, 0.5, 1.0), f.body("coupler", 2.0, 0.3, 1.2, 1.2, 0.3)
    rocker, plate = f.body("rocker", 1.5, 0.2, 1.9, 0.7, 1.2), f.body("plate", 0.5, 0.05, 2.0, 1.0, 1.4)
    lid, bob = f.body("lid", 0.4, 0.04, 2.1, 1.3, 1.0), f.body("bob", 0.8, 0.1, -1, -0.5, 0.4)
    ball = f.body("egg", 0.6, 0.08, -2, 0.3, -0.5)
    drive, link = f.body("drive", 1.1, 0.1, 0.2, -1.8, 0.9), f.body("link", 0.9, 0.2, 0.9, -1.7, -0.4)
    slider, wheel = f.body("slider", 1.3, 0.2, 1.6, -2, 0.0), f.body("wheel", 1.0, 0.15, 4, 0, 0.7)
    pinion, rack = f.body("pinion", 0.7, 0.07, 5, 0, -0.9), f.body("rack body", 1.2, 0.1, 5, 0.5, 0.2)
    hand = f.body("hand body", 0.6, 0.05, -1.5, -0.9, 0.3)
    joints = [
        s.Revolute("O", f.at(ground), f.at(crank, -0.5, 0, 0.1)),
        s.Revolute("A", f.at(crank, 0.5), f.at(coupler, -0.8)),
        s.Revolute("B", f.at(coupler, 0.8), f.at(rocker, 0.7, 0.0, 0.2)),
        s.Revolute("C", f.at(ground, 1.8, 0.1), f.at(rocker, -0.6)),
        s.Weld("weld", f.at(rocker, 0.2, 0.1, 0.3), f.at(plate, 0.0, -0.2, 0.1)),
        s.FixedConstraint("solid", f.at(plate, 0.2, 0.1, 0.3), f.at(lid, 0.0, -0.2, 0.5)),
        s.Rod("rod", f.at(ground, -1, 0.5), f.at(bob, 0.1, 0.2), 0.9),
        s.PointConstraint("ball", f.at(ground, -2, 0.6, 0.4), f.at(ball, 0.1, 0.2)),
        s.Revolute("G", f.at(ground, 0, -2), f.at(drive, -0.3)),
        s.Revolute("K", f.at(drive, 0.3), f.at(link, -0.7)),
        s.Revolute("D", f.at(link, 0.7), f.at(slider)),
        f.slide("slide", f.line(ground, 0, -2, 0.1), f.line(slider, 0.1, 0.05, 0.1)),
        s.Revolute("W1", f.at(ground, 4, 0), f.at(wheel)),
        s.Revolute("W2", f.at(ground, 5, 0), f.at(pinion)),
        f.slide("rack slide", f.line(ground, 5, 0.4, 0.2), f.line(rack)),
        f.gear("gear", f.at(wheel), f.at(pinion), ("W1.angle", "W2.angle"), -1.4, 0.2),
        s.RackAndPinion("rack", "W2.angle", "rack slide.displacement", 0.4, 0.1),
        s.Constraint("hand", reach, f.at(bob, 0.1, -0.2), f.at(hand, -0.2, 0.1), jnp.asarray(0.5)),
    ]
    forces = [
        s.Gravity(f.vector(0.3, -9.81)),
        s.SpringDamper("spring", f.at(crank, 0.2, 0.1), f.at(rocker, 0.1, -0.2), 30.0, 0.7, 1.5, laws.servo),
        s.Force("push", f.at(coupler, 0.3, 0.2), f.vector(2.0, -1.0), f.moment(0.4)),
        s.Force("jet", f.at(lid, 0.1, 0.2, 0.5), f.vector(1.0, 0.7), f.moment(0.4), frame="body"),
        s.Torque("twist", f.at(coupler), f.moment(0.7), f.at(crank)),
        f.clock("clock", f.at(ground), f.at(crank, -0.5, 0, 0.1), "O.angle", 5.0, 0.3, 0.4),
        s.PointDrag("drag", f.at(bob, 0.2), 0.8, 0.3),
        s.Bushing("bushing", f.at(coupler, 0.1, 0.3, 0.4), f.at(rocker, 0.3), f.six(20, 30, 4), f.six(0.5, 0.8, 0.3)),
        s.PlaneContact("floor", f.face(ground, 0, -0.2, 0.2), f.at(ball, 0, -0.1), 50.0, 0.8, 0.1, 1.5, 0.4, 0.3),
        s.JointForce("winder", "W1.angle", laws.hinge, {"k": jnp.asarray(2.0), "c": jnp.asarray(0.2)}),
        s.JointFriction("friction", "B.angle", 0.2, 0.3, 0.4, 0.1, 0.3, 1.5),
        s.JointStop("stop", "slide.displacement", 2.5, 3.0, 40.0, 0.1),
    ]
    drivers = [s.Driver("motor", "G.angle", laws.swing)]
    spot = f.at(coupler, 0.3, -0.2, 0.6)
    kinds = (s.Point, s.PointVelocity, s.PointAcceleration, s.AngularVelocity, s.AngularAcceleration)
    kinds += (s.Accelerometer, s.Gyroscope)
    sensors = [kind(name, spot) for kind, name in zip(kinds, SENSORS, strict=False)]
    sensors += [s.Distance("distance", f.at(crank, 0.1), f.at(bob, 0.2, 0.1))]
    sensors += [s.AngleBetween("slope", f.face(crank, 0.1, 0, 0.2), f.face(ground, 0, 0, -0.4))]
    bodies = [crank, coupler, rocker, plate, lid, bob, ball, drive, link, slider, wheel, pinion, rack, hand]
    return s.Mechanism(bodies, joints, forces, drivers, sensors)


def reach(t: Any, frames: Any, length: Any) -> Any:
    """A user's rod, along the first body's axes too."""
    a, b = frames
    d = b.position - a.position
    return jnp.stack([jnp.dot(d, d) - length**2 - 0.05 * jnp.sin(t), jnp.dot(a.axis, d) - 0.2 * length])


class Found(NamedTuple):
    """What the equations of one twin say."""

    qdot: np.ndarray
    rate: np.ndarray
    vdot: np.ndarray
    reactions: dict[str, np.ndarray]
    multiplier: np.ndarray
    readings: dict[str, np.ndarray]


@cache
def planar_state() -> tuple[np.ndarray, np.ndarray]:
    """A position that fits, and speeds: allowed ones, and a remainder that the formulation has to take out."""
    equations = mbd.Equations(machine(Plane()))

    @jax.jit
    def rows(q: Any) -> tuple[Any, Any, Any]:
        t = jnp.asarray(T)
        return equations.position(t, q), equations.jacobian(t, q), equations.velocity(t, q, jnp.zeros_like(q))

    q = np.concatenate([body.pose for body in equations.mechanism.bodies])
    C = still = np.zeros(0)
    for _ in range(60):
        phi, C, still = (np.asarray(x) for x in rows(q))
        step = -np.linalg.pinv(C) @ phi
        q = q + step * min(1.0, 0.3 / np.abs(step).max())
    np.testing.assert_allclose(rows(q)[0], 0.0, atol=1e-12)
    assert np.linalg.svd(C, compute_uv=False).min() > 1e-3
    rng = np.random.default_rng(4)
    v = rng.normal(size=len(q))
    v = v - np.linalg.pinv(C) @ (C @ v + still)
    return q, v + 0.02 * rng.normal(size=len(q))


@cache
def found(space: str) -> Found:
    mechanism = machine(Plane() if space == "planar" else Space())
    q, v = planar_state()
    if space == "spatial":
        (x, y, theta), (vx, vy, omega) = q.reshape(-1, 3).T, v.reshape(-1, 3).T
        zero = np.zeros_like(x)
        q = np.stack([x, y, zero, np.cos(theta / 2), zero, zero, np.sin(theta / 2)], axis=1).reshape(-1)
        q = np.append(q, np.zeros(len(mechanism.turns)))
        v = np.stack([vx, vy, zero, zero, zero, omega], axis=1).reshape(-1)

    def everything(q: Any, v: Any) -> Any:
        equations, t = mbd.Equations(mechanism), jnp.asarray(T)
        q = equations.normalize(q)
        motion = mbd.Stabilized().motion(equations, t, q, v)
        at = Snapshot(t, q, motion.v, motion.vdot, motion.lam)
        return motion, reactions(equations.at(t, q), motion.lam), channel_values(equations, READINGS, at)

    motion, groups, readings = jax.jit(everything)(q, v)
    equations = mbd.Equations(mechanism)
    names = [part.name for part in mechanism.constraints()]
    pairs = zip(equations.parts.joints, groups, strict=True)
    loads = {names[i]: np.asarray(w) for g, x in pairs for i, w in zip(g.members, x, strict=True)}
    bodies = len(mechanism.bodies)
    qdot = np.asarray(motion.qdot)[: bodies * len(mechanism.space.coordinates)].reshape(bodies, -1)
    rate, vdot = (np.asarray(x).reshape(bodies, -1) for x in (motion.rate, motion.vdot))
    multiplier = np.asarray(motion.lam)[[name == "gear" for name, _ in mechanism.row_labels()]]
    return Found(qdot, rate, vdot, loads, multiplier, jax.tree.map(np.asarray, readings))


def close(space: np.ndarray, plane: np.ndarray, tolerance: float = TOLERANCE) -> None:
    """Equal, relative to the largest number."""
    np.testing.assert_allclose(space, plane, rtol=0, atol=tolerance * (1 + np.abs(plane).max()))


def test_twins_move_alike() -> None:
    """The same accelerations and rates; none out of the plane. The four-bar has redundant rows in space."""
    plane, space = found("planar"), found("spatial")
    assert np.abs(plane.vdot).max() > 1.0
    assert np.abs(plane.rate - plane.vdot).max() > 1e-4, "there is no remainder to carry"
    # The multipliers of the remainder are not those of least norm, and the part of rounding's making is carried along.
    for here, there, tolerance in ((plane.vdot, space.vdot, TOLERANCE), (plane.rate, space.rate, 1e-5)):
        close(there[:, INSIDE], here, tolerance)
        close(np.delete(there, INSIDE, axis=1), 0 * here, tolerance * np.abs(here).max())
    close(space.qdot[:, :2], plane.qdot[:, :2])
    close(space.qdot[:, [2, 4, 5]], 0 * plane.qdot)
    e0, e3 = np.cos(planar_state()[0][2::3] / 2), np.sin(planar_state()[0][2::3] / 2)
    close(2 * (e0 * space.qdot[:, 6] - e3 * space.qdot[:, 3]), plane.qdot[:, 2])


@pytest.mark.parametrize("name", JOINTS)
def test_twins_have_the_same_reactions(name: str) -> None:
    """In the plane, at each marker."""
    plane, space = found("planar").reactions[name], found("spatial").reactions[name]
    assert np.abs(plane).max() > 1e-3
    close(space[:, INSIDE], plane)


def test_twins_have_the_same_gear() -> None:
    assert np.abs(found("planar").multiplier).max() > 1e-3
    close(found("spatial").multiplier, found("planar").multiplier)


@pytest.mark.parametrize("name", READINGS)
def test_twins_read_alike(name: str) -> None:
    plane, space = found("planar").readings[name], found("spatial").readings[name]
    assert np.abs(plane).max() > 1e-3
    if space.shape == (3,) and name in ("omega", "alpha", "gyroscope"):
        close(space[:2], np.zeros(2))
        space, plane = space[2], plane.reshape(())
    elif space.shape == (3,):
        close(space[2], np.zeros(()))
        space = space[:2]
    close(space, plane)
