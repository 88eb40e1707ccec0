"""Files that are made to do harm: what they write to a terminal, what they wait for, and the memory they ask for."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import jaxmbd as mbd
from jaxmbd import MechanismError
from jaxmbd.cli import app
from jaxmbd.cli._data import read_table
from jaxmbd.errors import SolveError, printable
from jaxmbd.io import read
from jaxmbd.io._imported_model import Remark

CLEAR, TITLE, TURNED, NARROW = "\x1b[2J", "\x1b]0;t\x07", "\u202e", "\u200b"
EVIL = CLEAR + TITLE + TURNED + NARROW + "\x9b1m\r"
pendulum = mbd.examples.get("pendulum").mechanism


def is_safe(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def toml(path: Path) -> Any:
    path = path / "m.toml"
    path.write_text('format = "jaxmbd-model/1"\n"\\u001b[2J\\u001b]0;t\\u0007\\u202e\\u200b" = 1\n')
    return mbd.load(path)


def toml_value(path: Path) -> Any:
    mbd.save(pendulum, path / "m.toml")
    text = (path / "m.toml").read_text()
    (path / "m.toml").write_text(text.replace('"rod"', '"\\u001b[2J\\u202e"'))
    return mbd.load(path / "m.toml")


def urdf(path: Path) -> Any:
    (path / "m.urdf").write_text(
        f'<robot name="r"><link name="a{TURNED}"/><joint name="j{NARROW}{TURNED}" type="x{TURNED}"/></robot>'
    )
    return read(path / "m.urdf")


def mjcf(path: Path) -> Any:
    pytest.importorskip("mujoco")
    body = f'<body><geom size="1" type="sphere" class="{TURNED}{NARROW}\x85"/></body>'
    (path / "m.xml").write_text(f"<mujoco><worldbody>{body}</worldbody></mujoco>")
    return read(path / "m.xml")


def asmt(path: Path) -> Any:
    (path / "m.asmt").write_text(f"OndselSolver\nAssembly\n\tNotes\n\t\t\n\t{EVIL}\n\t\t1\n")
    return read(path / "m.asmt")


def adm(path: Path) -> Any:
    (path / "m.adm").write_text(f"title\nPART/1, MASS = {CLEAR}{TURNED}\n")
    return read(path / "m.adm")


def mbs(path: Path) -> Any:
    body = f"<body><bodyname>{TURNED}{NARROW}</bodyname></body>"
    (path / "m.mbs").write_text(f"<mbsDescR7><base/><bodytree>{body}</bodytree></mbsDescR7>")
    return read(path / "m.mbs")


def csv(path: Path) -> Any:
    (path / "m.csv").write_text(f"time [s],rod.theta [{CLEAR}{TURNED}]\n0,1\n1,2\n")
    return read_table(path / "m.csv", pendulum)


def csv_cell(path: Path) -> Any:
    (path / "m.csv").write_text(f"time [s],rod.theta [rad]\n0,1\n1,{CLEAR}\n")
    return read_table(path / "m.csv", pendulum)


def netcdf(path: Path) -> Any:
    data = xr.Dataset(attrs={"format": CLEAR + TURNED})
    data.to_netcdf(path / "m.nc", engine="scipy")
    return mbd.load(path / "m.nc")


def name_of_file(path: Path) -> Any:
    return mbd.load(path / f"{CLEAR}{TURNED}.toml")


@pytest.mark.parametrize("open_it", [toml, toml_value, urdf, mjcf, asmt, adm, mbs, csv, csv_cell, netcdf, name_of_file])
def test_no_text_of_a_file_controls_the_terminal(open_it: Callable[[Path], Any], tmp_path: Path) -> None:
    with pytest.raises(MechanismError) as caught:
        open_it(tmp_path)
    assert is_safe(str(caught.value)), ascii(str(caught.value))


def test_keys_are_shown_as_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(MechanismError) as caught:
        toml(tmp_path)
    assert r"\x1b[2J\x1b]0;t\x07\u202e\u200b" in str(caught.value)


def test_errors_remarks_and_names_are_safe() -> None:
    assert is_safe(str(SolveError(EVIL)))
    assert is_safe(str(Remark(f"body {EVIL}", EVIL, 3)))
    assert printable("größer ∂Φ/∂q → 1\n  2") == "größer ∂Φ/∂q → 1\n  2"
    with pytest.raises(MechanismError, match=r"characters that cannot be seen, got 'ro\\u200bd' .* perhaps 'rod'\.$"):
        mbd.planar.Body("ro\u200bd", 1.0, 1.0)


def test_commands_say_what_is_safe(tmp_path: Path) -> None:
    with pytest.raises(MechanismError):
        toml(tmp_path)
    result = CliRunner().invoke(app, ["check", str(tmp_path / "m.toml")])
    assert result.exit_code == 1
    assert is_safe(result.output)
    assert r"\x1b[2J" in result.output
    result = CliRunner().invoke(app, ["new", str(tmp_path / f"{TURNED}{NARROW}\x9b1m.toml")])
    assert result.exit_code == 0
    assert is_safe(result.output)


# --- what is no plain file ----------------------------------------------------------------------------------

needs_pipes = pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes in folders")


@needs_pipes
@pytest.mark.parametrize("ending", ["toml", "urdf", "xml", "asmt", "adm", "mbs", "nc", "csv"])
def test_a_pipe_is_no_model(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"m.{ending}"
    os.mkfifo(path)
    opened: Any = {"toml": mbd.load, "nc": mbd.load, "csv": lambda path: read_table(path, pendulum)}
    with pytest.raises(MechanismError, match=r"no such file|There is no file"):
        opened.get(ending, read)(path)


ASSETS = {
    "mesh": '<asset><mesh name="m" file="pipe.stl"/></asset><worldbody><geom type="mesh" mesh="m"/></worldbody>',
    "texture": '<asset><texture type="2d" name="t" file="pipe.stl"/></asset>',
    "height field": '<asset><hfield name="h" file="pipe.stl" size="1 1 1 1"/></asset>',
    "included model": '<include file="pipe.stl"/>',
    "model": '<asset><model name="m" file="pipe.stl"/></asset>',
    "folder of its own": '<compiler strippath="true"/><asset><mesh name="m" file="elsewhere/pipe.stl"/></asset>',
}


@needs_pipes
@pytest.mark.parametrize("kind", ASSETS)
def test_a_pipe_is_no_asset(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.stl")
    assert stat.S_ISFIFO((tmp_path / "pipe.stl").stat().st_mode)
    (tmp_path / "m.xml").write_text(f"<mujoco>\n{ASSETS[kind]}</mujoco>")
    with pytest.raises(MechanismError, match=r"m\.xml', line 2: <.*pipe\.stl.* is no plain file, but a pipe"):
        read(tmp_path / "m.xml")


def test_a_huge_asset_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "huge.stl").open("wb") as file:
        file.truncate(2**31)  # it takes no room on the disk
    (tmp_path / "m.xml").write_text('<mujoco>\n<asset><mesh name="m" file="huge.stl"/></asset></mujoco>')
    with pytest.raises(MechanismError, match=r"line 2: <mesh .* is larger than 1073741824 bytes"):
        read(tmp_path / "m.xml")


# --- memory ---------------------------------------------------------------------------------------------------

MANY = "100000000"
LARGE = {
    "keyframes": (f'<size nkey="{MANY}"/>', "<size nkey="),
    "floats": ('<size nkey="1e8"/>', "<size nkey="),
    **{f"numbers of a {x}": (f'<size nuser_{x}="{MANY}"/>', f"<size nuser_{x}=") for x in ("body", "jnt", "sensor")},
    "numbers of users": (f'<size nuserdata="{MANY}"/>', "<size nuserdata="),
    "numeric": (f'<custom><numeric name="n" size="{MANY}"/></custom>', "<numeric size="),
    "sensor": (f'<sensor><user dim="{MANY}"/></sensor>', "<user dim="),
    "history": (f'<sensor><clock nsample="{MANY}"/></sensor>', "<clock nsample="),
    "actuator": (f'<actuator><general joint="j" actdim="{MANY}"/></actuator>', "<general actdim="),
    "texture": (f'<asset><texture builtin="flat" width="{MANY}" height="2"/></asset>', "<texture width="),
    "height field": (f'<asset><hfield name="h" nrow="{MANY}" ncol="2" size="1 1 1 1"/></asset>', "<hfield nrow="),
    "mesh": (f'<asset><mesh name="m" builtin="cone" params="{MANY} 0"/></asset>', "<mesh params="),
    "copies": (f'<worldbody><replicate count="{MANY}"><body/></replicate></worldbody>', "<replicate> makes"),
    "copies, as a float": ('<worldbody><replicate count="1e8"><body/></replicate></worldbody>', "<replicate> makes"),
    "many of some copies": (
        "<worldbody>" + '<replicate count="9000"><body/></replicate>' * 20 + "</worldbody>", "<worldbody> makes 180000",
    ),
    "grid": (
        '<worldbody><body><flexcomp type="grid" count="1000 1000 100"/></body></worldbody>', "<flexcomp> makes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
def test_memory_is_refused_before_it_is_taken(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.setattr(mujoco, "MjSpec", None)  # it must not be asked
    text, reason = LARGE[kind]
    (tmp_path / "m.xml").write_text(f"<mujoco>\n{text}</mujoco>")
    with pytest.raises(MechanismError, match=rf"m\.xml', line 2: {reason}.*(the most that is read|at most 10000)"):
        read(tmp_path / "m.xml")


@pytest.mark.parametrize("way", ["include", "attach"])
def test_copies_of_copies_in_other_files_are_counted(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.setattr(mujoco, "MjSpec", None)
    if way == "include":
        (tmp_path / "many.xml").write_text('<mujoco><replicate count="5000"><body/></replicate></mujoco>')
        text = '<worldbody><replicate count="5000"><include file="many.xml"/></replicate></worldbody>'
    else:  # ten of ten of ten ...
        for k in range(8):
            attached = "".join(f'<attach model="n" prefix="p{x}"/>' for x in range(10))
            asset = f'<asset><model name="n" file="m{k + 1}.xml"/></asset>'
            (tmp_path / f"m{k}.xml").write_text(f"<mujoco>{asset}<worldbody>{attached}</worldbody></mujoco>")
        (tmp_path / "m8.xml").write_text("<mujoco><worldbody><body/></worldbody></mujoco>")
        text = '<asset><model name="n" file="m0.xml"/></asset><worldbody><attach model="n" prefix="a"/></worldbody>'
    (tmp_path / "m.xml").write_text(f"<mujoco>\n{text}</mujoco>")
    with pytest.raises(MechanismError, match=r"line 2: <(replicate|attach)> makes \d{7,} copies; at most 10000"):
        read(tmp_path / "m.xml")


def test_what_models_ask_for_is_read(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    text = (
        '<size nkey="2" nuser_body="3" njmax="5000" nconmax="2000"/><worldbody><replicate count="3" offset="1 0 0">'
        '<body><joint type="slide"/><geom size=".1"/></body></replicate></worldbody>'
    )
    (tmp_path / "m.xml").write_text(f"<mujoco>{text}</mujoco>")
    assert len(read(tmp_path / "m.xml").mechanism.bodies) == 3


# --- what a killed writer leaves ----------------------------------------------------------------------------


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    """But neither those of a writer that is alive, nor what only looks like one."""
    program = (
        "import sys, time; from pathlib import Path; from jaxmbd.replacement import folder_beside\n"
        "with folder_beside(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'a.toml').write_text('half'); print(folder.name, flush=True); time.sleep(60)"
    )
    path = tmp_path / "a.toml"
    others = [tmp_path / ".a.toml-backups1", tmp_path / ".a.toml-old", tmp_path / ".b.toml-abcdefgh"]
    for folder in others:
        folder.mkdir()
        (folder / "mine.txt").write_text("mine")
    with ExitStack() as stack:
        writers, names = [], []
        for _ in range(2):
            command = [sys.executable, "-c", program, str(path)]
            writer = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(writer.kill)
            writers.append(writer)
            assert writer.stdout is not None
            names.append(writer.stdout.readline().strip())
        alive, dead = (tmp_path / name for name in names)
        writers[1].kill()
        writers[1].wait()
        assert dead.is_dir()
        mbd.save(pendulum, path)
        assert not dead.exists()
        assert (alive / "a.toml").read_text() == "half"
    mbd.save(pendulum, path)
    assert sorted(x.name for x in tmp_path.iterdir()) == sorted([path.name, *(x.name for x in others)])
    assert all((folder / "mine.txt").is_file() for folder in others)
    np.testing.assert_array_equal(mbd.load(path).bodies[0].mass, pendulum.bodies[0].mass)
