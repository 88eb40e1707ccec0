"""Parameters of parts with states of their own: by name, from measured speeds and currents."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import identification as ident
from jaxmbd.analyses.multiple_shooting import StateChart
from tests.motors import held_arm

TRUE = {"motor.constant": 0.05, "motor.inductance": 0.02, "motor.current": 1.5}


def measured(noise: float = 0.0) -> ident.Experiment:
    mechanism = held_arm("joint", 9.0, inductance=TRUE["motor.inductance"], current=TRUE["motor.current"])
    ts = np.linspace(0.0, 0.4, 41)
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": -1.0}), ts, accuracy="high")
    rng = np.random.default_rng(4)
    data = {name: np.asarray(motion[name]) for name in ("O.angle_rate", "motor.current")}
    data = {name: x + noise * rng.normal(size=x.shape) for name, x in data.items()}
    return ident.Experiment(ts, data, start={"O.angle": -1.0}, sigma={"O.angle_rate": 0.01, "motor.current": 0.02})


@pytest.mark.slow
def test_a_motor_is_identified_with_the_current_at_its_start() -> None:
    guess = held_arm("joint", 9.0, constant=0.07, inductance=0.05, current=0.0)
    free = {name: ident.Positive() for name in ("motor.constant", "motor.inductance")}
    found = mbd.fit(ident.Problem(guess, measured(), {**free, "motor.current": ident.Unbounded()}), progress=False)
    for name, value in TRUE.items():
        np.testing.assert_allclose(found.parameters[name], value, rtol=1e-5, err_msg=name)
        assert found.units[name] == {"motor.constant": "N m/A", "motor.inductance": "H", "motor.current": "A"}[name]


def test_segments_say_that_they_have_no_states_of_parts() -> None:
    with pytest.raises(mbd.MechanismError, match=r"the states of parts, 'motor\.current'"):
        ident.Problem(held_arm("joint"), measured(), free=["motor.constant"], segments=2)


def test_a_chart_of_states_has_the_states_of_parts() -> None:
    mechanism = held_arm("joint")
    chart = StateChart(("O.angle",), ("O.angle",), ("motor.current",))
    state = chart.state(mechanism, jnp.asarray([0.5, -1.0, 2.5]), 0.1)
    np.testing.assert_allclose([state["O.angle_rate"], state["O.angle"], state["motor.current"]], [0.5, -1.0, 2.5])
    np.testing.assert_allclose(chart.numbers(mechanism, state), [0.5, -1.0, 2.5], rtol=1e-12)
    np.testing.assert_allclose(chart.scales(mechanism)[2], 1.0)
