"""Joint coordinates: a spanning tree of a mechanism, for peers that place bodies relative to their parents.

Every body gets one joint to its parent. The joint frame of a hinged body sits on its pin, with the axes of
the body; that of a slider is the body's own frame. Pins that would close a loop are left over as cuts.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.problems import GROUND, Array, Pin, Point, Problem


@dataclass(frozen=True)
class Joint:
    """The joint between a body and its parent (GROUND for none).

    `place` is the joint's point in the parent's joint frame, `pivot` the same point in the body's own frame.
    """

    body: int
    parent: int
    slides: bool
    place: Point
    pivot: Point


@dataclass(frozen=True)
class Tree:
    """Joints indexed by body, an order of the bodies with subtrees in one piece, and the pins left over."""

    joints: tuple[Joint, ...]
    order: tuple[int, ...]
    cuts: tuple[Pin, ...]

    def in_joint_frame(self, body: int, point: Point) -> Point:
        """A point given in the body's own frame, in its joint frame."""
        if body == GROUND:
            return point
        pivot = self.joints[body].pivot
        return point[0] - pivot[0], point[1] - pivot[1]


def spanning_tree(problem: Problem) -> Tree:
    """Take each pin into the tree as long as its first body has no parent yet; cut the others."""
    joints = {body: Joint(body, GROUND, True, (0.0, 0.0), (0.0, 0.0)) for body in problem.sliders}
    cuts = []
    for pin in problem.pins:
        if pin.body in joints:
            cuts.append(pin)
            continue
        place = pin.other_point
        if pin.other != GROUND:
            pivot = joints[pin.other].pivot
            place = (place[0] - pivot[0], place[1] - pivot[1])
        joints[pin.body] = Joint(pin.body, pin.other, False, place, pin.point)

    def below(parent: int) -> list[int]:
        children = [body for body, joint in joints.items() if joint.parent == parent]
        return [body for child in children for body in (child, *below(child))]

    ordered = tuple(joints[body] for body in range(len(joints)))
    return Tree(ordered, tuple(below(GROUND)), tuple(cuts))


def joint_values(tree: Tree, absolute: Array) -> Array:
    """Joint values, by body, of absolute coordinates; and likewise joint rates of absolute velocities."""
    values = np.empty(len(tree.joints))
    for joint in tree.joints:
        base = 0.0 if joint.parent == GROUND else absolute[joint.parent, 2]
        values[joint.body] = absolute[joint.body, 0] if joint.slides else absolute[joint.body, 2] - base
    return values


def absolute_coordinates(tree: Tree, values: Array) -> Array:
    """Absolute coordinates (x, y, theta) of every body from the joint values, by body."""
    origins = np.zeros((len(tree.joints), 3))  # of the joint frames
    absolute = np.zeros_like(origins)
    for body in tree.order:
        joint = tree.joints[body]
        if joint.slides:
            origins[body] = absolute[body] = [values[body], 0.0, 0.0]
            continue
        base = np.zeros(3) if joint.parent == GROUND else origins[joint.parent]
        angle = base[2] + values[body]
        origins[body] = [*_moved(base, joint.place), angle]
        absolute[body] = [*_moved(origins[body], (-joint.pivot[0], -joint.pivot[1])), angle]
    return absolute


def _moved(frame: Array, point: Point) -> tuple[float, float]:
    """Ground coordinates of a point given in a frame (x, y, angle)."""
    c, s = np.cos(frame[2]), np.sin(frame[2])
    return frame[0] + c * point[0] - s * point[1], frame[1] + s * point[0] + c * point[1]
