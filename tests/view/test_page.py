"""Pages: the data that they hold, their size and their errors, without a browser."""

import dataclasses
import html
import sys
import warnings
import webbrowser
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import jaxmbd as mbd
from jaxmbd import progress, view
from jaxmbd.cli import app
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.motion import facing
from jaxmbd.scene.parts import pieces_of
from jaxmbd.scene.pieces import BODIES
from jaxmbd.scene.recording import scene_of
from jaxmbd.view._motion import _continuous
from jaxmbd.view._numbers import Numbers
from jaxmbd.view._page import _speed
from jaxmbd.view._pieces import piece_data
from tests.view.pages import LENGTH, RATE, Content, rod_in_space, rod_in_the_plane, tumbling, turning

TS = np.linspace(0.0, 0.5, 6)
ROUNDED = 2e-5  # [m], [rad]: positions are rounded to a thousandth of a symbol, here 0.021 m, and angles to 2e-5
SHAPE = 0.04  # the error of the shape of a spring between stored lengths, in symbol sizes
FIXED_BYTES, BYTES_PER_FRAME = 2e6, 100  # the most that a page may take


@pytest.fixture(scope="module")
def space() -> mbd.Solution:
    return turning(rod_in_space(), TS)


@pytest.fixture(scope="module")
def plane() -> mbd.Solution:
    return turning(rod_in_the_plane(), TS)


# --- poses and pieces ---------------------------------------------------------------------------------------


def test_frames_hold_the_saved_times_and_poses(space: mbd.Solution, plane: mbd.Solution) -> None:
    for solution in (space, plane):
        content = Content(view.page(solution))
        (motion,) = content.data["motions"]
        times, positions, turns = (content.array(motion[name]) for name in ("times", "positions", "turns"))
        dim = solution.mechanism.space.dim
        assert len(times) == 401
        saved = np.searchsorted(times, TS - 1e-6)
        np.testing.assert_allclose(times[saved], TS, atol=1e-8)
        np.testing.assert_allclose(positions[saved, 0], solution.q[:, :dim], atol=ROUNDED)
        np.testing.assert_allclose(turns[saved, 0], solution.q[:, dim : 3 if dim == 2 else 7], atol=ROUNDED)
        exact = 0.5 * LENGTH * np.stack([np.cos(RATE * times), np.sin(-RATE * times)], axis=1)
        np.testing.assert_allclose(positions[:, 0, [0, dim - 1]], exact, atol=3e-5)  # cubics between saved times
        assert motion["bodies"] == ["rod"]
        assert content.data["dimension"] == dim


def test_fast_rotations_get_more_frames() -> None:
    """Between two of 400 frames, a rod turns by 2.6 degrees at the first rate, and by 13 at the second."""
    for rate, frames in ((36.0, 401), (180.0, 1201)):
        (motion,) = Content(view.page(turning(rod_in_the_plane(), np.linspace(0.0, 0.5, 41), rate))).data["motions"]
        assert motion["times"]["shape"] == [frames]
        assert motion["turns"]["shape"] == [frames, 1, 1]


def placed(content: Content, piece: dict[str, Any], poses: Any) -> np.ndarray:
    """The points of a piece in the world by the rules of the page, the shapes of springs between those stored."""

    def point(start: dict[str, Any]) -> np.ndarray:
        return poses.position[start["frame"]] + poses.rotation[start["frame"]] @ np.array(start["offset"])

    origin, shapes = point(piece["start"]), [content.array(shape) for shape in piece["shapes"]]
    if "end" in piece:
        away = point(piece["end"]) - origin
        columns = np.stack([shape.ravel() for shape in shapes], axis=1)
        length = float(np.linalg.norm(away))
        flat = [np.interp(length, piece["lengths"], column) if len(column) > 1 else column[0] for column in columns]
        return np.reshape(flat, shapes[0].shape) @ facing(away).T + origin
    axes = np.eye(len(origin)) if piece["isUpright"] else poses.rotation[piece["start"]["frame"]]
    return shapes[0] @ axes.T + origin


