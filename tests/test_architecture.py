"""The architecture, read from the source of each module without importing it.

A module of the package stands on a floor and imports only from lower floors; the modules inside one package
folder may import each other. To add a module directly under `jaxmbd/`, put its name into `FLOORS`.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "jaxmbd"
MAX_FUNCTION_LINES = 60  # without the docstring, which has its own rules
MAX_FILE_LINES = 500
TABLE = "tests/test_architecture.py"

# A room is a module or folder under `jaxmbd/`, or one of the folders inside a room that have floors of their own.
FLOORS = {
    0: "errors garbage replacement upstream",
    0.1: "arrays",
    0.2: "progress",
    0.505: "engine.choice",
    0.51: "engine.store",
    0.52: "engine.program",
    0.53: "engine.machine",
    0.54: "engine.machine.gpu",
    0.55: "engine.numpy_code",
    0.56: "engine.binding",
    0.57: "engine.calls",
    0.58: "engine",
    1: "checks docstrings printing user_functions",
    1.5: "numerics",
    2: "space",
    3: "model.body model.states model.functions",
    4: "model.joint model.force model.sensor model.driver model.controller",
    5: "model.mechanism model",
    6: "planar spatial",
    6.5: "parameters",
    7: "equations",
    8: "integrate",
    8.1: "integrate.formulations",
    8.2: "integrate.solvers",
    8.3: "integrate.adjoint",
    8.5: "state",
    8.7: "embedding",
    9: "analyses",
    9.5: "extend",
    10: "identification",
    10.2: "sweeps",
    10.3: "optimal_design",
    10.4: "io",
    10.5: "scene",
    11: "symbolic plot view",
    12: "data examples",
    13: "__init__",
    14: "demo",
    15: "cli",
    16: "__main__",
}
FLOOR_OF = {name: floor for floor, names in FLOORS.items() for name in names.split()}

# What libraries do not document is imported in one file for each of them.
INTERNALS = {
    "jaxmbd/upstream/jax_internals.py": ("jax.interpreters", "jax.extend", "jax.experimental", "jax._src"),
    "jaxmbd/upstream/equinox_internals.py": ("equinox.internal", "equinox._"),
    "jaxmbd/upstream/diffrax_internals.py": ("diffrax._",),
}

# What enters the engine by another door than `jaxmbd.engine`: those who extend it, keep what it has computed, or
# configure it.
DOORS = {
    "integrate.adjoint": ("binding", "calls", "machine", "numpy_code", "program", "store"),  # the time loop in C
    "symbolic": ("program", "binding.ldlt_primitive"),  # another builder for the same rules
    "numerics": ("binding.ldlt_primitive", "binding.mesh", "program.symbolic_ldlt"),  # linear solves as primitives
    "equations": ("program.symbolic_ldlt",),  # the sparsity of S
    "model": ("binding.lookups", "binding.trace_once"),  # tables of time
    "user_functions": ("calls.user_calls",),
    "state.result_codes": ("calls.cached_function", "binding.raising"),  # errors at run time
    "analyses.simulation.native_motion": ("machine.build_vm", "machine.gpu"),  # what of the engines is there
    "analyses.events.event_rules": ("binding.tracing",),  # what a quantity depends on
    "identification": ("calls.identity", "calls.disk_cache"),
    "sweeps": ("calls.identity", "calls.disk_cache"),
    "io.fmu": ("binding.tracing", "machine", "program.schedule"),  # programs as C that stands alone
    "cli": ("store", "machine.build_vm"),
}

# Only these rooms draw; a scene is data for any renderer.
DRAWING = {"plot", "cli"}

# What is loaded when it is used first keeps to the floors, too, but for one call upwards: a solution shows itself.
UPWARDS = {("jaxmbd/analyses/simulation/solution.py", "jaxmbd.view")}

# May be missing at run time, or are slow to import, so they are imported where they are used: inside a function.
OPTIONAL = {
    "IPython", "PIL", "SALib", "anywidget", "blackjax", "imageio_ffmpeg", "mujoco", "sympy", "traitlets", "trimesh",
    "websockets", "zarr",
}  # fmt: skip
DEFERRED = {"xarray"}


@dataclass(frozen=True)
class Module:
    """One source file: `path` relative to the folder that holds the package, and its text."""

    path: Path
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, filename=str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def room(self) -> str:
        """The room that the floor table knows: `model.joint` for `jaxmbd/model/joint/planar.py`."""
        return room_of(self.path.with_suffix("").parts[1:])

    def at(self, node: ast.stmt | ast.expr, message: str) -> str:
        return f"{self.path}:{node.lineno}: {message}"


def room_of(parts: Sequence[str]) -> str:
    """The name in the floor table of a module under `jaxmbd`, the longest that is there, or its first part."""
    names = (".".join(parts[:k]) for k in range(len(parts), 1, -1))
    return next((name for name in names if name in FLOOR_OF), parts[0])


@dataclass(frozen=True)
class Import:
    """One imported name: the root of a package outside (`numpy`), or a room of `jaxmbd` (`model.body`)."""

    node: ast.Import | ast.ImportFrom
    name: str
    is_ours: bool


@cache
def read_modules(folder: Path = PACKAGE) -> list[Module]:
    paths = sorted(folder.rglob("*.py"))
    return [Module(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in paths]


def split_import(dotted: str) -> tuple[str, bool]:
    """`jaxmbd.space.x` is ours and in `space`; `jaxmbd` alone is `__init__`; the rest is from outside."""
    root, *rest = dotted.split(".")
    if root == "jaxmbd":
        return (room_of(rest) if rest else "__init__"), True
    return root, False


def from_targets(module: Module, node: ast.ImportFrom) -> Iterator[str]:
    """The dotted names that `from … import …` reaches, relative ones resolved."""
    prefix = list(module.path.with_suffix("").parts[: -node.level]) if node.level else []
    base = ".".join([*prefix, *filter(None, [node.module])])
    for alias in node.names:
        # `from jaxmbd import planar` reaches a module; `from jaxmbd import simulate` a name of the facade.
        reaches_room = base.startswith("jaxmbd") and f"{base}.{alias.name}".removeprefix("jaxmbd.") in FLOOR_OF
        yield f"{base}.{alias.name}" if reaches_room else base


def imports(module: Module, nodes: Iterable[ast.AST]) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            targets = list(from_targets(module, node))
        else:
            continue
        for dotted in dict.fromkeys(targets):
            yield Import(node, *split_import(dotted))


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def inside_functions(module: Module) -> list[Import]:
    """Each import below a `def`, once, also where functions nest."""
    found = (item for function in functions(module) for item in imports(module, ast.walk(function)))
    return list({(item.node.lineno, item.name): item for item in found}.values())


@cache
def declared_dependencies() -> set[str]:
    """Names that `pip install jaxmbd` brings; each is imported by the name it is installed by, with `_` for `-`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {re.split(r"[^\w.-]", dependency)[0].replace("-", "_") for dependency in project["dependencies"]}


