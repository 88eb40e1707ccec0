"""NumPy code of a function gives what XLA gives, for every operation, batch, type and edge case; it is plain data."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import linalg, special

import jaxmbd as mbd
from jaxmbd.arrays import is_concrete
from jaxmbd.engine import choice
from jaxmbd.engine.binding.jax_binding import as_program
from jaxmbd.engine.binding.trace_once import trace_once
from jaxmbd.engine.calls import first_calls
from jaxmbd.engine.calls.cached_function import cached_on_disk
from jaxmbd.engine.numpy_code.code import UNLIMITED, Budget, StoppedError, code_from, plain, run
from jaxmbd.engine.numpy_code.translation import UnsupportedError, evaluated, numpy_code
from tests.engine.calls.test_disk_cache import forget
from tests.engine.program.test_program import ARRAYS, ONE, TWO

ROUNDING = {8: 1e-13, 4: 2e-5}

MORE: dict[str, Callable[..., Any]] = {
    "inverse of the error function": lambda x, y: special.erfinv(x / 3),
    "gamma functions": lambda x, y: special.gammaln(jnp.abs(x)) + special.digamma(1 + jnp.abs(y)),
    "sorted together": lambda x, y: lax.sort((jnp.round(x), y, x), num_keys=2),
    "order": lambda x, y: (jnp.argsort(jnp.round(x)), jnp.sort(y.reshape(3, 4), axis=0)),
    "largest": lambda x, y: lax.top_k(jnp.round(x), 5),
    "places of extremes": lambda x, y: (jnp.argmax(x.reshape(3, 4), 1), jnp.argmin(jnp.where(y > 0, jnp.nan, y))),
    "running extremes": lambda x, y: (lax.cummax(x), lax.cummin(y.reshape(3, 4), axis=1, reverse=True)),
    "padding": lambda x, y: lax.pad(x.reshape(3, 4), x[0], [(1, -1, 2), (-1, 2, 0)]),
    "nothing": lambda x, y: (x[:0].sum(), jnp.max(y[:0], initial=3.0), jnp.zeros((0, 3)) @ jnp.ones((3, 2))),
    "window beyond the end": lambda x, y: lax.dynamic_slice(x, ((90 * y[0]).astype(int),), (4,)),
    "whole numbers": lambda x, y: _whole((90 * x).astype(int), (3 * y).astype(int)),
    "whole numbers of few bits": lambda x, y: _whole((90 * x).astype(jnp.int8), (3 * y).astype(jnp.int8)),
    "to whole numbers": lambda x, y: jnp.where(x > 0, x * 1e30, jnp.where(y > 0, jnp.nan, -jnp.inf)).astype(jnp.int32),
    "one of several": lambda x, y: lax.select_n((x > 0).astype(int) + (y > 0), x, y, x * y),
    "bits": lambda x, y: jnp.bitwise_xor.reduce((9 * x).astype(int)),
    "matrix": lambda x, y: x[:9].reshape(3, 3) @ y[:9].reshape(3, 3).T @ x[:3],
    "outer product of types": lambda x, y: jnp.outer(x, jnp.arange(3)),
    "while": lambda x, y: lax.while_loop(lambda s: s[0] < 9 + x[0], lambda s: (s[0] + 1.5, s[1] * y), (x[1], x)),
    "backwards": lambda x, y: lax.scan(lambda c, a: (c * 0.5 + a, (c, a * a)), x[0], y, reverse=True),
    "switch": lambda x, y: lax.switch((2 * y[0]).astype(int), [jnp.sin, jnp.cos, jnp.exp], x),
    "stacked and split": lambda x, y: jnp.split(jnp.stack([x, y], 1), [3, 7]),
    "for this platform": lambda x, y: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos),
    "gradient": lambda x, y: jax.grad(lambda a: jnp.sum(jnp.sin(a) * jnp.cumprod(y)) + jnp.linalg.norm(a))(x),
    "a program": lambda x, y: as_program(lambda a, b: (jnp.sin(a) * b, a[:3]))(x, y),
    "programs of a batch": lambda x, y: jax.vmap(as_program(lambda a, b: jnp.sin(a) * b), (0, None))(x, y),
    "rounding": lambda x, y: (jnp.trunc(9 * x), lax.round(jnp.array([0.5, -0.5, 1.5, 2.5]))),
    "complex": lambda x, y: jnp.abs((x + 1j * y) ** 2) + jnp.real(jnp.conj(x - 1j * y) / (x + 2j)),
}
MATRICES: dict[str, Callable[..., Any]] = {
    "cholesky": lambda a, b: linalg.cholesky(a @ a.mT + jnp.eye(4)),
    "solve": lambda a, b: jnp.linalg.solve(a, b),
    "solve of a singular": lambda a, b: jnp.isfinite(jnp.linalg.solve(a.at[0].set(0.0), b)).all(),
    "symmetric solve": lambda a, b: linalg.solve(a @ a.mT + jnp.eye(4), b, assume_a="pos"),
    "no cholesky": lambda a, b: jnp.isnan(jnp.linalg.cholesky(-a @ a.mT)),
    "determinant": lambda a, b: jnp.linalg.det(a),
    "inverse": lambda a, b: jnp.linalg.inv(a),
    "qr": lambda a, b: _product(*jnp.linalg.qr(b)),
    "qr, whole": lambda a, b: jnp.abs(jnp.linalg.qr(b, mode="complete")[0]),
    "qr with pivots": lambda a, b: linalg.qr(a, pivoting=True)[1:],
    "singular values": lambda a, b: (jnp.linalg.svd(b, compute_uv=False), jnp.linalg.matrix_rank(b @ b.mT)),
    "singular vectors": lambda a, b: _rebuilt(*jnp.linalg.svd(b, full_matrices=False)),
    "singular values of nan": lambda a, b: jnp.linalg.svd(b * jnp.nan, compute_uv=False),
    "eigenvalues": lambda a, b: jnp.linalg.eigh(a + a.mT)[0],
    "eigenvectors": lambda a, b: _rebuilt_symmetric(*jnp.linalg.eigh(a + a.mT)),
    "eigenvalues of any": lambda a, b: jnp.sort(jnp.abs(jnp.linalg.eigvals(a))),
    "least squares": lambda a, b: jnp.linalg.lstsq(a[:, :2], b)[0],
    "pseudoinverse": lambda a, b: jnp.linalg.pinv(b),
}


def _whole(x: Any, y: Any) -> Any:
    shifted = lax.shift_left(x, y), lax.shift_right_arithmetic(x, y), lax.shift_right_logical(x, y)
    return lax.div(x, y), lax.rem(x, y), x // jnp.where(y == 0, 1, y), x & y, x | y, x ^ ~y, x * x * x, *shifted


def _rebuilt_symmetric(w: Any, v: Any) -> Any:
    return (v * w[None, :]) @ v.mT


def _product(q: Any, r: Any) -> Any:
    return q @ r


def _rebuilt(u: Any, s: Any, v: Any) -> Any:
    return (u * s[None, :]) @ v


def compare(function: Callable[..., Any], *arguments: Any) -> None:
    """The results of NumPy code, also of the code written and read, and those of XLA."""
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    code, arrays = numpy_code(jaxpr), list[np.ndarray]()
    again = code_from(json.loads(json.dumps(plain(code, arrays))), arrays)
    flat = jax.tree.leaves(arguments)
    found = run(code, flat, Budget(UNLIMITED))
    wanted = jax.tree.leaves(jax.jit(function)(*arguments))
    assert len(found) == len(wanted) == len(jax.tree.leaves(shapes))
    for one, other, same in zip(found, wanted, run(again, flat, Budget(UNLIMITED)), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_array_equal(one, same)
        if one.dtype.kind in "biu":
            np.testing.assert_array_equal(one, other)
        else:
            scale = np.max(np.abs(np.asarray(other)), initial=1.0, where=np.isfinite(other))
            tolerance = ROUNDING[min(x.dtype.itemsize for x in flat)]
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)


def in_all_forms(function: Callable[..., Any], *arguments: np.ndarray) -> None:
    """In double and in single precision, and for a batch of which one argument has no axis."""
    compare(function, *arguments)
    compare(function, *(x.astype(np.float32) for x in arguments))
    first, *rest = arguments
    compare(jax.vmap(function, (0, *[None] * len(rest))), np.stack([first, 0.3 - first, 2 * first]), *rest)


@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_number(name: str, rng: np.random.Generator) -> None:
    in_all_forms(ONE[name], rng.uniform(-2, 2, 12))


@pytest.mark.parametrize("name", [*TWO, *ARRAYS, *MORE])
def test_functions_of_two_arrays(name: str, rng: np.random.Generator) -> None:
    function = (TWO | ARRAYS | MORE)[name]
    in_all_forms(function, *rng.uniform(-2, 2, (2, 12)))


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name: str, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(4, 4)), rng.normal(size=(4, 3))
    function = MATRICES[name]
    compare(function, a, b)
    compare(jax.vmap(function), np.stack([a, a.T, 2 * a + np.eye(4)]), np.stack([b, -b, b * b]))


@pytest.mark.parametrize(("left", "lower", "transposed", "unit"), [*np.ndindex(2, 2, 2, 2)])
def test_triangular_systems(left: int, lower: int, transposed: int, unit: int, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, 3, 3)) + 3 * np.eye(3), rng.normal(size=(2, 3, 3))
    options = {"left_side": bool(left), "lower": bool(lower), "unit_diagonal": bool(unit)}
    compare(lambda a, b: lax.linalg.triangular_solve(a, b, transpose_a=bool(transposed), **options), a, b)


def test_not_a_number_and_infinity_stay(rng: np.random.Generator) -> None:
    special_values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    x, y = (grid.ravel() for grid in np.meshgrid(special_values, special_values))
    compare(lambda x, y: (jnp.maximum(x, y), jnp.minimum(x, y), x / y, x * y, lax.rem(x, y), jnp.sign(x)), x, y)
    compare(lambda x: (jnp.sort(x), jnp.max(x), jnp.cumsum(x), jnp.sqrt(x), jnp.log(x), jnp.clip(x, -1.0, 1.0)), x)


def test_loops_of_a_batch_end_one_by_one() -> None:
    """The condition has an axis: instances that are ready keep their values."""
    halved = lambda x: lax.while_loop(lambda s: s[0] > 1.0, lambda s: (s[0] / 2, s[1] + 1), (x, 0))  # noqa: E731
    compare(jax.vmap(halved), np.array([0.5, 3.0, 100.0, 7.0]))
    compare(jax.vmap(jax.vmap(halved)), np.array([[0.5, 3.0], [100.0, 7.0]]))


def test_indices_out_of_bounds(rng: np.random.Generator) -> None:
    x, places = rng.normal(size=(5, 3)), np.array([[-9, 1], [4, 2], [5, 0], [2, -1], [4, 2]])
    for mode in ("clip", "fill", "promise_in_bounds"):
        at = np.clip(places, 0, 2) if mode == "promise_in_bounds" else places
        compare(lambda x, p, mode=mode: x.at[p[:, 0], p[:, 1]].get(mode=mode), x, at)
    for mode in ("clip", "drop"):
        for kind in ("add", "multiply", "min", "max"):
            change = lambda x, p, u, mode=mode, kind=kind: getattr(x.at[p[:, 0]], kind)(u, mode=mode)  # noqa: E731
            compare(change, x, places, rng.normal(size=(5, 3)))
    compare(lambda x, p: x.at[p[:, 0]].get(mode="fill", fill_value=-3.0), x, places)
    compare(lambda x, p: x.astype(int).at[p[:, 0]].get(mode="fill"), x, places)


def test_the_arguments_keep_their_values(rng: np.random.Generator) -> None:
    x = rng.normal(size=6)
    before = x.copy()
    compare(lambda x: lax.fori_loop(0, 3, lambda k, x: x.at[k].add(x[k + 1]).at[0].set(2.0), x), x)
    np.testing.assert_array_equal(x, before)


def test_what_no_result_depends_on_is_left_out() -> None:
    def function(x: Any) -> Any:
        unused = lax.fori_loop(0, 9, lambda _, y: jnp.linalg.inv(y), jnp.outer(x, x))
        return 2 * x, (3 * unused[0, 0] * x)[:0].sum()

    code = numpy_code(jax.make_jaxpr(lambda x: function(x)[0])(np.ones(3)))
    assert (code.size, code.cost) == (1, 1)
    compare(function, np.ones(3))


def test_a_loop_writes_into_its_own_arrays(rng: np.random.Generator) -> None:
    """In place where nothing else reads what is overwritten; else into a copy."""
    x, y = rng.normal(size=(2, 6))
    loops: list[Callable[..., Any]] = [
        lambda body: lambda x, y: lax.fori_loop(0, 5, lambda k, s: body(k, *s), (x, x, y)),
        lambda body: (
            lambda x, y: lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, *body(*s)), (jnp.asarray(0), x, x, y))
        ),
    ]
    bodies: list[tuple[bool, Callable[..., Any]]] = [
        (True, lambda k, a, b, c: (a.at[k].set(c[k] * b[k + 1]), b, c)),
        (True, lambda k, a, b, c: (a.at[jnp.where(c[k] > 0, k, 9)].set(2.0, mode="drop"), b.at[k].add(1.0), c)),
        (False, lambda k, a, b, c: (a.at[k].set(b[k]), a, c)),
        (False, lambda k, a, b, c: (a.at[k].set(a[k + 1]), b, c)),
        (False, lambda k, a, b, c: (new := a.at[k].set(b[k]), new[::-1], c)),
        (False, lambda k, a, b, c: (b.at[k].set(c[k]), a, c)),
    ]
    before = x.copy(), y.copy()
    for repeated, (in_place, body) in itertools.product(loops, bodies):
        loop = repeated(body)
        attributes = [a for _, a, *_ in numpy_code(jax.make_jaxpr(loop)(x, y)).instructions if "owned" in a]
        assert [bool(a["owned"]) for a in attributes] == [in_place]
        in_all_forms(loop, x, y)
        in_all_forms(lambda x, y, loop=loop: loop(jnp.outer(x, y).T, y), x, y)
        np.testing.assert_array_equal((x, y), before)
    until = lambda x, n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1].at[s[0]].set(0.0)), (0, x))  # noqa: E731
    compare(jax.vmap(until, (None, 0)), x, np.array([1, 4, 0]))


def test_what_numpy_cannot_express_is_left_to_xla() -> None:
    def called_back(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    for function in (called_back, lambda x: jnp.convolve(x, x), lambda x: jax.random.normal(jax.random.key(0)) + x):
        with pytest.raises(UnsupportedError):
            numpy_code(jax.make_jaxpr(function)(np.ones(3)))
        np.testing.assert_allclose(cached_on_disk(function)(np.ones(3)), jax.jit(function)(np.ones(3)))


def test_a_budget_limits_loops() -> None:
    code = numpy_code(jax.make_jaxpr(lambda n: lax.fori_loop(0, n, lambda _, x: x * 1.5, 1.0))(3))
    budget = Budget(1000)
    assert run(code, [np.asarray(4)], budget)[0] == 1.5**4
    assert 900 < budget.left < 1000
    with pytest.raises(StoppedError):
        run(code, [np.asarray(10**9)], budget)


def test_the_size_of_a_code_includes_its_loops() -> None:
    """What it takes to compile it: each instruction once, however often it runs."""
    loop = lambda n: lambda x: lax.fori_loop(0, n, lambda _, x: jnp.sin(x) * 1.5, x)  # noqa: E731
    codes = [numpy_code(jax.make_jaxpr(loop(n))(1.0)) for n in (2, 2000)]
    assert codes[0].size == codes[1].size > len(codes[0].instructions) + 1


def test_memory_that_is_written_before_it_is_read() -> None:
    """Which JAX makes for the rows of some scans."""
    squares = lambda x: lax.empty((2, 3), x.dtype).at[0].set(x).at[1].set(x * x)  # noqa: E731
    compare(squares, np.array([1.0, 2.0, 3.0]))


def test_matrices_of_a_batch_cost_each() -> None:
    costs = [numpy_code(jax.make_jaxpr(jnp.linalg.eigh)(np.zeros((n, 2, 2)))).cost for n in (1, 500)]
    assert costs[1] - costs[0] == 499


@pytest.fixture
def unstored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known from before, in this process or on disk."""
    monkeypatch.setenv("JAXMBD_CACHE_MIB", "0")
    forget()


