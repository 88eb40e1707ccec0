"""The motion whose jerk is white noise, as samples tell it: states, covariances and the likelihood, in linear time.

    d³x/dt³ = w,     samples = (x, ẋ, ẍ) + e,     cov(w) = q δ(t),     cov(e) = diag(variances)

Nothing is known of the state at the beginning, and samples may be missing. The positions of the estimate are the
quintic smoothing spline with p = variance / q, if only positions are measured.

The estimates are not computed sample by sample, which would be a loop in Python, but interval by interval: what the
samples of an interval say of the states at its two ends is one element, two elements side by side are one again, and so
all are joined in log₂ n steps on whole arrays. Nothing is lost where thousands of samples lie within the time in which
the motion changes: the matrices of intervals are as well conditioned as the estimates, while normal equations of all
states have the sixth power of that number as their condition. Where steps are equal, and no sample is missing, the
matrices of one interval serve for all.

Source: Wahba, *Improper priors, spline smoothing and the problem of guarding against model errors in regression*, J. R.
Stat. Soc. B 40 (1978); Kohn and Ansley, *A new algorithm for spline smoothing based on smoothing a stochastic process*,
SIAM J. Sci. Stat. Comput. 8 (1987); Särkkä and García-Fernández, *Temporal parallelization of Bayesian smoothers*, IEEE
Trans. Autom. Control 66 (2021).
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float

_SIGNS = np.array([1.0, -1.0, 1.0])[:, None]  # of value, rate and second rate where time runs backwards


def _product(M: np.ndarray, N: np.ndarray) -> np.ndarray:
    """Products of matrices `(3, 3, n)`, or `(3, 3, 1)` where all are the same."""
    return np.einsum("ij...,jk...->ik...", M, N)


def _applied(M: np.ndarray, v: np.ndarray) -> np.ndarray:
    return M[..., 0] @ v if M.shape[-1] == 1 else np.einsum("ij...,j...->i...", M, v)


def _transposed(M: np.ndarray) -> np.ndarray:
    return M.transpose(1, 0, 2)


def _inverse(M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverses and determinants by cofactors: errors do not depend on the units of the rows and columns."""
    a, b, c = M

    def cross(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.stack([x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]])

    first = cross(b, c)
    determinant = np.sum(a * first, axis=0)
    return np.stack([first, cross(c, a), cross(a, b)], axis=1) / determinant, determinant


