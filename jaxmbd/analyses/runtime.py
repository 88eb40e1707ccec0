"""Run-time errors of compiled programs, with texts that depend on values: which instance of a batch, which joint.

`equinox.error_if` needs its text at trace time. Here the text is written when the error occurs, by a callback to Python
in a branch that is taken in that case only. JAX does not store programs with callbacks in its cache on disk, so this is
used only where errors are wanted and values are traced.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxmbd.integrate.diffrax_binding import any_instance, report_error

_LISTED = 4  # number of instances of a batch that a message describes

Describe = Callable[..., str]


class _EquinoxRuntimeError(RuntimeError):
    """`equinox.filter_jit` recognises its own errors by this name, and raises `EquinoxRuntimeError` with their text."""


@eqx.filter_jit
def raise_where(values: Any, failed: Bool[Array, ""], describe: Describe, *details: Array) -> Any:
    """Return the arrays `values` unchanged; if `failed`, raise with the text `describe(*details)` at run time.

    Under `vmap` the text gives the index of each instance that failed (several numbers if `vmap`s are nested) and
    describes the first few by their own details. The error is raised only if one of the values is used.
    """

    def report(failed: Any, *details: Any) -> Any:
        text = _text(np.asarray(failed), [np.asarray(x) for x in details], describe)
        report_error(text)
        raise _EquinoxRuntimeError(text)

    failed, details = jax.lax.stop_gradient((failed, details))
    like = jax.ShapeDtypeStruct((), bool)
    call = lambda: jax.pure_callback(report, like, failed, *details, vmap_method="broadcast_all")  # noqa: E731
    raised = jax.lax.cond(any_instance(failed), call, lambda: jnp.zeros((), bool))
    return jax.tree.map(lambda value: jnp.where(raised, jnp.nan, value), values)


def _text(failed: np.ndarray, details: list[np.ndarray], describe: Describe) -> str:
    if failed.ndim == 0:
        return describe(*details)
    indices = [tuple(map(int, index)) for index in np.argwhere(failed)]
    lines = [
        f"Instance {', '.join(map(str, index))}: {describe(*(x[index] for x in details))}"
        for index in indices[:_LISTED]
    ]
    more = [f"(and {len(indices) - _LISTED} more)"] if len(indices) > _LISTED else []
    return "\n".join([f"{len(indices)} of {failed.size} instances of the batch failed.", *lines, *more])
