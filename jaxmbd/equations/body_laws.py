"""Inertia, force efforts and constraint blocks of a mechanism in terms of its bodies, for any coordinates.

Parts of one type are stacked and their law is mapped over the stack; each joint is differentiated with respect to the
two or three bodies it connects. Shapes: twists and efforts `(frames, twist)`, of the bodies and of the sites and pieces
of flexible ones.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Point, Scalar, at_rows
from jaxmbd.engine import known_by_numpy, trace_once
from jaxmbd.equations.constraint_kinematics import (
    ConstraintRows,
    armature_effort,
    armature_energy,
    armature_rate,
    efforts_along,
    potential_energy,
    stored_along,
    turning,
    wrenches,
)
from jaxmbd.equations.coordinates import Twists
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.body.flexible import frame_index, masses_of, massive_frames
from jaxmbd.model.force.force import AbstractForce, AbstractJointForce, Gravity
from jaxmbd.model.joint.joint import AbstractJoint, AbstractSidedJoint
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.mechanism.groups import PartGroup, group_parts, law_of
from jaxmbd.model.mechanism.loads import load_on
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.named_coordinates import CoordinateForce, armatures_of
from jaxmbd.model.states import stateful
from jaxmbd.numerics.sparse_matrices import gather_sum, gather_table
from jaxmbd.space.space import AbstractFrame, AbstractSpace


class BodyFrames(eqx.Module):
    """The frames of a placement, stacked; `q` holds the integrated angles (whole turns)."""

    frames: AbstractFrame
    q: Float[Array, " nq"]


@known_by_numpy
def _constants(space: AbstractSpace, masses: Array, tensors: Array, fields: list[Gravity]) -> tuple[PyTree, Point]:
    """The bodies' inertia, as the space has it, and the sum of the gravity fields."""
    gravity = sum((field.vector(space) for field in fields), jnp.zeros(space.dim))
    return jax.vmap(space.inertia)(masses, tensors), gravity


@trace_once
def _evaluate_rows(
    method: Callable[..., Array],
    space: AbstractSpace,
    t: Array,
    static: PyTree,
    numbers: PyTree,
    turns: Array,
    bodies: AbstractFrame,
    *values: Array,
) -> Array:
    return method(ConstraintRows(space, law_of(static, numbers, turns), t, bodies), *values)


@trace_once
def _evaluate_part(
    function: Callable[..., Array],
    space: AbstractSpace,
    t: Array,
    static: PyTree,
    numbers: PyTree,
    turns: Array,
    bodies: AbstractFrame,
    *values: Array,
) -> Array:
    return function(space, t, law_of(static, numbers, turns), bodies, *values)


