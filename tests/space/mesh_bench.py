"""Meshes of closed form, without a library for meshes, and STL files of them."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

BOX_FACES = np.array(
    [
        (0, 1, 3),
        (0, 3, 2),
        (4, 6, 7),
        (4, 7, 5),
        (0, 4, 5),
        (0, 5, 1),
        (2, 3, 7),
        (2, 7, 6),
        (0, 2, 6),
        (0, 6, 4),
        (1, 5, 7),
        (1, 7, 3),
    ]
)


def box_mesh(x: float, y: float, z: float) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and triangles of a box about the origin, counter-clockwise from outside."""
    corners = np.array([(a, b, c) for a in (-0.5, 0.5) for b in (-0.5, 0.5) for c in (-0.5, 0.5)])
    return corners * (x, y, z), BOX_FACES


def ball_mesh(radius: float, finer: int) -> tuple[np.ndarray, np.ndarray]:
    """An octahedron, divided `finer` times, with its vertices on a sphere."""
    vertices = np.concatenate([np.eye(3), -np.eye(3)])
    faces = np.array([(0, 1, 2), (1, 3, 2), (3, 4, 2), (4, 0, 2), (1, 0, 5), (3, 1, 5), (4, 3, 5), (0, 4, 5)])
    for _ in range(finer):
        corners = vertices[faces]
        a, b, c = np.moveaxis(corners, 1, 0)
        ab, bc, ca = (unit(p + q) for p, q in ((a, b), (b, c), (c, a)))
        soup = np.concatenate([np.stack(t, axis=1) for t in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))])
        vertices, inverse = np.unique(np.round(soup.reshape(-1, 3), 14), axis=0, return_inverse=True)
        faces = inverse.reshape(-1, 3)
    return radius * unit(vertices), faces


def unit(points: np.ndarray) -> np.ndarray:
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def stl(vertices: Any, faces: Any, count: int | None = None) -> bytes:
    """A binary STL file, whose head may say another number of triangles."""
    corners = np.asarray(vertices, "<f4")[np.asarray(faces)]
    head = b"made by hand".ljust(80) + struct.pack("<I", len(corners) if count is None else count)
    return head + b"".join(struct.pack("<12f", 0, 0, 0, *corner.ravel()) + b"\0\0" for corner in corners)


def ascii_stl(vertices: Any, faces: Any) -> str:
    corners = np.asarray(vertices)[np.asarray(faces)]
    loops = [
        "facet normal 0 0 0\n outer loop\n"
        + "".join(f"  vertex {x:.9g} {y:.9g} {z:.9g}\n" for x, y, z in corner)
        + " endloop\nendfacet\n"
        for corner in corners
    ]
    return f"solid box\n{''.join(loops)}endsolid box\n"


def obj(vertices: Any, faces: Any) -> str:
    lines = [f"v {x!r} {y!r} {z!r}" for x, y, z in np.asarray(vertices).tolist()]
    return "\n".join([*lines, *(f"f {a + 1} {b + 1} {c + 1}" for a, b, c in np.asarray(faces).tolist())]) + "\n"


def written(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
