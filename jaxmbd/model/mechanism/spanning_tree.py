"""The spanning tree of a mechanism's bodies, rooted in the ground, whose joints define the coordinates.

In absolute coordinates every body is connected to the ground by a joint without constraints. Joint coordinates belong
to a spanning tree of the mechanism's joints. The remaining joints close loops and are *cut joints*: they are
constraints. A body that the tree does not reach gets a floating base.

The tree has the least number of coordinates (Kruskal's algorithm, joints weighted by their degrees of freedom). Ties
are broken in favour of joints whose coordinates drivers, couplings or forces refer to, then by the order of the joints
in the mechanism, so that the choice is deterministic.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.body.body import GROUND, AbstractBody, AbstractMovingMarker
from jaxmbd.model.body.flexible import own_coordinates, owner_of
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.joint.shared import AbstractComposite, FreeMotion


@dataclass(frozen=True)
class TreeJoint:
    """One joint of the tree, with the indices of the bodies it connects and the ranges of its `q` and `v`.

    The index of the ground is the number of bodies. `backward`: the joint's first marker is on the child. `floating`:
    a joint without constraints that is not one of the mechanism's joints.
    """

    joint: str
    parent: int
    child: int
    backward: bool
    floating: bool
    q: tuple[int, int]
    v: tuple[int, int]


@dataclass(frozen=True)
class Tree:
    """The tree joints in the order of their coordinates, and the names and units of coordinates and speeds.

    The own coordinates of flexible bodies follow those of the joints.
    """

    branches: tuple[TreeJoint, ...]
    coordinates: tuple[str, ...]
    units: tuple[str, ...]
    speeds: tuple[str, ...]
    speed_units: tuple[str, ...]

    @cached_property
    def joints(self) -> tuple[str, ...]:
        """Names of the mechanism's joints in the tree (without floating bases)."""
        return tuple(branch.joint for branch in self.branches if not branch.floating)

    def loop(self, bodies: Collection[int]) -> list[str]:
        """The mechanism's joints in the tree that lie between some bodies, given by their indices."""
        above = {branch.child: branch for branch in self.branches}

        def path(body: int) -> set[str]:
            found = set[str]()
            while body in above:  # not the ground
                branch = above[body]
                found |= set() if branch.floating else {branch.joint}
                body = branch.parent
            return found

        paths = [path(body) for body in bodies]
        return sorted(joint for joint in set[str]().union(*paths) if not all(joint in path for path in paths))

    def cut(self, joints: Iterable[Any]) -> list[Any]:
        """The cut joints: those of `joints` that are not in the tree, and constrain it."""
        in_tree = set(self.joints)
        return [joint for joint in joints if joint.name not in in_tree and not isinstance(joint, AbstractComposite)]


DirectedJoint = tuple[str, AbstractTreeJoint, int, int, bool]  # name, joint, parent, child, backward


def absolute(bodies: Sequence[AbstractBody]) -> Tree:
    """The tree of absolute coordinates."""
    free = FreeMotion(bodies[0])  # one for all bodies, since only its names and units are used
    return _tree_of([(body.name, free, len(bodies), i, False) for i, body in enumerate(bodies)], bodies)


def spanning(
    bodies: Sequence[AbstractBody],
    joints: Iterable[Any],
    wanted: Collection[str],
    cuts: Collection[str],
    first: Collection[str] = (),
) -> Tree:
    """The tree of joint coordinates.

    `first` joints take precedence over all others, `wanted` joints over others of equal degrees of freedom; `cuts` are
    excluded.
    """
    candidates = [joint for joint in joints if isinstance(joint, AbstractTreeJoint) and joint.name not in cuts]
    candidates = [joint for joint in candidates if not any(isinstance(m, AbstractMovingMarker) for m in joint.markers)]
    candidates = [joint for joint in candidates if not is_at_site(joint)]
    # The sort is stable: ties keep the order of the mechanism.
    ranked = sorted(candidates, key=lambda j: (j.name not in first, len(j.speeds), j.name not in wanted))
    index = {body.name: i for i, body in enumerate(bodies)} | {GROUND: len(bodies)}
    group = list(range(len(bodies) + 1))

    def root(i: int) -> int:
        while group[i] != i:
            i = group[i]
        return i

    selected: set[str] = set()
    for joint in ranked:
        a, b = root(index[joint.a.body]), root(index[joint.b.body])
        if a != b:
            group[a] = b
            selected.add(joint.name)
    tree_joints: list[AbstractTreeJoint] = []
    for i, body in enumerate(bodies):
        if root(i) != root(len(bodies)):
            group[root(i)] = root(len(bodies))
            tree_joints.append(FreeMotion(body))
    tree_joints += [joint for joint in candidates if joint.name in selected]
    return _tree_of(_directed(tree_joints, index), bodies)


def is_at_site(joint: AbstractTreeJoint) -> bool:
    """True if a joint is at a site of a flexible body. It is a constraint in all coordinates: how the other body lies
    depends on own coordinates, too."""
    return any(owner_of(marker.body) != marker.body for marker in joint.markers)


def check_cuts(joints: Iterable[Any], cuts: Sequence[str]) -> None:
    """Raise unless every cut is the name of a joint that could be in the tree."""
    pairs = {joint.name: joint for joint in joints}
    for name in cuts:
        if name not in pairs:
            raise unknown("joint to cut", name, pairs)
        if not isinstance(pairs[name], AbstractTreeJoint):
            raise MechanismError(
                f"Joint {name!r}, a {type(pairs[name]).__name__}, is a constraint in any coordinates; cuts name joints "
                "that would carry coordinates otherwise."
            )


def _directed(joints: Sequence[AbstractTreeJoint], number: dict[str, int]) -> list[DirectedJoint]:
    """Each joint with its parent and child body, directed away from the ground."""
    directed: dict[str, DirectedJoint] = {}
    joints_of_body: dict[int, list[AbstractTreeJoint]] = {}
    for joint in joints:
        for marker in joint.markers:
            joints_of_body.setdefault(number[marker.body], []).append(joint)
    reached = [number[GROUND]]
    for parent in reached:
        for joint in joints_of_body.get(parent, []):
            if joint.name not in directed:
                a, b = (number[marker.body] for marker in joint.markers)
                backward = b == parent
                child = a if backward else b
                directed[joint.name] = (joint.name, joint, parent, child, backward)
                reached.append(child)
    return [directed[joint.name] for joint in joints]


def _tree_of(directed: Sequence[DirectedJoint], bodies: Sequence[AbstractBody]) -> Tree:
    branches, coordinates, speeds = [], {}, {}
    for name, joint, parent, child, backward in directed:
        q, v = len(coordinates), len(speeds)
        coordinates |= {f"{name}.{suffix}": unit for suffix, unit in joint.tree_coordinate_units.items()}
        speeds |= {f"{name}.{suffix}": unit for suffix, unit in joint.speeds.items()}
        ranges = (q, len(coordinates)), (v, len(speeds))
        branches.append(TreeJoint(name, parent, child, backward, isinstance(joint, FreeMotion), *ranges))
    own = own_coordinates(bodies)
    coordinates |= own
    speeds |= {f"{name}_rate": f"{unit}/s" for name, unit in own.items()}
    return Tree(tuple(branches), tuple(coordinates), tuple(coordinates.values()), tuple(speeds), tuple(speeds.values()))
