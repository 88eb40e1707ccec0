"""A URDF robot on its way to a mechanism: checked values of its elements, and what has been made of them so far."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.io._imported_model import Remarks
from jaxmbd.io._names import Names
from jaxmbd.io._placement import Owner, Placement, along_z
from jaxmbd.io._xml import Element

HINGES, SLIDES = ("revolute", "continuous"), ("prismatic",)


def circle(follows: Mapping[str, str]) -> list[str]:
    """Names from one that follows itself, by way of others, back to it; empty if none does."""
    for start in follows:
        chain = [start]
        while chain[-1] in follows and follows[chain[-1]] not in chain:
            chain.append(follows[chain[-1]])
        if follows.get(chain[-1]) == start:
            return [*chain, start]
    return []


@dataclass
class Robot:
    """`root`: the robot's element. Filled by those that make parts: `owners` of the links' frames, `poses` of the links
    in the position where all joint coordinates are zero, `coordinates` of joints with one degree of freedom."""

    path: Path
    root: Element
    remarks: Remarks
    names: Names
    owners: dict[str, Owner] = field(default_factory=dict)
    poses: dict[str, Placement] = field(default_factory=dict)
    coordinates: dict[str, str] = field(default_factory=dict)

    def error(self, element: Element, text: str) -> MechanismError:
        """The error for an element, with its line."""
        name = element.attributes.get("name", element.attributes.get("link", ""))
        return self.remarks.error(f"<{element.tag}> {name!r}" if name else f"<{element.tag}>", text, element.line)

    def attribute(self, element: Element, name: str) -> str:
        """An attribute that must be there."""
        if not element.attributes.get(name):
            raise self.error(element, f"it has no attribute {name!r}.")
        return element.attributes[name]

    def child(self, element: Element, tag: str) -> Element:
        """A child that must be there."""
        found = element.first(tag)
        if found is None:
            raise self.error(element, f"it has no <{tag}>.")
        return found

    def ends(self, joint: Element) -> tuple[str, str]:
        """The names of the parent and the child link of a joint."""
        parent, child = (self.attribute(self.child(joint, tag), "link") for tag in ("parent", "child"))
        if parent == child:
            raise self.error(joint, f"it connects the link {parent!r} with itself.")
        return parent, child

    def numbers(self, element: Element, name: str, default: tuple[float, ...]) -> np.ndarray:
        """An attribute with as many finite numbers as the default has."""
        text = element.attributes.get(name)
        if text is None:
            return np.array(default)
        try:
            values = [float(word) for word in text.split()]
        except ValueError:
            values = []
        if len(values) != len(default) or not all(map(math.isfinite, values)):
            need = "a finite number" if len(default) == 1 else f"{len(default)} finite numbers"
            raise self.error(element, f"{name} must be {need}, got {text!r}.")
        return np.array(values)

    def number(self, element: Element, name: str, default: float | None = None) -> float:
        """An attribute with one finite number; it must be there if there is no default."""
        if default is None:
            self.attribute(element, name)
        return float(self.numbers(element, name, (default or 0.0,))[0])

    def placement(self, element: Element | None) -> Placement:
        """The placement with the attributes `xyz` [m] and `rpy` [rad]; the identity without an element."""
        if element is None:
            return Placement()
        zero = (0.0, 0.0, 0.0)
        return Placement(
            self.numbers(element, "xyz", zero), Rotation.from_euler("xyz", self.numbers(element, "rpy", zero))
        )

    def axis(self, element: Element) -> Placement:
        """The rotation of z to the `<axis>` of a joint (default x)."""
        axis = element.first("axis")
        direction = np.array([1.0, 0.0, 0.0]) if axis is None else self.numbers(axis, "xyz", (1.0, 0.0, 0.0))
        if axis is not None and not direction.any():
            raise self.error(axis, f"xyz must be a direction, got {axis.attributes.get('xyz')!r}.")
        return Placement(rotation=along_z(direction))

    def remark_on_others(self, part: str, element: Element, known: Collection[str]) -> None:
        """Remark children of an element that nothing is made of."""
        for child in element.children:
            if child.tag not in known:
                self.remarks.lost(part, f"has <{child.tag}>, which is left out", child.line)

    def owner(self, element: Element, link: str) -> Owner:
        """The owner of a link's frame."""
        if link not in self.owners:
            raise self.error(element, str(unknown("link", link, self.owners)))
        return self.owners[link]
