"""Designs with known optima, and the verdicts of those that have none."""

import re
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.identification import Bounded, Box, Normal, Parameter, Positive, body_inertia
from jaxmbd.numerics import bounded_least_squares
from jaxmbd.optimal_design import _problem
from jaxmbd.optimal_design._variables import variables_of
from tests.optimal_design.linkages import four_bar

LENGTHS = {"ground": (0.5, 3.0), "crank": (0.1, 2.0), "coupler": (0.1, 2.0), "rocker": (0.1, 2.0)}
AHEAD = np.linspace(0.0, 2 * np.pi, 4, endpoint=False)


def of_lengths(values: dict[str, Any]) -> pl.Mechanism:
    return four_bar([values[name] for name in ("ground", "crank", "coupler", "rocker")])


def link(mechanism: pl.Mechanism, joint: str, marker: int = 0) -> Array:
    return mechanism[joint].markers[marker].position[0]


def open_at(angle: float) -> mbd.Limit:
    """The linkage can be assembled at a crank angle."""
    return mbd.Limit(lambda m: mbd.closure_error(m, {"crank.theta": angle}), upper=1e-10, scale=1e-4)


def box(values: dict[str, Any]) -> pl.Mechanism:
    """A mechanism that holds two numbers, `x` and `y`, as the place of a pin."""
    bar = pl.Body("bar", mass=1.0, inertia=4.0)
    pin = pl.Revolute("O", pl.ground.at(0.0, 0.0), bar.at(values["x"], values["y"]))
    return pl.Mechanism([bar], [pin])


def corner(mechanism: pl.Mechanism) -> Array:
    return mechanism["O"].markers[1].position


def test_a_programme_with_an_analytic_answer() -> None:
    """`min (x − 2)² + (y − 1)²` with `x² ≤ y` and `x + y ≤ 2`: the optimum is (1, 1), where both limits are active
    (Nocedal, Wright (2006), ch. 1)."""
    found = mbd.design(
        lambda m: jnp.sum((corner(m) - jnp.array([2.0, 1.0])) ** 2),
        {"x": (-3.0, 3.0), "y": (-3.0, 3.0)},
        {
            "parabola": mbd.Limit(lambda m: corner(m)[1] - corner(m)[0] ** 2, lower=0.0),
            "line": mbd.Limit(lambda m: jnp.sum(corner(m)), upper=2.0),
            "wide": mbd.Limit(lambda m: corner(m), lower=-5.0, upper=5.0),
        },
        mechanism=box,
        starts=4,
        progress=False,
    )
    assert found.outcome.startswith("converged")
    np.testing.assert_allclose([found.values["x"], found.values["y"]], 1.0, atol=1e-6)
    assert found.objective == pytest.approx(1.0, abs=1e-6)
    assert {m.name: m.active for m in found.constraints} == {"parabola": True, "line": True, "wide": False}
    assert {m.name: m.margin for m in found.constraints}["wide"] == pytest.approx(4.0, abs=1e-5)
    np.testing.assert_allclose(corner(found.mechanism), 1.0, atol=1e-6)
    assert found.active_bounds == ()
    # (−2, 0) = μ (−2, 1) + ν (−1, −1): the lower limit costs 2/3 where it is higher, the upper one saves as much.
    costs = found.multipliers
    assert costs is not None
    assert costs.constraints["parabola"] == pytest.approx([2 / 3], abs=1e-4)
    assert costs.constraints["line"] == pytest.approx([-2 / 3], abs=1e-4)
    np.testing.assert_array_equal(costs.constraints["wide"], [0.0, 0.0])
    assert costs.bounds == {"x": 0.0, "y": 0.0}
    assert costs.unique
    assert costs.residual < 1e-4


