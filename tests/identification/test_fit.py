"""Identification: known parameters come back from synthetic measurements, and bad input is named."""

import io
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import rich.console
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl

TRUE_MASS, TRUE_FRICTION, NOISE = 1.3, 0.2, 1e-3
TS = np.linspace(0.0, 2.0, 81)
STARTS = (0.5, 1.0, 1.5)


def pendulum(mass: float = 1.0, viscous: float = 0.1) -> pl.Mechanism:
    """A bar of 1 m hanging from a pin at its upper end, with viscous friction."""
    bar = pl.Body("bar", mass, 0.1, pose=(0.0, -0.5, 0.0))
    return pl.Mechanism(
        [bar],
        [pl.Revolute("O", pl.ground.at(), bar.at(0.0, 0.5))],
        [pl.Gravity(9.81), pl.JointFriction("friction", "O.angle", viscous=viscous)],
        sensors=[pl.Point("tip", bar.at(0.0, -0.5))],
    )


@cache
def measured() -> tuple[mbd.Experiment, ...]:
    """Three noisy swings of the true pendulum; one sample of each is missing, and the start is known roughly."""
    rng = np.random.default_rng(0)
    found = []
    for angle in STARTS:
        mechanism = pendulum(TRUE_MASS, TRUE_FRICTION)
        solution = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": angle}), TS)
        angles = np.asarray(solution["O.angle"]) + NOISE * rng.normal(size=len(TS))
        tips = np.asarray(solution["tip"]) + NOISE * rng.normal(size=(len(TS), 2))
        angles[5] = np.nan
        found.append(
            mbd.Experiment(
                TS,
                {"O.angle": angles, "tip": tips},
                start={"O.angle": angle + 0.05},
                speeds={"O.angle": 0.0},
                estimate=("start:O.angle",),
                sigma=NOISE,
                missing=True,
            )
        )
    return tuple(found)


def where_mass(m: pl.Mechanism) -> Array:
    """The free mass."""
    return m["bar"].mass


def where_friction(m: pl.Mechanism) -> Array:
    """The free friction coefficient."""
    return m["friction"].viscous


@cache
def fitted() -> mbd.Fit:
    """The fit that several tests look at."""
    free = {
        "mass": mbd.identification.Parameter(where_mass, within=mbd.identification.Bounded(0.1, 10.0), unit="kg"),
        "friction": mbd.identification.Parameter(where_friction, within=mbd.identification.Positive(), unit="N m s"),
    }
    return mbd.fit(pendulum(), measured(), free, progress=False)


def test_parameters_and_initial_states_come_back() -> None:
    result = fitted()
    assert result.standard_errors is not None
    for name, true in (("mass", TRUE_MASS), ("friction", TRUE_FRICTION)):
        error = float(result.standard_errors[name])
        assert 0 < error < 0.01 * true
        assert abs(float(result.parameters[name]) - true) < 4 * error
    assert result.outcome == "converged"
    for state, start in zip(result.states, STARTS, strict=True):
        assert abs(float(state["bar.theta"]) - start) < 4 * NOISE


def test_residuals_are_the_noise() -> None:
    result = fitted()
    for one, residuals in zip(result.rms(), result.residuals, strict=True):
        assert np.isnan(residuals["O.angle"][5])
        assert np.isnan(residuals["O.angle"]).sum() == 1
        assert abs(one["O.angle"] / NOISE - 1) < 0.25
        assert abs(one["tip"] / NOISE - 1) < 0.25


