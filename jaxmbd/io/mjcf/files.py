"""What is checked of an MJCF file before MuJoCo reads it: which files it refers to, and how many copies it makes."""

from collections.abc import Iterator
from pathlib import Path

from jaxmbd.io._imported_model import file_error
from jaxmbd.io._xml import Element, read_xml

_FOLDERS = ("meshdir", "texturedir", "assetdir")
# Elements whose `file` is a model again, whatever its suffix; MuJoCo takes `Include` for `include`.
_MODELS = ("include", "model")
_MOST_COPIES = 10_000  # of bodies by replicate, composite and flexcomp together: what still fits into memory


def check_files(path: Path, root: Element, within: Path) -> None:
    """Raise if a model, or a model that it includes, refers to a file outside the folder `within`.

    MuJoCo looks for a file in the folder of the model or in one of those of `<compiler>`, so all of them are checked.
    """
    within = within.resolve()
    checked: set[Path] = set()
    waiting = [(path, root)]
    while waiting:
        file, element = waiting.pop()
        _check_copies(file, element, 1)
        folders = [path.parent, file.parent]
        for _, name, value in _references(element):
            folders += [folder / value for folder in folders[:2]] if name in _FOLDERS else []
        for owner, name, value in _references(element):
            for place in {(folder / value).resolve() for folder in folders}:
                _check_place(file, owner, name, value, place, within)
                if owner.tag.lower() in _MODELS and place.is_file() and place not in checked:
                    checked.add(place)
                    waiting.append((place, read_xml(place)))


def _references(root: Element) -> Iterator[tuple[Element, str, str]]:
    """The attributes that name files or folders: the element, the attribute, its value."""
    for element in root.descendants():
        for name, value in element.attributes.items():
            if name.startswith("file") or name in _FOLDERS:
                yield element, name, value


def _check_place(file: Path, owner: Element, name: str, value: str, place: Path, within: Path) -> None:
    if ":" in value or "\\" in value or Path(value).is_absolute() or not place.is_relative_to(within):
        text = f'<{owner.tag} {name}="{value}"> leads outside of {str(within)!r}; files elsewhere are not read. '
        text += "Copy them there, or pass within= (for the command: --within), the folder that holds all of them."
        raise file_error(file, text, owner.line)


def _check_copies(file: Path, element: Element, copies: int) -> None:
    if element.tag in ("replicate", "composite", "flexcomp"):
        for number in element.attributes.get("count", "1").split():
            copies *= abs(int(number)) if number.lstrip("+-").isdecimal() else 1
        if copies > _MOST_COPIES:
            text = f"<{element.tag}> makes {copies} copies; at most {_MOST_COPIES} are read."
            raise file_error(file, text, element.line)
    for child in element.children:
        _check_copies(file, child, copies)
