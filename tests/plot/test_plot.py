"""Pictures: what they show, in numbers, not only that they are drawn."""

import math
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.animation import FuncAnimation
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Polygon
from matplotlib.quiver import Quiver, QuiverKey
from PIL import Image

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import plot
from jaxmbd.plot import _animate
from jaxmbd.scene.motion import interpolate, rates_of
from jaxmbd.scene.pieces import BODIES, INK, REACTION
from jaxmbd.scene.scene import SHARE, round_below
from tests.plot.test_symbols import yoke

ON_A_PIXEL = 1e-9  # [m]: points that a picture computes from the same numbers as the test
END = 0.5  # [s]


def pendulum() -> pl.Mechanism:
    rod = pl.Body("rod", mass=1.0, inertia=0.1, pose=(0.5, 0.0, 0.0))
    return pl.Mechanism(
        bodies=[rod],
        joints=[pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0))],
        forces=[pl.Gravity(9.81), pl.Force("wind", rod.at(0.5, 0.0), (0.5, 0.0))],
        sensors=[pl.Point("tip", rod.at(0.5, 0.0))],
    )


@pytest.fixture(scope="module")
def swing() -> mbd.Solution:
    mechanism = pendulum()
    state = mbd.assemble(mechanism, {"rod.theta": 0.0})
    return mbd.simulate(mechanism, state, np.linspace(0.0, END, 6))


def lines(axes: Axes, colour: str) -> list[np.ndarray]:
    """The points of the lines of one colour."""
    return [np.asarray(line.get_xydata()) for line in artists(axes, Line2D) if line.get_color() == colour]


def polygons(axes: Axes, edge: str) -> list[np.ndarray]:
    wanted = to_rgba(edge)
    return [patch.get_xy() for patch in artists(axes, Polygon) if tuple(patch.get_edgecolor()) == wanted]


def artists(axes: Axes, kind: type) -> list[Any]:
    return [artist for artist in axes.get_children() if isinstance(artist, kind)]


def reaction_quiver(axes: Axes) -> Any:
    (found,) = (q for q in artists(axes, Quiver) if tuple(q.get_facecolor()[0]) == to_rgba(REACTION))
    return found


# --- channels ----------------------------------------------------------------------------------------------


