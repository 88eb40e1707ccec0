"""Functional Mock-up Units in FMPy: valid, and the same motions as those of `simulate`."""

import ctypes
import shutil
import subprocess
import zipfile
from pathlib import Path

import fmpy
import jax.numpy as jnp
import numpy as np
import pytest
from fmpy.validation import validate_fmu

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.io.fmu.description import base_units
from tests.c_code import compiler
from tests.io.fmus import JUMP, STEP, Instance, Unit, crank, extracted, gear, pendulum, solution_of, top
from tests.marks import slow_but
from tests.numeric import worst

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")
SAME = 1e-10  # the same steps in other code: rounding


def difference(unit: Unit, found: np.ndarray, motion: mbd.Solution) -> float:
    """The largest difference of all states and outputs at all times, in terms of their sizes."""
    columns = {name: motion[name] for name in (*unit.states, *unit.outputs)}
    errors = []
    for name, values in columns.items():
        read = found[name] if values.ndim == 1 else np.stack([found[f"{name}[{k}]"] for k in range(values.shape[1])], 1)
        errors.append(worst(read - values) / max(1.0, worst(values)))
    return max(errors)


SLOW = pytest.mark.slow
UNITS = {
    "closed": pendulum, "2.0": lambda: pendulum("2.0"), "joint": lambda: crank("joint"),
    "absolute": lambda: crank("absolute"), "joint in 2.0": lambda: crank("joint", "2.0"), "space": top,
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but(["closed", "2.0"], UNITS))
def test_co_simulation_is_the_motion_of_simulate(name: str) -> None:
    unit = UNITS[name]()
    assert validate_fmu(str(unit.path)) == []
    assert difference(unit, unit.simulated(), solution_of(unit)) < SAME


@pytest.mark.parametrize("name", slow_but(["closed", "2.0"], UNITS))
def test_model_exchange_is_the_motion_of_simulate(name: str) -> None:
    """By CVODE: the errors of its method. Loads follow from accelerations, which jump where a step ends."""
    unit = UNITS[name]()
    found = unit.simulated(kind="ModelExchange", solver="CVode", relative_tolerance=1e-8)
    motion = solution_of(unit)
    rows = np.searchsorted(found["time"], motion.ts + 1e-9) - 1  # there are several at an event
    errors = [worst(found[name][rows] - motion[name]) / max(1.0, worst(motion[name])) for name in unit.states]
    assert max(errors) < 1e-5
    assert abs(found["energy"][-1] - motion["energy"][-1]) < 1e-5 * abs(motion["energy"][-1])


@SLOW
def test_jumps_are_time_events_of_model_exchange() -> None:
    """Before an event its time belongs to what was before, after it to what follows."""
    unit = top()
    with Instance(unit, "ModelExchange") as one:
        one.started()
        assert one.fmu.updateDiscreteStates()[4:] == (True, 0.05)  # a kink of the table
        forces = []
        for event, following in ((0.05, JUMP), (JUMP, 0.11)):
            one.fmu.enterContinuousTimeMode()
            one.fmu.setTime(event)
            forces.append(one.get("der(top.vx)")[0])
            one.fmu.enterEventMode()
            assert one.fmu.updateDiscreteStates()[4:] == (True, following)
            forces.append(one.get("der(top.vx)")[0])
    assert abs(forces[1] - forces[0]) < 1e-9 * abs(forces[0])
    assert abs(forces[3] - forces[2]) > 0.1


