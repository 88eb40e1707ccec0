"""A step of a collocation method as functions of arrays, which the native time loop runs (`implicit_functions.py`).

The step before, from which the next one is guessed, is the last part of the state; it is constant in derivatives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.arrays import frozen
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.adjoint.implicit_functions import ImplicitFunctions, ImplicitMethod, Unknowns
from jaxmbd.integrate.adjoint.step_programs import DEGREE, Tableau
from jaxmbd.integrate.solvers.collocation import LastStep, Rates, StepEnd
from jaxmbd.integrate.solvers.collocation_stages import (
    CollocationStep,
    Factors,
    Method,
    StageValues,
    factors,
    improved,
    linearized,
    relative_change,
    tableau,
    thresholds,
)
from jaxmbd.numerics.sparse_lu import Complex, Structure


class AtState(NamedTuple):
    """What a step needs of the motion at a state: the equations, the right-hand side `rates(t, (q, v, z))`, the parts
    `(q, v, z)` of the state, with quadratures behind the states of parts, and those behind them: what stays as it is,
    then what is selected anew after each step by `selected(t, q)`, and the step before.
    """

    equations: Equations
    rates: Rates
    motion: tuple[Array, Array, Array]
    constant: list[Array]
    selected: Callable[[Array, Array], list[Array]]
    tolerance: Array


At: TypeAlias = Callable[[Any, Any, Array, Array], AtState]  # of `(given, static, t, y)`


@dataclass(frozen=True)
class CollocationInLoop(ImplicitMethod):
    """A collocation `method`, how many numbers the state has before the last step, the sizes of
    coordinates, speeds, states of parts and multipliers, and what unpacks a state."""

    method: Method
    before: int
    sizes: tuple[int, int, int, int]
    at: At

    @property
    def stages(self) -> int:
        """The number of stages."""
        return self.method.stages

    @property
    def last(self) -> int:
        """How many numbers describe the last step."""
        _, v, z, m = self.sizes
        return 1 + self.stages * (v + z) + m

    def start(self, dtype: np.dtype) -> Array:
        """The last step, where there is none."""
        return jnp.zeros(self.last, dtype).at[0].set(1.0)

    def structure_of(self, mask: np.ndarray) -> Structure:
        """The structure of the matrices of Newton's method, from the mask of one."""
        _, v, z, m = self.sizes
        return Structure(mask, (z, v, m))

    def functions(
        self, structure: Callable[[Callable[..., Array], Unknowns], list[np.ndarray] | None]
    ) -> ImplicitFunctions | None:
        masks = structure(self.matrix, self.unknowns())
        if masks is None:
            return None
        found = self.structure_of(np.asarray(masks[0].any(axis=0)))
        linearize, iterate, reach = (partial(f, self, found) for f in (_linearize, _iterate, _reach))
        return ImplicitFunctions(
            partial(_guess, self), linearize, iterate, reach, partial(_tableau, self.method), self.unknowns(found),
            self.stages + 1,
        )  # fmt: skip

    def unknowns(self, structure: Structure | None = None) -> Unknowns:
        """How many unknowns there are, and numbers of factors."""
        ends = np.cumsum([self.stages * size for size in self.sizes]).tolist()
        return Unknowns(
            ends[-1], 0 if structure is None else tableau(self.method).factors * structure.entries, tuple(ends)
        )

    def matrix(self, given: Any, static: Any, t: Array, w: Array) -> Array:
        """The real and the imaginary part of a matrix of Newton's method, for its structure."""
        step, _, _, stages, _ = self._step(given, static, t, w, None)
        value = complex(tableau(self.method).values[-1])
        matrix = linearized(step, stages).matrix(value if self.stages > 1 else value.real, step.h)
        return jnp.stack([part for part in matrix if part is not None])

    def _step(
        self, given: Any, static: Any, t: Array, w: Array, structure: Structure | None
    ) -> tuple[CollocationStep, AtState, LastStep, StageValues, Factors]:
        """The step that a workspace describes: with the state, the step before, the unknowns and the factors."""
        unknowns = self.unknowns(structure)
        y, h, U, F, _ = unknowns.split(w, self.before + self.last)
        at, (_, v, z, _) = self.at(given, static, t, y), self.sizes
        q, speeds, integrated = at.motion
        step = CollocationStep(at.equations, t, h, q, speeds, integrated[:z] if z else None, self.method)
        h, a, zdot, lam = jnp.split(frozen(at.constant[-1]), np.cumsum([1, self.stages * v, self.stages * z]).tolist())
        rows = lambda x: x.reshape(self.stages, -1)  # noqa: E731
        before = LastStep(h[0], rows(a), rows(zdot) if z else None, lam)
        parts = [rows(x) if x.size else jnp.zeros((self.stages, 0), x.dtype) for x in jnp.split(U, unknowns.ends[:-1])]
        stages = StageValues(parts[0], parts[1], parts[2] if z else None, parts[3])
        return step, at, before, stages, [] if structure is None or not len(F) else self._factors(F, structure)

    def _factors(self, F: Array, structure: Structure) -> Factors:
        pieces = frozen(F).reshape(-1, structure.entries)
        return [Complex(pieces[0]), *(Complex(pieces[k], pieces[k + 1]) for k in range(1, len(pieces), 2))]


