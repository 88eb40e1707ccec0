"""What a fit cannot know it does not claim: ranks, combinations that are determined, edges of ranges, steps used up."""

from functools import cache
from typing import Any

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import _forward_model as simulations
from jaxmbd.identification._identifiability import Estimates, Identifiability, identifiability
from jaxmbd.parameters.ranges import Bounded, Positive, Unbounded

NOISE = 1e-3
TS = np.linspace(0.0, 2.0, 31)


def pendulum(mass: float = 1.0, inertia: float = 0.1, arm: float = 0.5) -> pl.Mechanism:
    """A bar on a pin; a point of it is seen, so that the arm is determined, mass and inertia by their ratio alone."""
    bar = pl.Body("bar", mass, inertia, pose=(0.0, -0.5, 0.0))
    return pl.Mechanism(
        [bar],
        [pl.Revolute("O", pl.ground.at(), bar.at(0.0, arm))],
        [pl.Gravity(9.81)],
        sensors=[pl.Point("tip", bar.at(0.0, -0.5))],
        coordinates="joint",
    )


@cache
def swing() -> mbd.Experiment:
    mechanism = pendulum()
    solution = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 1.0}), TS)
    rng = np.random.default_rng(1)
    data = {"O.angle": np.asarray(solution["O.angle"]), "tip": np.asarray(solution["tip"])}
    noisy = {name: values + NOISE * rng.normal(size=values.shape) for name, values in data.items()}
    return mbd.Experiment(TS, noisy, start={"O.angle": 1.0}, sigma=NOISE)


MASS = mbd.identification.Parameter(lambda m: m["bar"].mass, within=Positive(), unit="kg")
INERTIA = mbd.identification.Parameter(lambda m: m["bar"].inertia, within=Positive())
ARM = mbd.identification.Parameter(lambda m: m["O"].b.position)


def errors_of(result: mbd.Fit) -> dict[str, np.ndarray]:
    assert result.standard_errors is not None
    return {name: np.asarray(value) for name, value in result.standard_errors.items()}


def test_mass_and_inertia_only_through_their_ratio() -> None:
    """Started far along the direction that no data show. What is determined beside them, the arm, has the standard
    errors and correlations of a fit with the mass known."""
    free = {"mass": MASS, "inertia": INERTIA, "arm": ARM}
    result = mbd.fit(pendulum(40.0, 5.0, 0.4), swing(), free, progress=False)
    known = mbd.fit(pendulum(1.0, 0.12, 0.4), swing(), {"inertia": INERTIA, "arm": ARM}, progress=False)
    assert result.outcome == known.outcome == "converged"
    errors, expected = errors_of(result), errors_of(known)
    assert errors["mass"] == errors["inertia"] == np.inf
    np.testing.assert_allclose(errors["arm"], expected["arm"], rtol=1e-3)
    np.testing.assert_allclose(result.parameters["arm"], known.parameters["arm"], atol=1e-5)
    ratio = float(result.parameters["inertia"] / result.parameters["mass"])
    assert ratio == pytest.approx(float(known.parameters["inertia"]), rel=1e-3)
    assert abs(float(result.parameters["mass"]) - 1.0) > 5.0  # along that direction the search stays where it is
    assert result.labels == ("arm[0]", "arm[1]", "inertia", "mass")
    assert result.correlation is not None
    assert known.correlation is not None
    assert np.isnan(result.correlation[2:]).all()
    assert np.isnan(result.correlation[:, 2:]).all()
    np.testing.assert_allclose(result.correlation[:2, :2], known.correlation[:2, :2], atol=1e-3)
    (group,) = result.undetermined
    assert group.names == ("inertia", "mass")
    assert group.combinations == ("inertia/mass",)
    text = str(result)
    assert "Warning: the data determine inertia, mass through inertia/mass only." in text
    assert text.count("undetermined") == 2
    assert result.warnings == ("the data determine inertia, mass through inertia/mass only",)
    assert "inertia/mass only" in str(result.table().caption)
    assert known.undetermined == known.warnings == ()
    assert "Warning" not in str(known)


