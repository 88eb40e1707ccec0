"""From a jaxpr to scalar operations: the table of rules, and what applies them."""

from collections.abc import Callable, Mapping

import numpy as np

from jaxmbd.engine.program import arithmetic, control_flow, structure, windows
from jaxmbd.engine.program.equation import AbstractBuilder, Arrays, Equation, Rule
from jaxmbd.upstream.jax_internals import ClosedJaxpr, Jaxpr, Literal, Var, aval_of
from jaxmbd.upstream.primitives import is_as_known

RULES: dict[str, Rule] = {**structure.RULES, **windows.RULES, **arithmetic.RULES, **control_flow.RULES}


class Interpreter:
    """An interpreter of jaxprs, inner ones included, on arrays of scalars.

    `own_rules`: rules for primitives that only this builder knows, or treats otherwise. `around(rule, equation,
    operands)`: what applies the rule of each equation; default: the rule.
    """

    def __init__(
        self, builder: AbstractBuilder, title: str, own_rules: Mapping[str, Rule],
        around: Callable[..., Arrays] | None = None,
    ) -> None:  # fmt: skip
        self.builder, self.title, self.rules, self._around = builder, title, RULES | dict(own_rules), around

    def run(self, jaxpr: ClosedJaxpr | Jaxpr, inputs: Arrays) -> Arrays:
        """The results of a jaxpr."""
        # A closed jaxpr holds an open one until jax 0.10, and is the same type from 0.11.
        consts = getattr(jaxpr, "consts", ())
        opened = getattr(jaxpr, "jaxpr", jaxpr)
        values: dict[Var, np.ndarray] = dict(zip(opened.invars, inputs, strict=True))
        values |= {var: self.builder.constants(const) for var, const in zip(opened.constvars, consts, strict=True)}
        for equation in opened.eqns:
            operands = [self._read(values, var) for var in equation.invars]
            at = Equation(self.builder, equation, self.run, self.title)
            results = self._apply(at, operands) if self._around is None else self._around(self._apply, at, operands)
            values |= zip(equation.outvars, results, strict=True)
        return [self._read(values, var) for var in opened.outvars]

    def _read(self, values: dict[Var, np.ndarray], var: Var | Literal) -> np.ndarray:
        if isinstance(var, Literal):
            return self.builder.constants(np.asarray(var.val, dtype=aval_of(var).dtype))
        return values[var]

    def _apply(self, equation: Equation, operands: Arrays) -> Arrays:
        rule = self.rules.get(equation.name)
        if rule is None or not is_as_known(equation.params):
            # Without a rule it can still be evaluated if all of its operands are constants.
            if any(self.builder.values(operand, object) is None for operand in operands):
                raise equation.unsupported()
            return equation.evaluate(*operands)
        results = rule(equation, *operands)
        return results if isinstance(results, list) else [results]
