"""Output channels: quantities of a motion by name at one instant, and `read` for a state. Solutions map them over time.

`"rod.theta"`, `"rod.omega"`, `"rod.alpha"`: a body's coordinate, speed, acceleration. `"rod.position"`,
`"rod.velocity"`, `"rod.acceleration"`: vectors of its centre of mass in world axes. In space `"rod.omega"` and
`"rod.alpha"` are vectors in body axes, as are their components `"rod.omega_x"`; `"rod.omega_world"` and
`"rod.alpha_world"` are the same vectors in world axes; `"rod.yaw"`, `"rod.pitch"`, `"rod.roll"` are the intrinsic
rotation angles about z, y and x. `"t"`: the time. `"O.angle"`, `"O.angle_rate"`: a joint's coordinate and its rate.
`"O.fx"`, `"O.fy"`, `"O.moment"`: the reaction on the joint's second body in world axes, the moment about the joint's
marker (`"O.mx"`, … in space). `"motor.effort"`: the force or torque of a driver, or of a force along a coordinate.
`"spring.length"`, `"spring.tension"`. `"O.lambda"`: multipliers. A sensor's name: its reading. `"kinetic_energy"`,
`"potential_energy"`, `"energy"`.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.checks import checked_names
from jaxmbd.engine import as_program, cached_on_disk
from jaxmbd.equations.body_laws import local_constraints
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.reactions import at_joint, reactions, transmitted
from jaxmbd.errors import MechanismError, check_known, unknown
from jaxmbd.integrate.formulations.formulation import Stabilized
from jaxmbd.model.force.force import AbstractJointForce, ScaledForce
from jaxmbd.model.force.marker_forces import AbstractLineForce
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import Tendon
from jaxmbd.model.mechanism.mechanism import Mechanism, Sensor
from jaxmbd.model.sensor import Measure, Readings, Scaled
from jaxmbd.model.states import no_states
from jaxmbd.space.rotation import angles
from jaxmbd.state.state import State, check_state

TIME = "t"
ENERGIES = ("kinetic_energy", "potential_energy", "energy")


class Snapshot(eqx.Module):
    """One instant of a motion: `t`, `q (nq,)`, `v (nv,)`, `v̇ (nv,)`, `λ (m,)`, and `z (nz,)`, the states of parts.

    Without `z`, the parts have the states that they hold.
    """

    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    vdot: Float[Array, " nv"]
    lam: Float[Array, " m"]
    z: Float[Array, " nz"] = eqx.field(default_factory=no_states)

    @classmethod
    def at_rest(cls, equations: Equations, t: Scalar, q: Float[Array, " nq"]) -> "Snapshot":
        """Return a snapshot without speeds, for quantities of position."""
        rest = jnp.zeros(equations.mechanism.nv, q.dtype)
        return cls(t, q, rest, rest, jnp.zeros(equations.m, q.dtype), equations.mechanism.z)


# Vectors of a body, and angles of a body in space, with their units.
_VECTORS = {"position": "m", "velocity": "m/s", "acceleration": "m/s²"}
ANGLES = ("yaw", "pitch", "roll")
_SPATIAL = {"omega": "rad/s", "omega_world": "rad/s", "alpha": "rad/s²", "alpha_world": "rad/s²"}
_SPATIAL |= dict.fromkeys(ANGLES, "rad")


def read(mechanism: Mechanism, state: State, names: str | Iterable[str]) -> Any:
    """Return quantities of one state by name: the same names as in `solution[name]`.

    They include joint coordinates and their rates (`"R.angle"`, `"R.angle_rate"`) in every kind of coordinates, vectors
    (`"rod.position"`), sensors and energies. Accelerations, multipliers and reactions are those of `M v̇ + Cᵀ λ = F`,
    `C v̇ = γ` at the state. The function works under `jit` and `vmap`, and is differentiable with respect to the
    mechanism and the state.

    **Arguments:** the `mechanism` that the `state` belongs to; `names`, one name or several.

    **Returns:** the value, or a dictionary of values if `names` has several.

    **Raises:** `MechanismError` if the state belongs to another mechanism or a name does not exist.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> state = mbd.assemble(pendulum, {"O.angle": 0.3}, speeds={"O.angle": 2.0})
        >>> print(mbd.read(pendulum, state, "O.angle_rate"), mbd.read(pendulum, state, "rod.velocity").round(3))
        2.0 [-0.296  0.955]
    """
    check_state(mechanism, state)
    requested = (names,) if isinstance(names, str) else checked_names("read: names", names, "rod.position")
    units = channel_units(mechanism)
    check_known("quantity", [name for name in requested if name != TIME], units)
    values = _read(mechanism, state, requested)
    return values[requested[0]] if isinstance(names, str) else {name: values[name] for name in requested}


@cached_on_disk
def _read(mechanism: Mechanism, state: State, names: tuple[str, ...]) -> dict[str, Array]:
    """Return the named quantities; all others are dead code, which is removed from the program."""
    return as_program(_values)(mechanism, names, state.t, state.q, state.v, state.z)


def _values(mechanism: Mechanism, names: tuple[str, ...], t: Array, q: Array, v: Array, z: Array) -> dict[str, Array]:
    equations = Equations(mechanism).with_own_states(z)
    motion = Stabilized().motion(equations, t, q, v)
    return channel_values(equations, names, Snapshot(t, q, v, motion.vdot, motion.lam, z))


def channel_units(mechanism: Mechanism) -> dict[str, str]:
    """Return the names of all output channels of a mechanism, with their units."""
    space = mechanism.space
    units: dict[str, str] = {}
    components = [(name, unit) for name, unit in zip(space.coordinates, space.units, strict=True)]
    components += [(name, unit + "/s") for name, unit in zip(space.speeds, space.twist_units, strict=True)]
    components += [(name, unit + "/s²") for name, unit in zip(space.accelerations, space.twist_units, strict=True)]
    components += [*_VECTORS.items(), *(_SPATIAL if space.dim == 3 else {}).items()]
    for body in mechanism.bodies:
        units |= {f"{body.name}.{name}": unit for name, unit in components}
    for joint in mechanism.joints:
        if isinstance(joint, AbstractJoint | Tendon):
            for name, unit in zip(joint.coordinate_names, joint.coordinate_units, strict=True):
                units |= {f"{joint.name}.{name}": unit, f"{joint.name}.{name}_rate": unit + "/s"}
        if isinstance(joint, AbstractJoint):
            for effort, unit in zip(space.efforts, space.effort_units, strict=True):
                units[f"{joint.name}.{effort}"] = unit
    for part in mechanism.constraints():
        units[f"{part.name}.lambda"] = ""
    units |= dict(zip(mechanism.layout.names, mechanism.layout.units, strict=True))
    for part in (*mechanism.drivers, *(force for force in mechanism.forces if isinstance(force, AbstractJointForce))):
        unit = mechanism.coordinate(part.coordinate).unit(space)
        units[f"{part.name}.effort"] = "N m" if unit == "rad" else "N"
    for force in mechanism.forces:
        if isinstance(force, AbstractLineForce):
            units |= {f"{force.name}.length": "m", f"{force.name}.tension": "N"}
    units |= dict.fromkeys(ENERGIES, "J")
    for sensor in mechanism.sensors:
        units[sensor.name] = _scaled_unit(sensor, units) if isinstance(sensor, Scaled) else sensor.unit
    return {name: unit for name, unit in units.items() if name not in ENERGIES} | dict.fromkeys(ENERGIES, "J")


def channels_of_users(mechanism: Mechanism) -> set[str]:
    """Return the names of sensors that may run a user's code or refuse what they read, unlike all other channels."""
    own = __name__.partition(".")[0]
    return {
        sensor.name
        for sensor in mechanism.sensors
        if isinstance(sensor, Measure | Scaled) or type(sensor).__module__.partition(".")[0] != own
    }


