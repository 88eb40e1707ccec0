"""What a fit tells beyond its estimates: are the residuals noise, which model is better, how far is it to be trusted.

Sources: Akaike, IEEE Trans. Automatic Control 19 (1974); Schwarz, Ann. Statist. 6
(1978); Raue et al., Bioinformatics 25 (2009), for likelihood profiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Float

from jaxmbd.arrays import Numbers, as_float
from jaxmbd.checks import check_count, check_finite, check_instance
from jaxmbd.errors import MechanismError, SolveError, check_known
from jaxmbd.identification._fit import fit, minima_side_by_side, predict, side_by_side
from jaxmbd.identification._linearisation import unflattened
from jaxmbd.identification._losses import likeliest_level, log_normaliser, transformed
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._residual_tests import ljung_box
from jaxmbd.identification._stacks import by_experiment, stacked
from jaxmbd.identification._trust import covariance_root
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.identification.result import Fit, Prediction
from jaxmbd.parameters.parameters import check_within, flat
from jaxmbd.printing import table

_LAGS = 20  # the largest lag of the test of whiteness, in samples
_INDEPENDENT = 0.01  # the least p-value of residuals that are said to be independent


@dataclass(frozen=True)
class Comparison:
    """How well a model explains the measurements for its number of parameters; the smaller, the better.

    - `samples`, `estimated`: the numbers of measured and of estimated numbers;
    - `log_likelihood`: with the noise level of each channel that suits the residuals best;
    - `aic = 2 k − 2 log L`, `bic = k log n − 2 log L`. Differences above ten are decisive.
    """

    samples: int
    estimated: int
    log_likelihood: float

    @property
    def aic(self) -> float:
        """Akaike's information criterion."""
        return 2 * self.estimated - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's information criterion."""
        return self.estimated * np.log(self.samples) - 2 * self.log_likelihood

    def __repr__(self) -> str:
        return (
            f"AIC {self.aic:.6g}, BIC {self.bic:.6g}: log-likelihood {self.log_likelihood:.6g}, {self.estimated} "
            f"estimated from {self.samples} measured numbers"
        )


def information(result: Fit) -> Comparison:
    """Return the information criteria of a fit, by which models of the same measurements are compared.

    The likelihood is that of the problem's loss: of normal noise for squares, of noise with the density `exp(−½ ρ) / c`
    for a robust one, so that outliers count as much as in the fit. The noise level of each channel counts as an
    estimated number, and so does the correlation time of noise that has been estimated as `"coloured"`.

    **Raises:** `MechanismError` for `loss="cauchy"` with a `loss_scale` of 1 or less, which is that of no density.

        >>> print(mbd.identification.information(result))
        AIC -238.549, BIC -236.46: log-likelihood 121.275, 2 estimated from 21 measured numbers
    """
    check_instance("information: result", result, Fit, "a Fit")
    problem, series = result.problem, _series(result)
    loss, scale = problem.likelihood.loss, problem.likelihood.loss_scale
    total, count, constant = 0.0, 0, log_normaliser(loss, scale)
    if not np.isfinite(constant):
        raise MechanismError(
            f"information: the loss {loss!r} with loss_scale={scale:g} is that of no density, "
            "since its tails have no finite area: take a loss_scale above 1."
        )
    for parts in series.values():
        r, log_scales = np.concatenate(parts, axis=1)
        level = likeliest_level(loss, scale, r)
        scaled = np.asarray(transformed(loss, scale, jnp.asarray(r / level)))
        total -= r.size * (constant + np.log(level)) + 0.5 * float(scaled @ scaled) + float(np.sum(log_scales))
        count += r.size
    levels = len(series) * (2 if problem.noise == "coloured" else 1)
    return Comparison(count, len(problem.names()) + levels, total)


def _series(result: Fit) -> dict[str, list[Float[np.ndarray, "2 samples"]]]:
    """The residuals of each channel in units of the noise, whitened if it is coloured, and the logarithms of their
    scales: one series for each experiment and component, without missing samples."""
    found: dict[str, list[np.ndarray]] = {}
    for predicted, experiment in zip(result.predicted, result.experiments, strict=True):
        readings = {name: jnp.asarray(predicted[name]) for name in experiment.data}
        for name, parts in result.problem.likelihood.whitened(readings, experiment).items():
            r, log_scales, present = (np.asarray(x).reshape(len(x), -1).T for x in parts)
            pairs = zip(r, log_scales, present, strict=True)
            found.setdefault(name, []).extend(np.stack([x[is_there], s[is_there]]) for x, s, is_there in pairs)
    return found


