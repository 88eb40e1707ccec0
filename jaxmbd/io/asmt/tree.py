"""The text of an ASMT file as a tree: each line is a node, and the lines indented below it are its children."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.io._imported_model import file_error
from jaxmbd.io._placement import Placement
from jaxmbd.io._xml import read_bytes

_HEADERS = ("freeCAD:", "OndselSolver")
_RESULTS = "TimeSeries"  # what follows are results of an earlier simulation
_ROTATION = 1e-4  # largest entry of RᵀR − 1: some programs write single precision, and results of long motions


@dataclass
class Node:
    """A line: its text, its number, the nodes below it; `unit` [m], the length that 1 means in the file."""

    path: Path
    text: str
    line: int
    unit: float
    children: list["Node"] = field(default_factory=list)

    def first(self, key: str) -> "Node | None":
        """The first child with a text, None if there is none."""
        return next((child for child in self.children if child.text == key), None)

    def child(self, key: str) -> "Node":
        """The first child with a text, which must be there."""
        found = self.first(key)
        if found is None:
            raise file_error(self.path, f"{self.text} has no {key}.", self.line)
        return found

    def value(self, key: str) -> str:
        """The text below a key, on one line."""
        node = self.child(key)
        if len(node.children) != 1:
            raise file_error(self.path, f"{key} must have one line below it, got {len(node.children)}.", node.line)
        return node.children[0].text

    def numbers(self, key: str, rows: int, columns: int) -> np.ndarray:
        """The finite numbers below a key, `(rows, columns)`."""
        node, found = self.child(key), []
        for child in node.children:
            try:
                found.append([float(word) for word in child.text.split()])
            except ValueError:
                raise file_error(self.path, f"{key} must hold numbers, got {child.text!r}.", child.line) from None
        if [len(row) for row in found] != [columns] * rows or not all(math.isfinite(x) for row in found for x in row):
            raise file_error(self.path, f"{key} must hold {rows} x {columns} finite numbers, got {found}.", node.line)
        return np.array(found)

    def number(self, key: str) -> float:
        """The finite number below a key."""
        return float(self.numbers(key, 1, 1)[0, 0])

    def length(self, key: str) -> float:
        """The length [m] below a key."""
        return self.unit * self.number(key)

    def vector(self, key: str) -> np.ndarray:
        """The three finite numbers below a key."""
        return self.numbers(key, 1, 3)[0]

    @property
    def name(self) -> str:
        """The text below `Name`, empty if there is none."""
        return self.value("Name") if self.child("Name").children else ""

    @property
    def placement(self) -> Placement:
        """`Position3D` [m] and `RotationMatrix`."""
        R = self.numbers("RotationMatrix", 3, 3)
        if np.abs(R.T @ R - np.eye(3)).max() > _ROTATION or np.linalg.det(R) < 0:
            line = self.child("RotationMatrix").line
            raise file_error(self.path, f"RotationMatrix is no rotation: {R.tolist()}.", line)
        return Placement(self.unit * self.vector("Position3D"), Rotation.from_matrix(R))


def read_tree(path: Path, unit: float) -> tuple[Node, str]:
    """The node `Assembly` of an ASMT file, and the header, which names the program that wrote it.

    **Raises:** `MechanismError` with the line if the file is none of this format, or its indentation is wrong.
    """
    try:
        lines = read_bytes(path).decode().splitlines()
    except UnicodeDecodeError as error:
        raise file_error(path, f"no text in UTF-8: {error}.") from None
    if not lines or not lines[0].startswith(_HEADERS):
        raise file_error(path, f"no ASMT: its first line must begin with one of {_HEADERS}.", 1)
    root = Node(path, "the file", 0, unit)
    branch = [root]  # the nodes above the current line
    for number, line in enumerate(lines[1:], 2):
        text = line.strip()
        depth = len(line) - len(line.lstrip("\t"))
        if depth == 0 and text == _RESULTS:
            break
        if not text:
            continue
        if depth + 1 > len(branch):
            where = f"{text!r} is indented by {depth} tabs, below a line with {len(branch) - 2}."
            raise file_error(path, where, number)
        node = Node(path, text, number, unit)
        del branch[depth + 1 :]
        branch[-1].children.append(node)
        branch.append(node)
    return root.child("Assembly"), lines[0]
