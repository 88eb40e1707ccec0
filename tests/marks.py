"""Which cases of a test `make test` leaves out, and `make test-all` runs."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def slow_but(quick: Container[str], names: Iterable[str]) -> list[Any]:
    """Cases that are marked slow but for some."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def in_both_coordinates(kept: str) -> pytest.MarkDecorator:
    """A test of both kinds of coordinates, of which `make test` runs one."""
    return pytest.mark.parametrize("coordinates", slow_but([kept], ["absolute", "joint"]))
