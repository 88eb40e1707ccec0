"""Derivatives of analyses outside of `jit`: calls that run as NumPy code and are stored, equal to those inside."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.engine.calls import calls, first_calls
from jaxmbd.engine.calls.cached_function import cached_on_disk
from tests.engine.calls.test_disk_cache import files, folder, forget
from tests.marks import slow_but

__all__ = ["folder"]


@cached_on_disk
def curve(x: Any, scale: Any, how: str) -> dict[str, Any]:
    """An analysis with results of all kinds, and derivatives of all orders."""
    y = jnp.cumsum(jnp.sin(scale * x) * x)
    return {"y": y, "largest": jnp.argmax(y), "positive": y > 0, "how": how, "third": (y**3, scale * x[0])}


def total(x: Any, scale: Any) -> Any:
    """A scalar that depends on two of the results."""
    found = curve(x, scale, "plain")
    return jnp.sum(found["y"] ** 2) + found["third"][1]


X, SCALE = np.array([0.3, -0.4, 0.9]), np.array(1.7)


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compilation of an analysis is an error."""

    def refuse(call: Any) -> Any:
        raise AssertionError(f"{call._call.name} is compiled")

    monkeypatch.setenv("JAXMBD_CACHE_MIB", "0")
    forget()
    monkeypatch.setattr(first_calls.FirstCalls, "_compile", refuse)


def in_jit(function: Any, *arguments: Any) -> Any:
    """The result of JAX alone: inside `jit` there are no such calls."""
    assert "jaxmbd_call" not in str(jax.make_jaxpr(function)(*arguments))
    return jax.jit(function)(*arguments)


@pytest.mark.parametrize(
    "transformed",
    [
        jax.grad(total), jax.grad(total, argnums=(0, 1)), jax.jacfwd(total, argnums=(0, 1)), jax.hessian(total),
        jax.jacfwd(jax.jacfwd(total)), jax.jacrev(jax.jacrev(total)), jax.jacrev(jax.jacfwd(total)),
        jax.grad(lambda x, s: jax.jvp(lambda x: total(x, s), (x,), (jnp.cos(x),))[1]),
        jax.jacrev(lambda x, s: curve(x, s, "plain")["y"]), jax.jacfwd(lambda x, s: curve(x, s, "plain")["third"]),
        lambda x, s: jax.linearize(lambda x: total(x, s), x)[1](jnp.cos(x)),
        lambda x, s: jax.vmap(jax.linearize(lambda x: total(x, s), x)[1])(jnp.eye(3)),
        lambda x, s: jax.jit(jax.linearize(lambda x: total(x, s), x)[1])(jnp.cos(x)),
        lambda x, s: jax.vmap(jax.vjp(lambda x: curve(x, s, "plain")["y"], x)[1])(jnp.eye(3)[:2]),
        lambda x, s: jax.jvp(lambda x: curve(x, s, "plain")["third"], (x,), (jnp.cos(x),)),
    ],
)  # fmt: skip
def test_every_derivative_is_that_inside_jit(transformed: Any, without_compiler: None) -> None:
    expected, found = in_jit(transformed, X, SCALE), transformed(X, SCALE)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14), found, expected)


def test_results_that_have_no_derivative_are_known_under_one(without_compiler: None) -> None:
    seen = list[Any]()

    def read(x: Any) -> Any:
        found = curve(x, SCALE, "plain")
        seen.append((int(found["largest"]), [bool(b) for b in found["positive"]], found["how"]))
        return found["y"][-1]

    jax.grad(read)(X)
    jax.jacfwd(read)(X)
    jax.hessian(read)(X)
    y = np.cumsum(np.sin(SCALE * X) * X)
    assert seen == [(int(np.argmax(y)), [*map(bool, y > 0)], "plain")] * 3


def test_a_known_gradient_is_not_traced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process reads the analysis, its linearization and its transpose from the disk."""
    forget()
    first = jax.grad(total, argnums=(0, 1))(X, SCALE)
    sensitivities = jax.jacfwd(total)(X, SCALE)
    names = sorted(path.name.partition("-")[0] for path in files(folder))
    assert {
        "jaxmbd_curve", "jaxmbd_curve_linearization", "jaxmbd_curve_linearization_linearmap_transpose",
        "jaxmbd_curve_pushforward_batch",
    } <= {*names}  # fmt: skip
    forget()
    with monkeypatch.context() as patched:
        for module in (calls, first_calls):
            patched.setattr(module, "traced", lambda call: pytest.fail(f"{call.name} is traced"))
        jax.tree.map(np.testing.assert_array_equal, jax.grad(total, argnums=(0, 1))(X, SCALE), first)
        np.testing.assert_array_equal(jax.jacfwd(total)(X, SCALE), sensitivities)


def test_a_function_that_is_not_stored_has_the_same_derivatives(folder: Path) -> None:
    """Its linearization is on disk no more than it is, and a linear map whose linearization was stored is traced."""
    forget()
    expected = jax.grad(total)(X, SCALE)
    for path in files(folder):
        if "transpose" in path.name:
            path.unlink()
    forget()
    np.testing.assert_array_equal(jax.grad(total)(X, SCALE), expected)


@pytest.mark.parametrize("name", slow_but(["heavy-top"], ["slider-crank", "heavy-top"]))
def test_gradients_of_motions_are_those_inside_jit(name: str, without_compiler: None) -> None:
    """Assembly, motion and readings together, in both modes."""
    example, ts = mbd.examples.get(name), np.linspace(0.0, 0.2, 5)
    state = example.state()

    def end(v: Any) -> Any:
        begun = state_with(state, v)
        solution = mbd.simulate(example.mechanism, begun, ts)
        return jnp.sum(solution.q[-1]) + jnp.sum(solution.v[-1])

    expected = in_jit(jax.grad(end), state.v)
    np.testing.assert_allclose(jax.grad(end)(state.v), expected, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(jax.jacfwd(end)(state.v), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "formulation", [mbd.Projection(), pytest.param(mbd.CoordinatePartitioning(), marks=pytest.mark.slow)]
)
def test_formulations_that_count_freedoms_are_differentiated(formulation: Any) -> None:
    """`simulate` then computes how many there are, from values that are being differentiated."""
    example = mbd.examples.get("pendulum")
    state = example.state()

    def end(gravity: Any) -> Any:
        mechanism = eqx.tree_at(lambda m: m["gravity"].acceleration, example.mechanism, jnp.asarray(gravity))
        return mbd.simulate(mechanism, state, [0.0, 0.2], formulation=formulation, rtol=1e-11, atol=1e-11).q[-1, 2]

    step = 1e-3
    expected = (end(9.81 + step) - end(9.81 - step)) / (2 * step)
    _, found = jax.jvp(end, (9.81,), (1.0,))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_failure_under_a_derivative_says_why() -> None:
    """In the words that a plain call has, not those of a compiled program."""
    example = mbd.examples.pendulum()

    def end(v: Any) -> Any:
        return mbd.simulate(example.mechanism, state_with(example.state(), v), [0.0, 1.0], max_steps=2).q[-1, 0]

    v = example.state().v
    with pytest.raises(mbd.SolveError) as plain:
        end(v)
    for derivative in (jax.grad, jax.jacfwd):
        with pytest.raises(mbd.SolveError) as found:
            derivative(end)(v)
        assert str(found.value) == str(plain.value)


def state_with(state: mbd.State, v: Any) -> mbd.State:
    """The state with other speeds."""
    return eqx.tree_at(lambda s: s.v, state, v)
