"""The command-line application with all its commands."""

from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.console import Console

from jaxmbd import __version__
from jaxmbd import demo as job
from jaxmbd import examples as library
from jaxmbd.cli._analyses import ANALYSES
from jaxmbd.cli._cache import keep_compiled
from jaxmbd.cli._command import analysis
from jaxmbd.cli._report import show_table

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Multibody dynamics of mechanisms.")


@app.callback()
def _configure() -> None:
    """Multibody dynamics of mechanisms, differentiable from end to end."""
    jax.config.update("jax_enable_x64", True)
    keep_compiled()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the animation.")] = Path("out/demo"),
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Identify a real double pendulum from its measured swings, and predict swings it has not seen."""
    job.run(out, progress=not quiet, console=Console())


@app.command()
def examples() -> None:
    """List the example mechanisms."""
    entries = library.entries().items()
    rows = ((name, e.description + (f" ({e.source})" if e.source else "")) for name, e in entries)
    show_table(Console(), "jaxmbd simulate NAME, or another analysis, of:", ("name", "what it is"), (), rows)


for function in ANALYSES:
    app.command()(analysis(function))


@app.command()
def version() -> None:
    """Print the versions of jaxmbd, of JAX, and the device in use."""
    print(f"jaxmbd {__version__}, jax {jax.__version__}, {jax.devices()[0].device_kind}")
