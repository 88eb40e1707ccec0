"""`robot.yaml` beside `robot.urdf`, which closes loops and makes joints spherical (example-parallel-robots):

closed_loop: [[coupler_end, rocker_end]]     # pairs of links or joints, whose frames coincide
type: ["3d"]                                 # their origins alone; "6d": their axes too
joint_name: [ankle]                          # joints of the URDF file that are
joint_type: [SPHERICAL]
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmbd.errors import MechanismError, needs, unknown
from jaxmbd.io._imported_model import file_error
from jaxmbd.io._xml import read_bytes
from jaxmbd.io.urdf.robot import Robot
from jaxmbd.model.body.spatial import Marker
from jaxmbd.model.joint.shared import FixedConstraint, PointConstraint
from jaxmbd.model.mechanism.mechanism import Joint

_LARGEST = 2**20  # [bytes] of such a file, a few lines
_TYPES = {"3d": PointConstraint, "6d": FixedConstraint}
_DEFAULT = "6d"
_KNOWN = ("closed_loop", "type", "joint_name", "joint_type", "name_mot")
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class RobotYaml:
    """`pairs` of frames that coincide, with the type of the constraint; names of `spherical` joints."""

    path: Path
    pairs: tuple[tuple[str, str, str], ...] = ()
    spherical: tuple[str, ...] = ()


def is_yaml(path: Path) -> bool:
    """True for a file that is YAML by its name."""
    return path.suffix in _SUFFIXES


def read_robot_yaml(robot: Robot, loops: Path | None) -> RobotYaml | None:
    """The content of the file that `loops` names, or of the one beside the robot; None if there is none."""
    path = robot.path.with_suffix(".yaml") if loops is None else loops
    if not is_yaml(path) or (loops is None and not path.is_file()):
        return None
    content = _content(path)
    if "closed_loop" not in content and "joint_name" not in content:
        robot.remarks.changed(f"file {path.name!r}", "beside the robot has neither closed_loop nor joint_name: unused")
        return None
    pairs = _pairs(path, content.get("closed_loop", []))
    kinds = _per_item(path, "type", content.get("type", _DEFAULT), len(pairs))
    types = [_one_of(path, "type", kind.lower(), _TYPES) for kind in kinds]
    names = _texts(path, "joint_name", content.get("joint_name", []))
    for kind in _per_item(path, "joint_type", content.get("joint_type", "SPHERICAL"), len(names)):
        _one_of(path, "joint_type", kind.upper(), ("SPHERICAL",))
    for key in content:
        if key not in _KNOWN:
            robot.remarks.lost(f"file {path.name!r}", f"has {str(key)[:40]!r}, which is left out")
    return RobotYaml(path, tuple((*pair, kind) for pair, kind in zip(pairs, types, strict=True)), tuple(names))


def _content(path: Path) -> Mapping[object, object]:
    needs(f"{path.name!r}, which closes loops of a robot,", "yaml", "urdf")
    yaml: Any = importlib.import_module("yaml")  # an extra, without types
    text = read_bytes(path)
    if len(text) > _LARGEST:
        raise file_error(path, f"the file has {len(text)} bytes; one that closes loops has at most {_LARGEST}.")
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or "it cannot be read"
        raise file_error(path, f"no well-formed YAML: {what}.", mark.line + 1 if mark else None) from None
    if not isinstance(content, dict):
        raise file_error(path, "it must hold keys with values, such as closed_loop: [[frame, frame]].")
    return content


def _pairs(path: Path, value: object) -> list[tuple[str, str]]:
    pairs: list[Any] = value if isinstance(value, list) else [None]
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise file_error(path, "closed_loop must be a list of pairs of names, such as [[frame, frame]].")
    return [(first, second) for first, second in pairs]


def _texts(path: Path, key: str, value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(name, str) for name in values):
        raise file_error(path, f"{key} must be a text or a list of texts.")
    return values


def _per_item(path: Path, key: str, value: object, count: int) -> list[str]:
    """One text for each of `count` items, or one for all of them."""
    texts = _texts(path, key, value)
    if not isinstance(value, list):
        return texts * count
    if len(texts) != count:
        raise file_error(path, f"{key} must have as many entries as there are items, {count}; it has {len(texts)}.")
    return texts


def _one_of(path: Path, key: str, value: str, known: Iterable[str]) -> str:
    if value not in known:
        raise file_error(path, f"{key} must be one of {', '.join(known)}, got {value[:40]!r}.")
    return value


def yaml_closures(robot: Robot, content: RobotYaml) -> list[Joint]:
    """The constraints of the pairs of frames."""
    joints = []
    for first, second, kind in content.pairs:
        markers = [_frame(robot, content.path, name) for name in (first, second)]
        if markers[0].body == markers[1].body:
            raise file_error(content.path, f"closed_loop: {first!r} and {second!r} are frames of one body.")
        joints.append(_TYPES[kind](robot.names.made("closure", first), *markers))
    return joints


def _frame(robot: Robot, path: Path, name: str) -> Marker:
    """The frame of a link, or of a joint, which is that of its child."""
    links = {joint.attributes.get("name", ""): joint for joint in robot.root.all("joint")}
    link = name if name in robot.owners or name not in links else robot.ends(links[name])[1]
    if link not in robot.owners:
        error: MechanismError = unknown("link or joint", name, [*robot.owners, *links])
        raise file_error(path, f"closed_loop: {error}")
    return robot.owners[link].at()
