"""A mechanism that is explored, in a browser: what is dragged moves, by value, and on the screen."""

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.view._live_page import live_page
from jaxmbd.view._server import Server
from jaxmbd.view._session import Session
from jaxmbd.view._widget import _MODULE
from tests.crank_rocker import LENGTHS, four_bar, rocker_angle
from tests.view.conftest import Browser

pytest.importorskip("websockets", reason="needs websockets: pip install 'jaxmbd[live]'")

A = LENGTHS[0]


class Page:
    """A page that a server sends, in a browser."""

    def __init__(self, browser: Browser, server: Server) -> None:
        self.browser, self.driver, self.session = browser, browser.driver, server.session
        self.driver.get(server.address)
        self.run("1")

    def run(self, code: str, *arguments: Any) -> Any:
        """The value of an expression of `live` and `args`, or of a promise of one."""
        text = """
            const args = [...arguments], done = args.pop();
            const answer = async (live) => done({ value: await (%s) });
            jaxmbd.then(answer).catch((error) => done({ error: String(error) }));
        """
        answer = self.driver.execute_async_script(text % code, *arguments)
        assert "error" not in answer, answer
        return answer["value"]

    def settled(self) -> None:
        """Wait until nothing is asked for."""
        quiet = "!live.isBusy && !live.isAsked && !live.wanted.size"
        self.run(
            f"new Promise((done) => {{ const f = () => {quiet} ? done() : setTimeout(f, 30); setTimeout(f, 60); }})"
        )

    def pixel(self, point: list[float]) -> tuple[float, float]:
        """Where a point of the world is on the screen."""
        box = self.run("document.getElementById('scene').getBoundingClientRect().toJSON()")
        x, y = self.run("live.picture.project(args[0])", point)
        return box["left"] + x, box["top"] + y

    def mouse(self, kind: str, at: tuple[float, float], held: int) -> None:
        event = {"type": f"mouse{kind}", "x": at[0], "y": at[1], "button": "left", "buttons": held, "clickCount": 1}
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def drag(self, *points: list[float]) -> None:
        """Hold what is at the first point, and move it to the others, one after another."""
        self.mouse("Pressed", self.pixel(points[0]), 1)
        for point in points[1:]:
            self.mouse("Moved", self.pixel(point), 1)
            self.settled()
        self.mouse("Released", self.pixel(points[-1]), 0)
        self.settled()

    def text(self, name: str) -> str:
        return self.run("document.getElementById(args[0]).textContent", name)

    def set(self, selector: str, value: float, event: str = "input") -> None:
        code = "((input) => { input.value = args[1]; input.dispatchEvent(new Event(args[2])); })"
        self.run(f"{code}(document.querySelector(args[0]))", selector, value, event)
        self.settled()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    mechanism = four_bar()
    options: dict[str, Any] = {
        "parameters": {"A.b.position[0]": (-0.6, -0.2)},
        "show": ["rocker.theta"],
        "trace": ["coupler"],
    }
    server = Server(
        Session(mechanism, mbd.assemble(mechanism, {"O.angle": 0.9}), title="crank-rocker", **options)
    ).start()
    yield server
    server.stop()


@pytest.fixture
def page(browser: Browser, server: Server) -> Page:
    server.session.answer({"kind": "reset"})
    return Page(browser, server)


def pin(angle: float) -> list[float]:
    return [A * math.cos(angle), A * math.sin(angle)]


def test_a_dragged_body_moves_the_linkage(page: Page) -> None:
    middle = [x * 0.7 for x in pin(0.9)]
    page.drag(middle, [x * 0.7 for x in pin(1.2)], [x * 0.7 for x in pin(1.5)])
    q = page.session.position.poses
    assert q[0][2] == pytest.approx(1.5, abs=0.01)  # a pixel of the pointer is 1 mm and more
    angle = float(q[0][2])
    assert q[2][2] == pytest.approx(rocker_angle(angle), abs=1e-6)
    shown = page.run("live.motion.poses.map(({ position }) => position)")
    np.testing.assert_allclose(shown, q[:, :2], atol=1e-12)
    assert float(page.run("document.querySelector('#driving input[type=range]').value")) == pytest.approx(
        math.degrees(angle), abs=0.01
    )
    assert page.run("live.held ?? null") is None
    assert not page.browser.complaints()


def test_beside_the_bodies_the_picture_moves(page: Page) -> None:
    before, q = page.run("[live.picture.x, live.picture.y]"), page.session.position.q
    page.drag([0.4, -0.1], [0.45, -0.05])
    assert page.run("live.picture.x") > before[0] + 5
    np.testing.assert_array_equal(page.session.position.q, q)


def test_what_is_out_of_reach_is_told(page: Page) -> None:
    start = pin(0.9)
    page.mouse("Pressed", page.pixel([x * 0.6 for x in start]), 1)
    page.mouse("Moved", page.pixel([0.0, 0.5]), 1)
    page.settled()
    assert "as near as it gets" in page.text("status")
    page.mouse("Released", page.pixel([0.0, 0.5]), 0)
    page.settled()
    assert page.text("status") == ""


