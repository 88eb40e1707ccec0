"""Pages on screens of all sizes, in a browser: nothing is cut."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import view
from tests.view.conftest import Browser
from tests.view.pages import rod_in_space, rod_in_the_plane, turning

TS = np.linspace(0.0, 2.0, 41)


@pytest.fixture(scope="module")
def space() -> mbd.Solution:
    return turning(rod_in_space(), TS)


@pytest.fixture(scope="module")
def plane() -> mbd.Solution:
    return turning(rod_in_the_plane(), TS)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("dimension", [2, 3])
def test_nothing_is_cut_on_small_screens(
    dimension: int, scheme: str, browser: Browser, space: mbd.Solution, plane: mbd.Solution
) -> None:
    """No element reaches beyond the sides of the screen, and the slider can be used; on a wide screen, too."""
    options: dict[str, Any] = {"channels": ["rod.x", "energy", "tip"], "trace": ["tip"]}
    browser.open(view.page(plane if dimension == 2 else space, title="A rod on a hinge " * 3, **options), scheme)
    for width in (320, 390, 768, 1200):
        browser.resize(width, 844)
        code = """[document.documentElement.scrollWidth, ...[...document.querySelectorAll('body *')].map((element) => {
            const { left, right, width } = element.getBoundingClientRect();
            return width ? Math.max(right, width - left) : 0;
        })]"""
        assert max(browser.run(code)) <= width + 1
        assert browser.box("#slider")["width"] >= 150
        below = browser.run(
            "Math.max(...[...document.querySelectorAll('footer *')].map((e) => e.getBoundingClientRect().bottom))"
        )
        assert below <= 844
    assert browser.complaints() == []


@pytest.mark.slow
def test_labels_of_axes_are_inside_of_their_axes(browser: Browser, plane: mbd.Solution) -> None:
    """Their widths, as the browser draws them, against the room between the edge of the panel and the curves."""
    for scale, shift in ((1e-7, -29.43), (3e4, 0.0), (1e2, 1234567.0), (1e-9, 0.0)):
        values = jnp.stack([shift + scale * jnp.sin(3 * plane.ts), plane.q[:, 1], plane.q[:, 2]], axis=1)
        browser.open(view.page(dataclasses.replace(plane, q=values), channels=["rod.x"]))
        browser.resize(390, 844)
        code = """(() => {
            const texts = [], original = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
                if (!this.canvas.closest('.panel')) return original.call(this, text, x, y);
                const { width } = this.measureText(text), { e, f } = this.getTransform();
                const left = { left: 0, start: 0, center: 0.5, right: 1, end: 1 }[this.textAlign] * width;
                texts.push([text, x + e - left, x + e - left + width, this.canvas.width]);
                return original.call(this, text, x, y);
            };
            document.querySelector('#curves').style.paddingRight = '9px'; // it is drawn again
            return new Promise((done) => setTimeout(() => done(texts), 300));
        })()"""
        drawn = browser.run(code)
        assert len(drawn) > 4
        for text, left, right, room in drawn:
            assert left >= 0, text
            assert right <= room, text


@pytest.mark.slow
def test_a_motion_that_failed_says_so(browser: Browser, plane: mbd.Solution) -> None:
    broken = dataclasses.replace(plane, q=plane.q.at[21:].set(jnp.nan), result=mbd.RESULTS.step_too_small)
    browser.open(view.page(broken, channels=["rod.x"]))
    assert "1 s is the last of its times up to 2 s. The step size became too small" in browser.text("#remark")
    browser.press("End")
    assert browser.run("clock.time") == pytest.approx(1.0)
    assert browser.run("document.querySelector('#remark').getBoundingClientRect().width") > 100
    assert browser.complaints() == []
