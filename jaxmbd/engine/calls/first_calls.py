"""Calls that run as NumPy code first, and are compiled once they have run often enough to be worth it.

Compiling by XLA takes longer than hundreds of runs of an analysis, whose heavy parts are programs and motions of the
virtual machine in any case.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import jax
import numpy as np

from jaxmbd.engine import choice
from jaxmbd.engine.binding.jax_binding import register, registering
from jaxmbd.engine.calls.array_types import Type
from jaxmbd.engine.calls.calls import Call, traced
from jaxmbd.engine.calls.entry import Entry
from jaxmbd.engine.calls.executable import described, loaded
from jaxmbd.engine.calls.structure import is_encodable
from jaxmbd.engine.machine.build_vm import vm
from jaxmbd.engine.numpy_code.code import UNLIMITED, Budget, NumpyCode, StoppedError, code_from, plain, run
from jaxmbd.engine.numpy_code.translation import UnsupportedError, numpy_code
from jaxmbd.garbage import collecting_nothing


class FirstCalls:
    """A call on lists of arrays: NumPy code within a budget, then compiled.

    `entry`: what is stored of it; `store`: stores an entry; `compiling`: the context for a compilation whose executable
    is stored. `is_closed`: False if a function among its arguments closes over a tracer; then it cannot be run.
    `like`: the structure of the result, with `ARRAY` in place of arrays; `results`: the types of these arrays; `size`:
    the memory that it needs, as a number of instructions.
    """

    def __init__(
        self, call: Call, entry: Entry | None = None, store: Callable[[Entry], None] | None = None,
        compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        self._call, self._store, self._compiling = call, store, compiling
        self._lock = threading.Lock()
        self._code: NumpyCode | None = None
        self._compiled: jax.stages.Compiled | None = None
        self.is_closed = True
        self.like: Any = None
        self.results: tuple[Type, ...] = ()
        if entry is None or not self._read(entry):
            with collecting_nothing():
                self._begin()
        instructions = 0 if self._code is None else self._code.size
        self.size = choice.NUMPY_MORE + instructions  # machine code takes about as much memory
        self._budget = Budget(0 if self._code is None else choice.numpy_budget(instructions))

    def run(self, arrays: list[jax.Array]) -> list[jax.Array]:
        """The arrays of the result."""
        # Read once: another thread may compile meanwhile, and drop the code.
        code = self._code
        if code is not None:
            with suppress(StoppedError):
                return run(code, arrays, self._budget)
        compiled = self._compiled
        if compiled is None:
            # One thread compiles; those that come meanwhile wait for what it makes.
            with self._lock, self._call.announced():
                self._code = None
                compiled = self._compiled = self._compiled or self._compile()
        return compiled(arrays)

    def steady(self) -> Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]:
        """The call as a function of NumPy arrays that is as fast each time: its NumPy code without a budget, whose
        programs the virtual machine runs, or, where there is none, its executable, which is compiled now."""
        if (code := self._code) is not None:
            return lambda arrays: code(arrays, Budget(UNLIMITED))
        with self._lock, self._call.announced():
            compiled = self._compiled = self._compiled or self._compile()
        return lambda arrays: [np.asarray(x) for x in compiled([*map(jax.numpy.asarray, arrays)])]

    def _read(self, entry: Entry) -> bool:
        """Take over what is stored; return False if that is not possible."""
        try:
            if entry.kind == "code":
                self._code = code_from(entry.description, entry.arrays)
            else:
                self._compiled = loaded(entry.description, *entry.arrays)
        except Exception:  # a file of another version
            return False
        for program in entry.programs:
            register(program)
        self.like, self.results = entry.like, entry.results
        return True

    def _begin(self) -> None:
        """Trace the call, and translate it into NumPy code if that is possible."""
        with self._call.announced():
            trace, self.like, programs, _ = found = traced(self._call)
        self.results = found.results
        self.is_closed = found.is_closed(self._call)
        # NumPy code calls the virtual machine, which computes on a processor.
        if not self.is_closed or jax.default_backend() != "cpu" or vm() is None:
            return
        with suppress(UnsupportedError), registering() as more:
            self._code = numpy_code(trace.jaxpr)
            if self._store is not None:
                arrays: list[np.ndarray] = []
                description = plain(self._code, arrays)
                self._store(Entry("code", description, arrays, self.like, self.results, [*(programs | more).values()]))

    def _compile(self) -> jax.stages.Compiled:
        """Compile the call, and store it; if its result cannot be stored, JAX's own cache serves."""
        trace, like, programs, _ = traced(self._call)
        with registering() as more:
            lowered = trace.lower()
        if self._store is None or not is_encodable(like):
            return lowered.compile()
        with self._compiling():
            compiled = lowered.compile()
        with suppress(TypeError):  # it calls Python back, for example
            description, machine_code = described(compiled)
            programs = [*(programs | more).values()]
            self._store(Entry("executable", description, [machine_code], like, self.results, programs))
        return compiled
