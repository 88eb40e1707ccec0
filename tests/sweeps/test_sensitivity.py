"""Sensitivities of functions whose indices and derivatives are known in closed form."""

import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.sweeps import local_sensitivities, sensitivity_indices
from tests.crank_rocker import four_bar, rocker_angle
from tests.sweeps.functions import closure, period

A, B = 7.0, 0.1  # the usual constants of Ishigami's function
ISHIGAMI: dict[str, tuple[float, float]] = dict.fromkeys(("x1", "x2", "x3"), (-np.pi, np.pi))


def ishigami(x: dict[str, Any]) -> dict[str, Any]:
    return {"y": jnp.sin(x["x1"]) + A * jnp.sin(x["x2"]) ** 2 + B * x["x3"] ** 4 * jnp.sin(x["x1"])}


def test_sobol_indices_of_ishigamis_function() -> None:
    """Ishigami and Homma (1990): variances of the parts in closed form."""
    found = sensitivity_indices(ishigami, ISHIGAMI, "y", count=2048, seed=1)
    V1, V2, V13 = 0.5 * (1 + B * np.pi**4 / 5) ** 2, A**2 / 8, B**2 * np.pi**8 * (1 / 18 - 1 / 50)
    V = V1 + V2 + V13
    for index, exact in (("S1", [V1, V2, 0.0]), ("ST", [V1 + V13, V2, V13])):
        errors = np.abs(found.indices[index] - np.array(exact) / V)
        assert np.all(errors < 1.5 * found.confidence[index] + 0.005)
        assert np.all(errors < 0.03)
    assert found.variants == 2048 * 5
    assert re.search(r"x2 +0\.4\d+ ± 0\.0\d+", str(found))


def test_morris_effects_of_a_linear_function() -> None:
    """They are the slopes times the ranges, without any spread."""
    ranges = {"a": (0.0, 1.0), "b": (0.0, 2.0), "c": (0.0, 1.0)}
    function = lambda x: {"y": 3 * x["a"] - 2 * x["b"] + 0 * x["c"]}  # noqa: E731
    found = sensitivity_indices(function, ranges, "y", count=10, seed=1, method="morris")
    np.testing.assert_allclose(found.indices["mu_star"], [3.0, 4.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found.indices["mu"], [3.0, -4.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(found.indices["sigma"], 0.0, atol=1e-12)
    assert found.variants == 10 * 4


def test_failed_variants_are_counted() -> None:
    ranges = {"crank": (0.1, 0.9), "angle": (0.0, 6.0)}
    with pytest.raises(
        mbd.SolveError, match=r"\d+ of 64 variants of .* failed or gave no finite 'rocker_angle', the first"
    ):
        sensitivity_indices(
            lambda x: closure({**x, "coupler": 0.8, "rocker": 0.6, "base": 0.9}),
            ranges, "rocker_angle", count=16, seed=0,
        )  # fmt: skip


def test_the_output_is_checked_before_the_sweep(tmp_path: Path) -> None:
    with pytest.raises(mbd.MechanismError, match="no output named 'z'"):
        sensitivity_indices(ishigami, ISHIGAMI, "z", count=4, seed=0, store=tmp_path / "a.zarr")
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"count": 100}, "must be a power of two for Sobol' indices, got 100"),
        ({"output": "z"}, "There is no output named 'z'"),
        ({"function": lambda x: {"y": jnp.stack([x["x1"]] * 2)}}, "'y' has shape (2,)"),
        (
            {"function": lambda x: {"y": 0 * x["x1"]}},
            "for all variants: it depends on none of the numbers x1, x2, x3",
        ),
        ({"ranges": {"x1": (1.0, 1.0)}}, "the range of 'x1' must be a pair"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], said: str) -> None:
    given = {"function": ishigami, "ranges": ISHIGAMI, "output": "y", "count": 4, "seed": 0, **arguments}
    with pytest.raises(mbd.MechanismError, match=re.escape(said)):
        sensitivity_indices(**given)


def test_local_sensitivities_of_a_pendulum() -> None:
    """`T = 2π √(l/g)`: elasticities of ±1/2."""
    found = local_sensitivities(period, {"length": 1.3, "g": 9.81})
    T = 2 * np.pi * np.sqrt(1.3 / 9.81)
    assert found.values["period"] == pytest.approx(T, rel=1e-14)
    assert found.derivatives["period"] == pytest.approx({"length": T / 2.6, "g": -T / 19.62}, rel=1e-13)
    assert found.elasticities["multiples[2]"] == pytest.approx({"length": 0.5, "g": -0.5}, rel=1e-13)
    assert np.isnan(found.elasticities["multiples[0]"]["g"])
    assert re.search(r"period +g +9\.81 +-0\.1\d+ +-0\.5$", str(found))


