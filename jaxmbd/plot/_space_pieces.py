"""Pieces of a picture in space: surfaces of one colour whose corners follow the poses of the bodies."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.colors import to_rgb

from jaxmbd.plot._space_scene import Poses, SpacePlace
from jaxmbd.plot._space_solids import Faces, facing, joined, normals, rounded_bar, tube
from jaxmbd.plot._style import GREY

STEEL = "#d3d7db"  # joints
STAND = "#a7adb3"  # supports on the ground
FLOOR_ALPHA = 0.10
_SHADE = 0.45  # brightness of faces that are turned away from the light
_GLOSS = 0.30  # share of white in faces that are turned towards the light
_DASH = 0.7  # length of a dash, in symbol sizes


class Piece:
    """A surface `(n, k, 3)` [m] as a function of the poses, and its appearance.

    **Arguments:** `part`, the name of the part that it shows; `alpha`, its opacity; `dark`, a factor of the colour for
    each face, which makes rotations visible; `floor`, True to draw it below everything else, unshaded.
    """

    def __init__(
        self,
        part: str,
        shape: Callable[[Poses], Faces],
        colour: str,
        *,
        alpha: float = 1.0,
        dark: np.ndarray | float = 1.0,
        floor: bool = False,
    ) -> None:
        self.part = part
        self.shape = shape
        self.rgb = np.array(to_rgb(colour))
        self.alpha = alpha
        self.dark = dark
        self.floor = floor

    def colours(self, faces: Faces, light: np.ndarray) -> Float[np.ndarray, "_ 4"]:
        """The colours of the faces under light from a direction."""
        base = np.broadcast_to(self.rgb * np.reshape(self.dark, (-1, 1)), (len(faces), 3))
        if not self.floor:
            towards = 0.5 + 0.5 * normals(faces) @ light
            if self.alpha < 1:
                towards = np.abs(2 * towards - 1)
            base = base * (_SHADE + (1 - _SHADE) * towards)[:, None]
            base = base + (1 - base) * (_GLOSS * np.clip(2 * towards - 1, 0, 1) ** 2)[:, None]
        return np.concatenate([np.clip(base, 0, 1), np.full((len(faces), 1), self.alpha)], axis=1)


def on(part: str, place: SpacePlace, faces: Faces, colour: str, **looks: Any) -> Piece:
    """A surface fixed in a marker's frame."""
    return Piece(part, lambda poses: place.put(faces, poses), colour, **looks)


def between(part: str, a: SpacePlace, b: SpacePlace, shape: Callable[[float], Faces], colour: str) -> Piece:
    """A surface from one marker to another; `shape(length [m])` is the surface along z from the origin."""

    def placed(poses: Poses) -> Faces:
        start, away = a.point(poses), b.point(poses) - a.point(poses)
        return shape(float(np.linalg.norm(away))) @ facing(away).T + start

    return Piece(part, placed, colour)


def bar(start: np.ndarray, stop: np.ndarray, radius: float, step: float) -> Faces:
    """A round bar between two points, divided into segments of length `step` [m]."""
    away = stop - start
    return rounded_bar(float(np.linalg.norm(away)), radius, step) @ facing(away).T + start


def edges(polygons: list[np.ndarray], radius: float, step: float) -> Faces:
    """Thin bars along the edges of polygons; shared edges get one bar."""
    bars: dict[tuple[tuple[float, ...], ...], Faces] = {}
    for polygon in polygons:
        for p, q in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
            key = tuple(sorted(tuple(np.round(point, 9).tolist()) for point in (p, q)))
            if key not in bars:
                bars[key] = bar(p, q, radius, step)
    return joined(*bars.values())


def dashes(part: str, a: SpacePlace, b: SpacePlace, size: float) -> Piece:
    """A dashed line between two markers, for a joint that has no symbol of its own."""

    def placed(poses: Poses) -> Faces:
        start, away = a.point(poses), b.point(poses) - a.point(poses)
        count = max(round(float(np.linalg.norm(away)) / (2 * _DASH * size)), 1)
        ends = (np.arange(2 * count) + 0.25) / (2 * count)
        lines = zip(ends[::2], ends[1::2], strict=True)
        return joined(*(tube(start + np.outer([s, t], away), 0.1 * size, 4) for s, t in lines))

    return Piece(part, placed, GREY)


def ink_ball(part: str, place: SpacePlace, faces: Faces) -> Piece:
    """The symbol of a centre of mass: a ball with black and white octants."""
    middle = faces.mean(axis=1)
    dark = np.where(np.prod(np.sign(middle + 1e-12), axis=1) > 0, 1.0, 0.12)
    return on(part, place, faces, "#ffffff", dark=dark)


def quarters(faces: Faces, axes: np.ndarray) -> np.ndarray:
    """Factors that darken two quarters of a surface about the last of its axes."""
    middle = faces.mean(axis=1) @ axes
    return np.where(middle[:, 0] * middle[:, 1] > 0, 0.72, 1.0)
