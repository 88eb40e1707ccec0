"""One shape moves in one way at all sizes and paces: with lengths `L` and one gravity, times are `√L`.

Steps, verdicts, linearisations, events, loads and fits are those of one metre, in these units.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.optimal_design._defects import trace
from tests.analyses import test_sizes
from tests.analyses.test_sizes import SIZES, without_units

FEW = 4  # steps by which runs of one motion may differ


def four_bar(L: float, coordinates: str, apart: Any = 0.7) -> pl.Mechanism:
    """A four-bar linkage with a torsion spring."""
    return test_sizes.four_bar(L, coordinates, apart, [pl.JointSpringDamper("k", "D.angle", 2.0 * L**4)])


def spatial_four_bar(L: float, coordinates: str) -> sp.Mechanism:
    """A spatial one under gravity."""
    return test_sizes.spatial_four_bar(L, coordinates, [sp.Gravity(9.81)])


def test_the_unit_of_time() -> None:
    """One second at one metre on earth, and where there is no gravity, or hardly any; traceable."""
    body = pl.Body("body", 1.0, 1.0)

    def unit(L: float, *forces: Any) -> float:
        joint = pl.Revolute("O", pl.ground.at(), body.at(L))
        return float(Scales(pl.Mechanism([body], [joint], forces)).time)

    assert [unit(1.0, pl.Gravity(g)) for g in (9.81, 3.7, 24.0, 0.1, 0.0)] == [1.0] * 5
    assert unit(1.0) == unit(1e5) == 1.0
    np.testing.assert_allclose([unit(1e-4, pl.Gravity()), unit(1e4, pl.Gravity((9.81, 0.0)))], [1e-2, 1e2], rtol=1e-12)
    np.testing.assert_allclose(unit(1.0, pl.Gravity(1.62)), np.sqrt(10.0), rtol=1e-12)
    traced = jax.jit(lambda g: Scales(four_bar(1e2, "absolute").replaced(forces=[pl.Gravity(g)])).time)
    np.testing.assert_allclose(jax.vmap(traced)(jnp.asarray([9.81, 0.01])), [10.0, 1.0], rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "angle", "coordinates"),
    [
        (four_bar, 1.0, "absolute"),
        pytest.param(four_bar, 1.0, "joint", marks=pytest.mark.slow),
        pytest.param(spatial_four_bar, 0.3, "absolute", marks=pytest.mark.slow),
        pytest.param(spatial_four_bar, 0.3, "joint", marks=pytest.mark.slow),
    ],
)
def test_motions_take_as_many_steps_at_all_sizes(make: Any, angle: float, coordinates: str) -> None:
    """Violations decayed, and quaternions were drawn to unit length, at ten per second: for 1e5 m, whose motion takes
    five minutes, this alone determined the steps, 1333 in place of 51."""
    found = []
    for L in SIZES:
        mechanism, second = make(L, coordinates), np.sqrt(L)
        state = mbd.assemble(mechanism, {"A.angle": angle}, speeds={"A.angle": 2.0 / second})
        motion = mbd.simulate(mechanism, state, second * np.linspace(0.0, 1.0, 5))
        found.append((int(motion.stats["num_steps"]), without_units(mechanism, motion.q, L)))
    for steps, q in found:
        assert abs(steps - found[2][0]) <= FEW
        np.testing.assert_allclose(q, found[2][1], rtol=1e-6, atol=1e-6)


def test_speeds_of_a_start_have_one_verdict_at_all_sizes() -> None:
    """They may miss by some 1e-6 in units of length and time; at 0.1 mm it had been a hundredth of that."""
    for L in (1e-4, 1.0, 1e5):
        mechanism, second = four_bar(L, "absolute"), np.sqrt(L)
        state = mbd.assemble(mechanism, {"A.angle": 1.0})
        ts = second * np.linspace(0.0, 0.1, 2)
        near, off = (eqx.tree_at(lambda s: s.v, state, state.v.at[0].add(miss * L / second)) for miss in (3e-7, 3e-5))
        mbd.simulate(mechanism, near, ts)
        with pytest.raises(mbd.AssemblyError, match=r"speeds"):
            mbd.simulate(mechanism, off, ts)


def test_violations_decay_in_the_time_of_the_mechanism() -> None:
    """At 100 m, whose unit of time is ten seconds, at one per second by default, and as fast as said otherwise."""
    mechanism = four_bar(1e2, "absolute")
    state = mbd.assemble(mechanism, {"A.angle": 1.0})
    equations = mbd.Equations(mechanism)
    q = state.q.at[0].add(1e-3)
    for formulation, rate in ((mbd.Stabilized(), 1.0), (mbd.Stabilized(7.0), 7.0)):
        qdot = formulation.motion(equations, state.t, q, 0.0 * state.v).qdot
        miss, change = jax.jvp(lambda q: equations.position(state.t, q), (q,), (qdot,))
        np.testing.assert_allclose(change, -rate * miss, rtol=1e-4, atol=1e-8)
    for formulation, rate in ((mbd.Augmented(), 1.0), (mbd.Augmented(3.0, 3.0), 3.0)):
        vdot = formulation.motion(equations, state.t, q, 0.0 * state.v).vdot
        np.testing.assert_allclose(
            equations.jacobian(state.t, q) @ vdot, -(rate**2) * equations.position(state.t, q), rtol=1e-8, atol=1e-12
        )


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_small_motions_do_not_depend_on_the_size(coordinates: str) -> None:
    """Eigenvalues about rest and, frozen, about a slow motion."""
    found = []
    for L in SIZES:
        mechanism, second = four_bar(L, coordinates), np.sqrt(L)
        rest = mbd.equilibrium(mechanism, {"A.angle": 0.5}, stable=True)
        moving = mbd.assemble(mechanism, {"A.angle": 1.0}, speeds={"A.angle": 1e-5 / second})
        systems = [mbd.linearize(mechanism, state, independent=["A.angle"]) for state in (rest, moving)]
        found.append([np.asarray(system.eigenvalues) * second for system in systems])
        assert "at rest" in str(systems[0]).splitlines()[0]
    for values in found:
        for value, of_a_metre in zip(values, found[2], strict=True):
            np.testing.assert_allclose(value, of_a_metre, rtol=1e-6, atol=1e-6)


def test_axes_that_turn_slowly_turn_at_all_sizes() -> None:
    """A top that turns by 1e-5 rad in a unit of time: 3e-8 rad/s at 1e5 m."""
    for L in (1e-4, 1e5):
        second = np.sqrt(L)
        top = sp.Body("top", L**3, L**5 * np.array([0.1, 0.1, 0.2]), pose=(0, 0, 0.5 * L))
        joint = sp.Spherical("S", sp.ground.at(), top.at(0, 0, -0.5 * L))
        mechanism = sp.Mechanism([top], [joint], [sp.Gravity(9.81)])
        state = mbd.assemble(mechanism, speeds={"top.omega_z": 1e-5 / second})
        names = ["top.omega_x", "top.omega_y", "top.omega_z"]
        system = mbd.linearize(mechanism, state, independent=names)
        assert ("axes that turn" in system.remark, "top.omega_z" in system.remark) == (True, False)
        assert "frozen: speeds up to" in str(system)


def ball(L: float) -> pl.Mechanism:
    body = pl.Body("ball", L**3, 0.1 * L**5, (0.0, L, 0.0))
    marker = pl.Body("pin", L**3, 0.1 * L**5, (L, 0.0, 0.0))
    return pl.Mechanism([body, marker], [pl.Revolute("O", pl.ground.at(), marker.at(-L))], [pl.Gravity(9.81)])


def test_a_ball_bounces_equally_often_at_all_sizes() -> None:
    """Its bounces lie where they lie at one metre, in units of time."""
    found = []
    for L in (1e-4, 1e5, 1.0):
        mechanism, second = ball(L), np.sqrt(L)
        bounce = mbd.Event("floor", "ball.y", below=0.0, then=mbd.Bounce(0.5))
        motion = mbd.simulate(
            mechanism, mbd.assemble(mechanism), second * np.linspace(0.0, 1.34, 20), events=[bounce], max_events=12
        )
        assert motion.events is not None
        found.append((motion.events.times_of("floor") / second, without_units(mechanism, motion.q, L)))
    for times, q in found:
        assert len(times) == 6
        np.testing.assert_allclose(times, found[2][0], rtol=1e-9)
        np.testing.assert_allclose(q, found[2][1], rtol=1e-7, atol=1e-7)


def test_what_starts_on_its_value_is_on_it_at_all_sizes() -> None:
    """The displacement is a difference of lengths, zero up to their rounding: at 1e5 m some 1e-11 m beyond a stop."""
    for L in (1e-4, 1e5):
        slider = pl.Body("slider", L**3, L**5, (0.0, 0.3 * L * (1 + 1e-15), 0.5 * np.pi))
        guide = pl.Prismatic("S", pl.ground.at(0.0, 0.1 * L, angle=0.5 * np.pi), slider.at(-0.2 * L))
        mechanism = pl.Mechanism([slider], [guide], [pl.Gravity(9.81)])
        state = mbd.assemble(mechanism)
        assert 0 < float(mbd.read(mechanism, state, "S.displacement")) < 1e-15 * L
        stop = mbd.Event("stop", "S.displacement", above=0.0, then=mbd.Bounce(0.5))
        motion = mbd.simulate(mechanism, state, np.sqrt(L) * np.linspace(0.0, 0.4, 3), events=[stop])
        np.testing.assert_allclose(motion["S.displacement"][-1] / L, -0.5 * 9.81 * 0.4**2, rtol=1e-8)


class Ramp(eqx.Module):
    """A steady motion, whose numbers are leaves: one program serves all sizes."""

    start: Any
    rate: Any

    def __call__(self, t: Any) -> Any:
        return self.start + self.rate * t


def test_forces_that_nothing_balances_are_found_at_all_sizes() -> None:
    """Weights of some piconewtons had counted as balanced, since they are below 1e-7 N."""
    for L in (1e-4, 1.0):
        mechanism, second = four_bar(L, "absolute"), np.sqrt(L)
        loose = pl.Mechanism([*mechanism.bodies, pl.Body("loose", L**3, L**5)], mechanism.joints, mechanism.forces)
        motor = pl.Driver("motor", "A.angle", Ramp(jnp.asarray(1.0), jnp.asarray(0.5 / second)))
        held = [motor, *(pl.Driver(name, f"loose.{name}", 0.0) for name in ("x", "y", "theta"))]
        with pytest.raises(
            mbd.SolveError, match=r"9\.81.* along 'loose\.y' is left" if L == 1.0 else r"along 'loose\.y'"
        ):
            mbd.inverse_dynamics(loose.with_parts(held), second * np.linspace(0.0, 1.0, 3), {"motor": "A.angle"})


def test_a_rest_that_a_driver_contradicts_is_one_at_no_size() -> None:
    """A driver that turns by 2e-8 rad in a unit of time contradicts rest, one with a quarter of it does not."""
    for L in (1.0, 1e-4):
        for rate, is_rest in ((0.5e-8, True), (2e-8, False)):
            motor = pl.Driver("motor", "A.angle", Ramp(jnp.asarray(1.0), jnp.asarray(rate / np.sqrt(L))))
            result = mbd.equilibrium(four_bar(L, "absolute").with_parts([motor]), {"A.angle": 1.0}, check=False)
            assert bool(np.isfinite(result["A.angle"])) == is_rest


@pytest.mark.slow
def test_loads_of_driven_motions_do_not_depend_on_the_size() -> None:
    """Of `kinematics`, and of `inverse_dynamics` with the driver as the actuator."""
    found = []
    for L in SIZES:
        second = np.sqrt(L)
        driver = sp.Driver("motor", "A.angle", Ramp(jnp.asarray(0.3), jnp.asarray(0.5 / second)))
        motion = mbd.kinematics(spatial_four_bar(L, "absolute").with_parts([driver]), second * np.linspace(0.0, 1.0, 3))
        loads = mbd.inverse_dynamics(motion.mechanism, motion)
        found.append([np.asarray(of.effort("motor")) / L**4 for of in (motion, loads)])
        found[-1] += [np.asarray(of.reaction("D").force) / L**3 for of in (motion, loads)]
    for values in found:
        for value, of_a_metre in zip(values, found[2], strict=True):
            np.testing.assert_allclose(value, of_a_metre, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_efforts_that_hold_do_not_depend_on_the_size(coordinates: str) -> None:
    """The row of a rod is an area: at 0.1 mm it had counted as dependent on the others, as in the rank of `export`."""
    found = []
    for L in SIZES:
        mechanism = spatial_four_bar(L, coordinates)
        state = mbd.assemble(mechanism, {"A.angle": 0.3})
        assert int(mbd.export(mechanism).at(state)["rank"]) == 2 * mechanism.nv - 1
        found.append(float(mbd.optimal_design.holding_effort(mechanism, state, "A.angle")) / L**4)
    np.testing.assert_allclose(found, found[2], rtol=1e-7)


def test_closure_errors_are_those_of_one_metre() -> None:
    """`L²` times the error at one metre, its slope `L²` times, its curvature too: at 0.1 mm angles had counted as
    without curvature. The minimiser's own derivative is in that curvature."""
    found = []
    for L in SIZES:

        def error(apart: Any, L: float = L) -> Any:
            return mbd.closure_error(four_bar(L, "absolute", apart)) / L**2

        found.append([float(f(2.0)) for f in (error, jax.grad(error), jax.grad(jax.grad(error)))])
    for values in found:
        np.testing.assert_allclose(values, found[2], rtol=1e-6)


