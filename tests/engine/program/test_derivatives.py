"""Derivatives of programs are what JAX traces: of each operation, of both orders, and transposed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, lax

from jaxmbd.engine.binding.jax_binding import as_program, run_p
from jaxmbd.engine.binding.tracing import Differentiation, TracedFunction, traced
from jaxmbd.numerics.linear_solve import spd_solver
from jaxmbd.state.result_codes import invalidated
from jaxmbd.upstream.jax_internals import ClosedJaxpr
from tests.engine.program.test_program import ARRAYS, ONE, TWO

Function = Callable[[Array, Array], Array]


@jax.custom_jvp
def own_rule(x: Array) -> Array:
    return jnp.sin(x)


@own_rule.defjvp
def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return own_rule(*primals), 3.0 * tangents[0] * own_rule(*primals)


@jax.custom_jvp
def constant(x: Array) -> Array:
    return jnp.zeros_like(x)


@constant.defjvp
def _(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return constant(*primals), tangents[0] * jnp.cos(primals[0])


def solved(x: Array, y: Array, symmetric: bool) -> Array:
    """A system whose matrix moves; the solution is subtracted and negated outside of it."""
    matrix = jnp.diag(4 + x[:3] ** 2) + jnp.outer(y[:3], y[:3])
    matrix = matrix if symmetric else matrix + jnp.triu(jnp.outer(x[3:6], y[3:6]), 1)
    lower = lambda A, b: _substituted(A, b, symmetric)  # noqa: E731
    solution = lax.custom_linear_solve(
        lambda z: matrix @ z, x[6:9] * y[:3], lambda _, b: lower(matrix, b),
        None if symmetric else lambda _, b: lower(matrix.T, b), symmetric,
    )  # fmt: skip
    return x[:3] - solution * -y[0]


def _substituted(A: Array, b: Array, symmetric: bool) -> Array:
    return spd_solver(A)(b) if symmetric else jnp.linalg.inv(A) @ b if A.size > 9 else _by_cramer(A, b)


def _by_cramer(A: Array, b: Array) -> Array:
    cofactors = jnp.stack([jnp.cross(A[1], A[2]), jnp.cross(A[2], A[0]), jnp.cross(A[0], A[1])], axis=1)
    return -(cofactors @ -b) / (A[0] @ cofactors[:, 0])


def branch(x: Array, y: Array) -> Array:
    inner = lambda z: lax.cond(z[0] > 0, lambda z: jnp.sin(z) * z[1], lambda z: z**2 + z[2], z)  # noqa: E731
    carry, rows = lax.scan(lambda c, z: (c * jnp.cos(z) + z, c * z), x[0], y[:4])
    return jnp.concatenate([inner(x), inner(y), carry[None], rows])


OTHERS: dict[str, Function] = {
    "what is stopped": lambda x, y: lax.stop_gradient(x * y) * y + lax.stop_gradient(x) * x,
    "stopped and subtracted": lambda x, y: x + lax.stop_gradient(jnp.round(y) - x) * y,
    "a rule of its own": lambda x, y: own_rule(x * y) * y,
    "a constant with a rule": lambda x, y: constant(x * y) + y * constant(y),
    "equal ones": lambda x, y: jnp.maximum(x, x * 1.0) * y + jnp.minimum(jnp.floor(y) * 0 + x, x) + jnp.abs(x - x) * y,
    "a branch not taken": lambda x, y: jnp.where(x > 9, jnp.sqrt(jnp.where(x > 9, x - 9, 1.0)) * y, y * x),
    "a symmetric solve": lambda x, y: solved(x, y, True),
    "a solve that is not symmetric": lambda x, y: solved(x, y, False),
    "loops and branches": branch,
    "programs in a program": lambda x, y: as_program(lambda x, y: as_program(jnp.sin)(x * y) * y)(x + y, y),
    "invalid numbers": lambda x, y: invalidated(x[0] < 9, x * y, (x, y)),
    "a clamp": lambda x, y: lax.clamp(-0.5, x, 0.5) * y + jnp.clip(y, -0.5, 0.5),
    "one that does not move": lambda x, y: jnp.sin(lax.stop_gradient(x)) * jnp.ones(12),
}
ALL: dict[str, Function] = {**{k: lambda x, y, f=f: f(x) for k, f in ONE.items()}, **TWO, **ARRAYS, **OTHERS}
# Their transposes write into tables at places that are known late, as JAX traces them.
TABLES = {
    "interpolated", "table of constants", "table that was scaled", "places outside", "rows of a table",
    "tables of a batch",
}  # fmt: skip
# XLA computes what JAX traces for these: it writes at places that are known late, and reads bits from jax 0.12 on.
BY_XLA = {"few places", "written at places", "window written", "erf", "erfc"}
X, Y = np.random.default_rng(5).uniform(-2, 2, (2, 12))


def of_two(function: Function) -> TracedFunction:
    results = lambda *x: [jnp.asarray(y, float) for y in jax.tree.leaves(function(*x))]  # noqa: E731
    return traced(results, [jax.ShapeDtypeStruct((12,), float)] * 2)


def some(function: TracedFunction, seed: int) -> list[np.ndarray]:
    """The two arguments, and arrays for the others of a function."""
    rng = np.random.default_rng(seed)
    return [X, Y, *(rng.normal(size=x.shape) for x in function.types[2:])]


def check(function: TracedFunction, by_xla: bool = False) -> None:
    """Compare a derivative's program with that of the jaxpr that JAX traces for it."""
    program = function.program
    assert "jaxpr" not in function.__dict__, "JAX has traced it"
    assert not isinstance(function.source, ClosedJaxpr)
    by_jax = TracedFunction(function.source.traced(), range(len(function.types)))
    arrays = some(function, 1)
    assert program is not None
    found = run_p.bind(*arrays, function=function, batch=0)
    expected = jax.jit(by_jax)(*arrays) if by_xla else run_p.bind(*arrays, function=by_jax, batch=0)
    for mine, wanted in zip(found, expected, strict=True):
        scale = 1 + np.max(np.abs(np.asarray(wanted)), initial=0.0, where=np.isfinite(wanted))
        np.testing.assert_allclose(mine, wanted, rtol=1e-12, atol=1e-13 * scale)


