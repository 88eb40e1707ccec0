"""Models of other programs as mechanisms: MJCF, URDF and ASMT files; mechanisms as MJCF and URDF files."""

from jaxmbd.io._imported_model import ImportedModel as ImportedModel
from jaxmbd.io._imported_model import Remark as Remark
from jaxmbd.io._read import SUFFIXES as SUFFIXES
from jaxmbd.io._read import read as read
from jaxmbd.io._write_mjcf import write_mjcf as write_mjcf
from jaxmbd.io._write_urdf import write_urdf as write_urdf
