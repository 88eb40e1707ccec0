"""Linearisation: against equations written by hand, in both coordinates, in the plane and in space."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from jax import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import plot
from jaxmbd import spatial as sp
from tests.marks import in_both_coordinates
from tests.planar_examples import at_rest, four_bar_with_springs, four_bars, pendulum

G = 9.81  # [m/s²]
EXACT = 1e-12
BOTH = in_both_coordinates("joint")


# --- a mass, a spring and a damper ----------------------------------------------------------------

M, K, D = 2.0, 50.0, 3.0  # [kg, N/m, N s/m]


def oscillator(stiffness: Any = K, damping: Any = D) -> pl.Mechanism:
    body = pl.Body("m", mass=M, inertia=1.0, pose=(0.3, 0.0, 0.0))
    return pl.Mechanism(
        [body],
        [pl.Prismatic("rail", pl.ground.at(), body.at())],
        [
            pl.SpringDamper("spring", pl.ground.at(-1.0, 0.0), body.at(), stiffness, 1.3, damping),
            pl.JointForce("motor", "rail.displacement", lambda t, x, v, p: 0.0 * x),
        ],
        sensors=[pl.Point("P", body.at())],
    )


INPUTS = ("m.fx", "spring.tension", "rail.displacement", "motor.effort", ("rest", lambda m: m["spring"].free_length))
OUTPUTS = ("m.x", "m.ax", "spring.tension", "motor.effort", "P", "rail.fy")


@pytest.fixture(scope="module", params=[pytest.param("absolute", marks=pytest.mark.slow), "joint"])
def oscillating(request: pytest.FixtureRequest) -> mbd.LinearSystem:
    mechanism = oscillator().with_coordinates(request.param)
    state = mbd.assemble(mechanism, {"m.x": 0.3})
    return mbd.linearize(mechanism, state, INPUTS, OUTPUTS)


def test_matrices_of_an_oscillator(oscillating: mbd.LinearSystem) -> None:
    s = oscillating
    own = (-K / M, -D / M)
    np.testing.assert_allclose(s.A, [[0, 1], own], atol=EXACT)
    np.testing.assert_allclose(s.B, [[0, 0, 0, 0, 0], [1 / M, -1 / M, 1 / M, 1 / M, K / M]], atol=EXACT)
    np.testing.assert_allclose(s.C, [[1, 0], own, [K, D], [0, 0], [1, 0], [0, 0], [0, 0]], atol=EXACT)
    D_ = np.zeros((7, 5))
    D_[1], D_[2, [1, 4]], D_[3, 3] = s.B[1], (1, -K), 1
    np.testing.assert_allclose(s.D, D_, atol=EXACT)
    assert s.outputs == ("m.x", "m.ax", "spring.tension", "motor.effort", "P.x", "P.y", "rail.fy")
    assert s.inputs == ("m.fx", "spring.tension", "rail.displacement", "motor.effort", "rest")
    assert s.input_units == ("N", "N", "N", "N", "")
    assert s.coordinates == (("m.x",) if s.mechanism.coordinates == "absolute" else ("rail.displacement",))
    np.testing.assert_allclose(s.mass, [[M]], atol=EXACT)
    np.testing.assert_allclose([s.stiffness[0, 0], s.damping[0, 0]], [K, D], atol=EXACT)


def test_modes_of_an_oscillator(oscillating: mbd.LinearSystem) -> None:
    modes = oscillating.modes()
    omega, zeta = math.sqrt(K / M), D / (2 * math.sqrt(K * M))
    np.testing.assert_allclose(modes.omega, [omega], rtol=EXACT)
    np.testing.assert_allclose(modes.damping, [zeta], rtol=EXACT)
    np.testing.assert_allclose(modes.time_constants, [2 * M / D], rtol=EXACT)
    np.testing.assert_allclose(modes.eigenvalues.imag, [omega * math.sqrt(1 - zeta**2)], rtol=EXACT)
    np.testing.assert_allclose(modes.reduced, [[1 / math.sqrt(M)]], rtol=EXACT)
    assert modes.shapes.shape == (oscillating.mechanism.nv, 1)
    text = str(oscillating)
    assert "at rest" in text
    assert f"{omega / (2 * math.pi):.5g}" in text
    assert "0.15" in text


def test_responses_of_an_oscillator(oscillating: mbd.LinearSystem) -> None:
    s, omega = oscillating, np.array([0.0, 2.0, 5.0, 40.0])
    gain = np.asarray(s.response(omega))
    assert gain.shape == (4, 7, 5)
    np.testing.assert_allclose(gain[:, 0, 0], 1 / (K - M * omega**2 + 1j * D * omega), rtol=1e-11)
    np.testing.assert_allclose(gain[:, 1, 0], -(omega**2) * gain[:, 0, 0], atol=1e-11)
    ts, sigma = np.linspace(0.0, 3.0, 7), D / (2 * M)
    fast = math.sqrt(K / M - sigma**2)
    impulse = np.exp(-sigma * ts) * np.sin(fast * ts) / (M * fast)
    step = (1 - np.exp(-sigma * ts) * (np.cos(fast * ts) + sigma / fast * np.sin(fast * ts))) / K
    np.testing.assert_allclose(s.impulse(ts)[:, 0, 0], impulse, atol=1e-12)
    np.testing.assert_allclose(s.step(ts)[:, 0, 0], step, atol=1e-12)
    data = s.to_xarray()
    assert float(data["B"].sel(state=s.speeds[0], input="rest")) == pytest.approx(K / M)


def test_eigenvalues_inside_jit_and_their_derivatives() -> None:
    """`λ = −c/2m ± i √(k/m − c²/4m²)`, its derivatives in both modes, for a batch and one by one."""
    base = oscillator().with_coordinates("joint")

    def system(k: Array, c: Array) -> mbd.LinearSystem:
        mechanism = eqx.tree_at(lambda m: (m["spring"].stiffness, m["spring"].damping), base, (k, c))
        return mbd.linearize(mechanism, at_rest(mechanism, [0.3]), independent=["rail.displacement"])

    def parts(p: Array) -> Array:
        found = system(p[0], p[1])
        value = found.eigenvalues[0]
        return jnp.stack([value.real, value.imag, found.modes(undamped=True).omega[0]])

    def all_of(k: Array) -> tuple[Array, ...]:
        p = jnp.stack([k, jnp.asarray(D)])
        value, along = jax.linearize(parts, p)
        (reverse,) = jax.vmap(jax.linear_transpose(along, p))(jnp.eye(3))
        return value, jax.vmap(along)(jnp.eye(2)).T, reverse

    ks = jnp.array([30.0, 50.0])
    value, forward, reverse = jax.jit(jax.vmap(all_of))(ks)
    fast = np.sqrt(ks / M - (D / (2 * M)) ** 2)
    values = np.stack([np.full(2, -D / (2 * M)), fast, np.sqrt(ks / M)], axis=1)
    by_k = np.stack([np.zeros(2), 1 / (2 * M * fast), 1 / (2 * np.sqrt(ks * M))], axis=1)
    by_c = np.stack([np.full(2, -1 / (2 * M)), -D / (4 * M**2 * fast), np.zeros(2)], axis=1)
    np.testing.assert_allclose(value, values, rtol=1e-10)
    for found in (forward, reverse):
        np.testing.assert_allclose(found, np.stack([by_k, by_c], axis=2), atol=1e-10)


# --- a hanging chain ------------------------------------------------------------------------------

LINKS = 10
LENGTHS = np.array([0.11, 0.09, 0.12, 0.1, 0.1, 0.08, 0.13, 0.1, 0.07, 0.1])  # [m]
DENSITY = 1.5  # [kg/m]


def chain(lengths: Any, coordinates: str) -> tuple[pl.Mechanism, Array]:
    """Uniform rods that hang from the ground, and their coordinates."""
    bodies, joints, top, before = [], [], jnp.zeros(()), pl.ground.at()
    for i, length in enumerate(lengths):
        mass = DENSITY * length
        pose = jnp.stack([jnp.zeros(()), top - length / 2, jnp.asarray(-math.pi / 2)])
        body = pl.Body(f"link{i}", mass, mass * length**2 / 12, pose)
        joints.append(pl.Revolute(f"J{i}", before, body.at(-length / 2, 0.0)))
        bodies.append(body)
        top, before = top - length, body.at(length / 2, 0.0)
    mechanism = pl.Mechanism(bodies, joints, [pl.Gravity(G)], coordinates=coordinates)
    if coordinates == "joint":
        return mechanism, jnp.zeros(len(bodies)).at[0].set(-math.pi / 2)
    return mechanism, jnp.concatenate([body.pose for body in bodies])


def chain_omega(lengths: np.ndarray) -> np.ndarray:
    """The natural frequencies [rad/s] of such a chain, from `M θ̈ + K θ = 0` in the links' angles to the vertical."""
    n, masses = len(lengths), DENSITY * lengths
    arms = np.tril(np.tile(lengths, (n, 1)), -1) + np.diag(lengths / 2)  # of the centres, by the angles
    M = arms.T @ np.diag(masses) @ arms + np.diag(masses * lengths**2 / 12)
    below = np.cumsum(masses[::-1])[::-1] - masses
    return np.sqrt(scipy.linalg.eigvalsh(np.diag(G * lengths * (masses / 2 + below)), M))


