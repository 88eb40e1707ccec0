"""Ways to keep the constraints while integrating: each turns the equations into `(q̇, v̇)`.

All of them solve the augmented system `[[M, Cᵀ], [C, 0]] [v̇; λ] = [F; …]`; they differ in how they keep
`Φ = 0` and `Φ̇ = 0` from drifting.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.compile.jax_binding import as_program
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.model.body.checks import check_finite, check_number
from jaxmbd.model.mechanism.mechanism import Mechanism


class StateDerivative(eqx.Module):
    """What a method makes of one instant.

    `qdot (nq,)` and `rate (nv,)`: the rates of the integrated coordinates and speeds; `v (nv,)`: consistent speeds,
    with their accelerations `vdot (nv,)` and multipliers `lam (m,)`.
    """

    qdot: Float[Array, " nq"]
    rate: Float[Array, " nv"]
    v: Float[Array, " nv"]
    vdot: Float[Array, " nv"]
    lam: Float[Array, " m"]


class AbstractMethod(eqx.Module):
    """A way to keep the constraints."""

    @abc.abstractmethod
    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        """Rates, consistent speeds, accelerations and multipliers at one instant."""


class AbstractProjectedMethod(AbstractMethod):
    """A method that puts the state back onto the constraints after each accepted step, and may choose anew then.

    What it has chosen is a part of the method itself: `begin` makes the first choice, `settle` the next.
    """

    @abc.abstractmethod
    def check(self, mechanism: Mechanism, freedom: int) -> None:
        """Raises where the method cannot work on a mechanism with so many degrees of freedom."""

    @abc.abstractmethod
    def begin(self, equations: Equations, t: Scalar, q: Array) -> "AbstractProjectedMethod":
        """The method for the first step."""

    @abc.abstractmethod
    def settle(
        self, equations: Equations, t: Scalar, q: Array, v: Array
    ) -> tuple["AbstractProjectedMethod", Array, Array]:
        """The method for the next step, and the state on the constraints."""


class Augmented(AbstractMethod):
    """The augmented index-1 system with Baumgarte's stabilisation.

    `[[M, Cᵀ], [C, 0]] [v̇; λ] = [F; γ − 2α Φ̇ − β² Φ]`, so that `Φ̈ + 2α Φ̇ + β² Φ = 0`.

    **Arguments:** `alpha`, `beta` `[1/s]`; both zero leaves the system unstabilised (its drift grows
    quadratically with time). A common choice for a fixed step h is `α = 1/h, β = √2/h`.

    Source: Baumgarte, Comput. Methods Appl. Mech. Eng. 1 (1972); Haug, *Computer Aided Kinematics and Dynamics of
    Mechanical Systems* (1989), §7.
    """

    alpha: Scalar = eqx.field(converter=as_float, default=10.0)
    beta: Scalar = eqx.field(converter=as_float, default=10.0)

    def __check_init__(self) -> None:
        check_finite("Augmented", "alpha", self.alpha)
        check_finite("Augmented", "beta", self.beta)
        check_number("Augmented", "alpha", self.alpha, "1/s", zero=True)
        check_number("Augmented", "beta", self.beta, "1/s", zero=True)

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        at = equations.at(t, q)
        drift = 2 * self.alpha * at.velocity(v) + self.beta**2 * at.position()
        vdot, lam = SaddlePoint(at).accelerations(at.force(v), at.gamma(v) - drift)
        return StateDerivative(at.rate(v), vdot, v, vdot, lam)


class Stabilized(AbstractMethod):
    """The augmented system on consistent speeds, after Gear, Gupta and Leimkuhler. The default.

    The integrated speeds are consistent ones and a remainder, `v = v̄ + M⁻¹ Cᵀ η` with `η = S⁻¹ Φ̇`, `S = C M⁻¹ Cᵀ`, so
    that `C v̄ = −Φ_t`. Everything is evaluated with `v̄`:

    `q̇ = N(q) (v̄ − κ M⁻¹ Cᵀ S⁻¹ Φ)`,   `[[M, Cᵀ], [C, 0]] [a; λ] = [F(v̄); γ(v̄)]`,   `v̇ = a + M⁻¹ (Ċᵀ η − Ṁ M⁻¹ Cᵀ η)`

    Then `Φ̇ = −κ Φ`, and the remainder stays a remainder as the constraints turn: without its last term it would
    leak into the motion. The solves share one factorisation. Errors of an integrator's inner stages do not reach the
    accelerations as Baumgarte's terms let them, and the noise that singular positions amplify is left out of every
    evaluation (`docs/methods.md` has the measurements).

    **Arguments:** `rate` κ `[1/s]`, at which a violation of position decays.

    Source: Gear, Leimkuhler, Gupta, J. Comput. Appl. Math. 12–13 (1985); Hairer, Wanner, *Solving ODEs II* (1996),
    §VII.2.
    """

    rate: Scalar = eqx.field(converter=as_float, default=10.0)

    def __check_init__(self) -> None:
        check_finite("Stabilized", "rate", self.rate)
        check_number("Stabilized", "rate", self.rate, "1/s", zero=True)

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        at = equations.at(t, q)
        system = SaddlePoint(at)
        violation = jnp.stack([at.velocity(v), at.position()], axis=1)
        eta, mu = system.impulses(violation).T
        remainder = system.apply_impulse(eta)
        v = v - remainder
        vdot, lam = system.accelerations(at.force(v), at.gamma(v))
        qdot = at.rate(v - self.rate * system.apply_impulse(mu))
        carried = system.inertia.solve(at.constraint_force_rate(v, eta) - at.inertia_rate(v, remainder))
        return StateDerivative(qdot, vdot + carried, v, vdot, lam)


def motion_of(method: AbstractMethod, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
    """`method.motion`, as a program of its own where it is one."""
    return as_program(_motion)(method, equations, t, q, v)


def _motion(method: AbstractMethod, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
    return method.motion(equations, t, q, v)
