"""Assembly: positions and speeds that satisfy the constraints, from guesses and prescribed values.

Positions come from the nonlinear least-squares search in `position_solve.py`, speeds from a linear solve, as those of
least kinetic energy.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.assembly_errors import (
    closed_limits,
    closure_text,
    open_text,
    over_constrained_text,
    row_names,
    tolerance_of,
    worst_first,
)
from jaxmbd.analyses.assembly.multistart import guessed, with_turn_counts
from jaxmbd.analyses.assembly.position_solve import closed, closure, is_reading, nearest, shape_of
from jaxmbd.analyses.assembly.sides import is_opposed, opposed_text
from jaxmbd.analyses.assembly.speed_solve import check_mass, least_energy, may_lack_inertia
from jaxmbd.analyses.assembly.turns import within_a_turn
from jaxmbd.arrays import Number, Scalar, as_float, frozen, is_concrete, is_known
from jaxmbd.checks import check_finite, check_flags, check_mapping, check_number, check_time, checked_names
from jaxmbd.engine import as_program, cached_on_disk
from jaxmbd.equations.body_laws import sided_joints
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.errors import AssemblyError, MechanismError, unknown
from jaxmbd.model.joint.joint import AbstractJoint
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.state.output_channels import Reader, Snapshot
from jaxmbd.state.result_codes import RESULTS, first_failure, invalidated, is_successful, raise_where
from jaxmbd.state.state import State, state_of


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

    The search for coordinates that are not fixed starts at the guess and stays near it (`guess`, or each body's
    `pose`). Speeds that are not prescribed are those of least kinetic energy. The result is differentiable (implicit
    differentiation) with respect to the mechanism and all prescribed values.

    With `weights` the position is the closed one nearest to the guess `q₀`, a local minimum of
    `½ (q − q₀)ᵀ W (q − q₀)`; the search for it starts at the position that is found without weights. Its derivative is
    exact, also with respect to the guess and the weights. Without weights the result is some closed position near the
    guess, which costs less. Its derivative is the one of least norm that keeps the joints closed (unique if all
    coordinates are determined), and zero with respect to the guess.

    **Arguments:**

    - `fixed`: values of named coordinates, `{"crank.theta": 0.3, "O.angle": 0.3}` `[m, rad]`, of orientation angles of
      a body in space, `{"frame.roll": 0.1}`, or of sensors of position: a `Point`, `Distance`, `AngleBetween` or
      `EulerAngle`, `Scaled` or not;
    - `guess`: starting values of coordinates of bodies and joints, or a `State`. Joint coordinates place the bodies
      along a tree of joints; coordinates of bodies have priority over them;
    - `speeds`: values of named speeds, `{"crank.omega": 2.0}`, or of the rate of a joint's coordinate,
      `{"O.angle": 2.0}` `[m/s, rad/s]`;
    - `t`: the time `[s]`;
    - `weights`: the diagonal of `W`, for a coordinate of `q` or for all those of a body or joint,
      `{"crank.theta": 100.0, "rod": 10.0}`; one by default (`{}`: all one). The four of a quaternion must be equal;
    - `locked`: coordinates, and whole bodies, that keep their guessed values, `("crank.theta", "frame")`;
    - `check=False`: raise no error. `state.result` is then the result code, for each instance of a batch, and values
      that could not be computed are NaN.

    **Returns:** a `State`.

    **Raises:** `AssemblyError` if the joints cannot be closed (it names the open ones, and says whether another guess
    would do), or if the speeds contradict the constraints; `MechanismError` for names that do not exist.

        >>> slider_crank = mbd.examples.get("slider-crank").mechanism
        >>> state = mbd.assemble(slider_crank, {"O.angle": 0.6}, speeds={"O.angle": 2.0})
        >>> print(f"{state['slider.x']:.4f} m, {state['slider.vx']:.4f} m/s")
        0.3772 m, -0.1446 m/s
    """
    check_mechanism(mechanism)
    check_flags("assemble", check=check)
    start = guessed(mechanism, guess if isinstance(guess, State) else numbers_of("guess", guess))
    positions, rates = fixed_numbers(mechanism, fixed), numbers_of("speeds", speeds)
    start, time = with_turn_counts(mechanism, start, positions), check_time("assemble", t).astype(start.dtype)
    prescribed = prescribed_at(mechanism, start, positions, locked, time)
    for name in rates:
        rate_channel(mechanism, name)
    diagonal = None if weights is None else _weights(mechanism, numbers_of("weights", weights)).astype(start.dtype)
    q, v, rank, result, residuals = _assemble(
        mechanism, start, prescribed, rates, time, diagonal, may_lack_inertia(mechanism)
    )
    if check and is_known(mechanism, q, v, result, residuals):
        known, at = frozen((mechanism, residuals))
        _check_positions(known, *frozen((start, at, prescribed, time)))
        if not np.isfinite(np.asarray(at.v)).all():
            check_mass(known, at.q, time, _FREE_SPEEDS)
        _check_speeds(known, at, rates)
    elif check:
        q, v = _raise_at_run_time(mechanism, q, v, result, residuals, tuple(prescribed), tuple(rates))
    return state_of(mechanism, time, q, v, rank, result)


