"""The inputs of a linear system: each changes the mechanism by one number, which is zero where it is linearised."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.arrays import Scalar
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.force.force import AbstractJointForce
from jaxmbd.model.force.shared import SpringDamper
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.planar import Force, JointForce
from jaxmbd.user_functions import call_user

Leaf: TypeAlias = Callable[[Mechanism], Array]
Input: TypeAlias = str | tuple[str, Leaf]


class _JointForceWithInput(AbstractJointForce):
    """A force along a coordinate, with a number added to its effort."""

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    law: AbstractJointForce
    by: Scalar

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        return self.law.effort(t, coordinate, rate) + self.by

    def potential(self, coordinate: Scalar) -> Scalar:
        return self.law.potential(coordinate)


class _TensionWithInput(eqx.Module):
    """The actuator of a spring-damper, with a number added to its tension."""

    actuator: Any
    by: Scalar

    def __call__(self, t: Scalar, length: Scalar, rate: Scalar) -> Scalar:
        own = self.actuator
        tension: Any = own(t, length, rate) if callable(own) else own
        return tension + self.by


def input_units(mechanism: Mechanism) -> dict[str, str]:
    """Return all names of inputs, with the units of the efforts that they add."""
    units: dict[str, str] = {}
    for force in mechanism.forces:
        if isinstance(force, AbstractJointForce):
            units[f"{force.name}.effort"] = _effort_unit(mechanism, force.coordinate)
        if isinstance(force, SpringDamper):
            units[f"{force.name}.tension"] = "N"
    coordinates = [
        f"{j.name}.{c}" for j in mechanism.joints if isinstance(j, AbstractJoint) for c in j.coordinate_names
    ]
    coordinates += [f"{body.name}.{c}" for body in mechanism.bodies for c in mechanism.space.prescribable]
    units |= {name: _effort_unit(mechanism, name) for name in coordinates}
    efforts = list(zip(mechanism.space.efforts, mechanism.space.effort_units, strict=True))
    return units | {f"{body.name}.{effort}": unit for body in mechanism.bodies for effort, unit in efforts}


def _effort_unit(mechanism: Mechanism, coordinate: str) -> str:
    return "N m" if mechanism.coordinate(coordinate).unit(mechanism.space) == "rad" else "N"


def checked_inputs(mechanism: Mechanism, inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Return the inputs as a tuple; raise unless each is an existing name or selects a number of the mechanism."""
    if not isinstance(inputs, Iterable):
        raise MechanismError(f"inputs must be a sequence of inputs, such as ['motor.effort'], got {inputs!r}.")
    checked = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    known, drivers = input_units(mechanism), {driver.name for driver in mechanism.drivers}
    for entry in checked:
        if isinstance(entry, str):
            owner, _, component = entry.partition(".")
            if owner in drivers and component in ("motion", "effort"):
                raise MechanismError(
                    f"{entry!r} cannot be an input: what a driver prescribes enters with its first and second "
                    f"derivatives. Take the driver {owner!r} out and let a force move the coordinate, as the input "
                    f"{mechanism[owner].coordinate!r}."
                )
            if entry not in known:
                raise unknown("input", entry, known)
        elif not (isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) and callable(entry[1])):
            raise MechanismError(
                "An input is a name, or a name and a function that finds a number in the mechanism, "
                f"('load', lambda m: m['load'].torque); got {entry!r}."
            )
        else:
            _selected_number(mechanism, *entry)
    return checked


def named(entry: Input) -> str:
    """Return the name of an input."""
    return entry if isinstance(entry, str) else entry[0]


def with_input(mechanism: Mechanism, entry: Input, by: Scalar) -> Mechanism:
    """Return the mechanism with an input that is `by` larger than where it is linearised."""
    if not isinstance(entry, str):
        return eqx.tree_at(entry[1], mechanism, _selected_number(mechanism, *entry) + by)
    owner, _, component = entry.partition(".")
    for k, force in enumerate(mechanism.forces):
        if force.name == owner and component == "effort" and isinstance(force, AbstractJointForce):
            return _with(mechanism, _JointForceWithInput(force.name, force.coordinate, force, by), k)
        if force.name == owner and component == "tension" and isinstance(force, SpringDamper):
            return _with(mechanism, eqx.tree_at(lambda f: f.actuator, force, _TensionWithInput(force.actuator, by)), k)
    part, space, bodies = owner + " " + component, mechanism.space, {body.name: body for body in mechanism.bodies}
    if owner in bodies and component in space.efforts:
        wrench = jnp.zeros(len(space.efforts), by.dtype).at[space.efforts.index(component)].set(by)
        torque = wrench[space.dim] if space.dim == 2 else wrench[space.dim :]
        return _with(mechanism, Force(part, bodies[owner].at(), wrench[: space.dim], torque))
    return _with(mechanism, JointForce(part, entry, by))


def _with(mechanism: Mechanism, force: Any, place: int | None = None) -> Mechanism:
    """Return the mechanism with one more force, or with a force replaced. Names are not checked and may repeat."""
    forces = list(mechanism.forces)
    forces[slice(len(forces), None) if place is None else slice(place, place + 1)] = [force]
    return mechanism.replaced(forces=forces)


def _selected_number(mechanism: Mechanism, name: str, leaf: Leaf) -> Array:
    value = call_user(f"The input {name!r}", "function", leaf, mechanism, takes="mechanism")
    if not any(value is number for number in jax.tree.leaves(mechanism)) or value.shape != ():
        description = f"shape {value.shape}" if eqx.is_array(value) else type(value).__name__
        raise MechanismError(
            f"The input {name!r} must be a single number of the mechanism, as m['spring'].free_length is; its function "
            f"finds {description}{', computed or taken out of an array' if description == 'shape ()' else ''}."
        )
    return value
