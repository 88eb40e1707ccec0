"""The text of ASMT files, written from short descriptions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

HEADER = "OndselSolver"
Place = tuple[Sequence[float] | np.ndarray, Sequence[float]]  # position [m], rotation vector [rad]
HERE: Place = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def _indented(lines: list[str]) -> list[str]:
    return [f"\t{line}" for line in lines]


def block(key: str, *children: Any) -> list[str]:
    """A line and the lines below it: numbers, texts, or blocks."""
    below: list[str] = []
    for child in children:
        below += child if isinstance(child, list) else [str(child)]
    return [key, *_indented(below)]


def numbers(values: Any) -> str:
    return "\t".join(repr(float(x)) for x in values)


def place(at: Place) -> list[str]:
    R = Rotation.from_rotvec(at[1]).as_matrix()
    return [*block("Position3D", numbers(at[0])), *block("RotationMatrix", *map(numbers, R))]


def points(markers: Mapping[str, Place]) -> list[str]:
    """Each marker on a reference point of its own, half of the way to it."""
    listed = []
    for name, (position, turn) in markers.items():
        half = (0.5 * np.asarray(position), (0.0, 0.0, 0.0))
        marker = block("Marker", block("Name", name), place((half[0], turn)))
        listed.append(block("RefPoint", place(half), block("Markers", marker)))
    return block("RefPoints", *listed)


def part(
    name: str, at: Place, markers: Mapping[str, Place], *, centre: Place = HERE, mass: float = 1.0,
    moments: Sequence[float] = (0.1, 0.1, 0.1), velocity: Sequence[float] = (0.0, 0.0, 0.0),
    omega: Sequence[float] = (0.0, 0.0, 0.0),
) -> list[str]:  # fmt: skip
    """A part whose centre of mass and principal axes are at `centre`."""
    weight = [*block("Mass", mass), *block("MomentOfInertias", numbers(moments)), *block("Density", 1.0)]
    motion = [*block("Velocity3D", numbers(velocity)), *block("Omega3D", numbers(omega))]
    mass_marker = block("PrincipalMassMarker", block("Name", "MassMarker"), place(centre), weight)
    return block("Part", block("Name", name), place(at), motion, mass_marker, points(markers))


def joint(kind: str, name: str, i: str, j: str, **numbers_by_key: float) -> list[str]:
    ends = [*block("MarkerI", f"/A/{i}"), *block("MarkerJ", f"/A/{j}")]
    return block(kind, block("Name", name), ends, *(block(key, value) for key, value in numbers_by_key.items()))


def motion(kind: str, name: str, of: str, function: str) -> list[str]:
    key = "RotationZ" if kind == "RotationalMotion" else "TranslationZ"
    return block(kind, block("Name", name), block("MotionJoint", f"/A/{of}"), block(key, function))


def assembly(
    markers: Mapping[str, Place], parts: Sequence[list[str]], joints: Sequence[list[str]],
    motions: Sequence[list[str]] = (), forces: Sequence[list[str]] = (), gravity: Sequence[float] = (0, 0, 0),
) -> str:  # fmt: skip
    """The text of a file with the assembly `A`."""
    sets = block("ConstraintSets", block("Joints", *joints), block("Motions", *motions), block("GeneralConstraintSets"))
    loads = [*block("ForceTorques", *forces), *block("ConstantGravity", numbers(gravity))]
    end = block("SimulationParameters", block("tstart", 0.0), block("tend", 2.0))
    own = block("Assembly", block("Name", "A"), place(HERE), points(markers), block("Parts", *parts), sets, loads, end)
    return "\n".join([HEADER, *own, "TimeSeries", "Number\tInput\t1"])
