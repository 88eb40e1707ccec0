"""Users' functions while an analysis is traced: each is traced once for each type of its arguments.

What an analysis makes of a user's function is known from the jaxprs that the function has become. So a later process
finds the analysis on disk by these: it traces the users' functions for the arguments that are stored, by their types,
and not the analysis.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard
from weakref import WeakValueDictionary

import equinox as eqx
import jax
from jax import Array

from jaxmbd.arrays import is_concrete
from jaxmbd.engine.binding.trace_once import as_static, is_array, of_static
from jaxmbd.engine.calls.array_types import Type, as_data, from_data, struct_of, types_of
from jaxmbd.engine.calls.identity import UnidentifiedError, identity_of
from jaxmbd.engine.calls.structure import ARRAY, decoded, encoded
from jaxmbd.upstream.jax_internals import TreeDef, jaxpr_as_fun, settings_of_tracing

# A function that was given a value of its own to see, and asked for it: it is called as it is.
_ASKS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


@dataclass(frozen=True)
class Placeholder:
    """The place of a user's function in the description of a call, by its number among those of the call."""

    number: int


@jax.tree_util.register_static
class StaticFunction:
    """A function as a node of a tree without leaves: what holds it has arrays as leaves alone, as `jax.jit` wants.

    Two of the same function are equal, so that what is compiled for one serves for the other.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._held = as_static(function)

    @property
    def __wrapped__(self) -> Callable[..., Any]:  # whose signature and name are said in errors
        return of_static(self._held)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.__wrapped__(*arguments, **named)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticFunction) and self._held == other._held

    def __hash__(self) -> int:
        return hash(self._held)

    def __repr__(self) -> str:
        return eqx.tree_pformat(self.__wrapped__)


def _is_held(node: object) -> TypeGuard[StaticFunction]:
    return isinstance(node, StaticFunction)


def with_bare_functions(tree: Any) -> Any:
    """The tree with functions themselves, which are leaves, in place of the nodes that hold them."""
    return jax.tree.map(lambda x: x.__wrapped__ if _is_held(x) else x, tree, is_leaf=_is_held)


def with_functions(tree: Any, mapping: Callable[[object], Any]) -> Any:
    """The tree with another leaf in place of each one, and another function in each node that holds one."""
    return jax.tree.map(
        lambda x: StaticFunction(mapping(x.__wrapped__)) if _is_held(x) else mapping(x),
        tree,
        is_leaf=_is_held,
    )


class UserFunction:
    """A user's function, with all calls of it that were traced."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.function = function
        self.calls: dict[tuple[Hashable, ...], UserCall] = {}
        self.is_alone = True  # whether all of its calls are known by the types of their arguments

    def __call__(self, *arguments: object, **named: object) -> Any:
        """Call it, as the jaxpr that it becomes."""
        leaves, tree = jax.tree.flatten((arguments, named))
        arrays = [x for x in leaves if is_array(x)]
        try:
            call = self.call(tree, tuple(ARRAY if is_array(x) else x for x in leaves), types_of(arrays))
        except (_NotAloneError, *_ASKS):
            self.is_alone = False
            return self.function(*arguments, **named)
        # A part that it selects must be that part itself: so `equinox.tree_at` finds its place.
        return self.function(*arguments, **named) if call.selects else call(arrays)

    def call(self, tree: TreeDef, others: tuple[object, ...], types: tuple[Type, ...]) -> "UserCall":
        """What it becomes for arguments of this structure, with these leaves and arrays of these types."""
        key = settings_of_tracing(), tree, tuple((type(x), x) for x in others), types
        try:
            found = self.calls.get(key)
        except TypeError:  # a leaf without a hash
            raise _NotAloneError from None
        if found is None:
            found = self.calls[key] = UserCall(self.function, tree, others, types)
        return found

    def identity(self) -> list[list[object]]:
        """All calls, each as its arguments and what it computes, as JSON data.

        Raises:
            UnidentifiedError: If there is a call that is not known from its arguments.
        """
        if not self.is_alone:
            raise UnidentifiedError("it depends on values that are being traced")
        calls = [call for (settings, *_), call in self.calls.items() if settings == settings_of_tracing()]
        return sorted(([call.arguments, call.identity] for call in calls), key=repr)

    def again(self, arguments: Any) -> str:
        """What it computes for arguments that were stored.

        Raises:
            Exception: If it cannot be called so.
        """
        like, types = arguments
        others, tree = jax.tree.flatten(decoded(like))
        return self.call(tree, tuple(others), from_data(types)).identity


