"""The runs of this library: `simulate` as a user would set it up, with the settings that suit each problem.

Every run is compiled as a whole (`jax.jit` around `simulate`), once for all its tolerances or steps.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks.bricard import Ring
from benchmarks.measure import OURS, Run
from benchmarks.peers.tree import planar_tree
from benchmarks.problems import GRAVITY, GROUND, Array, Problem
from jaxmbd import planar as pl
from jaxmbd.integrate.formulations.formulation import AbstractFormulation

MAX_STEPS = 2**13
# Made only when they are used: their numbers are of the precision that is then set.
FORMULATIONS: dict[str, Callable[[], AbstractFormulation]] = {
    "Stabilized": mbd.Stabilized,
    "Augmented": mbd.Augmented,
    "Projection": mbd.Projection,
    "CoordinatePartitioning": mbd.CoordinatePartitioning,
}
SOLVERS: dict[str, dfx.AbstractSolver[Any]] = {"Dopri8": dfx.Dopri8(), "Tsit5": dfx.Tsit5()}


@dataclass(frozen=True)
class Setting:
    """Coordinates, formulation and solver by name, and powers of ten: minus those of the tolerances (`rtol = atol`).

    With `steps` there is no step control: that many equal steps.
    """

    coordinates: str
    formulation: str
    solver: str
    digits: tuple[float, ...] = ()
    steps: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """What tables and pictures call it."""
        return f"{self.coordinates}, {self.formulation}, {self.solver}{', equal steps' if self.steps else ''}"


# Each problem with the default (absolute coordinates, Stabilized, Dopri8) and with what was found to be fastest. Equal
# steps pay where a step control would follow the noise of singular positions, and where motions are even.
PENDULUM = (
    Setting("absolute", "Stabilized", "Dopri8", (6, 7, 8, 8.5, 9, 9.5, 10)),
    Setting("joint", "Augmented", "Tsit5", (5, 6, 7, 8, 9, 9.5)),
    Setting("joint", "Augmented", "Tsit5", steps=(100, 110, 150, 200, 240, 300, 500, 600)),
    Setting("joint", "Augmented", "Dopri8", steps=(50, 70, 80, 100, 120, 150)),
)
SLIDER_CRANK = (
    Setting("absolute", "Stabilized", "Dopri8", (7, 8, 9, 9.5, 10, 10.5, 11)),
    Setting("joint", "Augmented", "Tsit5", (7, 7.5, 8, 8.5, 9, 9.5, 10, 11)),
    Setting("joint", "Augmented", "Dopri8", (6.5, 7, 8, 8.5, 9, 9.5, 10)),
)
RING = (
    Setting("absolute", "Stabilized", "Dopri8", (4, 5, 6, 7, 8)),
    Setting("joint", "Stabilized", "Tsit5", (3, 3.5, 4, 4.5, 5, 6, 7)),
    Setting("joint", "Augmented", "Tsit5", (3, 3.5, 4, 5, 6, 7, 8)),
    Setting("joint", "Stabilized", "Dopri8", (3, 4, 5, 5.5, 6, 7, 7.5, 8)),
    Setting("joint", "Augmented", "Tsit5", steps=(20, 24, 30, 40, 50, 70, 100)),
)
FOUR_BARS = (
    Setting("absolute", "Stabilized", "Dopri8", (6, 7, 8, 8.5, 9, 10, 10.5)),
    Setting("absolute", "Stabilized", "Tsit5", (6, 7, 8, 9, 10)),
    Setting("joint", "Augmented", "Tsit5", (6.5, 7, 8, 8.5, 9, 10, 10.5)),
    Setting("joint", "Augmented", "Tsit5", steps=(110, 125, 150, 180, 200, 250, 500, 600, 650, 700, 800)),
)
MANY = (
    Setting("absolute", "Stabilized", "Dopri8", (6, 7, 8, 9, 10)),
    Setting("absolute", "Stabilized", "Tsit5", (6, 7, 8, 9)),
    Setting("joint", "Augmented", "Tsit5", (7, 8.5)),
    Setting("joint", "Augmented", "Tsit5", steps=(125, 150, 200, 300, 600)),
)
SETTINGS = {"pendulum": PENDULUM, "slider-crank": SLIDER_CRANK, "bricard": RING, "four-bar-40": MANY}


def runs(problem: Problem | Ring) -> Iterator[Run]:
    """The problem's settings, each over its range of tolerances or steps."""
    mechanism = mechanism_of(problem)
    for setting in SETTINGS.get(problem.name, FOUR_BARS):
        described = mechanism.with_coordinates(setting.coordinates)
        yield from setting_runs(described, start_of(described, problem), problem.duration, setting)


