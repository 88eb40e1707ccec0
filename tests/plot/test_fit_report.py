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
        angle = np.asarray(mbd.simulate(mechanism, mbd.assemble(mechanism, {"O.angle": start}), TS)["O.angle"])
        noisy = {"O.angle": angle + 1e-3 * draws.normal(size=41)}
        experiments.append(mbd.Experiment(TS, noisy, start={"O.angle": start}, sigma=1e-3))
    free = {
        "mass": Parameter(lambda m: m["bar"].mass, within=Positive(), unit="kg"),
        "c <1>": Parameter(lambda m: m["friction"].viscous, within=Positive(), unit="N m s"),
    }
    result = mbd.fit(plain_pendulum(1.2, 0.1), experiments[0], free, progress=False)
    path = plot.fit_report(result, tmp_path / "fit.html", title="A & B", unseen=predict(result, experiments[1]))
    page = path.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 3
    assert "<h1>A &amp; B</h1>" in page
    assert "c &lt;1&gt;" in page
    assert "<script" not in page
    assert not re.search(r"(src|href)=.(?!data:)", page)
    for word in ("AIC", "independent", "95 % interval", "kg", "Experiments that were not used"):
        assert word in page
    assert f"{float(result.parameters['mass']):.6g}" in page
