"""Bodies, the ground and markers in the plane."""

from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Number, Numbers, Scalar, as_float, is_concrete
from jaxmbd.checks import check_finite, check_instance, check_number, check_shape, stacked
from jaxmbd.model.body.body import GROUND, AbstractBody, AbstractMarker, AbstractMovingMarker
from jaxmbd.model.body.checks import check_motion, check_name
from jaxmbd.space.planar import PLANAR, Frame
from jaxmbd.space.solid import Solid, mass_properties, positive_or_nan
from jaxmbd.space.space import AbstractSpace
from jaxmbd.upstream.equinox_internals import binds_methods_at_once


class Marker(AbstractMarker):
    """A frame fixed on a body.

    **Arguments:** `body`, the body's name; `position` `[m]` and `angle` `[rad]` in the body's frame, whose
    origin is the centre of mass, and where a marker is by default. Usually made by `body.at(x, y, angle)`.
    """

    space: ClassVar[AbstractSpace] = PLANAR
    body: str = eqx.field(static=True)
    position: Float[Array, "2"] = eqx.field(converter=as_float, default=(0.0, 0.0))
    angle: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        check_instance("Marker: body", self.body, str, "the name of a body (or take body.at(...))")
        check_finite(f"Marker on {self.body!r}", "position", self.position, (2,))
        check_finite(f"Marker on {self.body!r}", "angle", self.angle)

    @property
    def local(self) -> Frame:
        return Frame(self.position, self.angle)


class MovingMarker(AbstractMovingMarker):
    """A frame that moves relative to its body, or to the ground, as a prescribed function of time.

    **Arguments:** `body`, the body's name; `motion`, a function of time `[s]` (a plain function, or an equinox module
    with parameters) that returns the position `(2,)` `[m]` in the body's frame; `angle` as for `Marker`, constant.
    Usually made by `body.moving(motion)`.
    """

    space: ClassVar[AbstractSpace] = PLANAR
    body: str = eqx.field(static=True)
    motion: Function
    angle: Scalar = eqx.field(converter=as_float)

    def __init__(self, body: str, motion: Function, angle: Number = 0.0) -> None:
        self.body, self.motion, self.angle = body, motion, as_float(angle)

    def __check_init__(self) -> None:
        Marker(self.body, np.zeros(2), self.angle)  # its checks
        check_motion(f"MovingMarker on {self.body!r}", self.motion, 2)

    def at_time(self, t: Scalar) -> Marker:
        return Marker(self.body, self.course(t)[0], self.angle)


def _marker(body: str, x: Number, y: Number, angle: Number) -> Marker:
    """A marker from separate coordinates; a point as one argument, `at((x, y))`, raises."""
    return Marker(body, stacked(f"Marker on {body!r}, made by at(x, y, angle)", x=x, y=y), angle)


@binds_methods_at_once
class AbstractMarkerOwner(eqx.Module):
    """A body or the ground, which makes markers."""

    name: eqx.AbstractVar[str]

    def at(self, x: Number = 0.0, y: Number = 0.0, angle: Number = 0.0) -> Marker:
        """A marker at `(x, y)` [m] from the body's centre of mass, or in the world on the ground, rotated by `angle`
        [rad]."""
        return _marker(self.name, x, y, angle)

    def moving(self, motion: Function, angle: Number = 0.0) -> MovingMarker:
        """A marker that moves relative to the body or the ground: `motion(t)` is its position `(x, y)` [m]."""
        return MovingMarker(self.name, motion, angle)


class Body(AbstractMarkerOwner, AbstractBody):
    """A rigid body in the plane.

    **Arguments:** `name`; `mass` `[kg]`; `inertia` `[kg m²]` about the centre of mass; `pose`, an initial guess
    `(x, y, theta)` `[m, m, rad]` of the centre of mass for `assemble`. A `Solid` in place of the mass defines the mass
    and, about its z axis, the inertia; its centre of mass is the body's origin. A point mass has zero inertia and
    requires joint coordinates. So does a massless link between two joints, whose mass and inertia are both zero.

    **Raises:** `MechanismError` if the mass is not positive (nor zero without inertia), the inertia negative, or one of
    them not finite. Inside `jit`, where values are not known, such numbers become NaN, and analyses with them fail.

        >>> crank = pl.Body("crank", mass=0.2, inertia=2e-4)
        >>> crank.at(-0.05, 0).body
        'crank'
    """

    space: ClassVar[AbstractSpace] = PLANAR
    name: str = eqx.field(static=True)
    mass: Scalar = eqx.field(converter=as_float)
    inertia: Scalar = eqx.field(converter=as_float)
    pose: Float[Array, "3"] = eqx.field(converter=as_float)

    def __init__(
        self, name: str, mass: Number | Solid, inertia: Number | None = None, pose: Numbers = (0.0, 0.0, 0.0)
    ) -> None:
        self.name = name
        weight, tensor = mass_properties(f"Body {name!r}", mass, inertia)
        given = as_float(tensor[2, 2] if isinstance(mass, Solid) else tensor)
        self.inertia, self.pose = positive_or_nan(given, given), as_float(pose)
        self.mass = positive_or_nan(weight, given)

    def __check_init__(self) -> None:
        check_name("body", self.name)
        part = f"Body {self.name!r}"
        check_shape(part, "mass", self.mass, ())
        check_shape(part, "inertia", self.inertia, ())
        check_finite(part, "pose", self.pose, (3,))
        check_number(part, "inertia", self.inertia, "kg m²", zero=True)
        massless = is_concrete(self.inertia) and not np.asarray(self.inertia).any()
        check_number(part, "mass", self.mass, "kg", zero=massless)

    @property
    def lacks_inertia(self) -> bool:
        return is_concrete(self.inertia) and not np.all(np.asarray(self.inertia) > 0)


class Ground(AbstractMarkerOwner):
    """The fixed body, whose frame is the world frame. Use the instance `ground`."""

    name: str = eqx.field(default=GROUND, static=True)


ground = Ground()
