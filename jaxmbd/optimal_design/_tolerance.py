"""Tolerance analysis: how deviations of the dimensions of a mechanism spread to a path or to any other quantity."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Number, as_float
from jaxmbd.checks import check_callable, check_count, check_finite, check_mapping
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.optimal_design._variables import Variables, variables_of
from jaxmbd.parameters.numbers import names_of
from jaxmbd.parameters.parameters import Build, Free, flat
from jaxmbd.printing import table
from jaxmbd.user_functions import user_array

Distribution = Literal["normal", "uniform"]

_SIGMAS = 3.0  # a normal deviation stays within its tolerance in 99.7 % of all cases
_SHOWN = 8


@dataclass(frozen=True)
class Tolerances:
    """The result of `tolerance_analysis`. `print` shows it as a table.

    - `nominal`: the quantity without deviations; `slopes`: its derivative by each dimension, on the last axis;
    - `labels`, `tolerances`: the dimensions and their tolerances;
    - `worst_case`: `Σ |∂f/∂p| T`, and `sigma`: the linear standard deviation, of each element;
    - `samples`: the quantity for random deviations, `(samples, …)`; `mean` and `spread`: their mean and standard
      deviation; `failed`: the share of samples in which the quantity is not finite, which are left out.
    """

    nominal: np.ndarray
    slopes: np.ndarray
    labels: tuple[str, ...]
    tolerances: Float[np.ndarray, " n"]
    worst_case: np.ndarray
    sigma: np.ndarray
    samples: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    failed: float

    def contributions(self) -> Float[np.ndarray, " n"]:
        """Return the share of each dimension in the linear variance, summed over all elements."""
        parts = (self.slopes.reshape(-1, len(self.labels)) * self.tolerances) ** 2
        return parts.sum(axis=0) / max(parts.sum(), np.finfo(float).tiny)

    def __repr__(self) -> str:
        rows = [["dimension", "tolerance", "share of the variance"]]
        shares = self.contributions()
        for k in np.argsort(-shares, kind="stable"):
            rows.append([self.labels[k], f"±{self.tolerances[k]:.3g}", f"{100 * shares[k]:.1f} %"])
        values = [["element", "nominal", "worst case", "3 sigma, linear", "3 sigma, samples", "mean shift"]]
        flat = [x.reshape(-1) for x in (self.nominal, self.worst_case, self.sigma, self.spread, self.mean)]
        order = np.argsort(-flat[2], kind="stable")[:_SHOWN]
        for k in np.sort(order):
            nominal, worst, sigma, spread, mean = (float(x[k]) for x in flat)
            deviations = f"±{worst:.3g}", f"±{_SIGMAS * sigma:.3g}", f"±{_SIGMAS * spread:.3g}"
            values.append([str(k), f"{nominal:.6g}", *deviations, f"{mean - nominal:.2g}"])
        more = f"\n... and {len(flat[0]) - _SHOWN} elements more, which spread less" * (len(flat[0]) > _SHOWN)
        failed = f"; {100 * self.failed:.2g} % of the samples failed" * (self.failed > 0)
        head = f"Tolerances of {len(self.labels)} dimensions, {len(self.samples)} samples{failed}"
        return f"{head}\n\n{table(rows)}\n\n{table(values)}{more}"


def tolerance_analysis(
    quantity: Callable[[Mechanism], Number],
    tolerances: Mapping[str, Number],
    *,
    mechanism: Mechanism | Build,
    variables: Free | None = None,
    samples: int = 1000,
    distribution: Distribution = "normal",
    seed: int = 0,
) -> Tolerances:
    """Compute how tolerances of dimensions spread to a quantity: by exact derivatives, and by random samples.

    `worst case = Σ |∂f/∂pₖ| Tₖ`,   `σ² = Σ (∂f/∂pₖ)² σₖ²`

    with `σₖ = Tₖ/3` for normal and `σₖ = Tₖ/√3` for uniform deviations. The samples show where the linear theory ends.

    **Arguments:**

    - `quantity`: from the mechanism to a number or an array, such as a path; analyses in it are called with
      `check=False` or `throw=False`;
    - `tolerances`: by name of a variable, the largest deviation from its value, in its unit;
    - `mechanism`, `variables`: as in `design`; the starting values are the nominal ones. Without `variables` they are
      the numbers of the mechanism that `tolerances` names, also by patterns;
    - `samples`: the number of random samples, all at once under `vmap`; `distribution`: `"normal"` or `"uniform"`;
      `seed`.

    **Returns:** `Tolerances`; print it.

    **Raises:** `MechanismError` for unknown names and tolerances that are not positive.

        >>> four_bar = mbd.examples.get("four-bar-with-springs").mechanism
        >>> angle = lambda m: mbd.assemble(m, {"O.angle": 1.0}, check=False)["rocker.theta"]
        >>> found = mbd.optimal_design.tolerance_analysis(
        ...     angle, {"C.a.position": 1e-4, "*.mass": 1e-3}, mechanism=four_bar
        ... )

    Source: Hartenberg, Denavit, *Kinematic Synthesis of Linkages* (1964); Erdman, Sandor, Kota, *Mechanism Design*
    (2001).
    """
    check_callable("tolerance_analysis", "quantity", quantity)
    check_known("distribution", [distribution], get_args(Distribution))
    check_count("tolerance_analysis: samples", samples, 2)
    check_count("tolerance_analysis: seed", seed, 0)
    check_mapping("tolerances", tolerances, "{'crank': 1e-4}")
    if variables is None:
        if not isinstance(mechanism, Mechanism):
            raise MechanismError("tolerance_analysis: a function that builds the mechanism needs variables.")
        variables = [*tolerances]
        tolerances = {name: x for given, x in tolerances.items() for name in names_of(mechanism, given)}
    declared = variables_of("tolerance_analysis", mechanism, variables)
    widths = _widths(declared, tolerances)
    x, nominal_values = declared.start, np.asarray(declared.physical(declared.start))
    value, slopes = _linear(quantity, declared, x)
    key, shape = jax.random.key(seed), (samples, len(widths))
    is_normal = distribution == "normal"
    drawn = jax.random.normal(key, shape) / _SIGMAS if is_normal else jax.random.uniform(key, shape, minval=-1.0)
    deviations = drawn * widths[None] / declared.scale[None]
    values = np.asarray(_all(quantity, declared, x[None] + deviations))
    good = np.isfinite(values).reshape(samples, -1).all(axis=1)
    if good.sum() < 2:
        raise MechanismError(
            f"tolerance_analysis: the quantity is not finite for {samples - int(good.sum())} of {samples} samples "
            f"about {dict(zip(declared.labels, nominal_values.tolist(), strict=True))}: the mechanism cannot be "
            "assembled there, or is about to come apart."
        )
    wide, slopes = np.asarray(widths), np.asarray(slopes)
    share = 1 / _SIGMAS if is_normal else 1 / np.sqrt(3.0)
    # Of a scalar quantity NumPy returns scalars, which are no arrays.
    spreads = np.abs(slopes) @ wide, np.sqrt((slopes**2) @ (share * wide) ** 2)
    moments = values[good].mean(axis=0), values[good].std(axis=0)
    worst_case, sigma, mean, spread = map(np.asarray, (*spreads, *moments))
    return Tolerances(
        np.asarray(value), slopes, declared.labels, wide, worst_case, sigma, values[good], mean, spread,
        float(1 - good.mean()),
    )  # fmt: skip


def _widths(variables: Variables, tolerances: Mapping[str, Number]) -> Float[Array, " n"]:
    """Return the tolerance of each number of the variables."""
    start = variables.parameters.start
    names = [name for name in sorted(start) for _ in flat(start[name])]  # as JAX sorts dictionaries
    check_known("variable", tolerances, dict.fromkeys(names))
    missing = [name for name in dict.fromkeys(names) if name not in tolerances]
    if missing:
        raise MechanismError(f"tolerances must name each variable; {', '.join(map(repr, missing))} is missing.")
    for name, value in tolerances.items():
        check_finite("tolerances", repr(name), as_float(value))
        if not float(value) > 0:
            raise MechanismError(f"tolerances: {name!r} must be greater than zero, got {value!r}.")
    return jnp.asarray([float(tolerances[name]) for name in names], variables.start.dtype)


def _quantity(quantity: Callable[[Mechanism], Number], variables: Variables, x: Array) -> Array:
    return user_array("tolerance_analysis", "quantity", quantity, variables.mechanism(x), takes="mechanism")


@eqx.filter_jit
def _linear(quantity: Callable[[Mechanism], Number], variables: Variables, x: Array) -> tuple[Array, Array]:
    """Return the quantity and its derivatives by the physical values."""
    slopes = jax.jacfwd(lambda x: _quantity(quantity, variables, x))(x)
    return _quantity(quantity, variables, x), slopes / jnp.broadcast_to(variables.scale, slopes.shape)


@eqx.filter_jit
def _all(quantity: Callable[[Mechanism], Number], variables: Variables, x: Float[Array, "samples n"]) -> Array:
    return jax.vmap(lambda x: _quantity(quantity, variables, x))(x)
