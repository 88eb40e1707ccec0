"""Problems that others published: our motion against their numbers, each as closely as its source can bear.

The numbers and where they come from are in `tests/references`. Unless a test says otherwise it runs the
default solver and formulation at `TIGHT`, where the measured errors are ten to a thousand times below the
tolerances.
"""

from functools import cache
from typing import Literal

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from tests import planar_examples as examples
from tests.numeric import worst
from tests.references.tables import columns, table

TIGHT = 1e-12  # rtol and atol
SPREAD = 1e-5  # [rad], of the uprights of A02: larger means a wrong branch
DG_DK, G = 0.33344810613, 3.3366067994828  # [J s m/N], [J s]: SUNDIALS' slider-crank, high precision

# φ1, w1, φ2, w2 of the two joints at the end [rad, rad/s], by Dymola with DASSL at 1e-6, and how far the
# published curves are from the high-precision ones over the whole run.
PUBLISHED_DOUBLE_PENDULUM = (-2.3179285616, 4.0941101973, -1.7364916692, -0.0503767046)
DEVIATION_DOUBLE_PENDULUM = (1.3e-5, 8.7e-5, 4.3e-5, 2.0e-4)
PUBLISHED_FOUR_BAR = (-0.9397833956, 6.9934901146)
DEVIATION_FOUR_BAR = (7.1e-4, 3.9e-3)


def signals(solution: mbd.Solution, *names: str) -> np.ndarray:
    return np.stack([np.asarray(value) for value in solution.read(names).values()], axis=-1)


@cache
def tight(name: str, example: str, *arguments: object) -> tuple[mbd.Solution, dict[str, np.ndarray]]:
    """The motion of an example at the times of a reference table, at `TIGHT`, and the table."""
    data = table(name)
    built = getattr(examples, example)(*arguments)
    return built.simulate(data["t"], rtol=TIGHT, atol=TIGHT), data


# --- IFToMM A01: pendulum -------------------------------------------------------------------------


def test_a01_moves_and_keeps_its_energy_as_the_closed_form() -> None:
    solution, data = tight("iftomm_a01", "pendulum")
    found = solution.read(["P", "vP", "energy"])
    assert worst(found["P"] - columns(data, "x", "y")) < 1e-8
    assert worst(found["vP"] - columns(data, "vx", "vy")) < 1e-7
    assert worst(found["energy"]) < 1e-7


def test_a01_reaction_is_that_of_the_closed_form() -> None:
    """With the centre 0.5 m from O: 2 m g cos φ along the rod, and half the weight's share across it."""
    solution, data = tight("iftomm_a01", "pendulum")
    x, y = data["x"], data["y"]  # unit vector from O along the rod; cos φ = −y
    along, across = 2 * 9.81 * y, 0.5 * 9.81 * x
    expected = along[:, None] * columns(data, "x", "y") + across[:, None] * np.stack([-y, x], axis=-1)
    assert worst(solution.reaction("O", body="rod").force - expected) < 1e-7


# --- IFToMM A02: N-four-bar, through its singular positions ---------------------------------------


def spread(solution: mbd.Solution) -> float:
    """The largest difference between the angles of the vertical rods, which stay parallel [rad]."""
    return worst(np.ptp(np.asarray(solution.q)[:, 2:9:3], axis=1))


@pytest.mark.parametrize("tolerance", [1e-11, 1e-12, 1e-13])
def test_a02_follows_the_closed_form_through_twenty_singular_positions(tolerance: float) -> None:
    data = table("iftomm_a02")
    solution = examples.four_bars(2).simulate(data["t"], rtol=tolerance, atol=tolerance)
    found = solution.read(["B0", "vB0", "energy"])
    assert worst(found["B0"] - columns(data, "x_B0", "y_B0")) < 1e-5
    assert worst(found["vB0"] - columns(data, "vx_B0", "vy_B0")) < 1e-4
    assert worst(found["energy"] - 35.835) < 1e-5
    assert spread(solution) < SPREAD


@pytest.mark.parametrize("solver", [dfx.Tsit5, dfx.Dopri5, dfx.Dopri8, dfx.Bosh3], ids=lambda s: s.__name__)
def test_a02_stays_on_its_branch_with_every_solver(solver: type[dfx.AbstractSolver]) -> None:
    """To the library's own bounds, 1e-1 m of "low" and 1e-3 m of "high precision", at loose tolerances.

    With Tsit5 at 1e-10 rounding decides (docs/methods.md).
    """
    data = table("iftomm_a02")
    for tolerance, error in ((1e-6, 1e-1), (1e-8, 1e-3), (1e-10, 1e-4))[: 2 if solver is dfx.Tsit5 else 3]:
        solution = examples.four_bars(2).simulate(data["t"], solver=solver(), rtol=tolerance, atol=tolerance)
        assert spread(solution) < SPREAD, tolerance
        assert worst(solution["B0"] - columns(data, "x_B0", "y_B0")) < error, tolerance


