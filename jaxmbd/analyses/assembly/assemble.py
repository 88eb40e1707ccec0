"""Assembly: positions and speeds that satisfy the constraints, from guesses and prescribed values.

Positions come from the search in `_closing`, speeds from a linear solve: those of least kinetic energy.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assembly_errors import (
    closure_text,
    named_rows,
    open_text,
    over_constrained_text,
    row_names,
    tolerance_of,
)
from jaxmbd.analyses.assembly.assembly_errors import open_rows as open_rows
from jaxmbd.analyses.assembly.fixed_readings import is_reading, shape_of
from jaxmbd.analyses.assembly.initial_guess import guessed, with_turn_counts
from jaxmbd.analyses.assembly.position_solve import closed, closure, current_values, nearest
from jaxmbd.analyses.assembly.scaling_mass import check_mass
from jaxmbd.analyses.checks import check_time
from jaxmbd.analyses.output_channels import Reader, Snapshot
from jaxmbd.analyses.redundancy import singular
from jaxmbd.analyses.results import RESULTS, first_failure, invalidated, is_successful
from jaxmbd.analyses.runtime import raise_where
from jaxmbd.analyses.state import State, state_of
from jaxmbd.arrays import Number, Scalar, as_float, is_concrete
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.compile.jax_binding import as_program
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.rank import rank_of
from jaxmbd.errors import AssemblyError, MechanismError, unknown
from jaxmbd.model.body.checks import check_finite, check_flags, check_mapping, check_number, checked_names
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism


def assemble(
    mechanism: Mechanism,
    fixed: Mapping[str, Number | Sequence[Number]] | None = None,
    *,
    guess: Mapping[str, Number] | State | None = None,
    speeds: Mapping[str, Number] | None = None,
    t: Number = 0.0,
    weights: Mapping[str, Number] | None = None,
    locked: Iterable[str] = (),
    check: bool = True,
) -> State:
    """Find positions with `Φ(q, t) = 0` and speeds with `C v = −Φ_t`.

    Coordinates that are not fixed are searched from the guess and stay near it (each body's `pose`, or `guess`);
    speeds that are not given are those of least kinetic energy. Differentiable, implicitly, with respect to the
    mechanism and all given values.

    With `weights` the position is the nearest to the guess `q₀`, a minimum of `½ (q − q₀)ᵀ W (q − q₀)` over the closed
    positions, sought from the one found without; its derivative is exact, also by the guess and the weights. Without
    them a closed position near the guess is enough, which costs less. Its derivative is that of least norm among those
    that keep the joints closed (unique where all coordinates are determined), and zero by what is only guessed.

    **Arguments:** `fixed`, values of named coordinates, `{"crank.theta": 0.3, "O.angle": 0.3}` `[m, rad]`, of
    orientation angles of a body in space, `{"frame.roll": 0.1}`, or of sensors of position: a `Point`, `Distance`,
    `AngleBetween` or `EulerAngle`, `Scaled` or not; `guess`, starting values of coordinates of bodies and joints, or a
    `State` (joint coordinates place the bodies along a tree of joints, coordinates of bodies go before them); `speeds`,
    values of named speeds, `{"crank.omega": 2.0}`, or of the rate of a joint's coordinate, `{"O.angle": 2.0}`
    `[m/s, rad/s]`; `t`, the time `[s]`; `weights`, how much a change of a coordinate of `q` costs, or of all those of a
    body or joint, `{"crank.theta": 100.0, "rod": 10.0}`, one unless given (`{}`: all one; of a quaternion give all
    four the same); `locked`, coordinates, and bodies as a whole, that stay as guessed, `("crank.theta", "frame")`;
    `check=False` raises no error: `state.result` tells how it went, for each instance of a batch, and what failed is
    NaN.

    **Returns:** a `State`.

    **Raises:** `AssemblyError` if the joints cannot be closed (it names those that miss, and says whether another guess
    would do), or if the speeds contradict the constraints; `MechanismError` for names that do not exist.
    """
    check_mechanism(mechanism)
    check_flags("assemble", check=check)
    start = guessed(mechanism, guess if isinstance(guess, State) else _numbers("guess", guess))
    positions, rates = _fixed_numbers(mechanism, fixed), _numbers("speeds", speeds)
    start, time = with_turn_counts(mechanism, start, positions), check_time("assemble", t).astype(start.dtype)
    prescribed = prescribed_at(mechanism, start, positions, locked, time)
    for name in rates:
        _rate_name(mechanism, name)
    costs = None if weights is None else _costs(mechanism, _numbers("weights", weights)).astype(start.dtype)
    q, v, rank, result, misses = _assemble(mechanism, start, prescribed, rates, time, costs)
    if check and is_concrete(q, v, result, misses):
        _check_positions(mechanism, start, misses, prescribed, time)
        check_mass(mechanism, q)
        _check_speeds(mechanism, misses, rates)
    elif check:
        q, v = _raising(mechanism, q, v, result, misses, tuple(prescribed), tuple(rates))
    return state_of(mechanism, time, q, v, rank, result)


class _Misses(NamedTuple):
    """What the search left: the coordinates and speeds as it found them, what positions, a least change and speeds
    miss."""

    q: Array
    v: Array
    position: Array
    slope: Array
    speed: Array

    @property
    def speed_limit(self) -> Any:
        """The largest miss of a speed that counts as none."""
        return 1e2 * tolerance_of(self.v) * (1 + _worst(self.v))


@cached_on_disk
def _assemble(
    mechanism: Mechanism,
    start: Array,
    prescribed: dict[str, Array],
    speeds: dict[str, Array],
    t: Scalar,
    costs: Array | None,
) -> tuple[Array, Array, Array, RESULTS, _Misses]:
    """Coordinates and speeds, NaN where there are none; the rank of the rows; the verdict; what was found."""
    equations = Equations(mechanism)
    closing = (equations, prescribed, t)
    q, slope = closed(closing, start), jnp.zeros((), start.dtype)
    if costs is not None:
        q, slope = nearest(closing, costs, start, q)
    q = equations.normalize(q)
    rows, at_rest = as_program(_speed_rows)(equations, speeds, t, q)
    v = _speeds(equations.at(t, q), rows, -at_rest)
    misses = _Misses(q, v, closure(q, closing), slope, rows @ v + at_rest)
    result = _verdict(misses)
    inputs = (mechanism, start, prescribed, speeds, t, costs)
    is_placed = ~((result == RESULTS.not_assembled) | (result == RESULTS.not_nearest))
    q, v = invalidated(is_placed, q, inputs), invalidated(is_successful(result), v, inputs)
    return q, v, rank_of(rows[: equations.m]), result, misses


def _verdict(misses: _Misses) -> RESULTS:
    tolerance = tolerance_of(misses.q)
    limits = (
        (misses.position, tolerance, RESULTS.not_assembled),
        (misses.slope, tolerance, RESULTS.not_nearest),
        (misses.speed, misses.speed_limit, RESULTS.speeds_contradict),
    )
    return first_failure(*((~jnp.asarray(_worst(miss) <= limit), item) for miss, limit, item in limits))


@cached_on_disk
def _held(mechanism: Mechanism, start: Array, names: tuple[str, ...], t: Scalar) -> dict[str, Array]:
    return current_values(Equations(mechanism), t, start, names)


def prescribed_at(
    mechanism: Mechanism, start: Array, fixed: Mapping[str, Any] | None, locked: Iterable[str], t: Scalar
) -> dict[str, Array]:
    """Fixed values, and those that locked coordinates and bodies have at a start; in the order of their names."""
    positions = _fixed_numbers(mechanism, fixed)
    names = _locked_names(mechanism, positions, locked)
    return dict(sorted({**positions, **(_held(mechanism, start, names, t) if names else {})}.items()))


def _speed_rows(equations: Equations, speeds: dict[str, Array], t: Scalar, q: Array) -> tuple[Array, Array]:
    """The rows of `C` and of the given speeds, and what a mechanism at rest misses in each of them."""
    at, still = equations.at(t, q), jnp.zeros(equations.mechanism.nv, q.dtype)
    given = lambda v: _given(at, tuple(speeds), v)  # noqa: E731
    wanted = jnp.stack([*speeds.values()]) if speeds else still[:0]
    rows = jnp.concatenate([at.jacobian, jax.jacfwd(given)(still)])
    return rows, jnp.concatenate([at.velocity(still), given(still) - wanted])


def _given(at: Configuration, names: tuple[str, ...], v: Array) -> Float[Array, " k"]:
    """The values of named speeds at `v`."""
    nothing = jnp.zeros(at.equations.m, v.dtype)
    reader = Reader(at.equations, Snapshot(at.t, at.q, v, jnp.zeros_like(v), nothing))
    return jnp.stack([reader.read(_rate_name(at.mechanism, name)) for name in names]) if names else v[:0]


def _speeds(at: Configuration, rows: Array, rates: Array) -> Array:
    """The speeds of least kinetic energy with the given rates of the rows: with `M = L Lᵀ`, of least norm of `Lᵀ v`.

    Chosen speeds are counted from the slowest motion, since the bodies may move where all of them are zero.
    """
    slowest = at.slowest()
    if rows.shape[0] == 0:
        return jnp.zeros(rows.shape[1]) if slowest is None else slowest
    rates = rates if slowest is None else rates - rows @ slowest
    scaled = lx.MatrixLinearOperator(at.inertia.whiten(rows))
    found = at.inertia.unwhiten(lx.linear_solve(scaled, rates, singular(rates.dtype), throw=False).value)
    return found if slowest is None else found + slowest


def _rate_name(mechanism: Mechanism, name: str) -> str:
    """What a given speed is called among the readings: where a coordinate is named, its rate."""
    space = mechanism.space
    bodies = {body.name: [f"{body.name}.{speed}" for speed in space.speeds] for body in mechanism.bodies}
    known = [*mechanism.speed_names, *(speed for speeds in bodies.values() for speed in speeds)]
    if name in known:
        return name
    owner, _, component = name.removesuffix("_rate").partition(".")
    try:
        mechanism.coordinate(f"{owner}.{component}")
    except MechanismError:
        joints = [f"{j.name}.{c}" for j in mechanism.joints for c in getattr(j, "coordinate_names", ())]
        raise unknown("speed", name, dict.fromkeys((*known, *joints))) from None
    # A coordinate of a body that can be named here stands at the place of its rate: x and vx.
    return bodies[owner][space.coordinates.index(component)] if owner in bodies else f"{owner}.{component}_rate"


def _costs(mechanism: Mechanism, weights: dict[str, Array]) -> Float[Array, " nq"]:
    """The weight of each coordinate; a name of one goes before that of its body or joint."""
    names = mechanism.coordinate_names
    owners = [name.partition(".")[0] for name in names]
    found = jnp.ones(len(names), jnp.result_type(float, *weights.values()))
    for name, value in sorted(weights.items(), key=lambda item: "." in item[0]):
        check_number("weights", repr(name), value, "per unit of change squared")
        places = [i for i, pair in enumerate(zip(names, owners, strict=True)) if name in pair]
        if not places:
            raise unknown("coordinate of q, or body or joint that has some,", name, dict.fromkeys((*names, *owners)))
        found = found.at[np.asarray(places)].set(value)
    return found


def _locked_names(mechanism: Mechanism, fixed: Mapping[str, Any], locked: Iterable[str]) -> tuple[str, ...]:
    """The names of locked coordinates and bodies; raise unless these, and those of fixed coordinates, exist."""
    cached_on_disk, bodies = checked_names("locked", locked, "crank.theta"), {body.name for body in mechanism.bodies}
    coordinates = (name for name in fixed if not is_reading(mechanism, name))
    for name in (*coordinates, *(name for name in cached_on_disk if name not in bodies)):
        mechanism.coordinate(name)
    for name in cached_on_disk:
        if name in fixed:
            raise MechanismError(f"{name!r} is fixed and locked: fix it at a value, or lock it where it is guessed.")
    return cached_on_disk


def _fixed_numbers(mechanism: Mechanism, fixed: Mapping[str, Any] | None) -> dict[str, Array]:
    """Values of fixed quantities: a number each, of a `Point` a vector."""
    check_mapping("fixed", fixed, "{'crank.theta': 0.3}")
    return _numbers("fixed", fixed, {name: shape_of(mechanism, name) for name in fixed or ()})


def _numbers(
    what: str, values: Mapping[str, Any] | None, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, Array]:
    """Values by name as arrays; each must be a number, or of the shape that is given, and finite where it is known. In
    the order of their names, in which JAX hands dictionaries on: so are the rows that they give."""
    check_mapping(what, values, "{'crank.theta': 0.3}")
    found = {name: as_float(value) for name, value in sorted((values or {}).items())}
    for name, value in found.items():
        check_finite(what, repr(name), value, (shapes or {}).get(name, ()))
    return found


def _check_positions(
    mechanism: Mechanism, start: Array, misses: _Misses, prescribed: dict[str, Array], t: Scalar
) -> None:
    tolerance = tolerance_of(misses.q)
    if not _worst(misses.position) <= tolerance:
        text = closure_text(mechanism, start, np.asarray(misses.position), prescribed, t)
        raise AssemblyError(text + over_constrained_text(mechanism, misses.q, len(prescribed)))
    if not _worst(misses.slope) <= tolerance:
        slope = float(misses.slope)
        raise AssemblyError(f"The mechanism can be assembled, but {_STEEP} (the slope left is {slope:.3g}).")


_STEEP = (
    "the closed position nearest to the guess was not found. Start from a better guess, use weights that differ less, "
    "or leave them out"
)


def _check_speeds(mechanism: Mechanism, misses: _Misses, speeds: Mapping[str, Any]) -> None:
    limit = float(misses.speed_limit)
    if not float(_worst(misses.speed)) <= limit:
        rows = named_rows(mechanism, np.asarray(misses.speed), tuple(speeds))
        missing = ", ".join(f"{name!r} by {value:.3g}" for name, value in rows[:4] if not value <= limit)
        raise AssemblyError(
            f"The given speeds contradict the constraints: no speeds satisfy all of them (missed: {missing}). "
            "Give at most as many speeds as there are degrees of freedom, and none that a driver prescribes."
        )


def _raising(
    mechanism: Mechanism,
    q: Array,
    v: Array,
    result: RESULTS,
    misses: _Misses,
    prescribed: tuple[str, ...],
    speeds: tuple[str, ...],
) -> tuple[Array, Array]:
    """The same state, which raises when the program runs where assembly failed, and then names the parts that miss."""
    positions, rates = (row_names(mechanism, extra) for extra in (prescribed, speeds))

    def describe(position: np.ndarray, slope: np.ndarray, speed: np.ndarray, limit: np.ndarray) -> str:
        tolerance = tolerance_of(position)
        if not _worst(position) <= tolerance:
            text = open_text(positions, position, tolerance)
            return f"Assembly failed: the joints cannot be closed at these values: {text} (m or rad; m² for a Rod)."
        if not _worst(slope) <= tolerance:
            return f"Assembly failed: {_STEEP}."
        return f"Assembly failed: the speeds contradict the constraints: {open_text(rates, speed, float(limit))}."

    details = misses.position, misses.slope, misses.speed, misses.speed_limit
    return raise_where((q, v), ~is_successful(result), describe, *details)


def _worst(miss: Array | np.ndarray | np.generic) -> Array | np.floating:
    lib = np if is_concrete(miss) else jnp  # what is known needs no compiler
    return lib.max(lib.abs(miss), initial=0.0)  # pyright: ignore
