"""Calls as functions of a list of arrays: those of a user's Python, and what follows from them.

The derivative of a call, its linearization, the transpose of a linear call and a batch of calls are calls themselves.
They are traced from the jaxpr of the call that they come from, so that no Python runs again.
"""

from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jax import Array

from jaxmbd.engine.binding.jax_binding import registering
from jaxmbd.engine.binding.mesh import outside_meshes
from jaxmbd.engine.binding.trace_once import for_known_values, of_static
from jaxmbd.engine.binding.tracing import equations_in
from jaxmbd.engine.calls.array_types import Type, as_data, has_tangent, struct_of, type_of
from jaxmbd.engine.calls.structure import ARRAY
from jaxmbd.engine.calls.user_calls import (
    Placeholder,
    UserFunction,
    plain,
    watched,
    with_bare_functions,
    with_functions,
)
from jaxmbd.engine.program.schedule import Program
from jaxmbd.engine.store.sized_cache import EQUATIONS_KEPT, sized_cache
from jaxmbd.progress import announced
from jaxmbd.upstream.jax_internals import TreeDef, jaxpr_as_fun

Arrays = Sequence[Array]
Applied = tuple[list[Array], Any, Any]  # results, their structure, and that of a linear function or None


class Traced(NamedTuple):
    """A traced call.

    `like`: the structure of its result with `ARRAY` in place of arrays; `programs`: those that were registered;
    `linear`: of a linearization, the structure of the linear function.
    """

    trace: jax.stages.Traced
    like: Any
    programs: dict[int, Program]
    linear: Any

    def is_closed(self, call: "Call") -> bool:
        """False if a function among the arguments closes over a tracer, which JAX makes a further argument."""
        return len(self.trace.jaxpr.in_avals) == len(call.types)

    @property
    def results(self) -> tuple[Type, ...]:
        """The types of the results."""
        return tuple((x.shape, x.dtype, x.weak_type) for x in self.trace.jaxpr.out_avals)


@dataclass(frozen=True)
class FlatCall:
    """A call of a function with arguments that are trees.

    `tree`, `others`: the structure of its arguments, and their leaves with `ARRAY` in place of the arrays; `types`: of
    the arrays; `settings`: those of JAX under which it is traced. `in_mesh`: True inside `jax.shard_map`, where the
    values are not known, and the call is a part of what is compiled.
    """

    types: tuple[Type, ...]
    function: Callable[..., Any]
    tree: TreeDef
    others: tuple[Hashable, ...]
    settings: tuple[object, ...]
    in_mesh: bool = False

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__.strip("_")

    @cached_property
    def _bare(self) -> tuple[list[object], TreeDef]:
        """The leaves, functions among them, and the structure without any."""
        return jax.tree.flatten(with_bare_functions(jax.tree.unflatten(self.tree, [*map(of_static, self.others)])))

    @cached_property  # they are to be the same functions as long as what was traced with them is in use
    def watched(self) -> list[object]:
        """The leaves, with users' functions as `UserFunction`s where the call may be stored."""
        leaves, _ = self._bare
        return leaves if self.in_mesh else [*map(watched, leaves)]

    @property
    def users(self) -> list[UserFunction]:
        """The users' functions among the arguments, each once."""
        return list(dict.fromkeys(x for x in self.watched if isinstance(x, UserFunction)))

    @property
    def identity(self) -> tuple[object, ...]:
        """What determines the call, except for what the users' functions compute."""
        users, watched = self.users, self.watched
        leaves = [Placeholder(users.index(x)) if isinstance(x, UserFunction) else x for x in watched]
        return self.function, jax.tree.unflatten(self._bare[1], leaves), as_data(self.types), self.settings

    def announced(self) -> AbstractContextManager[object]:
        """The context of what takes long, which is announced."""
        return announced(self.function, jax.tree.unflatten(self.tree, [*map(of_static, self.others)]))

    def apply(self, arrays: Arrays) -> Applied:
        """The results for the arrays, their structure, and `None` in place of the structure of a linear function."""
        remaining, users = iter(arrays), {id(user.function): user for user in self.users}
        leaves = [next(remaining) if x is ARRAY else of_static(x) for x in self.others]
        arguments = jax.tree.unflatten(self.tree, leaves)
        result = self.function(*(with_functions(arguments, lambda x: users.get(id(x), x)) if users else arguments))
        like = with_functions(result, lambda x: ARRAY if eqx.is_array(x) else plain(x))
        return [x for x in jax.tree.leaves(result) if eqx.is_array(x)], like, None