def _scaled_unit(sensor: Scaled, known: dict[str, str]) -> str:
    """Return the unit of a `Scaled` sensor; raise unless the quantity that it scales exists."""
    if sensor.of not in known:
        raise MechanismError(f"Scaled {sensor.name!r}: {unknown('quantity', sensor.of, known)}")
    return known[sensor.of] if sensor.unit is None else sensor.unit


def vector_channels(mechanism: Mechanism, names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of those channels that are not scalars: sensors, and multipliers of several rows."""
    sensors = {sensor.name for sensor in mechanism.sensors}
    vectors = tuple(name for name in names if name in sensors or name.endswith(".lambda"))
    if not vectors:
        return {}

    def values() -> dict[str, Array]:
        equations = Equations(mechanism)
        return channel_values(equations, vectors, Snapshot.at_rest(equations, jnp.zeros(()), jnp.zeros(mechanism.nq)))

    shapes = eqx.filter_eval_shape(values)
    return {name: value.shape for name, value in shapes.items() if value.shape != ()}


def channel_values(equations: Equations, names: Iterable[str], at: Snapshot) -> dict[str, Array]:
    """Return the named quantities at one instant.

    >>> example = mbd.examples.get("pendulum")
    >>> state = example.state()
    >>> at = mbd.Snapshot(state.t, state.q, state.v, state.v, jnp.zeros(0))
    >>> sorted(mbd.extend.channel_values(mbd.Equations(example.mechanism), ["kinetic_energy"], at))
    ['kinetic_energy']
    """
    reader = Reader(equations, at)
    return {name: reader.read(name) for name in names}


class Reader:
    """Reads quantities of one instant; intermediate results that several quantities share are computed once."""

    def __init__(self, equations: Equations, at: Snapshot) -> None:
        equations = equations.with_own_states(at.z)
        self.equations, self.mechanism, self.at = equations, equations.mechanism, at
        self.position = equations.at(at.t, at.q)
        self._wrenches: dict[str, Array] = {}
        self._rates: dict[str, tuple[Array, Array]] = {}

    @cached_property
    def twists(self) -> Float[Array, "bodies twist"]:
        """The twists of the bodies."""
        return self.position.twists(self.at.v)

    @cached_property
    def accelerations(self) -> Float[Array, "bodies twist"]:
        """The rates of the bodies' twists."""
        return self.position.accelerations(self.at.v, self.at.vdot)

    @cached_property
    def _reactions(self) -> list[Float[Array, "parts markers efforts"]]:
        return reactions(self.position, self.at.lam)

    @cached_property
    def _transmitted(self) -> Float[Array, "bodies efforts"]:
        return transmitted(self.position, self.at.v, self.at.vdot, self.at.lam)

    # Where parts are found by name: with many parts, looking them up one by one would take longer than all else.

    @cached_property
    def _sensors(self) -> dict[str, Sensor]:
        return {sensor.name: sensor for sensor in self.mechanism.sensors}

    @cached_property
    def _bodies(self) -> dict[str, int]:
        return {body.name: k for k, body in enumerate(self.mechanism.bodies)}

    @cached_property
    def _joints(self) -> dict[str, AbstractJoint | Tendon]:
        return {joint.name: joint for joint in self.mechanism.joints if isinstance(joint, AbstractJoint | Tendon)}

    @cached_property
    def _drivers(self) -> set[str]:
        return {driver.name for driver in self.mechanism.drivers}

    @cached_property
    def _places(self) -> dict[str, tuple[str, int]]:
        """Where coordinates are in `q`, speeds in `v` and states of parts in `z`."""
        return self.mechanism.layout.places

    @cached_property
    def _rows(self) -> dict[str, slice]:
        """The rows of each joint or driver."""
        ends = np.cumsum(self.equations.sizes).tolist()
        parts = zip(self.mechanism.constraints(), self.equations.sizes, ends, strict=True)
        return {part.name: slice(end - size, end) for part, size, end in parts}

    @cached_property
    def _groups(self) -> dict[str, tuple[int, int]]:
        """The group of parts of one type to which a constraint belongs, and its place in the group."""
        names = [part.name for part in local_constraints(self.mechanism)]
        groups = enumerate(self.equations.parts.joints)
        return {names[member]: (k, place) for k, group in groups for place, member in enumerate(group.members)}

    def reaction(self, name: str) -> Float[Array, "markers efforts"]:
        """Return the wrench of a joint or driver on the body at each of its markers: world axes, moment about the
        marker."""
        if name not in self._wrenches:
            if name in self.mechanism.tree.joints:
                self._wrenches[name] = at_joint(self.position, name, self._transmitted)
            else:
                group, place = self._groups[name]
                self._wrenches[name] = self._reactions[group][place]
        return self._wrenches[name]

    def _coordinate(self, name: str) -> tuple[Array, Array]:
        """Return the value and the rate of a coordinate."""
        if name not in self._rates:
            self._rates[name] = self.position.coordinate(name, self.at.v)
        return self._rates[name]

    def read(self, name: str) -> Array:
        """Return the quantity of a name."""
        mechanism, at = self.mechanism, self.at
        if name in self._sensors:
            return self._sensor_reading(self._sensors[name])
        if name in ENERGIES:
            kinetic, potential = self.position.kinetic_energy(at.v), self.position.potential_energy()
            return {"kinetic_energy": kinetic, "potential_energy": potential, "energy": kinetic + potential}[name]
        if name == TIME:
            return at.t
        if name in self._places:
            block, k = self._places[name]
            return {"q": at.q, "v": at.v, "z": self.mechanism.z}[block][k]
        owner, _, component = name.partition(".")
        for channel in (self._body_channel, self._joint_channel, self._force_channel):
            value = channel(owner, component)
            if value is not None:
                return value
        raise unknown("quantity", name, channel_units(mechanism))

    def _body_channel(self, owner: str, component: str) -> Array | None:
        space, k = self.mechanism.space, self._bodies.get(owner)
        if k is None:
            return None
        if component in space.coordinates:
            return self.position.poses()[k, space.coordinates.index(component)]
        if component in space.speeds:
            return self.twists[k, space.speeds.index(component)]
        if component in space.accelerations:
            return self.accelerations[k, space.accelerations.index(component)]
        if component in _VECTORS:
            vectors = {"position": self.position.poses, "velocity": lambda: self.twists}
            return vectors.get(component, lambda: self.accelerations)()[k, : space.dim]
        return self._rotation_channel(k, component) if space.dim == 3 and component in _SPATIAL else None

    def _rotation_channel(self, body: int, component: str) -> Array:
        """Return an orientation angle, an angular velocity or an angular acceleration of a body in space."""
        if component in ANGLES:
            return angles(self.position.poses()[body, 3:], "zyx")[ANGLES.index(component)]
        base = component.removesuffix("_world")
        vector = (self.twists if base == "omega" else self.accelerations)[body, 3:]
        frame = jax.tree.map(lambda x: x[body], self.position.bodies.frames)
        return vector if base == component else frame.to_world(vector)

    def _joint_channel(self, owner: str, component: str) -> Array | None:
        at, joint = self.at, self._joints.get(owner)
        if component == "lambda" and owner in self._rows:
            return at.lam[self._rows[owner]]
        if component == "effort" and owner in self._drivers:
            return -at.lam[self._rows[owner]][0]
        if joint is None:
            return None
        if component in self.mechanism.space.efforts and isinstance(joint, AbstractJoint):
            return self.reaction(owner)[1][self.mechanism.space.efforts.index(component)]
        base = component.removesuffix("_rate")
        if base not in joint.coordinate_names:
            return None
        value, rate = self._coordinate(f"{owner}.{base}")
        return value if base == component else rate

    def _force_channel(self, owner: str, component: str) -> Array | None:
        at, space = self.at, self.mechanism.space
        for part in self.mechanism.forces:
            force, factor = (part.force, part.factor) if isinstance(part, ScaledForce) else (part, 1.0)
            if force.name == owner and component == "effort" and isinstance(force, AbstractJointForce):
                return force.effort(at.t, *self._coordinate(force.coordinate))
            if force.name == owner and component in ("length", "tension") and isinstance(force, AbstractLineForce):
                near = self.position.near(force.markers)
                rates = near.rates(self.position.on_markers(force.markers, self.twists))
                length, rate = force.stretch(near.frames, [space.as_rate(r) for r in rates])
                return length if component == "length" else factor * force.tension(at.t, length, rate)
        return None

    def _sensor_reading(self, sensor: Sensor) -> Array:
        at, space, position = self.at, self.mechanism.space, self.position
        if isinstance(sensor, Scaled):
            return sensor.value(self.read(sensor.of))
        if isinstance(sensor, Measure):
            return jnp.asarray(sensor.value(at.t, at.q, at.v, at.vdot, at.lam))
        near = position.near(sensor.markers)
        twists = position.on_markers(sensor.markers, self.twists)
        changes = near.accelerations(twists, position.on_markers(sensor.markers, self.accelerations))
        velocities, changes = (tuple(space.as_rate(x) for x in values) for values in (near.rates(twists), changes))
        return sensor.read(Readings(near.frames, velocities, changes, self.equations.parts.gravity))
