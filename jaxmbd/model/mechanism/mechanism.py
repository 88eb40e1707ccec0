"""The mechanism: named bodies, joints, drivers, forces, sensors and controllers, checked as a whole.

Its topology is static, and every number in it is an array leaf, so that `equinox.tree_at`, gradients and `vmap` apply
to all of them without retracing.
"""

import itertools
import re
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, TypeAlias

import equinox as eqx
import jax
from jaxtyping import Array, Float

from jaxmbd.arrays import combined
from jaxmbd.checks import check_flags, check_instance, checked_items, checked_names
from jaxmbd.errors import MechanismError, shown, unknown
from jaxmbd.model.body.body import AbstractBody
from jaxmbd.model.body.flexible import AbstractFlexibleBody
from jaxmbd.model.controller.controller import AbstractController
from jaxmbd.model.driver import Driver
from jaxmbd.model.force.force import AbstractForce, AbstractJointForce, AnyForce, GeneralizedForce, Gravity
from jaxmbd.model.force.load_friction import rubbing
from jaxmbd.model.joint.gears import GearMesh
from jaxmbd.model.joint.joint import AbstractJoint, AbstractJointWithCoordinates, AbstractTreeJoint
from jaxmbd.model.joint.shared import AbstractComposite, AbstractCoupling, FreeMotion, Tendon
from jaxmbd.model.joint.user import GlobalConstraint
from jaxmbd.model.mechanism.layout import Block, Layout
from jaxmbd.model.mechanism.named_coordinates import (
    AnyCoordinate,
    CompositeCoordinate,
    Coordinate,
    CouplingConstraint,
    GeneralizedSpeeds,
    OwnCoordinate,
    PositionDriverConstraint,
    SpeedDriverConstraint,
)
from jaxmbd.model.mechanism.spanning_tree import Tree, absolute, check_cuts, spanning
from jaxmbd.model.mechanism.validation import (
    check_ground,
    check_laws,
    check_moving,
    check_parts,
    count_rows,
    hashable_kind,
    named_joints,
)
from jaxmbd.model.sensor import AbstractSensor, Measure, Scaled
from jaxmbd.model.states import entries_of, no_states, stateful, values_of, with_values
from jaxmbd.space.shape import Shape, Shapes, as_shapes
from jaxmbd.space.space import AbstractSpace
from jaxmbd.upstream.equinox_internals import binds_methods_at_once, is_placeholder, with_fields
from jaxmbd.user_functions import lifted

_SHOWN = 12  # largest number of parts of one type that `print` lists

Joint: TypeAlias = AbstractJoint | AbstractCoupling | GlobalConstraint | Tendon | GearMesh
Constraint: TypeAlias = AbstractJoint | GlobalConstraint
Sensor: TypeAlias = AbstractSensor | Measure | Scaled
Part: TypeAlias = AbstractBody | Joint | AnyForce | Driver | Sensor | AbstractController

_KINDS: dict[str, tuple[type, ...]] = {  # what each argument takes
    "bodies": (AbstractBody,),
    "joints": (AbstractJoint, AbstractCoupling, GlobalConstraint, Tendon, GearMesh),
    "forces": (AbstractForce, AbstractJointForce, Gravity, GeneralizedForce),
    "drivers": (Driver,),
    "sensors": (AbstractSensor, Measure, Scaled),
    "controllers": (AbstractController,),
}


