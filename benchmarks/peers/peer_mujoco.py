"""MuJoCo: joint coordinates, loops closed by stiff (soft in principle) connect constraints, RK4, all in C."""

import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.measure import Run
from benchmarks.peers.tree import Tree, absolute_coordinates, joint_values, spanning_tree
from benchmarks.problems import GRAVITY, GROUND, Array, Point, Problem

mujoco: Any = importlib.import_module("mujoco")

# Time constant of the loop constraints, in steps. MuJoCo's guard asks for at least two and is switched off:
# on the four-bars a stiffer loop is the more accurate one, and half a step is still stable with RK4.
STIFFNESS = {"slider-crank": 2.0}
STIFFEST = 0.5
STEPS = {
    "pendulum": (200, 300, 650, 1000, 1500, 2400, 4000),
    "slider-crank": (10000, 20000, 50000, 100000, 200000),
    "four-bar-1": (5000, 10000, 15000, 30000, 60000, 100000),
    "four-bar-2": (5000, 10000, 30000, 100000, 300000),
    "four-bar-10": (5000, 10000, 30000, 100000, 200000),
}


def runs(problem: Problem) -> Iterator[Run]:
    """MuJoCo with RK4, from coarse to fine steps."""
    for steps in STEPS[problem.name]:
        dt = problem.duration / steps
        start = time.perf_counter()
        solve = build(problem, dt, steps)
        yield Run("mujoco", "RK4", f"dt = {dt:.2e}", solve, time.perf_counter() - start, steps)


def build(problem: Problem, dt: float, steps: int) -> Callable[[], Array]:
    """A function that integrates the problem."""
    tree = spanning_tree(problem)
    model = loop_model(problem, tree, dt)
    data = mujoco.MjData(model)
    places = np.array([model.joint(f"joint{body}").qposadr[0] for body in range(len(problem.bodies))])
    q0, v0 = joint_values(tree, problem.positions), joint_values(tree, problem.velocities)

    def solve() -> Array:
        mujoco.mj_resetData(model, data)
        data.qpos[places] = q0
        data.qvel[places] = v0
        mujoco.mj_step(model, data, nstep=steps)
        return absolute_coordinates(tree, data.qpos[places])

    return solve


def loop_model(problem: Problem, tree: Tree, dt: float) -> Any:
    """The compiled model: a tree of bodies and one connect constraint for each cut pin."""
    spec = mujoco.MjSpec()
    off = mujoco.mjtDisableBit
    spec.option.timestep = dt
    spec.option.gravity = [0.0, -GRAVITY, 0.0]
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.tolerance = 1e-14
    spec.option.disableflags = int(off.mjDSBL_CONTACT) | int(off.mjDSBL_REFSAFE)
    time_constant = STIFFNESS.get(problem.name, STIFFEST) * dt
    bodies = {GROUND: spec.worldbody}
    for index in tree.order:
        joint, body = tree.joints[index], problem.bodies[index]
        made = bodies[joint.parent].add_body(name=f"body{index}", pos=in_space(joint.place))
        kind = mujoco.mjtJoint.mjJNT_SLIDE if joint.slides else mujoco.mjtJoint.mjJNT_HINGE
        axis = [1.0, 0.0, 0.0] if joint.slides else [0.0, 0.0, 1.0]
        made.add_joint(name=f"joint{index}", type=kind, axis=axis)
        made.mass, made.explicitinertial = body.mass, True
        made.ipos = in_space((-joint.pivot[0], -joint.pivot[1]))
        made.inertia = [body.inertia / 2, body.inertia, body.inertia]  # only the last one matters
        bodies[index] = made
    for k, cut in enumerate(tree.cuts):
        ends = ((cut.body, cut.point), (cut.other, cut.other_point))
        for side, (body, point) in enumerate(ends):
            place = in_space(tree.in_joint_frame(body, point))
            bodies[body].add_site(name=f"cut{k}-{side}", pos=place)
        spec.add_equality(
            type=mujoco.mjtEq.mjEQ_CONNECT,
            objtype=mujoco.mjtObj.mjOBJ_SITE,
            name1=f"cut{k}-0",
            name2=f"cut{k}-1",
            solref=[time_constant, 1.0],
            solimp=[0.9999, 0.9999, 0.001, 0.5, 2.0],
        )
    return spec.compile()


def in_space(point: Point) -> list[float]:
    """A point of the plane as a point in space."""
    return [point[0], point[1], 0.0]
