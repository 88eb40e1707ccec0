"""Batches on a GPU: whole motions as kernels, diffrax's loop under `vmap` by XLA on the same GPU, and the processor.

Four-bars with equal steps, linkages of different lengths and masses with step-size control, and derivatives of the
four-bars by their masses. Results stay on the device. Compiling is measured apart; the first run of a kernel includes
loading it. Differences are those from the virtual machine on the processor.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from benchmarks.measure import median, seconds_of
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures
from benchmarks.workloads.batch import STEPS
from benchmarks.workloads.engines import DIRECTIONS, four_bar_end, linkage

SIZES = 1, 1024, 10_000, 100_000, 1_000_000
CHECKED = 256  # instances that are compared with the processor's
BUDGET, MOST = 2.0, 5  # seconds and number of repeats of a run


class Case(NamedTuple):
    """A run to be measured: what it is, who runs it, and its function of arrays."""

    kind: str
    label: str
    engine: str
    size: int
    function: Callable[..., Any]
    operands: Any
    dtype: Any = np.float64

    @property
    def runner(self) -> str:
        """Where and how it runs."""
        return {"native": "kernel", "diffrax": "XLA", "processor": "processor"}[self.engine]


def measure(options: Options, say: Say) -> list[Record]:
    """Seconds of each case, and how far its results are from those of the virtual machine."""
    records: list[Record] = []
    known: dict[Any, Any] = {}
    for case in cases(options.quick):
        say(f"{case.kind}, {case.label}, {case.runner}, {case.size:,}")
        with jax.enable_x64(case.dtype == np.float64):
            records.append(measured(case, known))
    return records


def cases(quick: bool) -> Iterator[Case]:
    """What is measured."""
    sizes = SIZES[:2] if quick else SIZES
    for coordinates, numbers, dtype in (
        ("joint", "float64", np.float64), ("absolute", "float64", np.float64), ("joint", "float32", np.float32),
    ):  # fmt: skip
        label = f"{coordinates} coordinates, {numbers}"
        batch = partial(Case, "steps", label, dtype=dtype)
        for size in sizes if dtype == np.float64 else sizes[-1:]:
            yield batch("native", size, end(coordinates, "native"), masses(size, dtype))
    for engine, some in (("processor", sizes[1:2]), ("diffrax", sizes[-2:])):
        for size in some:
            function = end("joint", "auto" if engine == "processor" else engine)
            yield Case("steps", "joint coordinates, float64", engine, size, function, masses(size))
    count = sizes[-2] if not quick else 64
    operands = linkages(count)
    for engine in ("native", "processor", "diffrax"):
        yield Case("sweep", f"{count:,} linkages", engine, count, sweep(engine), operands)
    for size in {sizes[1], sizes[-2]}:
        for label, function in derivatives().items():
            yield Case("derivatives", label, "native", size, function, masses(size))


def measured(case: Case, known: dict[Any, Any]) -> Record:
    """A record; `known`: results of the processor, by what they are of."""
    processor = jax.devices("cpu")[0]
    device = processor if case.engine == "processor" else jax.devices()[0]
    with jax.default_device(device):
        operands = jax.device_put(case.operands, device)
        mapped, made = jax.jit(jax.vmap(case.function)), list[Any]()
        compiling = seconds_of(lambda: made.append(mapped.lower(*operands).compile()))
        (compiled,) = made
        results = list[Any]()
        run = lambda: results.append(jax.block_until_ready(compiled(*operands)))  # noqa: E731
        first, times = seconds_of(run), list[float]()
        while sum(times) + first < BUDGET and len(times) < MOST:
            results.clear()
            times.append(seconds_of(run))
    result, record = results[-1], {"kind": case.kind, "label": case.label, "runner": case.runner, "size": case.size}
    memory = compiled.memory_analysis()
    parts = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
    record |= {"compiling": compiling, "first": first, "seconds": median(times or [first])}
    record |= {"bytes": sum(getattr(memory, part) for part in parts) if memory else None}
    if case.kind == "derivatives":
        return record
    some = case.operands if case.kind == "sweep" else masses(CHECKED, case.dtype)
    some = jax.tree.map(lambda x: np.asarray(x[:CHECKED]), some)
    key = case.kind, case.label
    if key not in known:
        with jax.default_device(processor):
            function = sweep("processor") if case.kind == "sweep" else end(case.label.split()[0], "auto")
            known[key] = jax.jit(jax.vmap(function))(*some)
    found, expected = (jax.tree.map(lambda x: np.asarray(x[:CHECKED]), r) for r in (result, known[key]))
    if case.kind == "sweep":
        (found, steps), (expected, expected_steps) = found, expected
        record |= {"steps": int(np.sum(result[1])), "same": float(np.mean(steps == expected_steps))}
    else:
        record |= {"steps": case.size * STEPS}
    return record | {"difference": float(np.nanmax(np.abs(found - expected[: len(found)])))}


def masses(size: int, dtype: Any = np.float64) -> tuple[Any]:
    """Masses of three rods each."""
    return (np.random.default_rng(0).uniform(0.5, 1.5, (size, 3)).astype(dtype),)


def end(coordinates: str, engine: str) -> Callable[..., Any]:
    """The final coordinates of a four-bar after 1,000 equal steps, by the masses of its rods."""
    return partial(four_bar_end, coordinates, engine)


def derivatives() -> dict[str, Callable[..., Any]]:
    """The motion of a four-bar, its forward sensitivities and its reverse gradient by three masses."""
    motion = end("joint", "native")
    directions = np.random.default_rng(1).normal(size=(DIRECTIONS, 3))

    def sensitivities(mass: Any) -> Any:
        moved = partial(motion, adjoint="forward")
        return jax.vmap(lambda d: jax.jvp(moved, (mass,), (d,))[1])(jnp.asarray(directions))

    return {
        "motion": motion, "ten forward sensitivities": sensitivities,
        "reverse gradient": jax.grad(lambda x: motion(x).sum()),
    }  # fmt: skip


def linkages(count: int) -> tuple[Any, Any, mbd.State]:
    """Lengths and masses of linkages, and their states at the start, which the processor assembles."""
    rng = np.random.default_rng(1)
    lengths = rng.uniform([0.3, 1.0, 0.8], [0.4, 1.2, 1.0], (count, 3))
    masses = rng.uniform(0.5, 1.5, (count, 3))
    start = {"crank.theta": 1.2}, {"crank.omega": 4.0}
    place = lambda *numbers: mbd.assemble(linkage(*numbers), start[0], speeds=start[1], check=False)  # noqa: E731
    with jax.default_device(jax.devices("cpu")[0]):
        return lengths, masses, jax.block_until_ready(jax.jit(jax.vmap(place))(lengths, masses))


def sweep(engine: str) -> Callable[..., Any]:
    """The coordinates of a linkage at 100 times within 2 s by Tsit5 at a tolerance of 1e-7, and the number of steps."""

    def solve(lengths: Any, masses: Any, state: mbd.State) -> Any:
        solution = mbd.simulate(
            linkage(lengths, masses), state, jnp.linspace(0.0, 2.0, 100), solver=dfx.Tsit5(), rtol=1e-7, atol=1e-7,
            throw=False, engine="auto" if engine == "processor" else engine,  # pyright: ignore
        )  # fmt: skip
        return solution.q, solution.stats["num_steps"]

    return solve


def tables(records: Sequence[Record]) -> list[Table]:
    """A table for each kind of measurement."""
    return [table for table in (_table(kind, records) for kind in KINDS) if table.rows]


def _table(kind: str, records: Sequence[Record]) -> Table:
    mine = [r for r in records if r["kind"] == kind]
    motion = {r["size"]: r["seconds"] for r in mine if r["label"] == "motion"}
    rows = []
    for r in mine:
        cells = [r["label"], r["runner"], f"{r['size']:,}", figures(r["compiling"]), figures(1e3 * r["seconds"])]
        if kind == "derivatives":
            cells.append(figures(r["seconds"] / motion[r["size"]], 2))
        else:
            cells += [figures(r["steps"] / r["seconds"] / 1e6), f"{r['difference']:.0e}"]
        rows.append([*cells, figures(r["bytes"] / 1e6, 2) if r["bytes"] else "–"])
    title, more = KINDS[kind]
    return Table(title, ("what", "by", "instances", "compiling [s]", "run [ms]", *more, "memory [MB]"), rows)


KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "steps": ("Four-bars, 1,000 steps of the classical method", ("million steps / s", "difference")),
    "sweep": ("Linkages, 2 s of Tsit5 at 1e-7, 100 saved times", ("million steps / s", "difference")),
    "derivatives": ("Derivatives of four-bars by three masses", ("over the motion",)),
}
