"""Files that `--out` names: their endings say what they are, in all commands alike."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import jaxmbd as mbd
from jaxmbd.cli import app
from jaxmbd.cli._app import COMMANDS, WRITTEN

SHORT = ("--until", "0.2", "--rows", "3")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*arguments])
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "swing.toml"
    assert run("new", str(path))[0] == 0
    return str(path)


def test_a_motion_is_written_as_what_the_ending_says(model: str, tmp_path: Path) -> None:
    """A film, a page, a table, numbers: the file holds that, and is the only one."""
    folder = tmp_path / "new" / "folder"
    begins = {".gif": b"GIF8", ".html": b"<!doctype html>", ".csv": b"time [s]", ".nc": b"CDF", ".pdf": b"%PDF"}
    for ending, start in begins.items():
        code, text = run("simulate", model, *SHORT, "--out", str(folder / f"motion{ending}"))
        assert code == 0, text
        assert (folder / f"motion{ending}").read_bytes().startswith(start), ending
    assert sorted(path.suffix for path in folder.iterdir()) == sorted(begins)
    with Image.open(folder / "motion.gif") as film:
        assert getattr(film, "n_frames", 1) == 37  # three seconds of twelve frames each
    assert '"motions":' in (folder / "motion.html").read_text(encoding="utf-8")
    assert len(np.loadtxt(folder / "motion.csv", delimiter=",", skiprows=1)) == 3


@pytest.mark.slow
def test_a_film_is_a_film(model: str, tmp_path: Path) -> None:
    """In any case of letters; by a command, too, that makes none unless it is asked."""
    for command, name in (("simulate", "film.mp4"), ("simulate", "FILM2.MP4")):
        code, text = run(command, model, *SHORT, "--out", str(tmp_path / name))
        assert code == 0, text
        assert (tmp_path / name).read_bytes()[4:8] == b"ftyp"


@pytest.mark.parametrize("command", [f.__name__ for f in COMMANDS if f in WRITTEN])
def test_unknown_endings_are_named_before_anything_is_computed(
    command: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxmbd.cli._app.load", lambda **_: pytest.fail("it has been loaded"))
    data = [str(tmp_path / "data.csv")] if command == "fit" else []
    for name in ("film.mp5", "run.v2", "film.toml" if command == "simulate" else "x.exe"):
        code, text = run(command, model, *data, "--out", str(tmp_path / name))
        assert code == 1
        endings = ", ".join(next(found for f, found in WRITTEN.items() if f.__name__ == command))
        assert f"this command writes no {Path(name).suffix} file." in text
        assert f"or one file that ends with {endings}." in text
        assert not (tmp_path / name).exists()


def test_a_folder_that_exists_stays_a_folder(model: str, tmp_path: Path) -> None:
    for name in ("film.mp4", "run.v2"):
        (tmp_path / name).mkdir()
        assert run("draw", model, "--out", str(tmp_path / name))[0] == 0
        assert [path.name for path in (tmp_path / name).iterdir()] == ["draw.png"]
    for command, made in (("show", "show.html"), ("equations", "equations.txt")):
        code, text = run(command, model, *(SHORT if command == "show" else ()), "--out", str(tmp_path / "run.v2"))
        assert code == 0, text
        assert (tmp_path / "run.v2" / made).is_file()


def test_a_model_with_a_dot_in_its_name_has_a_folder(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(model).rename("swing.v2.csv.toml")
    assert run("draw", "swing.v2.csv.toml")[0] == 0
    assert (tmp_path / "out" / "swing.v2.csv" / "draw.png").is_file()


def test_files_that_are_in_the_way_are_named(model: str, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    for out, message in (("plain", "is a file without an ending"), ("plain/x.png", "cannot be made: ")):
        code, text = run("draw", model, "--out", str(tmp_path / out))
        assert code == 1
        assert message in text
    code, text = run("demo", "--out", str(tmp_path / "film.mp4"))
    assert code == 1
    assert "writes no .mp4 file. Name a folder" in text


def test_equations_have_the_ending_of_their_format(model: str, tmp_path: Path) -> None:
    code, text = run("equations", model, "--format", "c", "--out", str(tmp_path / "x.py"))
    assert code == 1
    assert "or one file that ends with .c." in text
    assert run("equations", model, "--format", "c", "--out", str(tmp_path / "x.c"))[0] == 0
    assert "double" in (tmp_path / "x.c").read_text(encoding="utf-8")


def test_what_a_model_does_not_have_is_no_success(tmp_path: Path) -> None:
    """A mechanism without springs has no mode that vibrates."""
    mechanism = mbd.planar.Mechanism([mbd.planar.Body("b", 1.0, 1.0)], floating=True)
    mbd.save(mechanism, tmp_path / "free.toml")
    code, text = run("linearize", str(tmp_path / "free.toml"), "--out", str(tmp_path / "x.png"))
    assert code == 1
    assert "with these options and this model there is no such file" in text