@pytest.mark.parametrize("dimension", [2, 3])
def test_pieces_are_where_the_scene_puts_them(dimension: int, space: mbd.Solution, plane: mbd.Solution) -> None:
    solution = plane if dimension == 2 else space
    content, scene = Content(view.page(solution)), scene_of(solution, (), (), np.linspace(0.0, 0.5, 401))
    (motion,) = content.data["motions"]
    assert [piece["part"] for piece in motion["pieces"]] == [piece.part for piece in scene.pieces]
    assert {"rod", "O", "spring", "ground"} <= {piece["part"] for piece in motion["pieces"]}
    for k in (0, 123, 400):
        poses = scene.motion.at(k)
        for data, piece in zip(motion["pieces"], scene.pieces, strict=True):
            found, wanted = placed(content, data, poses), piece.shape(poses)
            if dimension == 3:
                found = found[np.round(content.array(data["faces"])).astype(int)]
            tolerance = (SHAPE if piece.end is not None else 1e-4) * scene.size
            np.testing.assert_allclose(found, wanted, atol=tolerance, err_msg=piece.part)


def test_each_shape_is_there_once(space: mbd.Solution) -> None:
    """A spring is stored for a few lengths, all else once, whatever the number of frames."""
    few, many = (Content(view.page(turning(rod_in_space(), np.linspace(0.0, 0.5, n)))) for n in (401, 801))
    for content in (few, many):
        counts = {piece["part"]: len(piece["shapes"]) for piece in content.data["motions"][0]["pieces"]}
        assert 2 <= counts.pop("spring") <= 5
        assert set(counts.values()) == {1}
    shapes = [piece["shapes"][0]["shape"] for piece in few.data["motions"][0]["pieces"]]
    assert shapes == [piece["shapes"][0]["shape"] for piece in many.data["motions"][0]["pieces"]]


@pytest.mark.parametrize("name", ["car-axis", "five-bar", "governor", "rolling-disc", "stewart-platform"])
def test_shapes_have_as_many_points_for_every_length(name: str) -> None:
    mechanism = mbd.examples.get(name).mechanism
    poses = np.concatenate([*(np.asarray(body.pose) for body in mechanism.bodies), np.zeros(len(mechanism.turns))])
    for piece in pieces_of(Geometry(mechanism, np.zeros(1), poses[None])):
        if callable(piece.points):
            assert len({piece.points(length).shape for length in np.linspace(0.1, 3.0, 50)}) == 1, piece.part


def test_size_of_a_page() -> None:
    """Five bodies and a curve at a rate that shows each turn of theirs in some hundred frames."""
    frames = 5001
    page = view.page(tumbling(5, np.linspace(0.0, 100.0, frames)), channels=["stone 1.x"])
    assert len(page.html) < FIXED_BYTES + BYTES_PER_FRAME * frames
    bare = view.page(tumbling(5, np.linspace(0.0, 10.0, 501)), channels=["stone 1.x"])
    assert len(page.html) - len(bare.html) < BYTES_PER_FRAME * (frames - 501)


def test_shapes_are_stored_for_as_many_lengths_as_their_bends_need(plane: mbd.Solution) -> None:
    scene = scene_of(plane, (), (), TS)
    spring = next(piece for piece in scene.pieces if piece.end is not None)
    size = scene.size
    found = []
    for bend in (0.0, 1.0):
        bow = dataclasses.replace(spring, points=lambda x, b=bend: np.array([(0.0, 0.0), (x / 2, b * x * x), (x, 0.0)]))
        numbers = Numbers()
        data = piece_data(bow, scene.geometry, numbers, None)
        content = Content(
            view.Page(f'<script id="data" type="">{{}}</script><script id="numbers" type="">{numbers.text()}</script>')
        )
        shapes = np.array([content.array(shape) for shape in data["shapes"]])
        found.append(len(shapes))
        for length in np.linspace(data["lengths"][0], data["lengths"][-1], 77):
            bent = np.interp(length, data["lengths"], shapes[:, 1, 1])
            assert bent == pytest.approx(bend * length**2, abs=SHAPE * size)
    assert found[0] == 2
    assert found[1] > 5


