"""Controllers, filters and delays that are linear."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.checks import check_count, check_fields, check_finite, check_law, check_shape, checked_names
from jaxmbd.errors import MechanismError
from jaxmbd.model.controller.controller import AbstractDynamicController, as_names, check_states, error_of, followed
from jaxmbd.model.states import AbstractSided, OwnState, sides_state, untold

_MOST = 20  # polynomials of a delay: the rates of the states grow with the square of their number


class PID(AbstractDynamicController, AbstractSided):
    """A controller of one quantity y: proportional, integral and derivative terms of its difference from a reference r,
    within limits.

    `w = k_p (r − y) + I − k_d ẏ_f`,   the output is w within the limits,   `İ = k_i (r − y) + (output − w) / T_t`

    The derivative is that of the quantity alone, so that a step of the reference does not kick: the quantity `rate`,
    or the quantity filtered, `ẏ_f = (y − x) / T_f` with `T_f ẋ = y − x`. Within limits the integral does not wind up if
    the tracking time T_t is given.

    **Arguments:** `of`, the name of the quantity, such as `"O.angle"`; `reference` r, a number or a function of time,
    in the unit of the quantity; `kp`, `ki`, `kd`, the gains k_p, k_i and k_d, in the unit of the output by that of the
    quantity, of its integral and of its rate; `drives`, the name of the input to which the output is added, or none;
    `rate`, the name of the quantity's rate, `"O.angle_rate"`; `filter_time` T_f, in its place `[s]`; `limits` of the
    output, lowest and highest; `tracking_time` T_t `[s]`; `follows`, the name of a quantity that is added to the
    reference, such as the output of another controller; `integral` I, `filtered` x, the ones at which a motion starts.

    `"servo.sides[0]"` is 1 above the lowest output and −1 where that is given, `"servo.sides[1]"` likewise for the
    highest.

    Source: Åström, Hägglund, *Advanced PID Control* (2006), §3.2 to §3.5.

        >>> servo = pl.PID("servo", "O.angle", 1.0, kp=60.0, ki=40.0, kd=12.0, rate="O.angle_rate", drives="O.angle")
    """

    name: str = eqx.field(static=True)
    of: str = eqx.field(static=True)
    reference: Any = eqx.field(converter=as_float)
    kp: Scalar = eqx.field(converter=as_float)
    ki: Scalar = eqx.field(converter=as_float, default=0.0)
    kd: Scalar = eqx.field(converter=as_float, default=0.0)
    drives: tuple[str, ...] = eqx.field(static=True, converter=as_names, default=())
    rate: str | None = eqx.field(static=True, default=None)
    filter_time: Scalar | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    limits: Float[Array, "2"] | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    tracking_time: Scalar | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    follows: str | None = eqx.field(static=True, default=None)
    integral: Scalar = eqx.field(converter=as_float, default=0.0)
    filtered: Scalar = eqx.field(converter=as_float, default=0.0)
    sides: Float[Array, "2"] = eqx.field(converter=as_float, default_factory=lambda: untold(2))

    def __check_init__(self) -> None:
        part = f"PID {self.name!r}"
        check_law(part, "reference", self.reference)
        for field in ("kp", "ki", "kd", "integral", "filtered"):
            check_finite(part, field, getattr(self, field))
        if self.filter_time is not None:
            check_fields(part, self, filter_time="s")
        if self.tracking_time is not None:
            check_fields(part, self, tracking_time="s")
        if self.limits is not None:
            check_finite(part, "limits", self.limits, (2,))
        check_finite(part, "sides", self.sides, (2,))
        if self.rate is not None and self.filter_time is not None:
            raise MechanismError(f"{part}: give rate, or filter_time to differentiate {self.of!r}, not both.")
        if self.tracking_time is not None and self.limits is None:
            raise MechanismError(f"{part}: tracking_time is how fast the integral follows the limits: give limits too.")

    @property
    def reads(self) -> tuple[str, ...]:
        return followed(self)

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        filtered = () if self.filter_time is None else (OwnState("filtered", ""),)
        return (OwnState("integral", ""), *filtered, *(() if self.limits is None else (sides_state(),)))

    @property
    def guard_units(self) -> tuple[str, ...]:
        return () if self.limits is None else ("1", "1")

    def heights(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, "2"]:
        """How far the output is above the lowest and below the highest one, by the distance between these."""
        assert self.limits is not None
        low, high = self.limits
        w = self._unlimited(t, u)
        return jnp.stack([w - low, high - w]) / (high - low)

    def output(self, t: Scalar, u: Float[Array, " k"]) -> Scalar:
        unlimited = self._unlimited(t, u)
        if self.limits is None:
            return unlimited
        is_high_enough, is_low_enough = self.is_above(t, u)
        return jnp.where(is_high_enough, jnp.where(is_low_enough, unlimited, self.limits[1]), self.limits[0])

    def own_rates(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        integral = self.ki * error_of(self, t, u)
        if self.tracking_time is not None:
            integral = integral + (self.output(t, u) - self._unlimited(t, u)) / self.tracking_time
        return self._states(integral, self._slope(u))

    def steady(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        return self._states(self.integral, u[0])

    def _states(self, integral: Scalar, filtered: Scalar) -> Float[Array, " n"]:
        """The states, or their rates, of which sides have none."""
        moving = jnp.stack([integral] if self.filter_time is None else [integral, filtered])
        return moving if self.limits is None else jnp.concatenate([moving, jnp.zeros_like(self.sides)])

    def _slope(self, u: Float[Array, " k"]) -> Scalar:
        """The rate of the quantity."""
        if self.rate is not None:
            return u[1]
        return jnp.zeros_like(u[0]) if self.filter_time is None else (u[0] - self.filtered) / self.filter_time

    def _unlimited(self, t: Scalar, u: Float[Array, " k"]) -> Scalar:
        return self.kp * error_of(self, t, u) + self.integral - self.kd * self._slope(u)


class StateSpace(AbstractDynamicController):
    """A linear controller or filter: `ẋ = A x + B (u − u₀)`, `y = y₀ + C x + D (u − u₀)`.

    **Arguments:** `of`, the names of the quantities u; `A (n, n)`, `B (n, k)`, `C (l, n)`, `D (l, k)`, zero by
    default; `drives`, the names of the inputs to which the outputs are added, or none; `read_at` u₀ and `output_at` y₀,
    about which it acts, zero by default; `state` x, the one at which a motion starts, zero by default.

    `"filter.state[0]"` is a state, `"filter.output"` the outputs y.

        >>> washout = pl.StateSpace("washout", "O.angle", [[-2.0]], [[1.0]], [[-2.0]], [[1.0]])
    """

    name: str = eqx.field(static=True)
    of: tuple[str, ...] = eqx.field(static=True, converter=as_names)
    A: Float[Array, "n n"] = eqx.field(converter=as_float)
    B: Float[Array, "n k"] = eqx.field(converter=as_float)
    C: Float[Array, "l n"] = eqx.field(converter=as_float)
    D: Float[Array, "l k"] = eqx.field(converter=as_float)
    drives: tuple[str, ...] = eqx.field(static=True, converter=as_names)
    read_at: Float[Array, " k"] = eqx.field(converter=as_float)
    output_at: Float[Array, " l"] = eqx.field(converter=as_float)
    state: Float[Array, " n"] = eqx.field(converter=as_float)

    def __init__(
        self,
        name: str,
        of: Any,
        A: Any,
        B: Any,
        C: Any,
        D: Any = None,
        drives: Any = None,
        read_at: Any = None,
        output_at: Any = None,
        state: Any = None,
    ) -> None:
        self.name, self.of, self.drives = (
            name,
            checked_names(f"StateSpace {name!r}: of", as_names(of), "O.angle"),
            as_names(drives),
        )
        self.A, self.B, self.C = as_float(A), as_float(B), as_float(C)
        shapes: list[Any] = [getattr(x, "shape", ()) for x in (self.A, self.B, self.C)]
        if any(len(shape) != 2 for shape in shapes):
            raise MechanismError(
                f"StateSpace {name!r}: A, B and C must be matrices, such as [[-1.0]], got the shapes "
                f"{', '.join(map(str, shapes))}."
            )
        (n, _), (_, k), (count, _) = shapes
        zero = lambda given, *shape: as_float(np.zeros(shape) if given is None else given)  # noqa: E731
        self.D, self.read_at = zero(D, count, k), zero(read_at, k)
        self.output_at, self.state = zero(output_at, count), zero(state, n)

    def __check_init__(self) -> None:
        part = f"StateSpace {self.name!r}"
        n, k, count = len(self.A), len(self.of), len(self.C)
        shapes = {"A": (n, n), "B": (n, k), "C": (count, n), "D": (count, k), "read_at": (k,), "output_at": (count,)}
        for field, shape in shapes.items():
            check_shape(f"{part}, which reads {k} quantities", field, getattr(self, field), shape)
            check_finite(part, field, getattr(self, field), shape)
        check_states(part, self.state)
        check_shape(part, "state", self.state, (n,))

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("state", ""),)

    def output(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " l"]:
        return self.output_at + self.C @ self.state + self.D @ (u - self.read_at)

    def own_rates(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        return self.A @ self.state + self.B @ (u - self.read_at)

    def steady(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        """Where `A` is regular; an integrator keeps its value."""
        size, rounding = jnp.linalg.norm(self.A) ** len(self.A), len(self.A) * jnp.finfo(self.A.dtype).eps
        regular = jnp.abs(jnp.linalg.det(self.A)) > rounding * size
        A = jnp.where(regular, self.A, jnp.eye(len(self.A)))
        return jnp.where(regular, self.state - jnp.linalg.solve(A, self.own_rates(t, u)), self.state)


class LowPass(AbstractDynamicController):
    """A low-pass filter of a quantity u, of first order, or with `damping` of second order. Its output is the value y.

    `ẏ = ω (u − y)`, or `ÿ = ω² (u − y) − 2 ζ ω ẏ`

    **Arguments:** `of`, the name of the quantity; `frequency` ω, at which it begins to cut `[rad/s]`; `damping` ζ, none
    for the first order `[1]`; `drives`, the name of the input to which the output is added, or none; `value` y, `slope`
    ẏ, the ones at which a motion starts, in the unit of the quantity and of its rate.

        >>> smooth = pl.LowPass("smooth", "O.angle_rate", 50.0)
    """

    name: str = eqx.field(static=True)
    of: str = eqx.field(static=True)
    frequency: Scalar = eqx.field(converter=as_float)
    damping: Scalar | None = eqx.field(converter=lambda x: None if x is None else as_float(x), default=None)
    drives: tuple[str, ...] = eqx.field(static=True, converter=as_names, default=())
    value: Scalar = eqx.field(converter=as_float, default=0.0)
    slope: Scalar = eqx.field(converter=as_float, default=0.0)

    def __check_init__(self) -> None:
        part = f"LowPass {self.name!r}"
        check_fields(part, self, frequency="rad/s")
        if self.damping is not None:
            check_fields(part, self, damping="1")
        for field in ("value", "slope"):
            check_finite(part, field, getattr(self, field))

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("value", ""), *(() if self.damping is None else (OwnState("slope", ""),)))

    def output(self, t: Scalar, u: Float[Array, " k"]) -> Scalar:
        return self.value

    def own_rates(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        pull = self.frequency * (u[0] - self.value)
        if self.damping is None:
            return pull[None]
        return jnp.stack([self.slope, self.frequency * (pull - 2 * self.damping * self.slope)])

    def steady(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        return u if self.damping is None else jnp.append(u, 0.0)


class PadeDelay(AbstractDynamicController):
    """A delay of a quantity u by a time T, approximately: `y(t) ≈ u(t − T)`, by the Padé approximant of `exp(−T s)`
    with a numerator of degree n − 1 and a denominator of degree n.

    Its states are the coefficients of Legendre polynomials, of which the sum over the last T is the past of u; the
    output is the sum at its beginning. The approximation is good up to a frequency of about n / T.

    **Arguments:** `of`, the name of the quantity; `delay` T `[s]`; `order` n; `drives`, the name of the input to which
    the output is added, or none; `history`, the coefficients at which a motion starts, in the unit of the quantity:
    `[u₀, 0, …]` for a constant past, zero by default.

    Source: Voelker, Eliasmith, *Improving spiking dynamical networks*, Neural Computation 30 (2018).

        >>> late = pl.PadeDelay("late", "O.angle", 0.05)
    """

    name: str = eqx.field(static=True)
    of: str = eqx.field(static=True)
    delay: Scalar = eqx.field(converter=as_float)
    order: int = eqx.field(static=True)
    drives: tuple[str, ...] = eqx.field(static=True, converter=as_names)
    history: Float[Array, " n"] = eqx.field(converter=as_float)

    def __init__(self, name: str, of: str, delay: Any, order: int = 6, drives: Any = None, history: Any = None) -> None:
        check_count(f"PadeDelay {name!r}: order", order, 1, _MOST)
        self.name, self.of, self.delay, self.order = name, of, as_float(delay), int(order)
        self.drives = as_names(drives)
        self.history = as_float(np.zeros(order) if history is None else history)

    def __check_init__(self) -> None:
        part = f"PadeDelay {self.name!r}"
        check_fields(part, self, delay="s")
        check_finite(part, "history", self.history, (self.order,))

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("history", ""),)

    def output(self, t: Scalar, u: Float[Array, " k"]) -> Scalar:
        return jnp.sum(self.history)

    def own_rates(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        i = np.arange(self.order)
        signs = np.where(i[:, None] < i, -1.0, (-1.0) ** (i[:, None] - i + 1))
        A, b = (jnp.asarray(x, self.history.dtype) for x in ((2 * i + 1)[:, None] * signs, (2 * i + 1) * (-1.0) ** i))
        return (A @ self.history + b * u[0]) / self.delay

    def steady(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        return jnp.pad(u, (0, self.order - 1))