def rail(k: Any, edges: Any = None) -> tuple[pl.Mechanism, dict[str, Any]]:
    """A slider between two springs side by side: their sum is seen, the slider's inertia is not."""
    slider = pl.Body("slider", 2.0, 0.3)
    joint = pl.Prismatic("rail", pl.ground.at(), slider.at())
    springs = [
        pl.SpringDamper(name, pl.ground.at(-1.0), slider.at(), stiffness=k, free_length=1.0)
        for name in ("left", "right")
    ]
    mechanism = pl.Mechanism([slider], [joint], springs, coordinates="joint")
    within = Positive() if edges is None else edges
    free = {
        name: mbd.identification.Parameter(lambda m, name=name: m[name].stiffness, within=within)
        for name in ("left", "right")
    }
    return mechanism, free | {"inertia": mbd.identification.Parameter(lambda m: m["slider"].inertia, within=Positive())}


@cache
def oscillation() -> mbd.Experiment:
    mechanism, _ = rail(50.0)
    state = mbd.assemble(mechanism, {"rail.displacement": 0.2})
    values = np.asarray(mbd.simulate(mechanism, state, TS)["rail.displacement"])
    noisy = values + 1e-4 * np.random.default_rng(2).normal(size=values.shape)
    return mbd.Experiment(TS, {"rail.displacement": noisy}, start={"rail.displacement": 0.2}, sigma=1e-4)


@pytest.mark.slow
def test_sums_and_parameters_without_effect() -> None:
    mechanism, free = rail(30.0)
    result = mbd.fit(mechanism, oscillation(), free, progress=False)
    assert all(error == np.inf for error in errors_of(result).values())
    total = float(result.parameters["left"] + result.parameters["right"])
    assert total == pytest.approx(100.0, rel=1e-3)
    found = {group.names: group.combinations for group in result.undetermined}
    assert found[("inertia",)] == ()
    assert len(found[("left", "right")]) == 1
    assert "Warning: the data do not determine inertia." in str(result)


def two_springs(apart: float) -> Any:
    """Springs side by side, of which the second also damps, a little: they are told apart by that alone."""

    def build(p: dict[str, Any]) -> pl.Mechanism:
        slider = pl.Body("slider", 2.0, 0.3)
        damping = 1.0 + apart * p["right"]
        spring = pl.SpringDamper(
            "both", pl.ground.at(-1.0), slider.at(), stiffness=p["left"] + p["right"], free_length=1.0, damping=damping
        )
        return pl.Mechanism(
            [slider], [pl.Prismatic("rail", pl.ground.at(), slider.at())], [spring], coordinates="joint"
        )

    return build


@pytest.mark.parametrize(("apart", "said"), [(1e-2, ""), (1e-8, "hardly"), (1e-9, "only")])
def test_near_loss_of_rank_is_said(apart: float, said: str) -> None:
    """By the accuracy of the sensitivities, of 1e-8 here: an error that is not known to two digits is marked, and one
    that is rounding is not given."""
    build = two_springs(apart)
    mechanism, at = build({"left": 60.0, "right": 40.0}), {"rail.displacement": 0.2}
    values = np.asarray(mbd.simulate(mechanism, mbd.assemble(mechanism, at), TS)["rail.displacement"])
    noisy = values + 1e-4 * np.random.default_rng(2).normal(size=values.shape)
    experiment = mbd.Experiment(TS, {"rail.displacement": noisy}, start=at, sigma=1e-4)
    starts = {"left": 55.0, "right": 45.0}
    free = {name: mbd.identification.Parameter(start=x, within=Positive()) for name, x in starts.items()}
    result = mbd.fit(build, experiment, free, progress=False)
    errors = errors_of(result)
    if said == "":
        assert result.warnings == result.ill_conditioned == result.undetermined == ()
        assert abs(float(result.parameters["left"]) - 60.0) < 3 * errors["left"] < 0.5
        return
    assert np.isinf(errors["left"]) == (said == "only")
    (group,) = result.ill_conditioned if said == "hardly" else result.undetermined
    assert (group.names, group.combinations) == (("left", "right"), ("left + right",))
    assert said in result.warnings[0]
    assert "left + right" in str(result)
    if said == "hardly":
        assert group.condition == pytest.approx(3e7, rel=0.2)
        assert group.uncertain == pytest.approx(0.6, rel=0.2)
        assert f"~{errors['left']:.2g}" in str(result)
        # The same with tighter tolerances, where the error is known: what was marked is right by as much as said.
        tight = mbd.fit(build, experiment, free, progress=False, accuracy="high")
        assert tight.warnings == ()
        assert errors["left"] == pytest.approx(errors_of(tight)["left"], rel=group.uncertain)


