"""Parts from the tables of a model file. What is read is data: it is checked, and runs nothing unless it is trusted."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeGuard, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import constant
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.io.model_file.encode import DTYPES
from jaxmbd.io.model_file.import_paths import imported
from jaxmbd.io.model_file.parts import (
    Argument,
    Form,
    classes,
    constructor_arguments,
    field_arguments,
    is_constructed,
    is_known,
    of_group,
)
from jaxmbd.io.model_file.shapes import mesh_path, shape_of
from jaxmbd.io.model_file.source import Place
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.flexible import owner_of
from jaxmbd.space.mesh_solid import mesh
from jaxmbd.space.solid import Solid

_PLAIN: dict[Form, tuple[type, ...]] = {
    Form.TEXT: (str,),
    Form.FLAG: (bool,),
    Form.INTEGER: (int,),
    Form.REAL: (float, int),
}
T = TypeVar("T")

_NUMERIC = (Form.NUMBER, Form.NUMBERS)


@dataclasses.dataclass(frozen=True)
class Decoder:
    """The parts that tables describe.

    **Arguments:** `space`; `floats`, the type of plain numbers; `trust`, whether functions and classes may be imported;
    `bodies`, the names that markers may refer to; `markers`, those that have names.
    """

    space: str
    floats: np.dtype
    trust: bool
    bodies: Collection[str]
    markers: Mapping[str, AbstractMarker]

    def module(
        self, table: object, place: Place, kinds: tuple[type, ...], usual: str | None = None, name: str | None = None
    ) -> object:
        """The part that a table describes: of one of some `kinds`, and of the class `usual` if it has no `type`."""
        table = _table(table, place)
        kind = table.get("type", usual)
        known = of_group(self.space, kinds)
        if kind is None:
            raise place.error(f"the type is missing, one of {', '.join(known)}.")
        part = self._class(kind, place.at("type"), known)
        made = self._built(part, {key: x for key, x in table.items() if key != "type"}, place, name)
        if not isinstance(made, kinds):
            raise place.at("type").error(f"a {part.__name__} cannot stand here, but one of {', '.join(known)}.")
        return made

    def _class(self, kind: Any, place: Place, known: list[str]) -> type:
        if isinstance(kind, str) and ":" in kind:
            found = imported(kind, place, self.trust)
            if not isinstance(found, type) or not issubclass(found, eqx.Module) or inspect.isabstract(found):
                raise place.error(f"{kind!r} is no class of parts, derived from equinox.Module.")
            return found
        if kind not in known:
            raise place.error(str(unknown("class", kind, known)))
        return classes(self.space)[kind]

    def build(self, part: type, table: object, place: Place) -> object:
        """A part of a known class, from a table without a `type`."""
        return self._built(part, _table(table, place), place, None)

    def _built(self, part: type, given: dict[str, object], place: Place, name: str | None) -> object:
        fields, named = field_arguments(part), {} if name is None else {"name": name}
        optional = [key for key, argument in fields.items() if not argument.is_required]
        by_fields = not is_constructed(part) and {*given} <= {*fields} <= {*given, *named, *optional}
        arguments = fields if by_fields else constructor_arguments(part)
        place.check_keys(f"entry of a {part.__name__}", given, (key for key in arguments if key not in named))
        title = f"{part.__name__} {name!r}" if name else f"a {part.__name__}"
        missing = [key for key, x in arguments.items() if x.is_required and key not in given and key not in named]
        if missing:
            raise place.located(f"{title} has no {missing[0]!r}, which is {_need(arguments[missing[0]])}.")
        if is_known(part):  # its text and flags are not arrays; those of a user's class may be anything
            _check_plain(given, arguments, place)
        values = {key: self._argument(value, arguments[key], place.at(key)) for key, value in given.items()}
        left_out = {key: argument for key, argument in arguments.items() if key not in values and key not in named}
        if by_fields:
            defaults = lambda: {key: x.converted_default() for key, x in left_out.items()}  # noqa: E731
            return _made(lambda: from_fields(part, {**defaults(), **named, **values}), title, place, given)
        self._check_left_out(left_out, title, place)
        return _made(lambda: part(**named, **values), title, place, given)

    def _check_left_out(self, arguments: Mapping[str, Argument], title: str, place: Place) -> None:
        """Raise if a default would have another type than the numbers of the file."""
        usual = jnp.result_type(float)
        for key, argument in arguments.items() if self.floats != usual else ():
            converts = argument.convert is not None and argument.converted_default() is None
            is_nothing = argument.default is None and (argument.form is Form.ANY or converts)
            if not is_nothing and argument.form not in (*_PLAIN, Form.SHAPE):
                raise place.located(
                    f"{title}: {key} must be given, since its default would be {usual} (JAX's setting), and the "
                    f"numbers of this file are {self.floats}."
                )

    def _argument(self, value: object, argument: Argument, place: Place) -> object:
        if not argument.many or _is_tagged(value):
            return self._one(value, argument.form, place)
        if not isinstance(value, list):
            raise place.error(f"must be {_need(argument)}, got {_shown(value)}.")
        return tuple(self._one(item, argument.form, place.at(k)) for k, item in enumerate(value))

    def _one(self, value: object, form: Form, place: Place) -> object:
        if form is Form.MARKER:
            return self._marker(value, place)
        if form is Form.SHAPE:
            return shape_of(value, place)
        if _is_tagged(value):
            return self._tagged(value, place)
        if form in _PLAIN:
            return _plain(place, value, form)
        return self._array(value, self.floats, place) if form in _NUMERIC else self.value(value, place)

    def _marker(self, value: object, place: Place) -> object:
        if isinstance(value, str):
            if value not in self.markers:
                raise place.error(f"{unknown('marker', value, self.markers)} They are the tables of [markers].")
            return self.markers[value]
        if not isinstance(value, dict):
            raise place.error(f"must be {Form.MARKER.value}, got {_shown(value)}.")
        return self.marker(value, place)

    def marker(self, table: object, place: Place) -> object:
        """The marker that a table describes."""
        table = _table(table, place)
        body = table.get("body")
        if isinstance(body, str) and owner_of(body) not in self.bodies:
            raise place.at("body").error(str(unknown("body", body, self.bodies)))
        return self.module(table, place, (AbstractMarker,), "MovingMarker" if "motion" in table else "Marker")

    def value(self, value: object, place: Place) -> object:
        """A value of any kind."""
        if _is_tagged(value):
            return self._tagged(value, place)
        if isinstance(value, dict):
            return {key: self.value(item, place.at(key)) for key, item in value.items()}
        return value if isinstance(value, str) else self._array(value, self.floats, place)

    def _tagged(self, table: dict[str, object], place: Place) -> object:
        kind = table["type"]
        readers: dict[str, tuple[tuple[str, ...], Callable[..., object]]] = {
            "none": ((), lambda place: None),
            "bool": (("value",), lambda place, value: _plain(place.at("value"), value, Form.FLAG)),
            "int": (("value",), lambda place, value: _plain(place.at("value"), value, Form.INTEGER)),
            "float": (("value",), lambda place, value: _plain(place.at("value"), value, Form.REAL)),
            "tuple": (("items",), lambda place, items: tuple(self._items(place, items))),
            "list": (("items",), self._items),
            "dict": (("items",), self._dict),
            "function": (("path",), self._function),
            "array": (("dtype", "values", "shape", "weak"), self._jax_array),
            "numpy": (("dtype", "values", "shape"), _numpy_array),
            "scalar": (("dtype", "value"), _numpy_scalar),
            "mesh": (("density", "file", "scale"), self._solid),
        }
        if not isinstance(kind, str) or kind not in readers:
            return self.module(table, place, (eqx.Module,))
        keys, read = readers[kind]
        given = {key: value for key, value in table.items() if key != "type"}
        place.check_keys(f"entry of type {kind!r}", given, keys)
        for key in (key for key in keys if key not in ("shape", "weak", "scale") and key not in given):
            raise place.error(f"a value of type {kind!r} has no {key!r}.")
        return read(place, **given)

    def _solid(self, place: Place, density: object, file: object, scale: object = 1.0) -> Solid:
        """The solid that a mesh encloses, in place of a mass."""
        if self.floats != jnp.result_type(float):
            raise place.error(f"mass properties of a mesh are {jnp.result_type(float)}, and this file's {self.floats}.")
        real = lambda key, value: _plain(place.at(key), value, Form.REAL)  # noqa: E731
        return mesh(real("density", density), mesh_path(file, place.at("file")), real("scale", scale))

    def _items(self, place: Place, items: object) -> list[object]:
        if not isinstance(items, list):
            raise place.at("items").error(f"must be a list, got {_shown(items)}.")
        return [self.value(item, place.at("items", k)) for k, item in enumerate(items)]

    def _dict(self, place: Place, items: object) -> dict[object, object]:
        if not isinstance(items, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in items):
            raise place.at("items").error(f"must be a list of pairs [key, value], got {_shown(items)}.")
        at = [place.at("items", k) for k in range(len(items))]
        try:
            return {self.value(k, p.at(0)): self.value(v, p.at(1)) for (k, v), p in zip(items, at, strict=True)}
        except TypeError as error:
            raise place.at("items").error(f"a key cannot be one of a dictionary ({error}).") from None

    def _function(self, place: Place, path: object) -> object:
        found = imported(path, place.at("path"), self.trust)
        if not callable(found):
            raise place.at("path").error(f"{path!r} is a {type(found).__name__}, no function.")
        return found

    def _jax_array(
        self, place: Place, dtype: object, values: object, shape: object = None, weak: object = False
    ) -> Array:
        array = self._array(values, _dtype(dtype, place), place.at("values"), shape)
        if not _plain(place.at("weak"), weak, Form.FLAG):
            return array
        numbers = [jnp.asarray(x) for x in np.ravel(array).tolist()]
        if not numbers or numbers[0].dtype != array.dtype:
            raise place.error(f"numbers of a weak type are those that JAX makes of Python's, and not {array.dtype}.")
        return jnp.stack(numbers).reshape(array.shape)

    def _array(self, values: object, dtype: np.dtype, place: Place, shape: object = None) -> Array:
        if dtype.itemsize == 8 and jnp.result_type(float) != np.float64:
            raise place.error(
                f"its numbers are {dtype}, and JAX is set to 32 bits, which would round them. Set "
                'jax.config.update("jax_enable_x64", True) first, or write floats = "float32" into the file.'
            )
        return constant(_numbers(values, dtype, place, shape))


def from_fields(part: type[T], values: Mapping[str, object]) -> T:
    """A module with exactly these fields, made without its constructor, but with its checks of the whole."""
    made = object.__new__(part)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    for owner in part.__mro__:
        if "__check_init__" in vars(owner):
            vars(owner)["__check_init__"](made)
    return made


def _made(make: Callable[[], object], title: str, place: Place, given: Collection[str]) -> object:
    """What a constructor returns; its error with the line of the key that it names."""
    try:
        return make()
    except MechanismError as error:
        named = re.match(r"[^:]*: (\w+)", str(error))  # "Body 'rod': mass must be positive"
        raise (place.at(named[1]) if named and named[1] in given else place).located(str(error)) from None
    except Exception as error:  # whatever a user's class raises
        raise place.located(f"{title} cannot be made of these values ({type(error).__name__}: {error}).") from error


def _table(value: object, place: Place) -> dict[str, object]:
    if not isinstance(value, dict):
        raise place.error(f"must be a table of keys and values, got {_shown(value)}.")
    return value


def _is_tagged(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict) and "type" in value


def _plain(place: Place, value: Any, form: Form) -> Any:
    if not isinstance(value, _PLAIN[form]) or (isinstance(value, bool) and form is not Form.FLAG):
        raise place.error(f"must be {form.value}, got {_shown(value)}.")
    return float(value) if form is Form.REAL else value


def _check_plain(given: Mapping[str, object], arguments: Mapping[str, Argument], place: Place) -> None:
    for key, value in given.items():
        if arguments[key].form in _PLAIN and _is_tagged(value):
            raise place.at(key).error(f"must be {_need(arguments[key])}, got {_shown(value)}.")


def _dtype(name: Any, place: Place) -> np.dtype:
    if name not in DTYPES:
        raise place.at("dtype").error(str(unknown("type of numbers", name, DTYPES)))
    return jnp.dtype(name)


def _numpy_array(place: Place, dtype: object, values: object, shape: object = None) -> np.ndarray:
    return _numbers(values, _dtype(dtype, place), place.at("values"), shape)


def _numpy_scalar(place: Place, dtype: object, value: object) -> object:
    if isinstance(value, list):
        raise place.at("value").error(f"must be one number, got {_shown(value)}.")
    return _numbers(value, _dtype(dtype, place), place.at("value"))[()]


def _numbers(values: object, dtype: np.dtype, place: Place, shape: Any = None) -> np.ndarray:
    """Numbers in nested lists as an array, each of them representable."""
    kinds = (bool,) if dtype.kind == "b" else (int,) if dtype.kind in "iu" else (int, float)
    _check_entries(values, kinds, place)
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(values, dtype)
        if dtype.kind not in "biu" and (np.isinf(array) & np.isfinite(np.asarray(values, float))).any():
            raise OverflowError
        return array if shape is None else array.reshape([int(n) for n in shape])
    except OverflowError:
        raise place.error(f"a number is too large for an array of type {dtype}.") from None
    except (ValueError, TypeError):
        wrong = "its lists differ in length" if shape is None else f"the values do not have the shape {_shown(shape)}"
        raise place.error(f"{wrong} for an array of type {dtype}.") from None


def _check_entries(values: object, kinds: tuple[type, ...], place: Place) -> None:
    if isinstance(values, list):
        if not all(type(x) in kinds for x in values):
            for k, item in enumerate(values):
                _check_entries(item, kinds, place.at(k))
    elif type(values) not in kinds:
        need = "true or false" if bool in kinds else "a whole number" if float not in kinds else "a number"
        raise place.error(f"must be {need}, or a list of such, got {_shown(values)}.")


def _need(argument: Argument) -> str:
    return f"a list, each {argument.form.value}" if argument.many else argument.form.value


def _shown(value: object) -> str:
    text = "true" if value is True else "false" if value is False else repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__} of {len(text)} characters"
