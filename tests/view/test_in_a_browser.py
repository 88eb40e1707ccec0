"""Pages in a browser: what is on the screen, by value."""

from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import view
from jaxmbd.scene.motion import rotations
from jaxmbd.scene.recording import scene_of
from tests.view.conftest import HEIGHT, WIDTH, Browser
from tests.view.pages import RATE, rod_in_space, rod_in_the_plane, tumbling, turning

TS = np.linspace(0.0, 2.0, 41)
PIXEL = 0.5  # [px]: a thousandth of a symbol, which positions are rounded to, is less
SHAPE = 0.04  # the error of the shape of a spring between stored lengths, in symbol sizes
BLUE, GREEN = np.array([0, 114, 178]), np.array([0, 158, 115])  # of the first body, or motion, and of the second


@pytest.fixture(scope="module")
def space() -> mbd.Solution:
    return turning(rod_in_space(), TS)


@pytest.fixture(scope="module")
def plane() -> mbd.Solution:
    return turning(rod_in_the_plane(), TS)


def projected(browser: Browser, points: np.ndarray) -> np.ndarray:
    """Pixels of the screen of points in space, by a pinhole camera where the page has it, its up being z."""
    names = "[camera.position.toArray(), picture.controls.target.toArray(), [camera.fov, camera.aspect]]"
    place, target, (field, aspect) = (np.array(x) for x in browser.run(names.replace("camera", "picture.camera")))
    back = (place - target) / np.linalg.norm(place - target)
    right = np.cross((0.0, 0.0, 1.0), back)
    right /= np.linalg.norm(right)
    seen = (points - place) @ np.stack([right, np.cross(back, right), back], axis=1)
    flat = seen[:, :2] / -seen[:, 2:] / np.tan(np.radians(field) / 2) / (aspect, 1.0)
    box = browser.box("#scene")
    x = box["left"] + (flat[:, 0] + 1) / 2 * box["width"]
    return np.stack([x, box["top"] + (1 - flat[:, 1]) / 2 * box["height"]], axis=1)


def rod_points(solution: mbd.Solution, k: int, along: Any) -> np.ndarray:
    """Points on the rod at a saved time, by the solution's pose."""
    q, dim = np.asarray(solution.q)[k], solution.mechanism.space.dim
    axis = rotations(q[dim : 3 if dim == 2 else 7])[:, 0]
    return q[:dim] + np.outer(along, axis)


def like(pixels: np.ndarray, colour: np.ndarray) -> np.ndarray:
    """Where colours are a shade of one: the same direction from black, not grey."""
    size = np.linalg.norm(pixels, axis=-1)
    cosine = pixels @ colour / np.maximum(size * np.linalg.norm(colour), 1e-9)
    return (cosine > 0.97) & (size > 60)


def check_pieces(browser: Browser, solution: mbd.Solution, k: int) -> None:
    """All pieces reach as far as those of the scene at the saved time that is shown."""
    code = """page.motions[0].pieces.map((piece) => {
        const { origin, axes, shape, share } = page.motions[0].placed(piece), n = page.dimension;
        const local = piece.shapes[shape].map((x, i) => (share ? between(x, piece.shapes[shape + 1][i], share) : x));
        const corners = Array.from({ length: local.length / n }, (_, i) => local.subarray(n * i, n * i + n));
        const points = corners.filter(([x]) => !isNaN(x)).map((corner) => plus(origin, turned(axes, corner)));
        return [Math.min, Math.max].map((most) => origin.map((_, i) => most(...points.map((point) => point[i]))));
    })"""
    scene = scene_of(solution, (), (), TS)
    for found, piece in zip(browser.run(code), scene.pieces, strict=True):
        points = piece.shape(scene.motion.at(k)).reshape(-1, scene.geometry.dim)
        ends = np.stack([np.nanmin(points, axis=0), np.nanmax(points, axis=0)])
        np.testing.assert_allclose(found, ends, atol=SHAPE * scene.size, err_msg=piece.part)


def check_page_runs(browser: Browser) -> None:
    """It has loaded itself alone, without a complaint, and plays."""
    assert browser.requests() == [(browser.folder / "page.html").as_uri()]
    assert browser.complaints() == []
    assert browser.run("(clock.play(), clock.isPlaying)")
    moved = browser.run("new Promise((done) => setTimeout(() => done(clock.time), 300))")
    assert 0.0 < moved <= 2.0
    browser.run("clock.pause()")
    assert browser.run("clock.time") == browser.run("new Promise((done) => setTimeout(() => done(clock.time), 100))")