def test_circuits_do_not_depend_on_the_size() -> None:
    """Steps along a circuit had mixed metres and radians: at 1e5 m it was given up."""
    found = []
    for L in SIZES:
        mechanism = four_bar(L, "absolute")
        circuit = trace(mechanism, mbd.assemble(mechanism, {"A.angle": 1.0}).q, L, "A.angle")
        found.append((circuit.is_closed, len(circuit.placed), circuit.placed[len(circuit.placed) // 2]))
    for is_closed, count, point in found:
        assert (is_closed, count) == (True, found[2][1])
        np.testing.assert_allclose(point, found[2][2], rtol=1e-6, atol=1e-6)


def test_a_fit_does_not_depend_on_the_size() -> None:
    """A slider of 0.1 mm on a spring: an absolute tolerance of 1e-10 m would leave 1e-6 of its motion to chance."""
    found = []
    for L in (1e-4, 1.0):
        slider = pl.Body("slider", 1.0, L**2, (L, 0.0, 0.0))
        joints = [pl.Prismatic("S", pl.ground.at(), slider.at(-L))]
        mechanism = pl.Mechanism(
            [slider], joints, [pl.JointSpringDamper("k", "S.displacement", 90.0)], coordinates="joint"
        )
        ts = np.linspace(0.0, 5.0, 21)
        readings = 0.5 * L * np.cos(10.0 * ts)
        experiment = mbd.Experiment(ts, {"S.displacement": readings}, start={"S.displacement": 0.5 * L}, sigma=1e-3 * L)
        problem = mbd.identification.Problem(
            mechanism, experiment, {"k": mbd.identification.Parameter(lambda m: m["k"].stiffness)}
        )
        found.append(mbd.fit(problem).parameters["k"])
        np.testing.assert_allclose(np.asarray(problem.integration.atol), 1e-10 * L, rtol=1e-12)
    np.testing.assert_allclose(found, 100.0, rtol=1e-6)
