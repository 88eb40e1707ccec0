"""What the description of a Functional Mock-up Unit tells: its variables, its structure, and what it is able to do."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jaxmbd.checks import as_path
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.io._imported_model import file_error
from jaxmbd.io._xml import Element, read_xml
from jaxmbd.io.fmu.archive import DESCRIPTION, Archive, open_archive
from jaxmbd.printing import table

_VERSIONS = ("2", "3")
_KINDS = {"model exchange": "ModelExchange", "co-simulation": "CoSimulation"}
_SHOWN = 60  # rows of a printed table


@dataclass(frozen=True)
class FmuVariable:
    """A variable of an FMU. `kind`: its type, `"Float64"` (`"Real"` in FMI 2.0), `"Int32"` and so on; `reference`: its
    value reference; `start`: `None` where it is computed, or no number; `is_scalar`: false for arrays."""

    name: str
    kind: str
    reference: int
    causality: str
    variability: str
    unit: str
    start: float | None
    nominal: float
    is_scalar: bool

    @property
    def is_real(self) -> bool:
        """True for a number in double precision."""
        return self.kind in ("Float64", "Real") and self.is_scalar


@dataclass(frozen=True)
class Abilities:
    """What an FMU says that it can do, as one of its kinds. `identifier`: the name of its binary."""

    identifier: str
    keeps_states: bool
    serializes_states: bool
    has_directional: bool
    is_alone: bool


@dataclass(frozen=True)
class FmuDescription:
    """The description of an FMU: data alone, of which nothing has been run.

    `version`, `"3.0"` or `"2.0"`; `name`, of the model; `kinds`, `"model exchange"` and `"co-simulation"` with what it
    can do; `variables` by name; the names of its continuous `states` and of their `rates`; `indicators`, how many event
    indicators it has; `start`, the time at which its own experiment starts [s]. `print(description)` shows them.
    """

    path: Path
    version: str
    name: str
    token: str
    kinds: Mapping[str, Abilities]
    variables: Mapping[str, FmuVariable]
    states: tuple[str, ...]
    rates: tuple[str, ...]
    indicators: int
    start: float
    # Of FMI 3.0: the value references of the event indicators, and those on which rates and outputs depend.
    indicator_references: tuple[int, ...] = ()
    dependencies: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    archive: Archive | None = field(default=None, repr=False)

    def named(self, causality: str) -> list[str]:
        """The names of the variables of a causality, `"input"`, `"output"`, `"parameter"`, `"local"`."""
        return [name for name, one in self.variables.items() if one.causality == causality]

    def references(self, names: Sequence[str]) -> tuple[int, ...]:
        """The value references of some variables."""
        return tuple(self.variables[name].reference for name in names)

    def check_real(self, what: str, names: Sequence[str], causalities: Sequence[str] = ()) -> None:
        """Raise unless there are such variables, of these causalities, and each is a number in double precision."""
        of_kind = [name for name, one in self.variables.items() if not causalities or one.causality in causalities]
        try:
            check_known("variable" if not causalities else " or ".join(causalities), names, of_kind)
        except MechanismError as error:
            raise MechanismError(f"FMU {self.path.name!r}: {what}: {error}") from None
        for name in names:
            one = self.variables[name]
            if not one.is_real:
                size = "" if one.is_scalar else "an array of "
                raise MechanismError(
                    f"FMU {self.path.name!r}: {what}: the variable {name!r} is {size}{one.kind}, and a part reads and "
                    "gives single numbers in double precision, Float64 (in FMI 2.0: Real)."
                )

    def __str__(self) -> str:
        states = dict.fromkeys(self.states, "state") | dict.fromkeys(self.rates, "rate")
        rows = [
            (name, one.kind if one.is_scalar else f"{one.kind}[]", states.get(name, one.causality), one.variability,
             one.unit, "" if one.start is None else f"{one.start:g}")
            for name, one in list(self.variables.items())[:_SHOWN]
        ]  # fmt: skip
        able = "; ".join(
            f"{kind}{' with derivatives' if of.has_directional else ' without derivatives'}"
            for kind, of in self.kinds.items()
        )
        more = len(self.variables) - len(rows)
        text = table([("variable", "type", "is", "variability", "unit", "start"), *rows], words=5)
        return (
            f"FMU {self.path.name!r}: {self.name}, FMI {self.version}; {able}; {len(self.states)} states, "
            f"{self.indicators} event indicators\n{text}" + (f"\n… and {more} more" if more > 0 else "")
        )


def read_fmu(path: str | os.PathLike[str]) -> FmuDescription:
    """Read the description of a Functional Mock-up Unit of FMI 2.0 or 3.0: variables, states, what it is able to do.

    Nothing in the file is run: this reads data alone. `import_fmu` makes a part of it, and runs its code.

    **Raises:** `MechanismError` with the file and the line, if it is no FMU, or none of these versions.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> mbd.export_fmu(pendulum.mechanism, "pendulum.fmu", inputs=["O.angle"], binary=False)
        >>> mbd.io.read_fmu("pendulum.fmu").states
        ('rod.x', 'rod.y', 'rod.theta', 'rod.vx', 'rod.vy', 'rod.omega')
    """
    archive = open_archive(as_path("read_fmu", path))
    return _Reader(archive).description()


class _Reader:
    """The elements of a description, with checked values."""

    def __init__(self, archive: Archive) -> None:
        self.archive, self.path = archive, archive.path
        self.shown = Path(archive.path.name, DESCRIPTION)
        self.root = read_xml(self.shown, archive.description)
        if self.root.tag != "fmiModelDescription":
            raise self.error(self.root, f"the root element is fmiModelDescription, got {self.root.tag!r}.")
        self.version = self.text(self.root, "fmiVersion")
        if self.version.partition(".")[0] not in _VERSIONS:
            raise self.error(self.root, f"an FMU of FMI 2.0 or 3.0 can be imported, got version {self.version!r}.")
        self.is_3 = self.version.startswith("3")

    def error(self, element: Element, text: str) -> MechanismError:
        return file_error(self.shown, text, element.line)

    def description(self) -> FmuDescription:
        variables = self.variables()
        states, rates = self.states(list(variables.values()))
        experiment = self.root.first("DefaultExperiment")
        indicators = self.structure("EventIndicator") if self.is_3 else []
        count = len(indicators) if self.is_3 else self.whole(self.root, "numberOfEventIndicators", 0)
        references = tuple(self.whole(one, "valueReference") for one in indicators)
        depend = {
            self.whole(one, "valueReference"): tuple(map(int, one.attributes["dependencies"].split()))
            for tag in ("Output", "ContinuousStateDerivative", "EventIndicator") if self.is_3
            for one in self.structure(tag) if "dependencies" in one.attributes and self.are_whole(one, "dependencies")
        }  # fmt: skip
        kinds = {kind: self.abilities(found) for kind, tag in _KINDS.items() if (found := self.root.first(tag))}
        if not kinds:
            raise self.error(self.root, "it is neither for model exchange nor for co-simulation, the kinds that are "
                             "imported.")  # fmt: skip
        return FmuDescription(
            self.path, self.version, self.text(self.root, "modelName"),
            self.text(self.root, "instantiationToken" if self.is_3 else "guid"), kinds, variables, states, rates, count,
            0.0 if experiment is None else self.number(experiment, "startTime", 0.0), references, depend, self.archive,
        )  # fmt: skip

    def abilities(self, element: Element) -> Abilities:
        state, derivatives = ("State", "Derivatives") if self.is_3 else ("state", "Derivative")
        flag = lambda name: element.attributes.get(name, "false") in ("true", "1")  # noqa: E731
        identifier = self.text(element, "modelIdentifier")
        if not identifier.isidentifier():  # it becomes the name of a file
            raise self.error(element, f"modelIdentifier is an identifier of C, got {identifier!r}.")
        return Abilities(
            identifier, flag(f"canGetAndSetFMU{state}"), flag(f"canSerializeFMU{state}"),
            flag(f"providesDirectional{derivatives}"), flag("canBeInstantiatedOnlyOncePerProcess"),
        )  # fmt: skip

    def variables(self) -> dict[str, FmuVariable]:
        listed = self.root.first("ModelVariables")
        found: dict[str, FmuVariable] = {}
        for element in () if listed is None else listed.children:
            kind = element
            if not self.is_3:
                if not element.children:
                    raise self.error(element, "a ScalarVariable holds an element of its type, such as Real.")
                kind = element.children[0]
            name = self.text(element, "name")
            if name in found:
                raise self.error(element, f"two variables have the name {name!r}.")
            nominal, is_float = kind.attributes.get("nominal", ""), kind.tag in ("Float64", "Real")
            starts = kind.attributes.get("start", "").split() if is_float else []
            found[name] = FmuVariable(
                name, kind.tag, self.whole(element, "valueReference"), element.attributes.get("causality", "local"),
                element.attributes.get("variability", "continuous"), kind.attributes.get("unit", ""),
                self.number(kind, "start") if len(starts) == 1 else None,
                self.number(kind, "nominal", 1.0) if is_float and " " not in nominal else 1.0,
                element.first("Dimension") is None,
            )  # fmt: skip
        return found

    def states(self, variables: Sequence[FmuVariable]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the states and of their rates, in the order of the rates."""
        elements = self.root.first("ModelVariables")
        children = [] if elements is None else elements.children
        states, rates = [], []
        by_reference = {one.reference: k for k, one in reversed([*enumerate(variables)])}
        for element in self.structure("ContinuousStateDerivative" if self.is_3 else "Derivatives"):
            if self.is_3:
                place = by_reference.get(self.whole(element, "valueReference"), -1)
            else:
                place = self.whole(element, "index") - 1
            if not 0 <= place < len(variables):
                raise self.error(element, "it refers to a variable that there is not.")
            of = children[place] if self.is_3 else children[place].children[0]
            derivative = self.whole(of, "derivative")
            state = by_reference.get(derivative, -1) if self.is_3 else derivative - 1
            if not 0 <= state < len(variables):
                raise self.error(of, "derivative refers to a variable that there is not.")
            states.append(variables[state].name)
            rates.append(variables[place].name)
        return tuple(states), tuple(rates)

    def structure(self, tag: str) -> list[Element]:
        """The elements of the model's structure; those of FMI 2.0 are in a group."""
        structure = self.root.first("ModelStructure")
        if structure is None:
            return []
        if self.is_3:
            return structure.all(tag)
        group = structure.first(tag)
        return [] if group is None else group.all("Unknown")

    # --- values -----------------------------------------------------------------------------------------

    def text(self, element: Element, name: str) -> str:
        if name not in element.attributes:
            raise self.error(element, f"{element.tag} lacks the attribute {name}.")
        return element.attributes[name]

    def number(self, element: Element, name: str, default: float | None = None) -> float:
        text = element.attributes.get(name)
        if text is None and default is not None:
            return default
        try:
            value = float(text or "")
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.error(element, f"{name} of {element.tag} must be a number, got {text!r}.")
        return value

    def whole(self, element: Element, name: str, default: int | None = None) -> int:
        text = element.attributes.get(name)
        if text is None and default is not None:
            return default
        if text is None or not text.isascii() or not text.isdigit() or int(text) >= 2**32:
            raise self.error(element, f"{name} of {element.tag} must be a whole number of 32 bits, got {text!r}.")
        return int(text)

    def are_whole(self, element: Element, name: str) -> bool:
        if all(text.isascii() and text.isdigit() and len(text) <= 10 for text in element.attributes[name].split()):
            return True
        raise self.error(element, f"{name} of {element.tag} must be whole numbers.")
