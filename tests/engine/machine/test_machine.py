"""The compiled machine: found again, refused where it may not be what was compiled, and then made anew."""

import contextlib
import ctypes
import dataclasses
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from jaxmbd.engine.machine import c_library
from jaxmbd.engine.machine.build_vm import machine
from jaxmbd.engine.store import artefacts, own_files


@pytest.fixture(scope="module")
def content() -> bytes:
    """A compiled machine; whether it is fast does not matter, and optimising takes the compiler eight times as long."""
    return dataclasses.replace(machine(), flags=("-O0",)).compiled(c_library.compiler())


class Compiler:
    """Counts how often it is asked, and gives what it was told to."""

    def __init__(self, made: bytes | Exception) -> None:
        self.made, self.asked = made, 0

    def __call__(self, library: object, command: list[str] | None) -> bytes:
        self.asked += 1
        if isinstance(self.made, Exception):
            raise self.made
        return self.made


@pytest.fixture
def compiler(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A machine that was compiled before, in folders of the test's own, and a compiler that gives the same again."""
    made = Compiler(content)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(artefacts.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    monkeypatch.setattr(c_library.CLibrary, "compiled", lambda *arguments: made(*arguments))
    works(machine().loaded())
    assert made.asked == 1
    return made


def works(library: ctypes.CDLL) -> None:
    assert all(getattr(library, name) for name in machine().symbols)


def library(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "cache" / "jaxmbd" / "compiled").iterdir()
    return path


def put(path: Path, content: bytes) -> None:
    """As a new file: this process has loaded what was there, and reads it still."""
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o600)


def test_a_machine_is_compiled_once_for_its_user_alone(compiler: Compiler, tmp_path: Path, content: bytes) -> None:
    works(machine().loaded())
    assert compiler.asked == 1
    assert library(tmp_path).stat().st_mode & 0o777 == 0o600
    assert library(tmp_path).parent.stat().st_mode & 0o777 == 0o700
    assert library(tmp_path).read_bytes()[: len(content)] == content  # so it can be loaded as it is


def test_a_damaged_machine_is_never_loaded_and_made_anew(compiler: Compiler, tmp_path: Path) -> None:
    path = library(tmp_path)
    whole, damaged = path.read_bytes(), []
    for place in (0, 5, 4000, len(whole) // 2, len(whole) - 73, len(whole) - 72, len(whole) - 30, len(whole) - 1):
        damaged.append(bytearray(whole))
        damaged[-1][place] ^= 1
    damaged += [b"", whole[:100], whole[: len(whole) // 2], whole[:-1], whole[:-72], whole + b"0", b"nonsense" * 100]
    for times, found in enumerate(damaged, start=2):
        put(path, found)
        works(machine().loaded())
        assert compiler.asked == times
        assert path.read_bytes() == whole


def test_a_library_without_the_functions_is_made_anew(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though all says that it is the right one, and their names are in it."""
    source = tmp_path / "empty.c"
    source.write_text("int nothing;")
    made = tmp_path / "empty.so"
    subprocess.run([*(c_library.compiler() or []), "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    empty = made.read_bytes() + " ".join(machine().symbols).encode()
    assert machine().is_whole(empty)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))  # a process loads only one library from a path
    artefact = machine().artefact(c_library.compiler() or [])
    assert artefact.write(artefacts.user_folder(), empty)
    works(machine().loaded())
    assert compiler.asked == 2
    compiler.made = empty
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "third"))
    monkeypatch.setattr(artefacts.tempfile, "gettempdir", lambda: str(tmp_path / "third"))
    with pytest.raises(OSError, match="no folder from which it can be loaded"):
        machine().loaded()


@pytest.mark.skipif(own_files.user() is None, reason="a system without owners and modes")
def test_what_others_can_write_is_not_loaded(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = library(tmp_path)
    for mode in (0o666, 0o620, 0o606):
        path.chmod(mode)
        before = compiler.asked
        works(machine().loaded())
        assert compiler.asked == before + 1
        assert path.stat().st_mode & 0o777 == 0o600
    elsewhere = path.rename(tmp_path / "elsewhere.so")
    path.symlink_to(elsewhere)
    works(machine().loaded())
    assert not path.is_symlink()
    asked = compiler.asked
    path.parent.chmod(0o777)  # by a generous umask: the right is taken back
    works(machine().loaded())
    assert compiler.asked == asked
    assert path.parent.stat().st_mode & 0o777 == 0o755
    for module in (own_files, artefacts):
        monkeypatch.setattr(module, "user", lambda: os.geteuid() + 1)  # all here is somebody else's
    works(machine().loaded())  # from a folder that this process alone knows
    assert compiler.asked == asked + 1


@pytest.mark.skipif(own_files.user() is None, reason="a system without owners and modes")
def test_a_folder_that_is_known_before_must_be_the_users_own(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have made `$TMPDIR/jaxmbd-<uid>`."""
    planted = (tmp_path / "cache" / "jaxmbd" / "compiled").rename(tmp_path / "planted")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    expected = tmp_path / "temporary" / f"jaxmbd-{own_files.user()}"
    expected.symlink_to(planted)
    works(machine().loaded())
    assert compiler.asked == 2
    expected.unlink()
    works(machine().loaded())
    assert compiler.asked == 3
    assert (expected.stat().st_mode & 0o777, len([*expected.glob("*.so")])) == (0o700, 1)
    works(machine().loaded())
    assert compiler.asked == 3


def test_a_machine_serves_where_no_compiler_is(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler.made = OSError("there is no C compiler on the path.")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(c_library.shutil, "which", lambda name: None)
    assert c_library.compiler() is None
    works(machine().loaded())
    library(tmp_path).unlink()
    with pytest.raises(OSError, match="no C compiler"):
        machine().loaded()


def test_without_numbers_of_users_their_cache_folder_serves(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows."""
    monkeypatch.delattr(os, "geteuid")
    monkeypatch.delattr(os, "getuid")
    assert own_files.user() is None
    assert len(artefacts.places()) == 1
    works(machine().loaded())
    library(tmp_path).unlink()
    works(machine().loaded())
    assert compiler.asked == 2


def test_a_machine_is_compiled_for_one_process_where_nothing_is_to_be_kept(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = library(tmp_path)
    whole = path.read_bytes()
    monkeypatch.setenv("JAXMBD_CACHE_MIB", "0")
    for asked in (2, 3):
        assert not machine().is_stored()
        works(machine().loaded())
        assert compiler.asked == asked
        assert not [*(tmp_path / "temporary").glob(f"jaxmbd-{own_files.user()}")]
    assert path.read_bytes() == whole
    path.unlink()
    works(machine().loaded())
    assert not path.exists()


def test_a_compiler_may_have_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc -m64 -I'a folder'")
    assert c_library.compiler() == ["gcc", "-m64", "-Ia folder"]
    monkeypatch.setenv("CC", "it's")
    assert c_library.compiler() == ["it's"]
    keys = {machine().artefact(command).key for command in (["gcc"], ["gcc", "-m64"])}
    assert len(keys) == 2


def test_a_compiler_that_makes_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="'true' made no library with the functions jaxmbd_raise, jaxmbd_run_f64"):
        machine().compiled(["true"])
    with pytest.raises(subprocess.CalledProcessError) as failed:
        machine().compiled([shutil.which("cc") or "cc", "-no-such-option"])
    assert "no-such-option" in failed.value.stderr


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_a_compiler_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    script = tmp_path / "hangs"
    script.write_text(f"#!/bin/sh\nsleep 100 &\necho $! > '{tmp_path}/child'\nwait\n")
    script.chmod(0o700)
    with pytest.raises(OSError, match=r"hangs has not ended after 0\.5 s"):
        machine().compiled([str(script)], patience=0.5)
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not _runs(child):
            return
        time.sleep(0.05)
    pytest.fail("what the compiler started runs on")


def _runs(process: int) -> bool:
    with contextlib.suppress(OSError):
        return "Z" not in Path(f"/proc/{process}/stat").read_text().split()[2]
    return False
