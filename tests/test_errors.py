"""Each bad input gives an error that names the part, shows what was given, and says the mend."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.simulation.verdict import NEARLY_SINGULAR, _near_singular
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import unknown
from tests.wrong_inputs import GRIP, ROD, TS
from tests.wrong_inputs import pend as pendulum

pytestmark = pytest.mark.usefixtures("as_a_user_runs_it")


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("mujoco", "mjcf", lambda folder: mbd.io.read(folder / "model.xml")),
        ("trimesh", "meshes", lambda folder: sp.mesh(1.0, folder / "part.off")),
        ("trimesh", "meshes", lambda folder: sp.shapes.mesh(folder / "part.off")),
        (
            "zarr",
            "sweeps",
            lambda folder: mbd.sweep(lambda x: {"y": x["x"]}, {"x": np.arange(3.0)}, store=folder / "a.zarr"),
        ),
        ("zarr", "sweeps", lambda folder: mbd.sweeps.read_store(folder / "a.zarr")),
        (
            "SALib",
            "sweeps",
            lambda folder: mbd.sweeps.sensitivity_indices(lambda x: x, {"x": (0.0, 1.0)}, "x", count=8, seed=0),
        ),
        ("sympy", "symbolic", lambda folder: mbd.SymbolicSystem(mbd.export(pendulum())).xM),
        ("sympy", "symbolic", lambda folder: mbd.SymbolicSystem(mbd.export(pendulum())).latex()),
        ("sympy", "symbolic", lambda folder: mbd.SymbolicSystem(mbd.export(pendulum())).ode()),
        ("sympy", "symbolic", lambda folder: mbd.SymbolicSystem(mbd.export(pendulum())).vQ),
    ],
)
def test_a_missing_extra_is_named(
    package: str, extra: str, call: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.xml").write_text("<mujoco/>")
    (tmp_path / "part.off").write_text("OFF")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(mbd.MechanismError, match=rf"package {package}, which is .*install 'jaxmbd\[{extra}\]'"):
        call(tmp_path)


def four_bar(coupler: float = 0.5) -> pl.Mechanism:
    a, b, c = (
        pl.Body(n, 0.5, 0.01, p) for n, p in zip("abc", ((0, 0.1, 1.5), (0.2, 0.2, 0), (0.5, 0.1, 1.5)), strict=True)
    )
    return pl.Mechanism(
        [a, b, c],
        [
            pl.Revolute("O", pl.ground.at(), a.at(-0.1)),
            pl.Revolute("A", a.at(0.1), b.at(-coupler / 2)),
            pl.Revolute("B", b.at(coupler / 2), c.at(0.1)),
            pl.Revolute("C", pl.ground.at(0.5), c.at(-0.1)),
        ],
    )


def adrift(floating: bool = False) -> pl.Mechanism:
    other = pl.Body("other", 1.0, 0.1)
    return pl.Mechanism([ROD, other], [pl.Revolute("O", GRIP, other.at(0.5))], floating=floating)


def number(*shape: int) -> Callable[..., Array]:
    """A user's function that returns an array of the given shape."""
    return lambda *_: jnp.zeros(shape)


