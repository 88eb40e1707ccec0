"""The benchmarks' own parts: trees, references, steps, predictions, files and reports. No peer is needed."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from benchmarks import bricard, ours, report, results_file
from benchmarks.budget import Budget, Growth
from benchmarks.options import Options, Record
from benchmarks.peers.tree import absolute_coordinates, joint_values, moved, planar_tree
from benchmarks.problems import GROUND, Problem, four_bars, pendulum, slider_crank
from benchmarks.references import reference
from benchmarks.stepping import march
from benchmarks.table import Table, figures, for_markdown
from benchmarks.workloads import WORKLOADS, commands, first, mechanisms
from benchmarks.workloads.scaling import exponents

PLANAR = [pendulum(), slider_crank(), four_bars(2)]


@pytest.mark.parametrize("problem", PLANAR, ids=lambda problem: problem.name)
def test_tree_of_joints_gives_back_the_bodies_and_closes_the_loops(problem: Problem) -> None:
    tree = planar_tree(problem)
    placed = absolute_coordinates(tree.links, joint_values(tree.links, problem.positions))
    np.testing.assert_allclose(placed, problem.positions, atol=1e-15)
    for closure in tree.closures:
        ends = []
        for body, point in ((closure.body, closure.point), (closure.other, closure.other_point)):
            frame = np.zeros(3)
            if body != GROUND:
                origin = moved(placed[body], -tree.links[body].centre)
                frame = np.array([*origin, placed[body, 2]])
            ends.append(moved(frame, point))
        np.testing.assert_allclose(ends[0], ends[1], atol=1e-15)


def test_bricards_reference_keeps_energy_and_closure() -> None:
    """At a state on the way, the power of the bars' motion is that of gravity, and the closure has no acceleration."""
    speeds, h = np.array([1.0, 0.0, 0.0, 0.0, 0.0]), 1e-6
    chain = bricard.placed(np.zeros(5))
    spin, turn, bias = bricard.angular(chain, speeds)
    jacobian, _ = bricard.closing(chain, speeds, spin, turn, bias)
    free = np.linalg.svd(jacobian)[2][4]
    state = np.concatenate([np.zeros(5), free])
    rates = bricard.rates(0.0, state)
    before, after = energy(state - h * rates), energy(state + h * rates)
    assert abs(after - before) / (2 * h) < 1e-7
    ends = [bricard.placed((state + s * h * rates)[:5]).points[5] for s in (-1, 1)]
    np.testing.assert_allclose((ends[1] - ends[0]) / (2 * h), 0.0, atol=1e-9)


def energy(state: np.ndarray) -> float:
    """Kinetic and potential energy of Bricard's ring."""
    chain = bricard.placed(state[:5])
    spin, turn, bias = bricard.angular(chain, state[5:])
    place, _ = bricard.linear(chain, chain.centres, spin, bias, turn)
    total = 0.0
    for k, rotation in enumerate(chain.rotations):
        speed, turning = place[k] @ state[5:], rotation.T @ spin[k]
        total += 0.5 * speed @ speed + 0.5 * turning @ (bricard.moments(k) * turning) + 9.81 * chain.centres[k, 1]
    return float(total)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_the_state_of_many_four_bars_is_what_assembly_returns(coordinates: str) -> None:
    problem = four_bars(2)
    mechanism = ours.mechanism_of(problem).with_coordinates(coordinates)
    made = ours.parallel_state(mechanism, problem)
    assembled = mbd.assemble(mechanism, guess=dict(zip(mechanism.coordinate_names, made.q.tolist(), strict=True)))
    assert jax.tree.structure(made) == jax.tree.structure(assembled)
    np.testing.assert_allclose(made.q, assembled.q, atol=1e-12)


def test_steps_are_of_order_four_and_the_same_in_simulate() -> None:
    problem = replace(pendulum(), duration=0.8)
    mechanism = ours.mechanism_of(problem).with_coordinates("joint")
    state = ours.start_of(mechanism, problem)
    exact, errors = reference(problem)[0, 2], []
    for steps in (40, 80):
        q, _ = march(mechanism, mbd.Augmented(), state.q, state.v, problem.duration / steps, steps)
        errors.append(abs(float(q[0]) - exact))
    assert 14 < errors[0] / errors[1] < 18
    solution = mbd.simulate(
        mechanism, state, jnp.array([0.0, problem.duration]), formulation=mbd.Augmented(), solver=mbd.RungeKutta4(),
        stepsize_controller=dfx.ConstantStepSize(), dt0=problem.duration / 80,
    )  # fmt: skip
    np.testing.assert_allclose(solution.q[-1, 0], q[0], atol=1e-13)


