"""Quantities of a motion at all its times, which are not saved: one traced function computes all that are asked for.

Where its arguments are known, all channels of a mechanism are computed at once and kept: recording one program for all
takes little longer than one for a few, since they share the positions, the factorisation and the accelerations.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.events.changes import ForceChanges, equations_at
from jaxmbd.analyses.events.impact import motion_and_efforts, with_latches
from jaxmbd.arrays import constant, is_concrete
from jaxmbd.engine import as_program, cached_on_disk, is_program
from jaxmbd.equations.equations import Equations
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, StateDerivative
from jaxmbd.integrate.formulations.joint_loads import motion_at
from jaxmbd.integrate.formulations.newton_closure import closed_where_redundant
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.state.output_channels import Reader, Snapshot


class NoProgramError(Exception):
    """What is asked for cannot be computed by one program."""


class Asked(NamedTuple):
    """What is to be computed: channels by name; the reactions of joints and drivers by name; the snapshots; the
    constraint violation. `together`: true to raise `NoProgramError` unless one program computes it."""

    names: tuple[str, ...] = ()
    reactions: tuple[str, ...] = ()
    snapshots: bool = False
    violation: bool = False
    together: bool = False


class Motion(NamedTuple):
    """What a motion is computed from: times, coordinates, integrated speeds, states of parts; `closed`: true if the
    coordinates satisfy the constraints to rounding; `redundant`, as of `Equations`."""

    mechanism: Mechanism
    formulation: AbstractFormulation
    changes: ForceChanges | None
    redundant: bool | Array
    ts: Array
    q: Array
    w: Array
    z: Array
    closed: bool


class Readings(eqx.Module):
    """Quantities over time: channels by name; for each joint or driver the forces `(times, markers, dim)` and moments
    on the bodies at its markers, in `"world"` and in `"body"` axes; the snapshots; `Φ`, `Φ̇` and `C v̇ − γ`."""

    channels: dict[str, Array]
    reactions: dict[str, dict[str, tuple[Array, Array]]]
    snapshots: Snapshot | None
    violation: tuple[Array, Array, Array] | None


@cached_on_disk
def readings(motion: Motion, computed: Snapshot | None, asked: Asked) -> Readings:
    """What is asked for at all times; `computed`: the snapshots, if they are known already.

    Raises:
        NoProgramError: If `asked.together`, and no program computes it.
    """
    if computed is not None:
        return jax.vmap(lambda at: _run(asked, _of_snapshot, motion[:3], asked, at))(computed)
    q = motion.q
    if not motion.closed and motion.redundant is not False:
        equations = Equations(motion.mechanism, motion.redundant)
        q = jax.vmap(lambda t, q: closed_where_redundant(equations, t, q))(motion.ts, q)
    each = motion.ts, motion.q, q, motion.w, motion.z
    return jax.vmap(lambda *at: _run(asked, _of_state, motion[:4], asked, *at))(*each)


def _run(asked: Asked, function: Any, *arguments: Any) -> Readings:
    if asked.together and not is_program(function, *arguments):
        raise NoProgramError
    return as_program(function)(*arguments)


def _of_state(given: Any, asked: Asked, t: Array, q: Array, closed: Array, w: Array, z: Array) -> Readings:
    """What is asked for at one time, with the speeds made consistent at the `closed` coordinates."""
    mechanism, formulation, changes, redundant = given
    equations = equations_at(Equations(mechanism, redundant), changes, t).with_own_states(z)
    at = _Instant(t, q, z, lambda: motion_at(formulation, equations, t, closed, w))
    return _read(equations, formulation, asked, at)


def _of_snapshot(given: Any, asked: Asked, at: Snapshot) -> Readings:
    mechanism, formulation, changes = given
    return _read(equations_at(Equations(mechanism), changes, at.t).with_own_states(at.z), formulation, asked, at)


class _Instant:
    """A snapshot whose speeds, accelerations and multipliers are traced only if a reading takes them."""

    def __init__(self, t: Array, q: Array, z: Array, motion: Callable[[], StateDerivative]) -> None:
        self.t, self.q, self.z, self._compute = t, q, z, motion

    @cached_property
    def _motion(self) -> StateDerivative:
        return self._compute()

    # Named one by one: `__getattr__` would look for `_motion` again when an `AttributeError` is raised in it.
    v = property(lambda self: self._motion.v)
    vdot = property(lambda self: self._motion.vdot)
    lam = property(lambda self: self._motion.lam)


def _read(equations: Equations, formulation: AbstractFormulation, asked: Asked, at: Any) -> Readings:
    latched = with_latches(formulation)

    def held() -> dict[str, Array]:
        if latched is None or not any(latched.parts):
            return {}
        return dict(zip(latched.parts, motion_and_efforts(latched, equations, at.t, at.q, at.v)[1], strict=True))

    reader, violation = Reader(equations, at, held), None
    channels = {name: reader.read(name) for name in asked.names}
    reactions = {name: _reaction(reader, name) for name in asked.reactions}
    if asked.violation:
        position = reader.position
        acceleration = position.jacobian @ at.vdot - position.gamma(at.v)
        violation = position.position(), position.velocity(at.v), acceleration
    snapshots = Snapshot(at.t, at.q, at.v, at.vdot, at.lam, at.z) if asked.snapshots else None
    return Readings(channels, reactions, snapshots, violation)


def _reaction(reader: Reader, name: str) -> dict[str, tuple[Array, Array]]:
    space, wrench = reader.mechanism.space, reader.reaction(name)
    near = reader.position.near(reader.mechanism.with_reactions()[name].markers)
    loads = {"world": wrench, "body": jax.vmap(space.in_body)(near.bodies, wrench)}
    return {frame: (w[:, : space.dim], space.moment(w)) for frame, w in loads.items()}


def part_of(array: Array, at: Any) -> Array:
    """`array[at]`; taken by NumPy where values are known, since JAX would compile a function for it."""
    if isinstance(array, jax.Array) and is_concrete(array) and {x.platform for x in array.devices()} == {"cpu"}:
        return constant(np.array(np.asarray(array)[at], order="C"))
    return array[at]
