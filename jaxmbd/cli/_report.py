"""The output of the commands: tables on the terminal, and files of numbers, plots and pictures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader
import numpy as np

from jaxmbd.cli._model import Model, remark
from jaxmbd.cli._outputs import FILMS
from jaxmbd.cli._text import show_table
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.model.sensor import Point
from jaxmbd.printing import with_unit
from jaxmbd.state.result_codes import is_successful
from jaxmbd.state.state import State

if TYPE_CHECKING:
    import matplotlib.pyplot as plt
    import xarray as xr
    from matplotlib.axes import Axes

    from jaxmbd import io, plot, sweeps, view
    from jaxmbd.analyses.linearization.linear_system import LinearSystem
    from jaxmbd.analyses.simulation.solution import Solution
    from jaxmbd.optimal_design import Design
    from jaxmbd.scene import curves
else:  # numbers are printed before the libraries for files and pictures are loaded
    curves = lazy_loader.load("jaxmbd.scene.curves", suppress_warning=True)
    io = lazy_loader.load("jaxmbd.io", suppress_warning=True)
    plot = lazy_loader.load("jaxmbd.plot", suppress_warning=True)
    plt = lazy_loader.load("matplotlib.pyplot", suppress_warning=True)
    sweeps = lazy_loader.load("jaxmbd.sweeps", suppress_warning=True)
    view = lazy_loader.load("jaxmbd.view", suppress_warning=True)

_FILM, _FPS = 3.0, 12  # the duration of every animation [s], and its frames per second
_SHOWN = 20  # variants of a sweep that are printed
_DPI, _FILM_DPI = 130, 70  # resolution of pictures and of animations


Columns = Sequence[tuple[str, str, np.ndarray]]  # the components of quantities: `(name, unit, values (times,))`


def columns(solution: "Solution", names: Iterable[str]) -> Columns:
    """Return the components of quantities of a motion."""
    units, found = channel_units(solution.mechanism), []
    for name, values in solution.read(names).items():
        parts = np.asarray(values).reshape(len(values), -1).T
        found += [(curves.component_label(name, k, len(parts)), units[name], part) for k, part in enumerate(parts)]
    return found


def show_motion(model: Model, solution: "Solution", what: str, film: bool) -> None:
    """Show the range of the chosen quantities over a motion, and write their values, plots and an animation."""
    with model.working("compiling and reading"):
        read, quality = columns(solution, model.reads), _quality(solution)
    numbers = [(n, u, x[0], x[-1], x.min(), x.max()) for n, u, x in read]
    start, *_, end = solution.ts.tolist()
    title = f"{model.name}: {what}, {start:g} to {end:g} s"
    show_table(model.console, title, ("quantity", "unit"), ("start", "end", "least", "largest"), numbers)
    model.console.print(quality)
    with model.working("drawing"):
        write_numbers(model, np.asarray(solution.ts), read, what)
        model.write(f"{what}.nc", lambda path: io.save(solution, path))
        save_figure(model, what, lambda: plot.channels(solution, model.reads)[0])
        if model.ending == ".html":
            page = view.page(solution, channels=model.reads, trace=point_names(model.mechanism), title=model.name)
            model.write(f"{what}.html", page.save)
    if film or model.ending in FILMS:  # it says itself how far it is
        model.write(model.film(what), lambda path: _save_film(solution, path))


def show_instant(model: Model, solution: "Solution", what: str) -> None:
    """Show a table of the coordinates and of the chosen quantities at one instant."""
    with model.working("compiling and reading"):
        read = columns(solution, dict.fromkeys((*model.mechanism.coordinate_names, *model.reads)))
    rows = [(name, unit, values[-1]) for name, unit, values in read]
    show_table(model.console, f"{model.name}: {what}", ("quantity", "unit"), ("value",), rows)


def _quality(solution: "Solution") -> str:
    """The largest constraint violation of a motion, and its number of steps."""
    missed = np.abs(np.asarray(solution.violation().position)).max(initial=0.0)
    steps = f", {int(solution.stats['num_steps'])} steps" if "num_steps" in solution.stats else ""
    return f"constraints kept to {missed:.1e} (m or rad){steps}"


def show_variants(model: Model, found: "xr.Dataset", units: Mapping[str, str]) -> None:
    """Show the first variants of a sweep, and write all of them as a CSV file; `units` of numbers and outputs."""
    table, count, failed = found.to_dataframe().reset_index(), found.attrs["variants"], found.attrs["failed"]
    headings = [with_unit(name, unit) for name, unit in units.items()]
    words = ["verdict"] * bool(failed)
    texts = [[text] * bool(failed) for text in table["result_text"]]
    cells = [[*text, *row] for text, row in zip(texts, table[list(units)].to_numpy().tolist(), strict=True)]
    title = f"{model.name}: {count} variants" + f", {failed} of them without a motion" * bool(failed)
    show_table(model.console, title, words, headings, cells[:_SHOWN])
    if count > _SHOWN:
        model.console.print(f"... and {count - _SHOWN} more", highlight=False)
    named = table[[*units, "result_text"]].set_axis([*headings, "result"], axis="columns")
    model.write("sweep.csv", lambda path: named.to_csv(path, index=False))


def show_front(model: Model, found: "xr.Dataset", units: Mapping[str, str], aims: Mapping[str, Any]) -> None:
    """Show the first variants that no other one is better than, and write all of them as a CSV file."""
    front = sweeps.pareto_front(found, aims).to_dataframe().reset_index()
    headings = [with_unit(name, unit) for name, unit in units.items()]
    arrows = {"min": "small", "max": "large"}
    title = f"{model.name}: {len(front)} on the front of " + ", ".join(f"{n} {arrows[a]}" for n, a in aims.items())
    show_table(model.console, title, [], headings, front[list(units)].to_numpy().tolist()[:_SHOWN])
    if len(front) > _SHOWN:
        model.console.print(f"... and {len(front) - _SHOWN} more", highlight=False)
    named = front[list(units)].set_axis(headings, axis="columns")
    if not model.ending:
        model.write("front.csv", lambda path: named.to_csv(path, index=False))


def save_study(model: Model, found: "xr.Dataset", units: Mapping[str, str], aims: Mapping[str, Any]) -> None:
    """Write the pictures of a sweep: outputs over its numbers, their distribution, and the front if there are aims.

    Where one file is wanted, it is the first of them.
    """
    outputs = [name for name in units if name in found.data_vars]
    varied = [name for name in units if name in found.coords and np.ptp(found[name].values) > 0]
    drawn: dict[str, Callable[[], Axes]] = {}
    if aims:
        drawn["sweep-front"] = lambda: next(iter(plot.pareto(found, aims, units=units).values()))
    if len(varied) == 2:
        for name in outputs:
            drawn[f"sweep-{name}"] = lambda name=name: plot.heat_map(found, name, units=units)
    elif len(varied) == 1:
        drawn["sweep-curves"] = lambda: next(iter(plot.curves(found, outputs, units=units).values()))
    elif varied:
        drawn["sweep-parallel"] = lambda: plot.parallel(found, outputs, units=units)
    drawn["sweep-histogram"] = lambda: plot.histogram(found, outputs, units=units)[outputs[0]]
    for name, draw in drawn.items():
        save_figure(model, name, draw)
        if model.ending:
            return


def save_course(model: Model, found: "Design", before: "Solution", after: "Solution", names: Sequence[str]) -> None:
    """Write the course of a design's search, and a motion before and after it."""
    if any(start.course for start in found.starts):
        save_figure(model, "design-convergence", lambda: plot.convergence(found)[0])
    if bool(is_successful(before.result)) and bool(is_successful(after.result)):
        save_figure(model, "design-before-after", lambda: plot.before_after(before, after, names)[0])
    else:
        remark("The motion before the design fails, so that it is not drawn beside the one after it.")


