"""A mechanism's parts as tables of a model file.

A number or a list of numbers in a file is an array of the file's floating-point type, text is text, and a part is a
table with its class as `type`. What else there can be in the parameters of a user's function is a table that says what
it is: `{ type = "int", value = 3 }`. So each array, number and container is read back as what it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import lazy_loader
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import is_concrete
from jaxmbd.errors import MechanismError
from jaxmbd.io.model_file.import_paths import import_path
from jaxmbd.io.model_file.parts import Argument, Form, classes, written_arguments
from jaxmbd.io.model_file.shapes import shape_table
from jaxmbd.io.model_file.toml import Section
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.space.shape import Shape
from jaxmbd.user_functions import plain

if TYPE_CHECKING:
    from jaxmbd.io.fmu import running
else:  # few mechanisms have parts that are FMUs
    running = lazy_loader.load("jaxmbd.io.fmu.running", suppress_warning=True)

_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = ("float16", "bfloat16", "float32", "float64", "bool", *_INTEGERS)
_PLAIN = {Form.TEXT: str, Form.FLAG: bool, Form.INTEGER: int, Form.REAL: float}


@dataclass(frozen=True)
class Encoder:
    """The tables of parts in a space, whose plain numbers have the floating-point type `floats`.

    `folder`: where the file will be, within which it names files of meshes; None to hold the meshes themselves.
    """

    space: str
    floats: np.dtype
    folder: Path | None = None

    def part(self, part: Any, usual: str | None) -> Section:
        """The table of a part, without its name; `usual` is the class that needs no `type`."""
        table = self.module(part, f"{type(part).__name__} {part.name!r}", classes(self.space).get(usual or ""))
        return Section({key: value for key, value in table.items() if key != "name"})

    def module(self, module: object, where: str, usual: type | None = None) -> dict[str, object]:
        """The table of a part or of another module; `where` names it in errors."""
        table = {} if type(module) is usual else self._type(type(module), where)
        for key, argument in written_arguments(type(module)).items():
            if key == "type":
                raise MechanismError(f"{where}: a field named 'type' cannot be saved; give it another name.")
            value = getattr(module, argument.field)
            if not _is_left_out(value, argument):
                table[key] = self._argument(value, argument, f"{where}: {key}")
        return table

    def _type(self, kind: type, where: str) -> dict[str, object]:
        if classes(self.space).get(kind.__name__) is kind:
            return {"type": kind.__name__}
        path = import_path(kind)
        if path is None:
            raise MechanismError(f"{where}: its class {kind.__qualname__} {_NO_PATH}")
        return {"type": path}

    def _argument(self, value: object, argument: Argument, where: str) -> object:
        if argument.many and type(value) is tuple:
            return [self._one(item, argument.form, f"{where}[{k}]") for k, item in enumerate(value)]
        return self.value(value, where) if argument.many else self._one(value, argument.form, where)

    def _one(self, value: object, form: Form, where: str) -> object:
        if form is Form.MARKER and isinstance(value, AbstractMarker):
            return self.module(value, where, classes(self.space)["Marker"])
        if form is Form.SHAPE and isinstance(value, Shape):
            return shape_table(value, self.folder)
        if form in _PLAIN and type(value) is _PLAIN[form]:
            return value
        return self.value(value, where)

    def value(self, value: Any, where: str) -> object:
        """A value of any kind; `where` names it in errors."""
        value = plain(value)
        if isinstance(value, jax.Array | np.ndarray):
            return self._array(value, where)
        if isinstance(value, eqx.Module):
            return self.module(value, where)
        if value is None:
            return {"type": "none"}
        if type(value) is str:
            return value
        if type(value) in (bool, int, float):
            return {"type": type(value).__name__, "value": value}
        if type(value) in (tuple, list):
            items = [self.value(item, f"{where}[{k}]") for k, item in enumerate(value)]
            return {"type": type(value).__name__, "items": items}
        if type(value) is dict:
            return self._dict(value, where)
        if isinstance(value, np.generic) and str(value.dtype) in DTYPES:
            return {"type": "scalar", "dtype": str(value.dtype), "value": numbers(np.asarray(value))}
        if isinstance(value, running.RunningFmu):
            raise MechanismError(
                f"{where} is {value}, which a model file cannot hold: who loads a model would run native code unasked. "
                "Save the mechanism without this part, and add it after loading: import_fmu(...), with_parts([part])."
            )
        if callable(value):
            return {"type": "function", "path": self._path(value, where)}
        raise MechanismError(
            f"{where} is a {type(value).__name__}, which a model file cannot hold. Give arrays, numbers, text, tuples, "
            "lists, dictionaries, equinox modules, or functions that can be imported."
        )

    def _array(self, array: Array | np.ndarray, where: str) -> object:
        if not is_concrete(array):
            raise MechanismError(f"{where} is traced: save a mechanism outside of jit, grad and vmap.")
        if str(array.dtype) not in DTYPES:
            raise MechanismError(f"{where} has the type {array.dtype}; a model file holds {', '.join(DTYPES)}.")
        is_jax = isinstance(array, jax.Array)
        plain = numbers(np.asarray(array))
        shape_is_seen = array.size > 0 or array.ndim == 1
        if is_jax and array.dtype == self.floats and not array.weak_type and shape_is_seen:
            return plain
        table: dict[str, object] = {"type": "array" if is_jax else "numpy", "dtype": str(array.dtype)}
        if not shape_is_seen:
            table["shape"] = list(array.shape)
        if is_jax and array.weak_type:
            table["weak"] = True
        return {**table, "values": plain}

    def _dict(self, value: Mapping[Any, object], where: str) -> dict[str, object]:
        found = {key: self.value(item, f"{where}[{key!r}]") for key, item in value.items()}
        if all(type(key) is str for key in found) and "type" not in found:
            return found
        pairs = [[self.value(key, f"a key of {where}"), item] for key, item in found.items()]
        return {"type": "dict", "items": pairs}

    def _path(self, function: object, where: str) -> str:
        path = import_path(function)
        if path is None:
            name = getattr(function, "__qualname__", type(function).__name__)
            raise MechanismError(f"{where} is the function {name}, which {_NO_PATH}")
        return path


_NO_PATH = (
    "has no import path, so no other process could find it: it is a lambda, is defined within a function or in the "
    "script itself. Define it at the top of a module of its own and import it from there."
)


def numbers(array: np.ndarray) -> Any:
    """The entries of an array as nested lists of Python numbers, each equal to its entry in the array's type."""
    if array.dtype == np.float32:  # 0.1, not 0.10000000149011612
        return np.asarray([float(str(x)) for x in array.reshape(-1)]).reshape(array.shape).tolist()
    return (array if array.dtype.kind in "biu" else array.astype(float)).tolist()


def _is_left_out(value: object, argument: Argument) -> bool:
    """True for no value where that is the default, no shapes, and a default function that has no import path."""
    value = plain(value)
    if argument.form is Form.SHAPE and value == ():
        return True
    is_default = not argument.is_required and value is argument.default
    return is_default and (value is None or (callable(value) and import_path(value) is None))
