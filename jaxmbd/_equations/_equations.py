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
from jaxtyping import Array, Float

from jaxmbd._equations._groups import Group, group_parts
from jaxmbd._equations._schur import schur_complement
from jaxmbd._equations._tables import gather_sum, gather_table
from jaxmbd._force import AbstractForce, GeneralizedForce, Gravity, JointForce, JointFriction
from jaxmbd._joint import GlobalConstraint
from jaxmbd._mechanism import CoordinateForce, Mechanism
from jaxmbd._space import Frame
from jaxmbd._types import Scalar

_SPARSE = 24  # rows from which on S is built from blocks: measured, 62 rows 5 µs against 15 µs


class Equations(eqx.Module):
    """Everything that the methods need of a mechanism, at a time `t`, coordinates `q` and speeds `v`.

    Shapes: `q (nq,)`, `v (nv,)`, rows of `Φ` in the order of the joints and then the drivers, `(m,)`.
    """

    mechanism: Mechanism
    joints: tuple[Group, ...]
    globals: tuple[GlobalConstraint, ...]
    forces: tuple[Group, ...]
    coordinate_forces: tuple[Group, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)
    order: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, mechanism: Mechanism) -> None:
        index = {body.name: i for i, body in enumerate(mechanism.bodies)} | {"ground": len(mechanism.bodies)}
        constraints = mechanism.constraints()
        self.mechanism = mechanism
        self.sizes = mechanism.constraint_sizes()
        is_global = [isinstance(part, GlobalConstraint) for part in constraints]
        local = [i for i, apart in enumerate(is_global) if not apart]
        self.globals = tuple(part for part in constraints if isinstance(part, GlobalConstraint))
        self.joints = group_parts([constraints[i] for i in local], index)
        placed = [local[i] for group in self.joints for i in group.members]
        placed += [i for i, apart in enumerate(is_global) if apart]
        self.order = _row_order(placed, self.sizes)
        self.forces = group_parts([f for f in mechanism.forces if isinstance(f, AbstractForce)], index)
        along = [f for f in mechanism.forces if isinstance(f, JointForce | JointFriction)]
        self.coordinate_forces = group_parts(
            [CoordinateForce(f.name, mechanism.coordinate(f.coordinate), f) for f in along], index
        )

    @property
    def m(self) -> int:
        """Number of constraint rows."""
        return sum(self.sizes)

    def rows_of(self, name: str) -> slice:
        """The rows of `Φ` that a joint or driver gives."""
        names = [part.name for part in self.mechanism.constraints()]
        start = sum(self.sizes[: names.index(name)])
        return slice(start, start + self.sizes[names.index(name)])

    # --- constraints ------------------------------------------------------------------------------------

    def position(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        """`Φ(q, t)`."""
        local = [self._over(group, lambda law, p: law.residual(t, _frames(law, p)), q) for group in self.joints]
        return self._rows(local + [part.residual(t, q) for part in self.globals])

    def jacobian(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "m nv"]:
        """`C = ∂Φ/∂v` along `retract`, dense."""
        return self._placed(t, q, self.jacobian_blocks(t, q))

    def jacobian_and_schur(self, t: Scalar, q: Float[Array, " nq"]) -> tuple[Array, Array]:
        """`C`, and `S = C M⁻¹ Cᵀ`: by its blocks where the mechanism is large enough for that to pay."""
        blocks, mass = self.jacobian_blocks(t, q), self.mass()
        C = self._placed(t, q, blocks)
        if self.m < _SPARSE or self.globals:
            return C, (C / mass[None, :]) @ C.T
        return C, schur_complement(self.joints, blocks, mass, np.asarray(self.order))

    def _placed(self, t: Scalar, q: Array, blocks: Sequence[Array]) -> Array:
        dense = self._dense(blocks)
        if self.globals:
            rows = [self._global_jacobian(part, t, q) for part in self.globals]
            dense = jnp.concatenate([dense, *rows])
        return dense if _is_identity(self.order) else dense[np.asarray(self.order)]

    def jacobian_blocks(self, t: Scalar, q: Float[Array, " nq"]) -> list[Float[Array, "parts rows markers 3"]]:
        """The non-zero blocks of `C`: for each group, `(parts, rows, markers, speeds of a body)`."""

        def blocks(law: Any, poses: Array) -> Array:
            phi = _along(self.mechanism, law, t, poses)
            return jax.jacfwd(phi)(jnp.zeros_like(poses), jnp.zeros_like(t))

        return [self._over(group, blocks, q) for group in self.joints]

    def velocity(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`Φ̇ = C v + Φ_t`."""
        return self._derivative(t, q, v, order=1)

    def gamma(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """The right-hand side of `C v̇ = γ`: minus the second time derivative of `Φ` at constant `v`."""
        return -self._derivative(t, q, v, order=2)

    def load_rate(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], eta: Float[Array, " m"]
    ) -> Float[Array, " nv"]:
        """`Ċᵀ η`: how the load `Cᵀ η` of constant multipliers changes along the motion."""

        def rate(law: Any, poses: Array, twists: Array, mine: Array) -> Array:
            phi = _along(self.mechanism, law, t, poses)
            load = jax.grad(lambda step, s: jnp.dot(mine, phi(step, s)))
            at = (jnp.zeros_like(poses), jnp.zeros_like(t))
            return jax.jvp(load, at, (twists, jnp.ones_like(t)))[1]

        by_group, by_global = self._split(eta)
        total, local = jnp.zeros_like(v), []
        for group, mine in zip(self.joints, by_group, strict=True):
            near = [self._per_body(x)[group.incidence] for x in (q, v)]
            local.append(jax.vmap(lambda n, *x, g=group: rate(g.law(n), *x))(group.stacked, *near, mine))
        if local:
            total = total + self._on_bodies(local, self.joints)
        for part, mine in zip(self.globals, by_global, strict=True):
            total = total + self._global_load_rate(part, t, q, v, mine)
        return total

    def _global_load_rate(self, part: GlobalConstraint, t: Scalar, q: Array, v: Array, eta: Array) -> Array:
        def load(s: Array) -> Array:
            moved = self._retract(q, s * v)
            phi = lambda step: jnp.dot(eta, part.residual(t + s, self._retract(moved, step)))  # noqa: E731
            return jax.grad(phi)(jnp.zeros_like(q))

        return _taylor(load, t, 1)

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

    def _derivative(self, t: Scalar, q: Array, v: Array, order: int) -> Array:
        """The time derivative of `Φ(retract(q, s v), t + s)` at `s = 0`."""

        def local(law: Any, poses: Array, twists: Array) -> Array:
            phi = _along(self.mechanism, law, t, poses)
            return _taylor(lambda s: phi(s * twists, s), t, order)

        rows = [self._over(group, local, q, v) for group in self.joints]
        moved = [_taylor(lambda s, p=p: p.residual(t + s, self._retract(q, s * v)), t, order) for p in self.globals]
        return self._rows(rows + moved)

    def _global_jacobian(self, part: GlobalConstraint, t: Scalar, q: Array) -> Array:
        return jax.jacfwd(lambda step: part.residual(t, self._retract(q, step)))(jnp.zeros_like(q))

    def _retract(self, q: Array, step: Array) -> Array:
        n = len(self.mechanism.bodies)
        return jax.vmap(self.mechanism.space.retract)(q.reshape(n, -1), step.reshape(n, -1)).reshape(-1)

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

    def mass(self) -> Float[Array, " nv"]:
        """The diagonal of `M` (absolute coordinates about the centres of mass: `M` is diagonal)."""
        bodies, space = self.mechanism.bodies, self.mechanism.space
        masses, inertias = jnp.stack([b.mass for b in bodies]), jnp.stack([b.inertia for b in bodies])
        return jax.vmap(space.mass)(masses, inertias).reshape(-1)

    def force(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The generalized forces `F(q, v, t)`."""
        total = jnp.zeros_like(v)
        local = [self._over(group, lambda *a: _wrenches(self.mechanism, t, *a), q, v) for group in self.forces]
        local += [
            self._over(g, lambda *a: _along_coordinate(self.mechanism, t, *a), q, v) for g in self.coordinate_forces
        ]
        if local:
            total = total + self._on_bodies(local, (*self.forces, *self.coordinate_forces))
        for part in self.mechanism.forces:
            if isinstance(part, Gravity):
                total = total + self._weight(part)
            elif isinstance(part, GeneralizedForce):
                total = total + part.generalized(t, q, v)
        return total

    def _on_bodies(self, local: Sequence[Array], groups: Sequence[Group]) -> Array:
        """Sum what the parts of groups give for each of their bodies, `(parts, markers, 3)`, over the bodies."""
        nb = len(self.mechanism.bodies)
        bodies = np.concatenate([group.incidence.reshape(-1) for group in groups])
        table = gather_table(np.where(bodies < nb, bodies, -1), nb)
        flat = jnp.concatenate([wrench.reshape(-1, wrench.shape[-1]) for wrench in local])
        return gather_sum(flat, table).reshape(-1)

    def _weight(self, gravity: Gravity) -> Array:
        masses = jnp.stack([body.mass for body in self.mechanism.bodies])
        force = masses[:, None] * gravity.acceleration[None, :]
        return jnp.concatenate([force, jnp.zeros_like(force[:, :1])], axis=1).reshape(-1)

    def kinetic_energy(self, v: Float[Array, " nv"]) -> Scalar:
        """`½ vᵀ M v` [J]."""
        return 0.5 * jnp.sum(self.mass() * v * v)

    def potential_energy(self, t: Scalar, q: Float[Array, " nq"]) -> Scalar:
        """Energy [J] of gravity (zero at the world's origin) and of springs."""
        energy = jnp.zeros(())
        for group in self.forces:
            energy = energy + jnp.sum(self._over(group, lambda law, p: law.potential(t, _frames(law, p)), q))
        for part in self.mechanism.forces:
            if isinstance(part, Gravity):
                energy = energy - jnp.sum(self._weight(part) * q)
        return energy

    def reactions(
        self, t: Scalar, q: Float[Array, " nq"], lam: Float[Array, " m"]
    ) -> list[Float[Array, "parts markers 3"]]:
        """For each group, the wrench `−Cᵀ λ` (moment about the centre of mass) on each body it touches."""
        pairs = zip(self.jacobian_blocks(t, q), self._split(lam)[0], strict=True)
        return [-jnp.einsum("prks,pr->pks", block, mine) for block, mine in pairs]

    def _over(self, group: Group, law: Callable[..., Array], *values: Array) -> Array:
        """Map a local law over the parts of a group, given `q` (and `v`) of the bodies each one touches."""
        near = [self._per_body(x)[group.incidence] for x in values]
        return jax.vmap(lambda numbers, *local: law(group.law(numbers), *local))(group.stacked, *near)

    def _per_body(self, x: Array) -> Array:
        rows = x.reshape(len(self.mechanism.bodies), -1)
        return jnp.concatenate([rows, jnp.zeros_like(rows[:1])])


def _frames(law: Any, poses: Array) -> tuple[Frame, ...]:
    return tuple(marker.frame(pose) for marker, pose in zip(law.markers, poses, strict=True))


def _along(mechanism: Mechanism, law: Any, t: Scalar, poses: Array) -> Callable[[Array, Array], Array]:
    """`Φ(retract(q, step), t + s)` of one joint as a function of `step` and `s`."""

    def phi(step: Array, s: Array) -> Array:
        moved = [mechanism.space.retract(pose, d) for pose, d in zip(poses, step, strict=True)]
        return law.residual(t + s, tuple(m.frame(p) for m, p in zip(law.markers, moved, strict=True)))

    return phi


def _taylor(f: Callable[[Array], Array], t: Scalar, order: int) -> Array:
    """The derivative of `f(s)` of the given order at `s = 0`, by nested forward mode."""
    for _ in range(order):
        f = _differentiated(f)
    return f(jnp.zeros_like(t))


def _differentiated(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda s: jax.jvp(f, (s,), (jnp.ones_like(s),))[1]


def _wrenches(mechanism: Mechanism, t: Scalar, law: Any, poses: Array, twists: Array) -> Array:
    """Wrenches of one force, moved to the centres of mass of the bodies it acts on."""
    frames, rates = jax.jvp(lambda p: _frames(law, p), (poses,), (twists,))
    applied = law.wrenches(t, frames, rates)
    moved = [mechanism.space.to_centre(p, f.position, w) for p, f, w in zip(poses, frames, applied, strict=True)]
    return jnp.stack(moved)


def _along_coordinate(mechanism: Mechanism, t: Scalar, part: Any, poses: Array, twists: Array) -> Array:
    """Generalized forces of an effort along a coordinate: `∂c/∂v` times the effort."""

    def coordinate(step: Array) -> Array:
        moved = [mechanism.space.retract(pose, d) for pose, d in zip(poses, step, strict=True)]
        return part.coordinate.value(_frames(part, jnp.stack(moved)))

    value, slope = jax.value_and_grad(coordinate)(jnp.zeros_like(poses))
    return slope * part.law.effort(t, value, jnp.sum(slope * twists))


def _row_order(placed: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """For each row in the parts' own order, its place among the rows as the groups give them."""
    starts, position = {}, 0
    for part in placed:
        starts[part] = position
        position += sizes[part]
    return tuple(starts[part] + k for part, size in enumerate(sizes) for k in range(size))


def _is_identity(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))
