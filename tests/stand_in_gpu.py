"""A GPU for tests of kernels: the one that JAX runs on, or a stand-in.

The stand-in runs kernels compiled as C on the processor, launched through XLA by a driver of its own.
"""

import ctypes
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxmbd.engine.machine.c_library import CLibrary
from jaxmbd.engine.machine.gpu import launcher
from jaxmbd.engine.machine.gpu.erk_kernel import HEADERS, PREPARE, RUN, MotionKernel
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
    # In CUDA the size of an array is a constant.
    options = "-O1", "-Werror=vla"
    library = CLibrary("stand-in", (f"{RUN}_launched",), HEADERS, lambda: text + ENTRIES, identity, options)
    path = library.loaded()._name.encode() + b"\0"
    return launcher.Image(np.frombuffer(path + bytes(-len(path) % 8), np.int64), int(identity[:15], 16), uniform)


def driver() -> ctypes.CDLL:
    """The driver, registered with XLA in the place of the launcher."""
    symbols = ("stand_in_launch", "stand_in_launches", "stand_in_refuse", *launcher._SYMBOLS)
    identity = hashlib.sha256(DRIVER.read_bytes()).hexdigest()
    library = CLibrary("stand-in", symbols, ("gpu/launch.c",), DRIVER.read_text, identity, ("-O1",)).loaded()
    library.jaxmbd_open_driver.restype = ctypes.c_char_p
    jax.ffi.register_ffi_target(launcher.TARGET, jax.ffi.pycapsule(library.stand_in_launch), platform="cpu")
    return library


class Gpu:
    """A GPU.

    `tolerance`: how far adaptive motions on it are from those of the virtual machine. Sines and powers of a GPU differ
    from those of the processor by rounding. That alone changes error estimates, small differences of large numbers, so
    much that steps differ in the sixth digit, and the motions by a part of their error.
    """

    tolerance = 1e-7

    def has_launched(self, kernels: int) -> bool:
        """True if so many kernels have been launched since the last time; a real GPU does not count them."""
        return True

    @contextmanager
    def idle(self) -> Iterator[None]:
        """On the processor, by the virtual machine."""
        with jax.default_device(jax.devices("cpu")[0]):
            yield


class StandIn:
    """What a `Gpu` is, without one: within `inserted`, kernels run on the processor."""

    tolerance = 1e-11

    def __init__(self) -> None:
        self.driver = driver()

    def has_launched(self, kernels: int) -> bool:
        return self.driver.stand_in_launches() == kernels

    @contextmanager
    def inserted(self) -> Iterator["StandIn"]:
        """From here on the motions that the virtual machine would run go to the stand-in."""
        with self._patched(linear_sweeps._by_kernel) as patch:
            patch.setattr(launcher, "compiled", image)
            patch.setattr(launcher, "launcher", lambda: self.driver)
            patch.setattr(launcher, "_DRIVER", self.driver._name)
            patch.setattr(launcher, "_architecture", lambda: "sm_90")
            launcher.missing.cache_clear()
            self.driver.stand_in_launches()  # counts from here
            yield self
        launcher.missing.cache_clear()

    @contextmanager
    def idle(self) -> Iterator[None]:
        with self._patched(linear_sweeps._by_vm):
            yield
        assert self.has_launched(0)

    @contextmanager
    def _patched(self, run: Any) -> Iterator[pytest.MonkeyPatch]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(linear_sweeps._NATIVE, "cpu", run)
            yield patch
