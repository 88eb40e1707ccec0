"""Joint coordinates: the bodies hang on one another by the joints of a spanning tree.

The joints' placements are computed side by side, whatever their order in the tree, and then composed along it by
doubling: after `k` rounds each frame is known relative to its `2ᵏ`-th ancestor, so that a chain of a thousand bodies
takes ten rounds. Motions are added as rates at the world's origin: that of a body is the sum over the joints on its
path to the ground, `V = Σ S w`.

Source: the path matrix is that of Wittenburg, *Dynamics of Multibody Systems* (2008), §5.3; joint axes `S`, and their
rates, as in Featherstone, *Rigid Body Dynamics Algorithms* (2008), §2-4.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.compile.passes.symbolic_ldlt import Pattern
from jaxmbd.compile.tracing import trace_once
from jaxmbd.equations.constraint_kinematics import MarkerKinematics
from jaxmbd.equations.coordinates import AbstractCoordinates, AbstractPlacement, Twists
from jaxmbd.equations.gather_tables import gather_sum, gather_table, matches
from jaxmbd.equations.groups import Group, group_parts, law_of
from jaxmbd.equations.inertia import CoupledInertia
from jaxmbd.equations.sparse_coo import SparseMatrix, legs_of, summed
from jaxmbd.equations.spd_solve import Symmetric
from jaxmbd.equations.tree_path_sums import Paths
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.spanning_tree import TreeJoint
from jaxmbd.space.space import AbstractSpace
from jaxmbd.space.twists import motion_cross, shift_velocity, shift_wrench


@trace_once
def _of_joint(of: Any, space: Any, sign: float, static: Any, numbers: Any, *values: Any) -> Any:
    return of(space, sign, law_of(static, numbers, jnp.zeros(0)), *values)


class JointGroup(eqx.Module):
    """Joints of the tree that share one law: `backward` ones have their first marker on the child."""

    group: Group
    branches: tuple[TreeJoint, ...] = eqx.field(static=True)

    @property
    def sign(self) -> float:
        """Of the child's motion relative to its parent, in that of the second marker relative to the first."""
        return -1.0 if self.branches[0].backward else 1.0

    def table(self, kind: str) -> np.ndarray:
        """Where the joints' coordinates are in `q`, or their speeds in `v`: shape `(joints, numbers of one)`."""
        return np.stack([np.arange(*getattr(branch, kind)) for branch in self.branches])

    def over(self, of: Callable[..., Any], space: AbstractSpace, *values: Any) -> Any:
        """Map a function of the space, the sign, a joint, and of values with one slice for each, over the joints."""
        one = lambda *local: _of_joint(of, space, self.sign, self.group.static, *local)  # noqa: E731
        return jax.vmap(one)(self.group.stacked, *values)


