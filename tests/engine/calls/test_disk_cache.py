"""Compiled functions kept on disk are found again without being traced, and only where they would be the same."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.engine import choice
from jaxmbd.engine.binding.jax_binding import as_program
from jaxmbd.engine.calls import calls, disk_cache, known_code
from jaxmbd.engine.calls.cached_function import cached_on_disk
from jaxmbd.engine.calls.calls import FlatCall
from jaxmbd.engine.calls.entry import Entry, unpacked
from jaxmbd.engine.machine.build_vm import vm
from jaxmbd.engine.store import artefacts
from jaxmbd.engine.store.artefacts import Artefact, Kind
from jaxmbd.upstream.jax_internals import use_compilation_cache
from tests import planar_examples as examples

traced: list[str] = []


def turn(x: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Arithmetic that is a program, a solve by LAPACK, and words."""
    traced.append(options["name"])
    rotated = as_program(_rotated)(x)
    matrix = jnp.diag(rotated) + options["spread"]
    return {"solved": jnp.linalg.solve(matrix, x), "rotated": rotated, "name": options["name"], "none": None}


def _rotated(x: Any) -> Any:
    return jnp.sin(x) * x + 2.0


def expected(x: np.ndarray, spread: float) -> np.ndarray:
    return np.linalg.solve(np.diag(np.sin(x) * x + 2.0) + spread, x)


def checked(x: Any) -> Any:
    traced.append("checked")
    return eqx.error_if(2 * x, x < 0, "x is negative")


turned, doubled = cached_on_disk(turn), cached_on_disk(checked)
X = np.array([0.3, 0.7, 1.1])


