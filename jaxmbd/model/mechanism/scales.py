"""The units of length and time that suit a mechanism, and the scales of its constraint rows, coordinates and speeds.

A threshold in metres, or a sum of metres and radians, treats a watch and a crane differently. Searches, ranks and
closure tolerances therefore use numbers without units: lengths in terms of a unit that suits the mechanism, angles in
radians. The unit is a power of ten, so that it is constant when dimensions change a little: nothing has a derivative
with respect to it, and mechanisms of about a metre are measured in metres.

What takes a second at one metre takes ten at a hundred: under gravity `g` the times of similar motions are in
proportion to `√(L/g)`. Rates, such as that at which constraint violations decay, are therefore numbers per unit of
time, which is one second at one metre on earth.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float, at_rows, frozen, is_concrete
from jaxmbd.model.body.body import GROUND, AbstractMarker, AbstractMovingMarker
from jaxmbd.model.body.flexible import flexible, own_coordinates
from jaxmbd.model.force.force import AbstractForce, Gravity
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.joint.shared import RackAndPinion, Rod
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.named_coordinates import CouplingConstraint, PositionDriverConstraint, SpeedDriverConstraint

_LARGEST = 2.5  # a mechanism is at most so many units long, and at least a tenth of that
_UNITS = 10.0 ** np.arange(-12, 13)  # [m]
_BENT = 1e-3  # the size of own coordinates of flexible bodies, as a share of that of others: its square weighs them
_EARTH = 10.0  # [m/s²], in terms of which gravity is measured
_WEAK = 0.1  # gravity below this share of it (0.25 m/s²) says nothing of the pace of a mechanism
DECAY = 10.0  # violations of constraints decay so many times in a unit of time, where the user does not say otherwise

# A row whose residual has no declared unit: it may be a length or an angle. The stricter of the two scales is used.
_UNKNOWN = 3
_POWERS = {"m": 1, "m/s": 1, "rad": 0, "rad/s": 0, "1": 0, "m²": 2}
_OF_MOTION = {"m": (1, 0), "m/s": (1, -1), "m/s²": (1, -2), "rad/s": (0, -1), "rad/s²": (0, -2), "s": (0, 1)}
_UNIT_OF_RESIDUAL = {"F": "m", "M": "rad", "T": "m²"}  # by the load that the row's multiplier stands for


def row_units(mechanism: Mechanism, sizes: Sequence[int] | None = None) -> tuple[str, ...]:
    """Return the unit of the residual of each constraint row, "" where it is not known.

    `sizes`: `mechanism.constraint_sizes()`, if they are known already.
    """
    units: list[str] = []
    sizes = mechanism.constraint_sizes() if sizes is None else sizes
    for part, size in zip(mechanism.constraints(), sizes, strict=True):
        own = _part_units(mechanism, part)
        units += own if len(own) == size else [""] * size
    return tuple(units)


def _part_units(mechanism: Mechanism, part: object) -> list[str]:
    if isinstance(part, PositionDriverConstraint | SpeedDriverConstraint):
        return [part.coordinate.unit(mechanism.space)]
    if isinstance(part, CouplingConstraint):
        return [part.coordinates[-1].unit(mechanism.space)]
    if not isinstance(part, AbstractJoint):
        return []
    loads = part.plane_loads if mechanism.space.dim == 2 and part.plane_loads else part.loads
    return [_UNIT_OF_RESIDUAL.get(load.removeprefix("-")[0], "") for load in loads]


class Scales(eqx.Module):
    """The units of length `[m]` and time `[s]` of a mechanism, and what they make of rows, coordinates and speeds.

    A residual, coordinate or speed divided by its scale is a number without a unit of length, which does not depend on
    the size of the mechanism. Only `rates` have no unit of time either.
    """

    length: Scalar
    time: Scalar
    row_powers: tuple[int, ...] = eqx.field(static=True)
    coordinate_powers: tuple[int, ...] = eqx.field(static=True)
    own_coordinates: tuple[int, ...] = eqx.field(static=True)  # places of those of flexible bodies in `q`
    speed_powers: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, mechanism: Mechanism, sizes: Sequence[int] | None = None) -> None:
        self.length = as_float(unit_of_length(mechanism))
        self.time = as_float(unit_of_time(mechanism, self.length))
        self.row_powers = _powers_of(row_units(mechanism, sizes))
        self.coordinate_powers = _powers_of(mechanism.coordinate_units)
        names = mechanism.coordinate_names
        self.own_coordinates = tuple(names.index(name) for name in own_coordinates(mechanism.bodies))
        self.speed_powers = tuple(_POWERS.get(unit, 0) for unit in mechanism.speed_units)

    @property
    def rows(self) -> Float[Array | np.ndarray, " m"]:
        """The scale of each constraint row."""
        return self._of(self.row_powers)

    @property
    def coordinates(self) -> Float[Array | np.ndarray, " nq"]:
        """The scale of each coordinate; that of a flexible body's own one is a small share of it.

        So searches for closed positions bend a body only where nothing else closes the joints.
        """
        scales = self._of(self.coordinate_powers)
        if not self.own_coordinates:
            return scales
        shares = np.ones(len(self.coordinate_powers), scales.dtype)
        shares[list(self.own_coordinates)] = _BENT
        return scales * shares

    @property
    def speeds(self) -> Float[Array | np.ndarray, " nv"]:
        """The scale of each speed; one for speeds of a user's choice."""
        return self._of(self.speed_powers)

    @property
    def decay(self) -> Scalar:
        """The rate `[1/s]` at which violations of constraints decay where the user does not say otherwise."""
        return DECAY / self.time

    @property
    def rates(self) -> Float[Array | np.ndarray, " nv"]:
        """The scale of each speed over a unit of time: speeds divided by it have no unit at all."""
        return self.speeds / self.time

    def quantity(self, unit: str) -> Any:
        """The scale of a quantity of the motion, without units of length and time; one where it is not known."""
        of_length, of_time = _OF_MOTION.get(unit, (0, 0))
        return self.length**of_length * self.time**of_time

    def of(self, *units: str) -> Float[Array | np.ndarray, " k"]:
        """The scales of quantities with these units."""
        return self._of(_powers_of(units))

    def jacobian(self, C: Float[Array, "m nv"]) -> Float[Array, "m nv"]:
        """`C` without units: scaled speeds to scaled residuals. Ranks and singular values are those of this matrix."""
        return C * self.speeds[None] / self.rows[:, None]

    def _of(self, powers: tuple[int, ...]) -> Array | np.ndarray:
        lib = np if is_concrete(self.length) else jnp  # NumPy compiles nothing, and traces nothing under `jit`
        length = lib.asarray(self.length)
        one = lib.ones_like(length)
        values: Any = lib.stack([one, length, length**2, lib.minimum(length, one)])
        return at_rows(values, np.asarray(powers, dtype=int)) if lib is jnp else values[np.asarray(powers, dtype=int)]


