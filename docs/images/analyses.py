"""The pictures of the pages in docs/, but for benchmarks and demo: `python docs/images/analyses.py`, ten minutes."""

import math
import time
from pathlib import Path

import jax
import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import demo, identification, plot
from jaxmbd import planar as pl

HERE = Path(__file__).parent
BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#808080"
LEAST = 1e-17  # of a violation on a logarithmic axis: zero has no place there


def save(figure: Figure, name: str) -> None:
    """Write a picture beside this file."""
    figure.savefig(HERE / name, dpi=110)
    plt.close(figure)


def suspension() -> mbd.LinearSystem:
    """The car's corner about its equilibrium, with a raised road as its input."""
    mechanism = mbd.examples.get("suspension").mechanism
    rest = mbd.equilibrium(mechanism, stable=True)
    road = ("road", lambda m: m["tyre"].free_length)  # a longer tyre pushes as a raised road does
    return mbd.linearize(mechanism, rest, [road], ["chassis.y", "wheel.y"])


def draw_modes(system: mbd.LinearSystem) -> None:
    """The slowest mode that vibrates, and the fastest."""
    figure, axes = plt.subplots(1, 2, figsize=(8.0, 4.2), layout="constrained")
    rigid = np.asarray(system.modes().rigid)
    for panel, k in zip(axes, (int(rigid.argmin()), len(rigid) - 1), strict=True):
        plot.modes(system, k, axes=panel)
    save(figure, "modes.png")


def draw_bode(system: mbd.LinearSystem) -> None:
    """How chassis and wheel follow the road."""
    figure, axes = plt.subplots(2, 1, figsize=(7.0, 4.6), sharex=True, layout="constrained")
    plot.bode(system, frequencies=np.geomspace(0.1, 100.0, 600), axes=axes)
    save(figure, "bode.png")


def draw_path() -> None:
    """A shallow truss of two springs under a load that grows downwards."""
    apex = pl.Body("apex", 1.0, 1.0, (0.0, 0.4, math.pi / 2))
    slide = pl.Prismatic("slide", pl.ground.at(0, 0, math.pi / 2), apex.at())
    length = math.hypot(1.0, 0.4)
    springs = [pl.SpringDamper(f"spring{x:+}", pl.ground.at(x, 0), apex.at(), 100.0, length) for x in (-1, 1)]
    truss = pl.Mechanism([apex], [slide], [*springs, pl.JointForce("load", "slide.displacement", 0.0)])
    path = mbd.equilibrium_path(truss, lambda m: m["load"].force, (0.0, -12.0), points=60)
    load, height = -np.asarray(path.values), np.asarray(path["slide.displacement"])
    stable = np.asarray(path.stable)
    figure, axes = plt.subplots(figsize=(7.0, 3.8), layout="constrained")
    axes.plot(load, height, color=GREY, linewidth=1.0)
    axes.plot(load[stable], height[stable], "o", color=BLUE, markersize=4, label="stable")
    axes.plot(load[~stable], height[~stable], "o", color=RED, markersize=4, markerfacecolor="white", label="unstable")
    for k in np.flatnonzero(np.asarray(path.limits)):
        place = (load[k] + load[k + 1]) / 2, (height[k] + height[k + 1]) / 2
        axes.annotate("limit point", place, (12 if load[k] > 0 else -12, 0), textcoords="offset points",
                      ha="left" if load[k] > 0 else "right", va="center", fontsize=9)  # fmt: skip
    axes.set(xlabel="load downwards [N]", ylabel="height of the apex [m]", xlim=(-6, 13))
    axes.legend(frameon=False)
    save(figure, "snap_through.png")


def draw_violation() -> None:
    """A pendulum in absolute coordinates for 1,000 s, by four formulations, all at rtol 1e-7."""
    rod = pl.Body("rod", mass=1.0, inertia=1 / 12, pose=(0.5, 0.0, 0.0))
    pendulum = pl.Mechanism([rod], [pl.Revolute("O", pl.ground.at(), rod.at(-0.5, 0.0))], [pl.Gravity(9.81)])
    state, ts = mbd.assemble(pendulum), np.linspace(0.0, 1000.0, 401)
    formulations = {
        "Augmented(0, 0): not stabilised": (mbd.Augmented(0.0, 0.0), GREY),
        "Augmented(10, 10): Baumgarte": (mbd.Augmented(), RED),
        "Stabilized()": (mbd.Stabilized(), GREEN),
        "Projection()": (mbd.Projection(), BLUE),
    }
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.8), sharey=True, layout="constrained")
    for label, (formulation, colour) in formulations.items():
        found = mbd.simulate(pendulum, state, ts, formulation=formulation, rtol=1e-7, atol=1e-8).violation()
        for panel, what in zip(panels, ("position", "velocity"), strict=True):
            size = np.abs(np.asarray(getattr(found, what))).max(axis=1)
            print(f"{label}, {what}: at most {size.max():.1e}, at the end {size[-1]:.1e}")
            so_far = np.maximum.accumulate(np.maximum(size, LEAST))
            panel.semilogy(ts, so_far, color=colour, linewidth=1.5, label=label)
    for panel, title in zip(panels, ("largest |Φ| so far [m]", "largest |dΦ/dt| so far [m/s]"), strict=True):
        panel.set(title=title, xlabel="time [s]", ylim=(LEAST, 1.0))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    save(figure, "violation.png")


def draw_posterior() -> None:
    """The parameters of the demo's double pendulum."""
    trained, _ = demo.identify()
    begin = time.perf_counter()
    samples = identification.sample_posterior(trained, draws=500, warmup=200)
    parameters = [name for name in samples.samples if name in trained.parameters]
    least = min(samples.effective.values())
    print(f"{samples}\n{time.perf_counter() - begin:.0f} s; at least {least:.0f} effective samples")
    axes = plot.posterior(samples, parameters)
    save(axes[parameters[0]].figure, "posterior.png")  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    matplotlib.use("Agg")
    jax.config.update("jax_enable_x64", True)
    system = suspension()
    print(system)
    draw_modes(system)
    draw_bode(system)
    draw_path()
    draw_violation()
    draw_posterior()
