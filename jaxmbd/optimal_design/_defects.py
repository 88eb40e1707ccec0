"""Circuits, branches and the order of positions of linkages with one degree of freedom.

The positions that a linkage can reach without being taken apart form curves, its *circuits*. Dead points, at which the
input stands still along the curve, divide a circuit into *branches*; the input drives the linkage along one branch.
A circuit is followed by predictor and corrector along the null vector of the constraint Jacobian, which has no
difficulty at dead points. So the same test serves every linkage, without formulas for its type.

Source: Chase, Mirth, *Circuits and branches of single-degree-of-freedom planar linkages*, J. Mech. Des. 115 (1993);
Erdman, Sandor, Kota, *Mechanism Design* (2001); Allgower, Georg, *Introduction to Numerical Continuation
Methods* (2003), ch. 2.
"""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.arrays import Scalar
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.model.mechanism.mechanism import Mechanism

Defect = Literal["", "circuit defect", "branch defect", "order defect", "no full turn", "not traced"]

_LARGEST, _LEAST = 0.03, 1e-6  # steps along a circuit, in the norm of scaled speeds [rad]
_POINTS = 4096  # most points of a circuit
_CLOSED = 1e-6  # closure residual without units up to which a point lies on the circuit
_CORRECTION = 0.1  # share of the step: a larger correction halves the step
_COSINE = 0.95  # of the angle between two tangents: a sharper bend halves the step
_NEAR = 0.15  # share of the distance of two points within which a position counts as lying between them
_ABOUT = 0.05  # share of a circuit by which a path that closes may overlap itself
_SAME = 0.5  # points along a circuit within which two positions count as one
_NEWTON_STEPS = 4


class Circuit(NamedTuple):
    """A circuit as points along it.

    - `placed`: the bodies' placements as numbers, positions as shares of the size; `drive`: the rate of the input
      along the circuit; `is_closed`: whether the last point is followed by the first one. If not, it was given up
      there, and how the circuit goes on is unknown.
    """

    placed: Float[np.ndarray, "points numbers"]
    drive: Float[np.ndarray, " points"]
    is_closed: bool


def placement(at: Configuration, size: Scalar) -> Array:
    """Return the bodies' positions, as shares of a size, and the directions of their axes as one vector."""
    frames = jax.tree.map(lambda x: x[:-1], at.bodies.frames)  # without the ground
    numbers = jax.vmap(lambda f: jnp.concatenate([f.position / size, f.axis, f.normal]))(frames)
    return numbers.reshape(-1)


@cached_on_disk
def _placements(mechanism: Mechanism, q: Float[Array, "positions nq"], size: Scalar) -> Array:
    equations = Equations(mechanism)
    return jax.vmap(lambda q: placement(equations.at(jnp.zeros((), q.dtype), q), size))(q)


@eqx.filter_jit
def _trace(mechanism: Mechanism, q: Array, size: Scalar, input: str) -> tuple[Array, Array, Array, Array]:
    """Follow the circuit of a closed position until it returns; return points, rates of the input, their count, and
    whether it has returned: it is given up after `_POINTS`, or where no step is short enough."""
    equations, time = Equations(mechanism), jnp.zeros((), q.dtype)
    scales: Any = equations.scales
    home = placement(equations.at(time, q), size)

    def tangent(q: Array, along: Array) -> Array:
        _, _, rows = jnp.linalg.svd(scales.jacobian(equations.jacobian(time, q)), full_matrices=True)
        return rows[-1] * jnp.where(jnp.sum(rows[-1] * along) < 0, -1.0, 1.0)

    def corrected(q: Array) -> Array:
        def newton(q: Array, _: None) -> tuple[Array, None]:
            at = equations.at(time, q)
            step = -jnp.linalg.pinv(scales.jacobian(at.jacobian), rtol=1e-9) @ (at.position() / scales.rows)
            return at.perturbed(scales.speeds * step), None

        return jax.lax.scan(newton, q, None, length=_NEWTON_STEPS)[0]

    def point(q: Array, along: Array) -> tuple[Array, Array]:
        at = equations.at(time, q)
        return placement(at, size), at.coordinate(input, scales.speeds * along)[1]

    def running(carry: tuple[Array, ...]) -> Array:
        _, _, step, count, _, _, returned = carry
        return (count < _POINTS) & ~returned & (step > _LEAST)

    def advance(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        q, along, step, count, placed, drive, returned = carry
        predicted = equations.at(time, q).perturbed(step * scales.speeds * along)
        later = corrected(predicted)
        next_along = tangent(later, along)
        missed = jnp.max(jnp.abs(equations.position(time, later) / scales.rows))
        correction = jnp.max(jnp.abs((later - predicted) / scales.coordinates))
        accepted = (correction <= _CORRECTION * step) & (missed < _CLOSED)
        accepted &= jnp.sum(along * next_along) > _COSINE
        here, rate = point(later, next_along)
        last = placed[count - 1]
        # The first point lies between the last two: the curve is closed.
        is_home = accepted & (count > 3) & (_off(home, last, here) < _NEAR) & _is_between(home, last, here)
        placed = jnp.where(accepted, placed.at[count].set(here), placed)
        drive = jnp.where(accepted, drive.at[count].set(rate), drive)
        q, along = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), (later, next_along), (q, along))
        step = jnp.where(accepted, jnp.minimum(1.5 * step, _LARGEST), step / 2)
        return q, along, step, count + accepted, placed, drive, returned | is_home

    q = corrected(q)
    along = tangent(q, jnp.ones(mechanism.nv, q.dtype))
    first, rate = point(q, along)
    placed = jnp.zeros((_POINTS, len(first)), q.dtype).at[0].set(first)
    drive = jnp.zeros(_POINTS, q.dtype).at[0].set(rate)
    begin = (q, along, jnp.asarray(_LARGEST, q.dtype), jnp.asarray(1), placed, drive, jnp.asarray(False))
    _, _, _, count, placed, drive, returned = jax.lax.while_loop(running, advance, begin)
    return placed, drive, count, returned


