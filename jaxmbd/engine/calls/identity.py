"""What is computed, as a digest of what was traced: the identity of a function under which its results are stored.

A function is the jaxpr that it becomes for arguments of given types, with all constants in it. Its Python code is no
part of it: whatever the function reads while it is traced, and however it finds a number, the jaxpr shows. What calls
Python back when it runs, or holds an object whose content only its own code knows, has no identity.

Values beside the jaxprs (the options of an analysis, parameters of primitives) are described by their content, as far
as they are plain data and objects of libraries whose versions are known.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from functools import cached_property, partial
from types import CellType, FunctionType, MemberDescriptorType, MethodType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxmbd.arrays import is_concrete
from jaxmbd.engine.binding.tracing import TracedFunction
from jaxmbd.engine.calls.known_code import is_found_by_name, is_of_library
from jaxmbd.engine.calls.structure import ARRAY
from jaxmbd.upstream.equinox_internals import MISSING
from jaxmbd.upstream.jax_internals import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Primitive,
    ShapedArray,
    Var,
    jaxpr_as_fun,
    scan_counts,
    types_of_operands,
)
from jaxmbd.upstream.primitives import DERIVATIVES, LABELLED, PLACES, TREES

# Derivatives that are compared where a function brings rules of its own: rules in rules are seen three deep.
_ORDERS = 3

# Primitives of this package whose parameters are objects, as functions of other primitives.
EXPANSIONS: dict[str, Callable[..., object]] = {}


class UnidentifiedError(Exception):
    """What is computed cannot be told from something else; the text says why."""


def traced_identity(function: Callable[..., object], *arguments: ArrayLike | jax.ShapeDtypeStruct) -> bytes:
    """The digest of what a function of arrays computes for arguments of these types.

    Raises:
        UnidentifiedError: If it has no identity.
        Exception: What the function raises when it is traced.
    """
    return identity_of(jax.make_jaxpr(lambda *x: function(*x))(*arguments))  # JAX would remember `function` itself


def identity_of(value: Any, derivatives: bool = False) -> bytes:
    """The digest of a jaxpr, or of a value by its content; `derivatives`: that of the jaxpr's derivatives, too.

    Raises:
        UnidentifiedError: If the content of something in it is not known.
    """
    digest = _Digest()
    digest.add(value)
    if derivatives:
        _add_derivatives(digest, value)
    return digest.hash.digest()


class _Digest:
    """A hash of values, each preceded by its kind, and of sequences with their lengths: no two read alike."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.has_rules = False  # whether a jaxpr has rules for its derivatives
        # By identity, since the parts of large jaxprs are shared; with the jaxpr, so that no other one gets its number.
        self._jaxprs: dict[int, tuple[ClosedJaxpr | Jaxpr, _Digest]] = {}
        self._begun: dict[int, int] = {}  # functions, which may refer to themselves

    def add(self, value: Any) -> None:
        """Add a value."""
        kind = type(value)
        if isinstance(value, ClosedJaxpr | Jaxpr):
            self._words("jaxpr", self._of_jaxpr(value))
        elif value is None or kind in (bool, int, float, complex, str, bytes, type(Ellipsis)):
            self._words(kind.__name__, repr(value))
        elif value is ARRAY:
            self._words("any array")
        elif value is MISSING:
            self._words("no value")
        elif kind in (np.ndarray, jax.Array) or isinstance(value, np.generic | jax.Array):
            self._array(value)
        elif isinstance(value, np.dtype):
            self._words("dtype", str(value))
        elif kind in (tuple, list):
            self._all(kind.__name__, value)
        elif kind is dict:
            self._all("dict", [x for item in value.items() for x in item])
        elif kind in (set, frozenset):
            self._all(kind.__name__, sorted(map(identity_of, value)))
        elif isinstance(value, jax.tree_util.PyTreeDef):
            self._all("tree", [jax.tree.unflatten(value, [ARRAY] * value.num_leaves)])
        elif isinstance(value, ShapedArray | jax.ShapeDtypeStruct):
            self._type(value)
        elif isinstance(value, TracedFunction):
            self._all("traced", [value.source, value.used, value.linear, value.returns_primal])
        else:
            self._object(value)

    def _words(self, *words: str | bytes) -> None:
        for word in words:
            content = word.encode() if isinstance(word, str) else word
            self.hash.update(b"%d:" % len(content))
            self.hash.update(content)

    def _all(self, kind: str, values: Collection[object]) -> None:
        self._words(kind, str(len(values)))
        for value in values:
            self.add(value)

    def _array(self, value: Any) -> None:
        if not is_concrete(value):
            raise UnidentifiedError("it depends on a value that is being traced")
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            self._words("key", str(jax.random.key_impl(value)))
            value = jax.random.key_data(value)
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise UnidentifiedError("it has an array of objects")
        self._words("array", str(array.dtype), repr(array.shape), str(getattr(value, "weak_type", False)))
        self._words(np.ascontiguousarray(array).tobytes())

    # --- objects ------------------------------------------------------------------------------------------

    def _object(self, value: Any) -> None:
        """Something of a library whose version is known: found by its name, or described by what it holds."""
        kind = type(value)
        if is_found_by_name(value):
            self._words("name", value.__module__, value.__qualname__)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif kind is MethodType:
            self._all("method", [value.__func__, value.__self__])
        elif isinstance(value, partial) and is_found_by_name(kind):
            self._all("partial", [kind, value.func, value.args, value.keywords])
        elif isinstance(value, Enum) and is_found_by_name(kind):
            self._all("member", [kind, value.name])
        elif isinstance(value, tuple) and is_found_by_name(kind):
            self._all("named", [kind, *value])
        elif is_found_by_name(kind) and (dataclasses.is_dataclass(value) or is_of_library(kind, "jaxmbd")):
            self._all("object", [kind, *(x for name in _attributes(value) for x in (name, getattr(value, name)))])
        else:
            raise UnidentifiedError(f"it holds {_shown(value)}, whose content is not known")

    def _function(self, function: FunctionType) -> None:
        """A function that a library's code has made: the place of that code, and what it closes over."""
        if not is_of_library(function):
            raise UnidentifiedError(f"it holds {_shown(function)}, which is not traced")
        if id(function) in self._begun:
            return self._words("again", str(self._begun[id(function)]))
        self._begun[id(function)] = len(self._begun)
        code = function.__code__
        self._words("function", function.__globals__["__name__"], code.co_qualname, str(code.co_firstlineno))
        self._words(code.co_code)  # two lambdas of one line
        cells = [_content(cell) for cell in function.__closure__ or ()]
        self._all("closure", [function.__defaults__, function.__kwdefaults__, *cells])

    # --- jaxprs -------------------------------------------------------------------------------------------

    def _of_jaxpr(self, jaxpr: ClosedJaxpr | Jaxpr) -> bytes:
        if id(jaxpr) not in self._jaxprs:
            within = self._part()
            within._jaxpr(jaxpr)
            self._jaxprs[id(jaxpr)] = jaxpr, within
        return self._digest_of(self._jaxprs[id(jaxpr)][1])

    def _part(self) -> "_Digest":
        """A digest of a part, which shares what is known of jaxprs."""
        part = _Digest()
        part._jaxprs = self._jaxprs
        return part

    def _digest_of(self, part: "_Digest") -> bytes:
        self.has_rules = self.has_rules or part.has_rules
        return part.hash.digest()

    def _jaxpr(self, jaxpr: ClosedJaxpr | Jaxpr) -> None:
        if isinstance(jaxpr, ClosedJaxpr):
            jaxpr, constants = jaxpr.jaxpr, jaxpr.consts
            self._words("constants", str(len(constants)))
            for value in constants:
                self._constant(value)
        numbers: dict[Var, int] = {}
        self._variables(numbers, [*jaxpr.constvars, *jaxpr.invars])
        self._words(str(len(jaxpr.eqns)))
        for equation in jaxpr.eqns:
            self._equation(equation)
            self._operands(numbers, equation.invars)
            self._variables(numbers, equation.outvars)
        self._operands(numbers, jaxpr.outvars)

    def _constant(self, value: Any) -> None:
        self._array(value if isinstance(value, jax.Array) else np.asarray(value))

    def _variables(self, numbers: dict[Var, int], variables: Sequence[Var]) -> None:
        self._words("variables", str(len(variables)))
        for var in variables:
            numbers[var] = len(numbers)
            self._type(var.aval)

    def _operands(self, numbers: dict[Var, int], operands: Sequence[Var | Literal]) -> None:
        self._words("operands", str(len(operands)))
        for x in operands:
            if isinstance(x, Literal):
                self._type(x.aval)
                self._constant(x.val)
            else:
                self._words("variable", str(numbers[x]))

    def _type(self, aval: object) -> None:
        self._words(repr(getattr(aval, "shape", None)), str(getattr(aval, "dtype", aval)))
        self._words(str(getattr(aval, "weak_type", False)))

    def _equation(self, equation: JaxprEqn) -> None:
        primitive, params = equation.primitive, equation.params
        if not _has_known_meaning(primitive):
            raise UnidentifiedError(f"it uses the primitive {primitive.name!r}, whose meaning is not known")
        if equation.effects and not any(isinstance(x, ClosedJaxpr | Jaxpr) for x in jax.tree.leaves(params)):
            raise UnidentifiedError(f"its {primitive.name!r} has effects beside its results")
        self._words(primitive.name)
        if primitive.name not in EXPANSIONS:
            return self._parameters(primitive, params)
        try:
            part = self._part()
            part._parameters(primitive, params)
            self._words(self._digest_of(part))
        except UnidentifiedError:  # an object that holds a user's function, of which its jaxpr says all
            self.add(jax.make_jaxpr(partial(EXPANSIONS[primitive.name], **params))(*types_of_operands(equation)))

    def _parameters(self, primitive: Primitive, params: dict[str, Any]) -> None:
        if primitive.name == "scan":  # its trees of operands and results are an object of JAX's own since jax 0.11
            constants, carried = scan_counts(params)
            params = {name: value for name, value in params.items() if name not in TREES}
            params |= {"num_consts": constants, "num_carry": carried}
        for name in sorted(params):
            if name in DERIVATIVES:  # functions, which say nothing before they are called: `_add_derivatives`
                self.has_rules = True
            elif name not in PLACES and not (name == "name" and primitive.name in LABELLED):
                self._words(name)
                self.add(params[name])


