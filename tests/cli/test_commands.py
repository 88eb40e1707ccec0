"""The commands that write, check and draw models and their equations, run as a user runs them."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from PIL import Image
from typer.models import OptionInfo

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd.cli import _completion as completion
from jaxmbd.cli import _options as options
from jaxmbd.cli import _values as values
from jaxmbd.errors import MechanismError
from jaxmbd.io import SUFFIXES
from tests.cli.test_cli import row, run, said


@pytest.fixture
def swing(tmp_path: Path) -> Path:
    """A new model: a rod of 1 kg and 1 m on a pin, horizontal, with friction."""
    path = tmp_path / "swing.toml"
    assert run("new", str(path))[0] == 0
    return path


def changed(path: Path, old: str, new: str) -> str:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return str(path)


def test_new_models_are_mechanisms(tmp_path: Path) -> None:
    for arguments, dim, freedom in ([], 2, 1), (["--spatial"], 3, 3):
        path = tmp_path / "folder" / f"model{dim}.toml"
        code, text = run("new", str(path), *arguments)
        assert code == 0
        assert f"jaxmbd check {path}" in text
        mechanism = mbd.load(path)
        assert mechanism.space.dim == dim
        assert mbd.describe(mechanism).freedom == freedom


def test_model_files_are_replaced_only_if_asked_for(swing: Path, tmp_path: Path) -> None:
    """By all commands that write one at a place that the user names; the model that is read, by none."""
    other = tmp_path / "other.toml"
    for command in (("new", str(other)), ("convert", str(swing), str(other))):
        other.write_text("mine")
        code, text = run(*command)
        assert (code, other.read_text()) == (1, "mine")
        assert "exists. Give another name, or --overwrite to replace it." in text
        assert run(*command, "--overwrite")[0] == 0
        assert mbd.load(other)["rod"].mass == 1.0
    before = swing.read_bytes()
    code, text = run("design", str(swing), "--variable", "friction.viscous=0.1:10", "--out", str(swing))
    assert (code, swing.read_bytes()) == (1, before)
    assert "swing.toml' is the model itself, which would be lost. Name another file." in text
    code, text = run("new", "swing.yaml")
    assert code == 1
    assert "ends with .toml, such as 'swing.toml', got 'swing.yaml'" in text


def test_check_reports_freedom_and_doubts_with_their_lines(swing: Path) -> None:
    code, text = run("check", str(swing))
    assert code == 0
    assert "in the plane, which can be assembled: 1 body, 1 joint, 2 forces, 1 sensor." in said(text)
    assert "The system has 1 degree of freedom." in said(text)
    assert "Nothing in it is doubtful." in text
    text = swing.read_text() + '\n[markers]\nidle = { body = "rod", position = [0.1, 0.0] }\n'
    text += "[bodies.loose]\nmass = 1.0\ninertia = 1.0\n"
    text += text[text.index("[joints.O]") : text.index("[forces.gravity]")].replace("joints.O", "joints.twice")
    swing.write_text(text)
    lines = {text: 1 + k for k, text in enumerate(swing.read_text().splitlines())}
    code, said_of_it = run("check", str(swing))
    assert code == 0
    told = said(said_of_it)
    assert "4 remarks:" in told
    assert f"line {lines['[bodies.loose]']}: no joint and no force but gravity refers to 'loose'" in told
    idle = next(line for text, line in lines.items() if text.startswith("idle ="))
    assert f"line {idle}: no part refers to the marker 'idle'." in told
    for number in (1, 2):
        assert f"line {lines['[joints.twice]']}: row {number} of 'twice' repeats what 'O' already enforce" in told


def test_check_finds_the_line_of_what_cannot_be_used(swing: Path) -> None:
    code, text = run("check", changed(swing, "mass = 1.0 ", "mas = 1.0 "))
    assert code == 1
    assert re.search(r"swing.toml', line 7: .*Did you mean 'mass'\?", text)
    rod = '[joints.bar]\ntype = "Rod"\na = { body = "ground", position = [5.0, 0.0] }\n'
    rod += 'b = { body = "rod", position = [0.0, 0.0] }\nlength = 1.0\n\n[forces.gravity]'
    changed(swing, "mas = 1.0 ", "mass = 1.0 ")
    line = 1 + changed_lines(swing, "[forces.gravity]", rod).index("[joints.bar]")
    code, text = run("check", str(swing))
    assert code == 1
    assert f"swing.toml', line {line}: " in text
    assert f"Lines: 'bar' {line}, 'O' 11." in text
    assert "cannot be assembled" in text


def changed_lines(path: Path, old: str, new: str) -> list[str]:
    changed(path, old, new)
    return path.read_text().splitlines()


def test_draw_writes_the_format_that_is_wanted(swing: Path, tmp_path: Path) -> None:
    out = tmp_path / "pictures"
    for ending in ("png", "svg"):
        assert run("draw", str(swing), "--format", ending, "--out", str(out))[0] == 0
    code, text = run("draw", str(swing), "--no-labels", "--out", str(tmp_path / "one.pdf"))
    assert code == 0
    assert said(text).endswith("one.pdf")
    assert sorted(path.name for path in out.iterdir()) == ["draw.png", "draw.svg"]
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    assert ET.parse(out / "draw.svg").getroot().tag.endswith("svg")
    with Image.open(out / "draw.png") as picture:
        assert min(picture.size) > 200
        assert len(set(np.asarray(picture).reshape(-1, 4)[:, 0])) > 20


def test_out_names_one_file_that_the_command_makes(swing: Path, tmp_path: Path) -> None:
    folder = tmp_path / "one"
    code, _ = run("simulate", str(swing), "--until", "0.1", "--rows", "3", "--no-film", "--out", str(folder / "x.nc"))
    assert code == 0
    assert [path.name for path in folder.iterdir()] == ["x.nc"]
    mechanism, data = mbd.load(swing), mbd.load(folder / "x.nc")
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism), np.linspace(0.0, 0.1, 3))
    for name in ("tip", "O.angle", "energy"):
        np.testing.assert_allclose(data[name], motion[name], rtol=1e-12, atol=1e-12)
    assert data["tip"].attrs["units"] == "m"
    np.testing.assert_allclose(mbd.load_state(mechanism, folder / "x.nc").q, motion.q[-1], atol=1e-12)
    code, text = run("draw", str(swing), "--out", str(folder / "x.toml"))
    assert code == 1
    assert "this command writes no .toml file" in text


def test_numbers_of_parts_are_set(swing: Path) -> None:
    options = ["--coordinates", "joint", "--set", "rod.mass=3", "--set", "O.b.position[0]=-0.25"]
    code, text = run("equations", str(swing), *options, "--set", "O.angle=90deg")
    assert code == 0
    assert "coordinates: O.angle" in text
    mass = float(text[text.index("xM (1 × 1)") :].splitlines()[1].strip("[]"))
    assert mass == pytest.approx(0.0833 + 3 * 0.25**2, abs=1e-6)
    load = float(text[text.index("vF (1)") :].splitlines()[1].strip("[]"))
    assert load == pytest.approx(0.0, abs=1e-12)  # upright
    code, text = run("equations", str(swing), *options[:2], "--set", "*.mass=3", "--set", "*.b.position[0]=-0.25")
    assert code == 0
    assert float(text[text.index("xM (1 × 1)") :].splitlines()[1].strip("[]")) == mass
    for arguments, message in (
        (["*.mas=2"], "no number of a part named '*.mas'"),
        (["*.mass=-2"], "Body 'rod': mass must be"),
        (["*.mass=2", "--set", "rod.mass=3"], "'*.mass' and 'rod.mass' are the same number of the mechanism"),
        (["rod.mas=2"], "no coordinate or number of a part named 'rod.mas'. Did you mean 'rod.mass'?"),
        (["rod.mass=-2"], "Body 'rod': mass must be"),
        (["rod.mass=2", "--set", "rod.mass=3"], "--set names 'rod.mass' twice, 'rod.mass=2' and 'rod.mass=3'"),
    ):
        code, text = run("draw", str(swing), "--no-files", "--set", *arguments)
        assert code == 1
        assert message in text


def test_a_state_in_a_file_is_kept_when_a_length_changes(swing: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "started.toml")
    assert run("convert", str(swing), path, "--set", "rod.theta=0.7", "--speed", "rod.omega=2")[0] == 0
    code, text = run("assemble", path, "--no-files", "--set", "O.b.position[0]=-0.3")
    assert code == 0
    assert float(row(text, "rod.theta")[-1]) == pytest.approx(0.7)
    assert float(row(text, "rod.omega")[-1]) == pytest.approx(2.0)
    assert float(row(text, "rod.y")[-1]) == pytest.approx(0.3 * np.sin(0.7), rel=1e-5)


def test_linearize_takes_where_a_force_acts_by_both_names(swing: Path, tmp_path: Path) -> None:
    """A torque on a hanging rod turns it by `1 / (m g l/2)`."""
    for option in ("--force", "--push"):
        path = tmp_path / f"{option}.npz"
        start = ("--set", f"rod.theta={-np.pi / 2}")
        code, text = run("linearize", str(swing), *start, option, "O.angle", "--read", "O.angle", "--out", str(path))
        assert code == 0, text
        with np.load(path) as opened:
            A, B, C = (opened[name] for name in "ABC")
            assert opened["inputs"].tolist() == ["O.angle"]
        np.testing.assert_allclose(-C @ np.linalg.solve(A, B), [[1 / (9.81 * 0.5)]], rtol=1e-6)


def test_inputs_are_numbers_and_tables(swing: Path, tmp_path: Path) -> None:
    """A torque holds the rod where `m g l/2 cos θ` is that; a table holds another one before and after its times."""
    table = tmp_path / "log.csv"
    table.write_text("time [s],O.angle [N m],other\n0,2,7\n1,,7\n2,3,7\n")
    start = ("--set", f"rod.theta={-np.pi / 2}", "--stable", "--no-files", "--read", "rod.theta")
    for given in ("O.angle=2", f"O.angle={table}"):
        code, text = run("equilibrium", str(swing), *start, "--input", given)
        assert code == 0, text
        assert float(row(text, "rod.theta")[-1]) == pytest.approx(-np.arccos(2 / (9.81 * 0.5)), rel=1e-5)
    code, text = run("simulate", str(swing), "--no-files", "--until", "3", "--input", given, "--read", "O angle.effort")
    assert code == 0, text
    assert [float(x) for x in row(text, "O angle.effort")[-4:]] == [2, 3, 2, 3]


def test_what_a_driver_prescribes_is_added_to_by_a_smooth_signal(tmp_path: Path) -> None:
    """A parabola, which a smoothing spline leaves as it is."""
    table = tmp_path / "log.csv"
    ts = np.linspace(0.0, 1.0, 30)
    table.write_text("t,turn.motion [deg]\n" + "".join(f"{t},{90 * t**2}\n" for t in ts))
    model = tmp_path / "model.py"
    model.write_text(
        "from jaxmbd import planar as pl\n"
        "disc = pl.Body('disc', 1.0, 1.0)\n"
        "joint = pl.Revolute('O', pl.ground.at(), disc.at())\n"
        "mechanism = pl.Mechanism([disc], [joint], drivers=[pl.Driver('turn', 'O.angle', 1.0)])\n"
    )
    options = ("--no-files", "--until", "1", "--read", "O.angle", "--read", "O.angle_rate", "--read", "turn.effort")
    code, text = run("kinematics", str(model), *options, "--input", f"turn.motion={table}")
    assert code == 0, text
    assert float(row(text, "O.angle")[-3]) == pytest.approx(1 + np.pi / 2, rel=1e-5)


@pytest.mark.parametrize(
    ("given", "text", "message"),
    [
        ("O.angel=2", "", "There is no input named 'O.angel'. Did you mean 'O.angle'?"),
        ("O.angle=fast", "", "--input takes a name and a number or a CSV file"),
        ("O.angel=log.csv", "t,O.angle\n0,1\n1,2", "There is no input named 'O.angel'. Did you mean 'O.angle'?"),
        ("O.angle=log.csv", "t,O.angel\n0,1\n1,2", "no column is named 'O.angle'; there are t, O.angel."),
        ("O.angle=log.csv", "O.angle,x\n0,1\n1,2", "no column is named 'time'; there are O.angle, x."),
        ("O.angle=log.csv", "t,O.angle [N]\n0,1\n1,2", "the unit of 'O.angle' is 'N m', got 'N'"),
        ("O.angle=log.csv", "t,O.angle,O.angle\n0,1,2\n1,2,3", "two columns are named 'O.angle'"),
        ("O.angle=log.csv", "t,O.angle\n1,1\n0,2", "times must increase"),
        ("O.angle=log.csv", "t,O.angle\n1,\n0,", "has no number"),
        ("O.angle=none.csv", "", "There is no file 'none.csv'"),
    ],
)
def test_inputs_that_are_none(
    swing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(text)
    code, shown = run("assemble", str(swing), "--no-files", "--input", given)
    assert code == 1
    assert message in said(shown)


def test_equations_are_formulas_and_source(swing: Path, tmp_path: Path) -> None:
    options = [str(swing), "--coordinates", "joint", "--symbol", "rod.mass=m", "--symbol", "O.b.position[0]=L"]
    code, text = run("equations", *options, "--format", "sympy", "--piece", "xM", "--piece", "vF")
    assert code == 0
    assert text.splitlines()[0] == "xM = Matrix([[L**2*m + 833/10000]])"
    assert "L*m*cos(theta_O)" in text
    code, text = run("equations", *options, "--format", "latex")
    assert (code, r"L^{2} m" in text, r"\ddot{\theta}_{O}" in text) == (0, True, True)
    target = tmp_path / "new" / "equations.py"
    code, text = run("equations", str(swing), "--coordinates", "joint", "--format", "numpy", "--out", str(target))
    assert code == 0
    space: dict = {}
    exec(target.read_text(), space)
    found = space["equations"](0.0, np.array([0.3]), np.array([2.0]))
    np.testing.assert_allclose(np.ravel(found["xM"]), 0.0833 + 0.25)
    np.testing.assert_allclose(np.ravel(found["vF"]), -0.5 * 9.81 * np.cos(0.3) - 0.1 * 2.0)
    for more, message in (
        (["--format", "c", "--symbol", "rod.mas=n"], "Did you mean 'rod.mass'?"),
        ([], "--symbol is for formulas and source text: give --format latex, sympy, numpy or c"),
        (["--format", "numpy", "--piece", "M_hat"], "no piece of --format numpy named 'M_hat'"),
        (["--format", "sympy", "--piece", "M_hat"], "no piece of --format sympy named 'M_hat'"),
        (["--format", "latex", "--piece", "xN"], "no piece of --format latex named 'xN'. Did you mean 'xM'?"),
    ):
        code, text = run("equations", *options, *more)
        assert code == 1
        assert message in text
    assert "M_hat (1 × 1)" in run("equations", str(swing), "--piece", "M_hat")[1]


def test_lines_of_describe_end_at_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, width in ("40", 80), ("100", 100), ("200", 120):
        monkeypatch.setenv("COLUMNS", columns)
        code, text = run("describe", "five-bar")
        assert code == 0
        assert not re.search(r"(left|right|[A-Z])$", text, re.MULTILINE)  # of left motor.effort, B (Revolute, 2 rows)
        assert "\n  (" not in text
        longest = max(map(len, text.splitlines()))
        assert width - 30 < longest <= width


def test_values_of_options_have_one_grammar() -> None:
    assert values.numbers("--set", ["rod.mass=2", "left motor.effort = -1e3", "O.angle=-90deg"]) == {
        "rod.mass": 2.0,
        "left motor.effort": -1e3,
        "O.angle": -np.pi / 2,
    }
    assert values.ranges("--parameter", ["O.angle=-90deg:0.5"]) == {"O.angle": (-np.pi / 2, 0.5)}
    assert values.grids("--over", ["a.b=1:2:3", "c.d=0:180deg:8@sobol"]) == {
        "a.b": values.Grid(1.0, 2.0, 3, ""),
        "c.d": values.Grid(0.0, np.pi, 8, "sobol"),
    }
    right = {values.numbers: "crank.theta=0.3", values.ranges: "rod.mass=0.5:2", values.grids: "rod.mass=0.5:2:20"}
    for parse, wrong in (
        (values.numbers, ["rod.mass", "rod.mass=", "=2", "rod.mass=2kg", "rod.mass=1:2", "rod.mass=nan"]),
        (values.ranges, ["rod.mass=1", "rod.mass=2:1", "rod.mass=1:1", "rod.mass=1:2:3", "rod.mass=1:inf"]),
        (values.grids, ["rod.mass=1:2", "rod.mass=1:2:1", "rod.mass=1:2:2.5", "rod.mass=2:1:5"]),
    ):
        for text in wrong:
            with pytest.raises(MechanismError) as caught:
                parse("--over", [text])
            assert f"got {text!r}" in str(caught.value)
            assert right[parse] in str(caught.value)
    with pytest.raises(MechanismError, match=r"no draw for --over named 'sobl'\. Did you mean 'sobol'"):
        values.grids("--over", ["rod.mass=1:2:4@sobl"])


def test_options_that_are_lists_say_so() -> None:
    for name, option in vars(options).items():
        kind, *about = get_args(option) or (None,)
        for info in about:
            if isinstance(info, OptionInfo):
                assert ("(repeatable)" in str(info.help)) == ("list" in str(kind)), name


def test_names_of_models_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuple(completion.example_names()) == examples.names()
    assert set(completion.ENDINGS) == {".toml", ".py", *SUFFIXES}
    monkeypatch.chdir(tmp_path)
    for name in ("pen.toml", "pen.txt", ".pen.toml", "data.csv"):
        Path(name).touch()
    Path("pens").mkdir()
    Path("pens/robot.urdf").touch()
    assert completion.complete_model("pen") == ["pendulum", "pendulum-with-four-bar", "pen.toml", "pens/"]
    assert completion.complete_model("pens/") == ["pens/robot.urdf"]
    assert completion.complete_data("") == ["data.csv", "pens/"]


def test_show_opens_the_pictures_alone(swing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", opened.append)
    assert run("draw", str(swing), "--show", "--out", str(tmp_path))[0] == 0
    assert opened == [str(tmp_path / "draw.png")]
    assert run("equations", str(swing), "--out", str(tmp_path / "equations.txt"))[0] == 0
    assert len(opened) == 1
