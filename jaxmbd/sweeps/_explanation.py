"""What a sweep takes before it is computed, measured on few variants; and the line while it is."""

import time
from dataclasses import dataclass

import numpy as np

from jaxmbd.printing import table
from jaxmbd.sweeps._chunks import Chunks
from jaxmbd.sweeps._outputs import Function, Output, compiled, values_of

_MEASURED = 32  # variants that are computed to measure the time


@dataclass(frozen=True)
class Explanation:
    """What a sweep takes; `print` shows it as a table.

    - `variants`, `chunks`, `chunk`: how many, and variants in a chunk;
    - `chunk_bytes`: memory of a chunk: numbers, outputs and intermediate values, scaled from few variants;
    - `store_bytes`: size of the numbers and outputs of all variants, before compression;
    - `compile_seconds`: time to compile, for each process that computes;
    - `seconds`: time to compute all chunks in one process, from that of `measured` variants. In a loop all
      variants of a chunk take as many steps as the slowest one, so it may take longer.
    """

    variants: int
    chunks: int
    chunk: int
    chunk_bytes: int
    store_bytes: int
    compile_seconds: float
    seconds: float
    measured: int
    has_store: bool

    def __repr__(self) -> str:
        rows = [
            ["variants", str(self.variants)],
            ["chunks", f"{self.chunks} of {self.chunk}"],
            ["memory of a chunk", _bytes(self.chunk_bytes)],
            ["size of the store" if self.has_store else "size of the results", f"{_bytes(self.store_bytes)}"],
            ["compiling", duration(self.compile_seconds)],
            [f"computing, from {self.measured}", duration(self.seconds)],
        ]
        return table(rows)


def explanation(function: Function, chunks: Chunks, outputs: tuple[Output, ...], has_store: bool) -> Explanation:
    """Compile for few variants, compute them twice, and scale the second time to all."""
    few = min(_MEASURED, chunks.size)
    # Spread over the whole space: neighbours are alike.
    places = np.linspace(0, chunks.space.count - 1, few).astype(int)
    picked = [chunks.space.rows(int(k), int(k) + 1) for k in places]
    rows = {name: np.concatenate([x[name] for x in picked]) for name in chunks.space.names}
    begin = time.perf_counter()
    program = compiled(function).lower(rows).compile()
    compiled_at = time.perf_counter()
    values_of(program, rows, few)
    warm = time.perf_counter()
    values_of(program, rows, few)
    end = time.perf_counter()
    memory = program.memory_analysis()
    used = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes if memory else 0
    per_variant = sum(x.dtype.itemsize * int(np.prod(x.shape)) for x in outputs)
    numbers = sum(x.values.nbytes for x in chunks.space.swept)
    return Explanation(
        variants=chunks.space.count,
        chunks=chunks.count,
        chunk=chunks.size,
        chunk_bytes=max(used * chunks.size // few, per_variant * chunks.size),
        store_bytes=per_variant * chunks.space.count + numbers,
        compile_seconds=compiled_at - begin,
        seconds=(end - warm) / few * chunks.count * chunks.size,
        measured=few,
        has_store=has_store,
    )


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"


def duration(seconds: float) -> str:
    """A time in the unit that fits: `"0.12 s"`, `"5 min"`, `"3.2 h"`."""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Rate:
    """How many variants are done, how fast, and how long the others will take; compiling counts as part of it."""

    def __init__(self, chunks: Chunks, finished: int) -> None:
        self._chunks, self._before, self._finished = chunks, finished, finished
        self._began = self._now = time.monotonic()

    def count(self, finished: int) -> None:
        self._finished, self._now = finished, time.monotonic()

    def text(self) -> str:
        size, total = self._chunks.size, self._chunks.space.count
        said = f"sweep: {min(self._finished * size, total)} of {total} variants"
        fresh, seconds = self._finished - self._before, self._now - self._began
        if not fresh or seconds <= 0:
            return f"{said},"
        left = (self._chunks.count - self._finished) * seconds / fresh
        return f"{said}, {fresh * size / seconds:.3g} per s, {duration(left)} left,"
