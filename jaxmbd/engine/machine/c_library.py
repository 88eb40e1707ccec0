"""Libraries of C code that are compiled once per computer and stored in the user's cache folder."""

import atexit
import ctypes
import hashlib
import json
import os
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import jax
import platformdirs

from jaxmbd.engine.store.own_files import is_own_folder, limit_size, make_own_folder, read_own, touch, user, write_whole
from jaxmbd.progress import reporting

HERE = Path(__file__).parent
_FLAGS = ("-std=gnu11", "-shared", "-fPIC")
NATIVE = ("-march=native",)  # all instructions of this computer's processor
# Products and sums are fused only where a program says so, so that all engines give the same numbers.
_ARITHMETIC = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
# As wide as the lanes, which compilers for processors with vectors of 512 bits avoid by themselves.
_WIDE = ("-mprefer-vector-width=512",) if platform.machine().lower() in ("x86_64", "amd64") else ()
_PATIENCE = 300.0  # [s] time limit of the compiler: it takes 4 s, with sanitizers 45 s, several times that under load


@dataclass(frozen=True)
class CLibrary:
    """A library of C code.

    `name`: the beginning of the names of its files; `symbols`: the functions that it must have; `text`: makes its
    source, which may include `headers` of this folder; `identity`: all else that it depends on, except the compiler, as
    text; `flags`: for the compiler; `size` [bytes]: limit of all stored libraries of this name together;
    `announcement`: said while it is compiled, if not empty; `instructions`: the compiler's options for those of the
    processor that it may use.
    """

    name: str
    symbols: tuple[str, ...]
    headers: tuple[str, ...]
    text: Callable[[], str]
    identity: str
    flags: tuple[str, ...]
    size: int
    announcement: str = ""
    instructions: tuple[str, ...] = NATIVE

    @cached_property
    def sources(self) -> str:
        """A hash of the files that it is made from, and of the compiler's options."""
        contents = b"".join((HERE / name).read_bytes() for name in self.headers)
        return _hash(contents, self._flags)

    @cached_property
    def purpose(self) -> str:
        """A hash of all that the library depends on except the compiler."""
        return _hash(self.sources, self.identity, platform.machine(), platform.processor(), processor())

    @property
    def _flags(self) -> tuple[str, ...]:
        return (*_FLAGS, *self.instructions, *_ARITHMETIC, *_WIDE, *self.flags)

    def loaded(self) -> ctypes.CDLL:
        """Load the library that was compiled before, or else compile it.

        Raises:
            OSError: If there is no folder, no compiler, or its output is not such a library.
            subprocess.SubprocessError: If the compiler fails.
        """
        command = compiler()
        library = self.stored(command)
        if library is not None:
            return library
        try:
            with reporting(True, self.announcement) if self.announcement else nullcontext():
                content = self.compiled(command)
        except (OSError, subprocess.SubprocessError):
            library = self.stored(None)  # a library built by another compiler serves as well
            if library is None:
                raise
            return library
        for folder in folders():
            library = self.load(self._store(folder, content, command or [])) if make_own_folder(folder) else None
            if library is not None:
                return library
        library = self.load(self._store(_private_folder(), content, command or []))
        if library is not None:
            return library
        raise OSError("there is no folder from which it can be loaded.")

    def note(self, folder: Path, command: list[str]) -> Path:
        """The path of the JSON file with the digest of the library that this compiler built."""
        digest = hashlib.sha256(repr(command).encode()).hexdigest()[:8]
        return folder / f"{self.name}-{self.purpose}-{digest}.json"

    def path(self, folder: Path, digest: str) -> Path:
        """The path of a library, which contains its digest: a file that a process has loaded is never overwritten."""
        return folder / f"{self.name}-{self.purpose}-{digest[:16]}.so"

    def stored(self, command: list[str] | None) -> ctypes.CDLL | None:
        """Load the stored library that this compiler, or any if `command` is None, has built; None if there is none.

        A library counts only if its content has the digest in its note.
        """
        for folder in filter(is_own_folder, folders()):
            notes = sorted(folder.glob(f"{self.name}-{self.purpose}-*.json"))
            for note in [self.note(folder, command)] if command else notes:
                try:
                    digest = str(json.loads(read_own(note) or b"null")["sha256"])
                except (ValueError, TypeError, KeyError):
                    continue
                path = self.path(folder, digest)
                content = read_own(path)
                if content is None or hashlib.sha256(content).hexdigest() != digest or not self.is_whole(content):
                    continue
                library = self.load(path)
                if library is not None:
                    touch(note)
                    touch(path)
                    return library
        return None

    def is_stored(self) -> bool:
        """True if there seems to be a stored library; `stored` looks closer."""
        command = compiler()
        return command is not None and any(self.note(folder, command).exists() for folder in folders())

    def is_whole(self, content: bytes) -> bool:
        """True if a file is a complete library with the required functions: loading a truncated one may crash."""
        if content[:4] == b"\x7fELF":  # the section header table comes last
            start, size, count = struct.unpack_from("<40xQ10xHH", content) if len(content) >= 64 else (0, 1, 1)
            if start + size * count > len(content):
                return False
        return len(content) >= 64 and all(name.encode() in content for name in self.symbols)

    def compiled(self, command: list[str] | None) -> bytes:
        """Compile the source, and return the content of the library, which is checked to be complete."""
        if command is None:
            raise OSError("there is no C compiler on the path.")
        with tempfile.TemporaryDirectory(prefix="jaxmbd-") as folder:
            output, source = Path(folder) / "library.so", Path(folder) / "library.c"
            source.write_text(self.text())
            includes = (f"-I{HERE}", f"-I{jax.ffi.include_dir()}")
            _run([*command, *self._flags, *includes, str(source), "-o", str(output), "-lm", "-pthread"])
            content = output.read_bytes() if output.exists() else b""
        if not self.is_whole(content):
            raise OSError(f"'{shlex.join(command)}' made no library with the functions {', '.join(self.symbols)}.")
        return content

    def load(self, path: Path | None) -> ctypes.CDLL | None:
        """Load the library at a path, which must be complete; None if it cannot be loaded or lacks a function."""
        try:
            library = ctypes.CDLL(str(path)) if path else None
            return library if all(getattr(library, name) for name in self.symbols) else None
        except (OSError, AttributeError):
            return None

    def _store(self, folder: Path, content: bytes, command: list[str]) -> Path | None:
        """Store a library and then the note with its digest; return its path, or None if the folder is not writable."""
        digest = hashlib.sha256(content).hexdigest()
        path = self.path(folder, digest)
        try:
            write_whole(path, content)
            write_whole(self.note(folder, command), json.dumps({"sha256": digest, "compiler": command}).encode())
        except OSError:
            return None
        limit_size(folder, f"{self.name}-*", self.size)
        return path


