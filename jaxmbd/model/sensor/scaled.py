"""Scaled sensors: a quantity with a scale, a sign and an offset."""

import equinox as eqx
from jaxtyping import Array, Float

from jaxmbd.arrays import as_float
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_finite, check_name


class Scaled(eqx.Module):
    """The reading of an instrument: `scale · quantity + offset`.

    **Arguments:** `of`, the name of a quantity, such as a sensor declared before, `"O.angle"`, `"spring.tension"`,
    `"rod.position"`; `scale`, including the sign (−1 for an encoder mounted in the opposite direction), and `offset`,
    the reading at quantity zero, in the unit of the reading: numbers, or one per component; `unit` of the reading
    (default: that of the quantity).

        >>> Scaled("encoder", "O.angle", scale=-1.0, offset=0.02)
    """

    name: str = eqx.field(static=True)
    of: str = eqx.field(static=True)
    scale: Float[Array, "*components"] = eqx.field(converter=as_float, default=1.0)
    offset: Float[Array, "*components"] = eqx.field(converter=as_float, default=0.0)
    unit: str | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_name("Scaled", self.name)
        if not isinstance(self.of, str) or not self.of:
            raise MechanismError(
                f"Scaled {self.name!r}: of must be the name of a quantity or sensor, such as 'O.angle', got "
                f"{self.of!r}."
            )
        for field in ("scale", "offset"):
            value = getattr(self, field)
            check_finite(f"Scaled {self.name!r}", field, value, getattr(value, "shape", ())[:1])

    def value(self, quantity: Array) -> Array:
        """The reading of a quantity."""
        for field in ("scale", "offset"):
            shape = getattr(self, field).shape
            if shape not in ((), quantity.shape):
                raise MechanismError(
                    f"Scaled {self.name!r}: {field} must be a number, or have the shape {quantity.shape} of "
                    f"{self.of!r}, got shape {shape}."
                )
        return self.scale * quantity + self.offset
