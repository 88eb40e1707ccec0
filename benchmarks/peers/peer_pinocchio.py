"""Pinocchio: joint coordinates, loops closed by proximal constraint dynamics, time stepping in Python.

Pinocchio gives accelerations and ships no integrator. Two are used: the classical Runge-Kutta method of order
four, written here, and SciPy's adaptive DOP853. The latter does not get past the singular positions of the
four-bars, whatever its tolerance, and is left out there.
"""

import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from benchmarks.bricard import Ring
from benchmarks.measure import Run
from benchmarks.peers.tree import Tree, spanning_tree
from benchmarks.problems import GRAVITY, GROUND, Array, Problem

pin: Any = importlib.import_module("pinocchio")

BAUMGARTE_RATE = 100.0  # rad/s, critically damped; keeps order four, unlike a rate tied to the step
BAUMGARTE_RATES = {"bricard": 10.0}
STABLE = 2.0  # the largest product of step and rate: the method is stable up to 2.8
FOUR_BAR_STEPS = (300, 350, 400, 500, 600, 700, 800, 900, 1000, 1500, 2000, 2400, 2600, 5000)
STEPS = {
    "pendulum": (100, 200, 300, 650, 1000, 1500, 2400, 4000),
    "slider-crank": (3000, 5000, 10000, 15000, 25000, 40000, 70000),
    "bricard": (600, 1200, 2400),
    "four-bar-1": FOUR_BAR_STEPS,
    "four-bar-2": FOUR_BAR_STEPS,
    "four-bar-10": FOUR_BAR_STEPS,
    "four-bar-40": (250, 350, 500, 700, 1000, 2400),
}
TOLERANCES = {
    "pendulum": (1e-4, 1e-5, 1e-6, 1e-7, 3e-8, 1e-8, 3e-9, 1e-9),
    "slider-crank": (1e-5, 1e-6, 1e-7, 3e-8, 1e-8, 3e-9, 1e-9, 1e-10),
    "bricard": (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10),
}


@dataclass(frozen=True)
class Model:
    """Accelerations as a function of joint positions and rates, the start, and the way back to the answer."""

    acceleration: Callable[[Array, Array], Array]
    q: Array
    v: Array
    answer: Callable[[Array], Array]


def runs(problem: Problem | Ring) -> Iterator[Run]:
    """Pinocchio with RK4 from coarse to fine steps, then with DOP853 from loose to tight tolerances."""
    tree, rate = spanning_tree(problem), BAUMGARTE_RATES.get(problem.name, BAUMGARTE_RATE)
    for steps in STEPS[problem.name]:
        start, dt = time.perf_counter(), problem.duration / steps
        solve = rk4(build(tree, min(rate, STABLE / dt)), dt, steps)
        yield Run("pinocchio", "RK4", f"dt = {dt:.2e}", solve, time.perf_counter() - start, steps)
    start = time.perf_counter()
    model = build(tree, rate)
    built = time.perf_counter() - start
    for tolerance in TOLERANCES.get(problem.name, ()):
        calls = [0]
        solve = dop853(model, problem.duration, tolerance, calls)
        setting = f"rtol = {tolerance:.0e}"
        yield Run("pinocchio", "DOP853", setting, solve, built, lambda calls=calls: calls[0])


def rk4(model: Model, dt: float, steps: int) -> Callable[[], Array]:
    """A function that takes `steps` steps of the classical Runge-Kutta method."""
    f, half = model.acceleration, dt / 2

    def solve() -> Array:
        q, v = model.q, model.v
        for _ in range(steps):
            a1 = f(q, v)
            v2 = v + half * a1
            a2 = f(q + half * v, v2)
            v3 = v + half * a2
            a3 = f(q + half * v2, v3)
            v4 = v + dt * a3
            a4 = f(q + dt * v3, v4)
            q = q + dt / 6 * (v + 2 * v2 + 2 * v3 + v4)
            v = v + dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
        return model.answer(q)

    return solve


def dop853(model: Model, duration: float, tolerance: float, calls: list[int]) -> Callable[[], Array]:
    """A function that integrates adaptively and leaves the number of right-side calls in `calls[0]`."""
    count = len(model.q)
    start = np.concatenate([model.q, model.v])

    def right_side(_: float, y: Array) -> Array:
        return np.concatenate([y[count:], model.acceleration(y[:count], y[count:])])

    def solve() -> Array:
        span = (0.0, duration)
        done: Any = solve_ivp(right_side, span, start, "DOP853", rtol=tolerance, atol=tolerance / 10)
        calls[0] = done.nfev
        if not done.success:
            raise RuntimeError(done.message)
        return model.answer(done.y[:count, -1])

    return solve


def build(tree: Tree, rate: float) -> Model:
    """The tree as a Pinocchio model with its closures as constraints, corrected at a rate [rad/s]."""
    model, ids = tree_model(tree)
    data = model.createData()
    torque = np.zeros(model.nv)
    closures, closure_data = loop_closures(model, ids, tree, rate)
    if tree.closures:
        pin.initConstraintDynamics(model, data, closures, closure_data)
    proximal = pin.ProximalSettings(1e-12, 1e-10, 20)

    def constrained(q: Array, v: Array) -> Array:
        return pin.constraintDynamics(model, data, q, v, torque, closures, closure_data, proximal).copy()

    def free(q: Array, v: Array) -> Array:
        return pin.aba(model, data, q, v, torque).copy()

    places = np.array([model.joints[ids[body]].idx_q for body in range(len(tree.links))])
    q, v = np.zeros(model.nq), np.zeros(model.nv)
    q[places], v[places] = tree.positions, tree.speeds
    acceleration = constrained if tree.closures else free
    return Model(acceleration, q, v, lambda q: tree.answer(q[places]))


def tree_model(tree: Tree) -> tuple[Any, dict[int, int]]:
    """The open tree as a Pinocchio model, and the joint number of each body."""
    model = pin.Model()
    model.gravity = pin.Motion(np.array([0.0, -GRAVITY, 0.0]), np.zeros(3))
    ids, hinges = {GROUND: 0}, (pin.JointModelRX, pin.JointModelRY, pin.JointModelRZ)
    for index in tree.order:
        link = tree.links[index]
        kind = pin.JointModelPX() if link.slides else hinges[int(np.argmax(link.axis))]()
        ids[index] = model.addJoint(ids[link.parent], kind, placed(link.place), f"joint{index}")
        inertia = pin.Inertia(link.mass, link.centre, np.diag(link.moments))
        model.appendBodyToJoint(ids[index], inertia, pin.SE3.Identity())
    return model, ids


def loop_closures(model: Any, ids: dict[int, int], tree: Tree, rate: float) -> tuple[Any, Any]:
    """Constraint models and data of the closures, with a Baumgarte correction."""
    models, data = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
    for cut in tree.closures:
        closure = pin.RigidConstraintModel(
            pin.ContactType.CONTACT_3D,
            model,
            ids[cut.body],
            placed(cut.point),
            ids[cut.other],
            placed(cut.other_point),
            pin.ReferenceFrame.LOCAL,
        )
        closure.setBaumgarteCorrectorParameters(pin.BaumgarteCorrectorParameters(rate**2, 2 * rate))
        models.append(closure)
    for closure in models:
        data.append(closure.createData())
    return models, data


def placed(point: Array) -> Any:
    """A frame at a point, not turned."""
    return pin.SE3(np.eye(3), point)
