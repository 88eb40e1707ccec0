"""Curves by their arc length: their geometry against closed forms, derivatives of any order and by points, markers that
move along them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.model.mechanism.declared_times import declared_times
from tests.marks import in_both_coordinates

TURN = np.linspace(0.0, 2 * np.pi, 25)
OVAL = np.stack([2 * np.cos(TURN[:-1]), np.sin(TURN[:-1])], axis=1)
ELLIPSE = mbd.Curve(lambda u: (2 * jnp.cos(u), jnp.sin(u)), closed=True, parameter=(0.0, 2 * np.pi))
HELIX = mbd.Curve(lambda u: (0.3 * jnp.cos(u), 0.3 * jnp.sin(u), 0.1 * u), parameter=(0.0, 6.0))
BEND = mbd.Curve([(0.0, 0.0), (1.0, 0.2), (2.0, 0.8), (3.0, 0.8), (3.5, 0.0), (3.2, -1.0)])
S = 1.7  # [m], between two points


def test_a_helix() -> None:
    """Curvature `r/(r² + c²)`, and its frame; before its ends and beyond them."""
    speed = np.hypot(0.3, 0.1)
    np.testing.assert_allclose(HELIX.length, 6 * speed, rtol=1e-14)
    u = 0.9 / speed
    np.testing.assert_allclose(HELIX(0.9), [0.3 * np.cos(u), 0.3 * np.sin(u), 0.1 * u], rtol=1e-13)
    tangent = np.array([-0.3 * np.sin(u), 0.3 * np.cos(u), 0.1]) / speed
    np.testing.assert_allclose(HELIX.tangent(0.9), tangent, rtol=1e-13)
    np.testing.assert_allclose(HELIX.curvature(0.9), 0.3 / speed**2, rtol=1e-12)
    np.testing.assert_allclose(HELIX.normal(0.9), [-np.cos(u), -np.sin(u), 0.0], atol=1e-12)
    np.testing.assert_allclose(HELIX.curvature_vector(0.9), HELIX.curvature(0.9) * HELIX.normal(0.9), atol=1e-12)
    frame = HELIX.frame(0.9)
    assert isinstance(frame, sp.SpatialFrame)
    np.testing.assert_allclose(frame.rotation.T @ frame.rotation, np.eye(3), atol=1e-14)
    np.testing.assert_allclose(frame.x, tangent, rtol=1e-13)
    np.testing.assert_allclose([frame.z[2], np.linalg.det(frame.rotation)], [0.3 / speed, 1.0], rtol=1e-12)
    end = HELIX.length
    np.testing.assert_allclose(HELIX(end + 0.4), HELIX(end) + 0.4 * HELIX.tangent(end), rtol=1e-13)
    np.testing.assert_allclose(HELIX(-0.4), HELIX(0.0) - 0.4 * HELIX.tangent(0.0), rtol=1e-13)
    np.testing.assert_allclose(HELIX.curvature(end + 0.4), 0.0)


@pytest.mark.parametrize(("degree", "place", "bend"), [(3, 5e-4, 0.15), (5, 3e-4, 0.03)])
def test_a_spline_through_points_of_an_ellipse(degree: int, place: float, bend: float) -> None:
    curve = mbd.Curve(OVAL, degree=degree, closed=True)
    np.testing.assert_allclose(jax.vmap(curve)(curve.breaks[:-1:4]), OVAL, atol=1e-13)
    np.testing.assert_allclose(curve.length, ELLIPSE.length, rtol=2e-5)
    s = jnp.linspace(-1.0, 12.0, 41)  # round and round
    same = s * ELLIPSE.length / curve.length
    np.testing.assert_allclose(jax.vmap(curve)(s), jax.vmap(ELLIPSE)(same), atol=place)
    np.testing.assert_allclose(jax.vmap(curve.curvature)(s), jax.vmap(ELLIPSE.curvature)(same), atol=bend)
    np.testing.assert_allclose(curve(-1.0), curve(curve.length - 1.0), rtol=1e-12)
    assert curve.order == degree
    assert ELLIPSE.curvature(S) > 0  # it turns left


@pytest.mark.parametrize("curve", [ELLIPSE, BEND, HELIX], ids=["ellipse", "points", "helix"])
def test_derivatives_by_the_arc_length(curve: mbd.Curve) -> None:
    """The first is the unit tangent and the second the curvature vector; the third is that one's; of both modes."""
    places = jnp.linspace(0.01, 0.99, 9) * curve.length
    second = jax.jacfwd(jax.jacrev(curve))
    derivatives = (jax.jacfwd(curve), second, jax.jacfwd(second))
    closed = (curve.tangent, curve.curvature_vector, jax.jacfwd(curve.curvature_vector))
    of_both = jax.jit(jax.vmap(lambda s: [[f(s) for f in functions] for functions in (derivatives, closed)]))
    found, expected = of_both(places)
    np.testing.assert_allclose(np.linalg.norm(found[0], axis=1), 1.0, rtol=1e-10)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-10)
    np.testing.assert_allclose(found[2], expected[2], atol=1e-10 * float(np.abs(expected[2]).max()))