def test_standard_errors_are_those_of_the_linearised_problem() -> None:
    """Against a Jacobian by central differences through a separate simulation."""
    result = fitted()

    @jax.jit
    def channels(z: Array) -> Array:
        mechanism = eqx.tree_at(lambda m: (where_mass(m), where_friction(m)), pendulum(), (z[0], z[1]))
        rows = []
        for k in range(3):
            state = mbd.assemble(mechanism, {"O.angle": z[2 + k]}, check=False)
            solution = mbd.simulate(mechanism, state, TS, throw=False, rtol=1e-11, atol=1e-12)
            rows += [jnp.delete(solution["O.angle"], 5), solution["tip"].reshape(-1)]
        return jnp.concatenate(rows)

    angles = [float(s["bar.theta"]) for s in result.states]
    z = np.array([result.parameters["mass"], result.parameters["friction"], *angles], dtype=float)
    step = 1e-5
    J = np.stack([(channels(z + step * e) - channels(z - step * e)) / (2 * step) for e in np.eye(5)], axis=1)
    variance = np.nansum([np.nansum(r[n] ** 2) for r in result.residuals for n in r]) / (J.shape[0] - 5)
    expected = np.sqrt(np.diag(np.linalg.inv(J.T @ J)) * variance)
    assert result.standard_errors is not None
    assert result.correlation is not None
    found = [float(result.standard_errors[name]) for name in ("mass", "friction")]
    np.testing.assert_allclose(found, expected[:2], rtol=1e-4)
    covariance = np.linalg.inv(J.T @ J)
    correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    k, j = result.labels.index("mass"), result.labels.index("friction")
    assert abs(result.correlation[k, j] - correlation) < 1e-4


def test_fitted_mechanism_can_be_simulated_on() -> None:
    result = fitted()
    assert float(result.mechanism["bar"].mass) == pytest.approx(float(result.parameters["mass"]))
    solution = mbd.simulate(result.mechanism, result.states[0], TS)
    np.testing.assert_allclose(solution["O.angle"], result.predicted[0]["O.angle"], atol=1e-6)


def test_table_names_parameters_units_and_errors() -> None:
    result = fitted()
    text = str(result)
    for word in ("mass", "friction", "kg", "N m s", "converged"):
        assert word in text
    assert [str(c.header) for c in result.table().columns][:3] == ["parameter", "estimate", "standard error"]


def test_names_that_look_like_components_or_markup_are_printed() -> None:
    free = {"c[xx]": mbd.identification.Parameter(where_friction, within=mbd.identification.Positive(), unit="N m s")}
    known = mbd.Experiment(TS, {"O.angle": measured()[1].data["O.angle"]}, start={"O.angle": STARTS[1]}, missing=True)
    result = mbd.fit(pendulum(TRUE_MASS), known, free, progress=False)
    console = rich.console.Console(width=200, record=True, file=io.StringIO())
    console.print(result.table())
    for text in (str(result), console.export_text()):
        assert "c[xx]" in text
    assert result.rows()[0].label == "c[xx]"


def test_predictions_list_the_channels_of_all_experiments() -> None:
    angles, tips = (
        mbd.Experiment(TS, {name: measured()[0].data[name]}, start={"O.angle": STARTS[0]}, missing=True)
        for name in ("O.angle", "tip")
    )
    prediction = mbd.identification.predict(fitted(), [angles, tips], progress=False)
    assert [error.name for error in prediction.channel_errors()] == ["O.angle", "tip"]
    assert "O.angle: RMS error" in str(prediction)
    assert "tip: RMS error" in str(prediction)


