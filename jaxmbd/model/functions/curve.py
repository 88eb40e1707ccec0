"""Curves in the plane and in space by their arc length: through points, or by a user's function of a parameter.

A curve has a shape, which is a function of some parameter u, and its arc length at some parameters. Between them the
parameter at an arc length is a polynomial, computed when the curve is made: a law that follows a curve has neither
quadrature nor iterations in it. The derivative by the arc length is that of the exact inverse, `du/ds = 1/|r′(u)|`, not
that of the polynomial, which is less accurate than its values.
"""

from itertools import pairwise
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Number, Numbers, Point, Scalar, constant, frozen, is_concrete
from jaxmbd.checks import check_flags
from jaxmbd.engine import trace_once
from jaxmbd.errors import MechanismError, is_one_of, shown
from jaxmbd.model.functions.function import (
    SMOOTHEST,
    AbstractFunction,
    as_finite,
    as_increasing,
    as_order,
    in_powers,
    polynomial,
)
from jaxmbd.model.functions.spline import spline_through
from jaxmbd.space.planar import Frame
from jaxmbd.space.spatial import SpatialFrame
from jaxmbd.space.vectors import cross, direction, dot, safe_norm
from jaxmbd.user_functions import user_array

_NEWTON = 4  # steps from a guess with an error of some hundredths of a piece to rounding
_PIECES = 32  # into which the range of a function's parameter is divided, at least
_PARTS = 4  # into which the range between two points is divided, where the arc length is measured
_SEARCHED = 2  # places on each piece among which the nearest one is looked for
_TRIED = 0.3  # of each piece: where the parameter at an arc length is tried
_LEAST = 1e-12  # length of a piece, in units of the whole
_MEASURED = 1e-9  # largest error of an arc length, in units of the whole
_JOINED = 1e-9  # largest gap between the ends of a closed curve, in units of its length; of directions, in radians
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_NODES = (1 - np.cos(np.pi * (np.arange(8) + 0.5) / 8)) / 2  # of Chebyshev, between 0 and 1
_TO_POWERS = np.linalg.inv(np.vander(_NODES))  # from values there to coefficients, highest power first
_POWERS = len(_NODES) + 4  # of the polynomials of the parameter


class Polynomials(AbstractFunction):
    """Polynomials between breaks, such as an interpolating spline of points.

    **Arguments:** `breaks (pieces,)`, where they start, increasing; `coefficients (pieces, powers, *components)` in
    powers of the distance from the break, highest first; `order`, the lowest derivative that jumps at the breaks.
    """

    ends_steps: ClassVar[bool] = False

    breaks: Float[Array, " pieces"]
    coefficients: Float[Array, "pieces powers *components"]
    order: int = eqx.field(static=True)

    def __init__(self, breaks: Numbers, coefficients: Numbers, order: int) -> None:
        self.breaks = as_increasing("Polynomials", "breaks", breaks, strict=True)
        self.order = as_order("Polynomials", order)
        self.coefficients = as_finite("Polynomials", "coefficients", coefficients)
        if self.coefficients.ndim < 2 or len(self.coefficients) != len(self.breaks):
            raise MechanismError(
                f"Polynomials: coefficients must have a row of powers for each of the {len(self.breaks)} breaks, got "
                f"shape {self.coefficients.shape}."
            )

    def value(self, x: Scalar, *args: object) -> Array:
        return polynomial(self.breaks, self.coefficients, x)


