"""Flexible bodies: bodies whose frames depend on coordinates of their own, beside the pose of their floating frame.

A flexible body has coordinates `η (k,)`, and frames that are placed in its floating frame by functions `X(η)`: its
*sites*, to which joints, forces and sensors attach, and the centres of mass of its *pieces*, which carry its mass. A
marker at a site moves as one on a rigid body does, so that laws see frames alone. All inertia forces follow from the
motion of the pieces: nothing of the coupling between the floating frame and `η` is left out.

Source: Shabana, *Dynamics of Multibody Systems* (2013), §5.4 (floating frames), §5.5 (lumped masses).
"""

import abc
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Scalar, combined, constant
from jaxmbd.model.body.body import GROUND, AbstractBody
from jaxmbd.space.space import AbstractFrame


class AbstractFlexibleBody(AbstractBody):
    """A body with coordinates `η (k,)` of its own; `eta` are the values at which searches for positions start.

    Its `pose` is that of the floating frame, which has no inertia itself. `mass` [kg] is that of the whole body, for
    those who read it: what moves is the `pieces`. `docs/how-to/add-a-flexible-body.md` has an example.
    """

    eta: eqx.AbstractVar[Array]

    @property
    def inertia(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Zero, that of the floating frame."""
        return constant(np.zeros((3, 3) if self.space.dim == 3 else (), self.pose.dtype))

    @property
    def lacks_inertia(self) -> bool:
        """False: the pieces must give every motion some inertia."""
        return False

    @property
    @abc.abstractmethod
    def size(self) -> Scalar:
        """The largest distance [m] of its places, by which the mechanism is measured."""

    @property
    @abc.abstractmethod
    def own_coordinates(self) -> dict[str, str]:
        """The names of `η` with their units: `"beam.deflection"` of the body `"beam"` is `"deflection"` here."""

    @property
    @abc.abstractmethod
    def site_names(self) -> tuple[str, ...]:
        """The names of the sites. A marker refers to `"body.site"`."""

    @abc.abstractmethod
    def frames(self, eta: Float[Array, " k"]) -> AbstractFrame:
        """The frames of the sites, then those of the pieces, in the floating frame, stacked (by `jax.vmap`).

        They must have three derivatives.
        """

    @property
    @abc.abstractmethod
    def piece_count(self) -> int:
        """The number of pieces."""

    @abc.abstractmethod
    def pieces(self) -> tuple[Float[Array, " pieces"], Array]:
        """The masses [kg] of the pieces, and their inertia about their centres of mass as a rigid body has it."""

    @abc.abstractmethod
    def own_inertia(self) -> Float[Array, "k k"]:
        """A constant mass matrix of `η̇`, beside what the pieces add: of parts that move with `η` alone."""

    @abc.abstractmethod
    def strain_energy(self, eta: Float[Array, " k"]) -> Scalar:
        """The strain energy [J]; minus its gradient loads `η`."""

    @abc.abstractmethod
    def damping_loads(self, eta: Float[Array, " k"], rates: Float[Array, " k"]) -> Float[Array, " k"]:
        """The generalized forces on `η` that depend on its rates."""


def flexible(bodies: Sequence[AbstractBody]) -> dict[int, AbstractFlexibleBody]:
    """The flexible ones among some bodies, by their place."""
    return {i: body for i, body in enumerate(bodies) if isinstance(body, AbstractFlexibleBody)}


def own_coordinates(bodies: Sequence[AbstractBody]) -> dict[str, str]:
    """The own coordinates of all bodies in the order in which they stand in `q`, with their units."""
    return {f"{b.name}.{name}": unit for b in flexible(bodies).values() for name, unit in b.own_coordinates.items()}


def frames_of(bodies: Sequence[AbstractBody]) -> dict[int, range]:
    """The frames of the sites, then of the pieces of each flexible body, by its place; they follow those of the
    bodies."""
    found, count = {}, len(bodies)
    for i, body in flexible(bodies).items():
        found[i] = range(count, count + len(body.site_names) + body.piece_count)
        count = found[i].stop
    return found


def frame_index(bodies: Sequence[AbstractBody]) -> dict[str, int]:
    """Where the frames are that markers refer to by name: those of the bodies, the sites, and last the ground."""
    index, frames = {body.name: i for i, body in enumerate(bodies)}, frames_of(bodies)
    for i, body in flexible(bodies).items():
        index |= {f"{body.name}.{site}": place for site, place in zip(body.site_names, frames[i], strict=False)}
    return index | {GROUND: max((own.stop for own in frames.values()), default=len(bodies))}


def owner_of(frame: str) -> str:
    """The body that a marker is attached to, from the name of its body or site."""
    return frame.partition(".")[0]


def massive_frames(bodies: Sequence[AbstractBody]) -> tuple[int, ...]:
    """The frames that `masses_of` lists, by their place among all."""
    frames, own = frames_of(bodies), flexible(bodies)
    pieces = (place for i, body in own.items() for place in frames[i][len(body.site_names) :])
    return (*range(len(bodies)), *pieces)


def masses_of(bodies: Sequence[AbstractBody]) -> tuple[Float[Array, " massive"], Array]:
    """The masses and inertia of the bodies, which flexible ones lack themselves, then those of all pieces."""
    pieces = {i: body.pieces() for i, body in flexible(bodies).items()}
    own = [
        [np.zeros(x.shape[1:], x.dtype) for x in pieces[i]] if i in pieces else [body.mass, body.inertia]
        for i, body in enumerate(bodies)
    ]
    masses, tensors = (combined("stack", list(values)) for values in zip(*own, strict=True))
    if not pieces:
        return masses, tensors
    of_pieces = zip(*pieces.values(), strict=True)
    masses, tensors = (
        combined("concatenate", [first, *more]) for first, more in zip((masses, tensors), of_pieces, strict=True)
    )
    return masses, tensors
