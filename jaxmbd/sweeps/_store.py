"""A sweep on disk: a Zarr group with an array for each output, allocated before the first chunk is computed.

The arrays of the outputs have the variants as first axis, in pieces of one chunk; `done` has one entry for each chunk,
which is written after the chunk's data. Files are replaced as a whole, so after a process was killed at any time a
chunk is either done or will be computed again. The group's attribute `jaxmbd_sweep` says what determines the content.
All of it is read as data and checked before use. Who writes holds a lock on the group's file, which ends with its
process; who reads changes nothing and needs none.
"""

import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxmbd.errors import MechanismError, needs
from jaxmbd.replacement import folder_beside
from jaxmbd.sweeps._digest import differences
from jaxmbd.sweeps._outputs import RESULT, Output, result_texts
from jaxmbd.sweeps._space import Space, Swept

if sys.platform != "win32":
    import fcntl

_ATTRIBUTE, _FORMAT, _DONE, _ROWS = "jaxmbd_sweep", 1, "done", "variants"
_AFRESH = "Pass overwrite=True to delete it and begin afresh, or name another folder."


class Store:
    """An opened store, whose names, shapes and types have been checked."""

    def __init__(self, path: Path, group: Any, space: Space, outputs: Sequence[Output], chunk: int) -> None:
        self.path, self._group, self.space, self.outputs, self.chunk = path, group, space, tuple(outputs), chunk

    @property
    def function(self) -> str:
        """The name of the function."""
        return str(_about(self.path)["parts"]["function"])

    def done(self) -> np.ndarray:
        """For each chunk, whether it is done."""
        return np.asarray(self._group[_DONE][:]).astype(bool)

    def write(self, number: int, values: dict[str, np.ndarray]) -> None:
        """Write a chunk, then that it is done."""
        start = number * self.chunk
        for output in self.outputs:
            block = values[output.name]
            # Each chunk that is done has its files, also if all its values are zero or NaN.
            array = self._group[output.name].with_config({"write_empty_chunks": True})
            array[start : start + len(block)] = block
        self._group[_DONE][number] = 1

    def values(self) -> dict[str, np.ndarray]:
        """All outputs, with the variants as first axis."""
        found = {}
        for output in self.outputs:
            try:
                found[output.name] = np.asarray(self._group[output.name][:])
            except Exception as error:  # whatever the decoders raise for bytes that they did not write
                raise _damaged(self.path, f"the data of {output.name!r} cannot be read ({error})") from error
        return found


def _damaged(path: Path, fault: str) -> MechanismError:
    return MechanismError(f"The store {str(path)!r} is damaged or was changed: {fault}. {_AFRESH}")


@contextmanager
def opened(
    path: Path, space: Space, outputs: Sequence[Output], chunk: int, parts: dict[str, object], overwrite: bool
) -> Iterator[Store]:
    """Open the store of a sweep to write it, or create it with all arrays allocated.

    **Raises:** `MechanismError` if there is something else at that place, if the store belongs to another sweep, if
    another one writes it, or if it is damaged.
    """
    needs("The store of a sweep", "zarr", "sweeps")
    if overwrite and path.exists():
        _remove(path)
    if not path.exists():
        _create(path, space, outputs, chunk, parts)
    about = _about(path)
    found = differences(about["parts"], parts)
    if found:
        raise MechanismError(
            f"The store {str(path)!r} belongs to another sweep. What differs: {'; '.join(found)}. {_AFRESH}"
        )
    with _locked(path):
        for left in path.rglob("*.partial"):  # what a killed process left half-written
            left.unlink(missing_ok=True)
        yield checked(path, space, outputs, chunk, "r+")


