"""The command-line application: each analysis is a command that assembles the mechanism, computes and shows results."""

import warnings
from collections.abc import Callable, Collection
from dataclasses import replace
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import lazy_loader
import typer
from rich.console import Console

import jaxmbd as mbd
from jaxmbd.cli import _options as options
from jaxmbd.cli import _values as values_of
from jaxmbd.cli._file_commands import check, convert, draw, equations, new
from jaxmbd.cli._model import Model, load
from jaxmbd.cli._outputs import FILMS, PICTURES, check_not_read, check_out
from jaxmbd.cli._study_commands import design, fit, integration_of, sweep
from jaxmbd.cli._text import show_table, wrapped
from jaxmbd.errors import AssemblyError, MechanismError, SolveError, printable
from jaxmbd.garbage import search_rarely
from jaxmbd.progress import reporting

if TYPE_CHECKING:
    from jaxmbd import demo as job
    from jaxmbd import plot, view
    from jaxmbd.analyses.simulation.solution import Solution
    from jaxmbd.cli import _report as report
    from jaxmbd.cli import _settings as settings
    from jaxmbd.cli import _start as beginning
    from jaxmbd.state.state import State
else:  # `--help` loads no library that computes
    job = lazy_loader.load("jaxmbd.demo", suppress_warning=True)
    plot = lazy_loader.load("jaxmbd.plot", suppress_warning=True)
    report = lazy_loader.load("jaxmbd.cli._report", suppress_warning=True)
    settings = lazy_loader.load("jaxmbd.cli._settings", suppress_warning=True)
    beginning = lazy_loader.load("jaxmbd.cli._start", suppress_warning=True)
    view = lazy_loader.load("jaxmbd.view", suppress_warning=True)

_INTERRUPTED = 130  # the exit status after Ctrl-C, by convention of shells
_DRAWN = 4  # the number of mode shapes that are drawn: the slowest vibrations


def describe(model: Model) -> None:
    """Report a mechanism's degrees of freedom, coordinates, constraints and variables."""
    print(wrapped(model.console, str(mbd.describe(model.mechanism, model.assembled()))))


def assemble(model: Model) -> None:
    """Close the joints: positions and speeds of the start, and a picture of it."""
    mechanism, state = model.mechanism, model.assembled()
    names = (*mechanism.coordinate_names, *mechanism.speed_names)
    units = (*mechanism.coordinate_units, *mechanism.speed_units)
    rows = zip(names, units, (*state.q.tolist(), *state.v.tolist()), strict=True)
    show_table(model.console, f"{model.name}: assembled", ("quantity", "unit"), ("value",), rows)
    text = f"constraints: {sum(mechanism.constraint_sizes())}"
    if (rank := int(state.rank)) >= 0:
        text += f", independent: {rank}, degrees of freedom left: {mechanism.nv - rank}"
    model.console.print(text)
    report.save_drawing(model, mechanism, state, "assemble")


def simulate(
    model: Model,
    until: options.Until = None,
    rows: options.Rows = 401,
    formulation: options.Formulation = "stabilized",
    accuracy: options.Accuracy = "standard",
    solver: options.Solver = None,
    film: options.Film = True,
    verbose: options.Verbose = False,
) -> None:
    """Integrate the motion from the start."""
    solution = _integrated(model, model.assembled(), until, rows, formulation, accuracy, solver, verbose)
    report.show_motion(model, solution, "simulate", film)


def show(
    model: Model,
    until: options.Until = None,
    rows: options.Rows = 401,
    formulation: options.Formulation = "stabilized",
    accuracy: options.Accuracy = "standard",
    solver: options.Solver = None,
    reaction: options.Reaction = None,
    out: options.Page = None,
    verbose: options.Verbose = False,
) -> None:
    """Show the motion from the start in the browser, to be played and turned; the start alone with --until 0."""
    mechanism, state = model.mechanism, model.assembled()
    shown: Any = {"reactions": reaction or (), "title": model.name}
    if until == 0:
        page = view.page(mechanism, state, **shown)
    else:
        solution = _integrated(model, state, until, rows, formulation, accuracy, solver, verbose)
        with model.working("drawing"):
            page = view.page(solution, channels=model.reads, trace=report.point_names(mechanism), **shown)
    if out is None:
        page.show()
    else:
        model.to(out).write("show.html", page.save)


