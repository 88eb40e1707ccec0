"""The settings of JAX for commands, and the versions in use."""

import os
import platform
from importlib.metadata import version

import jax

from jaxmbd import __version__
from jaxmbd.engine.machine.build_vm import description
from jaxmbd.engine.store.artefacts import remove_excess, size_limit, user_folder
from jaxmbd.engine.store.own_files import make_own_folder

# A command runs each computation once: time spent on compiler optimisations is rarely recovered.
_QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def configure() -> None:
    """The settings of JAX for commands: double precision, and a cache on disk."""
    os.environ.setdefault("XLA_FLAGS", _QUICK)
    jax.config.update("jax_enable_x64", True)
    keep_compiled()


_SECONDS = 0.3  # [s] compilations that are faster are not stored


def keep_compiled() -> None:
    """Enable JAX's compilation cache, unless the user has chosen a folder (`JAX_COMPILATION_CACHE_DIR`) or disabled it
    (`JAX_ENABLE_COMPILATION_CACHE=false`, `JAXMBD_CACHE_MIB=0`).

    JAX executes its files without checking them, so only the user may be able to write to the folder. They count with
    ours (`JAXMBD_CACHE_MIB`). JAX removes none, so a command does when it starts.
    """
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore
        folder = user_folder()
        if size_limit() <= 0 or not make_own_folder(folder):
            return
        remove_excess()
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _SECONDS)


def versions() -> str:
    """What a report of an error should name: versions, the system, the device, and what evaluates the equations."""
    others = ", ".join(f"{name} {version(name)}" for name in ("jaxlib", "numpy", "diffrax", "equinox", "optimistix"))
    return "\n".join((
        f"jaxmbd {__version__}, jax {jax.__version__}, {jax.devices()[0].device_kind}",
        f"Python {platform.python_version()}, {others}",
        platform.platform(),
        f"virtual machine: {description()}",
    ))  # fmt: skip
