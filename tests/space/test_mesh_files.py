"""Meshes from files of all kinds, each against what was written; files that are broken, or made to do harm."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxmbd import MechanismError
from jaxmbd import spatial as sp
from jaxmbd.space import mesh_files
from jaxmbd.space.mesh_files import read_mesh
from tests.space.mesh_bench import ascii_stl, box_mesh, obj, stl, written

EDGES = (0.25, 0.5, 1.0)  # numbers that single precision has
VERTICES, FACES = box_mesh(*EDGES)
trimesh: Any = pytest.importorskip("trimesh", reason="needs trimesh: pip install 'jaxmbd[meshes]'")


def gltf_tree(**more: Any) -> dict[str, Any]:
    """A box in glTF, red, its node moved by 1 m along x and twice as large along y."""
    points, numbers = VERTICES.astype("<f4").tobytes(), FACES.astype("<u4").tobytes()
    return {
        "asset": {"version": "2.0"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"mesh": 0, "translation": [1, 0, 0], "scale": [1, 2, 1]}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1, "material": 0}]}],
        "materials": [{"pbrMetallicRoughness": {"baseColorFactor": [1, 0, 0, 1]}}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 8, "type": "VEC3"},
            {"bufferView": 1, "componentType": 5125, "count": 36, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": len(points)},
            {"buffer": 0, "byteOffset": len(points), "byteLength": len(numbers)},
        ],
        "buffers": [{"byteLength": len(points + numbers)}],
        **more,
    }


BYTES = VERTICES.astype("<f4").tobytes() + FACES.astype("<u4").tobytes()


def glb(**more: Any) -> bytes:
    text = json.dumps(gltf_tree(**more)).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<II", len(text), 0x4E4F534A) + text + struct.pack("<II", len(BYTES), 0x004E4942) + BYTES
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


FILES: dict[str, bytes | str] = {
    "box.stl": stl(VERTICES, FACES),
    "text.stl": ascii_stl(VERTICES, FACES),
    "box.obj": obj(VERTICES, FACES),
    "BOX.OBJ": obj(VERTICES, FACES),
}


@pytest.mark.parametrize("name", FILES)
def test_files_hold_the_box(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / name, FILES[name])
    solid, box = sp.mesh(2700.0, path, scale=0.1), sp.box(2700.0, *(0.1 * x for x in EDGES))
    np.testing.assert_allclose(solid.mass, box.mass, rtol=1e-13)
    np.testing.assert_allclose(solid.inertia, box.inertia, atol=1e-13 * float(box.mass))
    assert solid.shape == (sp.shapes.mesh(path, scale=0.1),)
    assert solid.shape[0].triangles is not None
    assert solid.shape[0].triangles.file == str(path.resolve())


@pytest.mark.parametrize("kind", ["ply", "off", "stl", "obj", "glb"])
def test_what_trimesh_writes_is_read(kind: str, tmp_path: Path) -> None:
    """With the mass properties that trimesh computes of it."""
    mesh = trimesh.creation.annulus(0.25, 0.5, 1.5, sections=32)
    mesh.apply_transform(trimesh.transformations.rotation_matrix(0.4, [1, 2, 3], [0.5, 0.25, 0.125]))
    mesh.export(tmp_path / f"ring.{kind}")
    theirs = trimesh.load_mesh(tmp_path / f"ring.{kind}")
    solid = sp.mesh(1.0, tmp_path / f"ring.{kind}")
    np.testing.assert_allclose(solid.mass, theirs.volume, rtol=1e-12)
    np.testing.assert_allclose(solid.centre, theirs.center_mass, atol=1e-12)
    np.testing.assert_allclose(solid.inertia, theirs.moment_inertia, atol=1e-12)


def check_gltf(path: Path) -> None:
    mesh = read_mesh(path)
    np.testing.assert_allclose(np.ptp(mesh.vertices, axis=0), (0.25, 1.0, 1.0))
    np.testing.assert_allclose(mesh.vertices.mean(axis=0), (1.0, 0.0, 0.0))
    assert mesh.colours is not None
    np.testing.assert_array_equal(mesh.colours, np.tile([255, 0, 0], (12, 1)))


def test_gltf_has_places_and_colours(tmp_path: Path) -> None:
    check_gltf(written(tmp_path / "box.glb", glb()))
    tree = gltf_tree(buffers=[{"byteLength": len(BYTES), "uri": "box.bin"}])
    written(tmp_path / "box.bin", BYTES)
    check_gltf(written(tmp_path / "box.gltf", json.dumps(tree)))


def test_colours_of_materials_beside_an_obj_file(tmp_path: Path) -> None:
    written(tmp_path / "box.mtl", "newmtl green\nKd 0 1 0\nmap_Kd /etc/passwd\n")
    text = "mtllib box.mtl\n" + obj(VERTICES, FACES).replace("f 1 2 4", "usemtl green\nf 1 2 4")
    colours = read_mesh(written(tmp_path / "box.obj", text)).colours
    assert colours is not None
    np.testing.assert_array_equal(colours, np.tile([0, 255, 0], (12, 1)))


def not_a_number() -> bytes:
    vertices = VERTICES.copy()
    vertices[3, 1] = np.nan
    return stl(vertices, FACES)


CYCLE = [{"children": [1], "mesh": 0}, {"children": [0]}]
FAN = [{"children": [1, 1], "mesh": 0}, {"mesh": 0}]
HARMFUL: dict[str, tuple[str, bytes | str, str]] = {
    "a count that is too large": ("m.stl", stl(VERTICES, FACES, 2**32 - 1), r"says 4294967295 triangles, .* for 12:"),
    "a count that is too small": ("m.stl", stl(VERTICES, FACES, 3), r"its head says 3 triangles, and there are bytes"),
    "a head alone": ("m.stl", stl(VERTICES, FACES, 0)[:84], "there is no triangle"),
    "less than a head": ("m.stl", b"x", "it has 1 bytes, fewer than the head of an STL file"),
    "NaN": ("m.stl", not_a_number(), r"must be finite, got \[.*nan"),
    "empty": ("m.obj", "", r"m.obj'"),
    "no mesh": ("m.obj", "hello\n", r"m.obj'"),
    "a vertex that is not there": ("m.obj", obj(VERTICES, FACES) + "f 1 2 900000000\n", r"m.obj'"),
    "control characters": ("m.off", "OFF\n\x1b[2J\u202e 1 0\n", r"m.off'"),
    "memory": (
        "m.glb", glb(accessors=[{"componentType": 5126, "count": 10**10, "type": "VEC3"}]), "asks for 10000000000"
    ),
    "no JSON": ("m.gltf", "{", "no glTF file that can be read"),
    "deep JSON": ("m.gltf", "[" * 100_000, "no glTF file that can be read"),
    "not GLB": ("m.glb", b"glTF", "no glTF file that can be read"),
    "a node in itself": ("m.glb", glb(nodes=CYCLE), "a node is below itself"),
    "a node twice": ("m.glb", glb(nodes=FAN), "a node is the child of two nodes"),
    "a file elsewhere": (
        "in/m.gltf", json.dumps(gltf_tree(buffers=[{"byteLength": 1, "uri": "../secret.bin"}])),
        "'../secret.bin' is not read"
    ),
    "the network": (
        "m.gltf", json.dumps(gltf_tree(buffers=[{"byteLength": 1, "uri": "http://127.0.0.1/m.bin"}])), "m.gltf'"
    ),
    "Collada": ("m.dae", "<COLLADA/>", r"no mesh that is read here; those end with .stl, .obj"),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMFUL)
def test_files_that_are_broken_or_do_harm(name: str, tmp_path: Path) -> None:
    file, content, message = HARMFUL[name]
    (tmp_path / "in").mkdir()
    written(tmp_path / "secret.bin", BYTES)
    path = written(tmp_path / file, content)
    with pytest.raises(MechanismError, match=message) as caught:
        sp.shapes.mesh(path)
    assert str(path) in str(caught.value)
    assert all(c.isprintable() or c == "\n" for c in str(caught.value))


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(MechanismError, match="there is no such file"):
        read_mesh(tmp_path / "none.stl")
    (tmp_path / "folder.stl").mkdir()
    with pytest.raises(MechanismError, match="this is no plain file"):
        read_mesh(tmp_path / "folder.stl")


def test_sizes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "box.stl", stl(VERTICES, FACES))
    monkeypatch.setattr(mesh_files, "MOST_TRIANGLES", 11)
    with pytest.raises(MechanismError, match=r"there are 12 triangles; at most 11 are read\. Export a coarser mesh"):
        read_mesh(path)
    monkeypatch.setattr(mesh_files, "MOST_BYTES", 100)
    with pytest.raises(MechanismError, match=r"the limit of a mesh\. Export a coarser one"):
        read_mesh(path)
