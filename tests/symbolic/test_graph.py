"""The graph of scalar expressions: it computes what JAX computes, whichever text it is written as."""

import ctypes
import functools
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from jax import lax

from jaxmbd.engine import choice
from jaxmbd.errors import MechanismError
from jaxmbd.symbolic._source import to_c, to_numpy
from jaxmbd.symbolic._sympy import to_sympy
from jaxmbd.symbolic.graph.node import Graph, in_order
from jaxmbd.symbolic.graph.trace import TracedGraph, trace
from tests.c_code import load_c

TOLERANCE = 1e-12  # of each number, relative to the larger of it and one
SAMPLES = 3
CONSTANTS = jnp.array([0.5, -1.25, 3.0])


@dataclass(frozen=True)
class Case:
    """A function and the shapes of its inputs, which are drawn from between `low` and `high`."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...] = ((3,),)
    low: float = -2.0
    high: float = 2.0


def positive(name: str, function: Callable[..., Any], *shapes: tuple[int, ...]) -> Case:
    return Case(name, function, shapes or ((3,),), 0.3, 3.0)


def unit(name: str, function: Callable[..., Any]) -> Case:
    return Case(name, function, ((3,),), -0.9, 0.9)


def pair(name: str, function: Callable[..., Any]) -> Case:
    return Case(name, function, ((3,), (3,)))


def spd(A: jax.Array) -> jax.Array:
    return A @ A.T + jnp.eye(len(A))


def energy(q: jax.Array) -> jax.Array:
    """A double pendulum's, more or less: something with sines of differences, squares and a root."""
    return jnp.cos(q[0] - q[1]) * q[2] ** 2 + jnp.sqrt(1.5 + q[0] ** 2) * jnp.sin(q[1]) / (2 + q[2])


@jax.custom_jvp
def cubed(x: jax.Array) -> jax.Array:
    return x**3


@cubed.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return cubed(primals[0]), 3 * primals[0] ** 2 * tangents[0]


@jax.custom_vjp
def halved(x: jax.Array) -> jax.Array:
    return jnp.sin(x) / 2


halved.defvjp(lambda x: (halved(x), x), lambda x, g: (jnp.cos(x) / 2 * g,))

ELEMENTWISE = [
    pair("add_sub", lambda x, y: (x + y) - (2 * x - y) + 3),
    pair("mul_neg", lambda x, y: -x * (2.5 * y) * -x + x * -(y * 0.1) / 3),
    pair("div", lambda x, y: (2 * x) / (3 + y**2) - 1 / (4 * (x**2 + 1)) + x / 7 + 2 / (1 / (5 + x))),
    Case("trigonometric", lambda x: jnp.sin(x) * jnp.cos(-x) + jnp.tan(x / 3)),
    unit("inverse", lambda x: jnp.arcsin(x) + jnp.arccos(x) * jnp.arctan(x)),
    pair("atan2", lambda x, y: jnp.arctan2(x, y)),
    Case("hyperbolic", lambda x: jnp.sinh(x) - jnp.cosh(x) * jnp.tanh(-x)),
    Case("inverse_hyperbolic", lambda x: jnp.arcsinh(x) + jnp.arccosh(3 + x) * jnp.arctanh(x / 3)),
    positive(
        "logarithms", lambda x: jnp.exp(-x) + jnp.log(x) * jnp.log1p(x) + jnp.expm1(x) + jnp.exp2(x) * jnp.log2(x)
    ),
    positive("roots", lambda x: jnp.sqrt(x) + lax.rsqrt(x) * jnp.cbrt(x)),
    Case("cbrt_negative", jnp.cbrt),
    Case("abs_sign", lambda x: jnp.abs(-x) * jnp.sign(x - 0.5)),
    pair("max_min", lambda x, y: jnp.maximum(x, y) - jnp.minimum(2 * x, 0.5)),
    positive("pow", lambda x, y: x**y + x**0.5 + x**-0.5 + x**2.5 + 2.0**x, (3,), (3,)),
    positive("integer_pow", lambda x: x**2 + x**3 - x**-2 + (-x) ** 3 + (2 * x) ** 5 + (x**2) ** 3 + x * x * x),
    Case("square", lambda x: jnp.square(x - 1)),
    Case("rounding", lambda x: jnp.round(3 * x) + jnp.floor(x) * jnp.ceil(2 * x)),
    Case("round_away", lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)),
    Case("logistic", lambda x: jax.nn.sigmoid(x) + jax.nn.relu(x)),
    Case("erf", lambda x: lax.erf(x) * lax.erfc(x)),
    Case("clip", lambda x: jnp.clip(x, -0.5, 0.5) + lax.clamp(0.0, x, 1.0)),
    pair("remainder", lambda x, y: jnp.mod(5 * x, 1.5) + jnp.remainder(x, y) + jnp.fmod(7 * x, y)),
    pair("comparisons", lambda x, y: 1.0 * (x < y) + 2.0 * (x >= 0.3) + 4.0 * (x != y) + 8.0 * (x == y)),
    pair("more_comparisons", lambda x, y: 1.0 * (x <= y) + 2.0 * (x > 0.3)),
    pair("booleans", lambda x, y: jnp.where((x < y) & ~(x > 0) | (y > 1), x, y**2)),
    pair("xor", lambda x, y: jnp.where((x < y) ^ (y > 0.1), jnp.sin(x), 2.0)),
    pair("boolean_sums", lambda x, y: jnp.sum(x < y) * x + jnp.any(x > 1) + jnp.all(y > -1)),
    Case("double_where", lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)),
    Case("nested_where", lambda x: jnp.where(x > 0, jnp.where(x > 1, x, 2.0), jnp.where(x < -1, x**2, x))),
    Case("finite", lambda x: jnp.where(jnp.isfinite(x), x, 0.0)),
    Case("truthy", lambda x: jnp.where(x.astype(bool), x, 1.0)),
    Case("constants", lambda x: x * CONSTANTS + jnp.pi * 0.0665 + jnp.float32(0.3).astype(float)),
    Case("scalar", lambda x, y: x * jnp.cos(y), ((), ())),
    Case("nothing_symbolic", lambda x: jnp.sort(CONSTANTS)[::-1] + jnp.argmax(CONSTANTS)),
]

