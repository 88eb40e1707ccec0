"""Explicit Runge–Kutta methods with unrolled stages, as diffrax solvers.

diffrax runs the stages of its explicit methods in a loop, with weights from the rows of a full matrix. That is quick to
compile, but if a right-hand side takes a microsecond or less, the loop dominates the time of a step. Here the stages
are unrolled, `yᵢ = y₀ + h (aᵢ₁ f₁ + aᵢ₂ f₂ + …)`, without the zeros of the tableau. Tableaus, error estimates and dense
output are those of diffrax.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias, TypeGuard

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Flag, Number, Scalar
from jaxmbd.engine import as_program
from jaxmbd.upstream.diffrax_internals import has_diffraxs_step
from jaxmbd.upstream.equinox_internals import any_instance

_CLASSICAL = dfx.ButcherTableau(  # the fifth stage is the first of the next step, for the dense output
    a_lower=(
        np.array([1 / 2]),
        np.array([0, 1 / 2]),
        np.array([0, 0, 1]),
        np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
    ),
    b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6, 0]),
    b_error=np.zeros(5),
    c=np.array([1 / 2, 1 / 2, 1, 1]),
)


# Of a diffrax solver: the state at the end, its error if that is known, the data of the dense output, its own state.
StepResult: TypeAlias = tuple[PyTree[Array], PyTree[Array] | None, dict[str, PyTree[Array]], PyTree, dfx.RESULTS]


class DenseOutput(dfx.AbstractLocalInterpolation):
    """The dense output `y(t₀ + θh) = y₀ + h Σᵢ bᵢ(θ) fᵢ` of an explicit Runge–Kutta method.

    The weights `bᵢ(θ)` are diffrax's interpolation of unit vectors. Stacking the slopes into an array for diffrax would
    take time in every step, also in those without saved times. The weights are run as a scalar program, since XLA
    evaluates a polynomial in a loop.
    """

    t0: Any
    t1: Any
    y0: PyTree[Array]
    slopes: Sequence[PyTree[Array]]
    control: Number
    weigh: Callable[[Scalar], Float[Array, " stages"]] = eqx.field(static=True)

    def evaluate(self, t0: Number, t1: Number | None = None, left: bool = True) -> PyTree[Array]:
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1), self.evaluate(t0))
        empty = self.t1 == self.t0
        theta = jnp.where(empty, 0.0, t0 - self.t0) / jnp.where(empty, 1.0, self.t1 - self.t0)
        weights = as_program(self.weigh)(theta)
        return _advanced(self.y0, self.control, [weights[i] for i in range(len(self.slopes))], self.slopes)


class DenseOutputWeights(eqx.Module):
    """The weights `b(θ) (stages,)` of the interpolation `make`, for a method with the weights `end` at `θ = 1`."""

    make: Callable[..., dfx.AbstractLocalInterpolation]
    end: tuple[float, ...]

    @classmethod
    def of(cls, method: "ExplicitMethod") -> "DenseOutputWeights":
        """The weights of a method."""
        make = _HERMITE if isinstance(method, RungeKutta4) else method.interpolation_cls
        return cls(make, tuple(map(float, tableau_of(method).b_sol)))

    def __call__(self, theta: Scalar) -> Float[Array, " stages"]:
        end = jnp.asarray(self.end, theta.dtype)
        start, stop, units = jnp.zeros_like(theta), jnp.ones_like(theta), jnp.eye(len(end), dtype=theta.dtype)
        return self.make(t0=start, t1=stop, y0=jnp.zeros_like(end), y1=end, k=units).evaluate(theta)


class UnrolledERK(dfx.AbstractAdaptiveSolver[Any]):
    """An explicit Runge–Kutta method of diffrax, for ordinary differential equations, with unrolled stages.

    Each step computes `f₁ = f(t₀, y₀)`, `fᵢ = f(t₀ + cᵢ h, y₀ + h Σⱼ aᵢⱼ fⱼ)`, `y₁ = y₀ + h Σᵢ bᵢ fᵢ` and the error
    estimate `h Σᵢ eᵢ fᵢ`. If the last stage is the slope at the end of the step ("first same as last"), it is the first
    stage of the next step, unless the state jumps in between.

    **Arguments:** `method`, one of diffrax, to which the results are equal to rounding.

    Source: Hairer, Nørsett, Wanner, *Solving ODEs I* (1993), §II.1, §II.4–6.
    """

    method: dfx.AbstractERK
    term_structure: ClassVar = dfx.AbstractTerm

    @property
    def interpolation_cls(self) -> Callable[..., DenseOutput]:  # pyright: ignore
        return _dense(self.method)

    def order(self, terms: dfx.AbstractTerm) -> int | None:
        return self.method.order(terms)

    def error_order(self, terms: dfx.AbstractTerm) -> Number | None:
        return self.method.error_order(terms)

    def func(self, terms: dfx.AbstractTerm, t0: Number, y0: PyTree[Array], args: object) -> PyTree[Array]:
        return terms.vf(t0, y0, args)

    def init(self, terms: dfx.AbstractTerm, t0: Number, t1: Number, y0: PyTree[Array], args: object) -> PyTree[Array]:
        return terms.vf(t0, y0, args) if tableau_of(self.method).fsal else None

    @eqx.filter_jit
    def step(
        self, terms: dfx.AbstractTerm, t0: Number, t1: Number, y0: PyTree[Array], args: object,
        solver_state: PyTree[Array] | None, made_jump: Flag,
    ) -> StepResult:  # fmt: skip
        tableau = tableau_of(self.method)
        first = _first_stage(terms, t0, y0, args, solver_state, made_jump)
        y1, dense, last = _step(tableau, terms, t0, t1, y0, args, first)
        error = _weighted_sum(tableau.b_error, dense["slopes"])
        return y1, _scaled(dense["control"], error), dense, last, dfx.RESULTS.successful


class RungeKutta4(dfx.AbstractSolver[Any]):
    """The classical Runge–Kutta method of order four, for fixed steps: it has no estimate of its error.

    `y₁ = y₀ + h/6 (f₁ + 2 f₂ + 2 f₃ + f₄)`, with four evaluations per step; the dense output is the cubic Hermite
    polynomial.

        simulate(mechanism, state, ts, solver=RungeKutta4(), stepsize_controller=diffrax.ConstantStepSize(), dt0=1e-3)

    Source: Kutta, Z. Math. Phys. 46 (1901); Hairer, Nørsett, Wanner, *Solving ODEs I* (1993), §II.1, §II.6.
    """

    term_structure: ClassVar = dfx.AbstractTerm

    @property
    def interpolation_cls(self) -> Callable[..., DenseOutput]:  # pyright: ignore
        return _dense(self)

    def order(self, terms: dfx.AbstractTerm) -> int:
        return 4

    def func(self, terms: dfx.AbstractTerm, t0: Number, y0: PyTree[Array], args: object) -> PyTree[Array]:
        return terms.vf(t0, y0, args)

    def init(self, terms: dfx.AbstractTerm, t0: Number, t1: Number, y0: PyTree[Array], args: object) -> PyTree[Array]:
        return terms.vf(t0, y0, args)

    def step(
        self, terms: dfx.AbstractTerm, t0: Number, t1: Number, y0: PyTree[Array], args: object,
        solver_state: PyTree[Array], made_jump: Flag,
    ) -> StepResult:  # fmt: skip
        first = _first_stage(terms, t0, y0, args, solver_state, made_jump)
        y1, dense, last = _step(_CLASSICAL, terms, t0, t1, y0, args, first)
        return y1, None, dense, last, dfx.RESULTS.successful


def unrolled(solver: dfx.AbstractSolver[Any]) -> dfx.AbstractSolver[Any]:
    """The same method with unrolled stages, if it is one of diffrax's explicit Runge–Kutta methods."""
    return UnrolledERK(solver) if is_explicit(solver) and not isinstance(solver, RungeKutta4) else solver


