"""Traced functions of arrays, with the programs, the derivatives and the transposes that are derived from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmbd.arrays import is_concrete, replaced
from jaxmbd.engine.binding import ldlt_primitive
from jaxmbd.engine.binding.mesh import outside_meshes
from jaxmbd.engine.machine.build_vm import postorder
from jaxmbd.engine.program import ssa_rules
from jaxmbd.engine.program.accumulation import accumulated
from jaxmbd.engine.program.copies import Original, original
from jaxmbd.engine.program.equation import Equation
from jaxmbd.engine.program.lowering import Interpreter
from jaxmbd.engine.program.schedule import Program, schedule
from jaxmbd.engine.program.ssa_builder import ZERO, SSABuilder
from jaxmbd.engine.program.tangents import Tangents
from jaxmbd.engine.program.transposes import transposed
from jaxmbd.errors import MechanismError
from jaxmbd.upstream.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    Literal,
    ShapedArray,
    freed_when_unused,
    jaxpr_as_fun,
)

Value = TypeVar("Value")
Dependencies: TypeAlias = tuple[frozenset[int], ...]  # for each result the arguments on which it may depend


@freed_when_unused
class TracedFunction:
    """A traced function of arrays; it may be linear in its last `linear` arguments.

    `source`: its jaxpr, or of what it is the derivative or transpose; then a jaxpr is traced where it is needed.
    `used`: the indices of its arguments among those of the source, which does not depend on the others.
    `dependencies`: for each result the arguments on which it may depend; default: all. `returns_primal`: True if its
    derivative returns the primal results together with the tangents, which computes common values once; reverse mode
    needs two separate functions. `derived`: for such a combined derivative, the primal function and the arguments of
    differentiation.
    """

    def __init__(
        self, source: "ClosedJaxpr | Differentiation | Transposition", used: Sequence[int], linear: int = 0,
        dependencies: Dependencies | None = None, returns_primal: bool = False,
    ) -> None:  # fmt: skip
        self.source, self.used, self.linear, self.returns_primal = source, tuple(used), linear, returns_primal
        self._in_avals: list[Any] = source.in_avals  # a property of a jaxpr, which builds a new list at each access
        out_avals: list[Any] = source.out_avals
        self.dependencies = dependencies or (frozenset(range(len(self.used))),) * len(out_avals)
        self.types: tuple[ShapedArray, ...] = tuple(self._in_avals[k] for k in used)
        self.results: tuple[ShapedArray, ...] = tuple(out_avals)
        self.derived: tuple[TracedFunction, tuple[int, ...]] | None = None
        self._derivatives: dict[tuple[tuple[int, ...], bool], TracedFunction] = {}
        self._transposes: dict[tuple[int, ...], TracedFunction] = {}

    @cached_property
    def jaxpr(self) -> ClosedJaxpr:
        """The jaxpr, for what is not a program: JAX traces derivatives, which takes much longer than lowering them."""
        return self.source.traced() if isinstance(self.source, Differentiation | Transposition) else self.source

    @property
    def traced_jaxpr(self) -> ClosedJaxpr:
        """The jaxpr that is in memory for this function; of a derivative that of the function itself."""
        if isinstance(self.source, Differentiation | Transposition) and "jaxpr" not in self.__dict__:
            return self.source.function.traced_jaxpr
        return self.jaxpr

    def __call__(self, *arrays: ArrayLike) -> Sequence[Array]:
        """Evaluate the function by JAX."""
        return jaxpr_as_fun(self.jaxpr)(*self._all(arrays, lambda x: jax.lax.full(x.shape, 0, x.dtype)))

    def _all(self, arguments: Sequence[Value], fill: Callable[[ShapedArray], Value]) -> list[Value]:
        """All arguments of the jaxpr, with `fill(type)` for those that are not used."""
        used = dict(zip(self.used, arguments, strict=True))
        return [used[k] if k in used else fill(x) for k, x in enumerate(self._in_avals)]

    def placed(self, value_ids: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Value ids for all arguments of the jaxpr: zeros for those that are not used."""
        return self._all(value_ids, lambda x: np.broadcast_to(np.int32(ZERO), x.shape))

    @cached_property
    def program(self) -> Program | None:
        """The compiled program; None if the function uses something that a program cannot express."""
        return self._compiled(len(self.types) - self.linear if self.linear else 0, False)

    @cached_property
    def is_identity(self) -> bool:
        """True if its program returns its only argument unchanged, as that of coordinates without quaternions that are
        normalized: it need not be called for each instance of a batch."""
        program, shapes = self.program, [x.shape for x in (*self.types, *self.results)]
        if program is None or program.code.size or len(self.types) != 1 or len(shapes) != 2 or shapes[0] != shapes[1]:
            return False
        return {*map(tuple, program.loads.tolist())} == {*map(tuple, program.stores.tolist())}

    @lru_cache(maxsize=4)  # noqa: B019
    def hoisted_program(self, parameters: int) -> Program | None:
        """The same with all that depends on the first `parameters` arguments alone in front, to be run once for many
        runs of the rest."""
        return self._compiled(parameters, True)

    @cached_property
    def structure(self) -> list[np.ndarray] | None:
        """For each result a mask of the elements that may differ from zero; None if a program cannot express it."""
        lowered = self._lowered()
        return None if lowered is None else [value_ids != ZERO for value_ids in lowered[1]]

    @cached_property
    def original(self) -> Original | None:
        """The operations, for copies and transposes; None where a program cannot express it."""
        lowered = self._lowered()
        return None if lowered is None else original(*lowered)

    def _compiled(self, uniform_inputs: int, hoist: bool) -> Program | None:
        lowered = self._lowered()
        return None if lowered is None else schedule(*lowered, postorder, uniform_inputs, hoist)

    def _lowered(self) -> tuple[SSABuilder, list[np.ndarray]] | None:
        types = (*self.types, *self.results)
        if len({x.dtype for x in types}) != 1 or not jnp.issubdtype(types[0].dtype, np.floating):
            return None
        # Rules let JAX compute what is constant (`Equation.evaluate`): while something else is being traced, its
        # operations would become part of that.
        with jax.ensure_compile_time_eval():
            derived = self.source.lowered() if isinstance(self.source, Differentiation | Transposition) else None
            if derived is None:
                return self._lowered_jaxpr()
        derived[0].reorder(self.used)
        return derived

    def _lowered_jaxpr(self) -> tuple[SSABuilder, list[np.ndarray]] | None:
        if not is_concrete(self.jaxpr.consts):  # for example a law that closes over a tracer
            return None
        builder = SSABuilder()
        inputs = [builder.inputs(x.shape) for x in self.types]
        try:
            return builder, Interpreter(builder, _TITLE, _RULES).run(self.jaxpr, self.placed(inputs))
        except MechanismError:
            return None

    def derivative(self, moving: tuple[int, ...]) -> "TracedFunction":
        """The forward derivative (JVP) with respect to the arguments `moving`.

        Its arguments are the primals and the tangents of `moving`; it returns the tangents of the results, preceded by
        the results themselves if the function `returns_primal`.
        """
        derivative = self._derivative(moving, self.returns_primal)
        derivative.derived = (self, moving) if self.returns_primal else None
        return derivative

    def halves(self) -> tuple["TracedFunction", "TracedFunction"] | None:
        """The primal function and the function of the tangents alone, if this is a derivative that returns both."""
        if self.derived is None:
            return None
        primal, moving = self.derived
        return primal, primal._derivative(moving, False)

    def _derivative(self, moving: tuple[int, ...], with_primal: bool) -> "TracedFunction":
        if (moving, with_primal) not in self._derivatives:
            differentiation = Differentiation(self, moving, with_primal)
            tangent_of = {k: len(self.types) + i for i, k in enumerate(moving)}
            dependencies = tuple(each | {tangent_of[k] for k in each if k in tangent_of} for each in self.dependencies)
            dependencies = (*self.dependencies, *dependencies) if with_primal else dependencies
            used = range(len(differentiation.in_avals))
            derivative = TracedFunction(differentiation, used, len(moving), dependencies, self.returns_primal)
            # The same object each time: JAX compares parameters of equations, and would compile for another one anew.
            self._derivatives[moving, with_primal] = derivative
        return self._derivatives[moving, with_primal]

    def transpose(self, wanted: tuple[int, ...]) -> "TracedFunction":
        """The transpose with respect to the arguments `wanted`, in which the function is linear.

        Its arguments are the other arguments and then the cotangents of the results; it returns the cotangents of
        `wanted`.
        """
        if wanted not in self._transposes:
            transposition = Transposition(self, wanted)
            count = len(transposition.in_avals)
            self._transposes[wanted] = TracedFunction(transposition, range(count), len(self.results))
        return self._transposes[wanted]


