"""The pictures of docs/how-to/sweep-over-variants.md: `python docs/images/studies.py`, two minutes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from PIL import Image

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import plot
from jaxmbd.sweeps import sensitivity_indices, sobol

HERE = Path(__file__).parent
TIMES = np.linspace(0.0, 1.0, 49)  # of a turn of the crank [s]
UNITS = dict.fromkeys(("crank", "coupler", "rocker", "base"), "m") | {"angle": "rad"}
OUTPUTS = {"swing": "rad", "transmission": "rad"}
RANGES = {"crank": (0.1, 0.5), "coupler": (0.4, 1.2), "rocker": (0.4, 1.0), "base": (0.6, 1.2)}


def linkage(x: Any) -> pl.Mechanism:
    """The four-bar linkage of the page."""
    crank = pl.Body("crank", 0.3, 0.002, (0.1, 0.1, 0.9))
    coupler = pl.Body("coupler", 0.8, 0.04, (0.5, 0.4, 0.4))
    rocker = pl.Body("rocker", 0.6, 0.02, (0.9, 0.3, 1.5))
    a, b, c = x["crank"] / 2, x["coupler"] / 2, x["rocker"] / 2
    joints = [
        pl.Revolute("O", pl.ground.at(), crank.at(-a)),
        pl.Revolute("A", crank.at(a), coupler.at(-b)),
        pl.Revolute("B", coupler.at(b), rocker.at(c)),
        pl.Revolute("C", pl.ground.at(x["base"]), rocker.at(-c)),
    ]
    return pl.Mechanism([crank, coupler, rocker], joints)


def closed(x: Any) -> dict[str, Any]:
    """The rocker's angle at an angle of the crank."""
    state = mbd.assemble(linkage(x), {"crank.theta": x["angle"]}, check=False)
    return {"rocker_angle": state["rocker.theta"], "result": state}


def turned(x: Any) -> dict[str, Any]:
    """How far the rocker swings in a turn of the crank, and the least transmission angle."""
    driven = linkage(x).with_parts([pl.Driver("motor", "O.angle", lambda t: 2 * jnp.pi * t)])
    motion = mbd.kinematics(driven, TIMES, mbd.assemble(driven, check=False), throw=False)
    rocker, coupler = motion["rocker.theta"], motion["coupler.theta"]
    transmission = jnp.arcsin(jnp.abs(jnp.sin(rocker - coupler)))
    return {"swing": jnp.max(rocker) - jnp.min(rocker), "transmission": jnp.min(transmission), "result": motion}


def save(axes: Axes, name: str) -> None:
    """Write a picture beside this file."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.savefig(HERE / name, dpi=100)
    plt.close("all")
    with Image.open(HERE / name) as picture:  # a few colours make small files
        picture.convert("RGB").quantize(256, kmeans=1).save(HERE / name, optimize=True)


if __name__ == "__main__":
    matplotlib.use("Agg")
    jax.config.update("jax_enable_x64", True)
    space = {"crank": np.linspace(0.2, 0.7, 41), "angle": np.linspace(0, 2 * np.pi, 49)}
    others = {"coupler": 0.8, "rocker": 0.6, "base": 0.9}
    units = UNITS | {"rocker_angle": "rad"}
    save(plot.heat_map(mbd.sweep(closed, space | others), "rocker_angle", units=units), "sweep_heat_map.png")
    found = mbd.sweep(turned, sobol(RANGES, 512, seed=0))
    units = {name: UNITS[name] for name in RANGES} | OUTPUTS
    save(plot.parallel(found, colour="transmission", units=units), "sweep_parallel.png")
    save(plot.histogram(found, units=units)["swing"], "sweep_histogram.png")
    aims: Any = {"swing": "max", "transmission": "max"}
    save(plot.pareto(found, aims, units=units)["swing", "transmission"], "sweep_front.png")
    near = {"crank": (0.2, 0.25), "coupler": (0.75, 0.85), "rocker": (0.55, 0.65), "base": (0.85, 0.95)}
    indices = sensitivity_indices(turned, near, "swing", count=128, seed=0)
    print(indices)
    save(plot.tornado(indices), "sweep_tornado.png")
