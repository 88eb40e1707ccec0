"""Variants of a sweep that no other one is better than: the Pareto front of several aims."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from jaxmbd.checks import check_mapping
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.sweeps.table import scalar_outputs, table_of

if TYPE_CHECKING:
    import xarray as xr

Aim: TypeAlias = Literal["min", "max"]

_ROUNDING = 1e-9  # share of the largest value of an aim, below which differences are none
_BLOCK = 512  # variants that are compared with one another at a time


def pareto_front(found: "xr.Dataset", aims: Mapping[str, Aim]) -> "xr.Dataset":
    """Return the variants of a sweep that no other one dominates.

    One variant dominates another one if it is as good in all aims and better in one.

    **Arguments:** `found`: what `sweep` or `read_store` returned; `aims`: outputs by name with the direction that is
    better, `{"mass": "min", "range": "max"}`, at least two.

    **Returns:** the numbers and outputs of the front's members over one dimension, `front`, in the order of the first
    aim, the best first. Variants that failed, or have NaN in an aim, are no members; of equal ones all are.

    **Raises:** `MechanismError` for unknown outputs or directions, outputs that are arrays, and fewer than two aims.

        >>> def spring(x):  # its stiffness, and the stress under 10 N, by the diameter of its wire
        ...     d = x["wire"]
        ...     return {"stiffness": 8e10 * d**4 / (8 * 0.02**3 * 6), "stress": 8 * 10.0 * 0.02 / (jnp.pi * d**3)}
        >>> found = mbd.sweep(spring, {"wire": [1e-3, 2e-3, 3e-3]}, progress=False)
        >>> front = mbd.sweeps.pareto_front(found, {"stiffness": "min", "stress": "min"})
        >>> print(front["wire"].values)  # all: a softer spring has more stress
        [0.001 0.002 0.003]

    Source: Pareto, *Manuale di economia politica* (1906); Kung, Luccio, Preparata, *On finding the maxima of a set of
    vectors*, J. ACM 22 (1975).
    """
    import xarray as xr

    values = checked_aims("pareto_front", found, aims)
    members = np.flatnonzero(on_front(values))
    members = members[np.argsort(values[members, 0], kind="stable")]
    table = table_of(found, "pareto_front")
    parts: dict[str, Any] = {name: ("front", x[members]) for name, x in table.outputs.items()}
    if table.texts is not None:
        parts["result_text"] = ("front", table.texts[members])
    coordinates = {name: ("front", x[members]) for name, x in table.numbers.items()}
    front = xr.Dataset(parts, coordinates, {"aims": [f"{name}: {aim}" for name, aim in aims.items()]})
    for name in front.variables:
        front[name].attrs = dict(found[name].attrs)
    return front


def checked_aims(what: str, found: Any, aims: Mapping[str, Aim]) -> Float[np.ndarray, "variants aims"]:
    """The aims of all variants as numbers that are to be small; NaN for variants that failed.

    **Raises:** `MechanismError` as `pareto_front`.
    """
    table = table_of(found, what)
    check_mapping(f"{what}: aims", aims, '{"mass": "min", "range": "max"}')
    if not aims or len(aims) < 2:
        raise MechanismError(f'{what}: at least two aims are needed, such as {{"mass": "min", "range": "max"}}.')
    columns = scalar_outputs(what, table, aims)
    check_known(f"direction of an aim of {what}", aims.values(), ("min", "max"))
    values = np.stack([x if aims[name] == "min" else -x for name, x in columns.items()], axis=1)
    values[table.failed | ~np.isfinite(values).all(axis=1)] = np.nan
    return values


def on_front(values: Float[np.ndarray, "variants aims"]) -> Bool[np.ndarray, " variants"]:
    """Which rows are dominated by no other one, all aims to be small; rows with NaN are not."""
    member = np.zeros(len(values), bool)
    valid = np.flatnonzero(np.isfinite(values).all(axis=1))
    if len(valid):
        # What differs by rounding is equal: a constant aim would make members of what others dominate.
        size = np.max(np.abs(values[valid]), axis=0)
        values = np.round(values / np.where(size > 0, _ROUNDING * size, 1.0))
        member[valid] = (_of_two if values.shape[1] == 2 else _of_several)(values[valid])
    return member


def _of_two(values: np.ndarray) -> np.ndarray:
    """In the order of the first aim, the second one has to fall."""
    order = np.lexsort((values[:, 1], values[:, 0]))
    first, second = values[order].T
    starts = np.flatnonzero(np.diff(first, prepend=-np.inf))
    group = np.cumsum(np.diff(first, prepend=-np.inf) != 0) - 1
    least = np.minimum.reduceat(second, starts)
    before = np.concatenate([[np.inf], np.minimum.accumulate(least)[:-1]])
    member = np.zeros(len(values), bool)
    member[order] = (second == least[group]) & (second < before[group])
    return member


def _of_several(values: np.ndarray) -> np.ndarray:
    """In the order of sums of ranks a row is dominated by rows before it only, and if it is, by one of the front."""
    ranks = sum(np.unique(column, return_inverse=True)[1].reshape(-1) for column in values.T)
    order, member = np.argsort(ranks, kind="stable"), np.zeros(len(values), bool)
    front = np.zeros((0, values.shape[1]))
    for start in range(0, len(order), _BLOCK):
        rows = order[start : start + _BLOCK]
        rows = rows[~_dominated(values[rows], front)]
        rows = rows[~_dominated(values[rows], values[rows])]
        member[rows] = True
        front = np.concatenate([front, values[rows]])
    return member


def _dominated(rows: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Which of some rows one of others dominates."""
    found = np.zeros(len(rows), bool)
    for start in range(0, len(by), _BLOCK):
        as_good, better = True, False
        for a, b in zip(rows.T, by[start : start + _BLOCK].T, strict=True):  # faster than a short last axis
            as_good = as_good & (b[None] <= a[:, None])
            better = better | (b[None] < a[:, None])
        found |= np.any(as_good & better, axis=1)
    return found
