"""The result of a fit: estimates with their standard errors, residuals, and the fitted mechanism."""

from typing import Any

import equinox as eqx
import numpy as np
from rich.markup import escape
from rich.table import Table

from jaxmbd.analyses.state import State
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._identifiability import Undetermined
from jaxmbd.identification._minimise import MinimiserResult
from jaxmbd.identification._parameters import Parameters, flat, labels
from jaxmbd.identification._residuals import Problem, initial_state
from jaxmbd.identification._uncertainty import uncertainty
from jaxmbd.model.mechanism.mechanism import Mechanism


class Fit(eqx.Module):
    """The result of a fit. `print` shows the estimates with standard errors and strongest correlations, and `warnings`.

    - `parameters`: the estimates by name;
    - `standard_errors`, `correlation`: from the Jacobian at the estimates and the variance of the residuals or, from
      five experiments on, the scatter between experiments, which is valid for residuals that are not independent
      (`None` if the optimiser computes no Jacobian). For parameters that the data do not determine, standard errors are
      infinite and correlations NaN;
    - `labels`: the rows of `correlation`; `units`: the units of the parameters;
    - `mechanism`: the fitted mechanism; `states`: the initial state of each experiment;
    - `predicted`, `residuals` (model minus measured, in the channel's unit): by experiment and channel;
    - `history`: the loss after each step; `outcome`: the reason for which the search stopped;
    - `undetermined`: groups of parameters and initial values that the data determine in some combinations only, or not
      at all;
    - `remarks`: other remarks on estimates, such as that one lies at the edge of its range.
    """

    parameters: dict[str, Any]
    standard_errors: dict[str, Any] | None
    correlation: np.ndarray | None
    labels: tuple[str, ...]
    units: dict[str, str]
    mechanism: Mechanism
    states: tuple[State, ...]
    experiments: tuple[Experiment, ...]
    predicted: tuple[dict[str, np.ndarray], ...]
    history: tuple[float, ...]
    outcome: str
    undetermined: tuple[Undetermined, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that the numbers alone do not show, one text each: the search did not converge, the data do not
        determine all unknowns, or an estimate lies at the edge of its range."""
        ended = () if self.outcome == "converged" else (f"the search has not converged: {self.outcome}",)
        return (*ended, *map(str, self.undetermined), *self.remarks)

    @property
    def residuals(self) -> tuple[dict[str, np.ndarray], ...]:
        """Model minus measured, by experiment and channel; NaN for missing samples."""
        pairs = zip(self.predicted, self.experiments, strict=True)
        return tuple({n: p[n] - np.asarray(e.data[n]) for n in e.data} for p, e in pairs)

    def rms(self) -> tuple[dict[str, float], ...]:
        """Return the root mean square of the residuals, by experiment and channel."""
        return tuple({name: float(np.sqrt(np.nanmean(r**2))) for name, r in one.items()} for one in self.residuals)

    def table(self) -> Table:
        """Return a table of estimates, standard errors and strongest correlations for `rich.print`."""
        table = Table(title=f"Fit: {self.outcome} after {len(self.history)} steps")
        for heading in ("parameter", "estimate", "standard error", "unit", "strongest correlation"):
            table.add_column(heading, justify="left" if heading in ("parameter", "unit") else "right")
        for row in self._rows():
            table.add_row(*row)
        if self.warnings:
            table.caption = "\n".join(f"Warning: {escape(text)}." for text in self.warnings)
        return table

    def _rows(self) -> list[tuple[str, str, str, str, str]]:
        rows = []
        for name, value in self.parameters.items():
            values = flat(value)
            if values.size > 8:
                rows.append((name, f"{values.size} numbers", "", self.units[name], ""))
                continue
            for k, label in enumerate(labels(name, values.size)):
                error = "" if self.standard_errors is None else _error_text(flat(self.standard_errors[name])[k])
                rows.append((label, f"{values[k]:.6g}", error, self.units[name], self._strongest(label)))
        return rows

    def _strongest(self, label: str) -> str:
        if self.correlation is None or label not in self.labels or len(self.labels) < 2:
            return ""
        row = np.array(self.correlation[self.labels.index(label)])
        row[self.labels.index(label)] = np.nan
        if np.isnan(row).all():
            return ""
        k = int(np.nanargmax(np.abs(row)))
        return f"{row[k]:+.2f} {self.labels[k]}"

    def __repr__(self) -> str:
        head = f"{self.outcome} after {len(self.history)} steps"
        rows = (" ".join(cell.rjust(14) for cell in row).rstrip() for row in self._rows())
        return "\n".join([head, *rows, *(f"Warning: {text}." for text in self.warnings)])


def _error_text(error: float) -> str:
    return "undetermined" if np.isinf(error) else f"{error:.2g}"


def summarise(problem: Problem, places: list[list[int]], experiments: list[Experiment], search: MinimiserResult) -> Fit:
    """Return the `Fit` that corresponds to the result of a search."""
    u, unknowns = search.y
    parameters = problem.parameters
    mechanism = parameters.mechanism_at(u)
    states: list[Any] = [None] * len(experiments)
    predicted: list[Any] = [None] * len(experiments)
    for where, x, model in zip(places, unknowns, search.values, strict=True):
        for k, place in enumerate(where):
            mine = {name: value[k] for name, value in x.items()}
            states[place] = initial_state(mechanism, experiments[place], mine)
            predicted[place] = {name: np.asarray(v[k]) for name, v in model.items()}
    physical = parameters.physical(u)
    errors, correlation, names, undetermined = None, None, (), ()
    if search.jacobian is not None:
        errors, correlation, names, undetermined = uncertainty(problem, places, search)
    return Fit(
        physical, errors, correlation, names,
        {name: f.unit for name, f in parameters.free.items()},
        mechanism, tuple(states), tuple(experiments), tuple(predicted), search.history, search.outcome,
        undetermined, _remarks(parameters, physical, errors),
    )  # fmt: skip


def _remarks(parameters: Parameters, physical: dict[str, Any], errors: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the remarks on estimates at the edges of their ranges."""
    remarks = []
    for name, free in parameters.free.items():
        value, start = flat(physical[name]), flat(parameters.start[name])
        error = np.zeros_like(value) if errors is None else flat(errors[name])
        for label, *numbers in zip(labels(name, value.size), value, start, error, strict=True):
            text = free.within.remark(*map(float, numbers))
            remarks += [f"{label} {text}"] if text else []
    return tuple(remarks)
