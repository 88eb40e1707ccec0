"""Checks of joints and forces of users' own classes, when a mechanism is built: each of their methods is traced on
shapes, once per type, so that a mistake names the part and the method."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx

from jaxmbd.errors import MechanismError
from jaxmbd.model.body.names import NameUsedError
from jaxmbd.model.force.force import AbstractForce, AbstractJointForce
from jaxmbd.model.joint.joint import AbstractJoint, AbstractJointWithCoordinates
from jaxmbd.model.mechanism.groups import kind_of, unnamed
from jaxmbd.model.mechanism.law_shapes import laws_of
from jaxmbd.model.states import AbstractOwnStates, values_of
from jaxmbd.user_functions import call_user

_TAKES = {
    "residual": "t, frames",
    "slip": "t, frames, rates",
    "motion": "frames",
    "X_FM": "c",
    "across_joint_velocity": "c, w",
    "wrenches": "t, frames, rates",
    "effort": "t, coordinate, rate",
    "couple": "a, b",
}


def is_users(part: object) -> bool:
    """True for a part of a class of a user's own."""
    return part is not None and not type(part).__module__.startswith("jaxmbd.")


def check_user_classes(mechanism: Any) -> None:
    """Raise unless the methods of users' joints and forces work, and return what their coordinates and markers need."""
    checked: list[Any] = []
    for part in (*mechanism.joints, *mechanism.forces):
        if not is_users(part):
            continue
        kind = kind_of(unnamed(part))
        if kind not in checked:
            checked.append(kind)
            if isinstance(part, AbstractJoint):
                _check_coordinates(part)
            for law, arguments in laws_of(mechanism, part):
                _check_law(mechanism, part, law, arguments)


def _label(part: Any) -> str:
    return f"{type(part).__name__} {part.name!r}"


def _check_coordinates(joint: AbstractJoint) -> None:
    names, units = joint.coordinate_names, joint.coordinate_units
    if len(names) != len(units):
        raise MechanismError(
            f"{_label(joint)}: coordinate_units must have one unit, 'm' or 'rad', for each of coordinate_names: got "
            f"{units!r} for {names!r}."
        )
    if lost := [name for name in joint.unwrapped if name not in names]:
        raise MechanismError(f"{_label(joint)}: unwrapped names {lost[0]!r}, and its coordinates are {_some(names)}.")
    if names and not isinstance(joint, AbstractJointWithCoordinates):
        raise MechanismError(
            f"{_label(joint)} has the coordinates {_some(names)}: it must be an AbstractJointWithCoordinates, whose "
            "motion(frames) gives their values."
        )


def _check_law(mechanism: Any, part: object, law: str, arguments: tuple[Any, ...]) -> None:
    """Trace one method, and compare the shape of its result with what is needed, where that is known."""
    takes = _TAKES.get(law, "what the class that it overrides says")

    def call(*at: object) -> Any:
        return call_user(_label(part), law, getattr(part, law), *at, takes=takes)

    try:
        found = eqx.filter_eval_shape(call, *arguments)
    except NameUsedError:
        return  # another check says it
    needed = _needed(mechanism, part, law)
    if needed is None:
        return
    shape = getattr(found, "shape", None)
    if shape is None or (shape != needed if isinstance(needed, tuple) else len(shape) != needed):
        given = f"shape {shape}" if shape is not None else f"a {type(found).__name__}"
        axes = "an array with one axis, such as jnp.stack([x])"
        need = f"an array of shape {needed}" if isinstance(needed, tuple) else axes
        raise MechanismError(f"{_label(part)}: {law}({takes}) must return {need}, got {given}.")


def _needed(mechanism: Any, part: object, law: str) -> tuple[int, ...] | int | None:
    """The shape of what a method returns, or only its number of axes; None where it is no array."""
    space = mechanism.space
    if law in ("residual", "slip") and isinstance(part, AbstractJoint):
        return 1
    if law == "own_rates" and isinstance(part, AbstractOwnStates):
        return (sum(value.size for value in values_of(part)),)
    shapes = {
        "motion": (len(getattr(part, "coordinate_names", ())),),
        "across_joint_velocity": (len(space.speeds),),
        "effort": (),
        "couple": (),
    }
    if isinstance(part, AbstractForce):
        shapes |= {"wrenches": (len(part.markers), len(space.efforts)), "potential": ()}
    if isinstance(part, AbstractJointForce):
        shapes |= {"potential": ()}
    return shapes.get(law)


def _some(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
