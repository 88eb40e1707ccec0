"""The command-line application: each analysis is a command that assembles the mechanism, computes and shows results."""

from collections.abc import Callable, Collection
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import lazy_loader
import numpy as np
import typer
from rich.console import Console
from typer import Argument, Option

import jaxmbd as mbd
from jaxmbd.cli._model import Model, load
from jaxmbd.errors import AssemblyError, MechanismError, SolveError, check_known

if TYPE_CHECKING:
    from jaxmbd import demo as job
    from jaxmbd import plot, view
    from jaxmbd.analyses.simulation.solution import Solution
    from jaxmbd.analyses.state import State
    from jaxmbd.cli import _report as report
    from jaxmbd.cli import _settings as settings
else:  # `--help` loads no library that computes
    job = lazy_loader.load("jaxmbd.demo", suppress_warning=True)
    plot = lazy_loader.load("jaxmbd.plot", suppress_warning=True)
    report = lazy_loader.load("jaxmbd.cli._report", suppress_warning=True)
    settings = lazy_loader.load("jaxmbd.cli._settings", suppress_warning=True)
    view = lazy_loader.load("jaxmbd.view", suppress_warning=True)

_DRAWN = 4  # the number of mode shapes that are drawn: the slowest vibrations

# The names of formulations, and those of their classes.
FORMULATIONS = {
    "stabilized": "Stabilized",
    "augmented": "Augmented",
    "partitioning": "CoordinatePartitioning",
    "projection": "Projection",
}

Until = Annotated[
    float | None, Option(help="The end of the motion, in seconds; the example's own, or 1 s, unless given.")
]
Rows = Annotated[int, Option(help="Number of times at which results are kept.")]
Formulation = Annotated[str, Option(help=f"How the constraints are kept: {', '.join(FORMULATIONS)}.")]
Accuracy = Annotated[Literal["standard", "high"], Option(help="The tolerance of the steps.")]
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
    report.show_table(model.console, f"{model.name}: assembled", ("quantity", "unit"), ("value",), rows)
    text = f"constraints: {sum(mechanism.constraint_sizes())}"
    if state.rank is not None:  # known unless a model file holds a state without it
        rank = int(np.asarray(state.rank))
        text += f", independent: {rank}, degrees of freedom left: {mechanism.nv - rank}"
    model.console.print(text)
    report.save_drawing(model, state, "assemble.png")


def simulate(
    model: Model,
    until: Until = None,
    rows: Rows = 401,
    formulation: Formulation = "stabilized",
    accuracy: Accuracy = "standard",
    film: Film = True,
) -> None:
    """Integrate the motion from the start."""
    solution = _integrated(model, model.assembled(), until, rows, formulation, accuracy)
    report.show_motion(model, solution, "simulate", film)


def show(
    model: Model,
    until: Until = None,
    rows: Rows = 401,
    formulation: Formulation = "stabilized",
    accuracy: Accuracy = "standard",
    reaction: Annotated[list[str] | None, Option(help="A joint whose reaction is drawn. *")] = None,
    out: Annotated[Path | None, Option(help="The page to write; shown in the browser unless given.")] = None,
) -> None:
    """Show the motion from the start in the browser, to be played and turned; the start alone with --until 0."""
    mechanism, state = model.mechanism, model.assembled()
    options: Any = {"reactions": reaction or (), "title": model.name}
    if until == 0:
        page = view.page(mechanism, state, **options)
    else:
        solution = _integrated(model, state, until, rows, formulation, accuracy)
        with model.working("drawing"):
            page = view.page(solution, channels=model.reads, trace=report.point_names(mechanism), **options)
    if out is None:
        page.show()
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    model.console.print(f"wrote {page.save(out)}", style="dim", highlight=False, soft_wrap=True)


def kinematics(model: Model, until: Until = None, rows: Rows = 401, film: Film = True) -> None:
    """Follow the motion that drivers prescribe, without integrating it."""
    state = model.assembled()
    with model.working("compiling and following the drivers"):
        solution = mbd.kinematics(model.mechanism, _times(model, until, rows), state)
    report.show_motion(model, solution, "kinematics", film)