def test_sensitivities_near_a_body_without_inertia_are_rounding() -> None:
    """By the inertia `J` about the pin and the mass moment `mc`, the inertia about the centre is a small difference."""

    def arm(p: dict[str, Any]) -> pl.Mechanism:
        bar = pl.Body("bar", 1.0, p["J"] - p["mc"] ** 2, pose=(0.0, -0.5, 0.0))
        pin = pl.Revolute("O", pl.ground.at(), bar.at(0.0, p["mc"]))
        friction = pl.JointFriction("friction", "O.angle", viscous=p["viscous"])
        return pl.Mechanism([bar], [pin], [pl.Gravity(9.81), friction])

    mechanism = arm({"J": 0.25 + 1e-3, "mc": 0.5, "viscous": 0.1})
    values = np.asarray(mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 1.0}), TS)["O.angle"])
    experiment = mbd.Experiment(TS, {"O.angle": values + NOISE * np.sin(40 * TS)}, {"O.angle": 1.0}, sigma=NOISE)
    constant = {"solver": dfx.Tsit5(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.005}

    def fitted(inertia: float) -> mbd.Fit:
        starts = {"J": 0.25 + inertia, "mc": 0.5, "viscous": 0.1}
        free = {name: mbd.identification.Parameter(start=x, within=Positive()) for name, x in starts.items()}
        return mbd.fit(arm, experiment, free, progress=False, steps=1, **constant)  # at its start

    with pytest.warns(mbd.FitWarning):
        flat, thick = fitted(1e-13), fitted(1e-3)
    (group,) = flat.undetermined
    assert group.names == ("J", "mc")
    assert max(group.inaccurate) > 0.05
    assert any(text.startswith("the sensitivities to J, mc are uncertain by") for text in flat.warnings)
    assert np.isfinite(errors_of(flat)["viscous"])
    assert not any("sensitivities" in text for text in thick.warnings)


def test_a_fit_that_cannot_leave_its_start_has_not_converged() -> None:
    def fragile(p: dict[str, Any]) -> pl.Mechanism:
        return rail(jnp.where(p["k"] == 30.0, p["k"], jnp.nan))[0]

    free = {"k": mbd.identification.Parameter(start=30.0)}
    with pytest.warns(mbd.FitWarning, match="ended where no step, however short, can be simulated"):
        result = mbd.fit(fragile, oscillation(), free, progress=False)
    assert float(result.parameters["k"]) == 30.0
    assert "Warning: the search has not converged: no step" in str(result)


def test_a_fit_that_ends_at_a_jump_has_not_converged() -> None:
    """Beyond 32 N/m the rail's spring is another one."""

    def jumping(p: dict[str, Any]) -> pl.Mechanism:
        return rail(jnp.where(p["k"] > 32.0, 5.0, p["k"]))[0]

    free = {"k": mbd.identification.Parameter(start=30.0)}
    with pytest.warns(mbd.FitWarning, match="ended where no step, however short, reduces the loss"):
        result = mbd.fit(jumping, oscillation(), free, steps=150, progress=False)
    assert float(result.parameters["k"]) == pytest.approx(32.0, abs=1e-9)
    assert "Warning: the search has not converged: no step" in str(result)


@pytest.mark.slow
def test_edges_of_ranges_and_steps_used_up() -> None:
    """Springs that are too weak at their strongest lie at the end of their range; two steps are not enough."""
    mechanism, free = rail(30.0, Bounded(5.0, 40.0))
    free = {name: free[name] for name in ("left", "right")}
    with pytest.warns(mbd.FitWarning, match="used up its 2 steps before it converged"):
        short = mbd.fit(mechanism, oscillation(), free, steps=2, progress=False)
    assert "Warning: the search has not converged: steps used up." in str(short)
    one = {
        "left": mbd.identification.Parameter(
            lambda m: (m["left"].stiffness, m["right"].stiffness), within=Bounded(5.0, 40.0)
        )
    }
    result = mbd.fit(mechanism, oscillation(), one, progress=False)
    assert float(result.parameters["left"]) > 39.9
    assert any("left lies at the upper end of its range, 5 to 40" in text for text in result.warnings)


def test_what_is_said_of_estimates_at_the_ends_of_ranges() -> None:
    assert "runs to zero" in Positive().remark(1e-8, 1.0, 1e-10)
    assert "runs to zero" in Positive().remark(1e-4, 1.0, 2e-4)
    assert "runs to infinity" in Positive().remark(1e7, 1.0, 1.0)
    assert Positive().remark(1e-4, 1.0, 1e-6) == Positive().remark(2.0, 1.0, np.inf) == ""
    assert "lower end of its range, 1 to 3" in Bounded(1.0, 3.0).remark(1.0001, 2.0, 0.1)
    two = Bounded([1.0, 5.0], [3.0, 9.0])
    said = two.remarks("k", ["k[0]", "k[1]"], np.array([2.9999, 5.0001]), np.array([2.0, 7.0]), np.zeros(2))
    assert said == [
        "k[0] lies at the upper end of its range, 1 to 3", "k[1] lies at the lower end of its range, 5 to 9"
    ]  # fmt: skip
    assert Bounded(1.0, 3.0).remark(1.01, 2.0, 0.1) == Unbounded().remark(1e-9, 1.0, 1.0) == ""


# --- the rank, on matrices that are known -------------------------------------------------------------------------


def unknowns(values: Any, positive: Any = True, sizes: Any = None) -> Estimates:
    values = np.asarray(values, float)
    names = tuple("abcdefgh"[: len(values)])
    return Estimates(
        names, names, values, values if sizes is None else np.asarray(sizes), np.broadcast_to(positive, len(values))
    )


def analysed(J: np.ndarray, unknowns: Estimates, accuracy: float = 1e-9, channels: float = 1.0) -> Identifiability:
    """Of a Jacobian whose columns are known up to a share; errors may be uncertain by 5 %."""
    return identifiability(J, np.diag(accuracy * np.linalg.norm(J, axis=0)), unknowns, channels, 0.05)


def logarithmic(exponents: Any, rng: np.random.Generator) -> np.ndarray:
    """The Jacobian, by logarithms, of channels that see products of powers only."""
    return rng.normal(size=(30, len(exponents))) @ np.asarray(exponents, float)


CASES: dict[str, tuple[Any, Any, dict[tuple[str, ...], tuple[str, ...]]]] = {
    "ratio": ([[1, -1]], [3.0, 7.0], {("a", "b"): ("a/b",)}),
    "two ratios": ([[1, 0, -1], [0, 1, -1]], [3.0, 7.0, 2.0], {("a", "b", "c"): ("a/c", "b/c")}),
    "power": ([[1, -2]], [3.0, 7.0], {("a", "b"): ("a/b^2",)}),
    "root": ([[2, 1]], [3.0, 7.0], {("a", "b"): ("a·b^(1/2)",)}),
    "one of three": ([[1, 1, -1]], [3.0, 7.0, 2.0], {("a", "b", "c"): ("a·b/c",)}),
    "two groups": (
        [[1, 0, -1, 0, 0], [0, 1, 0, -1, 0], [0, 0, 0, 0, 1]], [3.0, 7.0, 2.0, 5.0, 1.0],
        {("a", "c"): ("a/c",), ("b", "d"): ("b/d",)},
    ),
    "no effect": ([[1, 0]], [3.0, 7.0], {("b",): ()}),
    "sum": ([[3.0, 7.0]], [3.0, 7.0], {("a", "b"): ("a + b",)}),
    "difference": ([[3.0, -14.0]], [3.0, 7.0], {("a", "b"): ("a − 2 b",)}),
    "neither": ([[3.0, 1.234]], [3.0, 7.0], {("a", "b"): ("a + 0.176 b",)}),
    "all determined": ([[1, 0], [0, 1]], [3.0, 7.0], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_combinations_are_named(case: str, rng: np.random.Generator) -> None:
    exponents, values, expected = CASES[case]
    found = analysed(logarithmic(exponents, rng), unknowns(values))
    assert {group.names: group.combinations for group in found.groups} == expected
    open_names = {name for group in expected for name in group}
    assert {name for name, is_open in zip("abcdefgh", found.open, strict=False) if is_open} == open_names
    assert found.rank == len(exponents)


def test_determined_parameters_keep_their_variance(rng: np.random.Generator) -> None:
    """Beside a null direction: those of the problem in the combination that is determined."""
    reduced = rng.normal(size=(40, 3))
    J = np.stack([reduced[:, 0], -reduced[:, 0], reduced[:, 1], reduced[:, 2]], axis=1)
    found = analysed(J, unknowns([1.0, 2.0, 3.0, 4.0]))
    assert found.open.tolist() == [True, True, False, False]
    expected = np.linalg.inv(reduced.T @ reduced)[1:, 1:]
    np.testing.assert_allclose(found.inverse[2:, 2:], expected, rtol=1e-12)


def test_the_rank_depends_on_neither_units_nor_a_place_on_the_null_direction(rng: np.random.Generator) -> None:
    J = logarithmic([[1, -1, 0], [0, 0, 1]], rng)
    for factors in ([1.0, 1.0, 1.0], [1e-6, 1e6, 1.0], [1e4, 1e4, 1e-4]):
        found = analysed(J * factors, unknowns([3.0, 7.0, 2.0]), channels=1e-8)
        assert found.open.tolist() == [True, True, False]


@pytest.mark.parametrize("apart", [1e-4, 3e-8, 1e-9])
def test_errors_are_as_uncertain_as_said(apart: float, rng: np.random.Generator) -> None:
    """Poorly determined is not undetermined: a large standard error is right, as far as the Jacobian lets it be known.
    Jacobians that differ by the stated errors, of 1e-9, have standard errors that differ by less than is stated."""
    first, second = rng.normal(size=(2, 30))
    J = np.stack([first, first + apart * second], axis=1)
    ab = unknowns([1.0, 1.0], positive=False)
    found = analysed(J, ab)
    assert found.open.tolist() == [apart == 1e-9] * 2
    if apart == 1e-9:
        assert str(*found.groups) == "the data determine a, b through a + b only"
        return
    expected = np.sqrt(np.diag(found.inverse))
    np.testing.assert_allclose(expected, np.sqrt(np.diag(np.linalg.inv(J.T @ J))), rtol=1e-5 if apart > 1e-7 else 0.5)
    other = J + 1e-9 * np.linalg.norm(J, axis=0) * rng.normal(size=J.shape) / np.sqrt(30)
    change = np.abs(np.sqrt(np.diag(analysed(other, ab).inverse)) / expected - 1)
    assert (change < found.uncertain).all()
    assert (found.uncertain < 100 * change).all()  # and not for nothing
    if apart == 1e-4:
        assert not found.groups
    else:
        (group,) = found.groups
        assert (group.names, group.combinations) == (("a", "b"), ("a + b",))
        assert group.condition == pytest.approx(np.linalg.cond(J / np.linalg.norm(J, axis=0)), rel=1e-3)
        assert group.uncertain == pytest.approx(found.uncertain.max())
        assert str(group).startswith(
            "the data hardly determine a, b but through a + b: condition 9e+07, these standard"
        )


def test_sensitivities_that_are_errors_have_no_standard_errors(rng: np.random.Generator) -> None:
    """The others have those that they would have if these unknowns were known."""
    J = rng.normal(size=(40, 3))
    found = identifiability(J, np.diag([0.0, 0.5, 0.0]), unknowns([1.0, 2.0, 3.0]), 1.0, 0.05)
    assert found.open.tolist() == [False, True, False]
    np.testing.assert_allclose(found.inverse[::2, ::2], np.linalg.inv(J[:, ::2].T @ J[:, ::2]), rtol=1e-12)
    (group,) = found.groups
    assert group.names == ("b",)
    assert str(group).startswith("the sensitivities to b are uncertain by ")


def test_fewer_samples_than_unknowns(rng: np.random.Generator) -> None:
    found = analysed(rng.normal(size=(2, 3)), unknowns([1.0, 2.0, 3.0]))
    assert found.rank == 2
    assert found.open.all()
    nothing = analysed(np.zeros((4, 2)), unknowns([1.0, 2.0]))
    assert nothing.open.all()
    assert len(nothing.groups) == 2


# --- options of the simulations -----------------------------------------------------------------------------------


def test_a_fit_passes_on_what_simulate_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def simulate(mechanism: Any, state: Any, ts: Any, integration: Any, **_: Any) -> None:
        seen.update(vars(integration))
        raise KeyError("seen")

    monkeypatch.setattr(simulations, "simulate", simulate)
    given: dict[str, Any] = {
        "formulation": mbd.Projection(), "solver": "stiff", "accuracy": "high", "control_speeds": True, "rtol": 1e-5,
        "atol": 1e-6, "dt0": 1e-3, "events": [mbd.Event("top", "O.angle", above=1.5)], "max_events": 3,
        "max_steps": 500,
    }  # fmt: skip
    with pytest.raises(KeyError, match="seen"):
        mbd.fit(pendulum(), swing(), {"mass": MASS}, progress=False, **given)
    for name in ("solver", "accuracy", "control_speeds", "dt0", "max_events", "max_steps"):
        assert seen[name] == given[name]
    assert np.shape(seen["rtol"]) == np.shape(seen["atol"]) == ()  # traced, so that another one compiles nothing
    assert isinstance(seen["formulation"], mbd.Projection)
    assert len(seen["events"]) == 1


@pytest.mark.slow
def test_a_fit_with_an_event() -> None:
    """Gravity from a body that falls and bounces: without the bounce the data could not be met."""
    ball = pl.Body("ball", 1.0, 0.1)
    joint = pl.Prismatic("rail", pl.ground.at(angle=np.pi / 2), ball.at(angle=np.pi / 2))

    def falling(g: float) -> pl.Mechanism:
        return pl.Mechanism([ball], [joint], [pl.Gravity(g)], coordinates="joint")

    bounce = mbd.Event("floor", "rail.displacement", below=0.0, then=mbd.Bounce(0.7))
    start = {"rail.displacement": 0.5}
    ts = np.linspace(0.0, 0.6, 25)
    solution = mbd.simulate(falling(9.0), mbd.assemble(falling(9.0), start), ts, events=[bounce])
    experiment = mbd.Experiment(ts, {"ball.y": np.asarray(solution["ball.y"])}, start=start, sigma=1e-3)
    free = {"g": mbd.identification.Parameter(lambda m: m["gravity"].acceleration, within=Positive())}
    result = mbd.fit(falling(9.8), experiment, free, events=[bounce], max_events=4, progress=False)
    assert float(result.parameters["g"]) == pytest.approx(9.0, abs=1e-5)
