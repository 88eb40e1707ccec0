"""Optimal control: known optima, single against multiple shooting, a closed loop, and wrong arguments."""

from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.optimal_design import Control, optimal_control
from jaxmbd.optimal_design._optimal_control import _Shooting

DURATION, KNOTS = 1.0, 9
SWING, LIMIT = 3.0, 3.0  # [s], [N m]: the weight alone needs 4.9 N m at 90°


def disc(samples: int = KNOTS, duration: float = DURATION, gravity: float = 0.0, offset: float = 0.0) -> pl.Mechanism:
    """A body on a pin with a motor; with an offset and gravity a pendulum."""
    body = pl.Body("disc", mass=1.0, inertia=0.5 if offset == 0 else 1 / 12, pose=(0.0, -offset, 0.0))
    table = mbd.Table(np.linspace(0.0, duration, samples), np.zeros(samples))
    pin = pl.Revolute("O", pl.ground.at(), body.at(0.0, offset))
    forces = [pl.Gravity(gravity), pl.JointForce("motor", "O.angle", table)]
    return pl.Mechanism([body], [pin], forces, coordinates="joint")


@pytest.mark.parametrize("segments", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_least_effort_from_rest_to_rest(segments: int) -> None:
    """A double integrator from 0 to 1 rad in 1 s: `u = J (6 − 12 t)`, `∫ u² dt = 12 J²`, the textbook's solution
    (Bryson, Ho, *Applied Optimal Control* (1975)); a table that is linear between samples holds it exactly."""
    mechanism = disc()
    start = mbd.assemble(mechanism, {"O.angle": 0.0})
    found = optimal_control(
        mechanism, start, {"motor": (-10.0, 10.0)}, {"O.angle": 1.0, "O.angle_rate": 0.0}, coordinates=["O.angle"],
        duration=DURATION, segments=segments, steps_per_segment=16 // segments, progress=False,
    )  # fmt: skip
    assert found.outcome.startswith("converged")
    np.testing.assert_allclose(found.efforts["motor"], 0.5 * (6 - 12 * np.linspace(0, 1, KNOTS)), atol=1e-4)
    assert found.objective == pytest.approx(12 * 0.5**2, rel=1e-8)
    assert found.end_error < 1e-9
    assert float(found.solution["O.angle"][-1]) == pytest.approx(1.0, abs=1e-9)
    # 12 a² − 12 a w + 4 w² is the least cost for the angle a and the rate w at the end, times J².
    assert found.end_multipliers == pytest.approx({"O.angle": 6.0, "O.angle_rate": -3.0}, abs=1e-6)
    np.testing.assert_array_equal(found.effort_multipliers["motor"], np.zeros(KNOTS))
    assert "Multipliers of the end: 6 by 'O.angle', -3 by 'O.angle_rate'" in repr(found)


def test_another_end_and_other_bounds_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same mechanism: a search traces what it compiles, and the next ones nothing."""
    mechanism, traced = disc(), []
    start = mbd.assemble(mechanism, {"O.angle": 0.0})
    motion = _Shooting.motion
    monkeypatch.setattr(_Shooting, "motion", lambda *given: traced.append(1) or motion(*given))

    def cost(angle: float, most: float) -> float:
        before = len(traced)
        found = optimal_control(
            mechanism, start, {"motor": (-most, most)}, {"O.angle": angle, "O.angle_rate": 0.0},
            coordinates=["O.angle"], duration=DURATION, segments=2, steps_per_segment=8, progress=False,
        )  # fmt: skip
        counts.append(len(traced) - before)
        return found.objective

    counts: list[int] = []
    costs = [cost(angle, most) for angle, most in ((1.0, 9.0), (0.5, 10.0), (1.5, 11.0))]
    np.testing.assert_allclose(costs, [3.0, 0.75, 6.75], rtol=1e-7)
    assert counts[0] > 1
    assert counts[1:] == [0, 0]


CONTROLLED = mbd.Integration(solver=dfx.Dopri5(), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "integration"),
    [
        ("O.angle", None),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [("motor.effort", None), ("O.angle", CONTROLLED)]),
    ],
)
def test_samples_of_an_input_are_those_of_a_table_in_the_mechanism(
    name: str, integration: mbd.Integration | None
) -> None:
    """Beside a constant torque of -2 N m that the mechanism has, so that 2 N m more are needed: `u = J (6 − 12 t) + 2`.
    The steps are constant, or controlled."""
    mechanism = disc().replacing(forces=[pl.JointForce("motor", "O.angle", -2.0)])
    start = mbd.assemble(mechanism, {"O.angle": 0.0})
    found = optimal_control(
        mechanism, start, {name: (-10.0, 10.0)}, {"O.angle": 1.0, "O.angle_rate": 0.0}, coordinates=["O.angle"],
        duration=DURATION, segments=2, steps_per_segment=8, samples_per_segment=4, integration=integration,
        progress=False,
    )  # fmt: skip
    assert found.outcome.startswith("converged")
    assert found.end_error < 1e-8
    np.testing.assert_allclose(found.efforts[name], 2.0 + 0.5 * (6 - 12 * np.linspace(0, 1, KNOTS)), atol=1e-4)
    # The cross term of the constant 2 N m vanishes, since the other part has no mean.
    assert found.objective == pytest.approx(12 * 0.5**2 + 2.0**2, rel=1e-8)
    again = mbd.with_inputs(mechanism, {name: mbd.Table(np.linspace(0, DURATION, KNOTS), found.efforts[name])})
    assert repr(found.mechanism) == repr(again)
    motion = mbd.simulate(again, start, np.linspace(0, DURATION, 5))
    np.testing.assert_allclose(motion["O.angle"][-1], 1.0, atol=1e-7)


@pytest.mark.slow
def test_multipliers_are_derivatives_of_the_least_cost() -> None:
    """With a torque that reaches its limit, and a limit on the mean of its first samples, by finite differences."""
    mechanism = disc()
    start = mbd.assemble(mechanism, {"O.angle": 0.0})

    def first_samples(m: pl.Mechanism) -> Any:
        return jnp.mean(m["motor"].force.values[:3])

    def limited(angle: float = 1.0, rate: float = 0.0, limit: float = 2.5, most: float = 2.1) -> Control:
        mean = mbd.Limit(first_samples, lower=-5.0, upper=most)
        return optimal_control(
            mechanism, start, {"motor": (-limit, limit)}, {"O.angle": angle, "O.angle_rate": rate},
            coordinates=["O.angle"], duration=DURATION, segments=2, steps_per_segment=8, constraints={"mean": mean},
            progress=False,
        )  # fmt: skip

    found, h = limited(), 1e-3

    def slope(**by: float) -> float:
        (name,) = by
        more, less = (limited(**{name: by[name] + step}).objective for step in (h, -h))
        return (more - less) / (2 * h)

    costs, motor = found.design.multipliers, found.effort_multipliers["motor"]
    assert costs is not None
    assert costs.unique
    assert costs.residual < 1e-5 * found.objective
    assert found.end_multipliers["O.angle"] == pytest.approx(slope(angle=1.0), rel=1e-3)
    assert found.end_multipliers["O.angle_rate"] == pytest.approx(slope(rate=0.0), rel=1e-3)
    assert costs.constraints["mean"] == pytest.approx([slope(most=2.1)], rel=1e-3)
    assert costs.constraints["mean"] < -1e-3  # a higher limit costs less
    assert (motor[found.efforts["motor"] < -2.499] > 0).all()
    assert (motor[np.abs(found.efforts["motor"]) < 2.499] == 0).all()
    assert -np.abs(motor).sum() == pytest.approx(slope(limit=2.5), rel=1e-3)  # both bounds move


@pytest.mark.slow
def test_swing_up_of_a_pendulum_with_a_weak_motor() -> None:
    """The motor cannot lift the rod in one go. Single and multiple shooting find the same motion."""
    mechanism = disc(17, SWING, gravity=9.81, offset=0.5)
    start = mbd.assemble(mechanism, {"O.angle": 0.0})
    costs = []
    for segments in (1, 5):
        found = optimal_control(
            mechanism, start, {"motor": (-LIMIT, LIMIT)}, {"O.angle": np.pi, "O.angle_rate": 0.0},
            coordinates=["O.angle"], duration=SWING, segments=segments, steps_per_segment=100 // segments,
            progress=False,
        )  # fmt: skip
        assert found.design.is_feasible
        assert found.end_error < 1e-6
        assert np.abs(found.efforts["motor"]).max() <= LIMIT
        costs.append(found.objective)
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)
    assert np.min(np.asarray(found.solution["O.angle"])) < -0.3  # it swings back first


def acrobot(duration: float, torque: Any) -> pl.Mechanism:
    """Two uniform rods of 1 kg and 1 m, a motor at the elbow alone."""
    upper = pl.Body("upper", 1.0, 1 / 12, pose=(0.0, -0.5, 0.0))
    lower = pl.Body("lower", 1.0, 1 / 12, pose=(0.0, -1.5, 0.0))
    table = mbd.Table(np.linspace(0.0, duration, len(torque)), torque)
    return pl.Mechanism(
        [upper, lower],
        [
            pl.Revolute("shoulder", pl.ground.at(), upper.at(0.0, 0.5)),
            pl.Revolute("elbow", upper.at(0.0, -0.5), lower.at(0.0, 0.5)),
        ],
        [pl.Gravity(9.81), pl.JointForce("motor", "elbow.angle", table)],
        coordinates="joint",
    )


@pytest.mark.slow
def test_swing_up_of_a_double_pendulum_with_one_motor() -> None:
    """From hanging to standing in 4 s with 10 N m at the elbow. The motion multiplies errors, so the constant steps of
    the search miss the top when simulated as a whole; some Newton steps of least norm on the simulation with error
    control change the torque by thousandths, and the result is checked with tighter tolerances."""
    duration, limit, segments, angles = 4.0, 10.0, 10, ["shoulder.angle", "elbow.angle"]
    mechanism = acrobot(duration, np.zeros(21))
    hanging = mbd.assemble(mechanism, dict.fromkeys(angles, 0.0))
    top = {"shoulder.angle": np.pi, "elbow.angle": 0.0, "shoulder.angle_rate": 0.0, "elbow.angle_rate": 0.0}
    s = np.linspace(0.0, 1.0, segments + 1)[1:-1]
    swings = np.sin(4 * np.pi * s)
    found = optimal_control(
        mechanism, hanging, {"motor": (-limit, limit)}, top, coordinates=angles, duration=duration, segments=segments,
        steps_per_segment=20, steps=400, progress=False,
        guess={"shoulder.angle": np.pi * s**2 - 0.6 * swings * (1 - s), "elbow.angle": 0.8 * swings},
    )  # fmt: skip
    assert found.design.is_feasible

    def with_torque(u: Any) -> pl.Mechanism:
        return eqx.tree_at(lambda m: m["motor"].force.values, mechanism, u)

    def missed(u: Any, **options: Any) -> Any:
        motion = mbd.simulate(with_torque(u), hanging, np.array([0.0, duration]), adjoint="forward", **options)
        return jnp.stack([motion[name][-1] - value for name, value in top.items()])

    torque, linearised = jnp.asarray(found.efforts["motor"]), jax.jit(lambda u: (missed(u), jax.jacfwd(missed)(u)))
    for _ in range(6):
        error, slope = linearised(torque)
        torque = torque - jnp.linalg.pinv(slope) @ error
    assert jnp.max(jnp.abs(torque)) <= limit
    assert jnp.max(jnp.abs(torque - found.efforts["motor"])) < 0.01
    np.testing.assert_allclose(missed(torque, accuracy="high"), 0.0, atol=1e-4)


def five_bar(duration: float, samples: int) -> tuple[pl.Mechanism, pl.Mechanism]:
    """The five-bar of the examples: with motors whose torques are sampled, and with drivers."""
    example = mbd.examples.get("five_bar").mechanism
    table = mbd.Table(np.linspace(0.0, duration, samples), np.zeros(samples))
    motors = [pl.JointForce(f"motor {pin}", f"{pin}.angle", table) for pin in "OC"]
    parts = example.bodies, example.joints
    free = pl.Mechanism(*parts, [*example.forces, *motors])

    def smooth(begin: float, change: float) -> Any:
        return lambda t: (
            begin + change * (10 * (t / duration) ** 3 - 15 * (t / duration) ** 4 + 6 * (t / duration) ** 5)
        )

    drivers = [pl.Driver("motor O", "O.angle", smooth(1.0, 0.8)), pl.Driver("motor C", "C.angle", smooth(1.9, 0.4))]
    return free, pl.Mechanism(*parts, example.forces, drivers)


@pytest.mark.slow
def test_least_torque_of_a_five_bar_from_point_to_point() -> None:
    """A closed loop from rest to rest, with multiple shooting: less effort than the usual polynomial of fifth degree
    takes, and the loop stays closed."""
    duration = 0.4
    free, driven = five_bar(duration, 9)
    start = mbd.assemble(free, {"O.angle": 1.0, "C.angle": 1.9})
    end = {"O.angle": 1.8, "C.angle": 2.3, "O.angle_rate": 0.0, "C.angle_rate": 0.0}
    found = optimal_control(
        free, start, {"motor O": None, "motor C": None}, end, coordinates=["O.angle", "C.angle"], duration=duration,
        segments=2, steps_per_segment=20, progress=False,
    )  # fmt: skip
    assert found.design.is_feasible
    assert found.end_error < 1e-4  # as a whole it is integrated without an assembly in between
    assert float(jnp.max(found.solution.violation().position)) < 1e-6
    ts = np.linspace(0.0, duration, 81)
    usual = mbd.inverse_dynamics(driven, ts)
    effort = sum(np.trapezoid(np.asarray(usual.effort(name)) ** 2, ts) for name in ("motor O", "motor C"))
    assert found.objective < effort


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"efforts": {"mtr": None}}, "force or input named 'mtr'"),
        ({"coordinates": ["O.angle", "disc.x"]}, "1 degrees? of freedom"),
        ({"duration": 0.0}, "duration must be positive"),
        ({"duration": "long"}, "duration must be a number, got 'long'"),
        ({"end": {}}, "end must name at least one"),
        ({"end": {"O.angle": "up"}}, "end value of: 'O.angle' must be a number, got 'up'"),
        ({"efforts": {}}, "efforts must name at least one"),
        ({"efforts": {"motor": 3.0}}, "bounds of the effort 'motor' must be a pair"),
        ({"efforts": {"motor": (1.0, 2.0)}}, "starts at .*, outside its range"),
        ({"guess": {"O.angle": [1.0, 2.0]}}, "guess of: 'O.angle' must have shape"),
        ({"guess": {"O.angle": "a"}}, "guess of: 'O.angle' must be numbers of shape"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"objective": 3.0}, "objective"),
        ({"segments": 0}, "segments must be at least 1"),
        ({"guess": {"P.angle": [1.0]}}, "coordinate for guess named 'P.angle'"),
        ({"efforts": {"motor": (1.0, -1.0)}}, "lower must be below upper"),
        ({"efforts": {"O.angel": None}}, "Did you mean 'O.angle'"),
        ({"efforts": {"gravity": None}}, "'gravity' must be a force with samples"),
        ({"samples_per_segment": 0}, "samples_per_segment must be at least 1"),
        ({"rtol": 1e-6}, "rtol cannot be set: the steps of RungeKutta4 are constant"),
        ({"integration": mbd.Integration(accuracy="high")}, "accuracy cannot be set: the steps of RungeKutta4"),
        ({"dt0": 0.1}, "dt0 cannot be set: .* follows from steps_per_segment"),
        ({"solver": dfx.Dopri8(), "adjoint": "forward"}, "adjoint cannot be set: .* both modes"),
        ({"events": [mbd.Event("top", "disc.theta", above=1.0)]}, "events cannot be set: the motion has to go on"),
        (
            {"solver": dfx.Dopri8(), "stepsize_controller": dfx.StepTo(jnp.linspace(0.0, 1.0, 5))},
            "stepsize_controller cannot be set: StepTo",
        ),
        ({"stepz": 3}, "setting of optimal_control named 'stepz'. Did you mean 'steps'"),
        # Efforts may begin on a bound: what is said is the next mistake.
        (
            {"efforts": {"motor": (0.0, 3.0)}, "constraints": {"end": mbd.Limit(lambda m: 0.0, upper=1.0)}},
            "'end' is the name of a constraint",
        ),
    ],
)
def test_wrong_arguments(changed: dict[str, Any], text: str) -> None:
    mechanism = disc()
    given: dict[str, Any] = {
        "mechanism": mechanism, "start": mbd.assemble(mechanism, {"O.angle": 0.0}), "efforts": {"motor": None},
        "end": {"O.angle": 1.0}, "coordinates": ["O.angle"], "duration": 1.0, "segments": 2,
    }  # fmt: skip
    with pytest.raises(mbd.MechanismError, match=text):
        optimal_control(**{**given, **changed}, progress=False)


@pytest.mark.slow
def test_segments_join_in_the_states_of_parts() -> None:
    """The current of a motor beside the effort: at the end of the search the whole motion is that of the segments.

    The system is linear, so that the least cost is `dᵀ W⁻¹ d`, with the controllability Gramian `W` and what the motion
    misses without effort, `d`. Nine samples come near to it.
    """
    coil = pl.DCMotor("coil", "O.angle", 2.0, resistance=0.5, inductance=0.4, constant=0.6, current=1.0)
    mechanism = disc().with_parts([coil])
    start = mbd.assemble(mechanism, {"O.angle": 0.0})
    found = optimal_control(
        mechanism, start, {"motor": None}, {"O.angle": 1.0, "O.angle_rate": 0.0}, coordinates=["O.angle"],
        duration=DURATION, segments=3, steps_per_segment=10, progress=False,
    )  # fmt: skip
    assert found.outcome.startswith("converged")
    assert found.end_error < 1e-6
    A, B = np.array([[0, 1, 0], [0, 0, 0.6 / 0.5], [0, -0.6 / 0.4, -0.5 / 0.4]]), np.array([0, 1 / 0.5, 0])
    both = scipy.linalg.expm(DURATION * np.block([[-A, np.outer(B, B)], [np.zeros((3, 3)), A.T]]))
    W = (both[3:, 3:].T @ both[:3, 3:])[:2, :2]
    forced = scipy.linalg.expm(DURATION * np.block([[A, np.array([[0], [0], [2.0 / 0.4]])], [np.zeros((1, 4))]]))
    d = np.array([1.0, 0.0]) - (forced @ np.array([0, 0, 1, 1]))[:2]
    assert found.objective == pytest.approx(d @ np.linalg.solve(W, d), rel=1e-5)
    # The current differs by far from that at the start.
    assert float(np.ptp(found.solution["coil.current"])) > 0.5
