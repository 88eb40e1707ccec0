"""The numbers of a mechanism that are changed by hand: which, and in which ranges."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmbd.analyses.dragging.linkage import Linkage, Position
from jaxmbd.arrays import as_float, constant
from jaxmbd.checks import check_instance
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.sensor import Point
from jaxmbd.parameters.numbers import Number, find, numbers_of, replaced

_MOST = 12  # sliders that are offered where none are asked for
_SHARES = (0.5, 1.5)  # the range of a number, as shares of its value
_ROOM = 0.25  # the range of a number that is zero, as a share of the unit of length, in both directions
_PROBE = 1e-3  # the relative change by which it is seen whether a number changes positions
_SEEN = 1e-9  # the change of a residual or a position, without units, from which on it does


@dataclass(frozen=True)
class Slider:
    """A number of a mechanism by `name`, with its `unit` and its range from `low` to `high`."""

    name: str
    unit: str
    value: float
    low: float
    high: float


def sliders_of(
    mechanism: Mechanism, asked: Iterable[str] | Mapping[str, Any] | None, linkage: Linkage, at: Position
) -> tuple[Slider, ...]:
    """The numbers that are asked for, by name or pattern, or by name with a range; or those that change positions.

    **Raises:** `MechanismError` for names that do not exist, arrays, and ranges that do not hold the value.
    """
    if asked is None:
        found = [number for number in numbers_of(mechanism).values() if _value(mechanism, number)]
        moving = [number for number in found if _moves(mechanism, number, linkage, at)]
        return tuple(_slider(mechanism, number, None, linkage) for number in moving[:_MOST])
    if isinstance(asked, str):
        asked = (asked,)
    check_instance(
        "parameters", asked, (Iterable, Mapping), "names of numbers, such as ['rod.length'], or a dictionary"
    )
    sliders: dict[str, Slider] = {}
    for name in asked:
        limits = asked[name] if isinstance(asked, Mapping) else None
        for number in find(mechanism, name):
            for single in number.elements(mechanism):
                sliders[single.name] = _slider(mechanism, single, limits, linkage)
    return tuple(sliders.values())


def with_number(mechanism: Mechanism, name: str, value: float) -> Mechanism:
    """The mechanism with another value of one number, unchecked: a dimension, which may have any value."""
    (number,) = find(mechanism, name)
    return replaced(mechanism, [(number, constant(np.asarray(value, number.value(mechanism).dtype)))])


def _value(mechanism: Mechanism, number: Number) -> float:
    return float(np.asarray(number.value(mechanism)))


def _moves(mechanism: Mechanism, number: Number, linkage: Linkage, at: Position) -> bool:
    """True if a number changes constraints, positions in joint coordinates, or where a point sensor is."""
    points = [sensor.name for sensor in mechanism.sensors if isinstance(sensor, Point)]
    if number.name.partition(".")[0] in points:
        return True
    value = _value(mechanism, number)
    try:
        linkage.set(with_number(mechanism, number.name, value * (1 + _PROBE)))
        moved = linkage.at(at.q)
    finally:
        linkage.set(mechanism)
    changes = np.concatenate([moved.rows - at.rows, np.ravel(moved.poses - at.poses) / linkage.length])
    return bool(np.abs(changes).max(initial=0.0) > _SEEN)


def _slider(mechanism: Mechanism, number: Number, limits: object, linkage: Linkage) -> Slider:
    value, name = _value(mechanism, number), number.name
    if limits is None:
        room = _ROOM * float(linkage.length)
        low, high = sorted(share * value for share in _SHARES) if value else (-room, room)
    else:
        low, high = _range(name, limits)
        if not low <= value <= high:
            raise MechanismError(
                f"parameters: {name!r} is {value:g}, not between {low:g} and {high:g}: give a range that holds it."
            )
    return Slider(name, number.unit(mechanism), value, low, high)


def _range(name: str, limits: Any) -> tuple[float, float]:
    pair = limits if isinstance(limits, Sequence | np.ndarray) and not isinstance(limits, str) else ()
    values = [float(as_float(x)) for x in pair]
    if len(values) != 2 or not np.isfinite(values).all() or not values[0] < values[1]:
        raise MechanismError(f"parameters: the range of {name!r} must be a pair, such as (0.1, 0.5), got {limits!r}.")
    return values[0], values[1]
