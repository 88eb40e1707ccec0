"""Coordinates of mechanisms with flexible bodies: those of the floating frames, then the own ones `η` of the bodies.

A frame of a flexible body, a site or a piece, has the twist `V_f = A V + B η̇`, where `V` is that of the floating frame.
So the sites and pieces are more frames beside those of the bodies, and this is a further change of variables on top of
absolute or joint coordinates: rates by `A` and `B`, loads by their transposes, and

    M = Jᵀ M_b J + Zᵀ M_e Z,    M_e = Σ_f [A B]ᵀ M_f [A B] + diag(0, M_η)

with the sum over the pieces of a body, and `Z v = (V, η̇)`.
"""

from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Scalar, at_rows
from jaxmbd.engine import trace_once
from jaxmbd.equations.constraint_kinematics import ConstraintBodyTerms
from jaxmbd.equations.coordinates import AbstractCoordinates, AbstractPlacement, Twists
from jaxmbd.equations.inertia import CoupledInertia, with_blocks
from jaxmbd.model.body.flexible import AbstractFlexibleBody, flexible, frames_of
from jaxmbd.model.mechanism.groups import unnamed
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.sparse_matrices import SparseMatrix, gather_sum, gather_table, summed
from jaxmbd.space.space import AbstractFrame, AbstractSpace


class FlexiblePart(NamedTuple):
    """Where a flexible body stands: its place among the bodies, the range of its frames among those of the sites and
    pieces, and that of its coordinates among the own ones; `sites` is the number of its sites."""

    body: int
    frames: slice
    own: slice
    sites: int


class FlexibleCoordinates(AbstractCoordinates):
    """The coordinates `base` of the bodies' floating frames, then the own coordinates of flexible bodies."""

    base: AbstractCoordinates
    space: AbstractSpace
    bodies: tuple[AbstractFlexibleBody, ...]
    parts: tuple[FlexiblePart, ...] = eqx.field(static=True)
    rigid: int = eqx.field(static=True)  # number of bodies
    speeds: int = eqx.field(static=True)  # number of speeds of `base`

    def __init__(self, base: AbstractCoordinates, mechanism: Mechanism) -> None:
        self.base, self.space, self.rigid = base, mechanism.space, len(mechanism.bodies)
        bodies, parts, own = flexible(mechanism.bodies), [], 0
        for place, frames in frames_of(mechanism.bodies).items():
            among, start = slice(frames.start - self.rigid, frames.stop - self.rigid), own
            own += len(bodies[place].own_coordinates)
            parts.append(FlexiblePart(place, among, slice(start, own), len(bodies[place].site_names)))
        self.speeds = len(mechanism.tree.speeds) - own
        self.bodies, self.parts = tuple(unnamed(body) for body in bodies.values()), tuple(parts)

    @property
    def own(self) -> int:
        """The number of own coordinates."""
        return self.parts[-1].own.stop

    @property
    def owners(self) -> np.ndarray:
        """For each frame of a site or piece, its body."""
        return np.concatenate([np.full(part.frames.stop - part.frames.start, part.body) for part in self.parts])

    def at(self, t: Scalar, q: Array) -> "FlexiblePlacement":
        return FlexiblePlacement(self, t, q)

    def normalize(self, q: Array) -> Array:
        return jnp.concatenate([self.base.normalize(q[: -self.own]), q[-self.own :]])

    def measured(self, poses: Float[Array, "bodies pose"]) -> Array:
        return jnp.concatenate([self.base.measured(poses), *(body.eta.astype(poses.dtype) for body in self.bodies)])


