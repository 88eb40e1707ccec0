"""The demo: identify a double pendulum from its measured free swings, and predict swings that were not used for it.

Free swings determine only the ratios of `A = I1 + m1 a1² + m2 L1²`, `B = m2 L1 a2`, `D = I2 + m2 a2²`,
`G1 = (m1 a1 + m2 L1) g`, `G2 = m2 a2 g` and the friction: a common factor on all masses, inertias and friction has no
effect, so that four mechanical numbers remain. Therefore `a1`, `I1`, `I2` and `L1` are estimated, and the masses, `a2`
and `g` have their published values. Coulomb friction in both joints, air drag, and the zero errors of both angle
sensors are also estimated.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import diffrax as dfx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from rich.console import Console
from rich.table import Table

from jaxmbd import planar as pl
from jaxmbd import plot, view
from jaxmbd.analyses.kinematics import kinematics
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.data import double_pendulum as measured_swings
from jaxmbd.identification import Experiment, Fit, Parameter, Positive, Prediction, fit, predict
from jaxmbd.model.functions.spline import SmoothingSpline

M1, M2, A2, G = 0.09384, 0.1376, 0.11678, 9.81  # published and not estimated: kg, kg, m, m/s²
DRAG_POINT = (
    0.15  # distance of the drag on arm 2 from joint 2 [m]; the swings do not determine it beside the coefficient
)
COULOMB_WIDTH = 0.1  # rad/s; the swings do not determine it
PUBLISHED = {"a1": 0.108565, "I1": 4.3753e-4, "I2": 1.26883e-3, "L1": 0.172719}
BASELINE = (6.26e-3, 9.18e-3)  # rad, median error of the published model over all segments
TRAINING = (*range(5), *range(10, 15), *range(20, 26))
UNSEEN = (*range(5, 10), *range(15, 20))
EVERY = 8  # samples: 8 ms
ANGLES = ("angle1", "angle2")


def pendulum(p: dict[str, Any]) -> pl.Mechanism:
    """Return the double pendulum with parameters `p`; body angles are measured from the x axis, y points up."""
    arm1 = pl.Body("arm1", M1, p["I1"], pose=(0.0, -0.1, -np.pi / 2))
    arm2 = pl.Body("arm2", M2, p["I2"], pose=(0.0, -0.3, -np.pi / 2))
    return pl.Mechanism(
        bodies=[arm1, arm2],
        joints=[
            pl.Revolute("pivot", pl.ground.at(), arm1.at(-p["a1"])),
            pl.Revolute("elbow", arm1.at(p["L1"] - p["a1"]), arm2.at(-A2)),
        ],
        forces=[
            pl.Gravity(G),
            pl.JointFriction("friction1", "pivot.angle", coulomb=p["c1"], width=COULOMB_WIDTH, quadratic=p["d1"]),
            pl.JointFriction("friction2", "elbow.angle", coulomb=p["c2"], width=COULOMB_WIDTH),
            pl.PointDrag("drag", arm2.at(DRAG_POINT - A2), quadratic=p["drag"]),
        ],
        sensors=[
            pl.Measure("angle1", partial(_reading, 2), p["zero1"], unit="rad"),
            pl.Measure("angle2", partial(_reading, 5), p["zero2"], unit="rad"),
            pl.Point("tip", arm2.at(A2)),
        ],
    )


def _reading(index: int, t: Array, q: Array, v: Array, vdot: Array, lam: Array, zero: Array) -> Array:
    """Return a sensor's reading: the angle from the upward vertical plus its zero error."""
    return jnp.pi / 2 - q[index] + zero


def free_parameters() -> dict[str, Parameter]:
    """Return the estimated parameters with starting value, range and unit."""
    return {
        "a1": Parameter(start=0.1086, within=Positive(), unit="m"),
        "I1": Parameter(start=4.4e-4, within=Positive(), unit="kg m²"),
        "I2": Parameter(start=1.27e-3, within=Positive(), unit="kg m²"),
        "L1": Parameter(start=0.1727, within=Positive(), unit="m"),
        "c1": Parameter(start=1e-4, within=Positive(), unit="N m"),
        "c2": Parameter(start=1e-4, within=Positive(), unit="N m"),
        "d1": Parameter(start=5e-6, within=Positive(), unit="N m s²"),
        "drag": Parameter(start=1e-3, within=Positive(), unit="N s²/m²"),
        "zero1": Parameter(start=1e-3, unit="rad"),
        "zero2": Parameter(start=1e-3, unit="rad"),
    }


