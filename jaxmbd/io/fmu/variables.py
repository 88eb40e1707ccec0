"""The variables of a model for FMI: their names, units, start values and value references."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from jaxmbd.analyses.events.parts import switching_parts
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, check_known, unknown
from jaxmbd.io.fmu.plant import Channel
from jaxmbd.model.driver import Driver
from jaxmbd.model.mechanism.inputs import input_units, with_signals
from jaxmbd.model.mechanism.layout import Layout
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import TIME, channel_units, component_of
from jaxmbd.model.mechanism.scales import unit_of_length
from jaxmbd.parameters.inputs import inputs as known_inputs
from jaxmbd.parameters.numbers import Number, find, is_pattern
from jaxmbd.state.output_channels import Snapshot, channel_values
from jaxmbd.state.state import State

Kind = Literal["time", "state", "rate", "input", "parameter", "output", "indicator"]
_PART = r"[A-Za-z_][A-Za-z_0-9]*(\[\d+(,\d+)*\])?"
_STRUCTURED = re.compile(rf"{_PART}(\.{_PART})*")


@dataclass(frozen=True)
class Variable:
    """A variable: its place in the list is its value reference.

    `name`: in the library, but for inputs that share it with a quantity; `start`: `None` if it is computed; `of`: the
    value reference of the state of a rate; `is_output`: true for outputs, and for states that are ones.
    """

    kind: Kind
    name: str
    unit: str
    description: str
    start: float | None = None
    nominal: float | None = None
    of: int | None = None
    is_output: bool = False


def checked_inputs(mechanism: Mechanism, names: Sequence[str]) -> tuple[str, ...]:
    """The inputs that are asked for.

    **Raises:** `MechanismError` for an unknown name, one given twice, and motions of drivers.
    """
    check_known("input", names, known_inputs(mechanism))
    _check_once("inputs", names)
    drivers = {part.name: part for part in mechanism.drivers}
    for name in names:
        driver: Driver | None = drivers.get(name.partition(".")[0])
        if driver is not None and name.endswith(".motion"):
            raise MechanismError(
                f"The input {name!r} is added to a motion that a driver prescribes, which would need its rates as "
                "well, and an input of an exported mechanism has none. Let a force or a controller move the mechanism, "
                "and make its effort or reference the input."
            )
    return tuple(names)


def checked_parameters(mechanism: Mechanism, names: Iterable[str]) -> tuple[Number, ...]:
    """The single numbers that names and patterns stand for; states of parts, which patterns may match, are none.

    **Raises:** `MechanismError` for an unknown name, and for a number that is named twice or is a state.
    """
    states, found = set(mechanism.layout.z.names), []
    for name in names:
        for number in find(mechanism, name):
            for one in number.elements(mechanism):
                if one.name not in states:
                    found.append(one)
                elif not is_pattern(name):
                    raise MechanismError(
                        f"{one.name!r} is a state, not a parameter: its start value is that of the state "
                        "with this name, which can be set."
                    )
    _check_once("parameters", [one.name for one in found])
    return tuple(found)


def checked_outputs(mechanism: Mechanism, inputs: Sequence[str], names: Sequence[str]) -> tuple[Channel, ...]:
    """The quantities that are asked for, vectors component by component.

    **Raises:** `MechanismError` for an unknown name, and one given twice.
    """
    mechanism = with_signals(mechanism, [(name, jnp.zeros(())) for name in inputs])
    known = channel_units(mechanism)
    whole = [name if name in known else component_of(name)[0] for name in names]
    check_known("quantity", whole, [name for name in known if name != TIME])

    def values() -> dict[str, jnp.ndarray]:
        equations = Equations(mechanism)
        rest = Snapshot.at_rest(equations, jnp.zeros(()), jnp.zeros(mechanism.nq))
        return channel_values(equations, dict.fromkeys(whole), rest)

    shapes = {name: value.shape for name, value in eqx.filter_eval_shape(values).items()}
    found: list[Channel] = []
    for name, channel in zip(names, whole, strict=True):
        every = [Channel(channel, index) for index in np.ndindex(shapes[channel])]
        chosen = every if name == channel else [one for one in every if output_name(one) == name]
        if not chosen:
            raise unknown("quantity", name, map(output_name, every))
        found += chosen
    _check_once("outputs", list(map(output_name, found)))
    return tuple(found)


def output_name(channel: Channel) -> str:
    """The name of an output, with the index of a component."""
    return channel.name + (f"[{','.join(map(str, channel.index))}]" if channel.index else "")


def variables_of(
    mechanism: Mechanism, state: State, inputs: Sequence[str], parameters: Sequence[Number], outputs: Sequence[Channel],
    has_events: bool,
) -> tuple[list[Variable], tuple[Channel, ...]]:  # fmt: skip
    """All variables, in the order of their value references, and the outputs that are no states; if the mechanism
    `has_events`, what indicates them.

    **Raises:** `MechanismError` if two have one name.
    """
    layout, channels = mechanism.layout, channel_units(mechanism)
    channels |= channel_units(with_signals(mechanism, [(name, jnp.zeros(())) for name in inputs]))
    wanted, names = set(map(output_name, outputs)), layout.names
    own = tuple(one for one in outputs if output_name(one) not in names)
    found = [Variable("time", "time", "s", "time")]
    starts = np.concatenate([state.q, state.v, state.z]).tolist()
    for name, unit, start, nominal, kind in zip(
        names, layout.units, starts, _nominals(mechanism), _kinds(layout), strict=True
    ):
        found.append(Variable("state", name, unit, kind, start, nominal, is_output=name in wanted))
    found += [
        Variable("rate", f"der({name})", rate_unit(unit), f"rate of {name}", of=k)
        for k, (name, unit) in enumerate(zip(names, layout.units, strict=True), 1)
    ]
    units = input_units(mechanism)
    for name in inputs:
        called = f"{name}.input" if name in channels else name
        found.append(Variable("input", called, units[name], f"what is added at the input {name}", 0.0))
    for one in parameters:
        part, _, number = one.name.partition(".")
        kind = type(mechanism[part]).__name__ if part != "speeds" else "generalized speeds"
        value = float(one.value(mechanism))
        found.append(Variable("parameter", one.name, one.unit(mechanism), f"{number} of {kind} {part}", value))
    for one in own:
        called = output_name(one)
        found.append(Variable("output", called, channels[one.name], f"quantity {one.name}", is_output=True))
    for part in switching_parts(mechanism) if has_events else ():
        for k, unit in enumerate(part.guard_units):
            text = f"event indicator: where it is zero, a law of {type(part).__name__} {part.name} is not smooth"
            found.append(Variable("indicator", f"{part.name}.heights[{k}]", unit or mechanism.unit_along(part), text))
    _check_names(found)
    return found, own


def rate_unit(unit: str) -> str:
    """The unit of the rate of a quantity; "" if its own is not known."""
    if unit in ("", "1"):
        return "1/s" if unit else ""
    return f"{unit}²" if unit.endswith("/s") else f"{unit}/s"


def is_structured(variables: Sequence[Variable]) -> bool:
    """True if all names have the form that FMI calls structured."""
    return all(_STRUCTURED.fullmatch(one.name.removeprefix("der(").removesuffix(")")) for one in variables)


def _kinds(layout: Layout) -> list[str]:
    blocks = {"coordinate": layout.q, "speed": layout.v, "state of a part": layout.z}
    return [kind for kind, block in blocks.items() for _ in block.names]


def _nominals(mechanism: Mechanism) -> list[float]:
    """Typical sizes: the mechanism's unit of length for lengths and their rates, the sizes of states of parts, one for
    all else."""
    length = float(unit_of_length(mechanism))
    motion = [*mechanism.layout.q.units, *mechanism.layout.v.units]
    return [length if unit in ("m", "m/s") else 1.0 for unit in motion] + list(mechanism.layout.z.sizes)


def _check_once(what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise MechanismError(f"{name!r} is given twice in {what}.")


def _check_names(variables: Sequence[Variable]) -> None:
    kinds: dict[str, str] = {}
    for one in variables:
        if one.name in kinds:
            raise MechanismError(
                f"{one.name!r} would be the name of a variable twice, {kinds[one.name]} and {one.kind}. "
                "Leave one of them out, or give a part another name."
            )
        if any(c in one.name for c in "\n\r\t"):
            raise MechanismError(f"A variable of FMI cannot have the name {one.name!r}, in more than one line.")
        kinds[one.name] = one.kind
