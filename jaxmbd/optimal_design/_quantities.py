"""Quantities for objectives and constraints: transmission angles, turning cranks, centre of mass, holding efforts."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxmbd.analyses.redundancy import least_norm
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.arrays import Function, Number, Point, Scalar, as_float
from jaxmbd.checks import check_finite, check_instance, check_number
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.model.joint.joint import AbstractPair
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.state.state import State


def transmission_angle(
    mechanism: Mechanism, motion: State | Solution, joint: str, coupler: str, output: str
) -> Float[Array, "*times"]:
    """Return the transmission angle at a pin, between 0 and π/2.

    `tan μ = |a × b| / |a · b|`, with `a` from the pin to that at the coupler's other end, and `b` to that of the
    output link

    **Arguments:** the mechanism, in the plane; a `State`, or a `Solution` of many; the names of three joints: the pin
    between coupler and output link, the coupler's other pin, and the output link's other one.

    **Returns:** `μ` `[rad]`, one for each time of a solution.

    **Raises:** `MechanismError` for names that do not exist, and for a mechanism in space.

        >>> four_bar = mbd.examples.get("four-bar-with-springs").mechanism
        >>> state = mbd.assemble(four_bar, {"O.angle": 1.0})
        >>> print(f"{mbd.optimal_design.transmission_angle(four_bar, state, 'B', 'A', 'C'):.4f} rad")
        1.2058 rad

    Source: Alt, *Der Übertragungswinkel*, Werkstattstechnik 26 (1932); Erdman, Sandor, Kota, *Mechanism Design*
    (2001).
    """
    check_mechanism(mechanism)
    pairs = {pin.name: pin.markers[:1] for pin in mechanism.joints if isinstance(pin, AbstractPair)}
    check_known("joint", (joint, coupler, output), pairs)
    if mechanism.space.dim != 2:
        raise MechanismError("transmission_angle: a mechanism in the plane is needed, and this one is in space.")
    return _over(mechanism, motion, _transmission_angle, [pairs[name] for name in (joint, coupler, output)])


def _transmission_angle(at: Configuration, pins: Sequence[Any]) -> Scalar:
    here, there, out = (at.near(marker).frames[0].position for marker in pins)
    a, b = there - here, out - here
    return jnp.arctan2(jnp.abs(a[0] * b[1] - a[1] * b[0]), jnp.abs(jnp.sum(a * b)))


def centre_of_mass(mechanism: Mechanism, motion: State | Solution) -> Float[Array, "*times dim"]:
    """Return the position of the centre of mass of all bodies `[m]`.

    `p = Σ mᵢ pᵢ / Σ mᵢ`. It stands still in a force-balanced mechanism, which then shakes its base by no force.

    **Arguments:** a `State`, or a `Solution` of many.

    **Returns:** the position, `(dim,)` or `(times, dim)`.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> state = mbd.assemble(pendulum.mechanism, {"O.angle": 0.0})
        >>> print(mbd.optimal_design.centre_of_mass(pendulum.mechanism, state).round(4))  # [m]
        [0.5 0. ]

    Source: Berkof, Lowen, *A new method for completely force balancing simple linkages*, J. Eng. Ind. 91 (1969).
    """
    check_mechanism(mechanism)
    return _over(mechanism, motion, _centre_of_mass)


def _centre_of_mass(at: Configuration) -> Point:
    masses = jnp.stack([body.mass for body in at.mechanism.bodies])
    return jnp.sum(masses[:, None] * at.poses()[:, : at.space.dim], axis=0) / jnp.sum(masses)


def holding_effort(mechanism: Mechanism, motion: State | Solution, coordinate: str) -> Float[Array, "*times"]:
    """Return the effort along a coordinate that holds a mechanism of one degree of freedom at rest.

    `F − Cᵀ λ + Gᵀ τ = 0`, with the applied forces `F` at rest and `G v` the rate of the coordinate. It is zero at all
    positions of a mechanism whose weight is balanced.

    **Arguments:** a `State`, or a `Solution` of many, whose speeds are not used; the name of a coordinate of a joint
    or a body.

    **Returns:** `τ` `[N, N m]`, one for each time of a solution. The reactions are those of least norm.

    **Raises:** `MechanismError` for a name that does not exist.

        >>> pendulum = mbd.examples.get("pendulum")
        >>> state = mbd.assemble(pendulum.mechanism, {"O.angle": 0.0})
        >>> print(f"{mbd.optimal_design.holding_effort(pendulum.mechanism, state, 'O.angle'):.3f} N m")
        4.905 N m

    Source: principle of virtual power; Haug, *Computer Aided Kinematics and Dynamics of Mechanical Systems* (1989),
    §6.4.
    """
    check_mechanism(mechanism)
    mechanism.coordinate(coordinate)
    return _over(mechanism, motion, _holding_effort, coordinate)


def _holding_effort(at: Configuration, coordinate: str) -> Scalar:
    still = jnp.zeros(at.mechanism.nv, at.q.dtype)
    G = jax.jacfwd(lambda v: at.coordinate(coordinate, v)[1])(still)
    scales = at.equations.scales  # without them the rank of the rows would depend on the mechanism's size
    speeds = jnp.asarray(scales.speeds)
    rows = jnp.concatenate([scales.jacobian(at.jacobian), (speeds * G)[None]])
    return least_norm(rows.T, -speeds * at.force(still))[-1]


def crank_margins(ground: Number, crank: Number, coupler: Number, rocker: Number) -> Float[Array, "3"]:
    """Return three lengths that are all positive if the crank of a four-bar turns round while the rocker swings.

    `(k + r − g − c,  g + r − c − k,  g + k − c − r)`, Grashof's condition with the crank as the shortest link

    **Arguments:** the lengths `g, c, k, r` of the ground link, crank, coupler and rocker `[m]`.

    **Returns:** the margins `[m]`, for a `Limit(…, lower=0.0)`. Traced lengths of which one is not positive have no
    margin above that length.

    **Raises:** `MechanismError` unless the lengths are positive numbers, as far as their values are known.

        >>> print(mbd.optimal_design.crank_margins(2.0, 0.5, 1.5, 1.2).round(4))
        [0.2 1.2 1.8]

    Source: Grashof, *Theoretische Maschinenlehre* (1883).
    """
    given = {"ground": ground, "crank": crank, "coupler": coupler, "rocker": rocker}
    lengths = {name: as_float(value) for name, value in given.items()}
    for name, length in lengths.items():
        check_finite("crank_margins", name, length)
        check_number("crank_margins", name, length, "m")
    g, c, k, r = lengths.values()
    margins, least = jnp.stack([k + r - g - c, g + r - c - k, g + k - c - r]), jnp.min(jnp.stack([g, c, k, r]))
    return jnp.where(least > 0, margins, jnp.minimum(margins, least))


def _over(mechanism: Mechanism, motion: State | Solution, of: Function, *arguments: PyTree) -> Array:
    """Return a function of the position, at a state or at all times of a solution."""
    check_instance("motion", motion, (State, Solution), "a State, or a Solution of kinematics or simulate")
    t = motion.t if isinstance(motion, State) else jnp.asarray(motion.ts)
    return _values(mechanism, t, motion.q, of, arguments)


@cached_on_disk
def _values(mechanism: Mechanism, t: Array, q: Array, of: Function, arguments: tuple[PyTree, ...]) -> Array:
    equations = Equations(mechanism)
    one = lambda t, q: of(equations.at(t, q), *arguments)  # noqa: E731
    return jax.vmap(one)(t, q) if t.ndim else one(t, q)
