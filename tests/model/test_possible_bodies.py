"""What no body can be is refused where values are known, and becomes NaN inside `jit`, where they are not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp

TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
MOMENTS = [
    (1.0, 1.5, 2.4), (0.0, 1.0, 1.0), (1.0, 1.0, 2.0), (1e-9, 1.0, 1.0 + 5e-10), (0.0, 0.0, 0.0), (3.0, 4.0, 5.0),
    (1.0, 1.0, 2.001), (1.0, 1.0, 2.0 + 1e-7), (-0.1, 1.0, 1.0), (0.0, 1.0, 1.1), (-1.0, -1.0, -1.0), (0.0, 0.0, 1.0),
    (np.nan, 1.0, 1.0),
]  # fmt: skip


def is_refused(make: Any, *numbers: Any) -> bool:
    try:
        make(*numbers)
    except mbd.MechanismError:
        return True
    return False


def is_nan(make: Any, *numbers: Any) -> bool:
    body = jax.jit(make)(*map(jnp.asarray, numbers))
    return bool(jnp.isnan(body.mass) | jnp.isnan(body.inertia).any())


@pytest.mark.parametrize("turn", [np.eye(3), TURN], ids=["principal", "turned"])
def test_inertias_in_space_have_one_rule(turn: np.ndarray) -> None:
    of = lambda J: sp.Body("b", 1.0, J)  # noqa: E731
    for moments in MOMENTS:
        J = turn @ np.diag(moments) @ turn.T
        assert is_nan(of, (J + J.T) / 2) == is_refused(of, (J + J.T) / 2), moments
    skew = np.eye(3) + np.array([[0.0, 1e-3, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert is_nan(of, skew)
    assert is_refused(of, skew)


def test_masses_and_inertias_in_the_plane_have_one_rule() -> None:
    of = lambda m, J: pl.Body("b", m, J)  # noqa: E731
    for numbers in ((1.0, 0.5), (1.0, 0.0), (0.0, 0.0), (0.0, 0.5), (-1.0, 0.5), (1.0, -0.5), (np.nan, 1.0)):
        assert is_nan(of, *numbers) == is_refused(of, *numbers), numbers
    solid = lambda m, J: sp.Body("b", m, J)  # noqa: E731
    for mass in (0.0, -1.0, 1.0):
        assert is_nan(solid, mass, np.ones(3)) == is_refused(solid, mass, np.ones(3))


def test_solids_have_one_rule() -> None:
    for make, numbers in (
        (sp.box, (1.0, 0.1, -0.2, 0.3)), (sp.box, (1.0, 0.1, 0.2, 0.3)), (sp.tube, (1.0, 0.1, 0.2, 0.3)),
        (sp.tube, (1.0, 0.2, 0.1, 0.3)), (sp.sphere, (-1.0, 0.1)), (sp.rod, (1.0, 0.3, 0.1)), (sp.point, (-1.0,)),
    ):  # fmt: skip
        assert is_nan(make, *numbers) == is_refused(make, *numbers), (make, numbers)


def test_derivatives_of_possible_ones_are_unchanged() -> None:
    J = jnp.asarray(TURN @ np.diag([0.0, 1.0, 1.0]) @ TURN.T)
    for derivative in (jax.jacfwd, jax.jacrev):
        slope = derivative(lambda J: sp.Body("b", 1.0, J).inertia)((J + J.T) / 2)
        np.testing.assert_array_equal(slope.reshape(9, 9), np.eye(9))
        assert float(derivative(lambda m: pl.Body("b", m, 0.0).mass)(2.0)) == 1.0


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_motion_with_an_impossible_body_fails_alone(coordinates: str) -> None:
    """Of a batch, only the instance that has it."""

    def swung(inertia: jax.Array) -> Any:
        bar = pl.Body("bar", 1.0, inertia)
        pin = pl.Revolute("O", pl.ground.at(), bar.at(-0.5))
        m = pl.Mechanism([bar], [pin], [pl.Gravity(9.81)], coordinates=coordinates)
        motion = mbd.simulate(m, mbd.assemble(m, {"O.angle": 0.1}, check=False), np.linspace(0.0, 0.2, 3), throw=False)
        return motion["O.angle"][-1], motion.result == mbd.RESULTS.successful

    angles, succeeded = jax.jit(jax.vmap(swung))(jnp.array([0.1, -0.1]))
    assert succeeded.tolist() == [True, False]
    assert np.isfinite(angles[0])
    assert np.isnan(angles[1])