@pytest.mark.parametrize("curve", [ELLIPSE, BEND], ids=["ellipse", "points"])
def test_the_nearest_point(curve: mbd.Curve) -> None:
    """Of points beside the curve; its derivatives are those of the foot, `t / (1 − κ d)`, and of second order."""
    s = jnp.linspace(0.02, 0.98, 25) * curve.length
    beside = jax.jit(jax.vmap(lambda s: curve(s) + 0.1 * curve.normal(s)))(s)
    np.testing.assert_allclose(jax.jit(jax.vmap(curve.nearest))(beside), s, atol=1e-12)
    point, at = beside[7], s[7]
    slope = curve.tangent(at) / (1 - 0.1 * curve.curvature(at))
    gradient = jax.jit(jax.grad(curve.nearest))
    np.testing.assert_allclose(gradient(point), slope, rtol=1e-10)
    h = jnp.array([1e-5, 0.0])
    change = (gradient(point + h) - gradient(point - h)) / 2e-5
    np.testing.assert_allclose(jax.jit(jax.hessian(curve.nearest))(point)[0], change, rtol=1e-6, atol=1e-8)


def test_a_function_may_close_over_a_traced_radius() -> None:
    """The point at an angle `s/r` of a circle: both modes by r, and by r and s."""

    def place(r: Array, s: Array) -> Array:
        return mbd.Curve(lambda u: (r * jnp.cos(u), r * jnp.sin(u)), closed=True, parameter=(0.0, 2 * np.pi))(s)[0]

    r, s = jnp.asarray(0.7), jnp.asarray(1.9)
    exact = lambda r, s: r * jnp.cos(s / r)  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.grad(place))(r, s), jax.grad(exact)(r, s), rtol=1e-10)
    mixed = jax.jit(jax.jacfwd(jax.grad(place), argnums=1))(r, s)
    np.testing.assert_allclose(mixed, jax.jacfwd(jax.grad(exact), argnums=1)(r, s), rtol=1e-9)


def test_the_nearest_point_of_an_open_curve_may_be_its_end() -> None:
    before, after = BEND(-0.3), BEND(BEND.length + 0.2)
    np.testing.assert_array_equal(BEND.nearest(before), 0.0)
    np.testing.assert_allclose(BEND.nearest(after), BEND.length, rtol=1e-14)
    np.testing.assert_array_equal(jax.grad(BEND.nearest)(before), 0.0)


def by_points(points: Any, closed: bool, s: float) -> Array:
    known = OVAL if closed else np.asarray(BEND_POINTS)
    chords = np.linalg.norm(np.diff(known, axis=0, append=known[:1])[: None if closed else -1], axis=1)
    curve = mbd.Curve(points, closed=closed, parameter=np.append(0.0, np.cumsum(chords)))
    return jnp.concatenate([curve(s), curve.curvature_vector(s), curve.length[None]])


BEND_POINTS = [(0.0, 0.0), (1.0, 0.2), (2.0, 0.8), (3.0, 0.8), (3.5, 0.0), (3.2, -1.0), (3.0, -2.0)]


