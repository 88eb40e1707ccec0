"""Output channels: quantities of a motion by name at one instant, and `read` for a state. Solutions map them over time.

`"rod.theta"`, `"rod.omega"`, `"rod.alpha"`: a body's coordinate, speed, acceleration. `"rod.position"`,
`"rod.velocity"`, `"rod.acceleration"`: vectors of its centre of mass in world axes. In space `"rod.omega"` and
`"rod.alpha"` are vectors in body axes, as are their components `"rod.omega_x"`; `"rod.omega_world"` and
`"rod.alpha_world"` are the same vectors in world axes; `"rod.yaw"`, `"rod.pitch"`, `"rod.roll"` are the intrinsic
rotation angles about z, y and x. `"t"`: the time. `"O.angle"`, `"O.angle_rate"`: a joint's coordinate and its rate.
`"O.fx"`, `"O.fy"`, `"O.moment"`: the reaction on the joint's second body in world axes, the moment about the joint's
marker (`"O.mx"`, … in space). `"motor.effort"`: the force or torque of a driver, or of a force along a coordinate.
`"gear.a_effort"`, `"set.sun_effort"`: what a gear exerts along a coordinate that it couples. `"spring.length"`,
`"spring.tension"`. `"O.lambda"`: multipliers. A sensor's name: its reading. `"kinetic_energy"`, `"potential_energy"`,
`"energy"`.
"""

from collections.abc import Callable, Iterable
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
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.kinematic_quantities import KinematicReader
from jaxmbd.equations.reactions import at_joint, reactions, transmitted
from jaxmbd.errors import check_known, unknown
from jaxmbd.integrate.formulations.formulation import Stabilized
from jaxmbd.integrate.formulations.joint_loads import at_loads, motion_at
from jaxmbd.model.force.force import AbstractJointForce, ScaledForce
from jaxmbd.model.force.marker_forces import AbstractLineForce
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import AbstractCoupling
from jaxmbd.model.mechanism.mechanism import Mechanism, Sensor
from jaxmbd.model.mechanism.quantities import ENERGIES, TIME, channel_units
from jaxmbd.model.sensor import Measure, Scaled
from jaxmbd.model.states import no_states
from jaxmbd.state.state import State, check_state


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
    motion = motion_at(Stabilized(), equations, t, q, v)
    return channel_values(equations, names, Snapshot(t, q, v, motion.vdot, motion.lam, z))


