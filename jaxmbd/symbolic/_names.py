"""Symbol names for the coordinates, speeds and loads of a mechanism.

`"O.angle"` becomes `theta_O`, its rate `thetadot_O` (SymPy prints a dot), its acceleration `thetaddot_O`. A user's own
symbol for a coordinate also names its rates: `theta3`, `thetadot3`, `thetaddot3`.
"""

import re
from collections.abc import Iterable, Mapping

from jaxmbd.errors import MechanismError, unknown

_SHORT = {"angle": "theta", "displacement": "s", "angle_a": "alpha", "angle_b": "beta"}


def symbol_names(names: Iterable[str], chosen: Mapping[str, str]) -> list[str]:
    """A symbol for each name: the user's, if there is one, or the default."""
    return [chosen.get(name) or _symbol(name) for name in names]


def speed_names(names: Iterable[str], chosen: Mapping[str, str]) -> list[str]:
    """Symbols for speeds: the rate of a coordinate has the coordinate's symbol with a dot."""
    symbols = []
    for name in names:
        rated = name.removesuffix("_rate")
        symbol = chosen.get(name) or (dotted(chosen.get(rated) or _symbol(rated)) if rated != name else _symbol(name))
        symbols.append(symbol)
    return symbols


def dotted(symbol: str, dots: str = "dot") -> str:
    """The symbol with a dot above, in SymPy's notation: the suffix `dot` before the index."""
    stem = re.split(r"_|\d+$", symbol)[0]
    index = symbol.removeprefix(stem)
    return f"{stem}{dots}{index}"


def accelerated(symbol: str) -> str:
    """The symbol of the rate of a speed: with a second dot if it has one already."""
    return symbol.replace("dot", "ddot", 1) if "dot" in symbol else dotted(symbol)


def check_given(chosen: Mapping[str, str], known: Iterable[str], used: Iterable[str]) -> None:
    """Raise unless the user's symbols are for existing names and all symbols differ."""
    names = list(known)
    for name, symbol in chosen.items():
        if name not in names:
            raise unknown("coordinate, speed or load", name, names)
        if not isinstance(symbol, str) or not symbol.isidentifier():
            raise MechanismError(f"The symbol for {name!r} must be a word such as 'theta3', got {symbol!r}.")
    seen: set[str] = set()
    for symbol in used:
        if symbol in seen:
            raise MechanismError(f"Two symbols are called {symbol!r}; name one of them otherwise with symbols={{...}}.")
        seen.add(symbol)


def _symbol(name: str) -> str:
    owner, _, component = name.partition(".")
    clean = re.sub(r"\W", "", owner)
    if not component:
        return clean
    return f"{_SHORT.get(component, component)}_{clean}"
