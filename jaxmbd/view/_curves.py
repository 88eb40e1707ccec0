"""The curves of a page as data: panels, colours, samples, and the numbers from which axes begin to count."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.scene.curves import CURVES, Curve, panels_of
from jaxmbd.scene.pieces import BODIES
from jaxmbd.view._motion import times_data
from jaxmbd.view._numbers import Numbers, Reference

_CONSTANT = 1e-4  # the range of numbers, as a share of the largest, below which an axis counts from an offset
_ROUNDING = 1e-6  # the least range that the page shows, as a share of the largest number

Line = tuple[Curve, dict[str, object], Reference]  # a curve, how it looks, and its times


def panels_data(
    solutions: Mapping[str, Solution],
    names: Iterable[str],
    measured: Mapping[str, object],
    numbers: Numbers,
    naming: Callable[[str], AbstractContextManager[None]],
) -> list[dict[str, object]]:
    """The panels of curves: colours tell motions apart if there are several, else components.

    `naming`: a context that names a motion in errors.
    """
    names, overlaid = tuple(names), len(solutions) > 1
    panels: dict[str, list[Line]] = {}
    for k, (name, solution) in enumerate(solutions.items()):
        times = times_data(np.asarray(solution.ts, dtype=float), numbers)
        with naming(name):
            found = panels_of(solution, names, {} if k else measured, "name" if overlaid else "unit")
        for panel in found:
            for line, curve in enumerate(panel.curves):
                looks = {
                    "label": curve.label,
                    "motion": k,
                    "colour": BODIES[k % len(BODIES)] if overlaid else CURVES[line % len(CURVES)],
                    "dash": line if overlaid else line // len(CURVES),
                }
                panels.setdefault(panel.title, []).append((curve, looks, times))
    return [_panel(title, lines, numbers) for title, lines in panels.items()]


def _panel(title: str, lines: Sequence[Line], numbers: Numbers) -> dict[str, object]:
    """A panel, whose numbers are differences from an offset: single precision is enough for them."""
    curves = [curve for curve, _, _ in lines]
    samples = [curve.measured[1] for curve in curves if curve.measured is not None]
    offset = offset_of(np.concatenate([*(curve.values for curve in curves), *samples]))
    data = []
    for curve, looks, times in lines:
        measured = None
        if curve.measured is not None:
            ts, values = curve.measured
            measured = {"times": numbers.floats(ts), "values": numbers.floats(values - offset)}
        data.append({**looks, "times": times, "values": numbers.floats(curve.values - offset), "measured": measured})
    return {"title": title, "offset": offset, "curves": data}


def offset_of(values: np.ndarray) -> float:
    """The number from which an axis counts: zero, or a round number next to values that are nearly constant.

    >>> offset_of(np.array([-29.43001, -29.42999]))
    -29.43
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    if high - low >= _CONSTANT * size or high == low:  # a constant is written as it is
        return 0.0
    digits = -math.ceil(math.log10(max(high - low, _ROUNDING * size)))
    return round((low + high) / 2, digits)
