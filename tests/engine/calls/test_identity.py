"""A function's identity is what it becomes when it is traced: it differs where something else is computed."""

import math
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import jaxmbd as mbd
from jaxmbd.engine.calls.identity import UnidentifiedError, identity_of, traced_identity
from jaxmbd.upstream.jax_internals import Primitive, jaxpr_as_fun
from tests.engine.calls.identity_pairs import EXPRESSIONS, HEAD, PAIRS, READING

SAME = {"exception table only"}  # another key is missed, and the result is that of before
UNTRACED = {"np.vectorize"}  # NumPy takes no traced values


def defined(text: str) -> Any:
    """The function `f` of a module with this text."""
    made = types.ModuleType("usermod")
    sys.modules["usermod"] = made
    exec(text, vars(made))
    return made.f


def identity(function: Any) -> bytes:
    return identity_of(jax.make_jaxpr(lambda x: function(x))(jnp.asarray(0.7)), derivatives=True)


@pytest.fixture
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files and variables that the sources read; what they leave in modules goes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("K", "2")
    Path("k").write_text("2.0")
    monkeypatch.setitem(sys.modules, "sub", types.SimpleNamespace(k=2.0))  # pyright: ignore
    yield
    for module, name in ((np, "MYK"), (jnp, "mysin"), (math, "KK")):
        vars(module).pop(name, None)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0])
def test_what_computes_something_else_has_another_identity(clean: None, pair: tuple[str, ...]) -> None:
    name, first, *other = pair
    second = other[0] if other else first.replace("2.", "3.")
    if name in UNTRACED:
        with pytest.raises(jax.errors.TracerArrayConversionError):
            identity(defined(HEAD + first))
        return
    one, other_one = (identity(defined(HEAD + text)) for text in (first, second))
    assert (one == other_one) == (name in SAME)
    assert identity(defined(HEAD + first)) == one  # made anew


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_is_read_while_tracing_counts(clean: None, expression: str) -> None:
    """Twice the same expression: the identity differs exactly if its value does, as of a clock or random numbers."""
    function = defined(f"{READING}def f(x): return x * float({expression})")
    try:
        traces = [jax.make_jaxpr(lambda x: function(x))(jnp.asarray(1.0)) for _ in range(2)]
    except Exception:  # it is no number, or there is no such file
        return
    (one,), (other,) = (jaxpr_as_fun(trace)(jnp.asarray(1.0)) for trace in traces)
    assert (identity_of(traces[0]) == identity_of(traces[1])) == (float(one) == float(other))


@pytest.mark.parametrize("expression", ["getenv('K')", "environb[b'K']", "Path('k').read_text()", "lt('k')"])
def test_another_content_is_another_identity(clean: None, expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = defined(f"{READING}def f(x): return x * float({expression})")
    first = identity(function)
    assert identity(function) == first
    monkeypatch.setenv("K", "3")
    Path("k").write_text("3.0")
    assert identity(function) != first


def test_random_numbers_differ() -> None:
    numbers = np.random.default_rng(0)
    assert identity(lambda x: x * numbers.normal()) != identity(lambda x: x * numbers.normal())


def test_types_and_settings_count() -> None:
    double = lambda x: 2 * x  # noqa: E731
    kinds = [jnp.zeros(3), jnp.zeros(2), jnp.zeros(3, np.float32), jnp.zeros(3, int)]
    assert len({traced_identity(double, x) for x in kinds}) == 4
    assert traced_identity(double, kinds[0]) == traced_identity(lambda y: 2 * y, jnp.ones(3))


def with_rule(factor: float, reverse: bool) -> Any:
    """The identity with a derivative of its own."""
    if reverse:
        f: Any = jax.custom_vjp(lambda x: x * 1.0)
        f.defvjp(lambda x: (f(x), None), lambda _, c: (factor * c,))
    else:
        f = jax.custom_jvp(lambda x: x * 1.0)
        f.defjvps(lambda t, _, x: factor * t)
    return lambda x: jnp.sin(f(x))


@pytest.mark.parametrize("reverse", [False, True])
def test_rules_of_derivatives_count(reverse: bool) -> None:
    """Also inside of loops; where only values are computed, they do not."""
    one, same, other = (with_rule(k, reverse) for k in (2.0, 2.0, 3.0))
    looped = [lambda x, f=f: jax.lax.scan(lambda c, _: (f(c), None), x, None, 3)[0] for f in (one, same, other)]
    for a, b, c in ((one, same, other), looped):
        assert identity(a) == identity(b) != identity(c)
        assert traced_identity(a, 0.7) == traced_identity(c, 0.7)
    assert identity(jax.nn.relu) == identity(jax.nn.relu) != identity(lambda x: jnp.maximum(x, 0.0))


def test_parts_of_loops_and_conditions_count() -> None:
    def looped(k: float) -> Any:
        return lambda x: jax.lax.while_loop(
            lambda x: x < k, lambda x: jax.lax.cond(x > 1, jnp.sin, lambda x: k * x, x), x
        )

    assert traced_identity(looped(2.0), 0.7) == traced_identity(looped(2.0), 0.7) != traced_identity(looped(3.0), 0.7)


def effects() -> dict[str, Any]:
    like = jax.ShapeDtypeStruct((), float)
    own = Primitive("of_a_user")
    own.def_impl(lambda x: 3 * x)
    own.def_abstract_eval(lambda x: x)
    return {
        "callback": lambda x: jax.pure_callback(lambda x: 2 * x, like, x),
        "io": lambda x: io_callback(lambda x: 2 * x, like, x),
        "debug": lambda x: (jax.debug.callback(lambda x: None, x), x)[1],
        "check": lambda x: eqx.error_if(x, x > 1, "too large"),
        "primitive": own.bind,
    }


@pytest.mark.parametrize("name", ["callback", "io", "debug", "primitive"])
def test_what_calls_python_has_no_identity(name: str) -> None:
    with pytest.raises(UnidentifiedError):
        identity(effects()[name])
    with pytest.raises(UnidentifiedError):
        traced_identity(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: effects()[name](x), x), jnp.asarray(0.7))


MOTION = """
import sys, jax, numpy as np
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, "{root}")
from tests.engine.calls.test_identity import motion
print(motion(9.81).hex(), motion(1.62).hex())
"""


def motion(g: float) -> bytes:
    """The identity of a motion and its derivative, the library's own checks and programs included."""
    made = mbd.examples.get("four-bars")

    def end(mass: Any) -> Any:
        mechanism = eqx.tree_at(lambda m: m.bodies[0].mass, made.mechanism, mass + g)
        return mbd.simulate(mechanism, mbd.assemble(mechanism, {}), np.linspace(0.0, 0.1, 3)).q[-1]

    return traced_identity(jax.jacfwd(end), 1.0)


@pytest.mark.slow
def test_other_processes_find_the_same() -> None:
    """Whatever the order of sets of text is there."""
    root = Path(__file__).parents[3]
    found = []
    for seed in "12":
        code, variables = MOTION.format(root=root), {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    assert found[0] == found[1]
    assert len({*found[0]}) == 2
