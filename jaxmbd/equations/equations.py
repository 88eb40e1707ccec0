"""The equations of a mechanism: `M v̇ + Cᵀ λ = F`, `Φ(q, t) = 0`, `C v̇ = γ`.

Forces, inertia and constraints are evaluated on the bodies (`body_laws`), and the choice of coordinates is a change of
variables (`coordinates`, `tree_coordinates`). This file combines the two and adds the users' functions
of all coordinates (`GlobalConstraint`, `GeneralizedForce`).
"""

from collections.abc import Sequence
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar, at_rows, combined
from jaxmbd.engine import known_by_numpy
from jaxmbd.equations.body_laws import BodyFrames, BodyLaws
from jaxmbd.equations.constraint_kinematics import (
    ConstraintRows,
    MarkerKinematics,
    derivative_at_zero,
    legs_of,
    taylor_pair,
)
from jaxmbd.equations.coordinates import AbsoluteCoordinates, AbstractCoordinates, CoordinatesWithSpeeds, Twists
from jaxmbd.equations.flexible_coordinates import FlexibleCoordinates
from jaxmbd.equations.inertia import AbstractInertia, BodyInertia, schur_of_entries, schur_of_legs, with_armatures
from jaxmbd.equations.kinematic_quantities import KinematicReader
from jaxmbd.equations.tree_coordinates import TreeCoordinates
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.flexible import flexible, frame_index
from jaxmbd.model.force.force import GeneralizedForce
from jaxmbd.model.force.load_friction import with_loads
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism, check_numbers
from jaxmbd.model.mechanism.named_coordinates import OwnCoordinate
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.numerics.linear_solve import SymmetricMatrix
from jaxmbd.numerics.sparse_matrices import SparseMatrix, full, vstack
from jaxmbd.space.vectors import nearest_turn
from jaxmbd.upstream.equinox_internals import binds_methods_at_once, with_fields


