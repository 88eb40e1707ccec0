"""Numerical stiffness at a state: the fastest small motion, and the force that causes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex

from jaxmbd.analyses.assembly.speed_solve import check_mass
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.formulations.formulation import Augmented
from jaxmbd.integrate.formulations.joint_loads import motion_of
from jaxmbd.model.force.load_friction import check_nothing_rubs
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.numerics.linear_solve import nonzero_singular_values
from jaxmbd.state.state import State, check_state

STABLE = 6.0  # stability limit of |eigenvalue| × step for Dopri8, measured; about 3.3 for Tsit5 and Dopri5
_MOVES = 0.3  # share of the largest component of a mode from which a speed is named


@dataclass(frozen=True)
class TimeScales:
    """The eigenvalues of the small motions about a state. `print` describes the fastest motion and the step it allows.

    `eigenvalues` `[1/s]`: those of the motions that the constraints allow, fastest first; `cause`: the force with the
    largest share in the fastest motion (empty if there is none); `moving`: the speeds, or the states of parts, with the
    largest components in it.
    """

    eigenvalues: Complex[np.ndarray, " k"]
    cause: str
    moving: tuple[str, ...]

    @property
    def fastest(self) -> float:
        """The modulus of the fastest eigenvalue [1/s]."""
        return float(np.abs(self.eigenvalues).max(initial=0.0))

    @property
    def step(self) -> float:
        """The largest step [s] at which the default explicit solver is stable."""
        return STABLE / self.fastest if self.fastest else float("inf")

    def __repr__(self) -> str:
        if not self.fastest:
            return "No motion is fast: all eigenvalues are zero."
        value, force = self.eigenvalues[0], f", by the force {self.cause!r}" if self.cause else ""
        kind = f"vibrates at {abs(value.imag) / (2 * np.pi):.3g} Hz" if abs(value.imag) > abs(value.real) else (
            f"{'grows' if value.real > 0 else 'decays'} with a time constant of {1 / self.fastest:.3g} s"
        )  # fmt: skip
        return (
            f"The fastest motion, of {', '.join(map(repr, self.moving))}, {kind}{force}. It holds the steps of an "
            f"explicit solver below about {self.step:.2g} s; solver=jaxmbd.Radau() is not bound by it, and faster if "
            "the motion itself allows steps twenty times as long."
        )


def time_scales(mechanism: Mechanism, state: State) -> TimeScales:
    """Find the motion that limits the steps of an explicit solver at a state.

    The motions `u` that the constraints allow, `C u = 0`, satisfy `(s² M + s D + K) u = 0` in these directions, where
    `K` and `D` are the derivatives of `M v̇ − F + Cᵀ λ` with respect to the coordinates and the speeds; with states of
    parts, whose rates depend on the motion, they are larger systems. The cause of the fastest motion is the force whose
    own contribution to `|uᴴ (K + s D) u|` is the largest, or the part whose states take the larger part in it.

    **Returns:** `TimeScales`.

        >>> governor = mbd.examples.get("governor")
        >>> print(f"{mbd.time_scales(governor.mechanism, governor.state()).step:.2g} s")
        0.00074 s
    """
    check_state(mechanism, state)
    check_mass(mechanism, state.q, state.t, "time_scales")
    check_nothing_rubs(mechanism, "time_scales")
    return time_scales_at(mechanism.with_own_states(state.z), state.t, state.q, state.v)


def time_scales_at(mechanism: Mechanism, t: Array, q: Array, v: Array) -> TimeScales:
    """Return the `time_scales` at a time, coordinates and speeds."""
    M, C, K, D, E, *own = (np.asarray(x) for x in _linearized(mechanism, t, q, v))
    speeds = np.asarray(Scales(mechanism).speeds)
    _, values, basis = np.linalg.svd(C)
    free = speeds[:, None] * basis[int(np.sum(nonzero_singular_values(values))) :].T
    n, nz = free.shape[1], E.shape[1]
    if not n + nz:
        return TimeScales(np.zeros(0, dtype=complex), "", ())
    reduced = np.linalg.inv(free.T @ M @ free) @ free.T
    along, by_speed, of_states = own
    rows = [
        [np.zeros((n, n)), np.eye(n), np.zeros((n, nz))],
        [-reduced @ K @ free, -reduced @ D @ free, -reduced @ E],
        [along @ free, by_speed @ free, of_states],
    ]
    eigenvalues, vectors = (x.astype(complex) for x in np.linalg.eig(np.block(rows)))
    order = np.argsort(-np.abs(eigenvalues), kind="stable")
    s, vector = eigenvalues[order[0]], vectors[:, order[0]]
    if nz:
        # Participation factors, which do not depend on units.
        taking_part = np.abs(vector * np.linalg.pinv(vectors)[order[0]])
        if taking_part[2 * n :].sum() > taking_part[: 2 * n].sum():
            names = _largest(mechanism.layout.z.names, taking_part[2 * n :])
            return TimeScales(eigenvalues[order], names[0].rpartition(".")[0], names)
    mode = free @ vector[n : 2 * n]
    names = _largest(mechanism.speed_names, np.abs(mode))
    return TimeScales(eigenvalues[order], _cause(mechanism, t, q, v, s, mode), names)


def _largest(names: Sequence[str], sizes: np.ndarray) -> tuple[str, ...]:
    """Return the names of the largest components, at most three."""
    share = sizes / max(sizes.max(), np.finfo(float).tiny)
    return tuple(names[int(i)] for i in np.argsort(-share)[:3] if share[i] > _MOVES)


@cached_on_disk
def _linearized(mechanism: Mechanism, t: Array, q: Array, v: Array) -> tuple[Array, ...]:
    """Return `M`, `C` without units; `K`, `D` and the derivative by the states of parts; and the derivatives of their
    rates by the same."""
    equations, z = Equations(mechanism), mechanism.z
    motion, at = motion_of(Augmented(0.0, 0.0), equations, jnp.asarray(t), q, v), equations.at(t, q)

    def imbalance(x: Array, v: Array, z: Array) -> tuple[Array, Array]:
        moved = equations.with_own_states(z).at(t, q + at.rate(x) - at.rate(jnp.zeros_like(x)))
        unbalanced = moved.inertia.times(motion.vdot) - moved.force(v) + moved.jacobian.T @ motion.lam
        return unbalanced, moved.own_rates(v)

    derivatives, own = jax.jacfwd(imbalance, (0, 1, 2))(jnp.zeros_like(v), v, z)
    return at.inertia.matrix(), equations.scales.jacobian(at.jacobian), *derivatives, *own


def _cause(mechanism: Mechanism, t: Array, q: Array, v: Array, s: Any, mode: Complex[np.ndarray, " nv"]) -> str:
    """Return the name of the force with the largest share in a mode; empty if none has one."""

    def part(*forces: Any) -> complex:
        return complex(np.vdot(mode, np.asarray(_stiffness_of(mechanism, forces, t, q, v, s, mode))))

    inertial = part()
    parts = {force.name: abs(part(force) - inertial) for force in mechanism.forces}
    largest = max(parts, key=parts.__getitem__, default="")
    return largest if parts.get(largest, 0.0) > 0.0 else ""


@cached_on_disk
def _stiffness_of(
    mechanism: Mechanism, forces: Sequence[Any], t: Array, q: Array, v: Array, s: Any, mode: Any
) -> Complex[Array, " nv"]:
    """Return the contribution of some of the forces to `(K + s D) u`."""
    equations = Equations(mechanism.replaced(forces=forces, controllers=()))

    def force(x: Array, v: Array) -> Array:
        at = equations.at(t, q)
        return -equations.force(t, q + at.rate(x) - at.rate(jnp.zeros_like(x)), v)

    K, D = jax.jacfwd(force, (0, 1))(jnp.zeros_like(v), v)
    return (K + s * D) @ mode