def _powers_of(units: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(_POWERS.get(unit, _UNKNOWN) for unit in units)


def unit_of_length(mechanism: Mechanism) -> Scalar | np.floating | np.ndarray:
    """Return the power of ten [m] in terms of which a mechanism has a size between 0.25 and 2.5; traceable.

    It is one metre for a mechanism without any length: a single body, all of whose markers are at its centre.
    """
    size = size_of(mechanism)
    lib = np if is_concrete(size) else jnp
    return lib.where(size > 0, _power_of_ten(size), 1.0).astype(size.dtype)


def unit_of_time(mechanism: Mechanism, length: Scalar | np.floating | np.ndarray) -> Any:
    """Return the unit of time [s] that goes with a unit of `length`: `√(length/g)`, one second at one metre on earth.

    `g` is the acceleration of gravity to a power of ten. Without gravity it is one second: stiffness, speeds and
    drivers would say how fast a mechanism moves, but each of them may also be without effect, or change.
    """
    fields = [_value(part.acceleration) for part in mechanism.forces if isinstance(part, Gravity)]
    if not fields:
        return np.ones((), length.dtype)
    lib = np if is_concrete(length, fields) else jnp
    strength = lib.sqrt(sum(lib.sum(lib.asarray(field) ** 2) for field in fields)) / _EARTH
    unit = _power_of_ten(strength)
    weak = unit < 0.99 * _WEAK  # powers of ten are rounded
    return lib.where(weak, 1.0, lib.sqrt(lib.asarray(length) / unit)).astype(length.dtype)


def _power_of_ten(size: Any) -> Any:
    """Return the power of ten in terms of which a number lies between 0.25 and 2.5."""
    lib = np if is_concrete(size) else jnp
    units = _UNITS.astype(size.dtype)
    return lib.min(lib.where(size <= _LARGEST * units, units, units[-1]))


def size_of(mechanism: Mechanism) -> Scalar | np.floating | np.ndarray:
    """Return the size of a mechanism [m], zero if it has none.

    It is the largest of the extents of the joints' markers on each body and on the ground, of the extent of the bodies'
    positions, of the sizes of flexible bodies, and of the lengths of rods and radii of pinions; only if all of these
    are zero, of the extents of the forces' markers.
    """
    joints = [joint for joint in mechanism.joints if isinstance(joint, AbstractJoint)]
    forces = [force for force in mechanism.forces if isinstance(force, AbstractForce)]
    lengths = [joint.length for joint in joints if isinstance(joint, Rod)]
    lengths += [body.size for body in flexible(mechanism.bodies).values()]
    lengths += [part.radius for part in mechanism.joints if isinstance(part, RackAndPinion)]
    lengths = [_value(length) for length in lengths]
    centres = [_value(body.pose)[: mechanism.space.dim] for body in mechanism.bodies]
    joined, others = ([*_points_on(mechanism, parts).values()] for parts in (joints, forces))
    lib = np if is_concrete(lengths, centres, joined, others) else jnp
    extents = [lib.abs(length) for length in lengths] + [_extent(points, lib) for points in (*joined, centres)]
    size = lib.max(lib.stack(extents))
    return lib.where(size > 0, size, lib.max(lib.stack([_extent(points, lib) for points in others])))


def _value(number: object) -> Any:
    """Return a number as an array of NumPy, which is much faster here than JAX; in a trace without its derivative."""
    value = frozen(number) if isinstance(number, jax.core.Tracer) else number
    return value if isinstance(value, jax.core.Tracer) else np.asarray(value)


def _points_on(mechanism: Mechanism, parts: list[Any]) -> Mapping[str, list[Any]]:
    """Return the positions of the fixed markers on each body, with its centre, and on the ground."""
    points: dict[str, list[Any]] = {body.name: [np.zeros(mechanism.space.dim)] for body in mechanism.bodies}
    for part in parts:
        for marker in part.markers:
            if _is_fixed(marker):
                points.setdefault(marker.body, []).append(_value(marker.position))
    return points


def _is_fixed(marker: AbstractMarker) -> bool:
    return not isinstance(marker, AbstractMovingMarker)


def _extent(points: list[Any], lib: Any) -> Any:
    every = lib.stack(points)
    return lib.sqrt(lib.sum((lib.max(every, axis=0) - lib.min(every, axis=0)) ** 2))


def ground_centre(mechanism: Mechanism) -> Float[np.ndarray, " dim"]:
    """Return the centre of the ground's markers, or of the bodies where the ground has none."""
    on_ground = [
        np.asarray(marker.position)
        for joint in mechanism.with_reactions().values()
        for marker in joint.markers
        if marker.body == GROUND
    ]
    centres = [np.asarray(body.pose)[: mechanism.space.dim] for body in mechanism.bodies]
    return np.stack(on_ground or centres).mean(axis=0)
