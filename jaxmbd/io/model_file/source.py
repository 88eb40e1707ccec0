"""The text of a model file as a tree of tables, within limits, and the places in it that errors name."""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.io._meshes import Meshes
from jaxmbd.io.model_file.lines import Keys, line_at, lines_of
from jaxmbd.io.model_file.toml import Tables

MAX_BYTES = 64 * 2**20
MAX_DEPTH = 32  # tables and lists within one another; a mechanism with a network as a force has 10
MAX_PARTS = 100_000

# A key of many names, each in the table of the one before: `tomllib` takes the square of their number in time.
_NAME = r"""(?:[\w-]++|"(?:\\.|[^"\\\n])*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = rf"""(?<![\w"'\\-])(?:{_NAME}\.[ \t]*+){{{MAX_DEPTH}}}"""
_OPENED = rf"(?:[\[{{]\s*+){{{MAX_DEPTH}}}"


@dataclass(frozen=True)
class Source:
    """A model file: its name as the user gave it, its text, and the folder in which it looks for meshes."""

    name: str
    text: str
    folder: Path = field(default_factory=Path)

    @cached_property
    def meshes(self) -> Meshes:
        """Those that it names."""
        return Meshes(self.folder)

    @cached_property
    def _lines(self) -> dict[Keys, int]:
        return lines_of(self.text)

    def error(self, message: str, line: int | None = None) -> MechanismError:
        """The error for something in this file."""
        return MechanismError(f"{self.name!r}{f', line {line}' if line else ''}: {message}")

    def line(self, keys: Keys) -> int | None:
        """The line of a key."""
        return line_at(self._lines, keys)


@dataclass(frozen=True)
class Place:
    """A value in a model file, by the keys that lead to it."""

    source: Source
    keys: Keys = ()

    def at(self, *keys: str | int) -> "Place":
        """The place of a value within this one."""
        return Place(self.source, (*self.keys, *keys))

    def error(self, message: str) -> MechanismError:
        """The error for the value at this place; the message goes on after its name."""
        named = ".".join(map(str, self.keys))
        return self.located(f"{named}: {message}" if named else message)

    def located(self, message: str) -> MechanismError:
        """The error for this place with a message that names the part itself."""
        return self.source.error(message, self.source.line(self.keys))

    def check_keys(self, kind: str, given: Iterable[str], known: Iterable[str]) -> None:
        """Raise for the first key that has no meaning here."""
        known = list(known)
        for key in given:
            if key not in known:
                raise self.at(key).error(str(unknown(kind, key, known)))


def read_source(path: Path) -> Source:
    """Read the text of a file.

    **Raises:** `MechanismError` if there is no file of text, or if it is too long.
    """
    name = str(path)
    if not path.is_file():
        raise MechanismError(f"There is no file {name!r}.")
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise MechanismError(f"{name!r} is longer than {MAX_BYTES // 2**20} MiB, the limit of a model file.")
    try:
        return Source(name, content.decode("utf-8").replace("\r\n", "\n"), path.parent)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Source(name, "").error("this is no UTF-8 text. Save the file as UTF-8.", line) from None


def tree_of(source: Source) -> Tables:
    """Parse the text of a file.

    **Raises:** `MechanismError` if it is no TOML, or nested too deeply.
    """
    too_deep = f"tables and lists are nested more than {MAX_DEPTH} deep, the limit of a model file."
    line = _line_with(_LONG_KEY, source.text)
    if line is not None:
        raise source.error(too_deep, line)
    try:
        tree = tomllib.loads(source.text)
    except RecursionError:
        raise source.error(too_deep, _line_with(_OPENED, source.text)) from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        message = str(error) if place is None else str(error)[: place.start()]
        line = int(place[1]) if place and place[1] else source.text.count("\n") + 1
        raise source.error(f"this is no TOML: {message}. https://toml.io describes TOML.", line) from None
    except ValueError:
        line = _line_with(r"[\d_]{4300}", source.text)
        raise source.error("a whole number has too many digits; the longest have 4300.", line) from None
    level, depth = [(tree, ())], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise Place(source, level[0][1]).located(too_deep)
        level = [
            (item, (*keys, key))
            for table, keys in level
            for key, item in (table.items() if isinstance(table, dict) else enumerate(table))
            if isinstance(item, dict | list)
        ]
    return tree


def _line_with(pattern: str, text: str) -> int | None:
    """The line in which a pattern begins."""
    found = re.search(pattern, text)
    return None if found is None else text.count("\n", 0, found.start()) + 1
