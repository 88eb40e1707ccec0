"""The problem of identification as functions of its unknowns: values, derivatives, experiments, losses and starts."""

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import Box, LogNormal, Normal, Parameter, Positive, Problem, Unknowns
from jaxmbd.identification._checkpoint import Checkpoint
from jaxmbd.identification._identity import identity_of_fit
from jaxmbd.identification._losses import transformed
from jaxmbd.numerics.stepwise_search import SearchState
from tests.identification.swings import (
    FREE,
    FRICTION,
    KNOTS,
    MASS,
    NOISE,
    motion,
    pendulum,
    plain_pendulum,
    swings,
    torque,
)
from tests.marks import slow_but

GRAVITY = "gravity.acceleration"


def test_experiments_of_other_lengths_are_one_batch_with_the_same_residuals() -> None:
    """The residuals of experiments that are simulated together are those of each one alone."""
    together = Problem(pendulum(), swings(), FREE)
    assert len(together.stacks) == 1
    theta = together.start()
    rows = np.asarray(together.residuals(theta)).reshape(3, -1)
    for k, experiment in enumerate(swings()):
        alone = Problem(pendulum(), experiment, FREE)
        own = np.asarray(alone.residuals(alone.start()))
        np.testing.assert_allclose(np.sort(rows[k][rows[k] != 0]), np.sort(own[own != 0]), rtol=1e-6)
        restored = together.experiments()[k]
        assert sorted(restored.data) == sorted(experiment.data)
        np.testing.assert_array_equal(restored.ts, experiment.ts)
        np.testing.assert_array_equal(restored.data["O.angle"], experiment.data["O.angle"])


def test_a_fit_of_them_is_that_of_their_whole() -> None:
    result = mbd.fit(pendulum(), swings(), FREE, progress=False)
    assert result.outcome == "converged"
    for name, true in (("mass", 1.3), ("friction", 0.2)):
        lower, upper = result.interval()[name]
        assert lower < true < upper
        assert upper - lower < 0.02 * true
    for one, experiment in zip(result.predicted, swings(), strict=True):
        assert one["O.angle"].shape == experiment.ts.shape
    residuals = np.concatenate([one["O.angle"] for one in result.residuals])
    assert np.isnan(residuals).sum() == 3
    assert np.nanstd(residuals) == pytest.approx(NOISE, rel=0.25)


def finite_difference(f: Any, theta: Unknowns, name: str, step: float = 1e-5) -> Array:
    moved = [
        f(Unknowns(theta.parameters | {name: theta.parameters[name] + sign * step}, theta.experiments))
        for sign in (1, -1)
    ]
    return (moved[0] - moved[1]) / (2 * step)


@pytest.mark.parametrize("loss", slow_but(["huber"], ["squares", "huber", "soft_l1", "cauchy"]))
def test_derivatives_of_the_likelihood_and_the_prior(loss: Any) -> None:
    """Forward, reverse and second derivatives against differences, in the compiled function."""
    free = {
        "mass": Parameter(lambda m: m["bar"].mass, within=Positive(), prior=LogNormal(1.1, 0.1)),
        "friction": Parameter(lambda m: m["friction"].viscous, prior=Normal(0.15, 0.02)),
    }
    problem = Problem(pendulum(1.25, 0.18), swings(), free, loss=loss, rtol=1e-11, atol=1e-12)
    theta = problem.start()

    @jax.jit
    def density(theta: Unknowns) -> Array:
        return problem.log_likelihood(theta) + problem.log_prior(theta)

    gradient = jax.jit(jax.grad(density))(theta)
    for name in free:
        direction = Unknowns(
            {other: jnp.asarray(float(other == name)) for other in free},
            jax.tree.map(jnp.zeros_like, theta.experiments),
        )
        expected = finite_difference(density, theta, name)
        np.testing.assert_allclose(gradient.parameters[name], expected, rtol=2e-5)
        np.testing.assert_allclose(jax.jvp(density, (theta,), (direction,))[1], expected, rtol=2e-5)