class Curve(AbstractFunction):
    """A smooth curve in the plane or in space; `curve(s)` is its point at the arc length s `[m]`.

    Beyond its ends an open curve goes on straight; a closed one goes round and round. A marker moves along it by
    `ground.moving(curve.along(s))`, where s is a function of time.

    **Arguments:** `shape`, points `(n, 2)` or `(n, 3)` `[m]` of an interpolating spline, at least `degree + 1`; or a
    function of a parameter u that returns a point and is smooth; `degree` of the spline, 3 or 5: its curvature is
    continuous, of 5 its second derivative, too; `closed`, True for a curve that ends where it begins, whose last point
    is not the first again; `parameter`, increasing numbers: of points, one for each (of a closed curve, one more, for
    the return to the first), by default the lengths of the chords; of a function, the first and the last u, and
    others between at which its derivatives jump.

    **Fields:** `breaks (k,)`, increasing arc lengths, every fourth one at a point; `length`, that of the whole; `shape`
    at `parameters (k,)`, and `inverse`, polynomials of the parameter by the arc length, as they are computed.

    Differentiable with respect to s, to what a function of u holds, and to the points. Where points are traced (`jit`,
    `grad`, `vmap`), `parameter` has to be given, since the chords' lengths are not known.

    **Raises:** `MechanismError` for what are no such points, two in the same place, or a shape that stands still.

        >>> circle = mbd.Curve(lambda u: (0.5 * jnp.cos(u), 0.5 * jnp.sin(u)), closed=True, parameter=(0, 2 * np.pi))
        >>> print(circle.length.round(9), circle.curvature(0.3).round(9))
        3.141592654 2.0
        >>> path = mbd.Curve([(0, 0), (1, 0.2), (2, 0.8), (3, 0.8)], degree=3)
        >>> print(path.nearest(jnp.array([1.0, 0.3])).round(4), path(path.breaks[8]))
        1.093 [2.  0.8]
    """

    ends_steps: ClassVar[bool] = False

    shape: Function
    parameters: Float[Array, " k"]
    breaks: Float[Array, " k"]
    inverse: Float[Array, "pieces powers"]
    closed: bool = eqx.field(static=True)
    order: int = eqx.field(static=True)

    def __init__(
        self, shape: Function | Numbers, degree: int = 5, closed: bool = False, parameter: Numbers | None = None
    ) -> None:
        check_flags("Curve", closed=closed)
        if not is_one_of(degree, (3, 5)):
            raise MechanismError(f"Curve: degree must be 3 or 5, got {shown(degree)}.")
        self.closed = bool(closed)
        if callable(shape) and not isinstance(shape, type):
            known, self.order = _of_function(shape, parameter, closed)
            # Traced values that a function closes over become leaves of it, so that derivatives pass through the curve.
            u = jnp.zeros(())
            self.shape = shape if is_concrete(shape) else eqx.filter_closure_convert(shape, u)
        else:
            self.order = degree
            known, self.shape = _through(shape, degree, closed, parameter)
        self.parameters = constant(np.asarray(known, jnp.result_type(float)))
        self.breaks, self.inverse, error = _measured(self.shape, self.parameters)
        _check_measured(self.breaks, error, known)

    def __check_init__(self) -> None:
        """The fields of a curve that is read from a file; polynomials begin at its parameters."""
        for field in ("parameters", "breaks"):
            as_increasing("Curve", field, getattr(self, field), strict=True)
        as_finite("Curve", "inverse", self.inverse)
        _check_shape(self.shape)
        pieces, own = len(self.breaks) - 1, self.shape.breaks if isinstance(self.shape, Polynomials) else None
        if not (pieces > 0 and self.parameters.shape == (pieces + 1,) and self.inverse.shape == (pieces, _POWERS)) or (
            own is not None and own.shape != (pieces,)
        ):
            raise MechanismError(
                f"Curve: with {pieces + 1} breaks there are as many parameters, {pieces} polynomials of its shape, and "
                f"an inverse of shape {(pieces, _POWERS)}, got shapes {self.parameters.shape}, "
                f"{'a function' if own is None else own.shape} and {self.inverse.shape}."
            )

    @property
    def length(self) -> Scalar:
        """The arc length of the whole [m]."""
        return self.breaks[-1]

    def value(self, x: Number, *args: object) -> Point:
        return _course(self, x)[0]

    def tangent(self, s: Number) -> Point:
        """The unit vector along the curve, `dr/ds`."""
        return _course(self, s)[1]

    def curvature_vector(self, s: Number) -> Point:
        """`d²r/ds² = κ n` [1/m], toward the centre of curvature; zero where the curve is straight."""
        return _course(self, s)[2]

    def curvature(self, s: Number) -> Scalar:
        """The curvature κ [1/m]: in the plane positive where the curve turns left, in space never negative."""
        _, tangent, bend = _course(self, s)
        return cross(tangent, bend) if bend.shape == (2,) else safe_norm(bend)

    def normal(self, s: Number) -> Point:
        """The unit normal: in the plane the tangent turned left; in space toward the centre of curvature, and zero
        where the curve is straight."""
        _, tangent, bend = _course(self, s)
        return jnp.stack([-tangent[1], tangent[0]]) if bend.shape == (2,) else direction(bend)

    def frame(self, s: Number, up: Numbers = (0.0, 0.0, 1.0)) -> Frame | SpatialFrame:
        """The frame at the point, with its x axis along the curve; in space, its z axis is as near to `up` as it can
        be, which must not be along the curve."""
        point, tangent, _ = _course(self, s)
        if len(point) == 2:
            return Frame(point, jnp.arctan2(tangent[1], tangent[0]))
        side = direction(cross(jnp.asarray(up, point.dtype), tangent))
        return SpatialFrame(point, jnp.stack([tangent, side, cross(tangent, side)], axis=1))

    def nearest(self, point: Numbers) -> Scalar:
        """The arc length at which the curve is nearest to a point `[m]`: the best of many places, refined.

        Its derivatives are those of the foot of the perpendicular; at an end of an open curve they are zero.
        """
        given, size = as_finite("Curve", "nearest: point", point), _check_shape(self.shape)
        if given.shape != (size,):
            raise MechanismError(f"Curve: nearest: point must be {size} numbers, got shape {given.shape}.")
        return _nearest(self, given.astype(self.breaks.dtype))

    def along(self, motion: Function) -> "AlongCurve":
        """The motion of a point whose arc length `[m]` is `motion(t)`, for `ground.moving(...)`.

        >>> circle = mbd.Curve(lambda u: (jnp.cos(u), jnp.sin(u)), closed=True, parameter=(0, 2 * np.pi))
        >>> print(circle.along(lambda t: 0.5 * np.pi * t)(jnp.array(1.0)).round(9))
        [0. 1.]
        """
        return AlongCurve(self, motion)