def test_larger_sizes_are_predicted_from_smaller_ones() -> None:
    growth = Growth()
    assert growth.predicted(10) == 0.0
    growth.add(10, prepare=2.0, run=0.01)
    growth.add(100, prepare=2.0, run=10.0)
    assert growth.predicted(200) == pytest.approx(2.0 + 80.0)
    budget = Budget(100.0, clock=count(0.0, 30.0).__next__)
    assert budget.refusal(80.0, limit=50.0) == "left out, 80 s predicted"
    assert budget.refusal(45.0, limit=50.0) == "left out, the workload's time is up"


def test_exponent_is_fitted_to_what_was_measured() -> None:
    case = {"coordinates": "joint", "batch": 1}
    records = [case | {"n": n, "microseconds": 3.0 * n**1.5, "failure": ""} for n in (10, 30, 100)]
    records.append(case | {"n": 300, "failure": "left out"})
    assert exponents(records) == {("joint", 1): pytest.approx(1.5)}


def test_results_of_other_workloads_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for name, date in (("steps", "2026-01-01"), ("batch", "2026-01-02")):
        records = [{"a": name}, {"a": None}]
        new = {"environments": {name: {"date": date}}, "seconds": {name: 1.0}, "workloads": {name: records}}
        results_file.save(results_file.merged(path, new), path)
    read = results_file.load(path)
    assert read["workloads"] == {name: [{"a": name}, {"a": None}] for name in ("steps", "batch")}
    assert read["environments"] == {"steps": {"date": "2026-01-01"}, "batch": {"date": "2026-01-02"}}


def test_each_machine_is_named_with_its_workloads() -> None:
    one = {"cpu": "A", "cores": 2, "device": "cpu", "python": "3.11", "packages": {"jax": "0.10"}, "date": "2026-01-03"}
    environments = {"steps": one, "batch": one | {"date": "2026-01-01"}}
    same = report.filled("<!-- table: environment -->\n<!-- end -->", {"environments": environments})
    assert same.splitlines()[1] == "A, 2 cores, float64, Python 3.11, jax 0.10; 2026-01-01 to 2026-01-03."
    environments["sweep"] = one | {"cpu": "B", "packages": {"jax": "0.10", "mujoco": None}}
    several = report.filled("<!-- table: environment -->\n<!-- end -->", {"environments": environments})
    assert several.splitlines()[1:4:2] == [
        "A, 2 cores, float64, Python 3.11, jax 0.10; 2026-01-01 to 2026-01-03 (steps, batch).",
        "B, 2 cores, float64, Python 3.11, jax 0.10; 2026-01-03 (sweep).",
    ]


def test_report_is_filled_between_its_markers_and_again() -> None:
    entry = {
        "n": 1,
        "program": "jaxmbd",
        "label": "joint",
        "microseconds": 6.84,
        "steps": 9,
        "error": 0.0,
        "failure": "",
    }
    content = {"workloads": {"steps": [entry]}}
    text = "before\n<!-- table: steps -->\nold\n<!-- end -->\n<!-- table: batch -->\n<!-- end -->\nafter\n"
    once = report.filled(text, content)
    assert "| 1 | – | 6.84 | – | – |" in once
    assert "old" not in once
    assert "(not measured yet)" in once
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert report.filled(once, content) == once
    with pytest.raises(ValueError, match="no table is called 'stops'"):
        report.filled(text.replace("steps", "stops"), content)


def test_report_in_the_docs_has_a_place_for_every_workload() -> None:
    text = (Path(__file__).parents[1] / "docs" / "performance.md").read_text(encoding="utf-8")
    assert {name for _, name, _ in report.MARKED.findall(text)} == {"environment", *WORKLOADS}


def test_tables_and_figures() -> None:
    table = Table("t", ("a", "b"), [["x|y", "**1**"]], ["Note."])
    assert for_markdown(table) == "| a | b |\n| --- | ---: |\n| x\\|y | **1** |\n\nNote."
    numbers = (None, 0.0, 0.000123, 0.0123, 1.236, 15236.0, 3e8)
    assert [figures(x) for x in numbers] == ["–", "0.00e+00", "1.23e-04", "0.0123", "1.24", "15,200", "3.00e+08"]


def test_first_calls_of_two_versions_stand_side_by_side() -> None:
    def record(version: str, stage: str, cpu: float, **more: str) -> Record:
        what: Record = {"version": version, "stage": stage, "mechanism": "pendulum", "state": "new"}
        return what | {"cpu": cpu, "wall": 2 * cpu, "failure": ""} | more

    after = [record("after", "simulate", 0.5), record("after", "gradient", 1.0)]
    (alone,) = first.tables(after)
    assert alone.heads == ("stage", "mechanism", "computer", "CPU [s]", "wall [s]")
    assert alone.rows[0] == ["simulate", "pendulum", "new", "0.5", "1"]
    before = [record("before", "simulate", 2.0), {**record("before", "gradient", 0.0), "failure": "given up"}]
    (both,) = first.tables([*before, *after])
    assert both.heads[3:6] == ("CPU [s], before", "CPU [s], after", "ratio")
    assert both.rows[0][3:] == ["2", "0.5", "0.25", "4", "1", "0.25"]
    assert both.rows[1][3:] == ["–", "1", "–", "–", "2", "–"]
    assert both.notes == [
        "before, gradient pendulum, new: given up.", "Geometric mean of the ratios of CPU time: 0.25."
    ]  # fmt: skip


