"""A function of arrays, traced, and what is derived from it: its program, its derivative, its transpose."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
import numpy as np

from jaxmbd.arrays import is_concrete
from jaxmbd.compile.graph.step import Step
from jaxmbd.compile.graph.trace import Walk
from jaxmbd.compile.jax_internals import Literal, jaxpr_as_fun
from jaxmbd.compile.lowering_rules import RULES
from jaxmbd.compile.passes.schedule import Program, schedule
from jaxmbd.compile.ssa_builder import ZERO, SSABuilder
from jaxmbd.errors import MechanismError

_NO_MESH = jax.sharding.AbstractMesh((), ())


class TracedFunction:
    """A traced function of arrays, of which results may be linear in its last `linear` arguments.

    `used`: which of the arguments of the jaxpr those are; it does not depend on the others. `dependencies`: the
    arguments on which each result may depend, all of them unless given. `returns_primal`: whether results and
    tangents are one function where it is differentiated, which saves making values again for the tangents; but
    those of reverse derivatives must be two. `derived`: of a function of results and tangents, the function and the
    arguments it is the derivative by.
    """

    def __init__(
        self, jaxpr: Any, used: Sequence[int], linear: int = 0, dependencies: Any = None, returns_primal: bool = False
    ) -> None:
        self.jaxpr, self.used, self.linear, self.returns_primal = jaxpr, tuple(used), linear, returns_primal
        self.dependencies = dependencies or (frozenset(range(len(self.used))),) * len(jaxpr.out_avals)
        taken = jaxpr.in_avals  # a list that is made anew each time
        self.types = tuple(taken[k] for k in used)
        self.results = tuple(jaxpr.out_avals)
        self.derived: tuple[TracedFunction, tuple[int, ...]] | None = None
        self._derivatives: dict[Any, TracedFunction] = {}
        self._transposes: dict[Any, TracedFunction] = {}

    def __call__(self, *arrays: Any) -> Sequence[Any]:
        """The function as JAX runs it."""
        return jaxpr_as_fun(self.jaxpr)(*self._all(arrays, lambda x: np.zeros(x.shape, x.dtype)))

    def _all(self, given: Sequence[Any], other: Callable[[Any], Any]) -> list[Any]:
        """The arguments of the jaxpr, with `other` of their types for those that count for nothing."""
        mine = dict(zip(self.used, given, strict=True))
        return [mine[k] if k in mine else other(x) for k, x in enumerate(self.jaxpr.in_avals)]

    def placed(self, rows: Sequence[Any]) -> list[Any]:
        """Rows for the arguments of the jaxpr."""
        return self._all(rows, lambda x: np.broadcast_to(np.int32(ZERO), x.shape))

    @cached_property
    def program(self) -> Program | None:
        """The program, or None where something in the function cannot be a part of one."""
        types = (*self.types, *self.results)
        if len({np.dtype(x.dtype) for x in types}) != 1 or not np.issubdtype(types[0].dtype, np.floating):
            return None
        if not is_concrete(self.jaxpr.consts):  # a law that closes over a number which is being traced
            return None
        recorder = SSABuilder()
        inputs = [recorder.inputs(x.shape) for x in self.types]
        try:
            with jax.ensure_compile_time_eval():
                outputs = Walk(recorder, _RULES, "The right-hand side").run(self.jaxpr, self.placed(inputs))
        except MechanismError:
            return None
        return schedule(recorder, outputs, len(inputs) - self.linear if self.linear else 0)

    def derivative(self, moving: tuple[int, ...]) -> "TracedFunction":
        """The tangents of the results, from the arguments and the tangents of those that move.

        If it `returns_primal`, first the results themselves.
        """
        found = self._derivative(moving, self.returns_primal)
        found.derived = (self, moving) if self.returns_primal else None
        return found

    def halves(self) -> tuple["TracedFunction", "TracedFunction"] | None:
        """Of a function of results and tangents, the function of the results and that of the tangents."""
        if self.derived is None:
            return None
        of, moving = self.derived
        return of, of._derivative(moving, False)

    def _derivative(self, moving: tuple[int, ...], values: bool) -> "TracedFunction":
        if (moving, values) not in self._derivatives:
            count = len(self.types)

            def tangents(*arrays: Any) -> Any:
                still, moved = arrays[:count], arrays[count:]

                def along(*some: Any) -> Any:
                    full = list(still)
                    for k, x in zip(moving, some, strict=True):
                        full[k] = x
                    return tuple(self(*full))

                results, changes = jax.jvp(along, tuple(still[k] for k in moving), tuple(moved))
                return (*results, *changes) if values else changes

            types, own = (*self.types, *(self.types[k] for k in moving)), {k: count + i for i, k in enumerate(moving)}
            dependencies = tuple(mine | {own[k] for k in mine if k in own} for mine in self.dependencies)
            dependencies = (*self.dependencies, *dependencies) if values else dependencies
            self._derivatives[moving, values] = traced(tangents, types, len(moving), dependencies, self.returns_primal)
        return self._derivatives[moving, values]

    def transpose(self, wanted: tuple[int, ...]) -> "TracedFunction":
        """For arguments in which the function is linear, what cotangents of the results give them.

        Its arguments are the others, and then the cotangents.
        """
        if wanted not in self._transposes:
            others = [k for k in range(len(self.types)) if k not in wanted]

            def pulled(*arrays: Any) -> Any:
                known, cotangents = arrays[: len(others)], arrays[len(others) :]

                def linear(*some: Any) -> Any:
                    full: list[Any] = [None] * len(self.types)
                    for places, values in ((others, known), (wanted, some)):
                        for k, x in zip(places, values, strict=True):
                            full[k] = x
                    return tuple(self(*full))

                return jax.linear_transpose(linear, *(self.types[k] for k in wanted))(tuple(cotangents))

            types = (*(self.types[k] for k in others), *self.results)
            self._transposes[wanted] = traced(pulled, types, len(self.results))
        return self._transposes[wanted]


def traced(
    fun: Callable[..., Sequence[Any]],
    types: Sequence[Any],
    linear: int = 0,
    dependencies: Any = None,
    returns_primal: bool = False,
) -> TracedFunction:
    """A function of arrays of the given types, which gives several arrays.

    It is traced outside of any mesh, since it is found again inside others (`jax.shard_map`): a program knows of none.
    """
    with jax.sharding.use_abstract_mesh(_NO_MESH):
        jaxpr = jax.make_jaxpr(lambda *x: tuple(fun(*x)))(*types)
    return TracedFunction(jaxpr, range(len(types)), linear, dependencies, returns_primal)


def pruned(function: TracedFunction) -> TracedFunction:
    """The same function of the arguments that its results depend on."""
    jaxpr = getattr(function.jaxpr, "jaxpr", function.jaxpr)
    needed = {var for var in jaxpr.outvars if not isinstance(var, Literal)}
    for equation in reversed(jaxpr.eqns):
        if any(var in needed for var in equation.outvars):
            needed |= {var for var in equation.invars if not isinstance(var, Literal)}
    used = [k for k, var in enumerate(jaxpr.invars) if var in needed]
    return TracedFunction(function.jaxpr, used, returns_primal=function.returns_primal)


def _inner(step: Step, *rows: Any) -> Any:
    """A program inside another one."""
    function = step.params["function"]
    if step.params["batch"]:
        raise step.unsupported(" of a batch")
    return step.walk(function.jaxpr, function.placed(rows))


_RULES = {**RULES, "jaxmbd_program": _inner}
