"""Normal forms of expressions: identities that must vanish, and the textbook's equations of known mechanisms."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import sympy

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.space import rotation as rot
from jaxmbd.symbolic._normal import _factored, normal_forms
from jaxmbd.symbolic.graph.trace import trace
from tests import spatial_examples
from tests.planar_examples import ALL, Example

E = ["e0", "e1", "e2", "e3"]
x, y = sympy.symbols("x y", real=True)
R = sympy.Rational
SEVENTH = np.pi / 7
TOLERANCE = 1e-12  # relative to the largest entry


def forms(function: Callable[..., Any], *names: Any, units: Sequence[Sequence[str]] = ()) -> list[Any]:
    return normal_forms(np.asarray(trace(function, *names).result), {}, units)


IDENTITIES: dict[str, tuple[Callable[..., Any], Any]] = {
    "circle": (lambda x, y: jnp.sin(x) ** 2 + jnp.cos(x) ** 2, 1),
    "sum of angles": (lambda x, y: jnp.sin(x + y) - jnp.sin(x) * jnp.cos(y) - jnp.cos(x) * jnp.sin(y), 0),
    "difference": (lambda x, y: jnp.cos(x) * jnp.cos(x + y) + jnp.sin(x) * jnp.sin(x + y), sympy.cos(y)),
    "three times": (lambda x, y: jnp.sin(3 * x) - 3 * jnp.sin(x) + 4 * jnp.sin(x) ** 3, 0),
    "quarter turn": (lambda x, y: jnp.sin(x + jnp.pi / 2), sympy.cos(x)),
    "one over": (lambda x, y: jnp.cos(x) * (1 / (x * jnp.cos(x))) * x, 1),
    "quotient": (lambda x, y: (x * x + 2 * x * y + y * y) / ((2 * x + 2 * y) * (x + y)), R(1, 2)),
    "root": (lambda x, y: jnp.sqrt(4 * jnp.sin(y) ** 2 + 4 * jnp.cos(y) ** 2), 2),
    "inside": (lambda x, y: jnp.tanh((x + y) ** 2) - jnp.tanh(x * x + 2 * x * y + y * y), 0),
    "decided": (lambda x, y: jnp.where(jnp.sin(x) ** 2 + jnp.cos(x) ** 2 > 0, x, y), x),
    "rounding": (lambda x, y: SEVENTH * x * (y + 1) - x * y * np.nextafter(SEVENTH, 1) - SEVENTH * x, 0),
    "third power": (lambda x, y: (x + y) ** 3 - x**3 - y**3 - 3 * x * y * (x + y), 0),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities(name: str) -> None:
    function, expected = IDENTITIES[name]
    assert forms(function, "x", "y") == [expected]


def test_euler_parameters_are_of_length_one() -> None:
    """`|e|² = 1`, under a root and below a fraction bar too; `R Rᵀ = 1`, `R` of textbooks."""
    assert forms(lambda e: jnp.sum(e * e), E, units=[E]) == [1]
    assert forms(lambda e: e[1] / jnp.sqrt(jnp.sum(e * e)) ** 3, E, units=[E]) == [sympy.Symbol("e1", real=True)]
    square = forms(lambda e: rot.matrix(e) @ rot.matrix(e).T, E, units=[E])
    assert sympy.Matrix(3, 3, square) == sympy.eye(3)
    e0, e1, e2, e3 = sympy.symbols(E, real=True)
    expected = [1 - 2 * e2**2 - 2 * e3**2, 2 * e1 * e2 - 2 * e0 * e3, 2 * e1 * e3 + 2 * e0 * e2]
    row = forms(lambda e: rot.matrix(e)[0], E, units=[E])
    assert [sympy.expand(a - b) for a, b in zip(row, expected, strict=True)] == [0, 0, 0]
    assert max(map(sympy.count_ops, row)) <= 6


def test_each_angle_in_the_shorter_form() -> None:
    """`cos²` where it is shorter than `1 − sin²`; sums of angles only where they are met; common factors before."""
    assert forms(lambda x: 1 - jnp.sin(x) ** 2, "x") == [sympy.cos(x) ** 2]
    product = forms(lambda x, y: jnp.sin(x) * jnp.cos(y) * 3, "x", "y")
    assert product == [3 * sympy.sin(x) * sympy.cos(y)]
    rate = forms(lambda x, u, v: jnp.sin(x) * (u + v) ** 2 - jnp.sin(x) * u**2, "x", "u", "v")
    u, v = sympy.symbols("u v", real=True)
    assert rate == [v * (2 * u + v) * sympy.sin(x)]


def test_lengths_are_written_without_their_guards() -> None:
    """A root guarded twice, as a length that may be zero is: the formula is the one for other values."""

    def length(x: Any, y: Any) -> Any:
        square = x * x + y * y
        root = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)
        return jnp.where(root > 0, x / jnp.where(root > 0, root, 1.0), 0.0)

    assert forms(length, "x", "y") == [x / sympy.sqrt(x**2 + y**2)]


def test_a_branch_knows_its_condition() -> None:
    """Another guarded quotient: the choice stays, once, and what it guards is free of it."""
    guarded = lambda x: jnp.where(x > 1, 1 / jnp.where(x > 1, x - 1, 1.0), 0.0)  # noqa: E731
    (found,) = forms(guarded, "x")
    assert len(found.atoms(sympy.Piecewise)) == 1
    assert found.subs({x: 3}) == R(1, 2)
    assert found.subs({x: 0}) == 0
    assert sympy.simplify(found.atoms(sympy.Piecewise).pop().args[0][0] - 1 / (x - 1)) == 0


def test_what_grows_too_long_is_given_up() -> None:
    """Ten sums of eleven symbols multiplied; what else is asked for is found."""
    names = [f"a{i}" for i in range(11)]
    found = forms(lambda a: jnp.stack([jnp.prod(jnp.stack([a @ a**k for k in range(1, 10)])), a[0] - a[0]]), names)
    assert found == [None, 0]


def test_parameters_have_the_symbols_given() -> None:
    m = sympy.Symbol("m", positive=True)
    nodes = np.asarray(trace(lambda m, x: jnp.sqrt(m) * x + m * x, "m", "x").result)
    (found,) = normal_forms(nodes, {"m": m})
    assert sympy.expand(found - (sympy.sqrt(m) * x + m * x)) == 0


# --- mechanisms -----------------------------------------------------------------------------------


def described(mechanism: Any, coordinates: str = "joint") -> tuple[mbd.System, mbd.SymbolicSystem, list[list[str]]]:
    system = mbd.export(mechanism.with_coordinates(coordinates))
    symbolic = mbd.SymbolicSystem(system, simplify=False)
    names = [symbol.name for symbol in symbolic.vQ]
    starts = [i for i, name in enumerate(system.coordinates) if name.endswith(".e0")]
    return system, symbolic, [names[i : i + 4] for i in starts]


def written(symbolic: mbd.SymbolicSystem, piece: str, units: Sequence[Sequence[str]]) -> list[Any]:
    return normal_forms(symbolic._trace(piece).result, {}, units)


def test_the_heavy_top_is_eulers() -> None:
    """`M = J + m (l² 1 − l lᵀ)`; `F = −ω × M ω + l × m Rᵀ g`, about the fixed point, in the body's axes."""
    _, symbolic, units = described(spatial_examples.heavy_top().mechanism)
    J, m, l, g = (R(15, 64), R(15, 32), R(15, 64)), 15, sympy.Matrix([0, 1, 0]), R(981, 100)
    M = sympy.diag(*J) + m * (l.dot(l) * sympy.eye(3) - l * l.T)
    assert sympy.Matrix(3, 3, written(symbolic, "xM", units)) == M == sympy.diag(R(975, 64), R(15, 32), R(975, 64))
    e0, e1, e2, e3 = symbolic.vQ
    omega = symbolic.vP
    weight = -m * g * sympy.Matrix([2 * e1 * e3 - 2 * e0 * e2, 2 * e2 * e3 + 2 * e0 * e1, 1 - 2 * e1**2 - 2 * e2**2])
    F = sympy.Matrix(written(symbolic, "vF", units))
    assert sympy.expand(F - l.cross(weight) + omega.cross(M * omega)) == sympy.zeros(3, 1)
    assert sympy.count_ops(F) <= 30


