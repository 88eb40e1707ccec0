"""jaxmbd: multibody dynamics of mechanisms, differentiable from end to end.

Parts of mechanisms are in `jaxmbd.planar` and `jaxmbd.spatial`; analyses and results are here. `__init__.pyi` lists all
names; each is imported when it is used first.
"""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import lazy_loader

from jaxmbd.garbage import collecting_nothing, count_as_old

_MODULES = ("planar", "spatial", "identification", "sweeps", "optimal_design")  # what users may take for names here

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

try:
    __version__ = version("jaxmbd")
except PackageNotFoundError:
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import a name, once: its modules make a million objects, which nearly all stay."""
    with collecting_nothing():
        try:
            globals()[name] = value = _imported(name)  # not all versions of lazy_loader keep it here
            return value
        except AttributeError as error:
            if name.startswith("_"):
                raise
            hint = ""
            if find_spec(f"jaxmbd.{name}"):  # `from jaxmbd import plot` asks here first, and then imports the module
                hint = f" It is a module: from jaxmbd import {name}."
            elif homes := [f"jaxmbd.{module}.{name}" for module in _MODULES if name in dir(_imported(module))]:
                hint = f" There is {' and '.join(homes)}."
            raise AttributeError(f"jaxmbd has no attribute {name!r}.{hint}") from error
        finally:
            count_as_old()
