"""Checkpoints of a fit are read as data: what they hold is checked before it is used."""

import io
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.identification._checkpoint import Checkpoint
from jaxmbd.numerics.stepwise_search import SearchState

NAMES = ("friction", "mass")


def written(path: Path, **changed: Any) -> Checkpoint:
    """Write a checkpoint, with other arrays in place of some; read it."""
    start = Checkpoint(None, NAMES)
    start._path = path
    start.save([SearchState(np.zeros(2), 1e-2, 2.0, [3.0, 2.0, 1.0])])
    with np.load(path) as file:
        arrays = dict(file) | changed
    np.savez(path, **arrays)
    return Checkpoint(path, NAMES)


def test_a_checkpoint_is_what_was_saved(tmp_path: Path) -> None:
    (state,) = written(tmp_path / "fit.npz").states([np.ones(2)])
    np.testing.assert_array_equal(state.u, np.zeros(2))
    assert (state.damping, state.growth, state.history) == (1e-2, 2.0, [3.0, 2.0, 1.0])


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"damping": np.zeros(1)}, "damping must be positive, got 0"),
        ({"growth": np.full(1, -2.0)}, "growth must be positive, got -2"),
        ({"damping": np.full(1, np.nan)}, "damping holds values that are not finite"),
        ({"history": np.array([3.0, np.nan, 1.0])}, "history holds values that are not finite"),
        ({"history": np.array([3.0, -2.0, 1.0])}, "history must not be negative, got -2"),
        ({"u": np.full((1, 2), np.inf)}, "u holds values that are not finite"),
        ({"stage": np.array(-1)}, "stage must not be negative, got -1"),
        ({"stage": np.array(0.5)}, "stage is of type float64"),
        ({"stage": np.zeros(2, int)}, "stage is of type int64 and shape (2,)"),
        ({"steps": np.array([2])}, "3 losses do not belong to 2 steps"),
        ({"steps": np.array([-3])}, "steps must not be negative"),
        ({"steps": np.array([2**62])}, "do not belong to"),
        ({"damping": np.array(["a"])}, "damping is of type <U1"),
        ({"u": np.array([["1", "2"]])}, "u is of type <U1"),
        ({"names": np.zeros(2)}, "names is of type float64"),
        ({"names": np.array(["a"])}, "belongs to a fit with other unknowns, a;"),
        ({"format": np.zeros(3)}, "is no checkpoint of a fit"),
        ({"more": np.zeros(3)}, "is no checkpoint of a fit"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path: Path, changed: dict[str, Any], text: str) -> None:
    with pytest.raises(mbd.MechanismError, match=rf"(?s){re.escape(text)}.*elete it to start anew"):
        written(tmp_path / "fit.npz", **changed)


def with_header(path: Path, shape: tuple[int, ...], compression: int = zipfile.ZIP_STORED) -> None:
    """Replace one array of a checkpoint by one whose header claims another shape."""
    written(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    parts["history.npy"] = header.getvalue() + bytes(24)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def test_arrays_larger_than_the_file_are_not_made_room_for(tmp_path: Path) -> None:
    path = tmp_path / "fit.npz"
    with_header(path, (10**12,))
    with pytest.raises(mbd.MechanismError, match=r"claims to hold an array of shape \(1000000000000,\).*Delete it"):
        Checkpoint(path, NAMES)
    with_header(path, (3,), zipfile.ZIP_DEFLATED)  # a small file of that kind may hold any number of zeros
    with pytest.raises(mbd.MechanismError, match="is compressed, or larger than the file"):
        Checkpoint(path, NAMES)


def test_a_pipe_is_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "fit.npz"
    os.mkfifo(path)
    with pytest.raises(mbd.MechanismError, match="it is no file"):
        Checkpoint(path, NAMES)
