"""The regressor of a mechanism: the efforts of its actuators as a linear function of inertial and other numbers.

For a known motion the efforts are `τ = Y θ + τ₀`, with the inertial numbers of bodies and those of forces that occur
linearly in `θ`. Loops are no hindrance: `Cᵀ λ + Gᵀ λ_a = F − M v̇` is solved for the actuators by a matrix that depends
on the position alone, and the columns of `Y` are the right sides of unit numbers (`analyses/effort_columns.py`).

Source: Khalil, Dombre, *Modeling, Identification and Control of Robots* (2002), chapter 12.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.actuator_balance import check_balance, configuration, largest_unbalanced
from jaxmbd.analyses.effort_columns import effort_columns, number_columns
from jaxmbd.analyses.events.changes import ForceChanges
from jaxmbd.analyses.inverse_dynamics import motion_with_actuators
from jaxmbd.arrays import Scalar, frozen, is_known
from jaxmbd.checks import checked_names
from jaxmbd.engine import cached_on_disk
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.identification._base_parameters import BaseParameters, base_parameters
from jaxmbd.model.body.flexible import AbstractFlexibleBody
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.linear_solve import rank_of
from jaxmbd.parameters.inertial_numbers import inertial_names, inertial_units, inertial_values, with_inertial_values
from jaxmbd.parameters.numbers import Field, Number, find, replaced
from jaxmbd.printing import count_of, format_number, readable, table
from jaxmbd.state.output_channels import Snapshot

_LINEAR = 1e-6  # share of the largest entry of a column by which it may change where efforts are linear in its number
_TRIED = 16  # times at which that is tried
_OTHER = 1.5, 0.3  # other values at which that is tried: so many times the number, plus so much


class Regressor(eqx.Module):
    """`τ = Y θ + τ₀`: the efforts of actuators over a motion as a linear function of numbers.

    `matrix (times, actuators, numbers)`: `Y`; `known (times, actuators)`: `τ₀`, the efforts for what is not in `θ`;
    `values (numbers,)`: `θ` in the mechanism; `names`, `units`: of the numbers; `actuators`: the names of the efforts;
    `ts (times,)` [s]; `mechanism`. `print` shows the numbers.
    """

    mechanism: Mechanism
    ts: Float[Array, " times"]
    matrix: Float[Array, "times actuators numbers"]
    known: Float[Array, "times actuators"]
    values: Float[Array, " numbers"]
    names: tuple[str, ...] = eqx.field(static=True)
    units: tuple[str, ...] = eqx.field(static=True)
    actuators: tuple[str, ...] = eqx.field(static=True)
    bodies: tuple[str, ...] = eqx.field(static=True)
    numbers: tuple[Number, ...] = eqx.field(static=True)

    def efforts(self, theta: Float[Array | np.ndarray, " numbers"]) -> dict[str, Float[Array, " times"]]:
        """Return the effort of each actuator [N or N m] for other values of the numbers."""
        efforts = self.matrix @ jnp.asarray(theta) + self.known
        return {name: efforts[:, k] for k, name in enumerate(self.actuators)}

    def with_values(self, theta: Float[Array | np.ndarray, " numbers"]) -> Mechanism:
        """Return the mechanism with other values of the numbers: bodies with other masses, centres of mass and inertia,
        whose markers stay where they are in the modelled axes.

        **Raises:** `MechanismError` if a mass is not positive; whether an inertia is possible is not looked at.
        """
        count = len(inertial_names(self.mechanism))
        own, others = jnp.split(jnp.asarray(theta), [count * len(self.bodies)])
        mechanism = replaced(self.mechanism, zip(self.numbers, others, strict=True))
        return with_inertial_values(mechanism, dict(zip(self.bodies, own.reshape(-1, count), strict=True)))

    def base(self, tolerance: float | None = None) -> BaseParameters:
        """Return the base parameters: the combinations of numbers that the motion tells apart.

        `tolerance`: the share of a number's effect, below which others can take its place; by default some more than
        rounding.
        """
        matrix = np.asarray(self.matrix).reshape(-1, len(self.names))
        return base_parameters(matrix, self.names, self.units, np.asarray(self.values), tolerance)

    def __repr__(self) -> str:
        return readable(self, self._text, ts=1, matrix=3, known=2, values=1)

    def _text(self) -> str:
        values = map(format_number, np.asarray(self.values))
        rows = [list(row) for row in zip(self.names, values, self.units, strict=True)]
        over = f"{count_of(len(self.actuators), 'effort')} at {count_of(len(self.ts), 'time')}"
        title = f"Regressor of {over}, linear in {count_of(len(self.names), 'number')}"
        return f"{title}\n{table([['number', 'value', 'unit'], *rows], words=3)}"


def regressor(
    mechanism: Mechanism,
    motion: Any,
    actuators: Mapping[str, str] | None = None,
    *,
    bodies: Sequence[str] | None = None,
    numbers: Sequence[str] = (),
) -> Regressor:
    """Compute the efforts of actuators over a motion as a linear function of inertial numbers, and of other ones.

    `τ = Y θ + τ₀`. Each body has as inertial numbers its mass, the first moments of mass `m c` about the modelled
    centre of mass, and the inertia about that point, in the modelled axes: `rod.mass`, `rod.first_moment.x`,
    `rod.inertia` in the plane, `rod.inertia.xx`, … in space. The off-diagonal ones are entries of the matrix. Loops may
    be closed; friction, springs and rotors are named numbers.

    **Arguments:**

    - `motion`, `actuators`: as for `inverse_dynamics`; as many actuators as degrees of freedom;
    - `bodies`: the names of the bodies whose inertial numbers are in `θ`, by default all rigid ones with a mass;
    - `numbers`: names and patterns of numbers of forces, and of armatures of joints, `["*.damping", "A.armature"]`, in
      which the efforts are linear.

    **Returns:** a `Regressor`. It is differentiable with respect to the mechanism and the motion.

    **Raises:** `MechanismError` for unknown names, for numbers in which the efforts are not linear, and if there are
    more actuators than degrees of freedom; `SolveError` if the actuators cannot produce the motion.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> driven = pendulum.with_parts([pl.Driver("motor", "O.angle", lambda t: jnp.sin(3 * t))])
        >>> found = mbd.identification.regressor(driven, np.linspace(0.0, 2.0, 21))
        >>> found.names
        ('rod.mass', 'rod.first_moment.x', 'rod.first_moment.y', 'rod.inertia')
        >>> found.base().names  # first moments, and the inertia, about the hinge
        ('rod.first_moment.x + 0.5 rod.mass', 'rod.first_moment.y', 'rod.inertia - 0.25 rod.mass')
    """
    motion, actuated = motion_with_actuators("regressor", mechanism, motion, actuators, throw=True)
    drivers = tuple(driver.name for driver in actuated.drivers)
    if not drivers:
        raise MechanismError("regressor: the mechanism has no drivers; name the actuators, {'motor': 'O.angle'}.")
    chosen = _bodies(mechanism, bodies)
    others = tuple(_numbers(mechanism, numbers))
    places = tuple([body.name for body in mechanism.bodies].index(name) for name in chosen)
    snapshots, changes = motion.snapshots(), motion.force_changes
    values = jnp.concatenate([*(inertial_values(mechanism[name]) for name in chosen), _values(mechanism, others)])
    matrix, efforts, left, limit = _matrices(actuated, snapshots, changes, places, others)
    some = jax.tree.map(lambda x: x[:: max(1, len(motion.ts) // _TRIED)], snapshots)
    elsewhere, freedom = _elsewhere(actuated, some, changes, others)
    if is_known(matrix, elsewhere):
        elsewhere, freedom, ts, left, limit = frozen((elsewhere, freedom, motion.ts, left, limit))
        _check_actuators(drivers, int(freedom))
        _check_linear(others, *map(np.asarray, elsewhere))
        check_balance(actuated, np.asarray(ts), np.asarray(left), float(limit))
    return Regressor(
        mechanism=mechanism, ts=motion.ts, matrix=matrix, known=efforts - matrix @ values, values=values,
        names=(*(f"{name}.{one}" for name in chosen for one in inertial_names(mechanism)), *(n.name for n in others)),
        units=(*(inertial_units(mechanism) * len(chosen)), *(n.unit(mechanism) for n in others)),
        actuators=drivers, bodies=chosen, numbers=others,
    )  # fmt: skip


def _bodies(mechanism: Mechanism, names: Sequence[str] | None) -> tuple[str, ...]:
    rigid = [body.name for body in mechanism.bodies if not isinstance(body, AbstractFlexibleBody)]
    if names is None:
        return tuple(name for name in rigid if not is_known(mechanism[name].mass) or float(mechanism[name].mass) > 0)
    names = checked_names("regressor: bodies", names, "rod")
    check_known("rigid body", names, rigid)
    return tuple(names)


def _numbers(mechanism: Mechanism, names: Sequence[str]) -> list[Number]:
    """The single numbers of forces and armatures that names and patterns stand for."""
    found = [one for name in checked_names("regressor: numbers", names, "*.damping") for one in find(mechanism, name)]
    single = [one for number in found for one in number.elements(mechanism)]
    for one in single:
        is_armature = one.path[0] == Field("joints") and one.path[-1] == Field("armature")
        if one.path[0] != Field("forces") and not is_armature:
            raise MechanismError(
                f"regressor: numbers names {one.name!r}, which belongs neither to a force nor is it the armature of a "
                "joint. Inertial numbers of bodies are named by bodies=['rod']; dimensions are estimated by a Problem."
            )
    return list(dict.fromkeys(single))


def _values(mechanism: Mechanism, numbers: Sequence[Number]) -> Float[Array, " others"]:
    return jnp.stack([jnp.asarray(one.value(mechanism)) for one in numbers]) if numbers else jnp.zeros(0)


@cached_on_disk
def _matrices(
    mechanism: Mechanism, motion: Snapshot, changes: ForceChanges | None, places: tuple[int, ...],
    numbers: tuple[Number, ...],
) -> tuple[Array, Array, Array, Scalar]:  # fmt: skip
    """Return `Y`, the efforts of the mechanism as it is, the forces that are left unbalanced, and up to which size they
    count as balanced."""
    values = _values(mechanism, numbers)

    def one(s: Snapshot) -> tuple[Array, Array, Array, Scalar]:
        matrix, found = effort_columns(mechanism, changes, s, places, numbers, values)
        return matrix, -found.actuators, found.left, found.size

    matrix, efforts, left, sizes = jax.vmap(one)(motion)
    return matrix, efforts, left, largest_unbalanced(left, sizes)


@cached_on_disk
def _elsewhere(
    mechanism: Mechanism, motion: Snapshot, changes: ForceChanges | None, numbers: tuple[Number, ...]
) -> tuple[tuple[Array, Array], Array]:
    """Return the columns of the other numbers at some times, where they have their values and where they have others;
    the degrees of freedom."""
    values, count = _values(mechanism, numbers), len(mechanism.drivers)
    found = tuple(
        jax.vmap(lambda s, x=x: number_columns(mechanism, changes, s, numbers, x))(motion)
        for x in (values, _OTHER[0] * values + _OTHER[1])
    )
    first = jax.tree.map(lambda x: x[0], motion)
    at = configuration(mechanism, changes, first)
    rows = at.equations.scaled_jacobian(first.t, first.q)[: at.equations.m - count]
    return (found[0], found[1]), len(at.equations.scales.speeds) - rank_of(rows)


def _check_linear(numbers: Sequence[Number], here: np.ndarray, elsewhere: np.ndarray) -> None:
    for k, number in enumerate(numbers):
        change = np.abs(here[..., k] - elsewhere[..., k]).max(initial=0.0)
        if not change <= _LINEAR * max(
            np.abs(here[..., k]).max(initial=0.0), np.abs(elsewhere[..., k]).max(initial=0.0)
        ):
            raise MechanismError(
                f"regressor: the efforts are not linear in {number.name!r}, or not together with the other numbers: "
                "leave it out, and estimate it by a Problem."
            )


def _check_actuators(names: Sequence[str], freedom: int) -> None:
    if len(names) > freedom:
        raise MechanismError(
            f"regressor: {count_of(len(names), 'actuator')} ({', '.join(map(repr, names))}) move "
            f"{count_of(freedom, 'degree')} of freedom, so that their single efforts do not follow from the motion. "
            "Leave so many actuators out of the regressor."
        )
