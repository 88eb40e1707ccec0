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


_ALL, _NEAREST = 24, 12  # of more names than the first, so many are listed, the nearest ones


def unknown(kind: str, given: Any, known: Iterable[str]) -> MechanismError:
    """The error for a name that does not exist, with the most similar existing name; of many names it lists those that
    are most similar."""
    names = list(dict.fromkeys(known))
    if not isinstance(given, str):
        article = "An" if kind[0] in "aeiou" else "A"
        listed = ", ".join(map(repr, names)) or "(none)"
        return MechanismError(f"{article} {kind} is named by a string, got {given!r}. Known names: {listed}.")
    near = difflib.get_close_matches(given, names, n=_NEAREST, cutoff=0.0)
    hint = f" Did you mean {near[0]!r}?" if difflib.get_close_matches(given, near[:1], cutoff=0.5) else ""
    shown, more = (names, "") if len(names) <= _ALL else (near, f", ... and {len(names) - len(near)} more")
    listed = ", ".join(map(repr, shown)) or "(none)"
    return MechanismError(f"There is no {kind} named {given!r}.{hint} Known names: {listed}{more}.")
