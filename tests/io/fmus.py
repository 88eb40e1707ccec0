"""FMUs for tests, each exported once in a process, and their instances in FMPy."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import diffrax as dfx
import fmpy
import jax
import jax.numpy as jnp
import numpy as np
from fmpy.fmi2 import FMU2Model, FMU2Slave
from fmpy.fmi3 import FMU3Model, FMU3Slave
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from tests.motors import slider_crank

STEP = 1e-3  # [s] of the method of all of them


class Unit(NamedTuple):
    """An FMU with the mechanism that it was made of, and the arguments."""

    path: Path
    mechanism: Any
    state: mbd.State
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]

    @property
    def description(self) -> Any:
        return fmpy.read_model_description(str(self.path))

    @property
    def references(self) -> dict[str, int]:
        return {one.name: one.valueReference for one in self.description.modelVariables}

    def references_of(self, *names: str) -> list[int]:
        found = self.references
        return [found[name] for name in names]

    @property
    def states(self) -> tuple[str, ...]:
        return self.mechanism.layout.names

    @property
    def rates(self) -> tuple[str, ...]:
        return tuple(f"der({name})" for name in self.states)

    def export(self, path: Path, **settings: Any) -> None:
        names: Any = {"inputs": self.inputs, "outputs": self.outputs, "parameters": self.parameters}
        mbd.export_fmu(self.mechanism, path, self.state, **names, **settings)

    def simulated(self, end: float = 0.2, kind: str = "CoSimulation", **settings: Any) -> Any:
        """What FMPy's own master computes, every hundredth of a second."""
        names = [v.name for v in self.description.modelVariables if v.causality in ("local", "output")]
        return fmpy.simulate_fmu(
            str(self.path), stop_time=end, output_interval=0.01, fmi_type=kind, output=names, **settings
        )


def solution_of(
    unit: Unit, state: mbd.State | None = None, numbers: Mapping[str, Any] | None = None,
    signals: Mapping[str, Any] | None = None, end: float = 0.2,
) -> Any:  # fmt: skip
    """The motion by `simulate`, with the same steps."""
    mechanism = mbd.with_inputs(mbd.with_numbers(unit.mechanism, numbers or {}), signals or {})
    return mbd.simulate(
        mechanism, state or unit.state, np.linspace(0.0, end, round(end * 100) + 1), solver=mbd.RungeKutta4(), dt0=STEP,
        stepsize_controller=dfx.ConstantStepSize(),
    )  # fmt: skip


class Instance:
    """An instance of an FMU, with the messages that it gives."""

    def __init__(self, unit: Unit, kind: str = "CoSimulation", folder: str | None = None, token: str = "") -> None:
        self.unit, self.messages = unit, list[str]()
        description = unit.description
        of_kind = description.coSimulation if kind == "CoSimulation" else description.modelExchange
        version = description.fmiVersion[0]
        classes = {("3", "CoSimulation"): FMU3Slave, ("3", "ModelExchange"): FMU3Model,
                   ("2", "CoSimulation"): FMU2Slave, ("2", "ModelExchange"): FMU2Model}  # fmt: skip
        self.fmu: Any = classes[version, kind](
            guid=token or description.guid, unzipDirectory=folder or extracted(unit.path),
            modelIdentifier=of_kind.modelIdentifier, instanceName="one",
        )  # fmt: skip
        if version == "3":
            keep = lambda environment, status, category, message: self.messages.append(message.decode())  # noqa: E731
            self.fmu.instantiate(logMessage=keep)
        else:
            self.fmu.instantiate()

    def started(self, start: float = 0.0, **values: float) -> "Instance":
        """The instance after its initialization, with start values by name (dots as two underscores)."""
        self.set({name.replace("__", "."): value for name, value in values.items()})
        if isinstance(self.fmu, FMU2Slave | FMU2Model):
            self.fmu.setupExperiment(startTime=start)
            self.fmu.enterInitializationMode()
        else:
            self.fmu.enterInitializationMode(startTime=start)
        self.fmu.exitInitializationMode()
        return self

    def set(self, values: Mapping[str, float]) -> None:
        if values:
            self._real("set")(self.unit.references_of(*values), list(values.values()))

    def get(self, *names: str) -> np.ndarray:
        return np.array(self._real("get")(self.unit.references_of(*names)))

    def step(self, start: float, count: int = 1, length: float = 0.01) -> None:
        for k in range(count):
            self.fmu.doStep(currentCommunicationPoint=start + k * length, communicationStepSize=length)

    def _real(self, what: str) -> Callable[..., Any]:
        return getattr(self.fmu, what + ("Real" if isinstance(self.fmu, FMU2Slave | FMU2Model) else "Float64"))

    def __enter__(self) -> "Instance":
        return self

    def __exit__(self, *_: object) -> None:
        self.fmu.freeInstance()


