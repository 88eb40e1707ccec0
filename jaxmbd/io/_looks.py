"""What bodies of an imported model look like: shapes from the file, and remarks on those that cannot be shown."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import Remarks
from jaxmbd.io._meshes import IDENTITY, Meshes
from jaxmbd.io._placement import Owner, Placement
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.body.spatial import Body
from jaxmbd.space.shape import Shape, Three
from jaxmbd.upstream.equinox_internals import with_fields

_NAMED = 4  # shapes that are not shown, each with a remark of its own
_SCHEME = re.compile("(package|model)://([^/]+)/(.+)")
_PLACE = re.compile(r"^'[^']*'(, line \d+)?: ")  # of an error, which a remark has itself


class Looks:
    """The shapes of one model, by the bodies that they are on; `within`: the folder of all meshes."""

    def __init__(self, path: Path, within: Path, remarks: Remarks) -> None:
        self.path, self.within, self.remarks = path, within, remarks
        self.meshes = Meshes(within)
        self._found: dict[str, list[Shape]] = {}
        self._unseen: list[tuple[str, str, int | None]] = []

    def add(
        self, part: str, line: int | None, owner: Owner, make: Callable[[], tuple[Shape, Placement] | None]
    ) -> None:
        """Add a shape at a placement in the frame of its owner; one that cannot be shown is remarked."""
        try:
            made = make()
            if made is not None:
                shape, placement = made
                placed = owner.frame @ placement
                shown = shape.placed(placed.position, placed.euler_parameters)
                self._found.setdefault(owner.body.name, []).append(shown)
        except MechanismError as error:
            self._unseen.append((part, _PLACE.sub("", str(error)).rstrip("."), line))

    def mesh(self, name: str, scale: Three = IDENTITY) -> Shape:
        """The mesh that a file names: relative to the file, or in a package, which is the folder of that name among
        those around the file, or one of these themselves.

        **Raises:** `MechanismError` if it is not there, cannot be read, or lies outside of `within`.
        """
        package = _SCHEME.fullmatch(name)
        folder = self.path.parent.resolve()
        if package:
            around = [folder, *folder.parents]
            places = [base / rest for base in around for rest in (package[3], f"{package[2]}/{package[3]}")]
        elif "://" in name or "\\" in name:
            raise MechanismError(f"mesh {name!r} is not in a folder that is read here; give a relative path")
        else:
            places = [folder / name]
        try:
            path = self.meshes.path(*places)
        except MechanismError as error:
            outside = next((place for place in places if place.is_file()), None)
            if outside is None:
                raise MechanismError(f"mesh {name!r}: {error}") from None
            text = (
                f"it is at {str(outside.resolve())!r}, outside of {str(self.within)!r}: pass within= (for the command: "
            )
            raise MechanismError(f"mesh {name!r}: {text}--within), the folder that holds all files") from None
        try:
            return Shape("mesh", (), self.meshes.triangles(path, scale))
        except MechanismError as error:
            raise MechanismError(f"mesh {name!r}: {_PLACE.sub('', str(error))}") from None

    def dressed(self, bodies: Iterable[Body]) -> list[Body]:
        """The bodies with their shapes, and remarks on what is not shown."""
        for part, text, line in self._unseen[:_NAMED]:
            self.remarks.changed(part, f"looks otherwise here: {text}", line)
        rest = self._unseen[_NAMED:]
        if rest:
            names = ", ".join(dict.fromkeys(part for part, _, _ in rest))
            listed = names if len(names) < 200 else f"{names[:200]} …"
            self.remarks.changed(f"{len(rest)} more shapes", f"are not shown, for such reasons: of {listed}")
        return [
            with_fields(body, shape=tuple(self._found[body.name])) if body.name in self._found else body
            for body in bodies
        ]

    @property
    def scenery(self) -> tuple[Shape, ...]:
        """The shapes on the ground."""
        return tuple(self._found.get(GROUND, ()))


def hex_colour(rgb: Sequence[float] | np.ndarray) -> str:
    """`"#rrggbb"` of red, green and blue from 0 to 1."""
    return "#" + "".join(f"{round(255 * min(max(float(x), 0.0), 1.0)):02x}" for x in rgb[:3])