def test_a02_stays_on_its_branch_with_heun() -> None:
    data = table("iftomm_a02")
    solution = examples.four_bars(2).simulate(data["t"], solver=dfx.Heun(), rtol=1e-6, atol=1e-6)
    assert spread(solution) < SPREAD
    assert worst(solution["B0"] - columns(data, "x_B0", "y_B0")) < 2e-2


# --- Andrews' squeezing mechanism -----------------------------------------------------------------

ANDREWS = ("beta", "Theta", "gamma", "Phi", "delta", "Omega", "epsilon")


def andrews_angles(solution: mbd.Solution, component: str = "theta") -> np.ndarray:
    names = [f"b{i}.{component}" for i in range(1, 8)]
    return np.asarray(examples.andrews_coordinates(list(solution.read(names).values())))


@pytest.mark.parametrize("problem", ["iftomm_a03", "andrews_ivp"])
def test_andrews_follows_the_curve(problem: str) -> None:
    solution, data = tight(problem, "andrews", problem)
    speeds = columns(data, *(f"{name}_dot" for name in ANDREWS))
    assert worst(andrews_angles(solution) - columns(data, *ANDREWS)) < 1e-8
    assert worst(andrews_angles(solution, "omega") - speeds) < 1e-7 * worst(speeds)


@pytest.mark.parametrize("problem", ["iftomm_a03", "andrews_ivp"])
def test_andrews_balances_its_energy(problem: str) -> None:
    """What the motor puts in, 0.033 N m times the turn, is what the mechanism gains."""
    solution, _ = tight(problem, "andrews", problem)
    found = solution.read(["energy", "potential_energy", "b1.theta"])
    gained, turned = (found[name] - found[name][0] for name in ("energy", "b1.theta"))
    assert worst(gained - 0.033 * turned) < 1e-8
    start = {"iftomm_a03": 1.43579637794387, "andrews_ivp": 1.43579639916167}[problem]
    assert abs(float(found["potential_energy"][0]) - start) < 1e-12


def test_a03_moves_pin_f_as_computed_and_as_the_library_shows() -> None:
    solution, data = tight("iftomm_a03", "andrews", "iftomm_a03")
    assert worst(solution["pin F"] - columns(data, "x_F", "y_F")) < 1e-10
    shown = table("iftomm_a03_library")
    times = np.unique(shown["t"])
    again = examples.andrews("iftomm_a03").simulate(times, rtol=TIGHT, atol=TIGHT)
    axis = np.where(shown["signal"] == "x_F", 0, 1)
    ours = np.asarray(again["pin F"])[np.searchsorted(times, shown["t"]), axis]
    assert worst(ours - shown["value"]) < 3e-8


def test_a03_ends_at_the_exact_state() -> None:
    solution, data = tight("iftomm_a03", "andrews", "iftomm_a03")
    q, rates = (columns(data, *(name + dot for name in ANDREWS))[-1] for dot in ("", "_dot"))
    assert worst(andrews_angles(solution)[-1] / q - 1) < 1e-8
    assert worst(andrews_angles(solution, "omega")[-1] / rates - 1) < 1e-7


def test_andrews_ivp_ends_at_the_exact_and_the_published_state() -> None:
    solution, _ = tight("andrews_ivp", "andrews", "andrews_ivp")
    end = table("andrews_ivp_end")
    q, rates = andrews_angles(solution)[-1], andrews_angles(solution, "omega")[-1]
    assert worst(q / end["exact"][:7] - 1) < 1e-8
    assert worst(rates / end["exact"][7:] - 1) < 1e-7
    assert worst(q / end["published"][:7] - 1) < 1e-8
    assert worst(rates / end["published"][7:] - 1) < 1e-6


# --- slider-cranks --------------------------------------------------------------------------------


def test_sundials_slider_crank_follows_the_curve() -> None:
    solution, data = tight("sundials_slider_crank", "sundials_slider_crank")
    found = signals(solution, "crank.theta", "rod.x", "rod.theta", "crank.omega", "rod.vx", "rod.omega")
    assert worst(found - columns(data, "q", "x", "p", "q_dot", "x_dot", "p_dot")) < 1e-8


