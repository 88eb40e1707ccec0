"""Paths of equilibria: an equilibrium as a function of one parameter, through limit points too."""

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from jaxmbd.analyses.equilibrium.balance import Rotation, SmallMotions
from jaxmbd.analyses.equilibrium.continuation import BalanceFamily, PathPoint, arc_steps, natural_steps
from jaxmbd.analyses.equilibrium.equilibrium import Equilibrium, equilibrium, rate_of, settled, verdict
from jaxmbd.arrays import Number, as_float, frozen, is_concrete
from jaxmbd.checks import check_count, check_finite, check_index, check_number
from jaxmbd.engine import cached_on_disk
from jaxmbd.errors import MechanismError, SolveError
from jaxmbd.model.mechanism.mechanism import Mechanism, check_mechanism
from jaxmbd.parameters.places import AbstractPlace, Where, place_of_number
from jaxmbd.printing import count_of, format_number, readable
from jaxmbd.state.result_codes import RESULTS, first_failure
from jaxmbd.state.state import State


class EquilibriumPath(eqx.Module):
    """Equilibria along a parameter. `print` shows where the path is stable, and its limit points and bifurcations.

    `path["rod.theta"]` reads a channel, with `points` as its first axis; `path.at(k)` is the equilibrium of one point.

    - `values`: the values of the parameter;
    - `equilibria`: all equilibria as one `Equilibrium` with stacked arrays;
    - `slope`: the parameter's component of the unit tangent of the path;
    - `found`: True for points that are equilibria (all of them, unless the path was computed inside `jit` or with
      `check=False`).
    """

    values: Float[Array, " points"]
    equilibria: Equilibrium
    slope: Float[Array, " points"]
    found: Bool[Array, " points"]

    def __repr__(self) -> str:
        return readable(self, self._text, values=1, slope=1, found=1)

    def _text(self) -> str:
        values, verdicts = np.asarray(self.values), self.verdicts
        starts = [k for k in range(len(values)) if k == 0 or verdicts[k] != verdicts[k - 1]]
        lines = [
            f"EquilibriumPath of {count_of(len(values), 'point')}, "
            f"{format_number(values[0])} to {format_number(values[-1])}"
        ]
        for first, after in zip(starts, [*starts[1:], len(values)], strict=True):
            lines.append(f"{format_number(values[first])} to {format_number(values[after - 1])}: {verdicts[first]}")
        for what, marks in (("limit point", self.limits), ("bifurcation", self.bifurcations)):
            for k in np.flatnonzero(np.asarray(marks)):
                lines.append(f"{what} between {format_number(values[k])} and {format_number(values[k + 1])}")
        return "\n".join(lines)

    def __getitem__(self, name: str) -> Array:
        return _series(self.equilibria, name)

    def at(self, k: int) -> Equilibrium:
        """Return the equilibrium at point `k`."""
        check_index("path.at", k, len(self.values), "points")
        return jax.tree.map(lambda x: x[k] if eqx.is_array(x) else x, self.equilibria)

    @property
    def small_motions(self) -> SmallMotions:
        """The eigenvalues of the small motions about each point, and the counts that decide on its stability."""
        return _motions(self.equilibria)

    @property
    def eigenvalues(self) -> Complex[Array, "points n"]:
        """The eigenvalues of the small motions about each point [1/s]."""
        return self.small_motions.eigenvalues

    @property
    def stable(self) -> Bool[Array, " points"]:
        """True for each stable point."""
        return self._signs.stable

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The stability of each point: `"stable"`, `"neutral"` or `"unstable (n growing modes)"`."""
        motions = self._signs
        return tuple(verdict(jax.tree.map(lambda x, k=k: x[k], motions)) for k in range(len(self.values)))

    @property
    def limits(self) -> Bool[Array, " intervals"]:
        """True for each interval between two points with a limit point, where the parameter turns back."""
        return self._turns & self._crossings

    @property
    def bifurcations(self) -> Bool[Array, " intervals"]:
        """True for each interval between two points with a bifurcation, where another branch crosses the path.

        Either a stiffness changes its sign there and the parameter does not turn back, or the reverse.
        """
        return self._turns ^ self._crossings

    @property
    def _signs(self) -> SmallMotions:
        """The small motions without derivatives, for signs and counts."""
        return _motions(frozen(self.equilibria))

    @property
    def _turns(self) -> Bool[Array, " intervals"]:
        return self.slope[1:] * self.slope[:-1] < 0

    @property
    def _crossings(self) -> Bool[Array, " intervals"]:
        negative = self._signs.negative
        return (negative[1:] - negative[:-1]) % 2 == 1


def equilibrium_path(
    mechanism: Mechanism,
    along: Where,
    values: Iterable[Number],
    guess: Mapping[str, Number] | State | None = None,
    *,
    fixed: Mapping[str, Number] | None = None,
    rotation: Rotation | Mapping[str, Number] | None = None,
    t: Number = 0.0,
    stable: bool = False,
    points: int | None = None,
    step: Number = 0.05,
    check: bool = True,
) -> EquilibriumPath:
    """Follow an equilibrium along a parameter: one number of the mechanism, or the speed of its rotation.

    Each point is predicted along the tangent at the previous point and corrected by Newton's method. The points are
    differentiable (implicit differentiation) at fixed values of the parameter.

    **Arguments:**

    - `along`: the name of a number, `"spring.stiffness"`, or a function to one, as for `equinox.tree_at`; or `"speed"`,
      that of the `rotation`;
    - `values`: without `points`, the parameter values of the equilibria, in order; with `points`, the range: the path
      starts at the first value and is followed through limit points, also beyond the first value, until it passes the
      last one or has this number of points;
    - `step`: the largest step of such a path, as a share of the range of values and the size of the mechanism;
    - `guess`, `fixed`, `rotation`, `t`, `stable`, `check`: as for `equilibrium`, for the first point.

    **Returns:** an `EquilibriumPath`.

    **Raises:** the errors of `equilibrium`, for the first point; `SolveError` if the path ends at a limit point before
    the last value, or if no second point is found; `MechanismError` if all values are equal or, with `points`, the
    first and the last one.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> sprung = pendulum.with_parts([pl.JointSpringDamper("spring", "O.angle", 20.0)])
        >>> path = mbd.equilibrium_path(sprung, "spring.stiffness", [20.0, 40.0])
        >>> print(path["O.angle"].round(4))
        [-0.2383 -0.1217]
    """
    check_mechanism(mechanism)
    if points is not None:
        check_count("points", points, 2)
    numbers = _checked_values(values, points)
    check_finite("equilibrium_path", "step", as_float(step))
    check_number("equilibrium_path", "step", as_float(step), "1")
    is_speed = isinstance(along, str) and along == "speed"
    if is_speed and rotation is None:
        raise MechanismError("equilibrium_path: along 'speed' needs a rotation, whose speed it is.")
    first_rotation = _with_speed(rotation, numbers[0]) if is_speed else rotation
    place = None if is_speed else _place(along, mechanism)
    mechanism = mechanism if place is None else place.replaced(mechanism, numbers[0])
    first = equilibrium(mechanism, guess, fixed=fixed, rotation=first_rotation, t=t, stable=stable, check=check)
    unit = rate_of(mechanism, _with_speed(rotation, 1.0), first.state.q, first.state.t) if is_speed else first.rate
    span = jnp.max(numbers) - jnp.min(numbers)
    family = BalanceFamily(first.mechanism, unit, first.state.t, span, place)
    path = _path(family, first.state.q, numbers, points, jnp.asarray(step, numbers.dtype))
    return _checked_path(path, numbers, points) if check else path


def _place(along: object, mechanism: Mechanism) -> AbstractPlace:
    try:
        return place_of_number("equilibrium_path", "along", along, mechanism)
    except MechanismError as error:
        if not isinstance(along, str) or "." in along:
            raise
        raise MechanismError(f"{error} It may also be 'speed', with a rotation.") from None


@cached_on_disk
def _path(family: BalanceFamily, q: Array, values: Array, points: int | None, step: Array) -> EquilibriumPath:
    fixed, start, ends = frozen((family, q, values))
    still = jnp.zeros(family.mechanism.nv, q.dtype)
    towards = jnp.ones_like(ends[0]) if points is None else jnp.sign(ends[-1] - ends[0])
    first = PathPoint(start, ends[0], still, towards)
    if points is None:
        path_points, found = natural_steps(fixed, first, ends)
    else:
        path_points, found = arc_steps(fixed, first, ends[-1], step, points)
    parameters = values if points is None else path_points.p

    def one(p: Array, q: Array, good: Array) -> Equilibrium:
        result = first_failure((~good, RESULTS.not_balanced))
        return settled(*family.at(p), q, jnp.asarray(0), result)

    equilibria = eqx.filter_vmap(one)(parameters, path_points.q, found)
    return EquilibriumPath(parameters, equilibria, path_points.share, found)


@cached_on_disk
def _motions(equilibria: Equilibrium) -> SmallMotions:
    return eqx.filter_vmap(lambda one: one.small_motions)(equilibria)


@cached_on_disk
def _series(equilibria: Equilibrium, name: str) -> Array:
    return eqx.filter_vmap(lambda one: one[name])(equilibria)


def _checked_values(values: Iterable[Number], points: int | None) -> Float[Array, " values"]:
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise MechanismError(f"values must be a sequence of at least two numbers, got {values!r}.")
    numbers = as_float(values if is_concrete(values) and isinstance(values, Array) else list(values))
    if not isinstance(numbers, Array):
        raise MechanismError(f"values must be a sequence of at least two numbers, got {numbers!r}.")
    if numbers.ndim != 1 or numbers.shape[0] < 2:
        raise MechanismError(f"values must be a sequence of at least two numbers, got shape {numbers.shape}.")
    check_finite("equilibrium_path", "values", numbers, numbers.shape)
    if is_concrete(numbers):
        first, last = float(numbers[0]), float(numbers[-1])
        if bool(jnp.all(numbers == numbers[0])):
            raise MechanismError(f"values must have at least two different numbers, got {first:.6g} only.")
        if points is not None and first == last:
            raise MechanismError(
                f"With points, values are a range, whose ends must differ: got {first:.6g} as the first and as the "
                "last value. Leave points out to compute equilibria at all values."
            )
    return numbers


def _with_speed(rotation: Any, speed: Any) -> Any:
    """Return the same rotation with another speed."""
    if isinstance(rotation, Mapping):
        return dict.fromkeys(rotation, speed)
    return Rotation(speed, rotation.axis, rotation.point)


def _checked_path(path: EquilibriumPath, values: Array, points: int | None) -> EquilibriumPath:
    """Return the path with the points that were found; raise if requested points are missing."""
    if not is_concrete(path):
        return path
    found = np.asarray(path.found)
    if points is None and not found.all():
        k = int(np.argmin(found))
        raise SolveError(
            f"The path ends between {float(values[max(k - 1, 0)]):.6g} and {float(values[k]):.6g}: no equilibrium was "
            "found beyond. It may turn back there (a limit point: follow it with points=100), or the values are too "
            "far apart."
        )
    if found.sum() < 2:
        raise SolveError(
            f"No equilibria were found after the first one, at {float(values[0]):.6g}: give a smaller step, or another "
            "first value if the path branches there."
        )
    return jax.tree.map(lambda x: x[found] if eqx.is_array(x) else x, path)
