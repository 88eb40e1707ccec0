"""Messages for failed assembly: the open parts, the sizes of their residuals, and whether another start succeeds."""

from collections.abc import Iterable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.assembly.millimetres import millimetres_text
from jaxmbd.analyses.assembly.multistart import MultistartResults, search
from jaxmbd.analyses.assembly.position_solve import ClosureProblem, closure, prescribed_units, row_scales, rows_of
from jaxmbd.analyses.assembly.sides import opposed_text
from jaxmbd.analyses.redundancy import jacobian, nonholonomic_rows
from jaxmbd.arrays import Scalar
from jaxmbd.engine import cached_on_disk
from jaxmbd.equations.body_laws import sided_joints
from jaxmbd.equations.equations import Equations
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.body.flexible import owner_of
from jaxmbd.model.mechanism.exact_axes import EXACT_TEXT, nearly_parallel
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.named_coordinates import PositionDriverConstraint
from jaxmbd.model.mechanism.scales import row_units
from jaxmbd.numerics.least_squares import least_squares
from jaxmbd.printing import count_of

_TRIES, _SEED = 32, 0  # searches, all but one from random starts, before a mechanism is called infeasible; reproducible
_DEPENDENT = 1e-6  # singular value of the rows without units below which they are dependent, at a position that is open
_GAP_WEIGHT = 1e-3  # weight of the rows of one part relative to all others, which leaves the whole gap to this part


def tolerance_of(q: Array | np.ndarray) -> float:
    """Return the largest residual of a closed joint, divided by its scale (`Scales`): 1e-8 in double precision, 1e-4 in
    single precision."""
    return 1e-8 if q.dtype == jnp.float64 else 1e-4


def closed_limits(equations: Equations, prescribed: Iterable[str]) -> Float[Array, " rows"]:
    """Return the largest residual of each row of a closure that counts as zero: those of `Φ`, then the prescribed."""
    own = equations.scales.of(*prescribed_units(equations.mechanism, prescribed))
    return jnp.concatenate([row_limits(equations), tolerance_of(own) * own])


def row_limits(equations: Equations) -> Float[Array | np.ndarray, " m"]:
    """Return the largest residual of each row of `Φ` that counts as zero.

    A joint outside the spanning tree misses by what in absolute coordinates all joints of its loop share. So that a
    mechanism has one verdict in both, it may miss by the sum of their tolerances.
    """
    mechanism, scales = equations.mechanism, equations.scales.rows
    index = {body.name: i for i, body in enumerate(mechanism.bodies)} | {GROUND: len(mechanism.bodies)}
    markers = [getattr(part, "markers", ()) for part in mechanism.constraints()]
    bodies = [[index[owner_of(marker.body)] for marker in each] for each in markers]
    joints = np.asarray([1 + len(mechanism.tree.loop(each)) for each in bodies], scales.dtype)
    return tolerance_of(scales) * np.repeat(joints, mechanism.constraint_sizes()) * scales


def closure_text(
    mechanism: Mechanism, start: Array, miss: Float[np.ndarray, " rows"], prescribed: dict[str, Array], t: Scalar
) -> str:
    """Return the message for a mechanism that cannot be closed from a start.

    Searches from random starts distinguish two cases: if some of them succeed the guess was too far off, and if none
    does the smallest residuals of all are reported. Before that, joints are named that close on the wrong side.
    """
    names, closing = tuple(prescribed), (Equations(mechanism), prescribed, t)
    scales = np.asarray(row_scales(closing[0], names))
    tolerance = np.asarray(closed_limits(closing[0], names))
    beyond, sides = _without_guards(closing, start)
    if (np.abs(np.asarray(beyond)) <= tolerance).all() and (opposed := opposed_text(sided_joints(mechanism), sides)):
        return f"The mechanism cannot be assembled from this guess: its joints close there on a wrong side. {opposed}"
    results, closed = _searched(mechanism, start, prescribed, t)
    if closed:
        return (
            f"The mechanism cannot be assembled from this guess: {open_rows(mechanism, miss, names, tolerance)} (m or "
            f"rad; m² for a Rod). It can be closed: the guess is too far off; {closed} of {_TRIES} searches from "
            "there and from random starts did close. Take a better guess, or one of assembly_modes(...)."
        )
    sizes = np.nan_to_num(np.linalg.norm(np.asarray(results.miss), axis=1), nan=np.inf)
    q = results.q[int(np.argmin(np.where(np.asarray(results.wrong), np.inf, sizes)))]
    least_q, least_miss = _least_residuals(closing, jnp.asarray(1 / scales), q)
    least = open_rows(mechanism, np.asarray(least_miss), names, tolerance)
    if not least:  # the last search has closed what the others had left open, or axes are opposed there
        return _closed_elsewhere(open_rows(mechanism, miss, names, tolerance), opposed=bool(np.all(results.wrong)))
    gap = _gap_text(mechanism, closing, least_q, np.abs(np.asarray(least_miss)), scales)
    other = millimetres_text(mechanism, prescribed, lambda m, values: _searched(m, start, values, t)[1] > 0)
    return (
        f"The mechanism cannot be assembled: {least} (m or rad; m² for a Rod). It seems infeasible: these are the "
        f"least misses, and none of {_TRIES} searches from random starts closed it.{gap} Either "
        "the lengths do not reach or the fixed values contradict each other: check the markers of these joints, or fix "
        f"fewer coordinates.{other}"
    ) + _nearly_parallel_text(mechanism)