GROUND, BAD = pl.ground.at(), float("nan")
DESCRIPTIONS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "unknown body": (
        lambda: pl.Mechanism([ROD], [pl.Revolute("O", GROUND, pl.Body("rot", 1, 1).at())]),
        ("Revolute 'O'", "no body named 'rot'", "Did you mean 'rod'?", "'ground', 'rod'"),
    ),
    "unknown part": (lambda: pendulum()["rodd"], ("no part named 'rodd'", "Did you mean 'rod'?")),
    "negative mass": (lambda: pl.Body("rod", -1, 1), ("Body 'rod'", "mass must be positive [kg]", "got -1")),
    "NaN mass": (lambda: pl.Body("rod", BAD, 1), ("Body 'rod'", "mass", "finite", "got nan")),
    "zero inertia": (
        lambda: mbd.assemble(pl.Mechanism([pl.Body("rod", 1, 0)], floating=True)),
        ("nothing has inertia along 'rod.omega'", "'rod' has no inertia", "Give each", "'joint'"),
    ),
    "mass as text": (lambda: pl.Body("rod", "1", 1), ("Body 'rod'", "mass must be a number", "'1'")),  # pyright: ignore
    "NaN stiffness": (
        lambda: pl.SpringDamper("s", GROUND, GRIP, BAD),
        ("SpringDamper 's'", "stiffness must be finite", "got nan"),
    ),
    "NaN marker": (lambda: ROD.at(BAD), ("Marker on 'rod'", "position must be finite")),
    "negative friction": (
        lambda: pl.JointFriction("f", "O.angle", viscous=-1.0),
        ("JointFriction 'f'", "viscous must be zero or positive", "-1"),
    ),
    "rod of no length": (
        lambda: pl.Rod("r", GROUND, GRIP, 0.0),
        ("Rod 'r'", "length must be positive [m]", "got 0", "joined by a PointConstraint"),
    ),
    "one name twice": (
        lambda: pl.Mechanism([ROD], [pl.Revolute("rod", GROUND, GRIP)]),
        ("Two parts are named 'rod'", "a Body and a Revolute", "name of its own"),
    ),
    "name of an energy": (lambda: pendulum(sensors=[pl.Point("energy", GRIP)]), ("'energy' is taken", "otherwise")),
    "ground as a name": (lambda: pl.Body("ground", 1, 1), ("'ground' is taken",)),
    "dot in a name": (lambda: pl.Body("a.b", 1, 1), ("without a dot", "'a.b'")),
    "joined with itself": (
        lambda: pl.Revolute("O", ROD.at(), ROD.at(1.0)),
        ("Revolute 'O'", "body 'rod' with itself", "two different bodies"),
    ),
    "body for a marker": (
        lambda: pl.Revolute("O", GROUND, ROD),  # pyright: ignore
        ("Revolute 'O'", "markers such as body.at(x, y)", "got Body"),  # pyright: ignore
    ),
    "joint among forces": (
        lambda: pendulum([pl.Revolute("P", GROUND, GRIP)]),
        ("Among forces", "a Revolute", "expected one of: Force"),
    ),
    "one body, no list": (lambda: pl.Mechanism(ROD), ("bodies must be a sequence", "got a Body")),  # pyright: ignore
    "no bodies": (lambda: pl.Mechanism([]), ("at least one body",)),
    "adrift": (
        lambda: adrift(),
        ("connects 'other', 'rod' to the ground", "Add a joint to ground.at", "floating=True"),
    ),
    "driver of no joint": (
        lambda: pendulum(drivers=[pl.Driver("d", "P.angle", 0.0)]),
        ("Driver 'd'", "no joint or body named 'P'", "'O', 'rod'"),
    ),
    "driver of no coordinate": (
        lambda: pendulum(drivers=[pl.Driver("d", "O.angel", 0.0)]),
        ("Driver 'd'", "coordinate of joint 'O' named 'angel'", "Did you mean 'angle'?"),
    ),
    "driver without a dot": (
        lambda: pl.Driver("d", "angle", 0.0),
        ("Driver 'd'", "'joint.angle' or 'body.x'", "'angle'"),
    ),
    "friction of no coordinate": (
        lambda: pendulum([pl.JointFriction("f", "O.turn")]),
        ("JointFriction 'f'", "named 'turn'", "Known names: 'angle'"),
    ),
    "frame": (lambda: pl.Force("f", GRIP, (1.0, 2.0), frame="wrld"), ("Force 'f'", "'world' or 'body'", "got 'wrld'")),
    "marker's shape": (lambda: pl.Marker("rod", jnp.zeros(3)), ("Marker on 'rod'", "position", "(2,)", "(3,)")),
    "point for a number": (lambda: ROD.at((0.1, 0.0)), ("Marker on 'rod'", "at(x, y, angle)", "(2,)")),  # pyright: ignore
    "pose's shape": (lambda: pl.Body("rod", 1, 1, jnp.zeros(2)), ("Body 'rod'", "pose", "(3,)", "(2,)")),
    "mass's shape": (lambda: pl.Body("rod", jnp.ones(2), 1), ("Body 'rod'", "mass must be a number", "(2,)")),
    "force's shape": (lambda: pl.Force("f", GRIP, jnp.zeros(3)), ("Force 'f'", "force", "(2,)", "(3,)")),
    "what a force returns": (
        lambda: pendulum([pl.Force("f", GRIP, number(3))]),
        ("Force 'f'", "function force returns", "(2,)", "(3,)"),
    ),
    "what a torque returns": (
        lambda: pendulum([pl.Torque("q", GRIP, number(2))]),
        ("Torque 'q'", "function torque returns must be a number", "(2,)"),
    ),
    "what an actuator returns": (
        lambda: pendulum([pl.SpringDamper("s", GROUND, GRIP, 1.0, actuator=number(1))]),
        ("SpringDamper 's'", "function actuator returns must be a number", "(1,)"),
    ),
    "what a user's force returns": (
        lambda: pendulum([pl.UserForce("u", number(3), (GRIP,))]),
        ("UserForce 'u'", "(1, 3)", "a row (fx, fy, moment)", "(3,)"),
    ),
    "a user's force on nothing": (
        lambda: pl.UserForce("u", number(3), ()),
        ("UserForce 'u'", "at least one marker", "got ()", "GeneralizedForce"),
    ),
    "a user's force on a marker alone": (
        lambda: pl.UserForce("u", number(1, 3), GRIP),  # pyright: ignore
        ("UserForce 'u'", "a tuple of at least one marker", "Marker"),
    ),
    "what a generalized force returns": (
        lambda: pendulum([pl.GeneralizedForce("g", number(2))]),
        ("GeneralizedForce 'g'", "(3,)", "(2,)"),
    ),
    "what a joint's force returns": (
        lambda: pendulum([pl.JointForce("j", "O.angle", number(2))]),
        ("JointForce 'j'", "must be a number", "(2,)"),
    ),
    "no function": (
        lambda: pl.JointForce("j", "O.angle", "push"),
        ("JointForce 'j'", "a number, or something to call", "'push'"),
    ),
    "what a motion returns": (
        lambda: pendulum(drivers=[pl.Driver("d", "O.angle", number(1))]),
        ("Driver 'd'", "function motion returns", "(1,)"),
    ),
    "what a constraint returns": (
        lambda: pendulum(joints=[pl.Constraint("c", number(1, 1), GROUND, GRIP)]),
        ("Constraint 'c'", "a scalar or a vector", "(1, 1)"),
    ),
    "fixed, unknown": (
        lambda: mbd.assemble(pendulum(), {"rod.teta": 0.0}),
        ("coordinate of body 'rod' named 'teta'", "Did you mean 'theta'?"),
    ),
    "fixed, NaN": (lambda: mbd.assemble(pendulum(), {"O.angle": BAD}), ("fixed", "'O.angle' must be finite", "nan")),
    "fixed, shape": (
        lambda: mbd.assemble(pendulum(), {"O.angle": jnp.ones(2)}),
        ("fixed", "'O.angle' must be a number"),
    ),
    "guess of a joint": (
        lambda: mbd.assemble(pl.Mechanism([ROD], [pl.Rod("O", GROUND, GRIP, 1.0)]), guess={"O.length": 0.1}),
        ("joint 'O' named 'length'",),
    ),
    "speed, unknown": (
        lambda: mbd.assemble(pendulum(), speeds={"rod.omga": 1.0}),
        ("no speed named 'rod.omga'", "Did you mean 'rod.omega'?"),
    ),
}


