"""The peak as a programme without a kink: its bound is a variable, and its largest samples are constraints.

    min s   subject to   hᵣ(x) ≤ s   for the rows r of a working set, beside the limits

Of thousands of samples few can be active at a minimum, while the cost of a step grows with the rows: the working set
holds the largest ones, and those that exceed the bound where a search with it has ended.

Source: Nocedal, Wright, *Numerical Optimization* (2006), §12.1; Hettich, Kortanek, *Semi-infinite programming: theory,
methods, and applications*, SIAM Review 35 (1993), for exchange methods.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from jaxmbd.optimal_design._problem import Point

WORSE = 1e20  # scaled objective where something is not finite: the line search then takes a shorter step
_MOST = 512  # rows that enter a working set at once
_EXCESS = 1e-9  # share of the bound by which rows outside the working set may exceed it

Rows = Callable[[np.ndarray], np.ndarray]


@runtime_checkable
class Programme(Protocol):
    """What SciPy's methods ask for: the objective, and rows of `Point` with their slopes, by the name of the part."""

    def objective(self, x: np.ndarray, /) -> float: ...

    def rows(self, part: str) -> Rows: ...

    def slopes(self, part: str) -> Rows: ...


@dataclass
class Epigraph:
    """The programme with one working set, of the variables and, as the last one, the bound as a multiple of `size`.

    `whole`: the programme without it, and `at` its values and derivatives at a point.
    """

    whole: Programme
    at: Callable[[np.ndarray], tuple[Point, Point]]
    size: float
    working: Bool[np.ndarray, " rows"]

    def objective(self, z: np.ndarray, /) -> float:
        return float(z[-1]) if self.whole.objective(z[:-1]) < WORSE else WORSE

    def rows(self, part: str) -> Rows:
        def values(z: np.ndarray) -> np.ndarray:
            given = self.whole.rows(part)(z[:-1])
            if part == "equations":
                return given
            heights = finite(np.asarray(self.at(z[:-1])[0].heights)[self.working])
            return np.concatenate([given, z[-1] - heights / self.size])

        return values

    def slopes(self, part: str) -> Rows:
        def values(z: np.ndarray) -> np.ndarray:
            if part == "objective":
                return np.append(np.zeros(len(z) - 1), 1.0)
            given = self.whole.slopes(part)(z[:-1])
            rows = np.concatenate([given, np.zeros((len(given), 1))], axis=1)
            if part == "equations":
                return rows
            slopes = finite(np.asarray(self.at(z[:-1])[1].heights)[self.working])
            return np.concatenate([rows, np.insert(-slopes / self.size, len(z) - 1, 1.0, axis=1)])

        return values


def finite(values: np.ndarray) -> np.ndarray:
    """Return values in which those that are not finite are zero: the objective tells SciPy that the point is bad."""
    return np.where(np.isfinite(values), values, 0.0)


def working_set(heights: Float[np.ndarray, " rows"], working: Bool[np.ndarray, " rows"]) -> Bool[np.ndarray, " rows"]:
    """Return a working set with the largest of the other rows, too."""
    others = np.flatnonzero(~working)
    chosen = others[np.argsort(-heights[others], kind="stable")[:_MOST]]
    return working | np.isin(np.arange(len(heights)), chosen)


def exceeds(heights: Float[np.ndarray, " rows"], working: Bool[np.ndarray, " rows"]) -> bool:
    """Return True if rows outside a working set are above all of it."""
    bound = np.max(heights[working])
    return bool(np.any(heights[~working] > bound + _EXCESS * abs(bound)))
