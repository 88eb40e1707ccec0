"""Measured motions: samples of coordinates, smoothed, as the motion of a mechanism with loops.

Any set of coordinates may be measured that determines the position. If there are more of them than degrees of freedom,
the motion is at each time the one that keeps the joints closed and is nearest to all of them, each in units of its
noise. Positions, speeds and accelerations are reconciled one after the other:

    min |W (c(q) − y)| s.t. Φ(q, t) = 0,    min |W (ċ − ẏ)| s.t. C v = −Φ_t,    min |W (c̈ − ÿ)| s.t. C v̇ = γ

Source: García de Jalón, Bayo, *Kinematic and Dynamic Simulation of Multibody Systems* (1994), §3.4 (redundant data).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.assembly.position_solve import missed_coordinate
from jaxmbd.arrays import Numbers, as_float, frozen
from jaxmbd.checks import check_finite, check_mapping
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.integrate.formulations.newton_closure import NamedCoordinateCorrection
from jaxmbd.model.driver import Driver
from jaxmbd.model.functions.curve import Polynomials
from jaxmbd.model.functions.function import as_increasing
from jaxmbd.model.functions.spline import SmoothingSpline, hermite
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.linear_solve import inverse_and_projection, tolerance_of_rank
from jaxmbd.numerics.smoothing import Smoothed, butterworth_smoothed, kalman_smoothed
from jaxmbd.printing import count_of, format_number, over_time, readable

Smoothing = Literal["kalman", "spline", "butterworth", "none"]

_DEPENDENT = 1e-6  # share of the largest: below it coordinates count as dependent, near a singular position, too
_CORRECTIONS = 6  # of positions toward more measurements than degrees of freedom, by Gauss and Newton: 3 or 4 suffice


class MeasuredMotion(eqx.Module):
    """A motion by samples of some coordinates, with their rates and second rates.

    `ts (times,)` [s]; `samples`, by coordinate the value, rate and second rate at each time, `(times, 3)`; `noise`, by
    coordinate the standard deviation of what was measured about the smoothed value; `notes`, how each was smoothed.

    For `inverse_dynamics`, `kinematics`, `identification.regressor`, and an `Experiment` whose efforts were measured.

    **Arguments:**

    - `ts`: increasing times `[s]`, `(times,)`;
    - `positions`: the samples of coordinates of joints or bodies by name, `{"A.angle": angles}`, `(times,)`, of any set
      that determines the position of the mechanism; more of them than degrees of freedom are reconciled by its loops,
      outside of `jit` and `vmap` only, since which of them are independent depends on values.
      `"kalman"` leaves out samples that are NaN;
    - `speeds`, `accelerations`: samples of the rates and second rates of some of these, by the same names;
    - `smoothing`: `"kalman"`, a fixed-interval Kalman smoother of all that is measured of a coordinate, which finds the
      noise levels and how fast the motion changes by itself; `"spline"`, a `SmoothingSpline`; `"butterworth"`, a
      Butterworth filter forward and backward, of equally spaced samples; `"none"`: positions, speeds and accelerations
      are taken as they are, and all of them needed;
    - `cutoff` [Hz]: of the Butterworth filter, by default the one that leaves the whitest residual;
    - `noise`: for `"kalman"`, the standard deviation of positions where it is known, by coordinate.

    **Raises:** `MechanismError` for samples that do not fit together, by name of the coordinate.

        >>> ts = np.linspace(0.0, 2.0, 201)
        >>> angles = 0.5 * np.sin(3 * ts) + 1e-4 * np.random.default_rng(0).standard_normal(201)
        >>> motion = mbd.MeasuredMotion(ts, {"O.angle": angles})
        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> torque = mbd.inverse_dynamics(pendulum, motion, {"motor": "O.angle"}).effort("motor")  # [N m]

    Source of the filters: `jaxmbd/numerics/smoothing.py`.
    """

    ts: Float[Array, " times"]
    samples: dict[str, Float[Array, "times 3"]]
    noise: dict[str, Array]
    notes: tuple[tuple[str, str], ...] = eqx.field(static=True)

    def __init__(
        self,
        ts: Numbers,
        positions: Mapping[str, Numbers],
        speeds: Mapping[str, Numbers] | None = None,
        accelerations: Mapping[str, Numbers] | None = None,
        *,
        smoothing: Smoothing = "kalman",
        cutoff: float | None = None,
        noise: Mapping[str, float] | None = None,
    ) -> None:
        check_known("smoothing", [smoothing], get_args(Smoothing))
        measured = {"positions": positions, "speeds": speeds, "accelerations": accelerations, "noise": noise}
        for field, given in measured.items():
            check_mapping(f"MeasuredMotion: {field}", given, "{'A.angle': values}")
        if not positions:
            raise MechanismError("MeasuredMotion: positions must name at least one coordinate: {'A.angle': angles}.")
        for field, given in measured.items():
            check_known(f"measured position, for {field}", given or {}, positions)
        if cutoff is not None and smoothing != "butterworth":
            raise MechanismError("MeasuredMotion: cutoff is that of smoothing='butterworth'.")
        self.ts = as_increasing("MeasuredMotion", "ts", ts, strict=True)
        found = {
            name: _smoothed(name, ts, [(given or {}).get(name) for given in measured.values()], smoothing, cutoff)
            for name in positions
        }
        self.samples = {
            name: as_float(np.stack([x.values, x.rates, x.second_rates], axis=1)) for name, x in found.items()
        }
        self.noise = {name: as_float(x.noise) for name, x in found.items()}
        self.notes = tuple((name, x.how) for name, x in found.items())

    @property
    def coordinates(self) -> tuple[str, ...]:
        """The names of the measured coordinates."""
        return tuple(self.samples)

    def driven(self, mechanism: Mechanism) -> Mechanism:
        """Return a mechanism that moves so: with a driver for each coordinate in place of its own drivers. Between the
        samples the motion consists of quintic polynomials with their values, rates and second rates."""
        taken = {part.name for part in mechanism.parts()} - {driver.name for driver in mechanism.drivers}
        drivers = []
        for name, samples in self.samples.items():
            called = name.replace(".", " ")
            while called in taken:
                called += "'"
            motion = Polynomials(self.ts[:-1], hermite(self.ts, samples), order=3)
            drivers.append(Driver(called, name, motion))
        return mechanism.replaced(drivers=drivers)

    def __repr__(self) -> str:
        return readable(self, self._text, ts=1)

    def _text(self) -> str:
        columns = [
            (f"{name}{dots}", unit, np.asarray(samples)[:, k])
            for name, samples in self.samples.items()
            for k, (dots, unit) in enumerate((("", ""), (" rate", "1/s"), (" second rate", "1/s²")))
        ]
        notes = "\n".join(f"{name}: {how}" for name, how in self.notes if name in self.samples)
        return f"Measured motion at {count_of(len(self.ts), 'time')}\n{over_time(columns)}\n{notes}"


def _smoothed(name: str, ts: Any, given: Sequence[Any], smoothing: str, cutoff: Any) -> Smoothed:
    """One coordinate with its rates, by the method asked for; `given`: positions, speeds, accelerations and noise."""
    positions, speeds, accelerations, noise = given
    try:
        if smoothing == "kalman":
            return kalman_smoothed(ts, positions, speeds, accelerations, noise=noise)
        if smoothing == "none":
            return _as_they_are(ts, positions=positions, speeds=speeds, accelerations=accelerations)
        for what, unused in (("speeds", speeds), ("accelerations", accelerations), ("noise", noise)):
            if unused is not None:
                raise MechanismError(f"smoothing={smoothing!r} takes positions alone, and no {what}: use 'kalman'.")
        if smoothing == "butterworth":
            return butterworth_smoothed(ts, positions, cutoff=cutoff)
        return _by_spline(np.asarray(ts, dtype=float), positions)
    except MechanismError as error:
        raise MechanismError(f"MeasuredMotion: {name!r}: {error}") from error


def _as_they_are(ts: Any, **given: Any) -> Smoothed:
    if any(one is None for one in given.values()):
        raise MechanismError("smoothing='none' needs positions, speeds and accelerations of each coordinate.")
    for what, samples in given.items():
        check_finite("smoothing='none'", what, as_float(samples), np.shape(ts))
    value, rate, second = (np.asarray(one, dtype=float) for one in given.values())
    nothing = np.full((len(value), 3), np.nan)
    return Smoothed(value, rate, second, 0.0, np.nan, np.nan, nothing, "as it is")


def _by_spline(ts: np.ndarray, positions: Any) -> Smoothed:
    spline = SmoothingSpline(ts, positions)
    pieces = scipy.interpolate.PPoly(np.asarray(spline.coefficients).T, np.append(spline.breaks, ts[-1]))
    values = [pieces(ts, order) for order in range(3)]
    noise = float(np.std(np.asarray(positions) - values[0]))
    nothing = np.full((len(ts), 3), np.nan)
    how = f"quintic spline, smoothing {format_number(spline.smoothing)}"
    return Smoothed(values[0], values[1], values[2], noise, np.nan, np.nan, nothing, how)


# --- loops ---------------------------------------------------------------------------------------------------


def reconciled(
    mechanism: Mechanism, motion: MeasuredMotion, follow: Callable[[Mechanism, Array], Any]
) -> MeasuredMotion:
    """The motion by as many of its coordinates as there are degrees of freedom, such that it satisfies the loops.

    `follow`: the motion of a mechanism with drivers at given times, by `kinematics`.

    **Raises:** `MechanismError` for unknown coordinates, and if they do not determine the position.
    """
    free = mechanism.replaced(drivers=())
    for name in motion.coordinates:
        free.coordinate(name)
    chosen = _independent(*frozen((free, motion)))
    kept = _only(motion, chosen)
    if len(chosen) == len(motion.coordinates):
        return kept
    nominal = follow(kept.driven(free), motion.ts)
    names = motion.coordinates
    samples = jnp.stack([motion.samples[name] for name in names], axis=1)
    found = _reconciled(free, motion.ts, nominal.q, samples, jnp.asarray(_weights(frozen(motion))), names)
    return eqx.tree_at(lambda m: m.samples, kept, {name: found[:, names.index(name)] for name in chosen})


def _independent(mechanism: Mechanism, motion: MeasuredMotion) -> tuple[str, ...]:
    """As many of the coordinates as determine the position, those with the least noise first."""
    names, state = motion.coordinates, assemble(mechanism)
    D = np.asarray(_allowed_rates(mechanism, state.t, state.q, names)) * _weights(motion)[:, None]
    _, R, order = scipy.linalg.qr(D.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(R))
    rank = int(np.sum(sizes > _DEPENDENT * sizes.max(initial=0.0)))
    return tuple(names[k] for k in sorted(order[:rank]))


@cached_on_disk
def _allowed_rates(mechanism: Mechanism, t: Array, q: Array, names: tuple[str, ...]) -> Float[Array, "names nv"]:
    """The rates of coordinates by speeds that the joints allow, without units of length."""
    at = Equations(mechanism).at(t, q)
    scales = at.equations.scales
    _, free = inverse_and_projection(scales.jacobian(at.jacobian), _DEPENDENT)
    return (NamedCoordinateCorrection(names).rows(at).dense() * jnp.asarray(scales.speeds)[None]) @ free


def _weights(motion: MeasuredMotion) -> Float[np.ndarray, " names"]:
    """One by the noise of each coordinate, relative to the largest; alike where noise is not known."""
    noise = np.array([float(motion.noise[name]) for name in motion.coordinates])
    if not np.all(np.isfinite(noise) & (noise > 0)):
        return np.ones(len(noise))
    return noise.min() / noise


def _only(motion: MeasuredMotion, names: tuple[str, ...]) -> MeasuredMotion:
    of = lambda m: (m.samples, m.noise)  # noqa: E731
    return eqx.tree_at(of, motion, tuple({name: given[name] for name in names} for given in of(motion)))


@cached_on_disk
def _reconciled(
    mechanism: Mechanism, ts: Array, qs: Array, samples: Array, weights: Array, names: tuple[str, ...]
) -> Float[Array, "times names 3"]:
    """The coordinates, rates and second rates nearest to `samples (times, names, 3)`, from closed positions `qs`."""
    equations, hold = Equations(mechanism), NamedCoordinateCorrection(names)

    def missed(at: Configuration, values: Array) -> Array:
        return jnp.stack([missed_coordinate(at, name, value) for name, value in zip(names, values, strict=True)])

    def one(t: Array, q: Array, wanted: Array) -> Array:
        for _ in range(_CORRECTIONS):
            at = equations.at(t, q)
            system = _Nearest(at, hold, weights)
            q = at.perturbed(system.solve(-at.position(), -missed(at, wanted[:, 0])))
        at, rest = equations.at(t, q), jnp.zeros(mechanism.nv, q.dtype)
        system = _Nearest(at, hold, weights)
        v = system.solve(-at.velocity(rest), wanted[:, 1] - hold.rates(at, rest))
        bias = hold.bias(at, v)
        vdot = system.solve(at.gamma(v), wanted[:, 2] + bias)
        values = wanted[:, 0] + missed(at, wanted[:, 0])
        return jnp.stack([values, hold.rates(at, v), system.D @ vdot - bias], axis=1)

    return jax.vmap(one)(ts, qs, samples)


class _Nearest:
    """The solution of `C x = b` with the least `|W (D x − d)|`; without units of length."""

    def __init__(self, at: Configuration, hold: NamedCoordinateCorrection, weights: Array) -> None:
        scales = at.equations.scales
        self.speeds, self.rows, self.weights = jnp.asarray(scales.speeds), jnp.asarray(scales.rows), weights
        self.D = hold.rows(at).dense()
        C = at.jacobian * self.speeds[None] / self.rows[:, None]
        self.inverse, free = inverse_and_projection(C)
        self.scaled = weights[:, None] * self.D * self.speeds[None]
        self.nearest = jnp.linalg.pinv(self.scaled @ free, rtol=tolerance_of_rank(C.dtype))

    def solve(self, b: Array, d: Array) -> Array:
        x = self.inverse @ (b / self.rows)
        return self.speeds * (x + self.nearest @ (self.weights * d - self.scaled @ x))
