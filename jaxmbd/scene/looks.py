"""What bodies and the ground look like where they have shapes: surfaces of simple shapes and of meshes, as pieces.

A mesh with more triangles than a picture can show is drawn by fewer: vertices within one cell of a grid become one, at
their mean (J. Rossignac and P. Borrel, Multi-resolution 3D Approximations for Rendering Complex Scenes, 1993).
"""

import itertools
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from jaxmbd.model.body.body import GROUND
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.scene.motion import Place
from jaxmbd.scene.pieces import INK, STAND, Piece, body_colour
from jaxmbd.scene.surfaces import Faces, ball, box, cylinder, revolved
from jaxmbd.space.shape import Shape, Triangles, matrix
from jaxmbd.spatial import Body

MOST_FACES = 40_000  # of all shapes of a mechanism in a page
_SIDES = 32  # of round shapes
_PARTS = 8  # into which each edge of a box is divided where faces are sorted by depth
_FINEST = 512  # cells along the longest side of a mesh that is made coarser
_NAMED = 3  # bodies of which a remark says that they are drawn coarser
_WHITE = "#ffffff"
_NOT_INK = {INK: "#232323", "#000000": "#010101"}  # what is drawn in ink is light in a dark page; a shape stays dark


def shapes_of(mechanism: Mechanism, body: int) -> tuple[Shape, ...]:
    """The shapes of a body, or with -1 those on the ground."""
    if body < 0:
        return mechanism.scenery
    owner = mechanism.bodies[body]
    return owner.shape if isinstance(owner, Body) else ()


def looks(mechanism: Mechanism, body: int) -> list[Piece]:
    """The pieces of a body's shapes; of the ground with -1."""
    name, colour = (GROUND, STAND) if body < 0 else (mechanism.bodies[body].name, body_colour(body))
    place = Place(body, body, np.zeros(3), np.eye(3))
    return [_piece(shape, name, place, colour, _share(mechanism)) for shape in shapes_of(mechanism, body)]


def remark(mechanism: Mechanism) -> str:
    """A sentence on meshes that are drawn with fewer triangles than they have; empty if there are none."""
    names, shown, given = list[str](), 0, 0
    for body in range(-1, len(mechanism.bodies)):
        counts = [len(shape.triangles.faces) for shape in shapes_of(mechanism, body) if shape.triangles is not None]
        drawn = [len(piece.points) for piece in looks(mechanism, body) if not callable(piece.points)] if counts else []
        drawn = [n for n, x in zip(drawn, shapes_of(mechanism, body), strict=False) if x.triangles is not None]
        if sum(drawn) < sum(counts):
            names.append("the ground" if body < 0 else mechanism.bodies[body].name)
            shown, given = shown + sum(drawn), given + sum(counts)
    if not names:
        return ""
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return f"Meshes of {listed} are drawn with {shown} of their {given} triangles."


def box_about(shapes: tuple[Shape, ...], dimension: int) -> Float[np.ndarray, "_ _"]:
    """The corners [m] of a box about shapes, in their body's frame; none if there are none."""
    if not shapes:
        return np.zeros((0, dimension))
    points = np.concatenate([_points(shape) for shape in shapes])
    bounds = points.min(axis=0), points.max(axis=0)
    return np.array([[x, y, z] for x, y, z in itertools.product(*zip(*bounds, strict=True))])


def _points(shape: Shape) -> np.ndarray:
    points = _faces(shape, 1.0)[0].reshape(-1, 3) if shape.triangles is None else shape.triangles.vertices.astype(float)
    return points @ matrix(np.array(shape.rotation)).T + np.array(shape.position)


def _share(mechanism: Mechanism) -> float:
    """The share of all triangles that fits into a page."""
    every = [shape for body in range(-1, len(mechanism.bodies)) for shape in shapes_of(mechanism, body)]
    return min(1.0, MOST_FACES / max(sum(len(x.triangles.faces) for x in every if x.triangles is not None), 1))


def _piece(shape: Shape, name: str, place: Place, colour: str, share: float) -> Piece:
    faces, colours = _faces(shape, share)
    faces = faces @ matrix(np.array(shape.rotation)).T + np.array(shape.position)
    own = shape.colour or colour
    if colours is not None and shape.colour is None:
        return Piece(name, place, faces, _WHITE, alpha=shape.opacity, dark=colours, is_look=True)
    return Piece(name, place, faces, _NOT_INK.get(own, own), alpha=shape.opacity, is_look=True)


