"""Commands that compute many motions: `fit`, `sweep` and `design`."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import lazy_loader
import typer

import jaxmbd as mbd
from jaxmbd.cli import _options as options
from jaxmbd.cli import _values as values
from jaxmbd.cli._model import Model
from jaxmbd.cli._outputs import PICTURES
from jaxmbd.errors import MechanismError, check_known, printable

if TYPE_CHECKING:
    import numpy as np

    from jaxmbd import plot
    from jaxmbd.cli import _data as tables
    from jaxmbd.cli import _report as report
    from jaxmbd.cli import _start as beginning
    from jaxmbd.cli import _study as studies
else:  # `--help` loads no library that computes
    plot = lazy_loader.load("jaxmbd.plot", suppress_warning=True)
    report = lazy_loader.load("jaxmbd.cli._report", suppress_warning=True)
    beginning = lazy_loader.load("jaxmbd.cli._start", suppress_warning=True)
    studies = lazy_loader.load("jaxmbd.cli._study", suppress_warning=True)
    tables = lazy_loader.load("jaxmbd.cli._data", suppress_warning=True)


def integration_of(formulation: str, accuracy: Literal["standard", "high"]) -> "mbd.Integration":
    """Return the integration with the formulation of this name."""
    check_known("formulation", [formulation], options.FORMULATIONS)
    return mbd.Integration(formulation=getattr(mbd, options.FORMULATIONS[formulation])(), accuracy=accuracy)


def fit(
    model: Model,
    data: options.Data,
    parameter: options.Parameters = None,
    estimate: options.Estimate = None,
    sigma: options.Sigma = None,
    starts: options.Starts = 1,
    formulation: options.Formulation = "stabilized",
    accuracy: options.Accuracy = "standard",
) -> None:
    """Estimate numbers of a model from measured motions, and write the fitted model."""
    if not parameter and not estimate:
        raise MechanismError("fit needs a number to estimate, such as --parameter rod.mass=0.5:2.")
    study = studies.study_of(model, None, (), integration_of(formulation, accuracy))
    free = studies.parameters(study.mechanism, values.ranges("--parameter", parameter))
    levels = values.numbers("--sigma", sigma)
    measured = [tables.read_table(path, study.mechanism) for path in data]
    check_known("measured quantity for --sigma", levels, [name for _, values in measured for name in values])
    experiments = [_experiment(study, *table, estimate or (), levels) for table in measured]
    problem = mbd.identification.Problem(study.mechanism, experiments, free, integration=study.integration)
    found = mbd.fit(problem, starts=starts)
    model.console.print(found.table())
    for path, rms in zip(data, found.rms(), strict=True):
        units = found.channel_units()
        text = ", ".join(f"{name} {value:.3g} {units[name]}" for name, value in rms.items())
        model.console.print(printable(f"{path}: RMS of the residuals: {text}"), highlight=False, markup=False)
    model.write("fit.nc", lambda path: mbd.save(found, path))
    model.write("fit.toml", lambda path: mbd.save(found.mechanism, path, state=found.states[0]))
    drawn = [(found, k, path.name) for k, path in enumerate(data)]
    report.save_figure(model, "fit", lambda: plot.fit(drawn)[0, 0])
    model.write("fit.html", lambda path: plot.fit_report(found, path, title=model.name))


def _experiment(
    study: "studies.Study",
    ts: "np.ndarray",
    data: "dict[str, np.ndarray]",
    estimate: Iterable[str],
    levels: dict[str, float],
) -> "mbd.Experiment":
    """The measurements of one table, of a motion from the start of the model."""
    sigma = {name: level for name, level in levels.items() if name in data} if levels else 1.0
    return mbd.Experiment(ts, data, study.fixed, study.speeds, tuple(estimate), sigma, missing=True)


def sweep(
    model: Model,
    over: options.Over = None,
    output: options.Outputs = None,
    until: options.Until = None,
    rows: options.Rows = 201,
    formulation: options.Formulation = "stabilized",
    accuracy: options.Accuracy = "standard",
    overwrite: options.Overwrite = False,
    plot: options.Plot = False,
    minimize: options.Small = None,
    maximize: options.Large = None,
) -> None:
    """Compute the motions of all variants of a model; if it is interrupted, the same command goes on.

    With two or more aims, `--minimize` and `--maximize`, the variants that no other one is better than are a table.
    """
    small, large = minimize or [], maximize or []
    output = list(dict.fromkeys([*(output or []), *small, *large]))
    if not over or not output:
        raise MechanismError("sweep needs numbers and outputs, such as --over rod.mass=0.5:1.5:20 --output O.fy:max.")
    if len({*small, *large}) == 1 or {*small} & {*large}:
        raise MechanismError(
            "sweep: a front needs at least two aims, each in one direction, such as --minimize O.fy:max "
            "--maximize tip.x:max."
        )
    chosen, ts = integration_of(formulation, accuracy), beginning.times(model.example, until, rows)
    grids = values.grids("--over", over)
    space = studies.space_of(model.mechanism, grids)
    study = studies.study_of(model, ts, output, chosen, grids)
    store = model.place("sweep.zarr")
    try:
        found = mbd.sweep(study, space, store=store, overwrite=overwrite)
    except MechanismError as error:
        raise MechanismError(str(error).replace("Pass overwrite=True", "Give --overwrite")) from None
    units = studies.units_of(study, space)
    report.show_variants(model, found, units)
    named = {text: x.name for text, x in zip(output, study.outputs, strict=True)}
    aims = {named[text]: "min" for text in small} | {named[text]: "max" for text in large}
    if aims:
        report.show_front(model, found, units, aims)
    if store is not None:
        model.report(store)
    if plot or model.ending in PICTURES:
        with model.working("drawing"):
            report.save_study(model, found, units, aims)


def design(
    model: Model,
    minimize: options.Minimize = None,
    maximize: options.Maximize = None,
    variable: options.Variables = None,
    at_most: options.AtMost = None,
    at_least: options.AtLeast = None,
    starts: options.Starts = 4,
    until: options.Until = None,
    rows: options.Rows = 201,
    formulation: options.Formulation = "stabilized",
    accuracy: options.Accuracy = "standard",
    plot: options.PlotDesign = False,
) -> None:
    """Choose numbers of a model that make a quantity of its motion as small, or large, as possible; write the model."""
    aim = minimize or maximize
    if not aim or (minimize and maximize):
        raise MechanismError("design needs one aim: --minimize or --maximize, such as --minimize energy:mean.")
    if not variable:
        raise MechanismError("design needs a number that it may choose, such as --variable spring.stiffness=1:100.")
    upper, lower = values.numbers("--at-most", at_most), values.numbers("--at-least", at_least)
    chosen, ts = integration_of(formulation, accuracy), beginning.times(model.example, until, rows)
    study = studies.study_of(model, ts, (aim, *upper, *lower), chosen)
    free = studies.parameters(study.mechanism, values.ranges("--variable", variable))
    objective, *limited = study.outputs
    sides = [*(("upper", value) for value in upper.values()), *(("lower", value) for value in lower.values())]
    ends: dict[studies.Output, dict[str, float]] = {}
    for output, (side, value) in zip(limited, sides, strict=True):
        ends.setdefault(output, {})[side] = value
    limits = {x.name: mbd.Limit(study.function(x), **both, unit=x.unit) for x, both in ends.items()}
    value, sign = study.function(objective), -1 if maximize else 1
    found = mbd.design(lambda m: sign * value(m), free, limits, mechanism=study.mechanism, starts=starts)
    if maximize:
        model.console.print(f"The objective, which is minimised, is -{maximize}.", highlight=False, markup=False)
    model.console.print(str(found), highlight=False, markup=False, soft_wrap=True)
    if not found.is_feasible:
        raise typer.Exit(1)
    state = study.state(found.mechanism, check=True)
    model.write("design.toml", lambda path: mbd.save(found.mechanism, path, state=state))
    report.save_drawing(model, found.mechanism, state, "design")
    if plot:
        names = list(dict.fromkeys(x.channel for x in study.outputs))
        motions = study.motion(study.mechanism)[0], study.motion(found.mechanism)[0]
        with model.working("drawing"):
            report.save_course(model, found, *motions, names)