@dataclass(frozen=True)
class Intervals:
    """What the samples of intervals say: of the state s at their start and the one e at their end,

        p(e, samples | s) ∝ N(e; A s + b, C) exp(−(sᵀ J s − 2 ηᵀ s + square + log determinant) / 2)

    Matrices are `(3, 3, n)`, or `(3, 3, 1)` where all intervals have the same; vectors are `(3, n)`.
    """

    A: np.ndarray
    b: np.ndarray
    C: np.ndarray
    J: np.ndarray
    eta: np.ndarray
    square: np.ndarray
    log_determinant: np.ndarray

    def __len__(self) -> int:
        return self.b.shape[-1]

    def __getitem__(self, places: slice) -> "Intervals":
        is_one = self.A.shape[-1] == 1
        same = slice(None) if is_one else places
        A, C, J, log_determinant = (x[..., same] for x in (self.A, self.C, self.J, self.log_determinant))
        return Intervals(A, self.b[:, places], C, J, self.eta[:, places], self.square[places], log_determinant)

    def informed(self, J: np.ndarray, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is known of the ends, as what is known of the starts without the samples of the intervals."""
        inverse, _ = _inverse(np.eye(3)[..., None] + _product(self.C, J))
        back = _product(_transposed(self.A), _transposed(inverse))
        return _product(back, _product(J, self.A)), _applied(back, eta - _applied(J, self.b))

    def joined(self, later: "Intervals") -> "Intervals":
        """These intervals, each with the one after it."""
        inverse, determinant = _inverse(np.eye(3)[..., None] + _product(self.C, later.J))
        news = later.eta - _applied(later.J, self.b)
        spread = _product(inverse, self.C)
        shift = _applied(spread, news)
        back = _product(_transposed(self.A), _transposed(inverse))
        C = _product(_product(later.A, spread), _transposed(later.A)) + later.C
        J = _product(back, _product(later.J, self.A)) + self.J
        square = np.sum(self.b * (later.eta + news) + news * shift, axis=0)
        return Intervals(
            A=_product(_product(later.A, inverse), self.A),
            b=_applied(later.A, self.b + shift) + later.b,
            C=(C + _transposed(C)) / 2,
            J=(J + _transposed(J)) / 2,
            eta=_applied(back, news) + self.eta,
            square=self.square + later.square - square,
            log_determinant=self.log_determinant + later.log_determinant + np.log(determinant),
        )

    def whole(self) -> "Intervals":
        """All intervals as one."""
        halves, rest = self, None
        while (count := len(halves)) > 1:
            if count % 2:
                last = halves[count - 1 :]
                rest = last if rest is None else last.joined(rest)
            halves = halves[0 : count - 1 : 2].joined(halves[1::2])
        return halves if rest is None else halves.joined(rest)

    def information(self, J: np.ndarray, eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What is known of the start of each interval by it and all later ones; at the last end, J and η are known."""
        count = len(self)
        known, vectors = np.zeros((3, 3, count)), np.zeros((3, count))
        if count % 2:
            last = self[count - 1 :]
            J, eta = last.informed(J, eta)
            known[..., -1:], vectors[:, -1:] = J, eta = J + last.J, eta + last.eta
            count -= 1
        if count:
            first, second = self[0:count:2], self[1:count:2]
            known[..., :count:2], vectors[:, :count:2] = first.joined(second).information(J, eta)
            J, eta = np.append(known[..., 2:count:2], J, axis=-1), np.append(vectors[:, 2:count:2], eta, axis=-1)
            J, eta = second.informed(J, eta)
            known[..., 1:count:2], vectors[:, 1:count:2] = J + second.J, eta + second.eta
        return known, vectors


@dataclass(frozen=True)
class Path:
    """Samples `(3, n)` of values, rates and second rates, at a distance of `steps`, in units of the mean step.

    `reference (3, n)`: states about which all is computed, so that what is left is of the size of the noise, and
    squares of it are exact to rounding. The levels `(4,)` of a model are the intensity of jerk, and the variances of
    the three kinds of samples.
    """

    steps: Float[np.ndarray, " m"]
    samples: Float[np.ndarray, "3 n"]
    reference: Float[np.ndarray, "3 n"]

    @cached_property
    def is_even(self) -> bool:
        """All steps are equal, and of each kind all samples are there or none: all intervals have the same matrices."""
        seen = np.isfinite(self.samples)
        return bool((self.steps == 1).all() and (seen.all(axis=1) | ~seen.any(axis=1)).all())

    @cached_property
    def count(self) -> int:
        return int(np.isfinite(self.samples).sum())

    @cached_property
    def backwards(self) -> "Path":
        return replace(
            self,
            steps=self.steps[::-1],
            samples=self.samples[:, ::-1] * _SIGNS,
            reference=self.reference[:, ::-1] * _SIGNS,
        )

    def intervals(self, levels: np.ndarray) -> Intervals:
        """Each sample with the step after it; after the last sample any step, at whose end nothing is known."""
        h = np.ones(1) if self.is_even else np.append(self.steps, 1.0)
        one, none = np.ones_like(h), np.zeros_like(h)
        A = np.stack([np.stack([one, h, h**2 / 2]), np.stack([none, one, h]), np.stack([none, none, one])])
        rows = [[h**5 / 20, h**4 / 8, h**3 / 6], [h**4 / 8, h**3 / 3, h**2 / 2], [h**3 / 6, h**2 / 2, h]]
        C = levels[0] * np.stack([np.stack(row) for row in rows])
        seen = np.isfinite(self.samples)
        left = np.where(seen, self.samples - self.reference, 0.0)
        weights = np.where(seen, 1 / levels[1:, None], 0.0)
        b = np.zeros_like(left)
        b[:, :-1] = _applied(A if self.is_even else A[..., :-1], self.reference[:, :-1]) - self.reference[:, 1:]
        used = weights[:, :1] if self.is_even else weights
        J = np.eye(3)[..., None] * used
        log_determinant = -np.sum(np.log(np.where(used > 0, used, 1.0)), axis=0)
        return Intervals(A, b, C, J, weights * left, np.sum(weights * left**2, axis=0), log_determinant)

    def unlikelihood(self, levels: np.ndarray) -> tuple[float, float]:
        """−2 log of the likelihood: a square, which is divided by a common factor of all levels, and the rest."""
        whole = self.intervals(levels).whole()
        inverse, determinant = _inverse(whole.J)
        square = whole.square[0] - whole.eta[:, 0] @ inverse[..., 0] @ whole.eta[:, 0]
        return float(square), float(whole.log_determinant[0] + np.log(determinant[0]))

    def smoothed(self, levels: np.ndarray) -> tuple[Float[np.ndarray, "3 n"], Float[np.ndarray, "3 3 n"]]:
        """The states at the samples and their covariances."""
        nothing = np.zeros((3, 3, 1)), np.zeros((3, 1))
        J, eta = self.intervals(levels).information(*nothing)
        earlier = self.backwards.intervals(levels)
        known, vectors = earlier.information(*nothing)
        ends = np.append(known[..., 1:], nothing[0], axis=-1), np.append(vectors[:, 1:], nothing[1], axis=-1)
        known, vectors = earlier.informed(*ends)
        J = J + (known * (_SIGNS * _SIGNS.T)[..., None])[..., ::-1]
        covariances, _ = _inverse((J + _transposed(J)) / 2)
        return self.reference + _applied(covariances, eta + vectors[:, ::-1] * _SIGNS), covariances

    def about(self, levels: np.ndarray) -> "Path":
        return replace(self, reference=self.smoothed(levels)[0])
