"""The command, run as a user runs it."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from PIL import Image
from typer.testing import CliRunner

from jaxmbd import examples
from jaxmbd.cli import app
from jaxmbd.errors import MechanismError
from tests.io.asmt_text import HERE, assembly, joint, part

MODEL = """
from jaxmbd import planar as pl
bar = pl.Body("bar", 1.0, 0.1)
pin = pl.Revolute("O", pl.ground.at(), bar.at(-0.5))
pendulum = pl.Mechanism([bar], [pin], [pl.Gravity(9.81)])
"""


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return result.exit_code, result.output


def said(text: str) -> str:
    """Without line breaks."""
    return " ".join(text.split())


def row(text: str, name: str) -> list[str]:
    """The cells of a table behind a name."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"{name}  "))
    return line.removeprefix(name).split()


def table(path: Path) -> dict[str, np.ndarray]:
    """The columns of a file by their headings."""
    headings = path.read_text(encoding="utf-8").splitlines()[0].split(",")
    return dict(zip(headings, np.loadtxt(path, delimiter=",", skiprows=1).T, strict=True))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def test_describe_reports_a_model_of_another_program_and_its_remarks(tmp_path: Path) -> None:
    path = tmp_path / "pendulum.urdf"
    path.write_text(
        '<robot name="pendulum"><link name="base"/><link name="bar"><inertial><origin xyz="0 0 -0.5"/><mass value="1"/>'
        '<inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link><joint name="O" '
        'type="continuous"><parent link="base"/><child link="bar"/></joint></robot>'
    )
    code, text = run("describe", str(path))
    assert code == 0
    assert "The system has 1 degree of freedom. It is modelled using 1 generalized coordinate" in said(text)
    assert "line 1: link 'base' is the base: it is the ground here" in said(text)


def test_models_of_other_programs_are_read_with_their_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "arm.asmt"
    ground, pin = {"G": HERE}, [joint("RevoluteJoint", "J", "G", "P/M")]
    path.write_text(
        assembly(ground, [part("P", ((0, 0, 0), (0, 0, 0)), {"M": HERE}, centre=((500, 0, 0), (0, 0, 0)))], pin)
    )
    code, text = run("assemble", str(path), "--no-files", "--length-unit", "0.001")
    assert code == 0
    assert row(text, "P.x") == ["m", "0.5"]
    assert "millimetres" not in text
    assert "for the command --length-unit 0.001" in run("assemble", str(path), "--no-files")[1]
    for arguments, message in (
        ([str(path), "--keyframe", "home"], "read: keyframe has no meaning for ASMT files, got 'home'"),
        (
            ["pendulum", "--floating"],
            "--floating: for .xml, .urdf, .sdf, .world, .asmt, .mbs, .adm files of other programs only, got 'pendulum'",
        ),
        ([str(path), "--length-unit", "-1"], "length_unit must be positive"),
    ):
        code, text = run("describe", *arguments)
        assert code == 1
        assert message in text
    given: list[dict[str, Any]] = []

    def read(path: Path, **options: Any) -> None:
        given.append(options)
        raise MechanismError("as far as this")

    monkeypatch.setattr("jaxmbd.io.read", read)
    run("describe", "a.urdf", "--floating", "--loops", "b.toml", "--within", "..", "--keyframe", "home")
    assert given == [{"floating": True, "loops": Path("b.toml"), "within": Path(".."), "keyframe": "home"}]


def test_describe_reports_the_mechanism_in_a_file(model: Path) -> None:
    code, text = run("describe", str(model))
    assert code == 0
    assert said(text).startswith(
        "The system has 1 degree of freedom. It is modelled using 3 generalized coordinates coupled by 2 algebraic "
        "constraints."
    )
    assert "Reactions f: O.Fx, O.Fy" in text
    code, text = run("describe", str(model), "--coordinates", "joint")
    assert code == 0
    assert "It is modelled using 1 generalized coordinate." in said(text)
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
    assert f"jax {jax.__version__}, " in text
    assert "virtual machine: compiled on this computer" in text


def test_examples_are_listed_with_what_they_are() -> None:
    code, text = run("examples")
    assert code == 0
    for name, entry in examples.entries().items():
        assert f"\n{name} " in text
        assert entry.description in said(text)


def test_simulate_shows_and_saves_the_motion(tmp_path: Path) -> None:
    options = ["--set", "rod.theta=180deg", "--until", "0.2", "--rows", "5", "--read", "P", "--read", "energy"]
    code, text = run("simulate", "pendulum", *options, "--out", str(tmp_path / "new"))
    assert code == 0, text
    motion = examples.pendulum().simulate(np.linspace(0.0, 0.2, 5))
    point = np.asarray(motion["P"])
    assert "pendulum: simulate, 0 to 0.2 s" in text
    unit, *numbers = row(text, "P.y")
    assert unit == "m"
    np.testing.assert_allclose(np.array(numbers, float), [0.0, point[-1, 1], point[-1, 1], 0.0], rtol=1e-5, atol=1e-12)
    assert f"{int(motion.stats['num_steps'])} steps" in text
    saved = table(tmp_path / "new" / "simulate.csv")
    assert list(saved) == ["time [s]", "P.x [m]", "P.y [m]", "energy [J]"]
    np.testing.assert_allclose(saved["P.y [m]"], point[:, 1], atol=1e-11)
    np.testing.assert_array_equal(saved["time [s]"], [0.0, 0.05, 0.1, 0.15, 0.2])
    with xr.open_dataset(tmp_path / "new" / "simulate.nc", engine="scipy") as data:
        np.testing.assert_allclose(data["P"], point, atol=1e-12)
        assert data["P"].attrs["units"] == "m"
    with Image.open(tmp_path / "new" / "simulate.png") as curves, Image.open(tmp_path / "new" / "simulate.gif") as film:
        assert min(curves.size) > 500
        assert getattr(film, "n_frames", 1) == 37
    assert said(text).endswith("simulate.gif")


