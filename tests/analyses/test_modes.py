"""What a table of modes says of each."""

import jax.numpy as jnp
import numpy as np

from jaxmbd.analyses.linearization.eigen import Eigenpairs
from jaxmbd.analyses.linearization.modes import modes_of_pairs


def test_states_of_parts_that_change_alone_are_no_rigid_body() -> None:
    """One that keeps its value, such as a bristle that sticks, and one that decays without moving anything."""
    values, right = jnp.array([0.0, -3.0, 2.0j, -2.0j]), np.zeros((4, 4), complex)
    right[2, 0] = right[3, 1] = 1.0
    right[:2, 2:] = [[1.0, 1.0], [2.0j, -2.0j]]
    eigen = Eigenpairs(values, jnp.asarray(right), jnp.asarray(right), jnp.zeros(4))
    modes = modes_of_pairs(("O.angle",), eigen, jnp.eye(1), jnp.eye(1))
    constant, decaying, swinging = str(modes).splitlines()[1:]
    assert constant.endswith("states of parts alone, constant")
    assert decaying.endswith("states of parts alone, no motion")
    assert "O.angle 100 %" in swinging
    np.testing.assert_allclose(modes.omega, [0.0, 3.0, 2.0])