def inverse(model: Model, until: Until = None, rows: Rows = 401, film: Film = False) -> None:
    """Find the efforts that the prescribed motion takes of the drivers."""
    state, mechanism = model.assembled(), model.mechanism
    with model.working("compiling and balancing forces"):
        motion = mbd.kinematics(mechanism, _times(model, until, rows), state)
        solution = mbd.inverse_dynamics(mechanism, motion)
    efforts = tuple(f"{driver.name}.effort" for driver in mechanism.drivers)
    report.show_motion(replace(model, reads=model.asked or efforts), solution, "inverse", film)


def equilibrium(
    model: Model, stable: Annotated[bool, Option("--stable", help="Go downhill, to one that is stable.")] = False
) -> None:
    """Find a position next to the start in which all forces balance."""
    state = model.assembled()
    with model.working("compiling and balancing forces"):
        result = mbd.equilibrium(model.mechanism, state, stable=stable)
        verdict = result.verdict
    report.show_instant(model, result.solution, f"equilibrium, {verdict}")
    report.save_drawing(model, result.state, "equilibrium.png")


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
        report.save_figure(model, f"mode{k}.png", lambda k=k: plot.modes(system, k))
    if system.inputs and system.outputs:
        report.save_figure(model, "bode.png", lambda: plot.bode(system)[0])


def convert(
    model: Model, to: Annotated[Path, Argument(help="The model file to write, with the ending .toml.")]
) -> None:
    """Write the mechanism and its state at the start as a model file: text that can be read and changed."""
    mbd.save(model.mechanism, to, state=model.assembled())
    model.console.print(f"wrote {to}", style="dim", highlight=False, soft_wrap=True)


def _integrated(
    model: Model,
    state: "State",
    until: float | None,
    rows: int,
    formulation: str,
    accuracy: Literal["standard", "high"],
) -> "Solution":
    """The motion from a state."""
    check_known("formulation", [formulation], FORMULATIONS)
    with model.working("compiling and integrating"):
        ts, chosen = _times(model, until, rows), getattr(mbd, FORMULATIONS[formulation])()
        return mbd.simulate(model.mechanism, state, ts, formulation=chosen, accuracy=accuracy)


def _times(model: Model, until: float | None, rows: int) -> np.ndarray:
    """The times of a motion [s]."""
    return np.linspace(0.0, model.example.duration if until is None else until, rows)


COMMANDS = (describe, assemble, kinematics, inverse, equilibrium, simulate, linearize, convert)


def analysis(function: Callable[..., None], without: Collection[str] = ()) -> Callable[..., None]:
    """Wrap a function of a `Model` and of options as a command, with the options of `load` but some, and its own."""
    shared, own = (list(signature(f).parameters.values()) for f in (load, function))
    shared = [parameter for parameter in shared if parameter.name not in without]

    def command(**options: Any) -> None:
        settings.configure()
        try:
            function(load(**{p.name: options.pop(p.name) for p in shared}), **options)
        except (MechanismError, AssemblyError, SolveError) as error:
            console = Console(stderr=True)
            console.print(f"jaxmbd: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(1) from None

    parameters: Any = sorted([*shared, *own[1:]], key=lambda p: p.default is not p.empty)  # arguments, then options
    wrapped: Any = command
    wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
    wrapped.__signature__ = signature(function).replace(parameters=parameters)
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


app = typer.Typer(no_args_is_help=True, add_completion=False, help="Multibody dynamics of mechanisms.")


@app.callback()
def _about() -> None:
    """Multibody dynamics of mechanisms, differentiable from end to end."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture, the animation and the page.")] = Path("out/demo"),
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Identify a real double pendulum from its measured swings, and predict swings it has not seen."""
    settings.configure()
    job.run(out, progress=not quiet, console=Console())


@app.command()
def examples() -> None:
    """List the example mechanisms."""
    entries = mbd.examples.entries().items()
    rows = ((name, e.description + (f" ({e.source})" if e.source else "")) for name, e in entries)
    report.show_table(Console(), "jaxmbd simulate NAME, or another analysis, of:", ("name", "what it is"), (), rows)


for function in COMMANDS:
    app.command()(analysis(function))
app.command()(analysis(show, without=("out", "files")))


@app.command()
def version() -> None:
    """Print what a report of an error should name: versions, the system, the device, the virtual machine."""
    print(settings.versions())
