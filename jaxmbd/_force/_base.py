"""What a force is: markers, and a wrench at each of them from frames and their rates."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd._body import Marker
from jaxmbd._space import Frame
from jaxmbd._types import Scalar


class AbstractForce(eqx.Module):
    """A law that gives a wrench `(fx, fy, moment)` [N, N, N m], world axes, at each of its markers."""

    name: eqx.AbstractVar[str]

    @property
    @abc.abstractmethod
    def markers(self) -> tuple[Marker, ...]:
        """The markers whose frames the law is given, in that order."""

    @abc.abstractmethod
    def wrenches(self, t: Scalar, frames: Sequence[Frame], rates: Sequence[Frame]) -> Float[Array, "k 3"]:
        """The wrench on the body at each marker; `rates` holds the time derivatives of `frames`."""

    @abc.abstractmethod
    def potential(self, t: Scalar, frames: Sequence[Frame]) -> Scalar:
        """Potential energy [J] stored in the part; zero for a law that has none."""


def wrench(force: Float[Array, "2"], moment: Scalar | float = 0.0) -> Float[Array, "3"]:
    """A force [N] and a moment [N m] as one array."""
    return jnp.append(force, moment)


def pair(force: Float[Array, "2"], moment: Scalar | float = 0.0) -> Float[Array, "2 3"]:
    """A wrench on the second marker and its reaction on the first."""
    on_b = wrench(force, moment)
    return jnp.stack([-on_b, on_b])
