"""The posterior distribution of the unknowns, sampled by the No-U-Turn sampler of BlackJAX.

The sampler works on `z` with `u = û + R⁻¹ z`, where `û` are the numbers of the search at the estimates and `Rᵀ R = Jᵀ
J` there: if the residuals were linear, `z` would have the standard normal distribution (the Laplace approximation), so
that the sampler needs no adaptation of its metric. The density is that of the likelihood, the priors, and the jumps
between segments if there are any; parameters without a prior have a constant density within their range. Numbers `u`
beyond the bounds of a `Box` stand for their mirror images within it, so that no trajectory ends at a bound.

Source: Hoffman and Gelman, J. Machine Learning Research 15 (2014); Vehtari et al., Bayesian Analysis 16 (2021).
"""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, PyTree

from jaxmbd.checks import check_count, check_instance
from jaxmbd.engine import cached_on_disk
from jaxmbd.errors import MechanismError, needs
from jaxmbd.identification._experiment import OWN
from jaxmbd.identification._linearisation import evaluated, flattened, linearised, unflattened
from jaxmbd.identification._minimise import without_multipliers
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._segments import jump_residuals
from jaxmbd.identification._uncertainty import dense
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.identification.result import Fit
from jaxmbd.parameters.labels import by_owner, summed_up
from jaxmbd.printing import table
from jaxmbd.progress import reporting

_STEP = 0.5  # the first step in z, which the warm-up adapts
# The rate that it aims at: with Stan's 0.8 a step overshoots now and then where the density is not quite normal.
_ACCEPTANCE = 0.9
# A trajectory has at most 2**7 steps: it would go on for ever over the mirror images beyond the bounds of a `Box`.
_DOUBLINGS = 7


class Posterior(eqx.Module):
    """Samples of the posterior distribution. `print` shows them beside the Laplace approximation.

    - `samples`: by name of the unknowns (`problem.names()`), physical values `(chains, draws)`;
    - `divergences`: the number of draws whose integration has failed: more than a few, and the distribution has a part
      that the sampler does not reach;
    - `effective`: the number of independent draws that tell as much, by name; `r_hat`: the ratio of the variance
      between and within chains, by name, below 1.01 if all chains have reached the distribution;
    - `estimates`, `laplace`: the mean and the standard deviation in the Laplace approximation, by name; `units`;
    - `z (chains, draws, unknowns)`: the samples in the coordinates in which that is the standard normal distribution;
    - `owners`: the parameters that the unknowns belong to.
    """

    samples: dict[str, Float[np.ndarray, "chains draws"]]
    divergences: int
    effective: dict[str, float]
    r_hat: dict[str, float]
    estimates: dict[str, float]
    laplace: dict[str, float]
    units: dict[str, str]
    z: Float[np.ndarray, "chains draws unknowns"]
    owners: tuple[str, ...]

    def __repr__(self) -> str:
        rows = [["", "mean", "deviation", "Laplace", "2.5 %", "97.5 %", "effective", "R-hat"]]
        for name, members in summed_up(by_owner(self.samples, self.owners)).items():
            if len(members) > 1:  # a parameter of many numbers: the worst of them
                worst = min(self.effective[n] for n in members), max(self.r_hat[n] for n in members)
                rows.append([name, "", "", "", "", "", f"{worst[0]:.0f}", f"{worst[1]:.3f}"])
                continue
            x = self.samples[name]
            low, high = np.quantile(x, (0.025, 0.975))
            numbers = float(x.mean()), float(x.std()), self.laplace[name], float(low), float(high)
            rows.append(
                [name, *(f"{value:.5g}" for value in numbers), f"{self.effective[name]:.0f}", f"{self.r_hat[name]:.3f}"]
            )
        chains, draws, _ = self.z.shape
        return f"{chains} chains of {draws} draws, {self.divergences} divergences\n{table(rows)}"


