"""Stores: continued after interruptions with the same bytes, and refused if they are another sweep's or damaged."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr

import jaxmbd as mbd
from jaxmbd.sweeps import SweepWarning, read_store, sweep
from jaxmbd.sweeps._store import Store, _forget, _locked, _locks
from tests.sweeps.functions import closure, period

SPACE: dict[str, Any] = {"length": np.linspace(0.5, 2.0, 5), "g": np.linspace(1.0, 10.0, 4)}
CHUNK = 6  # 20 variants: three chunks, and one of two variants


def run(store: Path, function: Any = period, space: Any = SPACE, **options: Any) -> Any:
    return sweep(function, space, store=store, **{"chunk": CHUNK, **options})


def content(folder: Path) -> dict[str, bytes]:
    """All files of a store."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_store_holds_what_memory_holds(tmp_path: Path) -> None:
    found = run(tmp_path / "a.zarr")
    assert found.identical(sweep(period, SPACE, chunk=CHUNK))
    assert found.identical(read_store(tmp_path / "a.zarr"))
    assert found.identical(run(tmp_path / "a.zarr"))  # nothing is left to do
    assert content(tmp_path / "a.zarr").keys() >= {"done/c/3", "period/c/3", "multiples/c/3/0", "length/c/0", "g/c/0"}
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


def test_chunks_of_nothing_but_zeros_or_nan(tmp_path: Path) -> None:
    """They are done all the same."""
    space = {"x": np.arange(4.0)}
    with pytest.warns(SweepWarning):
        found = run(tmp_path / "a.zarr", lambda x: {"zero": 0 * x["x"], "nan": x["x"] * jnp.nan}, space, chunk=2)
    np.testing.assert_array_equal(found["zero"], np.zeros(4))
    np.testing.assert_array_equal(found["nan"], np.full(4, np.nan))
    assert content(tmp_path / "a.zarr").keys() >= {"zero/c/1", "nan/c/1"}


def test_verdicts_in_a_store(tmp_path: Path) -> None:
    space = {"crank": 0.3, "coupler": [0.8, 0.01], "rocker": 0.6, "base": 0.9, "angle": 0.4}
    found = run(tmp_path / "a.zarr", closure, space)
    assert found.identical(read_store(tmp_path / "a.zarr"))
    assert found["result_text"].values.tolist() == ["", mbd.RESULTS[mbd.RESULTS.not_assembled]]


@pytest.mark.parametrize("before", [True, False])
def test_interrupt_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
    """Ctrl-C in the third chunk, before or after it is written; then the sweep computes only what is missing."""
    run(tmp_path / "whole.zarr")
    write, written = Store.write, []

    def interrupted(self: Store, number: int, values: Any) -> None:
        if not (before and number == 2):
            write(self, number, values)
        if number == 2:
            raise KeyboardInterrupt

    def counted(self: Store, number: int, values: Any) -> None:
        written.append(number)
        write(self, number, values)

    monkeypatch.setattr(Store, "write", interrupted)
    with pytest.raises(
        KeyboardInterrupt, match=r"2 of 4 chunks were done\. They are kept in '.*cut.zarr': call sweep with"
    ):
        run(tmp_path / "cut.zarr")
    with pytest.raises(mbd.MechanismError, match=rf"unfinished: {2 if before else 3} of 4 chunks"):
        read_store(tmp_path / "cut.zarr")
    monkeypatch.setattr(Store, "write", counted)
    run(tmp_path / "cut.zarr")
    assert written == ([2, 3] if before else [3])
    assert content(tmp_path / "cut.zarr") == content(tmp_path / "whole.zarr")


def test_interrupt_without_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("jaxmbd.sweeps._chunks.begun", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"0 of 2 chunks were done\. Nothing is kept"):
        sweep(lambda x: {"y": x["x"]}, {"x": [1.0, 2.0]}, chunk=1)


