"""Mass properties of solids: mass, centre of mass and inertia of simple shapes, translated, rotated and added."""

from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Number, Scalar, as_float, combined, is_concrete
from jaxmbd.engine import trace_once
from jaxmbd.errors import MechanismError, shown
from jaxmbd.space import rotation as rotations
from jaxmbd.space.shape import Shape
from jaxmbd.upstream.equinox_internals import is_placeholder

_UNITS = {"density": "kg/m³", "mass": "kg"}


def inertia_matrix(value: object) -> Any:
    """The inertia matrix `(3, 3)` [kg m²] from principal moments `(3,)` or a matrix `(3, 3)`.

    Placeholders of tree maps are returned unchanged, as in `as_float`.

    **Raises:** `MechanismError` for any other shape.
    """
    value = as_float(value)
    if not isinstance(value, Array):
        return value
    if value.shape not in ((3,), (3, 3)):
        raise MechanismError(
            f"An inertia must be three principal moments or a matrix of shape (3, 3) [kg m²], got shape {value.shape}."
        )
    matrix = combined("diag", value) if value.ndim == 1 else value
    return matrix if is_concrete(matrix) else possible_or_nan(matrix)


@trace_once
def possible_or_nan(inertia: Float[Array, "3 3"]) -> Float[Array, "3 3"]:
    """Return a traced inertia if some body has it, else NaN, with which every analysis fails: the rule of
    `check_inertia`, for values that are not known.

    The second moments of mass `½ tr(J) 1 − J` must be positive semidefinite, to its tolerance: the pivots of their
    elimination, with that tolerance on the diagonal, are positive.
    """
    J = jax.lax.stop_gradient(inertia)
    tolerance = max(1e-9, 100 * float(jnp.finfo(J.dtype).eps) * (J.dtype.itemsize < 8))
    half = jnp.trace(J) / 2
    S = (half + tolerance * half / 2) * jnp.eye(3, dtype=J.dtype) - (J + J.T) / 2
    first = S[0, 0]
    second = S[1, 1] - S[0, 1] ** 2 / first
    across = S[1, 2] - S[0, 1] * S[0, 2] / first
    third = S[2, 2] - S[0, 2] ** 2 / first - across**2 / second
    is_symmetric = jnp.max(jnp.abs(J - J.T)) <= tolerance * jnp.max(jnp.abs(J))
    is_possible = is_symmetric & (((first > 0) & (second > 0) & (third > 0)) | jnp.all(J == 0))
    return jnp.where(is_possible, inertia, jnp.nan)


def positive_or_nan(number: object, massless: object = None) -> Any:
    """Return a number as an array; a traced one as NaN if it is not positive. Zero is allowed where the inertia
    `massless` is zero as well; an inertia that may be zero is its own."""
    number = as_float(number)
    if not isinstance(number, Array) or is_concrete(number) or not jnp.issubdtype(number.dtype, jnp.floating):
        return number
    is_zero = False if not isinstance(massless, Array) else (number == 0) & jnp.all(massless == 0)
    return jnp.where((number > 0) | is_zero, number, jnp.nan)


def check_inertia(part: str, inertia: object, *, zero: bool = False) -> None:
    """Raise unless a concrete matrix `(3, 3)` [kg m²] can be the inertia of a body about its centre of mass.

    It must be symmetric and positive definite (with `zero`, semidefinite: points and lines), and no principal moment
    may exceed the sum of the other two, `J1 = Σ m (y² + z²) ≤ J2 + J3`. Tolerances are 1e-9 of the largest moment, or
    100 units of rounding in single precision.
    """
    if is_placeholder(inertia):
        return
    if not isinstance(inertia, Array | np.ndarray):
        raise MechanismError(
            f"{part}: inertia must be three principal moments or a matrix of shape (3, 3) [kg m²], got "
            f"{shown(inertia)}."
        )
    if np.issubdtype(inertia.dtype, np.complexfloating):
        raise MechanismError(f"{part}: inertia must be real [kg m²], got {inertia.dtype}.")
    if inertia.shape != (3, 3):
        raise MechanismError(f"{part}: inertia must have shape (3, 3) [kg m²], got shape {inertia.shape}.")
    if not is_concrete(inertia):
        return
    J = np.asarray(inertia, dtype=float)
    if not np.isfinite(J).all():
        raise MechanismError(f"{part}: inertia must be finite [kg m²], got {J.tolist()}.")
    moments = np.linalg.eigvalsh((J + J.T) / 2)
    single = inertia.dtype.itemsize < 8 and jnp.issubdtype(inertia.dtype, jnp.floating)
    tolerance = 100 * float(jnp.finfo(inertia.dtype).eps) if single else 1e-9
    listed = ", ".join(f"{moment:.6g}" for moment in moments)
    _check_symmetric(part, J, tolerance, listed)
    low, middle, high = moments
    if low < -tolerance * high if zero else low <= _LEAST_MOMENT * high:
        need = "not have a negative principal moment" if zero else "be positive definite"
        raise MechanismError(f"{part}: inertia must {need} [kg m²], got principal moments {listed}.")
    if high > (low + middle) + tolerance * high:
        raise MechanismError(
            f"{part}: no mass distribution has the inertia with principal moments {listed} [kg m²]: the largest, "
            f"{high:.6g}, must not exceed the sum of the other two, {low + middle:.6g}. "
            "Give moments about the centre of mass."
        )


