"""The C library: `vm.c`, which runs programs, compiled once for this computer and kept in the user's cache."""

import atexit
import ctypes
import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
import platformdirs

from jaxmbd.compile.cache.files import is_own_folder, limit_size, make_own_folder, read_own, touch, user, write_whole
from jaxmbd.compile.targets.opcodes import EVALUATE

TARGETS = {np.dtype(np.float64): "jaxmbd_run_f64", np.dtype(np.float32): "jaxmbd_run_f32"}

_SYMBOLS = (*TARGETS.values(), "jaxmbd_register", "jaxmbd_depth_first")
_HERE = Path(__file__).parent
_SOURCES = ("vm.c", "vm_lanes.h")
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_PATIENCE = 300.0  # [s] a compiler takes 3 s, with sanitizers 45 s, on a busy computer several times as long
_SIZE = 2**24  # [bytes] of all machines that are kept: some 50 of them
_lock = threading.Lock()


def vm() -> ctypes.CDLL | None:
    """The machine, known to XLA; None, with a warning, where it cannot be had."""
    with _lock:
        return _machine()


@cache
def _machine() -> ctypes.CDLL | None:
    try:
        library = _loaded()
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or error
        warnings.warn(
            f"jaxmbd runs on XLA alone, which is slower, since its own machine could not be compiled: {detail} "
            "It needs a C compiler; name one in the environment variable CC.",
            stacklevel=3,
        )
        return None
    for name in TARGETS.values():
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return library


def _loaded() -> ctypes.CDLL:
    """A machine that was compiled before, or else a new one.

    Raises:
        OSError: If there is no folder, no compiler, or what it makes is no machine.
        subprocess.SubprocessError: If the compiler fails.
    """
    compiler = _compiler()
    library = _found(compiler)
    if library is not None:
        return library
    try:
        content = _compiled(compiler)
    except (OSError, subprocess.SubprocessError):
        library = _found(None)  # made by another compiler, which is as good
        if library is None:
            raise
        return library
    for folder in _folders():
        library = _opened(_written(folder, content, compiler or [])) if make_own_folder(folder) else None
        if library is not None:
            return library
    library = _opened(_written(_private_folder(), content, compiler or []))
    if library is not None:
        return library
    raise OSError("there is no folder from which it can be loaded.")


def _compiler() -> list[str] | None:
    """The command that compiles, which may have arguments of its own, from `CC` or else from the path."""
    given = os.environ.get("CC", "").strip()
    try:
        named = [given] if shutil.which(given) else shlex.split(given, posix=os.name == "posix")
    except ValueError:  # a quotation mark without another one
        named = [given]
    return named or next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


def _folders() -> list[Path]:
    """Where machines are kept. That of temporary files is for users whose own folder takes none."""
    folders = [Path(platformdirs.user_cache_dir("jaxmbd"))]
    return folders if user() is None else [*folders, Path(tempfile.gettempdir()) / f"jaxmbd-{user()}"]


