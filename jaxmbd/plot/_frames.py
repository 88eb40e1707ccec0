"""The frames of an animation: their times, interpolation between saved times, and traced points."""

from collections.abc import Sequence

import numpy as np

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.sensor import Point

PATH_POINTS = 400  # the least number of points of a path, so that it is smooth with few frames, too


def frame_times(solution: Solution, fps: float | int, speed: float | int) -> np.ndarray:
    """Times `(frames,)` [s], equally spaced from the first to the last of a solution."""
    for name, value in (("fps", fps), ("speed", speed)):
        if not value > 0:
            raise MechanismError(f"{name} must be positive, got {value!r}.")
    start, stop = float(solution.ts[0]), float(solution.ts[-1])
    return np.linspace(start, stop, max(round((stop - start) * fps / speed), 1) + 1)


def interpolate(times: np.ndarray, ts: np.ndarray, values: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Cubic Hermite interpolation of `values (times, n)` with their `rates` at other times."""
    k = np.clip(np.searchsorted(ts, times, side="right") - 1, 0, len(ts) - 2)
    step = (ts[k + 1] - ts[k])[:, None]
    s = (times - ts[k])[:, None] / step
    start, stop = values[k], values[k + 1]
    out, into = step * rates[k], step * rates[k + 1]
    smooth = s * s * (3 - 2 * s)
    return start + smooth * (stop - start) + s * (1 - s) ** 2 * out - s * s * (1 - s) * into


def linear(times: np.ndarray, ts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Linear interpolation of `values (times, n)` at other times."""
    return np.stack([np.interp(times, ts, column) for column in values.T], axis=1)


def as_names(names: Sequence[str] | str) -> tuple[str, ...]:
    """A tuple of one or several names."""
    return (names,) if isinstance(names, str) else tuple(names)


def traced_marker(mechanism: Mechanism, name: str) -> AbstractMarker:
    """The marker of a point sensor, or of a body's centre of mass."""
    markers = {body.name: body.at() for body in mechanism.bodies}
    markers |= {sensor.name: sensor.at for sensor in mechanism.sensors if isinstance(sensor, Point)}
    if name not in markers:
        raise unknown("point sensor or body", name, markers)
    return markers[name]


def digits_of(times: np.ndarray) -> int:
    """The number of decimals [s] with which the times of frames differ."""
    return max(0, -int(np.floor(np.log10(float(np.diff(times).min())) + 1e-9)))
