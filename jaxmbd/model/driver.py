"""Drivers: rheonomic constraints that prescribe one coordinate of a joint or body as a function of time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import Function, Number, Scalar, as_float, is_concrete
from jaxmbd.checks import check_law
from jaxmbd.errors import MechanismError, is_one_of
from jaxmbd.model.body.checks import check_coordinate
from jaxmbd.model.body.names import Name
from jaxmbd.model.functions.curve import AlongCurve
from jaxmbd.model.functions.function import AbstractFunction
from jaxmbd.model.functions.piecewise import Piecewise
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
    `solution.effort(name)`. A point of a body that is to follow a curve is joined to a marker that moves along it,
    `Revolute("follow", ground.moving(curve.along(s)), body.at(...))`.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> driven = pendulum.with_parts([pl.Driver("motor", "O.angle", lambda t: 0.1 * jnp.sin(3 * t))])
        >>> print(mbd.assemble(driven)["rod.omega"])  # [rad/s]
        0.3
    """

    name: Name = eqx.field(static=True)
    coordinate: Name = eqx.field(static=True)
    motion: Function | Scalar
    prescribes: str = eqx.field(static=True)

    def __init__(self, name: str, coordinate: str, motion: Function | Number, prescribes: str = "position") -> None:
        check_coordinate("Driver", name, coordinate)
        if not is_one_of(prescribes, ("position", "speed")):
            raise MechanismError(f"Driver {name!r}: prescribes must be 'position' or 'speed', got {prescribes!r}.")
        self.prescribes = prescribes
        self.name = name
        self.coordinate = coordinate
        self.motion = motion if callable(motion) else as_float(motion)
        check_law(f"Driver {name!r}", "motion", self.motion)
        check_continuous(f"Driver {name!r}", motion, prescribes, ())

    def value(self, t: Scalar) -> Scalar:
        """The prescribed value at time `t`."""
        value = user_array(f"Driver {self.name!r}", "motion", self.motion, t, takes="t", shape=())
        return jnp.asarray(value, dtype=t.dtype)


def check_continuous(part: str, motion: object, prescribes: str, shape: tuple[int, ...]) -> None:
    """Raise if a prescribed position or speed of this shape jumps, which would need an infinite force.

    Checked are functions that declare their switching times, each piece at the times that it shares with the next one;
    of a motion along a curve, its arc length.
    """
    if isinstance(motion, AlongCurve):
        motion, shape = motion.motion, ()
    if not isinstance(motion, AbstractFunction):
        return
    least, smooth = (2, "a position and its rate") if prescribes == "position" else (1, "a speed")
    if motion.order < least:
        mend = (
            "Smooth samples with SmoothingSpline(times, values)"
            if prescribes == "position"
            else "Use a Table with order=1"
        )
        raise MechanismError(
            f"{part}: {smooth} cannot jump, but derivative {motion.order} of its motion (a {type(motion).__name__}) "
            f"does. {mend}, or say order={least} of a Piecewise that is continuous."
        )
    if not isinstance(motion, Piecewise) or not is_concrete(motion.times):
        return
    for k, t in enumerate(motion.times):
        before, after = (_value_and_rate(part, motion.pieces[i], t, shape) for i in (k, k + 1))
        for what, a, b in list(zip((prescribes, f"rate of the {prescribes}"), before, after, strict=True))[:least]:
            if is_concrete(a, b):
                _check_equal(f"{part}: at {float(t):g} s the {what}", np.asarray(a), np.asarray(b))


def _value_and_rate(part: str, piece: Function | Array, t: Scalar, shape: tuple[int, ...]) -> tuple[Array, Array]:
    value = lambda t: user_array(part, "motion", piece, t, takes="t", shape=shape).astype(t.dtype)  # noqa: E731
    return jax.jvp(value, (t,), (jnp.ones_like(t),))


def _check_equal(what: str, before: np.ndarray, after: np.ndarray) -> None:
    """Raise if a number, or any of several, differs between two pieces of a motion."""
    for place in np.argwhere(~(abs(after - before) <= _CONTINUOUS * (1 + abs(before)))).tolist():
        a, b = before[tuple(place)], after[tuple(place)]
        component = "".join(f"[{k}]" for k in place)
        raise MechanismError(f"{what}{component} jumps from {a:g} to {b:g}; pieces of a motion must meet.")