@dataclass(frozen=True)
class Whiteness:
    """The test of Ljung and Box of each channel: are the residuals independent from sample to sample?

    - `statistic`, `p_value`: by channel; a p-value below 0.01 says that something follows the motion which the model
      does not have, so that errors that assume independence (with fewer than five experiments) are too small; NaN for
      a channel with too few samples, of fewer than four in each experiment;
    - `correlation`: the correlation of neighbouring samples, by channel; NaN as well.
    """

    statistic: dict[str, float]
    p_value: dict[str, float]
    correlation: dict[str, float]

    def __repr__(self) -> str:
        rows = [["channel", "p-value", "correlation of neighbours"]]
        rows += [[name, f"{p:.2g}", f"{self.correlation[name]:+.2f}"] for name, p in self.p_value.items()]
        return table(rows)


def whiteness(result: Fit, lags: int = _LAGS) -> Whiteness:
    """Test the residuals of each channel for independence, over all experiments together; if the noise is coloured,
    what its correlation leaves of them.

    `Fit.remarks` says what a small p-value means for the estimates.

        >>> print(mbd.identification.whiteness(result, lags=5))
        channel  p-value  correlation of neighbours
        O.angle     0.98                      +0.13
    """
    check_instance("whiteness: result", result, Fit, "a Fit")
    check_count("whiteness: lags", lags, 1)
    statistic, p_value, neighbours = {}, {}, {}
    for name, parts in _series(result).items():
        statistic[name], p_value[name], neighbours[name] = ljung_box((r for r, _ in parts), lags)
    return Whiteness(statistic, p_value, neighbours)


def prediction_errors(result: Fit | Prediction, fitted: Fit | None = None) -> tuple[dict[str, np.ndarray], ...]:
    """Return the standard errors of the model's readings that follow from those of the estimates, by experiment and
    channel: `√ diag(Y Σ Yᵀ)`, with the sensitivities `Y` of the readings and the covariance `Σ` of the estimates.

    Twice as much on both sides is a band that holds the true reading in 95 of 100 cases, if the model is right. For a
    `Prediction` give the `fitted` result that it comes from.

        >>> mbd.identification.prediction_errors(result)[0]["O.angle"].shape
        (21,)
    """
    check_instance("prediction_errors: result", result, (Fit, Prediction), "a Fit or a Prediction")
    source = fitted if isinstance(result, Prediction) else result
    if source is None:
        raise MechanismError("prediction_errors: of a Prediction it needs the Fit that it comes from, as fitted=.")
    factor = covariance_root(source.uncertainty, "prediction_errors")
    problem, theta = result.problem, result.theta
    if isinstance(result, Prediction):  # the initial states of other experiments count as known
        size = len(source.problem.parameter_names())
        problem, factor = eqx.tree_at(lambda p: p.parameters.fixed, problem, {}), factor[:size]
        theta = Unknowns(source.theta.parameters, theta.experiments)
        factor = np.concatenate([factor, np.zeros((_size(theta) - size, factor.shape[1]))])
    directions = [unflattened(column, theta) for column in factor.T]
    moved = jax.vmap(lambda d: jax.jvp(lambda x: problem.readings(x, "forward"), (theta,), (d,))[1])(
        jax.tree.map(lambda *x: jnp.stack(x), *directions)
    )
    deviations = jax.tree.map(lambda x: jnp.sqrt(jnp.sum(x**2, axis=0)), moved)
    return by_experiment(problem.stacks, deviations)


def _size(theta: Unknowns) -> int:
    return sum(x.size for x in jax.tree.leaves(theta))


@dataclass(frozen=True)
class Profile:
    """The loss along one parameter, all others fitted anew at each value.

    - `name`; `values`, and the `losses` there, in units of the residuals' variance, times the square of the factor by
      which correlations of residuals make the parameter's standard error larger; `best`: that of the fit;
    - `interval`: the values at which the loss exceeds the best one by half the quantile of χ² for the level; the end of
      the parameter's range on a side on which it does not within the values.
    """

    name: str
    values: Float[np.ndarray, " n"]
    losses: Float[np.ndarray, " n"]
    best: float
    interval: tuple[float, float]

    def __repr__(self) -> str:
        lower, upper = self.interval
        over = f"from {self.values.min():.6g} to {self.values.max():.6g}"
        return f"Profile of {self.name} {over}: {lower:.6g} to {upper:.6g}"


