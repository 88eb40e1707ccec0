"""A mechanism, and a state of it, as the tree of tables of a model file."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd.arrays import constant, is_concrete
from jaxmbd.errors import MechanismError, check_known, unknown
from jaxmbd.io.model_file.decode import Decoder, from_fields
from jaxmbd.io.model_file.encode import Encoder, numbers
from jaxmbd.io.model_file.parts import DEFAULTS, GROUPS, SPACES
from jaxmbd.io.model_file.shapes import shape_of, shape_table
from jaxmbd.io.model_file.source import MAX_PARTS, Place
from jaxmbd.io.model_file.toml import Section, Tables
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.named_coordinates import GeneralizedSpeeds
from jaxmbd.state.result_codes import RESULTS, is_one_of
from jaxmbd.state.state import State, check_state, rank_number, state_of

T = TypeVar("T")

FORMAT = "jaxmbd-model/1"
FLOATS = ("float64", "float32")
KEYS = (
    "format", "space", "floats", "coordinates", "cuts", "tree", "floating", *GROUPS, "markers", "scenery", "speeds",
    "state",
)  # fmt: skip
COORDINATES = ("absolute", "joint")


def tables_of(mechanism: Mechanism, state: State | None = None, folder: Path | None = None) -> Tables:
    """Return the tables of a mechanism, and of a state of it if there is one; `folder`: where their file will be.

    **Raises:** `MechanismError` if a part holds what a file cannot hold, or is traced.
    """
    if not is_concrete(mechanism):
        raise MechanismError("The mechanism is traced: save it outside of jit, grad and vmap.")
    floats = np.dtype(mechanism.bodies[0].mass.dtype)
    space = "planar" if mechanism.space.dim == 2 else "spatial"
    encoder = Encoder(space, floats, folder)
    tables: Tables = {
        "format": FORMAT,
        "space": space,
        "floats": str(floats),
        "coordinates": mechanism.coordinates,
        "cuts": list(mechanism.cuts),
        "floating": bool(mechanism.floating),
    }
    if mechanism.coordinates == "joint":
        tables["tree"] = list(mechanism.tree.joints)
    if mechanism.scenery:
        tables["scenery"] = [shape_table(shape, folder) for shape in mechanism.scenery]
    for group in GROUPS:
        parts = getattr(mechanism, group)
        tables[group] = Section({part.name: encoder.part(part, DEFAULTS.get(group)) for part in parts})
    if mechanism.speeds is not None:
        tables["speeds"] = Section(encoder.module(mechanism.speeds, "GeneralizedSpeeds", GeneralizedSpeeds))
    if state is not None:
        tables["state"] = _state_tables(mechanism, state, floats)
    return {key: value for key, value in tables.items() if value != {}}


def mechanism_of(tree: Tables, place: Place, trust: bool = False) -> Mechanism:
    """Return the mechanism that tables describe.

    **Arguments:** `tree`, the tables; `place`, where they stand, for errors; `trust`, whether functions and classes of
    users may be imported.

    **Raises:** `MechanismError` with file, line and reason.
    """
    check_format(tree, place)
    space = _one_of(tree, "space", SPACES, place)
    floats = np.dtype(_one_of({"floats": str(jnp.result_type(float)), **tree}, "floats", FLOATS, place))
    groups = {group: _checked(tree.get(group, {}), dict, "a table", place.at(group)) for group in GROUPS}
    if sum(map(len, groups.values())) > MAX_PARTS:
        raise place.located(f"there are more than {MAX_PARTS} parts, the limit of a model file.")
    markers = _checked(tree.get("markers", {}), dict, "a table", place.at("markers"))
    decoder = Decoder(space, floats, trust, {GROUND, *groups["bodies"]}, {})
    named = {name: decoder.marker(table, place.at("markers", name)) for name, table in markers.items()}
    decoder = dataclasses.replace(decoder, markers=named)
    parts = {
        group: [
            decoder.module(table, place.at(group, name), GROUPS[group], DEFAULTS.get(group), name)
            for name, table in tables.items()
        ]
        for group, tables in groups.items()
    }
    options: dict[str, Any] = {
        "coordinates": _one_of({"coordinates": "absolute", **tree}, "coordinates", COORDINATES, place),
        "floating": _checked(tree.get("floating", False), bool, "true or false", place.at("floating")),
    }
    if "scenery" in tree:
        at, shapes = place.at("scenery"), _checked(tree["scenery"], list, "a list of shapes", place.at("scenery"))
        options["scenery"] = [shape_of(table, at.at(k)) for k, table in enumerate(shapes)]
    if "speeds" in tree:
        options["speeds"] = decoder.build(GeneralizedSpeeds, tree["speeds"], place.at("speeds"))
    cuts, joints = (_names(tree[key], place.at(key)) if key in tree else None for key in ("cuts", "tree"))
    try:
        made = Mechanism(**parts, **options, cuts=cuts or ())
        return made if joints is None or joints == made.tree.joints else _with_tree(made, joints, options)
    except MechanismError as error:
        raise _place_of(str(error), groups, place).located(str(error)) from None


def check_format(tree: Tables, place: Place) -> None:
    """Raise unless this is a model file of the version that is read here, without an entry that has no meaning."""
    if "format" not in tree:
        raise place.located(f'this is no model file: it has no format. Its first line should be format = "{FORMAT}".')
    if tree["format"] != FORMAT:
        raise place.at("format").located(
            f"the format is {tree['format']!r}, and this version of jaxmbd reads {FORMAT!r}."
        )
    place.check_keys("entry of a model file", tree, KEYS)


def _with_tree(mechanism: Mechanism, joints: tuple[str, ...], options: dict[str, Any]) -> Mechanism:
    """The mechanism with a spanning tree of these joints, which another choice of parts had led to."""
    check_known("joint of the tree", joints, [joint.name for joint in mechanism.joints])
    others = [x.name for x in mechanism.joints if isinstance(x, AbstractTreeJoint) and x.name not in joints]
    groups = {group: getattr(mechanism, group) for group in GROUPS}
    tree = Mechanism(**groups, **options, cuts=others).tree if options["coordinates"] == "joint" else mechanism.tree
    if tree.joints != joints:
        raise MechanismError(
            f"tree must name the joints of a spanning tree in the order of the joints, such as {list(tree.joints)}, "
            f"got {list(joints)}. Without it one is chosen."
        )
    fields = {field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)}
    return from_fields(Mechanism, fields | {"tree": tree})


def _place_of(message: str, groups: dict[str, Tables], place: Place) -> Place:
    """The key that a message is about, or the table of the part that it names first."""
    starts = {"There is no joint to cut": "cuts", "There is no joint of the tree": "tree"} | {key: key for key in KEYS}
    for start, key in starts.items():
        if message.startswith(start):
            return place.at(key)
    head = message.partition(": ")[0]
    found = [(group, name) for group, tables in groups.items() for name in tables if repr(name) in head]
    return place.at(*found[0]) if found else place


def _one_of(tree: Tables, key: str, known: Iterable[str], place: Place) -> str:
    if key not in tree:
        raise place.located(f"{key} is missing, one of {', '.join(known)}.")
    if tree[key] not in (known := list(known)):
        raise place.at(key).located(f"{key} must be one of {', '.join(map(repr, known))}, got {tree[key]!r}.")
    return tree[key]


def _checked(value: object, kind: type[T], need: str, place: Place) -> T:
    if not isinstance(value, kind):
        raise place.error(f"must be {need}, got {value!r}.")
    return value


def _names(value: object, place: Place) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise place.error(f"must be a list of names of joints, got {value!r}.")
    return tuple(value)


# --- states ----------------------------------------------------------------------------------------------------


def _state_tables(mechanism: Mechanism, state: State, floats: np.dtype) -> Section:
    check_state(mechanism, state)
    if not is_concrete(state):
        raise MechanismError("The state is traced: save it outside of jit, grad and vmap.")
    if np.ndim(jax.tree.leaves(state.result)[0]) or not is_one_of(state.result, RESULTS.successful):
        raise MechanismError("The state is not that of one successful analysis, so there is nothing to go on from.")
    if state.q.dtype != floats:
        raise MechanismError(f"The state is {state.q.dtype}, and the mechanism {floats}; save both in one precision.")
    rank = {"rank": int(state.rank)} if int(state.rank) >= 0 else {}
    blocks = {"coordinates": state.layout.q, "speeds": state.layout.v, "states": state.layout.z}
    arrays = zip(blocks.items(), (state.q, state.v, state.z), strict=True)
    values = {
        key: Section(zip(block.names, numbers(np.asarray(x)), strict=True))
        for (key, block), x in arrays
        if len(block) or key != "states"
    }
    return Section(t=numbers(np.asarray(state.t, floats)), **rank, **values)


def state_from(tree: Tables, mechanism: Mechanism, place: Place) -> State:
    """Return the state that the tables of a model file describe below `[state]`.

    **Raises:** `MechanismError` if it is not one of the mechanism, or holds what are no finite numbers.
    """
    dtype = mechanism.bodies[0].mass.dtype
    if tree.get("floats", str(dtype)) != str(dtype):
        raise place.at("floats").located(
            f"the state is {tree['floats']!r}, and the mechanism {dtype}. Load the mechanism from this file."
        )
    place = place.at("state")
    tables = _checked(tree["state"], dict, "a table", place)
    place.check_keys("entry of a state", tables, ("t", "rank", "coordinates", "speeds", "states"))
    layout = mechanism.layout
    q = _by_name(tables.get("coordinates", {}), layout.q.names, dtype, place.at("coordinates"))
    v = _by_name(tables.get("speeds", {}), layout.v.names, dtype, place.at("speeds"))
    z = _by_name(tables.get("states", {}), layout.z.names, dtype, place.at("states"))
    rank = tables.get("rank")
    if rank is not None:
        rows = sum(mechanism.constraint_sizes())
        if type(rank) is not int or not 0 <= rank <= rows:
            raise place.at("rank").error(f"must be a whole number from 0 to {rows}, got {rank!r}.")
    t = _finite(tables.get("t", 0.0), dtype, place.at("t"))
    known = rank_number(-1 if rank is None else rank)
    return state_of(mechanism, constant(t), constant(q), constant(v), known, z=constant(z))


def _by_name(values: Any, names: tuple[str, ...], dtype: np.dtype, place: Place) -> np.ndarray:
    values = _checked(values, dict, "a table of numbers by name", place)
    for name in values:
        if name not in names:
            raise place.at(name).error(f"{unknown('entry of the state', name, names)}")
    missing = [name for name in names if name not in values]
    if missing:
        raise place.located(f"the state lacks {missing[0]!r}, and has to have each of {', '.join(map(repr, names))}.")
    return np.asarray([_finite(values[name], dtype, place.at(name)) for name in names], dtype)


def _finite(value: object, dtype: np.dtype, place: Place) -> np.ndarray:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= np.finfo(dtype).max:
        raise place.error(f"must be a finite number, got {value!r}.")
    return np.asarray(value, dtype)
