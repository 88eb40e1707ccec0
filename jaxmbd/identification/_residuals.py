"""The residuals of all experiments as one vector, and their Jacobian by blocks.

The unknowns are the parameters, which all experiments share, and the initial state of each experiment, on which only
its own residuals depend. Therefore the Jacobian is computed for each experiment with respect to its own few unknowns,
in one batch, and the blocks are assembled.
"""

from typing import Any, Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.events.event import Event
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.analyses.simulation.step_control import Accuracy, Adjoint
from jaxmbd.analyses.state import State
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._parameters import Parameters
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.model.mechanism.mechanism import Mechanism

Unknowns = tuple[dict[str, Any], tuple[dict[str, Array], ...]]


class Settings(eqx.Module):
    """The options with which the experiments are simulated."""

    formulation: AbstractFormulation | None = None
    solver: dfx.AbstractSolver | Literal["stiff"] | None = None
    stepsize_controller: dfx.AbstractStepSizeController | None = None
    rtol: Array | None = None
    atol: Array | None = None
    dt0: float | int | None = None
    events: tuple[Event, ...] = ()
    accuracy: Accuracy = eqx.field(default="standard", static=True)
    control_speeds: bool = eqx.field(default=False, static=True)
    max_events: int = eqx.field(default=32, static=True)
    max_steps: int = eqx.field(default=2**16, static=True)


class Problem(eqx.Module):
    """Parameters, experiments (stacked if their shapes are equal) and settings."""

    parameters: Parameters
    stacks: tuple[Experiment, ...]
    settings: Settings

    def start(self) -> Unknowns:
        """Return the unknowns at which the search starts."""
        return self.parameters.unconstrained(), tuple(stack.unknowns() for stack in self.stacks)


def predict(
    problem: Problem, u: dict[str, Any], unknowns: dict[str, Array], experiment: Experiment, derivative: Adjoint
) -> dict[str, Array]:
    """Return the model's values of the measured channels of one experiment."""
    mechanism = problem.parameters.mechanism_at(u)
    settings = problem.settings
    solution = simulate(
        mechanism, initial_state(mechanism, experiment, unknowns), experiment.ts,
        formulation=settings.formulation, solver=settings.solver, stepsize_controller=settings.stepsize_controller,
        rtol=settings.rtol, atol=settings.atol, dt0=settings.dt0,
        accuracy=settings.accuracy, control_speeds=settings.control_speeds,
        events=settings.events, max_events=settings.max_events,
        adjoint=derivative, max_steps=settings.max_steps, throw=False,
    )  # fmt: skip
    return solution.read(experiment.data)


def initial_state(mechanism: Mechanism, experiment: Experiment, unknowns: dict[str, Array]) -> State:
    """Return the assembled initial state of one experiment."""
    start, speeds = experiment.initial(unknowns)
    return assemble(mechanism, start, speeds=speeds, t=experiment.ts[0], check=False)


def residuals(problem: Problem, values: tuple[dict[str, Array], ...]) -> Array:
    """Return `(model − measured) / sigma` of all experiments as one vector; zero for missing samples."""
    parts = []
    for model, stack in zip(values, problem.stacks, strict=True):
        for name, measured in stack.data.items():
            miss = model[name] - jnp.where(jnp.isfinite(measured), measured, 0.0)
            parts.append(weigh(miss[..., None], stack, name).reshape(-1))
    return jnp.concatenate(parts)


def experiment_of_rows(problem: Problem) -> np.ndarray:
    """Return the number of the experiment of each residual, in the order of the stacks."""
    numbers, first = [], 0
    for stack in problem.stacks:
        count = len(stack.ts)
        numbers += [np.repeat(first + np.arange(count), data[0].size) for data in stack.data.values()]
        first += count
    return np.concatenate(numbers)


def weigh(values: Array, stack: Experiment, name: str) -> Array:
    """Divide a channel `(experiments, ..., k)` by its noise level and return it as `(experiments, samples, k)`.

    Missing samples are zero.
    """
    measured = stack.data[name]
    present = jnp.isfinite(measured).reshape(len(measured), -1, 1)
    return jnp.where(present, values.reshape(*present.shape[:2], -1), 0.0) / stack.sigma[name][:, None, None]


def plain_values(y: Unknowns, problem: Problem, derivative: Adjoint) -> tuple[dict[str, Array], ...]:
    """Return the channels of all experiments, differentiable through the simulations; each stack has its experiments on
    the first axis."""
    u, unknowns = y
    return tuple(
        jax.vmap(lambda x, e: predict(problem, u, x, e, derivative))(x, stack)
        for x, stack in zip(unknowns, problem.stacks, strict=True)
    )


def linearise(y: Unknowns, problem: Problem) -> tuple[tuple[dict[str, Array], ...], Array, Array]:
    """Return the channels, the residuals, and their Jacobian with respect to the flattened unknowns."""
    u, unknowns = y
    models, rows, offset = [], [], ravel_pytree(u)[0].size
    columns = ravel_pytree(y)[0].size
    for x, stack in zip(unknowns, problem.stacks, strict=True):
        model, slope = jax.vmap(lambda x, e: _blocks(problem, u, x, e))(x, stack)
        models.append(model)
        rows += [_place(weigh(slope[n], stack, n), ravel_pytree(u)[0].size, offset, columns) for n in stack.data]
        offset += ravel_pytree(x)[0].size
    model = tuple(models)
    return model, residuals(problem, model), jnp.concatenate(rows)


def _blocks(problem: Problem, u: Any, x: Any, experiment: Experiment) -> tuple[Any, Any]:
    """Return the channels of one experiment, and their Jacobian with respect to parameters and initial state."""
    flat, unravel = ravel_pytree((u, x))

    def f(z: Array) -> tuple[Any, Any]:
        u, x = unravel(z)
        model = predict(problem, u, x, experiment, "forward")
        return model, model

    slope, model = jax.jacfwd(f, has_aux=True)(flat)
    return model, slope


def _place(slope: Array, shared: int, offset: int, columns: int) -> Array:
    """Expand `(experiments, samples, shared + own)` to full rows; the own columns start at `offset`, name by name."""
    count, samples, width = slope.shape
    own = jnp.einsum("srk,st->srkt", slope[..., shared:], jnp.eye(count, dtype=slope.dtype))
    rows = jnp.zeros((count * samples, columns), slope.dtype)
    rows = rows.at[:, :shared].set(slope[..., :shared].reshape(count * samples, shared))
    return rows.at[:, offset : offset + (width - shared) * count].set(own.reshape(count * samples, -1))
