"""Symmetric systems `S x = b` with a known sparsity, by elimination: `S = L D Lᵀ`, in an order that keeps `L` sparse.

For JAX these are two primitives, which factor and solve. Where they are run by XLA they are LAPACK's Cholesky
factorisation of the dense matrix. In a program each pivot is eliminated number by number, and those that do not touch
one another in one go; what is structurally zero costs nothing.

Source: minimum degree, Tinney, Walker, Proc. IEEE 55 (1967); George, Liu, SIAM Review 31 (1989).
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jex
from jax.interpreters import batching, mlir
from jaxtyping import Array, Float

from jaxmbd._graph import Step
from jaxmbd._program._recorder import ONE, ZERO, Recorder, Rows

_UNROLLED = 4  # rows up to which XLA's factorisation is written out: a call to LAPACK costs more than its work there


class Pattern:
    """Where a symmetric matrix `(n, n)` has entries: `rows`, `columns`, none of them above the diagonal."""

    def __init__(self, n: int, rows: np.ndarray, columns: np.ndarray) -> None:
        self.n, self.rows, self.columns = n, rows, columns
        self._key = (n, rows.tobytes(), columns.tobytes())

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and self._key == other._key


class Elimination:
    """The elimination of one recorded matrix."""

    def __init__(self, graph: Recorder, values: Rows, pattern: Pattern) -> None:
        self.graph, n = graph, pattern.n
        self._entries: dict[tuple[int, int], int] = {}
        self._diagonal = np.full(n, ZERO, np.int32)
        near: list[set[int]] = [set() for _ in range(n)]
        there = np.flatnonzero(values != ZERO)
        for i, j, row in zip(*(x[there].tolist() for x in (pattern.rows, pattern.columns, values)), strict=True):
            if i == j:
                self._diagonal[i] = row
            else:
                self._entries[i, j] = row
                near[i].add(j)
                near[j].add(i)
        self._levels = [self._eliminate(pivots) for pivots in _levels(near)]

    def _eliminate(self, pivots: list[tuple[int, list[int]]]) -> tuple[np.ndarray, ...]:
        """One level: for each non-zero below the pivots its row, column and value of `L`; and the pivots."""
        graph, entries = self.graph, self._entries
        chosen = np.array([pivot for pivot, _ in pivots], int)
        inverse = graph.apply("div", ONE, self._diagonal[chosen])
        place = {pivot: k for k, (pivot, _) in enumerate(pivots)}
        below = [(i, pivot) for pivot, neighbours in pivots for i in neighbours]
        rows, columns = np.array(below, int).reshape(-1, 2).T
        old = np.array([entries[max(pair), min(pair)] for pair in below], np.int32)
        at = np.array([place[pivot] for _, pivot in below], int)
        L = graph.apply("mul", old, inverse[at])
        self._update(pivots, {pair: k for k, pair in enumerate(below)}, old, L)
        return rows, columns, L, chosen, inverse

    def _update(
        self, pivots: list[tuple[int, list[int]]], index: dict[tuple[int, int], int], old: Rows, L: Rows
    ) -> None:
        """`S_ij − L_ip S_pj` for all neighbours `i`, `j` of pivots `p`; a turn for each that meets an entry again."""
        pairs = [(i, j, p) for p, near in pivots for a, i in enumerate(near) for j in near[: a + 1]]
        if not pairs:
            return
        keys: dict[tuple[int, int], int] = {}
        target = np.array([keys.setdefault((max(i, j), min(i, j)), len(keys)) for i, j, _ in pairs])
        first = np.array([index[i, p] for i, _, p in pairs])
        second = np.array([index[j, p] for _, j, p in pairs])
        products = self.graph.apply("mul", L[first], old[second])
        total = self.graph.sum_into(products, target, len(keys))
        before = [self._diagonal[i] if i == j else self._entries.get((i, j), ZERO) for i, j in keys]
        after = self.graph.apply("sub", np.array(before, np.int32), total)
        for (i, j), row in zip(keys, after.tolist(), strict=True):
            if i == j:
                self._diagonal[i] = row
            else:
                self._entries[i, j] = row

    def solve(self, b: Rows) -> Rows:
        """`S⁻¹ b`, for `b (n, k)`."""
        if not b.size:
            return b
        graph, x = self.graph, b.copy()
        for rows, columns, L, _, _ in self._levels:
            self._subtract(x, rows, graph.apply("mul", L[:, None], x[columns]))
        for rows, columns, L, chosen, inverse in reversed(self._levels):
            x[chosen] = graph.apply("mul", x[chosen], inverse[:, None])
            self._subtract(x, columns, graph.apply("mul", L[:, None], x[rows]))
        return x

    def _subtract(self, x: Rows, targets: np.ndarray, products: Rows) -> None:
        """Takes products `(count, k)` from the rows of `x (n, k)` that are their targets."""
        k = x.shape[1]
        touched, places = np.unique(targets, return_inverse=True)
        total = self.graph.sum_into(products, places.reshape(-1, 1) * k + np.arange(k), len(touched) * k)
        x[touched] = self.graph.apply("sub", x[touched], total.reshape(-1, k))


def _levels(near: list[set[int]]) -> list[list[tuple[int, list[int]]]]:
    """Pivots level by level, each with its neighbours at that time, and none beside another.

    Of a level are those with up to twice the fewest neighbours. With the fewest alone a chain would be eliminated from
    its ends, two at a time; like this it takes as many levels as the logarithm of its length, for half again the work.
    """
    near = [set(neighbours) for neighbours in near]
    left = set(range(len(near)))
    levels = []
    while left:
        order = sorted(left, key=lambda i: (len(near[i]), i))
        least, blocked, level = len(near[order[0]]), set(), []
        for i in order:
            if len(near[i]) > max(2 * least, 1):
                break
            if i not in blocked:
                level.append((i, sorted(near[i])))
                blocked |= near[i]
        for i, neighbours in level:
            left.discard(i)
            for j in neighbours:
                near[j].discard(i)
                near[j].update(k for k in neighbours if k != j)
        levels.append(level)
    return levels


# --- primitives -------------------------------------------------------------------------------------------

factor_p = jex.Primitive("symmetric_factor")
solve_p = jex.Primitive("symmetric_solve")


def dense(values: Float[Array, " entries"], pattern: Pattern) -> Float[Array, "n n"]:
    """The matrix of entries on and below the diagonal."""
    places = np.full((pattern.n, pattern.n), len(values))
    places[pattern.rows, pattern.columns] = places[pattern.columns, pattern.rows] = np.arange(len(values))
    return jnp.append(values, 0.0)[places]


def _factor(values: Array, *, pattern: Pattern) -> Array:
    matrix = dense(values, pattern)
    return matrix if pattern.n <= _UNROLLED else jnp.linalg.cholesky(matrix)


def _solve(values: Array, factor: Array, b: Array, *, pattern: Pattern) -> Array:
    return _unrolled(factor, b) if pattern.n <= _UNROLLED else jax.scipy.linalg.cho_solve((factor, True), b)


def _unrolled(S: Array, b: Array) -> Array:
    """By `S = L D Lᵀ` written out number by number."""
    m = S.shape[0]
    L: dict[tuple[int, int], Array] = {}
    D: list[Array] = []
    for j in range(m):
        D.append(S[j, j] - sum(L[j, k] ** 2 * D[k] for k in range(j)))
        for i in range(j + 1, m):
            L[i, j] = (S[i, j] - sum(L[i, k] * L[j, k] * D[k] for k in range(j))) / D[j]
    x = [b[i] for i in range(m)]
    for i in range(m):
        x[i] = x[i] - sum(L[i, k] * x[k] for k in range(i))
    x = [value / d for value, d in zip(x, D, strict=True)]
    for i in reversed(range(m)):
        x[i] = x[i] - sum(L[k, i] * x[k] for k in range(i + 1, m))
    return jnp.stack(x)


def _factor_type(values: Any, *, pattern: Pattern) -> Any:
    return values.update(shape=(pattern.n, pattern.n))


def _solve_type(values: Any, factor: Any, b: Any, *, pattern: Pattern) -> Any:
    return b


def _batched_factor(operands: Any, axes: Any, *, pattern: Pattern) -> Any:
    return jax.vmap(lambda values: _factor(values, pattern=pattern), axes)(*operands), 0


def _batched_solve(operands: Any, axes: Any, *, pattern: Pattern) -> Any:
    values, factor, b = operands
    if axes[0] is None and axes[1] is None:  # more columns
        b = jnp.moveaxis(b, axes[2], 1)
        columns = solve_p.bind(values, factor, b.reshape(b.shape[0], -1), pattern=pattern)
        return columns.reshape(b.shape), 1
    return jax.vmap(lambda *x: _solve(*x, pattern=pattern), axes)(values, factor, b), 0


for _primitive, _function, _type, _batched in (
    (factor_p, _factor, _factor_type, _batched_factor),
    (solve_p, _solve, _solve_type, _batched_solve),
):
    _primitive.def_impl(jax.jit(_function, static_argnames="pattern"))
    _primitive.def_abstract_eval(_type)
    mlir.register_lowering(_primitive, mlir.lower_fun(_function, multiple_results=False))
    batching.primitive_batchers[_primitive] = _batched


def _record_factor(step: Step, values: Rows) -> Rows:
    """Nothing yet: the elimination is recorded by the first solve, and shared by all."""
    return np.broadcast_to(np.int32(ZERO), (step.params["pattern"].n,) * 2)


def _record_solve(step: Step, values: Rows, _: Rows, b: Rows) -> Rows:
    graph, pattern = step.graph, step.params["pattern"]
    key = ("elimination", values.tobytes(), pattern)
    if key not in graph.cache:
        graph.cache[key] = Elimination(graph, values, pattern)
    return graph.cache[key].solve(b)


def _written(function: Any) -> Any:
    """The rule for formulas: what XLA runs, number by number."""

    def rule(step: Step, *operands: Any) -> Any:
        types = [var.aval for var in step.equation.invars]
        return step.walk(jax.make_jaxpr(partial(function, **step.params))(*types), list(operands))

    return rule


RULES = {"symmetric_factor": _record_factor, "symmetric_solve": _record_solve}
FORMULAS = {"symmetric_factor": _written(_factor), "symmetric_solve": _written(_solve)}
