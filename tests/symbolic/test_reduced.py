"""The reduced equations `M̂ u̇ = Q̂` as public pieces, in coordinates of bodies and of joints; Baumgarte's α and β as
symbols; the rank of the augmented matrix."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests.planar_examples import rod


def sliding_pendulum(coordinates: str, mass: Any = 0.7) -> pl.Mechanism:
    """A bar on a pin, and a bead on the bar with a spring: the axis of the slide turns with the bar."""
    bar, bead = pl.Body("bar", 1.0, 0.1), pl.Body("bead", mass, 0.02, (0.3, 0.0, 0.0))
    joints = [
        pl.Revolute("O", pl.ground.at(), bar.at(-0.5)),
        pl.Prismatic("slide", bar.at(), bead.at()),
    ]
    forces = [pl.Gravity(9.81), pl.SpringDamper("spring", bar.at(-0.5), bead.at(), 40.0, 0.6, 0.3)]
    return pl.Mechanism([bar, bead], joints, forces, coordinates=coordinates)


NAMES = ("O.angle", "slide.displacement")
START, SPEEDS = {"O.angle": 0.4, "slide.displacement": 0.2}, {"O.angle": 3.0, "slide.displacement": -1.5}


@cache
def four_bar() -> tuple[pl.Mechanism, mbd.State]:
    mechanism = mbd.examples.get("four-bar-with-springs").mechanism.with_coordinates("absolute")
    return mechanism, mbd.assemble(mechanism, {"O.angle": 1.0}, speeds={"O.angle": 3.0})


def test_reduced_to_joint_coordinates_they_are_the_equations_in_joint_coordinates() -> None:
    """`M̂ = M`, `Q̂ = F` of the tree, though the equations that are reduced are those of the bodies."""
    pieces = {}
    for kind in ("absolute", "joint"):
        mechanism = sliding_pendulum(kind)
        state = mbd.assemble(mechanism, START, speeds=SPEEDS)
        pieces[kind] = mbd.export(mechanism, independent=NAMES).at(state)
    own = pieces["joint"]
    for found in pieces.values():
        np.testing.assert_allclose(found["M_hat"], own["xM"], atol=1e-12)
        np.testing.assert_allclose(found["Q_hat"], own["vF"], atol=1e-11)
    assert pieces["absolute"]["R"].shape == (6, 2)
    assert pieces["absolute"]["rank"] == 10
    assert own["rank"] == 2


def test_they_give_the_accelerations() -> None:
    """`u̇ = M̂⁻¹ Q̂` is the acceleration of the variable, whichever is chosen, and whether it is among the speeds."""
    mechanism, state = four_bar()
    solution = mbd.simulate(mechanism, state, [0.0, 1e-3])
    alpha = {name: float(solution[f"{name}.alpha"][0]) for name in ("crank", "coupler", "rocker")}
    expected = {"C.angle": alpha["rocker"], "A.angle": alpha["coupler"] - alpha["crank"], "crank.theta": alpha["crank"]}
    for name, value in expected.items():
        pieces = mbd.export(mechanism, independent=[name]).at(state)
        found = float(pieces["Q_hat"][0] / pieces["M_hat"][0, 0])
        assert abs(found) == pytest.approx(abs(value), rel=1e-9)
        np.testing.assert_allclose(pieces["Psi_p"] @ pieces["R"], 0.0, atol=1e-12)
    system = mbd.export(mechanism)
    (chosen,) = system.independent_at(state)
    pieces = system.at(state)
    place = mechanism.variables.index(chosen)
    np.testing.assert_allclose(pieces["Q_hat"] / pieces["M_hat"][0], pieces["vPdot"][place], rtol=1e-9)
    np.testing.assert_allclose(pieces["R"][place], 1.0, rtol=1e-12)


def test_phi_t_and_the_rank_where_constraints_repeat_one_another() -> None:
    """A pin that is there twice, and a driver: `Φ̇ = Ψ_p p + Φ_t`, with the driver's speed in its row."""
    bar = rod("bar", 1.0, 1.0, (0, 0), -1.0)
    pins = [pl.Revolute(name, pl.ground.at(), bar.at(-0.5)) for name in ("O", "P")]
    mechanism = pl.Mechanism([bar], pins, [pl.Gravity()], [pl.Driver("motor", "O.angle", lambda t: t**2)])
    state = mbd.assemble(mechanism, t=0.7)
    pieces = mbd.export(mechanism).at(state)
    np.testing.assert_allclose(pieces["Phi_t"], [0, 0, 0, 0, -1.4], atol=1e-12)
    np.testing.assert_allclose(pieces["Phi_dot"], pieces["Psi_p"] @ state.v + pieces["Phi_t"], atol=1e-12)
    assert pieces["augmented"].shape == (8, 8)
    assert pieces["rank"] == np.linalg.matrix_rank(pieces["augmented"]) == 6
    assert pieces["M_hat"].shape == (0, 0)


