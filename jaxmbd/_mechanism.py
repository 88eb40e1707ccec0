"""The mechanism: named bodies, joints, drivers, forces and sensors, checked as a whole.

Its topology is static; every number in it is an array leaf, so that `equinox.tree_at`, gradients and `vmap`
reach all of them and never retrace.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._body import GROUND, Body, Marker
from jaxmbd._driver import Driver
from jaxmbd._errors import MechanismError, unknown
from jaxmbd._force import AbstractForce, GeneralizedForce, Gravity, JointForce, JointFriction
from jaxmbd._joint import AbstractJoint, GlobalConstraint
from jaxmbd._sensor import AbstractSensor, Measure
from jaxmbd._space import PLANAR, AbstractSpace, Frame
from jaxmbd._types import Scalar

Joint: TypeAlias = AbstractJoint | GlobalConstraint
AnyForce: TypeAlias = AbstractForce | Gravity | GeneralizedForce | JointForce | JointFriction
Sensor: TypeAlias = AbstractSensor | Measure


_TAKEN = ("kinetic_energy", "potential_energy", "energy")


class Coordinate(eqx.Module):
    """One coordinate, of a joint or of a body, as a function of the frames of its markers."""

    joint: AbstractJoint | None
    markers: tuple[Marker, ...]
    index: int = eqx.field(static=True)

    def value(self, frames: Sequence[Frame]) -> Scalar:
        """The coordinate's value [m or rad]."""
        if self.joint is not None:
            return self.joint.motion(frames)[self.index]
        (frame,) = frames
        return jnp.append(frame.position, frame.angle)[self.index]

    def unit(self, space: AbstractSpace) -> str:
        """The coordinate's unit, m or rad."""
        return (space.units if self.joint is None else self.joint.motion_units)[self.index]


class Drive(eqx.Module):
    """A driver together with the coordinate that it prescribes: the constraint `c(q) − f(t) = 0`."""

    name: str = eqx.field(static=True)
    coordinate: Coordinate
    driver: Driver

    @property
    def markers(self) -> tuple[Marker, ...]:
        """The markers of the driven coordinate."""
        return self.coordinate.markers

    def residual(self, t: Scalar, frames: Sequence[Frame]) -> Float[Array, "1"]:
        """`Φ(q, t) = c(q) − f(t)`."""
        return (self.coordinate.value(frames) - self.driver.value(t))[None]


class CoordinateForce(eqx.Module):
    """A force law along a joint's coordinate, together with that coordinate."""

    name: str = eqx.field(static=True)
    coordinate: Coordinate
    law: JointForce | JointFriction

    @property
    def markers(self) -> tuple[Marker, ...]:
        """The markers of the coordinate."""
        return self.coordinate.markers


