"""`System`: the equations of a mechanism piece by piece, in the form that symbolic multibody programs export.

    M ṗ = F,                 q̇ = h(p, q, t)                   without constraints
    M ṗ + Cᵀ λ = F,          Φ(q, t) = 0                      with multipliers
    M ṗ + C_fᵀ f = F,        Φ(q, t) = 0                      with the reactions f in the cut joints

and, with `ε = γ − 2α Φ̇ − β² Φ`, as differential equations alone, `A Y = B`:

    [[M, 0, C_fᵀ], [0, 1, 0], [C, 0, 0]] [ṗ; q̇; f] = [F; h; ε]

and in independent speeds `u` alone, with `p = R u + b`, `ṗ = R u̇ + c` (coordinate partitioning):

    M̂ u̇ = Q̂,   M̂ = Rᵀ M R,   Q̂ = Rᵀ (F − M c)

The names are those of MapleSim's multibody exports: `xM`, `vF`, `xC`, `vReactions`, `vLambda`, `vQ`, `vP`, `vPdot`,
`vXdot` (which is `[ṗ; q̇]`), and `Psi_p` for the constraint Jacobian `C`, where `xC` is `C_f`. States of parts add
their rates, `ż = g(t, q, p, z)`, below those of the coordinates: in `A Y = B`, and in `vXdot`. Each piece is one JAX
function of `(t, q, p)`, which is evaluated for numbers, and traced for formulas and source text.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.analyses.describe import load_names, signed_loads
from jaxmbd.arrays import Number, Scalar, as_float
from jaxmbd.checks import check_finite
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.integrate.formulations.coordinate_partitioning import (
    CoordinatePartitioning,
    ReducedEquations,
    automatic_choice,
    check_independent,
)
from jaxmbd.integrate.formulations.newton_closure import NamedCoordinateCorrection, RowsAndSpeeds
from jaxmbd.model.force.load_friction import check_nothing_rubs
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.parameters.places import place_of_number
from jaxmbd.state.state import State, check_state
from jaxmbd.user_functions import call_user

Where: TypeAlias = str | Callable[[Mechanism], PyTree] | tuple[Callable[[Mechanism], PyTree], int]


class PiecesAtInstant:
    """The equations of a mechanism at `(t, q, p)`, with a method for each piece."""

    def __init__(self, system: "System", t: Scalar, q: Array, p: Array) -> None:
        self.at: Configuration = Equations(system.mechanism).at(t, q)
        self.p, self.alpha, self.beta, self.independent = p, system.alpha, system.beta, system.independent

    @property
    def C(self) -> Float[Array, "m nv"]:
        """The constraint Jacobian."""
        return self.at.jacobian

    @property
    def C_f(self) -> Float[Array, "m nv"]:
        """The coefficients of the reactions, `C_fᵀ f = Cᵀ λ`."""
        return self.C / load_scale(self.at.mechanism)[:, None]

    def epsilon(self) -> Float[Array, " m"]:
        """`ε = γ − 2α Φ̇ − β² Φ`."""
        return self.at.gamma(self.p) - 2 * self.alpha * self.at.velocity(self.p) - self.beta**2 * self.at.position()

    def h(self) -> Float[Array, " nq"]:
        """`q̇`; for Euler parameters without the term that stabilizes their norm in a simulation."""
        now = jnp.zeros((), self.p.dtype)
        qdot = jax.jvp(lambda s: self.at.placement.along(self.p, s), (now,), (jnp.ones_like(now),))[1]
        return jnp.concatenate([qdot, self.at.angles(self.p)[1]]) if self.at.mechanism.turns else qdot

    def A(self) -> Float[Array, "n n"]:
        """The matrix of `A Y = B`, with reactions."""
        C, C_f = self.C, self.C_f
        m, nv, nq = len(C), len(self.p), len(self.at.q) + len(self.at.mechanism.layout.z)
        zeros = lambda *shape: jnp.zeros(shape, C.dtype)  # noqa: E731
        rows = [
            [self.at.inertia.matrix(), zeros(nv, nq), C_f.T],
            [zeros(nq, nv), jnp.eye(nq, dtype=C.dtype), zeros(nq, m)],
            [C, zeros(m, nq), zeros(m, m)],
        ]
        return jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows])

    def B(self) -> Float[Array, " n"]:
        """The right-hand side of `A Y = B`."""
        return jnp.concatenate([self.at.force(self.p), self.h(), self.at.own_rates(self.p), self.epsilon()])

    def augmented(self) -> Float[Array, "k k"]:
        """`[[M, Cᵀ], [C, 0]]`."""
        C = self.C
        rows = [[self.at.inertia.matrix(), C.T], [C, jnp.zeros((len(C), len(C)), C.dtype)]]
        return jnp.concatenate([jnp.concatenate(row, axis=1) for row in rows])

    @cached_property
    def partition(self) -> ReducedEquations:
        """The reduced equations in the named independent variables."""
        if self.independent is None:
            raise MechanismError(
                "Which variables are independent has to be said for the reduced equations as functions: "
                'export(mechanism, independent=["O.angle"]). At a state they are chosen if none are named: '
                'system.at(state)["M_hat"].'
            )
        return ReducedEquations(self.at, NamedCoordinateCorrection(self.independent))

    def solved(self) -> tuple[Array, Array]:
        """`ṗ` and `λ`."""
        return SaddlePoint(self.at).accelerations(self.at.force(self.p), self.epsilon())


class Pieces(dict[str, np.ndarray]):
    """The pieces of the equations at a state as arrays, by name."""

    def __missing__(self, name: object) -> np.ndarray:
        raise unknown("piece", name, self)


class System(eqx.Module):
    """The equations of a mechanism, to be evaluated, or written as formulas or source text.

    `coordinates`, `speeds`, `reactions`, `multipliers`: the names of the entries of `q`, `p`, `f` and `λ`.
    `alpha`, `beta` `[1/s]`: Baumgarte's parameters, zero by default. `independent`: the names of the independent
    variables of the reduced equations, None if they are chosen at each state.
    """

    mechanism: Mechanism
    alpha: Scalar = eqx.field(converter=as_float, default=0.0)
    beta: Scalar = eqx.field(converter=as_float, default=0.0)
    independent: tuple[str, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        check_mechanism(self.mechanism)
        check_nothing_rubs(self.mechanism, "An exported system of equations")
        check_finite("export", "alpha", self.alpha)
        check_finite("export", "beta", self.beta)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the entries of `q`."""
        return self.mechanism.coordinate_names

    @property
    def speeds(self) -> tuple[str, ...]:
        """Names of the entries of `p`."""
        return self.mechanism.speed_names

    @property
    def own_states(self) -> tuple[str, ...]:
        """Names of the entries of `z`."""
        return self.mechanism.layout.z.names

    @property
    def reactions(self) -> tuple[str, ...]:
        """Names of the entries of `f`: `"B.Fx"`, …; for a driver its effort."""
        return load_names(self.mechanism)

    @property
    def multipliers(self) -> tuple[str, ...]:
        """Names of the entries of `λ`: `"B.lambda1"`, …"""
        return tuple(f"{name}.lambda{row + 1}" for name, row in self.mechanism.row_labels())

    def piece(self, name: str) -> Callable[[Scalar, Array, Array], Array]:
        """One of the pieces `xM`, `vF`, `xC`, `Psi_p`, `Phi`, `Phi_dot`, `Phi_t`, `gamma`, `epsilon`, `h`, `A`, `B`,
        `g`, `vPdot`, `vLambda`, `vReactions`, `vXdot`, `augmented`, `M_hat`, `Q_hat`, `R` as a function of `(t, q, p)`
        that JAX can trace, compile and differentiate. The last three belong to the reduced equations."""
        read = _READ.get(name)
        if read is None:
            raise unknown("piece", name, _READ)
        return lambda t, q, p: read(self.instant(t, q, p))

    def instant(self, t: Scalar, q: Array, p: Array) -> PiecesAtInstant:
        """The equations at `(t, q, p)`."""
        return PiecesAtInstant(self, t, q, p)

    def at(self, state: State) -> Pieces:
        """Every piece at a state as an array by its name, with `vQ`, `vP` and the `rank` of the augmented matrix.

        The rank is `nv + m` if no constraint is redundant (singular values of `C` below 1e-7 of the largest count as
        zero). The reduced equations are those in the variables `independent_at(state)`.
        """
        check_state(self.mechanism, state)
        independent = self.independent_at(state)
        system = dataclasses.replace(self.with_own_states(state.z), independent=independent)
        pieces = _all(system, jnp.asarray(state.t), state.q, state.v)
        return Pieces({name: np.asarray(value) for name, value in pieces.items()})

    def independent_at(self, state: State) -> tuple[str, ...]:
        """The names of the independent variables at a state, one for each row of `M_hat`.

        They are those of `independent`, or else the columns without a pivot in an elimination with pivoting.

        **Raises:** `MechanismError` if `independent` has too many or too few names, or does not determine the others.
        """
        C, marks = (np.asarray(x) for x in _choice(self.mechanism, jnp.asarray(state.t), state.q))
        freedom = self.mechanism.nv - int(rank_of(jnp.asarray(C)))
        usual = tuple(name for name, mark in zip(self.mechanism.variables, marks, strict=True) if mark)
        if self.independent is None:
            return usual
        CoordinatePartitioning(self.independent).check(self.mechanism, freedom)
        stacked = _stacked(self.mechanism, self.independent, jnp.asarray(state.t), state.q)
        if int(rank_of(stacked)) < self.mechanism.nv:
            raise MechanismError(
                f"{', '.join(self.independent)} cannot be the independent variables here: the constraints tie them to "
                f"one another, or hold one of them. {', '.join(usual)} would do."
            )
        return self.independent

    def with_own_states(self, z: Sequence[Number] | Array) -> "System":
        """The same system at other states of parts, those that the pieces are evaluated with."""
        return dataclasses.replace(self, mechanism=self.mechanism.with_own_states(jnp.asarray(z)))

    def with_parameters(self, where: Sequence[Where], values: Sequence[Number] | Array) -> "System":
        """The same system with some numbers of its mechanism replaced.

        **Arguments:** `where`, for each value the name of the number to replace, `"rod.mass"`, `"B.a.position[0]"`, or
        a function that selects it, `lambda mechanism: mechanism["rod"].mass`, or one that selects a vector and an
        index, `(lambda mechanism: mechanism["B"].a.position, 0)`.

        **Raises:** `MechanismError` if a name or a function does not select one number.
        """
        mechanism = self.mechanism
        if len(where) != len(values):
            raise MechanismError(f"with_parameters needs one value for each place, got {len(where)} and {len(values)}.")
        for place, value in zip(where, values, strict=True):
            mechanism = _replaced(mechanism, place, value)
        return dataclasses.replace(self, mechanism=mechanism)


