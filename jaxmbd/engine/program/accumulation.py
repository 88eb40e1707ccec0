"""The linear part of a program in several directions, with coefficients that are multiplied out once for all of them.

A value that depends linearly on some inputs is a sum of others, its terms, each times a coefficient. A value that is
left out hands its terms on to those that use it: with `i` terms and `o` uses that takes up to `i o` products of
coefficients, once, and may save `i + o − i o` products in each direction. What saves most goes first. If all values
went, the coefficients would be those of the Jacobian; mostly some values in between are worth keeping.

Source: Griewank, Walther, Evaluating Derivatives (2008), chapters 9 and 10 (elimination of vertices, preaccumulation).
"""

import heapq
from collections.abc import Sequence

import numpy as np

from jaxmbd.engine.program.copies import Original
from jaxmbd.engine.program.ssa_builder import MINUS_ONE, ONE, ZERO, SSABuilder, ValueIds
from jaxmbd.engine.program.transposes import depends_on, is_linear


def accumulated(
    original: Original, wanted: Sequence[int], directions: int, others: int
) -> tuple[SSABuilder, list[ValueIds]] | None:
    """The same program with a leading axis of so many directions for the inputs `wanted`, and for all outputs but the
    first `others`. Those outputs are linear in the inputs `wanted`; the first ones do not depend on them.

    None where some operation is not known to be linear in them.
    """
    linear = depends_on(original, wanted)
    if not all(is_linear(*row, linear) for row in original.rows):
        return None
    builder = SSABuilder()
    copies, tangents = np.full(original.size, ZERO, np.int32), np.full((original.size, directions), ZERO, np.int32)
    for k, ids in enumerate(original.inputs):
        if k in wanted:
            tangents[ids] = np.moveaxis(builder.inputs((directions, *ids.shape)), 0, -1)
        else:
            copies[ids] = builder.inputs(ids.shape)
    ids, numbers = original.constants
    copies[ids] = builder.constants(numbers)
    terms = _Terms(builder, directions, [int(x) for k in wanted for x in original.inputs[k].flat])
    for name, results, operands in original.rows:
        at = linear[results]
        copies[results[~at]] = original.emitted(builder, copies, name, operands[:, ~at])
        if at.any():
            terms.add(name, results[at], operands[:, at], copies, linear)
    moving = original.outputs[others:]
    terms.eliminate({int(x) for ids in moving for x in ids.flat})
    terms.emit(tangents)
    return builder, [
        *(copies[ids] for ids in original.outputs[:others]), *(np.moveaxis(tangents[ids], -1, 0) for ids in moving)
    ]  # fmt: skip


