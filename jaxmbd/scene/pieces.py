"""Pieces of a picture: lines, filled outlines and surfaces that move with the bodies, and their colours.

The colours of bodies are in the palette of Okabe and Ito, which colour-blind readers can distinguish: M. Okabe, K. Ito,
Color Universal Design (2008), https://jfly.uni-koeln.de/color/.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jaxmbd.model.force.marker_forces import AbstractLineForce, SpringDamper
from jaxmbd.scene.motion import Place, Poses, facing

INK = "#222222"
GREY = "#808080"
WHITE = "#ffffff"
REACTION = "#D55E00"  # vermillion, reserved for the forces of joints
APPLIED = "#000000"
DRIVEN = "#F0E442"  # the yellow of the palette: too pale for lines, good for surfaces
RUBBER = "#4d4d4d"  # bushings
STEEL = "#d3d7db"  # joints in space
STAND = "#a7adb3"  # supports on the ground in space
BODIES = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8C6D46")

# In the plane, a piece covers those of lower layers; in space, the depth decides.
GROUND_LAYER, LINK_LAYER, BODY_LAYER, SPRING_LAYER, SLIDE_LAYER, CENTRE_LAYER, PIN_LAYER = range(1, 8)


@dataclass(frozen=True, eq=False)
class Piece:
    """A line or filled outline `(k, 2)`, or a surface `(n, k, 3)` [m], of one colour, that moves with its place.

    **Arguments:** `part`, the name of the part that it shows; `points`, in the axes of its place; if it has an `end`,
    a function of the distance of both, with points along x in the plane and z in space, as many for every distance;
    `colour`, of a line, an edge
    or a surface; `is_upright`, true if it follows the position of its place only; `alpha`, the opacity of the fill or
    surface. In the plane: `layer`; `width` [pt] of the line or edge (0: no edge; thick lines have round ends);
    `is_dotted`; `fill`, the colour inside. In space: `dark`, a factor of the colour for each face, which makes
    rotations visible, or three, of red, green and blue; `is_floor`, true to draw it below everything else, unshaded;
    `is_look`, true for the shape of a body, which no symbol is.
    """

    part: str
    place: Place
    points: np.ndarray | Callable[[float], np.ndarray]
    colour: str
    end: Place | None = None
    is_upright: bool = False
    layer: int = 0
    width: float = 0.0
    is_dotted: bool = False
    fill: str | None = None
    alpha: float = 1.0
    dark: np.ndarray | float = 1.0
    is_floor: bool = False
    is_look: bool = False

    def shape(self, poses: Poses) -> np.ndarray:
        """The points in the world [m]."""
        start, points = self.place.point(poses), self.points
        if callable(points):
            assert self.end is not None
            away = self.end.point(poses) - start
            return points(float(np.linalg.norm(away))) @ facing(away).T + start
        return points + start if self.is_upright else self.place.put(points, poses)


def body_colour(body: int) -> str:
    """The colour of a body; the ground is drawn in ink."""
    return INK if body < 0 else BODIES[body % len(BODIES)]


def spring_and_damper(force: AbstractLineForce) -> tuple[bool, bool]:
    """True if a force is drawn with a spring, and if with a damper, which is the sign of an actuator too."""
    if not isinstance(force, SpringDamper):
        return False, True
    has_actuator = callable(force.actuator) or float(force.actuator) != 0.0
    return float(force.stiffness) != 0.0, float(force.damping) != 0.0 or has_actuator
