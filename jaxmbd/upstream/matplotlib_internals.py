"""Everything in matplotlib that this package uses and that matplotlib does not document. It imports none of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def frame_rate(animation: Any) -> Any:
    """Frames per second of an animation: the interval between them [ms], as it was given, is kept only here."""
    return 1000 / animation._interval


@contextmanager
def drawn_once(animation: Any) -> Iterator[None]:
    """Draw each frame of an animation that is saved when it is written, and not before it on the canvas as well, which
    nobody sees then: half of the time that a film takes."""
    with animation._fig.canvas._idle_draw_cntx():
        yield
