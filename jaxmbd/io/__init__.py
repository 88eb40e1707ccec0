"""Models of other programs: MJCF (MuJoCo), URDF and ASMT (FreeCAD's Assembly workbench) as mechanisms."""

from jaxmbd.io._imported_model import ImportedModel as ImportedModel
from jaxmbd.io._imported_model import Remark as Remark
from jaxmbd.io._read import SUFFIXES as SUFFIXES
from jaxmbd.io._read import read as read
from jaxmbd.io._write_mjcf import write_mjcf as write_mjcf
