"""What is read from disk is data: it runs no code, and unless it is the user's own and whole it is made anew."""

import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxmbd.cli._settings import keep_compiled
from jaxmbd.engine.calls.structure import ARRAY, decoded, encoded
from jaxmbd.engine.store import own_files as files_of
from tests import planar_examples as examples
from tests.engine.calls.test_disk_cache import X, expected, files, folder, forget, traced, turned

__all__ = ["folder"]  # a fixture


def run(name: str = "a") -> None:
    """Calls the function as a new process would, and checks all that it gives."""
    forget()
    found = turned(X, {"name": name, "spread": np.asarray(0.1)})
    assert found["name"] == name
    np.testing.assert_allclose(found["solved"], expected(X, 0.1), rtol=1e-13)
    np.testing.assert_allclose(found["rotated"], np.sin(X) * X + 2, rtol=1e-14)


def stored_file(folder: Path) -> tuple[Path, bytes]:
    """The file of a function that has been kept, and that is read again."""
    run()
    (path,) = files(folder)
    run()
    assert not traced
    return path, path.read_bytes()


def test_a_file_with_flipped_bits_is_replaced(folder: Path) -> None:
    path, whole = stored_file(folder)
    for place in (3, 50, 500, *np.linspace(0.3, 0.99, 4) * len(whole)):
        damaged = bytearray(whole)
        damaged[int(place)] ^= 16
        path.write_bytes(damaged)
        run()
        assert traced == ["a"]
        run()
        assert not traced


def test_files_that_changed_places_are_replaced(folder: Path) -> None:
    run("a")
    (first,) = files(folder)
    run("b")
    (second,) = {*files(folder)} - {first}
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    for name in ("a", "b"):
        run(name)
        assert traced == [name]
        run(name)
        assert not traced


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, (os.environ["BOMB"],)


def test_pickled_objects_are_not_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exploded = tmp_path / "exploded"
    monkeypatch.setenv("BOMB", str(exploded))
    path, _ = stored_file(folder)
    path.write_bytes(pickle.dumps(({}, Bomb(), None, 2)))
    run()
    assert traced == ["a"]
    assert not exploded.exists()


@pytest.mark.skipif(files_of.user() is None, reason="a system without owners and modes")
def test_files_that_others_could_write_are_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = stored_file(folder)
    assert path.stat().st_mode & 0o777 == 0o600
    for mode in (0o602, 0o620, 0o666):
        path.chmod(mode)
        run()
        assert traced == ["a"]
        assert path.stat().st_mode & 0o777 == 0o600
    elsewhere = path.rename(folder / "elsewhere")
    path.symlink_to(elsewhere)
    run()
    assert traced == ["a"]
    assert not path.is_symlink()
    path.unlink()
    os.mkfifo(path)  # to open it must not wait for a writer
    run()
    assert traced == ["a"]
    monkeypatch.setattr(files_of, "user", lambda: os.geteuid() + 1)
    run()
    assert traced == ["a"]
    monkeypatch.setattr(files_of, "user", lambda: None)  # where nobody has a number
    run()
    assert not traced
    assert path.read_bytes() == whole


def test_the_least_recently_used_files_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, left = time.time(), {}
    for age, name in enumerate("abc"):
        run(name)
        (left[name],) = {*files(folder)} - {*left.values()}
        os.utime(left[name], (now - 1000 + age, now - 1000 + age))
    run("a")  # read again: `b` is now the oldest
    assert not traced
    size = left["a"].stat().st_size
    monkeypatch.setenv("JAXMBD_CACHE_MIB", str(3.5 * size / 2**20))
    run("d")
    assert {*left.values()} - {*files(folder)} == {left["b"]}
    assert len(files(folder)) == 3


