"""Shapes in model files: tables of a kind, sizes, a pose and a colour.

A mesh is named by the path of its file relative to the model file, if it is in the folder of that or in one within it;
else the file holds its vertices and triangles as bytes in base 64: floats and whole numbers of 32 bits, little-endian.
"""

import base64
import binascii
from pathlib import Path
from typing import Any

import numpy as np

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.io.model_file.source import Place
from jaxmbd.space.mesh_files import MOST_BYTES, Mesh, check_mesh
from jaxmbd.space.shape import KINDS, Shape, Three, Triangles
from jaxmbd.space.shapes import mesh

_COMMON = ("position", "rotation", "colour", "opacity")
_OF_MESH = ("file", "scale", "vertices", "triangles", "colours")
KEYS = ("kind", "size", *_COMMON, *_OF_MESH)
_TYPES = {"vertices": "<f4", "triangles": "<u4", "colours": "u1"}


def shape_table(shape: Shape, folder: Path | None) -> dict[str, object]:
    """The table of a shape, in a model file in a folder."""
    table: dict[str, object] = {"kind": shape.kind}
    if shape.triangles is not None:
        table |= _mesh_table(shape.triangles, folder)
    else:
        table["size"] = list(shape.size)
    for name, default in (("position", Shape.position), ("rotation", Shape.rotation)):
        value = getattr(shape, name)
        if value != default:
            table[name] = list(value)
    if shape.colour is not None:
        table["colour"] = shape.colour
    if shape.opacity != 1.0:
        table["opacity"] = shape.opacity
    return table


def _mesh_table(triangles: Triangles, folder: Path | None) -> dict[str, object]:
    if folder is not None and triangles.file and _is_still_there(triangles):
        path, folder = Path(triangles.file), folder.resolve()
        if path.is_relative_to(folder):
            scale = triangles.scale
            factor = scale[0] if len({*scale}) == 1 else list(scale)
            return {"file": path.relative_to(folder).as_posix(), **({} if factor == 1.0 else {"scale": factor})}
    arrays = {"vertices": triangles.vertices, "triangles": triangles.faces, "colours": triangles.colours}
    given = {name: array for name, array in arrays.items() if array is not None}
    return {name: base64.b64encode(array.tobytes()).decode("ascii") for name, array in given.items()}


def _is_still_there(triangles: Triangles) -> bool:
    """True if the file of a mesh has what was read from it."""
    try:
        return mesh(triangles.file, triangles.scale).triangles == triangles
    except MechanismError:
        return False


def shape_of(table: Any, place: Place) -> Shape:
    """The shape that a table describes.

    **Raises:** `MechanismError` with file, line and reason.
    """
    if not isinstance(table, dict):
        raise place.error("must be a table, such as { kind = 'box', size = [0.1, 0.02, 0.02] }.")
    kind = table.get("kind")
    if kind not in KINDS:
        raise place.at("kind").error(str(unknown("kind of shape", kind, KINDS)))
    place.check_keys(f"entry of a {kind}", table, KEYS)
    own = ("size",) if kind == "mesh" else _OF_MESH
    for key in own:
        if key in table:
            raise place.at(key).error(f"has no meaning for a {kind}.")
    given: dict[str, Any] = {key: table[key] for key in ("size", *_COMMON) if key in table}
    for key, value in given.items():
        _check(value, key, place.at(key))
        given[key] = tuple(map(float, value)) if isinstance(value, list) else value
    try:
        return Shape(kind, triangles=_triangles(table, place) if kind == "mesh" else None, **given)
    except MechanismError as error:
        if str(error).startswith(repr(place.source.name)):
            raise
        raise place.located(str(error)) from None


def _check(value: object, key: str, place: Place) -> None:
    if key == "colour":
        if not isinstance(value, str):
            raise place.error(f'must be text such as "#0072b2", got {value!r}.')
        return
    numbers = [value] if key == "opacity" else value
    if not isinstance(numbers, list) or not all(type(x) in (int, float) for x in numbers):
        raise place.error(f"must be {'a number' if key == 'opacity' else 'a list of numbers'}, got {value!r}.")


def _triangles(table: dict[str, Any], place: Place) -> Triangles:
    if "file" in table:
        for key in ("vertices", "triangles", "colours"):
            if key in table:
                raise place.at(key).error("a mesh has either a file, or vertices and triangles.")
        return place.source.meshes.triangles(mesh_path(table["file"], place.at("file")), _scale(table, place))
    if "scale" in table:
        raise place.at("scale").error("belongs to a file; vertices are in metres.")
    for key in ("vertices", "triangles"):
        if key not in table:
            raise place.located(f"a mesh has no {key!r}; give its file, or vertices and triangles in base 64.")
    arrays = {key: _bytes(table[key], key, place.at(key)) for key in _TYPES if key in table}
    read = Mesh(arrays["vertices"], arrays["triangles"].astype(np.int64), arrays.get("colours"))
    check_mesh("the mesh", read)
    if read.colours is not None and len(read.colours) != len(read.faces):
        raise place.at("colours").error(f"there must be three bytes for each of {len(read.faces)} triangles.")
    return Triangles.of(read)


def _bytes(text: object, key: str, place: Place) -> np.ndarray:
    """An array with rows of three."""
    try:
        content = base64.b64decode(text.encode("ascii"), validate=True) if isinstance(text, str) else b""
    except (binascii.Error, UnicodeEncodeError):
        content = b""
    each = 3 * np.dtype(_TYPES[key]).itemsize
    if not content or len(content) % each or len(content) > MOST_BYTES:
        need = f"at most {MOST_BYTES // 2**20} MiB in base 64, {each} bytes for each of its rows of three"
        raise place.error(f"must be text: {need}.")
    return np.frombuffer(content, _TYPES[key]).reshape(-1, 3)


def _scale(table: dict[str, Any], place: Place) -> Three:
    given = table.get("scale", 1.0)
    values = [given] * 3 if type(given) in (int, float) else given
    is_scale = isinstance(values, list) and len(values) == 3 and all(type(x) in (int, float) for x in values)
    if not is_scale or not all(np.isfinite(x) and x for x in map(float, values)):
        raise place.at("scale").error(f"must be a number that is not zero, or three, got {given!r}.")
    x, y, z = map(float, values)
    return x, y, z


def mesh_path(name: object, place: Place) -> Path:
    """The file of a mesh, within the folder of the model file."""
    if not isinstance(name, str) or not name or ":" in name or "\\" in name or Path(name).is_absolute():
        raise place.error(f"must be a path relative to the model file, such as 'meshes/arm.stl', got {name!r}.")
    try:
        return place.source.meshes.path(place.source.folder / name)
    except MechanismError as error:
        raise place.error(f"{name!r}: {error}.") from None