@pytest.mark.parametrize(
    ("coordinates", "version"),
    [("joint", "3.0"), pytest.param("joint", "2.0", marks=SLOW), pytest.param("absolute", "3.0", marks=SLOW)],
)
def test_kinks_are_events_of_model_exchange(coordinates: str, version: str) -> None:
    """An importer that looks for zeros of the indicators ends its steps there, on either side of them."""
    unit = gear(coordinates, version)
    assert validate_fmu(str(unit.path)) == []
    assert unit.description.numberOfEventIndicators == 6
    motion = mbd.simulate(unit.mechanism, unit.state, np.linspace(0.0, 1.0, 101), rtol=1e-12, atol=1e-13)
    found = unit.simulated(1.0, "ModelExchange", solver="CVode", relative_tolerance=1e-10)
    rows = np.searchsorted(found["time"], motion.ts + 1e-9) - 1
    for name in unit.states[: unit.mechanism.nq]:
        np.testing.assert_allclose(found[name][rows], motion[name], atol=1e-6)
    sides = np.stack([found[f"teeth.sides[{k}]"] for k in range(6)], 1)
    indicators = np.stack([found[f"teeth.heights[{k}]"] for k in range(6)], 1)
    assert (np.abs(sides) == 1).all()
    assert (np.diff(sides, axis=0) != 0).sum() > 20
    assert (sides * indicators).min() > -1e-8


@SLOW
@pytest.mark.parametrize("version", ["3.0", "2.0"])
def test_a_law_changes_at_an_event_and_not_before(version: str) -> None:
    """Steps within may pass the kink; a guard that is nearly zero is due if it falls."""
    unit = gear("joint", version)
    with Instance(unit, "ModelExchange") as one:
        one.started()
        update = one.fmu.updateDiscreteStates if version == "3.0" else one.fmu.newDiscreteStates
        update()
        one.fmu.enterContinuousTimeMode()
        near = dict.fromkeys(("W.angle", "R.angle", "W.angle_rate", "R.angle_rate"), 0.0)
        for angle, rate, side in ((0.03, 0.0, 1), (0.0, 0.0, -1), (0.01 - 1e-13, 1.0, 1), (0.01 + 1e-13, -1.0, -1)):
            before = one.get("teeth.sides[0]")
            x = {**near, "R.angle": angle, "R.angle_rate": rate}
            states = [x.get(name, value) for name, value in zip(unit.states, one.get(*unit.states), strict=True)]
            one.fmu.setContinuousStates(np.array(states).ctypes.data_as(ctypes.POINTER(ctypes.c_double)), len(states))
            assert one.get("teeth.sides[0]") == before
            one.fmu.enterEventMode()
            update()
            assert one.get("teeth.sides[0]") == side
            one.fmu.enterContinuousTimeMode()


def test_an_integral_is_where_the_state_says(tmp_path: Path) -> None:
    """A controller without limits has no sides, which alone start anew."""
    body = pl.Body("cart", 1.0, 1.0)
    hold = pl.PID("hold", "cart.x", 0.0, kp=10.0, ki=3.0, drives="cart.fx", integral=0.7)
    rail = pl.Prismatic("rail", pl.ground.at(), body.at())
    mechanism = pl.Mechanism([body], [rail], coordinates="joint", controllers=[hold])
    mbd.export_fmu(mechanism, tmp_path / "cart.fmu", mbd.assemble(mechanism), binary=False)
    variables = fmpy.read_model_description(str(tmp_path / "cart.fmu")).modelVariables
    assert {one.name: one.start for one in variables}["hold.integral"] == "0.7"


@SLOW
def test_parameters_inputs_and_another_start() -> None:
    """By name, as `with_numbers`, `with_inputs` and `assemble` have them; longer arms close the joints elsewhere."""
    unit = crank("absolute")
    numbers = {"rod.mass": 0.7, "motor.resistance": 1.3, "A.a.position[0]": 0.12}
    signals = {"motor.voltage": -3.0, "slider.fx": 2.0}
    longer = mbd.with_numbers(unit.mechanism, numbers)
    state = mbd.assemble(longer, {"O.angle": -0.4}, speeds={"O.angle": 2.0}, guess=unit.state)
    start = dict(zip(unit.states, np.concatenate([state.q, state.v, state.z]).tolist(), strict=True))
    found = unit.simulated(start_values=numbers | signals | start)
    assert difference(unit, found, solution_of(unit, state, numbers, signals)) < SAME


