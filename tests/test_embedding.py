"""Mechanisms of the plane in space: they have the same accelerations and the same states, part by part."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
import jaxmbd.planar as pl
import jaxmbd.spatial as sp
from jaxmbd.errors import MechanismError
from tests.io.mujoco_bench import accelerations_here


def pull(t: Any, length: Any, rate: Any) -> Any:
    """A law of time, length and rate."""
    return 0.3 * jnp.sin(t) + 0.2 * length - 0.1 * rate


def bench(coordinates: str = "joint") -> pl.Mechanism:
    """Every joint of the plane, with turned markers, on a floating base; forces of all kinds that have counterparts."""
    names = ("base", "arm", "slider", "pin", "tip", "bar", "cart")
    bodies = [pl.Body(name, 1.0 + 0.2 * k, 0.1 + 0.03 * k, (0.1 * k, 0.2, 0.1)) for k, name in enumerate(names)]
    base, arm, slider, pin, tip, bar, cart = bodies
    joints = [
        pl.Revolute("R", base.at(0.3, 0.1, 0.4), arm.at(-0.2, 0.1, -0.3), armature=0.2),
        pl.Prismatic("P", slider.at(0.1, 0.2, 0.5), arm.at(0.2, 0.0, 0.3), armature=0.4),  # seen from its second body
        pl.PinInSlot("S", arm.at(0.0, 0.3, 0.7), pin.at(0.1, 0.0, 0.2)),
        pl.Weld("W", pin.at(0.2, 0.0, 0.1), tip.at(-0.1, 0.0, -0.2)),
        pl.Revolute("Q", pl.ground.at(0.5, 0.2), bar.at(-0.4, 0.1)),
        pl.Prismatic("C", pl.ground.at(0.0, -0.5, 0.2), cart.at()),
        pl.Rod("rod", cart.at(0.1, 0.0), bar.at(0.2, 0.1), 0.7),
        pl.RelativeAngle("held", slider.at(), cart.at(), 0.3),
        pl.Gear("gear", "R.angle", "S.angle", -0.5),
        pl.PinInSlot("slot", bar.at(0.1, 0.0, 0.3), base.at(0.0, 0.2)),
    ]
    forces = [
        pl.Gravity((0.4, -9.0)),
        pl.Force("push", tip.at(0.1, 0.2, 0.3), (0.5, 0.2), 0.7, frame="body"),
        pl.Torque("turn", arm.at(), 0.4, base.at()),
        pl.TorsionalSpringDamper("coil", arm.at(0, 0, 0.2), base.at(0, 0, 0.5), 2.0, 0.3, 0.1, pull),  # reversed
        pl.TorsionalSpringDamper("spiral", pl.ground.at(0, 0, 0.2), base.at(0, 0, 0.5), 1.5, 0.2, 0.3),
        pl.Bushing("bush", base.at(0, 0, 0.2), tip.at(0, 0, 0.1), (3.0, 2.0, 0.5), (0.1, 0.2, 0.3)),
        pl.PlaneContact("contact", pl.ground.at(0, -1.0, 0.1), cart.at(0.1, 0.0), 50.0, 1.5, 0.1, friction=0.3),
        pl.SpringDamper("rope", base.at(0, 1), bar.at(0.1), 3.0, 0.2, 0.4, pull),
        pl.PointDrag("drag", tip.at(0.3), 0.2, 0.1),
        pl.JointSpringDamper("spring", "S.displacement", 4.0, 0.1, 0.2),
    ]
    return pl.Mechanism(
        bodies, joints, forces, floating=True, coordinates=coordinates,
        cuts=["slot"] if coordinates == "joint" else (),
    )  # fmt: skip


def sketch() -> pl.Mechanism:
    """Bodies in absolute coordinates that no joint holds in the plane: a pin in a slot, a rod, a point, an angle."""
    slot, pin, swing, hung = (pl.Body(name, 1.0, 0.2, (0.1 * k, 0.1, 0.2)) for k, name in enumerate("spwh"))
    joints = [
        pl.Revolute("R", pl.ground.at(0.1, 0.0, 0.2), slot.at(-0.3, 0.0, 0.3)),
        pl.PinInSlot("S", slot.at(0.1, 0.1, 0.3), pin.at(0.1, 0.0)),
        pl.Rod("rod", pin.at(0.0, 0.2), swing.at(0.3, 0.0), 0.5),
        pl.PointConstraint("point", swing.at(-0.1, 0.0, 0.3), hung.at(0.2, 0.0), without="y"),
        pl.RelativeAngle("held", hung.at(0.0, 0.0, 0.3), slot.at(), 0.4),
    ]
    forces = [pl.Gravity(), pl.JointSpringDamper("spring", "p.theta", 2.0, 0.3, 0.1)]
    drivers = [pl.Driver("motor", "R.angle", lambda t: 0.4 + 0.3 * jnp.sin(t))]
    return pl.Mechanism([slot, pin, swing, hung], joints, forces, drivers, floating=True)


def moving(mechanism: pl.Mechanism) -> mbd.State:
    """An assembled state with speeds that keep the loops closed."""
    state = mbd.assemble(mechanism)
    at = mbd.Equations(mechanism).at(state.t, state.q)
    C, v = np.asarray(at.jacobian), np.random.default_rng(3).normal(size=mechanism.nv)
    v = v - np.linalg.pinv(C) @ np.asarray(at.velocity(jnp.asarray(v)))
    return mbd.State(state.t, state.q, jnp.asarray(v), mechanism.layout)


# Names in space of the rates of `bench`.
RATES = {"base.vx": "base_plane.x_rate", "base.vy": "base_plane.y_rate", "base.omega": "base_plane.angle_rate"}
RATES["S.displacement_rate"] = "S_slide.displacement_rate"


@pytest.mark.parametrize("make", [pytest.param(bench, marks=pytest.mark.slow), sketch])
def test_accelerations_with_closed_loops_are_the_same(make: Any) -> None:
    mechanism = make()
    state = moving(mechanism)
    spatial, there = mbd.in_space(mechanism), mbd.state_in_space(mechanism, state)
    rows = mbd.Equations(spatial).at(there.t, there.q)
    np.testing.assert_allclose(np.asarray(rows.position()), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.asarray(rows.velocity(there.v)), 0.0, atol=1e-9)
    here, found = (
        accelerations_here(m, np.asarray(s.q)[None], np.asarray(s.v)[None])[0]
        for m, s in ((mechanism, state), (spatial, there))
    )
    if make is bench:
        assert spatial.nv == mechanism.nv
        expected = {RATES.get(name, name): value for name, value in here.items()}
    else:
        assert sorted(joint.name for joint in spatial.joints if isinstance(joint, sp.Planar)) == [
            "h_plane",
            "p_plane",
            "w_plane",
        ]
        expected = {name.replace("omega", "omega_z"): value for name, value in here.items()}
        expected |= {f"{body}.{rest}": 0.0 for body in "spwh" for rest in ("vz", "omega_x", "omega_y")}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-8, err_msg=name)
    np.testing.assert_allclose(mbd.read(spatial, there, "R.angle"), mbd.read(mechanism, state, "R.angle"), atol=1e-12)


def test_states_controllers_and_sensors_are_the_same() -> None:
    """A motor with a current, a controller of an angle and of a body's rate, and sensors, which have a z in space."""
    rod = pl.Body("rod", 1.0, 0.1, (0.5, 0.0, 0.0))
    mechanism = pl.Mechanism(
        [rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5))],
        [pl.DCMotor("motor", "O.angle", 3.0, resistance=1.0, inductance=0.2, constant=0.3, current=0.7)],
        sensors=[pl.Point("tip", rod.at(0.5)), pl.Scaled("encoder", "rod.theta", 2.0)],
        controllers=[pl.Controller("law", ["rod.theta", "rod.omega"], _law, "motor.voltage")],
        coordinates="joint",
    )  # fmt: skip
    state = mbd.State(jnp.zeros(()), jnp.array([0.3]), jnp.array([0.2]), mechanism.layout, z=mechanism.z)
    spatial, there = mbd.in_space(mechanism), mbd.state_in_space(mechanism, state)
    np.testing.assert_array_equal(there.z, [0.7])
    names = ("law.output", "encoder", "tip")
    expected, found = mbd.read(mechanism, state, names), mbd.read(spatial, there, names)
    for name in ("law.output", "encoder"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)
    np.testing.assert_allclose(found["tip"], [*expected["tip"], 0.0], atol=1e-15)


