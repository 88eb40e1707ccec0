"""An error of assembly says where lengths in millimetres among metres keep a mechanism from closing."""

from typing import Any

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp

MILLI = 1000.0  # [mm/m]


def four_bar(coordinates: str, a: float = 1.0, b: float = 1.0, ground: float = 0.7) -> pl.Mechanism:
    """A four-bar linkage with bars of 0.3, 0.5 and 0.5 m, whose first two are given in other units."""
    bars = [pl.Body(name, 1.0, 0.01) for name in "abc"]
    first, second, third = bars
    joints = [
        pl.Revolute("A", pl.ground.at(), first.at(-0.15 * a)),
        pl.Revolute("B", first.at(0.15 * a), second.at(-0.25 * b)),
        pl.Revolute("C", second.at(0.25 * b), third.at(-0.25)),
        pl.Revolute("D", pl.ground.at(ground), third.at(0.25)),
    ]
    return pl.Mechanism(bars, joints, coordinates=coordinates)


def error_of(mechanism: Any, fixed: dict[str, float] | None = None) -> str:
    with pytest.raises(mbd.AssemblyError, match="cannot be assembled") as raised:
        mbd.assemble(mechanism, fixed)
    return str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", ["absolute", "joint"])
def test_lengths_in_millimetres_are_named(coordinates: str) -> None:
    """Those of the ground, of one body, of two bodies; nothing is said where division by 1000 would not help."""
    assert "It would fit if markers on 'ground' (700) were in millimetres" in error_of(
        four_bar(coordinates, ground=700)
    )
    assert "It would fit if markers on 'b' (250) were in millimetres" in error_of(four_bar(coordinates, b=MILLI))
    text = error_of(four_bar(coordinates, a=MILLI, b=MILLI))
    assert "It would fit if markers on 'a' and markers on 'b' (150 to 250) were in millimetres: divide by 1000." in text
    for apart in (2.0, 7e5):
        assert "millimetres" not in error_of(four_bar(coordinates, ground=apart))


def slider_crank(rod: float, guide: float = 0.0) -> sp.Mechanism:
    crank = sp.Body("crank", 1.0, np.ones(3), pose=(0.1, 0.0, 0.0))
    slider = sp.Body("slider", 1.0, np.ones(3), pose=(0.5, 0.0, 0.0))
    joints = [
        sp.Revolute("O", sp.ground.at(), crank.at(-0.1)),
        sp.Prismatic("S", sp.ground.at(0, guide, 0, axis="x"), slider.at(axis="x")),
        sp.Rod("rod", crank.at(0.1), slider.at(), rod),
    ]
    return sp.Mechanism([crank, slider], joints)


@pytest.mark.slow
def test_so_are_a_rod_and_a_fixed_value() -> None:
    held = {"O.angle": 0.0}
    assert "It would fit if the length of 'rod' (400) were in mill" in error_of(
        slider_crank(400.0), {"S.displacement": 0.6}
    )
    text = error_of(slider_crank(0.4), {"S.displacement": 600.0} | held)
    assert "It would fit if the value of 'S.displacement' (600) were in millimetres" in text
    assert "millimetres" not in error_of(slider_crank(0.4), {"S.displacement": 0.9} | held)


def test_a_file_says_so(tmp_path: Any) -> None:
    """What is read from a file is assembled by the same function."""
    path = tmp_path / "linkage.toml"
    mbd.save(four_bar("absolute", ground=700.0), path)
    assert "markers on 'ground' (700) were in millimetres" in error_of(mbd.load(path))