@pytest.mark.parametrize("method", ["slsqp", "trust-constr"])
def test_an_optimum_on_a_bound(method: Any) -> None:
    """The number of least size within 1 … 3 is 1, and with `x y = 2` the other is 2."""
    found = mbd.design(
        lambda m: corner(m)[0] ** 2, {"x": (1.0, 3.0), "y": Parameter(start=1.0, within=Positive())},
        {"product": mbd.Limit(lambda m: jnp.prod(corner(m)), equals=2.0)},
        mechanism=box, starts=2, method=method, progress=False,
    )  # fmt: skip
    np.testing.assert_allclose([found.values["x"], found.values["y"]], [1.0, 2.0], atol=1e-4)
    if method == "slsqp":
        assert found.active_bounds == ("x (lower)",)
        assert found.multipliers is not None
        assert found.multipliers.bounds["x"] == pytest.approx(2.0, rel=1e-4)  # of x² at 1
        assert re.search(r"x +1 +lower", repr(found))


def test_a_start_on_a_bound() -> None:
    """An optimum on a bound is a valid start: 0.1 + 0.9 − 0.1 rounds to a number above 0.9, and 0.1 + 0.2 above 0.3."""
    ranges = {"x": (-0.1, 0.3), "y": (0.1, 0.9)}
    for within in (Bounded, Box):
        values: dict[str, Any] = dict.fromkeys(ranges)
        for _ in range(2):
            free = {name: Parameter(start=values[name], within=within(*ranges[name])) for name in ranges}
            found = mbd.design(lambda m: -jnp.sum(corner(m)), free, mechanism=box, starts=1, progress=False)
            values = found.values
            assert found.active_bounds == ("x (upper)", "y (upper)")
            assert all(0.0 <= upper - values[name] < 1e-15 for name, (_, upper) in ranges.items())


@pytest.mark.parametrize("method", ["slsqp", "trust-constr"])
def test_an_objective_that_is_zero_at_the_start(method: Any) -> None:
    """`x + y` from (0, 0) on the disc of radius 2: the minimum is at −√2 (1, 1)."""
    found = mbd.design(
        lambda m: jnp.sum(corner(m)), {"x": Parameter(start=0.0), "y": Parameter(start=0.0)},
        {"disc": mbd.Limit(lambda m: jnp.sum(corner(m) ** 2), upper=4.0)},
        mechanism=box, starts=1, method=method, progress=False,
    )  # fmt: skip
    assert found.objective == pytest.approx(-2 * np.sqrt(2), rel=1e-4)
    np.testing.assert_allclose([found.values["x"], found.values["y"]], -np.sqrt(2), rtol=1e-3)


def test_a_derivative_that_is_not_finite_is_no_convergence() -> None:
    """Of a norm at zero, and of a root: zeros in place of such derivatives would make every point a stationary one."""
    free = {"x": Parameter(start=0.0), "y": Parameter(start=0.0)}

    def found(objective: Any, starts: int = 1, **changed: Any) -> mbd.optimal_design.Design:
        return mbd.design(objective, free | changed, mechanism=box, starts=starts, progress=False)

    verdict = "the derivative of the objective is not finite"
    norm = found(lambda m: 1.0 - jnp.linalg.norm(corner(m)))
    assert norm.outcome == verdict
    assert norm.multipliers is None
    roots = found(lambda m: 2.0 - jnp.sqrt(corner(m)), x=(0.0, 1.0), y=Parameter(start=0.0, within=Box(0.0, 1.0)))
    assert roots.outcome == verdict  # of residuals
    assert roots.multipliers is None
    both = found(lambda m: jnp.sum((corner(m) - 1.0) ** 2) * jnp.linalg.norm(corner(m) + 1.0), starts=2)
    assert both.objective < 1e-8  # the norm is smooth there
    least = found(lambda m: jnp.linalg.norm(corner(m)), x=(0.0, 1.0), y=(-1.0, 1.0))
    assert least.objective < 1e-6  # the corner of the norm is its minimum
    disc = mbd.Limit(lambda m: jnp.linalg.norm(corner(m)), upper=1.0)
    left = mbd.design(
        lambda m: jnp.sum((corner(m) - 2.0) ** 2), free, {"disc": disc}, mechanism=box, starts=1, progress=False
    )
    assert left.outcome.startswith("converged")  # the start, where the limit has no derivative, is left
    np.testing.assert_allclose([left.values["x"], left.values["y"]], np.sqrt(0.5), atol=1e-5)
    held = mbd.design(lambda m: jnp.sum(corner(m) ** 2), free, {"disc": disc}, mechanism=box, starts=1, progress=False)
    assert held.outcome == "the derivative of a constraint is not finite"
    assert held.multipliers is None


