"""URDF, the robots of ROS: links and joints.

Read here, and not by a URDF library: those at hand keep neither lines nor the elements that close loops, resolve
entities, and read meshes from wherever a file says.
"""

from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.io._imported_model import ImportedModel, Remarks, file_error
from jaxmbd.io._names import Names
from jaxmbd.io._placement import Owner, Placement
from jaxmbd.io._xml import Element
from jaxmbd.io.urdf.loops import closures
from jaxmbd.io.urdf.robot import HINGES, SLIDES, Robot, circle
from jaxmbd.io.urdf.robot_yaml import RobotYaml, read_robot_yaml, yaml_closures
from jaxmbd.io.urdf.visuals import looks_of
from jaxmbd.model.body.spatial import Body, ground
from jaxmbd.model.force.force import Gravity
from jaxmbd.model.force.joint_forces import JointFriction
from jaxmbd.model.joint.shared import Gear, Weld
from jaxmbd.model.joint.spatial import Planar, Prismatic, Revolute, Spherical
from jaxmbd.model.mechanism.mechanism import AnyForce, Joint, Mechanism

_TYPES = (*HINGES, *SLIDES, "fixed", "floating", "planar")
_TENSOR = ("xx", "xy", "xz", "yy", "yz", "zz")
_GRAVITY = 9.81  # [m/s²], along −z: what simulators of URDF assume
# Elements that something is made of, here or in `loops.py`, and those that only show.
_OF_JOINT = ("parent", "child", "origin", "axis", "limit", "dynamics", "mimic")
_OF_LINK = ("inertial", "visual", "collision")
_OF_ROBOT = ("link", "joint", "loop_joint", "gazebo", "frame", "linear_bushing_rpy", "ball_constraint", "material")


def read_urdf(path: Path, root: Element, loops: Path | None, floating: bool, within: Path) -> ImportedModel:
    """The mechanism of a URDF file, in joint coordinates; `root` is its root element, `within` the folder of meshes."""
    remarks = Remarks(path)
    robot = Robot(path, root, remarks, Names(remarks))
    links = _by_name(robot, "link")
    elements = _by_name(robot, "joint")
    base = _base(robot, links, elements)
    _place_links(robot, base, elements)
    bodies = _bodies(robot, links, base, floating)
    joints: list[Joint] = []
    forces: list[AnyForce] = [Gravity(_GRAVITY, robot.names.made("gravity"))]
    remarks.changed("robot", f"has no gravity in its file: here it is {_GRAVITY} m/s² along −z")
    side = read_robot_yaml(robot, loops)
    spherical = set() if side is None else set(side.spherical)
    if side is not None:
        _check_spherical(side, elements)
    for element in elements.values():
        joints += _joint(robot, element, spherical)
        forces += _friction(robot, element)
    _check_mimics(robot, elements)
    joints += [gear for element in elements.values() for gear in _mimic(robot, element)]
    cuts, bushings = closures(robot, loops)
    cuts += [] if side is None else yaml_closures(robot, side)
    _remark_on_the_rest(robot, links)
    looks = looks_of(robot, links, within)
    parts = looks.dressed(bodies), [*joints, *cuts], [*forces, *bushings]
    mechanism = Mechanism(*parts, floating=True, coordinates="joint", scenery=looks.scenery)
    return ImportedModel(mechanism, {}, {}, remarks.in_order)


def _by_name(robot: Robot, tag: str) -> dict[str, Element]:
    """The links or joints of the robot; raise if two have the same name."""
    found: dict[str, Element] = {}
    for element in robot.root.all(tag):
        name = robot.attribute(element, "name")
        if name in found:
            raise robot.error(element, f"there is another {tag} of this name in line {found[name].line}.")
        found[name] = element
    if tag == "link" and not found:
        raise robot.error(robot.root, "it has no link.")
    return found


