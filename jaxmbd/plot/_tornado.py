"""`tornado`: which numbers an output depends on most, as bars in the order of their size."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxmbd.checks import check_instance
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.plot._style import PALE, SMALL, new_figure, plain, tidy
from jaxmbd.plot._variants import legend_below
from jaxmbd.printing import with_unit
from jaxmbd.scene.curves import CURVES
from jaxmbd.scene.pieces import GREY, INK
from jaxmbd.sweeps import LocalSensitivities, SensitivityIndices

_WIDTH, _PER_BAR, _FRAME = 5.6, 0.3, 1.3  # [in]


def tornado(
    indices: SensitivityIndices | LocalSensitivities,
    output: str | None = None,
    *,
    unit: str = "",
    axes: Axes | None = None,
) -> Axes:
    """Draw on which numbers an output depends, as bars, the longest one above.

    Of Sobol' indices the whole bar is `ST`, the share of the variance that a number causes together with the others,
    and the dark part `S1`, what it causes alone. Of Morris' effects the bar is `mu_star`, their mean size, and a dot
    `sigma`, their spread: it is large where effects depend on where one is. Thin lines are 95 % confidence intervals.
    Of derivatives at one point the bars are elasticities, per cent for one per cent, to the left if the output falls.

    **Arguments:**

    - `indices`: of `sensitivity_indices`, or of `local_sensitivities`;
    - `output`: of `local_sensitivities` the output that is drawn; default: the only one;
    - `unit`: that of the output, for the label of Morris' effects;
    - `axes`: the axes to draw in; default: a new figure.

    **Returns:** the axes.

    **Raises:** `MechanismError` for an unknown output, or if there are several and none is named.

        >>> from jaxmbd import plot
        >>> def period(x):
        ...     return {"period": 2 * jnp.pi * jnp.sqrt(x["length"] / x["g"])}
        >>> slopes = mbd.sweeps.local_sensitivities(period, {"length": 1.0, "g": 9.81})
        >>> axes = plot.tornado(slopes)
        >>> [text.get_text() for text in axes.get_yticklabels()]
        ['length', 'g']

    Source: Saltelli et al., *Global Sensitivity Analysis: The Primer* (2008), chapters 3 and 4.
    """
    needed = "indices of sensitivity_indices or local_sensitivities"
    check_instance("indices", indices, (SensitivityIndices, LocalSensitivities), needed)
    check_instance("tornado: unit", unit, str, "a text")
    if isinstance(indices, LocalSensitivities):
        known = list(indices.elasticities)
        if output is None and len(known) > 1:
            raise MechanismError(f"tornado shows one output; choose of {', '.join(map(repr, known))}.")
        check_known("output", [known[0] if output is None else output], known)
        return _local(indices, known[0] if output is None else output, axes)
    check_known("output", [indices.output if output is None else output], [indices.output])
    main = np.asarray(indices.indices["ST" if indices.method == "sobol" else "mu_star"])
    order = np.argsort(-main, kind="stable")
    axes = _frame([indices.names[k] for k in order], axes)
    (_sobol if indices.method == "sobol" else _morris)(axes, indices, order, unit)
    axes.set_xlim(min(0.0, axes.get_xlim()[0]), None)
    return axes


def _frame(names: list[str], axes: Axes | None) -> Axes:
    """Axes with a row for each number."""
    if axes is None:
        axes = new_figure(_WIDTH, _PER_BAR * len(names) + _FRAME).subplots()
    axes.set_yticks(np.arange(len(names)), [plain(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(True, axis="x", color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def _sobol(axes: Axes, indices: SensitivityIndices, order: np.ndarray, unit: str) -> None:
    places = np.arange(len(order))
    thin: dict[str, Any] = {"fmt": "none", "elinewidth": 0.9, "capsize": 2.5, "capthick": 0.9}
    total = axes.barh(places, indices.indices["ST"][order], 0.62, color=CURVES[5], label="ST, with interactions")
    alone = axes.barh(places, indices.indices["S1"][order], 0.34, color=CURVES[0], label="S1, alone")
    axes.errorbar(indices.indices["ST"][order], places - 0.24, xerr=indices.confidence["ST"][order], ecolor=INK, **thin)
    thin |= {"ecolor": INK, "label": "95 % confidence"}
    interval = axes.errorbar(indices.indices["S1"][order], places, xerr=indices.confidence["S1"][order], **thin)
    legend_below(axes, [total, alone, interval], 3)  # pyright: ignore[reportArgumentType]
    tidy(axes, xlabel=f"share of the variance of {indices.output}, {indices.variants} variants")


def _morris(axes: Axes, indices: SensitivityIndices, order: np.ndarray, unit: str) -> None:
    places = np.arange(len(order))
    bars = axes.barh(places, indices.indices["mu_star"][order], 0.6, color=CURVES[5], label="μ*, mean size")
    width = indices.confidence["mu_star"][order]
    thin = axes.errorbar(
        indices.indices["mu_star"][order], places, xerr=width, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2.5,
        label="95 % confidence",
    )  # fmt: skip
    (dots,) = axes.plot(
        indices.indices["sigma"][order], places, "o", color=CURVES[1], markersize=5, label="σ, spread", zorder=3
    )
    legend_below(axes, [bars, dots, thin], 3)  # pyright: ignore[reportArgumentType]
    tidy(axes, xlabel=with_unit(f"effect on {indices.output}", unit) + f", {indices.variants} variants")


def _local(slopes: LocalSensitivities, output: str, axes: Axes | None) -> Axes:
    parts = slopes.elasticities[output]
    if not np.isfinite(list(parts.values())).all():
        raise MechanismError(
            f"tornado: {output!r} is zero at this point, so that it has no elasticities. Choose another point, or draw "
            "the indices of sensitivity_indices."
        )
    names = sorted(parts, key=lambda name: -abs(parts[name]))
    axes = _frame(names, axes)
    sizes = np.asarray([parts[name] for name in names])
    axes.barh(np.arange(len(names)), sizes, 0.6, color=[CURVES[0] if size >= 0 else CURVES[1] for size in sizes])
    axes.axvline(0.0, color=GREY, linewidth=0.8)
    for k, size in enumerate(sizes):
        axes.annotate(
            f"{size:.3g}", (size, k), (4 if size >= 0 else -4, 0), textcoords="offset points", va="center",
            ha="left" if size >= 0 else "right", fontsize=SMALL,
        )  # fmt: skip
    axes.margins(x=0.15)
    tidy(axes, xlabel=f"change of {output} [%] for 1 % of the number")
    return axes
