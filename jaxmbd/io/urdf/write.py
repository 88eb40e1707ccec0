"""`write_urdf`: a mechanism as a URDF file, its spanning tree as links and joints, its other joints as loop joints."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from jaxmbd.checks import as_path
from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import Remark, Remarks, check_strict
from jaxmbd.io._placement import Placement, placement_of
from jaxmbd.io._written_tree import remark_on_shapes, tree_in_space
from jaxmbd.io._xml import words
from jaxmbd.model.body.body import GROUND, AbstractBody, AbstractMarker
from jaxmbd.model.force.force import Gravity
from jaxmbd.model.force.joint_forces import JointFriction
from jaxmbd.model.joint.joint import AbstractTreeJoint, has_armature
from jaxmbd.model.joint.shared import FixedConstraint, FreeMotion, Gear, PointConstraint, RackAndPinion, Weld
from jaxmbd.model.joint.spatial import Planar, Prismatic, Revolute, Spherical
from jaxmbd.model.mechanism.mechanism import AnyForce, Mechanism, Part
from jaxmbd.model.mechanism.spanning_tree import TreeJoint
from jaxmbd.space import rotation

_TREE = {Revolute: "continuous", Prismatic: "prismatic", Planar: "planar", Weld: "fixed", FreeMotion: "floating"}
_LOOPS = {
    FixedConstraint: "fixed",
    PointConstraint: "spherical",
    Prismatic: "prismatic",
    Revolute: "continuous",
    Spherical: "spherical",
    Weld: "fixed",
}
_Z = "0 0 1"


class _Robot:
    """The file that is written: `frames` of the links relative to the bodies, `joints` by their coordinates."""

    def __init__(self, mechanism: Mechanism, remarks: Remarks) -> None:
        self.mechanism, self.remarks = mechanism, remarks
        self.root = Element("robot", name=remarks.path.stem)
        self.frames = {GROUND: Placement()}
        self.joints: dict[str, Element] = {}

    def place(self, element: Element, marker: AbstractMarker) -> None:
        """Place an element at a marker, relative to the frame of its link."""
        _place(element, self.frames[marker.body].inverse() @ placement_of(marker))

    def lost(self, part: Part, text: str) -> None:
        """Remark that the file lacks a part."""
        self.remarks.lost(f"{type(part).__name__} {part.name!r}", text)


def write_urdf(mechanism: Mechanism, path: str | Path, *, strict: bool = False) -> tuple[Remark, ...]:
    """Write a mechanism as a URDF file; one of the plane lies in the plane of x and y, as `in_space` places it.

    The frame of a link is that of the joint to it, as URDF has it. Joints that close loops become `<loop_joint>`, gears
    `<mimic>`. URDF has no forces, drivers, sensors or states.

    **Arguments:** `mechanism`, in joint coordinates; `path` of the file; `strict`: raise if the file would lack
    something that moves the mechanism.

    **Returns:** remarks on what became something else, or nothing.

    **Raises:** `MechanismError` if the mechanism is in absolute coordinates, its tree has a joint that URDF cannot
    express, or a joint of the plane has no counterpart in space.

        >>> remarks = write_urdf(mechanism, "mechanism.urdf")  # doctest: +SKIP
    """
    file = as_path("write_urdf", path)
    robot = _Robot(*_in_space(mechanism, Remarks(file)))
    mechanism = robot.mechanism
    SubElement(robot.root, "link", name=GROUND)
    for branch, joint in zip(mechanism.tree.branches, mechanism.tree_joints(), strict=True):
        _frame(robot, branch, joint)
    for body in mechanism.bodies:
        _write_link(robot, body)
    for branch, joint in zip(mechanism.tree.branches, mechanism.tree_joints(), strict=True):
        _write_joint(robot, branch, joint)
    for joint in mechanism.tree.cut(mechanism.joints):
        _write_loop(robot, joint)
    for joint in mechanism.joints:
        if has_armature(joint):
            robot.lost(joint, "has an armature, which URDF cannot express; it is left out")
    for force in mechanism.forces:
        _write_force(robot, force)
    for part in (*mechanism.drivers, *mechanism.controllers, *mechanism.sensors):
        robot.lost(part, "has no counterpart in URDF and is left out")
    remark_on_shapes(mechanism, robot.remarks)
    if strict:
        check_strict(file, robot.remarks.found)
    ElementTree.indent(robot.root)
    file.write_text(ElementTree.tostring(robot.root, encoding="unicode") + "\n", encoding="utf-8")
    return robot.remarks.in_order


def _in_space(mechanism: Mechanism, remarks: Remarks) -> tuple[Mechanism, Remarks]:
    return tree_in_space("write_urdf", mechanism, "links and joints", remarks)[0], remarks


def _ends(branch: TreeJoint, joint: AbstractTreeJoint) -> tuple[AbstractMarker, AbstractMarker]:
    """The markers on the parent and on the child."""
    return (joint.b, joint.a) if branch.backward else (joint.a, joint.b)


def _frame(robot: _Robot, branch: TreeJoint, joint: AbstractTreeJoint) -> None:
    """Enter the frame of a child's link: that of its marker."""
    if type(joint) not in _TREE or (branch.backward and isinstance(joint, Planar)):
        raise MechanismError(
            f"write_urdf: {type(joint).__name__} {joint.name!r} carries coordinates, and URDF has no such joint (nor a "
            f"Planar whose second body is nearer to the ground); cut it: mechanism.with_coordinates('joint', "
            f"cuts=[{joint.name!r}])."
        )
    child = _ends(branch, joint)[1]
    robot.frames[child.body] = placement_of(child)