def test_channels_share_a_panel_by_unit(swing: mbd.Solution) -> None:
    panels = plot.channels(swing, ["O.fx", "rod.theta", "O.fy", "tip"])
    assert [axes.get_ylabel() for axes in panels] == ["[N]", "rod.theta [rad]", "tip [m]"]
    assert panels[-1].get_xlabel() == "time [s]"
    forces, angle, tip = ([line.get_label() for line in axes.get_lines()] for axes in panels)
    assert forces == ["O.fx", "O.fy"]
    assert angle == ["rod.theta"]
    assert tip == ["tip.x", "tip.y"]
    assert panels[1].get_legend() is None
    legend = panels[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["O.fx", "O.fy"]
    np.testing.assert_array_equal(panels[2].get_lines()[1].get_ydata(), swing["tip"][:, 1])
    np.testing.assert_array_equal(panels[2].get_lines()[1].get_xdata(), swing.ts)


def test_channels_by_name_on_given_axes(swing: mbd.Solution) -> None:
    _, given = plt.subplots(2)
    panels = plot.channels(swing, ["O.fx", "O.fy"], panels="name", axes=list(given))
    assert panels == tuple(given)
    assert [axes.get_ylabel() for axes in panels] == ["O.fx [N]", "O.fy [N]"]


def test_channels_draw_samples_as_dots(swing: mbd.Solution) -> None:
    times, angles = np.array([0.1, 0.2, 0.4]), np.array([-0.1, -0.2, -0.7])
    (axes,) = plot.channels(swing, "rod.theta", measured={"rod.theta": (times, angles)})
    line, dots = axes.get_lines()
    assert (dots.get_marker(), dots.get_linestyle()) == ("o", "None")
    assert dots.get_color() == line.get_color()
    assert dots.get_label() == "rod.theta, measured"
    np.testing.assert_array_equal(dots.get_xydata(), np.stack([times, angles], axis=1))
    (axes,) = plot.channels(swing, "tip", measured={"tip": swing["tip"]})
    np.testing.assert_array_equal(axes.get_lines()[3].get_ydata(), swing["tip"][:, 1])


def test_channels_refuse_what_does_not_fit(swing: mbd.Solution) -> None:
    with pytest.raises(mbd.MechanismError, match=r"Did you mean 'rod\.theta'"):
        plot.channels(swing, "rod.thta")
    with pytest.raises(mbd.MechanismError, match="need 2 axes, one for each panel; got 1"):
        plot.channels(swing, ["O.fx", "rod.theta"], axes=plt.figure().add_subplot())
    with pytest.raises(mbd.MechanismError, match=r"one row for each of its times: got shape \(3,\)"):
        plot.channels(swing, "rod.theta", measured={"rod.theta": np.zeros(3)})
    with pytest.raises(mbd.MechanismError, match="1 components, the motion 2"):
        plot.channels(swing, "tip", measured={"tip": np.zeros(6)})
    with pytest.raises(mbd.MechanismError, match="no plotted quantity named 'tip'"):
        plot.channels(swing, "rod.theta", measured={"tip": np.zeros(6)})
    assert not any(figure.axes and figure.axes[0].get_lines() for figure in map(plt.figure, plt.get_fignums()))


# --- a mechanism at rest ------------------------------------------------------------------------------------


def test_draw_puts_a_rod_between_its_markers() -> None:
    axes = plot.draw(pendulum(), np.array([0.0, -0.5, -math.pi / 2]))
    (bar,) = lines(axes, BODIES[0])
    np.testing.assert_allclose(bar[np.argsort(bar[:, 1])], [[0.0, -1.0], [0.0, 0.0]], atol=ON_A_PIXEL)
    assert axes.get_aspect() == 1.0
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("x [m]", "y [m]")
    bottom, top = axes.get_ylim()
    assert -1.3 < bottom < -1.0
    assert 0.0 < top < 0.3


def test_draw_takes_a_state_or_the_bodies_own_poses() -> None:
    mechanism = pendulum()
    own = np.asarray(mechanism["rod"].pose)
    state = mbd.assemble(mechanism, {"rod.theta": 0.4})
    for given, q in (((), own), ((state,), np.asarray(state.q))):
        drawn, wanted = (lines(plot.draw(mechanism, *place), BODIES[0])[0] for place in (given, (q,)))
        np.testing.assert_array_equal(drawn, wanted)


def test_the_bearing_of_a_pendulum_hangs_and_that_of_an_upright_rod_stands() -> None:
    for height, side in ((-0.5, 1.0), (0.5, -1.0)):
        axes = plot.draw(pendulum(), np.array([0.0, height, math.copysign(math.pi / 2, height)]))
        bearing, *_ = lines(axes, INK)
        finite = bearing[np.isfinite(bearing).all(axis=1)]
        assert np.min(side * finite[:, 1]) > -ON_A_PIXEL
        assert np.max(side * finite[:, 1]) > 0.01


def coupler() -> pl.Mechanism:
    bar = pl.Body("bar", 1.0, 0.1)
    return pl.Mechanism(
        bodies=[bar],
        joints=[pl.Revolute("A", pl.ground.at(-1.0, 0.0), bar.at(-1.0, 0.0))],
        forces=[pl.SpringDamper("spring", pl.ground.at(2.0, 2.0), bar.at(1.0, 1.0), 10.0)],
        sensors=[pl.Point("P", bar.at(0.5, -1.0)), pl.Point("inner", bar.at(0.1, 0.1))],
    )


def test_draw_fills_the_hull_of_three_markers_and_joins_the_spring() -> None:
    mechanism = coupler()
    axes = plot.draw(mechanism, np.array([0.0, 0.0, 0.0]), labels=True)
    (outline,) = polygons(axes, BODIES[0])
    np.testing.assert_allclose(outline, [[-1, 0], [0.5, -1], [1, 1], [-1, 0]], atol=ON_A_PIXEL)
    (patch,) = (p for p in artists(axes, Polygon) if p.get_xy().shape == (4, 2))
    assert 0 < patch.get_facecolor()[3] < 0.5
    ends = [(line[0], line[-1]) for line in lines(axes, INK) if len(line) > 8]
    assert any(np.allclose(p, [2, 2]) and np.allclose(q, [1, 1]) for p, q in ends)
    assert [text.get_text() for text in axes.texts] == ["bar", "A"]


def test_draw_shows_reactions_to_a_scale() -> None:
    force = np.array([3.0, -4.0])
    axes = plot.draw(pendulum(), np.array([0.5, 0.0, 0.0]), reactions={"O": force})
    quiver = reaction_quiver(axes)
    np.testing.assert_array_equal([quiver.U[0], quiver.V[0]], force)
    np.testing.assert_allclose(quiver.get_offsets(), [[0.0, 0.0]], atol=ON_A_PIXEL)
    bare = _picture_side(plot.draw(_without_wind(), np.array([0.5, 0.0, 0.0])))
    assert 5.0 / quiver.scale == pytest.approx(SHARE * bare)
    (key,) = artists(axes, QuiverKey)
    assert key.label == "5 N   reaction of O on rod"
    assert key.U == 5.0


def _without_wind() -> pl.Mechanism:
    whole = pendulum()
    return pl.Mechanism(whole.bodies, whole.joints, sensors=whole.sensors)


def _picture_side(axes: Axes) -> float:
    return max(float(np.diff(axes.get_xlim())[0]), float(np.diff(axes.get_ylim())[0]))


@pytest.mark.parametrize(
    ("value", "key"), [(0.0, 1.0), (0.99, 0.5), (1.0, 1.0), (4.9, 2.0), (730.0, 500.0), (2e-4, 2e-4)]
)
def test_the_key_of_the_scale_is_a_round_number_below(value: float, key: float) -> None:
    assert round_below(value) == pytest.approx(key)


def test_draw_refuses_what_does_not_fit() -> None:
    q = np.array([0.5, 0.0, 0.0])
    with pytest.raises(mbd.MechanismError, match=r"q must have 3 entries \(rod\.x, rod\.y, rod\.theta\)"):
        plot.draw(pendulum(), np.zeros(4))
    with pytest.raises(mbd.MechanismError, match="not finite"):
        plot.draw(pendulum(), q * np.nan)
    with pytest.raises(mbd.MechanismError, match="no joint or driver named 'Q'"):
        plot.draw(pendulum(), q, reactions={"Q": (1.0, 0.0)})
    with pytest.raises(mbd.MechanismError, match=r"'O': expected a force \(fx, fy\)"):
        plot.draw(pendulum(), q, reactions={"O": (1.0, 0.0, 2.0)})


def test_draw_keeps_to_the_given_axes() -> None:
    _, given = plt.subplots()
    assert plot.draw(pendulum(), np.array([0.5, 0.0, 0.0]), axes=given) is given
    assert len(plt.get_fignums()) == 1


def test_a_gear_is_drawn_about_its_axles() -> None:
    pinion, wheel = pl.Body("pinion", 1.0, 0.1), pl.Body("wheel", 1.0, 0.1, (0.3, 0.0, 0.0))
    mechanism = pl.Mechanism(
        bodies=[pinion, wheel],
        joints=[
            pl.Revolute("O", pl.ground.at(), pinion.at()),
            pl.Revolute("P", pl.ground.at(0.3, 0.0), wheel.at()),
            pl.Gear("mesh", "O.angle", "P.angle", -0.5),
        ],
    )
    axes = plot.draw(mechanism, np.array([0.0, 0.0, 0.2, 0.3, 0.0, -0.1]))
    for colour, centre, radius in zip(BODIES, (0.0, 0.3), (0.1, 0.2), strict=False):
        (circle,) = polygons(axes, colour)
        np.testing.assert_allclose(np.hypot(circle[:, 0] - centre, circle[:, 1]), radius)


# --- animations ---------------------------------------------------------------------------------------------


def test_frames_are_interpolated_by_cubics() -> None:
    ts, times = np.array([0.0, 0.5, 2.0]), np.array([0.0, 0.2, 0.5, 1.9, 2.0])
    values, rates = (ts**3 - ts)[:, None], (3 * ts**2 - 1)[:, None]
    np.testing.assert_allclose(interpolate(times, ts, values, rates)[:, 0], times**3 - times, atol=1e-14)


def drawn(animation: FuncAnimation) -> Axes:
    """The axes of an animation, which is marked as drawn: matplotlib warns of those that never are."""
    animation._draw_was_started = True  # pyright: ignore[reportAttributeAccessIssue]
    return animation._fig.axes[0]  # pyright: ignore[reportAttributeAccessIssue]


def test_animation_moves_bodies_reactions_paths_and_clock(swing: mbd.Solution) -> None:
    film = plot.animate(swing, reactions=["O"], trace=["tip"], fps=10)
    axes = drawn(film)
    assert list(film.new_frame_seq()) == list(range(6))
    force = np.asarray(swing.reaction("O").force)
    quiver = reaction_quiver(axes)
    assert np.linalg.norm(force, axis=1).max() / quiver.scale < 0.25 * _picture_side(axes)
    for k in (5, 2):
        film._func(k)  # pyright: ignore[reportAttributeAccessIssue]
        np.testing.assert_allclose([quiver.U[0], quiver.V[0]], force[k], rtol=1e-6)
        bar = lines(axes, BODIES[0])[2]
        tip = np.asarray(swing["tip"][k])
        assert min(np.linalg.norm(bar - tip, axis=1)) < ON_A_PIXEL
        whole, travelled = lines(axes, BODIES[0])[:2]
        np.testing.assert_allclose(travelled[-1], tip, atol=1e-6)
        np.testing.assert_array_equal(travelled, whole[: len(travelled)])
        assert axes.get_title(loc="left") == f"$t$ = {0.1 * k:.1f} s"
    np.testing.assert_allclose(np.hypot(*whole.T), 1.0, atol=1e-3)


def test_animation_holds_the_whole_motion(swing: mbd.Solution) -> None:
    axes = drawn(plot.animate(swing, fps=20, speed=0.5, reactions=["O"]))
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    scale = reaction_quiver(axes).scale
    for x, y in (*np.asarray(swing["tip"]), *np.asarray(swing.reaction("O").force) / scale):
        assert left < x < right
        assert bottom < y < top


def test_speed_and_fps_set_the_number_of_frames(swing: mbd.Solution) -> None:
    for fps, speed, expected in ((30, 1.0, 16), (30, 0.1, 151), (10, 5.0, 2)):
        film = plot.animate(swing, fps=fps, speed=speed)
        drawn(film)
        assert len(list(film.new_frame_seq())) == expected


def test_frames_between_saved_times_follow_chosen_speeds() -> None:
    """With `q̇ = 2 p + sin 5t`, the speeds `p` of a solution are not the rates of its coordinates."""
    rod = pl.Body("rod", 1.0, 0.1)
    pin = pl.Revolute("O", pl.ground.at(), rod.at(-0.5))
    speeds = pl.GeneralizedSpeeds("p", lambda t, q, p, _: 2 * p + jnp.sin(5 * t))
    mechanism = pl.Mechanism([rod], [pin], [pl.Gravity()], coordinates="joint", speeds=speeds)
    ts = np.linspace(0.0, 0.6, 13)
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.3}), ts)
    q, p = np.asarray(motion.q)[::2], np.asarray(motion.v)[::2]
    between = interpolate(ts[1::2], ts[::2], q, rates_of(mechanism, ts[::2], q, p))
    np.testing.assert_allclose(between, motion.q[1::2], atol=2e-4)


