"""The problem of an exciting motion: criterion and readings as functions of Fourier coefficients, with derivatives.

At each sample, the regressor and all that is limited depend on the coordinates `c` that are moved and on their rates
and second rates, three numbers each, which are linear in the coefficients `x`: `[c, ċ, c̈] = B x`. So derivatives by
these few numbers are computed at each sample (forward mode, through closed loops), and `B` gives those by `x`.

Columns are divided by their sizes in the random motions, and not by their own: a number that the motion hardly excites
then costs what it should. The condition number `κ` has kinks where singular values `σ` meet, as they do at its minimum.
It is replaced by

    κ_p = (Σ σᵏ · Σ σ⁻ᵏ)^(1/k),  k = 2 p:   κ ≤ κ_p ≤ κ r^(1/p)  for r base parameters

Source: Swevers, Ganseman, Tükel, De Schutter, Van Brussel, *Optimal robot excitation and identification*, IEEE Trans.
Robotics and Automation 13 (1997); Boyd, Vandenberghe, *Convex Optimization* (2004), §A.1.2 (norms).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.effort_columns import effort_columns
from jaxmbd.analyses.kinematics import kinematics
from jaxmbd.arrays import Scalar, constant
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.formulations.newton_closure import (
    DeterminedCorrection,
    close_loops,
    consistent_motion,
)
from jaxmbd.model.driver import Driver
from jaxmbd.model.functions.curve import Polynomials
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.optimal_design._limits import Limit
from jaxmbd.optimal_design._problem import Point
from jaxmbd.parameters.numbers import Number
from jaxmbd.state.output_channels import Snapshot, channel_values

Criterion = Literal["condition", "determinant"]
DOTS = {"": "", "_rate": "/s", "_second_rate": "/s²"}  # of names, with what they add to units


class Unknowns(eqx.Module):
    """What is identified: the numbers of a regressor, and which of its columns are those of base parameters."""

    places: tuple[int, ...] = eqx.field(static=True)
    numbers: tuple[Number, ...] = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)
    values: Float[Array, " others"]


@dataclass
class Series:
    """The motion of some coordinates as Fourier series, with coefficients `x` in units of what each may move.

    `middles`, `units`: of the coordinates; `at_rest`: rates and second rates are zero at `t = 0`.
    """

    period: float
    harmonics: int
    middles: Float[np.ndarray, " moved"]
    units: Float[np.ndarray, " moved"]
    at_rest: bool

    @property
    def at_middle(self) -> Float[np.ndarray, "moved 3"]:
        """`[c, ċ, c̈]` at rest in the middle."""
        return np.stack([self.middles, np.zeros_like(self.middles), np.zeros_like(self.middles)], axis=1)

    @cached_property
    def free(self) -> Float[np.ndarray, "coefficients free"]:
        """The coefficients (mean, cosines, sines) by the free ones; those of harmonic `k` are divided by `k`, so that
        each makes about the same speed."""
        k = np.arange(1, self.harmonics + 1)
        sizes = np.diag(np.concatenate([[1.0], 1 / k, 1 / k]))
        if not self.at_rest:
            return sizes
        nothing = np.zeros(self.harmonics)
        rows = np.stack([np.concatenate([[0.0], nothing, k]), np.concatenate([[0.0], k**2, nothing])]) @ sizes
        return sizes @ np.linalg.svd(rows)[2][2:].T

    def basis(self, ts: Float[np.ndarray, " times"]) -> Float[np.ndarray, "times 3 free"]:
        """`B` of one coordinate, in its unit."""
        omega = 2 * np.pi / self.period * np.arange(1, self.harmonics + 1)
        c, s = np.cos(np.outer(ts, omega)), np.sin(np.outer(ts, omega))
        one, zero = np.ones((len(ts), 1)), np.zeros((len(ts), 1))
        rows = [
            np.concatenate([one, c, s], axis=1),
            np.concatenate([zero, -omega * s, omega * c], axis=1),
            np.concatenate([zero, -(omega**2) * c, -(omega**2) * s], axis=1),
        ]
        return np.stack(rows, axis=1) @ self.free

    def coefficients(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "moved coefficients"]:
        """Mean, cosines and sines of each coordinate."""
        found = self.units[:, None] * (x.reshape(len(self.units), -1) @ self.free.T)
        found[:, 0] += self.middles
        return found

    def samples(self, x: Float[np.ndarray, " n"], B: Float[np.ndarray, "times 3 free"]) -> np.ndarray:
        """`[c, ċ, c̈] (times, moved, 3)`."""
        found = np.einsum("tdk,mk->tmd", B, self.units[:, None] * x.reshape(len(self.units), -1))
        return found + self.at_middle


@dataclass
class ExcitationProblem:
    """`min f(x)` within limits of readings at the samples. `mechanism`: its drivers move the coordinates as series.

    `limits`: by the name of the reading; `noise`: of the efforts of each actuator; `sizes`: what columns are divided
    by; `tightened (limits, 2)`: by how much lower and upper limits are kept further away, since a motion exceeds its
    samples; `exponent`: the `p` of `κ_p`.
    """

    mechanism: Mechanism
    series: Series
    ts: Float[np.ndarray, " times"]
    unknowns: Unknowns
    limits: dict[str, Limit]
    noise: Float[np.ndarray, " actuators"]
    criterion: Criterion
    sizes: Float[np.ndarray, " columns"]
    tightened: Float[np.ndarray, "limits 2"]
    exponent: float = 1.0
    objective: None = None  # no peak

    @cached_property
    def B(self) -> Float[np.ndarray, "times 3 free"]:
        """The basis at the samples."""
        return self.series.basis(self.ts)

    @cached_property
    def computed(self) -> tuple[str, ...]:
        """The limited readings that are not those of the series."""
        return tuple(name for name in self.limits if name not in self.moved)

    @cached_property
    def ends(self) -> Float[np.ndarray, "limits 2"]:
        """The lower and upper limits, infinite where there is none."""
        pairs = ((limit.lower, limit.upper) for limit in self.limits.values())
        return np.array([[-np.inf if a is None else a, np.inf if b is None else b] for a, b in pairs], dtype=float)

    @cached_property
    def scales(self) -> Float[np.ndarray, " limits"]:
        """Their scales."""
        return np.array([float(limit.size()) for limit in self.limits.values()])

    @cached_property
    def moved(self) -> dict[str, tuple[int, int]]:
        """The readings that are coordinates, rates and second rates of the series: the coordinate and the order."""
        names = [driver.coordinate for driver in self.mechanism.drivers]
        return {f"{name}{dots}": (k, order) for k, name in enumerate(names) for order, dots in enumerate(DOTS)}

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Those of `x`: none."""
        count = self.B.shape[2] * len(self.series.units)
        return np.full(count, -np.inf), np.full(count, np.inf)

    def driven(self, x: Float[np.ndarray, " n"]) -> Mechanism:
        """The mechanism with these coefficients."""
        H = self.series.harmonics
        leaves = [x for row in self.series.coefficients(x) for x in (row[0], row[1 : H + 1], row[H + 1 :])]
        of = lambda m: [part for d in m.drivers for part in (d.motion.mean, d.motion.cosines, d.motion.sines)]  # noqa: E731
        return eqx.tree_at(of, self.mechanism, [constant(leaf) for leaf in leaves])

    def positions(self, x: Float[np.ndarray, " n"], ts: np.ndarray) -> Float[np.ndarray, "times nq"] | None:
        """The closed positions along the motion; None if it cannot be followed."""
        found = np.asarray(_positions(self.driven(x), constant(ts)))
        return found if np.isfinite(found).all() else None

    def evaluated(self, x: Float[np.ndarray, " n"]) -> tuple[Point, Point]:
        """The problem at a point and its derivatives; NaN if the motion cannot be followed."""
        n, used = len(x), np.isfinite(self.ends)
        found = self._at(x, self.ts)
        if found is None:
            rows = len(self.ts) * np.count_nonzero(used)
            return _point(np.nan, np.full(rows, np.nan)), _point(np.full(n, np.nan), np.full((rows, n), np.nan))
        moved, ((Y, computed), (dY, slopes)) = found
        value, weights = _criterion(
            self.criterion, *map(constant, (Y / self.noise[:, None], self.sizes, self.exponent))
        )
        by_moved = np.einsum("tar,tarmd->tmd", np.asarray(weights) / self.noise[:, None], dY)
        values = np.stack([self._values(name, moved, computed) for name in self.limits], axis=1)
        by_x = np.stack([self._by_x(self._slopes(name, slopes)) for name in self.limits], axis=1)
        signs = np.array([1.0, -1.0])  # of lower and upper limits
        rows = signs * (values[:, :, None] - self.ends) - self.tightened
        scales = self.scales[:, None]
        return (
            _point(float(value), (rows / scales)[:, used].ravel()),
            _point(
                self._by_x(by_moved).sum(axis=0),
                (by_x[:, :, None] * (signs / scales)[..., None])[:, used].reshape(-1, n),
            ),
        )

    def readings(self, x: Float[np.ndarray, " n"], ts: np.ndarray) -> dict[str, np.ndarray] | None:
        """All that is limited, at as many times as there are samples; None if the motion cannot be followed."""
        found = self._at(x, ts)
        return None if found is None else {name: self._values(name, found[0], found[1][0][1]) for name in self.limits}

    def regressor(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "rows columns"] | None:
        """The columns of the base parameters at all samples, in units of `sizes`, rows in units of the noise; None as
        before."""
        found = self._at(x, self.ts)
        if found is None:
            return None
        return (found[1][0][0] / self.noise[:, None]).reshape(-1, len(self.sizes)) / self.sizes

    def _at(self, x: np.ndarray, ts: np.ndarray) -> tuple[np.ndarray, Any] | None:
        """The coordinates that are moved, and what `_samples` computes of them."""
        qs = self.positions(x, ts)
        if qs is None:
            return None
        moved = self.series.samples(x, self.series.basis(ts))
        found = _samples(self.mechanism, self.unknowns, self.computed, *map(constant, (ts, qs, moved)))
        return moved, jax.tree.map(np.asarray, found)

    def _values(self, name: str, moved: np.ndarray, readings: np.ndarray) -> Float[np.ndarray, " times"]:
        if name in self.moved:
            k, order = self.moved[name]
            return moved[:, k, order]
        return readings[:, self.computed.index(name)]

    def _slopes(self, name: str, slopes: np.ndarray) -> Float[np.ndarray, "times moved 3"]:
        if name not in self.moved:
            return slopes[:, self.computed.index(name)]
        found = np.zeros((len(self.ts), len(self.series.units), 3))
        found[:, *self.moved[name]] = 1.0
        return found

    def _by_x(self, by_moved: Float[np.ndarray, "times moved 3"]) -> Float[np.ndarray, "times n"]:
        """Derivatives by the coefficients from those by what is moved."""
        found = np.einsum("tmd,tdk->tmk", by_moved * self.series.units[:, None], self.B)
        return found.reshape(len(found), -1)


