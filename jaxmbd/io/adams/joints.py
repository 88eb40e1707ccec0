"""Joints and primitives of Adams as joints here, between the markers J and I."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.transform import Rotation

from jaxmbd.arrays import Scalar
from jaxmbd.io._placement import Placement
from jaxmbd.io.adams.dataset import Dataset, Side
from jaxmbd.io.adams.statements import Statement
from jaxmbd.model.body.spatial import Marker
from jaxmbd.model.joint.shared import Weld
from jaxmbd.model.joint.spatial import Cylindrical, Planar, Prismatic, Revolute, Screw, Spherical, Universal
from jaxmbd.model.joint.spatial_constraints import (
    ConstantVelocity,
    ParallelAxes,
    PerpendicularAxes,
    PointOnLine,
    PointOnPlane,
)
from jaxmbd.model.joint.user import Constraint
from jaxmbd.model.mechanism.mechanism import Joint
from jaxmbd.space.spatial import SpatialFrame as Frame

_HALF_TURN = Placement(rotation=Rotation.from_rotvec([np.pi, 0.0, 0.0]))
_Z_TO_X = Placement(rotation=Rotation.from_euler("y", np.pi / 2))  # a frame whose x axis is the old z axis
_Z_TO_Y = Placement(rotation=Rotation.from_euler("x", -np.pi / 2))  # a frame whose y axis is the old z axis
_PARALLEL = 1e-6  # largest sine of the angle between axes that are one


def marker(side: Side, turn: Placement | None = None) -> Marker:
    """The marker of a side, turned on its body."""
    owner, place = side
    return owner.at(place if turn is None else place @ turn)


def world(side: Side) -> Placement:
    """The placement of a side in the world at the start."""
    return side[0].start @ side[1]


def angle(j: Side, i: Side) -> float:
    """The angle [rad] of I relative to J about z at the start, in (−π, π]."""
    R = (world(j).inverse() @ world(i)).rotation.as_matrix()
    return math.atan2(R[1, 0] - R[0, 1], R[0, 0] + R[1, 1])


def _orientation(t: Scalar, frames: Sequence[Frame], parameters: Any) -> Float[Array, "3"]:
    """Rows of equal axes: `y_A · z_B = z_A · x_B = x_A · y_B = 0`."""
    a, b = frames
    return a.misalignment(b)


_Make = Callable[[str, Side, Side], Joint]
_JOINTS: dict[str, _Make] = {
    # The shafts point away from each other in Adams, along each other here.
    "CONVEL": lambda name, j, i: ConstantVelocity(name, marker(i), marker(j, _HALF_TURN)),
    "CYLINDRICAL": lambda name, j, i: Cylindrical(name, marker(j), marker(i)),
    "FIXED": lambda name, j, i: Weld(name, marker(j), marker(i)),
    "HOOKE": lambda name, j, i: Universal(name, marker(i), marker(j)),  # axes x_I and y_J
    "PLANAR": lambda name, j, i: Planar(name, marker(j), marker(i)),
    "REVOLUTE": lambda name, j, i: Revolute(name, marker(j), marker(i)),
    "SPHERICAL": lambda name, j, i: Spherical(name, marker(j), marker(i)),
    "TRANSLATIONAL": lambda name, j, i: Prismatic(name, marker(j), marker(i)),
    "UNIVERSAL": lambda name, j, i: Universal(name, marker(i, _Z_TO_X), marker(j, _Z_TO_Y)),  # axes z_I and z_J
}
_PRIMITIVES: dict[str, _Make] = {
    "ATPOINT": lambda name, j, i: Spherical(name, marker(j), marker(i)),
    "INLINE": lambda name, j, i: PointOnLine(name, marker(j), marker(i)),
    "INPLANE": lambda name, j, i: PointOnPlane(name, marker(j), marker(i)),
    "ORIENTATION": lambda name, j, i: Constraint(name, _orientation, marker(j), marker(i)),
    "PARALLEL_AXES": lambda name, j, i: ParallelAxes(name, marker(j), marker(i)),
    "PERPENDICULAR": lambda name, j, i: PerpendicularAxes(name, marker(j), marker(i)),
}
_UNREAD = ("RACKPIN",)
_OF_JOINT = ("TYPE", "I", "J", "PITCH", "PD", "IC", "ICTRAN", "ICROT")


def read_joint(dataset: Dataset, statement: Statement) -> None:
    """Enter the joint of a JOINT or JPRIM statement, or remark that it is left out."""
    dataset.known(statement, *_OF_JOINT)
    kinds = _PRIMITIVES if statement.keyword == "JPRIM" else {**_JOINTS, "SCREW": _screw, **dict.fromkeys(_UNREAD)}
    words = [*statement.flags, *(word.upper() for word in statement.values.get("TYPE", []))]
    found = [kind for kind in kinds if any(kind.startswith(word) for word in words)]
    if len(found) != 1 or len(words) != 1:
        listed = ", ".join(kinds)
        raise statement.error(f"it must have one of the types {listed}, got {', '.join(words)[:80] or 'none'}.")
    sides = dataset.sides(statement)
    if found[0] in _UNREAD:
        dataset.lost(statement, f"is a {found[0]}, which has no counterpart and is left out")
    if sides is None or found[0] in _UNREAD:
        return
    if {"IC", "ICTRAN", "ICROT"} & statement.values.keys():
        dataset.lost(statement, "has initial conditions, which are left out: give them to assemble")
    j, i = sides
    name = dataset.name(statement)
    if found[0] == "SCREW":
        joint: Joint = _screw(name, j, i, dataset.units.length * statement.numeral("PITCH"))
    else:
        joint = kinds[found[0]](name, j, i)
    dataset.joints[statement.number if statement.keyword == "JOINT" else -len(dataset.joints) - 1] = joint, j, i


def _screw(name: str, j: Side, i: Side, pitch: float = 0.0) -> Joint:
    """The displacement is the pitch times the turns of I, counted from where the file starts: J is moved there."""
    offset = float((world(j).inverse() @ world(i)).position[2]) - pitch * angle(j, i) / (2 * math.pi)
    return Screw(name, marker(j, Placement(np.array([0.0, 0.0, offset]))), marker(i), pitch)


def hinge(dataset: Dataset, j: Side, i: Side) -> tuple[str, int, float] | None:
    """A coordinate c, a sign s and a number d with which `s c + d` is the angle of I relative to J about z_J.

    Of a joint between the same bodies about the same direction; None if there is no such.
    """
    axis = world(j).rotation.apply([0.0, 0.0, 1.0])
    for joint, first, second in dataset.joints.values():
        names = [first[0].body.name, second[0].body.name]
        if not isinstance(joint, Revolute | Cylindrical) or {*names} != {j[0].body.name, i[0].body.name}:
            continue
        own = world(first).rotation.apply([0.0, 0.0, 1.0])
        if np.linalg.norm(np.cross(axis, own)) < _PARALLEL:
            sign = int(np.sign(axis @ own)) * (1 if names[0] == j[0].body.name else -1)
            start = angle(j, i) - sign * angle(first, second)
            turns = round(start / (2 * math.pi))
            return f"{joint.name}.angle", sign, start - 2 * math.pi * turns
    return None