def test_a_page_in_space(browser: Browser, space: mbd.Solution) -> None:
    """It loads, plays and shows a time; the rod is on the screen where the solution's pose puts it, in its colour."""
    browser.open(view.page(space, channels=["rod.x"]))
    check_page_runs(browser)
    for k in (6, 30):
        browser.seek(TS[k])
        assert browser.text("#clock") == f"t = {TS[k]:.3f} s of 2.000 s"
        along = np.linspace(-0.4, 0.4, 9)
        check_pieces(browser, space, k)
        points = projected(browser, rod_points(space, k, along))
        box = browser.box("#scene")
        code = "args[0].map((x) => picture.project(page.motions[0].point({ frame: 0, offset: [x, 0, 0] })))"
        found = np.add(browser.run(code, along.tolist()), (box["left"], box["top"]))
        np.testing.assert_allclose(found, points, atol=PIXEL)
        pixels = browser.pixels()
        on_rod = like(pixels, BLUE)[np.round(points[:, 1]).astype(int), np.round(points[:, 0]).astype(int)]
        assert on_rod[[0, 1, 2, 6, 7, 8]].all()  # the mark of the centre of mass is in the middle
        left = pixels[:, : int(box["right"])]  # without the curve, which is blue too
        rows, columns = np.nonzero(like(left, BLUE) & (np.arange(len(left))[:, None] < box["bottom"]))
        middle = rod_points(space, k, [0.0])
        np.testing.assert_allclose([columns.mean(), rows.mean()], projected(browser, middle)[0], atol=6.0)


@pytest.mark.slow
def test_a_page_in_the_plane(browser: Browser, plane: mbd.Solution) -> None:
    browser.open(view.page(plane, channels=["rod.x"]))
    check_page_runs(browser)
    box = browser.box("#scene")
    for k in (6, 30):
        browser.seek(TS[k])
        check_pieces(browser, plane, k)
        along = np.array([-0.4, -0.2, 0.2, 0.4])
        corner, scale = np.array(browser.run("[picture.x, picture.y]")), browser.run("picture.scale")
        points = np.add(corner, (box["left"], box["top"])) + rod_points(plane, k, along) * (scale, -scale)
        pixels = browser.pixels()[np.round(points[:, 1]).astype(int), np.round(points[:, 0]).astype(int)]
        np.testing.assert_allclose(pixels, np.broadcast_to(BLUE, pixels.shape), atol=2)
    # All of the motion is inside, and fills most of the picture.
    limits = np.array(browser.run("page.limits"))
    size = scale * np.ptp(limits, axis=1) / (box["width"], box["height"])
    assert 0.7 < size.max() < 1.0
    # Dragging moves the picture, the wheel magnifies it about the mouse.
    browser.drag((300, 300), (340, 280))
    np.testing.assert_allclose(browser.run("[picture.x, picture.y]"), np.add(corner, (40, -20)), atol=1e-9)
    code = "picture.canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: -200, clientX: 200, clientY: 100 }))"
    browser.run(code)
    assert browser.run("picture.scale") == pytest.approx(scale * np.exp(0.3))
    browser.press("f")
    np.testing.assert_allclose(browser.run("[picture.x, picture.y]"), corner, atol=1e-9)


@pytest.mark.slow
def test_all_rotations(browser: Browser) -> None:
    """Bodies that turn about axes of any direction."""
    stones = tumbling(2, TS)
    browser.open(view.page(stones))
    for k in (7, 31):
        browser.seek(TS[k])
        check_pieces(browser, stones, k)


@pytest.mark.slow
def test_a_mechanism_of_many_parts(browser: Browser) -> None:
    platform = mbd.examples.get("stewart-platform")
    browser.open(view.page(platform.mechanism, platform.state()))
    assert browser.complaints() == []
    assert like(browser.pixels(), BLUE).sum() > 500


@pytest.mark.slow
def test_keys_buttons_and_slider(browser: Browser, space: mbd.Solution) -> None:
    browser.open(view.page(space, trace=["tip"]))
    gap = 2.0 / 400
    for key, time in (("End", 2.0), ("Home", 0.0), ("ArrowRight", gap), ("ArrowRight", 2 * gap), ("ArrowLeft", gap)):
        browser.press(key)
        assert browser.run("clock.time") == pytest.approx(time, abs=1e-6)
    browser.press(" ")
    assert browser.run("clock.isPlaying")
    browser.press(" ")
    assert not browser.run("clock.isPlaying")
    assert browser.run("clock.speed") == 1.0
    browser.press("+")
    assert browser.run("[clock.speed, document.querySelector('#speed').value]") == [2, "2"]
    slider = "document.querySelector('#slider')"
    browser.run(f"({slider}.value = 1.5, {slider}.dispatchEvent(new Event('input')))")
    assert browser.run("clock.time") == pytest.approx(1.5)
    browser.press("l")
    browser.run("(clock.speed = 100, clock.play())")
    browser.run("new Promise((done) => setTimeout(done, 300))")
    assert browser.run("[clock.time, clock.isPlaying]") == [2, False]
    for key, button in (("a", "forces"), ("p", "paths"), ("n", "names")):
        before = browser.pixels()
        browser.press(key)
        assert (browser.pixels() != before).any(), button
    assert browser.run("document.querySelector('#paths').getAttribute('aria-pressed')") == "false"
    assert browser.complaints() == []


