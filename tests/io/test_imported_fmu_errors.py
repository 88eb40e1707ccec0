"""FMUs that cannot be imported, and what is asked of them in vain: errors that name file, variable and flag."""

import re
import stat
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.io.fmu import archive
from tests.c_code import compiler
from tests.io.small_fmus import small_fmu

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fmus")


def refused(text: str, *arguments: Any, **named: Any) -> None:
    with pytest.raises(mbd.MechanismError) as error:
        mbd.import_fmu(*arguments, **named)
    assert text in str(error.value)


def test_a_description_is_data(folder: Path) -> None:
    """It is read with no binary at all."""
    mbd.export_fmu(mbd.examples.get("pendulum").mechanism, folder / "source.fmu", inputs=["O.angle"], binary=False)
    found = mbd.io.read_fmu(folder / "source.fmu")
    assert found.states == ("rod.x", "rod.y", "rod.theta", "rod.vx", "rod.vy", "rod.omega")
    assert found.rates == tuple(f"der({name})" for name in found.states)
    assert (found.version, found.named("input"), found.indicators) == ("3.0", ["O.angle.input"], 0)
    assert all(able.has_directional and able.serializes_states for able in found.kinds.values())
    assert re.search(r"der\(rod.vx\) +Float64 +rate", str(found))
    refused("has no binary for this computer", folder / "source.fmu", "unit")
    assert "its source alone" in error_of(folder / "source.fmu")


def error_of(path: Path, **named: Any) -> str:
    with pytest.raises(mbd.MechanismError) as error:
        mbd.import_fmu(path, "unit", **named)
    return str(error.value)


def test_names_and_types_of_variables(folder: Path) -> None:
    path = small_fmu(folder, "Lag")
    refused("inputs: There is no input named 'uu'. Did you mean 'u'?", path, "lag", {"uu": "O.angle"})
    refused("outputs: There is no variable named 'yy'. Did you mean 'y'?", path, "lag", outputs=["yy"])
    refused("parameters: There is no parameter named 'y'", path, "lag", parameters={"y": 1.0})
    refused("the variable 'count' is Int32", path, "lag", outputs=["count"])
    refused("outputs must be a sequence of names", path, "lag", outputs="y")
    refused("period must be positive", path, "lag", period=-1.0)
    part = mbd.import_fmu(path, "lag", {"u": "O.anlge"}, ["y"], "O.angle")
    body = pl.Body("b", mass=1.0, inertia=1.0)
    with pytest.raises(mbd.MechanismError, match=r"FmuPart 'lag': There is no quantity named 'O.anlge'"):
        pl.Mechanism([body], [pl.Revolute("O", pl.ground.at(), body.at())], []).with_parts([part])


def test_an_fmu_without_derivatives_moves_and_says_so(folder: Path) -> None:
    path = small_fmu(folder, "VanDerPol", "none", providesDirectionalDerivatives=False)
    part = mbd.import_fmu(path, "vdp", parameters={"mu": 1.0})
    rates = lambda t: part.own_rates(t, jnp.zeros(0))  # noqa: E731
    assert rates(jnp.zeros(())).tolist() == [0.0, -2.0]
    with pytest.raises(mbd.MechanismError, match=r"'none.fmu' has no derivatives: .* providesDirectionalDerivatives="):
        jax.jacfwd(rates)(0.0)


@pytest.mark.parametrize("knows_mu", [0, 2])
def test_a_parameter_without_derivatives_is_fixed(knows_mu: int, folder: Path) -> None:
    """Also one by which the FMU gives zeros, as it may for parameters that are not tunable."""
    path = small_fmu(folder, "VanDerPol", f"fixed{knows_mu}", knows_mu=knows_mu)
    part = mbd.import_fmu(path, "vdp", parameters={"mu": 3.0})
    assert part.parameters == {}
    at = jnp.array([0.0, 1.0])
    slope = jax.jacrev(lambda x: rates_at(part, x))(at)
    assert slope.tolist() == [[0.0, 1.0], [-1.0, 3.0]]
    with pytest.raises(mbd.MechanismError, match="needs known numbers"):
        jax.grad(lambda mu: mbd.import_fmu(path, "vdp", parameters={"mu": mu}).state[0])(1.0)


def rates_at(part: Any, x: Any) -> Any:
    mechanism = pl.Mechanism([pl.Body("b", mass=1.0, inertia=1.0)], [], []).with_parts([part])
    return mbd.with_numbers(mechanism, {"vdp.state": x})["vdp"].own_rates(jnp.zeros(()), jnp.zeros(0))


def test_what_is_remembered_must_be_a_state(folder: Path) -> None:
    path = small_fmu(folder, "BouncingBall", "hidden", canSerializeFMUState=False)
    assert "lacks canSerializeFMUState for model exchange" in error_of(path)
    assert "lacks canSerializeFMUState for co-simulation" in error_of(path, period=0.1)
    assert mbd.io.read_fmu(path).indicators == 1


