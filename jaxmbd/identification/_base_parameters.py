"""Base parameters: the combinations of numbers that the efforts over a motion tell apart.

Columns of the regressor `Y` that depend on others belong to numbers that no such motion determines alone. With `r`
independent columns `Y₁` and the others `Y₂ = Y₁ β`, the efforts are `Y₁ (θ₁ + β θ₂)`.

Source: Gautier, *Numerical calculation of the base inertial parameters of robots*, J. Robotic Systems 8 (1991).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from jaxmbd.arrays import as_float
from jaxmbd.checks import check_finite, check_number
from jaxmbd.printing import count_of, format_number, table

_DEPENDENT = 1e-8  # share of a column that those before it leave, below which it counts as dependent
_LAST = {"kg m": 1, "kg": 2}  # units of the numbers that are expressed by others, if any of them is
_WITHOUT = 1e-10  # share of the largest column below which one counts as zero
_ROUNDING = 1e-7  # of a coefficient, in units of its columns' sizes


@dataclass(frozen=True, eq=False)
class BaseParameters:
    """The combinations `K θ` of the numbers `θ` that a motion tells apart; `print` shows them.

    `combination (base, numbers)`: `K`; `independent (base,)`: the places in `θ` of the numbers with which the
    combinations begin, and have the coefficient one; `names`: the combinations in words; `values (base,)`: in the
    mechanism; `units`; `without_effect`: numbers that appear in none; `condition`: of the regressor of the base
    parameters, its columns in units of their size.
    """

    combination: Float[np.ndarray, "base numbers"]
    independent: Int[np.ndarray, " base"]
    names: tuple[str, ...]
    units: tuple[str, ...]
    values: Float[np.ndarray, " base"]
    without_effect: tuple[str, ...]
    condition: float

    def __repr__(self) -> str:
        rows = [
            [name, format_number(x), unit] for name, x, unit in zip(self.names, self.values, self.units, strict=True)
        ]
        numbers = self.combination.shape[1]
        title = (
            f"{count_of(len(rows), 'base parameter')} of {count_of(numbers, 'number')}, condition {self.condition:.3g}"
        )
        more = f"\nwithout effect: {', '.join(self.without_effect)}" if self.without_effect else ""
        return f"{title}\n{table([['combination', 'value', 'unit'], *rows], words=3)}{more}"


def base_parameters(
    matrix: Float[np.ndarray, "rows numbers"],
    names: Sequence[str],
    units: tuple[str, ...],
    values: Float[np.ndarray, " numbers"],
    tolerance: float | None = None,
) -> BaseParameters:
    """The base parameters of a regressor. Columns are compared in units of their size, and those of masses are the
    first to be expressed by others, then those of first moments: so combinations are named as is usual for robots."""
    if tolerance is not None:
        check_finite("Base parameters", "tolerance", as_float(tolerance))
        check_number("Base parameters", "tolerance", as_float(tolerance), "1")
    sizes = np.linalg.norm(matrix, axis=0)
    acts = sizes > _WITHOUT * _largest_by_unit(sizes, units)
    at = sorted(np.flatnonzero(acts).tolist(), key=lambda k: (_LAST.get(units[k], 0), k))
    scaled = np.asarray(np.linalg.qr(matrix[:, at] / sizes[at], mode="r")) if at else np.zeros((0, 0))
    kept = _independent(scaled, _DEPENDENT if tolerance is None else tolerance)
    rest = np.setdiff1d(np.arange(len(at)), kept)
    beta = np.linalg.lstsq(scaled[:, kept], scaled[:, rest], rcond=None)[0]
    beta[np.abs(beta) < _ROUNDING] = 0.0
    first, others = np.asarray(at, dtype=int)[kept], np.asarray(at, dtype=int)[rest]
    combination = np.zeros((len(first), len(names)))
    combination[np.arange(len(first)), first] = 1.0
    combination[:, others] = beta * sizes[others] / sizes[first][:, None]
    by_place = np.argsort(first)
    combination, first = combination[by_place], first[by_place]
    spread = np.linalg.svd(scaled[:, kept], compute_uv=False)
    return BaseParameters(
        combination, first, tuple(_words(row, k, names) for row, k in zip(combination, first.tolist(), strict=True)),
        tuple(units[int(k)] for k in first), _sums(combination, values),
        tuple(name for name, does in zip(names, acts, strict=True) if not does),
        float(spread[0] / spread[-1]) if len(kept) else 1.0,
    )  # fmt: skip


def _sums(combination: np.ndarray, values: np.ndarray) -> np.ndarray:
    """`K θ`, zero where nothing but rounding is left of its terms."""
    sums, sizes = combination @ values, np.abs(combination) @ np.abs(values)
    return np.where(np.abs(sums) > _ROUNDING * sizes, sums, 0.0)


def _independent(columns: np.ndarray, tolerance: float) -> np.ndarray:
    """The columns, of length one, that do not depend on those before them: more is left of them than the tolerance."""
    basis, kept = np.zeros((len(columns), 0)), []
    for k, column in enumerate(columns.T):
        left = column - basis @ (basis.T @ column)
        left = left - basis @ (basis.T @ left)
        if np.linalg.norm(left) > tolerance:
            basis, kept = np.column_stack([basis, left / np.linalg.norm(left)]), [*kept, k]
    return np.asarray(kept, dtype=int)


def _largest_by_unit(sizes: np.ndarray, units: Sequence[str]) -> np.ndarray:
    """For each column the largest of those whose numbers have the same unit."""
    of = {unit: max(size for size, other in zip(sizes, units, strict=True) if other == unit) for unit in units}
    return np.array([of[unit] for unit in units])


def _words(row: np.ndarray, first: int, names: Sequence[str]) -> str:
    """A combination in words, `rod.inertia + 0.25 rod.mass`."""
    words = names[first]
    for k in np.flatnonzero(row).tolist():
        if k != first:
            factor = "" if abs(abs(row[k]) - 1) < _ROUNDING else f"{format_number(abs(row[k]))} "
            words += f" {'-' if row[k] < 0 else '+'} {factor}{names[k]}"
    return words
