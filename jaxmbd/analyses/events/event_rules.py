"""The rules of events: when one happens, and what it does, at one instant. Whoever integrates a motion applies them:
the native time loop (`event_programs.py`) or diffrax, in segments (`segmented_integration.py`).

An event has the *height* `side · (quantity − value)`, where `side` is the sign of `quantity − value` before the event:
a crossing is a zero of it. If a quantity is on its value where a segment between two events starts, the height is
divided by the time since the start: the quotient has no zero there, and next to it the sign of the rate, so that a
rebound shorter than a step is detected.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.events.event import (
    Bounce,
    ChannelName,
    Event,
    Latch,
    Quantity,
    Release,
    effort_of,
    is_position,
    read_one,
    unit_of,
)
from jaxmbd.analyses.events.impact import (
    Compliance,
    ImpactResult,
    LatchedFormulation,
    Latches,
    impact,
    latched,
    motion_and_efforts,
    positions,
    rates,
    with_latches,
)
from jaxmbd.analyses.events.parts import Pass, Slip, Stick, guard_units, held_by, sticking_part
from jaxmbd.arrays import Scalar, frozen
from jaxmbd.engine import as_program
from jaxmbd.engine.binding.tracing import pruned, traced
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.kinematic_quantities import KinematicReader
from jaxmbd.equations.own_states import at_integrated, integrated_rates, split_integrated, start_of
from jaxmbd.integrate.formulations.formulation import AbstractFormulation
from jaxmbd.integrate.formulations.joint_loads import at_loads, motion_of
from jaxmbd.model.controller.sampled import AbstractSampledController
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.state.output_channels import Snapshot

# In units of rounding, of the value and of the mechanism's units: a smaller distance from a value, or a smaller rate,
# counts as zero.
_NEAR = 2.0**10
# Of the smaller distance: one that is rounding, 16 units in the last place, as of some operations. What a latch lets go
# leaves from rest: its way is shorter than that for longer than times differ by rounding alone.
_ROUNDING = 2.0**-6
_LEAVING = 2.0**-10  # in units of the mechanism's time, how long that takes at most
_SAMPLED_NEAR = 16.0  # of the least distances between jumps: how near to its instant a sample is taken
# In place of a side: the event's latch has opened just now; what it held leaves to a known side, of that sign.
_FREED, _LEFT = 2, 3
_ERROR = 10.0  # errors of a motion in units of the tolerance of its steps: they add up


class Standing(NamedTuple):
    """How the quantities of events stand to their values where a segment starts.

    `side`: the sign of each quantity minus its value; `enabled`: true if its event can happen; `touching`: true if it
    is on its value; `crossing`: true if it crosses its value there, with a rate through it or by a jump.
    """

    side: Array
    enabled: Bool[Array, " n"]
    touching: Bool[Array, " n"]
    crossing: Bool[Array, " n"]


def _is_position(equations: Equations, of: Quantity, t: Scalar) -> bool:
    """True if a quantity depends on the position and the time only: by its unit, or by what its function reads."""
    if is_position(equations.mechanism, of):
        return True
    if isinstance(of, ChannelName) and of.name not in channel_units(equations.mechanism):
        return False  # the effort of a latch
    dtype, sizes = jnp.result_type(t), (equations.mechanism.nq, equations.mechanism.nv, equations.mechanism.nv)
    shapes = (), *((n,) for n in (*sizes, equations.m, len(equations.mechanism.z)))
    types = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return set(pruned(traced(lambda *at: [read_one(equations, of, Snapshot(*at))], types)).used) <= {0, 1}


class EventRules:
    """The rules of `n` events of a motion. `gap`: the least distance between jumps of the accelerations [s]."""

    def __init__(
        self, equations: Equations, formulation: AbstractFormulation, events: tuple[Event, ...], gap: Scalar
    ) -> None:
        self.equations, self.formulation, self.events = equations, formulation, events
        # If accelerations jump within `4 gap` after an event, the next segment starts up to `gap / 4` earlier.
        self.gap = jax.lax.stop_gradient(gap)
        rows = [(j, event.then.along(event.quantity)) for j, event in enumerate(events)]
        self.rows = tuple(j for j, along in rows if along is not None)
        self.along = tuple(along for _, along in rows if along is not None)
        self.latching = tuple(isinstance(events[j].then, Latch) for j in self.rows)
        self.opening = any(isinstance(event.then, Release) for event in events)
        self.sticking = tuple(isinstance(event.then, Stick) for event in events)
        self.samples = any(isinstance(x, AbstractSampledController) for x in equations.mechanism.controllers)
        self.passing = tuple(j for j, event in enumerate(events) if isinstance(event.then, Pass))
        self.is_position = tuple(
            j not in self.passing and _is_position(equations, event.quantity, gap) for j, event in enumerate(events)
        )
        self.positions = all(self.is_position)
        # The heights of the others follow from forces; guards follow from positions, speeds and states of parts.
        self.needs_forces = not all(is_it or j in self.passing for j, is_it in enumerate(self.is_position))
        dtype = jnp.result_type(gap)
        self.levels = jnp.stack([event.level for event in events]).astype(dtype)
        self.sides = np.asarray([event.side for event in events])
        units = [unit_of(equations.mechanism, event.quantity) for event in events]
        of_guards = guard_units(equations.mechanism) if self.passing else []
        for j in self.passing:
            units[j] = of_guards[self._guard(j)]
        scales = equations.scales
        sizes = [*map(scales.quantity, units)]
        self.sizes = (jnp.stack([*map(jnp.asarray, sizes)]) + jnp.abs(self.levels)).astype(dtype)
        # The distances, and the rates, up to which quantities count as being on their values and as resting.
        self.near = _NEAR * jnp.finfo(dtype).eps * self.sizes
        self.slow = self.near / scales.time

    def formulation_with(self, latches: Latches) -> AbstractFormulation:
        """The formulation with its latches."""
        if not any(self.latching):
            return self.formulation
        parts = [self.events[j].then for j in self.rows]
        return latched(self.formulation, latches, tuple(x.part if isinstance(x, Stick) else "" for x in parts))

    @property
    def added_rows(self) -> int:
        """How many rows that formulation adds to the mechanism's own."""
        return len(self.along) if any(self.latching) else 0

    def flags(self, name: str) -> Bool[np.ndarray, " n"]:
        """What the actions of the events say of themselves (`AbstractAction`)."""
        return np.asarray([getattr(event.then, name) for event in self.events])

    # --- when -------------------------------------------------------------------------------------------

    def distances(
        self, equations: Equations, formulation: AbstractFormulation, t: Array, q: Array, v: Array, z: Array
    ) -> Float[Array, " n"]:
        """The event quantities minus their values."""
        equations, latches = at_integrated(equations, z), with_latches(formulation)
        at, efforts = eqx.tree_at(lambda s: s.v, Snapshot.at_rest(equations, t, q), v), None
        if self.needs_forces:
            if latches is not None and latches is formulation:
                motion, efforts = as_program(motion_and_efforts)(latches, equations, t, q, v)
            else:
                motion = motion_of(formulation, equations, t, q, v)
            at = Snapshot(t, q, motion.v, motion.vdot, motion.lam, at.z)
        reader = KinematicReader(equations.at(t, q), at.v)
        watched = self._watched(reader, latches, at, efforts)
        guards = reader.guards() if self.passing else ()
        return jnp.stack([self._quantity(reader, x, at, watched, guards) for x in self.events]) - self.levels

    def _watched(
        self, reader: KinematicReader, latches: LatchedFormulation | None, at: Snapshot, efforts: Array | None
    ) -> dict[str, Array]:
        """The efforts of latches that events watch, by the names of these quantities; of a friction, by its own name,
        how much its effort exceeds what holds, forward and back, negative while it slips."""
        rows = zip(self.rows, self.latching, strict=True)
        names = [effort_of(self.events[j].name) if latches else "" for j, latches in rows]
        asked = {event.quantity.name for event in self.events if isinstance(event.quantity, ChannelName)}
        slipping = [event.then.part for event in self.events if isinstance(event.then, Slip)]
        if latches is None or not (slipping or asked & {*names} - {""}):
            return {}
        if efforts is None:
            efforts = motion_and_efforts(latches, reader.position.equations, at.t, at.q, at.v)[1]
        reader = KinematicReader(at_loads(reader.position, at), at.v)
        found, held = dict(zip(names, efforts, strict=True)), latches.latches.at(at.t)[0]
        for k, part in ((latches.parts.index(part), part) for part in dict.fromkeys(slipping)):
            beyond = jnp.stack([-efforts[k], efforts[k]]) - held_by(reader, part)
            found[part] = jnp.where(held[k], beyond, -jnp.ones_like(beyond))
        return found

    def _quantity(
        self, reader: KinematicReader, event: Event, at: Snapshot, watched: dict[str, Array],
        guards: Sequence[Array] | Array,
    ) -> Array:  # fmt: skip
        equations = reader.position.equations
        if isinstance(event.then, Pass):
            return guards[event.then.guard]
        if isinstance(event.then, Stick):
            part, _ = sticking_part(equations.mechanism, event.then.part)
            return part.caught(*reader.coordinate(part.coordinate))
        if isinstance(event.then, Slip):
            return watched[event.then.part][0 if event.then.direction > 0 else 1]
        name = event.quantity.name if isinstance(event.quantity, ChannelName) else ""
        return watched[name] if name in watched else read_one(equations, event.quantity, at)

    def is_told(self, distance: Float[Array, " n"], away: Array, since: Scalar) -> Bool[Array, " n"]:
        """The mask of the quantities, on their values at the start of a segment, that have a sign at the time `since`
        that: before, the sign of their distance is undetermined. `away`: the rate at which they leave their values."""
        later = since > 5 * self.gap
        if not self.opening:
            return jnp.broadcast_to(later, distance.shape)
        latching = np.asarray([isinstance(event.then, Latch) for event in self.events])
        # One that comes back later has its sign on both sides of the value, and there its derivative.
        leaves = (away >= 0) | (since < _LEAVING * self.equations.scales.time)
        return later & (~latching | (jnp.abs(distance) > _ROUNDING * self.near) | ~leaves)

    def distances_and_rates(
        self, equations: Equations, formulation: AbstractFormulation, t: Array, y: Any
    ) -> tuple[Array, Array]:
        """The distances from the values, and their rates."""
        q, v, z = y
        rates = jnp.zeros_like(v), jnp.zeros_like(z)
        if not self.positions:
            there = at_integrated(equations, z)
            motion = motion_of(formulation, there, t, q, v)
            own = integrated_rates(there.at(t, q), motion.v)
            rates = motion.rate, rates[1].at[: len(own)].set(own)
        along = jnp.ones_like(t), equations.rate(t, q, v), *rates
        return jax.jvp(lambda *at: self.distances(equations, formulation, *at), (t, q, v, z), along)

    def depths(self, equations: Equations, formulation: AbstractFormulation, t: Array, y: Any) -> Float[Array, " n"]:
        """How far each quantity, on its value, would go beyond that before it turns back, if nothing happened: from its
        first two rates, infinite where it does not turn back."""
        q, v, z = y
        there = at_integrated(equations, z)
        motion = motion_of(formulation, there, t, q, v)
        own = integrated_rates(there.at(t, q), motion.v)
        along = jnp.ones_like(t), motion.qdot, motion.rate, jnp.zeros_like(z).at[: len(own)].set(own)
        rates = lambda t, *y: self.distances_and_rates(equations, formulation, t, y)[1]  # noqa: E731
        rate, bend = jax.jvp(rates, (t, q, v, z), along)
        side = jnp.where(self.sides == 0, -jnp.sign(rate), self.sides)
        turns = (side * bend > 0) & ~np.asarray(self.sticking)  # which come to rest and stay there
        return jnp.where(turns, 0.5 * rate**2 / jnp.where(turns, jnp.abs(bend), 1.0), jnp.inf)

    def resolution(self, tolerance: Scalar) -> Float[Array, " n"]:
        """The errors to expect of the quantities where the steps of a motion have that relative tolerance."""
        return jax.lax.stop_gradient(jnp.maximum(_ERROR * tolerance * self.sizes, self.near))

    def standing(
        self, equations: Equations, formulation: AbstractFormulation, latches: Latches, side: Array, just: Array,
        t: Array, y: Any,
    ) -> Standing:  # fmt: skip
        """How the quantities stand to their values at the start of a segment. `side`: the signs before it, 0 at the
        start of the motion; `just`: the mask of the event there.

        What a latch held on its value starts there, at rest; it leaves on the side to which it is accelerated, and so
        crosses nothing.
        """
        distance, rate = jax.lax.stop_gradient(self.distances_and_rates(equations, formulation, t, y))
        enabled = ~self._is_latched(latches, t)
        touching = jnp.abs(distance) <= self.near * jnp.where(just, _NEAR, 1.0)
        leaving = jnp.where(self.sides == 0, jnp.where(rate < 0, -1, 1), self.sides)
        current = jnp.where(touching, leaving, jnp.where(distance < 0, -1, 1))
        left = jnp.abs(side) == _LEFT
        side = jnp.where(left, jnp.sign(side), side)
        if self.opening:
            to = self._departing(equations, formulation, rate, t, y)
            side = jnp.where(side == _FREED, jnp.where(jnp.where(touching, to, distance) < 0, -1, 1), side)
        side = jnp.where(side == 0, current, side)
        through = jnp.where(touching, side * rate < -self.slow, side * distance < 0)
        # Friction that lets go does so where its acceleration is zero, so that rounding has its sign.
        crossing, rests = enabled & through & ~left, self._rests(y[2], enabled)
        # Whatever comes to rest there has slipped against its acceleration.
        before = jnp.where(jnp.abs(rate) > self.slow, -jnp.sign(rate), 0).astype(side.dtype)
        side = jnp.where(rests & (self.sides == 0), before, side)
        return Standing(side, enabled, touching, crossing | rests)

    def _departing(
        self, equations: Equations, formulation: AbstractFormulation, rate: Array, t: Array, y: Any
    ) -> Float[Array, " n"]:
        """Where quantities on their values go: their `rate`, or where a latch has held a position at rest, the rate of
        that."""
        held = [j for j in self.rows if isinstance(self.events[j].then, Latch) and self.is_position[j]]
        if not held:
            return rate
        q, v, z = y
        along, rows = tuple(self.events[j].quantity for j in held), np.asarray(held)
        motion = motion_of(formulation, at_integrated(equations, z), t, q, v)
        of_time = jnp.ones_like(t), motion.qdot, motion.rate
        bend = jax.jvp(lambda *at: rates(equations, along, *at), (t, q, motion.v), of_time)[1]
        return rate.at[rows].set(jnp.where(jnp.abs(rate[rows]) > self.slow[rows], rate[rows], frozen(bend)))

    def _is_latched(self, latches: Latches, t: Array) -> Bool[Array, " n"]:
        """Mask of the events whose latch is closed."""
        none = jnp.zeros(len(self.events), bool)
        return none.at[np.asarray(self.rows, int)].set(latches.at(t)[0]) if self.rows else none

    def is_early(self, side: Array) -> Bool[Array, " n"]:
        """True for events that must not be beyond their value at the start of the motion, but are."""
        return self.flags("clear") & (self.sides != 0) & (side != self.sides)

    def may_fire(self, side: Array) -> Bool[Array, " n"]:
        """True for events whose quantity is on the side from which a crossing counts."""
        return (self.sides == 0) | (self.sides == side)

    # --- what it does -----------------------------------------------------------------------------------

    def sampled(self, equations: Equations, t: Array, y: tuple[Array, Array, Array]) -> Array:
        """The states of parts, as they are integrated, after the samples that are due."""
        if not self.samples:
            return y[2]
        return self._with_own(equations, t, y, lambda reader: reader.sampled(_SAMPLED_NEAR * self.gap))

    def next_sample(self, t: Array, z: Array) -> Array:
        """The next instant at which a controller samples, infinite if none does."""
        equations, found = at_integrated(self.equations, z), [jnp.full((), jnp.inf, t.dtype)]
        for part in equations.mechanism.controllers:
            if isinstance(part, AbstractSampledController):
                found.append(part.next_instant(t, _SAMPLED_NEAR * self.gap)[0])
        return jnp.min(jnp.stack(found))

    def _with_own(
        self, equations: Equations, t: Array, y: tuple[Array, Array, Array], own: Callable[[KinematicReader], Array]
    ) -> Array:
        """What is integrated of parts, with other values of their states."""
        q, v, z = y
        _, quadratures = split_integrated(equations.mechanism, z)
        values = own(KinematicReader(at_integrated(equations, z).at(t, q), v))
        return jnp.concatenate([start_of(equations.mechanism, values, 0), quadratures])

    def reverses(self, blocked: Bool[Array, " n"], side: Array) -> Bool[Array, " n"]:
        """The mask of the friction, if the event in the mask `blocked` is that it sticks, which slips on in the other
        direction: the constraints bring the coordinate to rest for an instant, as that of a slider at a dead centre,
        and let nothing hold it there. `side`: the sign of the rate before, 0 where it rests for good."""
        found = jnp.zeros(len(self.events), bool)
        for j, event in enumerate(self.events):
            if not isinstance(event.then, Stick):
                continue
            if sticking_part(self.equations.mechanism, event.then.part)[0].from_either_side:  # a freewheel has no back
                found = found.at[j].set(blocked[j] & (side[j] != 0))
        return found

    def passed(
        self, equations: Equations, t: Array, y: tuple[Array, Array, Array], fired: Bool[Array, " n"],
        reverses: Bool[Array, " n"], side: Array,
    ) -> Array:  # fmt: skip
        """The states of parts, as they are integrated, after the event in the mask `fired`: those that parts change,
        and the directions in which frictions slip. `side`, as for `reverses`."""
        z, names = y[2], self.equations.mechanism.layout.z.names
        if self.passing:
            here, rows = fired[np.asarray(self.passing)], np.asarray([*map(self._guard, self.passing)])
            row = lambda reader: jnp.sum(jnp.where(here[:, None], reader.changed_states()[rows], 0.0), axis=0)  # noqa: E731
            z = jnp.where(jnp.any(here), self._with_own(equations, t, y, row), z)
        for j, event in enumerate(self.events):
            if isinstance(event.then, Stick | Slip):
                k = names.index(f"{event.then.part}.direction")
                new = jnp.where(reverses[j], -side[j], event.then.direction)
                z = z.at[k].set(jnp.where(fired[j], new, z[k]))
        return z

    def _guard(self, j: int) -> int:
        """The number of the guard that an event watches."""
        then = self.events[j].then
        assert isinstance(then, Pass)
        return then.guard

    def _rests(self, z: Array, enabled: Bool[Array, " n"]) -> Bool[Array, " n"]:
        """The mask of the events that close the latch of a friction which neither slips nor is held: at the start of a
        motion those at rest."""
        names, found = self.equations.mechanism.layout.z.names, jnp.zeros(len(self.events), bool)
        for j in self.rows:
            then = self.events[j].then
            if isinstance(then, Stick):
                found = found.at[j].set((z[names.index(f"{then.part}.direction")] == 0) & enabled[j])
        return found

    def started(self, equations: Equations, formulation: AbstractFormulation, t: Array, y: Any) -> Array:
        """The states of parts at the start of a motion, whose rates say in which directions frictions slip."""
        z = self._with_own(equations, t, y, KinematicReader.begun_states) if self.passing else y[2]
        if not any(self.sticking):
            return z
        rates = jax.lax.stop_gradient(self.distances(equations, formulation, t, *y))
        for j, event in enumerate(self.events):
            if isinstance(event.then, Stick) and not self.is_position[j]:
                k = equations.mechanism.layout.z.names.index(f"{event.then.part}.direction")
                z = z.at[k].set(jnp.where(jnp.abs(rates[j]) > self.near[j], jnp.sign(rates[j]), 0.0))
        return z

    def impact(
        self, at: Configuration, latches: Latches, v: Float[Array, " nv"], hit: Bool[Array, " n"]
    ) -> tuple[ImpactResult, Bool[Array, ""]]:
        """The impact of the event in the mask `hit`, if it is one, on consistent speeds; and whether it is blocked."""
        k = len(self.rows)
        none, no = jnp.zeros(k + self.equations.m, v.dtype), jnp.zeros((), bool)
        nothing = ImpactResult(v, none[:k], none[k:], no)
        if not k:
            return nothing, no
        hit = hit[np.asarray(self.rows)]
        actions = [self.events[i].then for i in self.rows]
        restitution = jnp.stack([a.restitution if isinstance(a, Bounce) else jnp.zeros(()) for a in actions])
        jump = impact(at, self.along, v, hit, latches.at(at.t)[0], restitution.astype(v.dtype))
        struck = jnp.any(hit) & ~jump.blocked
        return jax.tree.map(lambda x, old: jnp.where(struck, x, old), jump, nothing), jump.blocked

    def next_sides(self, side: Array, hit: Bool[Array, " n"], fires: Bool[Array, ""]) -> Array:
        """The sides after the event in the mask `hit`: its own is reversed unless the quantity rebounds, and those of
        events whose latches it opens are found anew (`standing`)."""
        after = jnp.where(hit & ~(fires & self.flags("returns")), -side, side)
        if not self.opening:
            return after
        rows = np.asarray(self.rows, int)
        after = after.at[rows].set(jnp.where(fires & self.opens(hit), _FREED, after[rows]))
        for j, event in enumerate(self.events):
            if isinstance(event.then, Slip):
                k = next(k for k in self.rows if self.events[k].name in event.then.latches)
                after = after.at[k].set(jnp.where(fires & hit[j], _LEFT * event.then.direction, after[k]))
        return after

    def released(
        self, at: Configuration, latches: Latches, v: Float[Array, " nv"], fired: Bool[Array, " n"]
    ) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
        """Coordinates and speeds after the event in the mask `fired`: if it opens a latch, with what latches hold at
        rest where they hold it, since a drift within the motion's error would count as a way from a value."""
        if not self.opening:
            return at.q, v
        held, values = latches.at(at.t)
        opens, compliance = jnp.any(held & self.opens(fired)), Compliance(at, self.along)
        offsets = positions(at.equations, self.along, at.t, at.q) - values
        of_q, of_v = (compliance.solve(held, x) @ compliance.changes for x in (offsets, compliance.rates(v)))
        return jnp.where(opens, at.perturbed(-of_q), at.q), jnp.where(opens, v - of_v, v)

    def closes(self, hit: Bool[Array, " n"]) -> Bool[Array, " k"]:
        """The mask of the latches that the event in the mask `hit` closes."""
        return hit[np.asarray(self.rows, int)] & np.asarray(self.latching, bool)

    def opens(self, hit: Bool[Array, " n"]) -> Bool[Array, " k"]:
        """The mask of the latches that the event in the mask `hit` opens."""
        names = [event.then.latches if isinstance(event.then, Release) else () for event in self.events]
        table = np.asarray([[self.events[j].name in released for j in self.rows] for released in names])
        return jnp.any(hit[:, None] & table, axis=0)