def sample_posterior(
    result: Fit, *, draws: int = 1000, warmup: int = 200, chains: int = 2, seed: int = 0, progress: bool = True
) -> Posterior:
    """Sample the posterior distribution of a problem, from its fit on.

    The noise levels are those of the problem: fit it with `noise="white"` or `"coloured"` if they are not known.

    **Arguments:** `draws`: of each chain; `warmup`: draws before them, by which the step is adapted and which do not
    count; `chains`, which run side by side; `seed`; `progress`. Ctrl-C ends the sampling and returns the draws so far.

    **Returns:** a `Posterior`; print it.

    **Raises:** `MechanismError` if the data and priors do not determine all unknowns, or if BlackJAX is not installed.

        >>> samples = mbd.identification.sample_posterior(result, draws=500)  # doctest: +SKIP
    """
    check_instance("sample_posterior: result", result, Fit, "a Fit")
    for name, number in (("draws", draws), ("warmup", warmup), ("chains", chains)):
        check_count(f"sample_posterior: {name}", number, 1)
    check_count("sample_posterior: seed", seed, 0)
    if result.uncertainty is None or result.uncertainty.is_open.any():
        raise MechanismError(
            "sample_posterior: the data do not determine all unknowns, so that the posterior has no finite width: give "
            f"priors to some. {'; '.join(map(str, result.undetermined))}"
        )
    needs("sample_posterior", "blackjax", "bayes")
    import blackjax

    problem, u = result.problem, result.problem.unconstrained(result.theta)
    inverse_root = _inverse_root(problem, u)
    numbers = eqx.Partial(_numbers, *map(jnp.asarray, (flattened(u), inverse_root, *map(flattened, problem.bounds()))))
    density = eqx.Partial(_log_density, problem, u, numbers)
    with reporting(progress, "compiling the sampler ...") as report:
        z, diverged = _drawn(blackjax, density, (chains, len(inverse_root)), draws, warmup, seed, report)
    return _summarised(result, u, blackjax, inverse_root, numbers, z, diverged)


def _inverse_root(problem: Problem, u: Unknowns) -> np.ndarray:
    """`R⁻¹` with `Rᵀ R = Jᵀ J` at the estimates, in units of the given noise."""
    joins = without_multipliers(problem, problem.continuity)
    at = linearised(problem, evaluated(problem, u, joins))
    R = np.asarray(np.linalg.qr(dense(at)[0], mode="r"))
    return scipy.linalg.solve_triangular(R, np.eye(len(R)))


def _numbers(centre: Array, inverse_root: Array, lower: Array, upper: Array, z: Array) -> Array:
    """The numbers of the search of `z`, reflected at their bounds as often as it takes."""
    x = centre + inverse_root @ z
    is_box = jnp.isfinite(upper - lower)
    start, width = jnp.where(is_box, lower, 0.0), jnp.where(is_box, upper - lower, 1.0)
    between = start + width * (1 - jnp.abs(jnp.mod((x - start) / width, 2.0) - 1))
    above = jnp.where(x < lower, 2 * lower - x, x)
    return jnp.where(is_box, between, jnp.where(above > upper, 2 * upper - above, above))


def _log_density(problem: Problem, like: Unknowns, numbers: Callable[[Array], Array], z: Array) -> Array:
    """The logarithm of the density of `z`, but for a constant."""
    u = unflattened(numbers(z), like)
    theta = problem.physical(u)
    of_jumps = -0.5 * jnp.sum(jump_residuals(problem, theta, "reverse") ** 2)
    return problem.log_likelihood(theta, "reverse") + of_jumps + problem.log_prior(theta) + _log_slopes(problem, u)


def _log_slopes(problem: Problem, u: Unknowns) -> Array:
    """The logarithm of the determinant of `dp/du`, by which a density of `p` becomes one of `u`."""
    own = ((name.removeprefix(OWN), x) for of in u.experiments for name, x in of.items() if name.startswith(OWN))
    slopes = [slope for name, x in (*u.parameters.items(), *own) for slope in problem.parameters.slopes(name, x)]
    logarithms = (jnp.sum(jnp.log(jnp.abs(x))) if x.ndim == 1 else jnp.linalg.slogdet(x)[1] for x in slopes)
    return sum(logarithms, jnp.zeros(()))


@eqx.filter_jit
def _draw(
    blackjax: Any, density: Callable[[Array], Array], state: PyTree, keys: Array, step: Array
) -> tuple[PyTree, PyTree]:
    """One draw of all chains: their states after it, and what is to be said of it."""
    kernel, ones = blackjax.nuts.build_kernel(), jnp.ones(state.position.shape[1])
    return jax.vmap(lambda state, key, step: kernel(key, state, density, step, ones, _DOUBLINGS))(state, keys, step)


