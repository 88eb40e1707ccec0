"""Joints, forces and sensors of a user's own classes: treated as those of the library are."""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import plot

LINKS, LENGTH = 4, 0.3


class Pin(pl.AbstractJoint):
    """A revolute joint written as a user would write it."""

    name: str = eqx.field(static=True)
    a: pl.Marker
    b: pl.Marker
    loads: ClassVar[tuple[str, ...]] = ("Fx", "Fy")

    @property
    def markers(self) -> tuple[pl.Marker, ...]:
        return (self.a, self.b)

    def residual(self, t: Array, frames: Sequence[Any]) -> Float[Array, "2"]:
        a, b = frames
        return a.position - b.position


class Tie(pl.AbstractForce):
    """A linear spring without length between two markers."""

    name: str = eqx.field(static=True)
    a: pl.Marker
    b: pl.Marker
    stiffness: Array = eqx.field(converter=jnp.asarray)

    @property
    def markers(self) -> tuple[pl.Marker, ...]:
        return (self.a, self.b)

    def wrenches(self, t: Array, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "2 3"]:
        pull = self.stiffness * (frames[1].position - frames[0].position)
        return jnp.stack([jnp.append(pull, 0.0), jnp.append(-pull, 0.0)])

    def potential(self, t: Array, frames: Sequence[Any]) -> Array:
        return 0.5 * self.stiffness * jnp.sum((frames[1].position - frames[0].position) ** 2)


def chain(pin: Any, tie: Any) -> pl.Mechanism:
    bodies, joints, forces, previous = [], [], [pl.Gravity(9.81)], pl.ground.at()
    for k in range(LINKS):
        body = pl.Body(f"link{k}", 1.0 + 0.1 * k, 0.01, ((k + 0.5) * LENGTH, 0.0, 0.0))
        joints.append(pin(f"pin{k}", previous, body.at(-LENGTH / 2)))
        forces.append(tie(f"tie{k}", pl.ground.at(0.0, 1.0), body.at(), 5.0 + k))
        bodies.append(body)
        previous = body.at(LENGTH / 2)
    return pl.Mechanism(bodies, joints, forces)


def run(mechanism: pl.Mechanism) -> mbd.Solution:
    return mbd.simulate(mechanism, mbd.assemble(mechanism), jnp.linspace(0.0, 0.3, 4))


@pytest.mark.slow
def test_a_users_classes_are_grouped_and_move_like_the_librarys() -> None:
    mine, ours = chain(Pin, Tie), chain(pl.Revolute, pl.SpringDamper)
    parts = mbd.Equations(mine).parts
    assert [len(group.members) for group in parts.joints] == [LINKS]
    assert [len(group.members) for group in parts.forces] == [LINKS]
    first, second = run(mine), run(ours)
    np.testing.assert_allclose(first.q, second.q, atol=1e-10)
    np.testing.assert_allclose(first.energies()["energy"], second.energies()["energy"], atol=1e-9)
    np.testing.assert_allclose(first["pin2.fx"], second["pin2.fx"], atol=1e-8)
    where = lambda m: m["tie1"].stiffness  # noqa: E731
    slopes = [
        jax.grad(lambda k, m=m: run(eqx.tree_at(where, m, k))["link3.x"][-1])(jnp.asarray(6.0)) for m in (mine, ours)
    ]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-8)
    assert abs(float(slopes[0])) > 1e-4


def test_a_users_classes_are_described_and_drawn() -> None:
    mine = chain(Pin, Tie)
    text = str(mbd.describe(mine))
    assert "pin3" in text

    plot.draw(mine, mbd.assemble(mine).q)
    assert len(plt.gca().lines) + len(plt.gca().patches) + len(plt.gca().collections) > LINKS
    plt.close("all")
