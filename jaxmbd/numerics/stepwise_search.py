"""The Levenberg-Marquardt method with bounds, as a search that asks for one linearisation after another.

The step solves the damped linear problem in the scale of the columns (Moré, in *Numerical Analysis*, Lecture Notes in
Mathematics 630 (1978)); unknowns at a bound that the loss pushes outward are fixed, and the step is projected onto the
bounds. All unknowns have sizes near one: one whose column is as short as the rounding of the others has no effect and
keeps its value.

Where data determine a combination of unknowns much better than each of them, the loss has a narrow curved valley. A
step bends along it by the geodesic acceleration `a = −J⁺ r''(δ, δ)` (Transtrum and Sethna, arXiv:1201.5885 (2012)); the
second derivative comes from the Jacobians before and after the last step, if this one goes the same way.

A search is a generator, so that several of them can run side by side, with one compiled evaluation for all.
"""

from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool

from jaxmbd.numerics.block_least_squares import Linearised, Step
from jaxmbd.numerics.levenberg_marquardt import GROWTH, LARGEST_DAMPING, held, judged

USED_UP = "steps used up"
CONVERGED = "converged"
NO_STEP = "no step, however short, can be simulated"
STUCK = "no step, however short, reduces the loss"

_FIRST_DAMPING = 1e-2
_SHORT = 1e3  # damping at which a step is so short that its small reduction of the loss proves nothing
_LEAST_DAMPING = 1e-11  # directions that the data do not determine stay where they are, but for rounding
_TOLD = 1e-9  # damping below which a direction says nothing of how far a search is: its derivative is rounding
_SILENT = 1e-12  # share of the longest column of the Jacobian: a shorter one is rounding
_SAME_WAY = 0.7  # the least cosine of the angle to the last step, in the scale of the columns, for a bent step
_BENT = 0.75  # the largest acceleration, relative to the step
_ROUNDING = 1e-14  # length of a step relative to the unknowns, in the scale of the columns, that counts as none
_EXACT = 1e-6  # change of the residuals by an undamped step, as a share of that by all unknowns, that is rounding
_NOISE = 1e-6  # a step may still reduce the loss by this share of the residuals' variance: 1/700 of a standard error

Flat = np.ndarray
Search = Generator[Flat, "Linearised | None", "SearchEnd"]


@dataclass
class SearchState:
    """What a search goes on from: unknowns, damping and history. It is what a checkpoint stores."""

    u: Flat
    damping: float = _FIRST_DAMPING
    growth: float = GROWTH
    history: list[float] = field(default_factory=list)


@dataclass
class SearchEnd:
    """The end of a search: the unknowns, the linearisation there, and the reason for which it stopped."""

    u: Flat
    linearised: Linearised | None
    history: list[float]
    outcome: str
    reason: str = ""


def search(
    state: SearchState, lower: Flat, upper: Flat, shapes: Step, samples: int, steps: int, tolerance: float
) -> Search:
    """Minimise the loss; yields unknowns and gets the linearisation there, `None` if the mechanism cannot be computed.

    **Arguments:** `lower`, `upper`: the bounds of the unknowns; `shapes`: a `Step` of the right shapes; `samples`: the
    number of measured numbers; `tolerance`: relative, on the reduction of the loss and on the gradient.
    """
    state.u = np.clip(state.u, lower, upper)
    at = yield state.u
    if at is None or not at.is_finite:
        return SearchEnd(state.u, None, state.history, "the start cannot be simulated")
    there, scale, last = at, np.zeros_like(state.u), None
    for _ in range(steps):
        norms = at.norms().flat()
        scale = np.maximum(scale, positive(norms))
        gradient = at.gradient().flat()
        fixed = held(state.u, gradient, lower, upper) | _silent(norms)
        reason = _settled(at, gradient, fixed, scale, shapes, samples, tolerance)
        if reason:
            return SearchEnd(state.u, at, state.history, CONVERGED, reason)
        damped = state.damping, shaped(scale, shapes), shaped(fixed, shapes)
        step = at.solved(*damped).flat()
        bend = np.zeros_like(step) if last is None else _bend(at, *last, step, damped)
        straight = np.clip(state.u + step, lower, upper) - state.u
        trial = np.clip(state.u + step + bend, lower, upper)
        change = trial - state.u
        size = np.linalg.norm(scale * state.u) + _ROUNDING
        if state.damping > LARGEST_DAMPING or np.linalg.norm(scale * change) <= _ROUNDING * size:
            if there is None or not there.is_finite:
                return SearchEnd(state.u, at, state.history, NO_STEP)
            if _undamped_change(at, scale, fixed, shapes) > _EXACT * size:
                return SearchEnd(state.u, at, state.history, STUCK)
            return SearchEnd(state.u, at, state.history, CONVERGED, "a further step is lost in rounding")
        predicted = at.loss - at.predicted(shaped(straight, shapes))
        there = yield trial
        is_short, before = state.damping > _SHORT, at.loss
        actual = np.nan if there is None or not there.is_finite else before - there.loss
        accepted, damping, growth = judged(state.damping, state.growth, actual, predicted, True, np)
        state.damping, state.growth = max(float(damping), _LEAST_DAMPING), float(growth)
        if accepted:
            assert there is not None
            last, state.u, at = (at, change), trial, there
        state.history.append(at.loss)
        if accepted and not is_short and max(actual, predicted) <= tolerance**2 * before:
            return SearchEnd(state.u, at, state.history, CONVERGED, "the loss does not change any more")
    return SearchEnd(state.u, at, state.history, USED_UP)


