"""FMUs as parts: their motions, events, samples and derivatives, against exact solutions and other parts."""

from pathlib import Path
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from tests.c_code import compiler
from tests.io.fmus import STEP, crank, pendulum, response, solution_of
from tests.io.small_fmus import small_fmu
from tests.marks import slow_but
from tests.numeric import worst

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")
# Of the oscillator of Van der Pol, mu = 1, from (2, 0), to 1e-12.
AT_20, BY_MU = (2.008149762175, -0.0425088752732), (0.105818637, 4.06549481)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fmus")


@pytest.fixture(scope="module")
def oscillator(folder: Path) -> Any:
    """The part alone: its states move nothing."""
    path = small_fmu(folder, "VanDerPol")
    return alone(mbd.import_fmu(path, "vdp", outputs=["x0", "der(x1)"], parameters={"mu": 1.0}))


def alone(part: Any) -> Any:
    return pl.Mechanism([pl.Body("body", mass=1.0, inertia=1.0)], [], []).with_parts([part])


def hanging(*parts: Any) -> Any:
    rod = pl.Body("rod", mass=1.0, inertia=1 / 12, pose=(0.0, -0.5, 0.0))
    pin = pl.Revolute("O", pl.ground.at(), rod.at(0.0, 0.5))
    return pl.Mechanism([rod], [pin], [pl.Gravity()], coordinates="joint").with_parts(parts)


def ends(mechanism: Any, mu: Any = 1.0) -> Any:
    mechanism = mbd.with_numbers(mechanism, {"vdp.parameters[mu]": mu})
    times = np.linspace(0.0, 20.0, 3)
    return mbd.simulate(mechanism, mbd.assemble(mechanism), times, rtol=1e-12, atol=1e-12, max_steps=10_000)


@pytest.mark.slow
def test_its_states_are_states_of_the_mechanism(oscillator: Any) -> None:
    motion = ends(oscillator)
    assert worst(motion.z[-1] - np.array(AT_20)) < 1e-9
    x, (_, rate) = motion.z[-1], motion["vdp.output"][-1]
    assert abs(rate - ((1 - x[0] ** 2) * x[1] - x[0])) < 1e-12
    assert motion.engine == "diffrax"
    assert "code of others, which runs outside of kernels: FmuPart 'vdp'" in motion.engine_reason


@pytest.mark.slow
@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_the_derivative_of_a_motion_is_that_of_the_fmu(oscillator: Any, jacobian: Any) -> None:
    assert worst(jacobian(lambda mu: ends(oscillator, mu).z[-1])(1.0) - np.array(BY_MU)) < 1e-8


def test_the_derivatives_of_its_law(oscillator: Any) -> None:
    """Forward, reverse, in batches and compiled, by states and parameters."""
    part = oscillator["vdp"]

    def law(x: Any, mu: Any) -> Any:
        new = mbd.with_numbers(oscillator, {"vdp.state": x, "vdp.parameters[mu]": mu})["vdp"]
        return jnp.concatenate([new.own_rates(jnp.zeros(()), jnp.zeros(0)), new.output(jnp.zeros(()), jnp.zeros(0))])

    def exact(x: Any, mu: Any) -> Any:
        bend = mu * (1 - x[0] ** 2) * x[1] - x[0]
        return jnp.stack([x[1], bend, x[0], bend])

    x, mu = jnp.array([0.7, -1.3]), jnp.asarray(1.9)
    assert part.output(jnp.zeros(()), jnp.zeros(0)).shape == (2,)
    assert worst(law(x, mu) - exact(x, mu)) == 0.0
    for transform in (jax.jacfwd, jax.jacrev):
        for which in (0, 1):
            found, right = (jax.jit(transform(f, which))(x, mu) for f in (law, exact))
            assert worst(found - right) < 1e-15
    xs, mus = jnp.stack([x, 2 * x, -x]), jnp.array([0.0, 1.0, 3.0])
    assert worst(jax.vmap(law)(xs, mus) - jax.vmap(exact)(xs, mus)) == 0.0
    with pytest.raises(mbd.MechanismError, match="first derivatives alone"):
        jax.hessian(lambda x: law(x, mu)[1])(x)


def test_calls_depend_on_their_arguments_alone(oscillator: Any) -> None:
    """In any order, with parameters that come and go: more than there are instances."""
    part = oscillator["vdp"]
    rate = lambda mu: part.code.evaluated(*map(np.asarray, (0.0, [0.5, 2.0], [], [mu], [])))[1]  # noqa: E731
    mus = [*np.linspace(0.0, 5.0, 12), 1.0, 0.0, 5.0]
    assert [rate(mu) for mu in mus] == [mu * 0.75 * 2.0 - 0.5 for mu in mus]


def bounces(count: int) -> np.ndarray:
    """The instants at which a ball, let go 1 m above the ground, hits it, with e = 0.7."""
    first, restitution = np.sqrt(2 / 9.81), 0.7
    return first * (1 + 2 * np.cumsum(np.r_[0.0, restitution ** np.arange(1, count)]))


