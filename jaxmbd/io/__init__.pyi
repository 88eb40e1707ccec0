"""What `jaxmbd.io` exports: read by type checkers, and by `__init__.py`, which imports each name when it is used."""

from ._files import load as load
from ._files import load_state as load_state
from ._files import read_model as read_model
from ._files import save as save
from ._imported_model import ImportedModel as ImportedModel
from ._imported_model import Remark as Remark
from ._read import SUFFIXES as SUFFIXES
from ._read import read as read
from .fmu.export import export_fmu as export_fmu
from .fmu.imported import import_fmu as import_fmu
from .fmu.single_file import export_c as export_c
from .fmu.unit import FmuDescription as FmuDescription
from .fmu.unit import read_fmu as read_fmu
from .mjcf.write import write_mjcf as write_mjcf
from .urdf.write import write_urdf as write_urdf
