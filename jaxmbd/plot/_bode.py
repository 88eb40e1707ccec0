"""`bode`: the frequency response of a linearised mechanism."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from jaxmbd.analyses.linearization.linear_system import LinearSystem
from jaxmbd.arrays import Numbers
from jaxmbd.checks import check_instance
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.plot._style import PALE, SMALL, TEXT, new_figure, plain, tidy
from jaxmbd.scene.curves import CURVES
from jaxmbd.scene.pieces import GREY

_WIDTH, _HEIGHT = 6.4, 4.6  # [in]
_BEYOND = 10.0  # the factor by which the frequency range exceeds the slowest and the fastest mode
_POINTS = 600


def bode(
    system: LinearSystem,
    outputs: str | Sequence[str] | None = None,
    inputs: str | Sequence[str] | None = None,
    *,
    frequencies: Numbers | None = None,
    axes: Sequence[Axes] | None = None,
) -> tuple[Axes, Axes]:
    """Plot frequency responses: gain and phase from inputs to outputs over the frequency.

    **Arguments:** `outputs`, `inputs`, names of channels of the system; default: all; `frequencies` `[Hz]`; default:
    from a tenth of the slowest to ten times the fastest mode, closer together at resonances; `axes`, one for the gain
    and one for the phase.

    **Returns:** these axes.

    **Raises:** `MechanismError` for names that the system does not have.

        >>> from jaxmbd import plot
        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> hanging = mbd.equilibrium(pendulum, {"O.angle": -1.0}, stable=True)
        >>> system = mbd.linearize(pendulum, hanging, inputs=["O.angle"], outputs=["rod.x"])
        >>> gain, phase = plot.bode(system)
    """
    check_instance("system", system, LinearSystem, "a LinearSystem, linearize(mechanism, state, inputs, outputs)")
    rows, columns = (
        _indices("output", outputs, system.outputs),
        _indices("input", inputs, system.inputs),
    )
    hertz = _frequencies(system) if frequencies is None else np.atleast_1d(np.asarray(frequencies, dtype=float))
    gains = np.asarray(system.response(2 * np.pi * hertz))
    upper, lower = new_figure(_WIDTH, _HEIGHT).subplots(2, 1, sharex=True) if axes is None else axes
    pairs, units = [(i, j) for i in rows for j in columns], set()
    for line, (i, j) in enumerate(pairs):
        name, style = (
            plain(f"{system.outputs[i]} / {system.inputs[j]}"),
            {"color": CURVES[line % len(CURVES)], "linewidth": 1.5},
        )
        gain = gains[:, i, j]
        upper.plot(hertz, np.where(gain == 0, np.nan, np.abs(gain)), label=name, **style)
        lower.plot(hertz, np.degrees(np.unwrap(np.angle(gain))), label=name, **style)
        units.add((system.output_units[i], system.input_units[j]))
    _finish(upper, lower, units)
    if len(pairs) > 1:
        upper.legend(fontsize=SMALL, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    else:
        upper.set_title(str(upper.lines[-1].get_label()), fontsize=TEXT, loc="left")
    return upper, lower


def _finish(upper: Axes, lower: Axes, units: set[tuple[str, str]]) -> None:
    pair = next(iter(units)) if len(units) == 1 else ()
    unit = " / ".join(f"({u})" if " " in u or "/" in u else u for u in pair if u)
    for ax, label in ((upper, f"gain [{unit}]" if unit else "gain"), (lower, "phase [°]")):
        ax.set_xscale("log")
        ax.grid(True, color=PALE, linewidth=0.6)
        ax.set_axisbelow(True)
        tidy(ax, ylabel=label)
    upper.set_yscale("log")
    low, high = lower.get_ylim()
    lower.set_yticks(np.arange(90 * np.floor(low / 90), high + 90, 90))
    lower.set_ylim(low, high)
    lower.axhline(0.0, color=GREY, linewidth=0.6)
    lower.set_xlabel("frequency [Hz]", fontsize=TEXT)


def _indices(kind: str, names: str | Sequence[str] | None, known: Sequence[str]) -> list[int]:
    wanted = known if names is None else (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if name not in known:
            raise unknown(kind, name, known)
    if not wanted:
        raise MechanismError(f"bode needs a system with an {kind}: linearize(mechanism, state, inputs, outputs).")
    return [known.index(name) for name in wanted]


def _frequencies(system: LinearSystem) -> np.ndarray:
    """Logarithmically spaced frequencies [Hz], with additional points around each resonance according to its width."""
    modes = system.modes()
    values = np.asarray(modes.eigenvalues, dtype=complex)[~np.asarray(modes.rigid)]
    if not len(values):
        return np.geomspace(0.01, 100.0, _POINTS)
    size = np.abs(values) / (2 * np.pi)
    even = np.geomspace(size.min() / _BEYOND, size.max() * _BEYOND, _POINTS)
    width = np.maximum(np.abs(np.real(values)) / (2 * np.pi), 1e-4 * size)[:, None] * np.tan(np.linspace(-1.5, 1.5, 40))
    near = (np.abs(np.imag(values))[:, None] / (2 * np.pi) + width).reshape(-1)
    return np.unique(np.concatenate([even, near[(near > even[0]) & (near < even[-1])]]))