def test_derivatives_of_the_reduced_equations() -> None:
    """By a mass, forward and reverse, against differences."""
    state = mbd.assemble(sliding_pendulum("absolute"), START, speeds=SPEEDS)

    @jax.jit
    def value(mass: Any) -> Any:
        system = mbd.export(sliding_pendulum("absolute"), independent=NAMES)
        system = system.with_parameters([lambda m: m["bead"].mass], [mass])
        M, Q = (system.piece(name)(state.t, state.q, state.v) for name in ("M_hat", "Q_hat"))
        return jnp.sum(jnp.cos(jnp.arange(2.0)) * jnp.linalg.solve(M, Q))

    h = 1e-4
    difference = (value(0.7 + h) - value(0.7 - h)) / (2 * h)
    np.testing.assert_allclose(jax.jacfwd(value)(0.7), difference, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(value)(0.7), difference, rtol=1e-6)


def test_what_cannot_be_reduced_is_said() -> None:
    mechanism, state = four_bar()
    with pytest.raises(mbd.MechanismError, match=r"export\(mechanism, independent="):
        mbd.export(mechanism).piece("M_hat")(state.t, state.q, state.v)
    with pytest.raises(mbd.MechanismError, match=r"Did you mean 'C\.angle'"):
        mbd.export(mechanism, independent=["C.angel"])
    with pytest.raises(mbd.MechanismError, match=r"2 independent variables .* 1 degree of freedom"):
        mbd.export(mechanism, independent=["C.angle", "O.angle"]).at(state)
    loose = sliding_pendulum("absolute")
    start = mbd.assemble(loose, START)
    with pytest.raises(mbd.MechanismError, match=r"bar\.theta, O\.angle cannot be the independent variables"):
        mbd.export(loose, independent=["bar.theta", "O.angle"]).at(start)


@pytest.mark.parametrize("piece", ["M_hat", "Q_hat"])
def test_they_are_source_text(piece: str) -> None:
    mechanism, state = four_bar()
    system, space = mbd.export(mechanism, independent=["C.angle"]), {}
    exec(mbd.SymbolicSystem(system).source("numpy", [piece]), space)
    found = space["equations"](state.t, *map(np.asarray, (state.q, state.v)))
    np.testing.assert_allclose(found, system.at(state)[piece], rtol=1e-10)


# --- Baumgarte's α and β as symbols ----------------------------------------------------------------------------------


