"""Parameter estimation: the parameters of a mechanism, and initial states, from measured motions."""

import os
import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import optax

from jaxmbd.arrays import as_float
from jaxmbd.checks import check_count, check_flags, check_instance, check_number
from jaxmbd.errors import MechanismError, SolveError
from jaxmbd.identification._checkpoint import Checkpoint
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._identifiability import FitWarning
from jaxmbd.identification._likelihood_intervals import with_likelihood_intervals
from jaxmbd.identification._minimise import Minimum, Report, gradient_descent, levenberg_marquardt, without_multipliers
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._search import searched
from jaxmbd.identification._stacks import by_experiment
from jaxmbd.identification._uncertainty import Uncertainty, uncertainty
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.identification.result import Fit, Prediction
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.stepwise_search import NO_STEP, STUCK, USED_UP
from jaxmbd.parameters.parameters import Build, Free
from jaxmbd.progress import reporting
from jaxmbd.state.state import State

_SHOWN = 6  # searches that a warning lists
_NOT_CONVERGED = {
    USED_UP: "has used up its {steps} steps before it converged: give it more, or a better start.",
    NO_STEP: "ended where no step, however short, can be simulated; the estimates are no minimum. If a parameter must "
    "not leave a range, give it that range.",
    STUCK: "ended where no step, however short, reduces the loss, although its derivatives are not zero; the estimates "
    "are no minimum. Beyond may be numbers for which there is no mechanism or no motion: give parameters ranges that "
    "exclude them. Or the loss jumps there (a contact or an event that comes or goes), or the motions are too coarse: "
    "give Problem a smaller rtol.",
}


def fit(
    problem: Problem | Mechanism | Build,
    experiments: Experiment | Sequence[Experiment] | None = None,
    free: Free | None = None,
    *,
    optimiser: optax.GradientTransformation | None = None,
    batch: int | None = None,
    starts: int = 1,
    seed: int = 0,
    steps: int = 50,
    tolerance: float | int = 1e-6,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = True,
    **options: object,
) -> Fit:
    """Estimate free parameters (and initial states) so that simulations agree with measurements.

    Minimises `½ Σ ρ(((model − measured) / sigma)²)` over all channels of all experiments, plus the squares of priors.

    **Arguments:**

    - `problem`: a `Problem`; or what makes one: a mechanism (or a function from parameters to one), `experiments` and
      `free`, and in `options` whatever else `Problem` takes;
    - `optimiser`: an optax optimiser (reverse mode); by default Levenberg-Marquardt (forward mode); `batch`: the number
      of experiments that each of its steps takes, drawn at random (all by default);
    - `starts`: the number of starts of Levenberg-Marquardt, run side by side: that of the problem, and others drawn
      from priors or ranges with `seed`. The best one counts;
    - `steps`: the maximum number of steps; `tolerance`: relative, on the change of the loss and on its gradient. The
      search also ends where a further step would change the estimates by less than the noise can tell;
    - `checkpoint`: a file in which the search is stored after each step, and from which it goes on if there is one;
    - `progress`: show the step and the loss during the search.

    **Returns:** a `Fit`; print it. Its `warnings` name parameters that the data determine in some combinations only, or
    that lie at the edge of their range. Ctrl-C ends the search and returns the best result so far.

    **Warns:** `FitWarning` if Levenberg-Marquardt does not converge: it takes all its steps, or no further one can be
    simulated or reduces the loss.

    **Raises:** `MechanismError` for unknown channels, values outside their range, or NaN in the data.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> ts, start = np.linspace(0.0, 1.0, 21), {"O.angle": -1.0}
        >>> angle = mbd.simulate(pendulum, mbd.assemble(pendulum, start), ts)["O.angle"]
        >>> angle = angle + 1e-3 * np.random.default_rng(0).normal(size=21)
        >>> experiment = mbd.Experiment(ts, {"O.angle": angle}, start=start, sigma=1e-3)
        >>> free = ["rod.inertia"]
        >>> problem = mbd.identification.Problem(pendulum, experiment, free)
        >>> result = mbd.fit(problem, progress=False)
        >>> print(f"{result.parameters['rod.inertia']:.3f} ± {result.standard_errors['rod.inertia']:.0e} kg m²")
        0.249 ± 3e-04 kg m²
    """
    problem = _problem(problem, experiments, free, options)
    check_count("fit: steps", steps, 1)
    check_count("fit: starts", starts, 1)
    check_count("fit: seed", seed, 0)
    check_flags("fit", progress=progress)
    if checkpoint is not None:
        check_instance("fit: checkpoint", checkpoint, (str, os.PathLike), "the path of a file")
    check_number("fit", "tolerance", as_float(tolerance), "1", zero=True)
    if batch is not None:
        check_count("fit: batch", batch, 1)
    if optimiser is not None:
        _check_optimiser(optimiser, problem, starts, checkpoint)
    elif batch is not None:
        raise MechanismError("fit: batch belongs to an optax optimiser: give one, optimiser=optax.adam(1e-2).")
    with reporting(progress) as report:
        if optimiser is None:
            problem, minimum, losses = searched(problem, starts, seed, steps, tolerance, checkpoint, report)
            if minimum.outcome in _NOT_CONVERGED:
                text = f"fit {_NOT_CONVERGED[minimum.outcome].format(steps=steps)}"
                warnings.warn(text, FitWarning, stacklevel=2)
        else:
            minimum, losses = gradient_descent(problem, optimiser, steps, batch, report), ()
        report("standard errors ...")
        lanes = starts if optimiser is None and problem.noise == "given" else 1
        return _summarised([problem], [minimum], lanes, losses, report)[0]


