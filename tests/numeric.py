"""What tests compare with: largest values, differences, and roots of equations written down by hand."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from scipy.optimize import brentq, fsolve


def worst(values: Any) -> float:
    """The largest absolute value."""
    return float(np.max(np.abs(np.asarray(values)), initial=0.0))


def differences(read: Callable[[Any], Any], at: Any, step: Any = 1e-3) -> np.ndarray:
    """The derivatives of a function of a vector: central differences of fourth order. `step`: one, or one for each
    number."""
    read = eqx.filter_jit(read)
    columns = []
    for k, h in enumerate(np.broadcast_to(step, len(at))):
        up, down, up2, down2 = (np.asarray(read(at.at[k].add(s * h))) for s in (1, -1, 2, -2))
        columns.append((8 * (up - down) - (up2 - down2)) / (12 * h))
    return np.stack(columns, axis=-1)


def root(function: Callable[[float], Any], low: float, high: float) -> float:
    """The root of a function between two numbers."""
    return float(brentq(function, low, high, xtol=1e-14))  # pyright: ignore[reportArgumentType]


def roots(unbalance: Callable[[np.ndarray], list[float]], start: Any) -> np.ndarray:
    """The roots of several equations, to rounding: that far `fsolve` warns, unless it returns everything."""
    found, _, ok, message = fsolve(unbalance, start, xtol=1e-14, full_output=True)
    assert np.abs(unbalance(found)).max() < 1e-6, (ok, message)
    return np.asarray(found)
