"""Batches on a GPU: whole motions as kernels, diffrax's loop under `vmap` by XLA on the same GPU, and the processor.

Four-bars with equal steps, other mechanisms in double and in single precision, linkages of different lengths and masses
with step-size control, and derivatives of the four-bars by their masses. Results stay on the device. Compiling is
measured apart; the first run of a kernel includes loading it. Differences are those from the virtual machine on the
processor.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.measure import median, seconds_of
from benchmarks.options import Options, Record, Say
from benchmarks.table import Table, figures
from benchmarks.workloads import mechanisms
from benchmarks.workloads.batch import STEPS
from benchmarks.workloads.engines import derivative_functions, four_bar_end, linkage_motion, linkages

MECHANISMS = (
    "heavy-top", "slider-crank", "planar-four-bar", "five-bar", "suspension", "spatial-four-bar", "hanging-chain",
    "governor", "bricard", "stewart-platform",
)  # fmt: skip
INSTANCES = 65_536  # of each of them
SIZES = 1, 1024, 10_000, 100_000, 1_000_000
CHECKED = 256  # instances that are compared with the processor's
BUDGET, MOST = 2.0, 5  # seconds and number of repeats of a run


class Case(NamedTuple):
    """A run to be measured: what it is, who runs it, and its function of an engine and of arrays."""

    kind: str
    label: str
    runner: str
    size: int
    function: Callable[..., Any]
    operands: Any
    steps: int = 0  # of each instance; 0 if the function gives them
    dtype: Any = np.float64


RUNNERS = {"kernel": "native", "processor": "auto", "XLA": "diffrax"}  # and their engines


def measure(options: Options, say: Say) -> list[Record]:
    """Seconds of each case, and how far its results are from those of the virtual machine."""
    records: list[Record] = []
    known: dict[Any, Any] = {}
    for case in cases(options.quick):
        say(f"{case.kind}, {case.label}, {case.runner}, {case.size:,}")
        with in_precision(case.dtype):
            found, result = timed(case)
            records.append(found if case.kind == "derivatives" else found | compared(case, result, known))
    return records


def cases(quick: bool) -> Iterator[Case]:
    """What is measured."""
    sizes = SIZES[:2] if quick else SIZES
    for coordinates, numbers in (("joint", np.float64), ("absolute", np.float64), ("joint", np.float32)):
        for size in sizes if numbers == np.float64 else sizes[-1:]:
            yield steps(coordinates, "kernel", size, numbers)
    for runner, some in (("processor", sizes[1:2]), ("XLA", sizes[-2:])):
        for size in some:
            yield steps("joint", runner, size)
    for name in MECHANISMS[: 1 if quick else None]:
        for numbers in (np.float64, np.float32):
            yield mechanism(name, CHECKED if quick else INSTANCES, numbers)
    count = 64 if quick else sizes[-2]
    with jax.default_device(processor()):
        operands = linkages(count)
    for runner in RUNNERS:
        yield Case("sweep", f"{count:,} linkages", runner, count, linkage_motion, operands)
    for size in dict.fromkeys((sizes[1], sizes[-2])):
        for label, function in derivative_functions("joint").items():
            yield Case("derivatives", label, "kernel", size, lambda _, mass, f=function: f(mass), masses(size))


def steps(coordinates: str, runner: str, size: int, dtype: Any = np.float64) -> Case:
    """Four-bars with equal steps."""
    label = f"{coordinates} coordinates, {dtype.__name__}"
    end = partial(four_bar_end, coordinates)
    return Case("steps", label, runner, size, end, masses(size, dtype), STEPS, dtype)


def mechanism(name: str, size: int, dtype: Any) -> Case:
    """An example with equal steps, joint coordinates."""
    with in_precision(dtype), jax.default_device(processor()):
        speeds = np.asarray(mechanisms.speeds_of(name, size))
    end = partial(mechanisms.end_of, name)
    return Case("mechanisms", f"{name}, {dtype.__name__}", "kernel", size, end, (speeds,), mechanisms.STEPS, dtype)


def in_precision(dtype: Any) -> Any:
    """A context in which JAX computes with such numbers."""
    return jax.enable_x64(dtype == np.float64)


def processor() -> Any:
    """JAX's device for the processor."""
    return jax.devices("cpu")[0]


def timed(case: Case) -> tuple[Record, Any]:
    """Times and memory of a case, and its results."""
    device = processor() if case.runner == "processor" else jax.devices()[0]
    with jax.default_device(device):
        operands = jax.device_put(case.operands, device)
        mapped = jax.jit(jax.vmap(partial(case.function, RUNNERS[case.runner])))
        made, results = list[Any](), list[Any]()
        compiling = seconds_of(lambda: made.append(mapped.lower(*operands).compile()))
        run = lambda: results.append(jax.block_until_ready(made[0](*operands)))  # noqa: E731
        first, times = seconds_of(run), list[float]()
        while sum(times) + first < BUDGET and len(times) < MOST:
            results.clear()
            times.append(seconds_of(run))
    memory = made[0].memory_analysis()
    parts = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
    record = {
        "kind": case.kind, "label": case.label, "runner": case.runner, "size": case.size, "compiling": compiling,
        "first": first, "seconds": median(times or [first]),
        "bytes": sum(getattr(memory, part) for part in parts) if memory else None,
    }  # fmt: skip
    return record, results[-1]


def compared(case: Case, result: Any, known: dict[Any, Any]) -> Record:
    """Numbers of steps, and the difference from the processor's results, which are `known` by what they are of."""
    key = case.kind, case.label
    if key not in known:
        some = masses(CHECKED, case.dtype) if case.kind == "steps" else case.operands
        with jax.default_device(processor()):
            function = partial(case.function, "auto")
            known[key] = jax.jit(jax.vmap(function))(*jax.tree.map(lambda x: np.asarray(x[:CHECKED]), some))
    found, expected = (jax.tree.map(lambda x: np.asarray(x[:CHECKED]), r) for r in (result, known[key]))
    record: Record = {"steps": case.size * case.steps}
    if not case.steps:
        (found, numbers), (expected, wanted) = found, expected
        record = {"steps": int(np.sum(result[1])), "same": float(np.mean(numbers == wanted))}
    return record | {"difference": float(np.nanmax(np.abs(found - expected[: len(found)])))}


def masses(size: int, dtype: Any = np.float64) -> tuple[Any]:
    """Masses of three rods each."""
    return (np.random.default_rng(0).uniform(0.5, 1.5, (size, 3)).astype(dtype),)


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
    "mechanisms": ("Examples, 200 steps of the classical method", ("million steps / s", "difference")),
    "sweep": ("Linkages, 2 s of Tsit5 at 1e-7, 100 saved times", ("million steps / s", "difference")),
    "derivatives": ("Derivatives of four-bars by three masses", ("over the motion",)),
}
