"""What is wrong with a user's function is said with the name of its part, when the mechanism is built."""

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp

ROD, BALL = pl.Body("rod", 1.0, 0.1, (0.5, 0.0, 0.0)), sp.Body("ball", 1.0, (0.1, 0.1, 0.1))
GRIP, GROUND = ROD.at(), pl.ground.at()


def pendulum(**parts: Any) -> pl.Mechanism:
    joints = [pl.Revolute("O", GROUND, ROD.at(-0.5)), *parts.pop("joints", ())]
    return pl.Mechanism([ROD], joints, **parts)


def in_space(*forces: Any) -> sp.Mechanism:
    return sp.Mechanism([BALL], [sp.Spherical("S", sp.ground.at(), BALL.at(0.5))], forces)


STATE, TIMES = mbd.assemble(pendulum()), np.array([0.0, 1.0])


def watched(event: mbd.Event) -> mbd.Solution:
    return mbd.simulate(pendulum(), STATE, TIMES, events=[event])


def speeds(function: Any) -> pl.Mechanism:
    return pendulum(coordinates="joint", speeds=pl.GeneralizedSpeeds("u", function))


# For each place that takes a function: how it is given, the part's name, the argument, what the function takes, and
# what it must return.
A, NUMBER = "an array of numbers", "a number"
PLACES: dict[str, tuple[Callable[[Any], Any], str, str, str, str]] = {
    "force": (
        lambda f: pendulum(forces=[pl.Force("p", GRIP, f)]),
        "Force 'p'", "force", "t, frame, rate", "numbers of shape (2,)",
    ),
    "force's torque": (
        lambda f: pendulum(forces=[pl.Force("p", GRIP, torque=f)]),
        "Force 'p'", "torque", "t, frame, rate", NUMBER,
    ),
    "torque": (
        lambda f: pendulum(forces=[pl.Torque("p", GRIP, f)]),
        "Torque 'p'", "torque", "t, frames, rates", NUMBER,
    ),
    "torque in space": (
        lambda f: in_space(sp.Torque("p", BALL.at(), f)),
        "Torque 'p'", "torque", "t, frames, rates", "numbers of shape (3,)",
    ),
    "spring": (
        lambda f: pendulum(forces=[pl.SpringDamper("p", GROUND, GRIP, 1.0, actuator=f)]),
        "SpringDamper 'p'", "actuator", "t, length, rate", NUMBER,
    ),
    "torsional spring": (
        lambda f: pendulum(forces=[pl.TorsionalSpringDamper("p", GROUND, GRIP, 1.0, actuator=f)]),
        "TorsionalSpringDamper 'p'", "actuator", "t, angle, rate", NUMBER,
    ),
    "joint's spring": (
        lambda f: pendulum(forces=[pl.JointSpringDamper("p", "O.angle", actuator=f)]),
        "JointSpringDamper 'p'", "actuator", "t, coordinate, rate", NUMBER,
    ),
    "joint's force": (
        lambda f: pendulum(forces=[pl.JointForce("p", "O.angle", f)]),
        "JointForce 'p'", "force", "t, coordinate, rate, parameters", NUMBER,
    ),
    "user's force": (
        lambda f: pendulum(forces=[pl.UserForce("p", f, (GRIP,))]),
        "UserForce 'p'", "function", "t, frames, rates, parameters", A,
    ),
    "generalized force": (
        lambda f: pendulum(forces=[pl.GeneralizedForce("p", f)]),
        "GeneralizedForce 'p'", "function", "t, q, v, parameters", "numbers of shape (3,)",
    ),
    "driver": (
        lambda f: pendulum(drivers=[pl.Driver("p", "O.angle", f)]),
        "Driver 'p'", "motion", "t", NUMBER,
    ),
    "driver of a speed": (
        lambda f: pendulum(drivers=[pl.Driver("p", "O.angle", f, prescribes="speed")]),
        "Driver 'p'", "motion", "t", NUMBER,
    ),
    "constraint": (
        lambda f: pendulum(joints=[pl.Constraint("p", f, GROUND, GRIP)]),
        "Constraint 'p'", "function", "t, frames, parameters", A,
    ),
    "constraint of speeds": (
        lambda f: pendulum(joints=[pl.NonholonomicConstraint("p", f, GROUND, GRIP)]),
        "NonholonomicConstraint 'p'", "function", "t, frames, rates, parameters", A,
    ),
    "global constraint": (
        lambda f: pendulum(joints=[pl.GlobalConstraint("p", f)]),
        "GlobalConstraint 'p'", "function", "t, q, parameters", A,
    ),
    "measure": (
        lambda f: pendulum(sensors=[pl.Measure("p", f)]),
        "Measure 'p'", "function", "t, q, v, vdot, lam, parameters", A,
    ),
    "generalized speeds": (speeds, "GeneralizedSpeeds", "function", "t, q, p, parameters", A),
    "event": (lambda f: watched(mbd.Event("p", f, below=-9.0)), "Event 'p'", "function", "snapshot", A),
    "coordinate of an impact": (
        lambda f: watched(mbd.Event("p", "O.angle", below=-9.0, then=mbd.Bounce(0.5, f))),
        "Event 'p'", "function", "snapshot", A,
    ),
}  # fmt: skip