class _Residuals(eqx.Module):
    """The coordinates and speeds where the search ended, the sides of the joints there, and the residuals: of the
    position constraints, of the condition that the position is nearest to the guess (`slope`), and of the velocity
    constraints.

    `position_limits`, `speed_limits`: the largest residuals that count as zero.
    """

    q: Array
    v: Array
    position: Array
    position_limits: Array
    sides: Array
    slope: Array
    speed: Array
    speed_limits: Array

    @property
    def is_closed(self) -> Any:
        """True if the position constraints are satisfied."""
        return _all_within(self.position, self.position_limits)

    @property
    def is_nearest(self) -> Any:
        """True if the position is nearest to the guess."""
        return _all_within(self.slope, tolerance_of(self.q))

    @property
    def is_consistent(self) -> Any:
        """True if the velocity constraints are satisfied."""
        return _all_within(self.speed, self.speed_limits)


@cached_on_disk
def _assemble(
    mechanism: Mechanism, start: Array, prescribed: dict[str, Array], speeds: dict[str, Array], t: Scalar,
    weights: Array | None, may_lack: bool,
) -> tuple[Array, Array, Array, RESULTS, _Residuals]:  # fmt: skip
    """Return coordinates and speeds (NaN where assembly failed), the rank of `C`, the result code and the residuals.

    `may_lack`: bodies may have no mass or no inertia about an axis.
    """
    equations = Equations(mechanism)
    closing = (equations, prescribed, t)
    q, slope = closed(closing, within_a_turn(closing, start)), jnp.zeros((), start.dtype)
    if weights is not None:
        q, slope = nearest(closing, weights, start, q)
    q = equations.normalize(q)
    position, sides = closure(q, closing), equations.at(t, q).sides()
    limits, is_right = closed_limits(equations, prescribed), ~is_opposed(sides)
    is_closed, is_nearest = _all_within(position, limits), _all_within(slope, tolerance_of(q))
    is_placed = is_closed & is_right & is_nearest
    scales = _speed_row_scales(equations, speeds)
    rows, at_rest = as_program(_scaled_speed_rows)(equations, speeds, scales, t, q)
    # Where no position was found rows may be dependent, and a batch would compute singular values of all instances.
    rows = jnp.where(is_placed, rows, jnp.eye(*rows.shape, dtype=rows.dtype))
    v = least_energy(equations.at(t, q), rows, -at_rest, may_lack)
    rate = jnp.maximum(_largest(v / equations.scales.speeds), _largest(at_rest))
    speed_limits = (_SPEEDS * tolerance_of(v) * rate + _NOISE * jnp.finfo(v.dtype).eps) * scales
    residuals = _Residuals(q, v, position, limits, sides, slope, (rows @ v + at_rest) * scales, speed_limits)
    result = first_failure(
        (~is_closed, RESULTS.not_assembled),
        (~is_right, RESULTS.opposed),
        (~is_nearest, RESULTS.not_nearest),
        (~residuals.is_consistent, RESULTS.speeds_contradict),
    )
    inputs = (mechanism, start, prescribed, speeds, t, weights)
    q, v = invalidated(is_placed, q, inputs), invalidated(is_successful(result), v, inputs)
    rank = rank_of(rows[: equations.m] * equations.scales.speeds[None])
    return q, v, jnp.where(is_placed, rank, _UNKNOWN), result, residuals


_UNKNOWN = -1  # the rank at a position that was not found


# Largest residual of the velocity constraints, as a multiple of the tolerance of positions and of the largest speed,
# and as a multiple of rounding of one unit per second.
_SPEEDS, _NOISE = 1e2, 1e3


@cached_on_disk
def _locked_values(mechanism: Mechanism, start: Array, names: tuple[str, ...], t: Scalar) -> dict[str, Array]:
    """Return the values of named coordinates, and the poses of named bodies, at a position."""
    at, bodies = Equations(mechanism).at(t, start), [body.name for body in mechanism.bodies]
    still = jnp.zeros(mechanism.nv, start.dtype)
    return {n: at.poses()[bodies.index(n)] if n in bodies else at.coordinate(n, still)[0] for n in names}


