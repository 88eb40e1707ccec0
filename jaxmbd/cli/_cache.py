"""Compiled programs are kept from one command to the next, in the user's cache folder."""

from pathlib import Path

import jax
import platformdirs

_SECONDS = 0.3  # what compiles faster is not worth a file


def keep_compiled() -> None:
    """Turns JAX's compilation cache on, unless the user has chosen a folder (`JAX_COMPILATION_CACHE_DIR`) or none
    (`JAX_ENABLE_COMPILATION_CACHE=false`).
    """
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore
        folder = Path(platformdirs.user_cache_dir("jaxmbd")) / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _SECONDS)
