"""`mesh`: the solid that a closed mesh encloses, whose mass properties are sums over its triangles.

With a reference point `r` inside, each triangle `(a, b, c)` spans a tetrahedron of the signed volume `d / 6`,
`d = a · (b × c)`, positions relative to `r`; with `s = a + b + c` its first moment is `d / 24 s`, and its second
moment `d / 120 (a aᵀ + b bᵀ + c cᵀ + s sᵀ)`. What lies outside the mesh cancels (B. Mirtich, Fast and Accurate
Computation of Polyhedral Mass Properties, 1996, computes the same integrals over faces).
"""

from os import PathLike
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmbd.arrays import Number, Numbers, Scalar, as_float, at_rows, constant, is_concrete
from jaxmbd.checks import as_path, check_finite, check_number
from jaxmbd.engine import trace_once
from jaxmbd.errors import MechanismError
from jaxmbd.space.mesh_files import Mesh, check_mesh, distinct, read_mesh
from jaxmbd.space.shape import Shape, Triangles
from jaxmbd.space.solid import Solid

_FLAT = 1e-9  # of the volume of a cube with the mesh's area, below which a mesh encloses nothing


def mesh(density: Number, source: str | PathLike[str] | tuple[Numbers, Numbers], scale: Number = 1.0) -> Solid:
    """The solid that a closed mesh encloses, in the frame of its file; `density` [kg/m³].

    Mass, centre of mass and inertia are exact for the mesh, and differentiable by density, scale and vertices. A body
    of this solid is shown as the mesh.

    **Arguments:** `source`, a file (STL, OBJ, PLY, OFF, GLB or glTF; it needs `pip install 'jaxmbd[meshes]'`), or
    vertices `(n, 3)` [m] and triangles `(m, 3)`, their numbers, counter-clockwise from outside; `scale`, by which
    coordinates are multiplied to become metres: 0.001 for a file in millimetres.

    **Raises:** `MechanismError` if the file is missing, broken or too large, or if the mesh is not closed, has faces
    that point inwards, or encloses no volume. Vertices that are traced are not checked, except for which of them the
    triangles connect.

        >>> corners = 0.1 * np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
        >>> solid = sp.mesh(7800, (corners, [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]))
        >>> print(f"{solid.mass:.3f} kg, centre {solid.centre.round(4)} m")
        1.300 kg, centre [0.025 0.025 0.025] m
    """
    density, scale = as_float(density), as_float(scale)
    for name, value, unit in (("density", density, "kg/m³"), ("scale", scale, "1")):
        check_finite("mesh", name, value)
        check_number("mesh", name, value, unit)
    part, file, vertices, faces = _parts_of(source)
    known = np.asarray(vertices.vertices, float) if isinstance(vertices, Mesh) else None
    array = as_float(vertices.vertices) if isinstance(vertices, Mesh) else vertices
    faces = _one_corner_each(known, faces)
    _check_closed(part, known, faces)
    corners = at_rows(array, faces) if known is None else constant(np.asarray(array)[faces])
    shape = _look(vertices, file, scale) if isinstance(vertices, Mesh) else ()
    return Solid(*_integrals(density, scale, corners), shape)


def _parts_of(source: Any) -> tuple[str, str, Any, np.ndarray]:
    """Who is named in errors, the file, the mesh (or vertices that are traced), and the triangles."""
    if not isinstance(source, tuple):
        path = as_path("mesh", source)
        read = read_mesh(path)
        return f"mesh {str(path)!r}", str(path.resolve()), read, read.faces
    if len(source) != 2:
        raise MechanismError(f"mesh: expected a file or (vertices, triangles), got {len(source)} things.")
    given, faces = as_float(source[0]), np.asarray(source[1])
    check_finite("mesh", "vertices", given, (np.shape(given)[0] if np.ndim(given) else 0, 3))
    if is_concrete(given):
        read = check_mesh("mesh", Mesh(np.asarray(given, float), faces))
        return "mesh", "", read, faces
    check_mesh("mesh", Mesh(np.zeros(np.shape(given)), faces))
    return "mesh", "", given, faces


def _look(read: Mesh, file: str, scale: Any) -> tuple[Shape, ...]:
    """What the solid looks like; nothing where its size is not known."""
    if not is_concrete(scale):
        return ()
    factor = float(scale)
    return (Shape("mesh", (), Triangles.of(read, file, (factor, factor, factor))),)


# --- closed meshes --------------------------------------------------------------------------------------


def _one_corner_each(vertices: np.ndarray | None, faces: np.ndarray) -> np.ndarray:
    """The triangles, with one number for vertices at one place: STL has three of its own for each triangle."""
    if vertices is None:
        return faces
    first, number = distinct(vertices)
    faces = first[number][faces]
    flat = (faces[:, 0] == faces[:, 1]) | (faces[:, 1] == faces[:, 2]) | (faces[:, 2] == faces[:, 0])
    return faces[~flat]


