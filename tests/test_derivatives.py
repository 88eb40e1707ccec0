"""What docs/derivatives.md says works: every mode and order by value, and for what does not the error by its text.

Motions take fixed steps here, so that values are smooth functions of parameters and differences of them are accurate.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from jaxtyping import Array, Float

import jaxmbd as mbd
from jaxmbd import planar
from jaxmbd.analyses.linearization.eigen import general
from tests.marks import in_both_coordinates
from tests.numeric import differences

P = jnp.array([1.2, 0.9, 0.7])  # mass and gravity, as shares of the usual; the initial angle [rad]
TS = np.array([0.0, 0.2, 0.5])
AGREEMENT = 1e-7  # of derivatives and differences
MODES = {"forward": jax.jacfwd, "reverse": jax.jacrev}
Reading = Callable[[Float[Array, " p"]], Float[Array, ""]]


def pendulum(p: Array, coordinates: Any = "joint") -> tuple[planar.Mechanism, mbd.State]:
    rod = planar.Body("rod", 2.0 * p[0], 0.1)
    mechanism = planar.Mechanism(
        [rod],
        joints=[planar.Revolute("A", planar.ground.at(), rod.at(-0.5, 0.0))],
        forces=[planar.Gravity(9.81 * p[1])],
        coordinates=coordinates,
    )
    return mechanism, mbd.assemble(mechanism, {"rod.theta": p[2]})


def reading(p: Array, **options: Any) -> Array:
    """A number of a motion: an angle at its end and a speed on the way, after an assembly."""
    mechanism, state = pendulum(p, options.pop("coordinates", "joint"))
    steps = {"solver": mbd.RungeKutta4(), "dt0": 0.025} | options
    motion = mbd.simulate(mechanism, state, TS, **steps)
    return motion["rod.theta"][-1] + motion["rod.omega"][1]


def assert_agree(found: Any, expected: Any, tolerance: float = AGREEMENT) -> None:
    scale = np.max(np.abs(expected))
    assert scale > 1e-2
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


def test_first_derivatives_of_both_modes_are_one() -> None:
    gradient = jax.jit(jax.grad(reading))(P)
    assert_agree(gradient, differences(reading, P))
    assert_agree(jax.jit(jax.jacfwd(reading))(P), gradient, 1e-12)


@pytest.mark.slow
def test_linearize_and_jvp_are_the_same_derivative() -> None:
    along = jnp.array([0.3, -1.0, 0.5])
    value, linear = jax.linearize(reading, P)
    assert_agree(linear(along), differences(reading, P) @ along)
    assert_agree(jax.jvp(reading, (P,), (along,))[1], linear(along), 1e-12)
    assert_agree(value, reading(P), 1e-12)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("forward", "forward"),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (("forward", "reverse"), ("reverse", "forward"))),
        pytest.param("reverse", "reverse", marks=pytest.mark.slow),
    ],
)
def test_second_derivatives_in_every_order(outer: str, inner: str) -> None:
    hessian = jax.jit(MODES[outer](MODES[inner](reading)))(P)
    assert_agree(hessian, differences(jax.jacfwd(reading), P))
    assert_agree(hessian, hessian.T, 1e-10)


@pytest.mark.slow
def test_batches_of_derivatives_are_their_members() -> None:
    points = jnp.stack([P, 1.1 * P, 0.8 * P])
    for derivative in (jax.jacfwd(reading), jax.grad(reading), jax.jacfwd(jax.grad(reading))):
        one = jax.jit(derivative)
        assert_agree(jax.jit(jax.vmap(derivative))(points), np.stack([one(p) for p in points]), 1e-10)


OSCILLATOR = jnp.array([1.3, 0.4, 1.0])


def oscillator(p: Float[Array, "3"]) -> Float[Array, ""]:
    """Numbers of the motion `v̇ = −p₀ sin q − p₁ v` up to a time `p₂`, small enough for third derivatives."""
    rates = lambda t, y, p: (y[1], -p[0] * jnp.sin(y[0]) - p[1] * y[1], jnp.zeros(0))  # noqa: E731
    both = dfx.SaveAt(subs=[dfx.SubSaveAt(ts=jnp.array([0.2, 0.5]) * p[2]), dfx.SubSaveAt(t1=True)])
    run = dfx.diffeqsolve(
        dfx.ODETerm(rates), mbd.RungeKutta4(), 0.0, p[2], 0.1, (p[:1], p[1:2], jnp.zeros(0)), p, saveat=both,
        adjoint=mbd.DiscreteAdjoint(), max_steps=64,
    )  # fmt: skip
    (qs, _, _), (q, v, _) = run.ys  # pyright: ignore
    return jnp.sum(qs**2) + jnp.sum(q * v)


@cache
def third_derivatives_of_the_oscillator() -> np.ndarray:
    return differences(jax.jit(jax.hessian(oscillator)), OSCILLATOR, 2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("modes", ["fff", "rfr", "rrf"])
def test_third_derivatives(modes: str) -> None:
    """By parameters, start and times; all of them are symmetric."""
    at, derivative, expected = OSCILLATOR, oscillator, third_derivatives_of_the_oscillator()
    for mode in modes:
        derivative = {"f": jax.jacfwd, "r": jax.jacrev}[mode](derivative)
    # Where the final time moves, steps within it do in differences but not in derivatives.
    assert_agree(jax.jit(derivative)(at)[:2, :2, :2], expected[:2, :2, :2], 1e-6)


@pytest.mark.slow
def test_motions_with_events_have_both_modes_and_second_derivatives() -> None:
    """The pendulum turns back, and later stops at an angle: the time of the turn, the speed at the end."""

    def read(p: Array) -> Array:
        mechanism, state = pendulum(p)
        events = [mbd.Event("turn", "rod.omega", above=0.0, then=mbd.LogOnly()), mbd.Event("end", "rod.theta", at=-2.4)]
        motion = mbd.simulate(mechanism, state, [0.0, 0.4, 1.6], events=events, max_events=2, accuracy="high")
        assert motion.events is not None
        return motion.events.times[0] + motion["rod.omega"][-1]

    expected, gradient = differences(read, P), jax.jit(jax.grad(read))
    assert_agree(gradient(P), expected, 1e-6)
    assert_agree(jax.jit(jax.jacfwd(read))(P), gradient(P), 1e-10)
    assert_agree(jax.jit(jax.jacfwd(jax.grad(read)))(P), differences(gradient, P), 1e-5)


@pytest.mark.slow
def test_the_stiff_solver_has_both_modes_and_second_derivatives() -> None:
    def read(p: Array) -> Array:
        return reading(p, solver=mbd.Radau(3), stepsize_controller=dfx.ConstantStepSize(), dt0=0.05)

    gradient = jax.jit(jax.grad(read))
    assert_agree(gradient(P), differences(read, P))
    assert_agree(jax.jit(jax.jacfwd(read))(P), gradient(P), 1e-9)
    assert_agree(jax.jit(jax.jacfwd(jax.jacfwd(read)))(P), differences(gradient, P), 1e-6)


def test_levenberg_marquardt_finds_parameters_through_a_motion() -> None:
    """optimistix takes forward derivatives by itself."""
    found = jax.jit(lambda p: reading(jnp.array([1.2, p[0], 0.7])))
    wanted = found(jnp.array([0.9]))
    solver = optx.LevenbergMarquardt(rtol=1e-10, atol=1e-10)
    fitted = optx.least_squares(lambda p, _: found(p) - wanted, solver, jnp.array([1.1]))
    np.testing.assert_allclose(fitted.value, [0.9], atol=1e-8)


@pytest.mark.slow
def test_the_forward_option_has_linearize() -> None:
    read = lambda p: reading(p, adjoint="forward")  # noqa: E731
    along = jnp.array([0.3, -1.0, 0.5])
    assert_agree(jax.linearize(read, P)[1](along), jax.jvp(read, (P,), (along,))[1], 1e-12)


@pytest.mark.slow
def test_what_an_option_lacks_is_said() -> None:
    with pytest.raises(mbd.MechanismError, match="adjoint='forward' has no reverse derivatives"):
        jax.grad(lambda p: reading(p, adjoint="forward"))(P)
    adjoint = dfx.RecursiveCheckpointAdjoint()
    with pytest.raises(mbd.MechanismError, match=r"no forward derivatives .* Leave adjoint out"):
        jax.jacfwd(lambda p: reading(p, adjoint=adjoint, max_steps=32))(P)
    jumps = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-6, atol=1e-6), jump_ts=jnp.array([0.1]))
    options = {"solver": dfx.Tsit5(), "stepsize_controller": jumps, "max_steps": 64}
    with pytest.raises(
        mbd.MechanismError, match=r"without jumps: a diffrax\.PIDController.* jump_ts give simulate switc"
    ):
        jax.jacfwd(lambda p: reading(p, **options))(P)


@pytest.mark.slow
def test_a_controller_with_times_to_step_to_has_derivatives_of_both_modes_and_second_ones() -> None:
    steps = dfx.ClipStepSizeController(dfx.PIDController(rtol=1e-10, atol=1e-12), step_ts=jnp.array([0.1, 0.33]))

    def read(p: Array) -> Array:
        return reading(p, solver=dfx.Dopri8(), stepsize_controller=steps, dt0=None)

    gradient = jax.jit(jax.grad(read))
    assert_agree(gradient(P), differences(read, P))
    assert_agree(jax.jit(jax.jacfwd(read))(P), gradient(P), 1e-11)
    assert_agree(jax.jit(jax.hessian(read))(P), differences(gradient, P), 1e-6)


@pytest.mark.slow
@in_both_coordinates("absolute")
def test_second_derivatives_of_an_equilibrium(coordinates: Any) -> None:
    """A pendulum with a torsional spring: `k φ + m g ½ cos φ = 0`."""

    def angle(p: Array) -> Array:
        rod = planar.Body("rod", 2.0 * p[0], 0.1)
        pin = planar.Revolute("A", planar.ground.at(), rod.at(-0.5, 0.0))
        forces = [planar.Gravity(9.81), planar.JointSpringDamper("spring", "A.angle", 10.0 * p[1])]
        mechanism = planar.Mechanism([rod], joints=[pin], forces=forces, coordinates=coordinates)
        return mbd.equilibrium(mechanism).state.q[-1]

    at = jnp.array([1.0, 0.8])
    phi, slope = angle(at), jax.jit(jax.jacfwd(angle))
    np.testing.assert_allclose(8.0 * phi + 9.81 * jnp.cos(phi), 0.0, atol=1e-8)
    expected = differences(slope, at)
    for mode in (jax.jacfwd, jax.jacrev):
        assert_agree(jax.jit(mode(jax.jacfwd(angle)))(at), expected)


def test_second_derivatives_of_eigenvalues() -> None:
    A = jnp.array([[0.0, 1.0, 0.2], [-2.0, -0.3, 0.5], [0.4, -1.0, -0.7]])
    B = jnp.array([[0.3, -0.2, 0.1], [0.5, 0.9, -0.4], [0.2, 0.6, -0.8]])

    def values(s: Array) -> Array:
        found = general(A + s[0] * B + s[1] * B.T)[0]
        return jnp.concatenate([found.real, found.imag])

    at = jnp.array([0.1, -0.2])
    assert_agree(jax.jacfwd(jax.jacfwd(values))(at), differences(jax.jacfwd(values), at))
    assert_agree(jax.jacrev(jax.jacrev(values))(at), differences(jax.jacfwd(values), at))


class Turning(eqx.Module):
    """`0.3 + ω t`."""

    speed: Array

    def __call__(self, t: Array) -> Array:
        return 0.3 + self.speed * t


@pytest.mark.slow
def test_second_derivatives_of_a_driven_motion() -> None:
    """Kinematics of a slider-crank, through its assembly, by the crank's length and speed."""

    def place(p: Array) -> Array:
        crank, rod, slider = (planar.Body(name, 1.0, 0.1) for name in ("crank", "rod", "slider"))
        joints = [
            planar.Revolute("O", planar.ground.at(), crank.at()),
            planar.Revolute("A", crank.at(p[0], 0.0), rod.at()),
            planar.Revolute("B", rod.at(1.0, 0.0), slider.at()),
            planar.Prismatic("rail", planar.ground.at(), slider.at()),
        ]
        motor = planar.Driver("motor", "O.angle", Turning(p[1]))
        mechanism = planar.Mechanism([crank, rod, slider], joints=joints, drivers=[motor])
        state = mbd.assemble(mechanism, guess={"slider.x": 1.3})
        return mbd.kinematics(mechanism, jnp.array([0.0, 0.4]), state)["slider.x"][-1]

    at = jnp.array([0.4, 2.0])
    exact = lambda p: p[0] * jnp.cos(0.3 + 0.4 * p[1]) + jnp.sqrt(1 - (p[0] * jnp.sin(0.3 + 0.4 * p[1])) ** 2)  # noqa: E731
    assert_agree(place(at), exact(at), 1e-10)
    assert_agree(jax.jit(jax.jacfwd(jax.jacfwd(place)))(at), jax.hessian(exact)(at), 1e-8)


