"""Generalized speeds defined by the user (Kane) in place of those that the coordinates define."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Function, Scalar
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.checks import check_line, checked_names
from jaxmbd.user_functions import check_affine, user_array


class GeneralizedSpeeds(eqx.Module):
    """Generalized speeds `p` defined by the user: `v = function(p, q, t, parameters)`, affine in `p`.

    **Arguments:** `names` of the speeds, as many as `v` has entries; `function` returns `v` in the order of the
    `speed_names` of the mechanism without `GeneralizedSpeeds` (rates of joint coordinates, twists of floating bodies);
    `parameters`, any tree of arrays. The map from `p` to `v` must be one to one.

    Source: Kane and Levinson, *Dynamics: Theory and Applications* (1985), §2.14.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    function: Function
    parameters: Any

    def __init__(self, names: Iterable[str], function: Function, parameters: Any = None) -> None:
        self.names = checked_names("GeneralizedSpeeds: names", (names,) if isinstance(names, str) else names, "u")
        for name in self.names:
            check_line("generalized speed", name)
        self.function, self.parameters = function, parameters
        if not callable(function):
            raise MechanismError(f"GeneralizedSpeeds: function must be callable, got {type(function).__name__}.")
        if len(set(self.names)) < len(self.names):
            raise MechanismError(f"GeneralizedSpeeds: two of the names {self.names} are the same.")

    def given(self, p: Float[Array, " nv"], q: Float[Array, " own"], t: Scalar) -> Array:
        """The speeds `v (nv,)` of the coordinates."""
        arguments = (p, q, t, self.parameters)
        return user_array("GeneralizedSpeeds", "function", self.function, *arguments, takes="p, q, t, parameters")

    def check(self, nq: int, nv: int) -> None:
        """Raise unless there are `nv` names and the function returns `nv` values; traced on shapes only."""
        if len(self.names) != nv:
            raise MechanismError(
                f"GeneralizedSpeeds: {nv} speeds are needed, got {len(self.names)} names {self.names}."
            )
        dtype = jnp.result_type(float)
        p, q, t = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((nv,), (nq,), ()))
        shape = eqx.filter_eval_shape(self.given, p, q, t).shape
        if shape != (nv,):
            raise MechanismError(f"GeneralizedSpeeds: the function must return shape {(nv,)}, got {shape}.")
        names = "q, t, parameters", "p"
        check_affine("GeneralizedSpeeds", lambda q, t, p: self.given(p, q, t), (q, t), p, names)
