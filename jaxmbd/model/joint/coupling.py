"""Couplings of the coordinates of joints: gears, racks and pinions."""

import abc
from typing import Any

import equinox as eqx

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.model.body.checks import check_coordinate, check_finite


class AbstractCoupling(eqx.Module):
    """A constraint between two joint coordinates, referred to by name: `Φ(a, b) = 0` (1 row)."""

    name: eqx.AbstractVar[str]
    a: eqx.AbstractVar[str]
    b: eqx.AbstractVar[str]

    @abc.abstractmethod
    def couple(self, a: Scalar, b: Scalar) -> Scalar:
        """The residual at the values of both coordinates."""


class Gear(AbstractCoupling):
    """A constant ratio between two joint angles: `b − r a − φ = 0` (1 row).

    **Arguments:** `a`, `b`, coordinates such as `"input.angle"`, of joints whose first bodies carry the wheels;
    `ratio` r (negative for external gears, `−z_a / z_b`); `phase` φ `[rad]`. Angles include whole turns.
    """

    name: str = eqx.field(static=True)
    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    ratio: Scalar = eqx.field(converter=as_float)
    phase: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        _check(self, "ratio", "phase")

    def couple(self, a: Scalar, b: Scalar) -> Scalar:
        return b - self.ratio * a - self.phase


class RackAndPinion(AbstractCoupling):
    """A pinion that drives a rack: `s − r φ − s0 = 0` (1 row).

    **Arguments:** `pinion`, an angle such as `"pinion.angle"`; `rack`, a displacement such as
    `"rack.displacement"`; `radius` r `[m]` of the pinion's pitch circle (negative for the opposite direction);
    `offset` s0 `[m]`. The angle includes whole turns.
    """

    name: str = eqx.field(static=True)
    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    radius: Scalar
    offset: Scalar

    def __init__(self, name: str, pinion: str, rack: str, radius: Any, offset: Any = 0.0) -> None:
        self.name, self.a, self.b = name, pinion, rack
        self.radius, self.offset = as_float(radius), as_float(offset)
        _check(self, "radius", "offset")

    def couple(self, a: Scalar, b: Scalar) -> Scalar:
        return b - self.radius * a - self.offset


def _check(part: Any, *fields: str) -> None:
    kind = type(part).__name__
    check_coordinate(kind, part.name, part.a)
    check_coordinate(kind, part.name, part.b)
    for field in fields:
        check_finite(f"{kind} {part.name!r}", field, getattr(part, field))