def profile_likelihood(
    result: Fit,
    name: str,
    values: Numbers | None = None,
    *,
    level: float = 0.95,
    steps: int = 50,
    progress: bool = True,
) -> Profile:
    """Return the loss along one parameter, with all others fitted anew at each value, and the interval it leads to.

    Unlike an interval from a standard error it needs no linear model: it may be lopsided, or open on one side.

    **Arguments:** `name`: a scalar parameter; `values`: by default 13 values up to four standard errors away, evenly
    spread in the numbers of the search, so that all lie in its range; `level`: of the interval; `steps`, `progress`: as
    for `fit`. Noise levels are those of the fit.

    **Warns:** `FitWarning` if a search does not converge.

    **Raises:** `MechanismError` for values outside the range of the parameter.

        >>> profile = mbd.identification.profile_likelihood(result, "rod.inertia", progress=False)
        >>> print(f"{profile.interval[0]:.4f} to {profile.interval[1]:.4f} kg m²")
        0.2489 to 0.2499 kg m²
    """
    check_instance("profile_likelihood: result", result, Fit, "a Fit")
    check_known("parameter", [name], result.parameters)
    if not eqx.is_array(result.parameters[name]) or result.parameters[name].ndim:
        raise MechanismError(
            f"profile_likelihood: {name!r} must be one number, it has {flat(result.parameters[name]).size}."
        )
    if not (isinstance(level, float) and 0 < level < 1):
        raise MechanismError(f"profile_likelihood: level must be between 0 and 1, such as 0.95, got {level!r}.")
    estimate, parameters = float(result.parameters[name]), result.problem.parameters
    given = _values(result, name) if values is None else as_float(values)
    check_finite("profile_likelihood", "values", given, (np.size(given),))
    values = np.asarray(given, float)
    for value in values:
        check_within(f"profile_likelihood: {name!r} has the value", parameters.free[name], value)
    *losses, best = _losses(result, name, [*values, estimate], steps, progress)
    variance = 2 * best / _freedom(result.problem)
    if result.uncertainty is not None:  # as intervals by the likelihood do (Chandler and Bate)
        variance *= result.uncertainty.widening[result.uncertainty.names.index(name)] ** 2
    losses, best = np.array(losses) / variance, best / variance
    limit = best + 0.5 * float(scipy.stats.chi2.ppf(level, 1))
    sides = (values <= estimate, values >= estimate)
    found = (_crossing(values[side], losses[side], estimate, best, limit) for side in sides)
    at, start = result.parameters[name], parameters.start[name]
    ends = (float(parameters.free[name].within.moved(at, jnp.asarray(end), start)) for end in (-np.inf, np.inf))
    lower, upper = (end if crossing is None else crossing for crossing, end in zip(found, ends, strict=True))
    return Profile(name, values, losses, best, (lower, upper))


def _values(result: Fit, name: str) -> np.ndarray:
    """Values up to four standard errors away, evenly spread in the numbers of the search, which have no range."""
    error = float((result.standard_errors or {}).get(name, np.inf))
    if not np.isfinite(error):
        raise MechanismError(f"{name!r} has no standard error: give the values of its profile, values=[...].")
    parameters, estimate = result.problem.parameters, {name: result.parameters[name]}
    within, start = parameters.free[name].within, parameters.start[name]
    u = parameters.unconstrained(estimate)[name]
    at = u + error / parameters.slopes(name, u)[0] * jnp.linspace(-4, 4, 13)
    values = np.unique(within.physical(jnp.clip(at, *within.bounds(start)), start))
    return np.array([value for value in values if within.contains(value)])


def _losses(result: Fit, name: str, values: Sequence[float], steps: int, progress: bool) -> list[float]:
    """The least loss with a parameter at each of some values; infinite where there is no motion."""
    problem = result.problem
    u, like = problem.unconstrained(result.theta), result.parameters[name]
    numbers = (problem.parameters.unconstrained({name: jnp.full_like(like, value)}) for value in values)
    starts = [u._replace(parameters=u.parameters | number) for number in numbers]
    minima = minima_side_by_side("profile_likelihood", [problem], starts, steps, 1e-6, progress, held=[name])
    return [one.loss if one.linearised else np.inf for one in minima]


