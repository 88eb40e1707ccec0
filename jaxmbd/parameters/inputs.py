"""A mechanism with signals at its inputs, and numbers that are inputs, too."""

from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
from jaxtyping import PyTree

from jaxmbd.arrays import Function, Number, Scalar, as_float
from jaxmbd.checks import check_instance, check_law, check_mapping
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.model.mechanism.inputs import check_signal, input_units, with_signals
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.parameters.numbers import find, is_pattern, names_of, numbers_of, with_numbers
from jaxmbd.parameters.places import AbstractPlace
from jaxmbd.user_functions import lifted


def inputs(mechanism: Mechanism) -> dict[str, str]:
    """Return the names of all inputs of a mechanism that may vary over time, with their units.

    - `"O.angle"`, `"slider.x"`: an effort along a coordinate of a joint, a tendon or a body `[N m, N]`;
    - `"rod.fx"`, `"rod.moment"`, in space `"rod.mx"`, …: a force or moment on a body at its centre of mass, in world
      axes;
    - `"motor.effort"`: an addition to the effort of a force along a coordinate;
    - `"spring.tension"`: an addition to the tension of a spring-damper `[N]`;
    - `"motor.voltage"`: an addition to the voltage of a DC motor `[V]`; `"cylinder.opening"`: to the opening of the
      valve of a hydraulic cylinder `[1]`; `"brake.normal"`: to what presses a dry friction;
    - `"drive.motion"`: an addition to what a driver prescribes `[rad, m]`, or to the speed;
    - `"pid.reference"`: an addition to the reference of a controller, in the unit of the quantity that it controls.

    Every number of the mechanism is an input, too, constant over time, by its own name (`numbers`).

        >>> mbd.inputs(mbd.examples.get("pendulum").mechanism)["O.angle"]
        'N m'
    """
    check_mechanism(mechanism)
    return input_units(mechanism)


def with_inputs(mechanism: Mechanism, signals: Mapping[str, Function | Number]) -> Mechanism:
    """Return the mechanism with signals `u(t)` added to its inputs.

    Each signal is added to what is there: to the effort of a motor, to the motion of a driver, to the value of a
    number. Along a coordinate or on a body it is a force of its own, named as the input with a space in place of the
    dot: the effort of the input `"O.angle"` is `solution["O angle.effort"]`. The coordinates stay, so a state of the
    mechanism is one of the mechanism with inputs. `simulate` ends steps at the times of a `Table` or `Piecewise`. The
    result is differentiable with respect to the numbers of the signals, and works under `jit`, `vmap` and `grad`.

    **Arguments:** `mechanism`; `signals`, by the name of an input (`inputs`) a number, or a function of the time `[s]`
    (a plain one, or an equinox module such as `Table`, `Piecewise` or `SmoothingSpline`), in the unit of the input; by
    the name or pattern of a number (`numbers`) a number. The signal of a driver must be as smooth as its motion.

    **Raises:** `MechanismError` for names that do not exist, and for what cannot be a signal.

        >>> example = mbd.examples.get("pendulum")
        >>> pushed = mbd.with_inputs(example.mechanism, {"O.angle": lambda t: 2.0 * jnp.sin(3.0 * t), "rod.fx": -1.0})
        >>> motion = mbd.simulate(pushed, example.state(), [0.0, 0.5, 1.0])
        >>> print(motion["O angle.effort"].round(3))  # [N m]
        [0.    1.995 0.282]
    """
    check_mechanism(mechanism)
    check_instance("with_inputs: signals", signals, Mapping, 'a dictionary, such as {"O.angle": 2.0}')
    check_mapping("with_inputs: signals", signals, '{"O.angle": 2.0}')
    known, over_time = inputs(mechanism), {}
    for name, given in signals.items():
        signal = lifted(as_float(given))
        if name in known:
            check_signal(mechanism, name, signal)
            over_time[name] = signal
            continue
        names = resolved(mechanism, name)
        if callable(signal):
            raise MechanismError(
                f"Input {name!r}: a number of the mechanism is constant over a motion, so what is added to it must be "
                f"a number; got a function. What may vary over time: {', '.join(known)}."
            )
        check_law(f"Input {name!r}", "signal", signal)
        for number in names:
            mechanism = with_numbers(mechanism, {number: find(mechanism, number)[0].value(mechanism) + signal})
    return with_signals(mechanism, over_time.items())


def resolved(mechanism: Mechanism, name: str) -> tuple[str, ...]:
    """Return the inputs over time, or single numbers, that a name or a pattern stands for.

    **Raises:** `MechanismError` if there are none.
    """
    known = inputs(mechanism)
    if name in known:
        return (name,)
    names = names_of(mechanism, name) if is_pattern(name) else (name,)
    check_known("input", names, (*known, *numbers_of(mechanism)))
    return names


class InputPlace(AbstractPlace):
    """An input over time as a place in a mechanism, whose value is a signal that is added to it."""

    is_last: ClassVar[bool] = True  # what it is added to moves further in, so the paths of others come first
    components: ClassVar[tuple[str, ...]] = ()
    name: str = eqx.field(static=True)

    def value(self, part: str, mechanism: Mechanism) -> Scalar:
        return as_float(0.0)

    def replaced(self, mechanism: Mechanism, value: PyTree) -> Mechanism:
        return with_signals(mechanism, [(self.name, value)])