def _law(t: Any, u: Any, parameters: Any) -> Any:
    return -2.0 * u[0] - 0.5 * u[1]


def test_numbers_stay_differentiable() -> None:
    """Derivatives of numbers in space by those in the plane, in both modes."""

    def number(mass: Any, angle: Any) -> Any:
        rod = pl.Body("rod", mass, 0.1 * mass, (0.0, 0.0, angle))
        hinge = pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0, angle))
        spiral = pl.TorsionalSpringDamper("spiral", rod.at(0.0, 0.0, 2.0 * angle), pl.ground.at(), mass)
        made = mbd.in_space(pl.Mechanism([rod], [hinge], [spiral], coordinates="joint"))
        spring = made["spiral"]
        turn = made["O"].b.local.rotation[1, 0] + sp.rotation.matrix(made["rod"].pose[3:])[1, 0]
        return made["rod"].inertia[2, 2] * turn + spring.stiffness * spring.free_position

    def expected(mass: Any, angle: Any) -> Any:
        return 0.2 * mass * jnp.sin(angle) - mass * angle  # θ_ground − θ_rod − 2 angle = −c + angle − 2 angle

    np.testing.assert_allclose(number(2.0, 0.4), expected(2.0, 0.4), rtol=1e-12)
    for derivative in (jax.grad, jax.jacfwd):
        found = derivative(number, argnums=(0, 1))(2.0, 0.4)
        np.testing.assert_allclose(found, jax.grad(expected, argnums=(0, 1))(2.0, 0.4), rtol=1e-10)


