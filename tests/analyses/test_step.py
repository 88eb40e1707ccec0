"""`step` and states in loops of JAX: one structure of all states, and the motion of `simulate` in any loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import MechanismError, State
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from tests.marks import in_both_coordinates
from tests.planar_examples import at_rest, slider_crank

INERTIA, SPRING = 1 / 12, 3.0


def torque(t: Any, angle: Any, rate: Any, p: Any) -> Any:
    return p["held"] + p["swing"] * jnp.sin(5.0 * t) - 0.1 * rate


def pendulum(coordinates: str = "absolute", held: Any = 0.0) -> pl.Mechanism:
    rod = pl.Body("rod", 1.0, INERTIA, (0.0, -0.5, 0.0))
    motor = pl.JointForce("motor", "O.angle", torque, {"held": held, "swing": 0.5})
    pin = pl.Revolute("O", pl.ground.at(), rod.at(0.0, 0.5))
    return pl.Mechanism([rod], [pin], [pl.Gravity(9.81), motor], coordinates=coordinates)


def driven(coordinates: str = "absolute") -> sp.Mechanism:
    """A rod in space on a turntable whose motion is prescribed over time."""
    table, rod = sp.Body("table", 2.0, (0.1, 0.1, 0.2)), sp.Body("rod", 0.7, (0.01, 0.02, 0.025), (0.5, 0, 0))
    joints = [
        sp.Revolute("O", sp.ground.at(axis="z"), table.at(axis="z")),
        sp.Revolute("P", table.at(0.2, axis="y"), rod.at(-0.1, axis="y")),
    ]
    drive = sp.Driver("drive", "O.angle", lambda t: 3.0 * t + 0.2 * jnp.sin(7.0 * t))
    return sp.Mechanism([table, rod], joints, [sp.Gravity()], [drive], coordinates=coordinates)


def rolled_out(mechanism: Any, state: State, dt: Any, steps: int, **settings: Any) -> State:
    advance = lambda s, _: (mbd.step(mechanism, s, dt, **settings), None)  # noqa: E731
    return jax.lax.scan(advance, state, length=steps)[0]


def form(state: State) -> Any:
    """What a loop of JAX compares: the structure, and the types of the leaves."""
    leaves, tree = jax.tree.flatten(state)
    return tree, [(np.shape(x), jnp.asarray(x).dtype, jax.typeof(x).weak_type) for x in leaves]


def test_all_states_of_a_mechanism_have_one_structure(tmp_path: Path) -> None:
    mechanism = pendulum()
    start = mbd.assemble(mechanism, {"O.angle": 0.4})
    motion = mbd.simulate(mechanism, start, [0.0, 0.4])
    mbd.save(mechanism, tmp_path / "rod.toml", state=start)
    text = (tmp_path / "rod.toml").read_text()
    (tmp_path / "unknown.toml").write_text("\n".join(line for line in text.splitlines() if "rank =" not in line))
    mbd.save(motion, tmp_path / "rod.nc")
    states = {
        "motion": motion.state(-1),
        "first": motion.state(0),
        "text": mbd.load_state(mechanism, tmp_path / "rod.toml"),
        "text without a rank": mbd.load_state(mechanism, tmp_path / "unknown.toml"),
        "data": mbd.load_state(mechanism, tmp_path / "rod.nc"),
        "step": mbd.step(mechanism, start, 0.1),
    }
    for name, state in states.items():
        assert form(state) == form(start), name
    ranks = {name: int(state.rank) for name, state in states.items()}
    unknown = {"text without a rank": -1, "data": -1}
    assert ranks == dict.fromkeys(states, 2) | unknown
    assert "2 independent constraint rows" in repr(states["motion"])
    assert "independent" not in repr(states["data"])


@pytest.mark.slow
def test_states_of_events_and_equilibria() -> None:
    mechanism = pendulum()
    start = mbd.assemble(mechanism, {"O.angle": 0.4})
    wall = mbd.Event("wall", "O.angle", below=0.2, then=mbd.Bounce(0.5))
    log = mbd.simulate(mechanism, start, [0.0, 0.4], events=[wall], max_events=4).events
    assert log is not None
    for state in (log.state(0), log.state(0, "before"), mbd.equilibrium(mechanism, start).state):
        assert form(state) == form(start)
        assert int(state.rank) == 2


@pytest.mark.slow
def test_states_of_prescribed_motions_and_modes() -> None:
    mechanism = driven()
    start = mbd.assemble(mechanism, {"P.angle": 0.3})
    locked = mechanism.with_parts([sp.Driver("hold", "P.angle", lambda t: 0.3 + t)])
    before = mbd.assemble(locked)
    motion = mbd.kinematics(locked, [0.0, 0.1], before)
    assert form(motion.state(-1)) == form(before)
    assert int(motion.state(-1).rank) == 12
    modes = mbd.assembly_modes(locked, tries=8)
    assert form(modes[0]) == form(before)
    by_hand = mbd.State(start.t, start.q, start.v, start.layout)
    assert int(by_hand.rank) == -1


@in_both_coordinates("absolute")
@pytest.mark.parametrize("make", [pendulum, pytest.param(driven, marks=pytest.mark.slow)])
def test_one_step_is_the_motion_over_the_interval(make: Callable[[str], Any], coordinates: str) -> None:
    mechanism = make(coordinates)
    joint = "O.angle" if make is pendulum else "P.angle"
    start = mbd.assemble(mechanism, {joint: 3.0}, speeds={joint: 20.0}, t=0.7)
    whole = mbd.simulate(mechanism, start, np.linspace(0.7, 1.5, 5))
    for again in (mbd.step(mechanism, start, 0.8), eqx.filter_jit(mbd.step)(mechanism, start, 0.8)):
        np.testing.assert_allclose(again.t, 1.5, rtol=1e-15)
        np.testing.assert_allclose(again.q, whole.q[-1], rtol=0, atol=1e-8)
        np.testing.assert_allclose(again.v, whole.v[-1], rtol=0, atol=1e-6)
    turned = float(mbd.read(mechanism, rolled_out(mechanism, start, 0.1, 8), joint))
    assert turned > 4 * np.pi  # whole turns are counted from step to step
    np.testing.assert_allclose(turned, whole[joint][-1], rtol=0, atol=1e-7)


def test_states_are_carries_of_all_loops() -> None:
    mechanism = pendulum()
    start = mbd.assemble(mechanism, {"O.angle": 0.4}, speeds={"O.angle": 1.0})
    expected = mbd.simulate(mechanism, start, np.linspace(0.0, 0.3, 4)).q
    go = lambda s: mbd.step(mechanism, s, 0.1)  # noqa: E731

    @jax.jit
    def loops(start: State) -> Any:
        scanned = jax.lax.scan(lambda s, _: (mbd.simulate(mechanism, s, s.t + jnp.array([0.0, 0.1])).state(-1), s.q),
            start, length=3)  # fmt: skip
        while_true = jax.lax.while_loop(lambda s: s.t < 0.25, go, start)
        return scanned, while_true, jax.lax.cond(start.t < 1.0, go, lambda s: s, start)

    (end, qs), looped, once = loops(start)
    np.testing.assert_allclose(np.vstack([qs, end.q]), expected, atol=1e-8)
    np.testing.assert_allclose(looped.q, expected[-1], atol=1e-8)
    np.testing.assert_allclose(once.q, expected[1], atol=1e-8)


@in_both_coordinates("joint")
def test_derivatives_through_steps_are_those_of_the_motion(coordinates: str) -> None:
    """With respect to a torque and the length of the step, in both modes, in a batch."""
    settings: Any = {"rtol": 1e-10, "atol": 1e-12}

    def stepped(held: Any, dt: Any) -> Any:
        mechanism = pendulum(coordinates, held)
        end = rolled_out(mechanism, mbd.assemble(mechanism, {"O.angle": 0.4}), dt, 4, **settings)
        return mbd.read(mechanism, end, "O.angle") + mbd.read(mechanism, end, "rod.vy")

    def simulated(held: Any, dt: Any) -> Any:
        mechanism = pendulum(coordinates, held)
        motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.4}), 4 * dt * jnp.arange(2), **settings)
        return motion["O.angle"][-1] + motion["rod.vy"][-1]

    inputs = jnp.array([0.3, -0.8]), jnp.array([0.1, 0.07])
    expected = np.stack(jax.jit(jax.vmap(jax.grad(simulated, (0, 1))))(*inputs))
    reverse = np.stack(jax.jit(jax.vmap(jax.grad(stepped, (0, 1))))(*inputs))
    forward = np.stack(jax.jit(jax.vmap(jax.jacfwd(stepped, (0, 1))))(*inputs))
    np.testing.assert_allclose(reverse, expected, rtol=1e-6)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)


@pytest.mark.slow
def test_steps_go_on_from_the_drift_of_the_ones_before() -> None:
    """Long steps leave the joints open by more than an assembled state may be, 1e-6 m."""
    example = slider_crank(0.4, 10.0)
    mechanism, state = example.mechanism, example.state()
    settings: Any = {"solver": mbd.RungeKutta4(), "dt0": 0.02}
    exact = mbd.simulate(mechanism, state, [0.0, 0.48], accuracy="high")
    end = rolled_out(mechanism, state, 0.04, 12, **settings)
    soon = np.asarray(end.t) + np.array([0.0, 0.01])
    on = mbd.simulate(mechanism, end, soon, continued=True)
    assert 1e-6 < np.abs(np.asarray(on.violation().position)[0]).max() < 1e-3
    np.testing.assert_allclose(end["slider.x"], exact["slider.x"][-1], atol=1e-2)
    with pytest.raises(mbd.AssemblyError, match="continued=True"):
        mbd.simulate(mechanism, end, soon)
    with pytest.raises(mbd.AssemblyError, match="not assembled"):
        mbd.step(mechanism, eqx.tree_at(lambda s: s.q, end, end.q.at[0].add(0.1)), 0.01)


def test_a_failure_is_kept_by_later_steps() -> None:
    """A batch of rollouts, one of which runs away: its verdict and its values stay so, those of the other do not."""
    mechanism = pendulum()
    start = mbd.assemble(mechanism, {"O.angle": 0.4})

    def end(scale: Any) -> State:
        run_away = pl.JointForce("run", "O.angle", lambda t, q, w, p: p * w**3, scale)
        wild = mechanism.with_parts([run_away])
        pushed = eqx.tree_at(lambda s: s.v, start, mbd.assemble(wild, {"O.angle": 0.4}, speeds={"O.angle": 3.0}).v)
        return rolled_out(wild, pushed, 0.1, 4, throw=False, max_steps=300)

    ends = jax.jit(jax.vmap(end))(jnp.array([0.0, 5.0]))
    np.testing.assert_array_equal(ends.result == mbd.RESULTS.successful, [True, False])
    np.testing.assert_array_equal(np.isfinite(ends.q).all(axis=1), [True, False])
    assert not (ends.result == mbd.RESULTS.not_assembled).any()


def test_what_a_state_cannot_hold_is_refused() -> None:
    mechanism = pendulum()
    start = mbd.assemble(mechanism, {"O.angle": 0.4})
    catch = mbd.Event("catch", "O.angle", below=0.2, then=mbd.Latch())
    with pytest.raises(MechanismError, match="the event 'catch' changes, by Latch, would end with the step"):
        mbd.step(mechanism, start, 0.1, events=[catch])
    with pytest.raises(MechanismError, match="holds no quadratures"):
        mbd.step(mechanism, start, 0.1, quadratures=["energy"])  # pyright: ignore[reportCallIssue]
    for dt, text in ((0.0, "positive"), (-0.1, "positive"), (np.nan, "finite"), (np.ones(2), "shape")):
        with pytest.raises(MechanismError, match=text):
            mbd.step(mechanism, start, dt)
    with pytest.raises(MechanismError, match="ts must increase"):
        mbd.step(mechanism, eqx.tree_at(lambda s: s.t, start, jnp.asarray(1e9)), 1e-9)


@pytest.mark.slow
def test_a_bounce_within_a_step() -> None:
    mechanism = pendulum()
    start = mbd.assemble(mechanism, {"O.angle": 0.4})
    wall = mbd.Event("wall", "O.angle", below=0.2, then=mbd.Bounce(0.5))
    whole = mbd.simulate(mechanism, start, [0.0, 0.25, 0.5], events=[wall], max_events=4)
    assert int(whole.events.count) > 0  # pyright: ignore[reportOptionalMemberAccess]
    end = mbd.step(mechanism, mbd.step(mechanism, start, 0.25, events=[wall]), 0.25, events=[wall])
    np.testing.assert_allclose(end.q, whole.q[-1], atol=1e-7)


def test_a_state_by_hand_goes_round_a_loop() -> None:
    mechanism = pendulum("joint")
    start = at_rest(mechanism, [0.4])
    expected = mbd.simulate(mechanism, start, np.linspace(0.0, 0.2, 3))
    np.testing.assert_allclose(rolled_out(mechanism, start, 0.1, 2).q, expected.q[-1], atol=1e-8)
