"""Files that are whole at their place: written in a folder beside it, then renamed.

A writer that is killed leaves its folder behind. The next one for the same place removes it: each writer holds a lock
on its folder, which ends with its process.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_RANDOM = r"[a-z0-9_]{8}"  # what `tempfile` appends


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A folder beside `path`, on the same file system, to make a file or folder `path.name` in; removed at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    folder, lock = _locked_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _release(lock)


def _prefix(path: Path) -> str:
    return f".{path.name}-"


def _locked_folder(path: Path) -> tuple[Path, int | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_prefix(path), dir=path.parent))
        lock = _lock(folder, wait=True)
        if folder.exists():  # unless another writer took it for a leftover before it was locked
            return folder, lock
        _release(lock)


def _remove_leftovers(path: Path) -> None:
    """Remove the folders of writers of this place that are no longer alive, and nothing else."""
    pattern = re.compile(re.escape(_prefix(path)) + _RANDOM)
    with suppress(OSError):
        found = [x for x in path.parent.iterdir() if pattern.fullmatch(x.name) and x.is_dir() and not x.is_symlink()]
        for folder in found:
            lock = _lock(folder, wait=False)
            if lock is not None and {x.name for x in folder.iterdir()} <= {path.name}:
                shutil.rmtree(folder, ignore_errors=True)
            _release(lock)


def _lock(folder: Path, wait: bool) -> int | None:
    """Lock a folder; None if another process holds the lock, or if there are no locks (Windows, some file systems)."""
    if sys.platform == "win32":
        return None
    lock = None
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        _release(lock)
        return None
    return lock


def _release(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
