"""The measurements of a problem: the experiments that were given, checked against the mechanism, and back from
stacks."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from jaxmbd.analyses.inverse_dynamics import actuated
from jaxmbd.analyses.kinematics import kinematics
from jaxmbd.analyses.measured_motion import reconciled
from jaxmbd.errors import MechanismError, check_known, shown
from jaxmbd.identification._experiment import OWN, Experiment
from jaxmbd.identification._instruments import Instrument, check_instruments
from jaxmbd.identification._stacks import Stack, joined
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.parameters.parameters import Parameters, check_within


def listed(experiments: Any) -> list[Experiment]:
    """Return one experiment or several as a list; raise unless it is that."""
    try:
        found = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    except TypeError as error:  # also an array without axes, which has `__iter__`
        given = shown(experiments)
        raise MechanismError(f"fit: experiments must be an Experiment or a sequence of them, got {given}.") from error
    if not found:
        raise MechanismError("fit needs at least one Experiment.")
    for experiment in found:
        if not isinstance(experiment, Experiment):
            raise MechanismError(f"experiments must be Experiments, got {type(experiment).__name__}.")
    return found


def reconciled_with(parameters: Parameters, experiments: Sequence[Experiment]) -> list[Experiment]:
    """Return the experiments with their measured motions by as many coordinates as there are degrees of freedom, closed
    for the values at which a search starts, or that are fixed."""
    found = []
    for experiment in experiments:
        if experiment.motion is not None:
            motion = reconciled(_mechanism_of(parameters, experiment), experiment.motion, kinematics)
            experiment = eqx.tree_at(lambda e: e.motion, experiment, motion)
        found.append(experiment)
    return found


def check_data(
    parameters: Parameters, instruments: Mapping[str, Instrument], experiments: Sequence[Experiment]
) -> None:
    """Raise unless there is something to estimate, and something to estimate it from."""
    if not parameters.free and not any(experiment.estimate for experiment in experiments):
        raise MechanismError("Nothing is free: give free parameters, or experiments with estimate=True.")
    check_names(parameters, instruments, experiments)
    if not any(np.isfinite(np.asarray(x)).any() for experiment in experiments for x in experiment.data.values()):
        raise MechanismError("fit: all samples of all experiments are missing: there is nothing to fit.")
    used = {name for instrument in instruments.values() for name in instrument.names()}
    for name, free in parameters.free.items():
        if parameters.build is None and free.where is None and name not in used:
            raise MechanismError(
                f"Free parameter {name!r} has no effect: it needs a place, Parameter('part.number') or "
                "where=lambda m: m['part'].number, or an instrument that refers to it."
            )


def check_names(
    parameters: Parameters, instruments: Mapping[str, Instrument], experiments: Sequence[Experiment]
) -> None:
    """Raise unless channels, own values and instruments refer to names that exist."""
    units = channel_units(parameters.mechanism_at({**parameters.start, **experiments[0].own}))
    check_instruments(instruments, units, parameters.free)
    for instrument in instruments.values():
        check_known("channel", [instrument.channel], units)
    for k, experiment in enumerate(experiments):
        known = (
            units if experiment.motion is None else units_measured(_mechanism_of(parameters, experiment), experiment)
        )
        check_known("channel", experiment.data, (*known, *instruments))
        for name in experiment.own.keys() & parameters.free.keys():
            check_within(f"Experiment {k}: own {name!r} is", parameters.free[name], experiment.own[name])
        if parameters.build is None:
            check_known("own parameter or input", experiment.own, (*parameters.free, *parameters.inputs))
        own = [name.removeprefix(OWN) for name in experiment.estimate if name.startswith(OWN)]
        check_known("free parameter with this own value", own, parameters.free)


def units_measured(mechanism: Mechanism, experiment: Experiment) -> dict[str, str]:
    """Return the units of the channels that an experiment may have, the efforts of its actuators among them."""
    return channel_units(mechanism if experiment.actuators is None else actuated(mechanism, dict(experiment.actuators)))


def _mechanism_of(parameters: Parameters, experiment: Experiment) -> Mechanism:
    """The mechanism of an experiment, for the values at which a search starts, or that are fixed."""
    return parameters.mechanism_at({**parameters.start, **parameters.fixed, **experiment.own})


def samples_of(stacks: Sequence[Stack]) -> int:
    """Return the number of measured numbers, without those that are missing."""
    channels = (x for stack in stacks for x in stack.experiment.data.values())
    return sum(int(np.isfinite(np.asarray(x)).sum()) for x in channels)


def experiments_of(stacks: Sequence[Stack]) -> tuple[Experiment, ...]:
    """Return the experiments in the order in which they were given, without what makes those of a stack alike."""
    parts: dict[int, list[Experiment]] = {}
    for stack in stacks:
        for k, place in enumerate(stack.places):
            n, whole = int(stack.lengths[k]), jax.tree.map(lambda x, k=k: x[k], stack.experiment)
            data = {name: x[:n] for name, x in whole.data.items()}
            parts.setdefault(place, []).append(eqx.tree_at(lambda e: (e.ts, e.data), whole, (whole.ts[:n], data)))
    return tuple(_without_empty(joined(parts[place])) for place in sorted(parts))


def _without_empty(experiment: Experiment) -> Experiment:
    """The experiment without channels that it does not have."""
    data = {name: x for name, x in experiment.data.items() if np.isfinite(np.asarray(x)).any()}
    return eqx.tree_at(lambda e: e.data, experiment, data)
