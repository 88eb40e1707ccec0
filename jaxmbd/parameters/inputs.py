"""The inputs of a mechanism by name: what may act on it from outside, as a signal `u(t)`.

A signal is *added* to what the mechanism has. So zero signals change nothing, signals of several callers superpose, and
the derivative by a signal is the column of `B` that `linearize` computes. What a signal is added to keeps its name, and
its numbers keep theirs.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import equinox as eqx
from jaxtyping import PyTree

from jaxmbd.arrays import Function, Number, Scalar, as_float
from jaxmbd.checks import check_instance, check_law, check_mapping
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.model.driver import Driver, check_continuous
from jaxmbd.model.force.force import AbstractJointForce, FunctionWithInputs, JointForceWithInputs
from jaxmbd.model.force.hydraulics import HydraulicCylinder
from jaxmbd.model.force.joint_forces import JointForce, JointSpringDamper
from jaxmbd.model.force.marker_forces import Force, SpringDamper
from jaxmbd.model.force.motors import DCMotor
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import Tendon
from jaxmbd.model.mechanism.law_shapes import time_shape
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.parameters.numbers import find, is_pattern, names_of, numbers_of, with_numbers
from jaxmbd.parameters.places import AbstractPlace
from jaxmbd.user_functions import lifted, user_array

# The fields that hold a law of time, and the inputs that are added to it. Any other force along a coordinate gets its
# input as a whole: friction has no such field.
_FIELDS: dict[tuple[type, str], str] = {
    (JointForce, "effort"): "force",
    (JointSpringDamper, "effort"): "actuator",
    (SpringDamper, "tension"): "actuator",
    (DCMotor, "voltage"): "voltage",
    (HydraulicCylinder, "opening"): "opening",
    (Driver, "motion"): "motion",
}


def inputs(mechanism: Mechanism) -> dict[str, str]:
    """Return the names of all inputs of a mechanism that may vary over time, with their units.

    - `"O.angle"`, `"slider.x"`: an effort along a coordinate of a joint, a tendon or a body `[N m, N]`;
    - `"rod.fx"`, `"rod.moment"`, in space `"rod.mx"`, …: a force or moment on a body at its centre of mass, in world
      axes;
    - `"motor.effort"`: an addition to the effort of a force along a coordinate;
    - `"spring.tension"`: an addition to the tension of a spring-damper `[N]`;
    - `"motor.voltage"`: an addition to the voltage of a DC motor `[V]`; `"cylinder.opening"`: to the opening of the
      valve of a hydraulic cylinder `[1]`;
    - `"drive.motion"`: an addition to what a driver prescribes `[rad, m]`, or to the speed.

    Every number of the mechanism is an input, too, constant over time, by its own name (`numbers`).

        >>> mbd.inputs(mbd.examples.get("pendulum").mechanism)["O.angle"]
        'N m'
    """
    check_mechanism(mechanism)
    units: dict[str, str] = {}
    for force in mechanism.forces:
        if isinstance(force, AbstractJointForce):
            units[f"{force.name}.effort"] = _effort_unit(mechanism, force.coordinate)
        if isinstance(force, SpringDamper):
            units[f"{force.name}.tension"] = "N"
        for component, unit in (("voltage", "V"), ("opening", "1")):
            if _has_input(force, component):
                units[f"{force.name}.{component}"] = unit
    for driver in mechanism.drivers:
        unit = mechanism.coordinate(driver.coordinate).unit(mechanism.space)
        units[f"{driver.name}.motion"] = unit if driver.prescribes == "position" else f"{unit}/s"
    coordinates = [
        f"{j.name}.{c}" for j in mechanism.joints if isinstance(j, AbstractJoint | Tendon) for c in j.coordinate_names
    ]
    coordinates += [f"{body.name}.{c}" for body in mechanism.bodies for c in mechanism.space.prescribable]
    units |= {name: _effort_unit(mechanism, name) for name in coordinates}
    efforts = list(zip(mechanism.space.efforts, mechanism.space.effort_units, strict=True))
    return units | {f"{body.name}.{effort}": unit for body in mechanism.bodies for effort, unit in efforts}


def with_inputs(mechanism: Mechanism, signals: Mapping[str, Function | Number]) -> Mechanism:
    """Return the mechanism with signals `u(t)` added to its inputs.

    Each signal is added to what is there: to the effort of a motor, to the motion of a driver, to the value of a
    number. Along a coordinate or on a body it is a force of its own, named as the input with a space in place of the
    dot: the effort of the input `"O.angle"` is `solution["O angle.effort"]`. The coordinates stay, so a state of the
    mechanism is one of the mechanism with inputs. `simulate` ends steps at the times of a `Table` or `Piecewise`. The
    result is differentiable with respect to the numbers of the signals, and works under `jit`, `vmap` and `grad`.

    **Arguments:** `mechanism`; `signals`, by the name of an input (`inputs`) a number, or a function of the time `[s]`
    (a plain one, or an equinox module such as `Table`, `Piecewise` or `SmoothingSpline`), in the unit of the input; by
    the name or pattern of a number (`numbers`) a number. The signal of a driver must be as smooth as its motion.

    **Raises:** `MechanismError` for names that do not exist, and for what cannot be a signal.

        >>> example = mbd.examples.get("pendulum")
        >>> pushed = mbd.with_inputs(example.mechanism, {"O.angle": lambda t: 2.0 * jnp.sin(3.0 * t), "rod.fx": -1.0})
        >>> motion = mbd.simulate(pushed, example.state(), [0.0, 0.5, 1.0])
        >>> print(motion["O angle.effort"].round(3))  # [N m]
        [0.    1.995 0.282]
    """
    check_mechanism(mechanism)
    check_instance("with_inputs: signals", signals, Mapping, 'a dictionary, such as {"O.angle": 2.0}')
    check_mapping("with_inputs: signals", signals, '{"O.angle": 2.0}')
    known, over_time = inputs(mechanism), {}
    for name, given in signals.items():
        signal = lifted(as_float(given))
        if name in known:
            check_signal(mechanism, name, signal)
            over_time[name] = signal
            continue
        names = resolved(mechanism, name)
        if callable(signal):
            raise MechanismError(
                f"Input {name!r}: a number of the mechanism is constant over a motion, so what is added to it must be "
                f"a number; got a function. What may vary over time: {', '.join(known)}."
            )
        check_law(f"Input {name!r}", "signal", signal)
        for number in names:
            mechanism = with_numbers(mechanism, {number: find(mechanism, number)[0].value(mechanism) + signal})
    return with_signals(mechanism, over_time.items())


def resolved(mechanism: Mechanism, name: str) -> tuple[str, ...]:
    """Return the inputs over time, or single numbers, that a name or a pattern stands for.

    **Raises:** `MechanismError` if there are none.
    """
    known = inputs(mechanism)
    if name in known:
        return (name,)
    names = names_of(mechanism, name) if is_pattern(name) else (name,)
    check_known("input", names, (*known, *numbers_of(mechanism)))
    return names


def check_signal(mechanism: Mechanism, name: str, signal: Function | Number) -> None:
    """Raise unless a signal is a number or a function of time that returns one, as smooth as the input asks for, and
    unless the force that it may become can have its name."""
    part = f"Input {name!r}"
    check_law(part, "signal", signal)
    if callable(signal):
        eqx.filter_eval_shape(lambda t: user_array(part, "signal", signal, t, takes="t", shape=()), time_shape())
    found = [x for x in (*mechanism.forces, *mechanism.drivers) if _receives(x, name)]
    if found and isinstance(found[0], Driver):
        check_continuous(part, signal, found[0].prescribes, ())
    taken = {x.name: type(x).__name__ for x in mechanism.parts()}
    if not found and _force_name(name) in taken:
        raise MechanismError(
            f"{part} is added as a force named {_force_name(name)!r}, which is the name of a "
            f"{taken[_force_name(name)]}: give that another name."
        )


def with_signals(mechanism: Mechanism, signals: Iterable[tuple[str, Function | Number]]) -> Mechanism:
    """Return the mechanism with signals, by the names of inputs over time, unchecked."""
    forces, drivers = list(mechanism.forces), list(mechanism.drivers)
    for name, signal in signals:
        found = [(parts, k) for parts in (forces, drivers) for k, x in enumerate(parts) if _receives(x, name)]
        if not found:
            forces.append(_own_force(mechanism, name, signal))
        for parts, k in found[:1]:
            parts[k] = _with_signal(parts[k], name.partition(".")[2], signal)
    return mechanism.replaced(forces=forces, drivers=drivers)


class InputPlace(AbstractPlace):
    """An input over time as a place in a mechanism, whose value is a signal that is added to it."""

    is_last: ClassVar[bool] = True  # what it is added to moves further in, so the paths of others come first
    components: ClassVar[tuple[str, ...]] = ()
    name: str = eqx.field(static=True)

    def value(self, part: str, mechanism: Mechanism) -> Scalar:
        return as_float(0.0)

    def replaced(self, mechanism: Mechanism, value: PyTree) -> Mechanism:
        return with_signals(mechanism, [(self.name, value)])


def _effort_unit(mechanism: Mechanism, coordinate: str) -> str:
    return "N m" if mechanism.coordinate(coordinate).unit(mechanism.space) == "rad" else "N"


def _force_name(name: str) -> str:
    """The name of the force that an input along a coordinate or on a body becomes."""
    return name.replace(".", " ")


def _receives(part: Any, name: str) -> bool:
    """True if an input belongs to a part: to its law, or because the part is the force of earlier signals."""
    owner, _, component = name.partition(".")
    if part.name == owner:
        return _has_input(part, component)
    return part.name == _force_name(name) and _own_field(part) is not None


def _has_input(part: object, component: str) -> bool:
    if component == "effort" and isinstance(part, AbstractJointForce):
        return True
    bare = part.without_inputs if isinstance(part, JointForceWithInputs) else part
    return (type(bare), component) in _FIELDS


def _own_field(part: object) -> str | None:
    """The field of signals in a force that only consists of them."""
    for field in ("force", "torque"):
        law = getattr(part, field, None)
        if isinstance(law, FunctionWithInputs) and law.without_inputs is None:
            return field
    return None


def _own_force(mechanism: Mechanism, name: str, signal: Function | Number) -> AbstractJointForce | Force:
    """A force that consists of one signal: on a body, or along a coordinate."""
    owner, _, component = name.partition(".")
    bodies, space = {body.name: body for body in mechanism.bodies}, mechanism.space
    if owner not in bodies or component not in space.efforts:
        return JointForce(_force_name(name), name, FunctionWithInputs((signal,)))
    axis = tuple(float(effort == component) for effort in space.efforts)
    if any(axis[: space.dim]):
        return Force(_force_name(name), bodies[owner].at(), FunctionWithInputs((signal,), axis=axis[: space.dim]))
    axis = None if space.dim == 2 else axis[space.dim :]
    return Force(_force_name(name), bodies[owner].at(), torque=FunctionWithInputs((signal,), axis=axis))


def _with_signal(part: Any, component: str, signal: Function | Number) -> Any:
    """A force or driver with one more signal."""
    if isinstance(part, JointForceWithInputs):
        if component == "effort":
            return JointForceWithInputs(part.name, part.coordinate, part.without_inputs, (*part.signals, signal))
        inner = _with_signal(part.without_inputs, component, signal)
        return JointForceWithInputs(part.name, part.coordinate, inner, part.signals)
    field = _own_field(part) or _FIELDS.get((type(part), component))
    if field is None:
        return JointForceWithInputs(part.name, part.coordinate, part, (signal,))
    law = getattr(part, field)
    added = (
        FunctionWithInputs((*law.signals, signal), law.without_inputs, law.axis)
        if isinstance(law, FunctionWithInputs)
        else FunctionWithInputs((signal,), law)
    )
    return eqx.tree_at(lambda x: getattr(x, field), part, added, is_leaf=lambda x: x is law)