def _replaced(mechanism: Mechanism, where: Where, value: Number) -> Mechanism:
    if isinstance(where, str):
        return place_of_number("with_parameters", "where", where, mechanism).replaced(mechanism, jnp.asarray(value))
    place, index = where if isinstance(where, tuple) else (where, None)
    selected = call_user("with_parameters", "where", place, mechanism, takes="mechanism")
    if not eqx.is_array(selected):
        raise MechanismError(f"A parameter must be one number of the mechanism, and this place holds {selected!r}.")
    leaf = jnp.asarray(selected)
    if index is not None and leaf.ndim == 1 and index < leaf.shape[0]:
        return eqx.tree_at(place, mechanism, leaf.at[index].set(value))
    if index is not None or leaf.ndim:
        raise MechanismError(
            f"A parameter must be one number, and this place has shape {leaf.shape}. Of a vector give the place and an "
            'index: (lambda mechanism: mechanism["B"].a.position, 0).'
        )
    return eqx.tree_at(place, mechanism, jnp.asarray(value))


_READ: Mapping[str, Callable[[PiecesAtInstant], Array]] = {
    "xM": lambda of: of.at.inertia.matrix(),
    "vF": lambda of: of.at.force(of.p),
    "xC": lambda of: of.C_f,
    "Psi_p": lambda of: of.C,
    "Phi": lambda of: of.at.position(),
    "Phi_dot": lambda of: of.at.velocity(of.p),
    "Phi_t": lambda of: of.at.velocity(jnp.zeros_like(of.p)),  # in `Φ̇ = C p + Φ_t`
    "gamma": lambda of: of.at.gamma(of.p),
    "epsilon": lambda of: of.epsilon(),
    "h": lambda of: of.h(),
    "g": lambda of: of.at.own_rates(of.p),
    "A": lambda of: of.A(),
    "B": lambda of: of.B(),
    "vPdot": lambda of: of.solved()[0],
    "vLambda": lambda of: of.solved()[1],
    "vReactions": lambda of: of.solved()[1] * load_scale(of.at.mechanism),
    "vXdot": lambda of: jnp.concatenate([of.solved()[0], of.h(), of.at.own_rates(of.p)]),
    "augmented": lambda of: of.augmented(),
    "M_hat": lambda of: of.partition.mass(),
    "Q_hat": lambda of: of.partition.force(of.p),
    "R": lambda of: of.partition.R,
}


