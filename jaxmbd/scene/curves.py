"""Curves of a motion as data: named quantities over time in panels, and samples that were measured."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.checks import checked_names
from jaxmbd.errors import MechanismError, check_known, is_one_of, unknown
from jaxmbd.model.mechanism.quantities import channel_units

# The palette of `pieces.py`, in an order that keeps the first curves apart.
CURVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


class Samples(NamedTuple):
    """Measured values `(times, k)` at times `(times,)` [s]."""

    ts: np.ndarray
    values: np.ndarray


class Curve(NamedTuple):
    """One component of a quantity at the times of the motion, and its samples `(ts, values)` if it was measured."""

    label: str
    values: np.ndarray
    measured: tuple[np.ndarray, np.ndarray] | None


class Panel(NamedTuple):
    """Curves that share an axis; `quantity` is their name if they are of one."""

    quantity: str
    unit: str
    curves: list[Curve]

    @property
    def title(self) -> str:
        """`"O.fx [N]"`, or `"[N]"` for several quantities."""
        return f"{self.quantity} [{self.unit}]".strip() if self.unit else self.quantity


def panels_of(
    solution: Solution,
    names: str | Iterable[str],
    measured: Mapping[str, object],
    panels: Literal["unit", "name", "part"],
) -> list[Panel]:
    """Named quantities of a motion in panels, one for each unit, for each name, or for each part and unit.

    `measured`: samples by name, values `(times,)` or `(times, k)` at `solution.ts`, or a pair `(times, values)`.
    """
    wanted = checked_names("names", (names,) if isinstance(names, str) else names, "rod.theta")
    samples = _samples(solution, wanted, measured)
    known = channel_units(solution.mechanism)
    check_known("quantity", wanted, known)
    groups, data = _groups(wanted, known, panels), solution.read(wanted)
    found = []
    for group in groups:
        curves = [curve for name in group for curve in _curves(name, np.asarray(data[name]), samples.get(name))]
        found.append(Panel(group[0] if len(group) == 1 else "", known[group[0]], curves))
    return found


def component_label(name: str, k: int, count: int) -> str:
    """The label of one component: `P.x`, `P.y`, `P.z` for up to three components, `P[k]` for more."""
    if count == 1:
        return name
    return f"{name}.{'xyz'[k]}" if count <= 3 else f"{name}[{k}]"


def _samples(solution: Solution, names: Sequence[str], measured: Mapping[str, object]) -> dict[str, Samples]:
    samples = {}
    for name, data in measured.items():
        if name not in names:
            raise unknown("plotted quantity", name, names)
        given = data if isinstance(data, tuple) and len(data) == 2 else (solution.ts, data)
        ts, values = (np.asarray(numbers, dtype=float) for numbers in given)
        if ts.ndim != 1 or values.ndim not in (1, 2) or len(values) != len(ts):
            raise MechanismError(
                f"measured[{name!r}] must have one row for each of its times: got shape {values.shape} for "
                f"times of shape {ts.shape}. Give (times, values) if they were not measured at solution.ts."
            )
        samples[name] = Samples(ts, values.reshape(len(ts), -1))
    return samples


def _groups(names: Sequence[str], units: Mapping[str, str], panels: str) -> list[list[str]]:
    if not is_one_of(panels, ("unit", "name", "part")):
        raise unknown("way to share panels", panels, ("unit", "name", "part"))
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(names):
        keys = {"unit": (units[name],), "name": (name,), "part": (units[name], name.rpartition(".")[0] or name)}
        groups.setdefault(keys[panels], []).append(name)
    return list(groups.values())


def _curves(name: str, values: np.ndarray, samples: Samples | None) -> list[Curve]:
    columns = values.reshape(len(values), -1).T
    measured = None if samples is None else samples.values.T
    if samples is None or measured is None:
        return [Curve(component_label(name, k, len(columns)), x, None) for k, x in enumerate(columns)]
    if len(measured) != len(columns):
        counts = f"{len(measured)} components, the motion {len(columns)}"
        raise MechanismError(f"measured[{name!r}] has {counts}.")
    pairs = enumerate(zip(columns, measured, strict=True))
    return [Curve(component_label(name, k, len(columns)), x, (samples.ts, dots)) for k, (x, dots) in pairs]
