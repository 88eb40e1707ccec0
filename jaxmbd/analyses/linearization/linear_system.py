"""Linear systems: the matrices of a linearised mechanism, its modes, and its responses to inputs."""

import warnings
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxmbd.analyses.linearization.eigen import Eigenpairs, general
from jaxmbd.analyses.linearization.hold import Discrete, checked_delay, checked_period, discretised
from jaxmbd.analyses.linearization.independent_coordinates import IndependentCoordinates, turning_rates
from jaxmbd.analyses.linearization.linearized_dynamics import reached, sizes_of
from jaxmbd.analyses.linearization.modes import Modes, modes_of_pairs, modes_of_squares
from jaxmbd.analyses.linearization.sampled_loop import over_one_period, schedule_of
from jaxmbd.analyses.linearization.sampled_system import SampledSystem, balanced_sizes
from jaxmbd.analyses.linearization.state_space import dataset_of, names_of, real_numbers
from jaxmbd.analyses.simulation.samples import sampled_controllers
from jaxmbd.arrays import Scalar, is_concrete
from jaxmbd.engine import trace_once
from jaxmbd.errors import MechanismError
from jaxmbd.model.controller.sampled import AbstractSampledController
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.scales import Scales
from jaxmbd.printing import readable

if TYPE_CHECKING:
    import xarray as xr

_AT_REST = 1e-6  # in the mechanism's units of length and time: smaller speeds and accelerations count as zero


class LinearizationWarning(UserWarning):
    """Eigenvalues or modes depend on the coordinates in which a moving state was linearised."""


