"""Errors of running programs, with a text that Python writes when one occurs.

`jax.pure_callback` would make arrays of JAX of all that the text may tell. On a processor these are copied by the
threads that run the program: with one thread, or a large batch, it waited for ever instead of raising. Here Python gets
views.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmbd.engine.binding.mesh import gathered
from jaxmbd.engine.machine.build_vm import RAISE, vm
from jaxmbd.engine.numpy_code.translation import CALL_RULES
from jaxmbd.upstream.jax_internals import BatchedAxes, Primitive, ShapedArray, batching, default_platform, mlir

ROOM = 4096  # [bytes] for a text
_TEXT = ShapedArray((ROOM,), np.dtype(np.uint8))

Write = Callable[..., bytes]

raise_p = Primitive("jaxmbd_raise")


def always_raised(write: Write, *arrays: Array) -> Array:
    """Raise with the text `write(*arrays)`, as NumPy arrays with the leading axes of batches; return a boolean.

    The text ends with a zero unless it has `ROOM` bytes. `write` itself raises where `raises_itself()`. It must not use
    JAX, whose functions may wait for the program that is being stopped.
    """
    return raise_p.bind(*gathered(arrays), write=write)


def raises_itself() -> bool:
    """True where no virtual machine raises the text."""
    return default_platform() != "cpu" or vm() is None


def _raised_by_machine(text: Array) -> Array:
    """An error that a callback raises would stand behind the frames of JAX that led to it."""
    return jax.ffi.ffi_call(RAISE, jax.ShapeDtypeStruct((), bool))(text)


def _raised(*arrays: Array, write: Write) -> Array:
    """What runs without a program, under `jax.disable_jit`."""
    raise RuntimeError(write(*map(np.asarray, arrays)).rstrip(b"\0").decode())


def _lower(context: mlir.LoweringRuleContext, *operands: Any, write: Write) -> Any:
    def called(*arrays: Any) -> tuple[np.ndarray]:
        return (np.frombuffer(write(*map(np.asarray, arrays)).ljust(ROOM, b"\0"), np.uint8),)

    within, types = context.replace(avals_out=[_TEXT]), cast(Sequence[ShapedArray], context.avals_in)
    (text,), *_ = mlir.emit_python_callback(
        within, called, None, operands, types, [_TEXT], has_side_effect=False, returns_token=False
    )
    function = (lambda text: text[0] > 0) if raises_itself() else _raised_by_machine
    return mlir.lower_fun(function, multiple_results=False)(context.replace(avals_in=[_TEXT]), text)


def _batched(operands: Sequence[Array], axes: BatchedAxes, *, write: Write) -> tuple[Array, None]:
    """One error for the whole batch."""
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    whole = [
        jnp.broadcast_to(x, (size, *x.shape)) if axis is None else jnp.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    return raise_p.bind(*whole, write=write), None


raise_p.def_impl(_raised)
raise_p.def_abstract_eval(lambda *_, write: ShapedArray((), np.dtype(bool)))
mlir.register_lowering(raise_p, _lower, cacheable=False)
batching.primitive_batchers[raise_p] = _batched
CALL_RULES["jaxmbd_raise"] = lambda code, _, operands: code.emit("stop", operands, 1)
