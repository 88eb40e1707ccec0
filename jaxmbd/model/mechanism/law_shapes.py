"""The laws of a part, and the shapes of what they take: enough to trace them before there are equations."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.model.controller.controller import AbstractController, AbstractDynamicController
from jaxmbd.model.driver import Driver
from jaxmbd.model.force.force import AbstractForce, AbstractJointForce, GeneralizedForce
from jaxmbd.model.joint.joint import (
    AbstractJoint,
    AbstractJointWithCoordinates,
    AbstractNonholonomic,
    AbstractTreeJoint,
)
from jaxmbd.model.joint.shared import AbstractCoupling
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.states import AbstractOwnStates
from jaxmbd.space.space import AbstractSpace

Shapes = tuple[Any, ...]


def laws_in_time(mechanism: Any, part: Any) -> Iterator[tuple[str, Shapes]]:
    """The methods of a part that the equations of motion call with the time, which comes first, and their arguments."""
    t, q, v = _numbers(), _numbers(mechanism.nq), _numbers(mechanism.nv)
    if isinstance(part, AbstractForce | AbstractJointForce):
        is_between_markers = isinstance(part, AbstractForce)
        arguments = (t, *(marker_shapes(mechanism, part) if is_between_markers else (t, t)))
        yield "wrenches" if is_between_markers else "effort", arguments
        if isinstance(part, AbstractOwnStates):
            yield "own_rates", arguments
    elif isinstance(part, GeneralizedForce):
        yield "generalized", (t, q, v)
    elif isinstance(part, GlobalConstraint):
        yield "residual", (t, q)
    elif isinstance(part, AbstractJoint):
        frames, rates = marker_shapes(mechanism, part)
        yield "residual", (t, frames)
        if isinstance(part, AbstractNonholonomic):
            yield "slip", (t, frames, rates)
    elif isinstance(part, Driver):
        yield "value", (t,)
    elif isinstance(part, AbstractController):
        arguments = t, _numbers(len(part.reads))
        yield "output", arguments
        if isinstance(part, AbstractDynamicController):
            yield "own_rates", arguments


def laws_of(mechanism: Any, part: object) -> Iterator[tuple[str, Shapes]]:
    """The methods that are the law of a part, and their arguments."""
    yield from laws_in_time(mechanism, part)
    number = _numbers()
    if isinstance(part, AbstractForce):
        yield "potential", (number, marker_shapes(mechanism, part)[0])
    if isinstance(part, AbstractJointForce):
        yield "potential", (number,)
    if isinstance(part, AbstractCoupling):
        yield "couple", (number,) * len(part.coordinates)
    if isinstance(part, AbstractJointWithCoordinates):
        yield "motion", (marker_shapes(mechanism, part)[0],)
    if isinstance(part, AbstractTreeJoint):
        c, w = _numbers(len(part.tree_coordinate_units)), _numbers(len(part.speeds))
        yield "X_FM", (c,)
        yield "across_joint_velocity", (c, w)


def marker_shapes(mechanism: Any, part: Any) -> tuple[Shapes, Shapes]:
    """The shapes of the frames and rates of a part's markers."""
    frame, rate = _frame_and_rate(mechanism.space, jnp.result_type(float))
    return (frame,) * len(part.markers), (rate,) * len(part.markers)


@cache
def _frame_and_rate(space: AbstractSpace, dtype: np.dtype) -> tuple[Any, Any]:
    """The shapes for one marker; `dtype`: that of numbers, on which they depend."""
    of_frame, of_rate = (jax.ShapeDtypeStruct((len(x),), dtype) for x in (space.rest, space.speeds))
    return eqx.filter_eval_shape(space.place, of_frame), eqx.filter_eval_shape(space.as_rate, of_rate)


def time_shape() -> jax.ShapeDtypeStruct:
    """The shape of a time, and of any other number."""
    return _numbers()


def _numbers(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.result_type(float))
