"""Parameter estimation: the parameters of a mechanism, and initial states, from measured motions, and its result."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from rich.markup import escape
from rich.table import Table

from jaxmbd.analyses.events.event import Event
from jaxmbd.analyses.output_channels import channel_units
from jaxmbd.analyses.simulation.step_control import Accuracy
from jaxmbd.analyses.state import State
from jaxmbd.arrays import as_float
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification._experiment import Experiment, Problem, initial_state, stack
from jaxmbd.identification._identifiability import FitWarning, Undetermined, uncertainty
from jaxmbd.identification._minimise import USED_UP, MinimiserResult, gradient_descent, levenberg_marquardt
from jaxmbd.identification._parameters import Build, Parameters, collect, flat, labels
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.model.body.checks import check_count, check_instance, check_number
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.progress import reporting


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
                error = None if self.standard_errors is None else flat(self.standard_errors[name])[k]
                text = "" if error is None else "undetermined" if np.isinf(error) else f"{error:.2g}"
                rows.append((label, f"{values[k]:.6g}", text, self.units[name], self._strongest(label)))
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


def fit(
    mechanism: Mechanism | Build,
    experiments: Experiment | Sequence[Experiment],
    free: Mapping[str, Any] | None = None,
    *,
    optimiser: optax.GradientTransformation | None = None,
    steps: int = 50,
    tolerance: float | int = 1e-6,
    formulation: AbstractFormulation | None = None,
    solver: dfx.AbstractSolver | Literal["stiff"] | None = None,
    accuracy: Accuracy = "standard",
    stepsize_controller: dfx.AbstractStepSizeController | None = None,
    control_speeds: bool = False,
    rtol: float | int | None = None,
    atol: float | int | None = None,
    dt0: float | int | None = None,
    events: Iterable[Event] = (),
    max_events: int = 32,
    max_steps: int = 2**16,
    progress: bool = True,
) -> Fit:
    """Estimate free parameters (and initial states) so that simulations agree with measurements.

    Minimises `½ Σ ((model − measured) / sigma)²` over all channels of all experiments.

    **Arguments:**

    - `mechanism`: a mechanism, with free leaves such as `free={"k": lambda m: m["spring"].stiffness}`; or a function
      from a dictionary of parameters to a mechanism, with `free={"k": Parameter(start=100.0)}`;
    - `experiments`: one or several `Experiment`s; those with equal shapes are simulated in one batch;
    - `free`: by name, a function to a leaf or a `Parameter` with a range; empty to estimate initial states only;
    - `optimiser`: an optax optimiser (reverse mode); by default Levenberg-Marquardt (forward mode);
    - `steps`: the maximum number of steps; `tolerance`: relative, on the change of loss and unknowns;
    - `formulation`, `solver`, `accuracy`, `stepsize_controller`, `control_speeds`, `rtol`, `atol`, `dt0`, `events`,
      `max_events`, `max_steps`: as for `simulate`;
    - `progress`: show the step and the loss during the search.

    **Returns:** a `Fit`; print it. Its `warnings` name parameters that the data determine in some combinations only, or
    that lie at the edge of their range. Ctrl-C ends the search and returns the best result so far.

    **Warns:** `FitWarning` if Levenberg-Marquardt takes all its steps without converging.

    **Raises:** `MechanismError` for unknown channels, values outside their range, or NaN in the data.
    """
    if not isinstance(experiments, Experiment | Iterable):
        raise MechanismError(f"fit: experiments must be an Experiment or a sequence of them, got {experiments!r}.")
    experiments = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    check_count("fit: steps", steps, 1)
    check_number("fit", "tolerance", as_float(tolerance), "1", zero=True)
    if optimiser is not None:
        check_instance(
            "fit: optimiser", optimiser, optax.GradientTransformation, "an optax optimiser, optax.adam(1e-2)"
        )
    parameters = collect(mechanism, {} if free is None else free)
    _check(parameters, experiments)
    stacked = stack(experiments)
    options = {
        "formulation": formulation, "solver": solver, "accuracy": accuracy, "stepsize_controller": stepsize_controller,
        "control_speeds": control_speeds, "rtol": None if rtol is None else jnp.asarray(rtol),
        "atol": None if atol is None else jnp.asarray(atol), "dt0": dt0, "events": tuple(events),
        "max_events": max_events, "max_steps": max_steps,
    }  # fmt: skip
    problem = Problem(parameters, tuple(s for _, s in stacked), options)
    with reporting(progress) as report:
        if optimiser is None:
            search = levenberg_marquardt(problem, steps, tolerance, report)
            if search.outcome == USED_UP:
                text = f"fit has used up its {steps} steps before it converged: give it more, or a better start."
                warnings.warn(text, FitWarning, stacklevel=2)
        else:
            search = gradient_descent(problem, optimiser, steps, report)
        report("standard errors ...")
        return summarise(problem, [where for where, _ in stacked], experiments, search)


def _check(parameters: Parameters, experiments: Sequence[Experiment]) -> None:
    if not experiments:
        raise MechanismError("fit needs at least one Experiment.")
    for experiment in experiments:
        if not isinstance(experiment, Experiment):
            raise MechanismError(f"experiments must be Experiments, got {type(experiment).__name__}.")
    if not parameters.free and not any(experiment.estimate for experiment in experiments):
        raise MechanismError("Nothing is free: give free parameters, or experiments with estimate=True.")
    units = channel_units(parameters.mechanism_at(parameters.unconstrained()))
    for experiment in experiments:
        check_known("channel", experiment.data, units)