def test_likelihood_is_the_density_of_independent_samples() -> None:
    problem = Problem(pendulum(1.3, 0.2), swings(), FREE)
    theta = problem.start()
    expected = 0.0
    for readings, stack in zip(problem.readings(theta), problem.stacks, strict=True):
        for name, measured in stack.experiment.data.items():
            error = np.asarray(readings[name] - measured)
            error = error[np.isfinite(error)]
            expected += np.sum(-0.5 * (error / NOISE) ** 2 - np.log(NOISE * np.sqrt(2 * np.pi)))
    assert float(problem.log_likelihood(theta)) == pytest.approx(expected, rel=1e-12)
    r = np.asarray(problem.residuals(theta))
    assert float(problem.objective(theta)) == pytest.approx(0.5 * np.sum(r**2), rel=1e-12)


def test_prior_is_a_normalised_density_and_its_residual_belongs_to_it() -> None:
    x = np.linspace(1e-4, 60.0, 400_001)
    for prior in (Normal(2.0, 0.3), LogNormal(1.5, 0.4)):
        density = np.exp(np.asarray(prior.log_density(jnp.asarray(x))))
        assert np.trapezoid(density, x) == pytest.approx(1.0, abs=1e-6)
    r = LogNormal(1.5, 0.4).residual(jnp.asarray([1.5, 1.5 * np.exp(0.4), -1.0]))
    np.testing.assert_allclose(r, [0.0, 1.0, np.inf], atol=1e-12)
    assert float(LogNormal(1.5, 0.4).log_density(jnp.asarray(-1.0))) == -np.inf


def test_a_prior_decides_what_the_data_leave_open() -> None:
    """Mass and inertia of a free pendulum: the data give their ratio, a prior the size."""
    still = [
        mbd.Experiment(e.ts, {"O.angle": e.data["O.angle"]}, start=e.start, sigma=NOISE, missing=True) for e in swings()
    ]
    inertia = Parameter(lambda m: m["bar"].inertia, within=Positive())
    friction = Parameter(lambda m: m["friction"].viscous, within=Positive())
    mass = Parameter(lambda m: m["bar"].mass, within=Positive(), prior=LogNormal(1.3, 0.05))
    free = {"mass": mass, "inertia": inertia, "friction": friction}
    result = mbd.fit(pendulum(1.2), still, free, progress=False)
    assert not result.undetermined
    assert result.standard_errors is not None
    assert float(result.standard_errors["mass"]) == pytest.approx(0.05 * 1.3, rel=0.05)
    assert float(result.parameters["mass"]) == pytest.approx(1.3, rel=1e-3)
    assert float(result.parameters["inertia"]) == pytest.approx(0.1, abs=0.01)


# --- robust losses, bounds, starts ----------------------------------------------------------------------


