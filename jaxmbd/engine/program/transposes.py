"""The transpose of a program that is linear in some of its inputs, from its scalar operations, last to first.

Source: Griewank, Walther, Evaluating Derivatives (2008), chapter 3.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jaxmbd.engine.program.copies import Original
from jaxmbd.engine.program.ssa_builder import ZERO, SSABuilder, ValueIds

# For an operation: what a cotangent of its results adds to those of each operand, whose values are given; None where
# it is not linear in that one.
Pullback = Callable[..., ValueIds]
_PULLBACKS: dict[str, tuple[Pullback | None, ...]] = {
    "add": (lambda build, ct, a, b: ct, lambda build, ct, a, b: ct),
    "sub": (lambda build, ct, a, b: ct, lambda build, ct, a, b: build("neg", ct)),
    "neg": (lambda build, ct, a: build("neg", ct),),
    "mul": (lambda build, ct, a, b: build("mul", ct, b), lambda build, ct, a, b: build("mul", ct, a)),
    "div": (lambda build, ct, a, b: build("div", ct, b), None),
    "select": (
        None,
        lambda build, ct, c, a, b: build("select", c, ct, ZERO),
        lambda build, ct, c, a, b: build("select", c, ZERO, ct),
    ),
}


def transposed(original: Original, wanted: Sequence[int]) -> tuple[SSABuilder, list[ValueIds]] | None:
    """The transpose with respect to the inputs `wanted`: a program of the other inputs, then of the cotangents of the
    outputs, that computes the cotangents of `wanted`.

    None where some operation is not known to be linear in them, or where a solve has a transpose of its own.
    """
    if not original.is_transposable:
        return None
    builder, linear = SSABuilder(), depends_on(original, wanted)
    if not all(is_linear(*row, linear) for row in original.rows):
        return None
    # The values that do not depend on `wanted` are those of the program itself; the others are never computed.
    others = [k for k in range(len(original.inputs)) if k not in wanted]
    copies = np.full(original.size, ZERO, np.int32)
    for k in others:
        copies[original.inputs[k]] = builder.inputs(original.inputs[k].shape)
    cotangents = [builder.inputs(ids.shape) for ids in original.outputs]
    ids, numbers = original.constants
    copies[ids] = builder.constants(numbers)
    for name, results, operands in original.rows:
        at = ~linear[results]
        copies[results[at]] = original.emitted(builder, copies, name, operands[:, at])
    pulled = _Cotangents(builder, original, wanted, linear)
    for ids, given in zip(original.outputs, cotangents, strict=True):
        pulled.add(ids.reshape(-1), given.reshape(-1))
    for place, (name, results, operands) in reversed([*enumerate(original.rows)]):
        ct = pulled.of(place, results)
        for pullback, ids in zip(_PULLBACKS.get(name, ()), operands, strict=False):
            at = linear[ids] & (ct != ZERO)
            if pullback is not None and at.any():
                pulled.add(ids[at], pullback(builder.apply, ct[at], *copies[operands[:, at]]))
    results = [pulled.of(len(original.rows) + place, original.inputs[k]) for place, k in enumerate(wanted)]
    return builder, results


def depends_on(original: Original, wanted: Sequence[int]) -> np.ndarray:
    """A mask of the values that depend on some inputs."""
    depends = np.zeros(original.size, bool)
    for k in wanted:
        depends[original.inputs[k]] = True
    for leaf, elements in original.tables.items():
        depends[leaf] = elements.dtype == np.int32 and depends[elements].any()
    for _, results, operands in original.rows:
        depends[results] = depends[operands].any(axis=0)
    return depends


def is_linear(name: str, results: ValueIds, operands: ValueIds, linear: np.ndarray) -> bool:
    """True if operations of one kind are linear in those of their operands that are linear themselves."""
    if not linear[results].any():
        return True
    if name not in _PULLBACKS or (name == "mul" and linear[operands].all(axis=0).any()):
        return False
    return all(
        pullback is not None or not linear[ids].any() for pullback, ids in zip(_PULLBACKS[name], operands, strict=True)
    )


class _Cotangents:
    """The cotangents of values, as the terms of sums that are emitted once all are known: pairwise, in trees of
    logarithmic depth."""

    def __init__(self, builder: SSABuilder, original: Original, wanted: Sequence[int], linear: np.ndarray) -> None:
        self._builder, self._linear = builder, linear
        groups = [*(results for _, results, _ in original.rows), *(original.inputs[k].reshape(-1) for k in wanted)]
        # Values that are read as another input, such as an unused one, stay in no group.
        self._group, self._place = np.full(original.size, -1), np.zeros(original.size, int)
        for number, ids in enumerate(groups):
            self._group[ids], self._place[ids] = number, np.arange(len(ids))
        self._terms: list[list[tuple[ValueIds, ValueIds]]] = [[] for _ in groups]

    def add(self, ids: ValueIds, terms: ValueIds) -> None:
        """Add terms to the cotangents of values; those of values that do not count are dropped."""
        counts = self._linear[ids]
        for group, at in _grouped(self._group[ids[counts]]):
            self._terms[group].append((self._place[ids[counts][at]], terms[counts][at]))

    def of(self, group: int, ids: ValueIds) -> ValueIds:
        """The cotangents of the values of a group, in their shape."""
        if not self._terms[group]:
            return np.full(ids.shape, ZERO, np.int32)
        places, terms = map(np.concatenate, zip(*self._terms[group], strict=True))
        return self._builder.sum_into(terms, places, ids.size).reshape(ids.shape)


def _grouped(groups: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each group with the places of its members."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-2))
    for start, places in zip(starts, np.split(order, starts[1:]), strict=True) if len(order) else ():
        yield int(groups[order[start]]), places
