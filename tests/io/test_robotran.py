"""Robotran's files: chains of joints, cuts, and what its projects hold as code."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmbd as mbd
import jaxmbd.spatial as sp
from jaxmbd.errors import MechanismError
from jaxmbd.io import ImportedModel, read
from tests.io.mujoco_bench import accelerations_here


def xyz(x: float = 0.0, y: float = 0.0, z: float = 0.0) -> str:
    return f"<coordinates><x>{x}</x><y>{y}</y><z>{z}</z></coordinates>"


def joint(name: str, kind: str, q: float = 0.0, qd: float = 0.0, nature: str = "independent", more: str = "") -> str:
    start = f"<initialvalue><q>{q}</q><qd>{qd}</qd></initialvalue>" if q or qd else ""
    return (
        f"<joint><jointname>{name}</jointname><type>{kind}</type><nature>{nature}</nature>{start}{more}"
        "<graphics><x2D/></graphics></joint>\n"
    )


def point(name: str, place: str, more: str = "") -> str:
    return f"<point><pointname>{name}</pointname>{place}{more}<graphics/></point>\n"


def body(name: str, parent: str, on: str, joints: str, points: str = "", mass: str = "", com: str = "") -> str:
    inertia = "<inertia><Ixx>0.02</Ixx><Iyy>0.03</Iyy><Izz>0.025</Izz><Ixy>0.002</Ixy></inertia>"
    return (
        f"<body>\n<bodyname>{name}</bodyname><parent><bodyname>{parent}</bodyname><pointname>{on}</pointname></parent>"
        f"\n{joints}<mass>{mass or 1.0}</mass><com>{com or xyz()}</com>{inertia}\n{points}</body>\n"
    )


def cut(kind: str, ends: str, more: str = "", name: str = "cut") -> str:
    one, two = ends.split()
    first, second = (
        f"<endpoint{k}><bodyname>{end.split('.')[0]}</bodyname><pointname>{end.split('.')[1]}</pointname></endpoint{k}>"
        for k, end in ((1, one), (2, two))
    )
    return f"<{kind}><name>{name}</name>{first}{second}{more}</{kind}>\n"


def description(bodies: str, cuts: str = "", rest: str = "") -> str:
    base = (
        f"<base><gravity>{xyz(0, 0, -9.81)}</gravity><baseBodyName>Body_0</baseBodyName>{point('P', xyz(1.5))}</base>"
    )
    head = "<?xml version='1.0' encoding='UTF-8'?>\n<mbsDescR7><mbsname>m</mbsname>"
    return f"{head}\n{base}\n<bodytree>\n{bodies}</bodytree>\n<cuts>{cuts}</cuts>\n{rest}</mbsDescR7>\n"


def model(tmp_path: Path, text: str, strict: bool = False) -> ImportedModel:
    path = tmp_path / "m.mbs"
    path.write_text(text)
    return read(path, strict=strict)


CRANK = body("crank", "base", "origin", joint("R2_crank", "R2", -0.6, 2.0), point("end", xyz(0.4)), com=xyz(0.2))
ROD = body(
    "rod",
    "crank",
    "end",
    joint("R2_rod", "R2", 1.0, nature="dependent"),
    point("end", xyz(1.0)),
    "2.0",
    xyz(0.5, 0, 0.1),
)
SLIDER = body("slider", "Body_0", "P", joint("T1_slider", "T1", 0.1, nature="dependent"), point("pin", xyz()))


def in_python() -> sp.Mechanism:
    """The slider-crank of these three bodies."""
    J = np.array([[0.02, 0.002, 0.0], [0.002, 0.03, 0.0], [0.0, 0.0, 0.025]])
    crank, rod, slider = (sp.Body(name, mass, J) for name, mass in (("crank", 1.0), ("rod", 2.0), ("slider", 1.0)))
    hinge: Any = {"axis": "y"}
    joints = [
        sp.Revolute("R2_crank", sp.ground.at(**hinge), crank.at(-0.2, **hinge)),
        sp.Revolute("R2_rod", crank.at(0.2, **hinge), rod.at(-0.5, 0, -0.1, **hinge)),
        sp.Prismatic("T1_slider", sp.ground.at(1.5, axis="x"), slider.at(axis="x")),
        sp.PointConstraint("cut", rod.at(0.5, 0, -0.1), slider.at()),
    ]
    return sp.Mechanism([crank, rod, slider], joints, [sp.Gravity()], coordinates="joint")


def test_a_closed_loop_is_the_mechanism_in_python(tmp_path: Path) -> None:
    read_model = model(tmp_path, description(CRANK + ROD + SLIDER, cut("ball", "rod.end slider.pin")), strict=True)
    state, expected = read_model.state, in_python()
    assert read_model.mechanism.coordinate_names == expected.coordinate_names
    np.testing.assert_allclose(state["R2_crank.angle"], -0.6, atol=0.2)  # the loop is closed near the start
    position = mbd.Equations(expected).at(state.t, state.q).position()
    np.testing.assert_allclose(position, 0.0, atol=1e-9)
    found, there = (
        accelerations_here(m, np.asarray(state.q)[None], np.asarray(state.v)[None])[0]
        for m in (read_model.mechanism, expected)
    )
    for name, value in there.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-9, atol=1e-9)
    assert abs(there["R2_crank.angle_rate"]) > 1.0


def test_joints_of_a_chain_follow_one_another_and_the_body_is_behind_them(tmp_path: Path) -> None:
    chain = joint("a", "T1", 0.3, 0.5) + joint("b", "R3", 0.4) + joint("c", "R1", -0.7) + joint("d", "T2", 0.2)
    arm = body(
        "arm", "crank", "end", chain, point("tip", xyz(0.1, 0.2, 0.3), '<sensor name="S" Pos="true" Om="true"/>')
    )
    arm = arm.replace(xyz(), xyz(0.05, -0.1, 0.2), 1)
    read_model = model(tmp_path, description(arm + CRANK))  # a parent may follow its child
    made, turn = read_model.mechanism, Rotation.from_euler("Y", -0.6)
    given = [read_model.guess["a.displacement"], read_model.speeds["a.displacement_rate"]]
    np.testing.assert_array_equal(given, [0.3, 0.5])
    q, v = ([values.get(name, 0.0) for name in names] for values, names in (
        (read_model.guess, made.coordinate_names), (read_model.speeds, made.speed_names)
    ))  # fmt: skip
    state = mbd.State(jnp.zeros(()), jnp.asarray(q), jnp.asarray(v), made.layout)
    found = mbd.read(made, state, ("arm.position", "S_Pos", "S_Om"))
    inner, along = Rotation.from_euler("ZX", [0.4, -0.7]), np.array([0.4 + 0.3, 0.0, 0.0])
    centre, tip = (turn.apply(along + inner.apply(place)) for place in ([0.05, 0.1, 0.2], [0.1, 0.4, 0.3]))
    np.testing.assert_allclose(found["arm.position"], centre, atol=1e-12)
    np.testing.assert_allclose(made["arm"].pose[:3], centre, atol=1e-12)
    np.testing.assert_allclose(found["S_Pos"], tip, atol=1e-12)
    np.testing.assert_allclose(found["S_Om"], [0.0, 2.0, 0.0], atol=1e-12)


def test_cuts_have_the_rows_of_robotran(tmp_path: Path) -> None:
    rod = cut("rod", "rod.end slider.pin", "<length>0.25</length>")
    assert model(tmp_path, description(CRANK + ROD + SLIDER, rod)).mechanism["cut"].length == 0.25
    ball = cut("ball", "rod.end slider.pin", "<ignore><y/></ignore>")
    read_model = model(tmp_path, description(CRANK + ROD + SLIDER, ball))
    assert read_model.mechanism["cut"].without == ("y",)
    said = "ball 'cut' has no rows along y, which are axes of the first body here"
    assert said in [str(remark).partition(": ")[2] for remark in read_model.remarks]
    solid = cut("solid", "rod.end slider.pin")
    assert isinstance(model(tmp_path, description(CRANK + ROD + SLIDER, solid)).mechanism["cut"], sp.FixedConstraint)


def test_what_is_code_in_robotran_is_remarked(tmp_path: Path) -> None:
    driven = joint("R1", "R1", 0.3, nature="driven")
    force = '<extforce name="wind" Pos="true"/>'
    one = body("one", "base", "origin", driven, point("p", xyz(), force))
    rest = f"<links>{cut('link', 'one.p base.P', name='spring')}</links><user_models><user_model/></user_models><odd/>"
    read_model = model(tmp_path, description(one, rest=rest))
    assert [str(remark).partition(": ")[2] for remark in read_model.lost] == [
        "joint 'R1' is driven by the user's code of the project: here it is held at q = 0.3",
        "extforce 'wind' is computed by the user's code of the project, which is not read; it is left out",
        "link 'spring' has a law in the user's code of the project, which is not read; add a SpringDamper",
        "user_models are numbers for the user's code of the project, which is not read",
        "<mbsDescR7> has <odd>, which is unknown and left out",
    ]  # fmt: skip
    np.testing.assert_allclose(read_model.state["R1.angle"], 0.3, atol=1e-12)
    np.testing.assert_allclose(jnp.abs(read_model.state.v), 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<type>R2</type>", "<type>R4</type>", "line 8: joint 'R2_crank': <type> must be one of R1"),
        ("<q>-0.6</q>", "<q>nan</q>", "line 8: <initialvalue>: <q> must hold a finite number, got 'nan'"),
        ("<nature>independent", "<nature>free", "<nature> must be one of independent, dependent, driven, got 'free'"),
        ("<mass>1.0</mass>", "<mass>-1.0</mass>", "line 6: body 'crank': .*mass must be"),
        ("<bodyname>base<", "<bodyname>bas<", "There is no body named 'bas'"),
        ("<pointname>origin<", "<pointname>orgin<", "no point named 'orgin'"),
        ("<bodyname>base</bodyname><pointname>origin", "<bodyname>rod</bodyname><pointname>end", "lead back to itself"),
        ("<bodyname>slider</bodyname><parent>", "<bodyname>rod</bodyname><parent>", "there are two bodies 'rod'"),
        ("<name>cut</name>", "", "ball: it has no <name>|<ball>: it has no <name>"),
        ("<bodytree>", "<tree>", "no well-formed XML"),
    ],
)
def test_broken_files_name_the_line_and_the_part(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = description(CRANK + ROD + SLIDER, cut("ball", "rod.end slider.pin"))
    assert old in text
    with pytest.raises(MechanismError, match=said):
        model(tmp_path, text.replace(old, new, 1))
