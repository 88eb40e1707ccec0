"""The result of a simulation: the motion, and all quantities that can be computed from it, by name."""

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lazy_loader
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmbd.analyses.events.changes import ForceChanges
from jaxmbd.analyses.events.event_log import Events
from jaxmbd.analyses.simulation.readings import Asked, Motion, NoProgramError, Readings, part_of, readings
from jaxmbd.analyses.simulation.step_control import solver_reason
from jaxmbd.arrays import is_concrete
from jaxmbd.checks import check_index, checked_names
from jaxmbd.engine import as_program, cached_on_disk, choice
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, check_known, unknown
from jaxmbd.integrate.formulations.formulation import AbstractFormulation, AbstractProjectedFormulation, Stabilized
from jaxmbd.model.body.flexible import owner_of
from jaxmbd.model.mechanism.controllers import foreign_parts
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.named_coordinates import PositionDriverConstraint, SpeedDriverConstraint
from jaxmbd.model.mechanism.quantities import ENERGIES, channel_units
from jaxmbd.numerics.linear_solve import nonzero_singular_values as nonzero
from jaxmbd.printing import count_of, format_number, over_time, readable
from jaxmbd.state.output_channels import Snapshot, channels_of_users
from jaxmbd.state.result_codes import RESULTS
from jaxmbd.state.state import State, state_of

if TYPE_CHECKING:
    import xarray as xr

view: Any = lazy_loader.load("jaxmbd.view", suppress_warning=True)  # a higher floor, for `show` and `to_html` alone

