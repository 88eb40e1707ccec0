"""The reference: a page for each public module, with the signature and the docstring of each public name.

Docstrings are Markdown, as the pages are, so they stand as they are in directives of Sphinx's Python domain.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from docs.pages.public_names import Name, modules

# Headings for the names of a module, by the longest beginning of the path of the file that defines them. Names from
# elsewhere follow under the name of their folder.
HEADINGS = {
    "analyses.assembly": "Assembly",
    "analyses.describe": "Descriptions",
    "analyses.equilibrium": "Equilibria",
    "analyses.events": "Events",
    "analyses.inverse_dynamics": "Kinematics and inverse dynamics",
    "analyses.kinematics": "Kinematics and inverse dynamics",
    "analyses.linearization": "Linearisation",
    "state.output_channels": "States and quantities",
    "analyses.redundancy": "Descriptions",
    "state.result_codes": "Verdicts and errors",
    "analyses.simulation": "Simulation",
    "state.state": "States and quantities",
    "analyses.time_scales": "Descriptions",
    "equations": "Equations",
    "errors": "Verdicts and errors",
    "examples": "Examples",
    "integrate.adjoint": "Derivatives of motions",
    "integrate.formulations": "Formulations",
    "integrate.solvers": "Solvers",
    "model.body": "Bodies and markers",
    "model.driver": "Drivers",
    "model.force": "Forces",
    "model.joint": "Joints",
    "model.mechanism": "Mechanisms",
    "model.sensor": "Sensors",
    "model.functions": "Functions of one variable",
    "space": "Frames and solids",
    "space.solid": "Frames and solids",
}
_SETTING = """
Examples run after these lines; those of fits go on from the example of
{py:obj}`fit <jaxmbd.identification.fit>`. The tests compare what they print.

```python
import jax, jax.numpy as jnp, numpy as np, jaxmbd as mbd
from jaxmbd import planar as pl, spatial as sp

jax.config.update("jax_enable_x64", True)
```
"""
# Ruff takes the indentation of an example away that follows a single line.
_EXAMPLE = re.compile(r"(?:^    .*\n?)+|^>>> .*\n?(?:.+\n?)*", re.MULTILINE)


def write(folder: Path) -> None:
    """Write the pages of all public modules."""
    for module, names in modules().items():
        _save(folder / "reference" / f"{module}.md", page_of(module, names))


def page_of(module: str, names: list[Name]) -> str:
    """The page of a module: its docstring, a link for what has a page of its own, and all its names by headings."""
    here, elsewhere = [], []
    for name in names:
        (elsewhere if name.is_module or name.documented != name.path else here).append(name)
    lines = [f"# {module}", "", f"```{{py:module}} {module}\n```", "", inspect.getdoc(_module(module)) or "", ""]
    lines += [f"- {_link(name)}" for name in elsewhere]
    first = len(lines)
    for heading, group in _by_heading(here).items():
        lines += ["", f"## {heading}", ""] if heading else [""]
        lines += [_entry(name) for name in group]
    if any(">>>" in line for line in lines):
        lines.insert(first, _SETTING)
    return "\n".join(lines)


def _module(path: str) -> Any:
    package, _, rest = path.partition(".")
    return resolve_name(f"{package}:{rest}") if rest.count(".") else import_module(path)


def _link(name: Name) -> str:
    """A line for what is documented on another page."""
    if name.is_module:
        target = f"jaxmbd.{name.name}" if name.module == "jaxmbd" else name.path
        return f"[`{name.path}`]({target}.md): {summary(name.value)}"
    return f"{{py:obj}}`{name.path} <{name.documented}>`: {summary(name.value)}"


def summary(value: Any) -> str:
    """The first sentence of a docstring, on one line."""
    first = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
    return first.partition(". ")[0].rstrip(".:") + "."


def _by_heading(names: list[Name]) -> dict[str, list[Name]]:
    found: dict[str, list[Name]] = {}
    for name in names:
        home = name.home
        known = [start for start in HEADINGS if home == start or home.startswith(f"{start}.")]
        private = home.rpartition(".")[2].startswith("_") or f"jaxmbd.{home}" == name.module
        heading = HEADINGS[max(known, key=len)] if known else home.partition(".")[0].capitalize()
        found.setdefault("" if private else heading, []).append(name)
    return dict(sorted(found.items())) if len(found) > 1 else {"": names}


def _entry(name: Name) -> str:
    """The directive of one name: signature, docstring, and the methods and properties of a class."""
    value = name.value
    if isinstance(value, type):
        members = [_member(cls, key, member) for cls, key, member in members_of(value)]
        return _directive("class", name.name + signature(value), docstring(value), members)
    if callable(value) and hasattr(value, "__name__"):
        return _directive("function", name.name + signature(value), docstring(value), [])
    described = docstring(value) if type(value).__module__.startswith("jaxmbd") else f"`{value!r}`"
    return _directive("data", name.name, described, [])


def members_of(cls: type) -> Iterator[tuple[type, str, Any]]:
    """The documented public methods and properties of a class and of its private bases."""
    public = {id(name.value) for names in modules().values() for name in names}
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("jaxmbd") or (base is not cls and id(base) in public):
            continue
        for key, member in vars(base).items():
            if not key.startswith("_") and key not in seen and _is_member(member):
                seen.add(key)
                yield base, key, member


def _is_member(member: Any) -> bool:
    function = function_of(member)
    return callable(function) and not isinstance(member, type) and bool(getattr(function, "__doc__", None))


def function_of(member: Any) -> Any:
    """The function inside what a decorator has made of it."""
    inner = getattr(member, "fget", None) or getattr(member, "__func__", None) or getattr(member, "method", None)
    return inspect.unwrap(inner or member) if callable(inner or member) else None


def _member(cls: type, key: str, member: Any) -> str:
    function = function_of(member)
    if isinstance(member, property):
        return _directive("property", key, docstring(member), [])
    static = isinstance(member, staticmethod)
    kind = "classmethod" if isinstance(member, classmethod) else "staticmethod" if static else "method"
    return _directive(kind, key + signature(function, is_method=not static), docstring(function), [])


def _directive(kind: str, head: str, text: str, members: list[str]) -> str:
    colons = ":" * (5 if kind == "class" else 4)
    body = "\n\n".join([text, *members])
    return f"{colons}{{py:{kind}}} {head}\n\n{body}\n{colons}\n"


def docstring(value: Any) -> str:
    """A docstring, with its indented examples as fenced code, and its indented equations as they are."""
    return _EXAMPLE.sub(_fenced, inspect.getdoc(value) or "")


def _fenced(found: re.Match[str]) -> str:
    text = inspect.cleandoc(found.group())
    return f"```pycon\n{text}\n```\n" if text.startswith(">>>") else found.group()


def signature(function: Callable[..., Any], is_method: bool = False) -> str:
    """The arguments of a function or class; types by their short names."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "()"
    shown = [p.replace(annotation=p.empty, default=_default(p)) for p in parameters[is_method:]]
    return str(inspect.Signature(shown)).replace("'…'", "...")


def _default(parameter: inspect.Parameter) -> Any:
    """The default of a parameter if it reads as Python does, else an ellipsis."""
    plain = (int, float, str, bool, tuple, type(None))
    value = parameter.default
    return value if value is parameter.empty or isinstance(value, plain) else "…"


def _save(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
