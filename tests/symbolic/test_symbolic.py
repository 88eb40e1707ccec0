"""The equations exported: as numbers, as formulas and as source text, from the code that runs."""

import ctypes
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.integrate.formulations.joint_loads import motion_of
from jaxmbd.symbolic.graph.trace import trace
from tests import spatial_examples
from tests.c_code import load_c
from tests.marks import slow_but
from tests.planar_examples import ALL, rod

SPATIAL: dict[str, Any] = {
    "heavy_top": spatial_examples.heavy_top,
    "modelica_spatial_four_bar": spatial_examples.modelica_spatial_four_bar,
    "bricard": spatial_examples.bricard,
    "governor": spatial_examples.governor,
}
PIECES = ("xM", "vF", "xC", "Psi_p", "Phi", "Phi_dot", "gamma", "epsilon", "h")
NAMES = {"rail.displacement": "s", "O.angle": "theta1", "C.angle": "theta3", "B.Fx": "Fx", "B.Fy": "Fy"}
s, theta1, theta3, Fx, Fy = sympy.symbols("s theta1 theta3 Fx Fy", real=True)
sd, theta1d, theta3d = sympy.symbols("sdot thetadot1 thetadot3", real=True)
sin, cos, R = sympy.sin, sympy.cos, sympy.Rational


@cache
def slider_crank() -> pl.Mechanism:
    """A slider of 1.5 kg, a crank of 0.3 kg, 0.2 m long, a rod of 1 kg, 0.5 m long; the rod is cut from the crank."""
    slider = pl.Body("slider", 1.5, 1e-3, (0.7, 0, 0))
    crank = pl.Body("crank", 0.3, 0.0045, (0.1, 0, 0))
    bar = pl.Body("rod", 1.0, 0.0665, (0.45, 0, 0))
    return pl.Mechanism(
        bodies=[slider, crank, bar],
        joints=[
            pl.Prismatic("rail", pl.ground.at(), slider.at()),
            pl.Revolute("O", pl.ground.at(), crank.at(-0.1)),
            pl.Revolute("C", slider.at(), bar.at(0.25)),
            pl.Revolute("B", bar.at(-0.25), crank.at(0.1)),
        ],
        forces=[pl.Gravity(9.81)],
        coordinates="joint",
        cuts=["B"],
    )


@cache
def written() -> mbd.SymbolicSystem:
    return mbd.SymbolicSystem(mbd.export(slider_crank()), NAMES)


def test_pieces_that_do_not_exist_and_what_is_printed() -> None:
    pieces = written().system.at(mbd.assemble(slider_crank(), {"O.angle": 0.4}))
    with pytest.raises(mbd.MechanismError, match=r"no piece named 'M'\. Did you mean 'xM'"):
        pieces["M"]
    assert "M" not in pieces
    text = repr(mbd.SymbolicSystem(written().system, NAMES, baumgarte=("alpha", "beta")))
    assert "3 coordinates, 3 speeds, 2 constraints" in text
    assert "coordinates: s, theta1, theta3" in text
    assert "parameters as symbols: alpha, beta" in text