def write_numbers(model: Model, ts: np.ndarray, read: Columns, what: str) -> None:
    """Write the values over time as a CSV file with units."""
    header = ",".join(["time [s]", *(f"{name} [{unit}]" if unit else name for name, unit, _ in read)])
    rows = np.stack([ts, *(values for _, _, values in read)], axis=1)
    style = {"delimiter": ",", "comments": "", "fmt": "%.12g", "encoding": "utf-8"}
    model.write(f"{what}.csv", lambda path: np.savetxt(path, rows + 0.0, header=header, **style))


def write_matrices(model: Model, system: "LinearSystem") -> None:
    """Write the matrices of a linear system, and the names of their rows and columns."""
    parts = ("A", "B", "C", "D", "states", "inputs", "outputs")
    numbers: dict[str, Any] = {name: np.asarray(getattr(system, name)) for name in parts}
    model.write("linearize.npz", lambda path: np.savez(path, **numbers))


def save_figure(model: Model, name: str, draw: "Callable[[], Axes]") -> None:
    """Write the figure of `draw()` to a file."""

    def to_file(path: Path) -> None:
        figure = draw().get_figure(root=True)
        assert figure is not None
        figure.savefig(path, dpi=_DPI)
        plt.close(figure)

    model.write(model.picture(name), to_file)


def save_drawing(model: Model, mechanism: Mechanism, state: State, name: str, **options: object) -> None:
    """Write a picture of a mechanism at a state, with the names of its parts; `options` as for `plot.draw`."""
    chosen: dict[str, Any] = {"labels": True, **options}
    save_figure(model, name, lambda: plot.draw(mechanism, state, **chosen))


def point_names(mechanism: Mechanism) -> list[str]:
    """The names of all `Point` sensors, whose paths are drawn."""
    return [sensor.name for sensor in mechanism.sensors if isinstance(sensor, Point)]


def _save_film(solution: "Solution", path: Path) -> None:
    """Write the motion as an animation of fixed duration, with the paths of all `Point` sensors."""
    start, *_, end = solution.ts.tolist()
    speed = (end - start) / _FILM
    plot.save_animation(
        plot.animate(solution, trace=point_names(solution.mechanism), fps=_FPS, speed=speed), path, dpi=_FILM_DPI
    )
    plt.close("all")
