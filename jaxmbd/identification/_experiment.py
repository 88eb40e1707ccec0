"""Experiments: measurements of one motion, its initial state, and what else is particular to it."""

from collections.abc import Mapping

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.analyses.measured_motion import MeasuredMotion
from jaxmbd.arrays import Numbers, as_float
from jaxmbd.checks import check_finite, check_flags, check_instance, check_mapping, check_number, checked_names
from jaxmbd.errors import MechanismError, check_known

START, SPEED, OWN = "start:", "speed:", "own:"  # prefixes of the names of unknowns of one experiment

Level = float | int | Mapping[str, float | int]


class Experiment(eqx.Module):
    """Measurements of one motion.

    **Arguments:**

    - `ts`: increasing times `[s]`, `(times,)`; the motion starts at the first time;
    - `data`: measured values by channel, `{"arm.theta": values}`, for any name that a solution can read, or of an
      instrument, `(times,)` or `(times, k)`;
    - `start`, `speeds`: the initial coordinates `{"O.angle": 0.1}` and speeds, as for `assemble`;
    - `at_rest=True`: the motion starts from the equilibrium next to `start`, for the parameters of each trial;
    - `own`: numbers (or functions of numbers, such as a measured torque) that this experiment does not share with the
      others, by the name of a parameter or an input of the problem: `{"payload": 0.3}`,
      `{"torque": Table(ts, torques)}`;
    - `estimate`: the names of initial values, and of own parameters, that are estimated (`True` for all of them); one
      that is in `start` and in `speeds` is `"start:O.angle"` or `"speed:O.angle"`;
    - `sigma`: the noise level of the channels (the standard deviation, in the channel's unit), by which residuals are
      divided: a number, or a mapping that names every channel;
    - `correlation_time` `[s]`: of the noise, a number or a mapping; zero for white noise. The noise is then an
      Ornstein-Uhlenbeck process, with the correlation `exp(−|t − s| / correlation_time)`;
    - `missing=True`: leave out samples that are NaN. Otherwise NaN is an error;
    - `motion`: a `MeasuredMotion` on which the experiment runs, in place of a simulation from an initial state: the
      channels are then those of `inverse_dynamics`, `{"motor.effort": torques}`, with the efforts of the `actuators`,
      `{"motor": "O.angle"}`, by default those of the mechanism's drivers.

    **Raises:** `MechanismError` for values that are not finite numbers of the right shapes, and unknown names.
    """

    ts: Array
    data: dict[str, Array]
    start: dict[str, Array]
    speeds: dict[str, Array]
    own: dict[str, PyTree]
    sigma: dict[str, Array]
    correlation_time: dict[str, Array]
    motion: MeasuredMotion | None
    estimate: tuple[str, ...] = eqx.field(static=True)
    at_rest: bool = eqx.field(static=True)
    actuators: tuple[tuple[str, str], ...] | None = eqx.field(static=True)

    def __init__(
        self,
        ts: Numbers,
        data: Mapping[str, Numbers],
        start: Mapping[str, Numbers] | None = None,
        speeds: Mapping[str, Numbers] | None = None,
        estimate: bool | tuple[str, ...] = False,
        sigma: Level = 1.0,
        missing: bool = False,
        *,
        at_rest: bool = False,
        own: Mapping[str, PyTree] | None = None,
        correlation_time: Level = 0.0,
        motion: MeasuredMotion | None = None,
        actuators: Mapping[str, str] | None = None,
    ) -> None:
        check_mapping("Experiment: data", data, "{'arm.theta': values}")
        check_mapping("Experiment: start", start, "{'O.angle': 0.1}")
        check_mapping("Experiment: speeds", speeds, "{'O.angle': 0.0}")
        check_mapping("Experiment: own", own, "{'payload': 0.3}")
        check_mapping("Experiment: actuators", actuators, "{'motor': 'O.angle'}")
        check_flags("Experiment", missing=missing, at_rest=at_rest)
        if data is None:
            raise MechanismError("An experiment needs at least one measured channel in data, got None.")
        self.ts = as_float(ts)
        self.data = {name: as_float(values) for name, values in data.items()}
        self.start = {name: as_float(value) for name, value in (start or {}).items()}
        self.speeds = {name: as_float(value) for name, value in (speeds or {}).items()}
        self.own = {name: as_float(value) for name, value in (own or {}).items()}
        self.sigma = _levels("sigma", sigma, data, 1.0)
        self.correlation_time = _levels("correlation_time", correlation_time, data, 0.0)
        self.motion, self.at_rest = motion, at_rest
        self.actuators = None if actuators is None else tuple(actuators.items())
        self.estimate = _estimated(estimate, self)
        _check(self, missing)

    def unknowns(self) -> dict[str, Array]:
        """Return the starting values of what is estimated for this experiment alone."""
        values = _by_prefix(self)
        return {name: values[name] for name in self.estimate}

    def starting_at(self, unknowns: dict[str, Array]) -> "Experiment":
        """Return the experiment with other starting values of what is estimated."""
        experiment = self
        for name, value in unknowns.items():
            experiment = eqx.tree_at(lambda e, n=name: _by_prefix(e)[n], experiment, value)
        return experiment

    def completed(self, unknowns: dict[str, Array]) -> tuple[dict[str, Array], dict[str, Array], dict[str, PyTree]]:
        """Return coordinates, speeds and own values, those that are estimated as in `unknowns`."""
        values = _by_prefix(self) | unknowns
        return (
            {name: values[START + name] for name in self.start},
            {name: values[SPEED + name] for name in self.speeds},
            {name: values[OWN + name] for name in self.own},
        )


