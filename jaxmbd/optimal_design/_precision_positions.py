"""Precision positions: what a linkage to be synthesised has to do, as residuals of one vector of unknowns.

The unknowns are the design variables, the free zeros of scales, and the coordinates of the mechanism at each precision
position. Closure and prescribed timing are rows with a weight that grows during the search. So the search never has to
assemble a mechanism: it passes through dimensions that cannot be assembled, and the coordinates that it starts from
decide on the assembly mode.
"""

from collections.abc import Callable, Iterable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.multistart import extent, in_joint_coordinates, random_starts
from jaxmbd.analyses.assembly.position_solve import closure, is_reading, rows_of, shape_of
from jaxmbd.analyses.redundancy import jacobian
from jaxmbd.arrays import Numbers, as_float
from jaxmbd.checks import check_finite, check_mapping, checked_names
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.numerics.bounded_least_squares import damped_step
from jaxmbd.numerics.least_squares import with_jacobian
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.optimal_design._limits import Limits
from jaxmbd.optimal_design._variables import Variables

_DRAWN = 16  # random points from which one start is drawn if there are limits
_BETWEEN, _CLOSING_STEPS, _DAMPING = 3, 3, 1e-12  # steps of the input between two positions, and the search in each
_CLOSES = 1e-6  # share of the length of a path by which its ends may differ if it is closed
_ZERO_RANGE = np.pi  # free zeros of angles start within ± this


class Task(eqx.Module):
    """What has to be followed at the precision positions, and what is prescribed exactly.

    - `follow`: for each name the values to be approximated, `(positions, ...)`, and `timing`: those that are exact;
    - `scales`: the size of an error in each row of `follow` that counts as one; `size`: that of a length;
    - `free_zeros`: names whose values are measured from a zero that is free.
    """

    follow: dict[str, Array]
    timing: dict[str, Array]
    scales: dict[str, Array]
    size: Array
    input: str = eqx.field(static=True)
    free_zeros: tuple[str, ...] = eqx.field(static=True)

    @property
    def positions(self) -> int:
        """The number of precision positions."""
        return len(next(iter(self.follow.values())))


def task_of(
    mechanism: Mechanism, follow: Mapping[str, Numbers], input: str, timing: Numbers | None, free_zeros: Iterable[str]
) -> Task:
    """Check the precision positions of a mechanism.

    **Raises:** `MechanismError` for unknown names, for values of wrong shape, and unless the mechanism has one degree
    of freedom.
    """
    check_mapping("synthesise: follow", follow, "{'P': points}")
    if not follow:
        raise MechanismError("synthesise: follow must name at least one reading: {'P': points}.")
    tree = in_joint_coordinates(mechanism)
    bodies = [body.name for body in mechanism.bodies]
    values = {name: _values(tree, bodies, name, given) for name, given in follow.items()}
    counts = {name: len(value) for name, value in values.items()}
    if len(set(counts.values())) > 1:
        raise MechanismError(f"synthesise: follow must give as many positions for each name, got {counts}.")
    positions = next(iter(counts.values()))
    tree.coordinate(input)
    exact = {}
    if timing is not None:
        exact[input] = as_float(timing)
        check_finite("synthesise", "timing", exact[input], (positions,))
    zeros = checked_names("synthesise: free_zeros", free_zeros, input)
    scalars = [name for name, value in {**values, **exact}.items() if value.ndim == 1]
    check_known("angle or length with a free zero", zeros, scalars)
    _check_freedom(tree)
    size = as_float(_size_of(tree, values))
    units = channel_units(tree)
    scales = {n: _scales(n in bodies, units.get(n) == "rad", v, size) for n, v in values.items()}
    return Task(values, exact, scales, size, input, zeros)


def _values(mechanism: Mechanism, bodies: list[str], name: str, given: Numbers) -> Array:
    """Return the values of one name as an array, a row for each position."""
    value = as_float(given)
    if name in bodies:
        if mechanism.space.dim != 2:
            raise MechanismError(f"synthesise: follow {name!r}: poses of bodies are followed in the plane only.")
        own: tuple[int, ...] = (3,)
    else:
        if not is_reading(mechanism, name):
            mechanism.coordinate(name)  # raises for a name that does not exist
        own = shape_of(mechanism, name)
    if not isinstance(value, Array) or value.ndim != 1 + len(own) or value.shape[1:] != own or len(value) < 2:
        shape = getattr(value, "shape", value)
        raise MechanismError(
            f"synthesise: follow {name!r} needs values of shape {('positions', *own)}, for two positions or more; got "
            f"{shape}."
        )
    check_finite("synthesise: follow", repr(name), value, value.shape)
    return value


def _size_of(mechanism: Mechanism, values: dict[str, Array]) -> float:
    """Return the size of what is followed [m], or of the mechanism if that is angles alone."""
    spreads = [float(np.linalg.norm(np.ptp(np.asarray(v)[:, :2], axis=0))) for v in values.values() if v.ndim > 1]
    largest = max(spreads, default=0.0)
    return largest if largest > 0 else extent(mechanism)[1]