@pytest.mark.slow
def test_a_neural_network_learns_a_friction_law() -> None:
    """A small network as a joint's torque, trained by optax in reverse mode, on swings with viscous friction."""
    network = eqx.nn.MLP("scalar", "scalar", 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    bar = pl.Body("bar", TRUE_MASS, 0.1, pose=(0.0, -0.5, 0.0))

    def torque(t: Array, angle: Array, rate: Array, net: eqx.nn.MLP) -> Array:
        return net(rate) - net(jnp.zeros_like(rate))

    mechanism = pl.Mechanism(
        [bar],
        [pl.Revolute("O", pl.ground.at(), bar.at(0.0, 0.5))],
        [pl.Gravity(9.81), pl.JointForce("network", "O.angle", torque, network)],
        sensors=[pl.Point("tip", bar.at(0.0, -0.5))],
    )
    experiments = [
        mbd.Experiment(e.ts, {"tip": e.data["tip"]}, start={"O.angle": s}, sigma=0.1)
        for e, s in zip(measured(), STARTS, strict=True)
    ]
    result = mbd.fit(
        mechanism, experiments, {"network": lambda m: m["network"].parameters},
        optimiser=optax.adam(0.03), steps=150, rtol=1e-6, progress=False,
    )  # fmt: skip
    assert min(result.history) < 0.02 * result.history[0]
    learned = result.mechanism["network"].parameters
    torques = [float(learned(jnp.asarray(w)) - learned(jnp.asarray(0.0))) for w in (-2.0, 2.0)]
    np.testing.assert_allclose(torques, [2 * TRUE_FRICTION, -2 * TRUE_FRICTION], rtol=0.25)


def test_nan_in_data_is_an_error_unless_samples_are_missing() -> None:
    values = np.zeros(len(TS))
    values[7] = np.nan
    with pytest.raises(mbd.MechanismError, match=r"'O.angle'.*not finite.*index 7.*missing=True"):
        mbd.Experiment(TS, {"O.angle": values})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ts": TS[::-1]}, "increasing"),
        ({"data": {"O.angle": np.zeros(3)}}, "one row for each of the 81 times"),
        ({"data": {}}, "at least one measured channel"),
        ({"estimate": ("elbow.angle",)}, "'elbow.angle'.*neither in start nor in speeds"),
        (
            {"speeds": {"O.angle": 0.0}, "estimate": ("O.angle",)},
            "'O.angle', which is 'start:O.angle' and 'speed:O.angle': name one",
        ),
        ({"own": {"payload": np.nan}}, "own 'payload'.*finite"),
        ({"own": {"torque": lambda t: t}}, "own 'torque' must be a number, or a function that consists of numbers"),
    ],
)
def test_bad_experiments_are_named(arguments: dict, words: str) -> None:
    good = {"ts": TS, "data": {"O.angle": np.zeros(len(TS))}, "start": {"O.angle": 0.1}}
    with pytest.raises(mbd.MechanismError, match=words):
        mbd.Experiment(**(good | arguments))


def test_bad_fits_are_named() -> None:
    experiment = mbd.Experiment(TS, {"O.angel": np.zeros(len(TS))}, start={"O.angle": 0.1}, estimate=True)
    with pytest.raises(mbd.MechanismError, match=r"'O.angel'.*Did you mean 'O.angle'"):
        mbd.fit(pendulum(), experiment, progress=False)
    good = measured()[0]
    with pytest.raises(mbd.MechanismError, match=r"'mass' starts at .* outside its range"):
        mbd.fit(
            pendulum(),
            good,
            {"mass": mbd.identification.Parameter(where_mass, within=mbd.identification.Bounded(2.0, 3.0))},
        )
    with pytest.raises(mbd.MechanismError, match="Nothing is free"):
        mbd.fit(pendulum(), mbd.Experiment(TS, {"O.angle": np.zeros(len(TS))}))
    with pytest.raises(mbd.MechanismError, match="'mass' needs a start value"):
        mbd.fit(
            lambda p: pendulum(p["mass"]),
            good,
            {"mass": mbd.identification.Parameter(within=mbd.identification.Positive())},
        )


def test_one_of_many_fits_that_cannot_begin_does_not_stop_the_others() -> None:
    """A start whose speed is infinite to the simulation: that fit says so, the other one is as it would be alone."""
    good = mbd.Experiment(
        TS, {"O.angle": np.asarray(measured()[0].data["O.angle"])}, start={"O.angle": 0.5}, missing=True
    )
    bad = mbd.Experiment(TS, good.data, start={"O.angle": 0.5}, speeds={"O.angle": 1e300}, missing=True)
    fine = mbd.Experiment(TS, good.data, start={"O.angle": 0.5}, speeds={"O.angle": 0.0}, missing=True)
    free = {"mass": where_mass, "friction": where_friction}
    problems = [mbd.identification.Problem(pendulum(), one, free) for one in (fine, bad)]
    with pytest.warns(mbd.FitWarning, match=r"1 of 2 searches have not .*: number 1 \(the start cannot be simulated\)"):
        found, failed = mbd.identification.fit_many(problems, progress=False)
    assert found.outcome == "converged"
    assert failed.outcome == "the start cannot be simulated"
    assert failed.standard_errors is None
    assert np.isnan(failed.predicted[0]["O.angle"]).all()
    estimated = mbd.Experiment(TS, good.data, start=bad.start, speeds=bad.speeds, estimate=True, missing=True)
    with pytest.raises(mbd.SolveError, match=r"predict: an experiment cannot be assembled or simulated.*better start"):
        mbd.identification.predict(found, estimated, progress=False)