LOSSES: dict[Any, Any] = {
    "squares": lambda z: z,
    "huber": lambda z: z if z <= 1 else 2 * np.sqrt(z) - 1,
    "soft_l1": lambda z: 2 * (np.sqrt(1 + z) - 1),
    "cauchy": lambda z: np.log(1 + z),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_transformed_residuals_have_the_loss_that_is_meant(loss: Any) -> None:
    """`r̂² = s² ρ((r / s)²)`, with the residual's sign; and no step of it or of its slope at `r = s`, where Huber's loss
    has two branches, nor where the root is replaced by the residual itself."""
    scale = 1.5
    r = np.array([-12.0, -1.6, -1.4, -0.3, -1e-9, 0.0, 1e-9, 0.3, 1.4, 1.6, 12.0])
    found = np.asarray(transformed(loss, scale, jnp.asarray(r)))
    expected = [scale**2 * LOSSES[loss]((x / scale) ** 2) for x in r]
    np.testing.assert_allclose(found**2, expected, rtol=1e-9, atol=1e-17)
    np.testing.assert_array_equal(np.sign(found), np.sign(r))
    for derivative in (jax.grad, jax.jacfwd):
        slope = jax.vmap(derivative(lambda x: transformed(loss, scale, x)))
        for at in (0.0, 1e-6 * scale, scale):
            sides = jnp.asarray([at - 1e-8, at + 1e-8])
            np.testing.assert_allclose(*transformed(loss, scale, sides), atol=1e-7)
            np.testing.assert_allclose(*slope(sides), atol=1e-7)


def test_outliers_do_not_move_a_robust_fit() -> None:
    draws = np.random.default_rng(3)
    ts = np.linspace(0.0, 2.0, 101)
    angles = np.array(motion(ts, 1.0, mass=1.3, viscous=0.2)["O.angle"]) + NOISE * draws.normal(size=101)
    angles[10::9] += 0.3  # a tenth of the samples
    experiment = mbd.Experiment(ts, {"O.angle": angles}, start={"O.angle": 1.0}, sigma=NOISE)
    found = {}
    for loss in ("squares", "huber", "cauchy"):
        problem = Problem(pendulum(1.3, 0.1), experiment, {"friction": FRICTION}, loss=loss)
        found[loss] = float(mbd.fit(problem, progress=False).parameters["friction"])
    assert abs(found["squares"] - 0.2) > 0.005
    assert abs(found["huber"] - 0.2) < 0.002
    assert abs(found["cauchy"] - 0.2) < 0.0005


def test_a_parameter_stays_at_its_bound_and_says_so() -> None:
    """The bound is reached to rounding, and the other parameter is at its best there."""
    free = {
        "mass": Parameter(lambda m: m["bar"].mass, within=Box(0.5, 1.2)),
        "friction": Parameter(lambda m: m["friction"].viscous, within=Box(0.0, 1.0)),
    }
    result = mbd.fit(pendulum(1.0, 0.0), swings(), free, progress=False)
    assert result.outcome == "converged"
    assert float(result.parameters["mass"]) == 1.2
    assert any("mass lies at the upper end of its range, 0.5 to 1.2" in text for text in result.warnings)
    best = mbd.fit(pendulum(1.2, 0.1), swings(), {"friction": FRICTION}, progress=False)
    assert float(result.parameters["friction"]) == pytest.approx(float(best.parameters["friction"]), rel=1e-4)
    inside = mbd.fit(pendulum(1.0, 0.0), swings(), free | {"mass": MASS}, progress=False)
    assert float(inside.parameters["friction"]) == pytest.approx(0.2, rel=0.01)


def test_several_starts_find_what_one_misses() -> None:
    """The stiffness of a spring from long oscillations: the loss has a minimum for each number of missed periods."""
    slider = pl.Body("slider", 1.0, 0.1)
    rail = pl.Prismatic("rail", pl.ground.at(), slider.at())

    def model(k: Any) -> pl.Mechanism:
        spring = pl.SpringDamper("spring", pl.ground.at(-1.0), slider.at(), stiffness=k, free_length=1.0)
        return pl.Mechanism([slider], [rail], [spring], coordinates="joint")

    ts = np.linspace(0.0, 6.0, 121)
    values = mbd.simulate(model(60.0), mbd.assemble(model(60.0), {"rail.displacement": 0.1}), ts)["rail.displacement"]
    experiment = mbd.Experiment(ts, {"rail.displacement": values}, start={"rail.displacement": 0.1}, sigma=1e-4)
    stiffness = Parameter(lambda m: m["spring"].stiffness, within=mbd.identification.Bounded(20.0, 200.0))
    alone = mbd.fit(model(120.0), experiment, {"k": stiffness}, progress=False)
    several = mbd.fit(model(120.0), experiment, {"k": stiffness}, starts=12, progress=False)
    assert abs(float(alone.parameters["k"]) - 60.0) > 5.0
    assert float(several.parameters["k"]) == pytest.approx(60.0, rel=1e-4)
    assert len(several.other_losses) == 12
    assert several.other_losses[0] == pytest.approx(min(alone.history), rel=1e-6)


def test_a_fit_goes_on_from_its_checkpoint(tmp_path: Any) -> None:
    path = tmp_path / "fit.npz"
    with pytest.warns(mbd.FitWarning, match="used up its 2 steps"):
        first = mbd.fit(pendulum(), swings(), FREE, steps=2, checkpoint=path, progress=False)
    went_on = mbd.fit(pendulum(), swings(), FREE, checkpoint=path, progress=False)
    whole = mbd.fit(pendulum(), swings(), FREE, progress=False)
    assert went_on.history[:2] == first.history
    assert went_on.history == pytest.approx(whole.history, rel=1e-4)
    with pytest.raises(mbd.MechanismError, match="belongs to a fit with other unknowns, friction, mass"):
        mbd.fit(pendulum(), swings(), {"mass": MASS}, checkpoint=path, progress=False)
    for size in (100, 0):
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(mbd.MechanismError, match=r"cannot be read.*Delete it to start anew"):
            mbd.fit(pendulum(), swings(), FREE, checkpoint=path, progress=False)


def test_a_checkpoint_of_segments_without_jumps_is_none_of_segments_with_jumps(tmp_path: Any) -> None:
    one = mbd.Experiment(np.linspace(0.0, 1.0, 11), {"O.angle": np.zeros(11)}, {"O.angle": 0.1}, {"O.angle": 0.0}, True)
    problem, path = Problem(pendulum(), one, FREE, segments=2, continuity=0.1), tmp_path / "fit.npz"
    stored = Checkpoint(path, problem.names(), identity_of_fit(problem, [problem.unconstrained(problem.start())]))
    stored.stage = 2
    stored.save([SearchState(np.zeros(6), history=[1.0])])
    with pytest.raises(mbd.MechanismError, match="belongs to a fit of segments that join without jumps, continuity=0"):
        mbd.fit(problem, checkpoint=path, progress=False)


@pytest.mark.slow
def test_motions_take_the_options_of_simulate() -> None:
    """The smallest step, times at which steps end, and the error of closure that is allowed."""
    ts = np.linspace(0.0, 2.0, 5)
    one = mbd.Experiment(ts, {"O.angle": np.zeros(5)}, {"O.angle": 1.0})
    state = mbd.assemble(pendulum(), {"O.angle": 1.0})
    steps = {}
    for options, result in (({"dtmin": 0.2}, "step_too_small"), ({"switching_times": [0.3, 1.1, 1.7]}, "successful")):
        problem = Problem(pendulum(), one, FREE, **options)  # pyright: ignore[reportArgumentType]
        (found,) = eqx.filter_jit(Problem.simulate)(problem, problem.start())  # of a mechanism with functions
        assert (found.result == getattr(mbd.RESULTS, result)).all()
        steps[result] = int(found.stats["num_accepted_steps"][0])
    plain = int(mbd.simulate(pendulum(), state, ts).stats["num_accepted_steps"])
    assert steps["step_too_small"] == 0
    assert plain < steps["successful"] <= plain + 6


def test_options_of_simulate_are_checked_and_kept() -> None:
    one = mbd.Experiment(np.linspace(0.0, 2.0, 5), {"O.angle": np.zeros(5)}, {"O.angle": 1.0})
    for wrong in ({"dtmin": -1.0}, {"switching_times": [np.nan]}, {"closure_tolerance": 0.0}):
        with pytest.raises(mbd.MechanismError, match=next(iter(wrong))):
            Problem(pendulum(), one, FREE, **wrong)  # pyright: ignore[reportArgumentType]
    given = {"dtmin": 1e-9, "switching_times": [0.3], "closure_tolerance": 1e-3}
    kept = Problem(pendulum(), one, FREE, **given).integration
    for name, value in given.items():
        np.testing.assert_array_equal(getattr(kept, name), value)


# --- what experiments have of their own -----------------------------------------------------------------


def test_own_numbers_and_inputs() -> None:
    """Each experiment has its own load, one known and one estimated, and its own measured torque."""
    ts = np.linspace(0.0, 2.0, 41)
    courses = (np.sin(3 * KNOTS), np.cos(2 * KNOTS))
    experiments = []
    for mass, values in zip((1.3, 1.7), courses, strict=True):
        angles = motion(ts, 0.5, mass=mass, viscous=0.2, motor=torque(values))["O.angle"]
        own = {"mass": 1.3 if mass == 1.3 else 1.5, "torque": torque(values)}
        estimate = () if mass == 1.3 else ("mass",)
        experiments.append(
            mbd.Experiment(ts, {"O.angle": angles}, start={"O.angle": 0.5}, own=own, estimate=estimate, sigma=NOISE)
        )
    inputs = {"torque": lambda m: m["motor"].parameters}
    problem = Problem(pendulum(), experiments, FREE, inputs=inputs)
    assert problem.shared == ("friction",)
    result = mbd.fit(problem, progress=False)
    assert float(result.parameters["friction"]) == pytest.approx(0.2, rel=1e-5)
    assert problem.names() == ("friction", "mass in experiment 1")
    owned = [own["own:mass"] for own in result.theta.experiments if "own:mass" in own]
    np.testing.assert_allclose(np.concatenate(owned), [1.7], rtol=1e-5)
    with pytest.raises(mbd.MechanismError, match="no own parameter or input named 'torque'"):
        Problem(pendulum(), experiments, FREE)
    negative = mbd.Experiment(ts, {"O.angle": np.zeros(41)}, start={"O.angle": 0.5}, own={"mass": -1.3})
    with pytest.raises(mbd.MechanismError, match=r"Experiment 1: own 'mass' is -1.3, outside its range Positive\(\)"):
        Problem(pendulum(), [swings()[0], negative], FREE)
    alone = Problem(pendulum(), experiments[:1], FREE, inputs=inputs)
    with pytest.raises(mbd.MechanismError, match=r"other experiments, none; own:mass \(1,\); those of .* are none"):
        alone.starting_at(result.theta)


def test_an_own_value_comes_before_the_shared_one() -> None:
    """One swing has a load of its own, which is known; the others share theirs, which is estimated."""
    ts = np.linspace(0.0, 2.0, 41)
    experiments = [
        mbd.Experiment(ts, {"O.angle": motion(ts, 0.5, mass=mass, viscous=0.2)["O.angle"]}, start={"O.angle": 0.5},
                       own={"mass": mass} if mass == 1.7 else {}, sigma=NOISE)
        for mass in (1.3, 1.7, 1.3)
    ]  # fmt: skip
    problem = Problem(pendulum(1.2, 0.2), experiments, {"mass": MASS})
    assert problem.shared == ("mass",)
    by_place = {
        place: np.asarray(readings["O.angle"][k])
        for readings, stack in zip(problem.readings(problem.start()), problem.stacks, strict=True)
        for k, place in enumerate(stack.places)
    }
    for place, mass in enumerate((1.2, 1.7, 1.2)):
        np.testing.assert_allclose(by_place[place], motion(ts, 0.5, mass=mass, viscous=0.2)["O.angle"], atol=1e-8)
    result = mbd.fit(problem, progress=False)
    assert float(result.parameters["mass"]) == pytest.approx(1.3, rel=1e-6)
    np.testing.assert_allclose(result.predicted[1]["O.angle"], experiments[1].data["O.angle"], atol=1e-8)


@pytest.mark.slow
def test_tables_of_other_lengths_are_inputs_of_one_batch() -> None:
    tables = [mbd.Table(np.linspace(0.0, 1.0, n), np.linspace(0.0, 1.0, n) ** 2) for n in (5, 9)]
    ts = np.linspace(0.0, 1.5, 16)

    def model(course: Any) -> pl.Mechanism:
        return pl.Mechanism(
            [pl.Body("bar", 1.0, 0.1)],
            [pl.Revolute("O", pl.ground.at(), pl.Body("bar", 1.0, 0.1).at(0.0, 0.5))],
            [pl.Gravity(9.81), pl.JointForce("motor", "O.angle", course)],
            coordinates="joint",
        )

    experiments = []
    for table in tables:
        mechanism = model(table)
        angles = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.3}), ts)["O.angle"]
        experiments.append(mbd.Experiment(ts, {"O.angle": angles}, start={"O.angle": 0.3}, own={"torque": table}))
    free = {"mass": lambda m: m["bar"].mass}
    problem = Problem(model(tables[0]), experiments, free, inputs={"torque": lambda m: m["motor"].force})
    assert len(problem.stacks) == 1
    np.testing.assert_allclose(problem.residuals(problem.start()), 0.0, atol=1e-7)


