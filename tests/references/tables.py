"""The tables of reference numbers in this folder."""

from pathlib import Path

import numpy as np

REFERENCES = Path(__file__).parent


def table(name: str) -> dict[str, np.ndarray]:
    """A reference table by column, units left out of the names."""
    data = np.genfromtxt(
        REFERENCES / f"{name}.csv", delimiter=",", names=True, dtype=None, encoding="utf-8", deletechars="",
        replace_space="_",
    )  # fmt: skip
    return {str(column).partition("[")[0]: data[column] for column in data.dtype.names or ()}


def columns(data: dict[str, np.ndarray], *names: str) -> np.ndarray:
    return np.stack([data[name] for name in names], axis=-1)
