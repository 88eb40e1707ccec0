"""Quantities for designs, against formulas; and balanced linkages of the literature, found by `design`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import Bounded, Parameter
from jaxmbd.optimal_design import centre_of_mass, crank_margins, holding_effort, transmission_angle
from tests.optimal_design.linkages import arm, four_bar

LENGTHS = [2.0, 0.5, 1.5, 1.2]
ANGLES = np.linspace(-1.2, 1.3, 6)
MASS, LENGTH, HEIGHT, ALONG, GRAVITY = 2.0, 0.5, 0.3, 0.2, 9.81


def test_transmission_angle_is_that_of_the_law_of_cosines() -> None:
    mechanism, (g, c, k, r) = four_bar(LENGTHS), LENGTHS
    for angle in (0.0, 1.0, 3.0):
        state = mbd.assemble(mechanism, {"crank.theta": angle})
        diagonal = g**2 + c**2 - 2 * g * c * np.cos(angle)
        expected = np.arccos(abs(k**2 + r**2 - diagonal) / (2 * k * r))
        assert float(transmission_angle(mechanism, state, "C", "B", "D")) == pytest.approx(expected, rel=1e-9)


def test_crank_margins_are_positive_if_the_crank_turns_round() -> None:
    np.testing.assert_allclose(crank_margins(*LENGTHS), [0.2, 1.2, 1.8])
    assert float(jnp.min(crank_margins(2.0, 0.9, 1.5, 1.2))) < 0


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize(
    ("length", "text"),
    [
        (float("nan"), "crank_margins: crank must be finite, got nan"),
        (float("inf"), "crank_margins: crank must be finite, got inf"),
        (-0.5, r"crank_margins: crank must be positive \[m\] and finite, got -0.5"),
        (0.0, r"crank_margins: crank must be positive \[m\] and finite, got 0"),
        (0.5 + 0.1j, r"crank_margins: crank must be a real number, got \(0.5\+0.1j\)"),
        (np.complex128(0.5), "crank_margins: crank must be"),
        ("0.5", "crank_margins: crank must be a number, got '0.5'"),
        (None, "crank_margins: crank must be a number, got None"),
        ([0.5, 0.6], r"crank_margins: crank must be a number, got shape \(2,\)"),
    ],
)
def test_lengths_that_are_none_have_no_crank_margins(length: Any, text: str) -> None:
    with pytest.raises(mbd.MechanismError, match=text):
        crank_margins(2.0, length, 1.5, 1.2)


def test_traced_lengths_that_are_not_positive_have_no_positive_margins() -> None:
    """The formula alone would give `(1.2, 2.2, 2.8)` for a crank of −0.5 m, as for one that turns round."""
    margins = jax.jit(lambda crank: crank_margins(2.0, crank, 1.5, 1.2))
    np.testing.assert_allclose(margins(0.5), [0.2, 1.2, 1.8], rtol=1e-12)
    np.testing.assert_allclose(margins(-0.5), [-0.5, -0.5, -0.5], rtol=1e-12)
    assert np.isnan(margins(jnp.nan)).all()
    np.testing.assert_allclose(jax.jacfwd(margins)(0.5), [-1.0, -1.0, -1.0], rtol=1e-12)


def test_quantities_name_what_they_lack() -> None:
    mechanism = four_bar(LENGTHS)
    state = mbd.assemble(mechanism, {"crank.theta": 1.0})
    with pytest.raises(mbd.MechanismError, match="joint named 'X'"):
        transmission_angle(mechanism, state, "X", "B", "D")
    with pytest.raises(mbd.MechanismError, match="thta"):
        holding_effort(mechanism, state, "crank.thta")


def efforts(mechanism: pl.Mechanism, coordinate: str = "bar.theta") -> Array:
    """The efforts that hold a mechanism at the angles."""
    states = [mbd.assemble(mechanism, {coordinate: angle}, check=False) for angle in ANGLES]
    return jnp.stack([holding_effort(mechanism, state, coordinate) for state in states])


def test_holding_effort_of_an_arm_and_of_its_spring() -> None:
    """Without a spring it is `m g l cos θ`; a spring of zero free length takes off `k a b cos θ`."""
    for stiffness in (0.0, 70.0):
        expected = (MASS * GRAVITY * LENGTH - stiffness * HEIGHT * ALONG) * np.cos(ANGLES)
        found = efforts(arm(MASS, LENGTH, stiffness, HEIGHT, ALONG))
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_spring_that_balances_an_arm_at_all_angles() -> None:
    """`k = m g l / (a b)` with zero free length: Herder, *Energy-free systems* (thesis, Delft, 2001), the basic
    spring force balancer."""
    found = mbd.design(
        efforts, {"stiffness": Parameter(lambda m: m["spring"].stiffness, within=Bounded(1.0, 1e3), unit="N/m")},
        mechanism=arm(MASS, LENGTH, 100.0, HEIGHT, ALONG), starts=2, progress=False,
    )  # fmt: skip
    exact = MASS * GRAVITY * LENGTH / (HEIGHT * ALONG)
    assert float(found.values["stiffness"]) == pytest.approx(exact, rel=1e-8)
    assert found.objective < 1e-16


def parallelogram(values: dict[str, Any]) -> pl.Mechanism:
    """A parallelogram of two equal arms that carries a plate: all its weight is that of a mass at the arms' ends.

    One spring of zero free length, from a point above the first pin to a point along the first arm.
    """
    lower = pl.Body("lower", mass=1.0, inertia=0.02)
    upper = pl.Body("upper", mass=1.0, inertia=0.02, pose=(0.0, 0.3, 0.0))
    plate = pl.Body("plate", mass=3.0, inertia=0.05, pose=(0.8, 0.15, 0.0))
    pins = [
        pl.Revolute("A", pl.ground.at(0.0, 0.0), lower.at(-0.4, 0.0)),
        pl.Revolute("B", pl.ground.at(0.0, 0.3), upper.at(-0.4, 0.0)),
        pl.Revolute("C", lower.at(0.4, 0.0), plate.at(0.0, -0.15)),
        pl.Revolute("D", upper.at(0.4, 0.0), plate.at(0.0, 0.15)),
    ]
    spring = pl.SpringDamper("spring", pl.ground.at(0.0, values["height"]), lower.at(values["along"] - 0.4, 0.0), 400.0)
    return pl.Mechanism([lower, upper, plate], pins, [pl.Gravity(9.81), spring], coordinates="joint")


@pytest.mark.slow
def test_spring_that_balances_a_parallelogram() -> None:
    """The plate's weight acts at the ends of the arms, wherever its centre of mass lies, so that the linkage is an arm
    with `m l = (1 + 1) 0.4 + 3 · 0.8` (Herder 2001); many pairs `a b = m g l / k` balance it."""

    def held(mechanism: pl.Mechanism) -> Array:
        states = [
            mbd.assemble(mechanism, {"lower.theta": x}, guess={"upper.theta": x}, check=False) for x in (-0.6, 0.4, 1.0)
        ]
        return jnp.stack([holding_effort(mechanism, state, "lower.theta") for state in states])

    found = mbd.design(
        held, {"height": (0.1, 0.5), "along": (0.1, 0.7)}, mechanism=parallelogram, starts=3, progress=False
    )
    product = float(found.values["height"] * found.values["along"])
    assert product == pytest.approx((2 * 0.4 + 3 * 0.8) * 9.81 / 400.0, rel=1e-8)
    assert found.objective < 1e-14


def heavy_four_bar(values: dict[str, Any]) -> pl.Mechanism:
    """A four-bar whose crank and rocker carry counterweights behind their pins at the ground: mass times distance."""
    g, c, k, r = LENGTHS
    bodies = [
        pl.Body("crank", mass=1.0, inertia=1.0),
        pl.Body("coupler", mass=2.0, inertia=1.0),
        pl.Body("rocker", mass=1.5, inertia=1.0, pose=(0.0, 0.0, 1.5)),
    ]
    crank, coupler, rocker = bodies
    # Where the pins lie as seen from the centres of mass, which the counterweights move.
    s, u = values["crank"], values["rocker"]
    pins = [
        pl.Revolute("A", pl.ground.at(0.0, 0.0), crank.at(-s[0], -s[1])),
        pl.Revolute("B", crank.at(c - s[0], -s[1]), coupler.at(-0.6, -0.1)),
        pl.Revolute("C", coupler.at(k - 0.6, -0.1), rocker.at(r - u[0], -u[1])),
        pl.Revolute("D", pl.ground.at(g, 0.0), rocker.at(-u[0], -u[1])),
    ]
    return pl.Mechanism(bodies, pins, coordinates="joint")


def test_counterweights_that_balance_the_forces_of_a_four_bar() -> None:
    """The centre of mass stands still for `m₂ s₂ = −m₃ c (k − s₃)/k` and `m₄ s₄ = −m₃ r s₃/k`, with centres of mass as
    complex numbers in their links (Berkof, Lowen, J. Eng. Ind. 91 (1969), eqs. of the four-bar)."""

    def wandering(mechanism: pl.Mechanism) -> Array:
        states = [mbd.assemble(mechanism, {"crank.theta": x}, check=False) for x in np.arange(5) * 2 * np.pi / 5]
        centres = jnp.stack([centre_of_mass(mechanism, state) for state in states])
        return centres - jnp.mean(centres, axis=0, keepdims=True)

    free = Parameter(start=jnp.zeros(2), within=Bounded(-2.0, 2.0), unit="m")
    found = mbd.design(wandering, {"crank": free, "rocker": free}, mechanism=heavy_four_bar, starts=2, progress=False)
    (_, c, k, r), s3 = LENGTHS, 0.6 + 0.1j
    crank, rocker = -2.0 * c * (1 - s3 / k) / 1.0, -2.0 * r * s3 / k / 1.5
    np.testing.assert_allclose(found.values["crank"], [crank.real, crank.imag], atol=1e-7)
    np.testing.assert_allclose(found.values["rocker"], [rocker.real, rocker.imag], atol=1e-7)
    assert found.objective < 1e-16