@binds_methods_at_once
class Mechanism(eqx.Module):
    """Bodies, joints, drivers, forces, sensors and controllers.

    **Arguments:** sequences of parts, each with a unique name; `floating`, True to allow bodies without a connection to
    the ground; `coordinates`, `"absolute"`, the poses of the bodies, or `"joint"`, the joint coordinates of a spanning
    tree; `cuts`, names of joints excluded from the tree, which remain constraints; `speeds`, `GeneralizedSpeeds` in
    place of those that the coordinates define; `scenery`, in space, what stands on the ground and is only looked at: a
    `Shape` of `spatial.shapes` or several, in the world's frame.

    **Raises:** `MechanismError` if two parts have the same name, a part refers to a body or coordinate that does not
    exist or is in the other space, or a group of connected bodies has no connection to the ground.

    `mechanism["rod"]` is the part of that name, `mechanism["rod"].mass` its mass: a leaf for
    `equinox.tree_at` and `jax.grad`. `print(mechanism)` lists the parts.
    """

    bodies: tuple[AbstractBody, ...]
    joints: tuple[Joint, ...]
    forces: tuple[AnyForce, ...]
    drivers: tuple[Driver, ...]
    sensors: tuple[Sensor, ...]
    controllers: tuple[AbstractController, ...]
    space: AbstractSpace
    floating: bool = eqx.field(static=True)
    coordinates: str = eqx.field(static=True)
    cuts: tuple[str, ...] = eqx.field(static=True)
    speeds: GeneralizedSpeeds | None
    tree: Tree = eqx.field(static=True)
    scenery: tuple[Shape, ...] = eqx.field(static=True)

    def __init__(
        self,
        bodies: Iterable[AbstractBody],
        joints: Iterable[Joint] = (),
        forces: Iterable[AnyForce] = (),
        drivers: Iterable[Driver] = (),
        sensors: Iterable[Sensor] = (),
        floating: bool = False,
        coordinates: str = "absolute",
        cuts: Iterable[str] = (),
        speeds: GeneralizedSpeeds | None = None,
        controllers: Iterable[AbstractController] = (),
        scenery: Shapes = (),
    ) -> None:
        self.bodies, self.joints = _parts("bodies", bodies), _parts("joints", joints)
        self.forces, self.drivers = _parts("forces", forces), _parts("drivers", drivers)
        self.sensors, self.controllers = _parts("sensors", sensors), _parts("controllers", controllers)
        if not self.bodies:
            raise MechanismError("A mechanism needs at least one body.")
        self.space = self.bodies[0].space
        check_flags("Mechanism", floating=floating)
        self.floating, self.scenery = floating, as_shapes("scenery", scenery)
        if self.scenery and self.space.dim == 2:
            raise MechanismError(
                "scenery is looked at in space; this mechanism lies in the plane, which has no shapes."
            )
        check_instance("coordinates", coordinates, str, "'absolute' or 'joint'")
        self.coordinates, self.cuts, self.speeds = coordinates, checked_names("cuts", cuts, "O"), speeds
        self.tree = absolute(self.bodies)  # preliminary: the spanning tree needs checked parts
        check_parts(self)
        self.tree = self._tree()
        if speeds is not None:
            check_instance("speeds", speeds, GeneralizedSpeeds, "GeneralizedSpeeds(names, function)")
            speeds.check(len(self.tree.coordinates), len(self.tree.speeds))

    def __check_init__(self) -> None:
        check_laws(self)
        check_moving(self)
        if not self.floating:
            check_ground(self)

    # `Any`: whoever names a part knows its class, and reads fields of it that other parts lack.
    def __getitem__(self, name: str) -> Any:
        for part in self.parts():
            if isinstance(name, str) and part.name == name:
                return part
        raise unknown("part", name, (part.name for part in self.parts()))

    def __repr__(self) -> str:
        groups = ("bodies", self.bodies), ("joints", self.joints), ("drivers", self.drivers), ("forces", self.forces)
        groups = (*groups, ("sensors", self.sensors), ("controllers", self.controllers))
        if not all(isinstance(parts, tuple) for _, parts in groups):  # placeholders of tree maps
            return eqx.tree_pformat(self)
        where = "the plane" if self.space.dim == 2 else "space"
        lines = [f"Mechanism in {where}, {self.nq} {self.coordinates} coordinates, {self.nv} speeds"]
        lines += [f"{kind}: {_listed(parts)}" for kind, parts in groups if parts]
        return "\n".join(lines)

    def parts(self) -> Iterator[Part]:
        """All parts: bodies, joints, drivers, forces, sensors, controllers."""
        for group in (self.bodies, self.joints, self.drivers, self.forces, self.sensors, self.controllers):
            if isinstance(group, tuple):  # equinox.tree_at wraps empty tuples while it calls `where`
                yield from group

    def with_coordinates(
        self, coordinates: str, cuts: Iterable[str] = (), speeds: GeneralizedSpeeds | None = None
    ) -> "Mechanism":
        """The same mechanism in other coordinates: `"absolute"`, or `"joint"` with the names of joints to cut."""
        parts = self.bodies, self.joints, self.forces, self.drivers, self.sensors
        return Mechanism(*parts, self.floating, coordinates, cuts, speeds, self.controllers, self.scenery)

    def with_parts(self, parts: Iterable[Part]) -> "Mechanism":
        """The same mechanism with more parts, of any kinds and in any order.

        The joints of the spanning tree stay in the tree, so that the coordinates are the same, with those of new bodies
        beside them. (`Mechanism(...)` might choose another one, since the choice depends on the joints that forces and
        drivers refer to.)

        **Raises:** `MechanismError` in the same cases as `Mechanism(...)`, and for a part whose name exists.

            >>> pendulum = mbd.examples.get("pendulum").mechanism
            >>> sprung = pendulum.with_parts([pl.JointSpringDamper("spring", "O.angle", 20.0)])
            >>> [force.name for force in sprung.forces]
            ['gravity', 'spring']
        """
        new = _parts("parts", parts)
        existing = {part.name: part for part in self.parts()}
        for part in new:
            if part.name in existing:
                own = existing[part.name]
                kind = next(kind for kind, types in _KINDS.items() if isinstance(own, types))
                raise MechanismError(
                    f"with_parts adds parts, and there is one named {part.name!r} already, a {type(own).__name__}: "
                    f"give the new one a name of its own, or replace the {kind} by replacing({kind}=[...])."
                )
        each = {kind: tuple(p for p in new if isinstance(p, types)) for kind, types in _KINDS.items()}
        return self._of({kind: (*getattr(self, kind), *parts) for kind, parts in each.items() if parts})

    def replacing(
        self,
        bodies: Iterable[AbstractBody] | None = None,
        joints: Iterable[Joint] | None = None,
        forces: Iterable[AnyForce] | None = None,
        drivers: Iterable[Driver] | None = None,
        sensors: Iterable[Sensor] | None = None,
        controllers: Iterable[AbstractController] | None = None,
    ) -> "Mechanism":
        """The same mechanism with other parts in place of all its bodies, joints, forces, and so on.

        `forces=[]` takes all forces away. What is not given stays as it is, the spanning tree as in `with_parts`.

        **Raises:** `MechanismError` in the same cases as `Mechanism(...)`.

            >>> pendulum = mbd.examples.get("pendulum").mechanism
            >>> on_the_moon = pendulum.replacing(forces=[pl.Gravity(1.62)])
        """
        given = {"bodies": bodies, "joints": joints, "forces": forces, "drivers": drivers, "sensors": sensors}
        given["controllers"] = controllers
        return self._of({kind: _parts(kind, parts) for kind, parts in given.items() if parts is not None})

    def _of(self, groups: dict[str, Any]) -> "Mechanism":
        """The mechanism with other groups of parts, checked."""
        rubs = [part.joint for part in rubbing(groups.get("forces", ()))]
        if not {"bodies", "joints"} & groups.keys() and not {*rubs} & {*self.tree.joints}:
            mechanism = with_fields(self, **groups)
            check_parts(mechanism)
        else:
            groups = {kind: getattr(self, kind) for kind in _KINDS} | groups
            cuts = [name for name in self.cuts if any(joint.name == name for joint in groups["joints"])]
            options = {"floating": self.floating, "coordinates": self.coordinates, "scenery": self.scenery}
            mechanism = Mechanism(**groups, **options, cuts=cuts)
            if self.coordinates == "joint":
                cuts = (*cuts, *mechanism._rubbing_joints())
                tree = spanning(
                    mechanism.bodies, mechanism.joints, named_joints(mechanism), cuts, first=self.tree.joints
                )
                mechanism = with_fields(mechanism, tree=tree)
            if self.speeds is not None:
                self.speeds.check(len(mechanism.tree.coordinates), len(mechanism.tree.speeds))
                mechanism = with_fields(mechanism, speeds=self.speeds)
        mechanism.__check_init__()
        return mechanism

    def replaced(
        self,
        forces: Iterable[AnyForce] | None = None,
        drivers: Iterable[Driver] | None = None,
        controllers: Iterable[AbstractController] | None = None,
    ) -> "Mechanism":
        """`replacing` without its checks, for analyses that add parts of their own or remove some."""
        given = {"forces": forces, "drivers": drivers, "controllers": controllers}
        return with_fields(self, **{kind: tuple(parts) for kind, parts in given.items() if parts is not None})

    def _tree(self) -> Tree:
        if self.coordinates == "absolute":
            if self.cuts:
                raise MechanismError(f"cuts={list(self.cuts)} only means something with coordinates='joint'.")
            return self.tree
        if self.coordinates != "joint":
            raise MechanismError(f"coordinates must be 'absolute' or 'joint', got {self.coordinates!r}.")
        check_cuts(self.joints, self.cuts)
        return spanning(self.bodies, self.joints, named_joints(self), (*self.cuts, *self._rubbing_joints()))

    def _rubbing_joints(self) -> list[str]:
        """The joints that rub by their loads, which are those of multipliers: these are cut."""
        return [part.joint for part in rubbing(self.forces)]

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return len(self.tree.coordinates) + len(self.turns)

    @property
    def nv(self) -> int:
        """Number of generalized speeds."""
        return len(self.tree.speeds)

    @property
    def turns(self) -> tuple[str, ...]:
        """The integrated joint angles: angles of cut joints that are entries of `q`, so that whole turns count (none in
        the plane)."""
        joints = [joint for joint in self.joints if isinstance(joint, AbstractJoint) and joint.unwrapped]
        return tuple(f"{joint.name}.{angle}" for joint in self.tree.cut(joints) for angle in joint.unwrapped)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of the entries of `q`: `"crank.x"`, `"crank.y"`, `"crank.theta"`, … or `"O.angle"`, …, then `turns`."""
        return self.tree.coordinates + self.turns

    @property
    def coordinate_units(self) -> tuple[str, ...]:
        """Units of the entries of `q`."""
        return self.tree.units + ("rad",) * len(self.turns)

    @property
    def speed_names(self) -> tuple[str, ...]:
        """Names of the entries of `v`: `"crank.vx"`, `"crank.vy"`, `"crank.omega"`, … or `"O.angle_rate"`, …"""
        return self.tree.speeds if self.speeds is None else self.speeds.names

    @property
    def variables(self) -> tuple[str, ...]:
        """For each speed, the coordinate whose rate it is, or the name of the speed if there is none."""
        if self.speeds is not None:
            return self.speeds.names
        names: list[str] = []
        for branch in self.tree.branches:
            (q0, q1), (v0, v1) = branch.q, branch.v
            names += self.tree.coordinates[q0:q1] if q1 - q0 == v1 - v0 else self.tree.speeds[v0:v1]
        return (*names, *self.tree.coordinates[self.tree.branches[-1].q[1] :])

    @property
    def speed_units(self) -> tuple[str, ...]:
        """Units of the entries of `v`; empty with `GeneralizedSpeeds`, whose units are not known."""
        return self.tree.speed_units if self.speeds is None else ("",) * len(self.speeds.names)

    def _stateful(self) -> list[Any]:
        """The parts with states of their own, in the order of their states."""
        return stateful((self.forces, self.controllers))

    @property
    def layout(self) -> Layout:
        """The names, units and sizes of the entries of `q`, `v` and the states of parts `z`, `"motor.current"`."""
        own = [(part, state) for part in self._stateful() for state in entries_of(part)]
        names = tuple(f"{part.name}.{state.name}" for part, state in own)
        units = tuple(state.unit or self.unit_along(part) for part, state in own)
        held = tuple(k for k, (_, state) in enumerate(own) if state.held)
        z = Block(names, units, tuple(state.size for _, state in own), held)
        ones = (1.0,) * self.nq, (1.0,) * self.nv
        q = Block(self.coordinate_names, self.coordinate_units, ones[0])
        return Layout(q, Block(self.speed_names, self.speed_units, ones[1]), z)

    def unit_along(self, part: Any) -> str:
        """The unit of the coordinate along which a force acts; none for a controller, which has no coordinate."""
        return "" if isinstance(part, AbstractController) else self.coordinate(part.coordinate).unit(self.space)

    @property
    def z(self) -> Float[Array, " nz"]:
        """The values that the parts hold of their states, at which a motion starts."""
        values = [value for part in self._stateful() for value in values_of(part)]
        return combined("concatenate", values) if values else no_states(self.bodies[0].mass.dtype)

    def with_own_states(self, z: Float[Array, " nz"]) -> "Mechanism":
        """The same mechanism with other values of the states of its parts, unchecked."""
        forces, controllers = with_values((self.forces, self.controllers), z)
        return self.replaced(forces=forces, controllers=controllers)

    def tree_joints(self) -> tuple[AbstractTreeJoint, ...]:
        """The joints of the spanning tree, one for each branch."""
        joints: dict[str, Any] = {joint.name: joint for joint in self.joints}
        return tuple(
            FreeMotion(self.bodies[branch.child]) if branch.floating else joints[branch.joint]
            for branch in self.tree.branches
        )

    def constraints(self) -> tuple[Constraint, ...]:
        """The parts with constraint rows, in row order: joints outside the spanning tree, then drivers."""
        return tuple(_bound(self, part) for part in (*self.tree.cut(self.joints), *self.drivers))

    def with_reactions(self) -> dict[str, AbstractJoint]:
        """The joints and drivers with reaction wrenches at markers, by name."""
        return {part.name: part for part in (*self.joints, *self.constraints()) if isinstance(part, AbstractJoint)}

    def constraint_sizes(self) -> tuple[int, ...]:
        """The number of constraint rows of each of `constraints()`."""
        size_of_kind: dict[Hashable, int] = {}
        sizes = []
        for part in self.constraints():
            kind = hashable_kind(part)
            if kind not in size_of_kind:
                size_of_kind[kind] = count_rows(self, part)
            sizes.append(size_of_kind[kind])
        return tuple(sizes)

    def row_labels(self) -> tuple[tuple[str, int], ...]:
        """For each row of `Φ`, the name of its part and the index among that part's rows."""
        each = zip(self.constraints(), self.constraint_sizes(), strict=True)
        return tuple((part.name, row) for part, size in each for row in range(size))

    def coordinate(self, name: str) -> AnyCoordinate:
        """The coordinate `"joint.angle"`, `"body.x"`, `"tendon.length"`, `"mesh.twist"` or `"beam.deflection"`."""
        check_instance("A coordinate's name", name, str, "text such as 'O.angle'")
        owner, _, component = name.partition(".")
        for joint in self.joints:
            if joint.name == owner and isinstance(joint, AbstractComposite):
                if component not in joint.coordinate_names:
                    raise _no_coordinate(_spoken(joint), owner, component, joint.coordinate_names)
                return self._composite(joint)
            if joint.name == owner and not isinstance(joint, AbstractCoupling | GlobalConstraint | AbstractComposite):
                if component not in joint.coordinate_names or not isinstance(joint, AbstractJointWithCoordinates):
                    raise _no_coordinate("joint", owner, component, joint.coordinate_names)
                is_integrated = name in self.tree.coordinates
                return Coordinate(name, joint, joint.markers, joint.coordinate_names.index(component), is_integrated)
        for body in self.bodies:
            if body.name == owner:
                own = body.own_coordinates if isinstance(body, AbstractFlexibleBody) else {}
                if component in own:
                    return OwnCoordinate(name, own[component])
                if component not in self.space.prescribable:
                    raise _no_coordinate("body", owner, component, (*self.space.prescribable, *own))
                return Coordinate(name, None, (body.at(),), self.space.coordinates.index(component))
        raise unknown("joint or body", owner, (part.name for part in (*self.joints, *self.bodies)))

    def _composite(self, law: AbstractComposite) -> CompositeCoordinate:
        parts, composites = [], {x.name: x for x in self.joints if isinstance(x, AbstractComposite)}
        for name in law.made_of:
            if (other := composites.get(name.partition(".")[0])) is not None:
                whose = f"a {_spoken(other)}'s {other.coordinate_names[0]}"
                raise MechanismError(f"{name!r} is {whose}; a {_spoken(law)} runs over joints and bodies.")
            parts.append(self.coordinate(name))
        return CompositeCoordinate(f"{law.name}.{law.coordinate_names[0]}", tuple(parts), law)


