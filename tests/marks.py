"""Which cases of a test are left out of quick runs, or of CI."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def slow_but(quick: Container[str], names: Iterable[str]) -> list[Any]:
    """Cases that are marked slow but for some."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


def in_both_coordinates(kept: str) -> pytest.MarkDecorator:
    """A test of both kinds of coordinates, of which CI runs one."""
    return pytest.mark.parametrize("coordinates", long_but([kept], ["absolute", "joint"]))


def long_but(kept: Container[str], names: Iterable[str]) -> list[Any]:
    """Cases of which CI runs some only."""
    return [name if name in kept else pytest.param(name, marks=pytest.mark.long) for name in names]