def _base(robot: Robot, links: dict[str, Element], joints: dict[str, Element]) -> str:
    """The link that is no joint's child."""
    for element in joints.values():
        for link in robot.ends(element):
            if link not in links:
                raise robot.error(element, f"there is no link {link!r}.")
    children: dict[str, str] = {}
    for name, element in joints.items():
        child = robot.ends(element)[1]
        if child in children:
            text = f"link {child!r} is the child of {children[child]!r} already; loops are closed by a <loop_joint>."
            raise robot.error(element, text)
        children[child] = name
    bases = [name for name in links if name not in children]
    if not bases:
        raise robot.error(robot.root, "every link is the child of a joint, so that none is the base.")
    if len(bases) > 1:
        listed = ", ".join(f"{name!r} (line {links[name].line})" for name in bases)
        raise robot.error(robot.root, f"several links are no joint's child: {listed}; a robot has one base.")
    return bases[0]


def _place_links(robot: Robot, base: str, joints: dict[str, Element]) -> None:
    """Find the poses of all links where the coordinates of all joints are zero."""
    robot.poses[base] = Placement()
    waiting = list(joints.values())
    while waiting:
        ready = [joint for joint in waiting if robot.ends(joint)[0] in robot.poses]
        if not ready:
            listed = ", ".join(repr(joint.attributes["name"]) for joint in waiting)
            raise robot.error(waiting[0], f"nothing connects the joints {listed} to the base {base!r}.")
        for joint in ready:
            parent, child = robot.ends(joint)
            robot.poses[child] = robot.poses[parent] @ robot.placement(joint.first("origin"))
        waiting = [joint for joint in waiting if joint not in ready]


def _bodies(robot: Robot, links: dict[str, Element], base: str, floating: bool) -> list[Body]:
    """The bodies of the links. The base is the ground, unless it floats."""
    bodies = []
    for name, element in links.items():
        robot.remark_on_others(f"link {name!r}", element, _OF_LINK)
        if name == base and not floating:
            robot.owners[name] = Owner(ground)
            robot.remarks.changed(f"link {name!r}", "is the base: it is the ground here", element.line)
            continue
        body, centre = _body(robot, name, element)
        robot.owners[name] = Owner(body, Placement(-centre))
        bodies.append(body)
    if not bodies:
        raise robot.error(robot.root, "it has no link besides the base, which is fixed.")
    return bodies


def _body(robot: Robot, name: str, link: Element) -> tuple[Body, np.ndarray]:
    """The body of a link, with the axes of the link's frame, and its centre of mass [m] in that frame.

    A link without `<inertial>` is massless.
    """
    inertial = link.first("inertial")
    mass, inertia, place = 0.0, np.zeros((3, 3)), Placement()
    if inertial is not None:
        place = robot.placement(inertial.first("origin"))
        mass = robot.number(robot.child(inertial, "mass"), "value")
        tensor = inertial.first("inertia")
        if tensor is not None:
            xx, xy, xz, yy, yz, zz = (robot.number(tensor, f"i{axes}", 0.0) for axes in _TENSOR)
            inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    turn = place.rotation.as_matrix()
    inertia = turn @ inertia @ turn.T
    pose = (robot.poses[name] @ Placement(place.position)).pose
    try:
        body = Body(robot.names.new("link", name, link.line), mass, (inertia + inertia.T) / 2, pose)
    except MechanismError as error:
        raise robot.error(inertial or link, f"of link {name!r}: {error}") from None
    return body, place.position


def _check_spherical(side: RobotYaml, joints: dict[str, Element]) -> None:
    for name in side.spherical:
        if name not in joints:
            raise file_error(side.path, f"joint_name: {unknown('joint', name, joints)}")


