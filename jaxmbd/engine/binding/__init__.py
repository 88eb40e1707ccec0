"""Programs as functions and primitives of JAX."""
