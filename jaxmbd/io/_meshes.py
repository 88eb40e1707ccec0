"""The meshes that one model names: read once each, from one folder, and few enough to be kept."""

from pathlib import Path

from jaxmbd.errors import MechanismError
from jaxmbd.space.mesh_files import Mesh, read_mesh
from jaxmbd.space.shape import Three, Triangles

MOST_IN_ALL = 8_000_000  # triangles of all meshes of one model, each counted once for each of its scales
IDENTITY: Three = (1.0, 1.0, 1.0)


class Meshes:
    """The meshes of one model, in files within a folder."""

    def __init__(self, within: Path) -> None:
        self.within = within
        self._read: dict[Path, Mesh] = {}
        self._scaled: dict[tuple[Path, Three], Triangles] = {}

    def path(self, *candidates: Path) -> Path:
        """The first of several places of a file that is one; raise if there is none, or if it is outside the folder."""
        within = self.within.resolve()
        inside = [place for x in candidates if (place := x.resolve()).is_relative_to(within)]
        found = next((place for place in inside if place.is_file()), None)
        if found is not None:
            return found
        if not inside:
            raise MechanismError(f"it leads outside of {str(within)!r}, whose files alone are read")
        raise MechanismError(f"there is no file {str(inside[0])!r}")

    def triangles(self, path: Path, scale: Three = IDENTITY) -> Triangles:
        """The mesh of a file, scaled along its axes.

        **Raises:** `MechanismError`, as `read_mesh`, and if all meshes together are too large.
        """
        key = path, scale
        if key not in self._scaled:
            if path not in self._read:
                self._read[path] = read_mesh(path)
            self._scaled[key] = Triangles.of(self._read[path], str(path), scale)
            if sum(len(found.faces) for found in self._scaled.values()) > MOST_IN_ALL:
                raise MechanismError(f"the meshes of this model have more than {MOST_IN_ALL} triangles, the limit")
        return self._scaled[key]
