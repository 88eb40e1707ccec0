"""Values of sweeps over spaces of all kinds, what is said of failures, and wrong arguments."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import jaxmbd as mbd
from jaxmbd.sweeps import Normal, Sweep, SweepWarning, Uniform, grid, latin_hypercube, sobol, sweep, tolerances
from jaxmbd.sweeps._chunks import Chunks, here
from jaxmbd.sweeps._explanation import Rate, duration
from jaxmbd.sweeps._space import space_of
from tests.crank_rocker import four_bar, rocker_angle
from tests.sweeps.functions import closure, period

LENGTHS, GRAVITIES = np.array([0.5, 1.0, 2.0]), np.array([1.62, 9.81])
RTOL = 1e-14  # rounding


def true_period(length: Any, g: Any) -> np.ndarray:
    return 2 * np.pi * np.sqrt(np.asarray(length) / np.asarray(g))


@pytest.mark.parametrize("chunk", [1, 4, 6, 1024])
def test_distinct_dimensions_multiply(chunk: int) -> None:
    """Also if the chunk does not divide the number of variants."""
    found = sweep(period, {"length": LENGTHS, "g": GRAVITIES}, chunk=chunk)
    assert found["period"].dims == ("length", "g")
    np.testing.assert_allclose(found["period"], true_period(LENGTHS[:, None], GRAVITIES), rtol=RTOL)
    assert found["multiples"].dims == ("length", "g", "multiples_0")
    np.testing.assert_allclose(found["multiples"][..., 2], 2 * found["period"], rtol=RTOL)
    assert float(found["period"].sel(length=2.0, g=9.81)) == pytest.approx(true_period(2.0, 9.81), rel=RTOL)
    assert found.attrs["variants"] == 6
    assert (found.attrs["failed"], found.attrs["nan_without_verdict"]) == (0, 0)


def test_shared_dimension_is_zipped_and_multiplies_with_others() -> None:
    space = {"length": ("place", LENGTHS), "g": ("place", [1.0, 2.0, 3.0]), "unused": [1, 2]}
    found = sweep(lambda x: {"period": period(x)["period"], "integer": x["unused"]}, space, chunk=4)
    assert found["period"].dims == ("place", "unused")
    assert found["length"].dims == ("place",)
    np.testing.assert_allclose(found["period"][:, 1], true_period(LENGTHS, [1.0, 2.0, 3.0]), rtol=RTOL)
    np.testing.assert_array_equal(found["integer"], [[1, 2]] * 3)
    assert found["integer"].dtype == np.int64


def test_numbers_over_several_dimensions_and_single_ones() -> None:
    g = np.array([[1.0, 2.0], [3.0, 4.0]])
    found = sweep(period, {"length": 0.7, "g": (("row", "column"), g)})
    assert found["period"].dims == ("row", "column")
    np.testing.assert_allclose(found["period"], true_period(0.7, g), rtol=RTOL)


def test_dataset_as_space() -> None:
    """Variables are numbers, and so are coordinates of dimensions without variables; the others are labels."""
    space = xr.Dataset({"length": ("part", LENGTHS)}, {"g": GRAVITIES, "part": ["short", "middle", "long"]})
    found = sweep(period, space)
    assert found["period"].dims == ("part", "g")
    assert float(found["period"].sel(part="long", g=9.81)) == pytest.approx(true_period(2.0, 9.81), rel=RTOL)


@pytest.mark.parametrize("space", [{"length": [0.5], "g": 9.81}, {"length": 0.5, "g": 9.81}])
def test_one_variant(space: dict[str, Any]) -> None:
    found = sweep(period, space)
    assert found["period"].size == 1
    np.testing.assert_allclose(found["period"].item(), true_period(0.5, 9.81), rtol=RTOL)


def test_samples_are_in_their_ranges_and_the_same_for_a_seed() -> None:
    ranges = {"length": (0.1, 0.2), "g": (-3.0, 5.0)}
    cube = latin_hypercube(ranges, 50, seed=1)
    for name, (lo, hi) in ranges.items():
        assert cube[name][0] == "variant"
        cells = np.floor((cube[name][1] - lo) / (hi - lo) * 50)
        np.testing.assert_array_equal(np.sort(cells), np.arange(50))  # one in each part of the range
    np.testing.assert_array_equal(cube["g"][1], latin_hypercube(ranges, 50, seed=1)["g"][1])
    assert not np.array_equal(cube["g"][1], latin_hypercube(ranges, 50, seed=2)["g"][1])
    points = sobol(ranges, 64, seed=1)["length"][1]
    cells = np.floor((points - 0.1) / 0.1 * 64)
    np.testing.assert_array_equal(np.sort(cells), np.arange(64))
    parts = tolerances({"length": Normal(0.3, 1e-3), "g": Uniform(1.0, 2.0)}, 20_000, seed=0)
    assert np.mean(parts["length"][1]) == pytest.approx(0.3, abs=4 * 1e-3 / np.sqrt(20_000))
    assert np.std(parts["length"][1]) == pytest.approx(1e-3, rel=0.03)
    assert np.all((parts["g"][1] >= 1.0) & (parts["g"][1] <= 2.0))
    assert np.mean(parts["g"][1]) == pytest.approx(1.5, abs=0.01)
    cut = tolerances({"x": Normal(0.3, 1e-3, upper=0.3), "y": Normal(0.0, 1.0, -0.5, 2.0)}, 20_000, seed=0)
    assert cut["x"][1].max() <= 0.3
    assert np.mean(cut["x"][1]) == pytest.approx(
        0.3 - 1e-3 * np.sqrt(2 / np.pi), abs=2e-5
    )  # of a half-normal distribution
    assert (cut["y"][1].min(), cut["y"][1].max()) == pytest.approx((-0.5, 2.0), abs=0.01)
    assert sweep(period, {**grid({"length": LENGTHS}), "g": 9.81})["period"].dims == ("length",)


def test_nan_without_verdict_is_counted_and_said() -> None:
    with pytest.warns(
        SweepWarning, match=r"2 of 4 variants .* without a verdict, in 'root' \(2\); .*variant 0 with x = -2"
    ):
        found = sweep(lambda x: {"root": jnp.sqrt(x["x"]), "x2": x["x"] ** 2}, {"x": [-2.0, -1.0, 1.0, 4.0]})
    assert found.attrs["nan_without_verdict"] == 2
    np.testing.assert_array_equal(found["root"], [np.nan, np.nan, 1.0, 2.0])


def test_nan_with_a_verdict_is_no_surprise() -> None:
    def root(x: dict[str, Any]) -> dict[str, Any]:
        verdict = mbd.RESULTS.where(x["x"] < 0, mbd.RESULTS.not_finite, mbd.RESULTS.successful)
        return {"root": jnp.sqrt(x["x"]), "result": verdict}

    found = sweep(root, {"x": [-2.0, 4.0]})
    assert (found.attrs["failed"], found.attrs["nan_without_verdict"]) == (1, 0)
    assert found["result_text"].values.tolist() == [mbd.RESULTS[mbd.RESULTS.not_finite], ""]
    assert found["result"].values[1] == 0


def turns(lengths: np.ndarray) -> bool:
    """Whether the crank makes full turns: Grashof's condition, with the crank or the base as shortest link."""
    shortest, *middle, longest = np.sort(lengths)
    return bool(shortest + longest <= sum(middle) and min(lengths[0], lengths[3]) == shortest)


