"""Linearisation: the small motions about a state, in independent coordinates.

A position near the state is reached by independent coordinates `z` along the independent speeds `w`, and `x = (z, w)`:
`ẋ = A x + B u`, `y = C x + D u`. With `q̇ = h(q, v)`, `v = R w + b` and `v̇` from the reduced equations, a change `z`
moves the coordinates by `F z`, where `F` is `h` along `R`. As `F` turns with the motion, `F ż = δq̇ − Ḟ z`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxmbd.analyses.checks import check_state
from jaxmbd.analyses.linearization.axes import in_steady_axes
from jaxmbd.analyses.linearization.independent_coordinates import choose
from jaxmbd.analyses.linearization.inputs import Input, checked_inputs, input_units, named
from jaxmbd.analyses.linearization.linear_system import LinearSystem
from jaxmbd.analyses.linearization.linearized_dynamics import Matrices, linearized
from jaxmbd.analyses.output_channels import channel_units
from jaxmbd.analyses.state import State
from jaxmbd.arrays import is_concrete
from jaxmbd.errors import MechanismError, unknown
from jaxmbd.integrate.formulations.newton_closure import index_of, is_about_world
from jaxmbd.model.body.checks import checked_names
from jaxmbd.model.mechanism.mechanism import Mechanism

_HELD = 1e-9  # [per unit of input]: a constraint that an input changes by less does not depend on it


def linearize(
    mechanism: Mechanism,
    state: Any,
    inputs: Iterable[Input] = (),
    outputs: Iterable[str] = (),
    independent: Sequence[str] | None = None,
) -> LinearSystem:
    """Linearise the equations of motion about a state: `ẋ = A x + B u`, `y = C x + D u`.

    `x` holds small changes of the independent coordinates, as increments along the independent speeds (`"∫S.omega_x"`
    along a speed that is no coordinate's rate), and below them those of these speeds; `u` and `y` are changes
    too. About a state that moves the matrices are those of that instant (frozen): they govern the small motions about
    the trajectory as long as they hardly change, and exactly where they do not change at all. For a steady rotation
    that is so in coordinates that turn with it; its eigenvalues differ between coordinates by the speed of turning.

    **Arguments:**

    - `state`: a `State`, or what has one (an equilibrium); its time, position and speeds are put back onto the
      constraints by the dependent coordinates, so that derivatives by the mechanism's numbers are taken at the
      independent coordinates of the state;
    - `inputs`: a force along a coordinate, `"O.angle"`, `"slider.x"` `[N m, N]`; on a body at its centre of mass, world
      axes, `"slider.fx"`; added to a force along a coordinate, `"motor.effort"`, or to a spring's tension,
      `"spring.tension"`; or any other number of the mechanism that its constraints do not depend on, a name and a
      function, `("rest", lambda m: m["spring"].free_length)`. What a driver prescribes cannot be an input;
    - `outputs`: any name that `solution[name]` knows, accelerations and reactions included;
    - `independent`: names of speeds, or of coordinates of bodies and joints, `"O.angle"`, in absolute coordinates too,
      or of angular velocities about world axes, `"disc.omega_world.x"`; as many as there are degrees of freedom. Chosen
      by elimination with pivoting unless given, angular velocities about axes that turn (of a spinning wheel) last,
      since eigenvalues seen from those are others. Where they cannot be avoided, angular velocities about world axes
      take their place if the matrices then change less along the motion; `print` names the ones that are taken. Where
      values are not known (inside `jit`, `vmap`) they have to be given.

    **Returns:** a `LinearSystem`: matrices, `modes()`, `response(omega)`, step and impulse responses; `print` it.

    **Raises:** `MechanismError` for names that do not exist or do not fit, and at a singular position;
    `AssemblyError` for a state that does not satisfy the constraints.

        >>> system = linearize(mechanism, state, inputs=["motor.effort"], outputs=["rod.theta"])
        >>> print(system)

    Source: Müller, Schiehlen, *Linear Vibrations* (1985), §2; Haug, *Computer Aided Kinematics and Dynamics of
    Mechanical Systems* (1989), §7.3.
    """
    inner = getattr(state, "state", state)
    state = inner if isinstance(inner, State) else state
    check_state(mechanism, state)
    changes, shown = checked_inputs(mechanism, inputs), _checked_outputs(mechanism, outputs)
    choice, q = choose(mechanism, state, independent)
    if independent is None:
        choice = in_steady_axes(mechanism, state, choice)
    found = linearized(mechanism, state.t, q, state.v, choice, changes, shown)
    sizes, forces, units = found.sizes, input_units(mechanism), channel_units(mechanism)
    return LinearSystem(
        A=_check_strain(mechanism, found, tuple(map(named, changes))),
        B=found.B, C=found.C, D=found.D, mass=found.mass, directions=found.directions,
        mechanism=mechanism, choice=choice, t=state.t, q=found.q, v=found.v, vdot=found.vdot,
        coordinates=tuple(_increment(mechanism, name) for name in choice.places),
        speeds=tuple(_speed(mechanism, name) for name in choice.speeds),
        inputs=tuple(map(named, changes)),
        outputs=tuple(part for name, size in zip(shown, sizes, strict=True) for part in _components(name, size)),
        input_units=tuple(forces.get(named(change), "") for change in changes),
        output_units=tuple(units[name] for name, size in zip(shown, sizes, strict=True) for _ in range(size)),
    )  # fmt: skip


def _speed(mechanism: Mechanism, name: str) -> str:
    """The name of an independent speed: one of the mechanism's, the rate of a coordinate, or the name itself."""
    k = index_of(mechanism, name)
    if k is not None:
        return mechanism.speed_names[k]
    return name if is_about_world(name) else f"{name}_rate"


def _increment(mechanism: Mechanism, name: str) -> str:
    """The name of a small change of position along a speed: the coordinate's, or the integral of one that has none."""
    speed, space = _speed(mechanism, name), mechanism.space
    owner, _, component = speed.partition(".")
    places = dict(zip(space.speeds, space.prescribable, strict=False))  # vx and x, ...; of turns in space none
    if component in places and any(body.name == owner for body in mechanism.bodies):
        return f"{owner}.{places[component]}"
    return f"∫{speed}" if name == speed else name


def _checked_outputs(mechanism: Mechanism, outputs: Iterable[str]) -> tuple[str, ...]:
    names = checked_names("outputs", (outputs,) if isinstance(outputs, str) else outputs, "rod.theta")
    known = channel_units(mechanism)
    for name in names:
        if name not in known:
            raise unknown("output", name, known)
    return names


def _components(name: str, size: int) -> list[str]:
    """The names of the components of an output: `P.x`, `P.y`, `P.z` of a point, numbers of anything longer."""
    if size == 1:
        return [name]
    return [f"{name}.{'xyz'[k]}" if size <= 3 else f"{name}[{k}]" for k in range(size)]


def _check_strain(mechanism: Mechanism, found: Matrices, inputs: tuple[str, ...]) -> Array:
    """`A`; raise if an input changes the constraints: it would enter with its rate and acceleration too."""
    strained = jnp.abs(found.strain) > _HELD
    if not is_concrete(strained):
        return eqx.error_if(found.A, jnp.any(strained), "linearize: an input changes the constraints.")
    labels = 2 * [name for name, _ in mechanism.row_labels()]
    for k, name in enumerate(inputs):
        parts = dict.fromkeys(labels[row] for row in np.flatnonzero(strained[:, k]))
        if parts:
            raise MechanismError(
                f"{name!r} cannot be an input: the constraints of {', '.join(map(repr, parts))} depend on it, so that "
                "it would enter with its first and second derivatives too."
            )
    return found.A
