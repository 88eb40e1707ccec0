"""Shapes that are only looked at: boxes, cylinders, balls and meshes, each with a pose on its body and a colour.

They carry no mass; `spatial.mesh` makes a solid of a mesh.
"""

from os import PathLike
from typing import Any

import numpy as np

from jaxmbd.arrays import Number, Numbers, as_float, is_concrete
from jaxmbd.checks import as_path, check_finite, check_number
from jaxmbd.errors import MechanismError, shown
from jaxmbd.space.mesh_files import Mesh, check_mesh, read_mesh
from jaxmbd.space.shape import SIZES, Shape, Three, Triangles


def box(x: Number, y: Number, z: Number, colour: str | None = None, opacity: Number = 1.0) -> Shape:
    """A box with edges `x`, `y`, `z` [m] along the axes, centred at the origin.

    >>> sp.shapes.box(0.1, 0.02, 0.02).size
    (0.1, 0.02, 0.02)
    """
    return _simple("box", (x, y, z), colour, opacity)


def cylinder(radius: Number, length: Number, colour: str | None = None, opacity: Number = 1.0) -> Shape:
    """A cylinder along z of `radius` and `length` [m], centred at the origin.

    >>> sp.shapes.cylinder(radius=0.01, length=0.2).size
    (0.01, 0.2)
    """
    return _simple("cylinder", (radius, length), colour, opacity)


def sphere(radius: Number, colour: str | None = None, opacity: Number = 1.0) -> Shape:
    """A ball of `radius` [m], centred at the origin.

    >>> sp.shapes.sphere(0.02, colour="#e69f00").colour
    '#e69f00'
    """
    return _simple("sphere", (radius,), colour, opacity)


def capsule(radius: Number, length: Number, colour: str | None = None, opacity: Number = 1.0) -> Shape:
    """A cylinder along z of `radius` and `length` [m] with half a ball at each end, centred at the origin.

    >>> sp.shapes.capsule(radius=0.01, length=0.2).kind
    'capsule'
    """
    return _simple("capsule", (radius, length), colour, opacity)


def ellipsoid(x: Number, y: Number, z: Number, colour: str | None = None, opacity: Number = 1.0) -> Shape:
    """An ellipsoid with diameters `x`, `y`, `z` [m] along the axes, centred at the origin.

    >>> sp.shapes.ellipsoid(0.3, 0.2, 0.2).size
    (0.3, 0.2, 0.2)
    """
    return _simple("ellipsoid", (x, y, z), colour, opacity)


def _simple(kind: str, size: tuple[Number, ...], colour: str | None, opacity: Number) -> Shape:
    part = f"shapes.{kind}"
    numbers = []
    for name, value in zip(SIZES[kind], size, strict=True):
        array = as_float(value)
        check_finite(part, name, array)
        check_number(part, name, array, "m")
        numbers.append(array)
    for array in numbers:
        if not is_concrete(array):
            raise MechanismError(
                f"{part}: a size is traced. Shapes are looked at, and not computed with: give numbers."
            )
    return Shape(kind, tuple(float(x) for x in numbers), colour=colour, opacity=opacity)  # type: ignore


def mesh(
    source: str | PathLike[str] | tuple[Numbers, Numbers],
    scale: Numbers = 1.0,
    colour: str | None = None,
    opacity: Number = 1.0,
) -> Shape:
    """A mesh, in the frame of its file.

    **Arguments:** `source`, a file (STL, OBJ, PLY, OFF, GLB or glTF; it needs `pip install 'jaxmbd[meshes]'`), or
    vertices `(n, 3)` and triangles `(m, 3)`, their numbers, counter-clockwise from outside; `scale`, by which
    coordinates are multiplied to become metres (0.001 for millimetres), one number or three; `colour`, in place of the
    colours of the file. The mesh need not be closed.

    **Raises:** `MechanismError` if the file is missing, broken, too large or of another kind.

        >>> corners = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
        >>> sp.shapes.mesh((corners, [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]), scale=0.1).triangles
        Triangles(4)
    """
    x, y, z = _scale(scale)
    if isinstance(source, tuple):
        triangles = Triangles.of(_given(source), scale=(x, y, z))
    else:
        path = as_path("shapes.mesh", source)
        triangles = Triangles.of(read_mesh(path), str(path.resolve()), (x, y, z))
    return Shape("mesh", (), triangles, colour=colour, opacity=opacity)  # type: ignore


def _scale(scale: Any) -> Three:
    """One number for all axes, or three."""
    factors = as_float(scale)
    check_finite("shapes.mesh", "scale", factors, np.shape(factors) if np.shape(factors) == (3,) else ())
    if not is_concrete(factors):
        raise MechanismError("shapes.mesh: scale is traced. Shapes are looked at, and not computed with: give numbers.")
    x, y, z = np.broadcast_to(np.asarray(factors, float), 3).tolist()
    if not (x and y and z):
        raise MechanismError(f"shapes.mesh: scale must be a number that is not zero, or three, got {shown(scale)}.")
    return x, y, z


def _given(source: Any) -> Mesh:
    """The mesh of vertices and triangles."""
    if len(source) != 2:
        raise MechanismError(f"shapes.mesh: expected (vertices, triangles), got {len(source)} things.")
    vertices, faces = as_float(source[0]), source[1]
    if not is_concrete(vertices):
        raise MechanismError("shapes.mesh: its vertices are traced. Shapes are looked at: give numbers.")
    check_finite("shapes.mesh", "vertices", vertices, (np.shape(vertices)[0] if np.ndim(vertices) else 0, 3))
    return check_mesh("shapes.mesh", Mesh(np.asarray(vertices, float), np.asarray(faces)))
