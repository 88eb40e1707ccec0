"""Coordinate partitioning: integrate the independent coordinates, and solve the constraints for the dependent ones.

Source: Wehage, Haug, J. Mech. Des. 104 (1982); Haug, *Computer Aided Kinematics and Dynamics of Mechanical Systems*
(1989), §7.3; Samin, Fisette, *Symbolic Modeling of Multibody Systems* (2003), §2.3.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar, frozen
from jaxmbd.checks import checked_names
from jaxmbd.engine import as_program
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.integrate.formulations.formulation import AbstractClosingFormulation, StateDerivative
from jaxmbd.integrate.formulations.independent_constraints import first_maximum, varied_weights
from jaxmbd.integrate.formulations.newton_closure import (
    AbstractCorrection,
    AbstractStackedCorrection,
    DependentCoordinateCorrection,
    MassWeightedCorrection,
    NamedCoordinateCorrection,
    RowsAndSpeeds,
    close_loops,
    consistent_speeds,
    index_of,
)
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.linear_solve import pivot_columns, spd_solver

_DEGENERATE = 4.0  # largest accepted ratio of a dependent to an independent speed, both scaled by inertia
# Steps of Newton's method at a stage. They converge quadratically, from an error that is a power of the step's length:
# if a stage is not closed after four of them, the step is too long.
_LAPS = 4


class ReducedEquations:
    """The reduced equations `M̂ v̇_i = Q̂` in the independent speeds `v_i`, at a closed configuration.

    With `v = R v_i + b`, `v̇ = R v̇_i + c`: `M̂ = Rᵀ M R`, `Q̂ = Rᵀ (F − M c)`. If the independent variables are among the
    generalized speeds, no entry is removed or reordered: `R` is `(nv, nv)` with zero columns for the dependent speeds,
    and `M̂` has ones on its diagonal there. Named coordinates have one column each; `v_i` and `v̇_i` are then their
    first and second time derivatives. The speeds `v` must be consistent.
    """

    def __init__(self, at: Configuration, correction: AbstractStackedCorrection) -> None:
        stacked, scales, rows = correction.stacked(at), at.equations.scales, at.equations.m
        self.at, self.correction, self.solve = at, correction, RowsAndSpeeds(stacked, scales, scales.rows).least_squares
        self.marks = jnp.ones(stacked.shape[0] - rows, at.q.dtype)
        if isinstance(correction, DependentCoordinateCorrection):
            self.marks = correction.independent.astype(at.q.dtype)
        self.R = self.solve(jnp.concatenate([jnp.zeros((rows, len(self.marks)), at.q.dtype), jnp.diag(self.marks)]))

    def mass(self) -> Float[Array, "k k"]:
        """The reduced mass matrix `M̂`."""
        return self.R.T @ self.at.inertia.matrix() @ self.R + jnp.diag(1 - self.marks)

    def bias_acceleration(self, v: Float[Array, " nv"]) -> Float[Array, " nv"]:
        """The bias acceleration `c`: the accelerations of all speeds for `v̇_i = 0`."""
        bias = jnp.zeros_like(self.marks)
        if isinstance(self.correction, NamedCoordinateCorrection):
            bias = self.correction.bias(self.at, v)
        return self.solve(jnp.concatenate([self.at.gamma(v), bias]))

    def force(self, v: Float[Array, " nv"]) -> Float[Array, " k"]:
        """The reduced generalized force `Q̂`."""
        return self._force(v, self.bias_acceleration(v))

    def _force(self, v: Float[Array, " nv"], bias: Float[Array, " nv"]) -> Float[Array, " k"]:
        return self.R.T @ (self.at.force(v) - self.at.inertia.times(bias))

    def accelerations(self, v: Float[Array, " nv"]) -> tuple[Float[Array, " k"], Float[Array, " nv"]]:
        """The independent accelerations `v̇_i`, and those of all generalized speeds, `v̇`."""
        bias = self.bias_acceleration(v)
        independent = spd_solver(self.mass())(self._force(v, bias))
        return independent, self.R @ independent + bias


class CoordinatePartitioning(AbstractClosingFormulation):
    """Integrate the independent coordinates and speeds; close the loops by Newton's method at each evaluation.

    `M̂ v̇_i = Q̂`; the dependent coordinates follow from `Φ(q, t) = 0`, the dependent speeds from `C v = −Φ_t`, so that
    the constraints are satisfied at each evaluation and need no stabilisation. By default the independent speeds are
    the columns of `C`, scaled by inertia, that elimination with pivoting does not use as pivots; one of them is
    exchanged after a step at whose end a dependent speed is more than 4 times as fast.

    **Arguments:** `independent`, names of generalized speeds, or of coordinates of bodies and joints, as many as the
    degrees of freedom that are not driven: `("crank.theta",)`, or `("O.angle",)`, in joint and in absolute coordinates.
    They are used for the whole motion.
    """

    independent: tuple[str, ...] | None = eqx.field(static=True, default=None)
    chosen: Bool[Array, " nv"] | None = None

    def __init__(self, independent: Sequence[str] | None = None, *, chosen: Bool[Array, " nv"] | None = None) -> None:
        self.independent = None if independent is None else checked_names("independent", independent, "O.angle")
        self.chosen = chosen

    def check(self, mechanism: Mechanism, freedom: int) -> None:
        """Raise `MechanismError` for unknown names, or for a number of them other than the degrees of freedom."""
        if self.independent is None:
            return
        check_independent(mechanism, self.independent)
        count = len(set(self.independent))
        if count != freedom:
            raise MechanismError(
                f"CoordinatePartitioning names {count} independent variable{'s' * (count != 1)} "
                f"({', '.join(self.independent)}) on a mechanism with {freedom} degree{'s' * (freedom != 1)} of "
                "freedom: name as many as these, or none, and they are chosen automatically."
            )

    def begin(self, equations: Equations, t: Scalar, q: Array) -> "CoordinatePartitioning":
        if self.independent is not None or not equations.m:
            return self
        return CoordinatePartitioning(chosen=automatic_choice(equations.at(t, q)))

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        correction = self.correction(equations)
        at = equations.at(t, close_loops(equations, t, q, correction, _LAPS))
        v = consistent_speeds(at, v, correction)
        # Of consistent speeds the augmented system gives the accelerations of the reduced equations, and multipliers.
        vdot, lam = SaddlePoint(at).accelerations(at.force(v), at.gamma(v))
        return StateDerivative(at.rate(v), vdot, v, vdot, lam)

    def correction(self, equations: Equations) -> AbstractCorrection:
        """That of the dependent coordinates; before any are chosen, at one instant, the least change closes as well."""
        if self.independent is None:
            return MassWeightedCorrection() if self.chosen is None else DependentCoordinateCorrection(self.chosen)
        if _are_speeds(equations.mechanism, self.independent):
            return DependentCoordinateCorrection(_named_speeds(equations.mechanism, self.independent))
        return NamedCoordinateCorrection(self.independent)

    def choice(self) -> Bool[Array, " nv"] | None:
        return self.chosen

    def with_choice(self, choice: Bool[Array, " nv"]) -> "CoordinatePartitioning":
        return CoordinatePartitioning(self.independent, chosen=choice)

    def next_choice(self, equations: Equations, t: Scalar, q: Array) -> Bool[Array, " nv"] | None:
        if self.chosen is None:
            return None
        return as_program(exchanged_speeds)(*frozen((equations, t, q, self.chosen)))


def automatic_choice(at: Configuration) -> Bool[Array, " nv"]:
    """Mask of the independent speeds: the columns of `C`, scaled by inertia, that are no pivot columns."""
    return ~pivot_columns(at.jacobian / jnp.sqrt(jnp.diag(at.inertia.matrix()))[None])


def exchanged_speeds(equations: Equations, t: Scalar, q: Array, chosen: Bool[Array, " nv"]) -> Bool[Array, " nv"]:
    """The independent speeds after an exchange, if a dependent speed is much faster than the independent ones.

    It is the largest one in a weighted sum of the columns of `R`, scaled by inertia. In its place the independent speed
    becomes dependent of which it has most, which multiplies the volume of the dependent columns by their ratio
    (`independent_constraints.py`).
    """
    at = equations.at(t, q)
    scale, rows = jnp.sqrt(jnp.diag(at.inertia.matrix())), equations.m
    units = RowsAndSpeeds(DependentCoordinateCorrection(chosen).stacked(at), equations.scales, equations.scales.rows)
    weights = jnp.where(chosen, varied_weights(len(scale), scale.dtype), 0.0) / scale
    sums = scale * units.least_squares(jnp.concatenate([jnp.zeros(rows, scale.dtype), weights]))
    added = first_maximum(jnp.where(chosen, 0.0, jnp.abs(sums)))
    ratios = jnp.where(chosen, jnp.abs(units.least_norm(jnp.where(added, scale, 0.0))[rows:]) / scale, 0.0)
    exchanged = (chosen & ~first_maximum(ratios)) | added
    return jnp.where(jnp.max(ratios) > _DEGENERATE, exchanged, chosen)


def _are_speeds(mechanism: Mechanism, names: Sequence[str]) -> bool:
    return all(index_of(mechanism, name) is not None for name in names)


def check_independent(mechanism: Mechanism, names: Sequence[str]) -> None:
    """Raise `MechanismError` for names that are neither speeds nor coordinates of bodies and joints."""
    for name in names:
        if index_of(mechanism, name) is None:
            try:
                mechanism.coordinate(name)
            except MechanismError:
                joints = (joint for joint in mechanism.joints if isinstance(joint, AbstractJoint))
                theirs = (f"{joint.name}.{c}" for joint in joints for c in joint.coordinate_names)
                known = dict.fromkeys((*mechanism.variables, *mechanism.speed_names, *theirs))
                raise unknown("independent variable", name, known) from None


def _named_speeds(mechanism: Mechanism, names: Sequence[str]) -> Bool[Array, " nv"]:
    """Mask of the speeds that are named, by their own names or by those of the coordinates whose rates they are."""
    pairs = zip(mechanism.variables, mechanism.speed_names, strict=True)
    return jnp.asarray([variable in names or speed in names for variable, speed in pairs])