@contextmanager
def kept_in(path: Path) -> Iterator[Path]:
    """An empty folder for JAX's cache."""
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore
    jax.config.update("jax_compilation_cache_dir", str(path))
    forget()
    yield path
    jax.config.update("jax_compilation_cache_dir", before)
    forget()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for JAX's cache; what the tests say counts as a library's, and is known by its text."""
    monkeypatch.setattr(known_code, "_KNOWN", {*known_code._KNOWN, __name__.partition(".")[0]})
    vm()  # which is loaded from where it is kept already
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))  # where files count, too, and may be removed
    monkeypatch.setattr(artefacts.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    with kept_in(tmp_path):
        yield tmp_path


def forget() -> None:
    """As a new process would start."""
    traced.clear()
    disk_cache._first_calls.cache_clear()
    calls.traced.cache_clear()
    jax.clear_caches()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("jaxmbd_*"))


def entry_in(path: Path) -> Entry:
    """The entry in a file, which is whole."""
    name, _, key = path.name.removeprefix("jaxmbd_").partition("-")
    content = Artefact(Kind.CALL, name, bytes.fromhex(key)).read(path.parent)
    assert content is not None
    return unpacked(content)


def test_assembly_is_kept(folder: Path) -> None:
    example = mbd.examples.get("pendulum")
    first = example.state()
    assert [path for path in files(folder) if "assemble" in path.name]
    count = len(files(folder))
    forget()
    np.testing.assert_array_equal(example.state().q, first.q)
    assert len(files(folder)) == count


def test_analyses_of_mechanisms_with_users_functions_are_kept(folder: Path) -> None:
    """What these give holds the mechanism, and with it functions that no file can hold."""
    made = mbd.examples.get("pendulum").mechanism
    driven = made.with_parts([mbd.planar.Driver("motor", "O.angle", lambda t: 0.5 * t**2)])
    pulled = made.with_parts([mbd.planar.JointForce("motor", "O.angle", lambda t, angle, rate, _: 2.0 - angle)])
    runs: dict[str, Callable[[], np.ndarray]] = {
        "motion": lambda: np.asarray(mbd.kinematics(driven, [0.0, 1.0]).q),
        "equilibrium": lambda: np.asarray(mbd.equilibrium(pulled).state.q),
    }
    for name, run in runs.items():
        first = run()
        assert "code" in [entry_in(path).kind for path in files(folder) if name in path.name]
        count = len(files(folder))
        forget()
        np.testing.assert_array_equal(run(), first)
        assert len(files(folder)) == count


def test_what_is_kept_is_not_traced_again(folder: Path) -> None:
    first = turned(X, {"name": "a", "spread": jnp.asarray(0.1)})
    assert traced == ["a"]
    assert len(files(folder)) == 1
    forget()
    again = turned(2 * X, {"name": "a", "spread": jnp.asarray(0.2)})
    assert traced == []
    assert jax.tree.structure(first) == jax.tree.structure(again)
    assert again["name"] == "a"
    np.testing.assert_allclose(first["solved"], expected(X, 0.1), rtol=1e-13)
    np.testing.assert_allclose(again["solved"], expected(2 * X, 0.2), rtol=1e-13)
    np.testing.assert_allclose(again["rotated"], np.sin(2 * X) * 2 * X + 2.0, rtol=1e-14)


def test_what_differs_is_kept_apart(folder: Path) -> None:
    for name, x in (("a", X), ("b", X), ("a", X[:2]), ("a", X.astype(np.float32))):
        found = turned(x, {"name": name, "spread": jnp.asarray(0.1, x.dtype)})
        assert (found["name"], found["solved"].dtype) == (name, x.dtype)
        np.testing.assert_allclose(found["solved"], expected(x, 0.1), rtol=1e-5)
    assert len(files(folder)) == len(traced) == 4
    with jax.numpy_rank_promotion("allow"):
        turned(X, {"name": "a", "spread": jnp.asarray(0.1, X.dtype)})
    assert len(files(folder)) == 5


def test_numbers_do_not_count_whatever_they_are_kept_in(folder: Path) -> None:
    for spread in (np.float64(0.1), np.float64(0.2), np.asarray(0.3), jnp.asarray(0.4, float)):
        found = turned(X, {"name": "a", "spread": spread})
        np.testing.assert_allclose(found["solved"], expected(X, float(spread)), rtol=1e-13)
    assert len(files(folder)) == len(traced) == 1


def test_a_users_function_is_kept_until_it_changes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    made = examples.pendulum()
    (rod,) = made.mechanism.bodies
    assert isinstance(rod, mbd.planar.Body)

    def end(force: Any) -> Any:
        part = mbd.planar.UserForce("push", force, (rod.at(0, 0),))
        return mbd.simulate(made.mechanism.replacing(forces=[part]), made.state(), [0.0, 0.1]).q[-1]

    def kept() -> int:
        """The number of motions, and one for how a motion calls the function."""
        return len([path for path in files(folder) if "integrate" in path.name])

    def push(size: float) -> Any:
        return lambda *_: jnp.array([[0.0, size, 0.0]])

    first = end(push(1.0))
    assert kept() == 1 + 1
    begun, apply = list[str](), FlatCall.apply
    monkeypatch.setattr(FlatCall, "apply", lambda self, x: (begun.append(self.name), apply(self, x))[1])
    forget()
    np.testing.assert_array_equal(end(push(1.0)), first)
    assert "integrate" not in begun
    assert not np.allclose(end(push(2.0)), first)
    assert "integrate" in begun
    assert kept() == 1 + 2


def test_the_executable_replaces_the_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is compiled a later process takes that, without a trace; its results are those of the code."""
    first = turned(X, {"name": "a", "spread": jnp.asarray(0.1)})
    (path,) = files(folder)
    assert entry_in(path).kind == "code"
    monkeypatch.setattr(choice, "NUMPY_RUNS", 0)
    forget()
    again = turned(X, {"name": "a", "spread": jnp.asarray(0.1)})  # the code is read, and nothing may run it
    assert traced == ["a"]
    assert entry_in(path).kind == "executable"
    forget()
    third = turned(2 * X, {"name": "a", "spread": jnp.asarray(0.1)})
    assert not traced
    assert files(folder) == [path]
    for name in ("solved", "rotated"):
        np.testing.assert_allclose(again[name], first[name], rtol=1e-14)
    np.testing.assert_allclose(third["solved"], expected(2 * X, 0.1), rtol=1e-13)