ExplicitMethod = dfx.AbstractERK | RungeKutta4
_HERMITE = dfx.ThirdOrderHermitePolynomialInterpolation.from_k


def is_explicit(solver: object) -> TypeGuard[ExplicitMethod]:
    """True if a solver is an explicit Runge–Kutta method with one tableau: diffrax's, or the classical one."""
    if isinstance(solver, RungeKutta4):
        return True
    return has_diffraxs_step(solver) and isinstance(solver.tableau, dfx.ButcherTableau)


def tableau_of(method: ExplicitMethod) -> dfx.ButcherTableau:
    """The tableau of an explicit method."""
    tableau = _CLASSICAL if isinstance(method, RungeKutta4) else method.tableau
    assert isinstance(tableau, dfx.ButcherTableau)
    return tableau


def _dense(method: ExplicitMethod) -> Callable[..., DenseOutput]:
    weigh = DenseOutputWeights.of(method)
    return lambda *, y1, **known: DenseOutput(**known, weigh=weigh)


def _first_stage(
    terms: dfx.AbstractTerm, t0: Number, y0: PyTree[Array], args: object, last_stage: PyTree[Array] | None,
    made_jump: Flag,
) -> PyTree[Array]:  # fmt: skip
    """The first stage: the last stage of the previous step if there is one and the state has not jumped since."""
    if last_stage is None or made_jump is True:
        return terms.vf(t0, y0, args)
    if made_jump is False:
        return last_stage
    # One condition for all instances of a batch: one for each would evaluate both sides for all of them.
    return jax.lax.cond(any_instance(made_jump), lambda: terms.vf(t0, y0, args), lambda: last_stage)


