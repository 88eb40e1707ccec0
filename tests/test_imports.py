"""What an import takes with it: libraries that are slow to import are imported when they are used."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import jaxmbd as mbd

# Imported by none of the analyses of motions, so only by those who use them.
SLOW = ("matplotlib", "xarray", "pandas", "IPython", "optax", "rich", "typer", "sympy", "zarr", "SALib", "dask")
SLOW_PARTS = ("scipy.interpolate", "scipy.optimize", "scipy.spatial")

CHILD = """
import json, sys
compiled = []
{listen}
{code}
loaded = [name for name, x in sys.modules.items() if type(x).__name__ != "_LazyModule"]
print("#" + json.dumps([loaded, len(compiled)]))
"""
LISTEN = """
import jax
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
"""


def in_a_new_process(code: str, listen: str = "") -> tuple[set[str], int]:
    """The modules that a new process has loaded after some code, and how often JAX has traced or compiled."""
    text = CHILD.format(code=code, listen=listen)
    done = subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True)
    loaded, compiled = json.loads(done.stdout.rpartition("#")[2])
    return set(loaded), compiled


def test_the_package_itself_imports_no_library() -> None:
    loaded, _ = in_a_new_process("import jaxmbd; dir(jaxmbd); jaxmbd.__version__")
    assert not loaded & {"jax", "diffrax", "equinox", "numpy", "scipy", *SLOW}


def test_all_names_of_motions_load_no_slow_library_and_compile_nothing() -> None:
    code = "import jaxmbd as mbd; mbd.planar; mbd.spatial; mbd.examples; mbd.assemble; mbd.simulate; mbd.equilibrium"
    loaded, compiled = in_a_new_process(code, LISTEN)
    assert "diffrax" in loaded
    assert not loaded & {*SLOW, *SLOW_PARTS}
    assert compiled == 0


def test_a_module_is_imported_without_looking_for_its_name_elsewhere() -> None:
    loaded, _ = in_a_new_process("from jaxmbd import model")
    assert "jaxmbd.model" in loaded
    assert "jaxmbd.optimal_design" not in loaded


def test_a_command_loads_no_library_for_pictures_before_it_prints() -> None:
    loaded, _ = in_a_new_process("import jaxmbd.cli._report; import jaxmbd.cli._settings")
    assert "jax" in loaded
    assert not loaded & {*SLOW, *SLOW_PARTS} - {"rich", "typer"}


@pytest.mark.parametrize("command", [["--help"], ["simulate", "--help"], ["show", "--help"], ["fit", "--help"]])
def test_help_loads_no_library_that_computes(command: list[str]) -> None:
    code = f"""
from jaxmbd.cli import app
sys.argv = ["jaxmbd", *{command!r}]
try:
    app()
except SystemExit as end:
    assert end.code == 0
"""
    loaded, _ = in_a_new_process(code)
    assert "jaxmbd.cli._app" in loaded
    assert not loaded & {"jax", "scipy", "matplotlib", "xarray"}


COMMAND = """
from jaxmbd.cli import app
for command in {commands!r}:
    sys.argv = ["jaxmbd", *command.split()]
    try:
        app()
    except SystemExit as end:
        assert end.code == 0
"""
# What no command takes along that says or draws what a mechanism is, without its motion.
MOTIONS = ("diffrax", "optimistix", "lineax", "optax", "jaxmbd.analyses.simulation.simulate", "jaxmbd.identification")
READERS = ("jaxmbd.io.mjcf.model", "jaxmbd.io.urdf.model", "jaxmbd.io.sdf.model", "jaxmbd.io.asmt.model", *SLOW_PARTS)


def test_commands_about_a_model_load_nothing_of_motions_and_other_files(tmp_path: Path) -> None:
    path = tmp_path / "swing.toml"
    commands = (f"new {path}", f"check {path}", "describe pendulum")
    loaded, _ = in_a_new_process(COMMAND.format(commands=commands))
    assert {"jaxmbd.io.model_file.parts", "jaxmbd.analyses.describe"} <= loaded
    assert not loaded & {*MOTIONS, *READERS, "matplotlib", "xarray", "pandas"}


def test_a_picture_of_a_model_loads_nothing_of_motions(tmp_path: Path) -> None:
    loaded, _ = in_a_new_process(COMMAND.format(commands=[f"draw pendulum --out {tmp_path / 'swing.png'}"]))
    assert "matplotlib" in loaded
    assert not loaded & {*MOTIONS, *READERS, "xarray", "pandas", "jaxmbd.plot._animate"}


@pytest.mark.slow
def test_of_a_known_model_nothing_is_compiled(tmp_path: Path) -> None:
    """Neither an analysis, which is on disk, nor the operations on its results, which NumPy carries out."""
    commands = ("check pendulum", f"draw pendulum --out {tmp_path / 'x.png'}", "linearize pendulum --no-files")
    listen = LISTEN.replace("compiled.append(event)", "'backend_compile' in event and compiled.append(event)")
    code = COMMAND.format(commands=commands)
    in_a_new_process(code)
    _, compiled = in_a_new_process(code, listen)
    assert compiled == 0


def test_completion_loads_no_library_that_computes() -> None:
    loaded, _ = in_a_new_process("""
import os
os.environ |= {"_JAXMBD_COMPLETE": "complete_bash", "COMP_WORDS": "jaxmbd draw pend", "COMP_CWORD": "2"}
from jaxmbd.cli import app
try:
    app(prog_name="jaxmbd")
except SystemExit as end:
    assert end.code == 0
""")
    assert not loaded & {"jax", "numpy", "scipy", "matplotlib", "xarray"}


def test_a_name_is_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with versions of lazy_loader that do not keep what they import."""
    asked: list[str] = []
    assert mbd.simulate is mbd.simulate
    monkeypatch.delattr(mbd, "simulate")
    monkeypatch.setattr(mbd, "_imported", lambda name: asked.append(name) or name.upper())
    assert [getattr(mbd, "simulate") for _ in range(2)] == ["SIMULATE"] * 2  # noqa: B009
    assert asked == ["simulate"]


def test_every_name_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = ast.parse(Path(mbd.__file__).with_suffix(".pyi").read_text())
    listed = {alias.asname or alias.name for x in stub.body if isinstance(x, ast.ImportFrom) for alias in x.names}
    assert listed == {*getattr(mbd, "__all__")}  # noqa: B009
    assert {*dir(mbd)} >= listed
    for name in listed:
        assert getattr(mbd, name) is not None
    mends = {"symulate": "", "Body": "There is jaxmbd.planar.Body and jaxmbd.spatial.Body.", "data": "import data."}
    monkeypatch.delattr(mbd, "data", raising=False)  # where another test has imported it
    for name, mend in mends.items():
        with pytest.raises(AttributeError, match=f"jaxmbd has no attribute '{name}'.*{mend}"):
            getattr(mbd, name)
