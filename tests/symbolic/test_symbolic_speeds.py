"""Chosen speeds with a part that depends on time, `v = A(q, t) p + b(q, t)`: every form in which the equations are
exported, and every analysis that starts from speeds, against the equations that are integrated."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from tests.c_code import compiler, load_c
from tests.marks import slow_but
from tests.planar_examples import rod

TIMES = (0.7, 2.1)  # [s]: at zero the parts that depend on time would vanish
PIECES = ("xM", "vF", "xC", "Psi_p", "Phi", "Phi_dot", "Phi_t", "gamma", "epsilon", "h", "A", "B")
SOLVED = ("vPdot", "vLambda", "vReactions", "vXdot")


def chain_speeds(t: Array, q: Array, p: Array, _: Any) -> Array:
    """Speeds of a double pendulum: `A` turns with the position and with time, `b` depends on both."""
    mixed = jnp.stack([jnp.cos(q[1]) + 2, jnp.sin(q[0]), t, 3 + 0.3 * q[0] ** 2]).reshape(2, 2)
    return mixed @ p + jnp.stack([jnp.sin(t), q[1] * t])


def body_speeds(t: Array, q: Array, p: Array, _: Any) -> Array:
    """Speeds of one body in the plane."""
    return jnp.stack([p[0] + jnp.sin(q[2]) * p[2] + jnp.sin(t), p[1] - t * p[2], (2 + t) * p[2] + q[0] * t])


def ball_speeds(t: Array, q: Array, p: Array, _: Any) -> Array:
    """Angular velocities of a body on a ball joint."""
    return jnp.stack([p[0] + jnp.sin(t), p[1] + t * p[0], p[2] + q[0] * q[1] * t])


def chain(speeds: pl.GeneralizedSpeeds | None) -> pl.Mechanism:
    upper, lower = rod("upper", 1.0, 1.0, (0, 0), -1.0), rod("lower", 0.5, 0.8, (0, 0), -0.5)
    joints = [pl.Revolute("O", pl.ground.at(), upper.at(-0.5)), pl.Revolute("A", upper.at(0.5), lower.at(-0.4))]
    return pl.Mechanism([upper, lower], joints, [pl.Gravity(9.81)], coordinates="joint", speeds=speeds)


def pinned(speeds: pl.GeneralizedSpeeds | None) -> pl.Mechanism:
    """A pendulum in absolute coordinates, whose pin is guided by time."""
    bar = rod("bar", 1.0, 1.0, (0, 0), -1.0)
    joints = [pl.Revolute("O", pl.ground.at(), bar.at(-0.5))]
    return pl.Mechanism([bar], joints, [pl.Gravity(9.81)], speeds=speeds)


def top(speeds: sp.GeneralizedSpeeds | None) -> sp.Mechanism:
    body = sp.Body("top", 1.0, (1.0, 2.0, 2.5))
    joints = [sp.Spherical("O", sp.ground.at(), body.at(0, 0, -0.3))]
    return sp.Mechanism([body], joints, [sp.Gravity(9.81)], coordinates="joint", speeds=speeds)


CASES: dict[str, Any] = {
    "chain": (chain, pl.GeneralizedSpeeds(["u1", "u2"], chain_speeds)),
    "pinned": (pinned, pl.GeneralizedSpeeds(["u1", "u2", "u3"], body_speeds)),
    "top": (top, sp.GeneralizedSpeeds(["u1", "u2", "u3"], ball_speeds)),
}


@cache
def case(name: str) -> tuple[Any, Any, Any]:
    """The mechanism with the chosen speeds, the one with the coordinates' own, and the choice."""
    build, speeds = CASES[name]
    return build(speeds), build(None), speeds


def random_state(mechanism: Any, rng: np.random.Generator) -> tuple[Array, Array]:
    q, p = rng.normal(size=mechanism.nq), rng.normal(size=mechanism.nv)
    if mechanism.coordinate_names[0].endswith(".e0"):
        q /= np.linalg.norm(q)
    return jnp.asarray(q), jnp.asarray(p)


def close_to(found: Any, expected: Any, what: str = "") -> None:
    expected = np.asarray(expected)
    size = 1 + np.abs(expected).max(initial=0)
    np.testing.assert_allclose(np.reshape(found, expected.shape), expected, rtol=0, atol=1e-11 * size, err_msg=what)


