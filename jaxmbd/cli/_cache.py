"""The compilation cache of the commands, in the user's cache folder."""

from pathlib import Path

import jax
import platformdirs

from jaxmbd.compile.cache.files import limit_size, make_own_folder, size_limit

_SECONDS = 0.3  # [s] compilations that are faster are not stored


def keep_compiled() -> None:
    """Enable JAX's compilation cache, unless the user has chosen a folder (`JAX_COMPILATION_CACHE_DIR`) or disabled it
    (`JAX_ENABLE_COMPILATION_CACHE=false`, `JAXMBD_CACHE_MIB=0`).

    Files of the cache are executed, so only the user may be able to write to the folder. If all files, including those
    of JAX, exceed `JAXMBD_CACHE_MIB` together, the least recently used ones are removed.
    """
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore
        folder = Path(platformdirs.user_cache_dir("jaxmbd")) / "compiled"
        if size_limit() <= 0 or not make_own_folder(folder):
            return
        limit_size(folder, "*", size_limit())
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _SECONDS)
