"""Linear systems in discrete time: `x_{k+1} = A x_k + B u_k`, `y_k = C x_k + D u_k`."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from jaxmbd.analyses.linearization.eigen import Eigenpairs, general
from jaxmbd.analyses.linearization.state_space import dataset_of, names_of, real_numbers
from jaxmbd.arrays import Scalar
from jaxmbd.checks import check_count
from jaxmbd.engine import trace_once
from jaxmbd.printing import readable, table

if TYPE_CHECKING:
    import xarray as xr

_ROUNDING = 2.0**7  # units of rounding: what changes by less in a period keeps its value
_SHARES, _LEAST = 3, 0.05  # the most states that are named for an eigenvalue, and the least share of each
_SWEEPS = 6  # over all states, after which a matrix is balanced well enough
_GONE = 1e-9  # of `|z|`: what is smaller counts as zero


class SampledSystem(eqx.Module):
    """The small motions about a state from one instant to the next, `x_{k+1} = A x_k + B u_k`, `y_k = C x_k + D u_k`;
    see `LinearSystem.sampled`.

    - `x`: the changes of the states of the `LinearSystem`, and of `memory`: inputs that wait for their delay; of a
      sampled controller what it holds and remembers is among the former;
    - `period` T `[s]`, from one instant to the next; the inputs are constant in between;
    - `sizes`: comparable sizes of the states.

    `print(system)` shows the names of states, inputs and outputs, and the eigenvalues with what takes part in each.
    """

    A: Float[Array, "x x"]
    B: Float[Array, "x inputs"]
    C: Float[Array, "outputs x"]
    D: Float[Array, "outputs inputs"]
    period: Scalar
    sizes: Float[Array, " x"]
    coordinates: tuple[str, ...] = eqx.field(static=True)
    speeds: tuple[str, ...] = eqx.field(static=True)
    own_states: tuple[str, ...] = eqx.field(static=True)
    memory: tuple[str, ...] = eqx.field(static=True)
    inputs: tuple[str, ...] = eqx.field(static=True)
    outputs: tuple[str, ...] = eqx.field(static=True)
    input_units: tuple[str, ...] = eqx.field(static=True)
    output_units: tuple[str, ...] = eqx.field(static=True)

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the entries of `x`. `"O.angle[k-2]"` is the input of two samples before."""
        return self.coordinates + self.speeds + self.own_states + self.memory

    @property
    def eigenvalues(self) -> Complex[Array, " x"]:
        """The eigenvalues z of `A` (the poles, or multipliers of one period), smallest first, with both of each
        conjugate pair.

        Differentiable in forward and reverse mode, but for repeated ones, such as the zeros of a delay; see
        `LinearSystem.eigenvalues`.
        """
        return self._eigen().values

    @property
    def is_constant(self) -> Bool[Array, " x"]:
        """The mask of the states of parts that keep any value, such as the integral of a controller without gain. Each
        has an eigenvalue 1, which tells nothing of stability."""
        n = len(self.coordinates) + len(self.speeds)
        kept = jnp.abs(self._scaled() - jnp.eye(len(self.A), dtype=self.A.dtype))
        tolerance = _ROUNDING * float(jnp.finfo(self.A.dtype).eps)
        return (jnp.max(kept, axis=1, initial=0.0) <= tolerance) & (np.arange(len(self.A)) >= n)

    @property
    def spectral_radius(self) -> Scalar:
        """The largest `|z|`, without the eigenvalues 1 of states that are constant.

        Differentiable in forward and reverse mode.
        """
        changes = ~jax.lax.stop_gradient(self.is_constant)
        A = jnp.where(changes[:, None] & changes[None, :], self.A, 0.0)
        return jnp.max(jnp.abs(general(A, self.sizes).values), initial=0.0)

    @property
    def is_stable(self) -> Bool[Array, ""]:
        """True if all small motions die away: the spectral radius is less than 1."""
        return self.spectral_radius < 1

    def response(self, omega: Any) -> Complex[Array, "omega outputs inputs"]:
        """Return the frequency response `C (e^{iωT} − A)⁻¹ B + D` at angular frequencies `ω (omega,)` `[rad/s]`, which
        have a meaning up to `π / T`."""
        omega, one = real_numbers("omega", omega, self.A.dtype), jnp.eye(len(self.A), dtype=self.A.dtype)
        z = jnp.exp(1j * omega * self.period)
        gain = jax.vmap(lambda z: self.C @ jnp.linalg.solve(z * one - self.A, self.B + 0j))(z)
        return gain + self.D[None]

    def step(self, count: int) -> Float[Array, "count outputs inputs"]:
        """Return the outputs at the first `count` instants while each input is 1, `(count, outputs, inputs)`."""
        check_count("step: count", count, 1)
        one = jnp.ones(count, self.A.dtype)
        return self._outputs(one)

    def impulse(self, count: int) -> Float[Array, "count outputs inputs"]:
        """Return the outputs at the first `count` instants if each input is 1 until the second one, then 0."""
        check_count("impulse: count", count, 1)
        return self._outputs(jnp.zeros(count, self.A.dtype).at[0].set(1.0))

    def _outputs(self, u: Float[Array, " count"]) -> Float[Array, "count outputs inputs"]:
        def next_state(x: Array, u: Array) -> tuple[Array, Array]:
            return self.A @ x + self.B * u, self.C @ x + self.D * u

        return jax.lax.scan(next_state, jnp.zeros_like(self.B), u)[1]

    def to_xarray(self) -> "xr.Dataset":
        """Return `A`, `B`, `C`, `D` as an `xarray.Dataset` with the names of states, inputs and outputs."""
        return dataset_of(self, period=float(self.period))

    def _eigen(self) -> Eigenpairs:
        return general(self.A, self.sizes)

    def _scaled(self) -> Float[Array, "x x"]:
        return self.A * self.sizes[None, :] / self.sizes[:, None]

    def __repr__(self) -> str:
        return readable(self, self._text, A=2, period=0)

    def _text(self) -> str:
        radius = float(self.spectral_radius)
        stable = "stable" if radius < 1 else "not stable"
        headline = f"Sampled every {float(self.period):g} s, {stable}: the largest |z| is {radius:.6g}."
        return "\n".join([headline, *names_of(self), table(self._rows(), words=0)])

    def _rows(self) -> list[list[str]]:
        """A row for each eigenvalue, largest first, one for each conjugate pair."""
        eigen, T = self._eigen(), float(self.period)
        values, shares = np.asarray(eigen.values), np.asarray(_shares(eigen))
        rows = [["|z|", "frequency [Hz]", "damping ratio", "time constant [s]", "takes part"]]
        for k in reversed(range(len(values))):
            z = complex(values[k])
            if z.imag < 0:
                continue
            numbers = ["", "", ""]
            if abs(z) > _GONE:
                rate = np.log(z) / T  # of a motion in continuous time with the same values at the instants
                size, decay = abs(rate), -rate.real
                is_one = size * T < _GONE
                constant = np.inf if abs(decay) * T < _GONE else 1 / decay
                numbers = [
                    f"{size / (2 * np.pi):.5g}" if not is_one else "0",
                    f"{decay / size + 0.0:.4g}" if not is_one else "",
                    f"{constant:.4g}",
                ]
            most = [i for i in np.argsort(-shares[:, k], kind="stable")[:_SHARES] if shares[i, k] >= _LEAST]
            moves = ", ".join(f"{self.states[i]} {100 * shares[i, k]:.0f} %" for i in most)
            rows.append([f"{abs(z) if abs(z) > _GONE else 0.0:.5g}", *numbers, moves])
        return rows


