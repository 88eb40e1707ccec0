"""Rules for primitives with inner jaxprs: calls, branches and loops, which are inlined and unrolled."""

import numpy as np

from jaxmbd.engine import choice
from jaxmbd.engine.program.equation import Arrays, Equation, Rule, array
from jaxmbd.upstream.jax_internals import aval_of, called, expansion, linear_solve_operands, scan_counts
from jaxmbd.upstream.primitives import CALLS


def _call(equation: Equation, *operands: np.ndarray) -> Arrays:
    return equation.interpret(called(equation.name, equation.params), list(operands))


def _expand(equation: Equation, *operands: np.ndarray) -> Arrays:
    """A composite primitive, expanded to the primitives that define it; `searchsorted` is one since jax 0.12."""
    return equation.interpret(expansion(equation.params, [*map(aval_of, equation.source.invars)]), list(operands))


def _cond(equation: Equation, index: np.ndarray, *operands: np.ndarray) -> Arrays:
    """For a constant index that branch; else all branches, with selects between their results."""
    branches, build = equation.params["branches"], equation.builder
    constant = build.values(index, int)
    if constant is not None:
        return equation.interpret(branches[min(max(int(constant), 0), len(branches) - 1)], list(operands))
    # All branches run, also where they are not taken: operations have no effects, and what they make is not chosen.
    results = equation.interpret(branches[0], list(operands))
    for k, branch in enumerate(branches[1:], start=1):
        condition = build.apply("ge", index, build.constant(k))
        others = equation.interpret(branch, list(operands))
        results = [build.apply("select", condition, yes, no) for yes, no in zip(others, results, strict=True)]
    return results


def _scan(equation: Equation, *operands: np.ndarray) -> Arrays:
    """The loop, unrolled."""
    params = equation.params
    length = params["length"]
    n_consts, n_carry = scan_counts(params)
    # Each lap is written out, so the time to record and the program grow with their number.
    if length > choice.LAPS:
        raise equation.unsupported(f" with {length} laps")
    consts, carry = list(operands[:n_consts]), list(operands[n_consts : n_consts + n_carry])
    sequences = operands[n_consts + n_carry :]
    output_shapes = [aval_of(var).shape for var in equation.source.outvars[n_carry:]]
    order = range(length)[::-1] if params["reverse"] else range(length)
    outputs: list[Arrays] = []
    for k in order:
        results = equation.interpret(params["jaxpr"], consts + carry + [array(x[k]) for x in sequences])
        carry = results[:n_carry]
        outputs.append(results[n_carry:])
    if not length:
        return carry + [equation.builder.constants(np.zeros(shape)) for shape in output_shapes]
    in_order = [outputs[order.index(k)] for k in range(length)]
    return carry + [np.stack(values) for values in zip(*in_order, strict=True)]


def _while(equation: Equation, *operands: np.ndarray) -> Arrays:
    """The loop, unrolled; its condition must be a constant in every iteration."""
    params = equation.params
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = list(operands[:n_cond]), list(operands[n_cond : n_cond + n_body])
    carry = list(operands[n_cond + n_body :])
    for _ in range(choice.LAPS):
        (condition,) = equation.interpret(params["cond_jaxpr"], cond_consts + carry)
        constant = equation.builder.values(condition, bool)
        if constant is None:
            raise equation.unsupported(" with an end that depends on the inputs")
        if not constant:
            return carry
        carry = equation.interpret(params["body_jaxpr"], body_consts + carry)
    raise equation.unsupported(f" with more than {choice.LAPS} laps")


def note_transpose(equation: Equation) -> None:
    """Note a solve with the identity: so JAX gives a function a transpose of its own, which its operations do not have
    (`invalidated`). That of any other solve is the transpose of its operations."""
    if not equation.params["jaxprs"].matvec.eqns:
        equation.builder.is_transposable = False


def linear_solve(equation: Equation, *operands: np.ndarray) -> Arrays:
    """`custom_linear_solve`: the jaxpr of the solve alone; those for its derivatives are not needed."""
    solve, constants, first = linear_solve_operands(equation.params)
    return equation.interpret(solve, list(operands[constants] + operands[first:]))


RULES: dict[str, Rule] = {
    **dict.fromkeys(CALLS, _call),
    "call_hi_primitive": _expand,
    "cond": _cond,
    "scan": _scan,
    "while": _while,
    "custom_linear_solve": linear_solve,
}
