"""Euler and Cardan angles of a marker in space, as sensors."""

from typing import ClassVar

import equinox as eqx

from jaxmbd.arrays import Scalar
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.body.checks import check_markers
from jaxmbd.model.body.spatial import Marker
from jaxmbd.model.sensor.sensor import AbstractSensor, Readings
from jaxmbd.space.rotation import angles, from_matrix
from jaxmbd.space.spatial import SPATIAL


class EulerAngle(AbstractSensor):
    """An Euler or Cardan angle [rad] of a marker's axes: `R = R1(a1) R2(a2) R3(a3)`, rotations about body-fixed axes.

    **Arguments:** `at`, the marker; `sequence`, the axes of the three rotations, such as `"zyx"` (yaw, pitch, roll) or
    `"zxz"`; `which`, the number of the angle, 1, 2 or 3; `from_`, the marker of the reference axes (default: world
    axes).

    `a1` and `a3` are in `[−π, π]`; `jaxmbd.spatial.rotation.angles` describes the range of `a2` and gimbal lock. As a
    fixed value of `assemble`, the angle is understood modulo whole turns.

        >>> EulerAngle("lean", frame.at(), "zxy", 2)
    """

    name: str = eqx.field(static=True)
    at: Marker
    sequence: str = eqx.field(static=True)
    which: int = eqx.field(static=True)
    from_: Marker
    unit: ClassVar[str] = "rad"
    of_position: ClassVar[bool] = True

    def __init__(self, name: str, at: Marker, sequence: str, which: int, from_: Marker | None = None) -> None:
        from_ = Marker(GROUND, (0.0, 0.0, 0.0)) if from_ is None else from_
        check_markers("EulerAngle", name, from_, at, space=SPATIAL)
        try:
            angles((1.0, 0.0, 0.0, 0.0), sequence)
        except MechanismError as error:
            raise MechanismError(f"EulerAngle {name!r}: {error}") from None
        if which not in (1, 2, 3):
            raise MechanismError(f"EulerAngle {name!r}: which must be 1, 2 or 3, one of the angles, got {which!r}.")
        self.name, self.at, self.from_ = name, at, from_
        self.sequence, self.which = sequence, which

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.from_, self.at)

    def read(self, of: Readings) -> Scalar:
        start, end = of.frames
        return angles(from_matrix(start.rotation.T @ end.rotation), self.sequence)[self.which - 1]
