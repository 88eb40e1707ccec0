"""Functions of named numbers, at the top level of a module so that workers can import them."""

import multiprocessing
import os
import pathlib
from typing import Any

import jax.numpy as jnp

import jaxmbd as mbd
from tests.crank_rocker import four_bar


def period(numbers: dict[str, Any]) -> dict[str, Any]:
    """Of a mathematical pendulum [s], with an array of its multiples."""
    T = 2 * jnp.pi * jnp.sqrt(numbers["length"] / numbers["g"])
    return {"period": T, "multiples": T * jnp.arange(3.0)}


def closure(numbers: dict[str, Any]) -> dict[str, Any]:
    """Of a four-bar linkage with the crank at an angle: the verdict, and the rocker's angle [rad]."""
    linkage = four_bar(jnp.stack([numbers[name] for name in ("crank", "coupler", "rocker", "base")]))
    state = mbd.assemble(linkage, {"crank.theta": numbers["angle"]}, check=False)
    return {"rocker_angle": state["rocker.theta"], "result": state}


def doubled(numbers: dict[str, Any]) -> dict[str, Any]:
    return {"double": 2 * numbers["x"]}


def breaks_once(numbers: dict[str, Any]) -> dict[str, Any]:
    """Ends the first process that traces it; a file remembers that."""
    _end_unless("JAXMBD_TEST_MARK")
    return {"double": 2 * numbers["x"]}


def breaks_always(numbers: dict[str, Any]) -> dict[str, Any]:
    """Ends each worker that traces it."""
    if multiprocessing.parent_process() is not None:
        os._exit(1)
    return {"double": 2 * numbers["x"]}


def raises_in_workers(numbers: dict[str, Any]) -> dict[str, Any]:
    """Raises in workers only."""
    if multiprocessing.parent_process() is not None:
        raise ZeroDivisionError("the gap is closed")
    return {"double": 2 * numbers["x"]}


def _end_unless(variable: str) -> None:
    mark = pathlib.Path(os.environ[variable])
    if multiprocessing.parent_process() is not None and not mark.exists():
        mark.touch()
        os._exit(1)
