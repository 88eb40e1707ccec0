"""`save`, `load` and `load_state`: models as TOML text, results as NetCDF files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import lazy_loader
import numpy as np
from jaxtyping import Array

from jaxmbd.checks import as_path, check_flags, check_instance
from jaxmbd.errors import MechanismError
from jaxmbd.io.model_file.model import check_format, mechanism_of, state_from, tables_of
from jaxmbd.io.model_file.source import MAX_BYTES, Place, Source, read_source, tree_of
from jaxmbd.io.model_file.toml import toml
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.replacement import folder_beside
from jaxmbd.state.state import State

if TYPE_CHECKING:
    from jaxmbd import identification
    from jaxmbd.analyses.simulation import solution as motions
    from jaxmbd.io.results import netcdf, results
else:  # a model file needs nothing of motions and fits
    identification = lazy_loader.load("jaxmbd.identification", suppress_warning=True)
    motions = lazy_loader.load("jaxmbd.analyses.simulation.solution", suppress_warning=True)
    netcdf = lazy_loader.load("jaxmbd.io.results.netcdf", suppress_warning=True)
    results = lazy_loader.load("jaxmbd.io.results.results", suppress_warning=True)

MODEL, RESULTS = ".toml", ".nc"  # the endings of file names

_HEAD = """\
# A mechanism for jaxmbd. SI units; the origin of a body's frame is its centre of mass.
# docs/how-to/save-and-load.md explains the format, jaxmbd/io/model_file/model.schema.json lists all keys.
"""


def save(
    what: "Mechanism | motions.Solution | identification.Fit",
    path: str | os.PathLike[str],
    state: State | None = None,
) -> None:
    """Save a mechanism as a model file (`.toml`), or a motion or a fit as a NetCDF file (`.nc`).

    A model file is text that a person can read and change. It holds every number to the last bit, and its precision.
    Functions and classes of a user's own are saved as import paths, so they must be defined at the top of a module.

    **Arguments:** `what`, a `Mechanism`, a `Solution` with all its quantities, or a `Fit` (its estimates and their
    covariance); `path`, the file, which is replaced if there is one; `state`, a state of the mechanism to be kept
    beside it.

    **Raises:** `MechanismError` if the ending of the file is another one, or if a part cannot be saved: it holds a
    lambda or a local function, or is traced.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> mbd.save(pendulum.mechanism, "pendulum.toml", state=pendulum.state())
        >>> mbd.save(pendulum.simulate(np.linspace(0.0, 1.0, 11)), "run.nc")
    """
    if isinstance(what, Mechanism):
        path = _path("a mechanism", path, MODEL)
        text = model_text(what, state, path.parent)
        _check_text(text, what, path.parent)
        _replace(path, lambda new: new.write_text(text, encoding="utf-8", newline="\n"))
        return
    check_instance("save", what, (motions.Solution, identification.Fit), "a Mechanism, a Solution or a Fit")
    if state is not None:
        raise MechanismError("save: a state is kept beside a mechanism; a motion has the states at all its times.")
    is_motion = isinstance(what, motions.Solution)
    path = _path("a motion" if is_motion else "a fit", path, RESULTS)
    data = results.motion_dataset(what) if isinstance(what, motions.Solution) else results.fit_dataset(what)
    _replace(path, lambda new: netcdf.write_netcdf(data, new))


def load(path: str | os.PathLike[str], trust: bool = False) -> Any:
    """Load a mechanism from a model file (`.toml`), or a motion or a fit as an `xarray.Dataset` (`.nc`).

    Nothing in a file is executed. A model file may name functions and classes of Python by their import paths; they are
    imported, and run whenever the mechanism is used, only if it is trusted.

    **Arguments:** `path`; `trust`, True to import the functions and classes that a model file names.

    **Returns:** a `Mechanism` that equals the saved one in every number, or a dataset.

    **Raises:** `MechanismError` with the file, the line, and the reason.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> mbd.save(pendulum.mechanism, "pendulum.toml")
        >>> print(mbd.load("pendulum.toml")["rod"].mass)
        1.0
    """
    path = as_path("load", path)
    if path.suffix == RESULTS:
        return netcdf.read_netcdf(path)
    return read_model(path, trust)[0]


def load_state(mechanism: Mechanism, path: str | os.PathLike[str], index: int = -1) -> State:
    """Load a state of a mechanism, from its model file or from a motion.

    **Arguments:** `mechanism`, in the coordinates in which the state was saved; `path`, a model file that was saved
    with a state, or a NetCDF file with a motion; `index`, which of the times of a motion, by default the last one.

    **Returns:** a `State`, from which `simulate` goes on.

    **Raises:** `MechanismError` if the file holds no state, or that of another mechanism.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> mbd.save(pendulum.mechanism, "pendulum.toml", state=pendulum.state())
        >>> print(mbd.load_state(pendulum.mechanism, "pendulum.toml")["rod.x"].round(4))
        -0.5
    """
    path = as_path("load_state", path)
    check_instance("load_state: mechanism", mechanism, Mechanism, "the Mechanism that the state belongs to")
    if path.suffix == RESULTS:
        return results.state_at(netcdf.read_netcdf(path), mechanism, index, path)
    source = read_source(_path("a mechanism", path, MODEL))
    tables, place = tree_of(source), Place(source)
    check_format(tables, place)
    if "state" not in tables:
        raise source.error("there is no [state] in this file. Save one: save(mechanism, path, state=state).")
    return state_from(tables, mechanism, place)


def read_model(path: Path, trust: bool = False) -> tuple[Mechanism, State | None]:
    """Read a model file: the mechanism, and its state if there is one.

    **Raises:** `MechanismError`, as `load`.
    """
    check_flags("load", trust=trust)
    return _model_of(read_source(_path("a mechanism", path, MODEL)), trust)


def model_text(mechanism: Mechanism, state: State | None = None, folder: Path | None = None) -> str:
    """Return the text of a model file; `folder`: where it will be, within which it names files of meshes."""
    return _HEAD + toml(tables_of(mechanism, state, folder))


def _check_text(text: str, mechanism: Mechanism, folder: Path) -> None:
    """Raise unless a text is read back as the mechanism, to the last bit."""
    if len(text) > MAX_BYTES:
        raise MechanismError(
            f"save: the file would be longer than {MAX_BYTES // 2**20} MiB, the limit of a model file. Put the files "
            "of large meshes into its folder before they are read: it then names them, and holds no copies."
        )
    try:
        again, _ = _model_of(Source("the file", text, folder), trust=True)
    except MechanismError as error:
        raise MechanismError(f"save: the mechanism could not be loaded again: {error}") from error
    difference = _difference(mechanism, again)
    if difference:
        raise MechanismError(f"save: a file cannot hold this mechanism: {difference}.")


def _model_of(source: Source, trust: bool) -> tuple[Mechanism, State | None]:
    tables = tree_of(source)
    place = Place(source)
    mechanism = mechanism_of(tables, place, trust)
    return mechanism, state_from(tables, mechanism, place) if "state" in tables else None


def _difference(mechanism: Mechanism, other: Mechanism) -> str:
    """In what a mechanism differs from another one, as text; empty if in nothing."""
    (leaves, structure), (others, its) = map(jax.tree_util.tree_flatten_with_path, (mechanism, other))
    for (keys, leaf), (_, again) in zip(leaves, others, strict=False):
        if not _is_same(leaf, again):
            return f"{jax.tree_util.keystr(keys).lstrip('.')} would become {again!r}"
    return "" if structure == its else "its parts would have other classes, names, or values that are no arrays"


def _is_same(x: Any, y: Any) -> bool:
    if not isinstance(x, Array | np.ndarray):
        return x is y or (type(x) is type(y) and repr(x) == repr(y))
    kinds = [(type(a), a.dtype, a.shape, getattr(a, "weak_type", False)) for a in (x, y)]
    return kinds[0] == kinds[1] and np.asarray(x).tobytes() == np.asarray(y).tobytes()


def _path(kind: str, path: str | os.PathLike[str], ending: str) -> Path:
    path = as_path("save", path)
    if path.suffix != ending:
        raise MechanismError(f"The file of {kind} ends with {ending}, such as 'name{ending}', got {str(path)!r}.")
    return path


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place, then rename it: at its place it is whole."""
    with folder_beside(path) as folder:
        write(folder / path.name)
        os.replace(folder / path.name, path)
