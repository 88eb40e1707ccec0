"""Generalized speeds of a user's choice, and users' functions of all coordinates beside them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests.marks import slow_but
from tests.planar_examples import rod

T = 0.3  # [s]


def double_pendulum(speeds: pl.GeneralizedSpeeds | None = None) -> pl.Mechanism:
    upper, lower = rod("upper", 1.0, 1.0, (0, 0), -1.0), rod("lower", 0.5, 0.8, (0, 0), -0.5)
    return pl.Mechanism(
        [upper, lower],
        [pl.Revolute("O", pl.ground.at(), upper.at(-0.5)), pl.Revolute("A", upper.at(0.5), lower.at(-0.4))],
        [pl.Gravity(9.81), pl.JointFriction("friction", "A.angle", viscous=0.1)],
        coordinates="joint",
        speeds=speeds,
    )


def absolute_speeds(t: Array, q: Array, p: Array, _: Any) -> Array:
    """Joint rates from the bodies' angular velocities."""
    return jnp.stack([p[0], p[1] - p[0]])


def odd_speeds(t: Array, q: Array, p: Array, scale: Any) -> Array:
    """Speeds that turn with the position and are affine, with a part that depends on time."""
    mixed = jnp.stack([jnp.cos(q[1]) + 2, jnp.sin(q[0]), t, 3 + scale * q[0] ** 2]).reshape(2, 2)
    return mixed @ p + jnp.stack([jnp.sin(t), q[1] * t])


CHOICES = {
    "absolute": pl.GeneralizedSpeeds(["u1", "u2"], absolute_speeds),
    "odd": pl.GeneralizedSpeeds(["u1", "u2"], odd_speeds, jnp.asarray(0.3)),
}


@pytest.mark.parametrize("choice", slow_but(["absolute"], CHOICES))
def test_chosen_speeds_give_the_same_motion(choice: str) -> None:
    """The motion, its accelerations and reactions; and `M`, `F` as `v = A p + b` asks."""
    plain, other = double_pendulum(), double_pendulum(CHOICES[choice])
    start, rates = {"O.angle": 0.3, "A.angle": -0.8}, {"O.angle": 1.0, "A.angle": 2.0}
    states = [mbd.assemble(mechanism, start, speeds=rates) for mechanism in (plain, other)]
    ts = np.linspace(0, 0.5, 6)
    mine, theirs = (
        mbd.simulate(mechanism, state, ts, accuracy="high")
        for mechanism, state in zip((other, plain), reversed(states), strict=True)
    )
    names = ["O.angle", "A.angle", "A.angle_rate", "lower.alpha", "A.fx", "O.fy"]
    for name, value in theirs.read(names).items():
        np.testing.assert_allclose(mine[name], value, atol=1e-9, err_msg=name)
    system, own = mbd.export(other), mbd.export(plain)
    state, speeds = states[1], other.speeds
    assert speeds is not None
    found, base = system.at(state), own.at(states[0])
    A = np.asarray(jax.jacfwd(lambda p: speeds.given(state.t, state.q, p))(state.v))
    np.testing.assert_allclose(found["xM"], A.T @ base["xM"] @ A, atol=1e-12)
    np.testing.assert_allclose(found["h"], base["h"], atol=1e-12)
    assert mine.names[: len(plain.bodies)] == theirs.names[: len(plain.bodies)]


def test_user_functions_of_all_coordinates_work_with_joint_coordinates_and_chosen_speeds(
    rng: np.random.Generator,
) -> None:
    """A global constraint and a generalized force: `C`, `Φ̇`, `γ` and `Ċᵀ η` against differences along the motion."""
    constraint = pl.GlobalConstraint("g", lambda t, q, _: q[0] ** 2 * q[1] + jnp.sin(t) * q[1])
    mechanism = double_pendulum(CHOICES["odd"])
    mechanism = pl.Mechanism(
        mechanism.bodies, [*mechanism.joints, constraint], mechanism.forces, coordinates="joint", speeds=CHOICES["odd"]
    )
    equations = mbd.Equations(mechanism)
    q, v, eta = jnp.asarray(rng.normal(size=2)), jnp.asarray(rng.normal(size=2)), jnp.asarray([1.3])

    def along(s: Array) -> tuple[Array, Array]:
        """Time and position along the motion of constant `v`, by a few small steps of Runge and Kutta."""
        rate = lambda t, q: equations.rate(t, q, v)  # noqa: E731
        t, h = jnp.asarray(T), s / 4
        here = q
        for _ in range(4):
            k1 = rate(t, here)
            k2 = rate(t + h / 2, here + h / 2 * k1)
            k3 = rate(t + h / 2, here + h / 2 * k2)
            k4 = rate(t + h, here + h * k3)
            t, here = t + h, here + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return t, here

    phi = jax.jit(lambda s: equations.position(*along(s)))
    load = jax.jit(lambda s: equations.jacobian(*along(s)).T @ eta)
    at = jax.jit(lambda: (equations.velocity(jnp.asarray(T), q, v), equations.gamma(jnp.asarray(T), q, v)))
    h = 1e-3
    first = (phi(h) - phi(-h)) / (2 * h)
    second = (phi(h) - 2 * phi(0.0) + phi(-h)) / h**2
    velocity, gamma = at()
    np.testing.assert_allclose(velocity, first, rtol=1e-5)
    np.testing.assert_allclose(-gamma, second, rtol=1e-5)
    rate = jax.jit(lambda: equations.constraint_force_rate(jnp.asarray(T), q, v, eta))()
    np.testing.assert_allclose(rate, (load(h) - load(-h)) / (2 * h), rtol=1e-5)
