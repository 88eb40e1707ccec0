"""An MJCF file that is being written: its elements by the names of the parts that they stand for."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import numpy as np
from scipy.spatial.transform import Rotation

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import Remarks
from jaxmbd.io._placement import Placement
from jaxmbd.model.body.body import AbstractMarker, AbstractMovingMarker
from jaxmbd.model.mechanism.mechanism import Mechanism


@dataclass
class Target:
    """`root`: the file; `bodies` by their names, and `joints` by the names of the coordinates that they carry."""

    mechanism: Mechanism
    root: ElementTree.Element
    remarks: Remarks
    bodies: dict[str, ElementTree.Element]
    joints: dict[str, ElementTree.Element] = field(default_factory=dict)
    sites: int = 0

    def section(self, tag: str) -> ElementTree.Element:
        """The section of this name; it is made when it is needed first."""
        found = self.root.find(tag)
        return ElementTree.SubElement(self.root, tag) if found is None else found

    def site(self, marker: AbstractMarker, offset: np.ndarray | None = None) -> str:
        """A new site at a marker, or at an offset [m] from it in its axes; its name."""
        self.sites += 1
        name = f"site_{self.sites}"
        element = ElementTree.SubElement(self.bodies[marker.body], "site", name=name)
        place(element, local(marker) if offset is None else local(marker) @ Placement(offset))
        return name

    def lost(self, part: object, text: str) -> None:
        """Remark that the file lacks a part."""
        self.remarks.lost(f"{type(part).__name__} {getattr(part, 'name', '')!r}", text)


def local(marker: AbstractMarker) -> Placement:
    """The placement of a marker on its body."""
    if isinstance(marker, AbstractMovingMarker):
        raise MechanismError(f"write_mjcf: a marker on {marker.body!r} moves on its body; MJCF has fixed sites alone.")
    frame = marker.local
    return Placement(np.array(frame.position, float), Rotation.from_matrix(np.array(frame.rotation, float)))


def place(element: ElementTree.Element, placement: Placement) -> None:
    """Place a body or a site relative to the body that it is in."""
    element.set("pos", words(placement.position))
    element.set("quat", words(placement.euler_parameters))


def words(numbers: Iterable[Any]) -> str:
    """Numbers with all their digits."""
    return " ".join(repr(float(number)) for number in numbers)