def _write_link(robot: _Robot, body: AbstractBody) -> None:
    link = SubElement(robot.root, "link", name=body.name)
    if float(body.mass) == 0.0:
        return
    inertial, J = SubElement(link, "inertial"), np.asarray(body.inertia)
    _place(SubElement(inertial, "origin"), robot.frames[body.name].inverse())
    SubElement(inertial, "mass", value=words([body.mass]))
    moments = {f"i{'xyz'[i]}{'xyz'[j]}": words([J[i, j]]) for i in range(3) for j in range(i, 3)}
    SubElement(inertial, "inertia", moments)


def _write_joint(robot: _Robot, branch: TreeJoint, joint: AbstractTreeJoint) -> None:
    """Write a tree joint; seen from its second marker its axis is reversed."""
    parent, child = _ends(branch, joint)
    own = SubElement(robot.root, "joint", name=_joint_name(joint), type=_TREE[type(joint)])
    SubElement(own, "parent", link=parent.body)
    SubElement(own, "child", link=child.body)
    robot.place(SubElement(own, "origin"), parent)
    if isinstance(joint, Revolute | Prismatic | Planar):
        SubElement(own, "axis", xyz="0 0 -1" if branch.backward else _Z)
    for coordinate in joint.coordinate_names if isinstance(joint, Revolute | Prismatic) else ():
        robot.joints[f"{joint.name}.{coordinate}"] = own


def _joint_name(joint: AbstractTreeJoint) -> str:
    """The name of a joint; a floating base has the name of its body, which links have too."""
    return f"{joint.name}_free" if isinstance(joint, FreeMotion) else joint.name


def _write_loop(robot: _Robot, joint: Any) -> None:
    if isinstance(joint, Gear | RackAndPinion) and _write_mimic(robot, joint):
        return
    if type(joint) not in _LOOPS or (isinstance(joint, PointConstraint) and joint.without):
        robot.lost(joint, "closes a loop in a way that URDF cannot express; it is left out")
        return
    own = SubElement(robot.root, "loop_joint", name=joint.name, type=_LOOPS[type(joint)])
    ends: tuple[Any, Any] = joint.a, joint.b
    for tag, marker in zip(("link1", "link2"), ends, strict=True):
        robot.place(SubElement(own, tag, link=marker.body), marker)
    SubElement(own, "axis", xyz=_Z)


def _write_mimic(robot: _Robot, joint: Gear | RackAndPinion) -> bool:
    """Write a gear to the joint that follows; False if that follows another one already."""
    if joint.a not in robot.joints or joint.b not in robot.joints or robot.joints[joint.b].find("mimic") is not None:
        return False
    ratio, offset = (joint.ratio, joint.phase) if isinstance(joint, Gear) else (joint.radius, joint.offset)
    named = {"joint": robot.joints[joint.a].get("name", ""), "multiplier": words([ratio]), "offset": words([offset])}
    SubElement(robot.joints[joint.b], "mimic", named)
    return True


def _write_force(robot: _Robot, force: AnyForce) -> None:
    match force:
        case Gravity():
            robot.remarks.changed(f"Gravity {force.name!r}", "is left to the program that reads the file")
        case JointFriction(coordinate=name) if name in robot.joints and not _extra(force):
            dynamics = robot.joints[name].find("dynamics")
            dynamics = SubElement(robot.joints[name], "dynamics") if dynamics is None else dynamics
            for key, value in (("damping", force.viscous), ("friction", force.coulomb)):
                dynamics.set(key, words([float(dynamics.get(key, "0")) + float(value)]))
        case _:
            robot.lost(force, "has no counterpart in URDF and is left out")


def _extra(force: JointFriction) -> bool:
    return bool(float(force.quadratic) or float(force.breakaway))


def _place(element: Element, placement: Placement) -> None:
    element.set("xyz", words(placement.position))
    yaw_pitch_roll = rotation.angles(placement.euler_parameters, "zyx")
    element.set("rpy", words(yaw_pitch_roll[::-1]))
