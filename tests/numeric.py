"""What tests compare with: largest differences, and roots of equations written down by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq, fsolve


def worst(values: Any) -> float:
    """The largest absolute value."""
    return float(np.max(np.abs(np.asarray(values)), initial=0.0))


def root(function: Callable[[float], Any], low: float, high: float) -> float:
    """The root of a function between two numbers."""
    return float(brentq(function, low, high, xtol=1e-14))  # pyright: ignore[reportArgumentType]


def roots(unbalance: Callable[[np.ndarray], list[float]], start: Any) -> np.ndarray:
    """The roots of several equations, to rounding: that far `fsolve` warns, unless it returns everything."""
    found, _, ok, message = fsolve(unbalance, start, xtol=1e-14, full_output=True)
    assert np.abs(unbalance(found)).max() < 1e-6, (ok, message)
    return np.asarray(found)