def test_rotations_do_not_jump() -> None:
    """A quaternion and its negative are one rotation, and so are angles a turn apart."""
    half = np.linspace(0.0, 2.0, 9)
    e = np.stack([np.cos(half), np.sin(half), 0 * half, 0 * half], axis=1)
    signs = np.array([1, -1, -1, 1, 1, -1, 1, -1, 1])[:, None]
    np.testing.assert_allclose(_continuous(2 * (signs * e)[:, None])[:, 0], e, atol=1e-12)
    wrapped = np.arctan2(np.sin(4 * half), np.cos(4 * half))
    np.testing.assert_allclose(_continuous(wrapped[:, None, None])[:, 0, 0], 4 * half, atol=1e-12)


# --- forces, paths, curves ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swing() -> mbd.Solution:
    mechanism = rod_in_the_plane()
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"rod.theta": 0.0}), TS)


def test_forces_paths_and_curves_are_those_of_the_solution(swing: mbd.Solution) -> None:
    dots = np.linspace(0.0, 0.4, 3), np.array([0.0, -0.2, -0.5])
    options: dict[str, Any] = {"channels": ["rod.theta", "tip", "O.fx"], "measured": {"rod.theta": dots}}
    content = Content(view.page(swing, reactions="O", trace="tip", **options))
    (motion,) = content.data["motions"]
    (arrow,), (trace,), legend = motion["arrows"], motion["traces"], content.data["legend"]
    vectors, times = content.array(arrow["vectors"]), content.array(motion["times"])
    newtons = vectors * legend["value"] / legend["length"]
    saved = np.searchsorted(times, TS - 1e-6)
    force = np.asarray(swing.reaction("O").force)
    np.testing.assert_allclose(newtons[saved], force, atol=2e-3 * np.abs(force).max())
    np.testing.assert_allclose(content.array(trace["points"])[saved], swing["tip"], atol=1e-4)
    titles = [panel["title"] for panel in content.data["panels"]]
    assert titles == ["rod.theta [rad]", "tip [m]", "O.fx [N]"]
    (theta,), (x, y), _ = (panel["curves"] for panel in content.data["panels"])
    np.testing.assert_allclose(content.array(theta["values"]), swing["rod.theta"], rtol=1e-6)
    np.testing.assert_allclose(content.array(theta["times"]), TS, atol=1e-8)
    np.testing.assert_allclose(content.array(theta["measured"]["values"]), dots[1])
    assert (x["label"], y["label"]) == ("tip.x", "tip.y")
    np.testing.assert_allclose(content.array(y["values"]), swing["tip"][:, 1], rtol=1e-6)


def test_several_motions_have_names_colours_and_one_scale(plane: mbd.Solution) -> None:
    slow = turning(rod_in_the_plane(), np.linspace(0.1, 0.7, 4), 1.0)
    content = Content(view.page({"fast": plane, "slow": slow}, channels=["rod.theta", "rod.x"], trace=["rod"]))
    fast, late = content.data["motions"]
    assert [m["name"] for m in (fast, late)] == ["fast", "slow"]
    for motion, colour, other in ((fast, *BODIES[:2]), (late, *BODIES[1::-1])):
        colours = {piece["colour"] for piece in motion["pieces"]} | {motion["traces"][0]["colour"]}
        assert colour in colours
        assert other not in colours
    assert fast["size"] == late["size"]
    assert content.data["span"] == [0.0, 0.7]
    assert [len(panel["curves"]) for panel in content.data["panels"]] == [2, 2]
    assert [curve["colour"] for curve in content.data["panels"][0]["curves"]] == list(BODIES[:2])


def test_a_force_has_one_scale_in_all_motions() -> None:
    """The wind is the same force everywhere; the scale is that of the smaller picture."""
    near, far = (turning(rod_in_space(), np.linspace(0.0, end, 6)) for end in (0.1, 2.0))

    def lengths(motions: Any) -> list[float]:
        content = Content(view.page(motions))
        return [content.array(motion["arrows"][0]["vectors"])[0, 2] for motion in content.data["motions"]]

    (alone,) = lengths(far)
    together = lengths({"near": near, "far": far}) + lengths({"far": far, "near": near})
    np.testing.assert_allclose(together, together[0], atol=1e-4)
    assert 0.1 < together[0] < 0.95 * alone


