"""The state of a mechanism at one instant, with its coordinates and speeds by name."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._errors import unknown
from jaxmbd._mechanism import Mechanism
from jaxmbd._types import Scalar


class State(eqx.Module):
    """Time `t` [s], coordinates `q (nq,)` and speeds `v (nv,)`; `state["rod.theta"]`, `state["rod.omega"]`."""

    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    coordinate_names: tuple[str, ...] = eqx.field(static=True)
    speed_names: tuple[str, ...] = eqx.field(static=True)

    def __getitem__(self, name: str) -> Scalar:
        if name in self.coordinate_names:
            return self.q[self.coordinate_names.index(name)]
        if name in self.speed_names:
            return self.v[self.speed_names.index(name)]
        raise unknown("coordinate or speed", name, (*self.coordinate_names, *self.speed_names))


def state_of(mechanism: Mechanism, t: Array, q: Array, v: Array) -> State:
    """A state of a mechanism, with its names."""
    return State(jnp.asarray(t, dtype=q.dtype), q, v, mechanism.coordinate_names, mechanism.speed_names)
