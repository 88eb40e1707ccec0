"""Builder of scalar programs in static single assignment form (SSA), vectorised over arrays of values.

Each scalar value has an id, which is its row in the builder's tables: an opcode with the ids of its operands, an input,
or a constant. Arrays of value ids stand for arrays of values, as arrays of nodes do in `graph/`; but operations are
emitted for whole arrays at once, millions of values in a few seconds. Zeros and ones are folded element by element, so
structural zeros of matrices cost nothing: `0 x = 0` even where `x` could be infinite, as in `graph/`.
"""

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from jaxmbd.engine.program.equation import AbstractBuilder
from jaxmbd.engine.program.opcodes import COPY, EVALUATE, GATHER, INPUT, NUMBER

ValueIds = np.ndarray  # an integer array of value ids


class Table(NamedTuple):
    """Evenly spaced elements of an input, read by index: the input, the first element, the stride, and their number."""

    input: int
    first: int
    stride: int
    length: int


ZERO, ONE, MINUS_ONE = 0, 1, 2
_FEW = 16  # numbers that are faster looked up one by one
_ARITY = 3  # the largest number of operands
_ABSORBING = {"add": "sub", "sub": "add", "neg": ""}  # what operations become that absorb a negated operand
_OF_ZERO_AND_ONE = ("mul", "add", "div")  # operations whose identities hold for zero, one or minus one only
_SWAPPED = {"gt": "lt", "ge": "le"}  # operations that are others with their operands swapped


