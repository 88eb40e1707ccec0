"""Linearisation: the small motions about a state, in independent coordinates.

With independent coordinates `p` along the independent speeds `w`, states of parts `z`, and `x = (p, w, z)`: `ẋ = A x +
B u`, `y = C x + D u`. From `q̇ = h(q, v)` and `v = R w + b`, a change `p` moves the coordinates by `F p`, where the
columns of `F` are `h` of the columns of `R`; `v̇` follows from the reduced equations. Since `F` changes along the
motion, `F ṗ = δq̇ − Ḟ p`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.assembly.speed_solve import check_mass
from jaxmbd.analyses.linearization.independent_coordinates import choose
from jaxmbd.analyses.linearization.linear_system import LinearSystem
from jaxmbd.analyses.linearization.linearized_dynamics import (
    Input,
    LinearizedMatrices,
    checked_inputs,
    linearized,
    named,
    units_of,
)
from jaxmbd.analyses.linearization.steady_axes import with_constant_matrices
from jaxmbd.arrays import frozen, is_concrete
from jaxmbd.checks import checked_names
from jaxmbd.errors import MechanismError, check_known
from jaxmbd.integrate.formulations.newton_closure import index_of, is_about_world
from jaxmbd.model.force.load_friction import check_nothing_rubs
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.model.mechanism.quantities import channel_units
from jaxmbd.state.result_codes import Sentence, raise_where
from jaxmbd.state.state import State, check_state

# Per unit of input, in the units of the rows: smaller derivatives of constraints with respect to inputs count as zero.
_NO_STRAIN = 1e-9


def linearize(
    mechanism: Mechanism,
    state: Any,
    inputs: Iterable[Input] = (),
    outputs: Iterable[str] = (),
    independent: Sequence[str] | None = None,
) -> LinearSystem:
    """Linearise the equations of motion about a state: `ẋ = A x + B u`, `y = C x + D u`.

    `x` contains small changes of the independent coordinates, as increments along the independent speeds
    (`"∫S.omega_x"` for a speed that is not the rate of a coordinate), below them the changes of these speeds, then
    those of the states of parts; `u` and `y` are also changes. If the state moves, the matrices are those of that
    instant (frozen coefficients): they describe the small motions about the trajectory approximately if they change
    slowly, and exactly if they are constant. In a steady rotation they are constant in coordinates that rotate with it;
    eigenvalues in different coordinates differ by the speed of the rotation.

    **Arguments:**

    - `state`: a `State`, or an object with one, such as an equilibrium. Its dependent coordinates and speeds are
      corrected to satisfy the constraints, so that derivatives with respect to the mechanism's numbers are taken at
      fixed independent coordinates;
    - `inputs`: by their names (`jaxmbd.inputs`), such as an effort along a coordinate, `"O.angle"`, `"slider.x"`
      `[N m, N]`, a force on a body, `"slider.fx"`, an addition to the effort of a motor, `"motor.effort"`, or to a
      tension, `"spring.tension"`; or any number of the mechanism on which the constraints do not depend, by its name or
      a pattern, `"spring.free_length"`, or under a name of your choice by its name or a function,
      `("rest", lambda m: m["spring"].free_length)`. The motion of a driver cannot be an input;
    - `outputs`: any name that `solution[name]` can read, including accelerations and reactions;
    - `independent`: as many names as there are degrees of freedom: of speeds, of coordinates of bodies and joints,
      `"O.angle"` (in absolute coordinates too), or of angular velocities about world axes, `"disc.omega_world.x"`. By
      default they are chosen by elimination with pivoting, with angular velocities about rotating axes (of a spinning
      wheel) last, since these give other eigenvalues. If such axes cannot be avoided, world axes replace them if the
      matrices are then constant, and axes that turn remain only if the matrices are constant in those alone (a
      satellite that spins). If the state moves and the matrices change along the motion, coordinates of joints are
      taken in absolute coordinates too, in which those of a steady rotation are constant. Where they change in any
      case, and where axes that turn were named, `eigenvalues` and `modes()` warn, and `system.remark` says why. If
      values are not known (inside `jit`, `vmap`), the names are required.

    **Returns:** a `LinearSystem`: matrices, `modes()`, `response(omega)`, step and impulse responses; print it. Its
    `sampled(period)` goes from one sample to the next.

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
    check_nothing_rubs(mechanism, "linearize")
    changes, units = checked_inputs(mechanism, inputs), channel_units(mechanism)
    channels = checked_names("outputs", (outputs,) if isinstance(outputs, str) else outputs, "rod.theta")
    check_known("output", channels, units)
    choice, q = choose(mechanism, state, independent)
    matrices = linearized(mechanism, state.t, q, state.v, state.z, choice, changes, channels)
    is_steady = None
    if independent is None:
        choice, matrices, is_steady = with_constant_matrices(mechanism, state, choice, matrices, changes, channels)
    sizes = matrices.sizes
    return LinearSystem(
        A=_check_strain(mechanism, matrices, tuple(map(named, changes))),
        B=matrices.B, C=matrices.C, D=matrices.D, mass=matrices.mass, directions=matrices.directions,
        mechanism=mechanism, choice=choice, sampling=matrices.sampling, is_steady=is_steady,
        t=state.t, q=matrices.q, v=matrices.v, vdot=matrices.vdot,
        coordinates=tuple(_increment(mechanism, name) for name in choice.places),
        speeds=tuple(_speed(mechanism, name) for name in choice.speeds),
        own_states=tuple(state.layout.z.names[k] for k in state.layout.z.moving),
        inputs=tuple(map(named, changes)),
        outputs=tuple(part for name, size in zip(channels, sizes, strict=True) for part in _components(name, size)),
        input_units=units_of(mechanism, changes),
        output_units=tuple(units[name] for name, size in zip(channels, sizes, strict=True) for _ in range(size)),
    )  # fmt: skip


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
    strain = frozen(matrices.strain)
    if not is_concrete(strain):
        is_strained = jnp.any(jnp.abs(strain) > _NO_STRAIN)
        return raise_where(matrices.A, is_strained, Sentence("linearize: an input changes the constraints."))
    is_strained = np.abs(np.asarray(strain)) > _NO_STRAIN
    labels = 2 * [name for name, _ in mechanism.row_labels()]
    for k, name in enumerate(inputs):
        parts = dict.fromkeys(labels[row] for row in np.flatnonzero(is_strained[:, k]))
        if parts:
            raise MechanismError(
                f"{name!r} cannot be an input: the constraints of {', '.join(map(repr, parts))} depend on it, so that "
                "it would enter with its first and second derivatives too."
            )
    return matrices.A
