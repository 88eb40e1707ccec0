"""The planar examples that the tests share, under the tests' names: those of `jaxmbd.examples`."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import State
from jaxmbd import planar as pl
from jaxmbd.examples import Example as Example
from jaxmbd.examples import andrews as andrews
from jaxmbd.examples import double_pendulum as double_pendulum_with_friction
from jaxmbd.examples import four_bar_with_springs as four_bar_with_springs
from jaxmbd.examples import four_bars as four_bars
from jaxmbd.examples import modelica_double_pendulum as modelica_double_pendulum
from jaxmbd.examples import pendulum as pendulum
from jaxmbd.examples import planar_four_bar as modelica_four_bar
from jaxmbd.examples import rod as rod
from jaxmbd.examples import slider_crank as slider_crank
from jaxmbd.examples import sundials_slider_crank as sundials_slider_crank
from jaxmbd.planar import Mechanism


def andrews_coordinates(values: Sequence[Array]) -> Array:
    """`(β, Θ, γ, Φ, δ, Ω, ε)`, or their rates, from those of the absolute angles of `b1 … b7`."""
    b1, b2, b3, b4, b5, b6, b7 = values
    return jnp.stack([b1, b2 - b1, b3, b4 - b5, b5, b6 - b7, b7], axis=-1)


ALL = {
    "pendulum": pendulum,
    "modelica_double_pendulum": modelica_double_pendulum,
    "double_pendulum_with_friction": double_pendulum_with_friction,
    "four_bars_2": lambda: four_bars(2),
    "andrews": andrews,
    "sundials_slider_crank": sundials_slider_crank,
    "slider_crank": lambda: slider_crank(0.4, 5.0),
    "modelica_four_bar": modelica_four_bar,
    "four_bar_with_springs": four_bar_with_springs,
}


def at_rest(mechanism: Mechanism, q: Any, **speeds: float) -> State:
    """A state by its numbers, which needs no assembling."""
    v = jnp.stack([jnp.asarray(speeds.get(name.replace(".", "_"), 0.0)) for name in mechanism.speed_names])
    return State(jnp.zeros(()), jnp.asarray(q), v, mechanism.layout)


def struck_parallelogram(restitution: Any, ts: Array, **settings: Any) -> mbd.Solution:
    """The motion of a parallelogram with three cranks, whose rows repeat one another, that bounces off a wall."""
    cranks = [pl.Body(f"c{k}", 1.0, 0.02, (k + 0.0, 0.25, np.pi / 2)) for k in range(3)]
    bar = pl.Body("bar", 2.0, 0.1, (1.0, 0.5, 0.0))
    joints = [pl.Revolute(f"g{k}", pl.ground.at(k + 0.0, 0.0), c.at(-0.25)) for k, c in enumerate(cranks)]
    joints += [pl.Revolute(f"b{k}", c.at(0.25), bar.at(k - 1.0)) for k, c in enumerate(cranks)]
    mechanism = pl.Mechanism([*cranks, bar], joints, [pl.Gravity()])
    state = mbd.assemble(mechanism, speeds={"c0.omega": 2.0})
    wall = mbd.Event("wall", "g0.angle", above=2.0, then=mbd.Bounce(restitution))
    run = mbd.simulate(mechanism, state, ts, events=[wall], **settings)
    assert run.engine != "diffrax"
    return run
