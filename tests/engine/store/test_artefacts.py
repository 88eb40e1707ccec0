"""Artefacts on disk: what is not exactly what was written is never read, and all kinds share one limit."""

import ctypes
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxmbd.engine.machine.c_library import CLibrary, compiler
from jaxmbd.engine.store import artefacts
from jaxmbd.engine.store.artefacts import Artefact, Kind

KEY = bytes(range(32))
KINDS = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a user's artefacts, who has named none for JAX."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAXMBD_CACHE_MIB", raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(artefacts.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore
    jax.config.update("jax_compilation_cache_dir", None)
    folder = tmp_path / "cache" / "jaxmbd" / "compiled"
    assert artefacts.own_folder() == folder
    yield folder
    jax.config.update("jax_compilation_cache_dir", before)


def put(folder: Path, name: str, age: float, size: int = 1000) -> Path:
    """A file that was used so many seconds ago."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)  # pyright: ignore
    return path


@KINDS
@pytest.mark.parametrize("content", [b"", b"content" * 3], ids=["empty", "full"])
def test_a_flipped_bit_of_each_byte_and_each_length_is_found(kind: Kind, content: bytes, user: Path) -> None:
    artefact = Artefact(kind, "x", KEY)
    path = artefact.write(user, content)
    assert path is not None
    whole = path.read_bytes()
    assert artefact.read(user) == content
    assert whole[: len(content)] == content  # so a library is one for the loader, too
    assert KEY in whole[len(content) :]
    damaged = [whole[:length] for length in range(len(whole))]
    damaged += [whole + b"\0", b"\0" + whole, whole + whole, whole[::-1]]
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        damaged.append(bytes(flipped))
    for found in damaged:
        path.write_bytes(found)
        assert artefact.read(user) is None
    path.write_bytes(whole)
    assert artefact.read(user) == content


def test_what_lies_under_the_name_of_another_one_is_not_read(user: Path) -> None:
    """One of another key, or of another kind."""
    made = [Artefact(kind, "x", key) for kind in Kind for key in (KEY, KEY[::-1])]
    paths = [artefact.write(user, b"content") for artefact in made]
    contents = [path.read_bytes() for path in paths if path]
    assert len({*contents}) == len(made)
    for k, (artefact, path) in enumerate(zip(made, paths, strict=True)):
        assert path is not None
        for j, content in enumerate(contents):
            path.write_bytes(content)
            assert artefact.read(user) == (b"content" if j == k else None)
        path.write_bytes(contents[k])


def test_damage_anywhere_in_a_library_is_found_before_it_is_loaded(user: Path) -> None:
    library = CLibrary("answer", ("answer",), (), lambda: "int answer(void) { return 42; }", "", ("-O1",))
    assert library.loaded().answer() == 42
    artefact = library.artefact(compiler() or [])
    path = artefact.path(user)
    whole = path.read_bytes()
    assert ctypes.CDLL(str(path)).answer() == 42
    for place in [*range(0, len(whole), 97), *range(len(whole) - 80, len(whole))]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.unlink()  # this process has loaded what is there
        path.write_bytes(damaged)
        path.chmod(0o600)
        assert artefact.read(user) is None
        assert library.stored(compiler()) is None
    assert library.loaded().answer() == 42
    assert path.read_bytes() == whole


def test_all_kinds_and_what_former_versions_left_have_one_limit(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was used least recently goes first, whatever it is and wherever it lies."""
    shared = tmp_path / "shared"
    jax.config.update("jax_compilation_cache_dir", str(shared))
    others = [put(shared, "jax's-cache", 9e4, 10**6), put(tmp_path / "cache", "another's", 9e4, 10**6)]
    files = [
        put(user.parent, "machine-546e392219b56f8c.so", 70), put(user, "jit_f-cache", 60),
        put(shared, "jaxmbd_call-1", 50), put(user, "jaxmbd_program-2.so", 40),
        put(tmp_path / "temporary" / f"jaxmbd-{os.geteuid()}", "kernel-3.cubin", 30), put(user, "jaxmbd_motion-4", 20),
    ]  # fmt: skip
    last = Artefact(Kind.KERNEL, "motion", KEY)
    for left in range(len(files), -1, -1):
        monkeypatch.setenv("JAXMBD_CACHE_MIB", str((1000 * left + 1100) / 2**20))
        assert last.write(user, bytes(928)) is not None
        assert [path for path in files if path.exists()] == files[len(files) - left :]
    assert last.read(user) == bytes(928)
    assert all(path.exists() for path in others)


