"""Functions of arrays that run as NumPy code first, and are compiled once they have run often enough to be worth it.

Compiling by XLA takes longer than hundreds of runs of an analysis, whose heavy parts are programs and motions of the
virtual machine in any case.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from jaxmbd.compile.cache.entry import Entry
from jaxmbd.compile.cache.executable import described, loaded
from jaxmbd.compile.cache.structure import ARRAY, is_encodable
from jaxmbd.compile.jax_binding import register, registering
from jaxmbd.compile.passes.schedule import Program
from jaxmbd.compile.targets.build_vm import vm
from jaxmbd.compile.targets.numpy_code.code import Budget, NumpyCode, OverBudgetError, code_from, plain, run
from jaxmbd.compile.targets.numpy_code.translation import UnsupportedError, numpy_code
from jaxmbd.progress import announced

_INSTRUCTIONS = 30_000  # that a function may execute as NumPy code before it is compiled: some tenths of a second


class FlatCall(NamedTuple):
    """A call of a function as one of a list of arrays.

    `tree`, `others`: the structure of its arguments, and their leaves with `ARRAY` in place of the arrays; `types`: of
    the arrays the shape, dtype, and whether the type is weak.
    """

    function: Callable[..., Any]
    tree: Any
    others: tuple[Any, ...]
    types: tuple[Any, ...]

    def announced(self) -> AbstractContextManager[Any]:
        """The context of what takes long, which is announced."""
        return announced(self.function, jax.tree.unflatten(self.tree, self.others))

    def trace(self) -> tuple[Any, Any, dict[int, Program]]:
        """The traced function, the structure of its result with `ARRAY` in place of arrays, and its programs."""
        like: Any = None

        def flat(arrays: list[Any]) -> list[Any]:
            nonlocal like
            remaining = iter(arrays)
            leaves = [next(remaining) if x is ARRAY else x for x in self.others]
            result = self.function(*jax.tree.unflatten(self.tree, leaves))
            like = jax.tree.map(lambda x: ARRAY if eqx.is_array(x) else x, result)
            return [x for x in jax.tree.leaves(result) if eqx.is_array(x)]

        types = [jax.ShapeDtypeStruct(shape, dtype, weak_type=is_weak) for shape, dtype, is_weak in self.types]
        with registering() as programs:
            trace = jax.jit(flat).trace(types)
        return trace, like, programs


class FirstCalls:
    """A function of a list of arrays: NumPy code within a budget, then compiled.

    `entry`: what is stored of it; `store`: stores an entry; `compiling`: the context for a compilation whose executable
    is stored. `is_closed`: False if a function among its arguments closes over a tracer; then it cannot be called.
    """

    def __init__(
        self, call: FlatCall, entry: Entry | None = None, store: Callable[[Entry], None] | None = None,
        compiling: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        self._call, self._store, self._compiling = call, store, compiling
        self._budget, self._lock = Budget(_INSTRUCTIONS), threading.Lock()
        self._trace: Any = None
        self._code: NumpyCode | None = None
        self._compiled: jax.stages.Compiled | None = None
        self._like: Any = None
        self.is_closed = True
        if entry is None or not self._read(entry):
            self._begin()

    def __call__(self, arrays: list[Any]) -> Any:
        values = iter(self._values(arrays))
        leaves, tree = self._like
        return jax.tree.unflatten(tree, [next(values) if x is ARRAY else x for x in leaves])

    def _values(self, arrays: list[Any]) -> list[Any]:
        code = self._code
        if code is not None:
            with suppress(OverBudgetError):
                return run(code, arrays, self._budget)
        compiled = self._compiled
        if compiled is None:
            with self._lock, self._call.announced():
                self._code = None
                compiled = self._compiled = self._compiled or self._compile()
        return compiled(arrays)

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
        self._like = jax.tree.flatten(entry.like)
        return True

    def _begin(self) -> None:
        """Trace the function, and translate it into NumPy code if that is possible."""
        with self._call.announced():
            self._trace = trace, like, programs = self._call.trace()
        self._like = jax.tree.flatten(like)
        self.is_closed = len(trace.jaxpr.in_avals) == len(self._call.types)  # JAX makes tracers further arguments
        if not self.is_closed or jax.default_backend() != "cpu" or vm() is None:
            return
        with suppress(UnsupportedError), registering() as more:
            self._code = numpy_code(trace.jaxpr)
            if self._store is not None:
                arrays: list[np.ndarray] = []
                description = plain(self._code, arrays)
                self._store(Entry("code", description, arrays, like, [*(programs | more).values()]))

    def _compile(self) -> jax.stages.Compiled:
        """Compile the function, and store it; if its result cannot be stored, JAX's own cache serves."""
        trace, like, programs = self._trace or self._call.trace()
        self._trace = None
        with registering() as more:
            lowered = trace.lower()
        if self._store is None or not is_encodable(like):
            return lowered.compile()
        with self._compiling():
            compiled = lowered.compile()
        with suppress(TypeError):  # it calls Python back, for example
            description, machine_code = described(compiled)
            self._store(Entry("executable", description, [machine_code], like, [*(programs | more).values()]))
        return compiled