def mechanism_of(problem: Problem | Ring) -> Any:
    """The problem as a mechanism in absolute coordinates."""
    if isinstance(problem, Ring):
        return mbd.examples.bricard().mechanism
    bodies = [
        pl.Body(f"b{k}", body.mass, body.inertia, pose=pose)
        for k, (body, pose) in enumerate(zip(problem.bodies, problem.positions, strict=True))
    ]
    joints: list[Any] = []
    for k, pin in enumerate(problem.pins):
        other = pl.ground if pin.other == GROUND else bodies[pin.other]
        joints.append(pl.Revolute(f"pin{k}", other.at(*pin.other_point), bodies[pin.body].at(*pin.point)))
    joints += [pl.Prismatic(f"slide{b}", pl.ground.at(), bodies[b].at()) for b in problem.sliders]
    return pl.Mechanism(bodies, joints, [pl.Gravity(GRAVITY)])


def start_of(mechanism: Any, problem: Problem | Ring) -> mbd.State:
    """The initial state; the first body's angle and rate determine those of all the others."""
    if isinstance(problem, Ring):
        return mbd.assemble(mechanism)
    angle, rate = float(problem.positions[0, 2]), float(problem.velocities[0, 2])
    return mbd.assemble(mechanism, {"b0.theta": angle}, speeds={"b0.omega": rate})


def parallel_start(mechanism: Any, problem: Problem) -> tuple[Array, Array]:
    """Coordinates and speeds of four-bars at the start, without assembling them, which takes long for many."""
    if mechanism.coordinates == "absolute":
        return problem.positions.ravel(), problem.velocities.ravel()
    tree = planar_tree(problem)
    if mechanism.coordinate_names != tuple(f"pin{k}.angle" for k in range(len(tree.links))):
        raise ValueError(f"the pins that carry the coordinates are not the first ones: {mechanism.coordinate_names}")
    return tree.positions, tree.speeds


def parallel_state(mechanism: Any, problem: Problem) -> mbd.State:
    """The same as a state."""
    q, v = (jnp.asarray(x) for x in parallel_start(mechanism, problem))
    return mbd.State(jnp.zeros(()), q, v, mechanism.layout)


def setting_runs(mechanism: Any, state: mbd.State, duration: float, setting: Setting) -> Iterator[Run]:
    """One run per tolerance or number of steps."""
    solve = compiled(duration, setting)
    sweep = [duration / n for n in setting.steps] or [10.0**-digits for digits in setting.digits]
    started = time.perf_counter()
    jax.block_until_ready(solve(mechanism, state, jnp.asarray(sweep[0])))
    build = time.perf_counter() - started
    name = "dt" if setting.steps else "tol"
    for value in sweep:
        yield one_run(solve, mechanism, state, jnp.asarray(value), setting.label, f"{name} {value:.1e}", build)


def one_run(
    solve: Any, mechanism: Any, state: mbd.State, value: jax.Array, label: str, text: str, build: float
) -> Run:  # fmt: skip
    """A run with one tolerance or step."""
    steps = [0]

    def answer() -> Array:
        places, count = jax.block_until_ready(solve(mechanism, state, value))
        steps[0] = int(count)
        return np.asarray(places)

    return Run(OURS, label, text, answer, build, lambda: steps[0])


def compiled(duration: float, setting: Setting) -> Any:
    """A function of mechanism, state and tolerance (or step) that gives the bodies' final coordinates and the steps.

    Of bodies in space the coordinates are those of their centres of mass.
    """
    fixed = bool(setting.steps)

    @eqx.filter_jit
    def solve(mechanism: Any, state: mbd.State, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        control: dict[str, Any] = (
            {"stepsize_controller": dfx.ConstantStepSize(), "dt0": value} if fixed else {"rtol": value, "atol": value}
        )
        solution = mbd.simulate(
            mechanism, state, jnp.array([0.0, duration]), formulation=FORMULATIONS[setting.formulation](),
            solver=SOLVERS[setting.solver], max_steps=MAX_STEPS, throw=False, **control,
        )  # fmt: skip
        poses = mbd.Equations(mechanism).at(solution.ts[-1], solution.q[-1]).poses()
        return poses[:, :3], solution.stats["num_steps"]

    return solve
