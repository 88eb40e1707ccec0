"""The variants of a sweep as a table: one row for each, whatever dimensions the space had."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool

from jaxmbd.errors import MechanismError, check_known
from jaxmbd.sweeps._outputs import RESULT, RESULT_TEXT

if TYPE_CHECKING:
    import xarray as xr

NO_NUMBER = "A value is not a finite number, without a verdict that says why."


@dataclass(frozen=True)
class Table:
    """All variants of a sweep, in the order in which they are counted.

    - `dims`: the dimensions of the space with their sizes; `numbers_dims`: those of each number;
    - `numbers`, `outputs`: values `(variants,)` by name, of outputs with one number for each variant; `arrays`: the
      shapes of the other ones;
    - `failed`: the variants with a verdict other than successful; `texts`: the verdicts, if there are any.
    """

    dims: dict[str, int]
    numbers_dims: dict[str, tuple[str, ...]]
    numbers: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    arrays: dict[str, tuple[int, ...]]
    failed: Bool[np.ndarray, " variants"]
    texts: np.ndarray | None

    @property
    def count(self) -> int:
        """The number of variants."""
        return len(self.failed)

    @property
    def varied(self) -> tuple[str, ...]:
        """The numbers that have more than one value."""
        return tuple(name for name, x in self.numbers.items() if len(x) and np.ptp(x) > 0)

    def verdicts(self, values: Mapping[str, np.ndarray]) -> dict[str, int]:
        """How many variants have no value, by the reason, the most frequent first."""
        lost = np.zeros(self.count, bool)
        for x in values.values():
            lost |= ~np.isfinite(x)
        counts: dict[str, int] = {}
        if self.texts is not None and self.failed.any():
            found, numbers = np.unique(self.texts[self.failed].astype(str), return_counts=True)
            counts = dict(zip(found.tolist(), numbers.tolist(), strict=True))
        unknown = int((lost & ~self.failed).sum())
        if unknown:
            counts[NO_NUMBER] = unknown
        return dict(sorted(counts.items(), key=lambda pair: -pair[1]))


def table_of(found: "xr.Dataset", what: str) -> Table:
    """The table of what `sweep` returned; `what` is the function that the user called.

    **Raises:** `MechanismError` if it is no dataset of a sweep, or has no variants.
    """
    given: Any = found
    if type(found).__name__ != "Dataset":
        raise MechanismError(f"{what} needs the xarray.Dataset of sweep or read_store, got {type(found).__name__}.")
    own = {f"{name}_{k}" for name, x in given.data_vars.items() for k in range(x.ndim)}
    dims = {str(dim): int(size) for dim, size in given.sizes.items() if dim not in own}
    shape = tuple(dims.values())
    if not dims or 0 in shape or not given.data_vars:
        raise MechanismError(
            f"{what} needs the dataset of a sweep with outputs over its variants; got {dict(given.sizes)}."
        )

    def row(x: Any) -> np.ndarray:
        return np.broadcast_to(_over(x, tuple(dims)), shape).ravel()

    numbers = {str(n): x for n, x in given.coords.items() if x.dtype.kind in "iuf" and set(x.dims) <= set(dims)}
    columns, arrays = {}, {}
    for name, x in given.data_vars.items():
        if name not in (RESULT, RESULT_TEXT) and x.dtype.kind in "biuf":
            if set(x.dims) <= set(dims):
                columns[str(name)] = row(x).astype(float)
            else:
                arrays[str(name)] = tuple(given.sizes[d] for d in x.dims if d not in dims)
    failed = row(given[RESULT]) != 0 if RESULT in given else np.zeros(int(np.prod(shape)), bool)
    texts = row(given[RESULT_TEXT]) if RESULT_TEXT in given else None
    columns = {name: np.where(failed, np.nan, x) for name, x in columns.items()}
    return Table(
        dims, {name: tuple(map(str, x.dims)) for name, x in numbers.items()},
        {name: row(x).astype(float) for name, x in numbers.items()}, columns, arrays, failed, texts,
    )  # fmt: skip


def _over(x: Any, dims: tuple[str, ...]) -> np.ndarray:
    """An array with all dimensions, of size one where it has none."""
    ordered = [d for d in dims if d in x.dims]
    values = np.asarray(x.transpose(*ordered).values)
    return values.reshape([x.sizes[d] if d in x.dims else 1 for d in dims])


def scalar_outputs(what: str, table: Table, names: str | Iterable[str] | None) -> dict[str, np.ndarray]:
    """Outputs by name, all that are numbers unless named.

    **Raises:** `MechanismError` for unknown ones, and arrays.
    """
    wanted = list(table.outputs) if names is None else [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name in table.arrays:
            raise MechanismError(
                f"{what}: the output {name!r} has the shape {table.arrays[name]} for a variant; a number is needed. "
                f"Give one of its entries a name of its own: found.assign(last=found[{name!r}].isel({name}_0=-1))."
            )
    check_known(f"output of the sweep that {what} can show", wanted, table.outputs)
    if not wanted:
        raise MechanismError(f"{what}: the sweep has no output that is a number for each variant.")
    return {name: table.outputs[name] for name in dict.fromkeys(wanted)}
