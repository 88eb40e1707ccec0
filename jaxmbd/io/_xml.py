"""XML as data: elements with their lines, without document types, entities or anything that reads another file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import file_error

_DEEPEST = 200  # nested elements: far more than any model has, and fewer than recursion bears
_LARGEST = 64 * 2**20  # [bytes] of one file


@dataclass
class Element:
    """An XML element: its `tag` (without the prefix of a namespace), attributes, children, text and line."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> list["Element"]:
        """The children with a tag."""
        return [child for child in self.children if child.tag == tag]

    def first(self, tag: str) -> "Element | None":
        """The first child with a tag, None if there is none."""
        return next(iter(self.all(tag)), None)

    def descendants(self) -> Iterator["Element"]:
        """This element and all below it."""
        yield self
        for child in self.children:
            yield from child.descendants()


def read_bytes(path: Path) -> bytes:
    """The content of a file; raise if there is none, or if it is too large for a model."""
    if not path.is_file():
        raise file_error(path, "there is no such file.")
    if path.stat().st_size > _LARGEST:
        raise file_error(path, f"the file has {path.stat().st_size} bytes; a model has at most {_LARGEST}.")
    return path.read_bytes()


def read_xml(path: Path, content: bytes | None = None) -> Element:
    """The root element of an XML file, or of its `content`, if that comes from elsewhere than the path.

    **Raises:** `MechanismError` with the line, if the file is no well-formed XML, has a document type (which may define
    entities that grow without bound, or that read other files; no model needs one), or nests too deeply.
    """
    text = read_bytes(path) if content is None else content
    root = Element("", {}, 0)
    open_elements = [root]
    # Nothing is resolved outside: expat calls no handler for external entities, and a document type raises before any.
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(open_elements) > _DEEPEST:
            raise file_error(path, f"elements nest deeper than {_DEEPEST}.", parser.CurrentLineNumber)
        element = Element(tag.rpartition(":")[2], attributes, parser.CurrentLineNumber)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def characters(data: str) -> None:
        open_elements[-1].text += data

    def doctype(name: str, *_: object) -> None:
        text = f"it has a document type (<!DOCTYPE {name}), which may define entities; a model needs none. Remove it."
        raise file_error(path, text, parser.CurrentLineNumber)

    parser.StartElementHandler, parser.EndElementHandler = start, lambda tag: open_elements.pop()
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = characters, doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise file_error(path, f"no well-formed XML: {expat.ErrorString(error.code)}.", error.lineno) from None
    except MechanismError:
        raise
    except (LookupError, ValueError) as error:  # an encoding that is unknown, or that expat cannot read
        raise file_error(path, f"no well-formed XML: {error}. Save the file as UTF-8.", 1) from None
    return root.children[0]


def words(numbers: Iterable[Any]) -> str:
    """Numbers as an attribute, with all their digits."""
    return " ".join(repr(float(number)) for number in numbers)
