"""Broken and hostile files: each error names the file, the line where there is one, and the reason."""

import re
from pathlib import Path

import pytest

from jaxmbd.errors import MechanismError
from jaxmbd.io import read
from tests.io.asmt_text import HERE, assembly, joint, motion, part

TENSOR = '<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'
LINK = f'<link name="{{}}"><inertial><mass value="1"/>{TENSOR}</inertial></link>'
BASE = '<link name="base"/>\n'
PIN = '<joint name="{}" type="continuous"><parent link="{}"/><child link="{}"/><axis xyz="0 0 1"/></joint>\n'


def robot(*lines: str) -> str:
    """A robot whose elements begin in line 2."""
    return "<robot name='r'>\n" + "".join(lines) + "</robot>"


ONE = BASE + LINK.format("a") + "\n" + PIN.format("A", "base", "a")
BODY = part("P", HERE, {"M": HERE})
PINNED = joint("RevoluteJoint", "J", "G", "P/M")


def a(
    parts: list[list[str]] | None = None, joints: list[list[str]] | None = None, motions: list[list[str]] | None = None
) -> str:
    """An assembly with a marker G on the ground."""
    return assembly(
        {"G": HERE}, [BODY] if parts is None else parts, [PINNED] if joints is None else joints, motions or []
    )


def mjcf(text: str) -> str:
    return f"<mujoco>\n{text}\n<worldbody><body><joint/><geom size='1'/></body></worldbody></mujoco>"


BOMB = "<!DOCTYPE r [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;&a;'>]>\n"
OUTSIDE = "<!DOCTYPE r [<!ENTITY s SYSTEM 'file:///etc/passwd'>]>\n"