def _by_prefix(experiment: Experiment) -> dict[str, PyTree]:
    parts = (START, experiment.start), (SPEED, experiment.speeds), (OWN, experiment.own)
    return {prefix + name: value for prefix, values in parts for name, value in values.items()}


def _levels(field: str, level: Level, data: Mapping[str, object], otherwise: float) -> dict[str, Array]:
    """Return a number for each channel; raise unless they are positive (or zero, where that is the default), and unless
    a mapping names all channels (or there is that default)."""
    unit, zero = ("the channel's unit", False) if otherwise else ("s", True)
    levels = dict(level) if isinstance(level, Mapping) else dict.fromkeys(data, level)
    for name, value in levels.items():
        check_known(f"measured channel for {field}", [name], data)
        check_finite(f"Experiment: {field} of", repr(name), as_float(value))
        check_number(f"Experiment: {field} of", repr(name), as_float(value), unit, zero=zero)
    left_out = [name for name in data if name not in levels]
    if left_out and not zero:
        named = ", ".join(map(repr, left_out))
        raise MechanismError(f"Experiment: {field} must give a level for each measured channel; {named} has none.")
    return {name: as_float(levels.get(name, otherwise)) for name in data}


def _estimated(estimate: bool | tuple[str, ...], experiment: Experiment) -> tuple[str, ...]:
    """Return the names with prefixes of what is estimated."""
    known = _by_prefix(experiment)
    if experiment.at_rest:  # the initial state follows from the parameters
        known = {OWN + name: value for name, value in experiment.own.items()}
    numbers = tuple(name for name, value in known.items() if isinstance(value, Array) and value.ndim == 0)
    if isinstance(estimate, bool):
        return tuple(sorted(numbers)) if estimate else ()
    names = []
    for name in checked_names("Experiment: estimate", estimate, "O.angle"):
        found = [full for full in (name, *(prefix + name for prefix in (START, SPEED, OWN))) if full in numbers]
        if not found:
            where = "a number in own" if experiment.at_rest else "in start nor in speeds nor a number in own"
            raise MechanismError(
                f"estimate names {name!r}, which is {'not' if experiment.at_rest else 'neither'} {where}."
            )
        if len(found) > 1:
            both = " and ".join(map(repr, found))
            raise MechanismError(f"estimate names {name!r}, which is {both}: name one of these, or both.")
        names += found
    return tuple(sorted(names))


def _check_own(name: str, value: object) -> None:
    """Raise unless an own value consists of finite numbers, by which experiments in one batch may differ."""
    for leaf in jax.tree.leaves(value):
        if not isinstance(leaf, Array | np.ndarray):
            raise MechanismError(
                f"Experiment: own {name!r} must be a number, or a function that consists of numbers, such as "
                f"Table(ts, torques), got {leaf!r}."
            )
        if eqx.is_inexact_array(leaf):
            check_finite("Experiment", f"own {name!r}", leaf, leaf.shape)


def _check_motion(experiment: Experiment, ts: np.ndarray) -> None:
    """Raise unless a measured motion takes the place of an initial state, and is known at the times."""
    if experiment.motion is None:
        if experiment.actuators is not None:
            raise MechanismError("Experiment: actuators are those of a measured motion: give motion, too.")
        return
    check_instance("Experiment: motion", experiment.motion, MeasuredMotion, "a MeasuredMotion(ts, positions)")
    if experiment.start or experiment.speeds or experiment.at_rest:
        raise MechanismError(
            "An experiment on a measured motion has no initial state: leave start, speeds, at_rest out."
        )
    first, last = np.asarray(experiment.motion.ts)[[0, -1]]
    if ts[0] < first or ts[-1] > last:
        raise MechanismError(
            f"The experiment's times, {ts[0]:.6g} to {ts[-1]:.6g} s, go beyond those of its motion, {first:.6g} to "
            f"{last:.6g} s."
        )


def _check(experiment: Experiment, missing: bool) -> None:
    if not isinstance(experiment.ts, Array):
        raise MechanismError(f"An experiment's ts must be at least two increasing times [s], got {experiment.ts!r}.")
    ts = np.asarray(experiment.ts)
    if ts.ndim != 1 or len(ts) < 2 or not np.isfinite(ts).all() or not (np.diff(ts) > 0).all():
        raise MechanismError("An experiment's ts must be at least two increasing times [s].")
    if not experiment.data:
        raise MechanismError("An experiment needs at least one measured channel in data.")
    if experiment.at_rest and experiment.speeds:
        raise MechanismError("An experiment that starts at rest has no speeds: leave them out, or at_rest=True.")
    _check_motion(experiment, ts)
    for name, value in (*experiment.start.items(), *experiment.speeds.items()):
        check_finite("Experiment", repr(name), value)
    for name, value in experiment.own.items():
        _check_own(name, value)
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
