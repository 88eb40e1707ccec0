"""Quantities by name that positions, speeds and states of parts determine at one instant, and the controllers, which
read them and drive inputs."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.equations.constraint_kinematics import of_own_states
from jaxmbd.errors import unknown
from jaxmbd.model.controller.controller import AbstractController, AbstractDynamicController
from jaxmbd.model.controller.sampled import AbstractSampledController
from jaxmbd.model.force.force import AbstractJointForce, ScaledForce
from jaxmbd.model.force.marker_forces import AbstractLineForce
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import AbstractComposite
from jaxmbd.model.mechanism.inputs import with_signals
from jaxmbd.model.mechanism.loads import load_on
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import ANGLES, OF_ACCELERATION, ROTATIONS, TIME, component_of, reads_speeds_alone
from jaxmbd.model.sensor import AbstractSensor, Readings, Scaled
from jaxmbd.model.states import (
    AbstractSwitching,
    begun_of,
    changed_of,
    guards_of,
    rates_of,
    stateful,
    steady_of,
    values_of,
)
from jaxmbd.space.rotation import angles


class KinematicReader:
    """Reads quantities by name at a configuration and speeds `v`; what several of them share is computed once.

    `position`: a `Configuration`.
    """

    def __init__(self, position: Any, v: Float[Array, " nv"]) -> None:
        self.position, self.v = position, v
        self.mechanism: Mechanism = position.mechanism
        self._rates: dict[str, tuple[Array, Array]] = {}
        self._outputs: dict[str, Array] = {}

    @cached_property
    def twists(self) -> Float[Array, "bodies twist"]:
        """The twists of the bodies."""
        return self.position.twists(self.v)

    # Where parts are found by name: with many parts, looking them up one by one would take longer than all else.

    @cached_property
    def bodies(self) -> dict[str, int]:
        """The bodies' numbers."""
        return {body.name: k for k, body in enumerate(self.mechanism.bodies)}

    @cached_property
    def joints(self) -> dict[str, AbstractJoint | AbstractComposite]:
        """The joints and tendons."""
        return {
            joint.name: joint for joint in self.mechanism.joints if isinstance(joint, AbstractJoint | AbstractComposite)
        }

    @cached_property
    def _kinematic_sensors(self) -> dict[str, Any]:
        sensors = self.mechanism.sensors
        return {sensor.name: sensor for sensor in sensors if reads_speeds_alone(sensor) or isinstance(sensor, Scaled)}

    @cached_property
    def _controllers(self) -> dict[str, AbstractController]:
        return {controller.name: controller for controller in self.mechanism.controllers}

    @cached_property
    def _lines(self) -> dict[str, AbstractLineForce]:
        forces = (force.force if isinstance(force, ScaledForce) else force for force in self.mechanism.forces)
        return {force.name: force for force in forces if isinstance(force, AbstractLineForce)}

    @cached_property
    def _places(self) -> dict[str, tuple[str, int]]:
        """Where coordinates are in `q`, speeds in `v` and states of parts in `z`."""
        return self.mechanism.layout.places

    def coordinate(self, name: str) -> tuple[Array, Array]:
        """The value and the rate of a coordinate."""
        if name not in self._rates:
            self._rates[name] = self.position.coordinate(name, self.v)
        return self._rates[name]

    def load_on(self, force: AbstractJointForce, mechanism: Mechanism | None = None) -> tuple[Array, ...]:
        """The effort that presses a force along its coordinate; empty for a force that none presses.

        `mechanism`: the one whose forces these are, if it is not that of the position.
        """
        load = load_on(self.mechanism if mechanism is None else mechanism, force)
        if load is None:
            return ()
        values = zip(*(self.coordinate(part.name) for part in load.coordinate.parts), strict=True)
        return (load.effort(self.position.t, *values),)

    def read(self, name: str) -> Array | None:
        """The quantity of a name; None if that is not one of these."""
        if name in self._kinematic_sensors:
            return self._sensor_reading(self._kinematic_sensors[name])
        if name == TIME:
            return self.position.t
        if name in self._places:
            block, k = self._places[name]
            return {"q": self.position.q, "v": self.v, "z": self.mechanism.z}[block][k]
        owner, _, component = name.partition(".")
        if component == "output" and owner in self._controllers:
            return self.output(owner)
        if owner in self.bodies:
            return self._body_channel(self.bodies[owner], component)
        if owner in self._lines and component == "length":
            return self.stretch(self._lines[owner])[0]
        return self._joint_channel(owner, component)

    def _body_channel(self, k: int, component: str) -> Array | None:
        space = self.mechanism.space
        if component in space.coordinates:
            return self.position.poses()[k, space.coordinates.index(component)]
        if component in space.speeds:
            return self.twists[k, space.speeds.index(component)]
        if component in ("position", "velocity"):
            return (self.position.poses() if component == "position" else self.twists)[k, : space.dim]
        if space.dim == 2 or component not in ROTATIONS or component in OF_ACCELERATION:
            return None
        if component in ANGLES:
            return angles(self.position.poses()[k, 3:], "zyx")[ANGLES.index(component)]
        omega = self.twists[k, 3:]
        return omega if component == "omega" else self.to_world(k, omega)

    def to_world(self, body: int, vector: Float[Array, "3"]) -> Float[Array, "3"]:
        """A vector in the axes of a body, in world axes."""
        return jax.tree.map(lambda x: x[body], self.position.bodies.frames).to_world(vector)

    def _joint_channel(self, owner: str, component: str) -> Array | None:
        base, joint = component.removesuffix("_rate"), self.joints.get(owner)
        if joint is None or base not in joint.coordinate_names:
            return None
        value, rate = self.coordinate(f"{owner}.{base}")
        return value if base == component else rate

    def stretch(self, force: AbstractLineForce) -> tuple[Array, Array]:
        """The length of the line of a force, and its rate."""
        near, space = self.position.near(force.markers), self.mechanism.space
        rates = near.rates(self.position.on_markers(force.markers, self.twists))
        return force.stretch(near.frames, [space.as_rate(rate) for rate in rates])

    def _sensor_reading(self, sensor: AbstractSensor | Scaled) -> Array | None:
        if not isinstance(sensor, Scaled):
            return self.reading(sensor, jnp.zeros_like(self.twists))  # which the sensor does not read
        value = self.read(sensor.of)
        return None if value is None else sensor.value(value)

    def reading(self, sensor: AbstractSensor, accelerations: Float[Array, "bodies twist"]) -> Array:
        """The reading of a sensor, with the rates of the bodies' twists."""
        space, position = self.mechanism.space, self.position
        near = position.near(sensor.markers)
        twists = position.on_markers(sensor.markers, self.twists)
        changes = near.accelerations(twists, position.on_markers(sensor.markers, accelerations))
        velocities, changes = (tuple(space.as_rate(x) for x in values) for values in (near.rates(twists), changes))
        return sensor.read(Readings(near.frames, velocities, changes, position.parts.gravity))

    # --- controllers ------------------------------------------------------------------------------------

    def output(self, name: str) -> Array:
        """The output of a controller."""
        if name not in self._outputs:
            controller = self._controllers[name]
            self._outputs[name] = controller.output(self.position.t, self._read_by(controller))
        return self._outputs[name]

    def _read_by(self, controller: AbstractController) -> Float[Array, " k"]:
        """What a controller reads."""
        values = [self._component(name) for name in controller.reads]
        return jnp.stack(values) if values else jnp.zeros(0, self.v.dtype)

    def _component(self, name: str) -> Array:
        base, place = component_of(name)
        value = self.read(name) if place is None or name in self._places else self.read(base)
        if value is None:
            raise unknown("quantity", name, self._places)
        return value if value.ndim == 0 else value[place]

    def driven(self) -> Mechanism:
        """The mechanism with the outputs of its controllers added to the inputs that they drive."""
        signals = []
        for controller in self.mechanism.controllers:
            if controller.driven:
                values = jnp.reshape(self.output(controller.name), len(controller.driven))
                signals += list(zip(controller.driven, values, strict=True))
        return with_signals(self.mechanism, signals)

    def own_rates(self) -> Float[Array, " nz"]:
        """The rates of the states of parts."""
        return self._of_states(rates_of)

    def sampled(self, near: Scalar) -> Float[Array, " nz"]:
        """The states of parts after the samples that are due, but for `near` [s]."""
        return self._of_sampled(lambda part, t, u: part.after(t, u, near))

    def all_sampled(self) -> Float[Array, " nz"]:
        """The states of parts after a sample of each controller that samples, whatever the time is."""
        return self._of_sampled(lambda part, t, u: part.after_sample(t, u))

    def in_operation(self) -> Float[Array, " nz"]:
        """The states of parts where those controllers have been at rest for some samples."""
        return self._of_sampled(lambda part, t, u: part.in_operation(t, u))

    def _of_sampled(self, function: Callable[[AbstractSampledController, Array, Array], Array]) -> Float[Array, " nz"]:
        """A function of each controller that samples, and the states of the other parts as they are."""
        found = []
        for part in stateful((self.mechanism.forces, self.mechanism.controllers)):
            is_sampled = isinstance(part, AbstractSampledController)
            own = (
                function(part, self.position.t, self._read_by(part)) if is_sampled else jnp.concatenate(values_of(part))
            )
            found.append(own)
        return jnp.concatenate(found)

    def steady_states(self) -> Float[Array, " nz"]:
        """The states of parts at which their rates are zero."""
        return self._of_states(steady_of)

    def guards(self) -> Float[Array, " n"]:
        """The guards of the parts that switch, in the order of their states."""
        return self._of_states(guards_of)

    def changed_states(self) -> Float[Array, "n nz"]:
        """The states of all parts after the change at each guard."""
        rows, place, z = [], 0, self.mechanism.z
        rest = self._of_states(changed_of)
        for part in stateful((self.mechanism.forces, self.mechanism.controllers)):
            size = sum(value.size for value in values_of(part))
            for _ in range(len(part.guard_units) if isinstance(part, AbstractSwitching) else 0):
                rows.append(z.at[place : place + size].set(rest[:size]))
                rest = rest[size:]
            place += size
        return jnp.stack(rows)

    def begun_states(self) -> Float[Array, " nz"]:
        """The states of parts at the start of a motion."""
        return self._of_states(begun_of)

    def _of_states(self, function: Callable[..., Array]) -> Array:
        """A function of a part with states, of all of them, one after another."""
        at = self.position
        forces = at.driven(self.v).parts.own_states(of_own_states(function), at.t, at.bodies, self.twists)
        dynamic = [part for part in self.mechanism.controllers if isinstance(part, AbstractDynamicController)]
        own = [function(part, at.t, self._read_by(part)) for part in dynamic]
        return jnp.concatenate([forces, *own]) if own else forces
