"""The public names of the package, read from its sources: what a module exports with `from … import X as X`, in its
`__init__.pyi` if it has one.

A module that begins to export names is found here, and so in the reference, without a change of this file.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

PACKAGE = Path(__file__).parents[2] / "jaxmbd"
INNER = {"jaxmbd.cli", "jaxmbd.engine"}  # the command, and the engine: no names for users


@dataclass(frozen=True)
class Name:
    """A public name, where it is found (`jaxmbd.planar`) and what it stands for."""

    module: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    @cached_property
    def value(self) -> Any:
        first, _, rest = self.path.removeprefix("jaxmbd.").partition(".")
        return resolve_name(f"jaxmbd.{first}:{rest}" if rest else f"jaxmbd:{first}")

    @property
    def home(self) -> str:
        """The module that defines it, without the package's name: `model.joint.planar`."""
        value = self.value if isinstance(self.value, type) or callable(self.value) else type(self.value)
        defined = getattr(value, "__module__", None) or ""
        return defined.removeprefix("jaxmbd.") if defined.startswith("jaxmbd") else self.module

    @property
    def documented(self) -> str:
        """The path under which the reference documents it: that of its module if the package only passes it on."""
        owner = f"jaxmbd.{self.home.partition('.')[0]}"
        is_passed_on = self.module == "jaxmbd" and self.name in {other.name for other in modules().get(owner, [])}
        return f"{owner}.{self.name}" if is_passed_on else self.path

    @property
    def is_module(self) -> bool:
        return isinstance(self.value, ModuleType)


def _declared(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.asname == alias.name)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and path.stem == "__init__":
            yield node.name  # as in `data`
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))  # `Frame = SpatialFrame`


def _defined(module: ModuleType) -> list[str]:
    """The public functions that a module defines itself."""
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
    return [name for name in own if not name.startswith("_")]


@cache
def modules() -> dict[str, list[Name]]:
    """The public modules with their names, the package itself first."""
    paths = {"jaxmbd": PACKAGE / "__init__.pyi"} | {
        f"jaxmbd.{path.parent.name if path.stem == '__init__' else path.stem}": path
        for path in sorted([*PACKAGE.glob("*/__init__.py"), *PACKAGE.glob("*/__init__.pyi"), *PACKAGE.glob("*.py")])
        if path != PACKAGE / "__init__.py"
    }  # a stub comes after what carries it out, and replaces it
    found: dict[str, list[Name]] = {}
    for module, path in paths.items():
        names = [] if module in INNER else [Name(module, name) for name in dict.fromkeys(_declared(path))]
        for inner in [name for name in names if name.is_module and module != "jaxmbd"]:
            found[inner.path] = [Name(inner.path, name) for name in _defined(inner.value)]
        if names:
            found[module] = names
    return found
