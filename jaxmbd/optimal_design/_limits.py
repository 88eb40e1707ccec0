"""Limits on quantities of a mechanism: constraints of a design, their residuals, and their margins."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Number, as_float, is_concrete
from jaxmbd.checks import check_instance, check_mapping, check_some
from jaxmbd.errors import MechanismError, shown
from jaxmbd.user_functions import user_array

TOLERANCE = 1e-6  # largest violation, as a share of a limit's scale, that counts as none
# A limit counts as active if the margin is at most the first, as a share of the scale, and either at most the second,
# as a share of the limit itself, or gone if a variable moves by the third, a share of its range.
_ACTIVE, _ACTIVE_OF_LIMIT, ON_BOUND = 1e-5, 1e-2, 1e-6
_NOT_FINITE = 1e3  # violation, as a multiple of the scale, that stands for a value that is not finite


class Limit(eqx.Module):
    """A constraint of a design: a quantity of the mechanism between two limits, or equal to a value.

    `lower ≤ f(mechanism) ≤ upper`,   or   `f(mechanism) = equals`

    **Arguments:**

    - `function`: from the mechanism to a number or an array, each element of which has to keep the limits. Analyses in
      it are called so that they raise no error, `assemble(..., check=False)` and `kinematics(..., throw=False)`, and
      are NaN where there is no motion;
    - `lower`, `upper`: at least one of them, or `equals`;
    - `scale`: the size of a violation that matters, in the quantity's unit; by default the largest size of the limits,
      one if these are zero. A limit is kept if it is missed by less than 1e-6 of it;
    - `unit`: the unit in the table of results.

        >>> reach = mbd.Limit(lambda m: mbd.closure_error(m, {"rod.x": 0.4}), upper=1e-12, scale=1.0, unit="m²")
    """

    function: Callable[[Any], Number]
    lower: Array | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    upper: Array | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    equals: Array | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    scale: Array | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    unit: str = eqx.field(static=True, default="")

    def __check_init__(self) -> None:
        if not callable(self.function) or isinstance(self.function, type):
            raise MechanismError(f"Limit: function must be a function of the mechanism, got {shown(self.function)}.")
        given = {n: getattr(self, n) for n in ("lower", "upper", "equals") if getattr(self, n) is not None}
        for name, value in given.items():
            check_some("Limit", name, value, infinite=True)
        if not given or (self.equals is not None and len(given) > 1):
            raise MechanismError(f"A Limit has lower, upper or both, or else equals; got {', '.join(given) or 'none'}.")
        if len(given) == 2 and is_concrete(given) and not np.all(np.asarray(self.lower) <= np.asarray(self.upper)):
            raise MechanismError(f"Limit: lower must not exceed upper, got {self.lower} and {self.upper}.")
        if self.scale is not None:
            check_some("Limit", "scale", self.scale)
        if self.scale is not None and is_concrete(self.scale) and not np.all(np.asarray(self.scale) > 0):
            raise MechanismError(f"Limit: scale must be greater than zero, got {self.scale}.")

    def size(self) -> Array:
        """Return the scale."""
        if self.scale is not None:
            return self.scale
        sizes = [jnp.max(jnp.abs(x)) for x in (self.lower, self.upper, self.equals) if x is not None]
        largest = jnp.max(jnp.stack([jnp.where(jnp.isfinite(size), size, 0.0) for size in sizes]))
        return jnp.where(largest > 0, largest, 1.0)

    def value(self, name: str, mechanism: object) -> Float[Array, " k"]:
        """Return the quantity as a vector."""
        value = user_array(f"Constraint {name!r}", "function", self.function, mechanism, takes="mechanism")
        return jnp.ravel(value).astype(jnp.result_type(float))

    def margins(self, value: Float[Array, " k"]) -> Float[Array, " rows"]:
        """Return the scaled distances from the limits, negative outside; for `equals`, the signed difference."""
        if self.equals is not None:
            return (value - jnp.ravel(self.equals)) / self.size()
        rows = [] if self.lower is None else [value - jnp.ravel(self.lower)]
        rows += [] if self.upper is None else [jnp.ravel(self.upper) - value]
        return jnp.concatenate(rows) / self.size()

    def active(self, value: Float[np.ndarray, " k"], slopes: Float[np.ndarray, "rows n"] | None = None) -> np.ndarray:
        """Return of each row of `margins` whether the value lies on that limit; `equals` always holds it.

        `slopes`: the derivatives of the margins by the variables, in shares of their ranges, if they are known. A limit
        that does not change by what counts as a violation, however the variables change, can hold nothing: such as one
        on a closure error, whose square is zero with its derivative.
        """
        margins = np.asarray(self.margins(jnp.asarray(value)))
        steepness = np.zeros(len(margins)) if slopes is None else np.linalg.norm(slopes, axis=1)
        has_slope = np.ones(len(margins), bool) if slopes is None else steepness > TOLERANCE
        if self.equals is not None:
            return has_slope
        ends = [np.broadcast_to(np.ravel(end), np.shape(value)) for end in (self.lower, self.upper) if end is not None]
        own = np.abs(np.concatenate(ends)) / float(self.size())
        near = np.maximum(np.where(own > 0, _ACTIVE_OF_LIMIT * own, np.inf), ON_BOUND * steepness)
        return has_slope & (margins <= np.minimum(near, _ACTIVE))

    def derivatives(self, multipliers: Float[np.ndarray, " rows"]) -> Float[np.ndarray, " k"]:
        """Return the derivatives of the least objective by the limits, from the multipliers of `margins`: of each
        number by the limit on which it lies."""
        sides = (
            [1.0] if self.equals is not None else [1.0] * (self.lower is not None) + [-1.0] * (self.upper is not None)
        )
        parts = np.split(multipliers / float(self.size()), len(sides))
        return np.sum([side * part for side, part in zip(sides, parts, strict=True)], axis=0)

    def violations(self, value: Float[Array, " k"]) -> Float[Array, " rows"]:
        """Return by how much the limits are missed, zero where they are kept; a constant where that is unknown."""
        margins = self.margins(value)
        missed = margins if self.equals is not None else jnp.maximum(-margins, 0.0)
        # Not a zero: a design without a value must not count as one that keeps the limit.
        return jnp.where(jnp.isfinite(missed), missed, _NOT_FINITE)


Limits = dict[str, Limit]


def limits_of(what: str, constraints: Mapping[str, Limit] | None) -> Limits:
    """Check constraints by name."""
    check_mapping(f"{what}: constraints", constraints, "{'reach': Limit(function, lower=0.5)}")
    for name, limit in (constraints or {}).items():
        check_instance(f"{what}: constraint {name!r}", limit, Limit, "a Limit(function, lower=..., upper=...)")
    return dict(constraints or {})


@dataclass(frozen=True)
class Margin:
    """A constraint of a finished design.

    - `name`; `value`, one for each element;
    - `limits`: its limits as text;
    - `margin`: the least distance from a limit, negative if one is violated, in the unit of the value; for `equals`
      minus the largest difference;
    - `active`: whether the value lies on a limit that has a derivative there; `kept`: whether all limits are kept;
    - `unit`.
    """

    name: str
    value: np.ndarray
    limits: str
    margin: float
    active: bool
    kept: bool
    unit: str

    def row(self) -> list[str]:
        """Return the cells of a table: name, value, limits, margin, remark."""
        low, high = (f"{f(self.value):.6g}" for f in (np.min, np.max))
        remark = ("active" if self.active else "") if self.kept else "VIOLATED"
        name = f"{self.name} [{self.unit}]" if self.unit else self.name
        return [name, low if low == high else f"{low} … {high}", self.limits, f"{self.margin:.3g}", remark]


def margin_of(name: str, limit: Limit, value: np.ndarray, slopes: np.ndarray | None = None) -> Margin:
    """Return the margin of a constraint for its value; `slopes`: as for `Limit.active`."""
    size, scaled = float(limit.size()), np.asarray(limit.margins(jnp.asarray(value)))
    least = -float(np.max(np.abs(scaled))) if limit.equals is not None else float(np.min(scaled))
    kept = bool(np.isfinite(scaled).all()) and least >= -TOLERANCE
    ends = [("≥", limit.lower), ("≤", limit.upper), ("=", limit.equals)]
    text = ", ".join(f"{sign} {_shown(end)}" for sign, end in ends if end is not None)
    is_active = kept and bool(limit.active(value, slopes).any())
    return Margin(name, value, text, least * size, is_active, kept, limit.unit)


def _shown(end: object) -> str:
    values = np.ravel(np.asarray(end))
    return f"{values[0]:.6g}" if np.ptp(values) == 0 else f"{values.min():.6g} … {values.max():.6g}"