class AlongCurve(eqx.Module):
    """The point of a curve at an arc length that is a function of time, made by `curve.along(motion)`.

    **Arguments:** `curve`, a `Curve`; `motion`, a function of time `[s]` that returns the arc length `[m]`.
    """

    curve: Curve
    motion: Function

    def __init__(self, curve: Curve, motion: Function) -> None:
        if not isinstance(curve, Curve):
            raise MechanismError(f"AlongCurve: curve must be a Curve, got {shown(curve)}.")
        if not callable(motion) or isinstance(motion, type):
            raise MechanismError(
                f"AlongCurve: motion must be a function of time [s] that returns the arc length [m], got "
                f"{shown(motion)}."
            )
        self.curve, self.motion = curve, motion

    def __call__(self, t: Scalar) -> Point:
        return self.curve(user_array("AlongCurve", "motion", self.motion, t, takes="t", shape=()))


def _point(shape: Function, u: Scalar) -> Array:
    return user_array("Curve", "shape", shape, u, takes="u").astype(u.dtype)


def _derivatives(shape: Function, u: Scalar) -> tuple[Point, Point, Point]:
    """A point of a shape, or of a piece of it, and its derivatives by the parameter."""
    rate = lambda u: jax.jvp(shape, (u,), (jnp.ones_like(u),))  # noqa: E731
    (point, first), (_, second) = jax.jvp(rate, (u,), (jnp.ones_like(u),))
    return point, first, second


def _speed(shape: Function, u: Scalar) -> Scalar:
    return safe_norm(jax.jvp(shape, (u,), (jnp.ones_like(u),))[1])


def _arc(shape: Function, start: Scalar | float, end: Scalar | float) -> Scalar:
    """The arc length between two parameters of one piece, by Gauss quadrature."""
    middle, half = jnp.asarray((start + end) / 2), (end - start) / 2
    speeds = jax.vmap(lambda u: _speed(shape, u))(middle + half * _POINTS.astype(middle.dtype))
    return half * jnp.sum(_WEIGHTS.astype(middle.dtype) * speeds)


def _piece(breaks: Array, x: Scalar) -> Array:
    return jnp.clip(jnp.searchsorted(breaks, x, side="right") - 1, 0, len(breaks) - 2)


