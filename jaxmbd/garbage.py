"""Work during which Python does not search for garbage: what makes many objects of which nearly all stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_nothing() -> Iterator[None]:
    """Pause the search for garbage, which would take a sixth of the time of tracing, a tenth of that of importing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def count_as_old() -> None:
    """Let all objects count as found alive, so that the next search need not find that out.

    Nothing happens where someone has frozen objects, which would be thawed.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
