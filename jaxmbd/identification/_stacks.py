"""Stacks of experiments: those that differ in numbers only, as one with a leading axis, simulated in one batch.

Experiments of different lengths and with different channels are made alike: shorter ones get further times just after
their last one, and samples that are missing.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxmbd.errors import MechanismError
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._instruments import apart
from jaxmbd.model.time_functions import Table


class Stack(eqx.Module):
    """Experiments with one more leading axis on all arrays.

    `lengths`: the number of samples of each; `places`: the number of each in the list of all experiments.
    """

    experiment: Experiment
    lengths: Int[Array, " experiments"]
    places: tuple[int, ...] = eqx.field(static=True)


def stacked(experiments: list[Experiment]) -> tuple[Stack, ...]:
    """Return the stacks of a list of experiments."""
    groups: dict[Any, list[int]] = {}
    for k, experiment in enumerate(experiments):
        groups.setdefault(_kind(experiment), []).append(k)
    return tuple(_stack([experiments[k] for k in places], tuple(places)) for places in groups.values())


def _kind(experiment: Experiment) -> Any:
    """What experiments in one batch have in common."""
    own = {name: None if isinstance(value, Table) else value for name, value in experiment.own.items()}
    leaves, structure = jax.tree.flatten(own)
    tables = tuple((n, v.order, v.values.shape[1:]) for n, v in sorted(experiment.own.items()) if isinstance(v, Table))
    names = tuple(sorted(experiment.start)), tuple(sorted(experiment.speeds)), experiment.estimate, experiment.at_rest
    return structure, tuple(np.shape(leaf) for leaf in leaves), tables, names


def _stack(experiments: list[Experiment], places: tuple[int, ...]) -> Stack:
    samples = max(len(experiment.ts) for experiment in experiments)
    shapes = _shapes(experiments)
    like = [_padded(experiment, samples, shapes) for experiment in _with_tables_alike(experiments)]
    together = jax.tree.map(lambda *x: jnp.asarray(np.stack([np.asarray(leaf) for leaf in x])), *like)
    lengths = jnp.asarray(np.array([len(experiment.ts) for experiment in experiments]))
    return Stack(together, lengths, places)


def _shapes(experiments: list[Experiment]) -> dict[str, tuple[int, ...]]:
    """The shape of one sample of each channel."""
    shapes: dict[str, tuple[int, ...]] = {}
    for experiment in experiments:
        for name, values in experiment.data.items():
            if shapes.setdefault(name, values.shape[1:]) != values.shape[1:]:
                raise MechanismError(
                    f"Channel {name!r} has samples of shape {values.shape[1:]} in one experiment and of shape "
                    f"{shapes[name]} in another."
                )
    return shapes


def _padded(experiment: Experiment, samples: int, shapes: dict[str, tuple[int, ...]]) -> Experiment:
    """The experiment with a number of samples, and all channels."""
    more = samples - len(experiment.ts)
    dtype = experiment.ts.dtype
    nothing = {name: np.full((samples, *shape), np.nan, dtype) for name, shape in shapes.items()}
    data = {
        name: np.concatenate([np.asarray(values), np.full((more, *shapes[name]), np.nan, dtype)])
        for name, values in experiment.data.items()
    }
    ts = np.asarray(experiment.ts)
    ts = np.asarray(apart(jnp.asarray(np.append(ts, np.full(more, ts[-1]))))) if more else ts
    one, zero = (dict.fromkeys(shapes, np.asarray(x, dtype)) for x in (1.0, 0.0))
    parts = ts, nothing | data, one | experiment.sigma, zero | experiment.correlation_time
    return eqx.tree_at(lambda e: (e.ts, e.data, e.sigma, e.correlation_time), experiment, parts)


def _with_tables_alike(experiments: list[Experiment]) -> list[Experiment]:
    """The experiments with tables of equal lengths: a table is constant after its last sample."""
    names = [name for name, value in experiments[0].own.items() if isinstance(value, Table)]
    for name in names:
        length = max(len(experiment.own[name].times) for experiment in experiments)
        experiments = [
            eqx.tree_at(lambda e, name=name: e.own[name], e, _lengthened(e.own[name], length)) for e in experiments
        ]
    return experiments


def _lengthened(table: Table, length: int) -> Table:
    more = length - len(table.times)
    times, values = np.asarray(table.times), np.asarray(table.values)
    later = times[-1] + 1.0 + np.arange(more)
    return Table(np.append(times, later), np.concatenate([values, np.repeat(values[-1:], more, axis=0)]), table.order)


def is_present(values: Array) -> Bool[Array, " ..."]:
    """Return True for the samples of a channel that are not missing."""
    return jnp.isfinite(values)
