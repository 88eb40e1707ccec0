"""Checkpoints of a fit: a file with numbers alone, from which an interrupted search goes on."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.identification._levenberg_marquardt import SearchState

_FORMAT = 1


class Checkpoint:
    """The file of a fit; without a path nothing is stored.

    **Arguments:** `path`; `names`: the unknowns, by which a file of another problem is recognised.
    """

    def __init__(self, path: str | os.PathLike[str] | None, names: Sequence[str]) -> None:
        self._path, self._names = None if path is None else Path(path), list(names)

    def states(self, starts: Sequence[np.ndarray]) -> list[SearchState]:
        """Return the states of the searches: those of the file if there is one, else the starts."""
        if self._path is None or not self._path.exists():
            return [SearchState(u) for u in starts]
        try:
            # A damaged file is not closed by NumPy if its path is given.
            with open(self._path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
                stored = {name: file[name] for name in file.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise MechanismError(
                f"The checkpoint {str(self._path)!r} cannot be read ({error}). Delete it to start anew."
            ) from None
        return self._checked(stored, len(starts), len(starts[0]))

    def _checked(self, stored: dict[str, np.ndarray], searches: int, size: int) -> list[SearchState]:
        name = repr(str(self._path))
        if (
            set(stored) != {"format", "names", "u", "damping", "growth", "history", "steps"}
            or stored["format"] != _FORMAT
        ):
            raise MechanismError(f"{name} is no checkpoint of a fit. Name another file, or delete it to start anew.")
        if stored["names"].tolist() != self._names:
            raise MechanismError(
                f"The checkpoint {name} belongs to a fit with other unknowns, "
                f"{', '.join(stored['names'].tolist()[:6])}; this one has {', '.join(self._names[:6])}. Name another "
                "file, or delete it to start anew."
            )
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
                names=np.array(self._names, dtype=str),
                u=np.stack([state.u for state in states]),
                damping=[state.damping for state in states],
                growth=[state.growth for state in states],
                steps=[len(state.history) for state in states],
                history=np.concatenate([np.asarray(state.history, float) for state in states]),
            )
        os.replace(new, self._path)
