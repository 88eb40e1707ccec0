"""Gathers and scatters on NumPy arrays: the rules of programs (`program/windows.py`), for numbers."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from jaxmbd.engine.program.equation import Arrays, Operation
from jaxmbd.engine.program.windows import Windows, constant_windows, read_known, window_rules


class _Numbers:
    """What these rules ask of a builder of scalars."""

    constant = constants = staticmethod(np.asarray)


class _Equation(NamedTuple):
    """What these rules ask of an equation; `in_place`: a scatter may overwrite its operand."""

    params: dict[str, Any]
    dtype: np.dtype
    in_place: bool = False
    builder: _Numbers = _Numbers()

    def indices(self, operand: np.ndarray) -> np.ndarray:
        return operand


def _assign(x: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    x[places] = values


_COMBINE: dict[str | None, Callable[..., None]] = {
    None: _assign, "add": np.add.at, "sub": np.subtract.at, "mul": np.multiply.at, "min": np.minimum.at,
    "max": np.maximum.at,
}  # fmt: skip


def _write(
    equation: Any, x: np.ndarray, windows: Windows, new: np.ndarray, drops: bool, name: str | None
) -> np.ndarray:
    """Write windows, in order where several write one element."""
    places, inside = constant_windows(equation, windows)
    keep = inside if drops and not inside.all() else ...
    result = x if equation.in_place else np.array(x, order="C")
    _COMBINE[name](result.reshape(-1), places[keep].reshape(-1), new[keep].reshape(-1))
    return result


_RULES = window_rules(read_known, _write)


def gather(
    x: np.ndarray, indices: np.ndarray, *,
    dimension_numbers: Sequence[Sequence[int]], slice_sizes: Sequence[int], mode: str, fill_value: float | None,
) -> np.ndarray | Arrays:  # fmt: skip
    """XLA's gather."""
    params = {
        "dimension_numbers": lax.GatherDimensionNumbers(*map(tuple, dimension_numbers)), "slice_sizes": slice_sizes,
        "mode": lax.GatherScatterMode[mode], "fill_value": fill_value,
    }  # fmt: skip
    return _RULES["gather"](_Equation(params, x.dtype), x, indices)


def scatter(name: str) -> Operation:
    """One of XLA's scatters."""

    def run(
        x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *,
        dimension_numbers: Sequence[Sequence[int]], mode: str, in_place: bool,
    ) -> np.ndarray | Arrays:  # fmt: skip
        numbers = lax.ScatterDimensionNumbers(*map(tuple, dimension_numbers))
        params = {"dimension_numbers": numbers, "mode": lax.GatherScatterMode[mode], "update_jaxpr": None}
        return _RULES[name](_Equation(params, x.dtype, in_place), x, indices, updates)

    return run
