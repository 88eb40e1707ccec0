"""Forces defined by a user's function, such as a neural network."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Scalar
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_callable, check_markers, check_name
from jaxmbd.model.force.force import AbstractForce
from jaxmbd.user_functions import user_array


class UserForce(AbstractForce):
    """A user-defined force law between markers.

    **Arguments:** `function(t, frames, rates, parameters)` takes the time [s], the markers' frames, their
    velocities and `parameters`, and returns the wrenches in world axes, one row per marker: `(fx, fy, moment)` in the
    plane, `(fx, fy, fz, mx, my, mz)` in space [N, N m]; `at`, a tuple of markers; `parameters`, any tree of arrays, or
    an equinox module.
    """

    name: str = eqx.field(static=True)
    function: Function
    at: tuple[AbstractMarker, ...]
    parameters: Any = None

    def __check_init__(self) -> None:
        if not isinstance(self.at, tuple | list) or not self.at:
            raise MechanismError(
                f"UserForce {self.name!r}: give a tuple of at least one marker, such as (body.at(),), got {self.at!r}; "
                "a force on coordinates is a GeneralizedForce."
            )
        for marker in self.at:
            check_markers("UserForce", self.name, marker)
        check_callable("UserForce", self.name, self.function)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return self.at

    def wrenches(self, t: Scalar, frames: Sequence[Any], rates: Sequence[Any]) -> Float[Array, "k efforts"]:
        part, arguments = f"UserForce {self.name!r}", (t, frames, rates, self.parameters)
        value = user_array(part, "function", self.function, *arguments, takes="t, frames, rates, parameters")
        efforts = self.at[0].space.efforts
        expected = (len(self.at), len(efforts))
        if value.shape != expected:
            raise MechanismError(
                f"UserForce {self.name!r}: the function must return wrenches of shape {expected} "
                f"(a row ({', '.join(efforts)}) for each marker), got shape {value.shape}."
            )
        return value

    def potential(self, t: Scalar, frames: Sequence[Any]) -> Scalar:
        return jnp.zeros(())


class GeneralizedForce(eqx.Module):
    """A user-defined generalized force on all coordinates: `Q = function(t, q, v, parameters)`.

    **Arguments:** `function` returns the generalized forces `Q` of shape `(nv,)`, in the mechanism's order.
    """

    name: str = eqx.field(static=True)
    function: Function
    parameters: Any = None

    def __check_init__(self) -> None:
        check_name("GeneralizedForce", self.name)
        check_callable("GeneralizedForce", self.name, self.function)

    def generalized(self, t: Scalar, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The generalized forces `Q` at a state."""
        part, arguments = f"GeneralizedForce {self.name!r}", (t, q, v, self.parameters)
        value = user_array(part, "function", self.function, *arguments, takes="t, q, v, parameters")
        if value.shape != v.shape:
            raise MechanismError(
                f"GeneralizedForce {self.name!r}: the function must return shape {v.shape}, got {value.shape}."
            )
        return value
