"""The classical Runge-Kutta method of order four with equal steps: as a diffrax solver and as a bare loop.

The bare loop shows what a step costs without diffrax's machinery around it. Whatever else takes equal steps goes here.
"""

from typing import Any, ClassVar

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd._method import AbstractMethod, motion_of


class RungeKutta4(dfx.AbstractERK):
    """The classical method, for `controller=diffrax.ConstantStepSize()`; it estimates no error."""

    tableau: ClassVar[dfx.ButcherTableau | dfx.MultiButcherTableau] = dfx.ButcherTableau(
        c=np.array([0.5, 0.5, 1.0]),
        b_sol=np.array([1, 2, 2, 1]) / 6,
        b_error=np.zeros(4),
        a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
    )
    interpolation_cls: ClassVar[Any] = dfx.ThirdOrderHermitePolynomialInterpolation.from_k

    def order(self, terms: Any) -> int:
        return 4


def march(
    mechanism: Any, method: AbstractMethod, q: jax.Array, v: jax.Array, dt: Any, steps: Any
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Coordinates and speeds after `steps` steps of length `dt` [s] by the classical method."""
    equations = mbd.Equations(mechanism, redundant=False)

    def rates(t: Any, y: Any) -> Any:
        motion = motion_of(method, equations, t, *y)
        return motion.qdot, motion.rate

    def step(k: Any, y: Any) -> Any:
        t = k * dt
        k1 = rates(t, y)
        k2 = rates(t + dt / 2, moved(y, k1, dt / 2))
        k3 = rates(t + dt / 2, moved(y, k2, dt / 2))
        k4 = rates(t + dt, moved(y, k3, dt))
        return jax.tree.map(lambda x, a, b, c, d: x + dt / 6 * (a + 2 * (b + c) + d), y, k1, k2, k3, k4)

    return jax.lax.fori_loop(0, steps, step, (jnp.asarray(q), jnp.asarray(v)))


def moved(y: Any, rates: Any, by: Any) -> Any:
    """The state some time on along its rates."""
    return jax.tree.map(lambda x, rate: x + by * rate, y, rates)