def test_the_slider_crank_stays_as_in_the_textbook() -> None:
    slider = pl.Body("slider", 1.5, 1e-3, (0.7, 0, 0))
    crank, bar = pl.Body("crank", 0.3, 0.0045, (0.1, 0, 0)), pl.Body("rod", 1.0, 0.0665, (0.45, 0, 0))
    joints = [
        pl.Prismatic("rail", pl.ground.at(), slider.at()),
        pl.Revolute("O", pl.ground.at(), crank.at(-0.1)),
        pl.Revolute("C", slider.at(), bar.at(0.25)),
        pl.Revolute("B", bar.at(-0.25), crank.at(0.1)),
    ]
    mechanism = pl.Mechanism([slider, crank, bar], joints, [pl.Gravity(9.81)], coordinates="joint", cuts=["B"])
    names = {"O.angle": "theta1", "C.angle": "theta3"}
    symbolic = mbd.SymbolicSystem(mbd.export(mechanism), names, simplify=False)
    theta1, theta3, rate = sympy.symbols("theta1 theta3 thetadot3", real=True)
    s, c = sympy.sin(theta3), sympy.cos(theta3)
    assert written(symbolic, "xM", ()) == [R(5, 2), 0, s / 4, 0, R(3, 400), 0, s / 4, 0, R(129, 1000)]
    expected = [-(rate**2) * c / 4, -R(2943, 10000) * sympy.cos(theta1), R(981, 400) * c]
    assert written(symbolic, "vF", ()) == expected


