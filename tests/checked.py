"""Shapes checked at run time: an import hook that has `jaxtyping` check what the annotations of a package promise.

`jaxtyping.install_import_hook` would check every function, also those that say nothing of arrays, and would make its
checks of a function defined inside of another anew each time that one is called: a seventh of what tests of gradients
took. Here functions of a module and methods are checked whose annotations name an array, and the fields of classes.
`jaxtyped(typechecker=beartype)` would check arguments twice, once more with what is returned, to say more of an error,
in twice the time (61 µs a call in place of 28).
"""

import ast
import sys
from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import FunctionType, ModuleType
from typing import Any, get_args

import jax
import jaxtyping
from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

MARK = "_shapes_are_checked"


def _checked(thing: Any) -> Any:
    """A class, or a function of a module or class, with its checks."""
    if isinstance(thing, type):
        if is_dataclass(thing):
            thing.__init__ = _checked(thing.__init__)
        return thing
    if not any(map(_is_array, getattr(thing, "__annotations__", {}).values())):
        return thing
    inner, config, sizes = beartype(thing), jaxtyping.config, jaxtyped

    def call(*args: Any, **kwargs: Any) -> Any:
        if config.jaxtyping_disable:
            return thing(*args, **kwargs)
        with sizes("context"):  # in which a size with a name is one number
            return inner(*args, **kwargs)

    # As code of the module: the library knows its own functions by where their code stands.
    return wraps(thing)(FunctionType(call.__code__, thing.__globals__, thing.__name__, None, call.__closure__))


def _is_array(hint: Any) -> bool:
    """Whether a type says something of an array."""
    is_one = isinstance(hint, type) and issubclass(hint, jax.Array | AbstractArray)
    return is_one or any(map(_is_array, get_args(hint)))


class _Marks(ast.NodeTransformer):
    """Decorates what may be checked; does not look into functions."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        # Innermost, so that what `jax.custom_vjp` and the like return stays theirs.
        node.decorator_list.append(ast.copy_location(ast.Name(MARK, ast.Load()), node))
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        # Outermost, so that `dataclass` has made what is to be checked.
        node.decorator_list.insert(0, ast.copy_location(ast.Name(MARK, ast.Load()), node))
        return self.generic_visit(node)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        tree = _Marks().visit(ast.parse(self.get_data(path), path))
        return compile(tree, path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[MARK] = _checked
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if self._has(fullname) else None
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
            return spec
        return None

    def _has(self, fullname: str) -> bool:
        return any(fullname == package or fullname.startswith(f"{package}.") for package in self.packages)


def check_shapes(packages: Sequence[str]) -> None:
    """Has the shapes in these packages checked, as far as they are imported after this call."""
    sys.meta_path.insert(0, _Finder(packages))