def experiments(segments: Sequence[int]) -> list[Experiment]:
    """Return the measured segments; the estimate of each initial state starts at its first sample."""
    data = measured_swings()
    ts = data["t"][::EVERY]
    measured = []
    for k in segments:
        start = [np.pi / 2 - data[name][k, 0] for name in ("theta1", "theta2")]
        rates = [-data[name][k, 0] for name in ("omega1", "omega2")]
        measured.append(
            Experiment(
                ts,
                {"angle1": data["theta1"][k, ::EVERY], "angle2": data["theta2"][k, ::EVERY]},
                start={"arm1.theta": start[0], "arm2.theta": start[1]},
                speeds={"arm1.omega": rates[0], "arm2.omega": rates[1]},
                estimate=True,
                sigma=1e-3,
            )
        )
    return measured


IDENTIFIABLE = (
    "m1, m2, a2 and g are kept: free swings show only the four ratios at the bottom, and the friction relative to "
    "them, with A = I1 + m1 a1² + m2 L1², B = m2 L1 a2, D = I2 + m2 a2², G1 = (m1 a1 + m2 L1) g, G2 = m2 a2 g. "
    "c1, c2: Coulomb friction of pivot and elbow; d1: quadratic friction of the pivot; drag: air drag of arm 2; "
    "zero1, zero2: zero of the angle sensors. Standard errors are from the scatter between segments."
)
ESTIMATED = "The initial state of each segment is estimated; of unseen segments with the parameters fixed."
SETTINGS: dict[str, Any] = {"solver": dfx.Tsit5(), "stepsize_controller": dfx.ConstantStepSize(), "dt0": 0.008}


def identify(progress: bool = True) -> tuple[Fit, Prediction]:
    """Fit the training segments; then, with the parameters fixed, predict the unseen ones, of which the initial states
    are estimated."""
    trained = fit(pendulum, experiments(TRAINING), free_parameters(), progress=progress, **SETTINGS)
    return trained, predict(trained, experiments(UNSEEN), progress=progress)


def median_rms(result: Fit | Prediction) -> tuple[float, ...]:
    """Return the median over the segments of the RMS error [rad] of each angle."""
    return tuple(float(np.median([one[name] for one in result.rms()])) for name in ANGLES)


def combinations(p: dict[str, Any]) -> dict[str, float]:
    """Return the mechanical numbers that free swings determine: the ratios to `B = m2 L1 a2`."""
    coupling = M2 * p["L1"] * A2
    return {
        "A / B": float((p["I1"] + M1 * p["a1"] ** 2 + M2 * p["L1"] ** 2) / coupling),
        "D / B": float((p["I2"] + M2 * A2**2) / coupling),
        "G1 / B": float((M1 * p["a1"] + M2 * p["L1"]) * G / coupling),
        "G2 / B": float(M2 * A2 * G / coupling),
    }


def parameter_table(trained: Fit) -> Table:
    """Return the table of estimates, standard errors and published values, with the fixed numbers and the ratios that
    free swings determine."""
    table = Table(title="Estimates")
    for heading in ("", "estimate", "standard error", "published", "unit"):
        table.add_column(heading, justify="right" if heading not in ("", "unit") else "left")
    errors = trained.standard_errors or {}
    for name, value in trained.parameters.items():
        published = f"{PUBLISHED[name]:.5g}" if name in PUBLISHED else ""
        table.add_row(name, f"{float(value):.5g}", f"{float(errors[name]):.1g}", published, trained.units[name])
    table.add_section()
    for name, value, unit in (("m1", M1, "kg"), ("m2", M2, "kg"), ("a2", A2, "m"), ("g", G, "m/s²")):
        table.add_row(name, f"{value:g}", "kept", f"{value:g}", unit)
    table.add_section()
    published = combinations(PUBLISHED)
    for name, value in combinations(trained.parameters).items():
        table.add_row(name, f"{value:.5g}", "", f"{published[name]:.5g}", "1/s²" if name[0] == "G" else "")
    return table


