"""The C library: `machine.c`, which runs programs, compiled once for this computer and kept in the user's cache."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
from functools import cache
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np
import platformdirs

from jaxmbd._program._operations import EVALUATE

TARGETS = {np.dtype(np.float64): "jaxmbd_run_f64", np.dtype(np.float32): "jaxmbd_run_f32"}

_HERE = Path(__file__).parent
_SOURCES = ("machine.c", "machine_lanes.h")
_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")


@cache
def machine() -> ctypes.CDLL | None:
    """The machine, known to XLA; None, with a warning, where it cannot be had."""
    try:
        library = ctypes.CDLL(str(_compiled()))
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", "") or error
        warnings.warn(
            f"jaxmbd runs on XLA alone, which is slower, since its own machine could not be compiled: {detail} "
            "It needs a C compiler; name one in the environment variable CC.",
            stacklevel=2,
        )
        return None
    for name in TARGETS.values():
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return library


def _compiled() -> Path:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        raise OSError("there is no C compiler on the path.")
    sources = b"".join((_HERE / name).read_bytes() for name in _SOURCES)
    made_of = (sources, " ".join(_FLAGS), compiler, version("jaxlib"), platform.machine(), platform.processor())
    digest = hashlib.sha256(repr((made_of, processor(), tuple(EVALUATE))).encode()).hexdigest()[:16]
    for folder in (Path(platformdirs.user_cache_dir("jaxmbd")), Path(tempfile.gettempdir()) / f"jaxmbd-{os.getuid()}"):
        path = folder / f"machine-{digest}.so"
        if path.exists():
            return path
        if _is_writable(folder):
            return _compile(compiler, path)
    raise OSError("there is no folder to write it to.")


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _compile(compiler: str, path: Path) -> Path:
    """Compiled beside its place and then moved there, so that no other process sees half of it."""
    handle, name = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(handle)
    command = [compiler, *_FLAGS, f"-I{jax.ffi.include_dir()}", str(_HERE / "machine.c"), "-o", name, "-lm", "-pthread"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
    return path


def processor() -> str:
    """What the processor can do: a cache may be shared by computers that differ."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return ""
    return next((line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), "")


def depth_first(args: np.ndarray, wanted: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """The wanted rows that some roots need, each after those of `args (rows, 3)` that it works on, in the order in
    which a search depth first leaves them. In C: one row after another."""
    library = machine()
    assert library is not None  # who makes programs has a machine
    rows = np.ascontiguousarray(args, np.int32), np.where(wanted, 0, 4).astype(np.uint8), roots.astype(np.int32)
    stack, order = (np.empty(len(args), np.int32) for _ in range(2))
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (*rows, stack, order)]
    library.jaxmbd_depth_first.restype = ctypes.c_int64
    return order[: library.jaxmbd_depth_first(*pointers[:3], ctypes.c_int64(len(roots)), *pointers[3:])]
