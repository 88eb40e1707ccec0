"""A mechanism is loaded as it was saved: each number to the last bit, and in structure."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import examples
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.io._files import model_text
from jaxmbd.io.model_file.parts import classes
from jaxmbd.model.force.force import scaled
from tests.io import users
from tests.io.schema import check_schema
from tests.model import laws
from tests.model.law_bench import KINDS, SPACES

BAR, OTHER = pl.Body("bar", 1.0, 0.1), pl.Body("other", 2.0, 0.2, (1.0, 0.5, -0.3))
PIN = pl.Revolute("O", pl.ground.at(), BAR.at(-0.5))


def with_force(*forces: Any, **options: Any) -> pl.Mechanism:
    """A pendulum with some forces along its angle, or others."""
    return pl.Mechanism([BAR], [PIN], forces, **options)


def driven(motion: Any) -> pl.Mechanism:
    """A pendulum with a motor."""
    return pl.Mechanism([BAR], [PIN], drivers=[pl.Driver("motor", "O.angle", motion)])


def with_parameters(parameters: Any) -> pl.Mechanism:
    return with_force(pl.JointForce("pull", "O.angle", users.pull, parameters))


def check_same(first: Any, second: Any) -> None:
    """Leaf by leaf, bit by bit; and the same classes, names and numbers that are no arrays."""
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for x, y in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert type(x) is type(y)
        if isinstance(x, jax.Array | np.ndarray):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            assert getattr(x, "weak_type", False) == getattr(y, "weak_type", False)
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
        else:
            assert x == y


def check_round_trip(mechanism: Any, folder: Path) -> Any:
    """The same after a file, which has the same text when it is saved again and keeps to the schema."""
    path = folder / "model.toml"
    mbd.save(mechanism, path)
    loaded, text = mbd.load(path, trust=True), path.read_text(encoding="utf-8")
    check_same(mechanism, loaded)
    assert model_text(loaded) == text
    check_schema(text)
    return loaded


@pytest.mark.parametrize("name", examples.names())
def test_of_an_example(name: str, tmp_path: Path) -> None:
    check_round_trip(examples.get(name).mechanism, tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", SPACES)
def test_of_every_class_of_parts(space: str, kind: str, tmp_path: Path) -> None:
    check_round_trip(laws.bench(SPACES[space], kind), tmp_path)


@pytest.mark.parametrize("space", SPACES)
def test_every_public_part_is_known(space: str) -> None:
    """So the benches above have saved each of them."""
    assert SPACES[space].registered <= {*classes(space).values()}


TIMES = np.linspace(0.0, 1.0, 9)
SPLINE = mbd.SmoothingSpline(TIMES, np.sin(TIMES))
PIECES = mbd.Piecewise([0.3, 0.6], [5.0, users.pull, mbd.Table([0.0, 1.0], [2.0, 3.0])], order=1)
NETWORK = eqx.nn.MLP(2, "scalar", 4, 1, activation=jax.nn.tanh, key=jax.random.key(0))  # its last function is a lambda
WIRE = sp.Body("wire", 1.0, (0.1, 0.2, 0.25), sp.pose(1.0, rotation=sp.rotation.from_vector((0.1, 0.2, 0.3))))

FURTHER: dict[str, Callable[[], Any]] = {
    "pieces": lambda: with_force(pl.JointForce("motor", "O.angle", PIECES)),
    "vector table": lambda: with_force(
        pl.Force("push", BAR.at(), mbd.Table([0.0, 1.0], [[1.0, 2.0], [3.0, 4.0]], order=0), frame="body")
    ),
    "spline": lambda: driven(SPLINE),
    "series": lambda: driven(mbd.FourierSeries(2.0, 0.1, [0.1, 0.2], [0.3, -0.1])),
    "moving marker": lambda: pl.Mechanism([BAR], [pl.Revolute("O", pl.ground.moving(users.wave), BAR.at(-0.5))]),
    "class of a user": lambda: pl.Mechanism(
        [BAR], [PIN], [users.Tie("tie", pl.ground.at(0, 1), BAR.at(), jnp.asarray(3.0, float), 2)]
    ),
    "constructor of a user": lambda: driven(users.Doubled(1.5)),
    "generalized speeds": lambda: pl.Mechanism(
        [BAR], [PIN], coordinates="joint", speeds=pl.GeneralizedSpeeds("u", users.twice, jnp.asarray(0.5, float))
    ),
    "cuts": lambda: examples.get("four-bars").with_coordinates("joint", ["L1", "R0"]).mechanism,
    "floating": lambda: pl.Mechanism([BAR, OTHER], floating=True, coordinates="joint"),
    "thin rod": lambda: sp.Mechanism([sp.Body("rod", 1.0, (0.0, 0.1, 0.1))], floating=True, coordinates="joint"),
    "rotated pose": lambda: sp.Mechanism([WIRE], floating=True),
    "scaled forces": lambda: with_force(*(scaled(force, jnp.asarray(0.5, float)) for force in SCALED)),
    "controllers": lambda: with_force(pl.DCMotor("motor", "O.angle", 24.0, 1.0, 0.01, 0.05)).with_parts(CONTROLLERS),
    "unusual names": lambda: pl.Mechanism(
        [pl.Body('a "b" \\ [c] = #é', 1.0, 0.1), pl.Body("1", 1.0, 0.1), pl.Body("-", 1.0, 0.1)],
        floating=True,
    ),
    "unusual numbers": lambda: pl.Mechanism(
        [pl.Body("b", 5e-324, 1.7976931348623157e308, (-0.0, 0.1, 1 / 3))], floating=True
    ),
    "network": lambda: with_parameters(NETWORK),
    "parameters": lambda: with_parameters(
        {
            "array": jnp.asarray([[1.0, 2.0], [3.0, 4.0]]), "weak": jnp.asarray(2.0), "weak list": jnp.full(3, 0.1),
            "single": jnp.asarray([0.1, 3e38], jnp.float32), "half": jnp.asarray(0.1, jnp.bfloat16),
            "whole": jnp.asarray([1, -2], jnp.int8), "flags": jnp.asarray([True, False]), "none": None,
            "empty": jnp.zeros((0, 3)), "no": jnp.zeros(0), "numpy": np.asarray([[0.5]]), "numpy whole": np.arange(3),
            "scalar": (np.float64(0.1), np.float32(0.1), np.int8(-3), np.True_),
            "python": (True, 1, 2.5, [3.0, ()], {"x": (4,), "y": {}}),
            "keys": {7: {"type": jnp.asarray(1.0, float)}, 3: ""}, "long": 10**25,
        }
    ),
    "a table of parameters": lambda: with_parameters({"k": jnp.asarray(1.5, float), "text": np.asarray([1.0])}),
}  # fmt: skip


CONTROLLERS = (
    pl.PID("pid", "O.angle", mbd.Table([0.0, 1.0], [0.0, 2.0]), 1.0, 2.0, 3.0, "motor.voltage", filter_time=0.1),
    pl.PID("limited", "O.angle_rate", 1.0, 1.0, limits=(-1.0, 2.0), tracking_time=0.2, follows="pid.output"),
    pl.LowPass("smooth", "O.angle", 3.0, 0.7, value=0.1),
    pl.PadeDelay("late", "smooth.output", 0.1, 2, history=[0.5, 0.0]),
    pl.StateSpace("lqr", ["O.angle", "O.angle_rate"], [[-1.0]], [[1.0, 2.0]], [[3.0], [4.0]], state=[0.3]),
    pl.Controller("law", ["O.angle", "motor.current"], users.feedback, "O.angle", jnp.asarray(2.0, float)),
    pl.DynamicController("own", "O.angle", users.observed, users.observer, [0.1, 0.2]),
    pl.SampledPID("digital", "O.angle", 1.0, 0.01, 1.0, 2.0, 3.0, delay=1, resolution=0.1, most=50, held=[1.0, 2.0]),
    pl.SampledController("digits", "O.angle", users.sampled, 0.02, ["O.angle", "motor.effort"], [0.5], samples=3.0),
)
SCALED = (
    pl.Gravity(9.81),
    pl.SpringDamper("spring", pl.ground.at(1.0), BAR.at(), 3.0),
    pl.JointFriction("friction", "O.angle", 0.1),
    pl.DCMotor("motor", "O.angle", 24.0, 1.0, 0.01, 0.05, 10.0, 2.0),
    pl.LuGreFriction("bristles", "O.angle", 0.5, 1e3, 2.0, 0.1, 0.2, 0.01, 1e-4),
    pl.DryFriction("brake", "O.angle", 0.5, mbd.Piecewise([0.5], [0.0, 160.0]), 0.1, 0.2, 0.3, 1.1, 1.0),
    pl.LoadFriction("pin", "O.angle", 0.3, 0.05, None, 0.0, 0.1, 0.2, 0.3, 1.1, 1.0, 0.5),
    pl.Backlash("gear", "O.angle", 1e4, 20.0, 0.02, 0.1, limited=False, sides=[1.0, -1.0, 1.0, 1.0, 1.0, 1.0]),
    pl.OneWayClutch("freewheel", "O.angle", 0.1, 1.0),
    pl.Ratchet("pawl", "O.angle", 0.3, 0.1, 0.2, 0.0, 4.0),
    pl.BoucWen("rubber", "O.angle", 5.0, 2.0, 0.1, 1.5, 0.7, 0.1, 0.3),
    pl.HydraulicCylinder(
        "cylinder",
        pl.ground.at(1.0),
        BAR.at(),
        0.1,
        1e-2,
        8e-3,
        2e-3,
        2e-3,
        1e9,
        2e-7,
        2e7,
        length=0.7,
        cap_pressure=1e5,
    ),
    pl.GeneralizedForce("stir", laws.stir, jnp.asarray([0.3, 0.1], float)),
)


@pytest.mark.parametrize("case", FURTHER)
def test_of_other_parts_and_values(case: str, tmp_path: Path) -> None:
    check_round_trip(FURTHER[case](), tmp_path)


def test_random_bits_are_read_as_they_were(rng: np.random.Generator, tmp_path: Path) -> None:
    """Numbers of all sizes, in both precisions."""
    for dtype, bits in ((np.float64, np.uint64), (np.float32, np.uint32)):
        numbers = rng.integers(0, np.iinfo(bits).max, 2000, bits, endpoint=True).view(dtype)
        numbers = numbers[np.isfinite(numbers)]
        check_round_trip(with_parameters(jnp.asarray(numbers)), tmp_path)


def test_single_precision_stays_single(tmp_path: Path) -> None:
    single = jax.tree.map(lambda x: x.astype(jnp.float32), examples.get("spatial-four-bar").mechanism)
    check_round_trip(single, tmp_path)
    text = (tmp_path / "model.toml").read_text()
    assert 'floats = "float32"' in text
    assert "0.25" in text


def test_double_precision_is_not_rounded_in_silence(tmp_path: Path) -> None:
    mbd.save(with_force(), tmp_path / "bar.toml")
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(mbd.MechanismError, match=r"line \d+: bodies.bar.mass: its numbers are float64.*32 bits"):
            mbd.load(tmp_path / "bar.toml")
    finally:
        jax.config.update("jax_enable_x64", True)


def test_a_tree_that_depends_on_parts_that_are_gone_is_kept(tmp_path: Path) -> None:
    """A driver makes its joint one of the tree; without it another joint would be."""
    example = examples.get("planar-four-bar").mechanism
    usual = pl.Mechanism(example.bodies, example.joints, coordinates="joint")
    cut = next(joint.name for joint in example.joints if joint.name not in usual.tree.joints)
    motor = pl.Driver("motor", f"{cut}.angle", 0.1)
    mechanism = pl.Mechanism(example.bodies, example.joints, drivers=[motor], coordinates="joint").replacing(drivers=[])
    assert mechanism.tree.joints != usual.tree.joints
    assert check_round_trip(mechanism, tmp_path).tree == mechanism.tree


def test_a_loaded_mechanism_moves_like_the_saved_one(tmp_path: Path) -> None:
    example = examples.get("slider-crank")
    state = example.state()
    mbd.save(example.mechanism, tmp_path / "model.toml", state=state)
    loaded = mbd.load(tmp_path / "model.toml")
    again = mbd.load_state(loaded, tmp_path / "model.toml")
    check_same(*(jax.tree.map(jnp.asarray, x) for x in (state, again)))  # a verdict may be one of NumPy
    ts = np.linspace(0.0, 0.1, 3)
    first, second = mbd.simulate(example.mechanism, state, ts), mbd.simulate(loaded, again, ts)
    np.testing.assert_array_equal(first.q, second.q)
    assert float(np.ptp(first.q[:, 0])) > 1e-3


WRITTEN = """
format = "jaxmbd-model/1"
space = "spatial"
coordinates = "joint"
cuts = ["C"]