class BodyLaws(eqx.Module):
    """The joints with constraint rows, the forces and the inertia of a mechanism, grouped by type.

    `force_places`: where the forces between markers, and those along coordinates, are among all forces. `masses`,
    `inertia`: of the bodies and of the pieces of flexible ones, whose places among the `count` frames are `massive`.
    """

    space: AbstractSpace
    masses: Float[Array, " massive"]
    inertia: PyTree
    gravity: Float[Array, " dim"]
    joints: tuple[PartGroup, ...]
    turning: tuple[PartGroup, ...]
    forces: tuple[PartGroup, ...]
    coordinate_forces: tuple[PartGroup, ...]
    armatures: tuple[PartGroup, ...]
    force_places: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)
    massive: tuple[int, ...] = eqx.field(static=True)
    count: int = eqx.field(static=True)

    def __init__(self, mechanism: Mechanism) -> None:
        self.space = mechanism.space
        self.joints = group_parts(local_constraints(mechanism), mechanism)
        joint_names = {name.split(".")[0] for name in mechanism.turns}
        turning = [joint for joint in mechanism.joints if joint.name in joint_names]
        self.turning = group_parts(turning, mechanism)
        self.forces = group_parts([f for f in mechanism.forces if isinstance(f, AbstractForce)], mechanism)
        joint_forces = [f for f in mechanism.forces if isinstance(f, AbstractJointForce)]
        places = [
            tuple(k for k, force in enumerate(mechanism.forces) if isinstance(force, kind))
            for kind in (AbstractForce, AbstractJointForce)
        ]
        self.force_places = places[0], places[1]
        coordinate = mechanism.coordinate  # each access to a method takes time in proportion to the mechanism
        self.coordinate_forces = group_parts(
            [CoordinateForce(f.name, coordinate(f.coordinate), f, load_on(mechanism, f)) for f in joint_forces],
            mechanism,
        )
        self.armatures = group_parts(armatures_of(mechanism), mechanism)
        self.massive, self.count = massive_frames(mechanism.bodies), frame_index(mechanism.bodies)[GROUND]
        self.masses, tensors = masses_of(mechanism.bodies)
        fields = [part for part in mechanism.forces if isinstance(part, Gravity)]
        self.inertia, self.gravity = _constants(self.space, self.masses, tensors, fields)

    # --- constraints ------------------------------------------------------------------------------------

    def rows(
        self, method: Callable[..., Array], t: Scalar, bodies: BodyFrames, *values: Sequence[Array]
    ) -> list[Array]:
        """A method of `ConstraintRows`, such as its `position` or `jacobian`, mapped over the joints of each group.

        `values`, for each group, have one slice per joint; the results have the axis of the joints first.
        """
        each = zip(self.joints, *values, strict=True)
        return [self._over(_evaluate_rows, method, group, t, bodies, *slices) for group, *slices in each]

    def sides(self, t: Scalar, bodies: BodyFrames) -> Float[Array, " sides"]:
        """The sides of the joints that have one, in the order of `sided_joints`."""
        groups = [group for group in self.joints if isinstance(group.static, AbstractSidedJoint)]
        if not groups:
            return jnp.zeros((0,), bodies.q.dtype)
        sides = [self._over(_evaluate_rows, ConstraintRows.side, group, t, bodies) for group in groups]
        return at_rows(jnp.concatenate(sides), np.argsort([i for group in groups for i in group.members]))

    def along(self, blocks: Sequence[Array], twists: Twists) -> list[Float[Array, "parts rows"]]:
        """`C_b V` of each group, from the `blocks` of `C_b`."""
        each = zip(self.joints, blocks, strict=True)
        return [jnp.einsum("prmw,pmw->pr", block, self._twists_of(group, twists)) for group, block in each]

    def constraint_force(self, blocks: Sequence[Array], eta: Sequence[Array]) -> Twists:
        """`C_bᵀ η`, from the `blocks` of `C_b` and the multipliers `(parts, rows)` of each group."""
        return self._on_bodies(
            [jnp.einsum("prmw,pr->pmw", b, e) for b, e in zip(blocks, eta, strict=True)], self.joints
        )

    def constraint_force_rate(self, t: Scalar, bodies: BodyFrames, twists: Twists, eta: Sequence[Array]) -> Twists:
        """`Ċ_bᵀ η`."""
        efforts = self.rows(ConstraintRows.constraint_force_rate, t, bodies, self.on_joints(twists), eta)
        return self._on_bodies(efforts, self.joints)

    def angles(self, t: Scalar, bodies: BodyFrames, twists: Twists) -> tuple[Array, Array]:
        """The integrated joint angles in the order of `Mechanism.turns`, each modulo whole turns, and their rates."""
        angles: dict[int, Array] = {}
        for group in self.turning:
            group_angles = self._over(_evaluate_part, turning, group, t, bodies, self._twists_of(group, twists))
            angles |= dict(zip(group.members, group_angles, strict=True))
        values, rates = jnp.concatenate([angles[i] for i in sorted(angles)], axis=1)
        return values, rates

    # --- inertia and forces -----------------------------------------------------------------------------

    def armature_blocks(self, t: Scalar, bodies: BodyFrames) -> list[Float[Array, "parts 1 markers twist"]]:
        """The nonzero blocks of `g = ∂ċ/∂V` for the coordinates with an armature."""
        return [self._over(_evaluate_rows, ConstraintRows.jacobian, group, t, bodies) for group in self.armatures]

    def momenta(self, armature_blocks: Sequence[Array], twists: Twists) -> Twists:
        """`M_b V`, with the armatures: `M_b = diag(m, I) + Σ a gᵀ g`."""
        own = self._of_all(jax.vmap(self.space.momentum)(self.inertia, self._of_massive(twists)))
        if not self.armatures:
            return own
        each = zip(self.armatures, armature_blocks, strict=True)
        turned = [
            jnp.einsum("prmw,p,prkx,pkx->pmw", g, group.stacked.inertia, g, self._twists_of(group, twists))
            for group, g in each
        ]
        return own + self._on_bodies(turned, self.armatures)

    def momenta_rate(self, t: Scalar, bodies: BodyFrames, twists: Twists, other: Twists) -> Twists | None:
        """`Ṁ_b` along the motion, times the twists `other`; None if `M_b` is constant, without armatures."""
        if not self.armatures:
            return None
        values = ((self._twists_of(group, twists), self._twists_of(group, other)) for group in self.armatures)
        rates = [
            self._over(_evaluate_part, armature_rate, group, t, bodies, *own)
            for group, own in zip(self.armatures, values, strict=True)
        ]
        return self._on_bodies(rates, self.armatures)

    def kinetic_energy(self, t: Scalar, bodies: BodyFrames, twists: Twists) -> Scalar:
        """The kinetic energy of the bodies and armatures [J]."""
        massive = self._of_massive(twists)
        energy = 0.5 * jnp.sum(jax.vmap(self.space.momentum)(self.inertia, massive) * massive)
        for group in self.armatures:
            own = self._twists_of(group, twists)
            energy = energy + jnp.sum(self._over(_evaluate_part, armature_energy, group, t, bodies, own))
        return energy

    def efforts(self, t: Scalar, bodies: BodyFrames, twists: Twists) -> Twists:
        """`W`: the efforts of all forces on the bodies, gravity included, plus the velocity products of `M_b V̇`."""
        space = self.space
        total = jax.vmap(space.gyroscopic)(self.inertia, self._of_massive(twists))
        total = total + jax.vmap(space.to_effort)(self.masses[:, None] * self.gravity[None, :])
        laws = (wrenches, self.forces), (efforts_along, self.coordinate_forces), (armature_effort, self.armatures)
        local = [
            self._over(_evaluate_part, function, group, t, bodies, self._twists_of(group, twists))
            for function, groups in laws
            for group in groups
        ]
        return self._of_all(total) + self._on_bodies(local, [group for _, groups in laws for group in groups])

    def own_states(
        self, function: Callable[..., Array], t: Scalar, bodies: BodyFrames, twists: Twists
    ) -> Float[Array, " nz"]:
        """A function of forces with states (`of_own_states`), in the order of the mechanism's forces."""
        found: dict[int, Array] = {}
        for places, groups in zip(self.force_places, (self.forces, self.coordinate_forces), strict=True):
            for group in (group for group in groups if stateful(group.stacked)):
                values = self._over(_evaluate_part, function, group, t, bodies, self._twists_of(group, twists))
                found |= {places[member]: x for member, x in zip(group.members, values, strict=True)}
        return jnp.concatenate([found[k] for k in sorted(found)]) if found else jnp.zeros(0, twists.dtype)

    def potential(self, t: Scalar, bodies: BodyFrames) -> Scalar:
        """Potential energy [J] of gravity (zero at the world's origin), springs and contacts."""
        weight = self.masses[:, None] * self.gravity[None, :]
        energy = -jnp.sum(weight * self._of_massive(bodies.frames.position[: self.count]))
        for function, groups in ((potential_energy, self.forces), (stored_along, self.coordinate_forces)):
            for group in groups:
                energy = energy + jnp.sum(self._over(_evaluate_part, function, group, t, bodies))
        return energy

    # --- groups -----------------------------------------------------------------------------------------

    def _over(
        self,
        evaluate: Callable[..., Array],
        function: Callable[..., Array],
        group: PartGroup,
        t: Scalar,
        bodies: BodyFrames,
        *values: Array,
    ) -> Array:
        """Map a local law over the parts of a group, with the frames of the bodies that each part connects; `values`
        have one slice per part."""
        frames = jax.tree.map(lambda x: at_rows(x, group.incidence), bodies.frames)
        turns = at_rows(jnp.append(bodies.q, 0.0), group.turn_table)
        law = lambda *local: evaluate(function, self.space, t, group.static, *local)  # noqa: E731
        stacks = (group.stacked, turns, frames, *values)
        if len(group.members) == 1:  # without a map, which takes as long to trace as the law itself
            return law(*jax.tree.map(lambda x: jnp.squeeze(x, 0), stacks))[None]
        return jax.vmap(law)(*stacks)

    def _twists_of(self, group: PartGroup, twists: Twists) -> Float[Array, "parts markers twist"]:
        """Gather the twists of the bodies that each part of a group connects; the ground's twist is zero."""
        return at_rows(jnp.concatenate([twists, jnp.zeros_like(twists[:1])]), group.incidence)

    def _of_massive(self, values: Array) -> Array:
        """The values of the bodies and pieces among those of all frames but the ground's."""
        return values if len(self.massive) == self.count else at_rows(values, np.asarray(self.massive))

    def _of_all(self, values: Array) -> Array:
        """The values of all frames but the ground's from those of the bodies and pieces; zero for sites."""
        if len(self.massive) == self.count:
            return values
        places = np.full(self.count, len(self.massive))
        places[list(self.massive)] = np.arange(len(self.massive))
        return at_rows(jnp.concatenate([values, jnp.zeros_like(values[:1])]), places)

    def on_joints(self, twists: Twists) -> list[Float[Array, "parts markers twist"]]:
        """The twists of the bodies that the joints of each group connect."""
        return [self._twists_of(group, twists) for group in self.joints]

    def _on_bodies(self, local: Sequence[Array], groups: Sequence[PartGroup]) -> Twists:
        """Sum the efforts `(parts, markers, twist)` of all groups body by body."""
        count = self.count
        if not local:
            return jnp.zeros((count, len(self.space.speeds)))
        targets = np.concatenate([group.incidence.reshape(-1) for group in groups])
        table = gather_table(np.where(targets < count, targets, -1), count)
        return gather_sum(jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in local]), table)


def local_constraints(mechanism: Mechanism) -> list[AbstractJoint]:
    """The constraints that depend on a few markers only (all but `GlobalConstraint`), in order."""
    return [part for part in mechanism.constraints() if not isinstance(part, GlobalConstraint)]


def sided_joints(mechanism: Mechanism) -> list[str]:
    """The names of the constraints that have a side, in order."""
    return [part.name for part in local_constraints(mechanism) if isinstance(part, AbstractSidedJoint)]
