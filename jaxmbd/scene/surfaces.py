"""Surfaces as faces `(n, k, 3)`: polygons of `k` corners; a face with fewer repeats its last corner.

Corners are ordered counter-clockwise seen from outside, so that normals point outwards.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmbd.scene.motion import facing
from jaxmbd.scene.outlines import hull

Points = Float[np.ndarray, "_ 3"]
Faces = Float[np.ndarray, "_ _ 3"]

_ROUND = 1e-2  # the relative difference up to which principal moments count as equal
_POINTS = 14  # the number of points of a helix in each turn
_MANY = 40  # the largest number of points of which a hull is computed; of more, only extreme points are used


def joined(*parts: Faces) -> Faces:
    """Several surfaces as one."""
    corners = max(part.shape[1] for part in parts)
    return np.concatenate([_padded(part, corners) for part in parts])


def _padded(faces: Faces, corners: int) -> Faces:
    last = np.repeat(faces[:, -1:], corners - faces.shape[1], axis=1)
    return np.concatenate([faces, last], axis=1)


def revolved(radius: np.ndarray, height: np.ndarray, sides: int = 16) -> Faces:
    """The surface of revolution about z of a profile, which is given from its lower to its upper end."""
    angle = 2 * np.pi * (np.arange(sides + 1) + 0.5) / sides
    x, y = np.outer(radius, np.cos(angle)), np.outer(radius, np.sin(angle))
    grid = np.stack([x, y, np.broadcast_to(np.asarray(height, dtype=float)[:, None], x.shape)], axis=-1)
    return _quads(grid)


def _quads(grid: np.ndarray) -> Faces:
    """The quadrilaterals of a grid of points `(m, n, 3)`."""
    corners = grid[:-1, :-1], grid[:-1, 1:], grid[1:, 1:], grid[1:, :-1]
    return np.stack(corners, axis=2).reshape(-1, 4, 3)


def cylinder(radius: float, length: float, sides: int = 20, rings: int = 3) -> Faces:
    """A cylinder along z about the origin, closed by discs."""
    h = length / 2
    radii, heights = [0.0, *[radius] * (rings + 1), 0.0], [-h, *np.linspace(-h, h, rings + 1), h]
    return revolved(np.array(radii), np.array(heights), sides)


def ball(radius: float, sides: int = 16) -> Faces:
    """A ball about the origin."""
    angle = np.linspace(-np.pi / 2, np.pi / 2, sides // 2 + 1)
    return revolved(radius * np.abs(np.cos(angle)), radius * np.sin(angle), sides)


def box(x: float, y: float, z: float) -> Faces:
    """A box about the origin with edges along the axes."""
    faces = []
    for k, (i, j) in enumerate([(1, 2), (2, 0), (0, 1)]):
        for side in (1.0, -1.0):
            face = np.empty((4, 3))
            face[:, k] = side
            face[:, i], face[:, j] = side * np.array([-1, 1, 1, -1]), [-1, -1, 1, 1]
            faces.append(face)
    return np.array(faces) * np.array([x, y, z]) / 2


def rings(length: float, step: float) -> int:
    """The number of segments of about one length [m] into which a bar is divided, for sorting by depth."""
    return int(np.clip(np.ceil(length / step), 1, 60))


def rounded_bar(length: float, radius: float, segments: int, sides: int = 10) -> Faces:
    """A round bar from the origin along z with hemispherical ends."""
    angle = np.linspace(0.0, np.pi / 2, 4)
    inner = np.linspace(0.0, length, segments + 1)
    heights = np.concatenate([-radius * np.cos(angle[:-1]), inner, length + radius * np.sin(angle[1:])])
    radii = np.concatenate([radius * np.sin(angle[:-1]), np.full(len(inner), radius), radius * np.cos(angle[1:])])
    return revolved(radii, heights, sides)


def bar(start: np.ndarray, stop: np.ndarray, radius: float, step: float) -> Faces:
    """A round bar between two points, divided into segments of length `step` [m]."""
    away, length = stop - start, float(np.linalg.norm(stop - start))
    return rounded_bar(length, radius, rings(length, step)) @ facing(away).T + start


def edges(polygons: list[np.ndarray], radius: float, step: float) -> Faces:
    """Thin bars along the edges of polygons; shared edges get one bar."""
    bars: dict[tuple[tuple[float, ...], ...], Faces] = {}
    for polygon in polygons:
        for p, q in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
            key = tuple(sorted(tuple(np.round(point, 9).tolist()) for point in (p, q)))
            if key not in bars:
                bars[key] = bar(p, q, radius, step)
    return joined(*bars.values())


def pyramid(bottom: float, top: float, height: float) -> Faces:
    """A square tapered post below the origin; `bottom` and `top` are its widths."""
    half = np.sqrt(0.5)
    return revolved(half * np.array([0.0, bottom, top, 0.0]), np.array([-height, -height, 0.0, 0.0]), 4)


def arrow(vector: np.ndarray, radius: float) -> Faces:
    """A straight arrow from the origin; its head is smaller for short vectors."""
    length = float(np.linalg.norm(vector))
    head = min(6.0 * radius, 0.6 * length)
    wide = 0.45 * head
    thin = min(radius, 0.4 * wide)
    shaft = np.linspace(0.0, length - head, 5)
    radii = np.array([0.0, *np.full(5, thin), wide, 0.0])
    heights = np.array([0.0, *shaft, length - head, length])
    return revolved(radii, heights, 10) @ facing(vector).T


def tube(path: Points, radius: float, sides: int = 6) -> Faces:
    """A thin round tube along a path, closed if the path ends at its start."""
    ahead = _tangents(path)
    side = np.empty_like(path)
    side[0] = facing(ahead[0])[:, 0]
    for k in range(1, len(path)):
        side[k] = _across(side[k - 1], ahead[k])
    return _rings(path, ahead, side, radius, sides)


def _tangents(path: Points) -> Points:
    ahead = np.gradient(path, axis=0)
    if np.allclose(path[0], path[-1]):
        ahead[[0, -1]] = path[1] - path[-2]
    return ahead / np.maximum(np.linalg.norm(ahead, axis=1, keepdims=True), 1e-300)


def _across(direction: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """The part of directions `(..., 3)` across others, of unit length."""
    across = direction - np.sum(direction * ahead, axis=-1, keepdims=True) * ahead
    return across / np.maximum(np.linalg.norm(across, axis=-1, keepdims=True), 1e-300)


def _rings(path: Points, ahead: Points, side: Points, radius: float, sides: int) -> Faces:
    angle = 2 * np.pi * np.arange(sides + 1) / sides
    ring = np.cos(angle)[:, None] * side[:, None] + np.sin(angle)[:, None] * np.cross(ahead, side)[:, None]
    return _quads(path[:, None] + radius * ring)


def circle(radius: float, start: float = 0.0, stop: float = 2 * np.pi, points: int = 33) -> Points:
    """A circle in the xy plane about the origin, or a part of it."""
    angle = np.linspace(start, stop, points)
    return radius * np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)


def coil(radius: float, wire: float, length: float, turns: float | int, lead: float = 0.0, sides: int = 5) -> Faces:
    """A wire of a radius along a helix about z from the origin, with straight leads at both ends.

    The rings of the wire begin on the side away from the axis, so that they do not twist where the coil is stretched.
    """
    angle = np.linspace(0.0, 2 * np.pi * turns, int(_POINTS * turns) + 1)
    rise = np.minimum(angle, angle[-1] - angle) / np.pi
    radii = radius * np.clip(rise, 0.0, 1.0)
    outward = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], axis=1)
    path = radii[:, None] * outward
    path[:, 2] = np.linspace(lead, length - lead, len(angle))
    if lead > 0:
        path = np.concatenate([[(0.0, 0.0, 0.0)], path, [(0.0, 0.0, length)]])
        outward = np.concatenate([outward[:1], outward, outward[-1:]])
    ahead = _tangents(path)
    return _rings(path, ahead, _across(outward, ahead), wire, sides)


def rectangle(low: np.ndarray, high: np.ndarray) -> Faces:
    """A rectangle in the xy plane."""
    (x0, y0), (x1, y1) = low, high
    return np.array([[(x0, y0, 0.0), (x1, y0, 0.0), (x1, y1, 0.0), (x0, y1, 0.0)]])


def normals(faces: Faces) -> Points:
    """Unit normals of faces, zero for faces of zero area."""
    arms = faces - faces[:, :1]
    areas = np.cross(arms, np.roll(arms, -1, axis=1)).sum(axis=1)
    return areas / np.maximum(np.linalg.norm(areas, axis=1, keepdims=True), 1e-300)


# --- hulls ----------------------------------------------------------------------------------------------


def spread(points: Float[np.ndarray, "_ _"], tolerance: float) -> int:
    """The dimension of the span of points: a point (0), line (1), plane (2) or space (3), within a tolerance [m]."""
    middle = points - points.mean(axis=0)
    _, _, axes = np.linalg.svd(middle, full_matrices=True)
    return int(np.sum(np.abs(middle @ axes.T).max(axis=0) > tolerance))


def hull_faces(points: Points, dimension: int) -> list[Points]:
    """The faces of the convex hull of points in a plane (one face) or in space, as polygons."""
    if dimension == 2:
        return [_polygon(points)]
    points = _outermost(points)
    scale = float(np.ptp(points, axis=0).max())
    polygons: dict[tuple[int, ...], Points] = {}
    for i, j, k in combinations(range(len(points)), 3):
        normal = np.cross(points[j] - points[i], points[k] - points[i])
        length = float(np.linalg.norm(normal))
        if length <= 1e-9 * scale**2:
            continue
        heights = (points - points[i]) @ normal / length
        if np.all(heights <= 1e-9 * scale) or np.all(heights >= -1e-9 * scale):
            inside = tuple(int(n) for n in np.flatnonzero(np.abs(heights) <= 1e-9 * scale))
            if inside not in polygons:
                polygon = _polygon(points[list(inside)])
                outward = np.dot(normals(polygon[None])[0], polygon[0] - points.mean(axis=0)) > 0
                polygons[inside] = polygon if outward else polygon[::-1]
    return list(polygons.values())


def _polygon(points: Points) -> Points:
    """The corners, in order, of the convex hull of points in a plane."""
    middle = points.mean(axis=0)
    _, _, axes = np.linalg.svd(points - middle, full_matrices=True)
    flat = hull((points - middle) @ axes[:2].T)
    return flat @ axes[:2] + middle


def _outermost(points: Points) -> Points:
    """The extreme points in a fixed set of directions; all points if they are few."""
    if len(points) <= _MANY:
        return points
    k = np.arange(_MANY) + 0.5
    z, turn = 1 - 2 * k / _MANY, np.pi * (1 + 5**0.5) * k
    ring = np.sqrt(1 - z * z)
    directions = np.stack([ring * np.cos(turn), ring * np.sin(turn), z])
    return points[np.unique(np.argmax(points @ directions, axis=0))]


# --- solids equivalent to a mass and inertia ------------------------------------------------------------


class EquivalentSolid(NamedTuple):
    """A homogeneous ball, cylinder (along its last axis) or box: its half-extents [m] along principal axes.

    `axes`: the principal axes in the body's frame, as columns.
    """

    kind: str
    halves: np.ndarray
    axes: np.ndarray

    def limited(self, room: float) -> "EquivalentSolid":
        """The same solid, scaled down if its largest half-extent [m] exceeds `room`."""
        largest = float(self.halves.max())
        return EquivalentSolid(self.kind, self.halves * min(1.0, room / largest), self.axes)

    def reach(self, direction: np.ndarray) -> tuple[float, float, float]:
        """The half-extent [m] along a direction, and the smaller and the larger one across."""
        if self.kind == "ball":
            return float(self.halves[0]), float(self.halves[0]), float(self.halves[0])
        along = int(np.argmax(np.abs(self.axes.T @ direction)))
        across = np.delete(self.halves, along)
        return float(self.halves[along]), float(across.min()), float(across.max())

    def faces(self) -> Faces:
        """The surface in the body's frame."""
        a, b, c = self.halves
        if self.kind == "ball":
            surface = ball(a, 32)
        elif self.kind == "cylinder":
            surface = cylinder(a, 2 * c, 40)
        else:
            surface = box(2 * a, 2 * b, 2 * c)
        return surface @ self.axes.T


