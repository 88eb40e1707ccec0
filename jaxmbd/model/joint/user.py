"""Constraints defined by a user's function."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Function, Scalar
from jaxmbd.checks import check_callable
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractMarker
from jaxmbd.model.body.checks import check_markers, check_name
from jaxmbd.model.body.names import Name
from jaxmbd.model.joint.joint import AbstractJoint, AbstractNonholonomic, no_rows
from jaxmbd.space.space import Frames, Rates
from jaxmbd.user_functions import user_array


class Constraint(AbstractJoint):
    """A user-defined joint between two bodies: `Φ(t, frames, parameters) = 0`.

    **Arguments:** `function` takes the time [s], the two markers' frames (a pair) and `parameters` (any tree of
    arrays, or an equinox module), and returns the residual, a scalar or a vector. `C` and `γ` follow by
    differentiation.
    """

    name: str = eqx.field(static=True)
    function: Function
    a: AbstractMarker
    b: AbstractMarker
    parameters: PyTree = None

    def __check_init__(self) -> None:
        check_markers("Constraint", self.name, self.a, self.b)
        check_callable("Constraint", self.name, self.function)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)

    def residual(self, t: Scalar, frames: Frames) -> Float[Array, " m"]:
        part, arguments = f"Constraint {self.name!r}", (t, tuple(frames), self.parameters)
        value = user_array(part, "function", self.function, *arguments, takes="t, frames, parameters")
        return check_rows("Constraint", self.name, value)


class NonholonomicConstraint(AbstractNonholonomic):
    """A user-defined nonholonomic constraint: `Ψ(t, frames, rates, parameters) = 0`, affine in the rates.

    **Arguments:** `function` takes the time [s], the two markers' frames, their rates (a pair each) and `parameters`
    (any tree of arrays, or an equinox module), and returns a scalar or a vector that is affine in the rates. It adds no
    row to `Φ`. `C` and `γ` follow by differentiation.

    **Raises:** `MechanismError`, when the mechanism is built, if the function is not affine in the rates, or does not
    depend on them.
    """

    name: str = eqx.field(static=True)
    function: Function
    a: AbstractMarker
    b: AbstractMarker
    parameters: PyTree = None

    def __check_init__(self) -> None:
        check_markers("NonholonomicConstraint", self.name, self.a, self.b)
        check_callable("NonholonomicConstraint", self.name, self.function)

    @property
    def markers(self) -> tuple[AbstractMarker, ...]:
        return (self.a, self.b)

    def residual(self, t: Scalar, frames: Frames) -> Float[Array, "0"]:
        return no_rows()

    def slip(self, t: Scalar, frames: Frames, rates: Rates) -> Float[Array, " k"]:
        part, arguments = f"NonholonomicConstraint {self.name!r}", (t, tuple(frames), tuple(rates), self.parameters)
        value = user_array(part, "function", self.function, *arguments, takes="t, frames, rates, parameters")
        return check_rows("NonholonomicConstraint", self.name, value)


class GlobalConstraint(eqx.Module):
    """A user-defined constraint on all coordinates: `Φ(t, q, parameters) = 0`.

    **Arguments:** `function` takes the time [s], the coordinates `q` of shape `(nq,)` in the mechanism's order
    and `parameters`; it returns a scalar or a vector.

    With joint coordinates its loads act as in the joints that these belong to: as moments about the axes of joints that
    turn, as forces along those that slide, through the second marker. They are no part of the reactions of joints.
    """

    name: Name = eqx.field(static=True)
    function: Function
    parameters: PyTree = None

    def __check_init__(self) -> None:
        check_name("GlobalConstraint", self.name)
        check_callable("GlobalConstraint", self.name, self.function)

    def residual(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, " m"]:
        """The residual `Φ(t, q)`."""
        part, arguments = f"GlobalConstraint {self.name!r}", (t, q, self.parameters)
        value = user_array(part, "function", self.function, *arguments, takes="t, q, parameters")
        return check_rows("GlobalConstraint", self.name, value)


def check_rows(kind: str, name: str, value: Array) -> Array:
    """The residual of a user's function as a vector; raise if it is neither a scalar nor a vector."""
    rows = jnp.atleast_1d(value)
    if rows.ndim != 1:
        raise MechanismError(f"{kind} {name!r}: the function must return a scalar or a vector, got shape {rows.shape}.")
    return rows