def test_the_slider_crank_prints_as_the_textbook_does() -> None:
    system = written()
    assert system.xM == sympy.Matrix(
        [[R(5, 2), 0, sin(theta3) / 4], [0, R(3, 400), 0], [sin(theta3) / 4, 0, R(129, 1000)]]
    )
    assert system.vF == sympy.Matrix(
        [-(theta3d**2) * cos(theta3) / 4, -R(2943, 10000) * cos(theta1), R(981, 400) * cos(theta3)]
    )
    assert system.vReactions == sympy.Matrix([Fx, Fy])
    assert system.vQ == sympy.Matrix([s, theta1, theta3])
    assert system.vP == system.h == sympy.Matrix([sd, theta1d, theta3d])
    assert [str(name) for name in system.vPdot] == ["sddot", "thetaddot1", "thetaddot3"]
    assert [str(name) for name in system.vXdot] == [
        "sddot",
        "thetaddot1",
        "thetaddot3",
        "sdot",
        "thetadot1",
        "thetadot3",
    ]
    position = sympy.Matrix([s - cos(theta3) / 2 - cos(theta1) / 5, -sin(theta3) / 2 - sin(theta1) / 5])
    assert sympy.simplify(system.Phi - position) == sympy.zeros(2, 1)
    assert system.Psi_p == position.jacobian([s, theta1, theta3])
    assert sympy.simplify(system.Phi_dot - system.Psi_p * system.vP) == sympy.zeros(2, 1)
    turning = system.Psi_p.diff(theta1) * theta1d + system.Psi_p.diff(theta3) * theta3d
    assert sympy.simplify(system.gamma + turning * system.vP) == sympy.zeros(2, 1)
    assert system.epsilon == system.gamma  # alpha and beta are zero unless set


def test_both_forms_and_the_sets_of_equations() -> None:
    """`2n + m` equations; `A Y = B` row by row is the same; the multipliers are the reactions of the pin."""
    system = written()
    rows = system.dynamics("reactions")
    thetaddot1 = sympy.Symbol("thetaddot1", real=True)
    assert sympy.simplify(rows[1].lhs - (R(3, 400) * thetaddot1 + Fx * sin(theta1) / 5 - Fy * cos(theta1) / 5)) == 0
    assert len(system.dae("multipliers")) == 8
    A, Y, B = system.ode("reactions")
    assert A.shape == (8, 8)
    expected = [*(row.lhs for row in rows), *system.vQdot, *(system.Psi_p * system.vPdot)]
    assert sympy.simplify(A * Y - sympy.Matrix(expected)) == sympy.zeros(8, 1)
    assert sympy.Matrix([*system.vF, *system.h, *system.epsilon]) == B
    with pytest.raises(mbd.MechanismError, match="form must be"):
        system.ode("forces")


def test_explicit_equations_are_those_with_the_loads_eliminated() -> None:
    """`2n` formulas, at numbers against the solve; the loads in both forms; a pendulum's known equation."""
    system, mechanism = written(), slider_crank()
    state = mbd.assemble(mechanism, {"O.angle": 1.0}, speeds={"O.angle": 3.0})
    rates, loads = system.explicit()
    evaluate = sympy.lambdify([*system.vQ, *system.vP], [rates, loads], cse=True)
    found = evaluate(*np.asarray(state.q), *np.asarray(state.v))
    pieces = mbd.export(mechanism).at(state)
    np.testing.assert_allclose(np.ravel(found[0]), pieces["vXdot"], atol=1e-10)
    np.testing.assert_allclose(np.ravel(found[1]), pieces["vReactions"], atol=1e-10)
    bob = pl.Body("bob", 2.0, 0.5)
    pin = pl.Revolute("O", pl.ground.at(), bob.at(-0.5))
    pendulum = pl.Mechanism([bob], [pin], [pl.Gravity(10.0)], coordinates="joint")
    rates, loads = mbd.SymbolicSystem(mbd.export(pendulum), {"O.angle": "theta1"}).explicit()
    assert rates == sympy.Matrix([-10 * cos(theta1), theta1d])
    assert loads.shape == (0, 1)