def test_a_search_that_gets_stuck_has_not_converged() -> None:
    """At the corner of `|x − 0.3|` no step of least squares goes down, and the gradient is not zero."""
    found = mbd.design(
        lambda m: jnp.stack([2.0 + jnp.abs(corner(m)[0] - 0.3), corner(m)[1]]), {"x": (-1.0, 1.0), "y": (-1.0, 1.0)},
        mechanism=box, starts=1, progress=False,
    )  # fmt: skip
    assert float(found.values["x"]) == pytest.approx(0.3, abs=1e-4)
    assert found.outcome == "stopped: no step reduces the objective, whose gradient is not zero"


def test_residuals_that_do_not_depend_on_a_variable_have_converged() -> None:
    """A column of zeros is at right angles to all; with the roots of squares the columns vanish, too."""
    for of in (lambda p: jnp.stack([3.0 + 0 * p[0], p[1]]), lambda p: p**2):
        found = mbd.design(
            lambda m, of=of: of(corner(m)), {"x": (-1.0, 2.0), "y": (-1.0, 3.0)}, mechanism=box, starts=2,
            progress=False,
        )  # fmt: skip
        assert [start.verdict for start in found.starts] == ["converged"] * 2


def test_residuals_are_minimised_as_a_sum_of_squares() -> None:
    """Least squares with a bound that is active: `x` is held at 1, and `y` fits the rest."""
    target = jnp.array([0.0, 2.0, 3.0])
    found = mbd.design(
        lambda m: jnp.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]) @ corner(m) - target,
        {"x": (1.0, 3.0), "y": (-5.0, 5.0)}, mechanism=box, starts=3, progress=False,
    )  # fmt: skip
    np.testing.assert_allclose([found.values["x"], found.values["y"]], [1.0, 2.0], atol=1e-7)
    assert found.objective == pytest.approx(0.5 * (1 + 1 + 1), rel=1e-9)
    assert [start.verdict for start in found.starts] == ["converged"] * 3


@pytest.mark.slow
def test_shortest_four_bar_that_reaches_two_positions() -> None:
    """Starts that cannot be assembled find back, and the linkage closes at both crank angles. The shortest base and
    coupler are at their bounds."""
    found = mbd.design(
        lambda m: link(m, "C") + link(m, "D") ** 2, LENGTHS,
        {
            "closes": mbd.Limit(
                lambda m: jnp.stack([mbd.closure_error(m, {"crank.theta": x}) for x in (0.0, 3.1)]),
                upper=1e-10, scale=1e-4,
            ),
            "rocker": mbd.Limit(
                lambda m: mbd.assemble(m, {"crank.theta": 0.3}, check=False).q[-1], lower=-9.0, upper=9.0
            ),
        },
        mechanism=of_lengths, starts=5, progress=False,
    )  # fmt: skip
    assert found.is_feasible
    kept = [start.objective for start in found.starts if start.verdict.startswith("converged")]
    assert len(kept) >= 3
    assert found.objective == min(kept)
    assert found.objective == pytest.approx(0.1 + 0.5**2, rel=1e-6)
    for angle in (0.0, 3.1):  # the limit, and a millionth of its scale
        assert float(mbd.closure_error(found.mechanism, {"crank.theta": angle})) <= 2e-10


