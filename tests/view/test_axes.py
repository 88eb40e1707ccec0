"""Labels of axes: what they say and the room that they have, by the code of the page in Node.js; offsets of curves
that are nearly constant, in the data of a page."""

import dataclasses
import json
import math
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import view
from jaxmbd.view._curves import offset_of
from tests.view.pages import Content, rod_in_the_plane, turning

TS = np.linspace(0.0, 2.0, 41)


def in_node(code: str) -> Any:
    """The value of an expression of the functions in `axes.js`; a letter is 6 px wide."""
    node = shutil.which("node") or shutil.which("nodejs")
    if node is None:
        pytest.skip("needs Node.js, which is not on the path")
    axes = (files("jaxmbd.view") / "page" / "axes.js").read_text(encoding="utf-8")
    script = f"const measure = (text) => 6 * text.length;\n{axes}\nconsole.log(JSON.stringify({code}));"
    done = subprocess.run([node, "-"], input=script, capture_output=True, text=True, encoding="utf-8", check=True)
    return json.loads(done.stdout)


def test_numbers_of_axes_are_short_and_tell_steps_apart() -> None:
    cases = {
        (0.3, 0.1): "0.3",
        (-0.25, 0.05): "−0.25",
        (-1e-18, 0.05): "0.00",
        (1.25e6, 2.5e5): "1.25e6",
        (0.0, 1e-11): "0",
        (3e-27, 1e-11): "0",
        (-2e-11, 1e-11): "−2e-11",
    }
    found = in_node(f"{json.dumps(list(cases))}.map(([value, step]) => written(value, step))")
    assert found == list(cases.values())


def test_axes_are_as_wide_as_their_labels() -> None:
    """The widest label counts, and one of an axis that is not drawn yet has room for any step."""
    assert in_node("[widest(['1', '−29.4300', '0.5'], measure), widest([], measure)]") == [48, 0]
    spans = [[0.0, 2.0], [1e6, 1e6 + 1], [-1e-9, 1e-9], [99.5, 100.25]]
    widths = in_node(f"{spans}.map((span) => labelWidth(span, measure))")
    for (low, high), width in zip(spans, widths, strict=True):
        steps = [digit * 10.0 ** math.floor(math.log10((high - low) / 5)) for digit in (1, 2, 2.5, 5)]
        texts = in_node(f"{steps}.flatMap((step) => [written({low}, step), written({high}, step)])")
        assert width >= 6 * max(len(text) for text in texts)


def test_text_is_broken_between_words() -> None:
    text = "reaction of crank on coupler, of slider on ground"
    found = in_node(f"lines({json.dumps(text)}, 100, measure)")
    assert " ".join(found) == text
    assert all(6 * len(line) <= 100 for line in found)
    assert in_node("lines('unbreakable', 10, measure)") == ["unbreakable"]


def test_limits_have_room_and_constants_show_no_rounding_errors() -> None:
    low, high = in_node("roomy(1, 3, 0)")
    assert (low, high) == pytest.approx((0.88, 3.12))
    low, high = in_node("roomy(-1e-12, 1e-12, -29.43)")
    assert high - low == pytest.approx(1e-6 * 29.43 * 1.12)
    assert in_node("roomy(null, null, 0)") == [0, 1]


def test_readings_are_added_to_the_offset() -> None:
    assert in_node("[reading(1.25e-5, -29.43), reading(-2, 1000), reading(0.5, 0), reading(NaN, 1)]") == [
        "−29.43 + 1.250e-5",
        "1000 − 2.000",
        "0.5000",
        "–",
    ]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-29.43001, -29.42999, -29.43),
        (-29.4301, -29.4299, -29.43),
        (-29.5, -29.4, 0.0),
        (123456.0, 123457.0, 123456.0),
        (3.0, 3.0, 0.0),
        (1.0, 1.0 + 1e-14, 1.0),
        (-1e-9, 1e-9, 0.0),
        (9.87654321e8, 9.87654325e8, 9.87654e8),
    ],
)
def test_offsets_are_round_numbers_near_what_is_nearly_constant(low: float, high: float, expected: float) -> None:
    found = offset_of(np.array([low, np.nan, high]))
    assert found == pytest.approx(expected, rel=1e-8, abs=0.0)
    if found:
        assert abs(found - (low + high) / 2) <= 5 * max(high - low, 1e-6 * abs(high))
        assert len(repr(found)) <= 12
    assert offset_of(np.array([np.nan])) == 0.0


def test_nearly_constant_curves_keep_their_shape_in_single_precision() -> None:
    """A micrometre on a kilometre: less than single precision tells apart, but for the offset."""
    plane = turning(rod_in_the_plane(), TS)
    q = jnp.stack([1000.0 + 1e-6 * jnp.sin(3 * plane.ts), plane.q[:, 1], plane.q[:, 2]], axis=1)
    solution = dataclasses.replace(plane, q=q)
    dots = TS[:3], np.asarray(q[:3, 0]) + 1e-7
    content = Content(view.page(solution, channels=["rod.x", "rod.theta"], measured={"rod.x": dots}))
    first, second = content.data["panels"]
    assert (first["offset"], second["offset"]) == (1000.0, 0.0)
    (curve,) = first["curves"]
    np.testing.assert_allclose(content.array(curve["values"]), 1e-6 * np.sin(3 * TS), atol=1e-12)
    np.testing.assert_allclose(content.array(curve["measured"]["values"]), 1e-6 * np.sin(3 * TS[:3]) + 1e-7, atol=1e-12)
    np.testing.assert_allclose(content.array(second["curves"][0]["values"]), plane.q[:, 2], rtol=1e-6)


@pytest.mark.parametrize("failing", [1, 21])
def test_a_motion_that_failed_is_shown_until_then(failing: int) -> None:
    plane = turning(rod_in_the_plane(), TS)
    broken = dataclasses.replace(plane, q=plane.q.at[failing:].set(jnp.nan), result=mbd.RESULTS.singular)
    content = Content(view.page({"good": plane, "bad": broken}, channels=["rod.x"]))
    until = TS[failing - 1]
    assert content.data["remark"] == (
        f"bad: The motion ended early; {until:g} s is the last of its times up to 2 s. The motion stops at a singular "
        "position, where constraint rows become dependent."
    )
    times = content.array(content.data["motions"][1]["times"])
    assert (times[0], times[-1]) == pytest.approx((0.0, until), abs=1e-9)
    assert content.data["span"] == pytest.approx([0.0, 2.0])
    (good, bad) = content.data["panels"][0]["curves"]
    assert content.array(bad["times"])[-1] == pytest.approx(2.0)
    np.testing.assert_array_equal(np.isfinite(content.array(bad["values"])), np.arange(41) < failing)
    assert np.isfinite(content.array(good["values"])).all()
    assert Content(view.page(plane)).data["remark"] == ""


def test_a_motion_that_failed_at_its_start_says_why() -> None:
    plane = turning(rod_in_the_plane(), TS)
    broken = dataclasses.replace(plane, q=plane.q * jnp.nan, result=mbd.RESULTS.not_assembled)
    with pytest.raises(mbd.MechanismError, match="failed at its start: The joints are not closed at the start"):
        view.page(broken)
