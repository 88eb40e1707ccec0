"""Shapes in model files: all of them are read again, meshes from their files or whole; files that are wrong."""

import base64
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import MechanismError
from jaxmbd import spatial as sp
from jaxmbd.io import _meshes
from jaxmbd.space.mesh_files import Mesh
from jaxmbd.space.shape import Shape, Triangles
from tests.io.schema import check_schema
from tests.io.test_round_trips import check_round_trip
from tests.space.mesh_bench import ball_mesh, box_mesh, stl, written

shapes = sp.shapes
VERTICES, FACES = box_mesh(0.25, 0.5, 1.0)
COLOURED = Shape("mesh", (), Triangles.of(Mesh(VERTICES, FACES, np.arange(36, dtype=np.uint8).reshape(12, 3))))
HEAD = 'format = "jaxmbd-model/1"\nspace = "spatial"\nfloating = true\n'
BODY = "[bodies.part]\nmass = 1.0\ninertia = [1.0, 1.0, 1.0]\n"


def of_parts(*own: Shape, scenery: Any = ()) -> sp.Mechanism:
    bodies = [sp.Body("part", 1.0, (1.0, 1.0, 1.0), shape=own), sp.Body("bare", 1.0, (1.0, 1.0, 1.0))]
    return sp.Mechanism(bodies, scenery=scenery, floating=True)


def test_all_shapes_are_read_again(tmp_path: Path) -> None:
    simple = [shapes.box(1, 2, 3), shapes.cylinder(1, 2), shapes.capsule(1, 2), shapes.ellipsoid(1, 2, 3)]
    placed = [shape.placed((0.1, -0.2, 1e-300), (0.5, 0.5, 0.5, 0.5)) for shape in simple]
    own = [*simple, *placed, shapes.sphere(0.1, "#012345", 0.5), shapes.mesh(ball_mesh(0.1, 2)), COLOURED]
    mechanism = of_parts(*own, scenery=[shapes.sphere(1.0, "#ffffff"), COLOURED])
    again = check_round_trip(mechanism, tmp_path)
    assert again["part"].shape == tuple(own)
    assert again.scenery == mechanism.scenery
    single = HEAD + 'floats = "float32"\nscenery = []\n' + BODY + "pose = [0, 0, 0, 1, 0, 0, 0]\n"
    assert mbd.load(written(tmp_path / "single.toml", single))["part"].shape == ()


def test_a_mesh_is_named_by_its_file_within_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("trimesh")
    (tmp_path / "meshes").mkdir()
    path = written(tmp_path / "meshes" / "box.stl", stl(VERTICES, FACES))
    mechanism = of_parts(shapes.mesh(path), shapes.mesh(path, 1e-3), shapes.mesh(path, (1, 2, -3)))
    mbd.save(mechanism, tmp_path / "m.toml")
    text = (tmp_path / "m.toml").read_text()
    assert text.count('{ kind = "mesh", file = "meshes/box.stl"') == 3
    assert "scale = 0.001 }" in text
    assert "scale = [1.0, 2.0, -3.0] }" in text
    check_schema(text)
    assert mbd.load(tmp_path / "m.toml")["part"].shape == mechanism["part"].shape
    (tmp_path / "other").mkdir()
    mbd.save(mechanism, tmp_path / "other" / "m.toml")  # beside which there is no mesh: it holds it
    assert "file = " not in (tmp_path / "other" / "m.toml").read_text()
    written(path, stl(2 * VERTICES, FACES))  # another mesh by now
    for folder in (tmp_path, tmp_path / "other"):
        mbd.save(mechanism, folder / "m.toml")
        assert mbd.load(folder / "m.toml")["part"].shape == mechanism["part"].shape


def test_the_solid_of_a_mesh_is_a_mass(tmp_path: Path) -> None:
    pytest.importorskip("trimesh")
    written(tmp_path / "box.stl", stl(VERTICES + np.array([1.0, 0.0, 0.0]), FACES))
    text = HEAD + '[bodies.part]\nmass = { type = "mesh", density = 7800, file = "box.stl", scale = 0.1 }\n'
    check_schema(text)
    mechanism = mbd.load(written(tmp_path / "m.toml", text))
    expected = sp.box(7800.0, 0.025, 0.05, 0.1)
    np.testing.assert_allclose(mechanism["part"].mass, expected.mass, rtol=1e-13)
    np.testing.assert_allclose(mechanism["part"].inertia, expected.inertia, atol=1e-15)
    np.testing.assert_allclose(mechanism["part"].shape[0].position, (-0.1, 0, 0), atol=1e-12)
    check_round_trip_here(mechanism, tmp_path / "again.toml")


def check_round_trip_here(mechanism: Any, path: Path) -> None:
    mbd.save(mechanism, path)
    assert 'file = "box.stl"' in path.read_text()
    assert mbd.load(path)["part"].shape == mechanism["part"].shape


