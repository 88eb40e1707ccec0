"""What the tables of laws of both spaces share: cases, the bench they are built on, users' functions.

`laws_planar` and `laws_spatial` hold one example or more of each joint, driver, force and sensor class. Each case is
built twice on a bench: between two bodies of its own, and between the ground and a body (other numbers). Whatever acts
on those bodies then comes from this one part: a *unit*. Units are SI.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.space.vectors import cross, swept


class Sine(eqx.Module):
    """A motion with parameters of its own: `offset + amplitude sin(rate t)`."""

    offset: Array
    amplitude: Array
    rate: Array

    def __call__(self, t: Array) -> Array:
        return self.offset + self.amplitude * jnp.sin(self.rate * t)


@dataclass(frozen=True)
class Parts:
    """What a case adds to a mechanism; the part under test has the case's name, the others help it."""

    joints: tuple[Any, ...] = ()
    drivers: tuple[Any, ...] = ()
    forces: tuple[Any, ...] = ()
    sensors: tuple[Any, ...] = ()


Build = Callable[[str, Any, Any, float], Parts]


@dataclass(frozen=True)
class Case:
    """A part of a type, how to build it between two markers (the number scales its parameters), and its promises."""

    part: type
    build: Build
    pair: bool = True  # acts on two bodies, with equal and opposite effect
    moves: bool = False  # depends on time: may do work
    conserves: bool = False  # a force that is minus the gradient of its potential, at rest
    dissipates: bool = False  # its dependence on speed takes energy out
    still: bool = False  # a force that does not depend on speed
    idle: tuple[str, ...] = ()  # parameters that have no say at the bench's state


@dataclass(frozen=True)
class Laws:
    """The cases of one space, and how its bodies and markers are made."""

    space: Any
    joints: Mapping[str, Case]
    globals: Mapping[str, Callable[[str], Any]]
    forces: Mapping[str, Case]
    sensors: Mapping[str, Case]
    fields: tuple[Any, ...]
    gravity: Any
    body: Callable[[str, np.random.Generator], Any]
    at: Callable[[Any, np.random.Generator], Any]

    def table(self, kind: str) -> Mapping[str, Case]:
        """The cases of a kind: `"joints"`, `"forces"` or `"sensors"`."""
        return getattr(self, kind)

    @property
    def registered(self) -> set[type]:
        """The classes that have a case; a constraint on all coordinates, or a field, is no case of the bench's
        bodies: they have tests of their own."""
        cases = [case for kind in ("joints", "forces", "sensors") for case in self.table(kind).values()]
        return {case.part for case in cases} | {type(part) for part in self.fields} | {self.space.GlobalConstraint}


def names(table: Mapping[str, Case]) -> list[str]:
    """The names of the parts under test: each case between two bodies, and between the ground and a body."""
    return [f"{case}{place}" for case in table for place in ("", " on ground")]


def base(name: str) -> str:
    """The case that a part under test belongs to."""
    return name.removesuffix(" on ground")


def unit(name: str) -> str:
    """The part under test that a body, or a part that helps it, belongs to."""
    return name.split("/")[0].removesuffix(" helper")


def bench(laws: Laws, kind: str) -> Any:
    """All cases of a kind in one mechanism, each twice and on bodies of its own, at random places."""
    rng = np.random.default_rng(5)
    bodies: list[Any] = []
    parts: list[Parts] = []

    def body(name: str) -> Any:
        bodies.append(laws.body(name, rng))
        return bodies[-1]

    for name, case in laws.table(kind).items():
        a, b, c = body(f"{name}/a"), body(f"{name}/b"), body(f"{name} on ground/b")
        parts.append(case.build(name, laws.at(a, rng), laws.at(b, rng), 1.0))
        parts.append(case.build(f"{name} on ground", laws.at(laws.space.ground, rng), laws.at(c, rng), 1.3))
    whole = [make(name) for name, make in laws.globals.items()] if kind == "joints" else []
    return laws.space.Mechanism(
        bodies,
        [*(p for group in parts for p in group.joints), *whole],
        [*(p for group in parts for p in group.forces), *([laws.gravity] if kind == "sensors" else [])],
        [p for group in parts for p in group.drivers],
        [p for group in parts for p in group.sensors],
        floating=True,
    )


# --- how cases are made ----------------------------------------------------------------------------------------


def joint(part: type, make: Callable[..., Any], **promises: Any) -> Case:
    """A case of a joint alone."""
    return Case(part, lambda name, a, b, s: Parts(joints=(make(name, a, b, s),)), **promises)


def force(part: type, make: Callable[..., Any], **promises: Any) -> Case:
    """A case of a force alone."""
    return Case(part, lambda name, a, b, s: Parts(forces=(make(name, a, b, s),)), **promises)


def sensor(part: type, make: Callable[..., Any]) -> Case:
    """A case of a sensor alone."""
    return Case(part, lambda name, a, b, s: Parts(sensors=(make(name, a, b, s),)))


def on_joint(part: type, field: str, kind: type, coordinate: str, make: Callable[..., Any], **promises: Any) -> Case:
    """A case along the coordinate of a helping joint; `field` is where it belongs: `"drivers"` or `"forces"`."""

    def build(name: str, a: Any, b: Any, s: float) -> Parts:
        helper = kind(f"{name} helper", a, b)
        return Parts((helper,), **{field: (make(name, f"{helper.name}.{coordinate}", s),)})

    return Case(part, build, **promises)