def test_numbers_at_a_state_solve_the_equations() -> None:
    """`A Y = B` at a state against the integrator's accelerations, with Baumgarte's terms, and off the constraints."""
    mechanism = slider_crank()
    state = mbd.assemble(mechanism, {"O.angle": 1.0}, speeds={"O.angle": 3.0})
    pieces = mbd.export(mechanism, alpha=5.0, beta=7.0).at(state)
    unknowns = np.linalg.solve(pieces["A"], pieces["B"])
    np.testing.assert_allclose(unknowns, np.concatenate([pieces["vXdot"], pieces["vReactions"]]), atol=1e-11)
    motion = motion_of(mbd.Augmented(5.0, 7.0), mbd.Equations(mechanism), state.t, state.q, state.v)
    np.testing.assert_allclose(pieces["vPdot"], motion.vdot, atol=1e-12)
    np.testing.assert_allclose(pieces["vLambda"], motion.lam, atol=1e-11)
    solution = mbd.simulate(mechanism, state, [0.0, 0.1])
    np.testing.assert_allclose(pieces["vReactions"], [solution["B.fx"][0], solution["B.fy"][0]], atol=1e-9)
    off = mbd.State(state.t, state.q + 0.1, state.v - 0.2, state.layout, state.rank)
    pieces = mbd.export(mechanism, alpha=5.0, beta=7.0).at(off)
    epsilon = pieces["gamma"] - 10 * pieces["Phi_dot"] - 49 * pieces["Phi"]
    np.testing.assert_allclose(pieces["epsilon"], epsilon, atol=1e-12)
    np.testing.assert_allclose(pieces["Psi_p"] @ pieces["vPdot"], epsilon, atol=1e-9)


def test_reactions_are_loads_whatever_the_rows_are() -> None:
    """A rod's tension and a driver's effort, which multipliers are only up to a factor."""
    bob = pl.Body("bob", 2.0, 1.0, (0.6, -0.8, 0.0))
    mechanism = pl.Mechanism(
        [bob],
        [pl.Rod("rod", pl.ground.at(), bob.at(), 2.0)],
        [pl.Gravity(10.0)],
        [pl.Driver("turn", "bob.theta", lambda t: 0.5 * t**2)],
    )
    state = mbd.assemble(mechanism, {"bob.x": 0.0}, guess={"bob.y": -2.0}, speeds={"bob.vx": 3.0})
    system = mbd.export(mechanism)
    assert system.reactions == ("rod.T", "turn.effort")
    pieces = system.at(state)
    np.testing.assert_allclose(pieces["vReactions"], [2.0 * 10 + 2.0 * 3**2 / 2, 1.0], rtol=1e-12)
    np.testing.assert_allclose(pieces["xC"].T @ pieces["vReactions"], pieces["Psi_p"].T @ pieces["vLambda"], atol=1e-12)


LIKE_OTHERS = {"modelica_spatial_four_bar", "governor", "four_bars_2", "modelica_four_bar"}


@pytest.mark.parametrize("coordinates", ["joint", "absolute"])
@pytest.mark.parametrize("name", slow_but({*ALL, *SPATIAL} - LIKE_OTHERS, [*ALL, *SPATIAL]))
def test_symbols_and_source_agree_with_numbers(name: str, coordinates: str, rng: np.random.Generator) -> None:
    """At a random state, every piece: the source text of the graph, and the formulas where they are not too long."""
    mechanism = {**ALL, **SPATIAL}[name]().mechanism.with_coordinates(coordinates)
    system = mbd.export(mechanism, alpha=2.0, beta=3.0)
    q, p = rng.normal(size=mechanism.nq), rng.normal(size=mechanism.nv)
    for i, coordinate in enumerate(system.coordinates):
        if coordinate.endswith(".e0"):
            q[i : i + 4] /= np.linalg.norm(q[i : i + 4])  # formulas are those for a norm of one
    evaluate = jax.jit(lambda t, q, p: {n: system.piece(n)(t, q, p) for n in PIECES})
    numbers = evaluate(0.3, q, p)
    symbolic = mbd.SymbolicSystem(system, simplify=False)
    namespace: dict[str, Any] = {}
    exec(symbolic.source("numpy", PIECES), namespace)
    for piece, value in namespace["equations"](0.3, q, p).items():
        _agree(value, numbers[piece], piece)
    if name in ("bricard", "governor"):
        return
    written = [getattr(symbolic, piece) for piece in PIECES]
    symbols = [sympy.Symbol("t", real=True), *symbolic.vQ, *symbolic.vP]
    values = sympy.lambdify(symbols, written, cse=True)(0.3, *q, *p)
    for piece, value in zip(PIECES, values, strict=True):
        _agree(np.asarray(value, dtype=float).reshape(np.shape(numbers[piece])), numbers[piece], piece)


