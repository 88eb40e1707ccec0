"""Validation of a mechanism as a whole."""

from collections.abc import Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.body.body import GROUND, AbstractMarker, AbstractMovingMarker
from jaxmbd.model.body.flexible import frame_index, owner_of
from jaxmbd.model.body.names import NameUsedError, names_watched
from jaxmbd.model.driver import Driver, check_continuous
from jaxmbd.model.force.force import AbstractForce, AbstractJointForce, Gravity
from jaxmbd.model.force.load_friction import rubbing
from jaxmbd.model.joint.joint import AbstractJoint, AbstractNonholonomic, AbstractTreeJoint, residual_of, slip_of
from jaxmbd.model.joint.shared import AbstractComposite, AbstractCoupling
from jaxmbd.model.joint.spatial import Screw
from jaxmbd.model.joint.user import GlobalConstraint, NonholonomicConstraint
from jaxmbd.model.mechanism.controllers import check_controllers
from jaxmbd.model.mechanism.groups import kind_of, unnamed
from jaxmbd.model.mechanism.law_shapes import laws_in_time, laws_of, marker_shapes
from jaxmbd.model.mechanism.loads import load_on
from jaxmbd.model.mechanism.named_coordinates import (
    CouplingConstraint,
    OwnCoordinate,
    PositionDriverConstraint,
    SpeedDriverConstraint,
)
from jaxmbd.model.mechanism.user_classes import check_user_classes, is_users
from jaxmbd.model.sensor import AbstractSensor, Measure, Scaled
from jaxmbd.user_functions import check_affine

# A mechanism is `Any` here and in the files beside: that of `Mechanism` imports them, so that they cannot import it.
_ENERGIES = ("kinetic_energy", "potential_energy", "energy")


def check_parts(mechanism: Any) -> None:
    """Raise unless all parts have unique names, are in one space and refer to existing bodies and coordinates."""
    check_names(mechanism)
    check_space(mechanism)
    check_user_classes(mechanism)
    check_references(mechanism)
    check_rubbing(mechanism)


def check_laws(mechanism: Any) -> None:
    """Trace the laws of all parts on shapes only, including users' functions."""
    check_functions(mechanism)
    check_names_unused(mechanism)
    check_scaled(mechanism)
    check_controllers(mechanism)
    rows = sum(mechanism.constraint_sizes())
    check_slips(mechanism)
    check_measures(mechanism, rows)


def check_names(mechanism: Any) -> None:
    types: dict[str, str] = {}
    for part in mechanism.parts():
        kind = type(part).__name__
        if part.name in types:
            raise MechanismError(
                f"Two parts are named {part.name!r}: a {types[part.name]} and a {kind}. Give each a name of its own."
            )
        types[part.name] = kind
    for sensor in mechanism.sensors:
        if sensor.name in _ENERGIES:
            raise MechanismError(
                f"The name {sensor.name!r} is taken by a solution's energies; name the sensor otherwise."
            )
        if sensor.name == "t":
            raise MechanismError("The name 't' is taken by the time; name the sensor otherwise.")


def check_moving(mechanism: Any) -> None:
    """Raise if a joint with an integrated angle has a moving marker, or any joint one that jumps."""
    for joint in mechanism.joints:
        part = f"{type(joint).__name__} {joint.name!r}"
        for marker in _markers(joint):
            if isinstance(marker, AbstractMovingMarker) and joint.unwrapped:
                raise MechanismError(
                    f"{part} counts turns and cannot have a MovingMarker. Put a body between, whose place a Driver "
                    "prescribes."
                )
            if isinstance(marker, AbstractMovingMarker):
                where = f"{part}, MovingMarker on {marker.body!r}"
                check_continuous(where, marker.motion, "position", (mechanism.space.dim,))


def check_scaled(mechanism: Any) -> None:
    """Raise unless each `Scaled` refers to a quantity of a part, or to a sensor declared before it."""
    parts = [part.name for part in mechanism.parts()]
    before: list[str] = list(_ENERGIES)
    for sensor in mechanism.sensors:
        if isinstance(sensor, Scaled):
            owner, dot, _ = sensor.of.partition(".")
            if owner not in parts if dot else sensor.of not in before:
                known = parts if dot else before
                raise MechanismError(
                    f"Scaled {sensor.name!r}: {unknown('part' if dot else 'sensor before it', sensor.of, known)}"
                )
        before.append(sensor.name)


