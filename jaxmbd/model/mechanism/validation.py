"""What is checked of a mechanism as a whole."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.body.body import GROUND, AbstractMarker, AbstractMovingMarker
from jaxmbd.model.driver.driver import Driver
from jaxmbd.model.force.force import AbstractForce, AbstractJointForce
from jaxmbd.model.force.shared import Gravity
from jaxmbd.model.force.user import GeneralizedForce
from jaxmbd.model.joint.coupling import AbstractCoupling
from jaxmbd.model.joint.joint import AbstractJoint, AbstractNonholonomic, residual_of, slip_of
from jaxmbd.model.joint.user import GlobalConstraint, NonholonomicConstraint
from jaxmbd.model.mechanism.grouping_key import kind_of, unnamed
from jaxmbd.model.mechanism.joint_coordinates import CouplingConstraint, PositionDriverConstraint, SpeedDriverConstraint
from jaxmbd.model.sensor.scaled import Scaled
from jaxmbd.model.sensor.sensor import AbstractSensor, Measure
from jaxmbd.user_functions import check_affine

_ENERGIES = ("kinetic_energy", "potential_energy", "energy")


def check_parts(mechanism: Any) -> None:
    """Raise unless all parts have names of their own, live in one space and refer to bodies and coordinates there
    are."""
    check_names(mechanism)
    check_space(mechanism)
    check_references(mechanism)


def check_laws(mechanism: Any) -> None:
    """Try what the parts say, users' functions among it, on shapes alone."""
    check_functions(mechanism)
    check_scaled(mechanism)
    rows = sum(mechanism.constraint_sizes())
    check_slips(mechanism)
    check_measures(mechanism, rows)


def check_names(mechanism: Any) -> None:
    seen: dict[str, str] = {}
    for part in mechanism.parts():
        kind = type(part).__name__
        if part.name in seen:
            raise MechanismError(
                f"Two parts are named {part.name!r}: a {seen[part.name]} and a {kind}. Give each a name of its own."
            )
        seen[part.name] = kind
    for sensor in mechanism.sensors:
        if sensor.name in _ENERGIES:
            raise MechanismError(
                f"The name {sensor.name!r} is taken by a solution's energies; name the sensor otherwise."
            )
        if sensor.name == "t":
            raise MechanismError("The name 't' is taken by the time; name the sensor otherwise.")


def check_inertias(mechanism: Any) -> None:
    """Raise where coordinates of the bodies' own meet a body that has no inertia about some axis."""
    for body in mechanism.bodies:
        if mechanism.coordinates == "absolute" and body.lacks_inertia:
            raise MechanismError(
                f"Body {body.name!r} has no inertia about an axis of its own (a point mass, or a thin rod), and "
                "absolute coordinates divide by it. Take coordinates='joint', where the joints can give it some, or "
                "give it a moment of inertia about that axis: where it can spin freely about it and does not, any one "
                "will do."
            )


def check_moving(mechanism: Any) -> None:
    """Raise where a joint that counts turns has a marker that moves along its body."""
    for joint in mechanism.joints:
        if any(isinstance(marker, AbstractMovingMarker) for marker in _markers(joint)) and joint.unwrapped:
            raise MechanismError(
                f"{type(joint).__name__} {joint.name!r} counts turns and cannot have a MovingMarker. Put a body "
                "between, whose place a Driver prescribes."
            )


def check_scaled(mechanism: Any) -> None:
    """Raise unless each `Scaled` is one of a quantity of a part of the mechanism, or of a sensor declared before it."""
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
    """Raise unless all bodies and markers live in one space."""
    space = mechanism.space
    named = [(part, part.space) for part in mechanism.bodies]
    named += [(part, marker.space) for part in mechanism.parts() for marker in _markers(part)]
    for force in mechanism.forces:
        if isinstance(force, Gravity):
            force.vector(space)
    for part, its in named:
        if its != space:
            raise MechanismError(
                f"{type(part).__name__} {part.name!r} lives in {its.dim} dimensions, body {mechanism.bodies[0].name!r} "
                f"in {space.dim}. Take all parts from jaxmbd.planar, or all from jaxmbd.spatial."
            )


def _markers(part: Any) -> tuple[AbstractMarker, ...]:
    return part.markers if isinstance(part, AbstractJoint | AbstractForce | AbstractSensor) else ()


def check_references(mechanism: Any) -> None:
    bodies = {GROUND} | {body.name for body in mechanism.bodies}
    for part in mechanism.parts():
        for marker in _markers(part):
            if marker.body not in bodies:
                error = unknown("body", marker.body, sorted(bodies))
                raise MechanismError(f"{type(part).__name__} {part.name!r}: {error}")
        for name in _named(part):
            try:
                mechanism.coordinate(name)
            except MechanismError as error:
                raise MechanismError(f"{type(part).__name__} {part.name!r}: {error}") from None


def _named(part: Any) -> tuple[str, ...]:
    """The coordinates that a part refers to by name."""
    if isinstance(part, AbstractCoupling):
        return (part.a, part.b)
    return (part.coordinate,) if isinstance(part, Driver | AbstractJointForce) else ()


def named_joints(mechanism: Any) -> set[str]:
    """The joints (and bodies) whose coordinates drivers, couplings or forces refer to."""
    return {name.split(".")[0] for part in mechanism.parts() for name in _named(part)}