CASES: dict[str, tuple[str, str, str]] = {
    # name of the case: name of the file, its text, a pattern for the message behind the file's name
    "no XML": ("r.urdf", "<robot>\n<link", ", line 2: no well-formed XML: unclosed token"),
    "empty file": ("r.urdf", "", ", line 1: no well-formed XML: no element found"),
    "two roots": ("r.urdf", "<robot/>\n<robot/>", ", line 2: no well-formed XML: junk after document element"),
    "binary": ("r.urdf", "<robot>\0</robot>", ", line 1: no well-formed XML: not well-formed"),
    "unknown encoding": (
        "r.urdf",
        "<?xml version='1.0' encoding='x-y'?><robot/>",
        ", line 1: no well-formed XML: unknown",
    ),
    "encoding that expat cannot read": (
        "r.urdf",
        "<?xml version='1.0' encoding='shift_jis'?><robot/>",
        ", line 1: no well-formed XML: multi-byte encodings are not supported. Save the file as UTF-8.",
    ),
    "entity bomb": ("r.urdf", f"{BOMB}<robot>&b;</robot>", ", line 1: it has a document type .<!DOCTYPE r"),
    "external entity": ("r.urdf", f"{OUTSIDE}<robot>&s;</robot>", ", line 1: it has a document type"),
    "external entity in MJCF": ("m.xml", f"{OUTSIDE}<mujoco>&s;</mujoco>", ", line 1: it has a document type"),
    "deep nesting": (
        "r.urdf",
        "<robot>" + "<a>" * 300 + "</a>" * 300 + "</robot>",
        ", line 1: elements nest deeper than 200",
    ),
    "other root": (
        "r.xml",
        "<scene/>",
        r", line 1: the root element is <scene>; known are <mujoco> \(MJCF\), <robot> \(URDF\), <sdf> and <mbsDescR7> "
        r"\(Robotran\)",
    ),
    "no link": ("r.urdf", "<robot name='r'/>", ", line 1: <robot> 'r': it has no link"),
    "link without a name": ("r.urdf", robot("<link/>"), ", line 2: <link>: it has no attribute 'name'"),
    "two links of one name": (
        "r.urdf",
        robot(ONE, BASE),
        ", line 5: <link> 'base': there is another link .* in line 2",
    ),
    "joint to nowhere": (
        "r.urdf",
        robot(ONE, PIN.format("B", "a", "b")),
        ", line 5: <joint> 'B': there is no link 'b'",
    ),
    "joint of one link": (
        "r.urdf",
        robot(ONE, PIN.format("B", "a", "a")),
        ", line 5: <joint> 'B': it connects the link 'a'",
    ),
    "two parents": ("r.urdf", robot(ONE, PIN.format("B", "base", "a")), ", line 5: .* is the child of 'A' already"),
    "a ring": (
        "r.urdf",
        robot(ONE, LINK.format("b"), LINK.format("c"), PIN.format("B", "b", "c"), PIN.format("C", "c", "b")),
        ", line 5: <joint> 'B': nothing connects the joints 'B', 'C' to the base 'base'",
    ),
    "two bases": (
        "r.urdf",
        robot(ONE, LINK.format("b")),
        r", line 1: .* 'base' \(line 2\), 'b' \(line 5\); a robot has one",
    ),
    "unknown type": (
        "r.urdf",
        robot(ONE.replace("continuous", "hinge")),
        ", line 4: <joint> 'A': type must be one of .* 'hinge'",
    ),
    "axis of zero": (
        "r.urdf",
        robot(ONE.replace("0 0 1", "0 0 0")),
        ", line 4: <axis>: xyz must be a direction, got '0 0 0'",
    ),
    "numbers in words": (
        "r.urdf",
        robot(ONE.replace("0 0 1", "0 0 z")),
        ", line 4: <axis>: xyz must be 3 finite numbers, got",
    ),
    "infinite number": (
        "r.urdf",
        robot(ONE.replace("0 0 1", "0 0 inf")),
        ", line 4: <axis>: xyz must be 3 finite numbers",
    ),
    "negative mass": (
        "r.urdf",
        robot(ONE.replace('mass value="1"', 'mass value="-1"')),
        ", line 3: .* of link 'a': .* mass must be",
    ),
    "impossible inertia": (
        "r.urdf",
        robot(ONE.replace('izz="1"', 'izz="3"')),
        ", line 3: <inertial>: of link 'a': Body 'a'.*inertia",
    ),
    "mimic of nothing": (
        "r.urdf",
        robot(ONE.replace("<axis", '<mimic joint="Z"/><axis')),
        ", line 4: <mimic>: 'Z' is no joint with one coordinate",
    ),
    "half a loop": (
        "r.urdf",
        robot(ONE, '<loop_joint name="L" type="spherical"><link1 link="a"/></loop_joint>'),
        ", line 5: <loop_joint> 'L': it needs a <link1> and a <link2>",
    ),
    "loop of an unknown type": (
        "r.urdf",
        robot(ONE, '<loop_joint name="L" type="magic"/>'),
        ", line 5: <loop_joint> 'L': type must be one of spherical",
    ),
    "no ASMT": ("a.asmt", "hello", ", line 1: no ASMT: its first line must begin with"),
    "empty ASMT": ("a.asmt", "", ", line 1: no ASMT"),
    "ASMT without assembly": ("a.asmt", "OndselSolver\nPart", ": the file has no Assembly"),
    "wrong indentation": ("a.asmt", "OndselSolver\nAssembly\n\t\t\tName", ", line 3: 'Name' is indented by 3 tabs"),
    "missing marker": (
        "a.asmt",
        a(joints=[joint("RevoluteJoint", "J", "G", "P/N")]),
        r", line \d+: .* no marker '/A/P/N'",
    ),
    "two markers of one name": ("a.asmt", a([BODY, BODY]), r", line \d+: there are two markers '/A/P/M'"),
    "two joints of one name": ("a.asmt", a(joints=[PINNED, PINNED]), r", line \d+: there are two joints '/A/J'"),
    "no rotation": (
        "a.asmt",
        a().replace("1.0\t0.0\t0.0", "2.0\t0.0\t0.0", 1),
        r", line \d+: RotationMatrix is no rotation",
    ),
    "words for numbers": (
        "a.asmt",
        a().replace("Mass\n\t\t\t\t\t1.0", "Mass\n\t\t\t\t\tmuch"),
        r", line \d+: Mass must hold numbers",
    ),
    "ASMT with negative mass": (
        "a.asmt",
        a([part("P", HERE, {"M": HERE}, mass=-1.0)]),
        r", line \d+: Part 'P': Body 'P': mass must be positive",
    ),
    "motion of no joint": (
        "a.asmt",
        a(motions=[motion("RotationalMotion", "m", "K", "time")]),
        r", line \d+: RotationalMotion: there is no joint '/A/K'",
    ),
    "code for a function": (
        "a.asmt",
        a(motions=[motion("RotationalMotion", "m", "J", "__import__('os').system('true')")]),
        r", line \d+: RotationalMotion 'm': .* is unknown; known are numbers",
    ),
    "a sum of many terms": (
        "a.asmt",
        a(motions=[motion("RotationalMotion", "m", "J", "+".join(["time"] * 1500))]),
        r", line \d+: RotationalMotion 'm': 'time\+.*…' nests deeper than 200 operations",
    ),
    "a number that is no float": (
        "a.asmt",
        a(motions=[motion("RotationalMotion", "m", "J", f"time*{'9' * 400}")]),
        r", line \d+: RotationalMotion 'm': '9+…' in 'time\*9+…' is unknown; known are numbers .finite ones.",
    ),
    "ASMT without parts": ("a.asmt", a([], []), r", line \d+: it has no part"),
    "MJCF that includes a file elsewhere": (
        "m.xml",
        mjcf('<include file="../secret.xml"/>'),
        ', line 2: <include file="../secret.xml"> leads outside',
    ),
    "mesh at an absolute path": (
        "m.xml",
        mjcf('<asset><mesh file="/etc/passwd"/></asset>'),
        ', line 2: <mesh file="/etc/passwd"> leads outside',
    ),
    "folder of meshes elsewhere": (
        "m.xml",
        mjcf('<compiler meshdir="../.."/>'),
        ', line 2: <compiler meshdir="../.."> leads outside',
    ),
    "texture by a scheme": (
        "m.xml",
        mjcf('<asset><texture type="cube" fileright="http://a/b.png"/></asset>'),
        ", line 2: <texture fileright=.* leads outside",
    ),
    "a million copies": (
        "m.xml",
        mjcf('<worldbody><replicate count="1000"><replicate count="1000"/></replicate></worldbody>'),
        ", line 2: <replicate> makes 1000000 copies",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_broken_file_raises_with_file_line_and_reason(name: str, tmp_path: Path) -> None:
    file, text, pattern = CASES[name]
    path = tmp_path / file
    path.write_text(text)
    with pytest.raises(MechanismError, match=r"(?s)^'[^']*" + file.replace(".", r"\.") + f"'.*{pattern}"):
        read(path)


def test_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(MechanismError, match="there is no such file"):
        read(tmp_path / "none.urdf")


@pytest.mark.parametrize(
    "inclusion",
    [
        '<include file="inner.xml"/>',
        '<Include file="inner.xml"/>',
        '<include file="inner.mjcf"/>',
        '<asset><model name="inner" file="inner.urdf"/></asset>',
        '<asset><model name="inner" file="inner.txt" content_type="text/xml"/></asset>',
    ],
)
def test_included_file_is_checked(inclusion: str, tmp_path: Path) -> None:
    """A model in the folder that includes one that includes a file elsewhere, in all ways that MuJoCo knows."""
    name = re.findall(r'file="([^"]*)"', inclusion)[0]
    (tmp_path / "m.xml").write_text(mjcf(inclusion))
    (tmp_path / name).write_text(mjcf('<include file="../secret.xml"/>'))
    with pytest.raises(MechanismError, match=rf"{re.escape(name)}', line 2: .* leads outside"):
        read(tmp_path / "m.xml")


def test_link_to_elsewhere_is_checked(tmp_path: Path) -> None:
    """A link in the folder that leads out."""
    (tmp_path / "secret.xml").write_text("<mujoco/>")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "m.xml").write_text(mjcf('<include file="inner.xml"/>'))
    (folder / "inner.xml").symlink_to(tmp_path / "secret.xml")
    with pytest.raises(MechanismError, match=r"m\.xml', line 2: .* leads outside"):
        read(folder / "m.xml")


def test_mujocos_errors_name_the_file(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    path = tmp_path / "m.xml"
    path.write_text(mjcf("<nonsense/>"))
    with pytest.raises(MechanismError, match=r"m\.xml'.*MuJoCo: .*nonsense.*line 2"):
        read(path)
    path.write_text("<mujoco><worldbody><geom size='1'/></worldbody></mujoco>")
    with pytest.raises(MechanismError, match="no body besides the world"):
        read(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("loop = 1", r"it must have tables \[\[loop\]\] and nothing else"),
        ("[[loop]]\nlink1 = 3", r"loop 1, link1 must be a table with link, rpy, xyz, got 3"),
        ("[[loop]]\ncolour = 'red'", r"loop 1 must be a table with .*, got \['colour'\]"),
        ("[[loop]", "this is no TOML: "),
        (f"x = {'[' * 5000}{']' * 5000}", "tables and lists are nested more than 32 deep"),
        (f"x = {'9' * 5000}", "a whole number has too many digits"),
        ("[[loop]]\nlink1 = {link = 'a'}\nlink2 = {link = 'z'}", "<link2> 'z': There is no link named 'z'"),
    ],
)
def test_broken_side_file_raises(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "r.urdf").write_text(robot(ONE))
    (tmp_path / "r.loops.toml").write_text(text)
    with pytest.raises(MechanismError, match=r"r\.loops\.toml'(, line 1)?: " + reason):
        read(tmp_path / "r.urdf")
