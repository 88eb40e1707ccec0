"""States of parts as they are integrated: each divided by its size, and after them the quadratures of the motion.

An absolute tolerance is one number for all that is integrated, so that what has other units than coordinates enters in
terms of its size.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.model.mechanism.mechanism import Mechanism


def _sizes(mechanism: Mechanism, dtype: np.dtype) -> Float[np.ndarray, " nz"]:
    return np.asarray(mechanism.layout.z.sizes, dtype)


def start_of(mechanism: Mechanism, z: Float[Array, " nz"], quadratures: int) -> Float[Array, " n"]:
    """What is integrated, at the start of a motion."""
    return jnp.concatenate([z / _sizes(mechanism, z.dtype), jnp.zeros(quadratures, z.dtype)])


def split_integrated(
    mechanism: Mechanism, integrated: Float[Array, "*times n"]
) -> tuple[Float[Array, "*times nz"], Float[Array, "*times k"]]:
    """The states of parts, and the quadratures."""
    sizes = _sizes(mechanism, integrated.dtype)
    own, quadratures = jnp.split(integrated, [len(sizes)], axis=-1)
    return own * sizes[(None,) * (own.ndim - 1)], quadratures


def at_integrated(equations: Equations, integrated: Float[Array, " n"]) -> Equations:
    """The equations with the states of parts that are integrated."""
    return equations.with_own_states(split_integrated(equations.mechanism, integrated)[0])


def integrated_rates(at: Configuration, v: Float[Array, " nv"], *integrands: Scalar) -> Float[Array, " n"]:
    """The rates of what is integrated, at the speeds `v`."""
    own = at.own_rates(v)
    return jnp.concatenate([own / _sizes(at.mechanism, own.dtype), *(jnp.reshape(x, 1) for x in integrands)])
