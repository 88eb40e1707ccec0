"""Numerical continuation: predictor and corrector steps along a curve of equilibria over one parameter `p`.

A point `(q, p)` of the curve moves by `δ = R y + n + n_p s`, where `s` is the change of `p` as a share of its range:

    K̂ y + Rᵀ (∂f/∂p + K n_p) s = −Rᵀ (f + K n),      ⟨τ, (δ, s)⟩ = ahead

`τ` is the tangent at the previous point. The bordered matrix is regular at limit points, where `K̂` alone is singular.
With `τ = (0, 1)` the parameter is prescribed.

Source: Keller, *Numerical solution of bifurcation and nonlinear eigenvalue problems* (1977); Seydel, *Practical
Bifurcation and Stability Analysis* (2010), §4.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.equilibrium.balance import Balance, LinearizedBalance, solve_where_stiff
from jaxmbd.analyses.equilibrium.newton_search import tolerance_of_balance
from jaxmbd.arrays import Scalar
from jaxmbd.equations.equations import Equations
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.places import AbstractPlace

_CORRECTIONS, _SUBSTEPS = 12, 40
_WIDE = 0.5  # share of a step: if corrections add up to more they have led to another part of the curve


class BalanceFamily(eqx.Module):
    """The balances of a mechanism as a family over one parameter.

    `rate`: the twist of the rotation, for a unit speed if the speed is the parameter (`along` is None); `span`: the
    range of the parameter; `along`: its place in the mechanism.
    """

    mechanism: Mechanism
    rate: Float[Array, " twist"]
    t: Scalar
    span: Scalar
    along: AbstractPlace | None

    def at(self, p: Scalar) -> tuple[Mechanism, Balance]:
        """Return the mechanism and its balance at a value of the parameter."""
        if self.along is None:
            return self.mechanism, Balance(Equations(self.mechanism), p * self.rate, self.t)
        mechanism = self.along.replaced(self.mechanism, p)
        return mechanism, Balance(Equations(mechanism), self.rate, self.t)


class PathPoint(NamedTuple):
    """A point `(q, p)` of the curve, and the unit tangent `(step, share)`."""

    q: Float[Array, " nq"]
    p: Scalar
    step: Float[Array, " nv"]
    share: Scalar


def corrected(family: BalanceFamily, ahead: PathPoint, natural: bool) -> tuple[PathPoint, Scalar, Bool[Array, ""]]:
    """Return the point of the curve near a predicted one, the length of the correction, and True if it converged."""
    tolerance = tolerance_of_balance(ahead.q.dtype)
    one, far = jnp.ones_like(ahead.p), jnp.full_like(ahead.p, jnp.inf)
    border = ahead._replace(step=jnp.zeros_like(ahead.step), share=one) if natural else ahead

    def unfinished(state: Any) -> Any:
        _, size, _, count = state
        return (size > tolerance) & (count < _CORRECTIONS) & (jnp.isfinite(size) | (count == 0))

    def correct(state: Any) -> Any:
        point, _, correction, count = state
        point, size = _correction(family, border, point)
        return point, size, correction + size, count + 1

    start = (ahead, far, jnp.zeros_like(far), jnp.asarray(0))
    point, size, correction, _ = jax.lax.while_loop(unfinished, correct, start)
    return point, correction, size <= tolerance


def _correction(family: BalanceFamily, border: PathPoint, point: PathPoint) -> tuple[PathPoint, Scalar]:
    """Return the point after one step of Newton's method orthogonal to the border's tangent, with the curve's tangent,
    and the length of the step."""
    q, p = point.q, point.p
    at = LinearizedBalance(family.at(p)[1], q)
    unbalance = lambda p: family.at(p)[1].unbalance(q, at.lam)  # noqa: E731
    f_p, phi_p = jax.tree.map(lambda x: family.span * x, jax.jvp(unbalance, (p,), (jnp.ones_like(p),))[1])
    n, n_p = at.particular(at.phi), at.particular(phi_p)
    size = at.steady.span()
    weighted = at.inertia.times(border.step) / size
    forces = jnp.column_stack([at.stiffness * size, at.load(f_p, n_p), at.load(at.f, n)])
    scale = jnp.max(jnp.abs(forces[:, :-1]))
    row = jnp.concatenate([weighted @ at.R, jnp.stack([weighted @ n_p / size + border.share, weighted @ n / size])])
    system = jnp.concatenate([forces / jnp.where(scale > 0, scale, 1.0), row[None]])
    A, miss = system[:, :-1], system[:, -1]

    def to_step(x: Array) -> Array:
        return size * at.R @ x[:-1] + n_p * x[-1]

    newton, along = solve_where_stiff(A, -miss), solve_where_stiff(A, jnp.zeros_like(miss).at[-1].set(1.0))
    step, tangent = to_step(newton) + n, to_step(along)
    length = jnp.sqrt(jnp.vdot(tangent, at.inertia.times(tangent)) / size**2 + along[-1] ** 2)
    correction = jnp.sqrt(jnp.vdot(step, at.inertia.times(step)) / size**2 + newton[-1] ** 2)
    new_q = at.steady.position.perturbed(step)
    return PathPoint(new_q, p + family.span * newton[-1], tangent / length, along[-1] / length), correction


def predicted(family: BalanceFamily, point: PathPoint, ahead: Scalar) -> PathPoint:
    """Return the point at the distance `ahead` along the tangent."""
    at = family.at(point.p)[1].at(point.q)
    q, p = at.position.perturbed(ahead * point.step), point.p + family.span * ahead * point.share
    return PathPoint(q, p, point.step, point.share)


def natural_steps(
    family: BalanceFamily, first: PathPoint, values: Float[Array, " k"]
) -> tuple[PathPoint, Bool[Array, " k"]]:
    """Return the points at given values, each continued from the previous one; the first position is known."""

    def advance(point: PathPoint, value: Scalar) -> tuple[PathPoint, tuple[PathPoint, Array]]:
        def more(state: Any) -> Array:
            point, _, count = state
            return (count == 0) | ((point.p != value) & (count < _SUBSTEPS))

        def part(state: Any) -> Any:
            """Advance by a share of the remaining change of the parameter; halve the share if the corrector fails."""
            point, share, count = state
            ahead = share * (value - point.p) / (family.span * point.share)
            target = predicted(family, point, ahead)._replace(p=point.p + share * (value - point.p))
            target = target._replace(p=jnp.where(share == 1.0, value, target.p))
            new, correction, converged = corrected(family, target, natural=True)
            new = new._replace(p=target.p)  # prescribed: corrections change it by rounding
            is_good = converged & ((correction <= _WIDE * jnp.abs(ahead)) | (point.p == value))
            accepted = jax.tree.map(lambda a, b: jnp.where(is_good, a, b), new, point)
            return accepted, jnp.where(is_good, jnp.minimum(1.0, 2 * share), 0.5 * share), count + 1

        new, _, _ = jax.lax.while_loop(more, part, (point, jnp.ones_like(value), jnp.asarray(0)))
        return new, (new, new.p == value)

    return jax.lax.scan(advance, first, values)[1]


def arc_steps(
    family: BalanceFamily, first: PathPoint, last: Scalar, step: Scalar, points: int
) -> tuple[PathPoint, Bool[Array, " points"]]:
    """Return points along the curve, from a known first position until the parameter passes its last value.

    A step that fails is halved.
    """

    def advance(state: Any, k: Array) -> tuple[Any, tuple[PathPoint, Array]]:
        point, length, inside = state
        ahead = jnp.where(k == 0, 0.0, length)
        new, correction, converged = corrected(family, predicted(family, point, ahead), natural=False)
        is_good = converged & ((correction <= _WIDE * ahead) | (k == 0)) & inside
        within = (last - new.p) * first.share >= 0
        new = jax.tree.map(lambda a, b: jnp.where(is_good, a, b), new, point)
        length = jnp.where(is_good, jnp.minimum(1.5 * length, step), 0.5 * length)
        return (new, length, inside & (within | ~is_good)), (new, is_good & within)

    return jax.lax.scan(advance, (first, step, jnp.asarray(True)), jnp.arange(points))[1]
