"""The equations of a mechanism: `M v̇ + Cᵀ λ = F`, `Φ(q, t) = 0`, `C v̇ = γ`.

The parts' laws are laws of bodies (`_parts`), the coordinates a change of variables (`_coordinates`, `_tree`); what is
put together here is the same for all of them. Users' own functions of all coordinates are added here too.
"""

from collections.abc import Sequence
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar
from jaxmbd.equations.body_laws import Bodies, Parts
from jaxmbd.equations.constraint_kinematics import MarkerKinematics, derivative_at_zero, taylor_pair
from jaxmbd.equations.coordinates import Absolute, AbstractCoordinates, Twists
from jaxmbd.equations.delassus import schur_of_entries, schur_of_legs
from jaxmbd.equations.inertia import AbstractInertia, BodyInertia
from jaxmbd.equations.kane_speeds import ChosenSpeeds
from jaxmbd.equations.sparse_coo import SparseMatrix, full, legs_of, vstack
from jaxmbd.equations.spd_solve import Symmetric
from jaxmbd.equations.tree_coordinates import TreeCoordinates
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.force.user import GeneralizedForce
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.space.twists import shift_wrench
from jaxmbd.space.vectors import nearest_turn


class Equations(eqx.Module):
    """Everything that the methods need of a mechanism, at a time `t`, coordinates `q` and speeds `v`.

    Shapes: `q (nq,)`, `v (nv,)`, rows of `Φ` in the order of the constraints and then the drivers, `(m,)`. A row that
    constrains velocities alone is zero in `Φ`. `redundant`: whether rows may repeat one another, which the linear solve
    then allows for; False where it is known that they do not. `kept (m,)`: the rows that accelerations are to satisfy,
    an independent set from which the others follow; None for all of them.
    """

    mechanism: Mechanism
    parts: Parts
    coordinates: AbstractCoordinates
    globals: tuple[GlobalConstraint, ...]
    redundant: bool | Bool[Array, ""]
    independent_rows: Bool[Array, " m"] | None
    sizes: tuple[int, ...] = eqx.field(static=True)
    order: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, mechanism: Mechanism, redundant: bool | Bool[Array, ""] = True) -> None:
        check_mechanism(mechanism)
        constraints = mechanism.constraints()
        self.redundant, self.independent_rows = _false_or_array(redundant), None
        self.mechanism = mechanism
        self.sizes = mechanism.constraint_sizes()
        self.parts = Parts(mechanism)
        is_absolute = mechanism.coordinates == "absolute"
        absolute = Absolute(mechanism.space, len(mechanism.bodies))
        own = absolute if is_absolute else TreeCoordinates(mechanism)
        self.coordinates = own if mechanism.speeds is None else ChosenSpeeds(own, mechanism.speeds)
        self.globals = tuple(part for part in constraints if isinstance(part, GlobalConstraint))
        is_global = [isinstance(part, GlobalConstraint) for part in constraints]
        local = [i for i, apart in enumerate(is_global) if not apart]
        placed = [local[i] for group in self.parts.joints for i in group.members]
        placed += [i for i, apart in enumerate(is_global) if apart]
        self.order = _row_order(placed, self.sizes)

    @property
    def m(self) -> int:
        """Number of constraint rows."""
        return sum(self.sizes)

    def rows_of(self, name: str) -> slice:
        """The rows of `Φ` that a joint or driver gives."""
        names = [part.name for part in self.mechanism.constraints()]
        start = sum(self.sizes[: names.index(name)])
        return slice(start, start + self.sizes[names.index(name)])

    def solved_in(self, redundant: bool | Bool[Array, ""], kept: Bool[Array, " m"] | None) -> "Equations":
        """The same equations, with what is known of their rows."""
        known = _false_or_array(redundant), kept
        return eqx.tree_at(lambda e: (e.redundant, e.independent_rows), self, known, is_leaf=lambda x: x is None)

    # --- coordinates ------------------------------------------------------------------------------------

    def rate(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """`q̇ = h(v, q, t)`, with the rates of the carried joint angles."""
        return self.at(t, q).rate(v)

    def retract(self, t: Scalar, q: Float[Array, " nq"], step: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """The coordinates reached from `q` along `step`, speeds times a time: exact to second order."""
        return self.at(t, q).perturbed(step)

    def normalize(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The same position, its redundant coordinates exact: quaternions of norm one, carried angles those of the
        joints, nearest to what they were."""
        own, turns = self.split(q)
        exact = self.coordinates.normalize(own)
        if not len(turns):
            return exact
        angles, _ = self.at(jnp.zeros((), q.dtype), q).angles(jnp.zeros(self.mechanism.nv, q.dtype))
        return jnp.concatenate([exact, nearest_turn(angles, turns)])

    def at(self, t: Scalar, q: Float[Array, " nq"]) -> "Configuration":
        """The equations at one time and position: what several of them need is computed once."""
        return Configuration(self, t, q)

    def coordinate(
        self, name: str, q: Float[Array, " nq"], v: Float[Array, " nv"], t: Scalar | None = None
    ) -> tuple[Scalar, Scalar]:
        """The value and the rate of the coordinate written `"joint.angle"` or `"body.x"`.

        `t` [s] is needed with generalized speeds of a user's choice only, whose meaning may change with time.
        """
        return self._at_time(t, q).coordinate(name, v)

    def position(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        """`Φ(q, t)`."""
        return self.at(t, q).position()

    def jacobian(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "m nv"]:
        """`C = ∂Φ/∂v` along `retract`, dense."""
        return self.at(t, q).jacobian

    def velocity(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`Φ̇ = C v + Φ_t`."""
        return self.at(t, q).velocity(v)

    def gamma(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """The right-hand side of `C v̇ = γ`: minus the second time derivative of `Φ` at constant `v`."""
        return self.at(t, q).gamma(v)

    def constraint_force_rate(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], eta: Float[Array, " m"]
    ) -> Float[Array, " nv"]:
        """`Ċᵀ η`: how the load `Cᵀ η` of constant multipliers changes along the motion."""
        return self.at(t, q).constraint_force_rate(v, eta)

    def mass(self, q: Float[Array, " nq"], t: Scalar | None = None) -> Float[Array, "nv nv"]:
        """`M`, dense; in absolute coordinates a block for each body. `t` as for `coordinate`."""
        return self._at_time(t, q).inertia.matrix()

    def force(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The generalized forces `F(q, v, t)`: applied and gyroscopic ones, and those of velocity products."""
        return self.at(t, q).force(v)

    def kinetic_energy(self, q: Float[Array, " nq"], v: Float[Array, " nv"], t: Scalar | None = None) -> Scalar:
        """The bodies' kinetic energy `½ Vᵀ M_b V` [J]. `t` as for `coordinate`."""
        return self._at_time(t, q).kinetic_energy(v)

    def potential_energy(self, t: Scalar, q: Float[Array, " nq"]) -> Scalar:
        """Energy [J] of gravity (zero at the world's origin), springs and contacts."""
        return self.at(t, q).potential_energy()

    def _at_time(self, t: Scalar | None, q: Float[Array, " nq"]) -> "Configuration":
        """The position; its time may be left out where nothing that is asked depends on it."""
        if t is None and self.mechanism.speeds is not None:
            raise MechanismError(
                "With GeneralizedSpeeds, v = A(q, t) p + b(q, t) depends on the time: give t too, such as "
                "equations.mass(q, t)."
            )
        return self.at(jnp.zeros((), q.dtype) if t is None else jnp.asarray(t, q.dtype), q)

    def multipliers(self, lam: Float[Array, " m"]) -> tuple[list[Array], list[Array]]:
        """One number per row, `(m,)`, as `(parts, rows)` for each group and `(rows,)` for each global constraint."""
        is_global = [isinstance(part, GlobalConstraint) for part in self.mechanism.constraints()]
        local = [size for size, apart in zip(self.sizes, is_global, strict=True) if not apart]
        counts = [(len(group.members), local[group.members[0]]) for group in self.parts.joints]
        sizes = [parts * rows for parts, rows in counts]
        sizes += [size for size, apart in zip(self.sizes, is_global, strict=True) if apart]
        flat = lam[np.argsort(np.asarray(self.order, dtype=int))]
        pieces = jnp.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
        groups = [piece.reshape(shape) for piece, shape in zip(pieces, counts, strict=False)]
        return groups, list(pieces[len(counts) :])

    def split(self, q: Float[Array, " nq"]) -> tuple[Array, Array]:
        """The coordinates proper, and the carried joint angles."""
        count = len(self.mechanism.tree.coordinates)
        return q[:count], q[count:]

    def in_order(self, parts: Sequence[Array]) -> Array:
        """Values for the rows, as the groups and then the global constraints give them, in the mechanism's order."""
        if not parts:
            return jnp.zeros((0,))
        flat = jnp.concatenate(parts)
        return flat if _is_identity(self.order) else flat[np.asarray(self.order)]


class Configuration:
    """The equations of a mechanism at a time `t` and coordinates `q`; see `Equations` for shapes and symbols."""

    def __init__(self, equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> None:
        self.equations, self.t, self.q = equations, t, q
        self.mechanism, self.parts, self.space = equations.mechanism, equations.parts, equations.mechanism.space
        self.placement = equations.coordinates.at(t, equations.split(q)[0])
        self.bodies = Bodies(self.placement.frames, q)

    # --- bodies and markers -----------------------------------------------------------------------------

    def poses(self) -> Float[Array, "bodies pose"]:
        """The poses of the bodies."""
        return self.placement.poses()

    def twists(self, v: Float[Array, " nv"]) -> Twists:
        """The twists of the bodies, `V = J v`."""
        return self.placement.twists(v)

    def accelerations(self, v: Float[Array, " nv"], vdot: Float[Array, " nv"]) -> Twists:
        """How the twists change, `V̇ = J v̇ + a`."""
        return self.placement.accelerations(v, vdot)

    def rate(self, v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """`q̇`, with the rates of the carried joint angles."""
        qdot = self.placement.rate(v)
        return jnp.concatenate([qdot, self.angles(v)[1]]) if self.mechanism.turns else qdot

    def perturbed(self, step: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """The coordinates reached along `step`."""
        return self._with_turns(self.placement.perturbed(step))

    def advanced(self, v: Float[Array, " nv"], s: Scalar) -> Float[Array, " nq"]:
        """The coordinates a time `s` later, at constant `v`: exact to second order."""
        return self._with_turns(self.placement.along(v, s))

    def angles(self, v: Float[Array, " nv"]) -> tuple[Array, Array]:
        """The carried joint angles, each up to whole turns, and their rates."""
        return self.parts.angles(self.t, self.bodies, self.twists(v))

    def _with_turns(self, own: Array) -> Array:
        return self.equations.normalize(jnp.concatenate([own, self.equations.split(self.q)[1]]))

    def coordinate(self, name: str, v: Float[Array, " nv"]) -> tuple[Scalar, Scalar]:
        """The value and the rate of the coordinate written `"joint.angle"` or `"body.x"`."""
        coordinate, names = self.mechanism.coordinate(name), self.mechanism.coordinate_names
        if name in names:
            coordinate = coordinate.by(self.q[names.index(name)])
        near = self.near(coordinate.markers)
        rates = near.rates(self.on_markers(coordinate.markers, self.twists(v)))
        return taylor_pair(lambda s: coordinate.value(near.perturbed(s * rates)), jnp.zeros((), self.q.dtype))

    def near(self, markers: Sequence[AbstractMarker]) -> MarkerKinematics:
        """Markers in the world."""
        bodies = jax.tree.map(lambda x: x[self._carriers(markers)], self.bodies.frames)
        return MarkerKinematics(self.space, markers, bodies, self.t)

    def on_markers(self, markers: Sequence[AbstractMarker], twists: Twists) -> Float[Array, "markers twist"]:
        """Of values for the bodies, those of the bodies that carry the markers; zero for the ground."""
        return jnp.concatenate([twists, jnp.zeros_like(twists[:1])])[self._carriers(markers)]

    def _carriers(self, markers: Sequence[AbstractMarker]) -> np.ndarray:
        index = {body.name: i for i, body in enumerate(self.mechanism.bodies)}
        return np.asarray([index.get(marker.body, len(index)) for marker in markers], dtype=int)

    # --- constraints ------------------------------------------------------------------------------------

    def position(self) -> Float[Array, " m"]:
        """`Φ`."""
        own = [part.residual(self.t, self.q) for part in self.equations.globals]
        return self._rows(self.parts.position(self.t, self.bodies), own)

    @cached_property
    def blocks(self) -> list[Float[Array, "parts rows markers twist"]]:
        """The non-zero blocks of `C_b`, by the bodies' twists."""
        return self.parts.blocks(self.t, self.bodies)

    @cached_property
    def jacobian(self) -> Float[Array, "m nv"]:
        """`C`."""
        return self.entries.dense()

    @cached_property
    def entries(self) -> SparseMatrix:
        """`C` by its entries."""
        local = self.placement.rows(self.parts.joints, self.blocks)
        own = [full(self._global_jacobian(part)) for part in self.equations.globals]
        return vstack([local, *own]).reordered(self.equations.order)

    def times(self, v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`C v`, by the blocks of `C`."""
        twists = self.twists(v) - self.twists(jnp.zeros_like(v))  # without those that chosen speeds give at zero
        own = [self._global_jacobian(part) @ v for part in self.equations.globals]
        return self._rows(self.parts.along(self.blocks, twists), own)

    def constraint_force(self, eta: Float[Array, " m"]) -> Float[Array, " nv"]:
        """`Cᵀ η`, by the blocks of `C`."""
        by_group, by_global = self.equations.multipliers(eta)
        total = self.placement.loads(self.parts.constraint_force(self.blocks, by_group))
        for part, mine in zip(self.equations.globals, by_global, strict=True):
            total = total + self._global_jacobian(part).T @ mine
        return total

    def schur(self) -> Symmetric:
        """`S = C M⁻¹ Cᵀ`: by its blocks where those of `M` are the bodies'."""
        equations = self.equations
        if equations.globals or not isinstance(self.inertia, BodyInertia):
            return schur_of_entries(self.entries, self.inertia)
        legs = legs_of(self.parts.joints, self.blocks, len(self.space.speeds))
        return schur_of_legs(legs, self.parts.inertia, self.space.acceleration, np.asarray(equations.order, dtype=int))

    def velocity(self, v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`Φ̇ = C v + Φ_t`."""
        own = [self._global_derivative(part, v, 1) for part in self.equations.globals]
        return self._rows(self.parts.velocity(self.t, self.bodies, self.twists(v)), own)

    def gamma(self, v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`γ`, with `C v̇ = γ`."""
        local, drift = self.parts.gamma(self.t, self.bodies, self.twists(v)), self.placement.drift(v)
        if drift is not None:
            pairs = zip(local, self.parts.along(self.blocks, drift), strict=True)
            local = [gamma - change for gamma, change in pairs]
        return self._rows(local, [-self._global_derivative(part, v, 2) for part in self.equations.globals])

    def constraint_force_rate(self, v: Float[Array, " nv"], eta: Float[Array, " m"]) -> Float[Array, " nv"]:
        """`Ċᵀ η`."""
        by_group, by_global = self.equations.multipliers(eta)
        total = self.placement.loads(self.parts.constraint_force_rate(self.t, self.bodies, self.twists(v), by_group))
        total = total + self.placement.constraint_force_rate(v, self.parts.constraint_force(self.blocks, by_group))
        for part, mine in zip(self.equations.globals, by_global, strict=True):
            total = total + self._global_load_rate(part, v, mine)
        return total

    def _rows(self, local: Sequence[Array], own: Sequence[Array]) -> Array:
        return self.equations.in_order([*(rows.reshape(-1) for rows in local), *own])

    def _global_derivative(self, part: GlobalConstraint, v: Array, order: int) -> Array:
        return derivative_at_zero(lambda s: part.residual(self.t + s, self.advanced(v, s)), self.t, order)

    def _global_jacobian(self, part: GlobalConstraint) -> Array:
        still = jnp.zeros(self.mechanism.nv, self.q.dtype)
        return jax.jacfwd(lambda step: part.residual(self.t, self.perturbed(step)))(still)

    def _global_load_rate(self, part: GlobalConstraint, v: Array, eta: Array) -> Array:
        def load(s: Array) -> Array:
            there = self.equations.at(self.t + s, self.advanced(v, s))
            phi = lambda step: jnp.dot(eta, part.residual(there.t, there.perturbed(step)))  # noqa: E731
            return jax.grad(phi)(jnp.zeros_like(v))

        return derivative_at_zero(load, self.t, 1)

    # --- inertia and forces -----------------------------------------------------------------------------

    @cached_property
    def inertia(self) -> AbstractInertia:
        """`M`, ready for products and solves."""
        return self.placement.inertia(self.parts.inertia)

    def force(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`F`."""
        efforts, drift = self.parts.efforts(self.t, self.bodies, self.twists(v)), self.placement.drift(v)
        total = self.placement.loads(efforts if drift is None else efforts - self.parts.momenta(drift))
        for part in self.mechanism.forces:
            if isinstance(part, GeneralizedForce):
                total = total + part.generalized(self.t, self.q, v)
        return total

    def inertia_rate(self, v: Float[Array, " nv"], u: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`Ṁ u` along the motion."""
        turned = self.placement.twist_rate(v, u)
        if turned is None:
            return jnp.zeros_like(u)
        twists = self.twists(u) - self.twists(jnp.zeros_like(u))  # without those that chosen speeds give at zero
        loads = self.placement.constraint_force_rate(v, self.parts.momenta(twists))
        return loads + self.placement.loads(self.parts.momenta(turned))

    def kinetic_energy(self, v: Float[Array, " nv"]) -> Scalar:
        """The bodies' kinetic energy `½ Vᵀ M_b V` [J]."""
        twists = self.twists(v)
        return 0.5 * jnp.sum(self.parts.momenta(twists) * twists)

    def slowest(self) -> Float[Array, " nv"] | None:
        """The speeds of least kinetic energy, where chosen speeds of zero are not rest; None where these are zero.

        With `V = J v + V₀`, `M v = −Jᵀ M_b V₀`.
        """
        if self.mechanism.speeds is None:
            return None
        at_zero = self.twists(jnp.zeros(self.mechanism.nv, self.q.dtype))
        return -self.inertia.solve(self.placement.loads(self.parts.momenta(at_zero)))

    def potential_energy(self) -> Scalar:
        """Energy [J] of gravity, springs and contacts."""
        return self.parts.potential(self.t, self.bodies)

    # --- reactions --------------------------------------------------------------------------------------

    def reactions(self, lam: Float[Array, " m"]) -> list[Float[Array, "parts markers twist"]]:
        """For each group, the wrench at each marker that multipliers put on its body: world axes."""
        wrenches, mine = self.parts.wrenches(self.t, self.bodies), self.equations.multipliers(lam)[0]
        return [-jnp.einsum("prks,pr->pks", w, x) for w, x in zip(wrenches, mine, strict=True)]

    def transmitted(self, v: Array, vdot: Array, lam: Float[Array, " m"]) -> Float[Array, "bodies twist"]:
        """What the joint of the tree that carries each body does to it: a wrench about the world's origin.

        Such a joint has no multipliers. It transmits what the body and all bodies beyond need, besides other forces
        and constraints, to move as they do: `Σ (M_b V̇ − W + C_bᵀ λ)`.
        """
        missing = self.parts.momenta(self.accelerations(v, vdot))
        missing = missing - self.parts.efforts(self.t, self.bodies, self.twists(v))
        missing = missing + self.parts.constraint_force(self.blocks, self.equations.multipliers(lam)[0])
        bodies = jax.tree.map(lambda x: x[:-1], self.bodies.frames)
        wrenches = jax.vmap(lambda body, f: shift_wrench(self.space.in_world(body, f), -body.position))(bodies, missing)
        return self.placement.subtree_sum(wrenches)

    def at_joint(self, name: str, transmitted: Float[Array, "bodies twist"]) -> Float[Array, "markers twist"]:
        """The wrench at each marker of a joint of the tree, from what is `transmitted`: world axes."""
        branch = next(branch for branch in self.mechanism.tree.branches if branch.joint == name)
        points = self.near(self.mechanism[name].markers).stack.position
        signs = (1.0, -1.0) if branch.backward else (-1.0, 1.0)
        return jnp.stack([s * shift_wrench(transmitted[branch.child], p) for s, p in zip(signs, points, strict=True)])


def _false_or_array(redundant: bool | Bool[Array, ""]) -> bool | Bool[Array, ""]:
    """False as it is, so that nothing is compiled for it; else an array."""
    return redundant if redundant is False else jnp.asarray(redundant)


def _row_order(placed: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """For each row in the parts' own order, its place among the rows as the groups give them."""
    starts, position = {}, 0
    for part in placed:
        starts[part] = position
        position += sizes[part]
    return tuple(starts[part] + k for part, size in enumerate(sizes) for k in range(size))


def _is_identity(order: tuple[int, ...]) -> bool:
    return order == tuple(range(len(order)))
