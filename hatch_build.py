"""Wheels with prebuilt libraries, for computers without a C compiler: `make dist`.

Hatchling runs this hook if the environment variable `HATCH_BUILD_HOOK_ENABLE_CUSTOM` is `true`. A wheel that is built
without it is for all systems; there the virtual machine is compiled when it is used first.
"""

import platform
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags


class PrebuiltLibraries(BuildHookInterface):
    """Compiles the virtual machine and the launcher of kernels for each instruction set of this architecture."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile them into the wheel, and give the wheel the tag of this system and its C library.

        Raises:
            OSError: If there is no compiler, or no instruction set for this system.
            subprocess.SubprocessError: If the compiler fails.
        """
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from jaxmbd.engine.machine.build_vm import machine
        from jaxmbd.engine.machine.c_library import compiler
        from jaxmbd.engine.machine.gpu.launcher import launcher_library
        from jaxmbd.engine.machine.prebuilt import FOLDER, INSTRUCTION_SETS, ffi_version, file_name, made_for

        chosen = [x for x in INSTRUCTION_SETS if x.architecture == platform.machine()]
        tag = next((x for x in platform_tags() if x.startswith("manylinux")), None)  # of this version of glibc
        if not chosen or tag is None:
            known = " and ".join(sorted({x.architecture for x in INSTRUCTION_SETS}))
            raise OSError(
                f"Libraries are prebuilt on Linux with glibc on {known}, not on {platform.platform()}. Without the "
                "variable HATCH_BUILD_HOOK_ENABLE_CUSTOM the wheel has none, and serves all systems."
            )
        self._made = tempfile.TemporaryDirectory(prefix="jaxmbd-")
        for wanted, instructions in product((machine(), launcher_library()), chosen):
            library = made_for(wanted, instructions)
            path = Path(self._made.name) / file_name(library, instructions, ffi_version())
            self.app.display_info(f"compiling {path.name}")
            path.write_bytes(library.compiled(compiler()))
            target = FOLDER.relative_to(self.root) / path.name
            build_data["force_include"][str(path)] = target.as_posix()
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled; the wheel has it."""
        if version != "editable":
            self._made.cleanup()
