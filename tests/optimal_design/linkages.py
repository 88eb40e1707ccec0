"""Linkages whose dimensions are arguments, for tests of optimal design."""

from typing import Any

from jaxmbd import planar as pl


def four_bar(lengths: Any, coordinates: str = "joint") -> pl.Mechanism:
    """A four-bar with the links `ground, crank, coupler, rocker`; bodies have their frames at their first pins."""
    ground, crank, coupler, rocker = (lengths[k] for k in range(4))
    bodies = [
        pl.Body("crank", mass=1.0, inertia=1.0),
        pl.Body("coupler", mass=1.0, inertia=1.0),
        pl.Body("rocker", mass=1.0, inertia=1.0, pose=(0.0, 0.0, 1.5)),
    ]
    pins = [
        pl.Revolute("A", pl.ground.at(0.0, 0.0), bodies[0].at(0.0, 0.0)),
        pl.Revolute("B", bodies[0].at(crank, 0.0), bodies[1].at(0.0, 0.0)),
        pl.Revolute("C", bodies[1].at(coupler, 0.0), bodies[2].at(rocker, 0.0)),
        pl.Revolute("D", pl.ground.at(ground, 0.0), bodies[2].at(0.0, 0.0)),
    ]
    return pl.Mechanism(bodies, pins, coordinates=coordinates)


def arm(
    mass: Any = 2.0, length: Any = 0.5, stiffness: Any = 100.0, height: Any = 0.3, along: Any = 0.2
) -> pl.Mechanism:
    """An arm whose weight a spring of zero free length carries, from a point above the pin to a point on the arm."""
    bar = pl.Body("bar", mass=mass, inertia=0.05)
    spring = pl.SpringDamper("spring", pl.ground.at(0.0, height), bar.at(along - length, 0.0), stiffness, 0.0)
    pin = pl.Revolute("O", pl.ground.at(0.0, 0.0), bar.at(-length, 0.0))
    return pl.Mechanism([bar], [pin], [pl.Gravity(9.81), spring], coordinates="joint")