def test_the_commands_cache_is_limited_and_its_users_own(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JAX's own files there count too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "cache" / "jaxmbd" / "compiled"
    before = jax.config.jax_persistent_cache_min_compile_time_secs  # pyright: ignore

    def chosen() -> str | None:
        jax.config.update("jax_compilation_cache_dir", None)
        keep_compiled()
        return jax.config.jax_compilation_cache_dir  # pyright: ignore

    try:
        assert chosen() == str(own)
        assert own.stat().st_mode & 0o777 == 0o700
        for age, name in enumerate(("one-cache", "jaxmbd_two", "three-cache")):
            (own / name).write_bytes(bytes(1000))
            os.utime(own / name, (time.time() - 100 + age,) * 2)  # pyright: ignore
        monkeypatch.setenv("JAXMBD_CACHE_MIB", str(2500 / 2**20))
        assert chosen() == str(own)
        assert sorted(path.name for path in own.iterdir()) == ["jaxmbd_two", "three-cache"]
        monkeypatch.setenv("JAXMBD_CACHE_MIB", "0")
        assert chosen() is None
        monkeypatch.delenv("JAXMBD_CACHE_MIB")
        own.rename(tmp_path / "elsewhere")
        own.symlink_to(tmp_path / "elsewhere")
        assert chosen() is None
    finally:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before)


def test_nothing_is_read_or_written_where_nothing_may_be_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = stored_file(folder)
    monkeypatch.setenv("JAXMBD_CACHE_MIB", "0")
    run()
    assert traced == ["a"]
    path.unlink()
    run()
    assert not files(folder)
    monkeypatch.setenv("JAXMBD_CACHE_MIB", "much")  # as if nothing were said
    run()
    assert len(path.read_bytes()) == pytest.approx(len(whole), rel=0.1)


def test_nothing_stays_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = folder / ".jaxmbd-old", folder / ".jaxmbd-new"
    monkeypatch.setenv("JAXMBD_CACHE_MIB", "0.05")  # so that each write looks at what there is
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 1e5, time.time() - 1e5))
    with monkeypatch.context() as full:

        def no_space(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        full.setattr(files_of.os, "replace", no_space)
        run()
        assert sorted(path.name for path in folder.glob(".*")) == [".jaxmbd-new", ".jaxmbd-old"]
    run()
    assert sorted(path.name for path in folder.glob(".*")) == [".jaxmbd-new"]
    assert len(files(folder)) == 1


def test_a_mesh_around_a_function_is_no_part_of_what_is_kept(folder: Path) -> None:
    with jax.set_mesh(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))):
        run()
    assert not files(folder)


def test_structures_are_built_again() -> None:
    made = examples.pendulum()
    like = jax.tree.map(lambda x: ARRAY if isinstance(x, jax.Array) else x, (made.mechanism, made.state()))
    values = {"tree": like, "numbers": [1, 0.1, float("inf"), True, None], "three": ("a", frozenset({"x"}), [])}
    found = decoded(json.loads(json.dumps(encoded(values))))
    assert jax.tree.structure(found) == jax.tree.structure(values)
    leaves = zip(jax.tree.leaves(found), jax.tree.leaves(values), strict=True)
    assert all((x is y is ARRAY) or (x == y and type(x) is type(y)) for x, y in leaves)
    assert type(found["tree"][0]) is type(made.mechanism)


@pytest.mark.parametrize("value", [len, os.system, Path(), 1j, Bomb(), Bomb, {1}, np.float64(1.0), print])
def test_what_is_no_data_is_not_written(value: Any) -> None:
    with pytest.raises((TypeError, KeyError)):
        encoded(value)


@pytest.mark.parametrize(
    "text",
    [
        ["class", ["os", "system"]],
        ["class", ["builtins", "eval"]],
        ["class", ["jaxmbd.engine.store.own_files", "os"]],
        ["class", ["jaxmbd.engine.machine.c_library", "subprocess.Popen"]],
        ["class", ["jaxmbd.engine.machine.build_vm", "vm"]],
        ["class", ["jaxmbd.not_there", "x"]],
        ["object", ["diffrax", "RESULTS"], []],
        ["function", ["jaxmbd", "simulate"]],
        ["call", "x"],
    ],
)
def test_text_names_nothing_but_classes_of_values(text: Any) -> None:
    with pytest.raises((TypeError, KeyError, ValueError)):
        decoded(text)
