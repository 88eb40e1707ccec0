"""Pictures of sweeps and designs: the data of their artists, not their pixels."""

import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.colors import to_hex

import jaxmbd as mbd
from jaxmbd import plot
from jaxmbd.optimal_design import Design, Start
from jaxmbd.plot._many_lines import apart
from jaxmbd.plot._variants import colour_limits, is_geometric
from jaxmbd.scene.curves import CURVES
from jaxmbd.sweeps import LocalSensitivities, SensitivityIndices
from jaxmbd.sweeps.table import NO_NUMBER

UNITS = {"mass": "kg", "length": "m", "period": "s", "load": "N"}
QUICK, SMALL_FILE = 120.0, 1_500_000  # [s] on a computer that does other work, [bytes]


def texts(figure: Any) -> str:
    """All texts of the legends of a figure."""
    return "\n".join(text.get_text() for legend in figure.legends for text in legend.get_texts())


def figure_of(axes: Axes) -> Any:
    return axes.get_figure(root=True)


def mesh_of(axes: Axes) -> Any:
    (mesh,) = [x for x in axes.get_children() if isinstance(x, QuadMesh)]
    return mesh


def patches(axes: Axes) -> list[Any]:
    return list(axes.patches)


def with_verdicts(data: dict[str, Any], coordinates: dict[str, Any], failed: np.ndarray, dims: Any) -> xr.Dataset:
    text = np.where(failed, "The joints are not closed at the start.", "").astype(object)
    return xr.Dataset(
        data | {"result": (dims, failed.astype(np.int32)), "result_text": (dims, text)}, coordinates
    )  # fmt: skip


@pytest.fixture(scope="module")
def grid() -> xr.Dataset:
    """12 masses and 9 lengths; the longest ones with the largest masses failed."""
    mass, length = np.linspace(1.0, 2.0, 12), np.linspace(0.1, 0.9, 9)
    m, s = np.meshgrid(mass, length, indexing="ij")
    failed = m + s > 2.6
    period = np.where(failed, np.nan, 2 * np.pi * np.sqrt(s / 9.81))
    load = np.where(failed, np.nan, 9.81 * m)
    dims = ("mass", "length")
    data = {"period": (dims, period), "load": (dims, load), "path": ((*dims, "path_0"), np.ones((12, 9, 3)))}
    return with_verdicts(data, {"mass": mass, "length": length}, failed, dims)


def drawn(count: int) -> xr.Dataset:
    """Variants drawn at random, of which one in ten failed, and one in fifty has a load that is no number."""
    random = np.random.default_rng(0)
    mass, length = random.uniform(1, 2, count), random.uniform(0.1, 0.9, count)
    failed = np.arange(count) % 10 == 3
    period = np.where(failed, np.nan, 2 * np.pi * np.sqrt(length / 9.81))
    load = np.where(failed | (np.arange(count) % 50 == 0), np.nan, 9.81 * mass + random.normal(size=count))
    data = {"period": ("variant", period), "load": ("variant", load)}
    return with_verdicts(data, {"mass": ("variant", mass), "length": ("variant", length)}, failed, "variant")


def test_a_heat_map_has_a_cell_for_each_variant(grid: xr.Dataset) -> None:
    axes = plot.heat_map(grid, "period", units=UNITS)
    mesh = mesh_of(axes)
    cells = np.ma.filled(mesh.get_array(), np.nan)
    np.testing.assert_array_equal(cells, grid["period"].values.T)
    failed = int(np.isnan(grid["period"].values).sum())
    assert f"{failed} of 108 failed\nThe joints are not closed at the start" in texts(figure_of(axes))
    assert axes.patch.get_hatch()  # what is seen where there is no value
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("mass [kg]", "length [m]")
    assert figure_of(axes).axes[1].get_ylabel() == "period [s]"
    turned = plot.heat_map(grid, "period", ("length", "mass"))
    mesh = mesh_of(turned)
    np.testing.assert_array_equal(np.ma.filled(mesh.get_array(), np.nan), grid["period"].values)
    edges = mesh.get_coordinates()[0, :, 0]
    assert edges[0] == pytest.approx(0.05)
    assert edges[-1] == pytest.approx(0.95)


