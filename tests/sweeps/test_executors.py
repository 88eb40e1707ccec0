"""Chunks that other processes compute: the same bytes, workers that break, and functions that cannot be sent."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.sweeps import sweep
from jaxmbd.sweeps._chunks import Chunks, by_workers, compute, pickled
from jaxmbd.sweeps._space import space_of
from jaxmbd.sweeps._store import Store
from tests.sweeps import functions
from tests.sweeps.functions import closure, period
from tests.sweeps.test_store import CHUNK, SPACE, content, run


def pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


@pytest.fixture(autouse=True)
def _children_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def test_processes_give_the_same_store(tmp_path: Path) -> None:
    run(tmp_path / "here.zarr")
    with pool() as executor:
        found = run(tmp_path / "there.zarr", executor=executor)
        with pytest.raises(
            mbd.SolveError, match=r"chunk \d \(variants \d to \d\) of raises_in_workers raised .*the gap is"
        ):
            sweep(functions.raises_in_workers, {"x": np.arange(6.0)}, chunk=2, executor=executor)
    assert found.identical(sweep(period, SPACE, chunk=CHUNK))
    assert content(tmp_path / "here.zarr") == content(tmp_path / "there.zarr")


LINKAGES = {"crank": [0.25, 0.3, 5.0], "coupler": 0.8, "rocker": 0.6, "base": 0.9, "angle": [0.9, 1.2, 1.5]}
ON_DEVICES = """
import sys
from pathlib import Path
import jax
jax.config.update("jax_enable_x64", True)
from jaxmbd.sweeps import _chunks
from tests.sweeps.test_executors import LINKAGES
from tests.sweeps.functions import closure
from tests.sweeps.test_store import run

begun, used = _chunks.begun, []
def seen(*arguments):
    used.append(arguments[-1].id)
    return begun(*arguments)
_chunks.begun = seen
run(Path(sys.argv[1]), closure, LINKAGES, chunk=2)
print(used)
"""


def test_devices_of_a_process_give_the_same_store(tmp_path: Path) -> None:
    """Processors stand for three graphics cards; a linkage that cannot close is among the variants."""
    run(tmp_path / "one.zarr", closure, LINKAGES, chunk=2)
    command = [sys.executable, "-c", ON_DEVICES, str(tmp_path / "three.zarr")]
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=3"  # the same code for each device
    environment = {**os.environ, "XLA_FLAGS": flags}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 1, 2, 0, 1]\n"
    assert content(tmp_path / "one.zarr") == content(tmp_path / "three.zarr")


def test_few_chunks_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two for each thread."""
    flying, most = 0, 0
    submit = ThreadPoolExecutor.submit

    def counted(self: Any, *arguments: Any) -> Any:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        return submit(self, *arguments)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
    with ThreadPoolExecutor(2) as executor:
        chunks = Chunks(space_of({"length": np.arange(1.0, 41.0), "g": 1.0}), 2)
        for _ in by_workers(period, chunks, range(chunks.count), executor):
            flying -= 1
    assert most == 4


