"""The structure of a result as JSON data: containers, objects, classes and plain values, without its arrays.

Decoding executes nothing that the text names. It builds numbers, strings, containers, and objects of classes of
libraries that are already imported, field by field: constructors do not run, and functions cannot be named.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax

_LIBRARIES = {"jaxmbd", "equinox", "diffrax", "optimistix", "lineax"}
_PLAIN = (type(None), bool, int, float, str)
_CONTAINERS = {"tuple": tuple, "list": list, "frozenset": frozenset}


class _Array:
    """The class of the placeholder for arrays."""

    def __reduce__(self) -> str:
        return "ARRAY"


ARRAY = _Array()


def filled(like: object, arrays: Sequence[jax.Array]) -> Any:
    """A structure with these arrays in place of `ARRAY`."""
    values, (leaves, tree) = iter(arrays), jax.tree.flatten(like)
    return jax.tree.unflatten(tree, [next(values) if x is ARRAY else x for x in leaves])


def encoded(value: Any) -> object:
    """Encode a value, with `ARRAY` in place of its arrays, as JSON data.

    Raises:
        TypeError: If the value contains something that `decoded` does not build.
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
        fields = {field.name for field in dataclasses.fields(value)}  # without cached properties
        return ["object", _name(type(value)), [[name, encoded(x)] for name, x in vars(value).items() if name in fields]]
    raise TypeError(f"{value!r} has no text that it can be built from.")


def is_encodable(value: object) -> bool:
    """True if `encoded` has data for a value."""
    try:
        encoded(value)
    except TypeError:
        return False
    return True


def decoded(text: Any) -> Any:
    """Decode a value that was `encoded`.

    Raises:
        Exception: If the text cannot be the result of `encoded`.
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
        # No constructor runs, which could do anything with what a file says.
        value = object.__new__(cls)
        for name, x in content[1]:
            object.__setattr__(value, str(name), decoded(x))
        return value
    raise TypeError(f"'{kind}' is no kind of value.")


def _name(cls: type) -> list[str]:
    """Module and qualified name of a class, checked to identify it."""
    name = [cls.__module__, cls.__qualname__]
    if _class(name) is not cls:
        raise TypeError(f"{cls} is not found by its name.")
    return name


def _class(name: list[str]) -> type:
    """The class of a module and qualified name. Its module must be imported already: a file never causes an import."""
    module, path = name
    if module.partition(".")[0] not in _LIBRARIES:
        raise TypeError(f"{module} is not among the libraries whose classes may be in a result.")
    cls: Any = sys.modules[module]
    for part in path.split("."):
        cls = vars(cls)[part]
    if not isinstance(cls, type) or not (dataclasses.is_dataclass(cls) or isinstance(cls, type(eqx.Enumeration))):
        raise TypeError(f"{path} is no class of values.")
    return cls
