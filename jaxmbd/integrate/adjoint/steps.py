"""A motion as a chain of accepted steps at fixed times, and the chain of its tangents.

A motion is `(yᵢ₊₁, sᵢ₊₁) = step(tᵢ, tᵢ₊₁, yᵢ, sᵢ, θ)`; saved states are interpolated within the steps by the solver.
`MotionSteps` is that chain; `TangentSteps` is the chain of pairs of primals and tangents, whose step is the JVP of the
step. It is a chain again, so that derivatives of any order are sweeps over chains.
"""

import abc
from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.arrays import Entry, replaced
from jaxmbd.engine.machine.gpu.erk_kernel import MotionKernel
from jaxmbd.engine.machine.gpu.kernel_part import Buffer
from jaxmbd.integrate.solvers.wrapped_solver import with_stage_loop
from jaxmbd.upstream.jax_internals import ShapedArray, freed_when_unused

VALUE: str = "value"
KNOWN: str = "known"
TIME: str = "time"


Dense: TypeAlias = PyTree[Array]  # the data of the interpolation within a step
ArrayType: TypeAlias = jax.ShapeDtypeStruct | ShapedArray
Types: TypeAlias = tuple[ArrayType, ...]


class Outputs(NamedTuple):
    """The outputs of a motion: the saved states for each set of times, the final state, and the last step.

    States are lists of arrays. `last`: the data of the last step's interpolation, and the ends of that step; `None` if
    they are not outputs. `log`: what events have logged, empty for a motion without events.
    """

    rows: list[list[Array]]
    end: list[Array]
    last: tuple[Dense, list[Array]] | None
    log: list[Array] = []  # noqa: RUF012


class InputParts(NamedTuple):
    """The inputs of a motion in three parts: `value` (state, updated by each step), `known` (parameters), `times`."""

    value: Sequence[Any]
    known: Sequence[Any]
    times: Sequence[Any]


class NativeCall(NamedTuple):
    """A sweep as one call of the virtual machine.

    `settings`: a function of the size of the batch that gives the first operands; `operands`: the others, each the
    index of an operand of the primitive or a constant; `results`: the types of the results; `kernel`: a function of the
    operands' and results' sizes that gives the same call as a kernel for a GPU; `order`: the indices of those results
    that the primitive returns, default all.
    """

    settings: Callable[[int], list[np.ndarray]]
    operands: list[int | np.ndarray]
    results: Sequence[ArrayType]
    kernel: Callable[[Sequence[Buffer]], MotionKernel]
    order: list[int] | None = None


