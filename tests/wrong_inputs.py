# pyright: reportArgumentType=false
"""What the lists of wrong inputs share: a pendulum, and the comparison of an error with its text."""

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp

# What is given, and the exact text of the error; where that ends with a list of names, what comes before it.
Cases: TypeAlias = dict[str, tuple[Callable[[], Any], str]]

ROD, BALL = pl.Body("rod", 1.0, 0.1, (0.5, 0.0, 0.0)), sp.Body("rod", 1.0, (0.1, 0.1, 0.1))
GRIP, G, SG = ROD.at(), pl.ground.at(), sp.ground
NAN = float("nan")


def pend(forces: Any = (), joints: Any = (), drivers: Any = (), sensors: Any = (), **options: Any) -> pl.Mechanism:
    pin = pl.Revolute("O", G, ROD.at(-0.5))
    return pl.Mechanism([ROD], [pin, *joints], [pl.Gravity(), *forces], drivers, sensors, **options)


M, TS = pend(), np.linspace(0.0, 1.0, 3)
S = mbd.assemble(M)


@cache
def motion() -> mbd.Solution:
    return mbd.simulate(M, S, TS)


def check_text(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(mbd.MechanismError) as error:
        call()
    said = str(error.value)
    assert said.partition("Known names:")[0] == text if text.endswith(("? ", ". ")) else said == text
