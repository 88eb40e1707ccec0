"""What is checked of an MJCF file before MuJoCo reads it: files that it refers to, copies that it makes, numbers for
which MuJoCo allocates memory."""

import math
from collections.abc import Iterator
from pathlib import Path

from jaxmbd.io._imported_model import file_error
from jaxmbd.io._xml import Element, read_xml

_FOLDERS = ("meshdir", "texturedir", "assetdir")
# Elements whose `file` is a model again, whatever its suffix; MuJoCo takes `Include` for `include`.
_MODELS = ("include", "model")
_COPIERS = ("replicate", "composite", "flexcomp")
_MOST_COPIES = 10_000  # of bodies by all of these together, in all files: what still fits into memory
_LARGEST_FILE = 2**30  # [bytes] of a mesh, a texture or a height field
# The largest numbers for which MuJoCo allocates memory; those of models in use are a tenth of them or less. The sizes
# of its arena (njmax, nconmax, nstack, memory) are not among them: `source.py` sets that.
_USERS = ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor")
_LIMITS = {
    **dict.fromkeys(("nkey", "dim", "nsample", "actdim"), 10_000),
    **dict.fromkeys((f"nuser_{kind}" for kind in _USERS), 1_000),
    **dict.fromkeys(("nuserdata", "size"), 1_000_000),
    **dict.fromkeys(("width", "height", "nrow", "ncol"), 8_192),
    "params": 1_000,  # the resolution of a mesh that MuJoCo makes
}
_COUNTED = ("size", "numeric", "user", "texture", "hfield", "mesh")  # elements in which these names are such numbers
_ANYWHERE = ("nsample", "actdim")  # numbers of sensors and actuators of any kind


def check_files(path: Path, root: Element, within: Path) -> None:
    """Raise if a model, or a model that it includes, refers to a file outside the folder `within`, or to what is no
    plain file, or asks for more memory than a model needs.

    MuJoCo looks for a file in the folder of the model or in one of those of `<compiler>`, with the folders of its name
    or without, so all of them are checked.
    """
    within = within.resolve()
    models: dict[Path, Element] = {path.resolve(): root}
    inserted: dict[int, list[Path]] = {}  # by the identity of an element, the models that it stands for
    waiting = [(path, root)]
    while waiting:
        file, element = waiting.pop()
        folders = [path.parent, file.parent]
        for _, name, value in _references(element):
            folders += [folder / value for folder in folders[:2]] if name in _FOLDERS else []
        for owner, name, value in _references(element):
            for place in {(folder / x).resolve() for folder in folders for x in (value, Path(value).name)}:
                _check_place(file, owner, name, value, place, within)
                if owner.tag.lower() in _MODELS and place.is_file():
                    inserted.setdefault(id(owner), []).append(place)
                    if place not in models:
                        models[place] = read_xml(place)
                        waiting.append((place, models[place]))
        _check_numbers(file, element)
    _Copies(models, inserted).check(path)


def _references(root: Element) -> Iterator[tuple[Element, str, str]]:
    """The attributes that name files or folders: the element, the attribute, its value."""
    for element in root.descendants():
        for name, value in element.attributes.items():
            if name.startswith("file") or name in _FOLDERS:
                yield element, name, value


def _check_place(file: Path, owner: Element, name: str, value: str, place: Path, within: Path) -> None:
    given = f'<{owner.tag} {name}="{value}">'
    if ":" in value or "\\" in value or Path(value).is_absolute() or not place.is_relative_to(within):
        text = f"{given} leads outside of {str(within)!r}; files elsewhere are not read. "
        text += "Copy them there, or pass within= (for the command: --within), the folder that holds all of them."
        raise file_error(file, text, owner.line)
    if place.is_file():
        if place.stat().st_size > _LARGEST_FILE:
            raise file_error(file, f"{given} is larger than {_LARGEST_FILE} bytes, the limit of a file.", owner.line)
    elif place.exists() and not place.is_dir():  # opening a pipe or a device may wait for ever
        raise file_error(file, f"{given} is no plain file, but a pipe or a device; these are not read.", owner.line)


def _check_numbers(file: Path, root: Element) -> None:
    """Raise for a number that would have MuJoCo allocate more memory than a model needs."""
    for element in root.descendants():
        tag = element.tag.lower()
        for name, value in element.attributes.items():
            limit = _LIMITS.get(name, math.inf) if tag in _COUNTED or name in _ANYWHERE else math.inf
            if max((abs(_number(word)) for word in value.split()), default=0.0) > limit:
                text = f'<{element.tag} {name}="{value}"> is larger than {limit}, the most that is read.'
                raise file_error(file, text, element.line)


def _number(text: str) -> float:
    """A number as MuJoCo may read it, also "1e8"; zero for what is none."""
    try:
        return float(text)
    except ValueError:
        return 0.0


class _Copies:
    """How many copies all elements of a model make, with those of the models that it includes or attaches.

    `models`: the roots by file; `inserted`: by the identity of an element, the models that it stands for.
    """

    def __init__(self, models: dict[Path, Element], inserted: dict[int, list[Path]]) -> None:
        self.models, self.inserted = models, inserted
        self.found: dict[Path, float] = {}
        self.attachable = {
            place: [file for x in root.descendants() if x.tag.lower() == "model" for file in inserted.get(id(x), ())]
            for place, root in models.items()
        }

    def check(self, path: Path) -> None:
        """Raise if they are too many."""
        for element in self.models[path.resolve()].children:
            self._check(path, element)

    def _check(self, path: Path, element: Element) -> None:
        copies = self._below(element, path.resolve())
        if copies <= _MOST_COPIES:
            return
        for child in element.children if self._times(element) == 1 else ():
            self._check(path, child)  # the innermost element that makes too many is named
        text = f"<{element.tag}> makes {copies:.0f} copies; at most {_MOST_COPIES} are read."
        raise file_error(path, text, element.line)

    def _below(self, element: Element, file: Path) -> float:
        """The number of copies that an element and those below it make."""
        tag = element.tag.lower()
        inner = sum(self._below(child, file) for child in element.children)
        if tag == "include":
            inner += sum(map(self._of_file, self.inserted.get(id(element), ())))
        elif tag == "attach":  # whichever of the models it names
            inner += 1 + max(map(self._of_file, self.attachable[file]), default=0.0)
        return inner if tag not in _COPIERS else self._times(element) * max(inner, 1.0)

    def _times(self, element: Element) -> float:
        if element.tag.lower() not in _COPIERS:
            return 1.0
        counts = element.attributes.get("count", "1").split()
        return math.prod(max(abs(_number(word)), 1.0) for word in counts)

    def _of_file(self, place: Path) -> float:
        """The same for a file; one that includes itself, which MuJoCo refuses, counts once."""
        if place not in self.found:
            self.found[place] = 0.0
            self.found[place] = self._below(self.models[place], place)
        return self.found[place]