def _bound(mechanism: Mechanism, part: Any) -> Constraint:
    """A constraint; a coupling or a driver is bound to the coordinates that it names."""
    if isinstance(part, AbstractCoupling):
        return CouplingConstraint(part.name, tuple(map(mechanism.coordinate, part.coordinates)), part)
    if not isinstance(part, Driver):
        return part
    kind = PositionDriverConstraint if part.prescribes == "position" else SpeedDriverConstraint
    return kind(part.name, mechanism.coordinate(part.coordinate), part)


def _listed(parts: tuple[Part, ...]) -> str:
    """The names of parts with their types, at most `_SHOWN` of them."""
    names = [part.name if isinstance(part, AbstractBody) else f"{part.name} ({type(part).__name__})" for part in parts]
    return ", ".join(names[:_SHOWN]) + (f", ... and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _spoken(part: object) -> str:
    """The name of a part's type in words."""
    return re.sub("(?<=.)(?=[A-Z])", " ", type(part).__name__).lower()


def _no_coordinate(kind: str, owner: str, component: str, known: Iterable[str]) -> MechanismError:
    if component:
        return unknown(f"coordinate of {kind} {owner!r}", component, known)
    names = ", ".join(repr(f"{owner}.{name}") for name in known) or "none that can be given"
    return MechanismError(f"{owner!r} is a {kind}, not a coordinate; its coordinates are {names}.")


def _parts(kind: str, parts: Iterable[object]) -> tuple[Any, ...]:
    result = checked_items(kind, parts, "a sequence of parts, such as [part]")
    types = _KINDS.get(kind, tuple(itertools.chain(*_KINDS.values())))
    for part in result:
        if not isinstance(part, types):
            names = ", ".join(t.__name__.removeprefix("Abstract") for t in types)
            if isinstance(part, type):
                raise MechanismError(
                    f"Among {kind} there is the class {part.__name__}; make one: {part.__name__}(...)."
                )
            place = [f" It belongs to {other}=[...]." for other, kinds in _KINDS.items() if isinstance(part, kinds)]
            raise MechanismError(
                f"Among {kind} there is a {type(part).__name__}; expected one of: {names}.{''.join(place)}"
            )
    return lifted(result)


def check_numbers(mechanism: Mechanism) -> None:
    """Raise for a part that holds something else in place of a number, put there by a map over the mechanism."""
    for part in mechanism.parts():
        for path, leaf in jax.tree_util.tree_flatten_with_path(part)[0]:
            if type(leaf) is object or isinstance(leaf, jax.ShapeDtypeStruct) or is_placeholder(leaf):
                field = jax.tree_util.keystr(path).removeprefix(".")
                kind = type(part).__name__
                raise MechanismError(f"{kind} {part.name!r}: {field} must be numbers, got {shown(leaf)}.")


def check_mechanism(mechanism: Any) -> None:
    """Raise unless `mechanism` is one Mechanism, not many whose numbers are stacked."""
    check_instance("mechanism", mechanism, Mechanism, "a Mechanism, such as jaxmbd.planar.Mechanism(bodies, joints)")
    for body in mechanism.bodies:
        if getattr(body.mass, "ndim", 0):
            raise MechanismError(
                f"Body {body.name!r}: mass must be a number, got shape {body.mass.shape}. An analysis takes one "
                "mechanism; for many at once write jax.vmap(lambda mechanism: ...)(mechanisms)."
            )
