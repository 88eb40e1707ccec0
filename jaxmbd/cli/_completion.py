"""What the shell may complete: the names of examples, and files that hold a model. Nothing that computes is loaded."""

import re
from collections.abc import Iterator
from pathlib import Path

# The endings of files that hold a model; those of `jaxmbd.io.SUFFIXES` among them.
ENDINGS = (".toml", ".py", ".xml", ".urdf", ".sdf", ".world", ".asmt", ".mbs", ".adm")
_LISTED = re.compile(r"^@listed\(.*?\)\ndef (\w+)\(", re.MULTILINE | re.DOTALL)


def example_names() -> list[str]:
    """The names of all examples, read from the sources: to import them takes a second."""
    folder = Path(__file__).parents[1] / "examples"
    texts = (path.read_text(encoding="utf-8") for path in folder.glob("_*.py"))
    return sorted(name.replace("_", "-") for text in texts for name in _LISTED.findall(text))


def complete_model(incomplete: str) -> list[str]:
    """The examples whose names begin like this, and the files and folders."""
    return [name for name in example_names() if name.startswith(incomplete)] + list(_files(incomplete, ENDINGS))


def complete_data(incomplete: str) -> list[str]:
    """The tables and folders whose names begin like this."""
    return list(_files(incomplete, (".csv",)))


def _files(incomplete: str, endings: tuple[str, ...]) -> Iterator[str]:
    head, slash, start = incomplete.rpartition("/")
    folder = Path(head + slash or ".")
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        hidden = path.name.startswith(".") and not start
        if path.name.startswith(start) and not hidden and (path.is_dir() or path.suffix in endings):
            yield f"{head}{slash}{path.name}{'/' * path.is_dir()}"