@pytest.mark.parametrize("closed", [True, False])
def test_derivatives_by_points(rng: np.random.Generator, closed: bool) -> None:
    """Of place, bend and length: both modes against differences; a curve that grows with its points keeps its form."""
    points = jnp.asarray(OVAL if closed else BEND_POINTS)
    change, h = jnp.asarray(rng.standard_normal(points.shape)), 1e-5
    forward = jax.jit(lambda change: jax.jvp(lambda x: by_points(x, closed, S), (points,), (change,))[1])
    found = forward(change)
    placed = jax.jit(lambda points: by_points(points, closed, S))
    ahead, behind = (placed(points + x * change) for x in (h, -h))
    far, near = (placed(points + 2 * x * change) for x in (h, -h))
    exact = (8 * (ahead - behind) - (far - near)) / (12 * h)
    np.testing.assert_allclose(found, exact, rtol=1e-7, atol=1e-7 * float(np.abs(exact).max()))
    back = jax.jit(jax.jacrev(placed))(points)
    np.testing.assert_allclose(jnp.sum(back * change[None], axis=(1, 2)), found, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(forward(points)[-1], by_points(points, closed, S)[-1], rtol=1e-12)


def along(space: Any, curve: mbd.Curve, coordinates: str, motion: Any) -> Any:
    """A body whose end follows a curve, with sensors there."""
    place = np.asarray(curve(motion(jnp.zeros(())))) + np.eye(len(curve(0.0)))[0] / 2
    if space is pl:
        body = pl.Body("rod", 1.0, 0.1, (*place, 0.0))
        joint = pl.Revolute("follow", pl.ground.moving(curve.along(motion)), body.at(-0.5))
    else:
        body = sp.Body("rod", 1.0, (0.1, 0.1, 0.1), place)
        joint = sp.Spherical("follow", sp.ground.moving(curve.along(motion)), body.at(-0.5))
    end = body.at(-0.5)
    sensors = [space.Point("p", end), space.PointVelocity("v", end), space.PointAcceleration("a", end)]
    return space.Mechanism([body], [joint], [space.Gravity()], sensors=sensors, coordinates=coordinates)


@in_both_coordinates("joint")
@pytest.mark.parametrize(
    ("space", "curve"), [(pl, ELLIPSE), (pl, BEND), (sp, HELIX)], ids=["ellipse", "points", "helix"]
)
def test_a_body_that_follows_a_curve(space: Any, curve: mbd.Curve, coordinates: str) -> None:
    """Its end has the velocity `ṡ t` and the acceleration `s̈ t + κ ṡ² n`, with and against the curve."""
    motion = lambda t: 0.8 + 0.5 * jnp.sin(3 * t)  # noqa: E731
    mechanism = along(space, curve, coordinates, motion)
    for t in (0.2, 0.9):
        s, rate, change = 0.8 + 0.5 * np.sin(3 * t), 1.5 * np.cos(3 * t), -4.5 * np.sin(3 * t)
        found = mbd.read(mechanism, mbd.assemble(mechanism, t=t), ["p", "v", "a"])
        tangent, normal = np.asarray(curve.tangent(s)), np.asarray(curve.normal(s))
        bend = float(curve.curvature(s)) * rate**2 * normal
        np.testing.assert_allclose(found["p"], curve(s), atol=1e-9)
        np.testing.assert_allclose(found["v"], rate * tangent, atol=1e-9)
        np.testing.assert_allclose(found["a"], change * tangent + bend, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_the_derivative_of_an_acceleration_by_the_points_of_a_curve(coordinates: str) -> None:
    """A ball that is led at a steady speed has the acceleration `κ v² n`; both modes, against the curve alone."""
    known, v, at = np.asarray(BEND_POINTS), 2.0, 0.6
    parameter = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(known, axis=0), axis=1)))

    def acceleration(points: Array) -> Array:
        curve = mbd.Curve(points, parameter=parameter)
        ball = pl.Body("ball", 3.0, 0.1, pose=(1.2, 0.3, 0.0))
        joint = pl.Revolute("follow", pl.ground.moving(curve.along(lambda t: v * t)), ball.at())
        mechanism = pl.Mechanism([ball], [joint], coordinates=coordinates)
        state = mbd.assemble(mechanism, t=at, speeds={"ball.omega": 0.0})
        return mbd.read(mechanism, state, "ball.acceleration")

    def exact(points: Array) -> Array:
        return v**2 * mbd.Curve(points, parameter=parameter).curvature_vector(v * at)

    points = jnp.asarray(known)
    np.testing.assert_allclose(acceleration(points), exact(points), atol=1e-8)
    slope = jax.jacrev(exact)(points)
    np.testing.assert_allclose(jax.jacrev(acceleration)(points), slope, atol=1e-6 * float(jnp.abs(slope).max()))
    change = jnp.ones_like(points).at[2, 1].set(-2.0)
    forward = jax.jvp(acceleration, (points,), (change,))[1]
    np.testing.assert_allclose(forward, jnp.sum(slope * change[None], axis=(1, 2)), rtol=1e-6, atol=1e-6)