@dataclass
class Fragile(Executor):
    """Computes in this process; the first workers that get a certain chunk are said to have died."""

    deaths: int
    error: BaseException
    submitted: list[float] = field(default_factory=list)
    is_broken: bool = False

    def submit(self, fn: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        x = arguments[1]["x"][0]
        self.submitted.append(x)
        if x == 2.0 and self.submitted.count(2.0) <= self.deaths:
            future.set_exception(self.error)
            self.is_broken = isinstance(self.error, BrokenExecutor)
        elif self.is_broken:  # what was in flight breaks with it, a little later
            threading.Timer(0.1, future.set_exception, (self.error,)).start()
        else:
            future.set_result(fn(*arguments))
        return future


class KilledWorker(Exception):  # noqa: N818
    """What Dask raises has this name."""


@pytest.mark.parametrize("error", [CancelledError(), KilledWorker("worker 3 died")])
def test_chunk_of_a_broken_worker_is_submitted_three_times_more(error: BaseException) -> None:
    executor = Fragile(3, error)
    found = sweep(functions.doubled, {"x": np.arange(6.0)}, chunk=2, executor=executor)
    np.testing.assert_array_equal(found["double"], 2 * np.arange(6.0))
    assert sorted(executor.submitted) == [0.0, 2.0, 2.0, 2.0, 2.0, 4.0]
    with pytest.raises(mbd.SolveError, match=r"broke 4 times .* doubled for chunk 1 \(variants 2 to 3\)"):
        sweep(functions.doubled, {"x": np.arange(6.0)}, chunk=2, executor=Fragile(4, error))


def test_executor_that_has_broken_is_made_anew() -> None:
    """With all that was in flight; an executor that cannot be made anew is an error."""
    made: list[Fragile] = []

    def make() -> Fragile:
        made.append(Fragile(1 if len(made) < 2 else 0, BrokenExecutor("gone")))
        return made[-1]

    found = sweep(functions.doubled, {"x": np.arange(6.0)}, chunk=2, executor=make)
    np.testing.assert_array_equal(found["double"], 2 * np.arange(6.0))
    assert len(made) == 3
    with pytest.raises(mbd.SolveError, match=r"the executor broke while it computed chunk 1 .*, chunk 2 \("):
        sweep(functions.doubled, {"x": np.arange(6.0)}, chunk=2, executor=Fragile(1, BrokenExecutor("gone")))


@pytest.mark.slow
def test_broken_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its chunks are computed again by a new executor, if that can be made."""
    monkeypatch.setenv("JAXMBD_TEST_MARK", str(tmp_path / "mark"))
    found = sweep(functions.breaks_once, {"x": np.arange(5.0)}, chunk=2, executor=pool)
    np.testing.assert_array_equal(found["double"], 2 * np.arange(5.0))
    (tmp_path / "mark").unlink()
    said = r"the executor broke while it computed chunk 0 \(variants 0 to 1\), .*lambda"
    with pool() as executor, pytest.raises(mbd.SolveError, match=said):
        sweep(functions.breaks_once, {"x": np.arange(5.0)}, chunk=2, executor=executor)


@pytest.mark.slow
def test_worker_that_breaks_each_time() -> None:
    with pytest.raises(mbd.SolveError, match=r"broke 4 times while they computed breaks_always for chunk 0 \("):
        sweep(functions.breaks_always, {"x": np.arange(2.0)}, executor=pool)


def test_function_that_cannot_be_sent(tmp_path: Path) -> None:
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(mbd.MechanismError, match="Define it at the top level of a mod"),
    ):
        run(tmp_path / "a.zarr", lambda x: period(x), executor=executor)
    assert not (tmp_path / "a.zarr").exists()


@pytest.mark.usefixtures("as_a_user_runs_it")
def test_what_is_no_executor() -> None:
    with pytest.raises(mbd.MechanismError, match=r"must be a concurrent.futures.Executor, got 4"):
        sweep(period, SPACE, executor=4)  # pyright: ignore
    with pytest.raises(mbd.MechanismError, match="function without arguments that returns one; got None"):
        sweep(period, SPACE, executor=lambda: None)  # pyright: ignore


@pytest.fixture
def cluster() -> Iterator[Any]:
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as made,
        Client(made) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_dask_with_a_worker_killed(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "here.zarr", chunk=1)
    pids: list[int] = list(cluster.run(os.getpid).values())
    write, killed = Store.write, []

    def killing(self: Store, number: int, values: Any) -> None:
        write(self, number, values)
        if not killed:
            os.kill(pids[0], signal.SIGKILL)
            killed.append(number)

    monkeypatch.setattr(Store, "write", killing)
    executor: Executor = cluster.get_executor()
    run(tmp_path / "there.zarr", chunk=1, executor=executor)
    assert killed
    assert content(tmp_path / "here.zarr") == content(tmp_path / "there.zarr")


def test_precision_goes_to_the_workers() -> None:
    with ThreadPoolExecutor(1) as executor:
        with jax.enable_x64(False):
            found = sweep(period, {"length": [1.0], "g": 9.81}, executor=executor)
        rows = {"length": np.array([1.0]), "g": np.array([9.81])}
        types = [executor.submit(compute, pickled(period), rows, 1, x).result()["period"].dtype for x in (False, True)]
    assert found["period"].dtype == np.float32
    assert types == [np.float32, np.float64]


def test_worker_with_another_function() -> None:
    """It has another version of the module."""

    class Other(ThreadPoolExecutor):
        def submit(self, fn: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
            return super().submit(fn, pickled(period), *arguments[1:])

    space = {"length": [1.0], "g": 9.81, "x": 1.0}
    with Other(1) as executor, pytest.raises(mbd.SolveError, match=r"a worker returned .*'multiples'.* for chunk 0 \("):
        sweep(functions.doubled, space, executor=executor)