ORDERS = (
    lambda f: jax.grad(jax.grad(f)), lambda f: jax.jacfwd(jax.grad(f)),
    lambda f: jax.grad(jax.jacfwd(f)), lambda f: jax.jacfwd(jax.jacfwd(f)),
)  # fmt: skip


@pytest.mark.slow
@in_both_coordinates("absolute")
def test_second_derivatives_of_inverse_dynamics(coordinates: str) -> None:
    """The torque `(I + m l²) θ̈ + m g l cos θ` of a driven pendulum: `2 m θ̈` by its length."""
    ts = np.array([0.0, 0.3, 0.7])

    def torque(l: Array) -> Array:
        rod = planar.Body("rod", 2.0, 0.1, jnp.stack([l, 0.0 * l, 0.0 * l]))
        pin = planar.Revolute("A", planar.ground.at(), rod.at(-l, 0.0))
        driver = planar.Driver("motor", "A.angle", lambda t: 1.5 * t**2)
        mechanism = planar.Mechanism([rod], [pin], [planar.Gravity(9.81)], [driver], coordinates=coordinates)
        return mbd.inverse_dynamics(mechanism, ts).effort("motor")[-1]

    length = jnp.asarray(0.6)
    expected = (0.1 + 2.0 * 0.36) * 3.0 + 2.0 * 9.81 * 0.6 * np.cos(1.5 * 0.49)
    np.testing.assert_allclose(torque(length), expected, rtol=1e-10)
    for twice in ORDERS:
        np.testing.assert_allclose(jax.jit(twice(torque))(length), 12.0, rtol=1e-9)


