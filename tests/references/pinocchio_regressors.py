"""Trees whose regressors were computed by Pinocchio, `pinocchio_regressors.csv`.

`python -m tests.references.pinocchio_regressors` computes the numbers again (`pip install pin`; 4.1.0 was used).
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).with_suffix(".csv")
GRAVITY = 9.81
INSTANTS = 3


@dataclass(frozen=True)
class Link:
    """A body, and the joint to its parent (-1: the ground): `place` of the joint in the parent's joint frame, `centre`
    of mass in the own one; all joint frames are parallel to the world's at zero."""

    parent: int
    slides: bool
    axis: tuple[float, float, float]
    place: tuple[float, float, float]
    mass: float
    centre: tuple[float, float, float]
    inertia: tuple[float, float, float, float, float, float]  # xx, yy, zz, xy, xz, yz about the centre of mass


TREES = {
    "arm": [
        Link(-1, False, (0.0, 0.0, 1.0), (0.1, 0.0, 0.2), 3.0, (0.05, -0.1, 0.2), (0.2, 0.25, 0.15, 0.01, 0.02, -0.03)),
        Link(0, False, (0.0, 1.0, 0.0), (0.0, 0.2, 0.4), 2.0, (0.3, 0.02, 0.0), (0.02, 0.1, 0.11, -0.004, 0.0, 0.001)),
        Link(1, False, (0.6, 0.0, 0.8), (0.6, 0.0, 0.1), 1.5, (0.1, 0.1, 0.2), (0.06, 0.05, 0.04, 0.0, 0.01, 0.002)),
        Link(2, False, (1.0, 0.0, 0.0), (0.2, 0.1, 0.3), 0.5, (0.0, 0.05, 0.1), (0.004, 0.005, 0.003, 0.0, 0.0, 0.0)),
    ],
    "slides": [
        Link(-1, True, (1.0, 0.0, 0.0), (0.0, 0.0, 0.5), 5.0, (0.0, 0.0, 0.1), (0.3, 0.2, 0.4, 0.0, 0.05, 0.0)),
        Link(0, False, (0.0, 0.6, 0.8), (0.2, 0.0, 0.0), 2.0, (0.0, 0.3, 0.1), (0.1, 0.05, 0.09, 0.01, 0.0, 0.02)),
        Link(1, True, (0.0, 0.0, 1.0), (0.0, 0.5, 0.0), 1.0, (0.1, 0.0, 0.0), (0.02, 0.03, 0.02, 0.0, 0.003, 0.0)),
    ],
    "branches": [
        Link(-1, False, (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), 4.0, (0.1, 0.0, 0.3), (0.4, 0.5, 0.2, 0.02, 0.01, 0.0)),
        Link(0, False, (1.0, 0.0, 0.0), (0.0, 0.3, 0.5), 1.0, (0.0, 0.2, 0.0), (0.05, 0.02, 0.05, 0.0, 0.0, 0.01)),
        Link(0, True, (0.0, 0.8, -0.6), (0.0, -0.3, 0.5), 1.2, (0.0, -0.1, 0.1), (0.03, 0.04, 0.03, 0.0, 0.0, 0.0)),
        Link(1, False, (0.0, 0.0, 1.0), (0.0, 0.4, 0.0), 0.7, (0.2, 0.0, 0.0), (0.01, 0.03, 0.03, 0.002, 0.0, 0.0)),
    ],
}


def motion(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Coordinates, rates and second rates `(instants, joints)`."""
    draws = np.random.default_rng(sorted(TREES).index(name))
    q, v, a = draws.uniform(-1.5, 1.5, (3, INSTANTS, len(TREES[name])))
    return q, 2 * v, 5 * a


def regressors() -> dict[str, np.ndarray]:
    """The stored regressors `(instants, joints, 10 * bodies)`: of each body `m, h, xx, yy, zz, xy, xz, yz` about the
    modelled centre of mass."""
    found: dict[str, list[list[float]]] = {name: [] for name in TREES}
    with PATH.open(newline="") as file:
        for name, *numbers in csv.reader(file):
            found[name].append([float(x) for x in numbers])
    return {name: np.array(rows).reshape(INSTANTS, len(TREES[name]), -1) for name, rows in found.items()}


def computed(name: str) -> np.ndarray:
    """The same by Pinocchio."""
    import pinocchio as pin  # pyright: ignore[reportMissingImports]

    model: Any = pin.Model()
    model.gravity.linear = np.array([0.0, 0.0, -GRAVITY])
    for k, link in enumerate(TREES[name]):
        kind = pin.JointModelPrismaticUnaligned if link.slides else pin.JointModelRevoluteUnaligned
        joint = kind(*link.axis)
        placement = pin.SE3(np.eye(3), np.array(link.place))
        model.addJoint(link.parent + 1, joint, placement, f"joint{k}")
    data, found = model.createData(), []
    for q, v, a in zip(*motion(name), strict=True):
        Y = pin.computeJointTorqueRegressor(model, data, q, v, a)
        found.append(
            np.hstack([Y[:, 10 * k : 10 * k + 10] @ _about(link.centre) for k, link in enumerate(TREES[name])])
        )
    return np.array(found)


def _about(centre: tuple[float, float, float]) -> np.ndarray:
    """From numbers about the centre of mass to those of Pinocchio about the joint, `m, h, xx, xy, yy, xz, yz, zz`."""
    c, columns = np.array(centre), []
    for unit in np.eye(10):
        mass, h, (xx, yy, zz, xy, xz, yz) = unit[0], unit[1:4], unit[4:]
        J = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        J = J + mass * (c @ c * np.eye(3) - np.outer(c, c)) + 2 * c @ h * np.eye(3) - np.outer(c, h) - np.outer(h, c)
        columns.append([mass, *(h + mass * c), J[0, 0], J[0, 1], J[1, 1], J[0, 2], J[1, 2], J[2, 2]])
    return np.array(columns).T


if __name__ == "__main__":
    with PATH.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for name in TREES:
            for instant in computed(name):
                writer.writerows([name, *(f"{x:.17g}" for x in row)] for row in instant)
