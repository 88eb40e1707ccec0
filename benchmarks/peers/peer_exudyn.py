"""Exudyn: redundant absolute coordinates, hard constraints, implicit methods of order two, all in C++.

The trapezoidal method is the more accurate one, but fails at the singular positions of the four-bars and on Bricard's
ring, where only the generalised-alpha method is used. The ring has a constraint too many: Eigen's dense solver finds
the pivots that are zero and leaves them out.
"""

import importlib
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import bricard
from benchmarks.bricard import Ring
from benchmarks.measure import Run
from benchmarks.problems import GRAVITY, GROUND, Array, Point, Problem

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    exudyn: Any = importlib.import_module("exudyn")
    items: Any = importlib.import_module("exudyn.itemInterface")
    utilities: Any = importlib.import_module("exudyn.utilities")

exudyn.SetWriteToConsole(False)  # a failure is raised, not printed

SPECTRAL_RADIUS = 0.9
DENSE_BODIES = 7  # up to this number of bodies the dense linear solver is the faster one
ALPHA = "generalised alpha"
TRAPEZOIDAL = "trapezoidal"
STEPS = {
    "pendulum": {ALPHA: (3000, 10000), TRAPEZOIDAL: (1000, 3000, 10000, 30000, 100000)},
    "slider-crank": {ALPHA: (20000, 50000), TRAPEZOIDAL: (20000, 50000, 150000)},
    "bricard": {ALPHA: (1000, 3000, 10000)},
    "four-bar-1": {ALPHA: (2000, 3000, 10000, 30000, 75000)},
    "four-bar-2": {ALPHA: (2000, 3000, 10000, 30000, 70000)},
    "four-bar-10": {ALPHA: (2000, 3000, 10000, 20000)},
    "four-bar-40": {ALPHA: (2000, 3000)},
}
# Relative tolerance of Newton's method. Tighter ones only help where they can be met: with ten four-bars the
# solver stops at a singular position if it is asked for Exudyn's default, 1e-8.
NEWTON = {"pendulum": 1e-10, "slider-crank": 1e-10, "four-bar-10": 1e-7, "four-bar-40": 1e-7}
NEWTON_DEFAULT = 1e-8


def runs(problem: Problem | Ring) -> Iterator[Run]:
    """Exudyn's implicit methods, from coarse to fine steps."""
    for method, sweep in STEPS[problem.name].items():
        for steps in sweep:
            start = time.perf_counter()
            solve = build(problem, method, steps)
            dt = problem.duration / steps
            built = time.perf_counter() - start
            yield Run("exudyn", method, f"dt = {dt:.2e}", solve, built, steps)


def build(problem: Problem | Ring, method: str, steps: int) -> Callable[[], Array]:
    """A function that integrates the problem; Exudyn starts from the initial state at every call."""
    system, answer = ring_model() if isinstance(problem, Ring) else planar_model(problem)
    settings = solver_settings(problem, steps)
    kinds = exudyn.DynamicSolverType
    kind = kinds.GeneralizedAlpha if method == ALPHA else kinds.TrapezoidalIndex2

    def solve() -> Array:
        if not system.SolveDynamic(settings, solverType=kind, showHints=False, storeSolver=False):
            raise RuntimeError("the solver stopped before the end")
        return answer()

    return solve


def ring_model() -> tuple[Any, Callable[[], Array]]:
    """Bricard's ring as Exudyn's rigid bodies in space, and a function that reads the centres of mass."""
    system = exudyn.SystemContainer().AddSystem()
    ground = before = system.AddObject(items.ObjectGround())
    bodies = []
    for k, (point, axis) in enumerate(zip(bricard.POINTS, bricard.AXES, strict=True)):
        if k == 5:
            system.CreateGenericJoint(
                bodyNumbers=[before, ground], position=list(point), constrainedAxes=[1, 1, 1, 0, 1, 1]
            )
            break
        inertia = utilities.RigidBodyInertia(mass=1.0, inertiaTensor=np.diag(bricard.moments(k)))
        centre = list(point + bricard.SPANS[k] / 2)
        body = system.CreateRigidBody(inertia=inertia, referencePosition=centre, gravity=[0.0, -GRAVITY, 0.0])
        system.CreateRevoluteJoint(bodyNumbers=[before, body], position=list(point), axis=list(axis))
        bodies.append(body)
        before = body
    system.Assemble()
    place = exudyn.OutputVariableType.Position
    return system, lambda: np.array([system.GetObjectOutputBody(b, place, [0.0, 0.0, 0.0]) for b in bodies])


