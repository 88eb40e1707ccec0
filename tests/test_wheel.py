"""What is published: the source archive, and the wheel, which needs no compiler where it is installed."""

import hashlib
import json
import os
import re
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import data as measured
from jaxmbd.engine.machine.build_vm import machine
from jaxmbd.engine.machine.gpu.launcher import launcher_library
from jaxmbd.engine.machine.prebuilt import INSTRUCTION_SETS, features_library

ROOT = Path(__file__).parents[1]
PREBUILT = re.compile(r"jaxmbd/engine/machine/prebuilt/((?:machine|launcher)-\S+)-ffi\d+\.\d+-[0-9a-f]{16}\.so")
pytestmark = pytest.mark.slow


def run_build(folder: Path, *what: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`python -m build` with the build tools of this environment."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), *what, str(ROOT)]
    return subprocess.run(command, env=os.environ | variables, cwd=ROOT, capture_output=True, text=True)


def build(folder: Path, *what: str, prebuilt: bool) -> Path:
    """The wheel that is built, with prebuilt libraries or without."""
    made = run_build(folder, *what, HATCH_BUILD_HOOK_ENABLE_CUSTOM=str(prebuilt).lower())
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with prebuilt libraries, built from the source archive that lies beside it."""
    return build(tmp_path_factory.mktemp("dist"), prebuilt=True)


def contents(wheel: Path) -> dict[str, str]:
    """The files of a wheel, and hashes of their contents."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()}


def sources() -> set[str]:
    """All files of the package, less what running it leaves."""
    paths = (path for path in (ROOT / "jaxmbd").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


def test_a_wheel_holds_the_package_and_libraries_for_this_architecture(wheel: Path, tmp_path: Path) -> None:
    """Nothing else; without the libraries it is the same, and for all systems."""
    assert re.fullmatch(r"jaxmbd-[\w.]+-py3-none-manylinux_2_\d+_(x86_64|aarch64)\.whl", wheel.name)
    files = contents(wheel)
    libraries = {name: found[1] for name in files if (found := PREBUILT.fullmatch(name))}
    known = [x.name for x in INSTRUCTION_SETS if wheel.stem.endswith(x.architecture)]
    assert sorted(libraries.values()) == sorted(f"{what}-{name}" for what in ("machine", "launcher") for name in known)
    package = {name for name in files if ".dist-info/" not in name}
    assert package - set(libraries) == sources()
    for name in sources():
        assert files[name] == hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
    pure = build(tmp_path, "--wheel", prebuilt=False)  # of the tree itself, not of the archive
    assert pure.name.endswith("-py3-none-any.whl")
    different = {"WHEEL", "RECORD"}
    assert {n: h for n, h in contents(pure).items() if Path(n).name not in different} == {
        n: h for n, h in files.items() if n not in libraries and Path(n).name not in different
    }


def test_a_wheel_that_lacks_its_libraries_is_not_built(tmp_path: Path) -> None:
    made = run_build(tmp_path, "--wheel", HATCH_BUILD_HOOK_ENABLE_CUSTOM="true", CC="/bin/false")
    assert made.returncode != 0
    assert "'/bin/false' returned non-zero exit status" in made.stdout + made.stderr
    assert [*tmp_path.iterdir()] == []


# Stands in for the package ziglang: it makes what passes for a library, and writes down for which system.
STAND_IN = """
import os, sys
arguments = sys.argv[1:]
with open(os.environ["ASKED"], "a") as file:
    file.write(" ".join(arguments) + "\\n")
output = arguments[arguments.index("-o") + 1]
with open(output, "w") as file:
    file.write("x" * 64 + os.environ["NAMES"])
"""


@pytest.mark.parametrize(
    ("tag", "clang", "ending", "count"),
    [
        ("manylinux_2_28_aarch64", "aarch64-linux-gnu.2.28", ".so", 2),
        ("macosx_11_0_arm64", "aarch64-macos.11.0", ".dylib", 1),
        ("win_amd64", "x86_64-windows-gnu", ".dll", 4),
    ],
)
def test_wheels_of_other_systems_are_named_as_these_look_for_them(
    tag: str, clang: str, ending: str, count: int, tmp_path: Path
) -> None:
    """The compiler is told the system, and no option that it does not know; `make wheels` uses the true one."""
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__main__.py").write_text(STAND_IN)
    names = " ".join([*machine().symbols, *launcher_library().symbols, *features_library().symbols])
    variables = {"PYTHONPATH": str(tmp_path), "ASKED": str(tmp_path / "asked"), "NAMES": names, "JAXMBD_WHEEL": tag}
    made = run_build(tmp_path, "--wheel", HATCH_BUILD_HOOK_ENABLE_CUSTOM="true", **variables)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = tmp_path.glob(f"jaxmbd-*-py3-none-{tag}.whl")
    libraries = [Path(name).name for name in contents(wheel) if "/prebuilt/" in name]
    assert len(libraries) == count
    assert {Path(name).suffix for name in libraries} == {ending}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert len(asked) == count
    assert all(line.startswith(f"cc -target {clang} -s ") and "-march" not in line for line in asked)


def test_a_wheel_for_an_unknown_system_is_not_built(tmp_path: Path) -> None:
    made = run_build(tmp_path, "--wheel", HATCH_BUILD_HOOK_ENABLE_CUSTOM="true", JAXMBD_WHEEL="win32")
    assert made.returncode != 0
    assert (
        "There are no wheels for JAXMBD_WHEEL='win32'; platforms are manylinux_2_28_x86_64" in made.stdout + made.stderr
    )


def test_the_source_archive_can_be_tested_and_built(wheel: Path) -> None:
    """It holds what `make test` and `make dist` read, and nothing that they or an editor leave."""
    (path,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        files = {Path(*Path(name).parts[1:]).as_posix() for name in archive.getnames()}
    assert files >= sources() | {"LICENSE", "README.md", "pyproject.toml", "hatch_build.py", "Makefile"}
    read = ("tests/**/*.*", "benchmarks/*.py", "conda/*", "docs/**/*.md", ".github/**/*.yml", ".ci/*", "*.md")
    expected = {path.relative_to(ROOT).as_posix() for pattern in read for path in ROOT.glob(pattern)}
    assert {name for name in expected if "__pycache__" not in name and not name.startswith("docs/generated/")} <= files
    assert [name for name in files if re.search(r"\.(pyc|so|o)$|(^|/)(__pycache__|\.venv|out|dist|build)/", name)] == []


MOTION = """
import ctypes, sys, time
import jax, numpy as np, jaxmbd as mbd
jax.config.update("jax_enable_x64", True)
from jaxmbd.engine.binding import jax_binding
from jaxmbd.engine.machine import build_vm, straight_line_compiler
from jaxmbd.engine.machine.gpu import launcher
assert "site-packages" in mbd.__file__, mbd.__file__
example = mbd.examples.get("pendulum")
solution = mbd.simulate(example.mechanism, example.state(), np.linspace(0.0, 1.0, 5), engine="interpreter")
energy, kinetic = (np.asarray(solution.energies()[name]) for name in ("energy", "kinetic_energy"))
assert np.ptp(energy) < 1e-6 * kinetic.max(), energy
vm = build_vm.vm()
most = max(vm.jaxmbd_evaluations(ctypes.c_uint64(key), 0) for key in jax_binding._programs)
vm.jaxmbd_watch(straight_line_compiler._pipe, ctypes.c_int64(most + 1))  # often is more than in the first motion
for _ in range(3):
    assert mbd.simulate(example.mechanism, example.state(), [0.0, 1.0]).engine == "interpreter"
    time.sleep(0.2)
assert straight_line_compiler._failures  # it was tried in vain
try:
    mbd.simulate(example.mechanism, example.state(), [0.0, 1.0], engine="native")
except mbd.SolveError as error:
    assert "needs a C compiler" in str(error), error
else:
    raise AssertionError("straight-line code was compiled without a compiler")
launcher.launcher()
print(build_vm.description(), file=sys.stderr)
"""


class Installed:
    """A wheel in an empty environment and home, with no compiler on the path and one in CC that fails."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        environment, self.home = folder / "environment", folder / "home"
        venv.create(environment, symlinks=True)
        self.python, self.command = (str(environment / "bin" / name) for name in ("python", "jaxmbd"))
        pip = [sys.executable, "-m", "pip", "--python", self.python, "--disable-pip-version-check", "install", "-q"]
        subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
        (packages,) = environment.glob("lib/python3*/site-packages")
        # The dependencies come from here; lines of `.pth` files in those folders are not read, so no jaxmbd does.
        here = [*site.getsitepackages(), *(p for p in sys.path if p and not (Path(p) / "jaxmbd").exists())]
        (packages / "dependencies.pth").write_text("\n".join(here))
        self.home.mkdir()
        self._variables = {
            "HOME": str(self.home), "CC": "/bin/false", "PATH": str(environment / "bin"), "MPLBACKEND": "agg",
        }  # fmt: skip

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command, which must succeed."""
        done = subprocess.run(command, env=self._variables, cwd=self.home, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done


def check_it_needs_no_compiler(wheel: Path, folder: Path) -> None:
    """A wheel with prebuilt libraries is installed and used."""
    installed = Installed(wheel, folder)
    assert "simulate" in installed.run(installed.command, "--help").stdout
    assert "virtual machine: prebuilt for" in installed.run(installed.command, "version").stdout
    installed.run(installed.command, "simulate", "planar-four-bar", "--no-film", "--out", str(installed.home / "out"))
    assert (installed.home / "out" / "simulate.nc").exists()
    assert "prebuilt for" in installed.run(installed.python, "-W", "error", "-c", MOTION).stderr
    data = [name for name in vars(measured) if name.endswith("pendulum")]
    assert len(data) == 3
    installed.run(installed.python, "-c", "from jaxmbd import data; " + "; ".join(f"data.{name}()" for name in data))
    assert [path.name for path in installed.home.rglob("*.so")] == []


def test_an_installed_wheel_needs_no_compiler(wheel: Path, tmp_path: Path) -> None:
    check_it_needs_no_compiler(wheel, tmp_path)


FALLBACK = """
import json, sys
import jax, numpy as np, jaxmbd as mbd
jax.config.update("jax_enable_x64", True)
assert "site-packages" in mbd.__file__, mbd.__file__
example = mbd.examples.get("planar-four-bar")
solution = mbd.simulate(example.mechanism, example.state(), np.linspace(0.0, 1.0, 5))
found = {"q": solution.q.tolist(), "energy": solution.energies()["energy"].tolist(), "engine": solution.engine}
print(json.dumps(found))
"""


def test_a_wheel_without_libraries_computes_the_same(tmp_path: Path) -> None:
    """By XLA and NumPy, after a warning, where there is no compiler either."""
    installed = Installed(build(tmp_path, "--wheel", prebuilt=False), tmp_path)
    assert "virtual machine: none, XLA alone" in installed.run(installed.command, "version").stdout
    done = installed.run(installed.python, "-c", FALLBACK)
    assert "It needs a C compiler" in done.stderr
    found = json.loads(done.stdout)
    example = mbd.examples.get("planar-four-bar")
    solution = mbd.simulate(example.mechanism, example.state(), np.linspace(0.0, 1.0, 5))
    assert solution.engine != found["engine"]
    np.testing.assert_allclose(found["q"], solution.q, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["energy"], solution.energies()["energy"], rtol=1e-9, atol=1e-9)
    assert [path.name for path in installed.home.rglob("*.so")] == []