def test_alpha_and_beta_are_symbols_in_the_differential_set(rng: np.random.Generator) -> None:
    """In `epsilon`, `ode()` and source text; with numbers put in, those of a system with these numbers."""
    mechanism = sliding_pendulum("absolute")
    names = ("a", "b")
    where = {"m": lambda m: m["bead"].mass}
    symbolic = mbd.SymbolicSystem(mbd.export(mechanism), parameters=where, baumgarte=names)
    _, _, B = symbolic.ode()
    a, b, m = sympy.symbols("a b m", real=True)
    assert {a, b} <= B.free_symbols
    residue = symbolic.epsilon - (symbolic.gamma - 2 * a * symbolic.Phi_dot - b**2 * symbolic.Phi)
    assert sympy.simplify(residue) == sympy.zeros(4, 1)
    q, p = rng.normal(size=6), rng.normal(size=6)
    numbers = mbd.export(mechanism, alpha=2.0, beta=3.0)
    expected = jax.jit(lambda q, p: {n: numbers.piece(n)(jnp.asarray(0.4), q, p) for n in ("epsilon", "B")})(q, p)
    values = sympy.lambdify([*symbolic.vQ, *symbolic.vP, m, a, b], B, cse=True)(*q, *p, 0.7, 2.0, 3.0)
    np.testing.assert_allclose(np.ravel(values).astype(float), expected["B"], atol=1e-10)
    space: dict[str, Any] = {}
    exec(symbolic.source("numpy", ["epsilon"]), space)
    np.testing.assert_allclose(space["equations"](0.4, q, p, 0.7, 2.0, 3.0), expected["epsilon"], atol=1e-10)
    assert "double a, double b" in symbolic.source("c", ["epsilon"])


@pytest.mark.parametrize("baumgarte", ["alpha", ("alpha",), ("alpha", "2")])
def test_wrong_symbols_for_alpha_and_beta(baumgarte: Any) -> None:
    with pytest.raises(mbd.MechanismError, match="two symbols, for α and β"):
        mbd.SymbolicSystem(mbd.export(sliding_pendulum("joint")), baumgarte=baumgarte)


# --- integrated in joint coordinates that are no variables -----------------------------------------------------------


def test_partitioning_by_joint_coordinates_in_absolute_coordinates() -> None:
    """The pendulum with a bead, whose slide turns: the motion, the constraints, and the names in an error."""
    absolute, joint = sliding_pendulum("absolute"), sliding_pendulum("joint")
    ts = np.linspace(0.0, 0.5, 6)
    options: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-12}
    found = mbd.simulate(
        absolute,
        mbd.assemble(absolute, START, speeds=SPEEDS),
        ts,
        formulation=mbd.CoordinatePartitioning(NAMES),
        **options,
    )
    reference = mbd.simulate(joint, mbd.assemble(joint, START, speeds=SPEEDS), ts, **options)
    for name in ("bead.x", "bead.y", "bar.omega"):
        np.testing.assert_allclose(found[name], reference[name], atol=1e-8, err_msg=name)
    assert np.abs(np.asarray(found.violation().position)).max() < 1e-14
    assert np.abs(np.asarray(found.violation().velocity)).max() < 1e-12
    with pytest.raises(mbd.MechanismError, match=r"Did you mean 'slide\.displacement'"):
        mbd.simulate(
            absolute, mbd.assemble(absolute), ts, formulation=mbd.CoordinatePartitioning(["slide.displacment"])
        )


@pytest.mark.slow
def test_gradients_of_a_motion_in_named_joint_coordinates() -> None:
    """By a mass, forward and reverse, against differences."""
    start = mbd.assemble(sliding_pendulum("absolute"), START, speeds=SPEEDS)

    def end(mass: Any, derivative: Any) -> Any:
        solution = mbd.simulate(
            sliding_pendulum("absolute", mass), start, jnp.asarray([0.0, 0.2]), adjoint=derivative, rtol=1e-10,
            atol=1e-12, formulation=mbd.CoordinatePartitioning(NAMES),
        )  # fmt: skip
        return solution["bead.x"][-1]

    both, h = jax.jit(jax.value_and_grad(lambda mass: end(mass, "reverse"))), 1e-4
    difference = (both(0.7 + h)[0] - both(0.7 - h)[0]) / (2 * h)
    np.testing.assert_allclose(both(0.7)[1], difference, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.jacfwd(lambda mass: end(mass, "forward")))(0.7), difference, rtol=1e-5)
