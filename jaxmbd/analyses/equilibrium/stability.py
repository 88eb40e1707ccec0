"""The small motions about a steady state, and what they say of its stability.

In the turning world, with speeds `w` relative to it, `ÿ + D̂ ẏ + K̂ y = 0` with `D̂ = Rᵀ (∂f/∂w) R` and
`K̂ = Rᵀ (∂f/∂q) R`, `Rᵀ M R = 1`: dampers, gyroscopic and Coriolis' forces are in `D̂`.

Source: Müller, Schiehlen, *Linear Vibrations* (1985); Schiehlen, Eberhard, *Applied Dynamics* (2014), §5.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float, Int

from jaxmbd.analyses.equilibrium.balance import Balance, Reduced
from jaxmbd.arrays import frozen
from jaxmbd.compile.cache.disk_cache import cached_on_disk

# Of the fastest mode, or of one of the forces there are: eigenvalues below count as zero. A double zero is split by the
# root of rounding.
_ZERO = 1e-6


class SmallMotions(eqx.Module):
    """Eigenvalues `[1/s]` of the small motions, fastest growing first.

    Directions that the constraints hold count as `−inf`. `growing`, how many grow; `neutral`, how many are zero,
    without the pair that a free rotation has in any case (it may be turned on, or turned faster); `negative`, how many
    directions have a negative stiffness.
    """

    eigenvalues: Complex[Array, "*batch n"]
    growing: Int[Array, "*batch"]
    neutral: Int[Array, "*batch"]
    negative: Int[Array, "*batch"]

    @property
    def stable(self) -> Bool[Array, "*batch"]:
        """Whether nothing grows, and nothing is indifferent."""
        return (self.growing == 0) & (self.neutral == 0)


@cached_on_disk
def small_motions(balance: Balance, q: Float[Array, " nq"]) -> SmallMotions:
    """The small motions about a position in balance."""
    at = Reduced(*frozen((balance, q)))
    steady = balance.at(q)
    C, lam = steady.position.jacobian, _multipliers(balance, q, at)
    R = at.R - at.C_inverse @ (C @ at.R)  # the same, and its change with C
    M = R.T @ jax.vmap(steady.position.inertia.times, 1, 1)(R)
    K = jax.jacfwd(lambda step: balance.unbalance(steady.position.perturbed(step), lam)[0])(steady.still)
    D = jax.jacfwd(lambda w: steady.unbalance(lam, w))(steady.still)
    values = _eigenvalues(M + jnp.diag(1.0 - at.free), R.T @ K @ R, R.T @ D @ R, at.free)
    fastest = jnp.max(jnp.where(jnp.isfinite(values.real), jnp.abs(values), 0.0))
    fastest = jnp.maximum(fastest, jnp.sqrt(at.scale))
    zero = jnp.abs(values) <= _ZERO * fastest
    growing = (values.real > _ZERO * fastest) & ~zero
    symmetric = 2 * _turns_freely(at, steady.v).astype(int)
    stiffness = jnp.linalg.eigvals(at.stiffness)
    negative = jnp.sum(stiffness.real < -(_ZERO**2) * jnp.maximum(jnp.max(jnp.abs(stiffness)), at.scale))
    return SmallMotions(values, jnp.sum(growing), jnp.maximum(jnp.sum(zero) - symmetric, 0), negative)


def _multipliers(balance: Balance, q: Array, at: Reduced) -> Array:
    """`λ`, differentiable where constraints do not repeat one another."""
    bare = balance.at(q).unbalance(jnp.zeros_like(at.lam))
    C = balance.at(q).position.jacobian
    return at.lam - at.C_inverse.T @ (bare + C.T @ at.lam)


def _eigenvalues(M: Array, K: Array, D: Array, free: Bool[Array, " nv"]) -> Complex[Array, " n"]:
    """Those of `M ÿ + D ẏ + K y = 0`. What is not free decays, faster than anything else and each at a rate of its own,
    so that eigenvalues keep their derivatives; then it is left out."""
    n = len(free)
    held = jnp.concatenate([~free, ~free])
    A = jnp.block([[jnp.zeros_like(K), jnp.diag(1.0 * free)], [-jnp.linalg.solve(M, K), -jnp.linalg.solve(M, D)]])
    bound = jax.lax.stop_gradient(1.0 + jnp.linalg.norm(A))
    values = jnp.linalg.eigvals(A - jnp.diag(jnp.where(held, bound * (2.0 + jnp.arange(2 * n) / n), 0.0)))
    values = jnp.where(values.real < -1.5 * bound, -jnp.inf, values)
    return values[jnp.argsort(-values.real)]


def _turns_freely(at: Reduced, v: Float[Array, " nv"]) -> Bool[Array, ""]:
    """Whether the rotation is one that the constraints leave free."""
    size = jnp.linalg.norm(v)
    missing = jnp.linalg.norm(v - at.R @ (at.R.T @ at.inertia.times(v)))
    return (size > 0) & (missing <= _ZERO * size)
