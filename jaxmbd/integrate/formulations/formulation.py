"""Constraint formulations, which turn the equations of motion into a right-hand side `(q̇, v̇)`.

Each of them solves the augmented system `[[M, Cᵀ], [C, 0]] [v̇; λ] = [F; …]`; they differ in how they prevent the
drift of `Φ = 0` and `Φ̇ = 0`. `Kinematic` serves analyses whose motion follows from the constraints alone.
"""

import abc

import equinox as eqx
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.checks import check_fields, check_instance
from jaxmbd.engine import as_program
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.integrate.formulations.newton_closure import (
    AbstractCorrection,
    DeterminedCorrection,
    MassWeightedCorrection,
    RowsAndSpeeds,
    close_loops,
    closing_step,
    consistent_motion,
    consistent_speeds,
)
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import Scales


class StateDerivative(eqx.Module):
    """The time derivative of the integrated state, with the consistent speeds, accelerations and multipliers.

    `qdot (nq,)` and `rate (nv,)`: the rates of the integrated coordinates and speeds; `v (nv,)`: the consistent speeds,
    with their accelerations `vdot (nv,)` and multipliers `lam (m,)`.
    """

    qdot: Float[Array, " nq"]
    rate: Float[Array, " nv"]
    v: Float[Array, " nv"]
    vdot: Float[Array, " nv"]
    lam: Float[Array, " m"]


class AbstractFormulation(eqx.Module):
    """A constraint formulation: how the constraints are enforced during integration."""

    @abc.abstractmethod
    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        """State derivative, consistent speeds, accelerations and multipliers at time `t` and state `(q, v)`."""

    def with_rows(self, equations: Equations, t: Scalar) -> Equations:
        """The equations with rows for what the formulation holds beside the mechanism's own constraints; an implicit
        method, which solves the constraints itself, solves these."""
        return equations


class AbstractProjectedFormulation(AbstractFormulation):
    """A formulation that projects the state onto the constraints after each step, and may then update its own data.

    The data, such as the choice of independent speeds, are fields of the formulation itself: `begin` sets them for the
    first step, `settle` for the next one.
    """

    @abc.abstractmethod
    def check(self, mechanism: Mechanism, freedom: int) -> None:
        """Raise if the formulation cannot be used on a mechanism with this number of degrees of freedom."""

    @abc.abstractmethod
    def begin(self, equations: Equations, t: Scalar, q: Array) -> "AbstractProjectedFormulation":
        """The formulation with its data for the first step."""

    @abc.abstractmethod
    def settle(
        self, equations: Equations, t: Scalar, q: Array, v: Array
    ) -> tuple["AbstractProjectedFormulation", Array, Array]:
        """The formulation with its data for the next step, and the projected state `(q, v)`."""


class AbstractClosingFormulation(AbstractProjectedFormulation):
    """A formulation that closes the loops after each step by Newton's method with a correction.

    Its data are a choice, the mask of the independent speeds, which may be another one after a step; None if none are
    chosen. The native time loop repeats `closing_step` and then asks for the `next_choice`; `settle` is both together.
    """

    @abc.abstractmethod
    def begin(self, equations: Equations, t: Scalar, q: Array) -> "AbstractClosingFormulation": ...

    @abc.abstractmethod
    def correction(self, equations: Equations) -> AbstractCorrection:
        """What changes the coordinates and the speeds."""

    @abc.abstractmethod
    def choice(self) -> Bool[Array, " nv"] | None:
        """What is chosen now."""

    @abc.abstractmethod
    def next_choice(self, equations: Equations, t: Scalar, q: Array) -> Bool[Array, " nv"] | None:
        """What is chosen for the next step."""

    @abc.abstractmethod
    def with_choice(self, choice: Bool[Array, " nv"]) -> "AbstractClosingFormulation":
        """The same formulation with another choice."""

    def settle(
        self, equations: Equations, t: Scalar, q: Array, v: Array
    ) -> tuple["AbstractProjectedFormulation", Array, Array]:
        correction = self.correction(equations)
        q = close_loops(equations, t, q, correction)
        choice = self.next_choice(equations, t, q)
        formulation = self if choice is None else self.with_choice(choice)
        return formulation, q, as_program(_consistent)(equations, t, q, v, correction)

    def closing_step(self, equations: Equations, t: Scalar, q: Array, v: Array) -> tuple[Array, Array, Scalar]:
        """One step of Newton's method of `settle`: the coordinates, the speeds for these, and the relative size of the
        change."""
        correction = self.correction(equations)
        q, change = closing_step(equations, t, q, correction)
        return q, _consistent(equations, t, q, v, correction), change


def _consistent(equations: Equations, t: Scalar, q: Array, v: Array, correction: AbstractCorrection) -> Array:
    return consistent_speeds(equations.at(t, q), v, correction)


