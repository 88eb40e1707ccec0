"""Linearised dynamics: the equations as a function of independent coordinates, speeds and inputs, and its Jacobian.

An input changes the mechanism by one number, which is zero where it is linearised.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.linearization.independent_coordinates import IndependentCoordinates
from jaxmbd.analyses.simulation.samples import sampled_controllers
from jaxmbd.arrays import Scalar
from jaxmbd.engine import cached_on_disk, trace_once
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.kinematic_quantities import KinematicReader
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.errors import MechanismError
from jaxmbd.integrate.formulations.coordinate_partitioning import ReducedEquations
from jaxmbd.integrate.formulations.newton_closure import NamedCoordinateCorrection, RowsAndSpeeds, close_loops
from jaxmbd.model.mechanism.inputs import with_signals
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.numerics.linear_solve import LeastSquaresQR
from jaxmbd.numerics.sparse_matrices import full, vstack
from jaxmbd.parameters.inputs import inputs as inputs_of
from jaxmbd.parameters.inputs import resolved
from jaxmbd.parameters.places import AbstractPlace, Named, Where, place_of_number
from jaxmbd.state.output_channels import Snapshot, channel_values

Input: TypeAlias = str | tuple[str, Where]


def checked_inputs(mechanism: Mechanism, inputs: Iterable[Input]) -> tuple[Input, ...]:
    """Return the inputs as a tuple, numbers of the mechanism as pairs; raise unless each exists."""
    if not isinstance(inputs, Iterable):
        raise MechanismError(f"inputs must be a sequence of inputs, such as ['motor.effort'], got {inputs!r}.")
    checked: list[Input] = []
    known, drivers = inputs_of(mechanism), {driver.name for driver in mechanism.drivers}
    for entry in (inputs,) if isinstance(inputs, str) else inputs:
        if isinstance(entry, str):
            owner, _, component = entry.partition(".")
            if owner in drivers and component in ("motion", "effort"):
                raise MechanismError(
                    f"{entry!r} cannot be an input: what a driver prescribes enters with its first and second "
                    f"derivatives. Take the driver {owner!r} out and let a force move the coordinate, as the input "
                    f"{mechanism[owner].coordinate!r}."
                )
            checked += [name if name in known else (name, name) for name in resolved(mechanism, entry)]
        elif isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) and _is_place(entry[1]):
            checked.append(entry)
        else:
            raise MechanismError(
                "An input is a name, or a name and a function that finds a number in the mechanism, "
                f"('load', lambda m: m['load'].torque); got {entry!r}."
            )
    for entry in checked:
        if not isinstance(entry, str):
            _place_of(mechanism, *entry)
    return tuple(checked)


def _is_place(where: Any) -> bool:
    return callable(where) or isinstance(where, str)


def named(entry: Input) -> str:
    """Return the name of an input."""
    return entry if isinstance(entry, str) else entry[0]


def units_of(mechanism: Mechanism, inputs: tuple[Input, ...]) -> tuple[str, ...]:
    """Return the units of inputs; "" where a function selects the number."""
    known = inputs_of(mechanism)
    places = [known[x] if isinstance(x, str) else _place_of(mechanism, *x) for x in inputs]
    return tuple(x if isinstance(x, str) else x.unit(mechanism) if isinstance(x, Named) else "" for x in places)


def _place_of(mechanism: Mechanism, name: str, where: Where) -> AbstractPlace:
    return place_of_number(f"The input {name!r}", "function", where, mechanism)


class LinearizedMatrices(eqx.Module):
    """The matrices of `ẋ = A x + B u`, `y = C x + D u`, and the state `q`, `v`, `vdot` at which they are computed.

    `directions`: the generalized speeds for unit rates of the independent coordinates; `mass`: the mass matrix in these
    directions; `strain`: the derivatives of `Φ` and `Φ̇`, without units (`Scales`), with respect to the inputs;
    `sampling`: the derivatives, by `x` and `u`, of the states of parts after a sample of the controllers, no rows if
    none samples; `sizes`: the numbers of components of the outputs.
    """

    A: Float[Array, "x x"]
    B: Float[Array, "x inputs"]
    C: Float[Array, "outputs x"]
    D: Float[Array, "outputs inputs"]
    mass: Float[Array, "k k"]
    directions: Float[Array, "nv k"]
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    vdot: Float[Array, " nv"]
    strain: Float[Array, "rows inputs"]
    sampling: Float[Array, "own x_and_inputs"]
    sizes: tuple[int, ...] = eqx.field(static=True)


@cached_on_disk
def linearized(
    mechanism: Mechanism, t: Scalar, q: Array, v: Array, z: Array,
    choice: IndependentCoordinates, inputs: tuple[Input, ...], outputs: tuple[str, ...],
) -> LinearizedMatrices:  # fmt: skip
    """Return the matrices of the small motions about a state."""
    small = _LinearizedDynamics(mechanism.with_own_states(z), choice, inputs, outputs)
    q = close_loops(small.equations, t, q, small.correction)
    at = small.equations.at(t, q)
    partition = ReducedEquations(at, small.correction)
    v = _consistent(at, v, partition, jnp.zeros(len(choice.speeds), q.dtype))
    independent = small.correction.rates(at, v)
    frame, turning, directions = jax.jvp(small.frame, (t, q), (jnp.ones_like(t), at.rate(v)), has_aux=True)
    moving = np.asarray(mechanism.layout.z.moving, int)
    samples = bool(sampled_controllers(mechanism))
    operating = KinematicReader(at, v).in_operation() if samples else z
    k, ends = len(choice.places), np.cumsum([len(choice.places), len(choice.speeds), len(moving)])

    def flow(x: Array) -> tuple[Array, Array, Array, list[Array], Array, Array]:
        along, speeds, own, changes = jnp.split(x, ends)
        equations = small.with_inputs(changes).with_own_states(z.at[moving].add(own))
        there = equations.at(t, q)
        violation = jnp.concatenate([there.position(), there.velocity(v)]) / jnp.tile(equations.scales.rows, 2)
        here, w = q + frame @ along, independent + speeds
        sampled = z[:0]
        if samples:
            operated = equations.with_own_states(operating.at[moving].add(own))
            sampled = small.sampled(operated, t, here, v, w)[moving]
        return *small.flow(equations, t, here, v, w), violation, sampled

    qdot, vdot, zdot, outputs_jacobian, violation, sampling = jax.jacfwd(flow)(
        jnp.zeros(ends[-1] + len(inputs), q.dtype)
    )
    along = LeastSquaresQR(frame).least_squares(qdot.at[:, :k].add(-turning))
    (A, B), (C, D) = (
        jnp.split(jnp.concatenate(blocks), ends[-1:], axis=1)
        for blocks in ([along, vdot, zdot[moving]], [qdot[:0], *outputs_jacobian])
    )
    sizes = tuple(len(rows) for rows in outputs_jacobian)
    mass = directions.T @ at.inertia.matrix() @ directions
    return LinearizedMatrices(
        A, B, C, D, mass, directions, q, v, partition.accelerations(v)[1], violation[:, ends[-1] :], sampling, sizes
    )


@cached_on_disk
def reached(
    mechanism: Mechanism, t: Scalar, q: Array, choice: IndependentCoordinates, step: Float[Array, "steps nv"]
) -> Float[Array, "steps nq"]:
    """Return the coordinates after steps (speeds times a time), with the loops closed if that is possible."""
    equations = Equations(mechanism, _is_redundant(mechanism, choice))

    def one(step: Array) -> Array:
        moved = equations.retract(t, q, step)
        closed = close_loops(equations, t, moved, NamedCoordinateCorrection(choice.speeds))
        return jnp.where(jnp.isfinite(closed), closed, moved)

    return jax.vmap(one)(step)


@trace_once
def sizes_of(A: Float[Array, "x x"], mass: Float[Array, "k k"], choice: IndependentCoordinates) -> Float[Array, " x"]:
    """Return comparable sizes of the states: scaled by the inertia, and speeds by the rate of the fastest motion."""
    k, places, inertia = len(choice.places), [choice.places.index(name) for name in choice.speeds], jnp.diag(mass)
    n = k + len(places)
    size = 1 / jnp.sqrt(jnp.concatenate([inertia, inertia[jnp.asarray(places, int)]]))
    scaled = jnp.abs(A[:n, :n] * size[None, :] / size[:, None])
    rates = jnp.sqrt(jnp.max(scaled[k:, :k], initial=0.0)), jnp.max(scaled[:k, :k]), jnp.max(scaled[k:, k:])
    fastest = jnp.max(jnp.stack(rates))
    size = size.at[k:].multiply(jnp.where(fastest > 0, fastest, 1.0))
    # A state of a part is as large as what the motion of size one changes it by; at least one of its unit.
    driven = jnp.sum(jnp.abs(A[n:, :n]) * size[None], axis=1) / jnp.maximum(jnp.abs(jnp.diag(A)[n:]), fastest)
    return jnp.concatenate([size, jnp.where(jnp.isfinite(driven) & (driven > 0), driven, 1.0)])


class _LinearizedDynamics:
    """The equations near a state as functions of coordinates, speeds and inputs."""

    def __init__(
        self, mechanism: Mechanism, choice: IndependentCoordinates, inputs: tuple[Input, ...], outputs: tuple[str, ...]
    ) -> None:
        self.choice, self.inputs, self.outputs = choice, inputs, outputs
        self.correction = NamedCoordinateCorrection(choice.speeds)
        self.equations = Equations(mechanism, _is_redundant(mechanism, choice))

    def with_inputs(self, u: Float[Array, " inputs"]) -> Equations:
        """Return the equations of the mechanism with changed inputs `u`."""
        mechanism, changes = self.equations.mechanism, list(zip(self.inputs, u, strict=True))
        for entry, by in changes:
            if not isinstance(entry, str):
                place = _place_of(mechanism, *entry)
                mechanism = place.replaced(mechanism, place.value(entry[0], mechanism) + by)
        mechanism = with_signals(mechanism, [(entry, by) for entry, by in changes if isinstance(entry, str)])
        return Equations(mechanism, self.equations.redundant) if self.inputs else self.equations

    def directions(self, at: Configuration) -> Float[Array, "nv k"]:
        """Return the generalized speeds that keep the joints closed, one column for each unit independent speed."""
        rows = np.asarray(self.choice.rows, dtype=int)
        stacked = vstack([full(at.jacobian[rows]), NamedCoordinateCorrection(self.choice.places).rows(at)])
        scales = at.equations.scales
        solve = RowsAndSpeeds(stacked, scales, scales.rows[rows]).least_squares
        return solve(jnp.eye(stacked.shape[0], dtype=at.q.dtype)[:, len(rows) :])

    def frame(self, t: Scalar, q: Float[Array, " nq"]) -> tuple[Float[Array, "nq k"], Float[Array, "nv k"]]:
        """Return the derivative of the coordinates with respect to the independent ones, and the directions."""
        at = self.equations.at(t, q)
        directions = self.directions(at)
        moved = jax.jacfwd(lambda z: at.perturbed(directions @ z))(jnp.zeros(directions.shape[1], q.dtype))
        return moved, directions

    def flow(
        self, equations: Equations, t: Scalar, q: Array, v: Array, w: Array
    ) -> tuple[Array, Array, Array, list[Array]]:
        """Return `q̇`, the rates of the independent speeds `w` and of the states of parts, and the outputs as vectors;
        `v` is a near velocity."""
        at, partition, v = self._moving(equations, t, q, v, w)
        independent, vdot = partition.accelerations(v)
        outputs = []
        if self.outputs:  # the multipliers take as many operations as the accelerations
            lam = SaddlePoint(at).accelerations(at.force(v), at.gamma(v))[1]
            values = channel_values(equations, self.outputs, Snapshot(t, q, v, vdot, lam, equations.mechanism.z))
            outputs = [values[name].reshape(-1) for name in self.outputs]
        return at.rate(v), independent, at.own_rates(v), outputs

    def sampled(self, equations: Equations, t: Scalar, q: Array, v: Array, w: Array) -> Float[Array, " nz"]:
        """Return the states of parts after a sample of all controllers; as `flow`."""
        at, _, v = self._moving(equations, t, q, v, w)
        return KinematicReader(at, v).all_sampled()

    def _moving(
        self, equations: Equations, t: Scalar, q: Array, v: Array, w: Array
    ) -> tuple[Configuration, ReducedEquations, Array]:
        at = equations.at(t, q)
        partition = ReducedEquations(at, self.correction)
        return at, partition, _consistent(at, v, partition, w - self.correction.rates(at, v))


def _is_redundant(mechanism: Mechanism, choice: IndependentCoordinates) -> bool:
    return sum(mechanism.constraint_sizes()) > mechanism.nv - len(choice.speeds)


def _consistent(at: Configuration, v: Array, partition: ReducedEquations, change: Array) -> Array:
    """Return the speeds with `C v = −Φ_t` that follow from `v` if the independent ones change by `change`."""
    return v + partition.solve(jnp.concatenate([-at.velocity(v), change]))
