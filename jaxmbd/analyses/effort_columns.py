"""The efforts of actuators at one instant as a linear function of inertial and other numbers: `τ = Y θ + τ₀`.

The columns of `Y` are the efforts that balance the generalized forces of unit numbers (`actuator_balance.py`).

Source: Khalil, Dombre, *Modeling, Identification and Control of Robots* (2002), chapter 12.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.analyses.actuator_balance import ActuatorBalance, Balanced, configuration
from jaxmbd.analyses.events.changes import ForceChanges
from jaxmbd.equations.equations import Configuration
from jaxmbd.model.force.load_friction import check_nothing_rubs
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.numbers import Number, replaced
from jaxmbd.state.output_channels import Snapshot


def effort_columns(
    mechanism: Mechanism,
    changes: ForceChanges | None,
    s: Snapshot,
    places: Sequence[int],
    numbers: Sequence[Number],
    values: Float[Array, " others"],
) -> tuple[Float[Array, "actuators numbers"], Balanced]:
    """Return `Y`, and the balance of the mechanism as it is: the efforts are minus the multipliers of the actuators.

    **Arguments:** the mechanism, whose drivers are the actuators; the `places` of the bodies whose inertial numbers are
    in `θ`; the other `numbers` there, and their `values`.
    """
    check_nothing_rubs(mechanism, "A regressor")
    at = configuration(mechanism, changes, s)
    balance = ActuatorBalance(at, jnp.ones(len(mechanism.drivers), values.dtype))
    columns = [_inertial_columns(at, s, places), number_columns(mechanism, changes, s, numbers, values)]
    return balance.actuators(jnp.concatenate(columns, axis=1)), balance.of(at, s)


def _inertial_columns(at: Configuration, s: Snapshot, places: Sequence[int]) -> Float[Array, "nv numbers"]:
    """The generalized forces that give each body its acceleration against gravity, for unit inertial numbers."""
    space, chosen = at.space, np.asarray(places, dtype=int)
    rates = at.accelerations(s.v, s.vdot) - space.to_effort(at.equations.parts.gravity)[None]
    frames = jax.tree.map(lambda x: x[chosen], at.bodies.frames)
    nothing = jnp.zeros(len(space.inertial_numbers), s.v.dtype)
    slopes = jax.vmap(jax.jacfwd(space.inertial_effort, argnums=3), (0, 0, 0, None))
    efforts = slopes(frames, at.twists(s.v)[chosen], rates[chosen], nothing)
    J = jax.jacfwd(at.twists)(s.v)[chosen]  # of each body alone: its numbers load no other one
    return jnp.einsum("bwv,bwk->vbk", J, efforts).reshape(len(s.v), -1)


def number_columns(
    mechanism: Mechanism, changes: ForceChanges | None, s: Snapshot, numbers: Sequence[Number], values: Array
) -> Float[Array, "nv others"]:
    """Return the derivatives of `M v̇ − F` by numbers of forces and armatures."""

    def loads(values: Array) -> Array:
        at = configuration(replaced(mechanism, zip(numbers, values, strict=True)), changes, s)
        return at.inertia.times(s.vdot) - at.force(s.v)

    return jax.jacfwd(loads)(values) if numbers else jnp.zeros((len(s.v), 0), s.v.dtype)
