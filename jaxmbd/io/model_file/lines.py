"""The line of each key in a TOML text that has been parsed without an error.

`tomllib` gives no places. What it has accepted need not be checked again, so a few tokens tell where keys stand.
"""

import re
import tomllib

Keys = tuple[str | int, ...]

_TOKEN = re.compile(
    r"""
    (?P<string> "{3}(?:\\.|[^\\])*?"{3,5} | '{3}.*?'{3,5} | "(?:\\.|[^"\\])*" | '[^']*' )
    | (?P<skipped> [ \t\r]+ | \#[^\n]* )
    | (?P<mark> [\[\]{}=,.\n] )
    | (?P<word> [^\s\[\]{}=,."'\#]+ )
    """,
    re.VERBOSE | re.DOTALL,
)


def lines_of(text: str) -> dict[Keys, int]:
    """Return the line, counted from 1, of each key, and of each table or list within a list.

    >>> lines_of("[bodies.rod]\\nmass = 1")[("bodies", "rod", "mass")]
    2
    """
    return _Scan(text).lines


class _Scan:
    """A walk over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Keys, int] = {}
        self._tokens: list[tuple[str, int]] = []
        line = 1
        for match in _TOKEN.finditer(text):
            if match.lastgroup != "skipped":
                self._tokens.append((match[0], line))
            line += match[0].count("\n")
        self._next = 0
        self._tables: dict[Keys, int] = {}  # how many tables an array of tables has
        self._statements()

    def _token(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    def _take(self, *marks: str) -> bool:
        """Go past the next token if it is one of some."""
        taken = self._token() in marks
        self._next += taken
        return taken

    def _statements(self) -> None:
        table: Keys = ()
        while self._token():
            if self._take("\n"):
                continue
            if self._take("["):
                is_array = self._take("[")
                table = self._heading(is_array)
                self._take("]")
                self._take("]")
            else:
                self._pair(table)

    def _heading(self, is_array: bool) -> Keys:
        line = self._tokens[self._next][1]
        keys: Keys = ()
        names = self._names()
        for k, name in enumerate(names):
            keys = (*keys, name)
            if is_array and k == len(names) - 1:
                self._tables[keys] = self._tables.get(keys, -1) + 1
            self.lines.setdefault(keys, line)
            if keys in self._tables:
                keys = (*keys, self._tables[keys])
                self.lines.setdefault(keys, line)
        return keys

    def _names(self) -> list[str]:
        """The names of a dotted key."""
        names: list[str] = []
        while self._token() not in ("", "=", "]", "\n"):
            if not self._take("."):
                token = self._token()
                names += tomllib.loads(f"{token} = 0") if token[0] in "\"'" else [token]
                self._next += 1
        return names

    def _pair(self, table: Keys) -> None:
        line, names = self._tokens[self._next][1], self._names()
        for k in range(len(names)):
            self.lines.setdefault((*table, *names[: k + 1]), line)
        self._take("=")
        self._value((*table, *names))

    def _value(self, keys: Keys) -> None:
        if self._take("{"):
            while not self._take("}", ""):
                if not self._take(",", "\n"):
                    self._pair(keys)
        elif self._take("["):
            self._items(keys)
        else:
            while self._token() not in ("", ",", "]", "}", "\n"):
                self._next += 1

    def _items(self, keys: Keys) -> None:
        index = 0
        while not self._take("]", ""):
            if self._take(","):
                index += 1
            elif not self._take("\n"):
                if self._token() in ("[", "{"):
                    self.lines[(*keys, index)] = self._tokens[self._next][1]
                self._value((*keys, index))


def line_at(lines: dict[Keys, int], keys: Keys) -> int | None:
    """Return the line of a key, or of the innermost table around it that has one."""
    for n in range(len(keys), 0, -1):
        if keys[:n] in lines:
            return lines[keys[:n]]
    return None