def _searched(
    mechanism: Mechanism, start: Array, prescribed: dict[str, Array], t: Scalar
) -> tuple[MultistartResults, int]:
    """Return the results of searches from a start and from random ones, and how many of them closed all joints."""
    results, _ = search(mechanism, start, prescribed, t, _TRIES, _SEED)
    limits = np.asarray(closed_limits(Equations(mechanism), tuple(prescribed)))
    return results, int(results.closed(limits).sum())


def _nearly_parallel_text(mechanism: Mechanism) -> str:
    """Return the addition on axes whose rounding may be what keeps joints open, else ""."""
    axes = nearly_parallel(mechanism)
    if not axes:
        return ""
    more = f", and on {len(axes) - 2} more bodies" if len(axes) > 2 else ""
    return f" Nearly parallel axes may keep it open: {'; '.join(map(str, axes[:2]))}{more}; {EXACT_TEXT}."


def _closed_elsewhere(open_here: str, *, opposed: bool) -> str:
    """Return the message for a mechanism that closes elsewhere; `opposed`: only with axes that point against each
    other."""
    if opposed:
        return (
            f"The mechanism cannot be assembled: {open_here} (m or rad; m² for a Rod). It closes only where the axes "
            "of a joint's markers point against each other, not the position that the joint means: turn one of "
            'the two markers, axis="-z".'
        )
    return (
        f"The mechanism cannot be assembled from this guess: {open_here} (m or rad; m² for a Rod). It can be closed: "
        "the guess is too far off. Take a better guess, or one of assembly_modes(...)."
    )


def over_constrained_text(mechanism: Mechanism, t: Scalar, q: Array, prescribed: tuple[str, ...]) -> str:
    """Return the addition to that message if more is prescribed than there are degrees of freedom, else "".

    What counts are positions: those that drivers prescribe, and each component of the prescribed coordinates, readings
    and bodies.
    """
    drivers = [part.name for part in mechanism.constraints() if isinstance(part, PositionDriverConstraint)]
    values = len(row_names(mechanism, prescribed)) - sum(mechanism.constraint_sizes())
    of_drivers = [name in {driver.name for driver in mechanism.drivers} for name, _ in mechanism.row_labels()]
    rows = jacobian(mechanism, t, q)[~(np.asarray(of_drivers, bool) | nonholonomic_rows(mechanism))]
    freedom = mechanism.nv - int(np.linalg.matrix_rank(rows, tol=_DEPENDENT))
    if len(drivers) + values <= freedom:
        return ""
    named = f"{count_of(len(drivers), 'driver')} ({', '.join(map(repr, drivers))})"
    given = [*([named] if drivers else []), *([count_of(values, "fixed value")] if values else [])]
    return (
        f" Over-constrained: {' and '.join(given)} on a mechanism whose joints leave {count_of(freedom, 'degree')} of "
        "freedom."
    )


def open_rows(
    mechanism: Mechanism, miss: Float[np.ndarray, " rows"], fixed: tuple[str, ...], tolerance: float | np.ndarray
) -> str:
    """Return the text on the parts with residuals above a tolerance, largest first."""
    return open_text(row_names(mechanism, fixed), miss, tolerance)