@pytest.mark.parametrize("name", CASES)
def test_the_pieces_are_those_of_the_coordinates_own_speeds(name: str, rng: np.random.Generator) -> None:
    """`q̇`, `M`, `Ψ_p`, `Φ̇` and `ṗ` through `v = A p + b` and `v̇ = A ṗ + Ȧ p + ḃ`, from the mechanism without choice."""
    chosen, own, speeds = case(name)
    equations, base = mbd.Equations(chosen), mbd.Equations(own)

    @jax.jit
    def look(t: Array, q: Array, p: Array) -> tuple[Any, ...]:
        given = lambda q, t: speeds.given(t, q, p)  # noqa: E731
        v, A = given(q, t), jax.jacfwd(lambda p: speeds.given(t, q, p))(p)
        pieces = {n: mbd.export(chosen).piece(n)(t, q, p) for n in (*PIECES, *SOLVED)}
        turning = jax.jvp(given, (q, t), (base.rate(t, q, v), jnp.ones_like(t)))[1]
        return pieces, A, turning, {n: mbd.export(own).piece(n)(t, q, v) for n in pieces}, equations.rate(t, q, p)

    for t in TIMES:
        q, p = random_state(chosen, rng)
        pieces, A, turning, expected, rate = look(jnp.asarray(t), q, p)
        close_to(pieces["h"], rate, "h")
        close_to(pieces["h"], expected["h"], "h")
        close_to(pieces["xM"], A.T @ expected["xM"] @ A, "xM")
        close_to(pieces["Psi_p"], expected["Psi_p"] @ A, "Psi_p")
        close_to(pieces["Phi_dot"], expected["Phi_dot"], "Phi_dot")
        close_to(pieces["Phi_dot"], pieces["Psi_p"] @ p + pieces["Phi_t"], "Phi_t")
        close_to(A @ pieces["vPdot"] + turning, expected["vPdot"], "vPdot")
        close_to(pieces["vReactions"], expected["vReactions"], "vReactions")
        close_to(pieces["vXdot"], np.concatenate([pieces["vPdot"], rate]), "vXdot")
        close_to(np.linalg.solve(pieces["A"], pieces["B"]), np.append(pieces["vXdot"], pieces["vReactions"]), "A Y = B")


def test_rates_by_hand() -> None:
    """`q̇₁ = p₁ + sin t`."""
    speeds = pl.GeneralizedSpeeds(["u1", "u2"], lambda t, q, p, _: p + jnp.stack([jnp.sin(t), 0 * t]))
    mechanism = chain(speeds)
    t, q, p = jnp.asarray(0.7), jnp.asarray([0.3, -0.8]), jnp.asarray([1.0, 1.0])
    np.testing.assert_allclose(mbd.export(mechanism).piece("h")(t, q, p), [1.644217687, 1.0], rtol=1e-9)
    system = mbd.SymbolicSystem(mbd.export(mechanism), {"O.angle": "q1", "A.angle": "q2"})
    time, u1, u2 = sympy.symbols("t u1 u2", real=True)
    assert system.h == sympy.Matrix([u1 + sympy.sin(time), u2])
    q1d, q2d = sympy.symbols("qdot1 qdot2", real=True)
    assert system.dae()[2:] == [sympy.Eq(q1d, u1 + sympy.sin(time)), sympy.Eq(q2d, u2)]
    assert list(system.ode()[2][2:]) == [u1 + sympy.sin(time), u2]
    assert list(system.explicit()[0][2:]) == [u1 + sympy.sin(time), u2]


def test_a_chosen_speed_is_no_rate_whatever_its_name() -> None:
    """`q̇` and `p` have symbols of their own; two that are given the same one are refused."""
    speeds = pl.GeneralizedSpeeds(["O.angle_rate", "A.angle_rate"], lambda t, q, p, _: p + jnp.sin(t))
    system = mbd.export(chain(speeds))
    symbolic = mbd.SymbolicSystem(system)
    assert not set(symbolic.vP) & set(symbolic.vQdot)
    with pytest.raises(mbd.MechanismError, match="Two symbols are called 'thetadot_O'"):
        mbd.SymbolicSystem(system, {"O.angle_rate": "thetadot_O"})


