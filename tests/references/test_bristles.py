"""Friction and springs that remember: LuGre's bristles against published numbers, Bouc and Wen's spring against its
loading and unloading curves."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl

# A mass that a spring pulls over the ground, which sticks and slips: after 25 s, Exudyn's `lugreFrictionODE1` (BSD) by
# an explicit method of order 5; an implicit one and one of order 8 agree to 1e-10.
X, V, Z = 1.908839199226505, 9.424154590959904e-6, 1.1816795455868868e-5
STIFFNESS, BRISTLES = 2.0, 1e5
NOW = jnp.zeros(())


def pulled(coordinates: str, coulomb: Any = 1.0) -> pl.Mechanism:
    mass = pl.Body("mass", 1.0, 1.0)
    friction = pl.LuGreFriction(
        "friction", "rail.displacement", coulomb, BRISTLES, bristle_damping=np.sqrt(BRISTLES), viscous=0.4,
        breakaway=0.5, stribeck=0.001,
    )  # fmt: skip
    spring = pl.JointForce("spring", "rail.displacement", lambda t, x, *_: STIFFNESS * (0.1 * t - x))
    rail = pl.Prismatic("rail", pl.ground.at(), mass.at())
    return pl.Mechanism([mass], [rail], [friction, spring], coordinates=coordinates)


def after(coordinates: str, end: float, coulomb: Any = 1.0, **settings: Any) -> mbd.Solution:
    mechanism = pulled(coordinates, coulomb)
    start = mbd.assemble(mechanism, {"rail.displacement": 0.0})
    return mbd.simulate(mechanism, start, np.asarray([0.0, end]), solver="stiff", **settings)


@pytest.mark.parametrize("coordinates", ["joint", pytest.param("absolute", marks=pytest.mark.slow)])
def test_stick_and_slip_after_25_seconds(coordinates: str) -> None:
    solution = after(coordinates, 25.0, rtol=1e-9, atol=1e-11)
    assert float(solution["rail.displacement"][-1]) == pytest.approx(X, abs=1e-8)
    assert float(solution["rail.displacement_rate"][-1]) == pytest.approx(V, abs=1e-10)
    assert float(solution["friction.deflection"][-1]) == pytest.approx(Z, abs=1e-10)
    assert int(solution.stats["num_steps"]) < 1500
    assert solution.engine != "diffrax"
    friction = -(BRISTLES * Z + np.sqrt(BRISTLES) * V * (1 - Z * BRISTLES / 1.5) + 0.4 * V)
    assert float(solution["friction.effort"][-1]) == pytest.approx(friction, rel=1e-4)
    assert solution.mechanism.layout.z.units == ("m",)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_by_the_friction(mode: Any) -> None:
    """Through sticking, slipping and sticking again, against differences."""

    def end(coulomb: Any) -> Any:
        solution = after("joint", 8.0, coulomb, rtol=1e-10, atol=1e-12)
        return jnp.stack([solution["rail.displacement"][-1], solution["friction.deflection"][-1]])

    found, h = mode(end)(jnp.asarray(1.0)), 1e-4
    expected = (end(1.0 + h) - end(1.0 - h)) / (2 * h)
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-9)
    assert abs(float(found[0])) > 0.1


def test_bristles_that_slip_at_a_constant_rate() -> None:
    friction = pl.LuGreFriction("friction", "rail.displacement", 1.0, 1e3, 5.0, 0.4, 0.5, 0.2, deflection=2e-4)
    (slipping,) = friction.steady(NOW, NOW, jnp.asarray(-0.1))
    limit = 1.0 + 0.5 * np.exp(-0.25)
    assert float(slipping) == pytest.approx(-limit / 1e3)
    assert float(friction.steady(NOW, NOW, jnp.asarray(0.0))[0]) == 2e-4
    bent = pl.LuGreFriction("friction", "rail.displacement", 1.0, 1e3, 5.0, 0.4, 0.5, 0.2, deflection=slipping)
    assert float(bent.effort(NOW, NOW, jnp.asarray(-0.1))) == pytest.approx(limit + 0.04)
    assert float(bent.own_rates(NOW, NOW, jnp.asarray(-0.1))[0]) == pytest.approx(0.0, abs=1e-15)


def stretched(ts: np.ndarray, **numbers: Any) -> mbd.Solution:
    """A spring with hysteresis that a driver turns to and fro by .3 rad."""
    bar = pl.Body("bar", 1.0, 0.1)
    spring = pl.BoucWen("rubber", "O.angle", 5.0, 2.0, 0.1, **numbers)
    drive = pl.Driver("drive", "O.angle", lambda t: 0.3 * jnp.sin(t))
    mechanism = pl.Mechanism(
        [bar], [pl.Revolute("O", pl.ground.at(), bar.at())], [spring], [drive], coordinates="joint"
    )
    return mbd.simulate(mechanism, mbd.assemble(mechanism), ts, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [0.5, 0.8])
def test_loading_is_a_hyperbolic_tangent_and_unloading_begins_elastically(shape: float) -> None:
    """`dw/dφ = (1 − w²)/φ_y` while the angle grows, for any shape; while it shrinks `(1 + (2σ − 1) w²)/φ_y`, a straight
    line for σ = 1/2 and a tangent above."""
    ts = np.linspace(0.0, 2.0, 201)
    solution = stretched(ts, shape=shape)
    w, angle = (np.asarray(solution[name]) for name in ("rubber.hysteresis", "O.angle"))
    loading = ts <= np.pi / 2
    np.testing.assert_allclose(w[loading], np.tanh(angle[loading] / 0.1), atol=1e-8)
    most, back = np.tanh(0.3 / 0.1), (angle[~loading] - 0.3) / 0.1
    root = np.sqrt(2 * shape - 1)
    expected = np.tan(np.arctan(root * most) + root * back) / root if root else most + back
    np.testing.assert_allclose(w[~loading], expected, atol=1e-7)
    np.testing.assert_allclose(solution["rubber.effort"], -5.0 * angle - 2.0 * w, atol=1e-12)


def test_an_exponent_of_one_yields_exponentially() -> None:
    ts = np.linspace(0.0, 1.5, 16)
    solution = stretched(ts, exponent=1.0)
    np.testing.assert_allclose(
        solution["rubber.hysteresis"], 1 - np.exp(-np.asarray(solution["O.angle"]) / 0.1), atol=1e-8
    )


@pytest.mark.parametrize("mode", [jax.jacfwd, pytest.param(jax.jacrev, marks=pytest.mark.slow)])
def test_derivatives_by_the_exponent_at_rest_are_finite(mode: Any) -> None:
    """At `w = 0` a power of the exponent has a logarithm that is infinite."""

    def end(exponent: Any) -> Any:
        return stretched(np.asarray([0.0, 0.2]), exponent=exponent)["rubber.hysteresis"][-1]

    h = 1e-5
    expected = (float(end(2.0 + h)) - float(end(2.0 - h))) / (2 * h)
    assert float(mode(end)(jnp.asarray(2.0))) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"exponent": 0.5}, "exponent must be at least 1, got 0.5"),
        ({"shape": 0.4}, "shape must be at least 0.5, got 0.4"),
    ],
)
def test_shapes_that_gain_energy_are_refused(wrong: dict[str, float], text: str) -> None:
    with pytest.raises(mbd.MechanismError, match=text):
        pl.BoucWen("rubber", "O.angle", 5.0, 2.0, 0.1, **wrong)