@cached_on_disk
def _begun(density: Callable[[Array], Array], z: Array) -> tuple[Array, Array]:
    """The logarithms of the densities of all chains at their starts, and the slopes."""
    return jax.vmap(jax.value_and_grad(density))(z)


def _drawn(
    blackjax: Any, density: Callable[[Array], Array], shape: tuple[int, int], draws: int, warmup: int, seed: int,
    report: Callable[[str], None],
) -> tuple[np.ndarray, int]:  # fmt: skip
    """The draws of all chains `(chains, draws, unknowns)`, and the number of divergences. The same program draws in the
    warm-up and after it, one draw a call, so that it is compiled once and shows how far it is."""
    begin, update, final = blackjax.adaptation.step_size.dual_averaging_adaptation(_ACCEPTANCE)
    z = jax.random.normal(jax.random.key(seed), shape)
    state = blackjax.mcmc.hmc.HMCState(z, *_begun(density, z))
    keys = jax.random.split(jax.random.key(seed + 1), (warmup + draws, shape[0]))
    adapted, update = jax.vmap(begin)(jnp.full(shape[0], _STEP)), jax.jit(jax.vmap(update))
    for k in range(warmup):
        state, info = _draw(blackjax, density, state, keys[k], jnp.exp(adapted.log_step_size))
        adapted = update(adapted, info.acceptance_rate)
        report(f"warm-up: draw {k + 1} of {warmup}")
    step = jnp.full(shape[0], jnp.median(jax.vmap(final)(adapted)))
    parts, diverged, began = [], 0, time.monotonic()
    try:
        for k in range(draws):
            state, info = _draw(blackjax, density, state, keys[warmup + k], step)
            parts.append(np.asarray(state.position))
            diverged += int(np.sum(np.asarray(info.is_divergent)))
            left = (time.monotonic() - began) / len(parts) * (draws - len(parts))
            report(f"draw {len(parts)} of {draws}, {left:.0f} s left")
    except KeyboardInterrupt:
        if not parts:
            raise
    return np.stack(parts, axis=1), diverged


def _summarised(
    result: Fit,
    u: Unknowns,
    blackjax: Any,
    inverse_root: np.ndarray,
    numbers: Callable[[Array], Array],
    z: np.ndarray,
    diverged: int,
) -> Posterior:
    problem = result.problem
    found = np.asarray(jax.vmap(jax.vmap(numbers))(jnp.asarray(z)))
    z = (found - flattened(u)) @ np.linalg.inv(inverse_root).T

    def physical(x: Array) -> Array:
        theta = problem.physical(unflattened(x, u))  # pyright: ignore[reportArgumentType]
        rows = [jnp.stack([own[n] for n in sorted(own)], axis=1).ravel() for own in theta.experiments if own]
        return jnp.concatenate([*(jnp.ravel(x) for x in jax.tree.leaves(theta.parameters)), *rows])

    values = np.asarray(jax.jit(jax.vmap(jax.vmap(physical)))(jnp.asarray(found)))
    twice = lambda x: (physical(x),) * 2  # noqa: E731
    slope, estimates = map(np.asarray, jax.jit(jax.jacfwd(twice, has_aux=True))(jnp.asarray(flattened(u))))
    deviations = np.linalg.norm(slope @ inverse_root, axis=1)
    names = problem.names()
    effective = np.atleast_1d(jax.jit(blackjax.diagnostics.effective_sample_size)(values))
    r_hat = np.full(len(names), np.nan)
    if len(z) > 1:
        r_hat = np.atleast_1d(jax.jit(blackjax.diagnostics.potential_scale_reduction)(values))
    return Posterior(
        {name: values[..., k] for k, name in enumerate(names)},
        diverged,
        {name: float(effective[k]) for k, name in enumerate(names)},
        {name: float(r_hat[k]) for k, name in enumerate(names)},
        {name: float(estimates[k]) for k, name in enumerate(names)},
        {name: float(deviations[k]) for k, name in enumerate(names)},
        {name: result.units.get(owner, "") for name, owner in zip(names, problem.owners(), strict=True)},
        z,
        problem.owners(),
    )
