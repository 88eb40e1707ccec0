"""What every test runs under: few threads, strict JAX, checked shapes, fixed seeds.

The order matters: the environment is read when JAX starts, and the import hook reaches only modules imported
after it. Warnings are errors by `filterwarnings` in pyproject.toml.
"""

import gc
import os
import random
import sys
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path

# One thread per worker. With JAX's default of one per core, two workers on two cores took twice as long to
# compile a reverse solve (10 s against 5 s).
# Kernels of notebooks and commands started by tests inherit these.
for variable in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
# Nearly all programs run once: what the compiler spends on their speed is lost. Without its expensive passes the suite
# takes a third less.
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
QUICK += " --xla_cpu_parallel_codegen_split_count=1"
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):  # XLA stops at a flag that it does not know
    QUICK += " --xla_cpu_use_fusion_emitters=false"  # the older emitters compile a reverse solve in half the time
os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=false {QUICK}")
# What has been compiled need not be compiled again: after a worker has freed its programs, in the kernels and commands
# that it starts, and in the next run.
from tests.compile_cache import claim, default_root

os.environ["JAX_COMPILATION_CACHE_DIR"] = str(claim(default_root()))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
# Without the lines of Python behind each operation, which nobody reads here, the suite takes three per cent less.
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"
# Pictures go to files, never to a screen.
os.environ["MPLBACKEND"] = "agg"
os.environ["JAXMBD_PROGRESS"] = "0"  # also in kernels of notebooks

import jax
import jaxtyping
import numpy as np
import pytest

from tests.checked import check_shapes

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")

assert "jaxmbd" not in sys.modules, "jaxmbd was imported too early: its shapes would go unchecked"
# Not in those whose arrays hold rows of a graph: they are called hundreds of thousands of times.
PACKAGE, UNCHECKED = Path(__file__).parents[1] / "jaxmbd", {"engine"}
check_shapes([f"jaxmbd.{path.stem}" for path in PACKAGE.iterdir() if path.stem not in UNCHECKED])

from jaxmbd.engine.calls import calls, disk_cache

# Tracing makes many objects and drops few: looking for those less often takes a tenth off the suite.
gc.set_threshold(100_000, 20, 20)


def pytest_collection_finish() -> None:
    """What was imported stays: it need not be looked at again each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A number of the test's own, the same in every run, whichever tests run beside it and wherever its file lies."""
    file, _, test = request.node.nodeid.partition("::")
    return zlib.crc32(f"tests/{Path(file).name}::{test}".encode())


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    """NumPy's random numbers, seeded by the test's name."""
    return np.random.default_rng(seed)


@pytest.fixture
def key(seed: int) -> jax.Array:
    """JAX's random key, seeded by the test's name."""
    return jax.random.key(seed)


@pytest.fixture(autouse=True)
def _fixed_global_seeds(seed: int) -> None:
    """Seeds the global generators too, for code that draws from them unasked."""
    random.seed(seed)
    np.random.seed(seed)


@pytest.fixture
def as_a_user_runs_it() -> Iterator[None]:
    """Without the checks of types at run time, which users do not have: for tests of wrong inputs."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


MODULES = count(1)


def _memory_of_a_worker() -> float:
    """What the computer has for each worker `[GB]`; 0 where it does not say."""
    names = getattr(os, "sysconf_names", ())
    if not {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= {*names}:
        return 0.0
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return whole / 1e9 / int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


KEPT = 16 if _memory_of_a_worker() > 8.0 else 8  # modules; a worker takes some 3 GB with eight


@pytest.fixture(scope="module", autouse=True)
def _frees_compiled_programs() -> Iterator[None]:
    """After every eighth module, or sixteenth where memory allows; until then they share what is compiled.

    Each program keeps some dozen memory maps. With those of all modules together a worker ran into the system's limit
    (65,530 maps), where the compiler ends with a segmentation fault; and it took gigabytes.
    """
    yield
    if next(MODULES) % KEPT == 0:
        jax.clear_caches()
        disk_cache._first_calls.cache_clear()
        calls.traced.cache_clear()
        gc.collect()


SLOW = Path(__file__).parent / "slow.txt"
LONGEST = {"test_documents", "test_notebooks", "test_site", "test_wheel"}
LAWS = ("laws", "joint_laws", "force_laws", "sensor_laws", "laws_plane", "joint_geometry")
SHARE_A_BENCH = {f"test_{name}" for name in LAWS}  # `model/law_bench.py`, which takes a minute to trace


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of `slow.txt`, which were measured to take longest. The files with the longest ones come first,
    so that at the end no worker waits for another one; then those that share what one worker traces for all of them."""
    items.sort(key=lambda item: (item.path.stem not in LONGEST, item.path.stem not in SHARE_A_BENCH))
    slow = set(SLOW.read_text().splitlines())
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
