"""The mechanism: named bodies, joints, drivers, forces and sensors, checked as a whole.

Its topology is static; every number in it is an array leaf, so that `equinox.tree_at`, gradients and `vmap`
reach all of them and never retrace.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._body import AbstractBody, AbstractMarker
from jaxmbd._driver import Driver
from jaxmbd._errors import MechanismError, unknown
from jaxmbd._force import AbstractAlong, AbstractForce, GeneralizedForce, Gravity
from jaxmbd._joint import AbstractCoupling, AbstractJoint, GlobalConstraint
from jaxmbd._mechanism._checks import (
    check_functions,
    check_ground,
    check_names,
    check_references,
    check_space,
    count_rows,
)
from jaxmbd._mechanism._coordinate import Coordinate, Coupled, Drive, SpeedDrive
from jaxmbd._sensor import AbstractSensor, Measure
from jaxmbd._space import AbstractSpace

Joint: TypeAlias = AbstractJoint | AbstractCoupling | GlobalConstraint
Constraint: TypeAlias = AbstractJoint | GlobalConstraint
AnyForce: TypeAlias = AbstractForce | AbstractAlong | Gravity | GeneralizedForce
Sensor: TypeAlias = AbstractSensor | Measure


class Mechanism(eqx.Module):
    """Bodies, joints, drivers, forces and sensors.

    **Arguments:** sequences of parts, each with a name of its own; `floating`, whether bodies that nothing
    connects to the ground are meant.

    **Raises:** `MechanismError` if two parts have one name, a part refers to a body or coordinate that does not
    exist or that lives in another space, or a group of joined bodies does not reach the ground.

    `mechanism["rod"]` is the part of that name, `mechanism["rod"].mass` its mass: a leaf for
    `equinox.tree_at` and `jax.grad`.
    """

    bodies: tuple[AbstractBody, ...]
    joints: tuple[Joint, ...]
    forces: tuple[AnyForce, ...]
    drivers: tuple[Driver, ...]
    sensors: tuple[Sensor, ...]
    space: AbstractSpace
    floating: bool = eqx.field(static=True)

    def __init__(
        self,
        bodies: Iterable[AbstractBody],
        joints: Iterable[Joint] = (),
        forces: Iterable[AnyForce] = (),
        drivers: Iterable[Driver] = (),
        sensors: Iterable[Sensor] = (),
        floating: bool = False,
    ) -> None:
        self.bodies = _parts("bodies", bodies, AbstractBody)
        self.joints = _parts("joints", joints, AbstractJoint, AbstractCoupling, GlobalConstraint)
        self.forces = _parts("forces", forces, AbstractForce, AbstractAlong, Gravity, GeneralizedForce)
        self.drivers = _parts("drivers", drivers, Driver)
        self.sensors = _parts("sensors", sensors, AbstractSensor, Measure)
        if not self.bodies:
            raise MechanismError("A mechanism needs at least one body.")
        self.space = self.bodies[0].space
        self.floating = floating

    def __check_init__(self) -> None:
        check_names(self)
        check_space(self)
        check_references(self)
        check_functions(self)
        self.constraint_sizes()  # tries each joint's function on shapes
        if not self.floating:
            check_ground(self)

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
        return len(self.bodies) * len(self.space.coordinates) + len(self.turns)

    @property
    def nv(self) -> int:
        """Number of generalized speeds."""
        return len(self.bodies) * len(self.space.speeds)

    @property
    def turns(self) -> tuple[str, ...]:
        """The joint angles carried among the coordinates so that their whole turns count (none in the plane)."""
        joints = [joint for joint in self.joints if isinstance(joint, AbstractJoint)]
        return tuple(f"{joint.name}.{angle}" for joint in joints for angle in joint.turning)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """Names of the entries of `q`: `"crank.x"`, `"crank.y"`, `"crank.theta"`, … and then `turns`."""
        return tuple(f"{body.name}.{c}" for body in self.bodies for c in self.space.coordinates) + self.turns

    @property
    def speed_names(self) -> tuple[str, ...]:
        """Names of the entries of `v`: `"crank.vx"`, `"crank.vy"`, `"crank.omega"`, …"""
        return tuple(f"{body.name}.{c}" for body in self.bodies for c in self.space.speeds)

    def split(self, q: Float[Array, " nq"]) -> tuple[Float[Array, "bodies pose"], Float[Array, " turns"]]:
        """The bodies' poses, and the carried joint angles."""
        count = len(self.bodies) * len(self.space.coordinates)
        return q[:count].reshape(len(self.bodies), -1), q[count:]

    def frames(self, markers: Iterable[AbstractMarker], q: Float[Array, " nq"]) -> tuple[Any, ...]:
        """The world frames of markers at coordinates `q`."""
        markers = tuple(markers)
        return tuple(m.frame(pose) for m, pose in zip(markers, self.poses(markers, q), strict=True))

    def poses(self, markers: Iterable[AbstractMarker], q: Float[Array, " nq"]) -> tuple[Array, ...]:
        """The poses of the bodies that carry the markers."""
        poses, _ = self.split(q)
        index = {body.name: i for i, body in enumerate(self.bodies)}
        rest = jnp.asarray(self.space.rest, q.dtype)
        return tuple(poses[index[m.body]] if m.body in index else rest for m in markers)

    def coordinate_at(self, name: str, q: Float[Array, " nq"]) -> Coordinate:
        """The coordinate written `"joint.angle"` or `"body.x"`, its whole turns those at `q`."""
        coordinate = self.coordinate(name)
        return coordinate.by(self.split(q)[1][self.turns.index(name)]) if name in self.turns else coordinate

    def constraints(self) -> tuple[Constraint, ...]:
        """Everything that gives rows of `Φ`, in their order: joints, then drivers."""
        joints = (self._coupled(j) if isinstance(j, AbstractCoupling) else j for j in self.joints)
        return (*joints, *(self._driven(driver) for driver in self.drivers))

    def _coupled(self, law: AbstractCoupling) -> Coupled:
        return Coupled(law.name, (self.coordinate(law.a), self.coordinate(law.b)), law)

    def _driven(self, driver: Driver) -> Drive | SpeedDrive:
        kind = Drive if driver.of == "position" else SpeedDrive
        return kind(driver.name, self.coordinate(driver.coordinate), driver)

    def constraint_sizes(self) -> tuple[int, ...]:
        """The number of rows of each of `constraints()`."""
        return tuple(count_rows(self, part) for part in self.constraints())

    def row_labels(self) -> tuple[tuple[str, int], ...]:
        """For each row of `Φ`: the name of the part that gives it, and its number among that part's rows."""
        each = zip(self.constraints(), self.constraint_sizes(), strict=True)
        return tuple((part.name, row) for part, size in each for row in range(size))

    def coordinate(self, name: str) -> Coordinate:
        """The coordinate written `"joint.angle"` or `"body.x"`."""
        owner, _, component = name.partition(".")
        for joint in self.joints:
            if joint.name == owner and isinstance(joint, AbstractJoint):
                if component not in joint.motions:
                    raise unknown(f"coordinate of joint {owner!r}", component, joint.motions)
                return Coordinate(name, joint, joint.markers, joint.motions.index(component))
        for body in self.bodies:
            if body.name == owner:
                if component not in self.space.prescribable:
                    raise unknown(f"coordinate of body {owner!r}", component, self.space.prescribable)
                return Coordinate(name, None, (body.at(),), self.space.coordinates.index(component))
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
