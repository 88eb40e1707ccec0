"""The abstract function of one variable, and polynomials between breaks.

An integrator of order eight needs eight derivatives. A step across a jump or kink of a force is accurate to first or
second order only, whatever the tolerance, and the derivative with respect to that time is lost. Hence functions declare
their breaks, and `simulate` ends steps on them: on those of functions that a law calls with the time itself
(`model/mechanism/declared_times.py`, `integrate/solvers/switching.py`). A torque over a speed, or a curve over its arc
length, has breaks at which no step ends.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Number, Scalar, as_float, is_concrete
from jaxmbd.engine.binding.lookups import looked_up
from jaxmbd.errors import MechanismError, shown

SMOOTHEST = 100  # an order beyond which no method of integration notices a jump


class AbstractFunction(eqx.Module):
    """A function of one variable (and of further arguments, if its caller passes any), smooth between known breaks.

    The variable is time `[s]`, or a length, angle, speed or any other; the breaks are in its unit. The function is
    called with it; subclasses define `value`, and are continuous from the right.

    **Fields:** `breaks (k,)`, increasing; `order`, the lowest derivative that jumps there: 0 if the value itself jumps,
    1 at kinks. `ends_steps`: False for functions so smooth that integration steps across their breaks, such as splines.

        >>> import equinox as eqx
        >>> class Cam(mbd.extend.AbstractFunction):
        ...     breaks: jax.Array
        ...     order: int = eqx.field(static=True, default=2)
        ...
        ...     def value(self, t):
        ...         return jnp.where(t < self.breaks[0], 0.0, (t - self.breaks[0]) ** 2)
        >>> print(Cam(jnp.array([1.0]))(jnp.array(3.0)))
        4.0
    """

    breaks: eqx.AbstractVar[Any]  # an array (k,); where leaves of a part are looked for, the number of a leaf
    order: eqx.AbstractVar[int]
    ends_steps: ClassVar[bool] = True

    def __call__(self, x: Number, *args: object) -> Any:
        """The value at `x`."""
        if self.ends_steps:
            looked_up(x, self.breaks)
        return self.value(x, *args)

    # `x: Any`: subclasses declare a `Scalar`, or any number, and an override may not narrow a type.
    @abc.abstractmethod
    def value(self, x: Any, /, *args: object) -> Any:
        """The value, which subclasses define and users get by a call."""


def polynomial(
    breaks: Float[Array, " pieces"], coefficients: Float[Array, "pieces powers *components"], x: Scalar
) -> Float[Array, "*components"]:
    """The value at x of polynomials between breaks: each starts at its break, and has its highest power first.

    Before the first break and after the last one, the first and last polynomial go on.
    """
    piece = jnp.clip(jnp.searchsorted(breaks, x, side="right") - 1, 0, len(breaks) - 1)
    return in_powers(coefficients[piece], x - breaks[piece])


def in_powers(coefficients: Float[Array, "powers *components"], x: Scalar) -> Float[Array, "*components"]:
    """The polynomial with these coefficients, the highest power first, by Horner's scheme."""
    value = jnp.zeros_like(x)
    for coefficient in coefficients:
        value = value * x + coefficient
    return value


def as_increasing(kind: str, field: str, values: object, strict: bool) -> Array:
    """Values as an array, which increase; if not `strict`, some may be equal."""
    array = as_finite(kind, field, values)
    if array.ndim != 1 or not len(array):
        raise MechanismError(f"{kind}: {field} must be a sequence of at least one number, got shape {array.shape}.")
    if is_concrete(array):
        numbers = np.asarray(array)
        steps = np.diff(numbers)
        wrong = steps <= 0 if strict else steps < 0
        if wrong.any():
            k = int(np.argmax(wrong))
            raise MechanismError(
                f"{kind}: {field} must increase: {field}[{k + 1}] = {numbers[k + 1]:g} does not come after "
                f"{field}[{k}] = {numbers[k]:g}."
            )
    return array


def as_finite(kind: str, field: str, values: object) -> Array:
    """Real numbers as an array, each of them finite."""
    array = as_float(values)
    if not isinstance(array, Array) or np.issubdtype(array.dtype, np.complexfloating):
        raise MechanismError(f"{kind}: {field} must be real numbers, got {shown(values)}.")
    if is_concrete(array):
        numbers = np.asarray(array)
        wrong = np.argwhere(~np.isfinite(numbers)).tolist()
        if wrong:
            place = "".join(f"[{k}]" for k in wrong[0])
            raise MechanismError(f"{kind}: {field}{place} must be finite, got {numbers[tuple(wrong[0])]}.")
    return array


def as_order(kind: str, order: object) -> int:
    """A number that says which derivative is the lowest to jump."""
    if isinstance(order, bool) or not isinstance(order, int) or not 0 <= order <= SMOOTHEST:
        raise MechanismError(
            f"{kind}: order is the lowest derivative that jumps, a whole number from 0 to {SMOOTHEST}, got "
            f"{shown(order)}."
        )
    return order
