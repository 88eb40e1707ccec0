"""Arrays for the page, in one block of bytes; `page/numbers.js` reads it.

A browser inflates the block. Numbers that change smoothly are rounded to multiples of a quantum, of which differences
over time are stored. They are small, so most of their bytes are zero; all first bytes are stored side by side, then all
second ones, and so on. A coordinate of a motion then takes less than a byte in each frame.
"""

import base64
import zlib

import numpy as np

_MOST = 2.0**28  # the largest number of quanta: second differences have four times as many, in 32 bits

Reference = dict[str, object]  # how the page finds an array in the block


class Numbers:
    """A block of arrays, which grows; each method adds one and returns its reference, to be put into JSON."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def floats(self, values: np.ndarray) -> Reference:
        """Add numbers in single precision; NaN is allowed."""
        return self._add(np.asarray(values, dtype="<f4"), {"kind": "float"})

    def track(self, values: np.ndarray, quantum: float, order: int = 2) -> Reference:
        """Add numbers, rounded to multiples of a quantum, as differences of some order along the first axis."""
        assert np.isfinite(values).all()
        first = values[0]
        moved = np.asarray(values, dtype=float) - first
        quantum = max(quantum, float(np.abs(moved).max(initial=0.0)) / _MOST)
        steps = np.round(moved / quantum).astype(np.int64)
        for _ in range(order):
            steps = np.diff(steps, axis=0, prepend=0)
        unsigned = ((steps << 1) ^ (steps >> 63)).astype(
            "<u4"
        )  # small numbers of either sign become small ones without
        about = {"kind": "track", "quantum": quantum, "order": order, "first": np.ravel(first).tolist()}
        return self._add(unsigned, about)

    def indices(self, values: np.ndarray) -> Reference:
        """Add integers, most of which follow from those in the row before."""
        return self.track(np.asarray(values), 1.0, order=1)

    def text(self) -> str:
        """The block, deflated, in base 64."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), 9)).decode("ascii")

    def _add(self, values: np.ndarray, about: Reference) -> Reference:
        planes = np.frombuffer(values.tobytes(), np.uint8).reshape(-1, 4).T  # all first bytes, all second ones, ...
        reference = {"at": self._length, "shape": list(values.shape), **about}
        self._parts.append(planes.tobytes())
        self._length += planes.size
        return reference
