"""Files: models as TOML text, motions and fits as NetCDF; MJCF, URDF, SDF and ASMT files as mechanisms, and back; FMUs.

`jaxmbd.save`, `jaxmbd.load`, `jaxmbd.export_fmu`, `jaxmbd.import_fmu`, `jaxmbd.export_c` and `jaxmbd.load_state` are
exported at the top.
"""

from jaxmbd.io._files import load as load
from jaxmbd.io._files import load_state as load_state
from jaxmbd.io._files import read_model as read_model
from jaxmbd.io._files import save as save
from jaxmbd.io._imported_model import ImportedModel as ImportedModel
from jaxmbd.io._imported_model import Remark as Remark
from jaxmbd.io._read import SUFFIXES as SUFFIXES
from jaxmbd.io._read import read as read
from jaxmbd.io.fmu.export import export_fmu as export_fmu
from jaxmbd.io.fmu.imported import import_fmu as import_fmu
from jaxmbd.io.fmu.single_file import export_c as export_c
from jaxmbd.io.fmu.unit import FmuDescription as FmuDescription
from jaxmbd.io.fmu.unit import read_fmu as read_fmu
from jaxmbd.io.mjcf.write import write_mjcf as write_mjcf
from jaxmbd.io.urdf.write import write_urdf as write_urdf
