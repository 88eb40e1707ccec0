"""The equations of a mechanism as text: numbers, formulas, source."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxmbd.errors import MechanismError, check_known, needs
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.numbers import numbers_of
from jaxmbd.state.state import State
from jaxmbd.symbolic import SymbolicSystem, export

_USUAL = ("xM", "vF", "Psi_p", "Phi", "gamma")  # pieces of `M ṗ + Cᵀ λ = F`, `Φ = 0`, `C ṗ = γ`
ENDINGS = {"text": ".txt", "latex": ".tex", "sympy": ".py", "numpy": ".py", "c": ".c"}  # of files, by format
_NAMES = ("coordinates", "speeds", "multipliers", "reactions")


def parameters(mechanism: Mechanism, given: Iterable[str]) -> dict[str, str]:
    """Parse `["rod.mass=m"]` to the names of numbers by their symbols, as `SymbolicSystem` wants them."""
    found: dict[str, str] = {}
    for text in given:
        name, _, symbol = text.rpartition("=")
        if not name or not symbol.isidentifier():
            raise MechanismError(f"--symbol takes a number of a part and a word, rod.mass=m, got {text!r}.")
        check_known("number of a part", [name], numbers_of(mechanism))
        found[symbol] = name
    return found


def numbers(mechanism: Mechanism, state: State, pieces: Sequence[str]) -> str:
    """Return pieces at a state as matrices of numbers; those of the equations of motion if none are named."""
    system = export(mechanism)
    values = system.at(state)
    check_known("piece of --format text", pieces, values)
    lines = [f"{kind}: {', '.join(getattr(system, kind)) or 'none'}" for kind in _NAMES]
    for name in pieces or _USUAL:
        value = np.asarray(values[name])
        shape = " × ".join(map(str, value.shape)) or "a number"
        lines += ["", f"{name} ({shape})", np.array2string(value + 0.0, precision=6, suppress_small=True)]
    return "\n".join(lines)


def formulas(mechanism: Mechanism, places: Mapping[str, Any], format: str, pieces: Sequence[str]) -> str:
    """Return pieces as formulas in LaTeX or SymPy, or as source text in NumPy or C."""
    system = SymbolicSystem(export(mechanism), parameters=places)
    known = system.sources if format in ("numpy", "c") else system.matrices
    check_known(f"piece of --format {format}", pieces, known)
    if format in ("numpy", "c"):
        return system.source(format, pieces or ("xM", "vF", *(("Psi_p", "gamma") if system.system.multipliers else ())))
    if format == "latex" and not pieces:
        return system.latex()
    names = pieces or ("vQ", "vP", *_USUAL[: None if system.system.multipliers else 2])
    needs(f"equations --format {format}", "sympy", "symbolic")
    import sympy

    write = sympy.latex if format == "latex" else str
    return "\n".join(f"{name} = {write(getattr(system, name))}" for name in names)
