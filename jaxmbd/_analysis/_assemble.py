"""Assembly: positions and speeds that satisfy the constraints, from guesses and prescribed values.

Positions come from a damped least-squares search (Levenberg-Marquardt) that starts at the guess. The derivative of the
assembled position is that of the implicit function theorem: of all changes that keep the joints closed, the least.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float

from jaxmbd._analysis._redundancy import RANK, jacobian, rank_of
from jaxmbd._analysis._state import State, state_of
from jaxmbd._body import check_finite
from jaxmbd._equations import Equations, Position
from jaxmbd._errors import AssemblyError, MechanismError, unknown
from jaxmbd._mechanism import Mechanism
from jaxmbd._types import Number, Scalar, as_float, is_concrete

_STEPS = 256
_SINGULAR = lx.SVD(rcond=RANK)  # what repeats is left out, not divided by its rounding errors


def assemble(
    mechanism: Mechanism,
    fixed: Mapping[str, Number] | None = None,
    *,
    guess: Mapping[str, Number] | None = None,
    speeds: Mapping[str, Number] | None = None,
    t: Number = 0.0,
    check: bool = True,
) -> State:
    """Find positions with `Φ(q, t) = 0` and speeds with `C v = −Φ_t`.

    Coordinates that are not fixed are searched from the guess and stay near it (each body's `pose`, or `guess`);
    speeds that are not given are those of least kinetic energy. Differentiable, implicitly, with respect to the
    mechanism and all given values.

    **Arguments:** `fixed`, values of named coordinates, `{"crank.theta": 0.3, "O.angle": 0.3}` `[m, rad]`;
    `guess`, starting values of body coordinates; `speeds`, values of named speeds, `{"crank.omega": 2.0}`, or of
    the rate of a joint's coordinate, `{"O.angle": 2.0}` `[m/s, rad/s]`; `t`, the time `[s]`; `check=False` leaves
    out the test of the result.

    **Returns:** a `State`.

    **Raises:** `AssemblyError` if the joints cannot be closed (it names those that miss), or if the speeds
    contradict the constraints; `MechanismError` for names that do not exist.
    """
    start = _guessed(mechanism, _numbers("guess", guess))
    positions, rates = _numbers("fixed", fixed), _numbers("speeds", speeds)
    for name in positions:
        mechanism.coordinate(name)
    for name in rates:
        _speed_row(mechanism, name)
    time = jnp.asarray(t, dtype=start.dtype)
    q, v, rank, position_miss, speed_miss = _assemble(mechanism, start, positions, rates, time)
    if check:
        q = _check_positions(mechanism, q, position_miss, positions)
        v = _check_speeds(mechanism, v, speed_miss, rates)
    return state_of(mechanism, time, q, v, rank)


@eqx.filter_jit
def _assemble(
    mechanism: Mechanism, start: Array, fixed: dict[str, Array], speeds: dict[str, Array], t: Scalar
) -> tuple[Array, Array, Array, Array, Array]:
    equations = Equations(mechanism)
    for name in set(fixed) & set(mechanism.turns):
        start = start.at[mechanism.coordinate_names.index(name)].set(fixed[name])
    q = equations.tidy(_positions((equations, fixed, t), start))
    rows = _rate_matrix(equations, q, speeds, t)
    at_rest = _rate_rows(equations, q, speeds, t, jnp.zeros(mechanism.nv, q.dtype))
    v = _speeds(equations, t, q, rows, -at_rest)
    return q, v, rank_of(rows[: equations.m]), _closure(q, (equations, fixed, t)), rows @ v + at_rest


def start_of(mechanism: Mechanism) -> Float[Array, " nq"]:
    """The coordinates that the bodies' own poses give; joint angles that count turns start at zero turns."""
    return _start(mechanism, jnp.stack([body.pose for body in mechanism.bodies]))


def _start(mechanism: Mechanism, poses: Float[Array, "bodies pose"]) -> Float[Array, " nq"]:
    own = Equations(mechanism).coordinates.measured(poses)
    return jnp.append(own, jnp.zeros(len(mechanism.turns), poses.dtype))


def _guessed(mechanism: Mechanism, guess: dict[str, Array]) -> Float[Array, " nq"]:
    """The start of the search: the bodies' poses, with guessed values in them, then guessed coordinates."""
    poses, bodies = jnp.stack([body.pose for body in mechanism.bodies]), [body.name for body in mechanism.bodies]
    names, space = mechanism.coordinate_names, mechanism.space
    for name, value in guess.items():
        body, _, component = name.partition(".")
        if body in bodies and component in space.coordinates:
            poses = poses.at[bodies.index(body), space.coordinates.index(component)].set(value)
        elif name not in names:
            mechanism.coordinate(name)
            raise MechanismError(
                f"guess takes coordinates of bodies or of q, such as {names[0]!r}, and {name!r} is one of a cut joint. "
                f"Guess the bodies' coordinates, or prescribe it: fixed={{{name!r}: value}}."
            )
    start = _start(mechanism, poses)
    for name in set(guess) & set(names):
        start = start.at[names.index(name)].set(guess[name])
    return start


def _closure(q: Array, args: Any) -> Array:
    """`Φ(q, t)` and, below it, what the fixed coordinates miss."""
    equations, fixed, t = args
    at = equations.at(t, q)
    extra = [_missed(at, name, value) for name, value in fixed.items()]
    return jnp.concatenate([at.position(), jnp.stack(extra) if extra else jnp.zeros((0,))])


@eqx.filter_custom_jvp
def _positions(args: Any, start: Array) -> Array:
    """A position without miss, near `start`. Its derivative is the least change that keeps it without miss."""
    tolerance = 1e3 * float(jnp.finfo(start.dtype).eps)
    search = optx.LevenbergMarquardt(rtol=tolerance, atol=tolerance, linear_solver=_SINGULAR)
    return optx.least_squares(_closure, search, start, args=args, max_steps=_STEPS, throw=False).value


@_positions.def_jvp
def _positions_jvp(primals: tuple[Any, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    """By the implicit function theorem: `A δq = −∂Φ/∂p δp`, the solution of least norm."""
    (args, start), (changes, _) = primals, tangents
    q = _positions(args, start)
    _, miss = eqx.filter_jvp(lambda a: _closure(q, a), (args,), (changes,))
    return q, jnp.zeros_like(q) if miss is None else -_least_change(q, args, miss)


def _least_change(q: Array, args: Any, miss: Array) -> Array:
    """The change of `q` of least norm that changes what it misses by `miss`."""
    slope = lx.MatrixLinearOperator(jax.jacfwd(_closure)(q, args))
    return lx.linear_solve(slope, miss, _SINGULAR, throw=False).value


def _speeds(equations: Equations, t: Scalar, q: Array, rows: Array, rates: Array) -> Array:
    """The speeds of least kinetic energy with the given rates of the rows: with `M = L Lᵀ`, of least norm of `Lᵀ v`."""
    if rows.shape[0] == 0:
        return jnp.zeros(rows.shape[1])
    inertia = equations.at(t, q).inertia
    scaled = lx.MatrixLinearOperator(inertia.whiten(rows))
    return inertia.unwhiten(lx.linear_solve(scaled, rates, _SINGULAR, throw=False).value)


def _rate_rows(equations: Equations, q: Array, speeds: dict[str, Array], t: Scalar, v: Array) -> Array:
    """`Φ̇` and, below it, what the given speeds miss."""
    at = equations.at(t, q)
    extra = [_rate(at, name, v) - value for name, value in speeds.items()]
    return jnp.concatenate([at.velocity(v), jnp.stack(extra) if extra else jnp.zeros((0,))])


def _rate_matrix(equations: Equations, q: Array, speeds: dict[str, Array], t: Scalar) -> Array:
    at, still = equations.at(t, q), jnp.zeros(equations.mechanism.nv, q.dtype)
    extra = [jax.grad(lambda v, n=name: _rate(at, n, v))(still)[None] for name in speeds]
    return jnp.concatenate([at.jacobian, *extra])


def _rate(at: Position, name: str, v: Array) -> Scalar:
    """A speed, of the coordinates or of a body, or the rate of a joint's coordinate."""
    mechanism = at.mechanism
    if name in mechanism.speed_names:
        return v[mechanism.speed_names.index(name)]
    bodies, (owner, _, component) = [body.name for body in mechanism.bodies], name.partition(".")
    if owner in bodies and component in mechanism.space.speeds:
        return at.twists(v)[bodies.index(owner), mechanism.space.speeds.index(component)]
    return at.coordinate(name.removesuffix("_rate"), v)[1]


def _missed(at: Position, name: str, value: Array) -> Scalar:
    """How far a named coordinate is from a value; an angle of whole turns from the nearest one."""
    mechanism = at.mechanism
    if name in mechanism.tree.coordinates:
        return at.q[mechanism.tree.coordinates.index(name)] - value
    coordinate = mechanism.coordinate(name).by(value)
    return coordinate.value(at.near(coordinate.markers).frames) - value


def _speed_row(mechanism: Mechanism, name: str) -> None:
    bodies = [f"{body.name}.{speed}" for body in mechanism.bodies for speed in mechanism.space.speeds]
    if name not in (*mechanism.speed_names, *bodies):
        try:
            mechanism.coordinate(name.removesuffix("_rate"))
        except MechanismError:
            joints = [f"{j.name}.{c}" for j in mechanism.joints for c in getattr(j, "motions", ())]
            raise unknown("speed", name, dict.fromkeys((*mechanism.speed_names, *bodies, *joints))) from None


def _numbers(what: str, values: Mapping[str, Any] | None) -> dict[str, Array]:
    """Values by name as arrays; each must be a number, and finite where it is known."""
    found = {name: as_float(value) for name, value in (values or {}).items()}
    for name, value in found.items():
        check_finite(what, repr(name), value)
    return found


def tolerance_of(q: Array) -> float:
    """The largest violation that counts as closed: 1e-8 m or rad in double, 1e-4 in single precision."""
    return 1e-8 if q.dtype == jnp.float64 else 1e-4


def _check_positions(mechanism: Mechanism, q: Array, miss: Array, fixed: Mapping[str, Any]) -> Array:
    if not is_concrete(miss):
        text = "Assembly failed: the joints cannot be closed at these values."
        return eqx.error_if(q, _worst(miss) > tolerance_of(q), text)
    if not float(_worst(miss)) <= tolerance_of(q):
        text = closure_text(mechanism, np.asarray(miss), tuple(fixed), tolerance_of(q))
        raise AssemblyError(text + _too_many(mechanism, q, len(fixed)))
    return q


def _check_speeds(mechanism: Mechanism, v: Array, miss: Array, speeds: Mapping[str, Any]) -> Array:
    limit = 1e2 * tolerance_of(v) * (1 + jnp.max(jnp.abs(v)))
    if not is_concrete(miss, v):
        return eqx.error_if(v, _worst(miss) > limit, "Assembly failed: the speeds contradict the constraints.")
    if not float(_worst(miss)) <= float(limit):
        rows = _named_rows(mechanism, np.asarray(miss), tuple(speeds))
        missing = ", ".join(f"{name!r} by {value:.3g}" for name, value in rows[:4] if not value <= float(limit))
        raise AssemblyError(
            f"The given speeds contradict the constraints: no speeds satisfy all of them (missed: {missing}). "
            "Give at most as many speeds as there are degrees of freedom, and none that a driver prescribes."
        )
    return v


def closure_text(
    mechanism: Mechanism, miss: Float[np.ndarray, " rows"], fixed: tuple[str, ...], tolerance: float
) -> str:
    """The message for a mechanism that does not close: which joints miss, and by how much."""
    return (
        f"The mechanism cannot be assembled: {open_rows(mechanism, miss, fixed, tolerance)} (m or rad; m² for a Rod). "
        "Either the lengths do not reach, the fixed values contradict each other, or the guess is too far off: check "
        "the markers of these joints, fix fewer coordinates, or start from a better guess."
    )


def _too_many(mechanism: Mechanism, q: Array, fixed: int) -> str:
    """What to add to that message where more is prescribed than can move."""
    drivers = [driver.name for driver in mechanism.drivers]
    joints = sum(mechanism.constraint_sizes()) - len(drivers)
    freedom = mechanism.nv - int(np.linalg.matrix_rank(jacobian(mechanism, jnp.zeros(()), q)[:joints], tol=1e-6))
    if len(drivers) + fixed <= freedom:
        return ""
    named = f" ({', '.join(map(repr, drivers))})" if drivers else ""
    return (
        f" Over-constrained: {len(drivers)} driver{'s' * (len(drivers) != 1)}{named} and {fixed} fixed "
        f"value{'s' * (fixed != 1)} on a mechanism whose joints leave {freedom} "
        f"degree{'s' * (freedom != 1)} of freedom."
    )


def open_rows(mechanism: Mechanism, miss: Float[np.ndarray, " rows"], fixed: tuple[str, ...], tolerance: float) -> str:
    """The parts whose rows miss by more than a tolerance, worst first."""
    rows = [(name, value) for name, value in _named_rows(mechanism, miss, fixed) if not value <= tolerance]
    more = f", and {len(rows) - 6} more" if len(rows) > 6 else ""
    return ", ".join(f"{name!r} misses by {value:.3g}" for name, value in rows[:6]) + more


def _named_rows(mechanism: Mechanism, miss: np.ndarray, extra: tuple[str, ...]) -> list[tuple[str, float]]:
    labels = [name for name, _ in mechanism.row_labels()]
    worst: dict[str, float] = {}
    for label, value in zip((*labels, *extra), np.abs(miss), strict=True):
        worst[label] = float(max(worst.get(label, 0.0), value)) if np.isfinite(value) else float("inf")
    return sorted(worst.items(), key=lambda item: -item[1])


def _worst(miss: Array) -> Array:
    return jnp.max(jnp.abs(miss), initial=0.0)
