"""Torques in space."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Scalar, as_float
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.body.checks import check_finite, check_markers
from jaxmbd.model.body.spatial import Marker
from jaxmbd.model.force.force import AbstractForce, pair
from jaxmbd.space.spatial import SPATIAL, SpatialFrame, SpatialRate
from jaxmbd.user_functions import user_array


class Torque(AbstractForce):
    """A torque on the body of marker `on`, with its reaction on the body of marker `from_`.

    **Arguments:** `on`, the marker it acts on; `torque (3,)` `[N m]`, a constant or a function `(t, frames, rates)` of
    the time, the frames of `from_` and `on`, and their velocities; `from_`, the marker of the reaction (default: the
    ground); `frame`, `"world"` or `"body"`, the axes of `on`. A torque about a joint's axis is a `JointForce`.
    """

    name: str = eqx.field(static=True)
    on: Marker
    torque: Function | Float[Array, "3"]
    from_: Marker
    frame: str = eqx.field(static=True)

    def __init__(self, name: str, on: Marker, torque: Any, from_: Marker | None = None, frame: str = "world") -> None:
        from_ = Marker(GROUND, (0.0, 0.0, 0.0)) if from_ is None else from_
        check_markers("Torque", name, from_, on, space=SPATIAL)
        if frame not in ("world", "body"):
            raise MechanismError(f"Torque {name!r}: frame must be 'world' or 'body', got {frame!r}.")
        self.name, self.on, self.from_, self.frame = name, on, from_, frame
        self.torque = torque if callable(torque) else as_float(torque)
        check_finite(f"Torque {name!r}", "torque", self.torque, (3,))

    @property
    def markers(self) -> tuple[Marker, ...]:
        return (self.from_, self.on)

    def wrenches(self, t: Scalar, frames: Sequence[SpatialFrame], rates: Sequence[SpatialRate]) -> Float[Array, "2 6"]:
        part, arguments = f"Torque {self.name!r}", (t, tuple(frames), tuple(rates))
        torque = user_array(part, "torque", self.torque, *arguments, takes="t, frames, rates", shape=(3,))
        if self.frame == "body":
            torque = frames[1].to_world(torque)
        return pair(jnp.zeros(3, torque.dtype), torque)

    def potential(self, t: Scalar, frames: Sequence[SpatialFrame]) -> Scalar:
        return jnp.zeros(())