@pytest.mark.usefixtures("unstored")
def test_it_is_compiled_when_it_has_run_often(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """How often depends on instructions only, and the results are the same before and afterwards."""
    traced, x = list[int](), rng.normal(size=(4, 4))

    def solved(x: Any) -> Any:
        traced.append(1)
        return {"solved": jnp.linalg.solve(x @ x.T + jnp.eye(4), x), "name": "a"}

    code = numpy_code(jax.make_jaxpr(lambda x: solved(x)["solved"])(x))
    monkeypatch.setattr(choice, "NUMPY_RUNS", 3)
    monkeypatch.setattr(choice, "NUMPY_MORE", code.cost - code.size)
    traced.clear()
    function, compiled = cached_on_disk(solved), list[int]()
    compile_it = first_calls.FirstCalls._compile
    monkeypatch.setattr(first_calls.FirstCalls, "_compile", lambda self: (compiled.append(1), compile_it(self))[1])
    results = [(function(x), len(compiled)) for _ in range(6)]
    assert [count for _, count in results] == [0, 0, 0, 1, 1, 1]
    assert len(traced) == 1
    for found, _ in results:
        assert found["name"] == "a"
        np.testing.assert_allclose(found["solved"], np.linalg.solve(x @ x.T + np.eye(4), x), rtol=1e-11)


@pytest.mark.usefixtures("unstored")
def test_an_error_in_a_branch_is_raised_by_the_compiled_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy code cannot call Python back: where it would have to, it stops, and the compiled function runs instead."""
    compiled, compile_it = list[int](), first_calls.FirstCalls._compile
    monkeypatch.setattr(first_calls.FirstCalls, "_compile", lambda self: (compiled.append(1), compile_it(self))[1])
    root = cached_on_disk(lambda x: jnp.sqrt(eqx.error_if(x, x < 0, "a negative number")))
    np.testing.assert_array_equal(root(np.array(9.0)), 3.0)
    assert not compiled
    with pytest.raises(Exception, match="a negative number"):
        jax.block_until_ready(root(np.array(-1.0)))
    assert compiled == [1]
    np.testing.assert_array_equal(root(np.array(4.0)), 2.0)


def test_data_that_is_no_code_is_refused() -> None:
    arrays = list[np.ndarray]()
    fields = plain(numpy_code(jax.make_jaxpr(lambda x: jnp.sin(x) + 2)(1.0)), arrays)
    assert code_from(fields, arrays).instructions[0][0] == "sin"
    for change in (
        {"instructions": [["eval", {}, [1], [2]]]},
        {"instructions": [["sin", {}, [99], [2]]]},
        {"instructions": [["sin", {}, [1], [-1]]]},
        {"results": [7]},
    ):
        with pytest.raises((ValueError, KeyError)):
            code_from(fields | change, arrays)


@pytest.mark.usefixtures("unstored")
@pytest.mark.parametrize("name", ["slider-crank", "bricard", "heavy-top"])
def test_motions_are_those_of_the_compiled_analysis(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A motion in the virtual machine, with what is around it in NumPy, and the same compiled."""
    example, ts = mbd.examples.get(name), np.linspace(0.0, 0.3, 7)
    compile_it = first_calls.FirstCalls._compile
    compiled = list[str]()
    monkeypatch.setattr(
        first_calls.FirstCalls,
        "_compile",
        lambda self: (compiled.append(self._call.name), compile_it(self))[1],
    )
    first = mbd.simulate(example.mechanism, example.state(), ts)
    assert not compiled
    monkeypatch.setattr(choice, "NUMPY_RUNS", 0)
    forget()
    second = mbd.simulate(example.mechanism, example.state(), ts)
    assert "integrate" in compiled
    assert first.stats == second.stats
    np.testing.assert_allclose(first.q, second.q, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(first.v, second.v, rtol=1e-8, atol=1e-8)


def test_known_values_are_computed_without_compiling() -> None:
    """Also while another function is traced, where they stay known."""
    doubled = trace_once(lambda x, factor: {"y": jnp.sin(x) * factor})
    wanted = np.sin([0.3, 0.4]) * 2

    def outer(z: Any) -> Any:
        y = doubled(np.array([0.3, 0.4]), 2)["y"]
        assert is_concrete(y)
        return y * z

    np.testing.assert_allclose(jax.jit(outer)(1.0), wanted, rtol=1e-15)
    np.testing.assert_allclose(doubled(jnp.array([0.3, 0.4]), 2)["y"], wanted, rtol=1e-15)
    slope = jax.grad(lambda x: doubled(x, 2)["y"])(0.3)
    np.testing.assert_allclose(slope, 2 * np.cos(0.3), rtol=1e-15)
    np.testing.assert_array_equal(evaluated(lambda x: (x + 1, 2 * x), np.arange(3.0)), [[1, 2, 3], [0, 2, 4]])


def test_a_function_that_closes_over_a_tracer_is_traced_with_it() -> None:
    """All arguments are known, but one is a function that holds a number of an outer `vmap` and `grad`."""
    applied = cached_on_disk(lambda function, x: function(x) * 2)
    outer = jax.vmap(jax.grad(lambda a: applied(lambda x: jnp.sum(a * a * x), np.array([1.0, 2.0]))))
    np.testing.assert_allclose(outer(np.array([0.5, 3.0])), [6.0, 36.0])
    np.testing.assert_allclose(applied(lambda x: x + 1, np.array([1.0, 2.0])), [4.0, 6.0])