# The rules: each yields one message per fault, with file and line.


def check_is_in_table(module: Module) -> Iterator[str]:
    if module.room not in FLOOR_OF:
        yield f"{module.path}:1: '{module.room}' has no floor: put it into FLOORS in {TABLE}"


def check_floors(module: Module) -> Iterator[str]:
    floor = FLOOR_OF.get(module.room)
    for item in imports(module, module.nodes):
        if floor is None or not item.is_ours or item.name == module.room:
            continue
        target = FLOOR_OF.get(item.name)
        if target is None:
            yield module.at(item.node, f"imports jaxmbd.{item.name}, which has no floor")
        elif target >= floor:
            relation = "its sibling" if target == floor else "the higher"
            yield module.at(
                item.node, f"'{module.room}' (floor {floor}) imports {relation} '{item.name}' (floor {target})"
            )


def check_lazy_loads(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_loader.load"):
            continue
        dotted = ast.literal_eval(node.args[0])
        room, is_ours = split_import(dotted)
        is_higher = is_ours and room != module.room and FLOOR_OF[room] >= FLOOR_OF[module.room]
        if is_higher and (module.path.as_posix(), dotted) not in UPWARDS:
            yield module.at(node, f"loads {dotted}, which is not on a lower floor")


def check_imports_in_functions(module: Module) -> Iterator[str]:
    for item in inside_functions(module):
        if item.name not in OPTIONAL | DEFERRED:
            yield module.at(
                item.node,
                f"imports {item.name} inside a function, which is for {sorted(OPTIONAL | DEFERRED)}",
            )


def check_imports_are_declared(module: Module) -> Iterator[str]:
    allowed = declared_dependencies() | sys.stdlib_module_names | {"mpl_toolkits"}  # that comes with matplotlib
    optional = {item.node.lineno for item in inside_functions(module) if item.name in OPTIONAL}
    for item in imports(module, module.nodes):
        if not item.is_ours and item.name not in allowed and item.node.lineno not in optional:
            yield module.at(item.node, f"imports {item.name}, which the dependencies in pyproject.toml lack")


def check_function_length(module: Module) -> Iterator[str]:
    for function in functions(module):
        first, last = function.body[0], function.body[-1]
        lines = (last.end_lineno or last.lineno) - function.lineno + 1
        if ast.get_docstring(function) is not None:
            lines -= (first.end_lineno or first.lineno) - first.lineno + 1
        if lines > MAX_FUNCTION_LINES:
            yield module.at(
                function,
                f"{function.name} has {lines} lines without its docstring (at most {MAX_FUNCTION_LINES})",
            )


def check_file_length(module: Module) -> Iterator[str]:
    lines = len(module.source.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{module.path}:{lines}: the file has {lines} lines (at most {MAX_FILE_LINES})"


def check_calls(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("super", "hasattr"):
            yield module.at(node, f"calls {node.func.id}(): a class is abstract or final, and has all its fields")


def check_internals(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        names = [prefix + alias.name for alias in node.names]
        for path, internals in INTERNALS.items():
            if any(name.startswith(internals) for name in names) and str(module.path) != path:
                yield module.at(node, f"imports {names[0]}, which is undocumented: put it into {path}")


def check_drawing(module: Module) -> Iterator[str]:
    for item in imports(module, module.nodes):
        if item.name in ("matplotlib", "mpl_toolkits") and module.room not in DRAWING:
            yield module.at(item.node, f"imports {item.name}, which is for the rooms {sorted(DRAWING)}")


def check_private_modules(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxmbd."):
            _, room, *inner = f"{node.module}".split(".")
            private = any(part.startswith("_") for part in (*inner, *(alias.name for alias in node.names)))
            if private and room != module.path.parts[1]:
                yield module.at(node, f"imports from {node.module}, what is private to its room")


def check_doors(module: Module) -> Iterator[str]:
    owner = ".".join(module.path.with_suffix("").parts[1:])
    if owner.startswith("engine"):
        return
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxmbd.engine."):
            inner = f"{node.module}".removeprefix("jaxmbd.engine.")
            if not any(owner.startswith(room) and inner.startswith(doors) for room, doors in DOORS.items()):
                yield module.at(node, f"imports jaxmbd.engine.{inner}; what others use of it is in jaxmbd.engine")


Rule = Callable[[Module], Iterator[str]]
RULES: tuple[Rule, ...] = (
    check_is_in_table,
    check_floors,
    check_lazy_loads,
    check_imports_in_functions,
    check_imports_are_declared,
    check_function_length,
    check_file_length,
    check_calls,
    check_internals,
    check_private_modules,
    check_doors,
    check_drawing,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__.removeprefix("check_"))
def test_package_keeps(rule: Rule) -> None:
    modules = read_modules()
    assert modules, f"no modules in {PACKAGE}"
    faults = [fault for module in modules for fault in rule(module)]
    assert not faults, "\n" + "\n".join(faults)


def reached(module: Module, folder: Path) -> Iterator[str]:
    """The files and folders of a folder that a module in it imports from, by name."""
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                *above, child = name.split(".")[: len(folder.relative_to(ROOT).parts) + 1]
                if tuple(above) == folder.relative_to(ROOT).parts:
                    yield child


def circle(arrows: dict[str, set[str]]) -> list[str]:
    """Names that form a circle or lead into one; none if there is no circle."""
    left = dict(arrows)
    while ends := [name for name in left if not left[name] & left.keys()]:
        for name in ends:
            del left[name]
    return sorted(left)


def test_the_files_and_folders_of_each_folder_have_floors() -> None:
    """No circle of imports, neither between the files of a folder nor between the folders of a room."""
    modules = read_modules()
    for folder in {
        parent for module in modules for parent in (ROOT / module.path).parents if PACKAGE in (parent, *parent.parents)
    }:
        arrows: dict[str, set[str]] = {}
        for module in modules:
            path = ROOT / module.path
            if folder in path.parents:
                child = path.relative_to(folder).with_suffix("").parts[0]
                arrows.setdefault(child, set()).update({*reached(module, folder)} - {child})
        assert not circle(arrows), f"{folder}: {circle(arrows)}"


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["a", "b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_files_and_functions_of_tests_are_short() -> None:
    modules = read_modules(ROOT / "tests")
    faults = [fault for rule in (check_file_length, check_function_length) for m in modules for fault in rule(m)]
    assert not faults, "\n" + "\n".join(faults)


BODY = "jaxmbd/model/body/body.py"
LONG = "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
DOCUMENTED = 'def f():\n    """One\n\n    two."""\n' + "    x = 1\n" * (MAX_FUNCTION_LINES - 1)
BROKEN = [
    (check_is_in_table, "jaxmbd/novel/part.py", "", "put it into FLOORS"),
    (check_floors, BODY, "from ..joint import Revolute", "higher 'model.joint'"),
    (check_floors, BODY, "from jaxmbd import simulate", "higher '__init__'"),
    (check_floors, "jaxmbd/model/joint/deep/x.py", "from ...force import Spring", "sibling 'model.force'"),
    (check_floors, "jaxmbd/cli.py", "def f():\n    from jaxmbd.novel import g", "novel, which has no floor"),
    (check_lazy_loads, "jaxmbd/scene/scene.py", 'x = lazy_loader.load("jaxmbd.plot")', "loads jaxmbd.plot, which"),
    (check_imports_in_functions, "jaxmbd/plot/_x.py", "def f():\n    import numpy", "numpy inside"),
    (check_imports_are_declared, "jaxmbd/symbolic.py", "import sympy", "sympy, which"),
    (check_function_length, "jaxmbd/demo.py", LONG, "f has 61 lines"),
    (check_file_length, "jaxmbd/demo.py", "\n" * (MAX_FILE_LINES + 1), "501 lines"),
    (check_calls, "jaxmbd/demo.py", "x = hasattr(1, 'real')", "hasattr()"),
    (check_drawing, "jaxmbd/scene/scene.py", "from matplotlib.axes import Axes", "matplotlib, which is for"),
    (check_doors, "jaxmbd/scene/scene.py", "from jaxmbd.engine.calls.calls import Call", "what others use of it"),
    (check_private_modules, "jaxmbd/plot/_x.py", "from jaxmbd.cli._app import app", "what is private"),
    (check_internals, "jaxmbd/engine/program/x.py", "import equinox.internal as eqxi", "equinox.internal, which"),
]


def test_the_page_on_architecture_names_all_files() -> None:
    named = re.findall(r"\w+(?=\.py`)", (ROOT / "docs" / "architecture.md").read_text())
    files = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")}
    assert not sorted(str(path) for path in files if path.stem not in (*named, "__init__", "__main__"))


# A name more is a decision; what tests, examples and the command write has its place elsewhere.
AT_THE_TOP = {
    ".ci", ".github", ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md", "CITATION.cff", "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md", "benchmarks", "conda", "docs",
    "hatch_build.py", "jaxmbd", "notebooks", "pyproject.toml", "tests",
}  # fmt: skip


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the source archive has no history")
def test_what_lies_at_the_top_belongs_there() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split("/")[0] for line in listed.splitlines()} <= AT_THE_TOP


def test_the_table_of_equations_names_files_that_exist() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    rows = [row.split(" | ") for row in text.splitlines() if row.startswith("| ")][1:]
    homes = [(PACKAGE, rows_code) for _, rows_code, *_ in rows] + [(ROOT / "tests", tests) for *_, tests in rows]
    named = [(home, name) for home, cell in homes for name in re.findall(r"`([^`]+)`", cell)]
    assert len(named) > 60
    assert not [name for home, name in named if not (home / name).exists()]


@pytest.mark.parametrize(("rule", "path", "source", "expected"), BROKEN)
def test_rule_finds(rule: Rule, path: str, source: str, expected: str) -> None:
    """Each rule, broken on purpose, reports exactly that fault and where it is."""
    faults = list(rule(Module(Path(path), source)))
    assert len(faults) == 1, faults
    assert expected in faults[0]
    assert re.match(rf"{re.escape(path)}:\d+: ", faults[0])


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (BODY, "import numpy\nfrom . import planar\nfrom ...space.space import AbstractSpace"),
        ("jaxmbd/cli.py", "from jaxmbd import planar as pl\n" + DOCUMENTED),
    ],
)
def test_rules_allow(path: str, source: str) -> None:
    assert [fault for rule in RULES for fault in rule(Module(Path(path), source))] == []
