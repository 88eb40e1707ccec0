"""Generalized speeds that a user chooses instead of those of the coordinates."""

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
    """Speeds `p` of a user's own choice: `v = function(p, q, t, parameters)`, affine in `p`.

    **Arguments:** `names` of the speeds, as many as the coordinates have of their own; `function` gives these, `v`, in
    the order of the mechanism's `speed_names` without the choice (rates of joint coordinates, twists of floating
    bodies); `parameters`, any tree of arrays. What belongs to one `v` must be one `p`.

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
        """The coordinates' own speeds `v (nv,)`."""
        given = (p, q, t, self.parameters)
        return user_array("GeneralizedSpeeds", "function", self.function, *given, takes="p, q, t, parameters")

    def check(self, nq: int, nv: int) -> None:
        """Raise unless there are as many as needed, and the function gives as many: tried on shapes alone."""
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
