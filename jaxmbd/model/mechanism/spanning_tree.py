"""Which joints carry the coordinates: a spanning tree of the mechanism's bodies, rooted in the ground.

Absolute coordinates are the tree in which every body hangs on the ground by a joint that leaves it free. Joint
coordinates are those of a tree of the mechanism's own joints; the joints that are left over close loops and are *cut*:
they stay constraints. What the tree does not reach floats free.

The tree has the fewest coordinates of all (Kruskal's algorithm, joints weighted by their degrees of freedom). Among
equals, joints whose coordinates drivers, couplings or forces name come first, then those that come first in the
mechanism: so the choice does not depend on chance.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.body.body import GROUND, AbstractBody, AbstractMovingMarker
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.joint.shared import FreeMotion


@dataclass(frozen=True)
class TreeJoint:
    """One joint of the tree, the bodies it connects (by number; the ground's is the number of bodies), and where its
    coordinates and speeds are in `q` and `v`. `backward`: the joint's first marker is on the child. `floating`: the
    joint is none of the mechanism's, its body is free."""

    joint: str
    parent: int
    child: int
    backward: bool
    floating: bool
    q: tuple[int, int]
    v: tuple[int, int]


@dataclass(frozen=True)
class Tree:
    """The branches in the order of their coordinates, and the names and units of these and of the speeds."""

    branches: tuple[TreeJoint, ...]
    coordinates: tuple[str, ...]
    units: tuple[str, ...]
    speeds: tuple[str, ...]
    speed_units: tuple[str, ...]

    @cached_property
    def joints(self) -> tuple[str, ...]:
        """Names of the joints in the tree, those of floating bodies left out."""
        return tuple(branch.joint for branch in self.branches if not branch.floating)

    def cut(self, joints: Iterable[Any]) -> list[Any]:
        """Of some joints those that are not in the tree."""
        carrying = set(self.joints)
        return [joint for joint in joints if joint.name not in carrying]


Hung = tuple[str, AbstractTreeJoint, int, int, bool]  # name, joint, parent, child, and whether the joint is backward


def absolute(bodies: Sequence[AbstractBody]) -> Tree:
    """The tree of absolute coordinates."""
    free = FreeMotion(bodies[0])  # one for all: they differ in their names alone
    return _arranged([(body.name, free, len(bodies), i, False) for i, body in enumerate(bodies)])


def spanning(
    bodies: Sequence[AbstractBody],
    joints: Iterable[Any],
    wanted: Collection[str],
    cuts: Collection[str],
    first: Collection[str] = (),
) -> Tree:
    """The tree of joint coordinates: `wanted` joints are preferred to equal ones, those that come `first` to all
    others; `cuts` are kept out."""
    able = [joint for joint in joints if isinstance(joint, AbstractTreeJoint) and joint.name not in cuts]
    able = [joint for joint in able if not any(isinstance(m, AbstractMovingMarker) for m in joint.markers)]
    # The order of equals is kept.
    ranked = sorted(able, key=lambda j: (j.name not in first, len(j.speeds), j.name not in wanted))
    number = {body.name: i for i, body in enumerate(bodies)} | {GROUND: len(bodies)}
    group = list(range(len(bodies) + 1))

    def root(i: int) -> int:
        while group[i] != i:
            i = group[i]
        return i

    kept: set[str] = set()
    for joint in ranked:
        a, b = root(number[joint.a.body]), root(number[joint.b.body])
        if a != b:
            group[a] = b
            kept.add(joint.name)
    chosen: list[AbstractTreeJoint] = []
    for i, body in enumerate(bodies):
        if root(i) != root(len(bodies)):
            group[root(i)] = root(len(bodies))
            chosen.append(FreeMotion(body))
    chosen += [joint for joint in able if joint.name in kept]
    return _arranged(_rooted(chosen, number))


def check_cuts(joints: Iterable[Any], cuts: Sequence[str]) -> None:
    """Raise unless every cut names a joint between two bodies."""
    pairs = {joint.name: joint for joint in joints}
    for name in cuts:
        if name not in pairs:
            raise unknown("joint to cut", name, pairs)
        if not isinstance(pairs[name], AbstractTreeJoint):
            raise MechanismError(
                f"Joint {name!r}, a {type(pairs[name]).__name__}, is a constraint in any coordinates; cuts name joints "
                "that would carry coordinates otherwise."
            )


def _rooted(joints: Sequence[AbstractTreeJoint], number: dict[str, int]) -> list[Hung]:
    """Each joint with its parent and child, as seen from the ground."""
    found: dict[str, Hung] = {}
    on: dict[int, list[AbstractTreeJoint]] = {}
    for joint in joints:
        for marker in joint.markers:
            on.setdefault(number[marker.body], []).append(joint)
    reached = [number[GROUND]]
    for parent in reached:
        for joint in on.get(parent, []):
            if joint.name not in found:
                a, b = (number[marker.body] for marker in joint.markers)
                backward = b == parent
                child = a if backward else b
                found[joint.name] = (joint.name, joint, parent, child, backward)
                reached.append(child)
    return [found[joint.name] for joint in joints]


def _arranged(found: Sequence[Hung]) -> Tree:
    branches, coordinates, speeds = [], {}, {}
    for name, joint, parent, child, backward in found:
        q, v = len(coordinates), len(speeds)
        coordinates |= {f"{name}.{own}": unit for own, unit in joint.tree_coordinate_units.items()}
        speeds |= {f"{name}.{own}": unit for own, unit in joint.speeds.items()}
        places = (q, len(coordinates)), (v, len(speeds))
        branches.append(TreeJoint(name, parent, child, backward, isinstance(joint, FreeMotion), *places))
    return Tree(tuple(branches), tuple(coordinates), tuple(coordinates.values()), tuple(speeds), tuple(speeds.values()))
