"""Position solve: the residual of the position constraints, the search for its roots, and their derivatives.

The search (`least_squares.py`) finds *a* closed position near its start. The implicit function theorem gives its
derivative, the change of least norm that keeps the joints closed. The *nearest* closed position takes one more solve,
of the first-order optimality conditions; its derivative is exact. Searches and norms are those of coordinates and
residuals without units (`Scales`), so that they do not depend on the size of the mechanism.

Source: Nocedal, Wright, *Numerical Optimization* (2006), §18.1 (the conditions).
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.sides import guards, off_the_ridge
from jaxmbd.analyses.redundancy import least_norm
from jaxmbd.arrays import Scalar
from jaxmbd.engine import as_program
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.errors import MechanismError
from jaxmbd.model.mechanism.mechanism import Mechanism, Sensor
from jaxmbd.model.mechanism.quantities import ANGLES, channel_units
from jaxmbd.model.sensor import AbstractSensor, Point, Scaled
from jaxmbd.numerics.least_squares import least_squares
from jaxmbd.space.vectors import nearest_turn
from jaxmbd.state.output_channels import Reader, Snapshot

_SOFT = 1e-2  # penalty method before the optimality conditions are solved: a squared residual has the weight 1 / _SOFT²

# The equations; the prescribed coordinates, readings and poses, `{"crank.theta": value, "rod": pose}`; the time.
ClosureProblem = tuple[Equations, dict[str, Array], Scalar]


def closure(q: Float[Array, " nq"], closing: ClosureProblem) -> Float[Array, " rows"]:
    """Return the residual of a closure: `Φ(q, t)` and, below it, the residuals of prescribed coordinates and poses."""
    return as_program(closure_rows)(q, closing)


def closure_rows(q: Array, closing: ClosureProblem) -> Array:
    """Return the same by JAX alone, as a part of a larger program."""
    equations, prescribed, t = closing
    return _rows_at(equations.at(t, q), prescribed)


def _rows_at(at: Configuration, prescribed: dict[str, Array]) -> Array:
    return jnp.concatenate([at.position(), *(_residual(at, name, value) for name, value in prescribed.items())])


def row_scales(equations: Equations, prescribed: Iterable[str]) -> Float[Array, " rows"]:
    """Return the scale of each row of a closure."""
    units = prescribed_units(equations.mechanism, prescribed)
    return jnp.concatenate([equations.scales.rows, equations.scales.of(*units)])


def prescribed_units(mechanism: Mechanism, prescribed: Iterable[str]) -> tuple[str, ...]:
    """Return the unit of each row of a closure that follows those of the constraints."""
    pose_units = ["m"] * mechanism.space.dim + ["rad"] * (len(mechanism.space.speeds) - mechanism.space.dim)
    bodies, units = {body.name for body in mechanism.bodies}, []
    for name in prescribed:
        if name in bodies:
            units += pose_units
        elif is_reading(mechanism, name):
            units += [channel_units(mechanism)[name]] * rows_of(mechanism, name)
        else:
            units.append(mechanism.coordinate(name).unit(mechanism.space))
    return tuple(units)


def scaled_closure(x: Float[Array, " nq"], closing: ClosureProblem) -> Float[Array, " rows"]:
    """Return the residual of a closure without units, at coordinates without units."""
    return closure(_unscaled(x, closing), closing) / row_scales(closing[0], closing[1])


def _scaled(q: Array, closing: ClosureProblem) -> Array:
    return q / closing[0].scales.coordinates


def _unscaled(x: Array, closing: ClosureProblem) -> Array:
    return x * closing[0].scales.coordinates


def guarded(q: Float[Array, " nq"], closing: ClosureProblem) -> Float[Array, " rows"]:
    """Return the residual of a closure and, below it, the guards of joints with a side (`sides.py`)."""
    return as_program(_guarded_rows)(q, closing)


def _guarded_rows(q: Array, closing: ClosureProblem) -> Array:
    equations, prescribed, t = closing
    at = equations.at(t, q)
    return jnp.append(_rows_at(at, prescribed), guards(at))


def closest_guarded(closing: ClosureProblem, start: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """Return a minimiser near a start of the sum of squares of the guarded residual, without units."""
    start = _scaled(off_the_ridge(closing[0], closing[2], start), closing)
    return _unscaled(least_squares(_scaled_guarded, start, closing, _scaled_guarded_rows), closing)


def _scaled_guarded(x: Array, closing: ClosureProblem) -> Array:
    return as_program(_scaled_guarded_rows)(x, closing)


def _scaled_guarded_rows(x: Array, closing: ClosureProblem) -> Array:
    scales = row_scales(closing[0], closing[1])
    rows = _guarded_rows(_unscaled(x, closing), closing)
    return jnp.append(rows[: len(scales)] / scales, rows[len(scales) :])


def _residual(at: Configuration, name: str, value: Array) -> Array:
    """Return the residual of a prescribed coordinate, reading or pose; of an angle, up to the nearest whole turn."""
    mechanism, bodies = at.mechanism, [body.name for body in at.mechanism.bodies]
    if name in bodies:
        here, there = jax.tree.map(lambda x: x[bodies.index(name)], at.bodies.frames), at.space.place(value)
        return jnp.append(here.position - there.position, there.turn(here))
    if is_reading(mechanism, name):
        return missed_reading(at, name, value)
    return missed_coordinate(at, name, value)[None]


def missed_coordinate(at: Configuration, name: str, value: Scalar) -> Scalar:
    """Return how far a coordinate is from a value; an angle that follows from frames, up to the nearest whole turn."""
    mechanism = at.mechanism
    if name in mechanism.tree.coordinates:
        return at.q[mechanism.tree.coordinates.index(name)] - value
    coordinate = mechanism.coordinate(name).by(value)
    return coordinate.value(at.near(coordinate.markers).frames) - value


@eqx.filter_custom_jvp
def closed(closing: ClosureProblem, start: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """Return a closed position near `start`. Its derivative is the change of least norm that keeps it closed."""
    return closest_guarded(closing, start)


@closed.def_jvp
def _closed_jvp(primals: tuple[Any, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    """Apply the implicit function theorem: `A δq = −∂Φ/∂p δp`, solved with least norm."""
    (closing, start), (changes, _) = primals, tangents
    q = closed(closing, start)
    return q, _unscaled(_response(scaled_closure, _scaled(q, closing), closing, changes), closing)


def nearest(
    closing: ClosureProblem, weights: Float[Array, " nq"], guess: Float[Array, " nq"], start: Float[Array, " nq"]
) -> tuple[Float[Array, " nq"], Scalar]:
    """Return the closed position nearest to `guess`, from a closed start, and the residual of its optimality condition.

    The position is stationary for `½ (q − q₀)ᵀ W (q − q₀)` subject to `Φ(q) = 0`: `z + Aᵀ μ = 0` with
    `z = W^½ (q − q₀)` and `A = ∂Φ/∂z`. Its derivative is that of these conditions, also with respect to `q₀` and `W`.
    """
    root = jnp.sqrt(weights)
    root = root / jax.lax.stop_gradient(jnp.max(_unscaled(root, closing)))  # a common factor changes nothing
    problem = (closing, root, guess)
    unknowns = _stationary(problem, root * (start - guess))
    slope = _optimality(unknowns, problem)[: guess.shape[0]]
    return guess + unknowns[: guess.shape[0]] / root, jnp.max(jnp.abs(slope))


@eqx.filter_custom_jvp
def _stationary(problem: Any, start: Array) -> Array:
    """Return `z` and `μ`. A penalty method approaches the minimum, then the optimality conditions are solved."""
    soft = least_squares(lambda z, p: jnp.append(_weighted_closure(z, p) / _SOFT, z), start, problem)
    A = jax.jacfwd(_weighted_closure)(soft, problem)
    mu = least_norm(A.T, -soft)
    return least_squares(_optimality, jnp.append(soft, mu), problem)


@_stationary.def_jvp
def _stationary_jvp(primals: tuple[Any, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    (problem, start), (changes, _) = primals, tangents
    unknowns = _stationary(problem, start)
    return unknowns, _response(_optimality, unknowns, problem, changes)


def _weighted_closure(z: Array, problem: Any) -> Array:
    """Return the residual of the closure at `q₀ + W^-½ z`."""
    closing, root, guess = problem
    return closure(guess + z / root, closing) / row_scales(closing[0], closing[1])


def _optimality(unknowns: Array, problem: Any) -> Array:
    """Return the residual of the optimality conditions, `z + Aᵀ μ` and `Φ`."""
    z, mu = jnp.split(unknowns, [problem[-1].shape[0]])
    rows, pull = jax.vjp(lambda z: _weighted_closure(z, problem), z)
    return jnp.append(z + pull(mu)[0], rows)


def _response(residual: Callable[[Array, Any], Array], x: Array, args: Any, changes: Any) -> Array:
    """Return the tangent of a root `x` of a residual for tangents of its arguments, the solution of least norm."""
    _, miss = eqx.filter_jvp(lambda a: residual(x, a), (args,), (changes,))
    if miss is None:
        return jnp.zeros_like(x)
    return -least_norm(jax.jacfwd(residual)(x, args), miss)


def is_reading(mechanism: Mechanism, name: str) -> bool:
    """Return True if the name is that of a reading that can be prescribed."""
    sensor = _sensor(mechanism, name)
    if isinstance(sensor, Scaled):
        return is_reading(mechanism, sensor.of) or _is_coordinate(mechanism, sensor.of)
    if sensor is None:
        return _is_angle(mechanism, name)
    return isinstance(sensor, AbstractSensor) and sensor.of_position


def _sensor(mechanism: Mechanism, name: str) -> Sensor | None:
    return next((sensor for sensor in mechanism.sensors if sensor.name == name), None)


def _is_angle(mechanism: Mechanism, name: str) -> bool:
    owner, _, component = name.partition(".")
    return mechanism.space.dim == 3 and component in ANGLES and owner in [body.name for body in mechanism.bodies]


def _is_coordinate(mechanism: Mechanism, name: str) -> bool:
    try:
        mechanism.coordinate(name)
    except MechanismError:
        return False
    return True


def shape_of(mechanism: Mechanism, name: str) -> tuple[int, ...]:
    """Return the shape of a prescribed quantity."""
    sensor = _sensor(mechanism, name)
    if isinstance(sensor, Scaled):
        return shape_of(mechanism, sensor.of)
    return (mechanism.space.dim,) if isinstance(sensor, Point) else ()


def rows_of(mechanism: Mechanism, name: str) -> int:
    """Return the number of components of a prescribed quantity."""
    return math.prod(shape_of(mechanism, name))


def missed_reading(at: Configuration, name: str, value: Array) -> Array:
    """Return a reading minus its prescribed value; for an angle, up to the nearest whole turn."""
    reading = Reader(at.equations, Snapshot.at_rest(at.equations, at.t, at.q)).read(name)
    return jnp.atleast_1d((nearest_turn(reading, value) if is_modulo_turns(at.mechanism, name) else reading) - value)


def is_modulo_turns(mechanism: Mechanism, name: str) -> bool:
    """Return True for a reading of an angle that does not count whole turns; coordinates do, and what is scaled."""
    is_scaled = isinstance(_sensor(mechanism, name), Scaled)
    return is_reading(mechanism, name) and not is_scaled and channel_units(mechanism)[name] == "rad"