def _off(point: Array, a: Array, b: Array) -> Array:
    """Return the distance of a point from the segment between two others, as a share of its length."""
    length = jnp.linalg.norm(b - a) + 1e-300
    share = jnp.clip(jnp.sum((point - a) * (b - a)) / length**2, 0.0, 1.0)
    return jnp.linalg.norm(point - a - share * (b - a)) / length


def _is_between(point: Array, a: Array, b: Array) -> Array:
    share = jnp.sum((point - a) * (b - a)) / (jnp.sum((b - a) ** 2) + 1e-300)
    return (share >= 0) & (share <= 1)


def trace(mechanism: Mechanism, q: Float[Array, " nq"], size: float, input: str) -> Circuit:
    """Return the circuit through a closed position of a mechanism with one degree of freedom."""
    placed, drive, count, returned = map(np.asarray, _trace(mechanism, q, jnp.asarray(size, q.dtype), input))
    points = int(count) - bool(returned)  # the last one lies beyond the first
    return Circuit(placed[:points], drive[:points], bool(returned))


def defect_of(
    mechanism: Mechanism, q: Float[Array, "positions nq"], size: float, input: str, full_turn: bool = False
) -> Defect:
    """Return the defect of the precision positions of a linkage; "" if it has none, "not traced" if what is known of
    the circuit does not decide it.

    **Arguments:** the coordinates of the closed positions, in their order; the size of the mechanism `[m]`; the input;
    `full_turn`: whether the input has to turn round.
    """
    circuit = trace(mechanism, q[0], size, input)
    places = np.asarray(_placements(mechanism, q, jnp.asarray(size, q.dtype)))
    defect = _defect_on(circuit, np.array([_locate(circuit, place) for place in places]), full_turn)
    # Of a circuit that was given up, what is missing may lie behind its last point.
    return "not traced" if defect and not circuit.is_closed else defect


def _defect_on(circuit: Circuit, found: Float[np.ndarray, " positions"], full_turn: bool) -> Defect:
    """Return the defect of positions by where they lie on a circuit."""
    if np.isnan(found).any():
        return "circuit defect"
    turns = circuit.is_closed and _is_driven(circuit, np.ones(len(circuit.drive), bool))
    if full_turn and not turns:
        return "no full turn"
    ways = [_way(found, len(circuit.drive), sign, circuit.is_closed) for sign in (1, -1)]
    ordered = [way for way in ways if way is not None]
    # A path that is out of order may still lie on one branch: the less severe defect is then named.
    if any(_is_driven(circuit, way) for way in ordered):
        return ""
    if turns:
        return "order defect"
    return _on_one_branch(circuit, found)


def _locate(circuit: Circuit, place: Float[np.ndarray, " numbers"]) -> float:
    """Return where a placement lies on a circuit, in points from its start; NaN if it does not."""
    a = circuit.placed
    b = np.roll(a, -1, axis=0) if circuit.is_closed else np.concatenate([a[1:], a[-1:]])
    lengths = np.maximum(np.linalg.norm(b - a, axis=1), 1e-150)  # the last one of an open circuit is none
    shares = np.clip(((place - a) * (b - a)).sum(axis=1) / lengths**2, 0.0, 1.0)
    off = np.linalg.norm(place - a - shares[:, None] * (b - a), axis=1)
    k = int(np.argmin(off))
    return k + shares[k] if off[k] <= _NEAR * lengths[k] else float("nan")


def _way(
    found: Float[np.ndarray, " positions"], count: int, sign: int, is_closed: bool
) -> Bool[np.ndarray, " k"] | None:
    """Return the points that a path passes if it takes the positions in their order; None if it cannot."""
    ahead = sign * np.diff(found)
    if is_closed:
        ahead = np.mod(ahead, count)
        ahead = np.where(ahead > count - _SAME, 0.0, ahead)  # two positions that are the same
    if (ahead < -_SAME).any() or ahead.sum() > (1 + _ABOUT) * count:
        return None
    passed = np.zeros(count, bool)
    first = round(found[0])
    steps = np.arange(int(min(max(ahead.sum(), 0.0), count - 1)) + 1)
    passed[np.mod(first + sign * steps, count)] = True
    return passed


def _is_driven(circuit: Circuit, passed: Bool[np.ndarray, " points"]) -> bool:
    """Return True if the input never stands still at the points that a path passes."""
    drive = circuit.drive[passed]
    return bool((drive > 0).all() or (drive < 0).all())


def _on_one_branch(circuit: Circuit, found: Float[np.ndarray, " positions"]) -> Defect:
    """Return the defect of a path on a closed circuit that the input does not drive: of order if all positions lie on
    one branch."""
    signs = np.sign(circuit.drive)
    changes = np.flatnonzero(signs != np.roll(signs, 1))
    if not len(changes):
        return "order defect"
    branches = np.mod(np.searchsorted(changes, np.floor(found), side="right"), len(changes))
    return "order defect" if len(set(branches.tolist())) == 1 else "branch defect"