@pytest.mark.parametrize("count", [32, pytest.param(1000, marks=pytest.mark.slow)])
def test_four_bar_linkages_close_where_grashof_says(count: int) -> None:
    """The crank turns fully if the linkage closes with crank and base in line, both ways."""
    ranges = {"crank": (0.1, 0.6), "coupler": (0.5, 0.9), "rocker": (0.4, 0.8), "base": (0.5, 1.0)}
    lengths = latin_hypercube(ranges, count, seed=3)
    found = sweep(closure, {**lengths, "angle": [0.0, np.pi]}, chunk=2 * count // 3)
    matrix = np.stack([lengths[name][1] for name in ranges], axis=1)
    a, b, c, d = matrix.T[..., None]
    distance = np.abs(d - a * np.array([1.0, -1.0]))  # of the coupler's end from the rocker's pivot
    np.testing.assert_array_equal(found["result"] == 0, (np.abs(b - c) <= distance) & (distance <= b + c))
    np.testing.assert_array_equal((found["result"] == 0).all("angle"), [turns(row) for row in matrix])
    assert 0 < found.attrs["failed"] < 2 * count
    assert found.attrs["nan_without_verdict"] == 0
    assert set(np.unique(found["result_text"])) == {"", mbd.RESULTS[mbd.RESULTS.not_assembled]}


def test_angles_of_four_bar_linkages() -> None:
    """The law of cosines, on the branch on which the assembly ended."""
    lengths = {"crank": [0.25, 0.3, 0.35], "coupler": 0.8, "rocker": 0.6, "base": 0.9, "angle": [0.9, 1.2]}
    found = sweep(closure, lengths)["rocker_angle"]
    for a in found["crank"].values:
        for angle in found["angle"].values:
            exact = rocker_angle(float(angle), 1, (float(a), 0.8, 0.6, 0.9))
            np.testing.assert_allclose(found.sel(crank=a, angle=angle), exact, atol=1e-9)


def test_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    said = Sweep(period, {"length": np.linspace(1, 2, 100), "g": np.linspace(1, 2, 50)}, chunk=512).explain()
    assert (said.variants, said.chunks, said.chunk) == (5000, 10, 512)
    assert said.store_bytes == 5000 * 4 * 8 + 150 * 8
    assert said.chunk_bytes >= 512 * 6 * 8
    assert 0 < said.seconds < 60
    print(said)
    assert re.search(r"chunks +10 of 512", capsys.readouterr().out)


def test_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 variants in chunks of 30, of which one chunk was done before: two chunks in 12 s, and one is left."""
    now = 5.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    rate = Rate(Chunks(space_of({"x": np.arange(100.0)}), 30), 1)
    assert rate.text() == "sweep: 30 of 100 variants,"
    now = 17.0
    rate.count(3)
    assert rate.text() == "sweep: 90 of 100 variants, 5 per s, 6 s left,"
    assert [duration(x) for x in (0.123, 45.0, 600.0, 9000.0)] == ["0.12 s", "45 s", "10 min", "2.5 h"]


def fails(_: Any) -> Any:
    raise ValueError("the rod is too short")


WRONG = [
    (period, {"length": [], "g": 1.0}, "no variant, since the dimension 'length'"),
    (period, {}, "names no numbers"),
    (period, [1.0], "must be a dictionary"),
    (period, {"lenght": [1.0], "g": 1.0}, "named 'length'. Did you mean 'lenght'"),
    (period, {"length": [1.0, np.nan], "g": 1.0}, "'length' must be finite; value 1 is nan"),
    (period, {"length": ["long"], "g": 1.0}, "'length' must be real numbers"),
    (period, {"length": ("a", [1.0]), "g": ("a", [1.0, 2.0])}, "'g' has 2 values over the dimension 'a', but 'length'"),
    (period, {"length": ("g", [1.0]), "g": ("other", [1.0])}, "'g' is the name of a number"),
    (period, {"length": [[1.0]], "g": 1.0}, "'length' has values of shape (1, 1)"),
    (period, {"length": [1.0], "g": 1.0, "period": 2.0}, "an output 'period', of which the name 'period' is taken"),
    (period, {"length": [1.0], "g": 1.0, "result": 2.0}, "'result' cannot be the name"),
    (fails, {"x": [1.0]}, "fails: the function raises ValueError in line"),
    (lambda x: {"y": jnp.sin(x)}, {"x": [1.0]}, "It is called as function({'x': …})."),
    (lambda x, y: {"y": x}, {"x": [1.0]}, "and <lambda>(x, y) cannot be: missing a required argument: 'y'"),
    (lambda x: x["x"], {"x": [1.0]}, "must return a dictionary"),
    (lambda x: {}, {"x": [1.0]}, "returns no outputs"),
    (lambda x: {"y": "text"}, {"x": [1.0]}, "'y' of <lambda> must be a number"),
    (lambda x: {"y": x["x"] * 1j}, {"x": [1.0]}, "'y' of <lambda> has the type complex128"),
    (lambda x: {"y": mbd.RESULTS.successful}, {"x": [1.0]}, 'A verdict has the name "result"'),
    (lambda x: {"result": x["x"]}, {"x": [1.0]}, "must be a verdict"),
    (lambda x: {"y": float(x["x"])}, {"x": [1.0]}, "the function converts a traced value to a Python number"),
]


@pytest.mark.parametrize(("function", "space", "said"), WRONG)
def test_wrong_functions_and_spaces(function: Any, space: Any, said: str) -> None:
    with pytest.raises(mbd.MechanismError, match=re.escape(said)):
        sweep(function, space)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sweep(period, {"length": [1.0], "g": 1.0}, chunk=0), "chunk must be at least 1"),
        (lambda: sobol({"x": (0.0, 1.0)}, 100, 0), "power of two, for the points to be balanced; got 100. Near: 128"),
        (lambda: latin_hypercube({"x": (1.0, 0.0)}, 4, 0), "the range of 'x' must be a pair"),
        (lambda: latin_hypercube({}, 4, 0), "names no numbers"),
        (lambda: tolerances({"x": (0.0, 1.0)}, 4, 0), "'x' must be Normal(mean, deviation), Normal("),  # pyright: ignore
        (lambda: Normal(1.0, -1.0), "deviation > 0; got Normal(mean=1.0, deviation=-1.0"),
        (lambda: Normal(1.0, 0.1, lower=1.2, upper=1.1), "lower < upper; got Normal("),
        (lambda: Normal(1.0, 0.1, lower=np.nan), "lower and upper must be numbers"),
        (lambda: Normal(1.0, 0.1, lower=90.0, upper=91.0), "no part of the distribution lies between"),
        (lambda: Uniform(1.0, 1.0), "lower < upper; got Uniform("),
        (lambda: sweep(1, {"x": [1.0]}), "function must be callable"),  # pyright: ignore
    ],
)
@pytest.mark.usefixtures("as_a_user_runs_it")
def test_wrong_arguments(call: Any, said: str) -> None:
    with pytest.raises(mbd.MechanismError, match=re.escape(said)):
        call()


def test_error_of_the_analysis_names_the_variants() -> None:
    """The last chunk is filled up with its last variant."""

    def angle(x: dict[str, Any]) -> dict[str, Any]:
        mechanism = four_bar([0.3, 0.8, 0.7, x["Base"]])
        return {"angle": mbd.assemble(mechanism, {"crank.theta": 0.5})["rocker.theta"]}

    with pytest.raises(mbd.SolveError) as failed:
        sweep(angle, {"Base": [0.9, 1.0, 1.1, 0.9, 3.5, 1.0, 9.5]}, chunk=5)
    assert "chunk 0 (variants 0 to 4)" in str(failed.value)
    assert "\nVariant 4 with Base = 3.5: Assembly failed" in str(failed.value)
    with pytest.raises(mbd.SolveError, match=r"\nVariant 6 with Base = 9.5: Assembly failed"):
        sweep(angle, {"Base": [0.9, 1.0, 1.1, 0.9, 0.8, 1.0, 9.5]}, chunk=5)


def test_error_at_run_time_names_the_chunk() -> None:
    def raising(x: dict[str, Any]) -> dict[str, Any]:
        def check(value: np.ndarray) -> np.ndarray:
            if np.any(value > 5):
                raise ValueError("too long")
            return value

        return {"y": jax.pure_callback(check, jax.ShapeDtypeStruct((), float), x["x"], vmap_method="expand_dims")}

    with pytest.raises(mbd.SolveError, match=r"chunk 1 \(variants 4 to 7\) of .*raising raised [^/]*too long"):
        sweep(raising, {"x": np.arange(10.0)}, chunk=4)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_finished_chunk_comes_before_the_error_of_the_next_one(error: type[BaseException]) -> None:
    """So that a store gets it."""
    devices = len(jax.local_devices())

    def run(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if rows["x"][0] == 2.0 * devices:  # the first chunk that begins when another one has been computed
            raise error("no more")
        return rows

    chunks = Chunks(space_of({"x": np.arange(2.0 * devices + 4)}), 2)
    found = here(run, run, chunks, range(chunks.count))
    number, values = next(found)
    assert number == 0
    np.testing.assert_array_equal(values["x"], [0.0, 1.0])
    with pytest.raises(BaseException, match="no more"):
        next(found)


def test_numbers_of_a_mechanism_by_name(tmp_path: Path) -> None:
    """The function takes the mechanism; all matches of a pattern have the same value; a store knows the mechanism."""
    linkage = four_bar(jnp.array([0.3, 0.8, 0.6, 0.9]))

    def moment(mechanism: Any) -> dict[str, Any]:
        return {"moment": sum(body.mass for body in mechanism.bodies) * mechanism["A"].b.position[0]}

    space = {"*.mass": [1.0, 2.0], "A.b.position[0]": ("place", [0.2, -0.3, 0.4])}
    found = sweep(moment, space, mechanism=linkage, store=tmp_path / "a", progress=False)
    count = len(linkage.bodies)
    assert found["moment"].dims == ("*.mass", "place")
    np.testing.assert_allclose(found["moment"], count * np.outer([1.0, 2.0], [0.2, -0.3, 0.4]), rtol=RTOL)
    by_hand = sweep(lambda x: moment(mbd.with_numbers(linkage, x)), space, progress=False)
    np.testing.assert_array_equal(by_hand["moment"], found["moment"])
    again = sweep(moment, space, mechanism=linkage, store=tmp_path / "a", progress=False)
    np.testing.assert_array_equal(again["moment"], found["moment"])
    one = {"A.b.position[0]": [0.2]}
    sweep(moment, one, mechanism=linkage, store=tmp_path / "b", progress=False)
    heavier = mbd.with_numbers(linkage, {"*.mass": 3.0})
    with pytest.raises(mbd.MechanismError, match=r"belongs to another sweep\. What differs: what the function"):
        sweep(moment, one, mechanism=heavier, store=tmp_path / "b", progress=False)
    for wrong, text in (
        ({"crank.mas": [1.0]}, "no number of a part named 'crank.mas'. Did you mean 'crank.mass'?"),
        ({"crank.mass": [1.0, -1.0]}, "Body 'crank': mass must be positive"),
        ({"A.b.position": [1.0]}, "'A.b.position' must have shape (2,), got shape ()"),
    ):
        with pytest.raises(mbd.MechanismError, match=re.escape(text)):
            Sweep(moment, wrong, mechanism=linkage)