def test_the_listed_pieces_are_matrices_and_sources() -> None:
    symbolic = mbd.SymbolicSystem(mbd.export(mbd.examples.get("pendulum").mechanism))
    public = {
        name for name, member in vars(mbd.SymbolicSystem).items() if isinstance(member, property | cached_property)
    }
    assert set(symbolic.matrices) == {name for name in public if not name.startswith("_")}
    assert all(isinstance(getattr(symbolic, name), sympy.Matrix) for name in symbolic.matrices)
    namespace: dict[str, Any] = {}
    exec(symbolic.source("numpy", symbolic.sources), namespace)
    found = namespace["equations"](0.0, np.array([0.0, 0.5, np.pi / 2]), np.zeros(3))
    assert set(found) == set(symbolic.sources)
    np.testing.assert_allclose(found["vPdot"], 0.0, atol=1e-12)  # upright


def _agree(found: Any, expected: Any, piece: str) -> None:
    np.testing.assert_allclose(
        found, expected, rtol=1e-10, atol=1e-11 * (1 + np.abs(expected).max(initial=0)), err_msg=piece
    )


def double_pendulum() -> pl.Mechanism:
    upper, lower = rod("upper", 1.0, 1.0, (0, 0), -1.0), rod("lower", 0.5, 0.8, (0, 0), -0.5)
    joints = [pl.Revolute("O", pl.ground.at(), upper.at(-0.5)), pl.Revolute("A", upper.at(0.5), lower.at(-0.4))]
    return pl.Mechanism([upper, lower], joints, [pl.Gravity(9.81)], coordinates="joint")


def test_parameters_can_be_symbols() -> None:
    """`M` of the double pendulum in its masses, as textbooks have it; and its derivative by a mass."""
    where = {"m1": lambda m: m["upper"].mass, "m2": lambda m: m["lower"].mass}
    names = {"m1": "upper.mass", "m2": "lower.mass"}
    symbols = {"O.angle": "q1", "A.angle": "q2"}
    system, named = (mbd.SymbolicSystem(mbd.export(double_pendulum()), symbols, given) for given in (where, names))
    assert named.xM == system.xM
    m1, m2, q2 = sympy.symbols("m1 m2 q2", real=True)
    entry = m1 / 4 + R(1, 12) + m2 * (1 + R(4, 25) + R(4, 5) * cos(q2)) + R(2, 75)
    assert sympy.simplify(system.xM[0, 0] - entry) == 0
    mass = system.xM.diff(m2).subs(q2, 0.7)
    lower = lambda m: mbd.export(_with_mass(m)).piece("xM")(*map(jnp.asarray, (0.0, [0.1, 0.7], [0.0, 0.0])))  # noqa: E731
    np.testing.assert_allclose(np.array(mass, dtype=float), jax.jacfwd(lower)(0.5), atol=1e-12)


def _with_mass(mass: Any) -> pl.Mechanism:
    base = double_pendulum()
    system = mbd.export(base).with_parameters([lambda m: m["lower"].mass], [mass])
    return system.mechanism


