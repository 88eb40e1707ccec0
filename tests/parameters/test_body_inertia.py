"""Mass, centre of mass and inertia of a body as free parameters: possible values only, and the right ones."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
from jax.flatten_util import ravel_pytree

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.identification import Parameter, Problem, body_inertia
from jaxmbd.identification._posterior import _log_slopes
from jaxmbd.parameters.body_inertia import CentreOfMass, ConsistentInertia, NearInertia

TS = np.linspace(0.0, 0.6, 61)  # short enough for a search that begins with wrong values
NOISE = 1e-3
INERTIA = np.array([0.03, 0.05, 0.06, 0.004, -0.003, 0.002])  # xx, yy, zz, xy, xz, yz


def matrix(numbers: Any) -> np.ndarray:
    """The symmetric matrix of six numbers."""
    xx, yy, zz, xy, xz, yz = np.asarray(numbers)
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def top(mass: float = 2.0, inertia: Any = INERTIA, centre: Any = (0.0, 0.0, 0.0)) -> sp.Mechanism:
    """A body in a gimbal of two rings, pulled by a spring, with a gyroscope and a point that are measured; `centre`: of
    the mass, in the frame in which all points of the body are given."""
    c = np.asarray(centre)
    outer, inner = (sp.Body(name, 0.2, (2e-3, 2e-3, 2e-3)) for name in ("outer", "inner"))
    body = sp.Body("top", mass, matrix(inertia), pose=c)
    return sp.Mechanism(
        [outer, inner, body],
        [
            sp.Revolute("X", sp.ground.at(axis="x"), outer.at(axis="x")),
            sp.Revolute("Y", outer.at(axis="y"), inner.at(axis="y")),
            sp.Revolute("Z", inner.at(axis="z"), body.at(*-c, axis="z")),
        ],
        [
            sp.Gravity(9.81),
            sp.SpringDamper(
                "spring", sp.ground.at(0.5, 0.2, -0.6), body.at(*np.array([0.1, 0.05, -0.1]) - c), 60.0, 0.5
            ),
        ],
        sensors=[sp.Point("tip", body.at(*np.array([0.1, 0.2, -0.1]) - c)), sp.Gyroscope("gyro", body.at(*-c))],
        coordinates="joint",
    )


def swing(mechanism: sp.Mechanism, angles: tuple[float, float, float], rng: np.random.Generator | None = None) -> Any:
    """A motion from three angles; with `rng` the measurements of it."""
    start = {f"{axis}.angle": angle for axis, angle in zip("XYZ", angles, strict=True)}
    speeds = {"X.angle": 2.0, "Y.angle": -1.0, "Z.angle": 3.0}
    solution = mbd.simulate(mechanism, mbd.assemble(mechanism, start, speeds=speeds), TS, rtol=1e-9, atol=1e-10)
    if rng is None:
        return solution
    data = {n: np.asarray(solution[n]) + NOISE * rng.normal(size=(len(TS), 3)) for n in ("tip", "gyro")}
    return mbd.Experiment(TS, data, start=start, speeds=speeds, sigma=NOISE)


STARTS = ((0.4, 0.2, 0.1), (-0.5, 0.7, 0.3), (0.9, -0.6, -0.8))


@pytest.mark.parametrize("seed", range(4))
def test_every_number_of_the_search_is_a_possible_inertia(seed: int) -> None:
    """And every possible inertia has its numbers; derivatives are those of differences."""
    rng = np.random.default_rng(seed)
    within, u, start = ConsistentInertia(), 2 * rng.normal(size=6), jnp.asarray(INERTIA)
    value = np.asarray(within.physical(jnp.asarray(u), start))
    assert within.contains(value)
    sp.Body("any", 1.0, matrix(value))  # which checks the triangle inequalities
    np.testing.assert_allclose(within.unconstrained(jnp.asarray(value), start), u, rtol=1e-8, atol=1e-8)
    points = rng.normal(size=(5, 3)) * [1.0, 0.1, 0.3]
    J = np.sum([np.dot(x, x) * np.eye(3) - np.outer(x, x) for x in points - points.mean(axis=0)], axis=0)
    numbers = J[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    assert within.contains(numbers)
    again = within.physical(within.unconstrained(jnp.asarray(numbers), start), start)
    np.testing.assert_allclose(again, numbers, rtol=1e-10, atol=1e-14)
    step = 1e-6 * rng.normal(size=6)
    ends = [np.asarray(within.physical(jnp.asarray(u + side * step), start)) for side in (1, -1)]
    slopes = np.asarray(within.slopes(jnp.asarray(u), start))
    np.testing.assert_allclose(slopes @ step, (ends[0] - ends[1]) / 2, rtol=1e-6, atol=1e-12 * np.abs(value).max())


def test_a_displaced_centre_is_another_body() -> None:
    """In space and in the plane, with a marker that moves on the body."""
    c = np.array([0.02, -0.03, -0.1])
    mechanism = top()
    moved = CentreOfMass("top").replaced(mechanism, jnp.asarray(c))
    found, wanted = swing(moved, STARTS[0]), swing(top(centre=c), STARTS[0])
    plain = swing(mechanism, STARTS[0])
    for name in ("tip", "gyro", "X.angle"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-7, atol=1e-8)
        assert not np.allclose(found[name], plain[name], atol=1e-2)

    def bar(x: float) -> pl.Mechanism:
        body = pl.Body("bar", 1.0, 0.1)
        slide = body.moving(lambda t: jnp.stack([0.3 + 0.1 * jnp.sin(t) - x, jnp.zeros_like(t)]))
        return pl.Mechanism(
            [body],
            [pl.Revolute("O", pl.ground.at(), body.at(-0.4 - x))],
            [pl.Gravity(9.81), pl.SpringDamper("spring", pl.ground.at(0.0, 1.0), slide, 30.0)],
            coordinates="joint",
        )

    place = CentreOfMass("bar")
    motions = [
        mbd.simulate(m, mbd.assemble(m, {"O.angle": 0.3}), TS)["O.angle"]
        for m in (place.replaced(bar(0.0), jnp.array([0.2, 0.0])), bar(0.2), bar(0.0))
    ]
    np.testing.assert_allclose(motions[0], motions[1], rtol=1e-7, atol=1e-8)
    assert not np.allclose(motions[0], motions[2], atol=1e-2)


def test_free_markers_keep_their_place_in_the_modelled_frame() -> None:
    """Whatever the order of the names."""
    bar = pl.Body("bar", 1.0, 0.1)
    mechanism = pl.Mechanism([bar], [pl.Revolute("O", pl.ground.at(), bar.at(-0.4))], coordinates="joint")
    data = mbd.Experiment(TS[:3], {"O.angle": np.zeros(3)}, start={"O.angle": 0.0})
    for name in ("a", "z"):
        free = {**body_inertia(mechanism["bar"]), name: lambda m: m["O"].b.position}
        problem = Problem(mechanism, data, free)
        theta = problem.start()
        theta.parameters[name], theta.parameters["bar.centre"] = jnp.array([-0.5, 0.1]), jnp.array([0.2, 0.05])
        np.testing.assert_allclose(problem.mechanism(theta)["O"].b.position, [-0.7, 0.05])


def test_a_body_is_identified_with_honest_errors() -> None:
    """From a model that is off by 10 to 20 %. A body about a fixed point shows its mass by a prior alone, in a narrow
    valley, in which mass times centre and the inertia about the point are known."""
    rng = np.random.default_rng(3)
    truth = np.array([0.035, 0.045, 0.055, 0.003, -0.004, 0.004])
    c = np.array([0.01, -0.02, -0.06])
    data = [swing(top(2.3, truth, c), angles, rng) for angles in STARTS]
    free = body_inertia(top()["top"], deviation=0.3)
    result = mbd.fit(top(centre=(0.0, 0.0, 0.0)), data, free, progress=False)
    assert result.outcome == "converged"
    assert result.labels == (
        *(f"top.centre[{k}]" for k in "xyz"),
        *(f"top.inertia[{k}]" for k in ("xx", "yy", "zz", "xy", "xz", "yz")),
        "top.mass",
    )
    assert "top.inertia[xy]" in str(result)
    assert not result.warnings
    found, errors = result.parameters, result.standard_errors
    assert errors is not None
    for name, true, close in (("mass", 2.3, 0.6), ("centre", c, 0.02), ("inertia", truth, 0.003)):
        error = np.asarray(errors[f"top.{name}"])
        assert (np.abs(np.asarray(found[f"top.{name}"]) - true) < 4 * error).all(), name
        assert (error < close).all(), (name, error)
    # The errors are those of the physical values: from the derivatives of residuals and priors by them.
    problem, own = result.problem, result.theta.experiments

    def rows(parameters: Any) -> Any:
        theta = mbd.identification.Unknowns(parameters, own)
        r = jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(problem.residuals(theta))])
        return r, problem.prior_residuals(theta)

    r = np.asarray(rows(found)[0])
    slopes = jax.jacfwd(rows)(found)
    J, prior = (
        np.concatenate([np.asarray(x[n]).reshape(k, -1) for n in sorted(x)], axis=1)
        for x, k in zip(slopes, (len(r), 10), strict=True)
    )
    level = r @ r / len(r)
    wanted = np.sqrt(np.diag(np.linalg.inv(J.T @ J / level + prior.T @ prior)))
    np.testing.assert_allclose(np.concatenate([np.ravel(errors[name]) for name in sorted(errors)]), wanted, rtol=0.02)


def test_a_prior_of_the_inertia_is_a_normal_density(rng: np.random.Generator) -> None:
    prior = NearInertia(INERTIA, 0.1)
    A = np.asarray(jax.jacfwd(prior.residual)(jnp.asarray(INERTIA)))
    normal = scipy.stats.multivariate_normal(INERTIA, np.linalg.inv(A.T @ A))
    draws = np.stack([prior.drawn(INERTIA, rng) for _ in range(400)])
    residuals = np.asarray(jax.vmap(prior.residual)(jnp.asarray(draws)))
    np.testing.assert_allclose(residuals.mean(axis=0), 0.0, atol=0.2)
    np.testing.assert_allclose(residuals.std(axis=0), 1.0, atol=0.15)
    density = np.asarray(jax.vmap(prior.log_density)(jnp.asarray(draws[:3]))).sum(axis=1)
    np.testing.assert_allclose(density, normal.logpdf(draws[:3]), rtol=1e-9)
    R = scipy.spatial.transform.Rotation.random(random_state=0).as_matrix()
    turned = [(R @ matrix(x) @ R.T)[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]] for x in (INERTIA, draws[0])]
    distance = np.linalg.norm(prior.residual(jnp.asarray(draws[0])))
    for known, value in (turned, (1e-3 * INERTIA, 1e-3 * draws[0])):  # in other axes, and of a smaller body
        assert np.linalg.norm(NearInertia(known, 0.1).residual(jnp.asarray(value))) == pytest.approx(distance)


def test_densities_of_the_search_include_the_volume_of_the_map() -> None:
    data = mbd.Experiment(TS[:3], {"gyro": np.zeros((3, 3))}, start={"X.angle": 0.0, "Y.angle": 0.0, "Z.angle": 0.0})
    problem = Problem(top(), data, body_inertia(top()["top"]))
    flat, unravel = ravel_pytree(problem.unconstrained(problem.start()))
    u = flat + 0.3 * np.random.default_rng(0).normal(size=flat.size)
    J = jax.jacfwd(lambda u: ravel_pytree(problem.physical(unravel(u)))[0])(u)
    assert float(_log_slopes(problem, unravel(u))) == pytest.approx(np.linalg.slogdet(np.asarray(J))[1], rel=1e-9)


def test_bodies_without_extension_are_named() -> None:
    with pytest.raises(mbd.MechanismError, match=r"'plate' has no extension in some direction.*thickness"):
        body_inertia(sp.Body("plate", 1.0, (0.1, 0.2, 0.3)))
    with pytest.raises(mbd.MechanismError, match="'ball' has no extension"):
        body_inertia(pl.Body("ball", 1.0, 0.0))
    with pytest.raises(mbd.MechanismError, match="body must be a body"):
        body_inertia("rod")  # pyright: ignore[reportArgumentType]
    with pytest.raises(mbd.MechanismError, match="deviation"):
        body_inertia(pl.Body("ball", 1.0, 0.1), deviation=-1.0)
    free = body_inertia(sp.Body("box", 1.0, (0.2, 0.2, 0.3)))
    assert isinstance(free["box.inertia"], Parameter)
    data = mbd.Experiment(TS[:3], {"gyro": np.zeros((3, 3))})
    with pytest.raises(mbd.MechanismError, match="box"):
        Problem(top(), data, free)


def test_an_estimate_that_runs_to_a_flat_body_says_so() -> None:
    within = ConsistentInertia()
    flat = np.array([0.1, 0.2, 0.3 - 1e-9, 0.0, 0.0, 0.0])
    labels = [f"top.inertia[{k}]" for k in range(6)]
    assert within.remarks("top.inertia", labels, flat, INERTIA, np.zeros(6)) == [
        "top.inertia runs to that of a flat body, the edge of what is possible"
    ]
    assert within.remarks("top.inertia", labels, INERTIA, INERTIA, np.zeros(6)) == []
