"""`convergence`: the course of a design's search; `before_after`: what a design changes of a motion."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import lazy_loader
import numpy as np
from matplotlib.axes import Axes

from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.checks import check_instance
from jaxmbd.errors import MechanismError
from jaxmbd.plot._draw import draw
from jaxmbd.plot._style import PALE, SMALL, TEXT, new_figure, plain, tidy
from jaxmbd.plot._variants import legend_below
from jaxmbd.printing import with_unit
from jaxmbd.scene.curves import CURVES, panels_of
from jaxmbd.scene.pieces import GREY, INK

if TYPE_CHECKING:
    from jaxmbd import optimal_design
    from jaxmbd.optimal_design import Design, Start
else:  # two motions beside each other need nothing of designs
    optimal_design = lazy_loader.load("jaxmbd.optimal_design", suppress_warning=True)

_WIDTH, _HEIGHT = 6.0, 2.4  # [in] of a panel
_DRAWING, _CURVE = 2.4, 1.8  # [in] of the heights of a drawing, at most, and of a panel of curves
_SMALL = 1e-8  # violations below it are drawn on a linear axis, which has zero


def convergence(design: "Design", *, width: float | None = None) -> tuple[Axes, ...]:
    """Draw the course of a design from all of its starts: the best objective so far over the steps.

    The start that was chosen is drawn in colour; those without a course were given up before, and the legend counts
    them by their verdicts. If a search has been where a constraint is violated, a second panel has the largest
    violation, in units of the constraint's `scale`.

    **Arguments:** `design`, of `design`; `width` of the figure `[in]`, 6 unless given.

    **Returns:** the axes: of the objective, and of violations if there were any.

    **Raises:** `MechanismError` if no start has a course: an objective that is a vector, without constraints, is
    minimised from all starts at once.

        >>> from jaxmbd import plot
        >>> four_bar = mbd.examples.get("four-bar-with-springs").mechanism
        >>> aim = lambda m: (mbd.equilibrium(m)["O.angle"] - 0.2) ** 2
        >>> found = mbd.design(aim, {"spring.free_length": (0.01, 0.4)}, mechanism=four_bar)  # doctest: +SKIP
        >>> axes = plot.convergence(found)  # doctest: +SKIP
    """
    check_instance("convergence", design, optimal_design.Design, "a Design of design")
    drawn = [start for start in design.starts if start.course]
    if not drawn:
        raise MechanismError(
            "convergence: no start of this design has a course of steps; an objective that is a vector is minimised "
            "from all starts at once. print(design) shows where they ended."
        )
    count = 2 if any(violation > 0 for start in drawn for _, _, violation in start.course) else 1
    figure = new_figure(_WIDTH if width is None else width, _HEIGHT * count + 0.6)
    panels = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    best = design.starts[0]
    for start in reversed(drawn):
        _course(panels, start, start is best)
    what = "peak" if design.active_samples else "objective"
    tidy(panels[0], ylabel=with_unit(f"best {what} so far", design.unit))
    objectives = np.concatenate([[x[1] for x in start.course] for start in drawn])
    if np.isfinite(objectives).all() and objectives.min() > 0 and objectives.max() > 50 * objectives.min():
        panels[0].set_yscale("log")
    if count == 2:
        panels[1].set_yscale("symlog", linthresh=_SMALL, linscale=0.5)
        panels[1].set_ylim(0.0, max(2.0 * panels[1].get_ylim()[1], 100 * _SMALL))
        tidy(panels[1], ylabel="largest violation")
    panels[-1].set_xlabel("step", fontsize=TEXT)
    for axes in panels:
        axes.grid(True, color=PALE, linewidth=0.6)
        axes.set_axisbelow(True)
    _say(panels[0], design, drawn)
    return tuple(panels)


def _course(panels: np.ndarray, start: "Start", is_best: bool) -> None:
    steps, objective, violation = np.asarray(start.course).T
    style = {"color": CURVES[0], "linewidth": 1.8, "zorder": 3} if is_best else {"color": GREY, "linewidth": 0.9}
    kept = np.where(np.isfinite(objective), objective, np.nan)
    panels[0].plot(steps, kept, marker="o", markersize=2.5, gid=f"start {start.number}", **style)
    if len(panels) > 1:
        panels[1].plot(steps, violation, marker="o", markersize=2.5, **style)


def _say(axes: Axes, design: "Design", drawn: "Sequence[Start]") -> None:
    """The legend: the chosen start, the others, and those that were given up."""
    best, handles = design.starts[0], []
    for line in axes.get_lines():
        if line.get_gid() == f"start {best.number}":
            line.set_label(plain(f"start {best.number}, chosen: {best.verdict}"))
            handles.append(line)
    others = [line for line in axes.get_lines() if line not in handles]
    if others:
        others[0].set_label(f"{len(others)} other starts" if len(others) > 1 else "another start")
        handles.append(others[0])
    given_up: dict[str, int] = {}
    for start in design.starts:
        if start not in drawn:
            given_up[start.verdict] = given_up.get(start.verdict, 0) + 1
    for verdict, number in given_up.items():
        (nothing,) = axes.plot([], [], color="none", label=plain(f"{number} without a course: {verdict}"[:90]))
        handles.append(nothing)
    legend_below(axes, handles)


def before_after(
    before: Solution,
    after: Solution,
    names: str | Iterable[str],
    *,
    labels: tuple[str, str] = ("before", "after"),
    width: float | None = None,
) -> tuple[Axes, ...]:
    """Draw two motions of a mechanism beside each other: both at their start to one scale, and quantities over time.

    **Arguments:** the motions `before` and `after`; `names` of quantities of both; `labels`, what they are called;
    `width` of the figure `[in]`, 6 unless given.

    **Returns:** the axes of the two drawings, and those of the quantities, a panel for each unit.

    **Raises:** `MechanismError` for unknown names, and a mechanism in the plane beside one in space.

        >>> from jaxmbd import plot
        >>> pendulum = mbd.examples.get("pendulum")
        >>> ts = np.linspace(0.0, 1.0, 11)
        >>> light = mbd.with_numbers(pendulum.mechanism, {"rod.mass": 0.5})
        >>> motions = [mbd.simulate(m, pendulum.state(), ts) for m in (pendulum.mechanism, light)]
        >>> axes = plot.before_after(*motions, ["O.fx", "O.fy"])
        >>> len(axes)
        3
    """
    for name, motion in (("before", before), ("after", after)):
        check_instance(f"before_after: {name}", motion, Solution, "a Solution of simulate or kinematics")
    spaces = {motion.mechanism.space.dim for motion in (before, after)}
    if len(spaces) > 1:
        raise MechanismError("before_after: both motions must be in the plane, or both in space.")
    wanted = (names,) if isinstance(names, str) else tuple(names)
    found = [panels_of(motion, wanted, {}, "unit") for motion in (before, after)]
    if not found[0]:
        raise MechanismError("before_after needs at least one name of solution.names.")
    figure = new_figure(_WIDTH if width is None else width, _DRAWING + _CURVE * len(found[0]) + 0.4)
    grid = figure.add_gridspec(1 + len(found[0]), 2, height_ratios=[_DRAWING] + [_CURVE] * len(found[0]))
    kind = {"projection": "3d"} if spaces == {3} else {}
    drawings = [figure.add_subplot(grid[0, k], **kind) for k in (0, 1)]
    for axes, motion, label in zip(drawings, (before, after), labels, strict=True):
        draw(motion.mechanism, motion.state(0), axes=axes)
        axes.set_title(plain(label), fontsize=TEXT, loc="left")
    _to_one_scale(drawings)
    if spaces == {2}:  # a flat mechanism leaves no empty space
        (left, right), (low, high) = drawings[0].get_xlim(), drawings[0].get_ylim()
        height = float(np.clip(figure.get_figwidth() / 2.4 * (high - low) / (right - left) + 0.7, 1.0, _DRAWING))
        grid.set_height_ratios([height] + [_CURVE] * len(found[0]))
        figure.set_figheight(height + _CURVE * len(found[0]) + 0.4)
    panels: list[Axes] = []
    for k, (first, second) in enumerate(zip(*found, strict=True)):
        shared = {"sharex": panels[0]} if panels else {}
        axes = figure.add_subplot(grid[1 + k, :], **shared)
        for j, (old, new) in enumerate(zip(first.curves, second.curves, strict=True)):
            colour = CURVES[j % len(CURVES)]
            named = plain(new.label) if len(first.curves) > 1 else ""
            axes.plot(np.asarray(before.ts), old.values, color=colour, linestyle="--", linewidth=1.1, alpha=0.75)
            axes.plot(np.asarray(after.ts), new.values, color=colour, linewidth=1.7, label=named or "_")
        axes.grid(True, color=PALE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.margins(x=0.01)
        if len(first.curves) > 1:
            axes.legend(fontsize=SMALL, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
        tidy(axes, ylabel=first.title)
        panels.append(axes)
    panels[-1].set_xlabel("time [s]", fontsize=TEXT)
    (dashed,) = panels[0].plot([], [], color=INK, linestyle="--", linewidth=1.1, label=plain(labels[0]))
    (solid,) = panels[0].plot([], [], color=INK, linewidth=1.7, label=plain(labels[1]))
    legend_below(panels[0], [dashed, solid], 2)
    return (*drawings, *panels)


def _to_one_scale(drawings: Sequence[Axes]) -> None:
    """Give two drawings the same limits, which have room for both."""
    for name in ("xlim", "ylim", "zlim"):
        if all(name in axes.properties() for axes in drawings):
            ends = np.asarray([getattr(axes, f"get_{name}")() for axes in drawings])
            for axes in drawings:
                getattr(axes, f"set_{name}")(ends[:, 0].min(), ends[:, 1].max())
