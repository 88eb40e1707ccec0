"""The equations by hand: with values that are known NumPy computes them, and nothing is compiled."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jaxmbd as mbd

TERMS = ("position", "velocity", "jacobian", "gamma", "mass", "force", "rate", "kinetic", "potential", "coordinate")


def terms(equations: mbd.Equations, t: Any, q: Array, v: Any, name: str) -> dict[str, Any]:
    values = (
        equations.position(t, q), equations.velocity(t, q, v), equations.jacobian(t, q), equations.gamma(t, q, v),
        equations.mass(q, t=t), equations.force(t, q, v), equations.rate(t, q, v),
        equations.kinetic_energy(q, v), equations.potential_energy(t, q), equations.coordinate(name, q, v),
    )  # fmt: skip
    return dict(zip(TERMS, values, strict=True))


@pytest.mark.parametrize("name", ["planar-four-bar", "governor"])
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_terms_by_hand_compile_nothing(name: str, coordinates: str, caplog: pytest.LogCaptureFixture) -> None:
    example = mbd.examples.get(name).with_coordinates(coordinates)
    state, angle = example.state(), f"{example.mechanism.joints[0].name}.angle"
    v = np.linspace(-1.0, 2.0, example.mechanism.nv)
    with jax.log_compiles():
        by_hand = terms(mbd.Equations(example.mechanism), 0.3, state.q, v, angle)
        assert not [record for record in caplog.records if "XLA compilation" in record.message]
        traced = jax.jit(lambda m, t, q, v: terms(mbd.Equations(m), t, q, v, angle))
        expected = traced(example.mechanism, jnp.asarray(0.3), state.q, jnp.asarray(v))
    assert [record for record in caplog.records if "XLA compilation" in record.message]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-10), by_hand, expected)


def test_numbers_have_the_type_of_the_coordinates() -> None:
    """By hand and traced alike; times may be integers."""
    example = mbd.examples.get("planar-four-bar")
    equations, state = mbd.Equations(example.mechanism), example.state()
    floats, others = eqx.partition((equations, state.q, state.v), eqx.is_inexact_array)
    small, q, v = eqx.combine(jax.tree.map(lambda x: x.astype(jnp.float32), floats), others)
    by_hand, traced = small.velocity(0.3, q, v), eqx.filter_jit(lambda e, q, v: e.velocity(0.3, q, v))(small, q, v)
    assert by_hand.dtype == traced.dtype == jnp.float32
    slope = jax.jacfwd(lambda q: equations.gamma(0, q, state.v))(state.q)
    np.testing.assert_allclose(slope, jax.jacfwd(lambda q: equations.gamma(0.0, q, state.v))(state.q))


def test_a_users_check_is_raised_by_hand() -> None:
    def force(t: Array, q: Array, v: Array, limit: Array) -> Array:
        return eqx.error_if(0.0 * v, q[0] > limit, "too far")

    plain = mbd.examples.get("pendulum").with_coordinates("joint").mechanism
    equations = mbd.Equations(plain.replaced(forces=(mbd.planar.GeneralizedForce("stop", force, jnp.asarray(1.0)),)))
    np.testing.assert_array_equal(equations.force(0.0, jnp.zeros(1), jnp.zeros(1)), [0.0])
    with pytest.raises(Exception, match="too far"):
        equations.force(0.0, jnp.full(1, 2.0), jnp.zeros(1))
