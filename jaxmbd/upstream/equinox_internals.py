"""Everything in equinox that this package uses and that equinox does not document.

It may change these at any minor version, which is why `pyproject.toml` caps it. `USED` says what each one is used for,
and `tests/upstream/test_upstream.py` fails with that sentence when one of them is gone.
"""

import dataclasses
from functools import partial
from types import MethodType
from typing import Any, TypeVar

import equinox as eqx
import equinox.internal as eqxi
from equinox import _jit, _tree
from equinox._module import _flatten, _prebuilt

Kind = TypeVar("Kind", bound=type[eqx.Module])
Module = TypeVar("Module", bound=eqx.Module)

while_loop = partial(eqxi.while_loop, kind="lax")  # `jax.lax.while_loop` that writes into buffers in place
write_row = eqxi.buffer_at_set
any_instance = eqxi.unvmap_any
MISSING = _flatten.MISSING  # in place of a field that has no value

USED = {
    "equinox.internal.while_loop": "steps are recorded, and swept forward and backward, in loops with buffers",
    "equinox.internal.buffer_at_set": "the states between checkpoints are written into a buffer in place",
    "equinox.internal.unvmap_any": "a branch that no instance of a batch needs is not run",
    "equinox._tree._LeafWrapper": "a mechanism whose places are looked up holds it for numbers",
    "equinox._module._prebuilt.BoundMethod": "methods of a mechanism are bound without a walk through its leaves",
    "equinox._module._flatten.WRAPPER_FIELD_NAMES": "methods bound so show the same names and docstrings as others",
    "equinox._module._flatten.MISSING": "what a field without a value holds is known when objects are told apart",
    "equinox._jit.last_error_info": "errors of running programs are raised with their own text",
}


def is_placeholder(leaf: Any) -> bool:
    """True for what stands for a number while `equinox.tree_at` looks for the place that is meant."""
    return isinstance(leaf, _tree._LeafWrapper)


def binds_methods_at_once(kind: Kind) -> Kind:
    """Let the methods of a class be bound in constant time.

    Whenever a method is asked for, equinox makes a module of it, whose constructor walks through all leaves of the
    object to warn of functions transformed by JAX among them. For a mechanism of 3,000 bodies this takes 10 ms, and an
    analysis asks hundreds of times. Here the same module is put together without its constructor.
    """
    kind.__getattribute__ = _attribute  # pyright: ignore[reportAttributeAccessIssue]
    return kind


def _attribute(owner: Any, name: str) -> Any:
    found = object.__getattribute__(owner, name)
    if not isinstance(found, MethodType) or name.startswith("__") or found.__self__ is not owner:
        return found
    function = found.__func__
    bound = object.__new__(_prebuilt.BoundMethod)
    names = {key: getattr(function, key) for key in _flatten.WRAPPER_FIELD_NAMES}
    attributes: Any = bound.__dict__
    attributes.update(names, __func__=function, __self__=owner)
    return bound


def with_fields(module: Module, **fields: Any) -> Module:
    """A copy of a module with other fields, made without its constructor and so unchecked."""
    copy = object.__new__(type(module))
    for field in dataclasses.fields(module):  # pyright: ignore[reportArgumentType]
        object.__setattr__(copy, field.name, fields.get(field.name, getattr(module, field.name)))
    return copy


def report_error(text: str) -> None:
    """Give the text of an error to `equinox.filter_jit`, which raises it when the running program has stopped."""
    _jit.last_error_info = (text, [])