def _point(objective: Any, inequalities: np.ndarray) -> Point:
    nothing = np.zeros((0, *inequalities.shape[1:]))
    return Point(np.asarray(objective), inequalities, nothing, nothing, {})


@cached_on_disk
def _positions(mechanism: Mechanism, ts: Array) -> Float[Array, "times nq"]:
    """The positions along the motion of the drivers, NaN where it cannot be followed."""
    return kinematics(mechanism, ts, assemble(mechanism, t=ts[0], check=False), throw=False).q


@cached_on_disk
def _samples(
    mechanism: Mechanism, unknowns: Unknowns, channels: tuple[str, ...], ts: Array, qs: Array, moved: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return at each time the regressor of the base parameters `(actuators, columns)` and the readings, and their
    derivatives by the moved coordinates, rates and second rates; `qs`: positions near the closed ones."""

    def at_one(t: Array, q: Array, moved: Array) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        def twice(moved: Array) -> tuple[Any, Any]:
            found = _at_instant(mechanism, unknowns, channels, t, q, moved)
            return found, found

        slopes, found = jax.jacfwd(twice, has_aux=True)(moved)
        return found, slopes

    return jax.vmap(at_one)(ts, qs, moved)


def _at_instant(
    mechanism: Mechanism, unknowns: Unknowns, channels: tuple[str, ...], t: Array, q: Array, moved: Array
) -> tuple[Array, Array]:
    """Return the regressor and the readings where the drivers' coordinates, rates and second rates are `moved`."""
    powers = moved[:, ::-1] * jnp.array([[0.5, 1.0, 1.0]])
    drivers = (
        Driver(driver.name, driver.coordinate, Polynomials(t[None], row[None], order=3))
        for driver, row in zip(mechanism.drivers, powers, strict=True)
    )
    mechanism = mechanism.replaced(drivers=drivers)
    equations, correction = Equations(mechanism), DeterminedCorrection()
    at = equations.at(t, close_loops(equations, t, q, correction))
    v, vdot = consistent_motion(at, jnp.zeros(mechanism.nv, q.dtype), correction)
    s = Snapshot(t, at.q, v, vdot, jnp.zeros(equations.m, q.dtype), mechanism.z)
    matrix, found = effort_columns(mechanism, None, s, unknowns.places, unknowns.numbers, unknowns.values)
    s = eqx.tree_at(lambda s: s.lam, s, jnp.append(found.joints, found.actuators))
    readings = channel_values(equations, channels, s)
    nothing = jnp.zeros(0, q.dtype)
    values = jnp.stack([readings[name] for name in channels]) if channels else nothing
    return matrix[:, np.asarray(unknowns.columns, dtype=int)], values


@eqx.filter_jit
def _criterion(
    criterion: Criterion, Y: Float[Array, "times actuators columns"], sizes: Array, exponent: Scalar
) -> tuple[Scalar, Array]:
    """Return `log κ_p` of the regressor with columns in units of `sizes`, or minus the mean of `log σ`; and the
    derivatives by `Y`."""

    def value(Y: Array) -> Scalar:
        logs = jnp.log(jnp.linalg.svd(Y.reshape(-1, Y.shape[-1]) / sizes[None], compute_uv=False))
        if criterion == "determinant":
            return -jnp.mean(logs)
        logs = 2 * exponent * logs
        return (jax.nn.logsumexp(logs) + jax.nn.logsumexp(-logs)) / (2 * exponent)

    return jax.value_and_grad(value)(Y)