def live(
    model: Model,
    parameter: options.Slid = None,
    trace: options.Traced = None,
    port: options.Port = 0,
    browser: options.Browser = True,
) -> None:
    """Explore the mechanism in the browser: drag its bodies, change its numbers, switch its assembly modes."""
    state = model.assembled()
    with model.working("preparing"):
        ranges = values_of.sliders("--parameter", parameter)
        explorer = view.explore(
            model.mechanism, state, parameters=ranges or None, show=model.asked or None, trace=trace, title=model.name
        )
    explorer.show(port=port, browser=browser)
    model.console.print("ended", style="dim")


def kinematics(model: Model, until: options.Until = None, rows: options.Rows = 401, film: options.Film = True) -> None:
    """Follow the motion that drivers prescribe, without integrating it."""
    state = model.assembled()
    with model.working("compiling and following the drivers"):
        solution = mbd.kinematics(model.mechanism, beginning.times(model.example, until, rows), state)
    report.show_motion(model, solution, "kinematics", film)


def inverse(model: Model, until: options.Until = None, rows: options.Rows = 401, film: options.Film = False) -> None:
    """Find the efforts that the prescribed motion takes of the drivers."""
    state, mechanism = model.assembled(), model.mechanism
    with model.working("compiling and balancing forces"):
        motion = mbd.kinematics(mechanism, beginning.times(model.example, until, rows), state)
        solution = mbd.inverse_dynamics(mechanism, motion)
    efforts = tuple(f"{driver.name}.effort" for driver in mechanism.drivers)
    report.show_motion(replace(model, reads=model.asked or efforts), solution, "inverse", film)


def equilibrium(model: Model, stable: options.Stable = False) -> None:
    """Find a position next to the start in which all forces balance."""
    state = model.assembled()
    with model.working("compiling and balancing forces"):
        result = mbd.equilibrium(model.mechanism, state, stable=stable)
        verdict = result.verdict
    report.show_instant(model, result.solution, f"equilibrium, {verdict}")
    report.save_drawing(model, model.mechanism, result.state, "equilibrium")


def linearize(model: Model, push: options.Push = None) -> None:
    """Linearise the motion about the start: frequencies, mode shapes, Bode plot, and the matrices A, B, C, D."""
    state, inputs = model.assembled(), push or model.example.inputs
    with model.working("compiling and linearising"):
        system = mbd.linearize(model.mechanism, state, inputs, model.reads)
    model.console.print(str(system), highlight=False, markup=False, soft_wrap=True)
    report.write_matrices(model, system)
    vibrating = [k for k, rigid in enumerate(system.modes().rigid.tolist()) if not rigid]
    for k in vibrating[:_DRAWN]:
        report.save_figure(model, f"mode{k}", lambda k=k: plot.modes(system, k))
    if system.inputs and system.outputs:
        report.save_figure(model, "bode", lambda: plot.bode(system)[0])


def _integrated(
    model: Model,
    state: "State",
    until: float | None,
    rows: int,
    formulation: str,
    accuracy: Literal["standard", "high"],
    solver: Literal["stiff", "auto"] | None,
    verbose: bool,
) -> "Solution":
    """The motion from a state; what ran it is told if `verbose`."""
    chosen = replace(integration_of(formulation, accuracy), solver=solver)
    ts = beginning.times(model.example, until, rows)
    with model.working("compiling and integrating"):
        solution = mbd.simulate(model.mechanism, state, ts, chosen)
    if verbose:
        print(wrapped(model.console, f"Engine {solution.engine!r}: {solution.engine_reason}."))
        if solution.solver_reason:
            print(wrapped(model.console, f"{solution.solver_reason}."))
    return solution