def equivalent_solid(mass: float, inertia: np.ndarray) -> EquivalentSolid:
    """The homogeneous solid with a mass [kg] and an inertia matrix [kg m²].

    It is a ball if all principal moments are equal, `J = 2/5 m r²`; a cylinder if two are, `J_z = 1/2 m r²`,
    `J_x = m (3 r² + h²) / 12`; else a box, `J_x = m (b² + c²) / 12`.
    """
    moments, axes = np.linalg.eigh((inertia + inertia.T) / 2)
    if moments[2] - moments[0] <= _ROUND * moments[2]:
        return EquivalentSolid("ball", np.full(3, np.sqrt(2.5 * moments.mean() / mass)), axes)
    for single, pair in ((0, (1, 2)), (2, (0, 1))):
        if abs(moments[pair[0]] - moments[pair[1]]) <= _ROUND * moments[2]:
            order = [*pair, single]
            square = 2 * moments[single] / mass
            height = np.sqrt(max(12 * moments[list(pair)].mean() / mass - 3 * square, 1e-4 * square))
            halves = np.array([np.sqrt(square), np.sqrt(square), height / 2])
            return EquivalentSolid("cylinder", halves, _right_handed(axes[:, order]))
    edges = np.sqrt(np.maximum(6 / mass * (moments.sum() - 2 * moments), 1e-4 * 6 / mass * moments.sum()))
    return EquivalentSolid("box", edges / 2, _right_handed(axes))


def _right_handed(axes: np.ndarray) -> np.ndarray:
    return axes * np.array([1.0, 1.0, np.linalg.det(axes)])
