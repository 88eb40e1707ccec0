"""Checked values of elements of Robotran's files, which hold names and numbers as texts of children."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError, unknown
from jaxmbd.io._imported_model import Remarks
from jaxmbd.io._names import Names
from jaxmbd.io._placement import Owner, Placement
from jaxmbd.io._xml import Element
from jaxmbd.model.body.spatial import Marker

_NAMES = ("bodyname", "jointname", "pointname", "name", "varname")  # children that hold the name of what they are in
_ORIGIN = "origin"  # the point that every body has


@dataclass
class Values:
    """The elements of one file; `owners` of the bodies by their names, and `points` by those and their own."""

    path: Path
    remarks: Remarks
    names: Names = field(init=False)
    owners: dict[str, Owner] = field(default_factory=dict)
    points: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = Names(self.remarks)

    def part(self, element: Element) -> str:
        """What an element is called in messages: its tag and its name."""
        found = next((child.text.strip() for child in element.children if child.tag in _NAMES), "")
        return f"{element.tag} {found!r}" if found else f"<{element.tag}>"

    def error(self, element: Element, text: str) -> MechanismError:
        """The error for an element, with its line."""
        return self.remarks.error(self.part(element), text, element.line)

    def lost(self, element: Element, text: str) -> None:
        """Remark what the mechanism lacks of an element."""
        self.remarks.lost(self.part(element), text, element.line)

    def text(self, element: Element, tag: str) -> str:
        """The text of a child that must be there."""
        child = element.first(tag)
        if child is None or not child.text.strip():
            raise self.error(element, f"it has no <{tag}>, or an empty one.")
        return child.text.strip()

    def number(self, element: Element | None, tag: str, default: float = 0.0) -> float:
        """The finite number in a child, or the default if there is no such."""
        child = None if element is None else element.first(tag)
        if child is None or not child.text.strip():
            return default
        try:
            value = float(child.text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.error(element or child, f"<{tag}> must hold a finite number, got {child.text.strip()[:60]!r}.")
        return value

    def vector(self, element: Element | None) -> np.ndarray:
        """The `<coordinates>` of an element; those that are not there are zero."""
        coordinates = None if element is None else element.first("coordinates")
        return np.array([self.number(coordinates, axis) for axis in "xyz"])

    def remark_on_others(self, element: Element, known: tuple[str, ...]) -> None:
        """Remark children that are not understood."""
        for tag in dict.fromkeys(child.tag for child in element.children if child.tag not in known):
            line = element.all(tag)[0].line
            self.remarks.lost(self.part(element), f"has <{tag}>, which is unknown and left out", line)

    def add_points(self, element: Element, body: str) -> None:
        """Enter the points of a body or of the base."""
        own: dict[tuple[str, str], np.ndarray] = {}
        for point in element.all("point"):
            key = body, self.text(point, "pointname")
            if key in own:
                raise self.error(point, f"{body!r} has two points of this name.")
            own[key] = self.vector(point)
        self.points |= {(body, _ORIGIN): np.zeros(3), **own}  # some files list it, too

    def at(self, reference: Element) -> tuple[Owner, Placement]:
        """The body and the point that `<bodyname>` and `<pointname>` of an element name."""
        body, point = self.text(reference, "bodyname"), self.text(reference, "pointname")
        if body not in self.owners:
            raise self.error(reference, str(unknown("body", body, self.owners)))
        if (body, point) not in self.points:
            own = [name for on, name in self.points if on == body]
            raise self.error(reference, str(unknown("point", point, own)))
        return self.owners[body], Placement(self.points[body, point])

    def marker(self, element: Element, tag: str) -> Marker:
        """The marker at the point that a child, such as `<endpoint1>`, refers to."""
        reference = element.first(tag)
        if reference is None:
            raise self.error(element, f"it has no <{tag}>.")
        owner, place = self.at(reference)
        return owner.at(place)