class Mechanism(eqx.Module):
    """Bodies, joints, drivers, forces and sensors.

    **Arguments:** sequences of parts, each with a name of its own; `floating`, whether bodies that nothing
    connects to the ground are meant.

    **Raises:** `MechanismError` if two parts have one name, a part refers to a body or coordinate that does not
    exist, a group of joined bodies does not reach the ground, or there are more constraints than coordinates.

    `mechanism["rod"]` is the part of that name, `mechanism["rod"].mass` its mass: a leaf for
    `equinox.tree_at` and `jax.grad`.
    """

    bodies: tuple[Body, ...]
    joints: tuple[Joint, ...]
    forces: tuple[AnyForce, ...]
    drivers: tuple[Driver, ...]
    sensors: tuple[Sensor, ...]
    space: AbstractSpace
    floating: bool = eqx.field(static=True)

    def __init__(
        self,
        bodies: Iterable[Body],
        joints: Iterable[Joint] = (),
        forces: Iterable[AnyForce] = (),
        drivers: Iterable[Driver] = (),
        sensors: Iterable[Sensor] = (),
        floating: bool = False,
    ) -> None:
        self.bodies = _parts("bodies", bodies, Body)
        self.joints = _parts("joints", joints, AbstractJoint, GlobalConstraint)
        self.forces = _parts("forces", forces, AbstractForce, Gravity, GeneralizedForce, JointForce, JointFriction)
        self.drivers = _parts("drivers", drivers, Driver)
        self.sensors = _parts("sensors", sensors, AbstractSensor, Measure)
        self.space = PLANAR
        self.floating = floating

    def __check_init__(self) -> None:
        if not self.bodies:
            raise MechanismError("A mechanism needs at least one body.")
        _check_names(self)
        _check_references(self)
        _check_functions(self)
        if not self.floating:
            _check_ground(self)
        _check_count(self)

    def __getitem__(self, name: str) -> Any:
        for part in self.parts():
            if part.name == name:
                return part
        raise unknown("part", name, (part.name for part in self.parts()))

    def parts(self) -> Iterator[Any]:
        """All parts: bodies, joints, drivers, forces, sensors."""
        for group in (self.bodies, self.joints, self.drivers, self.forces, self.sensors):
            if isinstance(group, tuple):  # equinox.tree_at looks up names in trees whose empty tuples are wrapped
                yield from group

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return len(self.bodies) * len(self.space.coordinates)

    @property
    def nv(self) -> int:
        """Number of generalized speeds."""
        return len(self.bodies) * len(self.space.speeds)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of the entries of `q`: `"crank.x"`, `"crank.y"`, `"crank.theta"`, …"""
        return tuple(f"{body.name}.{c}" for body in self.bodies for c in self.space.coordinates)

    @property
    def speed_names(self) -> tuple[str, ...]:
        """Names of the entries of `v`: `"crank.vx"`, `"crank.vy"`, `"crank.omega"`, …"""
        return tuple(f"{body.name}.{c}" for body in self.bodies for c in self.space.speeds)

    def frames(self, markers: Iterable[Marker], q: Float[Array, " nq"]) -> tuple[Frame, ...]:
        """The world frames of markers at coordinates `q`."""
        markers = tuple(markers)
        return tuple(m.frame(pose) for m, pose in zip(markers, self.poses(markers, q), strict=True))

    def poses(self, markers: Iterable[Marker], q: Float[Array, " nq"]) -> tuple[Array, ...]:
        """The poses of the bodies that carry the markers (zeros for the ground)."""
        poses = q.reshape(len(self.bodies), -1)
        index = {body.name: i for i, body in enumerate(self.bodies)}
        rest = jnp.zeros_like(poses[0])
        return tuple(poses[index[m.body]] if m.body in index else rest for m in markers)

    def constraints(self) -> tuple[AbstractJoint | GlobalConstraint | Drive, ...]:
        """Everything that gives rows of `Φ`, in their order: joints, then drivers."""
        drives = (Drive(d.name, self.coordinate(d.coordinate), d) for d in self.drivers)
        return (*self.joints, *drives)

    def constraint_sizes(self) -> tuple[int, ...]:
        """The number of rows of each of `constraints()`."""
        return tuple(_rows(self, part) for part in self.constraints())

    def coordinate(self, name: str) -> Coordinate:
        """The coordinate written `"joint.angle"` or `"body.x"`."""
        owner, _, component = name.partition(".")
        for joint in self.joints:
            if joint.name == owner and isinstance(joint, AbstractJoint):
                if component not in joint.motions:
                    raise unknown(f"coordinate of joint {owner!r}", component, joint.motions)
                return Coordinate(joint, joint.markers, joint.motions.index(component))
        for body in self.bodies:
            if body.name == owner:
                if component not in self.space.coordinates:
                    raise unknown(f"coordinate of body {owner!r}", component, self.space.coordinates)
                return Coordinate(None, (body.at(),), self.space.coordinates.index(component))
        raise unknown("joint or body", owner, (part.name for part in (*self.joints, *self.bodies)))


def _parts(kind: str, parts: Iterable[Any], *types: type) -> tuple[Any, ...]:
    if not isinstance(parts, Iterable):
        raise MechanismError(f"{kind} must be a sequence of parts, such as [part], got a {type(parts).__name__}.")
    found = tuple(parts)
    for part in found:
        if not isinstance(part, types):
            names = ", ".join(t.__name__.removeprefix("Abstract") for t in types)
            raise MechanismError(f"Among {kind} there is a {type(part).__name__}; expected one of: {names}.")
    return found


def _check_names(mechanism: Mechanism) -> None:
    seen: dict[str, str] = {}
    for part in mechanism.parts():
        kind = type(part).__name__
        if part.name in seen:
            raise MechanismError(
                f"Two parts are named {part.name!r}: a {seen[part.name]} and a {kind}. Give each a name of its own."
            )
        seen[part.name] = kind
    for sensor in mechanism.sensors:
        if sensor.name in _TAKEN:
            raise MechanismError(
                f"The name {sensor.name!r} is taken by a solution's energies; name the sensor otherwise."
            )


def _markers(part: Any) -> tuple[Marker, ...]:
    if isinstance(part, AbstractJoint | AbstractForce | Drive):
        return part.markers
    return (part.at,) if isinstance(part, AbstractSensor) else ()


def _check_references(mechanism: Mechanism) -> None:
    bodies = {GROUND} | {body.name for body in mechanism.bodies}
    for part in mechanism.parts():
        for marker in _markers(part):
            if marker.body not in bodies:
                error = unknown("body", marker.body, sorted(bodies))
                raise MechanismError(f"{type(part).__name__} {part.name!r}: {error}")
        if isinstance(part, Driver | JointForce | JointFriction):
            try:
                mechanism.coordinate(part.coordinate)
            except MechanismError as error:
                raise MechanismError(f"{type(part).__name__} {part.name!r}: {error}") from None


def _check_functions(mechanism: Mechanism) -> None:
    """Try each force that holds a user's function, on shapes alone: what it returns is checked by name here, since
    parts have lost their names once they are stacked."""
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    v = jax.ShapeDtypeStruct((mechanism.nv,), t.dtype)
    for force in mechanism.forces:
        if not any(callable(getattr(force, field)) for field in force.__dataclass_fields__):
            continue
        if isinstance(force, AbstractForce):
            frames = tuple(Frame(jnp.zeros(2), jnp.zeros(())) for _ in force.markers)
            eqx.filter_eval_shape(force.wrenches, t, frames, frames)
        elif isinstance(force, GeneralizedForce):
            eqx.filter_eval_shape(force.generalized, t, jax.ShapeDtypeStruct((mechanism.nq,), t.dtype), v)
        elif isinstance(force, JointForce):
            eqx.filter_eval_shape(force.effort, t, t, t)


def _check_ground(mechanism: Mechanism) -> None:
    """Every group of bodies that joints tie together must reach the ground by a joint, force or driver."""
    if any(isinstance(joint, GlobalConstraint) for joint in mechanism.joints):
        return
    reached, joined = {GROUND}, set()
    links = [part for part in (*mechanism.constraints(), *mechanism.forces) if _markers(part)]
    for joint in mechanism.joints:
        joined |= {marker.body for marker in _markers(joint)}
    driven = [link for link in links if isinstance(link, Drive) and len(link.markers) == 1]
    reached |= {link.markers[0].body for link in driven}
    for _ in mechanism.bodies:
        for link in links:
            bodies = {marker.body for marker in _markers(link)}
            if bodies & reached:
                reached |= bodies
    loose = sorted(joined - reached)
    if loose:
        raise MechanismError(
            f"Nothing connects {', '.join(map(repr, loose))} to the ground. Add a joint to ground.at(x, y), "
            "or pass floating=True if the bodies are meant to float freely."
        )


def _rows(mechanism: Mechanism, part: AbstractJoint | GlobalConstraint | Drive) -> int:
    t = jax.ShapeDtypeStruct((), jnp.result_type(float))
    if isinstance(part, GlobalConstraint):
        q = jax.ShapeDtypeStruct((mechanism.nq,), t.dtype)
        return eqx.filter_eval_shape(part.residual, t, q).shape[0]
    frames = tuple(Frame(jnp.zeros(2), jnp.zeros(())) for _ in part.markers)
    return eqx.filter_eval_shape(part.residual, t, frames).shape[0]


def _check_count(mechanism: Mechanism) -> None:
    rows, drivers = sum(mechanism.constraint_sizes()), len(mechanism.drivers)
    if rows <= mechanism.nv:
        return
    freedom = mechanism.nv - (rows - drivers)
    if drivers and freedom >= 0:
        names = ", ".join(repr(driver.name) for driver in mechanism.drivers)
        raise MechanismError(
            f"Over-constrained: {drivers} driver{'s' * (drivers != 1)} ({names}) on a mechanism with {freedom} "
            f"degree{'s' * (freedom != 1)} of freedom. Remove {drivers - freedom} of them."
        )
    sizes = zip(mechanism.constraints(), mechanism.constraint_sizes(), strict=True)
    listed = ", ".join(f"{part.name!r} {size}" for part, size in sizes)
    raise MechanismError(
        f"Over-constrained: {rows} constraint rows ({listed}) on {mechanism.nv} coordinates, three for each body. "
        "Remove joints that repeat what others already enforce."
    )