@lru_cache(maxsize=64)  # the same mesh is drawn by many bodies, pictures and pages
def _shown(triangles: Triangles, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return coarser(triangles.vertices.astype(float), triangles.faces.astype(np.int64), most)


def _faces(shape: Shape, share: float) -> tuple[Faces, np.ndarray | None]:
    """The surface in the frame of the shape, with the colours `(faces, 3)` of a mesh that has some, from 0 to 1."""
    if shape.triangles is not None:
        vertices, faces, kept = _shown(shape.triangles, max(int(share * len(shape.triangles.faces)), 4))
        colours = shape.triangles.colours
        return vertices[faces], None if colours is None else colours[kept] / 255.0
    size = np.array(shape.size)
    if shape.kind == "box":
        return box(*size), None
    if shape.kind == "ellipsoid":
        return ball(0.5, _SIDES) * size, None
    if shape.kind == "sphere":
        return ball(size[0], _SIDES), None
    if shape.kind == "cylinder":
        return cylinder(size[0], size[1], _SIDES, 1), None
    angle = np.linspace(0.0, np.pi / 2, _SIDES // 4 + 1)
    radii = size[0] * np.concatenate([np.sin(angle), np.cos(angle)])
    heights = np.concatenate([-size[1] / 2 - size[0] * np.cos(angle), size[1] / 2 + size[0] * np.sin(angle)])
    return revolved(np.abs(radii), heights, _SIDES), None


def for_sorting(pieces: Iterable[Piece], most: int) -> list[Piece]:
    """The pieces of a scene for a picture that sorts faces by depth: those of meshes have at most so many faces
    together, or a few each, and the large faces of boxes are divided."""
    pieces = [_divided(piece) if piece.is_look and piece.alpha == 1 else piece for piece in pieces]
    total = sum(len(p.points) for p in pieces if p.is_look and not callable(p.points))
    if total <= most:
        return pieces
    return [_thinned(piece, most / total) if piece.is_look else piece for piece in pieces]


def _divided(piece: Piece) -> Piece:
    """A piece of few quadrilaterals with each divided into smaller ones."""
    points = piece.points
    if callable(points) or len(points) > 6 or points.shape[1] != 4:
        return piece
    s, t = np.meshgrid(np.arange(_PARTS) / _PARTS, np.arange(_PARTS) / _PARTS)
    corners = [(s, t), (s + 1 / _PARTS, t), (s + 1 / _PARTS, t + 1 / _PARTS), (s, t + 1 / _PARTS)]
    a, b, c, d = (points[:, k, None, None, None] for k in range(4))
    u, v = (np.stack([corner[k] for corner in corners], axis=-1)[None, ..., None] for k in (0, 1))
    faces = (1 - u) * (1 - v) * a + u * (1 - v) * b + u * v * c + (1 - u) * v * d
    return replace(piece, points=faces.reshape(-1, 4, 3))


def _thinned(piece: Piece, share: float) -> Piece:
    points = piece.points
    if callable(points) or points.shape[1] != 3:
        return piece
    vertices, inverse = np.unique(points.reshape(-1, 3), axis=0, return_inverse=True)
    vertices, faces, kept = coarser(vertices, inverse.reshape(-1, 3), max(int(share * len(points)), 4))
    dark = piece.dark if np.ndim(piece.dark) == 0 else np.asarray(piece.dark)[kept]
    return replace(piece, points=vertices[faces], dark=dark)


def coarser(vertices: np.ndarray, faces: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A mesh with at most so many triangles: its vertices, its triangles, and which of the given ones these are."""
    kept = np.arange(len(faces))
    if len(faces) <= most:
        return vertices, faces, kept
    low, side = vertices.min(axis=0), float(np.ptp(vertices, axis=0).max())
    least, many = 1, _FINEST
    best = _on_grid(vertices, faces, low, side, least)
    while many - least > 1:  # the finest grid whose triangles are few enough
        middle = (least + many) // 2
        found = _on_grid(vertices, faces, low, side, middle)
        if len(found[1]) <= most:
            least, best = middle, found
        else:
            many = middle
    return best


def _on_grid(
    vertices: np.ndarray, faces: np.ndarray, low: np.ndarray, side: float, cells: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mesh whose vertices are the means of those in each cell of a grid."""
    cell = np.floor((vertices - low) / side * cells * (1 - 1e-9)).astype(np.int64)
    keys = (cell[:, 0] * (cells + 1) + cell[:, 1]) * (cells + 1) + cell[:, 2]
    _, group, counts = np.unique(keys, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    means = np.stack([np.bincount(group, weights=vertices[:, k]) for k in range(3)], axis=1) / counts[:, None]
    joined = group[faces]
    a, b, c = joined.T
    kept = np.flatnonzero((a != b) & (b != c) & (c != a))
    few, (a, b, c) = len(means), np.sort(joined[kept], axis=1).T  # a cube of so few has 64 bits
    _, first = np.unique((a * few + b) * few + c, return_index=True)
    kept = kept[np.sort(first)]
    corners = joined[kept]
    # A thin triangle may have been turned round; then it would be dark.
    turned = np.sum(_across(means, corners) * _across(vertices, faces[kept]), axis=1) < 0
    corners[turned] = corners[turned][:, ::-1]
    return means, corners, kept


def _across(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    return np.cross(b - a, c - a)
