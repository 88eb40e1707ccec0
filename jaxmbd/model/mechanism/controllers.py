"""Checks of controllers as parts of a mechanism: what they read and drive, and what their laws return."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxmbd.errors import MechanismError, check_known
from jaxmbd.model.controller.controller import AbstractController
from jaxmbd.model.controller.sampled import AbstractSampledController
from jaxmbd.model.driver import Driver
from jaxmbd.model.mechanism.inputs import input_units
from jaxmbd.model.mechanism.law_shapes import laws_in_time, marker_shapes
from jaxmbd.model.mechanism.quantities import channel_units, component_of, kinematic_units, reads_speeds_alone
from jaxmbd.model.sensor import Readings, Scaled
from jaxmbd.model.states import AbstractStates, values_of
from jaxmbd.user_functions import call_user


def check_controllers(mechanism: Any) -> None:
    """Raise unless each controller reads what it can, drives what is there, and returns what it should."""
    if not mechanism.controllers:
        return
    shapes = {f"{part.name}.output": _output_shape(mechanism, part) for part in mechanism.controllers}
    shapes |= _shapes_of_sensors(mechanism)
    known, readable, inputs = channel_units(mechanism), kinematic_units(mechanism), input_units(mechanism)
    for part in mechanism.controllers:
        for name in part.reads:
            _check_read(part, name, known, readable, shapes)
        _check_driven(mechanism, part, inputs, shapes[f"{part.name}.output"])
    _check_loops(mechanism)


def foreign_parts(mechanism: Any) -> list[str]:
    """The controllers whose laws call code that is not JAX's, as errors name them."""
    return [_label(part) for part in mechanism.controllers if part.is_foreign]


def _label(part: AbstractController) -> str:
    return f"{type(part).__name__} {part.name!r}"


def _output_shape(mechanism: Any, part: AbstractController) -> tuple[int, ...]:
    """The shape of a controller's output; raise if its laws fail or its rates do not belong to its states."""
    found = {}
    for law, arguments in laws_in_time(mechanism, part):
        function = getattr(part, law)
        call = lambda *at, law=law, function=function: call_user(_label(part), law, function, *at, takes="t, u")  # noqa: E731
        found[law] = eqx.filter_eval_shape(call, *arguments).shape
    if len(found["output"]) > 1:
        raise MechanismError(f"{_label(part)}: output must be a number or several, got shape {found['output']}.")
    if isinstance(part, AbstractStates):
        needed = (sum(value.size for value in values_of(part)),)
        if found["own_rates"] != needed:
            raise MechanismError(f"{_label(part)}: own_rates must return shape {needed}, got {found['own_rates']}.")
    if isinstance(part, AbstractSampledController):
        eqx.filter_eval_shape(part.computed, *next(laws_in_time(mechanism, part))[1])
    return found["output"]


def _shapes_of_sensors(mechanism: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of the readings of sensors of positions and speeds."""
    found = {}
    gravity: Any = jax.ShapeDtypeStruct((mechanism.space.dim,), jnp.result_type(float))
    for sensor in mechanism.sensors:
        if reads_speeds_alone(sensor):
            read = lambda frames, rates, gravity, of=sensor: of.read(Readings(frames, rates, rates, gravity))  # noqa: E731
            found[sensor.name] = eqx.filter_eval_shape(read, *marker_shapes(mechanism, sensor), gravity).shape
    return found


def _check_read(part: AbstractController, name: str, known: Any, readable: Any, shapes: Any) -> None:
    base, place = component_of(name)
    base = name if name in readable else base
    try:
        check_known("quantity", [base], known)
    except MechanismError as error:
        raise MechanismError(f"{_label(part)}: {error}") from None
    if base not in readable:
        raise MechanismError(
            f"{_label(part)} reads {name!r}, which follows from the forces, its own among them. A controller reads "
            "what positions, speeds and states of parts determine, such as 'O.angle', 'O.angle_rate', "
            "'motor.current', or the output of another one."
        )
    shape = shapes.get(base, ())
    if base == name and shape:
        raise MechanismError(
            f"{_label(part)} reads {name!r}, which is {shape[0]} numbers; name one of them, such as '{name}[0]'."
        )
    if base != name and (not shape or place is None or place >= shape[0]):
        raise MechanismError(f"{_label(part)}: {base!r} has the shape {shape}, and no component {name!r}.")


def _check_driven(mechanism: Any, part: AbstractController, inputs: dict[str, str], shape: tuple[int, ...]) -> None:
    for name in part.driven:
        try:
            check_known("input", [name], inputs)
        except MechanismError as error:
            raise MechanismError(f"{_label(part)}: {error}") from None
        if isinstance(_owner(mechanism, name), Driver):
            raise MechanismError(
                f"{_label(part)} drives {name!r}, the motion that a Driver prescribes, which must be known in advance. "
                f"Take an effort along the coordinate, {_owner(mechanism, name).coordinate!r}, and remove the Driver."
            )
        if isinstance(_owner(mechanism, name), AbstractController):
            raise MechanismError(
                f"{_label(part)} drives {name!r}: a controller follows another one by reading its output, such as "
                f"PID(..., follows='{part.name}.output')."
            )
    count = 1 if shape == () else shape[0]
    if part.driven and len(part.driven) != count:
        raise MechanismError(
            f"{_label(part)} has {count} output{'s'[: count != 1]}, and drives {len(part.driven)} inputs: "
            f"{', '.join(map(repr, part.driven))}. It must drive one for each output, or none."
        )


def _owner(mechanism: Any, name: str) -> Any:
    return next((part for part in mechanism.parts() if part.name == name.partition(".")[0]), None)


def _check_loops(mechanism: Any) -> None:
    """Raise if controllers read one another's outputs in a circle."""
    outputs = {f"{part.name}.output": part.reads for part in mechanism.controllers}
    scaled = {sensor.name: (sensor.of,) for sensor in mechanism.sensors if isinstance(sensor, Scaled)}
    follows = {name: [component_of(x)[0] for x in reads] for name, reads in (outputs | scaled).items()}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            circle = " → ".join((*path[path.index(name) :], name))
            raise MechanismError(
                f"Controllers read one another's outputs in a circle, {circle}: none of them can be the first. Let one "
                "read a state of another, such as 'filter.value' of a LowPass."
            )
        for other in follows.get(name, ()):
            visit(other, (*path, name))

    for name in outputs:
        visit(name, ())
