"""What closes the loops of a URDF robot.

URDF knows trees only; programs add what they need. Read are `<loop_joint>` (Isaac Sim, Drake's older parser), joints of
SDF inside `<gazebo>`, Drake's `ball_constraint` and `linear_bushing_rpy`, pairs of frames `closing_NAME_1`,
`closing_NAME_2` (onshape-to-robot), and a TOML file beside the robot:

    [[loop]]
    name = "closure"
    type = "revolute"           # or spherical, prismatic, fixed
    axis = [0, 1, 0]            # in both frames
    link1 = { link = "coupler", xyz = [0.4, 0, 0], rpy = [0, 0, 0] }
    link2 = { link = "rocker", xyz = [0.2, 0, 0] }
"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.io._imported_model import Remarks, file_error
from jaxmbd.io._placement import Placement
from jaxmbd.io._xml import Element
from jaxmbd.io.model_file.source import read_source, tree_of
from jaxmbd.io.urdf.robot import HINGES, SLIDES, Robot
from jaxmbd.io.urdf.robot_yaml import is_yaml
from jaxmbd.model.body.spatial import Marker
from jaxmbd.model.force.compliant import Bushing
from jaxmbd.model.joint.shared import FixedConstraint, PointConstraint
from jaxmbd.model.joint.spatial import Prismatic, Revolute
from jaxmbd.model.mechanism.mechanism import Joint

_BALLS = ("spherical", "ball")
_TYPES = {
    **dict.fromkeys(_BALLS, PointConstraint),
    **dict.fromkeys(HINGES, Revolute),
    **dict.fromkeys(SLIDES, Prismatic),
    "fixed": FixedConstraint,
}
_CLOSING = re.compile(r"closing_(.+)_1")
_LOOP_KEYS = {"name", "type", "axis", "link1", "link2"}
_END_KEYS = {"link", "xyz", "rpy"}


def closures(robot: Robot, loops: Path | None) -> tuple[list[Joint], list[Bushing]]:
    """The joints, and the bushings, that close loops."""
    joints = [_loop_joint(robot, element) for element in robot.root.all("loop_joint")]
    joints += [joint for element in robot.root.all("gazebo") for joint in _gazebo(robot, element)]
    joints += [_ball_constraint(robot, element) for element in robot.root.all("ball_constraint")]
    joints += _closing_frames(robot)
    beside = robot.path.with_suffix(".loops.toml") if loops is None or is_yaml(loops) else loops
    if (loops is not None and not is_yaml(loops)) or beside.is_file():
        there = replace(robot, remarks=Remarks(beside, robot.remarks.found))  # its errors name that file
        joints += [_loop_joint(there, element) for element in _side_file(beside)]
    return joints, [_bushing(robot, element) for element in robot.root.all("linear_bushing_rpy")]


def _loop_joint(robot: Robot, element: Element) -> Joint:
    """A `<loop_joint>` with two `<link1>`, `<link2>` (Isaac Sim's documentation has two `<link1>`), each with the
    placement of the joint's frame on it."""
    kind = element.attributes.get("type", "spherical")
    if kind not in _TYPES:
        raise robot.error(element, f"type must be one of {', '.join(_TYPES)}, got {kind!r}.")
    ends = [child for child in element.children if child.tag in ("link1", "link2")]
    if len(ends) != 2:
        raise robot.error(element, f"it needs a <link1> and a <link2> with link, xyz and rpy; it has {len(ends)}.")
    robot.remark_on_others(f"loop_joint {element.attributes.get('name')!r}", element, ("link1", "link2", "axis"))
    axis = robot.axis(element) if kind in HINGES + SLIDES else Placement()
    markers = []
    for end in ends:
        place = robot.placement(end.first("origin") or end)
        markers.append(robot.owner(end, robot.attribute(end, "link")).at(place @ axis))
    return _closure(robot, element, kind, robot.attribute(element, "name"), markers)


def _closure(robot: Robot, element: Element, kind: str, name: str, markers: list[Marker]) -> Joint:
    if markers[0].body == markers[1].body:
        raise robot.error(element, "it connects two points of one body.")
    own = robot.names.new("loop", name, element.line)
    return _TYPES[kind](own, *markers)


def _gazebo(robot: Robot, element: Element) -> list[Joint]:
    """Joints of SDF inside `<gazebo>`: their `pose` is relative to the child, in the position of all zeros."""
    joints = []
    for joint in element.all("joint"):
        kind, name = robot.attribute(joint, "type"), robot.attribute(joint, "name")
        if kind not in _TYPES:
            raise robot.error(joint, f"type must be one of {', '.join(_TYPES)}, got {kind!r}.")
        parent, child = (robot.child(joint, tag).text.strip() for tag in ("parent", "child"))
        owners = [robot.owner(joint, link) for link in (parent, child)]
        robot.remark_on_others(f"joint {name!r}", joint, ("parent", "child", "pose", "axis"))
        pose = _text_numbers(robot, joint.first("pose"), 6)
        place = Placement(pose[:3], Rotation.from_euler("xyz", pose[3:]))
        if kind in HINGES + SLIDES:
            axis = robot.child(joint, "axis")
            robot.remark_on_others(f"joint {name!r}", axis, ("xyz",))
            place = place @ _sdf_axis(robot, axis)
        on_parent = robot.poses[parent].inverse() @ robot.poses[child] @ place
        joints.append(_closure(robot, joint, kind, name, [owners[0].at(on_parent), owners[1].at(place)]))
    rest = sorted({child.tag for child in element.children if child.tag not in ("joint", "material")})
    if rest:
        robot.remarks.lost("<gazebo>", f"has {', '.join(rest)}: left out", element.line)
    return joints


def _sdf_axis(robot: Robot, axis: Element) -> Placement:
    xyz = axis.first("xyz")
    text = "0 0 1" if xyz is None else xyz.text
    return robot.axis(Element("axis", {}, axis.line, [Element("axis", {"xyz": text}, axis.line)]))


def _text_numbers(robot: Robot, element: Element | None, count: int) -> np.ndarray:
    if element is None:
        return np.zeros(count)
    inner = Element(element.tag, {"text": element.text}, element.line)
    return robot.numbers(inner, "text", (0.0,) * count)


def _ball_constraint(robot: Robot, element: Element) -> PointConstraint:
    """Drake's: the points P of body A and Q of body B coincide."""
    markers = []
    for body, point in (("A", "p_AP"), ("B", "p_BQ")):
        link = robot.child(element, f"ball_constraint_body_{body}")
        place = robot.numbers(robot.child(element, f"ball_constraint_{point}"), "value", (0.0, 0.0, 0.0))
        markers.append(robot.owner(link, robot.attribute(link, "name")).at(Placement(place)))
    if markers[0].body == markers[1].body:
        raise robot.error(element, "it connects two points of one body.")
    return PointConstraint(robot.names.made("ball_constraint"), *markers)


def _closing_frames(robot: Robot) -> list[PointConstraint]:
    """Pairs of links named `closing_NAME_1` and `closing_NAME_2`, whose origins coincide."""
    joints = []
    for first in robot.owners:
        match = _CLOSING.fullmatch(first)
        second = f"closing_{match[1]}_2" if match else ""
        if match and second in robot.owners:
            name = robot.names.made("closure", match[1])
            joints.append(PointConstraint(name, robot.owners[first].at(), robot.owners[second].at()))
            robot.remarks.changed(f"links {first!r} and {second!r}", f"coincide by their names: the closure {name!r}")
    return joints


def _bushing(robot: Robot, element: Element) -> Bushing:
    """Drake's: a spring-damper between two frames; its angles are roll, pitch and yaw, here a rotation vector."""
    frames = {frame.attributes.get("name", ""): frame for frame in robot.root.all("frame")}
    markers = []
    for which in ("A", "C"):
        end = robot.child(element, f"bushing_frame{which}")
        name = robot.attribute(end, "name")
        if name not in frames:
            raise robot.error(end, f"there is no <frame> {name!r}; there are {list(frames)}.")
        frame = frames[name]
        markers.append(robot.owner(frame, robot.attribute(frame, "link")).at(robot.placement(frame)))
    values = {}
    for field in ("force_stiffness", "torque_stiffness", "force_damping", "torque_damping"):
        values[field] = robot.numbers(robot.child(element, f"bushing_{field}"), "value", (0.0, 0.0, 0.0))
    stiffness, damping = (
        np.concatenate([values[f"force_{of}"], values[f"torque_{of}"]]) for of in ("stiffness", "damping")
    )
    name = robot.names.made("bushing")
    text = f"is the Bushing {name!r}, which agrees while it turns little"
    robot.remarks.lost("<linear_bushing_rpy>", text, element.line)
    return Bushing(name, markers[0], markers[1], stiffness, damping)


def _side_file(path: Path) -> list[Element]:
    """The loops of a TOML file, as the elements that `<loop_joint>` would be."""
    content = tree_of(read_source(path))
    loops = content.get("loop")
    if set(content) != {"loop"} or not isinstance(loops, list):
        raise file_error(path, f"it must have tables [[loop]] and nothing else, got {sorted(content)}.")
    elements = []
    for number, loop in enumerate(loops, 1):
        where = f"loop {number}"
        _check_keys(path, where, loop, _LOOP_KEYS)
        ends = []
        for tag in ("link1", "link2"):
            _check_keys(path, f"{where}, {tag}", loop.get(tag), _END_KEYS)
            ends.append(Element(tag, {key: _words(value) for key, value in loop[tag].items()}, 0))
        axis = [Element("axis", {"xyz": _words(loop["axis"])}, 0)] if "axis" in loop else []
        named = {key: str(loop[key]) for key in ("name", "type") if key in loop}
        elements.append(Element("loop_joint", {"name": where, **named}, 0, [*ends, *axis]))
    return elements


def _check_keys(path: Path, where: str, table: object, known: set[str]) -> None:
    if not isinstance(table, dict) or not set(table) <= known:
        got = sorted(table) if isinstance(table, dict) else table
        raise file_error(path, f"{where} must be a table with {', '.join(sorted(known))}, got {got!r}.")


def _words(value: object) -> str:
    """A value of TOML as an attribute of XML."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
