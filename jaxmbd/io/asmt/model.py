"""ASMT, the assemblies of FreeCAD's Assembly workbench and its OndselSolver: parts, joints, motions, forces."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import ImportedModel, Remarks, file_error
from jaxmbd.io._names import Names
from jaxmbd.io._placement import Owner, Placement
from jaxmbd.io.asmt.functions import Expression
from jaxmbd.io.asmt.gears import Joined, gear
from jaxmbd.io.asmt.joints import KINDS, Side, half_turn, joint_of
from jaxmbd.io.asmt.tree import Node, read_tree
from jaxmbd.model.body.spatial import Body, ground
from jaxmbd.model.driver import Driver
from jaxmbd.model.force.force import Gravity
from jaxmbd.model.force.marker_forces import SpringDamper
from jaxmbd.model.joint.spatial import Cylindrical, Prismatic, Revolute
from jaxmbd.model.mechanism.mechanism import AnyForce, Joint, Mechanism

_MILLIMETRES = "read(..., length_unit=0.001), for the command --length-unit 0.001"
_WRITTEN_BY_FREECAD = "OndselSolver"
_STILL = 1e-9  # [m/s, rad/s] a speed that is rounding of an earlier simulation
_MOTIONS = {
    "RotationalMotion": ("RotationZ", "angle", (Revolute, Cylindrical)),
    "TranslationalMotion": ("TranslationZ", "displacement", (Prismatic, Cylindrical)),
}


@dataclass
class Assembly:
    """An assembly on its way to a mechanism: markers by their paths, joints, and those with a name by their paths."""

    path: str
    remarks: Remarks
    names: Names
    markers: dict[str, Side] = field(default_factory=dict)
    joints: list[Joined] = field(default_factory=list)
    named_joints: dict[str, Joint] = field(default_factory=dict)

    def sides(self, node: Node) -> tuple[Side, Side] | None:
        """The markers of a joint or force, None with a remark if both are on one body; raise if one does not exist."""
        found = []
        for key in ("MarkerI", "MarkerJ"):
            name = node.value(key)
            if name not in self.markers:
                raise file_error(node.path, f"{node.text}: there is no marker {name!r}.", node.child(key).line)
            found.append(self.markers[name])
        if found[0][0].body.name == found[1][0].body.name:
            self.lost(node, f"joins {found[0][0].body.name!r} to itself and is left out")
            return None
        return found[0], found[1]

    def lost(self, node: Node, text: str) -> None:
        """Remark what the mechanism lacks of a node."""
        name = repr(node.name) if node.first("Name") else ""
        self.remarks.lost(f"{node.text} {name}".strip(), text, node.line)


def read_asmt(path: Path, length_unit: float | None) -> ImportedModel:
    """The mechanism of an ASMT file in kg, s, and a length of `length_unit` [m] (default: SI units)."""
    root, header = read_tree(path, 1.0 if length_unit is None else length_unit)
    remarks = Remarks(path)
    if length_unit is None and header.startswith(_WRITTEN_BY_FREECAD):
        remarks.changed("lengths", f"are read in metres; FreeCAD writes millimetres: {_MILLIMETRES}", 1)
    assembly = Assembly(f"/{root.name}", remarks, Names(remarks))
    place = root.placement
    _add_markers(assembly, assembly.path, root, Owner(ground, place, place))
    parts = root.child("Parts").children
    if not parts:
        raise file_error(path, "it has no part.", root.child("Parts").line)
    bodies, speeds = [], {}
    for part in parts:
        body, own_speeds = _part(assembly, part, place)
        bodies.append(body)
        speeds |= own_speeds
    sets = root.child("ConstraintSets")
    joints = _joints(assembly, sets.child("Joints"))
    drivers = [driver for node in sets.child("Motions").children for driver in _motion(assembly, node)]
    forces = _forces(assembly, root, place)
    _remark_on_the_rest(assembly, root)
    coordinates = "joint" if any(body.lacks_inertia for body in bodies) else "absolute"
    mechanism = Mechanism(bodies, joints, forces, drivers, floating=True, coordinates=coordinates)
    end = root.first("SimulationParameters")
    return ImportedModel(mechanism, {}, speeds, remarks.in_order, end.number("tend") if end else None)


def _add_markers(assembly: Assembly, path: str, node: Node, owner: Owner) -> None:
    """Enter the markers of the assembly or of a part."""
    points = node.first("RefPoints")
    for point in points.children if points else []:
        for marker in point.child("Markers").children:
            _add_marker(assembly, path, marker, (owner, point.placement @ marker.placement))


def _add_marker(assembly: Assembly, path: str, marker: Node, side: Side) -> None:
    name = f"{path}/{marker.name}"
    if name in assembly.markers:
        raise file_error(marker.path, f"there are two markers {name!r}.", marker.line)
    assembly.markers[name] = side


def _part(assembly: Assembly, part: Node, place: Placement) -> tuple[Body, dict[str, float]]:
    """The body of a part, with its centre of mass in the mass marker, and its nonzero speeds by name."""
    centre, pose = part.child("PrincipalMassMarker"), place @ part.placement
    mass, moments = centre.number("Mass"), centre.vector("MomentOfInertias")
    at = centre.placement
    name = assembly.names.new("part", part.name, part.line)
    try:
        body = Body(name, mass, part.unit**2 * moments, (pose @ at).pose)
    except MechanismError as error:
        raise file_error(part.path, f"Part {part.name!r}: {error}", centre.line) from None
    if not mass:
        assembly.remarks.changed(f"Part {part.name!r}", "has no mass; a motion with forces needs some", centre.line)
    owner = Owner(body, at.inverse(), pose)
    _add_markers(assembly, f"{assembly.path}/{part.name}", part, owner)
    _add_marker(assembly, f"{assembly.path}/{part.name}", centre, (owner, at))
    velocity, omega = np.zeros(3), np.zeros(3)
    if part.first("Velocity3D") and part.first("Omega3D"):
        turn = place.rotation
        omega = turn.apply(part.vector("Omega3D"))
        velocity = turn.apply(part.unit * part.vector("Velocity3D")) + np.cross(omega, pose.rotation.apply(at.position))
        omega = (pose @ at).rotation.inv().apply(omega)
    speeds = {f"{name}.v{axis}": float(v) for axis, v in zip("xyz", velocity, strict=True)}
    speeds |= {f"{name}.omega_{axis}": float(w) for axis, w in zip("xyz", omega, strict=True)}
    return body, {speed: value for speed, value in speeds.items() if value}


def _joints(assembly: Assembly, node: Node) -> list[Joint]:
    """The joints; gears last, since they couple the coordinates of others."""
    for own in sorted(node.children, key=lambda child: child.text == "GearJoint"):
        if own.text not in KINDS:
            assembly.lost(own, "has no counterpart and is left out")
        elif sides := assembly.sides(own):
            _add_joint(assembly, own, sides)
    return [joint for joint, _ in assembly.joints]


def _add_joint(assembly: Assembly, node: Node, sides: tuple[Side, Side]) -> None:
    name = assembly.names.new("joint", node.name, node.line)
    if turn := half_turn(node.text, *sides):
        i, (owner, place) = sides
        sides = i, (owner, place @ turn)
        text = "has axes that point against each other: its second marker is turned by half a turn"
        assembly.remarks.changed(f"{node.text} {node.name!r}", text, node.line)
    try:
        is_gear = node.text == "GearJoint"
        joint = gear(node, name, sides, assembly.joints) if is_gear else joint_of(node, name, *sides)
    except MechanismError as error:
        raise file_error(node.path, f"{node.text} {node.name!r}: {error}", node.line) from None
    if joint is None:
        assembly.lost(node, "has wheels that do not turn in joints on one body; it is left out")
    else:
        path = f"{assembly.path}/{node.name}"
        if path in assembly.named_joints:
            raise file_error(node.path, f"there are two joints {path!r}.", node.line)
        assembly.joints.append((joint, sides))
        assembly.named_joints |= {path: joint} if node.name else {}


def _expression(node: Node, key: str, scale: float) -> Expression:
    try:
        return Expression(node.value(key), node.unit, scale)
    except MechanismError as error:
        raise file_error(node.path, f"{node.text} {node.name!r}: {error}", node.child(key).line) from None


def _motion(assembly: Assembly, node: Node) -> list[Driver]:
    """The driver of a motion about or along the axis of a joint."""
    if node.text not in _MOTIONS:
        assembly.lost(node, "has no counterpart and is left out")
        return []
    key, coordinate, types = _MOTIONS[node.text]
    of = node.value("MotionJoint")
    if of not in assembly.named_joints:
        raise file_error(node.path, f"{node.text}: there is no joint {of!r}.", node.child("MotionJoint").line)
    joint = assembly.named_joints[of]
    if not isinstance(joint, types):
        assembly.lost(node, f"moves {joint.name!r}, a {type(joint).__name__}, along no coordinate of its own: left out")
        return []
    name = assembly.names.new("motion", node.name, node.line)
    scale = node.unit if coordinate == "displacement" else 1.0
    return [Driver(name, f"{joint.name}.{coordinate}", _expression(node, key, scale))]


def _forces(assembly: Assembly, root: Node, place: Placement) -> list[AnyForce]:
    forces: list[AnyForce] = []
    gravity = root.first("ConstantGravity")
    if gravity is not None:
        field = root.unit * place.rotation.apply(root.vector("ConstantGravity"))
        forces += [Gravity(field, assembly.names.made("gravity"))] if field.any() else []
    listed = root.first("ForceTorques")
    for node in listed.children if listed else []:
        if node.text != "InLineForceTorque":
            assembly.lost(node, "has no counterpart and is left out")
            continue
        sides = assembly.sides(node)
        if sides is None:
            continue
        (first, at_first), (second, at_second) = sides
        if node.first("twist") and node.value("twist") not in ("0", "0.0"):
            assembly.lost(node, "has a twist, which is left out")
        name = assembly.names.new("force", node.name, node.line)
        pull = _expression(node, "tension", node.unit)  # in kg times that length per s²
        forces.append(SpringDamper(name, first.at(at_first), second.at(at_second), 0.0, actuator=pull))
    return forces


def _remark_on_the_rest(assembly: Assembly, root: Node) -> None:
    for key in ("Velocity3D", "Omega3D"):
        if root.first(key) and np.abs(root.vector(key)).max() > _STILL:
            assembly.lost(root.child(key), "of the assembly is left out: its own markers are on the ground")
    sets = root.child("ConstraintSets")
    for group in (root.first("KinematicIJs"), sets.first("GeneralConstraintSets"), sets.first("Limits")):
        for node in group.children if group else []:
            assembly.lost(node, "is left out: nothing enforces it")