FLOATS, NUMBERS = (base64.b64encode(bytes(n)).decode() for n in (36, 12))
WRONG: dict[str, tuple[str, str]] = {
    "kind": ('{ kind = "cone" }', r"line 7: .*There is no kind of shape named 'cone'.*'box'"),
    "no kind": ("{ size = [1, 1, 1] }", r"kind of shape is named by a string, got None"),
    "no table": ("3", r"must be a table, such as \{ kind = 'box'"),
    "key": ('{ kind = "box", size = [1, 1, 1], color = "x" }', r"named 'color'. Did you mean 'colour'"),
    "size": ('{ kind = "box", size = [1, -1, 1] }', r"shapes.box: y must be positive \[m\] and finite, got -1"),
    "sizes": ('{ kind = "box", size = [1, 1] }', r"shapes.box: size must have shape \(3,\)"),
    "infinite": ('{ kind = "sphere", size = [inf] }', r"size must be finite"),
    "text": ('{ kind = "sphere", size = ["1"] }', r"size: must be a list of numbers, got \['1'\]"),
    "opacity": ('{ kind = "sphere", size = [1], opacity = true }', r"opacity: must be a number, got True"),
    "colour": ('{ kind = "sphere", size = [1], colour = "red" }', r'colour must be written as "#rrggbb"'),
    "file of a box": ('{ kind = "box", size = [1, 1, 1], file = "m.stl" }', r"file: has no meaning for a box"),
    "size of a mesh": ('{ kind = "mesh", size = [1] }', r"size: has no meaning for a mesh"),
    "no mesh": ('{ kind = "mesh" }', r"a mesh has no 'vertices'; give its file"),
    "no base 64": (f'{{ kind = "mesh", vertices = "ä!", triangles = "{NUMBERS}" }}', "vertices: must be text"),
    "too short": (f'{{ kind = "mesh", vertices = "AAAA", triangles = "{NUMBERS}" }}', r"12 bytes for each of its rows"),
    "no such vertex": (
        f'{{ kind = "mesh", vertices = "{FLOATS}", triangles = "/////wAAAAAAAAAA" }}',
        r"has the vertex 4294967295; there are 3"
    ),
    "NaN": (
        f'{{ kind = "mesh", vertices = "{base64.b64encode(np.full(9, np.nan, "<f4").tobytes()).decode()}", '
        f'triangles = "{NUMBERS}" }}', r"vertex 0 must be finite, got \[nan"
    ),
    "both": (f'{{ kind = "mesh", file = "m.stl", vertices = "{FLOATS}" }}', r"either a file, or vertices"),
    "scale": (
        f'{{ kind = "mesh", vertices = "{FLOATS}", triangles = "{NUMBERS}", scale = 2 }}', r"scale: belongs to a file"
    ),
    "colours": (
        f'{{ kind = "mesh", vertices = "{FLOATS}", triangles = "{NUMBERS}", colours = "AAAAAAAA" }}',
        r"there must be three bytes for each of 1 triangles"
    ),
    "above": ('{ kind = "mesh", file = "../secret.stl" }', r"'../secret.stl': it leads outside of"),
    "absolute": ('{ kind = "mesh", file = "/etc/passwd" }', r"must be a path relative to the model file"),
    "a link": ('{ kind = "mesh", file = "link.stl" }', r"'link.stl': it leads outside of"),
    "missing": ('{ kind = "mesh", file = "none.stl" }', r"'none.stl': there is no file '.*none.stl'"),
    "network": ('{ kind = "mesh", file = "http://x/m.stl" }', r"must be a path relative to the model file"),
    "folder": ('{ kind = "mesh", file = "." }', r"there is no file"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_shapes_are_named_with_their_line(name: str, tmp_path: Path) -> None:
    table, message = WRONG[name]
    written(tmp_path / "secret.stl", stl(VERTICES, FACES))
    (tmp_path / "in").mkdir()
    os.symlink(tmp_path / "secret.stl", tmp_path / "in" / "link.stl")
    for text in (HEAD + BODY + f"shape = [{table}]\n", HEAD + f"scenery = [{table}]\n" + BODY):
        path = written(tmp_path / "in" / "m.toml", text)
        with pytest.raises(MechanismError, match=message.replace("line 7", "line [47]")) as caught:
            mbd.load(path)
        assert str(caught.value).startswith(f"{str(path)!r}, line {7 if 'shape =' in text else 4}: ")


def test_the_triangles_of_all_meshes_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trimesh")
    monkeypatch.setattr(_meshes, "MOST_IN_ALL", 30)
    written(tmp_path / "box.stl", stl(VERTICES, FACES))
    each = ", ".join(f'{{ kind = "mesh", file = "box.stl", scale = {k} }}' for k in (1, 2, 2, 1))
    assert len(mbd.load(written(tmp_path / "m.toml", HEAD + BODY + f"shape = [{each}]\n"))["part"].shape) == 4
    more = each + ', { kind = "mesh", file = "box.stl", scale = 3 }'
    with pytest.raises(MechanismError, match=r"line 7: .*more than 30 triangles"):
        mbd.load(written(tmp_path / "m.toml", HEAD + BODY + f"shape = [{more}]\n"))
