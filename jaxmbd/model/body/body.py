"""What a body and a marker are, in either space."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.arrays import Point, Scalar
from jaxmbd.space.space import AbstractSpace

GROUND = "ground"


class AbstractMarker(eqx.Module):
    """A frame fixed on a body, or on the ground."""

    body: eqx.AbstractVar[str]
    position: eqx.AbstractVar[Array]

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """The space that the marker lives in."""

    @property
    @abc.abstractmethod
    def local(self) -> Any:
        """The marker's frame in the frame of its body."""

    def frame(self, body: Any) -> Any:
        """The marker's frame in the world, `p_WP = p_WB + R_WB p_BP`, where its body has the given frame."""
        return body.compose(self.local)


class AbstractMovingMarker(AbstractMarker):
    """A frame that moves along its body in a given way: its place there is a function of time.

    `position` and `local` are those at time zero.
    """

    motion: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def at_time(self, t: Scalar) -> AbstractMarker:
        """The marker fixed where this one is at a time."""

    def course(self, t: Scalar) -> tuple[Point, Point, Point]:
        """Place [m], velocity and acceleration along the body at a time, in the body's axes."""
        place = lambda s: jnp.asarray(self.motion(s), dtype=t.dtype)  # noqa: E731
        rate = lambda s: jax.jvp(place, (s,), (jnp.ones_like(s),))[1]  # noqa: E731
        return place(t), *jax.jvp(rate, (t,), (jnp.ones_like(t),))


class AbstractBody(eqx.Module):
    """A rigid body; the origin of its frame is its centre of mass."""

    name: eqx.AbstractVar[str]
    mass: eqx.AbstractVar[Array]
    inertia: eqx.AbstractVar[Array]
    pose: eqx.AbstractVar[Array]

    @property
    @abc.abstractmethod
    def space(self) -> AbstractSpace:
        """The space that the body lives in."""

    @property
    @abc.abstractmethod
    def lacks_inertia(self) -> bool:
        """Whether it is known to have no inertia about some axis: a point mass, a thin rod."""

    @abc.abstractmethod
    def at(self) -> AbstractMarker:
        """A marker at the centre of mass, or elsewhere where numbers are given."""
