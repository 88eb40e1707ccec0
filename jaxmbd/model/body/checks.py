"""Checks of what a part is made of: its name, markers, motion and coordinate."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxmbd.checks import check_line
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND, AbstractMarker
from jaxmbd.space.space import AbstractSpace
from jaxmbd.user_functions import user_array

_PLACE = {2: "the plane", 3: "space"}
_FACADE = {2: "planar", 3: "spatial"}


def check_name(kind: str, name: object) -> None:
    """Raise unless `name` is a valid name of a part: a non-empty string without a dot, on one line."""
    if not isinstance(name, str) or not name or "." in name:
        raise MechanismError(f"A {kind}'s name must be a non-empty string without a dot, got {name!r}.")
    check_line(kind, name)
    if name == GROUND:
        raise MechanismError(f"The name 'ground' is taken by the ground itself; name the {kind} otherwise.")


def check_markers(kind: str, name: str, *markers: Any, space: AbstractSpace | None = None) -> None:
    """Raise unless all are markers, the first two on different bodies, and all in one space (or in `space`)."""
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
        expected = next(iter(markers)).space if space is None else space
        if marker.space != expected:
            raise MechanismError(
                f"{kind} {name!r}: a marker on {marker.body!r} is one of {_PLACE[marker.space.dim]}, where one of "
                f"{_PLACE[expected.dim]} is needed. Take all parts from jaxmbd.{_FACADE[expected.dim]}."
            )


def check_motion(part: str, motion: object, dim: int) -> None:
    """Raise unless `motion` is a function of time that returns a position of a marker."""
    if not callable(motion):
        raise MechanismError(
            f"{part}: motion must be a function of time [s] that returns {dim} numbers [m], got {motion!r}; a marker "
            "that does not move is at(...)."
        )
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    eqx.filter_eval_shape(lambda t: user_array(part, "motion", motion, t, takes="t", shape=(dim,)), t)


def check_coordinate(kind: str, name: str, coordinate: object) -> None:
    """Raise unless the coordinate is written `"joint.coordinate"` or `"body.coordinate"`."""
    check_name(kind, name)
    if not isinstance(coordinate, str) or coordinate.count(".") != 1:
        raise MechanismError(
            f"{kind} {name!r}: coordinate must be written 'joint.angle' or 'body.x', got {coordinate!r}."
        )
