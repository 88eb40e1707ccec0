"""Sessions of mechanisms that are explored: messages and answers, without a browser."""

import json
import math
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.errors import MechanismError
from jaxmbd.view._session import Session
from tests.crank_rocker import LENGTHS, four_bar, rocker_angle

A, B, C, D = LENGTHS


def crank_rocker(**options: Any) -> Session:
    mechanism = four_bar()
    options = {
        "parameters": {"A.b.position[0]": (-0.6, -0.2)},
        "show": ["rocker.theta"],
        "trace": ["coupler"],
        **options,
    }
    return Session(mechanism, mbd.assemble(mechanism, {"O.angle": 0.9}), title="crank <rocker>", **options)


@pytest.fixture(scope="module")
def shared() -> Session:
    return crank_rocker()


@pytest.fixture
def session(shared: Session) -> Session:
    ask(shared, "reset")
    ask(shared, "drive", name="O.angle")
    return shared


def ask(session: Session, kind: str, **more: Any) -> dict[str, Any]:
    """The answer, which is data."""
    return json.loads(json.dumps(session.answer({"kind": kind, "id": 7, **more}), allow_nan=False))


def until_done(session: Session, kind: str, **more: Any) -> dict[str, Any]:
    """The last of the answers to a message that is sent until the search ends, as a page does."""
    for _ in range(20):
        answer = ask(session, kind, **more)
        if answer["isDone"]:
            return answer
    raise AssertionError("the search does not end")


def angles(answer: dict[str, Any]) -> list[float]:
    return answer["turns"]


def test_it_starts_with_all_that_a_page_needs(session: Session) -> None:
    answer = ask(session, "start")
    assert answer["id"] == 7
    assert answer["kind"] == "start"
    assert answer["title"] == "crank <rocker>"
    assert answer["sliders"] == [{"name": "A.b.position[0]", "unit": "m", "value": -B / 2, "low": -0.6, "high": -0.2}]
    (driving,) = answer["driving"]
    assert driving["name"] == "O.angle"
    assert driving["value"] == pytest.approx(0.9)
    assert [driving["low"], driving["high"]] == pytest.approx([-math.pi, math.pi])  # a crank turns
    (panel,) = answer["curves"]["panels"]
    over, rocker = np.array(answer["curves"]["over"]["values"]), np.array(panel["curves"][0]["values"])
    expected = [rocker_angle(x) for x in over]
    np.testing.assert_allclose(np.cos(rocker - expected), 1.0, atol=1e-9)
    assert answer["motion"]["bodies"] == ["crank", "coupler", "rocker"]
    assert len(answer["motion"]["traces"]) == 1
    assert angles(answer["pose"])[0] == pytest.approx(0.9)


def test_a_dragged_point_goes_where_it_is_asked_for(session: Session) -> None:
    target = [A * math.cos(1.4), A * math.sin(1.4)]
    answer = ask(session, "drag", frame=0, offset=[A / 2, 0.0], target=target)
    assert answer["isReached"]
    assert answer["isDone"]
    assert angles(answer)[0] == pytest.approx(1.4, abs=1e-5)
    assert angles(answer)[2] == pytest.approx(rocker_angle(1.4), abs=1e-5)
    assert answer["driving"] == [pytest.approx(1.4, abs=1e-5)]
    assert answer["readings"][1] == [pytest.approx(rocker_angle(1.4), abs=1e-5)]
    assert session.fixed == {"O.angle": pytest.approx(1.4, abs=1e-5)}


def test_what_is_out_of_reach_is_told_in_metres(session: Session) -> None:
    answer = until_done(session, "drag", frame=0, offset=[A / 2, 0.0], target=[0.0, 2 * A])
    assert not answer["isReached"]
    assert answer["missed"] == pytest.approx(A, abs=1e-4)
    assert angles(answer)[0] == pytest.approx(math.pi / 2, abs=5e-3)


def test_a_coordinate_is_set(session: Session) -> None:
    answer = until_done(session, "coordinate", name="O.angle", value=-2.0)
    assert angles(answer)[2] == pytest.approx(rocker_angle(-2.0) % (2 * math.pi), abs=1e-5) or math.isclose(
        math.cos(angles(answer)[2] - rocker_angle(-2.0)), 1.0, abs_tol=1e-9
    )


