"""Joints of SDF: an axis is given in the joint's frame, which is fixed to the child."""

from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.errors import MechanismError
from jaxmbd.io._placement import Owner, Placement, along_z
from jaxmbd.io._xml import Element
from jaxmbd.io.sdf.frames import Frame, Frames
from jaxmbd.io.sdf.values import Values
from jaxmbd.io.urdf.robot import circle
from jaxmbd.model.body.spatial import Body, Marker
from jaxmbd.model.force.joint_forces import JointFriction, JointSpringDamper
from jaxmbd.model.joint.shared import Gear, Weld
from jaxmbd.model.joint.spatial import Prismatic, Revolute, Screw, Spherical, Universal
from jaxmbd.model.mechanism.mechanism import AnyForce, Joint

_TYPES = ("revolute", "continuous", "prismatic", "ball", "fixed", "screw", "universal", "revolute2", "gearbox")
_OF_JOINT = (
    "parent",
    "child",
    "pose",
    "axis",
    "axis2",
    "screw_thread_pitch",
    "gearbox_ratio",
    "gearbox_reference_body",
)
_OF_AXIS = ("xyz", "limit", "dynamics", "mimic", "use_parent_model_frame")
_UNLIMITED = 1e15  # [rad or m] SDF's default limits are ±1e16, which stand for none
_IN_MODEL_FRAME = 4  # the last version 1.x in which axes were given in the frame of the model
_PERPENDICULAR = 1e-6  # cosine of two axes that count as perpendicular


