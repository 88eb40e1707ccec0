"""Kinematic and inverse dynamic analysis: motion determined by constraints and drivers, and its multipliers."""

from jaxtyping import Array

from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.rank import LeastSquaresQR
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, StateDerivative
from jaxmbd.integrate.formulations.newton_closure import DeterminedCorrection, apply_correction, consistent_speeds


class Kinematic(AbstractFormulation):
    """Speeds and accelerations from the constraints alone, multipliers from the equations of motion:

    `C v = −Φ_t`,   `C v̇ = γ`,   `Cᵀ λ = F − M v̇`

    for as many independent rows as speeds. If rows are linearly dependent, the multipliers are those of least norm.

    Source: Haug, *Computer Aided Kinematics and Dynamics of Mechanical Systems* (1989), §3.6 and §6.4.
    """

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        at = equations.at(t, q)
        v = consistent_speeds(at, v, DeterminedCorrection())
        vdot = apply_correction(DeterminedCorrection(), at, at.gamma(v))
        lam = LeastSquaresQR(at.jacobian).least_norm(at.force(v) - at.inertia.times(vdot))
        return StateDerivative(at.rate(v), vdot, v, vdot, lam)
