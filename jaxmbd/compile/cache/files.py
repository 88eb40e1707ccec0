"""Files of a cache on disk: only the user's own are read, no process sees half of one, and the oldest ones go.

What is read here is run as machine code or decides which numbers come out, so whoever can write it can do both. A file
counts only where nobody but the user can have written it; anything else is as if it were not there.
"""

import os
import stat
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PREFIX = ".jaxmbd-"  # of files that are being written
_STALE = 86400.0  # [s] what has been written for longer than a day will not be finished
_MIB = 1024.0  # [MiB] of files in a cache, unless `JAXMBD_CACHE_MIB` says another number
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Where the system has no such flags (Windows), nor owners and modes in this sense, nothing is asked of them.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def user() -> int | None:
    """The number of the user whose files this process writes; None on a system without such numbers."""
    ask = getattr(os, "geteuid", None)
    return None if ask is None else ask()


def _is_own(status: os.stat_result) -> bool:
    return user() is None or (status.st_uid == user() and not status.st_mode & _OTHERS_WRITE)


def read_own(path: Path) -> bytes | None:
    """The content of a regular file that only the user can write, and which is no link; None where there is none."""
    try:
        file = os.fdopen(os.open(path, _FLAGS), "rb")
    except OSError:
        return None
    with file:
        status = os.fstat(file.fileno())  # of the file that was opened, whatever has happened to the path since
        return file.read() if stat.S_ISREG(status.st_mode) and _is_own(status) else None


def is_own_folder(folder: Path) -> bool:
    """Whether there is a folder, no link, that only the user can write.

    Of a folder that is the user's own but open to others (a generous umask), this right is taken back.
    """
    try:
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == user() and status.st_mode & _OTHERS_WRITE:
            folder.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)
            status = folder.lstat()
        return stat.S_ISDIR(status.st_mode) and _is_own(status)
    except OSError:
        return False


def make_own_folder(folder: Path) -> bool:
    """Make a folder that only the user can write, and say whether it is one now."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return is_own_folder(folder)


def write_whole(path: Path, content: bytes) -> None:
    """Written beside its place and then moved there, so that no process sees half of it, after whatever failure.

    Raises:
        OSError: If the folder takes no files, or the disk is full.
    """
    handle, name = tempfile.mkstemp(prefix=_PREFIX, dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def size_limit() -> float:
    """How many bytes the files of a cache may take together, by `JAXMBD_CACHE_MIB`; 0: there is to be no cache."""
    try:
        return 2**20 * float(os.environ.get("JAXMBD_CACHE_MIB", _MIB))
    except ValueError:
        return 2**20 * _MIB


def limit_size(folder: Path, pattern: str, size: float) -> None:
    """Remove the files that were least recently used until those left have no more than `size` bytes together.

    `pattern` says which files count. What processes that were killed left half written goes as well.
    """
    for path, status in _listed(folder.glob(f"{_PREFIX}*")):
        if time.time() - status.st_mtime > _STALE:
            _remove(path)
    found = _listed(path for path in folder.glob(pattern) if not path.name.startswith(_PREFIX))
    total = sum(status.st_size for _, status in found)
    # A file's use is noted by `touch`; for files of others, such as JAX, the system notes it, if not each time.
    for path, status in sorted(found, key=lambda one: max(one[1].st_mtime, one[1].st_atime)):
        if total <= size:
            return
        _remove(path)
        total -= status.st_size


def touch(path: Path) -> None:
    """Note that a file has been used."""
    with suppress(OSError):
        os.utime(path)


def _listed(paths: Iterable[Path]) -> list[tuple[Path, os.stat_result]]:
    """Those that are files; another process may remove them meanwhile."""
    found = []
    for path in paths:
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                found.append((path, status))
    return found


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
