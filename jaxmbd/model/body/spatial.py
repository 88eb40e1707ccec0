"""Bodies, the ground and markers in space."""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Number, Numbers, Scalar, as_float, combined, is_concrete
from jaxmbd.checks import check_finite, check_instance, check_number, check_shape, stacked
from jaxmbd.engine import trace_once
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import GROUND, AbstractBody, AbstractMarker, AbstractMovingMarker
from jaxmbd.model.body.checks import check_motion, check_name
from jaxmbd.space import rotation as rot
from jaxmbd.space.shape import Shape, Shapes, as_shapes
from jaxmbd.space.solid import (
    Solid,
    check_inertia,
    inertia_matrix,
    is_definite,
    mass_properties,
    placed,
    positive_or_nan,
)
from jaxmbd.space.space import AbstractSpace
from jaxmbd.space.spatial import SPATIAL, SpatialFrame
from jaxmbd.upstream.equinox_internals import binds_methods_at_once

_IDENTITY = (1.0, 0.0, 0.0, 0.0)


class Marker(AbstractMarker):
    """A frame fixed on a body.

    **Arguments:** `body`, the body's name; `position (3,)` `[m]` and `rotation (4,)` (Euler parameters, scalar first,
    from the marker's axes to the body's), in the body's frame, whose origin is the centre of mass; a marker is there
    by default. Usually made by `body.at(x, y, z, axis=...)`.
    """

    space: ClassVar[AbstractSpace] = SPATIAL
    body: str = eqx.field(static=True)
    position: Float[Array, "3"] = eqx.field(converter=as_float, default=(0.0, 0.0, 0.0))
    rotation: Float[Array, "4"] = eqx.field(converter=as_float, default=_IDENTITY)

    def __check_init__(self) -> None:
        check_instance("Marker: body", self.body, str, "the name of a body (or take body.at(...))")
        check_finite(f"Marker on {self.body!r}", "position", self.position, (3,))
        check_finite(f"Marker on {self.body!r}", "rotation", self.rotation, (4,))
        if isinstance(self.rotation, Array) and is_concrete(self.rotation) and not np.asarray(self.rotation).any():
            raise MechanismError(
                f"Marker on {self.body!r}: the Euler parameters of its rotation are all zero; (1, 0, 0, 0) is no "
                "rotation."
            )

    @property
    def local(self) -> SpatialFrame:
        return SpatialFrame(self.position, rot.matrix(self.rotation))


class MovingMarker(AbstractMovingMarker):
    """A frame that moves relative to its body, or to the ground, as a prescribed function of time.

    **Arguments:** `body`, the body's name; `motion`, a function of time `[s]` (a plain function, or an equinox module
    with parameters) that returns the position `(3,)` `[m]` in the body's frame; `rotation` as for `Marker`, constant.
    Usually made by `body.moving(motion)`.
    """

    space: ClassVar[AbstractSpace] = SPATIAL
    body: str = eqx.field(static=True)
    motion: Function
    rotation: Float[Array, "4"] = eqx.field(converter=as_float)

    def __init__(self, body: str, motion: Function, rotation: Numbers = _IDENTITY) -> None:
        self.body, self.motion, self.rotation = body, motion, as_float(rotation)

    def __check_init__(self) -> None:
        Marker(self.body, np.zeros(3), self.rotation)  # its checks
        check_motion(f"MovingMarker on {self.body!r}", self.motion, 3)

    def at_time(self, t: Scalar) -> Marker:
        return Marker(self.body, self.course(t)[0], self.rotation)


def pose(x: Number = 0.0, y: Number = 0.0, z: Number = 0.0, rotation: Numbers | None = None) -> Float[Array, "7"]:
    """A pose from the position `[m]` of the centre of mass and a rotation (Euler parameters or a matrix).

    >>> print(sp.pose(0.1, 0.0, 0.2, sp.rotation.about("z", np.pi / 2)).round(4))
    [0.1    0.     0.2    0.7071 0.     0.     0.7071]
    """
    euler_parameters = np.asarray(_IDENTITY) if rotation is None else rot.as_rotation(rotation)
    position = _point("A pose", x, y, z, by="pose")
    check_finite("A pose", "position", position, (3,))
    return combined("concatenate", [position, euler_parameters])


