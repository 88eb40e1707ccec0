"""Laws that every joint and driver has to keep: constraints, their derivatives, reactions."""

from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import lstsq

import jaxmbd as mbd
from jaxmbd.model.joint.joint import AbstractNonholonomic
from tests.model import laws
from tests.model.law_bench import (
    EXACT,
    FIRST,
    OFFSETS,
    SECOND,
    SPACES,
    STEP,
    Bench,
    T,
    bench,
    case_of,
    over,
    resultant,
    stencil,
)


def constraints() -> list[Any]:
    """The joints and drivers, and the global constraints."""
    whole = [pytest.param(space, n, id=f"{space}-{n}") for space in SPACES for n in SPACES[space].globals]
    return over("joints") + whole


def rolls(b: Bench) -> np.ndarray:
    """Which rows constrain velocities alone."""
    found = np.zeros(len(b.lam), dtype=bool)
    for name, part in b.constraints.items():
        if isinstance(part, AbstractNonholonomic):
            frames, _ = b.at_markers(part.markers, b.q, b.v)
            found[b.rows[name][part.residual(jnp.asarray(T), frames).shape[0] :]] = True
    return found


class Fitted(NamedTuple):
    """A fitted state, random speeds that all rows allow at rest, and what the equations say there."""

    q: np.ndarray
    v: np.ndarray
    allowed: np.ndarray
    at: dict[str, Any]