def test_animate_refuses_what_does_not_fit(swing: mbd.Solution) -> None:
    with pytest.raises(mbd.MechanismError, match=r"no point sensor or body named 'tap'.*Did you mean 'tip'"):
        plot.animate(swing, trace=["tap"])
    with pytest.raises(mbd.MechanismError, match="no joint or driver named 'P'"):
        plot.animate(swing, reactions=["P"])
    with pytest.raises(mbd.MechanismError, match="speed must be positive and finite, got 0"):
        plot.animate(swing, speed=0)
    with pytest.raises(mbd.MechanismError, match="fps must be positive and finite, got inf"):
        plot.animate(swing, fps=math.inf)
    one = {name: getattr(swing, name)[2:3] for name in ("ts", "q", "integrated_speeds", "z")}
    with pytest.raises(mbd.MechanismError, match=r"a single time: draw\(solution\.mechanism, solution\.state\(0\)\)"):
        plot.animate(replace(swing, **one))


def test_animation_is_saved_as_gif_page_and_film(swing: mbd.Solution, tmp_path: Path) -> None:
    film = plot.animate(swing, fps=10)
    path = plot.save_animation(film, tmp_path / "swing.gif", dpi=40)
    with Image.open(path) as image:
        assert image.n_frames == 6  # pyright: ignore[reportAttributeAccessIssue]
        assert image.info["duration"] == 100
    page = plot.save_animation(film, str(tmp_path / "swing.html"), dpi=40).read_text(encoding="utf-8")
    assert len(re.findall(r"frames\[\d+\] = \"data:image/png;base64,", page)) == 6
    film_path = plot.save_animation(film, tmp_path / "swing.mp4", dpi=40)
    assert film_path.read_bytes()[4:8] == b"ftyp"