def _scales(is_pose: bool, is_angle: bool, value: Array, size: Array) -> Array:
    if is_pose:
        return jnp.stack([size, size, jnp.ones_like(size)])
    width = int(np.prod(value.shape[1:], dtype=int))
    return jnp.ones(width, size.dtype) if is_angle else jnp.broadcast_to(size, (width,))


def _check_freedom(mechanism: Mechanism) -> None:
    q = random_starts(mechanism, 1, 0)[0]
    freedom = mechanism.nv - int(rank_of(jnp.asarray(jacobian(mechanism, jnp.zeros((), q.dtype), q))))
    if mechanism.drivers:
        raise MechanismError("synthesise: leave the drivers out: input names the coordinate that moves the mechanism.")
    if freedom != 1:
        raise MechanismError(
            f"synthesise: the mechanism has {freedom} degrees of freedom, and a linkage to be synthesised has one. "
            "Couple two coordinates by a Gear, or remove or add a joint."
        )


class Positions(eqx.Module):
    """The residuals of a task, and the arrangement of its unknowns: variables, free zeros, coordinates."""

    variables: Variables
    task: Task
    limits: Limits
    nq: int = eqx.field(static=True)

    def split(self, z: Float[Array, " n"]) -> tuple[Array, dict[str, Array], Float[Array, "positions nq"]]:
        """Return the scaled variables, the free zeros by name, and the coordinates at each position."""
        count, zeros = len(self.variables.labels), self.task.free_zeros
        x, offsets, q = jnp.split(z, [count, count + len(zeros)])
        return x, dict(zip(zeros, offsets, strict=True)), q.reshape(-1, self.nq)

    def mechanism(self, z: Float[Array, " n"]) -> Mechanism:
        """Return the mechanism in joint coordinates."""
        return in_joint_coordinates(self.variables.mechanism(self.split(z)[0]))

    def prescribed(self, z: Float[Array, " n"]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the values to be followed, and those that are exact, with the free zeros added."""
        zeros = self.split(z)[1]
        shift = lambda n, v: v + zeros[n] if n in zeros else v  # noqa: E731
        task = self.task
        return {n: shift(n, v) for n, v in task.follow.items()}, {n: shift(n, v) for n, v in task.timing.items()}

    def starts(self, count: int, seed: int) -> Float[Array, "count n"]:
        """Return random starting points: variables within their ranges, and for each a motion in one assembly mode.

        With limits, the variables are those of more random points that violate them least.
        """
        x = self.variables.random(count, seed)
        if self.limits:
            x = self.variables.random(count * _DRAWN, seed)
            x = x[jnp.argsort(_missed(self, x), stable=True)[:count]]
        first = random_starts(in_joint_coordinates(self.variables.mechanism(self.variables.start)), count, seed)
        keys = jax.random.split(jax.random.key(seed + 1), count)
        shares, is_closed = _shares(self.task)
        return _motions(self, x, first.astype(x.dtype), keys, jnp.asarray(shares, x.dtype), is_closed)

    def bounds(self, unknowns: int) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return the bounds of the unknowns."""
        rest = jnp.full(unknowns - len(self.variables.labels), jnp.inf)
        return jnp.concatenate([self.variables.lower, -rest]), jnp.concatenate([self.variables.upper, rest])


@eqx.filter_jit
def _missed(positions: Positions, x: Float[Array, "count n"]) -> Float[Array, " count"]:
    """Return the sum of squares of the violations of all limits."""

    def one(x: Array) -> Array:
        mechanism = positions.variables.mechanism(x)
        rows = [limit.violations(limit.value(n, mechanism)) for n, limit in positions.limits.items()]
        return jnp.sum(jnp.concatenate(rows) ** 2)

    return jax.vmap(one)(x)


@eqx.filter_jit
def _motions(
    positions: Positions, x: Array, first: Array, keys: Array, shares: Array, is_closed: bool
) -> Float[Array, "count n"]:
    """Return unknowns in which the positions are those of one motion as far as the linkage can be assembled.

    The input moves from a random value on, either way, by a whole turn if the path to be followed is closed, or by a
    random angle. Positions that started each in a mode of its own would end in different circuits.
    """
    zeros = positions.task.free_zeros

    def one(x: Array, q: Array, key: Array) -> Array:
        begin, way, span, *own = jax.random.uniform(key, (3 + len(zeros),), x.dtype)
        ahead = jnp.where(way < 0.5, -1.0, 1.0) * (1.0 if is_closed else span) * 2 * jnp.pi
        offsets = _ZERO_RANGE * (2 * jnp.asarray(own, x.dtype).reshape(-1) - 1)
        head = jnp.concatenate([x, offsets])
        _, exact = positions.prescribed(jnp.concatenate([head, jnp.zeros(len(shares) * len(q), x.dtype)]))
        inputs = exact[positions.task.input] if exact else 2 * jnp.pi * begin + ahead * shares
        equations = Equations(in_joint_coordinates(positions.variables.mechanism(x)))
        before = jnp.concatenate([inputs[:1], inputs[:-1]])
        between = jnp.linspace(0.0, 1.0, _BETWEEN + 1)[1:]

        def reach(q: Array, pair: tuple[Array, Array]) -> tuple[Array, Array]:
            a, b = pair
            for share in between:
                q = _nearly_closed(equations, q, {positions.task.input: a + share * (b - a)})
            return q, q

        for _ in range(_BETWEEN):  # from the random position to the first one
            q = _nearly_closed(equations, q, {positions.task.input: inputs[0]})
        _, qs = jax.lax.scan(reach, q, (before, inputs))
        return jnp.concatenate([head, qs.ravel()])

    return jax.vmap(one)(x, first, keys)


def _nearly_closed(equations: Equations, q: Array, values: dict[str, Array]) -> Array:
    """Return coordinates after some damped steps towards a closed position; also where there is none."""
    closing = (equations, values, jnp.zeros((), q.dtype))
    for _ in range(_CLOSING_STEPS):
        q = _descended(lambda q: closure(q, closing), q)
    return q


def _descended(rows: Callable[[Array], Array], q: Array) -> Array:
    """Return coordinates after a step of Gauss and Newton's method, slightly damped."""

    r, J = with_jacobian(lambda q, _: rows(q), q, None)
    size = jnp.sqrt(_DAMPING) * jnp.min(jnp.linalg.norm(J, axis=0))
    return q + damped_step(J, r, jnp.broadcast_to(size, q.shape))


def _shares(task: Task) -> tuple[np.ndarray, bool]:
    """Return the share of the way at which each position lies, and whether the last one is the first one again."""
    if task.timing:
        return np.linspace(0.0, 1.0, task.positions), False  # the input is prescribed
    rows = [np.asarray(v).reshape(task.positions, -1) / np.asarray(task.scales[n]) for n, v in task.follow.items()]
    points = np.concatenate(rows, axis=1)
    way = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1)))
    if way[-1] == 0:
        return np.linspace(0.0, 1.0, task.positions), False
    return way / way[-1], bool(np.linalg.norm(points[-1] - points[0]) < _CLOSES * way[-1])


