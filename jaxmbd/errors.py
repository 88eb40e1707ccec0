"""The errors of jaxmbd; each message names the part, the wrong value and what is valid."""

import difflib
from collections.abc import Iterable
from typing import Any


class MechanismError(ValueError):
    """The description of a mechanism, or an argument of an analysis, is invalid."""


class AssemblyError(ValueError):
    """The mechanism cannot be assembled, or the prescribed speeds contradict the constraints."""


class SolveError(RuntimeError):
    """A numerical solution failed; the message states the mechanical cause and what to try."""


def check_known(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for the first of the given names that does not exist."""
    names = list(known)
    for name in given:
        if name not in names:
            raise unknown(kind, name, names)


def unknown(kind: str, given: Any, known: Iterable[str]) -> MechanismError:
    """The error for a name that does not exist, with the most similar existing name."""
    names = list(known)
    listed = ", ".join(map(repr, names)) or "(none)"
    if not isinstance(given, str):
        article = "An" if kind[0] in "aeiou" else "A"
        return MechanismError(f"{article} {kind} is named by a string, got {given!r}. Known names: {listed}.")
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return MechanismError(f"There is no {kind} named {given!r}.{hint} Known names: {listed}.")