@dataclass(frozen=True, eq=False)
class Differentiation:
    """A function and those of its arguments with respect to which it is differentiated (`TracedFunction.derivative`).

    `with_primal`: True if its results precede their tangents. `directions`: of several, for which the tangents have a
    leading axis; 0 for one, without.
    """

    function: TracedFunction
    moving: tuple[int, ...]
    with_primal: bool
    directions: int = 0

    @property
    def in_avals(self) -> list[ShapedArray]:
        """The types of its arguments."""
        return [*self.function.types, *self._tangents([self.function.types[k] for k in self.moving])]

    @property
    def out_avals(self) -> list[ShapedArray]:
        """The types of its results."""
        results = [*self.function.results]
        return [*results * self.with_primal, *self._tangents(results)]

    def _tangents(self, types: list[ShapedArray]) -> list[ShapedArray]:
        if not self.directions:
            return types
        return [ShapedArray((self.directions, *x.shape), x.dtype) for x in types]

    @property
    def _chain(self) -> "list[Differentiation]":
        """This derivative, after those of which it is the derivative."""
        inner, used = self.function.source, self.function.used
        # A derivative that takes its arguments in another order is a function like others.
        if isinstance(inner, Differentiation) and not inner.directions and used == tuple(range(len(used))):
            return [*inner._chain, self]
        return [self]

    def lowered(self) -> tuple[SSABuilder, list[np.ndarray]] | None:
        """Its operations; None where a program cannot express it, or JAX must trace it."""
        if self.directions:
            one = self.function._derivative(self.moving, self.with_primal).original
            tangents = range(len(self.function.types), len(self.in_avals))
            primal = len(self.function.results) * self.with_primal
            return None if one is None else accumulated(one, tangents, self.directions, primal)
        chain = self._chain
        function = chain[0].function
        if not is_concrete(function.jaxpr.consts):
            return None
        builder = SSABuilder()
        inputs, every = [builder.inputs(x.shape) for x in function.types], []
        for order, each in enumerate(chain, start=1):
            every.append(Tangents(builder, {"jaxmbd_program": _inline_tangents}, order))
            tangents = [builder.inputs(each.function.types[k].shape) for k in each.moving]
            for k, ids in zip(each.moving, tangents, strict=True):
                every[-1].set(inputs[k], ids)
            inputs = [*inputs, *tangents]
        around = every[-1].apply
        for each in reversed(every[:-1]):
            around = partial(_around, each.apply, around)
        given = function.placed(inputs[: len(function.types)])
        try:
            results = Interpreter(builder, _TITLE, _RULES, around).run(function.jaxpr, given)
        except (MechanismError, TypeError, NotImplementedError):  # of JAX, where there is no derivative
            return None
        for tangents, each in zip(every, chain, strict=True):
            results = [*(results if each.with_primal else ()), *map(tangents.of, results)]
        return builder, results

    def traced(self) -> ClosedJaxpr:
        """Its jaxpr."""
        function, count = self.function, len(self.function.types)

        def jvp(*arrays: Array) -> Sequence[Array]:
            primals, tangents = arrays[:count], arrays[count:]

            def of_moving(*values: Array) -> tuple[Array, ...]:
                return tuple(function(*replaced(primals, self.moving, values)))

            at = tuple(primals[k] for k in self.moving)

            def push(*some: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
                return jax.jvp(of_moving, at, some)

            results, changes = (jax.vmap(push, out_axes=(None, 0)) if self.directions else push)(*tangents)
            return (*results, *changes) if self.with_primal else changes

        return traced(jvp, self.in_avals).jaxpr


@dataclass(frozen=True, eq=False)
class Transposition:
    """A function and those of its arguments with respect to which it is transposed (`TracedFunction.transpose`)."""

    function: TracedFunction
    wanted: tuple[int, ...]

    @property
    def _others(self) -> list[int]:
        return [k for k in range(len(self.function.types)) if k not in self.wanted]

    @property
    def in_avals(self) -> list[ShapedArray]:
        """The types of its arguments."""
        return [*(self.function.types[k] for k in self._others), *self.function.results]

    @property
    def out_avals(self) -> list[ShapedArray]:
        """The types of its results."""
        return [self.function.types[k] for k in self.wanted]

    def lowered(self) -> tuple[SSABuilder, list[np.ndarray]] | None:
        """Its operations, from those of the function; None where JAX must trace it."""
        original = self.function.original
        return None if original is None else transposed(original, self.wanted)

    def traced(self) -> ClosedJaxpr:
        """Its jaxpr."""
        function, others = self.function, self._others

        def pullback(*arrays: Array) -> tuple[Array, ...]:
            residuals, cotangents = arrays[: len(others)], arrays[len(others) :]

            def linear(*some: Array) -> tuple[Array, ...]:
                full: list[Any] = replaced([None] * len(function.types), others, residuals)
                return tuple(function(*replaced(full, self.wanted, some)))

            return jax.linear_transpose(linear, *self.out_avals)(tuple(cotangents))

        return traced(pullback, self.in_avals).jaxpr


def traced(
    fun: Callable[..., Sequence[ArrayLike]],
    types: Sequence[ShapedArray | jax.ShapeDtypeStruct],
    linear: int = 0,
    dependencies: Dependencies | None = None,
    returns_primal: bool = False,
) -> TracedFunction:
    """Trace a function of arrays of the given types that returns several arrays.

    It is traced outside of any mesh: the result is cached and reused inside `jax.shard_map`, and programs do not depend
    on a mesh.
    """
    with outside_meshes():
        jaxpr = jax.make_jaxpr(lambda *x: tuple(fun(*x)))(*types)
    return TracedFunction(jaxpr, range(len(types)), linear, dependencies, returns_primal)


def pruned(function: TracedFunction) -> TracedFunction:
    """The same function restricted to the arguments on which its results depend."""
    jaxpr = getattr(function.jaxpr, "jaxpr", function.jaxpr)
    needed = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    for equation in reversed(jaxpr.eqns):
        if any(var in needed for var in equation.outvars):
            needed |= {var for var in equation.invars if not isinstance(var, Literal)}
    used = [k for k, var in enumerate(jaxpr.invars) if var in needed]
    return TracedFunction(function.jaxpr, used, returns_primal=function.returns_primal)


_CALLED = (ClosedJaxpr, Jaxpr, TracedFunction)


def equations_in(*jaxprs: ClosedJaxpr | Jaxpr) -> int:
    """The number of equations of jaxprs and of all that they call, each of which counts once: the memory that they
    need."""
    total, seen, left = 0, set(), [*jaxprs]
    while left:
        jaxpr = left.pop()
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        if id(jaxpr) in seen:
            continue
        seen.add(id(jaxpr))
        total += len(jaxpr.eqns)
        for equation in jaxpr.eqns:
            for value in equation.params.values():
                inner = value if isinstance(value, tuple) else (value,)
                left += [
                    x.traced_jaxpr if isinstance(x, TracedFunction) else x for x in inner if isinstance(x, _CALLED)
                ]
    return total


def _inline(equation: Equation, *value_ids: np.ndarray) -> list[np.ndarray]:
    """The lowering rule of a program that is called inside another one: inline it."""
    function = equation.params["function"]
    if equation.params["batch"]:
        raise equation.unsupported(" of a batch")
    if function.original is not None and not function.original.tables:
        return function.original.copied(equation.builder, value_ids)
    return equation.interpret(function.jaxpr, function.placed(value_ids))


def _around(first: Callable[..., Any], second: Callable[..., Any], rule: Callable[..., Any], *of: Any) -> Any:
    """Apply a rule within `second`, and that within `first`."""
    return first(partial(second, rule), *of)


def _inline_tangents(
    tangents: Tangents, rule: Callable[..., list[np.ndarray]], equation: Equation, operands: list[np.ndarray]
) -> list[np.ndarray]:
    """The same with tangents: the program that computes both is inlined."""
    function, moving = equation.params["function"], tuple(k for k, x in enumerate(operands) if tangents.move([x]))
    both = replace(equation, others={**equation.params, "function": function._derivative(moving, True)})
    given = [*operands, *(tangents.of(operands[k]) for k in moving)]
    results = tangents.without(rule, both, given)
    return tangents.fresh(results[: len(function.results)], results[len(function.results) :])


_TITLE = "The right-hand side"
_RULES = {**ssa_rules.RULES, **ldlt_primitive.RULES, "jaxmbd_program": _inline}
