"""The system report of mechanisms that drivers move: what they prescribe is neither free nor independent."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.cli import app


def four_bar(coordinates: str, *driven: str) -> pl.Mechanism:
    plain = mbd.examples.get("four-bar-with-springs").mechanism
    drivers = [pl.Driver(f"drive {k}", name, 1.0) for k, name in enumerate(driven)]
    return pl.Mechanism(plain.bodies, plain.joints, plain.forces, drivers, coordinates=coordinates)


def check_counts(mechanism: pl.Mechanism, freedom: int, remaining: int) -> mbd.Description:
    """The counts, each by an elimination of its own; the variables are sorted into groups without overlap."""
    report = mbd.describe(mechanism)
    state = mbd.assemble(mechanism)
    C = np.asarray(mbd.Equations(mechanism).jacobian(state.t, state.q))
    assert mechanism.nv - np.linalg.matrix_rank(C) == report.remaining_freedom == remaining
    assert mechanism.nv - np.linalg.matrix_rank(C[: report.rows]) == report.freedom == freedom
    assert len(report.independent) == remaining
    sorted_ones = (*report.independent, *report.dependent, *(n for n in report.driven if n in mechanism.variables))
    assert sorted(sorted_ones) == sorted(mechanism.variables)
    return report


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_four_bar_that_its_driver_moves(coordinates: str) -> None:
    mechanism = four_bar(coordinates, "O.angle")
    report = check_counts(mechanism, 1, 0)
    assert report.driven == ("O.angle",)
    assert report.independent == ()
    text = str(report)
    assert text.startswith("The system has 1 degree of freedom, of which its driver leaves none. It is modelled using")
    assert "Independent variables (0): none" in text
    assert "Driven variables (1): O.angle" in text


def test_a_driver_on_a_variable_in_absolute_coordinates() -> None:
    report = check_counts(four_bar("absolute", "crank.theta"), 1, 0)
    assert report.driven == ("crank.theta",)
    assert "crank.theta" not in report.dependent


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_five_bar_with_two_drivers_and_with_one(coordinates: str) -> None:
    mechanism = mbd.examples.get("five-bar").mechanism.with_coordinates(coordinates)
    report = check_counts(mechanism, 2, 0)
    assert report.driven == ("O.angle", "C.angle")
    assert "has 2 degrees of freedom, of which its 2 drivers leave none." in str(report)
    report = check_counts(mechanism.replacing(drivers=mechanism.drivers[:1]), 2, 1)
    assert report.driven == ("O.angle",)
    assert "has 2 degrees of freedom, of which its driver leaves 1." in str(report)


def test_angles_that_follow_the_coordinates_are_listed() -> None:
    """In space absolute coordinates do not count turns; the state has the angles of joints besides."""
    loop = mbd.examples.get("spatial-four-bar").mechanism
    report = mbd.describe(loop)
    assert report.turns
    assert (*report.coordinates, *report.turns) == loop.coordinate_names
    assert f"Angles that follow them in q, to count whole turns ({len(report.turns)}): {report.turns[0]}" in str(report)
    assert "Angles that follow" not in str(mbd.describe(four_bar("absolute")))


def test_a_redundant_driver_is_no_redundant_constraint() -> None:
    """Two drivers on the angle of a crank: the row that repeats is a driver's, none of the joints'."""
    report = check_counts(four_bar("joint", "O.angle", "crank.theta"), 1, 0)
    assert "of which its 2 drivers leave none. It is modelled using 3" in str(report)
    assert "coupled by 2 algebraic constraints." in str(report)
    assert [repeat.joint for repeat in report.redundant] == ["drive 1"]


def test_the_command_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "from jaxmbd import planar as pl\n"
        "bar = pl.Body('bar', 1.0, 0.1, (0.5, 0.0, 0.0))\n"
        "pin = pl.Revolute('O', pl.ground.at(), bar.at(-0.5))\n"
        "pendulum = pl.Mechanism([bar], [pin], [pl.Gravity()], [pl.Driver('motor', 'O.angle', lambda t: 2 * t)])\n"
    )
    result = CliRunner().invoke(app, ["describe", str(path)])
    assert result.exit_code == 0
    assert result.stdout.startswith("The system has 1 degree of freedom, of which its driver leaves none.")
    assert "Independent variables (0): none" in result.stdout
    assert "Driven variables (1): O.angle" in result.stdout


def test_speeds_of_a_users_choice() -> None:
    """A driven joint angle is no variable where speeds are chosen: what is left is counted by the rows alone."""
    body = pl.Body("bar", 1.0, 0.1, (0.5, 0.0, 0.0))
    joints = [pl.Revolute("O", pl.ground.at(), body.at(-0.5))]
    speeds = pl.GeneralizedSpeeds(["u"], lambda t, q, p, _: 2 * p + jnp.sin(t))
    drivers = [pl.Driver("motor", "O.angle", lambda t: 2 * t)]
    mechanism = pl.Mechanism([body], joints, [pl.Gravity()], drivers, coordinates="joint", speeds=speeds)
    report = mbd.describe(mechanism)
    assert (report.freedom, report.remaining_freedom) == (1, 0)
    assert (report.independent, report.dependent, report.driven) == ((), ("u",), ("O.angle",))
