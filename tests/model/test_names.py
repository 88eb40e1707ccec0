"""Which text of a part is a name, which its law does not see, and which is data of its law: known by type."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.model.joint.shared import AbstractPairCoupling
from tests.marks import in_both_coordinates

G = 9.81  # [m/s²]
PLACES = {"x": 0, "y": 1, "z": 2}


class Gains(NamedTuple):
    """Two numbers of a law by name."""

    push: Array
    lift: Array


class Push(pl.AbstractForce):
    """A force along axes that its texts name, with numbers in a named tuple; for both spaces."""

    name: str = eqx.field(static=True)
    at: Any
    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    body: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    gains: Gains

    @property
    def markers(self) -> tuple[Any, ...]:
        return (self.at,)

    def wrenches(self, t: Array, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "1 efforts"]:
        wrench = jnp.zeros(len(self.at.space.efforts))
        for axis, push in ((self.a, 1.0), (self.b, 2.0), (self.body, 4.0), (self.coordinate, 8.0)):
            wrench = wrench.at[PLACES[axis]].add(push * self.gains.push)
        return wrench.at[1].add(self.gains.lift)[None]

    def potential(self, t: Array, frames: Sequence[Any]) -> Array:
        return jnp.zeros(())


class Held(pl.AbstractJoint):
    """One coordinate of a marker is held, which its text names."""

    name: str = eqx.field(static=True)
    first: pl.Marker
    second: pl.Marker
    coordinate: str = eqx.field(static=True)

    @property
    def markers(self) -> tuple[pl.Marker, ...]:
        return (self.first, self.second)

    def residual(self, t: Array, frames: Sequence[Any]) -> Float[Array, "1"]:
        a, b = frames
        return (b.position - a.position)[PLACES[self.coordinate]][None]


class Motor(pl.AbstractJointForce):
    """An effort whose sign a text chooses."""

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    a: str = eqx.field(static=True)
    size: Array

    def effort(self, t: Array, coordinate: Array, rate: Array) -> Array:
        return self.size if self.a == "forward" else -self.size

    def potential(self, coordinate: Array) -> Array:
        return jnp.zeros(())


class Cam(AbstractPairCoupling):
    """A follower coupled to an angle by a curve that a text chooses."""

    name: str = eqx.field(static=True)
    a: str = eqx.field(static=True)
    b: str = eqx.field(static=True)
    body: str = eqx.field(static=True)

    def couple(self, a: Array, b: Array) -> Array:
        return b - (0.1 * jnp.sin(a) if self.body == "sine" else 0.1 * a)


@pytest.mark.parametrize("space", [pl, sp])
def test_texts_of_a_force_are_data_whatever_their_fields_are_called(space: Any) -> None:
    """`1 + 8` along x, `2 + 4` along y, with a gain each; the derivatives reach the named tuple."""
    body = space.Body("b", mass=1.0, inertia=1.0 if space is pl else (1.0, 1.0, 1.0))

    def acceleration(push: Array) -> tuple[Array, Array]:
        force = Push("push", body.at(), "x", "y", "y", "x", Gains(push, jnp.array(0.5)))
        twin = Push("twin", body.at(), "x", "y", "y", "x", Gains(0.0 * push, jnp.array(0.0)))
        mechanism = space.Mechanism([body], [], [force, twin], floating=True)
        assert [len(group.members) for group in mbd.Equations(mechanism).parts.forces] == [2]
        found = mbd.read(mechanism, mbd.assemble(mechanism), "b.acceleration")[:2]
        return found, found

    slopes, values = jax.jacfwd(acceleration, has_aux=True)(jnp.array(3.0))
    np.testing.assert_allclose(values, [27.0, 18.5], rtol=1e-12)
    np.testing.assert_allclose(slopes, [9.0, 6.0], rtol=1e-12)


def test_parts_of_other_texts_are_other_laws() -> None:
    """Two joints of one class that hold other coordinates: only the third one stays free."""
    body = pl.Body("b", mass=1.0, inertia=1.0)
    joints = [Held(f"hold {axis}", pl.ground.at(0.1, -0.2), body.at(), axis) for axis in "xy"]
    mechanism = pl.Mechanism([body], joints, [pl.Gravity(G)])
    assert [len(group.members) for group in mbd.Equations(mechanism).parts.joints] == [1, 1]
    state = mbd.assemble(mechanism, guess={"b.x": 0.3, "b.y": 0.3})
    np.testing.assert_allclose([state["b.x"], state["b.y"]], [0.1, -0.2], atol=1e-12)

    falling = pl.Mechanism([body], joints[:1], [pl.Gravity(G)])
    motion = mbd.simulate(falling, mbd.assemble(falling, {"b.y": 0.3, "b.theta": 0.0}), np.linspace(0.0, 1.0, 3))
    np.testing.assert_allclose(motion["b.y"], 0.3 - G / 2 * np.array([0.0, 0.25, 1.0]), atol=1e-9)


@in_both_coordinates("joint")
def test_texts_of_forces_along_coordinates_and_of_couplings(coordinates: str) -> None:
    """`φ̈ = ±τ / (J + m (ds/dφ)²)` at `φ = 0`, where `ds/dφ = 0.1` by either curve; `s̈` tells the curves apart."""
    rotor = pl.Body("rotor", mass=1.0, inertia=2.0)
    slider = pl.Body("slider", mass=3.0, inertia=1.0)
    joints = [
        pl.Revolute("O", pl.ground.at(), rotor.at()),
        pl.Prismatic("rail", pl.ground.at(), slider.at()),
    ]
    for way, curve, angle in (("forward", "sine", 0.0), ("back", "line", 0.0), ("forward", "sine", 1.0)):
        parts = [*joints, Cam("cam", "O.angle", "rail.displacement", curve)]
        motor = Motor("motor", "O.angle", way, jnp.array(5.0))
        mechanism = pl.Mechanism([rotor, slider], parts, [motor], coordinates=coordinates)
        state = mbd.assemble(mechanism, {"O.angle": angle}, guess={"rail.displacement": 0.08})
        ratio = 0.1 * (np.cos(angle) if curve == "sine" else 1.0)
        expected = (5.0 if way == "forward" else -5.0) / (2.0 + 3.0 * ratio**2)
        np.testing.assert_allclose(mbd.read(mechanism, state, "rotor.alpha"), expected, rtol=1e-10)


# --- what is a name ---------------------------------------------------------------------------------


class ByName(pl.AbstractForce):
    """A force that depends on what its law cannot know."""

    name: str = eqx.field(static=True)
    at: pl.Marker
    what: str = eqx.field(static=True)

    @property
    def markers(self) -> tuple[pl.Marker, ...]:
        return (self.at,)

    def wrenches(self, t: Array, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "1 3"]:
        known = {
            "shows": lambda: f"{self.name!r} of {self.at.body}" == "",
            "compares": lambda: self.name == "left",
            "differs": lambda: self.name != "left",
            "begins": lambda: self.name.startswith("l"),
            "contains": lambda: "f" in self.name,
            "chooses": lambda: self.name in ("left", "right"),
            "body": lambda: self.at.body == "b",
        }
        return jnp.array([[2.0 if known[self.what]() else 1.0, 0.0, 0.0]])

    def potential(self, t: Array, frames: Sequence[Any]) -> Array:
        return jnp.zeros(())


class JointByName(pl.AbstractJoint):
    """A joint that depends on its name."""

    name: str = eqx.field(static=True)
    a: pl.Marker
    b: pl.Marker

    @property
    def markers(self) -> tuple[pl.Marker, ...]:
        return (self.a, self.b)

    def residual(self, t: Array, frames: Sequence[Any]) -> Float[Array, "2"]:
        return (frames[0].position - frames[1].position) * (2.0 if self.name == "left" else 1.0)


BODY = pl.Body("b", mass=2.0, inertia=1.0)


@pytest.mark.parametrize("what", ["compares", "differs", "begins", "contains", "chooses", "body"])
def test_a_law_that_decides_by_a_name_is_refused(what: str) -> None:
    with pytest.raises(mbd.MechanismError, match=r"ByName 'left': A law must not depend on the name of its part"):
        pl.Mechanism([BODY], [], [ByName("left", BODY.at(), what)], floating=True)


def test_a_joint_that_decides_by_its_name_is_refused() -> None:
    with pytest.raises(mbd.MechanismError, match=r"JointByName 'left': A law must not depend on the name"):
        pl.Mechanism([BODY], [JointByName("left", pl.ground.at(), BODY.at())])


def test_names_may_be_shown() -> None:
    """As texts of errors do: the parts are stacked all the same."""
    bodies = [pl.Body(f"b{k}", mass=2.0, inertia=1.0) for k in range(3)]
    forces = [ByName(f"push{k}", body.at(), "shows") for k, body in enumerate(bodies)]
    mechanism = pl.Mechanism(bodies, [], forces, floating=True)
    assert [len(group.members) for group in mbd.Equations(mechanism).parts.forces] == [3]
    state = mbd.assemble(mechanism)
    np.testing.assert_allclose([mbd.read(mechanism, state, f"b{k}.ax") for k in range(3)], 0.5, rtol=1e-12)
