"""Checked values of elements of SDF, which hold them as text."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import Remarks
from jaxmbd.io._names import Names
from jaxmbd.io._placement import Placement
from jaxmbd.io._xml import Element

_ZERO = (0.0, 0.0, 0.0)


@dataclass
class Values:
    """The elements of one file: their numbers, names and errors."""

    path: Path
    remarks: Remarks
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.names = Names(self.remarks)

    def error(self, element: Element, text: str) -> MechanismError:
        """The error for an element, with its line."""
        name = element.attributes.get("name", "")
        return self.remarks.error(f"<{element.tag}> {name!r}" if name else f"<{element.tag}>", text, element.line)

    def attribute(self, element: Element, name: str) -> str:
        """An attribute that must be there."""
        if not element.attributes.get(name):
            raise self.error(element, f"it has no attribute {name!r}.")
        return element.attributes[name]

    def text(self, element: Element, tag: str) -> str:
        """The text of a child that must be there."""
        child = element.first(tag)
        if child is None or not child.text.strip():
            raise self.error(element, f"it has no <{tag}>, or an empty one.")
        return child.text.strip()

    def numbers(self, element: Element | None, default: tuple[float, ...]) -> np.ndarray:
        """The text of an element as as many finite numbers as the default has."""
        if element is None or not element.text.strip():
            return np.array(default)
        try:
            values = [float(word) for word in element.text.split()]
        except ValueError:
            values = []
        if len(values) != len(default) or not all(map(math.isfinite, values)):
            need = "a finite number" if len(default) == 1 else f"{len(default)} finite numbers"
            raise self.error(element, f"it must hold {need}, got {element.text.strip()[:60]!r}.")
        return np.array(values)

    def number(self, element: Element | None, tag: str, default: float) -> float:
        """A child with one number."""
        child = None if element is None else element.first(tag)
        return float(self.numbers(child, (default,))[0])

    def flag(self, element: Element, tag: str) -> bool:
        """A child that is true or false (default)."""
        child = element.first(tag)
        word = "" if child is None else child.text.strip().lower()
        if child is not None and word not in ("true", "false", "1", "0"):
            raise self.error(child, f"it must be true or false, got {word[:40]!r}.")
        return word in ("true", "1")

    def pose(self, element: Element | None) -> Placement:
        """`<pose>`: position [m], and roll, pitch, yaw [rad or degrees] or a quaternion, its scalar last."""
        if element is None:
            return Placement()
        form = element.attributes.get("rotation_format", "euler_rpy")
        if form not in ("euler_rpy", "quat_xyzw"):
            raise self.error(element, f"rotation_format must be euler_rpy or quat_xyzw, got {form!r}.")
        if form == "quat_xyzw":
            values = self.numbers(element, (*_ZERO, *_ZERO, 1.0))
            if not values[3:].any():
                raise self.error(element, "its quaternion must not be zero.")
            return Placement(values[:3], Rotation.from_quat(values[3:]))
        degrees = element.attributes.get("degrees", "false").lower() in ("true", "1")
        values = self.numbers(element, (*_ZERO, *_ZERO))
        return Placement(values[:3], Rotation.from_euler("xyz", values[3:], degrees=degrees))
