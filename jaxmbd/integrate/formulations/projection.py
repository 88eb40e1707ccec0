"""Projection onto the constraints after each accepted step."""

import equinox as eqx
from jaxtyping import Array

from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.formulations.formulation import (
    AbstractFormulation,
    AbstractProjectedFormulation,
    Stabilized,
    StateDerivative,
)
from jaxmbd.integrate.formulations.newton_closure import MassWeightedCorrection, close_loops, consistent_speeds
from jaxmbd.model.body.checks import check_instance
from jaxmbd.model.mechanism.mechanism import Mechanism


class Projection(AbstractProjectedFormulation):
    """Another formulation, with positions and speeds projected onto the constraints after each accepted step.

    Both projections are orthogonal in the metric of `M`: `q` changes by `−M⁻¹ Cᵀ S⁻¹ Φ` until `Φ = 0`, `v` by
    `−M⁻¹ Cᵀ S⁻¹ Φ̇`. The violation is rounding error, independent of the length of the run.

    **Arguments:** `base`, the formulation whose steps are projected, by default `Stabilized()`: it removes velocity
    noise from every stage, and so passes singular positions that `Augmented(0, 0)` with projection does not.

    Source: Eich, SIAM J. Numer. Anal. 30 (1993); Hairer, Wanner, *Solving ODEs II* (1996), §VII.2.
    """

    base: AbstractFormulation = eqx.field(default_factory=lambda: Stabilized())

    def __check_init__(self) -> None:
        check_instance("Projection: base", self.base, AbstractFormulation, "a formulation such as Augmented(0, 0)")

    def check(self, mechanism: Mechanism, freedom: int) -> None:
        pass

    def begin(self, equations: Equations, t: Scalar, q: Array) -> "Projection":
        return self

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        return self.base.motion(equations, t, q, v)

    def settle(self, equations: Equations, t: Scalar, q: Array, v: Array) -> tuple["Projection", Array, Array]:
        q = close_loops(equations, t, q, MassWeightedCorrection())
        return self, q, consistent_speeds(equations.at(t, q), v, MassWeightedCorrection())