def _attributes(value: object) -> list[str]:
    """The names of what an object holds, without what was computed from it."""
    kind = type(value)
    derived = {name for base in kind.__mro__ for name, x in vars(base).items() if isinstance(x, cached_property)}
    slots = {name for base in kind.__mro__ for name, x in vars(base).items() if isinstance(x, MemberDescriptorType)}
    return sorted({*getattr(value, "__dict__", {}), *slots} - derived)


def _has_known_meaning(primitive: Primitive) -> bool:
    """True unless it is a primitive that a user's code defines."""
    implementation = primitive.impl
    if isinstance(implementation, MethodType):  # without one of its own, it may be lowered by anybody's code
        return implementation.__func__ is not Primitive.impl and is_of_library(implementation.__func__)
    return is_of_library(getattr(implementation, "func", implementation))


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        raise UnidentifiedError("a function refers to a variable that has no value yet") from None


def _shown(value: object) -> str:
    named = value if isinstance(value, FunctionType | type) else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def _add_derivatives(digest: _Digest, jaxpr: ClosedJaxpr) -> None:
    """Add derivatives as far as a function's own rules say what they are; all others follow from the jaxpr."""
    for _ in range(_ORDERS):
        if not digest.has_rules:
            return
        digest.has_rules = False
        jaxpr = _pulled_back(jaxpr)
        digest.add(jaxpr)


def _pulled_back(jaxpr: ClosedJaxpr) -> ClosedJaxpr:
    """The jaxpr of the derivative of another one, in reverse mode, which all rules have."""
    types = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in jaxpr.in_avals]
    moving = [k for k, x in enumerate(types) if np.issubdtype(x.dtype, np.inexact)]

    def results_of(arrays: Sequence[Array]) -> Iterator[Array]:
        return (x for x in jaxpr_as_fun(jaxpr)(*arrays) if np.issubdtype(x.dtype, np.inexact))

    def pulled(arrays: list[Array], cotangents: list[Array]) -> tuple[Array, ...]:
        def of_moving(*some: Array) -> list[Array]:
            given = dict(zip(moving, some, strict=True))
            return [*results_of([given.get(k, x) for k, x in enumerate(arrays)])]

        return jax.vjp(of_moving, *(arrays[k] for k in moving))[1](cotangents)

    cotangents = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in jaxpr.out_avals if np.issubdtype(x.dtype, np.inexact)]
    try:
        return jax.make_jaxpr(pulled)(types, cotangents)
    except Exception as error:  # such as a loop of unknown length, which has no derivative in reverse mode
        raise UnidentifiedError(f"its derivative cannot be traced ({error})") from error
