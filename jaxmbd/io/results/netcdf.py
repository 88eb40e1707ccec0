"""Labelled datasets as NetCDF files, which xarray, MATLAB, Julia and most plotting programs read.

The files have the classic format with 64-bit offsets (NetCDF 3), which SciPy writes and reads: it holds floats to the
last bit, and needs no library beside those of jaxmbd. It has neither compression nor groups, which a motion does not
need.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from jaxmbd.errors import MechanismError

if TYPE_CHECKING:
    import xarray as xr

FORMAT = "jaxmbd-results/1"

# Names that the format reserves; and what it allows besides letters and digits, as far as names have it.
_RESERVED = {
    "byte", "char", "short", "ushort", "int", "uint", "int64", "uint64", "float", "real", "double", "bool", "string"
}  # fmt: skip
_ALLOWED = re.compile(r"[^\W_][\w.+@ -]*(?<! )", re.ASCII)  # SciPy writes other letters in Latin-1


def _stored(name: str) -> str:
    """A name as the format allows it: unchanged, or with an underscore and the characters as in a URL."""
    return name if _ALLOWED.fullmatch(name) and name not in _RESERVED else f"_{quote(name, safe='')}"


def _original(name: str) -> str:
    return unquote(name[1:]) if name.startswith("_") else name


def write_netcdf(data: "xr.Dataset", path: Path) -> None:
    """Write a dataset, whose variables and dimensions may have any names."""
    named = data.rename({name: _stored(str(name)) for name in {*data.variables, *data.dims}})
    named.assign_attrs(format=FORMAT).to_netcdf(path, engine="scipy", format="NETCDF3_64BIT")


def read_netcdf(path: Path) -> "xr.Dataset":
    """Read a dataset that `write_netcdf` has written.

    **Raises:** `MechanismError` if the file is another one, or damaged.
    """
    if not path.is_file():
        raise MechanismError(f"There is no file {str(path)!r}.")
    import xarray as xr  # takes a third of a second

    try:
        data = xr.load_dataset(path, engine="scipy", decode_times=False)
        data = data.rename({name: _original(str(name)) for name in {*data.variables, *data.dims}})
    except Exception as error:  # whatever the decoders raise for bytes that they did not write
        raise MechanismError(f"{str(path)!r} is no NetCDF file of jaxmbd, or damaged ({error}).") from error
    if data.attrs.get("format") != FORMAT:
        raise MechanismError(
            f"{str(path)!r} has the format {data.attrs.get('format')!r}, and this version of jaxmbd reads {FORMAT!r}: "
            "it was not written by jaxmbd.save. xarray.open_dataset reads other files."
        )
    return data
