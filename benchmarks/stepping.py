"""The classical Runge-Kutta method of order four with equal steps as a bare loop: what a step costs without diffrax."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import jaxmbd as mbd
from jaxmbd.engine import as_program
from jaxmbd.integrate.formulations.formulation import AbstractFormulation


def march(
    mechanism: Any, formulation: AbstractFormulation, q: jax.Array, v: jax.Array, dt: Any, steps: Any
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Coordinates and speeds after `steps` steps of length `dt` [s] by the classical method."""
    equations = mbd.Equations(mechanism, redundant=False)

    def step(k: Any, y: Any) -> Any:
        t, at = k * dt, partial(rates, formulation, equations)
        k1 = at(t, y)
        k2 = at(t + dt / 2, moved(y, k1, dt / 2))
        k3 = at(t + dt / 2, moved(y, k2, dt / 2))
        k4 = at(t + dt, moved(y, k3, dt))
        return jax.tree.map(lambda x, a, b, c, d: x + dt / 6 * (a + 2 * (b + c) + d), y, k1, k2, k3, k4)

    return jax.lax.fori_loop(0, steps, step, (jnp.asarray(q), jnp.asarray(v)))


def rates(formulation: AbstractFormulation, equations: mbd.Equations, t: Any, y: Any) -> tuple[Any, Any]:
    """The right-hand side `(q̇, v̇)` at `y = (q, v)`, as a program."""
    return as_program(_rates)(formulation, equations, jnp.asarray(t, y[0].dtype), *y)


def _rates(
    formulation: AbstractFormulation, equations: mbd.Equations, t: Any, q: jax.Array, v: jax.Array
) -> tuple[Any, Any]:
    motion = formulation.motion(equations, t, q, v)
    return motion.qdot, motion.rate


def moved(y: Any, rates: Any, by: Any) -> Any:
    """The state some time on along its rates."""
    return jax.tree.map(lambda x, rate: x + by * rate, y, rates)
