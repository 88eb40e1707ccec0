"""The inertial numbers of a rigid body, in which its equations of motion are linear: mass, first moments of mass, and
the inertia about the modelled centre of mass.

With the centre of mass at `c` in the modelled frame, the first moments are `h = m c`, and the inertia about the
modelled centre is `J_O = J + m (c·c 1 − c cᵀ)`.
"""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import is_concrete
from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractBody
from jaxmbd.model.mechanism.mechanism import Mechanism
from jaxmbd.parameters.body_inertia import CentreOfMass
from jaxmbd.parameters.places import packed, unpacked
from jaxmbd.printing import format_number


def inertial_names(mechanism: Mechanism) -> tuple[str, ...]:
    """The names of the inertial numbers of a body, in their order."""
    return mechanism.space.inertial_numbers


def inertial_units(mechanism: Mechanism) -> tuple[str, ...]:
    """Their units."""
    units = {"mass": "kg", "first_moment": "kg m", "inertia": "kg m²"}
    return tuple(units[name.partition(".")[0]] for name in inertial_names(mechanism))


def inertial_values(body: AbstractBody) -> Float[Array, " numbers"]:
    """The inertial numbers of a body as it is modelled."""
    inertia = jnp.atleast_1d(body.inertia) if body.space.dim == 2 else packed(body.inertia)
    return jnp.concatenate([body.mass[None], jnp.zeros(body.space.dim, inertia.dtype), inertia])


def with_inertial_values(mechanism: Mechanism, values: Mapping[str, Float[Array, " numbers"]]) -> Mechanism:
    """The mechanism whose bodies have other inertial numbers, by name; all markers stay where they are.

    **Raises:** `MechanismError` for a mass that is not positive.
    """
    index = {body.name: k for k, body in enumerate(mechanism.bodies)}
    for name, own in values.items():
        mass, centre, inertia = central(own)
        if is_concrete(mass) and not float(mass) > 0:
            raise MechanismError(
                f"Body {name!r}: the mass {format_number(mass)} kg is not positive. Base parameters leave single "
                "numbers open: fit them with method='possible', which keeps to numbers that a body can have."
            )
        of = lambda m, k=index[name]: (m.bodies[k].mass, m.bodies[k].inertia)  # noqa: E731
        mechanism = eqx.tree_at(of, mechanism, (mass, inertia))
        mechanism = CentreOfMass(name).replaced(mechanism, centre)
    return mechanism


def central(values: Float[Array, " numbers"]) -> tuple[Array, Array, Array]:
    """Mass, centre of mass, and the inertia about it: a number in the plane, a matrix in space."""
    mass = values[0]
    if len(values) == 4:
        centre = values[1:3] / mass
        return mass, centre, values[3] - mass * centre @ centre
    centre = values[1:4] / mass
    about = unpacked(values[4:])
    return mass, centre, about - mass * (centre @ centre * jnp.eye(3, dtype=about.dtype) - jnp.outer(centre, centre))
