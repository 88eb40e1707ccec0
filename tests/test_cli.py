"""The command, run as a user runs it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from jaxmbd.cli import app

MODEL = """
from jaxmbd import planar as pl
bar = pl.Body("bar", 1.0, 0.1)
pin = pl.Revolute("O", pl.ground.at(), bar.at(-0.5))
pendulum = pl.Mechanism([bar], [pin], [pl.Gravity(9.81)])
"""


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return result.exit_code, result.output


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def test_describe_reports_the_mechanism_in_a_file(model: Path) -> None:
    code, text = run("describe", str(model))
    assert code == 0
    assert text.startswith(
        "The system has 1 degree of freedom. It is modelled using 3 generalized coordinates coupled by 2 algebraic "
        "constraints."
    )
    assert "Reactions f: O.Fx, O.Fy" in text
    code, text = run("describe", str(model), "--coordinates", "joint")
    assert code == 0
    assert "It is modelled using 1 generalized coordinate." in text
    assert "Coordinates q (1, joint): O.angle" in text
    code, text = run("describe", str(model), "--cut", "O")
    assert "Constraints: O (Revolute, 2 rows)" in text


def test_describe_says_what_is_wrong(model: Path, tmp_path: Path) -> None:
    for arguments, message in (
        ([str(tmp_path / "none.py")], "There is no file"),
        ([str(model), "--name", "swing"], "no Mechanism 'swing'; it makes pendulum"),
        ([str(model), "--coordinates", "joints"], "coordinates must be 'absolute' or 'joint'"),
        ([str(model), "--cut", "P"], "no joint to cut named 'P'"),
    ):
        code, text = run("describe", *arguments)
        assert code == 1
        assert message in " ".join(text.split())
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1")
    assert "makes no Mechanism at its top level" in " ".join(run("describe", str(empty))[1].split())
    model.write_text(MODEL + "\nother = pl.Mechanism([bar], floating=True)\n")
    assert "choose with --name: pendulum, other" in " ".join(run("describe", str(model))[1].split())


def test_version_names_the_device() -> None:
    code, text = run("version")
    assert code == 0
    assert text.startswith("jaxmbd ")
    assert "jax " in text