def test_a_number_changes_with_the_driving_coordinate_held(session: Session) -> None:
    answer = ask(session, "number", name="A.b.position[0]", value=-0.45)
    lengths = A, 0.45 + B / 2, C, D
    assert answer["value"] == -0.45
    assert answer["remark"] == ""
    assert angles(answer)[0] == pytest.approx(0.9, abs=1e-6)
    assert angles(answer)[2] == pytest.approx(rocker_angle(0.9, lengths=lengths), abs=1e-6)
    assert session.numbers == {"A.b.position[0]": -0.45}
    assert float(session.mechanism["A"].b.position[0]) == -0.45
    again = ask(session, "number", name="A.b.position[0]", value=-B / 2)
    assert angles(again)[2] == pytest.approx(rocker_angle(0.9), abs=1e-6)
    assert session.numbers == {}


def test_a_number_stops_where_the_loops_cannot_be_closed(session: Session) -> None:
    """At this angle the ends of coupler and rocker are so far apart that both must be long enough."""
    far = math.hypot(D - A * math.cos(0.9), A * math.sin(0.9))
    limit = far - C - B / 2  # the least length of the coupler that reaches, on its other half
    answer = ask(session, "number", name="A.b.position[0]", value=0.3)
    assert answer["value"] == pytest.approx(-limit, abs=0.02)
    assert answer["value"] < 0.3
    assert "cannot be assembled" in answer["remark"]
    assert session.position.miss < 1e-8


def test_curves_and_paths_are_those_of_present_numbers(session: Session) -> None:
    ask(session, "number", name="A.b.position[0]", value=-0.45)
    answer = ask(session, "shapes")
    over = np.array(answer["curves"]["over"]["values"])
    rocker = np.array(answer["curves"]["panels"][0]["curves"][0]["values"])
    expected = [rocker_angle(x, lengths=(A, 0.45 + B / 2, C, D)) for x in over]
    np.testing.assert_allclose(np.cos(rocker - expected), 1.0, atol=1e-9)


def test_another_coordinate_drives(session: Session) -> None:
    answer = ask(session, "drive", name="C.angle")
    (driving,) = answer["driving"]
    assert driving["name"] == "C.angle" == answer["active"]
    swing = [rocker_angle(x) for x in np.linspace(0, 2 * np.pi, 2000)]
    assert driving["high"] - driving["low"] == pytest.approx(np.ptp(np.unwrap(swing)), abs=2e-3)  # a rocker swings


def test_assembly_modes_are_found_and_switched(session: Session) -> None:
    answer, since = ask(session, "modes"), time.monotonic()
    while answer.get("isSearching"):
        assert time.monotonic() - since < 120
        time.sleep(0.1)
        ask(session, "drag", frame=0, offset=[A / 2, 0.0], target=[A * math.cos(0.9), A * math.sin(0.9)])  # goes on
        answer = ask(session, "found")
    assert answer["count"] == 2
    assert answer["present"] is not None
    other = 1 - answer["present"]
    switched = ask(session, "mode", index=other)
    assert switched["present"] == other == switched["pose"]["present"]
    assert math.cos(angles(switched["pose"])[2] - rocker_angle(0.9, -1)) == pytest.approx(1.0, abs=1e-9)
    assert ask(session, "mode", index=2)["kind"] == "error"
    ask(session, "number", name="A.b.position[0]", value=-0.45)
    assert ask(session, "mode", index=0)["kind"] == "error"  # those were of other numbers


def test_what_was_found_goes_on_in_python(session: Session, tmp_path: Path) -> None:
    ask(session, "number", name="A.b.position[0]", value=-0.45)
    ask(session, "drag", frame=0, offset=[A / 2, 0.0], target=[A * math.cos(1.2), A * math.sin(1.2)])
    answer = ask(session, "export")
    scope: dict[str, Any] = {"mbd": mbd, "mechanism": four_bar()}
    exec(answer["python"], scope)
    np.testing.assert_allclose(scope["state"].q, session.state.q, atol=1e-8)
    assert answer["name"] == "crank--rocker-.toml"
    assert answer["why"] == ""
    path = tmp_path / "found.toml"
    path.write_text(answer["toml"], encoding="utf-8")
    assert float(mbd.load(path)["A"].b.position[0]) == -0.45
    np.testing.assert_allclose(mbd.load_state(session.mechanism, path).q, session.state.q)