def test_an_infeasible_problem_has_a_named_verdict() -> None:
    found = mbd.design(
        lambda m: link(m, "D") ** 2, LENGTHS,
        {"closes": open_at(3.1), "long": mbd.Limit(lambda m: link(m, "D"), lower=5.0, unit="m")},
        mechanism=of_lengths, starts=3, progress=False,
    )  # fmt: skip
    assert not found.is_feasible
    assert "no design found that keeps all constraints, from 3 starts; violated: 'long' (by 2)" in found.outcome
    assert float(found.values["ground"]) == pytest.approx(3.0)  # as near as the range allows
    text = repr(found)
    assert "NOT FEASIBLE" in text
    assert "VIOLATED" in text
    assert "ground (upper)" in found.active_bounds


def sizes_of_batches(monkeypatch: pytest.MonkeyPatch, variables: Any, limit: mbd.Limit) -> list[int]:
    """The numbers of searches side by side in the rounds that lead to feasible designs."""
    sizes, whole = [], bounded_least_squares.advance

    def watched(residual: Any, lanes: Any, *others: Any) -> Any:
        sizes.append(len(lanes.cost))
        return whole(residual, lanes, *others)

    monkeypatch.setattr(bounded_least_squares, "advance", watched)
    found = mbd.design(
        lambda m: jnp.sum(corner(m)), variables, {"limit": limit}, mechanism=box, starts=6, progress=False
    )
    assert found.is_feasible
    return sizes


