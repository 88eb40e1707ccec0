"""Wheels of gears, planetary sets and differentials, in the plane and in space."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.scene.gears import PlanetarySizes, pitch_radii
from jaxmbd.scene.geometry import Geometry
from jaxmbd.scene.parts import pieces_of

PLACES = {"A": (2.0, 0.0), "B": (3.0, 0.0), "sun": (0.0, 0.0), "ring": (0.0, 0.0), "carrier": (0.0, 0.0)}


def drawn(nouns: ModuleType) -> tuple[Any, dict[str, list[Any]]]:
    bodies, joints, poses = [], [], []
    for name, place in PLACES.items():
        bodies.append(nouns.Body(name, 1.0, 0.1 if nouns is pl else (0.1, 0.1, 0.1)))
        at = place if nouns is pl else (*place, 0.0)
        joints.append(nouns.Revolute(f"{name} axle", nouns.ground.at(*at), bodies[-1].at()))
        poses += [*place, 0.0] if nouns is pl else [*place, 0.0, 1.0, 0.0, 0.0, 0.0]
    a, b, *three = (f"{joint.name}.angle" for joint in joints)
    gears = [
        nouns.GearMesh("mesh", a, b, -0.5),
        nouns.PlanetaryGear("set", *three, 3.0),
        nouns.Differential("split", *three),
        nouns.Gear("other", a, three[0], 1.0),
    ]
    mechanism = nouns.Mechanism(bodies, [*joints, *gears])
    geometry = Geometry(mechanism, [0.0], [[*poses, *[0.0] * len(mechanism.turns)]])
    found: dict[str, list[Any]] = {gear.name: [] for gear in gears}
    for piece in pieces_of(geometry):
        if piece.part in found:
            found[piece.part].append(piece)
    return geometry, found


def radius(geometry: Any, piece: Any, place: tuple[float, float]) -> float:
    """How far a piece reaches in the plane of its wheel."""
    points = piece.shape(geometry.motion.at(0)).reshape(-1, geometry.dim)
    return float(np.nanmax(np.linalg.norm(points[:, :2] - place, axis=1)))  # NaN separates strokes


@pytest.mark.parametrize("nouns", [pl, sp], ids=["plane", "space"])
def test_wheels_are_as_large_as_their_ratios(nouns: ModuleType) -> None:
    geometry, found = drawn(nouns)
    radii, near = pitch_radii(-0.5, 1.0), 0.5 * geometry.size
    assert radii is not None
    for name, expected, body in (("A", radii[0], 0), ("B", radii[1], 1)):
        (wheel,) = {max(radius(geometry, x, PLACES[name]) for x in found["mesh"] if x.place.body == body)}
        assert abs(wheel - expected) < near
    sizes = PlanetarySizes.of(3.0, geometry.size)
    for body, expected in ((2, sizes.sun), (3, sizes.ring), (4, sizes.arm + sizes.planet)):
        wheel = max(radius(geometry, x, (0.0, 0.0)) for x in found["set"] if x.place.body == body)
        assert abs(wheel - expected) < near
    assert abs(sizes.arm + sizes.planet - sizes.ring) < 1e-12  # the planets touch the ring and the sun
    assert abs(sizes.arm - sizes.planet - sizes.sun) < 1e-12
    assert any(piece.place.body == 4 for piece in found["split"])
