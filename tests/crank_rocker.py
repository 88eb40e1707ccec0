"""A crank-rocker of slender rods, and its rocker's angle by the law of cosines."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array

from jaxmbd import planar as pl

LENGTHS = (0.3, 0.8, 0.6, 0.9)  # crank, coupler, rocker, base [m]


def four_bar(lengths: Array | Sequence[float] = LENGTHS) -> pl.Mechanism:
    """The mechanism, with rough poses for the open branch."""
    a, b, c, d = jnp.asarray(lengths)
    crank = pl.Body("crank", 0.3, 0.002, (0.1, 0.1, 0.9))
    coupler = pl.Body("coupler", 0.8, 0.04, (0.5, 0.4, 0.4))
    rocker = pl.Body("rocker", 0.6, 0.02, (0.9, 0.3, 1.5))
    return pl.Mechanism(
        [crank, coupler, rocker],
        [
            pl.Revolute("O", pl.ground.at(), crank.at(-a / 2)),
            pl.Revolute("A", crank.at(a / 2), coupler.at(-b / 2)),
            pl.Revolute("B", coupler.at(b / 2), rocker.at(c / 2)),
            pl.Revolute("C", pl.ground.at(d), rocker.at(-c / 2)),
        ],
    )


def rocker_angle(crank: float, branch: int = 1, lengths: Sequence[float] = LENGTHS) -> float:
    """The rocker's angle [rad] over the crank's, where the circles of coupler and rocker meet: open, or crossed for a
    `branch` of −1."""
    a, b, c, d = lengths
    x, y = a * math.cos(crank) - d, a * math.sin(crank)
    f = math.hypot(x, y)
    inner = math.acos((f * f + c * c - b * b) / (2 * f * c))
    return math.atan2(y, x) - branch * inner
