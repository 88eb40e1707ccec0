"""Constants and simplifications in the graph of scalar expressions: exact as far as they can be."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

from jaxmbd.symbolic._sympy import to_sympy
from jaxmbd.symbolic.graph.node import Graph, in_order
from jaxmbd.symbolic.graph.number import apply, raised
from jaxmbd.symbolic.graph.trace import trace

CONSTANTS = jnp.array([0.5, -1.25, 3.0])


def scalar(function: Callable[..., Any], *symbols: str) -> Any:
    """The result of a function of scalars, as a SymPy expression."""
    return to_sympy(trace(function, *symbols).result)


def ops(function: Callable[..., Any], *inputs: Any) -> list[str]:
    """The operations in the graph of a function, without symbols and constants."""
    nodes = in_order(leaf for array in jax.tree.leaves(trace(function, *inputs).result) for leaf in array.flat)
    return [node.op for node in nodes if node.op not in ("symbol", "const")]


def test_floats_count_as_the_decimals_that_they_were_written_as() -> None:
    mass = scalar(lambda x: (0.0665 + jnp.asarray([0.0625, 0.1])[0] * 1.0) * x + 1 / 3, "x")
    assert mass == sympy.Rational(129, 1000) * sympy.Symbol("x", real=True) + sympy.Rational(1, 3)
    total = trace(lambda x, m: x * jnp.sum(m), "x", ["a", "b"]).graph
    assert total.constant(0.1 + 0.2).value == Fraction(3, 10)
    assert total.constant(0.12345678901234568).value == 0.12345678901234568  # no short decimal: it stays a float
    assert total.constant(np.float32(9.80665)).value == Fraction("9.80665")
    assert total.constant(np.float32(1 / 3)).value == Fraction(1, 3)
    assert total.constant(np.float32(math.pi)).value == math.pi
    assert total.constant(-0.0) is total.constant(0) is total.constant(np.int32(0))
    assert total.constant(True) is not total.constant(1)
    assert total.constant(math.nan) is total.constant(np.float64("nan"))


def test_sums_of_constants_are_exact() -> None:
    masses = jnp.array([0.0665, 0.0625, 0.871])
    assert scalar(lambda x: jnp.sum(masses) + 0 * x, "x") == 1
    assert scalar(lambda x: 0.1 + (x + 0.2) - 0.3, "x") == sympy.Symbol("x", real=True)
    assert scalar(lambda x: jnp.sqrt(jnp.asarray(2.25)) * x**0, "x") == sympy.Rational(3, 2)
    assert scalar(lambda x: jnp.cbrt(jnp.asarray(-0.027)) + 0 * x, "x") == sympy.Rational(-3, 10)


@pytest.mark.parametrize("turns", [-7, -2, -1, 0, 1, 2, 3, 4, 101])
def test_quarter_turns_leave_no_rounding(turns: int) -> None:
    angle = turns * jnp.pi / 2
    rotation = trace(lambda x: jnp.array([[jnp.cos(angle), -jnp.sin(angle)]]) * x, "x").result
    x = sympy.Symbol("x", real=True)
    assert to_sympy(rotation) == sympy.Matrix([[[1, 0, -1, 0][turns % 4] * x, -[0, 1, 0, -1][turns % 4] * x]])


@pytest.mark.parametrize("k", range(-13, 14))
def test_exact_sines(k: int) -> None:
    angle = k * math.pi / 6
    graph = Graph()
    got = trace(lambda x: jnp.stack([jnp.sin(k * jnp.pi / 6), jnp.cos(k * jnp.pi / 6)]) + 0 * x, "x", graph=graph)
    for node, exact in zip(got.result, (sympy.sin(k * sympy.pi / 6), sympy.cos(k * sympy.pi / 6)), strict=True):
        assert isinstance(node.value, Fraction) == exact.is_Rational
        assert float(node.value) == pytest.approx(float(exact), abs=1e-15)
    assert graph.constant(angle).value == (0 if k == 0 else angle)


def test_nearby_angles_are_not_taken_for_quarter_turns() -> None:
    near = trace(lambda x: jnp.cos(jnp.pi / 2 + 1e-12) + 0 * x, "x").result.item()
    assert near.value == pytest.approx(-1e-12, rel=1e-3)


def test_multiples_of_pi_are_named() -> None:
    x = sympy.Symbol("x", real=True)
    assert scalar(lambda x: jnp.sin(x + jnp.pi / 4) - jnp.arctan2(1.0, 0.0), "x") == sympy.sin(x + sympy.pi / 4) - (
        sympy.pi / 2
    )


def test_equal_expressions_are_one_node() -> None:
    result = trace(lambda x, y: (x * y, jnp.sin(y * x), 2 * (x * y) - x * y), "x", "y").result
    product, sine, same = (array.item() for array in result)
    assert sine.args == (product,)
    assert same is product
    assert ops(lambda x, y: jnp.cos(x - y) + 3 * jnp.cos(y - x), "x", "y") == ["sub", "cos", "mul"]
    assert ops(lambda x, y: (x - y) ** 2 - (y - x) ** 2, "x", "y") == []


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, y: x + 0, "x"),
        (lambda x, y: x - x, "0"),
        (lambda x, y: 0 * jnp.exp(x), "0"),
        (lambda x, y: 1 * x / 1, "x"),
        (lambda x, y: jnp.negative(-x), "x"),
        (lambda x, y: -1.0 * x, "neg(x)"),
        (lambda x, y: x / 4, "mul(1/4, x)"),
        (lambda x, y: 3 * (2 * x), "mul(6, x)"),
        (lambda x, y: x * y + -x * y, "0"),
        (lambda x, y: x + (-y), "sub(x, y)"),
        (lambda x, y: x * x * x, "pow(x, 3)"),
        (lambda x, y: jnp.sin(-x) + jnp.sin(x), "0"),
        (lambda x, y: jnp.cos(-x), "cos(x)"),
        (lambda x, y: jnp.where(x > 0, y, y), "y"),
        (lambda x, y: jnp.where(CONSTANTS[0] > 0, x, y), "x"),
        (lambda x, y: jnp.where(~(x > 0), x, y), "select(#3, y, x)"),
        (lambda x, y: y + 3 * x - y / 1 - 3 * x, None),
        (lambda x, y: x / x, "1"),
        (lambda x, y: 2 / (4 / x), "mul(1/2, x)"),
        (lambda x, y: jnp.abs(-x) ** 2, "pow(x, 2)"),
        (lambda x, y: 1 - (1 - x), "x"),
        (lambda x, y: jnp.maximum(jnp.max(x), -jnp.inf), "x"),
    ],
)
def test_simplifications(function: Callable[..., Any], expected: str | None) -> None:
    node = trace(function, "x", "y").result.item()
    assert (str(node) == expected) if expected else (node.op != "const")


def test_powers_of_constants_are_exact_up_to_a_limit() -> None:
    """Beyond it they are floats, so that their numerators stay short."""
    third = Fraction(1, 3)
    for base, exponent in ((third, 5), (third, -5), (Fraction(-7), 0), (Fraction(0), 3), (Fraction(2), 256)):
        found = raised(base, Fraction(exponent))
        assert isinstance(found, Fraction)
        assert found == base**exponent
    beyond = raised(Fraction(3), Fraction(257))
    assert beyond != 3**257
    assert float(beyond) == pytest.approx(3.0**257, rel=1e-14)
    assert raised(Fraction(0), Fraction(-1)) == math.inf


def test_derivative_of_a_pendulum_reads_as_in_a_book() -> None:
    x, v = sympy.symbols("q v", real=True)
    lagrangian = lambda q, v: 0.5 * 0.2 * v**2 + 0.2 * 9.81 * 0.3 * jnp.cos(q)  # noqa: E731
    force = trace(jax.grad(lagrangian), "q", "v").result
    assert to_sympy(force) == -sympy.Rational("0.5886") * sympy.sin(x)
    assert to_sympy(trace(jax.grad(lagrangian, 1), "q", "v").result) == v / 5


def test_rounding_and_choices_as_sympy() -> None:
    x = sympy.Symbol("x", real=True)
    assert scalar(jnp.round, "x") == sympy.floor(x + sympy.Rational(1, 2))
    assert scalar(lambda x: jnp.where(x > 1, x, 0.0), "x") == sympy.Piecewise((x, x > 1), (0, True))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("log", 0, -math.inf), ("log1p", -1, -math.inf), ("log", -1, math.nan), ("asin", 2, math.nan),
        ("acosh", 0, math.nan), ("exp", 10_000, math.inf), ("cosh", -10_000, math.inf),
        ("sinh", -10_000, -math.inf),
    ],
)  # fmt: skip
def test_functions_of_constants_beyond_their_domain(name: str, value: int, expected: float) -> None:
    """A pole is infinite, and what overflows; what is not real is NaN: as XLA has it."""
    np.testing.assert_equal(apply(name, Fraction(value)), expected)
    name = {"asin": "arcsin", "acosh": "arccosh"}.get(name, name)
    np.testing.assert_equal(float(getattr(jnp, name)(value)), expected)