def says(error: pytest.ExceptionInfo[Any], *words: str) -> None:
    """The message holds the words, in their order."""
    pattern = ".*".join(re.escape(word) for word in words)
    assert re.search(pattern, str(error.value), re.DOTALL), str(error.value)


@pytest.mark.parametrize("case", DESCRIPTIONS)
def test_a_description_that_cannot_be_right(case: str) -> None:
    make, words = DESCRIPTIONS[case]
    with pytest.raises(mbd.MechanismError) as error:
        make()
    says(error, *words)


def test_floating_mends_a_mechanism_adrift() -> None:
    assert adrift(floating=True).nq == 6


# --- assembly ----------------------------------------------------------------------------------------------------


def test_lengths_that_do_not_reach() -> None:
    """A coupler of 5 m between points that are at most 0.9 m apart: the open joints are named, with the gaps."""
    with pytest.raises(mbd.AssemblyError) as error:
        mbd.assemble(four_bar(5.0))
    says(error, "cannot be assembled")
    for name in "OABC":
        assert re.search(f"'{name}' misses by 1", str(error.value))
    says(error, "misses by 4.1 m", "lengths do not reach", "check the markers of these joints")


def test_what_misses_is_named_whatever_the_order_it_was_given_in() -> None:
    fixed, said = {"c.theta": 2.5, "a.theta": 0.1}, []
    for given in (fixed, dict(sorted(fixed.items()))):
        with pytest.raises(mbd.AssemblyError) as error:
            mbd.assemble(four_bar(), given)
        said.append({name: re.search(f"'{name}' misses by ([0-9.e-]+)", str(error.value)) for name in fixed})
    assert all(said[0].values())
    assert [m and m[1] for m in said[0].values()] == [m and m[1] for m in said[1].values()]
    assert len({m and m[1] for m in said[0].values()}) == 2


