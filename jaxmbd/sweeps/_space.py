"""The space of a sweep: named numbers over named dimensions.

Values that share a dimension vary together; distinct dimensions multiply. The variants are counted in the order of the
dimensions, the last one fastest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jaxmbd.checks import check_mapping
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.numbers import with_numbers

if TYPE_CHECKING:
    import xarray as xr

SpaceLike: TypeAlias = "Mapping[str, object] | xr.Dataset"

RESERVED = {"result", "result_text", "done"}
_KINDS = "biuf"  # booleans, integers, floats
_EXAMPLE = '{"length": [0.1, 0.2, 0.3], "mass": ("variant", [1.0, 2.0])}'


@dataclass(frozen=True)
class Swept:
    """One named number of the variants: its values over its dimensions."""

    name: str
    dims: tuple[str, ...]
    values: np.ndarray


@dataclass(frozen=True)
class Space:
    """All named numbers of a sweep, the sizes of its dimensions in order, and labels that belong to dimensions."""

    swept: tuple[Swept, ...]
    sizes: dict[str, int]
    labels: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.swept)

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.sizes.values())

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """The numbers of the variants from `start` to before `stop`, as one array for each name."""
        at = (
            dict(zip(self.dims, np.unravel_index(np.arange(start, stop), self.shape), strict=True))
            if self.sizes
            else {}
        )
        found = {}
        for one in self.swept:
            places = tuple(at[dim] for dim in one.dims)
            found[one.name] = one.values[places] if places else np.repeat(one.values[None], stop - start)
        return found

    def named(self, k: int) -> str:
        """The number of a variant and the numbers that it has, for messages."""
        return f"{k} with " + ", ".join(f"{name} = {x[0]:.6g}" for name, x in self.rows(k, k + 1).items())


def space_of(given: SpaceLike) -> Space:
    """Return the space that a dictionary or a dataset describes.

    **Raises:** `MechanismError` if a name is no identifier-like string or is used twice, if values are not finite
    numbers, if sizes contradict one another, or if there is no variant.
    """
    if isinstance(given, Mapping) and type(given).__name__ != "Dataset":
        parts, labels = [_from_pair(name, value) for name, value in given.items()], {}
    elif type(given).__name__ == "Dataset":
        parts, labels = _from_dataset(given)
    else:
        raise MechanismError(
            f"sweep: space must be a dictionary such as {_EXAMPLE}, or an xarray.Dataset; got {type(given).__name__}."
        )
    if not parts:
        raise MechanismError(f"sweep: the space names no numbers. Give at least one, such as {_EXAMPLE}.")
    sizes: dict[str, tuple[int, str]] = {}
    for one in parts:
        for dim, size in zip(one.dims, one.values.shape, strict=True):
            known, owner = sizes.setdefault(dim, (size, one.name))
            if known != size:
                raise MechanismError(
                    f"sweep: {one.name!r} has {size} values over the dimension {dim!r}, but {owner!r} has {known}. "
                    "Values that share a dimension vary together, so there must be as many of each."
                )
    space = Space(tuple(parts), {dim: size for dim, (size, _) in sizes.items()}, labels)
    _check_names(space)
    if space.count == 0:
        empty = [dim for dim, size in space.sizes.items() if size == 0]
        raise MechanismError(f"sweep: there is no variant, since the dimension {empty[0]!r} has no values.")
    return space


def _check_names(space: Space) -> None:
    for one in space.swept:
        if one.name in space.sizes and one.dims != (one.name,):
            raise MechanismError(
                f"sweep: {one.name!r} is the name of a number over {one.dims} and of a dimension. Name one of them "
                "otherwise."
            )
    for name in (*space.names, *space.dims):
        if not isinstance(name, str) or not name or "/" in name or name.startswith((".", "__")):
            raise MechanismError(
                f"sweep: numbers and dimensions are named by non-empty strings without '/' that do not begin with "
                f"'.' or '__'; got {name!r}."
            )
        if name in RESERVED:
            raise MechanismError(
                f"sweep: {name!r} cannot be the name of a number or a dimension, since results have it."
            )


def check_named(mechanism: Mechanism, space: Space) -> None:
    """Raise unless the space names numbers of the mechanism, and its parts can have the ends of all values."""
    for one in space.swept:
        for value in (one.values.min(), one.values.max()):
            with_numbers(mechanism, {one.name: value})


def _from_pair(name: Any, value: object) -> Swept:
    """A number by its name: values, or a pair of one or several dimensions and values."""
    dims: Any = None
    if isinstance(value, tuple) and len(value) == 2 and _are_dims(value[0]):
        dims, value = value
        dims = (dims,) if isinstance(dims, str) else tuple(dims)
    values = _numbers(name, value)
    if dims is None:
        dims = (name,) if values.ndim else ()
    if values.ndim != len(dims):
        raise MechanismError(
            f"sweep: {name!r} has values of shape {values.shape} over {len(dims)} dimension(s) {dims}. Give a vector "
            f"for one dimension, or a tuple of dimensions, such as (('row', 'column'), matrix)."
        )
    return Swept(name, dims, values)


def _are_dims(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, Sequence) and bool(value) and all(isinstance(x, str) for x in value)
    )


def _numbers(name: object, value: object) -> np.ndarray:
    try:
        values = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise MechanismError(f"sweep: the values of {name!r} are not an array of numbers: {value!r}.") from error
    if values.size == 0:
        values = values.astype(float)
    if values.dtype.kind not in _KINDS:
        raise MechanismError(f"sweep: the values of {name!r} must be real numbers, got {value!r}.")
    if not np.all(np.isfinite(values)):
        at = np.flatnonzero(~np.isfinite(values))
        raise MechanismError(f"sweep: the values of {name!r} must be finite; value {at[0]} is {values.ravel()[at[0]]}.")
    return values.astype(float) if values.dtype.kind == "f" else values


def _from_dataset(given: Any) -> tuple[list[Swept], dict[str, Any]]:
    """Its variables; and the coordinates of dimensions over which there is no variable. The others are labels."""
    parts = [Swept(name, tuple(x.dims), _numbers(name, x.values)) for name, x in given.data_vars.items()]
    taken = {dim for one in parts for dim in one.dims}
    labels = {}
    for name, x in given.coords.items():
        if x.dims == (name,) and name not in taken:
            parts.append(Swept(name, (name,), _numbers(name, x.values)))
        else:
            labels[name] = x
    return parts, labels


def grid(values: Mapping[str, object]) -> dict[str, tuple[str, np.ndarray]]:
    """Return the space of all combinations of values, a dimension for each name.

    **Arguments:** `values`: the values by name.

    **Returns:** a space for `sweep`; more may be put into the dictionary.

    **Raises:** `MechanismError` if values are not finite numbers in a vector.

    **Example:** `grid({"length": [0.1, 0.2], "mass": [1.0, 2.0, 3.0]})` has six variants.

        >>> mbd.sweeps.grid({"length": [0.5, 1.0], "mass": [1.0, 2.0]})["mass"]
        ('mass', array([1., 2.]))
    """
    check_mapping("grid: values", values, '{"length": [0.1, 0.2], "mass": [1.0, 2.0, 3.0]}')
    space = space_of({name: (name, value) for name, value in (values or {}).items()})
    return {one.name: (one.name, one.values) for one in space.swept}
