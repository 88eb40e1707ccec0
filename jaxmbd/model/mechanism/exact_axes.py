"""Axes of joints that are parallel up to the digits of a file, and mechanisms in which they are exactly parallel.

The hinges of a planar linkage in space are parallel. If their axes are rounded to six or eight digits they are not,
and the loop, which could move with parallel axes, jams: rows that would be redundant are nearly so, and contradict one
another by the rounding. A joint aligns the axes of its two markers, so it is enough that those on each body are exact.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from jaxmbd.arrays import as_float, constant, frozen, is_concrete
from jaxmbd.checks import check_finite, check_number
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.spatial import Marker
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import FixedConstraint, PointConstraint, Rod, Weld
from jaxmbd.model.joint.spatial import Spherical
from jaxmbd.model.mechanism.mechanism import Mechanism

NEARLY = 1e-5  # [rad]: files hold six to eight digits
_EXACT = 8.0  # units of rounding: axes with a smaller angle are parallel
EXACT_TEXT = "jaxmbd.with_exact_axes(mechanism) makes them exact"
_WITHOUT_AXIS = FixedConstraint, PointConstraint, Rod, Spherical, Weld


@dataclass(frozen=True)
class NearlyParallel:
    """Joints whose axes on one body are parallel up to an `angle` [rad] that is not zero."""

    body: str
    joints: tuple[str, ...]
    angle: float

    def __str__(self) -> str:
        return f"the axes of {', '.join(map(repr, self.joints))} on {self.body!r} are parallel to {self.angle:.1g} rad"


def with_exact_axes(mechanism: Mechanism, tolerance: float = NEARLY) -> Mechanism:
    """Return the mechanism with axes of joints that are nearly parallel on a body made exactly parallel.

    In the plane, and where no axes are nearly parallel, the mechanism is returned as it is.

    **Arguments:** `tolerance`: the largest angle `[rad]` between axes that are made parallel, by turning markers. They
    get the direction of an axis of the body if that is as near, else that of the first of them.

    **Raises:** `MechanismError` inside `jit` or `vmap`, where the axes are not known.

        >>> bar, tilt = sp.Body("bar", 1.0, (0.1, 0.1, 0.1)), (1e-7, 1.0, 0.0)  # numbers of a file
        >>> joints = [
        ...     sp.Revolute("A", sp.ground.at(axis="y"), bar.at(-0.5, axis="y")),
        ...     sp.Revolute("B", sp.ground.at(1.0, axis="y"), bar.at(0.5, axis=tilt)),
        ... ]
        >>> exact = mbd.with_exact_axes(sp.Mechanism([bar], joints))
        >>> print(float(abs(exact["B"].b.local.normal - exact["A"].b.local.normal).max()) < 1e-15)
        True
    """
    check_finite("with_exact_axes", "tolerance", as_float(tolerance))
    check_number("with_exact_axes", "tolerance", as_float(tolerance), "rad", zero=True)
    if not is_concrete(frozen(mechanism.joints)):
        raise MechanismError(
            "with_exact_axes cannot be compiled (jit, vmap): which axes are nearly parallel depends on values. Apply "
            "it to the mechanism before."
        )
    exact: dict[tuple[str, bytes], np.ndarray] = {}
    for members in _groups(mechanism, tolerance):
        for marker, direction in _made_parallel(members, tolerance):
            exact[_key(marker)] = direction

    def turned(part: object) -> Any:
        if not isinstance(part, Marker) or _key(part) not in exact:
            return part
        return eqx.tree_at(lambda m: m.rotation, part, constant(exact[_key(part)]))

    if not exact:
        return mechanism
    is_marker = lambda part: isinstance(part, Marker)  # noqa: E731
    joints = tuple(
        jax.tree.map(turned, joint, is_leaf=is_marker) if _has_axis(joint) else joint for joint in mechanism.joints
    )
    return eqx.tree_at(lambda m: m.joints, mechanism, joints)


def nearly_parallel(mechanism: Mechanism, tolerance: float = NEARLY) -> tuple[NearlyParallel, ...]:
    """Return the axes on each body that are parallel up to a tolerance [rad], but not exactly; none if they are not
    known."""
    if not is_concrete(frozen(mechanism.joints)):
        return ()
    found = []
    for members in _groups(mechanism, tolerance):
        axes = np.stack([axis for _, _, axis in members])
        names = tuple(dict.fromkeys(joint for joint, _, _ in members))
        found.append(NearlyParallel(members[0][1].body, names, _widest(axes)))
    return tuple(found)


_Member = tuple[str, Marker, Float[np.ndarray, "3"]]  # the joint's name, its marker, and the axis in the body's frame


def _groups(mechanism: Mechanism, tolerance: float) -> Iterator[list[_Member]]:
    """Yield the markers on one body whose axes are parallel up to the tolerance, where they are not exactly."""
    by_body: dict[str, list[list[_Member]]] = {}
    for joint in frozen(mechanism.joints):
        for marker in joint.markers if _has_axis(joint) else ():
            if not isinstance(marker, Marker):
                continue
            member = joint.name, marker, np.asarray(marker.local.normal, float)
            groups = by_body.setdefault(marker.body, [])
            near = (group for group in groups if _angle(group[0][2], member[2]) <= tolerance)
            group = next(near, None)
            if group is None:
                groups.append([member])
            else:
                group.append(member)
    for groups in by_body.values():
        for group in groups:
            rounding = _EXACT * float(np.finfo(np.asarray(group[0][1].rotation).dtype).eps)
            if _widest(np.stack([axis for _, _, axis in group])) > rounding:
                yield group


def _has_axis(joint: object) -> bool:
    return isinstance(joint, AbstractJoint) and not isinstance(joint, _WITHOUT_AXIS)


def _made_parallel(members: list[_Member], tolerance: float) -> Iterator[tuple[Marker, Float[np.ndarray, "4"]]]:
    """Yield each marker with the Euler parameters that turn its axis to the common direction."""
    own = members[0][2]
    k = int(np.argmax(np.abs(own)))
    common = np.sign(own[k]) * np.eye(3)[k]
    if max(_angle(common, axis) for _, _, axis in members) > tolerance:
        common = own / np.linalg.norm(own)
    for _, marker, axis in members:
        sign = 1.0 if axis @ common > 0 else -1.0
        # The smallest rotation from one axis to the other: half the sine of so small an angle is the sine of its half.
        turn = np.append(1.0, 0.5 * np.cross(axis, sign * common))
        rotation = _product(turn, np.asarray(marker.rotation, float))
        yield marker, rotation / np.linalg.norm(rotation)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.append(a[0] * b[0] - a[1:] @ b[1:], vector)


def _angle(a: np.ndarray, b: np.ndarray) -> float:
    """Return the angle between two axes, whichever way they point."""
    return float(np.arcsin(min(1.0, float(np.linalg.norm(np.cross(a, b))))))


def _widest(axes: Float[np.ndarray, "k 3"]) -> float:
    return max(_angle(a, b) for a in axes for b in axes)


def _key(marker: Marker) -> tuple[str, bytes]:
    """Return what tells the orientations of markers apart."""
    return marker.body, np.asarray(frozen(marker.rotation)).tobytes()
