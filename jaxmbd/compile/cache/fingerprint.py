"""Bytes that identify a value by its content, the content of a user's functions and classes included.

Code of the libraries whose versions are known is identified by its name. Any other function is described by its
bytecode, its defaults, the variables it closes over and the global names it reads, each by its content in turn; any
other class by its bases and members. What cannot be described so has no fingerprint: modules and compiled functions
outside the known libraries, imports inside a function, and what reads more than its arguments, such as `open`, under
the name that a function calls it by or under its own.
"""

import dataclasses
import dis
import io
import pickle
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

LIBRARIES = ("jax", "jaxlib", "numpy", "equinox", "diffrax", "optimistix", "lineax", "optax")
_KNOWN = {
    *LIBRARIES, "jaxmbd", "jaxtyping", "abc", "builtins", "collections", "copyreg", "dataclasses", "enum", "functools",
    "math", "operator", "types", "typing",
}  # fmt: skip
# Names of what reads more than its arguments; a user's own method of such a name is taken for it.
_READING = {
    "DataSource", "environ", "eval", "exec", "fromfile", "fromregex", "genfromtxt", "globals", "input", "io", "load",
    "load_library", "loadtxt", "locals", "memmap", "open", "open_memmap", "perf_counter", "random", "read_array",
    "time", "tree_deserialise_leaves",
}  # fmt: skip
# Members of a class that say nothing of what it computes, or that follow from the others.
_DERIVED = {
    "__abstractclassvars__", "__abstractmethods__", "__abstractvars__", "__annotations__", "__dataclass_params__",
    "__dict__", "__doc__", "__firstlineno__", "__module__", "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip


def fingerprint(value: Any) -> bytes | None:
    """Bytes that identify a value; None if it depends on something that may change without them."""
    stream = io.BytesIO()
    describer = _Describer(stream)
    describer.fast = True  # no memo: equal values give equal bytes, whether they are one object or two
    describer.begun = {}
    try:
        describer.dump(value)
    except Exception:  # whatever the user's objects raise when they are pickled
        return None
    return stream.getvalue()


class _Describer(pickle.Pickler):
    """Pickles an object only to hash it, never to be read."""

    begun: dict[int, int]  # numbers of functions and classes, by identity: they may refer to themselves

    def persistent_id(self, obj: Any) -> Any:
        if _is_known(obj):
            name = obj.__name__ if isinstance(obj, ModuleType) else f"{obj.__module__}.{obj.__qualname__}"
            if not _READING.isdisjoint(name.split(".")):
                raise pickle.PicklingError(f"{name} may read more than its arguments.")
            return name
        if type(obj) in (set, frozenset) and all(isinstance(x, str | int | float) for x in obj):
            return [type(obj).__name__, *sorted(map(repr, obj))]  # their order differs between processes
        return self.begun.get(id(obj))

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType):
            self.begun[id(obj)] = len(self.begun)
            return tuple, (list(_function_parts(obj)),)
        if isinstance(obj, type):
            self.begun[id(obj)] = len(self.begun)
            members = [(name, _content(x)) for name, x in vars(obj).items() if name not in _DERIVED]
            return tuple, ([obj.__qualname__, type(obj), obj.__bases__, members],)
        if isinstance(obj.__self__ if isinstance(obj, BuiltinFunctionType) else obj, ModuleType):
            raise pickle.PicklingError(f"{obj} may change without its name.")
        return NotImplemented


def _is_known(obj: Any) -> bool:
    """True for a module of the known libraries, and for what one of them has under the name that `obj` gives itself."""
    if isinstance(obj, ModuleType):
        return obj.__name__.partition(".")[0] in _KNOWN
    module, path = (getattr(obj, name, None) for name in ("__module__", "__qualname__"))
    if not isinstance(module, str) or not isinstance(path, str) or module.partition(".")[0] not in _KNOWN:
        return False
    at: Any = sys.modules.get(module)
    for part in path.split("."):
        at = getattr(at, part, None)
    while at is not obj and at is not None:  # a decorator's result has the name of what it decorates
        at = getattr(at, "__wrapped__", None)
    return at is obj


def _function_parts(function: FunctionType) -> Iterator[Any]:
    yield function.__qualname__
    yield _code_parts(function.__code__)
    yield function.__defaults__
    yield function.__kwdefaults__
    yield [cell.cell_contents for cell in function.__closure__ or ()]  # ValueError if one is still empty
    names = sorted({name for code in _codes(function.__code__) for name in code.co_names})
    if not _READING.isdisjoint(names) or any(map(_imports, _codes(function.__code__))):
        raise pickle.PicklingError(f"{function} may read more than its arguments.")
    yield [(name, function.__globals__[name]) for name in names if name in function.__globals__]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of the functions inside it."""
    yield code
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield from _codes(x)


def _imports(code: CodeType) -> bool:
    return any(instruction.opname == "IMPORT_NAME" for instruction in dis.get_instructions(code))


def _code_parts(code: CodeType) -> tuple[Any, ...]:
    constants = [_code_parts(x) if isinstance(x, CodeType) else x for x in code.co_consts]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_code, constants, names, code.co_argcount, code.co_kwonlyargcount, code.co_flags


def _content(member: Any) -> Any:
    """What a member of a class holds, where pickling would refuse it or only name it."""
    if isinstance(member, staticmethod | classmethod):
        return type(member), member.__func__
    if isinstance(member, property):
        return property, member.fget, member.fset
    if isinstance(member, dict):
        return [(name, _content(x)) for name, x in member.items()]
    if isinstance(member, dataclasses.Field):
        return member.name, member.default, member.default_factory, member.init, dict(member.metadata)
    return member
