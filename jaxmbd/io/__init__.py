"""Files: models as TOML text, motions and fits as NetCDF; MJCF, URDF, SDF and ASMT files as mechanisms, and back; FMUs.

`jaxmbd.save`, `jaxmbd.load`, `jaxmbd.export_fmu`, `jaxmbd.import_fmu`, `jaxmbd.export_c` and `jaxmbd.load_state` are
exported at the top.

`__init__.pyi` lists all names; each is imported when it is used first: a model file takes no reader of another format
along.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
