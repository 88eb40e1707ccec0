"""The constants of a motor together with the mechanics that it drives, from a position and the current alone."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import identification as ident
from jaxmbd import planar as pl
from tests.motors import slider_crank

TRUE = {"motor.constant": 0.05, "motor.resistance": 1.0, "bearing.coulomb": 0.3, "slider.mass": 1.0}
LEVELS = {"O.angle": 1e-3, "motor.current": 0.02}  # [rad], [A]
TIMES = np.linspace(0.0, 1.0, 81)


def voltage(t: Any) -> Any:
    return 12.0 + 6.0 * jnp.sin(6.0 * t) + 3.0 * jnp.sin(23.0 * t)


def driven(values: dict[str, float]) -> pl.Mechanism:
    """A slider-crank with the given numbers; its crank turns one way."""
    base = slider_crank("joint", voltage=voltage)
    bearing = pl.JointFriction("bearing", "O.angle", coulomb=0.1, width=0.1)
    return mbd.with_numbers(base.replacing(forces=[*base.forces[:2], bearing]), values)


@pytest.mark.slow
def test_constants_and_standard_errors_over_many_records() -> None:
    """Of 12 records with other noise: errors are as large as their standard errors say, none of them too large."""
    mechanism = driven(TRUE)
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.3}), TIMES, accuracy="high")

    def record(seed: int) -> ident.Experiment:
        draws = np.random.default_rng(seed)
        data = {name: np.asarray(motion[name]) + level * draws.normal(size=81) for name, level in LEVELS.items()}
        return ident.Experiment(TIMES, data, start={"O.angle": 0.3}, sigma=LEVELS)

    free = {name: ident.Positive() for name in TRUE}
    guess = driven({name: value * factor for (name, value), factor in zip(TRUE.items(), (1.1, 1.2, 0.7, 1.2))})  # noqa: B905
    fits = ident.fit_many([ident.Problem(guess, record(k), free) for k in range(12)], progress=False)
    assert all(fit.outcome == "converged" for fit in fits)
    assert fits[0].units["motor.resistance"] == "Ω"
    errors = []
    for fit in fits:
        assert fit.standard_errors is not None
        errors.append([(fit.parameters[name] - x) / fit.standard_errors[name] for name, x in TRUE.items()])
        assert all(fit.standard_errors[name] < 1e-2 * x for name, x in TRUE.items())
    assert np.abs(errors).max() < 4.0
    squares = np.mean(np.square(errors), axis=0)  # of 12: they are within these bounds in some 99.9 % of cases
    assert np.all((squares > 0.15) & (squares < 2.8))