def of_least_norm(C: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The least `x` with `C x = rows`, where rows may repeat one another; by QR, since a decomposition into singular
    values takes ten times as long."""
    return lstsq(C, rows, cond=1e-8, lapack_driver="gelsy")[0]  # pyright: ignore[reportOptionalSubscript]


@cache
def fitted(space: str) -> Fitted:
    """The bench of joints, fitted by Gauss-Newton steps of least norm; its time is not zero, so that moving
    constraints are at work."""
    b = bench(space, "joints")
    q, still, held = b.q, np.zeros(len(b.v)), ~rolls(b)
    at = b(T, q, still)
    for _ in range(100):
        if np.abs(at["phi"]).max() < 1e-12:
            break
        step = -of_least_norm(at["C"][held], at["phi"][held])
        q = b.moved(step * min(1.0, 0.5 / np.abs(step).max()), q)
        at = b(T, q, still)
    v = -of_least_norm(at["C"], at["velocity"])
    free = np.random.default_rng(3).normal(size=len(v))
    return Fitted(q, v, free - of_least_norm(at["C"], at["C"] @ free), b(T, q, v))


@pytest.mark.parametrize(("space", "name"), constraints())
def test_fitted_joint_is_fitted(space: str, name: str) -> None:
    """`Φ = 0` and `Φ̇ = 0` can be reached, and do not hold before."""
    b, found = bench(space, "joints"), fitted(space).at
    rows = b.rows[name]
    assert max(np.abs(b.at["phi"][rows]).max(), np.abs(b.at["velocity"][rows]).max()) > 1e-3
    assert np.all((np.abs(b.at["phi"]) == 0) == rolls(b))
    np.testing.assert_allclose(found["phi"][rows], 0.0, atol=1e-10)
    np.testing.assert_allclose(found["velocity"][rows], 0.0, atol=1e-10)


@cache
def jacobian(space: str) -> np.ndarray:
    """`C` by differences: of `Φ` along the speeds of one body of each part at a time (no row touches bodies of two
    parts), and of `Ψ` by these speeds."""
    b = bench(space, "joints")
    owned = [b.columns(name) for name in laws.names(SPACES[space].joints)]
    unit = np.zeros(len(b.lam), dtype=int)
    for k, name in enumerate(laws.names(SPACES[space].joints)):
        for part, rows in b.rows.items():
            if laws.unit(part) == name:
                unit[rows] = k
    found, rolling = np.zeros_like(b.at["C"]), rolls(b)
    for j in range(max(map(len, owned))):
        column = np.asarray([own[j] if j < len(own) else -1 for own in owned], dtype=int)
        step = np.zeros(len(b.v))
        step[column[column >= 0]] = STEP
        at = np.stack([b(T, b.moved(k * step), b.v)["phi"] for k in OFFSETS])
        slope = np.tensordot(FIRST, at, 1) / STEP
        slip = (b(T, b.q, b.v + step)["velocity"] - b.at["velocity"]) / STEP
        rows = np.flatnonzero(column[unit] >= 0)
        found[rows, column[unit[rows]]] = np.where(rolling, slip, slope)[rows]
    return found


@pytest.mark.parametrize(("space", "name"), constraints())
def test_derivatives_of_constraints_are_those_of_phi(space: str, name: str) -> None:
    """`C`, `Φ̇ = C v + Φ_t` and `Φ̈ = C v̇ − γ` against differences of `Φ` along a motion; of `Ψ` likewise."""
    b, at, near, rows = bench(space, "joints"), bench(space, "joints").at, stencil(space, "joints"), None
    rows = b.rows[name]
    assert np.abs(at["C"][rows]).max() > 0.05
    if name in SPACES[space].globals:  # these reach over parts: `C v` alone
        still = b(T, b.q, 0 * b.v)["velocity"]
        np.testing.assert_allclose(at["C"][rows] @ b.v, (at["velocity"] - still)[rows], atol=EXACT)
    else:
        np.testing.assert_allclose(at["C"][rows], jacobian(space)[rows], atol=1e-8)
    rolling = rolls(b)[rows]
    first = np.tensordot(FIRST, near["phi"], 1) / STEP
    second = (np.tensordot(SECOND, near["phi"], 1) - 2.5 * at["phi"]) / STEP**2
    slipping = np.tensordot(FIRST, near["velocity"], 1) / STEP
    np.testing.assert_allclose(at["velocity"][rows][~rolling], first[rows][~rolling], atol=1e-8)
    expected = np.where(rolling, slipping[rows], second[rows])
    np.testing.assert_allclose(at["C"][rows] @ b.a - at["gamma"][rows], expected, atol=3e-7)


@pytest.mark.parametrize(("space", "name"), over("joints"))
def test_rows_are_those_of_the_law_and_in_their_place(space: str, name: str) -> None:
    """Grouping: a joint's rows are its own residual (and slip), and touch its own bodies only."""
    b = bench(space, "joints")
    part: Any = b.constraints[name]
    frames, rates = b.at_markers(part.markers, b.q, b.v)
    residual = part.residual(jnp.asarray(T), frames)
    count = len(residual)
    np.testing.assert_allclose(b.at["phi"][b.rows[name]][:count], residual, atol=EXACT)
    if isinstance(part, AbstractNonholonomic):
        slip = part.slip(jnp.asarray(T), frames, rates)
        assert len(slip) > 0
        np.testing.assert_allclose(b.at["velocity"][b.rows[name]][count:], slip, atol=EXACT)
    others = np.delete(b.at["C"][b.rows[name]], b.columns(name), axis=1)
    np.testing.assert_array_equal(others, 0.0)


@cache
def reactions(space: str) -> dict[str, np.ndarray]:
    """At the fitted state: the wrenches at each joint's markers that random multipliers make."""
    b, at = bench(space, "joints"), fitted(space).at
    local = [part for part in b.constraints.values() if not isinstance(part, SPACES[space].space.GlobalConstraint)]
    groups = mbd.Equations(b.mechanism).parts.joints
    pairs = [pair for g, w in zip(groups, at["reactions"], strict=True) for pair in zip(g.members, w, strict=True)]
    return {local[member].name: wrenches for member, wrenches in pairs}


@pytest.mark.parametrize(("space", "name"), over("joints", lambda case: not case.moves))
def test_ideal_joint_does_no_work(space: str, name: str) -> None:
    """On speeds that the joints allow, the power of a joint's wrenches at its markers is zero; on others it is `−λᵀ C
    v`."""
    b, state, wrenches = bench(space, "joints"), fitted(space), reactions(space)[name]
    markers = b.constraints[name].markers
    speeds = b.speeds(markers, state.q, state.allowed)
    free = len(b.columns(name)) > sum(len(rows) for part, rows in b.rows.items() if laws.unit(part) == name)
    assert np.abs(speeds).max() > 0.05 or not free
    assert np.abs(wrenches).max() > 0.05
    np.testing.assert_allclose((wrenches * speeds).sum(), 0.0, atol=1e-9)
    power = (wrenches * b.speeds(markers, state.q, b.v)).sum()
    expected = -b.lam[b.rows[name]] @ (state.at["C"][b.rows[name]] @ b.v)
    np.testing.assert_allclose(power, expected, atol=1e-11)
    assert abs(power) > 1e-4


@pytest.mark.parametrize(("space", "name"), over("joints", lambda case: case.pair))
def test_reaction_equals_action(space: str, name: str) -> None:
    """What a joint does to its bodies (the ground and a gear's carrier included) has no resultant."""
    b, wrenches = bench(space, "joints"), reactions(space)[name]
    where, _ = b.places(b.constraints[name].markers, fitted(space).q)
    assert np.abs(wrenches).max() > 0.05
    np.testing.assert_allclose(resultant(wrenches, where), 0.0, atol=1e-10)


@pytest.mark.parametrize("space", SPACES)
def test_only_moving_constraints_need_speed(space: str) -> None:
    """The other side of the laws above: which rows are not zero at rest."""
    b = bench(space, "joints")
    at_rest = b(T, b.q, 0 * b.v)["velocity"]
    for name, rows in b.rows.items():
        if not name.endswith("helper"):
            needs = np.abs(at_rest[rows]).max() > 1e-3
            moves = "moving" in name if name in SPACES[space].globals else case_of(space, name).moves
            assert needs == moves, name