MOVES = [
    Case("reshape", lambda x: x.reshape(3, 2).T.ravel() * jnp.arange(6.0), ((2, 3),)),
    Case("broadcast", lambda x: x[:, None] * jnp.ones((3, 2)) + x[None, :1]),
    Case("slices", lambda x: jnp.concatenate([x[1:], x[::-1], x[::2], jnp.flip(x)])),
    Case("stack", lambda x: jnp.stack([x, 2 * x], axis=1)),
    Case("unstack", lambda x: sum(jnp.unstack(x, axis=1)), ((2, 3),)),
    Case("squeeze", lambda x: jnp.squeeze(x[:, :1], axis=1), ((2, 3),)),
    Case("split", lambda x: sum(jnp.split(x, 3)) * 2 + jnp.array_split(x, [1, 3])[1][0], ((6,),)),
    Case("pad", lambda x: jnp.pad(x, (1, 2)) * lax.pad(x, 2.0, [(1, -1, 1)])[:1]),
    Case("tile", lambda x: jnp.tile(x, 2) + jnp.repeat(x, 2) + jnp.roll(jnp.tile(x, 2), 1)),
    Case("dynamic", lambda x: lax.dynamic_slice(x, (5,), (2,)) + lax.dynamic_update_slice(x, x[:1], (1,))[:2]),
    Case("gather", lambda x: x[jnp.array([2, 0, -1])] * x[jnp.array([[0, 1, 2]])][0], ((3,),)),
    Case("gather_rows", lambda x: x[jnp.array([1, 0])] + x[:, jnp.array([0, 2, 2])], ((2, 3),)),
    Case("gather_points", lambda x: x[jnp.array([1, 0, 1]), jnp.array([2, 2, 0])], ((2, 3),)),
    Case("gather_fill", lambda x: jnp.take(x, jnp.array([0, 7]), mode="fill", fill_value=0.25)),
    Case("gather_clip", lambda x: jnp.take(x, jnp.array([-1, 7]), mode="clip")),
    Case("gather_batched", lambda x: jax.vmap(lambda r, i: r[i])(x, jnp.array([2, 0])), ((2, 3),)),
    Case("take_along", lambda x: jnp.take_along_axis(x, jnp.array([[2, 0], [1, 1]]), axis=1), ((2, 3),)),
    pair("scatter", lambda x, y: x.at[1].set(y[0]).at[jnp.array([0, 2])].set(y[1:])),
    pair("scatter_add", lambda x, y: x.at[jnp.array([0, 0, 2])].add(y)),
    pair("scatter_mul", lambda x, y: x.at[jnp.array([1, 1, 9])].multiply(y)),
    pair("scatter_extremes", lambda x, y: x.at[jnp.array([1, 1, 0])].max(y).at[2].min(y[0])),
    Case("scatter_block", lambda x: jnp.zeros((3, 4)).at[1:, 1:].add(x).at[0].set(x[0, 0]), ((2, 3),)),
    Case("scatter_batched", lambda x: jax.vmap(lambda r, i: r.at[i].add(r[0]))(x, jnp.array([2, 0])), ((2, 3),)),
    Case("diagonal", lambda x: jnp.diag(x) + jnp.diag(jnp.diag(jnp.outer(x, x)))),
    Case("triangle", lambda x: jnp.tril(x) - jnp.triu(x, 1).T + jnp.eye(3), ((3, 3),)),
]

