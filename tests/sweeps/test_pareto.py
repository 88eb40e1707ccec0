"""Fronts of sweeps: members are dominated by none, against a comparison of all pairs."""

import time
from typing import Any

import numpy as np
import pytest
import xarray as xr

import jaxmbd as mbd
from jaxmbd.sweeps import pareto_front

QUICK = 60.0  # [s], on a computer that does other work: the comparison of all pairs would take hours


def made(values: np.ndarray, failed: np.ndarray | None = None) -> xr.Dataset:
    """A sweep with an output for each column."""
    columns: dict[str, Any] = {f"y{k}": ("variant", x) for k, x in enumerate(values.T)}
    if failed is not None:
        columns["result"] = ("variant", failed.astype(np.int32))
    return xr.Dataset(columns, {"x": ("variant", np.arange(len(values), dtype=float))})


def dominated(values: np.ndarray) -> np.ndarray:
    a, b = values[:, None], values[None]
    pairs: np.ndarray = np.all(b <= a, axis=2) & np.any(b < a, axis=2)
    return np.asarray(np.any(pairs, axis=1))


@pytest.mark.parametrize("aims", [2, 3, 4])
def test_the_front_is_that_of_all_pairs(aims: int) -> None:
    values = np.random.default_rng(aims).integers(0, 9, (300, aims)).astype(float)  # many equal ones
    values[::50] = np.nan
    failed = np.arange(300) % 37 == 1
    signs = np.where(np.arange(aims) % 2, -1.0, 1.0)
    wanted = {f"y{k}": "min" if sign > 0 else "max" for k, sign in enumerate(signs)}
    found = pareto_front(made(values, failed), wanted)  # pyright: ignore[reportArgumentType]
    good = np.isfinite(values).all(axis=1) & ~failed
    inside = np.flatnonzero(good)
    expected = inside[~dominated(signs * values[good])]
    assert sorted(found["x"].values.astype(int)) == sorted(expected)
    assert np.all(np.diff(found["y0"].values) >= 0)


def test_rounding_makes_no_members() -> None:
    values = np.array([[1.0, 5.0], [2.0, 5.0 - 1e-12], [3.0, 4.0]])
    assert pareto_front(made(values), {"y0": "min", "y1": "min"})["x"].values.tolist() == [0.0, 2.0]


def test_many_variants_take_seconds() -> None:
    values = np.random.default_rng(0).normal(size=(100_000, 3))
    begin = time.perf_counter()
    front = pareto_front(made(values), dict.fromkeys(("y0", "y1", "y2"), "min"))  # pyright: ignore[reportArgumentType]
    assert time.perf_counter() - begin < QUICK
    members = np.stack([front[name].values for name in ("y0", "y1", "y2")], axis=1)
    assert 20 < len(members) < 1000
    assert not dominated(members).any()


def test_numbers_of_all_dimensions_come_along() -> None:
    space = {"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0]}
    found = mbd.sweep(lambda x: {"low": x["a"] + x["b"], "high": x["a"] - x["b"]}, space, progress=False)
    front = pareto_front(found, {"low": "min", "high": "max"})
    assert front["b"].values.tolist() == [0.0, 0.0, 0.0]
    assert front["a"].values.tolist() == [1.0, 2.0, 3.0]


def test_wrong_aims_are_named() -> None:
    found = made(np.ones((3, 2))).assign(path=(("variant", "path_0"), np.ones((3, 4))))
    for aims, message in (
        ({"y0": "min"}, "at least two aims"),
        ({"y0": "min", "y2": "max"}, "named 'y2'"),
        ({"y0": "min", "y1": "least"}, "direction"),
        ({"y0": "min", "path": "min"}, r"'path' has the shape \(4,\)"),
    ):
        with pytest.raises(mbd.MechanismError, match=message):
            pareto_front(found, aims)  # pyright: ignore[reportArgumentType]
    with pytest.raises(mbd.MechanismError, match=r"needs the xarray\.Dataset of sweep"):
        pareto_front({}, {"y0": "min", "y1": "min"})  # pyright: ignore[reportArgumentType]