def test_motion_from_rest_starts_in_the_equilibrium_of_the_trial() -> None:
    """A constant torque, then none: the start depends on the mass, and its derivative is part of the Jacobian."""
    ts = np.linspace(0.0, 1.0, 21)

    def model(mass: Any) -> pl.Mechanism:
        return pendulum(mass, 0.2, torque(np.full(9, 2.0)))

    resting = mbd.equilibrium(model(1.3), {"O.angle": 0.3}, stable=True).state
    angle = float(resting["O.angle"])
    assert angle == pytest.approx(np.arcsin(2.0 / (1.3 * 9.81 * 0.5)), rel=1e-9)
    data = {"O.angle": np.full(21, angle)}
    experiment = mbd.Experiment(ts, data, start={"O.angle": 0.2}, at_rest=True, sigma=NOISE)
    result = mbd.fit(model(1.0), experiment, {"mass": MASS}, progress=False)
    assert float(result.parameters["mass"]) == pytest.approx(1.3, rel=1e-6)
    with pytest.raises(mbd.MechanismError, match="starts at rest has no speeds"):
        mbd.Experiment(ts, data, start={"O.angle": 0.2}, speeds={"O.angle": 1.0}, at_rest=True)


@pytest.mark.slow
def test_prediction_uses_no_measurement_that_it_need_not() -> None:
    result = mbd.fit(pendulum(), swings()[:2], FREE, progress=False)
    ts = np.linspace(0.0, 1.5, 16)
    unseen = mbd.Experiment(ts, {"tip": np.zeros((16, 2))}, start={"O.angle": 0.7})
    prediction = mbd.identification.predict(result, unseen)
    mechanism = result.mechanism
    expected = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.7}), ts)["tip"]
    np.testing.assert_allclose(prediction.predicted[0]["tip"], expected, atol=1e-9)
    assert "tip: RMS error" in str(prediction)
    kept_back = mbd.identification.predict(result, swings()[2], progress=False)
    assert kept_back.outcome == "converged"
    assert float(kept_back.states[0]["O.angle"]) == pytest.approx(1.4, abs=3 * NOISE)
    assert kept_back.rms()[0]["O.angle"] == pytest.approx(NOISE, rel=0.4)