WRONG = [
    None,
    7,
    [],
    {},
    {"kind": "exec", "text": "1"},
    {"kind": ["drag"]},
    {"kind": "drag"},
    {"kind": "drag", "frame": True, "offset": [0.0, 0.0], "target": [0.0, 0.0]},
    {"kind": "drag", "frame": 3, "offset": [0.0, 0.0], "target": [0.0, 0.0]},
    {"kind": "drag", "frame": 0, "offset": [0.0], "target": [0.0, 0.0]},
    {"kind": "drag", "frame": 0, "offset": [0.0, "x"], "target": [0.0, 0.0]},
    {"kind": "drag", "frame": 0, "offset": [0.0, 0.0], "target": [math.nan, 0.0]},
    {"kind": "drag", "frame": 0, "offset": [0.0, 0.0], "target": [math.inf, 0.0]},
    {"kind": "drag", "frame": 0, "offset": [0.0, 0.0], "target": [0.0, 0.0], "along": [0.0, 0.0]},
    {"kind": "number", "name": "crank.mass", "value": 1.0},
    {"kind": "number", "name": "A.b.position[0]", "value": "1"},
    {"kind": "number", "name": "x" * 10_000, "value": 1.0},
    {"kind": "coordinate", "name": "O.angle", "value": None},
    {"kind": "coordinate", "name": "O.angel", "value": 1.0},
    {"kind": "drive", "name": 3},
    {"kind": "mode", "index": -1},
    {"kind": "mode", "index": False},
]


@pytest.mark.parametrize("message", WRONG, ids=range(len(WRONG)))
def test_messages_without_sense_are_answered_by_an_error_and_change_nothing(session: Session, message: object) -> None:
    before = session.position.q.copy()
    answer = json.loads(json.dumps(session.answer(message)))
    assert answer["kind"] == "error"
    assert answer["text"]
    np.testing.assert_array_equal(session.position.q, before)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"parameters": ["A.q"]}, "A.q"),
        ({"parameters": {"A.b.position[0]": (0.1, 0.2)}}, "not between"),
        ({"parameters": {"A.b.position[0]": (0.2, -0.8)}}, "pair"),
        ({"parameters": {"A.b.position[0]": 0.2}}, "pair"),
        ({"parameters": 3}, "parameters"),
        ({"show": ["rocker.omega"]}, "depends on speeds"),
        ({"show": ["O.fx"]}, "depends on speeds"),
        ({"show": ["energy"]}, "depends on speeds"),
        ({"show": ["rocket"]}, "rocket"),
        ({"trace": ["tip"]}, "tip"),
    ],
)
def test_wrong_arguments_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(MechanismError, match=text):
        crank_rocker(**options)


def test_numbers_that_move_nothing_get_no_slider() -> None:
    session = crank_rocker(parameters=None)
    names = {slider.name for slider in session.sliders}
    assert names == {"O.b.position[0]", "A.a.position[0]", "A.b.position[0]", "B.a.position[0]", "B.b.position[0]", "C.a.position[0]", "C.b.position[0]"}  # fmt: skip  # noqa: E501
    for slider in session.sliders:
        assert slider.low < slider.value < slider.high


def test_a_mechanism_in_space_without_its_drivers() -> None:
    """Drivers are released, a ray is followed, and the state is one of the mechanism without them."""
    example = mbd.examples.get("stewart-platform")
    explorer = mbd.explore(example.mechanism, example.state(), parameters=[])
    session = explorer._session
    answer = ask(session, "start")
    assert answer["dimension"] == 3
    assert len(answer["driving"]) == 6
    assert "released" in answer["remark"]
    place = session.position.poses[0][:3]
    along = [0.0, 1.0, 0.0]
    target = [float(place[0]) + 0.02, -5.0, float(place[2]) + 0.01]
    moved = ask(session, "drag", frame=0, offset=[0.0, 0.0, 0.0], target=target, along=along)
    assert moved["isReached"]
    assert moved["positions"][0] == pytest.approx(target[0], abs=1e-6)
    assert moved["positions"][2] == pytest.approx(target[2], abs=1e-6)
    assert "mechanism.replaced(drivers=[])" in ask(session, "export")["python"]
    assert len(explorer.state.q) == example.mechanism.replaced(drivers=[]).nq
    assert "S0.displacement" in repr(explorer)


def test_explore_needs_known_numbers_and_closed_loops() -> None:
    mechanism = four_bar()
    with pytest.raises(MechanismError, match="jit"):
        jax.jit(lambda x: mbd.explore(mbd.with_numbers(mechanism, {"crank.mass": x})) and x)(1.0)
    state = mbd.assemble(mechanism)
    with pytest.raises(mbd.AssemblyError, match="open"):
        mbd.explore(
            mechanism,
            mbd.State(state.t, jnp.full_like(state.q, 40.0), state.v, state.layout, state.rank, state.result, state.z),
        )
