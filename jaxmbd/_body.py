"""Bodies, the ground, and markers: frames fixed on a body where joints and forces take hold."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd._errors import MechanismError
from jaxmbd._space import PLANAR, Frame
from jaxmbd._types import Number, Scalar, as_float, is_concrete

GROUND = "ground"


def check_name(kind: str, name: Any) -> None:
    """Raise unless `name` can be used to reach a part: a non-empty string without a dot."""
    if not isinstance(name, str) or not name or "." in name:
        raise MechanismError(f"A {kind}'s name must be a non-empty string without a dot, got {name!r}.")


def check_shape(part: str, field: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise unless an array has the shape that its field needs (placeholders of tree maps pass)."""
    if value is None or isinstance(value, str):
        need = "a number" if shape == () else f"numbers of shape {shape}"
        raise MechanismError(f"{part}: {field} must be {need}, got {value!r}.")
    if isinstance(value, Array | np.ndarray) and value.shape != shape:
        need = "be a number" if shape == () else f"have shape {shape}"
        raise MechanismError(f"{part}: {field} must {need}, got shape {value.shape}.")


def check_finite(part: str, field: str, value: Any, shape: tuple[int, ...] = ()) -> None:
    """Raise unless an array has the shape that its field needs and, where it is known, is finite."""
    check_shape(part, field, value, shape)
    if isinstance(value, Array) and is_concrete(value) and not np.isfinite(np.asarray(value)).all():
        raise MechanismError(f"{part}: {field} must be finite, got {np.asarray(value)}.")


def check_number(part: str, field: str, value: Any, unit: str, *, zero: bool = False) -> None:
    """Raise unless a known number is finite and positive (or zero, where that is allowed)."""
    if not isinstance(value, Array) or not is_concrete(value):
        return
    worst = float(jnp.min(value))
    if not np.isfinite(np.asarray(value)).all() or worst < 0 or (worst == 0 and not zero):
        need = "zero or positive" if zero else "positive"
        raise MechanismError(f"{part}: {field} must be {need} [{unit}] and finite, got {worst:g}.")


class Marker(eqx.Module):
    """A frame fixed on a body.

    **Arguments:** `body`, the body's name; `position` `[m]` and `angle` `[rad]` in the body's frame, whose
    origin is the centre of mass. Usually made by `body.at(x, y, angle)`.
    """

    body: str = eqx.field(static=True)
    position: Float[Array, "2"] = eqx.field(converter=as_float)
    angle: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_finite(f"Marker on {self.body!r}", "position", self.position, (2,))
        check_finite(f"Marker on {self.body!r}", "angle", self.angle)

    def frame(self, pose: Float[Array, "3"]) -> Frame:
        """The marker's frame in the world, `p_WP = p_WB + R_WB p_BP`, at the body's pose."""
        return PLANAR.frame(pose, self.position, self.angle)


def _marker(body: str, x: Any, y: Any, angle: Any) -> Marker:
    """A marker from separate numbers; a point given as one argument, `at((x, y))`, is refused by name."""
    x, y = as_float(x), as_float(y)
    check_shape(f"Marker on {body!r}, made by at(x, y, angle)", "x", x, ())
    check_shape(f"Marker on {body!r}, made by at(x, y, angle)", "y", y, ())
    return Marker(body, jnp.stack([x, y]), angle)


def check_markers(kind: str, name: str, *markers: Marker) -> None:
    """Raise unless the markers are markers, on two different bodies."""
    check_name(kind, name)
    for marker in markers:
        if not isinstance(marker, Marker):
            raise MechanismError(
                f"{kind} {name!r}: expected markers such as body.at(x, y), got {type(marker).__name__}."
            )
    if len(markers) > 1 and markers[0].body == markers[1].body:
        raise MechanismError(
            f"{kind} {name!r} connects body {markers[0].body!r} with itself; give markers on two different bodies."
        )


class Body(eqx.Module):
    """A rigid body in the plane.

    **Arguments:** `name`; `mass` `[kg]`; `inertia` `[kg m²]` about the centre of mass; `pose`, a rough
    `(x, y, theta)` `[m, m, rad]` of the centre of mass from which `assemble` starts.

    **Raises:** `MechanismError` if mass or inertia is not positive and finite.

        >>> crank = Body("crank", mass=0.2, inertia=2e-4)
        >>> crank.at(-0.05, 0).body
        'crank'
    """

    name: str = eqx.field(static=True)
    mass: Scalar = eqx.field(converter=as_float)
    inertia: Scalar = eqx.field(converter=as_float)
    pose: Float[Array, "3"] = eqx.field(converter=as_float, default=(0.0, 0.0, 0.0))

    def __check_init__(self) -> None:
        check_name("body", self.name)
        if self.name == GROUND:
            raise MechanismError("The name 'ground' is taken by the ground itself; name the body otherwise.")
        part = f"Body {self.name!r}"
        check_shape(part, "mass", self.mass, ())
        check_shape(part, "inertia", self.inertia, ())
        check_finite(part, "pose", self.pose, (3,))
        check_number(part, "mass", self.mass, "kg")
        check_number(part, "inertia", self.inertia, "kg m²")

    def at(self, x: Number = 0.0, y: Number = 0.0, angle: Number = 0.0) -> Marker:
        """A marker on this body at `(x, y)` [m] from its centre of mass, turned by `angle` [rad]."""
        return _marker(self.name, x, y, angle)


class Ground(eqx.Module):
    """The body that does not move; its frame is the world's. Use the instance `ground`."""

    name: str = eqx.field(default=GROUND, static=True)

    def at(self, x: Number = 0.0, y: Number = 0.0, angle: Number = 0.0) -> Marker:
        """A marker fixed in the world at `(x, y)` [m], turned by `angle` [rad]."""
        return _marker(self.name, x, y, angle)


ground = Ground()
