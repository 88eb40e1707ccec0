"""Kernels on a GPU: compiled by NVRTC once per computer, and launched by `launch.c` where XLA calls them."""

import ctypes
import hashlib
import subprocess
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxmbd.engine import choice
from jaxmbd.engine.machine.c_library import HERE, CLibrary, cause
from jaxmbd.engine.machine.gpu import nvrtc
from jaxmbd.engine.machine.gpu.erk_kernel import BLOCK, HEADERS, MotionKernel
from jaxmbd.engine.machine.prebuilt import load_prebuilt
from jaxmbd.engine.store.artefacts import Artefact, Kind, own_folder
from jaxmbd.errors import MechanismError
from jaxmbd.progress import reporting

TARGET = "jaxmbd_launch"
_DRIVER = "libcuda.so.1"
_SYMBOLS = (TARGET, "jaxmbd_open_driver")


class Image(NamedTuple):
    """The machine code of a kernel, padded to whole numbers of 8 bytes; `key`, its hash; `uniform`: how many numbers
    are the same for all instances."""

    code: np.ndarray
    key: int
    uniform: int


def launched(
    kernel: MotionKernel, operands: Sequence[ArrayLike], results: Sequence[jax.ShapeDtypeStruct], batch: int
) -> list[jax.Array]:
    """The results of a kernel, as one call for XLA."""
    ready()
    image = compiled(kernel, _architecture())
    memory = jax.ShapeDtypeStruct((max(image.uniform, 1),), kernel.dtype)
    call = jax.ffi.ffi_call(TARGET, [*results, memory])
    # The machine code is an attribute of the call, so that it is stored with the compiled function.
    numbers = {"key": np.int64(image.key), "batch": np.int64(batch), "block": np.int64(BLOCK)}
    return list(call(*(jnp.asarray(x) for x in operands), image=image.code, **numbers))[:-1]


def compiled(kernel: MotionKernel, architecture: str) -> Image:
    """The machine code of a kernel for an architecture such as "sm_90".

    Raises:
        MechanismError: If it cannot be compiled.
    """
    text, uniform = kernel.source()
    sources = b"".join((HERE / name).read_bytes() for name in HEADERS)
    identity = repr((text, sources, architecture, nvrtc.OPTIONS, nvrtc.version())).encode()
    artefact, folder = Artefact(Kind.KERNEL, "motion", hashlib.sha256(identity).digest()), own_folder()
    code = folder and artefact.read(folder)
    if not code:
        try:
            with reporting(True, "compiling the kernel of a motion for the GPU, once ..."):
                code, _ = nvrtc.cubin(text, HEADERS, architecture)
        except OSError as error:
            raise MechanismError(f"engine='native' cannot run this motion on the GPU: {error}") from None
        code += bytes(-len(code) % 8)
        if folder:
            artefact.write(folder, code)
    key = int.from_bytes(hashlib.sha256(code).digest()[:8], "little") >> 1
    return Image(np.frombuffer(code, np.int64), key, uniform)


@cache
def launcher_library() -> CLibrary:
    """The library that launches kernels, as it is compiled here."""
    text = '#include "gpu/launch.c"\n'
    return CLibrary("launcher", _SYMBOLS, ("gpu/launch.c",), lambda: text, version("jaxlib"), ("-O2",))


@cache
def launcher() -> ctypes.CDLL:
    """The library that launches kernels, prebuilt or compiled once per computer, and registered with XLA.

    Raises:
        OSError: If there is no folder, no compiler, or its output is not such a library.
        subprocess.SubprocessError: If the compiler fails.
    """
    found = load_prebuilt(launcher_library())
    library = launcher_library().loaded() if found is None else found[1]
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(getattr(library, TARGET)), platform="CUDA")
    library.jaxmbd_open_driver.restype = ctypes.c_char_p
    return library


@cache
def missing() -> str:
    """What is missing to launch kernels, which opens the driver; empty if nothing is."""
    try:
        return (launcher().jaxmbd_open_driver(_DRIVER.encode()) or b"").decode()
    except (OSError, subprocess.SubprocessError) as error:
        return cause(error)


def ready() -> None:
    """Open the driver, once.

    Raises:
        MechanismError: If there is none, or no launcher.
    """
    if missing():
        raise MechanismError(f"engine='native' needs NVIDIA's driver on a GPU: {missing()}")


def is_worthwhile(operations: int) -> bool:
    """True if motions with so many operations run as kernels unless another engine is asked for."""
    return choice.is_kernel(operations) and not missing() and bool(nvrtc.version())


def _architecture() -> str:
    """The architecture of the GPU."""
    capability: Any = jax.local_devices(backend="gpu")[0]
    return f"sm_{capability.compute_capability.replace('.', '')}"