def _bend(at: Linearised, before: Linearised, last: Flat, step: Flat, damped: tuple[float, Step, Step]) -> Flat:
    """Half the acceleration of a step after the `last` one; zero if it goes another way, or is too large to be true."""
    scale = damped[1].flat()
    lengths = np.linalg.norm(scale * step), np.linalg.norm(scale * last)
    share = np.dot(scale * step, scale * last) / lengths[1] ** 2  # r''(step, step) is near share r''(last, step)
    if not share * lengths[1] >= _SAME_WAY * lengths[0]:
        return np.zeros_like(step)
    acceleration = share * at.bent(before, shaped(step, damped[1])).solved(*damped).flat()
    is_small = 2 * np.linalg.norm(scale * acceleration) <= _BENT * lengths[0]
    return acceleration / 2 if is_small else np.zeros_like(step)


def _settled(
    at: Linearised, gradient: Flat, fixed: Flat, scale: Flat, shapes: Step, samples: int, tolerance: float
) -> str:
    """Why the search may stop here; empty if it may not.

    The residuals are orthogonal to each column of the Jacobian; or an undamped step would reduce the loss by less than
    the noise can tell: by a small share of the variance of the residuals.
    """
    free = np.where(fixed, 0.0, gradient)
    size = np.sqrt(2 * at.loss)
    if size == 0 or np.max(np.abs(free) / scale, initial=0.0) <= tolerance**2 * size:
        return "the residuals are orthogonal to the sensitivities"
    gain = _undamped_change(at, scale, fixed, shapes) ** 2 / 2
    variance = 2 * at.loss / max(samples - int(np.sum(~fixed)), 1)
    return (
        "a further step would change the estimates by less than the noise can tell" if gain <= _NOISE * variance else ""
    )


def _undamped_change(at: Linearised, scale: Flat, fixed: Flat, shapes: Step) -> float:
    """The length of the change of the residuals by a step that is damped in directions of rounding alone: its square is
    twice the reduction of the loss."""
    undamped = at.solved(_TOLD, shaped(scale, shapes), shaped(fixed, shapes))
    return float(np.sqrt(2 * max(at.loss - at.predicted(undamped), 0.0)))


def _silent(norms: Flat) -> Bool[np.ndarray, " n"]:
    """True for unknowns without effect, by the lengths of their columns."""
    return norms <= _SILENT * norms.max(initial=0.0)


def positive(norms: Flat) -> Flat:
    """The scale of the columns; one for those without effect."""
    return np.where(norms > 0, norms, 1.0)


def shaped(flat: Flat, shapes: Step) -> Step:
    p = len(shapes.shared)
    own, at = [], p
    for like in shapes.own:
        own.append(flat[at : at + like.size].reshape(like.shape))
        at += like.size
    return Step(flat[:p], tuple(own))
