"""Experiments, and the residuals of all of them as one vector, with their Jacobian by blocks.

The unknowns are the parameters, which all experiments share, and the initial state of each experiment, on which only
its own residuals depend. Therefore the Jacobian is computed for each experiment with respect to its own few unknowns,
in one batch, and the blocks are assembled.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.analyses.simulation.step_control import Adjoint
from jaxmbd.analyses.state import State
from jaxmbd.arrays import as_float
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification._parameters import Parameters
from jaxmbd.model.body.checks import check_finite, check_mapping, check_number, checked_names
from jaxmbd.model.mechanism.mechanism import Mechanism


class Experiment(eqx.Module):
    """Measurements of one motion.

    **Arguments:**

    - `ts`: increasing times `[s]`, `(times,)`; the motion starts at the first time;
    - `data`: measured values by channel, `{"arm.theta": values}`, for any name that a solution can read, `(times,)` or
      `(times, k)`;
    - `start`, `speeds`: the initial coordinates `{"O.angle": 0.1}` and speeds, as for `assemble`;
    - `estimate`: the names of initial values that are estimated with the parameters (`True` for all);
    - `sigma`: the noise level of the channels, a number or a mapping, by which residuals are divided;
    - `missing=True`: leave out samples that are NaN. Otherwise NaN is an error.
    """

    ts: Array
    data: dict[str, Array]
    start: dict[str, Array]
    speeds: dict[str, Array]
    sigma: dict[str, Array]
    estimate: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        ts: Any,
        data: Mapping[str, Any],
        start: Mapping[str, Any] | None = None,
        speeds: Mapping[str, Any] | None = None,
        estimate: bool | tuple[str, ...] = False,
        sigma: float | int | Mapping[str, float | int] = 1.0,
        missing: bool = False,
    ) -> None:
        check_mapping("Experiment: data", data, "{'arm.theta': values}")
        check_mapping("Experiment: start", start, "{'O.angle': 0.1}")
        check_mapping("Experiment: speeds", speeds, "{'O.angle': 0.0}")
        if data is None:
            raise MechanismError("An experiment needs at least one measured channel in data, got None.")
        self.ts = as_float(ts)
        self.data = {name: as_float(values) for name, values in data.items()}
        self.start = {name: as_float(value) for name, value in (start or {}).items()}
        self.speeds = {name: as_float(value) for name, value in (speeds or {}).items()}
        levels = dict(sigma) if isinstance(sigma, Mapping) else dict.fromkeys(data, sigma)
        for name, level in levels.items():
            check_known("measured channel for sigma", [name], data)
            check_number("Experiment: sigma of", repr(name), as_float(level), "the channel's unit")
        self.sigma = {name: as_float(levels.get(name, 1.0)) for name in data}
        names = (*(f"start:{n}" for n in self.start), *(f"speed:{n}" for n in self.speeds))
        if isinstance(estimate, bool):
            self.estimate = names if estimate else ()
        else:
            estimated = checked_names("Experiment: estimate", estimate, "O.angle")
            self.estimate = tuple(_qualified(name, names) for name in estimated)
        _check(self, missing)

    def unknowns(self) -> dict[str, Array]:
        """Return the starting values of the initial values that are estimated."""
        return {name: self._values()[name] for name in self.estimate}

    def initial(self, unknowns: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return coordinates and speeds for `assemble`, with the values of the unknowns."""
        values = self._values() | unknowns
        start = {name: values[f"start:{name}"] for name in self.start}
        return start, {name: values[f"speed:{name}"] for name in self.speeds}

    def _values(self) -> dict[str, Array]:
        start = {f"start:{name}": value for name, value in self.start.items()}
        return start | {f"speed:{name}": value for name, value in self.speeds.items()}


def _qualified(name: str, known: tuple[str, ...]) -> str:
    for prefix in ("start:", "speed:"):
        if prefix + name in known:
            return prefix + name
    raise MechanismError(f"estimate names {name!r}, which is neither in start nor in speeds.")


def _check(experiment: Experiment, missing: bool) -> None:
    if not isinstance(experiment.ts, Array):
        raise MechanismError(f"An experiment's ts must be at least two increasing times [s], got {experiment.ts!r}.")
    ts = np.asarray(experiment.ts)
    if ts.ndim != 1 or len(ts) < 2 or not (np.diff(ts) > 0).all():
        raise MechanismError("An experiment's ts must be at least two increasing times [s].")
    if not experiment.data:
        raise MechanismError("An experiment needs at least one measured channel in data.")
    for name, value in (*experiment.start.items(), *experiment.speeds.items()):
        check_finite("Experiment", repr(name), value)
    for name, values in experiment.data.items():
        if not isinstance(values, Array):
            raise MechanismError(f"Channel {name!r} must be numbers, got {values!r}.")
        shape = values.shape
        if not shape or shape[0] != len(ts):
            raise MechanismError(
                f"Channel {name!r} must have one row for each of the {len(ts)} times, got shape {shape}."
            )
        bad = ~np.isfinite(np.asarray(values)).reshape(len(ts), -1).all(axis=1)
        if bad.any() and not missing:
            raise MechanismError(
                f"Channel {name!r} holds {int(bad.sum())} values that are not finite, the first at index "
                f"{int(np.argmax(bad))} (t = {ts[np.argmax(bad)]:g} s). If these samples are missing, say missing=True."
            )


def stack(experiments: list[Experiment]) -> list[tuple[list[int], Experiment]]:
    """Stack experiments with equal shapes, which are simulated in one batch; return each stack with the indices of its
    experiments in the list."""
    groups: dict[Any, list[int]] = {}
    for index, experiment in enumerate(experiments):
        leaves, treedef = jax.tree.flatten(experiment)
        groups.setdefault((treedef, tuple(leaf.shape for leaf in leaves)), []).append(index)
    stacks = []
    for indices in groups.values():
        stacks.append((indices, jax.tree.map(lambda *x: jnp.stack(x), *(experiments[i] for i in indices))))
    return stacks


UnknownValues = tuple[dict[str, Any], tuple[dict[str, Array], ...]]


class Problem(eqx.Module):
    """Parameters, experiments (stacked if their shapes are equal) and the options with which these are simulated."""

    parameters: Parameters
    stacks: tuple[Experiment, ...]
    options: dict[str, Any]

    def start(self) -> UnknownValues:
        """Return the unknowns at which the search starts."""
        return self.parameters.unconstrained(), tuple(stack.unknowns() for stack in self.stacks)


def predict(
    problem: Problem, u: dict[str, Any], unknowns: dict[str, Array], experiment: Experiment, derivative: Adjoint
) -> dict[str, Array]:
    """Return the model's values of the measured channels of one experiment."""
    mechanism = problem.parameters.mechanism_at(u)
    state = initial_state(mechanism, experiment, unknowns)
    solution = simulate(mechanism, state, experiment.ts, adjoint=derivative, throw=False, **problem.options)
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


def plain_values(y: UnknownValues, problem: Problem, derivative: Adjoint) -> tuple[dict[str, Array], ...]:
    """Return the channels of all experiments, differentiable through the simulations; each stack has its experiments on
    the first axis."""
    u, unknowns = y
    return tuple(
        jax.vmap(lambda x, e: predict(problem, u, x, e, derivative))(x, stack)
        for x, stack in zip(unknowns, problem.stacks, strict=True)
    )


def linearise(y: UnknownValues, problem: Problem) -> tuple[tuple[dict[str, Array], ...], Array, Array]:
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
