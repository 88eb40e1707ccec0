"""Joint coordinates: a spanning tree of a mechanism, for peers that place bodies relative to their parents.

Every body gets one joint to its parent. All joint frames are parallel to the world's at zero: that of a hinged body
sits on its hinge, that of a slider at its centre of mass. What would close a loop is left over as closures, pairs of
points that coincide; the planar problems' points have z = 0 and their hinges the axis z.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks import bricard
from benchmarks.bricard import Ring
from benchmarks.problems import GROUND, Array, Point, Problem

Z = (0.0, 0.0, 1.0)
X = (1.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Link:
    """A body and the joint between it and its parent (GROUND for none).

    `place` is the joint's point in the parent's joint frame; `centre` the centre of mass in the body's own joint
    frame, and `moments` the moments of inertia about it along the frame's axes.
    """

    parent: int
    slides: bool
    axis: Array
    place: Array
    mass: float
    centre: Array
    moments: Array


@dataclass(frozen=True, eq=False)
class Closure:
    """A point of one body that stays on a point of another one, both in joint frames (GROUND: the world's)."""

    body: int
    point: Array
    other: int
    other_point: Array


@dataclass(frozen=True, eq=False)
class Tree:
    """Links indexed by body, an order of the bodies with subtrees in one piece, closures, and the start.

    `positions` and `speeds` are the joints' at the start; `answer` makes of joint positions what the reference gives.
    """

    links: tuple[Link, ...]
    order: tuple[int, ...]
    closures: tuple[Closure, ...]
    positions: Array
    speeds: Array
    answer: Callable[[Array], Array]


def spanning_tree(problem: Problem | Ring) -> Tree:
    """The spanning tree of any of the problems."""
    return ring_tree() if isinstance(problem, Ring) else planar_tree(problem)


def ring_tree() -> Tree:
    """Bricard's ring, cut at its last hinge, which keeps two points of its axis together."""
    links, places = [], np.vstack([bricard.POINTS[:1], bricard.SPANS[:4]])
    for k, (place, span) in enumerate(zip(places, bricard.SPANS, strict=True)):
        links.append(Link(k - 1, False, bricard.AXES[k], place, 1.0, span / 2, bricard.moments(k)))
    end, axis = bricard.SPANS[4], bricard.AXES[5]
    closures = tuple(Closure(4, end + shift, GROUND, bricard.POINTS[5] + shift) for shift in (0 * axis, axis))
    return Tree(tuple(links), tuple(range(5)), closures, np.zeros(5), np.zeros(5), bricard.centres)


def planar_tree(problem: Problem) -> Tree:
    """Take each pin into the tree as long as its first body has no parent yet; cut the others."""
    pivots: dict[int, Array] = dict.fromkeys([GROUND, *problem.sliders], np.zeros(3))  # in the bodies' own frames
    parents, places, cuts = dict.fromkeys(problem.sliders, GROUND), dict.fromkeys(problem.sliders, np.zeros(3)), []
    for pin in problem.pins:
        if pin.body in pivots:
            cuts.append(pin)
            continue
        pivots[pin.body], parents[pin.body] = in_space(pin.point), pin.other
        places[pin.body] = in_space(pin.other_point) - pivots[pin.other]
    links = []
    for k, body in enumerate(problem.bodies):
        slides = k in problem.sliders
        moments = body.inertia * np.array([0.5, 1.0, 1.0])  # only the last one matters
        links.append(Link(parents[k], slides, np.array(X if slides else Z), places[k], body.mass, -pivots[k], moments))
    closures = [
        Closure(
            p.body, in_space(p.point) - pivots[p.body], p.other, in_space(p.other_point) - pivots[p.other]
        )
        for p in cuts
    ]  # fmt: skip
    tree = tuple(links)
    positions, speeds = joint_values(tree, problem.positions), joint_values(tree, problem.velocities)
    answer = partial(absolute_coordinates, tree)
    return Tree(tree, ordered(parents), tuple(closures), positions, speeds, answer)


def ordered(parents: dict[int, int]) -> tuple[int, ...]:
    """The bodies from the ground outwards, each followed by all that it carries."""

    def below(parent: int) -> list[int]:
        children = sorted(body for body in parents if parents[body] == parent)
        return [body for child in children for body in (child, *below(child))]

    return tuple(below(GROUND))


def joint_values(links: tuple[Link, ...], absolute: Array) -> Array:
    """Joint values, by body, of planar absolute coordinates; and likewise joint rates of absolute velocities."""
    values = np.empty(len(links))
    for body, link in enumerate(links):
        base = 0.0 if link.parent == GROUND else absolute[link.parent, 2]
        values[body] = absolute[body, 0] if link.slides else absolute[body, 2] - base
    return values


def absolute_coordinates(links: tuple[Link, ...], values: Array) -> Array:
    """Planar absolute coordinates (x, y, theta) of every body from the joint values, by body."""
    frames: dict[int, Array] = {GROUND: np.zeros(3)}

    def frame(body: int) -> Array:
        if body not in frames:
            link, value = links[body], values[body]
            x, y, angle = base = frame(link.parent)
            x, y = moved(base, link.place)
            frames[body] = np.array([x + value, y, angle] if link.slides else [x, y, angle + value])
        return frames[body]

    return np.array([[*moved(frame(body), link.centre), frame(body)[2]] for body, link in enumerate(links)])


def moved(frame: Array, point: Array) -> tuple[float, float]:
    """Ground coordinates of a point given in a frame (x, y, angle)."""
    c, s = np.cos(frame[2]), np.sin(frame[2])
    return frame[0] + c * point[0] - s * point[1], frame[1] + s * point[0] + c * point[1]


def in_space(point: Point) -> Array:
    """A point of the plane as a point in space."""
    return np.array([point[0], point[1], 0.0])
