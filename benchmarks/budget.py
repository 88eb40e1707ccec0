"""What larger sizes will take, judged by smaller ones, so that hopeless ones are left out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

UNKNOWN = {"prepare": 0.5, "run": 2.0}  # powers of N that are expected after a single size
STEEPEST = {"prepare": 2.0, "run": 3.0}


@dataclass
class Growth:
    """The seconds that preparing (building, compiling) and one run took, by size, and the power that both grow with."""

    seen: list[tuple[int, float, float]] = field(default_factory=list)

    def add(self, n: int, prepare: float, run: float) -> None:
        """Remember what a size took."""
        self.seen.append((n, prepare, run))

    def predicted(self, n: int) -> float:
        """Seconds that preparing and one run of a larger size will take; as steep as between the last two sizes."""
        if not self.seen:
            return 0.0
        return sum(self._one(n, column, what) for column, what in enumerate(("prepare", "run"), 1))

    def _one(self, n: int, column: int, what: str) -> float:
        last, power = self.seen[-1], UNKNOWN[what]
        if len(self.seen) > 1:
            before = self.seen[-2]
            power = np.log(last[column] / before[column]) / np.log(last[0] / before[0])
        return float(last[column] * (n / last[0]) ** np.clip(power, 0.0, STEEPEST[what]))


@dataclass
class Budget:
    """Seconds that a workload may take in all."""

    seconds: float
    clock: Callable[[], float] = time.perf_counter
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self.seconds - (self.clock() - self.started)

    def refusal(self, predicted: float, limit: float) -> str:
        """Why something that will take so long is left out, or nothing; `limit` is for it alone."""
        if predicted <= min(limit, self.left):
            return ""
        return f"left out, {predicted:.0f} s predicted" if predicted > limit else "left out, the workload's time is up"
