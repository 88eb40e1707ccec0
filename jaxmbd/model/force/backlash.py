"""Play between two parts, with an elastic contact on each side of it."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, as_float
from jaxmbd.checks import check_fields, check_finite, check_flags
from jaxmbd.model.body.checks import check_coordinate
from jaxmbd.model.force.force import AbstractJointForce
from jaxmbd.model.states import AbstractOwnStates, AbstractSided, OwnState, sides_state, untold


class Backlash(AbstractJointForce, AbstractOwnStates, AbstractSided):
    """A spring and a damper with play along a joint coordinate x: a gear with backlash, a mass between elastic stops.

    Within the play, `|x − x₀| ≤ b / 2`, there is no force. Beyond it, at a penetration δ, the contact pushes back with
    `c δ + d δ̇`, but never pulls; with `limited`, the share of the damper is at most that of the spring, so that the
    force is continuous at the first touch. The steps of a motion end where the law changes.

    **Arguments:** `coordinate`, such as `"O.angle"`, or the length of a `Tendon`, which is the angle between the wheels
    of a gear; `stiffness` c `[N m/rad]` or `[N/m]`; `damping` d `[N m s/rad]` or `[N s/m]`; `play` b, as a whole, and
    its middle, `free_position` x₀ `[rad]` or `[m]`; `limited`, True by default.

    Source: Modelica Standard Library 4.0, `Rotational.Components.ElastoBacklash2`; Hunt, Crossley, J. Appl. Mech. 42
    (1975), on contacts whose damping jumps.

        >>> gear = pl.Backlash("gear", "O.angle", 2.0e4, 50.0, play=0.01)
    """

    name: str = eqx.field(static=True)
    coordinate: str = eqx.field(static=True)
    stiffness: Scalar = eqx.field(converter=as_float)
    damping: Scalar = eqx.field(converter=as_float, default=0.0)
    play: Scalar = eqx.field(converter=as_float, default=0.0)
    free_position: Scalar = eqx.field(converter=as_float, default=0.0)
    limited: bool = eqx.field(static=True, default=True)
    sides: Float[Array, "6"] = eqx.field(converter=as_float, default_factory=lambda: untold(6))

    def __check_init__(self) -> None:
        part = f"Backlash {self.name!r}"
        check_coordinate("Backlash", self.name, self.coordinate)
        check_fields(part, self, stiffness="N m/rad")
        check_fields(part, self, zero=True, damping="N m s/rad", play="rad")
        check_finite(part, "free_position", self.free_position)
        check_finite(part, "sides", self.sides, (6,))
        check_flags(part, limited=self.limited)

    @property
    def own_states(self) -> tuple[OwnState, ...]:
        return (sides_state(),)

    @property
    def guard_units(self) -> tuple[str, ...]:
        return ("",) * 6

    def heights(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "6"]:
        """On each side of the play: the penetration, and what it and the damper's force, as a length, add up to and
        differ by."""
        way, damped = coordinate - self.free_position, self.damping / self.stiffness * rate
        found = []
        for depth, slip in ((way - self.play / 2, damped), (-way - self.play / 2, -damped)):
            found += [depth, depth + slip, depth - slip if self.limited else jnp.ones_like(depth)]
        return jnp.stack(found)

    def effort(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Scalar:
        depths, above = self.heights(t, coordinate, rate), self.is_above(t, coordinate, rate)
        upper, lower = (self._push(*(x[k : k + 3] for x in (depths, above))) for k in (0, 3))
        return lower - upper

    def _push(self, heights: Float[Array, "3"], above: Array) -> Scalar:
        """The force of one side."""
        touches, presses, is_smaller = above
        depth, both, _ = self.stiffness * heights
        pushes = both if not self.limited else jnp.where(is_smaller, both, 2 * depth)
        return jnp.where(touches & presses, pushes, 0.0)

    def potential(self, coordinate: Scalar) -> Scalar:
        depth = jnp.maximum(jnp.abs(coordinate - self.free_position) - self.play / 2, 0.0)
        return 0.5 * self.stiffness * depth**2

    def own_rates(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "6"]:
        return jnp.zeros_like(self.sides)

    def steady(self, t: Scalar, coordinate: Scalar, rate: Scalar) -> Float[Array, "6"]:
        """None is told at rest."""
        return jnp.zeros_like(self.sides)