def first(given: tuple[Any, ...]) -> Any:
    """A number of what a function is given: the time, a speed, or that of a snapshot."""
    value = given[0].t if isinstance(given[0], mbd.Snapshot) else given[0]
    return value if value.shape == () else value[0]


def sine(*given: Any) -> Any:
    return math.sin(first(given))


def numpy_sine(*given: Any) -> Any:
    return np.sin(first(given))


def branching(*given: Any) -> Any:
    return 1.0 if first(given) > 0 else 2.0


def failing(*given: Any) -> Any:
    return {"stiffness": 1.0}["stifness"]


def forgetful(*given: Any) -> None:
    first(given)


FAULTS: dict[str, tuple[Callable[..., Any], str]] = {
    "arguments": (
        lambda: 0.0,
        "{part}: {field} is called as {field}({takes}), and <lambda>() cannot be: too many positional arguments.",
    ),
    "math.sin": (
        sine,
        "{part}: {the} converts a traced value to a Python number (math.sin, float, int, range) in line N. "
        "Take the functions of jax.numpy instead: jnp.sin for math.sin.",
    ),
    "numpy.sin": (
        numpy_sine,
        "{part}: {the} passes a traced value to NumPy in line N. Take the functions of jax.numpy instead: "
        "jnp.sin for np.sin.",
    ),
    "if": (
        branching,
        "{part}: {the} decides by a traced value (if, while, and, or, not, min, max) in line N. Write "
        "jnp.where(condition, a, b), jnp.minimum or jnp.maximum; JAX traces it with values that are not known yet.",
    ),
    "raising": (failing, "{part}: {the} raises KeyError in line N: 'stifness'"),
    "nothing": (forgetful, "{part}: {the} returns None, not {need}. Is its return missing?"),
    "text": (lambda *_: "1.0", "{part}: {the} must return {need}, got '1.0'."),
    "complex": (lambda *_: jnp.asarray(1j), "{part}: {the} must return real numbers, got complex128."),
}


def error_of(call: Callable[[], Any]) -> tuple[str, BaseException]:
    """The text of the error that a call ends with, its numbers of lines as N; and the error."""
    with pytest.raises(mbd.MechanismError) as error:
        call()
    return re.sub(r"in line \d+", "in line N", str(error.value)), error.value


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("place", PLACES)
def test_function(place: str, fault: str) -> None:
    make, part, field, takes, need = PLACES[place]
    function, text = FAULTS[fault]
    the = "the function" if field == "function" else f"the function {field}"
    said, error = error_of(lambda: make(function))
    assert said == text.format(part=part, field=field, takes=takes, need=need, the=the)
    assert fault in ("nothing", "complex") or error.__cause__ is not None


WRONG_ORDERS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "speeds before time": (
        "generalized speeds",
        lambda p, q, t, _: 2 * p,
        "must return shape (1,), got (). It is called as function(t, q, p, parameters).",
    ),
    "frames one by one": (
        "constraint",
        lambda t, a, b, p: a.position - b.position,
        "is called as function(t, frames, parameters), and <lambda>(t, a, b, p) cannot be: missing a required argument",
    ),
    "an angle for frames": ("torque", lambda t, angle, rate: -angle, "It is called as torque(t, frames, rates)."),
    "frames before time": (
        "user's force",
        lambda frames, t, rates, _: frames[0].position,
        "It is called as function(t, frames, rates, parameters).",
    ),
}


@pytest.mark.parametrize("case", WRONG_ORDERS)
def test_a_wrong_order_of_arguments_is_named(case: str) -> None:
    """As far as it can be told: where a function raises because of it, or returns another shape."""
    place, function, text = WRONG_ORDERS[case]
    said, _ = error_of(lambda: PLACES[place][0](function))
    assert text in said


