"""The statements of an Adams dataset: `KEYWORD/id, FLAG, KEY = value, value`, with comments and continuation lines."""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import file_error
from jaxmbd.io._placement import Placement
from jaxmbd.io._xml import read_bytes

_VIEW_NAME = re.compile(r"adams_view_name\s*=\s*'([^']*)'")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(E[-+]?\d+)?(D)?", re.IGNORECASE)  # D: an angle in degrees
_LONGEST = 100_000  # characters of a statement
_OPEN, _CLOSE, _OPERATORS = "(", ")", "+-*/(,:"
_TEXTS = ("FUNCTION", "COMMENT", "FX", "FY", "FZ", "TX", "TY", "TZ")  # keys whose values are texts, with any commas


@dataclass
class Statement:
    """One statement: its `keyword` in full, `number`, name in Adams View, `flags`, and values by keys."""

    path: Path
    line: int
    keyword: str
    number: int
    view_name: str = ""
    flags: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)  # keys that are given more than once

    @property
    def part(self) -> str:
        """What it is called in messages."""
        return f"{self.keyword}/{self.number}" if self.number else self.keyword

    def error(self, text: str) -> MechanismError:
        """The error for this statement, with its line."""
        return file_error(self.path, f"{self.part}: {text}", self.line)

    def complete(self, *known: str) -> None:
        """Replace abbreviated keys and flags by those of which they are the beginning; raise for one given twice."""
        if self.twice:
            raise self.error(f"{self.twice[0]} is given twice.")
        self.values = {self._whole(key, known): value for key, value in self.values.items()}
        self.flags = [self._whole(flag, known) for flag in self.flags]

    def _whole(self, word: str, known: tuple[str, ...]) -> str:
        found = [word] if word in known else [name for name in known if name.startswith(word)]
        if len(found) > 1:
            raise self.error(f"{word!r} abbreviates {' as well as '.join(found)}; write it in full.")
        return found[0] if found else word

    def numbers(self, key: str, *counts: int) -> np.ndarray:
        """The finite numbers of a key, as many as one of `counts`; angles with a D in radians."""
        words = self.values.get(key, [])
        values = [_number(word) for word in words]
        if len(words) not in counts or any(value is None for value in values):
            need = " or ".join(map(str, counts))
            raise self.error(f"{key} must hold {need} finite number(s), got {', '.join(words)[:80]!r}.")
        return np.array(values, float)

    def numeral(self, key: str, default: float | None = None) -> float:
        """One number."""
        if key not in self.values and default is not None:
            return default
        return float(self.numbers(key, 1)[0])

    def identifier(self, key: str) -> int:
        """The number of another statement."""
        value = self.numeral(key) if key in self.values else math.nan
        if not value.is_integer():
            raise self.error(f"it has no {key} = id.")
        return int(value)

    def vector(self, key: str) -> np.ndarray:
        """Three numbers, zero if they are not given."""
        return self.numbers(key, 3) if key in self.values else np.zeros(3)

    def text(self, key: str) -> str:
        """The text of a key."""
        return " ".join(self.values.get(key, []))

    def placement(self, point: str, z_point: str, x_point: str, length: float) -> Placement:
        """A placement by the position of its origin, and Euler angles (3-1-3) or points on its z axis and in its x-z
        plane; `length` [m]: the unit."""
        origin = self.vector(point)
        if "REULER" in self.values:
            turn = Rotation.from_euler("ZXZ", self.vector("REULER"))
        elif z_point in self.values or x_point in self.values:
            turn = self._by_points(origin, z_point, x_point)
        else:
            turn = Rotation.identity()
        return Placement(length * origin, turn)

    def _by_points(self, origin: np.ndarray, z_point: str, x_point: str) -> Rotation:
        z = self.vector(z_point) - origin if z_point in self.values else np.array([0.0, 0.0, 1.0])
        x = self.vector(x_point) - origin if x_point in self.values else np.array([1.0, 0.0, 0.0])
        if "USEXP" in self.flags:  # x_point is on the x axis, and z_point in the x-z plane
            y = np.cross(z, x)
            z = np.cross(x, y)
        elif x_point not in self.values and np.linalg.norm(np.cross(z, x)) < 1e-9 * np.linalg.norm(z):
            x = np.array([0.0, 0.0, -1.0])  # z along the old x axis: any other one
        y = np.cross(z, x)
        if not np.linalg.norm(y) > 0:
            raise self.error(f"{z_point} and {x_point} lie on one line through the origin of the frame.")
        axes = np.stack([np.cross(y, z), y, z], axis=1)
        return Rotation.from_matrix(axes / np.linalg.norm(axes, axis=0))


