"""Implicit methods of a motion that runs natively: the functions of a step, and the workspace that these work on.

The time loop (`irk_steps.h`) keeps `w = [y, h, U, F]`: the state, the length of the step, the unknowns at its nodes,
and the factored matrices of Newton's method. A step from the time `t` is

    U = guess(t, w),   F = linearize(t, w),   U = iterate(t, w) until it changes no more,   (slopes, y₁) = reach(t, w)

Its derivatives are those of the fixed point `U = Ψ(U, y, h, θ)` of the iteration, found by iterating its derivative
with the same factors: `δU ← Ψ_U δU + Ψ_y δy + …`, and `λ ← Ψ_Uᵀ λ + Ū` for cotangents. They converge as the iteration
itself, and no matrix of all stages is formed.
"""

import abc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.engine.binding.tracing import TracedFunction, traced
from jaxmbd.integrate.adjoint.step_programs import Tableau


class Unknowns(NamedTuple):
    """How many unknowns a step has at its nodes, and numbers of factored matrices; where the unknowns of each kind end:
    coordinates, speeds, states of parts, multipliers (`Unknowns` in `motion.h`)."""

    size: int = 0
    factors: int = 0
    ends: tuple[int, ...] = (0, 0, 0, 0)

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.size, self.factors, *self.ends

    @property
    def work(self) -> int:
        """How much longer the workspace is than the state."""
        return 1 + self.size + self.factors

    def split(self, w: Array, states: int) -> list[Array]:
        """The parts `y, h, U, F` of the workspace, and what is behind it."""
        y, h, U, F, more = jnp.split(w, np.cumsum([states, 1, self.size, self.factors]).tolist())
        return [y, h[0], U, F, more]


class ImplicitFunctions(NamedTuple):
    """The functions of a step, of `(given, static, t, w)`: `iterate` gives the unknowns, their change, and below which
    that counts as converged and as stalled; `reach` the slopes of the method's `tableau`, two of them for the error and
    the dense output, and the state at the end. `error_order`: of the error estimate."""

    guess: Callable[..., Array]
    linearize: Callable[..., Array]
    iterate: Callable[..., Array]
    reach: Callable[..., Array]
    tableau: Callable[[], Tableau]
    unknowns: Unknowns
    error_order: int

    @property
    def named(self) -> dict[str, Callable[..., Array]]:
        """The functions by their names."""
        return {name: getattr(self, name) for name in ("iterate", "guess", "linearize", "reach")}


class ImplicitMethod(abc.ABC):
    """An implicit method for a motion, which knows the functions of a step."""

    @abc.abstractmethod
    def functions(
        self, structure: Callable[[Callable[..., Array], Unknowns], list[np.ndarray] | None]
    ) -> ImplicitFunctions | None:
        """The functions; `structure(function, unknowns)` tells which of a function's results may differ from zero, None
        if no program expresses it."""


def adjoint_of(iterate: TracedFunction, unknowns: Unknowns, states: int) -> TracedFunction:
    """`Ψ_Uᵀ λ`, with `λ` behind the workspace."""
    *known, t, w = iterate.types
    first, count = states + 1, unknowns.size

    def call(*operands: Array) -> Sequence[Array]:
        *numbers, t, longer = operands
        w, along = jnp.split(longer, [len(longer) - count])
        of_unknowns = lambda U: iterate(*numbers, t, w.at[first : first + count].set(U))[0][:count]  # noqa: E731
        return jax.vjp(of_unknowns, w[first : first + count])[1](along)

    return traced(call, [*known, t, w.update(shape=(w.shape[0] + count,))])
