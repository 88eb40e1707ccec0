"""Joints of ASMT files as joints here; the axis of both is the z axis of the markers.

`d = p_J − p_I`, and θ the angle of J relative to I about z. The rows of those without a counterpart here are those of
OndselSolver.
"""

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.spatial.transform import Rotation

from jaxmbd.arrays import Scalar
from jaxmbd.io._placement import Owner, Placement
from jaxmbd.io.asmt.tree import Node
from jaxmbd.model.body.spatial import Marker
from jaxmbd.model.joint.shared import Rod, Weld
from jaxmbd.model.joint.spatial import (
    Cylindrical,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    Universal,
    across,
    angle_about_z,
)
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
from jaxmbd.space.vectors import dot, nearest_turn

Side = tuple[Owner, Placement]  # a marker of the file: its owner, and its placement in the file's frame of that

_PLAIN = {
    "CylindricalJoint": Cylindrical,
    "FixedJoint": Weld,
    "ParallelAxesJoint": ParallelAxes,
    "PerpendicularJoint": PerpendicularAxes,
    "PointInLineJoint": PointOnLine,
    "RevoluteJoint": Revolute,
    "SphericalJoint": Spherical,
    "TranslationalJoint": Prismatic,
}
_HALF_TURN = Placement(rotation=Rotation.from_rotvec([np.pi, 0.0, 0.0]))
_Z_TO_X = Placement(rotation=Rotation.from_euler("y", np.pi / 2))  # a frame whose x axis is the old z axis
_Z_TO_Y = Placement(rotation=Rotation.from_euler("x", -np.pi / 2))  # a frame whose y axis is the old z axis
_AXES = ("CylindricalJoint", "PlanarJoint", "RackPinionJoint", "RevoluteJoint", "ScrewJoint")  # with a common z axis
_FRAMES = ("FixedJoint", "TranslationalJoint")  # without rotation
_PARALLEL = 1e-9  # largest sine of an angle between axes that is zero


def joint_of(node: Node, name: str, i: Side, j: Side) -> Joint:
    """The joint of a node, one of `KINDS`, between two markers."""
    a, b = _marker(i), _marker(j)
    match node.text:
        case kind if kind in _PLAIN:
            return _PLAIN[kind](name, a, b)
        case "PlanarJoint" | "PointInPlaneJoint":
            offset = node.length("offset") if node.first("offset") else 0.0
            raised = _marker(i, Placement(np.array([0.0, 0.0, offset])))
            return (Planar if node.text == "PlanarJoint" else PointOnPlane)(name, raised, b)
        case "UniversalJoint":
            return Universal(name, _marker(i, _Z_TO_X), _marker(j, _Z_TO_Y))
        case "ConstantVelocityJoint":
            # OndselSolver's shafts point towards each other: x_I · y_J + y_I · x_J = 0.
            return ConstantVelocity(name, a, _marker(j, _HALF_TURN))
        case "AngleJoint":
            return _angle_joint(node, name, a, b)
        case "SphSphJoint":
            return Rod(name, a, b, node.length("distanceIJ"))
        case "RevRevJoint" | "RevCylJoint" | "CylSphJoint":
            return Constraint(name, _BETWEEN_AXES[node.text], a, b, jnp.asarray(node.length("distanceIJ")))
        case "RackPinionJoint" | "ScrewJoint":
            is_rack = node.text == "RackPinionJoint"
            advance = -node.length("pitchRadius") if is_rack else node.length("pitch") / (2 * math.pi)
            law, way = (_rack, 0) if is_rack else (_screw, 2)
            # As in OndselSolver, the constant is the value at the start.
            constant = float((world(i).inverse() @ world(j)).position[way]) - advance * start_angle(i, j)
            return Constraint(name, law, a, b, jnp.asarray([advance, constant]))
    raise AssertionError(node.text)  # `KINDS` lists those above


