"""`write_mjcf`: a mechanism as an MJCF file, its spanning tree as nested bodies and its other joints as equalities."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from jaxmbd.checks import as_path
from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import Remark, Remarks, check_strict
from jaxmbd.io._placement import Placement, placement_of
from jaxmbd.io._written_tree import remark_on_shapes, tree_in_space
from jaxmbd.io._xml import words
from jaxmbd.io.mjcf.write_parts import write_constraints, write_forces
from jaxmbd.io.mjcf.write_target import Target, place
from jaxmbd.model.body.body import GROUND, AbstractBody
from jaxmbd.model.joint.joint import AbstractTreeJoint, has_armature
from jaxmbd.model.joint.shared import FreeMotion, Weld
from jaxmbd.model.joint.spatial import Cylindrical, Planar, Prismatic, Revolute, Spherical, Universal
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.spanning_tree import TreeJoint
from jaxmbd.state.state import State

# The joints of MJCF that a tree joint consists of, in the order in which they move its second marker: the coordinate
# here, the type there, and its axis among those of the markers.
_PARTS: dict[type, tuple[tuple[str, str, int], ...]] = {
    Revolute: (("angle", "hinge", 2),),
    Prismatic: (("displacement", "slide", 2),),
    Spherical: (("", "ball", 2),),
    Cylindrical: (("displacement", "slide", 2), ("angle", "hinge", 2)),
    Planar: (("x", "slide", 0), ("y", "slide", 1), ("angle", "hinge", 2)),
    Universal: (("angle_a", "hinge", 0), ("angle_b", "hinge", 1)),
    Weld: (),
}


def write_mjcf(
    mechanism: Mechanism, path: str | Path, state: State | None = None, *, strict: bool = False
) -> tuple[Remark, ...]:
    """Write a mechanism as an MJCF file for MuJoCo, with a state as its keyframe `"start"`.

    Joints of the spanning tree become joints of nested bodies; their `qpos` are the joint coordinates. The other joints
    become equalities, which MuJoCo keeps by stiff spring-dampers. A mechanism of the plane lies in that of x and y, as
    `in_space` places it.

    **Arguments:** `mechanism`, in joint coordinates; `path` of the file; `state` of the mechanism; `strict`: raise if
    the file would lack something that moves the mechanism.

    **Returns:** remarks on what became something else, or nothing.

    **Raises:** `MechanismError` if the mechanism is in absolute coordinates, its tree has a joint that MJCF cannot
    express, or a joint of the plane has no counterpart in space.

        >>> remarks = write_mjcf(mechanism, "mechanism.xml", state)  # doctest: +SKIP
    """
    file = as_path("write_mjcf", path)
    remarks = Remarks(file)
    mechanism, state = tree_in_space("write_mjcf", mechanism, "the nested bodies", remarks, state)
    root = ElementTree.Element("mujoco")
    ElementTree.SubElement(root, "compiler", angle="radian", autolimits="true")
    ElementTree.SubElement(root, "option", gravity="0 0 0")
    world = ElementTree.SubElement(root, "worldbody")
    target = Target(mechanism, root, remarks, {GROUND: world})
    order = _write_tree(target)
    write_constraints(target)
    write_forces(target)
    for controller in mechanism.controllers:
        target.lost(controller, "has no counterpart in MJCF and is left out")
    for sensor in mechanism.sensors:
        target.remarks.changed(f"sensor {sensor.name!r}", "is left out")
    if state is not None:
        _write_keyframe(target, order, state)
    remark_on_shapes(mechanism, target.remarks)
    if strict:
        check_strict(file, target.remarks.found)
    ElementTree.indent(root)
    file.write_text(ElementTree.tostring(root, encoding="unicode") + "\n", encoding="utf-8")
    return target.remarks.in_order


def _write_tree(target: Target) -> list[TreeJoint]:
    """Write the bodies below their parents; return the tree joints in the order of MuJoCo's `qpos`."""
    tree, bodies = target.mechanism.tree, target.mechanism.bodies
    joints = dict(zip(tree.branches, target.mechanism.tree_joints(), strict=True))
    below: dict[int, list[TreeJoint]] = {}
    for branch in tree.branches:
        below.setdefault(branch.parent, []).append(branch)
    order: list[TreeJoint] = []
    # Bodies that are still to be written: the branches to each from a body that is written, and the name of that.
    waiting = [([branch], GROUND) for branch in reversed(below.get(len(bodies), []))]
    while waiting:
        path, above = waiting.pop()
        body, further = bodies[path[-1].child], below.get(path[-1].child, [])
        if float(body.mass) == 0.0 and _moves(joints[path[-1]]) and len(further) == 1:
            waiting.append(([*path, further[0]], above))  # MuJoCo has several joints on one body in place of such links
            continue
        _write_body(target, body, above, [(branch, joints[branch]) for branch in path])
        order += path
        waiting += [([branch], body.name) for branch in reversed(further)]
    return order


