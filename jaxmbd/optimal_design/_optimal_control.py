"""Optimal control: efforts over time that move a mechanism from a state to an end, by single or multiple shooting.

Efforts are sampled forces in the mechanism, or samples that are added to its inputs. With one segment the motion is
integrated as a whole (single shooting). With more, the independent coordinates and speeds at the beginning of each
segment are variables too, and continuity is a constraint (`analyses/multiple_shooting.py`).

Source: Bock, Plitt, *A multiple shooting algorithm for direct solution of optimal control problems*, IFAC Proc. 17
(1984); Betts, *Practical Methods for Optimal Control* (2010), ch. 3.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Unpack, get_args

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.multiple_shooting import StateChart
from jaxmbd.analyses.simulation.settings import Integration, Settings, chosen_integration
from jaxmbd.analyses.simulation.simulate import simulate
from jaxmbd.analyses.simulation.solution import Solution
from jaxmbd.arrays import Number, Numbers, as_float
from jaxmbd.checks import (
    check_callable,
    check_count,
    check_finite,
    check_flags,
    check_mapping,
    check_number,
    check_shape,
    checked_names,
)
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.integrate.solvers.unrolled_erk import RungeKutta4
from jaxmbd.model.functions.piecewise import Table
from jaxmbd.model.mechanism.inputs import check_signal, with_signals
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.optimal_design._design import Design, optimise
from jaxmbd.optimal_design._limits import Limit, limits_of
from jaxmbd.optimal_design._nonlinear_programme import Method
from jaxmbd.optimal_design._problem import Problem
from jaxmbd.optimal_design._variables import variables_of
from jaxmbd.parameters.inputs import inputs
from jaxmbd.parameters.parameters import Parameter
from jaxmbd.parameters.ranges import Box, Unbounded
from jaxmbd.state.output_channels import read
from jaxmbd.state.state import State, check_state

_OWN_KEYWORDS = (
    "coordinates", "duration", "segments", "steps_per_segment", "samples_per_segment", "objective", "constraints",
    "guess", "starts", "seed", "method", "steps", "progress",
)  # fmt: skip
_NODES, _RATES, _OWN = "coordinates of segments", "speeds of segments", "states of parts of segments"


@dataclass(frozen=True)
class Control:
    """The result of `optimal_control`. `print` shows the search.

    - `efforts`: the values of each effort at its sample times, by name;
    - `mechanism`: the mechanism with them; `solution`: its motion, integrated as a whole;
    - `objective`; `end_error`: the largest difference from the end values, of the motion integrated as a whole;
    - `design`: the search as a `Design`, with all starts and constraints; `outcome`: why it stopped;
    - `end_multipliers`: the derivatives of the least objective by the end values, by channel; `effort_multipliers`:
      those by the bounds of the efforts, for each sample like `efforts`: positive on a lower bound, negative on an
      upper one, zero on none. If samples share a bound, the derivative by it is their sum. Those of other constraints,
      and how well all of them explain the gradient, are in `design.multipliers`. Empty if constraints are violated.
    """

    efforts: dict[str, np.ndarray]
    mechanism: Mechanism
    solution: Solution
    objective: float
    end_error: float
    design: Design
    end_multipliers: dict[str, float]
    effort_multipliers: dict[str, np.ndarray]

    @property
    def outcome(self) -> str:
        """Why the search stopped."""
        return self.design.outcome

    def __repr__(self) -> str:
        peaks = ", ".join(f"{name!r} up to {np.abs(u).max():.4g}" for name, u in self.efforts.items())
        head = f"Control: efforts {peaks}; the end is missed by {self.end_error:.2g}"
        costs = ", ".join(f"{value:.4g} by {name!r}" for name, value in self.end_multipliers.items())
        return head + f"\nMultipliers of the end: {costs}" * bool(costs) + f"\n\n{self.design!r}"


_Motion = tuple[Mechanism, Solution, Mapping[str, PyTree]]  # of all segments, and the values of all variables


class _Shooting(eqx.Module):
    """What a control problem is integrated with: the start, the times of the segments, and what is independent."""

    start: State
    ts: Float[Array, "segments times"]
    guesses: Float[Array, "segments nq"]
    integration: Integration
    chart: StateChart

    def motion(self, mechanism: Mechanism, values: Mapping[str, PyTree]) -> _Motion:
        """Return a mechanism with the motion of all segments, side by side."""

        def one(ts: Array, guess: Array, x: Array) -> Solution:
            near = eqx.tree_at(lambda s: (s.q, s.t), self.start, (guess, ts[0]))
            state = self.chart.state(mechanism, x, ts[0], near)
            return simulate(mechanism, state, ts, self.integration, throw=False)

        x = self.chart.numbers(mechanism, self.start)[None]
        if _NODES in values:
            own = [values[_OWN]] if _OWN in values else []
            x = jnp.concatenate([x, jnp.concatenate([values[_RATES], values[_NODES], *own], axis=1)])
        return mechanism, jax.vmap(one)(self.ts, self.guesses, x), values

    def gaps(self, motion: _Motion) -> Array:
        """Return the jumps between the segments, without units."""
        mechanism, solution, _ = motion

        def numbers(k: int) -> Array:
            states = eqx.filter_vmap(lambda s: s.state(k))(solution)
            return eqx.filter_vmap(lambda s: self.chart.numbers(mechanism, s))(states)

        jumps = self.chart.jumps(mechanism, numbers(-1)[:-1], numbers(0)[1:])
        return jumps / self.chart.scales(mechanism)[None]


# What is compiled for one search serves the next if its functions are equal; so they are classes, not closures.


class _WithEfforts:
    """A mechanism as a function of the values of efforts: of tables that are its forces, and of those that are added to
    its inputs, at the times `samples`. Its own numbers are constants, so that it is equal to another one of the same
    mechanism only."""

    def __init__(self, mechanism: Mechanism, names: tuple[str, ...], samples: tuple[float, ...]) -> None:
        self.mechanism, self.names, self.samples = mechanism, names, samples

    def __call__(self, values: Mapping[str, PyTree]) -> Mechanism:
        mechanism, known = self.mechanism, inputs(self.mechanism)
        for name in (name for name in self.names if name not in known):
            mechanism = eqx.tree_at(lambda m, name=name: m[name].force.values, mechanism, values[name])
        return with_signals(mechanism, [(x, Table(self.samples, values[x])) for x in self.names if x in known])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _WithEfforts)
            and self.mechanism is other.mechanism
            and (self.names, self.samples) == (other.names, other.samples)
        )

    def __hash__(self) -> int:
        return hash((id(self.mechanism), self.names, self.samples))


class _OfMechanism(eqx.Module):
    """A function of a mechanism as one of its motion."""

    function: Callable[[Mechanism], Number]

    def __call__(self, motion: _Motion) -> Number:
        return self.function(motion[0])


class _AtEnd(eqx.Module):
    """The values of channels at the end of a motion."""

    channels: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, motion: _Motion) -> Array:
        arrays, rest = eqx.partition(motion[1], eqx.is_array)
        last = eqx.combine(jax.tree.map(lambda x: x[-1], arrays), rest)
        values = read(last.mechanism, last.state(-1), self.channels)
        return jnp.stack([values[name] for name in self.channels])


class _Squares(eqx.Module):
    """The integral of the squared efforts, exact for tables that are linear or constant between samples."""

    tables: dict[str, Table]

    def __call__(self, motion: _Motion) -> Array:
        total = jnp.zeros(())
        for name, table in self.tables.items():
            width, a, b = jnp.diff(table.times), motion[2][name][:-1], motion[2][name][1:]
            total += jnp.sum(width * (a**2 if table.order == 0 else (a**2 + a * b + b**2) / 3))
        return total


def optimal_control(
    mechanism: Mechanism,
    start: State,
    efforts: Mapping[str, object],
    end: Mapping[str, float],
    *,
    coordinates: Iterable[str],
    duration: float,
    segments: int = 1,
    steps_per_segment: int = 50,
    samples_per_segment: int = 10,
    integration: Integration | None = None,
    objective: Callable[[Mechanism], Number] | None = None,
    constraints: Mapping[str, Limit] | None = None,
    guess: Mapping[str, Numbers] | None = None,
    starts: int = 1,
    seed: int = 0,
    method: Method = "slsqp",
    steps: int = 200,
    progress: bool = True,
    **settings: Unpack[Settings],
) -> Control:
    """Find efforts over time that move a mechanism from a state to given values at the end.

    `min J`   subject to   the equations of motion, `y(T) = y_end`, and efforts within their bounds; by default
    `J = Σ ∫ u(t)² dt`

    By default the motion is integrated with constant steps (`RungeKutta4`), so that it is a smooth function of the
    efforts.

    **Arguments:**

    - `mechanism`, and the state at the `start` of the motion;
    - `efforts`: bounds, `(-3.0, 3.0)`, or None for no bounds, by the name of an input (`inputs`), such as `"O.angle"`,
      to which samples are added that begin at zero; or of a `JointForce` or `Force` whose `force` is a `Table`, the
      values of which are varied;
    - `end`: values at the end by channel, `{"O.angle": 3.14, "O.angle_rate": 0.0}`;
    - `coordinates`: as many coordinates as the mechanism has degrees of freedom, which determine its position;
    - `duration` `[s]`; `segments`: 1 for single shooting, more for multiple shooting; `steps_per_segment`: the number
      of constant steps; `samples_per_segment`: the intervals between the samples of inputs, linear between them;
    - `integration`: how the motion is integrated, an `Integration`, or settings by name as in `simulate`. A solver with
      error control, `solver=diffrax.Dopri8()`, chooses its steps itself, and the motion is less smooth;
    - `objective`: of the mechanism, a number; `constraints`: a `Limit` by name, on the mechanism;
    - `guess`: values of the coordinates at the ends of the segments but the last, `(segments − 1,)`, by coordinate;
      by default on a straight line from the start to their values in `end`;
    - `starts`, `seed`, `method`, `steps`, `progress`: as in `design`. Of all starts but the first, the efforts, and the
      coordinates and speeds of segments, are random.

    **Returns:** a `Control`; print it. Ctrl-C returns the best so far.

    **Raises:** `MechanismError` for unknown names, forces that are no tables, a wrong number of coordinates, and
    settings that the search cannot keep: events, adjoints, and those of error control beside constant steps.

        >>> end = {"O.angle": 3.14, "O.angle_rate": 0.0}
        >>> swing = dict(coordinates=["O.angle"], duration=3.0, segments=6)
        >>> swing |= dict(efforts={"O.angle": (-3.0, 3.0)}, end=end)
        >>> found = mbd.optimal_design.optimal_control(arm, state, **swing)  # doctest: +SKIP

    Source: Bock, Plitt (1984); Betts, *Practical Methods for Optimal Control* (2010), ch. 3.
    """
    check_state(mechanism, start)
    check_flags("optimal_control", progress=progress)
    check_known("method", [method], get_args(Method))
    counts = {"segments": segments, "steps_per_segment": steps_per_segment, "starts": starts, "steps": steps}
    counts["samples_per_segment"] = samples_per_segment
    chosen = chosen_integration("optimal_control", integration, settings, _OWN_KEYWORDS)
    _check(efforts, end, duration, objective, counts, seed)
    names = checked_names("optimal_control: coordinates", coordinates, "O.angle")
    for name, value in read(mechanism, start, [*end]).items():
        check_shape("optimal_control: end: the channel", repr(name), value, ())
    samples = float(start.t) + np.linspace(0.0, float(duration), segments * samples_per_segment + 1)
    tables = {name: _table(mechanism, name, samples) for name in efforts}
    nodes = _guessed(mechanism, start, names, end, guess or {}, segments)
    chosen = _settled(chosen, float(duration) / (segments * steps_per_segment))
    shooting = _shooting(mechanism, start, names, nodes, duration, steps_per_segment, chosen)
    units = inputs(mechanism)
    free = {
        name: Parameter(None, table.values, _range(name, efforts[name]), units.get(name, ""))
        for name, table in tables.items()
    }
    rates = jnp.broadcast_to(jnp.diff(nodes, axis=0)[: segments - 1] * segments / duration, nodes[1:-1].shape)
    own = {_NODES: nodes[1:-1], _RATES: rates} if segments > 1 else {}
    if own and len(start.z):
        own[_OWN] = jnp.broadcast_to(start.z, (segments - 1, len(start.z)))
    free |= {name: Parameter(start=value) for name, value in own.items()}
    build = _WithEfforts(mechanism, tuple(tables), tuple(samples.tolist()))
    variables = variables_of("optimal_control", build, free)
    limits = {"end": Limit(_AtEnd(tuple(end)), equals=jnp.asarray([*end.values()]), scale=1.0)}
    if segments > 1:
        limits["continuity"] = Limit(shooting.gaps, equals=0.0)
    for name, limit in limits_of("optimal_control", constraints).items():
        if name in limits:
            raise MechanismError(f"optimal_control: {name!r} is the name of a constraint already: take another one.")
        limits[name] = eqx.tree_at(lambda c: c.function, limit, _OfMechanism(limit.function))
    cost = _Squares(tables) if objective is None else _OfMechanism(objective)
    problem = Problem(cost, variables, limits, shooting.motion)
    found = optimise(problem, starts, seed, method, steps, progress, "optimal_control")
    return _control(found, shooting, end, tables, segments * steps_per_segment)


def _check(
    efforts: object, end: Any, duration: object, objective: object, counts: Mapping[str, object], seed: object
) -> None:  # fmt: skip
    """Raise unless the arguments are of the right kinds."""
    for name, count in counts.items():
        check_count(f"optimal_control: {name}", count, 1)
    check_count("optimal_control: seed", seed, 0)
    if objective is not None:
        check_callable("optimal_control", "objective", objective)
    for what, given, example in (("efforts", efforts, "{'motor': (-3.0, 3.0)}"), ("end", end, "{'O.angle': 3.14}")):
        check_mapping(f"optimal_control: {what}", given, example)
        if not given:
            raise MechanismError(f"optimal_control: {what} must name at least one, such as {example}, got {given!r}.")
    for name, value in end.items():
        check_finite("optimal_control: end value of", repr(name), as_float(value))
    check_finite("optimal_control", "duration", as_float(duration))
    check_number("optimal_control", "duration", as_float(duration), "s")


def _control(
    found: Design, shooting: _Shooting, end: Mapping[str, Number], tables: Mapping[str, Table], steps: int
) -> Control:  # fmt: skip
    """Return the result of a search, with the motion integrated as a whole."""
    grid = jnp.linspace(shooting.ts[0, 0], shooting.ts[-1, -1], steps + 1)
    solution = simulate(found.mechanism, shooting.start, grid, shooting.integration, throw=False)
    missed = max(abs(float(solution[name][-1]) - float(value)) for name, value in end.items())
    values = {name: np.asarray(found.values[name]) for name in tables}
    known = found.multipliers
    costs = {} if known is None else dict(zip(end, known.constraints["end"].tolist(), strict=True))
    bounds = {} if known is None else {name: known.bounds[name] for name in tables}
    return Control(values, found.mechanism, solution, found.objective, missed, found, costs, bounds)


def _table(mechanism: Mechanism, name: str, samples: np.ndarray) -> Table:
    """Return the table that is the force of a name, or one of zeros for the input of a name."""
    forces, known = [force.name for force in mechanism.forces], inputs(mechanism)
    if name in known:
        table = Table(samples, np.zeros(len(samples)))
        check_signal(mechanism, name, table)
        return table
    check_known("force or input", [name], [*forces, *known])
    table = getattr(mechanism[name], "force", None)
    if not isinstance(table, Table):
        raise MechanismError(
            f"optimal_control: the effort {name!r} must be a force with samples over time: JointForce({name!r}, "
            f"'O.angle', Table(times, values)); or vary what is added to it, the input {name + '.effort'!r}."
        )
    return table


def _settled(integration: Integration, dt: float) -> Integration:
    """Return how motions are integrated, with constant steps `dt` unless a solver with error control is asked for.

    **Raises:** `MechanismError` for settings that cannot be kept.
    """
    solver, controller = integration.solver, integration.stepsize_controller
    has_estimate = isinstance(solver, str | dfx.AbstractAdaptiveSolver)
    refused = {"events": "the motion has to go on from the start to the end"}
    if integration.adjoint != "reverse":  # another name of the default
        refused["adjoint"] = "the search takes derivatives of both modes, which only adjoint='any' has"
    if isinstance(controller, dfx.StepTo):
        refused["stepsize_controller"] = "StepTo holds the times of one motion, and there is one for each segment"
    is_constant = not has_estimate or isinstance(controller, dfx.ConstantStepSize)
    if is_constant:
        name = "RungeKutta4" if solver is None else type(solver).__name__
        why = f"the steps of {name} are constant here; solver=diffrax.Dopri8() has control of its error"
        refused |= dict.fromkeys(("accuracy", "rtol", "atol", "control_speeds", "error_weights", "dtmin"), why)
        refused |= {} if has_estimate else {"stepsize_controller": why}
        refused["dt0"] = "the length of constant steps follows from steps_per_segment"
    for name in integration.changed():
        if name in refused:
            raise MechanismError(f"optimal_control: {name} cannot be set: {refused[name]}.")
    if not is_constant:
        return integration
    return replace(integration, solver=RungeKutta4() if solver is None else solver, dt0=dt)


def _range(name: str, bounds: object) -> Box | Unbounded:
    if bounds is None:
        return Unbounded()
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise MechanismError(
            f"optimal_control: the bounds of the effort {name!r} must be a pair (least, largest), or None, got "
            f"{bounds!r}."
        )
    return Box(*bounds)


def _guessed(
    mechanism: Mechanism, start: State, names: tuple[str, ...], end: Mapping[str, Number], guess: Mapping[str, Numbers],
    segments: int,
) -> Float[Array, "nodes k"]:  # fmt: skip
    """Return guessed values of the coordinates at the ends of all segments, from the start on."""
    check_mapping("optimal_control: guess", guess, "{'O.angle': [0.5, 1.0]}")
    check_known("coordinate for guess", guess, names)
    first = [float(read(mechanism, start, name)) for name in names]
    columns = []
    for name, begin in zip(names, first, strict=True):
        inner = np.linspace(begin, float(end.get(name, begin)), segments + 1)
        if name in guess:
            values = as_float(guess[name])
            check_finite("optimal_control: guess of", repr(name), values, (segments - 1,))
            inner[1:-1] = values
        columns.append(inner)
    return jnp.asarray(np.stack(columns, axis=-1), start.q.dtype)


def _shooting(
    mechanism: Mechanism, start: State, names: tuple[str, ...], nodes: Array, duration: float, steps: int,
    integration: Integration,
) -> _Shooting:  # fmt: skip
    """Return the times of the segments, and a position near each node in one assembly mode.

    **Raises:** `MechanismError` unless the coordinates determine the position.
    """
    segments = len(nodes) - 1
    rank = int(start.rank)
    if rank >= 0 and mechanism.nv - rank != len(names):
        raise MechanismError(
            f"optimal_control: the mechanism has {mechanism.nv - rank} degrees of freedom, and coordinates names "
            f"{len(names)}: {', '.join(names)}. Name as many as determine its position."
        )
    ends = float(start.t) + np.linspace(0.0, duration, segments + 1)
    ts = np.linspace(ends[:-1], ends[1:], 2 if segments > 1 else steps + 1, axis=-1)
    state, guesses = start, [start.q]
    for node in np.asarray(nodes[1:-1]):
        state = assemble(mechanism, dict(zip(names, node, strict=True)), guess=state)
        guesses.append(state.q)
    chart = StateChart(names, names, start.layout.z.names)
    return _Shooting(start, jnp.asarray(ts, start.q.dtype), jnp.stack(guesses), integration, chart)