@pytest.mark.slow
def test_what_was_exported_with_a_law_with_kinks_moves_as_before(tmp_path: Path) -> None:
    """An absorber that a servo holds between stops, on a cart: its kinks are events here as they are there."""

    def rail(name: str, mass: float) -> tuple[Any, Any]:
        body = pl.Body(name, mass, 1.0)
        return body, pl.Prismatic(f"{name}_rail", pl.ground.at(), body.at())

    def servo(**given: Any) -> pl.PID:
        return pl.PID("hold", "absorber.x", 0.0, kp=10.0, kd=0.2, rate="absorber.vx", drives="absorber.fx", **given)

    (body, joint), (cart, way) = rail("absorber", 0.1), rail("cart", 1.0)
    stop = pl.Backlash("stop", "absorber_rail.displacement", 200.0, damping=0.3, play=0.06)
    back = pl.Scaled("back", "hold.output", -1.0)
    absorber = pl.Mechanism([body], [joint], [stop], sensors=[back], coordinates="joint", controllers=[servo()])
    mbd.export_fmu(absorber, tmp_path / "a.fmu", inputs=["hold.reference"], outputs=["back"])
    part = mbd.import_fmu(tmp_path / "a.fmu", "a", {"hold.reference": "cart.x"}, outputs=["back"], drives="cart.fx")
    spring = pl.JointSpringDamper("spring", "cart_rail.displacement", 100.0, 0.0)
    mechanism = pl.Mechanism([cart], [way], [spring], coordinates="joint").with_parts([part])
    pull = pl.Controller("pull", "back", lambda t, u, _: u[0], "cart.fx")
    whole = pl.Mechanism(
        [cart, body], [way, joint], [spring, stop], sensors=[back], coordinates="joint",
        controllers=[servo(follows="cart.x"), pull],
    )  # fmt: skip
    times, start = np.linspace(0.0, 2.0, 41), {"cart_rail.displacement": 0.1}
    settings: Any = {"rtol": 1e-9, "atol": 1e-10, "max_events": 200}
    found = mbd.simulate(mechanism, mbd.assemble(mechanism, start), times, **settings)
    wanted = mbd.simulate(whole, mbd.assemble(whole, start | {"absorber_rail.displacement": 0.0}), times, **settings)
    np.testing.assert_allclose(found["cart.x"], wanted["cart.x"], atol=1e-7)
    assert found.events is not None
    assert int(found.events.count) > 20
    assert "a.guards[0]" in str(found.events)  # whether they graze needs second derivatives, which there are not
    assert "successful" in str(found)


@pytest.mark.slow
def test_its_event_indicators_are_events(folder: Path) -> None:
    path = small_fmu(folder, "BouncingBall", "blind", providesDirectionalDerivatives=False)
    mechanism = alone(mbd.import_fmu(path, "ball", outputs=["h"]))
    times = np.linspace(0.0, 4.0, 41)
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism), times, rtol=1e-10, atol=1e-12, max_events=20)
    assert motion.events is not None
    found = np.asarray(motion.events.times)[: int(motion.events.count)]
    assert motion.events.names == ("ball.guards[0]",)
    assert worst(found[:5] - bounces(5)) < 1e-9
    # From the twelfth on it rests: the acceleration is a discrete state, in its memory.
    assert len(found) == 12
    assert worst(motion["ball.output"][times > found[-1]]) < 1e-300
    k = np.flatnonzero((times > found[0]) & (times < found[1]))
    since, v = times[k] - found[0], 0.7 * np.sqrt(2 * 9.81)
    assert worst(motion["ball.output"][k] - (v * since - 9.81 / 2 * since**2)) < 1e-9


@pytest.mark.slow
def test_derivatives_beyond_an_event_are_an_error(folder: Path) -> None:
    mechanism = alone(mbd.import_fmu(small_fmu(folder, "BouncingBall"), "ball", parameters={"e": 0.7}))

    def height(e: Any) -> Any:
        bouncy = mbd.with_numbers(mechanism, {"ball.parameters[e]": e})
        return mbd.simulate(bouncy, mbd.assemble(bouncy), np.linspace(0.0, 0.6, 3), max_events=2).z[-1, 0]

    with pytest.raises(mbd.MechanismError, match="FMI has no derivatives of the changes of states at events"):
        jax.grad(height)(0.7)


def euler(t: Any, u: Any, x: Any, k: Any) -> Any:
    """What the lag does from sample to sample; `x`: its state, whether it has begun, what it has read."""
    y = jnp.where(x[1] == 0, x[0], x[0] + 0.05 * k * (x[2] - x[0]))
    return y, jnp.stack([y, 1.0 + 0.0 * y, u[0]])


