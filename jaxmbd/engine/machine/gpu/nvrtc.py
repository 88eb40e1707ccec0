"""NVRTC, CUDA's compiler of kernels as a library: it needs neither a GPU nor a driver."""

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, files

from jaxmbd.engine.machine.c_library import HERE

_PACKAGES = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")  # the first comes with jax[cuda13]
_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
# Functions without a mark run on the GPU; products and sums are fused only where a program says so.
OPTIONS = ("--std=c++17", "--device-as-default-execution-space", "--fmad=false")


def cubin(text: str, headers: Sequence[str], architecture: str, options: Sequence[str] = ()) -> tuple[bytes, str]:
    """Compile the text of kernels, which may include `headers` of the machine, for an architecture such as "sm_90".

    Returns the machine code and what the compiler says of it.

    Raises:
        OSError: If there is no compiler, or it refuses the text.
    """
    nvrtc = _library()
    if nvrtc is None:
        raise OSError("NVRTC is not installed; it comes with jax[cuda13] and with the package nvidia-cuda-nvrtc.")
    contents = [(HERE / name).read_bytes() for name in headers]
    program = ctypes.c_void_p()
    _check(
        nvrtc, nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), b"jaxmbd.cu", len(contents), _strings(contents),
            _strings([name.encode() for name in headers]),
        ),
    )  # fmt: skip
    try:
        given = [x.encode() for x in (*OPTIONS, f"--gpu-architecture={architecture}", *options)]
        status = nvrtc.nvrtcCompileProgram(program, len(given), _strings(given))
        log = _text_of(nvrtc, program, "ProgramLog").decode().rstrip("\0")
        if status:
            raise OSError(f"NVRTC cannot compile a kernel for {architecture}: {log or status}")
        return _text_of(nvrtc, program, "CUBIN"), log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def version() -> str:
    """The version of NVRTC; empty if there is none."""
    nvrtc, numbers = _library(), (ctypes.c_int(), ctypes.c_int())
    if nvrtc is None:
        return ""
    _check(nvrtc, nvrtc.nvrtcVersion(*map(ctypes.byref, numbers)))
    return ".".join(str(x.value) for x in numbers)


@cache
def _library() -> ctypes.CDLL | None:
    for path in (*_installed(), *_NAMES):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _installed() -> list[str]:
    """The paths of the library in Python packages."""
    found = []
    for package in _PACKAGES:
        try:
            found += [str(path.locate()) for path in files(package) or () if path.name in _NAMES]
        except PackageNotFoundError:
            continue
    return found


def _text_of(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, text))
    return text.raw


def _strings(texts: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*texts)


def _check(nvrtc: ctypes.CDLL, status: int) -> None:
    if status:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise OSError(f"NVRTC failed: {nvrtc.nvrtcGetErrorString(status).decode()}.")
