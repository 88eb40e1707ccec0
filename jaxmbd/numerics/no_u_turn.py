"""The No-U-Turn sampler, which draws from a density in coordinates in which it is nearly the standard normal one.

A draw follows the motion of a unit mass in the potential `−log p(z)` from a normally distributed momentum `y`, forward
and backward, twice as far each time, until it turns back; one of its points is the next sample, by the weights
`exp(log p − ½ y²)`. The mass is the identity.

A chain is a generator, as the search of `stepwise_search.py` is: it asks for the density and its slope at one point
after another, so that several chains share one compiled evaluation, and need no compiled loop.

Sources: Hoffman and Gelman, J. Machine Learning Research 15 (2014), with §3.2 for the step; Betancourt,
arXiv:1701.02434 (2017), app. A, for the weights and the condition of a turn.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

_LOST = 1000.0  # error of the energy from which a motion is taken for diverged, as in Stan
_SHRINKAGE, _DELAY, _DECAY = 0.05, 10, 0.75  # γ, t₀ and κ of Hoffman and Gelman

Vector = Float[np.ndarray, " n"]
Density = tuple[float, Vector]  # the logarithm of the density, and its slope


@dataclass(frozen=True)
class Point:
    """A point of a motion: its place and momentum, and the logarithm of the density and its slope there."""

    z: Vector
    momentum: Vector
    value: float
    slope: Vector

    @property
    def weight(self) -> float:
        """The logarithm of the density of place and momentum."""
        return self.value - 0.5 * float(self.momentum @ self.momentum)


@dataclass(frozen=True)
class _Piece:
    """A piece of a motion: its ends in time, the sum of its momenta, the point that stands for it, the logarithm of its
    weight, whether it has turned, and whether it has diverged."""

    first: Point
    last: Point
    momentum: Vector
    chosen: Point
    weight: float
    turned: bool = False
    diverged: bool = False

    @property
    def has_ended(self) -> bool:
        return self.turned or self.diverged


@dataclass
class Step:
    """The length of a step, adapted so that states are accepted at a rate."""

    first: float
    rate: float
    count: int = 0
    _errors: float = 0.0
    _mean: float = 0.0
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._last = float(np.log(self.first))

    @property
    def now(self) -> float:
        """The length for the next draw of the warm-up."""
        return float(np.exp(self._last))

    @property
    def settled(self) -> float:
        """The length after the warm-up: the mean of those before, of which later ones count more."""
        return float(np.exp(self._mean)) if self.count else self.first

    def adapt(self, acceptance: float) -> None:
        """Take account of the acceptance of one draw."""
        self.count += 1
        share = 1 / (self.count + _DELAY)
        self._errors += share * (self.rate - acceptance - self._errors)
        self._last = float(np.log(10 * self.first)) - np.sqrt(self.count) / _SHRINKAGE * self._errors
        self._mean += self.count**-_DECAY * (self._last - self._mean)


@dataclass
class Chain:
    """A chain: its last sample, with the density there, and its random numbers.

    `samples`: what has been drawn; `divergences`: how many of these motions have diverged.
    """

    z: Vector
    draws: np.random.Generator
    step: Step
    density: Density | None = None
    samples: list[Vector] = field(default_factory=list)
    divergences: int = 0


Asking = Generator[Vector, Density, None]


def sampled(chain: Chain, count: int, doublings: int, step: float | None = None) -> Asking:
    """Draw so many samples.

    **Arguments:** `doublings`: how often a motion is made twice as long at most; `step`: the length of its steps; by
    default that of the chain, which is adapted after each draw, in the warm-up.
    """
    if chain.density is None:
        chain.density = yield chain.z
    for _ in range(count):
        motion = _Motion(chain.draws, step or chain.step.now)
        start = Point(chain.z, chain.draws.normal(size=len(chain.z)), *chain.density)
        whole = yield from _followed(motion, start, doublings)
        chain.z, chain.density = whole.chosen.z, (whole.chosen.value, whole.chosen.slope)
        chain.samples.append(chain.z)
        chain.divergences += whole.diverged
        if step is None:
            chain.step.adapt(motion.acceptance / max(motion.count, 1))


@dataclass
class _Motion:
    """What all pieces of one motion share: random numbers, the length of a step, the weight of its start, and the
    number of its points with the sum of their rates of acceptance."""

    draws: np.random.Generator
    step: float
    start: float = 0.0
    acceptance: float = 0.0
    count: int = 0


Following = Generator[Vector, Density, _Piece]


def _followed(motion: _Motion, start: Point, doublings: int) -> Following:
    """A whole motion through a point."""
    motion.start = start.weight
    whole = _Piece(start, start, start.momentum, start, start.weight)
    for depth in range(doublings):
        forward = bool(motion.draws.random() < 0.5)
        more = yield from _piece(motion, whole.last if forward else whole.first, forward, depth)
        whole = _joined(motion, whole, more, forward, is_progressive=True)
        if whole.has_ended:
            break
    return whole


def _piece(motion: _Motion, end: Point, forward: bool, depth: int) -> Following:
    """The next `2**depth` points of a motion from one of its ends, or fewer if it turns or diverges."""
    if depth == 0:
        point = yield from _stepped(end, motion.step if forward else -motion.step)
        change = point.weight - motion.start
        change = change if np.isfinite(change) else -np.inf
        motion.acceptance += float(np.exp(min(change, 0.0)))
        motion.count += 1
        return _Piece(point, point, point.momentum, point, motion.start + change, diverged=bool(change < -_LOST))
    half = yield from _piece(motion, end, forward, depth - 1)
    if half.has_ended:
        return half
    other = yield from _piece(motion, half.last if forward else half.first, forward, depth - 1)
    return _joined(motion, half, other, forward)


def _stepped(at: Point, step: float) -> Generator[Vector, Density, Point]:
    """The point after a leapfrog step."""
    momentum = at.momentum + 0.5 * step * at.slope
    z = at.z + step * momentum
    value, slope = yield z
    return Point(z, momentum + 0.5 * step * slope, value, slope)


def _joined(motion: _Motion, before: _Piece, more: _Piece, forward: bool, is_progressive: bool = False) -> _Piece:
    """Two pieces as one, `more` being what has been added; one that has ended adds no sample.

    Of two halves each counts by its weight; what is added to a whole motion is preferred, so that samples go far.
    """
    earlier, later = (before, more) if forward else (more, before)
    if more.has_ended:
        momentum, chosen, weight = before.momentum, before.chosen, before.weight
        return _Piece(earlier.first, later.last, momentum, chosen, weight, more.turned, more.diverged)
    weight = float(np.logaddexp(before.weight, more.weight))
    share = more.weight - (before.weight if is_progressive else weight)
    chosen = more.chosen if np.log(motion.draws.random()) < share else before.chosen
    momentum = before.momentum + more.momentum
    # The whole, and each half with the point next to it: motions of a whole period turn between two halves.
    turned = (
        _turns(momentum, earlier.first, later.last)
        or _turns(earlier.momentum + later.first.momentum, earlier.first, later.first)
        or _turns(later.momentum + earlier.last.momentum, earlier.last, later.last)
    )
    return _Piece(earlier.first, later.last, momentum, chosen, weight, turned)


def _turns(way: Vector, first: Point, last: Point) -> bool:
    """True if one of the ends does not move along the way from the first to the last."""
    return float(way @ first.momentum) <= 0 or float(way @ last.momentum) <= 0


def side_by_side(chains: Sequence[Asking]) -> Generator[list[Vector], Sequence[Density], None]:
    """Several chains as one generator, which asks for the densities of all at once: of one that has ended, again where
    it has asked last."""
    asked = [next(chain) for chain in chains]
    running = set(range(len(chains)))
    while running:
        densities = yield asked
        for k in sorted(running):
            try:
                asked[k] = chains[k].send(densities[k])
            except StopIteration:
                running.discard(k)
