"""The page of a fit: it stands alone, and shows numbers, warnings and pictures."""

import re
from pathlib import Path

import numpy as np

import jaxmbd as mbd
from jaxmbd import plot
from jaxmbd.identification import Parameter, Positive, predict
from tests.identification.swings import plain_pendulum

TS = np.linspace(0.0, 2.0, 41)


def test_a_report_stands_alone(tmp_path: Path) -> None:
    mechanism = plain_pendulum(1.3, 0.2)
    draws = np.random.default_rng(0)
    experiments = []
    for start in (1.0, 1.5):
        motion = mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": start}), TS)
        angle = np.asarray(motion["O.angle"])
        noisy = {"O.angle": angle + 1e-3 * draws.normal(size=41)}
        noisy["bar.x"] = np.asarray(motion["bar.x"]) + 1e-3 * draws.normal(size=41)
        experiments.append(mbd.Experiment(TS, noisy, start={"O.angle": start}, sigma=1e-3))
    free = {
        "mass": Parameter(lambda m: m["bar"].mass, within=Positive(), unit="kg"),
        "c <1>": Parameter(lambda m: m["friction"].viscous, within=Positive(), unit="N m s"),
    }
    result = mbd.fit(plain_pendulum(1.2, 0.1), experiments[0], free, progress=False)
    path = plot.fit_report(result, tmp_path / "fit.html", title="A & B", unseen=predict(result, experiments[1]))
    page = path.read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert "<h1>A &amp; B</h1>" in page
    assert "c &lt;1&gt;" in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=.(?!data:|#)", page)
    for word in ("AIC", "independent", "95 % interval", "kg", "Experiments that were not used"):
        assert word in page
    assert f"{float(result.parameters['mass']):.6g}" in page
    # It fits all screens, in light and dark: colours of pictures are those of the page.
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "prefers-color-scheme: dark" in page
    pictures = page.split("<svg")[1:]
    assert all(f"stroke: var(--{colour})" in picture for picture in pictures[1:] for colour in ("ink", "grey", "pale"))
    assert "stroke: var(--ink)" in pictures[0]
    # Text has the colour of the page, but for numbers on colours.
    assert re.search(r"svg \{[^}]*fill: var\(--ink\)", page)
    assert set(re.findall(r"<text [^>]*fill: ([^;\"]+)", "".join(pictures))) == {"#ffffff", "#010101"}
    assert set(re.findall("#[0-9a-f]{6}", "".join(pictures))) == {"#ffffff", "#010101", "#0072b2"}  # of a curve
    for unit in ("rad", "m"):
        assert f"[{unit}]</text>" in page
        assert f"model − measured [10⁻³ {unit}]</text>" in page
    figure = plot.fit(result)
    assert figure.shape == (4, 1)
    assert [panel.get_ylabel() for panel in figure[::2, 0]] == ["[rad]", "[m]"]
    angles, places = ({line.get_label() for line in panel.get_lines()} for panel in figure[::2, 0])
    assert angles == {"O.angle, measured", "O.angle, model"}
    assert places == {"bar.x, measured", "bar.x, model"}
    residual = figure[3, 0].get_lines()[0].get_ydata()
    np.testing.assert_allclose(residual, 1e3 * result.residuals[0]["bar.x"])
    low, high = figure[2, 0].get_ylim()  # metres are not drawn beside radians, whose curve spans more
    assert np.ptp(result.experiments[0].data["bar.x"]) < high - low < 1.2 * np.ptp(result.experiments[0].data["bar.x"])
