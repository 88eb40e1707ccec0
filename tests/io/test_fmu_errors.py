"""What an FMU and its export refuse, and what they say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fmpy.fmi1 import FMICallException

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.errors import MechanismError
from tests.c_code import compiler
from tests.io.fmus import STEP, Instance, pendulum

has_compiler = pytest.mark.skipif(compiler() is None, reason="no C compiler")


@has_compiler
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda one: one.fmu.getFloat64([999]), "the value reference 999: those of this model are 0 to"),
        (lambda one: one.fmu.setFloat64([999], [1.0]), "no variable with the value reference 999"),
        (lambda one: one.fmu.getFloat64([0], 2), "fmi3GetFloat64: 2 numbers were given where there are 1"),
        (lambda one: one.set({"energy": 1.0}), "'energy' is computed, and cannot be set"),
        (lambda one: one.set({"rod.theta": 1.0}), "'rod.theta' cannot be set now"),
        (lambda one: one.set({"servo.kp": float("nan")}), "'servo.kp' must be finite, got nan"),
        (lambda one: one.step(0.5), "DoStep begins at 0.5 s, and the model is at 0 s"),
        (lambda one: one.step(0.0, length=-0.1), "the step must be positive, got -0.1 s"),
        (lambda one: one.fmu.getDirectionalDerivative([0], [1], [1.0]), "'time' is no unknown"),
        (lambda one: one.fmu.getDirectionalDerivative([8], [9], [1.0]), "'der(rod.y)' is no known"),
        (lambda one: one.fmu.getDirectionalDerivative([8], [1], [1.0, 2.0]), "seed: 2 numbers were given"),
        (lambda one: one.fmu.getAdjointDerivative([8], [1], [1.0], 3), "sensitivity: 3 numbers were given"),
        (lambda one: one.fmu.getBoolean([0]), "There are no variables of the type Boolean"),
        (lambda one: one.fmu.enterInitializationMode(), "not allowed now, in the state 'Step Mode'"),
        (lambda one: one.fmu.enterConfigurationMode(), "this model does not have that"),
        (lambda one: one.fmu.deserializeFMUState(b"0"), "DeserializeFMUState: 1 numbers were given"),
    ],
)  # fmt: skip
def test_wrong_calls_are_errors_with_a_message(call: Callable[[Instance], Any], text: str) -> None:
    """They change nothing: the motion goes on."""
    unit = pendulum()
    with Instance(unit) as one:
        one.started()
        before = one.get(*unit.states)
        with pytest.raises(FMICallException) as error:
            call(one)
        assert error.value.status == 3  # fmi3Error
        assert text in one.messages[-1]
        assert (one.get(*unit.states) == before).all()
        one.step(0.0)


@has_compiler
def test_states_that_cannot_be_closed_are_refused() -> None:
    with Instance(pendulum()) as one:
        one.set({"rod.x": 1e200})
        with pytest.raises(FMICallException):
            one.started()
        assert "joints cannot be closed at t = 0 s" in one.messages[-1]


@has_compiler
def test_steps_that_are_too_long_are_discarded() -> None:
    """The state is the last that is finite."""
    unit = pendulum()
    with Instance(unit) as one:
        one.set({"servo.kp": 1e12})
        one.started()
        with pytest.raises(FMICallException) as error:
            one.step(0.0, length=2.0)
        assert error.value.status == 2  # fmi3Discard
        assert "too long for a stiff mechanism" in one.messages[-1]
        assert np.isfinite(one.get(*unit.states)).all()


@has_compiler
def test_an_instance_of_another_model_is_refused() -> None:
    unit = pendulum()
    with pytest.raises(Exception, match="instantiate"):
        Instance(unit, token="{0}")


def arm(*parts: Any) -> Any:
    body = pl.Body("arm", 1.0, 1 / 12, pose=(0.0, -0.5, 0.0))
    hinge = pl.Revolute("O", pl.ground.at(), body.at(0.0, 0.5))
    forces = [part for part in parts if not isinstance(part, pl.SampledPID | pl.Driver)]
    mechanism = pl.Mechanism([body], [hinge], [pl.Gravity(), *forces], coordinates="joint")
    return mechanism.with_parts([part for part in parts if part not in forces])


def from_python(t: Any, angle: Any, rate: Any, parameters: Any) -> Any:
    shape = jax.ShapeDtypeStruct((), jnp.result_type(float))
    return jax.pure_callback(lambda x: np.sin(x), shape, angle)


BRAKE = pl.DryFriction("brake", "O.angle", 1.0)
DRIVE = pl.Driver("drive", "O.angle", lambda t: t)
SAMPLED = pl.SampledPID("servo", "O.angle", 1.0, period=0.01, kp=1.0, drives="O.angle")


@pytest.mark.parametrize(
    ("mechanism", "options", "text"),
    [
        (arm(), {"inputs": ["O.anlge"]}, "no input named 'O.anlge'. Did you mean 'O.angle'?"),
        (arm(), {"outputs": ["arm.omga"]}, "no quantity named 'arm.omga'. Did you mean 'arm.omega'?"),
        (arm(), {"outputs": ["arm.position[7]"]}, "no quantity named 'arm.position[7]'"),
        (arm(), {"parameters": ["arm.mas"]}, "no number of a part named 'arm.mas'. Did you mean 'arm.mass'?"),
        (arm(), {"parameters": ["arm.mass", "*.mass"]}, "'arm.mass' is given twice in parameters"),
        (arm(), {"outputs": "energy"}, "outputs must be a sequence of names, such as ['energy']"),
        (arm(), {"version": "1.0"}, "version must be '3.0' or '2.0', got '1.0'"),
        (arm(), {"step": -1.0}, "step must be positive [s] and finite, got -1.0"),
        (arm(), {"solver": mbd.Radau()}, "solver must be an explicit Runge-Kutta method"),
        (arm(), {"formulation": mbd.Projection()}, "formulation must be Stabilized(...) or Augmented(alpha, beta)"),
        (arm(BRAKE), {}, "DryFriction 'brake' changes at instants"),
        (arm(SAMPLED), {}, "SampledPID 'servo' changes at instants"),
        (arm(pl.JointForce("own", "O.angle", from_python)), {}, "The law of JointForce 'own' is no arithmetic"),
        (arm(DRIVE), {"inputs": ["drive.motion"]}, "a motion that a driver prescribes"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_what_cannot_be_exported_is_named(mechanism: Any, options: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(MechanismError) as error:
        mbd.export_fmu(mechanism, tmp_path / "arm.fmu", binary=False, **options)
    assert text in str(error.value)


def test_the_path_and_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MechanismError, match=r"An FMU is a file that ends with \.fmu"):
        mbd.export_fmu(arm(), tmp_path / "arm.zip")
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(MechanismError, match=r"the binary could not be compiled.*CC, or write the source alone"):
        mbd.export_fmu(arm(), tmp_path / "arm.fmu", step=STEP)
