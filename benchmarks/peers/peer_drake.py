"""Drake: MultibodyPlant. Loops need its discrete solver (SAP), of first order, with nearly rigid ball constraints.

Open trees are run as a continuous plant with Drake's error-controlled Runge-Kutta method of order three. The fast
slider-crank is left out: with steps of 0.1 ms it ends 2 rad off.
"""

import importlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.bricard import Ring
from benchmarks.measure import Run
from benchmarks.peers.tree import Tree, Z, spanning_tree
from benchmarks.problems import GRAVITY, GROUND, Array, Problem

analysis: Any = importlib.import_module("pydrake.systems.analysis")
plants: Any = importlib.import_module("pydrake.multibody.plant")
trees: Any = importlib.import_module("pydrake.multibody.tree")
transform: Any = importlib.import_module("pydrake.math").RigidTransform

STEPS = {
    "bricard": (6000,),
    "four-bar-1": (10000, 30000),
    "four-bar-2": (10000,),
    "four-bar-10": (5000,),
    "four-bar-40": (2000,),
}
ACCURACIES = (1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11)


def runs(problem: Problem | Ring) -> Iterator[Run]:
    """The discrete solver from coarse to fine steps, or for an open tree the continuous one."""
    tree = spanning_tree(problem)
    if tree.closures and problem.name not in STEPS:
        return
    sweep = ((True, n) for n in STEPS[problem.name]) if tree.closures else ((False, a) for a in ACCURACIES)
    for discrete, value in sweep:
        start, dt = time.perf_counter(), problem.duration / value if discrete else 0.0
        solve, steps = build(tree, problem.duration, dt, value)
        label, setting = ("SAP", f"dt = {dt:.2e}") if discrete else ("RK3", f"accuracy = {value:.0e}")
        yield Run("drake", label, setting, solve, time.perf_counter() - start, steps)


def build(
    tree: Tree, duration: float, dt: float, accuracy: float
) -> tuple[Callable[[], Array], Callable[[], int]]:  # fmt: skip
    """A function that integrates the problem, and one that tells how many steps that took."""
    plant, joints, anchor = plant_of(tree, dt)
    places = np.array([joint.position_start() for joint in joints])
    rates = np.array([joint.velocity_start() for joint in joints])
    simulator = analysis.Simulator(plant)
    if not dt:
        analysis.ResetIntegratorFromFlags(simulator, "runge_kutta3", 0.1)
        simulator.get_mutable_integrator().set_target_accuracy(accuracy)
    context = simulator.get_mutable_context()

    def solve() -> Array:
        q, v = np.zeros(plant.num_positions()), np.zeros(plant.num_velocities())
        q[places], v[rates] = tree.positions, tree.speeds
        context.SetTime(0.0)
        plant.SetPositions(context, q)
        plant.SetVelocities(context, v)
        if anchor:
            anchor.Lock(context)
        simulator.Initialize()
        simulator.AdvanceTo(duration)
        return tree.answer(plant.GetPositions(context)[places])

    taken = round(duration / dt) if dt else 0
    return solve, lambda: taken or simulator.get_integrator().get_num_steps_taken()


def plant_of(tree: Tree, dt: float) -> tuple[Any, list[Any], Any]:
    """The plant, its joints by body, and what stands for the ground in closures (None if nothing has to).

    Drake 1.51 crashes on a ball constraint to the world, so a locked body takes its place.
    """
    plant = plants.MultibodyPlant(dt)
    if dt:
        plant.set_discrete_contact_approximation(plants.DiscreteContactApproximation.kSap)
    plant.mutable_gravity_field().set_gravity_vector([0.0, -GRAVITY, 0.0])
    bodies = {GROUND: plant.world_body()}
    joints = {}
    for index in tree.order:
        link = tree.links[index]
        bodies[index] = plant.AddRigidBody(f"body{index}", inertia(link.mass, link.centre, link.moments))
        place = trees.FixedOffsetFrame(f"frame{index}", bodies[link.parent].body_frame(), transform(link.place))
        kind = trees.PrismaticJoint if link.slides else trees.RevoluteJoint
        ends = plant.AddFrame(place), bodies[index].body_frame()
        joints[index] = plant.AddJoint(kind(f"joint{index}", *ends, link.axis))
    anchor, ends = None, dict(bodies)
    if any(closure.other == GROUND for closure in tree.closures):
        ends[GROUND] = plant.AddRigidBody("anchor", inertia(1.0, np.zeros(3), np.full(3, 0.1)))
        frames = plant.world_frame(), ends[GROUND].body_frame()
        anchor = plant.AddJoint(trees.PrismaticJoint("anchor", *frames, np.array(Z)))
    for cut in tree.closures:
        plant.AddBallConstraint(ends[cut.body], cut.point, ends[cut.other], cut.other_point)
    plant.Finalize()
    return plant, [joints[body] for body in range(len(tree.links))], anchor


def inertia(mass: float, centre: Array, moments: Array) -> Any:
    """Drake's spatial inertia: about the body's origin, per unit of mass."""
    unit = trees.UnitInertia(*(moments / mass)).ShiftFromCenterOfMass(centre)
    return trees.SpatialInertia(mass, centre, unit)