@dataclass
class Joints:
    """Filled by `read`: the `joints`, the `forces` along them, and massless `links` between two joints in series."""

    values: Values
    frames: Frames
    owners: dict[str, Owner]
    version: int
    joints: list[Joint] = field(default_factory=list)
    forces: list[AnyForce] = field(default_factory=list)
    links: list[Body] = field(default_factory=list)
    coordinates: dict[tuple[str, str], str] = field(default_factory=dict)
    hinges: list[tuple[str, tuple[str, str], np.ndarray]] = field(default_factory=list)

    def read(self) -> None:
        """Translate all joints; gears and mimics last, since they refer to others."""
        found = [(name, frame) for name, frame in self.frames.of("joint") if not frame.is_static]
        for name, frame in found:
            kind = self.values.attribute(frame.element, "type")
            if kind not in _TYPES:
                raise self.values.error(frame.element, f"type must be one of {', '.join(_TYPES)}, got {kind!r}.")
            if kind != "gearbox":
                self._joint(name, frame, kind)
        for name, frame in found:
            if frame.element.attributes["type"] == "gearbox":
                self._gearbox(name, frame)
        self._mimics(found)

    def _joint(self, name: str, frame: Frame, kind: str) -> None:
        values, element, part = self.values, frame.element, f"joint {self.frames.shown(name)!r}"
        for child in element.children:
            if child.tag not in _OF_JOINT:
                values.remarks.lost(part, f"has <{child.tag}>, which is left out", child.line)
        ends = [self.frames.link(frame.scope, values.text(element, tag), element) for tag in ("parent", "child")]
        if self.owners[ends[0]].body.name == self.owners[ends[1]].body.name:
            raise values.error(element, f"it connects {self.owners[ends[0]].body.name!r} with itself.")
        own = values.names.new("joint", self.frames.shown(name), element.line)
        axes = [self._axis(name, frame, tag) for tag in self._axes_of(element, kind)]
        try:
            self._make(kind, own, name, ends, axes, element)
        except MechanismError as error:
            raise values.error(element, str(error)) from None
        for tag in self._axes_of(element, kind):
            self._along_axis(name, element, tag)

    def _axes_of(self, element: Element, kind: str) -> tuple[str, ...]:
        if kind in ("ball", "fixed"):
            return ()
        return ("axis", "axis2") if kind in ("universal", "revolute2") else ("axis",)

    def _axis(self, name: str, frame: Frame, tag: str) -> np.ndarray:
        """The direction of an axis in the joint's frame, where all joints are at zero."""
        values, axis = self.values, frame.element.first(tag)
        xyz = None if axis is None else axis.first("xyz")
        direction = values.numbers(xyz, (0.0, 0.0, 1.0))
        if not direction.any():
            raise values.error(axis or frame.element, "xyz must be a direction, and it is zero.")
        given = {} if xyz is None else xyz.attributes
        in_model = self.version <= _IN_MODEL_FRAME or (axis is not None and values.flag(axis, "use_parent_model_frame"))
        written = given.get("expressed_in", "__model__" if in_model else "")
        if not written:
            return direction
        of = self.frames.pose(self.frames.named(frame.scope, written, frame.element)).rotation
        return self.frames.pose(name).rotation.inv().apply(of.apply(direction))

    def _make(self, kind: str, own: str, name: str, ends: list[str], axes: list[np.ndarray], element: Element) -> None:
        turned = [Placement(rotation=along_z(axis)) for axis in axes]
        a, b = (self._marker(end, name, turned[0] if turned else Placement()) for end in ends)
        if kind in ("revolute", "continuous"):
            self.joints.append(Revolute(own, a, b))
            self.coordinates[name, "axis"] = f"{own}.angle"
            self.hinges.append((f"{own}.angle", (ends[0], ends[1]), self.frames.pose(name).rotation.apply(axes[0])))
        elif kind == "prismatic":
            self.joints.append(Prismatic(own, a, b))
            self.coordinates[name, "axis"] = f"{own}.displacement"
        elif kind == "screw":
            self.joints.append(Screw(own, a, b, self.values.number(element, "screw_thread_pitch", 1.0)))
            self.coordinates[name, "axis"] = f"{own}.angle"
        elif kind in ("ball", "fixed"):
            self.joints.append((Spherical if kind == "ball" else Weld)(own, a, b))
        elif kind == "universal" and abs(_cosine(*axes)) < _PERPENDICULAR:
            cross = Placement(rotation=_cross(*axes))
            self.joints.append(Universal(own, *(self._marker(end, name, cross) for end in ends)))
            self.coordinates |= {(name, "axis"): f"{own}.angle_a", (name, "axis2"): f"{own}.angle_b"}
        else:
            self._in_series(own, name, ends, turned, element)

    def _in_series(self, own: str, name: str, ends: list[str], turned: list[Placement], element: Element) -> None:
        """Two hinges, the first about an axis of the parent, the second about one of the child."""
        link = Body(self.values.names.made("link", own), 0.0, np.zeros(3), self.frames.pose(name).pose)
        self.links.append(link)
        middle, second = Owner(link), self.values.names.made("second", own)
        self.joints.append(Revolute(own, self._marker(ends[0], name, turned[0]), middle.at(turned[0])))
        self.joints.append(Revolute(second, middle.at(turned[1]), self._marker(ends[1], name, turned[1])))
        self.coordinates |= {(name, "axis"): f"{own}.angle", (name, "axis2"): f"{second}.angle"}
        text = f"is two hinges with a massless link {link.name!r} between them"
        self.values.remarks.changed(f"joint {self.frames.shown(name)!r}", text, element.line)

    def _marker(self, end: str, joint: str, on_joint: Placement) -> Marker:
        """A marker on a link at a placement in the joint's frame, where all joints are at zero."""
        return self.owners[end].at(self.frames.pose(end).inverse() @ self.frames.pose(joint) @ on_joint)

    def _along_axis(self, name: str, joint: Element, tag: str) -> None:
        """The friction and the spring of `<dynamics>`, and remarks on limits."""
        values, axis, part = self.values, joint.first(tag), f"joint {self.frames.shown(name)!r}"
        if axis is None or (name, tag) not in self.coordinates:
            return
        for child in axis.children:
            if child.tag not in _OF_AXIS:
                values.remarks.lost(part, f"has <{child.tag}>, which is left out", child.line)
        limit, dynamics = axis.first("limit"), axis.first("dynamics")
        low, high = (values.number(limit, key, sign * 1e16) for key, sign in (("lower", -1), ("upper", 1)))
        if low > -_UNLIMITED or high < _UNLIMITED:
            text = f"has the range {[low, high]}, which nothing enforces; add a JointStop"
            values.remarks.lost(part, text, axis.line)
        if dynamics is None:
            return
        keys = "damping", "friction", "spring_stiffness", "spring_reference"
        damping, friction, stiffness, reference = (values.number(dynamics, key, 0.0) for key in keys)
        coordinate = self.coordinates[name, tag]
        own = coordinate.partition(".")[0]
        try:
            if stiffness:
                spring = values.names.made("spring", own)
                self.forces.append(JointSpringDamper(spring, coordinate, stiffness, reference))
            if damping or friction:
                made = JointFriction(values.names.made("friction", own), coordinate, damping, friction)
                self.forces.append(made)
                if friction:
                    text = f"has dry friction, whose sign is smoothed over {float(made.width):g} rad/s or m/s"
                    values.remarks.lost(part, text, dynamics.line)
        except MechanismError as error:
            raise values.error(dynamics, f"of {part}: {error}") from None

    def _gearbox(self, name: str, frame: Frame) -> None:
        """`θ₂ = −r θ₁`: angles of the parent about the first axis, and of the child about the second one, relative to
        the reference body, to which hinges must join them."""
        values, element = self.values, frame.element
        reference = self.frames.link(frame.scope, values.text(element, "gearbox_reference_body"), element)
        turns = []
        for end, tag in (("parent", "axis"), ("child", "axis2")):
            link = self.frames.link(frame.scope, values.text(element, end), element)
            axis = self.frames.pose(name).rotation.apply(self._axis(name, frame, tag))
            turns.append(self._turn(reference, link, axis))
        if not all(turns):
            text = "is a gearbox whose wheels do not turn in hinges on its reference body; it is left out"
            values.remarks.lost(f"joint {self.frames.shown(name)!r}", text, element.line)
            return
        (first, one), (second, two) = turns
        own = values.names.new("joint", self.frames.shown(name), element.line)
        self.joints.append(Gear(own, first, second, -values.number(element, "gearbox_ratio", 1.0) * one * two))

    def _turn(self, reference: str, link: str, axis: np.ndarray) -> tuple[str, float] | tuple[()]:
        """The coordinate of the hinge between two links, and the sign with which it turns the second about the axis."""
        for coordinate, ends, about in self.hinges:
            if set(ends) == {reference, link} and abs(_cosine(about, axis)) > 1 - _PERPENDICULAR:
                return coordinate, float(np.sign(about @ axis)) * (1.0 if ends[1] == link else -1.0)
        return ()

    def _mimics(self, found: list[tuple[str, Frame]]) -> None:
        """`value = multiplier · (other − reference) + offset` as gears."""
        wanted: dict[str, tuple[str, str, Element]] = {}
        for name, frame in found:
            for tag in ("axis", "axis2"):
                axis = frame.element.first(tag)
                mimic = None if axis is None else axis.first("mimic")
                if mimic is None or (name, tag) not in self.coordinates:
                    continue
                leader = self.frames.named(frame.scope, self.values.attribute(mimic, "joint"), mimic)
                key = leader, mimic.attributes.get("axis", "axis")
                if key not in self.coordinates:
                    raise self.values.error(mimic, f"{leader!r} is no joint with one coordinate along its {key[1]}.")
                wanted[self.coordinates[name, tag]] = self.coordinates[key], name, mimic
        around = circle({follower: leader for follower, (leader, _, _) in wanted.items()})
        if around:
            raise self.values.error(wanted[around[0]][2], f"{around[0]!r} mimics itself: {' follows '.join(around)}.")
        for follower, (leader, _, mimic) in wanted.items():
            ratio, offset = (
                self.values.number(mimic, key, default) for key, default in (("multiplier", 1.0), ("offset", 0.0))
            )
            phase = offset - ratio * self.values.number(mimic, "reference", 0.0)
            name = self.values.names.made("mimic", follower.partition(".")[0])
            self.joints.append(Gear(name, leader, follower, ratio, phase))


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def _cross(first: np.ndarray, second: np.ndarray) -> Rotation:
    """The rotation of x to the first axis, and of y to the second, which is perpendicular to it."""
    x, y = first / np.linalg.norm(first), second / np.linalg.norm(second)
    return Rotation.from_matrix(np.stack([x, y, np.cross(x, y)], axis=1))
