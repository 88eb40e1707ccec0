"""Work during which Python does not search for garbage: what makes many objects of which nearly all stay."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 100_000  # that a command makes between two searches, in place of some hundreds


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


def search_rarely() -> None:
    """Let Python search for garbage rarely from now on, in a process that ends soon and keeps most of what it makes.

    A command that imports libraries and reads what is on disk spends a seventh of its time on searches otherwise.
    """
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])


def count_as_old() -> None:
    """Let all objects count as found alive, so that the next search need not find that out.

    Nothing happens where someone has frozen objects, which would be thawed.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
