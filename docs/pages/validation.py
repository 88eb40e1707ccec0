"""Validation: the numbers that others published beside those that this build reaches, computed while the site is built.

The published numbers are those of the tests: the tables of `tests/references` and the constants beside them.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
from numpy.typing import ArrayLike

import jaxmbd as mbd
from jaxmbd import examples
from tests.planar_examples import andrews_coordinates
from tests.references import test_bicycle, test_car_axis, test_references, test_spatial_references
from tests.references.tables import columns, table

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
Row = tuple[str, float, float]  # a quantity with its unit, the published value, the value reached
INTRODUCTION = """# Validation

The tests compare motions with what others published, each as closely as its source can bear. This page repeats those
comparisons: `make docs` computes the numbers that are reached, at `rtol = atol = 1e-12`, Bricard's ring with
`accuracy="high"`, the cases of MSC ADAMS at 1e-10. Files, licences and origins are in `tests/references/README.md`;
`pytest tests/references` checks all of it.
"""
ADAMS = """## One body, one joint or force in space: MSC ADAMS

Results of MSC ADAMS that Project Chrono keeps for its own tests. Their accelerations and reactions carry the error of
ADAMS's integration; the tolerance of a signal is twice the deviation of its file from a high-precision solution.
"""
ELSEWHERE = """## Elsewhere

- `jaxmbd demo` identifies a real double pendulum (Kaheman et al., 2022) and prints the published parameters beside its
  own; `tests/identification/test_shooting.py` requires agreement within 2 %.
- `tests/optimal_design/test_synthesis.py` synthesises two four-bars of the literature and compares the errors with the
  published ones.