def test_speeds_that_contradict() -> None:
    with pytest.raises(mbd.AssemblyError) as error:
        mbd.assemble(four_bar(), speeds={"a.omega": 1.0, "c.omega": -4.0})
    says(error, "speeds contradict the constraints", "'A' by", "at most as many speeds as there are degrees of freedom")


# --- simulation --------------------------------------------------------------------------------------------------


@pytest.fixture
def start() -> mbd.State:
    return mbd.assemble(pendulum())


TIMES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "going back": ([0.0, 2.0, 1.0], ("ts must increase", "ts[2] = 1 s", "ts[1] = 2 s")),
    "standing still": ([0.0, 1.0, 1.0], ("ts must increase", "ts[2] = 1 s")),
    "NaN": ([0.0, BAD, 1.0], ("ts must be finite", "ts[1] = nan")),
    "later than the state": ([0.5, 1.0], ("ts must start at the time of the state, 0 s", "ts[0] = 0.5 s")),
    "one": ([0.0], ("at least two times", "got [0.0]")),
    "a table": (np.zeros((3, 2)), ("at least two times", "(3, 2)")),
}


@pytest.mark.parametrize("case", TIMES)
def test_times(case: str, start: mbd.State) -> None:
    ts, words = TIMES[case]
    with pytest.raises(mbd.MechanismError) as error:
        mbd.simulate(pendulum(), start, ts)
    says(error, *words)


def test_states_that_are_none(start: mbd.State) -> None:
    with pytest.raises(mbd.MechanismError) as error:
        mbd.simulate(four_bar(), start, TS)
    says(error, "belongs to another mechanism", "rod.x, rod.y, rod.theta", "(9 in all)", "jaxmbd.assemble")