class LinearSystem(eqx.Module):
    """The small motions about a state, `ẋ = A x + B u`, `y = C x + D u`; see `linearize`.

    - `x`: the changes of the `coordinates`, of the `speeds`, and of the states of parts, `own_states`; `states` are
      their names;
    - `directions (nv, coordinates)`: the generalized speeds for unit rates of the independent coordinates;
    - `mass`: the mass matrix `M̂` of the independent coordinates;
    - `t`, `q`, `v`, `vdot`: the state and its accelerations;
    - `sampling (own_states, x + inputs)`: the derivatives of the states of parts after a sample of the controllers that
      sample, by `x` and `u`; no rows if none does;
    - `is_steady`: of an automatic choice of coordinates, whether the matrices are constant along the motion; None if
      the coordinates were named.

    `print(system)` shows the time and the speeds of the state, the names of states, inputs and outputs, and the modes.
    """

    A: Float[Array, "x x"]
    B: Float[Array, "x inputs"]
    C: Float[Array, "outputs x"]
    D: Float[Array, "outputs inputs"]
    mass: Float[Array, "k k"]
    directions: Float[Array, "nv k"]
    mechanism: Mechanism
    t: Scalar
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    vdot: Float[Array, " nv"]
    choice: IndependentCoordinates
    sampling: Float[Array, "own x_and_inputs"]
    is_steady: bool | None = eqx.field(static=True)
    coordinates: tuple[str, ...] = eqx.field(static=True)
    speeds: tuple[str, ...] = eqx.field(static=True)
    own_states: tuple[str, ...] = eqx.field(static=True)
    inputs: tuple[str, ...] = eqx.field(static=True)
    outputs: tuple[str, ...] = eqx.field(static=True)
    input_units: tuple[str, ...] = eqx.field(static=True)
    output_units: tuple[str, ...] = eqx.field(static=True)

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the entries of `x`."""
        return self.coordinates + self.speeds + self.own_states

    @property
    def stiffness(self) -> Float[Array, "k k"]:
        """The stiffness matrix `K̂` of `M̂ p̈ + D̂ ṗ + K̂ p = …`, for constant states of parts."""
        return self._times_mass(0)

    @property
    def damping(self) -> Float[Array, "k k"]:
        """The matrix `D̂` of `M̂ p̈ + D̂ ṗ + K̂ p = …`: damping, gyroscopic and Coriolis forces."""
        return self._times_mass(1)

    def _times_mass(self, side: int) -> Float[Array, "k k"]:
        """Return `-M̂` times the derivatives of the accelerations by the coordinates (0) or the speeds (1), a block of
        `A`."""
        if len(self.coordinates) != len(self.speeds):
            raise MechanismError(
                "With rolling there are fewer independent speeds than coordinates, and no equations of second order: "
                "use A, eigenvalues and modes()."
            )
        return _product(self.mass, self.A, len(self.speeds), side)

    @property
    def eigenvalues(self) -> Complex[Array, " x"]:
        """The eigenvalues of `A` `[1/s]` (the poles), smallest first, with both of each conjugate pair.

        Differentiable in forward and reverse mode. If eigenvalues repeat, the derivative of their mean is correct, but
        not that of a change that splits them.
        """
        _warn(self)
        return self._eigen().values

    @property
    def remark(self) -> str:
        """Why eigenvalues and modes depend on the coordinates that were chosen; empty if they do not, or if the values
        are not known."""
        if not is_concrete(self.v):
            return ""
        rates = turning_rates(self.mechanism, jax.lax.stop_gradient(self.v))
        pairs = zip(self.coordinates, self.choice.places, strict=True)
        turning = [f"{name} ({rates[place]:.3g} rad/s)" for name, place in pairs if place in rates]
        if turning:
            return f"Along axes that turn, which the eigenvalues depend on: {', '.join(turning)}."
        if self.is_steady is False:
            return (
                "The matrices change along the motion: the eigenvalues are those of the instant in these coordinates."
            )
        return ""

    def _eigen(self) -> Eigenpairs:
        """Return the eigenvalues and eigenvectors of `A`, computed with the states scaled by `sizes_of`."""
        return general(self.A, self._sizes())

    def _sizes(self) -> Float[Array, " x"]:
        return sizes_of(*jax.lax.stop_gradient((self.A, self.mass)), self.choice)

    def modes(self, undamped: bool | None = None) -> Modes:
        """Return the modes, slowest first; of each conjugate pair the one with positive imaginary part.

        Without damping and gyroscopic forces they are those of the symmetric eigenvalue problem `K̂ φ = ω² M̂ φ`.

        **Arguments:** `undamped=True` solves the symmetric problem, whatever `D̂` is; `False` solves the general one of
        `A`. By default the values decide. Inside `jit` and `vmap`, where they are unknown, only `True` is possible (or
        use `eigenvalues`).
        """
        _warn(self)
        return self._modes(undamped)

    def _modes(self, undamped: bool | None = None) -> Modes:
        known = [np.asarray(x) for x in map(jax.lax.stop_gradient, (self.A, self.mass)) if is_concrete(x)]
        if undamped is None and known:
            undamped = self._is_undamped(*known)
        if undamped:
            return modes_of_squares(self.coordinates, self.stiffness, self.mass, self.directions)
        if not known:
            raise MechanismError(
                "How many modes there are depends on values that are not known inside jit or vmap: take "
                "system.eigenvalues, all of them, or system.modes(undamped=True)."
            )
        return modes_of_pairs(self.coordinates, self._eigen(), self.mass, self.directions)

    def _is_undamped(self, A: np.ndarray, mass: np.ndarray) -> bool:
        n, tolerance = len(mass), float(np.finfo(A.dtype).eps) ** 0.5
        if len(A) != 2 * n or not np.abs(A[:n] - np.eye(n, 2 * n, n)).max() <= tolerance:
            return False
        inverse = np.linalg.inv(np.linalg.cholesky(mass))
        K, D = (inverse @ mass @ block @ inverse.T for block in (A[n:, :n], A[n:, n:]))
        size = np.abs(K).max()
        return bool(np.abs(K - K.T).max() <= tolerance * size and np.abs(D).max() <= tolerance * size**0.5)

    def configurations_along(self, step: Any) -> Float[Array, "steps nq"]:
        """Return the coordinates after steps `(steps, nv)` from the state, such as `modes().shapes.T.real`, with the
        loops closed."""
        return reached(self.mechanism, self.t, self.q, self.choice, jnp.asarray(step, self.q.dtype))

    def response(self, omega: Any) -> Complex[Array, "omega outputs inputs"]:
        """Return the frequency response `C (iω − A)⁻¹ B + D` at angular frequencies `ω (omega,)` `[rad/s]`."""
        return _response(self.A, self.B, self.C, self.D, real_numbers("omega", omega, self.A.dtype))

    def step(self, ts: Any) -> Float[Array, "times outputs inputs"]:
        """Return the outputs at times `ts` `[s]` after a unit step of each input, `(times, outputs, inputs)`."""
        x, (_, r) = len(self.A), self.B.shape
        augmented = jnp.zeros((x + r, x + r), self.A.dtype).at[:x].set(jnp.concatenate([self.A, self.B], axis=1))
        outputs = jax.vmap(lambda t: jax.scipy.linalg.expm(t * augmented)[:x, x:])(real_numbers("ts", ts, self.A.dtype))
        return self.C[None] @ outputs + self.D[None]

    def impulse(self, ts: Any) -> Float[Array, "times outputs inputs"]:
        """Return the outputs at times `ts` `[s]` after a unit impulse of each input, without the impulse `D` at 0."""
        outputs = jax.vmap(lambda t: jax.scipy.linalg.expm(t * self.A) @ self.B)(real_numbers("ts", ts, self.A.dtype))
        return self.C[None] @ outputs

    def sampled(self, period: Any = None, delay: Any = 0.0) -> SampledSystem:
        """Return the small motions from one instant to the next, `x_{k+1} = A x_k + B u_k`, `y_k = C x_k + D u_k`.

        The inputs are constant in between (zero-order hold) and act `delay` samples later; inputs that wait are states.
        Of a mechanism with sampled controllers it is the closed loop over one of their periods, or, if these differ,
        over the time after which all instants repeat. `x_k` is then the state before the controllers compute, `y_k` is
        read after that, as in a motion. The controllers count as at rest, for longer than their first sample; limits
        that hold where they would compute open the loop. Eigenvalues are those of the motion (exactly, without an error
        of integration) if the state is an equilibrium.

        **Arguments:** `period` T `[s]`, left out if the mechanism has sampled controllers; `delay`, a number of samples
        of the period, fractions too, `1.5`: it must be known, and determines how many states there are. At a whole
        number the derivative by it is that from below.

        **Returns:** a `SampledSystem`: matrices, `eigenvalues`, `is_stable`, responses; print it. Differentiable in
        forward and reverse mode, by the period and the delay too.

        **Raises:** `MechanismError` for periods and delays that are none, for sampled controllers without a common
        period, and for a delay with sampled controllers, which have their own.

            >>> pendulum = mbd.examples.get("pendulum").mechanism
            >>> hanging = mbd.equilibrium(pendulum, {"O.angle": -1.0}, stable=True)
            >>> system = mbd.linearize(pendulum, hanging, inputs=["O.angle"]).sampled(0.02, delay=0.5)
            >>> system.states
            ('rod.x', 'rod.vx', 'O.angle[k-1]')

        Source: Åström, Wittenmark, *Computer-Controlled Systems* (1997), §2.3.
        """
        parts = sampled_controllers(self.mechanism)
        matrices, kept = Discrete(self.A, self.B, self.C, self.D), np.arange(len(self.A))
        delay, waiting = checked_delay(delay)
        if parts:
            _check_left_out(parts[0], period, waiting)
            schedule = schedule_of(parts)
            matrices, kept = over_one_period(matrices, self.sampling, self.own_states, self._sizes(), schedule)
            period = schedule.period
        elif period is None:
            raise MechanismError("sampled: give the period [s], such as 0.01: no controller of the mechanism samples.")
        else:
            period = checked_period(period)
            matrices = discretised(matrices, self._sizes(), period, delay, waiting)
        sizes = jnp.concatenate([self._sizes()[kept], jnp.ones(len(matrices.A) - len(kept), self.A.dtype)])
        own = len(self.coordinates) + len(self.speeds)
        return SampledSystem(
            *matrices, period, balanced_sizes(jax.lax.stop_gradient(matrices.A), sizes),
            coordinates=self.coordinates, speeds=self.speeds,
            own_states=tuple(self.states[k] for k in kept if k >= own),
            memory=tuple(f"{name}[k-{age}]" for age in range(waiting, 0, -1) for name in self.inputs),
            inputs=self.inputs, outputs=self.outputs, input_units=self.input_units, output_units=self.output_units,
        )  # fmt: skip

    def to_xarray(self) -> "xr.Dataset":
        """Return `A`, `B`, `C`, `D` as an `xarray.Dataset` with the names of states, inputs and outputs."""
        return dataset_of(self, t=float(self.t))

    def __repr__(self) -> str:
        return readable(self, lambda: f"{self._headline()}\n{self._modes()}", A=2, v=1, vdot=1, mass=2)

    def _headline(self) -> str:
        largest = lambda x: float(np.abs(np.asarray(x)).max(initial=0.0))  # noqa: E731
        v, vdot, scales = np.asarray(self.v), np.asarray(self.vdot), Scales(self.mechanism)
        largest_speed, largest_acceleration, time = largest(v), largest(vdot), float(scales.time)
        rates = np.asarray(scales.speeds) / time
        about = f"Linearised at t = {float(self.t):g} s, at rest."
        if max(largest(v / rates), largest(vdot / rates * time)) > _AT_REST:
            about = (
                f"Linearised at t = {float(self.t):g} s, frozen: speeds up to {largest_speed:.3g}, accelerations up to "
                f"{largest_acceleration:.3g} (m, rad, s)."
            )
        if self.remark:
            about += f"\n{self.remark}"
        return "\n".join([about, *names_of(self)])


@trace_once
def _product(mass: Array, A: Array, n: int, side: int) -> Array:
    return -mass @ A[n : 2 * n, side * n : (side + 1) * n]


@trace_once
def _response(A: Array, B: Array, C: Array, D: Array, omega: Array) -> Array:
    one = jnp.eye(len(A), dtype=A.dtype)
    gain = jax.vmap(lambda w: C @ jnp.linalg.solve(1j * w * one - A, B + 0j))(omega)
    return gain + D[None]


def _check_left_out(part: AbstractSampledController, period: Any, waiting: int) -> None:
    """Raise if a period or a delay is given beside those of a sampled controller."""
    if period is not None:
        raise MechanismError(
            f"sampled: the period is that of the sampled controllers, such as {part.name!r}: leave it out, or take the "
            "controllers out of the mechanism for one of your own."
        )
    if waiting:
        raise MechanismError(
            f"sampled: the mechanism has sampled controllers, such as {part.name!r}, which have delays of their own, "
            "in samples: give the delay there."
        )


def _warn(system: LinearSystem) -> None:
    if system.remark and system.is_steady is not True:
        warnings.warn(f"linearize: {system.remark}", LinearizationWarning, stacklevel=3)