class Augmented(AbstractFormulation):
    """The augmented index-1 system with Baumgarte's stabilisation.

    `[[M, Cᵀ], [C, 0]] [v̇; λ] = [F; γ − 2α Φ̇ − β² Φ]`, so that `Φ̈ + 2α Φ̇ + β² Φ = 0`.

    **Arguments:** `alpha`, `beta` `[1/s]`, by default 10 in the unit of time that suits the mechanism: one second at
    one metre under gravity, and without gravity; `√(L/g)` for others. Without stabilisation, both zero, the drift grows
    quadratically with time. A common choice for a fixed step h is `α = 1/h, β = √2/h`.

    Source: Baumgarte, Comput. Methods Appl. Mech. Eng. 1 (1972); Haug, *Computer Aided Kinematics and Dynamics of
    Mechanical Systems* (1989), §7.
    """

    alpha: Scalar | None = eqx.field(converter=as_float, default=None)
    beta: Scalar | None = eqx.field(converter=as_float, default=None)

    def __check_init__(self) -> None:
        check_fields("Augmented", self, zero=True, **_given(self, alpha="1/s", beta="1/s"))

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        at = equations.at(t, q)
        alpha, beta = (_decay(own, equations.scales) for own in (self.alpha, self.beta))
        drift = 2 * alpha * at.velocity(v) + beta**2 * at.position()
        vdot, lam = SaddlePoint(at).accelerations(at.force(v), at.gamma(v) - drift)
        return StateDerivative(at.rate(v), vdot, v, vdot, lam)


class Stabilized(AbstractFormulation):
    """The augmented system on consistent speeds, after Gear, Gupta and Leimkuhler. The default.

    The integrated speeds are the sum of consistent speeds and a remainder, `v = v̄ + M⁻¹ Cᵀ η` with `η = S⁻¹ Φ̇`,
    `S = C M⁻¹ Cᵀ`, so that `C v̄ = −Φ_t`. The right-hand side is evaluated with `v̄`:

    `q̇ = N(q) (v̄ − κ M⁻¹ Cᵀ S⁻¹ Φ)`,   `[[M, Cᵀ], [C, 0]] [a; λ] = [F(v̄); γ(v̄)]`,   `v̇ = a + M⁻¹ (Ċᵀ η − Ṁ M⁻¹ Cᵀ η)`

    Then `Φ̇ = −κ Φ`. The last term of `v̇` keeps the remainder in the range of `M⁻¹ Cᵀ` while `M` and `C` change;
    without it the remainder would enter the motion. The solves share one factorisation. Errors of the integrator's
    inner stages do not enter the accelerations, as they do through Baumgarte's terms, and the velocity noise that
    singular positions amplify is removed from every evaluation (`docs/methods.md` has the measurements).

    **Arguments:** `rate` κ `[1/s]`, the decay rate of a position violation, by default 10 in the unit of time that
    suits the mechanism: one second at one metre under gravity, and without gravity; `√(L/g)` for others.

    Source: Gear, Leimkuhler, Gupta, J. Comput. Appl. Math. 12–13 (1985); Hairer, Wanner, *Solving ODEs II* (1996),
    §VII.2.
    """

    rate: Scalar | None = eqx.field(converter=as_float, default=None)

    def __check_init__(self) -> None:
        check_fields("Stabilized", self, zero=True, **_given(self, rate="1/s"))

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        at = equations.at(t, q)
        system = SaddlePoint(at)
        remainder, eta = system.projection(at.velocity(v))
        pull, _ = system.projection(at.position())
        v = v - remainder
        vdot, lam = system.accelerations(at.force(v), at.gamma(v))
        qdot = at.rate(v - _decay(self.rate, equations.scales) * pull)
        remainder_rate = system.unconstrained(at.constraint_force_rate(v, eta) - at.inertia_rate(v, remainder))
        return StateDerivative(qdot, vdot + remainder_rate, v, vdot, lam)


def _given(formulation: AbstractFormulation, **units: str) -> dict[str, str]:
    """The units of the fields that are not left to the default."""
    return {name: unit for name, unit in units.items() if getattr(formulation, name) is not None}


def _decay(given: Scalar | None, scales: Scales) -> Scalar:
    """The decay rate of violations `[1/s]`, by default the one that suits the mechanism."""
    return scales.decay if given is None else given


class Projection(AbstractClosingFormulation):
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

    def with_rows(self, equations: Equations, t: Scalar) -> Equations:
        return self.base.with_rows(equations, t)

    def correction(self, equations: Equations) -> MassWeightedCorrection:
        return MassWeightedCorrection()

    def choice(self) -> None:
        return None

    def next_choice(self, equations: Equations, t: Scalar, q: Array) -> None:
        return None

    def with_choice(self, choice: Bool[Array, " nv"]) -> "Projection":
        return self


class Kinematic(AbstractFormulation):
    """Speeds and accelerations from the constraints alone, multipliers from the equations of motion:

    `C v = −Φ_t`,   `C v̇ = γ`,   `Cᵀ λ = F − M v̇`

    for as many independent rows as speeds. If rows are linearly dependent, the multipliers are those of least norm,
    with lengths in the unit that suits the mechanism.

    Source: Haug, *Computer Aided Kinematics and Dynamics of Mechanical Systems* (1989), §3.6 and §6.4.
    """

    def motion(self, equations: Equations, t: Scalar, q: Array, v: Array) -> StateDerivative:
        at = equations.at(t, q)
        v, vdot = consistent_motion(at, v, DeterminedCorrection())
        units = RowsAndSpeeds(at.entries, equations.scales, equations.scales.rows)
        lam = units.least_norm(at.force(v) - at.inertia.times(vdot))
        return StateDerivative(at.rate(v), vdot, v, vdot, lam)