@pytest.mark.parametrize("name", ALL)
def test_derivatives_are_those_of_jax(name: str) -> None:
    base = of_two(ALL[name])
    first = base._derivative((0, 1), True)
    second = first._derivative((0, 1, 2), False)
    for each in (base._derivative((1,), False), first, second):
        check(each, name in BY_XLA)


# A table whose elements move is read by what JAX traces.
@pytest.mark.parametrize("name", [name for name in ALL if name not in TABLES or name == "table of constants"])
def test_several_directions_are_those_of_jax(name: str) -> None:
    base = of_two(ALL[name])
    for moving in ((0, 1), (1,)):
        source = Differentiation(base, moving, True, 3)
        check(TracedFunction(source, range(len(source.in_avals))), name in BY_XLA)


def test_what_is_not_chosen_may_be_no_number() -> None:
    """In each direction, also where coefficients of both branches are multiplied out."""
    base = of_two(lambda x, y: jnp.where(x > 9, 2 * jnp.sqrt(x - 9) * y, jnp.where(y < 9, x * y, jnp.log(y - 9))) * x)
    source = Differentiation(base, (0, 1), True, 3)
    several = TracedFunction(source, range(4))
    check(several)
    assert np.isfinite(run_p.bind(*some(several, 1), function=several, batch=0)[1]).all()


@pytest.mark.parametrize("name", [name for name in ALL if name not in {*TABLES, "invalid numbers"}])
def test_transposes_are_those_of_jax(name: str) -> None:
    tangents = of_two(ALL[name])._derivative((0, 1), False)
    for wanted in ((2, 3), (3,)):
        check(tangents.transpose(wanted), name in BY_XLA)


def test_arguments_in_another_order() -> None:
    """As of the tangents that a motion takes along; of these, too, there are derivatives."""
    first = of_two(lambda x, y: jnp.sin(x) * y**2)._derivative((0, 1), True)
    order = [0, 2, 1, 3]
    other = TracedFunction(first.source, order)
    arrays = some(first, 1)
    for mine, wanted in zip(*(run_p.bind(*x, function=f, batch=0) for x, f in (
        (arrays, first), ([arrays[k] for k in order], other),
    )), strict=True):  # fmt: skip
        np.testing.assert_allclose(mine, wanted, rtol=1e-15)
    check(other._derivative((1, 2), False))


def test_a_function_with_a_transpose_of_its_own_keeps_it() -> None:
    """That of `invalidated` is not the transpose of its operations: NaN where an invalid number has been used."""
    function = as_program(OTHERS["invalid numbers"])
    for limit, is_used in ((9.0, False), (-9.0, True)):
        loss = lambda x, limit=limit: jnp.sum(as_program(lambda x: invalidated(x[0] < limit, x * Y, (x,)))(x))  # noqa: E731
        assert np.isnan(jax.grad(loss)(jnp.asarray(X))).any() == is_used
    check(of_two(function)._derivative((0, 1), True))