def test_a_model_file_cannot_hold_native_code(folder: Path, tmp_path: Path) -> None:
    part = mbd.import_fmu(small_fmu(folder, "Lag"), "lag", outputs=["y"])
    mechanism = pl.Mechanism([pl.Body("b", mass=1.0, inertia=1.0)], [], []).with_parts([part])
    with pytest.raises(mbd.MechanismError, match=r"FmuPart 'lag': code .* would run native code unasked"):
        mbd.save(mechanism, tmp_path / "m.toml")
    (tmp_path / "evil.toml").write_text(
        'format = "jaxmbd-model/1"\nspace = "planar"\n[bodies.b]\nmass = 1.0\ninertia = 1.0\n'
        '[controllers.lag]\ntype = "jaxmbd.io.fmu.imported:FmuPart"\ncode = "/tmp/evil.fmu"\n'
    )
    with pytest.raises(mbd.MechanismError, match="names Python code"):
        mbd.load(tmp_path / "evil.toml")
    with pytest.raises(mbd.MechanismError):
        mbd.load(tmp_path / "evil.toml", trust=True)


def test_native_engines_name_the_part(folder: Path) -> None:
    part = mbd.import_fmu(small_fmu(folder, "Lag"), "lag", outputs=["y"])
    mechanism = pl.Mechanism([pl.Body("b", mass=1.0, inertia=1.0)], [], []).with_parts([part])
    with pytest.raises(mbd.MechanismError, match=r"engine='native' cannot run .* code of others.*FmuPart 'lag'"):
        mbd.simulate(mechanism, mbd.assemble(mechanism), [0.0, 1.0], engine="native")
    brake = pl.DryFriction("brake", "O.angle", 1.0)
    body = pl.Body("b", mass=1.0, inertia=1.0)
    both = pl.Mechanism([body], [pl.Revolute("O", pl.ground.at(), body.at())], [brake]).with_parts([part])
    with pytest.raises(mbd.MechanismError, match=r"DryFriction 'brake' changes at instants"):
        mbd.simulate(both, mbd.assemble(both), [0.0, 1.0])


def written(path: Path, files: dict[str, bytes], link: str = "") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFLNK if name == link else stat.S_IFREG) << 16
            made.writestr(entry, content)
    return path


XML = (
    b'<fmiModelDescription fmiVersion="3.0" modelName="m" instantiationToken="t"><ModelExchange modelIdentifier="m"/>'
    b"<ModelVariables/><ModelStructure/></fmiModelDescription>"
)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"other.txt": b""}, "has none"),
        ({"modelDescription.xml": XML, "../../evil.so": b""}, "'../../evil.so' in the archive leads out of it"),
        ({"modelDescription.xml": XML, "/etc/evil": b""}, "leads out of it"),
        ({"modelDescription.xml": XML, "a\\..\\evil": b""}, "leads out of it"),
        ({"modelDescription.xml": XML, "C:/evil": b""}, "leads out of it"),
        ({"modelDescription.xml": XML, "link": b"/etc/passwd"}, "is a link"),
        ({"modelDescription.xml": XML, "bomb": bytes(5000)}, "when unpacked"),
        ({"modelDescription.xml": b'<!DOCTYPE x [<!ENTITY a "b">]>' + XML}, "document type"),
        ({"modelDescription.xml": XML[:-4]}, "no well-formed XML"),
        ({"modelDescription.xml": XML.replace(b'"3.0"', b'"1.0"')}, "got version '1.0'"),
        ({"modelDescription.xml": XML.replace(b'er="m"', b'er="../m"')}, "modelIdentifier is an identifier of C"),
        ({"modelDescription.xml": XML.replace(b"ModelExchange", b"ScheduledExecution")}, "neither for model exchange"),
        (
            {"modelDescription.xml": XML.replace(
                b"<ModelVariables/>", b'<ModelVariables><Float64 name="x" valueReference="-1"/></ModelVariables>')},
            "valueReference of Float64 must be a whole number of 32 bits, got '-1'",
        ),
        (
            {"modelDescription.xml": XML.replace(
                b"<ModelStructure/>",
                b'<ModelStructure><ContinuousStateDerivative valueReference="7"/></ModelStructure>')},
            "refers to a variable that there is not",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_hostile_and_broken_files(
    files: dict[str, bytes], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_LARGEST", 4096)
    path = written(tmp_path / "bad.fmu", files, link="link")
    with pytest.raises(mbd.MechanismError) as error:
        mbd.io.read_fmu(path)
    assert text in str(error.value)
    assert "bad.fmu" in str(error.value)
    assert not (tmp_path.parent / "evil.so").exists()


def test_no_archive(tmp_path: Path) -> None:
    (tmp_path / "text.fmu").write_text("no archive")
    refused("no archive that can be read", tmp_path / "text.fmu", "unit")
    refused("there is no such file", tmp_path / "nowhere.fmu", "unit")


def test_the_token_is_told(folder: Path) -> None:
    """Of a binary that belongs to another description."""
    path, other = small_fmu(folder, "Lag"), folder / "other.fmu"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            target.writestr(name, source.read(name).replace(b'"{small}"', b'"{large}"'))
    with pytest.raises(mbd.SolveError, match="it made no instance"):
        mbd.import_fmu(other, "lag")


def test_numbers_that_are_not_finite_are_not_given_to_it(folder: Path) -> None:
    part = mbd.import_fmu(small_fmu(folder, "Lag"), "lag", {"u": "O.angle"}, ["y"])
    assert np.isnan(part.own_rates(jnp.zeros(()), jnp.array([jnp.nan]))).all()
