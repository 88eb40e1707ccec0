"""The JSON Schema of model files, made of the classes of parts and their docstrings.

`python -m jaxmbd.io.model_file.schema` writes it into `jaxmbd/io/model_file/model.schema.json`, where editors and other
programs find it.
"""

import inspect
import json
import re
from pathlib import Path
from typing import Any, TypeAlias

from jaxmbd.docstrings import argument_texts
from jaxmbd.io.model_file.encode import DTYPES
from jaxmbd.io.model_file.model import COORDINATES, FLOATS, FORMAT
from jaxmbd.io.model_file.parts import (
    DEFAULTS,
    GROUPS,
    SPACES,
    Argument,
    Form,
    classes,
    constructor_arguments,
    field_arguments,
    is_constructed,
    of_group,
)
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.mechanism.named_coordinates import GeneralizedSpeeds
from jaxmbd.space.shape import KINDS

Schema: TypeAlias = dict[str, Any]  # or a part of one, as `json` writes it

PATH = Path(__file__).with_name("model.schema.json")

_MARKERS = {"a": "The first marker.", "b": "The second marker.", "at": "The marker."}
_KEYS = {
    "format": ("Version of the format.", {"const": FORMAT}),
    "space": ("The plane, or three dimensions.", {"enum": list(SPACES)}),
    "floats": ("Type of all plain numbers; JAX's setting unless given.", {"enum": list(FLOATS)}),
    "coordinates": ("Poses of the bodies (default), or joint coordinates.", {"enum": list(COORDINATES)}),
    "cuts": ("With joint coordinates: joints excluded from the spanning tree.", {"$ref": "#/$defs/names"}),
    "tree": ("With joint coordinates: the spanning tree; chosen unless given.", {"$ref": "#/$defs/names"}),
    "floating": ("True to allow bodies without a connection to the ground.", {"type": "boolean"}),
    "markers": ("Markers by name, for joints, forces and sensors to refer to.", {"type": "object"}),
    "scenery": ("Shapes on the ground, in the world's frame, which are only looked at.", {"$ref": "#/$defs/shapes"}),
    "speeds": ("Generalized speeds of the user's choice.", {"$ref": "#/$defs/speeds"}),
    "state": ("A state of the mechanism, such as that at the start.", {"$ref": "#/$defs/state"}),
}  # fmt: skip


def model_schema() -> Schema:
    """Return the JSON Schema of a model file, as parsed from TOML."""
    spaces = {space: _space(space) for space in SPACES}
    groups = {group: {"type": "object"} for group in GROUPS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A mechanism for jaxmbd",
        "description": "Bodies, joints, drivers, forces and sensors by name, in SI units.",
        "type": "object",
        "properties": {key: {"description": text, **rule} for key, (text, rule) in _KEYS.items()} | groups,
        "required": ["format", "space", "bodies"],
        "additionalProperties": False,
        "allOf": [
            {"if": {"properties": {"space": {"const": space}}}, "then": {"properties": rules}}
            for space, (rules, _) in spaces.items()
        ],
        "$defs": _shared() | {name: rule for _, definitions in spaces.values() for name, rule in definitions.items()},
    }


def _space(space: str) -> tuple[Schema, Schema]:
    """What the groups of parts hold in a space, and the definition of each class."""
    definitions = {f"{space}.{name}": _part(space, part) for name, part in classes(space).items()}
    kinds = GROUPS | {"markers": (AbstractMarker,)}
    definitions |= {f"{space}.{group}": _any_of(space, of_group(space, kinds[group])) for group in kinds}
    unnamed = {"properties": {"name": False}}  # the key of its table is a part's name
    rules = {group: {"additionalProperties": unnamed | _ref(f"{space}.{group}")} for group in kinds}
    return rules, definitions


def _any_of(space: str, names: list[str]) -> Schema:
    return {"anyOf": [*(_ref(f"{space}.{name}") for name in names), _ref("users")]}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _part(space: str, part: type) -> Schema:
    """A class of parts; one that computes its fields has either those or its arguments."""
    sets = [constructor_arguments(part)] + ([] if is_constructed(part) else [field_arguments(part)])
    text, name = _description(part), part.__name__
    needs = [] if name in (*DEFAULTS.values(), "Marker", "MovingMarker") else ["type"]
    tables = [_table(space, arguments, text, {"type": {"const": name}}, needs) for arguments in sets]
    return {"description": text, **(tables[0] if len(tables) == 1 else {"anyOf": tables})}


def _table(space: str, arguments: dict[str, Argument], text: str, kind: Schema, needs: list[str]) -> Schema:
    """The table of a part: the rule of its `kind`, then those of its arguments; `needs`: keys that it has to have."""
    texts = _MARKERS | argument_texts(text, list(arguments))
    said = {key: {"description": texts[key]} if key in texts else {} for key in arguments}
    rules = {key: said[key] | _rule(space, argument) for key, argument in arguments.items()}
    required = [key for key, argument in arguments.items() if argument.is_required and key != "name"]
    return {
        "type": "object",
        "properties": kind | rules,
        "required": [*needs, *required],
        "additionalProperties": False,
    }


