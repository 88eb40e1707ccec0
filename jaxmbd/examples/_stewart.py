"""A hexapod (Stewart platform), driven by its six legs."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd import spatial as sp
from jaxmbd.arrays import Scalar
from jaxmbd.examples._example import Example, listed
from jaxmbd.space import rotation as rot

_LEG = 0.45  # [m], the length of a cylinder, and of a piston
# Angles [°] of the lower and the upper end of each leg about the vertical.
_LEGS = ((-14, -45), (14, 45), (106, 75), (134, 165), (226, 195), (254, 285))


def platform_path(t: Scalar) -> tuple[Float[Array, "3"], Float[Array, "4"]]:
    """Return the prescribed pose of the platform: the position of its centre [m] and its rotation (a quaternion)."""
    w = jnp.pi * t
    place = jnp.stack([0.10 * jnp.cos(w), 0.10 * jnp.sin(w), 0.70 + 0.06 * jnp.sin(2 * w)])
    return place, rot.from_vector(jnp.stack([0.25 * jnp.sin(w), 0.25 * jnp.cos(w), jnp.zeros_like(w)]))


class Stretch(eqx.Module):
    """The extension [m] of a leg from `base` to the platform's point `joint` [m] along the platform's path."""

    base: Float[Array, "3"]
    joint: Float[Array, "3"]

    def __call__(self, t: Scalar) -> Scalar:
        place, rotation = platform_path(t)
        return jnp.linalg.norm(place + rot.rotate(rotation, self.joint) - self.base) - _LEG


@listed()
def stewart_platform() -> Example:
    """A hexapod whose six legs move a platform along a tilting circle: all is prescribed, forces are sought.

    Each leg is a cylinder on a universal joint and a piston under a ball joint. Its driver prescribes its extension,
    which follows from the pose of the platform (`platform_path`).
    """
    disc = sp.disc(2700, 0.35, 0.03).translated(z=0.7)
    platform = sp.Body("platform", disc.mass, disc.inertia, disc.centre)
    bodies, joints, drivers = [platform], [], []
    for k, angles in enumerate(np.radians(_LEGS)):
        (base, joint) = (r * np.array([np.cos(a), np.sin(a), 0.0]) for r, a in zip((0.60, 0.35), angles, strict=True))
        top = joint + np.array([0.0, 0.0, 0.7])
        u = (top - base) / np.linalg.norm(top - base)
        cylinder = _tube(f"cylinder {k}", base, base + _LEG * u, 0.02)
        piston = _tube(f"piston {k}", top - _LEG * u, top, 0.01)
        bodies += [cylinder, piston]
        joints += [
            sp.Universal(f"U{k}", sp.ground.at_world(*base, axis=u), cylinder.at_world(*base, axis=u)),
            sp.Prismatic(f"S{k}", cylinder.at_world(*base, axis=u), piston.at_world(*(top - _LEG * u), axis=u)),
            sp.Spherical(f"B{k}", piston.at_world(*top), platform.at_world(*top)),
        ]
        drivers.append(sp.Driver(f"leg {k}", f"S{k}.displacement", Stretch(jnp.asarray(base), jnp.asarray(joint))))
    mechanism = sp.Mechanism(bodies, joints, [sp.Gravity(9.81)], drivers)
    outputs = ("platform.x", "platform.y", "platform.z", *(f"{driver.name}.effort" for driver in drivers))
    return Example(mechanism, duration=2.0, outputs=outputs)


def _tube(name: str, start: np.ndarray, stop: np.ndarray, radius: float) -> sp.Body:
    """Return a round steel rod between two points [m], with body axes parallel to the world's."""
    solid = sp.cylinder(7800, radius, float(np.linalg.norm(stop - start))).rotated(rot.along(stop - start))
    return sp.Body(name, solid.mass, solid.inertia, (start + stop) / 2)
