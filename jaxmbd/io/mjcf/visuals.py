"""What the bodies of an MJCF model look like: the geoms that MuJoCo's viewer shows, as MuJoCo has compiled them."""

from typing import Any

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.io._looks import Looks, hex_colour
from jaxmbd.io._placement import Placement, from_quaternion
from jaxmbd.io.mjcf.source import Source
from jaxmbd.space.mesh_files import Mesh
from jaxmbd.space.shape import Shape, Triangles

_SHOWN_GROUPS = 3  # the viewer shows groups 0 to 2 at first; by convention, the others only collide
_DEFAULT = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's colour of a geom that has none


def looks_of(source: Source, looks: Looks) -> Looks:
    """The shapes of all bodies and the world."""
    meshes: dict[int, Triangles] = {}
    for i in range(source.model.ngeom):
        if int(source.model.geom_group[i]) < _SHOWN_GROUPS:
            owner = source.owners[int(source.model.geom_bodyid[i])]
            make = lambda i=i: _shape(source, i, meshes)  # noqa: E731
            looks.add(source.part("geom", i), source.line("geom", i), owner, make)
    return looks


def _shape(source: Source, i: int, meshes: dict[int, Triangles]) -> tuple[Shape, Placement] | None:
    m, kinds = source.model, source.mujoco.mjtGeom
    colour, opacity = _colour(m, i)
    kind = int(m.geom_type[i])
    if opacity <= 0 or kind == kinds.mjGEOM_PLANE:  # a page has a floor of its own
        return None
    a, b, c = m.geom_size[i].tolist()
    simple: dict[Any, tuple[str, tuple[float, ...]]] = {
        kinds.mjGEOM_BOX: ("box", (2 * a, 2 * b, 2 * c)),
        kinds.mjGEOM_SPHERE: ("sphere", (a,)),
        kinds.mjGEOM_ELLIPSOID: ("ellipsoid", (2 * a, 2 * b, 2 * c)),
        kinds.mjGEOM_CYLINDER: ("cylinder", (a, 2 * b)),
        kinds.mjGEOM_CAPSULE: ("capsule", (a, 2 * b)),
    }
    found = next((own for key, own in simple.items() if int(key) == kind), None)
    if found is not None:
        shape = Shape(*found)
    elif kind == int(kinds.mjGEOM_MESH):
        number = int(m.geom_dataid[i])
        if number not in meshes:
            meshes[number] = Triangles.of(_mesh(m, number))
        shape = Shape("mesh", (), meshes[number])
    else:
        raise MechanismError("height fields and signed distance fields are not shown")
    return shape.coloured(colour, opacity), from_quaternion(m.geom_pos[i], m.geom_quat[i])


def _mesh(m: Any, number: int) -> Mesh:
    """A compiled mesh, in the frame into which MuJoCo has moved it; the pose of the geom is that of this frame."""
    first, count = int(m.mesh_vertadr[number]), int(m.mesh_vertnum[number])
    face, faces = int(m.mesh_faceadr[number]), int(m.mesh_facenum[number])
    vertices = np.array(m.mesh_vert[first : first + count], float).reshape(-1, 3)
    return Mesh(vertices, np.array(m.mesh_face[face : face + faces], np.int64).reshape(-1, 3))


def _colour(m: Any, i: int) -> tuple[str | None, float]:
    """The colour of a geom, else that of its material, else None; and the opacity."""
    rgba, material = m.geom_rgba[i], int(m.geom_matid[i])
    is_default = np.allclose(rgba, _DEFAULT)
    if is_default and material >= 0:
        rgba = m.mat_rgba[material]
    elif is_default:
        return None, 1.0
    return hex_colour(rgba), min(float(rgba[3]), 1.0)
