"""Files: models as TOML text, and motions and fits as NetCDF.

`jaxmbd.save`, `jaxmbd.load` and `jaxmbd.load_state` are exported at the top.
"""

from jaxmbd.io._files import load as load
from jaxmbd.io._files import load_state as load_state
from jaxmbd.io._files import read_model as read_model
from jaxmbd.io._files import save as save