def _moves(joint: AbstractTreeJoint) -> bool:
    return bool(joint.speeds)


def _write_body(
    target: Target, body: AbstractBody, above: str, path: list[tuple[TreeJoint, AbstractTreeJoint]]
) -> None:
    """Write a body, with the joints on the path to it from the body above."""
    element = ElementTree.SubElement(target.bodies[above], "body", name=body.name)
    for branch, _ in path[:-1]:
        link = target.mechanism.bodies[branch.child]
        target.remarks.changed(f"link {link.name!r}", f"is massless: its joints are those of body {body.name!r}")
    pose, frames = Placement(), []
    for branch, joint in path:
        if isinstance(joint, FreeMotion):
            pose = Placement()
            continue
        first, second = (joint.b, joint.a) if branch.backward else (joint.a, joint.b)
        frames.append(pose @ placement_of(first))
        pose = frames[-1] @ placement_of(second).inverse()
    place(element, pose)
    mass = float(body.mass)
    if mass:
        J = np.asarray(body.inertia)
        numbers = words([J[0, 0], J[1, 1], J[2, 2], J[0, 1], J[0, 2], J[1, 2]])
        ElementTree.SubElement(element, "inertial", pos="0 0 0", mass=words([mass]), fullinertia=numbers)
    target.bodies[body.name] = element
    for branch, joint in path:
        if isinstance(joint, FreeMotion):
            ElementTree.SubElement(element, "freejoint", name=f"{body.name}_free")
        else:
            _write_joints(target, element, branch, joint, pose.inverse() @ frames.pop(0))


def _write_joints(
    target: Target, element: ElementTree.Element, branch: TreeJoint, joint: AbstractTreeJoint, at: Placement
) -> None:
    """Write the joints of MJCF that a tree joint consists of, with its markers placed `at` in the body's frame.

    Seen from its second marker a joint moves the other way: the axes are reversed, and their order.
    """
    if type(joint) not in _PARTS or (branch.backward and isinstance(joint, Spherical)):
        raise MechanismError(
            f"write_mjcf: {type(joint).__name__} {joint.name!r} carries coordinates, and MJCF has no such joint (nor a "
            f"Spherical whose second body is nearer to the ground); cut it: mechanism.with_coordinates('joint', "
            f"cuts=[{joint.name!r}])."
        )
    parts = _PARTS[type(joint)]
    for coordinate, kind, axis in reversed(parts) if branch.backward else parts:
        name = joint.name if len(parts) == 1 else f"{joint.name}_{coordinate}"
        own = ElementTree.SubElement(element, "joint", name=name, type=kind, pos=words(at.position))
        if kind != "ball":
            direction = at.rotation.as_matrix()[:, axis]
            own.set("axis", words(-direction if branch.backward else direction))
        if has_armature(joint):
            own.set("armature", words([joint.armature]))
        target.joints[f"{joint.name}.{coordinate}"] = own
        if name != joint.name:
            target.remarks.changed(f"joint {joint.name!r}", f"has a part {name!r}")


def _write_keyframe(target: Target, order: list[TreeJoint], state: State) -> None:
    """Write coordinates and speeds in MuJoCo's order; those of a ball are about the axes of its body."""
    q, v, joints = np.array(state.q), np.array(state.v), target.mechanism.tree_joints()
    qpos, qvel = [], []
    for branch in order:
        joint = joints[target.mechanism.tree.branches.index(branch)]
        own_q, own_v = q[slice(*branch.q)], v[slice(*branch.v)]
        if isinstance(joint, Spherical):
            turn = placement_of(joint.b).rotation
            own_q = np.concatenate([own_q[:1], turn.apply(own_q[1:])])
            own_v = turn.apply(own_v)
        elif branch.backward:
            own_q, own_v = own_q[::-1], own_v[::-1]
        qpos += own_q.tolist()
        qvel += own_v.tolist()
    ElementTree.SubElement(target.section("keyframe"), "key", name="start", qpos=words(qpos), qvel=words(qvel))
