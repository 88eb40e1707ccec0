"""Exciting motions for the identification from efforts: Fourier series from which base parameters follow best.

With the regressor `X` of the base parameters over one period, `τ = X π + τ₀`, an error of the efforts is an error of
`π` that is the larger, the nearer the columns of `X` are to dependent. So the coefficients of the series minimise the
condition number of `X`, or maximise `det XᵀX`, within what the machine can do (`_excitation_problem.py`).

Sources: Swevers, Ganseman, Tükel, De Schutter, Van Brussel, *Optimal robot excitation and identification*, IEEE Trans.
Robotics and Automation 13 (1997); Gautier, Khalil, *Exciting trajectories for the identification of base inertial
parameters of robots*, Int. J. Robotics Research 11 (1992); Park, *Fourier-based optimal excitation trajectories for the
dynamic identification of robots*, Robotica 24 (2006).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import itemgetter
from typing import Any, TypeAlias, get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assemble import assemble
from jaxmbd.analyses.inverse_dynamics import actuated, inverse_dynamics
from jaxmbd.analyses.kinematics import kinematics
from jaxmbd.analyses.measured_motion import MeasuredMotion
from jaxmbd.arrays import Number, as_float, is_concrete
from jaxmbd.checks import check_count, check_finite, check_flags, check_mapping, check_number
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, check_known, shown, unknown
from jaxmbd.identification import BaseParameters, Regressor, regressor
from jaxmbd.model.driver import Driver
from jaxmbd.model.functions.fourier import FourierSeries
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.optimal_design._excitation_problem import (
    DOTS,
    Criterion,
    ExcitationProblem,
    Series,
    Unknowns,
)
from jaxmbd.optimal_design._excitation_search import Course, random_starts, searches, with_sizes
from jaxmbd.optimal_design._limits import Limit, Margin
from jaxmbd.optimal_design._tables import constraints_table, starts_table
from jaxmbd.printing import count_of
from jaxmbd.progress import reporting
from jaxmbd.state.output_channels import Snapshot, channel_values, read

_PER_HARMONIC = 10  # samples, by default, in a period of the highest harmonic
_MIDDLE = 0.5  # share of a coordinate's range in which the middle of its motion lies at the start

Pair: TypeAlias = tuple[float | None, float | None]  # a lower and an upper limit


@dataclass(frozen=True)
class ExcitationStart:
    """One of the starts: its number and why it ended; the condition number of the random motion, and of the one found;
    `errors`: the geometric mean of the standard errors of the base parameters, as a multiple of that by the random
    motion; the largest violation of a limit, as a share of its scale; the steps."""

    number: int
    verdict: str
    first_condition: float
    condition: float
    errors: float
    violation: float
    steps: int


@dataclass(frozen=True, eq=False)
class Excitation:
    """The result of `excitation`. `print` shows it as a table.

    - `series`: the motion of each coordinate as a `FourierSeries`, for drivers and controllers;
    - `mechanism`: the mechanism with these as the motions of its drivers, which are the actuators: for `kinematics`,
      `inverse_dynamics` and `identification.regressor`;
    - `condition`: the condition number of the regressor of the base parameters at the samples `ts` `[s]`, rows in units
      of the noise, columns in units of `sizes`, those that they have in the random motions; `first_condition`: of the
      random motion at which this start began;
    - `base`: the base parameters;
    - `constraints`: the limits with their margins over the whole period, by parabolas through eight times as many times
      as there are samples; `is_feasible`: whether all are kept; `active`: the names of those that are reached;
    - `starts`: all starts, the best first, with what has become of the errors; `outcome`: why the search stopped.
    """

    series: dict[str, FourierSeries]
    mechanism: Mechanism
    period: float
    ts: Float[np.ndarray, " samples"]
    condition: float
    first_condition: float
    sizes: Float[np.ndarray, " base"]
    base: BaseParameters
    constraints: tuple[Margin, ...]
    starts: tuple[ExcitationStart, ...]
    outcome: str

    @property
    def is_feasible(self) -> bool:
        """True if all limits are kept."""
        return all(margin.kept for margin in self.constraints)

    @property
    def active(self) -> tuple[str, ...]:
        """The limits that are reached."""
        return tuple(margin.name for margin in self.constraints if margin.active)

    def table(self, ts: Float[Any, " times"]) -> dict[str, Float[np.ndarray, " times"]]:
        """Return columns by name: `"t"`, each coordinate with its rate and second rate, and the efforts that the
        mechanism needs, such as `{"t": …, "A.angle": …, "A.angle_rate": …, "A.angle_second_rate": …, "motor.effort":
        …}`, for a file or a controller."""
        times = _times(ts)
        efforts = inverse_dynamics(self.mechanism, times)
        columns = {"t": times}
        for name, samples in self._samples(times).items():
            columns |= {f"{name}{dots}": column for dots, column in zip(DOTS, samples, strict=True)}
        return columns | {f"{d.name}.effort": np.asarray(efforts.effort(d.name)) for d in self.mechanism.drivers}

    def motion(self, ts: Float[Any, " times"]) -> MeasuredMotion:
        """Return the motion at times `[s]` as samples with exact rates and second rates."""
        times = _times(ts)
        columns = self._samples(times)
        parts = ({name: samples[k] for name, samples in columns.items()} for k in range(3))
        return MeasuredMotion(times, *parts, smoothing="none")

    def _samples(self, ts: np.ndarray) -> dict[str, Float[np.ndarray, "3 times"]]:
        """Each coordinate with its rate and second rate."""
        return {name: np.asarray(series.derivatives(ts)) for name, series in self.series.items()}

    def __repr__(self) -> str:
        kept = "all limits kept" if self.is_feasible else "NOT FEASIBLE"
        harmonics = count_of(len(next(iter(self.series.values())).cosines), "harmonic")
        parameters = count_of(len(self.base.names), "base parameter")
        head = (
            f"Excitation: {self.outcome}; condition {self.condition:.4g}, of the random start "
            f"{self.first_condition:.4g}; {kept}\nperiod {self.period:.6g} s, {harmonics}, {parameters}"
        )
        columns = (
            [str(s.number), s.verdict, *(f"{x:.4g}" for x in (s.first_condition, s.condition, s.errors))]
            for s in self.starts
        )
        rows = [[*row, f"{s.violation:.1g}", str(s.steps)] for row, s in zip(columns, self.starts, strict=True)]
        headings = ["start", "verdict", "condition before", "after", "errors after / before", "violation", "steps"]
        parts = [head, *constraints_table(self.constraints)]
        return "\n\n".join([*parts, starts_table(headings, rows, [start.verdict for start in self.starts])])


def excitation(
    mechanism: Mechanism,
    actuators: Mapping[str, str] | None = None,
    *,
    period: Number,
    limits: Mapping[str, Any],
    harmonics: int = 5,
    bodies: Sequence[str] | None = None,
    numbers: Sequence[str] = (),
    criterion: Criterion = "condition",
    noise: Mapping[str, Number] | None = None,
    at_rest: bool = False,
    samples: int | None = None,
    starts: int = 3,
    seed: int = 0,
    steps: int = 200,
    progress: bool = True,
) -> Excitation:
    """Find the periodic motion from whose efforts the base parameters of a mechanism can be identified best.

    `c(t) = c₀ + Σₖ (aₖ cos k ω t + bₖ sin k ω t)`,   `min cond X`   or   `max det XᵀX`,   `lower ≤ y(t) ≤ upper`

    `X` is the regressor of the base parameters over one period (`identification.regressor`), with rows in units of the
    noise of each actuator, and columns in units of their sizes in the random motions: a number that the motion hardly
    excites costs more. Loops are closed at all times, and a motion along which they cannot be closed is none. Gradients
    are exact.

    **Arguments:**

    - `mechanism`, whose numbers are those known beforehand: they determine the efforts;
    - `actuators`: the coordinates that are moved, and whose efforts are measured, by names of your choice,
      `{"motor": "A.angle"}`, as many as degrees of freedom; by default the mechanism's drivers, whose motions are
      replaced;
    - `period` `[s]`; `harmonics`: their number;
    - `limits`: by the names and patterns of output channels, a pair `(lower, upper)`, either of which may be None, or a
      number for both sides: positions `"A.angle"`, rates `"A.angle_rate"`, second rates of the coordinates that are
      moved, `"A.angle_second_rate"`, efforts `"motor.effort"`, passive joints, sensors, `{"*.effort": 50.0}`. A name
      counts before a pattern, and a pattern before those after it. The position of each coordinate that is moved needs
      both limits;
    - `bodies`, `numbers`: what is to be identified, as for `identification.regressor`;
    - `criterion`: `"condition"`, or `"determinant"`, for the least volume of the ellipsoid of errors, which also
      rewards large efforts;
    - `noise`: standard deviations of the measured efforts by actuator, one by default;
    - `at_rest`: at the start of each period, rates and second rates are zero;
    - `samples`: of a period, by default ten in that of the highest harmonic;
    - `starts`, `seed`: random motions within the limits of the coordinates that are moved, at which searches begin;
    - `steps`: the maximum number of steps of a search; `progress`: show the progress on one line.

    **Returns:** an `Excitation`; print it. Ctrl-C ends the search and returns the best motion so far.

    **Raises:** `MechanismError` for names that do not exist, missing or reversed limits, and too few actuators;
    `SolveError` if no start can be assembled.

        >>> four_bar = mbd.examples.get("planar-four-bar").mechanism
        >>> found = mbd.optimal_design.excitation(  # doctest: +SKIP
        ...     four_bar, {"motor": "A.angle"}, period=2.0, limits={"A.angle": (-0.5, 0.5), "motor.effort": 20.0}
        ... )
        >>> motion = mbd.kinematics(found.mechanism, np.linspace(0.0, 2.0, 101))  # doctest: +SKIP

    Source: Swevers et al., *Optimal robot excitation and identification*, IEEE Trans. Robotics and Automation 13
    (1997); Park, *Fourier-based optimal excitation trajectories*, Robotica 24 (2006), for motions that start at rest.
    """
    check_mechanism(mechanism)
    check_known("criterion", [criterion], get_args(Criterion))
    for name, count in (("harmonics", harmonics), ("starts", starts), ("steps", steps)):
        check_count(f"excitation: {name}", count, 1)
    check_count("excitation: seed", seed, 0)
    check_flags("excitation", at_rest=at_rest, progress=progress)
    check_finite("excitation", "period", as_float(period))
    check_number("excitation", "period", as_float(period), "s")
    if at_rest and harmonics == 1:
        raise MechanismError("excitation: a motion that starts at rest needs at least 2 harmonics.")
    if samples is not None:
        check_count("excitation: samples", samples, 2 * harmonics + 1)
    if not is_concrete(mechanism, period, limits, noise):
        raise MechanismError("excitation cannot be compiled (jit, vmap): its steps depend on values.")
    problem = _problem(
        _moved(mechanism, actuators, float(period), harmonics), limits, noise, criterion, at_rest, samples
    )
    kinematics(problem.driven(np.zeros(len(problem.bounds[0]))), problem.ts)  # raises for too few actuators
    with reporting(progress, "excitation: compiling ...") as report:
        xs = random_starts(problem, starts, seed)
        unknowns = _unknowns(problem.mechanism, _regressor(problem, xs[0], bodies, numbers))
        problem = with_sizes(replace(problem, unknowns=unknowns), xs)
        courses = searches(problem, xs, steps, report)
    return _result(problem, courses, bodies, numbers)


# --- arguments -----------------------------------------------------------------------------------------------


def _moved(mechanism: Mechanism, actuators: Mapping[str, str] | None, period: float, harmonics: int) -> Mechanism:
    """The mechanism with a series as the motion of each actuator."""
    check_mapping("excitation: actuators", actuators, "{'motor': 'O.angle'}")
    if actuators is not None:
        mechanism = actuated(mechanism, actuators)
    if not mechanism.drivers:
        raise MechanismError("excitation: the mechanism has no drivers; name the actuators, {'motor': 'O.angle'}.")
    nothing = FourierSeries(period, 0.0, np.zeros(harmonics), np.zeros(harmonics))
    return mechanism.replaced(drivers=(Driver(d.name, d.coordinate, nothing) for d in mechanism.drivers))


def _problem(
    moved: Mechanism, limits: Any, noise: Any, criterion: Criterion, at_rest: bool, samples: int | None
) -> ExcitationProblem:
    """The problem, in which nothing is unknown yet."""
    motion: Any = moved.drivers[0].motion
    period, harmonics = float(motion.period), len(motion.cosines)
    ends, units = _limits(moved, limits), _units(moved)
    series = _series(moved, period, harmonics, ends, at_rest)
    count = _PER_HARMONIC * harmonics if samples is None else samples
    nothing = Unknowns((), (), (), jnp.zeros(0))
    found = {name: Limit(itemgetter(name), *pair, unit=units[name]) for name, pair in ends.items()}
    levels = _noise(moved, noise)
    return ExcitationProblem(
        moved, series, period / count * np.arange(count), nothing, found, levels, criterion, np.zeros(0),
        np.zeros((len(found), 2)),
    )  # fmt: skip


def _units(moved: Mechanism) -> dict[str, str]:
    """The units of all that can be limited."""
    units = {name: moved.coordinate(name).unit(moved.space) for name in (d.coordinate for d in moved.drivers)}
    own = {f"{name}{dots}": f"{unit}{over}" for name, unit in units.items() for dots, over in DOTS.items()}
    return own | channel_units(moved)


def _limits(moved: Mechanism, limits: Any) -> dict[str, Pair]:
    """Lower and upper limits by reading."""
    check_mapping("excitation: limits", limits, "{'A.angle': (-1.0, 1.0), 'motor.effort': 50.0}")
    known, found = _units(moved), {}
    for pattern in sorted(limits or {}, key=lambda name: name not in known):  # names before patterns
        ends = _pair(pattern, limits[pattern])
        names = [pattern] if pattern in known else [name for name in known if fnmatchcase(name, pattern)]
        scalars = _scalars(moved, names)
        if not names:
            raise unknown("quantity", pattern, known)
        if not scalars:
            raise MechanismError(f"excitation: limits names {pattern!r}, which is a vector: limit one number.")
        found |= {name: ends for name in scalars if name not in found}
    for driver in moved.drivers:
        if None in found.get(driver.coordinate, (None,)):
            raise MechanismError(
                f"excitation: limits must name a lower and an upper limit of {driver.coordinate!r}, which is moved: "
                f"{{{driver.coordinate!r}: (-1.0, 1.0)}}."
            )
    return found


def _scalars(moved: Mechanism, names: Sequence[str]) -> list[str]:
    """Those of the names that are single numbers."""
    of_drivers = [f"{driver.coordinate}{dots}" for driver in moved.drivers for dots in DOTS]
    others = [name for name in names if name not in of_drivers]

    def values() -> dict[str, Array]:
        equations = Equations(moved)
        return channel_values(equations, others, Snapshot.at_rest(equations, jnp.zeros(()), jnp.zeros(moved.nq)))

    shapes = eqx.filter_eval_shape(values) if others else {}
    return [name for name in names if name in of_drivers or shapes[name].shape == ()]


def _pair(name: str, given: Any) -> Pair:
    """A pair as it is; a number as limits on both sides."""
    is_pair = isinstance(given, tuple | list | np.ndarray) and np.shape(np.asarray(given, dtype=object)) == (2,)
    ends = [None if end is None else as_float(end) for end in (given if is_pair else [given])]
    if all(end is None for end in ends) or not all(end is None or _is_number(end) for end in ends):
        raise MechanismError(
            f"excitation: the limit of {name!r} must be a pair (lower, upper), in which one may be None, or a number "
            f"for both sides, got {shown(given)}."
        )
    low, high = (None if end is None else float(end) for end in (ends[0], ends[-1]))
    if not is_pair and low is not None:
        low, high = -abs(low), abs(low)
    if low is not None and high is not None and not low < high:
        raise MechanismError(
            f"excitation: the lower limit of {name!r} must be below the upper one, got {low:g} and {high:g}."
        )
    return low, high


def _is_number(end: Any) -> bool:
    return isinstance(end, Array) and end.shape == () and end.dtype.kind == "f" and bool(np.isfinite(end))


def _series(moved: Mechanism, period: float, harmonics: int, ends: Mapping[str, Pair], at_rest: bool) -> Series:
    """Series about the modelled position, as far as that is within the middle of the limits."""
    free = moved.replaced(drivers=())
    here = read(free, assemble(free), [driver.coordinate for driver in moved.drivers])
    pairs = np.array([ends[driver.coordinate] for driver in moved.drivers], dtype=float)
    centres, halves = pairs.mean(axis=1), np.diff(pairs, axis=1)[:, 0] / 2
    modelled = np.array([float(here[driver.coordinate]) for driver in moved.drivers])
    middles = np.clip(modelled, centres - _MIDDLE * halves, centres + _MIDDLE * halves)
    return Series(period, harmonics, middles, halves, at_rest)


def _noise(moved: Mechanism, noise: Mapping[str, Number] | None) -> Float[np.ndarray, " actuators"]:
    check_mapping("excitation: noise", noise, "{'motor': 0.1}")
    given = noise or {}
    check_known("actuator", given, [driver.name for driver in moved.drivers])
    for name, level in given.items():
        check_finite("excitation: noise", repr(name), as_float(level))
        check_number("excitation: noise", repr(name), as_float(level), "N or N m")
    return np.array([float(given.get(driver.name, 1.0)) for driver in moved.drivers])


def _times(ts: Any) -> Float[np.ndarray, " times"]:
    return np.asarray(as_float(ts), dtype=float)


# --- numbers and result --------------------------------------------------------------------------------------


def _regressor(
    problem: ExcitationProblem, x: np.ndarray, bodies: Sequence[str] | None, numbers: Sequence[str]
) -> Regressor:
    driven = problem.driven(x)
    motion = kinematics(driven, problem.ts, assemble(driven, t=0.0, check=False))
    return regressor(driven, motion, bodies=bodies, numbers=numbers)


def _unknowns(moved: Mechanism, first: Regressor) -> Unknowns:
    """The base parameters that a random motion tells apart."""
    names = [body.name for body in moved.bodies]
    columns = tuple(first.base().independent.tolist()) if first.values.size else ()
    if not columns:
        raise MechanismError("excitation: no number has an effect on the efforts; name others as bodies or numbers.")
    others = first.values[len(first.values) - len(first.numbers) :]
    return Unknowns(tuple(names.index(name) for name in first.bodies), first.numbers, columns, others)


def _result(
    problem: ExcitationProblem, courses: list[Course], bodies: Sequence[str] | None, numbers: Sequence[str]
) -> Excitation:
    ranked = sorted(enumerate(courses), key=lambda pair: pair[1].rank(problem.criterion))
    best = ranked[0][1]
    driven = problem.driven(best.x)
    broken = [f"{m.name!r} (by {-m.margin:.3g})" for m in best.margins if not m.kept]
    outcome = f"no motion found that keeps all limits; violated: {', '.join(broken)}" if broken else best.verdict
    base = _regressor(problem, best.x, bodies, numbers).base()
    series: dict[str, Any] = {driver.coordinate: driver.motion for driver in driven.drivers}
    starts = tuple(
        ExcitationStart(
            k,
            c.verdict,
            c.first.condition,
            c.quality.condition,
            c.quality.errors / c.first.errors,
            c.violation,
            c.steps,
        )
        for k, c in ranked
    )
    return Excitation(
        series, driven, problem.series.period, problem.ts, best.quality.condition, best.first.condition, problem.sizes,
        base, best.margins, starts, outcome,
    )  # fmt: skip