SUMS = [
    Case("sum", lambda x: jnp.sum(x, axis=0) * jnp.sum(x) + jnp.mean(x), ((2, 3),)),
    Case("prod", lambda x: jnp.prod(x, axis=(0, 2)), ((2, 3, 2),)),
    Case("extremes", lambda x: jnp.max(x, axis=1) - jnp.min(x), ((2, 3),)),
    Case("running", lambda x: jnp.cumsum(x) + jnp.cumprod(x) + lax.cumsum(x, reverse=True) + lax.cummax(x)),
    Case("matmul", lambda x, y: x @ y, ((2, 3), (3, 4))),
    Case("matvec", lambda x, y: x @ y + y @ x.T, ((2, 3), (3,))),
    Case("inner", lambda x, y: jnp.dot(x, y) * jnp.vdot(x, y), ((3,), (3,))),
    Case("batched", lambda x, y: jnp.einsum("bij,bjk->bki", x, y), ((2, 2, 3), (2, 3, 2))),
    Case("tensors", lambda x, y: jnp.tensordot(x, y, axes=[[0, 2], [1, 0]]), ((2, 2, 3), (3, 2))),
    Case("cross", lambda x, y: jnp.cross(x, y) / jnp.linalg.norm(x), ((3,), (3,))),
    Case("cholesky", lambda A: jnp.linalg.cholesky(spd(A)), ((3, 3),)),
    Case("cho_solve", lambda A, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(spd(A)), True), b), ((3, 3), (3,))),
    Case("substitution", lambda A, b: jax.scipy.linalg.solve_triangular(spd(A), b, trans=1), ((3, 3), (3,))),
    Case("from_right", lambda A, b: lax.linalg.triangular_solve(spd(A), b, lower=True), ((3, 3), (2, 3))),
]

CALLS = [
    Case("jit", lambda x: jax.jit(lambda y: y * CONSTANTS + jax.jit(jnp.sin)(y))(x)),
    Case("checkpoint", lambda x: jax.checkpoint(lambda y: jnp.sin(y) * CONSTANTS)(x)),
    Case("custom_jvp", lambda x: cubed(x) + jax.jacfwd(cubed)(x).sum(axis=0)),
    Case("custom_vjp", lambda x: halved(x) + jax.grad(lambda y: jnp.sum(halved(y)))(x)),
    Case("stop_gradient", lambda x: jax.grad(lambda y: jnp.sum(y * lax.stop_gradient(y)))(x)),
    Case("barrier", lambda x: lax.optimization_barrier((x, 2 * x))[1]),
    Case("cond_constant", lambda x: lax.cond(CONSTANTS[0] > 0, jnp.sin, jnp.cos, x)),
    Case("cond_symbolic", lambda x: lax.cond(x[0] > x[1], lambda y: 2 * y, jnp.cos, x)),
    Case("switch", lambda x: lax.switch(2, [jnp.sin, jnp.cos, jnp.tan], x)),
    Case("scan", lambda x: lax.scan(lambda c, y: (c * y + 1, (c, y)), x[0], x)),
    Case("scan_reverse", lambda x: lax.scan(lambda c, y: (c - y, c * y), x[0], x, reverse=True)),
    Case("fori", lambda x: lax.fori_loop(0, 4, lambda i, y: y + x[i % 3] * i, jnp.sin(x))),
    Case("while", lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x))[1]),
    Case("linear_solve", lambda x: lax.custom_linear_solve(lambda y: 2 * x * y, x**2, lambda f, b: b / (2 * x))),
    Case("vmap", lambda x: jax.vmap(lambda y: jnp.sin(y) @ x)(jnp.outer(x, x))),
]