def test_joints_are_closed_after_parameters_have_changed() -> None:
    unit, found = pendulum(), {}
    with Instance(unit) as one:
        one.set({"O.b.position[1]": 0.6, "rod.theta": 0.3})
        one.started()
        found[0.6] = one.get(*unit.states[: unit.mechanism.nq])
        one.set({"O.b.position[1]": 0.55})  # between steps
        one.step(0.0)
        found[0.55] = one.get(*unit.states[: unit.mechanism.nq])
    assert abs(found[0.6][2] - 0.3) < 0.2  # near what was set, but the smallest change turns the rod, too
    for length, open_by in ((0.6, 1e-12), (0.55, 1e-6)):  # the latter after ten steps
        changed = mbd.Equations(mbd.with_numbers(unit.mechanism, {"O.b.position[1]": length}))
        assert worst(changed.position(jnp.zeros(()), jnp.asarray(found[length]))) < open_by


def test_an_input_is_held_over_a_step_and_a_parameter_changes_between_steps() -> None:
    unit = pendulum()
    with Instance(unit) as one:
        one.started()
        one.step(0.0, 5)
        one.set({"O.angle.input": 3.0, "servo.kp": 20.0})
        one.step(0.05, 5)
        found = one.get(*unit.states)
    first = solution_of(unit, end=0.05)
    changed = mbd.with_inputs(mbd.with_numbers(unit.mechanism, {"servo.kp": 20.0}), {"O.angle": 3.0})
    second = mbd.simulate(
        changed, first.state(-1), np.array([0.05, 0.1]), solver=mbd.RungeKutta4(), dt0=STEP, continued=True,
    )  # fmt: skip
    # The state was closed when the parameter was set, to the drift of a few steps.
    assert worst(found - [second[name][-1] for name in unit.states]) < 1e-8


def test_instances_are_independent() -> None:
    unit = pendulum()
    with Instance(unit) as one, Instance(unit) as two:
        two.set({"O.angle.input": -10.0})
        for each in (one, two):
            each.started()
        for k in range(20):
            one.step(0.01 * k)
            two.step(0.01 * k)
        found = [each.get(*unit.states) for each in (one, two)]
    for values, effort in zip(found, (0.0, -10.0), strict=True):
        motion = solution_of(unit, signals={"O.angle": effort})
        assert worst(values - [motion[name][-1] for name in unit.states]) < SAME


@pytest.mark.parametrize("version", ["3.0", "2.0"])
def test_a_state_is_kept_and_serialized(version: str) -> None:
    unit = pendulum(version)
    with Instance(unit) as one, Instance(unit) as two:
        one.set({"O.angle.input": 1.0})
        for each in (one, two):
            each.started()
        one.step(0.0, 5)
        kept, before = one.fmu.getFMUState(), one.get(*unit.states)
        one.step(0.05, 5)
        after = one.get(*unit.states)
        one.fmu.setFMUState(kept)
        assert (one.get(*unit.states) == before).all()
        one.step(0.05, 5)
        assert (one.get(*unit.states) == after).all()
        two.fmu.setFMUState(two.fmu.deserializeFMUState(one.fmu.serializeFMUState(kept)))
        two.step(0.05, 5)
        assert (two.get(*unit.states) == after).all()
        one.fmu.freeFMUState(kept)
        one.fmu.reset()
        one.started()
        assert worst(one.get(*unit.states) - np.concatenate([unit.state.q, unit.state.v, unit.state.z])) < 1e-12


COUNTED = """
#include <stdlib.h>
static long allocations;
__attribute__((visibility("default"))) long counted(void) { return allocations; }
static void *counted_malloc(size_t size) { return allocations++, malloc(size); }
static void *counted_calloc(size_t n, size_t size) { return allocations++, calloc(n, size); }
#define malloc counted_malloc
#define calloc counted_calloc
#include "fmi3.c"
"""