def prescribed_at(
    mechanism: Mechanism, start: Array, fixed: Mapping[str, Any] | None, locked: Iterable[str], t: Scalar
) -> dict[str, Array]:
    """Return the fixed values, and the values at `start` of locked coordinates and bodies, sorted by name."""
    positions = fixed_numbers(mechanism, fixed)
    names = _locked_names(mechanism, positions, locked)
    return dict(sorted({**positions, **(_locked_values(mechanism, start, names, t) if names else {})}.items()))


def speed_rows(equations: Equations, speeds: dict[str, Array], t: Scalar, q: Array) -> tuple[Array, Array]:
    """Return the rows of `C` and of the prescribed speeds, and the residual of each row at rest."""
    at, still = equations.at(t, q), jnp.zeros(equations.mechanism.nv, q.dtype)
    values = lambda v: _speed_values(at, tuple(speeds), v)  # noqa: E731
    prescribed = jnp.stack([*speeds.values()]) if speeds else still[:0]
    rows = jnp.concatenate([at.jacobian, jax.jacfwd(values)(still)])
    return rows, jnp.concatenate([at.velocity(still), values(still) - prescribed])


def _scaled_speed_rows(
    equations: Equations, speeds: dict[str, Array], scales: Array, t: Scalar, q: Array
) -> tuple[Array, Array]:
    rows, at_rest = speed_rows(equations, speeds, t, q)
    return rows / scales[:, None], at_rest / scales


def _speed_row_scales(equations: Equations, speeds: Iterable[str]) -> Float[Array, " rows"]:
    """Return the scale of each row of `C` and of the prescribed speeds."""
    mechanism = equations.mechanism
    units = channel_units(mechanism) if speeds else {}
    own = equations.scales.of(*(units[rate_channel(mechanism, name)] for name in speeds))
    return jnp.concatenate([equations.scales.rows, own])


def _speed_values(at: Configuration, names: tuple[str, ...], v: Array) -> Float[Array, " k"]:
    """Return the values of named speeds at `v`."""
    nothing = jnp.zeros(at.equations.m, v.dtype)
    reader = Reader(at.equations, Snapshot(at.t, at.q, v, jnp.zeros_like(v), nothing))
    return jnp.stack([reader.read(rate_channel(at.mechanism, name)) for name in names]) if names else v[:0]


def rate_channel(mechanism: Mechanism, name: str) -> str:
    """Return the output channel of a prescribed speed; for the name of a coordinate, the channel of its rate."""
    space = mechanism.space
    bodies = {body.name: [f"{body.name}.{speed}" for speed in space.speeds] for body in mechanism.bodies}
    known = [*mechanism.speed_names, *(speed for speeds in bodies.values() for speed in speeds)]
    if name in known:
        return name
    owner, _, component = name.removesuffix("_rate").partition(".")
    try:
        mechanism.coordinate(f"{owner}.{component}")
    except MechanismError:
        joints = [f"{j.name}.{c}" for j in mechanism.joints if isinstance(j, AbstractJoint) for c in j.coordinate_names]
        raise unknown("speed", name, dict.fromkeys((*known, *joints))) from None
    # A body's coordinate that can be named here has the same index as its rate: x and vx.
    of_pose = owner in bodies and component in space.coordinates  # else of a joint, or a flexible body's own
    return bodies[owner][space.coordinates.index(component)] if of_pose else f"{owner}.{component}_rate"


def _weights(mechanism: Mechanism, weights: dict[str, Array]) -> Float[Array, " nq"]:
    """Return the weight of each coordinate; the name of a coordinate has priority over that of its body or joint."""
    names = mechanism.coordinate_names
    owners = [name.partition(".")[0] for name in names]
    diagonal = jnp.ones(len(names), jnp.result_type(float, *weights.values()))
    for name, value in sorted(weights.items(), key=lambda item: "." in item[0]):
        check_number("weights", repr(name), value, "per unit of change squared")
        places = [i for i, pair in enumerate(zip(names, owners, strict=True)) if name in pair]
        if not places:
            raise unknown("coordinate of q, or body or joint that has some,", name, dict.fromkeys((*names, *owners)))
        diagonal = diagonal.at[np.asarray(places)].set(value)
    return diagonal


def _locked_names(mechanism: Mechanism, fixed: Mapping[str, Any], locked: Iterable[str]) -> tuple[str, ...]:
    """Return the names of locked coordinates and bodies; raise unless these and those of fixed coordinates exist."""
    locked_names, bodies = checked_names("locked", locked, "crank.theta"), {body.name for body in mechanism.bodies}
    coordinates = (name for name in fixed if not is_reading(mechanism, name))
    for name in (*coordinates, *(name for name in locked_names if name not in bodies)):
        mechanism.coordinate(name)
    for name in locked_names:
        if name in fixed:
            raise MechanismError(f"{name!r} is fixed and locked: fix it at a value, or lock it where it is guessed.")
    return locked_names


