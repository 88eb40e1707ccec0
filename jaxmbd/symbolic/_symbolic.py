"""`SymbolicSystem`: the equations of a mechanism as SymPy formulas, traced from the JAX code of the analyses.

Symbols are named by coordinates, speeds and loads: `"O.angle"` becomes `theta_O`, its rate `thetadot_O` (SymPy prints a
dot), its acceleration `thetaddot_O`. A user's own symbol for a coordinate also names its rates: `theta3`, `thetadot3`,
`thetaddot3`.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.checks import check_instance
from jaxmbd.engine.binding.ldlt_primitive import FORMULAS
from jaxmbd.errors import MechanismError, is_one_of, needs, unknown
from jaxmbd.printing import count_of
from jaxmbd.symbolic._normal import normal_forms
from jaxmbd.symbolic._source import to_c, to_numpy
from jaxmbd.symbolic._sympy import Expression, Matrix, to_sympy
from jaxmbd.symbolic._system import System, Where
from jaxmbd.symbolic.graph.node import Graph, Node
from jaxmbd.symbolic.graph.trace import TracedGraph, trace

_FORMULAS = ("xM", "vF", "xC", "Psi_p", "Phi", "Phi_dot", "Phi_t", "gamma", "epsilon", "h", "g")
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


def _piece(name: str, meaning: str) -> "cached_property[Matrix]":
    """A property that is a piece of `System` as a SymPy matrix."""

    def matrix(self: "SymbolicSystem") -> Matrix:
        return self._matrix(name)

    matrix.__doc__ = meaning
    return cached_property(matrix)


class SymbolicSystem:
    """The equations of a mechanism in symbols; `System` defines the pieces.

    **Arguments:** `system`; `symbols`, names of symbols for coordinates, speeds and loads,
    `{"O.angle": "theta1", "B.Fx": "Fx"}`; default: `theta_O`, …; `parameters`, numbers of the mechanism that become
    symbols, by their names, `{"m": "rod.mass", "L": "B.a.position[0]"}`, or by functions, with an index for components
    of vectors, `{"L": (lambda mechanism: mechanism["B"].a.position, 0)}`; `simplify`, True to bring entries to a normal
    form, in which equal terms cancel (very long entries are not simplified); `baumgarte`, symbols for α and β of
    `epsilon` and `ode()`, `("alpha", "beta")`; default: the numbers of the system.

    Each piece is a SymPy matrix: `xM`, `vF`, `xC`, `Psi_p`, `Phi`, `Phi_dot`, `Phi_t`, `gamma`, `epsilon`, `h`, `g`,
    and the columns of symbols `vQ`, `vP`, `vZ`, `vPdot`, `vQdot`, `vZdot`, `vXdot`, `vReactions`, `vLambda`. `matrices`
    holds their names, and `sources` those of the pieces that `source` writes.
    """

    matrices = (*_FORMULAS, "vQ", "vP", "vZ", "vPdot", "vQdot", "vZdot", "vXdot", "vReactions", "vLambda")
    sources = (*_FORMULAS, "A", "B", "augmented", "vPdot", "vLambda", "vReactions", "vXdot")

    def __init__(
        self,
        system: System,
        symbols: Mapping[str, str] | None = None,
        parameters: Mapping[str, Where] | None = None,
        simplify: bool = True,
        baumgarte: tuple[str, str] | None = None,
    ) -> None:
        check_instance("system", system, System, "a System, export(mechanism)")
        chosen, self.system, self.simplify = dict(symbols or {}), system, simplify
        self.parameters, self.baumgarte = dict(parameters or {}), _pair(baumgarte)
        self._q = symbol_names(system.coordinates, chosen)
        is_chosen = system.mechanism.speeds is not None  # generalized speeds need not be rates of coordinates
        self._p = symbol_names(system.speeds, chosen) if is_chosen else speed_names(system.speeds, chosen)
        self._z = symbol_names(system.own_states, chosen)
        self._f = symbol_names(system.reactions, chosen)
        self._lambda = symbol_names(system.multipliers, chosen)
        names = (*system.coordinates, *system.speeds, *system.own_states, *system.reactions, *system.multipliers)
        rates = [dotted(name) for name in self._q] if is_chosen else []
        check_given(chosen, names, (*self._inputs, *rates))
        self._graph = Graph()
        self._traced: dict[str, TracedGraph] = {}

    # --- the pieces -------------------------------------------------------------------------------------

    xM = _piece("xM", "`M`.")
    vF = _piece("vF", "`F`.")
    xC = _piece("xC", "`C_f`, with `M ṗ + C_fᵀ f = F`.")
    Psi_p = _piece("Psi_p", "`C`, with `M ṗ + Cᵀ λ = F`.")
    Phi = _piece("Phi", "`Φ`.")
    Phi_dot = _piece("Phi_dot", "`Φ̇`.")
    Phi_t = _piece("Phi_t", "`Φ_t`, with `Φ̇ = C p + Φ_t`.")
    gamma = _piece("gamma", "`γ`, with `C ṗ = γ`.")
    epsilon = _piece("epsilon", "`ε = γ − 2α Φ̇ − β² Φ`.")
    h = _piece("h", "`q̇ = h(p, q, t)`.")
    g = _piece("g", "`ż = g(t, q, p, z)`, the rates of the states of parts.")

    @property
    def vQ(self) -> Matrix:
        """The coordinates `q`."""
        return _column(self._q)

    @property
    def vP(self) -> Matrix:
        """The speeds `p`."""
        return _column(self._p)

    @property
    def vZ(self) -> Matrix:
        """The states of parts `z`."""
        return _column(self._z)

    @property
    def vZdot(self) -> Matrix:
        """`ż`."""
        return _column([dotted(name) for name in self._z])

    @property
    def vPdot(self) -> Matrix:
        """`ṗ`."""
        return _column([accelerated(name) for name in self._p])

    @property
    def vXdot(self) -> Matrix:
        """`[ṗ; q̇; ż]`."""
        return self.vPdot.col_join(self.vQdot).col_join(self.vZdot)

    @property
    def vQdot(self) -> Matrix:
        """`q̇` as symbols; a rate that is also a speed has the same symbol."""
        return _column([dotted(name) for name in self._q])

    @property
    def vReactions(self) -> Matrix:
        """The forces and moments `f` in the cut joints."""
        return _column(self._f)

    @property
    def vLambda(self) -> Matrix:
        """The multipliers `λ`."""
        return _column(self._lambda)

    # --- sets of equations ------------------------------------------------------------------------------

    def dynamics(self, form: str = "reactions") -> list[Expression]:
        """`M ṗ + C_fᵀ f = F`, or with multipliers `M ṗ + Cᵀ λ = F`, as a list of scalar equations."""
        loads = self._loads(form)
        left = self.xM * self.vPdot + (loads[0].T * loads[1] if self._lambda else 0 * self.vPdot)
        return _equal(left, self.vF)

    def dae(self, form: str = "reactions") -> list[Expression]:
        """The differential-algebraic equations, `2n + m` of them without states of parts: the dynamics, `q̇ = h`,
        `ż = g` and `Φ = 0`."""
        rates = *_equal(self.vQdot, self.h), *_equal(self.vZdot, self.g)
        return [*self.dynamics(form), *rates, *_equal(self.Phi, 0 * self.Phi)]

    def ode(self, form: str = "reactions") -> tuple[Matrix, Matrix, Matrix]:
        """The matrices `A`, `Y`, `B` of the differential equations `A Y = B`: `2n` rows, `2n + m` with constraints, and
        one for each state of a part."""
        sympy = _sympy()
        loads, symbols = self._loads(form)
        m = len(self._lambda)
        left = sympy.diag(self.xM, sympy.eye(len(self._q) + len(self._z)))
        A = left.row_join(sympy.zeros(left.rows, m)).col_join(sympy.zeros(m, left.cols + m))
        A[: self.xM.rows, left.cols :] = loads.T
        A[left.rows :, : self.xM.cols] = self.Psi_p
        return A, self.vXdot.col_join(symbols), self._with_rates(self.vF).col_join(self.epsilon)

    def _with_rates(self, rows: Matrix) -> Matrix:
        return rows.col_join(self.h).col_join(self.g)

    def explicit(self, form: str = "reactions") -> tuple[Matrix, Matrix]:
        """`[ṗ; q̇; ż]` and the loads as formulas: the differential equations with the loads eliminated.

        `(C M⁻¹ C_fᵀ) f = C M⁻¹ F − ε`, `ṗ = M⁻¹ (F − C_fᵀ f)`. It is meant for small systems: for more than a few
        bodies the formulas fill pages.
        """
        free = self.xM.LUsolve(self.vF)
        if not self._lambda:
            return self._with_rates(free), _column([])
        change = self.xM.LUsolve(self._loads(form)[0].T)
        loads = (self.Psi_p * change).LUsolve(self.Psi_p * free - self.epsilon)
        return self._with_rates(free - change * loads), loads

    def _loads(self, form: str) -> tuple[Matrix, Matrix]:
        if not is_one_of(form, ("reactions", "multipliers")):
            raise MechanismError(f"form must be 'reactions' or 'multipliers', got {form!r}.")
        return (self.xC, self.vReactions) if form == "reactions" else (self.Psi_p, self.vLambda)

    # --- text -------------------------------------------------------------------------------------------

    def latex(self, form: str = "reactions") -> str:
        """The dynamics and the constraints in LaTeX, matrices written out."""
        sympy = _sympy()
        write = lambda matrix: sympy.latex(matrix, mat_delim="[")  # noqa: E731
        text = rf"{write(self.xM)} {write(self.vPdot)}"
        if not self._lambda:
            return rf"{text} = {write(self.vF)}"
        loads, symbols = self._loads(form)
        text = rf"{text} + {write(loads.T)} {write(symbols)} = {write(self.vF)}"
        return rf"{text}, \qquad {write(self.Phi)} = 0"

    def __repr__(self) -> str:
        counts = (self._q, "coordinate"), (self._p, "speed"), (self._lambda, "constraint")
        symbols = [f"parameters as symbols: {', '.join(numbers)}"] if (numbers := self._numbers[len(self._z) :]) else []
        symbols = [*([f"states of parts: {', '.join(self._z)}"] if self._z else []), *symbols]
        lines = [
            f"SymbolicSystem of {', '.join(count_of(len(names), what) for names, what in counts)}",
            f"coordinates: {', '.join(self._q)}",
            f"speeds: {', '.join(self._p)}",
            *symbols,
            "xM, vF, xC, Psi_p, Phi, gamma, h, … are SymPy matrices; dynamics(), dae() and ode() sets of equations, "
            "latex() and source() texts.",
        ]
        return "\n".join(lines)

    def _repr_latex_(self) -> str:
        return rf"$\displaystyle {self.latex()}$"

    def source(self, language: str = "numpy", pieces: Sequence[str] = ("xM", "vF"), name: str = "equations") -> str:
        """Source text of a function of `(t, q, p, …)` that computes pieces, for NumPy or C.

        `…` are the states of parts, the parameters, and α and β if they have symbols.

        The pieces `vPdot`, `vLambda`, `vReactions` and `vXdot` are available too, for small systems.
        """
        write = {"numpy": to_numpy, "c": to_c}.get(language)
        if write is None:
            raise unknown("language", language, ("numpy", "c"))
        if not pieces:
            raise MechanismError("source needs the name of one piece at least, such as pieces=['xM'].")
        outputs = {piece: self._trace(piece).result for piece in pieces}
        inputs = self._trace(pieces[0]).inputs
        arguments = dict(zip(("t", "q", "p", *self._numbers), inputs, strict=True))
        doc = f"{', '.join(pieces)} of a mechanism with q = ({', '.join(self.system.coordinates)})."
        return write(name, arguments, outputs, doc)

    # --- tracing ----------------------------------------------------------------------------------------

    def _trace(self, piece: str) -> TracedGraph:
        if piece not in self._traced:
            where = list(self.parameters.values())

            def function(t: Array, q: Array, p: Array, *values: Array) -> Array:
                z, values = values[: len(self._z)], values[len(self._z) :]
                system = self.system.with_own_states(z) if z else self.system
                system = system.with_parameters(where, values[: len(where)])
                for field, value in zip(("alpha", "beta"), values[len(where) :], strict=False):
                    system = dataclasses.replace(system, **{field: value})
                return system.piece(piece)(t, q, p)

            title = f"The piece {piece!r} of the mechanism"
            self._traced[piece] = trace(
                function, "t", self._q, self._p, *self._numbers, graph=self._graph, title=title, rules=FORMULAS
            )
        return self._traced[piece]

    def _matrix(self, piece: str) -> Matrix:
        nodes, symbols = self._trace(piece).result, _real(self._inputs)
        norms = dict.fromkeys(self._norms, 1)
        if not self.simplify:
            return to_sympy(nodes, symbols, norms)
        sympy = _sympy()
        forms = normal_forms(nodes, symbols, self._units)
        long = np.array([node for node, form in zip(nodes.flat, forms, strict=True) if form is None], dtype=object)
        rest = iter(to_sympy(long, symbols, norms) if long.size else ())
        entries = [next(rest) if form is None else form for form in forms]
        return sympy.Matrix(nodes.shape[0], nodes.shape[1] if nodes.ndim == 2 else 1, entries)

    @property
    def _inputs(self) -> tuple[str, ...]:
        return ("t", *self._q, *self._p, *self._numbers)

    @property
    def _numbers(self) -> tuple[str, ...]:
        """The symbols of the states of parts, of the parameters, and of Baumgarte's α and β."""
        return (*self._z, *self.parameters, *self.baumgarte)

    @property
    def _units(self) -> list[list[str]]:
        """The symbols of Euler parameters, one group of four for each body."""
        starts = [i for i, name in enumerate(self.system.coordinates) if name.endswith(".e0")]
        return [self._q[i : i + 4] for i in starts]

    @cached_property
    def _norms(self) -> list[Node]:
        """The nodes of the squared norms of Euler parameters, as the equations compute them; they are replaced by 1."""
        square = lambda e: jnp.sum(e * e)  # noqa: E731
        return [trace(square, names, graph=self._graph).result.item() for names in self._units]


def _pair(names: tuple[str, str] | None) -> tuple[str, ...]:
    """The symbols of α and β, checked; empty if there are none."""
    if names is None:
        return ()
    if isinstance(names, str) or len(names) != 2 or not all(isinstance(n, str) and n.isidentifier() for n in names):
        raise MechanismError(f"baumgarte must be two symbols, for α and β, such as ('alpha', 'beta'), got {names!r}.")
    return tuple(names)


def _sympy() -> Any:
    needs("A formula of SymbolicSystem", "sympy", "symbolic")
    import sympy

    return sympy


def _real(names: Sequence[str]) -> dict[str, Expression]:
    sympy = _sympy()
    return {name: sympy.Symbol(name, real=True) for name in names}


def _column(names: Sequence[str]) -> Matrix:
    sympy = _sympy()
    return sympy.Matrix(len(names), 1, list(_real(names).values()))


def _equal(left: Matrix, right: Matrix) -> list[Expression]:
    sympy = _sympy()
    return [sympy.Eq(a, b, evaluate=False) for a, b in zip(left, right, strict=True)]
