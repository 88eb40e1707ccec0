"""The primitives of JAX as functions of NumPy arrays, with the conventions of XLA.

`FUNCTIONS` are called with the arrays and, as keywords, with the parameters of the equation that `PRIMITIVES` names
(`upstream/primitives.py`), unless the translation has a rule. Arrays without axes may be NumPy's scalars, which its
functions return in place of them.
"""

from collections.abc import Callable, Sequence

import numpy as np
import scipy

from jaxmbd.engine.numpy_code.matrices import MATRIX_FUNCTIONS
from jaxmbd.engine.numpy_code.windows import gather, scatter
from jaxmbd.engine.program.arithmetic import REAL
from jaxmbd.engine.program.equation import Operation
from jaxmbd.engine.program.opcodes import EVALUATE
from jaxmbd.engine.program.shapes import SHAPES
from jaxmbd.upstream.primitives import SCATTERS


def _round(x: np.ndarray, *, rounding_method: str) -> np.ndarray:
    if rounding_method == "TO_NEAREST_EVEN":
        return np.rint(x)
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), np.copysign(whole, x)).astype(x.dtype)


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """`x / y`; integers are truncated, and divided by zero they give -1."""
    if x.dtype.kind in "fc":
        return np.divide(x, y)
    divisor = np.where(y == 0, np.ones_like(y), y)
    quotient = np.floor_divide(x, divisor)
    inexact = (quotient * divisor != x) & ((x < 0) != (divisor < 0))
    return np.where(y == 0, np.array(-1).astype(x.dtype), quotient + inexact.astype(x.dtype))


def _remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, np.ones_like(y), y)))


def _integer_power(x: np.ndarray, *, y: int) -> np.ndarray:
    count, result, factor = abs(y), None, x
    while count:
        if count & 1:
            result = factor if result is None else result * factor
        count >>= 1
        factor = factor * factor if count else factor
    result = np.ones_like(x) if result is None else result
    return np.divide(np.ones((), x.dtype), result) if y < 0 else result


def _polynomial(x: np.ndarray, *coefficients: np.ndarray) -> np.ndarray:
    """Horner's rule; the coefficient of the lowest power comes first."""
    *lower, result = coefficients
    for c in reversed(lower):
        result = result * x + c
    return result


