"""Checks of arguments: each raises a `MechanismError` that names the part, the value and the remedy."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import as_float, combined, is_concrete
from jaxmbd.errors import MechanismError, shown
from jaxmbd.upstream.equinox_internals import is_placeholder

_EXACT = 2**53  # whole numbers below it are floating-point numbers


def check_line(kind: str, name: str) -> None:
    """Raise unless a name is printable on one line, without spaces at its ends."""
    if not name or not name.isprintable() or name != name.strip():
        visible = "".join(c for c in "_".join(name.split()) if c.isprintable())
        unseen = "" if "".join(name.split()).isprintable() else ", and without characters that cannot be seen"
        raise MechanismError(
            f"A name must be one line without spaces at its ends{unseen}, got {name!r} for the {kind}; perhaps "
            f"{visible or 'part'!r}."
        )


def check_shape(part: str, field: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise unless a value is a real array of the required shape.

    Placeholders pass: `equinox.tree_at` looks for the place that is meant in a mechanism without numbers, whose
    properties may make parts. `Equations` refuses them.
    """
    if is_placeholder(value):
        return
    if not isinstance(value, Array | np.ndarray) or value.dtype == object:
        real = "real " if isinstance(value, complex) else ""
        need = f"a {real}number" if shape == () else f"{real}numbers of shape {shape}"
        raise MechanismError(f"{part}: {field} must be {need}, got {shown(value)}.")
    if np.issubdtype(value.dtype, np.complexfloating):
        given = np.asarray(value) if is_concrete(value) else value.dtype
        raise MechanismError(f"{part}: {field} must be real, got {given}.")
    if value.shape != shape:
        need = "be a number" if shape == () else f"have shape {shape}"
        raise MechanismError(f"{part}: {field} must {need}, got shape {value.shape}.")


def check_law(part: str, field: str, value: Any, shape: tuple[int, ...] = ()) -> None:
    """Raise unless a value is a function, or a number (an array) that a function may take the place of."""
    if isinstance(value, type):
        raise MechanismError(
            f"{part}: {field} must be a number or a function; got the class {value.__name__} itself: write "
            f"{value.__name__}(...)."
        )
    if not callable(value):
        check_finite(part, field, value, shape)


def stacked(part: str, **numbers: Any) -> Any:
    """Numbers as one array; raise unless each is a scalar."""
    given = list(numbers.values())
    if all(type(number) is float or (type(number) is int and abs(number) < _EXACT) for number in given):
        return as_float(np.array(given, float))  # one array in place of one for each
    values = {name: as_float(number) for name, number in numbers.items()}
    for name, value in values.items():
        check_shape(part, name, value, ())
    placeholder = next(filter(is_placeholder, values.values()), None)
    return combined("stack", list(values.values())) if placeholder is None else placeholder


def check_finite(part: str, field: str, value: Any, shape: tuple[int, ...] = ()) -> None:
    """Raise unless an array has the required shape and, if concrete, is finite.

    >>> mbd.extend.check_finite("Body 'rod'", "mass", jnp.asarray(1.0))
    """
    check_shape(part, field, value, shape)
    if isinstance(value, Array) and is_concrete(value) and not np.isfinite(np.asarray(value)).all():
        raise MechanismError(f"{part}: {field} must be finite, got {np.asarray(value)}.")


def check_some(part: str, field: str, value: Any, infinite: bool = False) -> None:
    """Raise unless an array of any shape has at least one number and, if concrete, all are finite (or `infinite`)."""
    shape = np.shape(value) if isinstance(value, Array) else ()
    (check_shape if infinite else check_finite)(part, field, value, shape)
    if np.size(value) == 0:
        raise MechanismError(f"{part}: {field} must be at least one number, got an array of shape {value.shape}.")


def as_path(what: str, path: Any) -> Path:
    """The path of a file; raise for what is none."""
    check_instance(f"{what}: path", path, (str, os.PathLike), "the path of a file, such as 'name.toml'")
    return Path(path)


def check_number(part: str, field: str, value: Any, unit: str, *, zero: bool = False) -> None:
    """Raise if a concrete number is not finite and positive (with `zero`, nonnegative).

    >>> mbd.extend.check_number("Body 'rod'", "mass", jnp.asarray(1.0), "kg")
    """
    if not isinstance(value, Array) or not is_concrete(value):
        return
    numbers = np.asarray(value)
    worst = float(numbers.min())
    if not np.isfinite(numbers).all() or worst < 0 or (worst == 0 and not zero):
        need = "zero or positive" if zero else "positive"
        raise MechanismError(f"{part}: {field} must be {need} [{unit}] and finite, got {worst:g}.")


