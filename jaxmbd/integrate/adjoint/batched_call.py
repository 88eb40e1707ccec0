"""Sweeps over motions under `vmap`: the operands and results of one native call for all instances together."""

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.engine.binding.mesh import BatchAxes
from jaxmbd.integrate.adjoint.steps import Entry, NativeCall


class Batch(NamedTuple):
    """One level of `vmap`: its size, and which operands have a leading axis for it. All results have one."""

    size: int
    has_axis: tuple[bool, ...]


Batches = tuple[Batch, ...]  # the innermost level first


class BatchedCall:
    """A call for all instances of the batches together, which have one axis in place of those of the batches.

    `first`: the index of the first tangent among the operands of the primitive; `along`: the levels of `vmap` over
    tangents alone, for which the motions are the same. Their directions are no instances: tangents have an axis for
    them after that of the instances, and the call computes once what they share.
    """

    def __init__(self, native: NativeCall, batches: Batches, first: int, along: tuple[int, ...] = ()) -> None:
        self.native, self.batches, self.first = native, batches, first
        outer_first = [*reversed(range(len(batches)))]  # as the leading axes of the arrays are
        self._inner = [k for k in outer_first if k not in along]
        self._along = [k for k in outer_first if k in along]
        self._order = [outer_first.index(k) for k in (*self._inner, *self._along)]

    def _sizes(self, levels: Sequence[int]) -> list[int]:
        return [self.batches[level].size for level in levels]

    @property
    def size(self) -> int:
        """The number of instances; zero if there are no batches of them."""
        return math.prod(self._sizes(self._inner)) if self._inner else 0

    @property
    def axes(self) -> BatchAxes:
        """The levels of instances among the leading axes of the primitive's operands and results."""
        levels = [*reversed(range(len(self.batches)))]
        place = {level: k for k, level in enumerate(self._inner)}
        of = [[k for k in levels if self.batches[k].has_axis[i]] for i in range(len(self.batches[0].has_axis))]
        count = len(self.native.results if self.native.order is None else self.native.order)
        operands, results = (tuple(tuple(map(place.get, each)) for each in arrays) for arrays in (of, [levels] * count))
        return BatchAxes((*self._sizes(self._inner),), operands, results)

    def part(self, sizes: Sequence[int]) -> "BatchedCall":
        """The same call for a part of the instances: as many as these sizes of the levels in `axes`."""
        of_level = dict(zip(self._inner, sizes, strict=True))
        batches = tuple(batch._replace(size=of_level.get(k, batch.size)) for k, batch in enumerate(self.batches))
        return BatchedCall(self.native, batches, self.first, tuple(self._along))

    @cached_property
    def types(self) -> list[jax.ShapeDtypeStruct]:
        """The types of the results of the call."""
        size = (self.size,) if self.size else ()
        return [jax.ShapeDtypeStruct((*size, *x.shape), x.dtype) for x in self.native.results]

    def varies(self, k: int) -> bool:
        """True if an operand of the primitive differs between instances."""
        return any(self.batches[level].has_axis[k] for level in self._inner)

    def operands(self, together: Sequence[Entry]) -> list[Entry | np.ndarray]:
        """The operands of the call of the virtual machine."""
        given = (together[k] if isinstance(k, int) else k for k in self.native.operands)
        return [*self.native.settings(self.size), *given]

    def together(self, arrays: Sequence[Array]) -> list[Array]:
        """The operands of the primitive with these axes; only those that vary over the instances have theirs."""
        return [self._together(k, x) for k, x in enumerate(arrays)]

    def _together(self, k: int, x: Array) -> Array:
        groups = [(self._inner, self.varies(k)), (self._along, bool(self._along) and k >= self.first)]
        if not any(wanted for _, wanted in groups):
            return x
        has_axis = [batch.has_axis[k] for batch in reversed(self.batches)]
        shape, sizes = x.shape[sum(has_axis) :], iter(x.shape)
        x = x.reshape(*(next(sizes) if has else 1 for has in has_axis), *shape)
        x = jnp.transpose(x, (*self._order, *range(len(has_axis), x.ndim)))
        wide = [size if wanted else 1 for levels, wanted in groups for size in self._sizes(levels)]
        leading = [math.prod(self._sizes(levels)) for levels, wanted in groups if wanted]
        return jnp.broadcast_to(x, (*wide, *shape)).reshape(*leading, *shape)

    def apart(self, results: Sequence[Array]) -> list[Array]:
        """The results in the order of the primitive, with the axes of the batches."""
        sizes, back, apart = self._sizes([*self._inner, *self._along]), np.argsort(self._order).tolist(), []
        for x, like in zip(results, self.native.results, strict=True):
            x = x.reshape(*sizes, *like.shape[1 if self._along else 0 :])
            apart.append(jnp.transpose(x, (*back, *range(len(back), x.ndim))))
        return apart if self.native.order is None else [apart[k] for k in self.native.order]


def batched_call(
    name: str, operands: int, batches: Batches, many: int | None, settings: dict[str, Any]
) -> BatchedCall | None:
    """The call for a primitive with so many operands; None if there is none.

    Directions of tangents share what they have in common if there are `many` instances beside them; never if that is
    None.
    """
    native = partial(settings["steps"].native, name, operands=operands, **settings)
    first = operands - len(settings["moving"]) if name == "tangents" else operands
    along = tuple(level for level, batch in enumerate(batches) if not any(batch.has_axis[:first]))
    directions, instances = math.prod(batches[k].size for k in along), math.prod(batch.size for batch in batches)
    if many is not None and directions > 1 and instances // directions >= many:
        call = native(directions=directions)
        if call is not None:
            return BatchedCall(call, batches, first, along)
    call = native()
    return None if call is None else BatchedCall(call, batches, first)
