"""What each joint and driver says, written down by hand: where the second marker may be, and how far a place misses.

The other laws compare a residual with its own derivatives; these find one that is wrong in itself. Places are those of
the second marker in the first one's frame, and the constraints' values there follow from the joint's definition.
"""

from collections.abc import Callable
from functools import cache
from math import cos, pi, sin
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from tests.model.law_bench import SPACES, Bench, T, bench, rotation_matrix
from tests.model.laws import base

SWING = 0.3 + 0.5 * T + 0.2 * sin(3 * T)
REST = Rotation.identity()
LEFT = 0.3  # [rad], a rotation that misses
FAR = (0.1, -0.2, 0.3)  # [m]
SKEW = Rotation.from_rotvec((0.3, -0.5, 0.7))


def about(axis: str, angle: float) -> Rotation:
    return Rotation.from_euler(axis, angle)


class Place(NamedTuple):
    """Where the second marker is in the first one's frame, and the constraint's value there."""

    position: tuple[float, ...]
    turn: Any  # an angle [rad], or a rotation
    phi: tuple[float, ...] = ()  # (): zero
    in_world: bool = False  # the first rows are along the world's axes; given here along the first marker's


Places = Callable[[float], list[Place]]  # over a case's scale


def swung(scale: float) -> float:
    """The motion of the drivers of a displacement and of a speed."""
    return 0.5 + 0.2 * scale * sin(3 * T)


def breathing(scale: float) -> float:
    """The length of the users' rod."""
    return 0.9 * scale + 0.1 * sin(2 * T)


PLANAR: dict[str, Places] = {
    "Revolute": lambda s: [Place((0, 0), 0.7), Place((0.1, -0.2), 0.7, (-0.1, 0.2), True)],
    "Prismatic": lambda s: [Place((0.6, 0), 0), Place((0.6, 0.2), LEFT, (0.2, LEFT))],
    "Weld": lambda s: [Place((0, 0), 0), Place((0.1, -0.2), LEFT, (-0.1, 0.2, LEFT), True)],
    "PinInSlot": lambda s: [Place((0.6, 0), 0.9), Place((0.6, 0.2), 0.9, (0.2,))],
    "Rod": lambda s: [Place((0.48 * s, 0.64 * s), 0.9), Place((0.3, 0.4), 0.9, (0.125 - 0.32 * s**2,))],
    "PointConstraint": lambda s: [Place((0, 0), 0.7), Place((0.1, -0.2), 0.7, (0.1, -0.2))],
    "PointConstraint, without y": lambda s: [Place((0, 0.5), 0.7), Place((0.1, 0.5), 0.7, (0.1,))],
    "FixedConstraint": lambda s: [Place((0, 0), 0), Place((0.1, -0.2), LEFT, (0.1, -0.2, LEFT))],
    "RelativeAngle": lambda s: [Place((0.6, 0.2), 0.4 * s), Place((0.6, 0.2), 0.4 * s + LEFT, (LEFT,))],
    "Gear": lambda s: [
        Place((0.2 - 1.5 * s * 0.8, 0), 0.8),
        Place((0.3 - 1.5 * s * 0.8, 0.2), 0.8, (0.2, 0.1)),
    ],
    "RackAndPinion": lambda s: [
        Place((0.6 * s * 0.8 + 0.3, 0), 0.8),
        Place((0.6 * s * 0.8 + 0.4, 0.2), 0.8, (0.2, 0.1)),
    ],
    "Constraint, moving": lambda s: [
        Place((0, breathing(s)), 0.9),
        Place((0.3, 0.4), 0.9, (0.25 - breathing(s) ** 2,)),
    ],
    "Constraint, two rows": lambda s: [
        Place((0.7 * s * (1 + 0.3 * cos(0.5)), 0.1 * sin(0.5)), 0.5),
        Place((0.1, -0.2), 0.5, (0.1 - 0.7 * s * (1 + 0.3 * cos(0.5)), -0.2 - 0.1 * sin(0.5))),
    ],
    "Driver of an angle": lambda s: [Place((0, 0), SWING), Place((0, 0), SWING + LEFT, (0, 0, LEFT))],
    "Driver of a displacement": lambda s: [
        Place((swung(s), 0), 0),
        Place((swung(s) + 0.1, 0), 0, (0, 0, 0.1)),
    ],
    "Driver, constant": lambda s: [Place((0.6 * s, 0), 0.9), Place((0.6 * s + 0.1, 0), 0.9, (0, 0.1))],
    # The second helper looks from the other body: where the origins coincide, its displacement is zero.
    "PlanetaryGear": lambda s: [
        Place((0, 0), -0.2 * (1 + 2.5 * s)),
        Place((0, 0), -0.3 * (1 + 2.5 * s), (0, 0.1)),
    ],
    "Differential": lambda s: [Place((0, 0), -0.4 * s), Place((0, 0), 0.2 - 0.4 * s, (0, -0.1))],
}

