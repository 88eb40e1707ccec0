"""The linear least-squares problem of one step, `min |r + J δ|² + λ |D δ|²`, by blocks.

The residuals of an experiment depend on the shared parameters and on its own unknowns alone; if it is cut into
segments, a segment has unknowns, and the conditions that the segments join depend on those of two neighbours:

    J = [ S₁  O₁         ]
        [ L₁  N₁  −E     ]     S: shared parameters; O: own unknowns of each segment
        [ S₂      O₂     ]     L, N, E: conditions that a segment ends where the next one starts
        [ ⋮           ⋱  ]

Orthogonal transformations eliminate the own unknowns one segment after another (Golub and Plemmons, Linear Algebra
Appl. 34 (1980); for chains this is the square root information filter); what is left is a small problem for the shared
parameters. The cost grows linearly with the number of segments, and no product `JᵀJ` squares the condition.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float


class Step(NamedTuple):
    """Changes of the unknowns: `shared (p,)`, and `own`, for each stack `(segments, s)`."""

    shared: np.ndarray
    own: tuple[np.ndarray, ...]

    def flat(self) -> np.ndarray:
        """Return all numbers, the shared ones first, then stack by stack and segment by segment."""
        return np.concatenate([self.shared, *(x.ravel() for x in self.own)])


_LARGEST = float(np.finfo(float).max) ** 0.5 * 1e-6  # the squares of so many residuals as fit into memory have a sum


@dataclass(frozen=True)
class Block:
    """The rows of a stack: columns own, next, shared, residual.

    `whole (lanes, k, s + s + p + 1)`, of measurements; `priors (lanes, k, s + s + p + 1)`, of own parameters; `links`,
    of the conditions that a segment ends where the next one starts, zero for the last one of each experiment (`None`
    with one segment, which has no columns `next`); `segments`: their number in each experiment.
    """

    whole: Float[np.ndarray, "_ _ _"]
    priors: Float[np.ndarray, "_ _ _"]
    links: Float[np.ndarray, "_ _ _"] | None
    segments: int
    own: int

    @cached_property
    def rows(self) -> Float[np.ndarray, "_ _ _"]:
        """At most as many rows of measurements as columns, with the same `JᵀJ`, `Jᵀr` and `|r|`."""
        return _triangle(self.whole) if np.isfinite(self.whole).all() else self.whole

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        """All rows: measurements, own priors, conditions between segments."""
        return (self.rows, self.priors) if self.links is None else (self.rows, self.priors, self.links)

    @property
    def width(self) -> int:
        """The number of columns of one lane's own unknowns and the next one's."""
        return self.own if self.links is None else 2 * self.own

    def unknowns(self, step: Step, own: np.ndarray) -> np.ndarray:
        """Return the numbers that multiply the columns of each lane."""
        shared = np.broadcast_to(step.shared, (len(own), len(step.shared)))
        return np.concatenate([own, *(() if self.links is None else (self.later(own),)), shared], axis=1)

    def later(self, own: np.ndarray) -> np.ndarray:
        """Return the own numbers of each lane's next one; zero for the last lane of an experiment."""
        chains = own.reshape(-1, self.segments, self.own)
        return np.concatenate([chains[:, 1:], np.zeros_like(chains[:, :1])], axis=1).reshape(own.shape)

    def gathered(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sums over lanes, of numbers for each column `(lanes, columns)`: own `(lanes, s)` and shared `(p,)`."""
        own = columns[:, : self.own].copy()
        if self.links is not None:
            chains, later = (x.reshape(-1, self.segments, self.own) for x in (own, columns[:, self.own : self.width]))
            chains[:, 1:] += later[:, :-1]
            own = chains.reshape(own.shape)
        return own, columns[:, self.width :].sum(axis=0)


@dataclass(frozen=True)
class Linearised:
    """Residuals and their Jacobian.

    `stacks`: the rows of each stack; `priors`: rows for the shared parameters alone, `(rows, p + 1)`.
    """

    stacks: tuple[Block, ...]
    priors: Float[np.ndarray, "_ _"]

    @property
    def shared(self) -> int:
        """The number of shared unknowns."""
        return self.priors.shape[1] - 1

    @property
    def loss(self) -> float:
        """Half the sum of the squares of the residuals."""
        return 0.5 * float(sum(np.sum(R[..., -1] ** 2) for R in self._rows()))

    @property
    def is_finite(self) -> bool:
        """True if all residuals and derivatives are finite, and so are sums of their squares."""
        return all((np.abs(R) < _LARGEST).all() for R in self._rows())

    def _rows(self) -> tuple[np.ndarray, ...]:
        return (*(R for block in self.stacks for R in block.parts), self.priors)

    def gradient(self) -> Step:
        """Return the derivative of the loss, `Jᵀ r`."""
        return self._summed(lambda R: np.einsum("...rk,...r->...k", R[..., :-1], R[..., -1]), links=True)

    def norms(self) -> Step:
        """Return the lengths of the columns of the Jacobian, without the conditions between segments.

        With their large weights the damping would hinder every change, also those that keep the conditions.
        """
        squares = self._summed(lambda R: np.sum(R[..., :-1] ** 2, axis=-2), links=False)
        return Step(np.sqrt(squares.shared), tuple(np.sqrt(own) for own in squares.own))

    def _summed(self, of: Callable[[np.ndarray], np.ndarray], links: bool) -> Step:
        """Sums over all rows, with or without the conditions between segments, of a number for each column."""
        shared, own = of(self.priors), []
        for block in self.stacks:
            mine, ours = block.gathered(np.sum([of(R) for R in block.parts[: 3 if links else 2]], axis=0))
            own.append(mine)
            shared = shared + ours
        return Step(shared, tuple(own))

    def predicted(self, step: Step) -> float:
        """Return the loss after a step if the residuals were linear."""
        total = np.sum((self.priors[:, :-1] @ step.shared + self.priors[:, -1]) ** 2)
        for block, own in zip(self.stacks, step.own, strict=True):
            whole = block.unknowns(step, own)
            total += sum(np.sum((np.einsum("erk,ek->er", R[..., :-1], whole) + R[..., -1]) ** 2) for R in block.parts)
        return 0.5 * float(total)

    def bent(self, before: "Linearised", step: Step) -> "Linearised":
        """Return the same Jacobian with the residuals `(J − J_before) step`: with `J_before` a step earlier, they are
        the second derivatives of the residuals along that step and this one."""
        blocks = []
        for new, old, own in zip(self.stacks, before.stacks, step.own, strict=True):
            x = new.unknowns(step, own)[..., None]
            whole, priors, *links = (
                np.concatenate([R[..., :-1], (R[..., :-1] - S[..., :-1]) @ x], axis=-1)
                for R, S in zip((new.whole, *new.parts[1:]), (old.whole, *old.parts[1:]), strict=True)
            )
            blocks.append(Block(whole, priors, links[0] if links else None, new.segments, new.own))
        second = (self.priors[:, :-1] - before.priors[:, :-1]) @ step.shared
        return Linearised(tuple(blocks), np.column_stack([self.priors[:, :-1], second]))

    def condensed(self) -> "Linearised":
        """Return the rows in the own unknowns of the first segments alone, where segments join without jumps."""
        return Linearised(tuple(map(_condensed, self.stacks)), self.priors)

    def minus(self, other: "Linearised") -> "Linearised":
        """Return the differences of residuals and Jacobians, row by row."""
        blocks = []
        for one, two in zip(self.stacks, other.stacks, strict=True):
            links = None if one.links is None or two.links is None else one.links - two.links
            blocks.append(Block(one.whole - two.whole, one.priors - two.priors, links, one.segments, one.own))
        return Linearised(tuple(blocks), self.priors - other.priors)

    def solved(self, damping: float, scale: Step, is_fixed: Step) -> Step:
        """Return the step of least damped loss; unknowns that are fixed do not change.

        **Arguments:** `scale`, the positive diagonal of `D`; `is_fixed`, True for each unknown that keeps its value.
        """
        p, root = self.shared, np.sqrt(damping)
        kept = self.priors.copy()
        kept[:, :-1][:, is_fixed.shared] = 0.0
        rest = [kept, np.column_stack([np.diag(np.where(is_fixed.shared, 1.0, root * scale.shared)), np.zeros(p)])]
        eliminated = []
        for block, d, fixed in zip(self.stacks, scale.own, is_fixed.own, strict=True):
            triangles, left = _eliminated(block, np.where(fixed, 1.0, root * d), fixed, is_fixed.shared)
            eliminated.append(triangles)
            rest.append(left.reshape(-1, p + 1))
        shared = _least_squares(np.concatenate(rest), p)
        own = tuple(
            _substituted(block, triangles, shared) for block, triangles in zip(self.stacks, eliminated, strict=True)
        )
        return Step(shared, own)


def _condensed(block: Block) -> Block:
    """The rows of a stack in the own unknowns of the first segments alone.

    Where a segment ends at the start of the next one, `x_{k+1} = N_k x_k + L_k p`, so that the unknowns of each segment
    are linear functions `x_k = A_k x_0 + B_k p`.
    """
    if block.links is None:
        return block
    s, width = block.own, block.width
    rows, links = (x.reshape(-1, block.segments, *x.shape[1:]) for x in (block.whole, block.links))
    count, shared = len(rows), rows.shape[3] - 1 - width
    by_next = links[0, 0, :, s:width]  # of each condition by the next segment's unknowns: minus one over its deviation
    deviation = -1 / np.diagonal(by_next)[:, None]
    a, b = np.broadcast_to(np.eye(s), (count, s, s)), np.zeros((count, s, shared))
    parts = []
    for k in range(block.segments):
        mine, ours = rows[:, k, :, :s], rows[:, k, :, width:-1]
        parts.append(np.concatenate([mine @ a, mine @ b + ours, rows[:, k, :, -1:]], axis=2))
        own, common = deviation * links[:, k, :, :s], deviation * links[:, k, :, width:-1]
        a, b = own @ a, own @ b + common
    nothing = np.zeros((count, 0, s + shared + 1))  # an experiment that is cut has no own parameters
    return Block(np.concatenate(parts, axis=1), nothing, None, 1, s)


def _eliminated(
    block: Block, damping: np.ndarray, fixed: np.ndarray, shared_fixed: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray]:
    """Eliminate the own unknowns of a stack, one segment after another, side by side for all experiments.

    **Returns:** for each segment the triangles `[own next shared r]`, and the rows that are left, `[shared r]`.
    """
    s, width = block.own, block.width
    columns = np.concatenate(
        [fixed, *(() if block.links is None else (block.later(fixed.astype(float)) != 0,))], axis=1
    )
    free = np.concatenate([~columns, np.broadcast_to(~shared_fixed, (len(fixed), len(shared_fixed)))], axis=1)
    rows = np.concatenate(block.parts, axis=1)
    rows[..., :-1] *= free[:, None, :]
    damped = np.zeros((len(rows), s, rows.shape[2]))
    damped[:, np.arange(s), np.arange(s)] = damping
    rows = np.concatenate([rows, damped], axis=1)
    chains = rows.reshape(-1, block.segments, *rows.shape[1:])
    carried = np.zeros((len(chains), 0, rows.shape[2]))
    triangles: list[np.ndarray] = []
    for k in range(block.segments):
        triangle = _triangle(np.concatenate([carried, chains[:, k]], axis=1))
        triangles.append(triangle[:, :s])
        carried = triangle[:, s:].copy()
        if block.links is not None:  # the next segment's unknowns become the own ones
            carried[..., :s], carried[..., s:width] = triangle[:, s:, s:width], 0.0
    return triangles, carried[..., width:]


def _substituted(block: Block, triangles: list[np.ndarray], shared: np.ndarray) -> np.ndarray:
    """The own unknowns of a stack, from the last segment to the first one."""
    s, width = block.own, block.width
    if not s:
        return np.zeros((len(block.rows), 0))
    own: list[np.ndarray] = []
    for triangle in reversed(triangles):
        right = -(triangle[:, :, -1] + triangle[:, :, width:-1] @ shared)
        if own:
            right -= np.einsum("ers,es->er", triangle[:, :, s:width], own[-1])
        own.append(np.linalg.solve(triangle[:, :, :s], right[..., None])[..., 0])
    return np.stack(own[::-1], axis=1).reshape(-1, s)


def _least_squares(rows: Float[np.ndarray, "rows columns"], unknowns: int) -> Float[np.ndarray, " unknowns"]:
    """The solution of `min |A x + b|`, with `[A b]` as rows, for a matrix of full rank."""
    if not unknowns:
        return np.zeros(0)
    R = _triangle(rows)
    return scipy.linalg.solve_triangular(R[:unknowns, :unknowns], -R[:unknowns, -1])


def _triangle(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.qr(rows, mode="r"))