def half_turn(kind: str, i: Side, j: Side) -> Placement | None:
    """The half turn of marker J after which a joint has the side that it has here; None if it has that already.

    OndselSolver's rows are zero as well if axes point against each other, as those of faces that are mated do. A half
    turn of J about its x axis does not change the angle about z_I, which is that of x_J.
    """
    R = (world(i).inverse() @ world(j)).rotation.as_matrix()
    turns = [Placement(rotation=Rotation.from_rotvec(np.pi * axis)) for axis in np.eye(3)]
    if kind in _AXES:
        return turns[0] if R[2, 2] < 0 else None
    if kind in _FRAMES:
        k = int(np.argmax(np.diag(R)))
        return turns[k] if np.trace(R) < 2 * R[k, k] - np.trace(R) else None
    if kind == "ConstantVelocityJoint":
        return turns[2] if R[0, 0] < R[1, 1] else None
    return None


def _marker(side: Side, turn: Placement | None = None) -> Marker:
    owner, placement = side
    return owner.at(placement if turn is None else placement @ turn)


def world(side: Side) -> Placement:
    """The placement of a marker in the world at the start."""
    owner, placement = side
    return owner.start @ placement


def start_angle(i: Side, j: Side) -> float:
    """The angle θ [rad] at the start, in (−π, π]."""
    R = (world(i).inverse() @ world(j)).rotation.as_matrix()
    return math.atan2(R[1, 0] - R[0, 1], R[0, 0] + R[1, 1])


def _angle_joint(node: Node, name: str, a: Marker, b: Marker) -> Joint:
    """`z_I · z_J = cos θ` (1 row); parallel axes, where the row's gradient vanishes, get two rows."""
    angle = node.number("theIzJz")
    if abs(math.sin(angle)) < _PARALLEL:
        return ParallelAxes(name, a, b)
    return Constraint(name, _inclination, a, b, jnp.asarray(math.cos(angle)))


def _inclination(t: Scalar, frames: Sequence[Frame], cosine: Scalar) -> Scalar:
    i, j = frames
    return dot(i.z, j.z) - cosine


def _apart(frames: Sequence[Frame], distance: Scalar) -> Float[Array, "1"]:
    """The distance across the z axis of I: `½ ((x_I · d)² + (y_I · d)² − l²)`."""
    i, j = frames
    offset = across(i, j.position - i.position)
    return 0.5 * (dot(offset, offset) - distance**2)[None]


def _cylindrical_spherical(t: Scalar, frames: Sequence[Frame], distance: Scalar) -> Float[Array, "1"]:
    return _apart(frames, distance)


def _revolute_cylindrical(t: Scalar, frames: Sequence[Frame], distance: Scalar) -> Float[Array, "3"]:
    i, j = frames
    return jnp.append(_apart(frames, distance), across(j, i.z))


def _revolute_revolute(t: Scalar, frames: Sequence[Frame], distance: Scalar) -> Float[Array, "4"]:
    i, j = frames
    return jnp.append(_revolute_cylindrical(t, frames, distance), dot(i.z, j.position - i.position))


_BETWEEN_AXES: dict[str, Callable[..., Array]] = {
    "CylSphJoint": _cylindrical_spherical,
    "RevCylJoint": _revolute_cylindrical,
    "RevRevJoint": _revolute_revolute,
}


def _advance(frames: Sequence[Frame], way: Scalar, parameters: Float[Array, "2"]) -> Scalar:
    """`s − p θ − c = 0`; the way `s` determines the number of whole turns in θ."""
    rate, constant = parameters
    i, j = frames
    return way - rate * nearest_turn(angle_about_z(i, j), (way - constant) / rate) - constant


def _rack(t: Scalar, frames: Sequence[Frame], parameters: Float[Array, "2"]) -> Scalar:
    i, j = frames
    return _advance(frames, dot(i.x, j.position - i.position), parameters)


def _screw(t: Scalar, frames: Sequence[Frame], parameters: Float[Array, "2"]) -> Scalar:
    i, j = frames
    return _advance(frames, dot(i.z, j.position - i.position), parameters)


KINDS = (
    *_PLAIN,
    *_BETWEEN_AXES,
    "AngleJoint",
    "ConstantVelocityJoint",
    "GearJoint",
    "PlanarJoint",
    "PointInPlaneJoint",
    "RackPinionJoint",
    "ScrewJoint",
    "SphSphJoint",
    "UniversalJoint",
)
