"""Files of a disk cache: only the user's own are read, writes are atomic, and the least recently used ones are removed.

The files are run as machine code or determine numerical results, so whoever can write them controls both. A file counts
only if nobody but the user can have written it; any other is ignored.
"""

import os
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

_PREFIX = ".jaxmbd-"  # of files that are being written
_STALE = 86400.0  # [s] temporary files older than a day are left over from processes that were killed
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# Windows has neither these flags nor owners and modes in this sense; they are not checked there.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def user() -> int | None:
    """The effective user id of this process; None on a system without user ids."""
    geteuid = getattr(os, "geteuid", None)
    return None if geteuid is None else geteuid()


def _is_own(status: os.stat_result) -> bool:
    return user() is None or (status.st_uid == user() and not status.st_mode & _OTHERS_WRITE)


def read_own(path: Path) -> bytes | None:
    """The content of a file, if it is a regular file, not a link, that only the user can write; else None."""
    try:
        file = os.fdopen(os.open(path, _FLAGS), "rb")
    except OSError:
        return None
    with file:
        status = os.fstat(file.fileno())  # of the opened file, not of the path, which may have been replaced since
        return file.read() if stat.S_ISREG(status.st_mode) and _is_own(status) else None


def is_own_folder(folder: Path) -> bool:
    """Return True if the path is a folder, not a link, that only the user can write.

    If the user owns the folder but others may write to it (a permissive umask), their permission is removed first.
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
    """Create a folder that only the user can write; return True if it is one afterwards."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return is_own_folder(folder)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically: to a temporary file beside it, which then replaces it.

    Raises:
        OSError: If the folder is not writable, or the disk is full.
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


def limit_size(folders: Mapping[Path, str], size: float) -> None:
    """Remove the least recently used files until the total size is at most `size` bytes.

    `folders`: folders, with a pattern for the names of the files that count there. Temporary files left over from
    processes that were killed are removed as well.
    """
    files = []
    for folder, pattern in folders.items():
        for path, status in _regular_files(folder):
            if not path.name.startswith(_PREFIX):
                files += [(path, status)] if fnmatch(path.name, pattern) else []
            elif time.time() - status.st_mtime > _STALE:
                _remove(path)
    total = sum(status.st_size for _, status in files)
    # `touch` records each use of our files; for those of JAX the system's access time is all there is.
    for path, status in sorted(files, key=lambda one: max(one[1].st_mtime, one[1].st_atime)):
        if total <= size:
            return
        _remove(path)
        total -= status.st_size


def touch(path: Path) -> None:
    """Record the use of a file in its modification time."""
    with suppress(OSError):
        os.utime(path)


def _regular_files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The regular files of a folder with their status; files that another process removes are skipped."""
    files = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    files.append((Path(entry.path), status))
    return files


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