def check_functions(mechanism: Any) -> None:
    """Try each force that holds a user's function, on shapes alone and once for each kind of force: errors are raised
    by name here, since parts have lost their names once they are stacked."""
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    v = jax.ShapeDtypeStruct((mechanism.nv,), t.dtype)
    checked: set[Any] = set()
    for force in mechanism.forces:
        if not any(callable(getattr(force, field)) for field in force.__dataclass_fields__):
            continue
        kind = hashable_kind(force)
        if kind in checked:
            continue
        checked.add(kind)
        if isinstance(force, AbstractForce):
            eqx.filter_eval_shape(force.wrenches, t, *_example(mechanism, force))
        elif isinstance(force, GeneralizedForce):
            eqx.filter_eval_shape(force.generalized, t, jax.ShapeDtypeStruct((mechanism.nq,), t.dtype), v)
        elif isinstance(force, AbstractJointForce):
            eqx.filter_eval_shape(force.effort, t, t, t)


def check_slips(mechanism: Any) -> None:
    """Raise unless users' constraints of velocities are affine in the rates."""
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    checked: set[Any] = set()
    for joint in mechanism.joints:
        if isinstance(joint, NonholonomicConstraint) and (kind := hashable_kind(joint)) not in checked:
            checked.add(kind)
            frames, rates = _example(mechanism, joint)
            part, names = f"NonholonomicConstraint {joint.name!r}", ("t, frames, parameters", "rates")
            check_affine(part, joint.slip, (t, frames), rates, names)


def hashable_kind(part: Any) -> Any:
    """`kind_of` a part; raise by its name where it holds something that JAX cannot take as a constant."""
    kind = kind_of(*eqx.partition(unnamed(part), eqx.is_array))
    try:
        hash(kind)
    except TypeError as error:
        raise MechanismError(
            f"{_kind_name(part)} {part.name!r} holds what is neither an array nor hashable ({error}). Give its "
            "parameters as numbers, arrays, tuples, lists, dictionaries or an equinox module of those."
        ) from error
    return kind


def _kind_name(part: Any) -> str:
    """The type that a user knows a part by."""
    if isinstance(part, PositionDriverConstraint | SpeedDriverConstraint):
        return "Driver"
    return type(part.law if isinstance(part, CouplingConstraint) else part).__name__


def check_measures(mechanism: Any, rows: int) -> None:
    """Try the function of each `Measure`, on shapes alone; `rows` is the number of multipliers."""
    dtype, nv = jnp.result_type(float), mechanism.nv
    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((), (mechanism.nq,), (nv,), (nv,), (rows,))]
    for sensor in mechanism.sensors:
        if isinstance(sensor, Measure):
            eqx.filter_eval_shape(sensor.value, *shapes)


def check_ground(mechanism: Any) -> None:
    """Every group of bodies that joints tie together must reach the ground by a joint, force or driver."""
    if any(isinstance(joint, GlobalConstraint) for joint in mechanism.joints):
        return
    reached, joined = {GROUND}, set()
    parts = (*mechanism.joints, *mechanism.constraints(), *mechanism.forces)
    links = [part for part in parts if _markers(part)]
    for joint in mechanism.joints:
        joined |= {marker.body for marker in _markers(joint)}
    driven = [
        link
        for link in links
        if isinstance(link, PositionDriverConstraint | SpeedDriverConstraint) and len(link.markers) == 1
    ]
    reached |= {link.markers[0].body for link in driven}
    beside: dict[str, set[str]] = {}
    for link in links:
        bodies = {marker.body for marker in _markers(link)}
        for body in bodies:
            beside.setdefault(body, set()).update(bodies)
    front = set(reached)
    while front:
        front = set().union(*(beside.get(body, set()) for body in front)) - reached
        reached |= front
    loose = sorted(joined - reached)
    if loose:
        raise MechanismError(
            f"Nothing connects {', '.join(map(repr, loose))} to the ground. Add a joint to ground.at(x, y), "
            "or pass floating=True if the bodies are meant to float freely."
        )


def count_rows(mechanism: Any, part: AbstractJoint | GlobalConstraint) -> int:
    """The number of rows that a part gives, from shapes alone."""
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    if isinstance(part, GlobalConstraint):
        q = jax.ShapeDtypeStruct((mechanism.nq,), t.dtype)
        return eqx.filter_eval_shape(part.residual, t, q).shape[0]
    frames, rates = _example(mechanism, part)
    try:
        return _count(unnamed(part), t, frames, rates)
    except MechanismError:  # again, for a message with the name
        return _count(part, t, frames, rates)


def _count(part: AbstractJoint, t: Any, frames: Any, rates: Any) -> int:
    rows = eqx.filter_eval_shape(residual_of, part, t, frames).shape[0]
    if isinstance(part, AbstractNonholonomic):
        rows += eqx.filter_eval_shape(slip_of, part, t, frames, rates).shape[0]
    return rows


def count_position_rows(mechanism: Any, part: AbstractJoint | GlobalConstraint) -> int:
    """The number of a part's rows that constrain positions; those that constrain velocities alone come below them."""
    if not isinstance(part, AbstractNonholonomic):
        return count_rows(mechanism, part)
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    return eqx.filter_eval_shape(residual_of, unnamed(part), t, _example(mechanism, part)[0]).shape[0]


def _example(mechanism: Any, part: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Frames and rates of the right shapes for a part's markers."""
    space, dtype = mechanism.space, jnp.result_type(float)
    pose, speeds = (jax.ShapeDtypeStruct((n,), dtype) for n in (len(space.rest), len(space.speeds)))
    frame, rate = eqx.filter_eval_shape(space.place, pose), eqx.filter_eval_shape(space.as_rate, speeds)
    return (frame,) * len(part.markers), (rate,) * len(part.markers)
