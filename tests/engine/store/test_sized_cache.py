"""What is kept of mechanisms is bounded by its size, however many of them there are."""

import gc
import os
import subprocess
import sys
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.engine.binding import jax_binding, trace_once, tracing
from jaxmbd.engine.calls import calls, disk_cache
from jaxmbd.engine.store.sized_cache import SizedCache
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.adjoint import native_steps

CACHES = (
    disk_cache._first_calls, calls.traced, jax_binding._program_of, trace_once._known, native_steps._steps_of,
)  # fmt: skip


class Numbers(list):
    """A list that can be referred to weakly."""


def test_what_was_used_last_is_kept_up_to_a_size() -> None:
    called: list[int] = []

    def make(n: int) -> Numbers:
        called.append(n)
        return Numbers([n] * n)

    cache = SizedCache(make, 10, len)
    first = weakref.ref(cache(3))
    for n in (4, 2, 3):  # 3 is used again, so that 4 is the oldest
        cache(n)
    assert (called, cache.total) == ([3, 4, 2], 9)
    cache(5)
    assert (called, cache.total) == ([3, 4, 2, 5], 10)
    cache(3)
    cache(4)  # is made again; 2 and 5 go
    assert (called, cache.total) == ([3, 4, 2, 5, 4], 7)
    cache(100)
    gc.collect()
    assert cache.total == 100  # the last one, however large
    assert first() is None
    assert cache(100) is cache(100)
    cache.cache_clear()
    assert cache.total == 0


def test_threads_share_a_result() -> None:
    """One that another thread has made meanwhile is taken."""
    barrier = threading.Barrier(4)
    cache = SizedCache(lambda n: (barrier.wait(), object())[1], 10, lambda x: 1)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(cache(0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(x) for x in found}) == 1
    assert cache.total == 1


def test_equations_of_what_is_called_count_once() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return jnp.sin(x) + 1.0

    called = jax.make_jaxpr(lambda x: jax.lax.cond(x > 0, inner, inner, inner(x)))(1.0)
    alone = jax.make_jaxpr(lambda x: jnp.sin(x) + 1.0)(1.0)
    assert tracing.equations_in(alone) == 2
    assert tracing.equations_in(alone, alone) == 2
    assert 2 < tracing.equations_in(called) < 12
    program = jax_binding._program_of(lambda x: jnp.cos(jnp.sin(x)), *_of_one_number())
    assert program is not None
    assert (
        tracing.equations_in(jax.make_jaxpr(lambda x: jax_binding.run_p.bind(x, function=program[0], batch=0))(1.0))
        == 3
    )


def _of_one_number() -> tuple[Any, ...]:
    return jax.tree.structure((1.0,)), (True,), (None,), (((), np.dtype(float)),), False


def chain(count: int, name: str) -> pl.Mechanism:
    """A chain of bars on pins."""
    bars = [pl.Body(f"{name}{k}", 1.0, 0.1) for k in range(count)]
    before = [pl.ground.at(), *(bar.at(0.5, 0.0) for bar in bars)]
    pins = [pl.Revolute(f"O{k}", before[k], bar.at(-0.5, 0.0)) for k, bar in enumerate(bars)]
    return pl.Mechanism(bars, pins, [pl.Gravity(9.81)], coordinates="joint")


def test_mechanisms_of_many_structures_keep_no_more_than_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was traced of the first ones is gone after others, in all caches that grow with mechanisms."""
    caches = CACHES[:4]
    for cache, limit in zip(caches, (1500, 2500, 1500, 500), strict=True):
        cache.cache_clear()
        monkeypatch.setattr(cache, "_limit", limit)
    monkeypatch.setattr(disk_cache, "_folder", lambda: None)  # what is read from disk is not traced
    first: list[weakref.ref[Any]] = []
    for count in range(1, 5):
        mechanism = chain(count, f"bar {count} ")
        Equations(mechanism).mass(mbd.assemble(mechanism, {"O0.angle": 0.3}).q)
        for cache in caches:
            assert cache.total > 0
            assert cache.total <= cache._limit or len(cache._kept) == 1
        if count == 1:
            first = [weakref.ref(kept.result) for kept in disk_cache._first_calls._kept.values()]
    gc.collect()
    assert first
    assert not any(ref() for ref in first)


MEMORY = """
import resource, sys
from tests.engine.store.test_sized_cache import CACHES, chain
import jax, numpy as np, jaxmbd as mbd
jax.config.update("jax_enable_x64", True)
def size():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
def one(k):
    mechanism = chain(1 + k % 3, f"bar {k} ")
    mbd.simulate(mechanism, mbd.assemble(mechanism, {"O0.angle": 0.3}), np.linspace(0.0, 0.05, 3))
for cache in CACHES:
    cache._limit //= 13
for k in range(18):
    one(k)
before = size()
for k in range(18, 36):
    one(k)
print((size() - before) / 18)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_mechanisms() -> None:
    """With small limits the caches are full soon; each further one kept 1.9 MiB as long as JAX's own cache of the types
    of results held on to what had been traced."""
    environment = os.environ | {"JAXMBD_CACHE_MIB": "0", "JAXMBD_PROGRESS": "0"}
    run = subprocess.run([sys.executable, "-c", MEMORY], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 0.75  # MiB