def test_the_written_scale_of_reactions_holds_for_all_motions(swing: mbd.Solution) -> None:
    """The larger force is in the larger picture, whose own scale is not the common one."""
    places, numbers = (lambda m: (m["spring"].a.position, m["spring"].stiffness)), (jnp.array([1.0, 9.0]), 2.5)
    far = eqx.tree_at(places, swing.mechanism, numbers)
    both = {"near": swing, "far": mbd.simulate(far, swing.state(0), TS)}
    content = Content(view.page(both, reactions=["O"]))
    legend = content.data["legend"]
    for motion, solution in zip(content.data["motions"], both.values(), strict=True):
        newtons = content.array(motion["arrows"][0]["vectors"])[-1] * legend["value"] / legend["length"]
        force = np.asarray(solution.reaction("O").force)
        np.testing.assert_allclose(newtons, force[-1], atol=2e-2 * np.abs(force).max())


def test_a_state_is_one_frame(plane: mbd.Solution) -> None:
    mechanism = rod_in_the_plane()
    state = plane.state(2)
    one = {name: getattr(plane, name)[2:3] for name in ("ts", "q", "integrated_speeds", "z")}
    for page in (view.page(mechanism, state), view.page(dataclasses.replace(plane, **one))):
        content = Content(page)
        (motion,) = content.data["motions"]
        assert content.data["span"][0] == content.data["span"][1]
        np.testing.assert_allclose(content.array(motion["positions"])[:, 0], plane.q[2:3, :2], atol=ROUNDED)


@pytest.mark.parametrize(
    ("duration", "speed"), [(0.0, 1.0), (3.0, 1.0), (0.01, 0.005), (1.0, 0.5), (100.0, 5.0), (3600.0, 200.0)]
)
def test_speed_that_is_pleasant(duration: float, speed: float) -> None:
    assert _speed(duration) == pytest.approx(speed)


# --- what users write ---------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """The tags of a page, and the text of its title."""

    def __init__(self) -> None:
        HTMLParser.__init__(self)
        self.tags, self.heading = list[str](), ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "title":
            self.heading += data


def test_names_do_no_harm() -> None:
    """A name is text: it ends no script and begins no element."""
    name = "</script><b>{{scripts}}<!--<script>"
    harmless, harmful = (
        view.page({n: turning(rod_in_the_plane(n), TS)}, title=n, channels=f"{n}.theta") for n in ("rod", name)
    )
    tags = []
    for page in (harmless, harmful):
        parser = Tags()
        parser.feed(page.html)
        tags.append(parser.tags)
        assert parser.heading.strip() == ("rod" if page is harmless else name)
    assert tags[0] == tags[1]
    data = Content(harmful).data
    assert data["motions"][0]["bodies"] == [name]
    assert data["title"] == data["motions"][0]["name"] == name
    assert data["panels"][0]["title"] == f"{name}.theta [rad]"


def test_a_page_refers_to_nothing_outside(space: mbd.Solution) -> None:
    text = view.page(space).html
    assert "default-src 'none'" in text
    parser = Tags()
    parser.feed(text)
    assert not set(parser.tags) & {"img", "iframe", "object", "embed", "base", "form"}
    assert 'src="' not in text.partition("<script>")[0]


