"""Rules for the primitives that hold other jaxprs: calls, branches and loops."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxmbd.compile.graph import choice
from jaxmbd.compile.graph.elementwise import elementwise
from jaxmbd.compile.graph.step import Arrays, Step, array
from jaxmbd.compile.jax_internals import expansion, linear_solve_operands, scan_counts

_LAPS = 10_000  # of a loop that is written out


def _call(step: Step, *operands: np.ndarray) -> Arrays:
    inner = step.params.get("jaxpr") or step.params.get("call_jaxpr") or step.params.get("fun_jaxpr")
    return step.walk(inner, list(operands))


def _expanded(step: Step, *operands: np.ndarray) -> Arrays:
    """What a primitive stands for that JAX writes in terms of others, such as `searchsorted` since jax 0.12."""
    meant = expansion(step.params, [var.aval for var in step.equation.invars])
    return step.walk(meant, list(operands))


def branching(at_least: Callable[..., Any], select: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for `cond`: the branch that a constant names; else both, with a choice between their results.

    `at_least(graph, index, k)`: whether `index >= k`; `select(graph, condition, yes, no)`.
    """

    def rule(step: Step, index: Any, *operands: Any) -> Any:
        branches, graph = step.params["branches"], step.graph
        known = graph.values(index, int)
        if known is not None:
            return step.walk(branches[min(max(int(known), 0), len(branches) - 1)], list(operands))
        results = step.walk(branches[0], list(operands))
        for k, branch in enumerate(branches[1:], start=1):
            beyond = at_least(graph, index, k)
            others = step.walk(branch, list(operands))
            results = [select(graph, beyond, yes, no) for yes, no in zip(others, results, strict=True)]
        return results

    return rule


def _at_least(graph: Any, index: np.ndarray, k: int) -> np.ndarray:
    return elementwise(lambda node: choice.compare("ge", node, graph.constant(k)), index)


def _select(_: Any, condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return elementwise(choice.select, condition, yes, no)


def _scan(step: Step, *operands: np.ndarray) -> Arrays:
    """The loop written out."""
    params = step.params
    laps = params["length"]
    n_fixed, n_carried = scan_counts(params)
    if laps > _LAPS:
        raise step.unsupported(f" with {laps} laps")
    fixed, carried = list(operands[:n_fixed]), list(operands[n_fixed : n_fixed + n_carried])
    sequences = operands[n_fixed + n_carried :]
    outputs = [var.aval.shape for var in step.equation.outvars[n_carried:]]
    order = range(laps)[::-1] if params["reverse"] else range(laps)
    found: list[Arrays] = []
    for lap in order:
        results = step.walk(params["jaxpr"], fixed + carried + [array(x[lap]) for x in sequences])
        carried = results[:n_carried]
        found.append(results[n_carried:])
    if not laps:
        return carried + [step.graph.constants(np.zeros(shape)) for shape in outputs]
    in_order = [found[order.index(lap)] for lap in range(laps)]
    return carried + [np.stack(values) for values in zip(*in_order, strict=True)]


def _while(step: Step, *operands: np.ndarray) -> Arrays:
    """The loop written out, as long as whether it goes on is a constant."""
    params = step.params
    n_condition, n_body = params["cond_nconsts"], params["body_nconsts"]
    condition_fixed, body_fixed = list(operands[:n_condition]), list(operands[n_condition : n_condition + n_body])
    carried = list(operands[n_condition + n_body :])
    for _ in range(_LAPS):
        (goes_on,) = step.walk(params["cond_jaxpr"], condition_fixed + carried)
        known = step.graph.values(goes_on, bool)
        if known is None:
            raise step.unsupported(" with an end that depends on the inputs")
        if not known:
            return carried
        carried = step.walk(params["body_jaxpr"], body_fixed + carried)
    raise step.unsupported(f" with more than {_LAPS} laps")


def _linear_solve(step: Step, *operands: np.ndarray) -> Arrays:
    """What the solve does, without what its derivatives would use."""
    solve, constants, first = linear_solve_operands(step.params)
    return step.walk(solve, list(operands[constants] + operands[first:]))


_NAMES = (
    *("jit", "pjit", "closed_call", "core_call", "core_closed_call", "custom_jvp_call", "custom_vjp_call"),
    *("custom_jvp_call_jaxpr", "custom_vjp_call_jaxpr", "remat", "remat2", "remat_opt", "checkpoint", "composite"),
)

RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_NAMES, _call),
    "call_hi_primitive": _expanded,
    "cond": branching(_at_least, _select),
    "scan": _scan,
    "while": _while,
    "custom_linear_solve": _linear_solve,
}
