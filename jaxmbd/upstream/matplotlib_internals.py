"""Everything in matplotlib that this package uses and that matplotlib does not document. It imports none of it."""

from typing import Any


def frame_rate(animation: Any) -> Any:
    """Frames per second of an animation: the interval between them [ms], as it was given, is kept only here."""
    return 1000 / animation._interval
