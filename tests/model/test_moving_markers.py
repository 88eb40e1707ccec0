"""Markers that move along their bodies: feet of springs and pivots whose place is a function of time."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp

MASS, STIFFNESS, DAMPING, FREE = 2.0, 300.0, 7.0, 0.5
T = 0.3  # [s], where nothing of the foot's motion is zero


class Road(eqx.Module):
    """A place that goes up and down, with an amplitude [m] of its own."""

    amplitude: Array
    dim: int = eqx.field(static=True)

    def __call__(self, t: Array) -> Array:
        return jnp.zeros(self.dim).at[-1].set(self.amplitude * jnp.sin(5 * t))


def heaving(space: Any, amplitude: Any, coordinates: str = "absolute") -> Any:
    """A mass that slides upright on a spring and damper whose foot follows the road."""
    dim = 2 if space is pl else 3
    body = space.Body("mass", MASS, 1.0 if dim == 2 else (1.0, 1.0, 1.0), (0.0, 0.7, 0.0) if dim == 2 else (0, 0, 0.7))
    foot = space.ground.moving(Road(jnp.asarray(amplitude), dim))
    if dim == 2:
        slide = pl.Prismatic("slide", pl.ground.at(0, 0, np.pi / 2), body.at(0, 0, np.pi / 2))
    else:
        slide = sp.Prismatic("slide", sp.ground.at(), body.at())
    spring = space.SpringDamper("spring", foot, body.at(), STIFFNESS, FREE, DAMPING)
    sensors = [
        space.Point("foot", foot),
        space.PointVelocity("speed", foot),
        space.PointAcceleration("change", foot),
    ]
    return space.Mechanism([body], [slide], [space.Gravity(9.81), spring], sensors=sensors, coordinates=coordinates)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
@pytest.mark.parametrize("space", [pl, sp])
def test_a_foot_moves_and_its_speed_is_felt_by_the_damper(space: Any, coordinates: str) -> None:
    mechanism = heaving(space, 0.05, coordinates)
    up = "y" if space is pl else "z"
    state = mbd.assemble(mechanism, {"slide.displacement": 0.7}, speeds={"slide.displacement": 0.4}, t=T)
    names = [f"mass.a{up}", "spring.length", "spring.tension", "foot", "speed", "change"]
    found = mbd.read(mechanism, state, names)
    road, speed, change = 0.05 * np.sin(5 * T), 0.25 * np.cos(5 * T), -1.25 * np.sin(5 * T)
    tension = STIFFNESS * (0.7 - road - FREE) + DAMPING * (0.4 - speed)
    np.testing.assert_allclose(found["spring.length"], 0.7 - road, rtol=1e-12)
    np.testing.assert_allclose(found["spring.tension"], tension, rtol=1e-12)
    np.testing.assert_allclose(found[f"mass.a{up}"], -tension / MASS - 9.81, rtol=1e-11)
    np.testing.assert_allclose([found[n][-1] for n in names[3:]], [road, speed, change], rtol=1e-12)


def steady(amplitude: Any) -> Array:
    """Where a mass on a moving foot is after a second, from rest in balance: of a linear oscillator."""
    mechanism = heaving(pl, amplitude, "joint")
    balance = FREE - MASS * 9.81 / STIFFNESS
    state = mbd.assemble(mechanism, {"slide.displacement": balance}, speeds={"slide.displacement": 0.0})
    return mbd.simulate(mechanism, state, jnp.array([0.0, 0.5, 1.0]), accuracy="high")["slide.displacement"]


def test_motion_on_a_moving_foot_and_its_derivative() -> None:
    """The response of a linear oscillator, `m ẍ + c ẋ + k x = k s + c ṡ`, by its closed form; linear in the road."""
    amplitude, omega = 0.05, 5.0
    decay, proper = DAMPING / (2 * MASS), STIFFNESS / MASS
    damped = np.sqrt(proper - decay**2)
    gain = amplitude * (STIFFNESS + 1j * DAMPING * omega) / (STIFFNESS - MASS * omega**2 + 1j * DAMPING * omega)
    t = np.array([0.0, 0.5, 1.0])
    forced = np.imag(gain * np.exp(1j * omega * t))
    start, rate = -np.imag(gain), -np.real(gain) * omega
    free = np.exp(-decay * t) * (start * np.cos(damped * t) + (rate + decay * start) / damped * np.sin(damped * t))
    balance = FREE - MASS * 9.81 / STIFFNESS
    found = steady(jnp.asarray(amplitude))
    np.testing.assert_allclose(found, balance + forced + free, atol=1e-9)
    slope = (forced + free)[-1] / amplitude
    np.testing.assert_allclose(jax.grad(lambda a: steady(a)[-1])(jnp.asarray(amplitude)), slope, rtol=1e-7)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
@pytest.mark.parametrize("joint", [pl.Revolute, pl.Rod, sp.Spherical])
def test_a_pivot_that_moves(joint: Any, coordinates: str) -> None:
    """A pendulum on it: consistent speeds, and `(I + m l²) θ̈ = −m l (g + s̈) cos θ`."""
    space, dim = (sp, 3) if joint is sp.Spherical else (pl, 2)
    length, inertia = 0.4, 0.03
    moments = inertia if dim == 2 else (inertia, inertia, inertia)
    body = space.Body("bob", MASS, moments, (length, 0.0, 0.0))
    pivot = space.ground.moving(Road(jnp.asarray(0.05), dim))
    own = {"length": length} if joint is pl.Rod else {}
    hang = joint("hang", pivot, body.at() if joint is pl.Rod else body.at(-length), **own)
    mechanism = space.Mechanism([body], [hang], [space.Gravity(9.81)], coordinates=coordinates)
    assert mbd.Equations(mechanism).m > 0  # no joint of the tree
    state = mbd.assemble(mechanism, t=T)
    place = mbd.read(mechanism, state, "bob.position")
    road, speed, change = 0.05 * np.sin(5 * T), 0.25 * np.cos(5 * T), -1.25 * np.sin(5 * T)
    sine, cosine = (place[-1] - road) / length, place[0] / length
    np.testing.assert_allclose(sine**2 + cosine**2, 1.0, atol=1e-9)
    velocity, acceleration = (mbd.read(mechanism, state, f"bob.{n}") for n in ("velocity", "acceleration"))
    turning = inertia * (joint is not pl.Rod) + MASS * length**2
    rate = (velocity[-1] - speed) / (length * cosine)
    np.testing.assert_allclose(velocity[0], -length * rate * sine, atol=1e-9)
    alpha = -MASS * length * (9.81 + change) * cosine / turning
    expected = change + length * (alpha * cosine - rate**2 * sine)
    np.testing.assert_allclose(acceleration[-1], expected, rtol=1e-8)


def test_a_marker_that_moves_along_a_turning_body() -> None:
    """Velocity and acceleration with Coriolis' part, against differences of its place along a motion."""
    body = sp.Body("b", 1.0, (0.1, 0.2, 0.25), (0.1, 0.2, 0.3))
    runner = body.moving(lambda t: (0.3 * jnp.cos(2 * t), 0.2 * t, 0.1 * jnp.sin(3 * t)), axis="x")
    sensors = [sp.Point("p", runner), sp.PointVelocity("v", runner), sp.PointAcceleration("a", runner)]
    mechanism = sp.Mechanism([body], [], [sp.Gravity()], sensors=sensors, floating=True)
    speeds = dict(zip(mechanism.speed_names, (0.3, -0.2, 0.5, 1.0, 2.0, -1.5), strict=True))
    h = 1e-3
    run = mbd.simulate(
        mechanism, mbd.assemble(mechanism, speeds=speeds), jnp.arange(5) * h, rtol=1e-13, atol=1e-13
    )  # fmt: skip
    p = np.asarray(run["p"])
    np.testing.assert_allclose(run["v"][2], np.array([1, -8, 0, 8, -1]) @ p / (12 * h), atol=1e-8)
    np.testing.assert_allclose(run["a"][2], np.array([-1, 16, -30, 16, -1]) @ p / (12 * h**2), atol=1e-5)


