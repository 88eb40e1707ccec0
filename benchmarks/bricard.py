"""Bricard's ring of five bars and six hinges (IFToMM A04) in joint coordinates, and its reference answer.

The mechanism is `jaxmbd.examples.bricard`: bars of 1 m, 1 kg and a square section of 0.1 m, gravity along -y. At the
start every body's axes are the world's. Thirty constraints on thirty speeds, and yet it has one degree of freedom.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.integrate import solve_ivp

from benchmarks.problems import GRAVITY, Array

POINTS = np.array([(0, 0, 0), (1, 0, 0), (1, -1, 0), (1, -1, 1), (0, -1, 1), (0, 0, 1)], dtype=float)
AXES = np.eye(3)[[1, 2, 0, 1, 2, 0]]  # of the hinges: y, z, x, y, z, x
ALONG, ACROSS = 0.1**2 / 6, (1 + 0.1**2) / 12  # a bar's moments of inertia
SPANS = np.diff(POINTS, axis=0)  # from the first to the second hinge of each bar
RELAXATION = 10.0  # 1/s; pulls the reference back onto the closed ring, from errors of 1e-12
TOLERANCE = 1e-12  # of the reference


@dataclass(frozen=True)
class Ring:
    """The problem's name, its title and how long it is to be followed; it starts at rest."""

    name: str = "bricard"
    title: str = "Bricard's ring, 6 s"
    duration: float = 6.0


@dataclass(frozen=True)
class Placed:
    """The open chain at five joint angles: rotations, hinge points (6, 3) and hinge axes (5, 3) in the world."""

    rotations: Array
    points: Array
    axes: Array

    @property
    def centres(self) -> Array:
        """The bars' centres of mass."""
        return (self.points[:-1] + self.points[1:]) / 2


def placed(angles: Array) -> Placed:
    """The chain of five bars from the ground's first hinge on, its end not yet closed."""
    rotation, point = np.eye(3), POINTS[0]
    rotations, points, axes = [], [point], []
    for angle, axis, span in zip(angles, AXES, SPANS, strict=False):
        axes.append(rotation @ axis)
        rotation = rotation @ turned(axis, angle)
        point = point + rotation @ span
        rotations.append(rotation)
        points.append(point)
    return Placed(np.array(rotations), np.array(points), np.array(axes))


def turned(axis: Array, angle: float) -> Array:
    """The rotation by an angle about one of the coordinate axes."""
    cross = np.cross(axis, np.eye(3)).T
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def centres(angles: Array) -> Array:
    """The answer that programs are compared by: the bars' centres of mass."""
    return placed(angles).centres


def moments(bar: int) -> Array:
    """A bar's moments of inertia about its own axes."""
    return np.where(np.abs(SPANS[bar]) > 0.5, ALONG, ACROSS)


@cache
def reference(duration: float) -> Array:
    """The bars' final centres: the ring's equations in joint angles, solved by DOP853 with a tolerance of 1e-12."""
    done = solve_ivp(rates, (0.0, duration), np.zeros(10), "DOP853", rtol=TOLERANCE, atol=TOLERANCE)
    return centres(done.y[:5, -1])


def rates(_: float, state: Array) -> Array:
    """Joint rates and accelerations: d'Alembert's principle along the ring's one free direction."""
    angles, speeds = state[:5], state[5:]
    chain = placed(angles)
    spin, turn, spin_bias = angular(chain, speeds)
    place, bias = linear(chain, chain.centres, spin, spin_bias, turn)
    mass, load = np.zeros((5, 5)), np.zeros(5)
    for k, rotation in enumerate(chain.rotations):
        inertia = rotation @ np.diag(moments(k)) @ rotation.T
        mass += place[k].T @ place[k] + turn[k].T @ inertia @ turn[k]
        load += place[k].T @ (bias[k] + [0.0, GRAVITY, 0.0])
        load += turn[k].T @ (inertia @ spin_bias[k] + np.cross(spin[k], inertia @ spin[k]))
    jacobian, wanted = closing(chain, speeds, spin, turn, spin_bias)
    left, values, right = np.linalg.svd(jacobian)
    free, held = right[4], right[:4].T @ ((left[:, :4].T @ wanted) / values[:4])
    along = -free @ (mass @ held + load) / (free @ mass @ free)
    return np.concatenate([speeds, held + along * free])


def angular(chain: Placed, speeds: Array) -> tuple[Array, Array, Array]:
    """Angular velocities (5, 3), their derivatives by the joint rates (5, 3, 5), accelerations at constant rates."""
    turn = np.array([np.where(np.arange(5) <= k, chain.axes.T, 0.0) for k in range(5)])
    spin = turn @ speeds
    before = np.vstack([np.zeros(3), spin[:-1]])
    return spin, turn, np.cumsum(np.cross(before, chain.axes * speeds[:, None]), axis=0)


def linear(chain: Placed, points: Array, spin: Array, spin_bias: Array, turn: Array) -> tuple[Array, Array]:
    """For a point of each bar: its velocity's derivatives by the joint rates, its acceleration at constant rates."""
    derivatives, biases, hinge = [], [], np.zeros(3)
    for k, point in enumerate(points):
        arms = point - chain.points[:5]
        derivatives.append(np.where(np.arange(5) <= k, np.cross(chain.axes, arms).T, 0.0))
        biases.append(hinge + carried(spin[k], spin_bias[k], arms[k]))
        hinge = hinge + carried(spin[k], spin_bias[k], chain.points[k + 1] - chain.points[k])
    return np.array(derivatives), np.array(biases)


def carried(spin: Array, spin_bias: Array, arm: Array) -> Array:
    """The acceleration that turning gives the end of an arm."""
    return np.cross(spin_bias, arm) + np.cross(spin, np.cross(spin, arm))


def closing(chain: Placed, speeds: Array, spin: Array, turn: Array, spin_bias: Array) -> tuple[Array, Array]:
    """`J` and `b` of `J a = b`: the last bar's end stays at the ground's last hinge, and its axis with that hinge's."""
    place, bias = linear(chain, chain.points[1:], spin, spin_bias, turn)
    axis = chain.rotations[4] @ AXES[5]
    tilt = np.cross(turn[4].T, axis).T
    jacobian = np.vstack([place[4], tilt[1:]])
    miss = np.concatenate([chain.points[5] - POINTS[5], axis[1:]])
    bias = np.concatenate([bias[4], carried(spin[4], spin_bias[4], axis)[1:]])
    return jacobian, -bias - 2 * RELAXATION * jacobian @ speeds - RELAXATION**2 * miss