_OF_FILES = ("out", "files", "format", "show")
# The commands, and the options of `load` that mean nothing for them.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    check: (*_OF_FILES, "read"),
    draw: ("read",),
    describe: (*_OF_FILES, "read"),
    assemble: (),
    kinematics: (),
    inverse: (),
    equilibrium: (),
    simulate: (),
    linearize: (),
    equations: (*_OF_FILES, "read"),
    fit: ("read",),
    sweep: ("read",),
    design: ("read",),
    show: _OF_FILES,
    live: _OF_FILES,
    convert: _OF_FILES,
}

_MOTION = (".csv", ".nc", *PICTURES, *FILMS, ".html")
# The endings of the files that commands with `--out` write.
WRITTEN: dict[Callable[..., None], tuple[str, ...]] = {
    draw: PICTURES,
    assemble: PICTURES,
    kinematics: _MOTION,
    inverse: _MOTION,
    equilibrium: PICTURES,
    simulate: _MOTION,
    linearize: (".npz", *PICTURES),
    equations: (".txt", ".tex", ".py", ".c"),  # one of them for each format
    fit: (".nc", ".toml", *PICTURES, ".html"),
    sweep: (".csv", ".zarr", *PICTURES),
    design: (".toml", *PICTURES),
    show: (".html",),
}


def analysis(function: Callable[..., None], without: Collection[str] = ()) -> Callable[..., None]:
    """Wrap a function of a `Model` and of options as a command, with its own options, and those of `load` beside them
    but some."""
    own = list(signature(function).parameters.values())[1:]
    shared = [p for p in signature(load).parameters.values() if p.name not in {*without, *(one.name for one in own)}]

    def run(**given: Any) -> None:
        check_out(given.get("out"), WRITTEN.get(function, ()))
        check_not_read(given.get("out"), given["model"])
        with reporting(True, "loading ..."):
            settings.configure()
            model = load(**{p.name: given.pop(p.name) for p in shared})
        function(model, **given)
        model.check_written()

    return command(run, function, [*shared[:1], *own, *shared[1:]])


def command(
    run: Callable[..., None], function: Callable[..., None], parameters: list[Parameter]
) -> Callable[..., None]:
    """A command that is named and described as a function, and tells errors and warnings in one line each."""

    def tell(message: object, style: str = "red") -> None:
        Console(stderr=True).print(
            printable(f"jaxmbd: {message}"), style=style, highlight=False, markup=False, soft_wrap=True
        )

    def wrapped(**given: object) -> None:
        search_rarely()
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *place, **further: tell(message, "yellow")
            try:
                run(**given)
            except (MechanismError, AssemblyError, SolveError) as error:
                tell(error)
                raise typer.Exit(1) from None
            except KeyboardInterrupt as error:  # a sweep says how to go on
                tell(str(error) or "interrupted")
                raise typer.Exit(_INTERRUPTED) from None

    parameters = sorted(parameters, key=lambda p: p.default is not p.empty)  # arguments, then options
    result: Any = wrapped
    result.__name__, result.__doc__ = function.__name__, function.__doc__
    result.__signature__ = signature(function).replace(parameters=parameters)
    result.__annotations__ = {p.name: p.annotation for p in parameters}
    return result


app = typer.Typer(no_args_is_help=True, help="Multibody dynamics of mechanisms, differentiable from end to end.")


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture, the animation and the page.")] = Path("out/demo"),
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Identify a real double pendulum from its measured swings, and predict swings it has not seen."""
    check_out(out, ())
    settings.configure()
    job.run(out, progress=not quiet, console=Console())


app.command()(command(demo, demo, list(signature(demo).parameters.values())))


@app.command()
def examples() -> None:
    """List the example mechanisms."""
    entries = mbd.examples.entries().items()
    rows = ((name, e.description + (f" ({e.source})" if e.source else "")) for name, e in entries)
    show_table(Console(), "jaxmbd simulate NAME, or another analysis, of:", ("name", "what it is"), (), rows)


app.command()(command(new, new, list(signature(new).parameters.values())))
for function, unwanted in COMMANDS.items():
    app.command()(analysis(function, unwanted))


@app.command()
def version() -> None:
    """Print what a report of an error should name: versions, the system, the device, the virtual machine."""
    print(settings.versions())