def _private_folder() -> Path:
    """A folder for this process alone, whose name nobody could know before."""
    folder = tempfile.mkdtemp(prefix="jaxmbd-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _purpose() -> str:
    """What a machine must have been made of to serve here, whichever compiler made it."""
    sources = b"".join((_HERE / name).read_bytes() for name in _SOURCES)
    made_of = (sources, " ".join(_FLAGS), version("jaxlib"), platform.machine(), platform.processor(), processor())
    return hashlib.sha256(repr((made_of, tuple(EVALUATE))).encode()).hexdigest()[:16]


def _note(folder: Path, compiler: list[str]) -> Path:
    """The file that tells what the compiled file of these sources and this compiler must hold."""
    command = hashlib.sha256(repr(compiler).encode()).hexdigest()[:8]
    return folder / f"machine-{_purpose()}-{command}.json"


def _found(compiler: list[str] | None) -> ctypes.CDLL | None:
    """A machine that has been compiled before, whole and unchanged; by any compiler, if none is given."""
    pattern = f"machine-{_purpose()}-*.json"
    for folder in filter(is_own_folder, _folders()):
        for note in [_note(folder, compiler)] if compiler else sorted(folder.glob(pattern)):
            try:
                digest = str(json.loads(read_own(note) or b"null")["sha256"])
            except (ValueError, TypeError, KeyError):
                continue
            path = _library(folder, digest)
            content = read_own(path)
            if content is None or hashlib.sha256(content).hexdigest() != digest or not _is_whole(content):
                continue
            library = _opened(path)
            if library is not None:
                touch(note)
                touch(path)
                return library
    return None


def _opened(path: Path | None) -> ctypes.CDLL | None:
    """The library at a path, which holds a whole one; None where it cannot be loaded, or lacks a function."""
    try:
        library = ctypes.CDLL(str(path)) if path else None
        return library if all(getattr(library, name) for name in _SYMBOLS) else None
    except (OSError, AttributeError):
        return None


def _library(folder: Path, digest: str) -> Path:
    """Named after its content: what another process has loaded is never written over by something else."""
    return folder / f"machine-{_purpose()}-{digest[:16]}.so"


def _is_whole(content: bytes) -> bool:
    """Whether a file is a library with the machine's functions, to its end: loading less may end the process."""
    if content[:4] == b"\x7fELF":  # ends with the table of its sections
        start, size, count = struct.unpack_from("<40xQ10xHH", content) if len(content) >= 64 else (0, 1, 1)
        if start + size * count > len(content):
            return False
    return len(content) >= 64 and all(name.encode() in content for name in _SYMBOLS)


def _compiled(compiler: list[str] | None) -> bytes:
    """What the compiler makes of the sources, checked."""
    if compiler is None:
        raise OSError("there is no C compiler on the path.")
    with tempfile.TemporaryDirectory(prefix="jaxmbd-") as folder:
        made = Path(folder) / "machine.so"
        sources = (f"-I{jax.ffi.include_dir()}", str(_HERE / "vm.c"))
        _run([*compiler, *_FLAGS, *sources, "-o", str(made), "-lm", "-pthread"])
        content = made.read_bytes() if made.exists() else b""
    if not _is_whole(content):
        raise OSError(f"'{shlex.join(compiler)}' made no library with the functions {', '.join(_SYMBOLS)}.")
    return content


def _written(folder: Path, content: bytes, compiler: list[str]) -> Path | None:
    """Where a library was written to: first itself, then the note that tells what it must hold."""
    digest = hashlib.sha256(content).hexdigest()
    path = _library(folder, digest)
    try:
        write_whole(path, content)
        write_whole(_note(folder, compiler), json.dumps({"sha256": digest, "compiler": compiler}).encode())
    except OSError:
        return None
    limit_size(folder, "machine-*", _SIZE)
    return path


def _run(command: list[str]) -> None:
    """Run a compiler, and end it with all that it has started where it takes too long."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=_PATIENCE)
        except BaseException as error:
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise OSError(f"{command[0]} has not ended after {_PATIENCE:g} s.") from None
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command[0], stderr=said)


def processor() -> str:
    """What the processor can do: a cache may be shared by computers that differ."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return ""
    return next((line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), "")


def postorder(args: np.ndarray, wanted: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """The wanted rows that some roots need, each after those of `args (rows, 3)` that it works on, in the order in
    which a search depth first leaves them. In C: one row after another."""
    library = vm()
    assert library is not None  # who makes programs has a machine
    rows = np.ascontiguousarray(args, np.int32), np.where(wanted, 0, 4).astype(np.uint8), roots.astype(np.int32)
    stack, order = (np.empty(len(args), np.int32) for _ in range(2))
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*rows, stack, order)]
    library.jaxmbd_depth_first.restype = ctypes.c_int64
    return order[: library.jaxmbd_depth_first(*pointers[:3], ctypes.c_int64(len(roots)), *pointers[3:])]
