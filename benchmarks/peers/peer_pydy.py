"""PyDy: Kane's equations by SymPy, compiled by PyDy's generator, integrated by SciPy's DOP853.

Dependent speeds are eliminated. At the singular positions of the four-bars that elimination has no solution and the
step control gets stuck, so only the other planar problems are run.
"""

import importlib
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from benchmarks.bricard import Ring
from benchmarks.measure import Run
from benchmarks.peers.tree import Link, Tree, planar_tree
from benchmarks.problems import GRAVITY, GROUND, Array, Problem

sympy: Any = importlib.import_module("sympy")
mechanics: Any = importlib.import_module("sympy.physics.mechanics")
generate: Any = importlib.import_module("pydy.codegen.ode_function_generators").generate_ode_function

GRAVITIES = np.array([GRAVITY])  # PyDy's functions want at least one parameter
GRAVITY_SYMBOL = sympy.Symbol("g")
TOLERANCES = {
    "pendulum": (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9),
    "slider-crank": (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9),
}


def runs(problem: Problem | Ring) -> Iterator[Run]:
    """The compiled equations with DOP853, from loose to tight tolerances."""
    if isinstance(problem, Ring) or problem.name not in TOLERANCES:
        return
    start, tree = time.perf_counter(), planar_tree(problem)
    right_side = compiled(kane(tree))
    built = time.perf_counter() - start
    for tolerance in TOLERANCES[problem.name]:
        calls = [0]
        solve = solver(problem, tree, right_side, tolerance, calls)
        yield Run("pydy", "DOP853", f"rtol = {tolerance:.0e}", solve, built, lambda calls=calls: calls[0])


def solver(
    problem: Problem, tree: Tree, right_side: Any, tolerance: float, calls: list[int]
) -> Callable[[], Array]:  # fmt: skip
    """A function that integrates the problem and leaves the number of right-side calls in `calls[0]`."""
    start, count = np.concatenate([tree.positions, tree.speeds]), len(tree.links)

    def solve() -> Array:
        span = (0.0, problem.duration)
        done: Any = solve_ivp(
            lambda t, x: right_side(x, t, GRAVITIES), span, start, "DOP853", rtol=tolerance, atol=1e-3 * tolerance
        )
        calls[0] = done.nfev
        if not done.success:
            raise RuntimeError(done.message)
        return tree.answer(done.y[:count, -1])

    return solve


def compiled(equations: Any) -> Any:
    """PyDy's right-hand side: in C by Cython where there is a compiler, otherwise in NumPy."""
    kind = "cython" if shutil.which("gcc") or shutil.which("cc") else "lambdify"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return generate(
            equations.forcing_full, equations.q[:], equations.u[:], [GRAVITY_SYMBOL],
            mass_matrix=equations.mass_matrix_full, generator=kind,
        )  # fmt: skip


def kane(tree: Tree) -> Any:
    """Kane's equations of a planar tree, with the closures as constraints; the first joint is independent."""
    count = len(tree.links)
    world, origin = mechanics.ReferenceFrame("N"), mechanics.Point("O")
    origin.set_vel(world, 0)
    q, u = mechanics.dynamicsymbols(f"q:{count}"), mechanics.dynamicsymbols(f"u:{count}")
    frames, points = {GROUND: world}, {GROUND: origin}
    bodies, loads = [], []
    for body in tree.order:
        link = tree.links[body]
        centre = jointed(body, link, frames, points, q[body], u[body], world)
        inertia = mechanics.inertia(frames[body], *link.moments)
        bodies.append(mechanics.RigidBody(f"B{body}", centre, frames[body], link.mass, (inertia, centre)))
        loads.append((centre, -link.mass * GRAVITY_SYMBOL * world.y))
    closed, closing = [], []
    for cut in tree.closures:
        ends = [
            attached(f"{cut.body}{b}", points[b], frames[b], point, world)
            for b, point in ((cut.body, cut.point), (cut.other, cut.other_point))
        ]
        for axis in (world.x, world.y):
            closed.append(ends[0].pos_from(ends[1]).dot(axis))
            closing.append((ends[0].vel(world) - ends[1].vel(world)).dot(axis))
    time_symbol = mechanics.dynamicsymbols._t
    equations = mechanics.KanesMethod(
        world, q_ind=q[:1], u_ind=u[:1], kd_eqs=[u[k] - q[k].diff(time_symbol) for k in range(count)],
        q_dependent=q[1:], u_dependent=u[1:], configuration_constraints=closed, velocity_constraints=closing,
        constraint_solver="CRAMER",
    )  # fmt: skip
    equations.kanes_equations(bodies, loads)
    return equations


def jointed(body: int, link: Link, frames: Any, points: Any, q: Any, u: Any, world: Any) -> Any:
    """Add a body's joint frame and the point it is at; returns its centre of mass."""
    base = frames[link.parent]
    place = attached(f"J{body}", points[link.parent], base, link.place, world)
    if link.slides:
        frames[body], points[body] = base, place.locatenew(f"S{body}", q * world.x)
        points[body].set_vel(world, u * world.x)
    else:
        frames[body], points[body] = base.orientnew(f"A{body}", "Axis", [q, world.z]), place
        frames[body].set_ang_vel(base, u * world.z)
    return attached(f"C{body}", points[body], frames[body], link.centre, world)


def attached(name: str, point: Any, frame: Any, arm: Array, world: Any) -> Any:
    """A point fixed in a frame, an arm away from another one."""
    made = point.locatenew(name, sum((float(x) * axis for x, axis in zip(arm, frame, strict=True)), 0 * frame.x))
    made.v2pt_theory(point, world, frame)
    return made