_TOLD = "engine", "hindrance", "solver_choice"  # numbers of `stats` that are told in words
_MANY = 600  # channels of a mechanism; more are computed together only if many of them are asked for at once


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

    `q (times, nq)`; the states of parts `z (times, nz)`; consistent speeds `v (times, nv)`, accelerations `vdot (times,
    nv)` and multipliers `lam (times, m)`, computed on access; `solution["rod.theta"]` for each of the names in
    `solution.names`; `quadratures`, the requested integrals over time; `redundant`, true if constraint rows are
    dependent at the start; `stats`, numbers of steps; `engine`, what ran the motion, and `engine_reason`, why;
    `solver_reason`, what `solver="auto"` has chosen, and why;
    `result`, the verdict, one of `RESULTS` (values are NaN from a failure on); `start_rank`, the rank of the state at
    the start; `events`, the log of events if there were any to watch; `computed`, the snapshots of an analysis that
    computes these itself; `force_changes`, the parameters of forces that events have changed, over time.
    `print(solution)` shows the verdict and the ranges of the coordinates.
    """

    mechanism: Mechanism
    formulation: AbstractFormulation
    ts: Float[Array, " times"]
    q: Float[Array, "times nq"]
    integrated_speeds: Float[Array, "times nv"]
    z: Float[Array, "times nz"]
    quadratures: dict[str, Float[Array, " times"]]
    redundant: Bool[Array, ""]
    stats: dict[str, Any]
    result: RESULTS
    start_rank: Int[Array, ""]
    events: Events | None = None
    computed: Snapshot | None = None
    force_changes: ForceChanges | None = None

    @property
    def engine(self) -> Any:
        """What ran the motion: `"native"`, `"interpreter"` or `"diffrax"`; for a batch an array of such names.

        It is not known inside `jit` or `vmap`.
        """
        if not is_concrete(self.stats):
            raise MechanismError("The engine of a motion is not known inside jit or vmap. Read it from their result.")
        names = np.array(["diffrax", "interpreter", "native"])[np.asarray(self.stats.get("engine", 0))]
        return str(names) if names.ndim == 0 else names

    @property
    def engine_reason(self) -> Any:
        """Why that ran the motion, in words; for a batch an array of such texts. Empty for what is no motion."""
        if "num_steps" not in self.stats:
            return ""
        numbers = [np.asarray(self.stats.get(name, 0)) for name in ("hindrance", "operations")]
        texts = np.vectorize(choice.reason, otypes=[object])(self.engine, *numbers)
        if np.all(numbers[0] == choice.Hindrance.FOREIGN.number):
            texts = np.vectorize(lambda x: f"{x}: {', '.join(foreign_parts(self.mechanism))}", otypes=[object])(texts)
        return str(texts) if texts.ndim == 0 else texts

    @property
    def solver_reason(self) -> str:
        """Which method `solver="auto"` has chosen, and why, in words; empty if it was not asked."""
        number = self.stats.get("solver_choice")
        return "" if number is None else solver_reason(int(number))

    def __repr__(self) -> str:
        known = is_concrete(self.result, self.stats, self.events)
        return readable(self, self._text, ts=1, q=2) if known else readable(self, str, ts=2, q=3)

    def _text(self) -> str:
        layout, columns = self.mechanism.layout, []
        for block, values in (layout.q, self.q), (layout.z, self.z):
            columns += zip(block.names, block.units, np.asarray(values).T, strict=True)
        went = RESULTS[self.result] or "successful"
        lines = [
            f"Solution at {count_of(len(self.ts), 'time')}, "
            f"{format_number(self.ts[0])} to {format_number(self.ts[-1])} s: {went}",
            f"by {self._how()}",
            over_time(columns),
            *([] if self.events is None else self.events.doubts()),
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
        wanted, places = checked_names("names", names, "energy"), self.mechanism.layout.places
        saved = {name: places[name] for name in wanted if name in places and places[name][0] != "v"}
        series = {name: part_of(getattr(self, block), (..., k)) for name, (block, k) in saved.items()}
        others = tuple(name for name in wanted if name not in series)
        if others:
            series |= self._computed(others)
        return {name: series[name] for name in wanted}

    def _computed(self, names: tuple[str, ...]) -> dict[str, Array]:
        """Quantities that are not saved. Speeds alone are parts of `v`."""
        places = self.mechanism.layout.places
        if all(name in places for name in names):
            return {name: part_of(self.v, (..., places[name][1])) for name in names}
        known = channel_units(self.mechanism)
        check_known("quantity", names, known)
        users = channels_of_users(self.mechanism)
        own, theirs = (tuple(n for n in names if (n in users) is is_users) for is_users in (False, True))
        series = self._readings(Asked(own)).channels if own else {}
        return series | (readings(self._motion(), self.snapshots(), Asked(theirs)).channels if theirs else {})

    def snapshots(self) -> Snapshot:
        """The motion as one `Snapshot` with time on the first axis of each array."""
        known = self._known_snapshots()
        if known is None:
            known = readings(self._motion(), None, Asked(snapshots=True)).snapshots
            assert known is not None
            if is_concrete(known):
                self._kept["snapshots"] = known
        return known

    # --- what is computed once and kept -----------------------------------------------------------------

    @cached_property
    def _kept(self) -> dict[str, Any]:
        """Results for the numbers of this object; a copy with other numbers has its own."""
        return {}

    @cached_property
    def _is_known(self) -> bool:
        return is_concrete(self)

    def _known_snapshots(self) -> Snapshot | None:
        return self._kept.get("snapshots") if self.computed is None else self.computed

    def _motion(self) -> Motion:
        """The motion, as the argument of `readings`. If rows are known not to be redundant, less is computed.
        `simulate` has closed the positions already, with some formulations."""
        none = is_concrete(self.redundant) and not np.any(np.asarray(self.redundant))
        closed = "num_steps" in self.stats and isinstance(self.formulation, Stabilized | AbstractProjectedFormulation)
        redundant = False if none else self.redundant
        arrays = self.ts, self.q, self.integrated_speeds, self.z
        return Motion(self.mechanism, self.formulation, self.force_changes, redundant, *arrays, closed)

    def _readings(self, asked: Asked) -> Readings:
        """What is asked for, as one of all readings, which are computed together and kept.

        It is computed alone where all are too many, where numbers are not known, or where no program computes all, so
        that XLA would have to compile them.
        """
        found = self._kept.get("all")
        if found is None and self._is_known and not self._kept.get("apart"):
            users = channels_of_users(self.mechanism)
            names = tuple(name for name in channel_units(self.mechanism) if name not in users)
            if len(names) <= max(_MANY, 2 * len(asked.names)):
                found = self._together(names)
        return readings(self._motion(), self._known_snapshots(), asked) if found is None else found

    def _together(self, names: tuple[str, ...]) -> Readings | None:
        """These channels, all reactions and the constraint violation; None if no program computes them."""
        asked = Asked(names, tuple(self.mechanism.with_reactions()), True, True, together=True)
        for snapshots in (self._known_snapshots, self.snapshots):  # the motion may be no program, and the rest one
            with suppress(NoProgramError):
                found = readings(self._motion(), snapshots(), asked)
                if is_concrete(found):  # not while a function that reads them is being traced
                    self._kept.update({"all": found, "snapshots": found.snapshots})
                return found
        self._kept["apart"] = True
        return None

    def state(self, index: int = -1) -> State:
        """The state at one of the times, by default the last one."""
        check_index("solution.state", index, len(self.ts), "times")
        t, q, v, z = (part_of(x, index) for x in (self.ts, self.q, self.v, self.z))
        return state_of(self.mechanism, t, q, v, self.start_rank, self.result, z)

    def reaction(self, name: str, body: str | None = None, frame: str = "world") -> Reaction:
        """The reaction of a joint (or driver) on one of its bodies.

        **Arguments:** `body`, the body acted on, by default the joint's second one; `frame`, `"world"` or `"body"`
        axes. The moment is about the joint's marker on that body.
        """
        parts = self.mechanism.with_reactions()
        check_known("joint or driver", [name], parts)
        bodies = [owner_of(marker.body) for marker in parts[name].markers]
        if body is not None and body not in bodies:
            raise unknown(f"body of joint {name!r}", body, bodies)
        check_known("frame", [frame], ("world", "body"))
        place = bodies.index(body) if body is not None else min(1, len(bodies) - 1)
        loads = self._readings(Asked(reactions=(name,))).reactions[name][frame]
        force, moment = (part_of(x, (slice(None), place)) for x in loads)
        return Reaction(force, moment, bodies[place], frame)

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
        found = self._readings(Asked(violation=True)).violation
        assert found is not None
        return Violation(*found)

    def rank(self) -> Array:
        """The rank of the constraint rows at each time: the number of singular values above 1e-7 of the largest.

        If it is smaller than `state.rank`, the position is singular; `singularity_margin` is the distance from one.
        """
        return _ranks(self.mechanism, self.ts, self.q)[0]

    def singularity_margin(self) -> Array:
        """The distance from a singular position at each time.

        It is the ratio of the smallest singular value of the constraint rows to the largest, without those that are
        zero at the start because rows are dependent. At a singular position it is zero.
        """
        return _ranks(self.mechanism, self.ts, self.q)[1]

    def to_xarray(self, names: Iterable[str] | None = None) -> "xr.Dataset":
        """An `xarray.Dataset` over `time` [s], each variable with its unit."""
        units = channel_units(self.mechanism)
        data = self.read(units if names is None else names)
        variables = {}
        for name, values in data.items():
            extra = tuple(f"{name}_{k}" for k in range(values.ndim - 1))
            variables[name] = (("time", *extra), np.asarray(values), {"units": units[name]})
        counts = {key: value for key, value in self.stats.items() if key not in _TOLD}
        stats: dict[str, Any] = {key: int(value) for key, value in counts.items() if np.ndim(value) == 0}
        stats |= {"engine": self.engine, "engine_reason": self.engine_reason} if stats else {}
        stats |= {"solver_reason": self.solver_reason} if self.solver_reason else {}
        import xarray as xr  # takes a third of a second

        return xr.Dataset(variables, {"time": ("time", np.asarray(self.ts), {"units": "s"})}, stats)

    def show(self, height: int = 600, **options: Any) -> None:
        """Show the motion in the browser, or in a notebook below the cell: a page that can be played and turned.

        **Arguments:** `height` [px] in a notebook; those of `jaxmbd.view.page`: `channels`, `measured`, `reactions`,
        `trace`, `title`, `speed`, `elev`, `azim`.

            >>> solution = mbd.examples.get("pendulum").simulate(np.linspace(0.0, 1.0, 11))
            >>> solution.show(channels=["O.angle", "energy"], reactions=["O"])  # doctest: +SKIP
        """
        view.page(self, **options).show(height)

    def to_html(self, path: str | PathLike[str], **options: Any) -> Path:
        """Write the page that `show` shows to a file, which needs no network, and return its path.

        >>> solution = mbd.examples.get("pendulum").simulate(np.linspace(0.0, 1.0, 11))
        >>> solution.to_html("pendulum.html", channels=["O.angle", "energy"], reactions=["O"]).name
        'pendulum.html'
        """
        return view.page(self, **options).save(path)


def at_instant(mechanism: Mechanism, state: State) -> Solution:
    """A state as a solution with a single instant, from which every channel can be read."""
    redundant = state.rank < sum(mechanism.constraint_sizes())  # also where the rank is not known
    instant = state.t[None], state.q[None], state.v[None], state.z[None]
    return Solution(mechanism, Stabilized(), *instant, {}, redundant, {}, state.result, state.rank)


@cached_on_disk
def _ranks(mechanism: Mechanism, ts: Array, q: Array) -> tuple[Array, Array]:
    jacobians = jax.vmap(lambda t, q: as_program(_jacobian)(mechanism, t, q))(ts, q)
    values = jnp.linalg.svd(jacobians, compute_uv=False)
    if values.shape[1] == 0:
        return jnp.zeros(len(ts), int), jnp.ones(len(ts), q.dtype)
    ranks = jnp.sum(nonzero(values), axis=1)
    return ranks, values[:, ranks[0] - 1] / values[:, 0]


def _jacobian(mechanism: Mechanism, t: Array, q: Array) -> Array:
    return Equations(mechanism).scaled_jacobian(t, q)