# `x_A · z_B = y_A · z_B = 0` and the three rows of equal axes, after a rotation about x that misses.
ACROSS, MISALIGNED = (0.0, -sin(LEFT)), (-sin(LEFT), 0.0, 0.0)
TILTED, NEAR = about("x", LEFT), (-0.1, 0.2, -0.3)

SPATIAL: dict[str, Places] = {
    "Revolute": lambda s: [
        Place((0, 0, 0), about("z", 0.7)),
        Place(FAR, TILTED, (*NEAR, *ACROSS), True),
        Place((0, 0, 0), about("y", LEFT), (0, 0, 0, sin(LEFT), 0)),
    ],
    "Spherical": lambda s: [Place((0, 0, 0), SKEW), Place(FAR, SKEW, NEAR, True)],
    "Prismatic": lambda s: [
        Place((0, 0, 0.5), REST),
        Place((0.1, -0.2, 0.5), TILTED, (0.1, -0.2, *MISALIGNED)),
        Place((0, 0, 0.5), about("y", LEFT), (0, 0, 0, -sin(LEFT), 0)),
        Place((0, 0, 0.5), about("z", LEFT), (0, 0, 0, 0, -sin(LEFT))),
    ],
    "Cylindrical": lambda s: [
        Place((0, 0, 0.5), about("z", 0.7)),
        Place((0.1, -0.2, 0.5), TILTED, (0.1, -0.2, *ACROSS)),
    ],
    "Screw": lambda s: [
        Place((0, 0, -0.9 * s * 0.7 / (2 * pi)), about("z", 0.7)),
        Place((0, 0, -0.9 * s * (0.7 / (2 * pi) + 3)), about("z", 0.7)),
        Place((0.1, -0.2, 0.1 * s), REST, (0.1, -0.2, 0, 0, 0.1 * s)),
    ],
    "Planar": lambda s: [
        Place((0.4, -0.5, 0), about("z", 0.7)),
        Place((0.4, -0.5, 0.1), TILTED, (*ACROSS, 0.1)),
    ],
    "Universal": lambda s: [
        Place((0, 0, 0), about("x", 0.4) * about("y", 0.6)),
        Place(FAR, about("z", LEFT), (*NEAR, -sin(LEFT)), True),
    ],
    # Any bend about an axis across the shafts; a rotation about them misses.
    "ConstantVelocity": lambda s: [
        Place((0, 0, 0), Rotation.from_rotvec((0.4, -0.5, 0))),
        Place(FAR, about("z", LEFT), (*NEAR, 2 * sin(LEFT)), True),
    ],
    "RevoluteSpherical": lambda s: [
        Place((0.48 * s, 0.64 * s, 0), SKEW),
        Place((0.3, 0.4, 0.1), SKEW, (0.13 - 0.32 * s**2, 0.1)),
    ],
    "ParallelAxes": lambda s: [Place(FAR, about("z", 0.7)), Place(FAR, TILTED, ACROSS)],
    "PerpendicularAxes": lambda s: [
        Place(FAR, about("x", pi / 2) * about("z", 0.7)),
        Place(FAR, TILTED, (cos(LEFT),)),
    ],
    "PointOnLine": lambda s: [Place((0, 0, 0.5), SKEW), Place((0.1, -0.2, 0.5), SKEW, (0.1, -0.2))],
    "PointOnPlane": lambda s: [Place((0.4, -0.5, 0), SKEW), Place((0.4, -0.5, 0.1), SKEW, (0.1,))],
    # Upright, and leaning by 0.3 rad: the centre is at r cos 0.3.
    "RollingDisc": lambda s: [
        Place((0.4, -0.5, 0.4 * s), about("x", pi / 2)),
        Place((0.4, -0.5, 0.4 * s * cos(0.3)), about("x", pi / 2 - 0.3)),
        Place((0.4, -0.5, 0.4 * s + 0.1), about("x", pi / 2), (0.1, 0, 0)),
    ],
    "Rod": lambda s: [
        Place((0.48 * s, 0, 0.64 * s), SKEW),
        Place((0.3, 0.4, 0.1), SKEW, (0.13 - 0.32 * s**2,)),
    ],
    "Weld": lambda s: [Place((0, 0, 0), REST), Place(FAR, TILTED, (*NEAR, *MISALIGNED), True)],
    "PointConstraint": lambda s: [Place((0, 0, 0), SKEW), Place(FAR, SKEW, FAR)],
    "PointConstraint, without y": lambda s: [Place((0, 0.5, 0), SKEW), Place(FAR, SKEW, (0.1, 0.3))],
    "FixedConstraint": lambda s: [Place((0, 0, 0), REST), Place(FAR, TILTED, (*FAR, *MISALIGNED))],
    "Gear": lambda s: [
        Place((0, 0, 0), about("x", 0.4) * about("y", 0.2 - 1.5 * s * 0.4)),
        Place((0, 0, 0), about("x", 0.4) * about("y", 0.3 - 1.5 * s * 0.4), (0, 0, 0, 0, 0.1)),
    ],
    "RackAndPinion": lambda s: [
        Place((0, 0, 0.6 * s * 0.8 + 0.3), about("z", 0.8)),
        Place((0, 0, 0.6 * s * 0.8 + 0.4), about("z", 0.8), (0, 0, 0, 0, 0.1)),
    ],
    "Constraint, moving": lambda s: [
        Place((0, breathing(s), 0), SKEW),
        Place((0.3, 0.4, 0), SKEW, (0.25 - breathing(s) ** 2,)),
    ],
    # After a rotation about z by 0.5: `y_A · x_B = sin 0.5`, `x_A · z_B = 0`.
    "Constraint, two rows": lambda s: [
        Place((0.7 * s * (1 + 0.3 * sin(0.5)), 0.4, 0), about("z", 0.5)),
        Place((0.1, 0.4, -0.2), about("z", 0.5), (0.1 - 0.7 * s * (1 + 0.3 * sin(0.5)), -0.2)),
    ],
    "Driver of an angle": lambda s: [
        Place((0, 0, 0), about("z", SWING)),
        Place((0, 0, 0), about("z", SWING + LEFT), (0, 0, 0, 0, 0, LEFT)),
    ],
    "Driver of a displacement": lambda s: [
        Place((0, 0, swung(s)), REST),
        Place((0, 0, swung(s) + 0.1), REST, (0, 0, 0, 0, 0, 0.1)),
    ],
    "Driver, constant": lambda s: [
        Place((0.4, 0.6 * s, 0), SKEW),
        Place((0.4, 0.6 * s + 0.1, 0), SKEW, (0, 0.1)),
    ],
    "PlanetaryGear": lambda s: [
        Place((0, 0, 0), about("z", -0.2 * (1 + 2.5 * s))),
        Place((0, 0, 0), about("z", -0.3 * (1 + 2.5 * s)), (0, 0, 0, 0, 0.1)),
    ],
    "Differential": lambda s: [
        Place((0, 0, 0), about("z", -0.4 * s)),
        Place((0, 0, 0), about("z", 0.2 - 0.4 * s), (0, 0, 0, 0, -0.1)),
    ],
}
TABLES = {"planar": PLANAR, "spatial": SPATIAL}
# These say something of speeds only, and of a body's own coordinate.
APART = {"NonholonomicConstraint", "Driver of a speed", "Driver of a body"}


