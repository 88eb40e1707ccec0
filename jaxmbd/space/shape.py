"""`Shape`: what a body looks like.

It is no part of what is computed: it has no leaves for gradients, and two shapes are equal if they look the same.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Integer, UInt8

from jaxmbd.arrays import Number, Numbers, as_float, is_concrete
from jaxmbd.checks import check_finite, check_instance, checked_items
from jaxmbd.errors import MechanismError, is_one_of, shown
from jaxmbd.space import rotation as rotations
from jaxmbd.space.mesh_files import Mesh

SIZES = {
    "box": ("x", "y", "z"),
    "cylinder": ("radius", "length"),
    "sphere": ("radius",),
    "capsule": ("radius", "length"),
    "ellipsoid": ("x", "y", "z"),
    "mesh": (),
}
KINDS = tuple(SIZES)
_COLOUR = re.compile("#[0-9a-f]{6}")
_IDENTITY = (1.0, 0.0, 0.0, 0.0)

Three: TypeAlias = tuple[float, float, float]
Four: TypeAlias = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Triangles:
    """The surface of a mesh: `vertices` `(n, 3)` [m] in single precision, `faces` `(m, 3)`, numbers of corners that are
    counter-clockwise from outside, and `colours` `(m, 3)` of the faces, 0 to 255, or None.

    `file` is where they were read from, and `scale` by what their coordinates were multiplied: a model file that is
    saved in its folder, or in one above it, then names it. Neither counts where two are compared.
    """

    vertices: Float[np.ndarray, "_ 3"]
    faces: Integer[np.ndarray, "_ 3"]
    colours: UInt8[np.ndarray, "_ 3"] | None = None
    file: str = ""
    scale: Three = (1.0, 1.0, 1.0)

    @classmethod
    def of(cls, mesh: Mesh, file: str = "", scale: Three = (1.0, 1.0, 1.0)) -> "Triangles":
        """Those of a mesh, scaled along the axes; a scale that mirrors turns the faces round."""
        faces = mesh.faces if np.prod(np.sign(scale)) > 0 else mesh.faces[:, ::-1]
        with np.errstate(over="ignore"):
            vertices = (mesh.vertices * np.asarray(scale)).astype("<f4")
        arrays = vertices, faces.astype("<u4"), mesh.colours
        if not np.isfinite(arrays[0]).all():
            raise MechanismError("mesh: a vertex is too far away for numbers in single precision; is the scale right?")
        for array in arrays:
            if array is not None:
                array.flags.writeable = False
        return cls(*arrays, file, scale)

    @cached_property
    def digest(self) -> bytes:
        """What tells meshes apart."""
        parts = (self.vertices, self.faces) if self.colours is None else (self.vertices, self.faces, self.colours)
        return hashlib.sha256(b"".join(str(x.shape).encode() + x.tobytes() for x in parts)).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Triangles) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Triangles({len(self.faces)})"


@dataclass(frozen=True)
class Shape:
    """What a body looks like: a simple shape or a mesh, at a pose in the body's frame, in a colour.

    Made by the functions of `spatial.shapes`: `box`, `cylinder`, `sphere`, `capsule`, `ellipsoid`, `mesh`.

    **Arguments:** `kind`, one of those names; `size` [m], their lengths; `triangles` of a mesh; `position` [m] and
    `rotation` (Euler parameters, scalar first) in the frame of the body, whose origin is the centre of mass; `colour`,
    `"#rrggbb"`, or None for the body's; `opacity`, from 0 (exclusive) to 1.

    **Raises:** `MechanismError` for another kind, a size that is not positive, a pose that is not finite, another
    colour or opacity.

        >>> sp.shapes.box(0.1, 0.02, 0.02, colour="#0072b2").translated(x=0.05).position
        (0.05, 0.0, 0.0)
    """

    kind: str
    size: tuple[float, ...] = ()
    triangles: Triangles | None = None
    position: Three = (0.0, 0.0, 0.0)
    rotation: Four = _IDENTITY
    colour: str | None = None
    opacity: float = field(default=1.0)

    def __post_init__(self) -> None:
        if not is_one_of(self.kind, KINDS):
            raise MechanismError(f"Shape: kind must be one of {', '.join(KINDS)}, got {shown(self.kind)}.")
        part, names = f"shapes.{self.kind}", SIZES[self.kind]
        size = _numbers(part, "size", self.size, len(names))
        for name, value in zip(names, size, strict=True):
            if value <= 0:
                raise MechanismError(f"{part}: {name} must be positive [m] and finite, got {value:g}.")
        if (self.triangles is None) == (self.kind == "mesh"):
            raise MechanismError(f"{part}: a mesh has triangles, and no other shape; shapes.mesh(...) makes one.")
        if self.triangles is not None:
            check_instance(f"{part}: triangles", self.triangles, Triangles, "those of a mesh")
        turn = np.array(_numbers(part, "rotation", self.rotation, 4))
        if not turn.any():
            raise MechanismError(f"{part}: the Euler parameters of its rotation are all zero; (1, 0, 0, 0) is none.")
        opacity = _numbers(part, "opacity", (self.opacity,), 1)[0]
        if not 0 < opacity <= 1:
            raise MechanismError(f"{part}: opacity must be above 0, and at most 1, got {opacity:g}.")
        colour = self.colour.lower() if isinstance(self.colour, str) else self.colour
        if colour is not None and not (isinstance(colour, str) and _COLOUR.fullmatch(colour)):
            raise MechanismError(
                f'{part}: colour must be written as "#rrggbb", such as "#0072b2", got {shown(colour)}.'
            )
        values = {"size": size, "position": _numbers(part, "position", self.position, 3), "opacity": opacity}
        values |= {"rotation": tuple(turn.tolist()), "colour": colour}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def translated(self, x: Number = 0.0, y: Number = 0.0, z: Number = 0.0) -> "Shape":
        """The shape translated by `(x, y, z)` [m] in its body's frame."""
        return self.placed((x, y, z))

    def rotated(self, rotation: object) -> "Shape":
        """The shape rotated about the origin of its body's frame, by Euler parameters `(4,)` or a matrix `(3, 3)`."""
        return self.placed((0.0, 0.0, 0.0), rotations.as_rotation(rotation))

    def placed(self, position: Numbers, rotation: Numbers = _IDENTITY) -> "Shape":
        """The shape, with its frame at a position [m] in another one, rotated by Euler parameters `(4,)`."""
        part = f"shapes.{self.kind}"
        p, e = (np.array(_numbers(part, *given)) for given in (("position", position, 3), ("rotation", rotation, 4)))
        if not e.any():
            raise MechanismError(f"{part}: the Euler parameters of its rotation are all zero; (1, 0, 0, 0) is none.")
        e = e / np.linalg.norm(e)
        away = p + matrix(e) @ np.array(self.position)
        return replace(self, position=tuple(away.tolist()), rotation=tuple(_product(e, np.array(self.rotation))))

    def coloured(self, colour: str | None, opacity: Number | None = None) -> "Shape":
        """The shape in another colour, `"#rrggbb"` or None for the body's, and with another opacity if it is given."""
        return replace(self, colour=colour, opacity=self.opacity if opacity is None else opacity)