def test_assemble_follows_the_options(tmp_path: Path) -> None:
    options = [
        "--coordinates",
        "joint",
        "--set",
        "crank.theta=90deg",
        "--speed",
        "crank.omega=2",
        "--out",
        str(tmp_path),
    ]
    code, text = run("assemble", "slider-crank", *options)
    assert code == 0, text
    assert row(text, "O.angle") == ["rad", f"{math.pi / 2:.6g}"]
    assert row(text, "O.angle_rate") == ["rad/s", "2"]
    assert row(text, "C.angle") == ["rad", f"{math.asin(1 / 3):.6g}"]
    assert "constraints: 2, independent: 2, degrees of freedom left: 1" in text
    assert [path.name for path in tmp_path.iterdir()] == ["assemble.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "pendulums"], "no example named 'pendulums'. Did you mean 'pendulum'?"),
        (["simulate", "pendulum", "--set", "rod.theta"], "takes a name and a number, crank.theta=0.3 or O.angle=30deg"),
        (["simulate", "pendulum", "--speed", "rod.omega=fast"], "--speed takes a name and a number"),
        (["simulate", "pendulum", "--set", "rod.thet=1"], "Did you mean 'rod.theta'?"),
        (["simulate", "pendulum", "--read", "rod.thta"], "no quantity named 'rod.thta'. Did you mean 'rod.theta'?"),
        (["simulate", "pendulum", "--formulation", "baumgarte"], "no formulation named 'baumgarte'"),
        (["assemble", "pendulum", "--set", "rod.theta=1", "--set", "rod.x=2"], "cannot be assembled"),
    ],
)
def test_mistakes_are_one_line_without_traceback(arguments: list[str], message: str) -> None:
    code, text = run(*arguments, "--no-files")
    assert code == 1
    assert text.startswith("jaxmbd: ")
    assert message in text
    assert len(text.splitlines()) == 1


def test_mistakes_in_a_file_are_told_with_their_line(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    for source, place in (("x = 1\ny = x / 0\n", "line 2: ZeroDivisionError"), ("x = 1\ndef\n", "line 2: SyntaxError")):
        broken.write_text(source)
        code, text = run("describe", str(broken))
        assert code == 1
        assert place in text


def test_a_file_may_make_an_example(tmp_path: Path) -> None:
    path = tmp_path / "hung.py"
    path.write_text("from jaxmbd import examples\nhung = examples.pendulum()\n")
    code, text = run("assemble", str(path), "--no-files")
    assert code == 0
    assert row(text, "rod.theta") == ["rad", f"{math.pi:.6g}"]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_equilibrium_and_linearize_of_a_hanging_rod(tmp_path: Path) -> None:
    options = ["pendulum", "--set", "rod.theta=-1.5", "--out", str(tmp_path)]
    code, text = run("equilibrium", *options, "--read", "O.fy")
    assert code == 0, text
    assert "pendulum: equilibrium, stable" in text
    assert row(text, "O.fy") == ["N", "9.81"]
    assert float(row(text, "rod.theta")[1]) == pytest.approx(-math.pi / 2, abs=1e-5)
    code, text = run("linearize", "pendulum", "--set", f"rod.theta={-math.pi / 2}", "--out", str(tmp_path))
    assert code == 0, text
    assert f"{math.sqrt(9.81) / (2 * math.pi):.4f}"[:5] in text
    with np.load(tmp_path / "linearize.npz") as opened:
        saved = dict(opened)
    np.testing.assert_allclose(np.linalg.eigvals(saved["A"]) ** 2, [-9.81, -9.81], rtol=1e-6)
    assert saved["inputs"].tolist() == ["O.angle"]


@pytest.mark.slow
def test_kinematics_and_inverse_of_a_driven_five_bar(tmp_path: Path) -> None:
    options = ["five-bar", "--until", "0.1", "--rows", "11", "--out", str(tmp_path)]
    code, text = run("inverse", *options)
    assert code == 0, text
    code, text = run("kinematics", *options, "--no-film", "--read", "left motor.effort", "--read", "O.angle")
    assert code == 0, text
    efforts, motion = table(tmp_path / "inverse.csv"), table(tmp_path / "kinematics.csv")
    np.testing.assert_allclose(motion["O.angle [rad]"], 1.0 + 4 * np.pi * np.linspace(0.0, 0.1, 11), atol=1e-9)
    np.testing.assert_allclose(efforts["left motor.effort [N m]"], motion["left motor.effort [N m]"], atol=1e-9)
    with pytest.raises(AssertionError):  # the motors do different things
        np.testing.assert_allclose(efforts["right motor.effort [N m]"], motion["left motor.effort [N m]"], atol=1e-3)
    code, text = run("kinematics", "pendulum", "--no-files")
    assert code == 1
    assert text.startswith("jaxmbd: ")


@pytest.mark.slow
def test_what_a_command_compiles_is_kept_for_the_next(tmp_path: Path) -> None:
    changed = {"XDG_CACHE_HOME": str(tmp_path), "JAX_ENABLE_COMPILATION_CACHE": "true"}
    kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, "-m", "jaxmbd", "simulate", "pendulum", "--no-files"]
    subprocess.run(command, env=kept | changed, check=True, capture_output=True)
    assert list((tmp_path / "jaxmbd" / "compiled").glob("jaxmbd_integrate-*"))
