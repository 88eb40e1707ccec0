"""The `jaxmbd` command."""

import runpy
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.console import Console

from jaxmbd import AssemblyError, MechanismError, __version__
from jaxmbd import demo as job
from jaxmbd import describe as report_of
from jaxmbd.planar import Mechanism

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Multibody dynamics of mechanisms.")


@app.callback()
def _double_precision() -> None:
    """Multibody dynamics of mechanisms, differentiable from end to end."""
    jax.config.update("jax_enable_x64", True)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the animation.")] = Path("out/demo"),
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Identify a real double pendulum from its measured swings, and predict swings it has not seen."""
    job.run(out, progress=not quiet, console=Console())


@app.command()
def describe(
    model: Annotated[Path, typer.Argument(help="A Python file that makes a Mechanism.")],
    name: Annotated[str, typer.Option(help="The variable that holds it, where there are several.")] = "",
    coordinates: Annotated[str, typer.Option(help="absolute or joint; as the file has it unless given.")] = "",
    cut: Annotated[
        list[str] | None, typer.Option(help="A joint to cut, with joint coordinates; may be repeated.")
    ] = None,
) -> None:
    """Report a mechanism's degrees of freedom, coordinates, constraints and variables."""
    try:
        mechanism = _mechanism_in(model, name)
        if coordinates or cut:
            mechanism = mechanism.described(coordinates or "joint", cut or ())
        print(report_of(mechanism))
    except (MechanismError, AssemblyError) as error:
        Console(stderr=True).print(f"jaxmbd: {error}", style="red", highlight=False, markup=False)
        raise typer.Exit(1) from None


def _mechanism_in(model: Path, name: str) -> Mechanism:
    """The mechanism that a Python file makes."""
    if not model.is_file():
        raise MechanismError(f"There is no file {str(model)!r}.")
    found = {key: value for key, value in runpy.run_path(str(model)).items() if isinstance(value, Mechanism)}
    if not found:
        raise MechanismError(f"{str(model)!r} makes no Mechanism at its top level; assign one to a variable.")
    if name and name not in found:
        raise MechanismError(f"{str(model)!r} makes no Mechanism {name!r}; it makes {', '.join(found)}.")
    if not name and len({id(value) for value in found.values()}) > 1:
        raise MechanismError(f"{str(model)!r} makes several mechanisms; choose with --name: {', '.join(found)}.")
    return found[name] if name else next(iter(found.values()))


@app.command()
def version() -> None:
    """Print the versions of jaxmbd, of JAX, and the device in use."""
    print(f"jaxmbd {__version__}, jax {jax.__version__}, {jax.devices()[0].device_kind}")
