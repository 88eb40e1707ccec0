"""A sweep of driven four-bar linkages in a process of its own: `python -m benchmarks.linkages COUNT WHICH STORE WHERE`.

WHICH is `all`, or `possible` for those whose crank makes full turns; WHERE is `here`, or `dask` for a cluster of two
processes, one of which is killed on the way. Prints one line of JSON: seconds, the most memory, what Dask went through.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks.devices import use_device
from benchmarks.one_size import peak_megabytes
from benchmarks.options import Record
from benchmarks.problems import Array
from jaxmbd import planar as pl

ANGLE, SPEED, DURATION = 0.5, 4.0, 2.0  # rad, rad/s, s: somewhat more than a full turn of the crank
SMALLEST_STEP = 1e-6  # s: a linkage whose crank needs shorter steps, turned so slowly, locks
CHUNK = 4096
RANGES = {"crank": (0.1, 0.6), "coupler": (0.5, 0.9), "rocker": (0.4, 0.8), "base": (0.5, 1.0)}  # m


def linkage(lengths: dict[str, Any]) -> pl.Mechanism:
    """A four-bar linkage whose crank is driven at constant speed."""
    crank = pl.Body("crank", 0.3, 0.002, (0.1, 0.1, 0.9))
    coupler = pl.Body("coupler", 0.8, 0.04, (0.5, 0.4, 0.4))
    rocker = pl.Body("rocker", 0.6, 0.02, (0.9, 0.3, 1.5))
    half = {name: length / 2 for name, length in lengths.items()}
    return pl.Mechanism(
        [crank, coupler, rocker],
        [
            pl.Revolute("O", pl.ground.at(), crank.at(-half["crank"])),
            pl.Revolute("A", crank.at(half["crank"]), coupler.at(-half["coupler"])),
            pl.Revolute("B", coupler.at(half["coupler"]), rocker.at(half["rocker"])),
            pl.Revolute("C", pl.ground.at(lengths["base"]), rocker.at(-half["rocker"])),
        ],
        drivers=[pl.Driver("motor", "O.angle", lambda t: ANGLE + SPEED * t)],
    )


def motion(lengths: dict[str, Any]) -> dict[str, Any]:
    """The rocker's angle at the end [rad] and the verdict, of one variant of the sweep."""
    mechanism = linkage(lengths)
    state = mbd.assemble(mechanism, check=False)
    solution = mbd.simulate(mechanism, state, jnp.array([0.0, DURATION]), dtmin=SMALLEST_STEP, throw=False)
    return {"rocker_angle": solution["rocker.theta"][-1], "result": solution}


def margins(lengths: dict[str, Array]) -> tuple[Array, Array]:
    """How far each linkage is from the limit of closing, at the start, and at all angles of the crank [m].

    Coupler and rocker close the triangle over the distance between the coupler's end on the crank and the rocker's
    pivot if it is between the difference and the sum of their lengths. All angles: Grashof's condition, with the crank
    or the base as the shortest link.
    """
    a, b, c, d = (lengths[name] for name in RANGES)
    at_start = np.abs(d - a * np.exp(1j * ANGLE))
    closes, turns = (
        np.minimum(b + c - largest, smallest - np.abs(b - c))
        for largest, smallest in ((at_start, at_start), (d + a, np.abs(d - a)))
    )
    return closes, turns


def space(count: int, which: str) -> dict[str, Any]:
    """The lengths of so many linkages, or of those among them that are possible, as the space of a sweep."""
    lengths = mbd.sweeps.latin_hypercube(RANGES, count, seed=3)
    numbers = {name: np.asarray(values) for name, (_, values) in lengths.items()}
    kept = margins(numbers)[1] > 0 if which == "possible" else np.full(count, True)
    return {name: (axis, np.asarray(values)[kept]) for name, (axis, values) in lengths.items()}


def run(count: int, which: str, store: Path, where: str) -> Record:
    """The sweep, with what it took."""
    variants = space(count, which)
    start = time.perf_counter()
    if where == "dask":
        return {"killed": with_dask(variants, store), "seconds": time.perf_counter() - start}
    mbd.sweep(motion, variants, store=store, chunk=CHUNK, progress=False)
    return {"seconds": time.perf_counter() - start, "megabytes": peak_megabytes()}


def with_dask(variants: dict[str, Any], store: Path) -> int:
    """The sweep on a cluster of two processes; the number of those that were killed on the way."""
    from dask.distributed import Client, LocalCluster

    from benchmarks.linkages import motion  # by the name under which the workers find it

    options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        before = workers(client)
        Thread(target=kill_when, args=(store, 0.3, min(before)), daemon=True).start()
        mbd.sweep(motion, variants, store=store, chunk=CHUNK, progress=False, executor=client.get_executor())
        client.wait_for_workers(2)
        return len(before - workers(client))


def workers(client: Any) -> set[int]:
    """The numbers of a cluster's processes."""
    return set(client.run(os.getpid).values())


def kill_when(store: Path, done: float, process: int) -> None:
    """Kill a process as soon as that part of the sweep is done."""
    while part_done(store) < done:
        time.sleep(0.02)
    os.kill(process, signal.SIGKILL)


def part_done(store: Path) -> float:
    """The part of a sweep's chunks that is done."""
    try:
        import zarr

        return float(np.mean(np.asarray(zarr.open_array(store / "done", mode="r")[:])))
    except FileNotFoundError:
        return 0.0


if __name__ == "__main__":
    use_device("cpu")
    print(json.dumps(run(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4])))