@pytest.mark.slow
def test_co_simulation_is_a_sampled_part(folder: Path) -> None:
    """The same as a law of Python that does the same, which runs natively."""
    path = small_fmu(folder, "Lag")
    unit = mbd.import_fmu(path, "lag", {"u": "O.angle"}, ["y"], "O.angle", parameters={"k": 3.0}, period=0.05)
    state = [1.0, 0.0, 0.0]
    law = pl.SampledController("lag", "O.angle", euler, 0.05, "O.angle", state=state, parameters=3.0)
    motions = []
    for part in (unit, law):
        mechanism = hanging(part)
        state = mbd.assemble(mechanism, {"O.angle": 0.5})
        motions.append(mbd.simulate(mechanism, state, np.linspace(0.0, 1.0, 11), rtol=1e-10, atol=1e-10))
    found, right = motions
    assert (found.engine, right.engine) == ("diffrax", "interpreter")
    assert worst(found.q - right.q) < 1e-12
    assert worst(found["lag.output"] - right["lag.output"]) < 1e-12
    mechanism = hanging(unit)
    with pytest.raises(mbd.MechanismError, match="no derivatives of the steps of co-simulation"):
        jax.grad(lambda a: mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": a}), [0.0, 0.1]).q[-1, 0])(0.5)


@pytest.mark.slow
def test_a_lag_is_a_low_pass(folder: Path) -> None:
    """In a loop with a mechanism, with derivatives by what it reads: small motions."""
    path = small_fmu(folder, "Lag")
    unit = mbd.import_fmu(path, "lag", {"u": "O.angle"}, ["y"], "O.angle", parameters={"k": 3.0})
    same = pl.LowPass("lag", "O.angle", 3.0, drives="O.angle", value=1.0)
    systems = []
    for part in (unit, same):
        mechanism = hanging(part)
        systems.append(mbd.linearize(mechanism, mbd.assemble(mechanism, {"O.angle": 0.5})))
    assert worst(systems[0].A - systems[1].A) < 1e-14


UNITS = {"3.0": pendulum, "2.0": lambda: pendulum("2.0"), "joint": lambda: crank("joint")}


@pytest.mark.parametrize("name", slow_but(["2.0"], UNITS))
def test_an_exported_mechanism_has_the_same_rates_and_derivatives(name: str) -> None:
    unit = UNITS[name]()
    numbers = {k: float(v) for n in unit.parameters for k, v in mbd.numbers(unit.mechanism, n).items()}
    others = {n: x if "position" in n else 1.1 * x for n, x in numbers.items()}  # lengths would move the start
    part = mbd.import_fmu(unit.path, "unit", outputs=unit.states, parameters=others)
    assert sorted(part.parameters) == sorted(numbers)  # it has derivatives by all of them
    x = np.concatenate([unit.state.q, unit.state.v, unit.state.z])
    assert worst(part.state - x) < 1e-12
    p = np.array([others[n] for n in unit.parameters])
    law = lambda x, p: response(unit)(jnp.zeros(()), x, jnp.zeros(len(unit.inputs)), p)[0]  # noqa: E731

    def rates(x: Any, p: Any) -> Any:
        new = mbd.with_numbers(
            alone(part),
            {"unit.state": x} | {f"unit.parameters[{n}]": v for n, v in zip(unit.parameters, p, strict=True)},
        )
        return new["unit"].own_rates(jnp.zeros(()), jnp.zeros(0))

    assert worst(rates(x, p) - law(x, p)) < 1e-12 * worst(law(x, p))
    if name == "3.0":
        for which in (0, 1):
            found, right = jax.jacfwd(rates, which)(x, p), jax.jacfwd(law, which)(x, p)
            assert worst(found - right) < 1e-12 * max(1.0, worst(right))


@pytest.mark.slow
@pytest.mark.parametrize("name", UNITS)
def test_an_exported_mechanism_moves_as_it_did(name: str) -> None:
    """As model exchange by the same steps; as co-simulation with its own."""
    unit, times = UNITS[name](), np.linspace(0.0, 0.2, 21)
    right = solution_of(unit)
    states = np.concatenate([right.q, right.integrated_speeds, right.z], axis=1)
    exchange = alone(mbd.import_fmu(unit.path, "unit"))
    method: Any = {
        "solver": mbd.RungeKutta4(), "dt0": STEP, "stepsize_controller": dfx.ConstantStepSize(),
    }  # fmt: skip
    found = mbd.simulate(exchange, mbd.assemble(exchange), times, **method)
    assert worst(found.z - states) < 1e-12 * worst(states)
    stepped = alone(mbd.import_fmu(unit.path, "unit", outputs=[*unit.states, "energy"], period=0.01))
    found = mbd.simulate(stepped, mbd.assemble(stepped), times)["unit.output"]
    named = np.stack([right[one] for one in (*unit.states, "energy")], axis=1)
    assert worst(found[:-1] - named[:-1]) < 1e-12 * worst(
        named
    )  # what is given at the end is that of the sample before
