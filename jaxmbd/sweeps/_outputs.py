"""What the function of a sweep returns for one variant, as named arrays; and its compilation for chunks of variants."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.stages import Wrapped
from jaxtyping import Array, PyTree

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.numbers import with_numbers
from jaxmbd.state.result_codes import RESULTS, number_of, text_of
from jaxmbd.state.state import State
from jaxmbd.sweeps._space import RESERVED, Space
from jaxmbd.user_functions import call_user

Function: TypeAlias = Callable[[Any], Mapping[str, PyTree]]  # of a dictionary of numbers, or of a mechanism

Run: TypeAlias = Callable[..., Mapping[str, Array | np.ndarray]]  # of the rows of a chunk

RESULT, RESULT_TEXT = "result", "result_text"


@dataclass(frozen=True)
class Output:
    """One named output of a variant: its shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def dims(self) -> tuple[str, ...]:
        return tuple(f"{self.name}_{k}" for k in range(len(self.shape)))


class Numbers(dict[str, Array]):
    """The numbers of one variant; a name that does not exist is an error that says which do."""

    def __missing__(self, name: object) -> NoReturn:
        raise unknown("number in the space of the sweep", name, self)


@dataclass(frozen=True)
class OfMechanism:
    """A function of a mechanism as one of the numbers that the mechanism is to have."""

    function: Function
    mechanism: Mechanism

    def __call__(self, numbers: Mapping[str, PyTree]) -> Mapping[str, PyTree]:
        what, changed = f"sweep: {name_of(self.function)}", with_numbers(self.mechanism, numbers)
        return call_user(what, "function", self.function, changed, takes="mechanism")


def name_of(function: object) -> str:
    """What messages call a function."""
    if isinstance(function, OfMechanism):
        return name_of(function.function)
    return getattr(function, "__qualname__", None) or type(function).__name__


def of_one(function: Function) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """The function for one variant with its outputs as arrays, the verdict as an integer."""

    def outputs(numbers: dict[str, Array]) -> dict[str, Array]:
        if isinstance(function, OfMechanism):
            found = function(numbers)
        else:
            called = "{" + ", ".join(f"{name!r}: …" for name in numbers) + "}"
            found = call_user(f"sweep: {name_of(function)}", "function", function, Numbers(numbers), takes=called)
        if not isinstance(found, Mapping):
            raise MechanismError(
                f"sweep: {name_of(function)} must return a dictionary of named outputs, such as "
                f'{{"force": force}}; got {type(found).__name__}.'
            )
        if not found:
            raise MechanismError(f"sweep: {name_of(function)} returns no outputs. Return at least one by its name.")
        return {name: _as_array(function, name, value) for name, value in found.items()}

    return outputs


def _as_array(function: Function, name: object, value: Any) -> Array:
    if not isinstance(name, str) or not name or "/" in name or name.startswith((".", "__")):
        raise MechanismError(
            f"sweep: {name_of(function)} names an output {name!r}; names are non-empty strings without '/' that do not "
            "begin with '.' or '__'."
        )
    verdict = value.result if isinstance(value, State | Solution) else value
    if name == RESULT:
        if not _is_verdict(verdict):
            raise MechanismError(
                f"sweep: the output 'result' of {name_of(function)} must be a verdict (a code of jaxmbd.RESULTS, a "
                f"State or a Solution), got {type(value).__name__}. Give other outputs another name."
            )
        return jnp.asarray(number_of(verdict), jnp.int32)
    if verdict is not value or _is_verdict(value):
        raise MechanismError(
            f"sweep: the output {name!r} of {name_of(function)} is a {type(value).__name__}. A verdict has the name "
            f'"result"; other outputs are numbers, such as {name}["rod.x"].'
        )
    try:
        array = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise MechanismError(
            f"sweep: the output {name!r} of {name_of(function)} must be a number or an array of numbers, got "
            f"{type(value).__name__}."
        ) from error
    if array.dtype.kind not in "biuf":
        raise MechanismError(
            f"sweep: the output {name!r} of {name_of(function)} has the type {array.dtype}; real numbers, integers and "
            "booleans can be stored. Return real and imaginary part by two names."
        )
    return array


def _is_verdict(value: object) -> bool:
    return isinstance(value, RESULTS)


def outputs_of(function: Function, run: Any, space: Space, size: int) -> tuple[Output, ...]:
    """The outputs of one variant, found by tracing `run`, the function for `size` variants, which is then traced.

    **Raises:** `MechanismError` if the function raises, or returns what is no dictionary of named numbers.
    """
    shapes = run.eval_shape(_types_of_rows(space, size))
    found = tuple(Output(name, tuple(x.shape[1:]), np.dtype(x.dtype)) for name, x in shapes.items())
    taken = {*space.names, *space.dims, *space.labels, *(RESERVED - {RESULT})}
    for output in found:
        for name in (output.name, *output.dims):
            if name in taken:
                raise MechanismError(
                    f"sweep: {name_of(function)} has an output {output.name!r}, of which the name {name!r} is taken: "
                    f"numbers, dimensions and outputs are {', '.join(sorted(taken))}. Name the output otherwise."
                )
            taken.add(name)
    return found


def _types_of_rows(space: Space, size: int) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct((size,), jnp.asarray(x).dtype) for name, x in space.rows(0, 1).items()}


def traced(run: Wrapped, space: Space, size: int) -> Any:
    """The jaxpr of `run`, the jitted function for `size` variants."""
    return run.trace(_types_of_rows(space, size)).jaxpr


def compiled(function: Function) -> Wrapped:
    """The function for many variants at once, jitted."""
    return jax.jit(jax.vmap(of_one(function)))


def begun(
    run: Run, rows: dict[str, np.ndarray], size: int, device: object = None
) -> Callable[[], dict[str, np.ndarray]]:
    """Begin to compute a chunk, on the given device; what is returned waits for its outputs.

    A chunk is filled up to `size` variants with its last one, so that one program serves all.
    """
    count = len(next(iter(rows.values())))
    full = {name: np.concatenate([x, np.repeat(x[-1:], size - count)]) for name, x in rows.items()}
    found = run(full if device is None else jax.device_put(full, device))
    return lambda: {name: np.asarray(x)[:count] for name, x in jax.device_get(found).items()}


def values_of(run: Run, rows: dict[str, np.ndarray], size: int) -> dict[str, np.ndarray]:
    """The outputs of a chunk, when they are there."""
    return begun(run, rows, size)()


def result_texts() -> list[str]:
    """The texts of the result codes, in the order of their integers."""
    return [text_of(np.asarray(k)) for k in range(len(RESULTS))]  # pyright: ignore[reportArgumentType]