def _on_piece(shape: Function, parameters: Array, k: Array) -> Function:
    """A shape between two neighbouring parameters, as a function from 0 to 1: of polynomials, the one that holds."""
    start, width = parameters[k], parameters[k + 1] - parameters[k]
    if not isinstance(shape, Polynomials):
        return lambda w: _point(shape, start + width * w)
    coefficients = shape.coefficients[k]
    return lambda w: in_powers(coefficients, width * w)


# Known values are evaluated by NumPy, which compiles nothing; within a law, a curve is traced once.
@trace_once
def _measured(shape: Function, parameters: Array) -> tuple[Array, Array, Scalar]:
    """The arc lengths at parameters; the polynomials of parameters by arc lengths; how wrong these are, in units of the
    whole length."""

    def of_piece(k: Array) -> tuple[Scalar, Array, Scalar]:
        piece = _on_piece(shape, parameters, k)
        whole, halves = _arc(piece, 0.0, 1.0), _arc(piece, 0.0, 0.5) + _arc(piece, 0.5, 1.0)
        inverse = _inverse(piece, whole)
        missing = _arc(piece, 0.0, in_powers(inverse, jnp.asarray(_TRIED, whole.dtype))) - _TRIED * whole
        return whole, inverse, jnp.maximum(jnp.abs(missing), jnp.abs(halves - whole))

    lengths, inverse, wrong = jax.vmap(of_piece)(jnp.arange(len(parameters) - 1))
    breaks = jnp.concatenate([jnp.zeros_like(lengths[:1]), jnp.cumsum(lengths)])
    return breaks, inverse, jnp.max(wrong) / breaks[-1]


def _inverse(piece: Function, whole: Scalar) -> Float[Array, " powers"]:
    """The coefficients of the parameter of a piece, 0 to 1, as a polynomial of the share x of its arc length.

    It is Hermite's cubic with the speeds at both ends, and `x² (1 − x)² q(x)` with a polynomial q through what Newton's
    method adds to the cubic at Chebyshev's points. So it meets that of the next piece with its slope.
    """
    a, b = (whole / _speed(piece, jnp.asarray(end, whole.dtype)) - 1 for end in (0.0, 1.0))
    cubic = jnp.stack([a + b, -2 * a - b, 1 + a, jnp.zeros_like(a)])  # x + x (1 − x) ((1 − x) a − x b)

    def by_newton(x: Scalar) -> Scalar:
        w = first = in_powers(cubic, x)
        for _ in range(_NEWTON):
            w = w - (_arc(piece, 0.0, w) - x * whole) / _speed(piece, w)
        return (w - first) / (x * (1 - x)) ** 2

    q = jnp.sum(_TO_POWERS.astype(whole.dtype) * jax.vmap(by_newton)(jnp.asarray(_NODES, whole.dtype))[None], axis=1)
    return jnp.pad(q, (0, 4)) - 2 * jnp.pad(q, (1, 3)) + jnp.pad(q, (2, 2)) + jnp.pad(cubic, (_POWERS - 4, 0))


@eqx.filter_custom_jvp
def _share(inverse: Array, x: Scalar, whole: Scalar, shape: Function, parameters: Array, k: Array) -> Scalar:
    """The parameter of a piece, 0 to 1, at a share x of its arc length, the `whole`."""
    return in_powers(inverse, x)


@_share.def_jvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Scalar, Scalar]:
    (_, x, whole, *piece), (by_inverse, by_x, *_) = primals, tangents
    w = _share(*primals)
    change = jnp.zeros_like(w) if by_inverse is None else in_powers(by_inverse, x)
    return w, change if by_x is None else change + by_x * whole / _speed(_on_piece(*piece), w)