def check_fields(part: str, owner: Any, *, zero: bool = False, **units: str) -> None:
    """Raise unless fields of `owner`, given with their units, are finite and positive (with `zero`, nonnegative).

    >>> mbd.extend.check_fields("Body 'rod'", pl.Body("rod", 1.0, 1 / 12), mass="kg")
    """
    for field, unit in units.items():
        check_finite(part, field, getattr(owner, field))
        check_number(part, field, getattr(owner, field), unit, zero=zero)


def check_mapping(what: str, values: Any, example: str) -> None:
    """Raise unless `values` is a mapping from names to values, or None."""
    if values is None:
        return
    if not isinstance(values, Mapping):
        raise MechanismError(f"{what} must be a dictionary of values by name, such as {example}, got {shown(values)}.")
    for name in values:
        if not isinstance(name, str):
            raise MechanismError(f"The names in {what} must be strings, such as {example}, got {name!r}.")


def checked_items(what: str, items: Any, need: str) -> tuple[Any, ...]:
    """The items of a sequence as a tuple; raise for what has none: an array without axes is iterable in name only."""
    if not isinstance(items, Iterable) or getattr(items, "ndim", 1) == 0:
        raise MechanismError(f"{what} must be {need}, got {shown(items)}.")
    return tuple(items)


def checked_names(what: str, names: Any, example: str) -> tuple[str, ...]:
    """A sequence of names as a tuple; raise for a single string or for an item that is not a string."""
    if isinstance(names, str):
        raise MechanismError(f"{what} must be a sequence of names, such as [{names!r}], got {names!r}.")
    result = checked_items(what, names, f"a sequence of names, such as [{example!r}]")
    for name in result:
        if not isinstance(name, str):
            raise MechanismError(f"{what} must be a sequence of names, such as [{example!r}]; {name!r} is no string.")
    return result


def check_instance(what: str, value: Any, kind: type | tuple[type, ...], need: str) -> None:
    """Raise unless a value is an instance of `kind`; a class in place of an instance has a message of its own."""
    if isinstance(value, kind):
        return
    if isinstance(value, type) and issubclass(value, kind):
        raise MechanismError(
            f"{what} must be {need}; got the class {value.__name__} itself: write {value.__name__}(...)."
        )
    raise MechanismError(f"{what} must be {need}, got {shown(value)}.")


def check_flags(what: str, **flags: Any) -> None:
    """Raise unless each value is a concrete True or False."""
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            given = shown(value) if is_concrete(value) else "a traced value; name it in static_argnames of jax.jit"
            raise MechanismError(f"{what}: {name} must be True or False, got {given}.")


def check_count(what: str, value: Any, least: int, most: int | None = 2**31 - 1) -> None:
    """Raise unless a value is an integer of at least `least` and, unless that is None, of at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise MechanismError(f"{what} must be a whole number, got {shown(value)}.")
    if value < least:
        raise MechanismError(f"{what} must be at least {least}, got {shown(value)}.")
    if most is not None and value > most:
        raise MechanismError(f"{what} must be at most {most}, got {shown(value)}.")


def check_index(what: str, index: Any, count: int, things: str) -> None:
    """Raise unless a concrete index is an integer within `count` items; negative ones count from the end."""
    if isinstance(index, Array) and not is_concrete(index):
        return
    is_array = isinstance(index, np.ndarray | Array)
    whole = np.issubdtype(index.dtype, np.integer) if is_array else isinstance(index, int | np.integer | slice)
    if isinstance(index, bool) or not whole:
        raise MechanismError(f"{what}: an index must be a whole number, got {shown(index)}.")
    if not isinstance(index, slice) and np.size(index) and not (-count <= np.min(index) and np.max(index) < count):
        raise MechanismError(f"{what}: there are {count} {things}, numbered from 0 to {count - 1}; got {shown(index)}.")


def check_callable(kind: str, name: str, function: Any) -> None:
    """Raise unless `function` can be called, and is not a class."""
    if not callable(function) or isinstance(function, type):
        raise MechanismError(f"{kind} {name!r}: function must be callable, got {shown(function)}.")


def check_time(what: str, t: Any) -> Any:
    """Return a time [s] as an array; raise unless it is a scalar, and finite if its value is known."""
    value = as_float(t)
    check_finite(what, "t", value)
    return value
