"""Multipliers against differences of the optimum, where limits without a derivative lie near theirs."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import Box, Parameter
from jaxmbd.optimal_design._limits import limits_of, margin_of
from jaxmbd.optimal_design._multipliers import by_constraint, multipliers_of
from jaxmbd.optimal_design._problem import Problem, linearised
from jaxmbd.optimal_design._variables import variables_of
from tests.optimal_design.linkages import four_bar

AHEAD = (0.0, np.pi)
LEAST = np.deg2rad(40.0)
RANGES = {"coupler": (0.2, 4.0), "rocker": (0.2, 4.0)}


def crank_rocker(values: dict[str, Any]) -> pl.Mechanism:
    return four_bar([2.0, 0.5, values["coupler"], values["rocker"]])


def transmission(m: pl.Mechanism) -> Array:
    states = [mbd.assemble(m, {"crank.theta": angle}, check=False) for angle in AHEAD]
    return jnp.stack([mbd.optimal_design.transmission_angle(m, state, "C", "B", "D") for state in states])


def gaps(m: pl.Mechanism) -> Array:
    return jnp.stack([mbd.closure_error(m, {"crank.theta": angle}) for angle in AHEAD])


def lengths(m: pl.Mechanism) -> Array:
    return m["C"].markers[0].position[0] + m["C"].markers[1].position[0]


def shortest(least: Any, start: dict[str, Any]) -> mbd.optimal_design.Design:
    free = {name: Parameter(start=start[name], within=Box(*bounds)) for name, bounds in RANGES.items()}
    limits = {
        "closes": mbd.Limit(gaps, upper=1e-10, scale=1e-4),
        "transmission": mbd.Limit(transmission, lower=jnp.asarray(least), scale=1.0),
    }
    return mbd.design(lengths, free, limits, mechanism=crank_rocker, starts=1, progress=False)


@pytest.mark.slow
def test_a_closure_error_takes_no_share() -> None:
    """The error is a square: it is zero with its derivative, of which rounding is left. Both transmission angles cost
    what differences of the optimum say (4e-4 rad)."""
    found = shortest([LEAST, LEAST], {"coupler": 1.95, "rocker": 0.67})
    costs = found.multipliers
    assert costs is not None
    for k in range(2):
        step = np.zeros(2)
        step[k] = 2e-4
        ahead, behind = (shortest(LEAST + side * step, found.values).objective for side in (1, -1))
        assert costs.constraints["transmission"][k] == pytest.approx((ahead - behind) / 4e-4, rel=1e-3)
    np.testing.assert_array_equal(costs.constraints["closes"], [0.0, 0.0])
    assert [margin.active for margin in found.constraints] == [False, True]
    assert costs.unique
    assert costs.residual < 1e-8


def corner(m: pl.Mechanism) -> Array:
    return m["O"].markers[1].position


def at_optimum(limits: dict[str, mbd.Limit], values: dict[str, float]) -> tuple[Any, dict[str, bool]]:
    """The multipliers of `(x − 2)² + (y − 1)²` at given values, and which limits are active."""
    free = {name: Parameter(start=value, within=Box(-3.0, 3.0)) for name, value in values.items()}
    problem = Problem(
        lambda m: jnp.sum((corner(m) - jnp.array([2.0, 1.0])) ** 2),
        variables_of("design", box, free), limits_of("design", limits),
    )  # fmt: skip
    x = np.asarray(problem.variables.start)
    at = linearised(jnp.asarray(x), problem)
    sizes = {name: np.ravel(limit.value(name, problem.at(jnp.asarray(x)))) for name, limit in limits.items()}
    slopes = by_constraint(problem, sizes, np.asarray(at[1].inequalities), np.asarray(at[1].equations))
    active = {name: margin_of(name, limits[name], sizes[name], slopes[name]).active for name in limits}
    return multipliers_of(problem, x, at, sizes), active


def box(values: dict[str, Any]) -> pl.Mechanism:
    bar = pl.Body("bar", mass=1.0, inertia=4.0)
    return pl.Mechanism([bar], [pl.Revolute("O", pl.ground.at(0.0, 0.0), bar.at(values["x"], values["y"]))])


def test_derivatives_of_rounding_take_no_share() -> None:
    """The optimum on `x + y ≤ 2` is (1.5, 0.5), with the multiplier −1: `(−1, −1) = −1 (1, 1)`. Quantities that hardly
    change hold nothing, whether their margin is small for their scale, or none is left."""
    rounding = lambda m: 1e-13 * jnp.stack([corner(m)[0], corner(m)[0] - 2.0 * corner(m)[1]])  # noqa: E731
    limits = {
        "line": mbd.Limit(lambda m: jnp.sum(corner(m)), upper=2.0),
        "error": mbd.Limit(rounding, upper=1e-10, scale=1e-4),
        "none": mbd.Limit(rounding, upper=0.0, scale=1e-4),
        "equal": mbd.Limit(rounding, equals=0.0, scale=1e-4),
    }
    costs, active = at_optimum(limits, {"x": 1.5, "y": 0.5})
    assert costs.constraints["line"] == pytest.approx([-1.0], rel=1e-9)
    for name in ("error", "none", "equal"):
        np.testing.assert_array_equal(costs.constraints[name], [0.0, 0.0])
    assert active == {"line": True, "error": False, "none": False, "equal": False}
    assert costs.unique
    assert costs.residual < 1e-9


def test_margins_are_compared_with_the_limit() -> None:
    """A margin of 2e-5 is little for the scale 10, and all of the limit: it holds nothing. A limit that is small for
    its scale holds where a variable need not move to reach it."""
    limits = {
        "line": mbd.Limit(lambda m: jnp.sum(corner(m)), upper=2.0),
        "small": mbd.Limit(lambda m: 2e-3 * corner(m)[1] - 1e-3, upper=2e-5, scale=10.0),
    }
    costs, active = at_optimum(limits, {"x": 1.5, "y": 0.5})
    assert active == {"line": True, "small": False}
    assert costs.constraints["line"] == pytest.approx([-1.0], rel=1e-9)
    held = {"tiny": mbd.Limit(lambda m: corner(m)[0] - 1.0, upper=1e-12, scale=1.0)}
    costs, active = at_optimum(held, {"x": 1.0 - 1e-9, "y": 1.0})  # as near as a search comes
    assert active == {"tiny": True}
    assert costs.constraints["tiny"] == pytest.approx([-2.0], rel=1e-6)  # of (x − 2)² at 1
