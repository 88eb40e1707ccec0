"""The inputs of a mechanism by name: what may act on it from outside, as a signal `u(t)`.

A signal is *added* to what the mechanism has. So zero signals change nothing, signals of several callers superpose, and
the derivative by a signal is the column of `B` that `linearize` computes. What a signal is added to keeps its name, and
its numbers keep theirs.
"""

from collections.abc import Iterable
from typing import Any

import equinox as eqx

from jaxmbd.arrays import Function, Number
from jaxmbd.checks import check_law
from jaxmbd.errors import MechanismError
from jaxmbd.model.controller.linear import PID
from jaxmbd.model.driver import Driver, check_continuous
from jaxmbd.model.force.dry_friction import DryFriction
from jaxmbd.model.force.force import (
    AbstractJointForce,
    FunctionWithInputs,
    JointForceWithInputs,
    ScaledForce,
    ScaledJointForce,
)
from jaxmbd.model.force.hydraulics import HydraulicCylinder
from jaxmbd.model.force.joint_forces import JointForce, JointSpringDamper
from jaxmbd.model.force.marker_forces import Force, SpringDamper
from jaxmbd.model.force.motors import DCMotor
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import AbstractComposite
from jaxmbd.model.mechanism.law_shapes import time_shape
from jaxmbd.upstream.equinox_internals import with_fields
from jaxmbd.user_functions import user_array

# The fields that hold a law of time, and the inputs that are added to it. Any other force along a coordinate gets its
# input as a whole: friction has no such field.
_FIELDS: dict[tuple[type, str], str] = {
    (JointForce, "effort"): "force",
    (JointSpringDamper, "effort"): "actuator",
    (SpringDamper, "tension"): "actuator",
    (DCMotor, "voltage"): "voltage",
    (HydraulicCylinder, "opening"): "opening",
    (DryFriction, "normal"): "normal",
    (Driver, "motion"): "motion",
    (PID, "reference"): "reference",
}


# Forces around others: the fields of these.
_INNER = {JointForceWithInputs: "without_inputs", ScaledForce: "force", ScaledJointForce: "force"}


def input_units(mechanism: Any) -> dict[str, str]:
    """The names of all inputs of a mechanism that may vary over time, with their units."""
    units: dict[str, str] = {}
    for force in mechanism.forces:
        if isinstance(force, AbstractJointForce):
            units[f"{force.name}.effort"] = _effort_unit(mechanism, force.coordinate)
        if isinstance(force, SpringDamper):
            units[f"{force.name}.tension"] = "N"
        for component, unit in (("voltage", "V"), ("opening", "1"), ("normal", "")):
            if _has_input(force, component):
                units[f"{force.name}.{component}"] = unit
    for driver in mechanism.drivers:
        unit = mechanism.coordinate(driver.coordinate).unit(mechanism.space)
        units[f"{driver.name}.motion"] = unit if driver.prescribes == "position" else f"{unit}/s"
    units |= {f"{c.name}.reference": "" for c in mechanism.controllers if isinstance(c, PID)}
    coordinates = [
        f"{j.name}.{c}"
        for j in mechanism.joints
        if isinstance(j, AbstractJoint | AbstractComposite)
        for c in j.coordinate_names
    ]
    coordinates += [f"{body.name}.{c}" for body in mechanism.bodies for c in mechanism.space.prescribable]
    units |= {name: _effort_unit(mechanism, name) for name in coordinates}
    efforts = list(zip(mechanism.space.efforts, mechanism.space.effort_units, strict=True))
    return units | {f"{body.name}.{effort}": unit for body in mechanism.bodies for effort, unit in efforts}


def check_signal(mechanism: Any, name: str, signal: Function | Number) -> None:
    """Raise unless a signal is a number or a function of time that returns one, as smooth as the input asks for, and
    unless the force that it may become can have its name."""
    part = f"Input {name!r}"
    check_law(part, "signal", signal)
    if callable(signal):
        eqx.filter_eval_shape(lambda t: user_array(part, "signal", signal, t, takes="t", shape=()), time_shape())
    groups = mechanism.forces, mechanism.drivers, mechanism.controllers
    found = [x for group in groups for x in group if _receives(x, name)]
    if found and isinstance(found[0], Driver):
        check_continuous(part, signal, found[0].prescribes, ())
    taken = {x.name: type(x).__name__ for x in mechanism.parts()}
    if not found and _force_name(name) in taken:
        raise MechanismError(
            f"{part} is added as a force named {_force_name(name)!r}, which is the name of a "
            f"{taken[_force_name(name)]}: give that another name."
        )


def with_signals(mechanism: Any, signals: Iterable[tuple[str, Function | Number]]) -> Any:
    """Return the mechanism with signals, by the names of inputs over time, unchecked."""
    forces, drivers, controllers = map(list, (mechanism.forces, mechanism.drivers, mechanism.controllers))
    groups: Any = forces, drivers, controllers
    for name, signal in signals:
        found = [(parts, k) for parts in groups for k, x in enumerate(parts) if _receives(x, name)]
        if not found:
            forces.append(_own_force(mechanism, name, signal))
        for parts, k in found[:1]:
            parts[k] = _with_signal(parts[k], name.partition(".")[2], signal)
    return mechanism.replaced(forces, drivers, controllers)


def _effort_unit(mechanism: Any, coordinate: str) -> str:
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
    while (inner := _INNER.get(type(part))) is not None:
        part = getattr(part, inner)
    return (type(part), component) in _FIELDS


def _own_field(part: object) -> str | None:
    """The field of signals in a force that only consists of them."""
    for field in ("force", "torque"):
        law = getattr(part, field, None)
        if isinstance(law, FunctionWithInputs) and law.without_inputs is None:
            return field
    return None


def _own_force(mechanism: Any, name: str, signal: Function | Number) -> AbstractJointForce | Force:
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
    if isinstance(part, JointForceWithInputs) and component == "effort":
        return JointForceWithInputs(part.name, part.coordinate, part.without_inputs, (*part.signals, signal))
    if type(part) in _INNER and component != "effort":
        inner = getattr(part, _INNER[type(part)])
        return with_fields(part, **{_INNER[type(part)]: _with_signal(inner, component, signal)})
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