KILLED = """
import os, signal, sys
import jax
jax.config.update("jax_enable_x64", True)
from jaxmbd.sweeps._store import Store, _locked
from tests.sweeps.test_store import run
from pathlib import Path

write, where = Store.write, sys.argv[2]
def killed(self, number, values):
    if number == 2 and where == "before": os.kill(os.getpid(), signal.SIGKILL)
    if number == 2 and where == "between":
        self._group["period"][12:18] = values["period"]
        (self.path / "done" / "c" / "2.0.partial").write_bytes(b"x")
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, number, values)
    if number == 2: os.kill(os.getpid(), signal.SIGKILL)
Store.write = killed
run(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("where", ["between", *(pytest.param(x, marks=pytest.mark.slow) for x in ("before", "after"))])
def test_killed_process_loses_at_most_its_chunk(tmp_path: Path, where: str) -> None:
    run(tmp_path / "whole.zarr")
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed.zarr"), where]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    marks = zarr.open_array(tmp_path / "killed.zarr" / "done", mode="r")[:]
    np.testing.assert_array_equal(marks, [1, 1, where == "after", 0])
    run(tmp_path / "killed.zarr")
    assert content(tmp_path / "killed.zarr") == content(tmp_path / "whole.zarr")


def scaled(numbers: dict[str, Any], by: float) -> dict[str, Any]:
    return {"y": by * numbers["x"]}


def other(by: float) -> Callable[..., Any]:
    return lambda numbers: {"y": by * numbers["x"]}


CHANGES: list[tuple[Any, Any, dict[str, Any], str]] = [
    (other(3.0), {"x": [1.0, 2.0]}, {}, "What differs: what the function computes"),
    (lambda numbers: {"y": numbers["x"] + 2.0}, {"x": [1.0, 2.0]}, {}, "What differs: what the function computes"),
    (other(2.0), {"x": [1.0, 2.5]}, {}, "What differs: the number 'x'"),
    (other(2.0), {"x": [1.0, 2.0], "z": 1.0}, {}, "What differs: the number 'z' is not in the store"),
    (other(2.0), {"x": [1.0, 2.0]}, {"chunk": 1}, "the size of a chunk (2 in the store, 1 now)"),
    (partial(scaled, by=3.0), {"x": [1.0, 2.0]}, {}, "What differs: what the function computes"),
]


@pytest.mark.parametrize(("function", "space", "options", "said"), CHANGES)
def test_another_sweep_is_noticed(tmp_path: Path, function: Any, space: Any, options: Any, said: str) -> None:
    store = tmp_path / "a.zarr"
    run(store, other(2.0), {"x": [1.0, 2.0]})
    assert run(store, other(2.0), {"x": [1.0, 2.0]})["y"].values.tolist() == [2.0, 4.0]  # made anew, but the same
    with pytest.raises(mbd.MechanismError, match=re.escape(said)) as caught:
        run(store, function, space, **options)
    assert "overwrite=True" in str(caught.value)
    fresh = run(store, function, space, overwrite=True, **options)
    assert fresh.identical(read_store(store).assign_attrs(fresh.attrs))


def test_another_version_is_noticed(tmp_path: Path) -> None:
    run(tmp_path / "a.zarr")
    edit(tmp_path / "a.zarr" / "zarr.json", lambda x: x["attributes"]["jaxmbd_sweep"]["parts"].update(jaxmbd="0.0.1"))
    with pytest.raises(mbd.MechanismError, match=r"What differs: the version of jaxmbd \(0.0.1 in the store"):
        run(tmp_path / "a.zarr")


def test_other_source_files_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "a.zarr")
    monkeypatch.setattr("jaxmbd.sweeps._digest.digest_of_sources", lambda: 64 * "0")
    with pytest.raises(mbd.MechanismError, match=r"What differs: the source files of jaxmbd\b"):
        run(tmp_path / "a.zarr")


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def set_length(store: Path) -> None:
    zarr.open_array(store / "length", mode="r+")[1] = 7.0


TAMPERED: list[tuple[Callable[[Path], Any], str]] = [
    (lambda s: shutil.rmtree(s / "period"), "there is no array 'period'"),
    (lambda s: shutil.copytree(s / "period", s / "extra"), "an array 'extra', which is none of"),
    (lambda s: edit(s / "period" / "zarr.json", lambda x: x.update(shape=[21])), "'period' has shape (21,)"),
    (lambda s: edit(s / "period" / "zarr.json", lambda x: x.update(data_type="float32")), "type float32, not"),
    (lambda s: (s / "period" / "zarr.json").write_text("{"), "is damaged or was changed"),
    (lambda s: (s / "period" / "c" / "1").unlink(), "chunk 1 is marked as done, but its 'period' is missing"),
    (lambda s: spoil(s / "multiples" / "c" / "2" / "0"), "the data of 'multiples' cannot be read"),
    (set_length, "the values of 'length' are not those of the space"),
    (lambda s: spoil(s / "done" / "c" / "1"), "is damaged or was changed"),
    (lambda s: (s / "zarr.json").unlink(), "is not the store of a sweep"),
    (lambda s: edit(s / "zarr.json", lambda x: x["attributes"].clear()), "is not the store of a sweep"),
    (lambda s: edit(s / "zarr.json", lambda x: x["attributes"]["jaxmbd_sweep"].update(format=9)), "the format 9"),
]


@pytest.mark.parametrize(("tamper", "said"), TAMPERED)
def test_tampered_stores(tmp_path: Path, tamper: Callable[[Path], Any], said: str) -> None:
    run(tmp_path / "a.zarr")
    tamper(tmp_path / "a.zarr")
    with pytest.raises(mbd.MechanismError, match=re.escape(said)):
        run(tmp_path / "a.zarr")


DAMAGED: list[Callable[[Path], Any]] = [
    lambda s: spoil(s / "length" / "c" / "0"),
    lambda s: edit(s / "zarr.json", lambda x: x["attributes"]["jaxmbd_sweep"]["dims"].update(length=["a", "b"])),
    lambda s: edit(s / "zarr.json", lambda x: x["attributes"]["jaxmbd_sweep"].update(dims=1)),
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_numbers_are_no_store_to_be_read(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    run(tmp_path / "a.zarr")
    damage(tmp_path / "a.zarr")
    with pytest.raises(mbd.MechanismError, match="is damaged or was changed: its attributes or numbers"):
        read_store(tmp_path / "a.zarr")


def test_others_while_a_store_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers leave the half-written file alone; a second writer is refused, also one that would begin afresh."""
    store, write, met = tmp_path / "a.zarr", Store.write, []
    half = store / "period" / "c" / "1.0.partial"

    def crowded(self: Store, number: int, values: Any) -> None:
        if number == 1:
            half.touch()
            for other in (lambda: read_store(store), lambda: run(store), lambda: run(store, overwrite=True)):
                with pytest.raises(mbd.MechanismError) as caught:
                    other()
                met.append(str(caught.value))
            assert half.exists()
        write(self, number, values)

    monkeypatch.setattr(Store, "write", crowded)
    whole = run(store)
    assert "unfinished: 1 of 4 chunks" in met[0]
    assert met[1] == met[2]
    assert met[1].startswith(f"Another sweep is writing the store {str(store)!r}. Wait")
    assert run(store).identical(whole)  # the lock is free again
    assert not half.exists()


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    """One that outlives a process that was killed: the process then closes its files, and no more."""
    run(tmp_path / "a.zarr")
    (begun, begin), (ended, end) = os.pipe(), os.pipe()
    with _locked(tmp_path / "a.zarr"):
        worker = os.fork()
        if worker == 0:
            os.close(end)
            os.write(begin, b".")
            os.read(ended, 1)
            os._exit(0)
        os.read(begun, 1)
        with pytest.raises(mbd.MechanismError, match="Another sweep is writing"), _locked(tmp_path / "a.zarr"):
            pass
        _forget(set(_locks))
        with _locked(tmp_path / "a.zarr"):
            pass
    os.close(end)
    assert os.waitpid(worker, 0)[1] == 0


