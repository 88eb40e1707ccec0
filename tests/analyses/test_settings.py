"""The settings of an integration: by an object, by name and by both; checks, print, and who tells them apart."""

import dataclasses
import typing
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.simulation.settings import Settings
from jaxmbd.engine.calls.identity import traced_identity
from jaxmbd.identification import Problem
from jaxmbd.identification._identity import identity_of_fit
from tests.identification.swings import MASS, plain_pendulum

TS = np.linspace(0.3, 1.3, 5)
CROSSING = mbd.Event("low", "bar.y", below=-9.0, then=mbd.LogOnly())
OTHERS: dict[str, Any] = {
    "formulation": mbd.Projection(), "solver": dfx.Tsit5(), "accuracy": "high", "rtol": 1e-6, "atol": 1e-5,
    "stepsize_controller": dfx.PIDController(rtol=1e-5, atol=1e-6), "control_speeds": True, "adjoint": "forward",
    "error_weights": {"*": 0.5},
    "events": [CROSSING], "max_events": 3, "switching_times": [0.41], "dt0": 1e-3, "dtmin": 1e-5, "max_steps": 99,
    "closure_tolerance": 1e-4, "engine": "diffrax",
}  # fmt: skip
"""Another value of each setting than the default."""


def start_of(mechanism: Any) -> mbd.State:
    at = {"O.angle": 0.4} if isinstance(mechanism, pl.Mechanism) else None
    return mbd.assemble(mechanism, at, t=TS[0], check=False)


def test_each_setting_is_a_keyword_with_a_type_and_is_documented() -> None:
    names = [field.name for field in dataclasses.fields(mbd.Integration)]
    assert sorted(typing.get_type_hints(Settings)) == sorted(names) == sorted(OTHERS)
    types = {"events", "switching_times", "error_weights"}  # they become tuples and an array
    fields, keywords = typing.get_type_hints(mbd.Integration), typing.get_type_hints(Settings)
    assert {name: fields[name] for name in names if name not in types} == {
        name: keywords[name] for name in names if name not in types
    }
    assert all(f"`{name}`" in (mbd.Integration.__doc__ or "") for name in names)


@pytest.mark.parametrize("mechanism", [plain_pendulum(), plain_pendulum().with_coordinates("absolute")])
def test_the_same_motion_by_object_by_name_and_by_both(mechanism: Any) -> None:
    start = start_of(mechanism)
    names: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-9, "solver": dfx.Tsit5(), "max_steps": 500}
    by_name = mbd.simulate(mechanism, start, TS, **names)
    mixed = mbd.Integration(rtol=1e-9, **{name: names[name] for name in ("atol", "solver", "max_steps")})
    for other in (
        mbd.simulate(mechanism, start, TS, mbd.Integration(**names)),
        mbd.simulate(mechanism, start, TS, mixed, rtol=1e-3),  # the name has precedence
        mbd.simulate(mechanism, start, TS, dataclasses.replace(mixed, rtol=1e-3)),
    ):
        np.testing.assert_array_equal(other.q, by_name.q)
        assert int(other.stats["num_steps"]) == int(by_name.stats["num_steps"])
    finer = mbd.simulate(mechanism, start, TS, mixed)
    assert int(finer.stats["num_steps"]) > int(by_name.stats["num_steps"])


def test_a_step_of_a_loop_takes_the_object() -> None:
    mechanism = plain_pendulum()
    start, coarse = start_of(mechanism), mbd.Integration(solver=mbd.RungeKutta4(), dt0=0.1)
    by_name = mbd.step(mechanism, start, 0.2, solver=mbd.RungeKutta4(), dt0=0.1)
    np.testing.assert_array_equal(mbd.step(mechanism, start, 0.2, coarse).q, by_name.q)
    assert float(abs(mbd.step(mechanism, start, 0.2, coarse, dt0=0.01).q - by_name.q).max()) > 1e-9
    for most in ({"max_steps": 1}, {"max_steps": 2}):  # 256 only where it is said by none
        ended = mbd.step(mechanism, start, 0.2, dataclasses.replace(coarse, **most), throw=False).result
        assert (ended == mbd.RESULTS.successful) == (most["max_steps"] == 2)
    latching = mbd.Integration(events=[mbd.Event("low", "bar.y", below=0.0, then=mbd.Latch("O.angle"))])
    with pytest.raises(mbd.MechanismError, match="the event 'low' changes, by Latch"):
        mbd.step(mechanism, start, 0.2, latching)