def open_text(names: list[str], miss: Float[np.ndarray, " rows"], tolerance: float | np.ndarray) -> str:
    """Return the text on the parts with residuals above a tolerance (of all rows or of each), largest first; `names`:
    the part of each row."""
    is_open = ~(np.abs(miss) <= tolerance)
    parts = {name for name, opens in zip(names, is_open, strict=True) if opens}
    rows = [(name, value) for name, value in worst_first(names, np.where(is_open, miss, 0.0)) if name in parts]
    more = f", and {len(rows) - 6} more" if len(rows) > 6 else ""
    return ", ".join(f"{name!r} misses by {value:.3g}" for name, value in rows[:6]) + more


def worst_first(names: list[str], miss: np.ndarray) -> list[tuple[str, float]]:
    """Return the largest residual of each part in descending order; `names`: the part of each row."""
    worst: dict[str, float] = {}
    for label, value in zip(names, np.abs(miss), strict=True):
        worst[label] = float(max(worst.get(label, 0.0), value)) if np.isfinite(value) else float("inf")
    return sorted(worst.items(), key=lambda item: -item[1])


def row_names(mechanism: Mechanism, extra: tuple[str, ...]) -> list[str]:
    """Return the part of each row of a closure: joints and drivers, then prescribed coordinates and bodies."""
    bodies = {body.name for body in mechanism.bodies}
    rows = [name for name, _ in mechanism.row_labels()]
    count = lambda name: len(mechanism.space.speeds) if name in bodies else rows_of(mechanism, name)  # noqa: E731
    return rows + [name for name in extra for _ in range(count(name))]


def _gap_text(
    mechanism: Mechanism, closing: ClosureProblem, q: Array, miss: Float[np.ndarray, " rows"],
    scales: Float[np.ndarray, " rows"],
) -> str:  # fmt: skip
    """Return the text on how far one joint stays open if all else is closed; "" if all else cannot be closed."""
    prescribed = closing[1]
    labels = np.asarray(row_names(mechanism, tuple(prescribed)))
    units = np.asarray((*row_units(mechanism), *prescribed_units(mechanism, prescribed)))
    if not np.isfinite(miss).all():
        return ""
    # A gap in metres is the most informative: the largest of these if there is one, else the largest residual.
    shares = miss / scales
    lengths = np.where(units == "m", shares, 0.0)
    name = labels[int(np.argmax(lengths if lengths.max(initial=0.0) > _GAP_WEIGHT * shares.max() else shares))]
    is_of_part = labels == name
    weights = np.where(is_of_part, _GAP_WEIGHT, 1.0) / scales
    _, residual = _least_residuals(closing, jnp.asarray(weights, q.dtype), q)
    residual = np.abs(np.asarray(residual))
    others, own = (residual[rows] / scales[rows] for rows in (~is_of_part, is_of_part))
    if not others.max(initial=0.0) <= 10 * _GAP_WEIGHT * own.max():
        return ""
    sizes = {
        unit: float(np.linalg.norm(residual[is_of_part & (units == unit)])) for unit in dict.fromkeys(units[is_of_part])
    }
    gaps = [_quantity(size, unit) for unit, size in sizes.items() if size > _GAP_WEIGHT * max(sizes.values())]
    return f" With everything else closed, {str(name)!r} misses by {' and '.join(gaps)}."


@cached_on_disk
def _without_guards(closing: ClosureProblem, start: Array) -> tuple[Array, Array]:
    """Return the residuals where a search ends that accepts both sides of the joints, and the sides there."""
    q = least_squares(closure, start, closing)
    return closure(q, closing), closing[0].at(closing[2], q).sides()


@cached_on_disk
def _least_residuals(closing: ClosureProblem, weights: Array, start: Array) -> tuple[Array, Array]:
    """Return the position of least weighted residuals, and the residuals there."""
    size = jnp.asarray(closing[0].scales.coordinates)
    q = size * least_squares(lambda x, args: args[1] * closure(size * x, args[0]), start / size, (closing, weights))
    return q, closure(q, closing)


def _quantity(value: float, unit: str) -> str:
    if unit == "m":
        scale, unit = next((s, u) for s, u in ((1.0, "m"), (1e-3, "mm"), (1e-6, "µm")) if value >= s or u == "µm")
        value = value / scale
    return f"{value:.3g} {unit}".rstrip()
