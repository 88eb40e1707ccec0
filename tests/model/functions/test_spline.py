"""Splines of samples: what they minimise, how they are differentiated, and that they take linear time and memory."""

import itertools
import tracemalloc
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.model.functions.function import polynomial
from jaxmbd.model.functions.spline import spline_through
from jaxmbd.model.mechanism.declared_times import declared_times


def scattered(rng: np.random.Generator, n: int, noise: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    ts = np.sort(np.append(rng.uniform(0.0, 2.0, n - 2), [0.0, 2.0]))
    return ts, np.cos(4 * ts) + noise * rng.standard_normal(n)


def test_smoothed_is_a_smoothing_spline(rng: np.random.Generator) -> None:
    """Through the samples to sixth order; smoothing that vanishes and grows: through them, and the parabola of least
    squares; linear in the samples, with the right gradient."""
    ts = np.sort(np.append(rng.uniform(0.0, 1.0, 39), [0.0, 1.0]))
    even = np.linspace(0.0, 1.0, 41)
    through = mbd.SmoothingSpline(even, np.sin(7 * even), 0)
    at = jnp.linspace(0.0, 1.0, 333)
    np.testing.assert_allclose(jax.vmap(through)(at), np.sin(7 * at), atol=2e-7)
    np.testing.assert_allclose(jax.vmap(jax.grad(jax.grad(through)))(at), -49 * np.sin(7 * at), atol=2e-2)
    y = np.cos(3 * ts) + 0.1 * rng.standard_normal(41)
    np.testing.assert_allclose(jax.vmap(mbd.SmoothingSpline(ts, y, 1e-18))(jnp.asarray(ts)), y, atol=1e-3)
    flat = np.polyval(np.polyfit(ts, y, 2), ts)
    np.testing.assert_allclose(jax.vmap(mbd.SmoothingSpline(ts, y, 1e4))(jnp.asarray(ts)), flat, atol=1e-5)
    half = jnp.asarray(0.5)
    slope = jax.grad(lambda y: mbd.SmoothingSpline(ts, y, 1e-6)(half))(jnp.asarray(y))
    step = 1e-3 * np.eye(41)[20]
    difference = (mbd.SmoothingSpline(ts, y + step, 1e-6)(half) - mbd.SmoothingSpline(ts, y - step, 1e-6)(half)) / 2e-3
    np.testing.assert_allclose(slope[20], difference, rtol=1e-7)


def test_smoothing_by_generalized_cross_validation(rng: np.random.Generator) -> None:
    """The smoothing has the least score `n Σ (y_k − f(t_k))² / (n − tr A)²`, computed from the fits themselves."""
    ts = np.sort(rng.uniform(0.0, 1.0, 40))
    y = np.cos(9 * ts) + 0.05 * rng.standard_normal(40)

    def score(p: float) -> float:
        fitted = lambda y: jax.vmap(mbd.SmoothingSpline(ts, y, p))(jnp.asarray(ts))  # noqa: E731
        A = np.asarray(jax.jacfwd(fitted)(jnp.asarray(y)))
        return len(y) * float(np.sum((y - A @ y) ** 2)) / (len(y) - np.trace(A)) ** 2

    found = np.log10(mbd.SmoothingSpline(ts, y).smoothing)
    best = scipy.optimize.minimize_scalar(lambda x: score(10.0**x), bounds=(found - 1, found + 1), method="bounded")
    assert found == pytest.approx(best.x, abs=1e-4)  # pyright: ignore


def b_splines(knots: list[Any], ts: np.ndarray, x: Any, order: int) -> dict[int, Any]:
    """The quintic B-splines that are not zero at x, or their derivatives, by their places: the recursion of de Boor."""
    k = min(max(int(np.searchsorted(ts, float(x), side="right")) - 1, 0), len(ts) - 2) + 5
    found = {k: mpmath.mpf(1)}
    for degree in range(1, 6):
        slope = lambda i, d=degree, f=found: f[i] / (knots[i + d] - knots[i]) if i in f else mpmath.mpf(0)  # noqa: E731
        pairs = {i: (slope(i), slope(i + 1)) for i in range(k - degree, k + 1)}
        if degree > 5 - order:
            found = {i: degree * (a - b) for i, (a, b) in pairs.items()}
        else:
            found = {i: (x - knots[i]) * a + (knots[i + degree + 1] - x) * b for i, (a, b) in pairs.items()}
    return found


def of_least_criterion(ts: np.ndarray, y: np.ndarray, p: float, at: np.ndarray) -> list[np.ndarray]:
    """Values and two derivatives of the quintic spline of least `Σ (y − f)² + p ∫ f⃛² dt`, from normal equations with 40
    digits: their condition is 1e14, so that double precision would tell of its own errors."""
    with mpmath.workdps(40):
        times = [mpmath.mpf(float(t)) for t in ts]
        knots = [times[0]] * 5 + times + [times[-1]] * 5
        # The third derivative is quadratic, its square exact by three points of Gauss.
        root, terms = mpmath.sqrt(mpmath.mpf(3) / 5), [(t, 0, mpmath.mpf(1), v) for t, v in zip(times, y, strict=True)]
        for a, b in itertools.pairwise(times):
            points = (-root, 5), (0, 8), (root, 5)
            terms += [((a + b) / 2 + (b - a) / 2 * x, 3, p * (b - a) / 18 * w, 0.0) for x, w in points]
        n = len(knots) - 6
        gram, right = mpmath.zeros(n), mpmath.zeros(n, 1)
        for x, order, weight, value in terms:
            row = b_splines(knots, ts, x, order)
            for i, j in itertools.product(row, row):
                gram[i, j] += weight * row[i] * row[j]
            for i in row:
                right[i] += weight * row[i] * float(value)
        c = mpmath.lu_solve(gram, right)
        rows = ([b_splines(knots, ts, mpmath.mpf(float(x)), k) for x in at] for k in range(3))
        return [np.array([float(sum(v * c[i] for i, v in row.items())) for row in each]) for each in rows]


@pytest.mark.parametrize("p", [1e-12, 1e-6, 1e-2, 1e2])
def test_a_smoothing_spline_minimises_its_criterion(rng: np.random.Generator, p: float) -> None:
    ts, y = scattered(rng, 60)
    found, at = mbd.SmoothingSpline(ts, y, p), np.linspace(0.0, 2.0, 301)
    for exact, tolerance in zip(of_least_criterion(ts, y, p, at), (1e-11, 1e-9, 1e-8), strict=True):
        np.testing.assert_allclose(jax.vmap(found)(jnp.asarray(at)), exact, atol=tolerance * np.abs(exact).max())
        found = jax.grad(found)
    assert np.array_equal(mbd.SmoothingSpline(ts, y, p).breaks, ts[:-1])


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("degree", [3, 5])
def test_interpolating_splines_are_those_of_scipy(rng: np.random.Generator, degree: int, closed: bool) -> None:
    ts = np.sort(np.append(rng.uniform(0.0, 2.0, 13), [0.0, 2.0]))
    values = rng.standard_normal((14 if closed else 15, 3))
    whole = np.concatenate([values, values[:1]]) if closed else values
    exact = scipy.interpolate.make_interp_spline(ts, whole, k=degree, bc_type="periodic" if closed else None)
    at = np.linspace(0.0, 2.0, 201)[:-1]
    for given in (values, jnp.asarray(values)):
        breaks, coefficients = spline_through(ts, given, degree, closed)
        of = partial(polynomial, jnp.asarray(breaks), jnp.asarray(coefficients))
        found = jax.vmap(of)(jnp.asarray(at))
        np.testing.assert_allclose(found, exact(at), atol=1e-9 * np.abs(exact(at)).max())
    traced = jax.jit(lambda values: spline_through(ts, values, degree, closed)[1])(values)
    np.testing.assert_allclose(traced, coefficients, rtol=1e-7, atol=1e-7 * np.abs(coefficients).max())


@pytest.mark.parametrize("p", [0, 1e-6, 1e-1])
def test_a_spline_is_linear_in_its_samples(rng: np.random.Generator, p: float) -> None:
    """Derivatives of both modes are what the spline of the change is; the same under `jit` and over a batch."""
    ts, y = scattered(rng, 40)
    change, at = rng.standard_normal(40), jnp.linspace(0.0, 2.0, 7)
    values = lambda y: jax.vmap(mbd.SmoothingSpline(ts, y, p))(at)  # noqa: E731
    exact = values(change)
    y = jnp.asarray(y)
    np.testing.assert_allclose(jax.jvp(values, (y,), (jnp.asarray(change),))[1], exact, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(jax.jit(jax.jacrev(values))(y) @ change, exact, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(jax.vmap(values)(jnp.stack([y, 3 * y]))[1], 3 * values(y), rtol=1e-8, atol=1e-8)


def test_where_a_spline_smooths_over_hundreds_of_samples() -> None:
    """A parabola, and a tone that is taken away from it: the condition is 1e8, that of normal equations 1e16."""
    ts = np.linspace(0.0, 1.0, 4001)
    parabola, tone = 1 - 3 * ts + 2 * ts**2, 0.1 * np.sin(2 * np.pi * 500 * ts)
    quiet, found = (jax.vmap(mbd.SmoothingSpline(ts, y, 1e-2))(jnp.asarray(ts)) for y in (parabola, parabola + tone))
    np.testing.assert_allclose(quiet, parabola, atol=1e-9)
    np.testing.assert_allclose(found, parabola, atol=1e-3)


def test_twenty_thousand_samples(rng: np.random.Generator) -> None:
    """The motion is found in the noise; a matrix of all samples by all would take 3 GB."""
    ts = np.linspace(0.0, 20.0, 20_000)
    motion = 0.5 * np.sin(4 * ts)
    tracemalloc.start()
    found = mbd.SmoothingSpline(ts, motion + 1e-3 * rng.standard_normal(20_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    error = np.asarray(jax.jit(jax.vmap(found))(jnp.asarray(ts))) - motion
    assert np.sqrt(np.mean(error**2)) < 1.2e-4
    middle = lambda y: mbd.SmoothingSpline(ts, y, found.smoothing)(jnp.asarray(10.0))  # noqa: E731
    slope = jax.jit(jax.grad(middle))(jnp.asarray(motion))
    np.testing.assert_allclose(jnp.vdot(slope, motion), middle(motion), rtol=1e-9)


def test_steps_pass_over_the_samples_of_a_spline() -> None:
    """Its fifth derivative jumps there, which no step needs to end at; a `Table` inside another function counts."""
    rod, ts = pl.Body("rod", 1.0, 0.1), np.linspace(0.0, 1.0, 9)
    pin = pl.Revolute("O", pl.ground.at(), rod.at(-0.5))
    spline, table = mbd.SmoothingSpline(ts, np.sin(ts), 0), mbd.Table(ts, np.sin(ts))
    assert (spline.order, spline.ends_steps) == (5, False)

    def torque(motion: Any) -> pl.Mechanism:
        return pl.Mechanism([rod], [pin], [pl.JointForce("motor", "O.angle", motion)])

    assert not declared_times(torque(spline))
    assert not declared_times(pl.Mechanism([rod], [pin], drivers=[pl.Driver("motor", "O.angle", spline)]))
    (found,) = declared_times(torque(mbd.Piecewise([0.5], [spline, 0.0])))
    np.testing.assert_array_equal(found.times, [0.5])
    assert len(declared_times(torque(mbd.Piecewise([0.5], [table, spline])))) == 2


def test_a_function_of_a_users_class_ends_steps_at_its_breaks() -> None:
    """A torque that begins at a time: `ω(1) = (1 − b)² / 2` for a unit inertia; and its derivative by the break."""

    class Ramp(mbd.extend.AbstractFunction):
        breaks: Array
        order: int = eqx.field(static=True, default=1)

        def value(self, t: Array, *args: Any) -> Array:
            return jnp.where(t < self.breaks[0], 0.0, t - self.breaks[0])

    rotor = pl.Body("rotor", 1.0, 1.0)

    def speed(at: Array) -> Array:
        motor = pl.JointForce("motor", "O.angle", Ramp(at[None]))
        mechanism = pl.Mechanism([rotor], [pl.Revolute("O", pl.ground.at(), rotor.at())], [motor])
        return mbd.simulate(mechanism, mbd.assemble(mechanism), jnp.array([0.0, 1.0]))["rotor.omega"][-1]

    at = jnp.asarray(0.3)
    np.testing.assert_allclose(speed(at), 0.5 * 0.7**2, rtol=1e-10)
    np.testing.assert_allclose(jax.grad(speed)(at), -0.7, rtol=1e-8)


def test_smoothing_is_a_number_that_is_known() -> None:
    ts, half = np.arange(8.0), jnp.asarray(2.5)
    with pytest.raises(mbd.MechanismError, match="traced"):
        jax.jit(lambda y: mbd.SmoothingSpline(ts, y)(half))(ts)
    np.testing.assert_allclose(jax.jit(lambda y: mbd.SmoothingSpline(ts, y, 1.0)(half))(ts), 2.5, rtol=1e-12)
