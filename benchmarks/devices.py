"""Where JAX runs, and that it counts in double precision; before its first array is made."""

import jax


def use_device(device: str) -> None:
    """Run on `"cpu"` or `"gpu"`, with 64-bit floats."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cuda,cpu" if device == "gpu" else "cpu")