@cached_on_disk
def _all(system: System, t: Array, q: Array, p: Array) -> dict[str, Array]:
    of = system.instant(t, q, p)
    rank = system.mechanism.nv + rank_of(of.at.equations.scales.jacobian(of.C))  # M is regular
    return {"vQ": q, "vP": p, "rank": rank, **{name: read(of) for name, read in _READ.items()}}


@cached_on_disk
def _choice(mechanism: Mechanism, t: Array, q: Array) -> tuple[Array, Array]:
    at = Equations(mechanism).at(t, q)
    return at.equations.scales.jacobian(at.jacobian), automatic_choice(at)


@cached_on_disk
def _stacked(mechanism: Mechanism, names: tuple[str, ...], t: Array, q: Array) -> Array:
    equations = Equations(mechanism)
    stacked = NamedCoordinateCorrection(names).stacked(equations.at(t, q))
    return RowsAndSpeeds(stacked, equations.scales, equations.scales.rows).scaled.dense()


def load_scale(mechanism: Mechanism) -> Float[Array, " m"]:
    """The factor from each multiplier to its reaction: ±1, or a rod's length for its tension."""
    factors = []
    for (name, _), load in zip(mechanism.row_labels(), signed_loads(mechanism), strict=True):
        factors.append(mechanism[name].length if load == "T" else jnp.asarray(-1.0 if load.startswith("-") else 1.0))
    return jnp.stack(factors) if factors else jnp.ones(0)


def export(
    mechanism: Mechanism, *, alpha: Number = 0.0, beta: Number = 0.0, independent: Sequence[str] | None = None
) -> System:
    """Export the equations of a mechanism piece by piece.

    **Arguments:** `mechanism`, in the coordinates of the equations (`mechanism.with_coordinates("joint")`); `alpha`,
    `beta` `[1/s]`, Baumgarte's parameters; `independent`, for the reduced equations `M̂ u̇ = Q̂`, names of speeds or of
    coordinates of bodies and joints, as many as there are degrees of freedom, in joint and in absolute coordinates.

    **Returns:** a `System`: `system.at(state)["xM"]` is an array of numbers, `system.piece("xM")` a function that JAX
    can trace; `SymbolicSystem(system)` has formulas and source text.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> system = mbd.export(pendulum.mechanism, independent=["rod.theta"])
        >>> print(system.at(pendulum.state())["M_hat"].round(4))  # [kg m²] about the pin
        [[0.5]]
    """
    names = CoordinatePartitioning(independent).independent
    check_independent(mechanism, names or ())
    return System(mechanism, alpha, beta, names)