def test_parts_without_counterpart_are_named() -> None:
    rod = pl.Body("rod", 1.0, 0.1)
    O = pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0, 0.1))

    def refuse(text: str, joints: Any = (), **parts: Any) -> None:
        with pytest.raises(MechanismError, match=text):
            mbd.in_space(pl.Mechanism([rod], [O, *joints], **parts))

    law = pl.Force("law", rod.at(), lambda t, frame, rate: frame.position)
    refuse("in_space: Force 'law' is a law of the plane", forces=[law])
    refuse(
        "Driver 'D' refers to 'rod.theta', and bodies in space have no angle",
        drivers=[pl.Driver("D", "rod.theta", 0.1)],
    )
    refuse("LoadFriction 'pin' rubs by the load", forces=[pl.LoadFriction("pin", "O.angle", 0.3, radius=0.1)])
    refuse("AngleBetween 'a' is a law", sensors=[pl.AngleBetween("a", pl.ground.at(), rod.at())])
    own = pl.Constraint("own", lambda t, frames, p: frames[1].position[:1], pl.ground.at(), rod.at())
    refuse("Constraint 'own' is defined in the plane", [own])
    other = pl.Body("other", 1.0, 0.1)
    coil = pl.TorsionalSpringDamper("coil", rod.at(), other.at(), 1.0)
    joints = [O, pl.Revolute("Q", pl.ground.at(), other.at(0.1))]
    with pytest.raises(MechanismError, match="'coil' turns 'other' against 'rod', and there is no Revolute between"):
        mbd.in_space(pl.Mechanism([rod, other], joints, [coil]))
    assert mbd.in_space(spatial := mbd.in_space(pl.Mechanism([rod], [O]))) is spatial
