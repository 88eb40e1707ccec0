"""Gears of ASMT files: there between two frames, here between two joint angles."""

from collections.abc import Iterable

import numpy as np

from jaxmbd.io.asmt.joints import Side, start_angle, world
from jaxmbd.io.asmt.tree import Node
from jaxmbd.model.joint.shared import Gear
from jaxmbd.model.joint.spatial import Cylindrical, Revolute
from jaxmbd.model.mechanism.mechanism import Joint

_PARALLEL = 1e-6  # largest sine of the angle between the axes of a wheel and of its bearing: files hold eight digits

Joined = tuple[Joint, tuple[Side, Side]]  # a joint, and the markers of the file that it joins


def gear(node: Node, name: str, wheels: tuple[Side, Side], joints: Iterable[Joined]) -> Gear | None:
    """`φ_J + (r_I / r_J) φ_I = constant`, with the angles of both wheels about their own z axes.

    Each wheel turns in the joint that it has about this axis; the two joints must be on one body, the carrier. None if
    there are no such joints.
    """
    joints = list(joints)
    for first, sign_i, carrier_i, angle_i in _bearings(wheels[0], joints):
        for second, sign_j, carrier_j, angle_j in _bearings(wheels[1], joints):
            if carrier_i == carrier_j:
                ratio = -node.number("radiusI") / node.number("radiusJ") * sign_i * sign_j
                phase = angle_j - ratio * angle_i
                return Gear(name, f"{first}.angle", f"{second}.angle", ratio, phase)
    return None


def _bearings(wheel: Side, joints: list[Joined]) -> list[tuple[str, int, str, float]]:
    """The joints about the axis of a wheel: name, sign of the angle about the wheel's axis, carrier, start angle."""
    found = []
    for joint, sides in joints:
        bodies = [owner.body.name for owner, _ in sides]
        if not isinstance(joint, Revolute | Cylindrical) or wheel[0].body.name not in bodies:
            continue
        axis, bearing = (world(side).rotation.apply([0.0, 0.0, 1.0]) for side in (wheel, sides[0]))
        if np.linalg.norm(np.cross(axis, bearing)) < _PARALLEL:
            own = bodies.index(wheel[0].body.name)
            sign = int(np.sign(axis @ bearing)) * (1, -1)[1 - own]
            found.append((joint.name, sign, bodies[1 - own], start_angle(*sides)))
    return found