def fixed_numbers(mechanism: Mechanism, fixed: Mapping[str, Any] | None) -> dict[str, Array]:
    """Return the values of fixed quantities as arrays: scalars, or a vector for a `Point`."""
    check_mapping("fixed", fixed, "{'crank.theta': 0.3}")
    return numbers_of("fixed", fixed, {name: shape_of(mechanism, name) for name in fixed or ()})


def numbers_of(
    what: str, values: Mapping[str, Any] | None, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, Array]:
    """Return values by name as arrays; raise unless each is a scalar or has the shape in `shapes`, and is finite.

    They are sorted by name, as JAX sorts dictionaries, so that the constraint rows they lead to have the same order.
    """
    check_mapping(what, values, "{'crank.theta': 0.3}")
    arrays = {name: as_float(value) for name, value in sorted((values or {}).items())}
    for name, value in arrays.items():
        check_finite(what, repr(name), value, (shapes or {}).get(name, ()))
    return arrays


def _check_positions(
    mechanism: Mechanism, start: Array, residuals: _Residuals, prescribed: dict[str, Array], t: Scalar
) -> None:
    if not residuals.is_closed:
        text = closure_text(mechanism, start, np.asarray(residuals.position), prescribed, t)
        raise AssemblyError(text + over_constrained_text(mechanism, t, residuals.q, tuple(prescribed)))
    if opposed := opposed_text(sided_joints(mechanism), np.asarray(residuals.sides)):
        raise AssemblyError(f"The mechanism cannot be assembled. {opposed}")
    if not residuals.is_nearest:
        slope = float(residuals.slope)
        raise AssemblyError(f"The mechanism can be assembled, but {_STEEP} (the slope left is {slope:.3g}).")


_FREE_SPEEDS = "A motion that drivers and fixed speeds do not determine completely"
_STEEP = (
    "the closed position nearest to the guess was not found. Start from a better guess, use weights that differ less, "
    "or leave them out"
)


def _check_speeds(mechanism: Mechanism, residuals: _Residuals, speeds: Mapping[str, Any]) -> None:
    if not residuals.is_consistent:
        miss = np.asarray(residuals.speed)
        missed = np.where(np.abs(miss) <= np.asarray(residuals.speed_limits), 0.0, miss)
        rows = worst_first(row_names(mechanism, tuple(speeds)), missed)
        missing = ", ".join(f"{name!r} by {value:.3g}" for name, value in rows[:4] if value)
        raise AssemblyError(
            f"The given speeds contradict the constraints: no speeds satisfy all of them (missed: {missing}). "
            "Give at most as many speeds as there are degrees of freedom, and none that a driver prescribes."
        )


def _raise_at_run_time(
    mechanism: Mechanism, q: Array, v: Array, result: RESULTS, residuals: _Residuals, prescribed: tuple[str, ...],
    speeds: tuple[str, ...],
) -> tuple[Array, Array]:  # fmt: skip
    """Return the same coordinates and speeds, which raise at run time if assembly failed, naming the open parts."""
    # The text must not hold the mechanism: its values may be traced.
    positions, rates = (row_names(mechanism, extra) for extra in (prescribed, speeds))
    sided = sided_joints(mechanism)

    def describe(
        position: np.ndarray,
        limits: np.ndarray,
        sides: np.ndarray,
        slope: np.ndarray,
        speed: np.ndarray,
        speed_limits: np.ndarray,
    ) -> str:
        if not _all_within(position, limits):
            text = open_text(positions, position, limits)
            return f"Assembly failed: the joints cannot be closed at these values: {text} (m or rad; m² for a Rod)."
        if opposed := opposed_text(sided, sides):
            return f"Assembly failed. {opposed}"
        if not _all_within(slope, tolerance_of(position)):
            return f"Assembly failed: {_STEEP}."
        if not np.isfinite(speed).all():
            return f"Assembly failed: {_FREE_SPEEDS} needs the masses, and some body has none that is needed."
        return f"Assembly failed: the speeds contradict the constraints: {open_text(rates, speed, speed_limits)}."

    details = residuals.position, residuals.position_limits, residuals.sides, residuals.slope, residuals.speed
    details = *details, residuals.speed_limits
    return raise_where((q, v), ~is_successful(result), describe, *details)


def _largest(residual: Array | np.ndarray | np.generic) -> Array | np.floating:
    lib = np if is_concrete(residual) else jnp  # NumPy for known values, which then need no compilation
    return lib.max(lib.abs(residual), initial=0.0)  # pyright: ignore


def _all_within(residual: Array | np.ndarray | np.generic, limits: Any) -> Any:
    """Return True if no residual exceeds its limit; False for NaN."""
    lib = np if is_concrete(residual, limits) else jnp
    return lib.all(lib.abs(lib.asarray(residual)) <= lib.asarray(limits))  # under `jit` known arrays of JAX are traced
