"""What the links of a URDF robot look like: `<visual>`, with the materials of the robot."""

from pathlib import Path

import numpy as np

from jaxmbd.errors import MechanismError
from jaxmbd.io._looks import Looks, hex_colour
from jaxmbd.io._placement import Placement
from jaxmbd.io._xml import Element
from jaxmbd.io.urdf.robot import Robot
from jaxmbd.space.shape import Shape

_SIZES = {"box": ("size",), "cylinder": ("radius", "length"), "sphere": ("radius",), "capsule": ("radius", "length")}


def looks_of(robot: Robot, links: dict[str, Element], within: Path) -> Looks:
    """The shapes of all links."""
    looks = Looks(robot.path, within, robot.remarks)
    colours = {x.attributes.get("name", ""): x for x in robot.root.all("material")}
    for link in links.values():  # a material may be described where it is used first
        for visual in link.all("visual"):
            own = visual.first("material")
            if own is not None and own.first("color") is not None:
                colours.setdefault(own.attributes.get("name", ""), own)
    for name, link in links.items():
        for visual in link.all("visual"):
            make = lambda visual=visual: _shape(robot, looks, visual, colours)  # noqa: E731
            looks.add(f"link {name!r}", visual.line, robot.owners[name], make)
    return looks


def _shape(
    robot: Robot, looks: Looks, visual: Element, materials: dict[str, Element]
) -> tuple[Shape, Placement] | None:
    geometry = robot.child(visual, "geometry")
    if not geometry.children:
        raise robot.error(geometry, "it is empty.")
    own = geometry.children[0]
    colour, opacity = _colour(robot, visual, materials)
    if opacity <= 0:
        return None
    placement = robot.placement(visual.first("origin"))
    if own.tag == "mesh":
        x, y, z = robot.numbers(own, "scale", (1.0, 1.0, 1.0)).tolist()
        if not x * y * z:
            raise robot.error(own, "its scale must not be zero.")
        shape = looks.mesh(robot.attribute(own, "filename"), (x, y, z))
    elif own.tag in _SIZES:
        size = [robot.numbers(own, key, (0.0,) * (3 if own.tag == "box" else 1)) for key in _SIZES[own.tag]]
        shape = Shape(own.tag, tuple(np.concatenate(size).tolist()))
    else:
        raise MechanismError(f"<{own.tag}> is not shown; shapes are {', '.join(_SIZES)} and mesh")
    return shape.coloured(colour, opacity), placement


def _colour(robot: Robot, visual: Element, materials: dict[str, Element]) -> tuple[str | None, float]:
    """The colour, None if there is none, and the opacity."""
    own = visual.first("material")
    if own is None:
        return None, 1.0
    given = own if own.first("color") is not None else materials.get(own.attributes.get("name", ""), own)
    colour = given.first("color")
    if colour is None:
        return None, 1.0
    rgba = robot.numbers(colour, "rgba", (0.5, 0.5, 0.5, 1.0))
    return hex_colour(rgba), min(float(rgba[3]), 1.0)
