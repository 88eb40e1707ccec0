"""What the command line asks for, and what a workload gives back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Say = Callable[[str], None]  # tells the reader what is going on
Record = dict[str, Any]  # one measurement as plain values, ready for JSON


@dataclass(frozen=True)
class Options:
    """The peers that can be run, the problems of work and precision, JAX's device, whether to be quick about it; for
    first calls, how often to repeat them and the git revision to compare with."""

    peers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    device: str = "cpu"
    quick: bool = False
    repeats: int = 5
    before: str = ""