@pytest.mark.parametrize(("field", "level", "unit"), [("q", "positions", "m or rad"), ("v", "speeds", "m/s or rad/s")])
def test_state_that_is_not_assembled(field: str, level: str, unit: str, start: mbd.State) -> None:
    off = eqx.tree_at(lambda s: getattr(s, field), start, getattr(start, field) + jnp.array([0.1, 0.0, 0.0]))
    with pytest.raises(mbd.AssemblyError) as error:
        mbd.simulate(pendulum(), off, TS)
    says(error, "not assembled", level, "'O' misses by 0.1 ", unit, "Get a state from jaxmbd.assemble")


def test_of_many_names_those_of_the_part_are_listed() -> None:
    parts = ("crank", "coupler", "rocker")
    names = [f"{part}.{end}" for part in parts for end in (*"abcdefghijkl",)] + ["energy"]
    of_the_coupler = ", ".join(repr(f"coupler.{end}") for end in "abcdefghijkl")
    for given, hint in (("coupler", ""), ("couplr.a", " Did you mean 'coupler.a'?")):
        assert str(unknown("quantity", given, names)) == (
            f"There is no quantity named {given!r}.{hint} Known names of 'coupler': {of_the_coupler}."
        )
    assert str(unknown("quantity", "Q", names)).endswith("Known names: 'crank.…', 'coupler.…', 'rocker.…', 'energy'.")
    many = [f"n{k}" for k in range(50)]
    assert str(unknown("part", "Q", many)).endswith("'n31', … (50 in all).")


def test_names_that_a_solution_does_not_know(start: mbd.State) -> None:
    solution = mbd.simulate(pendulum(), start, TS)
    for call, words in (
        (lambda: solution["rod.thta"], ("no quantity named 'rod.thta'", "Did you mean 'rod.theta'?")),
        (lambda: solution.reaction("P"), ("no joint or driver named 'P'", "'O'")),
        (lambda: solution.reaction("O", "rdo"), ("body of joint 'O' named 'rdo'", "'rod'")),
        (lambda: solution.reaction("O", frame="wrld"), ("no frame named 'wrld'", "'world', 'body'")),
        (lambda: solution.effort("motor"), ("no driver named 'motor'", "(none)")),
        (lambda: mbd.simulate(pendulum(), start, TS, adjoint="back"), ("'reverse', 'forward'", "'back'")),  # pyright: ignore
        (
            lambda: mbd.simulate(pendulum(), start, TS, quadratures=["enrgy"]),
            ("named 'enrgy'", "Did you mean 'energy'?"),
        ),
    ):
        with pytest.raises(mbd.MechanismError) as error:
            call()
        says(error, *words)


def wall(t: Array, angle: Array, rate: Array) -> Array:
    """A law that is only valid above −0.5 rad."""
    return jnp.sqrt(angle + 0.5)


def runaway(t: Array, angle: Array, rate: Array) -> Array:
    """A torque that feeds its own growth."""
    return rate**3 + 1


def legs() -> pl.Mechanism:
    """A bar on three equal parallel legs: one leg more than needed, and it moves all the same."""
    bar = pl.Body("bar", 1.0, 0.2, (1.0, 1.0, 0.0))
    joints, bodies = [], [bar]
    for i in range(3):
        leg = pl.Body(f"leg{i}", 1.0, 0.1, (float(i), 0.5, np.pi / 2))
        bodies.append(leg)
        joints += [
            pl.Revolute(f"P{i}", pl.ground.at(i), leg.at(-0.5)),
            pl.Revolute(f"Q{i}", leg.at(0.5), bar.at(i - 1.0)),
        ]
    return pl.Mechanism(bodies, joints, [pl.Gravity()])


