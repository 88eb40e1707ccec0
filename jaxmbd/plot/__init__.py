"""Pictures and animations of mechanisms with matplotlib; no function opens a window.

`__init__.pyi` lists all names; each is imported when it is used first: a picture of a mechanism takes no fits along.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