def check_space(mechanism: Any) -> None:
    """Raise unless all bodies and markers are in one space."""
    space = mechanism.space
    named = [(part, part.space) for part in mechanism.bodies]
    named += [(part, marker.space) for part in mechanism.parts() for marker in _markers(part)]
    for force in mechanism.forces:
        if isinstance(force, Gravity):
            jax.eval_shape(force.vector, space)
    for part, own in named:
        if own != space:
            raise MechanismError(
                f"{type(part).__name__} {part.name!r} lives in {own.dim} dimensions, body {mechanism.bodies[0].name!r} "
                f"in {space.dim}. Take all parts from jaxmbd.planar, or all from jaxmbd.spatial."
            )


def _markers(part: object) -> tuple[AbstractMarker, ...]:
    return part.markers if isinstance(part, AbstractJoint | AbstractForce | AbstractSensor) else ()


def check_references(mechanism: Any) -> None:
    bodies = frame_index(mechanism.bodies)
    coordinate = mechanism.coordinate  # each access to a method takes time in proportion to the mechanism
    for part in mechanism.parts():
        for marker in _markers(part):
            if marker.body not in bodies:
                error = unknown("body", marker.body, sorted(bodies))
                raise MechanismError(f"{type(part).__name__} {part.name!r}: {error}")
        own = (f"{part.name}.{part.coordinate_names[0]}",) if isinstance(part, AbstractComposite) else ()
        for name in (*_coordinates_of(part), *own):
            try:
                if isinstance(coordinate(name), OwnCoordinate):
                    raise MechanismError(
                        f"{name!r} is an own coordinate of a flexible body, and only coordinates of joints and bodies "
                        "can be driven, loaded or coupled so: attach a part to a site of the body, or write a "
                        "GeneralizedForce or GlobalConstraint."
                    )
            except MechanismError as error:
                raise MechanismError(f"{type(part).__name__} {part.name!r}: {error}") from None
    for force in mechanism.forces:
        if isinstance(force, AbstractJointForce):
            try:
                load_on(mechanism, force)
            except MechanismError as error:
                raise MechanismError(f"{type(force).__name__} {force.name!r}: {error}") from None


def check_rubbing(mechanism: Any) -> None:
    """Raise unless frictions by load act in joints of one degree of freedom, and have the numbers that these need."""
    joints = {joint.name: joint for joint in mechanism.joints}
    for part in rubbing(mechanism.forces):
        who, joint = f"LoadFriction {part.name!r}", joints.get(part.joint)
        is_one = isinstance(joint, AbstractTreeJoint) and len(joint.speeds) == 1
        if not is_one or (isinstance(joint, Screw) and not part.turns):
            wanted = (
                "'.angle' of a screw" if isinstance(joint, Screw) else "a coordinate of a Revolute, Prismatic or Screw"
            )
            raise MechanismError(f"{who} acts along {wanted}, whose load presses, got {part.coordinate!r}.")
        if part.turns and part.radius is None:
            raise MechanismError(f"{who} needs the radius [m] at which {part.joint!r} rubs, such as radius=0.01.")
        if not part.turns and part.radius is not None:
            raise MechanismError(f"{who}: a slider rubs along its coordinate, without a radius; leave radius out.")


def _coordinates_of(part: object) -> tuple[str, ...]:
    """The coordinates that a part refers to by name."""
    if isinstance(part, AbstractCoupling):
        return part.coordinates
    if isinstance(part, AbstractComposite):
        return part.made_of
    return (part.coordinate,) if isinstance(part, Driver | AbstractJointForce) else ()


def named_joints(mechanism: Any) -> set[str]:
    """The joints (and bodies) whose coordinates drivers, couplings, forces or controllers refer to."""
    named = {name for part in mechanism.parts() for name in _coordinates_of(part)}
    named |= {name for part in mechanism.controllers for name in (*part.reads, *part.driven)}
    return {name.split(".")[0] for name in named}


def check_functions(mechanism: Any) -> None:
    """Trace each force that holds a user's function, on shapes only and once per type.

    Errors name the part here; after stacking, parts have no names.
    """
    checked: set[Hashable] = set()
    for force in mechanism.forces:
        if not any(callable(getattr(force, field)) for field in force.__dataclass_fields__):
            continue
        kind = hashable_kind(force)
        if kind not in checked:
            checked.add(kind)
            for law, arguments in laws_in_time(mechanism, force):
                eqx.filter_eval_shape(getattr(force, law), *arguments)


def check_names_unused(mechanism: Any) -> None:
    """Raise if a law of a user's class depends on names, without which it is evaluated; once per type."""
    checked: set[Hashable] = set()
    for part in (*mechanism.joints, *mechanism.forces):
        if not is_users(part) or (kind := hashable_kind(part)) in checked:
            continue
        checked.add(kind)
        for law, arguments in laws_of(mechanism, part):
            try:
                with names_watched():
                    eqx.filter_eval_shape(getattr(unnamed(part), law), *arguments)
            except NameUsedError as error:
                raise MechanismError(f"{_kind_name(part)} {part.name!r}: {error}") from None
            except Exception:
                continue