def _joint(robot: Robot, element: Element, spherical: set[str]) -> list[Joint]:
    name, kind = robot.attribute(element, "name"), robot.attribute(element, "type")
    if kind not in _TYPES:
        raise robot.error(element, f"type must be one of {', '.join(_TYPES)}, got {kind!r}.")
    parent, child = (robot.owner(element, link) for link in robot.ends(element))
    if kind == "floating":
        robot.remarks.changed(f"joint {name!r}", "leaves its child free: the coordinates are its pose", element.line)
        return []
    if name in spherical:
        text = "is spherical by the YAML file beside the robot"
        robot.remarks.changed(f"joint {name!r}", text, element.line)
        own = robot.names.new("joint", name, element.line)
        return [Spherical(own, parent.at(robot.placement(element.first("origin"))), child.at())]
    axis = Placement() if kind == "fixed" else robot.axis(element)
    markers = parent.at(robot.placement(element.first("origin")) @ axis), child.at(axis)
    own = robot.names.new("joint", name, element.line)
    if kind in HINGES:
        robot.coordinates[name] = f"{own}.angle"
        return [Revolute(own, *markers)]
    if kind in SLIDES:
        robot.coordinates[name] = f"{own}.displacement"
        return [Prismatic(own, *markers)]
    return [(Weld if kind == "fixed" else Planar)(own, *markers)]


def _friction(robot: Robot, element: Element) -> list[JointFriction]:
    """The friction of `<dynamics>`, and remarks on limits."""
    name, part = robot.attribute(element, "name"), f"joint {element.attributes['name']!r}"
    limit, dynamics = element.first("limit"), element.first("dynamics")
    if limit is not None and name in robot.coordinates:
        listed = " ".join(f'{key}="{value}"' for key, value in limit.attributes.items())
        robot.remarks.lost(part, f"has limits ({listed}), which nothing enforces; add a JointStop", limit.line)
    robot.remark_on_others(part, element, _OF_JOINT)
    if dynamics is None:
        return []
    viscous, coulomb = (robot.number(dynamics, field, 0.0) for field in ("damping", "friction"))
    if not (viscous or coulomb):
        return []
    if name not in robot.coordinates:
        robot.remarks.lost(part, "has friction on several coordinates or none, which is left out", dynamics.line)
        return []
    own = robot.names.made("friction", robot.coordinates[name].partition(".")[0])
    try:
        friction = JointFriction(own, robot.coordinates[name], viscous, coulomb)
    except MechanismError as error:
        raise robot.error(dynamics, f"of {part}: {error}") from None
    if coulomb:
        text = f"has dry friction, whose sign is smoothed over {float(friction.width):g} rad/s or m/s"
        robot.remarks.lost(part, text, dynamics.line)
    return [friction]


def _check_mimics(robot: Robot, joints: dict[str, Element]) -> None:
    """Raise if a joint mimics itself, directly or by way of others: its position would follow from nothing."""
    follows = {name: robot.attribute(mimic, "joint") for name, e in joints.items() if (mimic := e.first("mimic"))}
    if around := circle(follows):
        way = " and ".join(map(repr, around[1:-1]))
        text = f"joint {around[0]!r} mimics itself" + (f", by way of {way}" if way else "")
        mimic = robot.child(joints[around[0]], "mimic")
        raise robot.error(mimic, f"{text}; one joint of such a group must be free, without <mimic>.")


def _mimic(robot: Robot, element: Element) -> list[Gear]:
    """`value = multiplier · other + offset` as a gear."""
    mimic, name = element.first("mimic"), robot.attribute(element, "name")
    if mimic is None:
        return []
    other = robot.attribute(mimic, "joint")
    for joint in (other, name):
        if joint not in robot.coordinates:
            raise robot.error(mimic, f"{joint!r} is no joint with one coordinate; those are {list(robot.coordinates)}.")
    ratio, phase = robot.number(mimic, "multiplier", 1.0), robot.number(mimic, "offset", 0.0)
    own = robot.coordinates[name].partition(".")[0]
    return [Gear(robot.names.made("mimic", own), robot.coordinates[other], robot.coordinates[name], ratio, phase)]


def _remark_on_the_rest(robot: Robot, links: dict[str, Element]) -> None:
    colliding = [name for name, link in links.items() if link.first("collision") is not None]
    if len(colliding) > 1:
        robot.remarks.lost("contacts", f"of {len(colliding)} links: they pass through one another here")
    robot.remark_on_others("robot", robot.root, _OF_ROBOT)
