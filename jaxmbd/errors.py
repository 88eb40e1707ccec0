"""The errors of jaxmbd: each names the part, shows what was given and says what would be right."""

import difflib
from collections.abc import Iterable
from typing import Any


class MechanismError(ValueError):
    """The description of a mechanism, or the data given with it, cannot be right."""


class AssemblyError(ValueError):
    """The joints cannot be closed, or the given speeds contradict them."""


class SolveError(RuntimeError):
    """A solve ran and failed; the text says why in mechanical terms and what to try."""


def unknown(kind: str, given: Any, known: Iterable[str]) -> MechanismError:
    """An error for a name that does not exist, with the nearest names that do."""
    names = list(known)
    if not isinstance(given, str):
        listed = ", ".join(repr(name) for name in names) or "(none)"
        article = "An" if kind[0] in "aeiou" else "A"
        return MechanismError(f"{article} {kind} is named by a string, got {given!r}. Known names: {listed}.")
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(repr(name) for name in names) or "(none)"
    return MechanismError(f"There is no {kind} named {given!r}.{hint} Known names: {listed}.")
