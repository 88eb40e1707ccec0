"""Numbers of a mechanism from measured efforts, by linear least squares on its regressor.

With the base parameters `π = K θ` the efforts are `τ = X π + τ₀ + e`. Their noise differs from actuator to actuator and
is seldom white, so standard errors come from the residuals themselves, and not from a model of the noise.

Sources: Khalil, Dombre, *Modeling, Identification and Control of Robots* (2002), chapter 12; Hamilton, *Time Series
Analysis* (1994), §8.2 (errors under coloured noise); Janot,
Vandanjon, Gautier, *A generic instrumental variable approach for industrial robot identification*, IEEE Trans. Control
Syst. Tech. 22 (2014).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy
from jaxtyping import Float

from jaxmbd.arrays import as_float
from jaxmbd.checks import check_count, check_finite, check_instance, check_mapping, check_number
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification._base_parameters import BaseParameters, base_parameters
from jaxmbd.identification._possible_numbers import nearest_possible
from jaxmbd.identification._regressor import Regressor
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.autoregression import autocovariances
from jaxmbd.printing import count_of, format_number, table

Method = Literal["weighted", "ordinary", "robust", "total", "instruments", "possible"]
Array = np.ndarray

_ROUNDS = 30  # of noise levels or weights that follow from the residuals
_SETTLED = 1e-6  # relative change of the estimate at which they count as settled
_BISQUARE = 4.685  # noise levels at which Tukey's weight is zero: 95 % efficiency for normal noise
_ROUNDING = 1e-8  # share of the efforts below which residuals are no noise
_NORMAL = 1.4826  # from the median of absolute values to the standard deviation of normal noise
_FILTER = 8  # order of the filter before samples are left out
_BAND = 0.8  # its cutoff, as a share of half the new sampling rate


@dataclass(frozen=True, eq=False)
class EffortFit:
    """Numbers estimated from efforts; `print` shows the base parameters with their standard errors.

    `base`: the base parameters; `estimates`, `standard_errors (base,)`: their values; `theta (numbers,)`: all numbers
    of the regressor, of those with these values the nearest to the mechanism's; `noise`: for each actuator the standard
    deviation of the residuals [N or N m]; `explained`: the share of the efforts' variance that the model explains;
    `residuals`: for each regressor and actuator, of the samples that were used.
    """

    regressor: Regressor
    method: str
    base: BaseParameters
    estimates: Float[Array, " base"]
    standard_errors: Float[Array, " base"]
    theta: Float[Array, " numbers"]
    noise: dict[str, float]
    explained: dict[str, float]
    residuals: tuple[dict[str, Array], ...]

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism with the estimated numbers; with `method="possible"` its bodies are possible ones."""
        return self.regressor.with_values(self.theta)

    def efforts(self, regressor: Regressor) -> dict[str, Array]:
        """The efforts [N or N m] that the estimate predicts for another motion."""
        check_instance("EffortFit.efforts: regressor", regressor, Regressor, "a Regressor")
        if regressor.names != self.regressor.names:
            raise MechanismError(
                "The regressor has other numbers than that of the fit: make both of the same mechanism."
            )
        return {name: np.asarray(values) for name, values in regressor.efforts(self.theta).items()}

    def __repr__(self) -> str:
        rows = [["base parameter", "estimate", "standard error", "modelled", "unit"]]
        columns = zip(
            self.base.names, self.estimates, self.standard_errors, self.base.values, self.base.units, strict=True
        )
        rows += [[name, *map(format_number, numbers), unit] for name, *numbers, unit in columns]
        noise = [["effort", "residual", "explained"]]
        noise += [[name, format_number(x), f"{100 * self.explained[name]:.2f} %"] for name, x in self.noise.items()]
        head = f"Fit of efforts ({self.method}), {count_of(len(self.estimates), 'base parameter')}"
        return f"{head}, condition {self.base.condition:.3g}\n{table(rows, words=1)}\n\n{table(noise, words=1)}"


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of all actuators of all motions: the matrix of the numbers, the efforts without the known ones, and for each
    row its run: the number of its motion times `actuators`, their number, plus that of its actuator."""

    Y: Float[Array, "rows numbers"]
    tau: Float[Array, " rows"]
    run: Array
    actuators: int

    @property
    def actuator(self) -> Array:
        """For each row the number of its actuator."""
        return self.run % self.actuators


def fit_efforts(
    regressors: Regressor | Sequence[Regressor],
    efforts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    method: Method = "weighted",
    instruments: Regressor | Sequence[Regressor] | None = None,
    prior: float = 1.0,
    decimate: int = 1,
    tolerance: float | None = None,
) -> EffortFit:
    """Estimate the numbers of a regressor from measured efforts.

    **Arguments:**

    - `regressors`: of one or several motions of one mechanism;
    - `efforts`: of each motion the measured efforts by the names of the actuators [N or N m], `(times,)`; NaN where one
      is missing, and an actuator may be left out;
    - `method`: `"weighted"` least squares, each actuator by the noise level that its residuals show; `"ordinary"`, all
      alike; `"robust"`, samples with large residuals count less (Tukey's bisquare), such as those at reversals that the
      friction's model does not describe; `"total"` least squares, for noise in the regressor; `"instruments"`, which
      noise of speeds and accelerations does not bias; `"possible"`, weighted, with numbers that bodies can have
      (positive mass, possible inertia) and friction that does not drive, near the modelled ones where the motion
      tells nothing;
    - `instruments`: for that method, regressors with the same shapes whose noise is independent of that in
      `regressors`: of simulated or commanded motions, or of a repeated measurement;
    - `prior`: for `"possible"`, the weight of the divergence from the modelled bodies, in samples: one counts as little
      as one sample with a residual of a noise level;
    - `decimate`: keep every so many of the samples, after a low-pass filter that acts on efforts and regressor alike:
      noise at high frequencies then has no weight;
    - `tolerance`: as of `Regressor.base`.

    **Returns:** an `EffortFit`. Standard errors hold for noise of any correlation that is short against the motion,
    which is taken from the residuals, given that the model is right.

    **Raises:** `MechanismError` for unknown actuators and other shapes.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> driven = pendulum.with_parts([pl.Driver("motor", "O.angle", lambda t: jnp.sin(3 * t))])
        >>> matrix = mbd.identification.regressor(driven, np.linspace(0.0, 2.0, 21))
        >>> torques = 1.1 * mbd.inverse_dynamics(driven, matrix.ts).effort("motor")
        >>> found = mbd.identification.fit_efforts(matrix, {"motor": torques})
        >>> print(found.base.names[0], found.estimates[:1].round(6))  # 1.1 times 0.5 kg m
        rod.first_moment.x + 0.5 rod.mass [0.55]
    """
    regressors, efforts = _listed("regressors", regressors, Regressor), _listed("efforts", efforts, Mapping)
    _check(regressors, efforts, method, instruments, prior, decimate)
    first = regressors[0]
    rows = _stacked(regressors, efforts, decimate)
    base = base_parameters(rows.Y, first.names, first.units, np.asarray(first.values), tolerance)
    X = rows.Y[:, base.independent]
    if len(X) <= X.shape[1]:
        raise MechanismError(f"fit_efforts: {len(X)} samples do not determine {X.shape[1]} base parameters.")
    Z = X
    if method == "instruments":
        given = _listed("instruments", instruments, Regressor)
        Z = _stacked(given, efforts, decimate).Y[:, base.independent]
    solve = {"ordinary": _ordinary, "total": _total, "robust": _robust}.get(method, _weighted)
    pi, weights = solve(X, Z, rows)
    if method == "possible":
        theta = nearest_possible(first, rows.Y * weights[:, None], rows.tau * weights, prior)
        pi = base.combination @ theta
    else:
        theta = _nearest(base, pi, np.asarray(first.values))
    residuals = rows.tau - X @ pi
    return EffortFit(
        first, method, base, pi, _standard_errors(X, Z, residuals, weights, rows.run), theta,
        *_quality(first.actuators, rows, residuals), _split(regressors, rows, residuals),
    )  # fmt: skip


# --- data ----------------------------------------------------------------------------------------------------


def _listed(what: str, given: Any, kind: type) -> tuple[Any, ...]:
    if isinstance(given, kind):
        return (given,)
    if not isinstance(given, Sequence) or not given or not all(isinstance(one, kind) for one in given):
        raise MechanismError(f"fit_efforts: {what} must be a {kind.__name__}, or several, got {given!r}.")
    return tuple(given)


def _check(
    regressors: Sequence[Regressor], efforts: Sequence[Mapping[str, Any]], method: str, instruments: Any, prior: Any,
    decimate: Any,
) -> None:  # fmt: skip
    check_known("method", [method], get_args(Method))
    check_count("fit_efforts: decimate", decimate, 1)
    check_finite("fit_efforts", "prior", as_float(prior))
    check_number("fit_efforts", "prior", as_float(prior), "1")
    if (instruments is not None) != (method == "instruments"):
        raise MechanismError("fit_efforts: instruments and method='instruments' belong together: give both, or none.")
    others = () if instruments is None else _listed("instruments", instruments, Regressor)
    for one in (*regressors, *others):
        if one.names != regressors[0].names or one.actuators != regressors[0].actuators:
            raise MechanismError("fit_efforts: all regressors must have the same numbers and actuators.")
    if others and [r.matrix.shape for r in others] != [r.matrix.shape for r in regressors]:
        raise MechanismError("fit_efforts: each regressor needs instruments at as many times.")
    if len(regressors) != len(efforts):
        raise MechanismError(
            f"fit_efforts: {count_of(len(regressors), 'regressor')} and {count_of(len(efforts), 'set')} of efforts; "
            "give the efforts of each motion."
        )
    for regressor, measured in zip(regressors, efforts, strict=True):
        check_mapping("fit_efforts: efforts", measured, "{'motor': torques}")
        if not measured:
            raise MechanismError("fit_efforts: efforts must name at least one actuator: {'motor': torques}.")
        check_known("actuator", measured, regressor.actuators)
        for name, values in measured.items():
            if np.shape(values) != regressor.ts.shape:
                raise MechanismError(
                    f"fit_efforts: the efforts of {name!r} must have the shape {regressor.ts.shape} of the motion's "
                    f"times, got {np.shape(values)}."
                )


def _stacked(regressors: Sequence[Regressor], efforts: Sequence[Mapping[str, Any]], decimate: int) -> _Rows:
    parts, actuators = [], len(regressors[0].actuators)
    for motion, (regressor, measured) in enumerate(zip(regressors, efforts, strict=True)):
        matrix, known = np.asarray(regressor.matrix), np.asarray(regressor.known)
        for k, name in enumerate(regressor.actuators):
            if name in measured:
                tau = np.asarray(measured[name], dtype=float) - known[:, k]
                Y, tau = _decimated(matrix[:, k], tau, decimate)
                use = np.isfinite(tau)
                parts.append((Y[use], tau[use], np.full(use.sum(), motion * actuators + k)))
    Y, tau, run = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _Rows(Y, tau, run, actuators)


def _decimated(Y: Array, tau: Array, factor: int) -> tuple[Array, Array]:
    """Every so many of the samples, of both sides through the same filter, forward and backward."""
    if factor == 1:
        return Y, tau
    if not np.isfinite(tau).all():
        raise MechanismError("fit_efforts: decimate needs efforts without gaps (NaN).")
    sections = scipy.signal.butter(_FILTER, _BAND / factor, output="sos")
    both = scipy.signal.sosfiltfilt(sections, np.column_stack([Y, tau]), axis=0)
    edge = _FILTER * factor // 2  # what the filter's start and end distort
    kept = both[edge : len(both) - edge : factor]
    return kept[:, :-1], kept[:, -1]


# --- estimates -----------------------------------------------------------------------------------------------


def _solved(X: Array, Z: Array, tau: Array, weights: Array) -> Array:
    """The solution of `Zᵀ W² (X π − τ) = 0`, by QR where `Z = X`; columns in units of their size."""
    sizes = np.linalg.norm(X * weights[:, None], axis=0)
    Xw, tw = X * weights[:, None] / sizes, tau * weights
    if Z is X:
        return np.linalg.lstsq(Xw, tw, rcond=None)[0] / sizes
    Q, _ = np.linalg.qr(Z * weights[:, None])
    return np.linalg.solve(Q.T @ Xw, Q.T @ tw) / sizes


def _settled(X: Array, Z: Array, tau: Array, weights_of: Callable[[Array], Array]) -> tuple[Array, Array]:
    """The estimate whose weights follow from its own residuals."""
    weights = np.ones(len(X))
    pi = _solved(X, Z, tau, weights)
    for _ in range(_ROUNDS):
        before, weights = pi, weights_of(tau - X @ pi)
        pi = _solved(X, Z, tau, weights)
        if np.linalg.norm(X @ (pi - before)) <= _SETTLED * np.linalg.norm(tau):
            break
    return pi, weights


def _levels(residuals: Array, rows: _Rows, spread: Callable[[Array], float]) -> Array:
    """For each row the noise level of its actuator."""
    levels = np.ones(len(residuals))
    for k in np.unique(rows.actuator):
        own = rows.actuator == k
        least = max(_ROUNDING * _rms(rows.tau[own]), np.finfo(float).tiny)
        levels[own] = max(spread(residuals[own]), least)
    return levels


def _rms(x: Array) -> float:
    return float(np.sqrt(np.mean(x**2)))


def _median(x: Array) -> float:
    return _NORMAL * float(np.median(np.abs(x)))


def _ordinary(X: Array, Z: Array, rows: _Rows) -> tuple[Array, Array]:
    weights = np.ones(len(X))
    return _solved(X, Z, rows.tau, weights), weights


def _weighted(X: Array, Z: Array, rows: _Rows) -> tuple[Array, Array]:
    return _settled(X, Z, rows.tau, lambda r: 1 / _levels(r, rows, _rms))


def _robust(X: Array, Z: Array, rows: _Rows) -> tuple[Array, Array]:
    def weights(residuals: Array) -> Array:
        level = _levels(residuals, rows, _median)
        return np.clip(1 - (residuals / (_BISQUARE * level)) ** 2, 0, None) / level

    return _settled(X, Z, rows.tau, weights)


def _total(X: Array, Z: Array, rows: _Rows) -> tuple[Array, Array]:
    """The least change of matrix and efforts together, with columns in units of their size, for which `X π = τ` holds.

    Source: Van Huffel, Vandewalle, *The Total Least Squares Problem* (1991), §2.3.
    """
    _, weights = _weighted(X, Z, rows)
    both = np.column_stack([X, rows.tau]) * weights[:, None]
    sizes = np.linalg.norm(both, axis=0)
    least = np.linalg.svd(np.linalg.qr(both / sizes, mode="r"))[2][-1] / sizes
    return -least[:-1] / least[-1], weights


def _nearest(base: BaseParameters, pi: Array, values: Array) -> Array:
    """Of all numbers with these base parameters, those nearest to the modelled ones, in units of their sizes there."""
    sizes = np.where(values != 0, np.abs(values), np.max(np.abs(values), initial=0.0) or 1.0)
    K = base.combination * sizes
    return values + sizes * (np.linalg.pinv(K) @ (pi - base.combination @ values))


def _standard_errors(X: Array, Z: Array, residuals: Array, weights: Array, run: Array) -> Array:
    """The roots of the diagonal of `A⁻¹ B A⁻ᵀ`, with `A = Zᵀ W² X` and `B` the covariance of `Zᵀ W² e`. `weights` are
    `W`. The autocovariances `Γ` of the weighted noise are those of each run's residuals, times what the fit has taken
    from these, `n γ₀ / (n γ₀ − tr H Γ)`."""
    sizes = np.linalg.norm(X * weights[:, None], axis=0)
    Xw, Zw = X * weights[:, None] / sizes, Z * weights[:, None] / sizes
    inverse, B = np.linalg.inv(Zw.T @ Xw), np.zeros((X.shape[1],) * 2)
    for k in np.unique(run):
        own, noise = run == k, (residuals * weights)[run == k]
        gamma = autocovariances([noise])
        spread = scipy.linalg.matmul_toeplitz(gamma, Zw[own])
        taken = np.sum(inverse.T * (spread.T @ Xw[own]))
        B += Zw[own].T @ spread * len(noise) * gamma[0] / max(len(noise) * gamma[0] - taken, np.finfo(float).tiny)
    return np.sqrt(np.maximum(np.diag(inverse @ B @ inverse.T), 0.0)) / sizes


def _quality(names: Sequence[str], rows: _Rows, residuals: Array) -> tuple[dict[str, float], dict[str, float]]:
    noise, explained = {}, {}
    for k in np.unique(rows.actuator):
        own = rows.actuator == k
        noise[names[k]] = _rms(residuals[own])
        explained[names[k]] = float(1 - np.var(residuals[own]) / max(np.var(rows.tau[own]), np.finfo(float).tiny))
    return noise, explained


def _split(regressors: Sequence[Regressor], rows: _Rows, residuals: Array) -> tuple[dict[str, Array], ...]:
    """The residuals of each motion, by actuator."""
    used = set(rows.run.tolist())
    runs = [[(name, m * rows.actuators + k) for k, name in enumerate(r.actuators)] for m, r in enumerate(regressors)]
    return tuple({name: residuals[rows.run == run] for name, run in own if run in used} for own in runs)