def _freedom(problem: Problem) -> int:
    """How many more residuals than unknowns there are, jumps between segments included: at least one."""
    joints = (stack.lanes - stack.lanes // stack.segments for stack in problem.stacks)
    jumps = sum(n * len(stack.experiment.estimate) for n, stack in zip(joints, problem.stacks, strict=True))
    return max(problem.samples + jumps - len(problem.names()), 1)


def _crossing(values: np.ndarray, losses: np.ndarray, estimate: float, best: float, limit: float) -> float | None:
    """Where the loss crosses a limit on one side of the estimate, by interpolation; None if it does not."""
    order = np.argsort(np.abs(values - estimate))
    before = (estimate, best)
    for value, loss in zip(values[order], losses[order], strict=True):
        if loss > limit:
            # The loss is nearly a parabola: its root is interpolated.
            roots = [np.sqrt(max(x - best, 0.0)) for x in (before[1], loss, limit)]
            share = (roots[2] - roots[0]) / (roots[1] - roots[0])
            return float(before[0] + share * (value - before[0]))
        before = (value, loss)
    return None


def cross_validate(
    problem: Problem, folds: int = 5, *, steps: int = 50, progress: bool = True
) -> tuple[Prediction, ...]:
    """Fit the problem several times, each time without a part of the experiments, and predict these.

    Side by side; one after another if the noise is estimated, or if experiments are cut into segments.

    **Arguments:** `folds`: the number of parts; experiment `k` belongs to part `k % folds`.

    **Returns:** for each part the prediction of its experiments by a fit of all others.

    **Warns:** `FitWarning` if a search does not converge. **Raises:** `SolveError` if one cannot begin.

        >>> twice = mbd.identification.Problem(pendulum, [experiment] * 2, free)
        >>> predictions = mbd.identification.cross_validate(twice, folds=2)  # doctest: +SKIP
    """
    check_instance("cross_validate: problem", problem, Problem, "a Problem")
    check_count("cross_validate: folds", folds, 2)
    experiments = problem.experiments()
    if len(experiments) < folds:
        raise MechanismError(f"cross_validate: {len(experiments)} experiments cannot be divided into {folds} parts.")
    if problem.is_cut or problem.noise != "given":
        fits = [fit(_apart(problem, k, folds), steps=steps, progress=progress) for k in range(folds)]
    else:
        problems = [_without(problem, k, folds) for k in range(folds)]
        fits = side_by_side("cross_validate", problems, steps, 1e-6, progress)
    for k, one in enumerate(fits):
        if one.uncertainty is None:
            raise SolveError(
                f"cross_validate: the fit without part {k} of the experiments cannot begin: they cannot be assembled "
                "or simulated with the values at which the search starts. Give another start."
            )
    return tuple(
        predict(one, [e for place, e in enumerate(experiments) if place % folds == k], steps=steps, progress=progress)
        for k, one in enumerate(fits)
    )


def _without(problem: Problem, fold: int, folds: int) -> Problem:
    """The problem without the measurements of a part of the experiments, which are simulated all the same."""
    stacks = []
    for stack in problem.stacks:
        left_out = jnp.asarray(np.array(stack.places) % folds == fold)
        data = {
            name: jnp.where(left_out.reshape((-1,) + (1,) * (x.ndim - 1)), jnp.nan, x)
            for name, x in stack.experiment.data.items()
        }
        stacks.append(eqx.tree_at(lambda s: s.experiment.data, stack, data))
    return eqx.tree_at(lambda p: p.stacks, problem, tuple(stacks))


def _apart(problem: Problem, fold: int, folds: int) -> Problem:
    """The problem without a part of the experiments."""
    kept = [e for place, e in enumerate(problem.experiments()) if place % folds != fold]
    return eqx.tree_at(lambda p: p.stacks, problem, stacked(kept, problem.stacks[0].segments))


def summary(result: Fit) -> Sequence[str]:
    """Return what is to be said about the quality of a fit beside its warnings, a sentence each."""
    test = whiteness(result)
    untested = [name for name, p in test.p_value.items() if np.isnan(p)]
    correlated = {one.channel for one in result.residual_tests if one.is_correlated}
    independent = [name for name, p in test.p_value.items() if p >= _INDEPENDENT and name not in correlated]
    reason = f" ({result.reason})" if result.reason else ""
    said = [f"Search: {result.outcome}{reason}.", f"{information(result)}."]
    if result.problem.shooting:
        said.append(f"{result.problem.shooting}.")
    if independent:
        said.append(
            f"The residuals of {', '.join(independent)} are independent from sample to sample (Ljung-Box, p > 0.01)."
        )
    if untested:
        said.append(f"The residuals of {', '.join(untested)} are not tested for independence: too few samples.")
    return said