def open_finished(path: Path) -> Store:
    """Open a store whose chunks are all done."""
    needs("The store of a sweep", "zarr", "sweeps")
    about = _about(path)
    try:
        dims, chunk = about["dims"], int(about["parts"]["chunk"])
        outputs = [Output(x["name"], tuple(x["shape"]), np.dtype(x["dtype"])) for x in about["outputs"]]
        numbers = _group(path, "r")
        swept = tuple(Swept(name, tuple(own), np.asarray(numbers[name][...])) for name, own in dims.items())
        sizes = {dim: n for one in swept for dim, n in zip(one.dims, one.values.shape, strict=True)}
    except Exception as error:  # whatever the decoders raise for what they did not write
        raise _damaged(path, f"its attributes or numbers cannot be read ({error!r})") from error
    store = checked(path, Space(swept, sizes), outputs, chunk, "r")
    done = store.done()
    if not done.all():
        raise MechanismError(
            f"The store {str(path)!r} is unfinished: {done.sum()} of {len(done)} chunks are done. Call sweep with the "
            "arguments of before to continue."
        )
    return store


def _group(path: Path, mode: Literal["r", "r+"]) -> Any:
    import zarr

    return zarr.open_group(path, mode=mode, zarr_format=3)


_locks: set[int] = set()  # the files that this process has locked


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other writers out of a store, also those of this process. Windows and some file systems have no such lock.

    **Raises:** `MechanismError` if another sweep holds the lock.
    """
    if sys.platform == "win32":
        yield
        return
    file = path / "zarr.json"
    lock = os.open(file, os.O_RDWR if os.access(file, os.W_OK) else os.O_RDONLY)
    _locks.add(lock)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MechanismError(
                f"Another sweep is writing the store {str(path)!r}. Wait until it has ended, or name another folder."
            ) from None
        except OSError:  # the file system has no locks
            pass
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)  # at once, also where a worker that was just forked still has the file
        _forget({lock})


def _forget(locks: set[int]) -> None:
    """Close locked files, of which each holds its lock until all processes that have it open have closed it."""
    for lock in locks & _locks:
        _locks.remove(lock)
        os.close(lock)


if sys.platform != "win32":
    os.register_at_fork(after_in_child=lambda: _forget(_locks))  # a worker that outlives its parent holds no lock


def _about(path: Path) -> dict[str, Any]:
    """What a store says of itself."""
    try:
        about = json.loads((path / "zarr.json").read_text(encoding="utf-8"))["attributes"][_ATTRIBUTE]
        if not isinstance(about["parts"], dict):
            raise TypeError("parts")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise MechanismError(
            f"{str(path)!r} is not the store of a sweep: it has no zarr.json with the attribute {_ATTRIBUTE!r}. Name a "
            "folder that does not exist yet."
        ) from error
    if about.get("format") != _FORMAT:
        raise MechanismError(
            f"The store {str(path)!r} has the format {about.get('format')!r}; this version reads {_FORMAT}. {_AFRESH}"
        )
    return about


def _remove(path: Path) -> None:
    """Delete the store of a sweep, and nothing else."""
    if path.is_symlink() or not path.is_dir() or not (path / "zarr.json").is_file():
        raise MechanismError(f"sweep: overwrite=True deletes stores only, and {str(path)!r} is none.")
    if _ATTRIBUTE not in (path / "zarr.json").read_text(encoding="utf-8", errors="replace"):
        raise MechanismError(f"sweep: overwrite=True deletes stores of sweeps only, and {str(path)!r} is another one.")
    with _locked(path):
        shutil.rmtree(path)


def _create(path: Path, space: Space, outputs: Sequence[Output], chunk: int, parts: dict[str, object]) -> None:
    """Create it beside its place, then rename it: at its place it is whole."""
    import zarr

    with folder_beside(path) as folder:
        whole = folder / path.name
        about = {
            "format": _FORMAT,
            "parts": parts,
            "dims": {one.name: list(one.dims) for one in space.swept},
            "outputs": [{"name": x.name, "shape": list(x.shape), "dtype": x.dtype.name} for x in outputs],
        }
        group = zarr.create_group(whole, zarr_format=3, attributes={_ATTRIBUTE: about})
        for one in space.swept:
            array = _allocate(group, one.name, one.values.shape, one.values.dtype, one.values.shape, one.dims)
            array[...] = one.values
        rows = rows_dimension(space)
        for x in outputs:
            shape = (space.count, *x.shape)
            attributes = {"texts": result_texts()} if x.name == RESULT else {}
            pieces = (min(chunk, space.count), *x.shape)
            _allocate(group, x.name, shape, x.dtype, pieces, (rows, *x.dims), attributes)
        count = math.ceil(space.count / chunk)
        _allocate(group, _DONE, (count,), np.dtype(np.uint8), (1,), ("chunk",))
        os.rename(whole, path)


def rows_dimension(space: Space) -> str:
    """The name of the axis of the variants: their dimension, if there is one only."""
    return space.dims[0] if len(space.dims) == 1 else _ROWS


def _allocate(
    group: Any,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype,
    pieces: tuple[int, ...],
    dims: tuple[str, ...],
    attributes: Mapping[str, object] | None = None,
) -> Any:
    from zarr.codecs import ZstdCodec

    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=tuple(max(1, n) for n in pieces),
        compressors=[ZstdCodec(checksum=True)],  # bytes that have changed since are noticed
        fill_value=np.nan if dtype.kind == "f" else 0,
        dimension_names=dims,
        attributes=attributes or {},
        config={"write_empty_chunks": True},
    )


def checked(path: Path, space: Space, outputs: Sequence[Output], chunk: int, mode: Literal["r", "r+"]) -> Store:
    """The store as it is on disk, to be read (`"r"`), or to be written, too.

    **Raises:** `MechanismError` if it is damaged.
    """
    try:
        group = _group(path, mode)
        arrays = dict(group.arrays())
    except Exception as error:  # whatever the reader raises for metadata that it did not write
        raise _damaged(path, f"its metadata cannot be read ({error})") from error
    count = math.ceil(space.count / chunk)
    wanted: dict[str, tuple[tuple[int, ...], np.dtype]] = {
        x.name: (x.values.shape, x.values.dtype) for x in space.swept
    }
    wanted |= {x.name: ((space.count, *x.shape), x.dtype) for x in outputs}
    wanted[_DONE] = ((count,), np.dtype(np.uint8))
    for name in (*wanted, *arrays):
        if name not in arrays:
            raise _damaged(path, f"there is no array {name!r}")
        if name not in wanted:
            raise _damaged(path, f"there is an array {name!r}, which is none of this sweep's")
        shape, dtype = wanted[name]
        if arrays[name].shape != shape or arrays[name].dtype != dtype:
            raise _damaged(
                path, f"{name!r} has shape {arrays[name].shape} and type {arrays[name].dtype}, not {shape} and {dtype}"
            )
    _check_pieces(path, arrays, space, outputs, min(chunk, space.count))
    return Store(path, group, space, outputs, chunk)


def _check_pieces(path: Path, arrays: dict[str, Any], space: Space, outputs: Sequence[Output], rows: int) -> None:
    """The numbers are those of the space; the pieces are the chunks, and those that are done are there."""
    try:
        done = np.asarray(arrays[_DONE][:])
        same = {x.name: np.array_equal(np.asarray(arrays[x.name][...]), x.values) for x in space.swept}
    except Exception as error:
        raise _damaged(path, f"its numbers or the marks of what is done cannot be read ({error})") from error
    if not np.isin(done, (0, 1)).all():
        raise _damaged(path, f"'done' has entries other than 0 and 1: {sorted(set(done.tolist()))}")
    for name, is_same in same.items():
        if not is_same:
            raise _damaged(path, f"the values of {name!r} are not those of the space")
    for x in outputs:
        array = arrays[x.name]
        if array.chunks != (rows, *(max(1, n) for n in x.shape)):
            raise _damaged(path, f"{x.name!r} is stored in pieces of {array.chunks}, not {(rows, *x.shape)}")
        for number in np.flatnonzero(done):
            file = path.joinpath(x.name, "c", str(number), *("0" for _ in x.shape))
            if x.shape and 0 in x.shape:
                continue
            if not file.is_file():
                raise _damaged(path, f"chunk {number} is marked as done, but its {x.name!r} is missing")