def test_all_files_are_looked_at_once_in_a_while(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look takes time in proportion to the number of files. Between two the files grow by a 64th of the limit."""
    looks, most = [], 0
    monkeypatch.setattr(artefacts, "remove_excess", lambda f=artefacts.remove_excess: looks.append(f()))
    monkeypatch.setenv("JAXMBD_CACHE_MIB", str(1000 * 1000 / 2**20))  # of which each file fills a thousandth
    for k in range(1500):
        Artefact(Kind.CALL, "x", hashlib.sha256(b"%d" % k).digest()).write(user, bytes(928))
        most = max(most, len(os.listdir(user)))
    assert 48 < len(looks) < 192  # in the mean 96
    assert 1000 <= most <= 1000 * (1 + 8 / 64)


def test_what_is_read_was_used(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Artefact(kind, "x", KEY) for kind in Kind]
    for age, artefact in enumerate(made):
        artefact.write(user, bytes(928))
        os.utime(artefact.path(user), (time.time() - 100 + age,) * 2)  # pyright: ignore
    assert made[0].read(user) is not None
    assert made[0].path(user).stat().st_mtime > time.time() - 50  # also where the system keeps no time of access
    monkeypatch.setenv("JAXMBD_CACHE_MIB", str(2100 / 2**20))
    artefacts.remove_excess()
    assert [artefact.path(user).exists() for artefact in made] == [True, False, True]


def test_a_folder_that_is_named_twice_counts_once(user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(user)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "link"))
    monkeypatch.setenv("JAXMBD_CACHE_MIB", str(1100 / 2**20))
    artefact = Artefact(Kind.CALL, "x", KEY)
    artefact.write(tmp_path / "link", bytes(928))
    assert artefact.read(user) == bytes(928)


@pytest.mark.parametrize(("text", "size"), [("0", 0), ("-1", -(2**20)), ("2.5", 2.5 * 2**20), ("inf", np.inf)])
def test_the_limit_is_what_the_user_says(text: str, size: float, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXMBD_CACHE_MIB", text)
    assert artefacts.size_limit() == size
    assert artefacts.own_folder() == (user if size > 0 else None)
    for text in ("much", "nan", ""):
        monkeypatch.setenv("JAXMBD_CACHE_MIB", text)
        assert artefacts.size_limit() == 2**30


@KINDS
def test_where_nothing_can_be_written_nothing_is_lost(
    kind: Kind, user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file lies where the folder should be: the folder for temporary files serves. A full disk is no error."""
    artefact = Artefact(kind, "x", KEY)
    user.rmdir()
    user.write_text("in the way")
    assert artefact.write(user, b"content") is None
    assert artefact.read(user) is None
    folder = tmp_path / "temporary" / f"jaxmbd-{os.geteuid()}"
    assert artefacts.own_folder() == folder
    assert artefact.write(folder, b"content")
    assert artefact.read(folder) == b"content"
    monkeypatch.setattr(artefacts.tempfile, "gettempdir", lambda: str(user))
    assert artefacts.own_folder() is None


WRITE = """
import sys, pathlib
from tests.engine.store.test_artefacts import write_and_read
print("ready", flush=True)
for k in range(100):
    write_and_read(pathlib.Path(sys.argv[1]), k)
"""


def write_and_read(folder: Path, k: int) -> None:
    """Write artefacts of all kinds, of a size that follows from each of their bytes."""
    for kind in Kind:
        artefact = Artefact(kind, "x", KEY)
        assert artefact.write(folder, bytes([k]) * (10_000 + 100 * k))
        found = artefact.read(folder)
        assert found
        assert len(found) == 10_000 + 100 * found[0]
        assert len({*found}) == 1


def test_processes_that_write_at_once_leave_whole_files(user: Path) -> None:
    command = [sys.executable, "-c", WRITE, str(user)]
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        k, together = 0, 0
        while other.poll() is None:
            write_and_read(user, k := (k + 1) % 100)
            together += 1
    assert other.returncode == 0
    assert together > 5
    assert {path.name for path in user.iterdir()} == {Artefact(kind, "x", KEY).path(user).name for kind in Kind}


def test_those_that_are_alike_have_half_a_key_in_common(user: Path) -> None:
    first = [Artefact(Kind.LIBRARY, "x", KEY[:16] + bytes([k]) * 16) for k in range(3)]
    others = [Artefact(Kind.LIBRARY, "x", KEY[::-1]), Artefact(Kind.CALL, "x", KEY), Artefact(Kind.LIBRARY, "y", KEY)]
    for artefact in (*first, *others):
        artefact.write(user, b"content")
    assert first[1].alike(user) == first