Shapes: TypeAlias = Shape | Iterable[Shape]


def matrix(e: np.ndarray) -> Float[np.ndarray, "3 3"]:
    """The rotation matrix of Euler parameters, scalar first, of any norm."""
    s, x, y, z = e / np.linalg.norm(e)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - s * z), 2 * (x * z + s * y)],
        [2 * (x * y + s * z), 1 - 2 * (x * x + z * z), 2 * (y * z - s * x)],
        [2 * (x * z - s * y), 2 * (y * z + s * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.array(rows)


def _product(a: np.ndarray, b: np.ndarray) -> list[float]:
    v = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return [float(a[0] * b[0] - a[1:] @ b[1:]), *v.tolist()]


def _numbers(part: str, name: str, values: Any, count: int) -> tuple[Any, ...]:
    """Known finite numbers as a tuple of floats."""
    array = as_float(list(values) if isinstance(values, tuple) else values)
    check_finite(part, name, array, (count,))
    if not is_concrete(array):
        raise MechanismError(f"{part}: {name} is traced. Shapes are looked at, and not computed with: give numbers.")
    return tuple(np.asarray(array, float).tolist())


def as_shapes(part: str, shapes: Any) -> tuple[Shape, ...]:
    """One shape, or several, as a tuple."""
    if isinstance(shapes, Shape):
        return (shapes,)
    need = "a shape, such as spatial.shapes.box(...), or several"
    if isinstance(shapes, str | bytes):
        raise MechanismError(f"{part} must be {need}, got {shown(shapes)}.")
    found = checked_items(part, shapes, need)
    for shape in found:
        check_instance(part, shape, Shape, need)
    return found