def _as_pose(value: object) -> Any:
    """A pose of seven numbers; a position alone is completed by the identity rotation."""
    value = as_float(value)
    if isinstance(value, Array) and value.shape == (3,):
        value = combined("concatenate", [value, np.asarray(_IDENTITY, value.dtype)])
    return value


@binds_methods_at_once
class AbstractMarkerOwner(eqx.Module):
    """A body or the ground, which makes markers."""

    name: eqx.AbstractVar[str]

    def at(
        self,
        x: Number = 0.0,
        y: Number = 0.0,
        z: Number = 0.0,
        *,
        axis: Numbers | str | None = None,
        rotation: Numbers | None = None,
    ) -> Marker:
        """A marker at `(x, y, z)` [m] from the body's centre of mass in body axes, or in the world on the ground.

        **Arguments:** `axis`, the direction of the marker's z axis (a joint's axis): three numbers, or a letter, `"x"`,
        `"-x"`; the marker is then rotated from the body's axes by the smallest angle that aligns z with it. Or
        `rotation`, Euler parameters `(4,)` or a matrix `(3, 3)` from the marker's axes to the body's. The default is
        the body's axes.
        """
        return _marker(self.name, _point(f"Marker on {self.name!r}", x, y, z), axis, rotation)

    def moving(
        self, motion: Function, *, axis: Numbers | str | None = None, rotation: Numbers | None = None
    ) -> MovingMarker:
        """A marker that moves relative to the body or the ground: `motion(t)` is its position `(x, y, z)` [m]; the
        rest as `at`."""
        marker = _marker(self.name, jnp.zeros(3), axis, rotation)
        return MovingMarker(self.name, motion, marker.rotation)