# --- a user's own solver --------------------------------------------------------------------------------


def test_a_users_own_solver_needs_nothing_private() -> None:
    """optimistix on the residuals, for many sets of measurements side by side."""
    draws = np.random.default_rng(11)
    ts = np.linspace(0.0, 2.0, 41)
    angles = np.asarray(motion(ts, 1.0, mass=1.3, viscous=0.2)["O.angle"])
    mechanism = pendulum(1.3, 0.15)  # of one: its functions are compared as objects
    problems = [
        Problem(
            mechanism,
            mbd.Experiment(
                ts, {"O.angle": angles + NOISE * draws.normal(size=41)}, start={"O.angle": 1.0}, sigma=NOISE
            ),
            {"friction": FRICTION},
        )
        for _ in range(4)
    ]

    @eqx.filter_jit
    @eqx.filter_vmap
    def solved(problem: Problem) -> Array:
        solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
        start = problem.unconstrained(problem.start())
        residuals = lambda u, problem: problem.residuals(problem.physical(u), "forward")  # noqa: E731
        u = optx.least_squares(residuals, solver, start, problem).value
        return problem.physical(u).parameters["friction"]

    arrays, static = eqx.partition(problems[0], eqx.is_array)
    del arrays
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *(eqx.filter(p, eqx.is_array) for p in problems))
    found = solved(eqx.combine(stacked, static))
    expected = [mbd.fit(problem, progress=False).parameters["friction"] for problem in problems]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
