"""Commands that write or check files: `new`, `check`, `draw`, `equations` and `convert`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import lazy_loader
from rich.console import Console

import jaxmbd as mbd
from jaxmbd.cli import _options as options
from jaxmbd.cli._model import Model
from jaxmbd.cli._outputs import check_new, check_out
from jaxmbd.cli._text import wrapped
from jaxmbd.errors import AssemblyError, MechanismError, printable

if TYPE_CHECKING:
    from jaxmbd.cli import _check as checks
    from jaxmbd.cli import _equations as written
    from jaxmbd.cli import _report as report
else:  # `--help` loads no library that computes
    checks = lazy_loader.load("jaxmbd.cli._check", suppress_warning=True)
    written = lazy_loader.load("jaxmbd.cli._equations", suppress_warning=True)
    report = lazy_loader.load("jaxmbd.cli._report", suppress_warning=True)


def new(path: options.Target, spatial: options.Spatial = False, overwrite: options.Replace = False) -> None:
    """Write a small model file to start from, in the plane or in space."""
    if path.suffix != ".toml":
        raise MechanismError(f"A model file ends with .toml, such as 'swing.toml', got {str(path)!r}.")
    check_new(path, overwrite)
    template = Path(__file__).parent / "models" / f"{'spatial' if spatial else 'planar'}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(template.read_text(encoding="utf-8"), encoding="utf-8")
    steps = [
        (f"jaxmbd check {path}", "after each change: is it a mechanism?"),
        (f"jaxmbd draw {path} --show", "a picture"),
        (f"jaxmbd simulate {path} --until 5", "the motion: a table, curves, an animation"),
        (f"jaxmbd show {path} --until 5", "the same in the browser"),
    ]
    width = max(len(command) for command, _ in steps)
    lines = "\n".join(f"  {command.ljust(width)}   {what}" for command, what in steps)
    Console().print(printable(f"wrote {path}: change it, then\n{lines}"), highlight=False, markup=False, soft_wrap=True)


def check(model: Model) -> None:
    """Say whether a model can be used, how it moves, and what in it is doubtful; the exit status is 0 if it can."""
    try:
        state = model.assembled()
    except (AssemblyError, MechanismError) as error:
        raise type(error)(checks.located(str(error), model.mechanism, model.path)) from None
    print(wrapped(model.console, checks.summary(model.mechanism, state, model.path)))


def draw(
    model: Model,
    labels: options.Labels = True,
    elev: options.Elevation = None,
    azim: options.Azimuth = None,
) -> None:
    """Draw the mechanism at the start."""
    report.save_drawing(model, model.mechanism, model.assembled(), "draw", labels=labels, elev=elev, azim=azim)


def equations(
    model: Model,
    format: options.Language = "text",
    piece: options.Piece = None,
    symbol: options.Symbol = None,
    out: options.Text = None,
) -> None:
    """Write the equations of motion: numbers at the start, formulas, or source text."""
    mechanism, ending = model.mechanism, written.ENDINGS[format]
    check_out(out, (ending,))
    if format == "text" and symbol:
        raise MechanismError(
            "--symbol is for formulas and source text: give --format latex, sympy, numpy or c as well."
        )
    parameters = written.parameters(mechanism, symbol or ())
    if format == "text":
        text = written.numbers(mechanism, model.assembled(), piece or ())
    else:
        with model.working("writing formulas"):
            text = written.formulas(mechanism, parameters, format, piece or ())
    if out is None:
        print(text)
    else:
        model.to(out).write(f"equations{ending}", lambda path: path.write_text(f"{text}\n", encoding="utf-8"))


def convert(
    model: Model,
    to: options.Target,
    push: options.Push = None,
    parameter: options.Kept = None,
    fmi: options.Fmi = "3.0",
    step: options.Step = None,
    overwrite: options.Replace = False,
) -> None:
    """Write the mechanism and its state at the start as a model file, text that can be read and changed, as an FMU, as
    C, or for other programs as MJCF or URDF.

    Of an FMU and of C the quantities to --read are outputs. MJCF and URDF need --coordinates joint.
    """
    check_new(to, overwrite)
    if to.suffix in (".fmu", ".c"):
        given: Any = {"inputs": push or (), "outputs": model.asked, "parameters": parameter or (), "step": step}
        state = model.assembled()
        with model.working("writing equations as C"):
            if to.suffix == ".c":
                mbd.export_c(model.mechanism, to, state, **given)
            else:
                mbd.export_fmu(model.mechanism, to, state, **given, version=fmi)
    else:
        for option, value in {
            "--push": push, "--parameter": parameter, "--read": model.asked, "--step": step
        }.items():  # fmt: skip
            if value:
                raise MechanismError(f"{option} is for an FMU or C, files that end with .fmu or .c, got {str(to)!r}.")
        if to.suffix in (".xml", ".urdf"):
            _write_tree(model, to)
        else:
            mbd.save(model.mechanism, to, state=model.assembled())
    model.report(to)


def _write_tree(model: Model, to: Path) -> None:
    """Write an MJCF or URDF file, and show what became something else."""
    if model.mechanism.coordinates != "joint":
        raise MechanismError(f"{to.suffix} files hold a tree of joints: give --coordinates joint as well.")
    if to.suffix == ".xml":
        remarks = mbd.io.write_mjcf(model.mechanism, to, model.assembled())
    else:
        remarks = mbd.io.write_urdf(model.mechanism, to)
    for remark in remarks:
        model.console.print(printable(str(remark)), style="dim", highlight=False, soft_wrap=True)
