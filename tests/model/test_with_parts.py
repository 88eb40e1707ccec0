"""More parts, and other parts, for a mechanism that exists: what stays, the coordinates among it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from tests.marks import in_both_coordinates

G = 9.81  # [m/s²]
SPACES = pytest.mark.parametrize("space", [pl, sp])


def pendulum(space: Any, coordinates: str) -> Any:
    """A rod of 1 m on a pin through the world's z axis (about which it hangs, in space too: gravity along -y)."""
    inertia = 1 / 12 if space is pl else (0.01, 1 / 12, 1 / 12)
    rod = space.Body("rod", mass=1.0, inertia=inertia)
    pin = space.Revolute("O", space.ground.at(), rod.at(-0.5))
    gravity = space.Gravity(G) if space is pl else sp.Gravity((0.0, -G, 0.0))
    return space.Mechanism([rod], [pin], [gravity], sensors=[space.Point("tip", rod.at(0.5))], coordinates=coordinates)


def names(parts: Any) -> list[str]:
    return [part.name for part in parts]


@SPACES
@in_both_coordinates("joint")
def test_a_force_is_added_to_those_that_act(space: Any, coordinates: str) -> None:
    """`(1/12 + 1/4) φ̈ = τ − g/2` of the horizontal rod; its derivative by the torque, inside `jit`."""
    base = pendulum(space, coordinates)

    def acceleration(torque: Array) -> tuple[Array, Array]:
        more = base.with_parts([space.JointForce("push", "O.angle", torque)])
        state = mbd.assemble(more, {"O.angle": 0.0})
        found = mbd.read(more, state, "rod.ay") / 0.5
        return found, found

    slope, value = jax.jit(jax.grad(acceleration, has_aux=True))(jnp.array(2.0))
    np.testing.assert_allclose(value, (2.0 - G / 2) / (1 / 3), rtol=1e-10)
    np.testing.assert_allclose(slope, 3.0, rtol=1e-10)
    assert names(base.forces) == ["gravity"]
    assert names(base.with_parts([space.JointForce("push", "O.angle", 1.0)]).forces) == ["gravity", "push"]


@SPACES
@in_both_coordinates("joint")
def test_parts_of_all_kinds_are_added_together(space: Any, coordinates: str) -> None:
    """A second rod on a pin, with spring, sensor and a driver of the first: like the mechanism made at once."""
    base = pendulum(space, coordinates)
    second = space.Body("second", mass=2.0, inertia=1 / 6 if space is pl else (0.02, 1 / 6, 1 / 6))
    joint = space.Revolute("P", base["rod"].at(0.5), second.at(-0.5))
    parts = [
        space.Scaled("degrees", "P.angle", 180 / np.pi),
        space.Driver("motor", "O.angle", lambda t: 0.3 * t - 1.5),
        space.JointSpringDamper("spring", "P.angle", 4.0, 0.2),
        joint,
        second,
    ]
    more = base.with_parts(parts)
    assert names(more.bodies) == ["rod", "second"]
    assert names(more.sensors) == ["tip", "degrees"]
    assert more.coordinate_names[: base.nq - len(base.turns)] == base.tree.coordinates
    whole = space.Mechanism(
        [*base.bodies, second], [*base.joints, joint], [*base.forces, parts[2]], [parts[1]],
        [*base.sensors, parts[0]], coordinates=coordinates,
    )  # fmt: skip
    ts, ends = np.linspace(0.0, 0.2, 3), []
    for mechanism in (more, whole):
        start = mbd.assemble(mechanism, {"P.angle": 0.4}, guess={"O.angle": -1.5})
        motion = mbd.simulate(mechanism, start, ts)
        ends.append([motion["degrees"][-1], motion["O.angle"][-1], motion.effort("motor")[-1]])
    np.testing.assert_allclose(*ends, rtol=1e-8)
    np.testing.assert_allclose(ends[0][1], 0.3 * 0.2 - 1.5, atol=1e-9)


def test_the_joints_of_the_tree_stay_in_the_tree() -> None:
    """A motor, and then a link, on a four-bar whose tree would otherwise be chosen anew; cuts that are named stay."""
    four_bar = mbd.examples.get("four-bar-with-springs").mechanism.with_coordinates("joint")
    cut = next(joint.name for joint in four_bar.joints if joint.name not in four_bar.tree.joints)
    motor = pl.Driver("drive", f"{cut}.angle", 0.1)
    chosen = pl.Mechanism(four_bar.bodies, four_bar.joints, four_bar.forces, [motor], coordinates="joint")
    assert chosen.tree.joints != four_bar.tree.joints
    assert four_bar.with_parts([motor]).tree == four_bar.tree
    tail = pl.Body("tail", 0.1, 0.01)
    hinge = pl.Revolute("T", four_bar.bodies[0].at(), tail.at(-0.1))
    longer = four_bar.with_parts([motor, tail, hinge])
    assert set(longer.tree.joints) == {*four_bar.tree.joints, "T"}
    again = longer.replacing(drivers=[], bodies=four_bar.bodies, joints=four_bar.joints)
    assert again.tree == four_bar.tree

    named = four_bar.with_coordinates("joint", [four_bar.tree.joints[0]])
    assert named.with_parts([tail, hinge]).cuts == named.cuts
    assert named.tree.joints[0] in named.with_parts([tail, hinge]).tree.joints


@SPACES
def test_parts_of_a_kind_are_replaced(space: Any) -> None:
    base = pendulum(space, "joint")
    moon = base.replacing(forces=[space.Gravity(1.62 if space is pl else (0.0, -1.62, 0.0))])
    state = mbd.assemble(moon, {"O.angle": 0.0})
    np.testing.assert_allclose(mbd.read(moon, state, "rod.ay"), -1.62 / 4 * 3, rtol=1e-10)
    free = base.replacing(forces=[], sensors=[])
    assert (free.forces, free.sensors, names(free.joints)) == ((), (), ["O"])
    turned = base.replacing(joints=[space.Revolute("Q", space.ground.at(), base["rod"].at(0.5))])
    state = mbd.assemble(turned, {"Q.angle": 0.0})
    np.testing.assert_allclose(mbd.read(turned, state, "rod.ay"), -G / 4 * 3, rtol=1e-10)


def test_what_does_not_fit_is_refused_as_by_the_constructor() -> None:
    base = pendulum(pl, "joint")
    with pytest.raises(mbd.MechanismError, match=r"there is one named 'rod' already, a Body: .* replacing\(bodies="):
        base.with_parts([pl.Body("rod", 1.0, 1.0)])
    with pytest.raises(mbd.MechanismError, match="Two parts are named 'a'"):
        base.with_parts([pl.JointForce("a", "O.angle", 1.0), pl.JointForce("a", "O.angle", 2.0)])
    with pytest.raises(mbd.MechanismError, match="Nothing connects 'x', 'y' to the ground"):
        base.with_parts([x := pl.Body("x", 1.0, 1.0), y := pl.Body("y", 1.0, 1.0), pl.Revolute("P", x.at(), y.at())])
    with pytest.raises(mbd.MechanismError, match="There is no joint or body named 'O'"):
        base.with_parts([pl.JointForce("push", "O.angle", 1.0)]).replacing(joints=[])