def _shares(eigen: Eigenpairs) -> Float[Array, "x x"]:
    """The shares of the states in each eigenvalue (participation factors), whatever their units."""
    shares = jnp.abs(eigen.left * eigen.right)
    total = jnp.sum(shares, axis=0)
    return shares / jnp.where(total > 0, total, 1.0)[None]


@trace_once
def balanced_sizes(A: Float[Array, "x x"], sizes: Float[Array, " x"]) -> Float[Array, " x"]:
    """Sizes of the states by which rows and columns of `A` without its diagonal are equally large, from others.

    Where a column or a row is zero, the other one gets the largest entry 1.

    Source: Parlett, Reinsch, *Balancing a matrix for calculation of eigenvalues and eigenvectors*, Numerische
    Mathematik 13 (1969).
    """
    A = jnp.abs(A - jnp.diag(jnp.diag(A)))
    n = len(A)

    def balance(k: Array, sizes: Array) -> Array:
        i = k % n
        row, column = jnp.max(A[i] * sizes) / sizes[i], jnp.max(A[:, i] / sizes) * sizes[i]
        none = jnp.where(row > 0, row, jnp.where(column > 0, 1 / column, 1.0))
        both = jnp.sqrt(row / jnp.where(column > 0, column, 1.0))
        return sizes.at[i].multiply(jnp.where((row > 0) & (column > 0), both, none))

    return jax.lax.fori_loop(0, _SWEEPS * n, balance, sizes) if n else sizes