[markers]
hub = { body = "ground", position = [0, 0, 1], rotation = [1, 0, 0, 0] }

[markers.end]
body = "rod"
position = [0.5, 0, 0]

[bodies.rod]
mass = 2
inertia = [0.01, 0.1, 0.1]
pose = [0.5, 0, 1]

[joints]
A = { type = "Spherical", a = "hub", b = { body = "rod", position = [-0.5, 0, 0] } }
B = { type = "PointConstraint", a = { body = "ground", position = [1, 0, 1] }, b = "end", without = ["x"] }
C = { type = "Revolute", a = "hub", b = { body = "rod", position = [-0.5, 0, 0] } }

[forces.gravity]
type = "Gravity"

[sensors.tip]
type = "Point"
at = "end"

[drivers.motor]
coordinate = "rod.x"
motion = { type = "SmoothingSpline", ts = [0, 1, 2, 3, 4, 5], values = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5], smoothing = 0.0 }
"""


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    """Whole numbers, markers with names, defaults, and the short forms of constructors."""
    path = tmp_path / "hand.toml"
    path.write_text(WRITTEN)
    check_schema(WRITTEN)
    rod = sp.Body("rod", 2.0, (0.01, 0.1, 0.1), (0.5, 0, 1))
    end, times = rod.at(0.5), np.arange(6.0)
    mechanism = sp.Mechanism(
        [rod],
        [
            sp.Spherical("A", sp.ground.at(0, 0, 1), rod.at(-0.5)),
            sp.PointConstraint("B", sp.ground.at(1, 0, 1), end, without=("x",)),
            sp.Revolute("C", sp.ground.at(0, 0, 1), rod.at(-0.5)),
        ],
        [sp.Gravity()],
        [sp.Driver("motor", "rod.x", mbd.SmoothingSpline(times, np.full(6, 0.5), smoothing=0.0))],
        [sp.Point("tip", end)],
        coordinates="joint",
        cuts=["C"],
    )
    check_same(mbd.load(path), mechanism)


def test_the_file_in_the_how_to_page_is_one(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "save-and-load.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "crank.toml").write_text(text)
    check_schema(text)
    mechanism = mbd.load(tmp_path / "crank.toml")
    np.testing.assert_allclose(mechanism["motor"].motion(jnp.asarray(2.0)), 0.4, atol=0.01)


def test_a_state_is_one_of_its_mechanism(tmp_path: Path) -> None:
    example = examples.get("pendulum")
    path = tmp_path / "model.toml"
    mbd.save(example.mechanism, path)
    with pytest.raises(mbd.MechanismError, match=r"model\.toml': there is no \[state\] in this file"):
        mbd.load_state(example.mechanism, path)
    mbd.save(example.mechanism, path, state=example.state())
    with pytest.raises(
        mbd.MechanismError, match=r"line 37: state\.coordinates\.rod\.x: There is no entry of the state"
    ):
        mbd.load_state(example.with_coordinates("joint").mechanism, path)
    single = jax.tree.map(lambda x: x.astype(jnp.float32), example.mechanism)
    with pytest.raises(mbd.MechanismError, match="line 5: the state is 'float64', and the mechanism float32"):
        mbd.load_state(single, path)
    failed = mbd.assemble(example.mechanism, {"rod.x": 5.0}, check=False)
    with pytest.raises(mbd.MechanismError, match="not that of one successful analysis"):
        mbd.save(example.mechanism, path, state=failed)


def local(parameters: Any) -> Any:
    def function(t: Any, q: Any, v: Any, parameters: Any) -> Any:
        return v

    return pl.GeneralizedForce("stir", function, parameters)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "lambda": (
        lambda: driven(lambda t: t),
        r"Driver 'motor': motion is the function .*<lambda>, which has no import path.*top of a module",
    ),
    "local function": (
        lambda: with_force(local(None)),
        "GeneralizedForce 'stir': function is the function local.<locals>",
    ),
    "piece": (
        lambda: with_force(pl.JointForce("m", "O.angle", mbd.Piecewise([1.0], [lambda *_: 1.0, 2.0]))),
        r"JointForce 'm': force: pieces\[0\] is the function",
    ),
    "set": (lambda: with_parameters({"a": frozenset("x")}), r"JointForce 'pull': parameters\['a'\] is a frozenset"),
    "random key": (lambda: with_parameters(jax.random.key(0)), "'pull': parameters has the type key<fry>"),
    "NaN mass": (
        lambda: eqx.tree_at(lambda m: m["bar"].mass, with_force(), jnp.asarray(jnp.nan)),
        "could not be loaded again: .*Body 'bar': mass must be positive",
    ),
    "batch": (
        lambda: eqx.filter_vmap(lambda x: eqx.tree_at(lambda m: m["bar"].mass, with_force(), x))(jnp.ones(2)),
        "could not be loaded again: .*Body 'bar': .* shape",
    ),
    "no mechanism": (lambda: "bar", "save must be a Mechanism, a Solution or a Fit, got 'bar'"),
}  # fmt: skip


@pytest.mark.usefixtures("as_a_user_runs_it")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_saved_is_an_error_that_names_the_part(case: str, tmp_path: Path) -> None:
    make, said = REFUSED[case]
    with pytest.raises(mbd.MechanismError, match=f"(?s){said}"):
        mbd.save(make(), tmp_path / "model.toml")
    assert not [*tmp_path.iterdir()]


def test_a_traced_mechanism_is_not_saved(tmp_path: Path) -> None:
    def traced(mass: Any) -> Any:
        mbd.save(eqx.tree_at(lambda m: m["bar"].mass, with_force(), mass), tmp_path / "model.toml")
        return mass

    with pytest.raises(mbd.MechanismError, match="outside of jit, grad and vmap"):
        jax.jit(traced)(1.0)


def test_a_file_of_another_ending_or_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(mbd.MechanismError, match=r"ends with \.toml, such as 'name\.toml'"):
        mbd.save(with_force(), tmp_path / "model.json")
    with pytest.raises(mbd.MechanismError, match="There is no file"):
        mbd.load(tmp_path / "model.toml")
    with pytest.raises(mbd.MechanismError, match="There is no file"):
        mbd.load(tmp_path.with_suffix(".toml"))
