"""Rotations in space as Euler parameters.

The Euler parameters (unit quaternion) `e = (e0, e1, e2, e3)`, scalar first, of a turn by `φ` about the unit vector
`u` are `e0 = cos(φ/2)`, `(e1, e2, e3) = sin(φ/2) u`. They map body to world axes, `r_W = R(e) r_B`; `e` and `−e` are
the same rotation. The parameters are homogeneous: any nonzero multiple of `e` is the same rotation.

Every function takes arrays or Python numbers, keeps the dtype of arrays, works under `jit` and `vmap` (one rotation per
call), and has finite derivatives, forward and reverse, also at the identity.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Number, Scalar, as_float, is_concrete
from jaxmbd.engine import trace_once
from jaxmbd.errors import MechanismError, is_one_of
from jaxmbd.space.vectors import cross, direction, safe_norm, skew

Quaternion: TypeAlias = Float[Array, "4"]
Vector: TypeAlias = Float[Array, "3"]
Matrix: TypeAlias = Float[Array, "3 3"]
Numbers: TypeAlias = Sequence[Number] | np.ndarray | Array

_LETTERS = "xyz"
_SEQUENCES = tuple(a + b + c for a, b, c in itertools.product(_LETTERS, repeat=3) if b not in (a, c))


def identity() -> Quaternion:
    """The identity rotation, `(1, 0, 0, 0)`.

    >>> print(sp.rotation.identity())
    [1. 0. 0. 0.]
    """
    return as_float((1.0, 0.0, 0.0, 0.0))


def multiply(a: Numbers, b: Numbers) -> Quaternion:
    """The rotation `b` followed by `a`, both about fixed axes: `R(multiply(a, b)) = R(a) R(b)` (Hamilton product).

    >>> quarter = sp.rotation.about("z", np.pi / 2)
    >>> print(sp.rotation.vector(sp.rotation.multiply(quarter, quarter)).round(4))
    [0.     0.     3.1416]
    """
    return _product(*_floats("multiply", a=(a, (4,)), b=(b, (4,))))


@trace_once
def _product(a: Quaternion, b: Quaternion) -> Quaternion:
    u, v = a[1:], b[1:]
    scalar = a[:1] * b[:1] - jnp.sum(u * v, keepdims=True)
    return jnp.concatenate([scalar, a[:1] * v + b[:1] * u + cross(u, v)])


def inverse(e: Numbers) -> Quaternion:
    """The inverse rotation, `(e0, −e1, −e2, −e3) / |e|²`.

    >>> print(sp.rotation.inverse(sp.rotation.about("x", 0.2)).round(4))
    [ 0.995  -0.0998 -0.     -0.    ]
    """
    return _inverse(*_floats("inverse", e=(e, (4,))))


@trace_once
def _inverse(e: Quaternion) -> Quaternion:
    return jnp.concatenate([e[:1], -e[1:]]) / jnp.sum(e * e)


def normalize(e: Numbers) -> Quaternion:
    """The same rotation with `|e| = 1`.

    >>> print(sp.rotation.normalize((3.0, 0.0, 0.0, 4.0)))
    [0.6 0.  0.  0.8]
    """
    return _normalized(*_floats("normalize", e=(e, (4,))))


@trace_once
def _normalized(e: Quaternion) -> Quaternion:
    return e / jnp.sqrt(jnp.sum(e * e))


def matrix(e: Numbers) -> Matrix:
    """The rotation matrix, body to world, `R = I + 2 (e0 ṽ + ṽ ṽ) / |e|²` with `v = (e1, e2, e3)`, `ṽ r = v × r`.

    >>> print(sp.rotation.matrix(sp.rotation.about("z", 0.1)).round(4))
    [[ 0.995  -0.0998  0.    ]
     [ 0.0998  0.995   0.    ]
     [ 0.      0.      1.    ]]
    """
    return _matrix(*_floats("matrix", e=(e, (4,))))


@trace_once
def _matrix(e: Quaternion) -> Matrix:
    w, v, unit = e[:1], e[1:], np.eye(3, dtype=e.dtype)
    # Vector operations instead of scalar ones: far fewer operations for the compiler where a law is differentiated.
    symmetric = v[:, None] * v[None, :] - jnp.sum(v * v) * unit
    return (2 / jnp.sum(e * e)) * (symmetric + skew(w * v)) + unit


def rotate(e: Numbers, r: Numbers) -> Vector:
    """The vector `R(e) r`, `r` in body axes, the result in world axes, without forming the matrix.

    >>> print(sp.rotation.rotate(sp.rotation.about("z", np.pi / 6), (1.0, 0.0, 0.0)).round(4))
    [0.866 0.5   0.   ]
    """
    return _rotated(*_floats("rotate", e=(e, (4,)), r=(r, (3,))))


@trace_once
def _rotated(e: Quaternion, r: Vector) -> Vector:
    v = e[1:]
    return r + 2 * cross(v, cross(v, r) + e[0] * r) / jnp.sum(e * e)


def from_matrix(R: object) -> Quaternion:
    """The rotation of an orthogonal matrix, with `e0 ≥ 0`.

    `4 e eᵀ` is linear in `R`; the result is its row with the largest diagonal entry (at least 1), normalised.

    **Raises:** `MechanismError` if a concrete matrix is not orthogonal with determinant +1 (to 1e-6).

        >>> print(sp.rotation.from_matrix([[0, -1, 0], [1, 0, 0], [0, 0, 1]]).round(4))
        [0.7071 0.     0.     0.7071]
    """
    (R,) = _floats("from_matrix", R=(R, (3, 3)))
    if is_concrete(R):
        _check_rotation(np.asarray(R))
    return _of_matrix(R)


@trace_once
def _of_matrix(R: Matrix) -> Quaternion:
    skew = jnp.stack([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    trace = jnp.trace(R)
    lower = R + R.T + (1 - trace) * np.eye(3, dtype=R.dtype)
    products = jnp.block([[(1 + trace)[None, None], skew[None]], [skew[:, None], lower]])
    # By comparisons: an index that depends on values is no arithmetic, and a mechanism with a bushing were no program.
    row, largest = products[0], products[0, 0]
    for k in (1, 2, 3):
        row = jnp.where(products[k, k] > largest, products[k], row)
        largest = jnp.maximum(largest, products[k, k])
    return _with_nonnegative_scalar(normalize(row))


def about(axis: str | Numbers, angle: Number) -> Quaternion:
    """The rotation by `angle` [rad] about `axis`: a direction of any length, or `"x"`, `"-x"`, `"y"`, …

    >>> print(sp.rotation.about("-y", 0.2).round(4))
    [ 0.995   0.     -0.0998  0.    ]
    """
    axis, angle = _floats("about", axis=(axis_numbers("rotation.about: axis", axis), (3,)), angle=(angle, ()))
    _check_direction("about", "axis", axis)
    return _about(axis, angle)


@trace_once
def _about(axis: Vector, angle: Scalar) -> Quaternion:
    return jnp.concatenate([jnp.cos(angle / 2)[None], jnp.sin(angle / 2) * direction(axis)])


def vector(e: Numbers) -> Vector:
    """The rotation vector `φ u` [rad], angle times axis, with `0 ≤ φ ≤ π` (the logarithm of the rotation).

    With `y = v / (e0 + |e|) = tan(φ/4) u` it is `4 y arctan(|y|) / |y|`, smooth at `φ = 0`. At `φ = π` it jumps
    to the opposite vector.

        >>> print(sp.rotation.vector(sp.rotation.about("x", 0.2)).round(4))
        [0.2 0.  0. ]
    """
    return _vector(*_floats("vector", e=(e, (4,))))


@trace_once
def _vector(e: Quaternion) -> Vector:
    e = _with_nonnegative_scalar(e)
    y = e[1:] / (e[0] + jnp.sqrt(jnp.sum(e * e)))
    return 4 * _arctan_ratio(jnp.sum(y * y)) * y


def from_vector(theta: Numbers) -> Quaternion:
    """The rotation by `|theta|` [rad] about `theta` (the exponential map), smooth at zero.

    >>> print(sp.rotation.from_vector((0.2, 0.0, 0.0)).round(4))
    [0.995  0.0998 0.     0.    ]
    """
    return _of_vector(*_floats("from_vector", theta=(theta, (3,))))


@trace_once
def _of_vector(theta: Vector) -> Quaternion:
    half = theta / 2
    cosine, sine_ratio = _cos_and_sine_ratio(jnp.sum(half * half))
    return jnp.concatenate([cosine[None], sine_ratio * half])


def from_angles(angles: Numbers, sequence: str) -> Quaternion:
    """The rotation `R = R1(a1) R2(a2) R3(a3)`: successive rotations about body-fixed axes.

    **Arguments:** `angles`, `(a1, a2, a3)` [rad]; `sequence`, three letters: `"zxz"` (Euler angles), `"xyz"`
    (Cardan or Bryan angles), `"zyx"` (yaw, pitch, roll), or any other without two equal neighbours.

    **Raises:** `MechanismError` if the sequence is not one of the twelve.

        >>> print(sp.rotation.from_angles((0.3, 0.2, 0.1), "zyx").round(4))  # yaw, pitch, roll [rad]
        [0.9833 0.0343 0.106  0.1436]
    """
    axes = _axes("from_angles", sequence)
    return _of_angles(*_floats("from_angles", angles=(angles, (3,))), axes)


@trace_once
def _of_angles(angles: Vector, axes: tuple[int, int, int]) -> Quaternion:
    cosines, sines = jnp.cos(angles / 2), jnp.sin(angles / 2)
    parts = jnp.eye(4, dtype=angles.dtype)
    first, second, third = (cosines[n] * parts[0] + sines[n] * parts[axis + 1] for n, axis in enumerate(axes))
    return multiply(multiply(first, second), third)


def angles(e: Numbers, sequence: str) -> Vector:
    """The angles `(a1, a2, a3)` [rad] with `R(e) = R1(a1) R2(a2) R3(a3)`; sequences as in `from_angles`.

    `a1` and `a3` are in `[−π, π]`; `a2` is in `[0, π]` if the first and third axis are the same letter, else in
    `[−π/2, π/2]`.

    **Gimbal lock:** if `a2` is at either end of its range, the first and third axis are parallel and only `a1 + a3` or
    `a1 − a3` is determined. Then `a3 = 0` and `a1` is the whole rotation, so that the angles still give the rotation.
    The derivatives there are those at constant `a2` and `a3`: finite, though the true ones do not exist. Nearby, those
    of `a1` and `a3` grow in inverse proportion to the distance of `a2` from the end. The identity is a gimbal lock for
    `"zxz"` and other sequences with equal first and last letter: use three different letters for motions around it.

    **Raises:** `MechanismError` if the sequence is not one of the twelve.

        >>> print(sp.rotation.angles(sp.rotation.about("y", 0.2), "zyx").round(4))
        [0.  0.2 0. ]
    """
    i, j, k = _axes("angles", sequence)
    (e,) = _floats("angles", e=(e, (4,)))
    proper = i == k
    if not proper:
        # R R_j(π/2) = R_i(a1) R_j(a2 + π/2) R_i(∓a3) reduces it to a sequence with equal first and last letter.
        e = multiply(e, [1.0, *(float(axis == j) for axis in range(3))])
    last = 3 - i - j
    sign = 1 if (j - i) % 3 == 1 else -1
    a1, a2, a3 = _euler(e[0], e[i + 1], e[j + 1], sign * e[last + 1])
    return jnp.stack([a1, a2, a3] if proper else [a1, a2 - math.pi / 2, -sign * a3])


def along(axis: str | Numbers, x: str | Numbers | None = None) -> Quaternion:
    """The rotation that takes the z axis to the direction `axis`.

    **Arguments:** `axis`, a direction of any length or a letter (`"y"`, `"-y"`); `x`, likewise: the frame's x axis is
    the component of `x` perpendicular to `axis`. Without `x` it is the rotation from z with the smallest angle, and for
    `−z` half a turn about x (with derivative zero: around `−z` the smallest rotation is discontinuous).

    **Raises:** `MechanismError` if `axis` is zero or `x` is parallel to it.

        >>> print(sp.rotation.rotate(sp.rotation.along("x"), (0.0, 0.0, 1.0)).round(4))
        [1. 0. 0.]
    """
    if x is None:
        (axis,) = _floats("along", axis=(axis_numbers("rotation.along: axis", axis), (3,)))
        _check_direction("along", "axis", axis)
        return _from_z(axis)
    numbers, start = axis_numbers("rotation.along: axis", axis), axis_numbers("rotation.along: x", x)
    axis, x = _floats("along", axis=(numbers, (3,)), x=(start, (3,)))
    _check_direction("along", "axis", axis)
    _check_direction("along", "x", x)
    across = _perpendicular(axis, x)
    if is_concrete(across) and np.linalg.norm(np.asarray(across)) < math.sqrt(float(jnp.finfo(across.dtype).eps)):
        raise MechanismError(
            f"rotation.along: x must not be parallel to axis, got axis {np.asarray(axis)} and x {np.asarray(x)}; "
            "give an x that points sideways."
        )
    return _of_axes(axis, across)


@trace_once
def _perpendicular(axis: Vector, x: Vector) -> Vector:
    """The component perpendicular to an axis of the unit vector along `x`."""
    unit, start = direction(axis), direction(x)
    return start - jnp.sum(start * unit) * unit


@trace_once
def _of_axes(z: Vector, x: Vector) -> Quaternion:
    """The rotation to the frame with these directions of its z and x axes, which are perpendicular."""
    x, z = direction(x), direction(z)
    return from_matrix(jnp.stack([x, cross(z, x), z], axis=1))


def as_rotation(value: object) -> Quaternion:
    """Normalised Euler parameters from Euler parameters `(4,)` or a rotation matrix `(3, 3)`.

    **Raises:** `MechanismError` if concrete values are not a rotation: zero Euler parameters, or a matrix that is not
    orthogonal with determinant +1 (to 1e-6).

        >>> print(sp.rotation.as_rotation(np.eye(3)))
        [1. 0. 0. 0.]
    """
    array = as_float(value)
    shape = array.shape if isinstance(array, Array) else None
    if shape not in ((4,), (3, 3)):
        given = f"{value!r}" if shape is None else f"shape {shape}"
        raise MechanismError(
            f"A rotation must be Euler parameters of shape (4,) or a matrix of shape (3, 3), got {given}; "
            "jaxmbd.spatial.rotation makes one from an axis, angles or a rotation vector."
        )
    (value,) = _floats("as_rotation", value=(value, shape))
    if shape == (3, 3):
        return from_matrix(value)
    if is_concrete(value):
        _check_rotation(np.asarray(value))
    return normalize(value)


def _check_rotation(value: np.ndarray) -> None:
    """Raise unless a concrete array is a rotation."""
    if not np.isfinite(value).all():
        raise MechanismError(f"A rotation must be finite, got {value.tolist()}.")
    if value.ndim == 1:
        if not value.any():
            raise MechanismError("A rotation's Euler parameters must not all be zero; no rotation is (1, 0, 0, 0).")
        return
    error = np.abs(value.T @ value - np.eye(3)).max()
    if error > max(1e-6, 100 * float(np.finfo(value.dtype).eps)):
        raise MechanismError(
            f"A rotation matrix must be orthogonal, got {value.tolist()}, whose RᵀR differs from I by {error:.3g}."
        )
    if np.linalg.det(value) < 0:
        raise MechanismError(
            f"A rotation matrix must have determinant +1, got {value.tolist()} with determinant −1, a mirror image; "
            "turn the sign of one column, or take three right-handed axes."
        )


def _floats(function: str, **arguments: tuple[Any, tuple[int, ...]]) -> list[Array]:
    """Convert arguments, each with its expected shape, to arrays of the common float type of the array arguments."""
    types = [
        leaf
        for value, _ in arguments.values()
        for leaf in _leaves(value)
        if isinstance(leaf, Array | np.ndarray | np.generic)
    ]
    dtype = jnp.result_type(0.0, *types)
    arrays = []
    for name, (value, shape) in arguments.items():
        array = as_float(value)
        if not isinstance(array, Array) or jnp.issubdtype(array.dtype, jnp.complexfloating):
            raise MechanismError(f"rotation.{function}: {name} must be real numbers, got {value!r}.")
        if array.shape != shape:
            need = "be a number" if shape == () else f"have shape {shape}"
            raise MechanismError(f"rotation.{function}: {name} must {need}, got shape {array.shape}.")
        arrays.append(jnp.asarray(array, dtype=dtype))
    return arrays


def _leaves(value: object) -> list[Any]:
    """The leaves of nested lists or tuples."""
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value]


def axis_numbers(part: str, axis: object) -> Any:
    """The unit vector of an axis letter, `"x"` or `"-x"`; any other value unchanged."""
    if not isinstance(axis, str):
        return axis
    letter = axis.removeprefix("-")
    if letter not in tuple(_LETTERS):
        raise MechanismError(
            f"{part} must be 'x', 'y', 'z', '-x', '-y', '-z' or a direction of three numbers, got {axis!r}."
        )
    return [(-1.0 if axis != letter else 1.0) * (letter == name) + 0.0 for name in _LETTERS]


def _check_direction(function: str, name: str, vector: Vector) -> None:
    """Raise if a direction is concrete and zero or not finite."""
    if is_concrete(vector) and not 0 < np.linalg.norm(np.asarray(vector)) < math.inf:
        raise MechanismError(
            f"rotation.{function}: {name} must be a direction, finite and not zero, got {np.asarray(vector)}."
        )


def _axes(function: str, sequence: str) -> tuple[int, int, int]:
    """The indices of a sequence's three axes."""
    if not is_one_of(sequence, _SEQUENCES):
        raise MechanismError(
            f"rotation.{function}: a sequence must be three of the letters x, y, z without the same twice in a row, "
            f"got {sequence!r}. Valid: {', '.join(_SEQUENCES)}."
        )
    i, j, k = (_LETTERS.index(letter) for letter in sequence)
    return i, j, k