# The moments of a long thin rod may differ by a factor of 1e9, so only rounding of the eigenvalues is excluded.
_LEAST_MOMENT = 1e-14  # of the largest principal moment


def is_definite(inertia: Array) -> bool:
    """True if a concrete inertia has three positive principal moments."""
    J = np.asarray(inertia, dtype=float)
    moments = np.linalg.eigvalsh((J + J.T) / 2)
    return bool(moments[0] > _LEAST_MOMENT * moments[2])


def _check_symmetric(part: str, J: np.ndarray, tolerance: float, listed: str) -> None:
    """Raise unless the matrix is symmetric, naming the pair of entries that differ most."""
    skew = np.abs(J - J.T)
    if skew.max() > tolerance * np.abs(J).max():
        i, j = sorted(int(n) for n in np.unravel_index(skew.argmax(), skew.shape))
        raise MechanismError(
            f"{part}: inertia must be symmetric [kg m²], got {J[i, j]:.6g} in row {i + 1}, column {j + 1} but "
            f"{J[j, i]:.6g} in row {j + 1}, column {i + 1} (principal moments of the symmetric part: {listed})."
        )


class Solid(eqx.Module):
    """The mass properties of a solid, in a frame of its own.

    **Arguments:** `mass` `[kg]`; `inertia` `[kg m²]` about the centre of mass, in the solid's axes: a matrix `(3, 3)`
    or three principal moments; `centre` `[m]`, the centre of mass in the solid's frame; `shape`, what it looks like:
    that of meshes.

    `a + b` is the union of two solids defined in the same frame.

    **Raises:** `MechanismError` if the mass is not positive, or the inertia is not physically possible. Inside `jit`,
    where values are not known, such numbers become NaN.

        >>> hammer = sp.cylinder(700, radius=0.01, length=0.3) + sp.box(7800, 0.1, 0.03, 0.03).translated(z=0.15)
        >>> print(f"{hammer.mass:.3f} kg, centre {hammer.centre.round(4)} m")
        0.768 kg, centre [0.     0.     0.1371] m
    """

    mass: Scalar = eqx.field(converter=positive_or_nan)
    inertia: Float[Array, "3 3"] = eqx.field(converter=inertia_matrix)
    centre: Float[Array, "3"] = eqx.field(converter=as_float, default=(0.0, 0.0, 0.0))
    shape: tuple[Shape, ...] = eqx.field(static=True, default=())

    def __check_init__(self) -> None:
        _positive("Solid", mass=self.mass)
        check_inertia("Solid", self.inertia, zero=True)
        if not isinstance(self.centre, Array):
            return
        if self.centre.shape != (3,):
            raise MechanismError(f"Solid: centre must have shape (3,) [m], got shape {self.centre.shape}.")
        if is_concrete(self.centre) and not np.isfinite(np.asarray(self.centre)).all():
            raise MechanismError(f"Solid: centre must be finite [m], got {np.asarray(self.centre)}.")

    def translated(self, x: Number = 0.0, y: Number = 0.0, z: Number = 0.0) -> "Solid":
        """The solid translated by `(x, y, z)` [m] in its frame."""
        offset = combined(
            "stack", [_number("translated(x, y, z)", name, n, "m") for name, n in zip("xyz", (x, y, z), strict=True)]
        )
        return Solid(
            self.mass, self.inertia, self.centre + offset.astype(self.centre.dtype), placed(self.shape, offset)
        )

    def rotated(self, rotation: object) -> "Solid":
        """The solid rotated about the origin of its frame: `c → R c`, `J → R J Rᵀ`.

        **Arguments:** `rotation`, Euler parameters `(4,)` from `jaxmbd.spatial.rotation`, or a rotation matrix `(3,
        3)`.
        """
        e = rotations.as_rotation(rotation).astype(self.inertia.dtype)
        return Solid(self.mass, *_rotated(e, self.inertia, self.centre), placed(self.shape, np.zeros(3), e))

    def __add__(self, other: "Solid") -> "Solid":
        """Both solids as one, `J = J_a + J_b + μ (|d|² I − d dᵀ)`, `μ = m_a m_b / (m_a + m_b)`, `d = c_b − c_a`."""
        if not isinstance(other, Solid):
            return NotImplemented
        united = _united(*((solid.mass, solid.inertia, solid.centre) for solid in (self, other)))
        return Solid(*united, (*self.shape, *other.shape))