class TreeCoordinates(AbstractCoordinates):
    """Those of the joints of a spanning tree."""

    space: AbstractSpace
    joint_groups: tuple[JointGroup, ...]
    branches: tuple[TreeJoint, ...] = eqx.field(static=True)

    def __init__(self, mechanism: Mechanism) -> None:
        self.space, self.branches = mechanism.space, mechanism.tree.branches
        joints, found = mechanism.tree_joints(), []
        for backward in (False, True):
            mine = [i for i, branch in enumerate(self.branches) if branch.backward == backward]
            for group in group_parts([joints[i] for i in mine], mechanism):
                found.append(JointGroup(group, tuple(self.branches[mine[k]] for k in group.members)))
        self.joint_groups = tuple(found)

    @property
    def bodies(self) -> int:
        """Number of bodies."""
        return len(self.branches)

    @property
    def paths(self) -> Paths:
        """The paths of the bodies to the ground."""
        found = np.empty(self.bodies, dtype=int)
        for branch in self.branches:
            found[branch.child] = branch.parent
        return Paths(found)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Each body with each speed that moves it, body by body."""
        bodies, carried = self.paths.pairs()
        first, last = np.array([branch.v for branch in sorted(self.branches, key=lambda b: b.child)]).T
        count = (last - first)[carried]
        start = np.repeat(first[carried] - np.cumsum(count) + count, count)
        return np.repeat(bodies, count), start + np.arange(len(start))

    @property
    def owners(self) -> np.ndarray:
        """For each speed the body that its joint carries."""
        found = np.empty(sum(branch.v[1] - branch.v[0] for branch in self.branches), dtype=int)
        for branch in self.branches:
            found[slice(*branch.v)] = branch.child
        return found

    def by_child(self, values: Sequence[Any]) -> Any:
        """What the groups of links give, each stacked, in the order of the bodies they carry."""
        child = np.concatenate([[branch.child for branch in links.branches] for links in self.joint_groups])
        return jax.tree.map(lambda *x: _arranged(x, child), *values)

    def at(self, t: Scalar, q: Array) -> "TreePlacement":
        return TreePlacement(self, q)

    def normalize(self, q: Array) -> Array:
        return self.joined(_tidy, q)

    def joined(self, of: Callable[..., Array], q: Array, *v: Array) -> Array:
        """What a function of a joint gives for its coordinates, put together as `q` is."""
        tables = [links.table("q") for links in self.joint_groups]
        each = zip(self.joint_groups, tables, strict=True)
        found = [links.over(of, self.space, q[table], *(x[links.table("v")] for x in v)) for links, table in each]
        return _arranged([x.reshape(-1) for x in found], np.concatenate([table.reshape(-1) for table in tables]))

    def measured(self, poses: Float[Array, "bodies pose"]) -> Array:
        rest = jnp.asarray(self.space.rest, poses.dtype)
        frames = jax.vmap(self.space.place)(jnp.concatenate([poses, rest[None]]))

        found = []
        for links in self.joint_groups:
            pairs = jax.tree.map(lambda x, k=links.group.incidence: x[k], frames)
            found.append(links.over(_measure, self.space, pairs).reshape(-1))
        return _arranged(found, np.concatenate([links.table("q").reshape(-1) for links in self.joint_groups]))


class TreePlacement(AbstractPlacement):
    """The bodies at coordinates `q` of the joints."""

    def __init__(self, tree: TreeCoordinates, q: Array) -> None:
        self.tree, self.space, self.q = tree, tree.space, q
        self.frames = self._composed()
        self.moving = jax.tree.map(lambda x: x[: tree.bodies], self.frames)  # without the ground

    def poses(self) -> Float[Array, "bodies pose"]:
        return jax.vmap(self.space.pose)(self.moving)

    def rate(self, v: Array) -> Array:
        return self.tree.joined(_rate, self.q, v)

    def perturbed(self, step: Array) -> Array:
        return self.tree.joined(_retract, self.q, step)

    def along(self, v: Array, s: Scalar) -> Array:
        return self.perturbed(s * v)

    def _composed(self) -> Any:
        """The frames of the bodies and the ground."""
        rest = jax.tree.map(lambda x: x[None], self.space.place(jnp.asarray(self.space.rest, self.q.dtype)))
        frames = self._relative()
        for further in self.tree.paths.rounds():
            extended = jax.tree.map(lambda x, r: jnp.concatenate([x, r]), frames, rest)
            outer = jax.tree.map(lambda x, a=further: x[a], extended)
            frames = jax.vmap(lambda a, b: a.compose(b))(outer, frames)
        return jax.tree.map(lambda x, r: jnp.concatenate([x, r]), frames, rest)

    def _relative(self) -> Any:
        """The frame of each body in that of its parent."""
        links = self.tree.joint_groups
        return self.tree.by_child([each.over(_placed, self.space, self.q[each.table("q")]) for each in links])

    # --- speeds and accelerations -----------------------------------------------------------------------

    @cached_property
    def partial(self) -> Float[Array, "pairs twist"]:
        """`J` by its entries: the twist of each body by each of the speeds that move it."""
        body, speed = self.tree.pairs()
        return jax.vmap(self._twist)(self._bodies(body), self.axes[speed])

    def _twist(self, body: Any, rate: Array) -> Array:
        """The twist of a body that moves at a rate at the world's origin."""
        return self.space.to_twist(body, shift_velocity(rate, body.position))

    def _bodies(self, which: np.ndarray) -> Any:
        return jax.tree.map(lambda x: x[which], self.moving)

    @cached_property
    def axes(self) -> Float[Array, "nv twist"]:
        """`S`: the rate at the world's origin that a unit of each speed adds to the bodies beyond its joint."""
        width, found = len(self.space.speeds), []
        for links in self.tree.joint_groups:
            mine = links.over(_axes, self.space, self.q[links.table("q")], self._first(links))
            found.append(mine.reshape(-1, width))
        return _arranged(found, np.concatenate([links.table("v").reshape(-1) for links in self.tree.joint_groups]))

    def _first(self, links: JointGroup) -> Any:
        """The frames of the bodies that carry the joints' first markers."""
        return jax.tree.map(lambda x: x[links.group.incidence[:, 0]], self.frames)

    def accelerations(self, v: Array, vdot: Array) -> Twists:
        return self.twists(vdot) + self.drift(v)

    def drift(self, v: Array) -> Twists:
        relative, paths = self._relative_rates(v), self.tree.paths
        rates = paths.to_root(relative)
        of_parents = jnp.concatenate([rates, jnp.zeros_like(rates[:1])])[paths.parents]
        q, first = self.q, self._first
        own = self.tree.by_child(
            [x.over(_drift, self.space, q[x.table("q")], v[x.table("v")], first(x)) for x in self.tree.joint_groups]
        )
        changes = paths.to_root(jax.vmap(motion_cross)(of_parents, relative) + own)

        def one(body: Any, rate: Array, change: Array) -> Array:
            dim = self.space.dim
            here, at_body = shift_velocity(change, body.position), shift_velocity(rate, body.position)
            swept = motion_cross(rate, jnp.concatenate([at_body[:dim], jnp.zeros_like(rate[dim:])]))  # ω × v
            return self.space.to_twist(body, here + swept)

        return jax.vmap(one)(self.moving, rates, changes)

    def _relative_rates(self, v: Array) -> Twists:
        """The motion of each body relative to its parent, at the world's origin."""
        tables = [links.table("v") for links in self.tree.joint_groups]
        return self.tree.by_child([jnp.sum(self.axes[table] * v[table][..., None], axis=1) for table in tables])

    def twists(self, v: Array) -> Twists:
        body, speed = self.tree.pairs()
        return gather_sum(self.partial * v[speed][:, None], gather_table(body, self.tree.bodies))

    def loads(self, efforts: Twists) -> Array:
        body, speed = self.tree.pairs()
        return gather_sum(jnp.sum(self.partial * efforts[body], axis=1), gather_table(speed, len(self.tree.owners)))

    def constraint_force_rate(self, v: Array, efforts: Twists) -> Array:
        return jax.jvp(lambda q: TreePlacement(self.tree, q).loads(efforts), (self.q,), (self.rate(v),))[1]

    def twist_rate(self, v: Array, u: Array) -> Twists:
        return jax.jvp(lambda q: TreePlacement(self.tree, q).twists(u), (self.q,), (self.rate(v),))[1]

    def rows(self, groups: Sequence[Group], blocks: Sequence[Array]) -> SparseMatrix:
        legs, (body, speed) = legs_of(groups, blocks, len(self.space.speeds)), self.tree.pairs()
        leg, pair = matches(legs.body, body)
        values = jnp.sum(legs.values[leg] * self.partial[pair], axis=1)
        return summed(values, legs.row[leg], speed[pair], (legs.m, len(self.tree.owners)))

    def inertia(self, parts: Any) -> CoupledInertia:
        """`M_rs = S_r · H_s`: `H_s` is the momentum that a unit of the speed `s` gives to all bodies beyond its joint,
        and `S_r` the motion of the first of them by a unit of `r`, of a joint on its path; both at that body."""
        (body, speed), owners = self.tree.pairs(), self.tree.owners

        def momentum(part: Any, here: Any, twist: Array, first: Array) -> Array:
            wrench = self.space.in_world(here, self.space.momentum(part, twist))
            return shift_wrench(wrench, first - here.position)

        def product(rate: Array, first: Array, wrench: Array) -> Array:
            return jnp.sum(shift_velocity(rate, first) * wrench)

        mine, first = jax.tree.map(lambda x: x[body], parts), self.moving.position[owners]
        momenta = jax.vmap(momentum)(mine, self._bodies(body), self.partial, first[speed])
        H = gather_sum(momenta, gather_table(speed, len(owners)))
        s, pair = matches(owners, body)
        r = speed[pair]
        once = (owners[r] != owners[s]) | (r <= s)
        r, s = r[once], s[once]
        values, n = jax.vmap(product)(self.axes[r], first[s], H[s]), len(owners)
        return CoupledInertia(Symmetric(values, Pattern(n, np.maximum(r, s), np.minimum(r, s))))

    def subtree_sum(self, wrenches: Float[Array, "bodies twist"]) -> Float[Array, "bodies twist"]:
        return self.tree.paths.subtree_sum(wrenches)


