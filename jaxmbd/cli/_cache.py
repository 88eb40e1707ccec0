"""Compiled programs are kept from one command to the next, in the user's cache folder."""

from pathlib import Path

import jax
import platformdirs

from jaxmbd.compile.cache.files import limit_size, make_own_folder, size_limit

_SECONDS = 0.3  # what compiles faster is not worth a file


def keep_compiled() -> None:
    """Turns JAX's compilation cache on, unless the user has chosen a folder (`JAX_COMPILATION_CACHE_DIR`) or none
    (`JAX_ENABLE_COMPILATION_CACHE=false`, `JAXMBD_CACHE_MIB=0`).

    It runs what it reads there, so the folder must be one that only the user can write. The files that were least
    recently used go where all of them take more than `JAXMBD_CACHE_MIB`, JAX's own among them.
    """
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore
        folder = Path(platformdirs.user_cache_dir("jaxmbd")) / "compiled"
        if size_limit() <= 0 or not make_own_folder(folder):
            return
        limit_size(folder, "*", size_limit())
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _SECONDS)
