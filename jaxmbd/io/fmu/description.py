"""`modelDescription.xml` and `buildDescription.xml` of FMI 2.0 and 3.0."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from jaxmbd.io.fmu.variables import Variable, is_structured

Element = ElementTree.Element
# Units of SI by the exponents of its base units, as FMI writes them.
_BASE = {
    "m": {"m": 1}, "kg": {"kg": 1}, "s": {"s": 1}, "A": {"A": 1}, "K": {"K": 1}, "rad": {"rad": 1},
    "N": {"kg": 1, "m": 1, "s": -2}, "J": {"kg": 1, "m": 2, "s": -2}, "W": {"kg": 1, "m": 2, "s": -3},
    "Pa": {"kg": 1, "m": -1, "s": -2}, "V": {"kg": 1, "m": 2, "s": -3, "A": -1}, "Hz": {"s": -1},
    "Ω": {"kg": 1, "m": 2, "s": -3, "A": -2}, "H": {"kg": 1, "m": 2, "s": -2, "A": -2},
    "C": {"A": 1, "s": 1}, "F": {"kg": -1, "m": -2, "s": 4, "A": 2}, "1": {},
}  # fmt: skip
_EXPONENTS = {"": 1, "²": 2, "³": 3, "⁴": 4, "⁵": 5}
_FACTOR = re.compile(rf"({'|'.join(_BASE)})([²³⁴⁵]?)")
_CATEGORIES = {"logStatusError": "Calls that are not allowed", "logStatusDiscard": "Steps that failed"}


@dataclass(frozen=True)
class Model:
    """What a description tells of a model.

    `identifier`: the name of the binary; `dependencies`: by the value reference of a rate or an output, those of the
    states, inputs and the time on which it may depend; `step`: a length of steps for co-simulation [s].
    """

    name: str
    identifier: str
    description: str
    variables: Sequence[Variable]
    dependencies: dict[int, list[int]]
    start: float
    step: float

    def references(self, *kinds: str) -> list[int]:
        """The value references of all variables of some kinds."""
        return [k for k, one in enumerate(self.variables) if one.kind in kinds]


def base_units(unit: str) -> dict[str, int] | None:
    """The exponents of SI's base units in a unit such as "N m s/rad"; `None` if it is none of SI."""
    exponents: dict[str, int] = {}
    for k, part in enumerate(unit.split("/")):
        for factor in part.strip("()").split():
            found = _FACTOR.fullmatch(factor)
            if found is None or k > 1:
                return None
            for base, exponent in _BASE[found[1]].items():
                exponents[base] = exponents.get(base, 0) + (-1) ** k * exponent * _EXPONENTS[found[2]]
    return {base: exponent for base, exponent in exponents.items() if exponent}


def description_3(model: Model, token: str) -> str:
    """`modelDescription.xml` of FMI 3.0."""
    root = _root(model, "3.0", {"instantiationToken": token})
    able = dict.fromkeys(("canGetAndSetFMUState", "canSerializeFMUState"), True)
    able |= dict.fromkeys(("providesDirectionalDerivatives", "providesAdjointDerivatives"), True)
    _add(root, "ModelExchange", modelIdentifier=model.identifier, **able)
    _add(root, "CoSimulation", modelIdentifier=model.identifier, canHandleVariableCommunicationStepSize=True, **able)
    _add_common(root, model)
    listed = _add(root, "ModelVariables")
    for k, one in enumerate(model.variables):
        _add(listed, "Float64", name=one.name, valueReference=k, **_attributes(one), derivative=one.of)
    structure = _add(root, "ModelStructure")
    for tag, references in _unknowns(model).items():
        for k in references:
            depends = model.dependencies.get(k) if tag != "InitialUnknown" else None
            _add(structure, tag, valueReference=k, dependencies=depends)
    return _text(root)


