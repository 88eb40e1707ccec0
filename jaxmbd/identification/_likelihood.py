"""The likelihood of measurements, and the prior: residuals in units of the noise, and densities."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.errors import MechanismError
from jaxmbd.identification._experiment import OWN, Experiment
from jaxmbd.identification._losses import Loss, transformed
from jaxmbd.identification._noise import log_density, whitened
from jaxmbd.identification._unknowns import Unknowns
from jaxmbd.parameters.parameters import Parameters

Noise = Literal["given", "white", "coloured"]


class Likelihood(eqx.Module):
    """How readings of the model and measurements of one experiment are compared: the loss, and how noise is known."""

    loss: Loss = eqx.field(static=True)
    loss_scale: float = eqx.field(static=True)
    noise: Noise = eqx.field(static=True)

    def whitened(self, readings: dict[str, Array], experiment: Experiment) -> dict[str, tuple[Array, Array, Array]]:
        """Return for each channel the independent residuals in units of the noise, the logarithms of their scales, and
        which samples are present."""
        found = {}
        for name, measured in experiment.data.items():
            if readings[name].shape != measured.shape:
                raise MechanismError(
                    f"Channel {name!r} must have the shape {readings[name].shape}, as in the model, got "
                    f"{measured.shape}."
                )
            present = jnp.isfinite(measured)
            errors = readings[name] - jnp.where(present, measured, 0.0)
            level = experiment.sigma[name], experiment.correlation_time[name]
            found[name] = (*whitened(errors, present, experiment.ts, *level), present)
        return found

    def residual(self, readings: dict[str, Array], experiment: Experiment) -> Float[Array, " rows"]:
        """Return the residuals, transformed for the loss."""
        parts = [r.reshape(-1) for r, *_ in self.whitened(readings, experiment).values()]
        return transformed(self.loss, self.loss_scale, jnp.concatenate(parts))

    def log_density(self, readings: dict[str, Array], experiment: Experiment) -> Float[Array, ""]:
        """Return the logarithm of the density of the measurements."""
        total = jnp.zeros(())
        for r, logs, present in self.whitened(readings, experiment).values():
            total += log_density(transformed(self.loss, self.loss_scale, r), logs, present)
        return total


def prior_residuals(parameters: Parameters, theta: Unknowns) -> Float[Array, " rows"]:
    """Return the residuals of the priors; those of own parameters follow the shared ones."""
    rows = [free.prior.residual(x).reshape(-1) for free, x in _with_priors(parameters, theta)]
    return jnp.concatenate(rows) if rows else jnp.zeros(0)


def log_prior(parameters: Parameters, theta: Unknowns) -> Float[Array, ""]:
    """Return the logarithm of the prior density; zero for parameters that have no prior."""
    return sum((jnp.sum(free.prior.log_density(x)) for free, x in _with_priors(parameters, theta)), jnp.zeros(()))


def _with_priors(parameters: Parameters, theta: Unknowns) -> list[tuple[Any, Array]]:
    """The parameters that have a prior, with each of their leaves."""
    numbers = [*theta.parameters.items()]
    for own in theta.experiments:
        numbers += [(name.removeprefix(OWN), x) for name, x in own.items() if name.startswith(OWN)]
    given = [(parameters.free[n], x) for n, x in numbers if parameters.free[n].prior is not None]
    return [(parameter, jnp.asarray(leaf)) for parameter, x in given for leaf in jax.tree.leaves(x)]