def test_local_sensitivities_with_units() -> None:
    """The table and the dataset give the units of both and of the derivative, and the same numbers."""
    units = {"length": "m", "g": "m/s²", "period": "s", "multiples": "s"}
    point = {"length": 1.3, "g": 9.81}
    found = local_sensitivities(period, point, units=units)
    text, data = str(found), found.dataset()
    T = 2 * np.pi * np.sqrt(1.3 / 9.81)
    assert re.search(r"period +length +1\.3 m +0\.87\d+ s/m +0\.5", text)
    assert re.search(r"multiples\[1\] +g +9\.81 m/s² +-0\.11\d+ s/\(m/s²\) +-0\.5", text)
    assert data["derivative_unit"].sel(output="multiples[2]", number="g") == "s/(m/s²)"
    assert data["output_unit"].sel(output="multiples[2]") == "s"
    assert float(data["derivative"].sel(output="multiples[2]", number="g")) == pytest.approx(-T / 9.81, rel=1e-13)
    np.testing.assert_allclose(data["elasticity"].sel(output="period"), [0.5, -0.5], rtol=1e-13)
    np.testing.assert_allclose(data["value"].sel(output="period"), T, rtol=1e-14)
    assert data["derivative"].dims == ("output", "number")
    only = local_sensitivities(period, point, units={"length": "m"})
    assert only.unit("period", "length") == ""  # that of the output is not known
    ratio = local_sensitivities(
        lambda x: {"r": x["a"] / x["b"]}, {"a": 1.0, "b": 2.0}, units={"a": "m", "b": "m", "r": "1"}
    )
    assert ratio.unit("r", "a") == "1/m"
    with pytest.raises(mbd.MechanismError, match="number or output named 'lenght'"):
        local_sensitivities(period, point, units={"lenght": "m"})
    with pytest.raises(mbd.MechanismError, match="the unit of 'g' must be a text"):
        local_sensitivities(period, point, units={"g": 1})  # pyright: ignore[reportArgumentType]


def test_local_sensitivities_of_a_four_bar_linkage() -> None:
    """The rocker's angle over the crank's and over lengths, beside differences of the law of cosines."""
    point = {"crank": 0.3, "coupler": 0.8, "rocker": 0.6, "base": 0.9, "angle": 0.9}
    found, h = local_sensitivities(closure, point).derivatives["rocker_angle"], 1e-5

    def angle(**changes: float) -> float:
        x = {**point, **changes}
        return rocker_angle(x["angle"], 1, (x["crank"], x["coupler"], x["rocker"], x["base"]))

    for name, value in point.items():
        exact = (angle(**{name: value + h}) - angle(**{name: value - h})) / (2 * h)
        assert found[name] == pytest.approx(exact, abs=1e-8)
    with pytest.raises(mbd.SolveError, match=r"closure failed at this point. The joints are not closed"):
        local_sensitivities(closure, {**point, "coupler": 0.01})


def pins(mechanism: Any) -> dict[str, Any]:
    """Of a four-bar: the moment of the masses about the crank's pin, without any assembly."""
    return {"moment": sum(body.mass for body in mechanism.bodies) * mechanism["A"].b.position[0] ** 2}


def test_numbers_of_a_mechanism_by_name() -> None:
    """At their own values or others, with units; those of arrays one by one; patterns; indices over ranges."""
    linkage = four_bar(jnp.array([0.3, 0.8, 0.6, 0.9]))
    place = float(linkage["A"].b.position[0])
    total = sum(float(body.mass) for body in linkage.bodies)
    found = local_sensitivities(pins, ["*.mass", "A.b.position"], mechanism=linkage, units={"moment": "kg m²"})
    masses = [f"{body.name}.mass" for body in linkage.bodies]
    assert list(found.numbers) == [*masses, "A.b.position[0]", "A.b.position[1]"]
    slopes = [place**2] * len(masses) + [2 * total * place, 0.0]
    np.testing.assert_allclose(list(found.derivatives["moment"].values()), slopes, rtol=1e-14)
    assert found.unit("moment", "A.b.position[0]") == "kg m²/m"
    other = local_sensitivities(pins, {masses[0]: 7.0}, mechanism=linkage)
    assert other.values["moment"] == pytest.approx((total - float(linkage.bodies[0].mass) + 7.0) * place**2, rel=1e-14)
    assert other.units == {masses[0]: "kg"}
    together = local_sensitivities(pins, {"*.mass": 2.0}, mechanism=linkage)
    assert together.derivatives["moment"]["*.mass"] == pytest.approx(len(masses) * place**2, rel=1e-14)
    ranges = {masses[0]: (1.0, 2.0), masses[1]: (1.0, 3.0)}
    effects = sensitivity_indices(
        pins, ranges, "moment", count=4, seed=1, method="morris", mechanism=linkage, progress=False
    )
    np.testing.assert_allclose(effects.indices["mu"], [place**2, 2 * place**2], rtol=1e-12)
    with pytest.raises(mbd.MechanismError, match=r"no number of a part named '\*\.mas'"):
        local_sensitivities(pins, "*.mas", mechanism=linkage)