def test_other_folders_are_neither_read_nor_deleted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.txt").write_text("mine")
    zarr.create_group(tmp_path / "b")
    for name in ("a", "b"):
        with pytest.raises(mbd.MechanismError, match="is not the store of a sweep"):
            run(tmp_path / name)
        with pytest.raises(mbd.MechanismError, match="overwrite=True deletes stores"):
            run(tmp_path / name, overwrite=True)
    assert (tmp_path / "a" / "thesis.txt").read_text() == "mine"


def with_helper(value: float) -> Callable[..., Any]:
    """A function whose source text never changes; what it calls is remembered, and what that is does change."""

    @functools.cache
    def gain() -> float:
        return value

    return lambda numbers: {"y": gain() * numbers["x"]}


def test_what_a_function_finds_while_it_is_traced_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store whose first chunk is done is not continued with another helper behind a cache."""
    write, space, store = Store.write, {"x": np.arange(1.0, 5.0)}, tmp_path / "a.zarr"

    def interrupted(self: Store, number: int, values: Any) -> None:
        if number == 1:
            raise KeyboardInterrupt
        write(self, number, values)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(store, with_helper(10.0), space, chunk=2)
    with pytest.raises(
        mbd.MechanismError, match=r"belongs to another sweep\. What differs: what the function computes"
    ):
        run(store, with_helper(20.0), space, chunk=2)
    assert run(store, with_helper(10.0), space, chunk=2)["y"].values.tolist() == [10.0, 20.0, 30.0, 40.0]


def test_what_cannot_be_told_has_no_store(tmp_path: Path) -> None:
    def calling_back(numbers: dict[str, Any]) -> dict[str, Any]:
        like = jax.ShapeDtypeStruct((), float)
        return {"y": jax.pure_callback(lambda x: 2 * x, like, numbers["x"], vmap_method="sequential")}

    with pytest.raises(mbd.MechanismError, match=r"calling_back computes.*cannot be told.*Leave out store"):
        run(tmp_path / "a.zarr", calling_back, {"x": [1.0]})
    assert not (tmp_path / "a.zarr").exists()
    assert sweep(calling_back, {"x": [1.0]})["y"].values.tolist() == [2.0]
