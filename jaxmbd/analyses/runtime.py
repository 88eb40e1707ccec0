"""Errors of running programs, with texts made from their numbers: which instance of a batch, which joint.

`equinox.error_if` knows its texts beforehand. Here the text is made when the error occurs, by a call to Python in a
branch that is taken then only. JAX keeps no program with such a call in its cache on disk: use it where errors are
wanted and values are traced.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxmbd.integrate.diffrax_binding import any_instance, report_error

_LISTED = 4  # instances of a batch that a message describes

Describe = Callable[..., str]


class _EquinoxRuntimeError(RuntimeError):
    """`equinox.filter_jit` knows an error of its own by this name, and raises `EquinoxRuntimeError` with its text."""


@eqx.filter_jit
def raise_where(values: Any, failed: Bool[Array, ""], describe: Describe, *details: Array) -> Any:
    """`values`, arrays, unchanged; where `failed`, an error when the program runs, with the text `describe(*details)`.

    Under `vmap` the text names the instances (by number, several where `vmap`s are nested) and describes the first few
    of them, each by its own details. The error is raised only if a value is used.
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
    places = [tuple(map(int, place)) for place in np.argwhere(failed)]
    each = [
        f"Instance {', '.join(map(str, place))}: {describe(*(x[place] for x in details))}" for place in places[:_LISTED]
    ]
    more = [f"(and {len(places) - _LISTED} more)"] if len(places) > _LISTED else []
    return "\n".join([f"{len(places)} of {failed.size} instances of the batch failed.", *each, *more])
