"""Placements of frames as NumPy arrays, as files of other programs give them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.errors import MechanismError
from jaxmbd.model.body.body import AbstractMarker, AbstractMovingMarker
from jaxmbd.model.body.spatial import Body, Ground, Marker


@dataclass(frozen=True)
class Placement:
    """A frame B relative to a frame A: `position` p_AB_A [m] and `rotation` R_AB."""

    position: np.ndarray = field(default_factory=lambda: np.zeros(3))
    rotation: Rotation = field(default_factory=Rotation.identity)

    def __matmul__(self, other: "Placement") -> "Placement":
        """`X_AC = X_AB X_BC`."""
        return Placement(self.position + self.rotation.apply(other.position), self.rotation * other.rotation)

    def inverse(self) -> "Placement":
        """`X_BA`."""
        back = self.rotation.inv()
        return Placement(-back.apply(self.position), back)

    @property
    def euler_parameters(self) -> np.ndarray:
        """Of `rotation`, scalar first."""
        return self.rotation.as_quat(scalar_first=True)

    @property
    def pose(self) -> np.ndarray:
        """Position and Euler parameters, `(7,)`."""
        return np.concatenate([self.position, self.euler_parameters])


def from_quaternion(position: Sequence[float] | np.ndarray, quaternion: Sequence[float] | np.ndarray) -> Placement:
    """The placement with a quaternion, scalar first."""
    return Placement(np.asarray(position, float), Rotation.from_quat(np.asarray(quaternion, float), scalar_first=True))


def placement_of(marker: AbstractMarker) -> Placement:
    """The placement of a marker on its body; raise for one that moves, since no file format has such."""
    if isinstance(marker, AbstractMovingMarker):
        raise MechanismError(f"A marker on {marker.body!r} moves on its body, and the file can hold fixed ones alone.")
    frame = marker.local
    return Placement(np.array(frame.position, float), Rotation.from_matrix(np.array(frame.rotation, float)))


def along_z(axis: np.ndarray) -> Rotation:
    """The smallest rotation that turns the z axis to `axis`."""
    unit = np.asarray(axis, float) / np.linalg.norm(axis)
    across = np.array([-unit[1], unit[0], 0.0])
    sine = np.linalg.norm(across)
    if sine < np.finfo(float).eps:
        return Rotation.identity() if unit[2] > 0 else Rotation.from_rotvec([np.pi, 0.0, 0.0])
    return Rotation.from_rotvec(across / sine * np.arctan2(sine, unit[2]))


@dataclass(frozen=True)
class Owner:
    """A body or the ground, with the frame in which a file places what is on it.

    `frame`: relative to the body's own frame, whose origin is the centre of mass; `start`: in the world, where the file
    says.
    """

    body: Body | Ground
    frame: Placement = field(default_factory=Placement)
    start: Placement = field(default_factory=Placement)

    def at(self, placement: Placement | None = None) -> Marker:
        """A marker at a placement relative to the file's frame."""
        own = self.frame if placement is None else self.frame @ placement
        return Marker(self.body.name, own.position, own.euler_parameters)
