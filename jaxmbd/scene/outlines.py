"""Outlines of symbols as points `(k, 2)`, in units of the symbol size; a row of NaN interrupts the line."""

import numpy as np
from jaxtyping import Float

Points = Float[np.ndarray, "_ 2"]  # a hull has fewer points than it was made of

LIFT = np.full((1, 2), np.nan)


def turned(points: np.ndarray, angle: np.ndarray | float) -> np.ndarray:
    """Points, or one point for each of many angles, rotated by an angle [rad]."""
    c, s = np.cos(angle), np.sin(angle)
    x, y = points[..., 0], points[..., 1]
    return np.stack([c * x - s * y, s * x + c * y], axis=-1)


def moved(points: Points, x: float = 0.0, y: float = 0.0) -> Points:
    """Points translated along the axes."""
    return points + np.array([x, y])


def strokes(*lines: Points) -> Points:
    """Several lines as one, with interruptions between them."""
    return np.concatenate([part for line in lines for part in (line, LIFT)][:-1])


def straight(length: float) -> Points:
    """A line along the x axis from the origin."""
    return np.array([(0.0, 0.0), (length, 0.0)])


def arc(radius: float, start: float = 0.0, stop: float = 2 * np.pi, points: int = 49) -> Points:
    """A circle about the origin, or a part of it."""
    angle = np.linspace(start, stop, points)
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def box(length: float, height: float) -> Points:
    """A rectangle about the origin."""
    x, y = length / 2, height / 2
    return np.array([(-x, -y), (x, -y), (x, y), (-x, y), (-x, -y)])


def stadium(start: float, stop: float, radius: float) -> Points:
    """A slot along the x axis whose rounded ends are centred at `start` and `stop`."""
    right = moved(arc(radius, -np.pi / 2, np.pi / 2, 25), x=stop)
    left = moved(arc(radius, np.pi / 2, 3 * np.pi / 2, 25), x=start)
    return np.concatenate([right, left, right[:1]])


def hatched(start: float, stop: float, spacing: float = 0.7, depth: float = 0.7) -> Points:
    """The edge of the ground: a straight line along the x axis with hatches below it."""
    count = max(int(np.ceil((stop - start) / spacing)), 2)
    feet = start + (np.arange(count) + 0.5) * (stop - start) / count
    hatches = [np.array([(x + depth / 2, 0.0), (x - depth / 2, -depth)]) for x in feet]
    return strokes(np.array([(start, 0.0), (stop, 0.0)]), *hatches)


def support() -> Points:
    """A pin's bearing on the ground: a triangle below the origin, on a hatched edge."""
    triangle = np.array([(0.0, 0.0), (-1.1, -1.7), (1.1, -1.7), (0.0, 0.0)])
    return strokes(triangle, moved(hatched(-1.8, 1.8), y=-1.7))


def zigzag(length: float, coils: int, width: float, lead: float) -> Points:
    """A spring along the x axis from the origin, with straight leads at its ends."""
    lead = min(lead, 0.35 * length)
    x = np.linspace(lead, length - lead, 2 * coils + 1)
    y = np.concatenate([[0.0], np.where(np.arange(2 * coils - 1) % 2, -width, width), [0.0]])
    ends = np.array([(0.0, 0.0)]), np.array([(length, 0.0)])
    return np.concatenate([ends[0], np.stack([x, y], axis=1), ends[1]])


def dashpot(length: float, width: float, cup: float) -> Points:
    """A damper along the x axis from the origin: a piston in a cup that is open to the right."""
    cup = min(cup, 0.5 * length)
    left, right = (length - cup) / 2, (length + cup) / 2
    piston = left + 0.5 * cup
    walls = np.array([(right, width), (left, width), (left, -width), (right, -width)])
    return strokes(
        np.array([(0.0, 0.0), (left, 0.0)]),
        walls,
        np.array([(piston, 0.75 * width), (piston, -0.75 * width)]),
        np.array([(piston, 0.0), (length, 0.0)]),
    )


def spiral(radius: float, turns: float) -> Points:
    """A torsional spring: a spiral from the origin outwards that ends on the x axis."""
    angle = np.linspace(0.0, 2 * np.pi * turns, int(32 * turns))
    return (radius * angle / angle[-1])[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def round_arrow(radius: float, sign: float = 1.0) -> Points:
    """An arc above the origin with an arrow head: a torque, counter-clockwise for a positive sign."""
    line = arc(radius, -0.1 * np.pi, 1.1 * np.pi)
    tip, back = line[-1], line[-6]
    along = (tip - back) / np.linalg.norm(tip - back)
    side = turned(along, np.pi / 2)
    head = np.stack([tip - 0.9 * along + 0.5 * side, tip, tip - 0.9 * along - 0.5 * side])
    whole = strokes(line, head)
    return whole if sign >= 0 else whole * np.array([-1.0, 1.0])


def gear_ticks(radius: float, count: int, depth: float) -> Points:
    """Short radial ticks inside a pitch circle, for teeth."""
    ray = np.array([(radius - depth, 0.0), (radius, 0.0)])
    return strokes(*(turned(ray, angle) for angle in 2 * np.pi * np.arange(count) / count))


def hull(points: Points) -> Points:
    """The corners of the convex hull, counter-clockwise; the two ends if all points lie on a line."""
    ordered = np.array(sorted({(float(x), float(y)) for x, y in points}))
    if len(ordered) < 3:
        return ordered
    tolerance = 1e-9 * float(np.sum(np.ptp(ordered, axis=0) ** 2))
    chains = [_chain(ordered, tolerance), _chain(ordered[::-1], tolerance)]
    return np.array([*chains[0][:-1], *chains[1][:-1]])


def _chain(points: Points, tolerance: float) -> list[np.ndarray]:
    """The lower half of the hull of points sorted by x (Andrew's monotone chain)."""
    chain: list[np.ndarray] = []
    for point in points:
        while len(chain) > 1 and _turn(chain[-2], chain[-1], point) <= tolerance:
            chain.pop()
        chain.append(point)
    return chain


def _turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    """The cross product of `b − a` and `c − a`, which is positive for a turn to the left."""
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))
