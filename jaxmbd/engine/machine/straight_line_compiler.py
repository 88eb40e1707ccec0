"""Straight-line code in use: a program that has run often is compiled beside the motion, which goes on meanwhile.

The virtual machine counts how often each program is interpreted. When interpreting has taken as long as compiling will
take, it writes the program to a pipe; a thread reads it, compiles the program and installs the code, and the next
evaluation runs it. Both give the same numbers to the last bit, so it does not matter when that happens.
"""

import ctypes
import os
import struct
import threading
from functools import cache, lru_cache

from jaxmbd.engine import choice
from jaxmbd.engine.machine.build_vm import instructions, vm
from jaxmbd.engine.machine.c_library import HERE, CLibrary, cause
from jaxmbd.engine.machine.straight_line import is_straight, source
from jaxmbd.engine.program.schedule import Program
from jaxmbd.progress import reporting
from jaxmbd.upstream.jax_internals import is_x64

_REQUEST = struct.Struct("=QQQ")  # the key of a program, the kernel, and 1 if a motion waits for it
_FLAGS = (("-O1",), ("-O2",), ("-O1",), ("-O2",))  # by kernel: one instance, lanes; in double and in single precision
_FUNCTION = "jaxmbd_straight"
_NEEDS = " It needs a C compiler; name one in the environment variable CC. engine='auto' goes on without it."
_failures: dict[bytes, bytes] = {}  # texts that the virtual machine refers to, each once
_pipe: int | None = None  # on which programs are requested


def watch(programs: dict[int, Program]) -> None:
    """From now on compile those of the programs, by key, that run often or that a motion waits for."""
    global _pipe
    library = vm()
    if library is None or _pipe is not None or os.name != "posix":
        return
    reading, _pipe = os.pipe()
    library.jaxmbd_watch(_pipe, ctypes.c_int64(choice.INTERPRETED))
    threading.Thread(target=_serve, args=(library, reading, programs), name="jaxmbd compiler", daemon=True).start()
    # A forked process has no such thread: its machine would write to a pipe that nobody reads.
    os.register_at_fork(after_in_child=lambda: library.jaxmbd_watch(-1, ctypes.c_int64(choice.INTERPRETED)))


def request_if_stored(program: Program) -> None:
    """Let a program be installed if it was compiled before."""
    if _pipe is None:
        return
    for kernel in (0, 1) if is_x64() else (2, 3):
        if _library(program, kernel).is_stored():  # only what is worthwhile, or was waited for, has been compiled
            os.write(_pipe, _REQUEST.pack(program.key, kernel, 0))


def install(library: ctypes.CDLL, program: Program, kernel: int) -> None:
    """Compile a registered program, unless that was done before, and let the virtual machine run the code.

    Raises:
        OSError: If that is not possible.
        subprocess.SubprocessError: If the compiler fails.
    """
    code = ctypes.cast(getattr(_loaded(program, kernel), _FUNCTION), ctypes.c_void_p)
    library.jaxmbd_install(ctypes.c_uint64(program.key), kernel, code, None)


def _serve(library: ctypes.CDLL, pipe: int, programs: dict[int, Program]) -> None:
    """Compile and install what is requested on a pipe."""
    while len(request := os.read(pipe, _REQUEST.size)) == _REQUEST.size:
        key, kernel, waits = _REQUEST.unpack(request)
        needs = _NEEDS
        try:
            program = programs[key]
            needs = _NEEDS if is_straight(program) else ""
            if waits or is_worthwhile(program):
                with reporting(bool(waits), "compiling the program of a motion, once ..." if waits else ""):
                    install(library, program, kernel)
        except BaseException as error:  # without the thread the next motion would wait for ever; this one raises it
            text = f"engine='native' failed: {cause(error)}{needs}".encode()
            library.jaxmbd_install(ctypes.c_uint64(key), kernel, None, _failures.setdefault(text, text))


def is_worthwhile(program: Program) -> bool:
    """True if a program can be straight-line code, and compiling it takes seconds rather than minutes."""
    return choice.is_worth_compiling(program.operations) and is_straight(program)


@lru_cache(maxsize=1024)
def _library(program: Program, kernel: int) -> CLibrary:
    identity = f"{program.key} {kernel} {_emitter()}"
    headers = ("program.h", "lanes.h", "operands.h")
    return CLibrary(
        "program", (_FUNCTION,), headers, lambda: source(program, kernel), identity, _FLAGS[kernel],
        instructions=instructions(),
    )  # fmt: skip


@cache
def _emitter() -> str:
    return (HERE / "straight_line.py").read_text()


@lru_cache(maxsize=1024)
def _loaded(program: Program, kernel: int) -> ctypes.CDLL:
    if not is_straight(program):
        raise OSError("its program shares factors between the instances of a batch.")
    return _library(program, kernel).loaded()
