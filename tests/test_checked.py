"""The import hook of the tests finds wrong shapes: in functions, in methods, and in the fields of modules."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation

from jaxmbd.engine.program.symbolic_ldlt import Pattern
from jaxmbd.numerics.linear_solve import SymmetricMatrix, symmetric
from jaxmbd.space.vectors import safe_norm, times

FEW = symmetric(jnp.eye(2))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: safe_norm(jnp.zeros((2, 2))),
        lambda: times(jnp.zeros((2, 3)), jnp.zeros(4)),
        lambda: FEW.times(jnp.zeros((2, 2))),
        lambda: SymmetricMatrix(jnp.zeros((1, 1)), Pattern(1, *np.zeros((2, 1), int))),
    ],
    ids=["function", "sizes that differ", "method", "field"],
)
def test_wrong_shapes_are_found(wrong: Callable[[], object]) -> None:
    with pytest.raises(BeartypeCallHintViolation):
        wrong()