@pytest.mark.slow
@in_both_coordinates("absolute")
def test_second_derivatives_of_eigenvalues_of_a_linearised_mechanism(coordinates: str) -> None:
    """`λ = −c/2I + i √(k/I − c²/4I²)` with `I = J + m l²`, of a pendulum without weight, by its length."""
    J, m, k, c = 0.1, 2.0, 30.0, 1.2

    def value(l: Array) -> Array:
        rod = planar.Body("rod", m, J, jnp.stack([l, 0.0 * l, 0.0 * l]))
        pin = planar.Revolute("A", planar.ground.at(), rod.at(-l, 0.0))
        spring = planar.JointSpringDamper("spring", "A.angle", k, 0.0, c)
        mechanism = planar.Mechanism([rod], [pin], [spring], coordinates=coordinates)
        system = mbd.linearize(mechanism, mbd.assemble(mechanism, {"A.angle": 0.0}), independent=["A.angle"])
        return system.eigenvalues[0].real + 2.0 * system.eigenvalues[0].imag

    def exact(l: Array) -> Array:
        inertia = J + m * l**2
        return -c / (2 * inertia) + 2.0 * jnp.sqrt(k / inertia - (c / (2 * inertia)) ** 2)

    length = jnp.asarray(0.6)
    np.testing.assert_allclose(value(length), exact(length), rtol=1e-10)
    for twice in ORDERS:
        np.testing.assert_allclose(jax.jit(twice(value))(length), jax.grad(jax.grad(exact))(length), rtol=1e-8)
