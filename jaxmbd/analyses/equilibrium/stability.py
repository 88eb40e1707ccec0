"""The small motions about a steady state, and its stability.

In the rotating frame, with speeds `w` relative to it, `ÿ + D̂ ẏ + K̂ y = 0` with `D̂ = Rᵀ (∂f/∂w) R`,
`K̂ = Rᵀ (∂f/∂q) R` and `Rᵀ M R = 1`. `D̂` contains dampers, gyroscopic and Coriolis forces.

Source: Müller, Schiehlen, *Linear Vibrations* (1985); Schiehlen, Eberhard, *Applied Dynamics* (2014), §5.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float, Int

from jaxmbd.analyses.equilibrium.balance import Balance, Reduced
from jaxmbd.arrays import frozen
from jaxmbd.compile.cache.disk_cache import cached_on_disk

# Share of the fastest eigenvalue, or of the rate that the size of the forces implies, below which an eigenvalue counts
# as zero. Rounding errors split a double zero eigenvalue by their square root.
_ZERO = 1e-6


class SmallMotions(eqx.Module):
    """The small motions about a steady state.

    - `eigenvalues` `[1/s]`: fastest growing first, −inf for constrained directions;
    - `growing`: the number of eigenvalues with a positive real part;
    - `neutral`: the number of eigenvalues that are zero, without the pair that every free rotation has (its angle and
      its speed can change);
    - `negative`: the number of directions with a negative stiffness.
    """

    eigenvalues: Complex[Array, "*batch n"]
    growing: Int[Array, "*batch"]
    neutral: Int[Array, "*batch"]
    negative: Int[Array, "*batch"]

    @property
    def stable(self) -> Bool[Array, "*batch"]:
        """True if no eigenvalue grows and none is neutral."""
        return (self.growing == 0) & (self.neutral == 0)


@cached_on_disk
def small_motions(balance: Balance, q: Float[Array, " nq"]) -> SmallMotions:
    """Return the small motions about an equilibrium position."""
    at = Reduced(*frozen((balance, q)))
    steady = balance.at(q)
    C, lam = steady.position.jacobian, _multipliers(balance, q, at)
    R = at.R - at.C_inverse @ (C @ at.R)  # equal to R, and differentiable with respect to C
    M = R.T @ jax.vmap(steady.position.inertia.times, 1, 1)(R)
    K = jax.jacfwd(lambda step: balance.unbalance(steady.position.perturbed(step), lam)[0])(steady.still)
    D = jax.jacfwd(lambda w: steady.unbalance(lam, w))(steady.still)
    values = _eigenvalues(M + jnp.diag(1.0 - at.free), R.T @ K @ R, R.T @ D @ R, at.free)
    fastest = jnp.max(jnp.where(jnp.isfinite(values.real), jnp.abs(values), 0.0))
    fastest = jnp.maximum(fastest, jnp.sqrt(at.scale))
    zero = jnp.abs(values) <= _ZERO * fastest
    growing = (values.real > _ZERO * fastest) & ~zero
    symmetric = 2 * _is_free_rotation(at, steady.v).astype(int)
    stiffness = jnp.linalg.eigvals(at.stiffness)
    negative = jnp.sum(stiffness.real < -(_ZERO**2) * jnp.maximum(jnp.max(jnp.abs(stiffness)), at.scale))
    return SmallMotions(values, jnp.sum(growing), jnp.maximum(jnp.sum(zero) - symmetric, 0), negative)


def _multipliers(balance: Balance, q: Array, at: Reduced) -> Array:
    """Return the multipliers, differentiable if the constraint rows are independent."""
    without_lam = balance.at(q).unbalance(jnp.zeros_like(at.lam))
    C = balance.at(q).position.jacobian
    return at.lam - at.C_inverse.T @ (without_lam + C.T @ at.lam)


def _eigenvalues(M: Array, K: Array, D: Array, free: Bool[Array, " nv"]) -> Complex[Array, " n"]:
    """Return the eigenvalues of `M ÿ + D ẏ + K y = 0`; −inf for constrained directions.

    Constrained directions get decay rates that are larger than all others and distinct, so that the eigenvalues keep
    their derivatives.
    """
    n = len(free)
    constrained = jnp.concatenate([~free, ~free])
    A = jnp.block([[jnp.zeros_like(K), jnp.diag(1.0 * free)], [-jnp.linalg.solve(M, K), -jnp.linalg.solve(M, D)]])
    bound = jax.lax.stop_gradient(1.0 + jnp.linalg.norm(A))
    values = jnp.linalg.eigvals(A - jnp.diag(jnp.where(constrained, bound * (2.0 + jnp.arange(2 * n) / n), 0.0)))
    values = jnp.where(values.real < -1.5 * bound, -jnp.inf, values)
    return values[jnp.argsort(-values.real)]


def _is_free_rotation(at: Reduced, v: Float[Array, " nv"]) -> Bool[Array, ""]:
    """Return True if the constraints allow the rotation with free speed."""
    speed = jnp.linalg.norm(v)
    residual = jnp.linalg.norm(v - at.R @ (at.R.T @ at.inertia.times(v)))
    return (speed > 0) & (residual <= _ZERO * speed)
