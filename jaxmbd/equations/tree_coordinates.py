"""Joint coordinates: the configuration is described by the coordinates of the joints of a spanning tree.

The joint transforms are evaluated in parallel for all joints and then composed along the tree by pointer doubling:
after `k` rounds each frame is known relative to its `2ᵏ`-th ancestor, so a chain of a thousand bodies takes ten rounds.
Sums along the paths to the ground are computed in the same way. Velocities are expressed as spatial velocities at the
world's origin, where they add: that of a body is the sum over the joints on its path to the ground, `V = Σ S w`.

Source: the path matrix is that of Wittenburg, *Dynamics of Multibody Systems* (2008), §5.3; the joint axes `S` and
their time derivatives follow Featherstone, *Rigid Body Dynamics Algorithms* (2008), §2-4.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Scalar, at_rows
from jaxmbd.engine import trace_once
from jaxmbd.engine.program.symbolic_ldlt import Pattern
from jaxmbd.equations.constraint_kinematics import ConstraintBodyTerms, MarkerKinematics
from jaxmbd.equations.coordinates import AbstractCoordinates, AbstractPlacement, Twists
from jaxmbd.equations.inertia import CoupledInertia
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.joint.joint import AbstractTreeJoint
from jaxmbd.model.mechanism.groups import PartGroup, group_parts, law_of
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.spanning_tree import TreeJoint
from jaxmbd.numerics.linear_solve import SymmetricMatrix
from jaxmbd.numerics.sparse_matrices import SparseMatrix, gather_sum, gather_table, matches, summed
from jaxmbd.space.space import AbstractFrame, AbstractSpace
from jaxmbd.space.vectors import motion_cross, shift_velocity, shift_wrench


class TreePaths:
    """The paths of a tree: `parents[i]` is the parent of node `i`, or the number of nodes if `i` has none."""

    def __init__(self, parents: np.ndarray) -> None:
        self.parents = parents

    def rounds(self) -> Iterator[np.ndarray]:
        """The ancestors 1, 2, 4, … levels above each node (the number of nodes above a root), while any exist."""
        count, ancestor = len(self.parents), self.parents
        while (ancestor < count).any():
            yield ancestor
            ancestor = np.append(ancestor, count)[ancestor]

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Index pairs of each node with each node on its path to the root, itself first."""
        return _pairs(tuple(self.parents.tolist()))

    def to_root(self, values: Array) -> Array:
        """For each node, the sum over its path to the root."""
        for ancestor in self.rounds():
            values = values + at_rows(jnp.concatenate([values, jnp.zeros_like(values[:1])]), ancestor)
        return values

    def subtree_sum(self, values: Array) -> Array:
        """For each node, the sum over its subtree."""
        count = len(self.parents)
        for ancestor in self.rounds():
            values = values + gather_sum(values, gather_table(np.where(ancestor < count, ancestor, -1), count))
        return values