DERIVATIVES = [
    Case("grad", jax.grad(energy)),
    Case("jacfwd", jax.jacfwd(lambda q: jnp.stack([energy(q), q @ q]))),
    Case("hessian", jax.hessian(energy)),
    Case("jvp_of_jvp", lambda q: jax.jvp(lambda p: jax.jvp(energy, (p,), (q,))[1], (q,), (jnp.cos(q),))),
    Case("vmapped", lambda x: jax.vmap(jax.grad(energy))(x), ((2, 3),)),
    Case("grad_norm", jax.grad(lambda q: jnp.linalg.norm(q) * jnp.max(q))),
    Case("grad_abs", jax.grad(lambda q: jnp.sum(jnp.abs(q) * jnp.maximum(q, 0.25)) + jnp.prod(q))),
    Case("jacobian_cholesky", jax.jacfwd(lambda A: jnp.linalg.cholesky(spd(A))), ((2, 2),)),
    Case("reverse_scan", jax.grad(lambda x: lax.scan(lambda c, y: (jnp.sin(c * y), c), x[0], x)[0])),
    Case("gather_grad", jax.grad(lambda x: jnp.sum(x[jnp.array([0, 0, 2])] ** 3))),
]

CASES = [*ELEMENTWISE, *MOVES, *SUMS, *CALLS, *DERIVATIVES]
BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES), "names of cases repeat"
EVERY = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def names(prefix: str, shape: tuple[int, ...]) -> np.ndarray:
    """`x` for a scalar, `x_0_1` and the like for the entries of an array."""
    array = np.empty(shape, dtype=object)
    for position in np.ndindex(shape):
        array[position] = "_".join([prefix, *map(str, position)])
    return array


