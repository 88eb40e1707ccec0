"""A diffrax solver that after each step chooses its rows anew, and settles the state as its method asks."""

from typing import Any

import diffrax as dfx

from jaxmbd.integrate.formulations.formulation import AbstractProjectedMethod
from jaxmbd.integrate.formulations.independent_constraints import update_row_selection
from jaxmbd.integrate.wrapped_solver import AbstractSolverAround


class PostStepSolver(AbstractSolverAround):
    """Any diffrax solver for `(q, v, quadratures)` with `args = (equations, method)`, its steps ended by a choice of
    the rows to keep, and by `method.settle` where the method has one.

    diffrax has no hook after a step. A step that is rejected leaves no trace: the settled state, the rows, and the
    method with what it has chosen, are the solver's own. Where a method has moved the state, the next step's first
    stage is computed anew.
    """

    solver: dfx.AbstractSolver[Any]  # pyright: ignore

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore
        return self.solver.interpolation_cls

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        equations, method = args
        chosen = method if isinstance(method, AbstractProjectedMethod) else None
        return self.solver.init(terms, t0, t1, y0, args), equations.independent_rows, chosen

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any) -> Any:
        (inner, kept, chosen), (equations, method) = solver_state, args
        equations = equations.solved_in(equations.redundant, kept)
        jumped, args = (made_jump, (equations, method)) if chosen is None else (True, (equations, chosen))
        y1, error, dense, inner, result = self.solver.step(terms, t0, t1, y0, args, inner, jumped)
        q, v, quadratures = y1
        if chosen is not None:
            chosen, q, v = chosen.settle(equations, t1, q, v)
        return (q, v, quadratures), error, dense, (inner, update_row_selection(equations, t1, q), chosen), result

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args)
