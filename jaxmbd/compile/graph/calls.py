"""Rules for primitives with inner jaxprs: calls, branches and loops, which are inlined and unrolled."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxmbd.compile.graph import choice
from jaxmbd.compile.graph.elementwise import elementwise
from jaxmbd.compile.graph.step import Arrays, Step, array
from jaxmbd.compile.jax_internals import expansion, linear_solve_operands, scan_counts

_LAPS = 10_000  # the largest number of iterations that are unrolled


def _call(step: Step, *operands: np.ndarray) -> Arrays:
    inner = step.params.get("jaxpr") or step.params.get("call_jaxpr") or step.params.get("fun_jaxpr")
    return step.walk(inner, list(operands))


def _expand(step: Step, *operands: np.ndarray) -> Arrays:
    """A composite primitive, expanded to the primitives that define it; `searchsorted` is one since jax 0.12."""
    return step.walk(expansion(step.params, [var.aval for var in step.equation.invars]), list(operands))


def branching(at_least: Callable[..., Any], select: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for `cond`: for a constant index that branch; else all branches, with selects between their results.

    `at_least(graph, index, k)`: the condition `index >= k`; `select(graph, condition, yes, no)`.
    """

    def rule(step: Step, index: Any, *operands: Any) -> Any:
        branches, graph = step.params["branches"], step.graph
        constant = graph.values(index, int)
        if constant is not None:
            return step.walk(branches[min(max(int(constant), 0), len(branches) - 1)], list(operands))
        results = step.walk(branches[0], list(operands))
        for k, branch in enumerate(branches[1:], start=1):
            condition = at_least(graph, index, k)
            others = step.walk(branch, list(operands))
            results = [select(graph, condition, yes, no) for yes, no in zip(others, results, strict=True)]
        return results

    return rule


def _at_least(graph: Any, index: np.ndarray, k: int) -> np.ndarray:
    return elementwise(lambda node: choice.compare("ge", node, graph.constant(k)), index)


def _select(_: Any, condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return elementwise(choice.select, condition, yes, no)


def _scan(step: Step, *operands: np.ndarray) -> Arrays:
    """The loop, unrolled."""
    params = step.params
    length = params["length"]
    n_consts, n_carry = scan_counts(params)
    if length > _LAPS:
        raise step.unsupported(f" with {length} laps")
    consts, carry = list(operands[:n_consts]), list(operands[n_consts : n_consts + n_carry])
    sequences = operands[n_consts + n_carry :]
    output_shapes = [var.aval.shape for var in step.equation.outvars[n_carry:]]
    order = range(length)[::-1] if params["reverse"] else range(length)
    outputs: list[Arrays] = []
    for k in order:
        results = step.walk(params["jaxpr"], consts + carry + [array(x[k]) for x in sequences])
        carry = results[:n_carry]
        outputs.append(results[n_carry:])
    if not length:
        return carry + [step.graph.constants(np.zeros(shape)) for shape in output_shapes]
    in_order = [outputs[order.index(k)] for k in range(length)]
    return carry + [np.stack(values) for values in zip(*in_order, strict=True)]


def _while(step: Step, *operands: np.ndarray) -> Arrays:
    """The loop, unrolled; its condition must be a constant in every iteration."""
    params = step.params
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = list(operands[:n_cond]), list(operands[n_cond : n_cond + n_body])
    carry = list(operands[n_cond + n_body :])
    for _ in range(_LAPS):
        (condition,) = step.walk(params["cond_jaxpr"], cond_consts + carry)
        constant = step.graph.values(condition, bool)
        if constant is None:
            raise step.unsupported(" with an end that depends on the inputs")
        if not constant:
            return carry
        carry = step.walk(params["body_jaxpr"], body_consts + carry)
    raise step.unsupported(f" with more than {_LAPS} laps")


def _linear_solve(step: Step, *operands: np.ndarray) -> Arrays:
    """`custom_linear_solve`: the jaxpr of the solve alone; those for its derivatives are not needed."""
    solve, constants, first = linear_solve_operands(step.params)
    return step.walk(solve, list(operands[constants] + operands[first:]))


_NAMES = (
    *("jit", "pjit", "closed_call", "core_call", "core_closed_call", "custom_jvp_call", "custom_vjp_call"),
    *("custom_jvp_call_jaxpr", "custom_vjp_call_jaxpr", "remat", "remat2", "remat_opt", "checkpoint", "composite"),
)

RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_NAMES, _call),
    "call_hi_primitive": _expand,
    "cond": branching(_at_least, _select),
    "scan": _scan,
    "while": _while,
    "custom_linear_solve": _linear_solve,
}