- Measurements beside other programs: [performance](/performance.md).
"""


def write(folder: Path) -> None:
    """Compute everything and write the page."""
    with jax.enable_x64(True):
        parts = [
            INTRODUCTION,
            "## Published values\n",
            *map(values, VALUES),
            "## Curves\n",
            *curves(),
            *adams(),
            ELSEWHERE,
        ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "validation.md").write_text("\n".join(parts), encoding="utf-8")


def values(problem: Callable[[], Iterator[Row]]) -> str:
    """The table of one problem, headed by the docstring of the function that computes it."""
    title, _, text = (problem.__doc__ or "").partition("\n")
    lines = [
        f"### {title.rstrip('.')}",
        text.replace("\n    ", "\n"),
        "| | published | reached | difference |",
        "|---|---:|---:|---:|",
    ]
    lines += [f"| {name} | {here:.10g} | {reached:.10g} | {reached - here:.1e} |" for name, here, reached in problem()]
    return "\n".join([*lines, ""])


def andrews() -> Iterator[Row]:
    """Andrews' squeezing mechanism at 0.03 s.

    Test Set for IVP Solvers; Hairer, Wanner, *Solving ODEs II*, §VII.7. Angles [rad] and rates [rad/s].
    """
    end = table("andrews_ivp_end")
    motion = examples.andrews("andrews_ivp").simulate(np.array([0.0, 0.03]), **TIGHT)
    bodies = [motion.read([f"b{k}.{name}" for k in range(1, 8)]) for name in ("theta", "omega")]
    found = np.concatenate([andrews_coordinates(list(read.values()))[-1] for read in bodies])
    yield from zip(end["name"], end["published"], found, strict=True)


def car_axis() -> Iterator[Row]:
    """Car axis at 3 s.

    Mazzia and Magherini, Test Set for IVP Solvers (2008), II-8, computed by PSIDE. The ends of the body.
    """
    motion = examples.get("car-axis").simulate([0.0, 3.0], **TIGHT)
    found = [*motion["left"][-1], *motion["right"][-1], *test_car_axis.speeds(motion)]
    names = [f"{end} {axis}" for end in ("left", "right") for axis in ("x [m]", "y [m]")]
    names += [f"{end} {axis}" for end in ("left", "right") for axis in ("vx [m/s]", "vy [m/s]")]
    yield from zip(names, [*test_car_axis.PLACES, *test_car_axis.SPEEDS], map(float, found), strict=True)


def bicycle() -> Iterator[Row]:
    """Whipple's bicycle at 5 m/s: eigenvalues.

    Meijaard, Papadopoulos, Ruina, Schwab, Proc. R. Soc. A 463 (2007), table 2 [1/s].
    """
    example = examples.get("bicycle")
    found = np.asarray(mbd.linearize(example.mechanism, example.state()).modes().eigenvalues)[-3:]
    for name, published, value in zip(("capsize", "weave", "caster"), test_bicycle.PUBLISHED, found, strict=True):
        yield name, published.real, value.real
        if published.imag:
            yield f"{name}, imaginary part", published.imag, value.imag


def modelica() -> Iterator[Row]:
    """Three examples of the Modelica Standard Library at their ends.

    Dymola, DASSL at 1e-6 (MAP-LIB reference results), so the last digits are not the problem's: the published curves
    deviate from high-precision ones by up to 2.0e-4 (double pendulum), 3.9e-3 (planar four-bar) and 2.3e-3 (spatial
    four-bar).
    """
    planar, spatial = test_references, test_spatial_references
    for name, file, joints, published in (
        (
            "modelica-double-pendulum",
            "modelica_double_pendulum",
            ("revolute1", "revolute2"),
            planar.PUBLISHED_DOUBLE_PENDULUM,
        ),
        ("planar-four-bar", "modelica_planar_fourbar", ("revolute1",), planar.PUBLISHED_FOUR_BAR),
        ("spatial-four-bar", "fourbar1", ("j1",), spatial.PUBLISHED_SPATIAL_FOUR_BAR),
    ):
        channels = [f"{joint}.{of}" for joint in joints for of in ("angle", "angle_rate")]
        motion = examples.get(name).simulate([0.0, float(table(file)["t"][-1])], **TIGHT)
        found = [float(motion[channel][-1]) for channel in channels]
        yield from zip([f"{name}, `{channel}`" for channel in channels], published, found, strict=True)


VALUES = (andrews, car_axis, bicycle, modelica)


def curves() -> list[str]:
    """The largest differences from whole curves, published or of high precision."""
    lines = [
        "The largest difference of all values of a curve.\n",
        "| problem | source of the curve | quantity | largest difference |",
    ]
    lines += ["|---|---|---|---:|"]
    for problem, source, quantity, found, expected in _compared():
        lines.append(f"| {problem} | {source} | {quantity} | {np.abs(np.asarray(found) - expected).max():.1e} |")
    return [*lines, ""]


def _compared() -> Iterator[tuple[str, str, str, ArrayLike, np.ndarray]]:
    data = table("iftomm_a01")
    motion = examples.get("pendulum").simulate(data["t"], **TIGHT)
    yield "IFToMM A01, pendulum", "closed form", "x, y [m]", motion["P"], columns(data, "x", "y")
    data = table("iftomm_a02")
    motion = examples.get("four-bars").simulate(data["t"], **TIGHT)
    yield "IFToMM A02, two four-bars", "closed form", "x, y of B0 [m]", motion["B0"], columns(data, "x_B0", "y_B0")
    data = table("iftomm_a03_library")
    times = np.unique(data["t"])
    motion = examples.andrews("iftomm_a03").simulate(times, **TIGHT)
    found = np.asarray(motion["pin F"])[np.searchsorted(times, data["t"]), np.where(data["signal"] == "x_F", 0, 1)]
    yield "IFToMM A03, Andrews", "published plot of the library", "x, y of F [m]", found, data["value"]
    data, bricard = table("bricard"), examples.get("bricard")
    found = bricard.simulate(data["t"], accuracy="high")["corner"]
    yield (
        "IFToMM A04, Bricard",
        "own, high precision",
        "x, y, z of P3 [m]",
        found,
        columns(data, "x_P3", "y_P3", "z_P3"),
    )
    data = table("sundials_slider_crank_published")
    times, place = np.unique(data["t"], return_inverse=True)
    motion = examples.get("sundials-slider-crank").simulate(times, **TIGHT)
    found = np.stack([np.asarray(motion[name])[place] for name in ("crank.theta", "rod.x", "rod.theta")], axis=-1)
    yield (
        "SUNDIALS, slider-crank",
        "printed by its examples, 5 digits",
        "angles [rad], x [m]",
        found,
        columns(data, "q", "x", "p"),
    )
    data = table("planar_slider_crank_published")
    motion = examples.get("slider-crank").simulate(data["t"], **TIGHT)
    yield "Exudyn, slider-crank", "MATLAB's ode45 at 1e-6", "angle [rad]", motion["crank.theta"], data["crank_angle"]
    data = table("heavy_top")
    motion = examples.get("heavy-top").simulate(data["t"], **TIGHT)
    found = np.stack([motion[f"top.{axis}"] for axis in "xyz"], axis=-1)
    yield (
        "heavy top (Brüls, Cardona, Arnold)",
        "own, high precision",
        "x, y, z [m]",
        found,
        columns(data, "x_C", "y_C", "z_C"),
    )


def adams() -> list[str]:
    """The cases of MSC ADAMS, each by the signal that comes nearest to its tolerance."""
    lines = [
        ADAMS,
        "| case | signals | the nearest to its tolerance | its error | its tolerance |",
        "|---|---:|---|---:|---:|",
    ]
    tolerances = test_spatial_references.adams_tolerances()
    for case in test_spatial_references.examples.ADAMS:
        errors = test_spatial_references.adams_errors(case)
        name = max(errors, key=lambda signal: errors[signal] / tolerances[case][signal])
        lines.append(f"| {case} | {len(errors)} | {name} | {errors[name]:.1e} | {tolerances[case][name]:.1e} |")
    return [*lines, ""]
