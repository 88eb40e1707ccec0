"""Radau IIA methods for stiff mechanisms, as a diffrax solver.

An implicit solver for ordinary differential equations sees `v̇ = f(q, v)` with the constraint forces already
eliminated; its Jacobian is the derivative of all that. Here the equations are solved as they stand,
`M a − F + Cᵀ λ = 0` with `Φ̇ = 0` (index 2), so that nothing but forces, masses and rows is differentiated, the linear
systems have the size of one instant's, and stage values satisfy the constraints.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float, frozen
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.solvers.radau_stages import Linearized, RadauStep, Stages, StageSystem, solve_stages
from jaxmbd.integrate.solvers.tableau import tableau

_REACH = 3.0  # times the last step: how far its polynomial is a better guess than constant speeds


class Collocation(dfx.AbstractLocalInterpolation):
    """The polynomial through the slopes at the nodes, and at the start as far as the step's error tells it."""

    t0: Any
    t1: Any
    y0: Any
    y1: Any
    slopes: Any
    more: Any

    def evaluate(self, t0: Any, t1: Any = None, left: bool = True) -> Any:
        if t1 is not None:
            return jax.tree.map(jnp.subtract, self.evaluate(t1), self.evaluate(t0))
        theta = (t0 - self.t0) / jnp.where(self.t1 == self.t0, 1.0, self.t1 - self.t0)

        def one(y0: Array, y1: Array, slopes: Array, more: Array) -> Array:
            method, powers = tableau(len(slopes)), jnp.arange(1, len(slopes) + 2)
            integrals, end, bump = (
                jnp.asarray(x, y0.dtype) for x in (method.integrals, method.matrix[-1], method.bump)
            )
            along = (integrals.T @ theta ** powers[:-1]) @ slopes + (bump @ theta**powers) * more
            return y0 + along + theta * (y1 - y0 - end @ slopes)  # the constraints' small correction at the end

        return jax.tree.map(one, self.y0, self.y1, self.slopes, self.more)


class Last(eqx.Module):
    """The last step: its length, the accelerations at its nodes, and the multipliers at its end."""

    h: Scalar
    a: Float[Array, "n nv"]
    lam: Float[Array, " m"]

    def guess(self, step: RadauStep) -> Stages:
        """The stages of the next step if the motion went on as in this one."""
        ratio, powers = step.h / self.h, jnp.arange(1, step.count + 1)[None]
        ahead = (1 + step.as_array(step.tableau.nodes)[:, None] * ratio) ** powers - 1
        gained = self.h * ahead @ step.as_array(step.tableau.integrals) @ self.a
        stages = Stages(
            jnp.broadcast_to(step.q, (step.count, *step.q.shape)),
            step.v[None] + jnp.where(ratio <= _REACH, gained, 0.0),
            jnp.broadcast_to(self.lam, (step.count, *self.lam.shape)),
        )
        return eqx.tree_at(lambda s: s.q, stages, step.reached(stages))