def response(unit: Unit) -> Callable[[Array, Array, Array, Array], tuple[Array, Array]]:
    """The rates and the outputs by `(t, x, u, p)`, written with the public functions alone."""

    def rates_and_outputs(t: Array, x: Array, u: Array, p: Array) -> tuple[Array, Array]:
        numbers = dict(zip(unit.parameters, p, strict=True))
        signals = dict(zip(unit.inputs, u, strict=True))
        mechanism = mbd.with_inputs(mbd.with_numbers(unit.mechanism, numbers), signals)
        q, v, z = jnp.split(x, [mechanism.nq, mechanism.nq + mechanism.nv])
        equations = mbd.Equations(mechanism).with_own_states(z).solved_in(False, None)
        motion = mbd.Stabilized().motion(equations, t, q, v)
        own = equations.at(t, q).own_rates(motion.v)
        at = mbd.Snapshot(t, q, motion.v, motion.vdot, motion.lam, z)
        read = mbd.extend.channel_values(equations, unit.outputs, at)
        return jnp.concatenate([motion.qdot, motion.rate, own]), jnp.concatenate([jnp.ravel(y) for y in read.values()])

    return jax.jit(rates_and_outputs)


@cache
def extracted(path: Path) -> str:
    return str(fmpy.extract(str(path), unzipdir=str(path.with_suffix(".unzipped"))))


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="jaxmbd-fmus-"))


def _exported(
    name: str, mechanism: Any, state: mbd.State, inputs: Sequence[str], outputs: Sequence[str],
    parameters: Sequence[str], version: str = "3.0",
) -> Unit:  # fmt: skip
    unit = Unit(_folder() / f"{name}.fmu", mechanism, state, tuple(inputs), tuple(outputs), tuple(parameters))
    unit.export(unit.path, version=version, step=STEP)
    return unit


@cache
def crank(coordinates: str, version: str = "3.0") -> Unit:
    """A slider-crank with a motor, whose current is a state."""
    mechanism = mbd.with_numbers(slider_crank(coordinates), {"crank.mass": 0.2})
    state = mbd.assemble(mechanism, {"O.angle": 0.3}, speeds={"O.angle": 1.0})
    return _exported(
        f"crank_{coordinates}_{version[0]}", mechanism, state, ["motor.voltage", "slider.fx"],
        ["slider.velocity", "energy", "C.fy", "motor.effort"],
        ["rod.mass", "motor.resistance", "A.a.position[0]"], version,
    )  # fmt: skip


JUMP = 0.0537  # [s] between two communication points and two steps


@cache
def top() -> Unit:
    """A top in space, with a force that jumps, another one from a table, and a beat of the ground."""
    body = sp.Body("top", mass=15.0, inertia=(0.234375, 0.46875, 0.234375), pose=(0.0, 1.0, 0.0))
    along = jnp.array([1.0, 0.0, 0.0])
    kick = mbd.Piecewise([JUMP], [lambda t, *at: 0.0 * t * along, lambda t, *at: (40.0 + 3.0 * t) * along])
    table = mbd.Table([0.0, 0.05, 0.11, 0.4], [[0.0, 0.0, 0.0], [0.0, 0.0, 30.0], [0.0, 0.0, -20.0], [0.0, 0.0, 5.0]])
    forces = [sp.Gravity(9.81), sp.Force("kick", body.at(), kick), sp.Force("table", body.at(0.1, 0, 0), table)]
    beat = sp.ground.moving(lambda t: jnp.stack([0.0 * t, 0.0 * t, 0.01 * jnp.sin(9.0 * t)]))
    ball = sp.Spherical("O", beat, body.at(0, -1, 0))
    mechanism = sp.Mechanism([body], [ball], forces)
    spin = {f"top.omega_{axis}": speed for axis, speed in zip("xyz", (0.0, 150.0, -4.61538), strict=True)}
    state = mbd.assemble(mechanism, speeds=spin)
    return _exported("top", mechanism, state, ["top.mx"], ["top.position", "energy", "O.fz"], ["top.mass"])


@cache
def pendulum(version: str = "3.0") -> Unit:
    """A pendulum in absolute coordinates, with a controller that has a state: quickly exported."""
    rod = pl.Body("rod", mass=1.0, inertia=1 / 12, pose=(0.0, -0.5, 0.0))
    pin = pl.Revolute("O", pl.ground.at(), rod.at(0.0, 0.5))
    servo = pl.PID("servo", "O.angle", 1.0, kp=60.0, ki=40.0, kd=12.0, rate="O.angle_rate", drives="O.angle")
    mechanism = pl.Mechanism([rod], [pin], [pl.Gravity()]).with_parts([servo])
    state = mbd.assemble(mechanism, {"O.angle": 0.0})
    return _exported(
        f"pendulum_{version[0]}", mechanism, state, ["servo.reference", "O.angle"],
        ["rod.position", "servo.output", "energy"], ["servo.kp", "O.b.position[1]"], version,
    )  # fmt: skip


@cache
def gear(coordinates: str = "joint", version: str = "3.0") -> Unit:
    """A wheel that is driven to and fro, and one that it drives with play."""
    wheel, rim = pl.Body("wheel", 1.0, 0.1), pl.Body("rim", 1.0, 0.2)
    joints = [pl.Revolute("W", pl.ground.at(), wheel.at()), pl.Revolute("R", wheel.at(), rim.at())]
    teeth = pl.Backlash("teeth", "R.angle", stiffness=500.0, damping=0.5, play=0.02)
    push = pl.JointForce("push", "W.angle", lambda t, *_: 3 * jnp.sin(7 * t))
    mechanism = pl.Mechanism([wheel, rim], joints, [teeth, push], coordinates=coordinates)
    state = mbd.assemble(mechanism)
    return _exported(
        f"gear_{coordinates}_{version[0]}", mechanism, state, [], ["teeth.effort"], ["teeth.play"], version
    )