def _check_optimiser(optimiser: object, problem: Problem, starts: int, checkpoint: object) -> None:
    """Raise unless an optimiser is one, and is not asked for what it does not do."""
    check_instance("fit: optimiser", optimiser, optax.GradientTransformation, "an optax optimiser, optax.adam(1e-2)")
    if starts > 1 or checkpoint is not None:
        raise MechanismError("fit: starts and checkpoint belong to Levenberg-Marquardt: leave optimiser out, or them.")
    if problem.noise != "given":
        raise MechanismError(
            f"fit: an optimiser does not estimate the noise, which is to be {problem.noise!r}: leave optimiser "
            "out, or give sigma (and correlation_time) to the experiments and noise='given' to the Problem."
        )
    if problem.is_cut:
        raise MechanismError(
            "fit: segments belong to Levenberg-Marquardt: leave optimiser out, or segments. Short records as "
            "experiments of their own, with estimate=True, suit an optimiser."
        )


def fit_many(
    problems: Sequence[Problem], *, steps: int = 50, tolerance: float | int = 1e-6, progress: bool = True
) -> tuple[Fit, ...]:
    """Fit several problems that differ in numbers only, side by side: other measurements, other fixed values.

    Each search takes its own steps, by the Levenberg-Marquardt method. `fit` has the arguments, and what is returned
    for each problem. Noise levels are those given.

    **Warns:** `FitWarning` if searches do not converge.

    **Raises:** `MechanismError` if problems have another structure, or are cut into segments.

        >>> first, second = mbd.identification.fit_many([problem, problem], progress=False)
        >>> first.outcome
        'converged'
    """
    check_count("fit_many: steps", steps, 1)
    check_instance("fit_many: problems", problems, Iterable, "a sequence of Problems")
    problems = list(problems)
    for problem in problems:
        check_instance("fit_many: a problem", problem, Problem, "a Problem")
        if problem.is_cut or problem.noise != "given":
            raise MechanismError("fit_many takes problems without segments, and with given noise levels: take fit.")
    return side_by_side("fit_many", problems, steps, tolerance, progress)


def side_by_side(
    what: str, problems: Sequence[Problem], steps: int, tolerance: float, progress: bool
) -> tuple[Fit, ...]:
    """Fit problems with the noise levels and the jumps between segments that they have, in the name of a verb; warn of
    searches that do not converge."""
    if not problems:
        return ()
    starts = [problem.unconstrained(problem.start()) for problem in problems]
    minima = minima_side_by_side(what, problems, starts, steps, tolerance, progress)
    with reporting(progress) as report:
        return _summarised(problems, minima, len(problems), (), report)


def minima_side_by_side(
    what: str, problems: Sequence[Problem], starts: Sequence[Unknowns], steps: int, tolerance: float, progress: bool,
    held: Collection[str] = (),
) -> list[Minimum]:  # fmt: skip
    """Search from several starts, of one problem or of one each, as `levenberg_marquardt` does, in the name of a verb;
    warn its caller's caller of searches that do not converge."""
    with reporting(progress) as report:
        nothing, joins = Checkpoint(None, ()), without_multipliers(problems[0], problems[0].continuity)
        minima = levenberg_marquardt(problems, starts, steps, tolerance, report, nothing, joins, held)
    failed = [k for k, one in enumerate(minima) if one.linearised is None or one.outcome in _NOT_CONVERGED]
    if failed:
        shown = ", ".join(f"number {k} ({minima[k].outcome})" for k in failed[:_SHOWN])
        more = " and others" * (len(failed) > _SHOWN)
        text = f"{what}: {len(failed)} of {len(minima)} searches have not converged: {shown}{more}."
        warnings.warn(text, FitWarning, stacklevel=4)
    return minima


