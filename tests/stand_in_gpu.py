"""A stand-in for a GPU: kernels compiled as C, launched through XLA by a driver that runs them on the processor."""

import ctypes
import hashlib
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxmbd.compile.targets import launcher
from jaxmbd.compile.targets.c_library import CLibrary
from jaxmbd.compile.targets.erk_kernel import HEADERS, PREPARE, RUN, MotionKernel
from jaxmbd.integrate.adjoint import linear_sweeps

DRIVER = Path(__file__).with_name("stand_in_driver.c")
ENTRIES = f"""
void {PREPARE}_launched(void **p) {{ {PREPARE}(*(Buffers *)p[0], *(T **)p[1]); }}
void {RUN}_launched(void **p) {{ {RUN}(*(Buffers *)p[0], *(int64_t *)p[1]); }}
"""


def image(kernel: MotionKernel, architecture: str) -> launcher.Image:
    """In the place of machine code for a GPU, the path of a library."""
    text, uniform = kernel.source()
    identity = hashlib.sha256(text.encode()).hexdigest()
    library = CLibrary("stand-in", (f"{RUN}_launched",), HEADERS, lambda: text + ENTRIES, identity, ("-O1",), 2**26)
    path = library.loaded()._name.encode() + b"\0"
    return launcher.Image(np.frombuffer(path + bytes(-len(path) % 8), np.int64), int(identity[:15], 16), uniform)


def driver() -> ctypes.CDLL:
    """The driver, registered with XLA in the place of the launcher."""
    symbols = ("stand_in_launch", "stand_in_launches", "stand_in_refuse", *launcher._SYMBOLS)
    identity = hashlib.sha256(DRIVER.read_bytes()).hexdigest()
    library = CLibrary("stand-in", symbols, ("launch.c",), DRIVER.read_text, identity, ("-O1",), 2**26).loaded()
    library.jaxmbd_open_driver.restype = ctypes.c_char_p
    jax.ffi.register_ffi_target(launcher.TARGET, jax.ffi.pycapsule(library.stand_in_launch), platform="cpu")
    return library


def stand_in(monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    """From now on compiled motions that the virtual machine would run go to the stand-in."""
    library = driver()
    monkeypatch.setitem(linear_sweeps._NATIVE, "cpu", linear_sweeps._by_kernel)
    monkeypatch.setattr(launcher, "compiled", image)
    monkeypatch.setattr(launcher, "launcher", lambda: library)
    monkeypatch.setattr(launcher, "_DRIVER", library._name)
    monkeypatch.setattr(launcher, "_architecture", lambda: "sm_90")
    launcher.ready.cache_clear()
    return library
