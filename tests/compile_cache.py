"""Where tests keep what JAX compiles, from one run to the next.

JAX writes an entry of its cache in place, so another process could read half of it. Each process therefore takes a
folder that no other one holds, if it can the one it had in the last run: pytest gives most tests to the same worker
again. The lock on a folder ends with its process, also where that is killed.
"""

import os
import sys
from importlib.metadata import version
from itertools import count
from pathlib import Path

import platformdirs

if sys.platform != "win32":
    import fcntl

LARGEST = 2 << 30  # bytes, for one process


def claim(root: Path) -> Path:
    """A folder below `root` that is this process's own until it ends, trimmed to `LARGEST`."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")  # "gw0", "gw1", …
    for number in count(int(worker[2:]) + 1 if worker else 0):
        folder = root / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_CREAT | os.O_RDWR)  # stays open, and thereby locked
        try:
            if sys.platform != "win32":
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        _trim(folder, LARGEST)
        return folder
    raise AssertionError


def default_root() -> Path:
    """In the user's cache, outside of the checkout; `JAXMBD_TEST_CACHE` names another place."""
    named = os.environ.get("JAXMBD_TEST_CACHE")
    base = Path(named) if named else Path(platformdirs.user_cache_dir("jaxmbd")) / "tests"
    return base / f"python{sys.version_info.major}.{sys.version_info.minor}-jaxlib{version('jaxlib')}"


def _trim(folder: Path, largest: int) -> None:
    """Removes the oldest files until the others take at most `largest` bytes."""
    files = sorted((p.stat().st_mtime, p.stat().st_size, p) for p in folder.iterdir() if p.name != ".lock")
    excess = sum(size for _, size, _ in files) - largest
    for _, size, path in files:
        if excess <= 0:
            break
        path.unlink()
        excess -= size
