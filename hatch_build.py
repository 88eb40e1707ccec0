"""Wheels with prebuilt libraries, for computers without a C compiler: `make dist`, and for all systems `make wheels`.

Hatchling runs this hook if the environment variable `HATCH_BUILD_HOOK_ENABLE_CUSTOM` is `true`. A wheel that is built
without it is for all systems; there the virtual machine is compiled when it is used first.

The variable `JAXMBD_WHEEL` names the platform, by its tag, for which the libraries are compiled; clang in the package
`ziglang` does that on any system, since it brings the headers and symbols of each C library. Without the variable it
is the system on which the wheel is built, with its own compiler.
"""

import os
import platform
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

PATIENCE = 3600.0  # [s] time limit of a compiler, of which as many run as there are processors


class Target(NamedTuple):
    """A platform with wheels. `tag`: the wheel's; `system`, `architecture`: as Python and Linux call them; `clang`: as
    clang in `ziglang` does, with the oldest version of the C library or system."""

    tag: str
    system: str
    architecture: str
    clang: str


# No older systems than those of jaxlib's wheels.
TARGETS = (
    Target("manylinux_2_28_x86_64", "Linux", "x86_64", "x86_64-linux-gnu.2.28"),
    Target("manylinux_2_28_aarch64", "Linux", "aarch64", "aarch64-linux-gnu.2.28"),
    Target("macosx_11_0_arm64", "Darwin", "aarch64", "aarch64-macos.11.0"),
    Target("win_amd64", "Windows", "x86_64", "x86_64-windows-gnu"),
)
# That of the target is the least instruction set, and the options for it have other names in ziglang.
LEAST = ("-march=x86-64", "-march=armv8-a")


class PrebuiltLibraries(BuildHookInterface):
    """Compiles the virtual machine and what it needs for each instruction set of a platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile them into the wheel, and give the wheel the tag of their platform.

        Raises:
            OSError: If there is no compiler, or no instruction set for this system.
            ValueError: If there are no wheels for what `JAXMBD_WHEEL` names.
            subprocess.SubprocessError: If the compiler fails.
        """
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from jaxmbd.engine.machine.prebuilt import FOLDER, INSTRUCTION_SETS, ffi_version, file_name, made_for

        target, command, unknown = _chosen()
        sets = [x for x in INSTRUCTION_SETS if x.architecture == target.architecture]
        made = [
            (made_for(x, y), y) for x, y in product(_libraries(target), sets) if x.name != "features" or not y.flags
        ]
        self._made = tempfile.TemporaryDirectory(prefix="jaxmbd-")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            contents = [pool.submit(library.compiled, command, unknown, PATIENCE) for library, _ in made]
            for (library, instructions), content in zip(made, contents, strict=True):
                path = Path(self._made.name) / file_name(library, instructions, ffi_version(), target.system)
                self.app.display_info(f"compiling {path.name}")
                path.write_bytes(content.result())
                place = FOLDER.relative_to(self.root) / path.name
                build_data["force_include"][str(path)] = place.as_posix()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{target.tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled; the wheel has it."""
        if version != "editable":
            self._made.cleanup()


def _libraries(target: Target) -> list[Any]:
    """The libraries of a wheel: Linux tells what a processor has, and has JAX for GPUs."""
    from jaxmbd.engine.machine.build_vm import machine
    from jaxmbd.engine.machine.gpu.launcher import launcher_library
    from jaxmbd.engine.machine.prebuilt import features_library

    others = {"Linux": [launcher_library()], "Windows": [features_library()]}
    return [machine(), *others.get(target.system, [])]


def _chosen() -> tuple[Target, list[str] | None, tuple[str, ...]]:
    """The platform, its compiler, and the options that this one does not know."""
    from jaxmbd.engine.machine.c_library import architecture, compiler

    wanted = os.environ.get("JAXMBD_WHEEL", "")
    if wanted:
        found = [target for target in TARGETS if target.tag == wanted]
        if not found:
            tags = ", ".join(target.tag for target in TARGETS)
            raise ValueError(f"There are no wheels for JAXMBD_WHEEL={wanted!r}; platforms are {tags}.")
        # Without symbols for debuggers, which are most of a library.
        return found[0], [sys.executable, "-m", "ziglang", "cc", "-target", found[0].clang, "-s"], LEAST
    here = (platform.system(), architecture())
    tag = next((x for x in platform_tags() if x.startswith("manylinux")), None)  # of this version of glibc
    if tag is None or here not in [(target.system, target.architecture) for target in TARGETS]:
        raise OSError(
            f"This system's own compiler makes libraries on Linux with glibc on x86_64 and aarch64, not on "
            f"{platform.platform()}. Name a platform in JAXMBD_WHEEL ({', '.join(target.tag for target in TARGETS)}), "
            "or leave out HATCH_BUILD_HOOK_ENABLE_CUSTOM: the wheel then has no libraries, and serves all systems."
        )
    return Target(tag, *here, ""), compiler(), ()
