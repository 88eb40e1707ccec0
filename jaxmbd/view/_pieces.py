"""The pieces of a scene as data: their shapes once, in the frame in which they are fixed or for some lengths."""

from itertools import pairwise
from typing import Any

import numpy as np

from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.motion import Place
from jaxmbd.scene.pieces import BODIES, Piece
from jaxmbd.view._numbers import Numbers

_MISSED = 0.03  # the largest error of the shape of a spring between two lengths for which it is stored, in symbol sizes
_MOST = 33  # the largest number of such lengths; the error is then that of a fold, too small to be seen
_RIGID = 1e-6  # the change of a length, in symbol sizes, below which it is constant
_WELDED = 1e-6  # the distance of corners that are one, in symbol sizes


def piece_data(piece: Piece, geometry: Geometry, numbers: Numbers, colour: str | None) -> dict[str, Any]:
    """A piece; `colour` replaces that of its body, where several motions are shown."""
    looks = {
        "part": piece.part,
        "colour": colour if colour and piece.is_look else _recoloured(piece.colour, colour),
        "alpha": piece.alpha,
        "start": place_data(piece.place),
        "isUpright": piece.is_upright,
    }
    ends, shapes = _shapes(piece, geometry)
    if piece.end is not None:
        looks |= {"end": place_data(piece.end), "lengths": [float(length) for length in ends]}
    if geometry.dim == 2:
        fill = None if piece.fill is None else _recoloured(piece.fill, colour)
        lines = {"layer": piece.layer, "width": piece.width, "isDotted": piece.is_dotted, "fill": fill}
        return looks | lines | {"shapes": [numbers.floats(shape) for shape in shapes]}
    corners, faces = _corners(shapes, geometry.size)
    dark = np.asarray(piece.dark, dtype=float)
    if dark.ndim == 2 and colour:  # one colour for each motion
        dark = np.ones(1)
    dark = np.broadcast_to(dark, (len(faces), *dark.shape[1:]))
    return looks | {
        "shapes": [numbers.floats(points) for points in corners],
        "faces": numbers.indices(faces),
        "dark": numbers.floats(dark) if np.any(dark != 1.0) else None,
    }


def place_data(place: Place) -> dict[str, object]:
    """A point that is fixed in a frame: that of a body or of a moving marker, -1 for the ground."""
    return {"frame": place.frame, "offset": place.offset.tolist()}


def _recoloured(own: str, colour: str | None) -> str:
    return colour if colour is not None and own in BODIES else own


def _shapes(piece: Piece, geometry: Geometry) -> tuple[np.ndarray, list[np.ndarray]]:
    """The shape in the axes of the body, or of the world if it is upright; or those for some lengths."""
    points, start = piece.points, piece.place
    if not callable(points):
        return np.zeros(0), [points if piece.is_upright else points @ start.rotation.T]
    assert piece.end is not None
    lengths = geometry.lengths(start, piece.end)
    low, high = float(lengths.min()), float(lengths.max())
    if high - low <= _RIGID * geometry.size:
        return np.array([low]), [points(low)]
    count = 2
    while True:
        some = np.linspace(low, high, count)
        shapes = [points(length) for length in some]
        missed = [
            np.nanmax(np.abs(a + share * (b - a) - points(start + share * (some[1] - some[0]))))
            for start, (a, b) in zip(some[:-1], pairwise(shapes), strict=True)
            for share in (0.25, 0.5, 0.75)
        ]
        if max(missed) <= _MISSED * geometry.size or count >= _MOST:
            return some, shapes
        count = 2 * count - 1


def _corners(shapes: list[np.ndarray], size: float) -> tuple[list[np.ndarray], np.ndarray]:
    """The distinct corners `(k, 3)` of faces `(n, m, 3)` for each length, and the faces as their numbers `(n, m)`."""
    together = np.concatenate([shape.reshape(-1, 3) for shape in shapes], axis=1)
    _, first, inverse = np.unique(np.round(together / (_WELDED * size)), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # in the order of the faces, in which neighbours have similar numbers
    rank = np.argsort(order)
    corners = together[first[order]]
    return np.split(corners, len(shapes), axis=1), rank[inverse.reshape(shapes[0].shape[:2])]
