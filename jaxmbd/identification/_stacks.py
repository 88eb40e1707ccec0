"""Stacks of experiments: those that differ in numbers only, as one with a leading axis, simulated in one batch.

Experiments of different lengths and with different channels are made alike: shorter ones get further times just after
their last one, and samples that are missing.
"""

import itertools
from collections.abc import Hashable, Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmbd.arrays import constant
from jaxmbd.errors import MechanismError
from jaxmbd.identification._experiment import Experiment
from jaxmbd.identification._instruments import apart
from jaxmbd.model.functions.piecewise import Table


class Stack(eqx.Module):
    """Experiments with one more leading axis on all arrays, each cut into `segments`, which follow one another.

    `lengths`: the number of samples of each segment; `places`: the number of its experiment in the list of all.
    """

    experiment: Experiment
    lengths: Int[Array, " lanes"]
    places: tuple[int, ...] = eqx.field(static=True)
    segments: int = eqx.field(static=True, default=1)

    @property
    def lanes(self) -> int:
        """The number of segments of all its experiments."""
        return len(self.places)


def stacked(experiments: list[Experiment], segments: int = 1) -> tuple[Stack, ...]:
    """Return the stacks of a list of experiments, each cut into so many segments."""
    groups: dict[Hashable, list[int]] = {}
    for k, experiment in enumerate(experiments):
        groups.setdefault(_kind(experiment), []).append(k)
    stacks = []
    for places in groups.values():
        parts = [part for k in places for part in cut(experiments[k], segments)]
        stacks.append(_stack(parts, tuple(k for k in places for _ in range(segments)), segments))
    return tuple(stacks)


def _kind(experiment: Experiment) -> Hashable:
    """What experiments in one batch have in common."""
    own = {name: None if isinstance(value, Table) else value for name, value in experiment.own.items()}
    leaves, structure = jax.tree.flatten(own)
    tables = tuple((n, v.order, v.values.shape[1:]) for n, v in sorted(experiment.own.items()) if isinstance(v, Table))
    names = tuple(sorted(experiment.start)), tuple(sorted(experiment.speeds)), experiment.estimate, experiment.at_rest
    motion, actuators = experiment.motion, experiment.actuators
    measured = None if motion is None else (motion.coordinates, motion.ts.shape, actuators)
    return structure, tuple(np.shape(leaf) for leaf in leaves), tables, names, measured


def cut(experiment: Experiment, segments: int) -> list[Experiment]:
    """Return an experiment as segments that follow one another.

    A segment ends at the first time of the next one, whose samples belong to the next one alone.
    """
    if segments == 1:
        return [experiment]
    last = len(experiment.ts) - 1
    ends = np.round(np.linspace(0, last, segments + 1)).astype(int)
    parts = []
    for first, end in itertools.pairwise(ends):
        data = {name: np.array(values[first : end + 1]) for name, values in experiment.data.items()}
        if end < last:
            for values in data.values():
                values[-1] = np.nan
        times_and_data = np.asarray(experiment.ts[first : end + 1]), data
        parts.append(eqx.tree_at(lambda e: (e.ts, e.data), experiment, times_and_data))
    return parts


def joined(parts: list[Experiment]) -> Experiment:
    """Return the experiment of which these are the segments."""
    if len(parts) == 1:
        return parts[0]
    ts = jnp.concatenate([*(part.ts[:-1] for part in parts[:-1]), parts[-1].ts])
    data = {
        name: jnp.concatenate([*(p.data[name][:-1] for p in parts[:-1]), parts[-1].data[name]])
        for name in parts[0].data
    }
    return eqx.tree_at(lambda e: (e.ts, e.data), parts[0], (ts, data))


def joined_readings(values: np.ndarray, stack: Stack) -> list[np.ndarray]:
    """Return readings `(lanes, samples, ...)` as those of whole experiments, without what fills up a stack."""
    lengths = np.asarray(stack.lengths)
    wholes = []
    for first in range(0, stack.lanes, stack.segments):
        last = first + stack.segments - 1
        wholes.append(np.concatenate([values[k, : lengths[k] - (k != last)] for k in range(first, last + 1)]))
    return wholes


def by_channel(stack: Stack, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the part of each channel of rows `(lanes, rows, ...)`, as residuals are ordered: `(lanes, samples,
    components, ...)`."""
    found, at = {}, 0
    for name, measured in sorted(stack.experiment.data.items()):  # as JAX sorts dictionaries
        lanes, samples, width = *measured.shape[:2], int(np.prod(measured.shape[1:]))
        part = rows[:, at : at + width]
        found[name] = part.reshape(lanes, samples, width // samples, *rows.shape[2:])
        at += width
    return found


def channel_series(
    stacks: Sequence[Stack], residuals: Sequence[np.ndarray]
) -> dict[str, list[Float[np.ndarray, " _"]]]:
    """Return the residuals of each channel without missing samples: one series for each experiment and component."""
    found: dict[str, list[np.ndarray]] = {}
    for stack, rows in zip(stacks, residuals, strict=True):
        for name, r in by_channel(stack, rows).items():
            present = np.isfinite(np.asarray(stack.experiment.data[name])).reshape(r.shape)
            pairs = ((r[k, :, c], present[k, :, c]) for k in range(len(r)) for c in range(r.shape[2]))
            found.setdefault(name, []).extend(x[is_there] for x, is_there in pairs if is_there.any())
    return {name: parts for name, parts in found.items() if parts}


def by_experiment(
    stacks: Sequence[Stack], readings: Sequence[Mapping[str, Array]]
) -> tuple[dict[str, np.ndarray], ...]:
    """Return the readings of each stack in the order of the experiments, without what fills up a stack."""
    found: dict[int, dict[str, np.ndarray]] = {}
    for values, stack in zip(readings, stacks, strict=True):
        places = stack.places[:: stack.segments]
        for name, x in values.items():
            for place, whole in zip(places, joined_readings(np.asarray(x), stack), strict=True):
                found.setdefault(place, {})[name] = whole
    return tuple(found[place] for place in sorted(found))


def _stack(experiments: list[Experiment], places: tuple[int, ...], segments: int) -> Stack:
    samples = max(len(experiment.ts) for experiment in experiments)
    shapes = _shapes(experiments)
    like = [_padded(experiment, samples, shapes) for experiment in _with_tables_alike(experiments)]
    together = jax.tree.map(lambda *x: constant(np.stack([np.asarray(leaf) for leaf in x])), *like)
    lengths = constant([len(experiment.ts) for experiment in experiments])
    return Stack(together, lengths, places, segments)


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