class _NotAloneError(Exception):
    """What a function becomes depends on more than the types of its arguments."""


class UserCall:
    """What a user's function becomes for arguments of given types."""

    def __init__(
        self, function: Callable[..., object], tree: TreeDef, others: Sequence[object], types: Sequence[Type]
    ) -> None:
        self._tree, self._others, self._types = tree, others, types

        def of_arrays(*arrays: Array) -> list[Array]:
            values = iter(arrays)
            arguments, named = jax.tree.unflatten(tree, [next(values) if x is ARRAY else x for x in others])
            results, structure = jax.tree.flatten(function(*arguments, **named))
            self._like = jax.tree.unflatten(structure, [ARRAY if is_array(x) else x for x in results])
            return [x for x in results if is_array(x)]

        self._like: object = None
        self._jaxpr = jax.make_jaxpr(of_arrays)(*map(struct_of, types))
        if not is_concrete(self._jaxpr.consts):
            raise _NotAloneError

    @property
    def selects(self) -> bool:
        """True if it computes nothing, and returns what it is given."""
        return not (self._jaxpr.jaxpr.eqns or self._jaxpr.consts)

    def __call__(self, arrays: Sequence[Array]) -> Any:
        """The results for arrays of these types."""
        found, (leaves, structure) = iter(jaxpr_as_fun(self._jaxpr)(*arrays)), jax.tree.flatten(self._like)
        return jax.tree.unflatten(structure, [next(found) if x is ARRAY else x for x in leaves])

    @cached_property
    def identity(self) -> str:
        """What it computes, as hexadecimal digits.

        Raises:
            UnidentifiedError: If that cannot be told from something else.
        """
        return (identity_of(self._jaxpr, derivatives=True) + identity_of(self._like)).hex()

    @property
    def arguments(self) -> list[object]:
        """Its arguments as JSON data.

        Raises:
            UnidentifiedError: If they are no plain data.
        """
        try:
            like = encoded(jax.tree.unflatten(self._tree, self._others))
        except TypeError as error:
            raise UnidentifiedError(str(error)) from None
        return [like, as_data(self._types)]


_functions: WeakValueDictionary[int, UserFunction] = WeakValueDictionary()


def is_users(leaf: object) -> TypeGuard[Callable[..., object]]:
    """True for a function, or another object that can be called, whose code is not that of a known library alone."""
    if not callable(leaf) or isinstance(leaf, type | UserFunction):
        return False
    try:
        identity_of(leaf)
    except UnidentifiedError:
        return is_concrete(leaf)  # one that closes over a tracer makes the whole call depend on it
    return False


def watched(leaf: object) -> object:
    """A user's function as a `UserFunction`, always the same; anything else as it is."""
    if not is_users(leaf):
        return leaf
    found = _functions.get(id(leaf))  # which keeps the function, and so its number, as long as it exists
    if found is None:
        found = _functions[id(leaf)] = UserFunction(leaf)
    return found


def plain(leaf: object) -> object:
    """The function of a `UserFunction` or of a `StaticFunction`; anything else as it is."""
    leaf = leaf.__wrapped__ if isinstance(leaf, StaticFunction) else leaf
    return leaf.function if isinstance(leaf, UserFunction) else leaf