def test_sources_compile_anew_and_allocate_nothing_in_a_step(tmp_path: Path) -> None:
    """With the compiler's warnings as errors."""
    unit, folder = pendulum(), tmp_path / "anew"
    shutil.copytree(extracted(unit.path), folder)
    (library,) = (folder / "binaries").rglob("*.so")
    library.unlink()
    (folder / "sources" / "counted.c").write_text(COUNTED)
    command = [
        str(compiler()),
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "-shared",
        "-fPIC",
    ]
    flags = ["-DFMI3_OVERRIDE_FUNCTION_PREFIX", "-Wno-unused-parameter", "-Wno-cast-function-type"]
    subprocess.run([*command, *flags, "counted.c", "-o", str(library), "-lm"], cwd=folder / "sources", check=True)
    counted = ctypes.CDLL(str(library)).counted
    with Instance(unit, folder=str(folder)) as one:
        one.started()
        before = counted()
        assert before == 1  # the instance itself
        one.step(0.0, 20)
        found = one.get(*unit.states)
        assert counted() == before
    motion = solution_of(unit)
    assert worst(found - [motion[name][-1] for name in unit.states]) < SAME


@SLOW
def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    unit = pendulum()
    again = tmp_path / unit.path.name
    unit.export(again, step=STEP)
    assert again.read_bytes() == unit.path.read_bytes()
    unit.export(again, step=STEP / 2, binary=False)
    assert fmpy.read_model_description(str(again)).guid != unit.description.guid
    assert not [name for name in zipfile.ZipFile(again).namelist() if name.startswith("binaries")]


def test_the_description_tells_names_units_and_dependencies() -> None:
    unit = pendulum()
    found = {one.name: one for one in unit.description.modelVariables}
    assert (found["rod.theta"].unit, float(found["rod.theta"].start)) == ("rad", float(unit.state["rod.theta"]))
    assert (found["O.angle.input"].causality, found["O.angle.input"].unit) == ("input", "N m")
    length = found["O.b.position[1]"]
    assert (length.causality, length.variability, length.unit, length.start) == ("parameter", "tunable", "m", "0.5")
    assert (found["rod.position[0]"].causality, found["rod.position[0]"].unit) == ("output", "m")
    assert found["der(rod.omega)"].unit == "rad/s²"
    units = {one.name: one.baseUnit for one in unit.description.unitDefinitions}
    base = {key: getattr(units["N m"], key) for key in ("kg", "m", "s", "A", "rad")}
    assert base == {"kg": 1, "m": 2, "s": -2, "A": 0, "rad": 0}
    rates = {one.variable.name: {d.name for d in one.dependencies} for one in unit.description.derivatives}
    assert "servo.reference" in rates["der(servo.integral)"]
    assert "O.angle.input" not in rates["der(servo.integral)"]
    assert "O.angle.input" in rates["der(rod.omega)"]
    outputs = {one.variable.name: {d.name for d in one.dependencies} for one in unit.description.outputs}
    assert outputs["rod.position[1]"] == {"rod.y"}
    assert unit.description.variableNamingConvention == "structured"


@pytest.mark.parametrize(
    ("unit", "base"),
    [
        ("kg m²", {"kg": 1, "m": 2}), ("N m s/rad", {"kg": 1, "m": 2, "s": -1, "rad": -1}), ("1", {}),
        ("V/(rad/s)", None), ("N/mⁿ", None), ("1/s", {"s": -1}), ("m/s²", {"m": 1, "s": -2}), ("turns", None),
        ("Pa", {"kg": 1, "m": -1, "s": -2}),
    ],
)  # fmt: skip
def test_units_by_the_base_units_of_si(unit: str, base: dict[str, int] | None) -> None:
    assert base_units(unit) == base