class AbstractSteps(abc.ABC):
    """A chain of steps, as functions of lists of arrays.

    `types`: the types of the inputs; `kinds`: for each input its part (`"value"`, `"known"`, `"time"`) and its index
    there; `parts`: the types in each part. Times are `(t₀, t₁, ts of each set)`, and the switching times if it
    `has_switches`, repeated for each of the `components`: the times and then their tangents. `ends` of a step are its
    start and end, for each component. `sets`: the number of sets of saved times. `outputs`: the types of the outputs.
    `at_end`: the indices of the state in the value. `rows`: the number of checkpoints.

    With events (`has_events`) some entries of the record of steps are events, of zero length: their `kind` is the
    number of what happens, that of steps −1 (`erk_events.h`). The state holds the time, with its derivative.
    """

    has_events: bool = False
    has_switches: bool = False
    types: Types
    kinds: tuple[tuple[str, int], ...]
    parts: InputParts
    components: int
    sets: int
    outputs: Types
    at_end: tuple[int, ...]
    rows: int

    @abc.abstractmethod
    def advance(
        self, known: Sequence[Array], value: Sequence[Array], ends: Sequence[Array], kind: Array | None
    ) -> tuple[list[Array], Dense]:
        """The value at the end of a step, or after an event, and the data of its interpolation."""

    @abc.abstractmethod
    def read(self, dense: Dense, ends: Sequence[Array], t: Sequence[Array]) -> list[Array]:
        """The interpolated state at a time within a step; `t` has one number for each component."""

    def entry(self, dense: Dense) -> list[Array]:
        """What an event logs, from the data of its entry."""
        return []

    def row(self, dense: Dense) -> Array:
        """The row of the log into which that is written; beyond its end, if nothing is logged."""
        raise NotImplementedError

    @abc.abstractmethod
    def in_both_modes(self) -> "AbstractSteps":
        """The same chain with steps that can be differentiated in forward mode, and then in reverse mode."""

    @abc.abstractmethod
    def flat(self, outputs: Outputs) -> list[Array]:
        """Outputs, or their cotangents, as a flat list."""

    @abc.abstractmethod
    def unflat(self, arrays: Sequence[Array]) -> Outputs:
        """The inverse of `flat`."""

    def native(self, name: str, **settings: Any) -> NativeCall | None:
        """The call of the virtual machine for a primitive of that name; None if there is none."""
        return None

    def split(self, x: Sequence[Array]) -> InputParts:
        """The inputs in their parts; tangents that are not inputs are zero."""
        parts: dict[str, list[Array | None]] = {
            name: [None] * len(part) for name, part in zip((VALUE, KNOWN, TIME), self.parts, strict=True)
        }
        for (name, place), array in zip(self.kinds, x, strict=True):
            parts[name][place] = array
        filled = [
            [jnp.zeros(type_.shape, type_.dtype) if a is None else a for a, type_ in zip(part, types, strict=True)]
            for part, types in zip(parts.values(), self.parts, strict=True)
        ]
        return InputParts(*filled)

    def joined(self, split: InputParts, wanted: Sequence[int]) -> list[Any]:
        """The inputs with the indices `wanted`, from their parts."""
        parts = dict(zip((VALUE, KNOWN, TIME), split, strict=True))
        return [parts[self.kinds[k][0]][self.kinds[k][1]] for k in wanted]

    def time(self, times: Sequence[Entry], which: int) -> Sequence[Entry]:
        """One of the times, for each component: `t₀` for `which` 0, `t₁` for 1, a set of saved times for 2 and up, and
        then the switching times."""
        return times[which :: 2 + self.sets + self.has_switches]

    def switches(self, times: Sequence[Entry]) -> Sequence[Entry]:
        """The switching times, for each component; none if there are none."""
        return self.time(times, 2 + self.sets) if self.has_switches else []

    @cached_property
    def _tangents(self) -> dict[tuple[int, ...], "TangentSteps"]:
        return {}

    def tangent(self, moving: tuple[int, ...]) -> "TangentSteps":
        """The chain of tangents, where the inputs with the indices `moving` have tangents."""
        if moving not in self._tangents:
            self._tangents[moving] = TangentSteps(self, moving)
        return self._tangents[moving]


MotionInputs: TypeAlias = tuple[PyTree[Array], PyTree, PyTree, PyTree, PyTree[Array]]  # y, state, args, terms, times


