"""The main job: the double pendulum is identified to the accuracy that is claimed for it."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from jaxmbd import demo

AIM = (0.8e-3, 1.3e-3)  # rad, median over the segments of the RMS of each angle


@pytest.mark.slow
def test_double_pendulum_is_identified_and_predicts_unseen_swings(tmp_path: Path) -> None:
    console = Console(record=True, width=120)
    trained, unseen = demo.run(tmp_path, progress=False, console=console)
    for result in (trained, unseen):
        assert all(rms <= aim for rms, aim in zip(demo.median_rms(result), AIM, strict=True))
    for name in ("a1", "I1", "I2", "L1", "c1", "c2", "d1", "drag"):
        assert float(trained.parameters[name]) > 0
    assert abs(float(trained.parameters["L1"]) - 0.1727) < 1e-3  # the arm's design length [m]
    text = console.export_text()
    for words in ("standard error", "published", "unseen, median", "θ1 [mrad]", "kept"):
        assert words in text
    with Image.open(tmp_path / "double_pendulum.gif") as movie:
        assert getattr(movie, "n_frames", 1) > 20
    assert (tmp_path / "double_pendulum.png").stat().st_size > 20_000
    measured = demo.measured_motion(unseen.experiments[0], trained)
    for name in demo.ANGLES:
        np.testing.assert_allclose(measured[name], unseen.experiments[0].data[name], atol=2e-3)
    page = (tmp_path / "double_pendulum.html").read_text(encoding="utf-8")
    assert all(f'"name":"{name}"' in page for name in ("predicted", "measured"))


def test_training_and_unseen_segments_do_not_overlap() -> None:
    assert sorted((*demo.TRAINING, *demo.UNSEEN)) == list(range(26))


def test_combinations_do_not_see_a_common_factor() -> None:
    """Ratios that swings show stay the same where the equations of motion do."""
    p = dict(demo.PUBLISHED)
    found = demo.combinations(p)
    assert found["G2 / B"] == pytest.approx(demo.G / p["L1"])
    np.testing.assert_allclose(found["A / B"], 2.035, atol=1e-3)
