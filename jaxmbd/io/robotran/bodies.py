"""The tree of bodies of Robotran: each has a chain of joints with one coordinate from a point of its parent.

The body's frame is behind the last of them. Its centre of mass and its points are in this frame, its moments and
products of inertia are the entries of the inertia matrix about the centre of mass, in axes of this frame.
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.errors import MechanismError
from jaxmbd.io._placement import Owner, Placement, along_z
from jaxmbd.io._xml import Element
from jaxmbd.io.robotran.values import Values
from jaxmbd.model import sensor as sensors
from jaxmbd.model.body.spatial import Body, ground
from jaxmbd.model.driver import Driver
from jaxmbd.model.joint.shared import Weld
from jaxmbd.model.joint.spatial import Prismatic, Revolute
from jaxmbd.model.mechanism.mechanism import Joint, Sensor

BASE = "base"
_KINDS = {"R": (Revolute, "angle"), "T": (Prismatic, "displacement")}
_NATURES = ("independent", "dependent", "driven")
_OF_BASE = ("gravity", "baseBodyName", "point", "graphics")
_OF_BODY = ("bodyname", "parent", "joint", "mass", "com", "inertia", "point", "graphics")
_OF_JOINT = ("jointname", "type", "nature", "initialvalue", "actuated", "graphics", "symbols")
_OF_POINT = ("pointname", "coordinates", "sensor", "extforce", "graphics")
_TENSOR = ("xx", "xy", "xz", "yy", "yz", "zz")
_SENSORS = {
    "Pos": sensors.Point,
    "Vit": sensors.PointVelocity,
    "Acc": sensors.PointAcceleration,
    "Om": sensors.AngularVelocity,
    "Omp": sensors.AngularAcceleration,
}
_UNREAD = ("Rot", "Jac")


@dataclass
class Bodies:
    """What `read` fills: the parts of the tree, with the coordinates and speeds that the file gives."""

    values: Values
    bodies: list[Body] = field(default_factory=list)
    joints: list[Joint] = field(default_factory=list)
    drivers: list[Driver] = field(default_factory=list)
    sensors: list[Sensor] = field(default_factory=list)
    guess: dict[str, float] = field(default_factory=dict)
    speeds: dict[str, float] = field(default_factory=dict)

    def read(self, base: Element, tree: Element) -> None:
        """Read the base, then each body when its parent is there."""
        self.values.remark_on_others(base, _OF_BASE)
        name = base.first("baseBodyName")
        for own in dict.fromkeys((BASE, name.text.strip() if name and name.text.strip() else BASE)):
            self.values.owners[own] = Owner(ground)
            self.values.add_points(base, own)
        self._sensors(base, Owner(ground), BASE)
        if any(_given(sensor, key) == "true" for sensor in tree.descendants() for key in _UNREAD):
            self.values.remarks.changed("sensors", f"have no {' or '.join(_UNREAD)} here")
        self.values.remark_on_others(tree, ("body", "graphics"))
        waiting = tree.all("body")
        if not waiting:
            raise self.values.error(tree, "it has no <body>.")
        names = [self.values.text(body, "bodyname") for body in waiting]
        for body, own in zip(waiting, names, strict=True):
            if own in self.values.owners or names.count(own) > 1:
                raise self.values.error(body, f"there are two bodies {own!r}.")
            if self._parent_name(body) not in (*names, *self.values.owners):
                self.values.at(self._parent(body))  # raises, with the names that there are
        while waiting:
            known = (k for k, body in enumerate(waiting) if self._parent_name(body) in self.values.owners)
            first = next(known, None)
            if first is None:
                raise self.values.error(waiting[0], "its parents lead back to itself, and not to the base.")
            self._body(waiting.pop(first))

    def _parent(self, body: Element) -> Element:
        parent = body.first("parent")
        if parent is None:
            raise self.values.error(body, "it has no <parent>.")
        return parent

    def _parent_name(self, body: Element) -> str:
        return self.values.text(self._parent(body), "bodyname")

    def _body(self, element: Element) -> None:
        self.values.remark_on_others(element, _OF_BODY)
        name, (parent, place) = self.values.text(element, "bodyname"), self.values.at(self._parent(element))
        chain = [self._joint(joint) for joint in element.all("joint")]
        start = parent.start @ place
        for kind, axis, value in chain:
            unit = np.eye(3)[axis]
            start @= Placement(value * unit) if kind == "T" else Placement(rotation=Rotation.from_rotvec(value * unit))
        owner = self._with_mass(element, name, start)
        first = parent, place
        for k, joint in enumerate(element.all("joint")):
            kind, axis, _ = chain[k]
            second = owner, Placement()
            if k + 1 < len(chain):
                link = Body(self.values.names.made("link", self.values.text(joint, "jointname")), 0.0, np.zeros(3))
                self.bodies.append(link)
                second = Owner(link), Placement()
            turn = Placement(rotation=along_z(np.eye(3)[axis]))
            own = self.values.names.new("joint", self.values.text(joint, "jointname"), joint.line)
            a, b = (side.at(at @ turn) for side, at in (first, second))
            self.joints.append(_KINDS[kind][0](own, a, b))
            self._start(joint, f"{own}.{_KINDS[kind][1]}")
            first = second
        if not chain:
            self.joints.append(Weld(self.values.names.made("weld", name), first[0].at(first[1]), owner.at(Placement())))
            self.values.remarks.changed(
                self.values.part(element), "has no joint: it is fixed to its parent", element.line
            )
        self._sensors(element, owner, name)

    def _with_mass(self, element: Element, name: str, start: Placement) -> Owner:
        centre, inertia = self.values.vector(element.first("com")), element.first("inertia")
        if inertia is not None:
            self.values.remark_on_others(inertia, tuple(f"I{ij}" for ij in _TENSOR))
        xx, xy, xz, yy, yz, zz = (self.values.number(inertia, f"I{ij}") for ij in _TENSOR)
        J = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        own = self.values.names.new("body", name, element.line)
        try:
            body = Body(own, self.values.number(element, "mass"), J, (start @ Placement(centre)).pose)
        except MechanismError as error:
            raise self.values.error(element, str(error)) from None
        self.bodies.append(body)
        self.values.owners[name] = owner = Owner(body, Placement(-centre), start)
        self.values.add_points(element, name)
        return owner

    def _joint(self, element: Element) -> tuple[str, int, float]:
        """Kind and axis of a joint, and where it starts."""
        self.values.remark_on_others(element, _OF_JOINT)
        kind = self.values.text(element, "type")
        if len(kind) != 2 or kind[0] not in _KINDS or kind[1] not in "123":
            raise self.values.error(element, f"<type> must be one of R1, R2, R3, T1, T2, T3, got {kind!r}.")
        return kind[0], int(kind[1]) - 1, self.values.number(element.first("initialvalue"), "q")

    def _start(self, element: Element, coordinate: str) -> None:
        """Enter the start of a joint; a driven one is held there."""
        given, nature = element.first("initialvalue"), element.first("nature")
        if given is not None:
            self.values.remark_on_others(given, ("q", "qd", "qdd"))
        q, qd = (self.values.number(given, key) for key in ("q", "qd"))
        self.guess[coordinate] = q
        word = nature.text.strip() if nature else _NATURES[0]
        if word not in _NATURES:
            raise self.values.error(element, f"<nature> must be one of {', '.join(_NATURES)}, got {word!r}.")
        if word == "driven":
            self.drivers.append(Driver(self.values.names.made("driver", coordinate.partition(".")[0]), coordinate, q))
            self.values.lost(element, f"is driven by the user's code of the project: here it is held at q = {q:g}")
        elif qd:
            self.speeds[f"{coordinate}_rate"] = qd

    def _sensors(self, element: Element, owner: Owner, body: str) -> None:
        for point in element.all("point"):
            self.values.remark_on_others(point, _OF_POINT)
            at = owner.at(Placement(self.values.points[body, self.values.text(point, "pointname")]))
            for force in point.all("extforce"):
                self.values.remarks.lost(f"extforce {_given(force, 'name')!r}", _BY_USER, force.line)
            for sensor in point.all("sensor"):
                name = _given(sensor, "name") or self.values.text(point, "pointname")
                for key, kind in _SENSORS.items():
                    if _given(sensor, key) == "true":
                        own = self.values.names.new("sensor", f"{name}_{key}")
                        self.sensors.append(kind(own, at))


_BY_USER = "is computed by the user's code of the project, which is not read; it is left out"


def _given(element: Element, key: str) -> str:
    """A value that newer files have as an attribute, older ones as a child."""
    child = element.first(key)
    return element.attributes.get(key, "" if child is None else child.text.strip())
