"""Pages with shapes of bodies: what they hold, and that a browser shows it."""

from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import spatial as sp
from jaxmbd import view
from jaxmbd.scene import looks
from jaxmbd.space.shape import Shape, Triangles
from tests.space.mesh_bench import ball_mesh, box_mesh
from tests.view.conftest import Browser
from tests.view.pages import Content, turning

TS = np.linspace(0.0, 1.0, 3)
VERTICES, FACES = box_mesh(0.6, 0.4, 0.4)
RED, BLUE, GREEN = np.eye(3)[[0, 2, 1]] * 255.0
COLOURS = np.where(VERTICES[FACES].mean(axis=1)[:, 2:] > 0, RED, BLUE).astype(np.uint8)
BOX = Shape("mesh", (), Triangles(VERTICES.astype("<f4"), FACES.astype("<u4"), COLOURS))


def rod(*shapes: Shape, ts: Any = (0.0,)) -> mbd.Solution:
    body = sp.Body("rod", 1.0, (1e-4, 0.083, 0.083), (0.5, 0, 0), shape=shapes)
    hinge = sp.Revolute("O", sp.ground.at(axis="y"), body.at(-0.5, axis="y"))
    return turning(sp.Mechanism([body], [hinge], scenery=sp.shapes.box(2, 2, 0.1, "#00ff00").translated(z=-1.5)), ts)


def test_a_page_holds_vertices_faces_and_colours() -> None:
    content = Content(view.page(rod(BOX, sp.shapes.sphere(0.1, "#000000", 0.5).translated(z=0.4))))
    pieces = content.data["motions"][0]["pieces"]
    mesh = next(piece for piece in pieces if piece["dark"])
    points, faces = content.array(mesh["shapes"][0]), content.array(mesh["faces"]).astype(int)
    np.testing.assert_allclose(points[faces], VERTICES[FACES], atol=1e-7)
    np.testing.assert_array_equal(content.array(mesh["dark"]), COLOURS / 255.0)
    assert mesh["colour"] == "#ffffff"
    assert [piece["alpha"] for piece in pieces if piece["colour"] == "#010101"] == [0.5]
    assert [piece["start"]["frame"] for piece in pieces if piece["colour"] == "#00ff00"] == [-1]
    assert content.data["remark"] == ""


def test_several_motions_have_a_colour_each() -> None:
    content = Content(view.page({"a": rod(BOX), "b": rod(BOX.coloured("#123456"))}))
    for motion in content.data["motions"]:
        colours = {piece["colour"] for piece in motion["pieces"] if piece["part"] == "rod"}
        assert colours == {motion["colour"]}
        assert not any(piece["dark"] for piece in motion["pieces"] if piece["part"] == "rod")


def test_a_page_says_that_a_mesh_is_coarser_and_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    vertices, faces = ball_mesh(0.2, 5)
    page = view.page(rod(sp.shapes.mesh((vertices, faces))))
    assert len(page.html) < 1_000_000
    monkeypatch.setattr(looks, "MOST_FACES", 1000)
    assert "Meshes of rod are drawn with 9" in Content(view.page(rod(sp.shapes.mesh((vertices, faces))))).data["remark"]


def share(browser: Browser, colour: np.ndarray) -> float:
    """The share of the screen that is a shade of a colour."""
    pixels = browser.pixels().astype(float)
    size = np.linalg.norm(pixels, axis=-1)
    return float(np.mean((pixels @ colour / 255.0 > 0.9 * size) & (size > 40)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_them(browser: Browser, scheme: str) -> None:
    browser.open(view.page(rod(BOX, ts=TS), elev=30), scheme)
    assert browser.complaints() == []
    upper, lower = share(browser, RED), share(browser, BLUE)
    assert upper > 0.005
    assert share(browser, GREEN) > 0.02
    browser.seek(1.0)  # turned by 3 rad: the lower side is above
    assert share(browser, BLUE) / share(browser, RED) > 1.5 * lower / upper