def scale_of(name: str) -> float:
    """What the case's parameters are multiplied by, as `laws.bench` builds it."""
    return 1.3 if name.endswith(" on ground") else 1.0


def places_of(b: Bench, name: str) -> list[Place]:
    return TABLES[b.space][base(name)](scale_of(name))


def markers_of(b: Bench, name: str) -> tuple[Any, Any]:
    """The markers of a joint, or of that which helps the part."""
    names = {joint.name for joint in b.mechanism.joints}
    joint: Any = b.mechanism[f"{name} helper" if f"{name} helper" in names else name]
    return joint.a, joint.b


def put(b: Bench, q: np.ndarray, name: str, place: Place) -> np.ndarray:
    """Moves the second body of a part so that its marker is there; returns the first marker's axes."""
    first, second = markers_of(b, name)
    (origin,), (axes,) = b.places([first], b.q)
    i = [body.name for body in b.mechanism.bodies].index(second.body)
    point = origin + axes @ np.asarray(place.position, dtype=float)
    if b.space == "planar":
        (frame,), _ = b.at_markers([first], b.q, b.v)
        angle = float(frame.angle) + place.turn - float(second.angle)
        R = np.asarray([[cos(angle), -sin(angle)], [sin(angle), cos(angle)]])
        q[3 * i : 3 * i + 3] = [*(point - R @ np.asarray(second.position)), angle]
    else:
        held = Rotation.from_matrix(rotation_matrix(np.asarray(second.rotation)))
        turn = Rotation.from_matrix(axes) * place.turn * held.inv()
        q[7 * i : 7 * i + 3] = point - turn.as_matrix() @ np.asarray(second.position)
        q[7 * i + 3 : 7 * i + 7] = np.roll(turn.as_quat(), 1)
    return axes


