"""diffrax solvers that wrap another one: their base class, the settings of the inner one, work after each step."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import diffrax as dfx
import equinox as eqx
from jaxtyping import Array, PyTree

from jaxmbd.arrays import Flag, Number
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, AbstractProjectedFormulation
from jaxmbd.integrate.formulations.independent_constraints import update_row_selection
from jaxmbd.integrate.solvers.unrolled_erk import StepResult
from jaxmbd.upstream.diffrax_internals import FROM_CONTROLLER

IntegratedState: TypeAlias = tuple[Array, Array, Array]  # q, v, and states of parts with the quadratures
Arguments: TypeAlias = tuple[Equations, AbstractFormulation]  # of the terms
Solver = TypeVar("Solver", bound=dfx.AbstractSolver)


class AbstractSolverAround(dfx.AbstractAdaptiveSolver[Any]):
    """A diffrax solver that modifies the steps of an inner solver.

    It is not a `diffrax.AbstractWrappedSolver`: diffrax completes the settings of the solver in one of those, but not
    of a solver in two nested ones. `prepared` completes them before the solver is wrapped.
    """

    solver: eqx.AbstractVar[dfx.AbstractSolver[Any]]

    @property
    def term_structure(self) -> type[dfx.AbstractTerm] | PyTree:  # pyright: ignore
        return self.solver.term_structure

    @property
    def term_compatible_contr_kwargs(self) -> PyTree[dict[str, object]]:  # pyright: ignore
        return self.solver.term_compatible_contr_kwargs

    def order(self, terms: dfx.AbstractTerm) -> int | None:
        return self.solver.order(terms)

    def error_order(self, terms: dfx.AbstractTerm) -> Number | None:
        return self.solver.error_order(terms)


def prepared(
    solver: dfx.AbstractSolver[Any], controller: dfx.AbstractStepSizeController, adjoint: dfx.AbstractAdjoint
) -> dfx.AbstractSolver[Any]:
    """The solver with the settings that diffrax otherwise takes from the step-size controller and the adjoint: the
    tolerances of an implicit method's iteration, and the kind of the loop over the stages."""
    if isinstance(solver, dfx.AbstractImplicitSolver):
        missing = missing_tolerances(solver)
        tolerances = [getattr(controller, name) for name in missing]
        solver = eqx.tree_at(lambda s: [getattr(s.root_finder, name) for name in missing], solver, tolerances)
    kinds = ((dfx.ForwardMode, "lax"), (dfx.DirectAdjoint, "bounded"))
    return with_stage_loop(solver, next((kind for mode, kind in kinds if isinstance(adjoint, mode)), None))


def missing_tolerances(solver: dfx.AbstractImplicitSolver[Any]) -> list[str]:
    """The tolerances that the iteration of an implicit method takes from the step-size controller, by name."""
    return [name for name in ("rtol", "atol", "norm") if getattr(solver.root_finder, name) is FROM_CONTROLLER]


def with_stage_loop(solver: Solver, kind: str | None) -> Solver:
    """The same Runge–Kutta method, also inside other solvers, with this kind of loop over its stages unless it has one
    already: `"lax"` supports forward derivatives, `"bounded"` both modes and any order."""
    if isinstance(solver, AbstractSolverAround):
        return eqx.tree_at(lambda s: s.solver, solver, with_stage_loop(solver.solver, kind))
    if not isinstance(solver, dfx.AbstractRungeKutta) or solver.scan_kind is not None:
        return solver
    return eqx.tree_at(lambda s: s.scan_kind, solver, kind, is_leaf=lambda x: x is None)


class PostStepSolver(AbstractSolverAround):
    """Any diffrax solver for `(q, v, quadratures)` with `args = (equations, formulation)`, followed after each step by
    `formulation.settle`, if the formulation has one, and by an update of the row selection.

    diffrax has no hook after a step, so both are part of the solver's step. The row selection and the formulation with
    its data are solver state, and the projected state is the result of the step, so that a rejected step changes none
    of them. After a projection the first stage of the next step is evaluated again, since its slope has changed.
    """

    solver: dfx.AbstractSolver[Any]  # pyright: ignore

    @property
    def interpolation_cls(self) -> Callable[..., dfx.AbstractLocalInterpolation]:  # pyright: ignore
        return self.solver.interpolation_cls

    def init(self, terms: dfx.AbstractTerm, t0: Number, t1: Number, y0: IntegratedState, args: Arguments) -> PyTree:
        equations, formulation = args
        projecting = formulation if isinstance(formulation, AbstractProjectedFormulation) else None
        return self.solver.init(terms, t0, t1, y0, args), equations.independent_rows, projecting

    def step(
        self, terms: dfx.AbstractTerm, t0: Any, t1: Any, y0: IntegratedState, args: Arguments, solver_state: PyTree,
        made_jump: Flag,
    ) -> StepResult:  # fmt: skip
        (inner, selected, projecting), (equations, formulation) = solver_state, args
        equations = equations.solved_in(equations.redundant, selected)
        jumped, args = (made_jump, (equations, formulation)) if projecting is None else (True, (equations, projecting))
        y1, error, dense, inner, result = self.solver.step(terms, t0, t1, y0, args, inner, jumped)
        q, v, quadratures = y1
        if projecting is not None:
            projecting, q, v = projecting.settle(equations, t1, q, v)
        return (q, v, quadratures), error, dense, (inner, update_row_selection(equations, t1, q), projecting), result

    def func(self, terms: dfx.AbstractTerm, t0: Number, y0: IntegratedState, args: Arguments) -> IntegratedState:
        return self.solver.func(terms, t0, y0, args)