@pytest.mark.parametrize("name", slow_but(["chain", "pinned"], CASES))
def test_formulas_and_source_text_agree_with_numbers(name: str, rng: np.random.Generator, tmp_path: Path) -> None:
    """Symbols, `dae()`, `ode()`, NumPy and C text at several times and states; `at(state)` too."""
    mechanism = case(name)[0]
    system = mbd.export(mechanism, alpha=2.0, beta=3.0)
    equations = mbd.Equations(mechanism)
    read = jax.jit(lambda t, q, p: {n: system.piece(n)(t, q, p) for n in (*PIECES, *SOLVED)})
    symbolic = mbd.SymbolicSystem(system, simplify=False)
    pieces = tuple(n for n in PIECES if n not in ("A", "B"))
    space: dict[str, Any] = {}
    exec(symbolic.source("numpy", (*pieces, "vXdot")), space)
    in_c = _compiled(symbolic.source("c", ["h", "vXdot"]), tmp_path)
    symbols = [sympy.Symbol("t", real=True), *symbolic.vQ, *symbolic.vP]
    A, Y, B = symbolic.ode()
    sides = [(row.lhs, row.rhs) for row in symbolic.dae()]
    written = sympy.lambdify([*symbols, *Y], [[getattr(symbolic, n) for n in pieces], A, B, sides], cse=True)
    for t in TIMES:
        q, p = random_state(mechanism, rng)
        numbers = read(jnp.asarray(t), q, p)
        close_to(numbers["h"], equations.rate(jnp.asarray(t), q, p), "h")
        at = system.at(mbd.State(jnp.asarray(t), q, p, mechanism.layout, jnp.asarray(0)))
        for piece in (*PIECES, *SOLVED):
            close_to(at[piece], numbers[piece], piece)
        found = space["equations"](t, np.asarray(q), np.asarray(p))
        for piece in (*pieces, "vXdot"):
            close_to(found[piece], numbers[piece], piece)
        unknowns = np.append(numbers["vXdot"], numbers["vReactions"])
        formulas, matrix, right, rows = written(t, *q, *p, *unknowns)
        for piece, value in zip(pieces, formulas, strict=True):
            close_to(np.asarray(value, float), numbers[piece], piece)
        close_to(np.asarray(matrix, float), numbers["A"], "A")
        close_to(np.asarray(right, float), numbers["B"], "B")
        motion, rates = rows[: len(p)], rows[len(p) : len(p) + len(q)]
        close_to([a for a, _ in motion], [b for _, b in motion], "dynamics")
        close_to([b for _, b in rates], numbers["h"], "q̇ = h")
        if in_c is not None:
            h, xdot = in_c(t, np.asarray(q), np.asarray(p))
            close_to(h, numbers["h"], "h in C")
            close_to(xdot, numbers["vXdot"], "vXdot in C")


def _compiled(text: str, folder: Path) -> Any:
    if compiler() is None:
        return None
    function = load_c(text, folder).equations
    function.argtypes = [ctypes.c_double, *[np.ctypeslib.ndpointer(float)] * 4]

    def run(t: float, q: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        h, xdot = np.empty(len(q)), np.empty(len(q) + len(p))
        function(t, q.copy(), p.copy(), h, xdot)
        return h, xdot

    return run


# --- elsewhere -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_mechanism_at_rest_is_at_rest_whatever_its_speeds(name: str) -> None:
    """Assembled without speeds, the bodies do not move where nothing moves them, though `p = −A⁻¹ b`; and with one
    speed given the motion is that of least kinetic energy, as with the coordinates' own speeds."""
    chosen, own, _ = case(name)
    still = mbd.assemble(chosen, t=0.7)
    assert np.abs(np.asarray(still.v)).max() > 0.1
    twists = mbd.Equations(chosen).at(still.t, still.q).twists(still.v)
    np.testing.assert_allclose(twists, 0.0, atol=1e-12)
    if name == "chain":
        states = [mbd.assemble(m, {"A.angle": 0.8}, speeds={"lower.omega": 2.0}, t=0.7) for m in (chosen, own)]
        values = [mbd.Equations(m).at(s.t, s.q).twists(s.v) for m, s in zip((chosen, own), states, strict=True)]
        np.testing.assert_allclose(values[0], values[1], atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_coordinates_a_time_later(name: str, rng: np.random.Generator) -> None:
    """What predictions take, at constant `p`: the first and second derivative by time are `q̇` and `q̈`."""
    equations = mbd.Equations(case(name)[0])
    q, p = random_state(case(name)[0], rng)
    t, now = jnp.asarray(0.7), jnp.asarray(0.0)
    later = lambda s: equations.at(t, q).advanced(p, s)  # noqa: E731
    rate = lambda t, q: equations.rate(t, q, p)  # noqa: E731
    qdot, qddot = jax.jit(lambda: jax.jvp(rate, (t, q), (jnp.ones(()), rate(t, q))))()
    close_to(jax.jit(jax.jacfwd(later))(now), qdot)
    close_to(jax.jit(jax.jacfwd(jax.jacfwd(later)))(now)[: len(p)], qddot[: len(p)])


def test_mass_and_energy_need_the_time_with_chosen_speeds() -> None:
    chosen, own, speeds = case("chain")
    q, p, t = jnp.asarray([0.3, -0.8]), jnp.asarray([1.0, 2.0]), jnp.asarray(0.7)
    equations, base = mbd.Equations(chosen), mbd.Equations(own)
    v = speeds.given(t, q, p)
    np.testing.assert_allclose(equations.kinetic_energy(q, p, t), base.kinetic_energy(q, v), rtol=1e-12)
    np.testing.assert_allclose(
        equations.coordinate("A.angle", q, p, t)[1], base.coordinate("A.angle", q, v)[1], rtol=1e-12
    )
    for call in (lambda: equations.mass(q), lambda: equations.kinetic_energy(q, p)):
        with pytest.raises(mbd.MechanismError, match="depends on the time: give t"):
            call()