@trace_once
def _course(curve: Curve, s: Number) -> tuple[Point, Point, Point]:
    """The point at an arc length s, and its derivatives by s: the tangent and the curvature vector."""
    s, whole = jnp.asarray(s, curve.breaks.dtype), curve.breaks[-1]
    clipped = jnp.where(s < 0, 0.0, jnp.where(s > whole, whole, s))
    inside = s - whole * jnp.floor(s / whole) if curve.closed else clipped
    k = _piece(curve.breaks, inside)
    start, whole = curve.breaks[k], curve.breaks[k + 1] - curve.breaks[k]
    w = _share(curve.inverse[k], (inside - start) / whole, whole, curve.shape, curve.parameters, k)
    point, rate, second = _derivatives(_on_piece(curve.shape, curve.parameters, k), w)
    speed = safe_norm(rate)
    tangent = rate / speed
    bend = (second - tangent * dot(tangent, second)) / speed**2
    if curve.closed:
        return point, tangent, bend
    return point + (s - inside) * tangent, tangent, jnp.where(s == inside, bend, 0.0)


@trace_once
def _nearest(curve: Curve, point: Point) -> Scalar:
    u = _nearest_place(*frozen((curve, point)))
    for _ in range(2):  # Newton's: the first makes first derivatives right, the second those up to the third
        u = _nearer(curve, point, u)
    u = _wrapped(curve, u)
    k = _piece(curve.parameters, u)
    w = (u - curve.parameters[k]) / (curve.parameters[k + 1] - curve.parameters[k])
    return curve.breaks[k] + _arc(_on_piece(curve.shape, curve.parameters, k), 0.0, w)


