"""The structure of results as text: what is no array in a pytree, written as JSON and built again from it.

Reading calls nothing that the text names. It builds numbers, text, containers, and objects of classes of the libraries
that are already imported, field by field: their constructors do not run, and functions cannot be named at all.
"""

import dataclasses
import sys
from typing import Any

import equinox as eqx

_LIBRARIES = {"jaxmbd", "equinox", "diffrax", "optimistix", "lineax"}
_PLAIN = (type(None), bool, int, float, str)
_CONTAINERS = {"tuple": tuple, "list": list, "frozenset": frozenset}


class _Array:
    """Stands where an array was."""

    def __reduce__(self) -> str:
        return "ARRAY"


ARRAY = _Array()


def encoded(value: Any) -> Any:
    """What JSON can hold for a value, with `ARRAY` where its arrays were.

    Raises:
        TypeError: If there is something in it that `decoded` would not build.
    """
    if type(value) in _PLAIN:
        return value
    if value is ARRAY:
        return ["array"]
    if type(value) is dict:
        return ["dict", [[encoded(k), encoded(x)] for k, x in value.items()]]
    if type(value) in _CONTAINERS.values():
        return [type(value).__name__, [encoded(x) for x in value]]
    if isinstance(value, type):
        return ["class", _name(value)]
    if dataclasses.is_dataclass(value):
        return ["object", _name(type(value)), [[name, encoded(x)] for name, x in vars(value).items()]]
    raise TypeError(f"{value!r} has no text that it can be built from.")


def decoded(text: Any) -> Any:
    """The value that was `encoded`.

    Raises:
        Exception: If the text is none that `encoded` gives.
    """
    if type(text) in _PLAIN:
        return text
    kind, *content = text
    if kind == "array":
        return ARRAY
    if kind == "dict":
        return {decoded(k): decoded(x) for k, x in content[0]}
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](decoded(x) for x in content[0])
    if kind == "class":
        return _class(content[0])
    if kind == "object":
        cls = _class(content[0])
        if not dataclasses.is_dataclass(cls):
            raise TypeError(f"{cls} has no fields.")
        value = object.__new__(cls)
        for name, x in content[1]:
            object.__setattr__(value, str(name), decoded(x))
        return value
    raise TypeError(f"'{kind}' is no kind of value.")


def _name(cls: type) -> list[str]:
    """Module and name of a class, if they find it again."""
    name = [cls.__module__, cls.__qualname__]
    if _class(name) is not cls:
        raise TypeError(f"{cls} is not found by its name.")
    return name


def _class(name: list[str]) -> type:
    """A class of the libraries whose module has been imported: nothing is imported for a name in a file."""
    module, path = name
    if module.partition(".")[0] not in _LIBRARIES:
        raise TypeError(f"{module} is not among the libraries whose classes may be in a result.")
    found: Any = sys.modules[module]
    for part in path.split("."):
        found = vars(found)[part]
    if not isinstance(found, type) or not (dataclasses.is_dataclass(found) or isinstance(found, type(eqx.Enumeration))):
        raise TypeError(f"{path} is no class of values.")
    return found
