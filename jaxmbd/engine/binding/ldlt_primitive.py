"""Symmetric systems `S x = b` of known sparsity, solved by `S = L D Lᵀ` with a pivot order that limits fill-in.

For JAX these are two primitives, which factor and solve. In a program the elimination is emitted as scalar operations;
structural zeros cost nothing. XLA does the same with arrays, one level of the symbolic factorisation at a time, where
matrices are large and sparse; for others it uses LAPACK's (or the GPU's) Cholesky factorisation of the dense matrix.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import added_at_rows, put_at_rows
from jaxmbd.engine import choice
from jaxmbd.engine.program.equation import Equation, Rule
from jaxmbd.engine.program.ssa_builder import ONE, ZERO, SSABuilder, ValueIds
from jaxmbd.engine.program.symbolic_ldlt import Pattern, SymbolicLDLT, symbolic_ldlt
from jaxmbd.upstream.jax_internals import BatchedAxes, Primitive, ShapedArray, aval_of, batching, mlir

Entries = TypeVar("Entries", Array, ValueIds)


class Arithmetic(Protocol[Entries]):
    """What an elimination asks of the arithmetic on the entries of a matrix."""

    def inverse(self, x: Entries) -> Entries: ...
    def times(self, x: Entries, y: Entries) -> Entries: ...
    def put(self, x: Entries, places: np.ndarray, values: Entries) -> Entries: ...
    def minus(self, x: Entries, places: np.ndarray, values: Entries) -> Entries: ...


class XLAArithmetic:
    """The arithmetic of an elimination on arrays of numbers, for XLA."""

    def inverse(self, x: Array) -> Array:
        """`1 / x`."""
        return 1 / x

    def times(self, x: Array, y: Array) -> Array:
        """`x y`, elementwise."""
        return x * y

    def put(self, x: Array, places: np.ndarray, values: Array) -> Array:
        """`x` with the entries at `places` replaced by `values`."""
        return put_at_rows(x, places, values)

    def minus(self, x: Array, places: np.ndarray, values: Array) -> Array:
        """`x` with `values` subtracted at `places`, which may repeat."""
        # As gathers instead of a scatter, XLA's fusion over levels would compute each sum many times.
        return added_at_rows(x, places, -values)


class SSAArithmetic:
    """The arithmetic of an elimination on value ids: the operations are emitted to an SSA builder."""

    def __init__(self, builder: SSABuilder) -> None:
        self.builder = builder

    def inverse(self, x: ValueIds) -> ValueIds:
        return self.builder.apply("div", ONE, x)

    def times(self, x: ValueIds, y: ValueIds) -> ValueIds:
        return self.builder.apply("mul", x, y)

    def put(self, x: ValueIds, places: np.ndarray, values: ValueIds) -> ValueIds:
        x = x.copy()
        x[places] = values
        return x

    def minus(self, x: ValueIds, places: np.ndarray, values: ValueIds) -> ValueIds:
        touched, at = np.unique(places, return_inverse=True)
        width = int(np.prod(x.shape[1:], dtype=int))
        total = self.builder.sum_into(values, at.reshape(-1, 1) * width + np.arange(width), len(touched) * width)
        return self.put(x, touched, self.builder.apply("sub", x[touched], total.reshape(len(touched), *x.shape[1:])))


def eliminate(x: Entries, symbolic: SymbolicLDLT, by: Arithmetic[Entries]) -> Entries:
    """Factor: from the stored entries of `S` those of `L`, with `D⁻¹` on the diagonal; `by`: one of the arithmetics."""
    for level in symbolic.levels:
        old, inverse = x[level.below], by.inverse(x[level.pivots])
        L = by.times(old, inverse[level.at])
        x = by.minus(x, level.target, by.times(L[level.first], old[level.second]))
        x = by.put(by.put(x, level.pivots, inverse), level.below, L)
    return x


def substitute(x: Entries, b: Entries, symbolic: SymbolicLDLT, by: Arithmetic[Entries]) -> Entries:
    """`S⁻¹ b` for `b (n, k)`, by forward and backward substitution with the result of `eliminate`."""
    for level in symbolic.levels:
        b = by.minus(b, level.rows, by.times(x[level.below][:, None], b[level.columns]))
    for level in reversed(symbolic.levels):
        b = by.put(b, level.pivots, by.times(b[level.pivots], x[level.pivots][:, None]))
        b = by.minus(b, level.columns, by.times(x[level.below][:, None], b[level.rows]))
    return b


# --- primitives -------------------------------------------------------------------------------------------

factor_p = Primitive("symmetric_factor")
solve_p = Primitive("symmetric_solve")


def dense(values: Float[Array, " entries"], pattern: Pattern) -> Float[Array, "n n"]:
    """The dense symmetric matrix from the entries of its lower triangle."""
    places = np.full((pattern.n, pattern.n), len(values))
    places[pattern.rows, pattern.columns] = places[pattern.columns, pattern.rows] = np.arange(len(values))
    return jnp.append(values, 0.0)[places]


def _is_dense(pattern: Pattern) -> bool:
    counts = (lambda: len(pattern.rows), lambda: symbolic_ldlt(pattern).n_entries)  # the second one takes longer
    return any(choice.is_dense(pattern.n, count()) for count in counts)


def _factor(values: Array, *, pattern: Pattern) -> Array:
    """The factor that `_solve` takes.

    It is the stored entries of `L` and `D⁻¹` for large sparse matrices, the Cholesky factor for dense ones, and the
    matrix itself for those so small that the solve is unrolled.
    """
    if not _is_dense(pattern):
        symbolic = symbolic_ldlt(pattern)
        by = XLAArithmetic()
        return eliminate(by.put(jnp.zeros(symbolic.n_entries, values.dtype), symbolic.positions, values), symbolic, by)
    # A few rows are written out: a call of LAPACK costs more than its work, and a batch of them one call for each.
    matrix = dense(values, pattern)
    return matrix if pattern.n <= choice.UNROLLED_ROWS else jnp.linalg.cholesky(matrix)


def _solve(values: Array, factor: Array, b: Array, *, pattern: Pattern) -> Array:
    if not _is_dense(pattern):
        return substitute(factor, b, symbolic_ldlt(pattern), XLAArithmetic())
    return _unrolled(factor, b) if pattern.n <= choice.UNROLLED_ROWS else jax.scipy.linalg.cho_solve((factor, True), b)


def _unrolled(S: Array, b: Array) -> Array:
    """`S⁻¹ b` by an unrolled factorisation `S = L D Lᵀ`."""
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


def _factor_type(values: ShapedArray, *, pattern: Pattern) -> ShapedArray:
    return values.update(shape=_factor_shape(pattern))


def _factor_shape(pattern: Pattern) -> tuple[int, ...]:
    return (pattern.n, pattern.n) if _is_dense(pattern) else (symbolic_ldlt(pattern).n_entries,)


def _solve_type(values: ShapedArray, factor: ShapedArray, b: ShapedArray, *, pattern: Pattern) -> ShapedArray:
    return b


def _batched_factor(operands: Sequence[Array], axes: BatchedAxes, *, pattern: Pattern) -> tuple[Array, int]:
    return jax.vmap(lambda values: _factor(values, pattern=pattern), axes)(*operands), 0


def _batched_solve(operands: Sequence[Array], axes: Any, *, pattern: Pattern) -> tuple[Array, int]:
    values, factor, b = operands
    if axes[0] is None and axes[1] is None:  # one matrix: the batch becomes columns of `b`
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


def _lower_factor(equation: Equation, values: ValueIds) -> ValueIds:
    """A placeholder: the first solve emits the elimination, which all solves then share."""
    return np.broadcast_to(np.int32(ZERO), _factor_shape(equation.params["pattern"]))


def _lower_solve(equation: Equation, values: ValueIds, _: ValueIds, b: ValueIds) -> ValueIds:
    by, pattern, cache = SSAArithmetic(equation.builder), equation.params["pattern"], equation.builder.cache
    key = ("elimination", values.tobytes(), pattern)
    if key not in cache:
        nonzero = values != ZERO
        symbolic = symbolic_ldlt(Pattern(pattern.n, pattern.rows[nonzero], pattern.columns[nonzero]))
        entries = by.put(np.full(symbolic.n_entries, ZERO, np.int32), symbolic.positions, values[nonzero])
        cache[key] = eliminate(entries, symbolic, by), symbolic
    factor, symbolic = cache[key]
    return substitute(factor, b, symbolic, by)


def _traced_rule(function: Callable[..., Array]) -> Rule:
    """The rule for expression graphs: trace the function that XLA runs."""

    def rule(equation: Equation, *operands: np.ndarray) -> list[np.ndarray]:
        types = [*map(aval_of, equation.source.invars)]
        return equation.interpret(jax.make_jaxpr(partial(function, **equation.params))(*types), list(operands))

    return rule


RULES: dict[str, Rule] = {"symmetric_factor": _lower_factor, "symmetric_solve": _lower_solve}
FORMULAS: dict[str, Rule] = {"symmetric_factor": _traced_rule(_factor), "symmetric_solve": _traced_rule(_solve)}
