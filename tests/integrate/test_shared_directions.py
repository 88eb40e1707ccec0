"""Tangents of many motions in several directions, which share what each motion has in common."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.engine import choice
from jaxmbd.integrate.adjoint import native_steps


def pendulum() -> pl.Mechanism:
    rod = pl.Body("rod", 1.3, 0.1, (0.5, 0.0, 0.0))
    return pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5))], [pl.Gravity()])


@pytest.mark.parametrize(("coordinates", "largest"), [("joint", 20_000), ("absolute", 20_000), ("joint", 1)])
def test_tangents_in_several_directions_share_a_motion(
    coordinates: str, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against one direction of one motion after another. In joint coordinates there are more directions than components
    of the state, in absolute ones fewer. Motions have different numbers of steps; some fail. They share nothing if the
    program would be too large."""
    monkeypatch.setattr(choice, "STRAIGHT_OPERATIONS", largest)
    most = 20 if largest > 1 else 21  # so that no program of the other cases is found again
    start = mbd.assemble(pendulum().with_coordinates(coordinates), {"rod.theta": 0.3}, speeds={"rod.omega": 1.0})

    def run(mass: Any, speed: Any, end: Any) -> Any:
        mechanism = eqx.tree_at(lambda m: m.bodies[0].mass, pendulum().with_coordinates(coordinates), mass)
        state, times = eqx.tree_at(lambda s: s.v, start, speed * start.v), jnp.array([0.0, 0.4, 1.0]) * end
        solution = mbd.simulate(mechanism, state, times, throw=False, max_steps=most, engine="interpreter")
        return solution.integrated_speeds

    def along(x: Any, changes: Any) -> Any:
        return jax.jvp(run, x, changes)[1]

    rng, (motions, directions) = np.random.default_rng(0), (17, 4)
    at = np.linspace(0.5, 2.0, motions), np.linspace(0.0, 40.0, motions), 0.7
    changes = rng.normal(size=directions), rng.normal(size=(directions, motions)), rng.normal(size=directions)
    asked: list[tuple[str, int]] = []
    native = native_steps.NativeSteps.native
    monkeypatch.setattr(
        native_steps.NativeSteps, "native",
        lambda *x, **settings: asked.append((x[1], settings.get("directions", 1))) or native(*x, **settings),
    )  # fmt: skip
    by_direction = jax.vmap(along, (None, (0, 0, 0)))
    inside = jax.jit(jax.vmap(by_direction, ((0, 0, None), (None, 1, None)), 1))(at, changes)
    outside = jax.jit(jax.vmap(jax.vmap(along, ((0, 0, None), (None, 0, None))), (None, (0, 0, 0))))(at, changes)
    assert asked.count(("tangents", directions)) == 2
    assert asked.count(("tangents", 1)) == (2 if largest == 1 else 0)
    one = jax.jit(along)
    for d in range(directions):
        for i in range(motions):
            wanted = one((at[0][i], at[1][i], at[2]), (changes[0][d], changes[1][d, i], changes[2][d]))
            for found in (inside[d, i], outside[d, i]):
                np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)
    assert jnp.isnan(inside[:, -1, -1]).all()  # the last motion is too fast for so few steps
    assert np.min(np.abs(inside[:, :4, -1]).max(-1)) > 1e-2