def _with_nonnegative_scalar(e: Quaternion) -> Quaternion:
    """The same rotation with `e0 ≥ 0`."""
    return jnp.where(e[0] < 0, -e, e)


@trace_once
def _from_z(axis: Vector) -> Quaternion:
    """The rotation of smallest angle from z to a direction `u`, `e ~ (1 + z·u, z × u)`; half a turn about x to `−z`."""
    x, y, z = unit = direction(axis)
    square = x * x + y * y
    # 1 + z = (x² + y²) / (1 − z), which avoids cancellation near z = −1.
    scalar = jnp.where(z < 0, square / (1 + jnp.abs(z)), 1 + z)
    opposite = (z < 0) & (square <= jnp.finfo(unit.dtype).eps ** 2)
    half_turn = jnp.array([0, 1, 0, 0], dtype=unit.dtype)
    return normalize(jnp.where(opposite, half_turn, jnp.stack([scalar, -y, x, jnp.zeros_like(x)])))


def _euler(w: Scalar, p: Scalar, q: Scalar, r: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Angles of `R_i(a1) R_j(a2) R_i(a3)` from the components of `e` along 1, i, j and i × j (of any norm).

    They are `cos(a2/2) cos s, cos(a2/2) sin s, sin(a2/2) cos d, sin(a2/2) sin d`, `s = (a1+a3)/2`, `d = (a1−a3)/2`.
    """
    cosine, sine = safe_norm(jnp.stack([w, p])), safe_norm(jnp.stack([q, r]))
    tiny = 32 * jnp.finfo(w.dtype).eps
    start, end = sine <= tiny * cosine, cosine <= tiny * sine
    half_sum = jnp.arctan2(jnp.where(end, 0.0, p), jnp.where(end, 1.0, w))
    half_difference = jnp.arctan2(jnp.where(start, 0.0, r), jnp.where(start, 1.0, q))
    # At gimbal lock the undetermined angle is chosen so that a3 = 0.
    s = jnp.where(end, half_difference, half_sum)
    d = jnp.where(start, half_sum, half_difference)
    turn = 2 * math.pi
    a1, a3 = s + d, s - d
    return a1 - turn * jnp.round(a1 / turn), 2 * jnp.arctan2(sine, cosine), a3 - turn * jnp.round(a3 / turn)


def _series(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """`c0 + c1 x + c2 x² + …` by Horner's rule."""
    total = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def _cos_and_sine_ratio(square: Scalar) -> tuple[Scalar, Scalar]:
    """`cos h` and `sin(h) / h` from `h²`, by their series below `h = 1/2`, so that all derivatives are exact."""
    small = square < 0.25
    h = jnp.sqrt(jnp.where(small, 1.0, square))
    argument = jnp.where(small, square, 0.0)
    cosine = _series(argument, [(-1) ** n / math.factorial(2 * n) for n in range(10)])
    ratio = _series(argument, [(-1) ** n / math.factorial(2 * n + 1) for n in range(10)])
    return jnp.where(small, cosine, jnp.cos(h)), jnp.where(small, ratio, jnp.sin(h) / h)


def _arctan_ratio(square: Scalar) -> Scalar:
    """`arctan(y) / y` from `y²`, by its series below `y = 1/5`, so that all derivatives are exact."""
    small = square < 0.04
    y = jnp.sqrt(jnp.where(small, 1.0, square))
    argument = jnp.where(small, square, 0.0)
    ratio = _series(argument, [(-1) ** n / (2 * n + 1) for n in range(14)])
    return jnp.where(small, ratio, jnp.arctan(y) / y)