def test_the_search_for_feasible_designs_is_compiled_once_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits that most starts miss, and that take some of them many more steps; with one that all keep."""
    ranges = {"x": (-3.0, 3.0), "y": (-3.0, 3.0)}
    curved = mbd.Limit(
        lambda m: 100.0 * (corner(m)[1] - corner(m)[0] ** 2) ** 2 + (1.0 - corner(m)[0]) ** 2, upper=1e-3
    )
    sizes = sizes_of_batches(monkeypatch, ranges, curved)
    assert len(sizes) > 1
    assert len(set(sizes)) == 1
    assert sizes_of_batches(monkeypatch, ranges, mbd.Limit(lambda m: corner(m), lower=-4.0, upper=4.0)) == []


def test_starts_that_cannot_be_assembled_do_not_stop_the_others() -> None:
    """Without a constraint that leads back, such starts end by name; an analysis that raises does no harm either."""
    for check in (False, True):
        found = mbd.design(
            lambda m, check=check: (mbd.assemble(m, {"crank.theta": 0.3}, check=check).q[-1] - 2.0) ** 2,
            LENGTHS, mechanism=of_lengths, starts=4, seed=3, progress=False,
        )  # fmt: skip
        verdicts = [start.verdict for start in found.starts]
        assert any("not finite" in v or "raises" in v for v in verdicts), verdicts
        assert found.objective < 1e-8


def test_a_constraint_that_is_not_a_number_is_not_kept() -> None:
    found = mbd.design(
        lambda m: jnp.sum(corner(m) ** 2), {"x": (1.0, 3.0), "y": (-1.0, 1.0)},
        {"root": mbd.Limit(lambda m: jnp.sqrt(-corner(m)[0]), lower=0.0)},
        mechanism=box, starts=2, progress=False,
    )  # fmt: skip
    assert not found.is_feasible
    assert "'root'" in found.outcome


def test_a_value_that_is_unknown_counts_as_a_large_violation() -> None:
    """Not as none: the search for a feasible design would be drawn to where a constraint has no value."""
    limit = mbd.Limit(lambda m: 0.0, lower=1.0, upper=3.0, scale=2.0)
    missed = limit.violations(jnp.array([0.0, jnp.nan, 2.0, 5.0]))
    np.testing.assert_allclose(missed.reshape(2, 4), [[0.5, 1e3, 0, 0], [0, 1e3, 0, 1.0]])


def test_an_interrupt_returns_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, whole = [], _problem.linearised

    def interrupted(x: Array, problem: Any) -> Any:
        calls.append(x)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return whole(x, problem)

    monkeypatch.setattr(_problem, "linearised", interrupted)
    found = mbd.design(
        lambda m: jnp.sum(corner(m) ** 4), {"x": (-3.0, 3.0), "y": (-3.0, 2.0)}, mechanism=box, starts=1,
        progress=False,
    )  # fmt: skip
    assert found.outcome == "interrupted"
    assert 0 < found.objective < 0.5**4  # that of the start is 0.5⁴, at the middle of the range of y


class OffsetOfPin(eqx.Module):
    """As a number of a module the sign is no part of what is compiled."""

    sign: Array

    def __call__(self, m: pl.Mechanism) -> Array:
        return self.sign * m["O"].markers[1].position[0]


@pytest.mark.slow
def test_a_limit_on_a_reaction_and_on_a_stroke() -> None:
    """The longest arm whose pin carries at most 10 N, `m ω² l = 10 N`, and the shortest with a stroke of 0.8 m."""

    def spun(values: dict[str, Any]) -> pl.Mechanism:
        bar = pl.Body("bar", mass=2.0, inertia=0.1)
        pin = pl.Revolute("O", pl.ground.at(0.0, 0.0), bar.at(-values["length"], 0.0))
        return pl.Mechanism([bar], [pin], drivers=[pl.Driver("motor", "O.angle", lambda t: 2.0 * t)])

    def motion(mechanism: pl.Mechanism) -> mbd.Solution:
        return mbd.kinematics(mechanism, jnp.linspace(0.0, 3.0, 5), throw=False)

    limits = {
        "reaction": mbd.Limit(lambda m: jnp.linalg.norm(motion(m).reaction("O").force, axis=-1), upper=10.0, unit="N"),
        "stroke": mbd.Limit(lambda m: jnp.ptp(motion(m)["bar.x"]), lower=0.8, unit="m"),
    }
    found = [
        mbd.design(OffsetOfPin(sign), {"length": (0.2, 2.0)}, limits, mechanism=spun, starts=2, progress=False)
        for sign in (jnp.array(1.0), jnp.array(-1.0))
    ]
    assert float(found[0].values["length"]) == pytest.approx(10.0 / (2.0 * 2.0**2), rel=1e-6)
    assert [margin.active for margin in found[0].constraints] == [True, False]
    assert [margin.active for margin in found[1].constraints] == [False, True]
    reach = float(np.ptp(np.cos(2.0 * np.linspace(0.0, 3.0, 5))))
    assert float(found[1].values["length"]) == pytest.approx(0.8 / reach, rel=1e-5)


def test_variables_by_leaf_of_a_mechanism() -> None:
    mechanism = box({"x": 2.0, "y": 0.5})
    where = Parameter(where=lambda m: m["O"].markers[1].position, within=Bounded(0.25, 4.0), unit="m")
    found = mbd.design(lambda m: jnp.sum(corner(m) ** 2), {"pin": where}, mechanism=mechanism, progress=False)
    np.testing.assert_allclose(found.values["pin"], [0.25, 0.25], atol=1e-8)
    assert found.active_bounds == ("pin[0] (lower)", "pin[1] (lower)")


def test_variables_by_name_are_those_by_function() -> None:
    """A pair of bounds for a number that starts at the mechanism's own value, a range for all matches of a pattern."""
    mechanism = box({"x": 2.0, "y": 0.5})
    aim = lambda m: (corner(m)[0] - 1.0) ** 2 + m["bar"].mass + m["bar"].inertia  # noqa: E731
    where = {
        "O.b.position[0]": Parameter(lambda m: m["O"].b.position, within=Box([0.0, 0.5], [4.0, 0.6])),
        "bar.mass": Parameter(lambda m: m["bar"].mass, within=Box(0.5, 2.0)),
        "bar.inertia": Parameter(lambda m: m["bar"].inertia, within=Box(0.5, 2.5), start=2.0),
    }
    wanted = mbd.design(aim, where, mechanism=mechanism, starts=1, progress=False)
    given = {"O.b.position[0]": (0.0, 4.0), "*.mass": (0.5, 2.0)}
    given |= {"bar.inertia": Parameter(start=2.0, within=Box(0.5, 2.5))}
    found = mbd.design(aim, given, mechanism=mechanism, starts=1, progress=False)
    assert found.values["O.b.position[0]"] == pytest.approx(float(wanted.values["O.b.position[0]"][0]), abs=1e-6)
    assert found.values["O.b.position[0]"] == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose([found.values["bar.mass"], found.values["bar.inertia"]], 0.5, rtol=1e-12)
    assert set(found.units) == {"m", "kg", "kg m²"}
    assert found.mechanism["O"].b.position[1] == 0.5
    start = variables_of("design", mechanism, {"O.b.position[0]": (0.0, 5.0)})
    assert float(start.physical(start.start)[0]) == pytest.approx(2.0)  # not the middle of the bounds
    assert variables_of("design", mechanism, ["bar.*"]).labels == ("bar.inertia", "bar.mass")
    for idle in ({"length": (0.0, 1.0)}, {"length": Parameter(start=1.0)}):
        with pytest.raises(mbd.MechanismError, match=r"needs a place|has no effect"):
            mbd.design(aim, idle, mechanism=mechanism)