EXAMPLES: dict[str, Callable[[], Example]] = {
    "heavy_top": spatial_examples.heavy_top,
    "modelica_spatial_four_bar": spatial_examples.modelica_spatial_four_bar,
    "bricard": spatial_examples.bricard,
    "governor": spatial_examples.governor,
    **{name: ALL[name] for name in ("andrews", "slider_crank", "four_bar_with_springs", "modelica_four_bar")},
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_numbers_agree(name: str, rng: np.random.Generator) -> None:
    """At a random state, against the source text of the unsimplified graph."""
    mechanism = EXAMPLES[name]().mechanism.with_coordinates("joint")
    system, symbolic, units = described(mechanism)
    q, p = rng.normal(size=mechanism.nq), rng.normal(size=mechanism.nv)
    for i, coordinate in enumerate(system.coordinates):
        if coordinate.endswith(".e0"):
            q[i : i + 4] /= np.linalg.norm(q[i : i + 4])
    namespace: dict[str, Any] = {}
    exec(symbolic.source("numpy", ("xM", "vF", "gamma")), namespace)
    symbols = [sympy.Symbol("t", real=True), *symbolic.vQ, *symbolic.vP]
    for piece, expected in namespace["equations"](0.3, q, p).items():
        found = written(symbolic, piece, units)
        there = [i for i, entry in enumerate(found) if entry is not None]
        assert len(there) >= 0.6 * len(found)
        values = sympy.lambdify(symbols, [found[i] for i in there], cse=True)(0.3, *q, *p)
        tolerance = TOLERANCE * (1 + np.abs(expected).max(initial=0))
        np.testing.assert_allclose(values, expected.ravel()[there], atol=tolerance, rtol=0)


def test_a_common_factor_is_taken_out() -> None:
    """Of all terms what they share, and of coefficients what leaves small integers; a leading minus, too."""
    x, y = 0, 1
    assert _factored({(x, x): Fraction(2), (x, y): Fraction(4)}) == ({(x,): 2}, {(x,): 1, (y,): 2})
    assert _factored({(x,): Fraction(-1, 3), (y,): Fraction(-1, 2)}) == ({(): Fraction(-1, 6)}, {(x,): 2, (y,): 3})
    assert _factored({(x,): Fraction(7, 1000), (y,): Fraction(1, 7)})[0] == {(): 1}
    assert _factored({(x,): Fraction(2), (y,): 0.5})[0] == {(): 1}
