"""MuJoCo: joint coordinates, loops closed by stiff (soft in principle) connect constraints, RK4, all in C."""

import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.bricard import Ring
from benchmarks.measure import Run
from benchmarks.peers.tree import Tree, spanning_tree
from benchmarks.problems import GRAVITY, GROUND, Array, Problem

mujoco: Any = importlib.import_module("mujoco")

# Time constant of the loop constraints, in steps. MuJoCo's guard asks for at least two and is switched off:
# on the four-bars a stiffer loop is the more accurate one, and half a step is still stable with RK4.
STIFFNESS = {"slider-crank": 2.0, "bricard": 2.0}
STIFFEST = 0.5
STEPS = {
    "pendulum": (200, 300, 650, 1000, 1500, 2400, 4000),
    "slider-crank": (10000, 20000, 50000, 100000),
    "bricard": (100, 150, 200, 300, 600, 900, 1200, 3000, 9000),
    "four-bar-1": (3000, 5000, 10000, 15000, 30000, 60000, 100000),
    "four-bar-2": (5000, 10000, 30000, 100000),
    "four-bar-10": (5000, 10000, 30000, 100000),
    "four-bar-40": (3000, 5000, 10000, 30000),
}


def runs(problem: Problem | Ring) -> Iterator[Run]:
    """MuJoCo with RK4, from coarse to fine steps."""
    tree = spanning_tree(problem)
    for steps in STEPS[problem.name]:
        dt = problem.duration / steps
        start = time.perf_counter()
        solve = build(tree, dt, steps, STIFFNESS.get(problem.name, STIFFEST))
        yield Run("mujoco", "RK4", f"dt = {dt:.2e}", solve, time.perf_counter() - start, steps)


def build(tree: Tree, dt: float, steps: int, stiffness: float) -> Callable[[], Array]:
    """A function that integrates the problem."""
    model = loop_model(tree, dt, stiffness)
    data, places = mujoco.MjData(model), joint_places(model)

    def solve() -> Array:
        restart(model, data, tree)
        mujoco.mj_step(model, data, nstep=steps)
        return tree.answer(data.qpos[places])

    return solve


def restart(model: Any, data: Any, tree: Tree) -> None:
    """Put the data back to the start."""
    places = joint_places(model)
    mujoco.mj_resetData(model, data)
    data.qpos[places], data.qvel[places] = tree.positions, tree.speeds


def joint_places(model: Any) -> Array:
    """Where each body's joint stands among the coordinates."""
    return np.array([model.joint(f"joint{body}").qposadr[0] for body in range(model.njnt)])


def loop_model(tree: Tree, dt: float, stiffness: float = STIFFEST) -> Any:
    """The compiled model: a tree of bodies and one connect constraint for each closure."""
    spec = mujoco.MjSpec()
    off = mujoco.mjtDisableBit
    spec.option.timestep = dt
    spec.option.gravity = [0.0, -GRAVITY, 0.0]
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_RK4
    spec.option.tolerance = 1e-14
    spec.option.disableflags = int(off.mjDSBL_CONTACT) | int(off.mjDSBL_REFSAFE)
    bodies = {GROUND: spec.worldbody}
    for index in tree.order:
        link = tree.links[index]
        made = bodies[link.parent].add_body(name=f"body{index}", pos=link.place)
        kind = mujoco.mjtJoint.mjJNT_SLIDE if link.slides else mujoco.mjtJoint.mjJNT_HINGE
        made.add_joint(name=f"joint{index}", type=kind, axis=link.axis)
        made.mass, made.explicitinertial = link.mass, True
        made.ipos, made.inertia = link.centre, link.moments
        bodies[index] = made
    for k, closure in enumerate(tree.closures):
        bodies[closure.body].add_site(name=f"cut{k}-0", pos=closure.point)
        bodies[closure.other].add_site(name=f"cut{k}-1", pos=closure.other_point)
        spec.add_equality(
            type=mujoco.mjtEq.mjEQ_CONNECT,
            objtype=mujoco.mjtObj.mjOBJ_SITE,
            name1=f"cut{k}-0",
            name2=f"cut{k}-1",
            solref=[stiffness * dt, 1.0],
            solimp=[0.9999, 0.9999, 0.001, 0.5, 2.0],
        )
    return spec.compile()
