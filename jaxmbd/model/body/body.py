"""Abstract bodies and markers, for both spaces."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.arrays import Function, Point, Scalar
from jaxmbd.model.body.names import Name
from jaxmbd.space.space import AbstractFrame, AbstractSpace

GROUND = "ground"


class AbstractMarker(eqx.Module):
    """A frame fixed on a body or on the ground."""

    space: ClassVar[AbstractSpace]  # planar or spatial
    body: eqx.AbstractVar[Name]
    position: eqx.AbstractVar[Array]

    @property
    @abc.abstractmethod
    def local(self) -> Any:
        """The marker's frame relative to its body."""

    def frame(self, body: AbstractFrame) -> AbstractFrame:
        """The marker's frame in the world, `p_WP = p_WB + R_WB p_BP`, from the frame of its body."""
        return body.compose(self.local)


class AbstractMovingMarker(AbstractMarker):
    """A frame whose position on its body is a prescribed function of time.

    `position` and `local` are the values at time zero.
    """

    motion: eqx.AbstractVar[Function]

    @abc.abstractmethod
    def at_time(self, t: Scalar) -> AbstractMarker:
        """A fixed marker at the position of this one at time `t`."""

    @property
    def position(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.course(jnp.zeros(()))[0]

    @property
    def local(self) -> Any:
        return self.at_time(jnp.zeros(())).local

    def course(self, t: Scalar) -> tuple[Point, Point, Point]:
        """Position [m], velocity and acceleration relative to the body at time `t`, in the body's axes."""
        position = lambda s: jnp.asarray(self.motion(s), dtype=t.dtype)  # noqa: E731
        rate = lambda s: jax.jvp(position, (s,), (jnp.ones_like(s),))[1]  # noqa: E731
        return position(t), *jax.jvp(rate, (t,), (jnp.ones_like(t),))


class AbstractBody(eqx.Module):
    """A rigid body; the origin of its frame is its centre of mass."""

    space: ClassVar[AbstractSpace]  # planar or spatial
    name: eqx.AbstractVar[Name]
    mass: eqx.AbstractVar[Array]
    inertia: eqx.AbstractVar[Array]
    pose: eqx.AbstractVar[Array]

    @property
    @abc.abstractmethod
    def lacks_inertia(self) -> bool:
        """True if the inertia is concrete and zero about some axis: a point mass, a thin rod."""

    @abc.abstractmethod
    def at(self) -> AbstractMarker:
        """A marker on this body; at the centre of mass without arguments."""
