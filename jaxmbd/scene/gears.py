"""The axles and pitch circles of gears, for pictures in the plane and in space."""

from typing import NamedTuple

import numpy as np

from jaxmbd.model.joint.shared import AbstractComposite, AbstractCoupling
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.motion import Place

PLANETS = (0.0, 2 * np.pi / 3, 4 * np.pi / 3)  # the angles of the planets on their carrier
_RING = 5.0  # radius of the ring of a planetary set, whose axles coincide, in symbol sizes
_SAME_RADIUS = 1e-3  # |1 - ratio| below which the wheels of an internal pair have no finite radii


class PlanetarySizes(NamedTuple):
    """The radii [m] of the pitch circles of a planetary set, and of the circle on which the planets' axles are."""

    sun: float
    ring: float
    planet: float
    arm: float

    @classmethod
    def of(cls, ratio: float, size: float) -> "PlanetarySizes":
        """Those of a set with a ratio above 1, for a size of symbols [m]."""
        ring, sun = _RING * size, _RING * size / ratio
        return cls(sun, ring, 0.5 * (ring - sun), 0.5 * (ring + sun))


def axles(geometry: Geometry, law: AbstractCoupling | AbstractComposite) -> list[Place]:
    """The places of what coordinates move."""
    names = law.made_of if isinstance(law, AbstractComposite) else law.coordinates
    return [geometry.place(geometry.mechanism.coordinate(name).markers[-1]) for name in names]


def pitch_radii(ratio: float, distance: float) -> tuple[float, float] | None:
    """Radii [m] of the pitch circles, `r_a / r_b = |ratio|`; None if there are none.

    The pair is external for a negative ratio, internal for a positive one.
    """
    share = 1 + abs(ratio) if ratio < 0 else abs(1 - ratio)
    if ratio == 0 or distance <= 0 or share < _SAME_RADIUS:
        return None
    radius = distance / share
    return abs(ratio) * radius, radius
