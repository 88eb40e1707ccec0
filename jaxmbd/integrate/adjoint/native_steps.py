"""Motions whose time loop runs in the virtual machine: their functions are programs.

`NativeSteps` is the chain of accepted steps of such a motion, by an explicit method or an implicit one. The run itself
(`native_run.py`) and the sweeps for its first derivatives are one call of C each (`erk_loop.h`, `erk_sweeps.h`);
derivatives of higher order are sweeps of JAX over that chain.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxmbd.arrays import frozen
from jaxmbd.engine import choice
from jaxmbd.engine.binding.jax_binding import Types as ShapesAndTypes
from jaxmbd.engine.binding.trace_once import is_array
from jaxmbd.engine.binding.tracing import TracedFunction, equations_in, pruned, traced
from jaxmbd.engine.machine.build_vm import vm
from jaxmbd.engine.machine.gpu.erk_kernel import MotionKernel
from jaxmbd.engine.machine.gpu.kernel_part import PROGRAMS, PULL, SLOPE, TANGENT, Buffer, Part, Role
from jaxmbd.engine.program.schedule import Program
from jaxmbd.engine.store.sized_cache import MOTION_EQUATIONS_KEPT, sized_cache
from jaxmbd.integrate.adjoint.event_functions import EventFunctions, EventMemory, event_of
from jaxmbd.integrate.adjoint.implicit_functions import (
    ImplicitFunctions,
    ImplicitMethod,
    Unknowns,
    adjoint_of,
)
from jaxmbd.integrate.adjoint.step_in_jax import StepInJAX
from jaxmbd.integrate.adjoint.step_programs import DEGREE, NO_PROGRAM, Sweep, numbers_of, with_tangents
from jaxmbd.integrate.adjoint.steps import (
    KNOWN,
    TIME,
    VALUE,
    AbstractSteps,
    ArrayType,
    Dense,
    InputParts,
    NativeCall,
    Outputs,
)
from jaxmbd.integrate.adjoint.sweep import NO_EVENT
from jaxmbd.integrate.solvers.unrolled_erk import ExplicitMethod
from jaxmbd.upstream.jax_internals import TreeDef, freed_when_unused

# What runs a motion: "auto" lets the virtual machine choose between its interpreter and straight-line code ("native").
Engine = Literal["auto", "diffrax", "interpreter", "native"]
_ENGINES = {"auto": 0, "interpreter": 1, "native": 2}  # numbers in `vm.c`
# Operands and results of runs and sweeps, by their names in `motion.h`.
_TIMES, _SAVED = ("t0", "t1", "ts", "switches"), ("ys", "y_end")
Programs: TypeAlias = dict[str, tuple[Sweep, Role]]  # by their names in `PROGRAMS`
_LENGTHS = ("counts[ACCEPTED]", "counts[SAVED]")
_COUNTS = tuple(f"counts[{name}]" for name in ("STEPS", "ACCEPTED", "REJECTED", "SAVED", "RESULT", "ENGINE"))


def native_steps(
    rate: Callable[..., Array], after: Callable[..., Array] | None, given: PyTree, static: Hashable, y: Array,
    method: ExplicitMethod | ImplicitMethod, norm: np.ndarray, times: int, max_steps: int, engine: Engine = "auto",
    rows: int = 1024, condition: Array | bool | None = None, events: EventFunctions | None = None, switches: int = 0,
    closing: "Closing | None" = None,
) -> tuple["NativeSteps", list[Array]] | None:  # fmt: skip
    """The steps for `ẏ = rate(given, static, t, y)`, and the arrays of `given` that they depend on; None if that is no
    program. The rate may be that of the first components of the state alone: the others are constant within a step, and
    are not saved.

    `after(given, static, t, y)`: new last components of the state, set after each accepted step, constant in between.
    `condition`: an array in `given`; where it is false, `after` is known to change nothing. `switches`: how many times
    there are at which steps end, since the rate may jump there. `closing`: puts the state back after each step.
    """
    leaves, tree = jax.tree.flatten(given)
    is_dynamic = tuple(map(is_array, leaves))
    others = tuple(None if moves else leaf for leaf, moves in zip(leaves, is_dynamic, strict=True))
    arrays = [leaf for leaf in leaves if is_array(leaf)]
    # A program has one type of value, to which booleans are converted.
    if vm() is None or any(x.dtype not in (y.dtype, np.bool_) for x in arrays):
        return None
    types = tuple((x.shape, x.dtype) for x in (*arrays, y))
    place = next((k for k, x in enumerate(arrays) if x is condition), None)
    steps = _steps_of(
        rate, after, tree, is_dynamic, others, static, types, method, norm.tobytes(), times, max_steps, engine, rows,
        place, events, switches, closing,
    )  # fmt: skip
    return None if steps is None else (steps, [jnp.asarray(arrays[k], y.dtype) for k in steps.used])


@sized_cache(MOTION_EQUATIONS_KEPT, lambda found: 1 if found is None else 1 + equations_in(found.rate.jaxpr))
def _steps_of(
    rate: Callable[..., Array], after: Callable[..., Array] | None, tree: TreeDef, is_dynamic: tuple[bool, ...],
    others: tuple[object, ...], static: Hashable, types: ShapesAndTypes, method: ExplicitMethod | ImplicitMethod,
    norm: bytes, times: int, max_steps: int, engine: Engine, rows: int, condition: int | None,
    events: EventFunctions | None, switches: int, closing: "Closing | None",
) -> "NativeSteps | None":  # fmt: skip
    *known, (shape, dtype) = types
    count = len(known)

    def flat(function: Callable[..., Array]) -> Callable[..., list[Array]]:
        def call(*operands: Array) -> list[Array]:
            *numbers, t, y = operands
            values = iter(x != 0 if kind == np.bool_ else x for x, (_, kind) in zip(numbers, known, strict=True))
            given = jax.tree.unflatten(
                tree, [next(values) if d else x for d, x in zip(is_dynamic, others, strict=True)]
            )
            return [function(given, static, t, y)]

        return call

    def of_state(function: Callable[..., Array], more: int = 0) -> TracedFunction:
        """The function of parameters, time and state, or of a workspace that is longer than that."""
        inputs = [jax.ShapeDtypeStruct(shape, dtype) for shape, _ in known]
        inputs += [jax.ShapeDtypeStruct((), dtype), jax.ShapeDtypeStruct((shape[0] + more,), dtype)]
        return pruned(traced(flat(function), inputs))

    named = {"rate": rate, "after": after, "closing": None if closing is None else closing.step}
    if events is not None:
        named |= {"guard": events.guard, "effect": events.effect}
    all_traced = {name: of_state(f) for name, f in named.items() if f is not None}
    implicit, used_method = None, method
    if isinstance(method, ImplicitMethod):
        implicit = method.functions(lambda f, unknowns: of_state(f, unknowns.work).structure)
        if implicit is None:
            return None
        used_method = implicit
        all_traced |= {name: of_state(f, implicit.unknowns.work) for name, f in implicit.named.items()}
    needed = {k for function in all_traced.values() for k in function.used if k < count}
    used = sorted(needed if condition is None else {*needed, condition})
    functions = {name: TracedFunction(f.jaxpr, (*used, count, count + 1)) for name, f in all_traced.items()}
    memory = EventMemory() if events is None else events.memory
    if events is not None:
        functions["event"] = event_of(functions, memory)
    assert not isinstance(used_method, ImplicitMethod)
    steps = NativeSteps(
        functions,
        used,
        used_method,
        np.frombuffer(norm),
        (times, switches),
        max_steps,
        engine,
        rows,
        condition,
        memory,
        0 if closing is None else closing.coordinates,
    )
    return None if None in steps.programs.values() else steps


class Closing(NamedTuple):
    """What puts the state back onto the constraints after each step: `step(given, static, t, y)`, one step of Newton's
    method for the first components, the `coordinates`, then the speeds for these, and the size of the change."""

    step: Callable[..., Array]
    coordinates: int


@freed_when_unused
class NativeSteps(AbstractSteps):
    """The steps of a Runge-Kutta method for `ẏ = f(θ, t, y)`, where `f` is a program.

    The inputs are the state `y (n,)`, the arrays `θ`, and the times `t₀, t₁, ts`, with the switching times if there are
    any; `times`: how many there are of the last two. `functions`: the traced function `f`,
    named `rate`, and others of the same arguments: `after`, the last components of the state after each accepted step;
    with events the `guard`, the `effect`, and both together, `event`; those of an implicit method (`named`), and the
    `adjoint` of its iteration. `used`: the indices of `θ` among all arrays; `norm (n,)`: the weights of the squared
    errors, 0 where an error is not controlled; `condition`: the index of the array that is false where `after` changes
    nothing; `memory`: of events; `closed`: how many components are coordinates that the function `closing` closes.
    """

    def __init__(
        self, functions: dict[str, TracedFunction], used: Sequence[int], method: ExplicitMethod | ImplicitFunctions,
        norm: np.ndarray, times: tuple[int, int], max_steps: int, engine: Engine, rows: int, condition: int | None,
        memory: EventMemory, closed: int = 0,
    ) -> None:  # fmt: skip
        self.functions, self.memory, self.has_events = functions, memory, memory.events > 0
        (saved, self._switches), self.has_switches = times, times[1] > 0
        self.implicit = method if isinstance(method, ImplicitFunctions) else None
        self._closed, self.in_jax = closed, StepInJAX(functions, method, memory, closed)
        self.tableau = numbers_of(method) if self.implicit is None else self.implicit.tableau()
        self._unknowns = Unknowns() if self.implicit is None else self.implicit.unknowns
        self.rate, self.after = functions["rate"], functions.get("after")
        self.used, self.method, self.norm, self.max_steps = tuple(used), method, np.asarray(norm, float), max_steps
        self.engine: Engine = engine
        *known, _, state = self.rate.types
        shapes = [(), (), (saved,), *[(self._switches,)] * self.has_switches]
        timed = [jax.ShapeDtypeStruct(shape, state.dtype) for shape in shapes]
        self.parts = InputParts([state], list(known), timed)
        self.types = (state, *known, *timed)
        self.kinds = ((VALUE, 0), *((KNOWN, k) for k in range(len(known))), *((TIME, k) for k in range(len(timed))))
        self.components, self.sets, self.at_end, self.rows = 1, 1, (0,), min(rows, max_steps)
        log = jax.ShapeDtypeStruct((memory.room, memory.entry), state.dtype)
        self.moving = self.rate.results[0].size
        self.outputs = (jax.ShapeDtypeStruct((saved, self.moving), state.dtype), state, *[log] * self.has_events)
        self._time_at, self._state_at = len(known), len(known) + 1
        self._condition = -1 if condition is None else self.used.index(condition)

    # --- the chain of steps, in JAX -------------------------------------------------------------------------

    def advance(
        self, known: Sequence[Array], value: Sequence[Array], ends: Sequence[Array], kind: Array | None
    ) -> tuple[list[Array], Dense]:
        t0, t1 = (jnp.asarray(t, self.types[0].dtype) for t in ends)
        if kind is None:
            y, dense = self.in_jax.step(known, value[0], t0, t1)
            return [y], dense
        memory, dtype = self.memory, value[0].dtype
        room = jnp.asarray(memory.room, dtype)  # beyond the rows of the log; as a float, so that it is data of the step

        def step() -> tuple[Array, Dense]:
            start = value[0][memory.time]  # whose derivative it has; next to a switching time it is another
            start = start + frozen(t0 - start)
            y, dense = self.in_jax.step(known, value[0], start, t1)
            entry = jnp.zeros(memory.entry, dtype)
            return y.at[memory.time].set(t1), {"step": dense, "start": start, "entry": entry, "row": room}

        def event() -> tuple[Array, Dense]:
            nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(step)[1])
            before = value[0].at[memory.due].set(kind)
            y, entry = jnp.split(self.in_jax.after_event(known, before), [len(before)])
            logged = y[memory.logged] > before[memory.logged]
            row = jnp.where(logged, jnp.minimum(before[memory.logged], room), room)
            return y, nothing | {"entry": entry, "row": row}

        y, dense = jax.lax.cond(kind == NO_EVENT, step, event)
        return [y], dense

    def read(self, dense: Dense, ends: Sequence[Array], t: Sequence[Array]) -> list[Array]:
        start, step = (dense["start"], dense["step"]) if self.has_events else (ends[0], dense)
        return [self.in_jax.read(step, start, ends[1], t[0])[: self.moving]]

    def entry(self, dense: Dense) -> list[Array]:
        return [dense["entry"]]

    def row(self, dense: Dense) -> Array:
        return dense["row"].astype(int)

    def in_both_modes(self) -> "NativeSteps":
        return self

    def flat(self, outputs: Outputs) -> list[Array]:
        return [*outputs.rows[0], *outputs.end, *outputs.log]

    def unflat(self, arrays: Sequence[Array]) -> Outputs:
        return Outputs([[arrays[0]]], [arrays[1]], None, list(arrays[2:]))

    # --- the whole motion, in C -----------------------------------------------------------------------------

    @cached_property
    def programs(self) -> dict[str, Sweep | None]:
        """The programs of the functions by their names; None for one that cannot be expressed, or that reads the state
        at an index computed at run time."""
        inlined = ("effect",) if self.implicit is None else ("effect", "rate")
        return {name: self._program(f) for name, f in self.functions.items() if name not in inlined}

    @cached_property
    def _adjoint(self) -> Sweep | None:
        """The program of the transposed iteration of an implicit method, which cotangents alone need."""
        assert self.implicit is not None
        return self._program(adjoint_of(self.functions["iterate"], self.implicit.unknowns, self.types[0].size))

    def _program(self, function: TracedFunction) -> Sweep | None:
        program = function.hoisted_program(self._time_at)
        if program is None or self._reads_inside(program):
            return None
        return Sweep(program, self._time_at, self._state_at)

    @property
    def error_order(self) -> int:
        """The order of the error estimate."""
        return self.method.order(None) if self.implicit is None else self.implicit.error_order  # pyright: ignore

    @property
    def operations(self) -> int:
        """The number of scalar operations at each stage, and after each step."""
        found = (self.programs.get(name) for name in ("rate", "after", "guard", "iterate", "closing"))
        return sum(sweep.program.operations for sweep in found if sweep is not None)

    @property
    def operations_of_all(self) -> int:
        """The number of scalar operations of all programs of a run, which the compiler of a kernel gets."""
        programs = self._programs_of("solve")
        assert programs is not None
        return sum(sweep.program.operations for sweep, _ in programs.values())

    def _reads_inside(self, program: Program) -> bool:
        return any(self._time_at <= table[0] <= self._state_at for table in program.gathers)

    def _moving(self, known: Sequence[int], timed: bool) -> tuple[int, ...]:
        """The inputs of the rate that have tangents: some parameters, the time, the state."""
        return (*known, *([self._time_at] if timed else []), self._state_at)

    @lru_cache(maxsize=16)  # noqa: B019
    def tangent_sweep(self, known: tuple[int, ...], timed: bool, directions: int, name: str = "rate") -> Sweep | None:
        """The program of a function and its tangents in some directions; None if that cannot be expressed, or if the
        program of several directions would be too large for straight-line code, which those of one direction become."""
        sweep = self.programs[name]
        assert sweep is not None
        estimate = directions * sweep.program.operations  # which saves recording what would be too large
        if directions > 1 and not choice.is_worth_compiling(estimate):
            return None
        function = with_tangents(self.functions[name], self._moving(known, timed), self._time_at, directions)
        time = self._time_at + len(known)
        program = function.hoisted_program(time)
        if program is None or (directions > 1 and not choice.is_worth_compiling(program.operations)):
            return None
        return Sweep(program, time, time + 1, time + 2 if timed else -1, time + 2 + timed)

    @lru_cache(maxsize=16)  # noqa: B019
    def cotangent_sweep(self, known: tuple[int, ...], timed: bool, name: str = "rate") -> Sweep | None:
        """The program that pulls a cotangent of a function back to parameters, time and state; None if that cannot be
        expressed, although the rate can (the transpose of a long table's `gather` writes at an index of run time)."""
        moving, count, function = self._moving(known, timed), len(self.rate.types), self.functions[name]
        linear = function._derivative(moving, False)
        program = linear.transpose(tuple(range(count, count + len(moving)))).hoisted_program(self._time_at)
        if program is None:
            return None
        outputs = {k: i for i, k in enumerate(moving)}
        return Sweep(
            program, self._time_at, self._state_at, -1, count, outputs.get(self._state_at, -1),
            outputs.get(self._time_at, -1) if timed else -1,
        )  # fmt: skip

    def _settings(self, programs: Programs, batch: int, *, flags: Sequence[int], directions: int) -> list[np.ndarray]:
        """The first three operands of a call: numbers, tableau and norm, as arrays that JAX leaves as they are."""
        tableau = self.tableau
        numbers = [
            batch, directions, *reversed(self.outputs[0].shape), self._switches, len(self.norm), tableau.stages, DEGREE,
            tableau.fsal, tableau.ssal, *flags[:2], self.max_steps, self.rows, *flags[2:], self._closed,
            _ENGINES[self.engine], *self.memory, *self._unknowns.numbers,
            *(x for name in PROGRAMS for x in (programs[name][0].numbers() if name in programs else NO_PROGRAM)),
        ]  # fmt: skip
        return [x.view(np.int32) for x in (np.array(numbers, np.int64), tableau.numbers, self.norm)]

    def native(self, name: str, **settings: Any) -> NativeCall | None:
        # The operands are the inputs, that is, state, parameters and times; then starts and ends of the steps, with
        # events their kinds, numbers of accepted steps and saved times, and checkpoints if there are any; then what a
        # result is linear in.
        n, schedule = len(self.types), len(self._record) + len(_LENGTHS)
        if name == "solve":
            return self._solve_call(settings["adaptive"], settings["force_dtmin"], settings["recorded"])
        if name == "tangents":
            recorded = settings["operands"] - len(settings["moving"]) - n == schedule + 1
            return self._tangents_call(settings["moving"], n + schedule + recorded, settings.get("directions", 1))
        if name == "cotangents" and settings["operands"] == n + schedule + 1 + len(self.outputs):
            return self._cotangents_call(settings["wanted"])
        return None

    @property
    def _record(self) -> tuple[str, ...]:
        return ("starts", "ends", *["kinds"] * self.has_events)

    def _programs_of(
        self, name: str, role: Role = SLOPE, derivative: Callable[[str], Sweep | None] | None = None
    ) -> Programs | None:
        """The programs of a run or a sweep; None if one cannot be expressed."""
        implicit, closes, events = self.implicit is not None, self._closed > 0, self.has_events
        runs, pushes, pulls = (name == each for each in ("solve", "tangents", "cotangents"))
        is_there = {
            "RATE": implicit or not pushes, "DERIVATIVE": not runs, "AFTER": self.after is not None,
            "GUARD": events and runs, "EVENT": events and not pushes, "EVENT_DERIVATIVE": events and not runs,
            "CLOSING": closes, "CLOSING_DERIVATIVE": closes and not runs, "GUESS": implicit, "LINEARIZE": implicit,
            "REACH": implicit, "REACH_DERIVATIVE": implicit and not runs, "ADJOINT": implicit and pulls,
        }  # fmt: skip
        found: Programs = {}
        for program in (program for program in PROGRAMS if is_there[program]):
            is_derivative, main = program.endswith("DERIVATIVE"), "iterate" if implicit else "rate"
            function = main if program in ("RATE", "DERIVATIVE") else program.removesuffix("_DERIVATIVE").lower()
            if function == "adjoint":
                sweep = self._adjoint
            else:
                sweep = derivative(function) if is_derivative and derivative else self.programs[function]
            if sweep is None:
                return None
            sweep = sweep._replace(condition=self._condition) if function == "after" else sweep
            found[program] = sweep, role if is_derivative else SLOPE
        return found

    def _solve_call(self, adaptive: bool, force_dtmin: bool, recorded: bool) -> NativeCall:
        n = len(self.types)
        programs = self._programs_of("solve")
        assert programs is not None
        operands = [*self._operands_of(programs), 0, *self._times, n, n + 1]
        record = [*self._record, "checkpoints"] if recorded else []
        arrays = ["y0", *self._time_names, "h0", "control", *_SAVED, *["log"] * self.has_events, "t_end", *_COUNTS]
        arrays += record
        flags = adaptive, force_dtmin, 1, 0
        return self._call("solve", programs, flags, operands, self.solve_results(recorded), arrays, recorded)

    def _tangents_call(self, moving: tuple[int, ...], first: int, directions: int) -> NativeCall | None:
        n, dtype = len(self.types), self.types[0].dtype
        known, timed = self._parts_of(moving)
        timed = timed or self.has_events  # steps after an event start where that moves to
        programs = self._programs_of(
            "tangents", TANGENT, lambda name: self.tangent_sweep(known, timed, directions, name)
        )
        if programs is None:
            return None
        at, several = {k: first + i for i, k in enumerate(moving)}, (directions,) if directions > 1 else ()
        zero = [np.zeros((*several, *x.shape), x.dtype) for x in self.types]
        theta = [*self._theta, *(at[k + 1] for k in known)]
        operands: list[int | np.ndarray] = []
        for sweep, role in programs.values():
            operands += [*(theta if role is TANGENT else self._theta), *sweep.tables(dtype)]
        schedule = len(self._record) + len(_LENGTHS)
        operands += [0, *self._times, *range(n, n + schedule), *([at[0]] if 0 in at else [])]
        operands += [at.get(k, zero[k]) for k in self._times] if timed else []
        arrays = ["y0", *self._time_names, *self._record, *_LENGTHS, *(["dy0"] if 0 in at else [])]
        arrays += [*(f"d{name}" for name in self._time_names if timed), *_SAVED]
        arrays += ["log"] * self.has_events
        flags, results = (0, 0, 0 in at, timed), [x.update(shape=(*several, *x.shape)) for x in self.outputs]
        return self._call("tangents", programs, flags, operands, results, arrays, directions=directions)

    def _cotangents_call(self, wanted: tuple[int, ...]) -> NativeCall | None:
        n = len(self.types)
        known, timed = self._parts_of(wanted)
        timed = timed or self.has_events
        programs = self._programs_of("cotangents", PULL, lambda name: self.cotangent_sweep(known, timed, name))
        if programs is None:
            return None
        operands = self._operands_of(programs)
        schedule = len(self._record) + len(_LENGTHS)
        operands += [*self._times, *range(n, n + schedule + 1 + len(self.outputs))]
        order = [*(k + 1 for k in known), 0, *(self._times if timed else [])]
        arrays = [*self._time_names, *self._record, *_LENGTHS, "checkpoints", "dys", "dy0", *["dlog"] * self.has_events]
        arrays += [*("" for _ in known), "y_end", *(f"d{name}" for name in self._time_names if timed)]
        results, flags = [self.types[k] for k in order], (0, 0, 1, timed)
        call = self._call("cotangents", programs, flags, operands, results, arrays)
        return call._replace(order=[order.index(k) for k in wanted])

    @property
    def _theta(self) -> range:
        """The indices of the parameters among the inputs."""
        return range(1, self._times.start)

    @property
    def _times(self) -> range:
        """The indices of the times among the inputs."""
        return range(len(self.types) - len(self.parts.times), len(self.types))

    @property
    def _time_names(self) -> tuple[str, ...]:
        return _TIMES[: len(self.parts.times)]

    def _parts_of(self, inputs: Sequence[int]) -> tuple[tuple[int, ...], bool]:
        """Which of the parameters are among some inputs, and whether times are."""
        return tuple(k - 1 for k in inputs if k in self._theta), any(k in self._times for k in inputs)

    def _operands_of(self, programs: Programs) -> list[int | np.ndarray]:
        """The operands of programs."""
        return [x for sweep, _ in programs.values() for x in (*self._theta, *sweep.tables(self.types[0].dtype))]

    def _call(
        self, name: str, programs: Programs, flags: Sequence[int], operands: list[int | np.ndarray],
        results: Sequence[ArrayType], arrays: Sequence[str], recorded: bool = False, directions: int = 1,
    ) -> NativeCall:  # fmt: skip
        """A call of the virtual machine, or of a kernel; `arrays`: what its operands after those of the programs, and
        its results, are in `motion.h`, empty for the cotangents of parameters."""
        settings = partial(self._settings, programs, flags=flags, directions=directions)
        kernel = partial(self._kernel, name, programs, tuple(arrays), (*flags[:2], recorded))
        return NativeCall(settings, operands, results, kernel)

    def _kernel(
        self, name: str, programs: Programs, arrays: tuple[str, ...], flags: Sequence[int], buffers: Sequence[Buffer]
    ) -> MotionKernel:
        parts: list[Part] = []
        for program, (sweep, role) in programs.items():
            parts.append(sweep.part(program, role, parts[-1].end if parts else 0))
        tableau, memory = self.tableau, self.memory
        sizes = {
            "MOVING": self.moving, "EVENTS": memory.events, "ENTRY": memory.entry, "UNKNOWNS": self._unknowns.size,
            "FACTORS": self._unknowns.factors,
        }  # fmt: skip
        settings = dict(zip(("adaptive", "force_dtmin", "recorded"), map(int, flags), strict=True)) | {
            "max_steps": self.max_steps, "rows": self.rows, "method.fsal": int(tableau.fsal),
            "method.ssal": int(tableau.ssal), "coordinates": self._closed,
        }  # fmt: skip
        settings |= {f"memory.{name}": x for name, x in memory._asdict().items()}
        settings |= {f"unknowns.ends[{k}]": end for k, end in enumerate(self._unknowns.ends)}
        return MotionKernel(
            name, tuple(parts), tuple(buffers), arrays, tableau.numbers, tableau.stages, DEGREE, self.norm, sizes,
            settings, self.types[0].dtype,
        )  # fmt: skip

    def solve_results(self, recorded: bool) -> list[ArrayType]:
        """The types of the results of a run: saved and final state, the log of events, final time, counts and engine;
        then its steps."""
        dtype, number = self.types[0].dtype, jax.ShapeDtypeStruct((), np.int32)
        entries = self.max_steps + (self.memory.room + 2 + self.memory.samples if self.has_events else 0)
        scalar, steps = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((), (entries,)))
        checkpoints = jax.ShapeDtypeStruct((self.rows + 1, len(self.norm)), dtype)
        record = [*[steps] * len(self._record), checkpoints] if recorded else []
        return [*self.outputs, scalar, *[number] * 6, *record]
