"""Functions as programs: every operation, batch, derivative and fallback gives what JAX gives."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import special

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.engine import choice
from jaxmbd.engine.binding import jax_binding as calls
from jaxmbd.engine.binding import tracing
from jaxmbd.engine.binding.jax_binding import as_program
from jaxmbd.engine.machine import build_vm as native
from jaxmbd.engine.machine import c_library
from jaxmbd.engine.program.opcodes import EVALUATE
from jaxmbd.engine.program.symbolic_ldlt import Pattern
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.formulations.joint_loads import motion_of
from jaxmbd.numerics.linear_solve import SymmetricMatrix, spd_solver
from tests.marks import in_both_coordinates
from tests.numeric import worst

ROUNDING = 4e-15  # a few units in the last place, of sums and of products that are fused
SINGLE = 3e-6

ONE: dict[str, Callable[..., Any]] = {
    "neg": lambda x: -x,
    "abs": jnp.abs,
    "sign": jnp.sign,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "asin": lambda x: jnp.arcsin(x / 4),
    "acos": lambda x: jnp.arccos(x / 4),
    "atan": jnp.arctan,
    "sinh": jnp.sinh,
    "cosh": jnp.cosh,
    "tanh": jnp.tanh,
    "asinh": jnp.arcsinh,
    "acosh": lambda x: jnp.arccosh(1 + x * x),
    "atanh": lambda x: jnp.arctanh(x / 4),
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "expm1": jnp.expm1,
    "log": lambda x: jnp.log(x * x),
    "log1p": lambda x: jnp.log1p(x * x),
    "sqrt": lambda x: jnp.sqrt(x * x + 1),
    "rsqrt": lambda x: lax.rsqrt(x * x + 1),
    "cbrt": jnp.cbrt,
    "erf": special.erf,
    "erfc": special.erfc,
    "logistic": jax.nn.sigmoid,
    "log2": lambda x: jnp.log2(x * x),
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "round": jnp.round,
    "round_away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "is_finite": lambda x: jnp.where(jnp.isfinite(1 / (x - x[0])), x, 2 * x),
    "power": lambda x: x**5 + x**-3,
    "clamp": lambda x: jnp.clip(x, -1.0, 1.0),
    "square": jnp.square,
    "polynomial": lambda x: jnp.polyval(jnp.array([0.5, -2.0, 0.0, 3.0], x.dtype), x),
}
TWO: dict[str, Callable[..., Any]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "atan2": jnp.arctan2,
    "pow": lambda x, y: jnp.abs(x) ** y,
    "rem": lax.rem,
    "fma": lambda x, y: x * y + 3.0 * x,
    "fms": lambda x, y: x * y - jnp.sin(y),
    "fnma": lambda x, y: jnp.sin(x) - y * x,
    "eq": lambda x, y: jnp.where(jnp.round(x) == jnp.round(y), x, y),
    "ne": lambda x, y: jnp.where(jnp.round(x) != jnp.round(y), x, y),
    "lt": lambda x, y: jnp.where(x < y, x * y, y),
    "le": lambda x, y: jnp.where(x <= y, x * y, y),
    "gt": lambda x, y: jnp.where(x > y, x * y, y),
    "and": lambda x, y: jnp.where((x > 0) & (y > 0), x, 7.0),
    "or": lambda x, y: jnp.where((x > 0) | (y > 0), x, 7.0),
    "xor": lambda x, y: jnp.where((x > 0) ^ (y > 0), x, 7.0),
    "not": lambda x, y: jnp.where(~(x > y), x, y),
}
ARRAYS: dict[str, Callable[..., Any]] = {
    "product of matrices": lambda x, y: x[:6].reshape(2, 3) @ y[:6].reshape(3, 2),
    "batched product": lambda x, y: jnp.einsum("bij,bjk->bki", x.reshape(2, 2, 3), y.reshape(2, 3, 2)),
    "gather": lambda x, y: x[np.array([[3, 1], [11, 3]])] * y[np.array([[0, 0], [5, 0]])],
    "scatter": lambda x, y: x.at[np.array([1, 1, 4])].add(y[:3]).at[np.array([0])].set(y[5]),
    "slices": lambda x, y: jnp.concatenate([x[::-1][2:9:3], jnp.pad(y, (1, 2), constant_values=3.0)]),
    "dynamic slice": lambda x, y: lax.dynamic_update_slice(x, lax.dynamic_slice(y, (3,), (4,)), (6,)),
    "reductions": lambda x, y: jnp.stack([x.sum(), y.max(), jnp.min(x * y), jnp.prod(x), jnp.any(x > 1.0) * 1.0]),
    "running sums": lambda x, y: jnp.cumsum(x) + lax.cumprod(y, reverse=True),
    "choice of a branch": lambda x, y: lax.cond(x[0] > y[0], lambda a: a * 2, jnp.sin, x),
    "loop": lambda x, y: lax.scan(lambda c, a: (c * 0.5 + a, c), x[:3], y.reshape(4, 3)),
    "derivative inside": lambda x, y: jax.jacfwd(lambda a: jnp.sin(a[:, None] * y[None, :3]).sum(1))(x[:3]),
    "structural zeros": lambda x, y: jnp.diag(x[:3]) @ jnp.diag(y[:3]) @ jnp.triu(jnp.ones((3, 3))),
    "constants": lambda x, y: jnp.full(3, 2.0) + 0 * x[0],
    "booleans out": lambda x, y: (x > y, x),
    "rest of whole numbers": lambda x, y: lax.rem(jnp.array([7, 8]), (10 * y[:2]).astype(int)) * x[:2],
    "quotient of whole numbers": lambda x, y: lax.div((100 * x).astype(int), jnp.array(7)) * y,
    "interpolated": lambda x, y: jnp.interp(x, jnp.arange(12) / 3 - 2, y),
    "table of constants": lambda x, y: jnp.interp(x, jnp.arange(12) / 3 - 2, jnp.arange(12) ** 2),
    "table that was scaled": lambda x, y: jnp.interp(x[:3], y[0] * jnp.arange(4), 1 - y[2] * x[::3]),
    "few places": lambda x, y: jnp.concatenate([jnp.sin(x), y])[jnp.clip((10 * x).astype(int), 0, 23)],
    "places outside": lambda x, y: x.at[(10 * y).astype(int)].get(mode="fill", fill_value=7.0),
    "rows of a table": lambda x, y: lax.dynamic_slice(
        x.reshape(4, 3), [(y[0] * 9).astype(int), jnp.abs(y[1]).astype(int)], (2, 2)
    ),
    "written at places": lambda x, y: x.at[(10 * y).astype(int)].add(y).at[(5 * x).astype(int)].max(0.3),
    "window written": lambda x, y: lax.dynamic_update_slice(x, 3 * y[:4], [(y[0] * 9).astype(int)]),
    "tables of a batch": lambda x, y: jax.vmap(lambda a, b: a[(b * 9).astype(int)])(x.reshape(4, 3), y[:4]),
}


@pytest.fixture
def pair(rng: np.random.Generator) -> tuple[jax.Array, jax.Array]:
    x, y = rng.uniform(-2, 2, (2, 12))
    return jnp.asarray(x), jnp.asarray(y)


def run(function: Callable[..., Any], *arguments: Any, axes: Any = None) -> Any:
    """The function as a program; an error where it is none."""
    mapped = as_program(function) if axes is None else jax.vmap(as_program(function), axes)
    lowered = jax.jit(mapped).lower(*arguments)
    assert "jaxmbd_run" in lowered.as_text()
    return lowered.compile()(*arguments)


def equal(found: Any, wanted: Any, tolerance: float) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        scale = 1 + np.max(np.abs(np.asarray(other, float)), initial=0.0)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", [*ONE, *TWO, *ARRAYS])
def test_a_program_computes_what_jax_does(name: str, pair: Any) -> None:
    table = {**{k: lambda x, y, f=f: f(x) for k, f in ONE.items()}, **TWO, **ARRAYS}
    equal(run(table[name], *pair), table[name](*pair), ROUNDING)


def test_every_operation_has_its_test() -> None:
    assert set(EVALUATE) <= {*ONE, *TWO, "select"}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_batch_runs_in_lanes(dtype: Any, rng: np.random.Generator) -> None:
    """In batches of less than, as many as and more than the lanes; an instance has its numbers in each of them."""
    x, y = (jnp.asarray(rng.uniform(-2, 2, shape), dtype) for shape in ((4000, 12), (12,)))

    def everything(x: jax.Array, y: jax.Array) -> Any:
        return [f(x) for f in ONE.values()], [f(x, y) for f in TWO.values()], ARRAYS["scatter"](x, y)

    rough = [*ONE].index("tan")  # far from its poles only to some digits
    wanted = jax.vmap(everything, (0, None))(x, y)
    wanted[0][rough] = jnp.zeros((4000, 0), dtype)
    for batch in (1, 7, 8, 9, 33, 4000):
        found = run(everything, x[:batch], y, axes=(0, None))
        found[0][rough] = jnp.zeros((batch, 0), dtype)
        some = jax.tree.map(lambda values, batch=batch: values[:batch], wanted)
        equal(found, some, 1e-13 if dtype == np.float64 else 1e-4)


@pytest.mark.parametrize("size", [10_000, 30_000, 70_000], ids=["short", "long", "longer than a short count"])
@pytest.mark.parametrize("batch", [0, 3])
def test_codes_with_short_and_long_numbers(size: int, batch: int, rng: np.random.Generator) -> None:
    """Three slots for each number: short numbers count up to 65,535."""
    x = rng.normal(size=(size, *(batch,) * bool(batch)))
    function = as_program(lambda x: (x + 1.0) * x[::-1])
    result = (jax.vmap(function, 1, 1) if batch else function)(jnp.asarray(x))
    np.testing.assert_array_equal(result, (x + 1.0) * x[::-1])


def test_batches_of_batches(rng: np.random.Generator) -> None:
    x, y = jnp.asarray(rng.normal(size=(3, 12))), jnp.asarray(rng.normal(size=(5, 12)))
    nested = lambda f: jax.vmap(jax.vmap(f, (None, 0)), (0, None))  # noqa: E731
    equal(jax.jit(nested(as_program(ARRAYS["slices"])))(x, y), nested(ARRAYS["slices"])(x, y), ROUNDING)
    last = lambda f: jax.vmap(f, (1, 1), -1)  # noqa: E731
    equal(jax.jit(last(as_program(TWO["fma"])))(x.T, x.T), last(TWO["fma"])(x.T, x.T), ROUNDING)


def smooth(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum(jnp.sin(x * y[0]) * jnp.exp(-y) / (1 + x[::-1] ** 2)) ** 2


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd, jax.hessian, lambda f: jax.jacfwd(jax.grad(f, 1))])
def test_derivatives(derivative: Any, pair: Any) -> None:
    equal(jax.jit(derivative(as_program(smooth)))(*pair), derivative(smooth)(*pair), 1e-13)


def test_what_a_batch_has_in_common_gets_the_sum_of_its_cotangents(rng: np.random.Generator) -> None:
    x, y = jnp.asarray(rng.normal(size=(21, 12))), jnp.asarray(rng.normal(size=12))
    total = lambda f: lambda x, y: jnp.sum(jax.vmap(f, (0, None))(x, y))  # noqa: E731
    for k in (0, 1):
        equal(jax.jit(jax.grad(total(as_program(smooth)), k))(x, y), jax.grad(total(smooth), k)(x, y), 1e-12)


@pytest.mark.parametrize("count", [1, 8, 11])
def test_tangents_share_what_does_not_move(count: int, pair: Any, rng: np.random.Generator) -> None:
    tangents = jnp.asarray(rng.normal(size=(count, 12)))
    push = lambda f: lambda d: jax.jvp(lambda x: f(x, pair[1]), (pair[0],), (d,))[1]  # noqa: E731
    equal(jax.jit(jax.vmap(push(as_program(smooth))))(tangents), jax.vmap(push(smooth))(tangents), 1e-13)


@pytest.mark.parametrize("count", [1, 2, 10])
def test_values_and_tangents_in_one_program(count: int, pair: Any, rng: np.random.Generator) -> None:
    x, y = pair
    tangents = jnp.asarray(rng.normal(size=(count, 12)))

    def both(f: Any) -> Callable[..., Any]:
        along = lambda x, d: jax.jvp(lambda x: f(x, y), (x,), (d,))  # noqa: E731
        return lambda x, d: jax.vmap(along, (None, 0), (None, 0))(x, d)

    pushed = both(as_program(smooth, forward=True))
    lowered = jax.jit(pushed).lower(x, tangents)
    assert lowered.as_text().count("custom_call") == 1
    equal(lowered.compile()(x, tangents), both(smooth)(x, tangents), 1e-13)
    several = jnp.stack([x, 2 * x, x - 1])  # then nothing is shared
    equal(
        jax.jit(jax.vmap(pushed, (0, None)))(several, tangents),
        jax.vmap(both(smooth), (0, None))(several, tangents),
        1e-13,
    )
    hessian = lambda f: jax.jacfwd(jax.jacfwd(f))  # noqa: E731
    equal(jax.jit(hessian(as_program(smooth, forward=True)))(*pair), hessian(smooth)(*pair), 1e-13)


def looked_up(x: jax.Array, y: jax.Array) -> jax.Array:
    """From tables that move, one of them scaled, at places that move."""
    at = 0.8 * jnp.sin(x)
    return jnp.interp(at, jnp.arange(12) / 4 - 1, y) + x[0] * jnp.interp(at, jnp.arange(4.0) - 1, x[1] * y[:4])


@pytest.mark.parametrize("derivative", [jax.jacfwd, jax.jacrev, lambda f, k: jax.jacfwd(jax.jacrev(f, k), k)])
@pytest.mark.parametrize("argument", [0, 1])
def test_derivatives_of_what_is_looked_up(derivative: Any, argument: int, pair: Any) -> None:
    lowered = jax.jit(derivative(as_program(looked_up), argument)).lower(*pair)
    assert lowered.as_text().count("while") == 0
    equal(lowered.compile()(*pair), derivative(looked_up, argument)(*pair), 1e-13)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_tables_in_lanes(axes: Any, rng: np.random.Generator) -> None:
    x, y = (jnp.asarray(rng.normal(size=(21, 12) if axis == 0 else 12)) for axis in axes)
    equal(run(looked_up, x, y, axes=axes), jax.vmap(looked_up, axes)(x, y), ROUNDING)


def test_an_index_beyond_a_table_or_undefined_stays_in_it() -> None:
    table = jnp.array([1.0, 2.0, 3.0])
    far = jnp.array([-1e300, -1.0, 0.0, 2.0, 3.0, 1e300, jnp.inf, jnp.nan])
    assert run(lambda x: jnp.take(table, x.astype(int), mode="clip"), far, axes=0).tolist() == [
        1.0,
        1.0,
        1.0,
        3.0,
        3.0,
        3.0,
        3.0,
        1.0,
    ]


def test_a_table_takes_no_time_to_carry_along(pair: Any) -> None:
    def program_for(table: jax.Array) -> Any:
        arguments = jax.tree.flatten((pair[0], table))
        found = calls._look_up(lambda x, t: jnp.interp(x[0], t, t), *arguments, forward=False)
        assert found is not None
        return found[0].program

    few, many = (program_for(jnp.arange(float(n))) for n in (1000, 4000))
    assert many.operations - few.operations < 40  # two laps of the search
    assert many.loads.size == few.loads.size


@in_both_coordinates("joint")
def test_measured_torques_and_motions_are_parts_of_programs(coordinates: str) -> None:
    ts = np.linspace(0.0, 2.0, 40)
    arm, rod = pl.Body("arm", 1.0, 0.1, pose=(0.0, -0.5, 0.0)), pl.Body("rod", 0.5, 0.02, pose=(0.0, -1.2, 0.0))
    pins = [pl.Revolute("O", pl.ground.at(), arm.at(0, 0.5)), pl.Revolute("E", arm.at(0, -0.5), rod.at(0, 0.2))]
    torque = pl.JointForce("motor", "E.angle", lambda t, angle, rate, p: jnp.interp(t, *p), jnp.stack([ts, ts**2]))
    turned = pl.Driver("turned", "O.angle", mbd.SmoothingSpline(ts, np.sin(3 * ts), 0))
    mechanism = pl.Mechanism([arm, rod], pins, [pl.Gravity(), torque], [turned]).with_coordinates(coordinates)
    equations, at = (
        Equations(mechanism),
        (jnp.asarray(0.7), jnp.linspace(0.1, 0.9, mechanism.nq), jnp.ones(mechanism.nv)),
    )
    wanted = jax.jit(lambda *x: mbd.Stabilized().motion(equations, *x).vdot)(*at)
    equal(run(lambda *x: motion_of(mbd.Stabilized(), equations, *x).vdot, *at), wanted, 1e-11)


def test_sine_and_cosine_to_the_last_place(rng: np.random.Generator) -> None:
    angles = np.concatenate([rng.uniform(-b, b, 4000) for b in (1.0, 10.0, 1e4, 1e8)])
    angles = jnp.asarray(np.concatenate([angles, np.arange(-400, 400) * np.pi / 4]))
    sine, cosine = run(lambda x: (jnp.sin(x), jnp.cos(x)), angles, axes=0)
    assert worst(sine - np.sin(angles)) < 2.3e-16
    assert worst(cosine - np.cos(angles)) < 2.3e-16


def test_infinite_and_undefined_numbers_pass_through() -> None:
    x = jnp.array([np.nan, np.inf, -np.inf, 1.0, 0.0])
    for function in (jnp.sin, lambda x: jnp.maximum(x, 0.5), lambda x: jnp.minimum(0.5, x), jnp.sign, lambda x: 1 / x):
        wanted = function(x)
        np.testing.assert_array_equal(run(function, x), wanted)
        np.testing.assert_array_equal(run(function, jnp.tile(x, 3), axes=0), jnp.tile(wanted, 3))


def test_what_is_no_arithmetic_runs_by_xla(pair: Any) -> None:
    halving = lambda x, y: lax.while_loop(lambda c: c.sum() > 1.0, lambda c: c / 2, x * x)  # noqa: E731
    scrambled = lambda x, y: ((1000 * x).astype(jnp.uint32) * jnp.uint32(1664525)) % 1000 * y  # noqa: E731
    for function in (lambda x, y: jnp.sort(x) + y, lambda x, y: jnp.linalg.qr(x.reshape(4, 3))[1], halving, scrambled):
        lowered = jax.jit(as_program(function)).lower(*pair)
        assert "jaxmbd_run" not in lowered.as_text()
        equal(lowered.compile()(*pair), jax.jit(function)(*pair), 1e-14)


def test_a_number_in_a_closure_may_be_traced(pair: Any) -> None:
    def loss(c: jax.Array) -> jax.Array:
        return jnp.sum(as_program(lambda x: jnp.sin(c * x))(pair[0]))

    wanted = jnp.sum(pair[0] * jnp.cos(0.3 * pair[0]))
    assert worst(jax.jit(jax.grad(loss))(jnp.asarray(0.3)) - wanted) < ROUNDING * 10


def test_a_program_runs_outside_of_other_functions_too(pair: Any) -> None:
    equal(as_program(TWO["fma"])(*pair), TWO["fma"](*pair), ROUNDING)


def test_a_function_that_returns_its_argument_calls_nothing(pair: Any) -> None:
    x, _ = pair
    turns = {"same": lambda x: x.reshape(2, -1).reshape(-1), "reversed": lambda x: x[::-1], "cut": lambda x: x[:-1]}
    for name, function in turns.items():
        equal(jax.vmap(as_program(function))(jnp.stack([x, 2 * x])), jax.vmap(function)(jnp.stack([x, 2 * x])), 0.0)
        assert ("jaxmbd_run" in jax.jit(as_program(function)).lower(x).as_text()) == (name != "same")


def test_without_a_compiler_it_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, pair: Any) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setattr(c_library.tempfile, "gettempdir", lambda: "/dev/null")
    with pytest.warns(UserWarning, match="slower, since its own machine could not be compiled: .* C compiler"):
        assert native._machine.__wrapped__() is None
    monkeypatch.setattr(calls, "vm", lambda: None)
    assert "jaxmbd_run" not in jax.jit(as_program(TWO["fma"])).lower(*pair).as_text()
    equal(as_program(TWO["fma"])(*pair), TWO["fma"](*pair), ROUNDING)


# --- sparse elimination -----------------------------------------------------------------------------------


def chain(n: int, rng: np.random.Generator) -> tuple[SymmetricMatrix, np.ndarray]:
    """A block tridiagonal matrix, its rows shuffled."""
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n)) // 1) <= 2
    half = np.where(near, rng.normal(size=(n, n)), 0.0)
    S = half + half.T + 10 * np.eye(n)
    shuffled = rng.permutation(n)
    S = S[np.ix_(shuffled, shuffled)]
    i, j = np.nonzero(np.tril(S))
    return SymmetricMatrix(jnp.asarray(S[i, j]), Pattern(n, i, j)), S


@pytest.mark.parametrize("n", [1, 3, 5, 40, pytest.param(120, marks=pytest.mark.slow)])
def test_sparse_solves(n: int, rng: np.random.Generator) -> None:
    sparse, S = chain(n, rng)
    b = jnp.asarray(rng.normal(size=(n, 3)))
    solve = lambda values, b: SymmetricMatrix(values, sparse.pattern).solver()(b)  # noqa: E731
    wanted = np.linalg.solve(S, b)
    for found in (run(solve, sparse.values, b), jax.jit(solve)(sparse.values, b)):
        assert worst(found - wanted) < 1e-13
    assert worst(sparse.times(b[:, 0]) - S @ b[:, 0]) < 1e-13
    loss = lambda f: lambda values: jnp.sum(f(values, b) ** 2)  # noqa: E731
    gradient = jax.grad(lambda values: jnp.sum(jnp.linalg.solve(_full(values, sparse.pattern), b) ** 2))(sparse.values)
    for f in (as_program(solve), solve):
        assert worst(jax.jit(jax.grad(loss(f)))(sparse.values) - gradient) < 1e-11


@pytest.mark.slow
def test_xla_eliminates_large_sparse_matrices_too(rng: np.random.Generator) -> None:
    """No dense matrix, no LAPACK; batches of it as well."""
    sparse, S = chain(150, rng)
    b, factors = jnp.asarray(rng.normal(size=150)), jnp.asarray([1.0, 2.0])
    solve = jax.jit(jax.vmap(lambda factor: SymmetricMatrix(factor * sparse.values, sparse.pattern).solver()(b)))
    assert worst(solve(factors) - np.linalg.solve(S, b)[None] / factors[:, None]) < 1e-13
    made = solve.lower(factors).as_text()
    assert "lapack" not in made
    assert "150x150" not in made


def _full(values: jax.Array, pattern: Pattern) -> jax.Array:
    lower = jnp.zeros((pattern.n, pattern.n)).at[pattern.rows, pattern.columns].set(values)
    return lower + jnp.tril(lower, -1).T


def test_dense_solves_are_as_good(rng: np.random.Generator) -> None:
    half = jnp.asarray(rng.normal(size=(9, 9)))
    function = lambda half, b: spd_solver(half @ half.T + jnp.eye(9))(b)  # noqa: E731
    b = jnp.asarray(rng.normal(size=9))
    assert worst(run(function, half, b) - np.linalg.solve(half @ half.T + np.eye(9), b)) < 1e-12


def four_bars(n: int) -> Equations:
    """A row of parallelogram four-bars."""
    cranks = [pl.Body(f"crank{k}", 1.0, 1 / 12, pose=(k, 0.5, np.pi / 2)) for k in range(n + 1)]
    couplers = [pl.Body(f"coupler{k}", 1.0, 1 / 12, pose=(k + 0.5, 1.0, 0.0)) for k in range(n)]
    joints = [pl.Revolute(f"O{k}", pl.ground.at(float(k), 0.0), c.at(-0.5, 0.0)) for k, c in enumerate(cranks)]
    for k, coupler in enumerate(couplers):
        joints.append(pl.Revolute(f"A{k}", cranks[k].at(0.5, 0.0), coupler.at(-0.5, 0.0)))
        joints.append(pl.Revolute(f"B{k}", cranks[k + 1].at(0.5, 0.0), coupler.at(0.5, 0.0)))
    return Equations(pl.Mechanism([*cranks, *couplers], joints, [pl.Gravity(9.81)]), redundant=False)


def test_the_program_of_a_chain_grows_linearly_and_its_instructions_with_the_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = []
    monkeypatch.setattr(choice, "PIECE", 10**9)  # all in one piece
    register = calls.register
    monkeypatch.setattr(calls, "register", lambda program: (built.append(program), register(program))[1])
    for n in (10, 40, 160):
        size = 3 * (2 * n + 1)
        motion = lambda e, q, v: motion_of(mbd.Stabilized(), e, jnp.zeros(()), q, v).vdot  # noqa: E731
        eqx.filter_jit(motion)(four_bars(n), jnp.zeros(size), jnp.zeros(size))
    work = [program.operations for program in built]
    assert work[1] / work[0] < 4.5
    assert work[2] / work[1] < 4.2
    steps = [program.instructions for program in built]
    assert steps[2] - steps[1] < 1.5 * (steps[1] - steps[0])  # as the logarithm does


def test_equal_operations_of_thousands_are_one_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    register = calls.register
    monkeypatch.setattr(calls, "register", lambda program: (built.append(program), register(program))[1])
    x = jnp.linspace(0.0, 9.0, 3000)
    equal(jax.jit(as_program(lambda x: jnp.sin(x) * x))(x), jnp.sin(x) * x, ROUNDING)
    assert [(program.operations, program.instructions) for program in built] == [(6000, 2)]


@pytest.mark.parametrize("batch", [1, 11])
def test_a_program_in_pieces_computes_the_same(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    equations, t = four_bars(3), jnp.zeros(())
    q, v = jnp.asarray(0.1 * np.random.default_rng(0).normal(size=(2, batch, 21)))
    found, searched = [], []
    depth_first = tracing.postorder
    monkeypatch.setattr(tracing, "postorder", lambda *x: (searched.append(1), depth_first(*x))[1])
    for size in (10**9, 100):
        monkeypatch.setattr(choice, "PIECE", size)
        assert not searched
        calls._program_of.cache_clear()

        def loss(q: jax.Array, v: jax.Array) -> jax.Array:
            return jnp.sum(motion_of(mbd.Augmented(), equations, t, q, v).vdot ** 2)

        found.append(jax.jit(jax.vmap(jax.grad(loss, argnums=(0, 1))))(q, v))
    for whole, pieces in zip(*found, strict=True):
        assert worst(whole - pieces) < 1e-12 * np.abs(whole).max()
    assert searched