def _hash(*ingredients: object) -> str:
    return hashlib.sha256(repr(ingredients).encode()).hexdigest()[:16]


def cause(error: Exception) -> str:
    """Why a library could not be loaded: the compiler's own message if there is one."""
    return str(getattr(error, "stderr", "") or error)


def compiler() -> list[str] | None:
    """The compiler's command with its arguments, from the environment variable `CC` or else from the path."""
    variable = os.environ.get("CC", "").strip()
    try:
        command = [variable] if shutil.which(variable) else shlex.split(variable, posix=os.name == "posix")
    except ValueError:  # an unmatched quotation mark
        command = [variable]
    return command or next(([name] for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


def folders() -> list[Path]:
    """The folders in which libraries are stored; the second, temporary one serves if the first is not writable."""
    folders = [Path(platformdirs.user_cache_dir("jaxmbd"))]
    return folders if user() is None else [*folders, Path(tempfile.gettempdir()) / f"jaxmbd-{user()}"]


def _private_folder() -> Path:
    """A temporary folder with an unpredictable name, for this process alone."""
    folder = tempfile.mkdtemp(prefix="jaxmbd-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _run(command: list[str]) -> None:
    """Run a compiler; if it exceeds the time limit, it is killed with its child processes."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        kill = partial(_kill, process)
        atexit.register(kill)  # a thread that compiles does not keep a process from ending
        try:
            output, _ = process.communicate(timeout=_PATIENCE)
        except BaseException as error:
            kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise OSError(f"{command[0]} has not ended after {_PATIENCE:g} s.") from None
            raise
        finally:
            atexit.unregister(kill)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command[0], stderr=output)


def _kill(process: subprocess.Popen[str]) -> None:
    if os.name == "posix":
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()


@cache
def processor() -> str:
    """The instruction sets of the processor, since computers that share a cache folder may differ; empty if unknown."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return ""
    return next((line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))), "")
