"""What runs a motion: engines give the same motion, are chosen by name, and say why they run one."""

import re
from functools import partial
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.analyses.simulation import native_motion
from jaxmbd.engine import choice
from tests.marks import in_both_coordinates


def pendulum(length: Any = 0.5) -> pl.Mechanism:
    rod = pl.Body("rod", 1.3, 0.1, (0.5, 0.0, 0.0))
    return pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-length))], [pl.Gravity()])


@in_both_coordinates("joint")
def test_engines_give_the_same_motion_and_derivatives(coordinates: str) -> None:
    """Interpreter and straight-line code to the last bit, in lanes too; diffrax to rounding."""
    mechanism = pendulum().with_coordinates(coordinates)
    state, ts = mbd.assemble(mechanism, {"O.angle": 0.7}), jnp.linspace(0.0, 0.8, 5)

    def run(scale: Any, engine: Any) -> tuple[Any, Any]:
        heavier = eqx.tree_at(lambda m: m.bodies[0].inertia, mechanism, replace_fn=lambda x: x * scale)
        solution = mbd.simulate(heavier, state, ts, rtol=1e-6, engine=engine, throw=False)
        return solution.q, solution.stats.get("engine", 0)

    def all_of(engine: Any) -> list[np.ndarray]:
        end = lambda scale: jnp.sum(run(scale, engine)[0][-1])  # noqa: E731
        scales = jnp.linspace(0.5, 2.0, 11)
        (q, number), gradient = jax.vmap(lambda x: run(x, engine))(scales), jax.vmap(jax.grad(end))(scales)
        (tangent,) = jax.jvp(end, (jnp.asarray(1.3),), (jnp.asarray(1.0),))[1:]
        assert set(np.asarray(number).tolist()) == {("diffrax", "interpreter", "native").index(engine)}
        return [np.asarray(x) for x in (q, gradient, tangent)]

    interpreted, native, diffraxs = map(all_of, ("interpreter", "native", "diffrax"))
    for ours, same, like in zip(interpreted, native, diffraxs, strict=True):
        np.testing.assert_array_equal(same, ours)
        np.testing.assert_allclose(like, ours, rtol=1e-8, atol=1e-10)


def test_the_classical_method_is_that_of_diffraxs_loop() -> None:
    mechanism = pendulum()
    state, ts = mbd.assemble(mechanism, {"O.angle": 0.7}), jnp.linspace(0.0, 0.5, 8)
    run = lambda engine: mbd.simulate(  # noqa: E731
        mechanism,
        state,
        ts,
        solver=mbd.RungeKutta4(),
        stepsize_controller=dfx.ConstantStepSize(),
        dt0=0.013,
        engine=engine,
    )
    ours, diffraxs = run("interpreter"), run("diffrax")
    assert (ours.engine, diffraxs.engine) == ("interpreter", "diffrax")
    np.testing.assert_allclose(ours.q, diffraxs.q, atol=1e-13)
    np.testing.assert_allclose(ours.v, diffraxs.v, atol=1e-12)
    assert int(ours.stats["num_steps"]) == int(diffraxs.stats["num_steps"]) == 39


class Rounding(mbd.AbstractProjectedFormulation):
    """A user's formulation that does what it likes after each step."""

    def check(self, mechanism: Any, freedom: int) -> None:
        pass

    def begin(self, equations: Any, t: Any, q: Any) -> "Rounding":
        return self

    def motion(self, equations: Any, t: Any, q: Any, v: Any) -> Any:
        return mbd.Stabilized().motion(equations, t, q, v)

    def settle(self, equations: Any, t: Any, q: Any, v: Any) -> tuple[Any, Any, Any]:
        return self, q, v


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (
            {"solver": dfx.Kvaerno3()},
            "whose solver is neither an explicit Runge-Kutta method nor Radau or Gauss (Kvaerno3)",
        ),
        (
            {"formulation": Rounding()},
            "whose formulation changes the state after each step (Rounding)",
        ),
        ({"stepsize_controller": dfx.StepTo([0.0, 0.05, 0.1])}, "with another step-size controller (StepTo)"),
        ({"adjoint": dfx.RecursiveCheckpointAdjoint()}, "with another adjoint (RecursiveCheckpointAdjoint)"),
        ({"progress": True}, "with a progress bar"),
    ],
)
def test_what_the_virtual_machine_cannot_run_is_said(settings: dict[str, Any], reason: str) -> None:
    mechanism = pendulum()
    state = mbd.assemble(mechanism, {"O.angle": 0.7})
    refusal = f"engine='native' cannot run a motion {reason}. Leave engine out"
    with pytest.raises(mbd.MechanismError, match=re.escape(refusal)):
        mbd.simulate(mechanism, state, [0.0, 0.1], engine="native", **settings)
    solution = mbd.simulate(mechanism, state, [0.0, 0.1], **settings)
    assert solution.engine == "diffrax"
    assert solution.engine_reason == f"diffrax's loop runs a motion {reason.split(' (')[0]}"