def test_first_calls_are_measured_in_states_of_the_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The versions take turns; the states of the computer follow one another in the same folders, and medians are
    taken."""
    calls: list[tuple[str, ...]] = []

    def process(script: str, activity: str, mechanism: str, device: str, limit: float, variables: object) -> object:
        assert isinstance(variables, dict)
        calls.append((activity, mechanism, Path(variables["PYTHONPATH"]).name, variables["JAX_COMPILATION_CACHE_DIR"]))
        return {activity: [float(len(calls)), 1.0], "failure": ""}

    monkeypatch.setattr(first, "fresh_process", process)
    monkeypatch.setattr(first, "MECHANISMS", ("pendulum",))
    monkeypatch.setattr(first, "ALL", ())
    monkeypatch.setattr(first, "ONCE", ())
    records = first.measure(Options(repeats=3), lambda text: None)
    assert [call[0] for call in calls] == 3 * [*["motion"] * 3, "sensitivities", "sensitivities"]
    assert [call[1] for call in calls[:3]] == ["pendulum", "pendulum+spring", "pendulum"]
    assert calls[0][3] == calls[1][3] == calls[2][3] != calls[3][3]
    found = {(record["stage"], record["state"]): record["cpu"] for record in records}
    motions = {("motion", "new"): 6.0, ("motion", "similar"): 7.0, ("motion", "known"): 8.0}
    assert found == {**motions, ("sensitivities", "known"): 10.0}


@pytest.mark.slow
def test_every_example_is_measured_beside_the_four_bar() -> None:
    """The stages of the quick run: an example with loops has more operations than one without."""
    records = mechanisms.measure(Options(quick=True), lambda text: None)
    assert [record["mechanism"] for record in records] == mbd.examples.names()[:2]
    assert all(record["finite"] for record in records)
    assert mechanisms.stage_of("pendulum").operations < mechanisms.stage_of("planar-four-bar").operations
    (table,) = mechanisms.tables(records)
    assert [row[0] for row in table.rows] == sorted(mbd.examples.names()[:2], key=lambda x: mechanisms.stage_of(x))
    assert table.notes == []


@pytest.mark.slow
def test_first_calls_run_in_a_process_of_their_own() -> None:
    root = Path(__file__).parents[1]
    (result,) = [result for _, result in first.run(("usage", "", ("new",)), root, "cpu")]
    assert result["failure"] == ""
    cpu, wall = result["--help"]
    assert cpu > 0.1
    assert wall > 0.1


def test_commands_are_measured_on_a_computer_that_knows_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version in a folder of its own; the median of its runs, and a failure with its reason."""
    calls: list[tuple[str, ...]] = []

    def process(script: str, *words: str, limit: float, variables: dict[str, str]) -> Record:
        calls.append((*words, variables["XDG_CACHE_HOME"]))
        if words[0] == "draw":
            return {"failure": "no file"}
        cpu = float(len(calls))
        imports = {"jax": 0.5, "jaxlib": 0.25, "jaxmbd": 0.25, "others": 0.5}
        return {"command": [cpu, cpu], "import jax": [0.75, 0.75], "imports": imports, "failure": ""}

    monkeypatch.setattr(commands, "fresh_process", process)
    monkeypatch.setattr(commands, "COMMANDS", ("--help", "draw pendulum"))
    records = commands.measure(Options(repeats=3), lambda text: None)
    assert [call[0] for call in calls] == 3 * ["--help", "draw"]
    assert calls[1][2] == "--out"
    assert len({call[-1] for call in calls}) == 1
    (table,) = commands.tables(records)
    assert table.rows == [["`--help`", "3", "3", "2.2", "0.75", "0.5", "0.25", "1.5"]]
    assert table.notes == ["`import jax` alone takes 0.75 s of CPU.", "after, draw pendulum: no file."]


@pytest.mark.slow
def test_a_command_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    result = commands.run("--help", Path(__file__).parents[1], tmp_path)
    assert result["failure"] == ""
    assert 0.1 < result["imports"]["others"] + result["imports"]["jaxmbd"] < 10
    assert result["imports"]["jax"] == 0
    assert result["command"][0] > 0.1
