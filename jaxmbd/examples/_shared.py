"""Bodies and constants that several examples share."""

import math
from collections.abc import Sequence

from jaxmbd import planar as pl
from jaxmbd.arrays import Number

MODELICA_GRAVITY = 9.80665  # [m/s²]


def rod(name: str, mass: Number, length: Number, start: Sequence[Number], angle: float) -> pl.Body:
    """Return a uniform slender rod whose x axis points along it, with one end at `start` [m], at `angle` [rad]."""
    x, y = start
    centre = (x + length / 2 * math.cos(angle), y + length / 2 * math.sin(angle), angle)
    return pl.Body(name, mass=mass, inertia=mass * length**2 / 12, pose=centre)