def test_sliders_move_and_change_it_and_curves_follow(page: Page) -> None:
    page.set("#driving input[type=range]", 60.0)
    assert page.session.fixed["O.angle"] == pytest.approx(math.radians(60), abs=1e-6)
    before = page.run("live.curves.panels[0].curves[0].values")
    page.set("#numbers input[type=number]", -0.45, "change")
    assert page.session.numbers == {"A.b.position[0]": -0.45}
    after = page.run("live.curves.panels[0].curves[0].values")
    over = page.run("live.curves.over.values")
    np.testing.assert_allclose(
        np.cos(np.array(after) - [rocker_angle(x, lengths=(A, 0.85, *LENGTHS[2:])) for x in over]), 1.0
    )
    assert len(before)
    assert not np.allclose(before[:50], after[:50])
    page.set("#numbers input[type=range]", -0.21)
    assert page.session.numbers["A.b.position[0]"] == pytest.approx(-0.21)


def test_modes_are_found_switched_and_exported(page: Page) -> None:
    page.run("document.getElementById('find').click()")
    since = time.monotonic()
    while page.run("document.getElementById('modes').children.length") < 2:
        assert time.monotonic() - since < 90
        time.sleep(0.2)
    pressed = page.run("[...document.getElementById('modes').children].map((x) => x.getAttribute('aria-pressed'))")
    assert sorted(pressed) == ["false", "true"]
    page.run("document.getElementById('modes').children[args[0]].click()", pressed.index("false"))
    page.settled()
    time.sleep(0.3)
    assert math.cos(page.session.position.poses[2][2] - rocker_angle(0.9, -1)) == pytest.approx(1.0, abs=1e-9)
    page.run("live.panel.export()")
    assert "mbd.assemble(mechanism" in page.run("document.getElementById('python').value")
    assert page.run("document.getElementById('download').download") == "crank-rocker.toml"


@pytest.mark.parametrize("size", [(1200, 760), (390, 800)])
def test_nothing_lies_outside_of_the_screen(page: Page, size: tuple[int, int]) -> None:
    page.browser.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 700},
    )
    page.settled()
    assert page.run("document.documentElement.scrollWidth") <= size[0]
    wide = "(x) => x.getBoundingClientRect().right > innerWidth + 1"
    assert page.run(f"[...document.querySelectorAll('#live *')].filter({wide}).length") == 0
    assert page.run("document.getElementById('scene').getBoundingClientRect().height") > 250


def test_python_that_ended_is_told(browser: Browser) -> None:
    mechanism = four_bar()
    server = Server(Session(mechanism, mbd.assemble(mechanism, {"O.angle": 0.9}), parameters=[], show=[])).start()
    page = Page(browser, server)
    server.stop()
    time.sleep(0.5)
    assert "Python has ended" in page.text("status")


def test_a_ring_in_space_is_dragged(browser: Browser) -> None:
    """A body is held where the pointer meets it, and follows the pointer on the screen."""
    example = mbd.examples.get("bricard").with_coordinates("joint")
    server = Server(Session(example.mechanism, example.state(), parameters=[], show=["P2.angle"])).start()
    try:
        page = Page(browser, server)
        start = page.session.position.poses[1][:3]
        page.session.answer({"kind": "coordinate", "name": "P1.angle", "value": 0.25})
        aim = page.session.position.poses[1][:3].tolist()
        page.session.answer({"kind": "reset"})
        page.drag(start.tolist(), aim)
        seen = page.pixel(page.session.position.poses[1][:3].tolist())
        assert np.hypot(*np.subtract(seen, page.pixel(aim))) < 25  # what is held is the surface, not the axis
        assert page.session.fixed["P1.angle"] == pytest.approx(0.25, abs=0.08)
        assert not page.browser.complaints()
    finally:
        server.stop()


def test_the_widget_hands_messages_on(browser: Browser, server: Server, tmp_path: Any) -> None:
    """Its module between a page in a frame and a model, of which Python is here the part that answers."""
    text = live_page("crank-rocker", 2)
    host = tmp_path / "host.html"
    host.write_text("<!doctype html><body></body>", encoding="utf-8")
    driver = browser.driver
    driver.get(host.as_uri())
    driver.execute_async_script(
        """
        const [module, page, done] = arguments;
        const url = URL.createObjectURL(new Blob([module], { type: "text/javascript" }));
        window.sent = [];
        const model = {
          get: (name) => ({ page, height: 500 })[name], send: (message) => sent.push(message),
          on: (name, listener) => (window.answer = listener), off: () => {},
        };
        import(url).then(({ default: { render } }) => { window.end = render({ model, el: document.body }); done(); });
        """,
        _MODULE,
        text,
    )
    server.session.answer({"kind": "reset"})
    seen, since = 0, time.monotonic()
    while not seen:
        assert time.monotonic() - since < 20
        sent = driver.execute_script("return sent.splice(0)")
        for message in sent:
            driver.execute_script("answer(arguments[0])", server.session.answer(message))
            seen += message["kind"] == "start"
        time.sleep(0.05)
    time.sleep(0.5)
    frame = driver.find_element("tag name", "iframe")
    assert frame.get_attribute("sandbox") == "allow-scripts allow-downloads"
    driver.switch_to.frame(frame)
    assert driver.execute_script("return document.getElementById('title').textContent") == "crank-rocker"
    assert driver.execute_script("return document.getElementById('live').hidden") is False
    driver.switch_to.default_content()
