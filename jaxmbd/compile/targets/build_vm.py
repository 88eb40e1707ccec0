"""Build and load the virtual machine: `vm.c` is compiled once per computer and stored in the user's cache folder."""

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
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import platformdirs

from jaxmbd.compile.cache.files import is_own_folder, limit_size, make_own_folder, read_own, touch, user, write_whole
from jaxmbd.compile.targets.opcodes import EVALUATE
from jaxmbd.progress import reporting

_WIDTHS = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32"}
# The functions that XLA calls: a program, and the sweeps of motions in the order of their numbers in `vm.c`.
TARGETS = {dtype: f"jaxmbd_run_{width}" for dtype, width in _WIDTHS.items()}
SWEEPS = {
    name: (kind, {dtype: f"jaxmbd_{name}_{width}" for dtype, width in _WIDTHS.items()})
    for kind, name in enumerate(("solve", "tangents", "cotangents"))
}
_HANDLERS = (*TARGETS.values(), *(target for _, targets in SWEEPS.values() for target in targets.values()))

_SYMBOLS = (*_HANDLERS, "jaxmbd_call_program", "jaxmbd_call_motion", "jaxmbd_register", "jaxmbd_postorder")
_HERE = Path(__file__).parent
_SOURCES = ("vm.c", "vm_lanes.h", "erk_loop.h")
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_PATIENCE = 300.0  # [s] time limit of the compiler: it takes 3 s, with sanitizers 45 s, several times that under load
_SIZE = 2**24  # [bytes] limit of the stored libraries together: some 50 of them
_lock = threading.Lock()


def vm() -> ctypes.CDLL | None:
    """The virtual machine, registered with XLA; None, with a warning, if it can be neither loaded nor built."""
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
    for name in _HANDLERS:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return library


def _loaded() -> ctypes.CDLL:
    """Load the library that was compiled before, or else compile it.

    Raises:
        OSError: If there is no folder, no compiler, or its output is not a library of the virtual machine.
        subprocess.SubprocessError: If the compiler fails.
    """
    compiler = _compiler()
    library = _stored_library(compiler)
    if library is not None:
        return library
    try:
        with reporting(True, "building the virtual machine, once ..."):
            content = _compiled(compiler)
    except (OSError, subprocess.SubprocessError):
        library = _stored_library(None)  # a library built by another compiler serves as well
        if library is None:
            raise
        return library
    for folder in _folders():
        library = _load(_store(folder, content, compiler or [])) if make_own_folder(folder) else None
        if library is not None:
            return library
    library = _load(_store(_private_folder(), content, compiler or []))
    if library is not None:
        return library
    raise OSError("there is no folder from which it can be loaded.")


def _compiler() -> list[str] | None:
    """The compiler's command with its arguments, from the environment variable `CC` or else from the path."""
    variable = os.environ.get("CC", "").strip()
    try:
        command = [variable] if shutil.which(variable) else shlex.split(variable, posix=os.name == "posix")
    except ValueError:  # an unmatched quotation mark
        command = [variable]
    return command or next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


def _folders() -> list[Path]:
    """The folders in which libraries are stored; the second, temporary one serves if the first is not writable."""
    folders = [Path(platformdirs.user_cache_dir("jaxmbd"))]
    return folders if user() is None else [*folders, Path(tempfile.gettempdir()) / f"jaxmbd-{user()}"]


