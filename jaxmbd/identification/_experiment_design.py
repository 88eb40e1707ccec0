"""Experiment design: which measurements tell most about the parameters, before anything is measured.

The Fisher information of an experiment is `F = Jᵀ J`, with the sensitivities `J` of its readings to the parameters, in
units of the noise; what its own unknowns (initial states) could imitate is subtracted. The information of independent
experiments adds up, and the standard errors to be expected are `√ diag F⁻¹`.

Source: Atkinson, Donev, Tobias, *Optimum Experimental Designs, with SAS* (2007), chapters 10 to 12.
"""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxmbd.checks import check_count, check_instance
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._losses import efficiency
from jaxmbd.identification._problem import Problem
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.parameters.parameters import flat
from jaxmbd.printing import table

Criterion = Literal["D", "A"]

_DEPENDENT = 1e-8  # share of the largest singular value below which sensitivities count as dependent
_NO_INFORMATION = 1e-10  # share of the largest information below which a direction has none
_TAKES_PART = 1e-4  # component of a unit vector without information from which a parameter is not determined


def fisher_information(problem: Problem, theta: Unknowns | None = None) -> Float[Array, "experiments p p"]:
    """Return the Fisher information of each experiment about the parameters, per unit of each, sorted by name.

    It does not depend on the measured values, but on the times, channels, noise levels, inputs and initial states; it
    is differentiable with respect to all of them, so that `log det Σ F` can be maximised over any of them by gradients.
    Under a robust loss it is what the estimate takes of it if the noise is normal, the share `E[ψ']² / E[ψ²]` (0.96 for
    `"huber"` at 1.5 noise levels). Priors are not part of it. The experiments have the order in which they were given.

    **Arguments:** `theta`: the parameters that are assumed, by default those at which a search starts.

    **Raises:** `MechanismError` if experiments are cut into segments.

        >>> mbd.identification.fisher_information(problem, result.theta).shape
        (1, 1, 1)
    """
    check_instance("fisher_information: problem", problem, Problem, "a Problem")
    if problem.is_cut:
        raise MechanismError("fisher_information takes whole experiments: leave segments out of the problem.")
    theta = _assumed("fisher_information", problem, theta)
    found = []
    for own, stack in zip(theta.experiments, problem.stacks, strict=True):
        found.append(jax.vmap(lambda own, e: _of_one(problem, theta.parameters, own, e))(own, stack.experiment))
    # Experiments of other structure are in other stacks.
    places = np.concatenate([stack.places for stack in problem.stacks])
    return (
        efficiency(problem.likelihood.loss, problem.likelihood.loss_scale) * jnp.concatenate(found)[np.argsort(places)]
    )


def _assumed(what: str, problem: Problem, theta: Unknowns | None) -> Unknowns:
    """The parameters that are assumed."""
    if theta is None:
        return problem.start()
    check_instance(f"{what}: theta", theta, Unknowns, "the theta of a Fit, or problem.start()")
    return theta


def _of_one(problem: Problem, parameters: dict, own: dict, experiment: Experiment) -> Array:
    values, unravel = ravel_pytree((own, parameters))

    def residuals(x: Array) -> Array:
        own, parameters = unravel(x)
        whitened = problem.likelihood.whitened(problem.model.reading(parameters, own, experiment, "any"), experiment)
        return jnp.concatenate([r.reshape(-1) for r, *_ in whitened.values()])

    J = jax.jacfwd(residuals)(values)
    k = ravel_pytree(own)[0].size
    mine, shared = J[:, :k], J[:, k:]
    if not k:
        return shared.T @ shared
    lengths = jnp.linalg.norm(jax.lax.stop_gradient(mine), axis=0, keepdims=True)
    mine = mine / jnp.where(lengths > 0, lengths, 1.0)
    rest = shared - mine @ (jnp.linalg.pinv(mine, rtol=_DEPENDENT) @ shared)  # its own unknowns may be dependent
    return rest.T @ rest


@dataclass(frozen=True)
class ExperimentChoice:
    """A choice of experiments. `print` shows them with the standard errors to be expected.

    - `chosen`: the numbers of the experiments, in the order in which they were chosen;
    - `standard_errors`: to be expected from these, by name, infinite for what they do not determine; `of_all`: from all
      candidates;
    - `criterion`, and its `value`: `log det F` for "D", the sum of the relative variances for "A".
    """

    chosen: tuple[int, ...]
    standard_errors: dict[str, float]
    of_all: dict[str, float]
    criterion: Criterion
    value: float

    def __repr__(self) -> str:
        rows = [["", "standard error", "with all candidates"]]
        rows += [[name, f"{x:.3g}", f"{self.of_all[name]:.3g}"] for name, x in self.standard_errors.items()]
        return f"Experiments {', '.join(map(str, self.chosen))} ({self.criterion}-optimal)\n{table(rows)}"


