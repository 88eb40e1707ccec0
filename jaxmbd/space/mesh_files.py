"""Meshes from files: STL, OBJ, PLY, OFF, GLB and glTF, read by trimesh.

A file is data: what trimesh does not check is checked before, sizes are limited, and no file elsewhere is read.
"""

import importlib
import json
import struct
import warnings
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer, UInt8

from jaxmbd.errors import MechanismError, needs, printable

SUFFIXES = (".stl", ".obj", ".ply", ".off", ".glb", ".gltf")
MOST_BYTES = 64 * 2**20  # of a file, with those that it refers to
MOST_TRIANGLES = 2_000_000
_MOST_NODES = 10_000  # of a scene in glTF
_GLB_HEAD, _CHUNK_HEAD, _JSON = 12, 8, 0x4E4F534A  # lengths [bytes] and the name of a chunk (glTF 2.0, 4.4)
_STL_HEAD, _STL_FACE = 84, 50  # lengths [bytes] of what precedes the triangles, and of one


class Mesh(NamedTuple):
    """Vertices `(n, 3)` in the units of the file, triangles `(m, 3)`, and colours `(m, 3)` of these, or None."""

    vertices: Float[np.ndarray, "_ 3"]
    faces: Integer[np.ndarray, "_ 3"]
    colours: UInt8[np.ndarray, "_ 3"] | None = None