def followed(positions: Positions, equations: Equations, z: Array, q: Array) -> tuple[Array, Array]:
    """Return the rows of closure and timing, and those of what is followed, of all positions: `(positions, rows)`."""
    follow, exact = positions.prescribed(z)
    values = dict(sorted({**follow, **exact}.items()))  # as JAX sorts dictionaries
    return jax.vmap(lambda q, values: _rows_of(positions, equations, q, values))(q, values)


def _rows_of(positions: Positions, equations: Equations, q: Array, values: dict[str, Array]) -> tuple[Array, Array]:
    """Return the rows of closure and timing, and the scaled rows of what is followed, at one position."""
    task, bodies = positions.task, [body.name for body in equations.mechanism.bodies]
    rows = closure(q, (equations, values, jnp.zeros((), q.dtype)))
    parts, first = {}, equations.m
    for name in values:
        width = 3 if name in bodies else rows_of(equations.mechanism, name)
        parts[name] = rows[first : first + width]
        first += width
    near = [parts[name] / task.scales[name] for name in task.follow]
    return jnp.concatenate([rows[: equations.m], *(parts[name] for name in task.timing)]), jnp.concatenate(near)


def weighted(z: Float[Array, " n"], problem: tuple[Positions, Array]) -> Float[Array, " rows"]:
    """Return all residuals: what is followed, and closure, timing and limits times their weight."""
    positions, weight = problem
    x, _, q = positions.split(z)
    exact, near = followed(positions, Equations(positions.mechanism(z)), z, q)
    rows = [near.ravel(), (weight / positions.task.size) * exact.ravel()]
    if positions.limits:
        mechanism = positions.variables.mechanism(x)
        rows += [weight * limit.violations(limit.value(n, mechanism)) for n, limit in positions.limits.items()]
    return jnp.concatenate(rows)


def settled(z: Float[Array, " n"], problem: tuple[Positions, Array]) -> Float[Array, " n"]:
    """Return unknowns in which each position is the closed one that follows best at the same dimensions and zeros.

    Along a straight step the closure is violated to second order, which with a large weight would allow tiny steps
    only; and the positions slide along their paths, where the whole would follow a curved valley.
    """
    positions, weight = problem
    task = positions.task
    follow, exact = positions.prescribed(z)
    values = dict(sorted({**follow, **exact}.items()))
    equations = Equations(positions.mechanism(z))

    def rows(q: Array, values: dict[str, Array]) -> Array:
        exact_rows, near = _rows_of(positions, equations, q, values)
        return jnp.concatenate([(weight / task.size) * exact_rows, near])

    def one(q: Array, values: dict[str, Array]) -> Array:
        for _ in range(_CLOSING_STEPS):
            q = _descended(lambda q: rows(q, values), q)
        return q

    q = jax.vmap(one)(positions.split(z)[2], values)
    return z.at[len(z) - q.size :].set(q.ravel())