@pytest.mark.slow
def test_the_camera_turns_and_comes_back(browser: Browser, space: mbd.Solution) -> None:
    browser.open(view.page(space, elev=30, azim=40))
    first = np.array(browser.run("picture.camera.position.clone().sub(picture.controls.target).toArray()"))
    assert np.degrees(np.arcsin(first[2] / np.linalg.norm(first))) == pytest.approx(30.0)
    assert np.degrees(np.arctan2(first[1], first[0])) == pytest.approx(40.0)
    browser.drag((300, 200), (380, 200))
    turned = np.array(browser.run("picture.camera.position.clone().sub(picture.controls.target).toArray()"))
    assert turned[2] == pytest.approx(first[2])
    assert np.degrees(np.arctan2(turned[1], turned[0])) < 30.0
    browser.press("f")
    again = browser.run("picture.camera.position.clone().sub(picture.controls.target).toArray()")
    np.testing.assert_allclose(again, first, rtol=1e-6)
    for key, axis in (("x", 0), ("z", 2)):
        browser.press(key)
        away = np.array(browser.run("picture.camera.position.clone().sub(picture.controls.target).toArray()"))
        assert away[axis] == pytest.approx(np.linalg.norm(away), rel=1e-6)


@pytest.mark.slow
def test_curves_follow_the_time_and_set_it(browser: Browser, plane: mbd.Solution) -> None:
    dots = TS[::8], np.asarray(plane["rod.x"])[::8] + 0.2
    browser.open(view.page(plane, channels=["rod.x", "rod.theta"], measured={"rod.x": dots}))
    browser.seek(TS[10])
    shown = browser.run("[...document.querySelectorAll('.legend output')].map((output) => output.textContent)")
    wanted = float(plane["rod.x"][10]), float(plane["rod.theta"][10])
    assert [float(text.replace("−", "-")) for text in shown] == pytest.approx(wanted, rel=2e-4)
    for width in (WIDTH + 80, WIDTH):  # also after the size of the curves has changed
        browser.driver.set_window_size(width, HEIGHT)
        browser.drawn()
        box, now = browser.box(".u-over"), browser.box(".now")
        assert now["left"] == pytest.approx(box["left"] + TS[10] / 2.0 * box["width"], abs=1.5)
    browser.drag((box["left"] + 5, box["top"] + 9), (box["left"] + 0.75 * box["width"], box["top"] + 9))
    assert browser.run("clock.time") == pytest.approx(1.5, abs=2.0 / box["width"])
    pixels = browser.pixels()[int(box["top"]) + 3 : int(box["bottom"]) - 3, int(box["left"]) : int(box["right"])]
    columns = np.unique(np.nonzero(np.abs(pixels - BLUE).max(axis=-1) < 40)[1])
    assert len(columns) > 0.95 * box["width"]  # a line from the first to the last time


@pytest.mark.slow
def test_numbers_of_axes(browser: Browser, plane: mbd.Solution) -> None:
    """They have the decimals of the step between them; powers of ten where that would take many digits."""
    browser.open(view.page(plane))
    wanted = {
        (0.3, 0.1): "0.3",
        (-0.25, 0.05): "−0.25",
        (-1e-18, 0.05): "0.00",
        (150.0, 50.0): "150",
        (0.25, 0.25): "0.25",
        (7.5, 2.5): "7.5",
        (1.25e6, 2.5e5): "1.25e6",
        (0.0, 1e-11): "0",
        (-2e-11, 1e-11): "−2e-11",
        (2.5e7, 5e6): "2.5e7",
    }
    assert browser.run("args[0].map(([value, step]) => written(value, step))", list(wanted)) == list(wanted.values())


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [2, 3])
def test_several_motions_are_shown_together(dimension: int, browser: Browser) -> None:
    make = rod_in_the_plane if dimension == 2 else rod_in_space
    both = {"model": turning(make(), TS), "measured": turning(make(), TS, 0.5 * RATE)}
    browser.open(view.page(both, channels=["rod.x"]))
    assert [browser.text(f".motion:nth-child({k})") for k in (1, 2)] == ["model", "measured"]
    browser.seek(1.0)
    picture = (slice(None, int(browser.box("#scene")["bottom"])), slice(None, int(browser.box("#scene")["right"])))
    below = int(browser.box("#scene")["top"]) + 1
    counts = [int(like(browser.pixels()[picture][below:], colour).sum()) for colour in (BLUE, GREEN)]
    assert counts[0] > 300
    browser.run("document.querySelector('.motion').click()")
    browser.drawn()
    hidden = [int(like(browser.pixels()[picture][below:], colour).sum()) for colour in (BLUE, GREEN)]
    assert hidden[0] < 0.05 * counts[0]
    assert browser.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("dimension", [2, 3])
