"""A diffrax solver that updates the row selection and projects the state after each step."""

from typing import Any

import diffrax as dfx

from jaxmbd.integrate.formulations.formulation import AbstractProjectedFormulation
from jaxmbd.integrate.formulations.independent_constraints import update_row_selection
from jaxmbd.integrate.wrapped_solver import AbstractSolverAround


class PostStepSolver(AbstractSolverAround):
    """Any diffrax solver for `(q, v, quadratures)` with `args = (equations, formulation)`, followed after each step by
    `formulation.settle`, if the formulation has one, and by an update of the row selection.

    diffrax has no hook after a step, so both are part of the solver's step. The row selection and the formulation with
    its data are solver state, and the projected state is the result of the step, so that a rejected step changes none
    of them. After a projection the first stage of the next step is evaluated again, since its slope has changed.
    """

    solver: dfx.AbstractSolver[Any]  # pyright: ignore

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore
        return self.solver.interpolation_cls

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        equations, formulation = args
        projecting = formulation if isinstance(formulation, AbstractProjectedFormulation) else None
        return self.solver.init(terms, t0, t1, y0, args), equations.independent_rows, projecting

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any) -> Any:
        (inner, selected, projecting), (equations, formulation) = solver_state, args
        equations = equations.solved_in(equations.redundant, selected)
        jumped, args = (made_jump, (equations, formulation)) if projecting is None else (True, (equations, projecting))
        y1, error, dense, inner, result = self.solver.step(terms, t0, t1, y0, args, inner, jumped)
        q, v, quadratures = y1
        if projecting is not None:
            projecting, q, v = projecting.settle(equations, t1, q, v)
        return (q, v, quadratures), error, dense, (inner, update_row_selection(equations, t1, q), projecting), result

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args)
