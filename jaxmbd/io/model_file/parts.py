"""The classes that a model file names, and what the file holds of each: read from the classes themselves.

A class that `jaxmbd.planar` or `jaxmbd.spatial` exports is known without a line here. The keys of its table are the
arguments of its constructor, and their forms are the types of the fields of the same names.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import equinox as eqx
import jax
from jaxtyping import AbstractArray

from jaxmbd import planar, spatial
from jaxmbd.model.body.body import AbstractBody, AbstractMarker
from jaxmbd.model.controller.controller import AbstractController
from jaxmbd.model.driver import Driver
from jaxmbd.model.force.force import (
    FunctionWithInputs,
    JointForceWithInputs,
    ScaledForce,
    ScaledFunction,
    ScaledJointForce,
)
from jaxmbd.model.functions.curve import AlongCurve, Curve, Polynomials
from jaxmbd.model.functions.fourier import FourierSeries
from jaxmbd.model.functions.piecewise import Piecewise, Table
from jaxmbd.model.functions.spline import SmoothingSpline
from jaxmbd.model.joint.shared import RackAndPinion
from jaxmbd.model.mechanism.mechanism import AnyForce, Joint, Mechanism, Sensor
from jaxmbd.model.mechanism.named_coordinates import GeneralizedSpeeds
from jaxmbd.space.shape import Shape
from jaxmbd.space.solid import Solid
from jaxmbd.space.space import AbstractFrame
from jaxmbd.space.spatial import SpatialRate

SPACES: dict[str, ModuleType] = {"planar": planar, "spatial": spatial}

# Classes of parts that the namespaces of both spaces lack, and those in the namespaces that are no part of a mechanism.
_FUNCTIONS = (Piecewise, Table, SmoothingSpline, FourierSeries, Polynomials, Curve, AlongCurve)
_AROUND = (ScaledForce, ScaledJointForce, ScaledFunction, FunctionWithInputs, JointForceWithInputs)
_FURTHER = _FUNCTIONS + _AROUND
_NO_PARTS = (Mechanism, GeneralizedSpeeds, Solid, AbstractFrame, SpatialRate)

# The groups of parts of a mechanism, and the classes of each.
GROUPS: dict[str, tuple[type, ...]] = {
    "bodies": (AbstractBody,),
    "joints": get_args(Joint),
    "drivers": (Driver,),
    "forces": get_args(AnyForce),
    "sensors": get_args(Sensor),
    "controllers": (AbstractController,),
}
# What a table without a `type` is.
DEFAULTS = {"bodies": "Body", "drivers": "Driver"}

# Fields that have another name than the argument of the constructor.
_FIELDS: dict[type, dict[str, str]] = {RackAndPinion: {"pinion": "a", "rack": "b"}}
# Classes whose constructor computes the fields of something else: both are understood, the fields are written.
_COMPUTED = (SmoothingSpline, Curve)

REQUIRED: object = object()  # in place of a default


class Form(Enum):
    """What a value in the file may be; any value may also be a table with a `type`."""

    NUMBER = "a number"
    NUMBERS = "a number or a list of numbers"
    TEXT = "text"
    FLAG = "true or false"
    INTEGER = "a whole number"
    REAL = "a real number"
    MARKER = "a marker: a table { body = ..., position = ... }, or the name of a table in [markers]"
    SHAPE = "a shape: a table { kind = ..., size = ... }"
    ANY = "numbers, text, or a table"


@dataclasses.dataclass(frozen=True)
class Argument:
    """A key of a part's table: the field that holds its value, its form, and the value where it is missing.

    `many`: the value is a list of such values. `convert`: the converter of the field.
    """

    name: str
    field: str
    form: Form = Form.ANY
    many: bool = False
    default: object = REQUIRED
    convert: Callable[[Any], object] | None = None

    @property
    def is_required(self) -> bool:
        """True if the constructor has no value of its own for it."""
        return self.default is REQUIRED

    def converted_default(self) -> object:
        """The value of a field that is not given."""
        return self.default if self.convert is None else self.convert(self.default)


@cache
def classes(space: str) -> Mapping[str, type]:
    """The known classes of a space by name."""
    exported = [value for value in vars(SPACES[space]).values() if inspect.isclass(value)]
    parts = [
        value
        for value in exported
        if issubclass(value, eqx.Module) and not inspect.isabstract(value) and not issubclass(value, _NO_PARTS)
    ]
    return {part.__name__: part for part in (*parts, *_FURTHER)}


def of_group(space: str, kinds: tuple[type, ...]) -> list[str]:
    """The names of the known classes of some kinds."""
    return [name for name, part in classes(space).items() if issubclass(part, kinds)]


@cache
def is_known(part: type) -> bool:
    """True for the classes of the library that need no import path."""
    return any(part in classes(space).values() for space in SPACES) or part is GeneralizedSpeeds


@cache
def constructor_arguments(part: type) -> dict[str, Argument]:
    """What the constructor of a class takes, by name."""
    names = _FIELDS.get(part, {})
    fields = field_arguments(part)
    found = {}
    for parameter in inspect.signature(part).parameters.values():
        field = fields.get(names.get(parameter.name, parameter.name), Argument(parameter.name, ""))
        found[parameter.name] = dataclasses.replace(field, name=parameter.name, default=_default(parameter))
    return found


@cache
def field_arguments(part: type) -> dict[str, Argument]:
    """The fields of a class, by name; one that the constructor gives a default for may be missing."""
    try:
        hints = get_type_hints(part)
    except Exception:  # whatever evaluating a user's annotations raises
        hints = {}
    parameters = inspect.signature(part).parameters
    found = {}
    for field in dataclasses.fields(part):
        form, many = _form(hints.get(field.name, object))
        default = _default(parameters[field.name]) if field.name in parameters else REQUIRED
        converter = field.metadata.get("converter")
        found[field.name] = Argument(field.name, field.name, form, many, default, converter)
    return found


def _default(parameter: inspect.Parameter) -> object:
    return REQUIRED if parameter.default is inspect.Parameter.empty else parameter.default


def written_arguments(part: type) -> dict[str, Argument]:
    """What a file holds of a class: what the constructor takes, or else the fields."""
    return constructor_arguments(part) if is_constructed(part) else field_arguments(part)


def is_constructed(part: type) -> bool:
    """True if a part is made again by its constructor, with its checks; others are made of their fields."""
    return is_known(part) and part not in _COMPUTED


_PLAIN = {str: Form.TEXT, bool: Form.FLAG, int: Form.INTEGER, float: Form.REAL}


def _form(hint: object) -> tuple[Form, bool]:
    """The form of a field of some type, and whether it is a sequence of such."""
    if get_origin(hint) in (Union, UnionType):
        forms = {_form(one) for one in get_args(hint) if one is not type(None)}
        if len(forms) == 1:
            return forms.pop()
        numeric = [one for one in forms if one in ((Form.NUMBER, False), (Form.NUMBERS, False))]
        return numeric[0] if len(numeric) == 1 else (Form.NUMBERS, False) if numeric else (Form.ANY, False)
    if get_origin(hint) is tuple and get_args(hint)[1:] == (...,):
        return _form(get_args(hint)[0])[0], True
    if not isinstance(hint, type):
        return Form.ANY, False
    if issubclass(hint, AbstractMarker):
        return Form.MARKER, False
    if issubclass(hint, Shape):
        return Form.SHAPE, False
    if issubclass(hint, AbstractArray | jax.Array):
        return (Form.NUMBER if getattr(hint, "dim_str", None) == "" else Form.NUMBERS), False
    return _PLAIN.get(hint, Form.ANY), False
