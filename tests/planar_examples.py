"""The planar examples that the tests share, under the tests' names: those of `jaxmbd.examples`."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd import State
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
