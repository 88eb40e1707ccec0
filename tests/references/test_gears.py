"""Gear trains: planetary sets, differentials, elastic gears, harmonic drives and lossy gears, against closed forms and
SciPy."""

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.analyses.events.parts import guard_units

TIGHT: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12}
KINDS = pytest.mark.parametrize(
    ("nouns", "coordinates"),
    [
        pytest.param(pl, "joint", id="plane-joint"),
        pytest.param(sp, "absolute", id="space-absolute"),
        pytest.param(pl, "absolute", id="plane-absolute", marks=pytest.mark.slow),
        pytest.param(sp, "joint", id="space-joint", marks=pytest.mark.slow),
    ],
)


def wheel(nouns: ModuleType, name: str, inertia: Any) -> Any:
    return nouns.Body(name, 1.0, inertia if nouns is pl else (inertia, inertia, inertia))


# --- a planetary set in a housing that turns -------------------------------------------------------------------------

INERTIAS, TORQUES = {"sun": 0.1, "ring": 0.5, "carrier": 0.3}, {"sun": 2.0, "ring": -1.0, "carrier": 0.5}
HOUSING, TURNING, END = 2.0, 3.0, 1.5
START = {"sun": 5.0, "ring": -2.0}  # [rad/s] in the housing


def planetary(nouns: ModuleType, coordinates: str, ratio: Any) -> Any:
    housing = wheel(nouns, "housing", HOUSING)
    wheels = {name: wheel(nouns, name, inertia) for name, inertia in INERTIAS.items()}
    joints = [nouns.Revolute("H", nouns.ground.at(), housing.at())]
    joints += [nouns.Revolute(f"{name} joint", housing.at(), body.at()) for name, body in wheels.items()]
    joints.append(nouns.PlanetaryGear("set", *(f"{name} joint.angle" for name in wheels), ratio=ratio))
    forces = [nouns.JointForce(f"on {name}", f"{name} joint.angle", torque) for name, torque in TORQUES.items()]
    forces.append(nouns.JointForce("turns", "H.angle", TURNING))
    return nouns.Mechanism([housing, *wheels.values()], joints, forces, coordinates=coordinates)


def set_going(nouns: ModuleType, coordinates: str, ratio: Any) -> mbd.Solution:
    mechanism = planetary(nouns, coordinates, ratio)
    angles = {"H.angle": 0.0, "sun joint.angle": 0.0, "ring joint.angle": 0.0}
    speeds = {"H.angle": 20.0} | {f"{name} joint.angle": v for name, v in START.items()}
    return mbd.simulate(mechanism, mbd.assemble(mechanism, angles, speeds=speeds), np.array([0.0, END]), **TIGHT)


def willis(ratio: Any) -> tuple[Any, Any]:
    """The torques of the set on sun, ring and carrier, and how far these have turned in the housing at the end."""
    rows = jnp.stack([-1 / (1 + ratio), -ratio / (1 + ratio), jnp.ones_like(ratio)])
    J, M = jnp.array([*INERTIAS.values()]), jnp.array([*TORQUES.values()])
    efforts = -rows * jnp.dot(rows, M / J) / jnp.dot(rows, rows / J)
    speeds = jnp.stack([START["sun"] + 0 * ratio, START["ring"] + 0 * ratio, -(rows[0] * 5.0 - rows[1] * 2.0)])
    back = (TURNING - M.sum()) / HOUSING  # of the housing, which takes the reactions of the motors and none of the set
    return efforts, speeds * END + 0.5 * ((M + efforts) / J - back) * END**2


