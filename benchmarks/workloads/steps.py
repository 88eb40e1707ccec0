"""A fixed step of the classical Runge-Kutta method on one chain of N four-bars, beside MuJoCo's."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks import ours
from benchmarks.budget import Budget, Growth
from benchmarks.measure import OURS, seconds_of, take_turns
from benchmarks.options import Options, Record, Say
from benchmarks.peers.tree import planar_tree
from benchmarks.problems import Array, Problem, four_bars
from benchmarks.references import reference
from benchmarks.stepping import march
from benchmarks.table import Table, figures

SIZES = (1, 10, 40, 100, 400)
STEP = 1e-3  # s
LENGTH = 0.2  # seconds that a timed call is to take
MOST_STEPS = 2000
LIMIT, WORKLOAD_LIMIT = 25.0, 120.0  # seconds for building, compiling and a step of one size, and in all
FORMULATION = mbd.Augmented  # made when it is used, of the precision that is then set


def measure(options: Options, say: Say) -> list[Record]:
    """Microseconds per step of each program and size, and the error [m, rad] of the state that the steps lead to."""
    records, budget = [], Budget(WORKLOAD_LIMIT)
    growths = {"absolute": Growth(), "joint": Growth()}
    for n in SIZES[:2] if options.quick else SIZES:
        problem, marches = four_bars(n), dict[str, Marcher]()
        for coordinates, growth in growths.items():
            refusal = budget.refusal(growth.predicted(n), LIMIT)
            if refusal:
                records.append(record(n, OURS, coordinates, failure=refusal))
                continue
            say(f"N = {n}: compiling, {coordinates} coordinates")
            start = time.perf_counter()
            marches[coordinates] = run = our_march(problem, coordinates)
            once = seconds_of(lambda run=run: run(1))
            growth.add(n, time.perf_counter() - start - 2 * once, once)
        if "mujoco" in options.peers:
            marches["mujoco"] = mujoco_march(problem)
        say(f"N = {n}: {', '.join(marches)}")
        records += timed(problem, marches)
    return records


Marcher = Callable[[int], Array]  # takes steps from the start, gives the bodies' absolute coordinates


def timed(problem: Problem, marches: dict[str, Marcher]) -> list[Record]:
    """One record for each program, timed in turn; each call takes about `LENGTH` seconds."""
    n, counts = (len(problem.bodies) - 1) // 2, []
    for run in marches.values():
        once = min(seconds_of(lambda run=run: run(1)) for _ in range(2))
        several = seconds_of(lambda run=run: run(5)) / 5 if once < LENGTH else once
        counts.append(int(np.clip(LENGTH / several, 1, MOST_STEPS)))
    calls = [lambda run=run, count=count: run(count) for run, count in zip(marches.values(), counts, strict=True)]
    records = []
    for (name, run), count, seconds in zip(marches.items(), counts, take_turns(calls, 1.0, 7), strict=True):
        answer = reference(replace(problem, duration=count * STEP))
        error = float(np.max(np.abs(run(count) - answer)))
        program, label = (name, "RK4") if name == "mujoco" else (OURS, name)
        records.append(record(n, program, label, 1e6 * seconds / count, count, error))
    return records


def record(
    n: int, program: str, label: str, microseconds: float | None = None, steps: int = 0, error: float | None = None,
    failure: str = "",
) -> Record:  # fmt: skip
    """A measurement as plain values."""
    return {
        "n": n, "program": program, "label": label, "microseconds": microseconds, "steps": steps, "error": error,
        "failure": failure,
    }  # fmt: skip


def our_march(problem: Problem, coordinates: str) -> Marcher:
    """Our steps, compiled and run once."""
    mechanism = ours.mechanism_of(problem).with_coordinates(coordinates)
    state = ours.parallel_state(mechanism, problem)
    parameters, rest = eqx.partition(mechanism, eqx.is_array)

    @jax.jit
    def solve(parameters: Any, state: mbd.State, steps: jax.Array) -> jax.Array:
        whole = eqx.combine(parameters, rest)
        q, _ = march(whole, FORMULATION(), state.q, state.v, STEP, steps)
        return mbd.Equations(whole).at(state.t, q).poses()

    run = lambda steps: np.asarray(solve(parameters, state, jnp.asarray(steps)))  # noqa: E731
    run(1)
    return run


def mujoco_march(problem: Problem) -> Marcher:
    """MuJoCo's steps."""
    from benchmarks.peers import peer_mujoco as peer

    tree = planar_tree(problem)
    model = peer.loop_model(tree, STEP)
    data, places = peer.mujoco.MjData(model), peer.joint_places(model)

    def run(steps: int) -> Array:
        peer.restart(model, data, tree)
        peer.mujoco.mj_step(model, data, nstep=steps)
        return tree.answer(data.qpos[places])

    return run


def tables(records: Sequence[Record]) -> list[Table]:
    """Microseconds per step by size."""
    rows, notes = [], []
    for n in dict.fromkeys(record["n"] for record in records):
        mine = {r["label"]: r for r in records if r["n"] == n}
        times = [mine.get(label, {}).get("microseconds") for label in ("absolute", "joint", "RK4")]
        best = min((time for time in times[:2] if time), default=None)
        ratio = best / times[2] if best and times[2] else None
        rows.append([str(n), *(figures(time) for time in times), figures(ratio, 2)])
        notes += [f"N = {n}, {r['label']} coordinates: {r['failure']}." for r in mine.values() if r["failure"]]
    heads = ("N", "jaxmbd, absolute", "jaxmbd, joint", "mujoco", "ours / MuJoCo")
    return [Table("One step of RK4 [µs]", heads, rows, notes)]
