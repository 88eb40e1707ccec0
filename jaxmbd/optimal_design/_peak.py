"""The peak of quantities over a motion as an objective: its samples, and where it is attained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmbd.arrays import Numbers, as_float, is_concrete
from jaxmbd.checks import check_instance, check_some
from jaxmbd.errors import MechanismError, check_known, shown
from jaxmbd.user_functions import call_user, user_array

_ATTAINED = 1e-5  # share of the peak by which a sample that counts as attaining it may be lower

Quantities = dict[str, Float[Array, "samples dim"]]


class Peak(eqx.Module):
    """The largest magnitude of quantities over a motion, as an objective of `design`: it is made as small as possible.

    `min s`   subject to   `|yₖ| ≤ s` for each sample `yₖ` of each quantity

    The bound `s` is a variable of its own, so the objective has no kink where another sample becomes the largest.

    **Arguments:**

    - `function`: from the mechanism to the samples of a quantity, `(times,)`, or `(times, dim)` for vectors, whose
      lengths count, or to several of them by name, `{"motor": …, "O": …}`. Analyses in it are called so that they
      raise no error, `kinematics(..., throw=False)`;
    - `times`: those of the samples, for the table of results; without them samples are numbered;
    - `scale`: what quantities are divided by before they are compared, one number or one by name. Without it all have
      one unit;
    - `unit`: the unit in the table of results.

        >>> ts = np.linspace(0.0, 1.0, 25)
        >>> torque = lambda m: mbd.kinematics(m, ts, throw=False).effort("motor")
        >>> peak = mbd.Peak(torque, ts, unit="N m")

    Source: Nocedal, Wright, *Numerical Optimization* (2006), §12.1, problems (12.6) and (12.7).
    """

    function: Callable[[Any], Numbers | Mapping[str, Numbers]]
    times: Array | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    scale: Any = eqx.field(converter=lambda x: _scales(x), default=None)
    unit: str = eqx.field(static=True, default="")

    def __check_init__(self) -> None:
        if not callable(self.function) or isinstance(self.function, type):
            raise MechanismError(f"Peak: function must be a function of the mechanism, got {shown(self.function)}.")
        check_instance("Peak: unit", self.unit, str, "a text")
        if self.times is not None:
            check_some("Peak", "times", self.times)
        scales = self.scale if isinstance(self.scale, dict) else {} if self.scale is None else {"scale": self.scale}
        for name, scale in scales.items():
            check_some("Peak: scale", repr(name), scale)
            if np.shape(scale) or (is_concrete(scale) and not float(scale) > 0):
                raise MechanismError(f"Peak: scale must be a number greater than zero for each quantity, got {scale}.")

    def quantities(self, mechanism: object) -> Quantities:
        """Return the samples of all quantities by name, one row for each."""
        found = call_user("Peak", "function", self.function, mechanism, takes="mechanism")
        parts = found if isinstance(found, Mapping) else {"": found}
        if not parts:
            raise MechanismError("Peak: the function returns no quantity.")
        if isinstance(self.scale, dict):
            check_known("quantity", [*parts], self.scale)
        return {str(name): self._samples(str(name), value) for name, value in parts.items()}

    def _samples(self, name: str, value: Any) -> Float[Array, "samples dim"]:
        of = f"Peak: quantity {name!r}" if name else "Peak"
        samples = user_array(of, "function", value, takes="mechanism").astype(jnp.result_type(float))
        rows = samples[:, None] if samples.ndim == 1 else samples
        if rows.ndim != 2 or not rows.size:
            raise MechanismError(
                f"{of}: the function must return one number or one vector for each time, (times,) or (times, dim), "
                f"got the shape {samples.shape}."
            )
        if self.times is not None and self.times.shape != (len(rows),):
            raise MechanismError(
                f"{of}: the function returns {len(rows)} samples, and times has the shape {self.times.shape}."
            )
        return rows

    def divisor(self, name: str) -> Any:
        """Return what a quantity is divided by."""
        return 1.0 if self.scale is None else self.scale[name] if isinstance(self.scale, dict) else self.scale

    def heights(self, mechanism: object) -> Float[Array, " rows"]:
        """Return numbers of which the largest is the peak: of scalars these and their negatives, of vectors lengths."""
        rows = []
        for name, samples in sorted(self.quantities(mechanism).items()):
            y = samples / self.divisor(name)
            if y.shape[1] == 1:
                rows += [y[:, 0], -y[:, 0]]
            else:
                squares = jnp.sum(y**2, axis=1)
                # A vector that vanishes has no derivative, and never the largest length.
                rows.append(jnp.where(squares == 0, 0.0, jnp.sqrt(jnp.where(squares == 0, 1.0, squares))))
        return jnp.concatenate(rows)

    def attained(
        self, shapes: Mapping[str, Sequence[int]], heights: Float[np.ndarray, " rows"]
    ) -> "tuple[tuple[ActiveSample, ...], Int[np.ndarray, ' active']]":
        """Return the samples that attain the peak, the largest first, and their rows in `heights`.

        `shapes`: those of the quantities by name.
        """
        places = [place for name, shape in sorted(shapes.items()) for place in _places(name, shape)]
        largest = np.max(heights)
        rows = np.flatnonzero(heights >= largest - _ATTAINED * abs(largest))
        rows = rows[np.argsort(-heights[rows], kind="stable")]
        found = []
        for (name, k, sign), height in ((places[row], heights[row]) for row in rows):
            time = None if self.times is None else float(self.times[k])
            found.append(ActiveSample(name, k, time, sign * float(height) * float(self.divisor(name))))
        return tuple(found), rows


@dataclass(frozen=True)
class ActiveSample:
    """A sample that attains the peak of a finished design.

    - `quantity`: its name, "" if there is only one; `index` among the samples; `time` `[s]`, None if not given;
    - `value`: of a vector its length.
    """

    quantity: str
    index: int
    time: float | None
    value: float

    def row(self, weight: float | None) -> list[str]:
        """Return the cells of a table: quantity, time or number, value, and its weight if that is known."""
        when = str(self.index) if self.time is None else f"{self.time:.6g}"
        return [self.quantity, when, f"{self.value:.6g}", "" if weight is None else f"{weight:.3g}"]


def _places(name: str, shape: Sequence[int]) -> list[tuple[str, int, int]]:
    """Return the quantity, the index and the sign of each of its rows in `heights`."""
    signs = (1, -1) if shape[1] == 1 else (1,)
    return [(name, k, sign) for sign in signs for k in range(shape[0])]


def _scales(given: object) -> Any:
    if given is None:
        return None
    return {str(name): as_float(x) for name, x in given.items()} if isinstance(given, Mapping) else as_float(given)