def pushed_beyond_reach() -> pl.Mechanism:
    """A slider-crank of 1 m and 1 m whose slider is driven past 2 m, at 1.25 s."""
    crank, rod = pl.Body("crank", 1.0, 0.1, (0.35, 0.35, 0.78)), pl.Body("rod", 1.0, 0.1, (1.05, 0.35, -0.78))
    slider = pl.Body("slider", 1.0, 0.1, (1.5, 0.0, 0.0))
    return pl.Mechanism(
        [crank, rod, slider],
        [
            pl.Revolute("O", pl.ground.at(), crank.at(-0.5)),
            pl.Revolute("A", crank.at(0.5), rod.at(-0.5)),
            pl.Revolute("B", rod.at(0.5), slider.at()),
            pl.Prismatic("rail", pl.ground.at(), slider.at()),
        ],
        drivers=[pl.Driver("push", "slider.x", lambda t: 1.5 + 0.4 * t)],
    )


FAILURES: dict[str, tuple[Callable[[], pl.Mechanism], float, tuple[str, ...]]] = {
    "NaN on the way": (
        lambda: pendulum([pl.TorsionalSpringDamper("wall", GROUND, GRIP, actuator=wall)]),
        1.0,
        ("stopped at t = 0.2", "the force 'wall' is not finite from there on"),
    ),
    "running away": (
        lambda: pendulum([pl.TorsionalSpringDamper("q", GROUND, GRIP, actuator=runaway)]),
        10.0,
        ("stopped at t = ", "runs away", "'rod.omega'", "wrong sign"),
    ),
    "too stiff": (
        lambda: pendulum([pl.TorsionalSpringDamper("s", GROUND, GRIP, 1e4, 0.0, 1e5)]),
        10.0,
        ("stopped at t = ", "500 steps (max_steps reached)", "too stiff", "the force 's'", "Radau", "raise max_steps"),
    ),
    "locked": (
        pushed_beyond_reach,
        2.0,
        ("stopped at t = 1.25 s", "singular position", "rows of 'O'", "'push' become dependent", "locks"),
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_simulation_that_fails_says_why(case: str) -> None:
    make, end, words = FAILURES[case]
    mechanism = make()
    with pytest.raises(mbd.SolveError) as error:
        mbd.simulate(mechanism, mbd.assemble(mechanism), [0.0, end / 2, end], max_steps=500)
    says(error, *words)


def test_a_stop_is_near_a_singular_position_by_the_condition_of_its_rows() -> None:
    """The rows of a rod and of a driver of x, `(x, y)` and `(1, 0)`, are dependent where y is zero."""
    bob = pl.Body("bob", 1.0, 1.0, (0.0, -1.0, 0.0))
    joints, drivers = [pl.Rod("rod", pl.ground.at(), bob.at(), 1.0)], [pl.Driver("pull", "bob.x", lambda t: t)]
    equations, t = Equations(pl.Mechanism([bob], joints, drivers=drivers)), jnp.asarray(0.0)
    margins = []
    for y in (-1.0, -0.5, -0.1, -0.05, -1e-3, -1e-6):
        x = np.sqrt(1 - y**2)
        q, values = jnp.asarray([x, y, 0.0]), np.linalg.svd([[x, y], [1.0, 0.0]])[1]
        margins.append(values[1] / values[0])
        stops = [_near_singular(equations, (t, start), (t, q), jnp.asarray(True)) for start in (jnp.eye(3)[1], q)]
        np.testing.assert_array_equal(stops, [margins[-1] < NEARLY_SINGULAR * margins[0], False])
        assert not _near_singular(equations, (t, jnp.eye(3)[1]), (t, q), jnp.asarray(False))
    assert (np.array(margins) < NEARLY_SINGULAR).sum() == 3


def test_a_failure_can_be_looked_at(start: mbd.State) -> None:
    """With `throw=False` the result says that it failed."""
    mechanism = pendulum([pl.TorsionalSpringDamper("s", GROUND, GRIP, 1e4, 0.0, 1e5)])
    solution = mbd.simulate(mechanism, start, [0.0, 5.0, 10.0], max_steps=500, throw=False)
    assert solution.result == mbd.RESULTS.max_steps_reached
    assert int(solution.stats["num_steps"]) == 500
