"""jaxmbd: multibody dynamics of mechanisms, differentiable from end to end.

Parts of mechanisms are in `jaxmbd.planar` and `jaxmbd.spatial`; analyses and results are here. `__init__.pyi` lists all
names; each is imported when it is used first.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

import lazy_loader

from jaxmbd.garbage import collecting_nothing, count_as_old

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

try:
    __version__ = version("jaxmbd")
except PackageNotFoundError:
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import a name: its modules make a million objects, which nearly all stay."""
    with collecting_nothing():
        try:
            return _imported(name)
        finally:
            count_as_old()