def _select(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if which.dtype == np.bool_:
        return np.where(which, cases[-1], cases[0])
    result = cases[0]
    for k, case in enumerate(cases[1:], 1):
        result = np.where(which >= k, case, result)
    return result


def _convert(x: np.ndarray, *, new_dtype: str) -> np.ndarray:
    """Convert to another type; floats beyond the range of integers give the nearest one, NaN gives 0."""
    dtype = np.dtype(new_dtype)
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = np.real(x)
    if x.dtype.kind == "f" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low, high = x <= limits.min, x >= limits.max
        whole = np.where(low | high | np.isnan(x), np.zeros_like(x), x).astype(dtype)
        return np.where(low, np.array(limits.min, dtype), np.where(high, np.array(limits.max, dtype), whole))
    return x.astype(dtype)


def _maximum(x: np.ndarray, *, axes: Sequence[int]) -> np.ndarray:
    return np.max(x, axis=tuple(axes), initial=_limits(x.dtype)[0])


def _minimum(x: np.ndarray, *, axes: Sequence[int]) -> np.ndarray:
    return np.min(x, axis=tuple(axes), initial=_limits(x.dtype)[1])


# Where reductions start: unlike XLA's, NumPy's maximum of no numbers is an error.
def _limits(dtype: np.dtype) -> tuple[float, float]:
    if dtype.kind == "f":
        return dtype.type(-np.inf), dtype.type(np.inf)
    return (False, True) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _bitwise(ufunc: np.ufunc) -> Callable[..., np.ndarray]:
    return lambda x, *, axes: ufunc.reduce(x, axis=tuple(axes)) if axes else x


def _argument(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda x, *, axes, index_dtype: function(x, axis=axes[0]).astype(index_dtype)


def _cumulative(ufunc: np.ufunc) -> Callable[..., np.ndarray]:
    def run(x: np.ndarray, *, axis: int, reverse: bool) -> np.ndarray:
        x = np.flip(x, axis) if reverse else x
        result = ufunc.accumulate(x, axis=axis, dtype=x.dtype)
        return np.flip(result, axis) if reverse else result

    return run


def _window_at(shape: Sequence[int], starts: Sequence[np.ndarray], sizes: Sequence[int]) -> tuple[slice, ...]:
    firsts = [max(0, min(int(i), n - k)) for i, n, k in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(first, first + k) for first, k in zip(firsts, sizes, strict=True))


def _dynamic_slice(x: np.ndarray, *starts: np.ndarray, slice_sizes: Sequence[int]) -> np.ndarray:
    return x[_window_at(x.shape, starts, slice_sizes)]


def _dynamic_update_slice(x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> np.ndarray:
    result = np.array(x)
    result[_window_at(x.shape, starts, update.shape)] = update
    return result


def _iota(*, dtype: str, shape: Sequence[int], dimension: int) -> np.ndarray:
    line = np.arange(shape[dimension]).astype(dtype)
    return np.broadcast_to(line.reshape([-1 if d == dimension else 1 for d in range(len(shape))]), shape)


def _sort(*arrays: np.ndarray, dimension: int, num_keys: int) -> list[np.ndarray]:
    order = np.lexsort(arrays[:num_keys][::-1], axis=dimension)
    return [np.take_along_axis(x, order, dimension) for x in arrays]


def _top_k(x: np.ndarray, *, k: int, index_dtype: str = "int32") -> list[np.ndarray]:
    # Sorted backward and read backward, so that among equals the first comes first, as in XLA.
    order = x.shape[-1] - 1 - np.argsort(x[..., ::-1], axis=-1, kind="stable")
    order = order[..., ::-1][..., :k]
    return [np.take_along_axis(x, order, -1), order.astype(index_dtype)]


def _dot(
    x: np.ndarray, y: np.ndarray, *, contracted: Sequence[Sequence[int]], batched: Sequence[Sequence[int]], dtype: str
) -> np.ndarray:
    """XLA's product of arrays, as one product of (batches of) matrices."""
    x, y = x.astype(dtype, copy=False), y.astype(dtype, copy=False)
    rests = [
        [d for d in range(a.ndim) if d not in c and d not in b]
        for a, c, b in zip((x, y), contracted, batched, strict=True)
    ]
    batch = [x.shape[d] for d in batched[0]]
    count = int(np.prod([x.shape[d] for d in contracted[0]], dtype=int))
    left, right = ([a.shape[d] for d in rest] for a, rest in zip((x, y), rests, strict=True))
    x = x.transpose([*batched[0], *rests[0], *contracted[0]]).reshape((*batch, int(np.prod(left, dtype=int)), count))
    y = y.transpose([*batched[1], *contracted[1], *rests[1]]).reshape((*batch, count, int(np.prod(right, dtype=int))))
    return np.matmul(x, y).reshape((*batch, *left, *right))


def _special(name: str) -> Callable[..., np.ndarray]:
    """A function of `scipy.special`, which is imported when it is called first."""
    return lambda x: getattr(scipy.special, name)(x)


def _shift(
    function: Callable[..., np.ndarray], signed: bool, beyond: Callable[[np.ndarray], np.ndarray]
) -> Callable[..., np.ndarray]:
    """A shift of bits; `beyond(x)`: the result where the number of bits is negative or too large."""

    def call(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        bits = 8 * x.dtype.itemsize
        kind = np.dtype(f"{'i' if signed else 'u'}{x.dtype.itemsize}")
        inside = (y >= 0) & (y < bits)
        shifted = function(np.asarray(x).view(kind), np.where(inside, y, 0).astype(kind)).view(x.dtype)
        return np.where(inside, shifted, beyond(x))

    return call


def _in_total_order(compare: np.ufunc) -> Callable[..., np.ndarray]:
    """A comparison in the total order of floating-point numbers: −NaN, −∞ … −0, 0 … ∞, NaN."""

    def place(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind != "f":
            return x
        bits = np.asarray(x).view(f"i{x.dtype.itemsize}")
        return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)

    return lambda x, y: compare(place(x), place(y))


# --- tables -----------------------------------------------------------------------------------------------

_ELEMENTWISE: dict[str, Operation] = {
    **{name: EVALUATE[name] for name in (*REAL, "neg", "abs", "add", "sub", "mul", "max", "min")},
    "log2": np.log2, "square": np.square, "add_any": np.add,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lt_to": _in_total_order(np.less), "le_to": _in_total_order(np.less_equal), "eq_to": _in_total_order(np.equal),
    "is_finite": np.isfinite, "nextafter": np.nextafter, "real": np.real, "imag": np.imag, "conj": np.conj,
    "erf_inv": _special("erfinv"), "logistic": _special("expit"),
    "lgamma": _special("gammaln"), "digamma": _special("psi"),
    "shift_left": _shift(np.left_shift, False, np.zeros_like),
    "shift_right_logical": _shift(np.right_shift, False, np.zeros_like),
    "shift_right_arithmetic": _shift(np.right_shift, True, lambda x: np.where(x < 0, -1, 0).astype(x.dtype)),
    "rsqrt": lambda x: np.divide(np.ones((), x.dtype), np.sqrt(x)),
    "one_minus_square": lambda x: 1 - x * x, "polynomial": _polynomial,
    "sign": lambda x: np.where(x == 0, x, np.sign(x)), "pow": lambda x, y: np.power(x, y.astype(x.dtype)),
    "div": _divide, "rem": _remainder, "select_n": _select,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "copy": lambda x: x, "stop_gradient": lambda x: x, "optimization_barrier": lambda *x: [*x],
}  # fmt: skip

FUNCTIONS: dict[str, Operation] = {
    **_ELEMENTWISE, **SHAPES, **MATRIX_FUNCTIONS, **{name: scatter(name) for name in SCATTERS},
    "round": _round, "integer_pow": _integer_power, "convert_element_type": _convert,
    "reduce_sum": lambda x, *, axes: np.sum(x, axis=tuple(axes), dtype=x.dtype),
    "reduce_prod": lambda x, *, axes: np.prod(x, axis=tuple(axes), dtype=x.dtype),
    "reduce_max": _maximum, "reduce_min": _minimum,
    "reduce_and": _bitwise(np.bitwise_and), "reduce_or": _bitwise(np.bitwise_or),
    "reduce_xor": _bitwise(np.bitwise_xor),
    "argmax": _argument(np.argmax), "argmin": _argument(np.argmin),
    "cumsum": _cumulative(np.add), "cumprod": _cumulative(np.multiply),
    "cummax": _cumulative(np.maximum), "cummin": _cumulative(np.minimum),
    "dynamic_slice": _dynamic_slice, "dynamic_update_slice": _dynamic_update_slice, "iota": _iota,
    "sort": _sort, "top_k": _top_k, "dot_general": _dot, "gather": gather,
}  # fmt: skip

OF_MATRICES = frozenset(MATRIX_FUNCTIONS)
SEVERAL = frozenset(  # functions that return a list of results
    ("unstack", "split", "sort", "top_k", "optimization_barrier", "lu", "geqrf", "qr", "svd", "eigh", "eig")
)
