"""C text, compiled and loaded."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest


def compiler() -> str | None:
    """The C compiler of the machine."""
    return shutil.which("cc") or shutil.which("gcc")


def load_c(text: str, folder: Path, *flags: str) -> ctypes.CDLL:
    """The library that a text compiles to; the test is skipped where there is no compiler."""
    command = compiler()
    if command is None:
        pytest.skip("no C compiler")
    source, library = folder / "text.c", folder / "text.so"
    source.write_text(text)
    subprocess.run([command, *flags, "-shared", "-fPIC", str(source), "-o", str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))