def test_why_an_engine_ran_is_said_of_each_motion_of_a_batch() -> None:
    mechanism = pendulum()
    state = mbd.assemble(mechanism, {"O.angle": 0.7})
    run = lambda t: mbd.simulate(mechanism, state, jnp.stack([jnp.zeros(()), t]), engine="interpreter")  # noqa: E731
    reasons = jax.vmap(run)(jnp.array([0.1, 0.2])).engine_reason
    assert reasons.shape == (2,)
    assert re.fullmatch(
        r"a program of \d+ operations at each stage is interpreted until it has run 300,000 .*", reasons[1]
    )
    asked = mbd.simulate(mechanism, state, [0.0, 0.1], engine="diffrax")
    assert asked.engine_reason.endswith("for which engine='diffrax' was asked")
    attributes = asked.to_xarray(["O.angle"]).attrs
    assert attributes["engine_reason"] == asked.engine_reason
    assert "hindrance" not in attributes
    driven = mechanism.with_parts([pl.Driver("motor", "O.angle", lambda t: t)])
    assert mbd.kinematics(driven, [0.0, 0.1]).engine_reason == ""


def test_what_is_no_program_is_said_and_a_machine_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A force that iterates until it is accurate; and a computer on which nothing could be compiled."""
    halved = lambda x: jax.lax.while_loop(lambda x: jnp.abs(x) > 0.1, lambda x: 0.5 * x, x)  # noqa: E731
    mechanism = pendulum().with_parts([pl.JointForce("brake", "O.angle", lambda t, angle, rate, _: -halved(rate))])
    state = mbd.assemble(mechanism, {"O.angle": 0.7})
    solution = mbd.simulate(mechanism, state, [0.0, 0.1])
    assert (solution.engine, solution.engine_reason.split(":")[0]) == (
        "diffrax",
        "diffrax's loop runs a motion whose right-hand side is no program",
    )
    monkeypatch.setattr(native_motion, "vm", lambda: None)
    state = mbd.assemble(pendulum(), {"O.angle": 0.7})
    alone = mbd.simulate(pendulum(), state, [0.0, 0.1], max_steps=777)  # which nothing else has compiled
    assert alone.engine_reason.endswith("without the virtual machine, which needs a C compiler once")


def test_a_reason_tells_the_size_of_the_program() -> None:
    assert choice.reason("native", 0, 4707) == "a program of 4,707 operations at each stage runs as compiled code"
    large = choice.reason("interpreter", 0, choice.STRAIGHT_OPERATIONS + 1)
    assert large.endswith(
        "20,001 operations at each stage is interpreted: for more than 20,000 compiling takes minutes"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", mbd.examples.names())
def test_examples_as_straight_line_code(name: str) -> None:
    """100 steps in joint coordinates are those of the interpreter to the last bit, alone and in lanes.

    Not in lanes for the Stewart platform: the compiler takes most of a minute for that code."""
    example = mbd.examples.get(name).with_coordinates("joint")
    state, ts = example.state(), np.array([0.0, 0.01])

    def run(engine: Any, scale: Any) -> Any:
        heavier = eqx.tree_at(lambda m: m.bodies[-1].mass, example.mechanism, replace_fn=lambda x: x * scale)
        solution = mbd.simulate(
            heavier, state, ts, solver=dfx.Tsit5(), stepsize_controller=dfx.ConstantStepSize(), dt0=1e-4,
            engine=engine, throw=False,
        )  # fmt: skip
        return solution.q[-1], solution.v[-1]

    alone, in_lanes = lambda f: f(1.0), lambda f: jax.vmap(f)(jnp.linspace(0.9, 1.1, 5))
    for several in (alone,) if name == "stewart-platform" else (alone, in_lanes):
        found, expected = (several(partial(run, engine)) for engine in ("native", "interpreter"))
        assert all(np.isfinite(x).all() for x in expected)
        jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.usefixtures("as_a_user_runs_it")
def test_engines_are_known_by_name() -> None:
    mechanism = pendulum()
    state = mbd.assemble(mechanism, {"O.angle": 0.7})
    with pytest.raises(mbd.MechanismError, match=r"'gpu'.*'auto', 'diffrax', 'interpreter', 'native'"):
        mbd.simulate(mechanism, state, [0.0, 0.1], engine="gpu")  # pyright: ignore
    read = jax.jit(lambda v: jnp.asarray(len(mbd.simulate(mechanism, eqx.tree_at(lambda s: s.v, state, v), ts).engine)))
    ts = jnp.array([0.0, 0.1])
    with pytest.raises(mbd.MechanismError, match="The engine of a motion is not known inside jit or vmap"):
        read(state.v)
