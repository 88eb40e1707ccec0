"""What diffrax asks of a solver that another one is inside of."""

from typing import Any

import diffrax as dfx


class AbstractSolverAround(dfx.AbstractAdaptiveSolver[Any], dfx.AbstractWrappedSolver[Any]):
    """A diffrax solver that changes the steps of the solver inside, and is otherwise like it."""

    @property
    def term_structure(self) -> Any:  # pyright: ignore
        return self.solver.term_structure

    @property
    def term_compatible_contr_kwargs(self) -> Any:  # pyright: ignore
        return self.solver.term_compatible_contr_kwargs

    @property
    def root_finder(self) -> Any:
        """That of an implicit solver: diffrax hands it the tolerances of the step-size control."""
        return self.solver.root_finder  # pyright: ignore

    @property
    def scan_kind(self) -> Any:
        """That of a Runge-Kutta method: diffrax chooses it to suit the adjoint."""
        return self.solver.scan_kind  # pyright: ignore

    def order(self, terms: Any) -> int | None:
        return self.solver.order(terms)

    def error_order(self, terms: Any) -> Any:
        return self.solver.error_order(terms)