def choose_experiments(
    problem: Problem, count: int, criterion: Criterion = "D", theta: Unknowns | None = None
) -> ExperimentChoice:
    """Choose the experiments that tell most about the parameters, out of those of a problem.

    They are chosen one after another, then exchanged as long as that helps (Fedorov's algorithm).

    **Arguments:** `problem`: with the candidates as experiments; their measured values do not matter (zeros will do),
    but their noise levels do; `count`: how many to choose; `criterion`: `"D"`, the least volume of the confidence
    region, or `"A"`, the least sum of the variances relative to the squares of the parameters; `theta`: as for
    `fisher_information`.

    **Raises:** `MechanismError` if there are not enough candidates, or if all together do not determine the parameters.

        >>> longer = mbd.Experiment(2 * ts, {"O.angle": angle}, start=start, sigma=1e-3)
        >>> candidates = mbd.identification.Problem(pendulum, [experiment, longer], free)
        >>> mbd.identification.choose_experiments(candidates, 1, theta=result.theta).chosen
        (1,)
    """
    check_instance("choose_experiments: problem", problem, Problem, "a Problem")
    check_count("choose_experiments: count", count, 1)
    check_known("criterion", [criterion], ("D", "A"))
    theta = _assumed("choose_experiments", problem, theta)
    values = np.concatenate([flat(theta.parameters[name]) for name in sorted(theta.parameters)])
    sizes = np.where(values == 0, 1.0, np.abs(values))
    information = np.asarray(eqx.filter_jit(fisher_information)(problem, theta))
    information = information * np.outer(sizes, sizes)
    if count > len(information):
        raise MechanismError(
            f"choose_experiments: there are {len(information)} candidates, of which {count} are wanted."
        )
    names = problem.parameter_names()
    least = _NO_INFORMATION * np.abs(information).max()
    of_all = dict(zip(names, (sizes * _errors(information.sum(axis=0), least)).tolist(), strict=True))
    unknown = [name for name, error in of_all.items() if not np.isfinite(error)]
    if unknown:
        raise MechanismError(
            "choose_experiments: all candidates together do not determine the parameters "
            f"{', '.join(unknown)}. Offer other motions, channels or inputs, or fix a parameter."
        )
    chosen = _exchanged(information, _greedy(information, count, criterion), criterion)
    errors = dict(zip(names, (sizes * _errors(information[chosen].sum(axis=0), least)).tolist(), strict=True))
    value = _merit(information[chosen].sum(axis=0), criterion)
    return ExperimentChoice(tuple(chosen), errors, of_all, criterion, -value if criterion == "A" else value)


def _errors(F: np.ndarray, least: float) -> np.ndarray:
    """The standard errors of an information, infinite for numbers with a component along which it is not above the
    least."""
    values, vectors = np.linalg.eigh(F)
    is_known = values > least
    is_open = np.linalg.norm(vectors[:, ~is_known], axis=1) > _TAKES_PART
    errors = np.sqrt(np.sum(vectors[:, is_known] ** 2 / values[is_known], axis=1))
    return np.where(is_open, np.inf, errors)


def _merit(F: np.ndarray, criterion: Criterion) -> float:
    """What is to be maximised: `log det F`, or minus the trace of its inverse. A little of the identity makes it finite
    for too few experiments."""
    F = F + 1e-9 * np.trace(F) / len(F) * np.eye(len(F))
    if criterion == "D":
        return float(np.linalg.slogdet(F)[1])
    return -float(np.trace(np.linalg.inv(F)))


def _greedy(information: np.ndarray, count: int, criterion: Criterion) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        so_far = information[chosen].sum(axis=0)
        others = [k for k in range(len(information)) if k not in chosen]
        chosen.append(max(others, key=lambda k: _merit(so_far + information[k], criterion)))
    return chosen


def _exchanged(information: np.ndarray, chosen: list[int], criterion: Criterion) -> list[int]:
    """Exchange one experiment for another as long as the merit grows."""
    while True:
        best, swap = _merit(information[chosen].sum(axis=0), criterion), None
        for place, leaves in enumerate(chosen):
            rest = information[chosen].sum(axis=0) - information[leaves]
            for enters in set(range(len(information))) - set(chosen):
                merit = _merit(rest + information[enters], criterion)
                if merit > best + 1e-9 * abs(best):
                    best, swap = merit, (place, enters)
        if swap is None:
            return chosen
        chosen[swap[0]] = swap[1]