def _problem(problem: object, experiments: object, free: object, options: dict[str, Any]) -> Problem:
    if isinstance(problem, Problem):
        if experiments is not None or free is not None or options:
            given = [name for name, x in (("experiments", experiments), ("free", free)) if x is not None]
            raise MechanismError(
                f"fit: a Problem has its own experiments, parameters and options, got {', '.join([*given, *options])} "
                "beside it. Give them to Problem(...)."
            )
        return problem
    return Problem(problem, experiments, free, **options)  # pyright: ignore[reportArgumentType]


def _summarised(
    problems: Sequence[Problem], minima: Sequence[Minimum], lanes: int, losses: tuple[float, ...], report: Report
) -> tuple[Fit, ...]:
    """Return the `Fit`s that correspond to the results of searches, of which so many ran side by side."""
    pairs = list(zip(problems, minima, strict=True))
    known = [None if one.linearised is None else uncertainty(problem, one) for problem, one in pairs]
    known = with_likelihood_intervals(problems, minima, known, lanes, report)
    return tuple(
        _fit_of(problem, minimum, found, losses) for (problem, minimum), found in zip(pairs, known, strict=True)
    )


def _fit_of(problem: Problem, minimum: Minimum, found: Uncertainty | None, losses: tuple[float, ...]) -> Fit:
    theta = problem.physical(minimum.u)
    return Fit(
        problem=problem, theta=theta, uncertainty=found, experiments=problem.experiments(),
        states=_states(problem, theta), predicted=by_experiment(problem.stacks, minimum.readings),
        history=minimum.history, outcome=minimum.outcome, reason=minimum.reason, other_losses=losses,
    )  # fmt: skip


def _states(problem: Problem, theta: Unknowns) -> tuple[State, ...]:
    """The initial state of each experiment."""
    states: dict[int, State] = {}
    for own, stack in zip(theta.experiments, problem.stacks, strict=True):
        for k in range(0, stack.lanes, stack.segments):
            mine, experiment = jax.tree.map(lambda x, k=k: x[k], (own, stack.experiment))
            states[stack.places[k]] = problem.model.initial(theta.parameters, mine, experiment)[1]
    return tuple(states[place] for place in sorted(states))


def predict(
    result: Fit, experiments: Experiment | Sequence[Experiment], *, steps: int = 50, progress: bool = True
) -> Prediction:
    """Predict experiments with the parameters fixed at the estimates of a fit.

    Initial values that an experiment wants estimated are estimated from its own measurements; all else is predicted
    without looking at them.

    **Raises:** `MechanismError` for unknown channels; `SolveError` if the search for initial values cannot begin.

        >>> prediction = mbd.identification.predict(result, experiment, progress=False)
        >>> print(f"{prediction.rms()[0]['O.angle']:.1e} rad")
        7.5e-04 rad
    """
    check_instance("predict: result", result, Fit, "a Fit")
    check_count("predict: steps", steps, 1)
    problem = result.problem.validation(result.theta, experiments)
    if any(stack.experiment.estimate for stack in problem.stacks):
        with reporting(progress) as report:
            start = problem.unconstrained(problem.start())
            minimum = levenberg_marquardt(
                [problem], [start], steps, 1e-6, report, Checkpoint(None, ()), without_multipliers(problem)
            )[0]
        if minimum.linearised is None:
            raise SolveError(
                "predict: an experiment cannot be assembled or simulated from its starting values with the estimates "
                "of the fit. Give it a better start."
            )
        theta, readings, outcome = problem.physical(minimum.u), minimum.readings, minimum.outcome
    else:
        theta, outcome = problem.start(), ""
        with reporting(progress, "simulating ..."):
            readings = eqx.filter_jit(Problem.readings)(problem, theta)
    return Prediction(
        problem=problem, theta=theta, experiments=problem.experiments(), states=_states(problem, theta),
        predicted=by_experiment(problem.stacks, readings), outcome=outcome,
    )  # fmt: skip