def placed(shapes: tuple[Shape, ...], position: Any, rotation: Any = (1.0, 0.0, 0.0, 0.0)) -> tuple[Shape, ...]:
    """Shapes with their frame at another position [m] and rotation; none where these are not known."""
    if not is_concrete(position, rotation) or is_placeholder(position):
        return ()
    return tuple(shape.placed(position, rotation) for shape in shapes)


_Properties: TypeAlias = tuple[Scalar, Float[Array, "3 3"], Float[Array, "3"]]


@trace_once
def _rotated(e: Array, inertia: Array, centre: Array) -> tuple[Array, Array]:
    R = rotations.matrix(e)
    J = jnp.einsum("ij,jk,lk->il", R, inertia, R, precision="highest")
    return (J + J.T) / 2, rotations.rotate(e, centre)


@trace_once
def _united(a: _Properties, b: _Properties) -> _Properties:
    (m_a, J_a, c_a), (m_b, J_b, c_b) = a, b
    mass, d = m_a + m_b, c_b - c_a
    steiner = jnp.sum(d * d) * jnp.eye(3, dtype=d.dtype) - jnp.outer(d, d)
    return mass, J_a + J_b + m_a * m_b / mass * steiner, c_a + m_b / mass * d


def mass_properties(part: str, mass: object, inertia: object) -> tuple[Any, Any]:
    """The mass and inertia of a body, from both values or from a solid in place of the mass."""
    if isinstance(mass, Solid):
        if inertia is not None:
            raise MechanismError(f"{part}: the solid gives the inertia; leave inertia out, and give a pose by pose=...")
        return mass.mass, mass.inertia
    if inertia is None:
        raise MechanismError(
            f"{part}: inertia [kg m²] is missing. Give it, or a solid that has mass and inertia both, such as "
            "Body(name, box(density, x, y, z))."
        )
    return mass, inertia


def box(density: Number, x: Number, y: Number, z: Number) -> Solid:
    """A box with edges `x`, `y`, `z` [m] along the axes, centred at the origin; `density` [kg/m³].

    >>> print(f"{sp.box(7800, x=0.1, y=0.02, z=0.01).mass:.3f} kg")
    0.156 kg
    """
    density, x, y, z = _positive("box", density=density, x=x, y=y, z=z)
    return _centred(*_box(density, x, y, z))


def cylinder(density: Number, radius: Number, length: Number) -> Solid:
    """A cylinder along z of `radius` and `length` [m], centred at the origin; `density` [kg/m³].

    >>> print(f"{sp.cylinder(7800, radius=0.01, length=0.2).mass:.3f} kg")
    0.490 kg
    """
    density, radius, length = _positive("cylinder", density=density, radius=radius, length=length)
    return _centred(*_tube(density, radius, jnp.zeros_like(radius), length))


def tube(density: Number, outer: Number, inner: Number, length: Number) -> Solid:
    """A tube along z with radii `outer` and `inner` and `length` [m], centred at the origin; `density` [kg/m³].

    >>> print(f"{sp.tube(2700, outer=0.02, inner=0.018, length=0.5).mass:.4f} kg")
    0.3223 kg
    """
    density, outer, inner, length = _positive("tube", density=density, outer=outer, inner=inner, length=length)
    if is_concrete(outer, inner) and float(inner) >= float(outer):
        raise MechanismError(
            f"tube: the inner radius must be less than the outer [m], got inner {float(inner):g}, outer "
            f"{float(outer):g}."
        )
    return _centred(*_tube(density, outer, inner, length))


