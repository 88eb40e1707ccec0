"""Rules for structural primitives, which rearrange elements without changing them."""

import numpy as np

from jaxmbd.engine.program.equation import Arrays, Equation, Operation, Rule
from jaxmbd.engine.program.shapes import SHAPES
from jaxmbd.upstream.primitives import PRIMITIVES


def _rearranged(function: Operation) -> Rule:
    def rule(equation: Equation, *x: np.ndarray) -> np.ndarray | Arrays:
        return function(*x, **{name: equation.params[name] for name in PRIMITIVES[equation.name]})

    return rule


def _identity(equation: Equation, *operands: np.ndarray) -> Arrays:
    return list(operands)


def _reduced_precision(equation: Equation, x: np.ndarray) -> np.ndarray | Arrays:
    """The numbers themselves, if nothing is taken from them."""
    exponent, mantissa = equation.params["exponent_bits"], equation.params["mantissa_bits"]
    # A program has one precision: what really loses digits is left to XLA, unless it is a constant.
    has = np.finfo(equation.dtype)
    return x if exponent >= has.nexp and mantissa >= has.nmant else equation.evaluate(x)


def _iota(equation: Equation) -> np.ndarray:
    """The index along an axis, as an array."""
    shape, axis = equation.params["shape"], equation.params["dimension"]
    index = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return np.broadcast_to(equation.builder.constants(index), shape)


_IDENTITIES = (
    *("copy", "stop_gradient", "optimization_barrier", "name", "pvary"),
    *("reshard", "sharding_constraint", "layout_constraint"),
)

RULES: dict[str, Rule] = {
    **dict.fromkeys(_IDENTITIES, _identity),
    **{name: _rearranged(function) for name, function in SHAPES.items()},
    "reduce_precision": _reduced_precision,
    "iota": _iota,
}