SELECTED = {
    "input": (lambda f: mbd.linearize(pendulum(), STATE, [("p", f)]), "The input 'p'", "the function"),
    "path": (lambda f: mbd.equilibrium_path(pendulum(), f, [1.0, 2.0]), "equilibrium_path", "the function along"),
    "free": (lambda f: fitted(pendulum(), {"p": f}), "Free parameter 'p'", "the function where"),
    "built": (lambda f: fitted(f, {"p": mbd.identification.Parameter(start=1.0)}), "fit", "the function mechanism"),
    "exported": (
        lambda f: mbd.export(pendulum()).with_parameters([f], [1.0]),
        "with_parameters", "the function where",
    ),
}  # fmt: skip


def fitted(model: Any, free: Any) -> Any:
    return mbd.fit(model, mbd.Experiment(TIMES, {"rod.theta": TIMES}), free, progress=False)


@pytest.mark.parametrize("place", SELECTED)
def test_function_of_a_mechanism(place: str) -> None:
    make, part, the = SELECTED[place]
    assert error_of(lambda: make(failing))[0] == f"{part}: {the} raises KeyError in line N: 'stifness'"
    field = the.removeprefix("the function").strip() or "function"
    assert error_of(lambda: make(lambda: 0.0))[0].startswith(f"{part}: {field} is called as {field}(")


def test_the_part_that_fails_is_named_among_equal_ones() -> None:
    forces = [pl.JointForce(f"f{k}", "O.angle", lambda t, x, w, p, k=k: 0.0 if k < 2 else sine(t)) for k in range(4)]
    assert error_of(lambda: pendulum(forces=forces))[0].startswith("JointForce 'f2': ")


def test_one_function_of_many_parts_is_tried_once() -> None:
    calls = []

    def push(t: Any, x: Any, rate: Any, p: Any) -> Any:
        calls.append(x)
        return -p * x

    parts = [pl.JointForce(f"f{k}", "O.angle", push, jnp.asarray(float(k))) for k in range(300)]
    pendulum(forces=parts, sensors=[pl.Measure(f"m{k}", lambda *a: a[0]) for k in range(3)])
    assert len(calls) == 1


def test_parameters_that_jax_cannot_take() -> None:
    force = pl.JointForce("f", "O.angle", lambda t, x, w, p: 0.0 * t, {"a": {1, 2}})
    said, _ = error_of(lambda: pendulum(forces=[force]))
    assert said == (
        "JointForce 'f' holds what is neither an array nor hashable (unhashable type: 'set'). Give its parameters as "
        "numbers, arrays, tuples, lists, dictionaries or an equinox module of those."
    )


def test_an_object_with_a_call_of_its_own() -> None:
    class Law:
        def __call__(self, t: Any) -> Any:
            return branching(t)

    said, _ = error_of(lambda: pendulum(drivers=[pl.Driver("d", "O.angle", Law())]))
    assert "Driver 'd': the function motion decides by a traced value" in said


# --- what must be affine ----------------------------------------------------------------------------------------------

NOT_AFFINE = (
    "{part}: the function must be affine in {its}, a({others}) · {its} + b({others}), and its derivative by {its} "
    "depends on {its}. It must hold no products, squares, norms or other functions of {its}, and no conditions on them."
)
UNUSED = "{part}: what the function returns does not depend on {its}."
IN_RATES = {"part": "NonholonomicConstraint 'p'", "its": "rates", "others": "t, frames, parameters"}
IN_SPEEDS = {"part": "GeneralizedSpeeds", "its": "p", "others": "t, q, parameters"}

