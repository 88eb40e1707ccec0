"""The result of a simulation: the motion, and all quantities that can be computed from it, by name."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float

from jaxmbd.analyses.events.changes import ForceChanges, equations_at
from jaxmbd.analyses.events.event_log import Events
from jaxmbd.analyses.output_channels import ENERGIES, Reader, Snapshot, channel_units, channel_values
from jaxmbd.analyses.result_codes import RESULTS
from jaxmbd.analyses.state import State, state_of
from jaxmbd.arrays import is_concrete
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.equations.linear_solve import nonzero_singular_values as nonzero
from jaxmbd.errors import check_known, unknown
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, motion_of
from jaxmbd.integrate.formulations.newton_closure import closed_where_redundant
from jaxmbd.model.body.checks import check_index, checked_names
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.named_coordinates import PositionDriverConstraint, SpeedDriverConstraint
from jaxmbd.printing import count_of, format_number, over_time, readable


class Violation(eqx.Module):
    """The constraint violation of a motion: `Φ`, `Φ̇` and `C v̇ − γ`, each `(times, m)`; `print` shows the largest."""

    position: Float[Array, "times m"]
    velocity: Float[Array, "times m"]
    acceleration: Float[Array, "times m"]

    def __repr__(self) -> str:
        return readable(self, self._text, position=2, velocity=2, acceleration=2)

    def _text(self) -> str:
        times, rows = self.position.shape
        levels = ("position", "m or rad"), ("velocity", "m/s or rad/s"), ("acceleration", "m/s² or rad/s²")
        largest = (
            f"{level} {np.abs(np.asarray(getattr(self, level))).max(initial=0.0):.2g} ({unit})"
            for level, unit in levels
        )
        over = f"{count_of(times, 'time')} and {count_of(rows, 'constraint row')}"
        return f"Violation, the largest over {over}: {', '.join(largest)}"


class Reaction(eqx.Module):
    """The force `(times, dim)` [N] and moment [N m] of a joint on one body, about the joint's marker.

    The moment has shape `(times,)` in the plane, `(times, 3)` in space. `print` shows their components and range.
    """

    force: Float[Array, "times dim"]
    moment: Float[Array, "times *dim"]
    body: str = eqx.field(static=True)
    frame: str = eqx.field(static=True)

    def __repr__(self) -> str:
        return readable(self, self._text, force=2, moment=1 if np.shape(self.force)[-1:] == (2,) else 2)

    def _text(self) -> str:
        force, moment = np.asarray(self.force), np.asarray(self.moment)
        columns = [(f"f{axis}", "N", force[:, k]) for k, axis in zip(range(force.shape[1]), "xyz", strict=False)]
        if moment.ndim == 1:
            columns.append(("moment", "N m", moment))
        else:
            columns += [(f"m{axis}", "N m", moment[:, k]) for k, axis in enumerate("xyz")]
        where = f"on body {self.body!r}, {self.frame} axes, moment about the joint's marker"
        return f"Reaction {where}, at {count_of(len(force), 'time')}\n{over_time(columns)}"


class Solution(eqx.Module):
    """A motion at the times `ts`.

    `q (times, nq)`; consistent speeds `v (times, nv)`, accelerations `vdot (times, nv)` and multipliers
    `lam (times, m)`, computed on access; `solution["rod.theta"]` for each of the names in `solution.names`;
    `quadratures`, the requested integrals over time; `redundant`, true if constraint rows are dependent at the start;
    `stats`, numbers of steps; `result`, the verdict, one of `RESULTS` (values are NaN from a failure on); `events`, the
    log of events if there were any to watch; `computed`, the snapshots of an analysis that computes these itself;
    `force_changes`, the parameters of forces that events have changed, over time.
    `print(solution)` shows the verdict and the ranges of the coordinates.
    """

    mechanism: Mechanism
    formulation: AbstractFormulation
    ts: Float[Array, " times"]
    q: Float[Array, "times nq"]
    integrated_speeds: Float[Array, "times nv"]
    quadratures: dict[str, Float[Array, " times"]]
    redundant: Bool[Array, ""]
    stats: dict[str, Any]
    result: RESULTS
    events: Events | None = None
    computed: Snapshot | None = None
    force_changes: ForceChanges | None = None

    def __repr__(self) -> str:
        known = is_concrete(self.result, self.stats, self.events)
        return readable(self, self._text, ts=1, q=2) if known else readable(self, str, ts=2, q=3)

    def _text(self) -> str:
        names, units = self.mechanism.coordinate_names, self.mechanism.coordinate_units
        columns = list(zip(names, units, np.asarray(self.q).T, strict=True))
        went = RESULTS[self.result] or "successful"
        lines = [
            f"Solution at {count_of(len(self.ts), 'time')}, "
            f"{format_number(self.ts[0])} to {format_number(self.ts[-1])} s: {went}",
            f"by {self._how()}",
            over_time(columns),
            f"solution[name] reads any of {len(self.names)} quantities, which solution.names lists.",
        ]
        return "\n".join(lines)

    def _how(self) -> str:
        """The formulation, the numbers of steps and events, and the quadratures, as text."""
        parts = [type(self.formulation).__name__]
        if "num_steps" in self.stats:
            steps, rejected = (int(self.stats.get(f"num_{kind}steps", 0)) for kind in ("", "rejected_"))
            parts.append(count_of(steps, "step") + f" ({rejected} rejected)" * (rejected > 0))
        if self.events is not None:
            parts.append(count_of(int(self.events.count), "event"))
        if self.quadratures:
            parts.append(f"quadratures of {', '.join(self.quadratures)}")
        return ", ".join(parts)

    @property
    def v(self) -> Float[Array, "times nv"]:
        """Consistent speeds at each time."""
        return self.snapshots().v

    @property
    def vdot(self) -> Float[Array, "times nv"]:
        """Accelerations at each time."""
        return self.snapshots().vdot

    @property
    def lam(self) -> Float[Array, "times m"]:
        """Multipliers at each time; those of least norm if constraint rows are dependent."""
        return self.snapshots().lam

    @property
    def names(self) -> tuple[str, ...]:
        """All names for `solution[name]`."""
        return tuple(channel_units(self.mechanism))

    def __getitem__(self, name: str) -> Array:
        if not isinstance(name, str):
            raise unknown("quantity", name, channel_units(self.mechanism))
        return self.read([name])[name]

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """Several quantities by name, each with time on its first axis."""
        wanted, coordinates = checked_names("names", names, "energy"), self.mechanism.coordinate_names
        series = {name: self.q[..., coordinates.index(name)] for name in wanted if name in coordinates}
        others = tuple(name for name in wanted if name not in series)
        if others:
            series |= self._computed(others)
        return {name: series[name] for name in wanted}

    def _computed(self, names: tuple[str, ...]) -> dict[str, Array]:
        """Quantities that are not saved. Speeds alone come from one program, whichever they are."""
        speeds = self.mechanism.speed_names
        if all(name in speeds for name in names):
            v = self.v
            return {name: v[..., speeds.index(name)] for name in names}
        known = channel_units(self.mechanism)
        check_known("quantity", names, known)
        return _series(self, names, self._known_redundant())

    def snapshots(self) -> Snapshot:
        """The motion as one `Snapshot` with time on the first axis of each array."""
        return _snapshots(self, self._known_redundant()) if self.computed is None else self.computed

    def _known_redundant(self) -> bool | Array:
        """`redundant`, as the constant `False` if it is known to be false: less is then compiled."""
        none = is_concrete(self.redundant) and not np.any(self.redundant)
        return False if none else self.redundant

    def state(self, index: int = -1) -> State:
        """The state at one of the times, by default the last one."""
        check_index("solution.state", index, len(self.ts), "times")
        return state_of(self.mechanism, self.ts[index], self.q[index], self.v[index], result=self.result)

    def reaction(self, name: str, body: str | None = None, frame: str = "world") -> Reaction:
        """The reaction of a joint (or driver) on one of its bodies.

        **Arguments:** `body`, the body acted on, by default the joint's second one; `frame`, `"world"` or `"body"`
        axes. The moment is about the joint's marker on that body.
        """
        parts = self.mechanism.with_reactions()
        check_known("joint or driver", [name], parts)
        bodies = [marker.body for marker in parts[name].markers]
        if body is not None and body not in bodies:
            raise unknown(f"body of joint {name!r}", body, bodies)
        check_known("frame", [frame], ("world", "body"))
        place = bodies.index(body) if body is not None else min(1, len(bodies) - 1)
        wrench = _reactions(self.mechanism, self.force_changes, name, place, frame, self.snapshots())
        space = self.mechanism.space
        return Reaction(wrench[:, : space.dim], space.moment(wrench), bodies[place], frame)

    def effort(self, name: str) -> Array:
        """The force [N] or torque [N m] of a driver in the positive direction of its coordinate: `−λ`."""
        drivers = [
            part.name
            for part in self.mechanism.constraints()
            if isinstance(part, PositionDriverConstraint | SpeedDriverConstraint)
        ]
        check_known("driver", [name], drivers)
        return self[f"{name}.effort"]

    def energies(self) -> dict[str, Array]:
        """Kinetic, potential and total energy [J] at each time."""
        return self.read(ENERGIES)

    def violation(self) -> Violation:
        """The constraint violation at position, velocity and acceleration level."""
        return Violation(*_violation(self.mechanism, self.snapshots()))

    def rank(self) -> Array:
        """The rank of the constraint rows at each time: the number of singular values above 1e-10 of the largest.

        If it is smaller than `state.rank`, the position is singular; `singularity_margin` is the distance from one.
        """
        return _ranks(self.mechanism, self.ts, self.q)[0]

    def singularity_margin(self) -> Array:
        """The distance from a singular position at each time.

        It is the ratio of the smallest singular value of the constraint rows to the largest, without those that are
        zero at the start because rows are dependent. At a singular position it is zero.
        """
        return _ranks(self.mechanism, self.ts, self.q)[1]

    def to_xarray(self, names: Iterable[str] | None = None) -> xr.Dataset:
        """An `xarray.Dataset` over `time` [s], each variable with its unit."""
        units = channel_units(self.mechanism)
        data = self.read(units if names is None else names)
        variables = {}
        for name, values in data.items():
            extra = tuple(f"{name}_{k}" for k in range(values.ndim - 1))
            variables[name] = (("time", *extra), np.asarray(values), {"units": units[name]})
        stats = {key: int(value) for key, value in self.stats.items() if np.ndim(value) == 0}
        return xr.Dataset(variables, {"time": ("time", np.asarray(self.ts), {"units": "s"})}, stats)


@cached_on_disk
def _snapshots(solution: Solution, redundant: bool | Array) -> Snapshot:
    return _evaluated(solution, Equations(solution.mechanism, redundant))


def _evaluated(solution: Solution, equations: Equations) -> Snapshot:
    """The snapshots of a motion: consistent speeds, accelerations and multipliers."""
    if solution.computed is not None:
        return solution.computed

    def one(t: Array, q: Array, w: Array) -> Snapshot:
        q_closed, acting = closed_where_redundant(equations, t, q), equations_at(equations, solution.force_changes, t)
        motion = motion_of(solution.formulation, acting, t, q_closed, w)
        return Snapshot(t, q, motion.v, motion.vdot, motion.lam)

    return jax.vmap(one)(solution.ts, solution.q, solution.integrated_speeds)


@cached_on_disk
def _series(solution: Solution, names: tuple[str, ...], redundant: bool | Array) -> dict[str, Array]:
    """The named quantities; all that none of them depends on is dead code, which the compiler removes."""
    equations = Equations(solution.mechanism, redundant)
    at = lambda t: equations_at(equations, solution.force_changes, t)  # noqa: E731
    return jax.vmap(lambda s: channel_values(at(s.t), names, s))(_evaluated(solution, equations))


@cached_on_disk
def _reactions(
    mechanism: Mechanism, changes: ForceChanges | None, name: str, place: int, frame: str, at: Snapshot
) -> Array:
    equations = Equations(mechanism)

    def one(s: Snapshot) -> Array:
        reader = Reader(equations_at(equations, changes, s.t), s)
        wrench = reader.reaction(name)[place]
        if frame == "world":
            return wrench
        near = reader.position.near(mechanism.with_reactions()[name].markers)
        body = jax.tree.map(lambda x: x[place], near.bodies)
        return mechanism.space.in_body(body, wrench)

    return jax.vmap(one)(at)


@cached_on_disk
def _violation(mechanism: Mechanism, at: Snapshot) -> tuple[Array, Array, Array]:
    equations = Equations(mechanism)

    def one(s: Snapshot) -> tuple[Array, Array, Array]:
        at = equations.at(s.t, s.q)
        return at.position(), at.velocity(s.v), at.jacobian @ s.vdot - at.gamma(s.v)

    return jax.vmap(one)(at)


@cached_on_disk
def _ranks(mechanism: Mechanism, ts: Array, q: Array) -> tuple[Array, Array]:
    equations = Equations(mechanism)
    values = jnp.linalg.svd(jax.vmap(equations.jacobian)(ts, q), compute_uv=False)
    if values.shape[1] == 0:
        return jnp.zeros(len(ts), int), jnp.ones(len(ts), q.dtype)
    ranks = jnp.sum(nonzero(values), axis=1)
    return ranks, values[:, ranks[0] - 1] / values[:, 0]
