"""The errors of jaxmbd; each message names the part, the wrong value and what is valid."""

import difflib
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

_LISTED = 32  # largest number of names in a message
_LONG = 60  # characters of a value in a message; of a longer one its type is named
_DIGITS = 20  # of a whole number in a message


def printable(text: str) -> str:
    """A text for a terminal: characters that cannot be printed are escaped, as `repr` does, but for ends of lines.

    Texts from files of others (keys, names, paths, what libraries say of them) may hold control characters, which move
    the cursor or send commands to the terminal, marks that turn the direction of writing, and letters without width.
    """
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


class AbstractError(Exception):
    """An error whose text, which may quote a file, is safe on a terminal."""

    def __str__(self) -> str:
        return printable(" ".join(map(str, self.args)))


class MechanismError(AbstractError, ValueError):
    """The description of a mechanism, or an argument of an analysis, is invalid."""


class NoDerivativeError(MechanismError):
    """A derivative is needed that a part does not have."""


class AssemblyError(AbstractError, ValueError):
    """The mechanism cannot be assembled, or the prescribed speeds contradict the constraints."""


class SolveError(AbstractError, RuntimeError):
    """A numerical solution failed; the message states the mechanical cause and what to try."""


def shown(value: Any) -> str:
    """A value in a message: itself if it is short, else its type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, int) and abs(value) >= 10**_DIGITS:
        return f"a whole number of {value.bit_length()} bits"  # Python refuses to print very long ones
    if value is None or isinstance(value, str | bytes | int | float | complex | list | tuple):
        text = repr(value)
        if len(text) <= _LONG or isinstance(value, str):
            return text
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def is_one_of(value: Any, options: Iterable[str | int]) -> bool:
    """True if a value is one of some texts or whole numbers; an array is none, and cannot be compared with them."""
    return isinstance(value, str | int) and value in options


def needs(what: str, package: str, extra: str) -> None:
    """Raise unless the package of an optional dependency is installed, which the extra `jaxmbd[extra]` installs."""
    if find_spec(package) is None:
        raise MechanismError(
            f"{what} needs the package {package}, which is not installed: pip install 'jaxmbd[{extra}]'."
        )


def check_known(kind: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for the first of the given names that does not exist."""
    names = list(known)
    for name in given:
        if not is_one_of(name, names):
            raise unknown(kind, name, names)


def unknown(kind: str, given: Any, known: Iterable[str]) -> MechanismError:
    """The error for a name that does not exist, with the most similar existing name."""
    names = list(dict.fromkeys(known))
    if not isinstance(given, str):
        article = "An" if kind[0] in "aeiou" else "A"
        return MechanismError(f"{article} {kind} is named by a string, got {given!r}. {_listed(names)}.")
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    is_owner = any(name.startswith(f"{given}.") for name in names)  # 'rod' is no misspelt 'rod.y'
    hint = f" Did you mean {near[0]!r}?" if near and not is_owner else ""
    return MechanismError(f"There is no {kind} named {given!r}.{hint} {_listed(names, given, *near)}.")


def _listed(names: list[str], *like: str) -> str:
    """The names that there are; of many, those of the part that is meant by its own or a similar name, or the parts."""
    if len(names) <= _LISTED:
        return f"Known names: {_some(names)}"
    for owner in (name.partition(".")[0] for name in like):
        own = [name for name in names if name.startswith(f"{owner}.")]
        if own:
            return f"Known names of {owner!r}: {_some(own)}"
    parts = dict.fromkeys(name if "." not in name else f"{name.partition('.')[0]}.…" for name in names)
    return f"Known names: {_some(list(parts))}"


def _some(names: list[str]) -> str:
    rest = f", … ({len(names)} in all)" if len(names) > _LISTED else ""
    return (", ".join(map(repr, names[:_LISTED])) or "(none)") + rest