class FlexiblePlacement(AbstractPlacement):
    """The kinematics of the bodies, their sites and pieces at one configuration."""

    def __init__(self, coordinates: FlexibleCoordinates, t: Scalar, q: Array) -> None:
        self.coordinates, self.space = coordinates, coordinates.space
        self.base, self.eta = coordinates.base.at(t, q[: -coordinates.own]), q[-coordinates.own :]
        self._floating = [jax.tree.map(lambda x, i=part.body: x[i], self.base.frames) for part in coordinates.parts]
        own = [_placed(*each) for each in zip(coordinates.bodies, self._floating, self._etas(self.eta), strict=True)]
        moving, ground = (jax.tree.map(lambda x, s=s: x[s], self.base.frames) for s in np.s_[:-1, -1:])
        self.frames = jax.tree.map(lambda *x: jnp.concatenate(x), moving, *own, ground)

    def _etas(self, values: Array) -> list[Array]:
        """Own coordinates, or their rates, by body."""
        return [values[part.own] for part in self.coordinates.parts]

    def _halves(self, v: Array) -> tuple[Array, Array]:
        """The speeds of the floating frames, and the rates of the own coordinates."""
        return v[: -self.coordinates.own], v[-self.coordinates.own :]

    @cached_property
    def partial(self) -> list[tuple[Array, Array]]:
        """`A (frames, twist, twist)` and `B (frames, twist, k)` of each flexible body."""
        each = zip(self.coordinates.bodies, self._floating, self._etas(self.eta), strict=True)
        return [_partial_twists(self.space, *values) for values in each]

    def _partial_rates(self, v: Array) -> list[tuple[Array, Array]]:
        """`Ȧ` and `Ḃ` along the motion."""
        speeds, rates = self._halves(v)
        twists, parts = self.base.twists(speeds), self.coordinates.parts
        each = zip(self.coordinates.bodies, self._floating, self._etas(self.eta), self._etas(rates), strict=True)
        return [
            _partial_rates(self.space, *values, twists[part.body]) for values, part in zip(each, parts, strict=True)
        ]

    def _applied(self, partial: list[tuple[Array, Array]], twists: Array, rates: Array) -> Twists:
        """`A V + B η̇` of all sites and pieces."""
        each = zip(partial, self.coordinates.parts, self._etas(rates), strict=True)
        return jnp.concatenate([A @ twists[part.body] + B @ own for (A, B), part, own in each])

    def _transposed(self, partial: list[tuple[Array, Array]], efforts: Twists) -> tuple[Array, Array]:
        """`Aᵀ f` summed body by body, and `Bᵀ f`, for efforts on all sites and pieces."""
        parts = self.coordinates.parts
        pairs = [
            (jnp.einsum("fwx,fw->x", A, efforts[part.frames]), jnp.einsum("fwk,fw->k", B, efforts[part.frames]))
            for (A, B), part in zip(partial, parts, strict=True)
        ]
        on_bodies, own = zip(*pairs, strict=True)
        table = gather_table(np.asarray([part.body for part in parts]), self.coordinates.rigid)
        return gather_sum(jnp.stack(on_bodies), table), jnp.concatenate(own)

    # --- coordinates ------------------------------------------------------------------------------------

    def poses(self) -> Float[Array, "bodies pose"]:
        return self.base.poses()

    def rate(self, v: Array) -> Array:
        speeds, rates = self._halves(v)
        return jnp.concatenate([self.base.rate(speeds), rates])

    def pull(self) -> Array:
        return jnp.concatenate([self.base.pull(), jnp.zeros_like(self.eta)])

    def perturbed(self, step: Array) -> Array:
        speeds, rates = self._halves(step)
        return jnp.concatenate([self.base.perturbed(speeds), self.eta + rates])

    def along(self, v: Array, s: Scalar) -> Array:
        speeds, rates = self._halves(v)
        return jnp.concatenate([self.base.along(speeds, s), self.eta + s * rates])

    # --- speeds and loads -------------------------------------------------------------------------------

    def twists(self, v: Array) -> Twists:
        speeds, rates = self._halves(v)
        twists = self.base.twists(speeds)
        return jnp.concatenate([twists, self._applied(self.partial, twists, rates)])

    def accelerations(self, v: Array, vdot: Array) -> Twists:
        (speeds, rates), (changes, own) = self._halves(v), self._halves(vdot)
        twists, accelerations = self.base.twists(speeds), self.base.accelerations(speeds, changes)
        further = self._applied(self.partial, accelerations, own)
        return jnp.concatenate([accelerations, further + self._applied(self._partial_rates(v), twists, rates)])

    def drift(self, v: Array) -> Twists:
        return self.accelerations(v, jnp.zeros_like(v))

    def loads(self, efforts: Twists) -> Array:
        on_bodies, own = self._transposed(self.partial, efforts[self.coordinates.rigid :])
        return jnp.concatenate([self.base.loads(efforts[: self.coordinates.rigid] + on_bodies), own])

    def loads_rate(self, v: Array, efforts: Twists) -> Array:
        speeds, _ = self._halves(v)
        given, further = efforts[: self.coordinates.rigid], efforts[self.coordinates.rigid :]
        on_bodies, _ = self._transposed(self.partial, further)
        changes, own = self._transposed(self._partial_rates(v), further)
        return jnp.concatenate([self.base.loads_rate(speeds, given + on_bodies) + self.base.loads(changes), own])

    def twist_rate(self, v: Array, u: Array) -> Twists:
        (speeds, _), (others, own) = self._halves(v), self._halves(u)
        twists, base = self.base.twists(others), self.base.twist_rate(speeds, others)
        base = jnp.zeros_like(twists) if base is None else base
        turned = self._applied(self._partial_rates(v), twists, own)
        return jnp.concatenate([base, turned + self._applied(self.partial, base, jnp.zeros_like(own))])

    def rows(self, terms: ConstraintBodyTerms) -> SparseMatrix:
        rigid, owners, parts = self.coordinates.rigid, self.coordinates.owners, self.coordinates.parts
        frame = terms.body - rigid
        further = np.flatnonzero((frame >= 0) & (frame < len(owners)))
        A = jnp.concatenate([A for A, _ in self.partial])
        which = frame[further]
        values = jnp.einsum("lwx,lw->lx", at_rows(A, which), at_rows(terms.values, further))
        near = np.flatnonzero(frame < 0)
        moved = ConstraintBodyTerms(
            jnp.concatenate([at_rows(terms.values, near), values]),
            np.append(terms.row[near], terms.row[further]),
            np.append(terms.body[near], owners[which]),
            terms.m,
        )
        entries, nv = self.base.rows(moved), self.coordinates.speeds
        found = [(entries.values, entries.rows, entries.columns)]
        for part, (_, B) in zip(parts, self.partial, strict=True):
            on = further[(which >= part.frames.start) & (which < part.frames.stop)]
            columns = nv + np.arange(part.own.start, part.own.stop)
            loads = jnp.einsum("lwk,lw->lk", at_rows(B, frame[on] - part.frames.start), at_rows(terms.values, on))
            rows = np.broadcast_to(terms.row[on, None], loads.shape)
            found.append((loads.reshape(-1), rows.reshape(-1), np.broadcast_to(columns, loads.shape).reshape(-1)))
        values, rows, columns = zip(*found, strict=True)
        shape = terms.m, self.coordinates.speeds + self.coordinates.own
        return summed(jnp.concatenate(values), np.concatenate(rows), np.concatenate(columns), shape)

    # --- inertia ----------------------------------------------------------------------------------------

    def inertia(self, parts: PyTree) -> CoupledInertia:
        rigid, start, blocks = self.coordinates.rigid, self.coordinates.rigid, []
        for body, part, (A, B) in zip(self.coordinates.bodies, self.coordinates.parts, self.partial, strict=True):
            J = jnp.concatenate([A, B], axis=2)[part.sites :]
            own = slice(start, start := start + len(J))
            pieces = jax.tree.map(lambda x, own=own: x[own], parts)
            momenta = jax.vmap(lambda piece, J: jax.vmap(lambda c: self.space.momentum(piece, c), 1, 1)(J))(pieces, J)
            block = jnp.einsum("fwi,fwj->ij", J, momenta)
            width = A.shape[2]
            blocks.append((self._own_rows(part), block.at[width:, width:].add(body.own_inertia())))
        base = self.base.inertia(jax.tree.map(lambda x: x[:rigid], parts)).lower()
        return with_blocks(base, blocks, self.coordinates.speeds + self.coordinates.own)

    def _own_rows(self, part: FlexiblePart) -> SparseMatrix:
        """`Z` of one body, with `Z v = (V, η̇)`."""
        width = len(self.space.speeds)
        twist = np.arange(width)
        entries = self.base.rows(ConstraintBodyTerms(jnp.eye(width), twist, np.full(width, part.body), width))
        own = np.arange(part.own.start, part.own.stop)
        values = jnp.concatenate([entries.values, jnp.ones(len(own), entries.values.dtype)])
        rows = np.append(entries.rows, width + np.arange(len(own)))
        columns = np.append(entries.columns, self.coordinates.speeds + own)
        return SparseMatrix(values, rows, columns, (width + len(own), self.coordinates.speeds + self.coordinates.own))

    def own_loads(self, v: Array) -> Array:
        speeds, rates = self._halves(v)
        each = zip(self.coordinates.bodies, self._etas(self.eta), self._etas(rates), strict=True)
        loads = [body.damping_loads(eta, rate) - jax.grad(body.strain_energy)(eta) for body, eta, rate in each]
        return jnp.concatenate([jnp.zeros_like(speeds), *loads])

    def own_momenta(self, v: Array) -> Array:
        speeds, rates = self._halves(v)
        each = zip(self.coordinates.bodies, self._etas(rates), strict=True)
        return jnp.concatenate([jnp.zeros_like(speeds), *(body.own_inertia() @ rate for body, rate in each)])

    def strain_energy(self) -> Scalar:
        each = zip(self.coordinates.bodies, self._etas(self.eta), strict=True)
        return sum((body.strain_energy(eta) for body, eta in each), jnp.zeros((), self.eta.dtype))

    def own_kinetic_energy(self, v: Array) -> Scalar:
        each = zip(self.coordinates.bodies, self._etas(self._halves(v)[1]), strict=True)
        return sum((0.5 * rate @ body.own_inertia() @ rate for body, rate in each), jnp.zeros((), v.dtype))

    # --- reactions --------------------------------------------------------------------------------------

    def joint_axes(self) -> Float[Array, "speeds twist"]:
        return self.base.joint_axes()

    def subtree_sum(self, wrenches: Float[Array, "frames twist"]) -> Float[Array, "bodies twist"]:
        rigid, owners = self.coordinates.rigid, self.coordinates.owners
        table = gather_table(np.append(np.arange(rigid), owners), rigid)
        return self.base.subtree_sum(gather_sum(wrenches, table))


