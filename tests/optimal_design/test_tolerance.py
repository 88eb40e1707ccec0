"""Tolerance analysis against formulas and against itself: linear theory and samples."""

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.optimal_design import tolerance_analysis
from tests.optimal_design.linkages import four_bar

ANGLES = np.linspace(0.3, 2.1, 4)
NAMES: tuple[str, ...] = ("ground", "crank", "coupler", "rocker")
LENGTHS: dict[str, float] = dict(zip(NAMES, (2.0, 0.5, 1.5, 1.2), strict=True))
VARIABLES = {name: mbd.identification.Parameter(start=value) for name, value in LENGTHS.items()}


def of_lengths(values: dict[str, Any]) -> pl.Mechanism:
    return four_bar([values[name] for name in NAMES])


def rocker(mechanism: pl.Mechanism) -> Array:
    """The rocker's angle at each crank angle."""
    states = [mbd.assemble(mechanism, {"crank.theta": a}, check=False) for a in ANGLES]
    return jnp.stack([mbd.read(mechanism, state, "rocker.theta") for state in states])


def closed_form(values: dict[str, float]) -> np.ndarray:
    """The same by the law of cosines."""
    g, c, k, r = (values[name] for name in NAMES)
    x, y = c * np.cos(ANGLES) - g, c * np.sin(ANGLES)
    distance = np.hypot(x, y)
    return np.arctan2(y, x) - np.arccos((r**2 + distance**2 - k**2) / (2 * r * distance))


def test_linear_theory_and_samples_agree_for_small_tolerances() -> None:
    widths: dict[str, float] = {"ground": 1e-3, "crank": 2e-3, "coupler": 1e-3, "rocker": 5e-4}
    found = tolerance_analysis(rocker, widths, mechanism=of_lengths, variables=VARIABLES, samples=4000)
    np.testing.assert_allclose(found.nominal, closed_form(LENGTHS), atol=1e-9)
    slopes = []
    for name in sorted(NAMES):
        ahead, behind = (closed_form({**LENGTHS, name: LENGTHS[name] + h}) for h in (1e-6, -1e-6))
        slopes.append((ahead - behind) / 2e-6)
    np.testing.assert_allclose(found.slopes, np.stack(slopes, axis=-1), atol=1e-7)
    ordered = np.array([widths[name] for name in sorted(NAMES)])
    np.testing.assert_allclose(found.worst_case, np.abs(found.slopes) @ ordered)
    np.testing.assert_allclose(found.sigma, np.sqrt(found.slopes**2 @ (ordered / 3) ** 2))
    np.testing.assert_allclose(found.spread, found.sigma, rtol=0.05)  # of 4000 samples: 1.1 % standard error
    assert np.all(np.abs(found.mean - found.nominal) < 5 * found.sigma / np.sqrt(4000))
    assert found.contributions().sum() == pytest.approx(1.0)
    assert found.failed == 0
    assert re.search(r"crank +±0.002", repr(found))


def test_uniform_deviations_stay_within_the_worst_case() -> None:
    widths: dict[str, float] = dict.fromkeys(NAMES, 1e-3)
    found = tolerance_analysis(
        rocker, widths, mechanism=of_lengths, variables=VARIABLES, samples=500, distribution="uniform"
    )
    assert np.all(np.abs(found.samples - found.nominal) <= 1.001 * found.worst_case)
    np.testing.assert_allclose(found.spread, found.sigma, rtol=0.1)


