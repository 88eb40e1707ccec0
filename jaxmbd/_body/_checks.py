"""Checks that parts share: each raises a `MechanismError` that names the part, shows what was given and what helps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd._body._base import GROUND, AbstractMarker
from jaxmbd._errors import MechanismError
from jaxmbd._space import AbstractSpace
from jaxmbd._types import is_concrete

_PLACE = {2: "the plane", 3: "space"}
_FACADE = {2: "planar", 3: "spatial"}


def check_name(kind: str, name: Any) -> None:
    """Raise unless `name` can be used to reach a part: a non-empty string without a dot."""
    if not isinstance(name, str) or not name or "." in name:
        raise MechanismError(f"A {kind}'s name must be a non-empty string without a dot, got {name!r}.")
    if name == GROUND:
        raise MechanismError(f"The name 'ground' is taken by the ground itself; name the {kind} otherwise.")


def check_shape(part: str, field: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise unless an array has the shape that its field needs (placeholders of tree maps pass)."""
    if value is None or isinstance(value, str):
        need = "a number" if shape == () else f"numbers of shape {shape}"
        raise MechanismError(f"{part}: {field} must be {need}, got {value!r}.")
    if isinstance(value, Array | np.ndarray) and value.shape != shape:
        need = "be a number" if shape == () else f"have shape {shape}"
        raise MechanismError(f"{part}: {field} must {need}, got shape {value.shape}.")


def check_finite(part: str, field: str, value: Any, shape: tuple[int, ...] = ()) -> None:
    """Raise unless an array has the shape that its field needs and, where it is known, is finite."""
    check_shape(part, field, value, shape)
    if isinstance(value, Array) and is_concrete(value) and not np.isfinite(np.asarray(value)).all():
        raise MechanismError(f"{part}: {field} must be finite, got {np.asarray(value)}.")


def check_number(part: str, field: str, value: Any, unit: str, *, zero: bool = False) -> None:
    """Raise unless a known number is finite and positive (or zero, where that is allowed)."""
    if not isinstance(value, Array) or not is_concrete(value):
        return
    numbers = np.asarray(value)
    worst = float(numbers.min())
    if not np.isfinite(numbers).all() or worst < 0 or (worst == 0 and not zero):
        need = "zero or positive" if zero else "positive"
        raise MechanismError(f"{part}: {field} must be {need} [{unit}] and finite, got {worst:g}.")


def check_markers(kind: str, name: str, *markers: Any, space: AbstractSpace | None = None) -> None:
    """Raise unless the markers are markers, on two different bodies, of one space (or the given one)."""
    check_name(kind, name)
    for marker in markers:
        if not isinstance(marker, AbstractMarker):
            raise MechanismError(
                f"{kind} {name!r}: expected markers such as body.at(x, y), got {type(marker).__name__}."
            )
    if len(markers) > 1 and markers[0].body == markers[1].body:
        raise MechanismError(
            f"{kind} {name!r} connects body {markers[0].body!r} with itself; give markers on two different bodies."
        )
    for marker in markers:
        needed = next(iter(markers)).space if space is None else space
        if marker.space != needed:
            raise MechanismError(
                f"{kind} {name!r}: a marker on {marker.body!r} is one of {_PLACE[marker.space.dim]}, where one of "
                f"{_PLACE[needed.dim]} is needed. Take all parts from jaxmbd.{_FACADE[needed.dim]}."
            )


def check_callable(kind: str, name: str, function: Any) -> None:
    """Raise unless `function` can be called."""
    if not callable(function):
        raise MechanismError(f"{kind} {name!r}: function must be callable, got {type(function).__name__}.")


def check_motion(part: str, motion: Any, dim: int) -> None:
    """Raise unless `motion` is a function of time that gives the place of a marker."""
    if not callable(motion):
        raise MechanismError(
            f"{part}: motion must be a function of time [s] that returns {dim} numbers [m], got {motion!r}; a marker "
            "that does not move is at(...)."
        )
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    shape = eqx.filter_eval_shape(lambda t: jnp.asarray(motion(t)), t).shape
    if shape != (dim,):
        raise MechanismError(
            f"{part}: what the function motion returns must have shape ({dim},) [m], got shape {shape}."
        )


def check_coordinate(kind: str, name: str, coordinate: Any) -> None:
    """Raise unless the coordinate is written as a joint's name, a dot, and the coordinate's."""
    check_name(kind, name)
    if not isinstance(coordinate, str) or coordinate.count(".") != 1:
        raise MechanismError(
            f"{kind} {name!r}: coordinate must be written 'joint.angle' or 'joint.displacement', got {coordinate!r}."
        )
