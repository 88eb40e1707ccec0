"""Fits, sweeps and designs by command, from a model file and tables alone."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import jaxmbd as mbd
from jaxmbd.cli import _study as studies
from jaxmbd.cli._data import read_table
from jaxmbd.cli._model import load
from jaxmbd.cli._study import study_of
from jaxmbd.cli._values import Grid
from tests.cli.test_cli import run, said

STANDARD, HIGH = mbd.Integration(), mbd.Integration(accuracy="high")
LIMITS = ["--at-most", "tip.y:max=0.2", "--at-least", "tip.y:min=-0.2", "--at-least", "tip.y:max=-0.1"]


@pytest.fixture
def swing(tmp_path: Path) -> str:
    """A new model: a rod of 1 kg and 1 m on a pin, horizontal, with friction, in joint coordinates."""
    path = tmp_path / "swing.toml"
    assert run("new", str(path))[0] == 0
    path.write_text('coordinates = "joint"\n' + path.read_text())
    return str(path)


def final_tip(path: str, until: float, mass: float, angle: float = 0.0) -> np.ndarray:
    """Where the tip is at the end, by calls of the library."""
    mechanism = mbd.load(path)
    text = Path(path).read_text().replace("mass = 1.0 ", f"mass = {mass} ")
    other = Path(path).with_name("other.toml")
    other.write_text(text)
    mechanism = mbd.load(other)
    state = mbd.assemble(mechanism, {"O.angle": angle})
    return np.asarray(mbd.simulate(mechanism, state, np.linspace(0.0, until, 11))["tip"])


def test_fit_finds_the_mass_of_a_simulated_motion(swing: str, tmp_path: Path) -> None:
    data, target = tmp_path / "data.csv", tmp_path / "fit.toml"
    options = ["--until", "1", "--rows", "21", "--read", "O.angle", "--out", str(data)]
    assert run("simulate", swing, "--set", "rod.mass=1.3", *options)[0] == 0
    code, text = run("fit", swing, str(data), "--parameter", "rod.mass=0.5:2", "--out", str(target))
    assert code == 0, text
    assert "Fit: converged" in text
    assert re.search(r"rod\.mass\b.*\bkg\b", text)
    assert mbd.load(target)["rod"].mass == pytest.approx(1.3, rel=1e-6)


def test_patterns_free_each_match_for_itself_and_sweep_all_together(swing: str) -> None:
    mechanism = load(swing).mechanism
    found = studies.parameters(mechanism, {"*.mass": (0.5, 2.0), "*.position[1]": (-1.0, 3.0)})
    places = [f"{marker}.position[1]" for marker in ("O.a", "O.b", "tip.at")]
    assert list(found) == ["rod.mass", *places]
    assert [float(found[name].start) for name in found] == [1.0, 0.0, 0.0, 0.0]
    study = studies.study_of(load(swing), np.linspace(0.0, 0.1, 3), ["tip.y:final"], STANDARD, ["*.mass"])
    both, one = study({"*.mass": 1.7}), study({"rod.mass": 1.7})
    assert both["tip.y.final"] == one["tip.y.final"] != study({})["tip.y.final"]
    with pytest.raises(mbd.MechanismError, match=r"'rod\.mass' is given twice, the last time by 'rod\.mass'"):
        studies.parameters(mechanism, {"*.mass": (0.5, 2.0), "rod.mass": (0.5, 2.0)})
    with pytest.raises(mbd.MechanismError, match=r"no number of a part named '\*.mas'"):
        studies.space_of(mechanism, {"*.mas": Grid(0.5, 2.0, 3, "")})


def test_the_noise_is_that_of_quantities(swing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In SI units or with deg, whatever the unit of the column; each table has that of its own columns."""
    given: list[Any] = []

    def problem(model: object, experiments: list[mbd.Experiment], *_: object, **__: object) -> None:
        given.extend(experiments)
        raise mbd.MechanismError("as far as this")

    monkeypatch.setattr(mbd.identification, "Problem", problem)
    one, both = tmp_path / "one.csv", tmp_path / "both.csv"
    one.write_text("time,O.angle [deg]\n0,0\n1,1\n")
    both.write_text("time,O.angle,tip.y\n0,0,0\n1,1,1\n")
    fit = ["fit", swing, str(one), str(both), "--parameter", "rod.mass=0.5:2"]
    assert "as far as this" in run(*fit, "--sigma", "O.angle=0.5deg", "--sigma", "tip=0.01")[1]
    levels = [{name: float(level) for name, level in experiment.sigma.items()} for experiment in given]
    assert levels == [{"O.angle": np.deg2rad(0.5)}, {"O.angle": np.deg2rad(0.5), "tip": 0.01}]
    for option, message in (
        ("O.angle=0.1", "sigma must give a level for each measured channel; 'tip' has none"),
        ("tip.y=0.1", "no measured quantity for --sigma named 'tip.y'. Did you mean 'tip'"),
    ):
        code, text = run(*fit, "--sigma", option)
        assert code == 1
        assert message in text