def test_variables_with_components_and_a_scale() -> None:
    """A centre of mass is labelled by x and y, in shares of the radius of gyration, which is its scale."""
    mechanism = box({"x": 2.0, "y": 0.5})
    bar = mechanism["bar"]
    found = variables_of("design", mechanism, body_inertia(bar))
    assert found.labels == ("bar.centre[x]", "bar.centre[y]", "bar.inertia", "bar.mass")
    np.testing.assert_allclose(found.scale, [np.sqrt(bar.inertia / bar.mass)] * 2 + [bar.inertia, bar.mass])


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"variables": {"x": (3.0, 1.0), "y": (0.0, 1.0)}}, "Variable 'x': Box: lower must be below upper"),
        ({"variables": {}}, "variables must name at least one number"),
        ({"variables": {"x": (0.0, 1.0)}}, "raises KeyError"),
        ({"variables": {"x": 1.0}}, "Free parameter 'x'"),
        (
            {"variables": body_inertia(sp.Body("rod", 1.0, np.eye(3)))},
            "variable 'rod.inertia' has the range ConsistentInertia",
        ),
        ({"variables": {"x": Parameter(start=1.0, prior=Normal(1.0, 0.1))}}, "variable 'x' has the prior Normal"),
        ({"constraints": {"a": 1.0}}, "constraint 'a' must be a Limit"),
        ({"constraints": {"a": mbd.Limit(lambda m: corner(m), lower=jnp.zeros(3))}}, "returns 2 numbers"),
        ({"objective": 3.0}, "objective"),
        ({"objective": lambda m: m["Q"]}, "Q"),
        ({"mechanism": 3}, "mechanism must be a Mechanism, or a function"),
        ({"starts": 0}, "starts must be at least 1"),
        ({"method": "bfgs"}, "method named 'bfgs'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], text: str) -> None:
    given = {
        "objective": lambda m: jnp.sum(corner(m)),
        "variables": {"x": (0.0, 1.0), "y": (0.0, 1.0)},
        "mechanism": box,
    }
    given |= arguments
    with pytest.raises(mbd.MechanismError, match=re.escape(text)):
        mbd.design(**given, progress=False)


def test_wrong_limits() -> None:
    with pytest.raises(mbd.MechanismError, match="lower must not exceed upper"):
        mbd.Limit(lambda m: 1.0, lower=2.0, upper=1.0)
    with pytest.raises(mbd.MechanismError, match="equals"):
        mbd.Limit(lambda m: 1.0, lower=2.0, equals=1.0)
    with pytest.raises(mbd.MechanismError, match="scale"):
        mbd.Limit(lambda m: 1.0, lower=2.0, scale=0.0)