def _step(
    tableau: dfx.ButcherTableau, terms: dfx.AbstractTerm, t0: Number, t1: Number, y0: PyTree[Array], args: object,
    first: PyTree[Array],
) -> tuple[PyTree[Array], dict[str, PyTree[Array]], PyTree[Array] | None]:  # fmt: skip
    """The state at the end of a step, the arguments of its dense output, and the next first stage, or None."""
    control, y, slopes = terms.contr(t0, t1), y0, [first]
    for row, node in zip(tableau.a_lower, tableau.c, strict=True):
        # The end itself: `t₀ + (t₁ − t₀)` may by rounding lie behind it, and a force may switch there.
        t = t1 if node == 1 else t0 + float(node) * (t1 - t0)
        y = _advanced(y0, control, row, slopes)
        slopes.append(terms.vf(t, y, args))
    y1 = y if tableau.ssal else _advanced(y0, control, tableau.b_sol, slopes)
    dense = {"y0": y0, "y1": y1, "slopes": tuple(slopes), "control": control}
    return y1, dense, slopes[-1] if tableau.fsal else None


def _advanced(
    y0: PyTree[Array], control: Number, weights: Sequence[float | Array] | np.ndarray, slopes: Sequence[PyTree[Array]]
) -> PyTree[Array]:
    """The state `y₀ + h Σⱼ aⱼ fⱼ`."""
    return jax.tree.map(jnp.add, y0, _scaled(control, _weighted_sum(weights, slopes)))


def _scaled(control: Number, slope: PyTree[Array]) -> PyTree[Array]:
    return jax.tree.map(lambda f: control * f, slope)


def _weighted_sum(weights: Sequence[float | Array] | np.ndarray, slopes: Sequence[PyTree[Array]]) -> PyTree[Array]:
    """The sum `Σⱼ aⱼ fⱼ` without terms of weight zero; weights are numbers of the tableau, or traced."""
    numbers = [float(a) if isinstance(a, float) else a for a in weights]  # plain numbers leave the precision as it is
    terms = [(a, f) for a, f in zip(numbers, slopes, strict=True) if not (isinstance(a, float) and a == 0)]
    factors = [a for a, _ in terms]

    def total(*leaves: Array) -> Array:
        first, *rest = (a * leaf for a, leaf in zip(factors, leaves, strict=True))
        return sum(rest, first)

    return jax.tree.map(total, *[f for _, f in terms])