def test_a_scalar_quantity() -> None:
    """The perimeter is linear: its worst case is the sum of all tolerances, and the two theories agree."""
    found = tolerance_analysis(
        lambda m: m["D"].markers[0].position[0] + 2 * m["B"].markers[0].position[0], dict.fromkeys(NAMES, 0.1),
        mechanism=of_lengths, variables=VARIABLES, samples=2000,
    )  # fmt: skip
    assert found.nominal.shape == found.worst_case.shape == found.spread.shape == ()
    assert float(found.worst_case) == pytest.approx(0.1 + 0.2)
    assert float(found.sigma) == pytest.approx(np.hypot(0.1, 0.2) / 3)
    assert float(found.spread) == pytest.approx(float(found.sigma), rel=0.05)
    np.testing.assert_allclose(found.contributions(), [0.0, 0.8, 0.2, 0.0], atol=1e-12)  # by name
    assert "80.0 %" in repr(found)
    one = tolerance_analysis(  # a name may look like that of a component
        lambda m: m["B"].markers[0].position[0], {"crank[0]": 0.1}, samples=10,
        mechanism=lambda p: of_lengths(LENGTHS | {"crank": p["crank[0]"]}), variables={"crank[0]": VARIABLES["crank"]},
    )  # fmt: skip
    assert one.labels == ("crank[0]",)


def test_samples_that_cannot_be_assembled_are_counted() -> None:
    """At 2.1 rad the coupler of 1.6 reaches; with deviations of half a metre it often does not."""
    found = tolerance_analysis(
        rocker, dict.fromkeys(NAMES, 1.5), mechanism=of_lengths, variables=VARIABLES, samples=200
    )
    assert 0.05 < found.failed < 0.95
    assert np.isfinite(found.spread).all()


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"tolerances": {"crnk": 1e-3}}, "variable named 'crnk'"),
        ({"tolerances": {"crank": 1e-3}}, "is missing"),
        ({"tolerances": dict.fromkeys(NAMES, 0.0)}, "greater than zero"),
        ({"samples": 1}, "samples"),
        ({"distribution": "beta"}, "distribution named 'beta'"),
    ],
)
@pytest.mark.usefixtures("as_a_user_runs_it")
def test_wrong_arguments(changed: dict[str, Any], text: str) -> None:
    given = {"tolerances": dict.fromkeys(NAMES, 1e-3), **changed}
    with pytest.raises(mbd.MechanismError, match=text):
        tolerance_analysis(rocker, mechanism=of_lengths, variables=VARIABLES, **given)


def test_numbers_by_name_are_those_by_function() -> None:
    """Also where `tolerances` names them, by a pattern."""
    linkage = of_lengths(LENGTHS)
    widths = {"B.a.position": 1e-3, "coupler.mass": 1e-2, "rocker.mass": 1e-2, "crank.mass": 1e-2}
    where = {"B.a.position": lambda m: m["B"].a.position} | {
        f"{name}.mass": lambda m, name=name: m[name].mass for name in ("coupler", "rocker", "crank")
    }
    wanted = tolerance_analysis(corner, widths, mechanism=linkage, variables=where, samples=20)
    short = {"B.a.position": 1e-3, "*.mass": 1e-2}
    for given, variables in ((widths, list(widths)), (widths, None), (short, None)):
        found = tolerance_analysis(corner, given, mechanism=linkage, variables=variables, samples=20)
        assert found.labels == wanted.labels
        np.testing.assert_allclose(found.slopes, wanted.slopes, rtol=1e-14)
        np.testing.assert_allclose(found.samples, wanted.samples, rtol=1e-14)
    assert np.abs(wanted.slopes).max() > 0.1
    with pytest.raises(mbd.MechanismError, match=r"Did you mean 'coupler.mass'"):
        tolerance_analysis(corner, {"coupler.mas": 1e-3}, mechanism=linkage)
    with pytest.raises(mbd.MechanismError, match="a function that builds the mechanism needs variables"):
        tolerance_analysis(corner, {"coupler.mass": 1e-3}, mechanism=of_lengths)


def corner(mechanism: pl.Mechanism) -> Array:
    """Two numbers that need no assembly."""
    masses = sum(body.mass for body in mechanism.bodies)
    return masses * mechanism["B"].a.position ** 2 + mechanism["coupler"].mass ** 2