def test_a_heat_map_is_cut_at_values_of_other_numbers() -> None:
    space = {"a": np.linspace(0, 1, 4), "b": np.linspace(0, 1, 5), "c": np.array([0.1, 1.0, 10.0])}
    found = mbd.sweep(lambda x: {"y": x["a"] + 10 * x["b"] * x["c"]}, space, progress=False)
    with pytest.raises(
        mbd.MechanismError, match=r"what varies is 'a', 'b', 'c'. Choose two, numbers=\('a', 'b'\), and"
    ):
        plot.heat_map(found, "y")
    with pytest.raises(mbd.MechanismError, match=r"'c' vary too.* cut: at=\{'c': 1\}"):
        plot.heat_map(found, "y", ("a", "b"))
    axes = plot.heat_map(found, "y", at={"c": 0.9})
    assert axes.get_title(loc="left") == "at c = 1"
    mesh = mesh_of(axes)
    np.testing.assert_array_equal(mesh.get_array(), found["y"].sel(c=1.0).values.T)
    assert plot.heat_map(found, "y", ("c", "a"), at={"b": 0.5}).get_xscale() == "log"


def test_a_heat_map_says_what_is_wrong(grid: xr.Dataset) -> None:
    one = grid.isel(length=0)
    for given, message in (
        ((grid, "perid"), "Did you mean 'period'"),
        ((grid, "path"), r"'path' has the shape \(3,\) for a variant; a number is needed"),
        ((grid, "period", ("mass", "width")), "named 'width'"),
        ((grid, "period", ("mass", "mass")), "two different numbers"),
        ((one, "period"), "what varies is 'mass'. Sweep over two numbers"),
        (({}, "period"), r"needs the xarray\.Dataset"),
    ):
        with pytest.raises(mbd.MechanismError, match=message):
            plot.heat_map(*given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(mbd.MechanismError, match=r"values from 0\.1 to 0\.9, got at="):
        plot.heat_map(grid, "period", at={"length": 3.0})
    with pytest.raises(mbd.MechanismError, match="named 'lenght'"):
        plot.heat_map(grid, "period", units={"lenght": "m"})
    with pytest.raises(mbd.MechanismError, match="the unit of 'length' must be a text"):
        plot.heat_map(grid, "period", units={"length": 3})  # pyright: ignore[reportArgumentType]


def test_few_far_values_do_not_take_up_the_colours() -> None:
    values = np.concatenate([np.linspace(1.0, 2.0, 500), [1e6]])
    low, high, extend = colour_limits(values)
    assert (low, extend) == (1.0, "max")
    assert high < 2.0
    assert colour_limits(np.full(5, 3.0))[0] < 3.0 < colour_limits(np.full(5, 3.0))[1]
    assert is_geometric(np.geomspace(1, 100, 7))
    assert not is_geometric(np.linspace(1, 100, 7))


def test_drawn_variants_are_dots_and_failed_ones_crosses() -> None:
    found = drawn(200)
    axes = plot.heat_map(found, "period")
    (dots,) = [x for x in axes.collections if isinstance(x, PathCollection)]
    (crosses,) = [x for x in axes.get_lines() if x.get_gid() == "failed"]
    assert len(np.asarray(dots.get_offsets())) == 180
    assert len(np.asarray(crosses.get_xdata())) == 20
    assert "20 of 200 failed" in texts(figure_of(axes))


def test_histograms_count_all_variants(grid: xr.Dataset) -> None:
    found = drawn(500)
    panels = plot.histogram(found, units=UNITS)
    assert list(panels) == ["period", "load", "verdicts"]
    for name in ("period", "load"):
        bars = [patch for patch in patches(panels[name]) if to_hex(patch.get_facecolor()) == CURVES[0].lower()]
        assert sum(bar.get_height() for bar in bars) == np.isfinite(found[name].values).sum()
        assert len(bars) >= 10
        assert panels[name].get_xlabel() == f"{name} [{UNITS[name]}]"
    widths = [patch.get_width() for patch in patches(panels["verdicts"])]
    said = [text.get_text() for text in panels["verdicts"].texts]
    assert widths == [440, 50, 10]
    assert said[1] == "50 (10 %) The joints are not closed at the start"
    assert said[2].startswith("10 (2 %) " + NO_NUMBER[:20])
    assert list(plot.histogram(grid, "load", bins=7)) == ["load", "verdicts"]
    with pytest.raises(mbd.MechanismError, match="Did you mean 'load'"):
        plot.histogram(found, ["lod"])
    with pytest.raises(mbd.MechanismError, match="bins"):
        plot.histogram(found, bins=0)
    equal = xr.Dataset({"y": ("v", np.ones(9))}, {"x": ("v", np.arange(9.0))})
    assert max(bar.get_height() for bar in plot.histogram(equal)["y"].patches) == 9  # pyright: ignore


def test_parallel_axes_have_a_line_for_each_variant() -> None:
    found = drawn(100)
    axes = plot.parallel(found, units=UNITS)
    good, failed = (x for x in axes.collections if isinstance(x, LineCollection))
    assert failed.get_gid() == "failed"
    assert len(good.get_segments()) + len(failed.get_segments()) == 100
    assert len(failed.get_segments()) == 12  # ten with a verdict, two without a number
    heights = np.stack([segment[:, 1] for segment in good.get_segments()])
    assert heights.min() == 0.0
    assert heights.max() == 1.0
    mass = found["mass"].values
    lost = np.isnan(found["load"].values)
    expected = (mass - mass.min()) / np.ptp(mass)
    np.testing.assert_allclose(heights[:, 0], expected[~lost])
    assert all(segment[-1, 1] < 0 for segment in failed.get_segments())
    assert {text.get_text() for text in axes.texts} >= {"mass\n[kg]", "load\n[N]"}
    assert "12 of 100 failed" in texts(figure_of(axes))
    some = plot.parallel(found, "load", colour="mass", most=20)
    assert "19 of 100 variants are drawn" in texts(figure_of(some))  # shares of both kinds, rounded down
    wrong: Any = (({"colour": "x"}, "named 'x'"), ({"most": 1}, "most"), ({"outputs": "x"}, "named 'x'"))
    for options, message in wrong:
        with pytest.raises(mbd.MechanismError, match=message):
            plot.parallel(found, **options)


INDICES = SensitivityIndices(
    ("a", "b", "c"), "y", "sobol", 320, {"S1": np.array([0.1, 0.5, 0.2]), "ST": np.array([0.2, 0.6, 0.3])},
    {"S1": np.array([0.01, 0.02, 0.03]), "ST": np.array([0.04, 0.05, 0.06])},
)  # fmt: skip


def test_the_longest_bar_of_a_tornado_is_above() -> None:
    axes = plot.tornado(INDICES)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["b", "c", "a"]
    low, high = axes.get_ylim()
    assert low > high  # the first row is above
    total, alone = ([bar.get_width() for bar in bars] for bars in axes.containers[:2])  # pyright: ignore
    assert total == [0.6, 0.3, 0.2]
    assert alone == [0.5, 0.2, 0.1]
    spans = [[np.ptp(s[:, 0]) / 2 for s in x.get_segments()] for x in axes.collections if isinstance(x, LineCollection)]
    np.testing.assert_allclose(spans, [[0.05, 0.06, 0.04], [0.02, 0.03, 0.01]])
    assert "ST, with interactions" in texts(figure_of(axes))
    morris = SensitivityIndices(
        ("a", "b"), "y", "morris", 30,
        {"mu_star": np.array([1.0, 2.0]), "mu": np.zeros(2), "sigma": np.array([0.5, 0.1])},
        {"mu_star": np.array([0.1, 0.2])},
    )  # fmt: skip
    axes = plot.tornado(morris, unit="N")
    assert axes.get_xlabel() == "effect on y [N], 30 variants"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["b", "a"]


def test_a_tornado_of_derivatives_has_bars_on_both_sides() -> None:
    slopes = LocalSensitivities(
        {"a": 1.0, "b": 2.0}, {"y": 1.0, "z": 0.0}, {}, {"y": {"a": 0.5, "b": -2.0}, "z": {"a": np.nan}}, {}
    )
    axes = plot.tornado(slopes, "y")
    assert [bar.get_width() for bar in axes.patches] == [-2.0, 0.5]  # pyright: ignore[reportAttributeAccessIssue]
    for arguments, message in (
        ((slopes,), "shows one output; choose of 'y', 'z'"), ((slopes, "x"), "named 'x'"),
        ((INDICES, "z"), "named 'z'"),
        ((slopes, "z"), "has no elasticities"), ((3,), "must be indices"),
    ):  # fmt: skip
        with pytest.raises(mbd.MechanismError, match=message):
            plot.tornado(*arguments)  # pyright: ignore[reportArgumentType]


def test_the_front_is_joined_and_no_variant_lies_beyond_it() -> None:
    found = drawn(300)
    panels = plot.pareto(found, {"period": "max", "load": "min"}, units=UNITS)
    (axes,) = panels.values()
    by_gid = {line.get_gid(): np.asarray(line.get_xydata()) for line in axes.get_lines() if line.get_gid()}
    front, cloud = by_gid["front"], by_gid["variants"]
    assert len(cloud) == int(np.isfinite(found["load"].values).sum())
    for x, y in front:
        assert not np.any((cloud[:, 0] >= x) & (cloud[:, 1] <= y) & ((cloud[:, 0] > x) | (cloud[:, 1] < y)))
    (steps,) = [line for line in axes.get_lines() if line.get_drawstyle().startswith("steps")]
    assert steps.get_drawstyle() == "steps-pre"
    assert "36 of 300 failed" in texts(figure_of(axes))
    assert axes.get_xlabel() == "period [s]    better →"
    assert axes.get_ylabel() == "← better    load [N]"
    three = found.assign(mix=found["load"] * found["period"])
    assert list(plot.pareto(three, {"period": "max", "load": "min", "mix": "min"})) == [
        ("period", "load"), ("period", "mix"), ("load", "mix"),
    ]  # fmt: skip
    with pytest.raises(mbd.MechanismError, match="3 aims have 3 panels"):
        plot.pareto(three, {"period": "max", "load": "min", "mix": "min"}, axes=plt.figure().add_subplot())


def test_curves_over_one_number(grid: xr.Dataset) -> None:
    panels = plot.curves(grid.isel(length=[0, 4, 8]), ["period", "load"], units=UNITS)
    lines = [line for line in panels["load"].get_lines() if line.get_gid() != "failed"]
    assert len(lines) == 3
    np.testing.assert_array_equal(lines[1].get_ydata(), grid["load"].values[:, 4])
    assert panels["load"].get_xlabel() == "mass [kg]"
    said = texts(figure_of(panels["load"]))
    assert "length = 0.1 m" in said
    assert "failed" in said
    assert len(plot.curves(drawn(50), number="length")) == 2
    with pytest.raises(mbd.MechanismError, match="named 'width'"):
        plot.curves(grid, number="width")
    with pytest.raises(mbd.MechanismError, match="no number of the sweep has more than one value"):
        plot.curves(grid.isel(length=0, mass=0).expand_dims("v"))


def test_pictures_of_many_variants_are_quick_and_small(tmp_path: Path) -> None:
    found = drawn(100_000)
    begin = time.perf_counter()
    pictures = {
        "heat": plot.heat_map(found, "load"), "parallel": plot.parallel(found),
        "histogram": plot.histogram(found)["load"], "curves": plot.curves(found, number="mass")["load"],
        "front": plot.pareto(found, {"period": "max", "load": "min"})["period", "load"],
    }  # fmt: skip
    for name, axes in pictures.items():
        for ending in ("png", "pdf"):
            path = tmp_path / f"{name}.{ending}"
            figure_of(axes).savefig(path, dpi=100)
            assert path.stat().st_size < SMALL_FILE, path
        assert "of 100,000 failed" in texts(figure_of(axes)) or name == "histogram"
    assert time.perf_counter() - begin < QUICK
    (crosses,) = [x for x in pictures["heat"].collections if x.get_gid() == "failed"]
    assert len(np.asarray(crosses.get_offsets())) > 100  # one failed in ten, everywhere


def a_design(pendulum: Any, courses: tuple[Any, ...]) -> Design:
    starts = tuple(Start(k, "converged", 1.0, 0.0, {}, len(x), x) for k, x in enumerate(courses))
    return Design({}, 1.0, pendulum, (), (), starts, "converged", (), np.zeros(0), (), unit="N")


def test_the_course_of_a_design_is_that_of_its_starts() -> None:
    pendulum = mbd.examples.get("pendulum").mechanism
    found = a_design(pendulum, (((0, 5.0, 0.0), (1, 1.0, 0.0)), ((0, 7.0, 0.0), (1, 3.0, 0.0), (2, 2.0, 0.0)), ()))
    (axes,) = plot.convergence(found)
    lines = {line.get_gid(): np.asarray(line.get_ydata()).tolist() for line in axes.get_lines() if line.get_gid()}
    assert lines == {"start 0": [5.0, 1.0], "start 1": [7.0, 3.0, 2.0]}
    assert axes.get_ylabel() == "best objective so far [N]"
    assert "start 0, chosen: converged" in texts(figure_of(axes))
    assert "1 without a course: converged" in texts(figure_of(axes))
    with pytest.raises(mbd.MechanismError, match="no start of this design has a course"):
        plot.convergence(a_design(pendulum, ((),)))


def test_a_search_notes_its_course() -> None:
    pendulum = mbd.examples.get("pendulum").mechanism
    aim = lambda m: (m["rod"].mass - 2.0) ** 2  # noqa: E731
    found = mbd.design(aim, {"rod.mass": (0.5, 5.0)}, mechanism=pendulum, starts=2, progress=False)
    for start in found.starts:
        steps, objectives, violations = np.asarray(start.course).T
        assert steps.tolist() == list(range(start.steps + 1))
        assert np.all(np.diff(objectives) <= 0)
        assert objectives[-1] == start.objective
        assert not violations.any()


@pytest.mark.slow
def test_before_and_after_have_one_scale() -> None:
    pendulum, ts = mbd.examples.get("pendulum"), np.linspace(0.0, 0.5, 6)
    longer = mbd.with_numbers(pendulum.mechanism, {"O.b.position": np.array([-1.0, 0.0])})
    motions = [mbd.simulate(m, mbd.assemble(m, {"O.angle": 0.3}), ts) for m in (pendulum.mechanism, longer)]
    first, second, forces, angle = plot.before_after(motions[0], motions[1], ["O.fx", "O.fy", "O.angle"])
    assert first.get_xlim() == second.get_xlim()
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["before", "after"]
    dashed, solid = forces.get_lines()[:2]
    np.testing.assert_array_equal(dashed.get_ydata(), motions[0]["O.fx"])
    np.testing.assert_array_equal(solid.get_ydata(), motions[1]["O.fx"])
    assert angle.get_ylabel() == "O.angle [rad]"
    with pytest.raises(mbd.MechanismError, match="at least one name"):
        plot.before_after(motions[0], motions[1], [])


# --- many lines ---------------------------------------------------------------------------------------------


def test_names_at_the_ends_of_lines_keep_apart() -> None:
    random = np.random.default_rng(1)
    for wanted in (random.uniform(size=12), np.full(8, 0.5), np.zeros(5), np.linspace(0, 1, 6)):
        places = apart(wanted, 0.08)
        assert np.all(np.diff(np.sort(places)) >= 0.08 - 1e-9)
        assert places.min() >= 0
        assert places.max() <= 1 + 1e-9
        assert (np.argsort(places, kind="stable") == np.argsort(wanted, kind="stable")).all()
    np.testing.assert_allclose(apart(np.array([0.2, 0.8]), 0.1), [0.2, 0.8])


@pytest.mark.slow
def test_many_lines_have_names_at_their_ends_or_small_panels() -> None:
    chain = mbd.examples.get("four-bar-with-springs")
    solution = chain.simulate(np.linspace(0.0, 0.1, 5))
    names = [f"{joint}.{axis}" for joint in "OABC" for axis in ("fx", "fy")]
    (axes,) = plot.channels(solution, names)
    assert axes.get_legend() is None
    assert sorted(text.get_text() for text in axes.texts) == sorted(names)
    assert [text.get_color() for text in axes.texts] == [line.get_color() for line in axes.get_lines()]
    panels = plot.channels(solution, [*names, "O.angle"], panels="part")
    assert [axes.get_title(loc="left") for axes in panels] == [*"OABC", "O"]
    assert len({axes.get_ylim() for axes in panels[:4]}) == 1
    assert [axes.get_ylabel() for axes in panels] == ["[N]", "", "", "", "[rad]"]
    np.testing.assert_array_equal(panels[1].get_lines()[1].get_ydata(), solution["A.fy"])
    assert texts(figure_of(panels[0])).split() == ["fx", "fy", "angle"]
