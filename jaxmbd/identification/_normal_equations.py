"""The linear least-squares problem of one step, `min |r + J δ|² + λ |D δ|²`, by blocks.

The residuals of an experiment depend on the shared parameters and on its own unknowns alone:

    J = [ S₁  O₁           ]
        [ S₂      O₂       ]     S: shared parameters; O: own unknowns of each experiment
        [ ⋮            ⋱   ]

An orthogonal transformation of each block row eliminates the own unknowns (Golub and Plemmons, Linear Algebra Appl. 34
(1980)); what is left of all blocks is a small problem for the shared parameters. The cost grows linearly with the
number of experiments, and no product `JᵀJ` squares the condition.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import solve_triangular


class Step(NamedTuple):
    """Changes of the unknowns: `shared (p,)`, and `own`, for each stack `(experiments, s)`."""

    shared: np.ndarray
    own: tuple[np.ndarray, ...]

    def flat(self) -> np.ndarray:
        """Return all numbers, the shared ones first, then stack by stack and experiment by experiment."""
        return np.concatenate([self.shared, *(x.ravel() for x in self.own)])


@dataclass(frozen=True)
class Linearised:
    """Residuals and their Jacobian, each block reduced to a triangle `[O S r]`.

    `stacks`: for each stack `(experiments, rows, s + p + 1)`; `priors`: rows for the shared parameters alone,
    `(rows, p + 1)`.
    """

    stacks: tuple[Float[np.ndarray, "_ _ _"], ...]
    priors: Float[np.ndarray, "_ _"]

    @property
    def shared(self) -> int:
        """The number of shared unknowns."""
        return self.priors.shape[1] - 1

    @property
    def loss(self) -> float:
        """Half the sum of the squares of the residuals."""
        return 0.5 * float(sum(np.sum(R[..., -1] ** 2) for R in (*self.stacks, self.priors)))

    @property
    def is_finite(self) -> bool:
        """True if all residuals and derivatives are finite."""
        return all(np.isfinite(R).all() for R in (*self.stacks, self.priors))

    def gradient(self) -> Step:
        """Return the derivative of the loss, `Jᵀ r`."""
        p = self.shared
        products = [np.einsum("erk,er->ek", R[..., :-1], R[..., -1]) for R in self.stacks]
        shared = self.priors[:, :-1].T @ self.priors[:, -1]
        shared = shared + sum((g[:, g.shape[1] - p :].sum(axis=0) for g in products), np.zeros(p))
        return Step(shared, tuple(g[:, : g.shape[1] - p] for g in products))

    def norms(self) -> Step:
        """Return the lengths of the columns of the Jacobian."""
        p = self.shared
        squares = [np.sum(R[..., :-1] ** 2, axis=1) for R in self.stacks]
        shared = np.sum(self.priors[:, :-1] ** 2, axis=0)
        shared = shared + sum((x[:, x.shape[1] - p :].sum(axis=0) for x in squares), np.zeros(p))
        return Step(np.sqrt(shared), tuple(np.sqrt(x[:, : x.shape[1] - p]) for x in squares))

    def predicted(self, step: Step) -> float:
        """Return the loss after a step if the residuals were linear."""
        total = np.sum((self.priors[:, :-1] @ step.shared + self.priors[:, -1]) ** 2)
        for R, own in zip(self.stacks, step.own, strict=True):
            whole = np.concatenate([own, np.broadcast_to(step.shared, (len(own), self.shared))], axis=1)
            total += np.sum((np.einsum("erk,ek->er", R[..., :-1], whole) + R[..., -1]) ** 2)
        return 0.5 * float(total)

    def solved(self, damping: float, scale: Step, is_fixed: Step) -> Step:
        """Return the step of least damped loss; unknowns that are fixed do not change.

        **Arguments:** `scale`, the positive diagonal of `D`; `is_fixed`, True for each unknown that keeps its value.
        """
        p, root = self.shared, np.sqrt(damping)
        kept = self.priors.copy()
        kept[:, :-1][:, is_fixed.shared] = 0.0
        rest = [kept, np.column_stack([np.diag(np.where(is_fixed.shared, 1.0, root * scale.shared)), np.zeros(p)])]
        eliminated = []
        for R, d, fixed in zip(self.stacks, scale.own, is_fixed.own, strict=True):
            s = d.shape[1]
            blocks = R.copy()
            blocks[..., :s] *= ~fixed[:, None, :]
            blocks[..., s:-1] *= ~is_fixed.shared
            rows = np.zeros((len(R), s, R.shape[2]))
            rows[:, np.arange(s), np.arange(s)] = np.where(fixed, 1.0, root * d)
            triangle = _triangle(np.concatenate([blocks, rows], axis=1))
            eliminated.append(triangle[:, :s])
            rest.append(triangle[:, s:, s:].reshape(-1, p + 1))
        shared = _least_squares(np.concatenate(rest), p)
        own = []
        for triangle in eliminated:
            s = triangle.shape[1]
            right = -(triangle[:, :, -1] + triangle[:, :, s:-1] @ shared)
            own.append(np.linalg.solve(triangle[:, :, :s], right[..., None])[..., 0] if s else right)
        return Step(shared, tuple(own))


def _least_squares(rows: Float[np.ndarray, "rows columns"], unknowns: int) -> Float[np.ndarray, " unknowns"]:
    """The solution of `min |A x + b|`, with `[A b]` as rows, for a matrix of full rank."""
    if not unknowns:
        return np.zeros(0)
    R = _triangle(rows)
    return solve_triangular(R[:unknowns, :unknowns], -R[:unknowns, -1])


def reduced(blocks: Float[np.ndarray, "experiments rows columns"]) -> Float[np.ndarray, "experiments few columns"]:
    """Return blocks `[J r]` of at most as many rows as columns, with the same `JᵀJ`, `Jᵀr` and `|r|`."""
    if not np.isfinite(blocks).all():
        return blocks
    return _triangle(blocks)


def _triangle(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.qr(rows, mode="r"))


def fixed_at_bounds(
    u: np.ndarray, gradient: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> Bool[np.ndarray, " n"]:
    """Return True for unknowns at a bound that the loss would push across it."""
    return ((u <= lower) & (gradient > 0)) | ((u >= upper) & (gradient < 0))