class _Terms:
    """The terms of linear values, with coefficients as value ids.

    A choice between two values is that between two sums of its own. What it does not choose may not be a number; so it
    becomes a sum itself, whose coefficients are chosen, only once the terms of both are known to be numbers: inputs,
    and what has been chosen.
    """

    def __init__(self, builder: SSABuilder, directions: int, inputs: Sequence[int]) -> None:
        self._builder, self._directions = builder, directions
        self._terms: dict[int, dict[int, int]] = {}  # in the order in which they are computed
        self._users: dict[int, set[int]] = {}
        self._choices: dict[int, tuple[int, int, int]] = {}  # the condition, and the keys of the two sums
        self._sides: dict[int, int] = {}  # the choice to which a sum belongs
        self._safe = set(inputs)

    def add(self, name: str, results: ValueIds, operands: ValueIds, copies: ValueIds, linear: np.ndarray) -> None:
        """Add values of one operation."""
        if name == "select":
            given = results, copies[operands[0]], *operands[1:]
            for k, condition, *both in zip(*(ids.tolist() for ids in given), strict=True):
                self._choose(k, condition, [x if linear[x] else None for x in both])
            return
        one, minus = (np.full(len(results), x, np.int32) for x in (ONE, MINUS_ONE))
        if name == "mul":
            coefficients = [copies[operands[1]], copies[operands[0]]]
        elif name == "div":
            coefficients = [self._builder.apply("div", one, copies[operands[1]])]
        else:
            coefficients = {"add": [one, one], "sub": [one, minus], "neg": [minus]}[name]
        self._terms |= {k: {} for k in results.tolist()}
        for ids, numbers in zip(operands, coefficients, strict=False):
            for k, x, number in zip(results.tolist(), ids.tolist(), numbers.tolist(), strict=True):
                if linear[x]:
                    self._plus(k, x, number)

    def _choose(self, k: int, condition: int, both: Sequence[int | None]) -> None:
        """Add a value that is one of two; None for one that does not move."""
        sums = -2 * k - 1, -2 * k - 2
        for side, x in zip(sums, both, strict=True):
            self._terms[side], self._sides[side] = {}, k
            if x is not None:
                self._plus(side, x, ONE)
        self._terms[k], self._choices[k] = {}, (condition, *sums)

    def _plus(self, k: int, x: int, coefficient: int) -> None:
        """Add a term to a value."""
        mine = self._terms[k]
        mine[x] = int(self._builder.apply("add", mine[x], coefficient)) if x in mine else coefficient
        self._users.setdefault(x, set()).add(k)

    def eliminate(self, outputs: set[int]) -> None:
        """Leave out values as long as that saves operations."""
        latest = dict.fromkeys(self._terms, 0)  # which of the prices of a value holds

        def may_go(k: int) -> bool:
            return k in self._terms and not (k in outputs or k in self._choices or k in self._sides)

        heap = [(self._price(k), k, 0) for k in self._terms if may_go(k)]
        heapq.heapify(heap)
        while heap and heap[0][0] < 0:
            _, k, version = heapq.heappop(heap)
            if k not in self._terms or version != latest[k]:
                continue
            changed = {*self._terms[k], *self._users.get(k, ())}
            self._leave_out(k)
            for choice in {self._sides[x] for x in changed if x in self._sides}:
                changed |= self._merged(choice)
            for x in changed:
                if may_go(x):
                    latest[x] += 1
                    heapq.heappush(heap, (self._price(x), x, latest[x]))

    def _price(self, k: int) -> int:
        """The operations that leaving out a value takes, less those that it saves."""
        mine, users = self._terms[k], self._users.get(k, ())
        products = new = 0
        for user in users:
            others = self._terms[user]
            outer = others[k]
            for x, inner in mine.items():
                new += x not in others
                products += x in others or (inner > MINUS_ONE and outer > MINUS_ONE)
        return products + self._directions * (new - len(mine) - len(users))

    def _leave_out(self, k: int) -> None:
        mine = self._terms.pop(k)
        for user in self._users.pop(k, ()):
            outer = self._terms[user].pop(k)
            for x, inner in mine.items():
                self._plus(user, x, int(self._builder.apply("mul", inner, outer)))
        for x in mine:
            self._users[x].discard(k)

    def _merged(self, k: int) -> set[int]:
        """Make a choice a sum, if that is safe; the values that this concerns."""
        condition, *sums = self._choices[k]
        both = [self._terms[side] for side in sums]
        if not all(x in self._safe for terms in both for x in terms):
            return set()
        del self._choices[k]
        self._safe.add(k)
        for side in sums:
            for x in self._terms.pop(side):
                self._users[x].discard(side)
            del self._sides[side]
        for x in {**both[0], **both[1]}:
            self._plus(k, x, int(self._builder.apply("select", condition, *(terms.get(x, ZERO) for terms in both))))
        return {k, *self._terms[k]}

    def emit(self, tangents: np.ndarray) -> None:
        """Emit what is left: `tangents (values, directions)`, of which those of the inputs are there."""
        apply = self._builder.apply
        sums: dict[int, ValueIds] = {}
        for k, terms in self._terms.items():
            if k in self._choices:
                condition, *sides = self._choices[k]
                tangents[k] = apply("select", np.int32(condition), *map(sums.pop, sides))
                continue
            total = np.full(self._directions, ZERO, np.int32)
            for x, coefficient in sorted(terms.items(), key=lambda term: term[1] == MINUS_ONE):
                total = apply("add", total, apply("mul", np.int32(coefficient), tangents[x]))
            if k in self._sides:
                sums[k] = total
            else:
                tangents[k] = total
