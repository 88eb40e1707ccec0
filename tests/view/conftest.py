"""A browser for tests of pages: Chromium without a window, which draws WebGL in software."""

import json
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jaxmbd.view import Page

WIDTH, HEIGHT = 900, 600  # [px]
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader "
    "--hide-scrollbars"
)


class Browser:
    """A browser with one page."""

    def __init__(self, driver: Any, folder: Path) -> None:
        self.driver, self.folder = driver, folder

    def open(self, page: Page, scheme: str = "light") -> None:
        """Load a page from a file, and wait until it is drawn."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get(page.save(self.folder / "page.html").as_uri())
        self.drawn()

    def run(self, code: str, *arguments: Any) -> Any:
        """The value of an expression of `page`, `clock`, `picture` and `args`, or of a promise of one."""
        text = """
            const args = [...arguments], done = args.pop();
            const answer = async ({ page, clock, picture }) => done({ value: await (%s) });
            jaxmbd.then(answer).catch((error) => done({ error: String(error) }));
        """
        answer = self.driver.execute_async_script(text % code, *arguments)
        assert "error" not in answer, answer
        return answer["value"]

    def drawn(self) -> None:
        """Wait until what has been asked for is drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def seek(self, time: float) -> None:
        self.run("clock.seek(args[0])", time)
        self.drawn()

    def press(self, key: str) -> None:
        self.run("dispatchEvent(new KeyboardEvent('keydown', { key: args[0] }))", key)
        self.drawn()

    def resize(self, width: int, height: int) -> None:
        """Show the page as on a screen of some size, down to that of a telephone."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.drawn()

    def text(self, selector: str) -> str:
        return self.run("document.querySelector(args[0]).textContent", selector)

    def box(self, selector: str) -> dict[str, float]:
        """Where an element is on the screen [px]."""
        return self.run("document.querySelector(args[0]).getBoundingClientRect().toJSON()", selector)

    def drag(self, start: tuple[float, float], stop: tuple[float, float]) -> None:
        """Press the mouse at a pixel of the screen, move it to another, and release it."""
        for kind, (x, y), held in (("Pressed", start, 1), ("Moved", stop, 1), ("Released", stop, 0)):
            event = {"type": f"mouse{kind}", "x": x, "y": y, "button": "left", "buttons": held, "clickCount": 1}
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        self.drawn()

    def pixels(self) -> np.ndarray:
        """The colours `(height, width, 3)` of the screen, from 0 to 255."""
        with Image.open(BytesIO(self.driver.get_screenshot_as_png())) as image:
            return np.asarray(image.convert("RGB")).astype(int)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console since the last call."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if "GL Driver Message" not in entry["message"]]

    def requests(self) -> list[str]:
        """What the browser has loaded since the last call, but for its own start page and data inside of pages."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith(("chrome", "data:"))]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    chromedriver = shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("needs Chromium and chromedriver, which are not on the path")
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install 'jaxmbd[dev]'")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
    for flag in (*_FLAGS.split(), f"--window-size={WIDTH},{HEIGHT}", profile):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    driver.set_script_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver: Any, tmp_path: Path) -> Browser:
    found = Browser(driver, tmp_path)
    for read in (found.complaints, found.requests):  # those of tests before
        read()
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found
