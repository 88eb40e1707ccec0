"""How far a fitted law may be trusted: where its arguments have been, and the standard errors of what it says there.

A law learned from measurements, such as a network, says something everywhere, but the data tell only of the values of
its arguments that the motions have visited.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxmbd.arrays import Number
from jaxmbd.checks import check_callable, check_instance
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._stacks import by_experiment
from jaxmbd.identification._uncertainty import Uncertainty
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.identification.result import AbstractComparison, Fit
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.progress import reporting
from jaxmbd.user_functions import user_array


def visited(result: AbstractComparison, *channels: str) -> dict[str, np.ndarray]:
    """Return the values that channels of the motion have taken at the samples of all experiments, measured or not.

    A sample counts up to the last measurement of its experiment. The least and the largest value of the arguments of a
    learned law bound the range in which it may be trusted; those of a `Prediction` tell whether it stays inside.

    **Arguments:** `result`: a `Fit` or a `Prediction`; `channels`: any that a solution can read, such as
    `"rail.displacement"`.

    **Returns:** by channel `(samples of all experiments, ...)`, in the channel's unit, in one order for all channels.

    **Raises:** `MechanismError` for unknown channels.

        >>> angles = mbd.identification.visited(result, "O.angle")["O.angle"]
        >>> print(f"{angles.min():.3f} to {angles.max():.3f} rad")
        -2.140 to -1.000 rad
    """
    check_instance("visited: result", result, AbstractComparison, "a Fit or a Prediction")
    check_known("channel", channels, result.channel_units())
    problem = result.problem

    def of_one(own: dict[str, Array], experiment: Experiment) -> dict[str, Array]:
        solution, places, _ = problem.model.motion(result.theta.parameters, own, experiment, "any")
        series = solution.read(channels)
        return {name: x[places[""]] if places else x for name, x in series.items()}

    with reporting(True, "simulating ..."):
        pairs = zip(result.theta.experiments, problem.stacks, strict=True)
        values = [eqx.filter_jit(jax.vmap(of_one))(own, stack.experiment) for own, stack in pairs]
    kept = [
        {name: x[: _last(experiment)] for name, x in one.items()}
        for one, experiment in zip(by_experiment(problem.stacks, values), result.experiments, strict=True)
    ]
    return {name: np.concatenate([one[name] for one in kept]) for name in channels}


def _last(experiment: Experiment) -> int:
    """The number of samples up to the last that is not missing."""
    count = len(experiment.ts)
    present = [np.isfinite(np.asarray(x)).reshape(count, -1).any(axis=1) for x in experiment.data.values()]
    return int(np.flatnonzero(np.any(present, axis=0)).max(initial=-1)) + 1


def standard_errors_of(result: Fit, quantity: Callable[[Mechanism], Number]) -> np.ndarray:
    """Return the standard errors of anything that is computed from the mechanism, such as a force of a learned law.

    `√ diag(G Σ Gᵀ)`, with the sensitivities `G` of the quantity to the parameters and their covariance `Σ` (the delta
    method). Twice as much on both sides is a band that holds the true value in 95 of 100 cases, if the model is right
    and the law can take the true form; outside the range visited the band is that of the prior.

    **Arguments:** `result`: a fit by Levenberg-Marquardt; `quantity`: a function of the mechanism that can be
    differentiated, `lambda m: jax.vmap(m["spring"].parameters)(xs)`.

    **Returns:** an array of the quantity's shape and unit.

    **Raises:** `MechanismError` if the fit has no standard errors, or if the data and priors do not determine all
    unknowns.

        >>> error = mbd.identification.standard_errors_of(result, lambda m: m["rod"].inertia + 0.25 * m["rod"].mass)
        >>> print(f"{error:.0e} kg m²")
        3e-04 kg m²
    """
    check_instance("standard_errors_of: result", result, Fit, "a Fit")
    check_callable("standard_errors_of", "quantity", quantity)
    problem, parameters = result.problem, result.theta.parameters
    flat, unravel = ravel_pytree(parameters)
    root = covariance_root(result.uncertainty, "standard_errors_of")[: flat.size]

    def of_parameters(x: Array) -> Array:
        mechanism = problem.mechanism(Unknowns(unravel(x), ()))
        return user_array("standard_errors_of", "quantity", quantity, mechanism, takes="mechanism")

    along = jax.jit(jax.vmap(lambda direction: jax.jvp(of_parameters, (flat,), (direction,))[1]))
    return np.asarray(np.sqrt(np.sum(np.asarray(along(jnp.asarray(root.T))) ** 2, axis=0)))


def covariance_root(uncertainty: Uncertainty | None, what: str) -> np.ndarray:
    """Return `R` with `R Rᵀ = Σ`, the covariance of all unknowns; raise if there is none, in the name of `what`."""
    if uncertainty is None:
        raise MechanismError(
            f"{what} needs a Fit with standard errors, which an optimiser does not compute: fit again from its end, "
            "fit(problem.starting_at(result.theta))."
        )
    if uncertainty.is_open.any():
        raise MechanismError(
            f"{what}: the data do not determine all unknowns, so that the band has no finite width: "
            f"{'; '.join(map(str, uncertainty.undetermined))}."
        )
    values, vectors = np.linalg.eigh(uncertainty.covariance)
    return vectors * np.sqrt(np.maximum(values, 0.0))