def richardson(f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, h: float) -> np.ndarray:
    """The Jacobian by central differences of two steps."""

    def central(h: float) -> np.ndarray:
        return np.stack([(f(x + h * e) - f(x - h * e)) / (2 * h) for e in np.eye(len(x))], axis=1)

    return (4 * central(h / 2) - central(h)) / 3


@BOTH
def test_a_hanging_chain(coordinates: str) -> None:
    """Frequencies, and the derivative of each by each length."""

    def omega(lengths: Array) -> tuple[Array, Array]:
        mechanism, q = chain(lengths, coordinates)
        found = mbd.linearize(mechanism, at_rest(mechanism, q)).modes()
        return found.omega, found.omega

    slopes, found = jax.jacfwd(omega, has_aux=True)(jnp.asarray(LENGTHS))
    np.testing.assert_allclose(found, chain_omega(LENGTHS), rtol=1e-11)
    expected = richardson(chain_omega, LENGTHS, 1e-4)
    np.testing.assert_allclose(slopes, expected, atol=1e-7 * np.abs(expected).max())


def test_the_chain_written_by_hand_tends_to_the_continuous_one() -> None:
    omega = chain_omega(np.full(400, 1 / 400))
    continuous = scipy.special.jn_zeros(0, 4) / 2 * math.sqrt(G)
    np.testing.assert_allclose(omega[:4], continuous, rtol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_hanging_chain_in_space(coordinates: str) -> None:
    """Two rods on a universal and a ball joint: each frequency of the plane twice, and a spin that nothing resists."""
    lengths = jnp.array([0.3, 0.2])

    def omega(lengths: Array) -> tuple[Array, mbd.Modes]:
        bodies, tops, masses = [], (0.0 * lengths[0], -lengths[0]), DENSITY * lengths
        for i in (0, 1):
            across = masses[i] * lengths[i] ** 2 / 12
            pose = jnp.zeros(7).at[2].set(tops[i] - lengths[i] / 2).at[3].set(1.0)
            bodies.append(sp.Body(f"rod{i}", masses[i], jnp.stack([across, across, 1e-2 * across]), pose))
        ends = [[body.at(0.0, 0.0, s * length / 2) for s in (1, -1)] for body, length in zip(bodies, lengths)]  # noqa: B905
        joints = [sp.Universal("U", sp.ground.at(), ends[0][0]), sp.Spherical("S", ends[0][1], ends[1][0])]
        mechanism = sp.Mechanism(bodies, joints, [sp.Gravity(G)], coordinates=coordinates)
        q = mbd.Equations(mechanism).coordinates.measured(jnp.stack([body.pose for body in bodies]))
        q = jnp.append(q, jnp.zeros(len(mechanism.turns)))
        modes = mbd.linearize(mechanism, at_rest(mechanism, q)).modes()
        return modes.omega, modes

    slopes, modes = jax.jacfwd(omega, has_aux=True)(lengths)
    np.testing.assert_allclose(modes.omega[1:], np.repeat(chain_omega(np.asarray(lengths)), 2), rtol=1e-10)
    assert list(modes.rigid) == [True, False, False, False, False]
    assert "rigid body" in str(modes)
    expected = np.repeat(richardson(chain_omega, np.asarray(lengths), 1e-4), 2, axis=0)
    np.testing.assert_allclose(slopes[1:], expected, atol=1e-7 * np.abs(expected).max())


# --- closed loops ---------------------------------------------------------------------------------


def acceleration(mechanism: pl.Mechanism, states: np.ndarray) -> np.ndarray:
    """`φ̈` of the joint O at angles and rates `(k, 2)`: assembled anew, and the saddle-point system solved by NumPy."""
    equations, found = mbd.Equations(mechanism), []
    parts = eqx.filter_jit(lambda e, t, q, v: (e.mass(q), e.jacobian(t, q), e.force(t, q, v), e.gamma(t, q, v)))
    for angle, rate in states:
        state = mbd.assemble(mechanism, {"O.angle": angle}, speeds={"O.angle": rate})
        mass, C, F, gamma = (np.asarray(x) for x in parts(equations, state.t, state.q, state.v))
        whole = np.block([[mass, C.T], [C, np.zeros((len(C), len(C)))]])
        found.append(np.linalg.solve(whole, np.concatenate([F, gamma]))[mechanism.speed_names.index("crank.omega")])
    return np.array(found)


FOUR_BAR = four_bar_with_springs().mechanism


@pytest.fixture(scope="module")
def differences() -> tuple[np.ndarray, np.ndarray]:
    """Accelerations of the four-bar's crank at `(1.0, 3.0)` and how they change with angle and rate."""
    h = 1e-4
    steps = h * np.array([(0, 0), (1, 0), (-1, 0), (2, 0), (-2, 0), (0, 1), (0, -1), (0, 2), (0, -2)])
    f = acceleration(FOUR_BAR, np.array([1.0, 3.0]) + steps)
    return f[0], np.array([8 * (f[i] - f[i + 1]) - (f[i + 2] - f[i + 3]) for i in (1, 5)]) / (12 * h)


@BOTH
def test_a_moving_four_bar(coordinates: str, differences: tuple[np.ndarray, np.ndarray]) -> None:
    """The second row of `A` is the derivative of the reduced equation, whatever coordinates describe it."""
    mechanism = FOUR_BAR.with_coordinates(coordinates)
    name = "crank.theta" if coordinates == "absolute" else "O.angle"
    state = mbd.assemble(mechanism, {"O.angle": 1.0}, speeds={"O.angle": 3.0})
    system = mbd.linearize(mechanism, state, ["O.angle"], ["crank.alpha"], independent=[name])
    value, slopes = differences
    np.testing.assert_allclose(system.A[0], [0, 1], atol=1e-10)
    np.testing.assert_allclose(system.A[1], slopes, rtol=1e-7)
    np.testing.assert_allclose(system.C[0], slopes, rtol=1e-7)
    np.testing.assert_allclose(system.B[1], system.D[0], rtol=1e-10)
    np.testing.assert_allclose(system.B[1, 0] * system.mass[0, 0], 1.0, rtol=1e-10)
    place = mechanism.variables.index(name)
    np.testing.assert_allclose(system.vdot[place], value, rtol=1e-8)
    assert "frozen" in str(system)


def swing(lengths: Any, mass: Any = 2.0) -> tuple[pl.Mechanism, Array]:
    """A bar that hangs on three equal parallel links, of which two would do, without mass."""
    bar = pl.Body("bar", mass, 0.3, jnp.stack([jnp.zeros(()), -lengths, jnp.zeros(())]))
    links = [
        pl.Body(f"link{i}", 1e-9, 1e-9, jnp.stack([jnp.asarray(x), -lengths, jnp.zeros(())]))
        for i, x in enumerate((-1.0, 0.0, 1.0))
    ]
    joints = [pl.Revolute(f"A{i}", pl.ground.at(i - 1.0, 0.0), link.at(0.0, lengths)) for i, link in enumerate(links)]
    joints += [pl.Revolute(f"B{i}", link.at(0.0, 0.0), bar.at(i - 1.0, 0.0)) for i, link in enumerate(links)]
    mechanism = pl.Mechanism([bar, *links], joints, [pl.Gravity(G)], coordinates="joint")
    return mechanism, jnp.zeros(mechanism.nq)


@pytest.mark.slow
def test_a_loop_with_redundant_rows() -> None:
    """It moves, so that its position is not singular; `ω = √(g / l)`, and `dω/dl = −ω / 2l`."""

    def omega(length: Array) -> tuple[Array, Array]:
        mechanism, q = swing(length)
        found = mbd.linearize(mechanism, at_rest(mechanism, q)).modes().omega[0]
        return found, found

    slope, value = jax.grad(omega, has_aux=True)(jnp.asarray(0.8))
    np.testing.assert_allclose(value, math.sqrt(G / 0.8), rtol=1e-8)
    np.testing.assert_allclose(slope, -math.sqrt(G / 0.8) / 1.6, rtol=1e-7)


# --- what cannot be linearised --------------------------------------------------------------------


def test_a_singular_position_is_refused() -> None:
    mechanism = four_bars(1).mechanism
    flat = [0.5, 0.0, 0.0, 1.5, 0.0, 0.0, 1.5, 0.0, 0.0]
    with pytest.raises(mbd.MechanismError, match=r"singular: the constraint rows of .*'L0'.* more than one path"):
        mbd.linearize(mechanism, at_rest(mechanism, flat))


BASE = pendulum().mechanism
DOWN = [0.0, -0.5, -math.pi / 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"inputs": ["rod.momen"]}, "no input named 'rod.momen'. Did you mean 'rod.moment'?"),
        ({"inputs": [("x", lambda m: m["rod"].pose[0])]}, "it has been computed, or taken out of an array"),
        ({"inputs": [("rod", lambda m: m["rod"].pose)]}, "the function stands for an array of shape (3,)."),
        ({"inputs": ["O.b.position"]}, "no input named 'O.b.position'. Did you mean 'O.b.position["),
        ({"inputs": ["*.mas"]}, "no number of a part named '*.mas'"),
        ({"inputs": [("pin", "O.b.angl")]}, "Did you mean 'O.b.angle'?"),
        ({"inputs": [("pin", lambda m: m["O"].b.angle)], "outputs": ["rod.alfa"]}, "Did you mean 'rod.alpha'?"),
        ({"independent": ["rod.thea"]}, "Did you mean 'rod.theta'?"),
        ({"independent": "rod.theta"}, "must be a sequence of names"),
        ({"independent": ["rod.theta", "rod.x"]}, "degrees of freedom here, 1; got 2 ('rod.x', 'rod.theta')"),
        ({"independent": []}, "degrees of freedom here, 1; got 0"),
        ({"independent": ["rod.y"]}, "'rod.y' cannot be the independent variables here"),
    ],
)
def test_what_does_not_fit_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(mbd.MechanismError) as error:
        mbd.linearize(BASE, at_rest(BASE, DOWN), **options)
    assert text in str(error.value)