OF_VELOCITY: dict[str, tuple[Callable[..., Any], str | None]] = {
    "square": (lambda v, frame, t: jnp.dot(v, v) - 1.0, NOT_AFFINE),
    "sine": (lambda v, frame, t: jnp.sin(v[0]), NOT_AFFINE),
    "product in one row of two": (lambda v, frame, t: jnp.stack([v[0], v[0] * v[1]]), NOT_AFFINE),
    "its derivative is piecewise constant": (lambda v, frame, t: jnp.abs(v[0]) - 1.0, NOT_AFFINE),
    "condition": (lambda v, frame, t: jnp.where(v[0] > 0, v[0], v[1]), NOT_AFFINE),
    "none": (lambda v, frame, t: frame.position[1] - t, UNUSED),
    "coefficients of q and t": (lambda v, frame, t: jnp.dot(frame.position, v) * jnp.exp(t) - jnp.sin(t) ** 2, None),
    "condition on t": (lambda v, frame, t: jnp.where(t > 1, v[0], v[1]), None),
    "table": (lambda v, frame, t: v[0] - jnp.interp(t, jnp.arange(3.0), jnp.arange(3.0) ** 2), None),
    "linear solve": (
        lambda v, frame, t: jnp.linalg.solve(jnp.eye(2) + jnp.outer(frame.position, frame.position), v),
        None,
    ),
    "branches": (lambda v, frame, t: jax.lax.cond(t > 1, lambda v: v[0], lambda v: 2 * v[1] - 1.0, v), None),
}


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("case", OF_VELOCITY)
def test_a_constraint_of_velocities_is_affine(case: str, traced: bool) -> None:
    """Whether its parameters are known or not; coefficients may depend on everything else."""
    function, text = OF_VELOCITY[case]
    law = lambda t, frames, rates, scale: scale * function(rates[1].position, frames[1], t)  # noqa: E731

    def make(scale: Any) -> Any:
        mechanism = pendulum(joints=[pl.NonholonomicConstraint("p", law, GROUND, GRIP, scale)])
        return jnp.asarray(sum(mechanism.constraint_sizes()), jnp.int32)

    call = lambda: (jax.jit(make) if traced else make)(jnp.asarray(2.0))  # noqa: E731
    if text is None:
        assert int(call()) == 2 + (2 if case == "linear solve" else 1)
    else:
        assert error_of(call)[0] == text.format(**IN_RATES)


def test_chosen_speeds_are_affine() -> None:
    for function, text in ((lambda t, q, p, _: p**2, NOT_AFFINE), (lambda t, q, p, _: jnp.cos(q), UNUSED)):
        assert error_of(lambda function=function: speeds(function))[0] == text.format(**IN_SPEEDS)
    speeds(lambda t, q, p, _: p * jnp.exp(q) - t**2)


# --- functions that close over traced values ----------------------------------------------------------------------


def _turned(force: Any = None, driver: Any = None, **settings: Any) -> mbd.Solution:
    """A bar of inertia 1 about its pin, without gravity, from rest."""
    bar = pl.Body("bar", 1.0, 0.75)
    forces = [] if force is None else [pl.JointForce("motor", "O.angle", force)]
    drivers = [] if driver is None else [pl.Driver("motor", "O.angle", driver)]
    pin = pl.Revolute("O", pl.ground.at(0, 0), bar.at(-0.5, 0))
    mechanism = pl.Mechanism([bar], [pin], forces, drivers)
    signals = settings.pop("signals", {})
    mechanism = mbd.with_inputs(mechanism, signals) if signals else mechanism
    start = mbd.assemble(mechanism, {"O.angle": 0.0}) if driver is None else mbd.assemble(mechanism)
    return mbd.simulate(mechanism, start, jnp.array([0.0, 0.5, 1.0]), accuracy="high", **settings)


def _by_default(rate: Any) -> Any:
    return _turned(lambda t, x, w, _, k=rate: k * t)["O.angle"][-1]


def _nested(rate: Any) -> Any:
    inner = lambda t: {"rate": rate}["rate"] * t  # noqa: E731
    return _turned(lambda t, x, w, _: inner(t))["O.angle"][-1]


def _stopped(rate: Any) -> Any:
    event = mbd.Event("enough", lambda at: at.t - 0.2 * rate, above=0.0, then=mbd.Stop())
    return _turned(lambda t, x, w, _: 1.0, events=[event])["O.angle"][-1]


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda rate: _turned(lambda t, x, w, _: rate * t)["O.angle"][-1], 1 / 6),
        pytest.param(lambda rate: _turned(driver=lambda t: rate * t**2)["O.angle"][-1], 1.0, marks=pytest.mark.slow),
        pytest.param(
            lambda rate: _turned(signals={"O.angle": lambda t: rate * t})["O.angle"][-1], 1 / 6, marks=pytest.mark.slow
        ),
        pytest.param(_by_default, 1 / 6, marks=pytest.mark.slow),
        pytest.param(_nested, 1 / 6, marks=pytest.mark.slow),
        pytest.param(_stopped, 0.2**2 * 3.0, marks=pytest.mark.slow),
    ],
    ids=["force", "driver", "signal", "default", "nested", "event"],
)
def test_derivatives_pass_through_what_a_function_closes_over(function: Any, slope: float) -> None:
    """In all modes, although JAX traces the value outside of the function."""
    rate = jnp.asarray(3.0)
    for derivative in (jax.grad(function), jax.jacfwd(function), jax.jit(jax.grad(function))):
        np.testing.assert_allclose(derivative(rate), slope, rtol=0, atol=1e-8)
