"""Modes of a linearised mechanism: frequencies, damping and shapes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from jaxmbd.analyses.linearization.eigen import Eigenpairs, symmetric
from jaxmbd.arrays import constant
from jaxmbd.engine import trace_once
from jaxmbd.printing import readable

_RIGID = 16.0  # units of the square root of rounding: below this share of the fastest mode a mode is a rigid-body mode
_NONE = 1e-9  # share of an eigenvalue below which its real or imaginary part counts as zero
_SHARES, _LEAST = 3, 0.05  # the most coordinates that are named for a mode, and the least share of its energy for that


class Modes(eqx.Module):
    """The modes `x e^{λt}` of a linear system, slowest first. `print` shows them as a table.

    - `eigenvalues`: λ `[1/s]`; `omega`: the undamped natural angular frequencies `|λ|` `[rad/s]`;
    - `rigid`: True for rigid-body modes, whose frequency is zero;
    - `names`: the names of the independent coordinates;
    - `reduced (n, modes)`: the mode shapes φ in the independent coordinates, with `φᴴ M̂ φ = 1`; the component with the
      largest share of the kinetic energy is real and positive;
    - `shapes (nv, modes)`: the mode shapes in all generalized speeds;
    - `shares (n, modes)`: the shares of the coordinates in the kinetic energy;
    - `accurate`: True if the eigenvalue problem is satisfied; otherwise shapes and shares have no meaning, and
      derivatives are NaN.

    Differentiable in forward and reverse mode. For repeated eigenvalues see `LinearSystem.eigenvalues`; their shapes
    are an arbitrary basis. The derivative of a zero frequency is set to zero.
    """

    eigenvalues: Complex[Array, " modes"]
    omega: Float[Array, " modes"]
    rigid: Bool[Array, " modes"]
    reduced: Complex[Array, "n modes"]
    shapes: Complex[Array, "nv modes"]
    shares: Float[Array, "n modes"]
    accurate: Bool[Array, " modes"]
    names: tuple[str, ...] = eqx.field(static=True)

    @property
    def frequencies(self) -> Float[Array, " modes"]:
        """The undamped natural frequencies `|λ| / 2π` `[Hz]`."""
        return _frequencies(self.omega)

    @property
    def damping(self) -> Float[Array, " modes"]:
        """The damping ratios `−Re λ / |λ|`: one without oscillation, negative for growing modes."""
        return _damping(self.eigenvalues, self.omega, self.rigid)

    @property
    def time_constants(self) -> Float[Array, " modes"]:
        """The time constants `−1 / Re λ` `[s]` of the decay; negative for growing modes, infinite without damping."""
        return _time_constants(self.eigenvalues, self.omega)

    def __repr__(self) -> str:
        return readable(self, self._text, eigenvalues=1, omega=1, shares=2)

    def _text(self) -> str:
        rows = [["", "frequency [Hz]", "damping ratio", "time constant [s]", "moves", ""]]
        for k, (frequency, damping, time, is_rigid) in enumerate(
            zip(*map(np.asarray, (self.frequencies, self.damping, self.time_constants, self.rigid)), strict=True)
        ):
            numbers = ["0", "", ""] if is_rigid else [f"{frequency:.5g}", f"{damping + 0.0:.4g}", f"{time:.4g}"]
            rows.append([str(k), *numbers, self._moving(k), self._remark(k)])
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = (
            "  ".join(
                text.ljust(width) if i > 3 else text.rjust(width)
                for i, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)

    def _moving(self, k: int) -> str:
        if not np.asarray(self.accurate)[k]:
            return "not known"
        shares = np.asarray(self.shares)[:, k]
        most = [i for i in np.argsort(-shares, kind="stable")[:_SHARES] if shares[i] >= _LEAST]
        return ", ".join(f"{self.names[i]} {100 * shares[i]:.0f} %" for i in most)

    def _remark(self, k: int) -> str:
        numbers = self.eigenvalues, self.accurate, self.rigid
        value, is_accurate, is_rigid = (np.asarray(x)[k].item() for x in numbers)
        if not is_accurate:
            return "inaccurate: A x = λ x is not satisfied"
        if not np.any(np.asarray(self.shares)[:, k]):
            return "states of parts alone, " + ("constant" if is_rigid else "no motion")
        if is_rigid:
            return "rigid body"
        if value.real > _NONE * abs(value):
            return "grows" if abs(value.imag) <= _NONE * abs(value) else "grows, oscillating"
        return "" if abs(value.imag) > _NONE * abs(value) else "no oscillation"


# Traced once, and run by NumPy where the values are known: called by hand, each operation would be compiled.


@trace_once
def _frequencies(omega: Float[Array, " modes"]) -> Float[Array, " modes"]:
    return omega / (2 * jnp.pi)


@trace_once
def _damping(
    eigenvalues: Complex[Array, " modes"], omega: Float[Array, " modes"], rigid: Bool[Array, " modes"]
) -> Float[Array, " modes"]:
    return jnp.where(rigid, 0.0, -eigenvalues.real / jnp.where(rigid, 1.0, omega))


@trace_once
def _time_constants(eigenvalues: Complex[Array, " modes"], omega: Float[Array, " modes"]) -> Float[Array, " modes"]:
    no_decay = jnp.abs(eigenvalues.real) <= _NONE * omega
    return jnp.where(no_decay, jnp.inf, -1 / jnp.where(no_decay, 1.0, eigenvalues.real))


@trace_once
def modes_of_squares(
    names: tuple[str, ...], K: Float[Array, "n n"], M: Float[Array, "n n"], directions: Float[Array, "nv n"]
) -> Modes:
    """Return the modes of `K φ = ω² M φ` with symmetric `K` and `M`, from `L⁻¹ K L⁻ᵀ` with `M = L Lᵀ`."""
    L = jnp.linalg.cholesky(M)
    solve_L = lambda X: jax.scipy.linalg.solve_triangular(L, X, lower=True)  # noqa: E731
    S = solve_L(solve_L(0.5 * (K + K.T)).T)
    squares, vectors = symmetric(0.5 * (S + S.T))
    size = jnp.abs(squares)
    rigid = size <= (_rigid_tolerance(squares.dtype) * jnp.sqrt(jnp.max(size))) ** 2
    omega = jnp.where(rigid, 0.0, jnp.sqrt(jnp.where(rigid, 1.0, size)))
    values = jnp.where(squares > 0, 1j, 1.0) * omega
    order = jnp.argsort(size, stable=True)
    phi = jax.scipy.linalg.solve_triangular(L, vectors, lower=True, trans=1) + 0j
    accurate = jnp.ones(len(order), bool)  # a symmetric problem is always well conditioned
    return _modes(names, values[order], phi[:, order], M, directions, rigid[order], accurate)


def modes_of_pairs(
    names: tuple[str, ...], eigen: Eigenpairs, M: Float[Array, "k k"], directions: Float[Array, "nv k"]
) -> Modes:
    """Return the modes of `ẋ = A x` from its eigenvalues, one of each conjugate pair."""
    values = np.asarray(jax.lax.stop_gradient(eigen.values))
    size = np.abs(values)
    selected = np.flatnonzero(np.imag(values) >= -_NONE * size)
    rigid = constant(size[selected] <= _rigid_tolerance(M.dtype) * size.max())
    return _selected_modes(names, eigen, eigen.accurate, constant(selected), M, directions, rigid)


@trace_once
def _selected_modes(
    names: tuple[str, ...], eigen: Eigenpairs, accurate: Array, selected: Array, M: Array, directions: Array,
    rigid: Array,
) -> Modes:  # fmt: skip
    shapes = eigen.right[: directions.shape[1], selected]
    return _modes(names, eigen.values[selected], shapes, M, directions, rigid, accurate[selected])


def _rigid_tolerance(dtype: jnp.dtype) -> float:
    return _RIGID * float(jnp.finfo(dtype).eps) ** 0.5


def _modes(
    names: tuple[str, ...], values: Array, z: Array, M: Array, directions: Array, rigid: Array, accurate: Array
) -> Modes:
    """Return the modes of eigenvalues and unscaled shapes `z`."""
    momentum = M @ z
    energy = jnp.real(jnp.sum(z.conj() * momentum, axis=0))
    moves = energy > 0  # else states of parts alone change
    z, momentum = (x / jnp.sqrt(jnp.where(moves, energy, 1.0))[None] for x in (z, momentum))
    shares = jnp.abs(z.conj() * momentum)
    shares = shares / jnp.where(moves, jnp.sum(shares, axis=0), 1.0)[None]
    largest = jnp.argmax(jax.lax.stop_gradient(shares), axis=0)
    lead = jnp.take_along_axis(z, largest[None], axis=0)
    z = z * jnp.where(moves, lead.conj() / jnp.abs(jnp.where(moves, lead, 1.0)), 1.0)
    omega = jnp.where(rigid, 0.0, jnp.abs(jnp.where(rigid, 1.0, values)))
    return Modes(values, omega, rigid, z, directions @ z, shares, accurate, names)