def _nearest_place(curve: Curve, point: Point) -> Scalar:
    """The parameter of the nearest point: the best of many places, and near it the root of `(r − p) · r′`."""
    starts, widths, parts = curve.parameters[:-1], jnp.diff(curve.parameters), np.arange(_SEARCHED)[None] / _SEARCHED
    places = jnp.append((starts[:, None] + widths[:, None] * parts).ravel(), curve.parameters[-1])
    best = jnp.argmin(jax.vmap(lambda u: jnp.sum((_point(curve.shape, u) - point) ** 2))(places))
    u = start = places[best]
    reach = widths[jnp.minimum(best // _SEARCHED, len(widths) - 1)] / _SEARCHED
    for _ in range(_NEWTON + 1):
        u = jnp.clip(_nearer(curve, point, u), start - reach, start + reach)
    return u


def _nearer(curve: Curve, point: Point, u: Scalar) -> Scalar:
    """A step of Newton's for `(r − p) · r′ = 0`; where that would leave a least distance, one of Gauss and Newton's."""
    at, rate, second = _derivatives(lambda u: _point(curve.shape, u), _wrapped(curve, u))
    slope = dot(rate, rate) + dot(at - point, second)
    u = u - dot(at - point, rate) / jnp.where(slope > 0, slope, dot(rate, rate))
    return u if curve.closed else _wrapped(curve, u)


def _wrapped(curve: Curve, u: Scalar) -> Scalar:
    """The parameter within its range, of a closed curve at the same point; of an open one at the end that is near."""
    first, last = curve.parameters[0], curve.parameters[-1]
    if curve.closed:
        return u - (last - first) * jnp.floor((u - first) / (last - first))
    return jnp.where(u < first, first, jnp.where(u > last, last, u))


def _check_measured(breaks: Array, error: Scalar, parameters: np.ndarray) -> None:
    """Raise if a curve has a part without length, or one whose speed changes so much that it is not measured well."""
    if not is_concrete(breaks, error):
        return
    lengths = np.diff(np.asarray(breaks))
    if not (lengths > _LEAST * np.asarray(breaks)[-1]).all():
        k = int(np.argmin(np.where(np.isfinite(lengths), lengths, -1)))
        raise MechanismError(
            f"Curve: between the parameters {parameters[k]:g} and {parameters[k + 1]:g} the shape has no length: it "
            "must move on everywhere."
        )
    limit = max(_MEASURED, 1e3 * float(np.finfo(lengths.dtype).eps))
    if not float(error) <= limit:
        raise MechanismError(
            f"Curve: its arc length is known to {float(error):.0e} of the whole only, and should be to {limit:.0e}. "
            "The shape nearly stands still, or turns sharply, between two points: give more of them there (of a "
            "function, more numbers as parameter)."
        )


def _check_shape(shape: Function) -> int:
    """The number of coordinates of what a shape returns; raise unless it is a point of the plane or space."""
    u = jax.ShapeDtypeStruct((), jnp.result_type(float))
    found = eqx.filter_eval_shape(lambda u: _point(shape, u), u).shape
    if found not in ((2,), (3,)):
        raise MechanismError(f"Curve: shape must return a point of two or three numbers [m], got shape {found}.")
    return found[0]


def _of_function(shape: Function, parameter: Numbers | None, closed: bool) -> tuple[np.ndarray, int]:
    """The parameters between which a function is measured, and the lowest derivative that jumps."""
    _check_shape(shape)
    given = None if parameter is None else as_increasing("Curve", "parameter", parameter, strict=True)
    if given is None or len(given) < 2 or not is_concrete(given):
        raise MechanismError(
            "Curve: a function needs a range of its parameter, known numbers such as parameter=(0.0, 1.0), got "
            f"{shown(parameter)}."
        )
    ends = np.asarray(given)
    if isinstance(shape, AbstractFunction) and is_concrete(shape.breaks):
        own = np.asarray(shape.breaks)
        ends = np.union1d(ends, own[(own > ends[0]) & (own < ends[-1])])
    each = -(-_PIECES // (len(ends) - 1))
    inner = [np.linspace(a, b, each, endpoint=False) for a, b in pairwise(ends)]
    if closed and is_concrete(shape):
        first, last = (_derivatives(lambda u: _point(shape, u), constant(x)) for x in (ends[0], ends[-1]))
        size = np.max(np.abs(np.asarray(first[0]))) + 1e-300
        for what, a, b in (("point", first[0], last[0]), ("direction", direction(first[1]), direction(last[1]))):
            if not np.abs(np.asarray(a) - np.asarray(b)).max() <= _JOINED * max(1.0, size):
                raise MechanismError(
                    f"Curve: a closed curve ends where it begins, and goes on as it begins; its {what} is "
                    f"{np.asarray(a)} at {ends[0]:g} and {np.asarray(b)} at {ends[-1]:g}."
                )
    order = shape.order if isinstance(shape, AbstractFunction) else SMOOTHEST if len(ends) == 2 else 2
    return np.append(np.concatenate(inner), ends[-1]), order


def _through(points: object, degree: int, closed: bool, parameter: Numbers | None) -> tuple[np.ndarray, Polynomials]:
    """The parameters between which the spline through points is measured, and the spline."""
    points = as_finite("Curve", "shape", points)
    if points.ndim != 2 or points.shape[1] not in (2, 3) or len(points) < degree + 1:
        raise MechanismError(
            f"Curve: shape must be points (n, 2) or (n, 3), at least {degree + 1} for degree {degree}, or a function "
            f"of a parameter, got shape {points.shape}."
        )
    known = np.zeros(0)
    if is_concrete(points):
        points = np.asarray(points, float)
        known = np.append(0.0, np.cumsum(_chords(points, closed)))
    elif parameter is None:
        raise MechanismError(
            "Curve: where the points are traced (jit, grad, vmap), give the parameter of each, such as the lengths of "
            "the chords between points that are known."
        )
    if parameter is not None:
        given, count = as_increasing("Curve", "parameter", parameter, strict=True), len(points) + closed
        if given.shape != (count,) or not is_concrete(given):
            raise MechanismError(
                f"Curve: parameter must be {count} known numbers, one for each point"
                f"{' and one for the return to the first' if closed else ''}, got shape {given.shape}."
            )
        known = np.asarray(given, float)
    parameters = np.interp(np.arange(_PARTS * (len(known) - 1) + 1) / _PARTS, np.arange(len(known)), known)
    return parameters, Polynomials(*spline_through(known, points, degree, closed, parameters[:-1]), degree)


def _chords(points: np.ndarray, closed: bool) -> np.ndarray:
    """The distances of points from their next; raise for two in the same place."""
    chords = np.linalg.norm(np.diff(points, axis=0, append=points[:1])[: None if closed else -1], axis=1)
    if not (chords > 0).all():
        k = int(np.argmin(chords))
        again = " (a closed curve returns to its first point by itself)" if k == len(points) - 1 else ""
        raise MechanismError(f"Curve: points {k} and {(k + 1) % len(points)} are in the same place{again}.")
    return chords