def test_sundials_slider_crank_agrees_with_the_published_table() -> None:
    published = table("sundials_slider_crank_published")
    times, place = np.unique(published["t"], return_inverse=True)
    solution = examples.sundials_slider_crank().simulate(times, rtol=TIGHT, atol=TIGHT)
    found = signals(solution, "crank.theta", "rod.x", "rod.theta")[place]
    assert worst(found - columns(published, "q", "x", "p")) < 6e-5


def sundials_integral(stiffness: Array, derivative: Literal["forward", "reverse"]) -> Array:
    """`G`, the integral of the kinetic energy over 10 s [J s]."""
    example = examples.sundials_slider_crank()
    mechanism = eqx.tree_at(lambda m: m["spring"].stiffness, example.mechanism, stiffness)
    solution = mbd.simulate(
        mechanism, example.state(), [0.0, 10.0], rtol=TIGHT, atol=TIGHT,
        quadratures=["kinetic_energy"], adjoint=derivative,
    )  # fmt: skip
    return solution.quadratures["kinetic_energy"][-1]


def test_sundials_integral_grows_as_the_curve() -> None:
    example, data = examples.sundials_slider_crank(), table("sundials_slider_crank")
    solution = example.simulate(data["t"], rtol=TIGHT, atol=TIGHT, quadratures=["kinetic_energy"])
    assert worst(solution.quadratures["kinetic_energy"] - data["G"]) < 1e-9
    assert abs(float(solution.quadratures["kinetic_energy"][-1]) - G) < 1e-9


def test_sundials_gradient_of_the_integral_in_forward_mode() -> None:
    k = jnp.array(1.0)
    value, slope = jax.jvp(lambda x: sundials_integral(x, "forward"), (k,), (jnp.ones_like(k),))
    assert abs(float(value) - G) < 1e-9
    assert abs(float(slope) - DG_DK) < 1e-8


@pytest.mark.slow
def test_sundials_gradient_of_the_integral_in_reverse_mode() -> None:
    value, slope = jax.value_and_grad(lambda x: sundials_integral(x, "reverse"))(jnp.array(1.0))
    assert abs(float(value) - G) < 1e-9
    assert abs(float(slope) - DG_DK) < 1e-8


def test_planar_slider_crank_follows_the_curve() -> None:
    solution, data = tight("planar_slider_crank", "slider_crank")
    found = solution.read(["crank.theta", "crank.omega", "slider.x", "slider.vx", "kinetic_energy"])
    assert worst(found["crank.theta"] - data["crank_angle"]) < 1e-8
    assert worst(found["crank.omega"] - data["crank_speed"]) < 1e-6
    assert worst(found["slider.x"] - data["x_slider"]) < 1e-9
    assert worst(found["slider.vx"] - data["vx_slider"]) < 1e-6
    assert worst(found["kinetic_energy"] - 0.1 * found["crank.theta"]) < 1e-8


def test_planar_slider_crank_agrees_with_the_published_curve() -> None:
    published = table("planar_slider_crank_published")
    solution = examples.slider_crank().simulate(published["t"], rtol=TIGHT, atol=TIGHT)
    found = signals(solution, "crank.theta", "crank.omega")
    assert worst(found[:, 0] - published["crank_angle"]) < 2e-3
    assert worst(found[:, 1] - published["crank_speed"]) < 1e-1


# --- Modelica Standard Library --------------------------------------------------------------------


def test_modelica_double_pendulum() -> None:
    solution, data = tight("modelica_double_pendulum", "modelica_double_pendulum")
    found = signals(solution, *(f"revolute{i}.angle{rate}" for i in (1, 2) for rate in ("", "_rate")))
    error = found - columns(data, "revolute1.phi", "revolute1.w", "revolute2.phi", "revolute2.w")
    assert worst(error[:, ::2]) < 1e-8
    assert worst(error[:, 1::2]) < 1e-7
    assert (np.abs(found[-1] - PUBLISHED_DOUBLE_PENDULUM) < 2 * np.array(DEVIATION_DOUBLE_PENDULUM)).all()


def test_modelica_planar_four_bar() -> None:
    solution, data = tight("modelica_planar_fourbar", "modelica_four_bar")
    found = signals(solution, "revolute1.angle", "revolute1.angle_rate")
    error = found - columns(data, "revolute1.phi", "revolute1.w")
    assert worst(error[:, 0]) < 1e-8
    assert worst(error[:, 1]) < 1e-7
    assert (np.abs(found[-1] - PUBLISHED_FOUR_BAR) < 2 * np.array(DEVIATION_FOUR_BAR)).all()