def _flat(stages: StageValues) -> Array:
    parts = stages.q, stages.v, *([] if stages.z is None else [stages.z]), stages.lam
    return jnp.concatenate([x.reshape(-1) for x in parts])


def _guess(method: CollocationInLoop, given: Any, static: Any, t: Array, w: Array) -> Array:
    step, _, before, _, _ = method._step(given, static, t, w, None)
    return _flat(before.guess(step))


def _linearize(method: CollocationInLoop, structure: Structure, given: Any, static: Any, t: Array, w: Array) -> Array:
    step, _, _, stages, _ = method._step(given, static, t, w, structure)
    found = factors(linearized(step, stages), step, structure)
    return jnp.concatenate([part for factor in found for part in factor if part is not None])


def _iterate(method: CollocationInLoop, structure: Structure, given: Any, static: Any, t: Array, w: Array) -> Array:
    step, at, _, old, found = method._step(given, static, t, w, structure)
    new = improved(step, old, found, structure)
    sizes = relative_change(*frozen((step, new, old))), *thresholds(frozen(at.tolerance), w.dtype.itemsize)
    return jnp.concatenate([_flat(new), jnp.stack(sizes)])


def _reach(method: CollocationInLoop, structure: Structure, given: Any, static: Any, t: Array, w: Array) -> Array:
    step, at, _, stages, found = method._step(given, static, t, w, structure)
    end = StepEnd.of(step, stages, found, structure, at.rates, at.motion[2][method.sizes[2] :])
    slopes, more = (jnp.concatenate(x, axis=-1) for x in (end.slopes, end.more))
    start, y = jnp.concatenate(at.motion), jnp.concatenate(end.y)
    weights = step.as_array(step.tableau.weights)
    projection = (y - start) / step.h - weights @ slopes
    rows = [slopes, more[None] / step.h, projection[None]]
    selected = frozen(at.selected(*frozen((t + step.h, end.y[0]))))
    constant = [*at.constant[: len(at.constant) - 1 - len(selected)], *selected]
    last = end.last
    parts = [last.h[None], last.a.reshape(-1), *([] if last.zdot is None else [last.zdot.reshape(-1)]), last.lam]
    return jnp.concatenate([*(x.reshape(-1) for x in rows), y, *constant, frozen(jnp.concatenate(parts))])


def _tableau(kind: Method) -> Tableau:
    """The method for the loop: slopes at the nodes, then that of the error and that of the projection at the end."""
    method, stages, all_slopes = tableau(kind), kind.stages, kind.stages + 2
    weights = np.zeros((all_slopes, DEGREE + 1))  # of powers of θ, the highest one first
    powers = DEGREE - np.arange(1, stages + 1)
    weights[:stages, powers] = method.integrals.T
    weights[stages, DEGREE - np.arange(1, stages + 2)] = method.bump
    weights[stages + 1, DEGREE - 1] = 1.0
    end, error = np.zeros(all_slopes), np.zeros(all_slopes)
    end[:stages], error[stages] = method.weights, 1 / method.values[0].real
    end[stages + 1] = 1.0
    parts = np.zeros((all_slopes, all_slopes)), end, [*method.nodes, 0.0, 1.0], error, weights
    return Tableau(np.concatenate([np.ravel(np.asarray(x, float)) for x in parts]), all_slopes, False, True)
