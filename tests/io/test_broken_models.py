"""A broken model file is answered by file, line, reason and mend; nothing in it is executed."""

import os
import sys
from pathlib import Path

import pytest

import jaxmbd as mbd
from jaxmbd.io.model_file import model, source
from tests.io.broken_models import MODEL, TRUSTED, UNTRUSTED, Broken
from tests.io.schema import check_schema

pytestmark = pytest.mark.usefixtures("as_a_user_runs_it")


def check_refused(broken: Broken, folder: Path, trust: bool = False) -> None:
    path = folder / "model.toml"
    path.write_bytes(broken.content)
    with pytest.raises(mbd.MechanismError) as caught:
        mbd.load(path, trust=trust)
    text = str(caught.value)
    place = f"{str(path)!r}: " if broken.line is None else f"{str(path)!r}, line {broken.line}: "
    assert text.startswith(place), text
    for said in broken.said:
        assert said in text


def test_the_model_itself_is_sound(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(MODEL)
    mechanism = mbd.load(tmp_path / "model.toml")
    assert float(mbd.load_state(mechanism, tmp_path / "model.toml")["crank.y"]) == 0.5
    check_schema(MODEL)


@pytest.mark.parametrize("case", UNTRUSTED)
def test_refused(case: str, tmp_path: Path) -> None:
    check_refused(UNTRUSTED[case], tmp_path)
    assert "tests.io.hostile" not in sys.modules


@pytest.mark.parametrize("case", TRUSTED)
def test_refused_though_trusted(case: str, tmp_path: Path) -> None:
    check_refused(TRUSTED[case], tmp_path, trust=True)


def test_limits_of_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.toml"
    path.write_text(MODEL)
    monkeypatch.setattr(source, "MAX_BYTES", 2**10)
    path.write_text("#" * 2**10 + MODEL)
    with pytest.raises(mbd.MechanismError, match="is longer than"):
        mbd.load(path)


def test_limits_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.toml"
    path.write_text(MODEL)
    monkeypatch.setattr(model, "MAX_PARTS", 4)
    with pytest.raises(mbd.MechanismError, match="there are more than 4 parts"):
        mbd.load(path)


def test_only_files_are_read(tmp_path: Path) -> None:
    """Not a pipe, which would never end."""
    os.mkfifo(tmp_path / "model.toml")
    with pytest.raises(mbd.MechanismError, match="There is no file"):
        mbd.load(tmp_path / "model.toml")


def test_trust_is_true_or_false(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(MODEL)
    with pytest.raises(mbd.MechanismError, match="trust must be True or False, got 'yes'"):
        mbd.load(tmp_path / "model.toml", trust="yes")  # pyright: ignore[reportArgumentType]