@pytest.mark.usefixtures("as_a_user_runs_it")
def test_moving_markers_that_are_wrong() -> None:
    with pytest.raises(
        mbd.MechanismError, match=r"MovingMarker on 'ground': what the function motion returns must have"
    ):
        pl.ground.moving(lambda t: (t, t, t))
    with pytest.raises(mbd.MechanismError, match="MovingMarker on 'ground': motion must be a function of time"):
        sp.ground.moving((0.0, 0.0, 0.0))  # pyright: ignore
    with pytest.raises(mbd.MechanismError, match="Marker on 'rod': the Euler parameters of its rotation are all zero"):
        sp.MovingMarker("rod", lambda t: (t, t, t), (0.0, 0.0, 0.0, 0.0))
    with pytest.raises(mbd.MechanismError, match="Marker on 'rod': angle must be finite, got nan"):
        pl.MovingMarker("rod", lambda t: (t, t), jnp.nan)
    body = sp.Body("b", 1.0, (0.1, 0.2, 0.25))
    hinge = sp.Revolute("O", sp.ground.moving(lambda t: (t, 0.0, 0.0)), body.at())
    with pytest.raises(mbd.MechanismError, match="Revolute 'O' counts turns and cannot have a MovingMarker"):
        sp.Mechanism([body], [hinge])


def test_a_joint_refuses_a_marker_that_jumps() -> None:
    def held(motion: Any) -> sp.Mechanism:
        body = sp.Body("b", 1.0, (0.1, 0.2, 0.25))
        return sp.Mechanism([body], [sp.Spherical("O", sp.ground.moving(motion), body.at())])

    sudden, rest = mbd.Piecewise([1.0], [np.zeros(3), lambda t: (t - 1, 0.0, 0.5 * t)], order=2), np.zeros((2, 3))
    with pytest.raises(mbd.MechanismError, match=r"Spherical 'O', MovingMarker on 'ground': .* derivative 1 of its"):
        held(mbd.Table([0.0, 1.0], rest))
    with pytest.raises(mbd.MechanismError, match=r"at 1 s the position\[2\] jumps from 0 to 0\.5; pieces"):
        held(sudden)
    held(mbd.Piecewise([1.0], [np.zeros(3), lambda t: ((t - 1) ** 2, 0.0, 0.0)], order=2))
    body = sp.Body("b", 1.0, (0.1, 0.2, 0.25))
    sp.Mechanism([body], forces=[sp.SpringDamper("s", sp.ground.moving(sudden), body.at(), 1.0)])  # a force may jump
