"""Mistakes in a user's class of joints: each is named with its part and method, or with the methods that disagree."""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.extend import AbstractMarker, AbstractPlanarTreeJoint, check_tree_joint

RADIUS = 0.8


class Ring(AbstractPlanarTreeJoint):
    """The second marker's origin is on a circle around the first one's (1 row)."""

    name: str = eqx.field(static=True)
    a: AbstractMarker
    b: AbstractMarker
    coordinate_names: ClassVar[tuple[str, ...]] = ("place", "angle")
    coordinate_units: ClassVar[tuple[str, ...]] = ("rad", "rad")
    unwrapped: ClassVar[tuple[str, ...]] = ("place", "angle")

    def residual(self, t: Array, frames: Sequence[Any]) -> Array:
        a, b = frames
        return jnp.stack([jnp.linalg.norm(b.position - a.position) - RADIUS])

    def motion(self, frames: Sequence[Any]) -> Array:
        a, b = frames
        x, y = a.to_local(b.position - a.position)
        return jnp.stack([jnp.arctan2(y, x), b.angle - a.angle])

    def X_FM(self, c: Array) -> pl.Frame:
        return pl.Frame(RADIUS * jnp.stack([jnp.cos(c[0]), jnp.sin(c[0])]), c[1])

    def across_joint_velocity(self, c: Array, w: Array) -> Array:
        return jnp.stack([-RADIUS * jnp.sin(c[0]) * w[0], RADIUS * jnp.cos(c[0]) * w[0], w[1]])


def of(kind: type, coordinates: str = "joint", **more: Any) -> pl.Mechanism:
    body = pl.Body("b", 1.0, 0.1, pose=(RADIUS, 0.0, 0.0))
    return pl.Mechanism([body], [kind("ring", pl.ground.at(), body.at())], coordinates=coordinates, **more)


def with_method(name: str, method: Any) -> type:
    """The class with another method, as a user might have written it."""
    return type("Ring", (Ring,), {name: method, "__annotations__": {}})


MISTAKES = {
    "a number as residual": (
        {"residual": lambda self, t, frames: frames[1].position[0] - RADIUS},
        "Ring 'ring': residual(t, frames) must return an array with one axis, such as jnp.stack([x]), got shape ().",
    ),
    "too few coordinates": (
        {"motion": lambda self, frames: frames[1].angle[None]},
        "Ring 'ring': motion(frames) must return an array of shape (2,), got shape (1,).",
    ),
    "joint speeds as a velocity": (
        {"across_joint_velocity": lambda self, c, w: w},
        "Ring 'ring': across_joint_velocity(c, w) must return an array of shape (3,), got shape (2,).",
    ),
    "an attribute that frames do not have": (
        {"residual": lambda self, t, frames: jnp.stack([frames[1].origin[0]])},
        "Ring 'ring': the function residual raises AttributeError",
    ),
    "a decision by a value": (
        {"residual": lambda self, t, frames: jnp.stack([1.0 if frames[1].angle > 0 else frames[1].angle])},
        "Ring 'ring': the function residual decides by a traced value",
    ),
    "one unit for two coordinates": (
        {"coordinate_units": ("rad",)},
        "Ring 'ring': coordinate_units must have one unit, 'm' or 'rad', for each of coordinate_names: got ('rad',)",
    ),
    "a name that is none": (
        {"unwrapped": ("plac",)},
        "Ring 'ring': unwrapped names 'plac', and its coordinates are 'place', 'angle'.",
    ),
}


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_when_the_mechanism_is_built(mistake: str, coordinates: str) -> None:
    fields, text = MISTAKES[mistake]
    ((name, value),) = fields.items()
    with pytest.raises(mbd.MechanismError) as error:
        of(with_method(name, value), coordinates)
    assert str(error.value).startswith(text)


def test_a_right_joint_moves_alike_in_both_coordinates() -> None:
    """Over more than a turn, which its place counts."""
    found = []
    for coordinates in ("absolute", "joint"):
        mechanism = of(Ring, coordinates, drivers=[pl.Driver("d", "ring.place", lambda t: 9.0 * t)])
        motion = mbd.simulate(mechanism, mbd.assemble(mechanism), np.linspace(0.0, 1.0, 5), rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(motion["ring.place"], 9.0 * np.linspace(0.0, 1.0, 5), atol=1e-7)
        found.append(motion["b.position"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-7)
    check_tree_joint(of(Ring).joints[0], [0.4, -0.2])  # pyright: ignore


def test_an_angle_whose_turns_are_not_counted_is_named_where_it_jumps() -> None:
    mechanism = of(with_method("unwrapped", ()), "absolute", drivers=[pl.Driver("d", "ring.place", lambda t: 9.0 * t)])
    with pytest.raises(mbd.SolveError, match=r"'ring\.place', has jumped by a whole turn: if it is an arctan2"):
        mbd.simulate(mechanism, mbd.assemble(mechanism), np.linspace(0.0, 1.0, 5))


DISAGREEMENTS = {
    "X_FM": (lambda self, c: pl.Frame(1.2 * jnp.stack([jnp.cos(c[0]), jnp.sin(c[0])]), c[1]), "residual(t, frames)"),
    "motion": (lambda self, frames: jnp.stack([frames[1].angle, frames[1].angle]), "the coordinates that motion"),
    "across_joint_velocity": (lambda self, c, w: jnp.stack([w[0], w[0], w[1]]), "the velocity in across_joint"),
}


@pytest.mark.parametrize("method", DISAGREEMENTS)
def test_methods_that_disagree_are_named(method: str) -> None:
    wrong, text = DISAGREEMENTS[method]
    joint = of(with_method(method, wrong)).joints[0]
    with pytest.raises(mbd.MechanismError) as error:
        check_tree_joint(joint, [0.4, -0.2])  # pyright: ignore
    assert str(error.value).startswith(f"Ring 'ring': {text}")


def test_a_spinning_velocity_that_disagrees_is_named() -> None:
    wrong = lambda self, c, w: jnp.stack([-RADIUS * jnp.sin(c[0]) * w[0], RADIUS * jnp.cos(c[0]) * w[0], 2 * w[1]])  # noqa: E731
    joint: Any = of(with_method("across_joint_velocity", wrong)).joints[0]
    with pytest.raises(mbd.MechanismError, match="the angular velocity in across_joint_velocity"):
        check_tree_joint(joint, [0.4, -0.2])