class Radau(dfx.AbstractAdaptiveSolver[Any]):
    """Radau IIA for stiff mechanisms: implicit, stiffly accurate, L-stable, of order `2 stages − 1`.

    It solves `M a − F + Cᵀ λ = 0`, `Φ̇ = 0` at the nodes of each step; then `q` and `v` move onto `Φ = 0` and `Φ̇ = 0` by
    the least change. The error of a step is estimated as RADAU5 does, of order `stages`. Use it where an explicit
    solver is held to small steps by stiff springs, dampers or bushings; it damps what is faster than the steps.

        simulate(mechanism, state, ts, solver=Radau())

    **Arguments:** `stages`, 1, 3, 5 or 7: orders 1, 5, 9 and 13. Five take the least time from errors of 1e-5 down to
    1e-10; three where forces have kinks, or large mechanisms few digits. `tolerance`, the relative one that the
    iteration of a step has to satisfy; unless given, `simulate` puts in that of the step-size control.

    **Raises:** `MechanismError` for another number of stages, or if used outside `simulate`.

    Source: Hairer, Wanner, *Stiff differential equations solved by Radau methods*, J. Comput. Appl. Math. 111 (1999).
    """

    stages: int = eqx.field(static=True, default=5)
    tolerance: Scalar | None = eqx.field(converter=as_float, default=None)
    term_structure: ClassVar = dfx.AbstractTerm
    interpolation_cls: ClassVar[Callable[..., Collocation]] = Collocation

    def __check_init__(self) -> None:
        if self.stages not in (1, 3, 5, 7):
            raise MechanismError(f"Radau: stages must be 1, 3, 5 or 7, got {self.stages!r}.")

    def within(self, tolerance: Any) -> "Radau":
        """The same method with this tolerance, unless it has one of its own."""
        return self if self.tolerance is not None else Radau(self.stages, tolerance)

    def order(self, terms: Any) -> int:
        return 2 * self.stages - 1

    def error_order(self, terms: Any) -> int:
        return self.stages + 1

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return terms.vf(t0, y0, args)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Last:
        if not (isinstance(args, tuple) and args and isinstance(args[0], Equations)):
            raise MechanismError("Radau solves the equations of a mechanism: give it to jaxmbd.simulate(solver=...).")
        _, v, _ = y0
        return Last(jnp.ones_like(t0), jnp.zeros((self.stages, len(v)), v.dtype), jnp.zeros(args[0].m, v.dtype))

    def step(
        self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Last, made_jump: Any
    ) -> tuple[Any, Any, dict[str, Any], Last, dfx.RESULTS]:
        equations, (q, v, integrals) = args[0], y0
        step = RadauStep(equations, t0, t1 - t0, q, v, self.stages)
        guess, linear = _guessed(step, solver_state)
        tolerance = jnp.inf if self.tolerance is None else self.tolerance
        stages, converged = solve_stages(step, guess, linear, jax.lax.stop_gradient(jnp.asarray(tolerance, q.dtype)))
        qdot, a = step.rates(stages)
        slopes = qdot, a, _integrands(terms, step, stages, integrals, args)
        more = _missing(terms, y0, args, *frozen((step, linear, slopes, stages)))
        gained = step.h * step.as_array(step.tableau.matrix[-1]) @ slopes[2]
        y1 = *_on_constraints(equations, t1, stages.q[-1], stages.v[-1]), integrals + gained
        good = converged & jnp.all(jnp.isfinite(y1[0])) & jnp.all(jnp.isfinite(y1[1]))
        error = jax.tree.map(lambda x: jnp.where(good, x / step.tableau.values[0].real, jnp.inf), more)
        dense = {"y0": y0, "y1": y1, "slopes": jax.tree.map(lambda k: step.h * k, slopes), "more": more}
        return y1, error, dense, Last(step.h, a, stages.lam[-1]), dfx.RESULTS.successful


def _guessed(step: RadauStep, last: Last) -> tuple[Stages, Linearized]:
    """A guess of the stages, and the equations linearised there. Neither has a part in the step's derivative."""
    step, last = frozen((step, last))
    guess = last.guess(step)
    return guess, Linearized(step, guess)


def _integrands(terms: Any, step: RadauStep, stages: Stages, integrals: Array, args: Any) -> Float[Array, "n k"]:
    """The integrands at the nodes."""
    if not len(integrals):
        return jnp.zeros((step.count, 0), integrals.dtype)
    return jax.vmap(lambda t, q, v: terms.vf(t, (q, v, integrals), args)[2])(step.times, stages.q, stages.v)


def _missing(
    terms: Any, y0: Any, args: Any, step: RadauStep, linear: Linearized, slopes: Any, stages: Stages
) -> tuple[Array, Array, Array]:
    """By how much the slopes at the start differ from those of the collocation polynomial there, times the step.

    The share of stiff forces in it is taken out, as RADAU5 does, by a solve with the matrix of the real eigenvalue.
    What is left is, times `γ₀`, the difference from an embedded method of order `stages`. It is not differentiated: it
    steers the steps, and between saved steps its derivative is as small as the error that is allowed.
    """
    first, at_start, nv = terms.vf(step.t, frozen(y0), frozen(args)), step.as_array(step.tableau.at_start), len(step.v)
    pairs = (step.v, stages.v), (first[1], slopes[1]), (first[2], slopes[2])
    speeds, accelerations, integrands = (step.h * (x - at_start @ nodes) for x, nodes in pairs)
    system = StageSystem(linear, step.as_array(step.tableau.values[0].real) / step.h)
    inertial = jnp.zeros(linear.along.shape[0], step.q.dtype).at[:nv].set(system.s * linear.M @ accelerations)
    left = system.solve(inertial - linear.along @ speeds)[:nv]
    return linear.N @ (speeds + left / system.s), left, integrands


def _on_constraints(equations: Equations, t: Scalar, q: Array, v: Array) -> tuple[Array, Array]:
    """The state moved onto `Φ = 0`, `Φ̇ = 0` by the least change in the metric of `M`.

    One step of Newton's method each: what it starts from is as small as the error of a step, what it leaves the square.
    """
    if not equations.m:
        return q, v
    at = equations.at(t, q)
    system = SaddlePoint(at)
    q = at.perturbed(-system.apply_impulse(system.solve(at.position())))
    at = equations.at(t, q)
    system = SaddlePoint(at)
    return q, v - system.apply_impulse(system.solve(at.velocity(v)))
