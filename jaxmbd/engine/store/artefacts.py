"""What is kept on disk from one process to the next: calls, libraries and kernels, as files that are checked.

A file holds one *artefact*, whose name has its kind and its key:

    content · key · SHA-256 of content, key and kind · magic

What is checked comes last, so that the file of a library is also a library: the dynamic loader takes from it what its
headers name, and nothing after that. A file is used only if the user alone can have written it, and if it ends with
exactly what belongs to its content under the requested key. One that is damaged, cut off, or lies under the name of
another one is made again and replaced. Nothing in it is unpickled.

All kinds have one limit: `JAXMBD_CACHE_MIB`, in MiB. Whenever some 64th of it has been written, what was used least
recently is removed until the rest is within it. With 0 nothing is read or written.
"""

import hashlib
import math
import os
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

import platformdirs

from jaxmbd.engine.store.own_files import (
    is_own_folder,
    limit_size,
    make_own_folder,
    read_own,
    touch,
    user,
    write_whole,
)
from jaxmbd.upstream.jax_internals import compilation_cache_folder

_MAGIC = b"jaxmbd4\n"
_END = 32 + 32 + len(_MAGIC)  # [bytes] of what follows the content
_MIB = 1024.0  # [MiB] of all artefacts together, unless the user says something else
_BETWEEN_LOOKS = 2.0**-6  # of the limit is written, in the mean, between two looks at what is too much
_OURS = "jaxmbd_"  # how the names of our files begin, also in a folder that we share


class Kind(Enum):
    """A kind of artefact; the value is how the names of its files end."""

    CALL = ""  # a traced or compiled function, as data
    LIBRARY = ".so"  # C code, compiled for this processor
    KERNEL = ".cubin"  # machine code of a GPU


@dataclass(frozen=True)
class Artefact:
    """Something that is kept; it need not be there yet.

    `name`: for the reader of the folder; `key`: 32 bytes, a hash of all that the content depends on.
    """

    kind: Kind
    name: str
    key: bytes

    def path(self, folder: Path) -> Path:
        """Its file in a folder."""
        return folder / f"{_OURS}{self.name}-{self.key.hex()}{self.kind.value}"

    def read(self, folder: Path) -> bytes | None:
        """Its content, which was used just now; None if there is no file, or one that cannot be trusted."""
        path = self.path(folder)
        found = read_own(path) or b""
        content = found[:-_END]
        if found[-_END:] != self._end(content):
            return None
        touch(path)
        return content

    def write(self, folder: Path, content: bytes) -> Path | None:
        """Keep it, and now and then remove what is too much; return its file, or None if the folder is not writable.

        A look at all files costs time in proportion to their number, so it is taken with a chance in proportion to what
        was written. The key is a hash: its first bytes are a number by chance, whatever processes write.
        """
        path = self.path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(path, content + self._end(content))
        except OSError:
            return None
        if int.from_bytes(self.key[:4]) * _BETWEEN_LOOKS * size_limit() <= 2**32 * len(content):
            remove_excess()
        return path

    def alike(self, folder: Path) -> list[Self]:
        """Those in a folder that have its kind and name, and a key whose first half is the same."""
        names = f"{_OURS}{self.name}-{self.key[:16].hex()}{'?' * 32}{self.kind.value}"
        keys = sorted(path.stem.rpartition("-")[2] for path in folder.glob(names))
        return [type(self)(self.kind, self.name, bytes.fromhex(key)) for key in keys]

    def _end(self, content: bytes) -> bytes:
        digest = hashlib.sha256(content)
        digest.update(self.key + self.kind.name.encode())
        return self.key + digest.digest() + _MAGIC


def size_limit() -> float:
    """The limit of the total size of all artefacts [bytes]; with 0 none are kept."""
    try:
        size = 2**20 * float(os.environ.get("JAXMBD_CACHE_MIB", _MIB))
    except ValueError:
        size = math.nan
    return 2**20 * _MIB if math.isnan(size) else size


def user_folder() -> Path:
    """The folder for artefacts in the user's cache."""
    return Path(platformdirs.user_cache_dir("jaxmbd")) / "compiled"


def places() -> list[Path]:
    """Where artefacts may be, if these are folders of the user's own; empty if none are to be kept.

    The second, in the folder for temporary files, serves where there can be no first one.
    """
    if size_limit() <= 0:
        return []
    return [user_folder()] if user() is None else [user_folder(), Path(tempfile.gettempdir()) / f"jaxmbd-{user()}"]


def own_folder() -> Path | None:
    """The first of the places that is a folder of the user's own, which is made if there is none."""
    return next(filter(make_own_folder, places()), None)


def remove_excess() -> None:
    """Remove the files that were used least recently until the rest, in all places together, is within the limit.

    In a folder of our own that is any file: one of JAX, which commands keep there, or of a former version of jaxmbd,
    which kept some beside the folder. In a folder that the user has named for JAX only ours count.
    """
    own = [folder.resolve() for folder in [user_folder().parent, *places()] if is_own_folder(folder)]
    shared = compilation_cache_folder()
    folders = {Path(shared).resolve(): f"{_OURS}*"} if shared else {}
    limit_size(folders | dict.fromkeys(own, "*"), size_limit())
