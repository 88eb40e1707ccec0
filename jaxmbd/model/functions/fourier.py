"""Periodic functions: finite Fourier series."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Numbers, Scalar
from jaxmbd.checks import check_number, check_shape
from jaxmbd.errors import MechanismError
from jaxmbd.model.functions.function import SMOOTHEST, AbstractFunction, as_finite


class FourierSeries(AbstractFunction):
    """A periodic function of time as a finite series of harmonics.

    `f(t) = mean + Σₖ (cosines[k − 1] cos(2π k t / period) + sines[k − 1] sin(2π k t / period))`

    **Arguments:** `period` `[s]`; `mean`; `cosines` and `sines`, `(harmonics,)` each.

    **Raises:** `MechanismError` if the period is not positive, or the coefficients are not two lists of equal length.

        >>> swing = mbd.FourierSeries(4.0, 0.1, [0.0, 0.2], [0.5, 0.0])
        >>> print(swing(jnp.array(0.0)).round(3), swing(jnp.array(1.0)).round(3))
        0.3 0.4
    """

    ends_steps: ClassVar[bool] = False

    period: Scalar
    mean: Scalar
    cosines: Float[Array, " harmonics"]
    sines: Float[Array, " harmonics"]

    def __init__(self, period: Numbers, mean: Numbers, cosines: Numbers, sines: Numbers) -> None:
        self.period = as_finite("FourierSeries", "period", period)
        check_shape("FourierSeries", "period", self.period, ())
        check_number("FourierSeries", "period", self.period, "s")
        self.mean = as_finite("FourierSeries", "mean", mean)
        self.cosines, self.sines = (
            as_finite("FourierSeries", name, given) for name, given in (("cosines", cosines), ("sines", sines))
        )
        if self.mean.ndim or self.cosines.ndim != 1 or self.cosines.shape != self.sines.shape:
            raise MechanismError(
                "FourierSeries: mean must be a number, cosines and sines one number for each harmonic, got the shapes "
                f"{self.mean.shape}, {self.cosines.shape} and {self.sines.shape}."
            )

    @property
    def order(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return SMOOTHEST

    @property
    def breaks(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return jnp.zeros(0)

    def value(self, t: Scalar, *args: object) -> Array:
        angles = 2 * jnp.pi * t / self.period * np.arange(1, len(self.cosines) + 1)
        return self.mean + jnp.cos(angles) @ self.cosines + jnp.sin(angles) @ self.sines

    def derivatives(self, ts: Float[Array | np.ndarray, " times"]) -> Float[Array, "3 times"]:
        """Return the values at times `[s]`, and the first and second derivatives."""
        omega = 2 * jnp.pi / self.period * np.arange(1, len(self.cosines) + 1)
        angles = jnp.asarray(ts)[:, None] * omega[None]
        c, s, a, b = jnp.cos(angles), jnp.sin(angles), self.cosines, self.sines
        return jnp.stack(
            [self.mean + c @ a + s @ b, c @ (omega * b) - s @ (omega * a), -c @ (omega**2 * a) - s @ (omega**2 * b)]
        )
