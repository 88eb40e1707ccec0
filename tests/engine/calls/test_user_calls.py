"""What is stored of a model with users' functions is taken for the same computation only, however they are written."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.engine.calls.calls import FlatCall
from jaxmbd.engine.calls.user_calls import UserFunction, watched
from tests.engine.calls.test_disk_cache import files, forget, kept_in


def cached(k: float) -> Any:
    """A law whose text is always the same; what it calls is remembered."""

    @functools.cache
    def stiffness() -> float:
        return k

    return lambda t, length, rate: stiffness() * length


def attribute(k: float) -> Any:
    def law(t: Any, length: Any, rate: Any) -> Any:
        return law.stiffness * length  # pyright: ignore[reportFunctionMemberAccess]

    law.stiffness = k  # pyright: ignore[reportFunctionMemberAccess]
    return law


class Pickled:
    """An object that says of itself less than it holds."""

    def __init__(self, k: float) -> None:
        self.k = k

    def __reduce__(self) -> Any:
        return Pickled, (0.0,)

    def __call__(self, t: Any, length: Any, rate: Any) -> Any:
        return self.k * length


def slider(space: Any, law: Any, stretch: Any = 0.5) -> Any:
    """The acceleration [m/s²] of a slider of 1 kg, which the law pulls to a point 1 m behind the guide's origin."""
    body = pl.Body("b", 1.0, 0.1) if space is pl else sp.Body("b", 1.0, (0.1, 0.1, 0.1))
    origin = (0.0,) * (2 if space is pl else 3)
    behind = (-1.0, *origin[1:])
    along = {} if space is pl else {"axis": "x"}
    guide = space.Prismatic("J", space.ground.at(*origin, **along), body.at(*origin, **along))
    spring = space.SpringDamper("s", space.ground.at(*behind), body.at(*origin), 0.0, 0.0, 0.0, law)
    model = space.Mechanism([body], [guide], [spring])
    return mbd.simulate(model, mbd.assemble(model, {"b.x": stretch}), [0.0, 0.1])["b.ax"][0]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for JAX's cache."""
    with kept_in(tmp_path):
        yield tmp_path


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the analyses that are traced."""
    names, apply = list[str](), FlatCall.apply
    monkeypatch.setattr(FlatCall, "apply", lambda self, x: (names.append(self.name), apply(self, x))[1])
    return names


@pytest.mark.parametrize(
    "law", [cached, pytest.param(attribute, marks=pytest.mark.slow), pytest.param(Pickled, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("space", [pl, pytest.param(sp, marks=pytest.mark.slow)], ids=["plane", "space"])
def test_a_law_that_changes_unseen(folder: Path, begun: list[str], law: Callable[[float], Any], space: Any) -> None:
    """k·(1 + .5) m pulls 1 kg back; the first law is found again without a trace."""
    for k, is_new in ((10.0, True), (20.0, True), (10.0, False)):
        forget()
        begun.clear()
        np.testing.assert_allclose(slider(space, law(k)), -1.5 * k, rtol=1e-12)
        assert ("integrate" in begun) == is_new


@pytest.mark.slow
def test_a_rule_for_derivatives_that_changes_unseen(folder: Path) -> None:
    """The values are those of before, and the gradient is that of the new rule: -stretch's factor."""

    def law(factor: float) -> Any:
        pull = jax.custom_jvp(lambda x: 10.0 * x)
        pull.defjvps(lambda change, _, x: factor * change)
        return lambda t, length, rate: pull(length)

    for factor in (10.0, 30.0):
        forget()
        value, slope = jax.value_and_grad(lambda x, f=factor: slider(pl, law(f), x))(0.5)
        np.testing.assert_allclose((value, slope), (-15.0, -factor), rtol=1e-9)


class Push(pl.AbstractForce):
    """A force of a user's class, whose methods the library may call for anything."""

    name: str = eqx.field(static=True)
    point: pl.Marker
    strength: Callable[[], float] = eqx.field(static=True)

    @property
    def markers(self) -> Any:
        return (self.point,)

    def wrenches(self, t: Any, frames: Any, rates: Any) -> Any:
        return jnp.array([[-self.strength(), 0.0, 0.0]])

    def potential(self, t: Any, frames: Any) -> Any:
        return jnp.zeros(())


@pytest.mark.slow
def test_objects_of_users_classes_are_not_stored(folder: Path) -> None:
    body = pl.Body("b", 1.0, 0.1)
    guide = pl.Prismatic("J", pl.ground.at(0, 0), body.at(0, 0))
    for size in (15.0, 30.0):
        forget()
        push = Push("push", body.at(0, 0), functools.cache(lambda size=size: size))
        model = pl.Mechanism([body], [guide], [push])
        motion = mbd.simulate(model, mbd.assemble(model, {"b.x": 0.5}), [0.0, 0.1])
        np.testing.assert_allclose(motion["b.ax"][0], -size, rtol=1e-12)
    assert not [path for path in files(folder) if "integrate" in path.name or "readings" in path.name]


def test_a_function_is_traced_once_for_each_type() -> None:
    calls = list[Any]()

    def law(x: Any, name: str) -> Any:
        calls.append(name)
        return {"double": 2 * x, "name": name, "none": None}

    user = watched(law)
    assert isinstance(user, UserFunction)
    assert watched(law) is user
    traced = jax.make_jaxpr(lambda x: [user(x, "a")["double"], user(x + 1, "a")["double"], user(x, "b")["double"]])
    traced(jnp.zeros(3))
    assert calls == ["a", "b"]
    assert user(jnp.ones(3), "a")["name"] == "a"
    np.testing.assert_array_equal(user(jnp.ones(3), "a")["double"], [2.0, 2.0, 2.0])
    (first, one), (second, other) = user.identity()
    assert one != other
    assert [user.again(first), user.again(second)] == [one, other]
    assert watched(jnp.sin) is jnp.sin  # of a library
