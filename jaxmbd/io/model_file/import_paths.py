"""Functions and classes of users by their import paths, `"package.module:name"`: the only code that a file can name."""

import importlib
import re
import sys

from jaxmbd.io.model_file.source import Place

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
# Where libraries export what is defined in private modules of theirs.
_PUBLIC = ("jax.numpy", "jax.nn", "jax.lax", "equinox.nn")


def import_path(thing: object) -> str | None:
    """Return the path by which another process can import a function or class; None if there is none.

    It has none if it is a lambda, is defined within a function or in the script that runs, or if its name leads to
    something else.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    candidates = [(public, name) for public in _PUBLIC] + [(module, name)]
    for home, attribute in candidates:
        if _PATH.fullmatch(f"{home}:{attribute}") and _found(sys.modules.get(home), attribute) is thing:
            return f"{home}:{attribute}"
    return None


def _found(module: object, name: str) -> object:
    for part in name.split("."):
        module = getattr(module, part, None)
    return module


def imported(path: object, place: Place, trust: bool) -> object:
    """Import a function or class that a file names.

    **Raises:** `MechanismError` if the caller does not trust the file, or if there is nothing of that name.
    """
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise place.error(f"an import path is written 'package.module:name', got {path!r}.")
    if not trust:
        raise place.error(
            f"the file names Python code, {path!r}, which would be imported and run. If you trust the file and that "
            "code, pass trust=True (for the command: --trust)."
        )
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the module raises
        raise place.error(
            f"{path!r} cannot be imported ({type(error).__name__}: {error}). Its module must be on Python's path, as "
            "it was where the file was saved."
        ) from error
    return found
