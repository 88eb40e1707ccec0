"""Which parts of a mechanism are drawn, and where.

What they look like is said by two files with the same functions: in the plane (`planar.py`) lines and outlines, which
cover each other in layers; in space (`spatial.py`) surfaces, which are lit and sorted by depth.
"""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxmbd.model.force.marker_forces import AbstractLineForce
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import AbstractComposite
from jaxmbd.model.mechanism.mechanism import Joint
from jaxmbd.model.sensor import Point
from jaxmbd.planar import PinInSlot
from jaxmbd.scene import planar, spatial
from jaxmbd.scene.geometry import Geometry, markers_of
from jaxmbd.scene.looks import looks
from jaxmbd.scene.motion import Place, facing
from jaxmbd.scene.pieces import Piece

_HANGS = 0.5  # a support hangs if the mean depth of bodies below it exceeds this share of their mean distance


def pieces_of(geometry: Geometry) -> list[Piece]:
    """The pieces of all parts of a mechanism."""
    mechanism, kind = geometry.mechanism, _kind(geometry)
    pieces = [*_supports(geometry), *looks(mechanism, -1)]
    for i in range(len(mechanism.bodies)):
        pieces += kind.body(geometry, i, _is_covered(geometry, geometry.centre(i)))
    for i, places in geometry.curves.items():
        name = mechanism.bodies[i].name
        pieces += [kind.segment(geometry, name, a, b) for a, b in itertools.pairwise(places)]
    for place in geometry.moving:  # no part of the rigid body's outline
        if place.body >= 0 and place.body not in geometry.curves:
            pieces.append(kind.link(geometry, mechanism.bodies[place.body].name, geometry.centre(place.body), place))
    composites = [joint for joint in mechanism.joints if isinstance(joint, AbstractComposite)]
    for part in (*mechanism.with_reactions().values(), *composites, *mechanism.forces):
        pieces += symbol(geometry, part)
    for sensor in mechanism.sensors:
        if isinstance(sensor, Point) and not _is_marked(geometry, geometry.place(sensor.at)):
            pieces.append(kind.dot(geometry, sensor.name, geometry.place(sensor.at)))
    return pieces


def symbol(geometry: Geometry, part: object) -> list[Piece]:
    """The pieces of a joint, driver or force; none for parts without a position, such as gravity.

    A joint without a symbol of its own is drawn as broken lines from its first marker to the others.
    """
    kind = _kind(geometry)
    for kinds, draw in kind.SYMBOLS:
        if isinstance(part, kinds):
            return draw(geometry, part)
    if not isinstance(part, AbstractJoint):
        return []
    first, *others = (geometry.place(marker) for marker in part.markers)
    return [kind.link(geometry, part.name, first, other) for other in others]


def _kind(geometry: Geometry) -> Any:
    return planar if geometry.dim == 2 else spatial


def _is_covered(geometry: Geometry, centre: Place) -> bool:
    """True if a joint covers a centre of mass."""
    kind = _kind(geometry)
    joints = [joint for joint in geometry.mechanism.joints if isinstance(joint, kind.STANDING | kind.WELDED)]
    return _is_at(geometry, centre, joints)


def _is_marked(geometry: Geometry, place: Place) -> bool:
    """True if a joint or a centre of mass is drawn at a place."""
    is_centre = place.body >= 0 and geometry.coincide(place, geometry.centre(place.body))
    return is_centre or _is_at(geometry, place, geometry.mechanism.joints)


def _is_at(geometry: Geometry, place: Place, joints: Iterable[Joint]) -> bool:
    places = [geometry.place(marker) for joint in joints for marker in markers_of(joint)]
    return any(geometry.coincide(place, other) for other in places)


def _supports(geometry: Geometry) -> Iterable[Piece]:
    """A stand for each point of the ground that supports a joint, and a wall for each spring and weld."""
    kind, seen = _kind(geometry), list[Place]()
    parts = [*geometry.mechanism.joints, *geometry.mechanism.forces]
    standing = [part for part in parts if isinstance(part, kind.STANDING)]
    fixed = [part for part in parts if isinstance(part, kind.WELDED | AbstractLineForce)]
    for part in (*standing, *fixed):
        for place, other in _on_ground(geometry, part):
            if any(geometry.coincide(place, before) for before in seen):
                continue
            seen.append(place)
            if part in standing:
                turn = kind.UPSIDE_DOWN if _hangs(geometry, place, standing) else np.eye(geometry.dim)
                yield kind.stand(geometry.size, place._replace(rotation=turn))
            else:
                first = geometry.motion.at(0)
                away = other.point(first) - place.point(first)
                yield kind.wall(geometry.size, place._replace(rotation=facing(away if np.any(away) else kind.UP)))


def _on_ground(geometry: Geometry, part: Any) -> Iterable[tuple[Place, Place]]:
    """The markers on the ground that need a support, each with the opposite marker."""
    a, b = geometry.place(part.a), geometry.place(part.b)
    if a.body < 0 and not isinstance(part, PinInSlot):
        yield a, b
    if b.body < 0:
        yield b, a


def _hangs(geometry: Geometry, support: Place, parts: list[Any]) -> bool:
    """True if the bodies that a point of the ground supports swing below it."""
    arms = [
        geometry.motion.position[:, other.body] - support.point(geometry.motion)
        for part in parts
        for place, other in _on_ground(geometry, part)
        if geometry.coincide(place, support) and other.body >= 0
    ]
    away = np.concatenate(arms) if arms else np.zeros((1, geometry.dim))
    far = float(np.linalg.norm(away, axis=1).mean())
    return far > 0.1 * geometry.size and float(away[:, -1].mean()) < -_HANGS * far
