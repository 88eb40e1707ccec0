"""Functional Mock-up Units as parts of a mechanism: controllers with states, or that sample, by code of others."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float, is_concrete
from jaxmbd.checks import check_finite, check_instance, check_mapping, check_shape, checked_names
from jaxmbd.errors import MechanismError, NoDerivativeError
from jaxmbd.io.fmu.running import RunningFmu
from jaxmbd.io.fmu.unit import FmuDescription, read_fmu
from jaxmbd.model.controller.controller import AbstractDynamicController, as_names
from jaxmbd.model.controller.sampled import AbstractSampledController
from jaxmbd.model.states import AbstractSwitching, OwnState

_VALUES = ("parameter", "input", "local", "output")  # causalities of variables that may have a start value


class FmuPart(AbstractDynamicController):
    """A model-exchange FMU: its continuous states are states of the mechanism. `import_fmu` makes it.

    **Arguments:** `of`, the names of the quantities that are its inputs; `drives`, the names of the inputs to which its
    outputs are added, or none; `code`, the FMU in this process; `state`, its states at which a motion starts;
    `parameters`, by the names of its variables.
    """

    name: str = eqx.field(static=True)
    of: tuple[str, ...] = eqx.field(static=True, converter=as_names)
    drives: tuple[str, ...] = eqx.field(static=True, converter=as_names)
    code: RunningFmu = eqx.field(static=True)
    state: Float[Array, " n"] = eqx.field(converter=as_float)
    parameters: dict[str, Scalar]
    is_foreign: ClassVar[bool] = True

    def __check_init__(self) -> None:
        part = f"{type(self).__name__} {self.name!r}"
        check_instance(f"{part}: code", self.code, RunningFmu, "an FMU in this process, which import_fmu makes")
        check_shape(part, "state", self.state, (len(self.code.of_states),))
        for name, value in self.parameters.items():
            check_finite(part, f"parameters[{name!r}]", value)

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        variables = self.code.description.variables
        sizes = [abs(variables[name].nominal) or 1.0 for name in self.code.description.states]
        return (OwnState("state", "", min(sizes, default=1.0)),) if sizes else ()

    def output(self, t: Scalar, u: Float[Array, " reads"]) -> Float[Array, "*components"]:
        n, count = len(self.state), len(self.code.outputs)
        found = self._evaluated(t, u)[n : n + count]
        return found[0] if count == 1 else found

    def own_rates(self, t: Scalar, u: Float[Array, " reads"]) -> Float[Array, " n"]:
        return self._evaluated(t, u)[: len(self.state)]

    def steady(self, t: Scalar, u: Float[Array, " reads"]) -> Float[Array, " n"]:
        """The states stay: those of an equilibrium are not known of an FMU."""
        return self.state

    # Declared as `AbstractVar`, it would be the first argument of each class to a type checker.
    def _memory(self) -> Array:
        return jnp.zeros(0, self.state.dtype)

    def _p(self) -> Array:
        return _stacked(self.code, self.parameters)

    def _evaluated(self, t: Scalar, u: Float[Array, " reads"]) -> Array:
        return _evaluated(self.code, jnp.asarray(t, self.state.dtype), self.state, u, self._p(), self._memory())


class FmuPartWithEvents(FmuPart, AbstractSwitching):
    """A model-exchange FMU with event indicators: where one changes its sign, the FMU changes its states.

    **Arguments:** as for `FmuPart`; the `signs` of the event indicators, and the inner state of the FMU as numbers, its
    `memory`, at which a motion starts.
    """

    signs: Float[Array, " indicators"] = eqx.field(converter=as_float)
    memory: Float[Array, " m"] = eqx.field(converter=as_float)
    is_logged: ClassVar[bool] = True

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        held = OwnState("signs", "1", held=True), OwnState("memory", "1", held=True)
        return (*FmuPart.own_states.fget(self), *held)  # pyright: ignore[reportOptionalCall]

    def own_rates(self, t: Scalar, u: Float[Array, " reads"]) -> Float[Array, " n"]:
        held = len(self.signs) + len(self.memory)
        return jnp.pad(FmuPart.own_rates(self, t, u), (0, held))

    def steady(self, t: Scalar, u: Float[Array, " reads"]) -> Float[Array, " n"]:
        return jnp.concatenate([self.state, self.signs, self.memory])

    @property
    def guard_units(self) -> tuple[str, ...]:
        return ("1",) * self.code.description.indicators

    def guards(self, t: Scalar, u: Float[Array, " reads"]) -> Float[Array, " n"]:
        # One that stays at zero, as that of a ball that rests, is none that has changed its sign.
        at = jnp.asarray(t, self.state.dtype), self.state, u, self._p(), self.memory
        indicators = _indicated(self.code, *at)
        return jnp.where(indicators == 0, 1.0, self.signs * indicators)

    def changed(self, t: Scalar, u: Float[Array, " reads"]) -> Float[Array, "n k"]:
        after = [
            _called(self.code, "event", (len(self.steady(t, u)),), t, self.state, u, self._p(), self.signs,
                    self.memory, jnp.asarray(float(k)))
            for k in range(len(self.signs))
        ]  # fmt: skip
        return jnp.stack(after)

    def begun(self, t: Scalar, u: Float[Array, " reads"]) -> Float[Array, " k"]:
        return _called(self.code, "begun", (len(self.steady(t, u)),), t, self.state, u, self._p())

    def _memory(self) -> Array:
        return self.memory


class SampledFmu(AbstractSampledController):
    """A co-simulation FMU: at `t_k = offset + k T` it reads its inputs, after the step from t_{k−1} with those before,
    and its outputs are held until t_{k+1}. `import_fmu` makes it.

    **Arguments:** as for `FmuPart`; `period` T `[s]`; the inner state of the FMU as numbers, its `state`, at which a
    motion starts; `offset`, `most`, `held`, `samples`, as for `SampledController`.
    """

    name: str = eqx.field(static=True)
    of: tuple[str, ...] = eqx.field(static=True, converter=as_names)
    drives: tuple[str, ...] = eqx.field(static=True, converter=as_names)
    code: RunningFmu = eqx.field(static=True)
    period: Scalar = eqx.field(converter=as_float)
    state: Float[Array, " n"] = eqx.field(converter=as_float)
    parameters: dict[str, Scalar]
    held: Float[Array, "1 *components"] = eqx.field(converter=as_float)
    offset: Scalar = eqx.field(converter=as_float, default=0.0)
    samples: Scalar = eqx.field(converter=as_float, default=0.0)
    most: int | None = eqx.field(static=True, default=None)
    delay: int = eqx.field(static=True, default=0)
    resolution: Float[Array, "*k"] | None = None
    is_foreign: ClassVar[bool] = True

    def __check_init__(self) -> None:
        part = f"SampledFmu {self.name!r}"
        check_instance(f"{part}: code", self.code, RunningFmu, "an FMU in this process, which import_fmu makes")
        self.check_sampling(part)

    @property
    def memory(self) -> tuple[OwnState, ...]:
        return (OwnState("state", "1", held=True),)

    def computed(self, t: Scalar, u: Float[Array, " reads"]) -> tuple[Array, Array]:
        count = len(self.code.outputs)
        p, is_first = _stacked(self.code, self.parameters), (self.samples == 0).astype(self.state.dtype)
        size = (count + len(self.state),)
        found = _called(self.code, "sampled", size, t, self.period, u, p, self.state, is_first)
        return found[:count].reshape(self.held.shape[1:]), found[count:]

    def remembered_at_rest(self, u: Float[Array, " reads"]) -> Float[Array, " n"]:
        """The state stays: that of an equilibrium is not known of an FMU."""
        return self.state


# --- calls ----------------------------------------------------------------------------------------------------


def _stacked(code: RunningFmu, parameters: Mapping[str, Array]) -> Array:
    values = [parameters[name] for name in code.parameters]
    return jnp.stack(values) if values else jnp.zeros(0)


def _callback(function: Callable[..., np.ndarray], shape: tuple[int, ...], *arrays: Array) -> Array:
    """A function of NumPy arrays. One instance of a batch runs after another: an FMU has states."""
    plain = lambda *values: function(*map(np.asarray, values))  # noqa: E731
    result = jax.ShapeDtypeStruct(shape, jnp.result_type(float))
    return jax.pure_callback(plain, result, *map(jnp.asarray, arrays), vmap_method="sequential")


@partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _called(code: RunningFmu, what: str, shape: tuple[int, ...], *arrays: Array) -> Array:
    return _callback(getattr(code, what), shape, *arrays)


@_called.defjvp
def _no_derivative_of_call(code: RunningFmu, what: str, shape: tuple[int, ...], *_: Any) -> Any:
    of = {"sampled": "the steps of co-simulation"}.get(what, "the changes of states at events")
    raise NoDerivativeError(
        f"{code.label}: FMI has no derivatives of {of}, and this derivative needs them. Import the FMU for model "
        "exchange, without events, or take differences of whole motions."
    )


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _evaluated(code: RunningFmu, t: Array, x: Array, u: Array, p: Array, memory: Array) -> Array:
    return _callback(code.evaluated, (code.size,), t, x, u, p, memory)


@_evaluated.defjvp
def _tangent(code: RunningFmu, primals: Any, tangents: Any) -> tuple[Array, Array]:
    if not code.able.has_directional:
        flag = f"providesDirectionalDerivative{'s' if code.description.version.startswith('3') else ''}"
        raise NoDerivativeError(
            f'{code.label} has no derivatives: its description lacks {flag}="true". Motions run with explicit methods, '
            "which need none; gradients, linearize and implicit methods need them."
        )
    slope = _jacobian(code, *primals)
    change = jnp.concatenate([tangents[0][None], *tangents[1:4]])
    return _evaluated(code, *primals), slope @ change


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _indicated(code: RunningFmu, t: Array, x: Array, u: Array, p: Array, memory: Array) -> Array:
    return _callback(code.indicated, (code.description.indicators,), t, x, u, p, memory)


@_indicated.defjvp
def _change_of_indicators(code: RunningFmu, primals: Any, tangents: Any) -> tuple[Array, Array]:
    along = tangents[:3]
    found = _called(code, "indicated_change", (code.description.indicators,), *primals, *along)
    return _indicated(code, *primals), found


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _jacobian(code: RunningFmu, t: Array, x: Array, u: Array, p: Array, memory: Array) -> Array:
    width = 1 + len(x) + len(u) + len(p)
    return _callback(code.jacobian, (code.size, width), t, x, u, p, memory)


@_jacobian.defjvp
def _no_second_derivative(code: RunningFmu, *_: Any) -> Any:
    raise NoDerivativeError(f"{code.label}: FMI has first derivatives alone, and this derivative needs second ones.")


# --- import ---------------------------------------------------------------------------------------------------


def import_fmu(
    path: str | os.PathLike[str],
    name: str,
    inputs: Mapping[str, str] | None = None,
    outputs: Sequence[str] = (),
    drives: Any = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    period: Any = None,
    start: float | None = None,
    most: int | None = None,
) -> FmuPart | SampledFmu:
    """Make a part of a Functional Mock-up Unit (FMU) of FMI 3.0 or 2.0, whose code runs in this process.

    **An FMU is a program.** To import one runs its code with all your rights: import those that you trust. `read_fmu`
    reads the description alone and runs nothing. A model file cannot hold such a part, so that none runs code unasked.

    Without `period` it is a model-exchange FMU: its continuous states are states of the mechanism,
    `"motor.state[0]"`, integrated with it. Event indicators are events of the motion. With `period` it is a
    co-simulation FMU, which steps from one sample to the next and holds its outputs in between; its inner state is a
    part of the state, so that it must be able to serialize that.

    The code is no program of the engine: diffrax's loop integrates such motions, and calls it in each stage. First
    derivatives, forward and reverse, are those that the FMU provides (`providesDirectionalDerivatives`).

    **Arguments:**

    - `path`; `name`, of the part;
    - `inputs`: the quantity that each input of the FMU reads, `{"angle": "O.angle"}`; others keep their start values;
    - `outputs`: the names of variables that the part gives, `"motor.output"`, `"motor.output[1]"` if there are several;
    - `drives`: the inputs of the mechanism (`inputs`) to which these are added, as many as outputs, or none;
    - `parameters`: other values of the FMU's parameters. Those by which it provides derivatives, as differences show at
      the import, are numbers of the part, `"motor.parameters[k]"`; others are fixed;
    - `period` `[s]`, of samples;
    - `start` `[s]`: the time at which the FMU starts, by default that of its own experiment;
    - `most`: the largest number of samples in a motion, as for `SampledController`.

    **Returns:** a part for `controllers` of a mechanism, or `with_parts`.

    **Raises:** `MechanismError` for unknown names, variables of other types, a file that is no FMU, an FMU without a
    binary for this computer, and one that cannot do what is needed.

        >>> speed = {"speed": "O.angle_rate"}
        >>> part = mbd.import_fmu("motor.fmu", "motor", speed, ["torque"], "O.angle")  # doctest: +SKIP

    Source: Modelica Association, *Functional Mock-up Interface Specification*, versions 3.0.2 and 2.0.5.
    """
    description = read_fmu(path)
    label = f"FMU {description.path.name!r}"
    if jnp.result_type(float) != np.float64:
        raise MechanismError(
            f"{label} computes in double precision: call jax.config.update('jax_enable_x64', True) before."
        )
    kind = "model exchange" if period is None else "co-simulation"
    if kind not in description.kinds:
        raise MechanismError(
            f"{label} is for {' and '.join(description.kinds)}, not for {kind}: "
            f"{'give period=, in seconds' if period is None else 'leave out period'}."
        )
    inputs, parameters = {} if inputs is None else inputs, {} if parameters is None else parameters
    check_mapping(f"{label}: inputs", inputs, '{"angle": "O.angle"}')
    check_mapping(f"{label}: parameters", parameters, '{"k": 2.0}')
    checked_names(f"{label}: inputs", tuple(inputs.values()), "O.angle")
    if start is not None:
        check_finite(label, "start", as_float(start))
    for key, value in parameters.items():
        check_finite(label, f"parameters[{key!r}]", as_float(value))
    if not is_concrete(parameters, start):
        raise MechanismError(
            f"{label}: import_fmu needs known numbers: call it outside of jax.jit and jax.grad, and change numbers of "
            'the part with with_numbers(mechanism, {"motor.parameters[k]": k}).'
        )
    outputs = checked_names(f"{label}: outputs", outputs, "torque")
    description.check_real("inputs", list(inputs), ("input",))
    description.check_real("outputs", outputs)
    description.check_real("parameters", list(parameters), ("parameter",))
    description.check_real("states", description.states)
    _check_able(description, kind)
    t0 = description.start if start is None else float(start)
    code, numbers = _code(description, kind, list(inputs), outputs, parameters, t0)
    x, signs, memory = code.initial(np.array([float(numbers[name]) for name in code.parameters]))
    reads, driven = tuple(inputs.values()), as_names(drives)
    if kind == "co-simulation":
        shape = (1,) if len(outputs) == 1 else (1, len(outputs))
        held: Any = np.zeros(shape)
        return SampledFmu(name, reads, driven, code, period, memory, numbers, held, t0, most=most)  # pyright: ignore
    if description.indicators:
        return FmuPartWithEvents(name, reads, driven, code, as_float(x), numbers, as_float(signs), as_float(memory))
    return FmuPart(name, reads, driven, code, as_float(x), numbers)


def _check_able(description: FmuDescription, kind: str) -> None:
    """Raise if an FMU cannot do what a part of its kind needs."""
    able, needed = description.kinds[kind], kind == "co-simulation" or description.indicators > 0
    if needed and not (able.keeps_states and able.serializes_states):
        three = description.version.startswith("3")
        flags = [f"canGetAndSetFMU{'State' if three else 'state'}", f"canSerializeFMU{'State' if three else 'state'}"]
        lacks = [x for x, has in zip(flags, (able.keeps_states, able.serializes_states), strict=True) if not has]
        raise MechanismError(
            f"FMU {description.path.name!r} lacks {' and '.join(lacks)} for {kind}. Steps are repeated, rejected and "
            "run backward for derivatives, so that all that it remembers must be a part of the state."
        )


def _code(
    description: FmuDescription, kind: str, inputs: Sequence[str], outputs: Sequence[str],
    parameters: Mapping[str, Any], start: float,
) -> tuple[RunningFmu, dict[str, Any]]:  # fmt: skip
    """The FMU in this process, and its parameters that are numbers of the part."""
    exchange = kind == "model exchange"
    make = lambda names, fixed: RunningFmu(description, kind, inputs, outputs, names, fixed, start)  # noqa: E731
    free = sorted(parameters)
    if exchange and parameters and description.kinds[kind].has_directional:
        probe = make([], {})
        free = [k for k in free if probe.gives_derivative(description.variables[k].reference)]
        free = [k for k in free if make([k], {}).agrees(float(parameters[k]))]
    code = make(free, {key: float(parameters[key]) for key in sorted(set(parameters) - set(free))})
    if exchange and description.kinds[kind].has_directional:
        code.check_autonomous()
    return code, {key: as_float(parameters[key]) for key in free}
