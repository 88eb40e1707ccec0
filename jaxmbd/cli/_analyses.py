"""The analyses as commands: each assembles the mechanism, computes, and shows the results."""

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from typer import Option

import jaxmbd as mbd
from jaxmbd import plot
from jaxmbd.cli._model import Model
from jaxmbd.cli._report import save_drawing, save_figure, show_instant, show_motion, show_table
from jaxmbd.errors import unknown
from jaxmbd.integrate.formulations.formulation import AbstractFormulation

_DRAWN = 4  # the number of mode shapes that are drawn: the slowest vibrations

FORMULATIONS: dict[str, type[AbstractFormulation]] = {
    "stabilized": mbd.Stabilized,
    "augmented": mbd.Augmented,
    "partitioning": mbd.CoordinatePartitioning,
    "projection": mbd.Projection,
}

Until = Annotated[
    float | None, Option(help="The end of the motion, in seconds; the example's own, or 1 s, unless given.")
]
Rows = Annotated[int, Option(help="Number of times at which results are kept.")]
Film = Annotated[bool, Option(help="Write an animation.")]


def describe(model: Model) -> None:
    """Report a mechanism's degrees of freedom, coordinates, constraints and variables."""
    print(mbd.describe(model.mechanism, model.assembled()))


def assemble(model: Model) -> None:
    """Close the joints: positions and speeds of the start, and a picture of it."""
    mechanism, state = model.mechanism, model.assembled()
    names = (*mechanism.coordinate_names, *mechanism.speed_names)
    units = (*mechanism.coordinate_units, *mechanism.speed_units)
    rows = zip(names, units, (*np.asarray(state.q), *np.asarray(state.v)), strict=True)
    show_table(model.console, f"{model.name}: assembled", ("quantity", "unit"), ("value",), rows)
    m, rank = sum(mechanism.constraint_sizes()), int(np.asarray(state.rank))
    model.console.print(f"constraints: {m}, independent: {rank}, degrees of freedom left: {mechanism.nv - rank}")
    save_drawing(model, state, "assemble.png")


def simulate(
    model: Model,
    until: Until = None,
    rows: Rows = 401,
    formulation: Annotated[
        str, Option(help=f"How the constraints are kept: {', '.join(FORMULATIONS)}.")
    ] = "stabilized",
    accuracy: Annotated[Literal["standard", "high"], Option(help="The tolerance of the steps.")] = "standard",
    film: Film = True,
) -> None:
    """Integrate the motion from the start."""
    if formulation not in FORMULATIONS:
        raise unknown("formulation", formulation, FORMULATIONS)
    state = model.assembled()
    with model.working("compiling and integrating"):
        ts = _times(model, until, rows)
        solution = mbd.simulate(model.mechanism, state, ts, formulation=FORMULATIONS[formulation](), accuracy=accuracy)
    show_motion(model, solution, "simulate", film)


def kinematics(model: Model, until: Until = None, rows: Rows = 401, film: Film = True) -> None:
    """Follow the motion that drivers prescribe, without integrating it."""
    state = model.assembled()
    with model.working("compiling and following the drivers"):
        solution = mbd.kinematics(model.mechanism, _times(model, until, rows), state)
    show_motion(model, solution, "kinematics", film)


def inverse(model: Model, until: Until = None, rows: Rows = 401, film: Film = False) -> None:
    """Find the efforts that the prescribed motion takes of the drivers."""
    state, mechanism = model.assembled(), model.mechanism
    with model.working("compiling and balancing forces"):
        motion = mbd.kinematics(mechanism, _times(model, until, rows), state)
        solution = mbd.inverse_dynamics(mechanism, motion)
    efforts = tuple(f"{driver.name}.effort" for driver in mechanism.drivers)
    show_motion(replace(model, reads=model.asked or efforts), solution, "inverse", film)


def equilibrium(
    model: Model, stable: Annotated[bool, Option("--stable", help="Go downhill, to one that is stable.")] = False
) -> None:
    """Find a position next to the start in which all forces balance."""
    state = model.assembled()
    with model.working("compiling and balancing forces"):
        result = mbd.equilibrium(model.mechanism, state, stable=stable)
        verdict = result.verdict
    show_instant(model, result.solution, f"equilibrium, {verdict}")
    save_drawing(model, result.state, "equilibrium.png")


def linearize(
    model: Model,
    push: Annotated[list[str] | None, Option(help="Where a force acts: slider.x, O.angle, spring.tension. *")] = None,
) -> None:
    """Linearise the motion about the start: frequencies, mode shapes, Bode plot, and the matrices A, B, C, D."""
    state, inputs = model.assembled(), push or model.example.inputs
    with model.working("compiling and linearising"):
        system = mbd.linearize(model.mechanism, state, inputs, model.reads)
    model.console.print(str(system), highlight=False, markup=False, soft_wrap=True)
    parts = ("A", "B", "C", "D", "states", "inputs", "outputs")
    numbers: dict[str, Any] = {name: np.asarray(getattr(system, name)) for name in parts}
    model.write("linearize.npz", lambda path: np.savez(path, **numbers))
    vibrating = np.flatnonzero(~np.asarray(system.modes().rigid))[:_DRAWN]
    for k in vibrating.tolist():
        save_figure(model, f"mode{k}.png", lambda k=k: plot.modes(system, k))
    if system.inputs and system.outputs:
        save_figure(model, "bode.png", lambda: plot.bode(system)[0])


def _times(model: Model, until: float | None, rows: int) -> np.ndarray:
    """The times of a motion [s]."""
    return np.linspace(0.0, model.example.duration if until is None else until, rows)


ANALYSES = (describe, assemble, kinematics, inverse, equilibrium, simulate, linearize)
