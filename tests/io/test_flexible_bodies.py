"""Mechanisms with beams in model files, results and pictures."""

from pathlib import Path

import jax
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import io
from jaxmbd.errors import MechanismError
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.parts import pieces_of
from tests.flexible_bodies import crank, screws

BENT = {"O.angle": 0.6, "rod.deflection": 0.02, "rod.slope": 0.1, "rod.bending1": 0.005}


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_model_file_and_a_result_keep_all_numbers(coordinates: str, tmp_path: Path) -> None:
    mechanism = crank(coordinates)
    mbd.save(mechanism, tmp_path / "model.toml")
    read = mbd.load(tmp_path / "model.toml")
    assert jax.tree.structure(read) == jax.tree.structure(mechanism)
    for a, b in zip(jax.tree.leaves(read), jax.tree.leaves(mechanism), strict=True):
        np.testing.assert_array_equal(a, b)
    motion = mbd.simulate(mechanism, mbd.assemble(mechanism, BENT), np.linspace(0.0, 0.01, 3))
    mbd.save(motion, tmp_path / "motion.nc")
    np.testing.assert_array_equal(mbd.load(tmp_path / "motion.nc")["rod.slope_rate"], motion["rod.slope_rate"])


@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_a_picture_shows_the_bent_beam(coordinates: str) -> None:
    """The polyline goes through the beam's middle, where the mechanism's sensor is, and ends at its tip."""
    mechanism = crank(coordinates)
    state = mbd.assemble(mechanism, BENT)
    geometry = Geometry(mechanism, np.zeros(1), np.asarray(state.q)[None])
    beam = [piece for piece in pieces_of(geometry) if piece.part == "rod" and piece.end is not None]
    shapes = [piece.shape(geometry.motion.at(0)) for piece in beam]
    middle = np.asarray(mbd.read(mechanism, state, "middle"))
    assert min(np.abs(shape - middle).max(axis=1).min() for shape in shapes) < 1e-12
    slider = np.asarray(mbd.read(mechanism, state, "slider.position"))
    np.testing.assert_allclose(shapes[-1][-1], slider, atol=1e-9)


def test_formats_of_rigid_bodies_refuse_flexible_ones(tmp_path: Path) -> None:
    with pytest.raises(MechanismError, match="write_urdf: 'case' is a flexible body"):
        io.write_urdf(screws("joint", "own"), tmp_path / "x.urdf")
    with pytest.raises(MechanismError, match=r"body_inertia: 'rod' is flexible, .* 'rod.mass'"):
        mbd.identification.body_inertia(crank("joint")["rod"])