@functools.cache
def traced(case: Case) -> tuple[TracedGraph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The graph, with its inputs and the leaves of its result by name."""
    result = trace(case.function, *(names("xy"[i], shape) for i, shape in enumerate(case.shapes)))
    arguments = dict(zip("xy", result.inputs, strict=False))
    outputs = {f"out{i}": leaf for i, leaf in enumerate(jax.tree.leaves(result.result))}
    return result, arguments, outputs


@functools.cache
def samples(case: Case) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """Random inputs, and what JAX makes of them: compiled once for the texts that are compared with it."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    inputs = [[rng.uniform(case.low, case.high, shape) for shape in case.shapes] for _ in range(SAMPLES)]
    function = jax.jit(case.function)
    return [(given, [np.asarray(leaf, float) for leaf in jax.tree.leaves(function(*given))]) for given in inputs]


def check(actual: Any, expected: np.ndarray) -> None:
    actual = np.asarray(actual, dtype=float)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


def defined(source: str, name: str) -> Callable[..., Any]:
    """The function that Python source defines."""
    scope: dict[str, Any] = {}
    exec(source, scope)
    return scope[name]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """All cases in C, compiled together: starting the compiler takes longer than its work."""
    text = "\n".join(to_c(f"case_{case.name}", *traced(case)[1:]) for case in CASES)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
    return load_c(text, tmp_path_factory.mktemp("graph"), *flags)


@EVERY
def test_numpy_source_computes_what_jax_does(case: Case) -> None:
    _, arguments, outputs = traced(case)
    function = defined(to_numpy("f", arguments, outputs, doc="A case."), "f")
    for given, expected in samples(case):
        actual = function(*given)
        for value, wanted in zip(actual.values() if len(outputs) > 1 else [actual], expected, strict=True):
            check(value, wanted)


@EVERY
def test_c_source_computes_what_jax_does(case: Case, library: ctypes.CDLL) -> None:
    function = library[f"case_{case.name}"]
    for given, expected in samples(case):
        results = [np.full(max(leaf.size, 1), np.nan) for leaf in expected]
        pointers = [ctypes.c_double(x.item()) if x.ndim == 0 else x.ctypes.data_as(ctypes.c_void_p) for x in given]
        function(*pointers, *(result.ctypes.data_as(ctypes.c_void_p) for result in results))
        for value, wanted in zip(results, expected, strict=True):
            check(value[: wanted.size].reshape(wanted.shape), wanted)


@EVERY
def test_sympy_computes_what_jax_does(case: Case) -> None:
    _, arguments, outputs = traced(case)
    symbols = [sympy.Symbol(str(node), real=True) for nodes in arguments.values() for node in nodes.flat]
    expressions = [to_sympy(np.array(node, dtype=object)) for nodes in outputs.values() for node in nodes.flat]
    function = sympy.lambdify(symbols, [sympy.sympify(expression) for expression in expressions], "math")
    for given, expected in samples(case):
        actual = function(*(number for array in given for number in array.flat))
        check(actual, np.concatenate([leaf.ravel() for leaf in expected]))


def test_symbols_may_be_given_and_shapes_are_those_of_matrices() -> None:
    given = sympy.Function("theta")(sympy.Symbol("t"))
    result = trace(lambda q: (q, jnp.outer(q, q), q[0]), ["a", "b"]).result
    vector, matrix, number = (to_sympy(array, {"a": given}) for array in result)
    b = sympy.Symbol("b", real=True)
    assert vector == sympy.Matrix([given, b])
    assert matrix == sympy.Matrix([[given**2, given * b], [given * b, b**2]])
    assert number == given
    with pytest.raises(MechanismError, match=r"two axes at most; given is an array of shape \(1, 1, 1\)"):
        to_sympy(np.empty((1, 1, 1), dtype=object))


def test_result_keeps_its_structure_and_graphs_can_be_shared() -> None:
    graph = Graph()
    first = trace(lambda x, A: {"a": x, "b": [A @ x, None]}, ["x0", "x1"], [["a", "b"], ["c", "d"]], graph=graph)
    assert first.result["b"][0].shape == (2,)
    assert first.result["b"][1] is None
    assert [str(node) for node in first.result["a"]] == ["x0", "x1"]
    second = trace(lambda x: jnp.ones(3) * x[0], np.array(["x0", "x1"]), graph=graph)
    assert second.result[0] is first.inputs[0][0]
    assert trace(lambda x: x, []).result.shape == (0,)


@pytest.mark.parametrize("given", [[["a"], ["b", "c"]], ["a", 1.0], 3])
def test_names_must_be_strings(given: Any) -> None:
    with pytest.raises(MechanismError, match="must be strings, nested as the array"):
        trace(lambda x: x, np.array(given, dtype=object) if given == 3 else given)


def eigenvalues(A: jax.Array) -> jax.Array:
    return jnp.linalg.eigvalsh(A)


def test_unsupported_primitive_is_named() -> None:
    square = [["a", "b"], ["c", "d"]]
    with pytest.raises(MechanismError, match="The function 'eigenvalues' cannot be written as a formula: it uses 'eig"):
        trace(eigenvalues, square)
    with pytest.raises(MechanismError, match="Joint 'elbow' cannot be written"):
        trace(eigenvalues, square, title="Joint 'elbow'")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x[x[0].astype(int)], "'convert_element_type' of something that depends on the inputs"),
        (lambda x: x[jnp.where(x[0] > 0, 1, 0)], "with an index that depends on the inputs"),
        (lambda x: lax.while_loop(lambda y: y < 3, lambda y: y + 1, x[0]), "'while' with an end that depends"),
        (lambda x: lax.while_loop(lambda c: c[0] >= 0, lambda c: (c[0] + 1, c[1]), (0, x))[1], "more than 50 laps"),
        (lambda x: lax.fori_loop(0, 51, lambda i, y: y + i, x), "'scan' with 51 laps"),
        (lambda x: x * jnp.argmax(x), "'argmax'"),
        (lambda x: jnp.sort(x), "'sort'"),
    ],
)
def test_what_no_formula_expresses_is_refused(
    function: Callable[..., Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "LAPS", 50)
    with pytest.raises(MechanismError, match=message):
        trace(function, ["a", "b"])


# The source texts.


def test_source_texts_are_readable() -> None:
    swing = trace(lambda t, q, p: p[0] * jnp.cos(q[0] - q[1]) * jnp.sin(q[0] - q[1]) / 3 + t, "t", ["a", "b"], ["m"])
    arguments = dict(zip("tqp", swing.inputs, strict=True))
    assert to_numpy("swing", arguments, {"M": swing.result}, doc="The torque.") == (
        "import numpy as np\n"
        "\n"
        "\n"
        "def swing(t, q, p):\n"
        '    """The torque."""\n'
        "    t = np.float64(t)\n"
        "    q = np.asarray(q, dtype=float)\n"
        "    p = np.asarray(p, dtype=float)\n"
        "    t0 = q[0] - q[1]\n"
        "    M = np.array(t + 1.0 / 3.0 * (p[0] * np.cos(t0) * np.sin(t0)), dtype=float)\n"
        "    return M\n"
    )
    assert to_c("swing", arguments, {"M": swing.result}, doc="The torque.") == (
        "#include <math.h>\n"
        "\n"
        "/* The torque. */\n"
        "void swing(double t, const double q[2], const double p[1], double M[1])\n"
        "{\n"
        "    const double t0 = q[0] - q[1];\n"
        "    M[0] = t + 1.0 / 3.0 * (p[0] * cos(t0) * sin(t0));\n"
        "}\n"
    )


def test_several_outputs_are_returned_by_name() -> None:
    result = trace(lambda x: (x[0], jnp.outer(x, x), jnp.zeros((0, 2))), ["a", "b"])
    source = to_numpy("f", {"x": result.inputs[0]}, dict(zip("abc", result.result, strict=True)))
    values = defined(source, "f")([2, 3])
    assert list(values) == ["a", "b", "c"]
    check(values["a"], np.array(2.0))
    check(values["b"], np.array([[4.0, 6.0], [6.0, 9.0]]))
    assert values["c"].shape == (0, 2)


def test_names_of_locals_keep_clear_of_arguments() -> None:
    result = trace(lambda x: jnp.sin(x) * jnp.cos(jnp.sin(x)), "x")
    for name in ("t0", "s0"):
        source = to_numpy("f", {name: result.inputs[0]}, {"t7": result.result})
        check(defined(source, "f")(0.3), np.sin(0.3) * np.cos(np.sin(0.3)))


@pytest.mark.parametrize("name", ["crank.theta", "lambda", "np", "f", "0x"])
def test_names_that_no_source_can_have_are_refused(name: str) -> None:
    result = trace(lambda x: x, "x")
    with pytest.raises(MechanismError, match=f"The name '{name}' cannot stand in source text"):
        to_numpy("f", {name: result.inputs[0]}, {"out": result.result})


def test_symbols_without_argument_are_told() -> None:
    result = trace(lambda x, y: x * y, "x", "y")
    with pytest.raises(MechanismError, match="need symbols that no argument holds: y"):
        to_c("f", {"x": result.inputs[0]}, {"out": result.result})


@pytest.mark.parametrize(
    "value", [0.1, 1 / 3, 2 / 3, math.pi, 1e-300, 6.02214076e23, -2.5e-17, 1e22, 0.12345678901234568]
)
def test_constants_come_back_from_the_text(value: float) -> None:
    result = trace(lambda x: x * value, "x")
    function = defined(to_numpy("f", {"x": result.inputs[0]}, {"out": result.result}), "f")
    assert float(function(1.0)) == value


def test_infinite_constants_come_back_from_the_text() -> None:
    result = trace(lambda x: jnp.stack([jnp.where(x > 0, x, y) for y in (jnp.inf, -jnp.inf, jnp.nan)]), "x")
    values = defined(to_numpy("f", {"x": result.inputs[0]}, {"out": result.result}), "f")(-1.0)
    np.testing.assert_array_equal(values, [np.inf, -np.inf, np.nan])


def test_branch_that_is_not_taken_may_divide_by_zero() -> None:
    result = trace(lambda x: jnp.where(x > 0, 1 / x + jnp.sin(1 / x), 0.0), "x")
    assert defined(to_numpy("f", {"x": result.inputs[0]}, {"out": result.result}), "f")(0.0) == 0


def test_large_and_deep_graphs() -> None:
    """Deeper than Python may recurse, and than its parser lets parentheses nest."""

    def chain(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 1500, lambda i, y: jnp.sin(y) / (1 + y * x[0]) + x[1], x[0])

    result = trace(chain, ["a", "b"])
    source = to_numpy("f", {"x": result.inputs[0]}, {"out": result.result})
    assert len(in_order(result.result.flat)) > 6_000
    x = np.array([0.4, 0.2])
    check(defined(source, "f")(x), np.asarray(chain(jnp.asarray(x))))


def test_a_long_sum_becomes_sympy_in_time() -> None:
    terms = trace(lambda x: jnp.sum(jnp.sin(x) * x[::-1]), [f"x{i}" for i in range(200)])
    assert len(to_sympy(terms.result).args) == 200