class SSABuilder(AbstractBuilder):
    """The values emitted so far, with constants folded and algebraic identities applied."""

    def __init__(self) -> None:
        self.count = 0
        # The first of the values that were emitted together, of one opcode, none an operand of another; and by whom:
        # 0 for a function itself, 1 for its derivative, 2 for the derivative of that (`Tangents`).
        self.starts: list[tuple[int, int]] = []
        self.order = 0
        self._op = np.empty(1024, np.int16)
        self._args = np.empty((1024, _ARITY), np.int32)
        self._value = np.empty(1024)  # of constants; NaN for the rest
        self._is_constant: np.ndarray = np.zeros(1024, bool)
        self._constants: dict[float, int] = {}  # the ids of the constants so far
        self.cache: dict[Hashable, Any] = {}  # results that lowering rules share between equations
        self.is_transposable = True  # False once something is emitted whose transpose is another than its operations'
        self.arrays: list[ValueIds] = []  # the inputs
        self.constant_tables: list[np.ndarray] = []  # tables of constants, which are appended to the inputs
        self.tables: dict[Table, int] = {}  # with the leaf that represents each table as an operand
        for value_id, value in ((ZERO, 0.0), (ONE, 1.0), (MINUS_ONE, -1.0)):
            assert self.constant(value) == value_id

    @property
    def op(self) -> np.ndarray:
        """The opcode of each value."""
        return self._op[: self.count]

    @property
    def args(self) -> ValueIds:
        """The ids of each value's operands, −1 where there are fewer than three: shape `(values, 3)`."""
        return self._args[: self.count]

    @property
    def value(self) -> np.ndarray:
        """The numbers of constants, NaN for all other values."""
        return self._value[: self.count]

    @property
    def is_constant(self) -> np.ndarray:
        """A mask of the values that are constants."""
        return self._is_constant[: self.count]

    # --- leaves -----------------------------------------------------------------------------------------

    def inputs(self, shape: tuple[int, ...]) -> ValueIds:
        """New values for an array that is an input at run time."""
        self.arrays.append(self._leaves(int(np.prod(shape, dtype=int))).reshape(shape))
        return self.arrays[-1]

    def reorder(self, inputs: Sequence[int]) -> None:
        """Put the inputs into another order; tables of constants stay behind them."""
        places = [*inputs, *range(len(inputs), len(self.arrays))]
        self.arrays = [self.arrays[k] for k in places]
        self.tables = {x._replace(input=places.index(x.input)): leaf for x, leaf in self.tables.items()}

    def _leaves(self, count: int) -> ValueIds:
        return self._append(INPUT, np.full((count, _ARITY), -1, np.int32))

    def constant(self, value: float) -> int:
        """The value id of a number."""
        number = float(value) + 0.0  # minus zero is zero
        if number not in self._constants:
            self._new_constants([number])
        return self._constants[number]

    def constants(self, array: ArrayLike) -> ValueIds:
        """The value ids of an array of numbers; equal numbers share one id."""
        numbers = np.asarray(array)
        if numbers.size == 1:
            return np.full(numbers.shape, self.constant(numbers.item()), np.int32)
        if numbers.size <= _FEW:
            return np.array([self.constant(x) for x in numbers.reshape(-1).tolist()], np.int32).reshape(numbers.shape)
        distinct, inverse = np.unique(numbers.astype(float) + 0.0, return_inverse=True)
        keys = distinct.tolist()
        if new := [key for key in keys if key not in self._constants]:
            self._new_constants(new)
        ids = np.array([self._constants[key] for key in keys], np.int32)
        return ids[inverse].reshape(numbers.shape)

    def _new_constants(self, numbers: list[float]) -> None:
        ids = self._leaves(len(numbers))
        self._value[ids], self._is_constant[ids] = numbers, True
        self._constants |= zip(numbers, ids.tolist(), strict=True)

    def values(self, array: ArrayLike, dtype: DTypeLike) -> np.ndarray | None:
        """The numbers of constants; None if any of the values is not a constant."""
        ids = np.asarray(array)
        return np.asarray(self._value[ids], dtype=dtype) if self._is_constant[ids].all() else None

    # --- operations -------------------------------------------------------------------------------------

    def apply(self, name: str, *operands: object) -> ValueIds:
        if name in _SWAPPED:
            name, operands = _SWAPPED[name], operands[::-1]
        arrays = [np.asarray(x, np.int32) for x in operands]
        if any(x.shape != arrays[0].shape for x in arrays):
            arrays = np.broadcast_arrays(*arrays)
        return self._fold_or_emit(name, [x.reshape(-1) for x in arrays]).reshape(arrays[0].shape)

    def _fold_or_emit(self, name: str, operands: list[ValueIds]) -> ValueIds:
        """Fold constants and identities, and emit what remains."""
        if not len(operands[0]):
            return operands[0]
        constant = self._is_constant[operands[0]]
        for x in operands[1:]:
            constant = constant & self._is_constant[x]
        is_any_constant = constant.any()
        identities = [(where, ids) for where, ids in self._identities(name, *operands) if where.any()]
        if not is_any_constant and not identities:
            return self._emit(name, operands)
        result = np.full(len(operands[0]), -1, np.int32)
        if is_any_constant:
            with np.errstate(all="ignore"):
                numbers = EVALUATE[name](*(self._value[x[constant]] for x in operands))
            result[constant] = self.constants(numbers)
        for where, ids in identities:
            where = where & (result < 0)
            result[where] = ids[where] if ids.ndim else ids
        left = result < 0
        if left.any():
            result[left] = self._emit(name, [x[left] for x in operands])
        return result

    def _emit(self, name: str, operands: list[ValueIds]) -> ValueIds:
        """Emit operations. The negated last operands of sums, differences and negations are absorbed.

        `a + (−b) = a − b`, `a − (−b) = a + b`, `−(−a) = a`.
        """
        last = operands[-1]
        if name not in _ABSORBING or not (negated := self._op[last] == NUMBER["neg"]).any():
            return self._append_operation(name, operands)
        result, inner = np.empty(len(last), np.int32), np.where(negated, self._args[last, 0], last)
        if name == "neg":
            result[negated] = inner[negated]
            if not negated.all():
                result[~negated] = self._append_operation(name, [last[~negated]])
            return result
        for where, other in ((negated, _ABSORBING[name]), (~negated, name)):
            if where.any():
                result[where] = self._fold_or_emit(other, [operands[0][where], inner[where]])
        return result

    def _identities(self, name: str, a: ValueIds, *more: ValueIds) -> list[tuple[np.ndarray, ValueIds]]:
        """The algebraic identities of an operation: a mask of where each holds, and the value that is the result."""
        zero = np.asarray(ZERO)
        b = more[0] if more else a
        if name in _OF_ZERO_AND_ONE and min(a.min(), b.min()) > MINUS_ONE:
            return []
        if name == "mul":
            identities = [((a == ZERO) | (b == ZERO), zero), (a == ONE, b), (b == ONE, a)]
            minus = ((a == MINUS_ONE) | (b == MINUS_ONE)) & (a != ZERO) & (b != ZERO)
            if minus.any():
                identities.append((minus, self._negated_where(minus, np.where(a == MINUS_ONE, b, a))))
            return identities
        if name == "add":
            return [(a == ZERO, b), (b == ZERO, a)]
        if name == "sub":
            identities = [(b == ZERO, a), (a == b, zero)]
            minus = (a == ZERO) & (b != ZERO)
            return [*identities, (minus, self._negated_where(minus, b))] if minus.any() else identities
        if name == "div":
            return [(a == ZERO, zero), (b == ONE, a)]
        if name in ("max", "min"):
            bound = -np.inf if name == "max" else np.inf  # the neutral element, with which a reduction starts
            return [(a == b, a), (self._value[a] == bound, b), (self._value[b] == bound, a)]
        if name == "select":
            yes, no = more
            is_constant, holds = self._is_constant[a], self._value[a] != 0
            return [(is_constant & holds, yes), (is_constant & ~holds, no), (yes == no, yes)]
        if name == "and":
            return [
                ((a == ZERO) | (b == ZERO), zero),
                (self._is_constant[a], b),
                (self._is_constant[b], a),
                (a == b, a),
            ]
        if name == "or":
            return [(a == ZERO, b), (b == ZERO, a), (a == b, a)]
        return []

    def _negated_where(self, where: np.ndarray, ids: ValueIds) -> ValueIds:
        """The negatives of the values where the mask is true, −1 elsewhere."""
        result = np.full(len(ids), -1, np.int32)
        result[where] = self._fold_or_emit("neg", [ids[where]])
        return result

    def _append_operation(self, name: str, operands: list[ValueIds]) -> ValueIds:
        args = np.full((len(operands[0]), _ARITY), -1, np.int32)
        for k, ids in enumerate(operands):
            args[:, k] = ids
        return self._append(NUMBER[name], args)

    def _append(self, op: int, args: ValueIds) -> ValueIds:
        first, self.count = self.count, self.count + len(args)
        if len(args):
            self.starts.append((first, self.order))
        while self.count > len(self._op):
            self._op, self._args, self._value, self._is_constant = (
                np.concatenate([x, np.zeros_like(x)]) for x in (self._op, self._args, self._value, self._is_constant)
            )
        here = slice(first, self.count)
        self._op[here], self._args[here] = op, args
        self._value[here], self._is_constant[here] = np.nan, False
        return np.arange(first, self.count, dtype=np.int32)

    def copies(self, ids: ValueIds) -> ValueIds:
        """Values of their own that are equal to others, and of which nothing else is known."""
        args = np.full((ids.size, _ARITY), -1, np.int32)
        args[:, 0] = ids.reshape(-1)
        return self._append(COPY, args).reshape(ids.shape)

    # --- tables -----------------------------------------------------------------------------------------

    def gather(self, ids: ValueIds, index: ValueIds) -> ValueIds | None:
        """Emit a gather: the one of the values at a run-time index, which the virtual machine reads from a table.

        None if the values are neither constants nor evenly spaced elements of one input. No inputs may be added after
        the first call.
        """
        table = self._table_of_constants(ids) if self._is_constant[ids].all() else self._table_of_inputs(ids)
        if table is None:
            return None
        if table not in self.tables:
            self.tables[table] = int(self._leaves(1)[0])
        return self._append_operation(GATHER, [np.reshape(index, 1), np.array([self.tables[table]])])[0]

    def _table_of_constants(self, ids: ValueIds) -> Table:
        numbers = self._value[ids]
        key = GATHER, numbers.tobytes()
        if key not in self.cache:
            self.cache[key] = Table(len(self.arrays), 0, 1, len(numbers))
            self.constant_tables.append(numbers)
            self.inputs(numbers.shape)
        return self.cache[key]

    def _table_of_inputs(self, ids: ValueIds) -> Table | None:
        first, last, stride = int(ids[0]), int(ids[-1]), int(ids[1]) - int(ids[0])
        for number, array in enumerate(self.arrays):
            begin = int(array.flat[0]) if array.size else self.count
            if begin <= min(first, last) and max(first, last) < begin + array.size:
                is_even = (np.diff(ids) == stride).all()
                return Table(number, first - begin, stride, len(ids)) if is_even else None
        return None

    # --- reductions -------------------------------------------------------------------------------------------

    def sum_into(self, ids: ValueIds, places: np.ndarray, size: int) -> ValueIds:
        """Segment sums `(size,)`: `places` is the segment of each value.

        Terms are added pairwise, in a tree of logarithmic depth, so that the critical path stays short.
        """
        ids, places = ids.reshape(-1), places.reshape(-1)
        counts = ids != ZERO
        ids, places = ids[counts], places[counts]
        order = np.argsort(places, kind="stable")
        ids, places = ids[order], places[order]
        rank = np.arange(len(places)) - np.searchsorted(places, places)
        while len(second := np.flatnonzero(rank & 1)):
            ids[second - 1] = self.apply("add", ids[second - 1], ids[second])
            keep = rank & 1 == 0
            ids, places, rank = ids[keep], places[keep], rank[keep] // 2
        result = np.full(size, ZERO, np.int32)
        result[places] = ids
        return result

    def reduce(self, name: str, x: ValueIds, start: float) -> ValueIds:
        """Reduce the last axis by an associative operation, pairwise."""
        size = int(np.prod(x.shape[:-1], dtype=int))
        if name == "add":
            return self.sum_into(x, np.repeat(np.arange(size), x.shape[-1]), size).reshape(x.shape[:-1])
        if x.shape[-1] == 0:
            return np.full(x.shape[:-1], self.constant(start), np.int32)
        while x.shape[-1] > 1:
            half = x.shape[-1] // 2
            pairs = self.apply(name, x[..., :half], x[..., half : 2 * half])
            x = np.concatenate([pairs, x[..., 2 * half :]], axis=-1)
        return x[..., 0]

    def contract(self, left: ValueIds, right: ValueIds) -> ValueIds:
        """The products of matrices; structurally zero products are left out."""
        first, second, places = _product_pairs(left, right)
        shape = (*left.shape[:2], right.shape[1])
        return self.sum_into(self.apply("mul", first, second), places, int(np.prod(shape, dtype=int))).reshape(shape)

    def power(self, x: ValueIds, exponent: int) -> ValueIds:
        """An integer power, by repeated squaring."""
        remaining, result, square = abs(exponent), np.full(x.shape, ONE, np.int32), x
        while remaining:
            if remaining % 2:
                result = self.apply("mul", result, square)
            remaining //= 2
            square = self.apply("mul", square, square) if remaining else square
        return result if exponent >= 0 else self.apply("div", ONE, result)


def _product_pairs(left: ValueIds, right: ValueIds) -> tuple[ValueIds, ValueIds, np.ndarray]:
    """The structurally nonzero products in `left (batch, n, k)` times the transpose of `right (batch, m, k)`.

    Returns the value ids of both factors, and the flat index of each product in the result `(batch, n, m)`.
    """
    (_, n, k), m = left.shape, right.shape[1]
    at_left, at_right = (np.argwhere(x.transpose(0, 2, 1) != ZERO) for x in (left, right))
    first, second = _matching_pairs(at_left[:, 0] * k + at_left[:, 1], at_right[:, 0] * k + at_right[:, 1])
    batch, inner, i = at_left[first].T
    j = at_right[second, 2]
    return left[batch, i, inner], right[batch, j, inner], (batch * n + i) * m + j


def _matching_pairs(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of positions at which two sorted arrays have equal elements: an inner join."""
    starts = np.searchsorted(right, left)
    counts = np.searchsorted(right, left, "right") - starts
    first = np.repeat(np.arange(len(left)), counts)
    within = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    return first, starts[first] + within