def _description(part: type) -> str:
    """The docstring of a class without its errors and examples."""
    return re.split(r"\n\n(?:\*\*Raises| *>>>)", inspect.getdoc(part) or "")[0]


def _rule(space: str, argument: Argument) -> Schema:
    rules = {
        Form.NUMBER: _or_table({"type": "number"}),
        Form.NUMBERS: _or_table(_ref("numbers")),
        Form.TEXT: {"type": "string"},
        Form.FLAG: {"type": "boolean"},
        Form.INTEGER: {"type": "integer"},
        Form.REAL: {"type": "number"},
        Form.MARKER: {"anyOf": [{"type": "string"}, _ref(f"{space}.markers")]},
        Form.SHAPE: _ref("shape"),
        Form.ANY: _ref("value"),
    }
    rule = rules[argument.form]
    return {"type": "array", "items": rule} if argument.many else rule


def _or_table(rule: Schema) -> Schema:
    return {"anyOf": [rule, _ref("typed")]}


def _shared() -> Schema:
    """The definitions that do not depend on the space."""
    by_name = {"type": "object", "additionalProperties": {"type": "number"}}
    state = {"t": {"description": "Time [s].", "type": "number"}, "rank": {"type": "integer"}}
    state |= {"coordinates": by_name, "speeds": by_name}
    text = _description(GeneralizedSpeeds)
    typed = "A function, a class of the library or of a user's own, or an array, number or container of another type."
    path = {"type": "string", "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"}
    return {
        "names": {"type": "array", "items": {"type": "string"}},
        "numbers": {"anyOf": [{"type": "number"}, {"type": "array", "items": _ref("numbers")}]},
        "value": {"anyOf": [_ref("numbers"), {"type": "string"}, {"type": "object"}]},
        "typed": {"description": typed, "anyOf": [*_types(path), _ref("users"), _ref("library")]},
        "users": {
            "description": "A class of a user's own by its import path, with its fields; it needs to be trusted.",
            "type": "object",
            "properties": {"type": path},
            "required": ["type"],
        },
        "library": {
            "type": "object",
            "properties": {"type": {"enum": sorted({name for space in SPACES for name in classes(space)})}},
            "required": ["type"],
        },
        "shape": _shape(),
        "shapes": {"type": "array", "items": _ref("shape")},
        "state": {
            "type": "object", "properties": state, "required": ["coordinates", "speeds"], "additionalProperties": False
        },
        "speeds": {"description": text, **_table("", constructor_arguments(GeneralizedSpeeds), text, {}, [])},
    }  # fmt: skip


def _shape() -> Schema:
    """The table of a shape."""
    numbers, text = {"type": "array", "items": {"type": "number"}}, {"type": "string"}
    rules = {
        "kind": {"enum": list(KINDS)},
        "size": {"description": "Lengths [m]: edges, radius and length, diameters.", **numbers},
        "position": {"description": "Position [m] in the frame of the body.", **numbers},
        "rotation": {"description": "Euler parameters, scalar first, from the shape's axes to the body's.", **numbers},
        "colour": {
            "description": "The colour; the body's unless given.",
            "type": "string",
            "pattern": "^#[0-9a-fA-F]{6}$",
        },
        "opacity": {"description": "From 0 to 1.", "type": "number"},
        "file": {"description": "The file of a mesh, relative to this one.", **text},
        "scale": {
            "description": "What its coordinates are multiplied by to be metres.",
            "anyOf": [{"type": "number"}, numbers],
        },
        "vertices": {"description": "Vertices [m], float32 in base 64.", **text},
        "triangles": {"description": "Triangles, uint32 in base 64.", **text},
        "colours": {"description": "Red, green and blue of each triangle, bytes in base 64.", **text},
    }
    about = "What a body looks like: a simple shape, or a mesh."
    return {
        "description": about, "type": "object", "properties": rules, "required": ["kind"], "additionalProperties": False
    }  # fmt: skip


def _types(path: Schema) -> list[Schema]:
    """Tables that say what they are by a `type` that is no class."""
    values, items = {"value": {}}, {"items": {"type": "array"}}
    array = {"dtype": {"enum": list(DTYPES)}, "values": {}}
    shape = {"shape": {"type": "array", "items": {"type": "integer"}}}
    kinds: dict[str, tuple[Schema, Schema]] = {
        "none": ({}, {}),
        **dict.fromkeys(("bool", "int", "float"), (values, {})),
        **dict.fromkeys(("tuple", "list", "dict"), (items, {})),
        "function": ({"path": path}, {}),
        "array": (array, shape | {"weak": {"type": "boolean"}}),
        "numpy": (array, shape),
        "scalar": ({"dtype": array["dtype"], "value": {}}, {}),
        "mesh": ({"density": {"type": "number"}, "file": {"type": "string"}}, {"scale": {"type": "number"}}),
    }
    return [
        {
            "type": "object",
            "properties": {"type": {"const": kind}, **needed, **further},
            "required": ["type", *needed],
            "additionalProperties": False,
        }
        for kind, (needed, further) in kinds.items()
    ]


def schema_text() -> str:
    """Return the text of the file that holds the schema."""
    return json.dumps(model_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(schema_text(), encoding="utf-8")
