"""An MJCF file that is being written: its elements by the names of the parts that they stand for."""

from dataclasses import dataclass, field
from xml.etree import ElementTree

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.io._imported_model import Remarks
from jaxmbd.io._placement import Placement, placement_of
from jaxmbd.io._xml import words
from jaxmbd.model.body.body import AbstractMarker
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
        if marker.body not in self.bodies:
            raise MechanismError(
                f"write_mjcf: {marker.body!r} is a massless link, which MJCF has none of, and a force or a joint that "
                "closes a loop acts on it. Give it mass and inertia, or move them to the next body."
            )
        self.sites += 1
        name = f"site_{self.sites}"
        element = ElementTree.SubElement(self.bodies[marker.body], "site", name=name)
        place(element, placement_of(marker) if offset is None else placement_of(marker) @ Placement(offset))
        return name

    def lost(self, part: object, text: str) -> None:
        """Remark that the file lacks a part."""
        self.remarks.lost(f"{type(part).__name__} {getattr(part, 'name', '')!r}", text)


def place(element: ElementTree.Element, placement: Placement) -> None:
    """Place a body or a site relative to the body that it is in."""
    element.set("pos", words(placement.position))
    element.set("quat", words(placement.euler_parameters))
