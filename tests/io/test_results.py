"""Motions and fits as NetCDF files: what is read equals what was there, and a motion goes on from any of its times."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.io
import xarray as xr

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd.io.results.netcdf import read_netcdf, write_netcdf

TIMES = np.linspace(0.0, 0.4, 5)
BAR = pl.Body("bar", 1.0, 0.1)
STIFFNESS = 3.0


def pendulum(stiffness: Any = STIFFNESS, coordinates: str = "joint") -> pl.Mechanism:
    """A pendulum on a spring; its sensors have names that NetCDF does not allow, or reserves."""
    return pl.Mechanism(
        [BAR],
        [pl.Revolute("O", pl.ground.at(), BAR.at(-0.5))],
        [pl.Gravity(9.81), pl.JointSpringDamper("spring", "O.angle", stiffness)],
        sensors=[pl.Point("end/tip", BAR.at(0.5)), pl.Scaled("real", "O.angle", 2.0), pl.Gyroscope("_x ü", BAR.at())],
        coordinates=coordinates,
    )


@pytest.fixture(scope="module")
def solution() -> mbd.Solution:
    mechanism = pendulum()
    return mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": 0.3}), TIMES)


@pytest.fixture
def path(solution: mbd.Solution, tmp_path: Path) -> Path:
    mbd.save(solution, tmp_path / "run.nc")
    return tmp_path / "run.nc"


def test_a_motion_is_read_with_all_its_quantities_to_the_last_bit(solution: mbd.Solution, path: Path) -> None:
    data, made = mbd.load(path), solution.to_xarray()
    assert {"end/tip", "real", "_x ü", "O.angle", "O.fx", "energy"} <= {*data}
    for name, values in made.items():
        assert data[name].dims == values.dims
        assert data[name].attrs == values.attrs
        np.testing.assert_array_equal(data[name], values, strict=True)
    np.testing.assert_array_equal(data["time"], TIMES)
    assert not [name for name in data if str(name).startswith(("events", "quadrature"))]
    assert data.attrs["result"] == "successful"
    assert data.attrs["num_steps"] == int(solution.stats["num_steps"])


@pytest.mark.slow
def test_events_and_quadratures_are_kept(tmp_path: Path) -> None:
    mechanism = pendulum()
    passes = mbd.Event("pässt", "O.angle", below=0.0, then=mbd.LogOnly())
    state = mbd.assemble(mechanism, {"O.angle": 0.3})
    solution = mbd.simulate(mechanism, state, TIMES, events=[passes], quadratures=["energy"])
    mbd.save(solution, tmp_path / "run.nc")
    data = mbd.load(tmp_path / "run.nc")
    assert solution.events is not None
    ((name, t),) = [*solution.events]
    assert ([*map(str, data["events.name"].to_numpy())], float(data["events.time"][0])) == ([name], float(t))
    np.testing.assert_array_equal(data["quadrature.energy"], solution.quadratures["energy"])
    assert data["quadrature.energy"].attrs["units"] == "J s"
    assert data["events.impulse"].to_numpy().tolist() == [0.0]


def test_a_motion_goes_on_from_a_saved_time(solution: mbd.Solution, path: Path) -> None:
    mechanism = pendulum()
    for index in (-1, 2):
        saved, state = solution.state(index), mbd.load_state(mechanism, path, index)
        assert state.layout == saved.layout
        for x, y in ((state.t, saved.t), (state.q, saved.q), (state.v, saved.v)):
            np.testing.assert_array_equal(x, y, strict=True)
    rest = mbd.simulate(mechanism, mbd.load_state(mechanism, path, 2), TIMES[2:])
    np.testing.assert_allclose(rest["O.angle"], solution["O.angle"][2:], atol=1e-7)


@pytest.mark.usefixtures("as_a_user_runs_it")
def test_a_state_of_what_is_no_such_motion_is_refused(solution: mbd.Solution, path: Path) -> None:
    with pytest.raises(mbd.MechanismError, match=r"another mechanism, or to one in other coordinates: .* no 'rod\.x'"):
        mbd.load_state(mbd.examples.get("pendulum").mechanism, path)
    with pytest.raises(mbd.MechanismError, match="there are 5 times, numbered from 0 to 4; got 5"):
        mbd.load_state(pendulum(), path, 5)
    with pytest.raises(mbd.MechanismError, match="a state is kept beside a mechanism"):
        mbd.save(solution, path, state=solution.state())
    with pytest.raises(mbd.MechanismError, match=r"The file of a motion ends with \.nc, such as 'name\.nc'"):
        mbd.save(solution, path.with_suffix(".toml"))


def test_a_failed_motion_is_kept_but_starts_nothing(solution: mbd.Solution, tmp_path: Path) -> None:
    data = solution.to_xarray(["O.angle", "O.angle_rate"]).assign_attrs(kind="motion", result="The solver gave up.")
    data["O.angle"] = data["O.angle"].where(data["time"] < TIMES[-1])
    write_netcdf(data, tmp_path / "run.nc")
    assert np.isnan(mbd.load(tmp_path / "run.nc")["O.angle"][-1])
    with pytest.raises(mbd.MechanismError, match=r"no numbers at time -1: the motion ended before \(The solver"):
        mbd.load_state(pendulum(), tmp_path / "run.nc")


def test_a_batch_of_motions_is_not_saved_as_one(solution: mbd.Solution, tmp_path: Path) -> None:
    several = jax.tree.map(lambda x: jnp.stack([x, x]), solution)
    with pytest.raises(mbd.MechanismError, match="save each motion of its own"):
        mbd.save(several, tmp_path / "run.nc")


def test_names_of_all_kinds_survive(tmp_path: Path) -> None:
    names = [
        "a",
        "a b",
        "a/b",
        " a",
        "a ",
        "_a",
        "%41",
        "real",
        "1",
        "é",
        "e\u0301",
        "#",
        "a.b+c@d-e",
        "λ",
        "a\\b",
        "'",
    ]
    data = xr.Dataset({name: ((f"{name}_0", "time"), np.full((1, 2), k)) for k, name in enumerate(names)})
    data = data.assign(flag=("time", [True, False]), text=("time", ["ä", "λ b"])).assign_attrs(about="λ²", empty="")
    write_netcdf(data, tmp_path / "x.nc")
    with scipy.io.netcdf_file(tmp_path / "x.nc", mmap=False) as file:
        stored = {*file.variables, *file.dimensions}
    assert {"a", "a b", "_real", "_a%2Fb", "_%CE%BB"} <= stored
    assert all(name.isascii() and "/" not in name and name == name.strip() for name in stored)
    again = read_netcdf(tmp_path / "x.nc")
    assert {*again} == {*names, "flag", "text"}
    assert again["text"].to_numpy().tolist() == ["ä", "λ b"]
    assert (again.attrs["about"], again.attrs["empty"]) == ("λ²", "")
    for k, name in enumerate(names):
        assert again[name].dims == (f"{name}_0", "time")
        assert int(again[name][0, 1]) == k


def test_a_damaged_file_is_an_error(path: Path, rng: np.random.Generator) -> None:
    """Cut anywhere, with bytes changed, or of another program."""
    content, mechanism = path.read_bytes(), pendulum()
    for size in rng.integers(0, len(content) - 1, 12):
        path.write_bytes(content[:size])
        with pytest.raises(mbd.MechanismError, match="or damaged"):
            mbd.load(path)
    for place in rng.integers(0, 3000, 40):  # the head of the file
        path.write_bytes(content[:place] + bytes([rng.integers(256)]) + content[place + 1 :])
        with suppress(mbd.MechanismError):  # a changed number, or the error that is meant
            mbd.load_state(mechanism, path)
    xr.Dataset({"x": ("time", [1.0])}).to_netcdf(path, engine="scipy")
    with pytest.raises(mbd.MechanismError, match=r"has the format None.*xarray\.open_dataset"):
        mbd.load(path)


@pytest.fixture(scope="module")
def fit(solution: mbd.Solution) -> mbd.Fit:
    angle = np.asarray(solution["O.angle"]) + 1e-3 * np.asarray([1.0, -2.0, 1.5, 0.5, -1.0])
    free = {"stiffness": mbd.identification.Parameter(lambda m: m["spring"].stiffness, 2.5)}
    experiment = mbd.Experiment(TIMES, {"O.angle": angle}, start={"O.angle": 0.3})
    return mbd.fit(pendulum(), [experiment], free, progress=False)


@pytest.mark.slow
def test_a_fit_is_read_as_data(fit: mbd.Fit, tmp_path: Path) -> None:
    mbd.save(fit, tmp_path / "fit.nc")
    data = mbd.load(tmp_path / "fit.nc")
    known = fit.uncertainty
    assert known is not None
    assert tuple(map(str, data["parameter"].to_numpy())) == known.names
    assert "stiffness" in known.names
    first = data.sel(parameter="stiffness")
    assert float(first["estimate"]) == float(fit.parameters["stiffness"]) != 2.5
    np.testing.assert_array_equal(data["covariance"], known.covariance, strict=True)
    np.testing.assert_array_equal(data["standard_error"], known.errors, strict=True)
    np.testing.assert_array_equal(data["loss"], fit.history)
    assert data.attrs["outcome"] == fit.outcome
    with pytest.raises(mbd.MechanismError, match="holds a 'fit', and states are those of a motion"):
        mbd.load_state(pendulum(), tmp_path / "fit.nc")