def stated() -> list[Any]:
    """The parts under test of both spaces."""
    names = [(space, f"{case}{end}") for space in TABLES for case in TABLES[space] for end in ("", " on ground")]
    return [pytest.param(space, name, id=f"{space}-{name}") for space, name in names]


@cache
def values_at(space: str, k: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """`Φ` with the second bodies of all parts at the k-th of their places, and the axes of their first markers."""
    b = bench(space, "joints")
    q, axes = b.q.copy(), {}
    for _, name in (p.values for p in stated() if p.values[0] == space):
        places = places_of(b, name)
        axes[name] = put(b, q, name, places[min(k, len(places) - 1)])
    return b(T, q, 0 * b.v)["phi"], axes


@pytest.mark.parametrize(("space", "name"), stated())
def test_a_joint_says_what_its_definition_says(space: str, name: str) -> None:
    """Zero where the definition holds, and by how much it misses elsewhere, row by row."""
    b = bench(space, "joints")
    rows = np.concatenate([b.rows[n] for n in b.rows if n in (f"{name} helper", name)])
    places = places_of(b, name)
    assert sum(place.phi == () for place in places) > 0 < sum(place.phi != () for place in places)
    for k, place in enumerate(places):
        phi, axes = values_at(space, k)
        expected = np.asarray(place.phi or np.zeros(len(rows)), dtype=float)
        if place.in_world:
            dim = len(place.position)
            expected[:dim] = axes[name] @ expected[:dim]
        np.testing.assert_allclose(phi[rows], expected, atol=1e-12)


@pytest.mark.parametrize("space", SPACES)
def test_every_joint_has_its_statement(space: str) -> None:
    assert set(TABLES[space]) | APART == set(SPACES[space].joints)


# --- speeds ----------------------------------------------------------------------------------------------------------


class Moving(NamedTuple):
    """A place, the velocity of the second marker and the angular velocity of its body, along the first marker's axes
    (whose body rests), and the constraint's time derivative there."""

    place: Place
    velocity: tuple[float, ...]
    spin: tuple[float, ...]
    rate: tuple[float, ...] = ()  # (): zero


def skating(scale: float, more: float) -> tuple[float, float]:
    """The speed along the second marker's x axis that the users' skate asks for at 0.5 m, with `more` added,
    and what the constraint then gives."""
    return 0.5 * cos(2 * T) / (1 + 0.075 * scale) + more, more * (1 + 0.075 * scale)


def skates(scale: float, more: float) -> Moving:
    speed, rate = skating(scale, more)
    along, across = np.asarray([cos(0.5), sin(0.5)]), np.asarray([-sin(0.5), cos(0.5)])
    return Moving(Place((0.3, 0.4), 0.5), tuple(speed * along + 0.7 * across), (0.9,), (rate,))


def skates_in_space(scale: float, more: float) -> Moving:
    speed, rate = skating(scale, more)
    turn = about("z", 0.5)
    return Moving(Place((0.3, 0.4, 0.0), turn), tuple(turn.apply((speed, 0.7, 0.2))), (0.9, 0.3, 0.1), (rate,))


UPRIGHT = about("x", pi / 2)
# Two motions each: one that the constraint allows, and one that misses.
SPEEDS: dict[str, dict[str, Callable[[float], list[Moving]]]] = {
    "planar": {
        "NonholonomicConstraint": lambda s: [skates(s, 0.0), skates(s, 0.1)],
        "Driver of a speed": lambda s: [
            Moving(Place((0.6, 0), 0.9), (swung(s), 0), (0.7,)),
            Moving(Place((0.6, 0), 0.9), (swung(s) + 0.1, 0.2), (0.7,), (0.2, 0.1)),
        ],
    },
    "spatial": {
        "NonholonomicConstraint": lambda s: [skates_in_space(s, 0.0), skates_in_space(s, 0.1)],
        "Driver of a speed": lambda s: [
            Moving(Place((0, 0, 0), about("z", 0.7)), (0, 0, 0), (0, 0, swung(s))),
            Moving(Place((0, 0, 0), about("z", 0.7)), (0, 0, 0), (0, 0, swung(s) + 0.1), (0, 0, 0, 0, 0, 0.1)),
        ],
        # Turning about its axis at 2 rad/s, which is the plane's y: the centre moves along x at 2 r.
        "RollingDisc": lambda s: [
            Moving(Place((0.4, -0.5, 0.4 * s), UPRIGHT), (0.8 * s, 0, 0), (0, 2, 0)),
            Moving(Place((0.4, -0.5, 0.4 * s), UPRIGHT), (0.8 * s + 0.1, 0.2, 0.3), (0, 2, 0), (0.3, 0.1, 0.2)),
        ],
    },
}
MOVED = [
    pytest.param(space, f"{case}{end}", id=f"{space}-{case}{end}")
    for space in SPEEDS
    for case in SPEEDS[space]
    for end in ("", " on ground")
]


@pytest.mark.parametrize(("space", "name"), MOVED)
def test_a_constraint_of_speeds_says_what_its_definition_says(space: str, name: str) -> None:
    b = bench(space, "joints")
    rows = np.concatenate([b.rows[n] for n in b.rows if n in (f"{name} helper", name)])
    for moving in SPEEDS[space][base(name)](scale_of(name)):
        q, v = b.q.copy(), np.zeros_like(b.v)
        axes, second = put(b, q, name, moving.place), markers_of(b, name)[1]
        i = [body.name for body in b.mechanism.bodies].index(second.body)
        (point,), _ = b.places([second], q)
        if space == "planar":
            (omega,), arm = moving.spin, q[3 * i : 3 * i + 2] - point
            v[3 * i : 3 * i + 3] = [*(axes @ moving.velocity + omega * np.asarray([-arm[1], arm[0]])), omega]
        else:
            omega, arm = axes @ moving.spin, q[7 * i : 7 * i + 3] - point
            turn = Rotation.from_matrix(rotation_matrix(q[7 * i + 3 : 7 * i + 7]))
            v[6 * i : 6 * i + 3] = axes @ moving.velocity + np.cross(omega, arm)
            v[6 * i + 3 : 6 * i + 6] = turn.inv().apply(omega)
        np.testing.assert_allclose(b(T, q, v)["velocity"][rows], moving.rate or np.zeros(len(rows)), atol=1e-12)


@pytest.mark.parametrize("space", TABLES)
@pytest.mark.parametrize("name", ["Driver of a body", "Driver of a body on ground"])
def test_a_driver_of_a_body_says_what_its_definition_says(space: str, name: str) -> None:
    b = bench(space, "joints")
    place = b.mechanism.coordinate_names.index(b.mechanism[name].coordinate)
    np.testing.assert_allclose(b.at["phi"][b.rows[name]], b.q[place] - SWING, atol=1e-12)
