"""Experiments: measured channels over time, and their initial states."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import as_float
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.body.checks import check_finite, check_mapping, check_number, checked_names


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
            if name not in data:
                raise unknown("measured channel for sigma", name, data)
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
