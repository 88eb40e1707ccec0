"""Linearisation: the small motions about a state, in independent coordinates.

With independent coordinates `z` along the independent speeds `w`, and `x = (z, w)`: `ẋ = A x + B u`, `y = C x + D u`.
From `q̇ = h(q, v)` and `v = R w + b`, a change `z` moves the coordinates by `F z`, where the columns of `F` are `h` of
the columns of `R`; `v̇` follows from the reduced equations. Since `F` changes along the motion, `F ż = δq̇ − Ḟ z`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.assembly.speed_solve import check_mass
from jaxmbd.analyses.linearization.independent_coordinates import (
    IndependentCoordinates,
    choose,
    own_angular,
    turning_rates,
)
from jaxmbd.analyses.linearization.linear_system import LinearSystem
from jaxmbd.analyses.linearization.linearized_dynamics import (
    Input,
    LinearizedMatrices,
    checked_inputs,
    input_units,
    linearized,
    named,
    sizes_of,
)
from jaxmbd.analyses.output_channels import channel_units
from jaxmbd.analyses.state import State, check_state
from jaxmbd.arrays import Scalar, frozen, is_concrete
from jaxmbd.compile.cache.cached_function import cached_on_disk
from jaxmbd.equations.equations import Equations
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.integrate.formulations.newton_closure import index_of, is_about_world
from jaxmbd.model.body.body import GROUND
from jaxmbd.model.body.checks import checked_names
from jaxmbd.model.mechanism.mechanism import Mechanism

_NO_STRAIN = 1e-9  # [per unit of input]: smaller derivatives of constraints with respect to inputs count as zero
_TURN = 1e-3  # [rad]: the rotation of the axes between the two instants whose matrices are compared
_LESS = 0.1  # world axes are chosen if the matrix changes by less than this share of its change in body axes
_NONE = 1e-9  # share of the largest entry: smaller changes count as zero
_CONSTANT = 2.0**7  # units of rounding of the largest entry: smaller changes of the matrix count as errors


def linearize(
    mechanism: Mechanism,
    state: Any,
    inputs: Iterable[Input] = (),
    outputs: Iterable[str] = (),
    independent: Sequence[str] | None = None,
) -> LinearSystem:
    """Linearise the equations of motion about a state: `ẋ = A x + B u`, `y = C x + D u`.

    `x` contains small changes of the independent coordinates, as increments along the independent speeds
    (`"∫S.omega_x"` for a speed that is not the rate of a coordinate), and below them the changes of these speeds; `u`
    and `y` are also changes. If the state moves, the matrices are those of that instant (frozen coefficients): they
    describe the small motions about the trajectory approximately if they change slowly, and exactly if they are
    constant. In a steady rotation they are constant in coordinates that rotate with it; eigenvalues in different
    coordinates differ by the speed of the rotation.

    **Arguments:**

    - `state`: a `State`, or an object with one, such as an equilibrium. Its dependent coordinates and speeds are
      corrected to satisfy the constraints, so that derivatives with respect to the mechanism's numbers are taken at
      fixed independent coordinates;
    - `inputs`: a force along a coordinate, `"O.angle"`, `"slider.x"` `[N m, N]`; on a body at its centre of mass in
      world axes, `"slider.fx"`; an addition to a force along a coordinate, `"motor.effort"`, or to a spring's tension,
      `"spring.tension"`; or any other number of the mechanism on which the constraints do not depend, as a name and a
      function, `("rest", lambda m: m["spring"].free_length)`. The motion of a driver cannot be an input;
    - `outputs`: any name that `solution[name]` can read, including accelerations and reactions;
    - `independent`: as many names as there are degrees of freedom: of speeds, of coordinates of bodies and joints,
      `"O.angle"` (in absolute coordinates too), or of angular velocities about world axes, `"disc.omega_world.x"`. By
      default they are chosen by elimination with pivoting, with angular velocities about rotating axes (of a spinning
      wheel) last, since these give other eigenvalues. If such axes cannot be avoided, world axes replace them if the
      matrices are then constant, and axes that turn remain only if the matrices are constant in them (a satellite that
      spins). Axes that turn and were named are a deliberate choice, which `print` shows. If values are not known
      (inside `jit`, `vmap`), the names are required.

    **Returns:** a `LinearSystem`: matrices, `modes()`, `response(omega)`, step and impulse responses; print it.

    **Raises:** `MechanismError` for names that do not exist or do not fit, at a singular position, and if no automatic
    choice avoids axes that turn with a spinning body while the matrices change;
    `AssemblyError` for a state that does not satisfy the constraints.

        >>> pendulum = mbd.examples.get("pendulum").mechanism
        >>> hanging = mbd.equilibrium(pendulum, {"O.angle": -1.0}, stable=True)
        >>> system = mbd.linearize(pendulum, hanging, inputs=["O.angle"], outputs=["rod.x"])
        >>> print(system)
        Linearised at t = 0 s, at rest.
        States (2): rod.x, rod.vx
        Inputs (1): O.angle
        Outputs (1): rod.x
           frequency [Hz]  damping ratio  time constant [s]  moves
        0         0.49849              0                inf  rod.x 100 %

    Source: Müller, Schiehlen, *Linear Vibrations* (1985), §2; Haug, *Computer Aided Kinematics and Dynamics of
    Mechanical Systems* (1989), §7.3.
    """
    own_state = getattr(state, "state", state)
    state = own_state if isinstance(own_state, State) else state
    check_state(mechanism, state)
    check_mass(mechanism, state.q, state.t, "linearize")
    changes, units = checked_inputs(mechanism, inputs), channel_units(mechanism)
    channels = checked_names("outputs", (outputs,) if isinstance(outputs, str) else outputs, "rod.theta")
    check_known("output", channels, units)
    choice, q = choose(mechanism, state, independent)
    matrices = linearized(mechanism, state.t, q, state.v, choice, changes, channels)
    if independent is None:
        choice, matrices = _in_steady_axes(mechanism, state, choice, matrices, changes, channels)
    sizes, forces = matrices.sizes, input_units(mechanism)
    return LinearSystem(
        A=_check_strain(mechanism, matrices, tuple(map(named, changes))),
        B=matrices.B, C=matrices.C, D=matrices.D, mass=matrices.mass, directions=matrices.directions,
        mechanism=mechanism, choice=choice, t=state.t, q=matrices.q, v=matrices.v, vdot=matrices.vdot,
        coordinates=tuple(_increment(mechanism, name) for name in choice.places),
        speeds=tuple(_speed(mechanism, name) for name in choice.speeds),
        inputs=tuple(map(named, changes)),
        outputs=tuple(part for name, size in zip(channels, sizes, strict=True) for part in _components(name, size)),
        input_units=tuple(forces.get(named(change), "") for change in changes),
        output_units=tuple(units[name] for name, size in zip(channels, sizes, strict=True) for _ in range(size)),
    )  # fmt: skip


@cached_on_disk
def _advanced(
    mechanism: Mechanism, t: Scalar, q: Array, v: Array, vdot: Array, duration: Scalar
) -> tuple[Array, Array]:
    """Return coordinates and speeds after a while with constant accelerations."""
    return Equations(mechanism).at(t, q).advanced(v + 0.5 * duration * vdot, duration), v + duration * vdot


def _in_steady_axes(
    mechanism: Mechanism, state: State, choice: IndependentCoordinates, matrices: LinearizedMatrices,
    inputs: tuple[Input, ...], outputs: tuple[str, ...],
) -> tuple[IndependentCoordinates, LinearizedMatrices]:  # fmt: skip
    """Return a choice in whose axes the coefficients are constant, or whose axes do not turn, with its matrices.

    An asymmetric body that spins freely has constant coefficients in its own axes, a wheel that rolls straight ahead in
    world axes. World axes replace turning ones if the matrix of the small motions hardly changes in them. Otherwise the
    eigenvalues of the instant are not those of the motion, and the automatic choice is refused.
    """
    rates = turning_rates(mechanism, frozen(state.v))
    turning = [name for name in choice.places if name in rates]
    if not turning:
        return choice, matrices

    fixed, time = frozen((mechanism, state)), _TURN / max(rates.values())

    def change(choice: IndependentCoordinates, here: LinearizedMatrices) -> float:
        """Return the change of the matrix of the small motions after `time`, as a share of its largest entry."""
        (mechanism, state), here = fixed, frozen(here)
        q, v = _advanced(mechanism, state.t, here.q, here.v, here.vdot, jnp.asarray(time))
        later = linearized(mechanism, state.t + time, q, v, choice, inputs, outputs)
        size = sizes_of(here.A, here.mass, choice)
        before, after = (np.asarray(x.A * size[None, :] / size[:, None]) for x in (here, later))
        return float(np.abs(after - before).max() / np.abs(before).max())

    own = change(choice, matrices)
    if _LESS * own > _NONE:
        owners = {name.rpartition(".")[0] for name in turning}
        other, q = choose(
            fixed[0], fixed[1], None, [n for n in own_angular(mechanism) if n.rpartition(".")[0] in owners]
        )
        about_world = linearized(mechanism, state.t, q, state.v, other, inputs, outputs)
        if change(other, about_world) + _NONE < _LESS * own:
            return other, about_world
    if own > _NONE + _CONSTANT * float(jnp.finfo(state.q.dtype).eps):
        raise MechanismError(_turning_text(mechanism, choice, {name: rates[name] for name in turning}))
    return choice, matrices


def _turning_text(mechanism: Mechanism, choice: IndependentCoordinates, rates: dict[str, float]) -> str:
    """Return the message for an automatic choice that cannot avoid axes that turn with the bodies."""
    parts = {body.name: (body.name,) for body in mechanism.bodies}
    parts |= {joint.name: tuple(marker.body for marker in joint.markers) for joint in mechanism.tree_joints()}
    bodies = dict.fromkeys(body for name in rates for body in parts[name.rpartition(".")[0]] if body != GROUND)
    turning = ", ".join(f"{name!r} ({rate:.3g} rad/s)" for name, rate in rates.items())
    joint = "If a joint carries the spin, take joint coordinates (coordinates='joint'), which have its angle. Or name"
    return (
        f"linearize: no choice of independent coordinates avoids axes that turn with {', '.join(map(repr, bodies))}: "
        f"{turning}. The matrices change along the motion, and eigenvalues with frozen axes are not those of the "
        f"motion. {joint if mechanism.coordinates == 'absolute' else 'Name'} the coordinates, "
        f"independent={list(choice.speeds)!r}: the matrices are then those of the instant."
    )


def _speed(mechanism: Mechanism, name: str) -> str:
    """Return the name of an independent speed: a generalized speed, the rate of a coordinate, or the name itself."""
    k = index_of(mechanism, name)
    if k is not None:
        return mechanism.speed_names[k]
    return name if is_about_world(name) else f"{name}_rate"


def _increment(mechanism: Mechanism, name: str) -> str:
    """Return the name of a small change of position along a speed: its coordinate, or its integral if it has none."""
    speed, space = _speed(mechanism, name), mechanism.space
    owner, _, component = speed.partition(".")
    places = dict(zip(space.speeds, space.prescribable, strict=False))  # vx and x, ...; none for rotations in space
    if component in places and any(body.name == owner for body in mechanism.bodies):
        return f"{owner}.{places[component]}"
    return f"∫{speed}" if name == speed else name


def _components(name: str, size: int) -> list[str]:
    """Return the names of the components of an output: `P.x`, `P.y`, `P.z` up to three, else numbered ones."""
    if size == 1:
        return [name]
    return [f"{name}.{'xyz'[k]}" if size <= 3 else f"{name}[{k}]" for k in range(size)]


def _check_strain(mechanism: Mechanism, matrices: LinearizedMatrices, inputs: tuple[str, ...]) -> Array:
    """Return `A`; raise if an input changes the constraints, since its derivatives would then enter the equations."""
    is_strained = jnp.abs(frozen(matrices.strain)) > _NO_STRAIN
    if not is_concrete(is_strained):
        return eqx.error_if(matrices.A, jnp.any(is_strained), "linearize: an input changes the constraints.")
    labels = 2 * [name for name, _ in mechanism.row_labels()]
    for k, name in enumerate(inputs):
        parts = dict.fromkeys(labels[row] for row in np.flatnonzero(is_strained[:, k]))
        if parts:
            raise MechanismError(
                f"{name!r} cannot be an input: the constraints of {', '.join(map(repr, parts))} depend on it, so that "
                "it would enter with its first and second derivatives too."
            )
    return matrices.A
