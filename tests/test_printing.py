"""What `print` shows of results: names, values with units and how it went; and inside `jit` and `vmap`, shapes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.time_scales import STABLE, TimeScales

ROD = pl.Body("rod", 1.0, 0.1, (0.5, 0.0, 0.0))
PENDULUM = pl.Mechanism([ROD], [pl.Revolute("O", pl.ground.at(), ROD.at(-0.5))], [pl.Gravity()])
TIMES = jnp.array([0.0, 0.2])


@pytest.fixture(scope="module")
def state() -> mbd.State:
    return mbd.assemble(PENDULUM, {"rod.theta": 0.3}, speeds={"rod.omega": 2.0})


@pytest.fixture(scope="module")
def solution(state: mbd.State) -> mbd.Solution:
    return mbd.simulate(PENDULUM, state, TIMES, quadratures=["energy"])


@pytest.fixture(scope="module")
def hanging() -> mbd.Equilibrium:
    return mbd.equilibrium(PENDULUM, {"rod.theta": -1.4})


def shown(value: Any) -> str:
    """What `print` and the prompt show, which is the same."""
    assert repr(value) == str(value)
    return str(value)


def words(value: Any) -> list[list[str]]:
    """The words of each line."""
    return [line.split() for line in shown(value).splitlines()]


def test_state(state: mbd.State) -> None:
    assert shown(state).splitlines()[0] == "State at t = 0 s, 3 coordinates, 3 speeds, 2 independent constraint rows"
    heading, row = shown(state).splitlines()[1:]
    assert heading.split("  ")[-1] == "omega [rad/s]"
    assert heading.split() == [
        "x",
        "[m]",
        "y",
        "[m]",
        "theta",
        "[rad]",
        "vx",
        "[m/s]",
        "vy",
        "[m/s]",
        "omega",
        "[rad/s]",
    ]
    name, *numbers = row.split()
    assert name == "rod"
    np.testing.assert_allclose(np.array(numbers, float), [*state.q, *state.v], rtol=1e-5)


def test_state_of_joints_and_of_chosen_speeds() -> None:
    own = PENDULUM.with_coordinates("joint", speeds=pl.GeneralizedSpeeds("u", lambda t, q, p, _: 2 * p))
    state = mbd.assemble(own, {"O.angle": 0.3}, speeds={"u": 1.5})
    assert words(state)[1:] == [["angle", "[rad]"], ["O", "0.3"], ["value"], ["u", "1.5"]]


def test_state_in_space() -> None:
    ball = sp.Body("ball", 1.0, (0.1, 0.1, 0.1))
    mechanism = sp.Mechanism([ball], [sp.Spherical("S", sp.ground.at(), ball.at())])
    lines = shown(mbd.assemble(mechanism)).splitlines()
    assert "x [m]  y [m]  z [m]  e0  e1  e2  e3  vx [m/s]" in lines[1]
    assert lines[2].split()[:8] == ["ball", "0", "0", "0", "1", "0", "0", "0"]


def test_long_states_are_cut() -> None:
    bodies = [pl.Body(f"b{k}", 1.0, 0.1, (float(k), 0.0, 0.0)) for k in range(30)]
    lines = shown(mbd.assemble(pl.Mechanism(bodies))).splitlines()
    assert len(lines) == 27
    assert lines[-1] == "... and 6 more"


def test_solution(solution: mbd.Solution) -> None:
    lines = shown(solution).splitlines()
    steps = int(solution.stats["num_steps"])
    assert lines[0] == "Solution at 2 times, 0 to 0.2 s: successful"
    assert lines[1].startswith(f"by Stabilized, {steps} steps")
    assert lines[1].endswith("quadratures of energy")
    assert lines[2].split() == ["start", "end", "least", "largest"]
    assert lines[3].split()[:2] == ["rod.x", "[m]"]
    theta = np.asarray(solution.q[:, 2])
    np.testing.assert_allclose(np.array(lines[5].split()[2:], float), [*theta, theta.min(), theta.max()], rtol=1e-5)
    assert lines[6] == f"solution[name] reads any of {len(solution.names)} quantities, which solution.names lists."


def test_solution_that_failed(state: mbd.State) -> None:
    failed = mbd.simulate(PENDULUM, state, TIMES, max_steps=2, throw=False)
    assert shown(failed).splitlines()[0].endswith(mbd.RESULTS[mbd.RESULTS.max_steps_reached])


def test_violation_and_reaction(solution: mbd.Solution) -> None:
    violation = solution.violation()
    text = shown(violation)
    assert text.startswith("Violation, the largest over 2 times and 2 constraint rows: position ")
    assert f"position {float(jnp.max(jnp.abs(violation.position))):.2g} (m or rad)" in text
    reaction = solution.reaction("O")
    lines = shown(reaction).splitlines()
    assert lines[0] == "Reaction on body 'rod', world axes, moment about the joint's marker, at 2 times"
    assert [line.split()[0] for line in lines[2:]] == ["fx", "fy", "moment"]
    force = np.asarray(reaction.force[:, 1])
    np.testing.assert_allclose(np.array(lines[3].split()[2:4], float), force, rtol=1e-5)


def test_events(state: mbd.State) -> None:
    def watched(*events: mbd.Event) -> mbd.Solution:
        return mbd.simulate(PENDULUM, state, jnp.array([0.0, 0.6]), events=events)

    stop = mbd.Event("stop", "O.angle", below=-0.2, then=mbd.Bounce(0.5))
    solution = watched(stop, mbd.Event("mark", "rod.y", below=-0.05, then=mbd.LogOnly()))
    log = solution.events
    assert log is not None
    happened = list(log)
    lines = words(log)
    assert lines[0] == f"Events: {len(happened)}, with room for 32".split()
    assert lines[1] == ["event", "t", "[s]", "impulse"]
    assert (
        [line[0] for line in lines[2:]] == [name for name, _ in happened] == ["mark", "stop", "mark"][: len(happened)]
    )
    assert float(lines[2][1]) == pytest.approx(happened[0][1], rel=1e-5)
    assert lines[3][-3:] == ["N", "m", "s"]
    assert float(lines[3][2]) == pytest.approx(float(log.impulse[1]), rel=1e-5)
    assert f"{len(happened)} event" in shown(solution).splitlines()[1]
    assert shown(watched(mbd.Event("far", "rod.y", below=-9.0)).events) == "Events: none happened of 'far'"


def test_equilibrium(hanging: mbd.Equilibrium) -> None:
    lines = shown(hanging).splitlines()
    assert lines[0] == f"Equilibrium, at rest, stable (found in {int(hanging.steps)} steps)"
    assert lines[1].startswith("State at t = 0 s")
    held = mbd.equilibrium(PENDULUM, fixed={"O.angle": 0.2})
    assert shown(held).splitlines()[0].endswith("; held: O.angle")


def test_path_and_linear_system(hanging: mbd.Equilibrium) -> None:
    path = mbd.equilibrium_path(PENDULUM, lambda m: m["rod"].mass, [1.0, 2.0, 3.0], {"rod.theta": -1.4})
    assert shown(path).splitlines() == ["EquilibriumPath of 3 points, 1 to 3", "1 to 3: stable"]
    system = mbd.linearize(PENDULUM, hanging)
    frequency = float(system.modes().frequencies[0])
    assert shown(system).splitlines()[0] == "Linearised at t = 0 s, at rest."
    assert words(system.modes())[1][:2] == ["0", f"{frequency:.5g}"]


def test_a_mechanism_says_where_it_lives() -> None:
    ball = sp.Body("ball", 1.0, 0.1 * np.eye(3))
    assert shown(PENDULUM).startswith("Mechanism in the plane, 3 absolute coordinates, 3 speeds")
    assert shown(sp.Mechanism([ball], [])).startswith("Mechanism in space, 7 absolute coordinates, 6 speeds")


def test_time_scales_describe_the_fastest_motion() -> None:
    """Not one of the others: eigenvalues are sorted, the fastest first."""
    slow, fast = -3.0 + 0j, 200j * np.pi
    vibrating = TimeScales(np.array([fast, -fast, slow]), "spring", ("rod.omega",))
    assert "vibrates at 100 Hz, by the force 'spring'" in shown(vibrating)
    assert f"below about {STABLE / (200 * np.pi):.2g} s" in shown(vibrating)
    for value, kind in ((-1e3, "decays"), (1e3, "grows")):
        text = shown(TimeScales(np.array([value + 0j, 200j, -200j]), "", ("rod.omega",)))
        assert f"{kind} with a time constant of 0.001 s. It holds" in text


def test_sentences(state: mbd.State) -> None:
    """Those whose docstrings promise one."""
    assert shown(mbd.redundancy(PENDULUM, state)) == (
        "2 constraint rows of rank 2, none redundant; 1 degree of freedom."
    )
    assert shown(mbd.time_scales(PENDULUM, state)).startswith("The fastest motion, of 'rod.omega'")
    assert shown(mbd.describe(PENDULUM, state)).startswith("The system has 1 degree of freedom.")
    a, b = pl.Body("a", 1.0, 0.1, (0.5, 0.1, 0.2)), pl.Body("b", 1.0, 0.1, (1.0, 0.1, -0.2))
    dyad = pl.Mechanism(
        [a, b],
        [
            pl.Revolute("A", pl.ground.at(), a.at(-0.5)),
            pl.Revolute("B", a.at(0.5), b.at(-0.5)),
            pl.Revolute("C", b.at(0.5), pl.ground.at(1.5)),
        ],
    )
    assert shown(mbd.assembly_modes(dyad, tries=8)).startswith("2 assembly modes, found by 8 of 8 searches")


def test_mechanism() -> None:
    assert shown(PENDULUM).splitlines() == [
        "Mechanism in the plane, 3 absolute coordinates, 3 speeds",
        "bodies: rod",
        "joints: O (Revolute)",
        "forces: gravity (Gravity)",
    ]


def test_inside_transformations(state: mbd.State, solution: mbd.Solution, hanging: mbd.Equilibrium) -> None:
    """Nothing fails where values are not known, or are many."""
    results = (state, solution, solution.violation(), solution.reaction("O"), hanging, PENDULUM)
    texts: list[str] = []

    @jax.jit
    def f(scale: Any) -> Any:
        traced = jax.tree.map(lambda x: x + jnp.zeros_like(x) * scale.astype(jnp.asarray(x).dtype), results)
        texts.extend(map(shown, traced))
        return scale

    f(jnp.ones(()))
    assert texts[0] == "State, not known yet: t f64[], q f64[3], v f64[3]"
    assert texts[1] == "Solution, not known yet: ts f64[2], q f64[2,3]"
    assert all("not known yet" in text for text in texts[2:5])
    many = jax.vmap(
        lambda k: jax.tree.map(lambda x: x + jnp.zeros_like(x) * k.astype(jnp.asarray(x).dtype), results[:4])
    )(jnp.arange(5))
    assert shown(many[0]) == "State, a batch of 5: t f64[5], q f64[5,3], v f64[5,3]"
    assert shown(many[1]) == "Solution, a batch of 5: ts f64[5,2], q f64[5,2,3]"
    assert all("a batch of 5" in shown(one) for one in many[2:])
    for placeholder in (lambda x: object(), lambda x: None, lambda x: 0):
        assert all(shown(jax.tree.map(placeholder, one)) for one in results)
