"""The equations of a mechanism: `M v̇ + Cᵀ λ = F`, `Φ(q, t) = 0`, `C v̇ = γ`, all from the parts' local laws.

Parts of one type are stacked and their law is mapped over the stack; each joint is differentiated on the two or
three bodies it touches, and the blocks are placed by index tables that are known before tracing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd._body import AbstractMarker
from jaxmbd._equations._groups import Group, group_parts
from jaxmbd._equations._local import Near, Rows, efforts_along, taylor, taylor_pair, wrenches
from jaxmbd._equations._schur import schur_complement
from jaxmbd._equations._tables import gather_sum, gather_table
from jaxmbd._force import AbstractAlong, AbstractForce, GeneralizedForce, Gravity
from jaxmbd._joint import AbstractJoint, GlobalConstraint
from jaxmbd._maths import nearest_turn
from jaxmbd._mechanism import CoordinateForce, Mechanism
from jaxmbd._types import Scalar

_SPARSE = 24  # rows from which on S is built from blocks: measured, 62 rows 5 µs against 15 µs


class Equations(eqx.Module):
    """Everything that the methods need of a mechanism, at a time `t`, coordinates `q` and speeds `v`.

    Shapes: `q (nq,)`, `v (nv,)`, rows of `Φ` in the order of the joints and then the drivers, `(m,)`. A row that
    constrains velocities alone is zero in `Φ`. `redundant`: whether rows may repeat one another, which the linear solve
    then allows for.
    """

    mechanism: Mechanism
    inertia: Any
    joints: tuple[Group, ...]
    turning: tuple[Group, ...]
    globals: tuple[GlobalConstraint, ...]
    forces: tuple[Group, ...]
    coordinate_forces: tuple[Group, ...]
    redundant: Bool[Array, ""]
    sizes: tuple[int, ...] = eqx.field(static=True)
    order: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, mechanism: Mechanism, redundant: bool | Bool[Array, ""] = True) -> None:
        constraints = mechanism.constraints()
        self.redundant = jnp.asarray(redundant)
        self.mechanism = mechanism
        self.sizes = mechanism.constraint_sizes()
        is_global = [isinstance(part, GlobalConstraint) for part in constraints]
        local = [i for i, apart in enumerate(is_global) if not apart]
        self.globals = tuple(part for part in constraints if isinstance(part, GlobalConstraint))
        self.joints = group_parts([constraints[i] for i in local], mechanism)
        placed = [local[i] for group in self.joints for i in group.members]
        placed += [i for i, apart in enumerate(is_global) if apart]
        self.order = _row_order(placed, self.sizes)
        self.turning = group_parts(
            [j for j in mechanism.joints if isinstance(j, AbstractJoint) and j.turning], mechanism
        )
        self.forces = group_parts([f for f in mechanism.forces if isinstance(f, AbstractForce)], mechanism)
        along = [f for f in mechanism.forces if isinstance(f, AbstractAlong)]
        self.coordinate_forces = group_parts(
            [CoordinateForce(f.name, mechanism.coordinate(f.coordinate), f) for f in along], mechanism
        )
        bodies = mechanism.bodies
        masses, tensors = jnp.stack([b.mass for b in bodies]), jnp.stack([b.inertia for b in bodies])
        self.inertia = jax.vmap(mechanism.space.inertia)(masses, tensors)

    @property
    def m(self) -> int:
        """Number of constraint rows."""
        return sum(self.sizes)

    def rows_of(self, name: str) -> slice:
        """The rows of `Φ` that a joint or driver gives."""
        names = [part.name for part in self.mechanism.constraints()]
        start = sum(self.sizes[: names.index(name)])
        return slice(start, start + self.sizes[names.index(name)])

    # --- coordinates ------------------------------------------------------------------------------------

    def rate(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """`q̇ = N(q) v`, with the rates of the carried joint angles."""
        poses, _ = self.mechanism.split(q)
        qdot = jax.vmap(self.mechanism.space.rate)(poses, self._twists(v)).reshape(-1)
        if not self.turning:
            return qdot
        return jnp.concatenate([qdot, self._angles(q, v)[1]])

    def retract(self, q: Float[Array, " nq"], step: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """The coordinates reached from `q` along `step`, speeds times a time: exact to second order."""
        poses, turns = self.mechanism.split(q)
        moved = jax.vmap(self.mechanism.space.retract)(poses, self._twists(step))
        return self.tidy(jnp.concatenate([moved.reshape(-1), turns]))

    def tidy(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The same position, its redundant coordinates exact: quaternions of norm one, carried angles those of the
        joints, nearest to what they were."""
        poses, turns = self.mechanism.split(q)
        exact = jax.vmap(self.mechanism.space.tidy)(poses).reshape(-1)
        if not self.turning:
            return exact
        angles, _ = self._angles(q, jnp.zeros(self.mechanism.nv, q.dtype))
        return jnp.concatenate([exact, nearest_turn(angles, turns)])

    def coordinate(self, name: str, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> tuple[Scalar, Scalar]:
        """The value and the rate of the coordinate written `"joint.angle"` or `"body.x"`."""
        coordinate = self.mechanism.coordinate_at(name, q)
        frames, rates = self.at_markers(coordinate.markers, q, v)
        return taylor_pair(lambda s: coordinate.value(_moved(frames, s * rates)), jnp.zeros((), q.dtype))

    def at_markers(
        self, markers: Sequence[AbstractMarker], q: Float[Array, " nq"], v: Float[Array, " nv"]
    ) -> tuple[tuple[Any, ...], Float[Array, "markers twist"]]:
        """The frames of markers, and their rates."""
        near, twists = self.near(markers, q), self.on_markers(markers, v)
        return near.frames, near.rates(twists)

    def near(self, markers: Sequence[AbstractMarker], q: Float[Array, " nq"]) -> Near:
        """Markers in the world."""
        return Near(self.mechanism.space, markers, jnp.stack(self.mechanism.poses(markers, q)))

    def on_markers(self, markers: Sequence[AbstractMarker], v: Float[Array, " nv"]) -> Float[Array, "markers twist"]:
        """Twists of the bodies that carry the markers."""
        index = {body.name: i for i, body in enumerate(self.mechanism.bodies)}
        return self._at_bodies(v)[np.asarray([index.get(marker.body, len(index)) for marker in markers])]

    def _angles(self, q: Array, v: Array) -> tuple[Array, Array]:
        """The angles of joints that count turns, each up to whole turns, in the order of `Mechanism.turns`, and their
        rates."""
        found: dict[int, Array] = {}
        for group in self.turning:

            def angles(law: Any, poses: Array, twists: Array) -> Array:
                near = Near(self.mechanism.space, law.markers, poses)
                rates = near.rates(twists)

                def turning(s: Scalar) -> Array:
                    motion = law.motion(near.moved(s * rates))
                    return jnp.stack([motion[law.motions.index(name)] for name in law.turning])

                return jnp.stack(taylor_pair(turning, jnp.zeros((), poses.dtype)))

            found |= dict(zip(group.members, self._over(group, angles, q, v), strict=True))
        values, rates = jnp.concatenate([found[i] for i in sorted(found)], axis=1)
        return values, rates

    # --- constraints ------------------------------------------------------------------------------------

    def position(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        """`Φ(q, t)`."""
        local = self._local(t, lambda rows: rows.position(), q)
        return self._rows(local + [part.residual(t, q) for part in self.globals])

    def jacobian(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "m nv"]:
        """`C = ∂Φ/∂v` along `retract`, dense."""
        return self._placed(t, q, self.jacobian_blocks(t, q))

    def jacobian_and_schur(self, t: Scalar, q: Float[Array, " nq"]) -> tuple[Array, Array]:
        """`C`, and `S = C M⁻¹ Cᵀ`: by its blocks where the mechanism is large enough for that to pay."""
        blocks = self.jacobian_blocks(t, q)
        C = self._placed(t, q, blocks)
        if self.m < _SPARSE or self.globals:
            return C, jax.vmap(self.solve_mass)(C) @ C.T
        accelerate = self.mechanism.space.acceleration
        return C, schur_complement(self.joints, blocks, self.inertia, accelerate, np.asarray(self.order))

    def _placed(self, t: Scalar, q: Array, blocks: Sequence[Array]) -> Array:
        dense = self._dense(blocks)
        if self.globals:
            rows = [self._global_jacobian(part, t, q) for part in self.globals]
            dense = jnp.concatenate([dense, *rows])
        return dense if _is_identity(self.order) else dense[np.asarray(self.order)]

    def jacobian_blocks(self, t: Scalar, q: Float[Array, " nq"]) -> list[Float[Array, "parts rows markers twist"]]:
        """The non-zero blocks of `C`: for each group, `(parts, rows, markers, speeds of a body)`."""
        return self._local(t, lambda rows: rows.jacobian(), q)

    def velocity(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`Φ̇ = C v + Φ_t`."""
        local = self._local(t, lambda rows, twists: rows.velocity(twists), q, v)
        return self._rows(local + [self._global_derivative(part, t, q, v, 1) for part in self.globals])

    def gamma(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """The right-hand side of `C v̇ = γ`: minus the second time derivative of `Φ` at constant `v`."""
        local = self._local(t, lambda rows, twists: rows.gamma(twists), q, v)
        return self._rows(local + [-self._global_derivative(part, t, q, v, 2) for part in self.globals])

    def load_rate(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], eta: Float[Array, " m"]
    ) -> Float[Array, " nv"]:
        """`Ċᵀ η`: how the load `Cᵀ η` of constant multipliers changes along the motion."""
        by_group, by_global = self._split(eta)
        total, local = jnp.zeros_like(v), []
        for group, mine in zip(self.joints, by_group, strict=True):

            def rate(law: Any, poses: Array, twists: Array, mine: Array) -> Array:
                return Rows(self.mechanism.space, law, t, poses).load_rate(twists, mine)

            local.append(self._over(group, rate, q, v, mine))
        if local:
            total = total + self._on_bodies(local, self.joints)
        for part, mine in zip(self.globals, by_global, strict=True):
            total = total + self._global_load_rate(part, t, q, v, mine)
        return total

    def _global_derivative(self, part: GlobalConstraint, t: Scalar, q: Array, v: Array, order: int) -> Array:
        return taylor(lambda s: part.residual(t + s, self.retract(q, s * v)), t, order)

    def _global_jacobian(self, part: GlobalConstraint, t: Scalar, q: Array) -> Array:
        return jax.jacfwd(lambda step: part.residual(t, self.retract(q, step)))(jnp.zeros(self.mechanism.nv, q.dtype))

    def _global_load_rate(self, part: GlobalConstraint, t: Scalar, q: Array, v: Array, eta: Array) -> Array:
        def load(s: Array) -> Array:
            moved = self.retract(q, s * v)
            phi = lambda step: jnp.dot(eta, part.residual(t + s, self.retract(moved, step)))  # noqa: E731
            return jax.grad(phi)(jnp.zeros_like(v))

        return taylor(load, t, 1)

    def _split(self, lam: Array) -> tuple[list[Array], list[Array]]:
        """One number per row, `(m,)`, as `(parts, rows)` for each group and `(rows,)` for each global constraint."""
        is_global = [isinstance(part, GlobalConstraint) for part in self.mechanism.constraints()]
        local = [size for size, apart in zip(self.sizes, is_global, strict=True) if not apart]
        counts = [(len(group.members), local[group.members[0]]) for group in self.joints]
        sizes = [parts * rows for parts, rows in counts]
        sizes += [size for size, apart in zip(self.sizes, is_global, strict=True) if apart]
        flat = lam[np.argsort(np.asarray(self.order, dtype=int))]
        pieces = jnp.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
        groups = [piece.reshape(shape) for piece, shape in zip(pieces, counts, strict=False)]
        return groups, list(pieces[len(counts) :])

    def _local(self, t: Scalar, of: Callable[..., Array], *values: Array) -> list[Array]:
        """What a function of a joint's `Rows` (and the twists of its bodies) gives, for each group."""

        def one(law: Any, poses: Array, *twists: Array) -> Array:
            return of(Rows(self.mechanism.space, law, t, poses), *twists)

        return [self._over(group, one, *values) for group in self.joints]

    def _rows(self, parts: Sequence[Array]) -> Array:
        if not parts:
            return jnp.zeros((0,))
        flat = jnp.concatenate([part.reshape(-1) for part in parts])
        return flat if _is_identity(self.order) else flat[np.asarray(self.order)]

    def _dense(self, blocks: Sequence[Array]) -> Array:
        """Place the blocks of the local joints in a dense matrix (rows still in the groups' order)."""
        nv, nb = self.mechanism.nv, len(self.mechanism.bodies)
        if not blocks:
            return jnp.zeros((0, nv))
        targets, start = [], 0
        for group, block in zip(self.joints, blocks, strict=True):
            parts, rows, _, width = block.shape
            row = start + np.arange(parts * rows).reshape(parts, rows, 1, 1)
            column = group.incidence[:, None, :, None] * width + np.arange(width)
            inside = np.broadcast_to(group.incidence[:, None, :, None] < nb, block.shape)
            targets.append(np.where(inside, row * nv + column, -1).reshape(-1))
            start += parts * rows
        table = gather_table(np.concatenate(targets), start * nv)
        return gather_sum(jnp.concatenate([b.reshape(-1) for b in blocks]), table).reshape(start, nv)

    # --- inertia and forces -----------------------------------------------------------------------------

    def mass(self) -> Float[Array, "nv nv"]:
        """`M`, dense; a block for each body (absolute coordinates about the centres of mass)."""
        return jax.vmap(self.momentum, out_axes=1)(jnp.eye(self.mechanism.nv))

    def mass_blocks(self) -> Float[Array, "bodies twist twist"]:
        """The blocks of `M`."""
        eye = jnp.eye(len(self.mechanism.space.speeds))
        return jax.vmap(lambda inertia: jax.vmap(lambda e: self.mechanism.space.momentum(inertia, e))(eye))(
            self.inertia
        )

    def momentum(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`M v`."""
        return jax.vmap(self.mechanism.space.momentum)(self.inertia, self._twists(v)).reshape(-1)

    def solve_mass(self, f: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`M⁻¹ f`."""
        return jax.vmap(self.mechanism.space.acceleration)(self.inertia, self._twists(f)).reshape(-1)

    def force(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The generalized forces `F(q, v, t)`: applied and gyroscopic ones."""
        space = self.mechanism.space
        total = jax.vmap(space.gyroscopic)(self.inertia, self._twists(v)).reshape(-1)
        local = [self._over(group, lambda *a: wrenches(space, t, *a), q, v) for group in self.forces]
        local += [self._over(group, lambda *a: efforts_along(space, t, *a), q, v) for group in self.coordinate_forces]
        if local:
            total = total + self._on_bodies(local, (*self.forces, *self.coordinate_forces))
        for part in self.mechanism.forces:
            if isinstance(part, Gravity):
                total = total + jax.vmap(space.to_effort)(self._weight(part)).reshape(-1)
            elif isinstance(part, GeneralizedForce):
                total = total + part.generalized(t, q, v)
        return total

    def _on_bodies(self, local: Sequence[Array], groups: Sequence[Group]) -> Array:
        """Sum what the parts of groups give for each of their bodies, `(parts, markers, twist)`, over the bodies."""
        nb = len(self.mechanism.bodies)
        bodies = np.concatenate([group.incidence.reshape(-1) for group in groups])
        table = gather_table(np.where(bodies < nb, bodies, -1), nb)
        flat = jnp.concatenate([wrench.reshape(-1, wrench.shape[-1]) for wrench in local])
        return gather_sum(flat, table).reshape(-1)

    def _weight(self, gravity: Gravity) -> Float[Array, "bodies dim"]:
        masses = jnp.stack([body.mass for body in self.mechanism.bodies])
        return masses[:, None] * gravity.vector(self.mechanism.space)[None, :]

    def gravity(self) -> Float[Array, " dim"]:
        """The field [m/s²] of all gravities together."""
        space = self.mechanism.space
        fields = [part.vector(space) for part in self.mechanism.forces if isinstance(part, Gravity)]
        return sum(fields, jnp.zeros(space.dim))

    def kinetic_energy(self, v: Float[Array, " nv"]) -> Scalar:
        """`½ vᵀ M v` [J]."""
        return 0.5 * jnp.dot(self.momentum(v), v)

    def potential_energy(self, t: Scalar, q: Float[Array, " nq"]) -> Scalar:
        """Energy [J] of gravity (zero at the world's origin), springs and contacts."""
        energy = jnp.zeros(())
        for group in self.forces:
            energy = energy + jnp.sum(self._over(group, lambda law, p: law.potential(t, self._frames(law, p)), q))
        for group in self.coordinate_forces:
            stored = self._over(
                group, lambda part, p: part.law.potential(part.coordinate.value(self._frames(part, p))), q
            )
            energy = energy + jnp.sum(stored)
        poses, _ = self.mechanism.split(q)
        for part in self.mechanism.forces:
            if isinstance(part, Gravity):
                energy = energy - jnp.sum(self._weight(part) * poses[:, : self.mechanism.space.dim])
        return energy

    def reactions(
        self, t: Scalar, q: Float[Array, " nq"], lam: Float[Array, " m"]
    ) -> list[Float[Array, "parts markers twist"]]:
        """For each group, the wrench at each marker that multipliers put on its body: world axes."""
        wrenches = self._local(t, lambda rows: rows.wrenches(), q)
        return [-jnp.einsum("prks,pr->pks", w, mine) for w, mine in zip(wrenches, self._split(lam)[0], strict=True)]

    def _frames(self, law: Any, poses: Array) -> tuple[Any, ...]:
        return Near(self.mechanism.space, law.markers, poses).frames

    def _over(self, group: Group, law: Callable[..., Array], q: Array, *values: Array) -> Array:
        """Map a local law over the parts of a group, given the poses (and twists) of the bodies each one touches;
        values that are no speeds are taken as they are, one for each part."""
        poses, turns = self.mechanism.split(q)
        rest = jnp.asarray(self.mechanism.space.rest, q.dtype)
        near = [jnp.concatenate([poses, rest[None]])[group.incidence]]
        for x in values:
            near.append(self._at_bodies(x)[group.incidence] if x.ndim == 1 else x)
        told = jnp.append(turns, 0.0)[group.turn_table]
        return jax.vmap(lambda numbers, k, *local: law(group.law(numbers, k), *local))(group.stacked, told, *near)

    def _at_bodies(self, v: Array) -> Array:
        twists = self._twists(v)
        return jnp.concatenate([twists, jnp.zeros_like(twists[:1])])

    def _twists(self, v: Array) -> Array:
        return v.reshape(len(self.mechanism.bodies), -1)


def _moved(frames: Sequence[Any], step: Array) -> list[Any]:
    return [frame.moved(d) for frame, d in zip(frames, step, strict=True)]


def _row_order(placed: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """For each row in the parts' own order, its place among the rows as the groups give them."""
    starts, position = {}, 0
    for part in placed:
        starts[part] = position
        position += sizes[part]
    return tuple(starts[part] + k for part, size in enumerate(sizes) for k in range(size))


def _is_identity(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))
