"""Which code is that of the libraries whose versions are part of the key of what is stored."""

import sys
from types import FunctionType, ModuleType

LIBRARIES = ("jax", "jaxlib", "numpy", "equinox", "diffrax", "optimistix", "lineax", "optax")
_KNOWN = {
    *LIBRARIES, "jaxmbd", "jaxtyping", "abc", "builtins", "collections", "dataclasses", "enum", "functools", "math",
    "operator", "types", "typing",
}  # fmt: skip


def is_of_library(value: object, library: str | None = None) -> bool:
    """True if a class or function is written in a known library, or in the given one.

    A function counts where its code stands: `functools.wraps` gives a user's function the names of a library's.
    """
    module = (
        value.__globals__.get("__name__") if isinstance(value, FunctionType) else getattr(value, "__module__", None)
    )
    root = module.partition(".")[0] if isinstance(module, str) else ""
    return root in _KNOWN if library is None else root == library


def is_found_by_name(value: object) -> bool:
    """True if a known library has this very object under the name that it gives itself."""
    module, path = (getattr(value, name, None) for name in ("__module__", "__qualname__"))
    if isinstance(value, ModuleType) or not isinstance(module, str) or not isinstance(path, str):
        return False
    if not is_of_library(value):
        return False
    at: object = sys.modules.get(module)
    for part in path.split("."):
        at = getattr(at, part, None)
    while at is not value and at is not None:  # a decorator's result has the name of what it decorates
        at = getattr(at, "__wrapped__", None)
    return at is value
