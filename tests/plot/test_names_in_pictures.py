"""Names of users are shown as they are: no character of them begins a formula, and none is left out."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.text import Text

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import plot
from jaxmbd.plot._style import new_figure, plain

ROD, HINGE = r"_ro$d^2", r"$\frac{a$"  # the first is left out of legends as it is, the second is no formula
TS = np.linspace(0.0, 1.0, 11)


def pendulum() -> pl.Mechanism:
    rod = pl.Body(ROD, 1.0, 0.1, pose=(0.5, 0.0, 0.0))
    return pl.Mechanism([rod], [pl.Revolute(HINGE, pl.ground.at(), rod.at(-0.5))], [pl.Gravity()])


def shown(artist: Artist) -> list[str]:
    """The texts below an artist, drawn as they are."""
    found = []
    for text in artist.findobj(Text):
        assert isinstance(text, Text)
        drawn, is_formula = text._preprocess_math(text.get_text())  # pyright: ignore[reportAttributeAccessIssue]
        assert not is_formula or r"\mathdefault" in text.get_text()  # numbers of axes
        found.append(str(drawn).lstrip("\N{ZERO WIDTH SPACE}"))
    return found


@pytest.mark.parametrize("text", ["$", "$x$", "a$b$c", r"\$", r"a\$\$b", "_x", "plain", "_$_$"])
def test_text_is_shown_as_it_is(text: str) -> None:
    figure = new_figure(2.0, 2.0)
    axes = figure.subplots()
    axes.plot([0, 1], label=plain(text))
    axes.set_title(plain(text))
    legend = axes.legend()
    assert [label for label in shown(legend) if label] == [text]
    assert text in shown(axes)
    figure.draw_without_rendering()


def test_names_are_shown_as_they_are() -> None:
    """In pictures, with reactions; in curves, mode shapes, responses and matrices, drawn as files are."""
    mechanism = pendulum()
    solution = mbd.simulate(mechanism, mbd.assemble(mechanism, {f"{ROD}.theta": 0.0}), TS)
    force = solution.reaction(HINGE).force[-1]
    system = mbd.linearize(
        mechanism, mbd.equilibrium(mechanism, {f"{HINGE}.angle": -1.0}, stable=True), [f"{HINGE}.angle"], [f"{ROD}.x"]
    )
    wanted = {
        plot.draw(mechanism, solution.state(-1), reactions={HINGE: force}, labels=True): [ROD, HINGE],
        plot.channels(solution, [f"{ROD}.x", f"{ROD}.y"])[0]: [f"{ROD}.x", f"{ROD}.y"],
        plot.channels(solution, [f"{HINGE}.angle"])[0]: [f"{HINGE}.angle [rad]"],
        plot.bode(system)[0]: [f"{ROD}.x / {HINGE}.angle"],
        plot.spy(mechanism, solution.state(0)): [ROD, HINGE],
    }
    for axes, texts in wanted.items():
        figure = axes.get_figure(root=True)
        assert figure is not None
        with mpl.rc_context({"figure.dpi": 40}):
            figure.draw_without_rendering()
        found = shown(figure)
        for text in texts:
            assert any(text in one for one in found), (text, found)