def coupling(part: type, kind: type, coordinates: tuple[str, str], make: Callable[..., Any]) -> Case:
    """A case between two coordinates of a helping joint."""

    def build(name: str, a: Any, b: Any, s: float) -> Parts:
        helper = kind(f"{name} helper", a, b)
        return Parts((helper, make(name, *(f"{helper.name}.{c}" for c in coordinates), s)))

    return Case(part, build)


def train(part: type, kind: type, make: Callable[..., Any]) -> Case:
    """A case of a gear between three coordinates of two helping joints, one of which looks the other way."""

    def build(name: str, a: Any, b: Any, s: float) -> Parts:
        helpers = kind(f"{name} helper", a, b), kind(f"{name}/back helper", b, a)
        three = f"{name} helper.angle", f"{name} helper.displacement", f"{name}/back helper.displacement"
        return Parts((*helpers, make(name, *three, s)))

    return Case(part, build)


def mesh(part: type, kind: type, coordinates: tuple[str, str], spring: Callable[..., Any], **more: Any) -> Case:
    """A case of a mesh between two coordinates of a helping joint, on which a spring acts."""

    def build(name: str, a: Any, b: Any, s: float) -> Parts:
        helper = kind(f"{name} helper", a, b)
        gear = part(f"{name}/wheels", *(f"{helper.name}.{c}" for c in coordinates), 0.6 * s, 0.1, **more)
        return Parts((helper, gear), forces=(spring(name, f"{gear.name}.twist", 3.0, 0.2, 0.4),))

    return Case(part, build, conserves=True, dissipates=True)


def losses(space: Any, kind: type, coordinates: tuple[str, str], **promises: Any) -> Case:
    """A case of the losses of such a mesh."""

    def build(name: str, a: Any, b: Any, s: float) -> Parts:
        helper = kind(f"{name} helper", a, b)
        gear = space.GearMesh(f"{name}/wheels", *(f"{helper.name}.{c}" for c in coordinates), 0.6 * s)
        teeth = space.JointSpringDamper(f"{name}/teeth", f"{gear.name}.twist", 3.0, 0.2, 0.4)
        shaft = f"{helper.name}.{coordinates[0]}"
        # One efficiency both ways: power flows in one of them only.
        friction = space.GearFriction(name, shaft, teeth.name, 0.8, bearing=0.1, direction=s, sides=[s])
        return Parts((helper, gear), forces=(teeth, friction))

    return Case(space.GearFriction, build, idle=("sides",), **promises)


def tendon(part: type, kind: type, coordinates: tuple[str, str], spring: Callable[..., Any]) -> Case:
    """A case of a tendon over two coordinates of a helping joint, on which a spring acts."""

    def build(name: str, a: Any, b: Any, s: float) -> Parts:
        helper = kind(f"{name} helper", a, b)
        cable = part(f"{name}/cable", [f"{helper.name}.{c}" for c in coordinates], (0.6 * s, -0.8))
        return Parts((helper, cable), forces=(spring(name, f"{cable.name}.length", 3.0, 0.2, 0.4),))

    return Case(part, build, conserves=True, dissipates=True)


def array(*numbers: float) -> Array:
    """Numbers as an array, one number as a scalar."""
    return jnp.asarray(numbers if len(numbers) != 1 else next(iter(numbers)), dtype=float)


# --- users' functions ------------------------------------------------------------------------------------------


def swing(t: Array) -> Array:
    """A motion as a plain function."""
    return 0.3 + 0.5 * t + 0.2 * jnp.sin(3 * t)


def breathing_distance(t: Array, frames: Any, parameters: Any) -> Array:
    """A rod whose length changes with time, as a user's constraint."""
    d = frames[1].position - frames[0].position
    return jnp.dot(d, d) - (parameters["length"] + 0.1 * jnp.sin(parameters["rate"] * t)) ** 2


def skate(t: Array, frames: Any, rates: Any, parameters: Any) -> Array:
    """The second marker slides on the first body along its own x axis at a given speed only: a user's constraint of
    velocities."""
    (a, b), (da, db) = frames, rates
    d = b.position - a.position
    sliding = db.position - da.position - swept(da.angular, d)
    return (1 + parameters["slope"] * jnp.dot(d, d)) * jnp.dot(b.axis, sliding) - parameters["speed"] * jnp.cos(2 * t)


def servo(t: Array, x: Array, rate: Array) -> Array:
    """An actuator on a length or angle: pulls it to 0.4 sin(t)."""
    return 2.0 * (0.4 * jnp.sin(t) - x) - 0.3 * rate


def hinge(t: Array, x: Array, rate: Array, parameters: Any) -> Array:
    """A nonlinear spring and damper along a joint's coordinate, as a user's function."""
    return -parameters["k"] * jnp.sin(x) - parameters["c"] * rate


def attraction(t: Array, frames: Any, rates: Any, parameters: Any) -> Array:
    """A cubic pull between two markers and a damping of their closing speed, as a user's force."""
    a, b = frames
    d = b.position - a.position
    f = -parameters["k"] * d * jnp.dot(d, d) - parameters["c"] * (rates[1].position - rates[0].position)
    about = cross(d, f)  # the reaction acts at the second marker's place
    return jnp.stack([jnp.append(-f, -about), jnp.append(f, 0 * about)])


def stir(t: Array, q: Array, v: Array, parameters: Any) -> Array:
    """A user's force on all coordinates."""
    return parameters[0] * jnp.cos(t) * q[: v.shape[0]] - parameters[1] * v * jnp.sum(v * v)


def momentum(t: Array, q: Array, v: Array, vdot: Array, lam: Array, parameters: Any) -> Array:
    """A user's reading of everything there is."""
    return parameters * jnp.sum(v) + jnp.sum(q[: v.shape[0]] * vdot) + t