def channels_of_users(mechanism: Mechanism) -> set[str]:
    """Return the names of sensors that may run a user's code or refuse what they read, unlike all other channels."""
    own = __name__.partition(".")[0]
    return {
        sensor.name
        for sensor in mechanism.sensors
        if isinstance(sensor, Measure | Scaled) or type(sensor).__module__.partition(".")[0] != own
    }


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

    def __init__(self, equations: Equations, at: Any, held: Callable[[], dict[str, Array]] = dict) -> None:
        """`at`: a `Snapshot`, or what has its fields; `held`: gives the efforts of what sticks, by names of forces."""
        self._held = held
        equations = equations.with_own_states(at.z)
        self.equations, self.mechanism, self.at = equations, equations.mechanism, at
        self.position = equations.at(at.t, at.q)
        self.kinematic = KinematicReader(self.position, at.v)
        self._wrenches: dict[str, Array] = {}

    @cached_property
    def accelerations(self) -> Float[Array, "bodies twist"]:
        """The rates of the bodies' twists."""
        return self.position.accelerations(self.at.v, self.at.vdot)

    @cached_property
    def _reactions(self) -> list[Float[Array, "parts markers efforts"]]:
        return reactions(self.position, self.at.lam)

    @cached_property
    def _loaded(self) -> Configuration:
        """The configuration with the loads of joints that rub."""
        return at_loads(self.position, self.at)

    @cached_property
    def _transmitted(self) -> Float[Array, "bodies efforts"]:
        return transmitted(self._loaded, self.at.v, self.at.vdot, self.at.lam)

    # Where parts are found by name: with many parts, looking them up one by one would take longer than all else.

    @cached_property
    def _sensors(self) -> dict[str, Sensor]:
        return {sensor.name: sensor for sensor in self.mechanism.sensors}

    @cached_property
    def _drivers(self) -> set[str]:
        return {driver.name for driver in self.mechanism.drivers}

    @cached_property
    def _couplings(self) -> dict[str, AbstractCoupling]:
        return {part.name: part for part in self.mechanism.joints if isinstance(part, AbstractCoupling)}

    @cached_property
    def _driven(self) -> Mechanism:
        """The mechanism with the inputs that controllers drive."""
        return self._loaded.driven(self.at.v).mechanism

    @cached_property
    def _forces(self) -> dict[str, Any]:
        return {force.name: force for force in self._driven.forces}

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

    def read(self, name: str) -> Array:
        """Return the quantity of a name."""
        if name in ENERGIES:
            kinetic, potential = self.position.kinetic_energy(self.at.v), self.position.potential_energy()
            return {"kinetic_energy": kinetic, "potential_energy": potential, "energy": kinetic + potential}[name]
        value = self.kinematic.read(name)
        if value is None and name in self._sensors:
            return self._sensor_reading(self._sensors[name])
        owner, _, component = name.partition(".")
        for channel in (self._acceleration_channel, self._load_channel, self._force_channel):
            value = channel(owner, component) if value is None else value
        if value is None:
            raise unknown("quantity", name, channel_units(self.mechanism))
        return value

    def _acceleration_channel(self, owner: str, component: str) -> Array | None:
        space, k = self.mechanism.space, self.kinematic.bodies.get(owner)
        if k is None:
            return None
        if component in space.accelerations:
            return self.accelerations[k, space.accelerations.index(component)]
        if component == "acceleration":
            return self.accelerations[k, : space.dim]
        if space.dim == 3 and component in ("alpha", "alpha_world"):
            alpha = self.accelerations[k, 3:]
            return alpha if component == "alpha" else self.kinematic.to_world(k, alpha)
        return None

    def _load_channel(self, owner: str, component: str) -> Array | None:
        at, joint = self.at, self.kinematic.joints.get(owner)
        if component == "lambda" and owner in self._rows:
            return at.lam[self._rows[owner]]
        if component == "effort" and owner in self._drivers:
            return -at.lam[self._rows[owner]][0]
        if component in self.mechanism.space.efforts and isinstance(joint, AbstractJoint):
            return self.reaction(owner)[1][self.mechanism.space.efforts.index(component)]
        member, _, kind = component.rpartition("_")
        if owner in self._couplings and kind == "effort" and member in self._couplings[owner].members:
            part = self._couplings[owner]
            values = [self.kinematic.coordinate(name)[0] for name in part.coordinates]
            return -at.lam[self._rows[owner]][0] * jax.grad(part.couple, part.members.index(member))(*values)
        return None

    def _force_channel(self, owner: str, component: str) -> Array | None:
        at, part = self.at, self._forces.get(owner)
        force, factor = (part.force, part.factor) if isinstance(part, ScaledForce) else (part, 1.0)
        if component == "effort" and isinstance(force, AbstractJointForce):
            load = self.kinematic.load_on(force, self._driven)
            effort = force.effort(at.t, *self.kinematic.coordinate(force.coordinate), *load)
            return effort + self._held().get(owner, 0.0)
        if component == "tension" and isinstance(force, AbstractLineForce):
            return factor * force.tension(at.t, *self.kinematic.stretch(force))
        return None

    def _sensor_reading(self, sensor: Sensor) -> Array:
        at = self.at
        if isinstance(sensor, Scaled):
            return sensor.value(self.read(sensor.of))
        if isinstance(sensor, Measure):
            return jnp.asarray(sensor.value(at.t, at.q, at.v, at.vdot, at.lam))
        return self.kinematic.reading(sensor, self.accelerations)