def planar_model(problem: Problem) -> tuple[Any, Callable[[], Array]]:
    """The assembled multibody system, and a function that reads the absolute coordinates."""
    system = exudyn.SystemContainer().AddSystem()
    ground = system.AddObject(items.ObjectGround())
    nodes, bodies = [], []
    for body, position, velocity in zip(problem.bodies, problem.positions, problem.velocities, strict=True):
        state = {"referenceCoordinates": list(position), "initialVelocities": list(velocity)}
        node = system.AddNode(items.NodeRigidBody2D(**state))
        made = system.AddObject(
            items.ObjectRigidBody2D(nodeNumber=node, physicsMass=body.mass, physicsInertia=body.inertia)
        )
        mass = system.AddMarker(items.MarkerBodyMass(bodyNumber=made))
        system.AddLoad(items.LoadMassProportional(markerNumber=mass, loadVector=[0.0, -GRAVITY, 0.0]))
        nodes.append(node)
        bodies.append(made)

    def marker(body: int, point: Point) -> int:
        owner = ground if body == GROUND else bodies[body]
        place = [point[0], point[1], 0.0]
        return system.AddMarker(items.MarkerBodyPosition(bodyNumber=owner, localPosition=place))

    for pin in problem.pins:
        ends = [marker(pin.other, pin.other_point), marker(pin.body, pin.point)]
        system.AddObject(items.ObjectJointRevolute2D(markerNumbers=ends))
    for body in problem.sliders:
        fixed = system.AddNode(items.NodePointGround())
        first = system.AddMarker(items.MarkerNodeCoordinate(nodeNumber=fixed, coordinate=0))
        for coordinate in (1, 2):  # y and theta stay zero
            second = items.MarkerNodeCoordinate(nodeNumber=nodes[body], coordinate=coordinate)
            ends = [first, system.AddMarker(second)]
            system.AddObject(items.ObjectConnectorCoordinate(markerNumbers=ends))
    system.Assemble()
    read = system.systemData.GetODE2Coordinates
    return system, lambda: problem.positions + np.array(read()).reshape(-1, 3)


def solver_settings(problem: Problem | Ring, steps: int) -> Any:
    """Fixed steps, modified Newton, no output."""
    settings = exudyn.SimulationSettings()
    settings.solutionSettings.writeSolutionToFile = False
    settings.solutionSettings.sensorsWritePeriod = 1e10
    integration = settings.timeIntegration
    integration.numberOfSteps = steps
    integration.endTime = problem.duration
    integration.verboseMode = 0
    integration.newton.useModifiedNewton = True
    integration.newton.relativeTolerance = NEWTON.get(problem.name, NEWTON_DEFAULT)
    integration.newton.absoluteTolerance = integration.newton.relativeTolerance / 100
    integration.generalizedAlpha.computeInitialAccelerations = True
    integration.generalizedAlpha.spectralRadius = SPECTRAL_RADIUS
    kinds = exudyn.LinearSolverType
    if isinstance(problem, Ring):
        settings.linearSolverType = kinds.EigenDense
        settings.linearSolverSettings.ignoreSingularJacobian = True
        return settings
    small = len(problem.bodies) <= DENSE_BODIES
    settings.linearSolverType = kinds.EXUdense if small else kinds.EigenSparse
    return settings