@pytest.mark.usefixtures("as_a_user_runs_it")
def test_wrong_arguments_are_named(space: mbd.Solution, plane: mbd.Solution) -> None:
    batch = jax.tree.map(lambda x: np.stack([x, x]) if isinstance(x, jax.Array) else x, plane)
    infinite = dataclasses.replace(plane, q=plane.q * np.nan)
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        ((batch,), {}, r"is a batch or being traced: its q has shape \(2, 6, 3\), not \(times, nq\)"),
        (({"a": plane, "b": space},), {}, r"do not fit together: \['a'\] and \['b'\]"),
        (({},), {}, "at least one motion, got none"),
        ((3,), {}, "motions must be a Solution"),
        (({"a": 3},), {}, r"motions\['a'\] must be a Solution"),
        (({1: plane},), {}, "the name of a motion must be a string"),
        ((plane.mechanism,), {}, "give its state too"),
        ((plane, plane.state(0)), {}, "a solution has its own states"),
        ((plane.mechanism, space.state(0)), {}, "belongs to another mechanism"),
        ((plane,), {"reactions": "Q"}, "no joint or driver named 'Q'"),
        ((plane,), {"trace": ["top"]}, "no point sensor or body named 'top'"),
        ((plane,), {"channels": ["rod.thta"]}, r"no quantity named 'rod\.thta'\. Did you mean 'rod\.theta'"),
        ((plane,), {"measured": {"rod.x": np.zeros(6)}}, "no plotted quantity named 'rod.x'"),
        ((plane,), {"elev": 10.0}, "elev and azim turn the view of a mechanism in space"),
        (({"a": plane, "b": infinite},), {}, r"motions\['b'\]: .*q holds values that are not finite"),
        (({"a": plane, "b": plane},), {"channels": "x"}, r"motions\['a'\]: There is no quantity named 'x'"),
        ((plane,), {"title": 3}, "title must be a string"),
        ((plane,), {"speed": 0.0}, "speed must be positive and finite, got 0.0"),
        ((plane,), {"speed": np.inf}, "speed must be positive and finite, got inf"),
        ((space,), {"azim": np.nan}, "The direction of view: azim must be finite, got nan"),
        ((infinite,), {}, "not finite"),
    ]
    for arguments, options, message in wrong:
        with pytest.raises(mbd.MechanismError, match=message):
            view.page(*arguments, **options)


# --- where it is shown --------------------------------------------------------------------------------------


def test_a_solution_writes_its_page(plane: mbd.Solution, tmp_path: Path) -> None:
    path = plane.to_html(tmp_path / "rod.html", channels="rod.theta", title="rod")
    page = view.page(plane, channels="rod.theta", title="rod")
    assert path.read_text(encoding="utf-8") == page.html
    assert repr(page) == f"Page of {path.stat().st_size / 1e6:.2f} MB; save(path) writes it to a file, show() shows it"


def test_outside_a_notebook_the_browser_opens_a_file(plane: mbd.Solution, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) is None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plane.show(title="rod")
    path = Path(opened[0].removeprefix("file://"))
    assert path.read_text(encoding="utf-8") == view.page(plane, title="rod").html
    path.unlink()
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    with pytest.warns(UserWarning, match=r"No browser could be started; the page is .*\.html") as caught:
        plane.show()
    Path(str(caught[0].message).rpartition(" ")[2]).unlink()


def test_a_notebook_shows_a_frame_below_the_cell(plane: mbd.Solution, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, str]] = []
    shell = SimpleNamespace(kernel=object())
    display = SimpleNamespace(display=lambda content, raw: shown.append(content))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell, display=display))
    assert progress.notebook() is not None
    plane.show(title="rod")
    page = view.page(plane, title="rod")
    (content,) = shown
    assert content["text/html"] == page._repr_html_()
    assert 'sandbox="allow-scripts"' in content["text/html"]
    frame = content["text/html"].partition('srcdoc="')[2].removesuffix('"></iframe>')
    assert '"' not in frame
    assert html.unescape(frame) == page.html


def test_the_command_writes_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["show", "pendulum", "--until", "0", "--set", "rod.theta=0.5", "--out", "pages/rod.html"]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "wrote pages/rod.html" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["pages"]
    text = Path("pages/rod.html").read_text(encoding="utf-8")
    content = Content(view.Page(text))
    assert content.data["title"] == "pendulum"
    assert content.array(content.data["motions"][0]["turns"])[0, 0, 0] == pytest.approx(0.5)
    result = CliRunner().invoke(app, [*arguments, "--reaction", "Q"])
    assert result.exit_code == 1
    assert "no joint or driver named 'Q'" in " ".join(result.output.split())
