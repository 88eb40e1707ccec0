"""Multiple shooting: an experiment as segments, each with an initial state of its own, that join without jumps.

Over a long or chaotic motion a small change of the start grows so much that the loss has no usable derivative. In a
short segment it does not; the states at the joints become unknowns, and the conditions

    (x(end of segment k) − x(start of segment k + 1)) / σ_c = 0

are rows of the least-squares problem. If there must be no jumps, `λ σ_c` is added to them, with multipliers `λ`.

Source: Bock, *Recent advances in parameter identification techniques for O.D.E.* (1983); Voss, Timmer, Kurths,
Int. J. Bifurcation and Chaos 14 (2004).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assemble import rate_channel
from jaxmbd.analyses.output_channels import channel_units
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.errors import MechanismError
from jaxmbd.identification._experiment import OWN, SPEED, START, Experiment
from jaxmbd.identification._instruments import Instrument
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.parameters import Parameters

# If there must be no jumps: their standard deviations, one search after another. With the last one the conditions are
# enforced by multipliers `λ` (Hestenes, J. Optim. Theory Appl. 4 (1969)), which further searches adapt, until the jumps
# are below the tolerance: a weight that does it alone would forbid all but tiny steps along the curved conditions.
TIGHTENING = (1e-1, 1e-2, 1e-3)
NO_JUMP, UPDATES = 1e-7, 20
PROGRESS = 0.25  # if the jumps shrink by less than to this share, the standard deviation is reduced, too


class Joins(NamedTuple):
    """How segments join: the standard deviation of the jumps, and multipliers of each stack `(lanes, s)`."""

    deviation: Array
    multipliers: tuple[Array, ...]


def state_series(solution: Solution, names: Sequence[str]) -> Float[Array, "times unknowns"]:
    """Return, at all times, what the initial values of an experiment are values of, in the order of their names."""
    channels = [_channel(solution.mechanism, name) for name in names]
    series = solution.read(tuple(dict.fromkeys(channels)))
    return jnp.stack([series[channel] for channel in channels], axis=1)


def _channel(mechanism: Mechanism, name: str) -> str:
    """The channel that an initial value is a value of."""
    if name.startswith(SPEED):
        return rate_channel(mechanism, name.removeprefix(SPEED))
    return name.removeprefix(START)


def check_shooting(
    parameters: Parameters, instruments: Mapping[str, Instrument], experiments: Sequence[Experiment], segments: int
) -> None:
    """Raise unless experiments can be cut into segments."""
    mechanism: Any = parameters.mechanism_at({**parameters.start, **experiments[0].own})
    for name, instrument in instruments.items():
        if instrument.delay is not None or instrument.time_constant is not None:
            raise MechanismError(
                f"Instrument {name!r} has a delay or a filter, which segments would cut off: leave one or the other "
                "out."
            )
    for experiment in experiments:
        if len(experiment.ts) <= segments:
            raise MechanismError(
                f"An experiment with {len(experiment.ts)} times cannot be cut into {segments} segments."
            )
        wanted = {*(START + name for name in experiment.start), *(SPEED + name for name in experiment.speeds)}
        if experiment.at_rest or not wanted or set(experiment.estimate) != wanted:
            missing = sorted(wanted - set(experiment.estimate))
            own = [name.removeprefix(OWN) for name in experiment.estimate if name.startswith(OWN)]
            what = f"; {', '.join(missing)} is not estimated" * bool(missing) + f"; {', '.join(own)} is, too" * bool(
                own
            )
            raise MechanismError(
                "With segments, each experiment needs start and speeds that determine its state, all of them estimated "
                f"(estimate=True), and no other unknowns of its own{what}."
            )
        units = channel_units(mechanism)
        for name in wanted:
            if _channel(mechanism, name) not in units:
                raise MechanismError(
                    f"With segments, {name.partition(':')[2]!r} must be a quantity that a solution reads."
                )