def test_source_text_runs_without_the_library(tmp_path: Path) -> None:
    """C text of the solved equations, compiled, integrated by hand: the double pendulum's motion."""
    mechanism = double_pendulum()
    state = mbd.assemble(mechanism, {"O.angle": -0.5, "A.angle": 0.4})
    text = mbd.SymbolicSystem(mbd.export(mechanism)).source("c", ["vXdot"], name="rate")
    function = load_c(text, tmp_path, "-O2").rate
    function.argtypes = [ctypes.c_double, *[np.ctypeslib.ndpointer(float)] * 3]

    def rate(t: float, y: np.ndarray) -> np.ndarray:
        out = np.empty(4)
        function(t, y[:2].copy(), y[2:].copy(), out)
        return np.concatenate([out[2:], out[:2]])

    y, h = np.concatenate([state.q, state.v]), 1e-3
    for i in range(500):
        k1 = rate(i * h, y)
        k2 = rate(i * h, y + h / 2 * k1)
        k3 = rate(i * h, y + h / 2 * k2)
        k4 = rate(i * h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    solution = mbd.simulate(mechanism, state, [0.0, 0.5], accuracy="high")
    np.testing.assert_allclose(y, np.concatenate([solution.q[-1], solution.v[-1]]), atol=1e-8)


def test_what_cannot_be_written_is_named() -> None:
    body = pl.Body("b", 1, 1)
    pin = pl.Revolute("O", pl.ground.at(), body.at(-0.5))
    looked_up = lambda t, q, v, _: jnp.sort(jnp.append(q, v))[:1]  # noqa: E731
    mechanism = pl.Mechanism([body], [pin], [pl.GeneralizedForce("table", looked_up)], coordinates="joint")
    system = mbd.SymbolicSystem(mbd.export(mechanism))
    with pytest.raises(mbd.MechanismError, match=r"'vF'.*'sort'"):
        _ = system.vF


def test_an_entry_of_a_vector_can_be_a_symbol() -> None:
    """The rod's pin at a distance `a` from its centre of mass: `M` has `J + m a²`; whole vectors are refused."""
    where = {"a": (lambda m: m["C"].b.position, 0)}
    system = mbd.SymbolicSystem(mbd.export(slider_crank()), NAMES, where)
    a = sympy.Symbol("a", real=True)
    assert sympy.simplify(system.xM[2, 2] - (a**2 + R(665, 10000))) == 0
    with pytest.raises(mbd.MechanismError, match=r"must be one number, and this place has shape \(2,\)"):
        _ = mbd.SymbolicSystem(mbd.export(slider_crank()), NAMES, {"a": lambda m: m["C"].b.position}).xM


BAD = {
    "symbol of nothing": ({"O.angel": "q"}, "Did you mean 'O.angle'"),
    "no word": ({"O.angle": "theta 1"}, "must be a word"),
    "twice": ({"O.angle": "q", "A.angle": "q"}, "Two symbols are called 'q'"),
}


@pytest.mark.parametrize("case", BAD)
def test_symbols_that_cannot_be_right(case: str) -> None:
    symbols, message = BAD[case]
    with pytest.raises(mbd.MechanismError, match=message):
        mbd.SymbolicSystem(mbd.export(double_pendulum()), symbols)


def test_unknown_pieces_and_languages_are_named() -> None:
    system = mbd.export(double_pendulum())
    with pytest.raises(mbd.MechanismError, match="Did you mean 'xM'"):
        system.piece("xm")
    with pytest.raises(mbd.MechanismError, match="no language named 'fortran'"):
        mbd.SymbolicSystem(system).source("fortran")


def test_euler_parameters_have_a_norm_of_one_in_formulas() -> None:
    body = sp.Body("top", 1.0, (1.0, 2.0, 2.5))
    mechanism = sp.Mechanism([body], [sp.Spherical("O", sp.ground.at(), body.at())], coordinates="joint")
    system = mbd.SymbolicSystem(mbd.export(mechanism))
    e = sympy.symbols("e0_O e1_O e2_O e3_O", real=True)
    omega = sympy.symbols("omega_x_O omega_y_O omega_z_O", real=True)
    expected = [
        -e[1] * omega[0] - e[2] * omega[1] - e[3] * omega[2],
        e[0] * omega[0] - e[3] * omega[1] + e[2] * omega[2],
        e[3] * omega[0] + e[0] * omega[1] - e[1] * omega[2],
        -e[2] * omega[0] + e[1] * omega[1] + e[0] * omega[2],
    ]
    assert sympy.simplify(2 * system.h - sympy.Matrix(expected)) == sympy.zeros(4, 1)
    assert trace(lambda q: jnp.sum(q * q), ["a", "b"]).result.item().op == "add"