def _check_closed(part: str, vertices: np.ndarray | None, faces: np.ndarray) -> None:
    """Raise unless each edge is passed as often in one direction as in the other: the surface is then closed, and all
    its faces point to one side. With known vertices, that must be the outer one."""
    starts, stops = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    low, high = np.minimum(starts, stops).astype(np.int64), np.maximum(starts, stops)
    count = int(faces.max(initial=0)) + 1
    edges, inverse = np.unique(low * count + high, return_inverse=True)
    passes = np.bincount(inverse)
    sense = np.bincount(inverse, weights=np.where(starts < stops, 1.0, -1.0))
    open_edges = np.flatnonzero(passes % 2)
    if len(open_edges):
        raise MechanismError(
            f"{part}: it is not closed: {len(open_edges)} edges belong to an odd number of triangles, the first "
            f"{_edge(edges[open_edges[0]], count, vertices)}. A solid needs a watertight mesh; close its holes "
            "(trimesh.repair.fill_holes, or 'make manifold' in a program for meshes), or look at it only: "
            "shapes.mesh(...)."
        )
    wrong = np.flatnonzero(sense)
    if len(wrong):
        raise MechanismError(
            f"{part}: faces are inverted: at {len(wrong)} edges two neighbours point to opposite sides, the first "
            f"{_edge(edges[wrong[0]], count, vertices)}. All triangles must be counter-clockwise seen from outside "
            "(trimesh.repair.fix_winding turns them)."
        )
    if vertices is not None:
        _check_volumes(part, vertices, faces)


def _edge(edge: Any, count: int, vertices: np.ndarray | None) -> str:
    ends = divmod(int(edge), count)
    if vertices is None:
        return f"from vertex {ends[0]} to {ends[1]}"
    near, far = (", ".join(f"{x:.6g}" for x in vertices[k]) for k in ends)
    return f"from ({near}) to ({far})"


def _check_volumes(part: str, vertices: np.ndarray, faces: np.ndarray) -> None:
    """Raise unless the mesh encloses a volume, and each of its separate surfaces points outwards or is a cavity."""
    middle = vertices[faces].mean(axis=(0, 1)) if len(faces) else np.zeros(3)
    a, b, c = np.moveaxis(vertices[faces] - middle, 1, 0)
    volumes = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6
    area = float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum()) / 2
    least, volume = _FLAT * area**1.5, float(volumes.sum())
    if abs(volume) <= least:
        raise MechanismError(
            f"{part}: it encloses no volume ({volume:.3g} for a surface of {area:.3g}, in units of the file): it is "
            "flat, or its parts cancel. A solid needs a closed surface around a volume; what is only looked at is a "
            "shapes.mesh(...)."
        )
    if volume < 0:
        raise MechanismError(
            f"{part}: all its faces point inwards, so that its volume would be {volume:.6g} (in units of the file). "
            "Triangles must be counter-clockwise seen from outside: reverse each, faces[:, ::-1]."
        )
    shells, shell = np.unique(_connected(faces, len(vertices))[faces[:, 0]], return_inverse=True)
    each = np.bincount(shell, weights=volumes)
    if len(shells) == 1 or (each >= -least).all():
        return
    corners = [vertices[faces[shell == k]].reshape(-1, 3) for k in range(len(shells))]
    boxes = [(x.min(axis=0), x.max(axis=0)) for x in corners]
    for k in np.flatnonzero(each < -least):
        (low, high), others = boxes[k], np.flatnonzero(each > 0)
        if not any((boxes[n][0] <= low).all() and (boxes[n][1] >= high).all() for n in others):
            listed = ", ".join(f"{x:.6g}" for x in (low + high) / 2)
            raise MechanismError(
                f"{part}: one of its {len(shells)} separate surfaces points inwards, about ({listed}), and it is in no "
                "other one, as a cavity would be. Reverse its triangles: they must be counter-clockwise from outside."
            )


def _connected(faces: np.ndarray, count: int) -> np.ndarray:
    """For each of `count` vertices the least one that triangles connect it with."""
    least = np.arange(count)
    while True:
        found = least.copy()
        np.minimum.at(found, faces.ravel(), np.repeat(least[faces].min(axis=1), 3))
        found = found[found]  # whose own least one is known: the distance doubles each time
        if np.array_equal(found, least):
            return least
        least = found


@trace_once
def _integrals(
    density: Scalar, scale: Scalar, corners: Float[Array, "triangles 3 3"]
) -> tuple[Scalar, Float[Array, "3 3"], Float[Array, "3"]]:
    """Mass, inertia about the centre of mass, and that centre."""
    # The sums do not depend on the point that they are taken about, but their rounding does.
    about = jax.lax.stop_gradient(jnp.mean(corners, axis=(0, 1)))
    a, b, c = (corners[:, k] - about[None] for k in range(3))
    d = jnp.sum(a * jnp.cross(b, c), axis=1)
    s = a + b + c
    volume, first = jnp.sum(d) / 6, jnp.sum(d[:, None] * s, axis=0) / 24
    second = sum(jnp.einsum("n,ni,nj->ij", d, x, x, precision="highest") for x in (a, b, c, s)) / 120
    centre = first / volume
    second = second - volume * jnp.outer(centre, centre)
    inertia = jnp.trace(second) * jnp.eye(3, dtype=second.dtype) - second
    mass = density * scale**3 * volume
    return mass, density * scale**5 * (inertia + inertia.T) / 2, scale * (centre + about)
