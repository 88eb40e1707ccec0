"""What runs a motion: diffrax's loop, the interpreter of the virtual machine, or straight-line code ("native").

One trajectory, a batch with equal steps, a sweep of different linkages with step-size control, and derivatives of a
batch; always compiled as a whole. The first call includes all compiling that nothing on disk has saved.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks import ours
from benchmarks.bricard import Ring
from benchmarks.measure import seconds_of, take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.problems import Array, Problem, four_bars
from benchmarks.table import Table, figures
from benchmarks.workloads.batch import FORMULATION, SIZE, STEPS, simulated, with_masses
from jaxmbd import planar as pl

ENGINES = ("diffrax", "interpreter", "native")
LINKAGES, QUICK = 100_000, 64
DIRECTIONS = 10  # of the forward sensitivities


def measure(options: Options, say: Say) -> list[Record]:
    """Seconds of each engine, in turn; the results of the engines are compared."""
    records: list[Record] = []
    for kind, label, runs in measured(options.quick):
        say(f"{kind}: {label}")
        first = [seconds_of(run) for run in runs.values()]
        seconds, answers = take_turns([*runs.values()], 2.0), [run() for run in runs.values()]
        for engine, start, time, answer in zip(runs, first, seconds, answers, strict=True):
            more: Record = {}
            if answer:
                more["difference"] = float(np.nanmax(np.abs(answer[0] - answers[0][0])))
            if len(answer) > 1:
                more["steps"] = float(np.median(answer[1]))
            if kind == "batch":
                more["rate"] = len(answer[0]) * STEPS / time
            records.append({"kind": kind, "label": label, "engine": engine, "first": start, "seconds": time, **more})
    return records


Run = Callable[[], list[Any]]  # gives final coordinates, and perhaps numbers of steps


def measured(quick: bool) -> Iterator[tuple[str, str, dict[str, Run]]]:
    """What is measured: its kind, a label, and the runs of the engines."""
    problems: list[Problem | Ring] = [four_bars(1)] if quick else [four_bars(1), four_bars(10), Ring()]
    for problem in problems:
        yield "trajectory", problem.name, {engine: trajectory(problem, engine) for engine in ENGINES}
    masses = np.random.default_rng(0).uniform(0.5, 1.5, (QUICK if quick else SIZE, 3))
    for coordinates in ("joint", "absolute"):
        yield "batch", coordinates, {engine: batch(masses, coordinates, engine) for engine in ENGINES}
    count = QUICK if quick else LINKAGES
    yield "sweep", f"{count:,} linkages", {engine: sweep(count, engine) for engine in ENGINES}
    for coordinates in ("joint", "absolute"):
        yield "derivatives", coordinates, derivatives(masses, coordinates)


def trajectory(problem: Problem | Ring, engine: str) -> Run:
    """500 equal steps of Tsit5 in joint coordinates."""
    mechanism = ours.mechanism_of(problem).with_coordinates("joint")
    state = mbd.assemble(mechanism) if isinstance(problem, Ring) else ours.parallel_state(mechanism, problem)
    ts, steps = jnp.array([0.0, problem.duration]), 500

    @jax.jit
    def solve(state: mbd.State) -> Any:
        return mbd.simulate(
            mechanism, state, ts, formulation=FORMULATION(), solver=dfx.Tsit5(), engine=engine,  # pyright: ignore
            stepsize_controller=dfx.ConstantStepSize(), dt0=problem.duration / steps, max_steps=steps + 2, throw=False,
        ).q[-1]  # fmt: skip

    return lambda: [np.asarray(solve(state))]


def four_bar_end(coordinates: str, engine: str, mass: Any, adjoint: str = "reverse") -> Any:
    """The final coordinates of a four-bar with rods of other masses after 1,000 steps of the classical method."""
    problem = four_bars(1)
    mechanism = ours.mechanism_of(problem).with_coordinates(coordinates)
    state = ours.parallel_state(mechanism, problem)
    return simulated(with_masses(mechanism, mass), state, STEPS, engine=engine, adjoint=adjoint)


def batch(masses: Array, coordinates: str, engine: str) -> Run:
    """A batch of four-bars in one call of `jax.vmap`."""
    solve, given = jax.jit(jax.vmap(partial(four_bar_end, coordinates, engine))), jnp.asarray(masses)
    return lambda: [np.asarray(solve(given))]


def derivatives(masses: Array, coordinates: str) -> dict[str, Run]:
    """The same batch as straight-line code, its forward sensitivities and its gradients by three masses."""
    given = jnp.asarray(masses)
    return {name: partial(_wait, jax.jit(jax.vmap(f)), given) for name, f in derivative_functions(coordinates).items()}


def derivative_functions(coordinates: str) -> dict[str, Callable[..., Any]]:
    """The motion of a four-bar, its forward sensitivities and its reverse gradient, as functions of three masses."""
    end = partial(four_bar_end, coordinates, "native")
    directions = np.random.default_rng(1).normal(size=(DIRECTIONS, 3))

    def sensitivities(mass: Any) -> Any:
        moved = partial(end, adjoint="forward")
        return jax.vmap(lambda d: jax.jvp(moved, (mass,), (d,))[1])(jnp.asarray(directions))

    return {
        "motion": end, "ten forward sensitivities": sensitivities, "reverse gradient": jax.grad(lambda x: end(x).sum()),
    }  # fmt: skip


def _wait(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    jax.block_until_ready(function(*arguments))
    return []


def linkage(lengths: Any, masses: Any) -> pl.Mechanism:
    """A crank, a coupler and a rocker of these lengths [m], a metre apart."""
    poses = (0.1, 0.15, 1.2), (0.75, 0.6, 0.5), (1.15, 0.45, 1.3)
    crank, coupler, rocker = (
        pl.Body(name, masses[k], masses[k] * lengths[k] ** 2 / 12, poses[k])
        for k, name in enumerate(("crank", "coupler", "rocker"))
    )
    joints = [
        pl.Revolute("A", pl.ground.at(), crank.at(-lengths[0] / 2)),
        pl.Revolute("B", crank.at(lengths[0] / 2), coupler.at(-lengths[1] / 2)),
        pl.Revolute("C", coupler.at(lengths[1] / 2), rocker.at(lengths[2] / 2)),
        pl.Revolute("D", pl.ground.at(1.0, 0.0), rocker.at(-lengths[2] / 2)),
    ]
    return pl.Mechanism([crank, coupler, rocker], joints, [pl.Gravity()], coordinates="joint")


def linkages(count: int) -> tuple[Any, Any, mbd.State]:
    """Lengths and masses of linkages, and their states at the start."""
    rng = np.random.default_rng(1)
    lengths = rng.uniform([0.3, 1.0, 0.8], [0.4, 1.2, 1.0], (count, 3))
    masses = rng.uniform(0.5, 1.5, (count, 3))
    start = {"crank.theta": 1.2}, {"crank.omega": 4.0}
    place = lambda *numbers: mbd.assemble(linkage(*numbers), start[0], speeds=start[1], check=False)  # noqa: E731
    return lengths, masses, jax.block_until_ready(jax.jit(jax.vmap(place))(lengths, masses))


def linkage_motion(engine: str, lengths: Any, masses: Any, state: mbd.State) -> tuple[Any, Any]:
    """The coordinates of a linkage at 100 times within 2 s by Tsit5 at a tolerance of 1e-7, and the number of steps."""
    solution = mbd.simulate(
        linkage(lengths, masses), state, jnp.linspace(0.0, 2.0, 100), solver=dfx.Tsit5(), rtol=1e-7, atol=1e-7,
        throw=False, engine=engine,  # pyright: ignore
    )  # fmt: skip
    return solution.q, solution.stats["num_steps"]


def sweep(count: int, engine: str) -> Run:
    """Linkages of different lengths and masses."""
    solve, operands = jax.jit(jax.vmap(partial(linkage_motion, engine))), jax.tree.map(jnp.asarray, linkages(count))
    return lambda: [np.asarray(x) for x in solve(*operands)]


def tables(records: Sequence[Record]) -> list[Table]:
    """A table for each kind of measurement."""
    return [table for table in (_table(kind, records) for kind in KINDS) if table.rows]


def _table(kind: str, records: Sequence[Record]) -> Table:
    mine = [r for r in records if r["kind"] == kind]
    base = {r["label"]: r["seconds"] for r in mine if r["engine"] in ("diffrax", "motion")}
    rows = []
    for r in mine:
        difference = f"{r['difference']:.0e}" if "difference" in r else "–"
        ratio = base[r["label"]] / r["seconds"] if kind != "derivatives" else r["seconds"] / base[r["label"]]
        cells = [r["label"], r["engine"], figures(r["first"]), figures(1e3 * r["seconds"]), figures(ratio, 2)]
        if kind == "batch":
            cells.append(figures(r["rate"]))
        if kind == "sweep":
            cells.append(figures(r["steps"]))
        rows.append(cells if kind == "derivatives" else [*cells, difference])
    ratio = "over the motion" if kind == "derivatives" else "faster than diffrax"
    title, more = KINDS[kind]
    last = () if kind == "derivatives" else ("difference",)
    return Table(title, ("what", "engine", "first [s]", "run [ms]", ratio, *more, *last), rows)


KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "trajectory": ("One trajectory, 500 equal steps of Tsit5, joint coordinates", ()),
    "batch": ("1,024 four-bars, 1,000 steps of the classical method", ("steps / s",)),
    "sweep": ("Linkages of different lengths and masses, Tsit5 at 1e-7", ("steps",)),
    "derivatives": ("Derivatives of the batch by three masses, native", ()),
}
