"""The archive of a Functional Mock-up Unit: its description as data, and its files, unpacked with all paths checked."""

import atexit
import hashlib
import shutil
import stat
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import file_error

DESCRIPTION = "modelDescription.xml"
_MOST_FILES = 20_000
_LARGEST = 2**30  # [bytes] of all files together, unpacked
_LARGEST_DESCRIPTION = 64 * 2**20  # [bytes]
_BLOCK = 2**20  # [bytes]
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


@dataclass(frozen=True)
class Archive:
    """An FMU on disk. `digest`: a hash of the file, by which two are the same."""

    path: Path
    digest: str
    description: bytes

    def unpacked(self) -> Path:
        """A folder of this process alone with all files, which is removed when the process ends.

        **Raises:** `MechanismError` if a path leads out of the archive, or if a file is damaged.
        """
        folder = Path(tempfile.mkdtemp(prefix="jaxmbd-fmu-"))
        atexit.register(shutil.rmtree, folder, True)
        try:
            with zipfile.ZipFile(self.path) as archive:
                room = _LARGEST
                for entry in _checked(self.path, archive):
                    target = folder.joinpath(*PurePosixPath(entry.filename).parts)
                    if entry.is_dir():
                        target.mkdir(parents=True, exist_ok=True)
                        continue
                    target.parent.mkdir(parents=True, exist_ok=True)
                    room -= _copy(self.path, archive, entry, target, room)
        except _BROKEN as error:
            raise file_error(self.path, f"the archive is damaged: {error}") from None
        return folder


def open_archive(path: Path) -> Archive:
    """Read the description of an FMU; nothing is unpacked or run.

    **Raises:** `MechanismError` if there is no such file, or if it is no archive with a `modelDescription.xml`.
    """
    if not path.is_file():
        raise file_error(path, "there is no such file.")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in _checked(path, archive)}
            if DESCRIPTION not in entries:
                raise file_error(path, f"an FMU is an archive with a file {DESCRIPTION}, and this one has none.")
            if entries[DESCRIPTION].file_size > _LARGEST_DESCRIPTION:
                raise file_error(path, f"{DESCRIPTION} has more than {_LARGEST_DESCRIPTION} bytes.")
            with archive.open(DESCRIPTION) as file:
                content = file.read(_LARGEST_DESCRIPTION + 1)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except _BROKEN as error:
        raise file_error(path, f"no archive that can be read, as an FMU is one: {error}") from None
    return Archive(path, digest, content)


def _checked(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The entries of an archive; raise unless all of them are files within it, and not too many or too large."""
    entries = archive.infolist()
    if len(entries) > _MOST_FILES:
        raise file_error(path, f"the archive has {len(entries)} files; an FMU has at most {_MOST_FILES}.")
    size = sum(entry.file_size for entry in entries)
    if size > _LARGEST:
        raise file_error(path, f"its files have {size} bytes when unpacked; an FMU has at most {_LARGEST}.")
    for entry in entries:
        name = entry.filename
        parts = PurePosixPath(name).parts
        leaves = name.startswith("/") or "\\" in name or ":" in name or "\0" in name or ".." in parts or not parts
        if leaves:
            raise file_error(path, f"the path {name!r} in the archive leads out of it.")
        if stat.S_ISLNK(entry.external_attr >> 16):
            raise file_error(path, f"{name!r} in the archive is a link; an FMU holds files alone.")
    return entries


def _copy(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, room: int) -> int:
    """Unpack one file; return its size, which may be larger than what the archive says."""
    size = 0
    with archive.open(entry) as source, target.open("xb") as to:
        while block := source.read(_BLOCK):
            size += len(block)
            if size > room:
                raise MechanismError(str(file_error(path, f"its files have more than {_LARGEST} bytes unpacked.")))
            to.write(block)
    return size