def _private_folder() -> Path:
    """A temporary folder with an unpredictable name, for this process alone."""
    folder = tempfile.mkdtemp(prefix="jaxmbd-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _purpose() -> str:
    """A hash of all that a library depends on except the compiler: sources, flags, versions, processor."""
    sources = b"".join((_HERE / name).read_bytes() for name in _SOURCES)
    ingredients = (sources, " ".join(_FLAGS), version("jaxlib"), platform.machine(), platform.processor(), processor())
    return hashlib.sha256(repr((ingredients, tuple(EVALUATE))).encode()).hexdigest()[:16]


def _note(folder: Path, compiler: list[str]) -> Path:
    """The path of the JSON file with the digest of the library that this compiler built from these sources."""
    command = hashlib.sha256(repr(compiler).encode()).hexdigest()[:8]
    return folder / f"machine-{_purpose()}-{command}.json"


def _stored_library(compiler: list[str] | None) -> ctypes.CDLL | None:
    """Load the stored library that this compiler, or any if `compiler` is None, has built; None if there is none.

    A library counts only if its content has the digest in its note.
    """
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
            library = _load(path)
            if library is not None:
                touch(note)
                touch(path)
                return library
    return None


def _load(path: Path | None) -> ctypes.CDLL | None:
    """Load the library at a path, which must be complete; None if it cannot be loaded or lacks a function."""
    try:
        library = ctypes.CDLL(str(path)) if path else None
        return library if all(getattr(library, name) for name in _SYMBOLS) else None
    except (OSError, AttributeError):
        return None


def _library(folder: Path, digest: str) -> Path:
    """The path of a library, which contains its digest: a file that a process has loaded is never overwritten."""
    return folder / f"machine-{_purpose()}-{digest[:16]}.so"


def _is_whole(content: bytes) -> bool:
    """True if a file is a complete library with the required functions: loading a truncated one may crash."""
    if content[:4] == b"\x7fELF":  # the section header table comes last
        start, size, count = struct.unpack_from("<40xQ10xHH", content) if len(content) >= 64 else (0, 1, 1)
        if start + size * count > len(content):
            return False
    return len(content) >= 64 and all(name.encode() in content for name in _SYMBOLS)


def _compiled(compiler: list[str] | None) -> bytes:
    """Compile the sources, and return the content of the library, which is checked to be complete."""
    if compiler is None:
        raise OSError("there is no C compiler on the path.")
    with tempfile.TemporaryDirectory(prefix="jaxmbd-") as folder:
        output = Path(folder) / "machine.so"
        sources = (f"-I{jax.ffi.include_dir()}", str(_HERE / "vm.c"))
        _run([*compiler, *_FLAGS, *sources, "-o", str(output), "-lm", "-pthread"])
        content = output.read_bytes() if output.exists() else b""
    if not _is_whole(content):
        raise OSError(f"'{shlex.join(compiler)}' made no library with the functions {', '.join(_SYMBOLS)}.")
    return content


def _store(folder: Path, content: bytes, compiler: list[str]) -> Path | None:
    """Store a library and then the note with its digest; return its path, or None if the folder is not writable."""
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
    """Run a compiler; if it exceeds the time limit, it is killed with its child processes."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=_PATIENCE)
        except BaseException as error:
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise OSError(f"{command[0]} has not ended after {_PATIENCE:g} s.") from None
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command[0], stderr=output)


def processor() -> str:
    """The instruction sets of the processor, since computers that share a cache folder may differ; empty if unknown."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return ""
    return next((line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), "")


def postorder(args: np.ndarray, wanted: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """The postorder of a depth-first search: the wanted values on which some roots depend, operands before uses.

    `args (values, 3)`: the operands of each value. It is written in C, since it takes one value after another.
    """
    library = vm()
    assert library is not None  # programs are only compiled where there is a virtual machine
    arrays = np.ascontiguousarray(args, np.int32), np.where(wanted, 0, 4).astype(np.uint8), roots.astype(np.int32)
    stack, order = (np.empty(len(args), np.int32) for _ in range(2))
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*arrays, stack, order)]
    library.jaxmbd_postorder.restype = ctypes.c_int64
    return order[: library.jaxmbd_postorder(*pointers[:3], ctypes.c_int64(len(roots)), *pointers[3:])]


def call_vm(name: str, dtype: Any, operands: Sequence[Any], results: Sequence[Any]) -> list[np.ndarray]:
    """Run a sweep of the virtual machine on arrays."""
    kind = ctypes.c_int64(SWEEPS[name][0])
    return _call("jaxmbd_call_motion", dtype, (kind,), [np.ascontiguousarray(x) for x in operands], results)


def call_program(
    key: int, batch: int, dtype: Any, operands: Sequence[Any], results: Sequence[Any]
) -> list[np.ndarray]:  # fmt: skip
    """Run a registered program on arrays, of which some have a leading axis for a batch, if `batch` is not zero."""
    numbers = ctypes.c_uint64(key), ctypes.c_int64(batch)
    return _call("jaxmbd_call_program", dtype, numbers, [np.ascontiguousarray(x, dtype) for x in operands], results)


def _call(name: str, dtype: Any, numbers: Sequence[Any], inputs: list[Any], results: Sequence[Any]) -> list[np.ndarray]:
    """Call a function of the virtual machine, whose results have the given types."""
    library = vm()
    assert library is not None
    outputs = [np.empty(x.shape, x.dtype) for x in results]
    arrays = [*inputs, *outputs]
    data = (ctypes.c_void_p * len(arrays))(*(x.ctypes.data for x in arrays))
    sizes = np.array([x.size for x in arrays], np.int64)
    counts = (ctypes.c_int64(n) for n in (len(inputs), len(outputs)))
    wide = ctypes.c_int64(np.dtype(dtype) == np.float64)
    outcome = getattr(library, name)(wide, *numbers, data, ctypes.c_void_p(sizes.ctypes.data), *counts)
    if outcome:
        raise MemoryError("There is no memory left to run a program.")
    return outputs
