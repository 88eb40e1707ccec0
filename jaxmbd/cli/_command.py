"""Wraps an analysis as a command, with the options of a model and errors printed as one red line."""

import os
from collections.abc import Callable
from inspect import signature
from typing import Any

import typer
from rich.console import Console

from jaxmbd.cli._model import load
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