@pytest.mark.slow
def test_fit_finds_several_numbers_and_the_start_and_writes_all_files(swing: str, tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "data.csv"
    true = ["--set", "rod.mass=1.3", "--set", "friction.viscous=0.25", "--set", "O.angle=20deg"]
    options = ["--until", "1", "--rows", "41", "--no-film", "--read", "O.angle", "--read", "tip"]
    assert run("simulate", swing, *true, *options, "--out", str(data))[0] == 0
    free = ["--parameter", "rod.mass=0.5:2", "--parameter", "friction.viscous=0.05:1", "--estimate", "O.angle"]
    angle = ["--sigma", "O.angle=0.5deg"]
    code, text = run("fit", swing, str(data), *free, "--sigma", "tip=0.01", *angle, "--out", str(out))
    assert code == 0, text
    assert "Fit: converged" in text
    assert "RMS of the residuals: O.angle" in said(text)
    fitted = mbd.load(out / "fit.toml")
    assert fitted["rod"].mass == pytest.approx(1.3, rel=1e-6)
    assert fitted["friction"].viscous == pytest.approx(0.25, rel=1e-6)
    assert mbd.load_state(fitted, out / "fit.toml")["O.angle"] == pytest.approx(np.deg2rad(20), rel=1e-6)
    saved = mbd.load(out / "fit.nc").set_index(parameter="parameter")
    assert float(saved["estimate"].sel(parameter="rod.mass")) == float(fitted["rod"].mass)
    assert sorted(path.name for path in out.iterdir()) == ["fit.html", "fit.nc", "fit.png", "fit.toml"]


def test_tables_are_read_with_units_components_and_missing_samples(swing: str, tmp_path: Path) -> None:
    mechanism, path = mbd.load(swing), tmp_path / "data.csv"
    path.write_text('"time [s]",O.angle [deg],tip.x [m], tip.y\n\n0,90, 1,2\n0.5,,3,4\n')
    ts, data = read_table(path, mechanism)
    np.testing.assert_array_equal(ts, [0.0, 0.5])
    np.testing.assert_allclose(data["O.angle"], [np.pi / 2, np.nan])
    np.testing.assert_array_equal(data["tip"], [[1.0, 2.0], [3.0, 4.0]])
    path.write_text("t,tip.y\n0,2\n0.5,4\n")
    np.testing.assert_array_equal(read_table(path, mechanism)[1]["tip"], [[np.nan, 2.0], [np.nan, 4.0]])
    for text, message in (
        ("time,tip.z\n0,1\n1,2", "line 1: There is no quantity named 'tip.z'"),
        ("time,O.angel\n0,1\n1,2", "line 1: There is no quantity named 'O.angel'. Did you mean 'O.angle'?"),
        ("time,O.angle [m]\n0,1\n1,2", "line 1: the unit of 'O.angle' is 'rad', got 'm'"),
        ("time,x\n0,1\n1,2", "line 1: There is no quantity named 'x'"),
        ("tip.x,O.angle\n0,1\n1,2", "no column is named 'time'"),
        ("time,O.angle\n0,1\n1;2", "line 3: not all cells are numbers: '1;2'"),
        ("time,O.angle\n0,1\n1", "line 3: 1 cells below 2 headings"),
        ("\n\ntime,O.angle\n\n0,1\n\n1;2", "line 7: not all cells are numbers: '1;2'"),
        ("\ntime,rod.thetta [rad]\n0,1\n1,2", "line 2: There is no quantity named 'rod.thetta'. Did you mean"),
        ("time,O.angle [°]\n0,1\n1,2", "line 1: this is no UTF-8 text. Save the table as CSV in UTF-8."),
        ("", "is no table of at least two columns"),
    ):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(mbd.MechanismError) as caught:
            read_table(path, mechanism)
        assert message in str(caught.value)


def test_sweep_equals_single_motions_and_goes_on(swing: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["sweep", swing, "--until", "0.3", "--rows", "11", "--out", str(out)]
    over = ["--over", "rod.mass=0.5:2:2", "--over", "O.angle=0:60deg:3", "--output"]
    code, text = run(*command, *over, "tip.y:min", "--output", "tip.x")
    assert code == 0, text
    assert "swing: 6 variants" in text
    assert "O.angle [rad]" in said(text)
    found = mbd.sweeps.read_store(out / "sweep.zarr")
    assert dict(found.sizes) == {"rod.mass": 2, "O.angle": 3}
    for mass in (0.5, 2.0):
        for angle in (0.0, np.pi / 3):
            tip, at = final_tip(swing, 0.3, mass, angle), {"rod.mass": mass, "O.angle": angle}
            one = found.sel(at, method="nearest")
            np.testing.assert_allclose(one["tip.y.min"], tip[:, 1].min(), atol=1e-7)
            np.testing.assert_allclose(one["tip.x.final"], tip[-1, 0], atol=1e-7)
    rows = np.genfromtxt(out / "sweep.csv", delimiter=",", skip_header=1)
    np.testing.assert_allclose(rows[:, 2], found["tip.y.min"].to_numpy().ravel())
    code, text = run(*command, *over, "tip.y:max")
    assert code == 1
    assert "the output 'tip.y.min' is in the store only" in text
    assert "Give --overwrite to delete it" in text


@pytest.mark.parametrize(
    ("options", "swept", "fixed", "speeds", "replaced"),
    [
        ({}, ["O.angle"], {"A.angle": 0.8}, {"O.angle": -3.0, "A.angle": -1.0}, ""),
        (
            {"speed": ["O.angle=2", "A.angle=1"]}, ["O.angle_rate"], {"O.angle": -0.5, "A.angle": 0.8},
            {"A.angle": 1.0}, "speed O.angle",
        ),
        # The lower arm's direction is that of the upper one and the angle between them.
        (
            {}, ["lower.theta", "lower.omega"], {"O.angle": -0.5}, {"O.angle": -3.0}, "A.angle, speed A.angle",
        ),
    ],
)  # fmt: skip
def test_a_sweep_of_one_start_value_keeps_the_others(
    options: dict[str, Any], swept: list[str], fixed: dict[str, float], speeds: dict[str, float], replaced: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Those that depend on it give way, which is said."""
    study = study_of(load("double-pendulum", **options), np.array([0.0, 1e-6]), ["A.angle"], HIGH, swept)
    assert (study.fixed, study.speeds) == (fixed, speeds)
    text = f"--over {', '.join(swept)} replaces what is prescribed and depends on it: {replaced}."
    assert said(capsys.readouterr().err) == (text if replaced else "")


def test_a_sweep_from_a_state_in_a_file_keeps_its_other_values(tmp_path: Path) -> None:
    path, start = str(tmp_path / "double.toml"), ["--set", "O.angle=0.2", "--set", "A.angle=0.5"]
    assert run("convert", "double-pendulum", path, "--coordinates", "joint", *start)[0] == 0
    study = study_of(load(path), np.array([0.0, 1e-6]), ["A.angle", "upper.theta"], HIGH, ["upper.theta"])
    assert study.fixed == pytest.approx({"A.angle": 0.5})
    assert study.speeds == pytest.approx({"O.angle_rate": -3.0, "A.angle_rate": -1.0})
    found = study({"upper.theta": 0.7})
    assert float(found["A.angle.final"]) == pytest.approx(0.5, abs=1e-5)
    assert float(found["upper.theta.final"]) == pytest.approx(0.7, abs=1e-5)


@pytest.mark.slow
def test_sweep_over_draws_and_impossible_variants(swing: str, tmp_path: Path) -> None:
    command = ["sweep", swing, "--until", "0.1", "--rows", "3", "--no-files", "--output", "tip.y"]
    draws = ["--over", "rod.mass=0.5:2:4@sobol", "--over", "friction.viscous=0:1:4@sobol"]
    code, text = run(*command, *draws)
    assert code == 0
    assert "swing: 4 variants" in text
    code, text = run(*command, *draws, "--over", "rod.inertia=0.1:1:8@lhs")
    assert code == 1
    assert "their counts and draws must agree, got 4@sobol and 8@lhs" in text


def made(study: studies.Study, space: dict[str, Any], **_: object) -> xr.Dataset:
    """What a sweep would return, with the numbers themselves as outputs, and a variant that failed."""
    inputs = xr.Dataset(coords={n: x if isinstance(x, tuple) else (n, x) for n, x in space.items()})
    total = sum((0.3**k * inputs[name] for k, name in enumerate(space)), xr.DataArray(0.0))
    failed = total == total.max()
    found = {x.name: ((-1) ** k * total**2).where(~failed) for k, x in enumerate(study.outputs)}
    text = xr.where(failed, "The joints are not closed at the start.", "").astype(object)
    counts = {"variants": total.size, "failed": 1}
    return xr.Dataset({**found, "result": failed.astype(np.int32), "result_text": text}, attrs=counts)


MASS, ANGLE, DRAG = (f"--over {x}".split() for x in ("rod.mass=1:2:5", "O.angle=0:1:4", "friction.viscous=0:1:3"))


@pytest.mark.parametrize(
    ("over", "options", "files"),
    [
        (MASS, [], {"sweep-curves.png"}),
        (MASS + ANGLE, [], {"sweep-tip.y.min.png", "sweep-tip.x.max.png"}),
        (MASS + ANGLE + DRAG, ["--format", "svg"], {"sweep-parallel.svg"}),
        (
            MASS,
            ["--minimize", "tip.y:min", "--minimize", "tip.x:max"],
            {"sweep-curves.png", "sweep-front.png", "front.csv"},
        ),
    ],
)
def test_a_sweep_is_drawn(
    over: list[str], options: list[str], files: set[str], swing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mbd, "sweep", made)
    command = ["sweep", swing, *over, "--output", "tip.y:min", "--output", "tip.x:max", *options]
    out = tmp_path / "out"
    code, text = run(*command, "--plot", "--out", str(out))
    assert code == 0, text
    histogram = f"sweep-histogram.{'svg' if options[:1] == ['--format'] else 'png'}"
    assert {path.name for path in out.iterdir()} == files | {histogram, "sweep.csv"}
    assert "wrote" in text
    one = tmp_path / "one.pdf"
    assert run(*command, "--out", str(one))[0] == 0  # the ending asks for a picture
    assert one.stat().st_size > 1000
    if "--minimize" in options:
        assert "on the front of tip.y.min small, tip.x.max small" in said(text)
        front = (out / "front.csv").read_text().splitlines()
        assert front[0] == "rod.mass [kg],tip.y.min [m],tip.x.max [m]"
        assert len(front) == 5  # opposite aims: all but the one that failed


def test_an_interrupted_sweep_says_how_to_go_on(swing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt("sweep: interrupted when 3 of 4 chunks were done.")

    monkeypatch.setattr(mbd, "sweep", interrupted)
    code, text = run("sweep", swing, "--no-files", "--over", "rod.mass=1:2:3", "--output", "tip.y")
    assert code == 130
    assert text == "jaxmbd: sweep: interrupted when 3 of 4 chunks were done.\n"


def test_a_sweep_says_what_it_needs(swing: str) -> None:
    for options, message in (
        ([], "such as --over rod.mass=0.5:1.5:20 --output O.fy:max"),
        (["--over", "rod.mass=1:2:3", "--minimize", "tip.y:max"], "a front needs at least two aims"),
        (["--over", "rod.mass=1:2:3", "--minimize", "tip.y", "--maximize", "tip.y"], "each in one direction"),
        (["--over", "rod.mass=1:2:3", "--output", "tip.y:most"], "no value over time named 'most'. Did you mean"),
        (["--over", "rod.mass=1:2:3", "--output", "tipp.y:max"], "There is no quantity named 'tipp.y'"),
        (["--over", "rod.mas=1:2:3", "--output", "tip.y:max"], "Did you mean 'rod.mass'?"),
        (["--over", "rod.mass=-1:2:3", "--output", "tip.y:max"], "Body 'rod': mass must be"),
        (["--over", "rod.mass=1:2:3", "--output", "tip:max"], "choose one of 'tip.x:max', 'tip.y:max'"),
        (["--over", "rod.mass=1:2:3", "--output", "tip.z:max"], "choose one of 'tip.x:max', 'tip.y:max'"),
    ):
        code, text = run("sweep", swing, "--no-files", *options)
        assert code == 1
        assert message in text


@pytest.mark.parametrize("limits", [[], pytest.param(LIMITS, marks=pytest.mark.slow)])
def test_design_finds_the_spring_that_holds_the_rod(swing: str, tmp_path: Path, limits: list[str]) -> None:
    spring = '[forces.spring]\ntype = "JointSpringDamper"\ncoordinate = "O.angle"\nfree_position = 0.5\n'
    Path(swing).write_text(f"{Path(swing).read_text()}\n{spring}")
    options = ["--until", "0.1", "--rows", "5", "--starts", "1", "--out", str(tmp_path / "out")]
    code, text = run(
        "design", swing, "--variable", "spring.stiffness=1:30", "--minimize", "kinetic_energy:mean", *limits, *options
    )
    assert code == 0, text
    assert ("all constraints kept" in text) == bool(limits)
    held = mbd.load(tmp_path / "out" / "design.toml")
    assert held["spring"].stiffness == pytest.approx(1.0 * 9.81 * 0.5 / 0.5, rel=1e-3)  # m g l / free angle
    assert (tmp_path / "out" / "design.png").stat().st_size > 5000


@pytest.mark.slow
def test_design_finds_what_moves_the_rod_most(swing: str, tmp_path: Path) -> None:
    options = ["--until", "0.1", "--rows", "5", "--starts", "1", "--out", str(tmp_path / "out")]
    code, text = run("design", swing, "--variable", "rod.mass=1:3", "--maximize", "kinetic_energy:mean", *options)
    assert code == 0, text
    assert "The objective, which is minimised, is -kinetic_energy:mean." in text
    assert mbd.load(tmp_path / "out" / "design.toml")["rod"].mass == pytest.approx(3.0, rel=1e-6)


def test_peaks_are_those_between_the_rows(swing: str) -> None:
    """Of a rod that falls from the horizontal: its tip passes the lowest point, at which no row is."""
    study = study_of(load(swing), np.linspace(0.0, 1.0, 4), ["tip.y:min", "tip.y:final"], STANDARD)
    solution, values = study.motion(study.mechanism, study.outputs)
    assert float(values["tip.y.min"]) == pytest.approx(-1.0, abs=1e-5)
    assert float(np.min(solution["tip"][:, 1])) > -0.99
    assert float(values["tip.y.final"]) == float(solution["tip"][-1, 1])
    np.testing.assert_array_equal(solution.ts, study.ts)


def test_a_design_has_one_aim(swing: str) -> None:
    for aims in ([], ["--minimize", "tip.y", "--maximize", "tip.y"]):
        code, text = run("design", swing, "--variable", "rod.mass=1:2", *aims)
        assert code == 1
        assert "one aim: --minimize or --maximize" in text


@pytest.mark.slow
def test_a_design_without_a_solution_is_no_success(swing: str, tmp_path: Path) -> None:
    options = ["--until", "0.1", "--rows", "5", "--starts", "1", "--out", str(tmp_path / "out")]
    aims = ["--variable", "rod.mass=1:2", "--minimize", "tip.y", "--at-least", "tip.x:max=2"]
    code, text = run("design", swing, *aims, *options)
    assert code == 1
    assert "NOT FEASIBLE" in text
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_session_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "use-the-command.md"
    commands = [line.split()[1:] for line in page.read_text().splitlines() if line.startswith("    jaxmbd ")]
    assert {command[0] for command in commands} >= {"new", "check", "draw", "simulate", "fit", "sweep", "design"}
    monkeypatch.chdir(tmp_path)
    for command in commands:
        code, text = run(*command)
        assert code == 0, (command, text)
    assert float(mbd.load("out/fit/design.toml")["friction"].viscous) == pytest.approx(1.9931, abs=2e-3)