def test_a_damaged_file_is_made_anew(folder: Path) -> None:
    wanted = turned(X, {"name": "a", "spread": jnp.asarray(0.1)})["solved"]
    (path,) = files(folder)
    whole = path.read_bytes()
    for content in (b"", b"nonsense", whole[: len(whole) // 2]):
        path.write_bytes(content)
        forget()
        np.testing.assert_array_equal(turned(X, {"name": "a", "spread": jnp.asarray(0.1)})["solved"], wanted)
        assert traced == ["a"]
        assert len(path.read_bytes()) > len(whole) // 2


def test_what_calls_python_back_is_not_kept(folder: Path) -> None:
    assert float(doubled(jnp.asarray(1.0))) == 2.0  # as NumPy code, which is kept: nothing is to be raised
    kept = [(path, path.read_bytes()) for path in files(folder)]
    with pytest.raises(Exception, match="x is negative"):
        jax.block_until_ready(doubled(jnp.asarray(-1.0)))
    assert [(path, path.read_bytes()) for path in files(folder)] == kept


def test_derivatives_and_maps_go_through(folder: Path) -> None:
    solve = lambda x: turned(x, {"name": "a", "spread": jnp.asarray(0.1)})["solved"]  # noqa: E731
    turned(X, {"name": "a", "spread": jnp.asarray(0.1)})
    step = 1e-6
    differences = [(expected(X + step * e, 0.1) - expected(X - step * e, 0.1)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(jax.jacfwd(solve)(X), np.stack(differences, axis=1), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(jax.jacrev(solve)(X), np.stack(differences, axis=1), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(jax.vmap(solve)(np.stack([X, 2 * X])), [expected(X, 0.1), expected(2 * X, 0.1)])
    names = sorted(path.name.partition("-")[0].removeprefix("jaxmbd_turn") for path in files(folder))
    assert names == ["", "_linearization", "_linearization_linearmap_transpose_batch", "_pushforward_batch"]


def test_without_a_folder_of_jax_there_is_one_of_our_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which only the user can write; nothing is stored where JAX's cache is switched off.

    Where somebody else could write, the folder for temporary files serves."""
    own = folder / "cache" / "jaxmbd" / "compiled"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    jax.config.update("jax_compilation_cache_dir", None)
    use_compilation_cache(False)
    turned(X, {"name": "a", "spread": jnp.asarray(0.1)})
    use_compilation_cache(True)
    assert not own.exists()
    for factor, expected in ((1, ["a"]), (2, [])):
        forget()
        turned(factor * X, {"name": "a", "spread": jnp.asarray(0.1)})
        assert traced == expected
        assert len(files(own)) == 1
    assert own.stat().st_mode & 0o777 == 0o700
    forget()
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "other"))
    (folder / "other").mkdir()
    (folder / "other" / "jaxmbd").symlink_to(folder)
    (folder / "compiled").symlink_to(own)
    turned(X, {"name": "b", "spread": jnp.asarray(0.1)})
    assert len(files(own)) == 1
    assert not files(folder)
    assert [len(files(path)) for path in (folder / "temporary").iterdir()] == [1]


FIRST = """
import json, jax
jax.config.update("jax_enable_x64", True)
import jaxmbd as mbd
from jaxmbd.analyses.simulation import native_motion as _motion
made, runs, rates = mbd.examples.get("four-bars"), [], _motion.rates
_motion.rates = lambda *x: (runs.append(1), rates(*x))[1]
found = mbd.simulate(made.mechanism, made.state(), [0.0, 0.1])
print(json.dumps([len(runs), found.q.tolist(), str(found.result)]))
"""


@pytest.mark.slow
def test_a_second_process_runs_what_the_first_one_compiled(tmp_path: Path) -> None:
    variables = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", FIRST]
    done = [subprocess.run(command, env=variables, check=True, capture_output=True, text=True) for _ in range(2)]
    (runs, q, result), (again, other, verdict) = (json.loads(process.stdout) for process in done)
    assert runs > 0
    assert again == 0
    assert q == other
    assert result == verdict


@pytest.mark.slow
def test_several_processes_write_at_once(tmp_path: Path) -> None:
    """Without a folder of JAX, in that of the user; each writes whole files, and the next process reads them."""
    variables = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    variables |= {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", FIRST]
    running = [subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    first = [json.loads(process.communicate()[0]) for process in running]
    assert max(runs for runs, *_ in first) > 0
    again = subprocess.run(command, env=variables, check=True, capture_output=True, text=True)
    runs, q, result = json.loads(again.stdout)
    assert runs == 0
    assert [x[1:] for x in first] == [[q, result]] * 3
    assert len(files(tmp_path / "jaxmbd" / "compiled")) > 2
    assert not list(tmp_path.rglob(".jaxmbd-*"))
