"""Checkpoints of a fit: a file with numbers alone, from which an interrupted search goes on."""

import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.numerics.stepwise_search import SearchState

_FORMAT = 2


class Checkpoint:
    """The file of a fit; without a path nothing is stored.

    **Arguments:** `path`; `names`: the unknowns; `identity`: digests of what determines the search, by part
    (`_identity.py`). By these a file of another fit is recognised.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, names: Sequence[str], identity: Mapping[str, str] | None = None
    ) -> None:
        self._path = None if path is None else Path(path)
        self._names, self._identity = list(names), dict(identity or {})
        self._stored = self._read()
        self.stage = int(self._stored["stage"]) if self._stored else 0

    @property
    def exists(self) -> bool:
        """True if there is a file to go on from."""
        return self._stored is not None

    def check_stage(self, stages: int) -> None:
        """Raise unless the file belongs to one of so many searches that follow one another."""
        if self.stage >= stages:
            raise MechanismError(
                f"The checkpoint {str(self._path)!r} belongs to a fit of segments that join without jumps, "
                "continuity=0. Name another file, or delete it to start anew."
            )

    def states(self, starts: Sequence[np.ndarray]) -> list[SearchState]:
        """Return the states of the searches: those of the file, the first time they are asked for, or the starts."""
        stored, self._stored = self._stored, None
        return [SearchState(u) for u in starts] if stored is None else self._states(stored, len(starts), len(starts[0]))

    def _read(self) -> dict[str, np.ndarray] | None:
        """What the file holds; None without one."""
        if self._path is None or not self._path.exists():
            return None
        try:
            stored = _arrays(self._path)
        except Exception as error:  # whatever the decoders raise for bytes that they did not write
            raise MechanismError(
                f"The checkpoint {str(self._path)!r} cannot be read ({error}). Delete it to start anew."
            ) from None
        return self._checked(stored)

    def _checked(self, stored: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Raise unless the file is a checkpoint of a fit with the same unknowns."""
        name = repr(str(self._path))
        if (
            set(stored) != {"format", "names", "identity", "u", "damping", "growth", "history", "steps", "stage"}
            or stored["format"].shape != ()
            or stored["format"].item() != _FORMAT
        ):
            raise MechanismError(f"{name} is no checkpoint of a fit. Name another file, or delete it to start anew.")
        fault = _fault(stored)
        if fault:
            raise MechanismError(f"The checkpoint {name} is damaged: {fault}. Delete it to start anew.")
        if stored["names"].tolist() != self._names:
            raise MechanismError(
                f"The checkpoint {name} belongs to a fit with other unknowns, "
                f"{', '.join(stored['names'].tolist()[:6])}; this one has {', '.join(self._names[:6])}. Name another "
                "file, or delete it to start anew."
            )
        different = _different(str(stored["identity"]), self._identity)
        if different:
            raise MechanismError(
                f"The checkpoint {name} belongs to another fit. What differs: {', '.join(different)}. Name another "
                "file, or delete it to start anew."
            )
        return stored

    def _states(self, stored: dict[str, np.ndarray], searches: int, size: int) -> list[SearchState]:
        name = repr(str(self._path))
        shapes = {"u": (searches, size), "damping": (searches,), "growth": (searches,), "steps": (searches,)}
        for field, shape in shapes.items():
            if stored[field].shape != shape or not np.isfinite(stored[field]).all():
                raise MechanismError(
                    f"The checkpoint {name} holds {field} of shape {stored[field].shape}, where {shape} is needed: it "
                    "belongs to a fit with another number of starts, or is damaged. Delete it to start anew."
                )
        history = np.split(stored["history"], np.cumsum(stored["steps"].astype(int))[:-1])
        return [
            SearchState(u, float(damping), float(growth), list(map(float, losses)))
            for u, damping, growth, losses in zip(
                stored["u"], stored["damping"], stored["growth"], history, strict=True
            )
        ]

    def save(self, states: Sequence[SearchState]) -> None:
        """Store the states; the file is complete at any time."""
        if self._path is None:
            return
        new = self._path.with_name(self._path.name + ".new")
        with open(new, "wb") as file:
            np.savez(
                file,
                format=_FORMAT,
                stage=self.stage,
                names=np.array(self._names, dtype=str),
                identity=json.dumps(self._identity),
                u=np.stack([state.u for state in states]),
                damping=[state.damping for state in states],
                growth=[state.growth for state in states],
                steps=[len(state.history) for state in states],
                history=np.concatenate([np.asarray(state.history, float) for state in states]),
            )
        os.replace(new, self._path)


# --- what a file may hold ---------------------------------------------------------------------------------------------

_KINDS = {
    "names": "U",
    "identity": "U",
    "u": "f",
    "damping": "f",
    "growth": "f",
    "history": "f",
    "steps": "iu",
    "stage": "iu",
}
_DIMENSIONS = {"names": 1, "identity": 0, "u": 2, "damping": 1, "growth": 1, "history": 1, "steps": 1, "stage": 0}


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file; an array that claims more than its part of the file holds is not made room for."""
    if not path.is_file():
        raise ValueError("it is no file")
    found = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > path.stat().st_size:
                raise ValueError(f"{info.filename!r} is compressed, or larger than the file")
            with archive.open(info) as part:
                found[info.filename.removesuffix(".npy")] = _array(part, info)
    return found


def _array(part: IO[bytes], info: zipfile.ZipInfo) -> np.ndarray:
    version = np.lib.format.read_magic(part)
    header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
    shape, _, dtype = header(part)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != info.file_size - part.tell():
        raise ValueError(f"{info.filename!r} claims to hold an array of shape {shape}, which it does not")
    part.seek(0)
    return np.lib.format.read_array(part, allow_pickle=False)


def _fault(stored: dict[str, np.ndarray]) -> str:
    """What the numbers of a checkpoint cannot be; empty if they can."""
    for name, kinds in _KINDS.items():
        array = stored[name]
        if array.dtype.kind not in kinds or array.ndim != _DIMENSIONS[name]:
            return f"{name} is of type {array.dtype} and shape {array.shape}"
    for name in ("u", "damping", "growth", "history"):
        if not np.isfinite(stored[name]).all():
            return f"{name} holds values that are not finite"
    for name in ("damping", "growth"):
        if not (stored[name] > 0).all():
            return f"{name} must be positive, got {stored[name].min():g}"
    for name in ("history", "steps", "stage"):
        if not (stored[name] >= 0).all():
            return f"{name} must not be negative, got {stored[name].min():g}"
    if sum(map(int, stored["steps"])) != len(stored["history"]):
        return f"{len(stored['history'])} losses do not belong to {sum(map(int, stored['steps']))} steps"
    return ""


def _different(text: str, identity: dict[str, str]) -> list[str]:
    """The parts of a fit that differ from those that a file was written for."""
    try:
        stored = json.loads(text)
    except ValueError:
        stored = None
    stored = stored if isinstance(stored, dict) else {}
    return [part for part in {**identity, **stored} if stored.get(part) != identity.get(part)]
