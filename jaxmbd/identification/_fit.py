"""Parameter estimation: the parameters of a mechanism, and initial states, from measured motions."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import diffrax as dfx
import jax.numpy as jnp
import optax

from jaxmbd.analyses.events.event import Event
from jaxmbd.analyses.output_channels import channel_units
from jaxmbd.analyses.simulation.step_control import Accuracy
from jaxmbd.arrays import as_float
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.identification._experiment import Experiment, stack
from jaxmbd.identification._identifiability import FitWarning
from jaxmbd.identification._minimise import USED_UP, gradient_descent, levenberg_marquardt, reporting
from jaxmbd.identification._parameters import Build, Parameters, collect
from jaxmbd.identification._residuals import Problem, Settings
from jaxmbd.identification._result import Fit, summarise
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.model.body.checks import check_count, check_instance, check_number
from jaxmbd.model.mechanism.mechanism import Mechanism


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
    settings = Settings(
        formulation, solver, stepsize_controller,
        None if rtol is None else jnp.asarray(rtol), None if atol is None else jnp.asarray(atol), dt0,
        tuple(events), accuracy, control_speeds, max_events, max_steps,
    )  # fmt: skip
    problem = Problem(parameters, tuple(s for _, s in stacked), settings)
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
        for name in experiment.data:
            if name not in units:
                raise unknown("channel", name, units)