@KINDS
def test_a_planetary_set_in_a_turning_housing(nouns: ModuleType, coordinates: str) -> None:
    solution = set_going(nouns, coordinates, 72 / 24)
    efforts, angles = willis(jnp.asarray(72 / 24))
    found = [solution[f"set.{name}_effort"] for name in INERTIAS]
    np.testing.assert_allclose(np.transpose(found), [efforts, efforts], rtol=1e-9)
    np.testing.assert_allclose([solution[f"{name} joint.angle"][-1] for name in INERTIAS], angles, rtol=1e-9)
    rates = [solution[f"{name} joint.angle_rate"] for name in INERTIAS]
    np.testing.assert_allclose(np.sum(np.asarray(found) * np.asarray(rates), axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(found[1], 3 * np.asarray(found[0]), rtol=1e-12)  # 1 : ρ : −(1 + ρ)
    np.testing.assert_allclose(found[2], -4 * np.asarray(found[0]), rtol=1e-12)


@pytest.mark.slow
def test_derivatives_of_a_planetary_set_and_sets_side_by_side() -> None:
    end = lambda r: set_going(pl, "absolute", r)["sun joint.angle"][-1]  # noqa: E731
    exact = lambda r: willis(r)[1][0]  # noqa: E731
    ratio = jnp.asarray(3.0)
    for mode in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(mode(end)(ratio), jax.jacfwd(exact)(ratio), rtol=1e-9)
    ratios = jnp.array([1.5, 2.0, 4.0, -3.0])
    np.testing.assert_allclose(jax.jit(jax.vmap(end))(ratios), jax.vmap(exact)(ratios), rtol=1e-9)


def test_one_of_three_is_held() -> None:
    """Ratios of the six ways to hold one of them, by `kinematics`."""
    for held, driven, read, expected in (
        ("ring", "sun", "carrier", 1 / 4), ("carrier", "sun", "ring", -1 / 3), ("sun", "ring", "carrier", 3 / 4),
    ):  # fmt: skip
        mechanism = planetary(pl, "joint", 3.0).replacing(
            drivers=[
                pl.Driver("still", "H.angle", 0.0),
                pl.Driver("held", f"{held} joint.angle", 0.0),
                pl.Driver("drive", f"{driven} joint.angle", lambda t: 2.0 * t),
            ]
        )
        motion = mbd.kinematics(mechanism, np.array([0.0, 1.0]))
        np.testing.assert_allclose(motion[f"{read} joint.angle"], [0.0, 2.0 * expected], atol=1e-12)


# --- a differential --------------------------------------------------------------------------------------------------


@KINDS
def test_a_differential_divides_the_torque(nouns: ModuleType, coordinates: str) -> None:
    """One wheel on ice, and one on the road: both get half of what drives the cage, less what turns that itself."""
    names, inertias, brakes = ("left", "right", "cage"), (0.2, 0.5, 0.05), (0.0, -4.0, 10.0)
    bodies = [wheel(nouns, name, inertia) for name, inertia in zip(names, inertias, strict=True)]
    joints = [nouns.Revolute(f"{body.name} axle", nouns.ground.at(), body.at()) for body in bodies]
    joints.append(nouns.Differential("axle", *(f"{name} axle.angle" for name in names), phase=0.3))
    forces = [nouns.JointForce(f"on {n}", f"{n} axle.angle", x) for n, x in zip(names, brakes, strict=True)]
    mechanism = nouns.Mechanism(bodies, joints, forces, coordinates=coordinates)
    start = mbd.assemble(mechanism, {"left axle.angle": 0.0, "right axle.angle": 1.0})
    names = ("left_effort", "right_effort", "carrier_effort")
    found = mbd.read(mechanism, start, [f"axle.{name}" for name in names] + ["cage axle.angle"])
    each = (10.0 / 0.05 + 0.5 * 4.0 / 0.5) / (2 / 0.05 + 0.5 / 0.2 + 0.5 / 0.5)
    np.testing.assert_allclose([found[f"axle.{name}"] for name in names], [each, each, -2 * each], rtol=1e-9)
    np.testing.assert_allclose(found["cage axle.angle"], 0.8, rtol=1e-12)


# --- a harmonic drive: kinematic error, a flexspline that hardens, friction at the wave generator --------------------

ROTOR, ARM, RATIO, CASE = 1e-3, 2.0, -1 / 50, {"stiffness": 400.0, "cubic": 2e5, "error": 2e-3}


def harmonic_drive(nouns: ModuleType = pl, coordinates: str = "joint", **given: Any) -> mbd.Solution:
    numbers = CASE | given
    rotor, arm = wheel(nouns, "rotor", ROTOR), wheel(nouns, "arm", ARM)
    joints = [nouns.Revolute(n, nouns.ground.at(), b.at()) for n, b in (("M", rotor), ("L", arm))]
    error = {"error_amplitudes": jnp.stack([jnp.asarray(numbers["error"]), 5e-4]), "error_orders": (2.0, 4.0)}
    joints.append(nouns.GearMesh("mesh", "M.angle", "L.angle", RATIO, **error, error_phases=(0.3, 0.0)))
    forces = [
        nouns.CubicSpring("flexspline", "mesh.twist", numbers["stiffness"], numbers["cubic"], damping=1.5),
        nouns.JointFriction("wave generator", "M.angle", viscous=2e-4, coulomb=0.02, width=1.0, breakaway=0.01),
        nouns.JointForce("current", "M.angle", lambda t, *_: 0.3 * jnp.sin(4 * t)),
        nouns.JointForce("weight", "L.angle", -3.0),
    ]
    mechanism = nouns.Mechanism([rotor, arm], joints, forces, coordinates=coordinates)
    start = mbd.assemble(mechanism, {"M.angle": 0.0, "L.angle": 0.0})
    return mbd.simulate(mechanism, start, np.array([0.0, 1.0]), **TIGHT)


def by_scipy(stiffness: float, cubic: float, error: float) -> np.ndarray:
    def rates(t: float, y: np.ndarray) -> list[float]:
        a, b, va, vb = y
        shift = error * np.sin(2 * a + 0.3) + 5e-4 * np.sin(4 * a)
        slope = RATIO + 2 * error * np.cos(2 * a + 0.3) + 2e-3 * np.cos(4 * a)
        twist, rate = b - RATIO * a - shift, vb - slope * va
        torque = -stiffness * twist - cubic * twist**3 - 1.5 * rate
        friction = 2e-4 * va + (0.02 + 0.01 * np.exp(-((va / 0.1) ** 2))) * np.tanh(va)
        return [va, vb, (0.3 * np.sin(4 * t) - friction - slope * torque) / ROTOR, (torque - 3.0) / ARM]

    return solve_ivp(rates, (0.0, 1.0), np.zeros(4), method="DOP853", rtol=1e-13, atol=1e-14).y[:2, -1]


def ends_of(solution: mbd.Solution) -> Any:
    return jnp.stack([solution["M.angle"][-1], solution["L.angle"][-1]])


@KINDS
def test_a_harmonic_drive(nouns: ModuleType, coordinates: str) -> None:
    found = harmonic_drive(nouns, coordinates)
    assert found.engine != "diffrax"
    np.testing.assert_allclose(ends_of(found), by_scipy(**CASE), rtol=0, atol=2e-9)
    assert abs(float(found["M.angle"][-1])) > 2 * np.pi  # whole turns count


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_derivatives_of_a_harmonic_drive(mode: Any) -> None:
    found = mode(lambda x: ends_of(harmonic_drive(coordinates="absolute", **x)))(
        {name: jnp.asarray(value) for name, value in CASE.items()}
    )
    for name, value in CASE.items():
        at = [by_scipy(**(CASE | {name: value * (1 + h * 2e-3)})) for h in (2, 1, -1, -2)]
        slope = (8 * (at[1] - at[2]) - at[0] + at[3]) / (12 * 2e-3 * value)
        np.testing.assert_allclose(found[name], slope, rtol=1e-6, atol=1e-7 * np.abs(slope).max())


# --- a lossy gear ----------------------------------------------------------------------------------------------------

MOTOR, LOAD, STEP, TEETH = 1e-2, 2.0, 1 / 10, 200.0
LOSSES = {"efficiency": 0.8, "back_efficiency": 0.7, "bearing": 0.05}


def lossy(
    nouns: ModuleType = pl,
    coordinates: str = "joint",
    push: Any = 1.2,
    weight: float = -0.5,
    play: Any = 0.0,
    **given: Any,
) -> Any:
    numbers = LOSSES | given
    motor, load = wheel(nouns, "motor", MOTOR), wheel(nouns, "load", LOAD)
    joints = [nouns.Revolute(n, nouns.ground.at(), b.at()) for n, b in (("M", motor), ("L", load))]
    joints.append(nouns.GearMesh("mesh", "M.angle", "L.angle", STEP))
    forces = [
        nouns.Backlash("teeth", "mesh.twist", TEETH, play=play),
        nouns.GearFriction("losses", "M.angle", "teeth", **numbers),
        nouns.JointForce("push", "M.angle", lambda t, *_: push * jnp.sin(3 * t)),
        nouns.JointForce("weight", "L.angle", weight),
    ]
    return nouns.Mechanism([motor, load], joints, forces, coordinates=coordinates)


def driven(end: float = 3.0, **given: Any) -> mbd.Solution:
    mechanism = lossy(**given)
    start = mbd.assemble(mechanism, {"M.angle": 0.0, "L.angle": 0.0})
    # What errors are at one change grows until the next ones.
    return mbd.simulate(mechanism, start, np.linspace(0.0, end, 31), rtol=1e-13, atol=1e-14, max_events=64)


def friction(way: float, tau: float, efficiency: float, back_efficiency: float, bearing: float) -> float:
    """What resists a motion of the motor in a direction, where the teeth push it with `tau`."""
    share = 1 / efficiency - 1 if way * tau < 0 else 1 - back_efficiency
    return bearing + abs(tau) * share


def by_modes(play: float = 0.0, **given: float) -> tuple[np.ndarray, list[float]]:
    """The motor and the load at 3 s, and the times at which the motor sticks and slips, by SciPy, mode by mode."""
    numbers = LOSSES | given
    ways, (t, y, mode), times = (1, -1), (0.0, np.zeros(4), 0), []
    flank = 0 if play else -1  # the sign of `tau`: the weight pulls

    def twist(y: np.ndarray) -> float:
        return y[1] - STEP * y[0]

    def tau(y: np.ndarray) -> float:  # of the teeth on the motor
        return STEP * TEETH * (twist(y) - flank * play / 2) if flank else 0.0

    def rates(t: float, y: np.ndarray, mode: int) -> list[float]:
        resisting = mode * friction(mode, tau(y), **numbers)
        turning = (1.2 * np.sin(3 * t) + tau(y) - resisting) / MOTOR if mode else 0.0
        return [y[2] if mode else 0.0, y[3], turning, (-tau(y) / STEP - 0.5) / LOAD]

    def excess(t: float, y: np.ndarray, way: int) -> float:
        return way * (1.2 * np.sin(3 * t) + tau(y)) - friction(way, tau(y), **numbers)

    def event(function: Any, direction: float) -> Any:
        function.terminal, function.direction = True, direction
        return function

    settings: Any = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-15}
    while t < 3.0:
        # The flanks that touch next, and where they do: those of the other side, or none within the play.
        nexts = ([0] if play else [-flank]) if flank else [*ways]
        changes = [
            event(lambda t, y, mode, at=(flank or new) * play / 2: twist(y) - at, -flank or new) for new in nexts
        ]
        if mode:
            ends = [event(lambda t, y, mode: y[2], -mode)]
        else:
            ends = [event(lambda t, y, mode, w=w: excess(t, y, w), 1) for w in ways]
        run = solve_ivp(rates, (t, 3.0), y, args=(mode,), events=[*changes, *ends], **settings)
        t, y = run.t[-1], run.y[:, -1]
        changed, ended = run.t_events[: len(changes)], run.t_events[len(changes) :]
        if any(map(len, changed)):
            flank = next(new for new, when in zip(nexts, changed, strict=True) if len(when))
        elif mode and len(ended[0]):
            times.append(t)
            y[2] = 0.0
            mode = next((w for w in ways if excess(t, y, w) > 0), 0)  # it turns back at once, or sticks
        elif any(map(len, ended)):
            times.append(t)
            mode = ways[0] if len(ended[0]) else ways[1]
            run = solve_ivp(rates, (t, t + 1e-4), y, args=(mode,), **settings)  # away from rest
            t, y = run.t[-1], run.y[:, -1]
    return y[:2], times


@pytest.mark.parametrize("way", [1.0, -1.0])
@pytest.mark.parametrize("twist", [0.02, -0.02])
def test_power_flows_through_teeth_with_losses(way: float, twist: float) -> None:
    """The four quadrants: driving takes `1/η` of the teeth's torque, being driven returns `η_b` of it."""
    mechanism = lossy(direction=way, bearing=0.0)
    start = mbd.assemble(mechanism, {"M.angle": 0.3, "L.angle": 0.03 + twist}, speeds={"M.angle": 2.0 * way})
    found = mbd.read(mechanism, start, ["losses.effort", "teeth.effort"])
    teeth = -TEETH * twist
    np.testing.assert_allclose(found["teeth.effort"], teeth, rtol=1e-12)
    on_motor = -STEP * teeth
    through = on_motor / 0.8 if way * on_motor < 0 else 0.7 * on_motor
    np.testing.assert_allclose(on_motor + found["losses.effort"], through, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("nouns", "coordinates"), [(pl, "joint"), (sp, "absolute"), (pl, "absolute"), (sp, "joint")])
def test_a_lossy_gear_sticks_and_slips(nouns: ModuleType, coordinates: str) -> None:
    solution = driven(nouns=nouns, coordinates=coordinates)
    ends, times = by_modes()
    assert solution.engine != "diffrax"
    log = solution.events
    assert log is not None
    names = "losses.sticks", "losses.slips forward", "losses.slips back"
    happened = np.sort(np.concatenate([np.asarray(log.times_of(name)) for name in names]))
    np.testing.assert_allclose(happened[happened > 0], times, rtol=0, atol=1e-8)
    np.testing.assert_allclose(ends_of(solution), ends, rtol=0, atol=1e-9)
    held = np.asarray(solution["losses.direction"]) == 0
    assert held.sum() == 3
    np.testing.assert_allclose(np.asarray(solution["M.angle_rate"])[held], 0.0, atol=1e-11)
    on_motor = np.asarray(solution["push.effort"]) - STEP * np.asarray(solution["teeth.effort"])
    np.testing.assert_allclose(np.asarray(solution["losses.effort"])[held], -on_motor[held], atol=1e-9)


def test_the_flank_is_known_by_a_torque() -> None:
    """Of a mesh by its twist, an angle: what is zero but for rounding has the size of either."""
    assert guard_units(lossy()) == ["rad"] * 6 + ["N m"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("play", [0.0, 0.02])
def test_derivatives_of_a_lossy_gear(mode: Any, play: float) -> None:
    """The law has a kink where the teeth change flanks, and where they touch after play."""
    given = LOSSES | ({"play": play} if play else {})
    found = mode(lambda x: ends_of(driven(**x)))({name: jnp.asarray(value) for name, value in given.items()})
    np.testing.assert_allclose(ends_of(driven(**given)), by_modes(**given)[0], rtol=0, atol=1e-9)
    for name, value in given.items():
        at = [by_modes(**(given | {name: value + h * 1e-4}))[0] for h in (2, 1, -1, -2)]
        slope = (8 * (at[1] - at[2]) - at[0] + at[3]) / (12 * 1e-4)
        np.testing.assert_allclose(found[name], slope, rtol=1e-7, atol=1e-7 * np.abs(slope).max())


@pytest.mark.slow
def test_lossy_gears_side_by_side() -> None:
    values = jnp.linspace(0.7, 0.9, 5)
    batch = jax.vmap(lambda x: ends_of(driven(efficiency=x)))(values)
    for k in (0, 2, 4):
        np.testing.assert_allclose(batch[k], by_modes(efficiency=float(values[k]))[0], rtol=0, atol=1e-8)


@pytest.mark.slow
def test_a_worm_locks_itself() -> None:
    """No load at the wheel turns the worm, and the default loses as much in both directions of power."""
    for given, turns in (({"efficiency": 0.45}, False), ({"efficiency": 0.9}, True)):
        worm = driven(push=0.0, weight=-30.0, end=1.0, **({"back_efficiency": None, "bearing": 0.01} | given))
        turned = abs(float(worm["M.angle"][-1]))
        assert turned > 1.0 if turns else turned < 1e-12
        assert abs(np.asarray(worm["L.angle"])).max() > 0.1


def test_mistakes_are_named() -> None:
    with pytest.raises(
        mbd.MechanismError, match=r"PlanetaryGear 'set' couples 'A\.angle' with itself; name 3 different"
    ):
        pl.PlanetaryGear("set", "A.angle", "A.angle", "C.angle", 3.0)
    with pytest.raises(mbd.MechanismError, match="with a ratio of -1 sun and ring turn as one"):
        pl.PlanetaryGear("set", "A.angle", "B.angle", "C.angle", -1.0)
    with pytest.raises(mbd.MechanismError, match=r"GearMesh 'mesh': error_orders must have shape \(2,\)"):
        pl.GearMesh("mesh", "A.angle", "B.angle", 2.0, error_amplitudes=(1e-3, 1e-4), error_orders=(1.0,))
    with pytest.raises(mbd.MechanismError, match=r"GearFriction 'f': back_efficiency must be at most 1, got 1\.2"):
        pl.GearFriction("f", "A.angle", "teeth", 0.9, 1.2)
    mechanism = lossy()
    for load, text in (
        ("tooth", "GearFriction 'losses': There is no force along a coordinate named 'tooth'"),
        ("push", "GearFriction 'losses': the load 'push' acts along 'M.angle', to which 'M.angle' does not belong"),
        ("losses", "GearFriction 'losses': the load 'losses' is a GearFriction, which has a load itself"),
    ):
        others = [force for force in mechanism.forces if force.name != "losses"]
        losses = pl.GearFriction("losses", "M.angle", load, 0.9)
        with pytest.raises(mbd.MechanismError, match=text):
            mechanism.replacing(forces=[*others, losses])
    with pytest.raises(mbd.MechanismError, match=r"'mesh\.twist' is a gear mesh's twist; a tendon runs over joints"):
        mechanism.with_parts([pl.Tendon("T", ["mesh.twist"], [1.0])])