def description_2(model: Model, token: str) -> str:
    """`modelDescription.xml` of FMI 2.0."""
    root = _root(model, "2.0", {"guid": token, "numberOfEventIndicators": str(len(model.references("indicator")))})
    able = dict.fromkeys(("canGetAndSetFMUstate", "canSerializeFMUstate", "providesDirectionalDerivative"), True)
    exchange = _add(root, "ModelExchange", modelIdentifier=model.identifier, **able)
    steps = _add(
        root, "CoSimulation", modelIdentifier=model.identifier, canHandleVariableCommunicationStepSize=True, **able
    )
    for element in (exchange, steps):
        _add(_add(element, "SourceFiles"), "File", name="fmi2.c")
    _add_common(root, model)
    listed = _add(root, "ModelVariables")
    for k, one in enumerate(model.variables):
        attributes = _attributes(one)
        of_real = {key: attributes.pop(key, None) for key in ("unit", "start", "nominal", "reinit")}
        scalar = _add(listed, "ScalarVariable", name=one.name, valueReference=k, **attributes)
        _add(scalar, "Real", **of_real, derivative=None if one.of is None else one.of + 1)
    structure = _add(root, "ModelStructure")
    tags = {"Output": "Outputs", "ContinuousStateDerivative": "Derivatives", "InitialUnknown": "InitialUnknowns"}
    for tag, references in _unknowns(model).items():
        if tag == "EventIndicator":
            continue  # of which this version tells the number alone
        group = _add(structure, tags[tag]) if references else None
        for k in references:
            # Variables are counted from one, by their order; the time is left out, as in all lists of this version.
            depends = [i + 1 for i in model.dependencies.get(k, []) if i] if tag != "InitialUnknown" else None
            assert group is not None
            _add(group, "Unknown", index=k + 1, dependencies=depends)
    return _text(root)


def build_description(identifier: str) -> str:
    """`buildDescription.xml` of FMI 3.0: how the sources are compiled."""
    root = Element("fmiBuildDescription", fmiVersion="3.0")
    files = _add(_add(root, "BuildConfiguration", modelIdentifier=identifier), "SourceFileSet", language="C99")
    _add(files, "SourceFile", name="fmi3.c")
    return _text(root)


def _root(model: Model, fmi: str, token: dict[str, str]) -> Element:
    attributes = {
        "fmiVersion": fmi, "modelName": model.name, **token, "description": model.description,
        "generationTool": f"jaxmbd {version('jaxmbd')}",
        "variableNamingConvention": "structured" if is_structured(model.variables) else "flat",
    }  # fmt: skip
    return Element("fmiModelDescription", attributes)


def _add_common(root: Element, model: Model) -> None:
    """What both versions write in the same way, in this order."""
    units = dict.fromkeys(one.unit for one in model.variables if one.unit)
    definitions = _add(root, "UnitDefinitions")
    for unit in units:
        element, base = _add(definitions, "Unit", name=unit), base_units(unit)
        if base is not None:
            _add(element, "BaseUnit", **base)
    categories = _add(root, "LogCategories")
    for name, text in _CATEGORIES.items():
        _add(categories, "Category", name=name, description=text)
    _add(root, "DefaultExperiment", startTime=model.start, stepSize=model.step)


def _attributes(one: Variable) -> dict[str, Any]:
    """The attributes that both versions have, by the kind of a variable."""
    causality = (
        "output"
        if one.is_output
        else {"time": "independent", "input": "input", "parameter": "parameter"}.get(one.kind, "local")
    )
    exact, computed = ("state", "parameter"), ("rate", "output", "indicator")
    initial = "exact" if one.kind in exact else "calculated" if one.kind in computed else None
    return {
        "description": one.description, "causality": causality,
        "variability": "tunable" if one.kind == "parameter" else "continuous", "initial": initial,
        "unit": one.unit or None, "start": one.start, "nominal": one.nominal,
        "reinit": True if one.kind == "state" else None,
    }  # fmt: skip


def _unknowns(model: Model) -> dict[str, list[int]]:
    """The value references of outputs, rates, and what is computed at the start, in the order of FMI."""
    outputs = [k for k, one in enumerate(model.variables) if one.is_output]
    rates = model.references("rate")
    return {
        "Output": outputs,
        "ContinuousStateDerivative": rates,
        "InitialUnknown": sorted([*rates, *model.references("output")]),
        "EventIndicator": model.references("indicator"),
    }


def _add(parent: Element, tag: str, **attributes: Any) -> Element:
    return ElementTree.SubElement(parent, tag, {k: _value(x) for k, x in attributes.items() if x is not None})


def _value(x: Any) -> str:
    if isinstance(x, bool):
        return str(x).lower()
    return " ".join(map(str, x)) if isinstance(x, Iterable) and not isinstance(x, str) else str(x)


def _text(root: Element) -> str:
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'
