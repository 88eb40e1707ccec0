"""What linear systems in continuous and in discrete time have in common: their names, as text and as data."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import as_float
from jaxmbd.errors import MechanismError

if TYPE_CHECKING:
    import xarray as xr


class StateSpaceMatrices(Protocol):
    """The matrices of a linear system with the names of their rows and columns."""

    A: Float[Array, "x x"]
    B: Float[Array, "x inputs"]
    C: Float[Array, "outputs x"]
    D: Float[Array, "outputs inputs"]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_units: tuple[str, ...]
    output_units: tuple[str, ...]

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the entries of `x`."""
        ...


def names_of(system: StateSpaceMatrices) -> list[str]:
    """The names of states, inputs and outputs, a line for each."""
    parts = [("States", system.states), ("Inputs", system.inputs), ("Outputs", system.outputs)]
    return [f"{kind} ({len(names)}): {', '.join(names)}" for kind, names in parts if names]


def dataset_of(system: StateSpaceMatrices, **attributes: float) -> "xr.Dataset":
    """`A`, `B`, `C`, `D` as an `xarray.Dataset` with these names."""
    axes = {"state": system.states, "state_": system.states, "input": system.inputs, "output": system.outputs}
    matrices = {
        "A": (("state", "state_"), np.asarray(system.A)),
        "B": (("state", "input"), np.asarray(system.B)),
        "C": (("output", "state"), np.asarray(system.C)),
        "D": (("output", "input"), np.asarray(system.D)),
    }
    coordinates = {axis: (axis, np.asarray(names, dtype=object)) for axis, names in axes.items()}
    import xarray as xr  # takes a third of a second

    data = xr.Dataset(matrices, coordinates, attributes)
    data["input"].attrs["units"], data["output"].attrs["units"] = system.input_units, system.output_units
    return data


def real_numbers(what: str, values: Any, dtype: Any) -> Float[Array, " numbers"]:
    """Numbers of a user as an array of one axis."""
    array = as_float(values)
    if not isinstance(array, Array) or array.ndim > 1 or np.issubdtype(array.dtype, np.complexfloating):
        raise MechanismError(f"{what} must be a number or a sequence of real numbers, got {values!r}.")
    return array.reshape(-1).astype(dtype)
