"""The motion of a model as a function of some of its numbers, for fits, sweeps and designs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.extrema import Wanted, with_extrema
from jaxmbd.analyses.simulation.settings import Integration
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.arrays import Number, Scalar
from jaxmbd.cli._model import Model, remark
from jaxmbd.cli._start import beside, coordinate_names, placed, released, speed_names
from jaxmbd.cli._values import Grid
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification import Bounded, Parameter
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.parameters.numbers import find, is_pattern, numbers_of, with_numbers
from jaxmbd.scene.curves import component_label
from jaxmbd.state.result_codes import is_successful
from jaxmbd.state.state import State
from jaxmbd.sweeps import latin_hypercube, sobol

_OF_STORED = {  # of the values at the stored times
    "final": lambda x, ts: x[-1],
    "mean": lambda x, ts: jnp.trapezoid(x, ts) / (ts[-1] - ts[0]),
    "rms": lambda x, ts: jnp.sqrt(jnp.trapezoid(x**2, ts) / (ts[-1] - ts[0])),
}
_OF_PEAKS = {"max": 1, "min": -1}  # between the stored times too, with the signs for `Wanted`
_SEED = 0


@dataclass(frozen=True)
class Output:
    """A number of a motion: what `aggregate` says of a channel over time, of one component where it has several."""

    name: str
    channel: str
    component: int | None
    aggregate: str
    unit: str

    def over_time(self, solution: Solution) -> Float[Array, " times"]:
        """Return the component at the times of a motion."""
        values = solution[self.channel]
        parts = values.reshape(len(values), -1).T
        labels = [component_label(self.channel, k, len(parts)) for k in range(len(parts))]
        named = labels if self.component is None else [f"{self.channel}.{'xyz'[self.component]}"]
        if len(named) > 1 or named[0] not in labels:
            text = ", ".join(f"'{label}:{self.aggregate}'" for label in labels)
            raise MechanismError(f"{self.name!r} is no single number of {self.channel!r}; choose one of {text}.")
        return parts[labels.index(named[0])]


def output_of(mechanism: Mechanism, text: str) -> Output:
    """Parse an output: `rod.theta:max`, `tip.y:final`; without a colon it is the final value.

    **Raises:** `MechanismError` for a channel or an aggregate that does not exist.
    """
    channel, colon, aggregate = text.rpartition(":")
    channel, aggregate = (channel, aggregate) if colon else (text, "final")
    check_known("value over time", [aggregate], (*_OF_STORED, *_OF_PEAKS))
    units, (owner, _, axis) = channel_units(mechanism), channel.rpartition(".")
    is_component = channel not in units and owner in units and axis in ("x", "y", "z")
    name = owner if is_component else channel
    check_known("quantity", [name], units)
    return Output(f"{channel}.{aggregate}", name, "xyz".index(axis) if is_component else None, aggregate, units[name])


@dataclass(frozen=True, eq=False)
class Study:
    """A motion from an assembled start, as a function of numbers of parts, and of coordinates and speeds at the start.

    `fixed`, `speeds`: what is prescribed at the start, as in `assemble`; all else stays near the poses of the bodies.
    """

    mechanism: Mechanism
    fixed: Mapping[str, Number]
    speeds: Mapping[str, Number]
    ts: Float[np.ndarray, " times"]
    outputs: tuple[Output, ...]
    integration: Integration

    def state(self, mechanism: Mechanism, check: bool = False) -> State:
        """Return the start of a mechanism."""
        return assemble(mechanism, self.fixed, speeds=self.speeds, check=check)

    def motion(self, mechanism: Mechanism, outputs: Sequence[Output] = ()) -> tuple[Solution, dict[str, Scalar]]:
        """Return the motion of a mechanism, with a verdict if it fails, and outputs by name, which are then NaN.

        Peaks are those of the dense output: one between stored times is not missed.
        """
        state = self.state(mechanism)
        peaks = [x for x in outputs if x.aggregate in _OF_PEAKS]
        wanted = [Wanted(x.name, x.over_time, _OF_PEAKS[x.aggregate]) for x in peaks]
        solution, found = with_extrema(
            lambda ts: simulate(mechanism, state, ts, self.integration, throw=False), self.ts, wanted
        )
        values = {x.name: extremum.value for x, extremum in zip(peaks, found, strict=True)}
        for x in outputs:
            if x.aggregate in _OF_STORED:
                value = _OF_STORED[x.aggregate](x.over_time(solution), solution.ts)
                values[x.name] = jnp.where(is_successful(solution.result), value, jnp.nan)
        return solution, values

    def function(self, output: Output) -> Callable[[Mechanism], Scalar]:
        """Return an output as a function of the mechanism."""
        return lambda mechanism: self.motion(mechanism, [output])[1][output.name]

    def __call__(self, numbers: Mapping[str, Number]) -> dict[str, PyTree]:
        """Return all outputs and the verdict for one variant, as a sweep wants them."""
        known, coordinates = numbers_of(self.mechanism), coordinate_names(self.mechanism)
        fixed = {name: value for name, value in numbers.items() if name in coordinates}
        of_start = [name for name in numbers if name not in known and not is_pattern(name)]
        speeds = {name: numbers[name] for name in of_start if name not in coordinates}
        study = replace(self, fixed={**self.fixed, **fixed}, speeds={**self.speeds, **speeds})
        of_parts = {name: value for name, value in numbers.items() if name not in fixed and name not in speeds}
        solution, values = study.motion(with_numbers(self.mechanism, of_parts), self.outputs)
        return {output.name: values[output.name] for output in self.outputs} | {"result": solution}


def study_of(
    model: Model,
    ts: Float[np.ndarray, " times"] | None,
    outputs: Iterable[str],
    integration: Integration,
    swept: Iterable[str] = (),
) -> Study:
    """Return the study of a model, whose start is what the user prescribed, or the state that was assembled.

    `ts` [s]: the times of the motion, None if each experiment has its own; `swept`: the numbers that vary, among them
    coordinates and speeds at the start, which replace prescribed ones that depend on them.
    """
    state, mechanism, example = model.assembled(), model.mechanism, model.example
    first = [name for name in swept if name in (*coordinate_names(mechanism), *speed_names(mechanism))]
    if model.start is None and example.fixed:
        fixed, speeds = beside(mechanism, state, first, example.fixed, example.speeds)
        replaced = [name for name in example.fixed if name not in (*fixed, *first)]
        replaced += [f"speed {name}" for name in example.speeds if name not in (*speeds, *first)]
        if replaced:
            remark(f"--over {', '.join(first)} replaces what is prescribed and depends on it: {', '.join(replaced)}.")
    else:
        found = released(mechanism, state, first)
        fixed, speeds = found["fixed"], found["speeds"]
    listed = tuple(output_of(mechanism, text) for text in outputs)
    return Study(placed(mechanism, state), fixed, speeds, np.zeros(0) if ts is None else ts, listed, integration)


def units_of(study: Study, names: Iterable[str]) -> dict[str, str]:
    """Return the units of numbers, coordinates and speeds, and of all outputs; "" where a pattern has several."""
    known = channel_units(study.mechanism)
    units = {name: known.get(name) or _unit_of_number(study.mechanism, name) for name in names}
    return units | {output.name: output.unit for output in study.outputs}


def _unit_of_number(mechanism: Mechanism, name: str) -> str:
    """The unit of a number of a part, or of all matches of a pattern."""
    if name not in numbers_of(mechanism) and not is_pattern(name):
        return ""
    units = {number.unit(mechanism) for number in find(mechanism, name)}
    return units.pop() if len(units) == 1 else ""


def parameters(mechanism: Mechanism, given: Mapping[str, tuple[float, float]]) -> dict[str, Parameter]:
    """Return free numbers of parts within bounds, which start at the mechanism's own value if it lies between them.

    **Raises:** `MechanismError` for names that do not exist, and bounds at which a part cannot be.
    """
    _check_named(mechanism, "number of a part", given)
    found: dict[str, Parameter] = {}
    for name, (lower, upper) in given.items():
        for bound in (lower, upper):
            with_numbers(mechanism, {name: bound})
        for number in find(mechanism, name):
            if number.name in found:
                raise MechanismError(f"{number.name!r} is given twice, the last time by {name!r}: leave one out.")
            value = float(number.value(mechanism))
            start = value if lower < value < upper else 0.5 * (lower + upper)
            found[number.name] = Parameter(number.name, start, Bounded(lower, upper))
    return found


def _check_named(mechanism: Mechanism, kind: str, given: Iterable[str], *others: str) -> None:
    """Raise unless what is no pattern names a number, or one of the others."""
    check_known(kind, [name for name in given if not is_pattern(name)], (*numbers_of(mechanism), *others))


def space_of(mechanism: Mechanism, given: Mapping[str, Grid]) -> dict[str, Any]:
    """Return the space of a sweep: a dimension for each grid, and one for all draws.

    **Raises:** `MechanismError` for names that do not exist, bounds at which a part cannot be, and draws of different
    kinds or counts.
    """
    start = (*coordinate_names(mechanism), *speed_names(mechanism))
    _check_named(mechanism, "number of a part, nor coordinate or speed", given, *start)
    for name, grid in given.items():
        for bound in (grid.lower, grid.upper) if name not in start else ():
            with_numbers(mechanism, {name: bound})
    draws = {(grid.draw, grid.count) for grid in given.values() if grid.draw}
    if len(draws) > 1:
        texts = " and ".join(sorted(f"{count}@{draw}" for draw, count in draws))
        raise MechanismError(f"--over: numbers are drawn together, so their counts and draws must agree, got {texts}.")
    drawn = {name: (grid.lower, grid.upper) for name, grid in given.items() if grid.draw}
    space: dict[str, Any] = {n: np.linspace(g.lower, g.upper, g.count) for n, g in given.items() if not g.draw}
    for draw, count in draws:
        space |= {"sobol": sobol, "lhs": latin_hypercube}[draw](drawn, count, _SEED)
    return space
