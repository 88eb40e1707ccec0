"""Networks among the parameters: derivatives, names, tables.

That a hidden force is found is checked by `test_hidden_force.py`.
"""

from functools import cache
from pathlib import Path
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd
from jaxmbd import identification as ident
from jaxmbd import planar as pl
from jaxmbd import plot
from jaxmbd.identification import Normal, Parameter, Positive
from jaxmbd.identification._identifiability import Estimates, identifiability
from jaxmbd.parameters.labels import summed_up
from tests.identification import hybrids
from tests.marks import slow_but

TS = np.linspace(0.0, 0.2, 6)


# --- derivatives in a closed loop -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", slow_but(["reverse"], ["forward", "reverse"]))
def test_derivatives_by_the_weights_of_a_law_in_a_closed_loop(mode: Any) -> None:
    """Of the loss of an angle and a reaction, along a random direction of weights, payload and friction."""
    experiment = hybrids.record(0.6, 3.0, TS, 0, reaction=True, estimate=False)
    options: dict[str, Any] = {"stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.01}
    problem = ident.Problem(hybrids.slider_crank, experiment, hybrids.free(hybrids.untrained(4)), **options)
    flat, unravel = ravel_pytree(problem.start())
    direction = jax.random.normal(jax.random.key(3), flat.shape)
    loss = lambda x: problem.objective(unravel(x), mode)  # noqa: E731
    if mode == "forward":
        both = jax.jit(lambda x: jax.jvp(loss, (x,), (direction,)))
    else:
        both = jax.jit(lambda x: (lambda value, slope: (value, slope @ direction))(*jax.value_and_grad(loss)(x)))
    h = 1e-5
    values = [float(both(flat + s * direction)[0]) for s in (h, -h)]
    expected = (values[0] - values[1]) / (2 * h)
    assert abs(expected) > 100.0
    assert float(both(flat)[1]) == pytest.approx(expected, rel=1e-6)


# --- a pendulum with a small network ----------------------------------------------------------------------------------


def torque(t: Any, angle: Any, rate: Any, network: Any) -> Any:
    return network(rate)


def network(seed: int = 0) -> eqx.nn.MLP:
    return eqx.nn.MLP("scalar", "scalar", 4, 1, jnp.tanh, key=jax.random.key(seed))


def pendulum(p: dict[str, Any]) -> pl.Mechanism:
    bar = pl.Body("bar", p["mass"], 0.1, pose=(0.0, -0.5, 0.0))
    return pl.Mechanism(
        [bar],
        [pl.Revolute("O", pl.ground.at(), bar.at(0.0, 0.5))],
        [pl.Gravity(9.81), pl.JointForce("brake", "O.angle", torque, p["brake.law"])],
        coordinates="joint",
    )


def viscous(rate: Any) -> Any:
    return -0.4 * rate


@cache
def swings(count: int = 2) -> tuple[mbd.Experiment, ...]:
    mechanism, ts = pendulum({"mass": 1.3, "brake.law": viscous}), np.linspace(0.0, 1.0, 31)
    found = []
    for k in range(count):
        angle = 0.8 + 0.2 * k
        motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": angle}), ts)
        measured = np.asarray(motion["O.angle"]) + 1e-3 * np.random.default_rng(k).normal(size=len(ts))
        found.append(mbd.Experiment(ts, {"O.angle": measured}, start={"O.angle": angle}, sigma=1e-3))
    return tuple(found)


def free(prior: Any = Normal(0.0, 1.0)) -> dict[str, Parameter]:  # noqa: B008
    return {
        "mass": Parameter(start=1.2, within=Positive(), unit="kg"),
        "brake.law": Parameter(start=network(), prior=prior),
    }


@cache
def fitted() -> mbd.Fit:
    return mbd.fit(pendulum, swings(), free(), steps=60, tolerance=3e-2, progress=False)


def test_a_module_as_a_start_is_the_module_in_its_place() -> None:
    built = ident.Problem(pendulum, swings(), free())
    where = {
        "mass": Parameter(lambda m: m["bar"].mass, 1.2, Positive()),
        "brake.law": Parameter(lambda m: m["brake"].parameters, prior=Normal(0.0, 1.0)),
    }
    placed = ident.Problem(pendulum({"mass": 1.0, "brake.law": network()}), swings(), where)
    assert built.names() == placed.names()
    assert len(built.names()) == 1 + 13
    np.testing.assert_allclose(built.residuals(built.start()), placed.residuals(placed.start()), atol=1e-8)
    other = {"brake.law": network(5)}
    for problem in (built, placed):
        moved = problem.starting_at(other)
        expected = ident.Problem(pendulum, swings(), free() | {"brake.law": Parameter(start=network(5))})
        np.testing.assert_allclose(moved.residuals(moved.start()), expected.residuals(expected.start()), atol=1e-8)
        assert float(moved.start().parameters["mass"]) == 1.2


def test_a_search_goes_on_from_all_unknowns_of_another() -> None:
    """Also from the initial values of experiments."""
    experiments = [mbd.Experiment(e.ts, e.data, start=e.start, estimate=True) for e in swings()]
    problem = ident.Problem(pendulum, experiments, free())
    theta = jax.tree.map(lambda x: x + 0.01, problem.start())
    moved = problem.starting_at(theta).start()
    for found, expected in zip(jax.tree.leaves(moved), jax.tree.leaves(theta), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_wrong_starts_are_named() -> None:
    problem = ident.Problem(pendulum, swings(), free())
    with pytest.raises(mbd.MechanismError, match=r"(?s)'brake.law': the start is .*must be like"):
        problem.starting_at({"brake.law": eqx.nn.MLP("scalar", "scalar", 3, 1, key=jax.random.key(0))})
    with pytest.raises(mbd.MechanismError, match=r"'break.law'.*Did you mean 'brake.law'"):
        problem.starting_at({"break.law": network()})
    with pytest.raises(mbd.MechanismError, match=r"'brake.law': start holds no numbers"):
        ident.Problem(pendulum, swings(), free() | {"brake.law": Parameter(start=eqx.nn.Lambda(jnp.tanh))})
    with pytest.raises(mbd.MechanismError, match=r"Parameter: start must be a number, got a PjitFunction"):
        Parameter(start=jnp.tanh)
    bad = eqx.tree_at(lambda n: n.layers[0].bias, network(), jnp.full(4, jnp.nan))
    with pytest.raises(mbd.MechanismError, match="start"):
        Parameter(start=bad)


# --- what is said of a network ----------------------------------------------------------------------------------------


def test_a_network_is_one_row(tmp_path: Path) -> None:
    result = fitted()
    assert [row.label for row in result.rows()] == ["mass", "brake.law"]
    mass, law = result.rows()
    assert law.estimate.startswith("13 numbers, ")
    assert mass.correlation.endswith("brake.law")
    page = plot.fit_report(result, tmp_path / "fit.html").read_text(encoding="utf-8")
    for text in (str(result), page, *result.warnings):
        assert "brake.law[" not in text
    assert law.estimate in str(result)
    assert law.estimate in page


def test_correlation_with_a_network_is_the_multiple_one() -> None:
    """`R² = cᵀ C⁻¹ c`: of the mass with the best linear combination of all weights."""
    result = fitted()
    covariance = result.uncertainty.covariance  # pyright: ignore[reportOptionalMemberAccess]
    place = result.labels.index("mass")
    others = [k for k in range(len(result.labels)) if k != place]
    c, C = covariance[others, place], covariance[np.ix_(others, others)]
    expected = np.sqrt(c @ np.linalg.solve(C, c) / covariance[place, place])
    names, found = result.correlation_of_rows()
    k, j = names.index("mass"), names.index("brake.law")
    assert found is not None
    assert found[k, j] == pytest.approx(expected, abs=1e-5)
    assert found[j, k] == pytest.approx(found[k, j], abs=1e-9)


def test_numbers_that_the_data_determine() -> None:
    """The trace of `J_mᵀ J_m (JᵀJ)⁻¹` over the weights, from the problem's own residuals."""
    result = fitted()
    problem, start = result.problem, result.theta
    flat, unravel = ravel_pytree(start)
    J = np.asarray(jax.jacfwd(lambda x: problem.residuals(unravel(x), "forward"))(flat))
    P = np.asarray(jax.jacfwd(lambda x: problem.prior_residuals(unravel(x)))(flat))
    r = np.asarray(problem.residuals(start, "forward"))
    level = r @ r / result.uncertainty.freedom  # pyright: ignore[reportOptionalMemberAccess]
    measured = J.T @ J / level
    share = np.diag(measured @ np.linalg.inv(measured + P.T @ P))
    weights = [k for k, name in enumerate(problem.names()) if name != "mass"]
    expected = share[weights].sum()
    assert 1.0 < expected < 10.0
    assert result.rows()[1].estimate == f"13 numbers, {expected:.1f} determined"


def test_warnings_sum_up_what_is_undetermined() -> None:
    result = mbd.fit(pendulum, swings(), free(prior=None), steps=3, progress=False, tolerance=1.0)
    texts = [text for text in result.warnings if "determine" in text]
    assert len(texts) == len(result.undetermined) + len(result.ill_conditioned) == 2
    for text, kind in zip(texts, ("the data determine", "the data hardly determine"), strict=True):
        assert text.startswith(kind)
        assert "numbers of brake.law" in text
        assert "brake.law[" not in text
    owned = {"m": ["m"], "law": [f"law[{k}]" for k in range(9)], "a": ["a[0]"]}
    assert list(summed_up(owned)) == ["m", "9 numbers of law", "a[0]"]


def test_a_prior_determines_what_it_is_a_prior_of() -> None:
    """However little beside the data: of `c + 2 d` in large numbers, and `d` known to 2, `c` is known to 4."""
    J = 1e8 * np.random.default_rng(0).normal(size=(30, 4))
    J[:, 3] = 2 * J[:, 2]
    priors = np.array([[0.0, 0.0, 0.0, 0.5]])
    errors = np.diag(1e-9 * np.linalg.norm(J, axis=0))
    unknowns = Estimates(tuple("abcd"), tuple("abcd"), np.ones(4), np.ones(4), np.zeros(4, bool))
    found = identifiability(np.concatenate([J, priors]), errors, unknowns, 1e9, 0.05, priors)
    assert found.rank == 4
    assert not found.open.any()
    np.testing.assert_allclose(np.sqrt(np.diag(found.inverse))[2:], [4.0, 2.0], rtol=1e-6)
    without = identifiability(np.concatenate([J, priors]), errors, unknowns, 1e9, 0.05)
    np.testing.assert_array_equal(without.open, [False, False, True, True])


def test_few_experiments_do_not_tell_the_scatter_of_many_numbers() -> None:
    """Five experiments, and more numbers than those: the errors are not those of how the experiments scatter."""
    problem = ident.Problem(pendulum, swings(5), free(Normal(0.0, 10.0)))
    result = mbd.fit(problem, steps=3, tolerance=1.0, progress=False)
    assert result.uncertainty is not None
    assert result.uncertainty.share.sum() > 5
    assert not result.uncertainty.is_from_scatter


# --- how far a law may be trusted -------------------------------------------------------------------------------------


def test_values_visited_are_those_of_the_motions() -> None:
    result, (first, second) = fitted(), swings()
    values = ident.visited(result, "O.angle_rate", "O.angle")
    assert values["O.angle_rate"].shape == (62,)
    for k, (experiment, state) in enumerate(zip((first, second), result.states, strict=True)):
        motion = mbd.simulate(result.mechanism, state, experiment.ts)
        np.testing.assert_allclose(values["O.angle_rate"][31 * k : 31 * (k + 1)], motion["O.angle_rate"], atol=1e-6)
    short = np.where(np.arange(31) <= 10, first.data["O.angle"], np.nan)
    cut = mbd.Experiment(first.ts, {"O.angle": short}, start=first.start, missing=True)
    unseen = ident.predict(result, cut, progress=False)
    np.testing.assert_allclose(ident.visited(unseen, "O.angle")["O.angle"], values["O.angle"][:11], atol=1e-9)
    with pytest.raises(mbd.MechanismError, match=r"'O.rate'"):
        ident.visited(result, "O.rate")


def test_errors_of_what_is_computed_from_the_mechanism() -> None:
    result, rates = fitted(), jnp.linspace(-1.0, 1.0, 5)

    def of(m: pl.Mechanism) -> Any:
        return jnp.append(jax.vmap(lambda w: m["brake"].parameters(w))(rates), m["bar"].mass)

    found = ident.standard_errors_of(result, of)
    flat, unravel = ravel_pytree(result.theta.parameters)
    G = jax.jacfwd(lambda x: of(result.problem.mechanism(ident.Unknowns(unravel(x), ({},)))))(flat)
    covariance = result.uncertainty.covariance  # pyright: ignore[reportOptionalMemberAccess]
    np.testing.assert_allclose(found, np.sqrt(np.diag(G @ covariance @ G.T)), rtol=1e-6)
    assert result.standard_errors is not None
    assert found[-1] == pytest.approx(float(result.standard_errors["mass"]), rel=1e-9)


# --- optimisers -------------------------------------------------------------------------------------------------------


def test_an_optimiser_that_leaves_all_bounds_says_so() -> None:
    problem = ident.Problem(pendulum, swings(), free())
    result = mbd.fit(problem, optimiser=optax.sgd(1e6), steps=20, progress=False)
    assert "not finite at step" in result.outcome
    assert any("not finite" in text for text in result.warnings)
    assert np.isfinite(result.predicted[0]["O.angle"]).all()
    with pytest.raises(mbd.MechanismError, match=r"standard_errors_of needs a Fit with standard errors"):
        ident.standard_errors_of(result, lambda m: m["bar"].mass)


def test_an_optimiser_takes_neither_segments_nor_unknown_noise() -> None:
    experiments = [
        mbd.Experiment(e.ts, e.data, start=e.start, speeds={"O.angle": 0.0}, estimate=True) for e in swings()
    ]
    problem = ident.Problem(pendulum, experiments, free(), segments=3, continuity=0.01)
    with pytest.raises(mbd.MechanismError, match="segments belong to Levenberg-Marquardt"):
        mbd.fit(problem, optimiser=optax.adam(1e-2), progress=False)
    unknown = ident.Problem(pendulum, experiments, free(), noise="white")
    with pytest.raises(mbd.MechanismError, match="does not estimate the noise, which is to be 'white'"):
        mbd.fit(unknown, optimiser=optax.adam(1e-2), progress=False)


def test_batches_then_levenberg_marquardt_for_the_errors() -> None:
    """Adam on one experiment at a time, then a step from its end that gives standard errors."""
    problem = ident.Problem(pendulum, swings(), free())
    begun = mbd.fit(problem, optimiser=optax.adam(0.03), batch=1, steps=40, progress=False)
    assert problem.objective(begun.theta) < 0.1 * problem.objective(problem.start())
    assert begun.standard_errors is None
    assert [row.error for row in begun.rows()] == ["", ""]
    ended = mbd.fit(problem.starting_at(begun.theta), steps=60, tolerance=3e-2, progress=False)
    assert ended.history[0] <= problem.objective(begun.theta) * (1 + 1e-8)  # it begins there, by another program
    assert ended.history[-1] < 0.2 * ended.history[0]
    lower, upper = ended.interval()["mass"]
    assert lower < 1.3 < upper
