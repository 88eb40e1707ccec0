"""A JAX function, compiled ahead of its first call: how long that took and how much memory it needs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

MEGABYTE = 1e6


@dataclass(frozen=True)
class Compiled:
    """`call` runs it on the arguments it was compiled for and waits for the result.

    `trace_seconds`: Python's part, of which a cache saves nothing; `compile_seconds`: XLA's part; `megabytes`: what XLA
    reserves for the result and everything in between.
    """

    call: Callable[[], Any]
    trace_seconds: float
    compile_seconds: float
    megabytes: float | None


def compiled(function: Callable[..., Any], *arguments: Any) -> Compiled:
    """Compile a function for its arguments."""
    start = time.perf_counter()
    lowered = jax.jit(function).lower(*arguments)
    middle = time.perf_counter()
    program = lowered.compile()
    end = time.perf_counter()
    call = lambda: jax.block_until_ready(program(*arguments))  # noqa: E731
    return Compiled(call, middle - start, end - middle, memory_of(program))


def memory_of(program: Any) -> float | None:
    """Megabytes that a compiled program reserves; None where XLA does not tell."""
    plan = program.memory_analysis()
    return None if plan is None else (plan.temp_size_in_bytes + plan.output_size_in_bytes) / MEGABYTE
