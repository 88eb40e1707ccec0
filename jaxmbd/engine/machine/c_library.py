"""Libraries of C code that are compiled once per computer, and kept (`store/artefacts.py`)."""

import atexit
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import jax

from jaxmbd.engine.store.artefacts import Artefact, Kind, places
from jaxmbd.engine.store.own_files import is_own_folder, make_own_folder, write_whole
from jaxmbd.progress import reporting

HERE = Path(__file__).parent
_SHARED = ("-shared", "-fPIC")
_FLAGS = ("-std=gnu11", *_SHARED)
# As wide as the lanes, which compilers for processors with vectors of 512 bits avoid by themselves.
WIDE = ("-mprefer-vector-width=512",)
# Products and sums are fused only where a program says so, so that all engines give the same numbers.
_ARITHMETIC = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
_SEGMENT = 0x19  # LC_SEGMENT_64
_PATIENCE = 300.0  # [s] time limit of the compiler: it takes 18 s, with sanitizers more, several times that under load


def architecture() -> str:
    """The architecture of this computer's processor, by the name that Linux has for it."""
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())


# All instructions of this computer's processor.
NATIVE = ("-march=native", *(WIDE if architecture() == "x86_64" else ()))


@dataclass(frozen=True)
class CLibrary:
    """A library of C code.

    `name`: the beginning of the names of its files; `symbols`: the functions that it must have; `text`: makes its
    source, which may include `headers` of this folder; `identity`: all else that it depends on, except the compiler, as
    text; `flags`: for the compiler; `announcement`: said while it is compiled, if not empty; `instructions`: the
    compiler's options for those of the processor that it may use.
    """

    name: str
    symbols: tuple[str, ...]
    headers: tuple[str, ...]
    text: Callable[[], str]
    identity: str
    flags: tuple[str, ...]
    announcement: str = ""
    instructions: tuple[str, ...] = NATIVE

    @cached_property
    def sources(self) -> str:
        """A hash of the files that it is made from, and of the compiler's options."""
        contents = b"".join((HERE / name).read_bytes() for name in self.headers)
        return _hash(contents, self._flags).hex()[:16]

    @cached_property
    def purpose(self) -> bytes:
        """A hash of all that the library depends on except the compiler."""
        return _hash(self.sources, self.identity, platform.machine(), platform.processor(), processor())

    @property
    def _flags(self) -> tuple[str, ...]:
        return (*_FLAGS, *self.instructions, *_ARITHMETIC, *self.flags)

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
        artefact = self.artefact(command or [])
        for folder in filter(make_own_folder, places()):
            library = self.load(artefact.write(folder, content))
            if library is not None:
                return library
        path = artefact.path(_private_folder())
        write_whole(path, content)
        library = self.load(path)
        if library is None:
            raise OSError("there is no folder from which it can be loaded.")
        return library

    def artefact(self, command: list[str]) -> Artefact:
        """What this compiler makes of it: the first half of the key is the library's, the second is the compiler's."""
        return Artefact(Kind.LIBRARY, self.name, self.purpose[:16] + _hash(command)[:16])

    def stored(self, command: list[str] | None) -> ctypes.CDLL | None:
        """Load the stored library that this compiler, or any if `command` is None, has built; None if there is none."""
        for folder in filter(is_own_folder, places()):
            for artefact in [self.artefact(command)] if command else self.artefact([]).alike(folder):
                if artefact.read(folder) is None:
                    continue
                library = self.load(artefact.path(folder))
                if library is not None:
                    return library
        return None

    def is_stored(self) -> bool:
        """True if there seems to be a stored library; `stored` looks closer."""
        command = compiler()
        return command is not None and any(self.artefact(command).path(folder).exists() for folder in places())

    def is_whole(self, content: bytes) -> bool:
        """True if a file is a complete library with the required functions: loading a truncated one may crash."""
        return 64 <= _length(content) <= len(content) and all(name.encode() in content for name in self.symbols)

    def compiled(self, command: list[str] | None, unknown: Sequence[str] = (), patience: float = _PATIENCE) -> bytes:
        """Compile the source, and return the content of the library, which is checked to be complete.

        `unknown`: options that the compiler does not know, and does not need; `patience`: its time limit [s].
        """
        if command is None:
            raise OSError("there is no C compiler on the path.")
        with tempfile.TemporaryDirectory(prefix="jaxmbd-") as folder:
            output, source = Path(folder) / "library.so", Path(folder) / "library.c"
            source.write_text(self.text())
            includes = (f"-I{HERE}", f"-I{jax.ffi.include_dir()}")
            flags = [flag for flag in self._flags if flag not in unknown]
            _run([*command, *flags, *includes, str(source), "-o", str(output), "-lm", "-pthread"], patience)
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


def shared_library(source: Path, *flags: str) -> bytes:
    """Compile a C file to a library for any processor of this kind, and return its content.

    Raises:
        OSError: If there is no compiler, or it makes no library.
        subprocess.SubprocessError: If the compiler fails.
    """
    command = compiler()
    if command is None:
        raise OSError("there is no C compiler on the path.")
    with tempfile.TemporaryDirectory(prefix="jaxmbd-") as folder:
        output = Path(folder) / "library.so"
        _run([*command, *_SHARED, *_ARITHMETIC, *flags, str(source), "-o", str(output), "-lm"])
        if not output.exists():
            raise OSError(f"'{shlex.join(command)}' made no library.")
        return output.read_bytes()


def _length(content: bytes) -> int:
    """How long a library must be by what its headers say; 0 if they are cut off.

    In ELF the table of section headers comes last. In the others parts lie where a table says: sections in PE
    (https://learn.microsoft.com/windows/win32/debug/pe-format), segments in Mach-O (`mach-o/loader.h`).
    """
    with suppress(struct.error):
        if content[:4] == b"\x7fELF":
            start, size, count = struct.unpack_from("<40xQ10xHH", content)
            return max(start + size * count, 64)
        if content[:2] == b"MZ":
            (header,) = struct.unpack_from("<60xI", content)
            count, optional = struct.unpack_from("<6xH12xH", content, header)
            places = [struct.unpack_from("<16xII", content, header + 24 + optional + 40 * k) for k in range(count)]
            return max(size + start for size, start in places)
        if content[:4] == b"\xcf\xfa\xed\xfe":
            (count,), at, end = struct.unpack_from("<16xI", content), 32, 0
            for _ in range(count):
                command, length = struct.unpack_from("<II", content, at)
                if command == _SEGMENT:
                    end = max(end, sum(struct.unpack_from("<40xQQ", content, at)))
                at += length
            return end
        return len(content)
    return 0


def _hash(*ingredients: object) -> bytes:
    return hashlib.sha256(repr(ingredients).encode()).digest()


def cause(error: BaseException) -> str:
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


def _private_folder() -> Path:
    """A temporary folder with an unpredictable name, for this process alone."""
    folder = tempfile.mkdtemp(prefix="jaxmbd-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _run(command: list[str], patience: float = _PATIENCE) -> None:
    """Run a compiler; if it exceeds the time limit, it is killed with its child processes."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        kill = partial(_kill, process)
        atexit.register(kill)  # a thread that compiles does not keep a process from ending
        try:
            output, _ = process.communicate(timeout=patience)
        except BaseException as error:
            kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise OSError(f"{command[0]} has not ended after {patience:g} s.") from None
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
