"""Constraints, forces and drivers in MJCF files."""

from xml.etree import ElementTree

import numpy as np

from jaxmbd.arrays import Scalar
from jaxmbd.io._xml import words
from jaxmbd.io.mjcf.write_target import Target
from jaxmbd.model.force.force import Gravity
from jaxmbd.model.force.joint_forces import JointForce, JointFriction, JointSpringDamper
from jaxmbd.model.force.marker_forces import SpringDamper
from jaxmbd.model.joint.joint import AbstractPair, has_armature
from jaxmbd.model.joint.shared import FixedConstraint, Gear, PointConstraint, RackAndPinion, Weld
from jaxmbd.model.joint.spatial import Revolute, Spherical
from jaxmbd.model.mechanism.mechanism import AnyForce, Joint

_ARM = 0.1  # [m] between the two points that hold a hinge in a loop


def write_constraints(target: Target) -> None:
    """Write the joints outside the spanning tree, and drivers that hold a coordinate, as equalities."""
    written = 0
    for joint in target.mechanism.tree.cut(target.mechanism.joints):
        written += _write_joint(target, joint)
        if has_armature(joint):
            target.lost(joint, "closes a loop: its armature is left out")
    for driver in target.mechanism.drivers:
        if driver.coordinate in target.joints and driver.prescribes == "position" and not callable(driver.motion):
            _couple(target, driver.name, driver.coordinate, None, [float(driver.motion), 0.0])
            written += 1
        else:
            target.lost(driver, "prescribes a motion, which is left out")
    if written:
        target.remarks.changed("constraints", "are equalities, which MuJoCo keeps by stiff spring-dampers")


def _write_joint(target: Target, joint: Joint) -> int:
    """Write one joint; return the number of its equalities."""
    match joint:
        case Gear(a=a, b=b) | RackAndPinion(a=a, b=b) if a in target.joints and b in target.joints:
            is_gear = isinstance(joint, Gear)
            terms = (joint.phase, joint.ratio) if is_gear else (joint.offset, joint.radius)
            _couple(target, joint.name, b, a, [float(term) for term in terms])
            return 1
        case PointConstraint(without=()) | Spherical():
            return _close(target, "connect", joint)
        case FixedConstraint() | Weld():
            return _close(target, "weld", joint)
        case Revolute():
            beside = np.array([0.0, 0.0, _ARM])
            return _close(target, "connect", joint) + _close(target, "connect", joint, beside)
    target.lost(joint, "constrains nothing there")
    return 0


def _close(target: Target, tag: str, joint: AbstractPair, offset: np.ndarray | None = None) -> int:
    named = {"name": joint.name if offset is None else f"{joint.name}_beside"}
    named |= {f"site{k}": target.site(marker, offset) for k, marker in enumerate((joint.a, joint.b), 1)}
    ElementTree.SubElement(target.section("equality"), tag, named)
    return 1


def _couple(target: Target, name: str, first: str, second: str | None, terms: list[float]) -> None:
    """`first = terms₀ + terms₁ second`; all references are zero."""
    named = {"name": name, "polycoef": words([*terms, 0.0, 0.0, 0.0])}
    named |= {f"joint{k}": target.joints[end].get("name", "") for k, end in ((1, first), (2, second)) if end}
    ElementTree.SubElement(target.section("equality"), "joint", named)


def write_forces(target: Target) -> None:
    """Write gravity, and springs, dampers, friction and constant efforts of joints and between points."""
    for force in target.mechanism.forces:
        if not _write_force(target, force):
            target.lost(force, "has no counterpart in MJCF and is left out")


def _write_force(target: Target, force: AnyForce) -> bool:
    match force:
        case Gravity():
            option = target.section("option")
            before = np.array(option.get("gravity", "0 0 0").split(), float)
            option.set("gravity", words(before + np.asarray(force.vector(target.mechanism.space))))
        case JointSpringDamper(coordinate=name) if name in target.joints and _is_zero(force.actuator):
            return _write_spring(target.joints[name], force)
        case JointFriction(coordinate=name) if name in target.joints and _is_zero(force.quadratic, force.breakaway):
            _add(target.joints[name], "damping", force.viscous)
            _add(target.joints[name], "frictionloss", force.coulomb)
        case JointForce(coordinate=name) if name in target.joints and not callable(force.force):
            joint = target.joints[name].get("name", "")
            effort = words([force.force])
            ElementTree.SubElement(
                target.section("actuator"), "general", name=force.name, joint=joint, gainprm="0", biastype="affine",
                biasprm=f"{effort} 0 0",
            )  # fmt: skip
        case SpringDamper() if _is_zero(force.actuator):
            tendon = ElementTree.SubElement(
                target.section("tendon"), "spatial", name=force.name, stiffness=words([force.stiffness]),
                springlength=words([force.free_length]), damping=words([force.damping]),
            )  # fmt: skip
            for marker in (force.a, force.b):
                ElementTree.SubElement(tendon, "site", site=target.site(marker))
        case _:
            return False
    return True


def _write_spring(joint: ElementTree.Element, force: JointSpringDamper) -> bool:
    """Two springs on one joint have one stiffness and one free position there: their sum and weighted mean."""
    stiffness, before = float(force.stiffness), float(joint.get("stiffness", "0"))
    if stiffness:
        moment = stiffness * float(force.free_position) + before * float(joint.get("springref", "0"))
        if not before + stiffness:
            return False
        joint.set("springref", words([moment / (before + stiffness)]))
        joint.set("stiffness", words([before + stiffness]))
    _add(joint, "damping", force.damping)
    return True


def _add(joint: ElementTree.Element, key: str, value: Scalar) -> None:
    total = float(joint.get(key, "0")) + float(value)
    if total:
        joint.set(key, words([total]))


def _is_zero(*values: object) -> bool:
    return all(not callable(value) and not np.any(np.asarray(value)) for value in values)