def test_switching_times_of_the_motion_along_a_curve() -> None:
    """They are found inside; breaks of the curve are none. An arc length that jumps is refused."""
    start = mbd.Piecewise([0.5], [0.2, lambda t: 0.2 + (t - 0.5) ** 2], order=2)
    (found,) = declared_times(along(pl, BEND, "absolute", start))
    np.testing.assert_array_equal(found.times, [0.5])
    assert not declared_times(along(pl, BEND, "absolute", lambda t: 0.3 * t))
    with pytest.raises(mbd.MechanismError, match=r"derivative 1 of its motion \(a Table\) does"):
        along(pl, BEND, "absolute", mbd.Table([0.0, 1.0], [0.0, 1.0]))


WRONG = {
    "text": (lambda: mbd.Curve("abc"), "Curve: shape must be real numbers, got 'abc'"),  # pyright: ignore
    "four components": (lambda: mbd.Curve(np.ones((8, 4))), r"points \(n, 2\) or \(n, 3\), at least 6 for degree 5"),
    "too few": (lambda: mbd.Curve(OVAL[:5]), r"at least 6 for degree 5, .* got shape \(5, 2\)"),
    "a point twice": (lambda: mbd.Curve(np.repeat(OVAL, 2, axis=0)), "points 0 and 1 are in the same place"),
    "the first point again": (
        lambda: mbd.Curve(np.append(OVAL, OVAL[:1], axis=0), closed=True),
        "points 24 and 0 are in the same place .a closed curve returns",
    ),
    "degree": (lambda: mbd.Curve(OVAL, degree=4), "degree must be 3 or 5, got 4"),
    "parameters": (lambda: mbd.Curve(OVAL, closed=True, parameter=TURN[:-1]), "25 known numbers, .* and one for the r"),
    "no range": (lambda: mbd.Curve(jnp.sin), "shape must return a point of two or three numbers"),
    "a function without a range": (lambda: mbd.Curve(lambda u: (u, u)), "needs a range of its parameter"),
    "a function that stops": (lambda: mbd.Curve(lambda u: (0.0 * u, 1.0), parameter=(0, 1)), "the shape has no length"),
    "a cusp": (lambda: mbd.Curve(lambda u: (u**3, u**2), parameter=(-1, 1.1)), "nearly stands still, or turns sharply"),
    "an open function": (
        lambda: mbd.Curve(lambda u: (jnp.cos(u), jnp.sin(u)), closed=True, parameter=(0, 3)), "its point is"
    ),
    "a corner": (
        lambda: mbd.Curve(lambda u: (u * (1 - u), u * (1 - u) * (2 - u)), closed=True, parameter=(0, 1)),
        "its direction is",
    ),
    "a point in space": (lambda: BEND.nearest([1.0, 2.0, 3.0]), r"nearest: point must be 2 numbers, got shape \(3,\)"),
    "a complex point": (lambda: BEND.nearest(1j), "nearest: point must be real numbers"),  # pyright: ignore
    "traced": (lambda: jax.jit(lambda x: mbd.Curve(x).length)(OVAL), "where the points are traced"),
}  # fmt: skip


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize("case", WRONG)
def test_wrong_curves(case: str) -> None:
    make, text = WRONG[case]
    with pytest.raises(mbd.MechanismError, match=text):
        make()
