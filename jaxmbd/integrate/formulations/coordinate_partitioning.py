"""Coordinate partitioning: only the independent coordinates are integrated, the others follow from the constraints.

Source: Wehage, Haug, J. Mech. Des. 104 (1982); Haug, *Computer Aided Kinematics and Dynamics of Mechanical Systems*
(1989), §7.3; Samin, Fisette, *Symbolic Modeling of Multibody Systems* (2003), §2.3.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.rank import LeastSquaresQR, pivot_columns
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.equations.spd_solve import spd_solver
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.integrate.formulations.formulation import AbstractProjectedMethod, StateDerivative
from jaxmbd.integrate.formulations.newton_closure import (
    DependentCoordinateCorrection,
    NamedCoordinateCorrection,
    close_loops,
    consistent_speeds,
    index_of,
)
from jaxmbd.model.body.checks import checked_names
from jaxmbd.model.mechanism.mechanism import Mechanism

_DEGENERATE = 4.0  # a dependent speed this many times as fast as an independent one, both scaled by inertia


class Partition:
    """The reduced equations `M̂ v̇_i = Q̂` in the independent speeds `v_i`, at a closed position and consistent speeds.

    With `v = R v_i + b`, `v̇ = R v̇_i + c`: `M̂ = Rᵀ M R`, `Q̂ = Rᵀ (F − M c)`. Where the choice is one among the speeds,
    nothing is left out or reordered: `R` is `(nv, nv)` with zero columns for dependent speeds, for which `M̂` has ones
    on its diagonal. Named coordinates have a column each; `v_i` and `v̇_i` are their first and second derivatives.
    """

    def __init__(
        self, at: Configuration, correction: DependentCoordinateCorrection | NamedCoordinateCorrection
    ) -> None:
        stacked, (rows, _) = correction.stacked(at), at.jacobian.shape
        self.at, self.correction, self.solve = at, correction, LeastSquaresQR(stacked).least_squares
        named = isinstance(correction, NamedCoordinateCorrection)
        self.marks = jnp.ones(len(stacked) - rows, at.q.dtype) if named else correction.independent.astype(at.q.dtype)
        self.R = self.solve(jnp.concatenate([jnp.zeros((rows, len(self.marks)), at.q.dtype), jnp.diag(self.marks)]))

    def mass(self) -> Float[Array, "k k"]:
        """`M̂`."""
        return self.R.T @ self.at.inertia.matrix() @ self.R + jnp.diag(1 - self.marks)

    def bias_acceleration(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`c`: the accelerations of the dependent speeds while the independent ones stay as they are."""
        bias = jnp.zeros_like(self.marks)
        if isinstance(self.correction, NamedCoordinateCorrection):
            bias = self.correction.bias(self.at, v)
        return self.solve(jnp.concatenate([self.at.gamma(v), bias]))

    def force(self, v: Float[Array, " nv"]) -> Float[Array, " k"]:
        """`Q̂`."""
        return self.R.T @ (self.at.force(v) - self.at.inertia.times(self.bias_acceleration(v)))

    def accelerations(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """`v̇`, of all speeds."""
        return self.R @ self.reduced_accelerations(v) + self.bias_acceleration(v)

    def reduced_accelerations(self, v: Float[Array, " nv"]) -> Float[Array, " k"]:
        """`v̇_i`."""
        return spd_solver(self.mass())(self.force(v))

    def degenerate(self) -> Bool[Array, ""]:
        """Whether some dependent speed runs away from the independent ones: time for another choice."""
        scale = jnp.sqrt(jnp.diag(self.at.inertia.matrix()))
        size = jnp.max(jnp.abs(jnp.outer(scale, 1 / scale) * self.R), initial=0.0)
        return ~(size < _DEGENERATE)


class CoordinatePartitioning(AbstractProjectedMethod):
    """Integrate the independent coordinates and speeds; close the loops by Newton's method at each evaluation.

    `M̂ v̇_i = Q̂`; the dependent coordinates follow from `Φ(q, t) = 0`, the dependent speeds from `C v = −Φ_t`, so that
    no constraint is ever violated and nothing needs stabilising. Chosen automatically, the independent speeds are those
    that elimination with pivoting leaves over (columns scaled by inertia); the choice is made anew after a step on
    which a dependent speed has become more than 4 times as fast as an independent one.

    **Arguments:** `independent`, names of speeds, or of coordinates of bodies and joints, as many as there are degrees
    of freedom that drivers leave: `("crank.theta",)`, or `("O.angle",)`, in joint and in absolute coordinates. They are
    kept to the end.
    """

    independent: tuple[str, ...] | None = eqx.field(static=True, default=None)
    chosen: Bool[Array, " nv"] | None = None

    def __init__(self, independent: Sequence[str] | None = None, *, chosen: Bool[Array, " nv"] | None = None) -> None:
        self.independent = None if independent is None else checked_names("independent", independent, "O.angle")
        self.chosen = chosen

    def check(self, mechanism: Mechanism, freedom: int) -> None:
        """Raises `MechanismError` for names that do not exist, or for more or fewer than can be chosen."""
        if self.independent is None:
            return
        check_independent(mechanism, self.independent)
        chosen = len(set(self.independent))
        if chosen != freedom:
            raise MechanismError(
                f"CoordinatePartitioning names {chosen} independent variable{'s' * (chosen != 1)} "
                f"({', '.join(self.independent)}) on a mechanism with {freedom} degree{'s' * (freedom != 1)} of "
                "freedom: name as many as these, or none, and they are chosen automatically."
            )

    def begin(self, equations: Equations, t: Scalar, q: Array) -> "CoordinatePartitioning":
        if self.independent is None:
            chosen = automatic_choice(equations.at(t, q))
        elif _is_among_speeds(equations.mechanism, self.independent):
            chosen = _named_speeds(equations.mechanism, self.independent)
        else:
            chosen = jnp.zeros(equations.mechanism.nv, bool)  # the names say it
        return CoordinatePartitioning(self.independent, chosen=chosen)

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        choice = self._choice(equations, t, q)
        at = equations.at(t, close_loops(equations, t, q, choice))
        v = consistent_speeds(at, v, choice)
        vdot = Partition(at, choice).accelerations(v)
        lam = SaddlePoint(at).accelerations(at.force(v), at.gamma(v))[1]
        return StateDerivative(at.rate(v), vdot, v, vdot, lam)

    def settle(
        self, equations: Equations, t: Scalar, q: Array, v: Array
    ) -> tuple["CoordinatePartitioning", Array, Array]:
        choice = self._choice(equations, t, q)
        q = close_loops(equations, t, q, choice)
        at = equations.at(t, q)
        chosen = self.chosen
        if isinstance(choice, DependentCoordinateCorrection):
            chosen = choice.independent
            if self.independent is None:
                chosen = jnp.where(Partition(at, choice).degenerate(), automatic_choice(at), chosen)
        return CoordinatePartitioning(self.independent, chosen=chosen), q, consistent_speeds(at, v, choice)

    def _choice(
        self, equations: Equations, t: Scalar, q: Array
    ) -> DependentCoordinateCorrection | NamedCoordinateCorrection:
        if self.independent is not None and not _is_among_speeds(equations.mechanism, self.independent):
            return NamedCoordinateCorrection(self.independent)
        chosen = self.begin(equations, t, q).chosen if self.chosen is None else self.chosen
        assert chosen is not None
        return DependentCoordinateCorrection(chosen)


def automatic_choice(at: Configuration) -> Bool[Array, " nv"]:
    """The speeds that elimination with pivoting leaves over, columns scaled by inertia."""
    return ~pivot_columns(at.jacobian / jnp.sqrt(jnp.diag(at.inertia.matrix()))[None])


def _is_among_speeds(mechanism: Mechanism, names: Sequence[str]) -> bool:
    return all(index_of(mechanism, name) is not None for name in names)


def check_independent(mechanism: Mechanism, names: Sequence[str]) -> None:
    """Raises `MechanismError` for names that are neither speeds nor coordinates of bodies and joints."""
    for name in names:
        if index_of(mechanism, name) is None:
            try:
                mechanism.coordinate(name)
            except MechanismError:
                joints = (f"{j.name}.{c}" for j in mechanism.joints for c in getattr(j, "coordinate_names", ()))
                known = dict.fromkeys((*mechanism.variables, *mechanism.speed_names, *joints))
                raise unknown("independent variable", name, known) from None


def _named_speeds(mechanism: Mechanism, names: Sequence[str]) -> Bool[Array, " nv"]:
    """Which speeds are named, by their own names or those of the coordinates whose rates they are."""
    pairs = zip(mechanism.variables, mechanism.speed_names, strict=True)
    return jnp.asarray([variable in names or speed in names for variable, speed in pairs])