def test_a_film_says_how_far_it_is(
    swing: mbd.Solution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    film = plot.animate(swing, fps=10)
    monkeypatch.setenv("JAXMBD_PROGRESS", "1")
    plot.save_animation(film, tmp_path / "swing.gif", dpi=40)
    assert re.fullmatch(r"drawing swing\.gif: frame 6 of 6 \.\.\. \d+ s\n", capsys.readouterr().err)
    plot.save_animation(film, tmp_path / "swing.gif", dpi=40, progress=False)
    assert capsys.readouterr().err == ""


def test_saving_says_what_is_valid_and_what_to_install(
    swing: mbd.Solution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film = plot.animate(swing, fps=10)
    drawn(film)
    with pytest.raises(ValueError, match=r"'swing\.avi': its suffix must be one of \.html, \.gif, \.mp4"):
        plot.save_animation(film, tmp_path / "swing.avi")
    monkeypatch.setattr(shutil, "which", lambda program: None)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ImportError, match=r"pip install jaxmbd\[animation\]"):
        plot.save_animation(film, tmp_path / "swing.mp4")
    monkeypatch.setattr(_animate, "_EMBED_LIMIT", 0.02)
    with pytest.raises(ValueError, match=r"only \d of 6 frames fit"):
        plot.save_animation(film, tmp_path / "swing.html")
    assert not list(tmp_path.iterdir())


# --- sparsity -----------------------------------------------------------------------------------------------


def test_spy_shows_each_entry_in_its_block() -> None:
    mechanism = yoke()
    q = jnp.array([0.0, 0.0, math.pi / 2, 0.0, 0.0, 0.0])
    state = mbd.State(jnp.zeros(()), q, jnp.zeros(6), mechanism.layout)
    axes = plot.spy(mechanism, state)
    (image,) = axes.get_images()
    shown = np.asarray(image.get_array())
    assert shown.shape == (11, 11)
    np.testing.assert_array_equal(np.diag(shown)[:6], 3)
    np.testing.assert_array_equal(shown, np.where(shown.T > 0, shown.T, 0))
    np.testing.assert_array_equal(shown[6:, 6:], 0)
    # Rows of the slot: its normal is the x axis, and the pin stands above the crank's axle.
    np.testing.assert_array_equal(shown[8], [4, 2, 4, 4, 2, 4, 0, 0, 0, 0, 0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["crank", "slide", "O", "slot", "rail"]
    assert axes.get_xlabel().startswith(f"11 × 11, {np.count_nonzero(shown > 2)} entries not zero")
    heights = [np.asarray(line.get_ydata()) for line in axes.get_lines()]
    edges = sorted({float(y[0]) for y in heights if y[0] == y[1]} - {0.0})
    assert edges == [3.0, 6.0, 8.0, 9.0]