def test_other_states_and_drivers_are_refused() -> None:
    with pytest.raises(mbd.AssemblyError, match=r"positions violate the constraints, 'O'"):
        mbd.linearize(BASE, at_rest(BASE, [0.1, -0.5, -math.pi / 2]))
    driver = pl.Driver("drive", "O.angle", lambda t: t - math.pi / 2)
    driven = pl.Mechanism(BASE.bodies, BASE.joints, BASE.forces, [driver])
    state = at_rest(driven, DOWN, rod_vx=0.5, rod_omega=1.0)
    with pytest.raises(mbd.MechanismError, match=r"first and second derivatives.*as the input 'O.angle'"):
        mbd.linearize(driven, state, ["drive.motion"])
    with pytest.raises(mbd.MechanismError, match="nothing to linearise"):
        mbd.linearize(driven, state)
    held = pl.Mechanism(BASE.bodies, [pl.Rod("string", pl.ground.at(), BASE["rod"].at(), 0.5)], BASE.forces)
    with pytest.raises(mbd.MechanismError, match="constraints of 'string' depend on it"):
        mbd.linearize(held, at_rest(held, DOWN), [("length", lambda m: m["string"].length)])


def test_inside_jit_the_choice_has_to_be_given() -> None:
    def system(q: Array, names: Any) -> mbd.LinearSystem:
        return mbd.linearize(BASE, at_rest(BASE, q), independent=names)

    with pytest.raises(mbd.MechanismError, match=r"independent=\['rod.x', ...\]"):
        jax.jit(lambda q: system(q, None).A)(jnp.array(DOWN))
    with pytest.raises(mbd.MechanismError, match=r"take system\.eigenvalues"):
        jax.jit(lambda q: system(q, ["rod.theta"]).modes().omega)(jnp.array(DOWN))
    omega = eqx.filter_jit(lambda q, names: system(q, names).modes(undamped=True).omega)
    np.testing.assert_allclose(omega(jnp.array(DOWN), ["rod.theta"]), [math.sqrt(G)], rtol=1e-10)
    with pytest.raises(Exception, match="cannot be the independent coordinates"):
        omega(jnp.array(DOWN), ["rod.y"])


