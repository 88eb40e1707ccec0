"""The command-line application with all its commands."""

import os
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import jax
import platformdirs
import typer
from rich.console import Console

from jaxmbd import __version__
from jaxmbd import demo as job
from jaxmbd import examples as library
from jaxmbd.cli._analyses import ANALYSES
from jaxmbd.cli._model import load
from jaxmbd.cli._report import show_table
from jaxmbd.compile.cache.files import limit_size, make_own_folder, size_limit
from jaxmbd.errors import AssemblyError, MechanismError, SolveError

# A command runs each computation once: time spent on compiler optimisations is rarely recovered.
_QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def analysis(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a function of a `Model` and of options as a command, with the options of `load` and then its own."""
    shared, own = (list(signature(f).parameters.values()) for f in (load, function))

    def command(**options: Any) -> None:
        os.environ.setdefault("XLA_FLAGS", _QUICK)
        try:
            function(load(**{p.name: options.pop(p.name) for p in shared}), **options)
        except (MechanismError, AssemblyError, SolveError) as error:
            console = Console(stderr=True)
            console.print(f"jaxmbd: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
            raise typer.Exit(1) from None

    parameters: Any = [*shared, *own[1:]]
    wrapped: Any = command
    wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
    wrapped.__signature__ = signature(function).replace(parameters=parameters)
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


_SECONDS = 0.3  # [s] compilations that are faster are not stored


def keep_compiled() -> None:
    """Enable JAX's compilation cache, unless the user has chosen a folder (`JAX_COMPILATION_CACHE_DIR`) or disabled it
    (`JAX_ENABLE_COMPILATION_CACHE=false`, `JAXMBD_CACHE_MIB=0`).

    Files of the cache are executed, so only the user may be able to write to the folder. If all files, including those
    of JAX, exceed `JAXMBD_CACHE_MIB` together, the least recently used ones are removed.
    """
    if not jax.config.jax_compilation_cache_dir:  # pyright: ignore
        folder = Path(platformdirs.user_cache_dir("jaxmbd")) / "compiled"
        if size_limit() <= 0 or not make_own_folder(folder):
            return
        limit_size(folder, "*", size_limit())
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _SECONDS)


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
