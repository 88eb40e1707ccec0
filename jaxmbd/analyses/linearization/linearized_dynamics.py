"""Linearised dynamics: the equations as a function of independent coordinates, speeds and inputs, and its Jacobian."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.linearization.independent_coordinates import IndependentCoordinates
from jaxmbd.analyses.linearization.inputs import Input, with_input
from jaxmbd.analyses.output_channels import Snapshot, channel_values
from jaxmbd.arrays import Scalar
from jaxmbd.compile.cache.disk_cache import cached_on_disk
from jaxmbd.equations.equations import Configuration, Equations
from jaxmbd.equations.rank import LeastSquaresQR
from jaxmbd.equations.saddle_point import SaddlePoint
from jaxmbd.integrate.formulations.coordinate_partitioning import Partition
from jaxmbd.integrate.formulations.newton_closure import NamedCoordinateCorrection, close_loops
from jaxmbd.model.mechanism.mechanism import Mechanism


class Matrices(eqx.Module):
    """The matrices of `ẋ = A x + B u`, `y = C x + D u`, and the state `q`, `v`, `vdot` at which they are computed.

    `directions`: the generalized speeds for unit rates of the independent coordinates; `mass`: the mass matrix in these
    directions; `strain`: the derivatives of `Φ` and `Φ̇` with respect to the inputs; `sizes`: the numbers of components
    of the outputs.
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
    sizes: tuple[int, ...] = eqx.field(static=True)


@cached_on_disk
def linearized(
    mechanism: Mechanism, t: Scalar, q: Array, v: Array,
    choice: IndependentCoordinates, inputs: tuple[Input, ...], outputs: tuple[str, ...],
) -> Matrices:  # fmt: skip
    """Return the matrices of the small motions about a state."""
    small = _LinearizedDynamics(mechanism, choice, inputs, outputs)
    q = close_loops(small.equations, t, q, small.correction)
    at = small.equations.at(t, q)
    partition = Partition(at, small.correction)
    v = _consistent(at, v, partition, jnp.zeros(len(choice.speeds), q.dtype))
    independent = small.correction.rates(at, v)
    frame, turning = jax.jvp(small.frame, (t, q), (jnp.ones_like(t), at.rate(v)))
    k, n = len(choice.places), len(choice.speeds)

    def flow(x: Array) -> tuple[Array, Array, list[Array], Array]:
        equations = small.with_inputs(x[k + n :])
        there = equations.at(t, q)
        violation = jnp.concatenate([there.position(), there.velocity(v)])
        return *small.flow(equations, t, q + frame @ x[:k], v, independent + x[k : k + n]), violation

    qdot, vdot, outputs_jacobian, violation = jax.jacfwd(flow)(jnp.zeros(k + n + len(inputs), q.dtype))
    zdot = LeastSquaresQR(frame).least_squares(qdot.at[:, :k].add(-turning))
    (A, B), (C, D) = (
        jnp.split(jnp.concatenate(blocks), [k + n], axis=1) for blocks in ([zdot, vdot], [qdot[:0], *outputs_jacobian])
    )
    directions, sizes = small.directions(at), tuple(len(rows) for rows in outputs_jacobian)
    mass = directions.T @ at.inertia.matrix() @ directions
    return Matrices(A, B, C, D, mass, directions, q, v, partition.accelerations(v), violation[:, k + n :], sizes)


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


def sizes_of(A: Float[Array, "x x"], mass: Float[Array, "k k"], choice: IndependentCoordinates) -> Float[Array, " x"]:
    """Return comparable sizes of the states: scaled by the inertia, and speeds by the rate of the fastest motion."""
    k, places, inertia = len(choice.places), [choice.places.index(name) for name in choice.speeds], jnp.diag(mass)
    size = 1 / jnp.sqrt(jnp.concatenate([inertia, inertia[jnp.asarray(places, int)]]))
    scaled = jnp.abs(A * size[None, :] / size[:, None])
    rates = jnp.sqrt(jnp.max(scaled[k:, :k], initial=0.0)), jnp.max(scaled[:k, :k]), jnp.max(scaled[k:, k:])
    fastest = jnp.max(jnp.stack(rates))
    return size.at[k:].multiply(jnp.where(fastest > 0, fastest, 1.0))


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
        mechanism = self.equations.mechanism
        for entry, by in zip(self.inputs, u, strict=True):
            mechanism = with_input(mechanism, entry, by)
        return Equations(mechanism, self.equations.redundant) if self.inputs else self.equations

    def directions(self, at: Configuration) -> Float[Array, "nv k"]:
        """Return the generalized speeds that keep the joints closed, one column for each unit independent speed."""
        rows = np.asarray(self.choice.rows, dtype=int)
        stacked = jnp.concatenate([at.jacobian[rows], NamedCoordinateCorrection(self.choice.places).rows(at)])
        return LeastSquaresQR(stacked).least_squares(jnp.eye(len(stacked), dtype=at.q.dtype)[:, len(rows) :])

    def frame(self, t: Scalar, q: Float[Array, " nq"]) -> Float[Array, "nq k"]:
        """Return the derivative of the coordinates with respect to the independent ones."""
        at = self.equations.at(t, q)
        directions = self.directions(at)
        return jax.jacfwd(lambda z: at.perturbed(directions @ z))(jnp.zeros(directions.shape[1], q.dtype))

    def flow(self, equations: Equations, t: Scalar, q: Array, v: Array, w: Array) -> tuple[Array, Array, list[Array]]:
        """Return `q̇`, the rates of the independent speeds `w`, and the outputs as vectors; `v` is a near velocity."""
        at = equations.at(t, q)
        partition = Partition(at, self.correction)
        v = _consistent(at, v, partition, w - self.correction.rates(at, v))
        vdot = partition.accelerations(v)
        lam = SaddlePoint(at).accelerations(at.force(v), at.gamma(v))[1]
        values = channel_values(equations, self.outputs, Snapshot(t, q, v, vdot, lam))
        return at.rate(v), partition.reduced_accelerations(v), [values[name].reshape(-1) for name in self.outputs]


def _is_redundant(mechanism: Mechanism, choice: IndependentCoordinates) -> bool:
    return sum(mechanism.constraint_sizes()) > mechanism.nv - len(choice.speeds)


def _consistent(at: Configuration, v: Array, partition: Partition, change: Array) -> Array:
    """Return the speeds with `C v = −Φ_t` that follow from `v` if the independent ones change by `change`."""
    return v + partition.solve(jnp.concatenate([-at.velocity(v), change]))
