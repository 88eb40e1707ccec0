"""Forces that lock the coordinate along which they act, and let it go when the effort becomes too large to hold."""

import abc
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar
from jaxmbd.model.force.force import AbstractJointForce
from jaxmbd.model.states import AbstractOwnStates, OwnState


class AbstractSticking(AbstractJointForce, AbstractOwnStates):
    """A force along a joint coordinate that locks it and lets it go, by events of its own (`analyses/events/parts.py`).

    Its state, in the field `direction`, is that of the motion, 1 or -1, and 0 while it is locked.
    """

    # The names of what happens: it locks, and lets go forward and back; empty for what cannot happen.
    happenings: ClassVar[tuple[str, str, str]] = ("sticks", "slips forward", "slips back")
    from_either_side: ClassVar[bool] = True  # it locks a motion back as well as one forward
    locks_at_rest: ClassVar[bool] = True  # where the rate is zero; else where the coordinate has a value

    @abc.abstractmethod
    def holds(self, *at: Any, **_: Any) -> Float[Array, "2"]:
        """The largest efforts against a motion forward and back that hold it while it is locked, at a time, and under
        the load of a part that has one."""

    def caught(self, coordinate: Scalar, rate: Scalar) -> Scalar:
        """What is zero where it locks."""
        return rate

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("direction", "1", held=True),)

    def potential(self, coordinate: Scalar) -> Scalar:
        return jnp.zeros(())

    def own_rates(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, " k"]:
        return jnp.zeros(1, rate.dtype)

    def steady(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, " k"]:
        """The direction of the motion; none at rest, where what is locked is not told by the position."""
        return jnp.sign(rate)[None]