def read_mesh(path: Path) -> Mesh:
    """The mesh of a file, the parts of a scene joined into one.

    **Raises:** `MechanismError` if trimesh is missing, or the file is missing, broken, empty, too large or of another
    kind, or has a vertex that is not finite. A glTF or OBJ file may refer to files in its own folder alone.
    """
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise _error(path, f"this is no mesh that is read here; those end with {', '.join(SUFFIXES)}.")
    folder = _Folder(path.parent)
    content = folder.read(path)
    needs(f"The mesh {path.name!r}", "trimesh", "meshes")
    if kind == ".stl":
        _check_stl(path, content)
    elif kind in (".glb", ".gltf"):
        content = _plain_gltf(path, content)
    trimesh: Any = importlib.import_module("trimesh")  # an extra, without types
    resolver = _resolver(trimesh, folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scene = trimesh.load_scene(BytesIO(content), file_type=kind[1:], resolver=resolver, process=False)
            parts = _parts(path, scene)
    except MechanismError:
        raise
    except Exception as error:  # whatever a broken file leads to
        said = " ".join(printable(str(error)).split())[:200]
        raise _error(
            path, f"this is no {kind[1:].upper()} file that can be read ({said or type(error).__name__})."
        ) from None
    if not parts:
        raise _error(path, "there is no triangle in this file.")
    mesh = check_mesh(repr(str(path)), _joined(parts))
    first, number = distinct(mesh.vertices)  # STL has three vertices of its own for each triangle
    return mesh._replace(vertices=mesh.vertices[first], faces=number[mesh.faces])


def distinct(points: Float[np.ndarray, "n 3"]) -> tuple[np.ndarray, np.ndarray]:
    """The index of one point of each place, and the number of its place for each point."""
    order = np.lexsort(points.T)
    sorted_points = points[order]
    is_new = np.ones(len(points), bool)
    is_new[1:] = (sorted_points[1:] != sorted_points[:-1]).any(axis=1)
    number = np.empty(len(points), np.int64)
    number[order] = np.cumsum(is_new) - 1
    return order[is_new], number


def check_mesh(part: str, mesh: Mesh) -> Mesh:
    """The mesh; raise unless its vertices are finite, and its triangles numbers of them."""
    vertices, faces = mesh.vertices, mesh.faces
    if vertices.ndim != 2 or vertices.shape[1:] != (3,):
        raise MechanismError(f"{part}: vertices must have shape (n, 3), got shape {vertices.shape}.")
    if faces.ndim != 2 or faces.shape[1:] != (3,) or not np.issubdtype(faces.dtype, np.integer):
        need = "whole numbers of shape (m, 3), three numbers of vertices for each"
        raise MechanismError(f"{part}: triangles must be {need}, got {faces.dtype} of shape {faces.shape}.")
    if not len(faces):
        raise MechanismError(f"{part}: there is no triangle.")
    if len(faces) > MOST_TRIANGLES:
        text = f"there are {len(faces)} triangles; at most {MOST_TRIANGLES} are read. Export a coarser mesh."
        raise MechanismError(f"{part}: {text}")
    low, high = int(faces.min()), int(faces.max())
    if low < 0 or high >= len(vertices):
        wrong = low if low < 0 else high
        text = f"a triangle has the vertex {wrong}; there are {len(vertices)}, numbered from 0 to {len(vertices) - 1}."
        raise MechanismError(f"{part}: {text}")
    bad = ~np.isfinite(vertices).all(axis=1)
    if bad.any():
        k = int(np.argmax(bad))
        raise MechanismError(f"{part}: vertex {k} must be finite, got {vertices[k].tolist()}.")
    return mesh


def _error(path: Path, text: str) -> MechanismError:
    return MechanismError(f"{str(path)!r}: {text}")


class _Folder:
    """Files of one folder, of a limited size together."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.left = folder, MOST_BYTES

    def read(self, path: Path) -> bytes:
        if not path.is_file():
            raise _error(path, "this is no plain file." if path.exists() else "there is no such file.")
        with path.open("rb") as file:
            content = file.read(self.left + 1)
        self.left -= len(content)
        if self.left < 0:
            raise _error(
                path, f"it is larger than {MOST_BYTES // 2**20} MiB, the limit of a mesh. Export a coarser one."
            )
        return content

    def beside(self, name: str) -> bytes:
        """A file that a mesh refers to; of materials, the colours alone; no images."""
        path = (self.folder / name).resolve()
        suffix = path.suffix.lower()
        if suffix not in (".bin", ".mtl") or not path.is_relative_to(self.folder.resolve()):
            raise ValueError(f"{name!r} is not read, only .bin and .mtl in its folder")
        try:
            content = self.read(path)
        except MechanismError as error:
            raise ValueError(str(error)) from None
        if suffix == ".bin":
            return content
        kept = (b"newmtl", b"Kd", b"d ", b"Ka")
        return b"\n".join(line for line in content.splitlines() if line.strip().startswith(kept)) + b"\n"


def _resolver(trimesh: Any, folder: _Folder) -> Any:
    """What trimesh asks for the files that a mesh refers to."""

    class Beside(trimesh.resolvers.Resolver):
        def __init__(self) -> None:
            pass

        def get(self, name: str) -> bytes:
            return folder.beside(name)

        def keys(self) -> list[str]:
            return []

        def write(self, name: str, data: object) -> None:
            raise ValueError("nothing is written")

        def namespaced(self, namespace: str) -> "Beside":
            return self

    return Beside()


def _check_stl(path: Path, content: bytes) -> None:
    """Raise unless the number of triangles in the head of a binary file fits its length."""
    if content[:5].lower() == b"solid" and b"facet" in content[:1000]:
        return
    if len(content) < _STL_HEAD:
        raise _error(path, f"it has {len(content)} bytes, fewer than the head of an STL file.")
    (count,) = struct.unpack_from("<I", content, _STL_HEAD - 4)
    if len(content) != _STL_HEAD + _STL_FACE * count:
        there = (len(content) - _STL_HEAD) / _STL_FACE
        raise _error(path, f"its head says {count} triangles, and there are bytes for {there:g}: it is broken.")


def _plain_gltf(path: Path, content: bytes) -> bytes:
    """A glTF file without textures, of which no more is asked for than its bytes hold."""
    is_binary = path.suffix.lower() == ".glb"
    try:
        if is_binary:
            magic, version, _ = struct.unpack_from("<4sII", content)
            length, chunk = struct.unpack_from("<II", content, _GLB_HEAD)
            if magic != b"glTF" or version != 2 or chunk != _JSON:
                raise ValueError("its head is not that of GLB, version 2")
            start = _GLB_HEAD + _CHUNK_HEAD
            text, rest = content[start : start + length], content[start + length :]
        else:
            text, rest = content, b""
        tree = json.loads(text)
        if not isinstance(tree, dict):
            raise ValueError("it is no JSON object")
        _check_counts(path, tree)
    except (ValueError, struct.error, RecursionError) as error:
        said = " ".join(printable(str(error)).split())[:200]
        raise _error(path, f"this is no glTF file that can be read ({said}).") from None
    for name in ("images", "textures", "samplers", "animations", "skins", "extensions"):
        tree.pop(name, None)
    if isinstance(tree.get("materials"), list):
        tree["materials"] = [_plain_material(material) for material in tree["materials"]]
    text = json.dumps(tree).encode()
    if not is_binary:
        return text
    text += b" " * (-len(text) % 4)
    size = _GLB_HEAD + _CHUNK_HEAD + len(text) + len(rest)
    return struct.pack("<4sIIII", b"glTF", 2, size, len(text), _JSON) + text + rest


def _check_counts(path: Path, tree: Mapping[str, Any]) -> None:
    accessors, nodes = tree.get("accessors", []), tree.get("nodes", [])
    if not all(isinstance(x, list) and all(isinstance(y, dict) for y in x) for x in (accessors, nodes)):
        raise ValueError("its accessors and nodes are no lists of objects")
    count = sum(x["count"] for x in accessors if isinstance(x.get("count"), int))
    if count > 10 * MOST_TRIANGLES or any(not isinstance(x.get("count"), int) or x["count"] < 0 for x in accessors):
        raise _error(
            path, f"it asks for {count} numbers; at most {10 * MOST_TRIANGLES} are read. Export a coarser mesh."
        )
    if len(nodes) > _MOST_NODES:
        raise _error(path, f"it has {len(nodes)} nodes; at most {_MOST_NODES} are read.")
    _check_tree(path, nodes)


def _check_tree(path: Path, nodes: list[dict[str, Any]]) -> None:
    """Raise if a node is below two nodes, or below itself: what is below it would be counted over and over."""
    children = [child for node in nodes for child in node.get("children", ())]
    if len(children) != len({repr(child) for child in children}):
        raise _error(path, "a node is the child of two nodes; the nodes of glTF are trees.")
    parents = {child: k for k, node in enumerate(nodes) for child in node.get("children", ())}
    state = dict[Any, int]()
    for k in range(len(nodes)):
        way = []
        while k in parents and k not in state:
            state[k] = -1
            way.append(k)
            k = parents[k]
            if state.get(k) == -1:
                raise _error(path, "a node is below itself; the nodes of glTF are trees.")
        for own in way:
            state[own] = 1


def _plain_material(material: Any) -> dict[str, Any]:
    """A material with its colour alone."""
    of = material.get("pbrMetallicRoughness", {}) if isinstance(material, dict) else {}
    factor = of.get("baseColorFactor") if isinstance(of, dict) else None
    return {"pbrMetallicRoughness": {} if factor is None else {"baseColorFactor": factor}}


def _parts(path: Path, scene: Any) -> list[Mesh]:
    """The meshes of a scene, at their places."""
    counts = [len(getattr(scene.geometry[scene.graph[node][1]], "faces", ())) for node in scene.graph.nodes_geometry]
    if sum(counts) > MOST_TRIANGLES:
        text = f"there are {sum(counts)} triangles; at most {MOST_TRIANGLES} are read. Export a coarser mesh."
        raise _error(path, text)
    parts = []
    for node in scene.graph.nodes_geometry:
        transform, name = scene.graph[node]
        geometry = scene.geometry[name]
        faces = np.asarray(getattr(geometry, "faces", np.zeros((0, 3))), dtype=np.int64)
        if len(faces):
            turn, away = np.asarray(transform, float)[:3, :3], np.asarray(transform, float)[:3, 3]
            vertices = np.asarray(geometry.vertices, float) @ turn.T + away
            faces = faces if np.linalg.det(turn) > 0 else faces[:, ::-1]
            parts.append(Mesh(vertices, faces, _colours(geometry, len(faces))))
    return parts


def _colours(geometry: Any, count: int) -> np.ndarray | None:
    """The colours of the faces, None where the file gives none."""
    visual = geometry.visual
    with suppress(Exception):  # of a material that trimesh cannot interpret
        if visual.kind in ("face", "vertex"):
            colours = np.asarray(visual.face_colors)
            return colours[:, :3].astype(np.uint8) if colours.shape[:1] == (count,) else None
        if visual.kind == "texture":
            material = visual.material
            given = getattr(material, "baseColorFactor", None)
            given = getattr(material, "diffuse", None) if given is None else given
            if given is not None:
                return np.tile(np.asarray(given)[:3].astype(np.uint8), (count, 1))
    return None


_GREY = 160  # of parts without a colour, beside some with one


def _joined(parts: list[Mesh]) -> Mesh:
    starts = np.cumsum([0, *(len(part.vertices) for part in parts)])
    faces = np.concatenate([part.faces + start for part, start in zip(parts, starts[:-1], strict=True)])
    colours = None
    if any(part.colours is not None for part in parts):
        each = [np.full((len(p.faces), 3), _GREY, np.uint8) if p.colours is None else p.colours for p in parts]
        colours = np.concatenate(each)
    return Mesh(np.concatenate([part.vertices for part in parts]), faces, colours)
