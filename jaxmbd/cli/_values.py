"""Values of options, in one grammar: `NAME=VALUE`, `NAME=LOWER:UPPER`, `NAME=LOWER:UPPER:COUNT`, `...:COUNT@sobol`.

A number may be in degrees, `O.angle=30deg`; all others are in SI units. A name is that of a coordinate, of a number of
a part, or of an output, so it may hold any character but its last `=`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jaxmbd.errors import MechanismError, check_known

DRAWS = ("sobol", "lhs")


@dataclass(frozen=True)
class Grid:
    """Values from `lower` to `upper`, both included, at equal distances, or drawn by one of `DRAWS` if it is named."""

    lower: float
    upper: float
    count: int
    draw: str


def numbers(option: str, texts: Iterable[str] | None) -> dict[str, float]:
    """Parse `["crank.theta=0.3", "O.angle=30deg"]` to numbers by name, angles in radians."""
    needs = "a name and a number, crank.theta=0.3 or O.angle=30deg"
    return {name: _numbers(option, text, value, 1, needs)[0] for name, (text, value) in _named(option, texts, needs)}


def signals(option: str, texts: Iterable[str] | None) -> dict[str, float | Path]:
    """Parse `["O.angle=2", "slider.x=log.csv"]` to numbers, or tables over time, by name."""
    needs = "a name and a number or a CSV file, O.angle=2 or O.angle=log.csv"
    found: dict[str, float | Path] = {}
    for name, (text, value) in _named(option, texts, needs):
        is_file = value.lower().endswith(".csv")
        found[name] = Path(value) if is_file else _numbers(option, text, value, 1, needs)[0]
    return found


def ranges(option: str, texts: Iterable[str] | None) -> dict[str, tuple[float, float]]:
    """Parse `["rod.mass=0.5:2"]` to pairs of bounds by name."""
    needs = "a name and its bounds, the smaller one first, rod.mass=0.5:2"
    found = {}
    for name, (text, value) in _named(option, texts, needs):
        found[name] = _increasing(option, text, _numbers(option, text, value, 2, needs), needs)
    return found


def grids(option: str, texts: Iterable[str] | None) -> dict[str, Grid]:
    """Parse `["rod.mass=0.5:2:20", "spring.stiffness=1:9:64@sobol"]` to the values that a number takes, by name."""
    needs = "a name, two bounds and a count, rod.mass=0.5:2:20, or with draws, rod.mass=0.5:2:64@sobol"
    found = {}
    for name, (text, value) in _named(option, texts, needs):
        value, _, draw = value.partition("@")
        if draw:
            check_known(f"draw for {option}", [draw], DRAWS)
        bounds, _, count = value.rpartition(":")
        if not count.isdecimal() or int(count) < 2:
            raise _error(option, needs, text)
        lower, upper = _increasing(option, text, _numbers(option, text, bounds, 2, needs), needs)
        found[name] = Grid(lower, upper, int(count), draw)
    return found


def _named(option: str, texts: Iterable[str] | None, needs: str) -> Iterable[tuple[str, tuple[str, str]]]:
    """By name the whole text and what stands behind the last `=`."""
    found: dict[str, tuple[str, str]] = {}
    for text in texts or ():
        name, _, value = (part.strip() for part in text.rpartition("="))
        if not name:
            raise _error(option, needs, text)
        if name in found:
            raise MechanismError(f"{option} names {name!r} twice, {found[name][0]!r} and {text!r}: leave one out.")
        found[name] = text, value
    return found.items()


def _numbers(option: str, text: str, value: str, count: int, needs: str) -> list[float]:
    """The numbers between colons, as many as there have to be."""
    try:
        found = [
            math.radians(float(part.removesuffix("deg"))) if part.endswith("deg") else float(part)
            for part in value.split(":")
        ]
    except ValueError:
        raise _error(option, needs, text) from None
    if len(found) != count or not all(map(math.isfinite, found)):
        raise _error(option, needs, text)
    return found


def sliders(option: str, texts: Iterable[str] | None) -> dict[str, tuple[float, float] | None]:
    """Parse `["rod.length=0.1:0.4", "*.length"]` to pairs of bounds by name, None where there are none."""
    found: dict[str, tuple[float, float] | None] = {}
    for text in texts or ():
        found |= ranges(option, [text]) if "=" in text else {text: None}
    return found


def _increasing(option: str, text: str, bounds: list[float], needs: str) -> tuple[float, float]:
    lower, upper = bounds
    if not lower < upper:
        raise _error(option, needs, text)
    return lower, upper


def _error(option: str, needs: str, text: str) -> MechanismError:
    return MechanismError(f"{option} takes {needs}, got {text!r}.")