class Body(AbstractMarkerOwner, AbstractBody):
    """A rigid body in space.

    **Arguments:** `name`; `mass` `[kg]`; `inertia` `[kg m²]` about the centre of mass in body axes: a matrix `(3, 3)`
    or the three principal moments; `pose`, an initial guess `(x, y, z, e0, e1, e2, e3)` of the centre of mass (or
    `(x, y, z)` alone) for `assemble`. A `Solid` in place of the mass defines mass and inertia; its centre of mass is
    the body's origin, so that its point `p` is at `p − solid.centre` on the body. A thin rod has no inertia about its
    own axis and a point mass none at all: both require joint coordinates. So does a massless link between two joints,
    whose mass and inertia are all zero. `shape`: what the body looks like, a `Shape` (`spatial.shapes.mesh(...)`,
    `box`, `cylinder`, …) or several, in the body's frame; without it, a solid's own (that of meshes), or symbols.

    **Raises:** `MechanismError` if the mass is not positive (nor zero without inertia), or the inertia is not
    physically possible: it must be symmetric, with no principal moment negative or greater than the sum of the other
    two.

        >>> rod = sp.Body("rod", mass=1.0, inertia=(0.002, 0.08, 0.08), pose=(0.5, 0, 0))
        >>> rod.at(-0.5, axis="y").body
        'rod'
    """

    space: ClassVar[AbstractSpace] = SPATIAL
    name: str = eqx.field(static=True)
    mass: Scalar = eqx.field(converter=as_float)
    inertia: Float[Array, "3 3"] = eqx.field(converter=inertia_matrix)
    pose: Float[Array, "7"] = eqx.field(converter=_as_pose)
    shape: tuple[Shape, ...] = eqx.field(static=True)

    def __init__(
        self,
        name: str,
        mass: Number | Solid,
        inertia: Numbers | None = None,
        pose: Numbers = (0.0, 0.0, 0.0),
        shape: Shapes | None = None,
    ) -> None:
        self.name = name
        own = placed(mass.shape, -mass.centre) if isinstance(mass, Solid) and mass.shape else ()
        self.shape = own if shape is None else as_shapes(f"Body {name!r}: shape", shape)
        weight, tensor = mass_properties(f"Body {name!r}", mass, inertia)
        self.inertia, self.pose = inertia_matrix(tensor), _as_pose(pose)
        self.mass = positive_or_nan(weight, self.inertia)

    def __check_init__(self) -> None:
        check_name("body", self.name)
        part = f"Body {self.name!r}"
        check_shape(part, "mass", self.mass, ())
        check_inertia(part, self.inertia, zero=True)
        massless = is_concrete(self.inertia) and not np.asarray(self.inertia).any()
        check_number(part, "mass", self.mass, "kg", zero=massless)
        if isinstance(self.pose, Array) and self.pose.shape != (7,):
            raise MechanismError(
                f"{part}: pose must have shape (7,), or (3,) without a rotation, got shape {self.pose.shape}. "
                "spatial.pose(x, y, z, rotation) makes one."
            )
        check_finite(part, "pose", self.pose, (7,))
        if isinstance(self.pose, Array) and is_concrete(self.pose) and not np.sum(np.asarray(self.pose)[3:] ** 2) > 0:
            raise MechanismError(f"{part}: the Euler parameters of its pose are all zero; (1, 0, 0, 0) is no rotation.")

    @property
    def lacks_inertia(self) -> bool:
        return is_concrete(self.inertia) and not is_definite(self.inertia)

    def at_world(
        self,
        x: Number = 0.0,
        y: Number = 0.0,
        z: Number = 0.0,
        *,
        axis: Numbers | str | None = None,
        rotation: Numbers | None = None,
    ) -> Marker:
        """A marker on this body at the world point `(x, y, z)` [m] while the body is at its `pose`; `axis` and
        `rotation` are in world axes."""
        in_world = _marker(self.name, _point(f"Marker on {self.name!r}", x, y, z, by="at_world"), axis, rotation)
        return Marker(self.name, *_in_body_axes(self.pose, in_world.position, in_world.rotation))


class Ground(AbstractMarkerOwner):
    """The fixed body, whose frame is the world frame. Use the instance `ground`."""

    name: str = eqx.field(default=GROUND, static=True)

    def at_world(
        self,
        x: Number = 0.0,
        y: Number = 0.0,
        z: Number = 0.0,
        *,
        axis: Numbers | str | None = None,
        rotation: Numbers | None = None,
    ) -> Marker:
        """The same as `at`, since the ground's frame is the world frame."""
        return _marker(self.name, _point("Marker on 'ground'", x, y, z, by="at_world"), axis, rotation)


@trace_once
def _in_body_axes(
    pose: Float[Array, "7"], position: Float[Array, "3"], rotation: Float[Array, "4"]
) -> tuple[Float[Array, "3"], Float[Array, "4"]]:
    """Transform a position and a rotation from the world to the axes of a body at `pose`."""
    to_body = rot.inverse(rot.normalize(pose[3:]))
    return rot.rotate(to_body, position - pose[:3]), rot.multiply(to_body, rotation)


def _point(part: str, *numbers: Number, by: str = "at") -> Array:
    """A point from separate coordinates; a point as one argument, `at((x, y, z))`, raises."""
    return stacked(f"{part}, made by {by}(x, y, z)", **dict(zip("xyz", numbers, strict=True)))


def _marker(body: str, point: Array, axis: Numbers | str | None, rotation: Numbers | None) -> Marker:
    if axis is not None and rotation is not None:
        raise MechanismError(f"Marker on {body!r}: give either axis or rotation, not both.")
    if axis is not None:
        direction = as_float(rot.axis_numbers(f"Marker on {body!r}: axis", axis))
        check_finite(f"Marker on {body!r}", "axis", direction, (3,))
        return Marker(body, point, rot.along(direction))
    return Marker(body, point, _IDENTITY if rotation is None else rot.as_rotation(rotation))


ground = Ground()