def _arranged(values: Sequence[Array], places: Sequence[int] | np.ndarray) -> Array:
    """Rows put where they belong: `places` holds the row of each."""
    order, together = np.argsort(places), jnp.concatenate(values)
    return together if (order == np.arange(len(order))).all() else together[order]


# --- what one joint of the tree gives ---------------------------------------------------------------------


def _tidy(_: Any, sign: float, law: Any, c: Array) -> Array:
    return law.chart.normalize(c)


def _rate(_: Any, sign: float, law: Any, c: Array, w: Array) -> Array:
    return law.chart.rate(c, w)


def _retract(_: Any, sign: float, law: Any, c: Array, w: Array) -> Array:
    return law.chart.retract(c, w)


def _measure(space: AbstractSpace, _: float, law: Any, bodies: Any) -> Array:
    return law.measure(MarkerKinematics(space, law.markers, bodies, jnp.zeros((), bodies.position.dtype)).frames)


def _placed(_: Any, sign: float, law: Any, c: Array) -> Any:
    """The frame of the child in that of its parent."""
    mated, first, second = law.X_FM(c), law.a.local, law.b.local
    if sign < 0:
        return second.compose(mated.inverse()).compose(first.inverse())
    return first.compose(mated).compose(second.inverse())


def _axes(space: AbstractSpace, sign: float, law: Any, c: Array, first: Any) -> Float[Array, "speeds twist"]:
    """The rate at the world's origin that a unit of each speed adds; `first` is the body of the first marker."""
    marker, mated = law.a.frame(first), law.X_FM(c)
    point = marker.compose(mated).position
    rates = jax.vmap(lambda w: law.across_joint_velocity(c, w))(jnp.eye(len(law.speeds), dtype=c.dtype))
    return sign * jax.vmap(lambda rate: shift_velocity(space.rotate_to_world(marker, rate), -point))(rates)


def _drift(space: AbstractSpace, sign: float, law: Any, c: Array, w: Array, first: Any) -> Array:
    """How the motion relative to the parent changes as seen from there: where axes turn with the coordinates."""
    marker = law.a.frame(first)
    motion = lambda c: shift_velocity(law.across_joint_velocity(c, w), -law.X_FM(c).position)  # noqa: E731
    change = jax.jvp(motion, (c,), (law.chart.rate(c, w),))[1]
    return sign * shift_velocity(space.rotate_to_world(marker, change), -marker.position)