@freed_when_unused
class MotionSteps(AbstractSteps):
    """The steps of a diffrax solver from `(y, state)`, with parameters `(args, terms)`, times `(t₀, t₁, (ts, …))`."""

    def __init__(self, inputs: MotionInputs, solver: dfx.AbstractSolver, last: Dense | None, rows: int) -> None:
        value, known, times = _partition(inputs, solver)
        (y, _), ts = value, times[2]
        self._value = jax.tree.structure(value)
        arrays, self._fixed = eqx.partition(known, eqx.is_array)
        self._known = jax.tree.structure(arrays)
        parts = InputParts(*(_types(jax.tree.leaves(eqx.filter(x, eqx.is_array))) for x in (value, known, times)))
        self.parts, self.rows, self.components, self.sets = parts, rows, 1, len(ts)
        self.types = (*parts.value, *parts.known, *parts.times)
        self.kinds = tuple(
            (n, i) for n, part in zip((VALUE, KNOWN, TIME), parts, strict=True) for i in range(len(part))
        )
        self.at_end = tuple(range(len(jax.tree.leaves(y))))
        end = [parts.value[i] for i in self.at_end]
        saved = [jax.ShapeDtypeStruct((len(t), *x.shape), x.dtype) for t in ts for x in end]
        self._dense = jax.tree.structure(_inexact(last)) if last is not None else None
        more = () if last is None else _types([*jax.tree.leaves(_inexact(last)), times[0], times[1]])
        self.outputs = (*saved, *end, *more)

    @staticmethod
    def pack(inputs: MotionInputs, solver: dfx.AbstractSolver, changes: PyTree = None) -> list[Any]:
        """The inputs as a list; or their tangents `changes`, with `None` for zero."""
        arrays = eqx.filter(_partition(inputs, solver), eqx.is_array)
        if changes is None:
            return jax.tree.leaves(arrays)
        y, state, args, terms, times = changes
        solver_tangents = jax.tree.map(lambda _: None, eqx.filter(solver, eqx.is_array))
        return jax.tree.structure(arrays).flatten_up_to(((y, state), (args, terms, solver_tangents), times))

    def advance(
        self, known: Sequence[Array], value: Sequence[Array], ends: Sequence[Array], kind: Array | None
    ) -> tuple[list[Array], Dense]:
        args, terms, solver = eqx.combine(jax.tree.unflatten(self._known, known), self._fixed)
        y, state = jax.tree.unflatten(self._value, value)
        # No jump: motions with others are not recorded (`_recordable`), so a last stage serves as the next first one.
        y, _, dense, state, _ = solver.step(terms, *ends, y, args, state, False)
        return [jnp.asarray(x) for x in jax.tree.leaves((y, state))], dense

    def read(self, dense: Dense, ends: Sequence[Array], t: Sequence[Array]) -> list[Array]:
        solver = self._fixed[2]
        return jax.tree.leaves(solver.interpolation_cls(t0=ends[0], t1=ends[1], **dense).evaluate(t[0]))

    def in_both_modes(self) -> "MotionSteps":
        # diffrax's default loop over the stages has reverse derivatives only, which are the fastest.
        chain, (args, terms, solver) = copy(self), self._fixed
        chain._fixed = args, terms, with_stage_loop(solver, "bounded")
        return chain

    def flat(self, outputs: Outputs) -> list[Array]:
        arrays = [*(x for row in outputs.rows for x in row), *outputs.end]
        if outputs.last is None:
            return arrays
        dense, ends = outputs.last
        return [*arrays, *jax.tree.leaves(_inexact(dense)), *ends]

    def unflat(self, arrays: Sequence[Array]) -> Outputs:
        n = len(self.at_end)
        rows = [list(arrays[k * n : (k + 1) * n]) for k in range(self.sets)]
        end, more = list(arrays[self.sets * n : (self.sets + 1) * n]), arrays[(self.sets + 1) * n :]
        if self._dense is None:
            return Outputs(rows, end, None)
        return Outputs(rows, end, (jax.tree.unflatten(self._dense, more[:-2]), list(more[-2:])))


def _partition(inputs: MotionInputs, solver: dfx.AbstractSolver) -> tuple[PyTree[Array], PyTree, PyTree[Array]]:
    y, state, args, terms, times = inputs
    return jax.tree.map(jnp.asarray, (y, state)), (args, terms, solver), times


