"""jaxmbd: multibody dynamics of mechanisms, differentiable from end to end.

Parts of mechanisms are in `jaxmbd.planar` and `jaxmbd.spatial`; analyses and results are here. `__init__.pyi` lists all
names; each is imported when it is used first.
"""

from importlib.metadata import PackageNotFoundError, version

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

try:
    __version__ = version("jaxmbd")
except PackageNotFoundError:
    __version__ = "0+unknown"