def check_slips(mechanism: Any) -> None:
    """Raise unless users' nonholonomic constraints are affine in the rates."""
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    checked: set[Hashable] = set()
    for joint in mechanism.joints:
        if isinstance(joint, NonholonomicConstraint) and (kind := hashable_kind(joint)) not in checked:
            checked.add(kind)
            frames, rates = marker_shapes(mechanism, joint)
            part, names = f"NonholonomicConstraint {joint.name!r}", ("t, frames, parameters", "rates")
            check_affine(part, joint.slip, (t, frames), rates, names)


def hashable_kind(part: PyTree) -> Hashable:
    """`kind_of` a part; raise with its name if it holds something that is neither an array nor hashable."""
    kind = kind_of(unnamed(part))
    try:
        hash(kind)
    except TypeError as error:
        raise MechanismError(
            f"{_kind_name(part)} {part.name!r} holds what is neither an array nor hashable ({error}). Give its "
            "parameters as numbers, arrays, tuples, lists, dictionaries or an equinox module of those."
        ) from error
    return kind


def _kind_name(part: object) -> str:
    """The name of a part's type as known to users."""
    if isinstance(part, PositionDriverConstraint | SpeedDriverConstraint):
        return "Driver"
    return type(part.law if isinstance(part, CouplingConstraint) else part).__name__


def check_measures(mechanism: Any, rows: int) -> None:
    """Trace the function of each `Measure` on shapes only; `rows` is the number of multipliers."""
    dtype, nv = jnp.result_type(float), mechanism.nv
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((), (mechanism.nq,), (nv,), (nv,), (rows,))]
    for sensor in mechanism.sensors:
        if isinstance(sensor, Measure):
            eqx.filter_eval_shape(sensor.value, *shapes)


def check_ground(mechanism: Any) -> None:
    """Raise unless every group of connected bodies has a joint, force or driver to the ground."""
    if any(isinstance(joint, GlobalConstraint) for joint in mechanism.joints):
        return
    reached, joined = {GROUND}, set()
    parts = (*mechanism.joints, *mechanism.constraints(), *mechanism.forces)
    connections = [part for part in parts if _markers(part)]
    for joint in mechanism.joints:
        joined |= {owner_of(marker.body) for marker in _markers(joint)}
    driven = [
        part
        for part in connections
        if isinstance(part, PositionDriverConstraint | SpeedDriverConstraint) and len(part.markers) == 1
    ]
    reached |= {owner_of(part.markers[0].body) for part in driven}
    neighbours: dict[str, set[str]] = {}
    for part in connections:
        bodies = {owner_of(marker.body) for marker in _markers(part)}
        for body in bodies:
            neighbours.setdefault(body, set()).update(bodies)
    front = set(reached)
    while front:
        front = set().union(*(neighbours.get(body, set()) for body in front)) - reached
        reached |= front
    unconnected = sorted(joined - reached)
    if unconnected:
        raise MechanismError(
            f"Nothing connects {', '.join(map(repr, unconnected))} to the ground. Add a joint to ground.at(x, y), "
            "or pass floating=True if the bodies are meant to float freely."
        )


def count_rows(mechanism: Any, part: AbstractJoint | GlobalConstraint) -> int:
    """The number of constraint rows of a part, from shapes only."""
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    if isinstance(part, GlobalConstraint):
        q = jax.ShapeDtypeStruct((mechanism.nq,), t.dtype)
        return eqx.filter_eval_shape(part.residual, t, q).shape[0]
    frames, rates = marker_shapes(mechanism, part)
    try:
        return _count(unnamed(part), t, frames, rates)
    except MechanismError:  # repeated with the name, for the message
        return _count(part, t, frames, rates)


def _count(part: AbstractJoint, t: object, frames: object, rates: object) -> int:
    rows = eqx.filter_eval_shape(residual_of, part, t, frames).shape[0]
    if isinstance(part, AbstractNonholonomic):
        rows += eqx.filter_eval_shape(slip_of, part, t, frames, rates).shape[0]
    return rows


def count_position_rows(mechanism: Any, part: AbstractJoint | GlobalConstraint) -> int:
    """The number of holonomic rows of a part; its nonholonomic rows follow them."""
    if not isinstance(part, AbstractNonholonomic):
        return count_rows(mechanism, part)
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    return eqx.filter_eval_shape(residual_of, unnamed(part), t, marker_shapes(mechanism, part)[0]).shape[0]