def error_table(trained: Fit, unseen: Prediction) -> Table:
    """Return the table of the RMS errors of each angle on training and unseen segments, and of the published model."""
    table = Table(title="Simulated minus measured, RMS over 2.67 s")
    for heading in ("", r"θ1 \[mrad]", r"θ2 \[mrad]", "segments"):
        table.add_column(heading, justify="left" if heading in ("", "segments") else "right")
    for label, result, used in (("training", trained, TRAINING), ("unseen", unseen, UNSEEN)):
        worst = [max(one[name] for one in result.rms()) for name in ANGLES]
        table.add_row(f"{label}, median", *(f"{1e3 * x:.2f}" for x in median_rms(result)), _ranges(used))
        table.add_row(f"{label}, largest", *(f"{1e3 * x:.2f}" for x in worst), "")
    table.add_section()
    table.add_row("published model, median", *(f"{1e3 * x:.2f}" for x in BASELINE), "0-25, first samples as start")
    return table


def _ranges(numbers: Sequence[int]) -> str:
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    return ", ".join(f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def measured_motion(experiment: Experiment, trained: Fit) -> Solution:
    """Return a measured swing as a motion: the arms of the model, driven by the angles that the sensors showed."""
    ts, zeros = np.asarray(experiment.ts), trained.parameters
    drivers = []
    for k in (1, 2):
        angles = np.pi / 2 - np.asarray(experiment.data[f"angle{k}"]) + float(zeros[f"zero{k}"])
        drivers.append(pl.Driver(f"sensor {k}", f"arm{k}.theta", SmoothingSpline(ts, angles)))
    parts = trained.mechanism
    return kinematics(pl.Mechanism(parts.bodies, parts.joints, drivers=drivers, sensors=parts.sensors), ts)


def pictures(out: Path, trained: Fit, unseen: Prediction) -> list[Path]:
    """Write a plot of measured and predicted angles, and of an unseen segment an animation and a page for the browser,
    which shows the measured swing, too; return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    picture, movie = out / "double_pendulum.png", out / "double_pendulum.gif"
    columns = [
        (trained, 0, f"segment {TRAINING[0]}, training"),
        (unseen, 0, f"segment {UNSEEN[0]}, unseen"),
        (unseen, 5, f"segment {UNSEEN[5]}, unseen"),
    ]
    plot.fit(columns)[0, 0].get_figure().savefig(picture, dpi=150)
    ts = unseen.experiments[0].ts
    solution = simulate(trained.mechanism, unseen.states[0], ts, **SETTINGS)
    plot.save_animation(plot.animate(solution, reactions=["pivot", "elbow"], trace=["tip"], fps=15), movie, dpi=70)
    motions = {"predicted": solution, "measured": measured_motion(unseen.experiments[0], trained)}
    page = view.page(motions, channels=ANGLES, trace=["tip"], title=f"Double pendulum, segment {UNSEEN[0]}")
    return [picture, movie, page.save(out / "double_pendulum.html")]


def run(out: Path, progress: bool = True, console: Console | None = None) -> tuple[Fit, Prediction]:
    """Identify the pendulum, print the tables, and write a plot, an animation and a page into the folder `out`."""
    console = console or Console()
    console.print(
        f"Fitting {len(TRAINING)} segments of measured swings of a double pendulum: {len(free_parameters())} "
        f"parameters and {4 * len(TRAINING)} initial values. Compiling takes most of the time ..."
    )
    trained, unseen = identify(progress)
    console.print(parameter_table(trained), IDENTIFIABLE, "", error_table(trained, unseen), ESTIMATED, sep="\n")
    console.print("Drawing ...")
    for path in pictures(out, trained, unseen):
        console.print(f"wrote {path}")
    return trained, unseen