def test_light_and_dark(dimension: int, browser: Browser, space: mbd.Solution, plane: mbd.Solution) -> None:
    page = view.page(plane if dimension == 2 else space, channels=["rod.x"])
    for scheme, least, most in (("light", 200, 256), ("dark", 0, 60)):
        browser.open(page, scheme)
        median = np.median(browser.pixels(), axis=(0, 1))
        assert least <= median.min() <= median.max() < most
        assert like(browser.pixels(), BLUE).sum() > 500
        if dimension == 2:  # the hinge is a ring of ink, filled with paper
            x, y = np.round(
                np.add(browser.run("picture.project([0, 0])"), [browser.box("#scene")[k] for k in ("x", "y")])
            )
            ring = browser.pixels()[int(y) - 12 : int(y) + 13, int(x)].mean(axis=-1)
            assert (ring[10:15].mean() > 200) == (scheme == "light")
            assert (ring.min() < 80) if scheme == "light" else (ring.max() > 180)


@pytest.mark.slow
def test_names_are_text_in_a_browser(browser: Browser) -> None:
    name = "</script><b>bold</b><img src=x onerror=alert()>"
    browser.open(view.page({name: turning(rod_in_the_plane(name), TS)}, title=name, channels=[f"{name}.x"]))
    browser.press("n")
    assert browser.text("#title") == name
    assert browser.run("document.querySelectorAll('b, img').length") == 1  # the heading of the panel
    assert browser.run("document.title") == name
    assert browser.requests() == [(browser.folder / "page.html").as_uri()]
    assert browser.complaints() == []


@pytest.mark.slow
def test_a_state_has_no_time_to_control(browser: Browser, space: mbd.Solution) -> None:
    browser.open(view.page(space.mechanism, space.state(3)))
    assert browser.run("document.querySelector('#time').hidden && document.querySelector('#curves').hidden")
    points = projected(browser, rod_points(space, 3, np.array([-0.3, 0.3])))
    pixels = browser.pixels()[np.round(points[:, 1]).astype(int), np.round(points[:, 0]).astype(int)]
    assert like(pixels, BLUE).all()
    assert browser.complaints() == []


@pytest.mark.slow
def test_the_frame_of_a_notebook(browser: Browser, plane: mbd.Solution) -> None:
    """The page runs in its frame, which is sealed off from the document around it."""
    notebook = browser.folder / "notebook.html"
    notebook.write_text(f"<!doctype html><title>notebook</title>{view.page(plane)._repr_html_()}", encoding="utf-8")
    browser.driver.get(notebook.as_uri())
    browser.driver.switch_to.frame(0)
    browser.drawn()
    browser.seek(TS[6])
    assert browser.run("page.motions[0].poses[0].position[0]") == pytest.approx(float(plane.q[6, 0]), abs=2e-5)
    assert browser.run("(() => { try { return parent.document.title; } catch { return 'sealed'; } })()") == "sealed"
    browser.driver.switch_to.default_content()
    assert like(browser.pixels(), BLUE).sum() > 500


@pytest.mark.slow
def test_without_webgl_the_page_says_so(browser: Browser, space: mbd.Solution) -> None:
    page = view.page(space)
    broken = view.Page(page.html.replace("<script>", "<script>HTMLCanvasElement.prototype.getContext = () => null;", 1))
    browser.driver.get(broken.save(browser.folder / "page.html").as_uri())
    code = "const done = arguments[0]; jaxmbd.catch(() => done(document.querySelector('#message').textContent))"
    assert "no WebGL" in browser.driver.execute_async_script(code)


def test_an_address_may_ask_to_play_at_once(browser: Browser, plane: mbd.Solution) -> None:
    path = view.page(plane).save(browser.folder / "page.html")
    browser.driver.get(f"{path.as_uri()}#playing")
    assert browser.run("clock.isPlaying")
    browser.open(view.page(plane))
    assert not browser.run("clock.isPlaying")