@trace_once
def _placed(body: AbstractFlexibleBody, floating: AbstractFrame, eta: Array) -> AbstractFrame:
    return jax.vmap(floating.compose)(body.frames(eta))


@trace_once
def _partial_twists(
    space: AbstractSpace, body: AbstractFlexibleBody, floating: AbstractFrame, eta: Array
) -> tuple[Float[Array, "frames twist twist"], Float[Array, "frames twist k"]]:
    """`A` and `B`, with `V_f = A V + B η̇`."""

    def twists(V: Array, rates: Array) -> Array:
        relative, changes = jax.jvp(body.frames, (eta,), (rates,))

        def one(relative: AbstractFrame, change: AbstractFrame) -> Array:
            frame = floating.compose(relative)
            carried = space.marker_rate(floating, V, frame.position)
            return space.to_twist(frame, carried + space.rotate_to_world(floating, relative.rate(change)))

        return jax.vmap(one)(relative, changes)

    zero = jnp.zeros(len(space.speeds), eta.dtype), jnp.zeros_like(eta)
    return jax.jacfwd(twists, (0, 1))(*zero)


@trace_once
def _partial_rates(
    space: AbstractSpace, body: AbstractFlexibleBody, floating: AbstractFrame, eta: Array, rates: Array, twist: Array
) -> tuple[Array, Array]:
    """`Ȧ` and `Ḃ` along the motion."""
    rate, zero = space.marker_rate(floating, twist, floating.position), jnp.zeros((), eta.dtype)

    def moved(s: Scalar) -> tuple[Array, Array]:
        return _partial_twists(space, body, floating.perturbed(s * rate), eta + s * rates)

    return jax.jvp(moved, (zero,), (jnp.ones_like(zero),))[1]
