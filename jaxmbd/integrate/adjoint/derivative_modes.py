"""Identity functions that raise a clear error if a computation is differentiated in an unsupported mode.

They change neither values nor derivatives. Their tangents pass through a linear primitive that raises if it is
transposed (`forward_only`), or if it is evaluated (`reverse_only`), since reverse mode only transposes it.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
from jax.typing import ArrayLike
from jaxtyping import Array

from jaxmbd.errors import MechanismError
from jaxmbd.upstream.jax_internals import Primitive, Tangent, ad, batching, mlir

Tree = TypeVar("Tree")
Value = TypeVar("Value")

_tangent_p = Primitive("jaxmbd_tangent_of_one_mode")


def forward_only(tree: Tree, text: str) -> Tree:
    """The identity; raises `MechanismError(text)` if it is differentiated in reverse mode."""
    return _with_guard(tree, text, True)


def reverse_only(tree: Tree, text: str) -> Tree:
    """The identity; raises `MechanismError(text)` if it is differentiated in forward mode."""
    return _with_guard(tree, text, False)


def _with_guard(tree: Tree, text: str, forward: bool) -> Tree:
    arrays, rest = eqx.partition(tree, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: _identity(x, text, forward), arrays), rest)


@eqx.filter_custom_jvp
def _identity(x: Array, text: str, forward: bool) -> Array:
    return x


@_identity.def_jvp
def _identity_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array | None]:
    (x, text, forward), (x_dot, _, _) = primals, tangents
    out_dot = None if x_dot is None else _tangent_p.bind(x_dot, text=text, forward=forward)
    return _identity(x, text, forward), out_dot


def _evaluate(x: Value, text: str, forward: bool) -> Value:
    if not forward:
        raise MechanismError(text)
    return x


def _transpose(cotangent: Tangent, x: object, text: str, forward: bool) -> list[Tangent]:
    if forward:
        raise MechanismError(text)
    return [cotangent]


def _jvp(primals: Sequence[ArrayLike], tangents: Sequence[Tangent], **params: object) -> tuple[Array, Tangent]:
    (x,), (x_dot,) = primals, tangents
    out_dot = x_dot if isinstance(x_dot, ad.Zero) else _tangent_p.bind(x_dot, **params)
    return _tangent_p.bind(x, **params), out_dot


def _batch(arrays: Sequence[ArrayLike], axes: Sequence[int], text: str, forward: bool) -> tuple[Array, int]:
    """Batched tangents belong to forward mode: in reverse mode the primitive is transposed before it is batched."""
    return _tangent_p.bind(_evaluate(arrays[0], text, forward), text=text, forward=forward), axes[0]


_tangent_p.def_impl(_evaluate)
_tangent_p.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_tangent_p, mlir.lower_fun(_evaluate, multiple_results=False))
ad.primitive_jvps[_tangent_p] = _jvp
ad.primitive_transposes[_tangent_p] = _transpose
batching.primitive_batchers[_tangent_p] = _batch
