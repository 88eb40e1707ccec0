"""Precision positions: what a linkage to be synthesised has to do, as residuals of one vector of unknowns.

The unknowns are the design variables, the free zeros of scales, and the coordinates of the mechanism at each precision
position. Closure and prescribed timing are rows with a weight that grows during the search. So the search never has to
assemble a mechanism: it passes through dimensions that cannot be assembled, and the coordinates that it starts from
decide on the assembly mode.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.multistart import extent, in_joint_coordinates, random_starts
from jaxmbd.analyses.assembly.position_solve import closure, is_reading, rows_of, shape_of
from jaxmbd.analyses.output_channels import channel_units
from jaxmbd.arrays import as_float
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.linear_solve import rank_of
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.model.body.checks import check_finite, check_mapping, checked_names
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.optimal_design._limits import Limits
from jaxmbd.optimal_design._variables import Variables

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
    mechanism: Mechanism, follow: Mapping[str, Any], input: str, timing: Any, free_zeros: Iterable[str]
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


def _values(mechanism: Mechanism, bodies: list[str], name: str, given: Any) -> Array:
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
    equations = Equations(mechanism)
    q = random_starts(mechanism, 1, 0)[0]
    freedom = mechanism.nv - int(rank_of(equations.jacobian(jnp.zeros((), q.dtype), q)))
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
        """Return random starting points: variables within their ranges, bodies anywhere near the mechanism."""
        x = self.variables.random(count, seed)
        tree = in_joint_coordinates(self.variables.mechanism(self.variables.start))
        q = random_starts(tree, count * self.task.positions, seed).reshape(count, -1)
        shape = (count, len(self.task.free_zeros))
        zeros = jax.random.uniform(jax.random.key(seed + 1), shape, x.dtype, -_ZERO_RANGE, _ZERO_RANGE)
        return jnp.concatenate([x, zeros, q.astype(x.dtype)], axis=1)

    def bounds(self, unknowns: int) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Return the bounds of the unknowns."""
        rest = jnp.full(unknowns - len(self.variables.labels), jnp.inf)
        return jnp.concatenate([self.variables.lower, -rest]), jnp.concatenate([self.variables.upper, rest])


def followed(positions: Positions, equations: Equations, z: Array, q: Array) -> tuple[Array, Array]:
    """Return the rows of closure and timing, and those of what is followed, of all positions: `(positions, rows)`."""
    follow, exact = positions.prescribed(z)
    names = [*follow, *exact]
    bodies = [body.name for body in equations.mechanism.bodies]
    time = jnp.zeros((), q.dtype)

    def one(q: Array, values: dict[str, Array]) -> tuple[Array, Array]:
        rows = closure(q, (equations, values, time))
        parts, first = {}, equations.m
        for name in sorted(names):  # as JAX sorts dictionaries
            width = 3 if name in bodies else rows_of(equations.mechanism, name)
            parts[name] = rows[first : first + width]
            first += width
        near = [parts[name] / positions.task.scales[name] for name in follow]
        return jnp.concatenate([rows[: equations.m], *(parts[name] for name in exact)]), jnp.concatenate(near)

    return jax.vmap(one)(q, dict(sorted({**follow, **exact}.items())))


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


