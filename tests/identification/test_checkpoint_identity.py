"""A checkpoint is taken for the fit that wrote it alone: other data, mechanisms, noise, settings, laws are refused."""

import functools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.identification import Parameter, Positive, Problem
from jaxmbd.identification._checkpoint import Checkpoint
from jaxmbd.identification._identity import identity_of_fit
from jaxmbd.numerics.stepwise_search import SearchState
from tests.identification.swings import MASS, plain_pendulum

TS = np.linspace(0.0, 0.4, 5)
ONE = mbd.Experiment(TS, {"O.angle": 0.3 * np.cos(5 * TS)}, {"O.angle": 0.3}, {"O.angle": 0.0}, sigma=1e-2)
LAW = "what the model computes"


def problem(mechanism: Any = None, experiment: mbd.Experiment = ONE, **options: Any) -> Problem:
    return Problem(mechanism or plain_pendulum(), experiment, {"mass": MASS}, **options)


def identity(one: Problem, *starts: Any) -> dict[str, str]:
    return identity_of_fit(one, [one.unconstrained(one.start()), *starts])


def with_law(power: int) -> pl.Mechanism:
    """A drag whose source text is the same for all powers: a remembered function gives them."""
    remembered = functools.cache(lambda: power)
    drag = pl.JointForce("drag", "O.angle", lambda t, x, v, p: -0.1 * jnp.abs(v) ** remembered() * v)
    bar = plain_pendulum()
    return bar.with_parts([drag])


def changed(where: Any, value: Any) -> mbd.Experiment:
    return eqx.tree_at(where, ONE, value)


OTHERS: dict[str, tuple[Any, set[str]]] = {
    "values": (
        lambda: problem(None, changed(lambda x: x.data["O.angle"], ONE.data["O.angle"] + 0.1)),
        {"the measurements"},
    ),
    "times": (lambda: problem(None, changed(lambda x: x.ts, ONE.ts * 1.1)), {"the measurements"}),
    "start": (
        lambda: problem(None, changed(lambda x: x.start["O.angle"], ONE.start["O.angle"] * 2)),
        {"what is given of the initial states"},
    ),
    "sigma": (
        lambda: problem(None, changed(lambda x: x.sigma["O.angle"], ONE.sigma["O.angle"] * 2)),
        {"the noise of the measurements"},
    ),
    "mechanism": (
        lambda: problem(plain_pendulum(viscous=0.2)),
        {"the numbers of the mechanism, its parameters and instruments"},
    ),
    "noise": (lambda: problem(noise="white"), {"the kind of noise"}),
    "settings": (lambda: problem(rtol=1e-5, atol=1e-7), {"the settings of simulate"}),
    "loss": (lambda: problem(loss="huber"), {LAW}),
    "start of the search": (
        lambda: Problem(plain_pendulum(), ONE, {"mass": Parameter(MASS.where, start=2.0, within=Positive())}),
        {"the starts of the search"},
    ),
}


@pytest.fixture(scope="module")
def own() -> dict[str, str]:
    return identity(problem())


def test_the_same_fit_made_anew_has_the_same_identity(own: dict[str, str]) -> None:
    assert identity(problem()) == own


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_is_named(own: dict[str, str], name: str) -> None:
    other, said = OTHERS[name]
    now = identity(other())
    differing = {part for part in own if own[part] != now[part]}
    assert said <= differing <= {*said, LAW, "the numbers of the mechanism, its parameters and instruments"}


def test_a_law_behind_a_cache_counts() -> None:
    one, same, other = (identity(problem(with_law(power))) for power in (1, 1, 2))
    assert one == same
    assert {part for part in one if one[part] != other[part]} == {LAW}


def test_a_checkpoint_of_other_data_is_refused(tmp_path: Path) -> None:
    path, one = tmp_path / "fit.npz", problem()
    stored = Checkpoint(path, one.names(), identity(one))
    stored.save([SearchState(np.array([0.2]), history=[3.0])])
    other = changed(lambda x: x.data["O.angle"], ONE.data["O.angle"] + 0.1)
    with pytest.raises(
        mbd.MechanismError, match=r"belongs to another fit\. What differs: the measurements\. Name another"
    ):
        mbd.fit(problem(None, other), checkpoint=path, progress=False)
    with pytest.raises(mbd.MechanismError, match=r"What differs: the starts of the search\."):
        mbd.fit(one, starts=2, checkpoint=path, progress=False)
    with pytest.warns(mbd.FitWarning, match="used up its 1 steps"):
        went_on = mbd.fit(one, steps=1, checkpoint=path, progress=False)
    assert went_on.history[0] == 3.0
