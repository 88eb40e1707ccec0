"""SymPy and SciPy: equations derived symbolically, turned into NumPy code, integrated by `solve_ivp`.

The equations are those of the augmented system M a + J' lambda = f, J a = gamma in absolute coordinates,
with a Baumgarte correction in gamma. At the singular positions of the four-bars the matrix loses rank: a
loose tolerance may step over them, a tight one gets stuck.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from benchmarks.bricard import Ring
from benchmarks.measure import Run
from benchmarks.problems import GRAVITY, GROUND, Array, Point, Problem

MOST_BODIES = 21  # with ten four-bars it is ten times as slow as the others already
TIME_LIMIT = 5.0  # seconds; a run that takes longer is given up
SWEEPS = {
    "pendulum": {"RK45": (1e-4, 1e-6), "DOP853": (1e-5, 1e-6, 1e-7, 3e-8, 1e-8, 3e-9, 1e-9)},
    "slider-crank": {"RK45": (1e-6, 1e-8), "DOP853": (1e-5, 1e-6, 1e-7, 1e-8, 3e-9, 1e-9, 3e-10)},
}
FOUR_BARS = {"RK45": (1e-4, 1e-5, 3e-6, 1e-6, 1e-7)}
# Rate of the Baumgarte correction in rad/s; without one no run gets past the singular positions.
BAUMGARTE_RATES = {"pendulum": 0.0, "slider-crank": 5.0}
FOUR_BAR_RATE = 100.0
RightSide = Callable[[float, Array], NDArray[Any]]


def runs(problem: Problem | Ring) -> Iterator[Run]:
    """The lambdified equations with two adaptive methods, from loose to tight; small planar problems only."""
    if isinstance(problem, Ring) or len(problem.bodies) > MOST_BODIES:
        return
    start = time.perf_counter()
    right_side = derive(problem, BAUMGARTE_RATES.get(problem.name, FOUR_BAR_RATE))
    built = time.perf_counter() - start
    for method, tolerances in SWEEPS.get(problem.name, FOUR_BARS).items():
        for tolerance in tolerances:
            calls = [0]
            solve = solver(problem, right_side, method, tolerance, calls)
            setting = f"rtol = {tolerance:.0e}"
            yield Run("sympy", method, setting, solve, built, lambda calls=calls: calls[0])


def solver(
    problem: Problem, right_side: RightSide, method: str, tolerance: float, calls: list[int]
) -> Callable[[], Array]:
    """A function that integrates the problem and leaves the number of right-side calls in `calls[0]`."""
    start = np.concatenate([problem.positions.ravel(), problem.velocities.ravel()])

    def solve() -> Array:
        give_up = time.perf_counter() + TIME_LIMIT
        calls[0] = 0

        def counted(t: float, y: Array) -> NDArray[Any]:
            calls[0] += 1
            if time.perf_counter() > give_up:
                raise TimeoutError(f"given up after {TIME_LIMIT:.0f} s at t = {t:.3g} s")
            return right_side(t, y)

        span = (0.0, problem.duration)
        done: Any = solve_ivp(counted, span, start, method, rtol=tolerance, atol=tolerance)
        if not done.success:
            raise RuntimeError(done.message)
        return done.y[: len(start) // 2, -1].reshape(-1, 3)

    return solve


def derive(problem: Problem, rate: float) -> RightSide:
    """Derive the constraint Jacobian and accelerations and return the first-order right side."""
    count = 3 * len(problem.bodies)
    q_list, v_list = (list(sympy.symbols(f"{name}0:{count}")) for name in "qv")
    q, v = sympy.Matrix(q_list), sympy.Matrix(v_list)
    constraints = sympy.Matrix(constraint_list(problem, q))
    jacobian = constraints.jacobian(q)
    drift = jacobian * v
    gamma = -drift.jacobian(q) * v - 2 * rate * drift - rate**2 * constraints
    nonzero = [(i, j) for i, j in np.ndindex(*jacobian.shape) if jacobian[i, j] != 0]
    rows, columns = np.array(nonzero).T
    entries = [jacobian[i, j] for i, j in nonzero] + list(gamma)
    evaluate = sympy.lambdify([q_list, v_list], entries, modules="math", cse=True)
    size = count + len(gamma)
    matrix, right = np.zeros((size, size)), np.zeros(size)
    matrix[:count, :count] = np.diag([m for b in problem.bodies for m in (b.mass, b.mass, b.inertia)])
    right[1:count:3] = [-GRAVITY * body.mass for body in problem.bodies]

    def right_side(_: float, y: Array) -> NDArray[Any]:
        values = evaluate(y[:count].tolist(), y[count:].tolist())
        matrix[count + rows, columns] = matrix[columns, count + rows] = values[: len(rows)]
        right[count:] = values[len(rows) :]
        return np.concatenate([y[count:], np.linalg.solve(matrix, right)[:count]])

    return right_side


def constraint_list(problem: Problem, q: Any) -> list[Any]:
    """The constraint expressions: pins first, then y and theta of the sliders."""

    def place(body: int, point: Point) -> tuple[Any, Any]:
        x, y = (sympy.Float(value) if value else sympy.Integer(0) for value in point)
        if body == GROUND:
            return x, y
        c, s = sympy.cos(q[3 * body + 2]), sympy.sin(q[3 * body + 2])
        return q[3 * body] + x * c - y * s, q[3 * body + 1] + x * s + y * c

    expressions = []
    for pin in problem.pins:
        ends = zip(place(pin.body, pin.point), place(pin.other, pin.other_point), strict=True)
        expressions += [a - b for a, b in ends]
    for body in problem.sliders:
        expressions += [q[3 * body + 1], q[3 * body + 2]]
    return expressions