def _number(word: str) -> float | None:
    """A number as Adams writes it; None for anything else, or if it is not finite."""
    match = _NUMBER.fullmatch(word.replace(" ", ""))
    if match is None:
        return None
    value = float(word.replace(" ", "").rstrip("dD"))
    value = math.radians(value) if match[3] else value
    return value if math.isfinite(value) else None


def read_statements(path: Path, keywords: tuple[str, ...]) -> list[Statement]:
    """The statements of a dataset, up to its END; the first line is a title.

    **Raises:** `MechanismError` with the line, if the file is no text, or a statement has no form.
    """
    try:
        lines = read_bytes(path).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        lines = read_bytes(path).decode("latin-1").splitlines()  # names of old files
    if any("\0" in line for line in lines):
        raise file_error(path, "no text: it has zero bytes.")
    found: list[Statement] = []
    for number, text, view_name in _joined(path, lines):
        statement = _statement(path, number, text, view_name, keywords)
        if statement.keyword == "END":
            break
        found.append(statement)
    return found


def _joined(path: Path, lines: list[str]) -> list[tuple[int, str, str]]:
    """Each statement on one line: its line in the file, its text, and its name in Adams View."""
    found: list[tuple[int, str, str]] = []
    view_name, ends_open = "", False
    for number, line in enumerate(lines, 1):
        text, _, comment = line.partition("!")
        if match := _VIEW_NAME.search(comment):
            view_name = match[1]
        text = text.strip()
        if number == 1 and not _begins(text):
            continue  # the title
        if not text:
            continue
        continues, goes_on = text.startswith(",") or ends_open, text.endswith("&")
        text, ends_open = text.rstrip("&"), goes_on
        if not continues:
            found.append((number, text, view_name))
            view_name = ""
            continue
        if not found:
            raise file_error(path, "the line continues a statement, and there is none before it.", number)
        start, before, name = found[-1]
        own = text.removeprefix(",").strip()
        depth = before.count(_OPEN) - before.count(_CLOSE)
        is_operator = before.rstrip()[-1:] in _OPERATORS or own[:1] in "+-*/)"
        joint = " " if (depth and is_operator) or before.rstrip().endswith(",") else " , "
        found[-1] = start, before + joint + own, name
        if len(found[-1][1]) > _LONGEST:
            raise file_error(path, f"a statement has more than {_LONGEST} characters.", start)
    return found


def _begins(text: str) -> bool:
    """Whether a first line is a statement, though it should be a title: ADAMS/View model name: … is one."""
    return bool(re.match(r"[A-Za-z_]+\s*/", text)) and not text.upper().startswith("ADAMS")


def _statement(path: Path, line: int, text: str, view_name: str, keywords: tuple[str, ...]) -> Statement:
    head, slash, rest = text.partition("/")
    word = head.strip().upper()
    if not slash:
        word, _, rest = text.partition(",")
        word = word.strip().upper()
    whole = [word] if word in keywords else [name for name in keywords if name.startswith(word)]
    if len(whole) > 1:
        raise file_error(path, f"{word!r} abbreviates {' as well as '.join(whole)}; write it in full.", line)
    statement = Statement(path, line, whole[0] if whole else word[:40], 0, view_name)
    pieces = _pieces(rest)
    if pieces and pieces[0].isdigit():
        statement.number = int(pieces.pop(0))
    key = ""
    for piece in pieces:
        name, equals, value = piece.partition("=")
        if equals and re.fullmatch(r"\s*\w+\s*", name) and piece.count(_OPEN) >= piece.count(_CLOSE):
            key = name.strip().upper()
            statement.twice += [key] if key in statement.values else []
            statement.values[key] = [value.strip()] if value.strip() else []
        elif key and (key in _TEXTS or _is_text_key(key) or _number(piece) is not None or ":" in piece):
            statement.values[key].append(piece)
        else:
            statement.flags.append(piece.upper())
    return statement


def _is_text_key(key: str) -> bool:
    return len(key) >= 3 and any(text.startswith(key) for text in _TEXTS)


def _pieces(text: str) -> list[str]:
    """A text, split at its commas and backslashes outside of parentheses."""
    pieces, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character == _OPEN) - (character == _CLOSE)
        if character in ",\\" and depth <= 0:
            pieces.append(text[start:place])
            start = place + 1
    return [piece.strip() for piece in (*pieces, text[start:]) if piece.strip()]
