"""A rod on a hinge with markers that move, in the plane and in space, in both coordinates: where all of it is follows
from closed formulas."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import planar as pl
from jaxmbd import spatial as sp
from jaxmbd.integrate.formulations.formulation import Stabilized
from jaxmbd.state.state import rank_number

ENDED = jnp.asarray(False), {}, mbd.RESULTS.successful, rank_number(-1)  # as `simulate` ends a motion

TS = np.linspace(0.0, 1.0, 5)
RATE = 0.8  # [rad/s]
KINDS = [(dim, coordinates) for dim in (2, 3) for coordinates in ("absolute", "joint")]
HINGE = np.array([0.3, -0.2])  # in the plane of the motion, as all pairs of coordinates here


def on_ground(t: Any) -> Any:
    """The moving point of the ground."""
    return (1.0 + 2.0 * t, 0.5 - t * t)


def on_rod(t: Any) -> Any:
    """The moving point of the rod, along and across it."""
    return (0.5 - 0.6 * t, 0.1 * t)


def angle(t: Any) -> Any:
    """The angle of the rod."""
    return 0.4 + RATE * t


def rotation(t: float) -> np.ndarray:
    c, s = np.cos(angle(t)), np.sin(angle(t))
    return np.array([(c, -s), (s, c)])


def centre(t: float) -> np.ndarray:
    """The centre of mass of the rod, half a metre from its hinge."""
    return HINGE + rotation(t) @ (0.5, 0.0)


def world(dim: int, point: Any) -> np.ndarray:
    """A point of the plane of the motion, which is the xz plane of space."""
    x, y = point
    return np.array([x, y]) if dim == 2 else np.array([x, 0.0, y])


def hung(dim: int, coordinates: str, **parts: Any) -> Any:
    """The rod with a spring between two moving markers, and a moving sensor on each."""
    if dim == 2:
        rod = pl.Body("rod", 1.0, 0.1)
        support, rider = pl.ground.moving(on_ground), rod.moving(on_rod)
        hinge = pl.Revolute("O", pl.ground.at(*HINGE), rod.at(-0.5, 0.0))
        spring = pl.SpringDamper("spring", support, rider, stiffness=10.0)
        points = [pl.Point("S", support), pl.Point("R", rider)]
        return pl.Mechanism([rod], [hinge], [spring, *parts.pop("forces", ())], [], points, coordinates=coordinates)
    rod = sp.Body("rod", 1.0, (1e-4, 0.1, 0.1))
    support = sp.ground.moving(lambda t: (on_ground(t)[0], 0.0, on_ground(t)[1]))
    rider = rod.moving(lambda t: (on_rod(t)[0], 0.0, on_rod(t)[1]))
    ends = sp.ground.at(HINGE[0], 0, HINGE[1], axis="-y"), rod.at(-0.5, axis="-y")
    spring = sp.SpringDamper("spring", support, rider, stiffness=10.0)
    points = [sp.Point("S", support), sp.Point("R", rider)]
    return sp.Mechanism([rod], [sp.Revolute("O", *ends)], [spring], [], points, coordinates=coordinates)


def coordinates_of(mechanism: Any, ts: Any) -> np.ndarray:
    """The coordinates `(times, nq)` of the rod at times."""
    turn = np.array([angle(t) for t in ts])[:, None]
    if mechanism.coordinates == "joint":
        return turn
    dim = mechanism.space.dim
    position = np.array([world(dim, centre(t)) for t in ts])
    if dim == 2:
        return np.concatenate([position, turn], axis=1)
    zero = 0.0 * turn
    return np.concatenate([position, np.cos(turn / 2), zero, -np.sin(turn / 2), zero, turn], axis=1)


def speeds_of(mechanism: Any, ts: Any) -> np.ndarray:
    """The speeds `(times, nv)` of the rod at times."""
    rate = np.full((len(ts), 1), RATE)
    if mechanism.coordinates == "joint":
        return rate
    dim = mechanism.space.dim
    along = np.array([world(dim, RATE * rotation(t) @ (0.0, 0.5)) for t in ts])
    return np.concatenate([along, rate] if dim == 2 else [along, 0 * rate, -rate, 0 * rate], axis=1)


def motion_of(mechanism: Any, ts: Any = TS) -> mbd.Solution:
    """The motion of the rod, which nobody has to integrate."""
    q, v = jnp.asarray(coordinates_of(mechanism, ts)), jnp.asarray(speeds_of(mechanism, ts))
    return mbd.Solution(mechanism, Stabilized(), jnp.asarray(ts), q, v, jnp.zeros((len(ts), 0)), {}, *ENDED)


def ground_point(dim: int, t: float) -> np.ndarray:
    """Where the moving marker of the ground is in the world."""
    return world(dim, on_ground(t))


def rod_point(dim: int, t: float) -> np.ndarray:
    """Where the moving marker of the rod is in the world."""
    return world(dim, centre(t) + rotation(t) @ on_rod(t))
