"""Collocation methods, Radau IIA for stiff mechanisms and Gauss for those that keep their energy, as diffrax solvers.

An implicit solver for ordinary differential equations sees `v̇ = f(q, v)` with the constraint forces already
eliminated, and its Jacobian contains the derivative of that elimination. Here the differential-algebraic equations
`M a − F + Cᵀ λ = 0` with `Φ̇ = 0` (index 2) are solved directly, so that only forces, masses and constraint rows are
differentiated, the linear systems have the size of a single saddle-point system, and the stage values satisfy the
constraints.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeAlias

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Flag, Number, Scalar, as_float, frozen
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.errors import MechanismError, is_one_of
from jaxmbd.integrate.solvers.collocation_stages import (
    CollocationStep,
    Factors,
    Family,
    Method,
    Middle,
    StageValues,
    factors,
    filtered,
    linearized,
    solve_stages,
    tableau,
)
from jaxmbd.integrate.solvers.unrolled_erk import StepResult
from jaxmbd.integrate.solvers.wrapped_solver import Arguments, IntegratedState
from jaxmbd.numerics.sparse_lu import Structure

Rates: TypeAlias = Callable[[Array, IntegratedState], IntegratedState]  # of (t, (q, v, z)): the right-hand side

_MAX_EXTRAPOLATION = 3.0  # ratio of step sizes up to which extrapolation is a better guess than constant speeds


class CollocationPolynomial(dfx.AbstractLocalInterpolation):
    """The dense output: the collocation polynomial, corrected by the error estimate of the slope at the start.

    `slopes`: the slopes at the nodes times the step; `more`: the correction of the slope at the start times the step.
    """

    t0: Any
    t1: Any
    y0: PyTree[Array]
    y1: PyTree[Array]
    slopes: PyTree[Array]
    more: PyTree[Array]
    family: Family = eqx.field(static=True)

    def evaluate(self, t0: Number, t1: Number | None = None, left: bool = True) -> PyTree[Array]:
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1), self.evaluate(t0))
        theta = (t0 - self.t0) / jnp.where(self.t1 == self.t0, 1.0, self.t1 - self.t0)

        def one(y0: Array, y1: Array, slopes: Array, more: Array) -> Array:
            method, powers = tableau(Method(self.family, len(slopes))), jnp.arange(1, len(slopes) + 2)
            integrals, end, bump = (jnp.asarray(x, y0.dtype) for x in (method.integrals, method.weights, method.bump))
            along = (integrals.T @ theta ** powers[:-1]) @ slopes + (bump @ theta**powers) * more
            return y0 + along + theta * (y1 - y0 - end @ slopes)  # the projection at the end of the step

        return jax.tree.map(one, self.y0, self.y1, self.slopes, self.more)


class LastStep(eqx.Module):
    """The last step: its length, the accelerations and the rates `ż` at its nodes, and the multipliers at its end."""

    h: Scalar
    a: Float[Array, "n nv"]
    zdot: Float[Array, "n nz"] | None
    lam: Float[Array, " m"]

    def guess(self, step: CollocationStep) -> StageValues:
        """The starting values for the stages of the next step, by extrapolation of the collocation polynomial."""
        ratio, powers = step.h / self.h, jnp.arange(1, step.count + 1)[None]
        increments = (1 + step.as_array(step.tableau.nodes)[:, None] * ratio) ** powers - 1
        weights = self.h * increments @ step.as_array(step.tableau.integrals)
        ahead = lambda start, slopes: start[None] + jnp.where(ratio <= _MAX_EXTRAPOLATION, weights @ slopes, 0.0)  # noqa: E731
        stages = StageValues(
            jnp.broadcast_to(step.q, (step.count, *step.q.shape)),
            ahead(step.v, self.a),
            None if step.z is None else ahead(step.z, self.zdot),
            jnp.broadcast_to(self.lam, (step.count, *self.lam.shape)),
        )
        return eqx.tree_at(lambda s: s.q, stages, step.reached(stages))


class AbstractCollocation(dfx.AbstractAdaptiveSolver[Any]):
    """A collocation method that solves `M a − F + Cᵀ λ = 0`, `Φ̇ = 0` at the nodes of each step; then `q` and `v` are
    projected onto `Φ = 0` and `Φ̇ = 0`.

    **Arguments:** `stages`; `tolerance`, the relative tolerance of the Newton iteration in a step; by default
    `simulate` sets it to that of the step-size controller.
    """

    stages: eqx.AbstractVar[int]
    tolerance: eqx.AbstractVar[Scalar | None]
    term_structure: ClassVar = dfx.AbstractTerm
    family: ClassVar[Family]

    @property
    def method(self) -> Method:
        """The method, by its family and the number of its stages."""
        return Method(self.family, self.stages)

    def within(self, tolerance: Number) -> "AbstractCollocation":
        """The same method with this tolerance of the iteration, unless it has one already."""
        if self.tolerance is not None:
            return self
        return eqx.tree_at(lambda method: method.tolerance, self, as_float(tolerance), is_leaf=lambda x: x is None)

    def order(self, terms: dfx.AbstractTerm) -> int:
        return 2 * self.stages - (self.family == "Radau")

    def error_order(self, terms: dfx.AbstractTerm) -> int:
        return self.stages + 1

    def func(self, terms: dfx.AbstractTerm, t0: Number, y0: IntegratedState, args: object) -> IntegratedState:
        return terms.vf(t0, y0, args)

    def init(self, terms: dfx.AbstractTerm, t0: Number, t1: Number, y0: IntegratedState, args: object) -> LastStep:
        if not (isinstance(args, tuple) and args and isinstance(args[0], Equations)):
            raise MechanismError(
                f"{type(self).__name__} solves the equations of a mechanism: give it to jaxmbd.simulate(solver=...)."
            )
        nothing = lambda *shape: jnp.zeros(shape, y0[1].dtype)  # noqa: E731
        equations = _equations(args, t0)
        states = len(equations.mechanism.layout.z)
        zdot = nothing(self.stages, states) if states else None
        return LastStep(jnp.ones_like(t0), nothing(self.stages, len(y0[1])), zdot, nothing(equations.m))

    def step(
        self, terms: dfx.AbstractTerm, t0: Any, t1: Any, y0: IntegratedState, args: Arguments, solver_state: LastStep,
        made_jump: Flag,
    ) -> StepResult:  # fmt: skip
        equations, (q, v, integrated) = _equations(args, t0), y0
        states = len(equations.mechanism.layout.z)
        step = CollocationStep(equations, t0, t1 - t0, q, v, integrated[:states] if states else None, self.method)
        guess, found = starting_values(*frozen((step, solver_state)))
        tolerance = jnp.inf if self.tolerance is None else self.tolerance
        tolerance = jax.lax.stop_gradient(jnp.asarray(tolerance, q.dtype))
        stages, converged = solve_stages(step, guess, found, tolerance, structure=None)
        rates = lambda t, y: terms.vf(t, y, args)  # noqa: E731
        end = StepEnd.of(step, stages, found, None, rates, integrated[states:])
        valid = converged & jnp.all(jnp.isfinite(end.y[0])) & jnp.all(jnp.isfinite(end.y[1]))
        # An infinite error rejects the step where steps are controlled, and the next one is shorter.
        error = jax.tree.map(lambda x: jnp.where(valid, x / step.tableau.values[0].real, jnp.inf), end.more)
        dense = {"y0": y0, "y1": end.y, "slopes": jax.tree.map(lambda k: step.h * k, end.slopes), "more": end.more}
        return end.y, error, dense, end.last, dfx.RESULTS.successful


class Radau(AbstractCollocation):
    """Radau IIA for stiff mechanisms: implicit, stiffly accurate, L-stable, of order `2 stages − 1`.

    It solves `M a − F + Cᵀ λ = 0`, `Φ̇ = 0` at the nodes of each step; then `q` and `v` are projected onto `Φ = 0` and
    `Φ̇ = 0`. The error estimate is that of RADAU5, of order `stages`. Use it if stiff springs, dampers or bushings
    restrict an explicit solver to small steps; it damps vibrations that are faster than the steps.

        simulate(mechanism, state, ts, solver=Radau())

    **Arguments:** `stages`, 1, 3, 5 or 7: orders 1, 5, 9 and 13. Five take the least time for errors from 1e-5 down to
    1e-10; three for forces with kinks, or for large mechanisms at low accuracy. `tolerance`, the relative tolerance of
    the Newton iteration in a step; by default `simulate` sets it to that of the step-size controller.

    **Raises:** `MechanismError` for another number of stages, or if used outside `simulate`.

    Source: Hairer, Wanner, *Stiff differential equations solved by Radau methods*, J. Comput. Appl. Math. 111 (1999).
    """

    stages: int = eqx.field(static=True, default=5)
    tolerance: Scalar | None = eqx.field(converter=as_float, default=None)
    family: ClassVar[Family] = "Radau"
    interpolation_cls: ClassVar[Callable[..., CollocationPolynomial]] = partial(CollocationPolynomial, family="Radau")

    def __check_init__(self) -> None:
        if not is_one_of(self.stages, (1, 3, 5, 7)):
            raise MechanismError(f"Radau: stages must be 1, 3, 5 or 7, got {self.stages!r}.")


class Gauss(AbstractCollocation):
    """Gauss's collocation methods: implicit, A-stable, symmetric, of order `2 stages`.

    They damp nothing: with steps of one length (`dt0=`, `diffrax.ConstantStepSize()`), the energy of a motion without
    friction and drivers oscillates by the error of a step, but does not drift, over any number of steps. Everything
    else is as with `Radau`, which is the method for what is stiff and damped: motions faster than the steps decay
    there, and here oscillate for ever. Where joints are constraints the projection lets the energy drift, by as little
    as a method of this order does.

        simulate(mechanism, state, ts, solver=Gauss(), stepsize_controller=diffrax.ConstantStepSize(), dt0=1e-2)

    **Arguments:** `stages`, 1 to 7; 1 is the implicit midpoint rule. `tolerance`, as of `Radau`.

    **Raises:** `MechanismError` for another number of stages, or if used outside `simulate`.

    Source: Hairer, Lubich, Wanner, *Geometric Numerical Integration* (2006), §II.1.3 and §VII.1; Ascher, Petzold,
    *Projected implicit Runge-Kutta methods for differential-algebraic equations*, SIAM J. Numer. Anal. 28 (1991).
    """

    stages: int = eqx.field(static=True, default=3)
    tolerance: Scalar | None = eqx.field(converter=as_float, default=None)
    family: ClassVar[Family] = "Gauss"
    interpolation_cls: ClassVar[Callable[..., CollocationPolynomial]] = partial(CollocationPolynomial, family="Gauss")

    def __check_init__(self) -> None:
        if not is_one_of(self.stages, tuple(range(1, 8))):
            raise MechanismError(f"Gauss: stages must be 1 to 7, got {self.stages!r}.")


def _equations(args: Arguments, t: Number) -> Equations:
    equations, formulation = args
    return formulation.with_rows(equations, jnp.asarray(t))


def starting_values(
    step: CollocationStep, last: LastStep, structure: Structure | None = None
) -> tuple[StageValues, Factors]:
    """The starting values of the stages, and the factored matrices there."""
    guess = last.guess(step)
    return guess, factors(linearized(step, guess), step, structure)


class StepEnd(NamedTuple):
    """What a step gives when its stages are known: the `slopes` at the nodes, the slope at the start minus that of the
    collocation polynomial, times the step, `more`; the state at the end, and what the next step is guessed from."""

    slopes: IntegratedState
    more: IntegratedState
    y: IntegratedState
    last: LastStep

    @classmethod
    def of(
        cls, step: CollocationStep, stages: StageValues, found: Factors, structure: Structure | None, rates: Rates,
        integrals: Array,
    ) -> "StepEnd":  # fmt: skip
        qdot, a, zdot = step.rates(stages)
        integrands = _integrands(step, stages, integrals, rates)
        slopes = qdot, a, integrands if zdot is None else jnp.concatenate([zdot, integrands], axis=1)
        fixed = frozen((step, found, slopes, stages))
        more = frozen(_start_slope_error(*fixed, structure, rates, integrals))  # pyright: ignore[reportCallIssue]
        # Quadratures are no unknowns: they enter no equation, and follow from the stages.
        integrals = integrals + step.h * step.as_array(step.tableau.weights) @ integrands
        q, v, z, lam = step.end(stages)
        end = integrals if z is None else jnp.append(z, integrals)
        y = *_project(step.equations, step.t + step.h, q, v), end
        return cls(slopes, more, y, LastStep(step.h, a, zdot, lam))


def _integrands(step: CollocationStep, stages: StageValues, integrals: Array, rates: Rates) -> Float[Array, "n k"]:
    """The integrands of the quadratures at the nodes."""
    if not len(integrals):
        return jnp.zeros((step.count, 0), integrals.dtype)
    if stages.z is None:
        return jax.vmap(lambda t, q, v: rates(t, (q, v, integrals))[2])(step.times, stages.q, stages.v)
    all_rates = lambda t, q, v, z: rates(t, (q, v, jnp.append(z, integrals)))[2]  # noqa: E731
    return jax.vmap(all_rates)(step.times, stages.q, stages.v, stages.z)[:, stages.z.shape[1] :]


def _start_slope_error(
    step: CollocationStep, found: Factors, slopes: IntegratedState, stages: StageValues, structure: Structure | None,
    rates: Rates, integrals: Array,
) -> IntegratedState:  # fmt: skip
    """The slope at the start minus that of the collocation polynomial, times the step: the unscaled error estimate.

    As in RADAU5, a solve with the matrix of the real eigenvalue filters the stiff components. The result times `γ₀` is
    the difference from an embedded method of order `stages`. It is not differentiated: besides the
    step size it affects only the dense output, where its derivative is of the order of the error tolerance.
    """
    own, nv = () if step.z is None else (step.z,), len(step.v)
    start = rates(step.t, (step.q, step.v, jnp.concatenate([*own, integrals])))
    at_start = step.as_array(step.tableau.at_start)
    pairs = (step.v, stages.v), (start[1], slopes[1]), (start[2], slopes[2])
    speeds, accelerations, others = (step.h * (x - at_start @ nodes) for x, nodes in pairs)
    middle, s = Middle.of(step, stages), step.as_array(step.tableau.values[0].real) / step.h
    at = step.equations.at(middle.t, middle.q)
    residual = lambda x: middle.residual(step.equations, x, middle.v, middle.z)  # noqa: E731
    along = jax.jvp(residual, (jnp.zeros_like(speeds),), (speeds,))[1]
    of_z, integrands = jnp.split(others, [sum(map(len, own))])
    of_z = s * of_z - along[len(along) - len(of_z) :]
    of_v = s * at.inertia.times(accelerations) - along[:nv]
    of_z, of_v = jnp.split(filtered(step, found, jnp.concatenate([of_z, of_v]), structure), [len(of_z)])
    return middle.along(step.equations, speeds + of_v / s), of_v, jnp.append(of_z, integrands)


def _project(equations: Equations, t: Scalar, q: Array, v: Array) -> tuple[Array, Array]:
    """The state projected onto `Φ = 0`, `Φ̇ = 0` in the metric of `M`.

    One Newton step each is enough: the violation before it is of the order of the step's error, after it of its square.
    """
    if not equations.m:
        return q, v
    at = equations.at(t, q)
    system = SaddlePoint(at)
    q = at.perturbed(-system.projection(at.position())[0])
    at = equations.at(t, q)
    system = SaddlePoint(at)
    return q, v - system.projection(at.velocity(v))[0]
