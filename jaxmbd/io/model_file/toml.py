"""TOML text of a tree of tables: a person reads it, and it has every float to the last bit."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

Tables: TypeAlias = dict[str, Any]  # by name, with whatever values TOML has: who reads them checks them

WIDTH = 110  # longest line of a list
_TABLE = 200  # longest table in one line: that of a marker in space, its numbers with all their digits
_INDENT = "    "


class Section(dict[str, Any]):
    """A table that has a heading of its own, however short it is."""


def toml(tree: Mapping[str, Any]) -> str:
    """Return a tree of tables, lists, strings, numbers and truth values as TOML.

    Tables and lists that fit into a line are written into one; longer tables become sections.

        >>> toml({"format": "x/1", "bodies": Section(rod=Section(mass=1.5, pose=[0.0, 0.1, -1e-300]))})
        'format = "x/1"\\n\\n[bodies.rod]\\nmass = 1.5\\npose = [0.0, 0.1, -1e-300]\\n'
    """
    return "\n".join(_lines(tree, ())).strip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    sections = {key: value for key, value in table.items() if _is_section(key, value)}
    own = {key: value for key, value in table.items() if key not in sections}
    if path and (own or not sections):
        yield ""
        yield f"[{'.'.join(map(_key, path))}]"
    for key, value in own.items():
        yield f"{_key(key)} = {_value(value, '')}"
    for key, value in sections.items():
        yield from _lines(value, (*path, key))


def _is_section(key: str, value: object) -> bool:
    is_long = isinstance(value, Mapping) and len(_key(key)) + len(_in_one_line(value)) > _TABLE
    return isinstance(value, Section) or is_long


def _value(value: object, indent: str) -> str:
    """A value, broken into lines where it is too long for one."""
    text = _in_one_line(value)
    longest = _TABLE if isinstance(value, Mapping) else WIDTH
    if len(indent) + len(text) <= longest or not isinstance(value, Mapping | list | tuple) or not value:
        return text
    if isinstance(value, Mapping):  # TOML allows line breaks only within the values of a table among values
        return f"{{ {', '.join(f'{_key(key)} = {_value(item, indent)}' for key, item in value.items())} }}"
    deeper = indent + _INDENT
    items = [f"{_value(item, deeper)}," for item in value]
    lines = items if any(isinstance(item, Mapping | list | tuple) for item in value) else _packed(items, len(deeper))
    return "\n".join(["[", *(deeper + line for line in lines), f"{indent}]"])


def _packed(words: Sequence[str], indent: int) -> Iterator[str]:
    """As many words in each line as fit."""
    line: list[str] = []
    length = indent
    for word in words:
        if line and length + len(word) > WIDTH:
            yield " ".join(line)
            line, length = [], indent
        line.append(word)
        length += len(word) + 1
    yield " ".join(line)


def _in_one_line(value: object) -> str:
    if isinstance(value, Mapping):
        items = ", ".join(f"{_key(key)} = {_in_one_line(item)}" for key, item in value.items())
        return f"{{ {items} }}" if items else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_one_line, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _text(value) if isinstance(value, str) else repr(value)  # of a float: the shortest that names it


def _key(key: str) -> str:
    is_bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if is_bare else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
