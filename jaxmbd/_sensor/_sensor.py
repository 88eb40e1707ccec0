"""Sensors on markers, and a user's own function of the whole motion.

What needs no marker is read by name from a solution without a sensor: `"rod.theta"`, `"rod.omega"`,
`"rod.alpha"`, `"O.angle"`, `"O.angle_rate"`, `"O.fx"`, `"O.moment"`.
"""

import abc
from collections.abc import Sequence
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from jaxmbd._body import Marker, check_markers, check_name
from jaxmbd._space import Frame
from jaxmbd._types import Function, Scalar


class AbstractSensor(eqx.Module):
    """A reading of one marker's frame, its velocity or its acceleration."""

    name: eqx.AbstractVar[str]
    at: eqx.AbstractVar[Marker]
    unit: eqx.AbstractVar[str]

    @abc.abstractmethod
    def read(self, frames: Sequence[Frame]) -> Float[Array, " k"]:
        """The reading from the marker's frame and its first and second time derivative."""


class Point(AbstractSensor):
    """Position `(x, y)` [m] of a marker in the world."""

    name: str = eqx.field(static=True)
    at: Marker
    unit: str = eqx.field(default="m", static=True)

    def __check_init__(self) -> None:
        check_markers("Point", self.name, self.at)

    def read(self, frames: Sequence[Frame]) -> Float[Array, "2"]:
        return frames[0].position


class PointVelocity(AbstractSensor):
    """Velocity `(vx, vy)` [m/s] of a marker in the world."""

    name: str = eqx.field(static=True)
    at: Marker
    unit: str = eqx.field(default="m/s", static=True)

    def __check_init__(self) -> None:
        check_markers("PointVelocity", self.name, self.at)

    def read(self, frames: Sequence[Frame]) -> Float[Array, "2"]:
        return frames[1].position


class PointAcceleration(AbstractSensor):
    """Acceleration `(ax, ay)` [m/s²] of a marker in the world."""

    name: str = eqx.field(static=True)
    at: Marker
    unit: str = eqx.field(default="m/s²", static=True)

    def __check_init__(self) -> None:
        check_markers("PointAcceleration", self.name, self.at)

    def read(self, frames: Sequence[Frame]) -> Float[Array, "2"]:
        return frames[2].position


class Measure(eqx.Module):
    """A user's own reading: `function(t, q, v, v̇, λ, parameters)`, a scalar or a vector.

    **Arguments:** `function` takes the time [s], coordinates `(nq,)`, speeds `(nv,)`, accelerations `(nv,)` and
    multipliers `(m,)` in the mechanism's order.
    """

    name: str = eqx.field(static=True)
    function: Function
    parameters: Any = None
    unit: str = eqx.field(default="", static=True)

    def __check_init__(self) -> None:
        check_name("Measure", self.name)

    def value(self, t: Scalar, q: Array, v: Array, vdot: Array, lam: Array) -> Array:
        """The reading at one instant."""
        return self.function(t, q, v, vdot, lam, self.parameters)
