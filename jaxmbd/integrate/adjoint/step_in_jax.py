"""One step of a native motion in JAX, with its derivatives of any order, and what an event does after one.

The time loop in C takes the steps, and its sweeps give first derivatives; sweeps of JAX over these functions give those
of higher order.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import diffrax as dfx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd.arrays import frozen
from jaxmbd.engine.binding.jax_binding import run_p
from jaxmbd.engine.binding.tracing import TracedFunction
from jaxmbd.integrate.adjoint.event_functions import EventMemory, moved, root_of
from jaxmbd.integrate.adjoint.implicit_functions import ImplicitFunctions
from jaxmbd.integrate.adjoint.steps import Dense
from jaxmbd.integrate.formulations.newton_closure import MAX_CLOSINGS
from jaxmbd.integrate.solvers.collocation_stages import MAX_ITERATIONS
from jaxmbd.integrate.solvers.unrolled_erk import ExplicitMethod, unrolled

_CLOSINGS = 2  # steps of Newton's method that give a closed state its derivatives, each to twice as many orders
_DERIVING = 12  # iterations that give the unknowns of an implicit step their derivatives


class StepInJAX(NamedTuple):
    """A step of a `method` for a motion with some `functions` of parameters, time and state; `memory`: of events;
    `closed`: how many coordinates are closed after each step."""

    functions: dict[str, TracedFunction]
    method: ExplicitMethod | ImplicitFunctions
    memory: EventMemory
    closed: int = 0

    def step(self, known: Sequence[Array], y: Array, t0: Array, t1: Array) -> tuple[Array, Dense]:
        """The state at the end of a step, and the data of its interpolation."""
        y, dense = self._open_step(known, y, t0, t1)
        y = jnp.where(t0 == t1, y, self._put_back(known, t1, y)) if self.closed else y
        if "after" in self.functions:
            # Frozen: it selects rows, and derivatives are those of the motion with the rows that were selected.
            last = self._evaluate("after", *frozen((known, t1, y)))
            y = y.at[len(y) - len(last) :].set(last)
        return y, dense

    def _open_step(self, known: Sequence[Array], y: Array, t0: Array, t1: Array) -> tuple[Array, Dense]:
        """A step of the method itself."""
        if isinstance(self.method, ImplicitFunctions):
            return self._implicit(self.method, known, y, t0, t1)
        term = dfx.ODETerm(lambda t, y, known: self._evaluate("rate", known, jnp.asarray(t), y))
        # As after a jump: the chain keeps the state alone, and evaluates the first stage of each step anew.
        y, _, dense, _, _ = unrolled(self.method).step(term, t0, t1, y, known, None, True)
        return y, dense

    def _put_back(self, known: Sequence[Array], t: Array, y: Array) -> Array:
        """The state on the constraints (`closing.h`), by Newton's method: first without derivatives, then with them."""
        n, tolerance = self.closed, jnp.sqrt(jnp.finfo(y.dtype).eps)

        def improved(known: Sequence[Array], t: Array, y: Array, q: Array) -> Array:
            return self._evaluate("closing", known, t, y.at[:n].set(q))

        def improve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            found = improved(theta, end, start, carry[0])
            return found[:n], found[-1], carry[2] + 1

        theta, end, start = frozen((known, t, y))
        first = start[:n], jnp.asarray(jnp.inf, y.dtype), jnp.zeros((), int)
        q, _, _ = jax.lax.while_loop(lambda c: (c[1] > tolerance) & (c[2] < MAX_CLOSINGS), improve, first)
        q, found = y[:n] + (q - start[:n]), y
        for _ in range(_CLOSINGS):
            found = improved(known, t, y, q)
            q = found[:n]
        return y.at[: len(found) - 1].set(found[:-1])

    def read(self, dense: Dense, t0: Array, t1: Array, t: Array) -> Array:
        """The state at a time within a step."""
        if not isinstance(self.method, ImplicitFunctions):
            return unrolled(self.method).interpolation_cls(t0=t0, t1=t1, **dense).evaluate(t)
        h, slopes = dense["h"], dense["slopes"]
        theta = (t - t0) / jnp.where(h == 0, 1.0, h)
        weights = jnp.polyval(self.method.tableau().dense_output(h.dtype).T, theta)
        return dense["y0"][: slopes.shape[1]] + h * weights @ slopes

    def after_event(self, known: Sequence[Array], y: Array) -> Array:
        """The state after an event and its entry in the log, with derivatives up to the third order: those of the way
        to the root, whose length is zero, by two steps of Newton's method along the motion."""
        memory, start = self.memory, y[self.memory.time]
        change, end = jnp.zeros_like(start), y
        for k in range(2):
            end = y if k == 0 else self._flow(known, y, start, change)
            change = change + root_of(self._evaluate("guard", known, start + change, end), end, memory)
        return self._evaluate("effect", known, start + change, self._flow(known, y, start, change))

    def _implicit(
        self, method: ImplicitFunctions, known: Sequence[Array], y: Array, t0: Array, t1: Array
    ) -> tuple[Array, Dense]:
        """A step whose unknowns are found without derivatives; repeating the iteration gives them their derivatives, to
        the accuracy to which it converges. A step without length stays where it is."""
        unknowns, n, h = method.unknowns, len(y), t1 - t0
        rests = h == 0

        def evaluate(name: str, at: tuple[Any, ...], *inner: Array) -> Array:
            numbers, t, start = at
            w = jnp.concatenate([start, *inner])
            return self._evaluate(name, numbers, t, jnp.pad(w, (0, n + unknowns.work - len(w))))

        def improve(U: Array, at: tuple[Any, ...]) -> Array:
            return evaluate("iterate", at, U, factors)[: unknowns.size]

        moving = known, t0, jnp.append(y, jnp.where(rests, 1.0, h))
        fixed = frozen(moving)
        U = evaluate("guess", fixed)
        factors = evaluate("linearize", fixed, U)
        U = jax.lax.fori_loop(0, MAX_ITERATIONS, lambda _, U: improve(U, fixed), U)
        U, _ = jax.lax.scan(lambda U, _: (improve(U, moving), None), U, None, length=_DERIVING)
        found = evaluate("reach", moving, U, factors)
        slopes, end = jnp.split(found, [len(found) - n])
        slopes = jnp.where(rests, 0.0, slopes.reshape(method.tableau().stages, -1))
        return jnp.where(rests, y, end), {"slopes": slopes, "y0": y, "h": h}

    def _evaluate(self, name: str, known: Sequence[Array], t: Array, y: Array) -> Array:
        (found,) = run_p.bind(*known, t, y, function=self.functions[name], batch=0)
        return jnp.pad(found, (0, len(y) - len(found))) if name == "rate" else found

    def _flow(self, known: Sequence[Array], y: Array, t: Array, h: Array) -> Array:
        """The state after a short time `h`, by the classical method of Runge and Kutta."""
        slope = lambda c, k: self._evaluate("rate", known, t + c * h, y + c * h * k)  # noqa: E731
        k1 = slope(0.0, jnp.zeros_like(y))
        k2 = slope(0.5, k1)
        k3 = slope(0.5, k2)
        return moved(y, h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(1.0, k3)), t + h, self.memory)
