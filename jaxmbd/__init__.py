"""jaxmbd: multibody dynamics of mechanisms, differentiable from end to end.

Parts of mechanisms are in `jaxmbd.planar` and `jaxmbd.spatial`; analyses and results are here. `__init__.pyi` lists all
names; each is imported when it is used first.
"""

import gc
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import lazy_loader

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

try:
    __version__ = version("jaxmbd")
except PackageNotFoundError:
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Import a name. The garbage collector rests meanwhile: modules make a million objects, which nearly all stay.

    Afterwards they count as old, as if it had found them alive; to find that takes it a tenth of a second.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _imported(name)
    finally:
        if was_enabled:
            gc.enable()
            if not gc.get_freeze_count():  # objects that someone else has frozen would be thawed
                gc.freeze()
                gc.unfreeze()
