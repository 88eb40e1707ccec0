"""Errors of running programs: the library's own sentence comes first, whichever way a program was compiled."""

import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.state.result_codes import raise_where

SENTENCE = "The step size became too small: "
bar = pl.Body("bar", 1.0, 1 / 12)
runaway = pl.JointForce("run", "A.angle", lambda t, q, w, p: p * w**3, 5.0)
mechanism = pl.Mechanism([bar], [pl.Revolute("A", pl.ground.at(), bar.at(-0.5))], [runaway], coordinates="joint")
start = mbd.assemble(mechanism, {"A.angle": 0.1}, speeds={"A.angle": 3.0})


def end(factor: Any, solver: Any = None) -> Any:
    pushed = eqx.tree_at(lambda s: s.v, start, start.v * factor)
    return mbd.simulate(mechanism, pushed, [0.0, 1.0], solver=solver, max_steps=400).q[-1, 0]


def first_words(call: Callable[[], Any]) -> str:
    with pytest.raises((RuntimeError, ValueError)) as caught:  # JAX raises the one or the other
        call()
    _, colon, text = str(caught.value).partition(": ")  # after the name of the kind of error
    assert colon
    return text


@pytest.mark.parametrize("solver", [None, pytest.param("stiff", marks=pytest.mark.slow)])
def test_the_sentence_comes_first(solver: Any) -> None:
    motion = lambda factor: end(factor, solver)  # noqa: E731
    assert first_words(lambda: jax.jit(motion)(1.0)).startswith(SENTENCE)
    batch = first_words(lambda: jax.jit(jax.vmap(motion))(jnp.array([0.0, 1.0, 2.0])))
    assert batch.startswith(f"2 of 3 instances of the batch failed.\nInstance 1: {SENTENCE}")


@pytest.mark.slow
def test_the_sentence_comes_first_under_derivatives() -> None:
    assert first_words(lambda: jax.jit(jax.grad(end))(1.0)).startswith(SENTENCE)
    assert first_words(lambda: jax.jit(jax.jacfwd(end))(1.0)).startswith(SENTENCE)


def test_assembly_says_what_misses() -> None:
    absolute = mechanism.with_coordinates("absolute")
    text = first_words(lambda: jax.jit(lambda x: mbd.assemble(absolute, {"bar.x": x}).q)(5.0))
    assert text.startswith("Assembly failed: the joints cannot be closed at these values: 'bar.x' misses by ")


def test_long_texts_are_cut_and_values_pass() -> None:
    """The text of an error has room for 4,096 bytes; characters are not cut in two."""
    long = "ä" * 5000 + "\x1b[2J"
    check = lambda x: raise_where(x, x > 1.0, lambda: long)  # noqa: E731
    assert float(jax.jit(check)(0.5)) == 0.5
    text = first_words(lambda: jax.jit(check)(2.0))
    assert text.startswith("ä" * 1900)
    assert "�" not in text
    assert len(text.encode()) < 4200
    np.testing.assert_array_equal(jax.jit(jax.vmap(check))(jnp.array([0.5, 0.25])), [0.5, 0.25])


def test_a_large_batch_raises_where_one_thread_computes() -> None:
    """Copies of what the text may tell would wait for that thread, and for ever. It runs the program, since the numbers
    are NumPy's: with arrays of JAX that are ready the program runs on the thread that called it."""
    assert os.environ["NPROC"] == "1"

    def check(x: Any) -> Any:
        many = jnp.full(20, x)
        return raise_where(x, x == 7.0, lambda many: f"It is {many[3]:g}.", many)

    text = first_words(lambda: jax.block_until_ready(jax.jit(jax.vmap(check))(np.arange(100_000.0))))
    assert text.startswith("1 of 100000 instances of the batch failed.\nInstance 7: It is 7.")
    text = first_words(
        lambda: jax.block_until_ready(jax.jit(jax.vmap(jax.vmap(check), 1))(jnp.arange(9.0).reshape(3, 3)))
    )
    assert text.startswith("1 of 9 instances of the batch failed.\nInstance 1, 2: It is 7.")
    with jax.disable_jit(), pytest.raises(RuntimeError, match="It is 7"):
        check(jnp.asarray(7.0))


def test_equinox_tells_it_as_its_own() -> None:
    with pytest.raises(RuntimeError, match=f"EquinoxRuntimeError: {SENTENCE}"):
        eqx.filter_jit(end)(1.0)
