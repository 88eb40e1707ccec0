"""The state of a mechanism at one instant, with its coordinates and speeds by name."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxmbd._analysis._results import RESULTS
from jaxmbd._errors import unknown
from jaxmbd._mechanism import Mechanism
from jaxmbd._types import Scalar


class State(eqx.Module):
    """Time `t` [s], coordinates `q (nq,)` and speeds `v (nv,)`; `state["rod.theta"]`, `state["rod.omega"]`.

    `rank`: that of the constraint rows, found at assembly (singular values above 1e-10 of the largest); where it is
    less than the number of rows, `redundancy(mechanism, state)` says which ones repeat one another. `result`: how the
    assembly, or the motion that the state was taken from, went (see `RESULTS`); values are NaN where it failed.
    """

    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    coordinate_names: tuple[str, ...] = eqx.field(static=True)
    speed_names: tuple[str, ...] = eqx.field(static=True)
    rank: Int[Array, ""] | None = None
    result: RESULTS = eqx.field(default_factory=lambda: RESULTS.successful)

    def __getitem__(self, name: str) -> Scalar:
        if name in self.coordinate_names:
            return self.q[self.coordinate_names.index(name)]
        if name in self.speed_names:
            return self.v[self.speed_names.index(name)]
        raise unknown("coordinate or speed", name, (*self.coordinate_names, *self.speed_names))


def state_of(
    mechanism: Mechanism,
    t: Array,
    q: Array,
    v: Array,
    rank: Array | None = None,
    result: RESULTS = RESULTS.successful,
) -> State:
    """A state of a mechanism, with its names."""
    return State(jnp.asarray(t, dtype=q.dtype), q, v, mechanism.coordinate_names, mechanism.speed_names, rank, result)