# --- pictures -------------------------------------------------------------------------------------


def test_bode_shows_gain_and_phase(oscillating: mbd.LinearSystem) -> None:
    upper, lower = plot.bode(oscillating, "m.x", "m.fx", frequencies=[0.1, 1.0, 10.0])
    gain = np.asarray(oscillating.response(2 * np.pi * np.array([0.1, 1.0, 10.0])))[:, 0, 0]
    np.testing.assert_allclose(np.asarray(upper.lines[0].get_ydata()), np.abs(gain))
    np.testing.assert_allclose(np.radians(np.asarray(lower.lines[0].get_ydata())), np.angle(gain))
    assert upper.get_ylabel() == "gain [m / N]"
    found = np.asarray(plot.bode(oscillating, ["m.x", "m.ax"], "m.fx")[0].lines[0].get_xdata())
    assert found.min() < 0.0796 < 7.95 < found.max()
    with pytest.raises(mbd.MechanismError, match=r"Did you mean 'm\.x'"):
        plot.bode(oscillating, "m.xx")
    plt.close("all")


def test_mode_shapes_are_drawn_and_move() -> None:
    mechanism, q = chain(jnp.full(2, 0.5), "joint")
    system = mbd.linearize(mechanism, at_rest(mechanism, q))
    film = plot.animate_mode(system, 1)
    axes = plot.modes(system, 1)
    bars = [np.asarray(line.get_xdata()) for line in axes.lines if line.get_linewidth() == 4.0]
    resting, bent = bars[:2], bars[2:]
    np.testing.assert_allclose(np.concatenate(resting), 0.0, atol=1e-12)
    phi = np.real(system.modes().reduced[:, 1])
    angles = np.array([phi[0], phi[0] + phi[1]])
    slopes = np.array([x[-1] - x[0] for x in bent])
    np.testing.assert_allclose(slopes[1] / slopes[0], angles[1] / angles[0] / 2, rtol=0.03)  # drawn to its centre
    assert abs(np.abs(bent[-1]).max()) > 0.05
    with pytest.raises(mbd.MechanismError, match="There is no mode 2: this system has 2"):
        plot.modes(system, 2)
    with pytest.raises(mbd.MechanismError, match="fps must be positive and finite, got 0"):
        plot.animate_mode(system, 1, fps=0)
    film._draw_was_started = True  # pyright: ignore
    plt.close("all")


def test_numbers_by_name_are_inputs_as_those_by_function() -> None:
    """A number, all that match a pattern, one of an array; with their units."""
    rod = pl.Body("rod", 1.0, 0.1)
    pin = pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0))
    forces = [pl.JointSpringDamper("s", "O.angle", 3.0), pl.Force("load", rod.at(), (0.0, -2.0))]
    mechanism = pl.Mechanism([rod], [pin], forces, coordinates="joint")
    state = mbd.equilibrium(mechanism)
    by_function = ("rest", lambda m: m["s"].free_position)
    found = mbd.linearize(mechanism, state, ["s.free_position", by_function, "load.force[1]", "*.free_position"])
    assert found.inputs == ("s.free_position", "rest", "load.force[1]", "s.free_position")
    assert found.input_units == ("rad", "", "N", "rad")
    inertia, arm = 0.1 + 0.25, 0.5 * np.cos(float(state["O.angle"]))
    np.testing.assert_allclose(found.B[1], [3.0 / inertia, 3.0 / inertia, arm / inertia, 3.0 / inertia], rtol=1e-12)