@binds_methods_at_once
class Equations(eqx.Module):
    """The equations of motion of a mechanism as functions of the time `t`, the coordinates `q` and the speeds `v`.

    Shapes: `q (nq,)`, `v (nv,)`; the constraint rows `(m,)` are in the order of the constraints and then the drivers. A
    nonholonomic row is zero in `Φ`. `redundant`: False if the rows are known to be linearly independent; otherwise the
    linear solve allows for dependent rows. `independent_rows (m,)`: mask of a maximal independent set of rows, the ones
    that the accelerations are solved to satisfy; None for all rows. `scales`: the units in which ranks are found.
    Users' functions are traced once, as under `jit`.
    """

    mechanism: Mechanism
    parts: BodyLaws
    coordinates: AbstractCoordinates
    globals: tuple[GlobalConstraint, ...]
    redundant: bool | Bool[Array, ""]
    independent_rows: Bool[Array, " m"] | None
    scales: Scales
    sizes: tuple[int, ...] = eqx.field(static=True)
    order: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, mechanism: Mechanism, redundant: bool | Bool[Array, ""] = True) -> None:
        check_mechanism(mechanism)
        check_numbers(mechanism)
        constraints = mechanism.constraints()
        self.mechanism, self.redundant, self.independent_rows = mechanism, _false_or_array(redundant), None
        self.sizes = mechanism.constraint_sizes()
        self.scales = Scales(mechanism, self.sizes)
        self.parts = BodyLaws(mechanism)
        is_absolute = mechanism.coordinates == "absolute"
        absolute = AbsoluteCoordinates(mechanism.space, len(mechanism.bodies))
        base = absolute if is_absolute else TreeCoordinates(mechanism)
        base = FlexibleCoordinates(base, mechanism) if flexible(mechanism.bodies) else base
        self.coordinates = base if mechanism.speeds is None else CoordinatesWithSpeeds(base, mechanism.speeds)
        self.globals = tuple(part for part in constraints if isinstance(part, GlobalConstraint))
        local = [i for i, part in enumerate(constraints) if not isinstance(part, GlobalConstraint)]
        by_group = [local[i] for group in self.parts.joints for i in group.members]
        by_group += [i for i, part in enumerate(constraints) if isinstance(part, GlobalConstraint)]
        self.order = _row_order(by_group, self.sizes)

    @property
    def acts_on_coordinates(self) -> bool:
        """True if users' functions of all coordinates load the mechanism, without saying on which bodies they act."""
        return bool(self.globals) or any(isinstance(part, GeneralizedForce) for part in self.mechanism.forces)

    @property
    def m(self) -> int:
        """Number of constraint rows."""
        return sum(self.sizes)

    def solved_in(self, redundant: bool | Bool[Array, ""], independent_rows: Bool[Array, " m"] | None) -> "Equations":
        """The same equations with other values of `redundant` and of `independent_rows`."""
        values = _false_or_array(redundant), independent_rows
        return eqx.tree_at(lambda e: (e.redundant, e.independent_rows), self, values, is_leaf=lambda x: x is None)

    def with_forces(self, mechanism: Mechanism) -> "Equations":
        """The same equations with the forces of `mechanism`, which differs in these alone."""
        new = BodyLaws(mechanism)
        changed = {x: getattr(new, x) for x in ("gravity", "forces", "coordinate_forces", "force_places")}
        return with_fields(self, mechanism=mechanism, parts=with_fields(self.parts, **changed))

    def with_own_states(self, z: Float[Array, " nz"]) -> "Equations":
        """The same equations with these values of the states of parts."""
        return self.with_forces(self.mechanism.with_own_states(z)) if len(z) else self

    def with_loads(self, loads: Float[Array, " k"]) -> "Equations":
        """The same equations with these loads of the joints that rub."""
        return self.with_forces(self.mechanism.replaced(forces=with_loads(self.mechanism.forces, loads)))

    # --- coordinates ------------------------------------------------------------------------------------

    @known_by_numpy
    def rate(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """`q̇ = h(v, q, t)`, including the rates of the integrated joint angles."""
        return self.at(t, q).rate(v)

    @known_by_numpy
    def retract(self, t: Scalar, q: Float[Array, " nq"], step: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """The coordinates after a `step` (speeds times a time) from `q`, exact to second order."""
        return self.at(t, q).perturbed(step)

    def normalize(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The same configuration with consistent redundant coordinates.

        Quaternions get unit norm, and each integrated joint angle becomes the joint's own angle plus the number of
        whole turns that is nearest to its previous value.
        """
        coordinates, turns = self.split(q)
        exact = self.coordinates.normalize(coordinates)
        if not len(turns):
            return exact
        angles, _ = self.at(jnp.zeros((), q.dtype), q).angles(jnp.zeros(self.mechanism.nv, q.dtype))
        return jnp.concatenate([exact, nearest_turn(angles, turns)])

    def at(self, t: Scalar, q: Float[Array, " nq"]) -> "Configuration":
        """The equations at one time and configuration; common subexpressions are evaluated once."""
        return Configuration(self, t, q)

    @known_by_numpy
    def coordinate(
        self, name: str, q: Float[Array, " nq"], v: Float[Array, " nv"], t: Scalar | None = None
    ) -> tuple[Scalar, Scalar]:
        """The value and the rate of the coordinate written `"joint.angle"` or `"body.x"`.

        `t` [s] is required only with `GeneralizedSpeeds`, because their definition may depend on time.
        """
        return self._at_time(t, q).coordinate(name, v)

    @known_by_numpy
    def position(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        """`Φ(q, t)`."""
        return self.at(t, q).position()

    @known_by_numpy
    def jacobian(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "m nv"]:
        """`C = ∂Φ/∂v` along `retract`, dense."""
        return self.at(t, q).jacobian

    @known_by_numpy
    def scaled_jacobian(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "m nv"]:
        """`C` without units (`Scales.jacobian`), whose rank and singular values do not depend on the mechanism's
        size."""
        return self.scales.jacobian(self.at(t, q).jacobian)

    @known_by_numpy
    def velocity(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`Φ̇ = C v + Φ_t`."""
        return self.at(t, q).velocity(v)

    @known_by_numpy
    def gamma(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """The right-hand side of `C v̇ = γ`: minus the second time derivative of `Φ` at constant `v`."""
        return self.at(t, q).gamma(v)

    @known_by_numpy
    def constraint_force_rate(
        self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"], eta: Float[Array, " m"]
    ) -> Float[Array, " nv"]:
        """`Ċᵀ η`: time derivative of the constraint force `Cᵀ η` along the motion, for constant multipliers `η`."""
        return self.at(t, q).constraint_force_rate(v, eta)

    @known_by_numpy
    def mass(self, q: Float[Array, " nq"], t: Scalar | None = None) -> Float[Array, "nv nv"]:
        """The mass matrix `M`, dense. `t` as for `coordinate`."""
        return self._at_time(t, q).inertia.matrix()

    @known_by_numpy
    def force(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The generalized forces `F(q, v, t)`: applied forces, gyroscopic and Coriolis terms."""
        return self.at(t, q).force(v)

    @known_by_numpy
    def kinetic_energy(self, q: Float[Array, " nq"], v: Float[Array, " nv"], t: Scalar | None = None) -> Scalar:
        """The kinetic energy of bodies and armatures [J]. `t` as for `coordinate`."""
        return self._at_time(t, q).kinetic_energy(v)

    @known_by_numpy
    def potential_energy(self, t: Scalar, q: Float[Array, " nq"]) -> Scalar:
        """Potential energy [J] of gravity (zero at the world's origin), springs and contacts."""
        return self.at(t, q).potential_energy()

    def _at_time(self, t: Scalar | None, q: Float[Array, " nq"]) -> "Configuration":
        """The configuration at `t`; `t` may be None unless `GeneralizedSpeeds` make the result depend on it."""
        if t is None and self.mechanism.speeds is not None:
            raise MechanismError(
                "With GeneralizedSpeeds, v = A(q, t) p + b(q, t) depends on the time: give t too, such as "
                "equations.mass(q, t)."
            )
        return self.at(jnp.zeros((), q.dtype) if t is None else jnp.asarray(t, q.dtype), q)

    def multipliers(self, lam: Float[Array, " m"]) -> tuple[list[Array], list[Array]]:
        """Split one value per row, `(m,)`, into `(parts, rows)` per group and `(rows,)` per global constraint."""
        is_global = [isinstance(part, GlobalConstraint) for part in self.mechanism.constraints()]
        local = [size for size, is_separate in zip(self.sizes, is_global, strict=True) if not is_separate]
        shapes = [(len(group.members), local[group.members[0]]) for group in self.parts.joints]
        sizes = [parts * rows for parts, rows in shapes]
        sizes += [size for size, is_separate in zip(self.sizes, is_global, strict=True) if is_separate]
        flat = at_rows(lam, np.argsort(np.asarray(self.order, dtype=int)))
        pieces = jnp.split(flat, np.cumsum(sizes)[:-1]) if sizes else []
        groups = [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=False)]
        return groups, list(pieces[len(shapes) :])

    def split(self, q: Float[Array, " nq"]) -> tuple[Array, Array]:
        """The coordinates of the bodies or tree joints, and the integrated joint angles."""
        count = len(self.mechanism.tree.coordinates)
        return q[:count], q[count:]

    def in_order(self, parts: Sequence[Array]) -> Array:
        """Concatenate row values of the groups and then of the global constraints, and permute them to the order of
        the mechanism."""
        if not parts:
            return jnp.zeros((0,))
        flat = jnp.concatenate(parts)
        return flat if self.order == tuple(range(len(self.order))) else at_rows(flat, np.asarray(self.order))


class Configuration:
    """The equations of motion evaluated at a time `t` and coordinates `q`; `Equations` defines shapes and symbols."""

    def __init__(self, equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> None:
        self.equations, self.t, self.q = equations, t, q
        self.mechanism, self.parts, self.space = equations.mechanism, equations.parts, equations.mechanism.space
        self.placement = equations.coordinates.at(t, equations.split(q)[0])
        self.bodies = BodyFrames(self.placement.frames, q)

    # --- bodies and markers -----------------------------------------------------------------------------

    def poses(self) -> Float[Array, "bodies pose"]:
        """The poses of the bodies."""
        return self.placement.poses()

    def twists(self, v: Float[Array, " nv"]) -> Twists:
        """The twists of the bodies, `V = J v`."""
        return self.placement.twists(v)

    def accelerations(self, v: Float[Array, " nv"], vdot: Float[Array, " nv"]) -> Twists:
        """The time derivatives of the bodies' twists, `V̇ = J v̇ + a`."""
        return self.placement.accelerations(v, vdot)

    def rate(self, v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """`q̇`, including the rates of the integrated joint angles, and what drives quaternions' norms to one."""
        qdot = self.placement.rate(v) + self.equations.scales.decay * self.placement.pull()
        return jnp.concatenate([qdot, self.angles(v)[1]]) if self.mechanism.turns else qdot

    def perturbed(self, step: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """The coordinates after a `step` (speeds times a time)."""
        return self._with_turns(self.placement.perturbed(step))

    def advanced(self, v: Float[Array, " nv"], s: Scalar) -> Float[Array, " nq"]:
        """The coordinates after a time `s` at constant `v`, exact to second order."""
        return self._with_turns(self.placement.along(v, s))

    def angles(self, v: Float[Array, " nv"]) -> tuple[Array, Array]:
        """The integrated joint angles, each modulo whole turns, and their rates."""
        return self.parts.angles(self.t, self.bodies, self.twists(v))

    def _with_turns(self, coordinates: Array) -> Array:
        return self.equations.normalize(jnp.concatenate([coordinates, self.equations.split(self.q)[1]]))

    def coordinate(self, name: str, v: Float[Array, " nv"]) -> tuple[Scalar, Scalar]:
        """The value and the rate of the coordinate written `"joint.angle"` or `"body.x"`."""
        coordinate, names = self.mechanism.coordinate(name), self.mechanism.coordinate_names
        if isinstance(coordinate, OwnCoordinate):  # of a flexible body: no function of frames
            k = names.index(name)
            return self.q[k], self.placement.rate(v)[k]
        coordinate = coordinate.bound(iter([self.q[names.index(own.name)] for own in coordinate.in_q]))
        kinematics = self.near(coordinate.markers)
        rates = kinematics.rates(self.on_markers(coordinate.markers, self.twists(v)))
        return taylor_pair(lambda s: coordinate.value(kinematics.perturbed(s * rates)), jnp.zeros((), self.q.dtype))

    def near(self, markers: Sequence[AbstractMarker]) -> MarkerKinematics:
        """The kinematics of markers in the world."""
        bodies = jax.tree.map(lambda x: at_rows(x, self._body_indices(markers)), self.bodies.frames)
        return MarkerKinematics(self.space, markers, bodies, self.t)

    def on_markers(self, markers: Sequence[AbstractMarker], twists: Twists) -> Float[Array, "markers twist"]:
        """Gather per-body twists by marker: the twist of the body that each marker is attached to, zero for the
        ground."""
        return at_rows(jnp.concatenate([twists, jnp.zeros_like(twists[:1])]), self._body_indices(markers))

    def _body_indices(self, markers: Sequence[AbstractMarker]) -> np.ndarray:
        index = frame_index(self.mechanism.bodies)
        return np.asarray([index[marker.body] for marker in markers], dtype=int)

    # --- constraints ------------------------------------------------------------------------------------

    def position(self) -> Float[Array, " m"]:
        """`Φ`."""
        global_rows = [part.residual(self.t, self.q) for part in self.equations.globals]
        return self._rows(self.parts.rows(ConstraintRows.position, self.t, self.bodies), global_rows)

    def sides(self) -> Float[Array, " sides"]:
        """The sides of the constraints that have one, in their order (`sided_joints`): positive on the right side."""
        return self.parts.sides(self.t, self.bodies)

    @cached_property
    def blocks(self) -> list[Float[Array, "parts rows markers twist"]]:
        """The nonzero blocks of `C_b`, the Jacobian with respect to the bodies' twists."""
        return self.parts.rows(ConstraintRows.jacobian, self.t, self.bodies)

    @cached_property
    def jacobian(self) -> Float[Array, "m nv"]:
        """`C`."""
        return self.entries.dense()

    @cached_property
    def entries(self) -> SparseMatrix:
        """`C` as a sparse matrix."""
        local = self.placement.rows(legs_of(self.parts.joints, self.blocks, len(self.space.speeds)))
        global_rows = [full(self._global_jacobian(part)) for part in self.equations.globals]
        return vstack([local, *global_rows]).reordered(self.equations.order)

    def _linear_twists(self, v: Float[Array, " nv"]) -> Twists:
        """`J v`: the twists without `V₀`, which is not zero with `GeneralizedSpeeds`."""
        return self.twists(v) - self.twists(jnp.zeros_like(v))

    def times(self, v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`C v`, computed from the blocks of `C_b`."""
        twists = self._linear_twists(v)
        global_rows = [self._global_jacobian(part) @ v for part in self.equations.globals]
        return self._rows(self.parts.along(self.blocks, twists), global_rows)

    def constraint_force(self, eta: Float[Array, " m"]) -> Float[Array, " nv"]:
        """`Cᵀ η`, computed from the blocks of `C_b`."""
        by_group, by_global = self.equations.multipliers(eta)
        total = self.placement.loads(self.parts.constraint_force(self.blocks, by_group))
        for part, eta_part in zip(self.equations.globals, by_global, strict=True):
            total = total + self._global_jacobian(part).T @ eta_part
        return total

    def schur(self) -> SymmetricMatrix:
        """`S = C M⁻¹ Cᵀ`, assembled body by body if `M` is block diagonal by bodies and all constraints are local."""
        equations = self.equations
        if equations.globals or not isinstance(self.inertia, BodyInertia):
            return schur_of_entries(self.entries, self.inertia)
        legs = legs_of(self.parts.joints, self.blocks, len(self.space.speeds))
        return schur_of_legs(legs, self.parts.inertia, self.space.acceleration, np.asarray(equations.order, dtype=int))

    def velocity(self, v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`Φ̇ = C v + Φ_t`."""
        global_rows = [self._global_derivative(part, v, 1) for part in self.equations.globals]
        twists = self.parts.on_joints(self.twists(v))
        return self._rows(self.parts.rows(ConstraintRows.velocity, self.t, self.bodies, twists), global_rows)

    def gamma(self, v: Float[Array, " nv"]) -> Float[Array, " m"]:
        """`γ`, with `C v̇ = γ`."""
        twists, drift = self.parts.on_joints(self.twists(v)), self.placement.drift(v)
        local = self.parts.rows(ConstraintRows.gamma, self.t, self.bodies, twists)
        if drift is not None:
            pairs = zip(local, self.parts.along(self.blocks, drift), strict=True)
            local = [gamma - projected for gamma, projected in pairs]
        return self._rows(local, [-self._global_derivative(part, v, 2) for part in self.equations.globals])

    def constraint_force_rate(self, v: Float[Array, " nv"], eta: Float[Array, " m"]) -> Float[Array, " nv"]:
        """`Ċᵀ η`."""
        by_group, by_global = self.equations.multipliers(eta)
        total = self.placement.loads(self.parts.constraint_force_rate(self.t, self.bodies, self.twists(v), by_group))
        total = total + self.placement.loads_rate(v, self.parts.constraint_force(self.blocks, by_group))
        for part, eta_part in zip(self.equations.globals, by_global, strict=True):
            total = total + self._global_force_rate(part, v, eta_part)
        return total

    def _rows(self, local: Sequence[Array], global_rows: Sequence[Array]) -> Array:
        return self.equations.in_order([*(rows.reshape(-1) for rows in local), *global_rows])

    def _global_derivative(self, part: GlobalConstraint, v: Array, order: int) -> Array:
        return derivative_at_zero(lambda s: part.residual(self.t + s, self.advanced(v, s)), self.t, order)

    def _global_jacobian(self, part: GlobalConstraint) -> Array:
        zero = jnp.zeros(self.mechanism.nv, self.q.dtype)
        return jax.jacfwd(lambda step: part.residual(self.t, self.perturbed(step)))(zero)

    def _global_force_rate(self, part: GlobalConstraint, v: Array, eta: Array) -> Array:
        def load(s: Array) -> Array:
            configuration = self.equations.at(self.t + s, self.advanced(v, s))
            phi = lambda step: jnp.dot(eta, part.residual(configuration.t, configuration.perturbed(step)))  # noqa: E731
            return jax.grad(phi)(jnp.zeros_like(v))

        return derivative_at_zero(load, self.t, 1)

    # --- inertia and forces -----------------------------------------------------------------------------

    @cached_property
    def inertia(self) -> AbstractInertia:
        """`M` with its products and solves."""
        of_bodies = self.placement.inertia(self.parts.inertia)
        if not self.parts.armatures:
            return of_bodies
        rows = self.placement.rows(legs_of(self.parts.armatures, self.armature_blocks, len(self.space.speeds)))
        return with_armatures(of_bodies, rows, jnp.concatenate([x.stacked.inertia for x in self.parts.armatures]))

    @cached_property
    def armature_blocks(self) -> list[Float[Array, "parts 1 markers twist"]]:
        """The nonzero blocks of `g = ∂ċ/∂V` for the coordinates with an armature."""
        return self.parts.armature_blocks(self.t, self.bodies)

    def momenta(self, twists: Twists) -> Twists:
        """`M_b V`, the armatures included."""
        return self.parts.momenta(self.armature_blocks, twists)

    def momentum(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`M v`, body by body, without the entries of `M`."""
        total, own = self.placement.loads(self.momenta(self._linear_twists(v))), self.placement.own_momenta(v)
        return total if own is None else total + own

    def driven(self, v: Float[Array, " nv"]) -> Equations:
        """The same equations with the outputs of controllers added to the inputs that they drive."""
        driven = any(controller.driven for controller in self.mechanism.controllers)
        return self.equations.with_forces(KinematicReader(self, v).driven()) if driven else self.equations

    def force(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`F`."""
        drift, efforts = self.placement.drift(v), self.driven(v).parts.efforts(self.t, self.bodies, self.twists(v))
        total = self.placement.loads(efforts if drift is None else efforts - self.momenta(drift))
        own = self.placement.own_loads(v)
        total = total if own is None else total + own
        for part in self.mechanism.forces:
            if isinstance(part, GeneralizedForce):
                total = total + part.generalized(self.t, self.q, v)
        return total

    def own_rates(self, v: Float[Array, " nv"]) -> Float[Array, " nz"]:
        """The rates `ż` of the states of parts, at the values that the parts hold."""
        return KinematicReader(self, v).own_rates()

    def steady_states(self, v: Float[Array, " nv"]) -> Float[Array, " nz"]:
        """The states of parts at which their rates are zero."""
        return KinematicReader(self, v).steady_states()

    def inertia_rate(self, v: Float[Array, " nv"], u: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`Ṁ u` along the motion."""
        twists = self._linear_twists(u)
        twist_rates = self.placement.twist_rate(v, u)
        changes = self.parts.momenta_rate(self.t, self.bodies, self.twists(v), twists)
        total = jnp.zeros_like(u) if changes is None else self.placement.loads(changes)
        if twist_rates is None:
            return total
        total = total + self.placement.loads_rate(v, self.momenta(twists))
        return total + self.placement.loads(self.momenta(twist_rates))

    def kinetic_energy(self, v: Float[Array, " nv"]) -> Scalar:
        """The kinetic energy of bodies and armatures [J]: `½ Vᵀ M_b V`, plus what moving markers add to `½ a ċ²`."""
        energy = self.parts.kinetic_energy(self.t, self.bodies, self.twists(v))
        own = self.placement.own_kinetic_energy(v)
        return energy if own is None else energy + own

    def slowest(self) -> Float[Array, " nv"] | None:
        """The speeds of minimum kinetic energy with `GeneralizedSpeeds`; None otherwise, where they are zero.

        With `V = J v + V₀` they satisfy `M v = −Jᵀ M_b V₀`.
        """
        if self.mechanism.speeds is None:
            return None
        at_zero = self.twists(jnp.zeros(self.mechanism.nv, self.q.dtype))
        return -self.inertia.solve(self.placement.loads(self.momenta(at_zero)))

    def potential_energy(self) -> Scalar:
        """Potential energy [J] of gravity, springs, contacts and flexible bodies."""
        energy, strain = self.parts.potential(self.t, self.bodies), self.placement.strain_energy()
        return energy if strain is None else energy + strain


def _false_or_array(redundant: bool | Bool[Array, ""]) -> bool | Bool[Array, ""]:
    """False unchanged, which keeps the proximal term out of the compiled program; anything else as an array."""
    return redundant if redundant is False else combined("asarray", redundant)


def _row_order(by_group: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """For each row in the order of the parts, its index among the rows in the order of the groups."""
    starts, position = {}, 0
    for part in by_group:
        starts[part] = position
        position += sizes[part]
    return tuple(starts[part] + k for part, size in enumerate(sizes) for k in range(size))
