"""Drivers: rheonomic constraints that prescribe one coordinate of a joint or body as a function of time."""

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxmbd.arrays import Function, Number, Scalar, as_float, is_concrete
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_finite, check_name
from jaxmbd.model.time_functions import AbstractTimeFunction, Piecewise
from jaxmbd.user_functions import user_array

_CONTINUOUS = 1e-6  # relative: a larger difference between two pieces of a motion is a jump


class Driver(eqx.Module):
    """A motor that prescribes a coordinate, `c(q) − f(t) = 0`, or its rate, `ċ − f(t) = 0`.

    **Arguments:** `coordinate`, the name of a joint's coordinate (`"O.angle"`, `"slide.displacement"`) or a
    body's (`"slider.x"`, `"crank.theta"`); `motion` f, a function of time `[s]` (a plain function, or an equinox
    module with parameters) or a constant; `prescribes`, `"position"` or `"speed"`: the meaning of f. With a speed, the
    initial state determines the position. A motion whose acceleration jumps is a `Piecewise` with `order=2` (`order=1`
    for a speed, or a `Table`), so that `simulate` steps onto its times; samples are smoothed by `SmoothingSpline`.

    The driving effort, a force `[N]` or torque `[N m]` along the coordinate, is `−λ` of its row:
    `solution.effort(name)`.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> driven = pendulum.with_parts(drivers=[pl.Driver("motor", "O.angle", lambda t: 0.1 * jnp.sin(3 * t))])
        >>> print(mbd.assemble(driven)["rod.omega"])  # [rad/s]
        0.3
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    motion: Function | Scalar
    prescribes: str = eqx.field(static=True)

    def __init__(self, name: str, coordinate: str, motion: Function | Number, prescribes: str = "position") -> None:
        check_name("Driver", name)
        if not isinstance(coordinate, str) or coordinate.count(".") != 1:
            raise MechanismError(
                f"Driver {name!r}: coordinate must be written 'joint.angle' or 'body.x', got {coordinate!r}."
            )
        if prescribes not in ("position", "speed"):
            raise MechanismError(f"Driver {name!r}: prescribes must be 'position' or 'speed', got {prescribes!r}.")
        self.prescribes = prescribes
        self.name = name
        self.coordinate = coordinate
        self.motion = motion if callable(motion) else as_float(motion)
        check_finite(f"Driver {name!r}", "motion", self.motion)
        if isinstance(motion, AbstractTimeFunction):
            _check_continuous(name, motion, prescribes)

    def value(self, t: Scalar) -> Scalar:
        """The prescribed value at time `t`."""
        value = user_array(f"Driver {self.name!r}", "motion", self.motion, t, takes="t", shape=())
        return jnp.asarray(value, dtype=t.dtype)


def _check_continuous(name: str, motion: AbstractTimeFunction, prescribes: str) -> None:
    """Raise if a prescribed position or speed jumps, which would need an infinite force."""
    least, smooth = (2, "a position and its rate") if prescribes == "position" else (1, "a speed")
    if motion.order < least:
        mend = (
            "Smooth samples with SmoothingSpline(times, values)"
            if prescribes == "position"
            else "Use a Table with order=1"
        )
        raise MechanismError(
            f"Driver {name!r}: {smooth} cannot jump, but derivative {motion.order} of its motion (a "
            f"{type(motion).__name__}) does. {mend}, or say order={least} of a Piecewise that is continuous."
        )
    if not isinstance(motion, Piecewise) or not is_concrete(motion.times):
        return
    for k, t in enumerate(motion.times):
        before, after = (_value_and_rate(motion.pieces[i], t) for i in (k, k + 1))
        for what, a, b in list(zip((prescribes, f"rate of the {prescribes}"), before, after, strict=True))[:least]:
            if is_concrete(a, b) and not abs(float(b - a)) <= _CONTINUOUS * (1 + abs(float(a))):
                raise MechanismError(
                    f"Driver {name!r}: at {float(t):g} s the {what} jumps from {float(a):g} to {float(b):g}; pieces of "
                    "a motion must meet."
                )


def _value_and_rate(piece: Function | Scalar, t: Scalar) -> tuple[Scalar, Scalar]:
    if not callable(piece):
        return piece, jnp.zeros_like(piece)
    return jax.jvp(lambda t: jnp.asarray(piece(t), t.dtype), (t,), (jnp.ones_like(t),))