def test_a_tolerance_may_be_an_array_of_a_batch() -> None:
    """The motion of each tolerance is that of this tolerance alone, in space and compiled too."""
    body = sp.Body("b", 1.0, (0.1, 0.2, 0.3))
    mechanism = sp.Mechanism([body], [sp.Spherical("S", sp.ground.at(), body.at(0.0, 0.4, 0.1))], [sp.Gravity()])
    start = mbd.assemble(mechanism, speeds={"b.omega_y": 3.0})
    ts, tolerances = np.linspace(0.0, 0.4, 3), np.array([1e-3, 1e-6, 1e-10])
    one = lambda how: mbd.simulate(mechanism, start, ts, how, atol=1e-12)  # noqa: E731
    hows = jax.vmap(lambda rtol: mbd.Integration(rtol=rtol))(jnp.asarray(tolerances))
    batch = jax.jit(jax.vmap(one))(hows)
    steps = np.asarray(batch.stats["num_accepted_steps"])
    assert (np.diff(steps) > 0).all()
    for k, rtol in enumerate(tolerances):
        alone = one(mbd.Integration(rtol=rtol))
        assert int(alone.stats["num_accepted_steps"]) == steps[k]
        np.testing.assert_allclose(batch.q[k], alone.q, rtol=0.0, atol=1e-8)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "misspelt": ({"atoll": 1e-9}, "There is no setting of {} named 'atoll'. Did you mean 'atol'?"),
    "unknown": ({"xyz": 1}, "There is no setting of {} named 'xyz'. Known names: 'formulation', 'solver'"),
    "rtol": ({"rtol": -1.0}, "rtol must be zero or positive"),
    "max_events": ({"max_events": 0}, "max_events must be at least 1, got 0."),
    "dt0": ({"dt0": np.ones(2)}, "dt0 must be a number, got shape (2,)."),
    "dtmin": ({"dtmin": 0.0}, "dtmin must be positive [s]"),
    "closure_tolerance": ({"closure_tolerance": np.inf}, "closure_tolerance must be a positive number [m, rad]"),
    "solver": ({"solver": "soft"}, "solver must be 'stiff', 'auto' or a diffrax solver"),
    "accuracy": ({"accuracy": "low"}, "accuracy must be 'standard' or 'high', got 'low'."),
    "adjoint": ({"adjoint": "back"}, "adjoint must be 'any', 'reverse', 'forward' or a diffrax adjoint"),
    "engine": ({"engine": "steam"}, "There is no engine named 'steam'."),
    "events": ({"events": CROSSING}, "events must be a sequence of events, such as [low], got one Event."),
    "switching_times": ({"switching_times": 0.3}, "switching_times must be a sequence of finite times [s], got 0.3."),
    "two controllers": (
        {"stepsize_controller": dfx.ConstantStepSize(), "rtol": 1e-3}, "rtol has no effect beside a controller of your",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_setting_is_refused_wherever_it_is_given(case: str) -> None:
    given, text = WRONG[case]
    mechanism = plain_pendulum()
    start, measured = start_of(mechanism), mbd.Experiment(TS, {"O.angle": np.zeros(5)})
    uses: dict[str, Any] = {
        "simulate": lambda: mbd.simulate(mechanism, start, TS, **given),
        "step": lambda: mbd.step(mechanism, start, 0.1, **given),
        "Problem": lambda: Problem(mechanism, measured, {"mass": MASS}, **given),
    }
    for function, use in uses.items():
        with pytest.raises(mbd.MechanismError) as error:
            use()
        assert text.format(function) in str(error.value)
    with pytest.raises(mbd.MechanismError) as error:
        mbd.Integration(**given)
    assert text.replace(" of {}", "") in str(error.value)


def test_what_is_no_integration_and_values_put_into_one() -> None:
    mechanism = plain_pendulum()
    start = start_of(mechanism)
    wrong: Any = mbd.Projection()
    with pytest.raises(mbd.MechanismError, match="simulate: integration must be an Integration"):
        mbd.simulate(mechanism, start, TS, wrong)
    put = eqx.tree_at(lambda i: i.rtol, mbd.Integration(rtol=1e-6), -1.0)
    with pytest.raises(mbd.MechanismError, match="rtol must be zero or positive"):
        mbd.simulate(mechanism, start, TS, put)
    with pytest.raises(mbd.MechanismError, match="Did you mean 'throw'"):
        mbd.simulate(mechanism, start, TS, trow=False)  # pyright: ignore[reportCallIssue]


def test_print_shows_what_differs_from_the_defaults() -> None:
    shown = {
        "": mbd.Integration(rtol=None, events=(), switching_times=[], engine="auto"),
        "solver='stiff', rtol=1e-09, max_steps=100": mbd.Integration(max_steps=100, rtol=1e-9, solver="stiff"),
        "rtol=1e-09": mbd.Integration(rtol=jnp.asarray(1e-9)),
        "formulation=Projection(base=Stabilized()), events=[low]": mbd.Integration(
            events=[CROSSING], formulation=mbd.Projection()
        ),
        "switching_times=[0.3 0.7], dt0=0.01": mbd.Integration(switching_times=[0.3, 0.7], dt0=0.01),
        "formulation=Augmented(alpha=5.0, beta=6.0)": mbd.Integration(formulation=mbd.Augmented(5.0, 6.0)),
    }
    assert [repr(one) for one in shown.values()] == [f"Integration({text})" for text in shown]
    inside: list[str] = []
    jax.jit(lambda x: inside.append(repr(mbd.Integration(rtol=x))))(jnp.asarray(1e-9, float))
    assert inside == ["Integration(rtol=f64[])"]


# What diffrax runs holds objects of its own, which have no identity.
BY_DIFFRAX = ("stepsize_controller", "engine")


def identities(how: mbd.Integration) -> tuple[Any, Any]:
    """Those of a fit and of the function of a sweep."""
    mechanism = plain_pendulum()
    start, measured = start_of(mechanism), mbd.Experiment(TS, {"O.angle": 0.1 * TS}, {"O.angle": 0.3})
    fit = Problem(mechanism, measured, {"mass": MASS}, integration=how)

    def variant(mass: Any) -> Any:
        return mbd.simulate(mbd.with_numbers(mechanism, {"bar.mass": mass}), start, TS, how, throw=False).q

    return identity_of_fit(fit, [fit.unconstrained(fit.start())]), traced_identity(variant, 1.3)


@pytest.fixture(scope="module")
def usual() -> tuple[Any, Any]:
    return identities(mbd.Integration())


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in (*BY_DIFFRAX, "max_events")])
def test_another_setting_is_another_fit_and_another_sweep(name: str, usual: tuple[Any, Any]) -> None:
    """So that a checkpoint or a store is taken up by no computation with other settings."""
    others = identities(mbd.Integration(**{name: OTHERS[name]}))
    assert others[0] != usual[0]
    assert others[1] != usual[1]


@pytest.mark.parametrize("name", BY_DIFFRAX)
def test_what_cannot_be_told_from_another_fit_is_refused(name: str) -> None:
    with pytest.raises(mbd.MechanismError, match="a checkpoint serves only a fit that computes the same"):
        identities(mbd.Integration(**{name: OTHERS[name]}))
