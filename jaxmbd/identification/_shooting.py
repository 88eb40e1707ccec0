"""Multiple shooting of experiments: the numbers of the states, how segments join, and what can be cut into segments.

The jumps from the end of a segment to the start of the next one (`analyses/multiple_shooting.py`), as numbers without
units, are rows of the least-squares problem,

    (x(end of segment k) − x(start of segment k + 1)) / σ_c = 0

If there must be no jumps, `λ σ_c` is added to them, with multipliers `λ`.

Source: Bock, *Recent advances in parameter identification techniques for O.D.E.* (1983); Voss, Timmer, Kurths,
Int. J. Bifurcation and Chaos 14 (2004).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.analyses.multiple_shooting import StateChart
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.errors import MechanismError
from jaxmbd.identification._experiment import OWN, SPEED, START, Experiment
from jaxmbd.identification._instruments import Instrument
from jaxmbd.identification._stacks import Stack
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.parameters.parameters import Parameters

# If there must be no jumps: their standard deviations, one search after another. With the last one the conditions are
# enforced by multipliers `λ` (Hestenes, J. Optim. Theory Appl. 4 (1969)), which further searches adapt, until the jumps
# are below the tolerance: a weight that does it alone would forbid all but tiny steps along the curved conditions.
TIGHTENING = (1e-1, 1e-2, 1e-3)
NO_JUMP, UPDATES = 1e-7, 20
PROGRESS = 0.25  # if the jumps shrink by less than to this share, the standard deviation is reduced, too


class Joins(NamedTuple):
    """How segments join: the standard deviation of the jumps without units; of each stack what one unit is of each
    number `(s,)`, and multipliers `(lanes, s)`."""

    deviation: Array
    scales: tuple[Array, ...]
    multipliers: tuple[Array, ...]


def chart_of(experiment: Experiment) -> StateChart:
    """Return the names of what is estimated of the initial state of an experiment, in the order of its unknowns."""
    names = sorted(experiment.estimate)
    return StateChart(*(tuple(n.removeprefix(p) for n in names if n.startswith(p)) for p in (SPEED, START)))


def jumps_after(solution: Solution, later: Mapping[str, Array], experiment: Experiment) -> Float[Array, " s"]:
    """Return the jumps from the end of a segment to the start of a later one."""
    chart, start = chart_of(experiment), jnp.stack([later[name] for name in sorted(later)])
    return chart.jumps(solution.mechanism, chart.series(solution)[-1], start)


def jump_scales(parameters: Parameters, stack: Stack) -> Array:
    """Return what one unit is of each number of a state `(s,)`, in the mechanism at which the search starts: if it
    followed the mechanism, a jump would be another number where a dimension changes a little."""
    own = jax.tree.map(lambda x: x[0], stack.experiment.own)
    return chart_of(stack.experiment).scales(parameters.mechanism_at({**parameters.start, **own}))


def check_shooting(
    parameters: Parameters, instruments: Mapping[str, Instrument], experiments: Sequence[Experiment], segments: int
) -> None:
    """Raise unless experiments can be cut into segments."""
    mechanism: Any = parameters.mechanism_at({**parameters.start, **experiments[0].own})
    if len(mechanism.layout.z):
        names = ", ".join(map(repr, mechanism.layout.z.names))
        raise MechanismError(
            f"With segments, the states of parts, {names}, would have to be unknowns of each segment, and cannot be "
            "yet: leave segments out."
        )
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
            kind, _, quantity = name.partition(":")
            chart = StateChart((quantity,), ()) if kind + ":" == SPEED else StateChart((), (quantity,))
            if chart.channels(mechanism)[0] not in units:
                raise MechanismError(f"With segments, {quantity!r} must be a quantity that a solution reads.")