@dataclass(frozen=True)
class _Derived:
    """A call that follows from another one, `base`."""

    types: tuple[Type, ...]
    base: "Call"

    @property
    def in_mesh(self) -> bool:
        """True inside `jax.shard_map`."""
        return self.base.in_mesh

    @property
    def name(self) -> str:
        """The name of the function, and of what was made of it."""
        return f"{self.base.name}_{type(self).__name__.lower()}"

    @property
    def users(self) -> list[UserFunction]:
        """The users' functions among the arguments, each once."""
        return self.base.users

    @property
    def identity(self) -> tuple[object, ...]:
        """What determines the call, except for what the users' functions compute."""
        own = {name: value for name, value in vars(self).items() if name not in ("types", "base")}
        return self.base.identity, type(self).__name__, own, as_data(self.types)

    def announced(self) -> AbstractContextManager[object]:
        """The context of what takes long, which is announced."""
        return self.base.announced()

    def _moving(
        self, primals: Arrays, moving: tuple[int, ...]
    ) -> tuple[Callable[..., tuple[list[Array], list[Array]]], list[Array]]:
        """The base as a function of some of its arguments, and those arguments.

        It returns the results that have tangents, and all of them as what JAX does not differentiate.
        """
        function = as_function(self.base)

        def of_moving(*arrays: Array) -> tuple[list[Array], list[Array]]:
            given = dict(zip(moving, arrays, strict=True))
            results = function(*(given.get(k, x) for k, x in enumerate(primals)))
            return [x for x in results if has_tangent(type_of(x))], results

        return of_moving, [primals[k] for k in moving]


@dataclass(frozen=True)
class Pushforward(_Derived):
    """The results, and the tangents of those that have some. Arguments: those of the base, the tangents of `moving`."""

    moving: tuple[int, ...]

    def apply(self, arrays: Arrays) -> Applied:
        """The results, their structure, and `None`."""
        count = len(self.base.types)
        of_moving, given = self._moving(arrays[:count], self.moving)
        _, tangents, values = jax.jvp(of_moving, given, arrays[count:], has_aux=True)
        return _plain([*values, *tangents])


@dataclass(frozen=True)
class Linearization(_Derived):
    """The results of the base, and the numbers (residuals) that its `LinearMap` needs."""

    moving: tuple[int, ...]

    def apply(self, arrays: Arrays) -> Applied:
        """The results and residuals, their structure, and that of the linear function."""
        of_moving, given = self._moving(arrays, self.moving)
        # The residuals are results of a call of their own, so that the values and what reverse mode needs of them are
        # one stored function.
        _, linear, values = jax.linearize(of_moving, *given, has_aux=True)
        residuals, structure = jax.tree.flatten(linear)
        return [*values, *residuals], ([ARRAY] * len(values), [ARRAY] * len(residuals)), structure


@dataclass(frozen=True)
class LinearMap(_Derived):
    """The tangents of the results of a `Linearization`. Arguments: its residuals, then the tangents of `moving`."""

    def apply(self, arrays: Arrays) -> Applied:
        """The tangents, their structure, and `None`."""
        linearization = traced(self.base)
        count = len(linearization.like[1])
        return _plain(jax.tree.unflatten(linearization.linear, arrays[:count])(*arrays[count:]))


@dataclass(frozen=True)
class Transpose(_Derived):
    """The transpose of a base that is linear in some arguments. Arguments: the others, the cotangents of `given`."""

    linear: tuple[int, ...]
    given: tuple[int, ...]

    def apply(self, arrays: Arrays) -> Applied:
        """The cotangents of the linear arguments, their structure, and `None`."""
        function, count = as_function(self.base), len(self.base.types)

        def of_linear(*linear: Array) -> list[Array]:
            given, others = dict(zip(self.linear, linear, strict=True)), iter(arrays)
            results = function(*(given[k] if k in given else next(others) for k in range(count)))
            return [results[k] for k in self.given]

        likes = [struct_of(self.base.types[k]) for k in self.linear]
        return _plain(jax.linear_transpose(of_linear, *likes)(arrays[count - len(likes) :]))


@dataclass(frozen=True)
class Batch(_Derived):
    """Several calls at once. `axes`: of the arguments, along which they differ; of all results it is the first."""

    axes: tuple[int | None, ...]
    size: int

    def apply(self, arrays: Arrays) -> Applied:
        """The results, their structure, and `None`."""
        return _plain(jax.vmap(as_function(self.base), self.axes, axis_size=self.size)(*arrays))


Call = FlatCall | Pushforward | Linearization | LinearMap | Transpose | Batch


@sized_cache(EQUATIONS_KEPT, lambda found: 1 + equations_in(found.trace.jaxpr))
def traced(call: Call) -> Traced:
    """Trace a call."""
    found: Any = None

    def flat(arrays: list[Array]) -> list[Array]:
        nonlocal found
        results, *found = call.apply(arrays)
        return results

    # It runs as NumPy code first: small matrices take longer to become programs than NumPy takes with them.
    kind = nullcontext() if call.in_mesh else for_known_values()
    with registering() as programs, outside_meshes(), kind:
        trace = jax.jit(flat).trace([struct_of(x) for x in call.types])
    like, linear = found
    return Traced(trace, like, programs, linear)


def as_function(call: Call) -> Callable[..., list[Array]]:
    """A call as a function of arrays that JAX can transform."""
    return jaxpr_as_fun(traced(call).trace.jaxpr)


def _plain(results: Arrays) -> Applied:
    """Results whose structure is a list."""
    return [*results], [ARRAY] * len(results), None
