"""The solutions of the exercises give what closed forms give, which are written here once more."""

import contextlib
import io
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest

from docs.pages.notebooks import COLLAPSED

FOLDER = Path(__file__).parents[1] / "notebooks" / "exercises"
EXERCISES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
G = 9.81  # [m/s²]


def read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def solved(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the cells of an exercise define, but for its sliders and pictures."""
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    names: dict[str, Any] = {}
    with plt.rc_context(), contextlib.redirect_stdout(io.StringIO()):
        for cell in read(name).cells:
            if cell.cell_type == "code" and not cell.source.startswith(("interact(", "show(")):
                source = cell.source.removesuffix("\n\n\nshow()")
                exec(compile(source, name, "exec"), names)
    return names


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_asks_hints_and_solves(name: str) -> None:
    """A place for the reader's answer, before hints and solution, which are collapsed; the slider is not."""
    cells = read(name).cells
    headings = [cell.source.partition("\n")[0] for cell in cells if cell.source.startswith(("## ", "# Your answer"))]
    assert headings == ["# Your answer", "## Hints", "## Solution", "## With a slider"]
    collapsed = [cell.source.partition("\n")[0] for cell in cells if cell.metadata.get(COLLAPSED)]
    assert collapsed == ["## Hints", "## Solution"]
    assert cells[0].source.startswith(f"# Exercise {name[0]}: ")
    assert cells[-1].source.startswith("interact(show, ")


def test_all_exercises_are_there() -> None:
    assert [name[0] for name in EXERCISES] == list("12345678")


@pytest.mark.slow
def test_slider_crank(monkeypatch: pytest.MonkeyPatch) -> None:
    names, r, l = solved("1_slider_crank", monkeypatch), 0.1, 0.3
    slope = -r * np.sin(1.0) - r**2 * np.sin(1.0) * np.cos(1.0) / np.sqrt(l**2 - (r * np.sin(1.0)) ** 2)
    np.testing.assert_allclose(names["slider_speed"], 10.0 * slope, rtol=1e-12)
    found = names["mbd"].read(names["mechanism"], names["state"], "slider.vx")
    np.testing.assert_allclose(found, 10.0 * slope, rtol=1e-9)


@pytest.mark.slow
def test_degrees_of_freedom(monkeypatch: pytest.MonkeyPatch) -> None:
    names = solved("2_degrees_of_freedom", monkeypatch)
    assert (names["door_freedom"], names["bricard_freedom"]) == (1, 1)
    assert names["ranks"] == [29] * 6
    np.testing.assert_allclose(names["order"], 1.0, atol=1e-3)


def test_baumgarte(monkeypatch: pytest.MonkeyPatch) -> None:
    names = solved("3_baumgarte", monkeypatch)
    t = names["times"]
    critical, nu = (1 + 5 * t) * np.exp(-5 * t), np.sqrt(96.0)
    weak = np.exp(-2 * t) * (np.cos(nu * t) + 2 / nu * np.sin(nu * t))
    np.testing.assert_allclose(names["critical"], critical, atol=1e-2)
    np.testing.assert_allclose(names["weak"], weak, atol=1e-2)
    assert names["drift"][-1] > 1.5 * names["drift"][500] > 30 * names["stabilised"].max()


@pytest.mark.slow
def test_coordinate_partitioning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slider's speed by a central difference of the closed position; at the dead centre it is zero."""
    names = solved("4_coordinate_partitioning", monkeypatch)
    theta = np.arcsin(0.0)
    expected = 2e-3 + 1.0 * 0.1**2 / 4 + (6e-3 + 0.8 * 0.15**2) / 9  # the rod turns about the slider with r/l
    np.testing.assert_allclose(names["by_hand"](theta), expected, rtol=1e-12)
    np.testing.assert_allclose(names["reduced"], names["by_hand"](names["angles"]), rtol=1e-9)
    assert names["difference"] < 1e-3
    assert names["condition"](1e-4) > 1e3 > 100 > names["condition"](1.0)


def test_multipliers(monkeypatch: pytest.MonkeyPatch) -> None:
    names = solved("5_multipliers", monkeypatch)
    weight, psi = 2.0 * G, names["psi"]
    np.testing.assert_allclose(names["along"], 2.5 * weight * np.sin(psi), atol=1e-5)
    np.testing.assert_allclose(names["across"], 0.25 * weight * np.cos(psi), atol=1e-5)
    np.testing.assert_allclose(names["load"][2], -0.5 * names["across"][40], rtol=1e-9)  # its moment about the centre


@pytest.mark.slow
def test_equilibrium(monkeypatch: pytest.MonkeyPatch) -> None:
    names = solved("6_equilibrium", monkeypatch)
    cosine = 1.5 * G / (0.4 * 10.0**2)
    np.testing.assert_allclose(abs(names["angle"]), np.arccos(cosine), rtol=1e-6)
    np.testing.assert_allclose(names["found"], 10.0 * np.sqrt(1 - cosine**2), rtol=1e-6)


@pytest.mark.slow
def test_impact(monkeypatch: pytest.MonkeyPatch) -> None:
    names, first = solved("7_impact", monkeypatch), np.sqrt(2.0 / G)
    np.testing.assert_allclose(names["times"], first * np.array([1.0, 2.6, 3.88]), rtol=1e-8)
    np.testing.assert_allclose(abs(names["impulses"]), 3.6 * G * first * np.array([1.0, 0.8, 0.64]), rtol=1e-8)
    np.testing.assert_allclose(names["slope"], first * (2 + 4 * 0.8), rtol=1e-6)


@pytest.mark.slow
def test_identification(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard error is that of Cramér and Rao within what 200 samples tell of the noise."""
    names = solved("8_identification", monkeypatch)
    inertia, omega = 0.5, np.sqrt(0.5 * G / 0.5)
    bound = 2 * np.sqrt(6) * inertia / (omega * 10.0) * 1e-3 / (0.02 * np.sqrt(200))
    np.testing.assert_allclose(names["error"], bound, rtol=0.25)
    assert abs(names["estimate"] - 0.25) < 3 * bound