@lru_cache(maxsize=256)
def _pairs(parents: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    count, parent = len(parents), np.append(parents, len(parents)).astype(int)
    node = ancestor = np.arange(count)
    levels = []
    while len(node):
        levels.append((node, ancestor))
        ancestor = parent[ancestor]
        node, ancestor = node[ancestor < count], ancestor[ancestor < count]
    nodes, ancestors = (np.concatenate(x) for x in zip(*levels, strict=True)) if levels else (node, node)
    order = np.argsort(nodes, kind="stable")
    return nodes[order], ancestors[order]


@trace_once
def _of_joint(
    function: Callable[..., PyTree],
    space: AbstractSpace,
    sign: float,
    static: PyTree,
    numbers: PyTree,
    *values: PyTree,
) -> PyTree:
    # No turns to bind: whole turns are counted beside the frames for cut joints alone, these have their angles in `q`.
    return function(space, sign, law_of(static, numbers, jnp.zeros(0)), *values)


class JointGroup(eqx.Module):
    """Tree joints of one type and direction; the first marker of a `backward` joint is on the child body."""

    group: PartGroup
    branches: tuple[TreeJoint, ...] = eqx.field(static=True)

    @property
    def sign(self) -> float:
        """−1 if the joints' first marker is on the child, else +1."""
        return -1.0 if self.branches[0].backward else 1.0

    def table(self, kind: str) -> np.ndarray:
        """Indices of the coordinates in `q`, or of the speeds in `v` (`kind`), shape `(joints, values per joint)`."""
        return np.stack([np.arange(*getattr(branch, kind)) for branch in self.branches])

    def over(self, function: Callable[..., PyTree], space: AbstractSpace, *values: PyTree) -> PyTree:
        """Map `function(space, sign, joint, *values)` over the joints; `values` have one slice per joint."""
        one = lambda *local: _of_joint(function, space, self.sign, self.group.static, *local)  # noqa: E731
        return jax.vmap(one)(self.group.stacked, *values)


class TreeCoordinates(AbstractCoordinates):
    """The joint coordinates of a spanning tree."""

    space: AbstractSpace
    joint_groups: tuple[JointGroup, ...]
    branches: tuple[TreeJoint, ...] = eqx.field(static=True)

    def __init__(self, mechanism: Mechanism) -> None:
        self.space, self.branches = mechanism.space, mechanism.tree.branches
        joints, groups = mechanism.tree_joints(), []
        index = {body.name: i for i, body in enumerate(mechanism.bodies)} | {GROUND: len(mechanism.bodies)}
        for backward in (False, True):
            members = [i for i, branch in enumerate(self.branches) if branch.backward == backward]
            for group in group_parts([joints[i] for i in members], mechanism, index):
                groups.append(JointGroup(group, tuple(self.branches[members[k]] for k in group.members)))
        self.joint_groups = tuple(groups)

    @property
    def bodies(self) -> int:
        """Number of bodies."""
        return len(self.branches)

    @property
    def paths(self) -> TreePaths:
        """The paths of the bodies to the ground."""
        parents = np.empty(self.bodies, dtype=int)
        for branch in self.branches:
            parents[branch.child] = branch.parent
        return TreePaths(parents)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Index pairs of each body with each speed on its path to the ground, sorted by body: the structure of `J`."""
        bodies, ancestors = self.paths.pairs()
        first, last = np.array([branch.v for branch in sorted(self.branches, key=lambda b: b.child)]).T
        count = (last - first)[ancestors]
        start = np.repeat(first[ancestors] - np.cumsum(count) + count, count)
        return np.repeat(bodies, count), start + np.arange(len(start))

    @property
    def owners(self) -> np.ndarray:
        """For each speed, the child body of its joint."""
        children = np.empty(sum(branch.v[1] - branch.v[0] for branch in self.branches), dtype=int)
        for branch in self.branches:
            children[slice(*branch.v)] = branch.child
        return children

    def by_child(self, values: Sequence[PyTree]) -> PyTree:
        """Concatenate stacked values of the joint groups and sort them by child body."""
        child = np.concatenate([[branch.child for branch in joints.branches] for joints in self.joint_groups])
        return jax.tree.map(lambda *x: _permuted(x, child), *values)

    def at(self, t: Scalar, q: Array) -> "TreePlacement":
        return TreePlacement(self, q)

    def normalize(self, q: Array) -> Array:
        return self.joined(_normalize, q)

    def joined(self, function: Callable[..., Array], q: Array, *v: Array) -> Array:
        """Map a function of one joint and its coordinates over all joints; the result is ordered like `q`."""
        tables = [joints.table("q") for joints in self.joint_groups]
        each = zip(self.joint_groups, tables, strict=True)
        values = [
            joints.over(function, self.space, at_rows(q, table), *(at_rows(x, joints.table("v")) for x in v))
            for joints, table in each
        ]
        return _permuted([x.reshape(-1) for x in values], np.concatenate([table.reshape(-1) for table in tables]))

    def measured(self, poses: Float[Array, "bodies pose"]) -> Array:
        ground = jnp.asarray(self.space.rest, poses.dtype)
        frames = jax.vmap(self.space.place)(jnp.concatenate([poses, ground[None]]))

        values = []
        for joints in self.joint_groups:
            pairs = jax.tree.map(lambda x, k=joints.group.incidence: at_rows(x, k), frames)
            values.append(joints.over(_measure, self.space, pairs).reshape(-1))
        return _permuted(values, np.concatenate([joints.table("q").reshape(-1) for joints in self.joint_groups]))


class TreePlacement(AbstractPlacement):
    """The kinematics of the bodies at joint coordinates `q`."""

    def __init__(self, tree: TreeCoordinates, q: Array) -> None:
        self.tree, self.space, self.q = tree, tree.space, q
        self.frames = self._frames()
        self.moving = jax.tree.map(lambda x: x[: tree.bodies], self.frames)  # without the ground

    def poses(self) -> Float[Array, "bodies pose"]:
        return jax.vmap(self.space.pose)(self.moving)

    def rate(self, v: Array) -> Array:
        return self.tree.joined(_rate, self.q, v)

    def pull(self) -> Array:
        return self.tree.joined(_pull, self.q)

    def perturbed(self, step: Array) -> Array:
        return self.tree.joined(_retract, self.q, step)

    def along(self, v: Array, s: Scalar) -> Array:
        return self.perturbed(s * v)

    def _frames(self) -> AbstractFrame:
        """The frames of the bodies and the ground."""
        ground = jax.tree.map(lambda x: x[None], self.space.place(jnp.asarray(self.space.rest, self.q.dtype)))
        frames = self._relative()
        for ancestor in self.tree.paths.rounds():
            extended = jax.tree.map(lambda x, r: jnp.concatenate([x, r]), frames, ground)
            outer = jax.tree.map(lambda x, a=ancestor: at_rows(x, a), extended)
            frames = jax.vmap(lambda a, b: a.compose(b))(outer, frames)
        return jax.tree.map(lambda x, r: jnp.concatenate([x, r]), frames, ground)

    def _relative(self) -> AbstractFrame:
        """The frame of each body relative to its parent."""
        joint_groups = self.tree.joint_groups
        return self.tree.by_child(
            [joints.over(_relative_frame, self.space, at_rows(self.q, joints.table("q"))) for joints in joint_groups]
        )

    # --- speeds and accelerations -----------------------------------------------------------------------

    @cached_property
    def partial(self) -> Float[Array, "pairs twist"]:
        """The nonzero entries of `J`: the partial velocity of each body for each speed on its path."""
        body, speed = self.tree.pairs()
        return jax.vmap(self._twist)(self._bodies(body), at_rows(self.axes, speed))

    def _twist(self, body: AbstractFrame, rate: Array) -> Array:
        """The twist of a body from its spatial velocity at the world's origin."""
        return self.space.to_twist(body, shift_velocity(rate, body.position))

    def _bodies(self, which: np.ndarray) -> AbstractFrame:
        return jax.tree.map(lambda x: at_rows(x, which), self.moving)

    @cached_property
    def axes(self) -> Float[Array, "nv twist"]:
        """The joint axes `S`: spatial velocity at the world's origin, of the subtree of the joint, per unit speed."""
        width, axes = len(self.space.speeds), []
        for joints in self.tree.joint_groups:
            group_axes = joints.over(_axes, self.space, at_rows(self.q, joints.table("q")), self._first_frames(joints))
            axes.append(group_axes.reshape(-1, width))
        return _permuted(axes, np.concatenate([joints.table("v").reshape(-1) for joints in self.tree.joint_groups]))

    def _first_frames(self, joints: JointGroup) -> AbstractFrame:
        """The frames of the bodies with the joints' first markers."""
        return jax.tree.map(lambda x: at_rows(x, joints.group.incidence[:, 0]), self.frames)

    def accelerations(self, v: Array, vdot: Array) -> Twists:
        return self.twists(vdot) + self.drift(v)

    def drift(self, v: Array) -> Twists:
        relative, paths = self._relative_rates(v), self.tree.paths
        rates = paths.to_root(relative)
        parent_rates = at_rows(jnp.concatenate([rates, jnp.zeros_like(rates[:1])]), paths.parents)
        q, first = self.q, self._first_frames
        apparent = self.tree.by_child(
            [
                joints.over(
                    _apparent_rate,
                    self.space,
                    at_rows(q, joints.table("q")),
                    at_rows(v, joints.table("v")),
                    first(joints),
                )
                for joints in self.tree.joint_groups
            ]
        )
        accelerations = paths.to_root(jax.vmap(motion_cross)(parent_rates, relative) + apparent)

        def one(body: AbstractFrame, rate: Array, acceleration: Array) -> Array:
            dim = self.space.dim
            at_centre, at_body = shift_velocity(acceleration, body.position), shift_velocity(rate, body.position)
            swept = motion_cross(rate, jnp.concatenate([at_body[:dim], jnp.zeros_like(rate[dim:])]))  # ω × v
            return self.space.to_twist(body, at_centre + swept)

        return jax.vmap(one)(self.moving, rates, accelerations)

    def _relative_rates(self, v: Array) -> Twists:
        """The velocity of each body relative to its parent, as a spatial velocity at the world's origin."""
        tables = [joints.table("v") for joints in self.tree.joint_groups]
        return self.tree.by_child(
            [jnp.sum(at_rows(self.axes, table) * at_rows(v, table)[..., None], axis=1) for table in tables]
        )

    def twists(self, v: Array) -> Twists:
        body, speed = self.tree.pairs()
        return gather_sum(self.partial * at_rows(v, speed)[:, None], gather_table(body, self.tree.bodies))

    def loads(self, efforts: Twists) -> Array:
        body, speed = self.tree.pairs()
        return gather_sum(
            jnp.sum(self.partial * at_rows(efforts, body), axis=1), gather_table(speed, len(self.tree.owners))
        )

    def loads_rate(self, v: Array, efforts: Twists) -> Array:
        return jax.jvp(lambda q: TreePlacement(self.tree, q).loads(efforts), (self.q,), (self.rate(v),))[1]

    def twist_rate(self, v: Array, u: Array) -> Twists:
        return jax.jvp(lambda q: TreePlacement(self.tree, q).twists(u), (self.q,), (self.rate(v),))[1]

    def rows(self, terms: ConstraintBodyTerms) -> SparseMatrix:
        body, speed = self.tree.pairs()
        term, pair = matches(terms.body, body)
        values = jnp.sum(at_rows(terms.values, term) * at_rows(self.partial, pair), axis=1)
        return summed(values, terms.row[term], speed[pair], (terms.m, len(self.tree.owners)))

    def inertia(self, parts: PyTree) -> CoupledInertia:
        """`M_rs = S_r · H_s` for speed `r` on the path of the child body of speed `s` (composite rigid bodies).

        `H_s` is the momentum of the subtree of that body per unit of `s`, `S_r` the velocity of the body per unit of
        `r`; both are taken at the body's centre of mass.
        """
        (body, speed), owners = self.tree.pairs(), self.tree.owners

        def momentum(part: PyTree, body_frame: AbstractFrame, twist: Array, first: Array) -> Array:
            wrench = self.space.in_world(body_frame, self.space.momentum(part, twist))
            return shift_wrench(wrench, first - body_frame.position)

        def product(rate: Array, first: Array, wrench: Array) -> Array:
            return jnp.sum(shift_velocity(rate, first) * wrench)

        inertias, first = jax.tree.map(lambda x: at_rows(x, body), parts), at_rows(self.moving.position, owners)
        momenta = jax.vmap(momentum)(inertias, self._bodies(body), self.partial, at_rows(first, speed))
        H = gather_sum(momenta, gather_table(speed, len(owners)))
        s, pair = matches(owners, body)
        r = speed[pair]
        lower = (owners[r] != owners[s]) | (r <= s)
        r, s = r[lower], s[lower]
        values, n = jax.vmap(product)(at_rows(self.axes, r), at_rows(first, s), at_rows(H, s)), len(owners)
        return CoupledInertia(SymmetricMatrix(values, Pattern(n, np.maximum(r, s), np.minimum(r, s))))

    def joint_axes(self) -> Float[Array, "nv twist"]:
        return self.axes

    def subtree_sum(self, wrenches: Float[Array, "bodies twist"]) -> Float[Array, "bodies twist"]:
        return self.tree.paths.subtree_sum(wrenches)


def _permuted(values: Sequence[Array], rows: Sequence[int] | np.ndarray) -> Array:
    """Concatenate `values` and permute them so that entry `i` comes to row `rows[i]`."""
    order, stacked = np.argsort(rows), jnp.concatenate(values)
    return stacked if (order == np.arange(len(order))).all() else at_rows(stacked, order)


# --- functions of one tree joint, mapped over a joint group ---------------------------------------------------


def _normalize(_: AbstractSpace, sign: float, law: AbstractTreeJoint, c: Array) -> Array:
    return law.chart.normalize(c)


def _rate(_: AbstractSpace, sign: float, law: AbstractTreeJoint, c: Array, w: Array) -> Array:
    return law.chart.rate(c, w)


def _pull(_: AbstractSpace, sign: float, law: AbstractTreeJoint, c: Array) -> Array:
    return law.chart.pull(c)


def _retract(_: AbstractSpace, sign: float, law: AbstractTreeJoint, c: Array, w: Array) -> Array:
    return law.chart.retract(c, w)


def _measure(space: AbstractSpace, _: float, law: AbstractTreeJoint, bodies: AbstractFrame) -> Array:
    return law.measure(MarkerKinematics(space, law.markers, bodies, jnp.zeros((), bodies.position.dtype)).frames)


def _relative_frame(_: AbstractSpace, sign: float, law: AbstractTreeJoint, c: Array) -> AbstractFrame:
    """The frame of the child body relative to its parent body."""
    joint_transform, first, second = law.X_FM(c), law.a.local, law.b.local
    if sign < 0:
        return second.compose(joint_transform.inverse()).compose(first.inverse())
    return first.compose(joint_transform).compose(second.inverse())


def _axes(
    space: AbstractSpace, sign: float, law: AbstractTreeJoint, c: Array, first: AbstractFrame
) -> Float[Array, "speeds twist"]:
    """The joint axes at the world's origin, one per speed; `first` is the frame of the first marker's body."""
    marker, joint_transform = law.a.frame(first), law.X_FM(c)
    point = marker.compose(joint_transform).position
    rates = jax.vmap(lambda w: law.across_joint_velocity(c, w))(np.eye(len(law.speeds), dtype=c.dtype))
    return sign * jax.vmap(lambda rate: shift_velocity(space.rotate_to_world(marker, rate), -point))(rates)


def _apparent_rate(
    space: AbstractSpace, sign: float, law: AbstractTreeJoint, c: Array, w: Array, first: AbstractFrame
) -> Array:
    """The apparent derivative `S̊ w` of the relative velocity, nonzero where the axes `S` depend on the coordinates."""
    marker = law.a.frame(first)
    motion = lambda c: shift_velocity(law.across_joint_velocity(c, w), -law.X_FM(c).position)  # noqa: E731
    derivative = jax.jvp(motion, (c,), (law.chart.rate(c, w),))[1]
    return sign * shift_velocity(space.rotate_to_world(marker, derivative), -marker.position)
