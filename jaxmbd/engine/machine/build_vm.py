"""The virtual machine: `vm.c`, prebuilt or compiled once per computer, and calls of it on arrays."""

import ctypes
import subprocess
import threading
import warnings
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version

import jax
import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from jaxmbd.engine.machine.c_library import NATIVE, CLibrary, cause
from jaxmbd.engine.machine.prebuilt import InstructionSet, load_prebuilt
from jaxmbd.engine.program.opcodes import EVALUATE
from jaxmbd.errors import SolveError
from jaxmbd.upstream.jax_internals import ShapedArray

_WIDTHS = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32"}
# The functions that XLA calls: a program, and the sweeps of motions in the order of their numbers in `vm.c`.
TARGETS = {dtype: f"jaxmbd_run_{width}" for dtype, width in _WIDTHS.items()}
SWEEPS = {
    name: (kind, {dtype: f"jaxmbd_{name}_{width}" for dtype, width in _WIDTHS.items()})
    for kind, name in enumerate(("solve", "tangents", "cotangents"))
}
RAISE = "jaxmbd_raise"  # raises the text that it gets
_HANDLERS = (RAISE, *TARGETS.values(), *(target for _, targets in SWEEPS.values() for target in targets.values()))

_FUNCTIONS = ("call_program", "call_motion", "register", "postorder", "watch", "install", "evaluations")
_SYMBOLS = (*_HANDLERS, *(f"jaxmbd_{name}" for name in _FUNCTIONS))
_SOURCES = (
    "vm.c", "program.h", "motion.h", "program_table.h", "lanes.h", "operands.h", "instructions.h", "vm_lanes.h",
    "erk_slots.h", "erk_loop.h", "erk_events.h", "erk_sweeps.h", "irk_steps.h", "closing.h",
)  # fmt: skip
_NO_PROGRAM = 2  # an outcome, as numbered in `vm.c`
_SMALL = 1000  # numbers of an array that are copied faster than its address is asked for
_lock = threading.Lock()


def vm() -> ctypes.CDLL | None:
    """The virtual machine, registered with XLA; None, with a warning, if it can be neither loaded nor built."""
    with _lock:
        return _machine()


@cache
def _machine() -> ctypes.CDLL | None:
    found = _prebuilt()
    try:
        library = machine().loaded() if found is None else found[1]
    except (OSError, subprocess.SubprocessError) as error:
        warnings.warn(
            f"jaxmbd runs on XLA alone, which is slower, since its own machine could not be compiled: {cause(error)} "
            "It needs a C compiler; name one in the environment variable CC.",
            stacklevel=3,
        )
        return None
    for name in _HANDLERS:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return library


@cache
def _prebuilt() -> tuple[InstructionSet, ctypes.CDLL] | None:
    return load_prebuilt(machine())


def description() -> str:
    """What evaluates the equations of motion: a prebuilt virtual machine, one that was compiled here, or XLA alone."""
    if vm() is None:
        return "none, XLA alone"
    found = _prebuilt()
    return "compiled on this computer" if found is None else f"prebuilt for {found[0].name}"


def instructions() -> tuple[str, ...]:
    """The compiler's options for the instructions that the virtual machine uses.

    Straight-line code must use the same ones: it works on the machine's lanes and gives the same numbers.
    """
    found = _prebuilt()
    return NATIVE if found is None else found[0].options


@cache
def machine() -> CLibrary:
    """The library of the virtual machine, as it is compiled here."""
    identity = repr((version("jaxlib"), tuple(EVALUATE)))
    return CLibrary(
        "machine", _SYMBOLS, _SOURCES, lambda: '#include "vm.c"\n', identity, ("-O2",),
        "building the virtual machine, once ...",
    )  # fmt: skip


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


def call_vm(
    name: str, dtype: DTypeLike, operands: Sequence[ArrayLike], results: Sequence[jax.ShapeDtypeStruct | ShapedArray]
) -> list[np.ndarray]:
    """Run a sweep of the virtual machine on arrays."""
    kind, failure = ctypes.c_int64(SWEEPS[name][0]), ctypes.c_char_p()
    inputs = [np.ascontiguousarray(x) for x in operands]
    return _call("jaxmbd_call_motion", dtype, (kind,), inputs, results, failure)


def call_program(
    key: int, batch: int, dtype: DTypeLike, operands: Sequence[ArrayLike],
    results: Sequence[jax.ShapeDtypeStruct | ShapedArray],
) -> list[np.ndarray]:  # fmt: skip
    """Run a registered program on arrays, of which some have a leading axis for a batch, if `batch` is not zero."""
    numbers = ctypes.c_uint64(key), ctypes.c_int64(batch)
    return _call("jaxmbd_call_program", dtype, numbers, [np.ascontiguousarray(x, dtype) for x in operands], results)


def _call(
    name: str, dtype: DTypeLike, numbers: Sequence[ctypes.c_int64 | ctypes.c_uint64], inputs: Sequence[np.ndarray],
    results: Sequence[jax.ShapeDtypeStruct | ShapedArray],
    failure: ctypes.c_char_p | None = None,
) -> list[np.ndarray]:  # fmt: skip
    """Call a function of the virtual machine, whose results have the given types; it may give a reason of `failure`.

    **Raises:** `SolveError` with that reason, `RuntimeError` if there is no such program, `MemoryError`.
    """
    library = vm()
    assert library is not None
    outputs = [np.empty(x.shape, x.dtype) for x in results]
    sizes = np.array([x.size for x in (*inputs, *outputs)], np.int64)
    addresses, _copy = _addresses(inputs)
    data = np.array([*addresses, *map(_address, outputs)], np.uintp)
    pointers = (ctypes.c_void_p(_address(x)) for x in (data, sizes))
    counts = (ctypes.c_int64(n) for n in (len(inputs), len(outputs)))
    wide = ctypes.c_int64(np.dtype(dtype) == np.float64)
    more = () if failure is None else (ctypes.byref(failure),)
    outcome = getattr(library, name)(wide, *numbers, *pointers, *counts, *more)
    if failure is not None and failure.value:
        raise SolveError(failure.value.decode())
    if outcome == _NO_PROGRAM:
        raise RuntimeError("A program is called that is not registered with the virtual machine of this process.")
    if outcome:
        raise MemoryError("There is no memory left to run a program.")
    return outputs


def _address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def _addresses(inputs: Sequence[np.ndarray]) -> tuple[list[int], np.ndarray | None]:
    """The addresses of contiguous arrays, and what must live as long: a copy of the small ones.

    The numbers of a mechanism are dozens of small arrays. NumPy takes ten times as long to tell the address of each as
    to copy them into one array.
    """
    small = [x for x in inputs if x.size <= _SMALL]
    if len({x.dtype for x in small}) != 1:
        return [*map(_address, inputs)], None
    copy = np.concatenate(small, axis=None)
    next_place = _address(copy)
    addresses = []
    for x in inputs:
        addresses.append(next_place if x.size <= _SMALL else _address(x))
        next_place += x.nbytes if x.size <= _SMALL else 0
    return addresses, copy