def disc(density: Number, radius: Number, thickness: Number) -> Solid:
    """A disc of `radius` and `thickness` [m], its axis along z, centred at the origin; `density` [kg/m³].

    >>> print(f"{sp.disc(7800, radius=0.1, thickness=0.01).inertia[2, 2]:.5f} kg m²")
    0.01225 kg m²
    """
    density, radius, thickness = _positive("disc", density=density, radius=radius, thickness=thickness)
    return cylinder(density, radius, thickness)


def rod(density: Number, length: Number, radius: Number) -> Solid:
    """A round rod along x of `length` and `radius` [m], centred at the origin; `density` [kg/m³].

    >>> print(f"{sp.rod(7800, length=0.6, radius=0.01).inertia[1, 1]:.4f} kg m²")
    0.0441 kg m²
    """
    density, length, radius = _positive("rod", density=density, length=length, radius=radius)
    mass, moments = _tube(density, radius, jnp.zeros_like(radius), length)
    return _centred(mass, moments[::-1])


def sphere(density: Number, radius: Number) -> Solid:
    """A ball of `radius` [m], centred at the origin; `density` [kg/m³].

    >>> print(f"{sp.sphere(7800, radius=0.02).mass:.4f} kg")
    0.2614 kg
    """
    density, radius = _positive("sphere", density=density, radius=radius)
    return _centred(*_ball(density, radius))


def point(mass: Number) -> Solid:
    """A point mass [kg] at the origin, with zero inertia: to be added to a solid.

    >>> bob = sp.point(0.5).translated(z=-0.2)
    """
    (mass,) = _positive("point", mass=mass)
    return _centred(mass, jnp.zeros(3, dtype=mass.dtype))


def _centred(mass: Scalar, moments: Float[Array, "3"]) -> Solid:
    """A solid with its centre of mass at the origin and its principal axes along the frame's axes."""
    return Solid(mass, moments, np.zeros(3, moments.dtype))


# Mass [kg] and principal moments [kg m²] of basic shapes.


@trace_once
def _box(density: Scalar, x: Scalar, y: Scalar, z: Scalar) -> tuple[Scalar, Float[Array, "3"]]:
    mass = density * x * y * z
    return mass, mass / 12 * jnp.stack([y * y + z * z, x * x + z * z, x * x + y * y])


@trace_once
def _tube(density: Scalar, outer: Scalar, inner: Scalar, length: Scalar) -> tuple[Scalar, Float[Array, "3"]]:
    # A difference of squares as a product keeps the digits of thin walls.
    mass = jnp.pi * density * (outer - inner) * (outer + inner) * length
    squares = outer**2 + inner**2
    across = mass * (3 * squares + length**2) / 12
    return mass, jnp.stack([across, across, mass * squares / 2])


@trace_once
def _ball(density: Scalar, radius: Scalar) -> tuple[Scalar, Float[Array, "3"]]:
    mass = 4 / 3 * jnp.pi * density * radius**3
    return mass, jnp.stack([2 / 5 * mass * radius**2] * 3)


def _number(part: str, name: str, value: object, unit: str) -> Any:
    """`value` as a float array (placeholders of tree maps unchanged); raise unless it is a scalar."""
    array = as_float(value)
    is_array = isinstance(array, Array)
    is_complex = isinstance(value, complex) or (is_array and np.issubdtype(array.dtype, np.complexfloating))
    if is_complex or not (is_array or is_placeholder(array)):
        raise MechanismError(f"{part}: {name} must be a {'real ' * is_complex}number [{unit}], got {shown(value)}.")
    if is_array and array.shape != ():
        raise MechanismError(f"{part}: {name} must be a number [{unit}], got shape {array.shape}.")
    return array


def _positive(part: str, **numbers: object) -> list[Array]:
    """The numbers as arrays; raise unless each is a scalar and, if concrete, positive and finite."""
    arrays = []
    for name, value in numbers.items():
        unit = _UNITS.get(name, "m")
        array = _number(part, name, value, unit)
        if not isinstance(array, Array):
            continue
        if is_concrete(array) and not 0 < float(array) < np.inf:
            raise MechanismError(f"{part}: {name} must be positive [{unit}] and finite, got {float(array):g}.")
        arrays.append(array)
    return arrays
