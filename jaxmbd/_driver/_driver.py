"""A driver prescribes one coordinate, of a joint or of a body, as a function of time (a rheonomic constraint)."""

import equinox as eqx
import jax.numpy as jnp

from jaxmbd._body import check_finite, check_name
from jaxmbd._errors import MechanismError
from jaxmbd._types import Function, Number, Scalar, as_float
from jaxmbd._user import user_array


class Driver(eqx.Module):
    """A motor of given position or speed: a coordinate is prescribed, `c(q) − f(t) = 0`, or its rate, `ċ − f(t) = 0`.

    **Arguments:** `coordinate`, the name of a joint's coordinate (`"O.angle"`, `"slide.displacement"`) or a
    body's (`"slider.x"`, `"crank.theta"`); `motion` f, a function of time `[s]` (a plain function, or an equinox
    module with parameters of its own) or a constant; `of`, `"position"` or `"speed"`: what f is. A speed alone leaves
    the position to the start.

    The effort it takes, force `[N]` or torque `[N m]` along the coordinate, is `−λ` of its row:
    `solution.effort(name)`.
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    motion: Function | Scalar
    of: str = eqx.field(static=True)

    def __init__(self, name: str, coordinate: str, motion: Function | Number, of: str = "position") -> None:
        check_name("Driver", name)
        if not isinstance(coordinate, str) or coordinate.count(".") != 1:
            raise MechanismError(
                f"Driver {name!r}: coordinate must be written 'joint.angle' or 'body.x', got {coordinate!r}."
            )
        if of not in ("position", "speed"):
            raise MechanismError(f"Driver {name!r}: of must be 'position' or 'speed', got {of!r}.")
        self.of = of
        self.name = name
        self.coordinate = coordinate
        self.motion = motion if callable(motion) else as_float(motion)
        check_finite(f"Driver {name!r}", "motion", self.motion)

    def value(self, t: Scalar) -> Scalar:
        """The prescribed value at time `t`."""
        value = user_array(f"Driver {self.name!r}", "motion", self.motion, t, takes="t", shape=())
        return jnp.asarray(value, dtype=t.dtype)
