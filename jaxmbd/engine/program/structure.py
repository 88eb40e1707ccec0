"""Rules for structural primitives, which rearrange elements without changing them."""

import itertools

import numpy as np

from jaxmbd.engine.program.equation import Arrays, Equation, Rule, array


def _identity(equation: Equation, *operands: np.ndarray) -> Arrays:
    return list(operands)


def _iota(equation: Equation) -> np.ndarray:
    """The index along an axis, as an array."""
    shape, axis = equation.params["shape"], equation.params["dimension"]
    index = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(equation.builder.constants(index), shape)


def _broadcast(equation: Equation, x: np.ndarray) -> np.ndarray:
    shape = [1] * len(equation.params["shape"])
    for size, axis in zip(x.shape, equation.params["broadcast_dimensions"], strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), equation.params["shape"])


def _slice(equation: Equation, x: np.ndarray) -> np.ndarray:
    starts, limits = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or (1,) * x.ndim
    return x[tuple(itertools.starmap(slice, zip(starts, limits, strides, strict=True)))]


def _unstack(equation: Equation, x: np.ndarray) -> Arrays:
    return [array(part) for part in np.moveaxis(x, equation.params["axis"], 0)]


def _split(equation: Equation, x: np.ndarray) -> Arrays:
    ends = np.cumsum(np.asarray(equation.params["sizes"], dtype=int))
    return np.split(x, ends[:-1], axis=equation.params["axis"])


def _pad(equation: Equation, x: np.ndarray, value: np.ndarray) -> np.ndarray:
    config = equation.params["padding_config"]
    spread = [(size - 1) * (gap + 1) + 1 if size else 0 for size, (_, _, gap) in zip(x.shape, config, strict=True)]
    # Padding may be negative: positive padding is added first, and the result is then cut.
    wide = [max(low, 0) + size + max(high, 0) for size, (low, high, _) in zip(spread, config, strict=True)]
    padded = np.full(wide, value.item(), dtype=x.dtype)
    inner = tuple(slice(max(low, 0), max(low, 0) + n, gap + 1) for n, (low, _, gap) in zip(spread, config, strict=True))
    padded[inner] = x
    keep = tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high, _) in zip(wide, config, strict=True))
    return padded[keep]


_IDENTITIES = (
    *("copy", "copy_p", "stop_gradient", "optimization_barrier", "name", "reduce_precision"),
    *("pvary", "reshard", "sharding_constraint", "layout_constraint"),
)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_IDENTITIES, _identity),
    "iota": _iota,
    "reshape": lambda equation, x: x.reshape(equation.params["new_sizes"]),
    "transpose": lambda equation, x: x.transpose(equation.params["permutation"]),
    "squeeze": lambda equation, x: np.squeeze(x, axis=tuple(equation.params["dimensions"])),
    "expand_dims": lambda equation, x: np.expand_dims(x, tuple(equation.params["dimensions"])),
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "rev": lambda equation, x: np.flip(x, equation.params["dimensions"]),
    "concatenate": lambda equation, *x: np.concatenate(x, axis=equation.params["dimension"]),
    "stack": lambda equation, *x: np.stack(x, axis=equation.params["axis"]),
    "unstack": _unstack,
    "split": _split,
    "tile": lambda equation, x: np.tile(x, equation.params["reps"]),
    "pad": _pad,
}