@freed_when_unused
class TangentSteps(AbstractSteps):
    """A chain with its tangents: inputs, values and outputs of the chain, each followed by their tangents.

    Among the inputs those with the indices `moving` have tangents, among the values all differentiable ones.
    """

    def __init__(self, chain: AbstractSteps, moving: tuple[int, ...]) -> None:
        kinds = [chain.kinds[k] for k in moving]
        self.chain, self.rows, self.sets = chain.in_both_modes(), chain.rows, chain.sets
        self.has_events, self.has_switches = chain.has_events, chain.has_switches
        self._values = tuple(i for i, like in enumerate(chain.parts.value) if is_inexact(like))
        self._knowns = tuple(place for name, place in kinds if name == KNOWN)
        self.timed = any(name == TIME for name, _ in kinds)
        self.components = chain.components * (2 if self.timed else 1)
        value, known, times = chain.parts
        self.parts = InputParts(
            (*value, *(value[i] for i in self._values)),
            (*known, *(known[j] for j in self._knowns)),
            (*times, *times) if self.timed else times,
        )
        ahead = {VALUE: {i: n for n, i in enumerate(self._values)}, KNOWN: {j: n for n, j in enumerate(self._knowns)}}
        first = dict(zip((VALUE, KNOWN, TIME), map(len, chain.parts), strict=True))
        self.kinds = (*chain.kinds, *((n, first[n] + (ahead[n][i] if n in ahead else i)) for n, i in kinds))
        self.types = (*chain.types, *(chain.types[k] for k in moving))
        self.outputs = chain.outputs * 2
        self.at_end = (*chain.at_end, *(len(value) + ahead[VALUE][i] for i in chain.at_end))

    def advance(
        self, known: Sequence[Array], value: Sequence[Array], ends: Sequence[Array], kind: Array | None
    ) -> tuple[list[Array], Dense]:
        chain = self.chain
        (k, dk), (v, dv), (e, de) = (
            _split_at(known, len(chain.parts.known)),
            _split_at(value, len(chain.parts.value)),
            self._halves(ends),
        )
        moving = _select(k, self._knowns), _select(v, self._values), e if self.timed else []

        def step(knowns: list[Array], values: list[Array], step_ends: list[Array]) -> tuple[list[Array], Dense]:
            full = (
                replaced(k, self._knowns, knowns),
                replaced(v, self._values, values),
                step_ends if self.timed else e,
            )
            return chain.advance(*full, kind)

        (v, dense), (dv, change) = jax.jvp(step, moving, (dk, dv, de))
        return [*v, *_select(dv, self._values)], (dense, _inexact(change))

    def read(self, dense: Dense, ends: Sequence[Array], t: Sequence[Array]) -> list[Array]:
        (dense, change), (e, de) = dense, self._halves(ends)
        (t, dt), moving = self._halves(t), _inexact(dense)

        def state(some: Dense, e: list[Array], t: list[Array]) -> list[Array]:
            return self.chain.read(eqx.combine(some, dense), e, t)

        if self.timed:
            y, dy = jax.jvp(state, (moving, e, t), (change, de, dt))
        else:
            y, dy = jax.jvp(lambda some: state(some, e, t), (moving,), (change,))
        return [*y, *dy]

    def entry(self, dense: Dense) -> list[Array]:
        (dense, change), moving = dense, _inexact(dense[0])
        entry, tangent = jax.jvp(lambda some: self.chain.entry(eqx.combine(some, dense)), (moving,), (change,))
        return [*entry, *tangent]

    def row(self, dense: Dense) -> Array:
        return self.chain.row(dense[0])

    def in_both_modes(self) -> "TangentSteps":
        return self

    def flat(self, outputs: Outputs) -> list[Array]:
        rows, ends = [_split_at(x, len(x) // 2) for x in outputs.rows], _split_at(outputs.end, len(outputs.end) // 2)
        last: list[tuple[Dense, list[Array]] | None] = [None, None]
        if outputs.last is not None:
            dense, at = outputs.last
            e, de = self._halves(at) if self.timed else (at, [jnp.zeros_like(x) for x in at])
            last = [(dense[0], e), (dense[1], de)]
        logs = _split_at(outputs.log, len(outputs.log) // 2)
        halves = [Outputs([x[h] for x in rows], ends[h], last[h], logs[h]) for h in (0, 1)]
        return [*self.chain.flat(halves[0]), *self.chain.flat(halves[1])]

    def unflat(self, arrays: Sequence[Array]) -> Outputs:
        a, b = map(self.chain.unflat, _split_at(arrays, len(self.chain.outputs)))
        last = None
        if a.last is not None and b.last is not None:
            last = (a.last[0], b.last[0]), [*a.last[1], *(b.last[1] if self.timed else [])]
        rows = [[*x, *y] for x, y in zip(a.rows, b.rows, strict=True)]
        return Outputs(rows, [*a.end, *b.end], last, [*a.log, *b.log])

    def _halves(self, x: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Ends or times, split into primals and tangents."""
        return _split_at(x, len(x) // 2) if self.timed else (list(x), [])


def is_inexact(like: Array | ArrayType) -> bool:
    """True if an array, or an array of this type, is differentiable."""
    return bool(jnp.issubdtype(like.dtype, jnp.inexact))


def _inexact(tree: PyTree) -> PyTree:
    return eqx.filter(tree, eqx.is_inexact_array)


def _types(arrays: Sequence[Array]) -> Types:
    return tuple(jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)) for x in arrays)


def _split_at(x: Sequence[Entry], n: int) -> tuple[list[Entry], list[Entry]]:
    return list(x[:n]), list(x[n:])


def _select(x: Sequence[Entry], places: Sequence[int]) -> list[Entry]:
    return [x[i] for i in places]
