"""Model files as the command reads and writes them."""

from pathlib import Path

import numpy as np
import pytest

import jaxmbd as mbd
from tests.cli.test_cli import row, run, said


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The file of an example."""
    path = tmp_path / "models" / "swing.toml"
    code, text = run("convert", "pendulum", str(path), "--set", "rod.theta=0.3")
    assert (code, text.startswith("wrote")) == (0, True)
    return str(path)


def test_a_file_starts_where_its_state_is(model: str) -> None:
    code, text = run("assemble", model, "--no-files")
    assert code == 0
    assert float(row(text, "rod.theta")[-1]) == 0.3
    assert "independent: 2, degrees of freedom left: 1" in said(text)
    code, text = run("simulate", model, "--no-files", "--until", "0.2", "--read", "rod.theta")
    assert code == 0
    mechanism = mbd.load(model)
    motion = mbd.simulate(mechanism, mbd.load_state(mechanism, model), np.linspace(0.0, 0.2, 401))
    assert float(row(text, "rod.theta")[2]) == pytest.approx(float(motion["rod.theta"][-1]), rel=1e-5)


def test_a_mechanism_of_the_plane_becomes_a_file_of_other_programs(model: str, tmp_path: Path) -> None:
    code, text = run("convert", model, str(tmp_path / "swing.xml"))
    assert (code, "give --coordinates joint as well" in said(text)) == (1, True)
    for ending, start in ((".xml", "<mujoco>"), (".urdf", "<robot")):
        path = tmp_path / f"swing{ending}"
        code, text = run("convert", "pendulum", str(path), "--coordinates", "joint")
        assert (code, "the plane of the mechanism is that of x and y" in said(text)) == (0, True)
        assert path.read_text().startswith(start)


def test_a_model_becomes_c_with_inputs_outputs_and_parameters_by_name(model: str, tmp_path: Path) -> None:
    names = ("--push", "rod.fx", "--read", "energy", "--parameter", "*.mass", "--step", "0.01")
    code, text = run("convert", model, str(tmp_path / "swing.c"), *names)
    assert (code, text.startswith("wrote")) == (0, True)
    header = (tmp_path / "swing.h").read_text()
    for variable in ("u_rod_fx 0 /* rod.fx [N]", "y_energy 0 /* energy [J]", "p_rod_mass 0 /* rod.mass [kg]"):
        assert f"#define swing_{variable} */" in header
    assert "static const double start_states[STATES + 1]" in (tmp_path / "swing.c").read_text()
    code, text = run("convert", model, str(tmp_path / "other.toml"), *names)
    assert code == 1
    assert "--push is for an FMU or C, files that end with .fmu or .c" in said(text)


def test_options_replace_the_state(model: str) -> None:
    code, text = run("assemble", model, "--no-files", "--set", "rod.theta=1.2")
    assert code == 0
    assert float(row(text, "rod.theta")[-1]) == 1.2
    code, text = run("describe", model, "--coordinates", "joint")
    assert code == 1
    assert "holds a state in the file's own coordinates" in said(text)


def test_a_state_may_lack_its_rank(model: str) -> None:
    Path(model).write_text(Path(model).read_text().replace("rank = 2\n", ""))
    code, text = run("assemble", model, "--no-files")
    assert code == 0
    assert "constraints: 2" in text


def test_a_file_without_a_state_is_assembled(model: str) -> None:
    Path(model).write_text(Path(model).read_text().partition("[state]")[0])
    code, text = run("describe", model)
    assert code == 0
    assert "3 generalized coordinates" in said(text)


def test_code_is_run_only_if_trusted(tmp_path: Path) -> None:
    path = str(tmp_path / "pen.toml")
    assert run("convert", "five-bar", path)[0] == 0
    code, text = run("describe", path)
    assert code == 1
    assert "line" in text
    assert "(for the command: --trust)" in said(text)
    code, text = run("describe", path, "--trust")
    assert code == 0
    assert "The system has" in said(text)


def test_a_broken_file_is_reported_with_its_line(model: str) -> None:
    Path(model).write_text(Path(model).read_text().replace("mass = 1.0", "mass = -1.0"))
    code, text = run("simulate", model)
    assert code == 1
    assert "line 11: Body 'rod': mass must be positive [kg]" in said(text)
