"""Eigenvalues and eigenvectors of small motions, and their derivatives: repeated ones, and entries of rounding size."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.linearization import eigen
from jaxmbd.analyses.linearization.eigen import general, symmetric
from tests.planar_examples import at_rest

EXACT = 1e-12


def test_eigenvalues_change_as_they_should(rng: np.random.Generator) -> None:
    (A, dA), h = (jnp.asarray(rng.normal(size=(5, 5))) for _ in range(2)), 1e-6

    def projector(A: Array) -> Array:
        x, w = general(A)[1][:, 0], general(A.T)[1][:, 0]
        return jnp.outer(x, w) / jnp.sum(w * x)

    for f in (lambda A: general(A)[0], projector):
        _, found = jax.jvp(f, (A,), (dA,))
        np.testing.assert_allclose(found, (f(A + h * dA) - f(A - h * dA)) / (2 * h), atol=1e-7)
    real = lambda A: jnp.sum(general(A)[0].real ** 3)  # noqa: E731
    np.testing.assert_allclose(jnp.sum(jax.grad(real)(A) * dA), jax.jvp(real, (A,), (dA,))[1], rtol=1e-10)


def test_repeated_eigenvalues_have_finite_derivatives() -> None:
    """Two equal ones, two that share one eigenvector, and a simple one; only the last has a derivative of its own."""
    A = jnp.zeros((5, 5)).at[np.diag_indices(5)].set(jnp.array([1.0, 1.0, 0.0, 0.0, 3.0])).at[2, 3].set(1.0)
    values, change = jax.jvp(lambda A: general(A)[0], (A,), (jnp.eye(5),))
    np.testing.assert_allclose(values, [0, 0, 1, 1, 3], atol=EXACT)
    np.testing.assert_allclose(change[2:], [1, 1, 1], atol=EXACT)
    np.testing.assert_allclose(change[:2], [0, 0], atol=EXACT)
    slope = jax.grad(lambda A: general(A)[0].real[-1])(A)
    np.testing.assert_allclose(slope, np.diag([0, 0, 0, 0, 1.0]), atol=EXACT)
    S = jnp.diag(jnp.array([2.0, 2.0, 5.0]))
    np.testing.assert_allclose(jax.grad(lambda S: symmetric(S)[0][2])(S), np.diag([0, 0, 1.0]), atol=EXACT)


def flying(stiffness: Any) -> mbd.LinearSystem:
    """Two bodies with a pin and a torsional spring, that fly at (3, 1) m/s."""
    a, b = pl.Body("a", 1.0, 0.1, (0.0, 0.0, 0.0)), pl.Body("b", 1.5, 0.2, (1.0, 0.0, 0.0))
    spring = pl.TorsionalSpringDamper("spring", a.at(0.5, 0.0), b.at(-0.5, 0.0), stiffness)
    pin = pl.Revolute("A", a.at(0.5, 0.0), b.at(-0.5, 0.0))
    mechanism = pl.Mechanism([a, b], [pin], [spring], coordinates="joint", floating=True)
    return mbd.linearize(mechanism, at_rest(mechanism, [0.1, 0.2, 0.3, 0.0], a_vx=3.0, a_vy=1.0))


def test_entries_of_rounding_size_do_not_take_part() -> None:
    """The vibration is that of the pin, with the reduced mass matrix of a floating pair, and `dω/dk = ω/2k`."""
    system = flying(20.0)
    modes = system.modes(undamped=False)
    assert bool(modes.accurate.all())
    np.testing.assert_allclose(modes.shares[:, -1], [0, 0, 0, 1], atol=1e-9)
    assert modes.names[3] == "A.angle"
    vectors, size = np.concatenate([modes.reduced, modes.reduced * modes.eigenvalues[None]]), float(modes.omega[-1])
    np.testing.assert_allclose(np.asarray(system.A) @ vectors[:, -1], modes.eigenvalues[-1] * vectors[:, -1], atol=1e-9)
    fastest = lambda k: flying(k).eigenvalues[-2].imag  # noqa: E731
    np.testing.assert_allclose(jax.jacfwd(fastest)(jnp.asarray(20.0)), size / 40, rtol=1e-9)
    np.testing.assert_allclose(jax.grad(fastest)(jnp.asarray(20.0)), size / 40, rtol=1e-9)


def test_eigenvectors_are_right_whatever_rounding_leaves() -> None:
    """Tiny entries close cycles between states that are else apart, and balancing would blow them up."""
    A = np.diag([-14.0, -3.0, 5.0, -0.3]) + np.diag([2.0, 7.0, 1.0], 1)
    tiny = np.tril(10.0 ** -np.array([[0, 0, 0, 0], [17, 0, 0, 0], [82, 33, 0, 0], [60, 47, 19, 0]]), -1)
    found = general(jnp.asarray(A + tiny))
    assert bool(found.accurate.all())
    np.testing.assert_allclose(A @ np.asarray(found.right), found.right * found.values[None], atol=1e-12)
    np.testing.assert_allclose(found.values, [-0.3, -3, 5, -14], atol=1e-12)
    slopes = jax.jacrev(lambda A: general(A).values.real)(jnp.asarray(A + tiny))
    np.testing.assert_allclose(np.diagonal(slopes, axis1=1, axis2=2), np.eye(4)[[3, 1, 2, 0]], atol=1e-10)
    sizes = jnp.array([1.0, 1e-3, 1e4, 10.0])  # other units of x
    scaled = general(jnp.asarray((A + tiny) * sizes[None] / sizes[:, None]), 1 / sizes)
    np.testing.assert_allclose(scaled.values, found.values, atol=1e-12)
    assert bool(scaled.accurate.all())


@pytest.mark.slow
def test_eigenvectors_that_are_none_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In print, and by derivatives that are not numbers."""
    monkeypatch.setattr(eigen, "_ACCURATE", 0.0)
    A = jnp.asarray(np.random.default_rng(1).normal(size=(7, 7)))  # of a size that no other test has differentiated
    assert not general(A).accurate.any()
    assert np.isnan(jax.jacfwd(lambda A: general(A).values.real)(A)).all()
    text = str(flying(20.0).modes(undamped=False))
    assert text.count("inaccurate") > 0


def test_residuals_are_shares_of_the_largest_entry() -> None:
    """So that units decide nothing; a matrix of zeros has eigenvectors."""
    A = jnp.asarray(np.random.default_rng(2).normal(size=(5, 5)))
    for scale in (2.0**-60, 2.0**60):
        np.testing.assert_allclose(general(scale * A).residual, general(A).residual, rtol=1e-12)
    assert (general(A).residual > 0).any()
    np.testing.assert_array_equal(general(jnp.zeros((3, 3))).residual, 0.0)