def test_a_fit_by_names_is_that_by_functions() -> None:
    """Estimates, errors and units; one by a pattern, and an input of the experiment."""
    ts = np.linspace(0.0, 0.6, 9)
    mechanism, start = plain_pendulum(1.1, 0.15), {"O.angle": 1.0}
    true = plain_pendulum(1.3, 0.2)
    angle = np.asarray(mbd.simulate(true, mbd.assemble(true, start), ts)["O.angle"]) + 1e-4 * np.cos(7 * ts)
    data = mbd.Experiment(ts, {"O.angle": angle}, start=start, sigma=1e-3, own={"g": 9.81})
    by_name = Problem(mechanism, data, {"*.mass": Positive(), "friction.viscous": Positive()}, inputs={"g": GRAVITY})
    free = {"m": Parameter(lambda m: m["bar"].mass, within=Positive()), "c": FRICTION}
    by_function = Problem(mechanism, data, free, inputs={"g": lambda m: m["gravity"].acceleration})
    found, other = (mbd.fit(problem, progress=False) for problem in (by_name, by_function))
    assert by_name.names() == ("bar.mass", "friction.viscous")
    for name, same in (("bar.mass", "m"), ("friction.viscous", "c")):
        assert found.parameters[name] == pytest.approx(float(other.parameters[same]), rel=1e-9)
        assert found.standard_errors is not None
        assert other.standard_errors is not None
        assert found.standard_errors[name] == pytest.approx(float(other.standard_errors[same]), rel=1e-7)
    assert found.parameters["bar.mass"] == pytest.approx(1.3, rel=0.02)
    assert re.search(r"bar\.mass .* kg", str(found))
    assert mbd.with_numbers(mechanism, found.parameters)["bar"].mass == found.mechanism["bar"].mass
