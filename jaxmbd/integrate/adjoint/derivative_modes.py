"""Identity functions that raise a clear error if a computation is differentiated in an unsupported mode.

They change neither values nor derivatives. Their tangents pass through a linear primitive that raises if it is
transposed (`forward_only`), or if it is evaluated (`reverse_only`), since reverse mode only transposes it.
"""

from typing import Any

import equinox as eqx
import jax

from jaxmbd.engine.upstream.jax_internals import Primitive, ad, batching, mlir
from jaxmbd.errors import MechanismError

_tangent_p = Primitive("jaxmbd_tangent_of_one_mode")


def forward_only(tree: Any, text: str) -> Any:
    """The identity; raises `MechanismError(text)` if it is differentiated in reverse mode."""
    return _with_guard(tree, text, True)


def reverse_only(tree: Any, text: str) -> Any:
    """The identity; raises `MechanismError(text)` if it is differentiated in forward mode."""
    return _with_guard(tree, text, False)


def _with_guard(tree: Any, text: str, forward: bool) -> Any:
    arrays, rest = eqx.partition(tree, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: _identity(x, text, forward), arrays), rest)


@eqx.filter_custom_jvp
def _identity(x: Any, text: str, forward: bool) -> Any:
    return x


@_identity.def_jvp
def _identity_jvp(primals: Any, tangents: Any) -> Any:
    (x, text, forward), (x_dot, _, _) = primals, tangents
    out_dot = None if x_dot is None else _tangent_p.bind(x_dot, text=text, forward=forward)
    return _identity(x, text, forward), out_dot


def _evaluate(x: Any, text: str, forward: bool) -> Any:
    if not forward:
        raise MechanismError(text)
    return x


def _transpose(cotangent: Any, x: Any, text: str, forward: bool) -> Any:
    if forward:
        raise MechanismError(text)
    return [cotangent]


def _jvp(primals: Any, tangents: Any, **params: Any) -> Any:
    (x,), (x_dot,) = primals, tangents
    out_dot = x_dot if isinstance(x_dot, ad.Zero) else _tangent_p.bind(x_dot, **params)
    return _tangent_p.bind(x, **params), out_dot


def _batch(arrays: Any, axes: Any, text: str, forward: bool) -> Any:
    """Batched tangents belong to forward mode: in reverse mode the primitive is transposed before it is batched."""
    return _tangent_p.bind(_evaluate(arrays[0], text, forward), text=text, forward=forward), axes[0]


_tangent_p.def_impl(_evaluate)
_tangent_p.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_tangent_p, mlir.lower_fun(_evaluate, multiple_results=False))
ad.primitive_jvps[_tangent_p] = _jvp
ad.primitive_transposes[_tangent_p] = _transpose
batching.primitive_batchers[_tangent_p] = _batch
