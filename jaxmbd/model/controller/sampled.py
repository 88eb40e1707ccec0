"""Sampled controllers: they read and compute at the instants `t_k = t₀ + k T`, and hold what they give in between."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.arrays import Function, Scalar, as_float
from jaxmbd.checks import check_callable, check_count, check_fields, check_finite, check_law, check_shape
from jaxmbd.errors import MechanismError
from jaxmbd.model.controller.controller import AbstractDynamicController, as_names, check_states, error_of, followed
from jaxmbd.model.states import OwnState, values_of, with_values
from jaxmbd.user_functions import call_user, user_array


class AbstractSampledController(AbstractDynamicController):
    """A controller that computes at the instants `offset + k period`.

    Its states change at these instants alone. `held (delay + 1, *components)`: what it gives until the next instant,
    and after that; `samples`: the number k of the next one. `resolution`: of what it reads, of an encoder; the
    derivative is that of the quantity itself. `most`: the largest number of samples in a motion, where the period is
    not known before.
    """

    period: eqx.AbstractVar[Scalar]
    offset: eqx.AbstractVar[Scalar]
    delay: eqx.AbstractVar[int]
    resolution: eqx.AbstractVar[Float[Array, "*k"] | None]
    held: eqx.AbstractVar[Float[Array, " delay_and_one *components"]]
    samples: eqx.AbstractVar[Scalar]
    most: eqx.AbstractVar[int | None]

    @property
    @abc.abstractmethod
    def memory(self) -> tuple[OwnState, ...]:
        """What it remembers from one instant to the next, besides what it gives."""

    @abc.abstractmethod
    def computed(self, t: Scalar, u: Float[Array, " k"]) -> tuple[Array, Array]:
        """What it computes at an instant: the output, and what it remembers, as one array."""

    @abc.abstractmethod
    def remembered_at_rest(self, u: Float[Array, " k"]) -> Float[Array, " memory"]:
        """What it remembers where `u` has been constant. What has no such value, such as an integral, stays."""

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (OwnState("held", ""), OwnState("samples", "1"), *self.memory)

    def output(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, "*components"]:
        return self.held[0]

    def own_rates(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        return jnp.zeros_like(self._states())

    def steady(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        """It gives what it would compute there, with what it remembers at rest."""
        read, own = self._read(u), self._states()
        own = own.at[self.held.size + 1 :].set(self.remembered_at_rest(read))
        held = jnp.broadcast_to(with_values(self, own).computed(t, read)[0], self.held.shape)
        return own.at[: held.size].set(jnp.ravel(held))

    def in_operation(self, t: Scalar, u: Float[Array, " k"]) -> Float[Array, " n"]:
        """The states at rest after at least one sample, since the first one may be computed in another way."""
        return self.steady(t, u).at[self.held.size].max(1.0)

    def after_sample(self, t: Scalar, u: Float[Array, " k"], k: Scalar | None = None) -> Float[Array, " n"]:
        """The states after it has computed; `k`, the number of this sample, by default the next one."""
        output, memory = self.computed(t, self._read(u))
        held = jnp.concatenate([self.held[1:], output[None]])
        return jnp.concatenate([jnp.ravel(held), (self.samples if k is None else k)[None] + 1, memory])

    def next_instant(self, t: Scalar, near: Scalar) -> tuple[Scalar, Scalar]:
        """The next instant at which it computes, not earlier than a time, but for `near`, and the number of that."""
        k = jnp.maximum(self.samples, jnp.ceil(jax.lax.stop_gradient((t - near - self.offset) / self.period)))
        return self.offset + k * self.period, k

    def after(self, t: Scalar, u: Float[Array, " k"], near: Scalar) -> Float[Array, " n"]:
        """Its states after a time, if that is one of the instants, but for `near`."""
        instant, k = self.next_instant(t, near)
        return jnp.where(instant - t <= near, self.after_sample(t, u, k), self._states())

    def _states(self) -> Float[Array, " n"]:
        return jnp.concatenate(values_of(self))

    def _read(self, u: Float[Array, " k"]) -> Float[Array, " k"]:
        if self.resolution is None:
            return u
        whole = self.resolution * jnp.round(u / self.resolution)
        return u + jax.lax.stop_gradient(whole - u)

    def check_sampling(self, part: str) -> None:
        """Raise unless the numbers of the sampling are such."""
        check_fields(part, self, period="s")
        check_finite(part, "offset", self.offset)
        check_finite(part, "samples", self.samples)
        shape = getattr(self.held, "shape", ())
        check_finite(part, "held", self.held, (self.delay + 1, *shape[1:]))
        if self.resolution is not None:
            check_fields(part, self, resolution="unit of what it reads")
        if self.most is not None:
            check_count(f"{part}: most", self.most, 1)


def _optional(value: Any) -> Any:
    return None if value is None else as_float(value)


class SampledPID(AbstractSampledController):
    """A digital controller of one quantity y, which computes at `t_k = offset + k T`:

    `I_k = I_{k−1} + k_i T e_k`, `w_k = k_p e_k + I_k − k_d ẏ_k`, with `e = r − y`; it gives w within the limits until
    t_{k+1}, or `delay` samples later.

    **Arguments:** `of`, the name of the quantity, such as `"O.angle"`; `reference` r, a number or a function of time,
    in the unit of the quantity; `period` T `[s]`; `kp`, `ki`, `kd`, the gains k_p, k_i and k_d, in the unit of the
    output by that of the quantity, of its integral and of its rate; `drives`, the name of the input to which the output
    is added, or none; `rate`, the name of the quantity's rate, by default `ẏ_k = (y_k − y_{k−1}) / T`; `limits` of the
    output, lowest and highest; `delay`, a number of samples; `resolution`, of what is read, in its unit; `follows`, the
    name of a quantity that is added to the reference; `offset`, the first instant `[s]`; `most`, the largest number of
    samples in a motion, needed only where the period is not known before, as under `jax.vmap`; `integral` I, the
    quantity `before` the first sample, what is `held` (delay + 1) and the number of `samples` that have been taken, at
    the start of a motion.

    Source: Åström, Wittenmark, *Computer-Controlled Systems* (1997), §8.5.

        >>> servo = pl.SampledPID("servo", "O.angle", 1.0, 0.02, kp=60.0, ki=40.0, kd=12.0, drives="O.angle")
    """

    name: str = eqx.field(static=True)
    of: str = eqx.field(static=True)
    reference: Any
    period: Scalar
    kp: Scalar
    ki: Scalar
    kd: Scalar
    drives: tuple[str, ...] = eqx.field(static=True)
    rate: str | None = eqx.field(static=True)
    limits: Float[Array, "2"] | None
    resolution: Scalar | None
    follows: str | None = eqx.field(static=True)
    delay: int = eqx.field(static=True)
    offset: Scalar
    most: int | None = eqx.field(static=True)
    integral: Scalar
    before: Scalar
    held: Float[Array, " delay_and_one"]
    samples: Scalar

    def __init__(
        self,
        name: str,
        of: str,
        reference: Any,
        period: Any,
        kp: Any,
        ki: Any = 0.0,
        kd: Any = 0.0,
        drives: Any = None,
        rate: str | None = None,
        limits: Any = None,
        delay: int = 0,
        resolution: Any = None,
        follows: str | None = None,
        offset: Any = 0.0,
        most: int | None = None,
        integral: Any = 0.0,
        before: Any = 0.0,
        held: Any = None,
        samples: Any = 0.0,
    ) -> None:
        part = f"SampledPID {name!r}"
        self.name, self.of, self.rate, self.follows, self.drives = name, of, rate, follows, as_names(drives)
        self.reference, self.limits, self.resolution = as_float(reference), _optional(limits), _optional(resolution)
        self.period, self.kp, self.ki, self.kd = map(as_float, (period, kp, ki, kd))
        self.offset, self.integral, self.before, self.samples = map(as_float, (offset, integral, before, samples))
        self.most, self.delay = most, _checked_delay(part, delay)
        self.held = as_float(np.zeros(self.delay + 1) if held is None else held)

    def __check_init__(self) -> None:
        part = f"SampledPID {self.name!r}"
        check_law(part, "reference", self.reference)
        for field in ("kp", "ki", "kd", "integral", "before"):
            check_finite(part, field, getattr(self, field))
        if self.limits is not None:
            check_finite(part, "limits", self.limits, (2,))
        self.check_sampling(part)
        check_shape(part, "held", self.held, (self.delay + 1,))

    @property
    def reads(self) -> tuple[str, ...]:
        return followed(self)

    @property
    def memory(self) -> tuple[OwnState, ...]:
        return (OwnState("integral", ""), OwnState("before", ""))

    def computed(self, t: Scalar, u: Float[Array, " k"]) -> tuple[Array, Array]:
        error = error_of(self, t, u)
        integral = self.integral + self.ki * self.period * error
        change = jnp.where(self.samples == 0, 0.0, u[0] - self.before) / self.period
        output = self.kp * error + integral - self.kd * (change if self.rate is None else u[1])
        if self.limits is not None:
            output = jnp.clip(output, self.limits[0], self.limits[1])
        return output, jnp.stack([integral, u[0]])

    def remembered_at_rest(self, u: Float[Array, " k"]) -> Float[Array, "2"]:
        return jnp.stack([self.integral, u[0]])


class SampledController(AbstractSampledController):
    """A digital controller by a function of one's own, which computes at `t_k = offset + k T`:
    `y_k, x_{k+1} = function(t_k, u_k, x_k, parameters)`, and gives y until t_{k+1}, or `delay` samples later.

    **Arguments:** `of`, the name of a quantity or several, whose values are the entries of u; `function` returns the
    output, a number or one for each input that it drives, and what it remembers, in the shape of `state`, `(n,)`;
    `period` T `[s]`; `drives`, the name of an input or several, to which the output is added, or none; `state` x,
    empty by default, the one at which a motion starts; `parameters`, any; `delay`, a number of samples; `resolution`,
    of what is read, one or one for each; `offset`, the first instant `[s]`; `most`, the largest number of samples in a
    motion, needed only where the period is not known before, as under `jax.vmap`; what is `held`, zero by default,
    `(delay + 1,)`, or `(delay + 1, l)` if the output is l numbers, and the number of `samples` that have been taken, at
    the start of a motion.

        >>> def law(t, u, x, gain):
        ...     return -gain * (u[0] - x[0]), u  # from the change since the sample before
        >>> damper = pl.SampledController("damper", "O.angle", law, 0.01, "O.angle", state=[0.0], parameters=50.0)
    """

    name: str = eqx.field(static=True)
    of: tuple[str, ...] = eqx.field(static=True)
    function: Function
    period: Scalar
    drives: tuple[str, ...] = eqx.field(static=True)
    state: Float[Array, " n"]
    parameters: PyTree
    delay: int = eqx.field(static=True)
    resolution: Float[Array, "*k"] | None
    offset: Scalar
    most: int | None = eqx.field(static=True)
    held: Float[Array, " delay_and_one *components"]
    samples: Scalar

    def __init__(
        self,
        name: str,
        of: Any,
        function: Function,
        period: Any,
        drives: Any = None,
        state: Any = (),
        parameters: PyTree = None,
        delay: int = 0,
        resolution: Any = None,
        offset: Any = 0.0,
        most: int | None = None,
        held: Any = None,
        samples: Any = 0.0,
    ) -> None:
        part = f"SampledController {name!r}"
        self.name, self.of, self.drives, self.function = name, as_names(of), as_names(drives), function
        self.period, self.offset, self.samples = as_float(period), as_float(offset), as_float(samples)
        self.state = as_float(np.zeros(0) if np.size(state) == 0 else state)
        self.resolution, self.parameters, self.most = _optional(resolution), parameters, most
        self.delay = _checked_delay(part, delay)
        outputs = (len(self.drives),) if isinstance(self.drives, tuple) and len(self.drives) > 1 else ()
        self.held = as_float(np.zeros((self.delay + 1, *outputs)) if held is None else held)

    def __check_init__(self) -> None:
        part = f"SampledController {self.name!r}"
        check_callable("SampledController", self.name, self.function)
        check_states(part, self.state)
        self.check_sampling(part)

    @property
    def memory(self) -> tuple[OwnState, ...]:
        return (OwnState("state", ""),)

    def computed(self, t: Scalar, u: Float[Array, " k"]) -> tuple[Array, Array]:
        part, takes = f"SampledController {self.name!r}", "t, u, x, parameters"
        found = call_user(part, "function", self.function, t, u, self.state, self.parameters, takes=takes)
        if not isinstance(found, tuple) or len(found) != 2:
            raise MechanismError(
                f"{part}: the function must return two things, the output and what is remembered, such as `return y, "
                f"x`; got {type(found).__name__}."
            )
        shapes = self.held.shape[1:], self.state.shape
        names = ("output", "state")
        y, x = (user_array(part, n, x, takes=takes, shape=s) for n, x, s in zip(names, found, shapes, strict=True))
        return y, x

    def remembered_at_rest(self, u: Float[Array, " k"]) -> Float[Array, " n"]:
        return self.state


def _checked_delay(part: str, delay: Any) -> int:
    check_count(f"{part}: delay", delay, 0, 1000)
    return int(delay)
