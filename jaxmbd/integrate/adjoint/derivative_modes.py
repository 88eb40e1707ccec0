"""Identities that say in plain words which derivatives a computation lacks, before JAX says it in its own.

They change neither values nor derivatives. Their tangents pass through a linear primitive that raises where it is
transposed (`forward_only`), or where it is evaluated (`reverse_only`): reverse derivatives only ever transpose it.
"""

from typing import Any

import equinox as eqx
import jax

from jaxmbd.compile.jax_internals import Primitive, ad, batching, mlir
from jaxmbd.errors import MechanismError

_tangent_p = Primitive("jaxmbd_tangent_of_one_mode")


def forward_only(tree: Any, text: str) -> Any:
    """The same, with an error by that text where it is differentiated in reverse mode."""
    return _guarded(tree, text, True)


def reverse_only(tree: Any, text: str) -> Any:
    """The same, with an error by that text where it is differentiated in forward mode."""
    return _guarded(tree, text, False)


def _guarded(tree: Any, text: str, forward: bool) -> Any:
    arrays, rest = eqx.partition(tree, eqx.is_inexact_array)
    return eqx.combine(jax.tree.map(lambda x: _identity(x, text, forward), arrays), rest)


@eqx.filter_custom_jvp
def _identity(x: Any, text: str, forward: bool) -> Any:
    return x


@_identity.def_jvp
def _identity_jvp(primals: Any, tangents: Any) -> Any:
    (x, text, forward), (change, _, _) = primals, tangents
    moved = None if change is None else _tangent_p.bind(change, text=text, forward=forward)
    return _identity(x, text, forward), moved


def _evaluated(x: Any, text: str, forward: bool) -> Any:
    if not forward:
        raise MechanismError(text)
    return x


def _transposed(cotangent: Any, x: Any, text: str, forward: bool) -> Any:
    if forward:
        raise MechanismError(text)
    return [cotangent]


def _differentiated(primals: Any, tangents: Any, **params: Any) -> Any:
    (x,), (change,) = primals, tangents
    moved = change if isinstance(change, ad.Zero) else _tangent_p.bind(change, **params)
    return _tangent_p.bind(x, **params), moved


def _batched(arrays: Any, axes: Any, text: str, forward: bool) -> Any:
    """Tangents side by side are forward derivatives: those of reverse ones are transposed before they are batched."""
    return _tangent_p.bind(_evaluated(arrays[0], text, forward), text=text, forward=forward), axes[0]


_tangent_p.def_impl(_evaluated)
_tangent_p.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(_tangent_p, mlir.lower_fun(_evaluated, multiple_results=False))
ad.primitive_jvps[_tangent_p] = _differentiated
ad.primitive_transposes[_tangent_p] = _transposed
batching.primitive_batchers[_tangent_p] = _batched
